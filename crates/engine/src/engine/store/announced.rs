//! Writes without a log ([`crate::Options::log_free`]): what a group of writers would append to it goes to slots at
//! once, where PrismDB puts it (Raina et al., ASPLOS 2023, §4.1), and its flush has nothing left to write.
//!
//! *Announcing.* An edit names the slots before anything comes into them, all free ones of a slab, which is closed to
//! everybody else as long as they are announced; so who fills them meets nobody in their pages. A worker does that
//! ahead of time, for the sizes that are asked for, and leaves them in the pool: whoever leads a group may have to let
//! others wait for it, and must not wait for an edit.
//!
//! *Filling.* A group goes to slots whole or not at all: if each of its members is one entry and each finds a slot,
//! else to the log. What is acknowledged as durable is, since slabs that were written to are synced where the log is.
//!
//! *Order.* Numbers of groups follow each other without a gap, in slots and log together: those of a group that was
//! refused are told to the log as a batch of no entries. So an open after a crash puts both in order ([`InOrder`]), and
//! ends at the first number that is missing: behind it lies only what nobody was promised. Every such slot says how far
//! all was durable when it was written; a number that is missing before that was lost. And the log is told how far the
//! manifest went that announced them: without its last edit nobody would look into the slots.
//!
//! *Flush.* Objects that are in slots already stay there; the edit takes these, and withdraws all that were announced
//! for the memtable. It says up to which number it went, too: a slot that is announced again may still have what was in
//! it before. After a crash all that was replayed goes to a new log, and its edit withdraws every slot, so an open
//! begins with none.
//!
//! Cost: per run of neighbouring sectors one read and one write; per group one sync of each slab that was written to.
//! An announced slot costs a bit of memory, one in its list, and 24 bytes once it is filled.

use super::super::jobs::is_refusal;
use super::{Engine, Store, holds_of};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Position, StoreId};
use crate::garbage::Garbage;
use crate::key::{Entry, KEYSPACE_BYTES, KeyspaceId, Kind, Seq};
use crate::log::put_entry;
use crate::planted::{self, Bug};
use crate::size_class::slot_bytes;
use crate::store::{Contents, Holds, Location, SLAB_TIER, Slab, SlotRun, Write, Written, early_bytes, fill};
use crate::tier::Tiers;
use crate::version::{Catalog, Edit};
use cuesta_device::Cause;
use cuesta_sched::atomic::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec;

/// As many slots are announced at once as one part in so many of a memtable fills, if there are; and no more once all
/// that are announced would take so many memtables.
const AHEAD_SHARE: u64 = 8;
const ANNOUNCED_MAX: u64 = 2;

/// Slots that were announced and that nobody has yet, and what is asked for.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// By class; the next to be given out is the last.
    free: BTreeMap<u64, Vec<Location>>,
    /// What memtables have given up, and no edit has withdrawn yet. Nobody gets these: other slots of their slabs may
    /// be filled, and such a slab belongs to its memtable until that is flushed.
    given_up: Vec<Location>,
    /// Classes of which more should be announced.
    wanted: BTreeSet<u64>,
    /// Classes of which there were none: not asked for again before something was freed.
    exhausted: BTreeSet<u64>,
    /// Of all announced slots, the memtables' included.
    bytes: u64,
    /// Where the manifest ended when it had announced them.
    manifest_end: Position,
}

impl Pool {
    /// Slots were freed, or may be had.
    pub(super) fn refill(&mut self) {
        self.exhausted.clear();
    }

    /// Bytes of all announced slots: what memtables have not flushed yet comes into these first.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What an edit is to withdraw: all that nobody has, and what memtables have given up.
    fn begin_to_withdraw(&mut self, given_up: impl IntoIterator<Item = Location>) -> Withdrawing {
        self.given_up.extend(given_up);
        let (free, given_up) = (std::mem::take(&mut self.free), std::mem::take(&mut self.given_up));
        Withdrawing { free, given_up }
    }

    /// The edit was refused.
    fn keep(&mut self, withdrawing: Withdrawing) {
        (self.free, self.given_up) = (withdrawing.free, withdrawing.given_up);
    }

