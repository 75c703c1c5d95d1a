//! Row 15 of the table: the concurrent parts under shuttle, which runs a model again and again and at each lock, atomic
//! and device call chooses who goes on.
//!
//! Run by `scripts/interleavings`, which also sees the models of whole stores fail. Schedules are drawn from fixed
//! seeds; half of a model's are random, half favour a few changes of thread at chosen places (Burckhardt et al., "A
//! randomized scheduler with probabilistic guarantees of finding bugs", 2010). A failing schedule is printed, and
//! replayed by `shuttle::replay`. `CUESTA_SCHEDULES=n` runs n times as many. Shuttle knows no weak memory: orderings
//! are Miri's and ThreadSanitizer's to check.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use crate::cache::{Block, BlockKey, BlockSlice, Cache, PointRead};
use crate::key::{Cursor, Kind, Seq, Target, Trailer};
use crate::memtable::{MemCursor, MemTable};
use crate::range_tombstones::RangeTombstones;
use crate::{Db, Durability, ErrorKind, Options, Range, TierOptions, World};
use cuesta_device::sim::{SimConfig, SimDisk, Survival};
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::shuttle::scheduler::{PctScheduler, RandomScheduler};
use cuesta_sched::shuttle::{Config, Runner, thread};
use cuesta_sched::{Mutex, Rng, Sched};
use std::sync::Arc;

