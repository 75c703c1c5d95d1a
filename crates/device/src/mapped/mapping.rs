//! A file of the operating system, mapped.
//!
//! Where the file system maps the medium itself (DAX), the kernel is asked for a mapping whose pages are durable places
//! (`MAP_SYNC`, see mmap(2)); then stores are made durable by writing their cache lines back, and a fence behind the
//! last (`clwb`, or what older processors have instead, then `sfence`: Intel's Software Developer's Manual, volume 2,
//! on either). Elsewhere `msync` writes pages back.
//!
//! The mapping is as long as it should be from the start, the file from [`Memory::allot`] on, with its blocks allocated
//! where the file system can: so that a full disk shows when the store is opened and not at a store instruction, and a
//! file that was cut short is seen to be short. What can still go wrong under a mapping (somebody cuts the file short,
//! the medium fails) raises SIGBUS; see `signal`.

#![expect(unsafe_code, reason = "mapping memory is unsafe by nature")]

use super::signal::{Guard, guard};
use super::window::Window;
use super::{LINE_BYTES, MapFiles, Memory, Toll};
use crate::file::FileLock;
use crate::name::check_name;
use crate::{Holder, View};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fstatvfs};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{fmt, io};

/// How stores become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Cache lines are written back, and a fence waits for them.
    Lines(Instruction),
    /// The kernel writes pages back.
    Msync,
}

/// What writes a cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Keeps the line in the cache.
    Clwb,
    /// Throws it out.
    Clflushopt,
    /// Throws it out, one after the other.
    Clflush,
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(Instruction::Clwb) => f.write_str("cache lines written back by clwb, and a fence"),
            Self::Lines(Instruction::Clflushopt) => {
                f.write_str("cache lines flushed by clflushopt, and a fence")
            }
            Self::Lines(Instruction::Clflush) => f.write_str("cache lines flushed by clflush, and a fence"),
            Self::Msync => {
                f.write_str("pages written back by msync: the file system does not map its medium")
            }
        }
    }
}

impl Persistence {
    /// By cache lines, as this processor can.
    #[cfg(target_arch = "x86_64")]
    fn lines() -> Self {
        // Leaf 7 says which of the two newer instructions there are; every processor of 64 bits has the third.
        let newest = std::arch::x86_64::__cpuid(0).eax;
        let features = if newest >= 7 { std::arch::x86_64::__cpuid_count(7, 0).ebx } else { 0 };
        Self::Lines(match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Instruction::Clwb,
            (_, 1) => Instruction::Clflushopt,
            _ => Instruction::Clflush,
        })
    }

    /// Of other processors the kernel knows how.
    #[cfg(not(target_arch = "x86_64"))]
    fn lines() -> Self {
        Self::Msync
    }
}

/// A mapped file.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// How long the file was when it was opened.
    kept_bytes: u64,
    /// The file is as long as the mapping, and has no holes where the file system can do without.
    is_allotted: AtomicBool,
    /// Held while it is made so.
    allotting: Mutex<()>,
    persistence: Persistence,
    path: PathBuf,
    /// Taken when the mapping goes.
    guard: Option<Guard>,
    toll: Option<Arc<Toll>>,
    /// Where views are put together; made when one is.
    window: OnceLock<Arc<Window>>,
    file: File,
    /// What it protects is shared by all who map the file, in this process and in others. A file of a directory that
    /// somebody has locked has none.
    _lock: Option<FileLock>,
}

/// Files of a directory of the operating system, each mapped by itself. One at a time may map one of them: the
/// directory has to be locked.
#[derive(Debug)]
pub struct FileMaps {
    path: PathBuf,
    toll: Option<Arc<Toll>>,
}

impl FileMaps {
    /// Those of `path`; `toll` counts what is written back where they stand for persistent memory in measurements.
    pub fn new(path: impl Into<PathBuf>, toll: Option<Arc<Toll>>) -> Arc<Self> {
        Arc::new(Self { path: path.into(), toll })
    }
}

impl MapFiles for FileMaps {
    fn map(&self, name: &str, bytes: u64) -> io::Result<Box<dyn Memory>> {
        check_name(name)?;
        let mapping = Mapping::open_as(&self.path.join(name), bytes, self.toll.clone(), false)?;
        mapping.allot()?;
        Ok(Box::new(mapping))
    }
}

/// Of addresses for views that are put together there are so many times as many as bytes.
const WINDOW_TIMES: u64 = 4;

