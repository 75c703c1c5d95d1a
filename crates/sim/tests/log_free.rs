//! Writes that go to slots instead of the log.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Batch, Cause, Db, Durability, ErrorKind, Options, Range};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk, Survival};
use cuesta_sched::{Priority, Rng, Sched};
use cuesta_sim::{Kind, options_of, world};
use std::time::Duration;

fn log_free() -> Options {
    let mut options = options_of(Kind::PrismDbLogFree, 3, Durability::Os);
    options.tiers[0].capacity_bytes = 8 << 20;
    options.tiers[0].sector_bytes = 4096;
    options
}

fn open(sched: &Sched, disk: &SimDisk, options: &Options) -> Db {
    Db::open_in(options, world(sched, disk, options)).unwrap()
}

/// A store for which slots for values of a hundred bytes were announced.
fn ready(sched: &Sched, disk: &SimDisk) -> Db {
    let db = open(sched, disk, &log_free());
    db.put(b"first", [0; 100]).unwrap();
    sched.sleep(Duration::from_secs(3));
    db
}

fn on_a_disk(test: impl FnOnce(&Sched, &SimDisk)) {
    let sched = Sched::simulated(7);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| test(&sched, &disk));
}

fn key(i: u64) -> String {
    format!("key{i:02}")
}

fn put_synced(db: &Db, i: u64) {
    let mut batch = Batch::new();
    batch.put(key(i), [1; 100]);
    db.write_with(batch, Durability::Sync).unwrap();
}

fn written(db: &Db, cause: Cause) -> u64 {
    db.stats().io.get(0, cause).write_bytes
}

fn in_slots(db: &Db) -> u64 {
    db.stats().objects.unwrap().log_free
}

/// How many of the first keys there are, of those that follow one another.
fn prefix(db: &Db, of: u64) -> u64 {
    (0..of).take_while(|i| db.get(key(*i)).unwrap().is_some()).count() as u64
}

#[test]
fn single_keys_go_to_slots_and_their_flush_writes_nothing() {
    on_a_disk(|sched, disk| {
        let db = open(sched, disk, &log_free());
        db.put(b"first", [0; 700]).unwrap();
        sched.sleep(Duration::from_secs(3));
        (0..20).for_each(|i| assert!(db.put(key(i), [1; 700]).is_ok()));
        assert_eq!(in_slots(&db), 20);
        let before = written(&db, Cause::Flush);
        db.flush().unwrap();
        // The first one went to the log, so it needs a slab, and a page of that.
        assert_eq!(written(&db, Cause::Flush) - before, 2 * 4096, "{}", db.stats());
        let mut batch = Batch::new();
        batch.put(b"a", b"1").put(b"b", b"2");
        db.write(batch).unwrap();
        assert_eq!(in_slots(&db), 20);
        assert_eq!(db.scan(Range::all()).unwrap().count(), 23);
        db.close().unwrap();
        let db = open(sched, disk, &log_free());
        assert_eq!(db.scan(Range::all()).unwrap().count(), 23);
        db.close().unwrap();
    });
}

#[test]
fn what_went_to_slots_survives_a_kill_and_other_settings() {
    on_a_disk(|sched, disk| {
        let db = ready(sched, disk);
        (0..20).for_each(|i| assert!(db.put(key(i), [i as u8; 100]).is_ok()));
        db.put(key(4), b"other").unwrap();
        assert!(in_slots(&db) >= 20);
        let disk = disk.kill();
        drop(db);
        // Opened as a store that writes a log: slots are read all the same.
        let with_log = Options { log_free: false, ..log_free() };
        let db = open(sched, &disk, &with_log);
        assert_eq!(db.stats().opened.torn_slots, 0);
        assert_eq!((prefix(&db, 20), db.get(key(4)).unwrap().unwrap().to_vec()), (20, b"other".to_vec()));
        db.put(key(5), b"logged").unwrap();
        let disk = disk.kill();
        drop(db);
        let db = open(sched, &disk, &log_free());
        assert_eq!(db.get(key(5)).unwrap().unwrap().to_vec(), b"logged");
        assert_eq!(db.get(key(19)).unwrap().unwrap().to_vec(), [19; 100]);
        db.close().unwrap();
    });
}

