//! The memory number, and who holds how much of it.
//!
//! Memtables have their share from the start. What else grows (indexes of open tables, keyspaces, reads and writes under
//! way) is charged here while it is held, and the cache has the rest: each time that it takes something in it looks how
//! much that is, and gives up what it has too much. So a store that holds much else has less cache, and what it holds
//! together stays within its number, as long as it is not asked for more than the number by itself: then the cache is down
//! to a sixteenth, reads ahead stop, and writers wait for each other. Values that a caller has been handed are the caller's.
//!
//! Charging is one relaxed addition; small things (blocks of the usual size on their way) are not charged one by one.

use cuesta_sched::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The cache has at least one part in so many of the number.
const CACHE_SHARE_MIN: u64 = 16;
/// Reads ahead of scans may have one part in so many of the number together.
const READ_AHEAD_SHARE: u64 = 8;

/// Who holds memory besides memtables and cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Indexes of open tables.
    Tables = 0,
    /// Read-ahead of scans and merges, cursors, large blocks on their way.
    Reads = 1,
    /// Large batches on their way.
    Writes = 2,
    Keyspaces = 3,
    /// The index of the store below the memtable.
    Index = 4,
    /// Those of the present version.
    RangeTombstones = 5,
    /// What flushes, demotions and promotions list: what goes where.
    Jobs = 6,
    /// What lies between the cache's objects.
    Holes = 7,
}

const HOLDERS: usize = 8;

/// The number and what is held of it.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    memtables: u64,
    held: [AtomicU64; HOLDERS],
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    holder: Holder,
    bytes: u64,
}

impl Memory {
    /// Of `limit` bytes memtables may take `memtables`.
    pub(crate) fn new(limit: u64, memtables: u64) -> Arc<Self> {
        Arc::new(Self { limit, memtables, held: Default::default() })
    }

    /// The number.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// What memtables and batches on their way to them may have together.
    pub(crate) fn for_writes(&self) -> u64 {
        self.memtables.max(self.limit / 2)
    }

    /// What the cache may have at present.
    pub(crate) fn for_cache(&self) -> u64 {
        let others: u64 = self.held.iter().map(|held| held.load(Ordering::Relaxed)).sum();
        self.limit.saturating_sub(self.memtables + others).max(self.limit / CACHE_SHARE_MIN)
    }

    /// Whether a scan may read ahead `bytes` more.
    pub(crate) fn has_room_to_read_ahead(&self, bytes: u64) -> bool {
        self.held(Holder::Reads) + bytes <= self.limit / READ_AHEAD_SHARE
    }

    pub(crate) fn held(&self, holder: Holder) -> u64 {
        self.held[holder as usize].load(Ordering::Relaxed)
    }

    /// Holds `bytes`.
    pub(crate) fn charge(self: &Arc<Self>, holder: Holder, bytes: u64) -> Charge {
        self.held[holder as usize].fetch_add(bytes, Ordering::Relaxed);
        Charge { memory: self.clone(), holder, bytes }
    }

    /// Holds `bytes`, if what `holder` has together stays within `most` or is nothing but this.
    pub(crate) fn try_charge(self: &Arc<Self>, holder: Holder, bytes: u64, most: u64) -> Option<Charge> {
        let fits = |held: u64| (held == 0 || held + bytes <= most).then_some(held + bytes);
        let held = &self.held[holder as usize];
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Charge { memory: self.clone(), holder, bytes })
    }

    /// Sets what `holder` holds where one place knows all of it.
    pub(crate) fn set(&self, holder: Holder, bytes: u64) {
        self.held[holder as usize].store(bytes, Ordering::Relaxed);
    }
}

impl Charge {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` from now on, in one step: who let go first and charged again would show the cache room that there is not.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let held = &self.memory.held[self.holder as usize];
        match bytes.checked_sub(self.bytes) {
            Some(more) => held.fetch_add(more, Ordering::Relaxed),
            None => held.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.held[self.holder as usize].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_has_what_the_others_leave() {
        let memory = Memory::new(1000, 300);
        assert_eq!(memory.for_cache(), 700);
        let mut charge = memory.charge(Holder::Reads, 100);
        assert_eq!((memory.for_cache(), memory.held(Holder::Reads)), (600, 100));
        assert!(memory.has_room_to_read_ahead(25) && !memory.has_room_to_read_ahead(26));
        memory.set(Holder::Keyspaces, 900);
        assert_eq!(memory.for_cache(), 62);
        for bytes in [150, 20, 20] {
            charge.resize(bytes);
            assert_eq!((charge.bytes(), memory.held(Holder::Reads)), (bytes, bytes));
        }
        drop(charge);
        assert_eq!(memory.held(Holder::Reads), 0);
        let alone = memory.try_charge(Holder::Writes, 50, 40);
        assert!(alone.is_some() && memory.try_charge(Holder::Writes, 1, 40).is_none());
        assert!(memory.try_charge(Holder::Writes, 1, 51).is_some());
    }
}