    /// So many bytes are announced no more.
    pub(super) fn ended(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }
}

/// Slots that nobody will fill.
#[derive(Debug)]
struct Withdrawing {
    free: BTreeMap<u64, Vec<Location>>,
    given_up: Vec<Location>,
}

/// What of a group is in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Filled {
    All,
    Nothing,
    /// Nobody knows: the medium had no room for all of it.
    Perhaps,
}

/// Slots that belong to one memtable.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    slots: Vec<Location>,
    /// Of these, by class, what nobody has filled.
    free: BTreeMap<u64, Vec<Location>>,
    /// In the order of numbers.
    filled: Vec<(Seq, Location)>,
    /// Where the manifest ended when it had announced all of them, if the log has not been told yet.
    untold: Option<Position>,
}

impl Announced {
    /// Takes back what a group was to have. A slot that holds nothing is as it was announced, whatever it was for:
    /// [`Announced::give_up`] looks for it among all that were.
    fn put_back(&mut self, writes: Vec<Write<'_>>) {
        for (at, entry) in writes.into_iter().rev() {
            let at = Location { holds: Holds::Value, ..at };
            self.free.entry(slot_bytes(early_bytes(&entry))).or_default().push(at);
        }
    }

    /// Memory that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.filled.len() * size_of::<(Seq, Location)>() + self.slots.len() * size_of::<Location>()) as u64
    }

    /// Where the entry of this number is.
    pub(super) fn slot_of(&self, seq: Seq) -> Option<Location> {
        let found = self.filled.binary_search_by_key(&seq, |(number, _)| *number);
        found.ok().map(|at| self.filled[at].1)
    }

    pub(super) fn slots(&self) -> &[Location] {
        &self.slots
    }

    /// Gives up what nobody has filled.
    fn give_up(&mut self) -> BTreeMap<u64, Vec<Location>> {
        let free = std::mem::take(&mut self.free);
        let given: BTreeSet<&Location> = free.values().flatten().collect();
        self.slots.retain(|at| !given.contains(at));
        free
    }

    /// Slabs of slots that something was put into.
    pub(super) fn filled_slabs(&self) -> BTreeSet<u64> {
        self.filled.iter().map(|(_, at)| at.slab).collect()
    }
}

/// These slots, as an edit announces or withdraws them.
pub(super) fn runs_announced(slots: &[Location]) -> Vec<SlotRun> {
    if planted::has(Bug::SlotsUnannounced) { Vec::new() } else { SlotRun::of(slots.to_vec()) }
}

/// Slabs of these slots.
pub(super) fn slabs_of(slots: &[Location]) -> BTreeSet<u64> {
    slots.iter().map(|at| at.slab).collect()
}

impl Store {
    /// Whether slots should be announced.
    pub(in crate::engine) fn wants_announced(&self) -> bool {
        let state = self.state.lock();
        !state.starved && !state.pool.wanted.is_empty()
    }
}

