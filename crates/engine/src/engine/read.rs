//! Point reads: from the top, stopping at the first container that has a version the reader may see.
//!
//! A cached `get` takes no lock that a writer takes and makes no system call: one atomic load of `current`, one of
//! `visible`, a search in each memtable, a lookup among the cached objects, then per table a look into its filter and,
//! where that says yes, its index and one block, all through the cache. A value found in the cache is handed out as a
//! reference; one found in a memtable is copied, the one allocation, since it would pin the whole arena. A value found
//! in a table is remembered as the cache sees fit (`cache`): as an object, two allocations and a copy, or by its block.
//!
//! What a range tombstone covers is as if its key were deleted, wherever it is found; nor does the cache come to know
//! it, which would outlive the tombstone.

use super::iterate::KeyRange;
use super::operations::{BY_LEVEL_0, BY_MEMTABLES, BY_NOTHING, BY_OBJECTS, BY_STORE, Timed};
use super::{Current, Engine};
use crate::cache::{Flushes, PointRead};
use crate::error::{Error, Result};
use crate::key::{Cursor, Entry, Kind, Seq, Target, Trailer};
use crate::memtable::MemCursor;
use crate::planted::{self, Bug};
use crate::table::{FoundIn, Link};
use crate::tracker::Seen;
use crate::value::Value;
use crate::version::TableHandle;
use std::sync::Arc;

/// Entries of a memtable that an estimate looks at.
const WALK_MAX: usize = 10_000;
/// Slots that one looks at.
const SAMPLE: u64 = 16;

/// What a container says of a key.
enum Answer {
    Value(Value),
    Deleted,
}

impl Answer {
    fn value(self) -> Option<Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Deleted => None,
        }
    }
}

impl Engine {
    /// The newest value of `key` (with its keyspace) at or below `at`, or as of now.
    pub(crate) fn get(&self, key: &[u8], at: Option<Seq>) -> Result<Option<Value>> {
        self.check_open()?;
        let noted = at.is_none().then(|| self.tables.cache.flushes());
        let current = self.current.load();
        // After `current`: see the module's head of the engine.
        let mut seq = at.unwrap_or_else(|| self.visible());
        if planted::has(Bug::ReadOneTooLow) {
            seq = Seq(seq.0.saturating_sub(1));
        }
        let timing = self.operations.get();
        let found = self.find(&current, key, Trailer::read_at(seq), noted);
        if timing.is_timed() {
            self.watch_reads(&current);
        }
        self.operations.end(Timed::Get, timing);
        found
    }

