//! RocksDB, over two tiers by `db_paths`.
//!
//! **What it is set to**, for a fast tier of F bytes, a memory number of M, and nothing else known of the machine:
//! - The log is on the fast tier. Tables are read and written past the page cache; filters are Bloom's, of ten bits a
//!   key.
//! - Levels 0 to 2 have targets that fill half of F, so that whole levels lie there (a level goes to a path only if its
//!   whole target fits): with a factor of m between levels, level 1 is F / 2 (m + 2). Level 0 counts as much as level 1.
//!   Levels below are on the capacity tier. A path's size is no bound: targets of nine tenths, with the default
//!   triggers, took up to 1.8 F while the store was loaded. So writers are slowed at six files in level 0 or when half
//!   of F waits to be merged, and wait at eight files or all of F; that keeps within F.
//! - Memory: one cache of 70 percent of M, of which memtables (two of M/8), indexes and filters are a part; the rest is
//!   for what RocksDB does not charge to it: with 85 percent it held 1.15 times what Cuesta did, with 75 1.06, which is
//!   more than a comparison allows. The C library's allocator is told to keep one arena (the measuring process sets
//!   MALLOC_ARENA_MAX, for all contenders): with one for each thread RocksDB held 1.7 M. Index and filter blocks have
//!   priority, those of level 0 are pinned.
//! - Four background jobs, as it proposes for small machines; two subcompactions.
//! - No compression: values of the benchmark do not compress, and no contender compresses them.
//!
//! **Variants**, named after a colon, with commas or plus signs (`--against rocksdb:hyper+m4`): `lru` or `hyper` (the
//! cache), `row` (a fifth of the cache is a row cache), `m4`, `m8`, `m10` (the factor between levels); what is not
//! named is `lru` and `m4`. [`best`] says which is taken when none is named, by the sweep in `docs/benchmarks.md`.

use crate::syncs;
use cuesta_bench::Workload;
use cuesta_bench::contender::{Contender, Setup, devices_so_far};
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, Options, ReadOptions, WaitForCompactOptions,
    WriteBufferManager, WriteOptions, properties,
};
use std::collections::BTreeMap;

/// Which of the variants is best for a workload; by little in most.
fn best(workload: Workload) -> &'static str {
    match workload {
        Workload::Load | Workload::A => "hyper,row,m4",
        Workload::D => "lru,m8",
        Workload::E => "lru,m10",
        Workload::F => "hyper,m8",
        _ => "lru,m4",
    }
}

/// What is tried.
struct Variant {
    hyper_clock: bool,
    row_cache: bool,
    factor: u64,
}

impl Variant {
    fn parse(text: &str) -> Result<Self, String> {
        let mut variant = Self { hyper_clock: false, row_cache: false, factor: 4 };
        for word in text.split([',', '+']) {
            match word {
                "lru" => variant.hyper_clock = false,
                "hyper" => variant.hyper_clock = true,
                "row" => variant.row_cache = true,
                "m4" => variant.factor = 4,
                "m8" => variant.factor = 8,
                "m10" => variant.factor = 10,
                _ => {
                    return Err(format!("{word:?} is no variant; there are lru, hyper, row, m4, m8 and m10"));
                }
            }
        }
        Ok(variant)
    }
}

struct RocksDb {
    db: DB,
    /// Which count.
    options: Options,
    writes: WriteOptions,
    settings: String,
    scan_reads: bool,
    /// Whether it has a tier for its log and level 0, and another.
    tiered: bool,
    /// What the other tier was written before it was opened: devices count on, and its own counters begin anew.
    capacity_before: u64,
}

/// Of the memory number, what the caches have.
const CACHE_PERCENT: u64 = 70;
/// Of the fast tier, what the targets of levels 0 to 2 take.
const LEVELS_PERCENT: u64 = 50;
/// Files in level 0 at which it is merged, at which writers are slowed, and at which they wait.
const LEVEL0: [i32; 3] = [4, 6, 8];
/// Of the fast tier, the bytes waiting to be merged at which writers are slowed, and at which they wait.
const PENDING_PERCENT: [u64; 2] = [50, 100];

/// Refuses a variant that nobody knows; none at all is [`best`].
pub(crate) fn check(variant: &str) -> Result<(), String> {
    if variant.is_empty() { Ok(()) } else { Variant::parse(variant).map(drop) }
}

