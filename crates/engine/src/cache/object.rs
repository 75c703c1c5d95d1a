//! Objects in memory: keys with their newest values, as tables have them.
//!
//! An object is named by its key and not by the table that it came from, so merges leave it alone, and only a flush can
//! make it wrong. A read asks the memtables first; what it must never meet is an object that is older than what the
//! tables of its own set of containers hold. That is kept by five rules:
//!
//! * A reader notes the number of flushes before it loads `current`.
//! * A flush raises that number, and then replaces or removes the objects of the keys that it writes, before its edit is
//!   seen. By then all that it writes is visible to readers.
//! * A reader inserts its object unconfirmed, and confirms it if the number of flushes is still what it noted. Nobody uses
//!   what is not confirmed.
//! * A flush of range tombstones removes the objects that they cover at the same time. Until then they are held against what is found
//!   here as against everything else.
//! * Only a read as of now inserts one. A read at a snapshot uses one that is old enough: had there been a newer version for
//!   it, the memtables would have had it.
//!
//! The shard's lock orders an insertion and a flush's removal of the same key: if the removal comes first the reader sees
//! the number raised, and if it comes second it takes the object away. A reader that noted the number after it was raised
//! has the flush's memtable in its own set, or its tables.

use super::heap::Heap;
use crate::key::{self, Seq};
use cuesta_sched::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A key with its newest value.
pub(crate) struct Object {
    pub(super) seq: Seq,
    /// The sampled block that it came from; 0 for none.
    pub(super) sample: u32,
    /// What that block weighs.
    pub(super) block_weight: u32,
    key_bytes: u32,
    confirmed: AtomicBool,
    /// Key, then value.
    bytes: Box<[u8]>,
    heap: Arc<Heap>,
}

impl Object {
    /// Not confirmed yet. `of` is the block that it came from and what that weighs.
    pub(super) fn new(heap: &Arc<Heap>, key: &[u8], seq: Seq, value: &[u8], of: (u32, u32)) -> Arc<Self> {
        let (bytes, confirmed) = ([key, value].concat().into_boxed_slice(), AtomicBool::new(false));
        let (sample, block_weight) = of;
        heap.add(bytes.len() as u64);
        // Keys are at most `KEY_BYTES_MAX` long.
        let (key_bytes, heap) = (key.len() as u32, heap.clone());
        Arc::new(Self { seq, sample, block_weight, key_bytes, confirmed, bytes, heap })
    }

    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes as usize]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.bytes[self.key_bytes as usize..]
    }

    /// Bytes of key and value.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn confirm(&self) {
        self.confirmed.store(true, Ordering::Release);
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Acquire)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.heap.remove(self.bytes.len() as u64);
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({:?}, {} bytes)", self.seq, self.len())
    }
}

/// A key, to look its object up.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectKey<'a>(pub(super) &'a [u8]);

impl Hash for ObjectKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(key::hash(self.0));
    }
}
