//! Writers that ask for more than the capacity tier can take, for a long time:
//! `cargo run --release -p cuesta --example overload -- DIR [SECONDS] [MEGABYTES_PER_SECOND] [PROFILE]`.
//!
//! Eight threads put random keys with values of 1 KiB, as fast as they are let, for so many seconds (60); the capacity
//! tier is slowed to so many megabytes a second (250), reads and writes together. Told are the bytes written in the
//! median and the slowest second, after the first five; the longest wait of a single put, and the 99.9th percentile.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::{Db, Durability, Options, Profile, TierOptions, World};
use cuesta_device::{Directory, FileDirectory, Limiter, Pace};
use cuesta_sched::Sched;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const WRITERS: u64 = 8;
const VALUE_BYTES: usize = 1024;
const KEYS: u64 = 4_000_000;
/// Seconds that are left out of the medians: the memtables fill up.
const WARM_UP: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir =
        Path::new(args.first().ok_or("usage: overload DIR [SECONDS] [MEGABYTES_PER_SECOND] [PROFILE]")?);
    let seconds = args.get(1).map_or(Ok(60), |n| n.parse::<u64>())?;
    let rate = args.get(2).map_or(Ok(250), |n| n.parse::<u64>())? * 1_000_000;
    let profile = args.get(3).map_or(Ok(Profile::Leveled), |name| name.parse::<Profile>())?;
    drop(std::fs::remove_dir_all(dir));
    let options = Options {
        memory_bytes: 256 * MIB,
        durability: Durability::Os,
        profile: Some(profile),
        seed: 1,
        ..Options::tiered(
            TierOptions::fast(dir.join("fast"), 1024 * MIB),
            TierOptions::capacity(dir.join("capacity"), 24 * 1024 * MIB),
        )
    };
    let sched = Sched::real(1);
    let open = |name: &str| -> std::io::Result<Arc<dyn Directory>> {
        Ok(Arc::new(FileDirectory::open(dir.join(name))?.with_threads(&sched)))
    };
    let pace = Pace { bytes_per_second: rate, per_call: Duration::from_micros(80) };
    let capacity = Limiter::new(&sched, pace).wrap_directory(open("capacity")?);
    let world = World { sched: sched.clone(), directories: vec![open("fast")?, Arc::new(capacity)] };
    let db = Db::open_in(&options, world)?;

    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut per_second = Vec::new();
    let mut waits: Vec<u32> = Vec::new();
    std::thread::scope(|scope| -> cuesta::Result<()> {
        let writer = |mut state: u64| {
            let (db, written, done) = (&db, &written, &done);
            move || -> cuesta::Result<Vec<u32>> {
                let mut waits = Vec::new();
                let mut value = vec![0; VALUE_BYTES];
                while !done.load(Ordering::Relaxed) {
                    for chunk in value.chunks_exact_mut(8) {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        chunk.copy_from_slice(&(state >> 8).to_le_bytes());
                    }
                    let key = format!("key{:012}", (state >> 33) % KEYS);
                    let begun = Instant::now();
                    db.put(key, &value)?;
                    waits.push(begun.elapsed().as_micros() as u32);
                    written.fetch_add(VALUE_BYTES as u64, Ordering::Relaxed);
                }
                Ok(waits)
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|i| scope.spawn(writer(i * 977 + 1))).collect();
        for _ in 0..seconds {
            let before = written.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(1));
            per_second.push(written.load(Ordering::Relaxed) - before);
        }
        done.store(true, Ordering::Relaxed);
        for writer in writers {
            waits.extend(writer.join().unwrap_or_else(|_| Ok(Vec::new()))?);
        }
        Ok(())
    })?;
    println!("{}", db.stats());
    let megabytes: Vec<u64> = per_second.iter().map(|bytes| bytes / 1_000_000).collect();
    println!("MB written, second by second: {megabytes:?}");
    let mut steady = per_second.split_off(WARM_UP.min(per_second.len() / 2));
    steady.sort_unstable();
    waits.sort_unstable();
    let at = |share: f64| f64::from(waits[((waits.len() - 1) as f64 * share) as usize]) / 1000.0;
    let (slowest, median) = (steady[0], steady[steady.len() / 2]);
    println!(
        "{WRITERS} writers, {seconds} s, capacity tier of {} MB/s: median second {:.1} MB, slowest {:.1} MB ({:.2} of the \
         median); a put waits {:.3} ms (median), {:.1} ms (p99), {:.1} ms (p99.9), {:.1} ms (longest)",
        rate / 1_000_000,
        median as f64 / 1e6,
        slowest as f64 / 1e6,
        slowest as f64 / median as f64,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    db.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
