//! Memory for a memtable's nodes: fixed chunks, handed out from front to back, freed together.
//!
//! The [`Arena`] owns the chunks and is shared; the [`Bump`] is the writer's position in the last one. Only adding a
//! chunk takes the arena's lock, which readers never do.

use cuesta_device::AlignedBuf;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Bytes of a chunk; an entry that does not fit gets one of its own size.
#[cfg(not(miri))]
const CHUNK_BYTES: usize = 64 << 10;
#[cfg(miri)]
const CHUNK_BYTES: usize = 1 << 10;
/// Every piece begins at a multiple of this.
const ALIGNMENT: usize = 8;

/// The chunks of one memtable.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Mutex<Vec<AlignedBuf>>,
    bytes: AtomicU64,
}

/// What is left of the last chunk; belongs to the one writer.
#[derive(Debug)]
pub(super) struct Bump {
    next: *mut u8,
    left: usize,
}

impl Default for Bump {
    fn default() -> Self {
        Self { next: ptr::null_mut(), left: 0 }
    }
}

impl Arena {
    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add_chunk(&self, bytes: usize) -> *mut u8 {
        // Whole pages: what is beyond the bytes stays untouched, and without memory.
        let mut chunk = AlignedBuf::zeroed(bytes);
        let pointer = chunk.as_mut_ptr();
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        pointer
    }
}

impl Bump {
    /// `bytes` of uninitialised memory, aligned for a node, valid for as long as `arena` lives.
    pub(super) fn take(&mut self, arena: &Arena, bytes: usize) -> *mut u8 {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        if bytes > CHUNK_BYTES / 4 {
            // A chunk of its own; what is left of the present one stays in use.
            return arena.add_chunk(bytes);
        }
        if bytes > self.left {
            (self.next, self.left) = (arena.add_chunk(CHUNK_BYTES), CHUNK_BYTES);
        }
        let piece = self.next;
        // SAFETY: `bytes` are left in the chunk, so the result is inside it or one past its end.
        self.next = unsafe { self.next.add(bytes) };
        self.left -= bytes;
        piece
    }
}
