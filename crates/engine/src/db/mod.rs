//! The public API: thin handles over the engine.
//!
//! A [`Db`] owns the store; [`Keyspace`], [`Snapshot`], [`Scan`] and [`Cursor`] hold on to it and answer `Closed`
//! once it is closed. Everything is `Send + Sync` (cursors: `Send`) and takes `&self`.

mod batch;
mod keyspace;
mod range;
mod scan;
mod snapshot;

pub use batch::Batch;
pub use keyspace::{Keyspace, KeyspaceStats};
pub use range::Range;
pub use scan::{Cursor, Scan};
pub use snapshot::Snapshot;

use crate::engine::Engine;
use crate::engine::explain::Explanation;
use crate::engine::open::{Locks, World};
use crate::engine::stats::Stats;
use crate::error::{Error, Result};
use crate::key::KEY_BYTES_MAX;
use crate::live::Live;
use crate::options::{Durability, Options};
use crate::tier::open_directories;
use crate::value::Value;
use crate::version::catalog::NAME_BYTES_MAX;
use cuesta_sched::Sched;
use std::sync::Arc;

/// An open store.
///
/// Dropping it closes it, without telling of an error; [`Db::close`] tells.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("cuesta-doc-{}", std::process::id()));
/// use cuesta::{Db, Options};
///
/// let db = Db::open(&Options::at(&dir))?;
/// db.put(b"ridge", b"steep")?;
/// assert_eq!(db.get(b"ridge")?.as_deref(), Some(&b"steep"[..]));
/// db.close()?;
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok::<(), cuesta::Error>(())
/// ```
#[derive(Debug)]
pub struct Db {
    engine: Arc<Engine>,
    default: Keyspace,
    /// Answers other processes; gone before the locks.
    live: Option<Live>,
    /// Let go last, when nothing writes any more.
    _locks: Locks,
}

impl Db {
    /// Opens the store that `options` describe; makes it first, if they say so.
    ///
    /// # Errors
    /// `Invalid` for options that do not add up, `NotFound`, `Exists`, `Locked`, `Unsupported` for a newer format,
    /// `Corrupt` for damaged, missing or foreign files, `Io`. Nothing that exists is changed before all of this has
    /// been checked; a log larger than a memtable fills new tables meanwhile, which nothing names after an error and
    /// the next open removes.
    pub fn open(options: &Options) -> Result<Self> {
        options.validate()?;
        let mut db = Self::open_in(options, world(options)?)?;
        db.live = Live::start(&db.engine, &options.tiers[0].path);
        Ok(db)
    }

    /// As [`Db::open`], in a world that is handed in: directories, threads, time and randomness.
    pub fn open_in(options: &Options, world: World) -> Result<Self> {
        let (engine, locks) = Engine::open(options.clone(), world)?;
        let default = Keyspace::new(engine.clone(), engine.default_keyspace.clone());
        Ok(Self { engine, default, live: None, _locks: locks })
    }

