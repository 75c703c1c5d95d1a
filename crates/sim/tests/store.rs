//! The store below the memtable, by what a user sees of it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{
    Batch, Cause, Db, Demotion, Durability, ErrorKind, Options, Profile, PromoteReads, Range, Repair,
    repair_in,
};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk, Survival};
use cuesta_sched::Sched;
use cuesta_sim::{Kind, options_of, world};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A fast tier of which the slabs have little.
fn small() -> Options {
    let mut options = options_of(Kind::PrismDb, 3, Durability::Os);
    options.tiers[0].capacity_bytes = 2_000_000;
    Options { log_guard_tables: Options::default().log_guard_tables, ..options }
}

fn on_a_disk(test: impl FnOnce(&Sched, &SimDisk)) {
    on_a_disk_by(7, test);
}

/// In the order of events that a seed says.
fn on_a_disk_by<R>(seed: u64, test: impl FnOnce(&Sched, &SimDisk) -> R) -> R {
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| test(&sched, &disk))
}

fn key(i: u64) -> String {
    format!("key{:03}", i % 100)
}

#[test]
fn an_iterator_that_rests_keeps_no_slot_from_others() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
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
        // They may all have gone down by now.
        db.put(key(0), vec![3; 1000]).unwrap();
        db.flush().unwrap();
        assert!(db.stats().objects.unwrap().objects > 0);
        db.close().unwrap();
    });
}

#[test]
fn a_store_stays_of_the_profile_that_it_was_made_with() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        db.put(b"a", b"b").unwrap();
        db.flush().unwrap();
        let for_cache = |db: &Db| db.stats().memory.cache_limit_bytes;
        db.close().unwrap();
        let other = Options { profile: Some(Profile::Leveled), ..small() };
        let error = Db::open_in(&other, world(sched, disk, &other)).map(drop).unwrap_err();
        assert!(
            *error.kind() == ErrorKind::Invalid && error.to_string().contains("of profile prismdb"),
            "{error}"
        );
        let any = Options { profile: None, ..small() };
        let db = Db::open_in(&any, world(sched, disk, &any)).unwrap();
        assert_eq!(db.get(b"a").unwrap().unwrap()[..], *b"b");
        assert_eq!(db.stats().objects.unwrap().objects, 1);
        // And a memtable that waited has room beside what nobody counts.
        let before = for_cache(&db);
        db.put(b"b", b"c").unwrap();
        db.flush().unwrap();
        assert!(before - for_cache(&db) >= any.memtable_bytes.unwrap(), "{before} {}", for_cache(&db));
        db.close().unwrap();
    });
}

#[test]
fn a_damaged_slot_costs_its_key_and_names_itself() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        (0..3).for_each(|i| assert!(db.put(key(i), vec![3; 100]).is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        let slab = disk.files(0).into_iter().find(|file| file.name.starts_with("slab-")).unwrap().name;
        // The last byte of the first slot's value: header, keyspace and key, value.
        disk.flip_bit(0, &slab, 4096 + 24 + 4 + 6 + 99, 0);
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        let error = db.get(key(0)).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(&slab), "{error}");
        assert_eq!(db.get(key(1)).unwrap().unwrap().len(), 100);
        assert_eq!(db.get(b"absent").unwrap(), None);
        drop(db);
        // And of the second's key: after a clean close the image knows whose it was.
        let slot = 4096 + 136;
        disk.flip_bit(0, &slab, slot + 24 + 5, 0);
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        assert!(db.get(key(1)).unwrap_err().is_corrupt());
        assert_eq!(db.get(b"absent").unwrap(), None);
        drop(db);
        // Without it nobody does, so what nobody has may have been in it.
        disk.remove_file(1, &image_of(disk).unwrap());
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        assert_eq!(db.stats().objects.unwrap().damaged, 1);
        assert!(db.get(key(1)).unwrap_err().is_corrupt() && db.get(b"absent").unwrap_err().is_corrupt());
        assert_eq!(db.get(key(2)).unwrap().unwrap().len(), 100);
    });
}

