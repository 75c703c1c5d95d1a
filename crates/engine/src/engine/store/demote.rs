//! Demotions: cold objects of a key range go into tables, copies that are cold go by themselves.
//!
//! A demotion merges the cold objects of a range with the tables there. Hot ones stay ([`Pinning`]), and what tables
//! have of their keys goes if it is older; a copy's original stays. Objects that the merge meets in tables, and that
//! are hot, come into slots by the same edit, as copies ([`super::promote`]). Slots that a demotion reads cannot be
//! used again while it holds the contents that they are live in. Its edit takes away those objects that are still where
//! it read them, or were moved to ([`super::vacate`]); one that was written since stays, and is newer.
//!
//! Where a range's cold objects are all copies, no table is touched. While the store is a cache of what lies below (97
//! reads in 100), a merge that has to be writes what is hot down as well and leaves it where it is, as copies
//! ([`Chosen::settled`]): it costs its own bytes beside those of the tables that are written anyway, and once it has
//! cooled it goes for nothing, and by itself. The paper's hot objects stay the only version, which is best for what is
//! written again before it cools.
//!
//! A demotion that meets a damaged slot looks which slots of its range are, and begins anew without these: they stay,
//! and reads of them say so. Of a copy the original is as good: a damaged one goes.

use super::promote::{Rising, is_erased};
use super::{Filling, Freed, Keys, PLANNED_BYTES, Store, asked};
use crate::engine::Engine;
use crate::engine::admission::{Leaving, Work};
use crate::engine::iterate::Source;
use crate::engine::jobs::{Need, RunJob, is_refusal};
use crate::error::{Error, ErrorKind, Result};
use crate::key;
use crate::memory::Holder;
use crate::merge::Merge;
use crate::planted::{self, Bug};
use crate::range_tombstones::Erased;
use crate::store::{
    Changes, Contents, Holds, Index, IndexBuilder, Location, Moves, SlotRun, StoreCursor, lies_now,
};
use crate::tracker::{Pinning, Seen};
use crate::version::edit::AddedTable;
use crate::version::{Edit, Run, TableHandle, TableMeta, Version};
use cuesta_device::{Cause, PageVec};
use std::cell::RefCell;
use std::sync::Arc;

/// What a demotion is to do.
pub(in crate::engine) struct Demotion<'a> {
    /// All of the level that have its keys, unless its outputs are laid on these.
    pub(in crate::engine) tables: &'a [u64],
    pub(in crate::engine) level: usize,
    /// Of the run that the outputs join, or make: 0 is the oldest.
    pub(in crate::engine) age: u64,
    /// Nothing older of its keys lies below.
    pub(in crate::engine) bottom: bool,
    pub(in crate::engine) from: &'a [u8],
    pub(in crate::engine) to: &'a [u8],
    pub(in crate::engine) pinning: &'a Pinning,
}

impl Demotion<'_> {
    /// The runs of the guards that its tables are in, which all have some of its keys.
    fn runs<'v>(&self, version: &'v Version) -> impl Iterator<Item = &'v Run> {
        let level = version.levels.get(self.level);
        let guards = level.map_or(&[][..], |level| level.guards_of(self.from, self.to));
        guards.iter().flat_map(|guard| &guard.runs)
    }
}

/// What becomes of the objects of a key range. All versions of a key go the same way.
struct Chosen {
    /// They go to tables.
    moves: Index,
    /// They go to tables, and stay as copies of what these have then.
    settled: Index,
    /// Both.
    written: Index,
    /// Cold copies.
    released: Index,
    /// They stay, and are newer than what tables have of their keys.
    newer: Index,
    /// Of what is written.
    bytes: u64,
}

/// What becomes of keys by an edit, and which slots it frees.
#[derive(Default)]
struct Outcome {
    /// Each in the order of keys.
    keys: Vec<Changes>,
    freed: PageVec<Location>,
}

