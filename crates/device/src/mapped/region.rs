//! A mapping whose pages are dealt out as extents.
//!
//! An [`Extent`] is the sole right to its pages; it gives them back when it is dropped. Who has one may write to it; made an
//! `Arc`, it is written no more and may be viewed. This is what makes views sound: extents of a region never overlap, and writing
//! wants one by `&mut`.

#![expect(unsafe_code, reason = "extents are what keeps writers and readers of one mapping apart")]

use super::space::Space;
use super::{Memory, PAGE_BYTES, Persistence};
use crate::{Holder, View};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Persistent memory, dealt out.
#[derive(Debug)]
pub struct Region {
    /// The region's own: two that deal out one memory would deal it out twice.
    memory: Box<dyn Memory>,
    /// Held for a look-up in the map, never while anything waits.
    space: Mutex<Space>,
}

/// Pages of a region that nobody else has.
#[derive(Debug)]
pub(super) struct Extent {
    region: Arc<Region>,
    range: Range<u64>,
}

impl Region {
    /// All of `memory`, free.
    pub fn new(memory: Box<dyn Memory>) -> Arc<Self> {
        let bytes = memory.bytes() - memory.bytes() % PAGE_BYTES;
        Arc::new(Self { memory, space: Mutex::new(Space::new(bytes)) })
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that nobody has.
    pub fn free_bytes(&self) -> u64 {
        self.space().free_bytes()
    }

    /// Whether all that was read of it so far was there.
    ///
    /// # Errors
    /// What became of the mapping.
    pub fn check(&self) -> io::Result<()> {
        self.memory.check()
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        self.memory.place()
    }

    /// What makes its bytes durable.
    pub fn persistence(&self) -> Persistence {
        self.memory.persistence()
    }

    /// Pages for so many bytes.
    ///
    /// # Errors
    /// `StorageFull` when no free range is large enough.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> io::Result<Extent> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        match self.space().take(bytes) {
            Some(at) => Ok(Extent { region: self.clone(), range: at..at + bytes }),
            None => {
                let why = format!("{} has no {bytes} free bytes in one piece", self.place());
                Err(io::Error::new(io::ErrorKind::StorageFull, why))
            }
        }
    }

    /// The pages from `at` on for so many bytes, which somebody says are in use.
    ///
    /// # Errors
    /// `InvalidData` when they are not there, or are another's.
    pub(super) fn claim(self: &Arc<Self>, at: u64, bytes: u64) -> io::Result<Extent> {
        let end =
            at.checked_add(bytes.next_multiple_of(PAGE_BYTES)).filter(|_| at.is_multiple_of(PAGE_BYTES));
        match end.filter(|end| self.space().take_at(at..*end)) {
            Some(end) => Ok(Extent { region: self.clone(), range: at..end }),
            None => {
                let why = format!(
                    "{bytes} bytes at {at} of {} cannot be one file's: another has them, or it ends before",
                    self.place()
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }

    /// Makes what was stored to these ranges durable.
    pub(super) fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.memory.persist(ranges)
    }
}

impl Extent {
    pub(super) fn at(&self) -> u64 {
        self.range.start
    }

    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Where bytes `from..to` of the extent are in the region.
    fn within(&self, from: u64, bytes: u64) -> io::Result<Range<u64>> {
        match from.checked_add(bytes).filter(|end| *end <= self.bytes()) {
            Some(end) => Ok(self.range.start + from..self.range.start + end),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn store(&mut self, from: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.within(from, bytes.len() as u64)?;
        // SAFETY: extents of a region do not overlap, and this one is ours alone: its views hold it by `Arc`.
        unsafe { self.region.memory.store(range.start, bytes) }
    }

    pub(super) fn load(&self, from: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = self.within(from, buffer.len() as u64)?;
        // SAFETY: extents do not overlap, and to write to this one is to have it by `&mut`.
        unsafe { self.region.memory.load(range.start, buffer) }
    }

    /// The first `bytes`, where they lie; the extent is not written again.
    pub(super) fn view(self: &Arc<Self>, bytes: u64) -> io::Result<View> {
        let range = self.within(0, bytes)?;
        // SAFETY: who holds the view holds this extent by `Arc`, so nobody has it by `&mut` meanwhile; and the extent keeps the
        // region with its memory.
        unsafe { self.region.memory.view(range, self.clone()) }
    }

    /// Takes the pages behind it, too; `false` where they are another's.
    pub(super) fn extend(&mut self, bytes: u64) -> bool {
        let end = self.range.start + bytes.next_multiple_of(PAGE_BYTES);
        let more = self.range.end..end;
        let taken = end <= self.range.end || self.region.space().take_at(more);
        if taken {
            self.range.end = self.range.end.max(end);
        }
        taken
    }

    /// Gives back what lies behind `bytes`.
    pub(super) fn trim(&mut self, bytes: u64) {
        let end = self.range.start + bytes.next_multiple_of(PAGE_BYTES);
        if end < self.range.end {
            self.region.space().give(end..self.range.end);
            self.range.end = end;
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.region.space().give(self.range.clone());
    }
}

impl Holder for Extent {
    fn check(&self) -> io::Result<()> {
        self.region.memory.check()
    }
}
