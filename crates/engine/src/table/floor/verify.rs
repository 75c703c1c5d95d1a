//! Reads every byte of a floor's two files and checks that they tell one story, and that its pointers lead where the
//! floors below say; and tells in words what is there.

use super::tree::check;
use super::{Floor, HEADER_BYTES, Part, Pointer, SECTOR_BYTES, Shape, Tree};
use crate::error::{Error, Result};
use crate::format::Malformed;
use crate::key::{Cursor, Entry, Target};
use crate::table::stored::{BlockHandle, FOOTER_BYTES, Footer};
use crate::table::story::Story;
use std::sync::Arc;

impl Part {
    fn check_zeros(&self, from: usize, end: usize) -> Result<()> {
        let Some(bytes) = self.bytes.get(from..end) else {
            return Err(self.corrupt(from, format!("byte {end} is behind the end of the file")));
        };
        match bytes.iter().position(|byte| *byte != 0) {
            Some(i) => Err(self.corrupt(from + i, "padding that is not zero")),
            None => Ok(()),
        }
    }
}

/// Checks every byte of the topmost floor of `tree`; `progress` is told how many have been read.
///
/// # Errors
/// `Corrupt` with the file and the offset of the first thing that is wrong.
pub(crate) fn verify(tree: &Tree, progress: &mut dyn FnMut(u64)) -> Result<()> {
    let Some((floor, below)) = tree.floors().split_last() else { return Ok(()) };
    for part in [&floor.data, &floor.meta] {
        for sector in 0..part.sectors() {
            // Whatever was found earlier: this is about what lies there now.
            floor.check_sector(part, sector)?;
            progress(SECTOR_BYTES as u64);
        }
    }
    let mut story = Story::default();
    let mut cursor = super::cursor::FloorCursor::new(floor.clone());
    let mut data_at = HEADER_BYTES as u64;
    cursor.go(Target::First)?;
    for at in 0..floor.entries {
        cursor.take_value()?;
        let Some(entry) = cursor.entry() else { return Err(Error::internal("a floor ends early")) };
        let offset = Floor::entry_at(at);
        let malformed = |why: Malformed| floor.meta.corrupt(offset, why.0);
        story.entry(entry).map_err(malformed)?;
        if !floor.may_contain(entry.key)? {
            return Err(floor.meta.corrupt(offset, format!("the filter denies {entry:?}")));
        }
        let head = floor.head(at)?;
        if head.offset != data_at {
            let why = format!("its key and value are at byte {}, not at {data_at}", head.offset);
            return Err(floor.meta.corrupt(offset, why));
        }
        data_at += head.rest_bytes() + u64::from(head.value_bytes);
        let pointer = plain_pointer(below, entry)?;
        if head.next != pointer {
            let why = format!("it points at {:?} instead of {pointer:?}", head.next);
            return Err(floor.meta.corrupt(offset, why));
        }
        cursor.next()?;
    }
    let properties = &floor.properties;
    story.check_properties(properties).map_err(|malformed| floor.meta.corrupt(0, malformed.0))?;
    if data_at != properties.data_end || properties.data_file_bytes != floor.data.bytes.len() as u64 {
        return Err(floor
            .data
            .corrupt(data_at as usize, "the data part is not as long as the meta part says"));
    }
    floor.data.check_zeros(floor.data.end, floor.data.bytes.len())?;
    let BlockHandle { offset, bytes } = floor.shape.filter;
    floor.meta.check_zeros(Floor::entry_at(floor.entries), offset as usize)?;
    // Lookups read single lines of it.
    floor.piece(&floor.meta, offset as usize, bytes as usize)?;
    check_tail(floor)
}

/// The topmost floor of `tree` in words: what it says of itself, then each entry and where it points, handed to `say` a
/// line at a time.
///
/// # Errors
/// `Corrupt` with the file and the offset of what is wrong; what `say` does.
pub(crate) fn describe(tree: &Tree, say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let Some((floor, below)) = tree.floors().split_last() else { return Ok(()) };
    let Shape { shared, slot, below: on, filter } = &floor.shape;
    floor.properties.to_string().lines().try_for_each(&mut *say)?;
    let lies = if *slot == 0 { "lies on nothing".to_owned() } else { format!("lies on table {on}") };
    say(&format!(
        "floor {} of its tree, {lies}; all keys begin with \"{}\"; a filter of {} bytes",
        u32::from(*slot) + 1,
        shared.escape_ascii(),
        filter.bytes
    ))?;
    let mut cursor = super::cursor::FloorCursor::new(floor.clone());
    cursor.go(Target::First)?;
    for at in 0..floor.entries {
        cursor.take_value()?;
        let Some(entry) = cursor.entry() else { return Err(Error::internal("a floor ends early")) };
        let leads = match floor.pointer(at)? {
            Some(pointer) => {
                check(tree.floors(), below.len(), pointer)?;
                format!("entry {} of table {}", pointer.at, below[usize::from(pointer.slot)].number)
            }
            None => "nothing".to_owned(),
        };
        let text = format!("{at} -> {leads}: {entry:?}");
        floor.meta.check_memory()?;
        say(&text)?;
        cursor.next()?;
    }
    Ok(())
}

/// What lies behind the sectors with checksums of the meta part: these checksums, and the properties.
fn check_tail(floor: &Arc<Floor>) -> Result<()> {
    let meta = &floor.meta;
    let footer_at = meta.bytes.len() - FOOTER_BYTES;
    let footer = Footer::decode(&meta.bytes[footer_at..], meta.place.at(footer_at as u64));
    let Footer { top, properties } = footer.map_err(|malformed| meta.corrupt(footer_at, malformed.0))?;
    let filter_end = floor.shape.filter.end();
    if top.offset != filter_end || properties.offset != top.end() {
        return Err(meta.corrupt(filter_end as usize, "bytes that belong to nothing"));
    }
    meta.stored(top)?;
    meta.stored(properties)?;
    meta.check_zeros(properties.end() as usize, footer_at)
}

/// Where an entry's pointer must lead, found without any other pointer.
fn plain_pointer(below: &[Arc<Floor>], entry: Entry<'_>) -> Result<Option<Pointer>> {
    for (slot, floor) in below.iter().enumerate().rev() {
        let at = floor.lower_bound(entry.key, entry.trailer, 0..floor.entries)?;
        if at < floor.entries {
            return Ok(Some(Pointer { slot: slot as u8, at }));
        }
    }
    Ok(None)
}
