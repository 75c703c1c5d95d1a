//! What the store holds at one moment, as readers see it: the index, the slabs it points into, and what was found
//! damaged when the store was opened. Immutable, but for what slabs know of slots that were found damaged since; who
//! holds it may read every object of that moment.
//!
//! A lookup costs a search of the index and one read of at most two pages for each version that it looks at, which is
//! one unless a snapshot holds an older version.

use super::index::{Holds, Index, Location, Position};
use super::slab::{Slab, SlotBytes};
use super::slot::SLOT_HEADER_BYTES;
use crate::error::{Error, Result};
use crate::key::{Entry, Trailer};
use crate::tier::Tiers;
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries that are looked at where a smaller sample had nothing but lost ones.
const SECOND_SAMPLE: u64 = 4096;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) index: Index,
    pub(crate) slabs: Arc<Slabs>,
    pub(crate) damaged: Arc<Damaged>,
    /// Who holds it may read every slot that was live then, whatever it holds of the index; a job's
    /// ([`Contents::of_job`]), those of its keys.
    pub(crate) moment: Arc<Moment>,
}

/// From one change of which slots are live to the next.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    /// The same for a job that looks into slots of some keys only, which it has announced.
    pub(super) of_jobs: Arc<()>,
}

impl Moment {
    /// What such a job holds in its place.
    fn of_job(&self) -> Arc<Self> {
        Arc::new(Self { of_jobs: self.of_jobs.clone() })
    }
}

/// Live slots that say no key: any key that nothing else has may have been in one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damaged {
    /// How many.
    pub(crate) slots: u64,
    /// What is wrong with one of them.
    pub(crate) one: Option<Error>,
}

impl Damaged {
    /// So many more, for this reason.
    pub(crate) fn add(&mut self, slots: u64, why: Error) {
        if slots > 0 {
            self.slots += slots;
            self.one.get_or_insert(why);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        if let Some(why) = other.one {
            self.add(other.slots, why);
        }
    }
}

/// Slabs by their numbers, ascending.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// Side by side, so that a search touches a few lines of memory and not one slab after another.
    numbers: Vec<u64>,
    slabs: Vec<Arc<Slab>>,
    /// Some of these are lost.
    has_lost: bool,
    /// Slots of this store that were found damaged since it was opened, for all its contents.
    lost_slots: Arc<AtomicU64>,
}

impl FromIterator<Arc<Slab>> for Slabs {
    fn from_iter<I: IntoIterator<Item = Arc<Slab>>>(slabs: I) -> Self {
        let mut slabs: Vec<_> = slabs.into_iter().collect();
        slabs.sort_by_key(|slab| slab.meta.number);
        let has_lost = slabs.iter().any(|slab| slab.lost().is_some());
        let numbers = slabs.iter().map(|slab| slab.meta.number).collect();
        Self { numbers, slabs, has_lost, lost_slots: Arc::default() }
    }
}