#[test]
fn what_a_slot_has_that_no_edit_took_is_not_taken_for_what_came_later() {
    on_a_disk(|sched, disk| {
        let open = |disk: &SimDisk| Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        // Of two slots that are side by side the second gets a tombstone, which is of no use: no table can have the
        // key.
        let db = open(disk);
        db.put(key(5), b"").unwrap();
        db.flush().unwrap();
        let slab = slab_of(&db, &key(5));
        db.delete(key(5)).unwrap();
        db.flush().unwrap();
        let with_tombstone = disk.read_file(0, &slab);
        db.close().unwrap();
        // And the next object of the key, of which the write is lost.
        let db = open(disk);
        (4..6).for_each(|i| assert!(db.put(key(i), b"").is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        disk.write_file(0, &slab, &with_tombstone);
        let db = open(disk);
        for i in 4..6 {
            let error = db.get(key(i)).unwrap_err();
            assert!(error.is_corrupt() && error.to_string().contains("should have been written"), "{error}");
        }
        db.scan(Range::all()).unwrap().next().unwrap().unwrap_err();
    });
}

#[test]
fn what_a_flush_has_left_that_failed_is_not_taken_for_what_came_later() {
    /// Why it fails when one of its two objects is in its slot.
    enum Why {
        /// The process dies before the edit is on media.
        Killed,
        /// The medium cannot read where the other is to go; both go elsewhere.
        Unreadable,
        /// The store is being closed.
        Closed,
    }
    for why in [Why::Killed, Why::Unreadable, Why::Closed] {
        on_a_disk(|sched, disk| {
            let open = |disk: &SimDisk| Db::open_in(&small(), world(sched, disk, &small())).unwrap();
            let db = open(disk);
            db.put(key(4), b"old").unwrap();
            db.put(key(10), vec![1; 1000]).unwrap();
            db.flush().unwrap();
            let [slab, others] = [4, 10].map(|i| slab_of(&db, &key(i)));
            let strikes =
                |effect| disk.set_faults(vec![Fault::new(effect).on(OpKind::Read).named(&others).since(1)]);
            db.put(key(5), b"old").unwrap();
            db.put(key(11), vec![1; 1000]).unwrap();
            let disk = match why {
                Why::Killed => {
                    let fails = Fault::new(Effect::Fail(Failure::Io)).named("manifest-");
                    disk.set_faults(vec![fails.since(1)]);
                    db.flush().unwrap_err();
                    let crashed = disk.kill().on(sched);
                    drop(db);
                    crashed
                }
                Why::Unreadable => {
                    strikes(Effect::Fail(Failure::Io));
                    db.flush().unwrap();
                    db.close().unwrap();
                    disk.clone()
                }
                Why::Closed => {
                    strikes(Effect::LateRead(Duration::from_secs(9)));
                    // So much that a flush begins by itself.
                    let full = small().memtable_bytes.unwrap();
                    (0..=full / 3000).for_each(|i| assert!(db.put(key(20 + i), vec![1; 3000]).is_ok()));
                    sched.sleep(Duration::from_secs(1));
                    db.close().unwrap();
                    disk.clone()
                }
            };
            disk.set_faults(Vec::new());
            // The next object of the key, or what it had in the log once more, is lost on its way to the same slot.
            let with_old = disk.read_file(0, &slab);
            let db = open(&disk);
            if !matches!(why, Why::Closed) {
                db.put(key(5), b"new").unwrap();
            }
            db.flush().unwrap();
            db.close().unwrap();
            disk.write_file(0, &slab, &with_old);
            let db = open(&disk);
            assert_eq!(db.get(key(4)).unwrap().unwrap()[..], *b"old");
            let error = db.get(key(5)).unwrap_err();
            let told = error.to_string();
            assert!(error.is_corrupt() && told.contains("use 1 of the slot, where use 2"), "{told}");
        });
    }
}

#[test]
fn an_object_of_another_key_is_damage() {
    on_a_disk(|sched, disk| {
        let open = |disk: &SimDisk| Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        let db = open(disk);
        (0..20).for_each(|i| assert!(db.put(key(i), vec![1; 100]).is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        // Two histories, in which a slot's next use is of two keys.
        let other = disk.kill().on(sched);
        let written = |disk: &SimDisk, i: u64| {
            let db = open(disk);
            db.put(key(i), vec![2; 100]).unwrap();
            db.flush().unwrap();
            let slab = slab_of(&db, &key(i));
            db.close().unwrap();
            slab
        };
        let slab = written(disk, 50);
        assert_eq!(written(&other, 51), slab);
        disk.write_file(0, &slab, &other.read_file(0, &slab));
        let db = open(disk);
        let error = db.get(key(50)).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("the object of another key"), "{error}");
        assert_eq!(db.get(key(51)).unwrap(), None);
        let found = |from: u64| db.scan(Range::from(key(from).as_bytes()..)).unwrap().next().unwrap();
        assert!(found(49).unwrap_err().is_corrupt());
        // Many times what the slabs have room for: all else goes down, around it.
        for round in 0..20 {
            (0..100).filter(|i| *i != 50).for_each(|i| assert!(db.put(key(i), vec![round; 1000]).is_ok()));
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert!(db.get(key(50)).unwrap_err().is_corrupt());
        (0..100)
            .filter(|i| *i != 50)
            .for_each(|i| assert_eq!(db.get(key(i)).unwrap().unwrap()[..], [19; 1000]));
        assert_eq!(db.stats().objects.unwrap().lost_slots, 1);
        // What is newer counts.
        db.put(key(50), b"again").unwrap();
        db.flush().unwrap();
        assert_eq!(found(50).unwrap().1[..], *b"again");
        db.close().unwrap();
    });
}

/// The slab that a key's newest version lies in, as a file.
fn slab_of(db: &Db, key: &str) -> String {
    let holdings = db.explain(key).unwrap().holdings;
    let held = holdings.iter().find(|h| h.container.starts_with("store, slab") && !h.versions.is_empty());
    let number = held.unwrap().container.split([' ', ',']).filter_map(|word| word.parse().ok()).next();
    format!("slab-{:08}", Option::<u64>::unwrap(number))
}

/// Objects of two sizes, which lie in two slabs: their names.
fn two_slabs(db: &Db) -> [String; 2] {
    (0..3).for_each(|i| assert!(db.put(key(i), vec![3; 100]).is_ok()));
    (10..13).for_each(|i| assert!(db.put(key(i), vec![3; 900]).is_ok()));
    db.flush().unwrap();
    [slab_of(db, &key(0)), slab_of(db, &key(10))]
}

#[test]
fn what_is_left_of_damaged_slabs_is_served() {
    type Damage = fn(&SimDisk, &[String; 2]);
    let missing: Damage = |disk, slabs| disk.remove_file(0, &slabs[0]);
    let cut: Damage = |disk, slabs| {
        let bytes = disk.read_file(0, &slabs[0]);
        disk.write_file(0, &slabs[0], &bytes[..bytes.len() - 4096]);
    };
    let longer: Damage = |disk, slabs| {
        let bytes = disk.read_file(0, &slabs[0]);
        disk.write_file(0, &slabs[0], &[&bytes[..], &[0; 4096]].concat());
    };
    let flipped: Damage = |disk, slabs| disk.flip_bit(0, &slabs[0], 70, 3);
    let swapped: Damage = |disk, slabs| {
        let both = [0, 1].map(|i| disk.read_file(0, &slabs[i]));
        disk.write_file(0, &slabs[0], &both[1]);
        disk.write_file(0, &slabs[1], &both[0]);
    };
    // With how many slabs that are flawed, and keys of the first three and the last three that are lost.
    for (damage, flawed, lost) in
        [(missing, 1, 3), (cut, 1, 3), (longer, 1, 3), (flipped, 1, 0), (swapped, 2, 6)]
    {
        for has_image in [true, false] {
            on_a_disk(|sched, disk| {
                let open = || Db::open_in(&small(), world(sched, disk, &small())).unwrap();
                let db = open();
                let slabs = two_slabs(&db);
                db.close().unwrap();
                if !has_image {
                    disk.remove_file(1, &image_of(disk).unwrap());
                }
                damage(disk, &slabs);
                let report = cuesta::verify_in(&small(), world(sched, disk, &small()), &mut |_| {}).unwrap();
                assert!(report.problems.iter().any(|problem| problem.file.contains(&slabs[0])), "{report:?}");

                let db = open();
                let objects = db.stats().objects.unwrap();
                assert_eq!((objects.flawed_slabs, objects.slabs), (flawed, 2));
                assert_eq!(objects.damaged, if has_image { 0 } else { lost });
                let mut failed = 0;
                for (i, slab) in (0..3).map(|i| (i, 0)).chain((10..13).map(|i| (i, 1))) {
                    match db.get(key(i)) {
                        Ok(found) => {
                            assert_eq!(found.unwrap()[..], [[3; 100].as_slice(), &[3; 900]][slab][..])
                        }
                        Err(error) => {
                            assert!(error.is_corrupt(), "{error}");
                            let of_its = |slab: &String| error.to_string().contains(slab.as_str());
                            let is_named = if has_image {
                                of_its(&slabs[slab]) && error.to_string().contains("slot ")
                            } else {
                                slabs.iter().any(of_its)
                            };
                            assert!(is_named, "{error}");
                            failed += 1;
                        }
                    }
                }
                assert_eq!(failed, lost);
                assert_eq!(db.get(b"absent").is_ok(), has_image || lost == 0);
                // What is written anew is served, in the same places no more.
                (0..3).for_each(|i| assert!(db.put(key(i), vec![4; 100]).is_ok()));
                (10..13).for_each(|i| assert!(db.put(key(i), vec![4; 900]).is_ok()));
                db.flush().unwrap();
                assert!((0..3).chain(10..13).all(|i| db.get(key(i)).unwrap().unwrap()[0] == 4));
                assert!(!slabs[..flawed as usize].contains(&slab_of(&db, &key(0))));
                db.close().unwrap();
                let db = open();
                assert!((0..3).chain(10..13).all(|i| db.get(key(i)).unwrap().unwrap()[0] == 4));
                // Where it is known that nothing was left in them they go with some flush.
                for i in 20..23 {
                    db.put(key(i), vec![5; 100]).unwrap();
                    db.flush().unwrap();
                }
                let objects = db.stats().objects.unwrap();
                let stay = if has_image || lost == 0 { (0, 0) } else { (flawed, lost) };
                assert_eq!((objects.flawed_slabs, objects.damaged), stay);
                db.close().unwrap();
            });
        }
    }
}

/// A slab in which some of what [`fill`] writes lies.
fn slab_of_some(db: &Db) -> String {
    let in_store = |i: &u64| lie_in(db, "store", std::iter::once(*i)) > 0;
    slab_of(db, &many((0..1000).find(in_store).unwrap()))
}

/// The slab in which most of these keys lie.
fn slab_of_most(db: &Db, keys: impl Iterator<Item = u64>) -> String {
    let mut keys_of = BTreeMap::new();
    let in_store = keys.filter(|i| lie_in(db, "store", std::iter::once(*i)) > 0);
    in_store.for_each(|i| *keys_of.entry(slab_of(db, &many(i))).or_insert(0) += 1);
    keys_of.into_iter().max_by_key(|(_, keys)| *keys).unwrap().0
}

/// Fills and closes a store, and removes a slab of it: which one.
fn fill_and_lose_a_slab(db: Db, disk: &SimDisk) -> String {
    fill(&db);
    let lost_slab = slab_of_some(&db);
    db.close().unwrap();
    disk.remove_file(0, &lost_slab);
    lost_slab
}

#[test]
fn a_store_that_has_lost_a_slab_goes_on_with_all_else() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let lost_slab = fill_and_lose_a_slab(open(), disk);
        let db = open();
        let is_lost = |i: &u64| db.get(many(*i)).is_err();
        let lost: Vec<u64> = (0..1000).filter(is_lost).collect();
        assert!((1..10).contains(&lost.len()), "{lost:?}");
        // Everything goes down around them, and memtables come in over snapshots.
        let snapshot = db.snapshot().unwrap();
        (0..3000).for_each(|i| assert!(db.put(format!("other{i:05}"), value(i, 9)).is_ok()));
        lost[..1].iter().for_each(|i| assert!(db.put(many(*i), value(*i, 7)).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        drop(snapshot);
        for i in 0..1000 {
            match db.get(many(i)) {
                Ok(found) => assert_eq!(found.unwrap()[..], value(i, if i == lost[0] { 7 } else { 1 })),
                Err(error) => {
                    assert!(lost[1..].contains(&i) && error.to_string().contains(&lost_slab), "{error}")
                }
            }
        }
        db.put(b"after", b"all").unwrap();
        db.close().unwrap();
    });
}

/// Flips a bit of each value of a slab: whose it was is known.
fn damage_values(disk: &SimDisk, slab: &str) {
    let mut bytes = disk.read_file(0, slab);
    // Behind the file's header stands the size of the slots.
    let slot_bytes = u64::from_le_bytes(bytes[64..72].try_into().unwrap()) as usize;
    bytes[4096..].chunks_exact_mut(slot_bytes).for_each(|slot| slot[900] ^= 1);
    disk.write_file(0, slab, &bytes);
}

#[test]
fn a_damaged_slot_stays_where_it_is_and_all_else_goes_down() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let db = open();
        fill(&db);
        // What is hot there would stay, and not be met.
        let slab = slab_of_most(&db, (0..1000).filter(|i| !hot(*i)));
        db.close().unwrap();
        damage_values(disk, &slab);
        let db = open();
        let damaged: Vec<u64> = (0..1000).filter(|i| db.get(many(*i)).is_err()).collect();
        assert!(damaged.len() > 3, "{damaged:?}");
        (0..3000).for_each(|i| assert!(db.put(format!("other{i:05}"), value(i, 9)).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let lost = db.stats().objects.unwrap().lost_slots;
        assert!(lost > 1 && lost <= damaged.len() as u64, "{lost} of {damaged:?}");
        for i in 0..1000 {
            match db.get(many(i)) {
                Ok(found) => assert!(!damaged.contains(&i) && found.unwrap()[..] == value(i, 1), "{i}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(damaged.contains(&i) && text.contains(&slab) && text.contains("slot"), "{error}")
                }
            }
        }
        // What is written anew is whole, and goes down.
        damaged.iter().for_each(|i| assert!(db.put(many(*i), value(*i, 2)).is_ok()));
        for round in 0..8 {
            (0..3000).for_each(|i| assert!(db.put(format!("other{round}{i:05}"), value(i, round)).is_ok()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
        }
        assert_eq!(lie_in(&db, "level", damaged.iter().copied()), damaged.len());
        assert!(damaged.iter().all(|i| db.get(many(*i)).unwrap().unwrap()[..] == value(*i, 2)));
        assert_eq!(db.stats().objects.unwrap().lost_slots, lost);
        db.close().unwrap();
        let report = cuesta::verify_in(&options, world(sched, disk, &options), &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    });
}

#[test]
fn what_the_medium_cannot_read_is_damaged_and_writes_go_on_around_it() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        // Nothing of it is in memory then.
        db.close().unwrap();
        let options = half(PromoteReads::Always);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // A page of each fourth slab, with what is hot and stays, and what is to go down.
        let slabs: BTreeSet<String> = disk.files(0).into_iter().map(|file| file.name).collect();
        let slabs: Vec<String> =
            slabs.into_iter().filter(|name| name.starts_with("slab-")).step_by(4).collect();
        let bad = |slab: &String| {
            let reads = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).named(slab);
            reads.touching(4096..8192).since(1)
        };
        disk.set_faults(slabs.iter().map(bad).collect());
        let damaged: Vec<u64> = (0..1000).filter(|i| db.get(many(*i)).is_err()).collect();
        assert!(damaged.len() > 10, "{damaged:?}");
        // Flushes want slots in these pages, demotions what is in them, and reads bring others up.
        let asked: Vec<u64> = (0..1000).filter(|i| !damaged.contains(i)).take(100).collect();
        for round in 0..4 {
            (0..1500).for_each(|i| assert!(db.put(format!("other{i:05}"), value(i, round)).is_ok()));
            db.flush().unwrap();
            read_twice(&db, &asked);
            sched.sleep(std::time::Duration::from_secs(3));
            db.wait_for_background().unwrap();
        }
        assert!(db.stats().objects.unwrap().lost_slots > 0);
        let error = |i: u64| db.get(many(i)).unwrap_err().to_string();
        assert!(
            damaged.iter().all(|i| ["slab-", "slot", "medium"].iter().all(|part| error(*i).contains(part)))
        );
        for i in (0..1000).filter(|i| !damaged.contains(i)) {
            assert_eq!(db.get(many(i)).unwrap().unwrap()[..], value(i, 1), "{i}");
        }
        // What is written anew is whole; and what was not comes back if the medium can read it again.
        damaged[1..].iter().for_each(|i| assert!(db.put(many(*i), value(*i, 2)).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert!(damaged[1..].iter().all(|i| db.get(many(*i)).unwrap().unwrap()[..] == value(*i, 2)));
        db.close().unwrap();
        disk.set_faults(Vec::new());
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        assert_eq!(db.get(many(damaged[0])).unwrap().unwrap()[..], value(damaged[0], 1));
        let others = (0..1500).map(|i| db.get(format!("other{i:05}")).unwrap().unwrap().to_vec());
        assert!(others.eq((0..1500).map(|i| value(i, 3))));
        db.close().unwrap();
        let report = cuesta::verify_in(&options, world(sched, disk, &options), &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    });
}

#[test]
fn an_open_that_cannot_tell_whose_an_unreadable_slot_is_fails() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        let slab = slab_of_some(&db);
        let crashed = disk.kill();
        drop(db);
        let open = || Db::open_in(&options, world(sched, &crashed, &options));
        let reads = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).named(&slab);
        crashed.set_faults(vec![reads.touching(4096..8192).since(1)]);
        let error = open().unwrap_err().to_string();
        assert!([&slab[..], "slot", "medium"].iter().all(|part| error.contains(part)), "{error}");
        crashed.set_faults(Vec::new());
        let db = open().unwrap();
        assert!((0..1000).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 1)));
        db.close().unwrap();
    });
}

