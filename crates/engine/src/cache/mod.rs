//! The cache: blocks and objects under one budget and one admission.
//!
//! Scans leave the blocks that they read, and so do indexes and filters; a point read leaves its object, key and value,
//! so that a hot record takes no more room than its own ([`object`]). Where that serves worse, since no record is
//! hotter than others or each is nearly a block, point reads leave blocks, too; which of the two it is, is tried out
//! all the time ([`duel`]). A part of the budget holds the blocks that point reads met last, for reads of neighbours.
//! Hit ratios on traces, and why so: `docs/decisions/0009-objects-in-the-cache.md`.
//!
//! What it may hold together is what others leave of the memory number (`memory`). Admission and eviction are
//! quick_cache's: a small queue for newcomers in front of a clock for what was used again, so a scan passes through
//! without emptying it. Hashing is seeded, and the number of shards fixed, so that simulated runs repeat.
//!
//! A hit is one shard's read lock, which no writer of the store takes, and one reference count.

mod block;
mod duel;
mod object;
mod pool;

pub(crate) use block::{Block, BlockKey, BlockSlice, FRAME_BYTES, LARGE_BYTES};
pub(crate) use object::Object;

use crate::error::Result;
use crate::key::{self, Cursor, Entry, Kind, Seq, Target};
use crate::memory::{Holder, Memory};
use crate::planted::{self, Bug};
use crate::range_tombstones::RangeTombstones;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use duel::{Duel, Sampled};
use pool::Pool;
use quick_cache::sync::{Cache as Shards, DefaultLifecycle, EntryAction};
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Charged for each item besides what it holds: its entry, queues, and what these grow by.
const ENTRY_BYTES: usize = 96;
/// For a block, its reference counts and what the heap adds to these, too.
const BLOCK_OVERHEAD_BYTES: usize = ENTRY_BYTES + 64;
/// About what an item takes: for so many the cache remembers names of what it has evicted.
const ITEM_BYTES: usize = 1024;
/// The blocks that were met last have one part in so many of the budget.
const LAST_SHARE: u64 = 32;
/// Names of what was evicted, and the duel, take one part in so many.
const BOOKS_SHARE: u64 = 24;
/// A value becomes an object if it weighs at most so many quarters of its block.
const OBJECT_QUARTERS: usize = 3;
/// Of the objects that reads find in the store below the memtable, one in so many is kept. What lies there is hot, and
/// has been read from the fast tier; if the cache kept each, it would have the same objects once more, and those that
/// are hottest among the others would be read from the capacity tier every time. So what costs little to read has to be
/// asked for more often to be kept (an inclusive cache: Wong and Wilkes, "My cache or yours?", USENIX ATC 2002).
const FOUND_KEPT: u64 = 16;
/// A change of what it may have that is less than one part in so many of it waits.
const FIT_SHARE: u64 = 64;
const SHARDS: usize = 16;
/// Pages that are emptied at once, of 16 KiB where objects have a kilobyte.
const EMPTIED_AT_ONCE: usize = 64;
/// A change of what holes take that is less than one part in so many of the memory number waits to be told.
const HOLES_TOLD_SHARE: u64 = 256;

/// Objects are named by a hash of their key, so whoever finds one looks at its key. Two keys of one hash take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Block(BlockKey),
    Object(u64),
}

impl Name {
    fn of_object(key: &[u8]) -> Self {
        Self::Object(key::hash(key))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Block(key) => key.hash(state),
            Self::Object(hash) => state.write_u64(*hash),
        }
    }
}

impl Equivalent<Name> for BlockKey {
    fn equivalent(&self, name: &Name) -> bool {
        matches!(name, Name::Block(key) if key == self)
    }
}

#[derive(Clone, Debug)]
enum Item {
    Block(Block),
    Object(Object),
}

impl Item {
    /// The object of a key, if that is what it is.
    fn object(self, key: &[u8]) -> Option<Object> {
        match self {
            Self::Object(object) if object.key() == key => Some(object),
            _ => None,
        }
    }

    /// Whether it is this object, in this slot.
    fn is(&self, object: &Object) -> bool {
        matches!(self, Self::Object(other) if other.is(object))
    }
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Name, Item> for Weight {
    fn weight(&self, _: &Name, item: &Item) -> u64 {
        match item {
            Item::Block(block) => block_weight(block) as u64,
            Item::Object(object) => weight_of(object) as u64,
        }
    }
}

impl Weighter<BlockKey, Block> for Weight {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        block_weight(block) as u64
    }
}

fn block_weight(block: &Block) -> usize {
    block.held_bytes() + BLOCK_OVERHEAD_BYTES
}

