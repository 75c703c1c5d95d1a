//! What the policy is told of the store: how full it is, the key ranges that could go down, and what the tracker says
//! of those that are worth asking.

use super::Store;
use crate::engine::{Current, Engine};
use crate::key;
use crate::policy::candidates::{self, Candidate, Extent};
use crate::policy::climb::Work;
use crate::policy::sorted_log::{self, Sizes};
use crate::policy::{
    LevelView, PileView, RangeHeat, RangeView, RunningPlan, StoreView, TableView, View, msc, piles,
};
use crate::profile::Demotion;
use crate::store::{Contents, Holds, Position};
use crate::tracker::{Asked, Pinning, Rank};
use crate::version::TableHandle;
use cuesta_sched::Rng;
use cuesta_sched::atomic::Ordering;
use std::sync::Arc;

/// Demotion begins when free slots are less than one part in so many of the slabs, and ends at the other (PrismDB's
/// watermarks of 98 and 95 %).
const HIGH_SHARE: u64 = 50;
const LOW_SHARE: u64 = 20;
/// Of the bytes that slabs may have, what objects that stay may take: four parts in five.
const PINNED_OF: (u64, u64) = (4, 5);
/// And with copies, which go for nothing: nine in ten, so that there is something to let go of before the low mark.
const COPIES_OF: (u64, u64) = (9, 10);
/// Cold objects go down for the sake of copies only where, on average, fewer times their bytes have to be written for
/// that.
const DEAR: u64 = 16;
/// Where the last tier has no room for a range as it is, it is cut as fine as one part in so many of what a range
/// should have, and no finer: each is looked at for every plan.
const TIGHT_PIECES: u64 = 32;
/// Among the keys of a pile no more objects go down together than so many times the bytes of its tables, or of as many
/// as a range without tables has: a demotion's room comes back at its end, so one that took a large part of the store
/// would have writers wait for all of it.
const CROWD: u64 = 4;
/// Objects that a range is weighed by, unless all of them are.
const SAMPLE: u64 = 64;
/// Objects of a range of which filters are asked whether tables have them, and of each range with
/// [`Demotion::Precise`].
const OVERLAP_SAMPLE: u64 = 16;
const OVERLAP_SAMPLE_PRECISE: u64 = 64;
/// Where there are many ranges, objects that are drawn for one plan, at most.
const DRAWS_MAX: usize = 64;
/// Objects whose size is asked, of each range for each plan.
const SIZES_SAMPLE: u64 = 4;
/// Of the memory number index and tracker may have so many parts in so many: beside memtables, and what flush and
/// demotion list of objects that are as small as the index is large then, which is another third.
const INDEX_OF: (u64, u64) = (2, 5);
/// Copies are looked for once they are one object in so many, by a sample of so many objects.
const COPIES_SHARE: u64 = 16;
const COPIES_SAMPLE: u64 = 512;

/// A table, with its run's age.
type Aged<'a> = (u64, &'a TableView);

/// First and last key of tables.
fn reach(tables: &[Aged<'_>]) -> Option<(Vec<u8>, Vec<u8>)> {
    let first = tables.iter().map(|(_, table)| &table.smallest).min()?;
    let last = tables.iter().map(|(_, table)| &table.largest).max()?;
    Some((first.clone(), last.clone()))
}

/// An object, as the tracker knows it.
struct Weighed {
    /// 0 where its slot is lost.
    bytes: u64,
    holds: Holds,
    asked: Asked,
    stays: bool,
    rank: Rank,
}

/// Every object between two places, or so many of them, evenly.
fn look_at<'a>(
    current: &'a Current,
    pinning: &'a Pinning,
    (from, to): (Position, Position),
    sample: u64,
) -> impl Iterator<Item = Weighed> + 'a {
    let index = &current.contents.index;
    let step = index.count(from, to).div_ceil(sample).max(1);
    let (mut at, mut key) = (from, Vec::new());
    std::iter::from_fn(move || {
        let location = index.entry_to(at, &mut key).filter(|_| at < to)?;
        at = index.skip(at, step);
        let hash = key::hash(&key);
        let asked = super::asked(current.tracker.as_ref(), hash);
        let bytes = current.contents.bytes_at(location);
        let asked = if location.holds == Holds::Tombstone { Asked::default() } else { asked };
        let stays = match location.holds {
            Holds::Copy => pinning.keeps_copy(asked, hash),
            _ => pinning.pins(asked, hash),
        };
        Some(Weighed { bytes, holds: location.holds, asked, stays, rank: pinning.rank(asked, hash) })
    })
}

