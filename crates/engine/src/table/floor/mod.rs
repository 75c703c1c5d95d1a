//! Floors: tables that are read byte by byte where they lie in memory, and point into one another (Zhang and Du, NVLSM,
//! ACM TOS 17(3), 2021, section 4; `docs/decisions/0012-guards-with-several-runs.md`).
//!
//! A floor is an array of index entries of one size beside an area of keys and values, in the two files of a table. It
//! is the newest of a [`Tree`] when it is added; each of its entries points at the first entry at or behind it in the
//! floors below. A tree changes only by a floor on top, or by being replaced whole, so no pointer outlives what it
//! points at.
//!
//! Nothing is copied to be read. Each sector has a checksum, which is compared when the sector is first touched after
//! an open; from then on a bit in memory says that it is sound. Places and pointers are checked at each use, so bytes
//! that are damaged later lead to an error or to a wrong answer, and never out of bounds. Memory that is lost meanwhile
//! (a mapped file that is cut short) reads as zeros; whether it was is asked after reading, before anything is handed
//! out.
//!
//! A lookup costs about log2 n probes of one cache line each in the first floor, two lines in each further one, and
//! four for what it finds, if that is as long as a line or two: 16 lines for one floor of 14,000 entries, 25 for ten
//! (the test `a_floor_more_costs_a_lookup_two_lines` counts them). It copies nothing and allocates nothing.

mod cursor;
mod entry;
mod tree;
mod verify;
mod writer;

pub(crate) use cursor::TreeCursor;
pub(crate) use entry::{ENTRY_BYTES, FLOORS_MAX, PREFIX_BYTES};
pub(crate) use tree::{InFloor, Tree};
pub(crate) use verify::{describe, verify};
pub(crate) use writer::{FloorOptions, FloorWriter};

use super::Properties;
use super::filter::{self, FILTER_HEADER_BYTES, FilterShape};
use super::stored::{BlockHandle, FOOTER_BYTES, Footer, decode_stored};
use crate::error::{Error, Result};
use crate::format::coding::{put_bytes, put_varint};
use crate::format::file::{HEADER_BYTES, check_header};
use crate::format::{Decode, FileId, FileKind, Malformed, Place, Reader, StoreId};
use crate::key::{self, Trailer};
use crate::planted::{self, Bug};
use cuesta_device::View;
use cuesta_sched::atomic::{AtomicU64, Ordering as AtomicOrdering};
use entry::{Head, POINTER_AT, Pointer, prefix_of};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes that share a checksum: what is read of a sector that was not touched before is eight cache lines, not the one
/// that is asked for.
pub(crate) const SECTOR_BYTES: usize = 512;
const SUM_BYTES: usize = 4;

/// What a floor says of itself, besides what every table does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// What all of its keys begin with; not in its entries.
    pub(crate) shared: Vec<u8>,
    /// Floors below it.
    pub(crate) slot: u8,
    /// The table that is the floor below; 0 for none.
    pub(crate) below: u64,
    /// Where its filter lies in the meta part; no bytes for none.
    pub(crate) filter: BlockHandle,
}

impl Shape {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.shared);
        out.push(self.slot);
        put_varint(out, self.below);
        self.filter.encode(out);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Decode<Self> {
        Ok(Self {
            shared: reader.bytes()?.to_vec(),
            slot: reader.u8()?,
            below: reader.number()?,
            filter: BlockHandle::decode(reader)?,
        })
    }
}

/// One of a floor's two files.
#[derive(Debug)]
struct Part {
    bytes: View,
    place: Place,
    /// Where the sectors end that have checksums; the last one may be shorter.
    end: usize,
    /// Where their checksums begin in the meta part.
    sums_at: usize,
    /// A bit for each sector that matched its checksum.
    sound: Box<[AtomicU64]>,
}

impl Part {
    fn new(store: StoreId, file: FileId, bytes: View) -> Result<Self> {
        check_header(&bytes, store, file)?;
        let place = Place { store, file, offset: 0 };
        Ok(Self { bytes, place, end: 0, sums_at: 0, sound: Box::default() })
    }

    fn corrupt(&self, offset: usize, malformed: impl Into<String>) -> Error {
        Error::corrupt(self.place.file.to_string(), offset as u64, Malformed::new(malformed))
    }

