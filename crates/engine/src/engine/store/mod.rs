//! The store below the memtable at work: memtables are flushed into it, objects are demoted out of it and promoted into
//! it.
//!
//! *A flush* gives every object of the oldest sealed memtable a free slot, writes the slots, and commits: the edit
//! names slots taken and freed, and the contents that readers see are replaced behind it, part by part of the keys; the
//! memtable goes with the last. Where slots run out it demotes by itself. It commits all of a memtable or nothing: half
//! of one would be durable before what the log alone has. Puts come to the tracker here, so that writers do not wait
//! for it. Demotions and promotions: [`demote`], [`promote`]; what the policy is told: [`view`]; opening: [`load`],
//! [`scan`]; what a clean close leaves for it: [`image`]; writes that go to slots before their flush: [`announced`];
//! deletes of ranges: [`erase`]; slabs that are worth more empty: [`vacate`].
//!
//! Who replaces contents owns the store's turn, across I/O: a flush while it commits, a demotion while it begins and
//! while it commits, and so does who vacates slabs. A demotion that runs has said so before ([`State::moving`]), for a
//! flush must not drop a tombstone whose key may come into a table behind its back; and of the slots that flushes free
//! only those of its keys wait for it ([`Gone`]). Slots are written by one at a time.

mod announced;
mod demote;
mod erase;
mod image;
mod load;
mod promote;
mod scan;
mod vacate;
mod view;

use super::admission::{Leaving, Work};
use super::jobs::{is_refusal, ranges_of};
use super::turn::Turn;
use super::{Current, Engine, Sealed};
use crate::compaction::Retain;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{self, Entry, Kind, Seq, Trailer};
use crate::memory::Holder;
use crate::planted::{self, Bug};
use crate::policy::climb::Climb;
use crate::range_tombstones::{Erased, RangeTombstones};
use crate::size_class::slot_bytes;
use crate::store::{
    Changes, Contents, Holds, Index, Location, SLAB_TIER, Slab, SlabMeta, SlabState, SlotRun, Slots, Space,
    Write, Written, fill, object_bytes, slots_in,
};
use crate::tracker::{Asked, Seen, Tracker};
use crate::version::{Edit, Version};
pub(crate) use announced::Announced;
pub(super) use announced::{Filled, InOrder};
use announced::{Pool, runs_announced, slabs_of};
use cuesta_device::{Cause, PageVec};
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
pub(super) use demote::Demotion;
use erase::Before;
pub(crate) use image::{Heat, read_image, tier_of as image_tier};
pub(super) use load::{LoadFrom, load};
use promote::Promotions;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A flush that finds pages which the medium cannot read looks for slots elsewhere so many times.
const SPOILED_MAX: u32 = 16;
/// A flush that waits for slots looks for them every so often; for those that readers hold so many times, before it
/// gives up.
const WAITS_MAX: u32 = 300;
const WAIT: Duration = Duration::from_millis(100);
/// A tracker has room for so many keys at least, and is replaced once it is wanted larger by one part in so many.
const TRACKED_MIN: u64 = 64;
const TRACKER_SLACK: u64 = 8;
/// Of the memory number the tracker, with its sketch, has one part in so many at most; what the sketch takes for each
/// key, and the tracker for each of its own, slack included.
const TRACKER_SHARE: u64 = 8;
const SKETCH_KEY_BYTES: u64 = 2;
const TRACKED_KEY_BYTES: u64 = 10;
/// Of what is kept on the first tier beside slabs, one part in so many is left in any case: the manifest grows.
const BESIDE_LEAST: u64 = 4;
/// A flush changes the index in parts that take one part in so many of the memory number each, but in no more parts
/// than so many, for each is a copy of the list of leaves; nor in fewer than two while there are two keys, so that one
/// way is tried as much as the other.
const INDEX_PARTS: u64 = 32;
const INDEX_PARTS_MIN: u64 = 2;
const INDEX_PARTS_MAX: u64 = 8;
/// Memory that a flush takes for each entry that it has planned, and a demotion for each that it looks at.
const PLANNED_BYTES: u64 = 160;

/// What jobs of the store share.
#[derive(Debug)]
pub(crate) struct Store {
    /// The right to replace the contents.
    turn: Turn<()>,
    /// The right to write slots: pages are read, changed and written, and slots of two writers may share one.
    pen: Turn<()>,
    state: Mutex<State>,
    promotions: Promotions,
    /// Choices of what goes down, key ranges weighed for them, and how often the tracker was asked, and filters were.
    selections: AtomicU64,
    weighed: AtomicU64,
    probes: AtomicU64,
    filter_probes: AtomicU64,
    /// Entries that went to announced slots.
    log_free: AtomicU64,
    /// Objects that were moved to vacate slabs.
    moved: AtomicU64,
    /// For so many bytes of indexes and filters the fast tier had no room when it was last asked.
    refused_beside: AtomicU64,
}

