//! The memory number, and who holds how much of it.
//!
//! Memtables have room kept for them: the active one, and as many sealed ones as there were lately ([`Memtables`]).
//! What else grows (indexes of open tables, keyspaces, reads and writes under way) is charged here while it is held,
//! and the cache has the rest: each time that it takes something in it looks how much that is, and gives up what it has
//! too much. So a store that holds much else has less cache, and what it holds together stays within its number, as
//! long as it is not asked for more than the number by itself: then the cache is down to a sixteenth, reads ahead stop,
//! and writers wait for each other. Values that a caller has been handed are the caller's.
//!
//! Charging is one relaxed addition, and what the cache takes in costs one more; small things (blocks of the usual size
//! on their way) are not charged one by one.

use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// The index of the store below the memtable, those that it came from as far as somebody has them, and the tracker.
    Index = 4,
    /// Those of the present version.
    RangeTombstones = 5,
    /// What flushes, demotions and promotions list: what goes where.
    Jobs = 6,
    /// What lies between the cache's objects.
    Holes = 7,
}

const HOLDERS: usize = 8;

/// One part in so many of the number is kept for what nobody counts, buffers of tables that are being written, pages
/// that wait to be used again and holes in the heap above all, unless as much is kept for sealed memtables; above a
/// store of objects, whose demotions and flushes run beside each other all the time, besides that.
const UNCOUNTED_SHARE: u64 = 16;
/// For one sealed memtable less is room kept once the cache has taken in one thing for each so many bytes of the
/// number, about as much as it holds, and all that time there were fewer than there is room for.
const QUIET_BYTES: u64 = 1024;

/// The number and what is held of it.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    memtables: Memtables,
    held: [AtomicU64; HOLDERS],
    /// Leaves of the index, which count themselves.
    leaves: OnceLock<Arc<AtomicU64>>,
}

/// Room for memtables. To keep it for as many as there can be at worst would leave it unused nearly always: flushes
/// seldom lag behind by more than one, and where nothing is written there is none to be flushed. To keep it for as many
/// as there are would have the cache give way to each, and come back after each flush. So it is kept for as many as
/// there were since the cache was last filled anew. The cache makes way when one is sealed, before the next has grown.
#[derive(Debug)]
struct Memtables {
    /// What one may take.
    bytes: AtomicU64,
    /// How many sealed ones there can be.
    sealed_max: u64,
    /// They are flushed into a store of objects.
    has_store: AtomicBool,
    /// How many sealed ones there are, and above [`KEPT`] for how many room is kept: no fewer. In one word, since who
    /// finds few and who seals one more may meet.
    sealed: AtomicU64,
    /// What the cache has taken in since as many were there as room is kept for.
    quiet: AtomicU64,
}

/// Where the count of those that room is kept for begins in [`Memtables::sealed`].
const KEPT: u32 = 32;
const PRESENT: u64 = (1 << KEPT) - 1;

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    holder: Holder,
    bytes: u64,
}

impl Memory {
    /// Of `limit` bytes a memtable may take `memtable_bytes`, and so may each of `sealed_max` that wait to be flushed.
    pub(crate) fn new(limit: u64, memtable_bytes: u64, sealed_max: u64) -> Arc<Self> {
        let [bytes, sealed, quiet] = [memtable_bytes, 0, 0].map(AtomicU64::new);
        let memtables = Memtables { bytes, sealed_max, has_store: AtomicBool::new(false), sealed, quiet };
        Arc::new(Self { limit, memtables, held: Default::default(), leaves: OnceLock::new() })
    }

    /// From now on [`Holder::Index`] has what `leaves` says besides. Told once; other tellings are let go.
    pub(crate) fn count_leaves(&self, leaves: Arc<AtomicU64>) {
        self.leaves.set(leaves).ok();
    }

    /// Known once it is known whose memory it is: what a memtable may take, and whether they are flushed into a store
    /// of objects.
    pub(crate) fn suit(&self, memtable_bytes: u64, has_store: bool) {
        self.memtables.bytes.store(memtable_bytes, Ordering::Relaxed);
        self.memtables.has_store.store(has_store, Ordering::Relaxed);
    }

    /// The number.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// What memtables and batches on their way to them may have together.
    pub(crate) fn for_writes(&self) -> u64 {
        let bytes = self.memtables.bytes.load(Ordering::Relaxed);
        (bytes * (1 + self.memtables.sealed_max)).max(self.limit / 2)
    }