/// Opens it, or opens it again.
pub(crate) fn open(setup: &Setup, variant: &str) -> Result<Box<dyn Contender>, String> {
    let (fast, capacity) = match setup.tiers.as_slice() {
        [fast, capacity] => (fast, Some(capacity)),
        [only] => (only, None),
        tiers => return Err(format!("it knows two tiers, and was given {}", tiers.len())),
    };
    let variant = if variant.is_empty() { best(setup.workload) } else { variant };
    let Variant { hyper_clock, row_cache, factor } = Variant::parse(variant)?;
    let cache = if hyper_clock { "hyper" } else { "lru" };
    let settings = format!("rocksdb:{cache}{},m{factor}", if row_cache { ",row" } else { "" });
    let sync = syncs(setup)?;

    // On one tier its levels are as large as they would be on two.
    let fast_bytes = if capacity.is_some() { fast.bytes } else { setup.data_bytes / 5 };
    let (memory, levels) = (setup.memory_bytes, fast_bytes / 100 * LEVELS_PERCENT);
    let cache_bytes = memory / 100 * CACHE_PERCENT;
    let row_bytes = if row_cache { cache_bytes / 5 } else { 0 };
    let block_bytes = (cache_bytes - row_bytes) as usize;
    let cache = match hyper_clock {
        true => Cache::new_hyper_clock_cache(block_bytes, 0),
        false => Cache::new_lru_cache(block_bytes),
    };
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&cache);
    tables.set_bloom_filter(10.0, false);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_format_version(6);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    if row_cache {
        options.set_row_cache(&Cache::new_lru_cache(row_bytes as usize));
    }
    if let Some(capacity) = capacity {
        options.set_db_paths(&[
            DBPath::new(fast.path.join("tables"), levels).map_err(text)?,
            DBPath::new(capacity.path.join("tables"), capacity.bytes).map_err(text)?,
        ]);
    }
    options.set_wal_dir(fast.path.join("log"));
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_compression_type(DBCompressionType::None);
    let level_base = levels / (factor + 2);
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_max_bytes_for_level_base(level_base);
    options.set_max_bytes_for_level_multiplier(factor as f64);
    options.set_target_file_size_base((level_base / 4).clamp(1 << 20, 64 << 20));
    let buffer = (memory / 8).clamp(1 << 20, 64 << 20) as usize;
    options.set_write_buffer_size(buffer);
    options.set_max_write_buffer_number(2);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        2 * buffer,
        false,
        cache.clone(),
    ));
    options.set_max_background_jobs(4);
    options.set_max_subcompactions(2);
    options.set_max_open_files(-1);
    options.set_level_zero_file_num_compaction_trigger(LEVEL0[0]);
    options.set_level_zero_slowdown_writes_trigger(LEVEL0[1]);
    options.set_level_zero_stop_writes_trigger(LEVEL0[2]);
    options.set_soft_pending_compaction_bytes_limit((fast_bytes * PENDING_PERCENT[0] / 100) as usize);
    options.set_hard_pending_compaction_bytes_limit((fast_bytes * PENDING_PERCENT[1] / 100) as usize);

    // For the counters, and no more: by default each call is timed, too, and enters histograms.
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);

    let capacity_before = devices_so_far().map_or(0, |counts| counts.tiers[1].written_bytes);
    let db = DB::open(&options, fast.path.join("store")).map_err(text)?;
    let mut writes = WriteOptions::default();
    writes.set_sync(sync);
    Ok(Box::new(RocksDb {
        db,
        options,
        writes,
        settings,
        scan_reads: setup.workload == Workload::E,
        tiered: capacity.is_some(),
        capacity_before,
    }))
}

fn text(error: rocksdb::Error) -> String {
    error.to_string()
}

impl cuesta_bench::Store for RocksDb {
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
        let value = self.db.get_pinned(key).map_err(text)?;
        see(value.as_deref());
        Ok(())
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.db.put_opt(key, value, &self.writes).map_err(text)
    }

    fn scan(&self, key: &[u8], records: u64) -> Result<u64, String> {
        let mut options = ReadOptions::default();
        // Reads ahead by what the last scans took, and in the background where it can.
        options.set_auto_readahead_size(self.scan_reads);
        let mut pairs = self.db.raw_iterator_opt(options);
        pairs.seek(key);
        let mut seen = 0;
        while seen < records && pairs.item().is_some() {
            seen += 1;
            // What is behind the last one wanted may be in a block that nobody asked for.
            if seen < records {
                pairs.next();
            }
        }
        pairs.status().map_err(text)?;
        Ok(seen)
    }
}

impl Contender for RocksDb {
    fn settings(&self) -> String {
        self.settings.clone()
    }

