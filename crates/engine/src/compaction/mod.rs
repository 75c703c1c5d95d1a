//! The executor: carries a plan out: writes what a flush or a merge leaves, or copies a part of a table elsewhere.
//!
//! [`write_tables`] walks one sorted input and writes disjoint tables; [`Retain`] says which entries stay. Tables
//! are cut between keys, never between versions of one. Outputs are durable, names included, when it returns; if it
//! fails, it removes what it made and the plan can be tried again from the start.
//!
//! Memory is a table writer's buffers and the inputs' read-ahead; each entry is copied once, into the block being
//! built. A block that is large for its one entry is charged, with what packing it takes: the cache makes room.

pub(crate) mod retain;

use crate::cache::{Cache, LARGE_BYTES};
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, StoreId};
use crate::key::{Cursor, Entry, Seq, Target, Trailer, common_prefix};
use crate::memory::{Charge, Holder};
use crate::planted::{self, Bug};
use crate::table::{BlocksWriter, FloorOptions, FloorWriter, Link, TableWriter, Tree, WriterOptions};
use crate::tier::{Lease, Tiers};
use crate::version::{InMemory, TableMeta, TablePart};
use cuesta_device::{AlignedBuf, Cause, Device};
pub(crate) use retain::Retain;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// How outputs are to be made.
pub(crate) struct OutputOptions<'a> {
    pub(crate) store: StoreId,
    pub(crate) tiers: &'a Tiers,
    /// Gives way to large blocks.
    pub(crate) cache: &'a Cache,
    pub(crate) cause: Cause,
    /// Says where the next table's data of at most so many bytes goes.
    pub(crate) place: &'a dyn Fn(u64) -> Placed<'a>,
    /// Where meta parts go.
    pub(crate) meta_tier: u32,
    /// Data parts are cut at this size.
    pub(crate) table_bytes: u64,
    pub(crate) block_bytes: u32,
    /// Gives numbers to new files.
    pub(crate) take_number: &'a dyn Fn() -> u64,
    /// Told now and then how many bytes of keys and values of the input are done; work stops with its error.
    pub(crate) check: &'a dyn Fn(u64) -> Result<()>,
    /// Most bytes that all outputs take: data parts, meta parts.
    pub(crate) most: (u64, u64),
    /// Keys that no table goes across, ascending: guards begin there.
    pub(crate) bounds: &'a [Vec<u8>],
    /// Keys that no table which is half full goes across, ascending: what it will be merged with begins there.
    pub(crate) soft_bounds: &'a [Vec<u8>],
    /// The floors that the output with this key is to lie on. What lies on others is cut at bounds only, and behind the
    /// last key of these; what comes then, up to the next bound, lies on nothing.
    pub(crate) under: &'a dyn Fn(&[u8]) -> Result<Option<Tree>>,
    /// For tables of blocks that are put on others: where a search for this place goes on below.
    pub(crate) link: Option<LinkTo<'a>>,
    /// Of the input, the keys after the first of these and up to the second.
    pub(crate) keys: (Option<&'a [u8]>, Option<&'a [u8]>),
    /// Told each entry that stays and is its key's newest.
    pub(crate) meet: Option<&'a dyn Fn(&Entry<'_>)>,
    /// What range tombstones up to this number cover does not stay.
    pub(crate) erased: Seq,
}

/// Finds where a search for a place goes on in the run below.
pub(crate) type LinkTo<'a> = &'a dyn Fn(&[u8], Trailer) -> Option<Link>;

/// Where an output's data goes.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    pub(crate) tier: u32,
    /// Its room there, if that is not part of what the whole job was promised.
    pub(crate) lease: Option<Lease<'a>>,
}

impl Placed<'_> {
    /// Within what the job was promised.
    pub(crate) fn on(tier: u32) -> Self {
        Self { tier, lease: None }
    }
}

/// Most bytes that a table's data takes which is cut at `table_bytes`, and whose first key has `first` bytes of entry.
/// No other key is begun that would go beyond it.
pub(crate) fn data_bytes_max(table_bytes: u64, first: u64) -> u64 {
    table_bytes.max(first) + table_bytes / 8 + DATA_SLACK
}

/// The first and the last page of a table's data, restarts and trailers.
const DATA_SLACK: u64 = 64 << 10;

/// Bytes of input between two looks at whether the store is closing.
const CHECK_BYTES: u64 = 256 << 10;

