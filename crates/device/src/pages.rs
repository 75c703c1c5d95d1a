//! Zeroed pages from the operating system, past the heap, so that memory that is given back is given back.
//!
//! A store holds most of its memory in pieces of a few sizes: cached blocks, read-ahead, memtables' chunks. A heap that
//! serves many threads keeps what it freed once, in the arena of whichever thread freed it, and rounds an aligned page
//! up to nearly two; resident memory then grows far past what is in use. Here pieces of 1, 2, 4, 8 or 16 pages are
//! carved from chunks of 1 MiB and wait in a list of their size to be used again; the first few as they are, the others
//! without their memory, which the kernel takes at once (`MADV_DONTNEED`) and gives anew, zeroed, when they are
//! touched. Larger pieces are mapped and unmapped. What stays resident unused is at most [`WARM_BYTES`] a size.
//!
//! The lists are the process's, each behind a lock held for a push or a pop.

#![expect(unsafe_code, reason = "mapping memory is unsafe by nature")]

use std::ptr::NonNull;

/// The unit: what direct I/O is aligned to.
const PAGE_BYTES: usize = crate::ALIGNMENT;

pub(crate) use mapped::{give_back, take};

#[cfg(not(miri))]
mod mapped {
    use super::{NonNull, PAGE_BYTES};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::sync::{Mutex, PoisonError};

    /// Bytes that are mapped at once for small pieces.
    const CHUNK_BYTES: usize = 1 << 20;
    /// Bytes of each size that wait to be used again with their memory.
    pub(super) const WARM_BYTES: usize = 1 << 20;
    /// Sizes: powers of two of pages.
    const SIZES: usize = 5;

    /// Pieces of one size that nobody uses.
    struct Free {
        /// As they were left.
        warm: Vec<Piece>,
        /// Zeroed, without memory.
        cold: Vec<Piece>,
    }

    struct Piece(NonNull<u8>);
    // SAFETY: a free piece is plain memory that its list alone refers to.
    unsafe impl Send for Piece {}

    static FREE: [Mutex<Free>; SIZES] =
        [const { Mutex::new(Free { warm: Vec::new(), cold: Vec::new() }) }; SIZES];

    /// The list for pieces of `len` bytes and the size of its pieces; `None` for those that are mapped by themselves.
    fn list(len: usize) -> Option<(&'static Mutex<Free>, usize)> {
        let pages = len.div_ceil(PAGE_BYTES).next_power_of_two();
        Some((FREE.get(pages.trailing_zeros() as usize)?, pages * PAGE_BYTES))
    }

    fn map(len: usize) -> NonNull<u8> {
        // SAFETY: no address is asked for, so nothing that is mapped is replaced.
        let mapped = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        match mapped.ok().and_then(|pointer| NonNull::new(pointer.cast())) {
            Some(pointer) => pointer,
            None => panic!("the system has no {len} bytes of memory"),
        }
    }

    /// `len` zeroed bytes, aligned to a page.
    pub(crate) fn take(len: usize) -> NonNull<u8> {
        let Some((list, size)) = list(len) else { return map(len) };
        let mut free = list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Piece(pointer)) = free.warm.pop() {
            drop(free);
            // SAFETY: the piece has `size` bytes, at least `len`, and is ours now.
            unsafe { pointer.write_bytes(0, len) };
            return pointer;
        }
        if let Some(Piece(pointer)) = free.cold.pop() {
            return pointer;
        }
        let chunk = map(CHUNK_BYTES);
        // SAFETY: every offset is inside the chunk.
        let pieces = (size..CHUNK_BYTES).step_by(size).map(|at| Piece(unsafe { chunk.add(at) }));
        free.cold.extend(pieces);
        chunk
    }

    /// # Safety
    /// `pointer` came from [`take`] with this `len`, and nobody uses it any more.
    pub(crate) unsafe fn give_back(pointer: NonNull<u8>, len: usize) {
        let Some((list, size)) = list(len) else {
            // SAFETY: mapped whole by `take`, and the caller's promise.
            let unmapped = unsafe { munmap(pointer.as_ptr().cast(), len) };
            debug_assert!(unmapped.is_ok());
            return;
        };
        let mut free = list.lock().unwrap_or_else(PoisonError::into_inner);
        if free.warm.len() < WARM_BYTES / size {
            return free.warm.push(Piece(pointer));
        }
        drop(free);
        // SAFETY: the piece is `size` bytes of whole pages, and the caller's promise.
        let advised = unsafe { madvise(pointer.as_ptr().cast(), size, Advice::LinuxDontNeed) };
        let mut free = list.lock().unwrap_or_else(PoisonError::into_inner);
        match advised {
            Ok(()) => free.cold.push(Piece(pointer)),
            // It keeps its memory, and its bytes.
            Err(_) => free.warm.push(Piece(pointer)),
        }
    }
}

/// Miri knows no mappings: the heap, with the same alignment.
#[cfg(miri)]
mod mapped {
    use super::{NonNull, PAGE_BYTES};
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

    fn layout(len: usize) -> Layout {
        let Ok(layout) = Layout::from_size_align(len, PAGE_BYTES) else {
            panic!("{len} bytes are more than the address space")
        };
        layout
    }

    pub(crate) fn take(len: usize) -> NonNull<u8> {
        // SAFETY: callers ask for a page at least.
        let raw = unsafe { alloc_zeroed(layout(len)) };
        NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout(len)))
    }

    /// # Safety
    /// As where memory is mapped.
    pub(crate) unsafe fn give_back(pointer: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(pointer.as_ptr(), layout(len)) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ALIGNMENT, AlignedBuf};

    #[test]
    fn every_piece_is_zeroed_and_its_own() {
        let sizes = [1, 4096, 4097, 9000, 40_000, 65_536, 65_537, 3 << 20];
        for round in 1..4u8 {
            let mut held: Vec<AlignedBuf> = Vec::new();
            for len in sizes.into_iter().cycle().take(sizes.len() * 4) {
                let mut buffer = AlignedBuf::zeroed(len);
                assert!(buffer.len() >= len && buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
                assert!(buffer.iter().all(|byte| *byte == 0), "{len} bytes are not zeroed");
                buffer.fill(round);
                held.push(buffer);
            }
            assert!(held.iter().all(|buffer| buffer.iter().all(|byte| *byte == round)));
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn what_is_given_back_is_no_longer_resident() {
        // What other tests of this process hold at the same time comes to less than the room that is left here.
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
            line.split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
        };
        let before = resident();
        let mut held: Vec<AlignedBuf> = (0..64_000).map(|_| AlignedBuf::zeroed(4096)).collect();
        held.iter_mut().for_each(|buffer| buffer.fill(1));
        assert!(resident() >= before + 200);
        drop(held);
        let after = resident();
        assert!(after <= before + 100, "{before} MiB before, {after} MiB after");
    }
}