#[test]
fn a_read_that_fails_once_damages_nothing() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&open());
        for nth in 1..30 {
            // Nothing is in memory.
            let db = open();
            let once = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).named("slab-");
            disk.set_faults(vec![once.clone().nth(nth)]);
            assert!((0..1000).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 1)), "{nth}");
            disk.set_faults(vec![once.nth(nth)]);
            (0..100).for_each(|i| assert!(db.put(format!("other{i:05}"), value(i, nth as u8)).is_ok()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            assert_eq!(db.stats().objects.unwrap().lost_slots, 0);
            db.close().unwrap();
        }
        // Most did, among reads for users, flushes and demotions.
        assert!(disk.faults_struck() > 40, "{}", disk.faults_struck());
    });
}

#[test]
fn for_a_damaged_copy_its_original_answers() {
    // Which slabs promotions find in so small a store is chance, and whether they share them with others.
    let had_some = (0..8).filter(|seed| on_a_disk_by(*seed, originals_answer)).count();
    assert!(had_some > 2, "{had_some}");
}

/// Damages copies, if some have slabs for themselves, and finds what they are of.
fn originals_answer(sched: &Sched, disk: &SimDisk) -> bool {
    let options = half(PromoteReads::Always);
    let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
    let db = open();
    fill(&db);
    let below: Vec<u64> =
        (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(60).collect();
    for _ in 0..2 {
        read_twice(&db, &below);
        sched.sleep(std::time::Duration::from_secs(3));
    }
    let lies = |i: &u64| lie_in(&db, "store", std::iter::once(*i)) > 0;
    // Those that have no slab in common with what is in the store alone.
    let others = (0..1000).filter(|i| lies(i) && !below.contains(i));
    let others: BTreeSet<String> = others.map(|i| slab_of(&db, &many(i))).collect();
    let copies: Vec<u64> =
        below.iter().copied().filter(|i| lies(i) && !others.contains(&slab_of(&db, &many(*i)))).collect();
    if copies.len() < 20 {
        return false;
    }
    let slabs = copies.iter().map(|i| slab_of(&db, &many(*i)));
    let slabs: Vec<String> = slabs.collect::<BTreeSet<_>>().into_iter().collect();
    db.close().unwrap();
    // And one is lost whole.
    disk.remove_file(0, &slabs[0]);
    slabs[1..].iter().for_each(|slab| damage_values(disk, slab));
    let db = open();
    assert!(copies.iter().all(|i| db.get(many(*i)).unwrap().unwrap()[..] == value(*i, 1)));
    // Scans pass over many, one behind the other, both ways.
    let there: Vec<Vec<u8>> = (0..1000).map(|i| many(i).into_bytes()).collect();
    let scan = || db.scan(Range::all()).unwrap().map(|pair| pair.unwrap().0);
    assert!(scan().eq(there.iter().cloned()) && scan().rev().eq(there.iter().rev().cloned()));
    // What lies behind one is in the store alone.
    let after = |i: &u64| format!("{}+", many(*i)).into_bytes();
    copies.iter().for_each(|i| assert!(db.put(after(i), b"whole").is_ok()));
    db.flush().unwrap();
    for i in &copies {
        let (first, last) = (many(*i).into_bytes(), after(i));
        let end = [&last[..], b"+"].concat();
        let scan = || db.scan(Range::from(&first[..]..&end)).unwrap().map(|pair| pair.unwrap().0);
        assert!(scan().eq([first.clone(), last.clone()]) && scan().rev().eq([last.clone(), first.clone()]));
    }
    // Nor does a copy become more than that when its key is written while a snapshot sees it.
    let snapshot = db.snapshot().unwrap();
    copies.iter().for_each(|i| assert!(db.put(many(*i), b"newer").is_ok()));
    db.flush().unwrap();
    assert!(copies.iter().all(|i| snapshot.get(many(*i)).unwrap().unwrap()[..] == value(*i, 1)));
    let newer = db.scan(Range::all()).unwrap().filter(|pair| pair.as_ref().unwrap().1[..] == b"newer"[..]);
    assert_eq!(newer.count(), copies.len());
    drop(snapshot);
    fill_with(&db, 3000);
    db.close().unwrap();
    true
}

#[test]
fn a_copy_whose_original_is_given_up_counts_for_itself() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Always);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let db = open();
        fill(&db);
        let in_store = |db: &Db, i: u64| lie_in(db, "store", std::iter::once(i)) > 0;
        let below: Vec<u64> = (0..1000).filter(|i| !in_store(&db, *i)).take(60).collect();
        for _ in 0..2 {
            read_twice(&db, &below);
            sched.sleep(std::time::Duration::from_secs(3));
        }
        let copies: Vec<u64> = below.into_iter().filter(|i| in_store(&db, *i)).collect();
        assert!(copies.len() > 20, "{} came up", copies.len());
        db.close().unwrap();
        let tables = disk.files(1).into_iter().map(|file| file.name).filter(|name| name.starts_with("data-"));
        tables.for_each(|name| disk.remove_file(1, &name));
        let world = || world(sched, disk, &options);
        let report = repair_in(&options, world(), Repair::GiveUp(u64::MAX), &mut |_| {}).unwrap();
        assert!(report.versions_lost > 100 && report.left.is_empty(), "{report:?}");
        let db = open();
        // Copies would be let go of, since tables have the same.
        fill_with(&db, 3000);
        assert!(copies.iter().all(|i| db.get(many(*i)).unwrap().unwrap()[..] == value(*i, 1)));
        db.close().unwrap();
    });
}

/// A store of which a slab is lost, and one of the keys that it had.
fn beside_something_lost(test: impl FnOnce(Db, u64)) {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill_and_lose_a_slab(open(), disk);
        let db = open();
        let lost = (0..1000).find(|i| db.get(many(*i)).is_err()).unwrap();
        test(db, lost);
    });
}

