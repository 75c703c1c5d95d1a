//! Writes a table: entries in, two files out.
//!
//! Data blocks are cut so that each fits the target with its trailer wherever its entries do. Blocks are gathered into
//! partitions; a partition gets an index block and a filter block of at most about a page each (an index of up to five
//! where keys that begin alike end, and others begin), so that one lookup needs one of each. Memory: what two files
//! being written take ([`crate::table::sink`]), the block being built, the partition's key hashes and bounds, and the
//! table's list of partitions. Each entry is copied once, into its block.

use super::block::BlockBuilder;
use super::index::{IndexBuilder, bound_between};
use super::{TOP_HANDLES, TOP_HANDLES_LINKED};
use crate::error::{Error, Result};
use crate::format::file::HEADER_BYTES;
use crate::format::{FileId, FileKind, StoreId};
use crate::key::{Entry, Trailer, compare};
use crate::table::Link;
use crate::table::compression::Compression;
use crate::table::filter;
use crate::table::properties::Properties;
use crate::table::sink::Sink;
use crate::table::stored::{BLOCK_TRAILER_BYTES, BlockHandle, FOOTER_BYTES, Footer};
use cuesta_device::Device;
use std::cmp::Ordering;
use std::sync::Arc;

/// Target size of an index or filter block.
const PARTITION_BLOCK_BYTES: usize = 4000;

/// How a table is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterOptions {
    pub(crate) compression: Compression,
    /// 0 for no filters.
    pub(crate) filter_bits_per_key: u32,
    pub(crate) block_bytes: u32,
    /// Partitions say where a search goes on below.
    pub(crate) links: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { compression: Compression::None, filter_bits_per_key: 10, block_bytes: 4096, links: false }
    }
}

/// A table being written.
#[derive(Debug)]
pub(crate) struct BlocksWriter {
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
    link: Option<Link>,
    /// The partitions so far.
    top: IndexBuilder,
    properties: Properties,
}

impl BlocksWriter {
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
            linked: options.links,
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
            link: None,
            top: IndexBuilder::default(),
            properties,
        })
    }

    /// Whether what was added last is the first of a partition, of which [`Self::set_link`] may say where a search goes
    /// on.
    pub(crate) fn wants_link(&self) -> bool {
        self.options.links && self.link.is_none() && self.index.is_empty() && self.block.has_one()
    }

    pub(crate) fn set_link(&mut self, link: Option<Link>) {
        self.link = link;
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
        let link = self.link.take().map(|link| BlockHandle { offset: link.table, bytes: link.partition });
        let handles = [filter, index, link.unwrap_or_default()];
        let wanted = if self.options.links { TOP_HANDLES_LINKED } else { TOP_HANDLES };
        self.top.add(key, trailer, &handles[..wanted]);
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