/// Bytes of cold copies, by a sample.
fn releasable(current: &Current, pinning: &Pinning) -> u64 {
    let index = &current.contents.index;
    if index.copies() * COPIES_SHARE < index.entries() {
        return 0;
    }
    let all = (index.first(), index.end());
    let (mut seen, mut bytes) = (0, 0);
    for object in look_at(current, pinning, all, COPIES_SAMPLE) {
        seen += 1;
        bytes += if object.holds == Holds::Copy && !object.stays { object.bytes } else { 0 };
    }
    (bytes * index.entries()).checked_div(seen).unwrap_or(0)
}

/// What filters said of some objects of a range.
#[derive(Clone, Copy, Debug, Default)]
struct Overlap {
    /// Objects of which all filters that could have them were in memory, and others.
    told: u64,
    untold: u64,
    /// Filters that were asked about the former, and those that let them pass.
    asked: u64,
    passed: u64,
    /// How many would if none had any of them.
    by_chance: f64,
}

impl Overlap {
    /// How many entries of tables one object replaces, on average; what passes by chance is taken off. Of what filters
    /// did not tell it is as many as demotions met `of_late`.
    fn entries_per_object(&self, of_late: f64) -> f64 {
        let all = self.told + self.untold;
        if all == 0 {
            return of_late;
        }
        let chance = if self.asked == 0 { 0.0 } else { self.by_chance / self.asked as f64 };
        let there = ((self.passed as f64 - self.by_chance) / (1.0 - chance)).max(0.0);
        (there + self.untold as f64 * of_late) / all as f64
    }
}

impl Store {
    /// So many objects of the store met tables, and so many entries of these were replaced.
    pub(super) fn replaced_by(&self, objects: u64, replaced: u64) {
        let mut state = self.state.lock();
        // The last few count.
        (state.demoted, state.replaced) = (state.demoted / 2 + objects, state.replaced / 2 + replaced);
    }
}

impl Engine {
    /// Bytes that could still be filled, and the marks between which demotion keeps them: shares of the slabs, or what
    /// one memtable takes, and two, beside those that wait for their flush. These take slots while the first demotion
    /// runs, and one that finds none demotes by itself, while writers wait for it.
    pub(in crate::engine) fn room_in(&self, store: &Store) -> (u64, u64, u64) {
        let tier = self.tiers.fast();
        let indexed = self.room_in_index(store);
        let waiting: u64 = self.current.load().sealed.iter().map(|sealed| sealed.memtable.used_bytes()).sum();
        let mut state = store.state.lock();
        state.space.collect();
        let (slab_bytes, free) = state.space.bytes();
        // Slots that are freed already, and slabs that may yet be made, are room as well.
        let free = free
            + state.space.waiting_bytes()
            + tier.free_bytes().saturating_sub(self.options.beside_slabs_bytes());
        let free = free.min(indexed);
        let mark = |share: u64, memtables: u64| {
            (slab_bytes / share).max(waiting + memtables * self.options.memtable_bytes())
        };
        (free, mark(HIGH_SHARE, 1), mark(LOW_SHARE, 2))
    }

    /// Bytes that slabs may have: those that there are, and those that may yet be made.
    fn slab_bytes_max(&self, store: &Store) -> u64 {
        let (slab_bytes, free) = store.bytes();
        let beside = self.options.beside_slabs_bytes();
        let on_tier = slab_bytes + self.tiers.fast().free_bytes().saturating_sub(beside);
        on_tier.min((slab_bytes - free).saturating_add(self.room_in_index(store)))
    }