    /// Gets by what answered them, blocks of tables' data by whether they were cached (those that merges ask for are
    /// among them), and bytes by cause; those written by tier, too, where devices are counted ([`by_tier`]). Of each
    /// level, reads of files and the time that merges into it took. What the row cache answers counts as its level's,
    /// too, and so stands apart.
    fn counters(&self) -> BTreeMap<String, u64> {
        let tickers = [
            ("found:memtables", Ticker::MemtableHit),
            ("found:level 0", Ticker::GetHitL0),
            ("found:level 1", Ticker::GetHitL1),
            ("found:levels from 2 on", Ticker::GetHitL2AndUp),
            ("rows:cached", Ticker::RowCacheHit),
            ("blocks:cached", Ticker::BlockCacheDataHit),
            ("blocks:read", Ticker::BlockCacheDataMiss),
            ("written:log", Ticker::WalFileBytes),
            ("written:flush", Ticker::FlushWriteBytes),
            ("written:merge", Ticker::CompactWriteBytes),
            ("read:merge", Ticker::CompactReadBytes),
        ];
        let ticker =
            |(name, ticker): (&str, Ticker)| (name.to_owned(), self.options.get_ticker_count(ticker));
        let mut all: BTreeMap<String, u64> = tickers.into_iter().map(ticker).collect();
        if let Some(counts) = devices_so_far().filter(|_| self.tiered) {
            by_tier(&mut all, counts.tiers[1].written_bytes.saturating_sub(self.capacity_before));
        }
        let property = |name| self.db.property_value(name).ok().flatten().unwrap_or_default();
        all.extend(reads_by_level(&property(properties::CF_FILE_HISTOGRAM)));
        all.extend(merges_by_level(&property(properties::CFSTATS_NO_FILE_HISTOGRAM)));
        all
    }

    fn settle(&self) -> Result<(), String> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(text)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db.wait_for_compact(&wait).map_err(text)
    }
}

/// Says of bytes written which tier they went to: log and flushes go to the first path, so what the other tier was
/// written is merges'.
fn by_tier(all: &mut BTreeMap<String, u64>, capacity_bytes: u64) {
    for cause in ["log", "flush", "merge"] {
        let bytes = all.remove(&format!("written:{cause}")).unwrap_or(0);
        let fast_bytes = if cause == "merge" { bytes.saturating_sub(capacity_bytes) } else { bytes };
        all.insert(format!("written:fast:{cause}"), fast_bytes);
    }
    all.insert("written:capacity:merge".to_owned(), capacity_bytes);
}

/// From lines like `** Level 1 read latency histogram (micros):` and `Count: 17 Average: ...` after each.
fn reads_by_level(text: &str) -> Vec<(String, u64)> {
    let (mut level, mut all) = (None, Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("** Level ") {
            level = rest.split_whitespace().next();
        } else if let (Some(number), Some(rest)) = (level, line.strip_prefix("Count: ")) {
            let count = rest.split_whitespace().next().and_then(|count| count.parse().ok());
            all.push((format!("files:level {number}"), count.unwrap_or(0)));
            level = None;
        }
    }
    all
}

/// From a table whose head has `Level` first and `Comp(sec)` somewhere; its `Size` is two words in the rows.
fn merges_by_level(text: &str) -> Vec<(String, u64)> {
    let mut column = None;
    let mut all = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"Level") {
            column = words.iter().position(|word| *word == "Comp(sec)");
        } else if words.first() == Some(&"Priority") {
            break;
        } else if let (Some(level), Some(column)) =
            (words.first().and_then(|word| word.strip_prefix('L')), column)
        {
            let seconds: Option<f64> = words.get(column + 1).and_then(|word| word.parse().ok());
            all.push((format!("merge_ms:level {level}"), (seconds.unwrap_or(0.0) * 1000.0) as u64));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_tier_was_written_is_merges() {
        let count = |(name, bytes): (&str, u64)| (name.to_owned(), bytes);
        let mut all: BTreeMap<String, u64> =
            [("written:log", 5), ("written:flush", 7), ("written:merge", 30), ("read:merge", 40)]
                .map(count)
                .into();
        by_tier(&mut all, 18);
        let told = [
            ("read:merge", 40),
            ("written:capacity:merge", 18),
            ("written:fast:flush", 7),
            ("written:fast:log", 5),
            ("written:fast:merge", 12),
        ];
        assert_eq!(all, told.map(count).into());
    }

    #[test]
    fn levels_are_read_from_what_it_prints() {
        let histogram = "\n** Level 0 read latency histogram (micros):\nCount: 12 Average: 3.1  StdDev: 1\n\n\
                         ** Level 3 read latency histogram (micros):\nCount: 400 Average: 391.0\n";
        let reads = reads_by_level(histogram);
        assert_eq!(reads, [("files:level 0".to_owned(), 12), ("files:level 3".to_owned(), 400)]);
        let table = "** Compaction Stats [default] **\nLevel    Files   Size     Score Read(GB) Comp(sec) Avg(sec)\n---\n  \
                     L0      2/0   45.67 MB   0.5      0.0       1.25      0.1\n  L3     10/2    1.20 GB   0.9      2.0       7.50      \
                     0.3\n Sum     12/2    1.25 GB   0.0      2.0       8.75      0.2\nPriority    Files   Size\n  Low      0/0    \
                     0.00 KB   0.0      2.0       7.50      0.3\n";
        let merges = merges_by_level(table);
        assert_eq!(merges, [("merge_ms:level 0".to_owned(), 1250), ("merge_ms:level 3".to_owned(), 7500)]);
    }
}
