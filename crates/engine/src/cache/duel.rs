//! What point reads should leave in the cache, objects or blocks, found out by trying both.
//!
//! Of one block in so many, point reads are played a second time against two small caches that hold names and weights
//! only: one keeps blocks, the other objects and, as the real one does, the blocks that were met last. Each has the
//! share of the real cache's budget that these blocks are of all. Whichever has found more of late says what the real
//! one does. Where some records are hot, objects win, since a block's other records take no room; where all are alike,
//! small records do better in blocks, which cost less besides their bytes.
//!
//! The idea is that of set dueling: Qureshi et al., "Adaptive insertion policies for high performance caching", ISCA 2007.
//! A read of a block that is not in the sample costs one hash of two numbers; one that is, about three lookups.

use super::block::{BlockKey, FRAME_BYTES};
use super::{LAST_SHARE, Seeded};
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::fmt;
use std::hash::BuildHasher;

/// At least one block in so many is in the sample.
const SAMPLE_LEAST: u64 = 16;
/// The small caches stand for at most so many bytes.
const STANDS_FOR_MAX: u64 = 4 << 20;
/// Reads after which what was found before counts half.
const ROUND: u64 = 1024;
/// Blocks must find so much more: one part in so many.
const MARGIN_SHARE: u64 = 32;

/// Names, with the bytes that each stands for.
type Names = Cache<u64, u32, Weights, Seeded>;

#[derive(Clone, Debug)]
struct Weights;

impl Weighter<u64, u32> for Weights {
    fn weight(&self, _: &u64, weight: &u32) -> u64 {
        u64::from(*weight)
    }
}

/// A read of a sampled block's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    /// From [`Duel::sample`]; not 0.
    pub(super) block: u32,
    pub(super) block_weight: u32,
    /// Hash of the key.
    pub(super) object: u64,
    pub(super) object_weight: u32,
}

pub(super) struct Duel {
    hash: Seeded,
    /// One block in so many, a power of two.
    one_in: u64,
    blocks: Names,
    objects: Names,
    last: Names,
    reads: AtomicU64,
    blocks_found: AtomicU64,
    objects_found: AtomicU64,
    blocks_won: AtomicBool,
}

impl Duel {
    /// For a cache of `bytes`.
    pub(super) fn new(bytes: u64, seed: u64) -> Self {
        let one_in = (bytes / STANDS_FOR_MAX).next_power_of_two().max(SAMPLE_LEAST);
        let hash = Seeded(seed);
        let names = |bytes: u64, least: usize| {
            let options = OptionsBuilder::new()
                .estimated_items_capacity((bytes as usize / least).max(16))
                .weight_capacity(bytes)
                .shards(1)
                .build()
                .unwrap_or_else(|error| panic!("both capacities are given: {error}"));
            Cache::with_options(options, Weights, hash.clone(), DefaultLifecycle::default())
        };
        let share = bytes / one_in;
        Self {
            one_in,
            blocks: names(share, FRAME_BYTES),
            objects: names(share - share / LAST_SHARE, super::ITEM_BYTES),
            last: names(share / LAST_SHARE, FRAME_BYTES),
            hash,
            reads: AtomicU64::new(0),
            blocks_found: AtomicU64::new(0),
            objects_found: AtomicU64::new(0),
            blocks_won: AtomicBool::new(false),
        }
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        let share = bytes / self.one_in;
        self.blocks.set_capacity(share);
        self.objects.set_capacity(share - share / LAST_SHARE);
        self.last.set_capacity(share / LAST_SHARE);
    }

    /// A name for `block` if it is in the sample, else 0.
    pub(super) fn sample(&self, block: BlockKey) -> u32 {
        let hash = self.hash.hash_one(block);
        if (hash >> 32) & (self.one_in - 1) == 0 { hash as u32 | 1 } else { 0 }
    }

    /// Whether point reads should leave blocks.
    pub(super) fn prefers_blocks(&self) -> bool {
        self.blocks_won.load(Ordering::Relaxed)
    }

    /// Plays a read against both.
    pub(super) fn play(&self, read: &Sampled) {
        let block = u64::from(read.block);
        let found = |names: &Names, name| u64::from(names.get(&name).is_some());
        let in_blocks = found(&self.blocks, block);
        if in_blocks == 0 {
            self.blocks.insert(block, read.block_weight);
        }
        let as_object = found(&self.objects, read.object);
        let in_last = if as_object == 0 { found(&self.last, block) } else { 0 };
        if as_object == 0 {
            self.objects.insert(read.object, read.object_weight);
        }
        if as_object + in_last == 0 {
            self.last.insert(block, read.block_weight);
        }
        let blocks_found = self.blocks_found.fetch_add(in_blocks, Ordering::Relaxed) + in_blocks;
        let in_objects = as_object + in_last;
        let objects_found = self.objects_found.fetch_add(in_objects, Ordering::Relaxed) + in_objects;
        if self.reads.fetch_add(1, Ordering::Relaxed) % ROUND == ROUND - 1 {
            // Reads beside this one may be counted or not; the next round has as many more.
            let won = blocks_found > objects_found + objects_found / MARGIN_SHARE;
            self.blocks_won.store(won, Ordering::Relaxed);
            self.blocks_found.store(blocks_found / 2, Ordering::Relaxed);
            self.objects_found.store(objects_found / 2, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Duel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let winner = if self.prefers_blocks() { "blocks" } else { "objects" };
        write!(f, "Duel({winner}, one block in {})", self.one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    /// Records of so many bytes, forty to a block, chosen by `choose`: which of the two wins?
    fn blocks_win(object_weight: u32, mut choose: impl FnMut(&mut Rng) -> u64) -> bool {
        let duel = Duel::new(4 << 20, 7);
        let mut rng = Rng::new(3);
        for _ in 0..400_000 {
            let record = choose(&mut rng);
            let block = duel.sample(BlockKey { table: 1, at: record / 40 * 4096 });
            if block != 0 {
                let object = record.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                duel.play(&Sampled { block, block_weight: 4256, object, object_weight });
            }
        }
        duel.prefers_blocks()
    }

    #[test]
    fn objects_win_where_few_are_hot_and_blocks_where_all_are_alike() {
        // 12 MiB of records and a cache of 4; one in forty is hot.
        assert!(!blocks_win(290, |rng| if rng.one_in(5) {
            rng.below(120_000)
        } else {
            rng.below(3000) * 40
        }));
        assert!(blocks_win(290, |rng| rng.below(120_000)));
    }

    #[test]
    fn the_winner_changes_with_what_is_read() {
        let mut n = 0;
        let hot_at_last = |rng: &mut Rng| {
            n += 1;
            if n < 200_000 { rng.below(120_000) } else { rng.below(3000) * 40 }
        };
        assert!(!blocks_win(290, hot_at_last));
    }
}
