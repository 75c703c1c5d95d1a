//! Which slots are taken.
//!
//! *Live* slots are the manifest's word ([`Slots`]): an edit names the slots that a write has filled and those that it
//! has freed, so what a slot's bytes say counts for nothing unless an edit has named it, however whole they look.
//! Nothing ever comes back from a slot that was freed.
//!
//! A live slot is never written to. What a flush or a promotion writes goes to free slots, so readers, merges and
//! snapshots need no protection from it, and a torn write hurts nobody. A freed slot is free for use again once nobody
//! holds a moment at which it was live, of jobs those that look into its key ([`Space`]). Free slots are given out by
//! place, from the slab that has most of them, so that neighbours share a page and its read and write. Slots that are
//! filled before an edit names them are of slabs that are closed to everybody else meanwhile. Of a slab that is
//! *leaving* none is given out: what is left in it moves to slots of others ([`Space::leave`]), and who holds a moment
//! from before learns by [`Space::moves`] where. A slot with bytes in a page that the medium cannot read is *spoiled*:
//! once nobody uses it, it is *retired*, and not given out as long as the store is open.

use super::contents::Moment;
use super::generation::Generations;
use super::index::{Holds, Location};
use super::slab::SlabMeta;
use crate::memory::Charge;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::DerefMut;
use std::sync::{Arc, Weak};

/// Neighbouring slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRun {
    pub(crate) slab: u64,
    pub(crate) from: u32,
    pub(crate) len: u32,
}

impl SlotRun {
    /// The slot behind the last, if there can be one.
    pub(crate) fn end(&self) -> Option<u32> {
        self.from.checked_add(self.len)
    }

    pub(crate) fn slots(&self) -> std::ops::Range<u32> {
        self.from..self.from.saturating_add(self.len)
    }

    /// Its slots, for who does not ask what they hold.
    pub(crate) fn locations(&self) -> impl Iterator<Item = Location> {
        let slab = self.slab;
        self.slots().map(move |slot| Location { slab, slot, holds: Holds::Value })
    }

    /// `slots` as runs, by place.
    pub(crate) fn of(mut slots: impl DerefMut<Target = [Location]>) -> Vec<Self> {
        slots.sort_unstable();
        let follows = |a: &Location, b: &Location| a.slab == b.slab && a.slot + 1 == b.slot;
        let run = |run: &[Location]| Self { slab: run[0].slab, from: run[0].slot, len: run.len() as u32 };
        slots.chunk_by(follows).map(run).collect()
    }
}

/// A set of a slab's slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    words: Vec<u64>,
    count: u32,
}

impl Slots {
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Whether it was missing.
    pub(crate) fn insert(&mut self, slot: u32) -> bool {
        let word = slot as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = !self.contains(slot);
        self.words[word] |= 1 << (slot % 64);
        self.count += u32::from(is_new);
        is_new
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let was_there = self.contains(slot);
        if was_there {
            self.words[slot as usize / 64] &= !(1 << (slot % 64));
            self.count -= 1;
        }
        was_there
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip((0..).step_by(64)).flat_map(|(word, base)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| base + bit)
        })
    }

    /// The same as runs of slab `slab`.
    pub(crate) fn runs(&self, slab: u64) -> Vec<SlotRun> {
        SlotRun::of(self.iter().map(|slot| Location { slab, slot, holds: Holds::Value }).collect::<Vec<_>>())
    }

    /// The first slot at or after `from`, and below `end`, that is not in the set.
    fn first_missing(&self, from: u32, end: u32) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.words.get(at as usize / 64).copied().unwrap_or(0) >> (at % 64);
            let skip = word.trailing_ones();
            if skip < 64 - at % 64 {
                return Some(at + skip).filter(|slot| *slot < end);
            }
            at += 64 - at % 64;
        }
        None
    }
}

/// What the manifest says of a slab.
#[derive(Clone, Debug)]
pub(crate) struct SlabState {
    pub(crate) meta: SlabMeta,
    pub(crate) live: Slots,
    /// Shared with who reads and writes the slab.
    pub(crate) generations: Arc<Generations>,
}

