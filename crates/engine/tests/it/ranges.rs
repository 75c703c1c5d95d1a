//! Deletes of ranges, in every profile.

use crate::basics::{in_memory, key, small};
use cuesta::{Batch, Cause, Db, ErrorKind, Options, Profile, Range};
use cuesta_sched::Sched;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

/// A small store of each profile that there is, and of each kind of media.
fn every(dir: &Path) -> Vec<(&'static str, Options)> {
    let of = |name, profile, options: Options| {
        let options = Options { profile: Some(profile), level_ratio: 3, ..options };
        (name, options)
    };
    let at = |name: &str| dir.join(name);
    vec![
        of("leveled", Profile::Leveled, small(&at("a"))),
        of("fragmented", Profile::Fragmented, small(&at("b"))),
        of("prismdb", Profile::PrismDb, small(&at("c"))),
        of("prismdb, log-free", Profile::PrismDb, Options { log_free: true, ..small(&at("d")) }),
        of("nvlsm on blocks", Profile::NvLsm, Options { floors_max: Some(4), ..small(&at("e")) }),
        of("nvlsm", Profile::NvLsm, Options { floors_max: Some(4), ..in_memory(&at("f")) }),
        of("leveled in memory", Profile::Leveled, in_memory(&at("g"))),
    ]
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn fill(db: &Db, pairs: &mut Pairs, from: u64, to: u64) {
    for i in from..to {
        let value = [&i.to_le_bytes()[..], &[7; 100]].concat();
        db.put(key(i), &value).unwrap();
        pairs.insert(key(i), value);
    }
}

fn delete(db: &Db, pairs: &mut Pairs, from: &[u8], to: &[u8]) {
    db.delete_range(from..to).unwrap();
    pairs.retain(|key, _| !(from..to).contains(&key.as_slice()));
}

fn check(name: &str, db: &Db, pairs: &Pairs, upper: u64) {
    for i in 0..upper {
        let found = db.get(key(i)).unwrap();
        assert_eq!(found.as_deref(), pairs.get(&key(i)).map(Vec::as_slice), "{name}: key {i}");
    }
    let copied = |pair: cuesta::Result<(Vec<u8>, cuesta::Value)>| pair.map(|(k, v)| (k, v.to_vec())).unwrap();
    let forwards: Vec<_> = db.scan(Range::all()).unwrap().map(copied).collect();
    let expected = pairs.iter().map(|(k, v)| (k.clone(), v.clone()));
    assert!(forwards.iter().cloned().eq(expected.clone()), "{name}: forwards");
    let backwards: Vec<_> = db.scan(Range::all()).unwrap().rev().map(copied).collect();
    assert!(backwards.into_iter().eq(expected.rev()), "{name}: backwards");
}

#[test]
fn a_range_goes_from_memtables_and_tables_and_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()) {
        let mut pairs = Pairs::new();
        let db = Db::open(&options).unwrap();
        fill(&db, &mut pairs, 0, 8_000);
        db.flush().unwrap();
        // Over tables, over what waits for its flush, and over the active memtable.
        delete(&db, &mut pairs, b"key010", b"key030");
        fill(&db, &mut pairs, 8_000, 9_000);
        delete(&db, &mut pairs, b"key025", b"key0255");
        fill(&db, &mut pairs, 9_000, 9_050);
        delete(&db, &mut pairs, b"key090", b"key0999");
        check(name, &db, &pairs, 9_050);
        db.flush().unwrap();
        check(name, &db, &pairs, 9_050);
        // From the log.
        delete(&db, &mut pairs, b"key050", b"key055");
        db.close().unwrap();
        let db = Db::open(&options).unwrap();
        check(name, &db, &pairs, 9_050);
        db.wait_for_background().unwrap();
        check(name, &db, &pairs, 9_050);
        // What is worked off is forgotten, and what it took away stays away.
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().range_tombstones, 0, "{name}: {}", db.stats());
        check(name, &db, &pairs, 9_050);
        fill(&db, &mut pairs, 2_000, 2_500);
        check(name, &db, &pairs, 9_050);
        db.close().unwrap();
        let db = Db::open(&options).unwrap();
        check(name, &db, &pairs, 9_050);
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_and_an_iterator_go_on_seeing_what_a_range_had() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()) {
        let (mut pairs, db) = (Pairs::new(), Db::open(&options).unwrap());
        fill(&db, &mut pairs, 0, 3_000);
        db.flush().unwrap();
        fill(&db, &mut pairs, 3_000, 3_100);
        let (before, snapshot) = (pairs.clone(), db.snapshot().unwrap());
        let mut scan = db.scan(Range::all()).unwrap();
        assert_eq!(&scan.next().unwrap().unwrap().0, before.keys().next().unwrap());
        delete(&db, &mut pairs, b"key02", b"key08");
        fill(&db, &mut pairs, 3_100, 3_300);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().range_tombstones, 1, "{name}");
        check(name, &db, &pairs, 3_300);
        for i in 0..3_300 {
            let found = snapshot.get(key(i)).unwrap();
            assert_eq!(found.as_deref(), before.get(&key(i)).map(Vec::as_slice), "{name}: key {i}");
        }
        let rest: Vec<_> = scan.map(|pair| pair.unwrap().0).collect();
        assert!(rest.iter().eq(before.keys().skip(1)), "{name}");
        drop(snapshot);
        // Nobody is told that a snapshot has gone; workers look once a second.
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().range_tombstones, 0, "{name}: {}", db.stats());
        check(name, &db, &pairs, 3_300);
        db.close().unwrap();
    }
}