#[test]
fn what_is_newer_than_something_lost_goes_down_without_it() {
    beside_something_lost(|db, lost| {
        // Its old version is kept for a snapshot's sake, which goes.
        let snapshot = db.snapshot().unwrap();
        db.put(many(lost), value(lost, 7)).unwrap();
        db.flush().unwrap();
        assert!(snapshot.get(many(lost)).is_err());
        let write_others = || {
            for _ in 0..4 {
                (0..1000).filter(|i| *i != lost).for_each(|i| assert!(db.put(many(i), value(i, 1)).is_ok()));
                db.flush().unwrap();
                db.wait_for_background().unwrap();
            }
        };
        write_others();
        assert!(snapshot.get(many(lost)).is_err());
        drop(snapshot);
        write_others();
        assert_eq!(lie_in(&db, "store", std::iter::once(lost)), 0, "{}", db.explain(many(lost)).unwrap());
        assert_eq!(db.get(many(lost)).unwrap().unwrap()[..], value(lost, 7));
        db.close().unwrap();
    });
}

#[test]
fn what_is_lost_behind_something_that_a_range_delete_covers_goes_with_it() {
    beside_something_lost(|db, lost| {
        let snapshot = db.snapshot().unwrap();
        db.put(many(lost), value(lost, 7)).unwrap();
        db.flush().unwrap();
        db.delete_range(Range::from(many(lost).as_bytes()..many(lost + 1).as_bytes())).unwrap();
        db.flush().unwrap();
        drop(snapshot);
        for i in 0..3 {
            db.put(format!("after{i}"), b"all").unwrap();
            db.flush().unwrap();
            db.wait_for_background().unwrap();
        }
        assert!(db.get(many(lost)).unwrap().is_none());
        db.close().unwrap();
    });
}

#[test]
fn a_range_is_deleted_around_what_is_lost() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let db = open();
        fill(&db);
        let lost_slab = slab_of_some(&db);
        // For a snapshot's sake the store keeps what the range had, until it has been opened again.
        let snapshot = db.snapshot().unwrap();
        db.delete_range(Range::from(many(0).as_bytes()..many(900).as_bytes())).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        drop(snapshot);
        let missing = disk.read_file(0, &lost_slab);
        disk.remove_file(0, &lost_slab);
        let db = open();
        db.put(many(0), value(0, 2)).unwrap();
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let lost: Vec<u64> = (0..1000).filter(|i| db.get(many(*i)).is_err()).collect();
        assert!((1..10).contains(&lost.len()), "{lost:?}");
        let check = |db: &Db, i: u64| match db.get(many(i)) {
            Ok(None) => assert!((1..900).contains(&i), "{i}"),
            Ok(Some(found)) => assert_eq!(found[..], value(i, if i == 0 { 2 } else { 1 }), "{i}"),
            Err(error) => assert!(error.to_string().contains(&lost_slab), "{error}"),
        };
        (0..1000).for_each(|i| check(&db, i));
        db.close().unwrap();
        // Somebody finds it again: what was deleted stays so.
        disk.write_file(0, &lost_slab, &missing);
        let db = open();
        db.wait_for_background().unwrap();
        for i in 1..1000 {
            assert_eq!(db.get(many(i)).unwrap().is_some(), i >= 900, "{i}");
        }
        db.close().unwrap();
    });
}

#[test]
fn what_is_lost_never_goes_down() {
    on_a_disk(|sched, disk| {
        let options = small();
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let db = open();
        (0..100).for_each(|i| assert!(db.put(key(i), vec![1; 1000]).is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        for file in disk.files(0).iter().filter(|file| file.name.starts_with("slab-")) {
            disk.remove_file(0, &file.name);
        }
        let db = open();
        let lost = (0..100).filter(|i| db.get(key(*i)).is_err()).count();
        assert!(lost > 50, "{lost}");
        // Room is short behind those keys, and again and again it is made of what can go.
        (0..3000).for_each(|i| assert!(db.put(format!("other{:04}", i % 1500), vec![2; 1000]).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let selections = || db.stats().objects.unwrap().selections;
        let before = selections();
        assert!(before > 0 && before < 1000, "{before}");
        for i in 0..10 {
            db.put(format!("other{i:04}"), vec![3; 1000]).unwrap();
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        assert!(selections() < before + 20, "{} after {before}", selections());
        assert_eq!((0..100).filter(|i| db.get(key(*i)).is_err()).count(), lost);
        db.close().unwrap();
    });
}

#[test]
fn versions_that_snapshots_hold_stay_within_the_tier() {
    on_a_disk(|sched, disk| {
        let options = small();
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let mut snapshots = Vec::new();
        for round in 0..20 {
            (0..100).for_each(|i| assert!(db.put(key(i), vec![round; 1000]).is_ok()));
            db.flush().unwrap();
            snapshots.push(db.snapshot().unwrap());
            let taken: u64 = disk.files(0).iter().map(|file| file.bytes).sum();
            assert!(taken <= options.tiers[0].capacity_bytes, "{taken} bytes in round {round}");
        }
        // As many bytes as the tier has, and more.
        for (round, snapshot) in (0..).zip(&snapshots) {
            assert!((0..100).all(|i| snapshot.get(key(i)).unwrap().unwrap()[..] == [round; 1000]), "{round}");
        }
        drop(snapshots);
        db.close().unwrap();
    });
}

#[test]
fn the_index_takes_its_part_of_the_memory_and_the_tier_stays_as_empty_as_that_makes_it() {
    on_a_disk(|sched, disk| {
        let mut options = small();
        options.memory_bytes = 8 << 20;
        options.tiers[0].capacity_bytes = 64 << 20;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // Keys that share no prefix, and hardly a value: an entry of the index is nearly as large as what it stands
        // for.
        let key = |i: u64| {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{mixed:016x}{:0>48}", i)
        };
        let mut most = 0;
        for i in 0..80_000 {
            db.put(key(i), i.to_le_bytes()).unwrap();
            if i % 1000 == 0 {
                most = most.max(db.stats().objects.unwrap().index_bytes);
            }
        }
        let stats = db.stats();
        // And what one flush adds.
        assert!(most <= options.memory_bytes / 5 * 2 + options.memory_bytes / 64, "{most} bytes\n{stats}");
        // It came that far, so nothing else kept it small.
        assert!(most > options.memory_bytes / 4, "{most} bytes\n{stats}");
        assert!(stats.objects.as_ref().unwrap().objects < 80_000, "{stats}");
        assert!(stats.tiers[0].used_bytes < stats.tiers[0].capacity_bytes / 2, "{stats}");
        (0..80_000).step_by(997).for_each(|i| {
            assert_eq!(db.get(key(i)).unwrap().unwrap()[..], i.to_le_bytes());
        });
        db.close().unwrap();
    });
}

#[test]
fn objects_of_all_sizes_come_back_from_wherever_they_are() {
    on_a_disk(|sched, disk| {
        let mut options = small();
        options.tiers[0].capacity_bytes = 4 << 20;
        let most = options.value_bytes_max() as usize;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // From nothing up to the longest, by about an eighth.
        let lengths: Vec<usize> = std::iter::successors(Some(0), |n| Some(n + n / 8 + 1))
            .take_while(|n| *n < most)
            .chain([most])
            .collect();
        assert!(lengths.len() > 60, "{}", lengths.len());
        let of = |i: usize, n: usize| vec![(i * 7 + n) as u8; n];
        let check = |db: &Db| {
            for (i, n) in lengths.iter().enumerate() {
                assert_eq!(db.get(format!("size{i}")).unwrap().unwrap()[..], of(i, *n), "{n} bytes");
            }
        };
        for (i, n) in lengths.iter().enumerate() {
            db.put(format!("size{i}"), of(i, *n)).unwrap();
        }
        db.flush().unwrap();
        assert!(db.stats().objects.unwrap().slabs > 40, "{}", db.stats());
        check(&db);
        // All of them go down.
        (0..6000).for_each(|i| assert!(db.put(format!("other{i}"), vec![1; 1000]).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        check(&db);
        let killed = disk.kill();
        drop(db);
        let options = &options;
        let db = Db::open_in(options, world(sched, &killed.on(sched), options)).unwrap();
        check(&db);
        db.close().unwrap();
    });
}

#[test]
fn reads_alone_bring_up_what_is_hot_and_writes_do_not() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Auto);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        let below: Vec<u64> =
            (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(120).collect();
        let (some, others) = below.split_at(60);
        let up = |keys: &[u64]| lie_in(&db, "store", keys.iter().copied());
        // A tenth of what is asked for are writes, which is too many.
        for round in 0..20 {
            (0..14).for_each(|i| assert!(db.put(format!("hot{i}"), value(i, round)).is_ok()));
            read_twice(&db, some);
            sched.sleep(std::time::Duration::from_secs(1));
        }
        assert!(up(some) < 3, "{} came up\n{}", up(some), db.stats());
        // The cache has these by now; it is told by them that reads are all that is asked for.
        (0..30).for_each(|_| read_twice(&db, some));
        read_twice(&db, others);
        sched.sleep(std::time::Duration::from_secs(3));
        assert!(up(others) > 20, "{} came up\n{}", up(others), db.stats());
        db.close().unwrap();
    });
}

/// A fast tier of which the slabs have enough for half of what [`fill`] writes.
fn half(promote_reads: PromoteReads) -> Options {
    let mut options = Options { promote_reads, demotion: Demotion::Approx, tracked_percent: 100, ..small() };
    options.tiers[0].capacity_bytes = 2_600_000;
    options
}

/// Keys below 1000, of which every tenth is asked for again and again.
fn hot(i: u64) -> bool {
    i.is_multiple_of(10)
}

fn many(i: u64) -> String {
    format!("key{i:04}")
}

fn value(i: u64, version: u8) -> Vec<u8> {
    let mut value = vec![version; 1000];
    value[..8].copy_from_slice(&i.to_le_bytes());
    value
}

/// How many of these keys are in a container of which the name begins so.
fn lie_in(db: &Db, container: &str, keys: impl Iterator<Item = u64>) -> usize {
    let lies = |i: &u64| {
        let found = db.explain(many(*i)).unwrap();
        found.holdings.iter().any(|h| h.container.starts_with(container) && !h.versions.is_empty())
    };
    keys.filter(lies).count()
}

/// More than the slabs have room for, with what is hot read in between.
fn fill(db: &Db) {
    (0..1000).filter(|i| hot(*i)).for_each(|i| assert!(db.put(many(i), value(i, 1)).is_ok()));
    db.flush().unwrap();
    for i in (0..1000).filter(|i| !hot(*i)) {
        db.put(many(i), value(i, 1)).unwrap();
        for i in (0..100).filter(|j| j % 25 == i % 25) {
            assert_eq!(db.get(many(10 * i)).unwrap().unwrap()[..], value(10 * i, 1));
        }
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
}

#[test]
fn what_is_asked_for_stays_and_what_is_not_goes_down() {
    // The last few ranges of so small a store are all hot, and where a flush finds no slot one of them goes whole: in
    // one run of three or so.
    const SEEDS: u64 = 16;
    let warm_left = |seed: u64| {
        on_a_disk_by(seed, |sched, disk| {
            let options = half(PromoteReads::Never);
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            fill(&db);
            let (warm, cold) = (|| (0..1000).filter(|i| hot(*i)), || (0..1000).filter(|i| !hot(*i)));
            let left = lie_in(&db, "store", warm());
            assert!(lie_in(&db, "store", cold()) < 400, "{}", lie_in(&db, "store", cold()));
            assert!(lie_in(&db, "level 7", cold()) > 500, "{}", lie_in(&db, "level 7", cold()));
            // Whatever lies where, all is there, and after a reopening, too.
            let check = |db: &Db| (0..1000).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 1));
            assert!(check(&db));
            db.close().unwrap();
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            assert!(check(&db));
            db.close().unwrap();
            left
        })
    };
    let left: Vec<usize> = (0..SEEDS).map(warm_left).collect();
    // Without heat it would be about one in five, as of the others.
    assert!(left.iter().sum::<usize>() as u64 > 50 * SEEDS, "{left:?}");
}

#[test]
fn who_reads_a_key_and_writes_it_anew_has_asked_for_it_once() {
    on_a_disk(|sched, disk| {
        const KEYS: u64 = 200;
        let options = half(PromoteReads::Never);
        let open = || Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let db = open();
        (0..KEYS).for_each(|i| assert!(db.put(many(i), value(i, 1)).is_ok()));
        db.flush().unwrap();
        db.close().unwrap();
        // Nothing is known to be hot without an image.
        disk.remove_file(1, &image_of(disk).unwrap());
        let db = open();
        for i in 0..KEYS {
            assert_eq!(db.get(many(i)).unwrap().unwrap()[..], value(i, 1));
            db.put(many(i), value(i, 2)).unwrap();
        }
        db.flush().unwrap();
        // A few have found no room.
        let clocks = db.stats().objects.unwrap().clocks;
        assert!(clocks[0] > KEYS / 2 && clocks[1..] == [0; 3], "{clocks:?}");
        (0..KEYS).for_each(|i| assert!(db.put(many(i), value(i, 3)).is_ok()));
        db.flush().unwrap();
        assert!(db.stats().objects.unwrap().clocks[3] > KEYS / 2, "{}", db.stats());
        db.close().unwrap();
    });
}

#[test]
fn a_flush_that_begins_anew_tells_of_its_keys_once() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
        db.put(key(1), b"value").unwrap();
        // No slab can be made, and the flush is tried again and again.
        disk.set_faults(vec![Fault::new(Effect::Fail(Failure::NoSpace)).named("slab-").since(1)]);
        db.flush().unwrap_err();
        sched.sleep(Duration::from_secs(9));
        disk.set_faults(Vec::new());
        sched.sleep(Duration::from_secs(9));
        db.flush().unwrap();
        assert_eq!(
            (db.stats().objects.unwrap().clocks, db.stats().objects.unwrap().objects),
            ([1, 0, 0, 0], 1)
        );
        db.close().unwrap();
    });
}