// SAFETY: the mapping is plain memory; who may touch which bytes when is what `Memory` asks of its callers.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `path`, which is made if need be; all of a longer file is mapped. Of a shorter one the bytes behind its end
    /// are there from [`Memory::allot`] on.
    ///
    /// # Errors
    /// `WouldBlock` when it is mapped already; what the operating system says.
    pub fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        Self::open_as(path, bytes, None, true)
    }

    /// As [`Mapping::open`], for memory that stands for persistent memory in measurements: cache lines are written back
    /// even where that makes nothing durable, and what is touched is counted and paid for by `toll`.
    ///
    /// # Errors
    /// As [`Mapping::open`].
    pub fn open_modelled(path: &Path, bytes: u64, toll: Arc<Toll>) -> io::Result<Self> {
        Self::open_as(path, bytes, Some(toll), true)
    }

    fn open_as(path: &Path, bytes: u64, toll: Option<Arc<Toll>>, is_alone: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(is_alone).truncate(false).mode(0o600);
        let mut open =
            |flags: OFlags| options.custom_flags((flags | OFlags::NOFOLLOW).bits() as i32).open(path);
        // Mapping a file counts as reading it. What the file system writes for that it would write while nobody can map
        // anything.
        let file = match open(OFlags::NOATIME) {
            // Only who owns a file may ask for it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(OFlags::empty())?,
            file => file?,
        };
        let lock = match is_alone {
            true => Some(FileLock::take(file.try_clone()?)?.ok_or_else(|| {
                let why = format!("{} is mapped already, here or by another process", path.display());
                io::Error::new(io::ErrorKind::WouldBlock, why)
            })?),
            false => None,
        };
        let metadata = file.metadata()?;
        let kept_bytes = metadata.len();
        let bytes = bytes.max(kept_bytes);
        if bytes == 0 || usize::try_from(bytes).is_err() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{bytes} bytes cannot be mapped"),
            ));
        }
        let map = |flags| {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: no address is asked for, so nothing that is mapped is replaced.
            unsafe { mmap(std::ptr::null_mut(), bytes as usize, access, flags, &file, 0) }
        };
        let (mapped, persistence) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(mapped) => (mapped, Persistence::lines()),
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {
                let persistence = if toll.is_some() { Persistence::lines() } else { Persistence::Msync };
                (map(MapFlags::SHARED)?, persistence)
            }
            Err(error) => return Err(error.into()),
        };
        let Some(base) = NonNull::new(mapped.cast::<u8>()) else {
            return Err(io::Error::other("a mapping at address 0"));
        };
        let bytes = bytes as usize;
        let guard = match guard(base.as_ptr() as usize, bytes) {
            Ok(guard) => guard,
            Err(error) => {
                // SAFETY: it was mapped above, and nobody else knows of it.
                unsafe { munmap(mapped, bytes) }?;
                return Err(error);
            }
        };
        Ok(Self {
            base,
            bytes,
            kept_bytes,
            is_allotted: AtomicBool::new(false),
            allotting: Mutex::new(()),
            persistence,
            path: path.to_owned(),
            guard: Some(guard),
            toll,
            window: OnceLock::new(),
            file,
            _lock: lock,
        })
    }

    fn window(&self) -> io::Result<&Arc<Window>> {
        match self.window.get() {
            Some(window) => Ok(window),
            None => {
                let made = Arc::new(Window::reserve(self.bytes as u64 * WINDOW_TIMES)?);
                // Of two that were made at once one stays.
                Ok(self.window.get_or_init(|| made))
            }
        }
    }

    /// Before a file system fills itself up to find out that there is no room for so many bytes more.
    fn refuse_without_room(&self, more: u64) -> io::Result<()> {
        let room = fstatvfs(&self.file)?;
        // With what is kept for the superuser: less than that is enough for nobody.
        let free = room.f_bfree.saturating_mul(room.f_frsize);
        // One without a bound says that it has no blocks at all.
        if room.f_blocks == 0 || more <= free {
            return Ok(());
        }
        let path = self.path.display();
        let why = format!("{path} needs {more} bytes more, and its file system has {free} left");
        Err(io::Error::new(io::ErrorKind::StorageFull, why))
    }

    fn lost(&self) -> io::Error {
        let path = self.path.display();
        io::Error::other(format!(
            "{path} lost bytes while it was mapped: it was cut short, or its medium failed"
        ))
    }

    /// The address of bytes that are all in the mapping.
    fn address(&self, at: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        match at.checked_add(bytes as u64).filter(|end| *end <= self.bytes as u64) {
            // SAFETY: inside the mapping, which is one allocation.
            Some(_) => Ok(unsafe { self.base.add(at as usize) }),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Memory for Mapping {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn present_bytes(&self) -> u64 {
        if self.is_allotted.load(Ordering::Acquire) { self.bytes() } else { self.kept_bytes }
    }

    fn allot(&self) -> io::Result<()> {
        if self.is_allotted.load(Ordering::Acquire) {
            return Ok(());
        }
        let _alone = self.allotting.lock().unwrap_or_else(PoisonError::into_inner);
        let (metadata, bytes) = (self.file.metadata()?, self.bytes());
        let (len, allotted) = (metadata.len(), metadata.blocks() * 512);
        // Made longer it would have zeros for what an earlier user left.
        if len < self.kept_bytes {
            return Err(self.lost());
        }
        // A file of this length may have holes, if it was copied: a store there would find a full disk by a signal.
        if len < bytes || allotted < bytes {
            self.refuse_without_room(bytes.saturating_sub(len.max(allotted)))?;
            match retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, bytes)) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => self.file.set_len(bytes)?,
                Err(error) => {
                    // Some file systems keep what they gave until there was no more.
                    self.file.set_len(len)?;
                    return Err(error.into());
                }
            }
            self.file.sync_all()?;
        }
        self.is_allotted.store(true, Ordering::Release);
        Ok(())
    }

    unsafe fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let to = self.address(at, bytes.len())?;
        // SAFETY: the target is in the mapping, and the caller's alone; what is copied lies elsewhere, or a view of it
        // would break the caller's promise.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    unsafe fn load(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = self.address(at, buffer.len())?;
        // SAFETY: the source is in the mapping, and nobody writes it meanwhile; the buffer is the caller's alone.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *buffer).cast(), buffer.len()) };
        self.check()
    }

    unsafe fn view(&self, ranges: &[Range<u64>], holder: Arc<dyn Holder>) -> io::Result<View> {
        let view = match ranges {
            [] | [_] => {
                let range = ranges.first().cloned().unwrap_or(0..0);
                let bytes = (range.end - range.start) as usize;
                let bytes = NonNull::slice_from_raw_parts(self.address(range.start, bytes)?, bytes);
                // SAFETY: in the mapping, which the holder keeps along with the promise that nobody writes here.
                unsafe { View::new(bytes, holder) }
            }
            _ => {
                for range in ranges {
                    self.address(range.start, (range.end - range.start) as usize)?;
                }
                let (bytes, holder) = self.window()?.assemble(&self.file, ranges, holder)?;
                // SAFETY: mapped as long as the new holder lives, which keeps the one with the promise that nobody
                // writes here.
                unsafe { View::new(bytes, holder) }
            }
        };
        Ok(match &self.toll {
            Some(toll) => view.counted(toll.clone()),
            None => view,
        })
    }

    fn write_back(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        for range in ranges.iter().filter(|range| range.start < range.end) {
            let bytes = (range.end - range.start) as usize;
            self.address(range.start, bytes)?;
            match self.persistence {
                Persistence::Lines(instruction) => {
                    let from = range.start - range.start % LINE_BYTES;
                    for line in (from..range.end).step_by(LINE_BYTES as usize) {
                        write_back(self.address(line, 1)?, instruction);
                    }
                    if let Some(toll) = &self.toll {
                        toll.written((range.end - from).div_ceil(LINE_BYTES));
                    }
                }
                Persistence::Msync => {
                    let from = range.start - range.start % super::PAGE_BYTES;
                    let bytes = (range.end - from) as usize;
                    let address = self.address(from, bytes)?;
                    // SAFETY: in the mapping; the bytes stay as they are.
                    unsafe { msync(address.as_ptr().cast(), bytes, MsyncFlags::SYNC) }?;
                }
            }
        }
        Ok(())
    }

    fn fence(&self, _: &[Range<u64>]) -> io::Result<()> {
        // Of what `msync` wrote nothing is on its way any more.
        if let Persistence::Lines(_) = self.persistence {
            fence();
        }
        self.check()
    }

    fn check(&self) -> io::Result<()> {
        let is_lost = self.guard.as_ref().is_some_and(Guard::is_lost);
        match is_lost || self.window.get().is_some_and(|window| window.is_lost()) {
            false => Ok(()),
            true => Err(self.lost()),
        }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn persistence(&self) -> Persistence {
        self.persistence
    }
}

/// Has the cache line of `address` written back, not before the stores to it and no later than the next [`fence`].
#[cfg(target_arch = "x86_64")]
fn write_back(address: NonNull<u8>, instruction: Instruction) {
    // SAFETY: the address is mapped, as `Mapping::address` has found, and the processor has the instruction, as
    // `Persistence::lines` has; the bytes stay as they are.
    unsafe {
        match instruction {
            Instruction::Clwb => {
                std::arch::asm!("clwb [{0}]", in(reg) address.as_ptr(), options(nostack, preserves_flags));
            }
            Instruction::Clflushopt => {
                std::arch::asm!("clflushopt [{0}]", in(reg) address.as_ptr(), options(nostack, preserves_flags));
            }
            Instruction::Clflush => std::arch::x86_64::_mm_clflush(address.as_ptr()),
        }
    }
}

/// Waits until the lines that were written back before are durable.
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: every processor of 64 bits has it.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn write_back(_: NonNull<u8>, _: Instruction) {}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First: whatever is mapped in its place next is not ours.
        drop(self.guard.take());
        // SAFETY: mapped by `open_as` with this length; views hold the region, and the region this, so nobody looks any
        // more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
