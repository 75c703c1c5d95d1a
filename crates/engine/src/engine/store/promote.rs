//! Promotions: hot objects that tables have come into slots, as copies.
//!
//! A copy has the number of its original, which stays where it is: so nothing below changes, a read finds the same
//! version wherever it looks first, and a copy that cools is let go of without a write to the capacity tier. Two ways
//! lead here: a demotion's merge meets hot objects in the tables that it rewrites anyway, and, while reads are what is
//! asked for most and many tracked keys lie below ([`crate::policy::promotion`]), a read that a table answered offers
//! what it found. The paper's read-triggered passes (PrismDB, §5.3) look through tables for hot keys; here the read
//! that shows a key to be wanted has its object at hand, so no table is read for it, and no second read is waited for:
//! copies cost the capacity tier nothing. Who rises is said by [`Pinning::raises`]. Offers gather up to a bound and
//! come in as one write and one sync; each such batch makes a new index, most of which is copied, so a batch is half of
//! a memtable.
//!
//! The edit that brings them in leaves out those of which the store has a version by then, and those for which a read
//! would ask other tables than the ones that were asked: what came between may be newer.

use super::{Filling, Store, object_bytes};
use crate::cache::Cache;
use crate::engine::jobs::is_refusal;
use crate::engine::{Current, Engine};
use crate::error::{ErrorKind, Result};
use crate::key::{self, Entry, Kind, Seq, Trailer};
use crate::memory::{Charge, Holder};
use crate::planted::{self, Bug};
use crate::policy::promotion::{Promotion, ReadView};
use crate::profile::PromoteReads;
use crate::size_class::slot_bytes;
use crate::store::{Changes, Contents, Holds, SLAB_TIER, SlotRun, Slots};
use crate::tracker::{Pinning, Seen};
use crate::version::{Edit, TableHandle, Version};
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Offers come in once they have one part in so many of a memtable's bytes; so many times that is their bound.
const BATCH_SHARE: u64 = 2;
const BATCHES_MAX: u64 = 2;
/// Offers for which it is not asked again who may rise.
const PINNING_BELIEVED: u32 = 256;
/// About what an offer takes besides key and value.
const OFFER_BYTES: u64 = 96;

/// Objects on their way up, by key.
#[derive(Debug)]
pub(super) struct Rising {
    objects: BTreeMap<Vec<u8>, Risen>,
    limit: u64,
    held: Charge,
}

#[derive(Debug)]
struct Risen {
    trailer: Trailer,
    value: Vec<u8>,
    /// The tables that were asked for it; the last had it.
    asked: Vec<u64>,
}

/// The tables that a read of `key` asks, in turn.
fn tables_asked<'a>(version: &'a Version, key: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    let guards = version.levels.iter().filter_map(|level| level.guard_of(key));
    guards.flat_map(|guard| &guard.runs).filter_map(|run| run.table_of(key)).map(|table| table.meta.number)
}

/// Whether the version's range tombstones cover an object that is about to come up. It must not: the store has nothing
/// that these cover, but for what a snapshot sees.
pub(super) fn is_erased(version: &Version, entry: &Entry<'_>) -> bool {
    let covering = version.range_tombstones.covering(entry.key, Seq::MAX);
    covering > entry.trailer.seq() && !planted::has(Bug::ErasedObjectsRise)
}

impl Rising {
    /// At most `limit` bytes, charged.
    pub(super) fn within(cache: &Cache, limit: u64) -> Self {
        Self { objects: BTreeMap::new(), limit, held: cache.memory().charge(Holder::Jobs, 0) }
    }

    fn bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// Takes in an object, if there is room for it.
    pub(super) fn add(&mut self, entry: &Entry<'_>, asked: Vec<u64>) {
        let bytes = self.bytes() + OFFER_BYTES + (entry.key.len() + entry.value.len()) as u64;
        if bytes > self.limit || entry.trailer.kind() != Some(Kind::Put) {
            return;
        }
        let risen = Risen { trailer: entry.trailer, value: entry.value.to_vec(), asked };
        if self.objects.insert(entry.key.to_vec(), risen).is_none() {
            self.held.resize(bytes);
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.objects.iter().map(|(key, risen)| Entry { key, trailer: risen.trailer, value: &risen.value })
    }
}

/// Offers, and whether any are wanted.
#[derive(Debug)]
pub(super) struct Promotions {
    wanted: AtomicBool,
    /// At the last look reads were all but all that was asked for.
    is_cache: AtomicBool,
    /// The policy is asked when there were so many gets, or writes.
    look_at: [AtomicU64; 2],
    policy: Mutex<Promotion>,
    offers: Mutex<Offers>,
}

#[derive(Debug, Default)]
struct Offers {
    rising: Option<Rising>,
    /// Who may rise, and for how many offers more that is believed.
    pinning: Pinning,
    believed: u32,
}

impl Promotions {
    pub(super) fn new(sched: &Sched) -> Self {
        Self {
            wanted: AtomicBool::new(false),
            is_cache: AtomicBool::new(false),
            look_at: [AtomicU64::new(0), AtomicU64::new(0)],
            policy: Mutex::new(sched, Promotion::default()),
            offers: Mutex::new(sched, Offers::default()),
        }
    }
}

impl Engine {
    /// Most bytes of objects that rise together.
    pub(super) fn rising_bytes_max(&self) -> u64 {
        BATCHES_MAX * self.options.memtable_bytes() / BATCH_SHARE
    }

