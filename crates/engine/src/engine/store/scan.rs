//! Reading every live slot, for an open that has no image.
//!
//! Slabs are dealt out to as many threads as the store may have workers: once objects are small, checking and ordering their
//! keys costs more than reading them. A thread sorts what it has found and makes an index of it each time that takes its share of
//! memory, and in the end the indexes are merged into one, by as many threads again, each a key range. Costs, for each object: its bytes read, one checksum of header and
//! key, comparisons for as often as the runs of keys that flushes have left can be halved, most of them of a number, and its entry made
//! twice; at the peak both entries are in memory.

use super::holds_of;
use super::load::LoadFrom;
use crate::error::{Error, Result};
use crate::key::Trailer;
use crate::planted::{self, Bug};
use crate::store::{Damaged, Index, IndexBuilder, Location, Position, Slab, SlabState, Slots, shared_prefix};
use crate::tier::Tiers;
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Priority, Sched, Thread};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::sync::Arc;

/// What all threads keep before they make indexes of it, of the memory number; besides a slab for each.
const MEMORY_SHARE: u64 = 8;

/// A thread that merges has a key range of at least about so many entries of the largest index.
const PART_ENTRIES_MIN: u64 = 256;

/// What the threads share.
#[derive(Debug)]
struct Scan {
    tiers: Arc<Tiers>,
    slabs: Vec<(Arc<Slab>, Slots)>,
    /// The first slab that nobody has taken.
    next: AtomicU64,
    /// What a thread keeps before it makes an index of it.
    bytes_max: u64,
    done: Mutex<Vec<Result<Done>>>,
}

/// What a thread has made of its slabs.
#[derive(Debug, Default)]
struct Done {
    indexes: Vec<Index>,
    damaged: Damaged,
}

/// Objects of some slabs.
#[derive(Debug, Default)]
struct Found {
    keys: Vec<u8>,
    objects: Vec<Object>,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    key_from: usize,
    key_bytes: usize,
    /// What the key has behind the bytes that all keys begin with, as far as a number holds it: most comparisons end there.
    /// Set before they are sorted.
    rank: u64,
    trailer: Trailer,
    location: Location,
}

impl Found {
    /// With what sorting takes besides: room for half of the objects, of few for all.
    fn held_bytes(&self) -> u64 {
        (self.keys.len() + self.objects.len() * size_of::<Object>() * 2) as u64
    }

    /// Reads the live slots of a slab.
    fn read(&mut self, tiers: &Tiers, slab: &Slab, live: &Slots, damaged: &mut Damaged) -> Result<()> {
        if let Some(why) = slab.lost() {
            damaged.add(live.count().into(), why.clone());
            return Ok(());
        }
        let slots: Vec<u32> = match planted::has(Bug::FreedSlotBelieved) {
            true => (0..slab.meta.slots).collect(),
            false => live.iter().collect(),
        };
        let mut unreadable = None;
        slab.read_slots(tiers, &slots, Cause::Recovery, &mut |slot, bytes| {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) => {
                    unreadable.get_or_insert(error);
                    return;
                }
            };
            match slab.decode_head(slot, bytes) {
                Ok(head) => {
                    // Whether a table has the same is no longer known: it is taken for no copy.
                    let location = Location { slab: slab.meta.number, slot, holds: holds_of(head.trailer) };
                    let (key_from, key_bytes) = (self.keys.len(), head.key.len());
                    self.keys.extend_from_slice(head.key);
                    self.objects.push(Object {
                        key_from,
                        key_bytes,
                        rank: 0,
                        trailer: head.trailer,
                        location,
                    });
                }
                Err(_) if planted::has(Bug::FreedSlotBelieved) => {}
                Err(error) => damaged.add(1, error),
            }
        })?;
        // Whose it is nobody knows; when it can be read again some day, what was written or deleted meanwhile would have been forgotten.
        unreadable.map_or(Ok(()), Err)
    }

    /// An index of them; none are left.
    fn make_index(&mut self) -> Index {
        let keys = std::mem::take(&mut self.keys);
        let mut objects = std::mem::take(&mut self.objects);
        let key = |object: &Object| &keys[object.key_from..object.key_from + object.key_bytes];
        let first = objects.first().map(key).unwrap_or_default();
        let shared =
            objects.iter().fold(first.len(), |len, object| shared_prefix(&first[..len], key(object)));
        objects.iter_mut().for_each(|object| object.rank = rank(&key(object)[shared..]));
        // Newest first. Slots were filled in the order of keys, flush by flush, so there are runs for the sort to find.
        objects.sort_by(|a, b| {
            a.rank.cmp(&b.rank).then_with(|| key(a).cmp(key(b))).then(b.trailer.0.cmp(&a.trailer.0))
        });
        let mut made = IndexBuilder::default();
        objects.iter().for_each(|object| made.push(key(object), object.location));
        made.finish()
    }
}