    /// So many sealed memtables are there from now on.
    pub(crate) fn set_sealed(&self, present: u64) {
        let Memtables { sealed, quiet, .. } = &self.memtables;
        let change = |was: u64| Some((was >> KEPT).max(present) << KEPT | present);
        let was = sealed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).unwrap_or_else(|was| was);
        if present >= was >> KEPT {
            quiet.store(0, Ordering::Relaxed);
        }
    }

    /// The cache takes something in.
    pub(crate) fn cache_takes(&self) {
        let Memtables { sealed, quiet, .. } = &self.memtables;
        let enough = self.limit / QUIET_BYTES;
        // Of those who see at once that it is enough one begins anew, and lets go of one.
        if quiet.fetch_add(1, Ordering::Relaxed) >= enough && quiet.swap(0, Ordering::Relaxed) >= enough {
            let change = |was: u64| (was >> KEPT > was & PRESENT).then(|| was - (1 << KEPT));
            sealed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok();
        }
    }

    /// What is kept for memtables at present, and where these are few for what nobody counts.
    fn for_memtables(&self) -> u64 {
        let Memtables { bytes, sealed_max, has_store, sealed, .. } = &self.memtables;
        let bytes = bytes.load(Ordering::Relaxed);
        let uncounted = self.limit / UNCOUNTED_SHARE;
        let sealed = (sealed.load(Ordering::Relaxed) >> KEPT) * bytes;
        match has_store.load(Ordering::Relaxed) {
            true => bytes + sealed + uncounted,
            false => bytes + sealed.max(uncounted.min(sealed_max * bytes)),
        }
    }

    /// What the cache may have at present.
    pub(crate) fn for_cache(&self) -> u64 {
        let others: u64 = self.held.iter().map(|held| held.load(Ordering::Relaxed)).sum();
        self.limit
            .saturating_sub(self.for_memtables() + others + self.leaves())
            .max(self.limit / CACHE_SHARE_MIN)
    }

    /// Whether a scan may read ahead `bytes` more.
    pub(crate) fn has_room_to_read_ahead(&self, bytes: u64) -> bool {
        self.held(Holder::Reads) + bytes <= self.limit / READ_AHEAD_SHARE
    }

    pub(crate) fn held(&self, holder: Holder) -> u64 {
        let leaves = if holder == Holder::Index { self.leaves() } else { 0 };
        self.held[holder as usize].load(Ordering::Relaxed) + leaves
    }

    fn leaves(&self) -> u64 {
        self.leaves.get().map_or(0, |leaves| leaves.load(Ordering::Relaxed))
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

    /// Holds `bytes` from now on, in one step: who let go first and charged again would show the cache room that there
    /// is not.
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
        let memory = Memory::new(1000, 300, 2);
        // A sixteenth is kept, and room for one memtable.
        assert_eq!(memory.for_cache(), 638);
        let mut charge = memory.charge(Holder::Reads, 100);
        assert_eq!((memory.for_cache(), memory.held(Holder::Reads)), (538, 100));
        assert!(memory.has_room_to_read_ahead(25) && !memory.has_room_to_read_ahead(26));
        memory.set(Holder::Keyspaces, 900);
        assert_eq!(memory.for_cache(), 62);
        for bytes in [150, 20, 20] {
            charge.resize(bytes);
            assert_eq!((charge.bytes(), memory.held(Holder::Reads)), (bytes, bytes));
        }
        memory.set(Holder::Keyspaces, 0);
        let leaves = Arc::new(AtomicU64::new(100));
        memory.count_leaves(leaves.clone());
        memory.set(Holder::Index, 5);
        assert_eq!((memory.for_cache(), memory.held(Holder::Index)), (638 - 20 - 105, 105));
        leaves.store(0, Ordering::Relaxed);
        assert_eq!((memory.for_cache(), memory.held(Holder::Index)), (638 - 20 - 5, 5));
        drop(charge);
        assert_eq!(memory.held(Holder::Reads), 0);
        let alone = memory.try_charge(Holder::Writes, 50, 40);
        assert!(alone.is_some() && memory.try_charge(Holder::Writes, 1, 40).is_none());
        assert!(memory.try_charge(Holder::Writes, 1, 51).is_some());
    }

    #[test]
    fn above_a_store_what_nobody_counts_has_room_beside_sealed_memtables() {
        let kept = |memtable_bytes, has_store| {
            let memory = Memory::new(1000, 500, 2);
            memory.suit(memtable_bytes, has_store);
            let few = 1000 - memory.for_cache();
            memory.set_sealed(1);
            (few, 1000 - memory.for_cache())
        };
        assert_eq!(kept(100, false), (162, 200));
        assert_eq!(kept(100, true), (162, 262));
        // Else no more than sealed memtables might have.
        assert_eq!((kept(20, false), kept(20, true)), ((60, 60), (82, 102)));
    }

    #[test]
    fn room_is_kept_for_as_many_memtables_as_there_were_lately() {
        let (limit, one) = (64 * QUIET_BYTES, 5000);
        let memory = Memory::new(limit, one, 2);
        let kept = || (limit - memory.for_cache()) / one;
        let fill_cache = || (0..=limit / QUIET_BYTES).for_each(|_| memory.cache_takes());
        assert_eq!((kept(), memory.for_writes()), (1, limit / 2));
        memory.set_sealed(1);
        memory.set_sealed(2);
        assert_eq!(kept(), 3);
        memory.set_sealed(1);
        fill_cache();
        // Not for fewer than there are.
        assert_eq!(kept(), 2);
        fill_cache();
        assert_eq!(kept(), 2);
        memory.set_sealed(0);
        (0..10).for_each(|_| memory.cache_takes());
        assert_eq!(kept(), 2);
        // As many as room is kept for: it begins anew.
        memory.set_sealed(1);
        memory.set_sealed(0);
        (0..limit / QUIET_BYTES).for_each(|_| memory.cache_takes());
        assert_eq!(kept(), 2);
        memory.cache_takes();
        assert_eq!(kept(), 1);
        fill_cache();
        assert_eq!(kept(), 1);
    }
}
