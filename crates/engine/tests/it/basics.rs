//! What the API promises, one promise a test.

use cuesta::{Batch, Create, Db, Durability, ErrorKind, Options, Profile, Question, Range, TierOptions, ask};
use cuesta_sched::{Priority, Sched};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

pub(crate) fn small(dir: &Path) -> Options {
    Options {
        memory_bytes: 8 * MIB,
        memtable_bytes: Some(64 << 10),
        table_bytes: 64 << 10,
        ..Options::tiered(
            TierOptions::fast(dir.join("fast"), 64 * MIB),
            TierOptions::capacity(dir.join("capacity"), 256 * MIB),
        )
    }
}

pub(crate) fn key(i: u64) -> Vec<u8> {
    format!("key{:06}", i.wrapping_mul(7919) % 100_000).into_bytes()
}

/// Tables of which are in persistent memory.
pub(crate) fn in_memory(dir: &Path) -> Options {
    Options { tiers: vec![TierOptions::memory(dir.join("memory"), 64 * MIB)], ..small(dir) }
}

#[test]
fn what_is_written_is_read_back_after_flushes_merges_and_reopens() {
    let dir = tempfile::tempdir().unwrap();
    reads_back(&small(dir.path()));
    let options = in_memory(dir.path());
    reads_back(&options);
    let dir = tempfile::tempdir().unwrap();
    reads_back(&Options {
        profile: Some(Profile::NvLsm),
        level_ratio: 3,
        floors_max: Some(4),
        ..in_memory(dir.path())
    });
    assert!(dir.path().join("memory/PMEM").metadata().unwrap().len() > 32 * MIB);
    let dir = tempfile::tempdir().unwrap();
    reads_back(&Options { profile: Some(Profile::NvLsm), level_ratio: 3, ..small(dir.path()) });
    let dir = tempfile::tempdir().unwrap();
    // Of which most goes down.
    let mut options = Options { profile: Some(Profile::PrismDb), ..small(dir.path()) };
    options.tiers[0].capacity_bytes = 2 * MIB;
    reads_back(&options);
}

fn reads_back(options: &Options) {
    let db = Db::open(options).unwrap();
    for i in 0..20_000u64 {
        db.put(key(i), [&i.to_le_bytes()[..], &[7; 60]].concat()).unwrap();
    }
    for i in (0..20_000).step_by(3) {
        db.delete(key(i)).unwrap();
    }
    let check = |db: &Db| {
        for i in 0..20_000u64 {
            let expected = (i % 3 != 0).then(|| i.to_le_bytes());
            let found = db.get(key(i)).unwrap();
            assert_eq!(found.as_deref().map(|v| &v[..8]), expected.as_ref().map(|e| &e[..]), "{i}");
        }
        let forward: Vec<_> = db.scan(Range::all()).unwrap().map(|pair| pair.unwrap().0).collect();
        assert_eq!(forward.len(), 13_333);
        assert!(forward.is_sorted());
        let mut backward: Vec<_> = db.scan(Range::all()).unwrap().rev().map(|pair| pair.unwrap().0).collect();
        backward.reverse();
        assert_eq!(forward, backward);
    };
    check(&db);
    db.wait_for_background().unwrap();
    check(&db);
    println!("{}", db.stats());
    db.close().unwrap();
    let db = Db::open(options).unwrap();
    check(&db);
    db.flush().unwrap();
    drop(db);
    let report = cuesta::verify(options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    check(&Db::open(options).unwrap());
}

#[test]
fn runs_of_level_0_lie_on_one_another_where_floors_do() {
    for (floors, trees) in [(Some(4), 1), (None, 1), (Some(1), 3)] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { profile: Some(Profile::NvLsm), floors_max: floors, ..in_memory(dir.path()) };
        let db = Db::open(&options).unwrap();
        for run in 0..3u8 {
            for i in 0..100 {
                db.put(key(i), [run]).unwrap();
            }
            db.flush().unwrap();
        }
        let check = |db: &Db| {
            let holdings = db.explain(key(7)).unwrap().holdings;
            let said = holdings.iter().map(|holding| holding.container.as_str());
            let level0: Vec<&str> = said.filter(|said| said.starts_with("level 0")).collect();
            let floor = |said: &str| said.split_once(", floor ").map(|(_, floor)| floor.to_owned());
            let floors: Vec<_> = level0.iter().map(|said| floor(said)).collect();
            let expected =
                if trees == 1 { ["3", "2", "1"].map(|n| Some(n.to_owned())) } else { [const { None }; 3] };
            assert_eq!(floors, expected, "{level0:?}");
            assert!(
                holdings.iter().filter(|h| h.container.starts_with("level 0")).all(|h| h.versions.len() == 1)
            );
            assert_eq!(db.get(key(7)).unwrap().as_deref(), Some(&[2][..]));
        };
        check(&db);
        drop(db);
        check(&Db::open(&options).unwrap());
    }
}