#[test]
fn of_what_comes_into_slots_memory_keeps_the_hottest() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        let below: Vec<u64> =
            (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(12).collect();
        let (hot, cold) = below.split_at(6);
        let read = |keys: &[u64], version| {
            let before = db.stats().cache.objects.hits;
            keys.iter().for_each(|i| assert_eq!(db.get(many(*i)).unwrap().unwrap()[..], value(*i, version)));
            db.stats().cache.objects.hits - before
        };
        // A read at a snapshot leaves a block, and one as of now an object.
        read_twice(&db, &below);
        (0..20).for_each(|_| _ = read(hot, 1));
        assert_eq!((read(hot, 1), read(cold, 1)), (6, 6));
        below.iter().for_each(|i| assert!(db.put(many(*i), value(*i, 2)).is_ok()));
        db.flush().unwrap();
        assert_eq!((read(hot, 2), read(cold, 2)), (6, 0), "{}", db.stats());
        db.close().unwrap();
    });
}

/// How many small objects [`outgrow`] writes.
const SMALL: u64 = 16_000;

/// Small objects, of which every fourth is asked for again and again, and more of them than the slabs have room for;
/// then large ones, with the same reads in between.
fn outgrow(db: &Db) {
    let read = |turn: u64| {
        for i in (0..SMALL / 4).filter(|j| j % 200 == turn % 200) {
            assert_eq!(db.get(many(4 * i)).unwrap().unwrap()[..], vec![i as u8; 100]);
        }
    };
    let put = |i: u64| assert!(db.put(many(i), vec![(i / 4) as u8; 100]).is_ok());
    (0..SMALL).filter(|i| i.is_multiple_of(4)).for_each(put);
    for i in (0..SMALL).filter(|i| !i.is_multiple_of(4)) {
        put(i);
        read(i);
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    for i in 0..1000 {
        db.put(format!("large{i}"), value(i, 2)).unwrap();
        read(i);
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
}

#[test]
fn objects_that_are_larger_take_slabs_of_what_is_smaller_and_heat_stays() {
    on_a_disk(|sched, disk| {
        let options = Options { memory_bytes: 8 << 20, ..half(PromoteReads::Never) };
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        outgrow(&db);
        assert!(db.stats().objects.unwrap().moved > 100, "{}", db.stats());
        let warm = lie_in(&db, "store", (0..SMALL).filter(|i| i.is_multiple_of(4)));
        // If nothing moved but down, none of them would be left.
        assert!(warm > 300, "{warm}\n{}", db.stats());
        let check = |db: &Db| {
            for i in 0..SMALL {
                assert_eq!(db.get(many(i)).unwrap().unwrap()[..], vec![(i / 4) as u8; 100], "{i}");
            }
            (0..1000)
                .for_each(|i| assert_eq!(db.get(format!("large{i}")).unwrap().unwrap()[..], value(i, 2)));
        };
        check(&db);
        let killed = disk.kill();
        drop(db);
        let db = Db::open_in(&options, world(sched, &killed.on(sched), &options)).unwrap();
        check(&db);
        db.close().unwrap();
    });
}

#[test]
fn what_is_read_again_comes_up_as_a_copy_and_goes_without_a_write() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Always);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        let below: Vec<u64> =
            (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(60).collect();
        assert_eq!(below.len(), 60);
        // What came up before them, while they were offered, has had its turn by the second time.
        for _ in 0..2 {
            read_twice(&db, &below);
            sched.sleep(std::time::Duration::from_secs(3));
        }
        let up: Vec<u64> =
            below.iter().copied().filter(|i| lie_in(&db, "store", std::iter::once(*i)) > 0).collect();
        assert!(up.len() > 20, "{} came up\n{}", up.len(), db.stats());
        // Below they are as they were.
        assert_eq!(lie_in(&db, "level 7", up.iter().copied()), up.len());
        // One is deleted, one is written anew; neither comes back.
        db.delete(many(up[0])).unwrap();
        db.put(many(up[1]), value(up[1], 2)).unwrap();
        fill_with(&db, 3000);
        assert_eq!(db.get(many(up[0])).unwrap(), None);
        assert_eq!(db.get(many(up[1])).unwrap().unwrap()[..], value(up[1], 2));
        for i in &up[2..] {
            assert_eq!(db.get(many(*i)).unwrap().unwrap()[..], value(*i, 1));
        }
        db.close().unwrap();
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        assert_eq!(db.get(many(up[0])).unwrap(), None);
        assert_eq!(db.get(many(up[1])).unwrap().unwrap()[..], value(up[1], 2));
        assert!(up[2..].iter().all(|i| db.get(many(*i)).unwrap().unwrap()[..] == value(*i, 1)));
    });
}

#[test]
fn objects_that_came_together_go_down_by_few_reads() {
    on_a_disk(|sched, disk| {
        let db =
            Db::open_in(&half(PromoteReads::Never), world(sched, disk, &half(PromoteReads::Never))).unwrap();
        fill(&db);
        let (reads, down) = (db.stats().io.get(0, Cause::Demotion).read_ops, lie_in(&db, "level 7", 0..1000));
        // Four of them share a page or two.
        assert!(down > 500 && reads as usize * 2 < down, "{reads} reads for {down} objects");
        db.close().unwrap();
    });
}