    /// Looks now and then at how reads fare, to say whether objects should rise; cheap in between.
    pub(in crate::engine) fn watch_reads(&self, current: &Current) {
        let (Some(store), Some(tracker)) = (&self.objects, &current.tracker) else { return };
        let promotions = &store.promotions;
        let ([gets, below], writes) = (self.operations.gets(), self.visible().0);
        let look_at = || promotions.look_at.each_ref().map(|at| at.load(Ordering::Relaxed));
        let is_due = |[by_gets, by_writes]: [u64; 2]| gets >= by_gets || writes >= by_writes;
        if !is_due(look_at()) {
            return;
        }
        let keys = super::keys_of(&current.contents, &current.version);
        let view = ReadView { gets, writes, below, tracked: tracker.tracked(), keys };
        let mut policy = promotions.policy.lock();
        if !is_due(policy.next_look()) {
            // Somebody else has looked meanwhile.
            return;
        }
        let wanted = policy.next(&view);
        promotions
            .look_at
            .iter()
            .zip(policy.next_look())
            .for_each(|(at, next)| at.store(next, Ordering::Relaxed));
        promotions.wanted.store(wanted, Ordering::Relaxed);
        promotions.is_cache.store(policy.is_cache(), Ordering::Relaxed);
    }

    /// Whether copies of keys that are tracked at all stay, as far as there is room.
    pub(super) fn keeps_warm_copies(&self, store: &Store) -> bool {
        match self.options.promote_reads {
            PromoteReads::Auto => store.promotions.is_cache.load(Ordering::Relaxed),
            PromoteReads::Always => true,
            PromoteReads::Never => false,
        }
    }

    /// A read as of now found this in a table. Whether it is to come up.
    pub(in crate::engine) fn offer(&self, current: &Current, entry: &Entry<'_>, table: &TableHandle) -> bool {
        let Some(store) = &self.objects else { return false };
        let is_wanted = match self.options.promote_reads {
            PromoteReads::Auto => store.promotions.wanted.load(Ordering::Relaxed),
            PromoteReads::Always => true,
            PromoteReads::Never => false,
        };
        let longest = self.rising_bytes_max() / BATCHES_MAX;
        if !is_wanted || object_bytes(entry) > longest {
            return false;
        }
        let hash = key::hash(entry.key);
        let asked = super::asked(current.tracker.as_ref(), hash);
        let is_enough = {
            let mut offers = store.promotions.offers.lock();
            match offers.believed.checked_sub(1) {
                Some(left) => offers.believed = left,
                None => {
                    (offers.pinning, offers.believed) = (self.pinning(store, current), PINNING_BELIEVED);
                }
            }
            if !offers.pinning.raises(asked, hash) {
                return false;
            }
            let within = || Rising::within(&self.tables.cache, self.rising_bytes_max());
            let rising = offers.rising.get_or_insert_with(within);
            let before = rising.bytes();
            let above =
                tables_asked(&current.version, entry.key).take_while(|asked| *asked != table.meta.number);
            rising.add(entry, above.chain([table.meta.number]).collect());
            before < longest && rising.bytes() >= longest
        };
        if is_enough {
            self.background.wake();
        }
        true
    }

    /// Whether offers should come in: enough of them, or any.
    pub(in crate::engine) fn has_offers(&self, any: bool) -> bool {
        let Some(store) = &self.objects else { return false };
        let least = if any { 1 } else { self.rising_bytes_max() / BATCHES_MAX };
        store.promotions.offers.lock().rising.as_ref().is_some_and(|rising| rising.bytes() >= least)
    }