#[test]
fn indexes_of_runs_in_blocks_say_where_to_go_on_below() {
    for (profile, linked) in [(Profile::NvLsm, 2), (Profile::Fragmented, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&Options { profile: Some(profile), ..small(dir.path()) }).unwrap();
        for run in 0..3u8 {
            for i in 0..100 {
                db.put(key(i), [run]).unwrap();
            }
            db.flush().unwrap();
        }
        // Indexes are on the fast tier.
        let files = std::fs::read_dir(dir.path().join("fast")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let metas = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("meta-"));
        let mut said = Vec::new();
        for meta in metas {
            let mut text = String::new();
            cuesta::inspect(&meta, None, &mut text).unwrap();
            said.extend(text.lines().filter(|line| line.contains("goes on in table")).map(str::to_owned));
        }
        // The first run has nothing below.
        assert_eq!(said.len(), linked, "{said:?}");
        assert!((0..100).all(|i| db.get(key(i)).unwrap().as_deref() == Some(&[2][..])));
    }
}

#[test]
fn a_table_can_be_read_without_its_meta_part_but_for_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small(dir.path());
    options.tiers[0].compression = cuesta::Compression::Lz4;
    let db = Db::open(&options).unwrap();
    let mut noise = 1u64;
    let mut random = |bytes: usize| -> Vec<u8> {
        std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(bytes)
        .collect()
    };
    // Blocks that are packed, that are not, one of zeros and one that is long.
    (0..300).for_each(|i| assert!(db.put(key(i), b"over and over ".repeat(5)).is_ok()));
    (300..600).for_each(|i| assert!(db.put(key(i), random(70)).is_ok()));
    db.put(key(600), vec![0; 9_000]).unwrap();
    db.put(key(601), random(200_000)).unwrap();
    (602..700).for_each(|i| assert!(db.put(key(i), random(70)).is_ok()));
    db.flush().unwrap();
    db.close().unwrap();
    let parts = |kind: &str| -> Vec<std::path::PathBuf> {
        let dirs = ["fast", "capacity"].map(|tier| std::fs::read_dir(dir.path().join(tier)).unwrap());
        let files = dirs.into_iter().flatten().map(|file| file.unwrap().path());
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind)).collect()
    };
    let inspect = |path: &Path| {
        let mut text = String::new();
        let inspected = cuesta::inspect(path, None, &mut text);
        let entries: Vec<String> =
            text.lines().filter(|line| line.contains("key")).map(str::to_owned).collect();
        (entries, inspected)
    };
    let with_meta: Vec<_> = parts("data-").iter().map(|data| inspect(data).0).collect();
    assert_eq!(with_meta.iter().flatten().count(), 700);
    parts("meta-").iter().for_each(|meta| std::fs::remove_file(meta).unwrap());
    let mut missing = 0;
    for (data, with_meta) in parts("data-").iter().zip(&with_meta) {
        let (alone, inspected) = inspect(data);
        inspected.unwrap();
        assert_eq!(alone, *with_meta);
        // A bit of the first block, or the second.
        let mut bytes = std::fs::read(data).unwrap();
        let at = bytes.len().min(5_100) - 4_000;
        bytes[at] ^= 4;
        std::fs::write(data, bytes).unwrap();
        let (alone, inspected) = inspect(data);
        let error = inspected.unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("data-"), "{error}");
        assert!(alone.len() < with_meta.len() && alone.iter().all(|entry| with_meta.contains(entry)));
        missing += with_meta.len() - alone.len();
    }
    assert!(missing < 400, "{missing}");
}