/// A slab's slots that cannot be given out.
#[derive(Debug)]
struct Taken {
    meta: SlabMeta,
    taken: Slots,
    /// Of those, what is in nobody's use and yet not to be given out: the medium cannot read the pages that they are
    /// in.
    retired: Slots,
    /// Slots in such pages.
    spoiled: Slots,
    /// Where to look for the next free one.
    from: u32,
}

impl Taken {
    fn new(meta: SlabMeta, taken: Slots) -> Self {
        Self { meta, taken, retired: Slots::default(), spoiled: Slots::default(), from: 0 }
    }

    fn free(&self) -> u32 {
        self.meta.slots - self.taken.count()
    }

    /// How many are in use.
    fn used(&self) -> u32 {
        self.taken.count() - self.retired.count()
    }
}

/// What was moved from slot to slot.
#[derive(Debug)]
pub(crate) struct Moves {
    /// Slab and slot, before and since.
    places: BTreeMap<(u64, u32), (u64, u32)>,
    _held: Charge,
}

impl Moves {
    /// None so far; `held` is the memory that they will take.
    pub(crate) fn new(held: Charge) -> Self {
        Self { places: BTreeMap::new(), _held: held }
    }

    pub(crate) fn add(&mut self, from: Location, to: Location) {
        self.places.insert((from.slab, from.slot), (to.slab, to.slot));
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn lies_now(&self, then: Location) -> Location {
        let now = self.places.get(&(then.slab, then.slot));
        now.map_or(then, |(slab, slot)| Location { slab: *slab, slot: *slot, ..then })
    }
}

/// Where that lies now which lay there at a moment that somebody holds.
pub(crate) fn lies_now(moves: &[Arc<Moves>], then: Location) -> Location {
    moves.iter().fold(then, |then, moves| moves.lies_now(then))
}

/// What happened to slots at the end of a moment.
#[derive(Debug)]
struct Waiting {
    /// The last moment at which they were live, of jobs.
    last: Weak<()>,
    freed: Vec<SlotRun>,
    moved: Option<Arc<Moves>>,
}

/// What can be given out.
#[derive(Debug, Default)]
pub(crate) struct Space {
    slabs: BTreeMap<u64, Taken>,
    /// By class: the slabs, and the one that slots are given out of.
    classes: BTreeMap<u64, (Vec<u64>, Option<u64>)>,
    /// By the moment, oldest first: what a job may still look into, and what no job does.
    waiting: VecDeque<Waiting>,
    unread_by_jobs: VecDeque<(Weak<Moment>, Vec<SlotRun>)>,
    /// Slabs that no edit names yet: only who has made them may use them.
    fresh: BTreeSet<u64>,
    /// Slabs of which no slot is given out any more.
    flawed: BTreeSet<u64>,
    /// Slabs of which none is given out for now, since what is left in them moves elsewhere, or has moved.
    leaving: BTreeSet<u64>,
    slab_bytes: u64,
    free_bytes: u64,
}

impl Space {
    /// A slab that no edit names yet.
    pub(crate) fn add_fresh(&mut self, meta: SlabMeta) {
        self.add(meta, Slots::default());
        self.fresh.insert(meta.number);
    }

    /// An edit names the slab now.
    pub(crate) fn settle(&mut self, number: u64) {
        self.fresh.remove(&number);
    }

    /// A slab that nobody gets a slot of, until [`Space::reopen`], but who has made it; and its slots.
    pub(crate) fn add_closed(&mut self, meta: SlabMeta) -> Vec<Location> {
        self.add(meta, Slots::default());
        self.close_slab(meta.number, meta.slot_bytes)
    }

    /// Takes all free slots of the slab of this class that has most, none of which is given out from then on until
    /// [`Space::reopen`]: so nobody else writes to its pages. `live` says how many slots of a slab are live; one of
    /// which more are taken is being written to.
    pub(crate) fn close(&mut self, slot_bytes: u64, live: &dyn Fn(u64) -> u32) -> Vec<Location> {
        let most = {
            let Some((slabs, _)) = self.classes.get(&slot_bytes) else { return Vec::new() };
            let is_quiet = self.quiet(live);
            let found = slabs.iter().filter_map(|number| self.slabs.get(number));
            let quiet = found.filter(|slab| slab.free() > 0 && is_quiet(slab));
            let most = quiet.max_by_key(|slab| (slab.free(), std::cmp::Reverse(slab.meta.number)));
            most.map(|slab| slab.meta.number)
        };
        most.map_or_else(Vec::new, |slab| self.close_slab(slab, slot_bytes))
    }

