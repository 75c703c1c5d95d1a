//! How long a log takes to be replayed, against how long the same bytes take to be read and checksummed:
//! `cargo run --release -p cuesta --example replay -- DIR [MEBIBYTES] [VALUE_BYTES]`.
//!
//! The log is one memtable's, written by a process that then ends without closing the store. It is opened twice more:
//! with the memory it was written with, so that it becomes a memtable again, and with the default, so that tables are
//! written from it; the files are out of the kernel's cache each time.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

#[path = "support/files.rs"]
mod files;

use cuesta::{Db, Durability, Options};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn options(dir: &Path, mib: u64) -> Options {
    let memtable = 2 * mib * MIB;
    let mut options =
        Options { memory_bytes: 4 * memtable, memtable_bytes: Some(memtable), ..Options::at(dir) };
    options.tiers.iter_mut().for_each(|tier| tier.capacity_bytes = tier.capacity_bytes.max(20 * memtable));
    Options { durability: Durability::Os, ..options }
}

/// Writes a log of so many bytes, and leaves.
fn fill(dir: &Path, mib: u64, value_bytes: usize) -> cuesta::Result<()> {
    let db = Db::open(&options(dir, mib))?;
    let entry = value_bytes as u64 + 60;
    for i in 0..mib * MIB / entry {
        db.put(format!("user{:019}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)), vec![i as u8; value_bytes])?;
    }
    std::process::exit(0)
}

/// Reads and checksums the log files.
fn read(dir: &Path) -> io::Result<(u64, Duration)> {
    let mut sum = 0;
    let read = files::read(dir, "log-", |bytes| sum = crc32c::crc32c_append(sum, bytes));
    std::hint::black_box(sum);
    read
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("usage: replay DIR [MEBIBYTES] [VALUE_BYTES]")?);
    let mib = args.get(1).map_or(Ok(1024), |n| n.parse())?;
    let value_bytes = args.get(2).map_or(Ok(1024), |n| n.parse())?;
    if args.len() > 3 {
        return Ok(fill(dir, mib, value_bytes)?);
    }
    let size = [mib.to_string(), value_bytes.to_string(), "fill".to_owned()];
    for (name, options) in [("a memtable", options(dir, mib)), ("tables", Options::at(dir))] {
        drop(fs::remove_dir_all(dir));
        let filled = Command::new(std::env::current_exe()?).arg(dir).args(&size).status()?;
        assert!(filled.success(), "the writer failed");
        let fast = &options.tiers[0].path;
        files::evict(fast)?;
        let (bytes, reading) = read(fast)?;
        let (_, warm) = read(fast)?;
        files::evict(fast)?;
        let begun = Instant::now();
        let db = Db::open(&options)?;
        let opening = begun.elapsed();
        let ratio = opening.as_secs_f64() / reading.as_secs_f64();
        println!(
            "{} MiB of log, {value_bytes}-byte values: read and checksummed in {reading:.2?} ({warm:.2?} from the kernel's \
             cache), replayed into {name} in {opening:.2?}: {ratio:.1} times as long",
            bytes / MIB
        );
        db.close()?;
    }
    Ok(fs::remove_dir_all(dir)?)
}
