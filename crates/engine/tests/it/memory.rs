//! Stores in persistent memory, on files that are really mapped.

use crate::basics::{in_memory, key};
use cuesta::{Db, ErrorKind, Options, Profile, Range, VALUE_BYTES_MAX};
use cuesta_device::{Directory, FileDirectory};
use std::fs::OpenOptions;
use std::path::Path;

const KEYS: u64 = 3000;
const VALUE_BYTES: usize = 200;

fn options(dir: &Path) -> Options {
    Options { profile: Some(Profile::NvLsm), level_ratio: 3, floors_max: Some(4), ..in_memory(dir) }
}

/// A store of which most lies in floors.
fn filled(dir: &Path) -> Db {
    let db = Db::open(&options(dir)).unwrap();
    for i in 0..KEYS {
        db.put(key(i), [7; VALUE_BYTES]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    db
}

/// Cuts the mapped file to so many bytes.
fn cut(dir: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(dir.join("memory/PMEM")).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn memory_that_is_cut_short_while_the_store_is_open_ends_writes_and_not_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    cut(dir.path(), 4096);
    let errors: Vec<_> = (0..KEYS).filter_map(|i| db.get(key(i)).err()).collect();
    assert!(errors.len() as u64 > KEYS / 2, "{} of {KEYS} reads", errors.len());
    assert!(
        errors.iter().all(|error| error.to_string().contains("lost bytes while it was mapped")),
        "{errors:?}"
    );
    let scanned = db.scan(Range::all()).unwrap().find_map(Result::err).unwrap();
    assert!(scanned.to_string().contains("lost bytes while it was mapped"), "{scanned}");
    let refused = (0..KEYS).find_map(|i| db.put(key(i), [8; VALUE_BYTES]).err()).unwrap();
    assert_eq!(*refused.kind(), ErrorKind::ReadOnly, "{refused}");
    assert_eq!(*db.close().unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn memory_that_was_cut_short_while_the_store_was_closed_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).close().unwrap();
    cut(dir.path(), 4096);
    // Whoever has looked has left it as it was.
    for _ in 0..2 {
        let error = Db::open(&options(dir.path())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("it was cut short, and had 4096 bytes"), "{error}");
        let found = cuesta::verify(&options(dir.path()), &mut |_| {}).unwrap();
        assert!(found.problems[0].message.contains("it was cut short"), "{found:?}");
    }
}

#[test]
fn memory_that_its_file_system_has_no_room_for_is_refused_and_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut large = options(dir.path());
    let room = FileDirectory::open(dir.path()).unwrap().free_bytes().unwrap();
    // Whatever is kept for the superuser, too.
    large.tiers[0].capacity_bytes = 2 * room + (1 << 30);
    let full = Db::open(&large).unwrap_err();
    assert_eq!(*full.kind(), ErrorKind::Full, "{full}");
    assert!(full.to_string().contains("take room for persistent memory"), "{full}");
    let bytes = || dir.path().join("memory/PMEM").metadata().unwrap().len();
    assert_eq!(bytes(), 0);
    // Nor does a store that is there become longer.
    filled(dir.path()).close().unwrap();
    let before = bytes();
    assert_eq!(*Db::open(&large).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(bytes(), before);
    let db = Db::open(&options(dir.path())).unwrap();
    assert_eq!(db.scan(Range::all()).unwrap().count() as u64, KEYS);
}

#[test]
fn the_largest_values_lie_in_floors_like_others() {
    const VALUES: u8 = 2;
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    (options.memory_bytes, options.tiers[0].capacity_bytes) = (2 << 30, 768 << 20);
    let value = |i: u8| {
        let mut value = vec![i; VALUE_BYTES_MAX];
        value[12_345_678] = 200;
        value
    };
    let check = |db: &Db| {
        for i in 0..VALUES {
            let found = db.get([i]).unwrap().unwrap();
            assert!(found == value(i)[..], "value {i}");
        }
        assert_eq!(db.scan(Range::all()).unwrap().count(), usize::from(VALUES) + 1);
    };
    let db = Db::open(&options).unwrap();
    for round in 0..2 {
        for i in 0..VALUES {
            db.put([i], if round == 0 { vec![9; VALUE_BYTES_MAX] } else { value(i) }).unwrap();
        }
        db.put(b"little", b"one").unwrap();
        db.flush().unwrap();
    }
    db.wait_for_background().unwrap();
    check(&db);
    db.close().unwrap();
    check(&Db::open(&options).unwrap());
}

#[test]
fn a_floor_is_told_in_words_wherever_its_pieces_are() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&options(dir.path())).unwrap();
    for round in 0..3u8 {
        db.put(b"each", [round; 3]).unwrap();
        db.put([b'k', round], b"once").unwrap();
        db.flush().unwrap();
    }
    let holdings = db.explain(b"each").unwrap().holdings;
    let tables: Vec<u64> = holdings
        .iter()
        .filter_map(|holding| {
            holding.container.strip_prefix("level 0, table ")?.split(',').next()?.parse().ok()
        })
        .collect();
    let told = |number| {
        let mut text = String::new();
        cuesta::inspect_table(&options(dir.path()), number, &mut text).map(|()| text)
    };
    assert_eq!(*told(tables[0]).unwrap_err().kind(), ErrorKind::Locked);
    db.close().unwrap();
    let top = told(tables[0]).unwrap();
    assert!(top.contains("in persistent memory at [") && top.contains("floor 3 of its tree"), "{top}");
    let (first, second) = (format!("0 -> entry 0 of table {}: ", tables[1]), "1 -> nothing: ");
    assert!(top.contains(&first) && top.contains(second) && top.contains("each #"), "{top}");
    assert!(told(tables[2]).unwrap().contains("lies on nothing"));
    let none = told(999).unwrap_err();
    assert!(none.to_string().contains("no table 999; it has 3 tables"), "{none}");
}