#[test]
fn in_a_batch_what_comes_later_counts() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()) {
        let db = Db::open(&options).unwrap();
        let other = db.create_keyspace("other").unwrap();
        other.put(b"b", b"theirs").unwrap();
        other.put(b"z", b"theirs").unwrap();
        let mut batch = Batch::new();
        batch
            .put(b"a", b"1")
            .put(b"b", b"2")
            .delete_range(&b"a"[..]..=&b"b"[..])
            .put(b"b", b"3")
            .put(b"c", b"4");
        assert_eq!(batch.len(), 5);
        db.write(batch).unwrap();
        let all = |db: &Db| -> Vec<_> {
            let scan = db.scan(Range::all()).unwrap();
            scan.map(|pair| pair.map(|(k, v)| (k, v.to_vec())).unwrap()).collect()
        };
        let expected = [(b"b".to_vec(), b"3".to_vec()), (b"c".to_vec(), b"4".to_vec())];
        assert_eq!(all(&db), expected, "{name}");
        db.flush().unwrap();
        assert_eq!(all(&db), expected, "{name}");
        // A keyspace's end is no other's beginning.
        db.delete_range(..).unwrap();
        assert_eq!((all(&db), other.get(b"b").unwrap().as_deref()), (Vec::new(), Some(&b"theirs"[..])));
        other.delete_range((Bound::Excluded(&b"b"[..]), Bound::Unbounded)).unwrap();
        db.flush().unwrap();
        assert_eq!((other.get(b"b").unwrap().is_some(), other.get(b"z").unwrap().is_some()), (true, false));
        db.close().unwrap();
    }
}

#[test]
fn an_empty_range_is_no_write_and_a_wrong_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    let sequence = db.put(b"a", b"1").unwrap();
    let mut batch = Batch::new();
    batch.delete_range(&b"c"[..]..&b"b"[..]).delete_range(&b"b"[..]..&b"b"[..]);
    assert!(batch.is_empty());
    assert_eq!(db.write(batch).unwrap(), sequence);
    let refused = db.delete_range(Range::all().with_limit(3)).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Invalid);
    let mut many = Batch::new();
    for i in 0..1025u16 {
        many.delete_range(&i.to_be_bytes()[..]..=&i.to_be_bytes()[..]);
    }
    assert_eq!(*db.write(many).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.get(b"a").unwrap().is_some());
}

#[test]
fn tables_that_are_covered_whole_go_without_being_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()).into_iter().filter(|(name, _)| !name.contains("nvlsm")) {
        let (mut pairs, db) = (Pairs::new(), Db::open(&options).unwrap());
        fill(&db, &mut pairs, 0, 20_000);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let read = |db: &Db| {
            let io = &db.stats().io;
            let causes = [Cause::Compaction, Cause::Demotion];
            let all =
                (0..options.tiers.len()).flat_map(|tier| causes.map(|cause| io.get(tier, cause).read_bytes));
            all.sum::<u64>()
        };
        let before = read(&db);
        db.delete_range(..).unwrap();
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert_eq!(read(&db) - before, 0, "{name}");
        assert_eq!(stats.levels.iter().map(|level| level.tables).sum::<u64>(), 0, "{name}: {stats}");
        assert_eq!(stats.objects.map_or(0, |objects| objects.objects), 0, "{name}: {stats}");
        assert_eq!(stats.range_tombstones, 0, "{name}: {stats}");
        check(name, &db, &Pairs::new(), 20_000);
        db.close().unwrap();
    }
}

