//! The data part of a table without its meta part, for who has lost the tier that this was on.
//!
//! Blocks follow each other without a gap, and each ends in a checksum over itself and its place
//! (`docs/format/table.md`), but nothing there says where. So a block ends where what lies before a trailer that it
//! could have matches that trailer's checksum: one that grows from one such place to the next, each byte once. Behind a
//! damaged block the first is looked for that any such trailer is of: of one that is not packed the trailer says where
//! it begins, and of one that is, where it may at the earliest.
//!
//! Costs: the part is read once, and a checksum of it reckoned; behind damage some thousand checksums for each place
//! that looks like a trailer of what is packed. Memory: a mebibyte, or a block, and what it unpacks to.

use super::block::BlockCursor;
use crate::cache::Block;
use crate::error::{Error, Result};
use crate::format::file::HEADER_BYTES;
use crate::format::window::Window;
use crate::format::{Decode, Malformed, Place};
use crate::key::{Entry, Target};
use crate::table::compression::{Compression, RAW_BLOCK_BYTES_MAX};
use crate::table::stored::{BLOCK_TRAILER_BYTES, decode_stored};
use cuesta_device::{ALIGNMENT, Device};
use std::ops::Range;
use std::sync::Arc;

/// A block's end is looked for in so many bytes first.
const SOUGHT_BYTES: usize = 128 << 10;
/// And what is looked at together behind damage; of that so much once more with the next, so that no block that is not
/// longer is missed.
const BEHIND_DAMAGE_BYTES: usize = 1 << 20;
const OVERLAP_BYTES: usize = 256 << 10;
/// Packed blocks are found behind damage if they had no more bytes before.
const RAW_BYTES_SOUGHT_MAX: usize = 64 << 10;

/// What a trailer says of the block before it, if it could be one: whether that is packed, and the bytes that it had
/// before.
fn said_by(trailer: &[u8; BLOCK_TRAILER_BYTES]) -> Option<(bool, usize)> {
    let raw_bytes = u32::from_le_bytes([trailer[1], trailer[2], trailer[3], trailer[4]]) as usize;
    let compression = Compression::from_stored(trailer[0]).ok()?;
    (raw_bytes > 0 && raw_bytes <= RAW_BLOCK_BYTES_MAX)
        .then_some((compression != Compression::None, raw_bytes))
}

/// Every nine bytes but the first that could be a trailer, with where they begin.
fn trailers(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8; BLOCK_TRAILER_BYTES], (bool, usize))> {
    bytes.windows(BLOCK_TRAILER_BYTES).enumerate().skip(1).filter_map(|(at, trailer)| {
        let trailer = trailer.try_into().ok()?;
        Some((at, trailer, said_by(trailer)?))
    })
}

/// What is packed has no more than so many bytes.
fn packed_max(raw_bytes: usize) -> usize {
    raw_bytes - raw_bytes / 8
}

/// How long the block is that `bytes` begin with, at this place; `None` if none ends in them.
fn length_of(bytes: &[u8], place: Place) -> Option<usize> {
    let (mut sum, mut summed) = (place.checksum(&[]), 0);
    trailers(bytes).find_map(|(at, trailer, (is_packed, raw_bytes))| {
        if if is_packed { at > packed_max(raw_bytes) } else { at != raw_bytes } {
            return None;
        }
        (sum, summed) = (Place::checksum_on(sum, &bytes[summed..at]), at);
        let is_its = Place::checksum_on(sum, &trailer[..5]).to_le_bytes() == trailer[5..];
        is_its.then_some(at + BLOCK_TRAILER_BYTES)
    })
}

/// Where the first whole block begins in `bytes`, which are at this place.
fn first_whole(bytes: &[u8], place: Place) -> Option<usize> {
    trailers(bytes).find_map(|(at, _, (is_packed, raw_bytes))| {
        let begins = match is_packed {
            true if raw_bytes > RAW_BYTES_SOUGHT_MAX => return None,
            true => at.saturating_sub(packed_max(raw_bytes))..at,
            false => at.checked_sub(raw_bytes).map(|begin| begin..begin + 1)?,
        };
        let end = at + BLOCK_TRAILER_BYTES;
        begins
            .into_iter()
            .find(|begin| decode_stored(&bytes[*begin..end], place.at(place.offset + *begin as u64)).is_ok())
    })
}