#[test]
fn small_objects_go_down_by_the_page_where_memory_has_room_for_few_pages() {
    on_a_disk(|sched, disk| {
        let mut options = Options { memory_bytes: cuesta::MEMORY_BYTES_MIN, ..half(PromoteReads::Never) };
        options.memtable_bytes = Some(256 << 10);
        options.tiers[0].capacity_bytes = 12_000_000;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let count = 150_000;
        (0..count).for_each(|i| assert!(db.put(format!("key{:06}", i * 7919 % count), [1; 60]).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let reads = db.stats().io.get(0, Cause::Demotion).read_ops;
        let down = count - db.stats().objects.unwrap().objects;
        // Thirty of them share a page, and come with some dozen memtables.
        assert!(down > 10_000 && reads * 12 < down, "{reads} reads for {down} objects");
        db.close().unwrap();
    });
}

#[test]
fn of_what_a_merge_reads_ahead_no_more_is_under_way_than_keeps_the_device_busy() {
    on_a_disk(|sched, disk| {
        // Who flushes merges, too, one after the other.
        let options = Options { background_threads: 1, ..half(PromoteReads::Never) };
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // So that neighbours by key are hardly any by place.
        (0..3000).for_each(|i| assert!(db.put(many(i * 7919 % 3000), value(i, 1)).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let down = db.stats().io.get(0, Cause::Demotion).read_ops;
        // Twenty-four pages, of which a read may be the last.
        let most = disk.counts()[0].reads_under_way_max;
        assert!(down > 500 && (8..=25).contains(&most), "{most} at once, of {down} reads");
        db.close().unwrap();
    });
}

#[test]
fn an_object_costs_the_sectors_that_it_is_in_or_the_pages() {
    // As the tier's options have it, and as the medium does.
    for (asked, medium, most) in [(512, 512, 2048), (4096, 512, 8192), (512, 4096, 8192)] {
        let sched = Sched::simulated(7);
        let disk = SimDisk::new(&sched, 2, SimConfig { sector_bytes: medium, ..SimConfig::default() });
        sched.run(|| {
            let mut options = half(PromoteReads::Never);
            options.tiers[0].sector_bytes = asked;
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            let put = |i: u64, version: u8| {
                db.put(many(i), value(i, version)).unwrap();
                db.flush().unwrap();
            };
            (0..100).for_each(|i| put(i, 1));
            let flushed = || db.stats().io.get(0, Cause::Flush);
            let before = flushed();
            (0..100).for_each(|i| put(i * 37 % 100, 2));
            let after = flushed();
            let of = |before: u64, after: u64| (after - before) / 100;
            let each = [of(before.read_bytes, after.read_bytes), of(before.write_bytes, after.write_bytes)];
            // A slab more or less has a page of its own.
            assert!(each.iter().all(|bytes| (most / 2..=most).contains(bytes)), "{asked}: {each:?}");
            db.close().unwrap();
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            let user = || db.stats().io.get(0, Cause::UserRead).read_bytes;
            let before = user();
            for i in 0..100 {
                assert_eq!(db.get(many(i)).unwrap().unwrap()[..], value(i, 2));
            }
            let each = of(before, user());
            assert!((most / 2..=most).contains(&each), "{asked}: {each}");
            db.close().unwrap();
        });
    }
}

#[test]
fn a_bad_sector_between_slots_that_are_free_is_written_around() {
    on_a_disk(|sched, disk| {
        let mut options = half(PromoteReads::Never);
        (options.tiers[0].sector_bytes, options.tiers[0].capacity_bytes) = (512, 4 << 20);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let put = |version| {
            (0..300).for_each(|i| assert!(db.put(many(i * 7 % 300), value(i * 7 % 300, version)).is_ok()));
            db.flush().unwrap();
        };
        put(1);
        // Of each slab a sector of the second slot, of 1,088 bytes, that has nothing of the first and of the third.
        let bad = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).named("slab-").since(1);
        disk.set_faults(vec![bad.touching(4096 + 1536..4096 + 2048)]);
        (2..20).for_each(put);
        assert!(disk.faults_struck() > 10, "{}", disk.faults_struck());
        disk.set_faults(Vec::new());
        assert!((0..300).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 19)));
        db.close().unwrap();
    });
}

#[test]
fn a_scan_that_is_known_to_be_short_begins_all_its_reads_at_once() {
    on_a_disk(|sched, disk| {
        let mut options = half(PromoteReads::Never);
        options.tiers[0].capacity_bytes *= 4;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // Each flushed alone, so that neighbours by key are hardly any by place.
        for i in (0..100).map(|i| i * 37 % 100) {
            db.put(key(i), value(i, 1)).unwrap();
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().objects.unwrap().objects, 100);
        disk.reset_counts();
        let from = key(30);
        let range = Range::from(from.as_bytes()..).with_limit(20);
        let mut scan = db.scan(range).unwrap();
        assert_eq!(scan.next().unwrap().unwrap().0, key(30).as_bytes());
        let begun = disk.counts()[0].reads_under_way_max;
        assert_eq!(scan.count(), 19);
        let reads = disk.counts()[0].of(OpKind::Read);
        // Some are neighbours after all.
        assert!(begun == reads && (2..=23).contains(&reads), "{begun} of {reads} reads at once");
        db.close().unwrap();
    });
}

#[test]
fn one_read_is_enough_while_there_is_room() {
    on_a_disk(|sched, disk| {
        let mut options = half(PromoteReads::Always);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        db.close().unwrap();
        // What is full may be just so full that a promotion has ranges go down again.
        options.tiers[0].capacity_bytes += 300_000;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let is_below = |i: &u64| lie_in(&db, "store", std::iter::once(*i)) == 0;
        let below: Vec<u64> = (0..1000).filter(is_below).take(40).collect();
        let read = |i: &u64| assert_eq!(db.get(many(*i)).unwrap().unwrap()[..], value(*i, 1));
        below.iter().for_each(read);
        sched.sleep(std::time::Duration::from_secs(3));
        let up = || lie_in(&db, "store", below.iter().copied());
        assert!(up() > 20, "{} came up\n{}", up(), db.stats());
        db.close().unwrap();
    });
}

/// Reads keys so that the tracker knows them, and again as of now: only that leaves objects in the cache.
fn read_twice(db: &Db, keys: &[u64]) {
    let before = db.snapshot().unwrap();
    for i in keys {
        assert_eq!(before.get(many(*i)).unwrap().unwrap()[..], value(*i, 1));
        assert_eq!(db.get(many(*i)).unwrap().unwrap()[..], value(*i, 1));
    }
}

/// Other keys, so many that all else is cold.
fn fill_with(db: &Db, count: u64) {
    (0..count).for_each(|i| assert!(db.put(format!("other{i:05}"), value(i, 9)).is_ok()));
    db.flush().unwrap();
    db.wait_for_background().unwrap();
}

#[test]
fn what_is_written_anew_before_it_comes_up_does_not_come_up() {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(&half(PromoteReads::Always), world(sched, disk, &half(PromoteReads::Always)))
            .unwrap();
        fill(&db);
        let below: Vec<u64> =
            (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(6).collect();
        // Too few for the workers to be woken at once.
        read_twice(&db, &below);
        let written: Vec<u64> = below[..3].iter().map(|i| db.put(many(*i), value(*i, 2)).unwrap()).collect();
        db.flush().unwrap();
        sched.sleep(std::time::Duration::from_secs(3));
        let version = |i: usize| db.get(many(below[i])).unwrap().unwrap()[8];
        assert_eq!([0, 1, 2, 3, 4, 5].map(version), [2, 2, 2, 1, 1, 1]);
        // The cache answers these; what would without it?
        let first = |i: &u64| {
            let holdings = db.explain(many(*i)).unwrap().holdings;
            holdings.iter().find(|h| h.tier.is_some() && !h.versions.is_empty()).unwrap().versions[0].sequence
        };
        assert_eq!(below[..3].iter().map(first).collect::<Vec<_>>(), written);
        assert!(lie_in(&db, "store", below.iter().copied()) > 3, "{}", db.stats());
        db.close().unwrap();
    });
}

