//! Guards with several runs, by what a user sees of them.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Cause, Compression, Db, Durability, LevelStats, Options, Profile, Range};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{Kind, options_of, world};
use std::collections::BTreeMap;
use std::time::Duration;

const RUNS_MAX: u64 = 4;
const KEYS: u64 = 3000;

/// Levels of a few tables each, all on one tier.
fn small(kind: Kind) -> Options {
    let mut options = options_of(kind, 4, Durability::Os);
    options.tiers[0].capacity_bytes = 64 << 20;
    options.tiers[0].compression = Compression::None;
    (options.table_bytes, options.level_ratio, options.level0_merge) = (32 << 10, 2, 4);
    (options.runs_max, options.background_threads, options.seed) = (RUNS_MAX as u32, 2, 1);
    options
}

fn on_a_disk(test: impl FnOnce(&Sched, &SimDisk)) {
    let sched = Sched::simulated(7);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| test(&sched, &disk));
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts and a few deletes of random keys.
fn change(db: &Db, model: &mut Model, rng: &mut Rng, operations: u64, keys: u64) {
    for operation in 0..operations {
        let key = key(rng.below(keys));
        if rng.one_in(8) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = [&operation.to_be_bytes()[..], &[7; 120]].concat();
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn check(db: &Db, model: &Model) {
    let forwards: Model =
        db.scan(Range::all()).unwrap().map(Result::unwrap).map(|(k, v)| (k, v.to_vec())).collect();
    assert!(forwards == *model, "{} pairs, {} in the model", forwards.len(), model.len());
    for i in 0..KEYS {
        let found = db.get(key(i)).unwrap().map(|value| value.to_vec());
        assert_eq!(found.as_ref(), model.get(&key(i)), "key {i}");
    }
}

/// The levels below the first.
fn levels(db: &Db) -> Vec<LevelStats> {
    db.stats().levels.into_iter().skip(1).collect()
}

#[test]
fn guards_have_several_runs_and_never_more_than_they_may() {
    on_a_disk(|sched, disk| {
        let options = small(Kind::Fragmented);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let (mut model, mut rng) = (Model::new(), Rng::new(3));
        let (mut most_runs, mut most_guards) = (0, 0);
        for _ in 0..40 {
            change(&db, &mut model, &mut rng, 500, KEYS);
            let levels = levels(&db);
            most_runs = most_runs.max(levels.iter().map(|level| level.runs).max().unwrap_or(0));
            most_guards = most_guards.max(levels.iter().map(|level| level.guards).max().unwrap_or(0));
        }
        assert!(most_runs > 2 && most_runs <= RUNS_MAX, "{most_runs} runs");
        assert!(most_guards > 4, "{most_guards} guards");
        check(&db, &model);
        db.close().unwrap();
        // Bounds and ages come back with the manifest.
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        check(&db, &model);
        change(&db, &mut model, &mut rng, 2000, KEYS);
        check(&db, &model);
        db.close().unwrap();
    });
}

#[test]
fn flushes_are_shared_out_among_guards_of_level_0_and_a_merge_takes_one() {
    on_a_disk(|sched, disk| {
        let options = small(Kind::Leveled);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let (mut model, mut rng) = (Model::new(), Rng::new(3));
        let (mut most_guards, mut uneven) = (0, 0);
        for _ in 0..120 {
            change(&db, &mut model, &mut rng, 300, KEYS);
            let level0 = db.stats().levels.into_iter().next().unwrap_or_default();
            most_guards = most_guards.max(level0.guards);
            uneven += u64::from(level0.tables < level0.guards * level0.runs);
        }
        assert!(most_guards > 1 && uneven > 3, "{most_guards} guards, uneven {uneven} times");
        check(&db, &model);
        db.close().unwrap();
        // Keys that come behind all others: guards that get nothing any more go again.
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        check(&db, &model);
        for i in 0..20_000 {
            db.put(key(KEYS + i), [7; 120]).unwrap();
        }
        let guards = db.stats().levels[0].guards;
        assert!(guards <= 4 * most_guards, "{guards} guards");
        db.close().unwrap();
    });
}

#[test]
fn fewer_bytes_are_rewritten_than_in_leveled() {
    let rewritten = |profile| {
        let mut bytes: u64 = 0;
        on_a_disk(|sched, disk| {
            let options = Options { level_ratio: 10, runs_max: 10, ..small(profile) };
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            change(&db, &mut Model::new(), &mut Rng::new(3), 120_000, 10 * KEYS);
            db.wait_for_background().unwrap();
            let io = db.stats().io;
            bytes = (0..2).map(|tier| io.get(tier, Cause::Compaction).write_bytes).sum();
            db.close().unwrap();
        });
        bytes
    };
    let (fragmented, leveled) = (rewritten(Kind::Fragmented), rewritten(Kind::Leveled));
    assert!(fragmented * 4 < leveled * 3, "{fragmented} bytes, {leveled} in leveled");
}

#[test]
fn guards_join_as_their_data_goes() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(Kind::Fragmented), world(sched, disk, &small(Kind::Fragmented))).unwrap();
        let put = |i: u64, byte: u8| assert!(db.put(key(i), [byte; 200]).is_ok());
        (0..KEYS).for_each(|i| put(i, 5));
        db.wait_for_background().unwrap();
        let guards = |db: &Db| levels(db).last().unwrap().guards;
        let before = guards(&db);
        assert!(before >= 4, "{before} guards");
        // Tombstones take little room, so those of keys that nobody writes any more wait in their guards of level 0:
        // until there are as many runs of them as make each due, which go down, take with them what is there, and then
        // themselves.
        for _ in 0..small(Kind::Fragmented).level0_merge {
            (0..KEYS).for_each(|i| assert!(db.delete(key(i)).is_ok()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
        }
        (0..20_000).for_each(|i| put(i * 7 % 50, 6));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(guards(&db), 1, "of {before}");
        assert_eq!(db.scan(Range::all()).unwrap().count(), 50);
        db.close().unwrap();
    });
}

