//! Sorted tables: entries in key order, written once (`docs/format/table.md`).
//!
//! A table has two files, each on the tier that suits it: the data part with keys and values, and the meta part that
//! leads to them. It comes in two forms: [`blocks`] for media that are read a page at a time, and [`floor`] for
//! persistent memory, which is read byte by byte where it lies. A floor may lie on others and point into them; then it
//! is read with all of these, as one table.

mod blocks;
mod compression;
mod filter;
mod floor;
mod properties;
mod sink;
mod stored;
mod story;

pub use compression::Compression;

pub(crate) use blocks::{BlocksWriter, Gap, Remains, WriterOptions};
pub(crate) use floor::{
    ENTRY_BYTES as FLOOR_ENTRY_BYTES, FLOORS_MAX, FloorOptions, FloorWriter, InFloor,
    SECTOR_BYTES as FLOOR_SECTOR_BYTES, Tree,
};
pub(crate) use properties::Properties;

use crate::cache::{BlockKey, BlockSlice, Cache};
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, Place, StoreId};
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::memory::{Charge, Holder, Memory};
use blocks::{Blocks, BlocksCursor};
use cuesta_device::Device;
use cuesta_sched::atomic::AtomicU64;
use floor::{Floor, TreeCursor};
use std::fmt::Write;
use std::ops::Deref;
use std::sync::Arc;

/// What an open table holds besides its parts: devices, counts, the heap's own.
const TABLE_BYTES: usize = 512;

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    form: Form,
    /// What it holds while it is open.
    held: Option<Charge>,
}

#[derive(Debug)]
enum Form {
    Blocks(Arc<Blocks>),
    /// It, and the tree that it is the top of.
    Floor(Arc<Floor>, Tree),
}

/// What a lookup takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Reads of the meta part.
    pub(crate) meta_reads: u64,
    /// Reads of the data part.
    pub(crate) data_reads: u64,
    /// The filter says that the key is not there.
    pub(crate) excluded: bool,
}

/// Where a search goes on in the run below: the block form's pointer from floor to floor. What it says is found true or
/// false when it is used, so a table that has changed since, or is not there any more, makes it useless and not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) table: u64,
    /// Which of that table's indexes is searched first.
    pub(crate) partition: u32,
}

/// A version of a key, found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) trailer: Trailer,
    pub(crate) value: FoundIn,
}

/// Its value, and where it was.
#[derive(Clone, Debug)]
pub(crate) enum FoundIn {
    Block {
        value: BlockSlice,
        /// The data block that it lies in.
        block: BlockKey,
        /// The cache had the block, and not only among those met last.
        was_cached: bool,
    },
    /// A copy: what is in persistent memory may go away under a reader.
    Memory(Arc<[u8]>),
}

impl Deref for FoundIn {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Block { value, .. } => value,
            Self::Memory(value) => value,
        }
    }
}

/// Whether a read leaves its block in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Yes,
    /// For merges, which read everything once.
    No,
}

/// How far a cursor reads ahead of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadAhead {
    /// Bytes that will be wanted from where the cursor goes, as far as that is known.
    pub(crate) expected_bytes: usize,
    /// Bytes of one read, at most.
    pub(crate) max_bytes: usize,
    /// Keys between which entries are wanted.
    pub(crate) low: Option<Arc<[u8]>>,
    pub(crate) high: Option<Arc<[u8]>>,
}

/// A table being written.
#[derive(Debug)]
pub(crate) enum TableWriter {
    Blocks(Box<BlocksWriter>),
    Floor(Box<FloorWriter>),
}

/// A position in a table.
#[derive(Debug)]
pub(crate) enum TableCursor {
    /// Boxed: a cursor of the other form is small.
    Blocks(Box<BlocksCursor>),
    Floor(TreeCursor),
}

impl Table {
    /// Opens table `number`: a few reads of the meta part. One in persistent memory lies on `below`; reads of the data
    /// part of any other are counted in `reads`.
    ///
    /// # Errors
    /// `Corrupt` with file and offset; `Unsupported` for a newer format.
    pub(crate) fn open(
        store: StoreId,
        number: u64,
        (data, meta): (Arc<dyn Device>, Arc<dyn Device>),
        below: Option<&Self>,
        reads: Arc<AtomicU64>,
    ) -> Result<Self> {
        let view = |device: &Arc<dyn Device>, kind| {
            let file = FileId::new(kind, number);
            device.view().map_err(|source| Error::io(format!("view {file}"), source))
        };
        let form = match (view(&data, FileKind::Data)?, view(&meta, FileKind::Meta)?) {
            (Some(data), Some(meta)) => {
                let floor = Arc::new(Floor::open(store, number, data, meta)?);
                let tree = Tree::on(below.and_then(Self::tree), floor.clone())?;
                Form::Floor(floor, tree)
            }
            _ => Form::Blocks(Arc::new(Blocks::open(store, number, data, meta, reads)?)),
        };
        Ok(Self { form, held: None })
    }

