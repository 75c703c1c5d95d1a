//! The store below the memtable at work: memtables are flushed into it, objects are demoted out of it.
//!
//! *A flush* gives every object of the oldest sealed memtable a free slot, writes the slots, and commits: the edit names
//! slots taken and freed, and the contents that readers see are replaced in the same step. Where slots run out it demotes
//! by itself. It commits all of a memtable or nothing: half of one would be durable before what the log alone has.
//!
//! *A demotion* merges the objects of a key range with the tables there. Slots it reads cannot be used again while it holds
//! the contents that they are live in. Its edit takes away those objects that are still where it read them; one that was
//! written since stays, and is newer.
//!
//! Who replaces contents owns the store's turn, across I/O: a flush while it commits, a demotion while it begins and while
//! it commits. A demotion that runs has said so before ([`State::moving`]), for a flush must not drop a tombstone
//! whose key may come into a table behind its back.

use super::admission::Work;
use super::jobs::{Need, RunJob, is_refusal};
use super::turn::Turn;
use super::{Engine, Sealed};
use crate::compaction::Retain;
use crate::engine::iterate::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Entry, Kind, Seq};
use crate::memory::Holder;
use crate::merge::Merge;
use crate::planted::{self, Bug};
use crate::policy::{RangeView, StoreView};
use crate::store::{
    Changes, Contents, Index, Location, SLAB_TIER, Slab, SlabMeta, SlotRun, Slots, Space, StoreCursor, Write,
    class, fill, object_bytes, slot_bytes,
};
use crate::version::edit::AddedTable;
use crate::version::{Edit, LEVELS_MAX, TableHandle, TableMeta, Version};
use cuesta_device::Cause;
use cuesta_sched::{Mutex, Sched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Demotion begins when free slots are less than one part in so many of the slabs, and ends at the other (PrismDB's
/// watermarks of 98 and 95 %).
const HIGH_SHARE: u64 = 50;
const LOW_SHARE: u64 = 20;
/// A flush that waits for slots looks for them every so often; for those that readers hold so many times, before it gives
/// up.
const WAITS_MAX: u32 = 300;
const WAIT: Duration = Duration::from_millis(100);
/// Above all keys: no keyspace has this id.
const AFTER_ALL: [u8; 4] = [0xff; 4];
/// Memory that a flush takes for each entry that it has planned.
const PLANNED_BYTES: u64 = 160;

/// What jobs of the store share.
#[derive(Debug)]
pub(crate) struct Store {
    /// The right to replace the contents.
    turn: Turn<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    space: Space,
    /// Key ranges that are being demoted: first key, first key behind.
    moving: Vec<(Vec<u8>, Vec<u8>)>,
    /// A flush waits for slots.
    starved: bool,
    demoting: bool,
}

/// What a flush has found slots for.
#[derive(Default)]
struct Filling<'a> {
    /// In the order of keys.
    placed: Vec<Write<'a>>,
    /// Slabs made for it.
    new_slabs: BTreeMap<u64, Arc<Slab>>,
}

impl Store {
    pub(crate) fn new(sched: &Sched, slabs: &BTreeMap<u64, (SlabMeta, Slots)>) -> Self {
        let mut space = Space::default();
        slabs.values().for_each(|(meta, live)| space.add(*meta, live.clone()));
        let state = State { space, moving: Vec::new(), starved: false, demoting: false };
        Self { turn: Turn::new(sched, ()), state: Mutex::new(sched, state) }
    }

    /// Whether the first tier has room for so many bytes of indexes and filters: slabs have at least half of what the log and
    /// other things leave.
    pub(super) fn has_room_beside(&self, engine: &Engine, bytes: u64) -> bool {
        let (slabs, beside) = (self.bytes().0, engine.options.beside_slabs_bytes());
        let fast = engine.tiers.fast();
        let budget = fast.capacity_bytes.saturating_sub(engine.options.log_bytes() + beside);
        slabs + fast.free_bytes() >= bytes + beside / 2 + budget / 2
    }

    /// Bytes of slabs, and of slots that could be given out.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let mut state = self.state.lock();
        state.space.collect();
        state.space.bytes()
    }
}

