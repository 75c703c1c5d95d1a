//! What a store says and does when its log cannot be synced and when its media are full; that it does so everywhere
//! is the table's to show.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, ErrorKind, Range, StoreState, World};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk, Survival, SyncFailure};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{options, world};
use std::time::Duration;

fn small() -> cuesta::Options {
    options(3, Durability::Os)
}

fn open(sched: &Sched, disk: &SimDisk) -> cuesta::Result<Db> {
    let world: World = world(sched, disk, &small());
    Db::open_in(&small(), world)
}

#[test]
fn a_failed_log_sync_closes_the_store_for_writes_and_says_so() {
    let sched = Sched::simulated(1);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = open(&sched, &disk).unwrap();
        db.put(b"a", b"1").unwrap();
        disk.set_faults(vec![Fault::new(Effect::SyncFails(SyncFailure::CleanNew)).named("log").nth(1)]);
        assert!(db.sync().is_err());
        for _ in 0..3 {
            let error = db.put(b"b", b"2").unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::ReadOnly);
            assert!(error.to_string().contains("sync log-"), "{error}");
        }
        assert_eq!(db.get(b"a").unwrap().unwrap(), b"1");
        assert!(matches!(db.stats().state, StoreState::ReadOnly(_)));
        assert_eq!(*db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
    });
}

#[test]
fn a_full_capacity_resumes_without_a_reopen() {
    let sched = Sched::simulated(2);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = open(&sched, &disk).unwrap();
        let mut i = 0;
        let mut fill = |db: &Db| loop {
            i += 1;
            if let Err(error) = db.put(format!("key{i:06}"), vec![i as u8; 5000]) {
                assert_eq!(*error.kind(), ErrorKind::Full, "{error}");
                return i;
            }
            assert!(i < 100_000, "the store never filled");
        };
        for tier in 0..2 {
            disk.set_capacity(tier, disk.used_bytes(tier) + (1 << 20));
        }
        let full_at = fill(&db);
        assert!((1..full_at).all(|i| db.get(format!("key{i:06}")).unwrap().is_some()), "reads go on");
        for tier in 0..2 {
            disk.set_capacity(tier, disk.used_bytes(tier) + (4 << 20));
        }
        sched.sleep(std::time::Duration::from_secs(5));
        db.put(b"after", b"room").unwrap();
        assert!(fill(&db) > full_at + 100);
        db.scan(Range::all()).unwrap().for_each(|pair| drop(pair.unwrap()));
    });
}

#[test]
fn of_a_superblock_one_copy_is_enough_where_the_medium_cannot_read_the_other() {
    let sched = Sched::simulated(5);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        open(&sched, &disk).unwrap().close().unwrap();
        for bytes in [0..4096, 4096..8192, 0..8192] {
            let fault = |tier| {
                let fault = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).named("CUESTA");
                fault.in_tier(tier).touching(bytes.clone()).since(1)
            };
            for tiers in [&[0][..], &[1], &[0, 1]] {
                disk.set_faults(tiers.iter().map(|tier| fault(*tier)).collect());
                match open(&sched, &disk) {
                    Ok(db) if bytes.end - bytes.start == 4096 => db.close().unwrap(),
                    opened => assert!(opened.unwrap_err().is_corrupt() && bytes.end - bytes.start > 4096),
                }
            }
        }
    });
}

#[test]
fn what_is_to_be_durable_in_an_interval_is_so_whatever_the_store_does_otherwise() {
    for (own, asked) in [("os", 10), ("interval:60000", 10), ("interval:10", 60000)] {
        let sched = Sched::simulated(6);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        sched.run(|| {
            let options = cuesta::Options { durability: own.parse().unwrap(), ..small() };
            let open = |disk: &SimDisk| Db::open_in(&options, world(&sched, disk, &options)).unwrap();
            let db = open(&disk);
            let mut batch = cuesta::Batch::new();
            batch.put(b"a", b"1");
            db.write_with(batch, Durability::Interval(Duration::from_millis(asked))).unwrap();
            sched.sleep(Duration::from_millis(asked + 100));
            let after = disk.after_cut(Survival::None, &mut Rng::new(1)).on(&sched);
            drop(db);
            assert!(open(&after).get(b"a").unwrap().is_some(), "{own} {asked}");
        });
    }
}

#[test]
fn files_that_cannot_be_removed_are_no_jobs_failure_and_go_later() {
    // A log that is to go may be filled again instead, so whether some pile up is chance.
    let piled_up: Vec<usize> = (0..6).map(files_go_later).collect();
    assert!(piled_up.iter().sum::<usize>() > 4, "{piled_up:?}");
}

