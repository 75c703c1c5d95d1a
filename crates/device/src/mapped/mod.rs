//! Persistent memory: files that lie in one mapping, are written byte by byte and read where they lie.
//!
//! - [`Memory`] is the mapping itself, and what makes its bytes durable: [`Mapping`] for a file of the operating
//!   system, and the simulated disk's own.
//! - A [`Region`] deals its pages out as extents. Which extents are in use is known to whoever names them (a store's
//!   manifest): after an open they are claimed one by one, and the rest is free.
//! - [`MappedDirectory`] makes files of extents beside the ordinary files of a directory. Of these some can have a
//!   mapping of their own ([`OwnFiles`]): logs, which are written on and on and are never viewed.
//!
//! A file of extents is written, frozen by its first [`crate::Device::view`], and never written again. So nothing is
//! ever written under a view, and what a crash may leave half written is in no extent that anybody names.

mod directory;
mod dirty;
mod lines;
mod mapping;
mod own;
mod region;
mod signal;
mod space;
#[cfg(test)]
mod tests;
mod window;

pub use directory::{MappedDirectory, OwnFiles};
pub use lines::{Timing, Toll, Touched, begin_operation, touched};
pub use mapping::{FileMaps, Instruction, Mapping, Persistence};
pub use region::Region;

use crate::planted::{self, LeftOut};
use crate::{Holder, View};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What the processor's caches hold and write back as one.
pub const LINE_BYTES: u64 = 64;
/// What extents consist of.
pub const PAGE_BYTES: u64 = crate::ALIGNMENT as u64;

/// Bytes that keep what was stored to them and persisted.
#[expect(unsafe_code, reason = "memory that is written and read at once is for the caller to keep apart")]
pub trait Memory: Send + Sync + Debug {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// How many of them are there: what an earlier user left, and all once [`Memory::allot`] has taken room.
    fn present_bytes(&self) -> u64 {
        self.bytes()
    }

    /// Takes room on the medium for all of them, once; until then only those may be touched that are there.
    ///
    /// # Errors
    /// `StorageFull` when there is not as much room: the memory becomes no longer then.
    fn allot(&self) -> io::Result<()> {
        Ok(())
    }

    /// Stores `bytes` at `at`. Durable after [`Memory::persist`]; parts of it may be before.
    ///
    /// # Safety
    /// Nobody reads or writes these bytes meanwhile, by a view or otherwise.
    unsafe fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Copies from `at` into `buffer`.
    ///
    /// # Safety
    /// Nobody writes these bytes meanwhile.
    unsafe fn load(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The bytes of these ranges, where they lie, as if they lay one behind the other. All of them but the last are
    /// whole pages, and begin with one.
    ///
    /// # Safety
    /// Nobody writes these bytes as long as `holder` lives, and it keeps this memory.
    unsafe fn view(&self, ranges: &[Range<u64>], holder: Arc<dyn Holder>) -> io::Result<View>;

    /// Sends what was stored to these ranges on its way to the medium; a [`Memory::fence`] waits until it is there.
    /// After an error another call proves nothing.
    fn write_back(&self, ranges: &[Range<u64>]) -> io::Result<()>;

    /// When it returns `Ok`, what this thread has had written back of these ranges, by calls with the same, is durable,
    /// and so it is before anything that is stored from here on. After an error another call proves nothing.
    fn fence(&self, ranges: &[Range<u64>]) -> io::Result<()>;

    /// When it returns `Ok`, what had been stored to these ranges is durable: all lines are written back, then one
    /// fence. After an error another call proves nothing.
    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.write_back(ranges)?;
        if planted::leaves_out(LeftOut::Fence) { Ok(()) } else { self.fence(ranges) }
    }

    /// Whether all that was read so far was there.
    fn check(&self) -> io::Result<()>;

    /// Where it is, for people.
    fn place(&self) -> String;

    /// What makes its bytes durable.
    fn persistence(&self) -> Persistence;
}

/// Maps files of a directory.
pub trait MapFiles: Send + Sync + Debug {
    /// The file `name`, which has so many bytes.
    ///
    /// # Errors
    /// `StorageFull` when it has holes for which there is no room; what the operating system says.
    fn map(&self, name: &str, bytes: u64) -> io::Result<Box<dyn Memory>>;
}
