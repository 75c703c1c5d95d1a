//! Walks over a table's entries, with read-ahead.
//!
//! A cursor that goes somewhere begins the read of the block it will need and waits for it only when it is asked to
//! be there, so several tables can be read at once. One that has moved through two neighbouring blocks in a row, in
//! either direction, reads further ones on that side with the same call, twice as many bytes each time, up to its
//! limit; a jump starts over. Who knows how much will be wanted says so, and the first read brings it all. Nothing is
//! read beyond the keys that the reader's range ends at. Blocks that are cached already are used first. Steps inside
//! a block touch nothing but the block.

use super::Fill;
use super::block::BlockCursor;
use super::index::Index;
use super::{Blocks, Part, ReadAhead, Role};
use crate::cache::{Block, Cache, LARGE_BYTES};
use crate::error::{Error, Result};
use crate::format::Malformed;
use crate::format::file::HEADER_BYTES;
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::memory::{Charge, Holder};
use crate::table::stored::BlockHandle;
use cuesta_device::{ALIGNMENT, AlignedBuf, ReadRequest, Ticket};
use std::sync::Arc;

/// The first read ahead of a walk of unknown length, in bytes.
const READ_AHEAD_FIRST: usize = 16 << 10;

/// Charged for a cursor besides what it reads ahead: two blocks.
const CURSOR_BYTES: u64 = 10 << 10;

/// A stretch of the data part that was read at once.
#[derive(Debug)]
struct Ahead {
    start: u64,
    bytes: AlignedBuf,
    _held: Charge,
}

/// The block that a cursor is on its way to.
#[derive(Debug)]
enum Coming {
    Cached(Block),
    /// A stretch that it is in, and where that starts.
    Read(u64, Ticket, Charge),
    /// It was read ahead.
    Ahead,
}

/// A position in a table.
#[derive(Debug)]
pub(crate) struct BlocksCursor {
    table: Arc<Blocks>,
    data: Part,
    cache: Arc<Cache>,
    fill: Fill,
    read_ahead: ReadAhead,
    /// The partition, its index block, and which of its entries the data block belongs to.
    partition: usize,
    index: Option<(Block, Index)>,
    at: usize,
    coming: Option<Coming>,
    block: Option<BlockCursor>,
    ahead: Option<Ahead>,
    /// Bytes that the last read brought beside the block that was needed.
    ahead_bytes: usize,
    /// The block before this one.
    last: BlockHandle,
    /// The data block and the index block that it is in, which the cache may have let go of.
    _held: Charge,
    /// The data block, if it is large.
    large: Option<Charge>,
}

impl BlocksCursor {
    pub(super) fn new(
        table: Arc<Blocks>,
        data: Part,
        cache: Arc<Cache>,
        fill: Fill,
        read_ahead: ReadAhead,
    ) -> Self {
        let held = cache.memory().charge(Holder::Reads, CURSOR_BYTES);
        Self {
            _held: held,
            large: None,
            table,
            data,
            cache,
            fill,
            read_ahead,
            partition: 0,
            index: None,
            at: 0,
            coming: None,
            block: None,
            ahead: None,
            ahead_bytes: 0,
            last: BlockHandle::default(),
        }
    }

    fn malformed(&self, handle: BlockHandle) -> impl FnOnce(Malformed) -> Error + use<> {
        let (file, offset) = (self.data.place.file, handle.offset);
        move |malformed| Error::corrupt(file.to_string(), offset, malformed)
    }

    fn handle(&self) -> Option<BlockHandle> {
        let (block, index) = self.index.as_ref()?;
        (self.at < index.len()).then(|| index.handle(block, self.at, 0))
    }

    /// Opens partition `partition`; past the end when there is none.
    fn open_partition(&mut self, partition: usize) -> Result<bool> {
        if partition >= self.table.top.len() {
            self.stop();
            return Ok(false);
        }
        if self.index.is_none() || self.partition != partition {
            // A merge leaves data out of the cache, but each index block serves hundreds of its steps.
            self.index = Some(self.table.index(&self.cache, partition, Fill::Yes)?);
            self.partition = partition;
        }
        Ok(true)
    }

    fn stop(&mut self) {
        self.index = None;
        self.coming = None;
        self.block = None;
    }

