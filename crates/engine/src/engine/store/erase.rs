//! Deletes of ranges, over the store of objects.
//!
//! All that the store has when a memtable is flushed is older than that one's range tombstones. So once these are
//! committed, what the contents of before have in their ranges goes, and no slot is read for it; unless somebody reads
//! at an older number. Then, and after an open, it is not known whether the store is clear of what a tombstone covers,
//! and whoever forgets the tombstone looks into what is left of its range. Nothing that is covered can come into the
//! store meanwhile: what comes up is held against the version's tombstones. A slot that cannot be read may have
//! something newer, and stays; so does the newest tombstone over it, since the slab may be put back some day with
//! something older. (Of a lost slab whose keys nobody knows, after an open without an image, that is not known either.)
//!
//! Either way it goes in parts, each with an edit of its own. What goes is chosen while others work, and goes if it
//! still lies where it did, or was moved to ([`super::vacate`]): slots that the contents in hand have are given to
//! nobody else. So who looks into slots, each a read, takes the present contents anew for each part: what is freed
//! meanwhile, by whomever, is not given out before those in hand are let go of.

use super::Store;
use crate::engine::Engine;
use crate::error::Result;
use crate::key::Seq;
use crate::planted::{self, Bug};
use crate::range_tombstones::RangeTombstones;
use crate::store::{Changes, Contents, Found, Location, SlotRun, lies_now};
use crate::version::Edit;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Keys of a part, and keys that are looked at for one.
const PART_KEYS: usize = 16 << 10;
const LOOKED_AT: usize = 4 << 10;

/// What a flush found.
pub(super) struct Before {
    /// If it brought range tombstones.
    pub(super) contents: Option<Arc<Contents>>,
    /// The oldest number that somebody read at.
    pub(super) oldest_read: Seq,
}

fn place(location: &Location) -> (u64, u32) {
    (location.slab, location.slot)
}

/// A key, and where versions lie that go.
type Erasing = (Vec<u8>, Vec<Location>);

impl Engine {
    /// Clears the store of what range tombstones cover that a flush has just committed, over contents from before. The
    /// flush is done, whatever comes of this: who forgets the tombstones looks for what is left, and a commit that has
    /// failed has closed the store for writes.
    pub(super) fn clear_after_flush(&self, store: &Store, before: &Before, ranges: &RangeTombstones) {
        // Who came to read since reads behind them.
        let Some(contents) = before.contents.as_ref().filter(|_| !ranges.is_empty()) else { return };
        if ranges.newest_at(Seq::MAX) > before.oldest_read {
            return;
        }
        let is_left = planted::has(Bug::ErasedSlotsKept);
        if is_left || self.clear(store, contents, ranges).is_ok() {
            store.state.lock().cleared.extend(ranges.iter().map(|tombstone| tombstone.seq));
        }
    }

    /// Forgets the range tombstones that an edit removes, once the store is clear of what they cover.
    pub(in crate::engine) fn forget_ranges_of_store(&self, store: &Store, mut edit: Edit) -> Result<()> {
        let (contents, version) = {
            // Not between two parts of a flush: the edit that brought a tombstone may be there, and what it covers not
            // yet.
            let _turn = store.turn.take();
            let current = self.current.load();
            (current.contents.clone(), current.version.clone())
        };
        let cleared = store.state.lock().cleared.clone();
        let looks_for = |seq: Seq| edit.ranges_removed.contains(&seq) && !cleared.contains(&seq);
        let ranges = version.range_tombstones.iter().filter(|tombstone| looks_for(tombstone.seq)).cloned();
        let ranges = ranges.fold(RangeTombstones::default(), |ranges, tombstone| ranges.with(tombstone));
        let held = self.clear_looking(store, contents, &ranges)?;
        edit.ranges_removed.retain(|seq| !held.contains(seq));
        store.state.lock().held_tombstones.extend(held);
        if edit.ranges_removed.is_empty() {
            return Ok(());
        }
        self.commit(&mut self.root.take(), edit, |_| {})?;
        // A flush may have said so of some that were forgotten before it had ended.
        let version = self.current.load().version.clone();
        let left: BTreeSet<Seq> = version.range_tombstones.iter().map(|tombstone| tombstone.seq).collect();
        store.state.lock().cleared.retain(|seq| left.contains(seq));
        Ok(())
    }

