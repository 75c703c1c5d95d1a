//! What a store says and does when its log cannot be synced and when its media are full; that it does so everywhere
//! is the table's to show.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, ErrorKind, Range, StoreState, World};
use cuesta_device::sim::{Effect, Fault, SimConfig, SimDisk, SyncFailure};
use cuesta_sched::Sched;
use cuesta_sim::{options, world};

fn small() -> cuesta::Options {
    options(3, Durability::Os)
}

fn open(sched: &Sched, disk: &SimDisk) -> cuesta::Result<Db> {
    let world: World = world(sched, disk);
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