impl Slabs {
    fn get(&self, number: u64) -> Option<&Arc<Slab>> {
        self.slabs.get(self.numbers.binary_search(&number).ok()?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Slab>> {
        self.slabs.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.slabs.len()
    }

    /// Others of the same store.
    fn replaced<'a>(&self, slabs: impl Iterator<Item = &'a Arc<Slab>>) -> Self {
        Self { lost_slots: self.lost_slots.clone(), ..slabs.cloned().collect() }
    }

    /// Slots that were found damaged since the store was opened; what was written anew since is among them.
    pub(crate) fn lost_slots(&self) -> u64 {
        self.lost_slots.load(Ordering::Relaxed)
    }

    /// Whether any slot may be lost: whoever looks for one pays only then.
    fn may_have_lost(&self) -> bool {
        self.has_lost || self.lost_slots() > 0
    }
}

/// An object that was read and checked, and the pages that it lies in.
#[derive(Debug)]
pub(crate) struct Found {
    bytes: SlotBytes,
    trailer: Trailer,
    key_bytes: usize,
    value_bytes: usize,
}

impl Found {
    /// What lies in a slot that the index has for a key, which `is_its` knows.
    ///
    /// # Errors
    /// `Corrupt`, with slab and slot.
    pub(super) fn new(
        slab: &Slab,
        slot: u32,
        bytes: SlotBytes,
        is_its: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Self> {
        let entry = slab.decode_of(slot, bytes.bytes(), is_its)?;
        let (trailer, key_bytes, value_bytes) = (entry.trailer, entry.key.len(), entry.value.len());
        Ok(Self { bytes, trailer, key_bytes, value_bytes })
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        let (key, rest) = self.bytes.bytes()[SLOT_HEADER_BYTES..].split_at(self.key_bytes);
        Entry { key, trailer: self.trailer, value: &rest[..self.value_bytes] }
    }
}

/// Whether a read that failed so goes on without what lies there: a table has what a damaged copy had.
pub(super) fn is_passed_over(location: Location, error: &Error) -> bool {
    location.holds == Holds::Copy && error.is_corrupt()
}

impl Contents {
    /// Whether no reader has to look here.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.entries() == 0 && self.damaged.slots == 0
    }

    /// Memory that the index takes, and what is known of each slot.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.index.held_bytes() + self.bytes_of_slots()
    }

    /// Memory that what is known of each slot takes: a byte.
    pub(crate) fn bytes_of_slots(&self) -> u64 {
        self.slabs.iter().map(|slab| u64::from(slab.meta.slots)).sum()
    }

    /// A slab that the index names.
    pub(crate) fn slab(&self, number: u64) -> Result<&Arc<Slab>> {
        let missing = || Error::internal(format!("the index names slab {number}, which is not there"));
        self.slabs.get(number).ok_or_else(missing)
    }

    /// The newest version of `key` at or after `bound`. A damaged copy is none: tables have its original.
    ///
    /// # Errors
    /// What the device says; `Corrupt` for a damaged slot, and, where there is no version, for any key that may have
    /// been in a damaged one.
    pub(crate) fn get(&self, key: &[u8], bound: Trailer) -> Result<Option<Found>> {
        for location in self.index.locations(key) {
            let found = match self.read(location, key) {
                Err(error) if is_passed_over(location, &error) => continue,
                found => found?,
            };
            if found.trailer.0 <= bound.0 {
                return Ok(Some(found));
            }
        }
        self.check_whole().map(|()| None)
    }

