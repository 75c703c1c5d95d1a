//! Reading every live slot, for an open that has no image.
//!
//! Keys are cut into ranges by a sample of some slots; then threads, as many as the store may have workers, share the
//! slabs, and put what they find into their part of each range; then they share the ranges, sort what each has, and
//! make its leaves of the index, once. Once objects are small that is what an open takes, and not the reading. A store
//! of few objects is one range. A range that turns out to have more than may be sorted at once, since the sample was
//! far off or keys are long, is cut into smaller ones first ([`split`]).
//!
//! Costs, for each object: its bytes read, one checksum of header and key, a search among the ranges' bounds,
//! comparisons, most of them of a number, and copies of its key and place: where it is found, where its range is
//! sorted, and in its leaf. What is found is kept without the bytes that neighbours begin with, as leaves keep it, and
//! with its number; it goes range by range, as leaves are made of it. So at the peak memory has some bytes for each
//! object more than the index takes, and for each thread what it sorts, which has a bound.

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
use cuesta_sched::{Mutex, Priority, Rng, Sched, Thread};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A range has so many objects at least, on average.
const RANGE_OBJECTS_MIN: u64 = 4096;
/// There are so many ranges at most, and for each one a slot is looked at to learn where it begins: they are read one
/// after the other.
const RANGES_MAX: u64 = 128;
/// What is found of a range is kept in pieces of so many bytes, the first ones, and later of so many, unless one object
/// takes more.
const PIECE_BYTES_MIN: usize = 4 << 10;
const PIECE_BYTES: usize = 16 << 10;
/// What all threads sort at once takes one part in so many of the memory number, but each may take so many bytes.
const SORTED_SHARE: u64 = 16;
const SORTED_BYTES_MIN: u64 = 256 << 10;
/// Keys that are looked at for each range that another one is cut into.
const SPLIT_SAMPLES: u64 = 8;

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

    /// So many at most, in which about as many of these keys lie.
    fn evenly(mut keys: Vec<Vec<u8>>, ranges: usize) -> Self {
        keys.sort_unstable();
        let ranges = ranges.min(keys.len());
        let mut bounds: Vec<Vec<u8>> = (1..ranges).map(|i| keys[i * keys.len() / ranges].clone()).collect();
        bounds.dedup();
        // Nothing is before the first of all.
        bounds.retain(|bound| Some(bound) != keys.first());
        Self::between(bounds)
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

/// Objects, in no order. In pages of their own, which go back to the system.
#[derive(Debug, Default)]
struct Found {
    pieces: Vec<Piece>,
    objects: u64,
    /// What sorting them takes.
    sorted_bytes: u64,
}

/// The first object's key; then of each object how many bytes its key has in common with that, the rest of the key, its
/// number and kind, and its location.
#[derive(Debug)]
struct Piece {
    bytes: AlignedBuf,
    first_key: usize,
    used: usize,
}

impl Piece {
    fn first_key(&self) -> &[u8] {
        &self.bytes[..self.first_key]
    }

    /// Adds something, if there is room for it.
    fn add(&mut self, encoded: &[u8]) -> bool {
        let fits = self.bytes.len() - self.used >= encoded.len();
        if fits {
            self.bytes[self.used..self.used + encoded.len()].copy_from_slice(encoded);
            self.used += encoded.len();
        }
        fits
    }
}

impl Found {
    /// Takes in an object; the buffer is for what it becomes.
    fn push(&mut self, object: &Object<'_>, encoded: &mut Vec<u8>) {
        self.objects += 1;
        self.sorted_bytes += (size_of::<Sorted>() + size_of::<(u64, u32)>() + object.key.len()) as u64;
        if let Some(piece) = self.pieces.last_mut() {
            encode(object, shared_prefix(piece.first_key(), object.key), encoded);
            if piece.add(encoded) {
                return;
            }
        }
        encode(object, object.key.len(), encoded);
        let usual = PIECE_BYTES.min(PIECE_BYTES_MIN << self.pieces.len().min(8));
        let bytes = AlignedBuf::zeroed(usual.max(object.key.len() + encoded.len()));
        let mut piece = Piece { bytes, first_key: object.key.len(), used: 0 };
        let has_room = piece.add(object.key) && piece.add(encoded);
        // Else an object would be lost without a word.
        assert!(has_room, "a piece was made for what it has no room for");
        self.pieces.push(piece);
    }

    /// Hands all objects on. The buffer is for keys.
    fn each(&self, key: &mut Vec<u8>, to: &mut dyn FnMut(Object<'_>)) {
        for piece in &self.pieces {
            let mut reader = Reader::new(&piece.bytes[piece.first_key..piece.used]);
            while !reader.is_empty() {
                // Written by `encode`, and never on media.
                let (trailer, location) = take(&mut reader, piece.first_key(), key)
                    .unwrap_or_else(|malformed| unreachable!("an object that cannot be read: {malformed}"));
                to(Object { key, trailer, location });
            }
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

/// What [`encode`] made of an object behind this first key; its key goes into the buffer.
fn take(reader: &mut Reader<'_>, first_key: &[u8], key: &mut Vec<u8>) -> Decode<(Trailer, Location)> {
    let (shared, rest) = (reader.length()?, reader.bytes()?);
    key.clear();
    key.extend_from_slice(&first_key[..shared]);
    key.extend_from_slice(rest);
    Ok((Trailer(reader.varint()?), Location::take(reader)?))
}

/// Cuts a range into about so many, in the order of keys; fewer if it has not as many keys.
fn split(found: Vec<Found>, parts: u64) -> Vec<Vec<Found>> {
    let objects: u64 = found.iter().map(|found| found.objects).sum();
    let step = (objects / (parts * SPLIT_SAMPLES)).max(1);
    let (mut keys, mut passed, mut key) = (Vec::new(), 0u64, Vec::new());
    for found in &found {
        found.each(&mut key, &mut |object| {
            if passed.is_multiple_of(step) {
                keys.push(object.key.to_vec());
            }
            passed += 1;
        });
    }
    let ranges = Ranges::evenly(keys, parts as usize);
    let (mut cut, mut encoded): (Vec<Found>, _) = (ranges.each(), Vec::new());
    for found in found {
        found.each(&mut key, &mut |object| cut[ranges.of(object.key)].push(&object, &mut encoded));
    }
    cut.into_iter().map(|found| vec![found]).collect()
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

/// A thread's place to sort what was found of one range after the other: all of its keys, the objects, and by rank
/// which of them.
#[derive(Debug, Default)]
struct Sorting {
    keys: PageVec<u8>,
    objects: PageVec<Sorted>,
    order: PageVec<(u64, u32)>,
    key: Vec<u8>,
    /// What its indexes are made beside.
    beside: Index,
}

impl Sorting {
    /// An index of what was found of a range, of which so many bytes at most are sorted at once.
    fn index_within(&mut self, found: Vec<Found>, bytes_max: u64) -> Index {
        let bytes: u64 = found.iter().map(|found| found.sorted_bytes).sum();
        if bytes <= bytes_max {
            return self.index_of(&found);
        }
        let mut parts = split(found, bytes / bytes_max + 1);
        if let [_] = &parts[..] {
            // Versions of one key, as far as the sample tells.
            return parts.pop().map_or_else(Index::default, |found| self.index_of(&found));
        }
        Index::joined(parts.into_iter().map(|found| self.index_within(found, bytes_max)))
    }

    fn fill(&mut self, found: &[Found]) {
        let Self { keys, objects, order, key, .. } = self;
        keys.truncate(0);
        objects.truncate(0);
        order.truncate(0);
        for found in found {
            found.each(key, &mut |Object { key, trailer, location }| {
                objects.push(Sorted { from: keys.len(), len: key.len(), trailer, location });
                keys.extend_from_slice(key);
            });
        }
    }

    /// An index of what was found of a range.
    fn index_of(&mut self, found: &[Found]) -> Index {
        self.fill(found);
        let Self { keys, objects, order, .. } = self;
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
        let mut made = IndexBuilder::beside(&self.beside);
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
    // Whose it is nobody knows; when it can be read again some day, what was written or deleted meanwhile would have
    // been forgotten.
    unreadable.map_or(Ok(()), Err)
}

/// One slot of each step, anywhere in it: flushes fill slots in the order of keys, and of those of one length the same
/// keys would be met each time.
struct Sampler {
    rng: Rng,
    step: u64,
    passed: u64,
    next: u64,
}

impl Sampler {
    /// Of so many slots about `samples`.
    fn new(slots: u64, samples: u64) -> Self {
        let (mut rng, step) = (Rng::new(slots), (slots / samples).max(1));
        let next = rng.below(step);
        Self { rng, step, passed: 0, next }
    }

    /// Of the next slots those that are looked at.
    fn of(&mut self, live: &Slots) -> Slots {
        let mut sampled = Slots::default();
        for slot in live.iter() {
            if self.passed == self.next {
                sampled.insert(slot);
                self.next = (self.passed / self.step + 1) * self.step + self.rng.below(self.step);
            }
            self.passed += 1;
        }
        sampled
    }
}

/// About so many ranges of what these slabs have, as far as a sample tells.
fn learn(tiers: &Tiers, slabs: &[(Arc<Slab>, Slots)], ranges: u64) -> Result<Ranges> {
    if ranges < 2 {
        return Ok(Ranges::default());
    }
    let objects = slabs.iter().map(|(_, live)| u64::from(live.count())).sum();
    let (mut sampler, mut keys) = (Sampler::new(objects, ranges), Vec::new());
    for (slab, live) in slabs {
        // What is damaged is found again.
        read_slab(tiers, slab, &sampler.of(live), &mut Damaged::default(), &mut |object| {
            keys.push(object.key.to_vec());
        })?;
    }
    Ok(Ranges::evenly(keys, ranges as usize))
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
    let sorted_bytes = (from.options.memory_bytes / SORTED_SHARE / u64::from(most)).max(SORTED_BYTES_MIN);
    Ok((index(found, sorted_bytes, from.sched, most)?, damaged))
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
    /// What a thread sorts at once.
    bytes_max: u64,
    made: Mutex<BTreeMap<usize, Index>>,
    /// What each of them is made beside.
    beside: Index,
}

impl Making {
    /// One thread's part of the ranges.
    fn work(&self) {
        let mut sorting = Sorting { beside: self.beside.clone(), ..Sorting::default() };
        loop {
            let mut ranges = self.ranges.lock();
            let Some(found) = ranges.pop() else { return };
            let range = ranges.len();
            drop(ranges);
            let index = sorting.index_within(found, self.bytes_max);
            self.made.lock().insert(range, index);
        }
    }
}

/// The index of what was found, which is by range; so many bytes are sorted at once by each thread.
fn index(found: Vec<Vec<Found>>, bytes_max: u64, sched: &Sched, threads: u32) -> Result<Index> {
    let threads = threads.min(found.len() as u32);
    let making = Arc::new(Making {
        ranges: Mutex::new(sched, found),
        bytes_max,
        made: Mutex::new(sched, BTreeMap::new()),
        beside: Index::default(),
    });
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
        // Behind what all share some are empty, end in zeros, or differ behind the bytes that a number holds; one is
        // longer than a piece.
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
        let index = Sorting::default().index_of(&found);
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
        let bytes: usize = found.pieces.iter().map(|piece| piece.bytes.len()).sum();
        assert!(bytes < 10_000 * 24, "{bytes}");
        let expected: Vec<_> = (0..10_000).map(|i| (key(i), i)).collect();
        assert_eq!(all(&Sorting::default().index_of(&[found])), expected);
    }

    #[test]
    fn ranges_are_about_alike_whatever_the_order_that_slots_were_filled_in() {
        // Flushes of a thousand slots in the order of keys, of which a slab has some.
        let mut slab = Slots::default();
        for slot in 0..8000 {
            slab.insert(slot);
        }
        let key = |slot: u32| (slot % 1000).to_be_bytes().to_vec();
        let mut sampler = Sampler::new(64_000, 64);
        let keys: Vec<Vec<u8>> =
            (0..8).flat_map(|_| sampler.of(&slab).iter().map(key).collect::<Vec<_>>()).collect();
        assert_eq!(keys.len(), 64);
        let ranges = Ranges::evenly(keys, 16);
        let mut found = vec![0; ranges.count()];
        (0..1000).for_each(|slot| found[ranges.of(&key(slot))] += 1);
        assert!(found.len() > 12 && found.iter().all(|count| *count < 4 * 1000 / 16), "{found:?}");
        // Of no keys, and of one.
        assert_eq!([vec![], vec![key(1); 9]].map(|keys| Ranges::evenly(keys, 4).count()), [1, 1]);
    }

    #[test]
    fn a_range_that_has_too_much_is_sorted_in_parts() {
        let key = |i: u64| [&vec![b'k'; (i % 50) as usize * 40][..], &i.to_be_bytes()].concat();
        let objects: Vec<(Vec<u8>, u64)> = (0..3000).map(|i| (key(i * 7919 % 3000), i)).collect();
        let found = || {
            let mut found = [Found::default(), Found::default()];
            objects.iter().for_each(|(key, seq)| {
                found[(seq % 2) as usize].push(&object(key, *seq), &mut Vec::new());
            });
            Vec::from(found)
        };
        let whole = all(&Sorting::default().index_of(&found()));
        for bytes_max in [u64::MAX, 1 << 20, 64 << 10, 9 << 10] {
            let mut sorting = Sorting::default();
            assert_eq!(all(&sorting.index_within(found(), bytes_max)), whole);
            let most = bytes_max.saturating_mul(3) / 2 + 8192;
            assert!((sorting.keys.len() as u64) < most, "{bytes_max}");
        }
        // Versions of one key cannot be parted.
        let mut one = Found::default();
        (0..100).for_each(|seq| one.push(&object(b"key", seq), &mut Vec::new()));
        assert_eq!(Sorting::default().index_within(vec![one], 1).entries(), 100);
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
                    found[(n / 1500) as usize][usize::from(*seq >= 10_000)]
                        .push(&object(key, *seq), &mut Vec::new());
                }
                let found = found.into_iter().map(Vec::from).collect();
                let made = index(found, u64::MAX, &sched, threads).unwrap();
                assert_eq!((all(&made), made.entries()), (expected.clone(), expected.len() as u64));
            }
        });
    }
}