    /// Opens the partition that `target` is in and finds its block there.
    fn find(&mut self, target: Target<'_>) -> Result<()> {
        let top = |key, trailer| self.table.top.find(&self.table.top_block, key, trailer);
        let last = self.table.top.len().saturating_sub(1);
        let partition = match target {
            Target::AtOrAfter(key, trailer) => top(key, trailer),
            // Where everything lies before the target, its place is the end of the last block.
            Target::Before(key, trailer) => top(key, trailer).min(last),
            Target::First => 0,
            Target::Last => last,
        };
        if !self.open_partition(partition)? {
            return Ok(());
        }
        let Some((block, index)) = &self.index else { return Ok(()) };
        let last = index.len().saturating_sub(1);
        self.at = match target {
            Target::AtOrAfter(key, trailer) => index.find(block, key, trailer),
            Target::Before(key, trailer) => index.find(block, key, trailer).min(last),
            Target::First => 0,
            Target::Last => last,
        };
        Ok(())
    }

    /// Goes to block `at` of the partition and seats the cursor in it.
    fn open_block(&mut self, at: usize, target: Target<'_>) -> Result<()> {
        self.at = at;
        self.begin_block(target.is_forward())?;
        self.finish_block(target)
    }

    /// Begins to read block `at` of the partition, unless it is at hand.
    fn begin_block(&mut self, forward: bool) -> Result<()> {
        self.coming = None;
        let Some(handle) = self.handle() else {
            self.stop();
            return Ok(());
        };
        let sequential = match forward {
            true => self.last.end() == handle.offset,
            false => handle.end() == self.last.offset,
        };
        self.last = handle;
        if self.fill == Fill::Yes
            && let Some(block) = self.cache.block(self.table.cache_key(handle, Role::Data))
        {
            self.coming = Some(Coming::Cached(block));
            return Ok(());
        }
        if self.is_ahead(handle) {
            self.coming = Some(Coming::Ahead);
            return Ok(());
        }
        let (first, limit) = (HEADER_BYTES as u64, self.table.part_end(Role::Data));
        if handle.end() > limit || handle.offset < first {
            return Err(self.malformed(handle)(Malformed::new("an index points outside the data")));
        }
        let wanted = match sequential {
            true => (self.ahead_bytes * 2).max(READ_AHEAD_FIRST),
            // The target is somewhere in its block: half of that counts.
            false => self.read_ahead.expected_bytes.saturating_sub(handle.bytes as usize / 2),
        };
        // What was read ahead before is used up, and goes.
        self.ahead = None;
        let memory = self.cache.memory().clone();
        let wanted = wanted.min(self.read_ahead.max_bytes);
        // Merges have their share.
        let may = self.fill == Fill::No || memory.has_room_to_read_ahead(wanted as u64);
        self.ahead_bytes = if may { wanted } else { 0 };
        let ahead = self.ahead_bytes as u64;
        let (low, high) = self.wanted_range(first, limit);
        let (start, end) = match forward {
            true => (handle.offset, (handle.end() + ahead).min(high).max(handle.end())),
            false => (handle.offset.saturating_sub(ahead).max(low).min(handle.offset), handle.end()),
        };
        let start = start - start % ALIGNMENT as u64;
        let len = (end - start).next_multiple_of(ALIGNMENT as u64) as usize;
        let request = ReadRequest { buffer: AlignedBuf::zeroed(len), offset: start };
        let held = memory.charge(Holder::Reads, len as u64);
        self.coming = Some(Coming::Read(start, self.data.device.submit(request), held));
        Ok(())
    }

    /// Where the blocks begin and end that can hold wanted keys, as far as the present partition tells.
    fn wanted_range(&self, first: u64, limit: u64) -> (u64, u64) {
        let Some((block, index)) = self.index.as_ref().filter(|(_, index)| index.len() > 0) else {
            return (first, limit);
        };
        let of = |key: &[u8], trailer| {
            let i = index.find(block, key, trailer);
            (i < index.len()).then(|| (i, index.handle(block, i, 0)))
        };
        let low = self.read_ahead.low.as_deref().and_then(|key| of(key, Trailer::FIRST));
        let high = self.read_ahead.high.as_deref().and_then(|key| of(key, Trailer::LAST));
        (
            // The first block of a partition may have wanted ones before it.
            low.filter(|(i, _)| *i > 0).map_or(first, |(_, handle)| handle.offset),
            high.map_or(limit, |(_, handle)| handle.end()),
        )
    }

