//! Reading every live slot, for an open that has no image.
//!
//! Keys are cut into ranges by a sample of some slots; then threads, as many as the store may have workers, share the slabs, and put what
//! they find into their part of each range; then they share the ranges, sort what each has, and make its leaves of the index, once.
//! Once objects are small that is what an open takes, and not the reading. A store of few objects is one range; a sample that is far off makes
//! ranges unequal, which costs time.
//!
//! Costs, for each object: its bytes read, one checksum of header and key, a search among the ranges' bounds, comparisons, most of them of a
//! number, and copies of its key and place: where it is found, where its range is sorted, and in its leaf. What is found is kept without the
//! bytes that its neighbours begin with, as leaves keep it, and some ten bytes for each object besides; it goes range by range, as leaves are made
//! of it, so at the peak memory has about what the index takes, and what sorting a range takes for each thread.

use super::holds_of;
use super::load::LoadFrom;
use crate::error::{Error, Result};
use crate::format::coding::{put_bytes, put_varint};
use crate::format::{Decode, Reader};
use crate::key::Trailer;
use crate::planted::{self, Bug};
use crate::store::{Damaged, Index, IndexBuilder, Location, Slab, SlabState, Slots, shared_prefix};
use crate::tier::Tiers;
use cuesta_device::{AlignedBuf, Cause, PageVec};
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Priority, Sched, Thread};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A range has so many objects at least, on average.
const RANGE_OBJECTS_MIN: u64 = 4096;
/// There are so many ranges at most, and for each one so many slots are looked at to learn where it begins.
const RANGES_MAX: u64 = 128;
const SAMPLES: u64 = 1;
/// Only in slots of up to so many bytes: of larger ones there are few, and to read some twice would cost more than it gains.
const SAMPLED_BYTES_MAX: u64 = 16 << 10;
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

    /// As many as there are ranges.
    fn each<T: Default>(&self) -> Vec<T> {
        (0..self.count()).map(|_| T::default()).collect()
    }

    /// The range of a key.
    fn of(&self, key: &[u8]) -> usize {
        let begin_before = |bounds: &[Vec<u8>]| bounds.partition_point(|bound| &bound[..] <= key);
        let Some(rest) = key.strip_prefix(&self.shared[..]) else { return begin_before(&self.bounds) };
        let rank = rank(rest);
        let from = self.ranks.partition_point(|bound| *bound < rank);
        // Mostly none.
        let alike = self.ranks[from..].partition_point(|bound| *bound == rank);
        from + begin_before(&self.bounds[from..from + alike])
    }
}

/// What a thread has found.
#[derive(Debug)]
struct Done {
    /// By range.
    found: Vec<Found>,
    damaged: Damaged,
}

#[derive(Clone, Copy, Debug)]
struct Object<'a> {
    key: &'a [u8],
    trailer: Trailer,
    location: Location,
}

/// Objects, in no order. In pages of their own, which go back to the system, and not to a heap that many threads share.
#[derive(Debug, Default)]
struct Found {
    pieces: Vec<Piece>,
}

/// Of each object how many bytes its key has in common with the first one's, the rest of the key, its number and kind, and its location.
#[derive(Debug)]
struct Piece {
    bytes: AlignedBuf,
    used: usize,
    first_key: Vec<u8>,
}

impl Found {
    /// Takes in an object; the buffer is for what it becomes.
    fn push(&mut self, object: &Object<'_>, encoded: &mut Vec<u8>) {
        let shared = self.pieces.last().map_or(0, |piece| shared_prefix(&piece.first_key, object.key));
        encode(object, shared, encoded);
        if self.pieces.last().is_none_or(|piece| piece.bytes.len() - piece.used < encoded.len()) {
            encode(object, object.key.len(), encoded);
            let bytes = AlignedBuf::zeroed(PIECE_BYTES.max(encoded.len()));
            self.pieces.push(Piece { bytes, used: 0, first_key: object.key.to_vec() });
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.bytes[piece.used..piece.used + encoded.len()].copy_from_slice(encoded);
            piece.used += encoded.len();
        }
    }
}

fn encode(object: &Object<'_>, shared: usize, out: &mut Vec<u8>) {
    out.clear();
    put_varint(out, shared as u64);
    put_bytes(out, &object.key[shared..]);
    put_varint(out, object.trailer.0);
    object.location.put(out);
}

/// An object of a range that is being sorted.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    /// Where its key begins among all keys.
    from: usize,
    len: usize,
    trailer: Trailer,
    location: Location,
}

/// What was found of a range, as it is sorted: all of its keys, the objects, and by rank which of them. A thread has one for all of its ranges.
#[derive(Debug, Default)]
struct Unpacked {
    keys: PageVec<u8>,
    objects: PageVec<Sorted>,
    order: PageVec<(u64, u32)>,
}

impl Unpacked {
    fn fill(&mut self, found: &[Found]) {
        self.keys.truncate(0);
        self.objects.truncate(0);
        self.order.truncate(0);
        for piece in found.iter().flat_map(|found| &found.pieces) {
            let mut reader = Reader::new(&piece.bytes[..piece.used]);
            while !reader.is_empty() {
                // Written by `encode`, and never on media.
                let taken = self.take(&mut reader, &piece.first_key);
                taken.unwrap_or_else(|malformed| unreachable!("an object that cannot be read: {malformed}"));
            }
        }
    }