#[test]
fn what_is_deleted_by_range_while_it_comes_up_does_not_come_up() {
    let mut rose = 0;
    for seed in 0..12 {
        let sched = Sched::simulated(seed);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        sched.run(|| {
            let options = half(PromoteReads::Always);
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            fill(&db);
            let below: Vec<u64> =
                (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(120).collect();
            // So many that workers are woken at once; whoever brings them up is overtaken by some of the flushes.
            for some in below.chunks(40) {
                read_twice(&db, some);
                let mut batch = Batch::new();
                batch.delete_range(many(some[0]).as_bytes()..many(some[21]).as_bytes());
                db.write(batch).unwrap();
                db.flush().unwrap();
            }
            sched.sleep(std::time::Duration::from_secs(3));
            db.wait_for_background().unwrap();
            assert_eq!(db.stats().range_tombstones, 0, "seed {seed}: they are forgotten");
            rose += lie_in(&db, "store", below.iter().copied());
            db.close().unwrap();
            let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            let is_there = |i: &u64| db.get(many(*i)).unwrap().is_some();
            for some in below.chunks(40) {
                assert_eq!(some[..=20].iter().filter(|i| is_there(i)).count(), 0, "seed {seed}");
                assert!(some[21..].iter().all(is_there), "seed {seed}");
            }
        });
    }
    assert!(rose > 100, "only {rose} came up");
}

/// A log that is several times larger than the store, of two levels at least.
fn deep() -> Options {
    Options { level_ratio: 2, log_runs_max: 1, background_threads: 4, ..half(PromoteReads::Always) }
}

/// The same where what comes to the last level is laid there; with more runs it takes a larger log to have two levels.
fn deep_and_piled() -> Options {
    Options { log_runs_max: 2, ..deep() }
}

/// Levels of the sorted log that have anything.
fn levels(db: &Db) -> usize {
    db.stats().levels.iter().filter(|level| level.tables > 0).count()
}

/// The same of one level, on which what goes down is laid.
fn piled() -> Options {
    Options { level_ratio: 100, log_runs_max: 4, ..deep() }
}

/// Runs of the sorted log that lie on one another.
fn runs(db: &Db) -> usize {
    db.stats().levels.iter().map(|level| level.runs).max().unwrap_or(0) as usize
}

#[test]
fn a_log_of_several_levels_answers_with_what_is_newest() {
    answers_with_what_is_newest(&[deep()], 5000, levels);
    answers_with_what_is_newest(&[deep_and_piled()], 9500, levels);
    answers_with_what_is_newest(&[deep_and_piled()], 9500, runs);
}

#[test]
fn a_log_of_several_runs_answers_with_what_is_newest() {
    answers_with_what_is_newest(&[piled()], 5000, runs);
}

/// Guards of the sorted log.
fn guards(db: &Db) -> usize {
    db.stats().levels.iter().map(|level| level.guards).max().unwrap_or(0) as usize
}

#[test]
fn a_log_that_is_cut_into_guards_answers_with_what_is_newest() {
    let cut = |log_guard_tables, options| Options { log_guard_tables, ..options };
    answers_with_what_is_newest(&[cut(1, piled())], 9500, guards);
    answers_with_what_is_newest(&[cut(4, deep())], 9500, guards);
    answers_with_what_is_newest(&[cut(2, deep_and_piled())], 9500, guards);
    // Guards are joined again, and cut anew.
    answers_with_what_is_newest(&[cut(1, piled()), cut(100, piled()), cut(8, deep())], 9500, guards);
}

#[test]
fn guards_of_the_log_have_about_as_many_tables_as_they_should() {
    on_a_disk(|sched, disk| {
        let options = Options { log_guard_tables: 8, ..piled() };
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // In the order of keys, backwards, and anyhow.
        let orders: [&dyn Fn(u64) -> u64; 3] = [&|i| i, &|i| 19_999 - i, &|i| i * 7919 % 9500];
        for order in orders {
            (0..10_000).for_each(|i| assert!(db.put(many(order(i)), value(i, 1)).is_ok()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let level = &db.stats().levels[7];
            // No guard has more than sixteen in its oldest run, nor two neighbours fewer than four.
            let oldest = level.tables / level.runs.max(1);
            assert!(level.guards >= oldest.div_ceil(17), "{level:?}");
            assert!(level.guards <= 2 * level.tables.div_ceil(4), "{level:?}");
        }
        let many_guards = db.stats().levels[7].guards;
        db.delete_range(Range::all()).unwrap();
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let level = &db.stats().levels[7];
        assert!(many_guards > 8 && level.guards == 1, "{many_guards}, {level:?}");
        db.close().unwrap();
    });
}

#[test]
fn piles_that_were_laid_with_other_options_answer_with_what_is_newest() {
    // Fewer runs, smaller tables, hardly any room to lay more, levels.
    let mut tight = piled();
    tight.tiers[1].capacity_bytes = 16 << 20;
    let others = [
        Options { log_runs_max: 1, ..piled() },
        Options { log_runs_max: 12, table_bytes: 32 << 10, ..piled() },
        tight,
        deep(),
    ];
    for other in others {
        answers_with_what_is_newest(&[piled(), other], 9500, runs);
    }
}

/// Whatever is done meanwhile; opened with each of these options in turns.
fn answers_with_what_is_newest(options: &[Options], keys: u64, depth: fn(&Db) -> usize) {
    let mut turns = options.iter().cycle();
    on_a_disk(|sched, disk| {
        let mut options = turns.next().unwrap();
        let mut db = Db::open_in(options, world(sched, disk, options)).unwrap();
        let mut rng = cuesta_sched::Rng::new(11);
        let (mut model, mut deepest) = (BTreeMap::new(), 0);
        for round in 0..12 {
            for _ in 0..1500 {
                let i = rng.below(keys);
                if rng.one_in(4) {
                    db.delete(many(i)).unwrap();
                    model.remove(&i);
                } else if rng.one_in(3) {
                    let found = db.get(many(i)).unwrap();
                    assert_eq!(found.as_deref(), model.get(&i).map(Vec::as_slice), "{i} in round {round}");
                } else {
                    db.put(many(i), value(i, round)).unwrap();
                    model.insert(i, value(i, round));
                }
            }
            if round % 4 == 3 {
                db.wait_for_background().unwrap();
                deepest = deepest.max(depth(&db));
                let scanned: Vec<_> = db.scan(Range::all()).unwrap().map(Result::unwrap).collect();
                let pairs = scanned.iter().map(|(key, value)| (key.clone(), value.to_vec()));
                let expected = model.iter().map(|(i, value)| (many(*i).into_bytes(), value.clone()));
                assert!(pairs.eq(expected), "round {round}");
                db.close().unwrap();
                options = turns.next().unwrap();
                db = Db::open_in(options, world(sched, disk, options)).unwrap();
            }
        }
        assert!(deepest > 1, "{}", db.stats());
        // What is deleted at last gives the room of all of them back.
        (0..keys).for_each(|i| assert!(db.delete(many(i)).is_ok()));
        db.close().unwrap();
        let problems = cuesta::verify_in(options, world(sched, disk, options), &mut |_| {}).unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    });
}

#[test]
fn below_a_small_store_a_table_is_laid_on_several() {
    on_a_disk(|sched, disk| {
        let options = piled();
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        for i in 0..20_000 {
            db.put(many(i * 7919 % 9500), value(i, 1)).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let level = &db.stats().levels[7];
        // Fifty each. If each were laid on one of the oldest run it would be twenty, these included.
        assert!(level.runs > 1 && level.entries > 35 * level.tables, "{level:?}");
        db.close().unwrap();
    });
}

#[test]
fn what_was_synced_survives_power_cuts_while_tables_are_laid_on_several() {
    on_a_disk(|sched, disk| {
        let options = piled();
        let (mut rng, mut disk) = (cuesta_sched::Rng::new(5), disk.clone());
        let (mut model, mut deepest, mut at_work) = (BTreeMap::new(), 0, 0);
        for round in 0..20 {
            let db = Db::open_in(&options, world(sched, &disk, &options)).unwrap();
            for _ in 0..1000 {
                let i = rng.below(6000);
                if rng.one_in(4) {
                    db.delete(many(i)).unwrap();
                    model.remove(&i);
                } else {
                    db.put(many(i), value(i, round)).unwrap();
                    model.insert(i, value(i, round));
                }
            }
            db.sync().unwrap();
            // Whatever flushes and demotions are at.
            sched.sleep(std::time::Duration::from_micros(rng.below(20_000)));
            deepest = deepest.max(runs(&db));
            at_work += usize::from(disk.pending_len() > 0);
            let left = disk.after_cut(Survival::Random, &mut rng).on(sched);
            drop(db);
            disk = left;
            let db = Db::open_in(&options, world(sched, &disk, &options)).unwrap();
            let scanned: Vec<_> = db.scan(Range::all()).unwrap().map(Result::unwrap).collect();
            let pairs = scanned.iter().map(|(key, value)| (key.clone(), value.to_vec()));
            let expected = model.iter().map(|(i, value)| (many(*i).into_bytes(), value.clone()));
            assert!(pairs.eq(expected), "round {round}");
            db.close().unwrap();
        }
        assert!(deepest > 2 && at_work > 10, "{deepest} runs, {at_work} cuts in the middle of something");
        let problems =
            cuesta::verify_in(&options, world(sched, &disk, &options), &mut |_| {}).unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    });
}

#[test]
fn who_waits_for_slots_waits_for_merges_of_the_log() {
    on_a_disk(|sched, disk| {
        let mut options = deep();
        // A merge is about all keys that there are, and goes so slowly that flushes meet it.
        options.table_bytes = 2 << 20;
        options.tiers[1].background_bytes_per_second = Some(1 << 20);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let mut deepest = 0;
        for i in 0..12_000 {
            db.put(many(i * 7919 % 3000), value(i, 1)).unwrap();
            if i % 500 == 0 {
                deepest = deepest.max(levels(&db));
            }
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert!(deepest > 1, "{}", db.stats());
        db.close().unwrap();
    });
}

#[test]
fn what_went_down_anew_below_a_reader_does_not_come_up_as_it_was() {
    for options in [deep(), piled()] {
        goes_down_anew(&options);
    }
}

fn goes_down_anew(options: &Options) {
    on_a_disk(|sched, disk| {
        let db = Db::open_in(options, world(sched, disk, options)).unwrap();
        (0..3000).for_each(|i| assert!(db.put(many(i), value(i, 1)).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let below: Vec<u64> =
            (0..1000).filter(|i| lie_in(&db, "store", std::iter::once(*i)) == 0).take(6).collect();
        read_twice(&db, &below);
        below[..3].iter().for_each(|i| assert!(db.put(many(*i), value(*i, 2)).is_ok()));
        // What is hotter comes in, so most of these go down; meanwhile nothing is idle.
        for i in 0..3000 {
            db.put(format!("other{i:05}"), value(i, 9)).unwrap();
            (0..3).for_each(|_| assert!(db.get(format!("other{i:05}")).is_ok()));
        }
        assert!(lie_in(&db, "store", below[..3].iter().copied()) < 3, "{}", db.stats());
        // And lie on what is older, in another level or another run.
        let tables_of = |i: u64| {
            let holdings = db.explain(many(i)).unwrap().holdings;
            holdings.iter().filter(|h| h.tier == Some(1) && !h.versions.is_empty()).count()
        };
        assert!(below[..3].iter().any(|i| tables_of(*i) == 2), "{}", db.stats());
        sched.sleep(std::time::Duration::from_secs(3));
        let version = |i: usize| db.get(many(below[i])).unwrap().unwrap()[8];
        assert_eq!([0, 1, 2, 3, 4, 5].map(version), [2, 2, 2, 1, 1, 1]);
        db.close().unwrap();
    });
}

fn image_of(disk: &SimDisk) -> Option<String> {
    disk.files(1).into_iter().map(|file| file.name).find(|name| name.starts_with("image-"))
}

#[test]
fn a_clean_close_leaves_index_and_heat_for_the_next_open_alone() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        let known = |db: &Db| {
            let objects = db.stats().objects.unwrap();
            (objects.objects, objects.copies, objects.tracked, objects.clocks)
        };
        let before = known(&db);
        assert!(before.0 > 50 && before.2 > 300 && before.3[3] > 50, "{before:?}");
        let check = |db: &Db| (0..1000).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 1));
        db.close().unwrap();
        assert!(image_of(disk).is_some());
        disk.reset_counts();
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        assert_eq!((known(&db), image_of(disk)), (before, None));
        let reads = disk.counts()[0].reads();
        assert!(check(&db));
        // Without one, all slots are read, and nothing is known to be hot.
        db.close().unwrap();
        disk.remove_file(1, &image_of(disk).unwrap());
        let (objects, copies, ..) = before;
        disk.reset_counts();
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let reads_without = disk.counts()[0].reads();
        assert!(reads + 20 < reads_without, "{reads} and {reads_without} reads for {objects} objects");
        assert_eq!(known(&db), (objects, 0, 0, [0; 4]), "{copies} copies before");
        assert!(check(&db));
        db.close().unwrap();
    });
}

#[test]
fn an_open_that_sorts_slots_by_key_ranges_finds_all_of_them_and_which_version_is_newest() {
    on_a_disk(|sched, disk| {
        let memory = Options { memory_bytes: 8 << 20, background_threads: 2, ..small() };
        let mut options = memory;
        options.tiers[0].capacity_bytes = 64 << 20;
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        let key = |i: u64| format!("{:05}", i * 7919 % 30_000);
        let version = |i: u64| if i.is_multiple_of(3) { b"new" } else { b"old" };
        (0..30_000).for_each(|i| assert!(db.put(key(i), b"old").is_ok()));
        db.flush().unwrap();
        // Keeps the old ones in their slots.
        let snapshot = db.snapshot().unwrap();
        (0..30_000).step_by(3).for_each(|i| assert!(db.put(key(i), version(i)).is_ok()));
        db.flush().unwrap();
        assert_eq!(db.stats().objects.unwrap().objects, 40_000);
        let killed = disk.kill();
        drop((snapshot, db));
        let db = Db::open_in(&options, world(sched, &killed.on(sched), &options)).unwrap();
        assert_eq!(db.stats().objects.unwrap().objects, 40_000);
        assert!((0..30_000).all(|i| db.get(key(i)).unwrap().unwrap()[..] == *version(i)));
        let mut expected: Vec<_> = (0..30_000).map(|i| (key(i).into_bytes(), version(i).to_vec())).collect();
        expected.sort_unstable();
        let pairs = db.scan(Range::all()).unwrap().map(|pair| pair.unwrap());
        assert!(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).eq(expected));
        db.close().unwrap();
    });
}

#[test]
fn the_smallest_fast_tier_that_is_let_in_works_and_less_is_refused_by_how_much_it_takes() {
    let with = |fast: u64| {
        let mut options = small();
        options.tiers[0].capacity_bytes = fast;
        options
    };
    let (mut refused, mut least) = (0, 64 << 20);
    while refused + 1 < least {
        let middle = u64::midpoint(refused, least);
        *(if with(middle).validate().is_ok() { &mut least } else { &mut refused }) = middle;
    }
    let why = with(least - 1).validate().unwrap_err();
    assert!(why.to_string().contains(&least.to_string()), "{least}: {why}");
    on_a_disk(|sched, disk| {
        let options = with(least);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        // Several times as much as it holds, of several sizes.
        let sized = |i: u64, round: u8| vec![round; (i * 37 % 900) as usize];
        let keys = 4 * least / 450;
        for round in 0..2 {
            (0..keys).for_each(|i| assert!(db.put(many(i), sized(i, round)).is_ok()));
        }
        (0..keys).step_by(5).for_each(|i| assert!(db.delete(many(i)).is_ok()));
        let whole = |db: &Db| {
            (0..keys).all(|i| {
                let found = db.get(many(i)).unwrap().map(|found| found.to_vec());
                found == (!i.is_multiple_of(5)).then(|| sized(i, 1))
            })
        };
        assert!(whole(&db));
        let killed = disk.kill();
        drop(db);
        let db = Db::open_in(&options, world(sched, &killed.on(sched), &options)).unwrap();
        assert!(whole(&db));
        db.close().unwrap();
        let report =
            cuesta::verify_in(&options, world(sched, &killed.on(sched), &options), &mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
    });
}

#[test]
fn a_damaged_image_costs_time_and_heat() {
    on_a_disk(|sched, disk| {
        let options = half(PromoteReads::Never);
        let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
        fill(&db);
        db.close().unwrap();
        for byte in [0, 64, 4000] {
            let image = image_of(disk).unwrap();
            disk.flip_bit(1, &image, byte, 3);
            let report = cuesta::verify_in(&options, world(sched, disk, &options), &mut |_| {}).unwrap();
            assert!(report.problems.iter().any(|problem| problem.file.contains(&image)), "{report:?}");
            let db = Db::open_in(&options, world(sched, disk, &options)).unwrap();
            assert_eq!(db.stats().objects.unwrap().tracked, 0);
            assert!((0..1000).all(|i| db.get(many(i)).unwrap().unwrap()[..] == value(i, 1)));
            db.close().unwrap();
        }
    });
}

#[test]
fn a_close_goes_on_without_an_image_that_cannot_be_written() {
    on_a_disk(|sched, disk| {
        for kind in [OpKind::Create, OpKind::Write, OpKind::Sync] {
            let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
            (0..100).for_each(|i| assert!(db.put(key(i), value(i, 1)).is_ok()));
            db.flush().unwrap();
            let fails = |kind| Fault::new(Effect::Fail(Failure::Io)).on(kind).named("image").since(1);
            // And what was written of it cannot be removed.
            disk.set_faults(vec![fails(kind), fails(OpKind::Remove)]);
            db.close().unwrap();
            assert!(disk.faults_struck() > 0);
            disk.set_faults(Vec::new());
            let db = Db::open_in(&small(), world(sched, disk, &small())).unwrap();
            assert_eq!((db.stats().objects.unwrap().tracked, image_of(disk)), (0, None));
            assert!((0..100).all(|i| db.get(key(i)).unwrap().unwrap()[..] == value(i, 1)));
            db.close().unwrap();
        }
    });
}

#[test]
fn what_was_flushed_is_not_replayed_though_its_log_stays() {
    let options = |memtable_bytes| {
        let mut options = options_of(Kind::PrismDb, 3, Durability::Os);
        options.tiers[0].capacity_bytes = 16 << 20;
        Options { memtable_bytes: Some(memtable_bytes), ..options }
    };
    // A life of the store that ends in a kill: bytes that it found in the log, and what it leaves.
    let life = |disk: &SimDisk, options: &Options, body: &dyn Fn(&Db)| {
        let sched = Sched::simulated(7);
        let disk = disk.on(&sched);
        sched.run(|| {
            let db = Db::open_in(options, world(&sched, &disk, options)).unwrap();
            body(&db);
            (db.stats().opened.log_bytes, disk.kill())
        })
    };
    let fill = |db: &Db| (0..400).for_each(|i| assert!(db.put(many(i), value(i, 1)).is_ok()));
    let disk = SimDisk::new(&Sched::simulated(7), 2, SimConfig::default());
    let (_, disk) = life(&disk, &options(1 << 20), &fill);
    // Replayed into several memtables, of which all but the last are flushed; all had one log.
    let (first, disk) = life(&disk, &options(64 << 10), &|db| db.wait_for_background().unwrap());
    let (second, disk) = life(&disk, &options(64 << 10), &|_| {});
    assert!(first > 100_000 && second < 64 << 10, "{first} and {second} bytes");
    life(&disk, &options(64 << 10), &|db| {
        (0..400).for_each(|i| assert_eq!(db.get(many(i)).unwrap().as_deref(), Some(&value(i, 1)[..])));
    });
}