    /// Counts what it holds while it is open.
    pub(crate) fn charge_to(&mut self, memory: &Arc<Memory>) {
        let properties = self.properties();
        let keys = properties.smallest_key.len() + properties.largest_key.len();
        let form = match &self.form {
            Form::Blocks(blocks) => size_of::<Blocks>() + blocks.held_bytes(),
            Form::Floor(_, tree) => tree.held_bytes(),
        };
        self.held = Some(memory.charge(Holder::Tables, (TABLE_BYTES + keys + form) as u64));
    }

    /// Memory that is counted for it.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, Charge::bytes)
    }

    pub(crate) fn properties(&self) -> &Properties {
        match &self.form {
            Form::Blocks(blocks) => blocks.properties(),
            Form::Floor(floor, _) => floor.properties(),
        }
    }

    /// The floors that one which is put on top of this table lies on; `None` for a table of blocks.
    pub(crate) fn tree(&self) -> Option<&Tree> {
        match &self.form {
            Form::Blocks(_) => None,
            Form::Floor(_, tree) => Some(tree),
        }
    }

    /// The newest version of `key` at or after `bound` in the order of versions. Its block is in the cache for a
    /// moment; what stays of it is the caller's to say. `link` is what the table above said of where to search, and
    /// becomes what this one says of the next.
    pub(crate) fn get(
        &self,
        cache: &Cache,
        key: &[u8],
        bound: Trailer,
        link: &mut Option<Link>,
    ) -> Result<Option<Found>> {
        match &self.form {
            Form::Blocks(blocks) => blocks.get(cache, key, bound, link),
            Form::Floor(_, tree) => tree.get(key, bound, |hit| Found {
                trailer: hit.trailer,
                value: FoundIn::Memory(hit.value.into()),
            }),
        }
    }

    /// Where a search for this place begins in the table, for one that is put on it; `None` for a floor, of which each
    /// entry is pointed at.
    pub(crate) fn link_to(&self, key: &[u8], trailer: Trailer) -> Option<Link> {
        match &self.form {
            Form::Blocks(blocks) => Some(blocks.link_to(key, trailer)),
            Form::Floor(..) => None,
        }
    }

    /// What a lookup of `key` would have to read, with the cache as it is and left so.
    pub(crate) fn way_to(&self, cache: &Cache, key: &[u8], bound: Trailer) -> Result<Way> {
        match &self.form {
            Form::Blocks(blocks) => blocks.way_to(cache, key, bound),
            Form::Floor(_, tree) => Ok(Way { excluded: !tree.may_contain(key)?, ..Way::default() }),
        }
    }

    /// About which share of keys that it does not have passes its filter.
    pub(crate) fn strangers(&self) -> f64 {
        filter::strangers(self.properties().filter_bits_per_key)
    }

    /// What its filter says of a key, as far as memory has that; of a floor, nothing.
    pub(crate) fn may_hold(&self, cache: &Cache, key: &[u8]) -> Option<bool> {
        match &self.form {
            Form::Blocks(blocks) => blocks.may_hold(cache, key),
            Form::Floor(..) => None,
        }
    }

    /// About which share of the table lies from `low` to `high`.
    pub(crate) fn share_of(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<f64> {
        let at = |key| (key, Trailer::FIRST);
        match &self.form {
            Form::Blocks(blocks) => Ok(blocks.share_of(low, high)),
            Form::Floor(_, tree) => tree.share_between(low.map(at), high.map(at)),
        }
    }

    /// Which share of the data part's bytes is of keys after `after` and up to `up_to`; of blocks, of those that have
    /// such. Reads the indexes of at most two partitions.
    pub(crate) fn share_between(
        &self,
        cache: &Cache,
        after: Option<&[u8]>,
        up_to: Option<&[u8]>,
    ) -> Result<f64> {
        let behind = |key| (key, Trailer::LAST);
        match &self.form {
            Form::Blocks(blocks) => blocks.share_between(cache, after, up_to),
            Form::Floor(_, tree) => tree.share_between(after.map(behind), up_to.map(behind)),
        }
    }

    /// A cursor for readers.
    pub(crate) fn cursor(&self, cache: Arc<Cache>, fill: Fill, read_ahead: ReadAhead) -> TableCursor {
        match &self.form {
            Form::Blocks(blocks) => TableCursor::Blocks(Box::new(blocks.cursor(cache, fill, read_ahead))),
            Form::Floor(_, tree) => TableCursor::Floor(TreeCursor::new(tree.clone())),
        }
    }

    /// A cursor for merges: reads through `data`, `bytes` at once from the start on, and leaves the cache alone.
    pub(crate) fn cursor_over(&self, data: Arc<dyn Device>, cache: Arc<Cache>, bytes: usize) -> TableCursor {
        match &self.form {
            Form::Blocks(blocks) => TableCursor::Blocks(Box::new(blocks.cursor_over(data, cache, bytes))),
            Form::Floor(_, tree) => TableCursor::Floor(TreeCursor::new(tree.clone())),
        }
    }

    /// What is left of the data part, which is read through `data`.
    ///
    /// # Errors
    /// What is wrong with the indexes; `Internal` of a floor.
    pub(crate) fn remains(&self, place: Place, data: Arc<dyn Device>) -> Result<Remains> {
        match &self.form {
            Form::Blocks(blocks) => Ok(Remains::new(place, data, blocks.handles()?)),
            Form::Floor(..) => Err(Error::internal("what is left of a floor is not known by blocks")),
        }
    }

    /// Checks every byte of both parts; `progress` is told how many more have been read.
    ///
    /// # Errors
    /// `Corrupt` with the file and the offset of the first thing that is wrong.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        match &self.form {
            Form::Blocks(table) => blocks::verify(table, progress),
            Form::Floor(_, tree) => floor::verify(tree, progress),
        }
    }

    /// In words, a line at a time: what it says of itself, and every entry. Of a tree the topmost floor.
    pub(crate) fn describe(&self, say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        match &self.form {
            Form::Blocks(table) => {
                table.properties().to_string().lines().try_for_each(&mut *say)?;
                blocks::walk(table, &mut |entry| say(&format!("{entry:?}")))
            }
            Form::Floor(_, tree) => floor::describe(tree, say),
        }
    }

    /// Hands every entry to `each`, in order.
    pub(crate) fn walk(&self, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        match &self.form {
            Form::Blocks(table) => blocks::walk(table, each),
            Form::Floor(_, tree) => {
                let mut cursor = TreeCursor::new(tree.clone());
                cursor.go(Target::First)?;
                while let Some(entry) = cursor.entry() {
                    each(entry)?;
                    cursor.next()?;
                }
                Ok(())
            }
        }
    }
}