fn weight_of(object: &Object) -> usize {
    object.slot_bytes() + ENTRY_BYTES
}

/// The same, of key and value of so many bytes.
fn object_weight(bytes: usize) -> usize {
    pool::slot_bytes_of(bytes) + ENTRY_BYTES
}

/// A hash of numbers, seeded.
#[derive(Clone, Debug)]
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        self.clone()
    }
}

impl Hasher for Seeded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = (mixed ^ mixed >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53) ^ mixed >> 29;
    }
}

/// How many flushes had begun at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushes(u64);

/// A point read that a table's block answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointRead<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) value: &'a BlockSlice,
    pub(crate) block: BlockKey,
    /// The cache had the block, and not only among those met last.
    pub(crate) was_cached: bool,
    /// For a read as of now, what was noted before it loaded its set of containers.
    pub(crate) fresh: Option<Flushes>,
}

/// Lookups so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Lookups that found what they asked for.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
}

#[derive(Debug, Default)]
struct Hits {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Hits {
    fn count(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> HitCounts {
        HitCounts { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

/// What was read, up to a number of bytes.
pub(crate) struct Cache {
    items: Shards<Name, Item, Weight, Seeded>,
    /// Blocks that point reads met last.
    last: Shards<BlockKey, Block, Weight, Seeded>,
    duel: Duel,
    memory: Arc<Memory>,
    /// What it was last told that it may have.
    capacity: AtomicU64,
    /// Somebody changes that.
    fitting: AtomicBool,
    /// Flushes that have begun.
    flushes: AtomicU64,
    /// An object was inserted at some time.
    has_objects: AtomicBool,
    /// Objects that were found in the store below the memtable.
    found: AtomicU64,
    pool: Arc<Pool>,
    block_hits: Hits,
    object_hits: Hits,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} of {} bytes, {:?})", self.bytes(), self.items.capacity(), self.duel)
    }
}

/// Of a budget, what items and the blocks met last may have.
fn parts(bytes: u64) -> (u64, u64) {
    let last = bytes / LAST_SHARE;
    (bytes - last - bytes / BOOKS_SHARE, last)
}

impl Cache {
    /// A cache of at most `bytes`.
    pub(crate) fn new(bytes: u64, seed: u64) -> Self {
        Self::within(Memory::new(bytes, 0, 0), seed)
    }

    /// A cache of what others leave of `memory`.
    pub(crate) fn within(memory: Arc<Memory>, seed: u64) -> Self {
        let bytes = memory.for_cache();
        let (items, last) = parts(bytes);
        let options = |bytes: u64, item: usize| {
            OptionsBuilder::new()
                .estimated_items_capacity((bytes as usize / item).max(64))
                .weight_capacity(bytes)
                .shards(SHARDS)
                .build()
                .unwrap_or_else(|error| panic!("both capacities are given: {error}"))
        };
        let hash = || Seeded(seed);
        Self {
            items: Shards::with_options(
                options(items, ITEM_BYTES),
                Weight,
                hash(),
                DefaultLifecycle::default(),
            ),
            last: Shards::with_options(
                options(last, FRAME_BYTES),
                Weight,
                hash(),
                DefaultLifecycle::default(),
            ),
            duel: Duel::new(items, seed),
            memory,
            capacity: AtomicU64::new(bytes),
            fitting: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            has_objects: AtomicBool::new(false),
            found: AtomicU64::new(0),
            pool: Arc::default(),
            block_hits: Hits::default(),
            object_hits: Hits::default(),
        }
    }

    /// The number that it has a part of.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Gives up what others hold by now, or takes what they have let go of, and closes holes between objects, unless
    /// somebody is at it: two at once could leave what the slower one was told.
    pub(crate) fn fit(&self) {
        let holes = self.pool.hole_bytes();
        if holes.abs_diff(self.memory.held(Holder::Holes)) > self.memory.limit() / HOLES_TOLD_SHARE {
            self.memory.set(Holder::Holes, holes);
        }
        let (has, may) = (self.capacity.load(Ordering::Relaxed), self.memory.for_cache());
        let is_off = has.abs_diff(may) > has / FIT_SHARE;
        if (is_off || self.pool.has_holes()) && !self.fitting.swap(true, Ordering::Acquire) {
            if is_off {
                self.capacity.store(may, Ordering::Relaxed);
                let (items, last) = parts(may);
                self.items.set_capacity(items);
                self.last.set_capacity(last);
                self.duel.set_bytes(items);
            }
            self.close_holes();
            self.fitting.store(false, Ordering::Release);
        }
    }

    /// [`Self::fit`], before something comes in.
    fn take_in(&self) {
        self.memory.cache_takes();
        self.fit();
    }