    /// Waits for the block that was begun and goes to `target` in it.
    fn finish_block(&mut self, target: Target<'_>) -> Result<()> {
        let (Some(coming), Some(handle)) = (self.coming.take(), self.handle()) else { return Ok(()) };
        let block = match coming {
            Coming::Cached(block) => block,
            Coming::Read(start, ticket, held) => {
                let bytes = ticket.wait().map_err(|source| self.data.read_failed(handle.offset, source))?;
                self.ahead = Some(Ahead { start, bytes, _held: held });
                self.unpack(handle)?
            }
            Coming::Ahead => self.unpack(handle)?,
        };
        let is_large = block.len() >= LARGE_BYTES;
        if is_large {
            // Its stored form is used up, and as large.
            self.ahead = None;
        }
        self.large = is_large.then(|| self.cache.memory().charge(Holder::Reads, block.len() as u64));
        let seated = match self.block.take() {
            Some(mut cursor) => cursor.reset(block).map(|()| cursor),
            None => BlockCursor::new(block),
        };
        let seated = seated.and_then(|mut cursor| cursor.go(target).map(|()| cursor));
        self.block = Some(seated.map_err(self.malformed(handle))?);
        Ok(())
    }

    /// A block out of what was read ahead.
    fn unpack(&self, handle: BlockHandle) -> Result<Block> {
        let Some(ahead) = &self.ahead else { return Err(Error::internal("what was read ahead is gone")) };
        let from = (handle.offset - ahead.start) as usize;
        let stored = &ahead.bytes[from..from + handle.bytes as usize];
        let block = self.data.unpack(stored, handle, Role::Data)?;
        if self.fill == Fill::Yes {
            self.cache.keep_block(self.table.cache_key(handle, Role::Data), block.clone());
        }
        Ok(block)
    }

    fn is_ahead(&self, handle: BlockHandle) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| {
            ahead.start <= handle.offset && handle.end() <= ahead.start + ahead.bytes.len() as u64
        })
    }

    /// While the block has nothing more, goes on to the first entry of the next.
    fn spill_forward(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|block| !block.is_valid()) {
            if self.index.as_ref().is_some_and(|(_, index)| self.at + 1 >= index.len()) {
                if !self.open_partition(self.partition + 1)? {
                    return Ok(());
                }
                self.open_block(0, Target::First)?;
            } else {
                self.open_block(self.at + 1, Target::First)?;
            }
        }
        Ok(())
    }

    /// While the block has nothing before, goes back to the last entry of the one before.
    fn spill_backward(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|block| !block.is_valid()) {
            if let Some(at) = self.at.checked_sub(1) {
                self.open_block(at, Target::Last)?;
                continue;
            }
            let Some(partition) = self.partition.checked_sub(1) else {
                self.stop();
                return Ok(());
            };
            self.open_partition(partition)?;
            let last = self.index.as_ref().map_or(0, |(_, index)| index.len().saturating_sub(1));
            self.open_block(last, Target::Last)?;
        }
        Ok(())
    }

    /// Past the end after a failure, so that nobody mistakes it for one.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let moved = work(self);
        if moved.is_err() {
            self.stop();
        }
        moved
    }
}

impl Cursor for BlocksCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        self.guarded(|cursor| {
            cursor.find(target)?;
            cursor.begin_block(target.is_forward())
        })
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        self.guarded(|cursor| {
            cursor.finish_block(target)?;
            match target.is_forward() {
                true => cursor.spill_forward(),
                false => cursor.spill_backward(),
            }
        })
    }

    fn next(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            let Some(block) = &mut cursor.block else { return Ok(()) };
            if let Err(malformed) = block.next() {
                return Err(cursor.malformed(cursor.handle().unwrap_or_default())(malformed));
            }
            cursor.spill_forward()
        })
    }

    fn prev(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            let Some(block) = &mut cursor.block else { return Ok(()) };
            if let Err(malformed) = block.prev() {
                return Err(cursor.malformed(cursor.handle().unwrap_or_default())(malformed));
            }
            cursor.spill_backward()
        })
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.block.as_ref()?.entry()
    }
}