/// Refuses the removal of files for a while; how many more logs there were at the end of it.
fn files_go_later(seed: u64) -> usize {
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let mut options = small();
    options.tiers[0].capacity_bytes = 64 << 20;
    sched.run(|| {
        let open = || Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        let db = open();
        let write = |db: &Db, round: u8| {
            (0..4000).for_each(|i| assert!(db.put(format!("key{i:04}"), [round; 1000]).is_ok()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
        };
        let files = || {
            let all: Vec<_> = (0..2).flat_map(|tier| disk.files(tier)).map(|file| file.name).collect();
            ["data-", "log-"].map(|kind| all.iter().filter(|name| name.starts_with(kind)).count())
        };
        let used = |db: &Db| db.stats().tiers.iter().map(|tier| tier.used_bytes).sum::<u64>();
        (1..3).for_each(|round| write(&db, round));
        let before = files();
        let refused = |kind| Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Remove).named(kind).since(1);
        disk.set_faults(["data-", "meta-", "log-"].map(refused).to_vec());
        write(&db, 3);
        let during = files();
        assert!(during[0] > before[0] + 5, "{before:?} {during:?}");
        assert_eq!(db.stats().state, StoreState::Open);
        disk.set_faults(Vec::new());
        write(&db, 4);
        let after = files();
        let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
        assert!(after[0] as u64 <= tables + 2 && after[1] <= before[1] + 1, "{before:?} {after:?} {tables}");
        // The room of each was given back once.
        let counted = used(&db);
        db.close().unwrap();
        let db = open();
        assert!(counted.abs_diff(used(&db)) < 1 << 20, "{counted} {}", used(&db));
        db.close().unwrap();
        during[1].saturating_sub(before[1])
    })
}

#[test]
fn a_fast_tier_made_smaller_drains_and_one_made_larger_fills() {
    let sched = Sched::simulated(3);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let sized = |bytes: u64| {
        let mut options = small();
        options.tiers[0].capacity_bytes = bytes;
        options.tiers.iter_mut().for_each(|tier| tier.compression = cuesta::Compression::None);
        options
    };
    let open = |bytes| Db::open_in(&sized(bytes), world(&sched, &disk, &sized(bytes))).unwrap();
    let on_fast = |db: &Db| db.stats().levels.iter().map(|level| level.bytes[0]).sum::<u64>();
    sched.run(|| {
        let (large, less) = (16 << 20, 3 << 20);
        let db = open(large);
        for i in 0..1200u64 {
            db.put(format!("key{:04}", i * 7 % 1200), vec![i as u8; 5000]).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert!(on_fast(&db) > 4 << 20, "{}", db.stats());
        db.close().unwrap();
        let db = open(less);
        db.put(b"while", b"it drains").unwrap();
        db.wait_for_background().unwrap();
        let used = db.stats().tiers[0].used_bytes;
        assert!(used <= less, "{used}: {}", db.stats());
        assert_eq!(db.scan(Range::all()).unwrap().filter(|pair| pair.is_ok()).count(), 1201);
        db.close().unwrap();
        assert!(disk.used_bytes(0) <= less);
        let db = open(large);
        db.wait_for_background().unwrap();
        assert!(on_fast(&db) > 4 << 20, "{}", db.stats());
        db.close().unwrap();
    });
}

#[test]
fn indexes_that_found_no_room_on_the_fast_tier_come_up_once_there_is_some() {
    let sched = Sched::simulated(4);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let sized = |bytes: u64| {
        let mut options = small();
        options.tiers[0].capacity_bytes = bytes;
        options
    };
    let open = |bytes| Db::open_in(&sized(bytes), world(&sched, &disk, &sized(bytes))).unwrap();
    let below = || disk.files(1).iter().filter(|file| file.name.starts_with("meta-")).count();
    let key = |i: u64| format!("key{:06}", i * 7919 % 40_000);
    sched.run(|| {
        let db = open(1200 << 10);
        for i in 0..40_000 {
            db.put(key(i), key(i)).unwrap();
        }
        db.wait_for_background().unwrap();
        assert!(below() > 0, "{}", db.stats());
        db.close().unwrap();
        let db = open(16 << 20);
        db.wait_for_background().unwrap();
        assert_eq!(below(), 0, "{}", db.stats());
        assert!((0..40_000).all(|i| db.get(key(i)).unwrap().unwrap() == key(i).as_bytes()));
        db.close().unwrap();
    });
}

#[test]
fn a_background_job_that_panics_closes_the_store_for_writes_and_hangs_nobody() {
    let sched = Sched::simulated(4);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = open(&sched, &disk).unwrap();
        db.put(b"a", b"1").unwrap();
        disk.set_faults(vec![Fault::new(Effect::Panics).named("data")]);
        let error = db.flush().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(*db.put(b"b", b"2").unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(db.get(b"a").unwrap().unwrap(), b"1");
        drop(db);
        disk.set_faults(Vec::new());
        assert_eq!(open(&sched, &disk).unwrap().get(b"a").unwrap().unwrap(), b"1");
    });
}

#[test]
fn merges_are_held_back_where_that_is_asked_for_and_reads_are_not() {
    const RATE: u64 = 1 << 20;
    let elapsed = |rate: Option<u64>| {
        let sched = Sched::simulated(1);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        let mut options = options(5, Durability::Os);
        // Everything on the second tier, and merges due all the time.
        options.tiers[0].capacity_bytes = 2 << 20;
        options.tiers[1].background_bytes_per_second = rate;
        options.level0_merge = 2;
        // And no writer who waits for level 0.
        (options.level0_slow, options.level0_stop) = (40, 80);
        sched.run(|| {
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            let mut rng = Rng::new(3);
            for i in 0..3000u64 {
                let value: Vec<u8> = (0..125).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
                db.put(format!("key{:05}", i * 7 % 3000), value).unwrap();
            }
            let begun = sched.now();
            for i in 0..100 {
                db.get(format!("key{i:05}")).unwrap().unwrap();
            }
            let reads = sched.now() - begun;
            db.wait_for_background().unwrap();
            let io = db.stats().io.get(1, cuesta::Cause::Compaction);
            (sched.now(), reads, io.read_bytes + io.write_bytes)
        })
    };
    let (free, ..) = elapsed(None);
    let (held_back, reads, bytes) = elapsed(Some(RATE));
    // Never more than four times the rate, but for what the last call of all took.
    let least = std::time::Duration::from_secs_f64(bytes as f64 / (4 * RATE) as f64);
    assert!(
        bytes > 4 << 20 && held_back > least && held_back > 2 * free,
        "{held_back:?}, {free:?}, {bytes} bytes"
    );
    assert!(reads < std::time::Duration::from_millis(100), "{reads:?}");
}