#[test]
fn with_one_floor_a_guard_the_store_is_leveled_byte_for_byte() {
    let written = |profile| {
        let mut seen = String::new();
        on_a_disk(|sched, disk| {
            // The profile's name alone differs, so nothing else does between the two.
            let options = Options { profile: Some(profile), floors_max: Some(1), ..small(Kind::NvLsm) };
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            change(&db, &mut Model::new(), &mut Rng::new(3), 40_000, KEYS);
            db.wait_for_background().unwrap();
            let stats = db.stats();
            // The manifest has the name.
            let causes = Cause::ALL.iter().filter(|cause| **cause != Cause::Manifest);
            let io: Vec<_> = causes.map(|cause| stats.io.get(0, *cause).write_bytes).collect();
            assert!(stats.levels.len() > 1 && io.iter().filter(|bytes| **bytes > 0).count() > 2);
            seen = format!("{io:?} {:?}", stats.levels);
            db.close().unwrap();
        });
        seen
    };
    assert_eq!(written(Profile::NvLsm), written(Profile::Leveled));
}

#[test]
fn floors_come_and_go_with_the_number_that_a_guard_may_have() {
    on_a_disk(|sched, disk| {
        let (mut model, mut rng) = (Model::new(), Rng::new(11));
        let mut most_guards_of_level_0 = 0;
        for floors in [1, 4, 1, 3, 2, 1, 5] {
            let options = Options { floors_max: Some(floors), ..small(Kind::NvLsm) };
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            check(&db, &model);
            let level0 = |db: &Db| db.stats().levels.first().map_or(0, |level| level.guards);
            assert!(floors == 1 || level0(&db) <= 1, "{floors} floors, {}", db.stats());
            // A flush finds what was there before first.
            for _ in 0..20 {
                change(&db, &mut model, &mut rng, 300, KEYS);
                most_guards_of_level_0 = most_guards_of_level_0.max(level0(&db));
            }
            check(&db, &model);
            db.wait_for_background().unwrap();
            // With one, guards from before go with the tables that are put across where they began.
            let guards = levels(&db).iter().map(|level| level.guards).max().unwrap();
            assert!(floors > 1 || guards <= 3, "{guards} guards with one floor, {}", db.stats());
            let runs = levels(&db).iter().map(|level| level.runs).max().unwrap();
            assert!(runs <= u64::from(floors), "{runs} runs of {floors}, {}", db.stats());
            db.close().unwrap();
        }
        assert!(most_guards_of_level_0 > 1);
    });
}

#[test]
fn floors_follow_the_mix_of_reads_and_writes() {
    on_a_disk(|sched, disk| {
        let options = Options { floors_max: None, ..small(Kind::NvLsm) };
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let (mut model, mut rng) = (Model::new(), Rng::new(5));
        let most = || levels(&db).iter().map(|level| level.runs).max().unwrap();
        let settled = || {
            // A worker that has nothing to do looks once a second.
            sched.sleep(Duration::from_secs(2));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            db.stats().runs_max
        };
        change(&db, &mut model, &mut rng, 20_000, KEYS);
        assert_eq!(settled(), 10);
        assert!(most() > 2, "{}", db.stats());
        let mut floors = 10;
        for _ in 0..3 {
            (0..20_000).for_each(|i| drop(db.get(key(i % KEYS)).unwrap()));
            let fewer = settled();
            assert!(fewer <= floors);
            floors = fewer;
        }
        assert!(floors == 2 && most() <= 2, "{}", db.stats());
        check(&db, &model);
        (0..10).for_each(|_| change(&db, &mut model, &mut rng, 10_000, KEYS));
        // A number that is little off stays.
        assert!(settled() > 6, "{}", db.stats());
        check(&db, &model);
        db.close().unwrap();
    });
}
