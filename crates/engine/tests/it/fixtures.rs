//! A store as this format's first version wrote it, and twins of it with one thing wrong each.
//!
//! `fixtures/format-1` must stay readable from 0.1 on. Before that, `CUESTA_WRITE_FIXTURES=1 cargo test -p cuesta
//! fixtures` writes it anew after a change of the format.

use crate::basics::small;
use cuesta::{Db, ErrorKind, Options, Range};
use std::fs;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/format-1")
}

fn write(dir: &Path) {
    let options = Options { seed: 1, ..small(dir) };
    let db = Db::open(&options).unwrap();
    let space = db.create_keyspace("space").unwrap();
    db.create_keyspace("gone").unwrap();
    for i in 0..300 {
        db.put(format!("key{i:03}"), format!("value {i}")).unwrap();
    }
    space.put(b"in", b"space").unwrap();
    db.flush().unwrap();
    (0..300).step_by(2).for_each(|i| assert!(db.delete(format!("key{i:03}")).unwrap() > 0));
    db.drop_keyspace("gone").unwrap();
    db.close().unwrap();
    for tier in ["fast", "capacity"] {
        fs::remove_file(dir.join(tier).join("LOCK")).unwrap();
    }
}

/// A copy of the golden store, for one test.
fn copy() -> (tempfile::TempDir, Options) {
    if std::env::var_os("CUESTA_WRITE_FIXTURES").is_some() {
        drop(fs::remove_dir_all(golden()));
        write(&golden());
    }
    let dir = tempfile::tempdir().unwrap();
    for tier in ["fast", "capacity"] {
        fs::create_dir(dir.path().join(tier)).unwrap();
        for file in fs::read_dir(golden().join(tier)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), dir.path().join(tier).join(file.file_name())).unwrap();
        }
    }
    let options = small(dir.path());
    (dir, options)
}

/// The file of the fast tier whose name begins so.
fn file(dir: &Path, prefix: &str) -> PathBuf {
    let mut names = fs::read_dir(dir.join("fast")).unwrap().map(|file| file.unwrap().path());
    names.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).unwrap()
}

#[test]
fn the_golden_store_is_read() {
    let (_dir, options) = copy();
    assert_eq!(cuesta::verify(&options, &mut |_| {}).unwrap().problems, []);
    let db = Db::open(&options).unwrap();
    let keys: Vec<_> = db.scan(Range::all()).unwrap().map(|pair| pair.unwrap()).collect();
    assert_eq!(keys.len(), 150);
    for (key, value) in keys {
        let i: u32 = std::str::from_utf8(&key[3..]).unwrap().parse().unwrap();
        assert!(i % 2 == 1 && value == format!("value {i}").as_bytes());
    }
    assert_eq!(db.keyspaces().unwrap(), ["space"]);
    assert_eq!(db.keyspace("space").unwrap().unwrap().get(b"in").unwrap().unwrap(), b"space");
}

#[test]
fn each_damaged_twin_is_refused_by_name() {
    type Damage = fn(&Path);
    let twins: &[(&str, Damage, &str)] = &[
        ("a log cut short", |dir| cut(&file(dir, "log-")), "log-"),
        ("a manifest cut short", |dir| cut(&file(dir, "manifest-")), "manifest-"),
        ("a missing manifest", |dir| fs::remove_file(file(dir, "manifest-")).unwrap(), "manifest-"),
        ("a missing log", |dir| fs::remove_file(file(dir, "log-")).unwrap(), "log-"),
        ("a missing table", |dir| fs::remove_file(file(dir, "data-")).unwrap(), "data-"),
        ("a table cut short", |dir| cut(&file(dir, "data-")), "data-"),
        (
            "a log over the manifest",
            |dir| assert!(fs::copy(file(dir, "log-"), file(dir, "manifest-")).unwrap() > 0),
            "manifest-",
        ),
        (
            "a manifest over the log",
            |dir| assert!(fs::copy(file(dir, "manifest-"), file(dir, "log-")).unwrap() > 0),
            "log-",
        ),
        ("no superblock", |dir| fs::remove_file(dir.join("fast/CUESTA")).unwrap(), "CUESTA"),
        ("a superblock of noise", |dir| fs::write(dir.join("fast/CUESTA"), [7; 8192]).unwrap(), "CUESTA"),
        ("no capacity tier", |dir| fs::remove_dir_all(dir.join("capacity")).unwrap(), "CUESTA"),
    ];
    for (what, damage, named) in twins {
        let (dir, options) = copy();
        damage(dir.path());
        let error = Db::open(&options).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(named), "{what}: {error}");
    }
}

fn cut(path: &Path) {
    let len = fs::metadata(path).unwrap().len();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len - 64).unwrap();
}

#[test]
fn a_newer_format_is_refused_as_such() {
    for (name, at) in [("log-", 8), ("manifest-", 8), ("CUESTA", 8)] {
        let (dir, options) = copy();
        let path = file(dir.path(), name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = 2;
        if name == "CUESTA" {
            bytes[4096 + at] = 2;
        }
        fs::write(&path, bytes).unwrap();
        let error = Db::open(&options).unwrap_err();
        assert!(
            *error.kind() == ErrorKind::Unsupported && error.to_string().contains("format 2"),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_directory_that_is_no_store_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    fs::create_dir_all(dir.path().join("fast")).unwrap();
    fs::write(dir.path().join("fast/notes.txt"), "mine").unwrap();
    let never = Options { create: cuesta::Create::Never, ..options.clone() };
    fs::create_dir_all(dir.path().join("capacity")).unwrap();
    assert_eq!(*Db::open(&never).unwrap_err().kind(), ErrorKind::NotFound);
    drop(Db::open(&options).unwrap());
    assert_eq!(fs::read_to_string(dir.path().join("fast/notes.txt")).unwrap(), "mine");
    fs::write(dir.path().join("plain"), "").unwrap();
    let mut plain = options;
    plain.tiers[0].path = dir.path().join("plain");
    assert_eq!(*Db::open(&plain).unwrap_err().kind(), ErrorKind::Io);
}
