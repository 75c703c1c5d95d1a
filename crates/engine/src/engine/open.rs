//! Opening and making a store, and closing it.
//!
//! Open, in order; nothing that exists is changed before step 5 (persistent memory is made as long as it should be
//! after step 3; a replay larger than a memtable writes tables that no edit names yet, and that the next open removes
//! as orphans if this one fails):
//!
//! 1. lock every tier's directory;
//! 2. read every superblock: same store, right order, right number, epochs that belong together;
//! 3. read the manifest; check that every file it names is there, and whole in length;
//! 4. replay the log; find out what the store below the memtable holds, from the image of a clean close, or from its
//!    slots. Between the two a repair takes out what is broken (`mend`), and does not ask for all of the tables in step
//!    3;
//! 5. raise the epoch: first tier `Opening`, the others, first tier `Open`;
//! 6. make all names durable. After a clean close, go on in the manifest and log that are there. After anything else
//!    begin both anew: what was replayed is copied into a new log if it is little (so that a store that is killed over
//!    and over does not grow) or can be flushed into a store below the memtable later, else turned into tables; one
//!    edit of the new manifest names these and the new log. That makes the cut of a torn tail final; and a file whose
//!    sync had failed is not written to again, since what is read of it now may be the kernel's and never reach the
//!    medium, whatever a further sync says. Where guards may have more floors now than the one that they had, another
//!    edit makes them ready for that;
//! 7. remove files that the manifest does not name, and the image, which serves once.
//!
//! A crash at any point leaves a store that opens to the same state. Making a store writes the other tiers'
//! superblocks first (as `Creating`), then the manifest and the log, and the first tier's superblock last.

use super::admission::Pacer;
use super::background::Background;
use super::commit::Root;
use super::guards::ready_for_floors;
use super::keyspaces::Creations;
use super::mend::Broken;
use super::operations::Operations;
use super::snapshots::Snapshots;
use super::stats::{OpenStats, restore_counters};
use super::store::{Announced, InOrder, LoadFrom, Store, image_tier, keys_of, load, tracker_of};
use super::turn::Turn;
use super::write::{Lead, OldLog, WriteQueue, apply_payload};
use super::{Current, Engine, Sealed};
use crate::cache::Cache;
use crate::compaction::{OutputOptions, Placed, Retain, write_tables};
use crate::error::{Error, ErrorKind, Result};
use crate::format::file::{HEADER_BYTES, SUPERBLOCK_NAME};
use crate::format::record::{RECORD_HEADER_BYTES, RecordKind, push_unsealed, stored_bytes};
use crate::format::{FileId, FileKind, Place, Position, StoreId};
use crate::key::{Cursor, Seq};
use crate::log::{Chain, LogWriter, NextLog, Replayed, check_manifest_end, replay};
use crate::memory::{Holder, Memory};
use crate::memtable::{MemCursor, MemTable, MemTableWriter};
use crate::options::{Create, Options};
use crate::planted::{self, Bug};
use crate::range_tombstones::{Erased, RangeTombstones};
use crate::store::SLAB_TIER;
use crate::tier::{Lease, LogRoom, MEMORY_NAME, Tier, Tiers, locked};
use crate::version::edit::AddedTable;
use crate::version::manifest::Manifest;
use crate::version::superblock::{Phase, Superblock};
use crate::version::{Catalog, Edit, Level, OpenMost, TableMeta, Tables};
use arc_swap::ArcSwap;
use cuesta_device::{Access, ByteBuf, Cause, Device, Directory, Listed, Lock, Meter, SureNames};
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What the world hands in: one directory per tier, and the scheduler.
#[derive(Clone, Debug)]
pub struct World {
    /// Threads, time and randomness.
    pub sched: Sched,
    /// Fastest first, as many as the options have tiers.
    pub directories: Vec<Arc<dyn Directory>>,
}

/// Held as long as the store is open, one for each tier.
pub(crate) type Locks = Vec<Box<dyn Lock>>;

/// Largest share of a memtable's limit that was replayed and still stays in memory and in a log.
const KEEP_LOG_SHARE: u64 = 2;
/// A close waits so long for who writes at that moment.
const LEADER_PATIENCE: Duration = Duration::from_secs(10);

/// A store whose files have been found and read, before anything is written.
pub(crate) struct Found {
    pub(crate) locks: Locks,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) catalog: Catalog,
    pub(crate) manifest: Replayed,
    pub(crate) listed: Vec<Vec<Listed>>,
    /// Tables that the manifest names have lower numbers.
    pub(super) first_unnamed: u64,
    seed: u64,
    /// When reading them began.
    began: Duration,
}

impl Engine {
    /// Opens the store that `options` describe, or makes it.
    pub(crate) fn open(options: Options, world: World) -> Result<(Arc<Self>, Locks)> {
        options.validate()?;
        let tiers = tiers(&options, &world)?;
        let locks = lock(&tiers)?;
        let superblocks = read_superblocks(&tiers)?;
        if superblocks[0].is_none() {
            refuse_remains(&tiers, &superblocks)?;
            if options.create == Create::Never {
                let place = tiers.fast().directory.place();
                return Err(Error::new(ErrorKind::NotFound, format!("there is no store in {place}")));
            }
            make(&options, &world, &tiers)?;
        } else if options.create == Create::New {
            let place = tiers.fast().directory.place();
            return Err(Error::new(ErrorKind::Exists, format!("there is a store in {place} already")));
        }
        find(&options, &world, tiers, locks)?.open(options, world, None)
    }

    /// Ends the workers, refuses all later calls, and waits until nobody appends to log or manifest: whoever has the
    /// locks next is to find what this one has acknowledged.
    fn abandon(&self) {
        self.closed.store(true, Ordering::Release);
        self.background.stop();
        drop(self.root.take());
        self.wait_for_leader(LEADER_PATIENCE);
    }