/// Runs `model` under so many schedules.
fn under_all(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let factor = std::env::var("CUESTA_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let half = (schedules * factor).div_ceil(2);
    Runner::new(RandomScheduler::new_from_seed(1, half), Config::new()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(1, 3, half), Config::new()).run(model);
}

fn put(seq: u64) -> Trailer {
    Trailer::new(Seq(seq), Kind::Put)
}

const PARTS: usize = 20_000;
const WHOLE: usize = 5_000;

#[test]
fn what_a_memtable_was_told_is_found_from_then_on() {
    under_all(PARTS, || {
        let (mut writer, table) = MemTable::new(3);
        let visible = Arc::new(AtomicU64::new(0));
        let seen = visible.clone();
        let reader = thread::spawn(move || {
            for _ in 0..3 {
                let seq = seen.load(Ordering::Acquire);
                for i in 1..=seq {
                    let found = table.get(&[i as u8 * 7 % 5], Trailer::read_at(Seq(seq)));
                    let (trailer, value) = found.unwrap_or_else(|| panic!("{i} of {seq} is missing"));
                    assert_eq!(value, [trailer.seq().0 as u8; 9]);
                }
            }
        });
        for seq in 1..=4 {
            writer.insert(&[seq as u8 * 7 % 5], put(seq), &[seq as u8; 9]);
            visible.store(seq, Ordering::Release);
        }
        reader.join().unwrap();
    });
}

/// Walks of a memtable that is being written, in the direction that `forward` says.
fn walk(forward: bool) {
    under_all(PARTS, move || {
        let (mut writer, table) = MemTable::new(5);
        (1..=3).for_each(|seq| writer.insert(&[seq as u8 * 10], put(seq), b"old"));
        let reader = thread::spawn(move || {
            let mut cursor = MemCursor::new(table);
            let (mut keys, mut old) = (Vec::new(), 0);
            cursor.go(if forward { Target::First } else { Target::Last }).unwrap();
            while let Some(entry) = cursor.entry() {
                keys.push((entry.key.to_vec(), std::cmp::Reverse(entry.trailer.seq())));
                old += usize::from(entry.value == b"old");
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
            }
            if !forward {
                keys.reverse();
            }
            assert!(keys.is_sorted(), "{keys:?}");
            assert_eq!(old, 3, "{keys:?}");
        });
        [25u8, 5, 35].iter().zip(4..).for_each(|(key, seq)| writer.insert(&[*key], put(seq), b"new"));
        reader.join().unwrap();
    });
}

#[test]
fn a_walk_forwards_beside_a_writer_is_sorted_and_misses_nothing_old() {
    walk(true);
}

#[test]
fn a_walk_backwards_beside_a_writer_is_sorted_and_misses_nothing_old() {
    walk(false);
}

#[test]
fn a_block_of_the_cache_stays_what_it_was_while_somebody_holds_it() {
    under_all(PARTS, || {
        let cache = Arc::new(Cache::new(64 << 10, 7));
        let work = |from: u64| {
            let cache = cache.clone();
            thread::spawn(move || {
                let mut held = Vec::new();
                for i in from..from + 12 {
                    let key = BlockKey { table: 1, at: i % 16 };
                    let block = cache.block(key).unwrap_or_else(|| {
                        let fill = |bytes: &mut [u8]| {
                            bytes.fill(key.at as u8);
                            Ok::<(), ()>(())
                        };
                        let block = Block::filled(64, fill).unwrap();
                        cache.keep_block(key, block.clone());
                        block
                    });
                    thread::yield_now();
                    assert!(block.iter().all(|byte| u64::from(*byte) == key.at));
                    held.push((key, block));
                    if held.len() > 3 {
                        let (key, block) = held.remove(0);
                        assert!(block.iter().all(|byte| u64::from(*byte) == key.at));
                    }
                }
            })
        };
        let threads = [work(0), work(5)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn options(durability: Durability) -> Options {
    let mut options = Options {
        tiers: vec![TierOptions::fast("fast", 64 << 20), TierOptions::capacity("capacity", 64 << 20)],
        memory_bytes: 8 << 20,
        memtable_bytes: Some(64 << 10),
        table_bytes: 64 << 10,
        level0_merge: 1,
        background_threads: 1,
        durability,
        seed: 1,
        ..Options::default()
    };
    options.tiers.iter_mut().for_each(|tier| tier.compression = crate::Compression::None);
    options
}

fn open(disk: &SimDisk, durability: Durability) -> Arc<Db> {
    let directories = (0..disk.tiers()).map(|tier| disk.directory(tier)).collect();
    let world = World { sched: Sched::real(1), directories };
    Arc::new(Db::open_in(&options(durability), world).unwrap())
}

fn disk() -> SimDisk {
    SimDisk::new(&Sched::real(1), 2, SimConfig::default())
}

/// What survives when nothing that was not synced does.
fn after_cut(disk: &SimDisk) -> SimDisk {
    disk.cut_now();
    disk.after_cut(Survival::None, &mut Rng::new(1))
}

#[test]
fn what_writers_that_share_syncs_were_told_is_durable_is() {
    under_all(WHOLE, || {
        let disk = disk();
        let db = open(&disk, Durability::Sync);
        let write = |who: u8| {
            let db = db.clone();
            thread::spawn(move || (0..2).for_each(|i| assert!(db.put([who, i], [who; 20]).is_ok())))
        };
        let threads = [write(1), write(2)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let image = after_cut(&disk);
        drop(db);
        let db = open(&image, Durability::Sync);
        for key in [[1, 0], [1, 1], [2, 0], [2, 1]] {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&[key[0]; 20][..]), "{key:?}");
        }
    });
}

#[test]
fn a_reader_beside_flushes_and_merges_sees_whole_batches_in_order() {
    under_all(WHOLE, || {
        let db = open(&disk(), Durability::Os);
        let theirs = db.clone();
        let writer = thread::spawn(move || {
            for i in 1..=3u8 {
                let mut batch = crate::Batch::new();
                batch.put(b"a", [i]).put(b"b", [i]);
                theirs.write(batch).unwrap();
                if i < 3 {
                    theirs.flush().unwrap();
                }
            }
        });
        let mut last = None;
        for _ in 0..3 {
            let snapshot = db.snapshot().unwrap();
            let pairs: Vec<_> = snapshot.scan(Range::all()).unwrap().map(|pair| pair.unwrap().1[0]).collect();
            let b = snapshot.get(b"b").unwrap().map(|value| value[0]);
            assert!(pairs.is_empty() || pairs.len() == 2 && pairs[0] == pairs[1], "{pairs:?}");
            assert_eq!(pairs.last().copied(), b);
            assert!(b >= last, "{b:?} after {last:?}");
            last = b;
        }
        writer.join().unwrap();
        assert_eq!(db.get(b"a").unwrap().as_deref(), Some(&[3][..]));
    });
}

#[test]
fn what_a_get_leaves_in_the_cache_is_never_used_once_it_is_old() {
    const KEY: &[u8] = b"key";
    under_all(PARTS, || {
        let sched = Sched::real(1);
        // A store as its readers see it: the memtable's version of the key and the table's.
        let current = Arc::new(Mutex::new(&sched, (None, 1u64)));
        let cache = Arc::new(Cache::new(1 << 20, 7));
        let get = {
            let (current, cache) = (current.clone(), cache.clone());
            move || {
                let noted = cache.flushes();
                let (in_memtable, in_table) = *current.lock();
                if let Some(seq) = in_memtable {
                    return seq;
                }
                if let Some(object) = cache.object(KEY, Seq::MAX) {
                    return u64::from(object.value()[0]);
                }
                thread::yield_now();
                let block = Block::filled(64, |bytes| {
                    bytes.fill(in_table as u8);
                    Ok::<(), ()>(())
                });
                let value = &BlockSlice::new(block.unwrap(), 0..9);
                let (seq, block, fresh) = (Seq(in_table), BlockKey { table: 1, at: 0 }, Some(noted));
                cache.keep_read(&PointRead { key: KEY, seq, value, block, was_cached: false, fresh });
                in_table
            }
        };
        let theirs = get.clone();
        let reader = thread::spawn(move || [theirs(), theirs()]);
        // Somebody moves what is there, as often as there is something else.
        let theirs = cache.clone();
        let mover = thread::spawn(move || {
            for _ in 0..2 {
                let object = theirs.object(KEY, Seq::MAX);
                thread::yield_now();
                object.iter().for_each(|object| theirs.relocate(object));
            }
        });
        for seq in 2..=4 {
            current.lock().0 = Some(seq);
            let (mut writer, memtable) = MemTable::new(3);
            writer.insert(KEY, put(seq), &[seq as u8]);
            // The last removes the object, the others renew it.
            let stays = |_: &[u8]| seq < 4;
            cache.flush(&mut MemCursor::new(memtable), &RangeTombstones::default(), &stays).unwrap();
            *current.lock() = (None, seq);
            assert_eq!(get(), seq, "right after its flush");
        }
        mover.join().unwrap();
        let seen = reader.join().unwrap();
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!((get(), get()), (4, 4), "after {seen:?}");
    });
}

#[test]
fn keyspaces_made_at_once_exist_once_and_for_good() {
    under_all(WHOLE, || {
        let disk = disk();
        let db = open(&disk, Durability::Os);
        let make = |names: [&'static str; 2]| {
            let db = db.clone();
            thread::spawn(move || {
                names.map(|name| db.create_keyspace(name).map(|_| ()).map_err(|e| e.kind().clone()))
            })
        };
        let threads = [make(["one", "both"]), make(["two", "both"])];
        let made = threads.map(|thread| thread.join().unwrap());
        assert!(made.iter().all(|[own, _]| own.is_ok()));
        let both: Vec<_> = made.iter().map(|[_, both]| both.clone()).collect();
        assert!(both.contains(&Ok(())) && both.contains(&Err(ErrorKind::Exists)), "{both:?}");
        let image = after_cut(&disk);
        drop(db);
        assert_eq!(open(&image, Durability::Os).keyspaces().unwrap(), ["both", "one", "two"]);
    });
}

#[test]
fn a_close_beside_a_writer_keeps_what_was_acknowledged() {
    under_all(WHOLE, || {
        let disk = disk();
        let db = open(&disk, Durability::Os);
        let theirs = db.create_keyspace("theirs").unwrap();
        let writer = thread::spawn(move || {
            let mut acknowledged = 0;
            for i in 0..3u8 {
                match theirs.put([i], [i]) {
                    Ok(_) => acknowledged += 1,
                    Err(error) => {
                        assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
                        break;
                    }
                }
            }
            acknowledged
        });
        Arc::into_inner(db).unwrap().close().unwrap();
        let acknowledged: u8 = writer.join().unwrap();
        let db = open(&after_cut(&disk), Durability::Os);
        let theirs = db.keyspace("theirs").unwrap().unwrap();
        (0..acknowledged)
            .for_each(|i| assert_eq!(theirs.get([i]).unwrap().as_deref(), Some(&[i][..]), "{i}"));
    });
}

/// The models see what they are for: run alone, since a bug is awake for the whole process.
#[cfg(feature = "planted")]
#[test]
fn planted_races_are_found() {
    use crate::planted::{Bug, wake};
    let hunts: [(Bug, fn()); 6] = [
        (Bug::AcknowledgedEarly, what_writers_that_share_syncs_were_told_is_durable_is),
        (Bug::PublishedEarly, a_reader_beside_flushes_and_merges_sees_whole_batches_in_order),
        (Bug::ObjectConfirmedBlindly, what_a_get_leaves_in_the_cache_is_never_used_once_it_is_old),
        (Bug::ObjectOutlivesFlush, what_a_get_leaves_in_the_cache_is_never_used_once_it_is_old),
        (Bug::ManifestSyncDropped, keyspaces_made_at_once_exist_once_and_for_good),
        (Bug::CloseSyncDropped, a_close_beside_a_writer_keeps_what_was_acknowledged),
    ];
    for (bug, model) in hunts {
        wake(Some(bug));
        let found = std::panic::catch_unwind(model).is_err();
        wake(None);
        assert!(found, "{bug:?} is not found");
    }
}
