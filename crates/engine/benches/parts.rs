//! Micro-benchmarks of single parts: `cargo bench -p cuesta --features internals`. Never part of the tests.

use criterion::{Criterion, criterion_group, criterion_main};
use cuesta::internals;

fn parts(c: &mut Criterion) {
    let mut step = internals::block_search();
    c.bench_function("block search, 4 KiB", |b| b.iter(&mut step));
    let mut step = internals::filter_probe();
    c.bench_function("filter probe, 14 bits a key", |b| b.iter(&mut step));
    let mut step = internals::memtable_get();
    c.bench_function("memtable get, 100,000 entries", |b| b.iter(&mut step));
    let mut step = internals::memtable_insert();
    c.bench_function("memtable insert, 100,000 entries and more", |b| b.iter(&mut step));
    for payload_bytes in [128, 4096] {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary directory: {error}"));
        let step = internals::log_append(dir.path(), payload_bytes);
        let mut step = step.unwrap_or_else(|error| panic!("no log: {error}"));
        c.bench_function(&format!("log append, {payload_bytes} bytes, no sync"), |b| b.iter(&mut step));
    }
    for ways in [2, 8] {
        let mut step = internals::merge_step(ways);
        c.bench_function(&format!("merge step, {ways} ways"), |b| b.iter(&mut step));
    }
}

criterion_group!(benches, parts);
criterion_main!(benches);
