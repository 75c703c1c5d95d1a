//! Writes a floor: entries in, two files out, each entry with its pointer into the floors below.
//!
//! Pointers are found by one walk over the new floor and the old top together (NVLSM, section 4.2 and Fig. 5). Keys
//! behind the old top's last entry go on where that one's pointer leads, since the floors that it leaves out end before
//! them. Where the new entries are few the walk leaps.
//!
//! Each byte is copied once, into a staging buffer. Memory: what two files being written take, and, counted by who has
//! it written ([`FloorWriter::held_bytes`]), the hashes of the keys for the filter, and four bytes for each sector; at
//! the end the filter, and these bytes once more, too.

use super::entry::{DATA_BYTES_MAX, FLOORS_MAX, Head, PREFIX_BYTES, Pointer, prefix_of};
use super::tree::check;
use super::{Floor, SECTOR_BYTES, SUM_BYTES, Shape, Tree};
use crate::error::{Error, Result};
use crate::format::file::HEADER_BYTES;
use crate::format::{FileId, FileKind, StoreId};
use crate::key::{self, Entry, Trailer, compare};
use crate::planted::{self, Bug};
use crate::table::Properties;
use crate::table::compression::Compression;
use crate::table::filter::{self, FILTER_HEADER_BYTES, LINE_BYTES};
use crate::table::sink::Sink;
use crate::table::stored::{BlockHandle, FOOTER_BYTES, Footer};
use cuesta_device::Device;
use std::cmp::Ordering;
use std::sync::Arc;

/// How a floor is to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloorOptions {
    /// What all of its keys will begin with.
    pub(crate) shared: Vec<u8>,
    /// 0 for no filter.
    pub(crate) filter_bits_per_key: u32,
    /// Bytes that data and meta part have at most.
    pub(crate) most: (u64, u64),
}

/// A floor being written.
#[derive(Debug)]
pub(crate) struct FloorWriter {
    number: u64,
    data: Sink,
    meta: Sink,
    below: Tree,
    /// Where the last pointer led: the place from which the next is looked for.
    walk: Option<Pointer>,
    /// Last entry's key and trailer.
    last: (Vec<u8>, Trailer),
    hashes: Vec<u64>,
    shape: Shape,
    properties: Properties,
}

impl FloorWriter {
    /// Begins floor `number` in two new files, to lie on the floors of `below`.
    ///
    /// # Errors
    /// `Internal` when there can be no further floor; what the devices say.
    pub(crate) fn new(
        store: StoreId,
        number: u64,
        data: Arc<dyn Device>,
        meta: Arc<dyn Device>,
        options: FloorOptions,
        below: Tree,
    ) -> Result<Self> {
        let slot = below.floors().len();
        if slot >= FLOORS_MAX {
            return Err(Error::internal(format!("floor {number} would be one more than a tree can have")));
        }
        let FloorOptions { shared, filter_bits_per_key, most } = options;
        let top = below.floors().last();
        let sink = |device, kind, most| {
            let sink = Sink::new(device, store, FileId::new(kind, number))?;
            Ok(sink.with_sums(SECTOR_BYTES).with_room(most))
        };
        Ok(Self {
            number,
            data: sink(data, FileKind::Data, most.0)?,
            meta: sink(meta, FileKind::Meta, most.1)?,
            walk: slot.checked_sub(1).map(|top| Pointer { slot: top as u8, at: 0 }),
            shape: Shape {
                shared,
                slot: slot as u8,
                below: top.map_or(0, |floor| floor.number()),
                filter: BlockHandle::default(),
            },
            below,
            last: (Vec::new(), Trailer::FIRST),
            hashes: Vec::new(),
            properties: Properties { filter_bits_per_key, ..Properties::default() },
        })
    }

