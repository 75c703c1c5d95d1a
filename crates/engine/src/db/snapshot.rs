//! The store as it was at one moment.

use super::{Cursor, Keyspace, Range, Scan};
use crate::engine::Engine;
use crate::engine::iterate::Hold;
use crate::error::Result;
use crate::key::KeyspaceId;
use crate::value::Value;
use crate::version::KeyspaceState;
use std::sync::Arc;

/// A repeatable view of all keyspaces. While it lives, merges keep what it sees, but for keyspaces that are dropped.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    hold: Arc<Hold>,
    default: Keyspace,
}

impl Snapshot {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        let default = Keyspace::new(engine.clone(), KeyspaceState::new(KeyspaceId::DEFAULT, "default"));
        Self { hold: Hold::new(engine), default }
    }

    /// Number of the last write that it sees.
    pub fn sequence(&self) -> u64 {
        self.hold.seq.0
    }

    /// As [`crate::Db::get`], as of then.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_in(&self.default, key)
    }

    /// As [`crate::Db::get_many`], as of then.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.default.get_many_at(keys, Some(self.hold.seq))
    }

    /// As [`crate::Db::scan`], as of then.
    pub fn scan<'a>(&self, range: impl Into<Range<'a>>) -> Result<Scan> {
        self.scan_in(&self.default, range)
    }

    /// As [`crate::Db::cursor`], as of then.
    pub fn cursor<'a>(&self, range: impl Into<Range<'a>>) -> Result<Cursor> {
        self.default.cursor_at(range.into(), Some(self.hold.clone()))
    }

    /// As [`Keyspace::get`], as of then.
    pub fn get_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        keyspace.get_at(key.as_ref(), Some(self.hold.seq))
    }

    /// As [`Keyspace::scan`], as of then.
    pub fn scan_in<'a>(&self, keyspace: &Keyspace, range: impl Into<Range<'a>>) -> Result<Scan> {
        keyspace.scan_at(range.into(), Some(self.hold.clone()))
    }
}