#[derive(Debug)]
struct State {
    space: Space,
    /// Key ranges that are being demoted: first key, first key behind.
    moving: Vec<Keys>,
    /// A flush waits for slots.
    starved: bool,
    demoting: bool,
    /// Objects would come up, and there is no room for them.
    promotes_into_none: bool,
    /// Of late, objects that went down, and entries of tables that they or others of the store had replaced.
    demoted: u64,
    replaced: u64,
    /// Where the last release ended.
    released_to: Vec<u8>,
    /// Where the pinning threshold stands, if it is not given.
    climb: Climb,
    /// How often the policy was asked.
    asked: u64,
    pool: Pool,
    /// Range tombstones of which nothing that is older has a slot.
    cleared: BTreeSet<Seq>,
    /// Those that cover slots which could not be read: until the next open they are not looked at again.
    held_tombstones: BTreeSet<Seq>,
    /// Slabs are being vacated.
    vacating: bool,
    /// Slabs that are not, since a slot of theirs could not be read.
    stuck: BTreeSet<u64>,
    /// Slots that were written to by what has failed since: not given out again before an edit has wasted them.
    abandoned: Vec<Location>,
    /// The number of the memtable that the tracker was told of last.
    told: Option<u64>,
}

/// What a flush has found slots for.
#[derive(Default)]
struct Filling<'a> {
    /// In the order of keys.
    placed: PageVec<Write<'a>>,
    /// Something may have been written to these places.
    is_written: bool,
    /// Slabs made for it.
    new_slabs: BTreeMap<u64, Arc<Slab>>,
    /// Where some objects are already.
    announced: Arc<Announced>,
    /// Of the same memtable.
    ranges: Arc<RangeTombstones>,
}

impl Filling<'_> {
    /// What nobody has written yet.
    fn unwritten(&self) -> impl Iterator<Item = &Write<'_>> {
        self.placed.iter().filter(|(_, entry)| self.announced.slot_of(entry.trailer.seq()).is_none())
    }
}

/// A range of keys: the first, and the first behind.
type Keys = (Vec<u8>, Vec<u8>);

/// Whether a key is in one of these.
fn is_among(moving: &[Keys], key: &[u8]) -> bool {
    moving.iter().any(|(from, to)| key >= &from[..] && key < &to[..])
}

/// Slots that a flush frees, as it finds them: of keys that are on their way down, and of others.
#[derive(Debug, Default)]
struct Gone {
    moving: PageVec<Location>,
    others: PageVec<Location>,
}

impl Gone {
    /// Slots of a key. Who demotes it may have to read what it was.
    fn add(&mut self, slots: impl Iterator<Item = Location>, is_moving: bool) {
        if is_moving { self.moving.extend(slots) } else { self.others.extend(slots) }
    }

    fn all(&self) -> Vec<SlotRun> {
        SlotRun::of(self.moving.iter().chain(self.others.iter()).copied().collect::<PageVec<_>>())
    }

    fn freed(self) -> Freed {
        Freed { unread_by_jobs: SlotRun::of(self.others), rest: SlotRun::of(self.moving) }
    }
}

/// What an edit frees.
#[derive(Debug)]
struct Freed {
    /// Slots of keys that no demotion has announced, but for one that ends with this.
    unread_by_jobs: Vec<SlotRun>,
    rest: Vec<SlotRun>,
}

impl Freed {
    /// Slots that somebody who demotes may be about to read.
    fn by(edit: &Edit) -> Self {
        Self { unread_by_jobs: Vec::new(), rest: edit.freed.clone() }
    }

    fn all(&self) -> impl Iterator<Item = Location> {
        self.unread_by_jobs.iter().chain(&self.rest).flat_map(SlotRun::locations)
    }
}

impl Store {
    /// Nothing is written to slabs that are flawed.
    pub(crate) fn new(sched: &Sched, slabs: &BTreeMap<u64, SlabState>, flawed: &BTreeSet<u64>) -> Self {
        let mut space = Space::default();
        for slab in slabs.values() {
            match flawed.contains(&slab.meta.number) {
                true => space.add_flawed(slab.meta, slab.live.clone()),
                false => space.add(slab.meta, slab.live.clone()),
            }
        }
        let state = State {
            space,
            moving: Vec::new(),
            starved: false,
            demoting: false,
            promotes_into_none: false,
            demoted: 0,
            replaced: 0,
            released_to: Vec::new(),
            climb: Climb::default(),
            asked: 0,
            pool: Pool::default(),
            cleared: BTreeSet::new(),
            held_tombstones: BTreeSet::new(),
            vacating: false,
            stuck: BTreeSet::new(),
            abandoned: Vec::new(),
            told: None,
        };
        Self {
            turn: Turn::new(sched, ()),
            pen: Turn::new(sched, ()),
            state: Mutex::new(sched, state),
            promotions: Promotions::new(sched),
            selections: AtomicU64::new(0),
            weighed: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            filter_probes: AtomicU64::new(0),
            log_free: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            refused_beside: AtomicU64::new(0),
        }
    }