    /// Closes the store: what was acknowledged is made durable, an image of what memory has of the store below the
    /// memtable is left for the next open, log and manifest are trimmed, and the superblock says where they end. The
    /// second call does nothing.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let saved = match self.failure.get() {
            None => self.save().and_then(|()| self.end_announced()),
            Some(_) => Ok(()),
        };
        // Not before: flushes that `save` waits for are refused on a closed store.
        self.abandon();
        saved?;
        if let Some(cause) = self.failure.get() {
            let message =
                "the store had closed for writes before; what was acknowledged is on media as promised";
            return Err(Error::caused_by(ErrorKind::ReadOnly, message, cause.clone()));
        }
        self.tables.collect_garbage();
        self.seal_superblock()
    }

    /// Makes everything acknowledged durable, entries without a log included.
    pub(crate) fn save(&self) -> Result<()> {
        if planted::has(Bug::CloseSyncDropped) {
            return Ok(());
        }
        let unlogged =
            self.sync_log()? || self.current.load().sealed.iter().any(|sealed| sealed.memtable.unlogged());
        if unlogged {
            self.seal_active()?;
            self.wait_for_flush()?;
        }
        Ok(())
    }

    /// Has no slot announced any more: what a cleanly closed store has is live, or in its log.
    fn end_announced(&self) -> Result<()> {
        let Some(store) = self.objects.as_ref().filter(|_| self.options.log_free) else { return Ok(()) };
        if self.failure.get().is_some() {
            return Ok(());
        }
        match self.seal_active().and_then(|()| self.wait_for_flush()) {
            // They are synced, and the next open reads them.
            Err(error) if *error.kind() == ErrorKind::Full => return Ok(()),
            flushed => flushed?,
        }
        self.withdraw_unfilled(store).map(drop)
    }

    /// The last writes of a clean close.
    fn seal_superblock(&self) -> Result<()> {
        let log_end = self.with_lead(|_, lead| {
            // Somebody may have written until a moment ago, to announced slots, too.
            if !planted::has(Bug::CloseSyncDropped) {
                lead.sync()?;
            }
            lead.log.trim()?;
            Ok(lead.log.durable())
        })?;
        let image = self.write_image();
        let (next_file, asked) = {
            let catalog = self.catalog.lock();
            (catalog.next_file, catalog.newly_asked())
        };
        let mut root = self.root.take();
        root.manifest.append(&Edit {
            image,
            next_file: image.map(|_| next_file),
            counters: Some(self.encode_counters()),
            times: Some(self.operations.encode_times()),
            asked,
            last_seq: Some(self.visible()),
            wasted: self.abandoned_slots(),
            ..Edit::default()
        })?;
        root.manifest.trim()?;
        let fast = self.tiers.fast();
        while let Some(retired) = self.background.take_retired_log() {
            fast.remove(FileId::new(FileKind::Log, retired.number))?;
        }
        for tier in &self.tiers.all {
            tier.sync_names()?;
        }
        root.superblock = Superblock {
            phase: Phase::Closed,
            generation: root.superblock.generation + 1,
            manifest_end: root.manifest.end(),
            log_end,
            ..root.superblock
        };
        root.superblock.write(fast.directory.as_ref())
    }
}

/// The tiers as options and world give them.
pub(crate) fn tiers(options: &Options, world: &World) -> Result<Arc<Tiers>> {
    if options.tiers.len() != world.directories.len() {
        let (a, b) = (options.tiers.len(), world.directories.len());
        return Err(Error::invalid(format!(
            "the options have {a} tiers, but {b} directories were handed in"
        )));
    }
    let one = |(i, (tier, directory)): (usize, (&crate::options::TierOptions, &Arc<dyn Directory>))| {
        let shape = (tier.compression, tier.filter_bits_per_key);
        let names = Arc::new(SureNames::new(&world.sched, directory.clone()));
        let mut made = Tier::new(i, names, tier.capacity_bytes, shape);
        made.sector_bytes = tier.sector_bytes;
        if tier.persistent_memory {
            // The log's room is set aside when it is known what it uses.
            made.count(tier.capacity_bytes - options.mapped_bytes(tier) - options.log_bytes());
        }
        if let Some(rate) = tier.background_bytes_per_second {
            made.limit_background(&world.sched, rate);
        }
        made
    };
    let all: Vec<Tier> = options.tiers.iter().zip(&world.directories).enumerate().map(one).collect();
    let table_access = if options.direct_io { Access::Direct } else { Access::Buffered };
    Ok(Arc::new(Tiers { meter: Meter::new(all.len()), all, table_access }))
}

pub(crate) fn lock(tiers: &Tiers) -> Result<Locks> {
    let one = |tier: &Tier| {
        let place = tier.directory.place();
        tier.directory.lock().map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => locked(&place),
            _ => Error::io(format!("lock {place}"), source),
        })
    };
    tiers.all.iter().map(one).collect()
}

pub(crate) fn read_superblocks(tiers: &Tiers) -> Result<Vec<Option<Superblock>>> {
    tiers.all.iter().map(|tier| Superblock::read(tier.directory.as_ref())).collect()
}

/// A tier's files, but for the one that is mapped: what is in that is listed.
fn list(tier: &Tier) -> Result<Vec<Listed>> {
    let listed = tier.directory.list();
    let mut listed =
        listed.map_err(|source| Error::io(format!("list {}", tier.directory.place()), source))?;
    listed.retain(|file| tier.memory.is_none() || file.name != MEMORY_NAME);
    Ok(listed)
}

