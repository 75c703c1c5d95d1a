//! fjall, in one directory.
//!
//! **What it is set to**: it reads and writes through the page cache, so of the memory number a quarter is its own
//! cache, as its documentation proposes, an eighth is for memtables, and the rest is the page cache's, which is given
//! half of the number where devices are modelled. Filters of ten bits a key and no compression, as everywhere. `os` is
//! its default: a write is handed to the system before it returns; `sync` asks for a sync of the journal after each
//! write.

use crate::{only_tier, syncs};
use cuesta_bench::contender::{Contender, Setup};
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::collections::BTreeMap;
use std::time::Duration;

struct Fjall {
    // Dropped before the database it belongs to.
    records: Keyspace,
    database: Database,
    sync: bool,
}

/// Opens it, or opens it again.
pub(crate) fn open(setup: &Setup) -> Result<Box<dyn Contender>, String> {
    let sync = syncs(setup)?;
    let tier = only_tier(setup)?;
    let builder =
        Database::builder(tier.path.join("store")).cache_size(setup.memory_bytes / 4).worker_threads(2);
    let database = builder.open().map_err(text)?;
    let bits = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    let options = || {
        KeyspaceCreateOptions::default()
            .filter_policy(FilterPolicy::all(bits))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .max_memtable_size((setup.memory_bytes / 16).max(1 << 20))
    };
    let records = database.keyspace("records", options).map_err(text)?;
    Ok(Box::new(Fjall { records, database, sync }))
}

fn text(error: fjall::Error) -> String {
    error.to_string()
}

impl cuesta_bench::Store for Fjall {
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
        let value = self.records.get(key).map_err(text)?;
        see(value.as_deref());
        Ok(())
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.records.insert(key, value).map_err(text)?;
        if self.sync {
            self.database.persist(PersistMode::SyncData).map_err(text)?;
        }
        Ok(())
    }

    fn scan(&self, key: &[u8], records: u64) -> Result<u64, String> {
        let mut seen = 0;
        for pair in self.records.range(key..).take(records as usize) {
            pair.into_inner().map_err(text)?;
            seen += 1;
        }
        Ok(seen)
    }
}

impl Contender for Fjall {
    fn settings(&self) -> String {
        "fjall".to_owned()
    }

    /// Blocks of tables' data by whether its own cache had them; the page cache may have had the others.
    fn counters(&self) -> BTreeMap<String, u64> {
        let metrics = self.records.metrics();
        let (all, cached) = (metrics.data_block_load_count(), metrics.data_block_load_cached_count());
        let named = [("blocks:cached", cached), ("blocks:read", all.saturating_sub(cached))];
        named.map(|(name, count)| (name.to_owned(), count as u64)).into()
    }

    fn settle(&self) -> Result<(), String> {
        // It has no call for that; idle twice in a row is idle. Who settles is measured, so it waits no longer.
        let mut idle = 0;
        loop {
            let busy = self.database.outstanding_flushes() + self.database.active_compactions();
            idle = if busy == 0 { idle + 1 } else { 0 };
            if idle == 2 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.database.persist(PersistMode::SyncAll).map_err(text)
    }
}