/// The first bytes as a number, in their order; where two are equal the bytes may differ.
fn rank(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = bytes.len().min(first.len());
    first[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(first)
}

impl Scan {
    /// One thread's part.
    fn work(&self) {
        let done = self.read();
        self.done.lock().push(done);
    }

    fn read(&self) -> Result<Done> {
        let (mut done, mut found) = (Done::default(), Found::default());
        while let Some((slab, live)) = self.slabs.get(self.next.fetch_add(1, Ordering::Relaxed) as usize) {
            found.read(&self.tiers, slab, live, &mut done.damaged)?;
            if found.held_bytes() >= self.bytes_max {
                done.indexes.push(found.make_index());
            }
        }
        done.indexes.push(found.make_index());
        Ok(done)
    }
}

/// The index of all live slots, and what cannot be read.
///
/// # Errors
/// What the device says.
pub(super) fn scan(
    from: &LoadFrom<'_>,
    slabs: &BTreeMap<u64, SlabState>,
    opened: &[Arc<Slab>],
) -> Result<(Index, Damaged)> {
    let threads = from.options.background_threads.clamp(1, opened.len().max(1) as u32);
    let scan = Arc::new(Scan {
        tiers: from.tiers.clone(),
        slabs: opened.iter().cloned().zip(slabs.values().map(|slab| slab.live.clone())).collect(),
        next: AtomicU64::new(0),
        bytes_max: from.options.memory_bytes / MEMORY_SHARE / u64::from(threads),
        done: Mutex::new(from.sched, Vec::new()),
    });
    let theirs = scan.clone();
    in_threads(from.sched, threads, "scan", Arc::new(move || theirs.work()))?;
    let done = std::mem::take(&mut *scan.done.lock());
    let (mut indexes, mut damaged) = (Vec::new(), Damaged::default());
    for done in done {
        let mut done = done?;
        indexes.append(&mut done.indexes);
        damaged.merge(done.damaged);
    }
    indexes.retain(|index| index.entries() > 0);
    let index = match indexes.len() {
        0 | 1 => indexes.pop().unwrap_or_default(),
        _ => merged(indexes, opened, from.sched, threads)?,
    };
    Ok((index, damaged))
}

/// Has so many threads do some work, of which this one is the first, and waits for all of them.
fn in_threads(sched: &Sched, threads: u32, name: &str, work: Arc<dyn Fn() + Send + Sync>) -> Result<()> {
    let start = |i| {
        let theirs = work.clone();
        sched.spawn(&format!("cuesta-{name}-{i}"), Priority::Normal, move || theirs())
    };
    // Fewer threads than that do as well.
    let others: Vec<_> = (1..threads).map_while(|i| start(i).ok()).collect();
    work();
    // All of them, before anything is said.
    let ended: Vec<bool> = others.into_iter().map(Thread::join).collect();
    match ended.contains(&false) {
        true => Err(Error::internal(format!("a thread that opens a store ({name}) panicked"))),
        false => Ok(()),
    }
}

/// What the threads of a merge share.
#[derive(Debug)]
struct Merging {
    indexes: Vec<Index>,
    opened: Vec<Arc<Slab>>,
    /// Where one part ends and the next begins.
    bounds: Vec<Vec<u8>>,
    /// The first part that nobody has taken.
    next: AtomicU64,
    done: Mutex<BTreeMap<usize, Result<Index>>>,
}

impl Merging {
    /// One thread's part of the parts.
    fn work(&self) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed) as usize;
            if i > self.bounds.len() {
                return;
            }
            let made = self.part(i);
            self.done.lock().insert(i, made);
        }
    }

    /// The keys before bound `part`, and from the one before on.
    fn part(&self, part: usize) -> Result<Index> {
        let before = part.checked_sub(1).and_then(|i| self.bounds.get(i));
        let mut heads = BinaryHeap::with_capacity(self.indexes.len());
        let mut ends = Vec::with_capacity(self.indexes.len());
        for (i, index) in self.indexes.iter().enumerate() {
            let at = before.map_or(index.first(), |bound| index.seek(bound));
            let end = self.bounds.get(part).map_or(index.end(), |bound| index.seek(bound));
            ends.push(end);
            let mut key = Vec::new();
            if let Some(location) = index.entry_to(at, &mut key).filter(|_| at < end) {
                heads.push(Reverse(Head { key, index: i, at, location }));
            }
        }
        let (mut made, mut key, mut versions) = (IndexBuilder::default(), Vec::new(), Vec::new());
        while let Some(mut head) = heads.peek_mut() {
            if head.0.key != key {
                push(&mut made, &key, &mut versions, &self.opened)?;
                key.clone_from(&head.0.key);
            }
            versions.push((head.0.index, head.0.location));
            let Head { key, index, at, location } = &mut head.0;
            *at = self.indexes[*index].next(*at);
            match self.indexes[*index].entry_to(*at, key).filter(|_| *at < ends[*index]) {
                Some(next) => *location = next,
                None => drop(PeekMut::pop(head)),
            }
        }
        push(&mut made, &key, &mut versions, &self.opened)?;
        Ok(made.finish())
    }
}

