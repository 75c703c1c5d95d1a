//! A mapping whose pages are dealt out as extents.
//!
//! An [`Extent`] is the sole right to its pages; it gives them back when it is dropped. Who has one may write to it;
//! made an `Arc`, it is written no more and may be viewed. This is what makes views sound: extents of a region never
//! overlap, and writing wants one by `&mut`.

#![expect(unsafe_code, reason = "extents are what keeps writers and readers of one mapping apart")]

use super::space::Space;
use super::{Memory, PAGE_BYTES, Persistence};
use crate::planted::{self, LeftOut};
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
    /// Where the kernel writes pages back: that has failed once. Held while it does.
    has_failed: Mutex<bool>,
}

/// Pages of a region that nobody else has, in a few pieces where there were not as many in one.
#[derive(Debug)]
pub(super) struct Extent {
    region: Arc<Region>,
    pieces: Vec<Range<u64>>,
}

/// Pieces that an extent may have.
pub(super) const PIECES_MAX: usize = 64;

impl Region {
    /// All of `memory`, free.
    pub fn new(memory: Box<dyn Memory>) -> Arc<Self> {
        let bytes = memory.bytes() - memory.bytes() % PAGE_BYTES;
        Arc::new(Self { memory, space: Mutex::new(Space::new(bytes)), has_failed: Mutex::new(false) })
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

    /// Takes room for all of it, before any extent is taken.
    ///
    /// # Errors
    /// As [`Memory::allot`].
    pub fn allot(&self) -> io::Result<()> {
        self.memory.allot()
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
    /// `StorageFull` when there are not as many free, or in too many pieces.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> io::Result<Extent> {
        let mut extent = Extent { region: self.clone(), pieces: Vec::new() };
        extent.extend(bytes)?;
        Ok(extent)
    }

    /// Pages that somebody says are in use.
    ///
    /// # Errors
    /// `InvalidData` when they are not there, or are another's.
    pub(super) fn claim(self: &Arc<Self>, pieces: &[Range<u64>]) -> io::Result<Extent> {
        let mut extent = Extent { region: self.clone(), pieces: Vec::new() };
        for piece in pieces {
            let bounds = [piece.start, piece.end];
            let is_whole = piece.start < piece.end && bounds.iter().all(|at| at.is_multiple_of(PAGE_BYTES));
            let refuse = |why: &str| {
                let why = format!("bytes {} to {} of {} {why}", piece.start, piece.end, self.place());
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            };
            let present = self.memory.present_bytes();
            if is_whole && (present + 1..=self.memory.bytes()).contains(&piece.end) {
                return refuse(&format!(
                    "are lost: it was cut short, and had {present} bytes when it was opened"
                ));
            }
            if !is_whole || !self.space().take_at(piece.clone()) {
                return refuse("cannot be a file's: another has them, or it ends before");
            }
            extent.pieces.push(piece.clone());
        }
        Ok(extent)
    }

    /// Makes what was stored to these ranges durable. Where the kernel writes pages back, it tells of one that it could
    /// not write once, to whoever asks next, of whatever pages: so after an error no later call can be believed.
    ///
    /// # Errors
    /// What the medium says, or has said.
    pub(super) fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        if planted::leaves_out(LeftOut::Extents) {
            return Ok(());
        }
        if self.memory.persistence() != Persistence::Msync {
            return self.memory.persist(ranges);
        }
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(io::Error::other(
                "an earlier write-back has failed, and nobody knows of which pages",
            ));
        }
        let persisted = self.memory.persist(ranges);
        *has_failed = persisted.is_err();
        persisted
    }
}

impl Extent {
    pub(super) fn pieces(&self) -> &[Range<u64>] {
        &self.pieces
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// Where `bytes` bytes from `from` on are in the region.
    pub(super) fn within(&self, from: u64, bytes: u64) -> io::Result<Vec<Range<u64>>> {
        let (mut found, mut skip, mut left) = (Vec::new(), from, bytes);
        for piece in &self.pieces {
            let len = piece.end - piece.start;
            if skip < len && left > 0 {
                let start = piece.start + skip;
                let end = piece.end.min(start + left);
                left -= end - start;
                found.push(start..end);
            }
            skip = skip.saturating_sub(len);
        }
        if left == 0 { Ok(found) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) fn store(&mut self, from: u64, mut bytes: &[u8]) -> io::Result<()> {
        for range in self.within(from, bytes.len() as u64)? {
            let (now, behind) = bytes.split_at((range.end - range.start) as usize);
            // SAFETY: extents of a region do not overlap, and this one is ours alone: its views hold it by `Arc`.
            unsafe { self.region.memory.store(range.start, now) }?;
            bytes = behind;
        }
        Ok(())
    }

    pub(super) fn load(&self, from: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        for range in self.within(from, buffer.len() as u64)? {
            let (now, behind) = buffer.split_at_mut((range.end - range.start) as usize);
            // SAFETY: extents do not overlap, and to write to this one is to have it by `&mut`.
            unsafe { self.region.memory.load(range.start, now) }?;
            buffer = behind;
        }
        Ok(())
    }

    /// The first `bytes`, where they lie; the extent is not written again.
    pub(super) fn view(self: &Arc<Self>, bytes: u64) -> io::Result<View> {
        let ranges = self.within(0, bytes)?;
        // SAFETY: who holds the view holds this extent by `Arc`, so nobody has it by `&mut` meanwhile; and the extent
        // keeps the region with its memory.
        unsafe { self.region.memory.view(&ranges, self.clone()) }
    }

    /// Has so many bytes: takes the pages behind it too, if they are free, or further pieces.
    ///
    /// # Errors
    /// `StorageFull` when there are not as many free, or in too many pieces.
    pub(super) fn extend(&mut self, bytes: u64) -> io::Result<()> {
        let more = bytes.next_multiple_of(PAGE_BYTES).saturating_sub(self.bytes());
        if more == 0 {
            return Ok(());
        }
        self.region.allot()?;
        let mut space = self.region.space();
        if let Some(last) = self.pieces.last_mut()
            && space.take_at(last.end..last.end + more)
        {
            last.end += more;
            return Ok(());
        }
        match space.take_pieces(more, PIECES_MAX - self.pieces.len()) {
            Some(taken) => self.pieces.extend(taken),
            None => {
                let why = format!(
                    "{} has no room for {more} bytes: {} are free, in {} pieces",
                    self.region.place(),
                    space.free_bytes(),
                    space.pieces()
                );
                return Err(io::Error::new(io::ErrorKind::StorageFull, why));
            }
        }
        Ok(())
    }

    /// Gives back what lies behind `bytes`.
    pub(super) fn trim(&mut self, bytes: u64) {
        let mut space = self.region.space();
        let mut over = self.bytes().saturating_sub(bytes.next_multiple_of(PAGE_BYTES));
        while over > 0
            && let Some(last) = self.pieces.last_mut()
        {
            let end = last.start.max(last.end.saturating_sub(over));
            over -= last.end - end;
            space.give(end..last.end);
            last.end = end;
            if last.start == last.end {
                self.pieces.pop();
            }
        }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.trim(0);
    }
}

impl Holder for Extent {
    fn check(&self) -> io::Result<()> {
        self.region.memory.check()
    }
}
