//! How full the fast tier is over a load of many times its size:
//! `cargo run --release -p cuesta --example fill -- DIR [FAST_MEBIBYTES] [TIMES]`.
//!
//! Random keys out of six times as many bytes as the fast tier has are put (nine in ten) and deleted (one in ten),
//! until so many times the fast tier's bytes are written (10). Ten times a second the files of the tier are measured.
//! The steady state is the second half of the load; then background work is waited for, and the tier measured once
//! more.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::{Db, Durability, Options, TierOptions};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u64 = 1000;
const WRITERS: u64 = 2;

/// Bytes of the store's files in a directory.
fn file_bytes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    // A file may be gone before it is measured.
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("usage: fill DIR [FAST_MEBIBYTES] [TIMES]")?);
    let fast_bytes = args.get(1).map_or(Ok(256), |n| n.parse::<u64>())? * MIB;
    let times = args.get(2).map_or(Ok(10), |n| n.parse::<u64>())?;
    drop(fs::remove_dir_all(dir));
    let options = Options {
        tiers: vec![
            TierOptions::fast(dir.join("fast"), fast_bytes),
            TierOptions::capacity(dir.join("capacity"), 20 * fast_bytes),
        ],
        memory_bytes: (fast_bytes / 8).max(16 * MIB),
        memtable_bytes: Some(fast_bytes / 128),
        table_bytes: fast_bytes / 128,
        durability: Durability::Os,
        seed: 1,
        ..Options::default()
    };
    let db = Db::open(&options)?;
    let (keys, total) = (6 * fast_bytes / VALUE_BYTES, times * fast_bytes / VALUE_BYTES);
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let mut samples: Vec<(u64, u64)> = Vec::new();
    std::thread::scope(|scope| -> cuesta::Result<()> {
        let writer = |mut state: u64| {
            let (db, written) = (&db, &written);
            move || -> cuesta::Result<()> {
                while written.fetch_add(1, Ordering::Relaxed) < total {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = format!("key{:012}", (state >> 33) % keys);
                    // Half of a value does not compress.
                    let value: Vec<u8> = (0..VALUE_BYTES)
                        .map(|i| if i % 2 == 0 { (state >> (i % 56)) as u8 } else { 7 })
                        .collect();
                    if (state >> 20).is_multiple_of(10) {
                        db.delete(key)?
                    } else {
                        db.put(key, value)?
                    };
                }
                Ok(())
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|i| scope.spawn(writer(i * 977 + 1))).collect();
        let sampler = scope.spawn(|| {
            let mut samples = Vec::new();
            while !done.load(Ordering::Relaxed) {
                samples.push((written.load(Ordering::Relaxed), file_bytes(&dir.join("fast"))));
                std::thread::sleep(Duration::from_millis(100));
            }
            samples
        });
        let ended = writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())));
        done.store(true, Ordering::Relaxed);
        samples = sampler.join().unwrap_or_default();
        ended
    })?;
    let took = begun.elapsed();
    db.wait_for_background()?;
    let share = |bytes: u64| bytes as f64 * 100.0 / fast_bytes as f64;
    let highest = samples.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let mut steady: Vec<u64> =
        samples.iter().filter(|(n, _)| *n > total / 2).map(|(_, bytes)| *bytes).collect();
    steady.sort_unstable();
    let at = |part: usize| share(steady.get(steady.len() * part / 100).copied().unwrap_or(0));
    println!("{}", db.stats());
    println!(
        "{} MiB fast tier, {times} times its bytes written in {took:.0?}: steady state median {:.1} %, 10th percentile \
         {:.1} %, highest ever {:.1} %, after background work {:.1} %",
        fast_bytes / MIB,
        at(50),
        at(10),
        share(highest),
        share(file_bytes(&dir.join("fast")))
    );
    db.close()?;
    Ok(fs::remove_dir_all(dir)?)
}
