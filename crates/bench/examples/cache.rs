//! What a cache should hold, by traces: `cargo run --release -p cuesta-bench --example cache`.
//!
//! 200,000 records lie in blocks of 4 KiB, in key order; a budget, some share of the data, is shared by what is cached,
//! charged as the engine charges it. Four ways to fill it are tried, all under the admission and eviction of the
//! engine's cache (quick_cache): blocks alone; objects for point reads and blocks for scans; the same with a 32nd of
//! the budget for the blocks that point reads met last; and both for point reads. Beside them, the engine's own cache.
//! Told is the share of gets, in the second half of a million operations, that find what they look for.
//!
//! The traces: Zipfian gets (0.99, scattered); the same with a scan of 100 records in every hundred operations; the
//! same with hot records that become others eight times; gets of 16 neighbours in a row, as one fetches what another
//! index has named; and gets that prefer no record.

#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::internals::CacheTrial;
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
/// The blocks that were met last have one part in so many.
const LAST_SHARE: u64 = 32;
/// Gets in a row, of neighbours.
const NEIGHBOURS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fill {
    Blocks,
    Objects,
    ObjectsAndLast,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trace {
    Steady,
    Scans,
    Shifting,
    Neighbours,
    Uniform,
}

const TRACES: [Trace; 5] = [Trace::Steady, Trace::Scans, Trace::Shifting, Trace::Neighbours, Trace::Uniform];

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

/// What is asked, one after the other.
#[derive(Clone, Copy)]
enum Operation {
    Get(u64),
    Scan(u64),
}

/// Where record `rank` of the trace lies, scattered by a bijection of the records; another one each time that it
/// shifts.
fn place(rank: u64, shift: u64) -> u64 {
    (rank + shift * (RECORDS / 9)) % RECORDS
}

fn operations(trace: Trace) -> impl Iterator<Item = Operation> {
    let mut rng = Rng::new(11);
    let distribution = if trace == Trace::Uniform { Distribution::Uniform } else { Distribution::Zipfian };
    let mut chooser = Chooser::new(distribution, 0.99, RECORDS, 11);
    let mut first = 0;
    (0..OPERATIONS).map(move |n| {
        let shift = if trace == Trace::Shifting { n * 9 / OPERATIONS } else { 0 };
        let record = match trace == Trace::Neighbours && n % NEIGHBOURS > 0 {
            true => (first + n % NEIGHBOURS) % RECORDS,
            false => place(chooser.choose(&mut rng, RECORDS), shift),
        };
        if n % NEIGHBOURS == 0 {
            first = record;
        }
        if trace == Trace::Scans && n % 100 == 0 { Operation::Scan(record) } else { Operation::Get(record) }
    })
}

/// Shape of the records: bytes with key, and how many a block has.
#[derive(Clone, Copy)]
struct Records {
    value_bytes: u64,
    object_bytes: u64,
    per_block: u64,
    budget: u64,
}

impl Records {
    fn new(value_bytes: u64, percent: u64) -> Self {
        let object_bytes = value_bytes + KEY_BYTES;
        let per_block = (BLOCK_BYTES / object_bytes).max(1);
        Self { value_bytes, object_bytes, per_block, budget: RECORDS * object_bytes * percent / 100 }
    }

    fn scanned(self, record: u64) -> impl Iterator<Item = u64> {
        record / self.per_block..=(record + 100) / self.per_block
    }
}

fn tried(fill: Fill, trace: Trace, records: Records) -> f64 {
    let Records { object_bytes, per_block, budget, .. } = records;
    let last = if fill == Fill::ObjectsAndLast { budget / LAST_SHARE } else { 0 };
    let weight = || Weight { object_bytes };
    let mut last_blocks = Cache::with_weighter((last / BLOCK_BYTES) as usize, last, weight());
    let budget = budget - last;
    let items = (budget / (object_bytes + OVERHEAD_BYTES)) as usize;
    let mut cache = Cache::with_weighter(items, budget, weight());
    hit_ratio(trace, |operation| match operation {
        Operation::Scan(record) => {
            for block in records.scanned(record).map(Key::Block) {
                if cache.get(&block).is_none() {
                    cache.insert(block, ());
                }
            }
            false
        }
        Operation::Get(record) => {
            let block = Key::Block(record / per_block);
            let found = fill != Fill::Blocks && cache.get(&Key::Object(record)).is_some();
            let in_block = !found && (cache.get(&block).is_some() || last_blocks.get(&block).is_some());
            if !found && !in_block && fill == Fill::ObjectsAndLast {
                last_blocks.insert(block, ());
            }
            if !found && fill != Fill::Blocks {
                cache.insert(Key::Object(record), ());
            }
            if !found && !in_block && matches!(fill, Fill::Blocks | Fill::Both) {
                cache.insert(block, ());
            }
            found || in_block
        }
    })
}

/// The same for the engine's cache.
fn built(trace: Trace, records: Records) -> f64 {
    let cache = CacheTrial::new(records.budget);
    let block_bytes = BLOCK_BYTES as usize;
    hit_ratio(trace, |operation| match operation {
        Operation::Scan(record) => {
            records.scanned(record).for_each(|block| cache.scan(block, block_bytes));
            false
        }
        Operation::Get(record) => {
            let mut key = [0; KEY_BYTES as usize];
            key[..8].copy_from_slice(&record.to_be_bytes());
            cache.get(&key, records.value_bytes as usize, record / records.per_block, block_bytes)
        }
    })
}

fn hit_ratio(trace: Trace, mut found: impl FnMut(Operation) -> bool) -> f64 {
    let (mut gets, mut hits) = (0u64, 0u64);
    for (n, operation) in operations(trace).enumerate() {
        let hit = found(operation);
        if matches!(operation, Operation::Get(_)) && n as u64 >= OPERATIONS / 2 {
            gets += 1;
            hits += u64::from(hit);
        }
    }
    100.0 * hits as f64 / gets as f64
}

fn main() {
    println!("cache  value  trace        blocks  objects  and the last blocks   both  engine's cache");
    for percent in [10, 50] {
        for value_bytes in [100, 400, 1000, 3000] {
            let records = Records::new(value_bytes, percent);
            for trace in TRACES {
                let [blocks, objects, last, both] =
                    [Fill::Blocks, Fill::Objects, Fill::ObjectsAndLast, Fill::Both]
                        .map(|fill| tried(fill, trace, records));
                let built = built(trace, records);
                let name = format!("{trace:?}");
                println!(
                    "{percent:>3} %  {value_bytes:>5}  {name:<10} {blocks:>6.1} % {objects:>6.1} % {last:>18.1} % \
                     {both:>5.1} % {built:>12.1} %"
                );
            }
        }
    }
}
