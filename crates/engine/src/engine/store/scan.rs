//! Reading every live slot, for an open that has no image.
//!
//! Keys are cut into ranges by a sample of some slots; then threads, as many as the store may have workers, share the slabs, and put what
//! they find into their part of each range; then they share the ranges, sort what each has, and make its leaves of the index, once.
//! Once objects are small that is what an open takes, and not the reading. A range has some ten thousand objects, so that what is sorted stays
//! near the processor; of a large store's, more. A sample that is far off makes ranges unequal, and nothing else.
//!
//! Costs, for each object: its bytes read, one checksum of header and key, a search among the ranges' bounds, comparisons, most of them of a
//! number, and its entry written twice: by itself, and in its leaf. At the peak memory has all objects' keys and places, without their
//! leaves; a range's go when its leaves are made.

use super::holds_of;
use super::load::LoadFrom;
use crate::error::{Error, Result};
use crate::format::coding::put_bytes;
use crate::format::{Decode, Reader};
use crate::key::Trailer;
use crate::planted::{self, Bug};
use crate::store::{Damaged, Index, IndexBuilder, Location, Slab, SlabState, Slots, shared_prefix};
use crate::tier::Tiers;
use cuesta_device::{AlignedBuf, Cause};
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Priority, Sched, Thread};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects that a range is to have, and has at least if there are others.
const RANGE_OBJECTS: u64 = 32 << 10;
const RANGE_OBJECTS_MIN: u64 = 256;
/// Slabs that ranges are learned from, and slots of each.
const SAMPLED_SLABS: usize = 8;
const SAMPLED_SLOTS: usize = 16;
/// What is found of a range is kept in pieces of so many bytes, unless one object takes more.
const PIECE_BYTES: usize = 16 << 10;

/// What the threads share.
#[derive(Debug)]
struct Scan {
    tiers: Arc<Tiers>,
    slabs: Vec<(Arc<Slab>, Slots)>,
    ranges: Ranges,
    /// The first slab that nobody has taken.
    next: AtomicU64,
    done: Mutex<Vec<Result<Done>>>,
}

/// Where one key range ends and the next begins.
#[derive(Debug, Default)]
struct Ranges {
    bounds: Vec<Vec<u8>>,
    /// What all bounds begin with, and what they have behind that, by [`rank`].
    shared: Vec<u8>,
    ranks: Vec<u64>,
}

impl Ranges {
    /// These ascend.
    fn between(bounds: Vec<Vec<u8>>) -> Self {
        let shared = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => first[..shared_prefix(first, last)].to_vec(),
            _ => Vec::new(),
        };
        let ranks = bounds.iter().map(|bound| rank(&bound[shared.len()..])).collect();
        Self { bounds, shared, ranks }
    }

    fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// One list for each.
    fn each<T>(&self) -> Vec<T>
    where
        T: Default,
    {
        (0..self.count()).map(|_| T::default()).collect()
    }

    fn of(&self, key: &[u8]) -> usize {
        let Some(rest) = key.strip_prefix(&self.shared[..]) else {
            return self.bounds.partition_point(|bound| &bound[..] <= key);
        };
        let rank = rank(rest);
        let least = self.ranks.partition_point(|bound| *bound < rank);
        let is_behind = |i: &usize| self.ranks[*i] == rank && &self.bounds[*i][..] <= key;
        least + (least..self.ranks.len()).take_while(is_behind).count()
    }
}

/// What a thread has found.
#[derive(Debug)]
struct Done {
    /// By range.
    found: Vec<Found>,
    damaged: Damaged,
}

/// Objects, in no order: of each its number and kind, key and location. In pages of their own, which go back to the system, and not to a heap that
/// many threads share.
#[derive(Debug, Default)]
struct Found {
    /// And how many bytes of each are used.
    pieces: Vec<(AlignedBuf, usize)>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Object<'a> {
    key: &'a [u8],
    trailer: Trailer,
    location: Location,
}

impl<'a> Object<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trailer.0.to_le_bytes());
        put_bytes(out, self.key);
        self.location.put(out);
    }

    fn take(reader: &mut Reader<'a>) -> Decode<Self> {
        let trailer = Trailer(reader.u64()?);
        Ok(Self { key: reader.bytes()?, trailer, location: Location::take(reader)? })
    }
}

impl Found {
    fn push(&mut self, object: &[u8]) {
        if self.pieces.last().is_none_or(|(piece, used)| piece.len() - used < object.len()) {
            self.pieces.push((AlignedBuf::zeroed(PIECE_BYTES.max(object.len())), 0));
        }
        if let Some((piece, used)) = self.pieces.last_mut() {
            piece[*used..*used + object.len()].copy_from_slice(object);
            *used += object.len();
            self.count += 1;
        }
    }

    fn objects(&self) -> impl Iterator<Item = Object<'_>> {
        self.pieces.iter().flat_map(|(piece, used)| {
            let mut reader = Reader::new(&piece[..*used]);
            std::iter::from_fn(move || {
                let object = (!reader.is_empty()).then(|| Object::take(&mut reader))?;
                // Written by `Object::put`, and never on media.
                Some(
                    object.unwrap_or_else(|malformed| {
                        unreachable!("an object that cannot be read: {malformed}")
                    }),
                )
            })
        })
    }
}