#[test]
fn of_a_table_of_long_blocks_a_repair_gives_up_the_one_that_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options {
        memory_bytes: 64 * MIB,
        memtable_bytes: Some(4 * MIB),
        table_bytes: 2 * MIB,
        ..small(dir.path())
    };
    options.tiers[0].compression = cuesta::Compression::Lz4;
    let db = Db::open(&options).unwrap();
    // Packed, and longer than what is looked for behind damage where there is no index.
    (0..10).for_each(|i| assert!(db.put(key(i), b"over and over ".repeat(10_000)).is_ok()));
    db.flush().unwrap();
    db.close().unwrap();
    let files = std::fs::read_dir(dir.path().join("fast")).unwrap().map(|file| file.unwrap().path());
    let data =
        files.into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("data-"));
    let data = data.unwrap();
    let mut bytes = std::fs::read(&data).unwrap();
    // They take some hundred bytes each.
    bytes[1500] ^= 4;
    std::fs::write(&data, bytes).unwrap();
    let report = cuesta::repair(&options, cuesta::Repair::GiveUp(1), &mut |_| {}).unwrap();
    assert_eq!((report.versions_lost, report.damages.len(), report.left.len()), (1, 1, 0), "{report:?}");
    let db = Db::open(&options).unwrap();
    assert_eq!((0..10).filter(|i| db.get(key(*i)).unwrap().is_some()).count(), 9);
}

#[test]
fn batches_span_keyspaces_and_keyspaces_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    let db = Db::open(&options).unwrap();
    let (a, b) = (db.create_keyspace("a").unwrap(), db.create_keyspace("b").unwrap());
    assert_eq!(*db.create_keyspace("a").unwrap_err().kind(), ErrorKind::Exists);
    let mut batch = Batch::new();
    batch.put_in(&a, b"k", b"in a").put_in(&b, b"k", b"in b").put(b"k", b"default");
    let last = db.write(batch).unwrap();
    assert_eq!(last, 3);
    assert_eq!(a.get(b"k").unwrap().unwrap(), b"in a");
    assert_eq!(a.scan(Range::all()).unwrap().count(), 1);
    db.drop_keyspace("a").unwrap();
    assert_eq!(*a.get(b"k").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*a.put(b"k", b"late").unwrap_err().kind(), ErrorKind::NotFound);
    drop(db);
    let db = Db::open(&options).unwrap();
    assert_eq!(db.keyspaces().unwrap(), ["b"]);
    let again = db.create_keyspace("a").unwrap();
    assert_eq!(again.get(b"k").unwrap(), None);
    assert_eq!(db.keyspace("b").unwrap().unwrap().get(b"k").unwrap().unwrap(), b"in b");
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"default");
}