    /// Moves objects together, so that pages go back to the system: some ten microseconds for each page.
    fn close_holes(&self) {
        for _ in 0..EMPTIED_AT_ONCE {
            if !self.pool.has_holes() {
                return;
            }
            let Some(page) = self.pool.begin_emptying() else { return };
            page.objects.iter().for_each(|object| self.relocate(object));
            self.pool.end_emptying(page);
        }
    }

    /// Puts a copy in the place of an object, if that is still here.
    pub(crate) fn relocate(&self, object: &Object) {
        let name = Name::of_object(object.key());
        // Whoever inserted one that is not confirmed yet is about to look for it by its slot.
        if object.is_confirmed() && self.items.peek(&name).is_some_and(|item| item.is(object)) {
            let copy = self.pool.copy(object);
            // Under the shard's lock, so that a flush replaces either the one or the other. It counts as a use of the
            // object. Where there is none by now, what is answered ends with this line, and so does the place that it
            // has kept.
            let _ = self.items.entry(&name, Some(Duration::ZERO), |_, item| {
                if item.is(object) {
                    *item = Item::Object(copy);
                }
                EntryAction::Retain(())
            });
        }
    }

    /// A block that was kept.
    pub(crate) fn block(&self, key: BlockKey) -> Option<Block> {
        let found = self.kept_block(key);
        self.block_hits.count(found.is_some());
        found
    }

    fn kept_block(&self, key: BlockKey) -> Option<Block> {
        match self.items.get(&key) {
            Some(Item::Block(block)) => Some(block),
            _ => None,
        }
    }

    /// As [`Cache::block`] for a point read, which may have met it a moment ago; and whether it was kept.
    pub(crate) fn block_for_point(&self, key: BlockKey) -> Option<(Block, bool)> {
        let kept = self.kept_block(key).map(|block| (block, true));
        let found = kept.or_else(|| self.last.get(&key).map(|block| (block, false)));
        self.block_hits.count(found.is_some());
        found
    }

    /// As [`Cache::block`], for who only wants to know what is there: counts as no lookup, and the block stays as hot
    /// as it was.
    pub(crate) fn peek_block(&self, key: BlockKey) -> Option<Block> {
        match self.items.peek(&key) {
            Some(Item::Block(block)) => Some(block),
            _ => None,
        }
    }

    /// Whether a lookup would find the block; counts as none.
    pub(crate) fn has_block(&self, key: BlockKey) -> bool {
        self.items.peek(&key).is_some() || self.last.peek(&key).is_some()
    }

    pub(crate) fn keep_block(&self, key: BlockKey, block: Block) {
        self.take_in();
        self.items.insert(Name::Block(key), Item::Block(block));
    }

    /// Keeps a block for a moment, until the point read that met it says what it left.
    pub(crate) fn keep_for_point(&self, key: BlockKey, block: Block) {
        self.take_in();
        self.last.insert(key, block);
    }

    /// To be noted by a reader before it loads its set of containers.
    pub(crate) fn flushes(&self) -> Flushes {
        Flushes(self.flushes.load(Ordering::SeqCst))
    }

    /// The newest version of a key that tables have, if that is one that a read at `at` may see. The memtables must
    /// have been asked.
    pub(crate) fn object(&self, key: &[u8], at: Seq) -> Option<Object> {
        if !self.has_objects.load(Ordering::Relaxed) {
            return None;
        }
        let found = self.items.get(&Name::of_object(key)).and_then(|item| item.object(key));
        let found = found.filter(|object| object.is_confirmed() && object.seq() <= at);
        self.object_hits.count(found.is_some());
        if let Some(object) = &found
            && object.sample().0 != 0
        {
            self.play(object.key(), weight_of(object), object.sample());
        }
        found
    }

    /// Number of what [`Cache::object`] would find, and bytes of its value; counts as no lookup.
    pub(crate) fn peek_object(&self, key: &[u8], at: Seq) -> Option<(Seq, usize)> {
        let found = self.items.peek(&Name::of_object(key)).and_then(|item| item.object(key));
        let found = found.filter(|object| object.is_confirmed() && object.seq() <= at);
        found.map(|object| (object.seq(), object.value().len()))
    }

    fn play(&self, key: &[u8], object_weight: usize, (block, block_weight): (u32, u32)) {
        let (object, object_weight) = (key::hash(key), object_weight as u32);
        self.duel.play(&Sampled { block, block_weight, object, object_weight });
    }