/// An index of what was found of a range.
fn index_of(found: &[Found]) -> Index {
    let mut objects: Vec<Object<'_>> = Vec::with_capacity(found.iter().map(|found| found.count).sum());
    found.iter().for_each(|found| objects.extend(found.objects()));
    let first = objects.first().map(|object| object.key).unwrap_or_default();
    let shared = objects.iter().fold(first.len(), |len, object| shared_prefix(&first[..len], object.key));
    // Small, and most comparisons end with the number.
    let mut order: Vec<(u64, u32)> =
        (0..).zip(&objects).map(|(i, it)| (rank(&it.key[shared..]), i)).collect();
    let at = |(_, i): &(u64, u32)| &objects[*i as usize];
    order.sort_unstable_by(|a, b| {
        // Newest first.
        let by_key = || at(a).key.cmp(at(b).key).then(at(b).trailer.0.cmp(&at(a).trailer.0));
        a.0.cmp(&b.0).then_with(by_key)
    });
    let mut made = IndexBuilder::default();
    order.iter().map(at).for_each(|object| made.push(object.key, object.location));
    made.finish()
}

/// The first bytes as a number, in their order; where two are equal the bytes may differ.
fn rank(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = bytes.len().min(first.len());
    first[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(first)
}

/// Reads the live slots of a slab.
fn read(
    tiers: &Tiers,
    slab: &Slab,
    live: &Slots,
    damaged: &mut Damaged,
    found: &mut dyn FnMut(Object<'_>),
) -> Result<()> {
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
                found(Object { key: head.key, trailer: head.trailer, location });
            }
            Err(_) if planted::has(Bug::FreedSlotBelieved) => {}
            Err(error) => damaged.add(1, error),
        }
    })?;
    // Whose it is nobody knows; when it can be read again some day, what was written or deleted meanwhile would have been forgotten.
    unreadable.map_or(Ok(()), Err)
}

/// Keys that cut what the slabs have into so many ranges at most, about alike as far as a sample tells.
fn bounds(tiers: &Tiers, slabs: &[(Arc<Slab>, Slots)], ranges: u64) -> Result<Vec<Vec<u8>>> {
    if ranges < 2 {
        return Ok(Vec::new());
    }
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for (slab, live) in slabs.iter().step_by(slabs.len().div_ceil(SAMPLED_SLABS)) {
        let step = (live.count() as usize).div_ceil(SAMPLED_SLOTS).max(1);
        let slots: Vec<u32> = live.iter().step_by(step).collect();
        let mut sampled = Slots::default();
        for slot in &slots {
            sampled.insert(*slot);
        }
        // What is wrong with them is found again.
        read(tiers, slab, &sampled, &mut Damaged::default(), &mut |object| keys.push(object.key.to_vec()))?;
    }
    keys.sort_unstable();
    let ranges = ranges.min(keys.len() as u64 + 1) as usize;
    let mut bounds: Vec<Vec<u8>> = (1..ranges).map(|i| keys[i * keys.len() / ranges].clone()).collect();
    bounds.dedup();
    Ok(bounds)
}

impl Scan {
    /// One thread's part of the slabs.
    fn work(&self) {
        let done = self.read();
        self.done.lock().push(done);
    }

