//! What is left of a table's data part, as a run of entries: those of every whole block; and where something is
//! missing.
//!
//! Blocks are found by the table's index, if all of that is whole, and else by their checksums (`alone`). A block whose
//! entries are not in order, or not behind those of the last, counts as missing. A page that the medium cannot read is
//! as good as one of zeros.
//!
//! Goes forwards only, from the first entry. Costs: the part is read once, and each entry decoded twice; without an
//! index as `alone`, for each gap once the rest of the part. Memory: a mebibyte, or a block, and what it unpacks to;
//! the list of gaps.

use super::alone::{Alone, Piece, unpacked};
use super::block::BlockCursor;
use crate::error::{Error, Result};
use crate::format::window::Window;
use crate::format::{Decode, Malformed, Place};
use crate::key::{Cursor, Entry, Target, Trailer, compare};
use crate::table::stored::BlockHandle;
use cuesta_device::{Device, WhatIsLeft};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a data part that no whole block has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// In the file.
    pub(crate) bytes: Range<u64>,
    /// What is wrong where it begins.
    pub(crate) why: Malformed,
    /// The last whole key before it, and the first behind it; `None` where it is at an end.
    pub(crate) between: (Option<Vec<u8>>, Option<Vec<u8>>),
}

/// What tells where blocks are.
#[derive(Debug)]
enum Way {
    Index { window: Window, next: usize },
    Alone(Alone),
}

/// A cursor over what is left.
#[derive(Debug)]
pub(crate) struct Remains {
    place: Place,
    device: Arc<dyn Device>,
    /// Every block, if that is known.
    index: Option<Vec<BlockHandle>>,
    way: Option<Way>,
    block: Option<BlockCursor>,
    /// The last entry that it was on.
    last: Option<(Vec<u8>, Trailer)>,
    /// Those that it has passed.
    gaps: Vec<Gap>,
    entries: u64,
}

impl Remains {
    /// Of the data part at `place`, which has blocks where `index` says, if that is known.
    pub(crate) fn new(place: Place, device: Arc<dyn Device>, index: Option<Vec<BlockHandle>>) -> Self {
        let device = Arc::new(WhatIsLeft::new(device));
        let (way, block, last, gaps) = (None, None, None, Vec::new());
        Self { place, device, index, way, block, last, gaps, entries: 0 }
    }

    /// What was missing before the entry that it is on, or at all.
    pub(crate) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// How many entries it has been on.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    fn next_piece(&mut self) -> Result<Option<Piece>> {
        match (&mut self.way, &self.index) {
            (Some(Way::Alone(alone)), _) => alone.next(),
            (Some(Way::Index { window, next }), Some(index)) => {
                let Some(handle) = index.get(*next) else { return Ok(None) };
                *next += 1;
                let bytes = handle.offset..handle.end().max(handle.offset);
                // What lies behind the end is zeros, and not worth their memory.
                if bytes.end > window.len() {
                    let why = Malformed::new("the file ends before the block does");
                    return Ok(Some(Piece::Damaged(bytes, why)));
                }
                let stored = window.at(handle.offset, handle.bytes as usize)?;
                Ok(Some(match unpacked(stored, self.place.at(handle.offset)) {
                    Ok(cursor) => Piece::Block(cursor, bytes),
                    Err(why) => Piece::Damaged(bytes, why),
                }))
            }
            _ => Err(unsupported()),
        }
    }

    /// From the end of one block to the first entry of the next.
    fn next_block(&mut self) -> Result<()> {
        self.block = None;
        while let Some(piece) = self.next_piece()? {
            let (bytes, why) = match piece {
                Piece::Block(mut cursor, bytes) => match in_order(&mut cursor, self.last.as_ref()) {
                    Ok(()) => {
                        self.block = Some(cursor);
                        return Ok(());
                    }
                    Err(why) => (bytes, why),
                },
                Piece::Damaged(bytes, why) => (bytes, why),
            };
            match self.gaps.last_mut() {
                Some(gap) if gap.between.1.is_none() => gap.bytes.end = bytes.end,
                _ => {
                    let before = self.last.as_ref().map(|(key, _)| key.clone());
                    self.gaps.push(Gap { bytes, why, between: (before, None) });
                }
            }
        }
        Ok(())
    }

    /// Looks at the entry that it has come to.
    fn arrived(&mut self) {
        let Some(entry) = self.block.as_ref().and_then(BlockCursor::entry) else { return };
        if let Some(gap) = self.gaps.last_mut().filter(|gap| gap.between.1.is_none()) {
            gap.between.1 = Some(entry.key.to_vec());
        }
        let (key, trailer) = self.last.get_or_insert((Vec::new(), Trailer::LAST));
        key.clear();
        key.extend_from_slice(entry.key);
        *trailer = entry.trailer;
        self.entries += 1;
    }
}

/// Whether a block's entries are in order, and behind `last`; leaves the cursor on the first.
fn in_order(cursor: &mut BlockCursor, last: Option<&(Vec<u8>, Trailer)>) -> Decode<()> {
    let mut before = last.cloned();
    while let Some(entry) = cursor.entry() {
        if let Some((key, trailer)) = &before
            && compare((key, *trailer), (entry.key, entry.trailer)) != Ordering::Less
        {
            return Err(Malformed(format!("{entry:?} is out of order")));
        }
        before = Some((entry.key.to_vec(), entry.trailer));
        cursor.next()?;
    }
    cursor.first()
}

fn unsupported() -> Error {
    Error::internal("what is left of a table is read from its first entry on")
}

impl Cursor for Remains {
    fn begin(&mut self, _: Target<'_>) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        if !matches!(target, Target::First) {
            return Err(unsupported());
        }
        let device = self.device.clone();
        self.way = Some(match self.index {
            Some(_) => Way::Index { window: Window::new(device, self.place.file)?, next: 0 },
            None => Way::Alone(Alone::new(self.place, device)?),
        });
        (self.last, self.entries) = (None, 0);
        self.gaps.clear();
        self.next_block()?;
        self.arrived();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let Some(cursor) = &mut self.block else { return Err(unsupported()) };
        // It was read to its end once.
        cursor.next().map_err(|why| Error::corrupt(self.place.file.to_string(), 0, why))?;
        if !cursor.is_valid() {
            self.next_block()?;
        }
        self.arrived();
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        Err(unsupported())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.block.as_ref().and_then(BlockCursor::entry)
    }
}