/// Writes what `retain` keeps of `input`, of the keys that are asked for, into new tables.
///
/// # Errors
/// What the input, the devices or `options.check` say; no output is left then.
pub(crate) fn write_tables(
    input: &mut dyn Cursor,
    retain: &mut Retain,
    options: &OutputOptions<'_>,
) -> Result<Vec<TableMeta>> {
    let mut outputs = Outputs {
        options,
        made: Vec::new(),
        done: Vec::new(),
        begun: None,
        beyond: false,
        last: Vec::new(),
        large: None,
        settled: Vec::new(),
        bounds: options.bounds,
        soft_bounds: options.soft_bounds,
    };
    let written = outputs.write(input, retain);
    if written.is_err() {
        outputs.discard();
    }
    written.map(|()| outputs.done)
}

/// Bytes that a relocation copies at once.
const COPY_BYTES: usize = 1 << 20;

/// Copies a part of a table to tier `to` as it is: its blocks are checked against file and offset, not against the
/// tier. The copy is durable, its name included, when it returns; if it fails, nothing is left of it.
///
/// # Errors
/// What the devices or `check` say.
pub(crate) fn copy_part(
    tiers: &Tiers,
    meta: &TableMeta,
    part: TablePart,
    to: u32,
    check: &dyn Fn() -> Result<()>,
) -> Result<TableMeta> {
    let (from, file, bytes) = meta.part(part);
    let cause = if to > from { Cause::Demotion } else { Cause::Promotion };
    let copy = || -> Result<()> {
        let source = tiers.metered(tiers.open_table_file(from, file)?, from as usize, cause);
        // What a copy that failed left, if it could not be removed then; nothing names a file of this name there.
        tiers.get(to)?.remove(file)?;
        let target = tiers.create_table_file(to, file, cause)?;
        let fail = |source| Error::io(format!("copy {file} from tier {from} to tier {to}"), source);
        let mut buffer = AlignedBuf::zeroed(COPY_BYTES);
        for at in (0..bytes).step_by(COPY_BYTES) {
            let len = ((bytes - at) as usize).min(COPY_BYTES);
            source.read_at(&mut buffer[..len], at).map_err(fail)?;
            target.write_at(&buffer[..len], at).map_err(fail)?;
            check()?;
        }
        if !planted::has(Bug::CopySyncDropped) {
            target.sync().map_err(fail)?;
            tiers.get(to)?.sync_names()?;
        }
        Ok(())
    };
    match copy() {
        Ok(()) => Ok(meta.with_part_on(part, to)),
        Err(error) => {
            // What cannot be removed is an orphan, and the next open removes it.
            drop(tiers.get(to).and_then(|tier| tier.remove(file)));
            Err(error)
        }
    }
}

/// A table being written.
struct Begun<'b> {
    number: u64,
    writer: TableWriter,
    placed: Placed<'b>,
    /// Both parts.
    devices: [Arc<dyn Device>; 2],
    /// The last key of those that it lies on.
    reach: Option<Vec<u8>>,
    /// What its writer holds.
    held: Charge,
}

struct Outputs<'a, 'b> {
    options: &'a OutputOptions<'b>,
    /// Number and tier of all tables begun.
    made: Vec<(u64, u32)>,
    done: Vec<TableMeta>,
    begun: Option<Begun<'b>>,
    /// The last table was cut before the next bound.
    beyond: bool,
    /// The last key of the input, where tables begin with what all of their keys do.
    last: Vec<u8>,
    /// For the largest block that the writer has built, if it is large.
    large: Option<Charge>,
    /// Bytes that stay counted on a tier for tables that are done.
    settled: Vec<(u32, u64)>,
    /// Those that lie ahead.
    bounds: &'a [Vec<u8>],
    soft_bounds: &'a [Vec<u8>],
}