/// The log is mapped whole, however little of it is used; tables that took its room would find no memory.
#[test]
fn no_more_is_free_for_tables_than_is_mapped_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = in_memory(dir.path());
    let mapped = options.mapped_bytes(&options.tiers[0]);
    for opened in ["first", "again"] {
        let db = Db::open(&options).unwrap();
        let fast = &db.stats().tiers[0];
        let free = fast.capacity_bytes - fast.used_bytes;
        assert!(free <= mapped, "opened {opened}: {free} bytes free, {mapped} mapped");
        db.close().unwrap();
    }
}

#[test]
fn a_store_in_memory_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let second = Db::open(&options(dir.path())).unwrap_err();
    assert_eq!(*second.kind(), ErrorKind::Locked, "{second}");
    assert_eq!(db.get(key(1)).unwrap().as_deref(), Some(&[7; VALUE_BYTES][..]));
    db.close().unwrap();
    Db::open(&options(dir.path())).unwrap();
}

#[test]
fn floors_come_and_go_while_threads_write_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&options(dir.path())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..4u8 {
                    for i in (thread..4 * KEYS).step_by(4) {
                        db.put(key(i), [round; VALUE_BYTES]).unwrap();
                        // Of another's keys any round may be there.
                        let others = db.get(key(i.wrapping_mul(31) % (4 * KEYS))).unwrap();
                        assert!(others.is_none_or(|value| value.iter().all(|byte| *byte == value[0])));
                    }
                    let mine = (thread..4 * KEYS).step_by(4).map(|i| db.get(key(i)).unwrap().unwrap());
                    assert!(mine.into_iter().all(|value| value == [round; VALUE_BYTES][..]));
                }
            });
        }
    });
    assert!(db.stats().levels.iter().skip(1).any(|level| level.runs > 1), "{}", db.stats());
    assert_eq!(db.scan(Range::all()).unwrap().count() as u64, 4 * KEYS);
    db.close().unwrap();
}
