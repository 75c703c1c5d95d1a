//! Reads every byte of a table's two files and checks that they tell one story; shows what is in them.

use super::block::BlockCursor;
use super::index::Index;
use super::{Blocks, FILTER, INDEX, Part, Role};
use crate::cache::{Block, Cache};
use crate::error::{Error, Result};
use crate::format::file::{HEADER_BYTES, check_header};
use crate::format::window::Window;
use crate::format::{Decode, Malformed, Place};
use crate::key::{Entry, Target, Trailer, compare};
use crate::table::filter;
use crate::table::stored::{BlockHandle, FOOTER_BYTES, Footer};
use crate::table::story::Story;
use std::cmp::Ordering;
use std::fmt::{self, Write};

/// A file read from front to back.
struct Checked<'a> {
    part: &'a Part,
    window: Window,
    /// Bytes checked so far; blocks must follow each other without a gap.
    at: u64,
}

impl<'a> Checked<'a> {
    fn new(part: &'a Part) -> Result<Self> {
        let mut window = Window::new(part.device.clone(), part.place.file)?;
        check_header(window.at(0, HEADER_BYTES)?, part.place.store, part.place.file)?;
        Ok(Self { part, window, at: HEADER_BYTES as u64 })
    }

    fn fail<T>(&self, offset: u64, why: impl Into<String>) -> Result<T> {
        Err(self.part.corrupt(offset, Malformed::new(why)))
    }

    /// The block at `handle`, which must be the next.
    fn block(&mut self, handle: BlockHandle, role: Role) -> Result<Block> {
        if handle.offset != self.at {
            return self.fail(self.at, format!("the index goes on at byte {} instead", handle.offset));
        }
        self.at = handle.end();
        let bytes = self.window.at(handle.offset, handle.bytes as usize)?;
        self.part.unpack(bytes, handle, role)
    }