    /// Whether the first tier has room for so many bytes of indexes and filters: slabs have at least half of what the
    /// log and other things leave.
    pub(super) fn has_room_beside(&self, engine: &Engine, bytes: u64) -> bool {
        let (slabs, beside) = (self.bytes().0, engine.options.beside_slabs_bytes());
        let fast = engine.tiers.fast();
        let budget = fast.capacity_bytes.saturating_sub(engine.options.log_bytes() + beside);
        slabs + fast.free_bytes() >= bytes + beside / 2 + budget / 2
    }

    /// There was none for so many, though there should have been; 0 when there was.
    pub(super) fn refuse_beside(&self, bytes: u64) {
        self.refused_beside.store(bytes, Ordering::Relaxed);
    }

    /// Choices of what goes down so far, key ranges weighed for them, and how often the tracker was asked, and filters
    /// were.
    pub(super) fn weighings(&self) -> [u64; 4] {
        [&self.selections, &self.weighed, &self.probes, &self.filter_probes]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Entries that went to slots instead of the log so far.
    pub(super) fn log_free(&self) -> u64 {
        self.log_free.load(Ordering::Relaxed)
    }

    /// Objects that were moved from slot to slot so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Bytes of slabs, and of slots that could be given out, or are announced for what is in memtables.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let mut state = self.state.lock();
        state.space.collect();
        let (slabs, free) = state.space.bytes();
        (slabs, free + state.pool.bytes())
    }
}

/// What a slot of such an entry holds.
fn holds_of(trailer: Trailer) -> Holds {
    if trailer.kind() == Some(Kind::Delete) { Holds::Tombstone } else { Holds::Value }
}

/// Of so many keys, those for which a tracker and its sketch may have memory.
fn remembered(keys: u64, options: &crate::Options) -> u64 {
    // In hundredths.
    let key_bytes = 100 * SKETCH_KEY_BYTES + TRACKED_KEY_BYTES * u64::from(options.tracked_percent);
    keys.min(options.memory_bytes / TRACKER_SHARE * 100 / key_bytes)
}

/// How many keys a tracker is to have room for in a store of so many, if that is quite another number than it has room
/// for.
fn tracker_keys(keys: u64, options: &crate::Options, capacity: u64) -> Option<u64> {
    let keys = remembered(keys, options);
    let wanted = (keys * u64::from(options.tracked_percent) / 100).max(TRACKED_MIN);
    let fits = wanted <= capacity.saturating_add(capacity / TRACKER_SLACK) && capacity <= 4 * wanted;
    (!fits).then(|| wanted + wanted / TRACKER_SLACK)
}

/// A tracker for a store of so many keys that knows what another knew.
pub(super) fn tracker_of(keys: u64, options: &crate::Options, heat: Heat) -> Arc<Tracker> {
    let capacity = tracker_keys(keys, options, heat.capacity).unwrap_or(heat.capacity);
    let seed = if heat.words.is_empty() { options.seed } else { heat.seed };
    Arc::new(Tracker::of_words(remembered(keys, options), capacity, seed, &heat.words, &heat.counted))
}

/// What is known of a key of this hash.
fn asked(tracker: Option<&Arc<Tracker>>, hash: u64) -> Asked {
    tracker.map_or(Asked::default(), |tracker| tracker.asked(hash))
}

/// Keys of the store and of tables, each as often as it has versions in containers.
pub(super) fn keys_of(contents: &Contents, version: &Version) -> u64 {
    contents.index.entries() + version.entries()
}

