//! The tiers: a directory, a budget, and the meter of each.
//!
//! The budget is a hard bound on the bytes of all files under a tier's path. Work that will write files leases its
//! worst case first and settles for what it took, so a job that cannot finish does not start; the log's
//! room is set aside. Files that readers keep alive count until they are gone. Two atomics per lease, none per byte.

use crate::error::{Error, ErrorKind, Result};
use crate::format::FileId;
use crate::format::file::SUPERBLOCK_NAME;
use crate::options::{Create, Options, TierOptions};
use crate::table::Compression;
use cuesta_device::mapped::{FileMaps, MapFiles, MappedDirectory, Mapping, OwnFiles, Persistence, Region};
use cuesta_device::{ALIGNMENT, Access, Cause, Device, Directory, FileDirectory, Limiter, Meter, Pace};
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One tier.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) ordinal: usize,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) capacity_bytes: u64,
    pub(crate) compression: Compression,
    pub(crate) filter_bits_per_key: u32,
    /// Unit of I/O on slots.
    pub(crate) sector_bytes: u32,
    /// How tables here become durable, if they are in persistent memory.
    pub(crate) memory: Option<Persistence>,
    /// Bytes of files, and of leases not yet settled.
    taken: AtomicU64,
    /// Direct I/O was asked for, and its file system cannot.
    no_direct_io: AtomicBool,
    /// Holds back merges and relocations, if that was asked for.
    background: Option<(u64, Limiter)>,
}

/// What a background job's I/O counts as that is held back: what writers wait for goes on.
fn is_held_back(cause: Cause) -> bool {
    matches!(cause, Cause::Compaction | Cause::Demotion | Cause::Promotion)
}

/// All tiers, fastest first.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub(crate) all: Vec<Tier>,
    pub(crate) meter: Arc<Meter>,
    /// How tables are reached.
    pub(crate) table_access: Access,
}

/// Room on a tier, promised to one job.
#[derive(Debug)]
pub(crate) struct Lease<'a> {
    tier: &'a Tier,
    bytes: u64,
}

/// The file that is mapped, on a tier of persistent memory.
pub const MEMORY_NAME: &str = "PMEM";
/// What the names of the files begin with that are in it.
const IN_MEMORY: &[&str] = &["data-", "meta-"];
/// What the names of those begin with that are mapped each by itself.
const MAPPED_ALONE: &[&str] = &["log-"];

/// A tier of persistent memory: tables are in `region`; logs are files of `files`, written through mappings that `map`
/// makes.
pub fn mapped_tier(
    files: Arc<dyn Directory>,
    region: Arc<Region>,
    map: Arc<dyn MapFiles>,
) -> Arc<dyn Directory> {
    MappedDirectory::new(files, region, IN_MEMORY, Some(OwnFiles { prefixes: MAPPED_ALONE, map }))
}

/// Opens the tiers' directories of the operating system, made first if they are missing and may be. Of a store that is
/// there none is made: one that is missing may be on a medium that is not mounted.
///
/// # Errors
/// `NotFound`, or `Corrupt` where others of the store's are there; `Locked` and `Io`.
pub(crate) fn open_directories(sched: &Sched, options: &Options) -> Result<Vec<Arc<dyn Directory>>> {
    let is_of_store = |tier: &&TierOptions| tier.path.join(SUPERBLOCK_NAME).try_exists().unwrap_or(false);
    let there = options.tiers.iter().find(is_of_store).map(|tier| tier.path.display());
    let make = options.create != Create::Never && there.is_none();
    let open = |tier| open_directory(sched, options, tier, make);
    let missing = |tier: &TierOptions, error: Error| match &there {
        Some(there) if *error.kind() == ErrorKind::NotFound => {
            let superblock = tier.path.join(SUPERBLOCK_NAME).display().to_string();
            let why =
                format!("there is no tier here of the store in {there}; is it mounted, or in another place?");
            Error::corrupt(superblock, 0, why)
        }
        _ => error,
    };
    options.tiers.iter().map(|tier| open(tier).map_err(|error| missing(tier, error))).collect()
}

fn open_directory(
    sched: &Sched,
    options: &Options,
    tier: &TierOptions,
    make: bool,
) -> Result<Arc<dyn Directory>> {
    let opened =
        if make { FileDirectory::open(&tier.path) } else { FileDirectory::open_existing(&tier.path) };
    let place = tier.path.display();
    let directory = opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!("there is no store in {place}: the directory does not exist"),
        ),
        _ => Error::io(format!("open the directory {place}"), source),
    })?;
    let directory = Arc::new(directory.with_threads(sched));
    if !tier.persistent_memory {
        return Ok(directory);
    }
    let memory = tier.path.join(MEMORY_NAME);
    let is_there = |path: &Path| {
        path.try_exists().map_err(|source| Error::io(format!("look for {}", path.display()), source))
    };
    if !is_there(&memory)? {
        // Made with the store, and only then.
        if is_there(&tier.path.join(SUPERBLOCK_NAME))? {
            let why =
                format!("the store's persistent memory is missing; if {place} was made without, name it so");
            return Err(Error::corrupt(memory.display().to_string(), 0, why));
        }
        if !make {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no store in {place}")));
        }
    }
    let mapping =
        Mapping::open(&memory, options.mapped_bytes(tier)).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => locked(&place),
            _ => Error::io(format!("map {}", memory.display()), source),
        })?;
    Ok(mapped_tier(directory, Region::new(Box::new(mapping)), FileMaps::new(&tier.path, None)))
}

