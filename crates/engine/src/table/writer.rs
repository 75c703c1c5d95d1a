//! Writes a table: entries in, two files out.
//!
//! Data blocks are cut so that each fits the target with its trailer wherever its entries do. Blocks are gathered
//! into partitions; a partition gets an index block and a filter block of at most about a page each, so that one
//! lookup needs one of each. Memory: two staging buffers of 256 KiB, one that is filled while the other is written
//! (a second one for the meta part only when that is larger than the first), the block being built, the partition's key
//! hashes and bounds, and the table's list of partitions. Each entry is copied once, into its block.

use super::block::BlockBuilder;
use super::compression::Compression;
use super::filter;
use super::index::{BlockHandle, IndexBuilder, bound_between};
use super::properties::Properties;
use super::stored::{BLOCK_TRAILER_BYTES, FOOTER_BYTES, Footer, encode_block_trailer};
use crate::error::{Error, Result};
use crate::format::file::{HEADER_BYTES, encode_header};
use crate::format::{FileId, FileKind, Place, StoreId};
use crate::key::{Entry, Trailer, compare};
use crate::planted::{self, Bug};
use cuesta_device::{ALIGNMENT, AlignedBuf, Device, Ticket, WriteRequest};
use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

/// Bytes gathered before they are written.
const STAGING_BYTES: usize = 256 << 10;
/// Target size of an index or filter block.
const PARTITION_BLOCK_BYTES: usize = 4000;

/// After so many blocks that did not compress, one in so many is tried.
const UNPACKED_MAX: u32 = 16;

/// How a table is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterOptions {
    pub(crate) compression: Compression,
    /// 0 for no filters.
    pub(crate) filter_bits_per_key: u32,
    pub(crate) block_bytes: u32,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { compression: Compression::None, filter_bits_per_key: 10, block_bytes: 4096 }
    }
}

/// One file being written from front to back, in aligned pieces.
#[derive(Debug)]
struct Sink {
    device: Arc<dyn Device>,
    place: Place,
    staging: AlignedBuf,
    staged: usize,
    /// The piece before, while it is being written.
    under_way: Option<Ticket>,
    /// Blocks in a row that compression did not make smaller.
    unpacked: u32,
    /// Bytes written to the device.
    written: u64,
}

impl Sink {
    fn new(device: Arc<dyn Device>, store: StoreId, file: FileId) -> Result<Self> {
        let place = Place { store, file, offset: 0 };
        let staging = AlignedBuf::zeroed(STAGING_BYTES);
        let mut sink = Self { device, place, staging, staged: 0, under_way: None, unpacked: 0, written: 0 };
        sink.push(&encode_header(store, file))?;
        Ok(sink)
    }

    fn offset(&self) -> u64 {
        self.written + self.staged as u64
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(STAGING_BYTES - self.staged);
            self.staging[self.staged..self.staged + n].copy_from_slice(&bytes[..n]);
            self.staged += n;
            bytes = &bytes[n..];
            if self.staged == STAGING_BYTES {
                self.begin_write()?;
            }
        }
        Ok(())
    }

    /// Has the full staging buffer written while the other is being filled.
    fn begin_write(&mut self) -> Result<()> {
        let free = self.await_write()?.unwrap_or_else(|| AlignedBuf::zeroed(STAGING_BYTES));
        let (buffer, bytes) = (std::mem::replace(&mut self.staging, free), STAGING_BYTES);
        let request = WriteRequest { buffer, bytes, offset: self.written };
        self.under_way = Some(self.device.submit_write(request));
        self.written += bytes as u64;
        self.staged = 0;
        Ok(())
    }

    /// Waits for the piece that is being written; its buffer.
    fn await_write(&mut self) -> Result<Option<AlignedBuf>> {
        let Some(ticket) = self.under_way.take() else { return Ok(None) };
        ticket.wait().map(Some).map_err(|source| self.write_failed(source))
    }

    fn write_failed(&self, source: io::Error) -> Error {
        Error::io(format!("write {}", self.place.file), source)
    }

    /// Data that does not compress is not tried block by block: after some that did not, one in so many is.
    fn tries_to_pack(&self) -> bool {
        self.unpacked < UNPACKED_MAX || self.unpacked.is_multiple_of(UNPACKED_MAX)
    }

    /// Stores a block with its trailer.
    fn block(&mut self, raw: &[u8], compression: Compression) -> Result<BlockHandle> {
        let packed = if self.tries_to_pack() { compression.compress(raw) } else { None };
        self.unpacked = if packed.is_some() { 0 } else { self.unpacked + 1 };
        let (payload, compression) = match &packed {
            Some(packed) => (&packed[..], compression),
            None => (raw, Compression::None),
        };
        let offset = self.offset();
        let trailer = encode_block_trailer(self.place.at(offset), payload, compression, raw.len());
        self.push(payload)?;
        self.push(&trailer)?;
        Ok(BlockHandle { offset, bytes: (payload.len() + BLOCK_TRAILER_BYTES) as u32 })
    }

    /// Fills the last page with zeros, but for `tail` at its very end, and makes the file durable: its length.
    fn finish(&mut self, tail: impl FnOnce(Place) -> Vec<u8>, tail_bytes: usize) -> Result<u64> {
        let len = (self.offset() + tail_bytes as u64).next_multiple_of(ALIGNMENT as u64);
        let at = len - tail_bytes as u64;
        let zeros = vec![0; (at - self.offset()) as usize];
        self.push(&zeros)?;
        self.push(&tail(self.place.at(at)))?;
        if self.staged > 0 {
            let written = self.device.write_at(&self.staging[..self.staged], self.written);
            written.map_err(|source| self.write_failed(source))?;
        }
        self.await_write()?;
        let bug = match self.place.file.kind {
            FileKind::Data => Bug::TableDataSyncDropped,
            _ => Bug::TableMetaSyncDropped,
        };
        if !planted::has(bug) {
            self.device.sync().map_err(|source| Error::io(format!("sync {}", self.place.file), source))?;
        }
        Ok(len)
    }
}

