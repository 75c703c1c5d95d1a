//! Stores in persistent memory, on files that are really mapped.

use crate::basics::{in_memory, key};
use cuesta::{Db, ErrorKind, Options, Profile, Range};
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
    // What is missing has come back as zeros.
    let db = Db::open(&options(dir.path())).unwrap();
    for i in 0..KEYS {
        let error = db.get(key(i)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
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