    fn sectors(&self) -> usize {
        self.end.div_ceil(SECTOR_BYTES)
    }

    fn cover(&mut self, end: usize, sums_at: usize) {
        (self.end, self.sums_at) = (end, sums_at);
        self.sound = (0..self.sectors().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    }

    /// Whether all that was read of it so far was there.
    fn check_memory(&self) -> Result<()> {
        self.bytes.check().map_err(|source| Error::io(format!("read {}", self.place.file), source))
    }

    fn is_sound(&self, sector: usize) -> bool {
        self.sound[sector / 64].load(AtomicOrdering::Relaxed) & 1 << (sector % 64) != 0
    }

    fn stored(&self, handle: BlockHandle) -> Result<&[u8]> {
        let at = handle.offset as usize;
        let malformed = |why| Error::corrupt(self.place.file.to_string(), handle.offset, why);
        let bytes = self.bytes.get(at..handle.end() as usize);
        let bytes = bytes.ok_or_else(|| self.corrupt(at, "a block lies behind the end of the file"))?;
        Ok(decode_stored(bytes, self.place.at(handle.offset)).map_err(malformed)?.payload)
    }
}

/// What is looked for, as the entries of one floor show keys.
struct Needle<'a> {
    prefix: [u8; PREFIX_BYTES],
    /// Behind what all keys of the floor begin with.
    key: &'a [u8],
    trailer: Trailer,
}

/// An open floor.
#[derive(Debug)]
pub(crate) struct Floor {
    number: u64,
    data: Part,
    meta: Part,
    properties: Properties,
    shape: Shape,
    /// Of the filter, once it was looked at.
    filter: OnceLock<FilterShape>,
    entries: u32,
}

impl Floor {
    /// Opens floor `number`: reads header, footer, properties, and the checksums of sectors.
    ///
    /// # Errors
    /// `Corrupt` with file and offset; `Unsupported` for a newer format.
    pub(crate) fn open(store: StoreId, number: u64, data: View, meta: View) -> Result<Self> {
        let mut meta = Part::new(store, FileId::new(FileKind::Meta, number), meta)?;
        let mut data = Part::new(store, FileId::new(FileKind::Data, number), data)?;
        let Some(at) = meta.bytes.len().checked_sub(FOOTER_BYTES) else {
            return Err(meta.corrupt(0, "a file without a footer"));
        };
        let footer = Footer::decode(&meta.bytes[at..], meta.place.at(at as u64));
        let footer = footer.map_err(|malformed| meta.corrupt(at, malformed.0))?;
        let at = footer.properties.offset as usize;
        let properties = Properties::decode(meta.stored(footer.properties)?);
        let mut properties = properties.map_err(|malformed| meta.corrupt(at, malformed.0))?;
        properties.meta_file_bytes = meta.bytes.len() as u64;
        let Some(shape) = properties.floor.clone() else {
            return Err(meta.corrupt(at, "a table of blocks where a floor is expected"));
        };
        let shown = [&properties.smallest_key, &properties.largest_key];
        let (filter, sums_at) = (shape.filter, footer.top.offset);
        let entries_end = properties.entries.saturating_mul(ENTRY_BYTES as u64) + HEADER_BYTES as u64;
        let fits = shown.iter().all(|key| key.starts_with(&shape.shared))
            && (1..u64::from(u32::MAX)).contains(&properties.entries)
            && entries_end <= filter.offset
            && filter.end() <= sums_at
            && footer.top.end() <= meta.bytes.len() as u64
            && (HEADER_BYTES as u64..=data.bytes.len() as u64).contains(&properties.data_end)
            && usize::from(shape.slot) < FLOORS_MAX;
        if !fits {
            return Err(meta.corrupt(at, "properties that no floor can have"));
        }
        let first = sums_at as usize;
        data.cover(properties.data_end as usize, first);
        meta.cover(first, first + data.sectors() * SUM_BYTES);
        if meta.stored(footer.top)?.len() != (data.sectors() + meta.sectors()) * SUM_BYTES {
            return Err(meta.corrupt(first, "not as many checksums as there are sectors"));
        }
        let entries = properties.entries as u32;
        Ok(Self { number, data, meta, properties, shape, filter: OnceLock::new(), entries })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// What the bits of its sectors take.
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + 8 * (self.data.sound.len() + self.meta.sound.len())
    }