/// Those of `announced` in which no object of `changes` lies.
fn left_of(announced: &[Location], changes: &Changes) -> Vec<Location> {
    let place = |at: &Location| (at.slab, at.slot);
    let taken: BTreeSet<(u64, u32)> = changes.iter().flat_map(|(_, lie)| lie).map(place).collect();
    announced.iter().filter(|at| !taken.contains(&place(at))).copied().collect()
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
        let _held = self.tables.cache.memory().charge(Holder::Jobs, planned);
        self.tables.cache.fit();
        let paced = self.begin_paced(Work::Flush, sealed.memtable.used_bytes(), Leaving::default());
        // Once, however often the flush begins anew.
        if let Some(tracker) = &self.current.load().tracker
            && store.state.lock().told.replace(sealed.number) != Some(sealed.number)
        {
            let entries = sealed.memtable.entries();
            entries.for_each(|entry| tracker.written(key::hash(entry.key), sealed.number));
        }
        let (announced, ranges) = (sealed.announced.clone(), sealed.memtable.range_tombstones());
        let mut filling = Filling { announced, ranges: ranges.clone(), ..Filling::default() };
        let check = |done| {
            paced.progress(done);
            self.check_open()
        };
        let mut written = self.place_and_write(store, sealed, &mut filling, &check);
        for _ in 0..SPOILED_MAX {
            if !matches!(written, Ok(false)) {
                break;
            }
            // Slots elsewhere may do.
            self.give_back(store, &mut filling);
            written =
                self.check_open().and_then(|()| self.place_and_write(store, sealed, &mut filling, &check));
        }
        let committed = written.and_then(|is_whole| {
            if !is_whole {
                let why = "whichever slots it takes, the medium cannot read the pages around them";
                return Err(Error::io("flush into slabs", io::Error::other(why)));
            }
            // As soon as that is committed others may fill slots of these slabs, which are to be synced again.
            let synced = filling.announced.filled_slabs();
            if !synced.is_empty() {
                self.with_lead(|_, lead| {
                    lead.forget(&synced);
                    Ok(())
                })?;
            }
            self.commit_flush(store, &filling, (log_start, sealed.last_seq))
        });
        let before = match committed {
            Ok(before) => before,
            Err(error) => {
                // After any other failure of the commit the edit may be on media, and the slots taken.
                if self.failure.get().is_none() || is_refusal(&error) {
                    self.give_back(store, &mut filling);
                }
                return Err(error);
            }
        };
        self.operations.flushed();
        self.clear_after_flush(store, &before, &ranges);
        Ok(())
    }

    /// Finds slots for a memtable, and writes it into them; `false` if it may find others.
    fn place_and_write<'a>(
        &self,
        store: &Store,
        sealed: &'a Sealed,
        filling: &mut Filling<'a>,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<bool> {
        self.waste_abandoned(store)?;
        let mut placed = self.place(store, sealed, filling);
        if placed.as_ref().is_err_and(|error| *error.kind() == ErrorKind::Full) {
            // What it had taken may have kept slabs that are too large for what is left.
            self.give_back(store, filling);
            if self.starving(store, || -> Result<bool> {
                Ok(self.withdraw_unfilled(store)? | self.remove_empty_slabs(store)?)
            })? {
                placed = self.place(store, sealed, filling);
            }
        }
        placed.and_then(|()| self.write_slots(store, filling, Cause::Flush, check))
    }

    /// Undoes what was placed.
    fn give_back(&self, store: &Store, filling: &mut Filling<'_>) {
        let mut state = store.state.lock();
        let placed = filling.unwritten().map(|(location, _)| *location);
        match filling.is_written {
            // Slabs made for it go as they are.
            true => state.abandoned.extend(placed.filter(|at| !filling.new_slabs.contains_key(&at.slab))),
            false => state.space.give_back(placed),
        }
        filling.placed.clear();
        filling.is_written = false;
        for (number, slab) in std::mem::take(&mut filling.new_slabs) {
            state.space.remove(number);
            slab.mark_obsolete();
        }
    }

    /// Has slots given out again that were written to by what failed.
    fn waste_abandoned(&self, store: &Store) -> Result<()> {
        if store.state.lock().abandoned.is_empty() {
            return Ok(());
        }
        let _turn = store.turn.take();
        let mut abandoned = std::mem::take(&mut store.state.lock().abandoned);
        let before = self.current.load().contents.clone();
        let edit = Edit { wasted: SlotRun::of(&mut abandoned[..]), ..Edit::default() };
        let wasted = self.replace_contents(store, &before, (*before).clone(), edit, false);
        wasted.inspect_err(|_| store.state.lock().abandoned.extend(abandoned))
    }

    /// For the last edit: slots that were written to by what failed.
    pub(in crate::engine) fn abandoned_slots(&self) -> Vec<SlotRun> {
        let abandoned = self.objects.as_ref().map(|store| std::mem::take(&mut store.state.lock().abandoned));
        SlotRun::of(abandoned.unwrap_or_default())
    }

    /// Finds a slot for every object of a memtable that readers can see.
    fn place<'a>(&self, store: &Store, sealed: &'a Sealed, filling: &mut Filling<'a>) -> Result<()> {
        let erased = Erased::by([filling.ranges.clone()]);
        let mut retain =
            Retain::new(self.boundaries(), self.catalog.lock().dead.clone(), false).without(erased);
        filling.placed = PageVec::with_capacity(sealed.memtable.entry_count() as usize);
        for entry in sealed.memtable.entries() {
            if retain.keeps(entry.key, entry.trailer) {
                let location = match filling.announced.slot_of(entry.trailer.seq()) {
                    Some(location) => location,
                    None => self.take_slot(store, &entry, &mut filling.new_slabs)?,
                };
                filling.placed.push((location, entry));
            }
        }
        Ok(())
    }

    /// Writes what was placed, and makes it durable; `false` if the medium cannot read some of the pages: their slots
    /// are not given out any more.
    fn write_slots(
        &self,
        store: &Store,
        filling: &mut Filling<'_>,
        cause: Cause,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Result<bool> {
        let _pen = store.pen.take();
        filling.is_written = true;
        // Without an index, which would outlive what others make of it meanwhile.
        let with_new = self.current.load().contents.with_index(Index::default());
        let with_new = with_new.with(filling.new_slabs.values());
        let new: BTreeSet<u64> = filling.new_slabs.keys().copied().collect();
        let mut writes: PageVec<&Write<'_>> = filling.unwritten().collect();
        let Written { mut touched, spoiled } =
            fill(&self.tiers, &with_new, &new, &mut writes, None, cause, check)?;
        if !spoiled.is_empty() {
            let mut state = store.state.lock();
            spoiled.into_iter().for_each(|(slab, slots)| state.space.spoil(slab, slots));
            return Ok(false);
        }
        // Nothing may have come into one that was made.
        let is_left = |slab: &&Arc<Slab>| touched.iter().all(|other| other.meta.number != slab.meta.number);
        let left: Vec<Arc<Slab>> = filling.new_slabs.values().filter(is_left).cloned().collect();
        touched.extend(left);
        // Who filled these may not have asked for more than that they leave the process.
        let filled = filling.announced.filled_slabs().into_iter().map(|slab| with_new.slab(slab).cloned());
        touched.extend(filled.collect::<Result<Vec<_>>>()?);
        // A slab whose sync has failed may show what is not on media: nobody writes to it again.
        let syncs = match cause {
            Cause::Promotion => !planted::has(Bug::PromotionSyncDropped),
            Cause::Compaction => !planted::has(Bug::MoveSyncDropped),
            _ => true,
        };
        let synced = touched.iter().filter(|_| syncs).try_for_each(|slab| slab.sync());
        synced.inspect_err(|error| self.fail(error))?;
        if !new.is_empty() {
            self.tiers.get(SLAB_TIER)?.sync_names()?;
        }
        Ok(true)
    }

    /// Puts what was written into the contents, in place of what it shadows; what these were before.
    ///
    /// The log starts at `log_start` then, and numbers up to `last` are settled.
    fn commit_flush(
        &self,
        store: &Store,
        filling: &Filling<'_>,
        (log_start, last): (u64, Seq),
    ) -> Result<Before> {
        let _turn = store.turn.take();
        let current = self.current.load_full();
        let (before, version) = (current.contents.clone(), current.version.clone());
        drop(current);
        let (boundaries, dead) = (self.boundaries(), self.catalog.lock().dead.clone());
        let moving = store.state.lock().moving.clone();
        let erased = Erased::by([version.range_tombstones.clone(), filling.ranges.clone()]);
        let mut retain = Retain::new(boundaries.clone(), dead, false).without(erased);
        let mut changes = Changes::default();
        let [mut taken, mut unused] = [(); 2].map(|()| PageVec::default());
        let mut freed = Gone::default();
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
            let is_moving = is_among(&moving, key);
            let mut still_seen = Vec::new();
            if boundaries.len() > 1 && !planted::has(Bug::StoreSnapshotsForgotten) {
                for location in &old {
                    // What cannot be read may be what a snapshot sees. Of a copy it sees the original, in a table.
                    let is_seen = match before.read(*location, key) {
                        Ok(found) => retain.keeps(key, found.entry().trailer),
                        Err(error) if error.is_corrupt() => location.holds != Holds::Copy,
                        Err(error) => return Err(error),
                    };
                    still_seen.extend(is_seen.then_some(*location));
                }
            }
            if let ([(location, only)], []) = (&kept[..], &still_seen[..]) {
                let is_seen_by_all =
                    only.trailer.kind() == Some(Kind::Delete) && only.trailer.seq() <= boundaries[0];
                let announced = !planted::has(Bug::DemotionUnannounced);
                let may_lie_below = || may_hold(&version, key) || announced && is_moving;
                if is_seen_by_all && (planted::has(Bug::StoreTombstoneDropped) || !may_lie_below()) {
                    unused.push(*location);
                    kept.clear();
                }
            }
            taken.extend(kept.iter().map(|write| write.0));
            let gone = old.iter().copied().filter(|location| !still_seen.contains(location));
            freed.add(gone, is_moving);
            if !(kept.is_empty() && old == still_seen) {
                // A copy is the only version of its key in the store.
                let still_seen = still_seen.iter().map(|location| location.owned());
                changes.push(key, kept.iter().map(|write| write.0).chain(still_seen));
            }
        }
        let removes = self.removable(store);
        let parts = self.index_parts(&before.index).min(changes.len() as u64).max(1) as usize;
        let index = before.index.changed_by(changes.part(0, parts));
        let slabs_before = before.with_index(Index::default());
        // Let go of at once where nobody needs it: leaves that parts replace are to make room for those of the next.
        let before = Some(before).filter(|_| !filling.ranges.is_empty());
        let after = slabs_before.with_index(index).with(filling.new_slabs.values()).without(&removes);
        let edit = Edit {
            slabs_added: filling.new_slabs.values().map(|slab| slab.meta).collect(),
            slabs_removed: removes,
            ranges_added: ranges_of(&filling.ranges),
            taken: SlotRun::of(taken),
            wasted: SlotRun::of(&mut unused[..]),
            freed: freed.all(),
            withdrawn: runs_announced(filling.announced.slots()),
            flushed: Some(last),
            log_start: Some(log_start),
            counters: Some(self.encode_counters()),
            times: Some(self.operations.encode_times()),
            asked: self.catalog.lock().newly_asked(),
            ..Edit::default()
        };
        let freed = freed.freed();
        self.replace_contents_in_parts(store, &slabs_before, after, (&changes, parts), (edit, freed), true)?;
        let announced = filling.announced.slots();
        let left = if announced.is_empty() { Vec::new() } else { left_of(announced, &changes) };
        let mut state = store.state.lock();
        filling.new_slabs.keys().for_each(|slab| state.space.settle(*slab));
        let ended = state.space.bytes_of(announced);
        state.pool.ended(ended);
        slabs_of(announced).into_iter().for_each(|slab| state.space.reopen(slab));
        state.space.give_back(left);
        drop(state);
        Ok(Before { contents: before, oldest_read: boundaries[0] })
    }

    /// A slot for an object, in a new slab if need be, or after something else has gone down.
    fn take_slot(
        &self,
        store: &Store,
        entry: &Entry<'_>,
        new: &mut BTreeMap<u64, Arc<Slab>>,
    ) -> Result<Location> {
        let (bytes, holds) = (slot_bytes(object_bytes(entry)), holds_of(entry.trailer));
        let (mut times, mut is_last_resort) = (0, false);
        loop {
            let found = {
                let mut state = store.state.lock();
                state.space.collect();
                let mut found = state.space.take(bytes, holds);
                // Slabs that were to go are wanted again, or all that there is counts.
                let stays = (!is_last_resort).then_some(bytes);
                if found.is_none() && !state.vacating && state.space.all_stay(stays) {
                    found = state.space.take(bytes, holds);
                }
                found
            };
            if let Some(location) = found {
                return Ok(location);
            }
            let beside = self.options.beside_slabs_bytes() / if is_last_resort { BESIDE_LEAST } else { 1 };
            let is_indexed = is_last_resort || self.room_in_index(store) > 0;
            let made = if is_indexed { self.make_slab(bytes, beside)? } else { None };
            if let Some(slab) = made {
                let meta = slab.meta;
                new.insert(meta.number, Arc::new(slab));
                store.state.lock().space.add_fresh(meta);
                continue;
            }
            if let Some(location) = store.state.lock().space.take_larger(bytes, 2 * bytes, holds) {
                return Ok(location);
            }
            if is_last_resort {
                let any = store.state.lock().space.take_larger(bytes, u64::MAX, holds);
                return any.ok_or_else(|| self.full(bytes));
            }
            // A log that a crash has left longer has what is kept beside the slabs, and goes with this flush. Where
            // memory for the index is what lacks, readers that keep slots are not what it waits for.
            is_last_resort = !self.make_room(store, times, is_indexed)?;
            times += 1;
        }
    }

    /// A slab for slots of such a size, with fewer of them than usual if need be; `None` when the tier has no room for
    /// one and so many bytes beside.
    fn make_slab(&self, slot_bytes: u64, beside: u64) -> Result<Option<Slab>> {
        let tier = self.tiers.get(SLAB_TIER)?;
        let leased = [slots_in(slot_bytes, self.options.slab_bytes()), 1].into_iter().find_map(|slots| {
            let meta = SlabMeta { number: 0, slot_bytes, slots };
            let has_room = tier.free_bytes() >= meta.file_bytes() + beside;
            let lease = tier.lease(meta.file_bytes()).ok().filter(|_| has_room)?;
            Some((meta, lease))
        });
        let Some((mut meta, lease)) = leased else { return Ok(None) };
        let generations = self.catalog.lock().begin_slab(&mut meta);
        let made = Slab::create(&self.tiers, &self.tables.garbage, self.store, meta, generations);
        let slab = made.inspect_err(|_| {
            // What cannot be removed is an orphan, and the next open removes it.
            drop(tier.remove(meta.file()));
        })?;
        lease.settle(meta.file_bytes());
        Ok(Some(slab))
    }

    /// Makes slots, or room for slabs, for a flush that has found none so many times: by removing slabs that are empty,
    /// else by vacating some, else by a demotion, else by waiting for what runs, or for readers if these may be what it
    /// waits for. Whether it is worth looking again: demotions that give no room, again and again, are not.
    fn make_room(&self, store: &Store, times: u32, readers: bool) -> Result<bool> {
        self.check_writable()?;
        self.starving(store, || {
            if self.withdraw_unfilled(store)? || self.remove_empty_slabs(store)? {
                return Ok(true);
            }
            // Where it is memory for the index that lacks, no slab helps.
            if readers && times < WAITS_MAX && self.make_room_for_slabs(store)? {
                return Ok(true);
            }
            if let Some(plan) = self.begin_plan() {
                let done = self.compact(&plan);
                self.end_plan(&plan);
                done?;
                self.tables.collect_garbage();
                return Ok(times < WAITS_MAX);
            }
            // A merge within the sorted log keeps demotions of its keys waiting.
            let is_at_work = self.background.is_at_work() || !store.state.lock().moving.is_empty();
            let soon = || {
                let waiting = store.state.lock().space.waiting_bytes();
                readers && times < WAITS_MAX && (waiting > 0 || self.tables.garbage.is_pending())
            };
            let waits = is_at_work || soon();
            if waits {
                // Not longer than until a job ends: while a flush is starved, others demote for it.
                match is_at_work {
                    true => self.background.wait_for_change(WAIT),
                    false => self.sched.sleep(WAIT),
                }
                self.tables.collect_garbage();
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
        self.replace_contents(store, &before, after, edit, false)?;
        drop(before);
        self.tables.collect_garbage();
        Ok(true)
    }

    /// Slabs without objects that the tier has a better use for. No slot of theirs is given out any more: the caller
    /// commits an edit that removes them, by [`Engine::replace_contents`].
    fn removable(&self, store: &Store) -> Vec<u64> {
        let tier = self.tiers.fast();
        let is_short = tier.free_bytes() < self.options.beside_slabs_bytes() / 2;
        let mut state = store.state.lock();
        state.space.collect();
        let mut slabs = if is_short || state.starved { state.space.empty() } else { state.space.spare() };
        slabs.sort_unstable();
        // One that the manifest does not know yet is not its to remove.
        let catalog = self.catalog.lock();
        slabs.retain(|slab| catalog.slabs.contains_key(slab));
        slabs.iter().for_each(|slab| state.space.remove(*slab));
        slabs
    }

    /// In how many parts a flush changes the index. Leaves that a part has replaced are let go of before the next is
    /// made, so that a large index is not there twice.
    fn index_parts(&self, index: &Index) -> u64 {
        (index.held_bytes() * INDEX_PARTS / self.options.memory_bytes).clamp(INDEX_PARTS_MIN, INDEX_PARTS_MAX)
    }

    /// Commits an edit and the contents that go with it, in place of `before`; the caller has the store's turn. Slots
    /// that the edit wastes are free then.
    fn replace_contents(
        &self,
        store: &Store,
        before: &Contents,
        after: Contents,
        edit: Edit,
        flushed: bool,
    ) -> Result<()> {
        let freed = Freed::by(&edit);
        self.replace_contents_in_parts(store, before, after, (&<_>::default(), 1), (edit, freed), flushed)
    }

    /// The same, where `freed` says who may still look into what the edit frees, and where the contents that go with it
    /// have the first of so many parts of the changes of the index, and get the others one after the other: until the
    /// last one is there the memtable that was flushed stays, so readers find in either what they look for. `before`
    /// needs no index.
    fn replace_contents_in_parts(
        &self,
        store: &Store,
        before: &Contents,
        after: Contents,
        (changes, parts): (&Changes, usize),
        (edit, freed): (Edit, Freed),
        flushed: bool,
    ) -> Result<()> {
        let (removed, wasted) = (edit.slabs_removed.clone(), edit.wasted.clone());
        let ends = parts == 1;
        let tracker = self.current.load().tracker.as_ref().map_or(0, |tracker| tracker.held_bytes());
        self.tables.cache.memory().set(Holder::Index, after.bytes_of_slots() + tracker);
        let mut state = store.state.lock();
        if planted::has(Bug::SlotFreedBeforeEdit) {
            state.space.give_back(freed.all());
        }
        drop(state);
        let after = if ends { Contents { moment: Arc::default(), ..after } } else { after };
        let committed = self.commit_tables(edit, |current| {
            current.contents = Arc::new(after);
            if flushed && (ends || planted::has(Bug::FlushedPartly)) {
                drop(current.sealed.pop());
            }
        });
        state = store.state.lock();
        if let Err(error) = committed {
            for number in removed {
                let slab = before.slab(number)?;
                match slab.flaw() {
                    Some(_) => state.space.add_flawed(slab.meta, Slots::default()),
                    None => state.space.add(slab.meta, Slots::default()),
                }
            }
            return Err(error);
        }
        drop(state);
        for i in 1..parts {
            let present = self.current.load().contents.clone();
            let next = present.with_index(present.index.changed_by(changes.part(i, parts)));
            drop(present);
            let is_last = i + 1 == parts;
            let next = if is_last { Contents { moment: Arc::default(), ..next } } else { next };
            self.install(&self.catalog.lock(), |current| {
                current.contents = Arc::new(next);
                if flushed && is_last && !planted::has(Bug::FlushedPartly) {
                    drop(current.sealed.pop());
                }
            });
        }
        if flushed {
            self.renew_tracker();
        }
        state = store.state.lock();
        state.space.give_back(wasted.iter().flat_map(SlotRun::locations));
        match planted::has(Bug::SlotsFreedAtOnce) {
            true => state.space.give_back(freed.all()),
            false => {
                state.space.free_after(&before.moment, freed.rest);
                state.space.free_after_readers(&before.moment, freed.unread_by_jobs);
            }
        }
        state.pool.refill();
        drop(state);
        removed.into_iter().try_for_each(|number| before.slab(number).map(|slab| slab.mark_obsolete()))
    }

    /// Has the tracker be of a size that suits the number of keys; and what index and tracker hold is told.
    fn renew_tracker(&self) {
        let current = self.current.load_full();
        let Some(tracker) = &current.tracker else { return };
        let keys = keys_of(&current.contents, &current.version);
        let renewed = tracker_keys(keys, &self.options, tracker.capacity())
            .map(|tracked| Arc::new(tracker.resized(remembered(keys, &self.options), tracked)));
        let tracker = renewed.as_ref().unwrap_or(tracker);
        self.tables
            .cache
            .memory()
            .set(Holder::Index, current.contents.bytes_of_slots() + tracker.held_bytes());
        drop(current);
        if renewed.is_some() {
            self.install(&self.catalog.lock(), |current| current.tracker = renewed);
        }
    }

    /// The numbers that readers read at, ascending; the last is the present one.
    pub(super) fn boundaries(&self) -> Vec<Seq> {
        let snapshots = self.snapshots.lock();
        snapshots.boundaries(self.visible())
    }

    /// A key of that set of containers was read.
    pub(super) fn touch(&self, current: &Current, key: &[u8], seen: Seen) -> Option<u8> {
        current.tracker.as_ref().and_then(|tracker| tracker.read(key::hash(key), seen, current.active_number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_that_are_on_their_way_down_are_kept_for_who_takes_them_there() {
        let keys = |from: &str, to: &str| (from.as_bytes().to_vec(), to.as_bytes().to_vec());
        let moving = [keys("b", "d"), keys("k", "l")];
        let mut gone = Gone::default();
        let mut free = |key: &str, slots: &[u32]| {
            let locations = slots.iter().map(|slot| Location { slab: 1, slot: *slot, holds: Holds::Value });
            gone.add(locations, is_among(&moving, key.as_bytes()));
        };
        free("a", &[0]);
        free("b", &[1]);
        free("cz", &[2, 5]);
        free("d", &[3]);
        free("kk", &[4]);
        free("l", &[7]);
        let run = |from, len| SlotRun { slab: 1, from, len };
        assert_eq!(gone.all(), [run(0, 6), run(7, 1)]);
        let Freed { unread_by_jobs, rest } = gone.freed();
        assert_eq!(
            (unread_by_jobs, rest),
            (vec![run(0, 1), run(3, 1), run(7, 1)], vec![run(1, 2), run(4, 2)])
        );
    }
}