    /// Keeps what a point read is best remembered by.
    pub(crate) fn keep_read(&self, read: &PointRead<'_>) {
        let block = read.value.block();
        let (object_weight, block_weight) =
            (object_weight(read.key.len() + read.value.len()), block_weight(block));
        if object_weight * 4 <= block_weight * OBJECT_QUARTERS {
            let of = (self.duel.sample(read.block), block_weight as u32);
            if of.0 != 0 {
                self.play(read.key, object_weight, of);
            }
            if let Some(fresh) = read.fresh.filter(|_| !self.duel.prefers_blocks()) {
                return self.keep_object(self.pool.object(read.key, read.seq, read.value, of), fresh);
            }
        }
        if !read.was_cached {
            self.keep_block(read.block, block.clone());
        }
    }

    /// Keeps an object that the store below the memtable has, now and then: see [`FOUND_KEPT`].
    pub(crate) fn keep_found(&self, entry: &Entry<'_>, noted: Flushes) {
        if !self.found.fetch_add(1, Ordering::Relaxed).is_multiple_of(FOUND_KEPT) {
            return;
        }
        if entry.key.len() + entry.value.len() <= FRAME_BYTES {
            let seq = entry.trailer.seq();
            self.keep_object(self.pool.object(entry.key, seq, entry.value, (0, 0)), noted);
        }
    }

    /// See [`object`] for why it is inserted first and confirmed after.
    fn keep_object(&self, object: Object, noted: Flushes) {
        // A flush that does not see this is seen below.
        if !self.has_objects.load(Ordering::SeqCst) {
            self.has_objects.store(true, Ordering::SeqCst);
        }
        self.take_in();
        let name = Name::of_object(object.key());
        self.items.insert(name, Item::Object(object.clone()));
        if self.flushes() == noted || planted::has(Bug::ObjectConfirmedBlindly) {
            object.confirm();
        } else {
            drop(self.items.remove_if(&name, |item| item.is(&object)));
        }
    }

    /// Takes in that the entries under `written` are about to come into tables or slots: objects of their keys become
    /// newer where they are to `stay`, or go; and that `erased` are about to come into the version: objects that they
    /// cover go. To be called when every reader can see all of them, and before tables or slots are. Costs a lookup per
    /// key, once there are objects, and a look at all objects where ranges are erased.
    ///
    /// # Errors
    /// What the cursor says.
    pub(crate) fn flush(
        &self,
        written: &mut dyn Cursor,
        erased: &RangeTombstones,
        stay: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        if !self.has_objects.load(Ordering::SeqCst) || planted::has(Bug::ObjectOutlivesFlush) {
            return Ok(());
        }
        let mut previous = Vec::new();
        written.go(Target::First)?;
        while let Some(entry) = written.entry() {
            if previous != entry.key {
                previous.clear();
                previous.extend_from_slice(entry.key);
                let name = Name::of_object(entry.key);
                if let Some(old) = self.items.peek(&name).and_then(|item| item.object(entry.key)) {
                    let small = entry.value.len() <= FRAME_BYTES;
                    if small && entry.trailer.kind() == Some(Kind::Put) && stay(entry.key) {
                        let seq = entry.trailer.seq();
                        let object = self.pool.object(entry.key, seq, entry.value, old.sample());
                        object.confirm();
                        // One that was evicted in between stays away.
                        drop(self.items.replace(name, Item::Object(object), true));
                    } else {
                        drop(self.items.remove(&name));
                    }
                }
            }
            written.next()?;
        }
        if !erased.is_empty() && !planted::has(Bug::ErasedObjectsKept) {
            self.items.retain(|_, item| match item {
                Item::Object(object) => erased.covering(object.key(), Seq::MAX) <= object.seq(),
                _ => true,
            });
        }
        Ok(())
    }

    /// Bytes charged at present.
    pub(crate) fn bytes(&self) -> u64 {
        self.items.weight() + self.last.weight()
    }

    fn counters(&self) -> [&AtomicU64; 4] {
        let (blocks, objects) = (&self.block_hits, &self.object_hits);
        [&blocks.hits, &blocks.misses, &objects.hits, &objects.misses]
    }

    /// Lookups so far, to be kept over restarts.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        self.counters().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Goes on counting from what [`Cache::numbers`] gave.
    pub(crate) fn restore(&self, numbers: [u64; 4]) {
        self.counters().into_iter().zip(numbers).for_each(|(counter, n)| counter.store(n, Ordering::Relaxed));
    }

    /// Lookups of blocks so far.
    pub(crate) fn block_hits(&self) -> HitCounts {
        self.block_hits.get()
    }

    /// Lookups of objects so far.
    pub(crate) fn object_hits(&self) -> HitCounts {
        self.object_hits.get()
    }
}

#[cfg(test)]
mod tests;
