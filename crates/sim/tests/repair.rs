//! Stores that are damaged in every way that `repair` knows: what it tells is all that is lost, and what it leaves is a
//! whole store, wherever it is interrupted.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{
    Db, Durability, ErrorKind, KeyIn, Lost, Options, Range, Repair, RepairReport, repair_in, verify_in,
};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk, Survival};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{Contents, Kind, contents, options_of, world};
use std::collections::{BTreeMap, BTreeSet};

const KINDS: [Kind; 5] =
    [Kind::Leveled, Kind::Fragmented, Kind::PrismDb, Kind::PrismDbLogFree, Kind::NvLsmBlocks];
const KEYS: u64 = 300;
const SPACES: [&str; 2] = ["default", "other"];

fn key(keyspace: &str, i: u64) -> KeyIn {
    KeyIn { keyspace: keyspace.to_owned(), key: format!("key{i:03}").into_bytes() }
}

/// What each key has had: the last is what it has.
type History = BTreeMap<KeyIn, Vec<Option<Vec<u8>>>>;

/// A store at rest.
struct Base {
    options: Options,
    disk: SimDisk,
    history: History,
}

/// Few writes of one round: values of many sizes, deletes, and deletes of ranges.
fn write_some(db: &Db, rng: &mut Rng, history: &mut History) {
    let other = db.keyspace("other").unwrap().unwrap();
    for _ in 0..KEYS {
        let space = SPACES[usize::from(rng.one_in(4))];
        let (i, is_other) = (rng.below(KEYS), space == "other");
        if rng.one_in(150) {
            let (from, to) = (key(space, i), key(space, i + 1 + rng.below(20)));
            let range = Range::from(&from.key[..]..&to.key[..]);
            let deleted = if is_other { other.delete_range(range) } else { db.delete_range(range) };
            deleted.unwrap();
            history.range_mut(from..to).for_each(|(_, had)| had.push(None));
            continue;
        }
        let at = key(space, i);
        let value = (!rng.one_in(8)).then(|| {
            let bytes = if rng.one_in(20) { 6000 } else { 200 };
            (0..bytes).map(|_| rng.next_u64() as u8 | 1).collect::<Vec<_>>()
        });
        match (&value, is_other) {
            (Some(value), true) => other.put(&at.key, value),
            (Some(value), false) => db.put(&at.key, value),
            (None, true) => other.delete(&at.key),
            (None, false) => db.delete(&at.key),
        }
        .unwrap();
        history.get_mut(&at).unwrap().push(value);
    }
}

fn make(kind: Kind, seed: u64, closed: bool) -> Base {
    let options = options_of(kind, seed, Durability::Os);
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let mut rng = Rng::new(seed);
    let keys = SPACES.into_iter().flat_map(|space| (0..KEYS).map(move |i| key(space, i)));
    let mut history: History = keys.map(|key| (key, vec![None])).collect();
    let disk = sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        drop(db.create_keyspace("other").unwrap());
        for round in 0..5 {
            let before = db.snapshot().unwrap();
            write_some(&db, &mut rng, &mut history);
            if round < 4 {
                db.flush().unwrap();
            }
            drop(before);
        }
        db.wait_for_background().unwrap();
        db.sync().unwrap();
        if closed {
            db.close().unwrap();
        }
        disk.kill()
    });
    Base { options, disk, history }
}

/// Runs `body` on a copy of `disk`.
fn with_copy<R>(disk: &SimDisk, body: impl FnOnce(&SimDisk, &Sched) -> R) -> R {
    let sched = Sched::simulated(8);
    let disk = disk.kill().on(&sched);
    sched.run(|| body(&disk, &sched))
}

fn bad_sector(tier: usize, name: &str, at: u64) -> Fault {
    let place = at - at % 512..at - at % 512 + 512;
    let reads = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).in_tier(tier);
    reads.named(name).touching(place).since(1)
}