#[test]
fn a_snapshot_does_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    for i in 0..1000u64 {
        db.put(key(i), b"old").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    let mut scan = snapshot.scan(Range::all()).unwrap();
    for round in 0..20u64 {
        for i in 0..1000u64 {
            db.put(key(i), round.to_le_bytes().repeat(9)).unwrap();
        }
        db.delete(key(round)).unwrap();
        let pair = scan.next().unwrap().unwrap();
        assert_eq!(pair.1, b"old");
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    assert!((0..1000).all(|i| snapshot.get(key(i)).unwrap().unwrap() == b"old"[..]));
    assert_eq!(snapshot.scan(Range::all()).unwrap().count(), 1000);
    assert_eq!(scan.count(), 980);
}

#[test]
fn close_ends_snapshots_and_scans_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    db.put(b"a", b"1").unwrap();
    let (snapshot, mut scan) = (db.snapshot().unwrap(), db.scan(Range::all()).unwrap());
    let keyspace = db.create_keyspace("x").unwrap();
    db.close().unwrap();
    assert_eq!(*snapshot.get(b"a").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*scan.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*keyspace.put(b"a", b"b").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn limits_are_told_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    db.put(b"", b"").unwrap();
    assert_eq!(db.get(b"").unwrap().unwrap(), b"");
    let longest = vec![1; cuesta::KEY_BYTES_MAX];
    db.put(&longest, vec![2; MIB as usize]).unwrap();
    assert_eq!(db.get(&longest).unwrap().unwrap().len(), MIB as usize);
    for error in [
        db.put(vec![1; cuesta::KEY_BYTES_MAX + 1], b"").unwrap_err(),
        db.put(b"k", vec![0; MIB as usize + 1]).unwrap_err(),
        db.get(vec![1; cuesta::KEY_BYTES_MAX + 1]).unwrap_err(),
        db.create_keyspace("").unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(db.scan(Range::all()).unwrap().count(), 2);
}

#[test]
fn the_wrong_directories_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    let never = Options { create: Create::Never, ..options.clone() };
    assert_eq!(*Db::open(&never).unwrap_err().kind(), ErrorKind::NotFound);
    let db = Db::open(&options).unwrap();
    db.put(b"a", b"1").unwrap();
    assert_eq!(*Db::open(&options).unwrap_err().kind(), ErrorKind::Locked);
    db.close().unwrap();
    assert_eq!(
        *Db::open(&Options { create: Create::New, ..options.clone() }).unwrap_err().kind(),
        ErrorKind::Exists
    );

    let mut swapped = options.clone();
    swapped.tiers.reverse();
    assert_eq!(*Db::open(&swapped).unwrap_err().kind(), ErrorKind::Invalid);
    let mut missing = options.clone();
    missing.tiers[1].path = dir.path().join("elsewhere");
    assert!(Db::open(&missing).unwrap_err().is_corrupt());
    let mut emptied = options.clone();
    emptied.tiers[0].path = dir.path().join("empty");
    assert!(Db::open(&emptied).unwrap_err().is_corrupt());
    let mut one = options.clone();
    one.tiers.pop();
    assert_eq!(*Db::open(&one).unwrap_err().kind(), ErrorKind::Invalid);

    let mut other = small(&dir.path().join("other"));
    drop(Db::open(&other).unwrap());
    other.tiers[1].path.clone_from(&options.tiers[1].path);
    assert!(Db::open(&other).unwrap_err().is_corrupt());
    assert_eq!(Db::open(&options).unwrap().get(b"a").unwrap().unwrap(), b"1");
}

#[test]
fn what_walks_over_a_keyspace_that_is_dropped_does_not_end_as_if_that_were_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    let keyspace = db.create_keyspace("a").unwrap();
    (0..1000).for_each(|i| assert!(keyspace.put(key(i), [1; 50]).is_ok()));
    let snapshot = db.snapshot().unwrap();
    let mut scans =
        [keyspace.scan(Range::all()).unwrap(), snapshot.scan_in(&keyspace, Range::all()).unwrap()];
    scans.iter_mut().for_each(|scan| assert_eq!(scan.take(500).filter(Result::is_ok).count(), 500));
    db.drop_keyspace("a").unwrap();
    db.flush().unwrap();
    for scan in &mut scans {
        let error = scan.next().unwrap().unwrap_err();
        assert!(*error.kind() == ErrorKind::NotFound && error.to_string().contains("dropped"), "{error}");
    }
    assert_eq!(*snapshot.get_in(&keyspace, key(1)).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_manifest_of_a_store_that_is_opened_often_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    for i in 0..150 {
        let db = Db::open(&options).unwrap();
        db.put(key(i), [1; 100]).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    }
    let files = std::fs::read_dir(dir.path().join("fast")).unwrap().map(Result::unwrap);
    let manifests = files.filter(|file| file.file_name().to_string_lossy().starts_with("manifest-"));
    let bytes: u64 = manifests.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes < 64 << 10, "{bytes}");
}