    /// Bytes of more slots, of as many bytes each as those that are filled, for whose entries of the index there is
    /// memory: where objects are small, and memory is little, that is less than the tier has.
    pub(super) fn room_in_index(&self, store: &Store) -> u64 {
        let current = self.current.load();
        let tracker = current.tracker.as_ref().map_or(0, |tracker| tracker.held_bytes());
        let (index, (slab_bytes, free)) = (&current.contents.index, store.bytes());
        let most = self.options.memory_bytes / INDEX_OF.1 * INDEX_OF.0;
        let left = most.saturating_sub(tracker + current.contents.held_bytes());
        let (entries, filled) = (u128::from(index.entries()), u128::from(slab_bytes.saturating_sub(free)));
        // An entry's share of the index, and the byte of a slot.
        let more = u128::from(left) * entries / u128::from(index.held_bytes() + index.entries()).max(1);
        (filled * more).checked_div(entries).map_or(u64::MAX, |room| u64::try_from(room).unwrap_or(u64::MAX))
    }

    /// How many of a hundred tracked keys stay.
    pub(in crate::engine) fn pinned_percent(&self, store: &Store) -> u32 {
        self.options.pinned_percent.unwrap_or_else(|| store.state.lock().climb.percent())
    }

    /// What has been asked of the store, and what lower tiers did for it.
    fn work_so_far(&self) -> Work {
        // A batch counts by its entries, as reads of many keys by these.
        let ([gets, _], writes) = (self.operations.gets(), self.visible().0);
        let io = self.tiers.meter.snapshot();
        let bytes = |tier| {
            let all = io.total(tier);
            all.read_bytes + all.write_bytes
        };
        Work { operations: gets + writes, below_bytes: (1..io.tiers()).map(bytes).sum() }
    }

    /// Which objects stay at present.
    pub(super) fn pinning(&self, store: &Store, current: &Current) -> Pinning {
        let Some(tracker) = &current.tracker else { return Pinning::NONE };
        let index = &current.contents.index;
        let all_bytes = current.contents.slot_bytes_between(index.first(), index.end(), SAMPLE);
        let object_bytes = all_bytes / index.entries().max(1);
        let budget = self.slab_bytes_max(store);
        let most = budget / PINNED_OF.1 * PINNED_OF.0 / object_bytes.max(1);
        let wanted = tracker.tracked().0 * u64::from(self.pinned_percent(store)) / 100;
        let pinning = Pinning::of(tracker.counts(), wanted.min(most), self.options.seed);
        if !self.keeps_warm_copies(store) {
            return pinning;
        }
        let (mut seen, mut staying, mut cold, mut copies) = (0, 0, 0, Vec::new());
        for object in look_at(current, &pinning, (index.first(), index.end()), COPIES_SAMPLE) {
            seen += 1;
            match object.holds {
                Holds::Copy => copies.push(object.rank),
                _ if object.stays => staying += 1,
                _ => cold += 1,
            }
        }
        let of_all = |part: u64| (part * index.entries()).checked_div(seen).unwrap_or(0);
        let room = budget / COPIES_OF.1 * COPIES_OF.0 / object_bytes.max(1);
        // Where what is cold is little beside the tables that it would go to, it costs less to let copies go.
        let is_dear = of_all(cold) * object_bytes * DEAR < current.version.data_bytes();
        let (originals, going) = if is_dear { (staying + cold, 0) } else { (staying, cold) };
        let room = room.saturating_sub(of_all(originals));
        // What slabs have beside slots may be more than that tenth, or the low mark be higher: those stay that leave
        // that free.
        let (free, _, low) = self.room_in(store);
        let objects = |bytes: u64| bytes / object_bytes.max(1);
        let there = index.copies() + of_all(going) + objects(free);
        let kept = room.min(there.saturating_sub(objects(low)));
        let in_sample = |objects: u64| (objects * seen).checked_div(index.entries()).unwrap_or(0) as usize;
        pinning.with_copies(copies, in_sample(kept), in_sample(room))
    }

