//! A named key space of its own.

use super::{Batch, Cursor, Range, Scan, check_key};
use crate::engine::Engine;
use crate::engine::explain::Explanation;
use crate::engine::iterate::{Hold, Walk};
use crate::error::Result;
use crate::key::{KeyspaceId, Seq};
use crate::value::Value;
use crate::version::KeyspaceState;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What a keyspace was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceStats {
    /// Keys looked up.
    pub gets: u64,
    /// Puts and deletes.
    pub written: u64,
}

/// A handle to a keyspace. Cheap to clone. Once the keyspace is dropped, every call answers `NotFound`.
#[derive(Clone, Debug)]
pub struct Keyspace {
    engine: Arc<Engine>,
    state: Arc<KeyspaceState>,
}

impl Keyspace {
    pub(super) fn new(engine: Arc<Engine>, state: Arc<KeyspaceState>) -> Self {
        Self { engine, state }
    }

    pub(super) fn id(&self) -> KeyspaceId {
        self.state.id
    }

    pub(super) fn state(&self) -> &Arc<KeyspaceState> {
        &self.state
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// As [`crate::Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_at(key.as_ref(), None)
    }

    pub(super) fn get_at(&self, key: &[u8], at: Option<Seq>) -> Result<Option<Value>> {
        self.state.check()?;
        check_key(key)?;
        self.state.gets.fetch_add(1, Ordering::Relaxed);
        // Keys of the usual size are put together on the stack: a get that hits the cache allocates nothing.
        let mut short = [0u8; 128];
        let id = self.state.id.0.to_be_bytes();
        let len = id.len() + key.len();
        let found = match short.get_mut(..len) {
            Some(whole) => {
                whole[..id.len()].copy_from_slice(&id);
                whole[id.len()..].copy_from_slice(key);
                self.engine.get(whole, at)
            }
            None => self.engine.get(&self.state.id.key(key), at),
        };
        // What is not there may have gone with the keyspace.
        self.state.check().and(found)
    }

    /// As [`crate::Db::explain`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.state.check()?;
        check_key(key.as_ref())?;
        self.engine.explain(&self.state.id.key(key.as_ref()))
    }

    /// As [`crate::Db::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.get_many_at(keys, None)
    }

    pub(super) fn get_many_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        at: Option<Seq>,
    ) -> Result<Vec<Option<Value>>> {
        self.state.check()?;
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        self.state.gets.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let keys: Vec<_> = keys.iter().map(|key| self.state.id.key(key.as_ref())).collect();
        let found = self.engine.get_many(&keys, at);
        self.state.check().and(found)
    }

    /// As [`crate::Db::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64> {
        let mut batch = Batch::new();
        batch.put_in(self, key, value);
        batch.commit(&self.engine, self.engine.options.durability)
    }

    /// As [`crate::Db::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        let mut batch = Batch::new();
        batch.delete_in(self, key);
        batch.commit(&self.engine, self.engine.options.durability)
    }

    /// As [`crate::Db::delete_range`].
    pub fn delete_range<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        let mut batch = Batch::new();
        batch.delete_range_in(self, range);
        batch.commit(&self.engine, self.engine.options.durability)
    }

    /// As [`crate::Db::scan`].
    pub fn scan<'a>(&self, range: impl Into<Range<'a>>) -> Result<Scan> {
        self.scan_at(range.into(), None)
    }

    pub(super) fn scan_at(&self, range: Range<'_>, hold: Option<Arc<Hold>>) -> Result<Scan> {
        self.state.check()?;
        self.engine.check_open()?;
        self.engine.operations.scanned();
        let hold = hold.unwrap_or_else(|| Hold::new(&self.engine));
        Ok(Scan::new(hold, self.state.clone(), range.in_keyspace(self.state.id), range.limit()))
    }

    /// As [`crate::Db::cursor`].
    pub fn cursor<'a>(&self, range: impl Into<Range<'a>>) -> Result<Cursor> {
        self.cursor_at(range.into(), None)
    }

    pub(super) fn cursor_at(&self, range: Range<'_>, hold: Option<Arc<Hold>>) -> Result<Cursor> {
        self.state.check()?;
        self.engine.check_open()?;
        self.engine.operations.scanned();
        let hold = hold.unwrap_or_else(|| Hold::new(&self.engine));
        let walk = Walk::new(hold, self.state.clone(), range.in_keyspace(self.state.id), range.limit());
        Ok(Cursor::new(walk, self.state.id))
    }

    /// What it was asked, since it was made.
    pub fn stats(&self) -> KeyspaceStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        KeyspaceStats { gets: read(&self.state.gets), written: read(&self.state.written) }
    }

    /// As [`crate::Db::approximate_len`].
    pub fn approximate_len<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        self.state.check()?;
        self.engine.approximate(&range.into().in_keyspace(self.state.id)).map(|(entries, _)| entries)
    }

    /// As [`crate::Db::approximate_bytes`].
    pub fn approximate_bytes<'a>(&self, range: impl Into<Range<'a>>) -> Result<u64> {
        self.state.check()?;
        self.engine.approximate(&range.into().in_keyspace(self.state.id)).map(|(_, bytes)| bytes)
    }
}
