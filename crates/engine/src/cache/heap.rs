//! What objects have of the heap, and when to give back what they have left of it.
//!
//! Blocks lie in pages of their own (but for small filters and indexes, which stay), objects on the heap. An object that goes leaves a hole as large as it was, among others
//! that stay; the next object fills it, a block cannot. So when blocks take over ([`super::duel`]), the heap would keep what
//! objects had at their most, as long as a few of them are left on each of its pages. Once a quarter of that is holes, all
//! objects go, and the heap is trimmed: at most three times what had gone already, and of the kind that serves point reads of tables worse.
//! (Those that were found in the store below the memtable come back as they are found.) Who reads waits for that: some milliseconds for tens
//! of mebibytes.
//!
//! An object costs four atomic operations here, besides what its two allocations and its insertion take.

use cuesta_sched::atomic::{AtomicU64, Ordering};

/// Holes are worth while once they are one part in so many.
const HOLES_SHARE: u64 = 4;

/// Bytes of objects on the heap.
#[derive(Debug, Default)]
pub(super) struct Heap {
    live: AtomicU64,
    /// The most that were there since it was trimmed last.
    most: AtomicU64,
}

impl Heap {
    pub(super) fn add(&self, bytes: u64) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Seldom more than a read.
        if live > self.most.load(Ordering::Relaxed) {
            self.most.fetch_max(live, Ordering::Relaxed);
        }
    }

    pub(super) fn remove(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether holes are a part of it that is worth while, and so many bytes at least.
    pub(super) fn has_holes(&self, least: u64) -> bool {
        let (live, most) = (self.live.load(Ordering::Relaxed), self.most.load(Ordering::Relaxed));
        most.saturating_sub(live) >= least.max(most / HOLES_SHARE)
    }

    /// Gives the holes back to the system, as far as they are whole pages.
    pub(super) fn trim(&self) {
        cuesta_device::trim_heap();
        self.most.store(self.live.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_what_is_missing_of_the_most_since_it_was_trimmed() {
        let heap = Heap::default();
        heap.add(120);
        heap.remove(29);
        assert!(!heap.has_holes(10));
        heap.remove(1);
        assert!(heap.has_holes(30) && !heap.has_holes(31));
        // What comes fills them.
        heap.add(1);
        assert!(!heap.has_holes(10));
        heap.remove(31);
        heap.trim();
        assert!(!heap.has_holes(1));
        heap.remove(14);
        assert!(!heap.has_holes(10));
        heap.remove(1);
        assert!(heap.has_holes(10));
    }
}
