//! Calls that fail: each of a script's I/O operations in turn, failed syncs in three ways, damaged and full media.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test they are the assertion and the report"
)]

use cuesta::{Db, Durability, ErrorKind, Range, StoreState, World};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk, Survival, SyncFailure};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{options, world};

fn small() -> cuesta::Options {
    options(3, Durability::Os)
}

fn open(sched: &Sched, disk: &SimDisk) -> cuesta::Result<Db> {
    let world: World = world(sched, disk);
    Db::open_in(&small(), world)
}

/// Opens, writes, flushes, merges and closes, going on after errors; the keys whose writes were acknowledged under
/// `Sync`, and whether a write was acknowledged after the store had said it takes none.
fn script(sched: &Sched, disk: &SimDisk) -> (Vec<String>, bool) {
    let (mut acknowledged, mut refused, mut late) = (Vec::new(), false, false);
    let Ok(db) = open(sched, disk) else { return (acknowledged, late) };
    for i in 0..30 {
        let key = format!("key{i:03}");
        let mut batch = cuesta::Batch::new();
        batch.put(&key, vec![7; 4000]);
        match db.write_with(batch, Durability::Sync) {
            Ok(_) => {
                late |= refused;
                acknowledged.push(key);
            }
            Err(error) => refused |= *error.kind() == ErrorKind::ReadOnly,
        }
        if i % 10 == 9 {
            drop(db.flush());
        }
    }
    drop(db.create_keyspace("space"));
    drop(db.wait_for_background());
    for key in &acknowledged {
        // The right value or an error, never another answer.
        if let Ok(found) = db.get(key) {
            assert_eq!(found.as_deref().map(<[u8]>::len), Some(4000), "{key}");
        }
    }
    drop(db.close());
    (acknowledged, late)
}

fn reopened_has(disk: &SimDisk, acknowledged: &[String]) -> Result<(), String> {
    let sched = Sched::simulated(9);
    let disk = disk.on(&sched);
    sched.run(|| {
        let db = open(&sched, &disk).map_err(|error| format!("open: {error}"))?;
        for key in acknowledged {
            match db.get(key) {
                Ok(Some(value)) if value.len() == 4000 => {}
                other => return Err(format!("{key}: {:?}", other.map(|v| v.map(|v| v.len())))),
            }
        }
        db.close().map_err(|error| format!("close: {error}"))
    })
}

/// Plays the script with one fault; then a power cut that keeps nothing unsynced, a reopen, and a look.
fn play(fault: Option<Fault>, seed: u64) -> Result<u64, String> {
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    disk.set_faults(fault.into_iter().collect());
    let (acknowledged, late) = sched.run(|| script(&sched, &disk));
    if late {
        return Err("a write was acknowledged after the store had closed for writes".to_owned());
    }
    disk.set_faults(Vec::new());
    let ops = disk.ops();
    disk.cut_now();
    reopened_has(&disk.after_cut(Survival::None, &mut Rng::new(1)), &acknowledged).map(|()| ops)
}

#[test]
fn every_operation_may_fail_once_or_for_ever() {
    let ops = play(None, 5).unwrap();
    assert!(ops > 200, "{ops}");
    let effects = [
        Effect::Fail(Failure::Io),
        Effect::Fail(Failure::NoSpace),
        Effect::Fail(Failure::Quota),
        Effect::Short { bytes: 100, failure: Failure::NoSpace },
        Effect::Interrupted,
    ];
    for nth in 1..=ops {
        for (i, effect) in effects.iter().enumerate() {
            for fault in [Fault::new(*effect).nth(nth), Fault::new(*effect).since(nth)] {
                play(Some(fault), 5).unwrap_or_else(|what| panic!("operation {nth}, effect {i}: {what}"));
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_a_reopen() {
    for mode in [SyncFailure::CleanNew, SyncFailure::CleanOld, SyncFailure::Sticky] {
        for name in ["log", "manifest", "data", "meta", "CUESTA"] {
            for nth in 1..6 {
                let fault = Fault::new(Effect::SyncFails(mode)).on(OpKind::Sync).named(name).nth(nth);
                play(Some(fault), 6).unwrap_or_else(|what| panic!("{mode:?} of {name}, {nth}: {what}"));
            }
        }
    }
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
fn any_damaged_byte_is_an_error_or_makes_no_difference() {
    let sched = Sched::simulated(7);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let db = open(&sched, &disk).unwrap();
        for i in 0..40 {
            db.put(format!("key{i:03}"), format!("value{i}")).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        db.create_keyspace("space").unwrap();
        db.put(b"logged", b"too").unwrap();
        db.close().unwrap();
    });
    let mut damaged = 0;
    for tier in 0..2 {
        for file in disk.files(tier) {
            for at in 0..file.bytes {
                let sched = Sched::simulated(8);
                let disk = disk.kill().on(&sched);
                disk.flip_bit(tier, &file.name, at, (at % 8) as u8);
                damaged += 1;
                sched.run(|| {
                    let report = cuesta::verify_in(&small(), world(&sched, &disk), &mut |_| {});
                    assert!(
                        report.is_ok_and(|r| !r.problems.is_empty()) || at > 0 && is_version(&file.name, at),
                        "{} byte {at} of tier {tier} passes verification",
                        file.name
                    );
                    let Ok(db) = open(&sched, &disk) else { return };
                    for i in 0..40 {
                        if let Ok(found) = db.get(format!("key{i:03}")) {
                            assert_eq!(
                                found.as_deref(),
                                Some(format!("value{i}").as_bytes()),
                                "{} byte {at}",
                                file.name
                            );
                        }
                    }
                    assert_eq!(db.get(b"logged").unwrap().unwrap(), b"too", "{} byte {at}", file.name);
                    assert_eq!(db.keyspaces().unwrap(), ["space"]);
                });
            }
        }
    }
    println!("{damaged} bytes damaged");
}

/// A damaged format version is refused as an unknown format, which is an error of its own kind.
fn is_version(name: &str, at: u64) -> bool {
    (8..12).contains(&(at % if name == "CUESTA" { 4096 } else { u64::MAX }))
}
