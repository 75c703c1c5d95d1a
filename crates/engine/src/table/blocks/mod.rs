//! Tables of blocks, for media that are read a page at a time.
//!
//! The data part is blocks of entries; the meta part the filters and indexes that lead to a block, cut into partitions
//! of about a page, and a small top index over these, which stays in memory while the table is open.
//!
//! A table that is put on others says for each partition where a search goes on below: in which table, and at which of
//! its partitions (NVLSM, section 4.5: block-level pointers). A lookup through several runs searches the top index of
//! the first one, and of the others looks at a bound or two. It does not spare reads: filters do that.
//!
//! A point read asks, in order, the top index (memory), the partition's filter and its index (cache, else one read
//! of the meta part each), and one data block (cache, else one aligned read of at most 8 KiB for blocks of the usual
//! size). A hit in the cache copies nothing and allocates nothing; a value is handed out as part of its block.

mod alone;
mod block;
mod cursor;
mod index;
mod remains;
mod verify;
mod writer;

pub(super) use alone::walk_alone;
pub(super) use cursor::BlocksCursor;
pub(crate) use remains::{Gap, Remains};
pub(super) use verify::{describe_meta, verify, walk};
pub(crate) use writer::{BlocksWriter, WriterOptions};

use super::filter;
use super::stored::{BlockHandle, FOOTER_BYTES, Footer, decode_stored};
use super::{Fill, Found, FoundIn, Link, Properties, ReadAhead, Way};
use crate::cache::{Block, BlockKey, BlockSlice, Cache, LARGE_BYTES};
use crate::error::{Error, Result};
use crate::format::file::{HEADER_BYTES, check_header};
use crate::format::{FileId, FileKind, Malformed, Place, StoreId};
use crate::key::{self, Target, Trailer};
use crate::memory::Holder;
use crate::planted::{self, Bug};
use block::BlockCursor;
use cuesta_device::{ALIGNMENT, AlignedBuf, Device};
use cuesta_sched::atomic::{AtomicU64, Ordering};
use index::Index;
use std::sync::Arc;

/// Bytes at the end of a meta part that are read at once: properties and top index of most tables, and all of a small
/// one.
const TAIL_BYTES: u64 = 16 << 10;

/// Handles of a partition in the top index.
const FILTER: usize = 0;
const INDEX: usize = 1;
const TOP_HANDLES: usize = 2;
/// And in a table that points into those below: no handle, but the number of one of these, and a partition of it.
const LINK: usize = 2;
const TOP_HANDLES_LINKED: usize = 3;

/// What kind of block is read, and so how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Data,
    Filter,
    Index,
}

/// One of a table's two files.
#[derive(Clone, Debug)]
struct Part {
    device: Arc<dyn Device>,
    place: Place,
}

/// An open table of blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    number: u64,
    data: Part,
    meta: Part,
    top_block: Vec<u8>,
    top: Index,
    properties: Properties,
    /// Reads of the data part.
    reads: Arc<AtomicU64>,
}

impl Part {
    fn new(store: StoreId, file: FileId, device: Arc<dyn Device>) -> Self {
        Self { device, place: Place { store, file, offset: 0 } }
    }

    fn corrupt(&self, offset: u64, malformed: Malformed) -> Error {
        Error::corrupt(self.place.file.to_string(), offset, malformed)
    }

    /// The aligned bytes around `offset..end`, with one read, and where `offset` is in them.
    fn read(&self, offset: u64, end: u64) -> Result<(AlignedBuf, usize)> {
        let start = offset - offset % ALIGNMENT as u64;
        let mut buffer = AlignedBuf::zeroed((end - start) as usize);
        self.device.read_at(&mut buffer, start).map_err(|source| self.read_failed(offset, source))?;
        Ok((buffer, (offset - start) as usize))
    }

