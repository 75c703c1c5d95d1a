//! One kind of operation, a given number of times, for counting instructions: `scripts/instructions` runs it under
//! callgrind with two numbers and takes the difference, so that opening and filling the store cancel out.

use cuesta::{Db, Durability, Options, Range, Result};

const RECORDS: u64 = 20_000;

fn key(i: u64) -> String {
    format!("user{:019}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (operation, dir) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let times: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let options = Options { seed: 1, durability: Durability::Os, background_threads: 1, ..Options::at(dir) };
    let db = Db::open(&options)?;
    for i in 0..RECORDS {
        db.put(key(i), [7; 100])?;
    }
    if operation != "get-memtable" {
        db.flush()?;
        db.wait_for_background()?;
        // Brings every block into the cache.
        db.scan(Range::all())?.try_for_each(|pair| pair.map(drop))?;
    }
    if operation == "get" {
        (0..RECORDS).try_for_each(|i| db.get(key(i)).map(drop))?;
    }
    match operation.as_str() {
        "get" | "get-memtable" => (0..times).try_for_each(|i| db.get(key(i % RECORDS)).map(drop))?,
        // Their objects are not in the cache yet.
        "get-first" => (0..times).try_for_each(|i| db.get(key(i % RECORDS)).map(drop))?,
        // A read at a snapshot leaves no object.
        "get-block" => {
            let snapshot = db.snapshot()?;
            (0..times).try_for_each(|i| snapshot.get(key(i % RECORDS)).map(drop))?;
        }
        "put" => (0..times).try_for_each(|i| db.put(key(i % RECORDS), [8; 100]).map(drop))?,
        "scan" => {
            db.scan(Range::all().with_limit(times))?.try_for_each(|pair| pair.map(drop))?;
        }
        "scan-back" => {
            db.scan(Range::all().with_limit(times))?.rev().try_for_each(|pair| pair.map(drop))?;
        }
        _ => {}
    }
    db.close()
}
