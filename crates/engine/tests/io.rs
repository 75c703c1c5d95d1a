//! The store's counters beside the kernel's: alone in its process, since `/proc/self/io` is the process's.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Options, Range, TierOptions};

/// Bytes that this process has read and written by system calls so far.
fn kernel() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    ["rchar: ", "wchar: "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.parse().unwrap()
    })
}

/// Bytes that the store says.
fn told(db: &Db) -> [u64; 2] {
    let io = db.stats().io;
    let all = (0..io.tiers()).map(|tier| io.total(tier));
    all.fold([0, 0], |[read, written], count| [read + count.read_bytes, written + count.write_bytes])
}

#[test]
fn what_the_store_counts_is_what_the_kernel_counts() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_bytes: 8 << 20,
        table_bytes: 1 << 20,
        ..Options::tiered(
            TierOptions::fast(dir.path().join("fast"), 32 << 20),
            TierOptions::capacity(dir.path().join("capacity"), 1 << 30),
        )
    };
    let db = Db::open(&options).unwrap();
    let (kernel_before, told_before) = (kernel(), told(&db));
    let key = |i: u32| format!("key{:08}", i.wrapping_mul(2_654_435_769) % 40_000);
    for i in 0..60_000 {
        db.put(key(i), [i as u8; 900]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    (0..20_000).for_each(|i| drop(db.get(key(i * 7)).unwrap()));
    assert!(db.scan(Range::all()).unwrap().rev().count() > 10_000);
    let (kernel_after, told_after) = (kernel(), told(&db));
    for (i, what) in ["read", "written"].into_iter().enumerate() {
        let (kernel, told) = (kernel_after[i] - kernel_before[i], told_after[i] - told_before[i]);
        let off = (kernel as f64 - told as f64).abs() / kernel as f64;
        assert!(
            kernel > 10 << 20 && off < 0.05,
            "{what}: the kernel counts {kernel} bytes, the store {told}"
        );
    }
    assert_eq!(db.default_keyspace().stats().gets, 20_000);
    assert_eq!(db.default_keyspace().stats().written, 60_000);
    let stats = db.stats();
    assert_eq!(stats.answers.iter().map(|answer| answer.gets).sum::<u64>(), 20_000);
    assert_eq!(
        stats.latencies.iter().map(|latency| latency.operation).collect::<Vec<_>>(),
        ["get", "write", "seek"]
    );
    // Counters go on where they were.
    db.close().unwrap();
    let db = Db::open(&options).unwrap();
    let again = db.stats();
    assert_eq!((again.operations, again.answers), (stats.operations, stats.answers));
    assert!(told(&db).iter().zip(told_after).all(|(now, before)| *now >= before));
    db.close().unwrap();
}
