//! The block cache.
//!
//! Blocks of up to a page live in frames of 4 KiB, and large ones in pages of their own, which come from the system and
//! go back to it, so a cache that turns over does not fragment memory; those between are on the heap. A block is charged
//! by its length, a frame at least. How much the cache may hold is what others leave of the memory number (`memory`).
//! Admission and eviction are quick_cache's: a small queue for newcomers in front of a clock for what was used again, so a
//! scan passes through without emptying it. Hashing is seeded, and the number of shards fixed, so that simulated runs repeat.
//!
//! A hit is one shard's read lock, which no writer of the store takes, and one reference count.

use crate::memory::Memory;
use cuesta_device::AlignedBuf;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = 4096;
/// A block of so many bytes has pages of its own.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
/// Charged for each cached block besides its bytes: entry, reference counts, queues.
const OVERHEAD_BYTES: u64 = 160;
/// A change of what it may have that is less than one part in so many of it waits.
const FIT_SHARE: u64 = 64;
const SHARDS: usize = 16;

/// A block's bytes in memory. Clones share them.
#[derive(Clone)]
pub(crate) struct Block {
    inner: Arc<BlockBytes>,
}

struct BlockBytes {
    bytes: Bytes,
    len: usize,
}

enum Bytes {
    /// A frame, or as many pages as a large block needs.
    Pages(AlignedBuf),
    /// On the heap, which wastes less on sizes between pages.
    Heap(Box<[u8]>),
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.inner.bytes {
            Bytes::Pages(pages) => &pages[..self.inner.len],
            Bytes::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

/// Part of a block, which it keeps alive.
#[derive(Clone, Debug)]
pub(crate) struct BlockSlice {
    block: Block,
    range: Range<usize>,
}

impl BlockSlice {
    pub(crate) fn new(block: Block, range: Range<usize>) -> Self {
        debug_assert!(range.end <= block.len());
        Self { block, range }
    }
}

impl Deref for BlockSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

/// Which block: table, part and offset in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) table: u64,
    /// Twice the offset, plus one in the meta part.
    pub(crate) at: u64,
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<BlockKey, Block> for Weight {
    fn weight(&self, _: &BlockKey, block: &Block) -> u64 {
        (block.len().max(FRAME_BYTES)) as u64 + OVERHEAD_BYTES
    }
}

/// A hash of the two numbers of a key, seeded.
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

/// Whether a read leaves its block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Yes,
    /// For merges, which read everything once.
    No,
}

/// Blocks that were read, up to a number of bytes.
pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, Block, Weight, Seeded>,
    memory: Arc<Memory>,
    /// What it was last told that it may have.
    capacity: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCache({} of {} bytes)", self.blocks.weight(), self.blocks.capacity())
    }
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub(crate) fn new(bytes: u64, seed: u64) -> Self {
        Self::within(Memory::new(bytes, 0), seed)
    }

    /// A cache of what others leave of `memory`.
    pub(crate) fn within(memory: Arc<Memory>, seed: u64) -> Self {
        let bytes = memory.for_cache();
        let items = (bytes / FRAME_BYTES as u64).max(64) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .shards(SHARDS)
            .build()
            .unwrap_or_else(|error| panic!("both capacities are given: {error}"));
        let blocks = Cache::with_options(options, Weight, Seeded(seed), DefaultLifecycle::default());
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { blocks, memory, capacity: AtomicU64::new(bytes), hits, misses }
    }

    /// The number that it has a part of.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Gives up what others hold by now, or takes what they have let go of.
    pub(crate) fn fit(&self) {
        let (has, may) = (self.capacity.load(Ordering::Relaxed), self.memory.for_cache());
        if has.abs_diff(may) > has / FIT_SHARE {
            self.capacity.store(may, Ordering::Relaxed);
            self.blocks.set_capacity(may);
        }
    }

    pub(crate) fn get(&self, key: BlockKey) -> Option<Block> {
        let found = self.blocks.get(&key);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether a lookup would hit; counts as none.
    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.blocks.peek(&key).is_some()
    }

    pub(crate) fn insert(&self, key: BlockKey, block: Block) {
        self.fit();
        self.blocks.insert(key, block);
    }

    /// Memory for a block of `len` bytes, filled by `fill`.
    pub(crate) fn block<E>(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Block, E> {
        let bytes = if len <= FRAME_BYTES || len >= LARGE_BYTES {
            let mut pages = AlignedBuf::zeroed(len);
            fill(&mut pages[..len])?;
            Bytes::Pages(pages)
        } else {
            let mut bytes = vec![0; len].into_boxed_slice();
            fill(&mut bytes)?;
            Bytes::Heap(bytes)
        };
        Ok(Block { inner: Arc::new(BlockBytes { bytes, len }) })
    }

    /// Bytes charged at present.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Lookups so far.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cache: &BlockCache, len: usize, byte: u8) -> Block {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        };
        cache.block(len, fill).unwrap()
    }

    #[test]
    fn the_cache_stays_within_its_bytes() {
        let cache = BlockCache::new(1 << 20, 7);
        for at in 0..2000 {
            let len = if at % 7 == 0 { 20_000 } else { 4000 };
            cache.insert(BlockKey { table: 1, at }, block(&cache, len, at as u8));
            assert!(cache.bytes() <= 1 << 20);
        }
        assert!(cache.bytes() > 1 << 19);
    }

    #[test]
    fn a_block_lives_on_for_those_who_hold_it() {
        let cache = BlockCache::new(1 << 20, 7);
        let key = BlockKey { table: 1, at: 0 };
        cache.insert(key, block(&cache, 100, 5));
        let slice = BlockSlice::new(cache.get(key).unwrap(), 10..20);
        for at in 1..2000 {
            cache.insert(BlockKey { table: 1, at }, block(&cache, 4000, 9));
        }
        assert_eq!(*slice, [5; 10]);
        assert_eq!(cache.hits_and_misses().0, 1);
    }

    #[test]
    fn a_scan_does_not_empty_the_cache_of_what_is_used_again() {
        let cache = BlockCache::new(4 << 20, 7);
        let hot: Vec<_> = (0..200).map(|at| BlockKey { table: 1, at }).collect();
        for _ in 0..5 {
            for key in &hot {
                if cache.get(*key).is_none() {
                    cache.insert(*key, block(&cache, 4000, 1));
                }
            }
        }
        for at in 0..20_000 {
            cache.insert(BlockKey { table: 2, at }, block(&cache, 4000, 2));
        }
        let kept = hot.iter().filter(|key| cache.get(**key).is_some()).count();
        assert!(kept > 150, "{kept} of 200 hot blocks survived a scan");
    }
}