#[test]
fn a_synced_write_in_a_slot_survives_a_power_cut_with_all_before_it() {
    on_a_disk(|sched, disk| {
        let db = ready(sched, disk);
        (0..10).for_each(|i| assert!(db.put(key(i), [1; 100]).is_ok()));
        put_synced(&db, 10);
        (11..20).for_each(|i| assert!(db.put(key(i), [1; 100]).is_ok()));
        assert_eq!(in_slots(&db), 20);
        let mut torn = 0;
        for seed in 0..40 {
            let image = disk.clone();
            let after = image.after_cut(Survival::Random, &mut Rng::new(seed)).on(sched);
            let db = open(sched, &after, &log_free());
            let there = prefix(&db, 20);
            assert!(there >= 11, "{there}");
            let all = db.scan(Range::all()).unwrap().count() as u64;
            assert_eq!(all, there + 1, "what is left is no prefix of what was written");
            torn += db.stats().opened.torn_slots;
            db.close().unwrap();
        }
        assert!(torn > 0, "no cut has torn a slot");
        drop(db);
    });
}

#[test]
fn what_is_written_while_the_store_closes_does_not_keep_it_from_being_opened() {
    let mut last_in_slots = 0;
    for seed in 0..60 {
        let sched = Sched::simulated(seed);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        sched.run(|| {
            let db = ready(&sched, &disk);
            let writer = db.default_keyspace().clone();
            let body = move || {
                let mut i = 0;
                while writer.put(key(i), [1; 100]).is_ok() {
                    i += 1;
                }
            };
            let thread = sched.spawn("writer", Priority::Normal, body).unwrap();
            sched.sleep(Duration::from_millis(seed));
            last_in_slots += u64::from(in_slots(&db) > 0);
            db.close().unwrap();
            let after = disk.after_cut(Survival::None, &mut Rng::new(seed)).on(&sched);
            thread.join();
            open(&sched, &after, &log_free()).close().unwrap();
        });
    }
    assert!(last_in_slots > 30);
}

#[test]
fn a_durable_slot_that_is_damaged_is_missed() {
    on_a_disk(|sched, disk| {
        let db = ready(sched, disk);
        put_synced(&db, 0);
        db.put(key(1), [7; 100]).unwrap();
        let disk = disk.kill();
        drop(db);
        let slab = disk.files(0).into_iter().find(|file| file.name.starts_with("slab-")).unwrap().name;
        disk.flip_bit(0, &slab, 4096 + 30, 0);
        let error = Db::open_in(&log_free(), world(sched, &disk, &log_free())).map(drop).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("was durable"), "{error}");
    });
}

#[test]
fn refused_writes_leave_no_gap_that_ends_the_replay() {
    on_a_disk(|sched, disk| {
        let db = ready(sched, disk);
        db.put(key(0), [1; 100]).unwrap();
        // Neither slots nor log have room for it.
        let full = |name| Fault::new(Effect::Fail(Failure::NoSpace)).on(OpKind::Write).named(name).since(1);
        disk.set_faults(vec![full("log-"), full("slab-")]);
        let mut batch = Batch::new();
        batch.put(key(50), [2; 100]).put(key(51), [2; 100]);
        let error = db.write(batch).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Full);
        disk.set_faults(Vec::new());
        (1..20).for_each(|i| assert!(db.put(key(i), [1; 100]).is_ok()));
        assert_eq!(in_slots(&db), 20);
        let disk = disk.kill();
        drop(db);
        let db = open(sched, &disk, &log_free());
        assert_eq!((prefix(&db, 20), db.get(key(50)).unwrap()), (20, None));
        db.close().unwrap();
    });
}