impl Outcome {
    /// Takes away the objects of `gone` that still lie where they did, or were moved to.
    fn take_away(&mut self, gone: &Index, present: &Index, moves: &[Arc<Moves>]) {
        let mut keys = Changes::default();
        let (mut key, mut last, mut at) = (Vec::new(), None, gone.first());
        while gone.entry_to(at, &mut key).is_some() {
            at = gone.next(at);
            if last.as_ref() == Some(&key) {
                continue;
            }
            let before = self.freed.len();
            self.freed.extend(present.locations(&key));
            // What was written since is newer, and stays.
            let now = gone.locations(&key).map(|then| lies_now(moves, then));
            if now.eq(self.freed[before..].iter().copied()) || planted::has(Bug::DemotionTakesNewer) {
                keys.push(&key, []);
            } else {
                self.freed.truncate(before);
            }
            last.get_or_insert_default().clone_from(&key);
        }
        self.keys.push(keys);
    }

    /// Makes copies of those objects of `settled` that still lie where they did, or were moved to.
    fn settle(&mut self, settled: &Index, present: &Index, moves: &[Arc<Moves>]) {
        let mut keys = Changes::default();
        let (mut key, mut at) = (Vec::new(), settled.first());
        while let Some(then) = settled.entry_to(at, &mut key) {
            let location = lies_now(moves, then);
            if present.locations(&key).eq([location]) {
                keys.push(&key, [Location { holds: Holds::Copy, ..location }]);
            }
            at = settled.next(at);
        }
        self.keys.push(keys);
    }
}