#[test]
fn a_close_waits_neither_for_a_client_that_dawdles_nor_for_a_name_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let options = in_memory(dir.path());
    let db = Db::open(&options).unwrap();
    db.put(b"", b"of the empty key").unwrap();
    let socket = dir.path().join("memory/live.sock");
    let question = Question::Explain { keyspace: None, key: Vec::new() };
    assert!(ask(&dir.path().join("memory"), &question).unwrap().contains("memtable"));
    let mut stream = UnixStream::connect(&socket).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counts = sent.clone();
    let sched = Sched::real(1);
    let clock = sched.clone();
    let body = move || {
        while counts.fetch_add(1, Ordering::Relaxed) < 100 && stream.write_all(b"s").is_ok() {
            clock.sleep(Duration::from_millis(100));
        }
    };
    let dawdles = sched.spawn("dawdles", Priority::Normal, body).unwrap();
    while sent.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    std::fs::remove_file(&socket).unwrap();
    db.close().unwrap();
    assert!(sent.load(Ordering::Relaxed) < 90);
    dawdles.join();
    // Whoever answered had the store, and with it the lock of its memory.
    Db::open(&options).unwrap().close().unwrap();
}

#[test]
fn a_tier_restored_from_an_older_copy_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    Db::open(&options).unwrap().put(b"a", b"1").unwrap();
    for tier in 0..2 {
        let superblock = options.tiers[tier].path.join("CUESTA");
        let before = std::fs::read(&superblock).unwrap();
        Db::open(&options).unwrap().put(b"b", b"2").unwrap();
        let after = std::fs::read(&superblock).unwrap();
        std::fs::write(&superblock, before).unwrap();
        let error = Db::open(&options).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("older copy"), "{error}");
        std::fs::write(&superblock, after).unwrap();
        Db::open(&options).unwrap();
    }
}

#[test]
fn moved_paths_and_other_sizes_are_fine() {
    let dir = tempfile::tempdir().unwrap();
    let options = small(dir.path());
    let db = Db::open(&options).unwrap();
    (0..5000u64).for_each(|i| assert!(db.put(key(i), [1; 100]).unwrap() > 0));
    db.close().unwrap();
    let mut moved = options.clone();
    moved.tiers[0].path = dir.path().join("moved");
    moved.tiers[0].capacity_bytes = 32 * MIB;
    moved.memory_bytes = 32 * MIB;
    std::fs::rename(&options.tiers[0].path, &moved.tiers[0].path).unwrap();
    let db = Db::open(&moved).unwrap();
    assert!((0..5000).all(|i| db.get(key(i)).unwrap().is_some()));
}

#[test]
fn every_durability_survives_a_clean_close() {
    for durability in [
        Durability::Sync,
        Durability::Interval(std::time::Duration::from_millis(5)),
        Durability::Os,
        Durability::Unlogged,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability, ..small(dir.path()) };
        let db = Db::open(&options).unwrap();
        (0..300u64).for_each(|i| assert!(db.put(key(i), i.to_le_bytes()).unwrap() > 0));
        drop(db);
        let db = Db::open(&options).unwrap();
        assert!(
            (0..300).all(|i| db.get(key(i)).unwrap().is_some_and(|v| v == i.to_le_bytes()[..])),
            "{durability}"
        );
    }
}

#[test]
fn many_threads_write_and_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..3000u64 {
                    let key = [thread.to_be_bytes(), i.to_be_bytes()].concat();
                    db.put(&key, &key).unwrap();
                    assert_eq!(db.get(&key).unwrap().unwrap(), key);
                }
            });
        }
    });
    assert_eq!(db.scan(Range::all()).unwrap().count(), 12_000);
    assert_eq!(db.stats().sequence, 12_000);
}

#[test]
fn memory_for_memtables_that_are_not_there_is_the_cache_s() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: Some(MIB), ..small(dir.path()) };
    let open = || {
        let db = Db::open(&options).unwrap();
        let limit = db.stats().memory.cache_limit_bytes;
        // But for one, and half a one for what is not counted.
        assert!((6 * MIB..7 * MIB).contains(&limit), "{limit}");
        (db, limit)
    };
    let (db, limit) = open();
    db.put(b"key", b"value").unwrap();
    // One more while it is flushed, and for a while after.
    db.flush().unwrap();
    let less = limit - db.stats().memory.cache_limit_bytes;
    assert!((MIB / 2..MIB).contains(&less), "{less}");
    db.close().unwrap();
    open();
}