    /// As [`Engine::get`] for many keys, all at one number.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>], at: Option<Seq>) -> Result<Vec<Option<Value>>> {
        self.check_open()?;
        let noted = at.is_none().then(|| self.tables.cache.flushes());
        let current = self.current.load_full();
        let seq = at.unwrap_or_else(|| self.visible());
        // In key order, neighbours share blocks while these are still in the cache.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|a, b| keys[*a].cmp(&keys[*b]));
        let mut found = vec![None; keys.len()];
        for i in order {
            let timing = self.operations.get();
            found[i] = self.find(&current, &keys[i], Trailer::read_at(seq), noted)?;
            if timing.is_timed() {
                self.watch_reads(&current);
            }
            self.operations.end(Timed::Get, timing);
        }
        Ok(found)
    }

    /// About how many entries a range has, and how many bytes they take: of tables by their top indexes, without I/O
    /// once they are open; of memtables by a walk of at most [`WALK_MAX`] entries.
    pub(crate) fn approximate(&self, range: &KeyRange) -> Result<(u64, u64)> {
        self.check_open()?;
        let current = self.current.load_full();
        let (mut entries, mut bytes) = (0.0, 0.0);
        let guards = current.version.levels.iter().flat_map(|level| &level.guards);
        for handle in guards.flat_map(|guard| guard.tops()).flat_map(|run| &run.tables) {
            if range.touches(handle.smallest(), handle.largest()) {
                let share = handle.table()?.share_of(range.low_key(), range.high_key())?;
                for meta in handle.tree().map(|table| &table.meta) {
                    entries += meta.entries as f64 * share;
                    bytes += meta.data_bytes as f64 * share;
                }
            }
        }
        let index = &current.contents.index;
        let from = range.low_key().map_or(index.first(), |key| index.seek(key));
        let to = range.high_key().map_or(index.end(), |key| index.seek(key));
        if from < to {
            entries += index.count(from, to) as f64;
            bytes += current.contents.slot_bytes_between(from, to, SAMPLE) as f64;
        }
        for memtable in current.memtables() {
            let mut cursor = MemCursor::new(memtable.clone());
            cursor.go(Target::AtOrAfter(range.low_key().unwrap_or_default(), Trailer::FIRST))?;
            for _ in 0..WALK_MAX {
                let Some(entry) = cursor.entry().filter(|entry| range.touches(entry.key, entry.key)) else {
                    break;
                };
                entries += 1.0;
                bytes += (entry.key.len() + entry.value.len()) as f64;
                cursor.next()?;
            }
        }
        Ok((entries as u64, bytes as u64))
    }

    /// The newest value of `key` at or after `bound`; `noted` for a read as of now, from before `current` was loaded.
    fn find(
        &self,
        current: &Current,
        key: &[u8],
        bound: Trailer,
        noted: Option<Flushes>,
    ) -> Result<Option<Value>> {
        let erased = self.covering(current, key, bound.seq());
        for memtable in current.memtables() {
            if let Some((trailer, value)) = memtable.get(key, bound) {
                self.operations.answered(BY_MEMTABLES);
                self.touch(current, key, Seen::InMemory);
                return match trailer.kind() {
                    Some(Kind::Put) if trailer.seq() > erased => Ok(Some(Value::copied(value))),
                    _ => Ok(None),
                };
            }
        }
        if let Some(object) = self.tables.cache.object(key, bound.seq()) {
            self.operations.answered(BY_OBJECTS);
            self.touch(current, key, Seen::InMemory);
            return Ok((object.seq() > erased).then(|| Value::object(object)));
        }
        let place = (key, bound, erased);
        let store_first = !planted::has(Bug::StoreBelowTables);
        if store_first && let Some(answer) = self.find_in_store(current, place, noted)? {
            return Ok(answer.value());
        }
        for (level, i) in current.version.levels.iter().zip(BY_LEVEL_0..) {
            let Some(guard) = level.guard_of(key) else { continue };
            let mut link = None;
            // Of a table that is older than what deleted the key nothing needs to be read. One that lies on others
            // stands for them.
            let has_any =
                |table: &&Arc<TableHandle>| table.meta.largest_seq > erased || table.meta.below().is_some();
            for table in guard.tops().filter_map(|run| run.table_of(key)).filter(has_any) {
                if let Some(answer) = self.find_in_table(current, table, &mut link, place, noted)? {
                    self.operations.answered(i);
                    return Ok(answer.value());
                }
            }
        }
        if !store_first && let Some(answer) = self.find_in_store(current, place, noted)? {
            return Ok(answer.value());
        }
        self.operations.answered(BY_NOTHING);
        Ok(None)
    }

    /// The number up to which range tombstones take versions of `key` away from a reader at `at`; 0 for none.
    pub(super) fn covering(&self, current: &Current, key: &[u8], at: Seq) -> Seq {
        if planted::has(Bug::RangeTombstonesUnread) { Seq(0) } else { current.covering(key, at) }
    }

    /// What the store has of a key at or after `bound`; versions up to `erased` are gone.
    fn find_in_store(
        &self,
        current: &Current,
        (key, bound, erased): (&[u8], Trailer, Seq),
        fresh: Option<Flushes>,
    ) -> Result<Option<Answer>> {
        let Some(found) = current.contents.get(key, bound)? else { return Ok(None) };
        self.operations.answered(BY_STORE);
        let entry = found.entry();
        if entry.trailer.kind() != Some(Kind::Put) || entry.trailer.seq() <= erased {
            return Ok(Some(Answer::Deleted));
        }
        self.touch(current, key, Seen::InStore);
        if let Some(fresh) = fresh {
            self.tables.cache.keep_found(&entry, fresh);
        }
        Ok(Some(Answer::Value(Value::copied(entry.value))))
    }

    /// As [`Engine::find_in_store`], of a table.
    fn find_in_table(
        &self,
        current: &Current,
        handle: &Arc<TableHandle>,
        link: &mut Option<Link>,
        (key, bound, erased): (&[u8], Trailer, Seq),
        fresh: Option<Flushes>,
    ) -> Result<Option<Answer>> {
        let cache = &self.tables.cache;
        let found = handle.table().and_then(|table| table.get(cache, key, bound, link));
        // Of an error memory that was lost may be the cause, and says more then.
        let found = found.or_else(|error| self.check_memory().and(Err(error)))?;
        let Some(found) = found else { return Ok(None) };
        match found.trailer.kind() {
            Some(Kind::Put | Kind::Delete) if found.trailer.seq() <= erased => Ok(Some(Answer::Deleted)),
            Some(Kind::Put) => {
                let trailer = found.trailer;
                self.touch(current, key, Seen::Below);
                let (value, block, was_cached) = match found.value {
                    FoundIn::Block { value, block, was_cached } => (value, block, was_cached),
                    // Where it is takes little longer to read than a copy of it in the cache.
                    FoundIn::Memory(value) => return Ok(Some(Answer::Value(Value::shared(value)))),
                };
                let entry = Entry { key, trailer, value: &value };
                if let Some(fresh) = fresh
                    && self.offer(current, &entry, handle)
                {
                    // Soon it lies in a slot.
                    cache.keep_found(&entry, fresh);
                    return Ok(Some(Answer::Value(Value::in_block(value))));
                }
                cache.keep_read(&PointRead {
                    key,
                    seq: trailer.seq(),
                    value: &value,
                    block,
                    was_cached,
                    fresh,
                });
                Ok(Some(Answer::Value(Value::in_block(value))))
            }
            Some(Kind::Delete) => Ok(Some(Answer::Deleted)),
            _ => Err(Error::internal(format!(
                "table {} holds an entry of an unknown kind",
                handle.meta.number
            ))),
        }
    }
}