    fn read(&self) -> Result<Done> {
        let mut found: Vec<Found> = self.ranges.each();
        let (mut damaged, mut bytes) = (Damaged::default(), Vec::new());
        let mut put = |object: Object<'_>| {
            bytes.clear();
            object.put(&mut bytes);
            found[self.ranges.of(object.key)].push(&bytes);
        };
        while let Some((slab, live)) = self.slabs.get(self.next.fetch_add(1, Ordering::Relaxed) as usize) {
            read(&self.tiers, slab, live, &mut damaged, &mut put)?;
        }
        Ok(Done { found, damaged })
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
    let most = from.options.background_threads.max(1);
    let objects: u64 = slabs.values().map(|slab| u64::from(slab.live.count())).sum();
    let slabs: Vec<_> = opened.iter().cloned().zip(slabs.values().map(|slab| slab.live.clone())).collect();
    let ranges = (objects / RANGE_OBJECTS).max(most.into()).min(objects / RANGE_OBJECTS_MIN);
    let scan = Arc::new(Scan {
        tiers: from.tiers.clone(),
        ranges: Ranges::between(bounds(from.tiers, &slabs, ranges)?),
        slabs,
        next: AtomicU64::new(0),
        done: Mutex::new(from.sched, Vec::new()),
    });
    let theirs = scan.clone();
    in_threads(from.sched, most.min(opened.len().max(1) as u32), "scan", Arc::new(move || theirs.work()))?;
    let done = std::mem::take(&mut *scan.done.lock());
    let mut damaged = Damaged::default();
    let mut found: Vec<Vec<Found>> = scan.ranges.each();
    for done in done {
        let done = done?;
        found.iter_mut().zip(done.found).for_each(|(all, found)| all.push(found));
        damaged.merge(done.damaged);
    }
    Ok((index(found, from.sched, most)?, damaged))
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

/// What the threads that make an index share.
#[derive(Debug)]
struct Making {
    /// Ranges that nobody has taken, the last one first.
    ranges: Mutex<Vec<Vec<Found>>>,
    made: Mutex<BTreeMap<usize, Index>>,
}

impl Making {
    /// One thread's part of the ranges.
    fn work(&self) {
        loop {
            let mut ranges = self.ranges.lock();
            let Some(found) = ranges.pop() else { return };
            let range = ranges.len();
            drop(ranges);
            let index = index_of(&found);
            // Whose memory the leaves of the next may need.
            drop(found);
            self.made.lock().insert(range, index);
        }
    }
}

/// The index of what was found, which is by range.
fn index(found: Vec<Vec<Found>>, sched: &Sched, threads: u32) -> Result<Index> {
    let threads = threads.min(found.len() as u32);
    let making =
        Arc::new(Making { ranges: Mutex::new(sched, found), made: Mutex::new(sched, BTreeMap::new()) });
    let theirs = making.clone();
    in_threads(sched, threads, "index", Arc::new(move || theirs.work()))?;
    let made = std::mem::take(&mut *making.made.lock());
    Ok(Index::joined(made.into_values()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};
    use crate::store::Holds;

    fn object(key: &[u8], seq: u64) -> Object<'_> {
        let location = Location { slab: 1, slot: seq as u32, holds: Holds::Value };
        Object { key, trailer: Trailer::new(Seq(seq), Kind::Put), location }
    }

    fn put(found: &mut Found, object: Object<'_>) {
        let mut bytes = Vec::new();
        object.put(&mut bytes);
        found.push(&bytes);
    }

    fn all(index: &Index) -> Vec<(Vec<u8>, u64)> {
        let (mut at, mut key, mut made) = (index.first(), Vec::new(), Vec::new());
        while let Some(location) = index.entry_to(at, &mut key) {
            made.push((key.clone(), u64::from(location.slot)));
            at = index.next(at);
        }
        made
    }

    #[test]
    fn an_index_is_in_the_order_of_keys_and_newest_first_whatever_they_begin_with() {
        // Behind what all share some are empty, end in zeros, or differ behind the bytes that a number holds; one is longer than a piece.
        let long = [b'x'; 2 * PIECE_BYTES];
        let tails: [&[u8]; 10] =
            [b"", b"\0", b"\0\0", b"a", b"a\0b", b"12345678", b"123456780", b"123456789", b"\xff", &long];
        let mut objects: Vec<(Vec<u8>, u64)> =
            tails.iter().flat_map(|tail| [3, 7].map(|seq| ([b"shared", *tail].concat(), seq))).collect();
        let mut found = [Found::default(), Found::default()];
        // Not in order: each third of twenty; and two threads found them.
        for i in 0..objects.len() {
            let (key, seq) = &objects[i * 3 % objects.len()];
            put(&mut found[i % 2], object(key, *seq));
        }
        let index = index_of(&found);
        objects.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        assert_eq!(all(&index), objects);
    }

    #[test]
    fn a_key_is_in_the_range_that_begins_at_or_before_it() {
        let tails: [&[u8]; 8] =
            [b"", b"\0", b"1", b"12345678", b"123456780", b"12345678z", b"2", b"\xff\xff"];
        let bounds: Vec<Vec<u8>> = tails.iter().map(|tail| [b"key", *tail].concat()).collect();
        let others =
            tails.iter().flat_map(|tail| [[b"kex", *tail].concat(), [b"kez", *tail].concat(), tail.to_vec()]);
        let keys: Vec<Vec<u8>> = bounds.iter().cloned().chain(others).collect();
        for bounds in [Vec::new(), bounds[3..4].to_vec(), bounds[3..6].to_vec(), bounds] {
            let ranges = Ranges::between(bounds.clone());
            for key in keys.iter().flat_map(|key| [key.clone(), [&key[..], b"!"].concat()]) {
                assert_eq!(ranges.of(&key), bounds.iter().filter(|bound| **bound <= key).count(), "{key:?}");
            }
        }
    }

    #[test]
    fn threads_that_share_key_ranges_make_the_index_that_one_makes() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            // Two versions of some keys, which stay together.
            let versions = |n: u64| if n.is_multiple_of(7) { vec![10_000 + n, n] } else { vec![n] };
            let key = |n: u64| format!("key{n:05}").into_bytes();
            let expected: Vec<_> =
                (0..6000).flat_map(|n| versions(n).into_iter().map(move |seq| (key(n), seq))).collect();
            for threads in [1, 2, 5] {
                let mut found: Vec<[Found; 2]> = (0..4).map(|_| Default::default()).collect();
                for (key, seq) in expected.iter().rev() {
                    let n = seq % 10_000;
                    put(&mut found[(n / 1500) as usize][(seq % 2) as usize], object(key, *seq));
                }
                let found = found.into_iter().map(Vec::from).collect();
                let made = index(found, &sched, threads).unwrap();
                assert_eq!((all(&made), made.entries()), (expected.clone(), expected.len() as u64));
            }
        });
    }
}