    /// Whether nobody writes to a slab: what is taken is live, as `live` says, or waits for readers.
    fn quiet(&self, live: &dyn Fn(u64) -> u32) -> impl Fn(&Taken) -> bool {
        let mut waiting: BTreeMap<u64, u32> = BTreeMap::new();
        for run in self.waiting_runs() {
            *waiting.entry(run.slab).or_default() += run.len;
        }
        move |slab| {
            let number = slab.meta.number;
            let idle = live(number) + waiting.get(&number).copied().unwrap_or(0);
            slab.used() == idle && !self.fresh.contains(&number)
        }
    }

    /// The slabs that nobody writes to, of which slots are given out, and how many are free. `live` says how many slots
    /// of each are live.
    pub(crate) fn quiet_slabs(&self, live: &dyn Fn(u64) -> u32) -> Vec<(SlabMeta, u32)> {
        let is_quiet = self.quiet(live);
        let found =
            self.classes.values().flat_map(|(slabs, _)| slabs).filter_map(|slab| self.slabs.get(slab));
        found.filter(|slab| is_quiet(slab)).map(|slab| (slab.meta, slab.free())).collect()
    }

    /// No slot of this slab is given out, until it is to stay; it goes when none is in use.
    pub(crate) fn leave(&mut self, number: u64) {
        let Some(found) = self.slabs.get(&number).filter(|_| !self.flawed.contains(&number)) else { return };
        if let Some((slabs, present)) = self.classes.get_mut(&found.meta.slot_bytes) {
            slabs.retain(|slab| *slab != number);
            present.take_if(|slab| *slab == number);
        }
        self.leaving.insert(number);
    }

    /// A slab that is leaving stays.
    pub(crate) fn stay(&mut self, number: u64) {
        if self.leaving.remove(&number) {
            self.reopen(number);
        }
    }

    /// All that are leaving stay, of this class or of any. Whether there were some.
    pub(crate) fn all_stay(&mut self, slot_bytes: Option<u64>) -> bool {
        let stays = |slab: &u64| slot_bytes.is_none_or(|bytes| self.slot_bytes_in(*slab) == bytes);
        let staying: Vec<u64> = self.leaving.iter().copied().filter(stays).collect();
        staying.iter().for_each(|slab| self.stay(*slab));
        !staying.is_empty()
    }

    fn close_slab(&mut self, number: u64, slot_bytes: u64) -> Vec<Location> {
        if let Some((slabs, present)) = self.classes.get_mut(&slot_bytes) {
            slabs.retain(|slab| *slab != number);
            present.take_if(|slab| *slab == number);
        }
        let Some(found) = self.slabs.get_mut(&number) else { return Vec::new() };
        let free: Vec<u32> = (0..found.meta.slots).filter(|slot| !found.taken.contains(*slot)).collect();
        for slot in &free {
            found.taken.insert(*slot);
        }
        self.free_bytes -= free.len() as u64 * slot_bytes;
        free.into_iter().map(|slot| Location { slab: number, slot, holds: Holds::Value }).collect()
    }

    /// Slots of a slab are given out again.
    pub(crate) fn reopen(&mut self, number: u64) {
        let Some(found) = self.slabs.get(&number) else { return };
        let (slabs, _) = self.classes.entry(found.meta.slot_bytes).or_default();
        if !slabs.contains(&number) {
            slabs.push(number);
        }
    }

    /// A slab, and which of its slots are live.
    pub(crate) fn add(&mut self, meta: SlabMeta, live: Slots) {
        let taken = Taken::new(meta, live);
        self.slab_bytes += meta.file_bytes();
        self.free_bytes += u64::from(taken.free()) * meta.slot_bytes;
        self.slabs.insert(meta.number, taken);
        self.classes.entry(meta.slot_bytes).or_default().0.push(meta.number);
    }