#[test]
fn tables_that_a_snapshot_keeps_are_not_read_for_others() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()).into_iter().filter(|(name, _)| !name.contains("prismdb")) {
        // One floor a guard: of trees only the top says how new it is.
        let (mut pairs, db) = (Pairs::new(), Db::open(&Options { floors_max: Some(1), ..options }).unwrap());
        fill(&db, &mut pairs, 0, 20_000);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let snapshot = db.snapshot().unwrap();
        db.delete_range(..).unwrap();
        let read = |db: &Db| {
            let io = &db.stats().io;
            let causes = [Cause::UserRead, Cause::Index];
            (0..db.stats().tiers.len())
                .flat_map(|tier| causes.map(|cause| io.get(tier, cause).read_bytes))
                .sum()
        };
        let before: u64 = read(&db);
        assert!((0..20_000).all(|i| db.get(key(i)).unwrap().is_none()), "{name}");
        assert_eq!(db.scan(Range::all()).unwrap().count(), 0, "{name}");
        assert_eq!(db.scan(Range::all()).unwrap().rev().count(), 0, "{name}");
        assert_eq!(read(&db) - before, 0, "{name}");
        assert_eq!(snapshot.scan(Range::all()).unwrap().count(), 20_000, "{name}");
        drop(snapshot);
        db.close().unwrap();
    }
}

#[test]
fn as_many_ranges_as_one_likes_while_nobody_sees_what_was_before() {
    let dir = tempfile::tempdir().unwrap();
    for (name, options) in every(dir.path()) {
        let (mut pairs, db) = (Pairs::new(), Db::open(&options).unwrap());
        fill(&db, &mut pairs, 0, 2_000);
        for i in 0..3_000u64 {
            let (from, to) = (key(i), key(i + 50));
            let (from, to) = if from < to { (from, to) } else { (to, from) };
            if i % 7 == 0 {
                delete(&db, &mut pairs, &from, &[&from[..], b"5"].concat());
            }
            db.delete_range(&[b"x", &to[..]].concat()[..]..&[b"x", &to[..], b"5"].concat()[..]).unwrap();
        }
        check(name, &db, &pairs, 2_000);
        db.close().unwrap();
    }
    // Nor does a store need to have had anything.
    for (name, options) in every(&dir.path().join("new")) {
        let db = Db::open(&options).unwrap();
        for i in 0..1100u32 {
            db.delete_range(&i.to_be_bytes()[..]..=&i.to_be_bytes()[..]).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().range_tombstones, 0, "{name}");
        db.close().unwrap();
    }
    let (name, options) = every(&dir.path().join("held")).remove(0);
    let db = Db::open(&options).unwrap();
    db.put(b"a", b"1").unwrap();
    let snapshot = db.snapshot().unwrap();
    let one = |i: u32| db.delete_range(&i.to_be_bytes()[..]..=&i.to_be_bytes()[..]);
    // With nothing that they delete, they go all the same once the snapshot has; and not before.
    for i in 0..1024 {
        one(i).unwrap();
    }
    let refused = one(1024).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Full, "{name}: {refused}");
    assert!(refused.to_string().contains("snapshots"), "{refused}");
    db.delete(b"a").unwrap();
    drop(snapshot);
    one(1025).unwrap();
    db.close().unwrap();
}

#[test]
fn a_store_that_is_full_is_emptied_by_range() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mut options) in every(dir.path()) {
        options.tiers.iter_mut().for_each(|tier| tier.capacity_bytes = tier.capacity_bytes.min(12 << 20));
        options.tiers[0].capacity_bytes = 6 << 20;
        let db = Db::open(&options).unwrap();
        let value: Vec<u8> = (0..1000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut full = None;
        for i in 0..200_000u64 {
            let value: Vec<u8> =
                value.iter().map(|byte| byte.wrapping_mul(i as u8 | 1) ^ (i >> 8) as u8).collect();
            if let Err(error) = db.put(key(i), value) {
                full = Some(error);
                break;
            }
        }
        assert_eq!(full.map(|error| error.kind().clone()), Some(ErrorKind::Full), "{name}");
        db.delete_range(..).unwrap();
        // At once, but for a disk that others keep busy: a minute.
        let accepted = (0..2400).any(|_| {
            Sched::real(1).sleep(Duration::from_millis(25));
            db.put(b"again", b"1").is_ok()
        });
        assert!(accepted, "{name}: {}", db.stats());
        assert_eq!(db.scan(Range::all()).unwrap().count(), 1, "{name}");
        db.close().unwrap();
    }
}