    fn read_failed(&self, offset: u64, source: std::io::Error) -> Error {
        match source.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.corrupt(offset, Malformed::new("the file ends before the block does"))
            }
            _ => Error::io(format!("read {} at byte {offset}", self.place.file), source),
        }
    }

    /// Checks and unpacks a stored block.
    fn unpack(&self, stored: &[u8], handle: BlockHandle, role: Role) -> Result<Block> {
        let unpacked = decode_stored(stored, self.place.at(handle.offset)).and_then(|stored| {
            let fill = |raw: &mut [u8]| stored.compression.decompress(stored.payload, raw);
            let block = match role {
                Role::Data => Block::filled(stored.raw_bytes, fill)?,
                _ => Block::filled_to_stay(stored.raw_bytes, fill)?,
            };
            if role == Role::Index {
                Index::parse(&block, 1)?.check(&block)?;
            }
            Ok(block)
        });
        unpacked.map_err(|malformed| self.corrupt(handle.offset, malformed))
    }
}

impl Blocks {
    /// Opens table `number`: header, footer, properties and top index of the meta part, which one read brings of a
    /// small table, and two of most.
    ///
    /// # Errors
    /// `Corrupt` with file and offset; `Unsupported` for a newer format.
    pub(crate) fn open(
        store: StoreId,
        number: u64,
        data: Arc<dyn Device>,
        meta: Arc<dyn Device>,
        reads: Arc<AtomicU64>,
    ) -> Result<Self> {
        let file = FileId::new(FileKind::Meta, number);
        let meta = Part::new(store, file, meta);
        let len = meta.device.len().map_err(|source| Error::io(format!("measure {file}"), source))?;
        if len < ALIGNMENT as u64 || !len.is_multiple_of(ALIGNMENT as u64) {
            return Err(meta.corrupt(0, Malformed(format!("{len} bytes are not whole pages"))));
        }
        let tail = Tail::read(&meta, len)?;
        tail.with(0, HEADER_BYTES as u64, |header| check_header(header, store, file))?;
        let at = len - FOOTER_BYTES as u64;
        let footer = tail.with(at, len, |footer| {
            Footer::decode(footer, meta.place.at(at)).map_err(|malformed| meta.corrupt(at, malformed))
        })?;
        let top_block = tail.small_block(footer.top)?;
        let properties = tail.small_block(footer.properties)?;
        let parse = |malformed| meta.corrupt(footer.properties.offset, malformed);
        let mut properties = Properties::decode(&properties).map_err(parse)?;
        properties.meta_file_bytes = len;
        if properties.floor.is_some() {
            return Err(parse(Malformed::new("a floor where a table of blocks is expected")));
        }
        let handles = if properties.linked { TOP_HANDLES_LINKED } else { TOP_HANDLES };
        let top = Index::parse(&top_block, handles).and_then(|top| top.check(&top_block).map(|()| top));
        let top = top.map_err(|malformed| meta.corrupt(footer.top.offset, malformed))?;
        let data = Part::new(store, FileId::new(FileKind::Data, number), data);
        Ok(Self { number, data, meta, top_block, top, properties, reads })
    }