#[test]
fn the_cache_makes_way_for_memtables_where_nothing_is_read_either() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: Some(MIB), ..small(dir.path()) };
    let (keys, value) = (8_000, [7; 1000]);
    let db = Db::open(&options).unwrap();
    for i in 0..keys {
        db.put(key(i), value).unwrap();
    }
    db.close().unwrap();
    let db = Db::open(&options).unwrap();
    (0..keys).for_each(|i| assert!(db.get(key(i)).unwrap().is_some()));
    let before = db.stats().memory;
    // Nothing comes into the cache any more, and of what is in it nothing goes.
    db.put(b"key", b"value").unwrap();
    db.flush().unwrap();
    let after = db.stats().memory;
    assert!(after.cache_limit_bytes < before.cache_bytes, "{before:?}");
    assert!(after.cache_bytes <= after.cache_limit_bytes, "{after:?}");
}

#[test]
fn estimates_are_about_right() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    (0..20_000u64).for_each(|i| assert!(db.put(format!("{i:08}"), [1; 100]).unwrap() > 0));
    let half = db.approximate_len(&b"00000000"[..]..&b"00010000"[..]).unwrap();
    assert!((8_000..12_000).contains(&half), "{half}");
    let all = db.approximate_len(..).unwrap();
    assert!((19_000..21_000).contains(&all), "{all}");
    assert!(db.approximate_bytes(..).unwrap() > 1_000_000);
}

#[test]
fn cursors_seek_both_ways_within_their_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    for name in ["a", "b", "d", "e"] {
        db.put(name, name).unwrap();
    }
    let mut cursor = db.cursor(&b"b"[..]..=&b"d"[..]).unwrap();
    let here = |cursor: &cuesta::Cursor| cursor.entry().map(|(key, _)| key.to_vec());
    cursor.seek(b"a").unwrap();
    assert_eq!(here(&cursor), Some(b"b".to_vec()));
    cursor.seek(b"c").unwrap();
    assert_eq!(here(&cursor), Some(b"d".to_vec()));
    cursor.prev().unwrap();
    assert_eq!(here(&cursor), Some(b"b".to_vec()));
    cursor.prev().unwrap();
    assert_eq!(here(&cursor), None);
    cursor.seek_back(b"z").unwrap();
    assert_eq!(here(&cursor), Some(b"d".to_vec()));
    cursor.next().unwrap();
    assert_eq!(here(&cursor), None);
}