    /// What lies before entry `at` and belongs to entries, in bytes.
    fn bytes_before(&self, at: u32) -> Result<u64> {
        let entries = u64::from(at) * ENTRY_BYTES as u64;
        let data = if at < self.entries { self.head(at)?.offset } else { self.properties.data_end };
        Ok(entries + data.saturating_sub(HEADER_BYTES as u64))
    }

    /// Bytes of a part; their sectors are compared with their checksums if they have not been yet.
    fn piece<'a>(&'a self, part: &'a Part, from: usize, bytes: usize) -> Result<&'a [u8]> {
        let end = from.saturating_add(bytes);
        if end > part.end {
            return Err(part.corrupt(from, format!("an entry that goes on to byte {end} of {}", part.end)));
        }
        part.bytes.touch(from..end);
        for sector in from / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            if !part.is_sound(sector) {
                self.check_sector(part, sector)?;
            }
        }
        Ok(&part.bytes[from..end])
    }

    #[cold]
    fn check_sector(&self, part: &Part, sector: usize) -> Result<()> {
        let at = sector * SECTOR_BYTES;
        let end = part.end.min(at + SECTOR_BYTES);
        part.bytes.touch(at..end);
        let bytes = &part.bytes[at..end];
        let sum = part.place.at(at as u64).checksum(&[bytes]);
        // Where they lie was checked when the floor was opened.
        let kept = &self.meta.bytes[part.sums_at + sector * SUM_BYTES..][..SUM_BYTES];
        if kept != sum.to_le_bytes() && !planted::has(Bug::FloorChecksumSkipped) {
            return Err(part.corrupt(at, "a sector does not match its checksum"));
        }
        part.sound[sector / 64].fetch_or(1 << (sector % 64), AtomicOrdering::Relaxed);
        Ok(())
    }

    fn entry_at(at: u32) -> usize {
        HEADER_BYTES + at as usize * ENTRY_BYTES
    }

    fn head(&self, at: u32) -> Result<Head> {
        let offset = Self::entry_at(at);
        let bytes = self.piece(&self.meta, offset, ENTRY_BYTES)?;
        Head::decode(bytes).map_err(|malformed| self.meta.corrupt(offset, malformed.0))
    }

    /// Where the key of entry `at` is next found below.
    fn pointer(&self, at: u32) -> Result<Option<Pointer>> {
        let offset = Self::entry_at(at) + POINTER_AT;
        let bytes = self.piece(&self.meta, offset, ENTRY_BYTES - POINTER_AT)?;
        let decoded = entry::decode_pointer(bytes);
        Ok(decoded.map_err(|malformed| self.meta.corrupt(offset, malformed.0))?.1)
    }

    /// The part of a key that its entry has no room for.
    fn rest(&self, head: &Head) -> Result<&[u8]> {
        self.piece(&self.data, head.offset as usize, head.rest_bytes() as usize)
    }

    /// Where the value of an entry lies in the data part, checked.
    fn value_range(&self, head: &Head) -> Result<Range<usize>> {
        let from = (head.offset + head.rest_bytes()) as usize;
        let bytes = head.value_bytes as usize;
        if bytes > 0 {
            self.piece(&self.data, from, bytes)?;
        }
        Ok(if bytes > 0 { from..from + bytes } else { 0..0 })
    }

    fn value(&self, range: Range<usize>) -> &[u8] {
        &self.data.bytes[range]
    }

    /// `key` as the entries here show it; or where it stands to all of them.
    fn needle<'a>(&self, key: &'a [u8], trailer: Trailer) -> std::result::Result<Needle<'a>, Ordering> {
        let shared = self.shape.shared.as_slice();
        match key.strip_prefix(shared) {
            Some(key) => Ok(Needle { prefix: prefix_of(key), key, trailer }),
            None => Err(key.cmp(shared)),
        }
    }

    /// How the key of entry `at` compares to the needle's.
    fn compare_key(&self, at: u32, needle: &Needle<'_>) -> Result<Ordering> {
        // Of most entries no more is read than this.
        let prefix = self.piece(&self.meta, Self::entry_at(at), PREFIX_BYTES)?;
        match prefix.cmp(needle.prefix.as_slice()) {
            Ordering::Equal => {}
            unequal => return Ok(unequal),
        }
        let head = self.head(at)?;
        // With equal prefixes a key that fits its own is the start of the other.
        if head.rest_bytes() == 0 || needle.key.len() <= PREFIX_BYTES {
            return Ok((head.key_bytes as usize).cmp(&needle.key.len()));
        }
        Ok(self.rest(&head)?.cmp(&needle.key[PREFIX_BYTES..]))
    }

    /// Whether entry `at` lies before the needle.
    fn is_before(&self, at: u32, needle: &Needle<'_>) -> Result<bool> {
        Ok(match self.compare_key(at, needle)? {
            Ordering::Equal => self.head(at)?.trailer.0 > needle.trailer.0,
            order => order == Ordering::Less,
        })
    }

    /// The first entry at or behind key and trailer, of those in `range`; its end if there is none.
    fn lower_bound(&self, key: &[u8], trailer: Trailer, range: Range<u32>) -> Result<u32> {
        let needle = match self.needle(key, trailer) {
            Ok(needle) => needle,
            Err(Ordering::Less) => return Ok(range.start),
            Err(_) => return Ok(range.end),
        };
        self.split(&needle, range)
    }

    fn split(&self, needle: &Needle<'_>, range: Range<u32>) -> Result<u32> {
        let Range { mut start, mut end } = range;
        while start < end {
            let middle = start + (end - start) / 2;
            match self.is_before(middle, needle)? {
                true => start = middle + 1,
                false => end = middle,
            }
        }
        Ok(start)
    }

    /// As [`Floor::lower_bound`], for one that is thought to be near the start of the range: a few probes for a few
    /// steps, twice the logarithm of the distance for more.
    fn lower_bound_near(&self, key: &[u8], trailer: Trailer, range: Range<u32>) -> Result<u32> {
        let needle = match self.needle(key, trailer) {
            Ok(needle) => needle,
            Err(Ordering::Less) => return Ok(range.start),
            Err(_) => return Ok(range.end),
        };
        let (mut start, mut step) = (range.start, 1);
        let mut probe = range.start;
        while probe < range.end {
            if !self.is_before(probe, &needle)? {
                return self.split(&needle, start..probe);
            }
            start = probe + 1;
            probe = probe.saturating_add(step);
            step *= 2;
        }
        self.split(&needle, start..range.end)
    }

    /// Whether entry `at` is a version of `key`.
    fn has_key(&self, at: u32, key: &[u8]) -> Result<bool> {
        match self.needle(key, Trailer::FIRST) {
            Ok(needle) => Ok(self.compare_key(at, &needle)? == Ordering::Equal),
            Err(_) => Ok(false),
        }
    }

    /// Whether the floor may have `key`, by its filter if it has one.
    fn may_contain(&self, key: &[u8]) -> Result<bool> {
        if self.shape.filter.bytes == 0 {
            return Ok(true);
        }
        let (hash, at) = (key::hash(key), self.shape.filter.offset as usize);
        let filter = self.filter(at)?;
        // Of a filter that may be as large as a megabyte, one line.
        let line = self.piece(&self.meta, at + filter.line_at(hash), filter::LINE_BYTES)?;
        Ok(filter.may_contain(line, hash))
    }

    /// Its filter's header, which lies at `at`: looked at once.
    fn filter(&self, at: usize) -> Result<FilterShape> {
        if let Some(filter) = self.filter.get() {
            return Ok(*filter);
        }
        let header = self.piece(&self.meta, at, FILTER_HEADER_BYTES)?;
        let header =
            header.first_chunk().ok_or_else(|| self.meta.corrupt(at, "a filter without a header"))?;
        let decoded = FilterShape::decode(header, self.shape.filter.bytes as usize);
        let decoded = decoded.map_err(|malformed| self.meta.corrupt(at, malformed.0))?;
        Ok(*self.filter.get_or_init(|| decoded))
    }
}

#[cfg(test)]
mod tests;
