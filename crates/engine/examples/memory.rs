//! How much memory a store takes beyond the number it was given:
//! `cargo run --release -p cuesta --example memory -- DIR [MEBIBYTES] [PROFILE] [CASE]`.
//!
//! Each case runs in a process of its own, with a memory number of so many mebibytes (128), four times as many bytes of
//! fast tier, and about six times as many of data, in profile `leveled` or another; the anonymous resident memory is
//! looked at fifty times a second, as long as the work takes. Told is how much it grew at most since before the store
//! was opened, and what the store had counted then. Without a case all of them are run.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::{Db, Durability, Options, Profile, Range, TierOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const MIB: u64 = 1 << 20;
const CASES: [&str; 8] =
    ["uniform", "zipfian", "objects", "large-values", "keyspaces", "iterators", "scans", "largest-values"];
const THREADS: u64 = 2;
/// Work of a case.
const OPERATIONS: u64 = 300_000;

/// Anonymous resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// About Zipf's law: each power of two of ranks is as likely.
    fn skewed(&mut self, n: u64) -> u64 {
        let top = n.ilog2().max(1);
        let bits = self.below(u64::from(top) + 1);
        self.below(1 << bits).min(n - 1)
    }

    fn fill(&mut self, value: &mut [u8]) {
        value
            .chunks_mut(8)
            .for_each(|bytes| bytes.copy_from_slice(&self.next().to_le_bytes()[..bytes.len()]));
    }
}

fn key(number: u64) -> String {
    format!("user{:019}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn load(db: &Db, keys: u64, value: &mut [u8]) -> Result<(), Failure> {
    let mut random = Random(7);
    for number in 0..keys {
        random.fill(value);
        db.put(key(number), &*value)?;
    }
    Ok(())
}

/// Reads, one write in ten.
fn read(db: &Db, keys: u64, values: &mut [Vec<u8>], skewed: bool, operations: u64) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let one = |(thread, value): (u64, &mut Vec<u8>)| -> Result<(), Failure> {
            let mut random = Random(thread + 99);
            for i in 0..operations / THREADS {
                let number = if skewed { random.skewed(keys) } else { random.below(keys) };
                if i % 10 == 0 {
                    random.fill(value);
                    db.put(key(number), &*value)?;
                } else {
                    drop(db.get(key(number))?);
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..).zip(values).map(|mine| scope.spawn(move || one(mine))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}

/// Bytes of a value.
fn value_bytes(case: &str, options: &Options) -> u64 {
    match case {
        "objects" => 100,
        "large-values" => MIB,
        "largest-values" => options.value_bytes_max(),
        _ => 1000,
    }
}

fn run(case: &str, db: &Db, memory: u64, values: &mut [Vec<u8>]) -> Result<(), Failure> {
    let data = 6 * memory;
    let (bytes, value) = (values[0].len() as u64, &mut values[0]);
    let keys = data / (bytes + 24);
    match case {
        "uniform" | "zipfian" | "objects" | "large-values" | "largest-values" => {
            load(db, keys, value)?;
            let operations = if bytes < MIB { OPERATIONS } else { 6000 * MIB / bytes };
            read(db, keys, values, matches!(case, "zipfian" | "objects"), operations)
        }
        "keyspaces" => {
            std::thread::scope(|scope| {
                let one = |thread: u64| {
                    move || -> Result<(), Failure> {
                        let (mut random, mut value) = (Random(thread), [0; 1000]);
                        for i in 0..10_000 / 16 {
                            let keyspace = db.create_keyspace(&format!("keyspace-{thread}-{i}"))?;
                            for number in 0..40 {
                                random.fill(&mut value);
                                keyspace.put(key(number), value)?;
                            }
                        }
                        Ok(())
                    }
                };
                let threads: Vec<_> = (0..16).map(|thread| scope.spawn(one(thread))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
            })?;
            let mut random = Random(5);
            let names = db.keyspaces()?;
            for _ in 0..OPERATIONS / 4 {
                let name = &names[random.below(names.len() as u64) as usize];
                let keyspace = db.keyspace(name)?.ok_or("a keyspace is gone")?;
                drop(keyspace.get(key(random.below(40)))?);
            }
            Ok(())
        }
        "iterators" => {
            load(db, keys, value)?;
            let mut scans = Vec::new();
            for i in 0..100 {
                let snapshot = db.snapshot()?;
                scans.push(snapshot.scan(Range::from(key(i * 997).as_bytes()..))?);
                Random(i).fill(value);
                db.put(key(i), &*value)?;
            }
            for _ in 0..3000 {
                for scan in &mut scans {
                    if let Some(pair) = scan.next() {
                        drop(pair?);
                    }
                }
            }
            Ok(())
        }
        // Scans take the cache over from point reads.
        "scans" => {
            load(db, keys, value)?;
            read(db, keys, values, true, OPERATIONS)?;
            let mut random = Random(5);
            for _ in 0..OPERATIONS / 10 {
                let scan = db.scan(Range::from(key(random.skewed(keys)).as_bytes()..))?;
                for pair in scan.take(50) {
                    drop(pair?);
                }
            }
            Ok(())
        }
        _ => Err(format!("there is no case {case:?}; there are {}", CASES.join(", ")).into()),
    }
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("usage: memory DIR [MEBIBYTES] [PROFILE] [CASE]")?);
    let memory = args.get(1).map_or(Ok(128), |n| n.parse::<u64>())? * MIB;
    let profile = args.get(2).map_or(Ok(Profile::Leveled), |name| name.parse::<Profile>())?;
    let Some(case) = args.get(3) else {
        for case in CASES {
            let mut command = std::process::Command::new(std::env::current_exe()?);
            let memory = (memory / MIB).to_string();
            let status = command.arg(dir).args([&memory, profile.name(), case]).status()?;
            if !status.success() {
                return Err(format!("{case} failed").into());
            }
        }
        return Ok(());
    };
    drop(std::fs::remove_dir_all(dir));
    let options = Options {
        memory_bytes: memory,
        durability: Durability::Os,
        profile: Some(profile),
        seed: 1,
        ..Options::tiered(
            TierOptions::fast(dir.join("fast"), 4 * memory),
            TierOptions::capacity(dir.join("capacity"), 100 * memory),
        )
    };
    // What callers hold is theirs.
    let mut values = vec![vec![1; value_bytes(case, &options) as usize]; THREADS as usize];
    let before = resident();
    let db = Db::open(&options)?;
    let done = AtomicBool::new(false);
    let (highest, held) = std::thread::scope(|scope| -> Result<_, Failure> {
        let sampler = scope.spawn(|| {
            let mut highest = (0, db.stats().memory);
            while !done.load(Ordering::Relaxed) {
                // What is counted first: asking waits for who makes the cache smaller.
                let (counted, now) = (db.stats().memory, resident());
                if now > highest.0 {
                    highest = (now, counted);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            highest
        });
        let ran = run(case, &db, memory, &mut values);
        done.store(true, Ordering::Relaxed);
        let highest = sampler.join().map_err(|_| "the thread that looks at memory panicked")?;
        ran.map(|()| highest)
    })?;
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let grown = highest.saturating_sub(before);
    println!(
        "{case:>14}: {:.1} MiB at most, with a number of {:.0} MiB: {:+.1} MiB (then {held:?})",
        mib(grown),
        mib(memory),
        mib(grown) - mib(memory)
    );
    db.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