    /// What is behind it.
    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The value of `key`, if it has one. Without a copy where the cache has it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// The values of many keys, all as of one moment, in the keys' order.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.default.get_many(keys)
    }

    /// Gives `key` a value; returns the write's sequence number.
    ///
    /// # Errors
    /// `Invalid` for a key or value past its limit, `Full`, `ReadOnly`, `Closed`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64> {
        self.default.put(key, value)
    }

    /// Takes a key's value away; a key without one is fine.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.default.delete(key)
    }

    /// Takes the values of all keys of a range away, in one step: readers see all of them or none, and so does a crash
    /// leave them. What is put there later stays. Costs one entry in the log and no read, whatever the range has; its
    /// room comes back in the background, and whole tables go without being read. Takes every [`Range`] without a
    /// limit, as [`Db::scan`] does; an empty one is no write.
    ///
    /// # Errors
    /// As [`Db::put`], `Invalid` for a range with a limit, and `Full` while about 1,024 earlier ranges (or those that
    /// take a 64th of the memory number) cannot be worked off, mostly since older snapshots or iterators still see what
    /// they had.
    pub fn delete_range<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        self.default.delete_range(range)
    }

    /// Writes a batch: all of it or nothing, across keyspaces. Returns the number of its last entry.
    ///
    /// # Errors
    /// As [`Db::put`], and `Invalid` for a batch past [`Options::batch_bytes_max`].
    pub fn write(&self, batch: Batch) -> Result<u64> {
        self.write_with(batch, self.engine.options.durability)
    }

    /// As [`Db::write`], with a durability of its own. An interval that is shorter than the store's, or where the store
    /// has none, counts as [`Durability::Sync`].
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Result<u64> {
        batch.commit(&self.engine, durability)
    }

    /// The pairs of a range, in order, as of now.
    pub fn scan<'a>(&self, range: impl Into<Range<'a>>) -> Result<Scan> {
        self.default.scan(range)
    }

    /// A cursor within a range, as of now.
    pub fn cursor<'a>(&self, range: impl Into<Range<'a>>) -> Result<Cursor> {
        self.default.cursor(range)
    }

    /// A view of the store, all keyspaces, as it is now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.engine.check_open()?;
        Ok(Snapshot::new(&self.engine))
    }

    /// Makes a keyspace, durably, and opens it.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for an empty name or one of more than 255 bytes.
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message =
                format!("a keyspace's name has 1 to {NAME_BYTES_MAX} bytes; this one has {}", name.len());
            return Err(Error::invalid(message));
        }
        self.engine.check_writable()?;
        let id = self.engine.create_keyspace(name)?;
        let missing = || Error::internal(format!("keyspace {id} vanished while it was made"));
        self.keyspace(name)?.ok_or_else(missing)
    }

    /// Opens a keyspace; `None` if there is none of that name.
    pub fn keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.engine.check_open()?;
        let state = self.engine.catalog.lock().keyspaces.get(name).cloned();
        Ok(state.map(|state| Keyspace::new(self.engine.clone(), state)))
    }

    /// The default keyspace, which every call here without one means.
    pub fn default_keyspace(&self) -> &Keyspace {
        &self.default
    }

    /// Drops a keyspace and everything in it, durably. Its space is freed by merges; its name is free at once. Whoever
    /// walks over it, by a snapshot or not, gets `NotFound` from then on.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.drop_keyspace(name)
    }

    /// The names of all keyspaces but the default one, in order.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.engine.check_open()?;
        Ok(self.engine.catalog.lock().keyspaces.keys().cloned().collect())
    }

    /// Makes every acknowledged write durable, whatever its durability.
    pub fn sync(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.save()
    }

    /// Empties the memtables into tables.
    pub fn flush(&self) -> Result<()> {
        self.engine.seal_active()?;
        self.engine.wait_for_flush()
    }

    /// Waits until no flush and no merge is due or under way.
    pub fn wait_for_background(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.wait_for_background()
    }

    /// About how many keys a range has; old versions and tombstones not yet merged away count too.
    pub fn approximate_len<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        self.default.approximate_len(range)
    }

    /// About how many bytes a range takes on media.
    pub fn approximate_bytes<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        self.default.approximate_bytes(range)
    }

    /// What a read of `key` would meet: which container on which tier holds which versions, and which reads of media it
    /// would take now. Reads blocks, but leaves the cache as it is.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.default.explain(key)
    }

    /// The store in numbers.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Makes everything acknowledged durable, ends background work, and marks the store as closed cleanly.
    ///
    /// # Errors
    /// What could not be made durable, or the failure that had closed the store for writes before.
    pub fn close(mut self) -> Result<()> {
        self.live = None;
        self.engine.close()
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        drop(self.engine.close());
    }
}

/// The operating system's world for these options.
fn world(options: &Options) -> Result<World> {
    // Before anything is made.
    options.validate()?;
    let sched = Sched::real(random_seed());
    let directories = open_directories(&sched, options)?;
    Ok(World { sched, directories })
}

/// The one place where true randomness enters: the standard library's hash keys, which the system seeds.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

const fn assert_shared<T: Send + Sync>() {}
const _: () = {
    assert_shared::<Db>();
    assert_shared::<Keyspace>();
    assert_shared::<Snapshot>();
};

/// # Errors
/// `Invalid`, with the key's length.
fn check_key(key: &[u8]) -> Result<()> {
    match key.len() <= KEY_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "a key has at most {KEY_BYTES_MAX} bytes; this one has {}",
            key.len()
        ))),
    }
}
