//! Memory whose address and length suit direct I/O. The alignment is in the type, so that no caller can forget it.
//! Where it comes from, and why not from the heap, is in `pages`.

#![expect(unsafe_code, reason = "pages are taken from the system and given back, which no safe type does")]

use crate::pages;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A page: address, offset and length unit of direct I/O that suits every medium, in bytes.
pub const ALIGNMENT: usize = 4096;
/// The smallest unit that any medium has, in bytes.
pub const SECTOR_BYTES_MIN: u32 = 512;

/// Refuses what direct I/O would refuse, before the kernel is asked: so a mistake shows on every file system.
///
/// # Errors
/// `InvalidInput` when address, length or offset is no multiple of `sector_bytes`.
pub(crate) fn require_aligned(bytes: &[u8], offset: u64, sector_bytes: u32) -> io::Result<()> {
    let aligned = bytes.as_ptr().addr().is_multiple_of(sector_bytes as usize)
        && bytes.len().is_multiple_of(sector_bytes as usize)
        && offset.is_multiple_of(sector_bytes.into());
    if aligned {
        return Ok(());
    }
    let message =
        format!("direct access needs multiples of {sector_bytes}: {} bytes at {offset}", bytes.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// A zeroed buffer whose address is a multiple of [`ALIGNMENT`], and its length, too, unless it was asked to be
/// another. Its memory is whole pages in any case.
pub struct AlignedBuf {
    pointer: NonNull<u8>,
    len: usize,
}

impl AlignedBuf {
    /// At least `bytes` zeros, rounded up to [`ALIGNMENT`]; one unit when `bytes` is 0.
    pub fn zeroed(bytes: usize) -> Self {
        let len = bytes.max(1).next_multiple_of(ALIGNMENT);
        Self { pointer: pages::take(len), len }
    }

    /// Exactly `bytes` zeros, for media whose sectors are smaller than a page. Takes memory as [`AlignedBuf::zeroed`]
    /// does.
    pub fn exactly(bytes: usize) -> Self {
        let mut made = Self::zeroed(bytes);
        made.len = bytes;
        made
    }

    /// Its first byte, for who keeps other things in it than bytes and makes no slice of these.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.pointer
    }

    /// How many bytes, for the same.
    pub(crate) fn capacity(&self) -> usize {
        self.len
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `pointer` came from `take` with this length, rounded up to pages, and is given back once.
        unsafe { pages::give_back(self.pointer, self.len.max(1).next_multiple_of(ALIGNMENT)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes at `pointer` are allocated, initialised (zeroed) and owned by self.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes any other reference.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

// SAFETY: the buffer is plain memory owned by one value; nothing in it belongs to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references give only shared access to plain bytes.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_that_was_asked_for_and_memory_of_whole_pages() {
        for bytes in [0, 1, 512, 4096, 4608, 3 * 4096 - 1] {
            let mut exact = AlignedBuf::exactly(bytes);
            assert_eq!((exact.len(), exact.as_ptr().addr() % ALIGNMENT), (bytes, 0));
            exact.fill(7);
            assert!(exact.iter().all(|byte| *byte == 7));
            drop(exact);
            // Memory that comes back is zeros again.
            let whole = AlignedBuf::zeroed(bytes);
            assert_eq!(whole.len(), bytes.max(1).next_multiple_of(ALIGNMENT));
            assert!(whole.iter().all(|byte| *byte == 0));
        }
    }
}
