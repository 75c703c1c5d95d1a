//! Writes that happen together.

use super::{Keyspace, Range, check_key};
use crate::engine::Engine;
use crate::engine::operations::Timed;
use crate::engine::write::Encoded;
use crate::error::{Error, Result};
use crate::format::coding::VARINT_BYTES_MAX;
use crate::key::{KeyspaceId, Kind};
use crate::log::put_entry;
use crate::options::Durability;
use crate::version::KeyspaceState;
use cuesta_device::ByteBuf;
use cuesta_sched::atomic::Ordering;
use std::sync::Arc;

/// What an entry takes in a payload besides key and value, at most.
const ENTRY_BYTES: usize = 1 + 3 * VARINT_BYTES_MAX;

/// Puts, deletes and deletes of ranges to be written with [`crate::Db::write`]: all of them or none. Of two writes to
/// one key the later counts.
///
/// Entries are encoded as they are added, in the form of the log: one copy, no allocation per entry.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    payload: ByteBuf,
    entries: u32,
    puts: bool,
    /// How many delete ranges, and bytes of their keys.
    ranges: (usize, usize),
    largest_value: usize,
    /// Besides the default one, and how many entries each has.
    keyspaces: Vec<(Arc<KeyspaceState>, u32)>,
    /// What was wrong with the first entry that was refused; told when the batch is written.
    refused: Option<Error>,
}

impl Batch {
    /// No writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives `key` a value.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add(Kind::Put, KeyspaceId::DEFAULT, key.as_ref(), value.as_ref())
    }

    /// Takes a key's value away.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(Kind::Delete, KeyspaceId::DEFAULT, key.as_ref(), &[])
    }

    /// Takes the values of all keys of a range away: what is put into it later, in this batch too, stays. Costs one
    /// entry, whatever the range has; its room comes back in the background. An empty range is no write.
    pub fn delete_range<'a>(&mut self, range: impl Into<Range<'a>>) -> &mut Self {
        self.add_range(KeyspaceId::DEFAULT, &range.into());
        self
    }

    /// Gives `key` of a keyspace a value.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.join(keyspace).add(Kind::Put, keyspace.id(), key.as_ref(), value.as_ref())
    }

    /// Takes the value of a keyspace's key away.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.join(keyspace).add(Kind::Delete, keyspace.id(), key.as_ref(), &[])
    }

    /// As [`Batch::delete_range`], of a keyspace.
    pub fn delete_range_in<'a>(&mut self, keyspace: &Keyspace, range: impl Into<Range<'a>>) -> &mut Self {
        if self.add_range(keyspace.id(), &range.into()) {
            self.join(keyspace);
        }
        self
    }

    /// How many writes.
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Bytes of keys and values, encoded.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    fn join(&mut self, keyspace: &Keyspace) -> &mut Self {
        if keyspace.id() != KeyspaceId::DEFAULT {
            match self.keyspaces.iter_mut().find(|(state, _)| state.id == keyspace.id()) {
                Some((_, entries)) => *entries += 1,
                None => self.keyspaces.push((keyspace.state().clone(), 1)),
            }
        }
        self
    }

    fn add(&mut self, kind: Kind, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> &mut Self {
        if let Err(error) = check_key(key) {
            self.refused.get_or_insert(error);
            return self;
        }
        self.largest_value = self.largest_value.max(value.len());
        self.payload.reserve(self.payload.len() + ENTRY_BYTES + key.len() + value.len());
        put_entry(&mut self.payload, kind, keyspace, key, value);
        self.entries += 1;
        self.puts |= kind == Kind::Put;
        self
    }

    /// Whether there was anything to add.
    fn add_range(&mut self, keyspace: KeyspaceId, range: &Range<'_>) -> bool {
        let bounds = match range.to_delete() {
            Ok(bounds) => bounds,
            Err(error) => {
                self.refused.get_or_insert(error);
                None
            }
        };
        let Some((from, to)) = bounds else { return false };
        self.payload.reserve(self.payload.len() + ENTRY_BYTES + from.len() + to.len());
        put_entry(&mut self.payload, Kind::RangeDelete, keyspace, &from, &to);
        self.entries += 1;
        self.ranges = (self.ranges.0 + 1, self.ranges.1 + from.len() + to.len());
        true
    }

    pub(super) fn commit(self, engine: &Engine, durability: Durability) -> Result<u64> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let options = &engine.options;
        let limit = options.value_bytes_max();
        if self.largest_value as u64 > limit {
            let n = self.largest_value;
            let why = format!("a value has at most {limit} bytes with this memory number; this one has {n}");
            return Err(Error::invalid(why));
        }
        let limit = options.batch_bytes_max();
        if self.payload.len() as u64 > limit {
            let n = self.payload.len();
            let why = format!("a batch has at most {limit} bytes with this memory number; this one has {n}");
            return Err(Error::invalid(why));
        }
        let Self { payload, entries, puts, ranges, keyspaces, .. } = &self;
        let encoded = Encoded { payload, entries: *entries, puts: *puts, ranges: *ranges, keyspaces };
        let timing = engine.operations.write();
        let last = engine.write(encoded, durability)?;
        engine.operations.end(Timed::Write, timing);
        engine.operations.wrote(self.payload.len() as u64);
        let mut rest = self.entries;
        for (state, entries) in &self.keyspaces {
            state.written.fetch_add(u64::from(*entries), Ordering::Relaxed);
            rest = rest.saturating_sub(*entries);
        }
        if rest > 0 {
            engine.default_keyspace.written.fetch_add(u64::from(rest), Ordering::Relaxed);
        }
        Ok(last.0)
    }
}