impl<'b> Outputs<'_, 'b> {
    fn write(&mut self, input: &mut dyn Cursor, retain: &mut Retain) -> Result<()> {
        let (after, up_to) = self.options.keys;
        if self.options.tiers.all.iter().any(|tier| tier.memory.is_some()) {
            input.go(up_to.map_or(Target::Last, |key| Target::Before(key, Trailer::LAST)))?;
            self.last = input.entry().map_or(Vec::new(), |entry| entry.key.to_vec());
        }
        input.go(after.map_or(Target::First, |key| Target::AtOrAfter(key, Trailer::LAST)))?;
        let (mut seen, mut seen_bytes, mut check_at) = (0u64, 0u64, CHECK_BYTES);
        // Nothing stays of the present key so far: a range tombstone may cover its newest version, and a snapshot see
        // the next.
        let mut is_first = true;
        while let Some(entry) = input.entry().filter(|entry| up_to.is_none_or(|key| entry.key <= key)) {
            let new_key = retain.is_new_key(entry.key);
            is_first |= new_key;
            let lost = planted::has(Bug::MergeLosesAnEntry) && seen == 30;
            if retain.keeps(entry.key, entry.trailer) && !lost {
                let bytes = (entry.key.len() + entry.value.len()) as u64;
                let table_bytes = self.options.table_bytes;
                let most = data_bytes_max(table_bytes, 0);
                let begins_guard =
                    passes(&mut self.bounds, entry.key) && !planted::has(Bug::GuardBoundsIgnored);
                let begins_below = passes(&mut self.soft_bounds, entry.key);
                let is_full = |at: u64| {
                    at >= table_bytes
                        || at + bytes + DATA_SLACK > most
                        || begins_below && at >= table_bytes / 2
                };
                let is_done = |begun: &Begun<'_>| {
                    let may_end = begun.reach.as_deref().is_none_or(|reach| entry.key > reach);
                    begins_guard || may_end && is_full(begun.writer.bytes())
                };
                self.beyond &= !begins_guard;
                if is_first && self.begun.as_ref().is_some_and(is_done) {
                    self.finish_table()?;
                    self.beyond = !begins_guard;
                }
                let begun = match &mut self.begun {
                    Some(begun) => begun,
                    None => {
                        let begun = self.begin_table(entry.key, bytes)?;
                        self.begun.insert(begun)
                    }
                };
                let held = self.large.as_ref().map_or(0, Charge::bytes);
                if bytes >= LARGE_BYTES as u64 && 2 * bytes > held {
                    let cache = self.options.cache;
                    self.large = Some(cache.memory().charge(Holder::Reads, 2 * bytes));
                    cache.fit();
                }
                begun.writer.add(entry)?;
                if let Some(link) = self.options.link.filter(|_| begun.writer.wants_link()) {
                    begun.writer.set_link(link(entry.key, entry.trailer));
                }
                if let Some(meet) = self.options.meet.filter(|_| new_key) {
                    meet(&entry);
                }
                is_first = false;
            }
            seen += 1;
            seen_bytes += (entry.key.len() + entry.value.len()) as u64;
            input.next()?;
            if seen_bytes >= check_at {
                self.count_held();
                (self.options.check)(seen_bytes)?;
                check_at = seen_bytes + CHECK_BYTES;
            }
        }
        self.finish_table()?;
        // What was copied out of memory that was lost meanwhile is worth nothing.
        self.options.tiers.check_memory()?;
        if !self.done.is_empty() && !planted::has(Bug::TableNamesSyncDropped) {
            let tiers: BTreeSet<u32> =
                self.made.iter().map(|(_, tier)| *tier).chain([self.options.meta_tier]).collect();
            tiers.into_iter().try_for_each(|tier| self.options.tiers.get(tier)?.sync_names())?;
        }
        Ok(())
    }

    /// Counts what the writer of the present table holds, where it comes to much.
    fn count_held(&mut self) {
        let Some(Begun { writer: TableWriter::Floor(writer), held, .. }) = &mut self.begun else { return };
        held.resize(writer.held_bytes());
        self.options.cache.fit();
    }

    /// Whose first entry has this key, and so many bytes.
    fn begin_table(&mut self, key: &[u8], first: u64) -> Result<Begun<'b>> {
        let options = self.options;
        let most = data_bytes_max(options.table_bytes, first);
        let placed = (options.place)(most);
        let number = (options.take_number)();
        self.made.push((number, placed.tier));
        let create =
            |tier, kind| options.tiers.create_table_file(tier, FileId::new(kind, number), options.cause);
        let data = create(placed.tier, FileKind::Data)?;
        let meta = create(options.meta_tier, FileKind::Meta)?;
        let devices = [data.clone(), meta.clone()];
        let tier = options.tiers.get(placed.tier)?;
        let filter_bits_per_key = tier.filter_bits_per_key;
        let mut reach = None;
        let writer = if tier.memory.is_some() {
            let below = if self.beyond { None } else { (options.under)(key)? };
            reach = below.as_ref().map(|below| below.largest_key().to_vec());
            // Both parts count when a table is cut that lies on nothing.
            let may_have = if reach.is_some() { u64::MAX } else { most };
            // No file makes room for more than the job was promised and has not written yet.
            let left = |most: u64, of: fn(&TableMeta) -> u64| {
                most.saturating_sub(self.done.iter().map(of).sum()).min(may_have)
            };
            let most =
                (left(options.most.0, |meta| meta.data_bytes), left(options.most.1, |meta| meta.meta_bytes));
            let behind = self.bounds.first().map_or(self.last.as_slice(), |bound| bound.min(&self.last));
            let shared = key[..common_prefix(key, behind)].to_vec();
            let floor = FloorOptions { shared, filter_bits_per_key, most };
            let below = below.unwrap_or_default();
            TableWriter::Floor(Box::new(FloorWriter::new(options.store, number, data, meta, floor, below)?))
        } else {
            let (compression, block_bytes) = (tier.compression, options.block_bytes);
            let blocks = WriterOptions {
                compression,
                filter_bits_per_key,
                block_bytes,
                links: options.link.is_some(),
            };
            TableWriter::Blocks(Box::new(BlocksWriter::new(options.store, number, data, meta, blocks)?))
        };
        let held = options.cache.memory().charge(Holder::Jobs, 0);
        Ok(Begun { number, writer, placed, devices, reach, held })
    }

    fn finish_table(&mut self) -> Result<()> {
        let Some(Begun { number, writer, placed, devices, held, .. }) = self.begun.take() else {
            return Ok(());
        };
        let properties = writer.finish()?;
        drop(held);
        self.large = None;
        if let Some(lease) = placed.lease {
            lease.settle(properties.data_file_bytes);
            self.settled.push((placed.tier, properties.data_file_bytes));
        }
        let memory = match &properties.floor {
            Some(shape) => Some(InMemory { places: places(&devices)?, below: shape.below }),
            None => None,
        };
        self.done.push(TableMeta {
            number,
            data_tier: placed.tier,
            meta_tier: self.options.meta_tier,
            data_bytes: properties.data_file_bytes,
            meta_bytes: properties.meta_file_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            raw_bytes: properties.raw_bytes,
            smallest: properties.smallest_key,
            largest: properties.largest_key,
            smallest_seq: properties.smallest_seq,
            largest_seq: properties.largest_seq,
            erased: self.options.erased,
            memory,
        });
        Ok(())
    }

    /// Removes every file that was made. What cannot be removed is an orphan, and the next open removes it.
    fn discard(&mut self) {
        self.begun = None;
        self.large = None;
        for (number, tier) in &self.made {
            for (tier, kind) in [(*tier, FileKind::Data), (self.options.meta_tier, FileKind::Meta)] {
                if let Ok(tier) = self.options.tiers.get(tier) {
                    drop(tier.remove(FileId::new(kind, *number)));
                }
            }
        }
        for (tier, bytes) in self.settled.drain(..) {
            if let Ok(tier) = self.options.tiers.get(tier) {
                tier.uncount(bytes);
            }
        }
    }
}