    /// Frees all that `contents` have in the ranges of tombstones: it is older.
    fn clear(&self, store: &Store, contents: &Contents, ranges: &RangeTombstones) -> Result<()> {
        let index = &contents.index;
        let (mut key, mut part) = (Vec::new(), Vec::new());
        for (from, to) in ranges.spans() {
            let (mut at, end) = (index.seek(from), index.seek(to));
            while at < end && index.entry_to(at, &mut key).is_some() {
                let goes: Vec<Location> = index.locations(&key).collect();
                goes.iter().for_each(|_| at = index.next(at));
                part.push((key.clone(), goes));
                if part.len() == PART_KEYS {
                    self.clear_part(store, &part)?;
                    part.clear();
                }
                self.check_open()?;
            }
        }
        self.clear_part(store, &part)
    }

    /// Frees what the store has in the ranges of tombstones that is older, by a look at each; `contents` are no older
    /// than what the tombstones cover. Of these, tells those over slots that could not be read.
    fn clear_looking(
        &self,
        store: &Store,
        contents: Arc<Contents>,
        ranges: &RangeTombstones,
    ) -> Result<BTreeSet<Seq>> {
        let (mut held, mut contents) = (BTreeSet::new(), Some(contents));
        for (from, to) in ranges.spans() {
            let mut from = Some(from.to_vec());
            while let Some(first) = from {
                let present = contents.take().unwrap_or_else(|| self.current.load().contents.clone());
                let (part, next) = self.look_for_part(&present, (&first, to), ranges, &mut held)?;
                self.clear_part(store, &part)?;
                // Not before: else a slot that was to go may have its key's next object.
                drop(present);
                from = next;
            }
        }
        Ok(held)
    }

    /// What goes of the first keys of a range, and where the rest begins, if there is any. Adds to `held` the tombstones
    /// over slots that cannot be read.
    fn look_for_part(
        &self,
        contents: &Contents,
        (from, to): (&[u8], &[u8]),
        ranges: &RangeTombstones,
        held: &mut BTreeSet<Seq>,
    ) -> Result<(Vec<Erasing>, Option<Vec<u8>>)> {
        let index = &contents.index;
        let (mut at, end) = (index.seek(from), index.seek(to));
        let (mut key, mut part) = (Vec::new(), Vec::new());
        for _ in 0..LOOKED_AT {
            if at >= end || index.entry_to(at, &mut key).is_none() {
                return Ok((part, None));
            }
            let erased = ranges.covering(&key, Seq::MAX);
            // Newest first: behind one that is older all are.
            let (mut goes, mut looks_on) = (Vec::new(), true);
            for location in index.locations(&key) {
                at = index.next(at);
                let is_older = |found: Found| found.entry().trailer.seq() < erased;
                match if looks_on { contents.read(location, &key).map(is_older) } else { Ok(true) } {
                    Ok(true) => {
                        goes.push(location);
                        looks_on = false;
                    }
                    Ok(false) => {}
                    // The newest that covers it does for all.
                    Err(error) if error.is_corrupt() => drop(held.insert(erased)),
                    Err(error) => return Err(error),
                }
            }
            if !goes.is_empty() {
                part.push((key.clone(), goes));
            }
            self.check_open()?;
        }
        // The first key behind this one.
        key.push(0);
        Ok((part, Some(key)))
    }

    fn clear_part(&self, store: &Store, part: &[Erasing]) -> Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let _turn = store.turn.take();
        let present = self.current.load().contents.clone();
        let moves = store.state.lock().space.moves();
        let (mut changes, mut freed) = (Changes::default(), Vec::new());
        for (key, goes) in part {
            // Of what was written since some may have been kept beside it; and what lies there may have become a copy.
            let goes = |location: &Location| {
                goes.iter().any(|gone| place(&lies_now(&moves, *gone)) == place(location))
            };
            let now: Vec<Location> = present.index.locations(key).collect();
            if now.iter().any(goes) {
                changes.push(key, now.iter().filter(|location| !goes(location)).copied());
                freed.extend(now.iter().filter(|location| goes(location)));
            }
        }
        let removes = self.removable(store);
        let after =
            Contents { index: present.index.changed(&changes), ..(*present).clone() }.without(&removes);
        let edit = Edit { freed: SlotRun::of(freed), slabs_removed: removes, ..Edit::default() };
        self.replace_contents(store, &present, after, edit, false)
    }
}