#[test]
fn the_ratios_follow_from_the_counters() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    let empty = db.stats().ratios();
    assert_eq!((empty.write_amplification, empty.space_amplification), (0.0, 0.0));
    for i in 0..4000u64 {
        db.put(i.to_be_bytes(), [i as u8; 200]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    (0..4000u64).step_by(40).for_each(|i| assert!(db.get(i.to_be_bytes()).unwrap().is_some()));
    let (stats, ratios) = (db.stats(), db.stats().ratios());
    // Everything is written twice at least: to the log and to a table.
    assert!(ratios.write_amplification > 1.5 && ratios.write_amplification < 20.0, "{stats}");
    assert!(ratios.space_amplification >= 1.0 && ratios.space_amplification < 2.0, "{stats}");
    assert!((ratios.reads_by_tier.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{stats}");
    assert!(ratios.index_bytes_per_entry > 1.0 && ratios.index_bytes_per_entry < 200.0, "{stats}");
    assert!(stats.to_string().contains("written per byte"));
}

#[test]
fn a_key_is_explained_container_by_container() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { level0_merge: 10, ..small(dir.path()) };
    let db = Db::open(&options).unwrap();
    (0..100).for_each(|i| assert!(db.put(key(i), [1; 100]).is_ok()));
    db.flush().unwrap();
    db.delete(key(7)).unwrap();
    db.flush().unwrap();
    let last = db.put(key(7), [2; 50]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();

    let db = Db::open(&options).unwrap();
    let told = db.explain(key(7)).unwrap();
    let versions: Vec<_> =
        told.holdings.iter().flat_map(|h| &h.versions).map(|v| (v.sequence, v.value_bytes)).collect();
    assert_eq!(versions, [(last, Some(50)), (last - 1, None), (8, Some(100))], "{told}");
    assert!(told.holdings[1].answers && !told.holdings[0].answers, "{told}");
    // Filter and index, as one read or two, and a block; nothing of tables that are not asked.
    assert!((1..=3).contains(&told.reads.iter().sum::<u64>()), "{told}");
    assert_eq!(db.get(key(7)).unwrap().unwrap().len(), 50);
    let told = db.explain(key(7)).unwrap();
    assert_eq!(told.reads, [0, 0]);
    let object = &told.holdings[1];
    assert!(
        object.container == "cached object" && object.answers && object.versions[0].sequence == last,
        "{told}"
    );
    let absent = db.explain(b"absent").unwrap();
    assert!(absent.holdings.iter().all(|h| h.versions.is_empty() && !h.answers), "{absent}");
    assert!(absent.to_string().contains("no container has the key"));
}

#[test]
fn a_store_of_many_tables_keeps_few_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { table_bytes: 64 << 10, open_tables_max: Some(8), ..small(dir.path()) };
    let db = Db::open(&options).unwrap();
    let key = |i: u64| format!("key{:06}", i * 7919 % 4000);
    for i in 0..4000 {
        db.put(key(i), vec![i as u8; 1000]).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 40, "{tables} tables");
    let path = dir.path().canonicalize().unwrap();
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
        targets
            .filter(|target| target.starts_with(&path))
            .filter(|target| {
                ["data-", "meta-"].iter().any(|kind| target.display().to_string().contains(kind))
            })
            .count()
    };
    for round in 0..3 {
        for i in 0..4000 {
            assert_eq!(db.get(key(i)).unwrap().unwrap(), vec![i as u8; 1000], "round {round}");
            assert!(i % 400 > 0 || open_files() <= 2 * 9, "{} files are open", open_files());
        }
    }
    assert_eq!(db.scan(Range::all()).unwrap().filter(|pair| pair.is_ok()).count(), 4000);
}

#[test]
fn what_was_counted_and_timed_is_there_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    let mine = db.create_keyspace("mine").unwrap();
    for i in 0..200u32 {
        mine.put(i.to_be_bytes(), b"value").unwrap();
        db.put(i.to_be_bytes(), b"value").unwrap();
    }
    db.flush().unwrap();
    for i in 0..200u32 {
        (0..2).for_each(|_| assert!(mine.get(i.to_be_bytes()).unwrap().is_some()));
    }
    let (before, asked, default) = (db.stats(), mine.stats(), db.default_keyspace().stats());
    assert_eq!((asked.gets, asked.written, default.written), (400, 200, 200));
    assert!(before.cache.objects.hits >= 200 && before.latencies.len() == 2, "{before}");
    db.close().unwrap();
    let db = Db::open(&small(dir.path())).unwrap();
    let after = db.stats();
    assert_eq!(db.keyspace("mine").unwrap().unwrap().stats(), asked);
    assert_eq!(db.default_keyspace().stats(), default);
    assert_eq!(
        (after.cache, after.latencies, after.answers),
        (before.cache, before.latencies, before.answers)
    );
}

#[test]
fn no_table_outgrows_its_room_for_a_long_value() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options { memory_bytes: 64 * MIB, table_bytes: MIB, ..Options::at(dir.path()) };
    options.tiers[0].compression = cuesta::Compression::None;
    options.memtable_bytes = Some(8 * MIB);
    let db = Db::open(&options).unwrap();
    // Before each long value lie 700 KiB of short ones.
    for i in 0..2100u64 {
        let bytes = if i % 700 == 699 { 2 * MIB as usize } else { 1000 };
        db.put(key(i), vec![1; bytes]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap());
    let data = files.filter(|file| file.file_name().to_string_lossy().starts_with("data-"));
    let bytes: Vec<u64> = data.map(|file| file.metadata().unwrap().len()).collect();
    let slack = MIB / 8 + (64 << 10);
    assert!(bytes.len() > 5 && bytes.iter().all(|bytes| *bytes <= 2 * MIB + slack), "{bytes:?}");
}