impl Engine {
    /// Puts a group's entries into announced slots, if there is one for each; else the log has to take the group.
    /// Nothing is durable before the slabs that `unsynced` gets are synced; everything up to `durable` is already.
    /// `tell` puts into the log where the manifest ended, if slots are used that were announced since the last time.
    ///
    /// # Errors
    /// What the device says; what is in the slots is unknown then.
    pub(in crate::engine) fn fill_announced(
        &self,
        store: &Store,
        announced: &mut Announced,
        unsynced: &mut BTreeMap<u64, Arc<Slab>>,
        entries: &[Entry<'_>],
        durable: Seq,
        tell: &mut dyn FnMut(Position) -> Result<()>,
    ) -> Result<Filled> {
        let mut writes: Vec<Write<'_>> = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(at) = self.announced_slot(store, announced, slot_bytes(early_bytes(entry))) else {
                announced.put_back(writes);
                return Ok(Filled::Nothing);
            };
            writes.push((Location { holds: holds_of(entry.trailer), ..at }, *entry));
        }
        if let Some(end) = announced.untold {
            if let Err(error) = tell(end) {
                announced.put_back(writes);
                return Err(error);
            }
            announced.untold = None;
        }
        let filled: Vec<(Seq, Location)> =
            writes.iter().map(|(at, entry)| (entry.trailer.seq(), *at)).collect();
        let contents: Arc<Contents> = self.current.load().contents.clone();
        let none = BTreeSet::new();
        let mut by_place: Vec<&Write<'_>> = writes.iter().collect();
        match fill(&self.tiers, &contents, &none, &mut by_place, Some(durable), Cause::Log, &|_| Ok(())) {
            Ok(Written { touched, spoiled }) if spoiled.is_empty() => {
                store.log_free.fetch_add(filled.len() as u64, Ordering::Relaxed);
                unsynced.extend(touched.into_iter().map(|slab| (slab.meta.number, slab)));
                announced.filled.extend(filled);
                Ok(Filled::All)
            }
            // What others were promised may be in these pages.
            Ok(_) => Err(Error::io(
                "write to announced slots",
                io::Error::other("the medium cannot read their pages"),
            )),
            // The slots wait for the memtable's flush; if they have the entries, the log is to have the same.
            Err(error) if *error.kind() == ErrorKind::Full => Ok(Filled::Perhaps),
            Err(error) => Err(error),
        }
    }

    /// A slot of this class for the leader's memtable.
    fn announced_slot(&self, store: &Store, announced: &mut Announced, class: u64) -> Option<Location> {
        if let Some(at) = announced.free.get_mut(&class).and_then(Vec::pop) {
            return Some(at);
        }
        if class > self.options.slab_bytes() {
            return None;
        }
        let (pooled, asks) = {
            let mut state = store.state.lock();
            let pool = &mut state.pool;
            let asks = !pool.exhausted.contains(&class) && pool.wanted.insert(class);
            (pool.free.remove(&class).map(|slots| (slots, pool.manifest_end)), asks)
        };
        if asks {
            self.background.wake();
        }
        let (mut pooled, manifest_end) = pooled?;
        announced.untold = Some(manifest_end);
        announced.slots.extend_from_slice(&pooled);
        let next = pooled.pop();
        announced.free.insert(class, pooled);
        next
    }

    /// Announces slots of the classes that are asked for, as far as there are any.
    ///
    /// # Errors
    /// What devices and the manifest say, but for a want of room.
    pub(in crate::engine) fn announce(&self) -> Result<()> {
        let Some(store) = &self.objects else { return Ok(()) };
        let next = || {
            let mut state = store.state.lock();
            let class = state.pool.wanted.pop_first();
            class.filter(|_| !state.starved)
        };
        while let Some(class) = next() {
            match self.announce_class(store, class) {
                Ok(true) => {}
                Ok(false) => drop(store.state.lock().pool.exhausted.insert(class)),
                Err(error) if *error.kind() == ErrorKind::Full => {
                    store.state.lock().pool.exhausted.insert(class);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Announces slots of a class, of a new slab if no other has any; whether there are any.
    fn announce_class(&self, store: &Store, class: u64) -> Result<bool> {
        let _turn = store.turn.take();
        let wanted = self.options.memtable_bytes() / AHEAD_SHARE;
        let mut slots: Vec<Location> = Vec::new();
        {
            let mut state = store.state.lock();
            if state.pool.bytes >= ANNOUNCED_MAX * self.options.memtable_bytes() {
                return Ok(false);
            }
            state.space.collect();
            let catalog = self.catalog.lock();
            let live = |slab: u64| catalog.slabs.get(&slab).map_or(0, |slab| slab.live.count());
            while (slots.len() as u64 * class) < wanted {
                let more = state.space.close(class, &live);
                if more.is_empty() {
                    break;
                }
                slots.extend(more);
            }
        }
        let made = match slots.is_empty() && self.room_in_index(store) > 0 {
            true => self.make_slab(class, self.options.beside_slabs_bytes())?.map(Arc::new),
            false => None,
        };
        if let Some(slab) = &made {
            slots = store.state.lock().space.add_closed(slab.meta);
            let named = slab.sync().and_then(|()| self.tiers.get(SLAB_TIER)?.sync_names());
            named.inspect_err(|error| self.fail(error))?;
        }
        if slots.is_empty() {
            return Ok(false);
        }
        let before = self.current.load().contents.clone();
        let after = before.with(made.iter());
        let edit = Edit {
            slabs_added: made.iter().map(|slab| slab.meta).collect(),
            announced: runs_announced(&slots),
            ..Edit::default()
        };
        let committed = self.replace_contents(store, &before, after, edit, false);
        let manifest_end = self.root.take().manifest.end();
        let mut state = store.state.lock();
        state.pool.manifest_end = manifest_end;
        if let Err(error) = committed {
            // After any other failure the edit may be on media.
            if self.failure.get().is_none() || is_refusal(&error) {
                match &made {
                    Some(slab) => {
                        state.space.remove(slab.meta.number);
                        slab.mark_obsolete();
                    }
                    None => {
                        slabs_of(&slots).into_iter().for_each(|slab| state.space.reopen(slab));
                        state.space.give_back(slots);
                    }
                }
            }
            return Err(error);
        }
        state.pool.bytes += state.space.bytes_of(&slots);
        // By place, the first one last.
        slots.sort_unstable_by(|a, b| b.cmp(a));
        let pooled = state.pool.free.entry(class).or_default();
        slots.append(pooled);
        *pooled = slots;
        Ok(true)
    }

    /// Withdraws what nobody has filled, for whoever wants slots more; whether there was anything.
    ///
    /// # Errors
    /// What the manifest says.
    pub(in crate::engine) fn withdraw_unfilled(&self, store: &Store) -> Result<bool> {
        if !self.options.log_free {
            return Ok(false);
        }
        let given_up = self.with_lead(|_, lead| Ok(lead.announced.give_up()))?;
        let _turn = store.turn.take();
        let given_up = given_up.into_values().flatten();
        let withdrawing = store.state.lock().pool.begin_to_withdraw(given_up);
        let pooled = withdrawing.free.values().flatten();
        let slots: Vec<Location> = pooled.chain(&withdrawing.given_up).copied().collect();
        if slots.is_empty() {
            return Ok(false);
        }
        let before = self.current.load().contents.clone();
        let edit = Edit { withdrawn: runs_announced(&slots), ..Edit::default() };
        let committed = self.replace_contents(store, &before, (*before).clone(), edit, false);
        let mut state = store.state.lock();
        match committed {
            Ok(()) => {
                let bytes = state.space.bytes_of(&slots);
                state.pool.ended(bytes);
                slabs_of(&slots).into_iter().for_each(|slab| state.space.reopen(slab));
                state.space.give_back(slots);
                Ok(true)
            }
            Err(error) => {
                state.pool.keep(withdrawing);
                Err(error)
            }
        }
    }
}

/// An entry that was found in an announced slot.
#[derive(Debug)]
struct Early {
    seq: Seq,
    /// As a batch of one has it.
    payload: Vec<u8>,
}

/// What replay hands over: the numbers of a batch and its payload.
pub(in crate::engine) type TakeBatch<'a> = dyn FnMut((Seq, u32), &[u8]) -> Result<()> + 'a;

/// Entries of announced slots and batches of the log in the order of their numbers, up to the first that is missing.
#[derive(Debug)]
pub(in crate::engine) struct InOrder {
    early: Peekable<vec::IntoIter<Early>>,
    /// The number that follows.
    next: u64,
    /// It is missing.
    is_cut: bool,
    /// The highest number anywhere.
    highest: Seq,
    /// Up to here everything was durable, by all that was found.
    durable: Seq,
    /// Slots whose bytes are torn, or another slot's.
    torn: u64,
}

impl InOrder {
    /// Reads the slots that the catalog announces; `None` when there are none. Everything up to `durable` is known to
    /// have been.
    ///
    /// # Errors
    /// What the device says; `Corrupt` for a slab that is not what the catalog says.
    pub(in crate::engine) fn find(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        catalog: &Catalog,
        mut durable: Seq,
    ) -> Result<Option<Self>> {
        if catalog.announced.is_empty() {
            return Ok(None);
        }
        let flushed = if planted::has(Bug::FlushedSlotsBelieved) { Seq(0) } else { catalog.flushed };
        let (mut found, mut torn) = (Vec::new(), 0);
        for (slab, slots) in &catalog.announced {
            let missing = || Error::internal(format!("slab {slab} has announced slots and is not there"));
            let state = catalog.slabs.get(slab).ok_or_else(missing)?;
            let slab = Slab::open(tiers, garbage, store, state.meta, &state.generations)?;
            // Writes that were promised may have been there.
            if let Some(flaw) = slab.flaw() {
                return Err(flaw.clone());
            }
            let slots: Vec<u32> = slots.iter().collect();
            let mut unreadable = None;
            slab.read_slots(tiers, &slots, Cause::Recovery, &mut |slot, bytes| {
                let bytes = match bytes {
                    Ok(bytes) => bytes,
                    Err(error) => return unreadable = Some(error),
                };
                // What is not whole was never acknowledged, or its number will be missed.
                match slab.decode_early(slot, bytes) {
                    Ok(Some((entry, synced))) if entry.trailer.seq() > flushed => {
                        durable = durable.max(synced);
                        found.extend(Early::of(&entry));
                    }
                    Ok(_) => {}
                    Err(_) => torn += 1,
                }
            })?;
            // As with a flaw.
            unreadable.map_or(Ok(()), Err)?;
        }
        found.sort_unstable_by_key(|early: &Early| early.seq);
        let highest = found.last().map_or(flushed, |last| last.seq);
        let early = found.into_iter().peekable();
        Ok(Some(Self { early, next: flushed.0 + 1, is_cut: false, highest, durable, torn }))
    }

    /// Slots whose bytes are torn, or another slot's: nobody was promised them, or their numbers will be missed.
    pub(in crate::engine) fn torn(&self) -> u64 {
        self.torn
    }

    /// Takes in a batch of the log, after the slots' entries that come before it; nothing once a number was missing.
    pub(in crate::engine) fn batch(
        &mut self,
        (first, entries): (Seq, u32),
        payload: &[u8],
        take: &mut TakeBatch<'_>,
    ) -> Result<()> {
        let behind = first.0 + u64::from(entries);
        self.highest = self.highest.max(Seq(behind - 1));
        self.entries_before(first.0, take)?;
        self.is_cut |= first.0 > self.next && !planted::has(Bug::HoleInSlots);
        if self.is_cut {
            return Ok(());
        }
        self.next = self.next.max(behind);
        take((first, entries), payload)
    }

    /// Takes in what the slots have behind the log's last batch; the highest number that was ever given out.
    ///
    /// # Errors
    /// `Corrupt` when something durable is missing.
    pub(in crate::engine) fn end(mut self, take: &mut TakeBatch<'_>) -> Result<Seq> {
        self.entries_before(u64::MAX, take)?;
        if self.durable.0 >= self.next {
            let found = format!(
                "number {} is missing in slots and log, though everything up to {} was durable",
                self.next, self.durable.0
            );
            return Err(Error::corrupt("slabs", 0, found));
        }
        Ok(self.highest.max(Seq(self.next - 1)))
    }

    /// Takes in entries of slots that follow, up to one of this number, which the log has.
    fn entries_before(&mut self, end: u64, take: &mut TakeBatch<'_>) -> Result<()> {
        while !self.is_cut {
            let next = self.next;
            // What a slot has that was filled for nothing, or before it was announced again.
            while self.early.next_if(|early| early.seq.0 < next).is_some() {}
            let Some(early) = self.early.next_if(|early| early.seq.0 < end) else { break };
            if early.seq.0 > next && !planted::has(Bug::HoleInSlots) {
                self.is_cut = true;
                break;
            }
            take((early.seq, 1), &early.payload)?;
            self.next = early.seq.0 + 1;
        }
        Ok(())
    }
}

impl Early {
    fn of(entry: &Entry<'_>) -> Option<Self> {
        let (keyspace, kind): (KeyspaceId, Kind) = (KeyspaceId::of(entry.key)?, entry.trailer.kind()?);
        let mut payload = Vec::with_capacity(entry.key.len() + entry.value.len() + 16);
        put_entry(&mut payload, kind, keyspace, &entry.key[KEYSPACE_BYTES..], entry.value);
        Some(Self { seq: entry.trailer.seq(), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Trailer;

    fn in_order(early: &[u64], flushed: u64, durable: u64) -> InOrder {
        let early: Vec<Early> =
            early.iter().map(|seq| Early { seq: Seq(*seq), payload: b"slot".to_vec() }).collect();
        let highest = early.last().map_or(Seq(flushed), |last| last.seq);
        let early = early.into_iter().peekable();
        InOrder { early, next: flushed + 1, is_cut: false, highest, durable: Seq(durable), torn: 0 }
    }

    /// What comes of slots and batches, as text: where each number was found; then the last, and the highest.
    fn check(mut in_order: InOrder, batches: &[(u64, u32)]) -> Result<String> {
        let mut words = Vec::new();
        let mut take = |(first, entries): (Seq, u32), payload: &[u8]| {
            let text = String::from_utf8_lossy(payload);
            words.push(format!("{text} {}-{}", first.0, first.0 + u64::from(entries) - 1));
            Ok(())
        };
        for (first, entries) in batches {
            in_order.batch((Seq(*first), *entries), b"log", &mut take)?;
        }
        let highest = in_order.end(&mut take)?;
        words.push(format!("up to {}", highest.0));
        Ok(words.join(", "))
    }

    #[test]
    fn slots_and_log_make_one_order_up_to_the_first_number_that_is_missing() {
        let found = |early: &[u64], batches: &[(u64, u32)]| check(in_order(early, 4, 0), batches).unwrap();
        assert_eq!(found(&[5, 6, 9], &[(7, 2)]), "slot 5-5, slot 6-6, log 7-8, slot 9-9, up to 9");
        assert_eq!(found(&[5, 9], &[(7, 2)]), "slot 5-5, up to 9");
        assert_eq!(found(&[6], &[(7, 2)]), "up to 8");
        assert_eq!(found(&[], &[(5, 1), (7, 1)]), "log 5-5, up to 7");
        // What a flush has settled, in the log or in a slot of an earlier life; what both have.
        assert_eq!(found(&[3, 5], &[(2, 3)]), "log 2-4, slot 5-5, up to 5");
        assert_eq!(found(&[5, 6], &[(5, 2)]), "log 5-6, up to 6");
    }

    fn at(slab: u64, slot: u32) -> Location {
        Location { slab, slot, holds: Holds::Value }
    }

    #[test]
    fn a_slot_that_was_put_back_is_given_up_whatever_it_was_for() {
        let mut announced = Announced { slots: vec![at(1, 2), at(1, 3)], ..Announced::default() };
        let delete = Entry { key: b"k", trailer: Trailer::new(Seq(5), Kind::Delete), value: b"" };
        announced.put_back(vec![(Location { holds: Holds::Tombstone, ..at(1, 2) }, delete)]);
        let given: Vec<Location> = announced.give_up().into_values().flatten().collect();
        assert_eq!((given, announced.slots), (vec![at(1, 2)], vec![at(1, 3)]));
    }

    #[test]
    fn what_a_memtable_has_given_up_goes_to_no_other_when_it_cannot_be_withdrawn() {
        let mut pool = Pool::default();
        pool.free.insert(64, vec![at(1, 0)]);
        for given_up in [vec![at(2, 0)], vec![]] {
            let withdrawing = pool.begin_to_withdraw(given_up);
            assert_eq!((&withdrawing.given_up[..], pool.free.len()), (&[at(2, 0)][..], 0));
            pool.keep(withdrawing);
            assert_eq!(pool.free.values().flatten().collect::<Vec<_>>(), [&at(1, 0)]);
        }
    }

    #[test]
    fn what_was_durable_may_not_be_missing() {
        assert!(check(in_order(&[5, 7], 4, 5), &[]).is_ok());
        let error = check(in_order(&[5, 7], 4, 6), &[]).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("number 6 is missing"), "{error}");
    }
}
