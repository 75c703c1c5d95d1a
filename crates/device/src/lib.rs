//! Bytes on media.
//!
//! A [`Device`] is the bytes of one open file, read and written at positions; a [`Directory`] is the names under one
//! tier's path. Both say what is durable when a call returns, and nothing else is. Implementations: buffered files,
//! direct I/O, and a simulated device that keeps synced and unsynced bytes apart and can be cut or made to fail at
//! any operation. The [`Meter`] wraps any device and counts its bytes by tier and cause; a [`PacedDirectory`] makes any
//! directory slower.

mod buffer;
mod bytes;
mod file;
pub mod mapped;
mod meter;
mod name;
mod names;
mod paced;
mod page_vec;
mod pages;
pub mod planted;
pub mod sim;
mod ticket;
mod transfers;
mod unreadable;
mod view;

pub use buffer::{ALIGNMENT, AlignedBuf, SECTOR_BYTES_MIN};
pub use bytes::{ByteBuf, PAGES_FROM};
pub use file::FileDirectory;
pub use meter::{Cause, Count, Counters, Meter};
pub use names::SureNames;
pub use paced::{Call, Limiter, Medium, Pace, PacedDirectory, Pacing, Sleep, thread_took};
pub use page_vec::PageVec;
pub use ticket::{Pending, Ticket};
pub use unreadable::{WhatIsLeft, is_unreadable, read_twice, read_what_can_be};
pub use view::{Holder, View};

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How the bytes of a file are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the operating system's page cache; any offset and length.
    Buffered,
    /// Past the page cache: offsets, lengths and memory addresses are multiples of [`ALIGNMENT`], which suits every
    /// medium. A file system that cannot do direct I/O falls back to buffered access; [`Device::geometry`] says which
    /// it is.
    Direct,
    /// The same by multiples of so many bytes, a power of two, or of as many as the medium wants if that is more:
    /// [`Geometry::sector_bytes`].
    Sectors(u32),
}

impl Access {
    /// What a file that is reached so, past the page cache, has for its sectors on a medium of such ones.
    pub(crate) fn sector_bytes(self, of_medium: impl FnOnce() -> u32) -> u32 {
        match self {
            Self::Sectors(bytes) if bytes < ALIGNMENT as u32 => bytes.max(of_medium()),
            _ => ALIGNMENT as u32,
        }
    }
}

/// What the medium under a file asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Reads and writes past the page cache.
    pub direct: bool,
    /// Unit of direct I/O on this file, in bytes: a power of two from [`SECTOR_BYTES_MIN`] to [`ALIGNMENT`].
    pub sector_bytes: u32,
    /// Largest aligned write, in bytes, that a power cut cannot tear.
    pub atomic_write_bytes: u32,
}

/// A read to be submitted: an owned, aligned buffer and where to fill it from.
#[derive(Debug)]
pub struct ReadRequest {
    /// Filled whole.
    pub buffer: AlignedBuf,
    /// Position in the file, in bytes.
    pub offset: u64,
}

/// A write to be submitted: an owned, aligned buffer, and where its first bytes go.
#[derive(Debug)]
pub struct WriteRequest {
    /// Handed back when the write is done.
    pub buffer: AlignedBuf,
    /// How many of its bytes are written.
    pub bytes: usize,
    /// Position in the file, in bytes.
    pub offset: u64,
}

/// The bytes of one open file.
///
/// All calls take `&self` and may run at once. A call that returns an error may have done any part of its work.
pub trait Device: Send + Sync + Debug {
    /// Fills `buffer` from `offset`; short reads are continued.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before the buffer is full; else what the medium says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, growing the file where needed. Nothing is durable before [`Device::sync`].
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// When it returns `Ok`, every write and length change that had returned before the call was made is durable.
    /// After an error the state of those writes is unknown and another `sync` proves nothing: never retry it.
    /// The file's name is not covered, see [`Directory::sync`].
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// True for a file of no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or grows (with zeros) to `len` bytes. Durable after [`Device::sync`].
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// What the medium asks for.
    fn geometry(&self) -> Geometry;

    /// About so many bytes will be written. A device that is better off with them in one piece looks for a place; the
    /// default does nothing.
    ///
    /// # Errors
    /// `StorageFull` when there are not as many.
    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// The bytes of the file where they lie, for a device of persistent memory; `None` for any other. From then on the
    /// file is not written any more.
    ///
    /// # Errors
    /// What the medium says.
    fn view(&self) -> io::Result<Option<View>> {
        Ok(None)
    }

    /// Where the file lies in persistent memory, once it is viewed: pages, mostly in one piece. Who names the file has
    /// to remember it ([`Directory::claim`]).
    fn extents(&self) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Begins a read and returns before it is done, where the device can have several under way; the default does it
    /// at once. A reader that needs many places begins all of its reads, then waits for each.
    fn submit(&self, request: ReadRequest) -> Ticket {
        let ReadRequest { mut buffer, offset } = request;
        Ticket::done(self.read_at(&mut buffer, offset).map(|()| buffer))
    }

    /// Begins a write and returns before it is done, where the device can; the default does it at once. A
    /// [`Device::sync`] covers it only if it begins after the ticket was waited for.
    fn submit_write(&self, request: WriteRequest) -> Ticket {
        let WriteRequest { buffer, bytes, offset } = request;
        Ticket::done(self.write_at(&buffer[..bytes], offset).map(|()| buffer))
    }
}

/// A file of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The file's name, without a path.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Held while a process has a tier open; dropped, another may open it.
pub trait Lock: Send + Sync + Debug {}

/// The names under one tier's path; flat, no folders inside.
pub trait Directory: Send + Sync + Debug {
    /// Makes a new, empty file. The name is durable after [`Directory::sync`].
    ///
    /// # Errors
    /// `AlreadyExists` when the name is taken; else what the medium says.
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>>;

    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>>;

    /// Removes a name. Open devices of it stay readable. Durable after [`Directory::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames, replacing `to` if it exists. Durable after [`Directory::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// All files, by name.
    fn list(&self) -> io::Result<Vec<Listed>>;

    /// Makes all creations, removals and renames that returned before the call durable. Never retry after an error.
    fn sync(&self) -> io::Result<()>;

    /// Takes the sole right to use this directory, against other processes and against this one.
    ///
    /// # Errors
    /// `WouldBlock` when it is taken.
    fn lock(&self) -> io::Result<Box<dyn Lock>>;

    /// Bytes that the medium could still take, as far as it knows.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Where this is, for people: a path, or a name in simulation.
    fn place(&self) -> String;

    /// How bytes become durable that are stored in persistent memory, where some of the files here are; `None` for any
    /// other directory.
    fn persistence(&self) -> Option<mapped::Persistence> {
        None
    }

    /// The file `name`, of `bytes` bytes, lies in persistent memory where [`Device::extents`] said when it was written.
    ///
    /// # Errors
    /// `Unsupported` where there is no persistent memory; `InvalidData` when the file cannot be there: another is, or
    /// the memory ends before; `AlreadyExists`.
    fn claim(&self, _name: &str, _pieces: &[Range<u64>], _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes room for all of the persistent memory that is here, if it has not got it yet. To be called when everything
    /// has been claimed that is there: what was cut short cannot be told from what is new any more.
    ///
    /// # Errors
    /// `StorageFull` when there is not as much room: the memory becomes no longer then.
    fn allot_memory(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether all that was read of persistent memory so far was there ([`View::check`]).
    ///
    /// # Errors
    /// What became of the memory.
    fn check_memory(&self) -> io::Result<()> {
        Ok(())
    }
}