/// A first tier without a superblock is a new store only if nothing speaks of an old one.
fn refuse_remains(tiers: &Tiers, superblocks: &[Option<Superblock>]) -> Result<()> {
    for (tier, superblock) in tiers.all.iter().zip(superblocks) {
        let place = tier.directory.place();
        if let Some(superblock) = superblock
            && superblock.phase != Phase::Creating
        {
            let store = superblock.store;
            return Err(Error::corrupt(
                format!("{}/{SUPERBLOCK_NAME}", tiers.fast().directory.place()),
                0,
                format!(
                    "the first tier is empty, though {place} is tier {} of store {store}; \
                     is the right directory mounted there?",
                    superblock.tier
                ),
            ));
        }
        let remains = list(tier)?.into_iter().find(|file| {
            let kind = FileId::from_name(&file.name).map(|id| id.kind);
            // Before the superblock, making a store writes its first manifest and its first, empty log.
            let empty_log =
                kind == Some(FileKind::Log) && file.bytes <= crate::format::file::HEADER_BYTES as u64;
            matches!(kind, Some(FileKind::Log | FileKind::Data | FileKind::Meta | FileKind::Slab))
                && !empty_log
        });
        if let Some(file) = remains {
            let message = format!("the superblock is missing, though {} is there", file.name);
            return Err(Error::corrupt(format!("{place}/{SUPERBLOCK_NAME}"), 0, message));
        }
    }
    Ok(())
}

/// Makes an empty store.
fn make(options: &Options, world: &World, tiers: &Tiers) -> Result<()> {
    tiers.all.iter().try_for_each(Tier::allot_memory)?;
    let mut rng = world.sched.rng(0x5709_e1d0);
    let mut store = StoreId(0);
    while store.0 == 0 {
        store = StoreId(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()));
    }
    let count = options.tiers.len() as u32;
    for tier in &tiers.all[1..] {
        Superblock::new(store, tier.ordinal as u32, count).write(tier.directory.as_ref())?;
        // The name may be there already, from an attempt that was killed before it could make it durable.
        tier.sync_names()?;
    }
    let fast = tiers.fast();
    for file in list(fast)? {
        // What an attempt that was cut short left behind.
        if let Some(id) = FileId::from_name(&file.name)
            && id.kind != FileKind::Superblock
        {
            fast.remove(id)?;
        }
    }
    let (manifest, log) = (1, 2);
    let wrap = |device| tiers.metered(device, 0, Cause::Manifest);
    let snapshot = Edit { log_start: Some(log), next_file: Some(log + 1), ..Catalog::default().snapshot() };
    let snapshot = Edit { profile: Some(options.profile.unwrap_or_default()), ..snapshot };
    NextLog::prepare(fast.directory.as_ref(), &wrap, store, log, (None, 0))?;
    let begun = Manifest::begin(fast.directory.as_ref(), &wrap, store, manifest, &snapshot)?;
    // Both are whole and durable, as after a clean close.
    let log_end = Position { file: log, offset: HEADER_BYTES as u64 };
    let superblock =
        Superblock { manifest, manifest_end: begun.end(), log_end, ..Superblock::new(store, 0, count) };
    superblock.write(fast.directory.as_ref())
}

/// Reads what exists; writes nothing. All tables must be there.
pub(crate) fn find(options: &Options, world: &World, tiers: Arc<Tiers>, locks: Locks) -> Result<Found> {
    let found = find_any(options, world, tiers, locks)?;
    check_files(&found.tiers, &found.catalog, &found.listed)?;
    Ok(found)
}

/// As [`find`], whatever has become of tables.
pub(crate) fn find_any(options: &Options, world: &World, tiers: Arc<Tiers>, locks: Locks) -> Result<Found> {
    let began = world.sched.now();
    let superblocks = check_superblocks(&tiers, read_superblocks(&tiers)?)?;
    let store = superblocks[0].store;
    let seed = if options.seed == 0 { world.sched.rng(0x5eed).next_u64() } else { options.seed };
    let memory = Memory::new(options.memory_bytes, options.memtable_bytes(), super::SEALED_MAX as u64);
    let cache = Arc::new(Cache::within(memory, seed));
    let open_most = OpenMost { tables: options.open_tables_max(), memory_share: options.open_tables_share() };
    let tables = Tables::new(&world.sched, store, tiers.clone(), cache, open_most);
    let mut catalog = Catalog::default();
    let floor = superblocks[0].manifest_end;
    let open = |file| open_on_fast(&tiers, file, Cause::Recovery);
    let mut apply = |edit: Edit| catalog.apply(&edit, &tables).map(drop);
    let manifest = Manifest::read(store, superblocks[0].manifest, floor, &open, &mut apply)?;
    claim_memory(&tiers, &catalog)?;
    let listed = tiers.all.iter().map(list).collect::<Result<Vec<_>>>()?;
    let first_unnamed = catalog.next_file;
    Ok(Found { locks, tiers, tables, superblocks, catalog, manifest, listed, first_unnamed, seed, began })
}

/// The tiers must be those of one store, in order, and at epochs that a run or a crash of it could have left.
fn check_superblocks(tiers: &Tiers, found: Vec<Option<Superblock>>) -> Result<Vec<Superblock>> {
    let mut checked: Vec<Superblock> = Vec::new();
    for (tier, superblock) in tiers.all.iter().zip(found) {
        let file = format!("{}/{SUPERBLOCK_NAME}", tier.directory.place());
        let refuse = |why: String| Err(Error::corrupt(&file, 0, why));
        let Some(superblock) = superblock else {
            return refuse(format!(
                "tier {} of the store is missing: the directory holds none",
                tier.ordinal
            ));
        };
        let first = checked.first().copied().unwrap_or(superblock);
        if superblock.store != first.store {
            return refuse(format!("belongs to store {}, not to store {}", superblock.store, first.store));
        }
        if superblock.tier != tier.ordinal as u32 || superblock.tiers != tiers.all.len() as u32 {
            return Err(Error::invalid(format!(
                "{} is tier {} of {}, but the options name it tier {} of {}; give the tiers in the order in which \
                 the store was made",
                tier.directory.place(),
                superblock.tier,
                superblock.tiers,
                tier.ordinal,
                tiers.all.len()
            )));
        }
        let epoch = superblock.epoch;
        let raised = first.phase == Phase::Opening && epoch + 1 == first.epoch;
        if epoch != first.epoch && !raised {
            let (older, why) = match epoch < first.epoch {
                true => (tier.ordinal, "it was restored from an older copy, or not mounted last time"),
                false => (0, "the first tier was restored from an older copy"),
            };
            return refuse(format!(
                "tier {older} is behind: tier {} is at epoch {epoch}, tier 0 at epoch {}; {why}",
                tier.ordinal, first.epoch
            ));
        }
        checked.push(superblock);
    }
    Ok(checked)
}

