use super::*;
use crate::key::Trailer;
use crate::memtable::{MemCursor, MemTable};

fn block(len: usize, byte: u8) -> Block {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok::<(), ()>(())
    };
    Block::filled(len, fill).unwrap()
}

fn at(at: u64) -> BlockKey {
    BlockKey { table: 1, at }
}

/// A read of `key` that found its version `seq` with `value` in the block at `place`.
fn read(cache: &Cache, key: &[u8], (seq, value): (u64, u8), place: u64, fresh: Option<Flushes>) {
    let value = BlockSlice::new(block(4000, value), 100..200);
    let block = at(place);
    let was_cached = cache.block_for_point(block).is_some_and(|(_, kept)| kept);
    cache.keep_read(&PointRead { key, seq: Seq(seq), value: &value, block, was_cached, fresh });
}

/// What a read at `at` finds: number and first byte.
fn found(cache: &Cache, key: &[u8], at: u64) -> Option<(u64, u8)> {
    cache.object(key, Seq(at)).map(|object| (object.seq().0, object.value()[0]))
}

#[test]
fn a_block_weighs_what_it_takes() {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(1);
        Ok::<(), ()>(())
    };
    let taken = |len| {
        let blocks = [block(len, 1), Block::filled_to_stay(len, fill).unwrap()];
        assert!(blocks.iter().all(|block| block.len() == len && block[len - 1] == 1));
        blocks.map(|block| block_weight(&block) - BLOCK_OVERHEAD_BYTES)
    };
    // In a frame, or on the heap where that is smaller and stays; on the heap; in pages.
    assert_eq!([1, 2048].map(taken), [[4096, 1], [4096, 2048]]);
    assert_eq!([2049, 4096].map(taken), [[4096; 2]; 2]);
    assert_eq!([4097, 65_535].map(taken), [[4097; 2], [65_535; 2]]);
    assert_eq!([65_536, 65_537].map(taken), [[65_536; 2], [69_632; 2]]);
}

#[test]
fn the_cache_stays_within_its_bytes() {
    let cache = Cache::new(1 << 20, 7);
    for n in 0..4000u64 {
        let len = if n % 7 == 0 { 20_000 } else { 4000 };
        cache.keep_block(at(n), block(len, n as u8));
        cache.keep_for_point(at(n), block(len, n as u8));
        read(&cache, &n.to_le_bytes(), (n, 1), n, Some(cache.flushes()));
        assert!(cache.bytes() <= 1 << 20);
    }
    assert!(cache.bytes() > 1 << 19);
}

#[test]
fn a_block_lives_on_for_those_who_hold_it() {
    let cache = Cache::new(1 << 20, 7);
    cache.keep_block(at(0), block(100, 5));
    let slice = BlockSlice::new(cache.block(at(0)).unwrap(), 10..20);
    (1..2000).for_each(|n| cache.keep_block(at(n), block(4000, 9)));
    assert_eq!(*slice, [5; 10]);
    assert_eq!(cache.block_hits(), HitCounts { hits: 1, misses: 0 });
}

#[test]
fn a_scan_does_not_empty_the_cache_of_what_is_used_again() {
    let cache = Cache::new(4 << 20, 7);
    let hot: Vec<_> = (0..200).map(at).collect();
    for _ in 0..5 {
        for key in &hot {
            if cache.block(*key).is_none() {
                cache.keep_block(*key, block(4000, 1));
            }
        }
    }
    for n in 0..20_000 {
        cache.keep_block(BlockKey { table: 2, at: n }, block(4000, 2));
    }
    let kept = hot.iter().filter(|key| cache.block(**key).is_some()).count();
    assert!(kept > 150, "{kept} of 200 hot blocks survived a scan");
}