impl TableWriter {
    /// Adds an entry behind the last.
    pub(crate) fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        match self {
            Self::Blocks(writer) => writer.add(entry),
            Self::Floor(writer) => writer.add(entry),
        }
    }

    /// Whether what was added last is the first of a partition whose index is to say where a search goes on below.
    pub(crate) fn wants_link(&self) -> bool {
        match self {
            Self::Blocks(writer) => writer.wants_link(),
            Self::Floor(_) => false,
        }
    }

    /// Has the partition being written say so.
    pub(crate) fn set_link(&mut self, link: Option<Link>) {
        match self {
            Self::Blocks(writer) => writer.set_link(link),
            Self::Floor(_) => {}
        }
    }

    /// What entries take so far, in bytes: of blocks, in the data part.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Blocks(writer) => writer.data_bytes(),
            Self::Floor(writer) => writer.bytes(),
        }
    }

    /// Stores what is left and makes both files durable; their names are not.
    pub(crate) fn finish(self) -> Result<Properties> {
        match self {
            Self::Blocks(writer) => writer.finish(),
            Self::Floor(writer) => writer.finish(),
        }
    }
}

/// A meta part in words, from its file alone.
pub(crate) fn describe_meta(place: Place, device: Arc<dyn Device>, out: &mut dyn Write) -> Result<()> {
    blocks::describe_meta(place, device, out)
}

/// Hands every entry of a data part to `each`, in order, without its meta part.
///
/// # Errors
/// `Corrupt` where blocks were damaged, once all others have been handed over; what the device and `each` say.
pub(crate) fn walk_alone(
    place: Place,
    device: Arc<dyn Device>,
    each: &mut dyn FnMut(Entry<'_>) -> Result<()>,
) -> Result<()> {
    blocks::walk_alone(place, device, each)
}

impl Cursor for TableCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        match self {
            Self::Blocks(cursor) => cursor.begin(target),
            Self::Floor(cursor) => cursor.begin(target),
        }
    }
    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        match self {
            Self::Blocks(cursor) => cursor.finish(target),
            Self::Floor(cursor) => cursor.finish(target),
        }
    }
    fn next(&mut self) -> Result<()> {
        match self {
            Self::Blocks(cursor) => cursor.next(),
            Self::Floor(cursor) => cursor.next(),
        }
    }
    fn prev(&mut self) -> Result<()> {
        match self {
            Self::Blocks(cursor) => cursor.prev(),
            Self::Floor(cursor) => cursor.prev(),
        }
    }
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Self::Blocks(cursor) => cursor.entry(),
            Self::Floor(cursor) => cursor.entry(),
        }
    }
}

/// What the micro-benchmarks look at.
#[cfg(feature = "internals")]
pub(crate) mod parts {
    pub(crate) use super::blocks::parts::{BlockBuilder, BlockCursor};
    pub(crate) use super::filter::{build as build_filter, may_contain};
}

/// Constants that `docs/format/table.md` names.
#[cfg(test)]
pub(crate) mod documented {
    pub(crate) use super::blocks::documented::RESTART_INTERVAL;
    pub(crate) use super::filter::LINE_BYTES;
    pub(crate) use super::floor::{ENTRY_BYTES, FLOORS_MAX, PREFIX_BYTES, SECTOR_BYTES};
    pub(crate) use super::stored::{BLOCK_TRAILER_BYTES, FOOTER_BYTES, HANDLE_BYTES};
}
