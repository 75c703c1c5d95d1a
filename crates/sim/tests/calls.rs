//! What operations cost in calls to devices, counted on the simulated disk.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Cause, Db, Durability, ErrorKind, Options, Range};
use cuesta_device::sim::{OpKind, SimConfig, SimDisk, Survival};
use cuesta_sched::{Priority, Rng, Sched};
use cuesta_sim::{options, world};
use std::sync::Arc;

fn small() -> Options {
    let mut options = options(3, Durability::Os);
    options.tiers[0].capacity_bytes = 64 << 20;
    options
}

/// Opens a store on a new disk and hands both to `body`.
fn with_store(options: &Options, body: impl FnOnce(&Db, &SimDisk)) {
    let sched = Sched::simulated(4);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = Db::open_in(options, world(&sched, &disk, options)).unwrap();
        body(&db, &disk);
    });
}

#[test]
fn a_cold_get_is_one_read_of_the_capacity_tier_and_a_cached_one_none() {
    let mut options = Options { block_bytes: 4096, ..small() };
    // Too small for any level: all data parts go to the capacity tier.
    options.tiers[0].capacity_bytes = 16 << 20;
    with_store(&options, |db, disk| {
        let mut rng = Rng::new(1);
        for i in 0..60_000u64 {
            let noise: Vec<u8> = (0..40).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
            db.put(format!("key{:06}", i.wrapping_mul(7919) % 60_000), noise).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        let on_capacity: u64 = stats.levels.iter().map(|level| level.bytes[1]).sum();
        assert!(on_capacity > 1 << 20, "{stats}");
        // Indexes and filters come into the cache with a neighbour's read.
        for i in (0..60_000u64).step_by(1171) {
            db.get(format!("key{i:06}")).unwrap().unwrap();
            // Of readers: tables that have grown warm may be on their way up meanwhile.
            let reads = |tier: usize| {
                let io = db.stats().io;
                io.get(tier, Cause::UserRead).read_ops + io.get(tier, Cause::Index).read_ops
            };
            let before = reads(1);
            db.get(format!("key{:06}", (i + 500) % 60_000)).unwrap().unwrap();
            assert!(reads(1) - before <= 1, "key {i}");
            let before = [reads(0), reads(1)];
            db.get(format!("key{:06}", (i + 500) % 60_000)).unwrap().unwrap();
            assert_eq!([reads(0), reads(1)], before, "a cached get makes no call");
        }
        assert!(disk.counts()[1].read_bytes_max <= 512 << 10);
    });
}

#[test]
fn a_put_is_at_most_one_write_call() {
    let options = Options { memtable_bytes: Some(2 << 20), ..small() };
    with_store(&options, |db, disk| {
        for i in 0..2000u64 {
            let before = disk.ops();
            db.put(i.to_be_bytes(), [1; 300]).unwrap();
            assert_eq!(disk.ops(), before + 1, "put {i}");
        }
    });
}

#[test]
fn who_has_waited_for_the_background_finds_nothing_under_way() {
    for seed in 0..30 {
        let sched = Sched::simulated(seed);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        sched.run(|| {
            // One worker: nobody else may still be removing what its last job took in.
            let options = Options { background_threads: 1, ..small() };
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            for i in 0..3000u64 {
                db.put((i * 7919 % 1000).to_be_bytes(), [1; 300]).unwrap();
            }
            db.wait_for_background().unwrap();
            let on_disk =
                (0..2).flat_map(|tier| disk.files(tier)).filter(|file| file.name.starts_with("data-"));
            let named = db.stats().levels.iter().map(|level| level.tables).sum::<u64>();
            assert_eq!(on_disk.count() as u64, named, "seed {seed}");
        });
    }
}

/// Several overlapping runs, none of which is merged, and nothing in the cache.
fn overlapping_runs(runs: u64) -> (Options, SimDisk) {
    let keys = |run| (0..200).map(|i| i * runs + run).collect();
    runs_of(&(0..runs).map(keys).collect::<Vec<_>>())
}

/// Runs of these keys, oldest first, none of which is merged, and nothing in the cache.
fn runs_of(runs: &[Vec<u64>]) -> (Options, SimDisk) {
    let mut options = Options { level0_merge: 100, level0_slow: 200, level0_stop: 300, ..small() };
    options.tiers.iter_mut().for_each(|tier| tier.compression = cuesta::Compression::None);
    let sched = Sched::simulated(4);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        for (run, keys) in runs.iter().enumerate() {
            for key in keys {
                db.put(format!("key{key:06}"), [run as u8; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        db.close().unwrap();
    });
    (options, disk)
}

#[test]
fn a_scan_has_the_first_reads_of_all_runs_under_way_at_once() {
    let (options, disk) = overlapping_runs(6);
    for forward in [true, false] {
        let sched = Sched::simulated(5);
        let disk = disk.kill().on(&sched);
        sched.run(|| {
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            disk.reset_counts();
            let mut scan = db.scan(Range::all()).unwrap();
            let pair = if forward { scan.next() } else { scan.next_back() };
            pair.unwrap().unwrap();
            assert_eq!(disk.counts()[0].reads_under_way_max, 6, "forward: {forward}");
        });
    }
}

#[test]
fn a_scan_with_a_limit_reads_each_run_once_and_little_more_than_it_needs() {
    let (options, disk) = overlapping_runs(4);
    for (forward, limit, most_bytes) in [(true, 100, 40_000), (false, 100, 40_000), (true, 4, 24_576)] {
        let sched = Sched::simulated(5);
        let disk = disk.kill().on(&sched);
        sched.run(|| {
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            // Opens the tables and brings their indexes into the cache.
            for run in 0..4 {
                db.get(format!("key{:06}", 799 - run)).unwrap().unwrap();
                db.get(format!("key{run:06}")).unwrap().unwrap();
            }
            disk.reset_counts();
            let range = Range::from(&b"key000300"[..]..&b"key000500"[..]).with_limit(limit);
            let scan = db.scan(range).unwrap();
            let n = if forward { scan.count() } else { scan.rev().count() };
            assert_eq!(n as u64, limit);
            let counts = disk.counts()[0];
            assert!(counts.reads() <= 4, "{} reads for {limit}, forward: {forward}", counts.reads());
            assert!(counts.read_bytes <= most_bytes, "{} bytes for {limit}", counts.read_bytes);
        });
    }
}

#[test]
fn a_scan_expects_of_each_run_what_lies_there_though_newer_ones_have_the_same_keys() {
    // Of each two keys the newer run has one, so a hundred keys are a hundred entries of the older run and fifty of the
    // newer.
    let (options, disk) = runs_of(&[(0..200).collect(), (0..100).map(|i| 2 * i).collect()]);
    let sched = Sched::simulated(5);
    let disk = disk.kill().on(&sched);
    sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        // Opens the tables and brings their indexes into the cache.
        ["key000000", "key000001", "key000198", "key000199"]
            .iter()
            .for_each(|key| drop(db.get(key).unwrap()));
        disk.reset_counts();
        let range = Range::from(&b"key000050"[..]..&b"key000190"[..]).with_limit(100);
        assert_eq!(db.scan(range).unwrap().count(), 100);
        let counts = disk.counts()[0];
        assert_eq!(counts.reads(), 2, "{} bytes", counts.read_bytes);
    });
}

#[test]
fn keyspaces_made_at_once_share_syncs() {
    let sched = Sched::simulated(8);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let durable = sched.run(|| {
        let db = Arc::new(Db::open_in(&small(), world(&sched, &disk, &small())).unwrap());
        disk.reset_counts();
        let make = |thread: u64| {
            let db = db.clone();
            let body = move || {
                (0..5).for_each(|i| drop(db.create_keyspace(&format!("space{thread}-{i}")).unwrap()));
                // The same name from everywhere: one gets it.
                if let Err(error) = db.create_keyspace("shared") {
                    assert_eq!(*error.kind(), ErrorKind::Exists);
                }
            };
            sched.spawn("maker", Priority::Normal, body).unwrap()
        };
        let threads: Vec<_> = (0..8).map(make).collect();
        assert!(threads.into_iter().all(|thread| thread.join()));
        let syncs = disk.counts()[0].of(OpKind::Sync);
        assert!(syncs < 41, "{syncs} syncs for 41 keyspaces");
        disk.after_cut(Survival::None, &mut Rng::new(1))
    });
    let sched = Sched::simulated(9);
    let disk = durable.on(&sched);
    sched.run(|| {
        let db = Db::open_in(&small(), world(&sched, &disk, &small())).unwrap();
        assert_eq!(db.keyspaces().unwrap().len(), 41);
        for name in db.keyspaces().unwrap() {
            let keyspace = db.keyspace(&name).unwrap().unwrap();
            keyspace.put(b"own", name.as_bytes()).unwrap();
        }
        // No two share an id: each holds its own name.
        for name in db.keyspaces().unwrap() {
            assert_eq!(db.keyspace(&name).unwrap().unwrap().get(b"own").unwrap().unwrap(), name.as_bytes());
        }
        assert_eq!(db.scan(Range::all()).unwrap().count(), 0);
    });
}
