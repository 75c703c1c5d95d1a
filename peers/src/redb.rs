//! redb, in one file.
//!
//! **What it is set to**: the memory number is its cache, since it has no other memory to speak of. Every write is a
//! transaction, as it must be where each is acknowledged by itself. For `os` a commit asks for no durability, and one
//! in a thousand for all of it: without these, redb cannot use freed pages again. For `sync` every commit is durable.

use crate::{only_tier, syncs};
use cuesta_bench::contender::{Contender, Setup};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
/// One commit in so many is durable where none need be.
const DURABLE_EVERY: u64 = 1000;

struct Redb {
    database: Database,
    sync: bool,
    commits: AtomicU64,
}

/// Opens it, or opens it again.
pub(crate) fn open(setup: &Setup) -> Result<Box<dyn Contender>, String> {
    let sync = syncs(setup)?;
    let tier = only_tier(setup)?;
    fs::create_dir_all(&tier.path).map_err(text)?;
    let mut builder = Database::builder();
    builder.set_cache_size(setup.memory_bytes as usize);
    let database = builder.create(tier.path.join("store")).map_err(text)?;
    let transaction = database.begin_write().map_err(text)?;
    transaction.open_table(RECORDS).map_err(text)?;
    transaction.commit().map_err(text)?;
    Ok(Box::new(Redb { database, sync, commits: AtomicU64::new(0) }))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

impl cuesta_bench::Store for Redb {
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
        let transaction = self.database.begin_read().map_err(text)?;
        let table = transaction.open_table(RECORDS).map_err(text)?;
        let value = table.get(key).map_err(text)?;
        see(value.as_ref().map(|value| value.value()));
        Ok(())
    }

    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut transaction = self.database.begin_write().map_err(text)?;
        let nth = self.commits.fetch_add(1, Ordering::Relaxed);
        let durable = self.sync || nth % DURABLE_EVERY == DURABLE_EVERY - 1;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        transaction.set_durability(durability).map_err(text)?;
        transaction.open_table(RECORDS).map_err(text)?.insert(key, value).map_err(text)?;
        transaction.commit().map_err(text)
    }

    fn scan(&self, key: &[u8], records: u64) -> Result<u64, String> {
        let transaction = self.database.begin_read().map_err(text)?;
        let table = transaction.open_table(RECORDS).map_err(text)?;
        let mut seen = 0;
        for pair in table.range(key..).map_err(text)?.take(records as usize) {
            pair.map_err(text)?;
            seen += 1;
        }
        Ok(seen)
    }
}

impl Contender for Redb {
    fn settings(&self) -> String {
        "redb".to_owned()
    }

    /// Pages by whether its cache had them: those above the records too, and those that writers look at on their way
    /// down.
    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.database.cache_stats();
        let named = [("blocks:cached", stats.read_hits()), ("blocks:read", stats.read_misses())];
        named.map(|(name, count)| (name.to_owned(), count)).into()
    }

    fn settle(&self) -> Result<(), String> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        let mut transaction = self.database.begin_write().map_err(text)?;
        transaction.set_durability(Durability::Immediate).map_err(text)?;
        transaction.commit().map_err(text)
    }
}