/// A table being written.
#[derive(Debug)]
pub(crate) struct TableWriter {
    number: u64,
    options: WriterOptions,
    data: Sink,
    meta: Sink,
    block: BlockBuilder,
    /// Last entry's key and trailer.
    last: (Vec<u8>, Trailer),
    /// The data block that is stored, but whose bound waits for the first key of the next.
    pending: Option<BlockHandle>,
    /// Of the partition being gathered.
    index: IndexBuilder,
    hashes: Vec<u64>,
    /// The partitions so far.
    top: IndexBuilder,
    properties: Properties,
}

impl TableWriter {
    /// Begins table `number` in two new files.
    pub(crate) fn new(
        store: StoreId,
        number: u64,
        data: Arc<dyn Device>,
        meta: Arc<dyn Device>,
        options: WriterOptions,
    ) -> Result<Self> {
        let properties = Properties {
            filter_bits_per_key: options.filter_bits_per_key,
            compression: options.compression,
            ..Properties::default()
        };
        Ok(Self {
            number,
            options,
            data: Sink::new(data, store, FileId::new(FileKind::Data, number))?,
            meta: Sink::new(meta, store, FileId::new(FileKind::Meta, number))?,
            block: BlockBuilder::default(),
            last: (Vec::new(), Trailer::FIRST),
            pending: None,
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            top: IndexBuilder::default(),
            properties,
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the data part so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data.offset() + self.block.len() as u64
    }

    /// Adds an entry behind the last.
    ///
    /// # Errors
    /// `Internal` when it is not behind it; what the devices say.
    pub(crate) fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        let first = self.properties.entries == 0;
        if !first && compare((&self.last.0, self.last.1), (entry.key, entry.trailer)) != Ordering::Less {
            return Err(Error::internal(format!("table {}: {entry:?} is out of order", self.number)));
        }
        let target = self.options.block_bytes as usize;
        if !self.block.is_empty() && self.block.len_with(entry) + BLOCK_TRAILER_BYTES > target {
            self.store_block()?;
        }
        self.bound_pending(Some(entry.key))?;
        let new_key = first || self.last.0 != entry.key;
        if new_key && self.options.filter_bits_per_key > 0 {
            self.hashes.push(crate::key::hash(entry.key));
        }
        self.block.add(entry);
        self.properties.count(entry);
        self.last.0.clear();
        self.last.0.extend_from_slice(entry.key);
        self.last.1 = entry.trailer;
        Ok(())
    }

    fn store_block(&mut self) -> Result<()> {
        let handle = self.data.block(self.block.finish(), self.options.compression)?;
        self.block.clear();
        self.pending = Some(handle);
        Ok(())
    }

    /// Gives the stored block its bound, below `next`, and closes the partition when it is full.
    fn bound_pending(&mut self, next: Option<&[u8]>) -> Result<()> {
        let Some(handle) = self.pending.take() else { return Ok(()) };
        let last = (&self.last.0[..], self.last.1);
        let (key, trailer) = match next {
            Some(next) => bound_between(last, next),
            None => (last.0.to_vec(), Trailer::LAST),
        };
        self.index.add(&key, trailer, &[handle]);
        let filter_bytes = filter::filter_bytes(self.hashes.len(), self.options.filter_bits_per_key);
        if next.is_none() || self.index.bytes().max(filter_bytes) > PARTITION_BLOCK_BYTES {
            // A key whose versions go on in the next partition must be found through that one's filter too.
            let continues = next == Some(last.0);
            let hash = self.hashes.last().copied();
            self.store_partition(&key, trailer)?;
            self.hashes.extend(hash.filter(|_| continues));
        }
        Ok(())
    }

    fn store_partition(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let filter = match self.options.filter_bits_per_key {
            0 => BlockHandle::default(),
            bits => self.meta.block(&filter::build(&self.hashes, bits), Compression::None)?,
        };
        self.hashes.clear();
        let index = self.meta.block(&self.index.finish(), Compression::None)?;
        self.top.add(key, trailer, &[filter, index]);
        Ok(())
    }

    /// Stores what is left and makes both files durable; their names are not.
    ///
    /// # Errors
    /// `Internal` for a table without entries; what the devices say.
    pub(crate) fn finish(mut self) -> Result<Properties> {
        if self.properties.entries == 0 {
            return Err(Error::internal(format!("table {} has no entries", self.number)));
        }
        self.store_block()?;
        self.bound_pending(None)?;
        self.properties.largest_key = std::mem::take(&mut self.last.0);
        self.properties.data_end = self.data.offset();
        self.properties.data_file_bytes = self.data.finish(|_| Vec::new(), 0)?;
        let top = self.meta.block(&self.top.finish(), Compression::None)?;
        let properties = self.meta.block(&self.properties.encode(), Compression::None)?;
        let footer = Footer { top, properties };
        self.properties.meta_file_bytes = self.meta.finish(|place| footer.encode(place), FOOTER_BYTES)?;
        debug_assert!(self.properties.meta_file_bytes.is_multiple_of(HEADER_BYTES as u64));
        Ok(self.properties)
    }
}