    /// A slab of which no slot is to be given out, and which of its slots are live.
    pub(crate) fn add_flawed(&mut self, meta: SlabMeta, live: Slots) {
        self.slab_bytes += meta.file_bytes();
        self.slabs.insert(meta.number, Taken::new(meta, live));
        self.flawed.insert(meta.number);
    }

    /// The slab is gone.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(gone) = self.slabs.remove(&number) else { return };
        self.fresh.remove(&number);
        self.slab_bytes -= gone.meta.file_bytes();
        self.leaving.remove(&number);
        if self.flawed.remove(&number) {
            return;
        }
        self.free_bytes -= u64::from(gone.free()) * gone.meta.slot_bytes;
        if let Some((slabs, present)) = self.classes.get_mut(&gone.meta.slot_bytes) {
            slabs.retain(|slab| *slab != number);
            present.take_if(|slab| *slab == number);
        }
    }

    /// A free slot of exactly this class, which is taken from now on, and what it will hold.
    pub(crate) fn take(&mut self, slot_bytes: u64, holds: Holds) -> Option<Location> {
        let (slabs, present) = self.classes.get_mut(&slot_bytes)?;
        loop {
            let slab = match *present {
                Some(slab) => slab,
                None => {
                    let free = |slab: &u64| self.slabs.get(slab).map_or(0, Taken::free);
                    let most =
                        slabs.iter().copied().max_by_key(|slab| (free(slab), std::cmp::Reverse(*slab)))?;
                    if free(&most) == 0 {
                        return None;
                    }
                    self.slabs.get_mut(&most)?.from = 0;
                    *present.insert(most)
                }
            };
            let found = self.slabs.get_mut(&slab)?;
            if let Some(slot) = found.taken.first_missing(found.from, found.meta.slots) {
                found.taken.insert(slot);
                found.from = slot + 1;
                self.free_bytes -= slot_bytes;
                return Some(Location { slab, slot, holds });
            }
            *present = None;
        }
    }

    /// As [`Space::take`], for who has made no slab: out of one that an edit names.
    pub(crate) fn take_settled(&mut self, slot_bytes: u64, holds: Holds) -> Option<Location> {
        let (slabs, _) = self.classes.get(&slot_bytes)?;
        let free = |slab: &u64| self.slabs.get(slab).map_or(0, Taken::free);
        let settled = slabs.iter().copied().filter(|slab| !self.fresh.contains(slab));
        let slab = settled.max_by_key(|slab| (free(slab), std::cmp::Reverse(*slab)))?;
        let found = self.slabs.get_mut(&slab)?;
        let slot = found.taken.first_missing(0, found.meta.slots)?;
        found.taken.insert(slot);
        self.free_bytes -= slot_bytes;
        Some(Location { slab, slot, holds })
    }

    /// Up to so many slots as [`Space::take_settled`], side by side as far as there are any: all of the slab that has
    /// most, and so on.
    pub(crate) fn take_together(&mut self, slot_bytes: u64, count: usize) -> Vec<Location> {
        let Some((slabs, _)) = self.classes.get(&slot_bytes) else { return Vec::new() };
        let settled = slabs.iter().filter(|slab| !self.fresh.contains(slab));
        let mut by_free: Vec<(u32, u64)> =
            settled.filter_map(|slab| Some((self.slabs.get(slab)?.free(), *slab))).collect();
        by_free.sort_unstable_by_key(|(free, slab)| (std::cmp::Reverse(*free), *slab));
        let mut taken = Vec::with_capacity(count);
        for (_, number) in by_free {
            let Some(found) = self.slabs.get_mut(&number) else { continue };
            let mut from = 0;
            while taken.len() < count {
                let Some(slot) = found.taken.first_missing(from, found.meta.slots) else { break };
                found.taken.insert(slot);
                from = slot + 1;
                taken.push(Location { slab: number, slot, holds: Holds::Value });
            }
        }
        self.free_bytes -= taken.len() as u64 * slot_bytes;
        taken
    }

