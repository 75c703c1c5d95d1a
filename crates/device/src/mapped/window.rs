//! Views of several pieces of a mapped file, put together where addresses are free.
//!
//! A window is a stretch of addresses with nothing behind them. Pieces of the file are mapped a second time into a part
//! of it, one behind the other, and only to be read; when nobody looks at them any more the part is free again. One
//! guard is enough for all of them (`signal`).

#![expect(unsafe_code, reason = "mapping memory is unsafe by nature")]

use super::PAGE_BYTES;
use super::signal::{Guard, guard};
use super::space::Space;
use crate::Holder;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses for views.
#[derive(Debug)]
pub(super) struct Window {
    base: NonNull<u8>,
    bytes: usize,
    space: Mutex<Space>,
    /// Taken when the window goes.
    guard: Option<Guard>,
}

// SAFETY: what is behind its addresses is read only, and changed by who has taken them from `space`.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// Pieces put together, and who keeps them.
pub(super) struct Assembled {
    window: Arc<Window>,
    range: Range<u64>,
    holder: Arc<dyn Holder>,
}

impl Window {
    /// So many bytes of addresses, whole pages.
    pub(super) fn reserve(bytes: u64) -> io::Result<Self> {
        let bytes = (bytes - bytes % PAGE_BYTES) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is asked for, so nothing that is mapped is replaced.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) }?;
        let base = NonNull::new(mapped.cast::<u8>());
        let base = base.ok_or_else(|| io::Error::other("a window at address 0"))?;
        let guarded = guard(mapped as usize, bytes);
        let space = Mutex::new(Space::new(bytes as u64));
        let (guard, failed) = match guarded {
            Ok(guard) => (Some(guard), None),
            Err(error) => (None, Some(error)),
        };
        let window = Self { base, bytes, space, guard };
        failed.map_or(Ok(window), Err)
    }

    /// Whether bytes behind it were lost by now. Asked after reading.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_lost)
    }

    /// These ranges of `file`, one behind the other, as long as what is returned lives; that keeps `holder`.
    pub(super) fn assemble(
        self: &Arc<Self>,
        file: &File,
        ranges: &[Range<u64>],
        holder: Arc<dyn Holder>,
    ) -> io::Result<(NonNull<[u8]>, Arc<Assembled>)> {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let taken = bytes.next_multiple_of(PAGE_BYTES);
        let at = self.space.lock().unwrap_or_else(PoisonError::into_inner).take(taken);
        let at = at.ok_or_else(|| io::Error::other("too many pieces of persistent memory are being read"))?;
        // From here on what was taken is given back.
        let assembled = Arc::new(Assembled { window: self.clone(), range: at..at + taken, holder });
        // SAFETY: inside the window, which is one allocation.
        let start = unsafe { self.base.add(at as usize) };
        let mut place = start;
        for range in ranges {
            let bytes = (range.end - range.start) as usize;
            // SAFETY: these addresses are the window's and were taken above, so nobody looks at what is replaced; the
            // file's pages are not written as long as the holder lives, as the caller has promised.
            unsafe {
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                mmap(place.as_ptr().cast(), bytes, ProtFlags::READ, flags, file, range.start)?;
                place = place.add(bytes);
            }
        }
        Ok((NonNull::slice_from_raw_parts(start, bytes as usize), assembled))
    }
}

impl Holder for Assembled {
    fn check(&self) -> io::Result<()> {
        self.holder.check()
    }
}

impl Drop for Assembled {
    fn drop(&mut self) {
        let bytes = (self.range.end - self.range.start) as usize;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: taken from the window, and nobody looks at it any more.
        let emptied = unsafe {
            let place = self.window.base.add(self.range.start as usize);
            mmap_anonymous(place.as_ptr().cast(), bytes, ProtFlags::empty(), flags)
        };
        // What could not be emptied is used no more.
        if emptied.is_ok() {
            self.window.space.lock().unwrap_or_else(PoisonError::into_inner).give(self.range.clone());
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // First: whatever is mapped in its place next is not ours.
        drop(self.guard.take());
        // SAFETY: mapped by `reserve` with this length; who looks at a part of it holds the window.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