    fn take(&mut self, reader: &mut Reader<'_>, first_key: &[u8]) -> Decode<()> {
        let (shared, rest) = (reader.length()?, reader.bytes()?);
        let from = self.keys.len();
        self.keys.extend_from_slice(&first_key[..shared]);
        self.keys.extend_from_slice(rest);
        let (trailer, location) = (Trailer(reader.varint()?), Location::take(reader)?);
        self.objects.push(Sorted { from, len: shared + rest.len(), trailer, location });
        Ok(())
    }

    /// An index of what was found of a range.
    fn index_of(&mut self, found: &[Found]) -> Index {
        self.fill(found);
        let Self { keys, objects, order } = self;
        let key = |object: &Sorted| &keys[object.from..object.from + object.len];
        let first = objects.first().map(key).unwrap_or_default();
        let shared =
            objects.iter().fold(first.len(), |len, object| shared_prefix(&first[..len], key(object)));
        // Small, and most comparisons end with the number.
        order.extend((0..).zip(objects.iter()).map(|(i, object)| (rank(&key(object)[shared..]), i)));
        let at = |(_, i): &(u64, u32)| &objects[*i as usize];
        order.sort_unstable_by(|a, b| {
            let by_key = || {
                let (a, b) = (at(a), at(b));
                // Newest first. No two are of one number, unless somebody has made them up: then the place tells.
                let by_number = || b.trailer.0.cmp(&a.trailer.0).then_with(|| a.location.cmp(&b.location));
                key(a).cmp(key(b)).then_with(by_number)
            };
            a.0.cmp(&b.0).then_with(by_key)
        });
        let mut made = IndexBuilder::default();
        order.iter().map(at).for_each(|object| made.push(key(object), object.location));
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

/// Reads live slots of a slab.
fn read_slab(
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

/// Keys that cut what these slabs have into about so many ranges, as far as a sample tells.
fn learn(tiers: &Tiers, slabs: &[(Arc<Slab>, Slots)], ranges: u64) -> Result<Ranges> {
    let small = || slabs.iter().filter(|(slab, _)| slab.meta.slot_bytes <= SAMPLED_BYTES_MAX);
    let objects: u64 = small().map(|(_, live)| u64::from(live.count())).sum();
    if ranges < 2 {
        return Ok(Ranges::default());
    }
    let step = objects.div_ceil(ranges * SAMPLES).max(1);
    let (mut keys, mut passed): (Vec<Vec<u8>>, u64) = <_>::default();
    for (slab, live) in small() {
        let mut sampled = Slots::default();
        for slot in live.iter() {
            if passed.is_multiple_of(step) {
                sampled.insert(slot);
            }
            passed += 1;
        }
        // What is damaged is found again.
        read_slab(tiers, slab, &sampled, &mut Damaged::default(), &mut |object| {
            keys.push(object.key.to_vec());
        })?;
    }
    keys.sort_unstable();
    let ranges = ranges.min(keys.len() as u64) as usize;
    let mut bounds: Vec<Vec<u8>> = (1..ranges).map(|i| keys[i * keys.len() / ranges].clone()).collect();
    bounds.dedup();
    Ok(Ranges::between(bounds))
}

impl Scan {
    /// One thread's part of the slabs.
    fn work(&self) {
        let done = self.read();
        self.done.lock().push(done);
    }

    fn read(&self) -> Result<Done> {
        let mut found: Vec<Found> = self.ranges.each();
        let (mut damaged, mut encoded) = (Damaged::default(), Vec::new());
        let mut put = |object: Object<'_>| found[self.ranges.of(object.key)].push(&object, &mut encoded);
        while let Some((slab, live)) = self.slabs.get(self.next.fetch_add(1, Ordering::Relaxed) as usize) {
            read_slab(&self.tiers, slab, live, &mut damaged, &mut put)?;
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
    let ranges = (objects / RANGE_OBJECTS_MIN).min(RANGES_MAX);
    let scan = Arc::new(Scan {
        tiers: from.tiers.clone(),
        ranges: learn(from.tiers, &slabs, ranges)?,
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
        let mut unpacked = Unpacked::default();
        loop {
            let mut ranges = self.ranges.lock();
            let Some(found) = ranges.pop() else { return };
            let range = ranges.len();
            drop(ranges);
            let index = unpacked.index_of(&found);
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
            found[i % 2].push(&object(key, *seq), &mut Vec::new());
        }
        let index = Unpacked::default().index_of(&found);
        objects.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        assert_eq!(all(&index), objects);
    }

    #[test]
    fn what_is_found_takes_no_more_than_its_keys_differ_by() {
        let mut found = Found::default();
        let key = |i: u64| [&[b'x'; 200][..], &i.to_be_bytes()].concat();
        for i in 0..10_000 {
            found.push(&object(&key(i), i), &mut Vec::new());
        }
        let bytes: usize = found.pieces.iter().map(|piece| piece.bytes.len() + piece.first_key.len()).sum();
        assert!(bytes < 10_000 * 24, "{bytes}");
        let expected: Vec<_> = (0..10_000).map(|i| (key(i), i)).collect();
        assert_eq!(all(&Unpacked::default().index_of(&[found])), expected);
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
                    found[(n / 1500) as usize][(seq % 2) as usize].push(&object(key, *seq), &mut Vec::new());
                }
                let found = found.into_iter().map(Vec::from).collect();
                let made = index(found, &sched, threads).unwrap();
                assert_eq!((all(&made), made.entries()), (expected.clone(), expected.len() as u64));
            }
        });
    }
}