/// Damages up to three tables, slabs or images, and says how. What the medium cannot read it will not be able to later
/// either; whether it can read all is the second answer.
fn damage(disk: &SimDisk, rng: &mut Rng) -> (String, bool) {
    let is_meant =
        |name: &String| ["data-", "meta-", "slab-", "image-"].iter().any(|kind| name.starts_with(kind));
    let of = |tier| {
        disk.files(tier).into_iter().map(|file| file.name).filter(is_meant).map(move |name| (tier, name))
    };
    let files: Vec<(usize, String)> = (0..2).flat_map(of).collect();
    let (mut told, mut faults) = (Vec::new(), Vec::new());
    for _ in 0..1 + rng.below(3) {
        let (tier, name) = &files[rng.below(files.len() as u64) as usize];
        let found = disk.files(*tier).into_iter().find(|file| file.name == *name);
        let Some(bytes) = found.map(|file| file.bytes).filter(|bytes| *bytes > 0) else { continue };
        let (at, what) = (rng.below(bytes), rng.below(9));
        told.push(format!("{what} at {at} of {name}"));
        let all = disk.read_file(*tier, name);
        match what {
            0 => disk.remove_file(*tier, name),
            1 => disk.write_file(*tier, name, &all[..at as usize]),
            2 => disk.write_file(*tier, name, &all[..(at - at % 4096) as usize]),
            3 => disk.write_file(*tier, name, &[&all[..], &[0; 4096]].concat()),
            // What cannot be read of a header that is written anew shows again.
            4 if at >= 4096 => faults.push(bad_sector(*tier, name, at)),
            5 => {
                let garbage: Vec<u8> = (0..(bytes - at).min(512)).map(|_| rng.next_u64() as u8).collect();
                disk.overwrite(*tier, name, at, &garbage);
            }
            6 => {
                let page = at - at % 4096;
                disk.overwrite(*tier, name, page, &vec![0; (bytes - page).min(4096) as usize]);
            }
            _ => disk.flip_bit(*tier, name, at, (at % 8) as u8),
        }
    }
    let is_readable = faults.is_empty();
    disk.set_faults(faults);
    (told.join(", "), is_readable)
}

/// Every file, byte by byte.
fn bytes_of(disk: &SimDisk) -> Vec<(usize, String, Vec<u8>)> {
    let of = |tier: usize| disk.files(tier).into_iter().map(move |file| (tier, file.name));
    (0..2).flat_map(of).map(|(tier, name)| (tier, name.clone(), disk.read_file(tier, &name))).collect()
}

/// Whether a report says of this key that a version is lost.
fn tells(report: &RepairReport, key: &KeyIn) -> bool {
    report.damages.iter().any(|damage| match &damage.lost {
        Lost::Key(lost) => lost == key,
        Lost::Keys(first, last) => (first..=last).contains(&key),
        Lost::Nothing | Lost::Unknown(_) => false,
    })
}

/// As [`contents`], by the names that reports have.
fn all_of(db: &Db) -> BTreeMap<KeyIn, Vec<u8>> {
    let found: Contents = contents(db).unwrap();
    let mut all = BTreeMap::new();
    for (space, pairs) in found {
        let keyspace = if space.is_empty() { "default".to_owned() } else { space };
        all.extend(pairs.into_iter().map(|(key, value)| (KeyIn { keyspace: keyspace.clone(), key }, value)));
    }
    all
}