/// What comes next in a data part.
#[derive(Debug)]
pub(super) enum Piece {
    /// A whole block, at its first entry; where it lies.
    Block(BlockCursor, Range<u64>),
    /// Bytes that no whole block has, and why.
    Damaged(Range<u64>, Malformed),
}

/// A data part, block by block.
#[derive(Debug)]
pub(super) struct Alone {
    window: Window,
    place: Place,
    /// Where the next block begins.
    at: u64,
}

impl Alone {
    /// From the start of the data part at `place`.
    pub(super) fn new(place: Place, device: Arc<dyn Device>) -> Result<Self> {
        Ok(Self { window: Window::new(device, place.file)?, place, at: HEADER_BYTES as u64 })
    }

    /// What comes next; `None` at the end.
    ///
    /// # Errors
    /// What the device says.
    pub(super) fn next(&mut self) -> Result<Option<Piece>> {
        let (at, left) = (self.at, self.window.len().saturating_sub(self.at));
        // Zeros to the end of a page are behind the last one.
        if left < ALIGNMENT as u64 && self.window.at(at, left as usize)?.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut sought = SOUGHT_BYTES;
        let length = loop {
            let found = length_of(self.window.at(at, sought)?, self.place.at(at));
            if found.is_some() || sought > RAW_BLOCK_BYTES_MAX || sought as u64 >= left {
                break found;
            }
            sought *= 2;
        };
        let why = match length {
            None => Malformed::new("no block begins here that matches its checksum"),
            Some(length) => {
                self.at += length as u64;
                match unpacked(self.window.at(at, length)?, self.place.at(at)) {
                    Ok(cursor) => return Ok(Some(Piece::Block(cursor, at..self.at))),
                    Err(why) => return Ok(Some(Piece::Damaged(at..self.at, why))),
                }
            }
        };
        // Its first byte is none of the next.
        let next = self.next_whole(at + 1)?;
        self.at = next.unwrap_or(self.window.len());
        Ok(Some(Piece::Damaged(at..self.at, why)))
    }

    /// Where the first whole block from a place on begins.
    fn next_whole(&mut self, mut at: u64) -> Result<Option<u64>> {
        loop {
            let bytes = self.window.at(at, BEHIND_DAMAGE_BYTES)?;
            if let Some(begin) = first_whole(bytes, self.place.at(at)) {
                return Ok(Some(at + begin as u64));
            }
            if bytes.len() < BEHIND_DAMAGE_BYTES {
                return Ok(None);
            }
            at += (BEHIND_DAMAGE_BYTES - OVERLAP_BYTES) as u64;
        }
    }

    fn corrupt(&self, offset: u64, malformed: Malformed) -> Error {
        Error::corrupt(self.place.file.to_string(), offset, malformed)
    }
}

/// The block that is stored as `bytes` at this place, at its first entry.
pub(super) fn unpacked(bytes: &[u8], place: Place) -> Decode<BlockCursor> {
    let stored = decode_stored(bytes, place)?;
    let fill = |raw: &mut [u8]| stored.compression.decompress(stored.payload, raw);
    let mut cursor = Block::filled(stored.raw_bytes, fill).and_then(BlockCursor::new)?;
    cursor.go(Target::First)?;
    Ok(cursor)
}

/// Hands every entry of the data part at `place` to `each`, in order.
///
/// # Errors
/// `Corrupt` where blocks were damaged, once all others have been handed over; what the device and `each` say.
pub(in crate::table) fn walk_alone(
    place: Place,
    device: Arc<dyn Device>,
    each: &mut dyn FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    let (mut alone, mut damaged) = (Alone::new(place, device)?, None);
    while let Some(found) = alone.next()? {
        match found {
            Piece::Block(mut cursor, bytes) => {
                while let Some(entry) = cursor.entry() {
                    each(entry)?;
                    cursor.next().map_err(|malformed| alone.corrupt(bytes.start, malformed))?;
                }
            }
            Piece::Damaged(bytes, why) => {
                damaged.get_or_insert_with(|| alone.corrupt(bytes.start, why));
            }
        }
    }
    damaged.map_or(Ok(()), Err)
}