    /// What the policy sees of the store; where it `demotes`, with key ranges that could go down beside what runs: all,
    /// or some where there are many.
    pub(in crate::engine) fn store_view(
        &self,
        current: &Current,
        levels: &[Arc<LevelView>],
        running: &[RunningPlan],
        demotes: bool,
    ) -> Option<StoreView> {
        let store = self.objects.as_ref()?;
        // Where nothing is read any more nobody else would.
        self.watch_reads(current);
        let (free, high, low) = self.room_in(store);
        let last = self.tiers.all.last();
        let is_roomy = last.is_none_or(|tier| tier.free_bytes() > piles::ROOMY * self.reserve(tier));
        let (slab_bytes, free_bytes) = store.bytes();
        let sizes = Sizes {
            levels: std::array::from_fn(|level| levels.get(level).map_or(0, |level| level.bytes())),
            store: self.slab_bytes_max(store),
            filled: slab_bytes.saturating_sub(free_bytes),
            table: self.options.table_bytes(),
            range_tables: self.options.candidate_tables.into(),
            free: last.map_or(0, |tier| tier.free_bytes()),
            is_roomy,
        };
        let (ratio, runs) = (self.options.level_ratio.into(), self.options.laid_max().into());
        let shape = sorted_log::shape(&sizes, ratio, runs);
        let (work, keys) = (self.work_so_far(), super::keys_of(&current.contents, &current.version));
        let is_cache = self.keeps_warm_copies(store);
        let mut view = {
            let mut state = store.state.lock();
            match is_cache {
                true => state.climb.pause(work),
                false => state.climb.look(work, keys),
            }
            state.demoting = free < if state.demoting { low } else { high };
            state.promotes_into_none &= free < low;
            state.asked += 1;
            StoreView {
                due: state.demoting || state.promotes_into_none,
                spares_hot: !(state.demoting || state.starved),
                pressed: state.starved,
                missing: low.saturating_sub(free),
                bytes: if is_roomy { sizes.store } else { u64::MAX },
                level: shape.level,
                runs_max: shape.runs_max,
                pile_max: shape.pile_max,
                held_tombstones: state.held_tombstones.clone(),
                seed: state.asked ^ self.options.seed,
                demotion: self.options.demotion,
                ..StoreView::default()
            }
        };
        let is_asked = view.due || view.pressed || self.background.reclaims();
        if is_asked && demotes {
            // Where room is short, what is hot goes too: what is left of slabs is what the tier needs.
            let keeps_hot = !self.background.lacks_room();
            view.pinning = if keeps_hot { self.pinning(store, current) } else { Pinning::NONE };
            view.releasable = releasable(current, &view.pinning);
            view.release_min = self.options.memtable_bytes() / 2;
            let Some(level) = levels.get(shape.level) else { return Some(view) };
            // Where room is short it is a question of which is best.
            let takes_any = is_roomy && keeps_hot && view.demotion == Demotion::Approx;
            let some = (takes_any && !candidates::are_few(level))
                .then(|| self.some_ranges(current, level, shape.range, running, view.seed));
            let all = || self.ranges_of(current, level, candidates::all(level, shape.range));
            view.ranges = some.flatten().unwrap_or_else(all);
        }
        Some(view)
    }

