//! How long a store of profile `prismdb` takes to open, by what it held: after a kill, when every live slot is read,
//! against how long the slabs take to be read one after the other; and after a clean close, from its image: `cargo run --release -p
//! cuesta --example reopen -- DIR [RECORDS] [VALUE_BYTES]`.
//!
//! The records are written by a process that then ends without closing the store, and all are in slots. Files are out
//! of the kernel's cache each time.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

#[path = "support/files.rs"]
mod files;

use cuesta::{Db, Options, Profile, TierOptions};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn options(dir: &Path, records: u64, value_bytes: u64) -> Options {
    let fast = (records * (value_bytes + 64) * 2).max(64 * MIB);
    let tiers =
        (TierOptions::fast(dir.join("fast"), fast), TierOptions::capacity(dir.join("capacity"), 1 << 40));
    Options { profile: Some(Profile::PrismDb), ..Options::tiered(tiers.0, tiers.1) }
}

/// Writes the records into slots, and leaves.
fn fill(dir: &Path, records: u64, value_bytes: u64) -> cuesta::Result<()> {
    let db = Db::open(&options(dir, records, value_bytes))?;
    for i in 0..records {
        let value = vec![i as u8; value_bytes as usize];
        db.put(format!("user{:019}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1), value)?;
    }
    db.flush()?;
    std::process::exit(0)
}

/// Takes the files of both tiers out of the kernel's cache.
fn evict(dir: &Path) -> io::Result<()> {
    ["fast", "capacity"].into_iter().try_for_each(|tier| files::evict(&dir.join(tier)))
}

fn open(options: &Options, dir: &Path) -> Result<(Db, Duration), Box<dyn std::error::Error>> {
    evict(dir)?;
    let begun = Instant::now();
    let db = Db::open(options)?;
    Ok((db, begun.elapsed()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("usage: reopen DIR [RECORDS] [VALUE_BYTES]")?);
    let records = args.get(1).map_or(Ok(1_000_000), |n| n.parse())?;
    let value_bytes = args.get(2).map_or(Ok(1000), |n| n.parse())?;
    if args.len() > 3 {
        return Ok(fill(dir, records, value_bytes)?);
    }
    drop(fs::remove_dir_all(dir));
    let size = [records.to_string(), value_bytes.to_string(), "fill".to_owned()];
    let filled = Command::new(std::env::current_exe()?).arg(dir).args(&size).status()?;
    assert!(filled.success(), "the writer failed");
    let options = options(dir, records, value_bytes);
    evict(dir)?;
    let (bytes, reading) = files::read(&dir.join("fast"), "slab-", |_| {})?;
    let (db, scanning) = open(&options, dir)?;
    let ratio = scanning.as_secs_f64() / reading.as_secs_f64();
    println!(
        "{records} records of {value_bytes} bytes, {} MiB of slabs: read in {reading:.2?}, opened after a kill in {scanning:.2?}: \
         {ratio:.2} times as long",
        bytes / MIB
    );
    db.close()?;
    let (db, by_image) = open(&options, dir)?;
    println!(
        "after a clean close: {by_image:.2?}, {:.2} s for each million keys",
        by_image.as_secs_f64() * 1e6 / records as f64
    );
    db.close()?;
    Ok(fs::remove_dir_all(dir)?)
}
