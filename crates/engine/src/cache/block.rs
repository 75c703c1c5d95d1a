//! Blocks in memory.
//!
//! Blocks of up to a page live in frames of 4 KiB, and large ones in pages of their own, which come from the system and
//! go back to it, so a cache that turns over does not fragment memory; those between are on the heap. So are filters
//! and indexes of up to half a page: a frame would make them many times as large, and they stay while data comes and
//! goes.

use cuesta_device::AlignedBuf;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = 4096;
/// A filter or index of up to so many bytes has no frame.
const SMALL_BYTES: usize = FRAME_BYTES / 2;
/// A block of so many bytes has pages of its own.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// A block's bytes in memory. Clones share them.
#[derive(Clone)]
pub(crate) struct Block {
    inner: Arc<BlockBytes>,
}

struct BlockBytes {
    bytes: Bytes,
    len: usize,
}

enum Bytes {
    /// A frame, or as many pages as a large block needs.
    Pages(AlignedBuf),
    /// On the heap, which wastes less on sizes between pages.
    Heap(Box<[u8]>),
}

impl Block {
    /// Memory for `len` bytes of data, filled by `fill`.
    pub(crate) fn filled<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Self::made(len, len <= FRAME_BYTES, fill)
    }

    /// The same for a filter or an index.
    pub(crate) fn filled_to_stay<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::made(len, len > SMALL_BYTES && len <= FRAME_BYTES, fill)
    }

    fn made<E>(
        len: usize,
        is_framed: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let bytes = if is_framed || len >= LARGE_BYTES {
            let mut pages = AlignedBuf::zeroed(len);
            fill(&mut pages[..len])?;
            Bytes::Pages(pages)
        } else {
            let mut bytes = vec![0; len].into_boxed_slice();
            fill(&mut bytes)?;
            Bytes::Heap(bytes)
        };
        Ok(Self { inner: Arc::new(BlockBytes { bytes, len }) })
    }

    /// Bytes of memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.inner.bytes {
            Bytes::Pages(pages) => pages.len(),
            Bytes::Heap(bytes) => bytes.len(),
        }
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.inner.bytes {
            Bytes::Pages(pages) => &pages[..self.inner.len],
            Bytes::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

/// Part of a block, which it keeps alive.
#[derive(Clone, Debug)]
pub(crate) struct BlockSlice {
    block: Block,
    range: Range<usize>,
}

impl BlockSlice {
    pub(crate) fn new(block: Block, range: Range<usize>) -> Self {
        debug_assert!(range.end <= block.len());
        Self { block, range }
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl Deref for BlockSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

/// Which block: table, part and offset in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockKey {
    pub(crate) table: u64,
    /// Twice the offset, plus one in the meta part.
    pub(crate) at: u64,
}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.table);
        state.write_u64(self.at);
    }
}