fn data_bytes(tables: &[&TableMeta]) -> u64 {
    tables.iter().map(|table| table.data_bytes).sum()
}

/// Whether a table may have versions of `key`.
fn may_hold(version: &Version, key: &[u8]) -> bool {
    let guards = version.levels.iter().filter_map(|level| level.guard_of(key));
    guards.flat_map(|guard| &guard.runs).any(|run| run.table_of(key).is_some())
}

impl Engine {
    /// Flushes the oldest memtable into the store. The log starts at `log_start` from then on.
    ///
    /// # Errors
    /// `Full` when there are no slots and no demotion can make any; what devices and the manifest say.
    pub(super) fn flush_into(&self, store: &Store, sealed: &Sealed, log_start: u64) -> Result<()> {
        let planned = sealed.memtable.entry_count() * PLANNED_BYTES;
        let _held = self.tables.cache.memory().charge(Holder::Writes, planned);
        self.tables.cache.fit();
        let paced = self.begin_paced(Work::Flush, sealed.memtable.used_bytes(), 0);
        let mut filling = Filling::default();
        let mut placed = self.place(store, sealed, &mut filling);
        if placed.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Full) {
            // What it had taken may have kept slabs that are too large for what is left.
            self.give_back(store, &mut filling);
            if self.starving(store, || self.remove_empty_slabs(store))? {
                placed = self.place(store, sealed, &mut filling);
            }
        }
        let committed = placed.and_then(|()| {
            let check = |done| {
                paced.progress(done);
                self.check_open()
            };
            self.write_slots(&filling, &check)?;
            self.commit_flush(store, &filling, log_start)
        });
        if let Err(error) = committed {
            // After any other failure of the commit the edit may be on media, and the slots taken.
            if self.failure.get().is_none() || is_refusal(&error) {
                self.give_back(store, &mut filling);
            }
            return Err(error);
        }
        self.operations.flushed();
        Ok(())
    }

    /// Undoes what was placed.
    fn give_back(&self, store: &Store, filling: &mut Filling<'_>) {
        let mut state = store.state.lock();
        state.space.give_back(filling.placed.drain(..).map(|(location, _)| location));
        for (number, slab) in std::mem::take(&mut filling.new_slabs) {
            state.space.remove(number);
            slab.mark_obsolete();
        }
    }

    /// Finds a slot for every object of a memtable that readers can see.
    fn place<'a>(&self, store: &Store, sealed: &'a Sealed, filling: &mut Filling<'a>) -> Result<()> {
        let mut retain = Retain::new(self.boundaries(), self.catalog.lock().dead.clone(), false);
        for entry in sealed.memtable.entries() {
            if retain.keeps(entry.key, entry.trailer) {
                let location = self.take_slot(store, &entry, &mut filling.new_slabs)?;
                filling.placed.push((location, entry));
            }
        }
        Ok(())
    }

    /// Writes what was placed, and makes it durable.
    fn write_slots(&self, filling: &Filling<'_>, check: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        let with_new = self.current.load().contents.with(filling.new_slabs.values());
        let new: BTreeSet<u64> = filling.new_slabs.keys().copied().collect();
        let mut writes = filling.placed.clone();
        let mut touched = fill(&self.tiers, &with_new, &new, &mut writes, Cause::Flush, check)?;
        // Nothing may have come into one that was made.
        let is_left = |slab: &&Arc<Slab>| touched.iter().all(|other| other.meta.number != slab.meta.number);
        let left: Vec<Arc<Slab>> = filling.new_slabs.values().filter(is_left).cloned().collect();
        touched.extend(left);
        // A slab whose sync has failed may show what is not on media: nobody writes to it again.
        touched.iter().try_for_each(|slab| slab.sync()).inspect_err(|error| self.fail(error))?;
        if new.is_empty() { Ok(()) } else { self.tiers.get(SLAB_TIER)?.sync_names() }
    }

    /// Puts what was written into the contents, in place of what it shadows.
    fn commit_flush(&self, store: &Store, filling: &Filling<'_>, log_start: u64) -> Result<()> {
        let _turn = store.turn.take();
        let current = self.current.load_full();
        let (before, version) = (current.contents.clone(), current.version.clone());
        drop(current);
        let (boundaries, dead) = (self.boundaries(), self.catalog.lock().dead.clone());
        let moving = store.state.lock().moving.clone();
        let mut retain = Retain::new(boundaries.clone(), dead, false);
        let (mut changes, mut taken, mut freed, mut unused) = (Changes::default(), vec![], vec![], vec![]);
        for same in filling.placed.chunk_by(|a, b| a.1.key == b.1.key) {
            let key = same[0].1.key;
            let mut kept: Vec<&Write<'_>> = Vec::with_capacity(same.len());
            for write in same {
                match retain.keeps(key, write.1.trailer) {
                    true => kept.push(write),
                    false => unused.push(write.0),
                }
            }
            let old: Vec<Location> = before.index.locations(key).collect();
            let mut still_seen = Vec::new();
            if boundaries.len() > 1 && !planted::has(Bug::StoreSnapshotsForgotten) {
                for location in &old {
                    if retain.keeps(key, before.read(*location)?.entry().trailer) {
                        still_seen.push(*location);
                    }
                }
            }
            if let ([(location, only)], []) = (&kept[..], &still_seen[..]) {
                let is_seen_by_all =
                    only.trailer.kind() == Some(Kind::Delete) && only.trailer.seq() <= boundaries[0];
                let moves = || moving.iter().any(|(from, to)| key >= &from[..] && key < &to[..]);
                let announced = !planted::has(Bug::DemotionUnannounced);
                let may_lie_below = || may_hold(&version, key) || announced && moves();
                if is_seen_by_all && (planted::has(Bug::StoreTombstoneDropped) || !may_lie_below()) {
                    unused.push(*location);
                    kept.clear();
                }
            }
            taken.extend(kept.iter().map(|write| write.0));
            freed.extend(old.iter().filter(|location| !still_seen.contains(location)));
            if !(kept.is_empty() && old == still_seen) {
                changes.push(key, kept.iter().map(|write| write.0).chain(still_seen));
            }
        }
        let removes = self.removable(store);
        let with_new = before.with(filling.new_slabs.values());
        let index = with_new.index.changed(&changes);
        let after = Contents { index, ..with_new }.without(&removes);
        let edit = Edit {
            slabs_added: filling.new_slabs.values().map(|slab| slab.meta).collect(),
            slabs_removed: removes,
            taken: SlotRun::of(taken),
            freed: SlotRun::of(freed.clone()),
            log_start: Some(log_start),
            counters: Some(self.encode_counters()),
            times: Some(self.operations.encode_times()),
            asked: self.catalog.lock().newly_asked(),
            ..Edit::default()
        };
        self.replace_contents(store, &before, after, (edit, freed), true)?;
        store.state.lock().space.give_back(unused);
        Ok(())
    }

    /// A slot for an object, in a new slab if need be, or after something else has gone down.
    fn take_slot(
        &self,
        store: &Store,
        entry: &Entry<'_>,
        new: &mut BTreeMap<u64, Arc<Slab>>,
    ) -> Result<Location> {
        let (bytes, deletes) = (slot_bytes(object_bytes(entry)), entry.trailer.kind() == Some(Kind::Delete));
        let mut times = 0;
        loop {
            let found = {
                let mut state = store.state.lock();
                state.space.collect();
                state.space.take(bytes, deletes)
            };
            if let Some(location) = found {
                return Ok(location);
            }
            if let Some(slab) = self.make_slab(bytes)? {
                let meta = slab.meta;
                new.insert(meta.number, Arc::new(slab));
                store.state.lock().space.add(meta, Slots::default());
                continue;
            }
            if let Some(location) = store.state.lock().space.take_larger(bytes, 2 * bytes, deletes) {
                return Ok(location);
            }
            if !self.make_room(store, times)? {
                let any = store.state.lock().space.take_larger(bytes, u64::MAX, deletes);
                return any.ok_or_else(|| self.full(bytes));
            }
            times += 1;
        }
    }

    /// A slab for slots of such a size, with fewer of them than usual if need be; `None` when the tier has no room for one.
    fn make_slab(&self, slot_bytes: u64) -> Result<Option<Slab>> {
        let tier = self.tiers.get(SLAB_TIER)?;
        let leased =
            [class::slots_in(slot_bytes, self.options.slab_bytes()), 1].into_iter().find_map(|slots| {
                let meta = SlabMeta { number: 0, slot_bytes, slots };
                let has_room = tier.free_bytes() >= meta.file_bytes() + self.options.beside_slabs_bytes();
                let lease = tier.lease(meta.file_bytes()).ok().filter(|_| has_room)?;
                Some((meta, lease))
            });
        let Some((mut meta, lease)) = leased else { return Ok(None) };
        meta.number = self.catalog.lock().take_file_number();
        let made = Slab::create(&self.tiers, &self.tables.garbage, self.store, meta);
        let slab = made.inspect_err(|_| {
            // What cannot be removed is an orphan, and the next open removes it.
            drop(tier.remove(meta.file()));
        })?;
        lease.settle(meta.file_bytes());
        Ok(Some(slab))
    }

    /// Makes slots, or room for slabs, for a flush that has found none so many times: by removing slabs that are empty, else
    /// by a demotion, else by waiting for one that runs, or for readers. Whether it is worth looking again.
    fn make_room(&self, store: &Store, times: u32) -> Result<bool> {
        self.check_writable()?;
        self.starving(store, || {
            if self.remove_empty_slabs(store)? {
                return Ok(true);
            }
            if let Some(plan) = self.begin_plan() {
                let done = self.compact(&plan);
                self.end_plan(&plan);
                done?;
                self.tables.collect_garbage()?;
                return Ok(true);
            }
            let waits = {
                let state = store.state.lock();
                let soon = state.space.waiting_bytes() > 0 || self.tables.garbage.is_pending();
                !state.moving.is_empty() || times < WAITS_MAX && soon
            };
            if waits {
                self.sched.sleep(WAIT);
                self.tables.collect_garbage()?;
            }
            Ok(waits)
        })
    }

    /// Does something while all others know that a flush waits for slots.
    fn starving<T>(&self, store: &Store, work: impl FnOnce() -> T) -> T {
        store.state.lock().starved = true;
        let done = work();
        store.state.lock().starved = false;
        done
    }

    /// Removes slabs without objects. Whether there were any.
    fn remove_empty_slabs(&self, store: &Store) -> Result<bool> {
        let _turn = store.turn.take();
        let removes = self.removable(store);
        if removes.is_empty() {
            return Ok(false);
        }
        let before = self.current.load().contents.clone();
        let after = (*before).clone().without(&removes);
        let edit = Edit { slabs_removed: removes, ..Edit::default() };
        self.replace_contents(store, &before, after, (edit, Vec::new()), false)?;
        drop(before);
        self.tables.collect_garbage()?;
        Ok(true)
    }

    /// Slabs without objects that the tier has a better use for. No slot of theirs is given out any more: the caller commits
    /// an edit that removes them, by [`Engine::replace_contents`].
    fn removable(&self, store: &Store) -> Vec<u64> {
        let tier = self.tiers.fast();
        let is_short = tier.free_bytes() < self.options.beside_slabs_bytes() / 2;
        let mut state = store.state.lock();
        let mut slabs = if is_short || state.starved { state.space.empty() } else { state.space.spare() };
        slabs.sort_unstable();
        // One that the manifest does not know yet is not its to remove.
        let catalog = self.catalog.lock();
        slabs.retain(|slab| catalog.slabs.contains_key(slab));
        slabs.iter().for_each(|slab| state.space.remove(*slab));
        slabs
    }

    /// Commits an edit, which frees these slots, and the contents that go with it, in place of `before`; the caller has the
    /// store's turn.
    fn replace_contents(
        &self,
        store: &Store,
        before: &Arc<Contents>,
        after: Contents,
        (edit, freed): (Edit, Vec<Location>),
        flushed: bool,
    ) -> Result<()> {
        let removed = edit.slabs_removed.clone();
        self.tables.cache.memory().set(Holder::Index, after.index.held_bytes());
        let mut state = store.state.lock();
        if planted::has(Bug::SlotFreedBeforeEdit) {
            state.space.give_back(freed.iter().copied());
        }
        drop(state);
        let committed = self.commit_tables(edit, |current| {
            current.contents = Arc::new(after);
            if flushed {
                drop(current.sealed.pop());
            }
        });
        state = store.state.lock();
        if let Err(error) = committed {
            for number in removed {
                state.space.add(before.slab(number)?.meta, Slots::default());
            }
            return Err(error);
        }
        match planted::has(Bug::SlotsFreedAtOnce) {
            true => state.space.give_back(freed),
            false => state.space.free_after(before, freed),
        }
        drop(state);
        removed.into_iter().try_for_each(|number| before.slab(number).map(|slab| slab.mark_obsolete()))
    }

    /// Moves the objects from one key up to before another into tables, in place of those that lie there.
    pub(super) fn demote(&self, tables: &[u64], level: usize, from: &[u8], to: &[u8]) -> Result<()> {
        let Some(store) = &self.objects else { return Err(Error::internal("a demotion without a store")) };
        let range = (from.to_vec(), to.to_vec());
        let (contents, version) = {
            let _turn = store.turn.take();
            store.state.lock().moving.push(range.clone());
            let current = self.current.load();
            (current.contents.clone(), current.version.clone())
        };
        let result = self.demote_from(store, &contents, &version, tables, level, &range);
        let mut state = store.state.lock();
        if let Some(i) = state.moving.iter().position(|moving| *moving == range) {
            state.moving.swap_remove(i);
        }
        drop(state);
        if result.is_ok() {
            self.operations.merged();
        }
        result
    }

    fn demote_from(
        &self,
        store: &Store,
        contents: &Arc<Contents>,
        version: &Version,
        tables: &[u64],
        level: usize,
        (from, to): &(Vec<u8>, Vec<u8>),
    ) -> Result<()> {
        // What goes, as contents of their own; those that it is taken from keep its slots as they are.
        let mut chosen = Changes::default();
        let (mut at, end) = (contents.index.seek(from), contents.index.seek(to));
        let (mut key, mut same, mut entries, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
        while at < end {
            let Some(location) = contents.index.entry_to(at, &mut key) else { break };
            bytes += contents.slab(location.slab)?.meta.slot_bytes;
            entries += 1;
            same.push(location);
            at = contents.index.next(at);
            let mut following = Vec::new();
            if at >= end || contents.index.entry_to(at, &mut following).is_none() || following != key {
                chosen.push(&key, same.drain(..));
            }
        }
        let chosen = Index::default().changed(&chosen);
        let mut run: Vec<Arc<TableHandle>> = Vec::new();
        for number in tables {
            let found = version.tables().find(|table| table.meta.number == *number);
            run.push(
                found
                    .cloned()
                    .ok_or_else(|| Error::internal(format!("a plan names table {number}, which is gone")))?,
            );
        }
        let raw: u64 = run.iter().map(|table| table.meta.raw_bytes).sum();
        let paced = self.begin_paced(Work::MergeBelow, bytes + raw, 0);
        let need = Need::of_tables(&self.options, run.iter().map(|table| (&table.meta, 1.0))).and_objects(
            &self.options,
            entries,
            bytes,
        );
        let job =
            RunJob { need, level, bottom: true, cause: Cause::Demotion, paced: &paced, keys: (None, None) };
        let picked = Contents { index: chosen, slabs: contents.slabs.clone(), damaged: Arc::default() };
        let picked = Arc::new(picked);
        let memory = self.tables.cache.memory().clone();
        let objects = StoreCursor::new(&picked, self.tiers.clone(), memory, Cause::Demotion, None);
        let mut sources = vec![Source::Store(Box::new(objects))];
        if !run.is_empty() {
            sources.push(self.merge_source(run, self.merge_read_ahead(2), Cause::Demotion));
        }
        let made = self.write_run(&mut Merge::new(sources), &job)?;
        let _turn = store.turn.take();
        let present = self.current.load().contents.clone();
        let (mut changes, mut freed, mut at) = (Changes::default(), Vec::new(), picked.index.first());
        let mut last = Vec::new();
        while picked.index.entry_to(at, &mut key).is_some() {
            at = picked.index.next(at);
            if key == last {
                continue;
            }
            last.clone_from(&key);
            let now: Vec<Location> = present.index.locations(&key).collect();
            // What was written since is newer, and stays.
            if picked.index.locations(&key).eq(now.iter().copied()) || planted::has(Bug::DemotionTakesNewer) {
                changes.push(&key, []);
                freed.extend(now);
            }
        }
        let removes = self.removable(store);
        let index = match planted::has(Bug::StoreKeepsDemoted) {
            true => present.index.clone(),
            false => present.index.changed(&changes),
        };
        let after = Contents { index, ..(*present).clone() }.without(&removes);
        let added = made.into_iter().map(|meta| AddedTable { level: level as u32, age: 0, meta }).collect();
        let edit = Edit {
            removed: tables.to_vec(),
            added,
            slabs_removed: removes,
            freed: SlotRun::of(freed.clone()),
            counters: Some(self.encode_counters()),
            ..Edit::default()
        };
        self.replace_contents(store, &present, after, (edit, freed), false)
    }

    /// The numbers that readers read at, ascending; the last is the present one.
    pub(super) fn boundaries(&self) -> Vec<Seq> {
        let snapshots = self.snapshots.lock();
        snapshots.boundaries(self.visible())
    }

    /// What the policy sees of the store.
    pub(super) fn store_view(&self) -> Option<StoreView> {
        let store = self.objects.as_ref()?;
        let current = self.current.load();
        let tier = self.tiers.fast();
        let (due, pressed) = {
            let mut state = store.state.lock();
            state.space.collect();
            let (slab_bytes, free) = state.space.bytes();
            // Slots that are freed already, and slabs that may yet be made, are room as well.
            let free = free
                + state.space.waiting_bytes()
                + tier.free_bytes().saturating_sub(self.options.beside_slabs_bytes());
            let memtable = self.options.memtable_bytes();
            let (high, low) =
                ((slab_bytes / HIGH_SHARE).max(memtable), (slab_bytes / LOW_SHARE).max(2 * memtable));
            state.demoting = free < if state.demoting { low } else { high };
            (state.demoting, state.starved)
        };
        let may_be_due = due || pressed || self.background.reclaims();
        let ranges = if may_be_due { self.ranges(&current) } else { Vec::new() };
        Some(StoreView { due, pressed, ranges })
    }

    /// The key ranges of one table each (of several, where these are small, so that they become one), or of as many objects
    /// as twice a table's.
    fn ranges(&self, current: &super::Current) -> Vec<RangeView> {
        let contents = &current.contents;
        let index = &contents.index;
        let level = current.version.levels.get(LEVELS_MAX - 1);
        let mut groups: Vec<Vec<&TableMeta>> = vec![Vec::new()];
        for table in level.into_iter().flat_map(|level| level.tables()).map(|table| &table.meta) {
            match groups.last_mut() {
                Some(group)
                    if group.is_empty()
                        || data_bytes(group) + table.data_bytes <= self.options.table_bytes() =>
                {
                    group.push(table);
                }
                _ => groups.push(vec![table]),
            }
        }
        let smallest = |group: &[&TableMeta]| group.first().map(|table| table.smallest.clone());
        let mut ranges = Vec::new();
        for (i, group) in groups.iter().enumerate() {
            let from = smallest(group).filter(|_| i > 0).unwrap_or_default();
            let to = groups.get(i + 1).and_then(|next| smallest(next)).unwrap_or_else(|| AFTER_ALL.to_vec());
            let ends = (index.seek(&from), index.seek(&to));
            let object_bytes = contents.slot_bytes_between(ends.0, ends.1);
            // Where many objects lie in front of, or behind, the tables' keys, they go down by themselves.
            let entries = index.count(ends.0, ends.1).max(1);
            let piece = (2 * self.options.table_bytes() * entries).checked_div(object_bytes);
            let mut cuts = index.cuts(ends.0, ends.1, piece.unwrap_or(u64::MAX).max(1));
            if let (Some(first), Some(last)) = (group.first(), group.last()) {
                cuts.retain(|cut| *cut <= first.smallest || *cut > last.largest);
            }
            let bounds: Vec<Vec<u8>> = std::iter::once(from).chain(cuts).chain([to]).collect();
            for bounds in bounds.windows(2) {
                let (from, to) = (bounds[0].clone(), bounds[1].clone());
                let ends = (index.seek(&from), index.seek(&to));
                let is_inside = |table: &&&TableMeta| table.smallest >= from && table.largest < to;
                let inside: Vec<&TableMeta> = group.iter().filter(is_inside).copied().collect();
                ranges.push(RangeView {
                    objects: index.count(ends.0, ends.1),
                    tombstones: index.tombstones(ends.0, ends.1),
                    object_bytes: contents.slot_bytes_between(ends.0, ends.1),
                    tables: inside.iter().map(|table| table.number).collect(),
                    table_bytes: data_bytes(&inside),
                    table_entries: inside.iter().map(|table| table.entries).sum(),
                    from,
                    to,
                });
            }
        }
        ranges
    }
}