/// Whether some of these bounds, which are taken away then, lie between the key before and this one.
fn passes(bounds: &mut &[Vec<u8>], key: &[u8]) -> bool {
    let passed = bounds.iter().take_while(|bound| bound.as_slice() <= key).count();
    *bounds = &bounds[passed..];
    passed > 0
}

/// Where both parts of a floor lie that was written; nothing writes to them from now on.
fn places(devices: &[Arc<dyn Device>; 2]) -> Result<[Vec<Range<u64>>; 2]> {
    let place = |device: &Arc<dyn Device>| {
        let viewed = device.view().map_err(|source| Error::io("view a table that was written", source))?;
        let pieces = viewed.and_then(|_| device.extents());
        pieces.ok_or_else(|| Error::internal("a floor that is not in persistent memory"))
    };
    Ok([place(&devices[0])?, place(&devices[1])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyspaceId, Kind};
    use crate::memtable::{MemCursor, MemTable};
    use crate::table::Compression;
    use crate::tier::Tier;
    use cuesta_device::{Access, FileDirectory, Meter};
    use std::cell::{Cell, RefCell};

    /// Writes all of a memtable that readers at `boundaries` see.
    fn written(
        memtable: &Arc<MemTable>,
        cache: &Cache,
        boundaries: Vec<Seq>,
        (bounds, soft_bounds): (&[Vec<u8>], &[Vec<u8>]),
        table_bytes: u64,
        check: &dyn Fn(u64) -> Result<()>,
    ) -> Vec<TableMeta> {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(FileDirectory::open(dir.path()).unwrap());
        let tier = Tier::new(0, directory, 1 << 30, (Compression::None, 10));
        let tiers = Tiers { all: vec![tier], meter: Meter::new(1), table_access: Access::Buffered };
        let number = Cell::new(0);
        let options = OutputOptions {
            store: StoreId(7),
            tiers: &tiers,
            cache,
            cause: Cause::Flush,
            place: &|_| Placed::on(0),
            meta_tier: 0,
            table_bytes,
            block_bytes: 4096,
            take_number: &|| number.replace(number.get() + 1),
            check,
            most: (0, 0),
            bounds,
            soft_bounds,
            under: &|_| Ok(None),
            link: None,
            keys: (None, None),
            meet: None,
            erased: Seq(0),
        };
        let mut retain = Retain::new(boundaries, Default::default(), true);
        write_tables(&mut MemCursor::new(memtable.clone()), &mut retain, &options).unwrap()
    }

    #[test]
    fn a_large_block_is_charged_while_it_is_being_written() {
        const MIB: usize = 1 << 20;
        let (mut writer, memtable) = MemTable::new(1);
        for (i, bytes) in (1..).zip([100, MIB, 2 * MIB, 100]) {
            let key = KeyspaceId::DEFAULT.key(&[i]);
            writer.insert(&key, Trailer::new(Seq(i.into()), Kind::Put), &vec![i; bytes]);
        }
        let (cache, held) = (Cache::new(64 << 20, 1), RefCell::new(Vec::new()));
        let check = |_| {
            held.borrow_mut().push(cache.memory().held(Holder::Reads) / MIB as u64);
            Ok(())
        };
        let made = written(&memtable, &cache, vec![Seq::MAX], (&[], &[]), 64 << 20, &check);
        assert_eq!((made.len(), made[0].entries), (1, 4));
        // The block, and as much for packing it; of two, the larger one.
        assert_eq!(*held.borrow(), [2, 4]);
        assert_eq!(cache.memory().held(Holder::Reads), 0);
    }

    #[test]
    fn no_table_goes_from_one_guard_into_the_next() {
        let (mut writer, memtable) = MemTable::new(1);
        let key = |i: u8| KeyspaceId::DEFAULT.key(&[i]);
        for i in 0..10 {
            // Of one key two versions, which stay together.
            let versions = if i == 4 { 1..3 } else { 1..2 };
            versions.for_each(|seq| writer.insert(&key(i), Trailer::new(Seq(seq), Kind::Put), b"value"));
        }
        let cut_at = |bounds: &[Vec<u8>]| {
            // The older one is seen by a snapshot.
            let boundaries = vec![Seq(1), Seq::MAX];
            let cache = Cache::new(64 << 20, 1);
            let made = written(&memtable, &cache, boundaries, (bounds, &[]), 64 << 20, &|_| Ok(()));
            made.iter().map(|meta| (meta.smallest[4], meta.largest[4], meta.entries)).collect::<Vec<_>>()
        };
        assert_eq!(cut_at(&[]), [(0, 9, 11)]);
        // Before the first key, at one, between two, two at once, at the last, and behind it.
        let between = KeyspaceId::DEFAULT.key(&[6, 1]);
        let bounds = [vec![0], key(4), between.clone(), [&between[..], &[1]].concat(), key(9), key(20)];
        assert_eq!(cut_at(&bounds), [(0, 3, 4), (4, 6, 4), (7, 8, 2), (9, 9, 1)]);
    }

    #[test]
    fn a_table_that_is_half_full_ends_where_one_below_begins() {
        let (mut writer, memtable) = MemTable::new(1);
        let key = |i: u8| KeyspaceId::DEFAULT.key(&[i]);
        (0..64).for_each(|i| writer.insert(&key(i), Trailer::new(Seq(1), Kind::Put), &[i; 16 << 10]));
        let cut_at = |soft_bounds: &[Vec<u8>]| {
            let cache = Cache::new(64 << 20, 1);
            let made = written(&memtable, &cache, vec![Seq::MAX], (&[], soft_bounds), 512 << 10, &|_| Ok(()));
            made.iter().map(|meta| (meta.smallest[4], meta.largest[4])).collect::<Vec<_>>()
        };
        // 32 values fill a table.
        assert_eq!(cut_at(&[]), [(0, 31), (32, 63)]);
        assert_eq!(cut_at(&[key(8), key(15), key(20), key(28)]), [(0, 19), (20, 51), (52, 63)]);
        assert_eq!(cut_at(&[key(20), key(40), key(41), key(63)]), [(0, 19), (20, 39), (40, 62), (63, 63)]);
    }
}