    /// A slot of the next class above that has a free one, up to slots of `most` bytes.
    pub(crate) fn take_larger(&mut self, slot_bytes: u64, most: u64, holds: Holds) -> Option<Location> {
        let larger: Vec<u64> =
            self.classes.range(slot_bytes + 1..=most).map(|(slot_bytes, _)| *slot_bytes).collect();
        larger.into_iter().find_map(|slot_bytes| self.take(slot_bytes, holds))
    }

    /// Slots that were taken and are not needed.
    pub(crate) fn give_back(&mut self, slots: impl IntoIterator<Item = Location>) {
        for Location { slab, slot, .. } in slots {
            let Some(found) = self.slabs.get_mut(&slab) else { continue };
            if found.spoiled.contains(slot) && found.taken.contains(slot) {
                found.retired.insert(slot);
            } else if found.taken.remove(slot) && !self.flawed.contains(&slab) {
                self.free_bytes += found.meta.slot_bytes;
            }
        }
    }

    /// The medium cannot read pages that these slots of a slab are in: none is given out any more, as long as the store
    /// is open.
    pub(crate) fn spoil(&mut self, number: u64, slots: std::ops::Range<u32>) {
        let Some(found) = self.slabs.get_mut(&number) else { return };
        for slot in slots {
            found.spoiled.insert(slot);
            if found.taken.insert(slot) {
                found.retired.insert(slot);
                self.free_bytes -= if self.flawed.contains(&number) { 0 } else { found.meta.slot_bytes };
            }
        }
    }

    /// Slots that were live at `last`, and are not at what came after it.
    pub(crate) fn free_after(&mut self, last: &Arc<Moment>, slots: Vec<SlotRun>) {
        let last = Arc::downgrade(&last.of_jobs);
        self.waiting.push_back(Waiting { last, freed: slots, moved: None });
    }

    /// The same where no job that runs has announced the keys that they had.
    pub(crate) fn free_after_readers(&mut self, last: &Arc<Moment>, slots: Vec<SlotRun>) {
        self.unread_by_jobs.push_back((Arc::downgrade(last), slots));
    }

    fn waiting_runs(&self) -> impl Iterator<Item = &SlotRun> {
        let of_jobs = self.waiting.iter().map(|waiting| &waiting.freed);
        of_jobs.chain(self.unread_by_jobs.iter().map(|(_, freed)| freed)).flatten()
    }

    /// These were moved at the end of `last`. Nobody remembers ([`Space::moves`]) that what lay there was moved to
    /// there.
    pub(crate) fn moved_after(&mut self, last: &Arc<Moment>, moved: Moves) {
        let (last, moved) = (Arc::downgrade(&last.of_jobs), Some(Arc::new(moved)));
        self.waiting.push_back(Waiting { last, freed: Vec::new(), moved });
    }

    /// What was moved since the oldest moment that somebody holds.
    pub(crate) fn moves(&self) -> Vec<Arc<Moves>> {
        self.waiting.iter().filter_map(|waiting| waiting.moved.clone()).collect()
    }

    /// Takes back what nobody can see any more.
    pub(crate) fn collect(&mut self) {
        while self.waiting.front().is_some_and(|waiting| waiting.last.strong_count() == 0) {
            let freed = self.waiting.pop_front().map_or_else(Vec::new, |waiting| waiting.freed);
            self.give_back(freed.iter().flat_map(SlotRun::locations));
        }
        while self.unread_by_jobs.front().is_some_and(|(last, _)| last.strong_count() == 0) {
            let freed = self.unread_by_jobs.pop_front().map_or_else(Vec::new, |(_, freed)| freed);
            self.give_back(freed.iter().flat_map(SlotRun::locations));
        }
    }

    /// Slabs without a taken slot, but for the first of each class that slots may be given out of.
    pub(crate) fn spare(&self) -> Vec<u64> {
        let is_empty = |slab: &&u64| self.slabs.get(slab).is_some_and(|slab| slab.used() == 0);
        let of_classes = self.classes.values().flat_map(|(slabs, _)| slabs.iter().filter(is_empty).skip(1));
        of_classes.chain(self.flawed.union(&self.leaving).filter(is_empty)).copied().collect()
    }

