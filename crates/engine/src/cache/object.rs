//! Objects in memory: keys with their newest values, as tables have them.
//!
//! An object is named by its key and not by the table that it came from, so merges leave it alone, and only a flush can
//! make it wrong. A read asks the memtables first; what it must never meet is an object that is older than what the
//! tables of its own set of containers hold. That is kept by five rules:
//!
//! * A reader notes the number of flushes before it loads `current`.
//! * A flush raises that number, and then replaces or removes the objects of the keys that it writes, before its edit
//!   is seen. By then all that it writes is visible to readers.
//! * A reader inserts its object unconfirmed, and confirms it if the number of flushes is still what it noted. Nobody
//!   uses what is not confirmed.
//! * A flush of range tombstones removes the objects that they cover at the same time. Until then they are held against
//!   what is found here as against everything else.
//! * Only a read as of now inserts one. A read at a snapshot uses one that is old enough: had there been a newer
//!   version for it, the memtables would have had it.
//!
//! The shard's lock orders an insertion and a flush's removal of the same key: if the removal comes first the reader
//! sees the number raised, and if it comes second it takes the object away. A reader that noted the number after it was
//! raised has the flush's memtable in its own set, or its tables.
//!
//! An [`Object`] is a handle of what lies in a slot of the [`Pool`], which says what is valid when.

#![expect(unsafe_code, reason = "a slot is counted by itself, inside a page that it shares with others")]

use super::pool::Pool;
use crate::key::Seq;
use cuesta_sched::atomic::AtomicBool;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::{fmt, slice};

/// What precedes key and value in an object's slot.
#[repr(C)]
pub(super) struct Header {
    pub(super) references: AtomicU32,
    /// Where it lies: the slot of the page of its class.
    pub(super) page: u32,
    pub(super) slot: u16,
    pub(super) confirmed: AtomicBool,
    pub(super) slot_bytes: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) sample: u32,
    pub(super) block_weight: u32,
    pub(super) seq: Seq,
    pub(super) pool: *const Pool,
}

/// A key with its newest value, in a slot. Clones share it.
pub(crate) struct Object {
    pub(super) header: NonNull<Header>,
}

// SAFETY: an object is plain bytes that nobody changes, and two atomics; its slot may be given back by any thread,
// under the pool's lock.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    pub(super) fn header(&self) -> &Header {
        // SAFETY: this handle is one of the header's references, so the slot is not given back before it goes.
        unsafe { self.header.as_ref() }
    }

    fn bytes(&self, from: usize, len: usize) -> &[u8] {
        // SAFETY: key and value were written behind the header, in this slot, before there was a handle, and are not
        // written again while there is one. `from` and `len` are from the lengths that the slot was taken for.
        unsafe { slice::from_raw_parts(self.header.as_ptr().add(1).cast::<u8>().add(from), len) }
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bytes(0, self.header().key_bytes as usize)
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.bytes(self.header().key_bytes as usize, self.header().value_bytes as usize)
    }

    pub(crate) fn seq(&self) -> Seq {
        self.header().seq
    }

    /// The sampled block that it came from, or 0, and what that weighs.
    pub(super) fn sample(&self) -> (u32, u32) {
        (self.header().sample, self.header().block_weight)
    }

    /// Of its slot.
    pub(super) fn slot_bytes(&self) -> usize {
        self.header().slot_bytes as usize
    }

    /// Bytes of key and value.
    pub(super) fn len(&self) -> usize {
        self.header().key_bytes as usize + self.header().value_bytes as usize
    }

    pub(super) fn confirm(&self) {
        self.header().confirmed.store(true, Ordering::Release);
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.header().confirmed.load(Ordering::Acquire)
    }

    /// Whether both are the same one in the same slot.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        // Whoever has a handle need not be told of anything by whoever has another.
        let before = self.header().references.fetch_add(1, Ordering::Relaxed);
        // As `Arc` does: handles that are forgotten, two thousand million of them, must not bring it back to 0.
        if before > u32::MAX / 2 {
            std::process::abort();
        }
        Self { header: self.header }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.header().references.fetch_sub(1, Ordering::Release) == 1 {
            // All that others did with it is before what becomes of the slot.
            fence(Ordering::Acquire);
            // SAFETY: the pointer is an `Arc`'s, and the pool lives as long as its pages, of which the slot's is one
            // until it is given back. Whoever gives back another of the last slots may drop the pool while this one
            // still is under its lock, so it is held.
            let pool = unsafe {
                Arc::increment_strong_count(self.header().pool);
                Arc::from_raw(self.header().pool)
            };
            drop(pool.give_back(self.header));
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({:?}, {} bytes)", self.seq(), self.len())
    }
}