    /// # Errors
    /// `Corrupt` when some live slot could not be read when the store was opened.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.damaged.one.clone().map_or(Ok(()), Err)
    }

    /// Reads a version of `key`, which the index has there.
    ///
    /// # Errors
    /// As [`Contents::get`], for a slot.
    pub(crate) fn read(&self, location: Location, key: &[u8]) -> Result<Found> {
        let slab = self.slab(location.slab)?;
        Found::new(slab, location.slot, slab.read(location.slot)?, |found| found == key)
    }

    /// The same with more slabs.
    pub(crate) fn with<'a>(&'a self, new: impl Iterator<Item = &'a Arc<Slab>>) -> Self {
        Self { slabs: Arc::new(self.slabs.replaced(self.slabs.iter().chain(new))), ..self.clone() }
    }

    /// The same with another index. Who keeps what it does not need of one keeps memory from others.
    pub(crate) fn with_index(&self, index: Index) -> Self {
        Self { index, slabs: self.slabs.clone(), damaged: self.damaged.clone(), moment: self.moment.clone() }
    }

    /// The same for a job that looks into no slot but those of keys that it has announced: who holds it keeps none of
    /// others from being used again.
    pub(crate) fn of_job(&self, index: Index) -> Self {
        Self { moment: self.moment.of_job(), ..self.with_index(index) }
    }

    /// The same without the slabs of these numbers, in which nothing is live.
    pub(crate) fn without(mut self, slabs: &[u64]) -> Self {
        if !slabs.is_empty() {
            let stays = |slab: &&Arc<Slab>| !slabs.contains(&slab.meta.number);
            self.slabs = Arc::new(self.slabs.replaced(self.slabs.iter().filter(stays)));
        }
        self
    }

    /// Bytes of a slot; 0 if it is lost, for what was in it cannot be written anywhere else.
    pub(crate) fn bytes_at(&self, location: Location) -> u64 {
        let whole = self.slab(location.slab).ok().filter(|slab| !slab.has_lost(location.slot));
        whole.map_or(0, |slab| slab.meta.slot_bytes)
    }

    /// Bytes of slots between two positions, from so many of the entries there, evenly.
    pub(crate) fn slot_bytes_between(&self, from: Position, to: Position, sample: u64) -> u64 {
        let bytes = |_, at: Location| self.slab(at.slab).map_or(0, |slab| slab.meta.slot_bytes);
        self.sampled(from, to, sample, &bytes)
    }

    /// The same without slots that are lost, and of keys that have one: they may have to stay for its sake. Where a few
    /// entries know of no others, more are looked at: what is left there would never go down.
    pub(crate) fn whole_bytes_between(&self, from: Position, to: Position, sample: u64) -> u64 {
        let bytes = |at: Position, location: Location| {
            let mut key = Vec::new();
            let stays = self.slabs.may_have_lost()
                && self.index.entry_to(at, &mut key).is_some()
                && self.has_lost(self.index.locations(&key));
            if stays { 0 } else { self.bytes_at(location) }
        };
        match self.sampled(from, to, sample, &bytes) {
            0 => self.sampled(from, to, SECOND_SAMPLE, &bytes),
            bytes => bytes,
        }
    }

    /// Whether some of these slots are lost.
    pub(crate) fn has_lost(&self, mut slots: impl Iterator<Item = Location>) -> bool {
        let is_lost = |at: Location| self.slab(at.slab).is_ok_and(|slab| slab.has_lost(at.slot));
        self.slabs.may_have_lost() && slots.any(is_lost)
    }

    /// Reads what lies between two positions, and remembers which slots are damaged: two bytes for each slot of a slab
    /// that has one. None of them is used for something else while these contents are held. How many are damaged that
    /// were not known to be.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn lose_damaged(
        &self,
        from: Position,
        to: Position,
        tiers: &Tiers,
        cause: Cause,
    ) -> Result<u64> {
        let mut lost = 0;
        let (mut slots, mut at) = (BTreeMap::<u64, Vec<(u32, Position)>>::new(), from);
        while at < to
            && let Some(location) = self.index.location(at)
        {
            slots.entry(location.slab).or_default().push((location.slot, at));
            at = self.index.next(at);
        }
        for (number, mut named) in slots {
            let slab = self.slab(number)?;
            named.retain(|(slot, _)| !slab.has_lost(*slot));
            named.sort_unstable();
            let slots: Vec<u32> = named.iter().map(|(slot, _)| *slot).collect();
            let mut positions = named.iter().map(|(_, at)| *at);
            slab.read_slots(tiers, &slots, cause, &mut |slot, bytes| {
                let at = positions.next();
                let is_its = |key: &[u8]| at.is_some_and(|at| self.index.is_at(at, key));
                if bytes.and_then(|bytes| slab.decode_of(slot, bytes, is_its)).is_err() {
                    slab.lose(slot);
                    self.slabs.lost_slots.fetch_add(1, Ordering::Relaxed);
                    lost += 1;
                }
            })?;
        }
        Ok(lost)
    }

    fn sampled(
        &self,
        from: Position,
        to: Position,
        sample: u64,
        bytes_at: &dyn Fn(Position, Location) -> u64,
    ) -> u64 {
        let entries = self.index.count(from, to);
        let step = entries.div_ceil(sample).max(1);
        let (mut at, mut seen, mut bytes) = (from, 0, 0);
        while at < to {
            bytes += self.index.location(at).map_or(0, |location| bytes_at(at, location));
            at = self.index.skip(at, step);
            seen += 1;
        }
        (bytes * entries).checked_div(seen).unwrap_or(0)
    }
}