    /// Everything from here to `end` must be zero.
    fn zeros(&mut self, end: u64) -> Result<()> {
        while self.at < end {
            let bytes = self.window.at(self.at, (end - self.at).min(1 << 16) as usize)?;
            if bytes.is_empty() {
                return self.fail(self.at, format!("the file ends before byte {end}"));
            }
            if let Some(i) = bytes.iter().position(|byte| *byte != 0) {
                return self.fail(self.at + i as u64, "padding that is not zero");
            }
            self.at += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Checks every byte of both parts; `progress` is told how many more have been read.
///
/// # Errors
/// `Corrupt` with the file and the offset of the first thing that is wrong.
pub(crate) fn verify(table: &Blocks, progress: &mut dyn FnMut(u64)) -> Result<()> {
    let mut data = Checked::new(&table.data)?;
    let mut meta = Checked::new(&table.meta)?;
    let mut story = Story::default();
    for partition in 0..table.top.len() {
        let filter = table.top.handle(&table.top_block, partition, FILTER);
        let filter_block = match filter.bytes {
            0 => None,
            _ => Some(meta.block(filter, Role::Filter)?),
        };
        let handle = table.top.handle(&table.top_block, partition, INDEX);
        let block = meta.block(handle, Role::Index)?;
        let index =
            Index::parse(&block, 1).map_err(|malformed| table.meta.corrupt(handle.offset, malformed))?;
        for i in 0..index.len() {
            let handle = index.handle(&block, i, 0);
            let data_block = data.block(handle, Role::Data)?;
            let bound = index.full_bound(&block, i);
            let checked = check_block(&mut story, data_block, (&bound.0, bound.1), filter_block.as_deref());
            checked.map_err(|malformed| table.data.corrupt(handle.offset, malformed))?;
            progress(u64::from(handle.bytes));
        }
    }
    data.zeros(table.properties.data_file_bytes)?;
    check_len(&data)?;
    finish_meta(table, &mut meta)?;
    story.check_properties(&table.properties).map_err(|malformed| table.meta.corrupt(0, malformed))
}

/// Top index and properties were checked when the table was opened; what is left is what lies between.
fn finish_meta(table: &Blocks, meta: &mut Checked<'_>) -> Result<()> {
    let len = table.properties.meta_file_bytes;
    // Both blocks passed their checksums at open; here they must be where the partitions end.
    let footer_at = len - FOOTER_BYTES as u64;
    let tail = super::Tail::read(&table.meta, len)?;
    let footer = tail.with(footer_at, len, |footer| {
        Footer::decode(footer, table.meta.place.at(footer_at))
            .map_err(|malformed| table.meta.corrupt(footer_at, malformed))
    })?;
    for handle in [footer.top, footer.properties] {
        if handle.offset != meta.at {
            return meta.fail(meta.at, "bytes that belong to no block");
        }
        tail.small_block(handle)?;
        meta.at = handle.end();
    }
    meta.zeros(footer_at)?;
    meta.at = len;
    check_len(meta)
}

fn check_len(part: &Checked<'_>) -> Result<()> {
    match part.window.len() == part.at {
        true => Ok(()),
        false => part.fail(part.at, format!("the file goes on to byte {}", part.window.len())),
    }
}

/// Whether a block's entries are within its bound, and none is denied by its filter.
fn check_block(
    story: &mut Story,
    block: Block,
    bound: (&[u8], Trailer),
    filter: Option<&[u8]>,
) -> Decode<()> {
    let mut cursor = BlockCursor::new(block)?;
    cursor.first()?;
    while let Some(entry) = cursor.entry() {
        if compare((entry.key, entry.trailer), bound) == Ordering::Greater {
            return Err(Malformed(format!("{entry:?} is past its block's bound")));
        }
        if let Some(filter) = filter
            && !filter::may_contain(filter, crate::key::hash(entry.key))?
        {
            return Err(Malformed(format!("the filter denies {}", entry.key.escape_ascii())));
        }
        story.entry(entry)?;
        cursor.next()?;
    }
    Ok(())
}

/// Hands every entry of a table to `each`, in order.
pub(crate) fn walk(table: &Blocks, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
    let cache = Cache::new(1 << 20, 0);
    for partition in 0..table.top.len() {
        let (block, index) = table.index(&cache, partition, super::Fill::No)?;
        for i in 0..index.len() {
            let handle = index.handle(&block, i, 0);
            let malformed = |malformed| table.data.corrupt(handle.offset, malformed);
            let data = table.block(&cache, handle, Role::Data, super::Fill::No)?;
            let mut cursor = BlockCursor::new(data).map_err(malformed)?;
            cursor.go(Target::First).map_err(malformed)?;
            while let Some(entry) = cursor.entry() {
                each(entry)?;
                cursor.next().map_err(malformed)?;
            }
        }
    }
    Ok(())
}

/// A meta part in words, from its file alone.
pub(crate) fn describe_meta(
    place: Place,
    device: std::sync::Arc<dyn cuesta_device::Device>,
    out: &mut dyn Write,
) -> Result<()> {
    let table = Blocks::open(place.store, place.file.number, device.clone(), device, Default::default())?;
    let cache = Cache::new(1 << 20, 0);
    let mut write =
        |text: fmt::Arguments<'_>| out.write_fmt(text).map_err(|_| Error::internal("the output failed"));
    write(format_args!("{}", table.properties))?;
    for partition in 0..table.top.len() {
        let (key, trailer) = table.top.full_bound(&table.top_block, partition);
        let filter = table.top.handle(&table.top_block, partition, FILTER);
        let (block, index) = table.index(&cache, partition, super::Fill::No)?;
        write(format_args!(
            "partition {partition}: up to {} {trailer:?}, filter of {} bytes at {}, {} blocks\n",
            key.escape_ascii(),
            filter.bytes,
            filter.offset,
            index.len()
        ))?;
        if let Some(link) = table.link(partition) {
            write(format_args!("  goes on in table {} at partition {}\n", link.table, link.partition))?;
        }
        for i in 0..index.len() {
            let (key, trailer) = index.full_bound(&block, i);
            let handle = index.handle(&block, i, 0);
            let (offset, bytes) = (handle.offset, handle.bytes);
            write(format_args!(
                "  block at {offset}, {bytes} bytes, up to {} {trailer:?}\n",
                key.escape_ascii()
            ))?;
        }
    }
    Ok(())
}