    /// What entries take so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.offset() + self.meta.offset()
    }

    /// Memory that it takes for what it has been given, and will take for that at its end.
    pub(crate) fn held_bytes(&self) -> u64 {
        let filter = self.hashes.len() as u64 * u64::from(self.properties.filter_bits_per_key) / 8;
        let sums = self.bytes() / SECTOR_BYTES as u64 * SUM_BYTES as u64;
        (self.hashes.capacity() * size_of::<u64>()) as u64 + filter + 2 * sums
    }

    /// Adds an entry behind the last.
    ///
    /// # Errors
    /// `Internal` when it is not behind it, has another beginning than all keys were to have, or there is no room for
    /// it in a floor; what the devices say.
    pub(crate) fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        let first = self.properties.entries == 0;
        if !first && compare((&self.last.0, self.last.1), (entry.key, entry.trailer)) != Ordering::Less {
            return Err(Error::internal(format!("floor {}: {entry:?} is out of order", self.number)));
        }
        let offset = self.data.offset();
        let key = entry.key.strip_prefix(self.shape.shared.as_slice());
        let room = self.properties.entries + 1 < u64::from(u32::MAX)
            && offset + ((entry.key.len() + entry.value.len()) as u64) < DATA_BYTES_MAX;
        let Some(key) = key.filter(|_| room) else {
            return Err(Error::internal(format!("floor {}: {entry:?} cannot be in it", self.number)));
        };
        let head = Head {
            prefix: prefix_of(key),
            trailer: entry.trailer,
            offset,
            value_bytes: entry.value.len() as u32,
            key_bytes: key.len() as u32,
            next: self.next_below(entry.key, entry.trailer)?,
        };
        self.data.push(key.get(PREFIX_BYTES..).unwrap_or_default())?;
        self.data.push(entry.value)?;
        self.meta.push(&head.encode())?;
        if self.properties.filter_bits_per_key > 0 && (first || self.last.0 != entry.key) {
            self.hashes.push(key::hash(entry.key));
        }
        self.properties.count(entry);
        self.last.0.clear();
        self.last.0.extend_from_slice(entry.key);
        self.last.1 = entry.trailer;
        Ok(())
    }

    /// The first entry at or behind this place in the highest floor below that has any.
    fn next_below(&mut self, key: &[u8], trailer: Trailer) -> Result<Option<Pointer>> {
        while let Some(Pointer { slot, at }) = self.walk {
            let floor: &Floor = &self.below.floors()[usize::from(slot)];
            let at = floor.lower_bound_near(key, trailer, at..floor.entries())?;
            if at < floor.entries() {
                let past = u32::from(planted::has(Bug::PointerOffByOne) && at + 1 < floor.entries());
                self.walk = Some(Pointer { slot, at: at + past });
                break;
            }
            self.walk = floor.pointer(at - 1)?;
            if let Some(pointer) = self.walk {
                check(self.below.floors(), usize::from(slot), pointer)?;
            }
        }
        Ok(self.walk)
    }

    /// Stores what is left and makes both files durable; their names are not.
    ///
    /// # Errors
    /// `Internal` for a floor without entries; `Io` when the memory of those below was lost; what the devices say.
    pub(crate) fn finish(mut self) -> Result<Properties> {
        if self.properties.entries == 0 {
            return Err(Error::internal(format!("floor {} has no entries", self.number)));
        }
        // Pointers that were found in memory that is gone lead anywhere.
        self.below.check_memory()?;
        self.properties.largest_key = std::mem::take(&mut self.last.0);
        self.properties.data_end = self.data.offset();
        let mut sums = self.data.sums();
        self.properties.data_file_bytes = self.data.finish(|_| Vec::new(), 0)?;
        if self.properties.filter_bits_per_key > 0 {
            let filter = filter::build(&self.hashes, self.properties.filter_bits_per_key);
            // Its lines are to be lines of the cache.
            let lines_at = (self.meta.offset() as usize + FILTER_HEADER_BYTES).next_multiple_of(LINE_BYTES);
            self.meta.push(&vec![0; lines_at - FILTER_HEADER_BYTES - self.meta.offset() as usize])?;
            let too_large = |_| Error::internal(format!("floor {}: its filter is too large", self.number));
            let bytes = u32::try_from(filter.len()).map_err(too_large)?;
            self.shape.filter = BlockHandle { offset: self.meta.offset(), bytes };
            self.meta.push(&filter)?;
        } else {
            self.shape.filter = BlockHandle { offset: self.meta.offset(), bytes: 0 };
        }
        self.properties.floor = Some(self.shape);
        sums.extend(self.meta.sums());
        let mut bytes = Vec::with_capacity(sums.len() * SUM_BYTES);
        sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_le_bytes()));
        let sums = self.meta.block(&bytes, Compression::None)?;
        let properties = self.meta.block(&self.properties.encode(), Compression::None)?;
        let footer = Footer { top: sums, properties };
        self.properties.meta_file_bytes = self.meta.finish(|place| footer.encode(place), FOOTER_BYTES)?;
        debug_assert!(self.properties.meta_file_bytes.is_multiple_of(HEADER_BYTES as u64));
        Ok(self.properties)
    }
}