/// What is said of a store that somebody else has open.
pub(crate) fn locked(place: &dyn std::fmt::Display) -> Error {
    let message =
        format!("the store in {place} is open already, in this process or in another; close it there");
    Error::new(ErrorKind::Locked, message)
}

impl Tier {
    pub(crate) fn new(
        ordinal: usize,
        directory: Arc<dyn Directory>,
        capacity_bytes: u64,
        (compression, filter_bits_per_key): (Compression, u32),
    ) -> Self {
        let (taken, no_direct_io) = (AtomicU64::new(0), AtomicBool::new(false));
        Self {
            ordinal,
            memory: directory.persistence(),
            directory,
            capacity_bytes,
            compression,
            filter_bits_per_key,
            sector_bytes: ALIGNMENT as u32,
            taken,
            no_direct_io,
            background: None,
        }
    }

    /// Holds merges and relocations back to so many bytes a second.
    pub(crate) fn limit_background(&mut self, sched: &Sched, bytes_per_second: u64) {
        let pace = Pace { bytes_per_second, per_call: Duration::ZERO };
        self.background = Some((bytes_per_second, Limiter::new(sched, pace)));
    }

    /// Lets them go so many times as fast; `None` for as fast as they can.
    pub(crate) fn raise_background(&self, times: Option<f64>) {
        if let Some((rate, limiter)) = &self.background {
            let bytes_per_second = times.map_or(0, |times| (*rate as f64 * times) as u64);
            limiter.set_pace(Pace { bytes_per_second, per_call: Duration::ZERO });
        }
    }

    /// Whether tables here go through the page cache although direct I/O was asked for.
    pub(crate) fn has_no_direct_io(&self) -> bool {
        self.no_direct_io.load(Ordering::Relaxed)
    }

    fn note_access(&self, asked: Access, device: &dyn Device) {
        if asked != Access::Buffered && !device.geometry().direct && self.memory.is_none() {
            self.no_direct_io.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes taken by files and leases.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that a lease could still get.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.taken_bytes())
    }

    /// Room for `bytes`, given back when the lease is dropped.
    ///
    /// # Errors
    /// `Full`, with the tier's numbers.
    pub(crate) fn lease(&self, bytes: u64) -> Result<Lease<'_>> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.capacity_bytes);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Lease { tier: self, bytes }),
            Err(taken) => Err(Error::new(
                ErrorKind::Full,
                format!(
                    "tier {} ({}) is full: {taken} of {} bytes are taken and {bytes} more are needed; \
                     delete data or give the tier more",
                    self.ordinal,
                    self.directory.place(),
                    self.capacity_bytes
                ),
            )),
        }
    }

    /// Counts a file that is there already.
    pub(crate) fn count(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a file as gone.
    pub(crate) fn uncount(&self, bytes: u64) {
        let before = self.taken.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "tier {} gave back {bytes} of {before} bytes", self.ordinal);
    }

    /// Removes a file; one that is gone already is fine.
    pub(crate) fn remove(&self, file: FileId) -> Result<()> {
        match self.directory.remove(&file.to_string()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {file} from {}", self.directory.place()), error))
            }
            _ => Ok(()),
        }
    }

    /// Whether all that was read of persistent memory so far was there.
    ///
    /// # Errors
    /// `Io`, with what became of it.
    pub(crate) fn check_memory(&self) -> Result<()> {
        let lost =
            |source| Error::io(format!("read persistent memory of {}", self.directory.place()), source);
        if self.memory.is_some() { self.directory.check_memory().map_err(lost) } else { Ok(()) }
    }

    /// Takes room for all of the persistent memory, once everything in it is claimed.
    ///
    /// # Errors
    /// `Full`; `Io`.
    pub(crate) fn allot_memory(&self) -> Result<()> {
        let place = self.directory.place();
        let full = |source| Error::io(format!("take room for persistent memory in {place}"), source);
        self.directory.allot_memory().map_err(full)
    }

    /// Makes all creations and removals so far durable.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.directory.sync().map_err(|source| Error::io(format!("sync {}", self.directory.place()), source))
    }
}

/// The log's room on the fast tier: set aside from the start, so that no table and no job can take it; what the log
/// needs beyond that is leased as it grows.
#[derive(Debug)]
pub(crate) struct LogRoom {
    allowance: u64,
    used: Mutex<u64>,
}

