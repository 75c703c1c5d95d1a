//! The store below the memtable, by what a user sees of it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, ErrorKind, Options, Range};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::Sched;
use cuesta_sim::{Profile, options_of, world};

/// A fast tier of which the slabs have little.
fn small() -> Options {
    let mut options = options_of(Profile::PrismDb, 3, Durability::Os);
    options.tiers[0].capacity_bytes = 2_000_000;
    options
}

fn on_a_disk(test: impl FnOnce(&Sched, &SimDisk)) {
    let sched = Sched::simulated(7);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| test(&sched, &disk));
}

fn key(i: u64) -> String {
    format!("key{:03}", i % 100)
}

#[test]
fn an_iterator_that_rests_keeps_no_slot_from_others() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk)).unwrap();
        (0..100).for_each(|i| assert!(db.put(key(i), vec![1; 1000]).is_ok()));
        db.flush().unwrap();
        let mut scan = db.scan(Range::all()).unwrap();
        let first = scan.next().unwrap().unwrap();
        // Many times what the slabs have room for.
        (0..5000).for_each(|i| assert!(db.put(key(i * 7), vec![2; 1000]).is_ok()));
        db.flush().unwrap();
        let rest: Vec<_> = scan.map(Result::unwrap).collect();
        assert_eq!((first.0.as_slice(), rest.len()), (key(0).as_bytes(), 99));
        assert!(rest.iter().all(|(_, value)| value[..] == [1; 1000]));
        assert!(db.stats().objects.unwrap().objects > 0);
        db.close().unwrap();
    });
}

#[test]
fn a_store_stays_of_the_profile_that_it_was_made_with() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk)).unwrap();
        db.put(b"a", b"b").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let other = Options { profile: Some(Profile::Leveled), ..small() };
        let error = Db::open_in(&other, world(sched, disk)).map(drop).unwrap_err();
        assert!(
            *error.kind() == ErrorKind::Invalid && error.to_string().contains("of profile prismdb"),
            "{error}"
        );
        let any = Options { profile: None, ..small() };
        let db = Db::open_in(&any, world(sched, disk)).unwrap();
        assert_eq!(db.get(b"a").unwrap().unwrap()[..], *b"b");
        assert_eq!(db.stats().objects.unwrap().objects, 1);
        db.close().unwrap();
    });
}

#[test]
fn a_damaged_slot_costs_its_key_and_names_itself() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk)).unwrap();
        (0..3).for_each(|i| assert!(db.put(key(i), vec![3; 100]).is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        let slab = disk.files(0).into_iter().find(|file| file.name.starts_with("slab-")).unwrap().name;
        // The last byte of the first slot's value: header, keyspace and key, value.
        disk.flip_bit(0, &slab, 4096 + 24 + 4 + 6 + 99, 0);
        let db = Db::open_in(&small(), world(sched, disk)).unwrap();
        let error = db.get(key(0)).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(&slab), "{error}");
        assert_eq!(db.get(key(1)).unwrap().unwrap().len(), 100);
        assert_eq!(db.get(b"absent").unwrap(), None);
        drop(db);
        // And of the second's key: whose it was nobody knows, so what nobody has may have been in it.
        let slot = 4096 + 144;
        disk.flip_bit(0, &slab, slot + 24 + 5, 0);
        let db = Db::open_in(&small(), world(sched, disk)).unwrap();
        assert_eq!(db.stats().objects.unwrap().damaged, 1);
        assert!(db.get(key(1)).unwrap_err().is_corrupt() && db.get(b"absent").unwrap_err().is_corrupt());
        assert_eq!(db.get(key(2)).unwrap().unwrap().len(), 100);
    });
}