fn open_on_fast(tiers: &Tiers, file: FileId, cause: Cause) -> Result<Arc<dyn Device>> {
    let directory = &tiers.fast().directory;
    let opened =
        directory.open(&file.to_string(), Access::Buffered).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Error::corrupt(format!("{}/{file}", directory.place()), 0, "the file is missing")
            }
            _ => Error::io(format!("open {file} in {}", directory.place()), source),
        })?;
    Ok(tiers.metered(opened, 0, cause))
}

/// Takes up the files in persistent memory: where they are is in the manifest, and nowhere else.
fn claim_memory(tiers: &Tiers, catalog: &Catalog) -> Result<()> {
    for meta in catalog.version.tables().map(|table| &table.meta) {
        let [data, index] = meta.parts();
        let (tier, place) = (tiers.get(meta.data_tier)?, tiers.get(meta.data_tier)?.directory.place());
        let Some(memory) = &meta.memory else {
            if tier.memory.is_some() {
                let message =
                    format!("the store in {place} was made without persistent memory; open it without");
                return Err(Error::invalid(message));
            }
            continue;
        };
        for ((_, file, bytes), pieces) in [data, index].into_iter().zip(&memory.places) {
            tier.directory.claim(&file.to_string(), pieces, bytes).map_err(|source| match source.kind() {
                std::io::ErrorKind::Unsupported => Error::invalid(format!(
                    "tables of the store in {place} are in persistent memory; open it as such"
                )),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::AlreadyExists => {
                    Error::corrupt(format!("{place}/{file}"), 0, source)
                }
                _ => Error::io(format!("find {file} in persistent memory of {place}"), source),
            })?;
        }
    }
    Ok(())
}

/// Every table that the manifest names must be there, as long as it was. A slab may have a flaw ([`Slab::flaw`]).
fn check_files(tiers: &Tiers, catalog: &Catalog, listed: &[Vec<Listed>]) -> Result<()> {
    let parts = catalog.version.tables().flat_map(|table| table.meta.parts());
    let by_name = |files: &Vec<Listed>| -> BTreeMap<FileId, u64> {
        files.iter().filter_map(|file| Some((FileId::from_name(&file.name)?, file.bytes))).collect()
    };
    let found: Vec<BTreeMap<FileId, u64>> = listed.iter().map(by_name).collect();
    for (tier, file, bytes) in parts {
        let (name, place) = (file.to_string(), tiers.get(tier)?.directory.place());
        let why = match found[tier as usize].get(&file) {
            Some(found) if *found == bytes => continue,
            Some(found) => format!("the file has {found} bytes; it was written with {bytes}"),
            None => "the file is missing".to_owned(),
        };
        return Err(Error::corrupt(format!("{place}/{name}"), 0, why));
    }
    Ok(())
}

