//! What edits say and what opening a store does to its files, in order, as golden text. `UPDATE_EXPECT=1` rewrites it.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, Options};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::Sched;
use cuesta_sim::world;
use expect_test::{Expect, expect};

fn options() -> Options {
    let mut options = cuesta_sim::options(3, Durability::Os);
    options.tiers[0].capacity_bytes = 64 << 20;
    options
}

/// Runs `body` on a store on `disk`, with a scheduler of its own.
fn with_store(disk: &SimDisk, body: impl FnOnce(Db)) {
    let sched = Sched::simulated(2);
    let disk = disk.on(&sched);
    sched.run(|| body(Db::open_in(&options(), world(&sched, &disk, &options())).unwrap()));
}

fn new_disk() -> SimDisk {
    SimDisk::new(&Sched::simulated(2), 2, SimConfig { trace_ops: 1000, ..SimConfig::default() })
}

/// The manifest in words.
fn edits(disk: &SimDisk) -> String {
    let name =
        disk.files(0).into_iter().map(|file| file.name).find(|name| name.starts_with("manifest")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(&name), disk.read_file(0, &name)).unwrap();
    let mut text = String::new();
    cuesta::inspect(&dir.path().join(&name), None, &mut text).unwrap();
    let lines = text.lines().skip(1).map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// What an open of `disk` changes on it: operation, place, bytes and offset.
fn opening(disk: &SimDisk, expected: &Expect) {
    with_store(disk, |db| {
        let changes = ["Write", "Sync", "SyncDirectory", "Create", "Remove", "Rename", "SetLen"];
        let mut text = String::new();
        for asked in disk.trace() {
            // Without its number.
            let words: Vec<&str> = asked.split_whitespace().skip(1).collect();
            if changes.contains(&words[0]) {
                text += &(words.join(" ") + "\n");
            }
        }
        expected.assert_eq(&text);
        drop(db);
    });
}

#[test]
fn every_change_is_one_edit() {
    let disk = new_disk();
    with_store(&disk, |db| {
        for round in 0..4 {
            for i in 0..8 {
                db.put(format!("key{i}"), [round; 2000]).unwrap();
            }
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        db.create_keyspace("a").unwrap();
        db.create_keyspace("b").unwrap();
        db.drop_keyspace("a").unwrap();
        db.close().unwrap();
    });
    expect![[r#"
        edit, 80 bytes: log starts at 2, next file 3, last number #0, next keyspace 1, counters (0 bytes), times (0 bytes), profile leveled
        edit, 248 bytes: add to level 0 (age 5) #4[\x00\x00\x00\x00key0..\x00\x00\x00\x00key7 8 entries 8192 bytes], log starts at 3, next file 6, last number #8, counters (134 bytes), times (5 bytes), keyspace 0 was asked 0 gets and 8 writes, flushed up to #8
        edit, 248 bytes: add to level 0 (age 8) #7[\x00\x00\x00\x00key0..\x00\x00\x00\x00key7 8 entries 8192 bytes], log starts at 6, next file 9, last number #16, counters (138 bytes), times (5 bytes), keyspace 0 was asked 0 gets and 16 writes, flushed up to #16
        edit, 248 bytes: add to level 0 (age 11) #10[\x00\x00\x00\x00key0..\x00\x00\x00\x00key7 8 entries 8192 bytes], log starts at 9, next file 12, last number #24, counters (138 bytes), times (5 bytes), keyspace 0 was asked 0 gets and 24 writes, flushed up to #24
        edit, 248 bytes: add to level 0 (age 14) #13[\x00\x00\x00\x00key0..\x00\x00\x00\x00key7 8 entries 8192 bytes], log starts at 12, next file 15, last number #32, counters (138 bytes), times (5 bytes), keyspace 0 was asked 0 gets and 32 writes, flushed up to #32
        edit, 248 bytes: remove table 13, remove table 10, remove table 7, remove table 4, add to level 7 (age 0) #15[\x00\x00\x00\x00key0..\x00\x00\x00\x00key7 8 entries 8192 bytes], next file 16, last number #32, counters (143 bytes)
        edit, 64 bytes: create keyspace 1 "a", next file 16, last number #32, next keyspace 2
        edit, 64 bytes: create keyspace 2 "b", next file 16, last number #32, next keyspace 3
        edit, 64 bytes: drop keyspace 1, next file 16, last number #32
        edit, 208 bytes: last number #32, counters (143 bytes), times (5 bytes)
        end
    "#]].assert_eq(&edits(&disk));
}

#[test]
fn after_a_clean_close_an_open_goes_on_where_it_was() {
    let disk = new_disk();
    with_store(&disk, |db| {
        db.put(b"a", b"1").unwrap();
        db.close().unwrap();
    });
    opening(
        &disk.kill(),
        &expect![[r#"
            SyncDirectory tier 0 0 at 0
            SyncDirectory tier 1 0 at 0
            Write tier 0 CUESTA 4096 at 0
            Sync tier 0 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 4096
            Sync tier 0 CUESTA 0 at 0
            Write tier 1 CUESTA 4096 at 0
            Sync tier 1 CUESTA 0 at 0
            Write tier 1 CUESTA 4096 at 4096
            Sync tier 1 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 0
            Sync tier 0 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 4096
            Sync tier 0 CUESTA 0 at 0
            Sync tier 0 manifest-00000001 0 at 0
            Sync tier 0 log-00000002 0 at 0
        "#]],
    );
}

#[test]
fn after_a_kill_an_open_begins_log_and_manifest_anew() {
    let disk = new_disk();
    let mut killed = None;
    with_store(&disk, |db| {
        db.put(b"a", b"1").unwrap();
        killed = Some(disk.kill());
        drop(db);
    });
    opening(
        &killed.unwrap(),
        &expect![[r#"
            SyncDirectory tier 0 0 at 0
            SyncDirectory tier 1 0 at 0
            Write tier 0 CUESTA 4096 at 0
            Sync tier 0 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 4096
            Sync tier 0 CUESTA 0 at 0
            Write tier 1 CUESTA 4096 at 0
            Sync tier 1 CUESTA 0 at 0
            Write tier 1 CUESTA 4096 at 4096
            Sync tier 1 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 0
            Sync tier 0 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 4096
            Sync tier 0 CUESTA 0 at 0
            Create tier 0 manifest-00000003 0 at 0
            Write tier 0 manifest-00000003 64 at 0
            Write tier 0 manifest-00000003 65472 at 64
            Write tier 0 manifest-00000003 80 at 64
            Sync tier 0 manifest-00000003 0 at 0
            SyncDirectory tier 0 0 at 0
            Write tier 0 CUESTA 4096 at 0
            Sync tier 0 CUESTA 0 at 0
            Write tier 0 CUESTA 4096 at 4096
            Sync tier 0 CUESTA 0 at 0
            Create tier 0 log-00000004 0 at 0
            Write tier 0 log-00000004 64 at 0
            Sync tier 0 log-00000004 0 at 0
            SyncDirectory tier 0 0 at 0
            Write tier 0 log-00000004 262080 at 64
            Sync tier 0 log-00000004 0 at 0
            Write tier 0 manifest-00000003 64 at 144
            Sync tier 0 manifest-00000003 0 at 0
            Remove tier 0 log-00000002 0 at 0
            Remove tier 0 manifest-00000001 0 at 0
        "#]],
    );
}