#[test]
fn a_point_read_leaves_its_object_and_its_block_for_a_moment() {
    let cache = Cache::new(4 << 20, 7);
    cache.keep_for_point(at(0), block(4000, 1));
    read(&cache, b"key", (5, 1), 0, Some(cache.flushes()));
    assert_eq!(found(&cache, b"key", 9), Some((5, 1)));
    assert_eq!(found(&cache, b"key", 4), None, "a snapshot from before it");
    assert!(cache.block(at(0)).is_none() && cache.block_for_point(at(0)).is_some());
    (1..100).for_each(|n| cache.keep_for_point(at(n), block(4000, 1)));
    let last = (0..100).filter(|n| cache.has_block(at(*n))).count();
    assert!((1..=30).contains(&last), "{last} blocks are a 32nd of the budget");
    assert_eq!(found(&cache, b"key", 9), Some((5, 1)));
    assert_eq!(cache.object_hits(), HitCounts { hits: 2, misses: 1 });
}

#[test]
fn a_read_at_a_snapshot_and_one_of_a_long_value_leave_their_blocks() {
    let cache = Cache::new(4 << 20, 7);
    read(&cache, b"key", (5, 1), 0, None);
    assert!(found(&cache, b"key", 9).is_none() && cache.block(at(0)).is_some());
    let value = BlockSlice::new(block(4000, 1), 100..3600);
    let fresh = Some(cache.flushes());
    let read = PointRead { key: b"key", seq: Seq(5), value: &value, block: at(1), was_cached: false, fresh };
    cache.keep_read(&read);
    assert!(found(&cache, b"key", 9).is_none() && cache.block(at(1)).is_some());
}

#[test]
fn a_flush_renews_the_objects_of_its_keys_that_stay_and_removes_the_others_and_what_it_deletes() {
    let cache = Cache::new(4 << 20, 7);
    for key in [b"a", b"b", b"c", b"e"] {
        read(&cache, key, (1, 1), 0, Some(cache.flushes()));
    }
    let (mut writer, memtable) = MemTable::new(3);
    let put = |seq| Trailer::new(Seq(seq), Kind::Put);
    writer.insert(b"a", put(7), &[7]);
    writer.insert(b"a", put(8), &[8]);
    writer.insert(b"b", Trailer::new(Seq(9), Kind::Delete), b"");
    writer.insert(b"d", put(10), &[10]);
    writer.insert(b"e", put(11), &[11]);
    let stays = |key: &[u8]| key != b"e";
    cache.flush(&mut MemCursor::new(memtable), &RangeTombstones::default(), &stays).unwrap();
    assert_eq!(
        [b"a", b"b", b"c", b"d", b"e"].map(|key| found(&cache, key, 99)),
        [Some((8, 8)), None, Some((1, 1)), None, None]
    );
}

#[test]
fn what_was_read_before_a_flush_is_not_used_after_it() {
    let cache = Cache::new(4 << 20, 7);
    let noted = cache.flushes();
    // The reader is between its tables and the cache while a newer version comes into a table.
    let (mut writer, memtable) = MemTable::new(3);
    writer.insert(b"key", Trailer::new(Seq(7), Kind::Put), &[7]);
    cache.flush(&mut MemCursor::new(memtable), &RangeTombstones::default(), &|_| true).unwrap();
    read(&cache, b"key", (5, 5), 0, Some(noted));
    assert_eq!(found(&cache, b"key", 99), None);
    read(&cache, b"key", (7, 7), 0, Some(cache.flushes()));
    assert_eq!(found(&cache, b"key", 99), Some((7, 7)));
}