impl LogRoom {
    /// Sets `allowance` aside on `tier`, where log files of `used` bytes are counted already.
    pub(crate) fn set_aside(sched: &Sched, tier: &Tier, allowance: u64, used: u64) -> Self {
        tier.count(allowance.saturating_sub(used));
        Self { allowance, used: Mutex::new(sched, used) }
    }

    /// The log grows by `more` bytes.
    ///
    /// # Errors
    /// `Full` when that is past the allowance and the tier has no more.
    pub(crate) fn charge(&self, tier: &Tier, more: u64) -> Result<()> {
        let mut used = self.used.lock();
        let beyond = (*used + more).saturating_sub(self.allowance.max(*used));
        // Nothing is asked for within the allowance, even of a tier that is past its bound since it was made smaller.
        if beyond > 0 {
            tier.lease(beyond)?.settle(beyond);
        }
        *used += more;
        Ok(())
    }

    /// Bytes that are set aside and not used yet.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.allowance.saturating_sub(*self.used.lock())
    }

    /// Log files of so many bytes are gone.
    pub(crate) fn release(&self, tier: &Tier, bytes: u64) {
        let mut used = self.used.lock();
        let less = used.saturating_sub(bytes);
        tier.uncount(used.saturating_sub(self.allowance.max(less)));
        *used = less;
    }
}

impl Lease<'_> {
    /// The tier that it is on.
    pub(crate) fn tier(&self) -> u32 {
        self.tier.ordinal as u32
    }

    /// Ends the lease; `bytes` stay counted, for the files that were made.
    pub(crate) fn settle(mut self, bytes: u64) {
        // More than was leased would be a bug in the job's estimate; the count must be true all the same.
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.tier.count(more),
            None => self.tier.uncount(self.bytes - bytes),
        }
        self.bytes = 0;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.tier.uncount(self.bytes);
    }
}

impl Tiers {
    pub(crate) fn get(&self, ordinal: u32) -> Result<&Tier> {
        let missing = || Error::internal(format!("there is no tier {ordinal}"));
        self.all.get(ordinal as usize).ok_or_else(missing)
    }

    /// The tier of the log, the manifest, indexes and filters.
    pub(crate) fn fast(&self) -> &Tier {
        &self.all[0]
    }

    /// Whether all that was read of persistent memory so far was there. To be asked before anything is made of what was
    /// read.
    ///
    /// # Errors
    /// `Io`, with what became of it.
    pub(crate) fn check_memory(&self) -> Result<()> {
        self.all.iter().try_for_each(Tier::check_memory)
    }

    /// Counts what is read and written through `device`, and holds it back if it is a merge's or a relocation's.
    pub(crate) fn metered(&self, device: Arc<dyn Device>, tier: usize, cause: Cause) -> Arc<dyn Device> {
        let limiter = self.all.get(tier).and_then(|tier| tier.background.as_ref());
        let device = match limiter {
            Some((_, limiter)) if is_held_back(cause) => limiter.wrap(device),
            _ => device,
        };
        self.meter.attach(device, tier, cause)
    }

    /// Makes a table's file.
    pub(crate) fn create_table_file(&self, tier: u32, file: FileId, cause: Cause) -> Result<Arc<dyn Device>> {
        let directory = &self.get(tier)?.directory;
        let made = directory.create(&file.to_string(), self.table_access);
        let made =
            made.map_err(|source| Error::io(format!("make {file} in {}", directory.place()), source))?;
        self.get(tier)?.note_access(self.table_access, made.as_ref());
        Ok(self.metered(made, tier as usize, cause))
    }

    /// Opens a table's file; what is read is not metered yet.
    pub(crate) fn open_table_file(&self, tier: u32, file: FileId) -> Result<Arc<dyn Device>> {
        self.open_noted(self.table_access, tier, file)
    }

    /// The same of a slab's.
    pub(crate) fn open_slab_file(&self, tier: u32, file: FileId) -> Result<Arc<dyn Device>> {
        self.open_noted(self.slab_access(tier)?, tier, file)
    }

    /// How slabs there are reached: as tables are, but by the tier's own sectors.
    pub(crate) fn slab_access(&self, tier: u32) -> Result<Access> {
        Ok(match self.table_access {
            Access::Buffered => Access::Buffered,
            _ => Access::Sectors(self.get(tier)?.sector_bytes),
        })
    }

    fn open_noted(&self, access: Access, tier: u32, file: FileId) -> Result<Arc<dyn Device>> {
        let opened = self.open_through(access, tier, file)?;
        self.get(tier)?.note_access(access, opened.as_ref());
        Ok(opened)
    }

    /// As [`Tiers::open_table_file`], with another access than tables usually have.
    pub(crate) fn open_through(&self, access: Access, tier: u32, file: FileId) -> Result<Arc<dyn Device>> {
        let directory = &self.get(tier)?.directory;
        directory.open(&file.to_string(), access).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                Error::corrupt(format!("{}/{file}", directory.place()), 0, "the file is missing")
            }
            _ => Error::io(format!("open {file} in {}", directory.place()), source),
        })
    }
}