    /// Weighs the ranges of a view that the policy wants to know more of.
    pub(in crate::engine) fn weigh(&self, view: &mut View, current: &Current) {
        let candidates = msc::candidates(view);
        let (Some(store), Some(seen)) = (&self.objects, &mut view.store) else { return };
        if !candidates.is_empty() {
            store.selections.fetch_add(1, Ordering::Relaxed);
        }
        let (demoted, replaced) = {
            let state = store.state.lock();
            (state.demoted, state.replaced)
        };
        let (sample, overlap_sample) = match seen.demotion {
            Demotion::Precise => (u64::MAX, OVERLAP_SAMPLE_PRECISE),
            _ => (SAMPLE, OVERLAP_SAMPLE),
        };
        let of_late = if demoted == 0 { 0.0 } else { replaced as f64 / demoted as f64 };
        let index = &current.contents.index;
        for range in candidates {
            let range = &mut seen.ranges[range];
            let (from, to) = (index.seek(&range.from), index.seek(&range.to));
            let mut heat = RangeHeat::default();
            let (mut bytes, mut values) = (0, 0);
            for object in look_at(current, &seen.pinning, (from, to), sample) {
                store.probes.fetch_add(1, Ordering::Relaxed);
                bytes += object.bytes;
                heat.cold_bytes += object.bytes / (1 + u64::from(object.asked.clock.unwrap_or(0)));
                heat.pinned_bytes += if object.stays { object.bytes } else { 0 };
                values += u64::from(object.holds == Holds::Value) * object.bytes;
            }
            let of_all = |part: u64| {
                (u128::from(part) * u128::from(range.object_bytes)).checked_div(bytes.into()).unwrap_or(0)
                    as u64
            };
            let overlap = self.overlap(current, seen.level, (from, to), overlap_sample);
            store.filter_probes.fetch_add(overlap.asked, Ordering::Relaxed);
            let replaces = overlap.entries_per_object(of_late);
            range.heat = Some(RangeHeat {
                cold_bytes: of_all(heat.cold_bytes),
                pinned_bytes: of_all(heat.pinned_bytes),
                replaced_bytes: (of_all(values) as f64 * replaces) as u64,
            });
            store.weighed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How much of a level's tables the objects between two places of the index replace: filters that are in memory are
    /// asked about so many of them, evenly.
    fn overlap(
        &self,
        current: &Current,
        level: usize,
        (from, to): (Position, Position),
        sample: u64,
    ) -> Overlap {
        let mut overlap = Overlap::default();
        let index = &current.contents.index;
        let Some(level) = current.version.levels.get(level) else { return overlap };
        let step = index.count(from, to).div_ceil(sample).max(1);
        let (mut at, mut key) = (from, Vec::new());
        while let Some(location) = index.entry_to(at, &mut key).filter(|_| at < to) {
            at = index.skip(at, step);
            if location.holds != Holds::Value {
                continue;
            }
            let runs = level.guard_of(&key).into_iter().flat_map(|guard| &guard.runs);
            let say = |table: &Arc<TableHandle>| {
                let table = table.if_open()?;
                Some((table.may_hold(&self.tables.cache, &key)?, table.strangers()))
            };
            match runs.filter_map(|run| run.table_of(&key)).map(say).collect::<Option<Vec<_>>>() {
                None => overlap.untold += 1,
                Some(said) => {
                    overlap.told += 1;
                    overlap.asked += said.len() as u64;
                    overlap.passed += said.iter().filter(|(may, _)| *may).count() as u64;
                    overlap.by_chance += said.iter().map(|(_, strangers)| strangers).sum::<f64>();
                }
            }
        }
        overlap
    }

    /// The key ranges of candidates. Objects among a pile's keys go down together, so that it is rewritten once, unless
    /// the last tier has no room for that.
    fn ranges_of(&self, current: &Current, level: &LevelView, candidates: Vec<Candidate>) -> Vec<RangeView> {
        let (index, mut before) = (&current.contents.index, (Vec::new(), current.contents.index.first()));
        let mut ranges = Vec::new();
        for candidate in candidates {
            let (from, to) = candidate.keys(level);
            let begins = if before.0 == from { before.1 } else { index.seek(&from) };
            let ends = index.seek(&to);
            before = (to.clone(), ends);
            self.add_ranges(current, level, &candidate, ((from, begins), (to, ends)), &mut ranges);
        }
        ranges
    }

    /// The key ranges of the candidates that some objects are in, drawn one after the other until as many could go down
    /// as are to be weighed; `None` if that seems to be in vain.
    fn some_ranges(
        &self,
        current: &Current,
        level: &LevelView,
        extent: Extent,
        running: &[RunningPlan],
        seed: u64,
    ) -> Option<Vec<RangeView>> {
        let free = self.tiers.all.last().map_or(0, |tier| tier.free_bytes());
        let wanted = msc::weighed_max(self.options.demotion);
        let (mut rng, mut key, mut drawn) = (Rng::new(seed), Vec::new(), Vec::new());
        let (mut ranges, mut eligible): (Vec<RangeView>, u64) = (Vec::new(), 0);
        for _ in 0..DRAWS_MAX {
            current.contents.index.draw(&mut rng, &mut key)?;
            let candidate = candidates::of(level, extent, &key)?;
            if drawn.contains(&candidate) {
                continue;
            }
            let found = self.ranges_of(current, level, vec![candidate.clone()]);
            eligible += found.iter().filter(|range| msc::is_eligible(range, running, free)).count() as u64;
            ranges.extend(found);
            drawn.push(candidate);
            if eligible >= wanted {
                ranges.sort_by(|a, b| a.from.cmp(&b.from));
                return Some(ranges);
            }
        }
        None
    }

    /// The candidate's range, from one key and its place in the index up to before another; or where it has many more
    /// objects than tables, as many as twice a table's; among the keys of one pile pieces of several times that, so
    /// that no demotion takes a large part of the store, which gets its room back only when all of it has gone.
    fn add_ranges(
        &self,
        current: &Current,
        level: &LevelView,
        candidate: &Candidate,
        ((from, begins), (to, ends)): ((Vec<u8>, Position), (Vec<u8>, Position)),
        ranges: &mut Vec<RangeView>,
    ) {
        let contents: &Contents = &current.contents;
        let index = &contents.index;
        let free = self.tiers.all.last().map_or(0, |tier| tier.free_bytes());
        let object_bytes = contents.whole_bytes_between(begins, ends, SIZES_SAMPLE);
        // Where many objects lie in front of, between, or behind the tables' keys, they go down by themselves.
        let entries = index.count(begins, ends).max(1);
        let piles = candidate.piles(level);
        let tables_bytes: u64 = piles.iter().map(|pile| pile.bytes).sum();
        let room = msc::fitting(free).saturating_sub(tables_bytes);
        let is_tight = object_bytes > room;
        let whole = 2 * self.options.table_bytes();
        let most = if is_tight { (room / 2).clamp(whole / TIGHT_PIECES, whole) } else { whole };
        let cuts_of = |bytes: u64| {
            let piece = (u128::from(bytes) * u128::from(entries)).checked_div(u128::from(object_bytes));
            let piece = piece.map_or(u64::MAX, |piece| u64::try_from(piece).unwrap_or(u64::MAX));
            index.cuts(begins, ends, piece.max(1))
        };
        let mut cuts = cuts_of(most);
        let guard = candidate.guard(level);
        if let (Some(guard), false) = (guard, is_tight) {
            let is_beside =
                |cut: &[u8], pile: &PileView| cut <= guard.smallest_of(pile) || cut > guard.largest_of(pile);
            cuts.retain(|cut| piles.iter().all(|pile| is_beside(cut, pile)));
            let crowd = CROWD * whole.max(tables_bytes);
            if object_bytes > crowd {
                cuts.extend(cuts_of(crowd));
                cuts.sort_unstable();
                cuts.dedup();
            }
        }
        let bounds: Vec<Vec<u8>> = std::iter::once(from).chain(cuts).chain([to]).collect();
        let is_one = bounds.len() == 2;
        for bounds in bounds.windows(2) {
            let (from, to) = (bounds[0].clone(), bounds[1].clone());
            let ends = if is_one { (begins, ends) } else { (index.seek(&from), index.seek(&to)) };
            let met: Vec<Aged<'_>> = guard
                .into_iter()
                .flat_map(|guard| {
                    let meets = |pile: &&PileView| {
                        guard.largest_of(pile) >= &from[..] && guard.smallest_of(pile) < &to[..]
                    };
                    let places = piles.iter().filter(meets).flat_map(|pile| &pile.tables);
                    places.map(move |place| (guard.runs[place.0].age, guard.table(*place)))
                })
                .collect();
            let bytes =
                |least: u64| met.iter().filter(|(age, _)| *age >= least).map(|(_, table)| table.bytes).sum();
            ranges.push(RangeView {
                objects: index.count(ends.0, ends.1),
                tombstones: index.tombstones(ends.0, ends.1),
                object_bytes: match is_one {
                    true => object_bytes,
                    false => contents.whole_bytes_between(ends.0, ends.1, SIZES_SAMPLE),
                },
                tables: met.iter().map(|(_, table)| table.number).collect(),
                table_bytes: bytes(0),
                table_entries: met.iter().map(|(_, table)| table.entries).sum(),
                upper_bytes: bytes(1),
                age: met.iter().map(|(age, _)| *age).max().unwrap_or(0),
                reach: if is_one { None } else { reach(&met) },
                heat: None,
                from,
                to,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Db, Options, Profile, TierOptions, World};
    use cuesta_device::sim::{SimConfig, SimDisk};
    use cuesta_sched::Sched;

    fn options() -> Options {
        Options {
            profile: Some(Profile::PrismDb),
            tiers: vec![TierOptions::fast("0", 12_000_000), TierOptions::capacity("1", 1 << 26)],
            memory_bytes: 8 << 20,
            ..Options::default()
        }
    }

    fn on_a_disk(options: &Options, test: impl FnOnce(&Db)) {
        on_one_disk([(options, Box::new(test))]);
    }

    type Life<'a> = Box<dyn FnOnce(&Db) + 'a>;

    /// With some options after the other, something is done.
    fn on_one_disk<const N: usize>(lives: [(&Options, Life<'_>); N]) {
        let sched = Sched::simulated(7);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        sched.run(|| {
            for (options, life) in lives {
                let directories = (0..2).map(|tier| disk.directory(tier)).collect();
                let db = Db::open_in(options, World { sched: sched.clone(), directories }).unwrap();
                life(&db);
                db.close().unwrap();
            }
        });
    }

    #[test]
    fn what_passes_filters_by_chance_is_taken_off_and_of_what_they_do_not_tell_it_is_as_it_was() {
        let overlap = |told, untold, asked, passed| {
            let all = Overlap { told, untold, asked, passed, by_chance: asked as f64 / 100.0 };
            (all.entries_per_object(0.5) * 1000.0).round()
        };
        assert_eq!((overlap(0, 0, 0, 0), overlap(0, 7, 0, 0)), (500.0, 500.0));
        assert_eq!((overlap(100, 0, 300, 3), overlap(100, 0, 300, 0), overlap(9, 0, 0, 0)), (0.0, 0.0, 0.0));
        // One version below of each, or of each second, and one in a hundred of the other questions.
        assert_eq!((overlap(100, 0, 100, 100), overlap(1000, 0, 2000, 515)), (1000.0, 500.0));
        // Where half lies in gaps, and tells of nothing else.
        assert_eq!(overlap(8, 8, 0, 0), 250.0);
    }

    #[test]
    fn what_a_range_replaces_is_asked_of_filters_as_far_as_memory_has_them() {
        on_a_disk(&options(), |db| {
            let key = |half: &str, i: u32| format!("{half}{i:04}");
            let keys = |half: &'static str| (0..6000).map(move |i| key(half, i));
            for key in keys("a").chain(keys("b")) {
                db.put(key, [7; 1000]).unwrap();
            }
            db.wait_for_background().unwrap();
            // Of the first half objects come in that tables have; of the second such as nobody has seen.
            for i in 0..1000 {
                db.put(key("a", 6 * i), [8; 1000]).unwrap();
                db.put(key("b", 6 * i) + "new", [8; 1000]).unwrap();
            }
            db.flush().unwrap();
            let engine = db.engine();
            let measured = || {
                let current = engine.current.load();
                let index = &current.contents.index;
                let [a, b, c] = ["a", "b", "c"].map(|key| {
                    let start = engine.default_keyspace.id.key(key.as_bytes());
                    index.seek(&start)
                });
                [(a, b), (b, c)]
                    .map(|range| engine.overlap(&current, crate::version::LEVELS_MAX - 1, range, 64))
            };
            // No filter is in memory before somebody has asked for what tables may have.
            let Overlap { told, untold, .. } = measured()[0];
            assert!(told == 0 && untold > 20, "{told} {untold}");
            keys("a").chain(keys("b")).for_each(|key| assert!(db.get(key).unwrap().is_some()));
            let hits = db.stats().cache.blocks.hits;
            let [a, b] = measured().map(|overlap| overlap.entries_per_object(0.5));
            assert!(a > 0.8 && b < 0.05, "{a} {b}");
            assert_eq!(db.stats().cache.blocks.hits, hits);
        });
    }

    #[test]
    fn what_lies_between_the_tables_of_a_range_of_several_goes_by_itself() {
        let options = Options { table_bytes: 64 << 10, ..options() };
        on_a_disk(&options, |db| {
            let key = |part: &str, i: u32| format!("{part}{i:04}");
            for (part, i) in ["a", "z"].into_iter().flat_map(|part| (0..6000).map(move |i| (part, i))) {
                db.put(key(part, i), [7; 1000]).unwrap();
            }
            db.wait_for_background().unwrap();
            (0..1500).for_each(|i| assert!(db.put(key("m", i), [8; 1000]).is_ok()));
            db.flush().unwrap();
            let engine = db.engine();
            let (current, levels) = (engine.current.load(), engine.view_of_tables().unwrap().levels);
            let level = levels.last().unwrap();
            let extent = |tables| Extent { bytes: 0, tables };
            let ranges = |tables| engine.ranges_of(&current, level, candidates::all(level, extent(tables)));
            let most = |ranges: &[RangeView]| ranges.iter().map(|range| range.tables.len()).max().unwrap();
            assert_eq!((most(&ranges(1)), most(&ranges(4))), (1, 4));
            // Of all tables at once: what no table lies among goes in pieces, as it does with one.
            let ranges = ranges(1000);
            let between = ranges.iter().filter(|range| range.tables.is_empty());
            let objects: Vec<u64> = between.map(|range| range.object_bytes).collect();
            let (all, largest) = (objects.iter().sum::<u64>(), objects.iter().max().unwrap());
            assert!(*largest <= 3 * options.table_bytes && all > 30 * options.table_bytes, "{objects:?}");
        });
    }

    #[test]
    fn however_many_objects_lie_among_the_keys_of_one_table_they_go_in_pieces() {
        let small = Options { table_bytes: 64 << 10, ..options() };
        let options = Options {
            tiers: vec![TierOptions::fast("0", 24_000_000), small.tiers[1].clone()],
            ..small.clone()
        };
        let key = |i: u64| format!("a{i:05}");
        let load = |db: &Db| {
            (0..12_000).for_each(|i| assert!(db.put(key(i), [7; 1000]).is_ok()));
            db.wait_for_background().unwrap();
        };
        let look = |db: &Db| {
            // Between two neighbours, as when a tenant is loaded whose keys lie between two others', while there is
            // room.
            (0..2000).for_each(|i| assert!(db.put(format!("{}/{i:05}", key(3000)), [8; 1000]).is_ok()));
            db.flush().unwrap();
            let engine = db.engine();
            let (current, levels) = (engine.current.load(), engine.view_of_tables().unwrap().levels);
            let level = levels.last().unwrap();
            let ranges =
                engine.ranges_of(&current, level, candidates::all(level, Extent { bytes: 0, tables: 1 }));
            let most = |range: &RangeView| (CROWD + 1) * range.table_bytes.max(2 * options.table_bytes);
            let crowded = ranges.iter().filter(|range| !range.tables.is_empty());
            let crowded: Vec<_> = crowded.map(|range| (range.object_bytes, most(range))).collect();
            assert!(crowded.iter().all(|(bytes, most)| bytes <= most), "{crowded:?}");
            // Some are as large as they may be.
            assert!(crowded.iter().any(|(bytes, most)| bytes * 2 > *most), "{crowded:?}");
        };
        on_one_disk([(&small, Box::new(load)), (&options, Box::new(look))]);
    }
}