#[test]
fn pages_of_objects_go_as_blocks_displace_what_is_in_them() {
    let cache = Cache::new(4 << 20, 7);
    let key = |i: u64| format!("key{i:05}").into_bytes();
    for i in 0..12_000u64 {
        read(&cache, &key(i), (i + 1, i as u8), i << 16, Some(cache.flushes()));
    }
    let objects = || (0..12_000).filter(|i| cache.peek_object(&key(*i), Seq::MAX).is_some()).count();
    let most = objects();
    // Some of them are hot, so what goes lies here and there.
    (0..12_000).filter(|i| i * 7919 % 5 < 2).for_each(|i| _ = found(&cache, &key(i), u64::MAX));
    let held = |cache: &Cache| cache.bytes() + cache.pool.free_bytes();
    // Blocks that are asked for again displace some of them, here and there.
    for i in (20_000..20_600).chain(20_000..20_600) {
        cache.keep_block(at(i << 16), block(4096, 2));
        assert!(cache.block(at(i << 16)).is_some());
        assert!(held(&cache) <= 4 << 20, "{} bytes, {:?}", held(&cache), cache.pool);
    }
    let left = objects();
    assert!(left > 0 && left * 2 < most, "{left} of {most}");
    // Those that were moved are what they were.
    for i in 0..12_000 {
        assert!([None, Some((i + 1, i as u8))].contains(&found(&cache, &key(i), u64::MAX)));
    }
}

#[test]
fn an_object_that_was_moved_is_renewed_as_any_other() {
    let cache = Cache::new(4 << 20, 7);
    read(&cache, b"key", (5, 1), 0, Some(cache.flushes()));
    let before = cache.object(b"key", Seq::MAX).unwrap();
    cache.relocate(&before);
    let moved = cache.object(b"key", Seq::MAX).unwrap();
    assert!(!moved.is(&before) && moved.seq() == Seq(5) && moved.value() == before.value());
    let (mut writer, memtable) = MemTable::new(3);
    writer.insert(b"key", Trailer::new(Seq(7), Kind::Put), &[7]);
    cache.flush(&mut MemCursor::new(memtable), &RangeTombstones::default(), &|_| true).unwrap();
    // What it is no longer stays away.
    cache.relocate(&before);
    cache.relocate(&moved);
    assert_eq!(found(&cache, b"key", 99), Some((7, 7)));
    cache.relocate(&cache.object(b"key", Seq::MAX).unwrap());
    assert_eq!(found(&cache, b"key", 99), Some((7, 7)));
}

#[test]
fn what_others_take_costs_the_cache_as_much_and_little_more() {
    let memory = Memory::new(64 << 20, 0, 0);
    let cache = Cache::within(memory.clone(), 7);
    let mut rng = cuesta_sched::Rng::new(3);
    let value = BlockSlice::new(block(4000, 1), 0..1000);
    let mut leave = |cache: &Cache, key: u64| {
        let key = key.to_le_bytes();
        if cache.object(&key, Seq::MAX).is_none() {
            let fresh = Some(cache.flushes());
            let (block, was_cached) = (at(rng.below(1 << 40) << 1), false);
            cache.keep_read(&PointRead { key: &key, seq: Seq(1), value: &value, block, was_cached, fresh });
        }
    };
    // Some are hotter than others, so that what goes lies here and there.
    let mut keys = cuesta_sched::Rng::new(5);
    let skewed = |keys: &mut cuesta_sched::Rng| {
        let bits = 10 + keys.below(8);
        keys.below(1 << bits)
    };
    (0..400_000).for_each(|_| leave(&cache, skewed(&mut keys)));
    let before = cache.bytes();
    assert!(before > 50 << 20, "{before} bytes");
    let charge = memory.charge(Holder::Jobs, 4 << 20);
    (0..200).for_each(|i| leave(&cache, 1 << 30 | i));
    let lost = before - cache.bytes();
    assert!((3 << 20..10 << 20).contains(&lost), "{lost} bytes of {before} went for four mebibytes");
    // And the pages go with it.
    let held = cache.bytes() + cache.pool.free_bytes();
    assert!(!cache.pool.has_holes() && held <= 60 << 20, "{held} bytes, {:?}", cache.pool);
    drop(charge);
    (0..40_000).for_each(|_| leave(&cache, skewed(&mut keys)));
    assert!(cache.bytes() * 20 > before * 19, "{} of {before} bytes", cache.bytes());
}