    /// Memory that its top index takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.top_block.len()
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The newest version of `key` at or after `bound` in the order of versions. Its block is in the cache for a
    /// moment; what stays of it is the caller's to say.
    pub(crate) fn get(
        &self,
        cache: &Cache,
        key: &[u8],
        bound: Trailer,
        link: &mut Option<Link>,
    ) -> Result<Option<Found>> {
        let partition = match link.take().filter(|link| link.table == self.number) {
            Some(link) => self.top.find_near(&self.top_block, link.partition as usize, key, bound),
            None => self.top.find(&self.top_block, key, bound),
        };
        if partition == self.top.len() {
            return Ok(None);
        }
        *link = self.link(partition);
        let filter = self.top.handle(&self.top_block, partition, FILTER);
        if filter.bytes > 0 {
            let block = self.block(cache, filter, Role::Filter, Fill::Yes)?;
            let may = filter::may_contain(&block, key::hash(key));
            if !may.map_err(|malformed| self.meta.corrupt(filter.offset, malformed))? {
                return Ok(None);
            }
        }
        let (index_block, index) = self.index(cache, partition, Fill::Yes)?;
        let i = index.find(&index_block, key, bound);
        if i == index.len() {
            return Ok(None);
        }
        let handle = index.handle(&index_block, i, 0);
        let name = self.cache_key(handle, Role::Data);
        let (data, was_cached) = match cache.block_for_point(name) {
            Some(found) => found,
            None => {
                let data = self.fetch(cache, handle, Role::Data)?;
                cache.keep_for_point(name, data.clone());
                (data, false)
            }
        };
        let found = BlockCursor::new(data).and_then(|mut cursor| {
            cursor.go(Target::AtOrAfter(key, bound))?;
            let hit = cursor.entry().filter(|entry| entry.key == key).map(|entry| entry.trailer);
            let value = || BlockSlice::new(cursor.block().clone(), cursor.value_range());
            Ok(hit.map(|trailer| Found {
                trailer,
                value: FoundIn::Block { value: value(), block: name, was_cached },
            }))
        });
        found.map_err(|malformed| self.data.corrupt(handle.offset, malformed))
    }

    /// Where a search for what this partition may have goes on below.
    fn link(&self, partition: usize) -> Option<Link> {
        let link = self.properties.linked.then(|| self.top.handle(&self.top_block, partition, LINK))?;
        (link.offset > 0).then_some(Link { table: link.offset, partition: link.bytes })
    }

    /// Where a search for this place begins.
    pub(super) fn link_to(&self, key: &[u8], trailer: Trailer) -> Link {
        let partition = self.top.find(&self.top_block, key, trailer) as u32;
        Link { table: self.number, partition }
    }

    /// What a lookup of `key` would have to read, with the cache as it is and left so.
    pub(crate) fn way_to(&self, cache: &Cache, key: &[u8], bound: Trailer) -> Result<Way> {
        let mut way = Way::default();
        let partition = self.top.find(&self.top_block, key, bound);
        if partition == self.top.len() {
            return Ok(way);
        }
        let is_missing = |handle, role| u64::from(!cache.has_block(self.cache_key(handle, role)));
        let filter = self.top.handle(&self.top_block, partition, FILTER);
        if filter.bytes > 0 {
            way.meta_reads += is_missing(filter, Role::Filter);
            let block = self.block(cache, filter, Role::Filter, Fill::No)?;
            let may = filter::may_contain(&block, key::hash(key));
            way.excluded = !may.map_err(|malformed| self.meta.corrupt(filter.offset, malformed))?;
            if way.excluded {
                return Ok(way);
            }
        }
        let handle = self.top.handle(&self.top_block, partition, INDEX);
        way.meta_reads += is_missing(handle, Role::Index);
        let (index_block, index) = self.index(cache, partition, Fill::No)?;
        let i = index.find(&index_block, key, bound);
        if i < index.len() {
            way.data_reads += is_missing(index.handle(&index_block, i, 0), Role::Data);
        }
        Ok(way)
    }

    /// What the filter says of a key, if it is in the cache, and there is one; the cache is left as it is.
    pub(crate) fn may_hold(&self, cache: &Cache, key: &[u8]) -> Option<bool> {
        let partition = self.top.find(&self.top_block, key, Trailer::FIRST);
        if partition == self.top.len() {
            return Some(false);
        }
        let filter = self.top.handle(&self.top_block, partition, FILTER);
        let block = cache.peek_block(self.cache_key(filter, Role::Filter)).filter(|_| filter.bytes > 0)?;
        filter::may_contain(&block, key::hash(key)).ok()
    }