/// All of them in one.
fn merged(indexes: Vec<Index>, opened: &[Arc<Slab>], sched: &Sched, threads: u32) -> Result<Index> {
    let largest = indexes.iter().max_by_key(|index| index.entries());
    let bounds = largest.map_or_else(Vec::new, |index| {
        let parts = u64::from(threads).min(index.entries() / PART_ENTRIES_MIN).max(1);
        let mut bounds = index.cuts(index.first(), index.end(), index.entries().div_ceil(parts));
        bounds.truncate(parts as usize - 1);
        bounds
    });
    let threads = bounds.len() as u32 + 1;
    let merging = Arc::new(Merging {
        indexes,
        opened: opened.to_vec(),
        bounds,
        next: AtomicU64::new(0),
        done: Mutex::new(sched, BTreeMap::new()),
    });
    let theirs = merging.clone();
    in_threads(sched, threads, "merge", Arc::new(move || theirs.work()))?;
    let parts = std::mem::take(&mut *merging.done.lock());
    parts.into_values().collect::<Result<Vec<Index>>>().map(|parts| Index::joined(&parts))
}

/// Where the merge stands in one of the indexes; ordered by key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: Vec<u8>,
    index: usize,
    at: Position,
    location: Location,
}

/// Adds versions of a key, each with the index that it comes from; none are left.
fn push(
    made: &mut IndexBuilder,
    key: &[u8],
    versions: &mut Vec<(usize, Location)>,
    opened: &[Arc<Slab>],
) -> Result<()> {
    // Each index has its own newest first; which of two is newer, the slots say. Only snapshots leave several.
    if versions.windows(2).any(|pair| pair[0].0 != pair[1].0) {
        let mut numbered = Vec::with_capacity(versions.len());
        for (_, location) in versions.drain(..) {
            let at = opened.binary_search_by_key(&location.slab, |slab| slab.meta.number);
            let slab = at.ok().and_then(|at| opened.get(at));
            let slab = slab.ok_or_else(|| Error::internal("an index names a slab that was not read"))?;
            let bytes = slab.read(location.slot)?;
            numbered.push((Reverse(slab.decode_head(location.slot, bytes.bytes())?.trailer.0), location));
        }
        numbered.sort_unstable();
        versions.extend(numbered.into_iter().map(|(_, location)| (0, location)));
    }
    versions.drain(..).for_each(|(_, location)| made.push(key, location));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};
    use crate::store::Holds;

    #[test]
    fn an_index_is_in_the_order_of_keys_and_newest_first_whatever_they_begin_with() {
        // Behind what all share some are empty, end in zeros, or differ behind the bytes that a number holds.
        let tails: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"a\0b", b"12345678", b"123456780", b"123456789", b"\xff"];
        let mut objects: Vec<(Vec<u8>, u64)> =
            tails.iter().flat_map(|tail| [3, 7].map(|seq| ([b"shared", *tail].concat(), seq))).collect();
        let mut found = Found::default();
        // Not in order: each fifth of eighteen.
        for i in 0..objects.len() {
            let (key, seq) = &objects[i * 5 % objects.len()];
            let location = Location { slab: 1, slot: *seq as u32, holds: Holds::Value };
            let (key_from, key_bytes) = (found.keys.len(), key.len());
            found.keys.extend_from_slice(key);
            let trailer = Trailer::new(Seq(*seq), Kind::Put);
            found.objects.push(Object { key_from, key_bytes, rank: 0, trailer, location });
        }
        let index = found.make_index();
        objects.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let (mut at, mut key, mut made) = (index.first(), Vec::new(), Vec::new());
        while let Some(location) = index.entry_to(at, &mut key) {
            made.push((key.clone(), u64::from(location.slot)));
            at = index.next(at);
        }
        assert_eq!(made, objects);
    }

    #[test]
    fn threads_that_merge_key_ranges_make_the_index_that_one_makes() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let at = |slot: usize| Location { slab: 1, slot: slot as u32, holds: Holds::Value };
            let key = |i: usize| format!("key{i:05}").into_bytes();
            let index = |i: usize| {
                let mut made = IndexBuilder::default();
                // Two versions of some keys, which stay together.
                for n in (i..6000).step_by(3) {
                    made.push(&key(n), at(n));
                    if n % 7 == 0 {
                        made.push(&key(n), at(10_000 + n));
                    }
                }
                made.finish()
            };
            let indexes = || (0..3).map(index).collect::<Vec<_>>();
            for threads in [1, 2, 5] {
                let made = merged(indexes(), &[], &sched, threads).unwrap();
                let (mut place, mut found) = (made.first(), Vec::new());
                for n in 0..6000 {
                    let versions = if n % 7 == 0 { vec![at(n), at(10_000 + n)] } else { vec![at(n)] };
                    for version in versions {
                        assert_eq!((made.entry_to(place, &mut found), &found), (Some(version), &key(n)));
                        place = made.next(place);
                    }
                }
                assert_eq!(place, made.end());
            }
        });
    }
}
