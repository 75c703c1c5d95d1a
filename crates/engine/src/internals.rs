//! Single parts of the engine, for micro-benchmarks (`benches/parts.rs`). Compiled in by the feature `internals` only;
//! nothing here is promised to anyone.
//!
//! Each function sets a part up and returns a closure that does its operation once.

#![allow(missing_docs, reason = "named by what they measure")]

use crate::cache::{Block, BlockKey, BlockSlice, Cache, PointRead};
use crate::error::Result;
use crate::format::record::push_unsealed;
use crate::format::{Malformed, StoreId};
use crate::key::{Cursor, Entry, KeyspaceId, Kind, Seq, Target, Trailer, hash};
use crate::log::{LogWriter, NextLog};
use crate::memtable::{MemCursor, MemTable, MemTableWriter};
use crate::merge::Merge;
use crate::table::parts::{BlockBuilder, BlockCursor, build_filter, may_contain};
use cuesta_device::{ByteBuf, FileDirectory};
use cuesta_sched::Rng;
use std::path::Path;
use std::sync::Arc;

const VALUE: [u8; 100] = [7; 100];

fn key(i: u64) -> Vec<u8> {
    KeyspaceId::DEFAULT.key(format!("user{i:019}").as_bytes())
}

fn put(seq: u64) -> Trailer {
    Trailer::new(Seq(seq), Kind::Put)
}

/// The cache, without a store around it: what would gets and scans of records in blocks find?
#[derive(Debug)]
pub struct CacheTrial {
    cache: Cache,
}

impl CacheTrial {
    pub fn new(bytes: u64) -> Self {
        Self { cache: Cache::new(bytes, 1) }
    }

    fn read(len: usize) -> Block {
        Block::filled::<Malformed>(len, |_| Ok(())).unwrap_or_else(|why| panic!("{why}"))
    }

    /// A get of a value that lies in block `number`, of `block_bytes`: whether it needs no read.
    pub fn get(&self, key: &[u8], value_bytes: usize, number: u64, block_bytes: usize) -> bool {
        let noted = self.cache.flushes();
        if self.cache.object(key, Seq::MAX).is_some() {
            return true;
        }
        let block = BlockKey { table: 1, at: number };
        let found = self.cache.block_for_point(block);
        let hit = found.is_some();
        let (data, was_cached) = found.unwrap_or_else(|| {
            let data = Self::read(block_bytes);
            self.cache.keep_for_point(block, data.clone());
            (data, false)
        });
        let value = &BlockSlice::new(data, 0..value_bytes);
        let fresh = Some(noted);
        self.cache.keep_read(&PointRead { key, seq: Seq(1), value, block, was_cached, fresh });
        hit
    }

    /// A scan reads block `number`.
    pub fn scan(&self, number: u64, block_bytes: usize) {
        let block = BlockKey { table: 1, at: number };
        if self.cache.block(block).is_none() {
            self.cache.keep_block(block, Self::read(block_bytes));
        }
    }
}

/// A seek to a random key of a data block of 4 KiB.
pub fn block_search() -> impl FnMut() -> bool {
    let mut builder = BlockBuilder::default();
    let mut keys = Vec::new();
    while builder.len() < 4096 - 200 {
        keys.push(key(keys.len() as u64 * 3));
        builder.add(Entry { key: &keys[keys.len() - 1], trailer: put(1), value: &VALUE });
    }
    let bytes = builder.finish().to_vec();
    let block = Block::filled(bytes.len(), |out| {
        out.copy_from_slice(&bytes);
        Ok::<(), Malformed>(())
    });
    let mut cursor = block.and_then(BlockCursor::new).unwrap_or_else(|why| panic!("{why}"));
    let mut rng = Rng::new(1);
    move || {
        let target = Target::AtOrAfter(&keys[rng.below(keys.len() as u64) as usize], Trailer::FIRST);
        cursor.go(target).is_ok() && cursor.entry().is_some()
    }
}

/// A look into a filter of 14 bits a key for 4,000 keys.
pub fn filter_probe() -> impl FnMut() -> bool {
    let hashes: Vec<u64> = (0..4000).map(|i| hash(&key(i * 2))).collect();
    let filter = build_filter(&hashes, 14);
    let keys: Vec<_> = (0..8000).map(key).collect();
    let mut rng = Rng::new(1);
    move || may_contain(&filter, hash(&keys[rng.below(8000) as usize])).unwrap_or(true)
}

const MEMTABLE_ENTRIES: u64 = 100_000;

fn filled() -> (MemTableWriter, Arc<MemTable>) {
    let (mut writer, table) = MemTable::new(1);
    for i in 0..MEMTABLE_ENTRIES {
        writer.insert(&key(i * 7919 % MEMTABLE_ENTRIES), put(i + 1), &VALUE);
    }
    (writer, table)
}

/// A get from a memtable of 100,000 entries.
pub fn memtable_get() -> impl FnMut() -> bool {
    let (_, table) = filled();
    let keys: Vec<_> = (0..MEMTABLE_ENTRIES).map(key).collect();
    let mut rng = Rng::new(1);
    move || table.get(&keys[rng.below(MEMTABLE_ENTRIES) as usize], Trailer::FIRST).is_some()
}

/// An insert into a memtable of 100,000 to 200,000 entries.
pub fn memtable_insert() -> impl FnMut() {
    let (mut writer, _) = filled();
    let mut rng = Rng::new(1);
    let mut seq = MEMTABLE_ENTRIES;
    move || {
        seq += 1;
        if seq > 2 * MEMTABLE_ENTRIES {
            (writer, _) = filled();
            seq = MEMTABLE_ENTRIES + 1;
        }
        writer.insert(&key(rng.below(1 << 40)), put(seq), &VALUE);
    }
}

/// An append of one record with `payload_bytes` to a log under `dir`, without a sync; a new file every 64 MiB.
pub fn log_append(dir: &Path, payload_bytes: usize) -> Result<impl FnMut() -> bool + use<>> {
    const FILE_BYTES: u64 = 64 << 20;
    let fail = |source| crate::error::Error::io("open the directory", source);
    let directory = FileDirectory::open(dir).map_err(fail)?;
    let prepare = move |number, old| {
        NextLog::prepare(&directory, &|device| device, StoreId(1), number, (old, FILE_BYTES))
    };
    let mut log = LogWriter::start(StoreId(1), prepare(1, None)?);
    let mut group = ByteBuf::default();
    push_unsealed(&mut group, &vec![7; payload_bytes]);
    let mut seq = 0;
    Ok(move || {
        seq += 1;
        let end = log.end();
        if end.offset > FILE_BYTES {
            let rotated =
                prepare(end.file + 1, (end.file > 1).then(|| end.file - 1)).and_then(|next| log.rotate(next));
            if rotated.is_err() {
                return false;
            }
        }
        log.append(&mut group, std::iter::once(((Seq(seq), 1), payload_bytes))).is_ok()
    })
}

/// A step of a merge of `ways` memtables of 10,000 entries each.
pub fn merge_step(ways: u64) -> impl FnMut() -> bool {
    let source = |i: u64| {
        let (mut writer, table) = MemTable::new(i);
        (0..10_000).for_each(|j| writer.insert(&key(j * ways + i), put(1), &VALUE));
        MemCursor::new(table)
    };
    let mut merge = Merge::new((0..ways).map(source).collect());
    move || match merge.entry() {
        Some(_) => merge.next().is_ok(),
        None => merge.go(Target::First).is_ok(),
    }
}