    /// About which share of the table lies from `low` to `high`, by its partitions.
    pub(crate) fn share_of(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> f64 {
        let n = self.top.len();
        let find = |key: &[u8]| self.top.find(&self.top_block, key, Trailer::FIRST);
        let from =
            low.map_or(0, |low| if low <= self.properties.smallest_key.as_slice() { 0 } else { find(low) });
        let above = |high: &[u8]| high > self.properties.largest_key.as_slice();
        let to = high.map_or(n, |high| if above(high) { n } else { find(high) });
        // Both ends in one partition: half of it, for want of knowing better.
        if to > from { (to - from) as f64 / n as f64 } else { 0.5 / n as f64 }
    }

    /// Which share of the data part's bytes lies in blocks with keys after `after` and up to `up_to`; reads the indexes
    /// of at most two partitions.
    pub(crate) fn share_between(
        &self,
        cache: &Cache,
        after: Option<&[u8]>,
        up_to: Option<&[u8]>,
    ) -> Result<f64> {
        let first = HEADER_BYTES as u64;
        // Where the block that may have `key` begins, or where it ends.
        let place = |key: &[u8], is_end: bool| -> Result<u64> {
            let partition = self.top.find(&self.top_block, key, Trailer::LAST);
            if partition == self.top.len() {
                return Ok(self.properties.data_end);
            }
            let (block, index) = self.index(cache, partition, Fill::No)?;
            let i = index.find(&block, key, Trailer::LAST);
            Ok(match index.len().checked_sub(1) {
                None => self.properties.data_end,
                Some(last) if is_end || i > last => index.handle(&block, i.min(last), 0).end(),
                Some(_) => index.handle(&block, i, 0).offset,
            })
        };
        let from = after.map_or(Ok(first), |key| place(key, false))?;
        let to = up_to.map_or(Ok(self.properties.data_end), |key| place(key, true))?;
        Ok(to.saturating_sub(from) as f64 / self.properties.data_end.saturating_sub(first).max(1) as f64)
    }

    /// Where every block of the data part lies, in order; reads all indexes. `None` where these do not account for all
    /// of it.
    pub(crate) fn handles(&self) -> Result<Option<Vec<BlockHandle>>> {
        let cache = Cache::new(1 << 20, 0);
        let mut handles = Vec::new();
        for partition in 0..self.top.len() {
            let (block, index) = self.index(&cache, partition, Fill::No)?;
            handles.extend((0..index.len()).map(|i| index.handle(&block, i, 0)));
        }
        let begin = |handle: &BlockHandle| handle.offset;
        let ends = [HEADER_BYTES as u64].into_iter().chain(handles.iter().map(|handle| handle.end()));
        let is_all = ends.eq(handles.iter().map(begin).chain([self.properties.data_end]));
        Ok(is_all.then_some(handles))
    }

    /// A partition's index block.
    fn index(&self, cache: &Cache, partition: usize, fill: Fill) -> Result<(Block, Index)> {
        let handle = self.top.handle(&self.top_block, partition, INDEX);
        let block = self.block(cache, handle, Role::Index, fill)?;
        let index =
            Index::parse(&block, 1).map_err(|malformed| self.meta.corrupt(handle.offset, malformed))?;
        Ok((block, index))
    }

    /// A block, from the cache or with one read.
    fn block(&self, cache: &Cache, handle: BlockHandle, role: Role, fill: Fill) -> Result<Block> {
        let key = self.cache_key(handle, role);
        if let Some(block) = cache.block(key) {
            return Ok(block);
        }
        let block = self.fetch(cache, handle, role)?;
        if fill == Fill::Yes {
            cache.keep_block(key, block.clone());
        }
        Ok(block)
    }

    /// A block, with one read.
    fn fetch(&self, cache: &Cache, handle: BlockHandle, role: Role) -> Result<Block> {
        let part = if role == Role::Data { &self.data } else { &self.meta };
        let limit = self.part_end(role);
        if handle.end() > limit || handle.offset < HEADER_BYTES as u64 {
            let malformed = Malformed(format!("an index points at {}..{}", handle.offset, handle.end()));
            return Err(part.corrupt(handle.offset, malformed));
        }
        if role == Role::Data {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        // The stored form and the block, while both are here.
        let is_large = u64::from(handle.bytes) >= LARGE_BYTES as u64;
        let _held = is_large.then(|| cache.memory().charge(Holder::Reads, 2 * u64::from(handle.bytes)));
        if is_large {
            cache.fit();
        }
        let (bytes, from) = part.read(handle.offset, handle.end())?;
        part.unpack(&bytes[from..from + handle.bytes as usize], handle, role)
    }

    fn cache_key(&self, handle: BlockHandle, role: Role) -> BlockKey {
        let table = if planted::has(Bug::CacheKeyWithoutTable) { 0 } else { self.number };
        BlockKey { table, at: handle.offset << 1 | u64::from(role != Role::Data) }
    }

    /// Where the blocks of a part must end.
    fn part_end(&self, role: Role) -> u64 {
        match role {
            Role::Data => self.properties.data_end,
            Role::Filter | Role::Index => self.properties.meta_file_bytes,
        }
    }

    /// A cursor for readers.
    pub(crate) fn cursor(
        self: &Arc<Self>,
        cache: Arc<Cache>,
        fill: Fill,
        read_ahead: ReadAhead,
    ) -> BlocksCursor {
        BlocksCursor::new(self.clone(), self.data.clone(), cache, fill, read_ahead)
    }

    /// A cursor for merges: reads through `data`, `bytes` at once from the start on, and leaves the cache alone.
    pub(crate) fn cursor_over(
        self: &Arc<Self>,
        data: Arc<dyn Device>,
        cache: Arc<Cache>,
        bytes: usize,
    ) -> BlocksCursor {
        let part = Part { device: data, place: self.data.place };
        let read_ahead = ReadAhead { expected_bytes: bytes, max_bytes: bytes, ..ReadAhead::default() };
        BlocksCursor::new(self.clone(), part, cache, Fill::No, read_ahead)
    }
}

/// The end of a part, in memory, and the part.
struct Tail<'a> {
    part: &'a Part,
    len: u64,
    start: u64,
    bytes: AlignedBuf,
}

impl<'a> Tail<'a> {
    /// Of a part of `len` bytes, with one read.
    fn read(part: &'a Part, len: u64) -> Result<Self> {
        let start = len.saturating_sub(TAIL_BYTES);
        let last = len - ALIGNMENT as u64;
        let read = part.read(start, len).map(|(bytes, _)| (start, bytes));
        // A page that cannot be read is no reason not to open the table, if it is another than the last.
        let (start, bytes) = read.or_else(|_| part.read(last, len).map(|(bytes, _)| (last, bytes)))?;
        Ok(Self { part, len, start, bytes })
    }

