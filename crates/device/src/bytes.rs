//! Bytes that grow: on the heap while they are few, in pages of their own from [`PAGES_FROM`] on, which go back to the
//! system when they are let go of. A heap keeps large pieces that were freed once, in whatever thread's arena they lay
//! (`pages` tells more), and what is kept for values of some megabytes soon outgrows all else.

use crate::AlignedBuf;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// So many bytes have pages of their own.
pub const PAGES_FROM: usize = 1 << 20;

/// A buffer of bytes that grows.
#[derive(Default)]
pub struct ByteBuf {
    /// What there is as long as there are few.
    heap: Vec<u8>,
    /// All of it, once there are many, and how many.
    pages: Option<(AlignedBuf, usize)>,
}

impl ByteBuf {
    /// Room for `len` bytes together at least.
    pub fn reserve(&mut self, len: usize) {
        match &mut self.pages {
            Some((pages, used)) if len > pages.len() => {
                // By half as much again, so that many small steps copy little.
                let mut more = AlignedBuf::zeroed(len.max(pages.len() / 2 * 3));
                more[..*used].copy_from_slice(&pages[..*used]);
                *pages = more;
            }
            None if len >= PAGES_FROM => {
                let mut pages = AlignedBuf::zeroed(len);
                pages[..self.heap.len()].copy_from_slice(&self.heap);
                self.pages = Some((pages, self.heap.len()));
                self.heap = Vec::new();
            }
            None => self.heap.reserve(len.saturating_sub(self.heap.len())),
            Some(_) => {}
        }
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.pages.is_none() && self.heap.len() + bytes.len() < PAGES_FROM {
            return self.heap.extend_from_slice(bytes);
        }
        let (from, to) = (self.len(), self.len() + bytes.len());
        self.resize(to);
        self[from..].copy_from_slice(bytes);
    }

    /// Cuts, or appends zeros.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len);
        match &mut self.pages {
            None => self.heap.resize(len, 0),
            Some((pages, used)) => {
                if len < *used {
                    // What lies behind the end is zeros.
                    pages[len..*used].fill(0);
                }
                *used = len;
            }
        }
    }

    /// No bytes; room on the heap stays, pages go.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.pages = None;
    }
}

impl Deref for ByteBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.pages {
            None => &self.heap,
            Some((pages, used)) => &pages[..*used],
        }
    }
}

impl DerefMut for ByteBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.pages {
            None => &mut self.heap,
            Some((pages, used)) => &mut pages[..*used],
        }
    }
}

impl Clone for ByteBuf {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.extend_from_slice(self);
        clone
    }
}

impl From<Vec<u8>> for ByteBuf {
    fn from(heap: Vec<u8>) -> Self {
        Self { heap, pages: None }
    }
}

impl fmt::Debug for ByteBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_on_the_heap_and_in_pages() {
        let (mut bytes, mut model) = (ByteBuf::default(), Vec::new());
        let steps = [10, PAGES_FROM - 20, 5, 30, 70_000, 3 * PAGES_FROM].into_iter().enumerate();
        for (i, n) in steps {
            let piece = vec![i as u8 + 1; n];
            bytes.extend_from_slice(&piece);
            model.extend_from_slice(&piece);
            assert!(*bytes == *model && *bytes.clone() == *model, "after step {i}");
        }
        for len in [PAGES_FROM + 7, PAGES_FROM + 90, 12] {
            bytes.resize(len);
            model.resize(len, 0);
            assert!(*bytes == *model, "at {len} bytes");
        }
        bytes.clear();
        assert!(bytes.is_empty());
        bytes.resize(3);
        assert_eq!(*bytes, [0; 3]);
    }
}
