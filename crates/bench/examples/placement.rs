//! How many reads reach the capacity tier, beside the best that a placement fixed in advance could do:
//! `cargo run --release -p cuesta-bench --example placement`.
//!
//! In simulation, on disks in memory: 64,000 records with values of 1,000 bytes, a memory number of 8 MiB, a fast tier
//! of a tenth to two fifths of the data's bytes. Keys are drawn by Zipf's law (0.99) and scattered, or evenly. After
//! two reads for each record, as many more are counted: a read reaches the capacity tier when it reads a data block
//! there.
//!
//! The best fixed placement knows every key's share of the reads. It holds the hottest records whole in as many bytes
//! of memory as our cache may have, the next in all bytes of the fast tier, with no log and no index there; what is
//! left is its share. No store can reach it with blocks and levels; it is what there is to win.

#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::{Cause, Db, Durability, Options, TierOptions, World};
use cuesta_bench::oracle::{frequencies, least_share_below};
use cuesta_bench::{Chooser, Distribution, key_of, value_of};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};

const MIB: u64 = 1 << 20;
const RECORDS: u64 = 64_000;
const VALUE_BYTES: usize = 1000;
const THETA: f64 = 0.99;

/// Share of reads of what is not among the hottest `kept` records.
fn best(distribution: Distribution, kept: u64) -> f64 {
    least_share_below(&frequencies(distribution, THETA, RECORDS), kept)
}

/// Share of reads that reached the capacity tier, and what the cache may have had.
fn measured(distribution: Distribution, fast_bytes: u64, writes: u64) -> cuesta::Result<(f64, u64)> {
    let sched = Sched::simulated(1);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let options = Options {
        memory_bytes: 8 * MIB,
        memtable_bytes: Some(MIB / 4),
        table_bytes: MIB / 2,
        durability: Durability::Os,
        seed: 1,
        ..Options::tiered(TierOptions::fast("fast", fast_bytes), TierOptions::capacity("capacity", 1 << 30))
    };
    sched.run(|| {
        let directories = vec![disk.directory(0), disk.directory(1)];
        let db = Db::open_in(&options, World { sched: sched.clone(), directories })?;
        let mut rng = Rng::new(7);
        for i in 0..RECORDS {
            db.put(&*key_of(i), value_of(i, 0, VALUE_BYTES))?;
        }
        db.wait_for_background()?;
        let mut chooser = Chooser::new(distribution, THETA, RECORDS, 11);
        let mut reads = |db: &Db| -> cuesta::Result<u64> {
            let before = db.stats().io.get(1, Cause::UserRead).read_ops;
            for n in 0..2 * RECORDS {
                if n % 100 < writes {
                    // Not what is read next, which would be an answer from memory for sure.
                    let record = chooser.choose(&mut rng, RECORDS);
                    db.put(&*key_of(record), value_of(record, 1, VALUE_BYTES))?;
                }
                db.get(&*key_of(chooser.choose(&mut rng, RECORDS)))?;
            }
            Ok(db.stats().io.get(1, Cause::UserRead).read_ops - before)
        };
        reads(&db)?;
        let reached = reads(&db)?;
        let cache = db.stats().memory.cache_limit_bytes;
        db.close()?;
        Ok((reached as f64 / (2 * RECORDS) as f64, cache))
    })
}

fn main() -> cuesta::Result<()> {
    let record_bytes = VALUE_BYTES as u64 + key_of(0).len() as u64;
    let data = RECORDS * record_bytes;
    println!("reads that reach the capacity tier   fast tier   leveled   best fixed");
    for (distribution, name) in [(Distribution::Zipfian, "Zipfian"), (Distribution::Uniform, "uniform")] {
        for writes in [0, 5] {
            for tenths in [1, 2, 4] {
                let fast_bytes = data * tenths / 10;
                let (share, cache) = measured(distribution, fast_bytes, writes)?;
                let fixed = best(distribution, (fast_bytes + cache) / record_bytes);
                println!(
                    "{name}, {writes:>2} writes to 100 reads {:>17} % {:>8.1} % {:>10.1} %",
                    10 * tenths,
                    100.0 * share,
                    100.0 * fixed
                );
            }
        }
    }
    Ok(())
}