    /// Hands over the bytes `offset..end`, with a read of their own if they are not in memory.
    fn with<T>(&self, offset: u64, end: u64, look: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let bytes = (end - offset) as usize;
        if let Some(from) = offset.checked_sub(self.start) {
            return look(&self.bytes[from as usize..][..bytes]);
        }
        let (read, from) = self.part.read(offset, end)?;
        look(&read[from..][..bytes])
    }

    /// A block that is kept outside the cache.
    fn small_block(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        let Self { part, len, .. } = *self;
        if handle.end() > len || handle.offset < HEADER_BYTES as u64 {
            let malformed = Malformed::new("the footer points outside the file");
            return Err(part.corrupt(len - FOOTER_BYTES as u64, malformed));
        }
        let raw = self.with(handle.offset, handle.end(), |stored| {
            let stored = decode_stored(stored, part.place.at(handle.offset));
            Ok(stored.and_then(|stored| {
                let mut raw = vec![0; stored.raw_bytes];
                stored.compression.decompress(stored.payload, &mut raw).map(|()| raw)
            }))
        })?;
        raw.map_err(|malformed| part.corrupt(handle.offset, malformed))
    }
}

/// What the micro-benchmarks look at.
#[cfg(feature = "internals")]
pub(super) mod parts {
    pub(crate) use super::block::{BlockBuilder, BlockCursor};
}

/// Constants that `docs/format/table.md` names.
#[cfg(test)]
pub(super) mod documented {
    pub(crate) use super::block::RESTART_INTERVAL;
}

#[cfg(test)]
mod tests;
