//! What a cache should hold, by traces: `cargo run --release -p cuesta-bench --example cache`.
//!
//! 200,000 records lie in blocks of 4 KiB, in key order; a budget of bytes (a tenth of the data) is shared by what is cached,
//! charged as the engine charges it. Three ways to fill it are tried, all under the admission and eviction of the engine's
//! cache (quick_cache): blocks alone; objects for point reads and blocks for scans; and both for point reads. Told is the
//! share of gets, in the second half of a million operations, that find what they look for.
//!
//! The traces: Zipfian gets (0.99, scattered); the same with a scan of 100 records in every hundred operations; and the same
//! with hot records that become others eight times.

#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta_bench::{Chooser, Distribution};
use cuesta_sched::Rng;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

const RECORDS: u64 = 200_000;
const OPERATIONS: u64 = 1_000_000;
const BLOCK_BYTES: u64 = 4096;
/// Charged besides the bytes, of a block and of an object with its key.
const OVERHEAD_BYTES: u64 = 160;
const KEY_BYTES: u64 = 23;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Blocks,
    Objects,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trace {
    Steady,
    Scans,
    Shifting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Block(u64),
    Object(u64),
}

#[derive(Clone)]
struct Weight {
    object_bytes: u64,
}

impl Weighter<Key, ()> for Weight {
    fn weight(&self, key: &Key, (): &()) -> u64 {
        match key {
            Key::Block(_) => BLOCK_BYTES + OVERHEAD_BYTES,
            Key::Object(_) => self.object_bytes + OVERHEAD_BYTES,
        }
    }
}

/// Where record `rank` of the trace lies, scattered by a bijection of the records; another one each time that it shifts.
fn place(rank: u64, shift: u64) -> u64 {
    (rank + shift * (RECORDS / 9)) % RECORDS
}

fn hit_ratio(fill: Fill, trace: Trace, value_bytes: u64) -> f64 {
    let object_bytes = value_bytes + KEY_BYTES;
    let per_block = (BLOCK_BYTES / object_bytes).max(1);
    let budget = RECORDS * object_bytes / 10;
    let items = (budget / (object_bytes + OVERHEAD_BYTES)) as usize;
    let mut cache = Cache::with_weighter(items, budget, Weight { object_bytes });
    let mut rng = Rng::new(11);
    let mut chooser = Chooser::new(Distribution::Zipfian, 0.99, RECORDS);
    let (mut gets, mut hits) = (0u64, 0u64);
    for n in 0..OPERATIONS {
        let shift = if trace == Trace::Shifting { n * 9 / OPERATIONS } else { 0 };
        let record = place(chooser.choose(&mut rng, RECORDS), shift);
        let block = Key::Block(record / per_block);
        if trace == Trace::Scans && n % 100 == 0 {
            for block in record / per_block..=(record + 100) / per_block {
                if cache.get(&Key::Block(block)).is_none() {
                    cache.insert(Key::Block(block), ());
                }
            }
            continue;
        }
        let found = fill != Fill::Blocks && cache.get(&Key::Object(record)).is_some();
        let in_block = !found && cache.get(&block).is_some();
        if !found && fill != Fill::Blocks {
            cache.insert(Key::Object(record), ());
        }
        if !found && !in_block && fill != Fill::Objects {
            cache.insert(block, ());
        }
        if n >= OPERATIONS / 2 {
            gets += 1;
            hits += u64::from(found || in_block);
        }
    }
    hits as f64 / gets as f64
}

fn main() {
    println!("value bytes   trace       blocks   objects, blocks for scans   both");
    for value_bytes in [100, 400, 1000, 3000] {
        for trace in [Trace::Steady, Trace::Scans, Trace::Shifting] {
            let [blocks, objects, both] = [Fill::Blocks, Fill::Objects, Fill::Both]
                .map(|fill| 100.0 * hit_ratio(fill, trace, value_bytes));
            let name = format!("{trace:?}");
            println!("{value_bytes:>11}   {name:<9} {blocks:>6.1} % {objects:>26.1} % {both:>4.1} %");
        }
    }
}