/// Opens the slabs that the manifest names, and finds out which object is in which live slot.
pub(super) fn load(engine: &LoadFrom<'_>, slabs: &BTreeMap<u64, (SlabMeta, Slots)>) -> Result<Contents> {
    let mut found: Vec<(Vec<u8>, u64, Location)> = Vec::new();
    let (mut open, mut damaged) = (Vec::new(), Vec::new());
    for (meta, live) in slabs.values() {
        let slab = Slab::open(engine.tiers, engine.garbage, engine.store, *meta)?;
        let slots: Vec<u32> = match planted::has(Bug::FreedSlotBelieved) {
            true => (0..meta.slots).collect(),
            false => live.iter().collect(),
        };
        slab.read_slots(engine.tiers, &slots, Cause::Recovery, &mut |slot, bytes| match slab
            .decode_head(slot, bytes)
        {
            Ok(head) => {
                let deletes = head.trailer.kind() == Some(Kind::Delete);
                let location = Location { slab: meta.number, slot, deletes };
                found.push((head.key.to_vec(), head.trailer.0, location));
            }
            Err(error) => damaged.push(error),
        })?;
        open.push(Arc::new(slab));
    }
    if planted::has(Bug::FreedSlotBelieved) {
        damaged.clear();
    }
    // Newest first.
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut changes = Changes::default();
    for same in found.chunk_by(|a, b| a.0 == b.0) {
        changes.push(&same[0].0, same.iter().map(|(_, _, location)| *location));
    }
    Ok(Contents {
        index: Index::default().changed(&changes),
        slabs: Arc::new(open),
        damaged: Arc::new(damaged),
    })
}

/// What loading needs.
pub(super) struct LoadFrom<'a> {
    pub(super) tiers: &'a crate::tier::Tiers,
    pub(super) garbage: &'a Arc<crate::garbage::Garbage>,
    pub(super) store: crate::format::StoreId,
}