/// Numbers of the logs there are, ascending.
pub(crate) fn log_numbers(listed: &[Listed]) -> Vec<u64> {
    let number = |file: &Listed| match FileId::from_name(&file.name) {
        Some(FileId { kind: FileKind::Log, number }) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = listed.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// What replaying the log gave.
struct Recovered {
    log: Replayed,
    writer: MemTableWriter,
    memtable: Arc<MemTable>,
    /// Memtables that replay filled before the last, oldest first, each with its last number, where there is a store
    /// for them to be flushed into.
    sealed: Vec<(Arc<MemTable>, Seq)>,
    /// Tables that replay filled before it ended, and the range tombstones that came with them; not in any version yet.
    tables: Vec<(u64, Vec<TableMeta>, Arc<RangeTombstones>)>,
    /// What was replayed, for another log; `None` when it is in tables.
    copied: Option<Copied>,
    /// It was little enough to be left in the logs that it came from.
    is_little: bool,
    bytes: u64,
    /// Announced slots whose bytes were worth nothing.
    torn_slots: u64,
}

/// Batches as they came out of a log: records with holes for their headers, and each one's numbers and payload length.
#[derive(Default)]
struct Copied {
    records: ByteBuf,
    members: Vec<((Seq, u32), usize)>,
}

impl Copied {
    fn push(&mut self, numbers: (Seq, u32), payload: &[u8]) {
        push_unsealed(&mut self.records, payload);
        self.members.push((numbers, payload.len()));
    }

    /// The number before the first, if there is one.
    fn before_first(&self) -> Option<Seq> {
        self.members.first().map(|((first, _), _)| Seq(first.0 - 1))
    }

    /// The same with batches of no entries for all numbers up to `last` that nobody got.
    fn without_gaps(self, last: Seq) -> Self {
        let (mut whole, mut at) = (Self::default(), 0);
        let mut next = self.before_first().unwrap_or(last).0 + 1;
        let ends = (Seq(last.0 + 1), 0);
        for (numbers, payload_bytes) in self.members.into_iter().chain([(ends, 0)]) {
            while next < numbers.0.0 {
                let missing = (numbers.0.0 - next).min(u64::from(u32::MAX)) as u32;
                whole.push((Seq(next), missing), &[]);
                next += u64::from(missing);
            }
            if numbers != ends {
                let from = at + RECORD_HEADER_BYTES;
                whole.push(numbers, &self.records[from..from + payload_bytes]);
                at += stored_bytes(payload_bytes);
                next = numbers.0.0 + u64::from(numbers.1);
            }
        }
        whole
    }
}

impl Found {
    /// Opens the store; without what is broken, if that was looked for.
    pub(crate) fn open(
        self,
        mut options: Options,
        world: World,
        broken: Option<&Broken>,
    ) -> Result<(Arc<Engine>, Locks)> {
        let profile = self.catalog.profile;
        if let Some(asked) = options.profile.filter(|asked| *asked != profile) {
            let place = self.tiers.fast().directory.place();
            let message =
                format!("the store in {place} is of profile {profile}; it cannot be opened as {asked}");
            return Err(Error::invalid(message));
        }
        options.profile = Some(profile);
        options.validate()?;
        self.tables.cache.memory().suit(options.memtable_bytes(), options.has_store());
        let mut engine = self.recover(options, world, broken)?;
        engine.0.start_background().inspect_err(|_| engine.0.abandon())?;
        Ok((engine.0.clone(), std::mem::take(&mut engine.1)))
    }

    /// A slab counts as what it was, whatever is left of it: so much is given back when it goes.
    fn count_lost_slabs(&self) -> Result<()> {
        let tier = self.tiers.get(SLAB_TIER)?;
        let listed = self.listed.get(SLAB_TIER as usize).map_or(&[][..], Vec::as_slice);
        let named = |file: &Listed| Some((FileId::from_name(&file.name)?, file.bytes));
        let found: BTreeMap<FileId, u64> = listed.iter().filter_map(named).collect();
        for slab in self.catalog.slabs.values() {
            let (was, is) = (slab.meta.file_bytes(), found.get(&slab.meta.file()).copied().unwrap_or(0));
            tier.count(was.saturating_sub(is));
            tier.uncount(is.saturating_sub(was));
        }
        Ok(())
    }

    /// The rest of open: everything that writes.
    fn recover(
        mut self,
        options: Options,
        world: World,
        broken: Option<&Broken>,
    ) -> Result<(Arc<Engine>, Locks)> {
        self.tiers.all.iter().try_for_each(Tier::allot_memory)?;
        for (tier, listed) in self.tiers.all.iter().zip(&self.listed) {
            tier.count(listed.iter().map(|file| file.bytes).sum());
        }
        self.count_lost_slabs()?;
        let (began, mut opened) = (self.began, OpenStats::default());
        let now = world.sched.now();
        let mut recovered = self.replay(&options)?;
        (opened.log_took, opened.log_bytes) = (world.sched.now() - now, recovered.bytes);
        opened.torn_slots = recovered.torn_slots;
        broken.map_or(Ok(()), |broken| self.mend(&options, broken))?;
        let store = self.superblocks[0].store;
        let has_store = self.catalog.profile.has_store();
        let (tiers, garbage) = (&self.tiers, &self.tables.garbage);
        let from = LoadFrom { options: &options, sched: &world.sched, tiers, garbage, store };
        let (contents, heat) = match has_store {
            true => load(&from, &self.catalog.slabs, self.catalog.image)?,
            false => <_>::default(),
        };
        // Names that were found here may be a killed process's, seen by us and not yet durable.
        self.tiers.all.iter().try_for_each(Tier::sync_names)?;
        // What was mended is in no manifest but the next one.
        let was_closed = broken.is_none() && self.superblocks[0].log_end != Position::default()
            || planted::has(Bug::ResumedAfterCrash);
        let mut superblock = self.raise_epoch()?;
        let mut manifest = self.resume_manifest(&mut superblock, was_closed)?;
        if let Some(broken) = broken {
            broken.is_given_up.set(()).ok();
        }
        let manifest_counted = manifest.filled_bytes();
        let mut last_seq = recovered.log.last_seq.max(self.catalog.last_seq);
        if planted::has(Bug::NumbersReused) {
            last_seq = Seq(last_seq.0.saturating_sub(2));
        }
        let now = world.sched.now();
        // Slots and log must have every number between them, which a log of another life may not.
        let mixes = options.log_free || !self.catalog.announced.is_empty();
        let keep = was_closed && recovered.is_little && recovered.log.resumable && !mixes;
        let log = match keep {
            true => self.resume_log(recovered.log.end, options.log_file_bytes())?,
            false => self.cut_log(&options, &mut recovered, &mut manifest)?,
        };
        opened.log_took += world.sched.now() - now;
        if options.adds_floors() && !planted::has(Bug::GuardsNotReady) {
            let ready = ready_for_floors(&self.catalog.version);
            if ready != Edit::default() {
                // What does not fit must not become durable: no later open would get past it.
                self.catalog.apply(&ready, &self.tables)?;
                manifest.append(&ready)?;
            }
        }
        self.tiers.fast().count(manifest.filled_bytes() - manifest_counted);
        if !planted::has(Bug::OldImageBelieved) {
            self.catalog.image = None;
        }
        self.remove_orphans(log.end().file, manifest.number())?;
        let tracker =
            has_store.then(|| tracker_of(keys_of(&contents, &self.catalog.version), &options, heat));
        let flawed = contents.slabs.iter().filter(|slab| slab.flaw().is_some());
        let flawed: BTreeSet<u64> = flawed.map(|slab| slab.meta.number).collect();
        self.tables.cache.memory().count_leaves(contents.index.there().clone());
        let held = contents.bytes_of_slots() + tracker.as_ref().map_or(0, |tracker| tracker.held_bytes());
        self.tables.cache.memory().set(Holder::Index, held);
        let operations = Operations::new(&world.sched);
        restore_counters(&self.catalog.counters, &operations, &self.tables.cache, &self.tiers.meter);
        operations.restore_times(&self.catalog.times);
        let log_counted = log.filled_after(0);
        let live = self.catalog.log_start..log.end().file;
        let older = self.listed[0].iter().filter_map(|file| {
            let id = FileId::from_name(&file.name)?;
            let is_older = id.kind == FileKind::Log && live.contains(&id.number);
            is_older.then_some(OldLog { number: id.number, bytes: file.bytes, was_refused: false })
        });
        let older: Vec<OldLog> = older.collect();
        let log_bytes = log_counted + older.iter().map(|log| log.bytes).sum::<u64>();
        let log_room = LogRoom::set_aside(&world.sched, self.tiers.fast(), options.log_bytes(), log_bytes);
        let first_log = self.catalog.log_start;
        let announced = Arc::<Announced>::default();
        let active_number = recovered.sealed.len() as u64;
        let sealed = |(i, (memtable, last_seq))| {
            let announced = announced.clone();
            Sealed { memtable, first_log, last_seq, announced, number: i as u64 }
        };
        let current = Current {
            active: recovered.memtable,
            active_log: self.catalog.log_start,
            active_number,
            sealed: recovered.sealed.into_iter().enumerate().map(sealed).rev().collect(),
            contents: Arc::new(contents),
            tracker,
            version: self.catalog.version.clone(),
            generation: 0,
        };
        self.tables.cache.memory().set_sealed(current.sealed.len() as u64);
        let sched = world.sched;
        opened.took = sched.now() - began;
        let engine = Arc::new(Engine {
            queue: WriteQueue::new(
                &sched,
                Lead::new(log, recovered.writer, (log_counted, older), last_seq),
                last_seq,
            ),
            root: Turn::new(&sched, Root { counted_bytes: manifest.filled_bytes(), manifest, superblock }),
            creations: Creations::new(&sched),
            default_keyspace: self.catalog.default_keyspace.clone(),
            store: superblock.store,
            tiers: self.tiers,
            tables: self.tables,
            current: ArcSwap::from_pointee(current),
            visible: AtomicU64::new(last_seq.0),
            objects: has_store.then(|| Store::new(&sched, &self.catalog.slabs, &flawed)),
            catalog: Mutex::new(&sched, self.catalog),
            snapshots: Mutex::new(&sched, Snapshots::default()),
            background: Background::new(&sched, options.memtable_bytes()),
            pacer: Pacer::new(&sched),
            operations,
            opened,
            failure: OnceLock::new(),
            log_room,
            closed: AtomicBool::new(false),
            options,
            sched,
        });
        Ok((engine, self.locks))
    }

    /// Up to where everything is known to be durable before a record says so: after a clean close, everything.
    fn known_durable(&self) -> Seq {
        let is_closed = self.superblocks[0].log_end != Position::default();
        if is_closed { self.catalog.last_seq } else { Seq(0) }
    }

    /// Reads the slots that the catalog announces, and puts what they have in order.
    fn in_order(&self) -> Result<Option<InOrder>> {
        let (garbage, store) = (&self.tables.garbage, self.superblocks[0].store);
        InOrder::find(&self.tiers, garbage, store, &self.catalog, self.known_durable())
    }

    /// Whether all that was promised of announced slots can be read, as replaying finds out.
    ///
    /// # Errors
    /// `Corrupt` where it cannot; what the device says.
    pub(crate) fn check_announced(&self) -> Result<()> {
        let Some(mut in_order) = self.in_order()? else { return Ok(()) };
        let present = log_numbers(&self.listed[0]);
        let open = |file| open_on_fast(&self.tiers, file, Cause::Verify);
        let mut pass_by = |_: (Seq, u32), _: &[u8]| Ok(());
        replay(self.chain(&present), &open, &mut |kind, header, payload| match kind {
            RecordKind::Batch => in_order.batch((header.first_seq, header.entries), payload, &mut pass_by),
            _ => Ok(()),
        })?;
        in_order.end(&mut pass_by).map(drop)
    }

    /// The log, of which these files are there.
    pub(crate) fn chain<'a>(&self, present: &'a [u64]) -> Chain<'a> {
        let superblock = self.superblocks[0];
        Chain {
            store: superblock.store,
            kind: FileKind::Log,
            first: self.catalog.log_start,
            present,
            floor: superblock.log_end,
            last_seq: Seq(0),
        }
    }

    fn replay(&mut self, options: &Options) -> Result<Recovered> {
        let present = log_numbers(&self.listed[0]);
        let chain = self.chain(&present);
        let tiers = self.tiers.clone();
        let open = |file| open_on_fast(&tiers, file, Cause::Recovery);
        let (mut writer, mut memtable) = MemTable::new(self.seed);
        let (mut tables, mut sealed) = (Vec::new(), Vec::new());
        let has_store = self.catalog.profile.has_store();
        let (mut copied, mut is_little, mut bytes) = (Some(Copied::default()), true, 0);
        // Numbers in use by files that no edit names: what a crash left, and the logs themselves.
        let used = self.listed.iter().flatten().filter_map(|file| FileId::from_name(&file.name));
        let next = used.map(|id| id.number.saturating_add(1)).max().unwrap_or(0);
        self.catalog.next_file = self.catalog.next_file.max(next);
        let mut in_order = self.in_order()?;
        let torn_slots = in_order.as_ref().map_or(0, InOrder::torn);
        let manifest_end = self.manifest.end;
        // What several memtables had may be in one log; of those that are flushed nothing comes back, range tombstones
        // least of all: tables have been told of newer ones.
        let flushed = self.catalog.flushed;
        let mut take = |numbers: (Seq, u32), payload: &[u8]| {
            if numbers.0.0 + u64::from(numbers.1) <= flushed.0 + 1 {
                return Ok(());
            }
            apply_payload(&mut writer, payload, numbers.0)?;
            bytes += payload.len() as u64;
            is_little &= writer.used_bytes() <= options.memtable_bytes() / KEEP_LOG_SHARE;
            match !is_little && !has_store {
                true => copied = None,
                false => copied.iter_mut().for_each(|copied| copied.push(numbers, payload)),
            }
            if writer.used_bytes() > options.memtable_bytes() {
                let last = Seq(numbers.0.0 + u64::from(numbers.1) - 1);
                match has_store {
                    true => sealed.push((memtable.clone(), last)),
                    false => tables.push(self.flush_replayed(options, &memtable)?),
                }
                (writer, memtable) = MemTable::new(self.seed);
            }
            Ok(())
        };
        let mut log = replay(chain, &open, &mut |kind, header, payload| {
            if kind == RecordKind::ManifestEnd {
                return check_manifest_end(manifest_end, payload);
            }
            if kind != RecordKind::Batch {
                let found = format!("a {kind:?} record in a log");
                return Err(Error::corrupt("log", header.durable.offset, found));
            }
            let numbers = (header.first_seq, header.entries);
            match &mut in_order {
                Some(in_order) => in_order.batch(numbers, payload, &mut take),
                None => take(numbers, payload),
            }
        })?;
        if let Some(in_order) = in_order {
            log.last_seq = in_order.end(&mut take)?;
        }
        Ok(Recovered { log, writer, memtable, sealed, tables, copied, is_little, bytes, torn_slots })
    }

    /// Writes a replayed memtable as tables: their run's age, what they are, and what it deletes ranges by.
    fn flush_replayed(
        &mut self,
        options: &Options,
        memtable: &Arc<MemTable>,
    ) -> Result<(u64, Vec<TableMeta>, Arc<RangeTombstones>)> {
        let ranges = memtable.range_tombstones();
        let erased = Erased::by([self.catalog.version.range_tombstones.clone(), ranges.clone()]);
        let level0 = self.catalog.version.levels.first();
        let bounds: Vec<_> = level0.into_iter().flat_map(Level::bounds).map(<[u8]>::to_vec).collect();
        let bounds = if planted::has(Bug::ReplayCrossesGuards) { &[][..] } else { &bounds };
        let mut input = MemCursor::new(memtable.clone());
        let everywhere: Vec<usize> = (0..self.tiers.all.len()).collect();
        let most = (memtable.used_bytes(), bounds);
        let made = self.write_tables(options, &mut input, (&everywhere, 0), most, erased)?;
        Ok((self.catalog.take_file_number(), made, ranges))
    }

    /// Writes tables while there are no workers yet: with data on the first of these tiers that has room, and with the
    /// rest on the other one. The input takes so many bytes at most.
    pub(super) fn write_tables(
        &mut self,
        options: &Options,
        input: &mut dyn Cursor,
        (data_tiers, meta_tier): (&[usize], u32),
        (most, bounds): (u64, &[Vec<u8>]),
        erased: Erased,
    ) -> Result<Vec<TableMeta>> {
        let next_file = std::cell::Cell::new(self.catalog.next_file);
        let take_number = || next_file.replace(next_file.get() + 1);
        // What no tier has room for is counted on the first all the same, since it must be somewhere for the store to
        // open.
        let leases = std::cell::RefCell::new(Vec::new());
        let place = |bytes: u64| {
            let bytes = bytes.min(options.tables_bytes_max(most));
            let tiers = data_tiers.iter().filter_map(|tier| self.tiers.all.get(*tier));
            let lease = tiers.into_iter().find_map(|tier| tier.lease(bytes).ok());
            let tier = lease.as_ref().map_or(data_tiers[0] as u32, Lease::tier);
            leases.borrow_mut().extend(lease);
            Placed::on(tier)
        };
        let output = OutputOptions {
            store: self.superblocks[0].store,
            tiers: &self.tiers,
            cache: &self.tables.cache,
            cause: Cause::Recovery,
            place: &place,
            meta_tier,
            table_bytes: options.table_bytes(),
            block_bytes: options.block_bytes,
            take_number: &take_number,
            check: &|_| Ok(()),
            most: (most, 0),
            bounds,
            soft_bounds: &[],
            under: &|_| Ok(None),
            link: None,
            keys: (None, None),
            meet: None,
            erased: erased.newest_at(Seq::MAX),
        };
        let mut retain = Retain::new(vec![Seq::MAX], self.catalog.dead.clone(), false).without(erased);
        let made = write_tables(input, &mut retain, &output)?;
        self.catalog.next_file = next_file.get();
        // Not sooner: two tables must not be promised the same room.
        drop(leases);
        for (tier, _, bytes) in made.iter().flat_map(TableMeta::parts) {
            self.tiers.get(tier)?.count(bytes);
        }
        Ok(made)
    }

    fn raise_epoch(&self) -> Result<Superblock> {
        let first = self.superblocks[0];
        let epoch = first.epoch + 1;
        let nowhere = Position::default();
        let raised = |old: &Superblock, phase| Superblock {
            epoch,
            phase,
            generation: old.generation + 1,
            manifest_end: nowhere,
            log_end: nowhere,
            ..*old
        };
        // The ends of a clean close still hold while only the epoch changes.
        let mut opening = Superblock {
            manifest_end: first.manifest_end,
            log_end: first.log_end,
            ..raised(&first, Phase::Opening)
        };
        if let [_, others @ ..] = &self.superblocks[..]
            && !others.is_empty()
        {
            // An open that was cut in its middle may have raised some; they must not be passed by.
            if first.phase == Phase::Opening {
                opening.epoch = first.epoch;
            }
            opening.write(self.tiers.fast().directory.as_ref())?;
            for (tier, old) in self.tiers.all[1..].iter().zip(others) {
                if planted::has(Bug::EpochNotRaised) {
                    opening.epoch = first.epoch;
                    continue;
                }
                let next = Superblock { epoch: opening.epoch, ..raised(old, Phase::Open) };
                next.write(tier.directory.as_ref())?;
            }
        }
        let open = Superblock { epoch: opening.epoch, ..raised(&opening, Phase::Open) };
        open.write(self.tiers.fast().directory.as_ref())?;
        Ok(open)
    }

    /// Goes on in the manifest that was read, or, if the store was not closed cleanly, in a new one.
    fn resume_manifest(&mut self, superblock: &mut Superblock, was_closed: bool) -> Result<Manifest> {
        let fast = self.tiers.fast();
        let store = superblock.store;
        if was_closed && self.manifest.resumable {
            let file = FileId::new(FileKind::Manifest, self.manifest.end.file);
            let device = open_on_fast(&self.tiers, file, Cause::Manifest)?;
            return Manifest::resume(store, self.manifest.end, device, &self.catalog.snapshot());
        }
        self.catalog.begin_uses_of_free_slots();
        let number = self.catalog.take_file_number();
        let wrap = |device| self.tiers.metered(device, 0, Cause::Manifest);
        let snapshot = self.catalog.snapshot();
        let manifest = Manifest::begin(fast.directory.as_ref(), &wrap, store, number, &snapshot)?;
        fast.count(manifest.filled_bytes());
        superblock.manifest = number;
        superblock.generation += 1;
        superblock.write(fast.directory.as_ref())?;
        Ok(manifest)
    }

    /// Goes on behind the last record. It was durable when the store was closed; but this may be a copy of it.
    fn resume_log(&self, end: Position, bytes: u64) -> Result<LogWriter> {
        let store = self.superblocks[0].store;
        for number in log_numbers(&self.listed[0]) {
            if (self.catalog.log_start..=end.file).contains(&number) {
                let file = FileId::new(FileKind::Log, number);
                let device = open_on_fast(&self.tiers, file, Cause::Log)?;
                device.sync().map_err(|source| Error::io(format!("sync {file}"), source))?;
            }
        }
        let file = FileId::new(FileKind::Log, end.file);
        let device = open_on_fast(&self.tiers, file, Cause::Log)?;
        let log = LogWriter::resume(Place { store, file, offset: end.offset }, device, bytes)?;
        // In persistent memory it has grown to be mapped whole.
        let listed = self.listed[0].iter().filter(|listed| FileId::from_name(&listed.name) == Some(file));
        let counted: u64 = listed.map(|listed| listed.bytes).sum();
        self.tiers.fast().count(log.filled_after(0).saturating_sub(counted));
        Ok(log)
    }

    /// Puts everything replayed into a new log, or into tables in front of one, and names it in one edit.
    fn cut_log(
        &mut self,
        options: &Options,
        recovered: &mut Recovered,
        manifest: &mut Manifest,
    ) -> Result<LogWriter> {
        if recovered.copied.is_none() && !recovered.writer.is_empty() {
            recovered.tables.push(self.flush_replayed(options, &recovered.memtable)?);
            (recovered.writer, recovered.memtable) = MemTable::new(self.seed);
        }
        if planted::has(Bug::OldLogRemovedBeforeEdit) {
            for old in log_numbers(&self.listed[0]) {
                self.tiers.fast().remove(FileId::new(FileKind::Log, old))?;
            }
        }
        let number = self.catalog.take_file_number();
        let wrap = |device| self.tiers.metered(device, 0, Cause::Log);
        let store = self.superblocks[0].store;
        let room = (None, options.log_file_bytes());
        let next = NextLog::prepare(self.tiers.fast().directory.as_ref(), &wrap, store, number, room)?;
        let mut log = LogWriter::start_unnamed(store, next);
        let last_seq = recovered.log.last_seq.max(self.catalog.last_seq);
        let mut flushed = None;
        if let Some(mut copied) = recovered.copied.take() {
            if options.log_free {
                flushed = Some(copied.before_first().unwrap_or(last_seq));
                copied = copied.without_gaps(last_seq);
            }
            if !copied.members.is_empty() {
                log.append(&mut copied.records, copied.members.iter().copied())?;
            }
        }
        log.sync()?;
        let mut edit = Edit {
            log_start: Some(number),
            next_file: Some(self.catalog.next_file),
            last_seq: Some(last_seq),
            withdrawn: self.catalog.announced_runs(),
            flushed,
            ..Edit::default()
        };
        for (age, metas, ranges) in recovered.tables.drain(..) {
            edit.ranges_added.extend(ranges.iter().cloned());
            edit.added.extend(metas.into_iter().map(|meta| AddedTable { level: 0, age, meta }));
        }
        // In this order: what does not fit must not become durable, since no later open would get past it.
        self.catalog.apply(&edit, &self.tables)?;
        manifest.append(&edit)?;
        self.tiers.fast().count(log.filled_after(0));
        Ok(log)
    }

    /// Removes what crashes left behind.
    fn remove_orphans(&self, log: u64, manifest: u64) -> Result<()> {
        if planted::has(Bug::OrphansKept) {
            return Ok(());
        }
        self.orphans(log, manifest).into_iter().try_for_each(|(tier, id, bytes)| {
            tier.remove(id)?;
            tier.uncount(bytes);
            Ok(())
        })
    }

    /// Files that nothing names, where `log` is the last log and `manifest` the present one.
    pub(crate) fn orphans(&self, log: u64, manifest: u64) -> Vec<(&Tier, FileId, u64)> {
        let tables: BTreeSet<(usize, FileId)> = self
            .catalog
            .version
            .tables()
            .flat_map(|table| table.meta.parts())
            .map(|(tier, part, _)| (tier as usize, part))
            .collect();
        let logs = self.catalog.log_start..=log;
        let is_orphan = |tier: usize, id: FileId| match id.kind {
            FileKind::Superblock => false,
            FileKind::Manifest => tier != 0 || id.number != manifest,
            FileKind::Log => tier != 0 || !logs.contains(&id.number),
            FileKind::Data | FileKind::Meta => !tables.contains(&(tier, id)),
            FileKind::Slab => tier != SLAB_TIER as usize || !self.catalog.slabs.contains_key(&id.number),
            FileKind::Image => {
                tier != image_tier(&self.tiers).ordinal || self.catalog.image != Some(id.number)
            }
        };
        let mut found = Vec::new();
        for (tier, listed) in self.tiers.all.iter().zip(&self.listed) {
            let files = listed.iter().filter_map(|file| Some((FileId::from_name(&file.name)?, file.bytes)));
            let orphans = files.filter(|(id, _)| is_orphan(tier.ordinal, *id));
            found.extend(orphans.map(|(id, bytes)| (tier, id, bytes)));
        }
        found
    }
}
