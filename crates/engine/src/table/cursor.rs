//! Walks over a table's entries, with read-ahead.
//!
//! A cursor that has moved through two neighbouring blocks in a row reads further ones ahead with one call, twice as
//! many bytes each time, up to its limit; a jump starts over. Blocks that are cached already are used first. Steps
//! inside a block touch nothing but the block.

use super::block::BlockCursor;
use super::cache::{Block, BlockCache, Fill};
use super::index::{BlockHandle, Index};
use super::{Part, Role, Table};
use crate::error::{Error, Result};
use crate::format::{Decode, Malformed};
use crate::key::{Cursor, Entry, Trailer};
use cuesta_device::AlignedBuf;
use std::sync::Arc;

/// The first read ahead, in bytes.
const READ_AHEAD_FIRST: usize = 16 << 10;

/// A stretch of the data part that was read at once.
#[derive(Debug)]
struct Ahead {
    start: u64,
    bytes: AlignedBuf,
}

/// A position in a table.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    data: Part,
    cache: Arc<BlockCache>,
    fill: Fill,
    limit: usize,
    /// The partition, its index block, and which of its entries the data block belongs to.
    partition: usize,
    index: Option<(Block, Index)>,
    at: usize,
    block: Option<BlockCursor>,
    ahead: Option<Ahead>,
    /// Bytes to read at the next miss; 0 as long as the walk is not known to be sequential.
    ahead_bytes: usize,
    /// Where the block before this one ended.
    last_end: u64,
}

impl TableCursor {
    pub(super) fn new(
        table: Arc<Table>,
        data: Part,
        cache: Arc<BlockCache>,
        fill: Fill,
        limit: usize,
    ) -> Self {
        Self {
            table,
            data,
            cache,
            fill,
            limit,
            partition: 0,
            index: None,
            at: 0,
            block: None,
            ahead: None,
            ahead_bytes: 0,
            last_end: 0,
        }
    }

    /// Reads ahead from the first block on.
    pub(super) fn sequential(mut self) -> Self {
        self.ahead_bytes = self.limit;
        self
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
        self.block = None;
    }

    /// Moves to block `at` of the partition and seats the cursor in it.
    fn open_block(&mut self, at: usize, seat: impl FnOnce(&mut BlockCursor) -> Decode<()>) -> Result<()> {
        self.at = at;
        let Some(handle) = self.handle() else {
            self.stop();
            return Ok(());
        };
        let block = self.read_block(handle)?;
        let seated = match self.block.take() {
            Some(mut cursor) => cursor.reset(block).map(|()| cursor),
            None => BlockCursor::new(block),
        };
        let seated = seated.and_then(|mut cursor| seat(&mut cursor).map(|()| cursor));
        self.block = Some(seated.map_err(self.malformed(handle))?);
        Ok(())
    }

    fn read_block(&mut self, handle: BlockHandle) -> Result<Block> {
        let sequential = self.last_end == handle.offset;
        self.last_end = handle.end();
        if self.fill == Fill::Yes {
            if let Some(block) = self.cache.get(self.table.cache_key(handle, Role::Data)) {
                return Ok(block);
            }
            self.ahead_bytes = match (sequential, self.ahead_bytes) {
                (false, _) => 0,
                (true, 0) => READ_AHEAD_FIRST.min(self.limit),
                (true, bytes) => bytes,
            };
        }
        if !self.is_ahead(handle) {
            let end = self.table.part_end(Role::Data);
            if handle.end() > end || handle.offset < crate::format::file::HEADER_BYTES as u64 {
                return Err(self.malformed(handle)(Malformed::new("an index points outside the data")));
            }
            let wanted = (handle.offset + self.ahead_bytes as u64).clamp(handle.end(), end);
            let (bytes, from) = self.data.read(handle.offset, wanted)?;
            self.ahead = Some(Ahead { start: handle.offset - from as u64, bytes });
            if self.ahead_bytes > 0 {
                self.ahead_bytes = (self.ahead_bytes * 2).min(self.limit);
            }
        }
        let Some(ahead) = &self.ahead else { return Err(Error::internal("what was read ahead is gone")) };
        let from = (handle.offset - ahead.start) as usize;
        let stored = &ahead.bytes[from..from + handle.bytes as usize];
        let block = self.data.unpack(stored, handle, Role::Data, &self.cache)?;
        if self.fill == Fill::Yes {
            self.cache.insert(self.table.cache_key(handle, Role::Data), block.clone());
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
                self.open_block(0, BlockCursor::first)?;
            } else {
                self.open_block(self.at + 1, BlockCursor::first)?;
            }
        }
        Ok(())
    }

    /// While the block has nothing before, goes back to the last entry of the one before.
    fn spill_backward(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|block| !block.is_valid()) {
            if let Some(at) = self.at.checked_sub(1) {
                self.open_block(at, BlockCursor::last)?;
                continue;
            }
            let Some(partition) = self.partition.checked_sub(1) else {
                self.stop();
                return Ok(());
            };
            self.open_partition(partition)?;
            let last = self.index.as_ref().map_or(0, |(_, index)| index.len().saturating_sub(1));
            self.open_block(last, BlockCursor::last)?;
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

impl Cursor for TableCursor {
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.guarded(|cursor| {
            let partition = cursor.table.top.find(&cursor.table.top_block, key, trailer);
            if !cursor.open_partition(partition)? {
                return Ok(());
            }
            let at = cursor.index.as_ref().map_or(0, |(block, index)| index.find(block, key, trailer));
            cursor.open_block(at, |block| block.seek(key, trailer))?;
            cursor.spill_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.guarded(|cursor| {
            let partition = cursor.table.top.find(&cursor.table.top_block, key, trailer);
            if partition >= cursor.table.top.len() {
                return cursor.last();
            }
            cursor.open_partition(partition)?;
            let at = cursor.index.as_ref().map_or(0, |(block, index)| index.find(block, key, trailer));
            cursor.open_block(at, |block| block.seek_before(key, trailer))?;
            cursor.spill_backward()
        })
    }

    fn first(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            if !cursor.open_partition(0)? {
                return Ok(());
            }
            cursor.open_block(0, BlockCursor::first)?;
            cursor.spill_forward()
        })
    }

    fn last(&mut self) -> Result<()> {
        self.guarded(|cursor| {
            let Some(partition) = cursor.table.top.len().checked_sub(1) else { return Ok(()) };
            cursor.open_partition(partition)?;
            let at = cursor.index.as_ref().map_or(0, |(_, index)| index.len().saturating_sub(1));
            cursor.open_block(at, BlockCursor::last)?;
            cursor.spill_backward()
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