impl Engine {
    /// Whether the newest version of a key can be read, and nobody reads before it.
    fn hides_the_rest(&self, contents: &Contents, key: &[u8], newest: Location) -> Result<bool> {
        match contents.read(newest, key) {
            Ok(found) => Ok(self.boundaries().first().is_some_and(|seq| found.entry().trailer.seq() <= *seq)),
            Err(error) if error.is_corrupt() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What becomes of the objects of a range, with the store as it is; `settles` what stays.
    fn choose(
        &self,
        contents: &Contents,
        (from, to): &Keys,
        pinning: &Pinning,
        settles: bool,
    ) -> Result<Chosen> {
        let tracker = self.current.load().tracker.clone();
        let index = &contents.index;
        let mut bytes = 0;
        let [mut moves, mut settled, mut written, mut released, mut newer] =
            [(); 5].map(|()| IndexBuilder::beside(index));
        let push = |to: &mut IndexBuilder, key: &[u8], same: &[Location]| {
            same.iter().for_each(|location| to.push(key, *location));
        };
        let (mut at, end) = (index.seek(from), index.seek(to));
        let (mut key, mut following, mut same) = (Vec::new(), Vec::new(), Vec::new());
        while at < end {
            let Some(location) = index.entry_to(at, &mut key) else { break };
            same.push(location);
            at = index.next(at);
            if at < end && index.entry_to(at, &mut following).is_some() && following == key {
                continue;
            }
            // What cannot be read stays where it is known to be missing, unless something newer is all that anybody
            // sees.
            let (has_lost, newest) = (contents.has_lost(same.iter().copied()), same[0].holds);
            if has_lost && newest != Holds::Copy && !self.hides_the_rest(contents, &key, same[0])? {
                same.clear();
                continue;
            }
            let hash = key::hash(&key);
            let asked = asked(tracker.as_ref(), hash);
            let stays = match newest {
                Holds::Value => pinning.pins(asked, hash),
                Holds::Copy => !has_lost && pinning.keeps_copy(asked, hash),
                Holds::Tombstone => false,
            };
            let is_written = match (stays, newest) {
                (true, Holds::Copy) => false,
                // Of several versions the older ones may be what tables have.
                (true, _) if same.len() > 1 => false,
                (true, _) if settles => {
                    push(&mut settled, &key, &same);
                    !planted::has(Bug::SettledUnwritten)
                }
                (true, _) => {
                    push(&mut newer, &key, &same);
                    false
                }
                (false, Holds::Copy) => {
                    push(&mut released, &key, &same);
                    false
                }
                (false, _) => {
                    push(&mut moves, &key, &same);
                    true
                }
            };
            if is_written {
                same.truncate(if has_lost { 1 } else { same.len() });
                for location in &same {
                    bytes += contents.slab(location.slab)?.meta.slot_bytes;
                }
                push(&mut written, &key, &same);
            }
            same.clear();
        }
        let [moves, settled, written, released, newer] =
            [moves, settled, written, released, newer].map(IndexBuilder::finish);
        Ok(Chosen { moves, settled, written, released, newer, bytes })
    }

    /// Moves the cold objects from one key up to before another into tables, in place of those that lie there.
    pub(in crate::engine) fn demote(&self, demotion: &Demotion<'_>) -> Result<()> {
        let Some(store) = &self.objects else { return Err(Error::internal("a demotion without a store")) };
        let range = (demotion.from.to_vec(), demotion.to.to_vec());
        let (contents, version) = {
            let _turn = store.turn.take();
            store.state.lock().moving.push(range.clone());
            let current = self.current.load();
            // Of the index no more than is asked: what others make of the rest is not to be there besides.
            let named = |table: &&Arc<TableHandle>| demotion.tables.contains(&table.meta.number);
            let tables: Vec<_> =
                demotion.runs(&current.version).flat_map(|run| &run.tables).filter(named).collect();
            let from = tables.iter().map(|table| &table.meta.smallest[..]).min().unwrap_or(demotion.from);
            let last = tables.iter().map(|table| &table.meta.largest[..]).max().unwrap_or_default();
            let to = demotion.to.max(&[last, &[0]].concat()).to_vec();
            let index = current.contents.index.between(from.min(demotion.from), &to);
            // Slots of other keys are free for others as soon as nobody else sees them: flushes need many while this
            // runs.
            (current.contents.of_job(index), current.version.clone())
        };
        let index = &contents.index;
        let entries = index.count(index.seek(demotion.from), index.seek(demotion.to));
        let _held = self.tables.cache.memory().charge(Holder::Jobs, entries * PLANNED_BYTES);
        self.tables.cache.fit();
        let mut result = self.demote_from(store, &contents, &version, demotion, &range);
        // Where no other slot is damaged than before, a table is.
        while result.as_ref().is_err_and(Error::is_corrupt) {
            let (from, to) = (index.seek(demotion.from), index.seek(demotion.to));
            match contents.lose_damaged(from, to, &self.tiers, Cause::Demotion) {
                Ok(0) => break,
                Ok(_) => result = self.demote_from(store, &contents, &version, demotion, &range),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
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
        contents: &Contents,
        version: &Version,
        demotion: &Demotion<'_>,
        range: &Keys,
    ) -> Result<()> {
        let settles = self.keeps_warm_copies(store);
        let mut chosen = self.choose(contents, range, demotion.pinning, settles)?;
        if chosen.moves.entries() == 0 && chosen.released.entries() == 0 {
            // The policy took something for cold that stays, an old version that a snapshot holds, say. Who waits for
            // room must get it all the same: all of the range goes.
            chosen = self.choose(contents, range, &Pinning::NONE, false)?;
        }
        let Chosen { moves, settled, written, released, newer, bytes } = chosen;
        if moves.entries() == 0 {
            let gone = [&released];
            return self.commit_demotion(
                store,
                &gone,
                &<_>::default(),
                <_>::default(),
                &<_>::default(),
                true,
            );
        }
        let entries = written.entries();
        let named = |run: &Run| -> Vec<Arc<TableHandle>> {
            let named = |table: &&Arc<TableHandle>| demotion.tables.contains(&table.meta.number);
            run.tables.iter().filter(named).cloned().collect()
        };
        let runs = demotion.runs(version).map(named);
        let runs: Vec<Vec<Arc<TableHandle>>> = runs.filter(|run| !run.is_empty()).collect();
        let tables = || runs.iter().flatten().map(|table| &table.meta);
        if tables().count() < demotion.tables.len() {
            return Err(Error::internal(format!(
                "of the tables {:?} of a plan some are gone",
                demotion.tables
            )));
        }
        let raw: u64 = tables().map(|table| table.raw_bytes).sum();
        let tables_entries: u64 = tables().map(|table| table.entries).sum();
        let paced = self.begin_paced(Work::MergeBelow, bytes + raw, Leaving::default());
        let need = Need::of_tables(&self.options, tables().map(|table| (table, 1.0))).and_objects(
            &self.options,
            entries,
            bytes,
        );
        // Half of what goes makes room for what comes.
        let rising = RefCell::new(Rising::within(&self.tables.cache, self.rising_bytes_max().min(bytes / 2)));
        let tracker = self.current.load().tracker.clone();
        let meet = |entry: &key::Entry<'_>| {
            let hash = key::hash(entry.key);
            let is_hot = demotion.pinning.pins(asked(tracker.as_ref(), hash), hash);
            if is_hot && contents.index.locations(entry.key).next().is_none() {
                rising.borrow_mut().add(entry, Vec::new());
            }
        };
        let job = RunJob {
            need,
            level: demotion.level,
            bounds: &self.bounds_between(demotion.level, demotion.from, demotion.to),
            soft_bounds: &self.tables_begin_in(demotion.level + 1, demotion.from, demotion.to),
            links: false,
            bottom: demotion.bottom || planted::has(Bug::TombstonesDroppedOnTop),
            cause: Cause::Demotion,
            paced: &paced,
            keys: (None, None),
            above: Some(&newer),
            meet: Some(&meet),
            erased: &Erased::by([version.range_tombstones.clone()]),
        };
        let picked = Arc::new(Contents { damaged: Arc::default(), ..contents.with_index(written) });
        let memory = self.tables.cache.memory().clone();
        let objects = StoreCursor::new(&picked, self.tiers.clone(), memory, Cause::Demotion, 1);
        let mut sources = vec![Source::Store(Box::new(objects))];
        let read_ahead = self.merge_read_ahead(1 + runs.len());
        sources.extend(runs.into_iter().map(|run| self.merge_source(run, read_ahead, Cause::Demotion)));
        let made = self.write_run(&mut Merge::new(sources), &job)?;
        let left: u64 = made.iter().map(|meta| meta.entries).sum();
        if tables_entries > 0 {
            store.replaced_by(entries + newer.entries(), (tables_entries + entries).saturating_sub(left));
        }
        let rising = rising.into_inner();
        let mut filling = Filling::default();
        let placed = match self.raise(store, &rising, u64::MAX, &mut filling) {
            // What goes down does not wait for what could come up.
            Err(error) if *error.kind() != ErrorKind::Full => Err(error),
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                self.give_back(store, &mut filling);
                Ok(())
            }
        };
        let added = made.iter().map(|meta| AddedTable {
            level: demotion.level as u32,
            age: demotion.age,
            meta: meta.clone(),
        });
        let edit = Edit { removed: demotion.tables.to_vec(), added: added.collect(), ..Edit::default() };
        let gone = [&moves, &released];
        let committed = match placed {
            Ok(()) => self.commit_demotion(store, &gone, &settled, edit, &filling, true),
            Err(error) => Err(error).inspect_err(|_| self.discard(&made)),
        };
        if let Err(error) = committed {
            if self.failure.get().is_none() || is_refusal(&error) {
                self.give_back(store, &mut filling);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Removes tables that no edit names.
    fn discard(&self, made: &[TableMeta]) {
        for (tier, file, bytes) in made.iter().flat_map(TableMeta::parts) {
            if let Ok(tier) = self.tiers.get(tier) {
                // What cannot be removed is an orphan, and the next open removes it.
                drop(tier.remove(file));
                tier.uncount(bytes);
            }
        }
    }

    /// Takes the objects of `gone` out of the store, those of `settled` for copies, and those of `filling` in, with the
    /// edit. `is_announced` where all of these are of a range that a demotion has announced.
    fn commit_demotion(
        &self,
        store: &Store,
        gone: &[&Index],
        settled: &Index,
        edit: Edit,
        filling: &Filling<'_>,
        is_announced: bool,
    ) -> Result<()> {
        let _turn = store.turn.take();
        let current = self.current.load_full();
        let (present, version) = (current.contents.clone(), current.version.clone());
        drop(current);
        let mut outcome = Outcome::default();
        let moves = store.state.lock().space.moves();
        gone.iter().for_each(|gone| outcome.take_away(gone, &present.index, &moves));
        outcome.settle(settled, &present.index, &moves);
        let (mut risen, mut taken, mut unused) = (Changes::default(), PageVec::default(), Vec::new());
        for (location, entry) in filling.placed.iter() {
            match present.index.locations(entry.key).next() {
                None if !is_erased(&version, entry) => {
                    risen.push(entry.key, [*location]);
                    taken.push(*location);
                }
                // It was written since, or deleted.
                _ => unused.push(*location),
            }
        }
        outcome.keys.push(risen);
        let removes = self.removable(store);
        let index = match planted::has(Bug::StoreKeepsDemoted) {
            true => present.index.clone(),
            false => present.index.changed_by(Changes::merged(&outcome.keys)),
        };
        let after = Contents { index, ..(*present).clone() }.without(&removes);
        let edit = Edit {
            slabs_removed: removes,
            taken: SlotRun::of(taken),
            wasted: SlotRun::of(&mut unused[..]),
            freed: SlotRun::of(outcome.freed),
            counters: Some(self.encode_counters()),
            ..edit
        };
        // What goes lies in a range that nobody else who demotes looks into; what is released, anywhere.
        let freed = match is_announced {
            true => Freed { unread_by_jobs: edit.freed.clone(), rest: Vec::new() },
            false => Freed::by(&edit),
        };
        self.replace_contents_in_parts(store, &present, after, (&<_>::default(), 1), (edit, freed), false)?;
        if let Some(tracker) = &self.current.load().tracker {
            for (key, locations) in outcome.keys.iter().flat_map(Changes::iter) {
                let seen = if locations.is_empty() { Seen::Below } else { Seen::InStore };
                tracker.moved(key::hash(key), seen);
            }
        }
        Ok(())
    }

    /// Lets cold copies of what tables have go, of so many bytes, in the order of keys from where the last release
    /// ended: so none goes before its time, and each has its turn.
    pub(in crate::engine) fn release(&self, pinning: &Pinning, bytes: u64) -> Result<()> {
        let Some(store) = &self.objects else { return Err(Error::internal("a release without a store")) };
        let (contents, tracker) = {
            let current = self.current.load();
            (current.contents.clone(), current.tracker.clone())
        };
        let index = &contents.index;
        // From where the last one ended to the end, and from the beginning on.
        let (mut gone, mut around) = ([Changes::default(), Changes::default()], 0);
        let (mut key, mut freed) = (Vec::new(), 0);
        let mut at = index.seek(&store.state.lock().released_to);
        for _ in 0..index.entries() {
            if freed >= bytes {
                break;
            }
            if at == index.end() {
                (at, around) = (index.first(), 1);
            }
            let Some(location) = index.entry_to(at, &mut key) else { break };
            let hash = key::hash(&key);
            if location.holds == Holds::Copy && !pinning.keeps_copy(asked(tracker.as_ref(), hash), hash) {
                freed += contents.bytes_at(location);
                gone[around].push(&key, [location]);
            }
            at = index.next(at);
        }
        store.state.lock().released_to = key;
        let planned = gone.iter().map(|gone| gone.len() as u64).sum::<u64>() * PLANNED_BYTES;
        let _held = self.tables.cache.memory().charge(Holder::Jobs, planned);
        let released = Index::default().changed_by(Changes::merged(&gone));
        drop((gone, contents));
        self.commit_demotion(store, &[&released], &<_>::default(), <_>::default(), &<_>::default(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn at(slot: u32) -> Location {
        Location { slab: 1, slot, holds: Holds::Value }
    }

    fn index(entries: &[(&[u8], Location)]) -> Index {
        let mut made = IndexBuilder::default();
        entries.iter().for_each(|(key, location)| made.push(key, *location));
        made.finish()
    }

    #[test]
    fn what_was_moved_goes_and_settles_and_what_was_written_since_stays() {
        let memory = Memory::new(1 << 20, 0, 0);
        let mut moved = Moves::new(memory.charge(Holder::Jobs, 0));
        moved.add(at(2), at(12));
        let moves = [Arc::new(moved)];
        let before = index(&[(b"a", at(1)), (b"b", at(2)), (b"c", at(3))]);
        let present = index(&[(b"a", at(1)), (b"b", at(12)), (b"c", at(13))]);
        let mut outcome = Outcome::default();
        outcome.take_away(&before, &present, &moves);
        assert_eq!(outcome.freed.iter().copied().collect::<Vec<_>>(), [at(1), at(12)]);
        assert_eq!(outcome.keys[0].iter().map(|(key, _)| key).collect::<Vec<_>>(), [b"a", b"b"]);
        outcome.settle(&before, &present, &moves);
        let copy = |slot| vec![Location { holds: Holds::Copy, ..at(slot) }];
        let settled: Vec<_> = outcome.keys[1].iter().map(|(key, lie)| (key, lie.to_vec())).collect();
        assert_eq!(settled, [(&b"a"[..], copy(1)), (b"b", copy(12))]);
    }
}
