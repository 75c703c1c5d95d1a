//! A store whose tiers are full, again and again: `cargo run --release -p cuesta --example full -- DIR [CYCLES]`.
//!
//! Keys with values of 1 KiB are put into a fast tier of 32 MiB and a capacity tier of 128 MiB until three puts in a
//! row are refused; then every other key is deleted, and the time is taken until a put is accepted again, the store
//! open all the while. Forty times by default. In the end everything that was acknowledged is compared with what the
//! store holds.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta::{Db, ErrorKind, Options, Range, TierOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A value of 1 KiB that does not compress.
fn value(number: u64) -> Vec<u8> {
    let mut state = number;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 8).to_le_bytes()
    };
    (0..128).flat_map(|_| next()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("usage: full DIR [CYCLES]")?);
    let cycles = args.get(1).map_or(Ok(40), |n| n.parse::<u64>())?;
    drop(std::fs::remove_dir_all(dir));
    let options = Options {
        memory_bytes: 32 * MIB,
        memtable_bytes: Some(MIB),
        table_bytes: 2 * MIB,
        seed: 1,
        ..Options::tiered(
            TierOptions::fast(dir.join("fast"), 32 * MIB),
            TierOptions::capacity(dir.join("capacity"), 128 * MIB),
        )
    };
    let db = Db::open(&options)?;
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut number = 0u64;
    let mut back: Vec<Duration> = Vec::new();
    let mut held: Vec<u64> = Vec::new();
    for _ in 0..cycles {
        let mut refused = 0;
        while refused < 3 {
            number += 1;
            let key = format!("key{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
            match db.put(&key, value(number)) {
                Ok(_) => {
                    refused = 0;
                    expected.insert(key, number);
                }
                Err(error) if *error.kind() == ErrorKind::Full => refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
        held.push(expected.len() as u64);
        let gone: Vec<Vec<u8>> = expected.keys().step_by(2).cloned().collect();
        for key in gone {
            db.delete(&key)?;
            expected.remove(&key);
        }
        let begun = Instant::now();
        while let Err(error) = db.put(b"back", value(0)) {
            if *error.kind() != ErrorKind::Full {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        back.push(begun.elapsed());
        expected.insert(b"back".to_vec(), 0);
    }
    println!("{}", db.stats());
    let mut found = 0;
    for pair in db.scan(Range::all())? {
        let (key, bytes) = pair?;
        if expected.get(&key).map(|number| value(*number)).as_deref() != Some(&bytes[..]) {
            return Err(format!("{} holds something else", key.escape_ascii()).into());
        }
        found += 1;
    }
    if found != expected.len() {
        return Err(format!("{found} keys are there of {}", expected.len()).into());
    }
    back.sort_unstable();
    println!(
        "{cycles} times full ({} to {} keys of 1 KiB) and half deleted: writes were back after {:.0?} (median), {:.0?} \
         (longest); all {found} keys hold what was acknowledged",
        held.iter().min().unwrap_or(&0),
        held.iter().max().unwrap_or(&0),
        back[back.len() / 2],
        back[back.len() - 1]
    );
    db.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