    /// Brings in what was offered, as far as there is room.
    pub(in crate::engine) fn promote(&self) -> Result<()> {
        let Some(store) = &self.objects else { return Ok(()) };
        let Some(rising) = store.promotions.offers.lock().rising.take() else { return Ok(()) };
        // What comes up leaves so much room that nothing has to go down for it.
        let (free, high, _) = self.room_in(store);
        let room = free.saturating_sub(high);
        {
            let mut state = store.state.lock();
            state.promotes_into_none |= room < rising.bytes();
            if state.demoting {
                return Ok(());
            }
        }
        self.waste_abandoned(store)?;
        let mut filling = Filling::default();
        let raised = self.raise(store, &rising, room, &mut filling);
        if matches!(raised, Ok(false)) {
            self.give_back(store, &mut filling);
        }
        if raised.is_ok() && filling.placed.is_empty() {
            return Ok(());
        }
        let committed = raised.and_then(|_| self.commit_promotion(store, &rising, &filling));
        if let Err(error) = committed {
            if self.failure.get().is_none() || is_refusal(&error) {
                self.give_back(store, &mut filling);
            }
            // Nobody waits for it.
            return if *error.kind() == ErrorKind::Full { Ok(()) } else { Err(error) };
        }
        Ok(())
    }

    /// Writes objects that rise into free slots, up to `room` bytes of these, while the tier has room in new slabs,
    /// too; who finds none stays below. `false` if some cannot be written to, and all stay.
    pub(super) fn raise<'a>(
        &self,
        store: &Store,
        rising: &'a Rising,
        mut room: u64,
        filling: &mut Filling<'a>,
    ) -> Result<bool> {
        for entry in rising.entries() {
            let bytes = slot_bytes(object_bytes(&entry));
            let Some(left) = room.checked_sub(bytes) else { continue };
            room = left;
            let mut found = store.state.lock().space.take_settled(bytes, Holds::Copy);
            if found.is_none() && self.add_slab(store, bytes)? {
                found = store.state.lock().space.take_settled(bytes, Holds::Copy);
            }
            filling.placed.extend(found.map(|location| (location, entry)));
        }
        self.write_slots(store, filling, Cause::Promotion, &|_| self.check_open())
    }

    /// Makes a slab that anybody may use, if there is room for one.
    fn add_slab(&self, store: &Store, slot_bytes: u64) -> Result<bool> {
        if self.room_in_index(store) == 0 {
            return Ok(false);
        }
        let _turn = store.turn.take();
        let Some(slab) = self.make_slab(slot_bytes, self.options.beside_slabs_bytes())?.map(Arc::new) else {
            return Ok(false);
        };
        let before = self.current.load().contents.clone();
        let after = before.with(std::iter::once(&slab));
        let edit = Edit { slabs_added: vec![slab.meta], ..Edit::default() };
        let made = slab.sync().and_then(|()| self.tiers.get(SLAB_TIER)?.sync_names());
        let committed = made.and_then(|()| self.replace_contents(store, &before, after, edit, false));
        if let Err(error) = committed {
            if self.failure.get().is_none() || is_refusal(&error) {
                slab.mark_obsolete();
            }
            return Err(error);
        }
        store.state.lock().space.add(slab.meta, Slots::default());
        Ok(true)
    }

    fn commit_promotion(&self, store: &Store, rising: &Rising, filling: &Filling<'_>) -> Result<()> {
        let _turn = store.turn.take();
        let current = self.current.load_full();
        let (before, version) = (current.contents.clone(), current.version.clone());
        drop(current);
        let lies_there = |key: &[u8]| {
            let risen = rising.objects.get(key);
            let mut now = tables_asked(&version, key);
            risen.is_some_and(|risen| risen.asked.iter().all(|asked| now.next() == Some(*asked)))
        };
        let (mut changes, mut taken, mut unused) = (Changes::default(), Vec::new(), Vec::new());
        for (location, entry) in filling.placed.iter() {
            let is_absent = before.index.locations(entry.key).next().is_none();
            match is_absent && lies_there(entry.key) && !is_erased(&version, entry) {
                true => {
                    changes.push(entry.key, [*location]);
                    taken.push(*location);
                }
                false => unused.push(*location),
            }
        }
        let after = Contents { index: before.index.changed(&changes), ..(*before).clone() };
        let edit = Edit {
            taken: SlotRun::of(taken),
            wasted: SlotRun::of(&mut unused[..]),
            counters: Some(self.encode_counters()),
            ..Edit::default()
        };
        let hashes: Vec<u64> = filling.placed.iter().map(|(_, entry)| key::hash(entry.key)).collect();
        self.replace_contents(store, &before, after, edit, false)?;
        if let Some(tracker) = &self.current.load().tracker {
            hashes.into_iter().for_each(|hash| tracker.moved(hash, Seen::InStore));
        }
        Ok(())
    }
}
