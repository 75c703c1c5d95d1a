//! Deletes of ranges, over the store of objects.
//!
//! All that the store has is older than the memtable that is flushed into it, and so than its range tombstones. So a flush sweeps their
//! ranges: what the index has there goes in the edit that commits them, and no slot is read for it. Only while somebody reads at an
//! older number the objects are looked into, and what that one sees stays. Then, or after an open, it is not known whether the store is
//! clear of what a tombstone covers, and who forgets the tombstone looks into what is left of its range.

use super::{PLANNED_BYTES, Store};
use crate::compaction::Retain;
use crate::engine::Engine;
use crate::error::Result;
use crate::key::Seq;
use crate::memory::Holder;
use crate::planted::{self, Bug};
use crate::range_tombstones::RangeTombstones;
use crate::store::{Changes, Contents, Index, Location, Position, SlotRun};
use crate::version::Edit;

/// How many entries of an index are in ranges of these.
pub(super) fn spans_of(index: &Index, ranges: &RangeTombstones) -> u64 {
    let spans = ranges.spans();
    spans.into_iter().map(|(from, to)| index.count(index.seek(from), index.seek(to))).sum()
}

/// A walk over the keys of an index that are in ranges, in key order, beside one over other keys.
pub(super) struct Sweep<'a> {
    contents: &'a Contents,
    /// What lies ahead, the first last.
    spans: Vec<(Position, Position)>,
    /// Somebody reads at an older number.
    looks: bool,
    key: Vec<u8>,
}

impl<'a> Sweep<'a> {
    pub(super) fn over(contents: &'a Contents, ranges: &RangeTombstones, looks: bool) -> Self {
        let index = &contents.index;
        let spans = ranges.spans().into_iter().rev().map(|(from, to)| (index.seek(from), index.seek(to)));
        let spans = if planted::has(Bug::ErasedSlotsKept) { Vec::new() } else { spans.collect() };
        Self { contents, spans, looks, key: Vec::new() }
    }

    /// Frees what keys before `until` have that nobody sees; what becomes of that one itself is its caller's.
    pub(super) fn up_to(
        &mut self,
        until: Option<&[u8]>,
        retain: &mut Retain,
        changes: &mut Changes,
        freed: &mut Vec<Location>,
    ) -> Result<()> {
        let index = &self.contents.index;
        while let Some((at, end)) = self.spans.last_mut() {
            if *at >= *end || index.entry_to(*at, &mut self.key).is_none() {
                self.spans.pop();
                continue;
            }
            if until.is_some_and(|until| self.key.as_slice() > until) {
                break;
            }
            let old: Vec<Location> = index.locations(&self.key).collect();
            for _ in &old {
                *at = index.next(*at);
            }
            if until == Some(self.key.as_slice()) {
                continue;
            }
            let mut still_seen = Vec::new();
            if self.looks {
                for location in &old {
                    if retain.keeps(&self.key, self.contents.read(*location)?.entry().trailer) {
                        still_seen.push(*location);
                    }
                }
            }
            freed.extend(old.iter().filter(|location| !still_seen.contains(location)));
            if old != still_seen {
                // A copy is the only version of its key in the store.
                changes.push(&self.key, still_seen.iter().map(|location| location.owned()));
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Forgets the range tombstones that an edit removes, with what the store still has of their ranges that is older.
    pub(in crate::engine) fn forget_ranges_of_store(&self, store: &Store, edit: Edit) -> Result<()> {
        let _turn = store.turn.take();
        let current = self.current.load_full();
        let (before, version) = (current.contents.clone(), current.version.clone());
        drop(current);
        let cleared = store.state.lock().cleared.clone();
        let gone = |seq: Seq| edit.ranges_removed.contains(&seq) && !cleared.contains(&seq);
        let ranges = version.range_tombstones.iter().filter(|tombstone| gone(tombstone.seq)).cloned();
        let ranges = ranges.fold(RangeTombstones::default(), |ranges, tombstone| ranges.with(tombstone));
        let index = &before.index;
        let looks_at = spans_of(index, &ranges);
        let _held = self.tables.cache.memory().charge(Holder::Writes, looks_at * PLANNED_BYTES);
        let (mut changes, mut freed, mut key) = (Changes::default(), Vec::new(), Vec::new());
        for (from, to) in ranges.spans() {
            let (mut at, end) = (index.seek(from), index.seek(to));
            while at < end && index.entry_to(at, &mut key).is_some() {
                let erased = ranges.covering(&key, Seq::MAX);
                let (mut stays, mut goes) = (Vec::new(), Vec::new());
                for location in index.locations(&key) {
                    at = index.next(at);
                    let is_older = before.read(location)?.entry().trailer.seq() < erased;
                    if is_older { goes.push(location) } else { stays.push(location) }
                }
                if !goes.is_empty() {
                    changes.push(&key, stays);
                    freed.extend(goes);
                }
                self.check_open()?;
            }
        }
        let after = Contents { index: index.changed(&changes), ..(*before).clone() };
        let removed = edit.ranges_removed.clone();
        let edit = Edit { freed: SlotRun::of(freed.clone()), ..edit };
        self.replace_contents(store, &before, after, (edit, freed), false)?;
        store.state.lock().cleared.retain(|seq| !removed.contains(seq));
        Ok(())
    }
}