/// A store that was repaired is whole: all is there but versions that were told, and no more of them than were counted;
/// and it takes writes.
fn check(base: &Base, disk: &SimDisk, sched: &Sched, report: &RepairReport) {
    let options = &base.options;
    let open = || Db::open_in(options, world(sched, disk, options)).unwrap();
    let db = open();
    let found = all_of(&db);
    let (mut lost, mut untold) = (BTreeSet::new(), 0);
    for (key, had) in &base.history {
        let found = found.get(key).cloned();
        if found != *had.last().unwrap() {
            assert!(had.contains(&found), "{key} never had that");
            untold += u64::from(!tells(report, key));
            lost.insert(key);
        }
    }
    let unknown = report.damages.iter().map(|damage| if let Lost::Unknown(n) = damage.lost { n } else { 0 });
    let (unknown, counted) = (unknown.sum::<u64>(), report.versions_lost);
    assert!(untold <= unknown, "{untold} keys have lost something that was not told: {lost:?}");
    assert!(lost.len() as u64 <= counted, "{} keys have lost {counted} versions", lost.len());
    assert!(found.keys().all(|key| base.history.contains_key(key)));
    let other = db.keyspace("other").unwrap().unwrap();
    for (key, had) in base.history.iter().step_by(7) {
        let got = if key.keyspace == "other" { other.get(&key.key) } else { db.get(&key.key) };
        assert_eq!(
            got.unwrap().as_deref(),
            found.get(key).map(Vec::as_slice),
            "{key}, which had {}",
            had.len()
        );
    }
    for round in 0..3u8 {
        base.history.keys().for_each(|key| assert!(db.put(&key.key, vec![round; 300]).is_ok()));
        db.flush().unwrap();
        db.wait_for_background().unwrap();
    }
    db.close().unwrap();
    let db = open();
    assert!(base.history.keys().all(|key| db.get(&key.key).unwrap().as_deref() == Some(&[2; 300][..])));
    db.close().unwrap();
    let report = verify_in(options, world(sched, disk, options), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

fn repair(base: &Base, disk: &SimDisk, sched: &Sched, what: Repair) -> cuesta::Result<RepairReport> {
    repair_in(&base.options, world(sched, disk, &base.options), what, &mut |_| {})
}

#[test]
fn what_is_told_is_all_that_is_lost() {
    for kind in KINDS {
        let (mut repaired, mut lossy, mut free) = (0, 0, 0);
        for (seed, closed) in (0..6).flat_map(|seed| [(seed, true), (seed, false)]) {
            // What was promised may be in slots that are announced, and is not given up.
            if kind == Kind::PrismDbLogFree && !closed {
                continue;
            }
            let base = make(kind, seed, closed);
            for case in 0..12 {
                with_copy(&base.disk, |disk, sched| {
                    let (damaged, _) = damage(disk, &mut Rng::new(seed * 100 + case));
                    let which = format!("{kind}, seed {seed}, closed {closed}, case {case}: {damaged}");
                    let before = bytes_of(disk);
                    let told = repair(&base, disk, sched, Repair::Tell);
                    let told = told.unwrap_or_else(|error| panic!("{which}: {error}"));
                    assert_eq!(bytes_of(disk), before, "{which}: something was written");
                    if let Some(fewer) = told.versions_lost.checked_sub(1) {
                        let error = repair(&base, disk, sched, Repair::GiveUp(fewer)).unwrap_err();
                        assert!(
                            *error.kind() == ErrorKind::Invalid && bytes_of(disk) == before,
                            "{which}: {error}"
                        );
                    }
                    let report = repair(&base, disk, sched, Repair::GiveUp(told.versions_lost));
                    let report = report.unwrap_or_else(|error| panic!("{which}: {error}"));
                    assert_eq!((&report.damages, report.versions_lost), (&told.damages, told.versions_lost));
                    assert_eq!(report.left, [], "{which}");
                    assert_eq!(report.repaired, !report.damages.is_empty());
                    repaired += u32::from(report.repaired);
                    lossy += u32::from(report.versions_lost > 0);
                    free += u32::from(report.repaired && report.versions_lost == 0);
                    check(&base, disk, sched, &report);
                });
            }
        }
        assert!(repaired > 30 && lossy > 15 && free > 3, "{kind}: {repaired} {lossy} {free}");
    }
}

/// Damage with which something is lost, and which outlives the process: a seed of it, what a repair tells, and after
/// how many operations.
fn lossy(base: &Base) -> (u64, RepairReport, u64) {
    let mut tried = (0..).map(|seed| {
        with_copy(&base.disk, |disk, sched| {
            let (_, is_readable) = damage(disk, &mut Rng::new(seed));
            let report = repair(base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap();
            (is_readable && report.versions_lost > 1).then(|| (seed, report, disk.ops()))
        })
    });
    tried.find_map(|found| found).unwrap()
}

#[test]
fn a_repair_that_is_cut_short_is_begun_anew() {
    for kind in KINDS {
        let base = make(kind, 3, true);
        let (seed, told, ops) = lossy(&base);
        let (mut before, mut after) = (0, 0);
        for (i, at) in (1..=ops).step_by((ops / 120).max(1) as usize).enumerate() {
            let survival = [Survival::None, Survival::All, Survival::Random][i % 3];
            let left = with_copy(&base.disk, |disk, sched| {
                damage(disk, &mut Rng::new(seed));
                disk.cut_at(at);
                drop(repair(&base, disk, sched, Repair::GiveUp(u64::MAX)));
                disk.after_cut(survival, &mut Rng::new(at))
            });
            with_copy(&left, |disk, sched| {
                let again = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap();
                assert_eq!(again.left, [], "{kind}, cut at {at}");
                *if again.repaired { &mut before } else { &mut after } += 1;
                check(&base, disk, sched, &told);
            });
        }
        assert!(before > 20 && after > 20, "{kind}: {before} {after}");
    }
}

#[test]
fn a_repair_whose_calls_fail_gives_up_nothing_that_was_not_told() {
    for kind in KINDS {
        let base = make(kind, 3, true);
        let (seed, told, ops) = lossy(&base);
        let (mut failed, mut done_but) = (0, 0);
        for at in (1..=ops).step_by((ops / 120).max(1) as usize) {
            let left = with_copy(&base.disk, |disk, sched| {
                damage(disk, &mut Rng::new(seed));
                let any = [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Create];
                // From there on, so that what can be read no more is more than was told.
                disk.set_faults(
                    any.map(|kind| Fault::new(Effect::Fail(Failure::Io)).on(kind).since(at)).to_vec(),
                );
                let report = repair(&base, disk, sched, Repair::GiveUp(u64::MAX));
                failed += u32::from(report.is_err());
                if let Ok(report) = report {
                    assert_eq!(report.versions_lost, told.versions_lost);
                    done_but += u32::from(!report.left.is_empty());
                }
                disk.kill()
            });
            with_copy(&left, |disk, sched| {
                let again = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap();
                assert_eq!(again.left, [], "{kind}, failing from {at} on");
                check(&base, disk, sched, &told);
            });
        }
        assert!(failed > 10 && done_but > 0, "{kind}: {failed} {done_but}");
    }
}

#[test]
fn repairs_that_are_cut_short_again_and_again_take_no_more_room() {
    let base = make(Kind::Leveled, 3, true);
    let (seed, ..) = lossy(&base);
    let tables = |disk: &SimDisk| {
        let names = (0..2).flat_map(|tier| disk.files(tier)).map(|file| file.name);
        names.filter(|name| name.starts_with("data-")).count()
    };
    let mut disk = with_copy(&base.disk, |disk, _| {
        drop(damage(disk, &mut Rng::new(seed)));
        disk.kill()
    });
    let before = tables(&disk);
    let mut most = 0;
    for _ in 0..10 {
        // The first sync of a superblock is that of an epoch: by then the new tables are there.
        disk = with_copy(&disk, |disk, sched| {
            let sync = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Sync).named("CUESTA");
            disk.set_faults(vec![sync.since(1)]);
            repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap_err();
            disk.kill()
        });
        most = most.max(tables(&disk));
    }
    assert!(most > before && most <= before + 3, "{before} tables, then {most}");
    with_copy(&disk, |disk, sched| {
        let report = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap();
        check(&base, disk, sched, &report);
        assert!(tables(disk) < most + 20);
    });
}

#[test]
fn what_lies_in_manifest_or_log_is_not_guessed() {
    let base = make(Kind::Leveled, 3, true);
    for name in ["manifest-", "log-"] {
        with_copy(&base.disk, |disk, sched| {
            let names = disk.files(0).into_iter().map(|file| file.name);
            let file = names.into_iter().find(|found| found.starts_with(name)).unwrap();
            disk.flip_bit(0, &file, 100, 1);
            let before = bytes_of(disk);
            let error = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("cannot be repaired") && text.contains(name), "{text}");
            assert_eq!(bytes_of(disk), before);
        });
    }
}

#[test]
fn a_slot_that_a_crash_has_left_unreadable_is_given_up_by_itself() {
    let mut base = make(Kind::PrismDb, 3, true);
    let disk = with_copy(&base.disk, |disk, sched| {
        let db = Db::open_in(&base.options, world(sched, disk, &base.options)).unwrap();
        db.put(b"key000", [9; 300]).unwrap();
        db.sync().unwrap();
        disk.kill()
    });
    base.history.get_mut(&key("default", 0)).unwrap().push(Some(vec![9; 300]));
    // Which pages have live slots is the store's to choose.
    let slabs = disk.files(0).into_iter().map(|file| file.name).filter(|name| name.starts_with("slab-"));
    let pages = |slab: &String| (4096..disk.read_file(0, slab).len() as u64).step_by(4096);
    let places: Vec<(String, u64)> =
        slabs.flat_map(|slab| pages(&slab).map(|at| (slab.clone(), at)).collect::<Vec<_>>()).collect();
    let is_told = |(slab, at): &(String, u64)| {
        with_copy(&disk, |disk, sched| {
            disk.set_faults(vec![bad_sector(0, slab, *at)]);
            let opened = Db::open_in(&base.options, world(sched, disk, &base.options));
            let Err(error) = opened.map(drop) else { return false };
            assert!(error.to_string().contains(slab), "{error}");
            let report = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap();
            assert!((1..20).contains(&report.versions_lost), "{report:?}");
            assert!(
                report.damages.iter().any(|damage| matches!(damage.lost, Lost::Unknown(_))),
                "{report:?}"
            );
            check(&base, disk, sched, &report);
            true
        })
    };
    assert!(places.iter().any(is_told), "{places:?}");
}

#[test]
fn announced_slots_that_cannot_be_read_are_not_given_up() {
    let base = make(Kind::PrismDbLogFree, 3, false);
    let slabs = |disk: &SimDisk| -> Vec<String> {
        let names = disk.files(0).into_iter().map(|file| file.name);
        names.filter(|name| name.starts_with("slab-")).collect()
    };
    let refuses = |disk: &SimDisk, sched: &Sched| {
        let before = bytes_of(disk);
        for what in [Repair::Tell, Repair::GiveUp(u64::MAX)] {
            let error = repair(&base, disk, sched, what).unwrap_err();
            assert!(error.is_corrupt() && error.to_string().contains("cannot be repaired"), "{error}");
            assert_eq!(bytes_of(disk), before);
        }
    };
    with_copy(&base.disk, |disk, sched| {
        slabs(disk).iter().for_each(|slab| disk.flip_bit(0, slab, 70, 3));
        refuses(disk, sched);
    });
    // And an object that was promised, while those that came later tell that it was.
    let promised = with_copy(&base.disk, |disk, sched| {
        let db = Db::open_in(&base.options, world(sched, disk, &base.options)).unwrap();
        for i in 0..60 {
            db.put(key("default", i).key, [1; 200]).unwrap();
            if i == 40 {
                db.sync().unwrap();
            }
        }
        disk.kill()
    });
    let mut refused = 0;
    for slab in slabs(&promised) {
        for at in (4096..8192).step_by(120) {
            with_copy(&promised, |disk, sched| {
                disk.flip_bit(0, &slab, at, 1);
                let opens = with_copy(disk, |disk, sched| {
                    Db::open_in(&base.options, world(sched, disk, &base.options)).is_ok()
                });
                if !opens {
                    refuses(disk, sched);
                    let verified = verify_in(&base.options, world(sched, disk, &base.options), &mut |_| {});
                    assert!(!verified.unwrap().problems.is_empty());
                    refused += 1;
                }
            });
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn where_the_manifest_may_have_lost_its_end_no_missing_table_is_given_up() {
    let base = make(Kind::Leveled, 3, false);
    with_copy(&base.disk, |disk, sched| {
        let of = |tier: usize| disk.files(tier).into_iter().map(move |file| (tier, file.name));
        let (tier, table) = (0..2).flat_map(of).find(|(_, name)| name.starts_with("data-")).unwrap();
        disk.remove_file(tier, &table);
        let names = disk.files(0).into_iter().map(|file| file.name);
        let manifest = names.into_iter().find(|name| name.starts_with("manifest-")).unwrap();
        let told = repair(&base, disk, sched, Repair::Tell).unwrap();
        assert!(told.versions_lost > 0, "{told:?}");
        // A bit of the last record.
        let end = disk.read_file(0, &manifest).iter().rposition(|byte| *byte != 0).unwrap();
        disk.flip_bit(0, &manifest, end as u64, 2);
        let error = repair(&base, disk, sched, Repair::GiveUp(u64::MAX)).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("cannot be repaired"), "{error}");
    });
}