    /// Slabs without a taken slot.
    pub(crate) fn empty(&self) -> Vec<u64> {
        self.slabs.values().filter(|slab| slab.used() == 0).map(|slab| slab.meta.number).collect()
    }

    /// Bytes of slabs, and of free slots in them.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.slab_bytes, self.free_bytes)
    }

    /// Bytes of slots that wait until nobody can see them.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let bytes = |run: &SlotRun| u64::from(run.len) * self.slot_bytes_in(run.slab);
        self.waiting_runs().map(bytes).sum()
    }

    /// Bytes of each slot of a slab; 0 if it is gone.
    pub(crate) fn slot_bytes_in(&self, number: u64) -> u64 {
        self.slabs.get(&number).map_or(0, |slab| slab.meta.slot_bytes)
    }

    /// Bytes of some slots.
    pub(crate) fn bytes_of(&self, slots: &[Location]) -> u64 {
        slots.iter().map(|at| self.slot_bytes_in(at.slab)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Contents, Index};
    use super::*;
    use crate::memory::{Holder, Memory};

    fn slab(number: u64, slot_bytes: u64, slots: u32) -> SlabMeta {
        SlabMeta { number, slot_bytes, slots }
    }

    #[test]
    fn a_set_of_slots_is_a_set() {
        let mut slots = Slots::default();
        assert_eq!(slots.first_missing(0, 100), Some(0));
        assert!((0..70).chain([99]).all(|slot| slots.insert(slot)));
        assert!(!slots.insert(3) && slots.remove(5) && !slots.remove(5) && !slots.remove(1000));
        assert_eq!((slots.count(), slots.iter().last()), (70, Some(99)));
        assert_eq!(
            [0, 6, 70, 99].map(|from| slots.first_missing(from, 100)),
            [Some(5), Some(70), Some(70), None]
        );
    }

    #[test]
    fn slots_are_given_out_by_place_from_the_emptiest_slab() {
        let mut space = Space::default();
        let live = |slots: &[u32]| {
            let mut live = Slots::default();
            slots.iter().for_each(|slot| assert!(live.insert(*slot)));
            live
        };
        space.add(slab(1, 100, 4), live(&[0, 1, 2]));
        space.add(slab(2, 100, 4), live(&[1]));
        space.add(slab(3, 112, 2), live(&[]));
        assert_eq!(space.bytes(), (3 * 8192, 400 + 224));
        let taken: Vec<(u64, u32)> =
            std::iter::from_fn(|| space.take(100, Holds::Value)).map(|at| (at.slab, at.slot)).collect();
        assert_eq!(taken, [(2, 0), (2, 2), (2, 3), (1, 3)]);
        assert_eq!(
            space.take_larger(100, 200, Holds::Value),
            Some(Location { slab: 3, slot: 0, holds: Holds::Value })
        );
        space.give_back([
            Location { slab: 2, slot: 2, holds: Holds::Value },
            Location { slab: 3, slot: 0, holds: Holds::Value },
        ]);
        assert_eq!(space.take(100, Holds::Value), Some(Location { slab: 2, slot: 2, holds: Holds::Value }));
        assert_eq!((space.spare(), space.empty()), (vec![], vec![3]));
        // Whose slab it is alone uses it, until an edit names it.
        space.add_fresh(slab(4, 112, 9));
        let taken = [(); 3].map(|()| space.take_settled(112, Holds::Value).map(|at| (at.slab, at.slot)));
        assert_eq!(taken, [Some((3, 0)), Some((3, 1)), None]);
        space.settle(4);
        assert_eq!(
            space.take_settled(112, Holds::Copy),
            Some(Location { slab: 4, slot: 0, holds: Holds::Copy })
        );
    }

    #[test]
    fn slots_of_a_closed_slab_are_its_owners() {
        let mut space = Space::default();
        let mut live = Slots::default();
        assert!(live.insert(1) && live.insert(2));
        space.add(slab(1, 100, 4), live.clone());
        space.add(slab(2, 100, 3), Slots::default());
        let places = |slots: Vec<Location>| slots.iter().map(|at| (at.slab, at.slot)).collect::<Vec<_>>();
        // Somebody is writing to the second one.
        assert_eq!(space.take(100, Holds::Value).map(|at| (at.slab, at.slot)), Some((2, 0)));
        let is_live = |number| if number == 1 { 2 } else { 0 };
        let closed = space.close(100, &is_live);
        assert_eq!(places(closed.clone()), [(1, 0), (1, 3)]);
        assert_eq!((places(space.close(100, &is_live)), space.bytes().1), (vec![], 200));
        let rest = [(); 3].map(|()| space.take(100, Holds::Value).map(|at| (at.slab, at.slot)));
        assert_eq!(rest, [Some((2, 1)), Some((2, 2)), None]);
        space.give_back(closed);
        assert_eq!((space.take(100, Holds::Value), space.bytes().1), (None, 200));
        space.reopen(1);
        space.reopen(1);
        assert_eq!(space.take(100, Holds::Value).map(|at| (at.slab, at.slot)), Some((1, 0)));
        assert_eq!(places(space.add_closed(slab(3, 100, 2))), [(3, 0), (3, 1)]);
        assert_eq!((space.take(100, Holds::Value).map(|at| at.slab), space.bytes().1), (Some(1), 0));
    }

    #[test]
    fn nothing_is_given_out_of_a_flawed_slab_and_it_goes_when_it_is_empty() {
        let mut space = Space::default();
        let mut live = Slots::default();
        assert!(live.insert(1));
        space.add_flawed(slab(1, 100, 4), live);
        space.add(slab(2, 100, 1), Slots::default());
        assert_eq!(space.take(100, Holds::Value).map(|at| at.slab), Some(2));
        space.give_back([Location { slab: 1, slot: 1, holds: Holds::Value }]);
        assert_eq!((space.take(100, Holds::Value), space.bytes()), (None, (2 * 8192, 0)));
        assert_eq!((space.spare(), space.empty()), (vec![1], vec![1]));
        space.remove(1);
        assert_eq!((space.bytes(), space.spare()), ((8192, 0), vec![]));
    }

    #[test]
    fn a_slab_that_leaves_gives_nothing_out_and_goes_when_nobody_uses_it() {
        let mut space = Space::default();
        let mut live = Slots::default();
        assert!(live.insert(1) && live.insert(2));
        space.add(slab(1, 100, 4), live);
        space.add(slab(2, 100, 3), Slots::default());
        // Somebody writes to the second one.
        assert_eq!(space.take(100, Holds::Value).map(|at| at.slab), Some(2));
        let is_live = |number| if number == 1 { 2 } else { 0 };
        assert_eq!(space.quiet_slabs(&is_live), [(slab(1, 100, 4), 2)]);
        space.leave(1);
        assert_eq!(space.quiet_slabs(&is_live), []);
        let at = |number, slot| Location { slab: number, slot, holds: Holds::Value };
        space.give_back([at(1, 1)]);
        assert_eq!((space.bytes().1, space.spare()), (500, vec![]));
        let rest = [(); 3].map(|()| space.take(100, Holds::Value));
        assert_eq!(rest, [Some(at(2, 1)), Some(at(2, 2)), None]);
        assert!(!space.all_stay(Some(112)) && space.all_stay(Some(100)) && !space.all_stay(None));
        assert_eq!((space.take(100, Holds::Value), space.bytes().1), (Some(at(1, 0)), 200));
        space.leave(1);
        space.give_back([at(1, 0), at(1, 2)]);
        assert_eq!((space.bytes(), space.spare()), ((2 * 8192, 400), vec![1]));
        space.remove(1);
        assert_eq!((space.bytes(), space.spare()), ((8192, 0), vec![]));
    }

    #[test]
    fn who_holds_a_moment_learns_where_things_were_moved_since() {
        let mut space = Space::default();
        let at = |slab, slot| Location { slab, slot, holds: Holds::Copy };
        let (first, second) = (Arc::new(Moment::default()), Arc::new(Moment::default()));
        space.free_after(&first, Vec::new());
        let memory = Memory::new(1 << 20, 0, 0);
        let mut moved = Moves::new(memory.charge(Holder::Jobs, 1000));
        moved.add(at(1, 2), at(3, 4));
        space.moved_after(&second, moved);
        drop(second);
        space.collect();
        let moves = space.moves();
        assert_eq!([at(1, 2), at(1, 3)].map(|then| lies_now(&moves, then)), [at(3, 4), at(1, 3)]);
        drop((first, moves));
        space.collect();
        assert!(space.moves().is_empty() && memory.held(Holder::Jobs) == 0);
    }

    #[test]
    fn slots_that_are_taken_together_lie_side_by_side() {
        let mut space = Space::default();
        let mut live = Slots::default();
        assert!(live.insert(1) && live.insert(2));
        (1..=2).for_each(|number| space.add(slab(number, 100, 4), live.clone()));
        space.add_fresh(slab(3, 100, 9));
        let taken = |space: &mut Space, count| -> Vec<(u64, u32)> {
            space.take_together(100, count).iter().map(|at| (at.slab, at.slot)).collect()
        };
        assert_eq!(taken(&mut space, 3), [(1, 0), (1, 3), (2, 0)]);
        assert_eq!((taken(&mut space, 3), space.bytes().1), (vec![(2, 3)], 900));
    }

    #[test]
    fn a_spoiled_slot_is_not_given_out_and_keeps_no_slab() {
        let mut space = Space::default();
        space.add(slab(1, 100, 5), Slots::default());
        let at = |slot| Location { slab: 1, slot, holds: Holds::Value };
        assert_eq!([(); 2].map(|()| space.take(100, Holds::Value)), [Some(at(0)), Some(at(1))]);
        // One that is in use, and one that is free.
        space.spoil(1, 1..3);
        space.spoil(1, 1..3);
        assert_eq!(space.bytes().1, 200);
        space.give_back([at(1), at(1)]);
        assert_eq!((space.bytes().1, space.empty()), (200, vec![]));
        let rest = [(); 3].map(|()| space.take(100, Holds::Value));
        assert_eq!(rest, [Some(at(3)), Some(at(4)), None]);
        space.give_back([at(0), at(3), at(4)]);
        assert_eq!((space.bytes().1, space.empty()), (300, vec![1]));
        space.remove(1);
        assert_eq!(space.bytes(), (0, 0));
    }

    #[test]
    fn a_freed_slot_waits_for_those_who_see_it() {
        let mut space = Space::default();
        space.add(slab(1, 100, 2), Slots::default());
        let slots: Vec<Location> = std::iter::from_fn(|| space.take(100, Holds::Value)).collect();
        let (first, second) = (Arc::new(Moment::default()), Arc::new(Moment::default()));
        space.free_after(&first, SlotRun::of(vec![slots[0]]));
        space.free_after(&second, SlotRun::of(vec![slots[1]]));
        drop(second);
        space.collect();
        // Who holds the first may look into what was freed after it, too.
        assert_eq!((space.take(100, Holds::Value), space.waiting_bytes()), (None, 200));
        drop(first);
        space.collect();
        assert_eq!((space.take(100, Holds::Value), space.waiting_bytes()), (Some(slots[0]), 0));
    }

    #[test]
    fn a_job_keeps_slots_of_its_own_keys_and_no_others() {
        let mut space = Space::default();
        space.add(slab(1, 100, 3), Slots::default());
        let slots: Vec<Location> = std::iter::from_fn(|| space.take(100, Holds::Value)).collect();
        let contents = Contents::default();
        let (of_job, present) = (contents.of_job(Index::default()), contents.moment.clone());
        drop(contents);
        space.free_after(&present, SlotRun::of(vec![slots[0]]));
        space.free_after_readers(&present, SlotRun::of(vec![slots[1]]));
        space.collect();
        // A reader may look into both.
        assert_eq!((space.take(100, Holds::Value), space.waiting_bytes()), (None, 200));
        drop(present);
        space.collect();
        assert_eq!((space.take(100, Holds::Value), space.waiting_bytes()), (Some(slots[1]), 100));
        drop(of_job);
        space.collect();
        assert_eq!((space.take(100, Holds::Value), space.waiting_bytes()), (Some(slots[0]), 0));
    }
}
