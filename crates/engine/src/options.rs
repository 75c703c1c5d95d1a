//! What a store is told at open. Paths, sizes and a memory number are enough; the rest has defaults.
//!
//! None of the fields is burnt into the files: a store may be reopened with any of them changed, except its profile and
//! the number and order of its tiers.

use crate::error::{Error, Result};
use crate::key::VALUE_BYTES_MAX;
use crate::log::EXTEND_BYTES;
use crate::profile::{Demotion, Profile, PromoteReads};
use crate::table::{Compression, FLOORS_MAX};
use cuesta_device::{ALIGNMENT, SECTOR_BYTES_MIN};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// When a write is acknowledged, and so what a crash may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Acknowledged once on media. Neither a kill nor a power cut loses it.
    Sync,
    /// Acknowledged once it left the process, on media at most this much later. A kill loses nothing; a power cut
    /// loses at most the writes of that time.
    Interval(Duration),
    /// Acknowledged once it left the process. A kill loses nothing; a power cut loses at most what the operating
    /// system had not written by itself.
    Os,
    /// Not logged. A kill or a power cut loses what had not reached a table; [`crate::Db::flush`] and
    /// [`crate::Db::sync`] make it durable.
    Unlogged,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Interval(limit) => write!(f, "interval:{}", limit.as_millis()),
            Self::Os => f.write_str("os"),
            Self::Unlogged => f.write_str("unlogged"),
        }
    }
}

impl std::str::FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected = || {
            Error::invalid(format!("durability {text:?}: use sync, interval:MS (1 or more), os or unlogged"))
        };
        match text {
            "sync" => Ok(Self::Sync),
            "os" => Ok(Self::Os),
            "unlogged" => Ok(Self::Unlogged),
            _ => match text.strip_prefix("interval:").map(str::parse) {
                Some(Ok(millis)) if millis > 0 => Ok(Self::Interval(Duration::from_millis(millis))),
                _ => Err(expected()),
            },
        }
    }
}

/// What to do about a store that is, or is not, there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Open it, or make it.
    IfMissing,
    /// Open it, or fail with [`crate::ErrorKind::NotFound`].
    Never,
    /// Make it, or fail with [`crate::ErrorKind::Exists`].
    New,
}

/// One tier: a directory on one class of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// A directory of its own; made if missing.
    pub path: PathBuf,
    /// What the store may take there, in bytes: a hard bound.
    pub capacity_bytes: u64,
    /// How blocks are compressed there.
    pub compression: Compression,
    /// Size of the Bloom filters of the tables there, in bits per key; more saves reads of absent keys.
    pub filter_bits_per_key: u32,
    /// Bytes a second that merges and relocations may read and write there while nothing presses; up to four times that
    /// as level 0 fills, and any number once writers would be slowed for it. `None` for any at all times. A guard for
    /// reads on media that suffer under writes.
    pub background_bytes_per_second: Option<u64>,
    /// In profile `prismdb`, of the first tier: the unit in which slots are read and written, in bytes, a power of two
    /// from 512 to 4096, which is what there is by default. Less suits media that write less than a page without
    /// rewriting one, as Optane does and flash does not: an object of a kilobyte then costs half of the bytes. Where a
    /// medium's own unit is larger, that counts; without direct I/O it means nothing.
    pub sector_bytes: u32,
    /// It is persistent memory: tables there are parts of one mapped file, which is as large as the tier less what the
    /// log and the manifest may take beside it, and are read where they lie. For now such a tier is the only one of its
    /// store.
    pub persistent_memory: bool,
}

impl TierOptions {
    /// The fast tier: no compression, 10 filter bits a key.
    pub fn fast(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            path: path.into(),
            capacity_bytes,
            compression: Compression::None,
            filter_bits_per_key: 10,
            background_bytes_per_second: None,
            sector_bytes: ALIGNMENT as u32,
            persistent_memory: false,
        }
    }

    /// A tier of persistent memory: no compression, 10 filter bits a key.
    pub fn memory(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self { persistent_memory: true, ..Self::fast(path, capacity_bytes) }
    }

    /// The capacity tier: lz4, 14 filter bits a key.
    pub fn capacity(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            path: path.into(),
            capacity_bytes,
            compression: Compression::Lz4,
            filter_bits_per_key: 14,
            background_bytes_per_second: None,
            sector_bytes: ALIGNMENT as u32,
            persistent_memory: false,
        }
    }
}

/// How a store behaves; see the fields. Start from [`Options::at`], [`Options::tiered`] or [`Options::default`].
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Fastest first. The log and the manifest are on the first, indexes and filters too while it has room for them. At
    /// least one.
    pub tiers: Vec<TierOptions>,
    /// Bytes of memory for everything the store holds: cache, memtables, indexes. At least 8 MiB.
    pub memory_bytes: u64,
    /// How the parts are filled in; a store keeps the profile that it was made with. `None` takes that, and `leveled`
    /// for a new store.
    pub profile: Option<Profile>,
    /// Whether a missing store is made.
    pub create: Create,
    /// What an acknowledgement means where a write does not say.
    pub durability: Durability,
    /// Bytes of writes gathered in memory before they become a table; `None` takes an eighth of the memory number, at
    /// most 64 MiB and a 32nd of the first tier (a 64th in profile `prismdb`). Larger means fewer bytes rewritten and a
    /// longer replay after a crash.
    pub memtable_bytes: Option<u64>,
    /// In profile `prismdb`: how many of a hundred keys the tracker remembers; each takes eight bytes of memory,
    /// and all keys take two more.
    pub tracked_percent: u32,
    /// In profile `prismdb`: how many of a hundred tracked keys stay on the fast tier, the hottest; those that make up
    /// four fifths of its objects at most. `None` begins with 70 and goes where the lower tiers have less to do.
    pub pinned_percent: Option<u32>,
    /// In profile `prismdb`: how the key range is chosen whose objects go down next.
    pub demotion: Demotion,
    /// In profile `prismdb`: when what a read found on the capacity tier comes to the fast one.
    pub promote_reads: PromoteReads,
    /// In profile `prismdb`: writes of one key go straight to slots on the fast tier and not to the log, as far as
    /// slots were announced for them in time. Saves the log's bytes and the flush's, and writes a page for each object,
    /// or for each few. Writes without a log ([`Durability::Unlogged`]) count as [`Durability::Os`] then.
    pub log_free: bool,
    /// Size at which compaction cuts its output tables, in bytes; a 64th of the first tier (2 MiB at least) if that is
    /// less.
    pub table_bytes: u64,
    /// Target size of a block, in bytes: the unit of reads and of the cache.
    pub block_bytes: u32,
    /// How many times larger a level is than the one above. In profile `prismdb` what lies below the store has one
    /// level until it is so many times larger than that, times the runs that there may be then: twice `log_runs_max`,
    /// or one.
    pub level_ratio: u32,
    /// In profile `fragmented`: how many runs a guard may have ([`Options::RUNS_MAX_ALLOWED`]). More means fewer bytes
    /// rewritten, and more tables that a read asks.
    pub runs_max: u32,
    /// In profile `nvlsm`: how many floors, runs that point into those below, a guard may have; of tables of blocks,
    /// runs ([`Options::FLOORS_MAX_ALLOWED`]). More means fewer bytes rewritten, and reads that take a little longer;
    /// `None` has it follow the mix of reads and writes, from two to ten.
    pub floors_max: Option<u32>,
    /// How many runs tables may have above one another ([`Options::LOG_RUNS_MAX_ALLOWED`]) in the last level, where
    /// that lies on a slower tier than what is above: profiles `prismdb` and `leveled`. What goes down is laid on what
    /// is there until there are so many, or until these have half as many bytes as it, or as many, and merged with it
    /// then. With one run, as in the paper, it is merged at once; more means fewer bytes written, up to twice as much
    /// room taken, and more tables that a read asks. In `prismdb` there may be more, if it is not one, where what lies
    /// below the store is over `level_ratio` times larger than that: up to twice as many from twice `level_ratio` on.
    pub log_runs_max: u32,
    /// In profile `prismdb`: of how many neighbouring tables, not counting those that lie on others, the key ranges are
    /// that go down ([`Options::CANDIDATE_TABLES_ALLOWED`]), where the capacity tier has room for their merge; of more
    /// where tables are small. More means fewer and longer demotions, of ranges that are less cold.
    pub candidate_tables: u32,
    /// In profile `prismdb`: how many tables, not counting those that lie on others, a guard of what lies below the
    /// store should have. Plans look at some guards, and edits change one, so neither depends on how many tables there
    /// are. At least one.
    pub log_guard_tables: u32,
    /// Tables of some keys in level 0 that make a merge due; where there are several tiers, and these keys have less
    /// than their share of what level 0 has, up to twice as many, but no more than half way to `level0_slow`.
    pub level0_merge: u32,
    /// Tables in level 0 from which on writers are slowed.
    pub level0_slow: u32,
    /// Tables in level 0 at which writers wait.
    pub level0_stop: u32,
    /// Tables that stay open at once, each with two files; others are opened again when they are read. `None` takes
    /// what half the files that the process may open are enough for, and more of those in persistent memory, which are
    /// no files.
    pub open_tables_max: Option<u32>,
    /// Threads that flush and compact: 1 to 8.
    pub background_threads: u32,
    /// Most bytes that a sequential scan reads ahead of itself.
    pub read_ahead_bytes: u32,
    /// Read and write tables past the operating system's page cache, which would hold them a second time.
    pub direct_io: bool,
    /// Feeds every random choice (shapes in memory, hashing); 0 draws one at open.
    pub seed: u64,
}

/// What `floors_max` is while it follows the mix of reads and writes. With one floor tables do not point into one
/// another any more.
pub(crate) const FLOORS_BY_MIX: RangeInclusive<u32> = 2..=10;
/// Tables in persistent memory that stay open at once: each part may be a mapping of its own, and Linux gives a process
/// 65,530 of these.
const OPEN_IN_MEMORY_MAX: u64 = 28 << 10;
/// Guards that a flush is shared out among in level 0, at most; and how many of its tables are as large as one below,
/// at most.
const LEVEL0_GUARDS: u64 = 8;
const LEVEL0_TABLES: u64 = 4;
/// Twice the four pages that a table takes besides its entries.
const LEVEL0_GUARD_BYTES_MIN: u64 = 8 * ALIGNMENT as u64;
const MIB: u64 = 1 << 20;
/// Memtables that may wait for their flush.
pub(crate) const SEALED_MAX: usize = 2;
/// Least memory, in bytes, that a store can work with.
pub const MEMORY_BYTES_MIN: u64 = 8 * MIB;
const MEMTABLE_BYTES_MIN: u64 = 64 << 10;
const TIER_BYTES_MIN: u64 = MIB;
/// Slabs have room for so many memtables at least, whatever sizes their objects have.
const SLABS_MEMTABLES_MIN: u64 = 6;
/// Below a store of objects, a range that goes down has of tables that lie on none other no more bytes than so many
/// full ones, unless one has more.
pub(crate) const RANGE_TABLES_MAX: u32 = 8;
/// Tables may be a little larger than they should be, and what is laid on several is one pile from then on, which is
/// taken apart when it has more than that.
const CANDIDATE_TABLES_MAX: u32 = RANGE_TABLES_MAX / 2;
/// However small the first tier is, tables are not cut below this for it.
const TABLE_BYTES_LEAST: u64 = 2 * MIB;

impl Default for Options {
    fn default() -> Self {
        Self {
            tiers: Vec::new(),
            memory_bytes: 256 * MIB,
            profile: None,
            create: Create::IfMissing,
            durability: Durability::Os,
            memtable_bytes: None,
            tracked_percent: 20,
            pinned_percent: None,
            demotion: Demotion::Approx,
            promote_reads: PromoteReads::Auto,
            log_free: false,
            table_bytes: 32 * MIB,
            block_bytes: 4096,
            level_ratio: 10,
            runs_max: 10,
            floors_max: None,
            log_runs_max: 6,
            candidate_tables: 1,
            log_guard_tables: 64,
            level0_merge: 4,
            level0_slow: 12,
            level0_stop: 24,
            open_tables_max: None,
            background_threads: 3,
            read_ahead_bytes: 256 << 10,
            direct_io: true,
            seed: 0,
        }
    }
}

impl Options {
    /// What `runs_max` may be.
    pub const RUNS_MAX_ALLOWED: RangeInclusive<u32> = 2..=64;
    /// What `log_runs_max` may be.
    pub const LOG_RUNS_MAX_ALLOWED: RangeInclusive<u32> = 1..=16;
    /// What `candidate_tables` may be.
    pub const CANDIDATE_TABLES_ALLOWED: RangeInclusive<u32> = 1..=CANDIDATE_TABLES_MAX;
    /// What `floors_max` may be. With one floor the profile compacts as `leveled` does.
    pub const FLOORS_MAX_ALLOWED: RangeInclusive<u32> = 1..=FLOORS_MAX as u32;

    /// One tier at `path`, bounded by 1 TiB.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { tiers: vec![TierOptions::fast(path, 1 << 40)], ..Self::default() }
    }

    /// A fast and a capacity tier.
    pub fn tiered(fast: TierOptions, capacity: TierOptions) -> Self {
        Self { tiers: vec![fast, capacity], ..Self::default() }
    }

    /// One tier of persistent memory.
    pub fn in_memory(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self { tiers: vec![TierOptions::memory(path, capacity_bytes)], ..Self::default() }
    }

    /// Bytes that a memtable takes before it is flushed.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        let fast = self.tiers.first().map_or(u64::MAX, |tier| tier.capacity_bytes);
        // Objects in slots want the fast tier's room more than logs do.
        let share = if self.has_store() { 64 } else { 32 };
        let fitting = (self.memory_bytes / 8).min(64 * MIB).min(fast / share);
        self.memtable_bytes.unwrap_or(fitting.max(MEMTABLE_BYTES_MIN))
    }

    /// Bytes at which a table is cut: as asked, but no more than a 64th of the first tier, so that the choice of what
    /// to merge next stays a fine one.
    pub(crate) fn table_bytes(&self) -> u64 {
        let fast = self.tiers.first().map_or(u64::MAX, |tier| tier.capacity_bytes);
        self.table_bytes.min((fast / 64).max(TABLE_BYTES_LEAST))
    }

    /// Most bytes of data that tables take which are made of entries of so many bytes, unpacked: with blocks' ends and
    /// restarts, and the first and the last page of each.
    pub(crate) fn tables_bytes_max(&self, bytes: u64) -> u64 {
        bytes + bytes / 32 + (bytes / self.table_bytes() + 1) * 2 * ALIGNMENT as u64
    }

    /// Most runs that a guard may have below level 0.
    pub(crate) fn runs_max(&self) -> usize {
        match self.profile {
            Some(Profile::Fragmented) => self.runs_max as usize,
            Some(Profile::NvLsm) => self.floors_max.unwrap_or(*FLOORS_BY_MIX.end()) as usize,
            _ => 1,
        }
    }

    /// Most runs that may lie on one another in the last level of `leveled` and of a sorted log: where there is a
    /// slower tier to be spared.
    pub(crate) fn laid_max(&self) -> u32 {
        let lays = matches!(self.profile, None | Some(Profile::Leveled | Profile::PrismDb));
        if lays && self.tiers.len() > 1 { self.log_runs_max } else { 1 }
    }

    /// Whether the number of runs that a guard may have follows the mix of reads and writes.
    pub(crate) fn follows_mix(&self) -> bool {
        self.profile == Some(Profile::NvLsm) && self.floors_max.is_none()
    }

    /// Whether runs of a guard may be floors of a tree, which is rewritten as one: in persistent memory they point into
    /// one another entry by entry. Also with one floor a guard, while trees are left from a time when there might be
    /// more.
    pub(crate) fn has_trees(&self) -> bool {
        self.profile == Some(Profile::NvLsm) && self.is_in_memory()
    }

    /// Whether a run that is put on others points into them.
    pub(crate) fn links_runs(&self) -> bool {
        self.profile == Some(Profile::NvLsm) && self.runs_max() > 1
    }

    /// Whether a run that is put on others becomes a floor of their tree. With one floor a guard there are no others,
    /// and the store is written as `leveled`'s.
    pub(crate) fn adds_floors(&self) -> bool {
        self.has_trees() && self.links_runs()
    }

    /// What a guard should have, in bytes: as many tables as a level is larger than the one above, so that what goes
    /// down from a guard comes as about a table to each of those below. In one run; or in all of them where they point
    /// into one another, and then no more than a 64th of the first tier, as tables: such a guard is rewritten whole.
    pub(crate) fn guard_bytes(&self) -> u64 {
        let table = self.table_bytes();
        let guard = u64::from(self.level_ratio) * table;
        match self.tiers.first() {
            Some(first) if self.adds_floors() => guard.min(first.capacity_bytes / 64).max(table),
            _ => guard,
        }
    }

    /// Runs at which a guard of level 0 goes that has little: it waits for more than others do, but no writer waits for
    /// it.
    pub(crate) fn level0_most(&self) -> u32 {
        (2 * self.level0_merge).min(self.level0_merge.midpoint(self.level0_slow))
    }

    /// What a flush should bring to a guard of level 0, in bytes, so that a merge of one takes a small part of what all
    /// of them have; but no less than a good part of a table. `None` where level 0 is one guard: where its runs are
    /// floors of a tree, or memtables become objects in slots.
    pub(crate) fn level0_guard_bytes(&self) -> Option<u64> {
        let is_cut = !self.adds_floors() && !self.has_store();
        let least = (self.table_bytes() / LEVEL0_TABLES).max(LEVEL0_GUARD_BYTES_MIN);
        is_cut.then(|| (self.memtable_bytes() / LEVEL0_GUARDS).max(least))
    }

    /// What the log may take on the first tier: a file for each memtable, and one to be recycled. Records of tiny
    /// entries are a little larger than these are in a memtable.
    pub(crate) fn log_bytes(&self) -> u64 {
        (SEALED_MAX as u64 + 2) * self.log_file_bytes()
    }

    /// Of a tier of persistent memory, the bytes that are mapped: all but the log's, and a sixteenth for the manifest
    /// and the superblock.
    pub fn mapped_bytes(&self, tier: &TierOptions) -> u64 {
        let left = tier.capacity_bytes.saturating_sub(self.log_bytes()) / 16 * 15;
        left - left % ALIGNMENT as u64
    }

    /// What a file of the log may take, and a record of a huge batch more.
    pub(crate) fn log_file_bytes(&self) -> u64 {
        (self.memtable_bytes() / 8 * 9).next_multiple_of(EXTEND_BYTES)
    }

    pub(crate) fn has_store(&self) -> bool {
        self.profile.is_some_and(Profile::has_store)
    }

    /// Of the first tier, what the slabs of the store below the memtable leave: for indexes and filters of tables, the
    /// manifest, and the log after a crash, when several memtables share its first file.
    pub(crate) fn beside_slabs_bytes(&self) -> u64 {
        let fast = self.tiers.first().map_or(0, |tier| tier.capacity_bytes);
        (fast / 16).max(2 * self.log_file_bytes())
    }

    /// Tables that stay open at once.
    pub(crate) fn open_tables_max(&self) -> usize {
        let by_files = || getrlimit(Resource::Nofile).current.map_or(u64::MAX, |files| files / 2 / 2);
        let by_default = || if self.is_in_memory() { OPEN_IN_MEMORY_MAX } else { by_files() };
        self.open_tables_max.map_or_else(by_default, u64::from) as usize
    }

    /// One part in so many of the memory number is what open tables may hold: where all are in persistent memory there
    /// are no blocks to be cached beside.
    pub(crate) fn open_tables_share(&self) -> u64 {
        if self.is_in_memory() { 2 } else { 8 }
    }

    /// Whether all tables are in persistent memory.
    fn is_in_memory(&self) -> bool {
        self.tiers.iter().all(|tier| tier.persistent_memory)
    }

    /// Longest value this store takes, in bytes: 1/32 of the memory number, since a merge holds one of each run that it
    /// reads while flushes, writers and readers hold theirs; at least a mebibyte, but no more than an eighth of the
    /// number. In profile `prismdb` a 64th of the first tier, if that is less.
    pub fn value_bytes_max(&self) -> u64 {
        let share = (self.memory_bytes / 32).max(MIB.min(self.memory_bytes / 8));
        share.min(self.object_bytes_max()).min(VALUE_BYTES_MAX as u64)
    }

    /// Largest object that the store below the memtable takes: a 64th of the first tier, so that others have room
    /// beside it.
    fn object_bytes_max(&self) -> u64 {
        match self.tiers.first() {
            Some(tier) if self.has_store() => tier.capacity_bytes / 64,
            _ => u64::MAX,
        }
    }

    /// Bytes that a slab should take: a 512th of the first tier, so that their number is bounded, a page at least.
    pub(crate) fn slab_bytes(&self) -> u64 {
        self.tiers.first().map_or(0, |tier| tier.capacity_bytes / 512).max(4096)
    }

    /// Largest batch this store takes, in bytes of keys and values: a quarter of the memory number.
    pub fn batch_bytes_max(&self) -> u64 {
        (self.memory_bytes / 4).min(1 << 30)
    }

    /// Checks every field, alone and together.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`], naming the field, what it is and what it may be.
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, message: String| if ok { Ok(()) } else { Err(Error::invalid(message)) };
        let between = |name: &str, value: u64, low: u64, high: u64| {
            check(
                (low..=high).contains(&value),
                format!("{name} is {value}; it must be from {low} to {high}"),
            )
        };
        let sized = |name: &str, bytes: u64, low: u64, high: u64| {
            let [is, least, most] = [bytes, low, high].map(Size);
            check((low..=high).contains(&bytes), format!("{name} is {is}; it must be from {least} to {most}"))
        };
        check(!self.tiers.is_empty(), "tiers is empty; name at least one directory".to_owned())?;
        if let Some(profile) = self.profile.filter(|profile| profile.has_store()) {
            let message = format!("profile {profile} needs a fast and a capacity tier; name two directories");
            check(self.tiers.len() >= 2, message)?;
        }
        if let Some(profile) = self.profile.filter(|profile| self.log_free && !profile.has_store()) {
            let message =
                format!("log_free is set, which is for profile prismdb; the store's profile is {profile}");
            return Err(Error::invalid(message));
        }
        between("the number of tiers", self.tiers.len() as u64, 1, 8)?;
        sized("memory_bytes", self.memory_bytes, MEMORY_BYTES_MIN, 1 << 46)?;
        for (i, tier) in self.tiers.iter().enumerate() {
            sized(&format!("tiers[{i}].capacity_bytes"), tier.capacity_bytes, TIER_BYTES_MIN, 1 << 60)?;
            between(&format!("tiers[{i}].filter_bits_per_key"), tier.filter_bits_per_key.into(), 0, 32)?;
            let (least, most) = (SECTOR_BYTES_MIN.into(), ALIGNMENT as u64);
            between(&format!("tiers[{i}].sector_bytes"), tier.sector_bytes.into(), least, most)?;
            if !tier.sector_bytes.is_power_of_two() {
                let why =
                    format!("tiers[{i}].sector_bytes is {}, which is no power of two", tier.sector_bytes);
                return Err(Error::invalid(why));
            }
            if let Some(rate) = tier.background_bytes_per_second {
                sized(&format!("tiers[{i}].background_bytes_per_second"), rate, MIB, 1 << 40)?;
            }
            if tier.persistent_memory {
                let message = format!("tiers[{i}] is persistent memory; for now that is a store's only tier");
                check(self.tiers.len() == 1, message)?;
                let message =
                    format!("tiers[{i}].compression is {}; persistent memory has none", tier.compression);
                check(tier.compression == Compression::None, message)?;
            }
            let twice = self.tiers[..i].iter().any(|other| other.path == tier.path);
            check(!twice, format!("tiers[{i}].path {} is named twice", tier.path.display()))?;
        }
        let memtable = self.memtable_bytes();
        sized("memtable_bytes", memtable, MEMTABLE_BYTES_MIN, self.memory_bytes / 4)?;
        let fast = self.tiers[0].capacity_bytes;
        check(
            memtable <= fast / 8 && self.log_bytes() <= fast / 8 * 7,
            format!(
                "the first tier has {}; memtables of {} need {} of log there, which may be seven eighths of it at most: \
                 give it more, or set memtable_bytes to less",
                Size(fast),
                Size(memtable),
                Size(self.log_bytes())
            ),
        )?;
        let least = self.log_bytes() + self.beside_slabs_bytes() + SLABS_MEMTABLES_MIN * memtable;
        let message = format!(
            "the first tier has {fast} bytes; with memtables of {}, profile prismdb needs {least}: give it more, or set \
             memtable_bytes to less",
            Size(memtable)
        );
        check(!self.has_store() || least <= fast, message)?;
        between("tracked_percent", self.tracked_percent.into(), 1, 100)?;
        between("pinned_percent", self.pinned_percent.unwrap_or(0).into(), 0, 100)?;
        sized("table_bytes", self.table_bytes, 32 << 10, 1 << 32)?;
        sized("block_bytes", self.block_bytes.into(), 512, 64 << 10)?;
        between("level_ratio", self.level_ratio.into(), 2, 100)?;
        let (least, most) = Self::RUNS_MAX_ALLOWED.into_inner();
        between("runs_max", self.runs_max.into(), least.into(), most.into())?;
        let (least, most) = Self::FLOORS_MAX_ALLOWED.into_inner();
        between("floors_max", self.floors_max.unwrap_or(most).into(), least.into(), most.into())?;
        let (least, most) = Self::LOG_RUNS_MAX_ALLOWED.into_inner();
        between("log_runs_max", self.log_runs_max.into(), least.into(), most.into())?;
        let (least, most) = Self::CANDIDATE_TABLES_ALLOWED.into_inner();
        between("candidate_tables", self.candidate_tables.into(), least.into(), most.into())?;
        between("log_guard_tables", self.log_guard_tables.into(), 1, 1 << 20)?;
        between("level0_merge", self.level0_merge.into(), 1, 1000)?;
        between("level0_slow", self.level0_slow.into(), u64::from(self.level0_merge) + 1, 10_000)?;
        between("level0_stop", self.level0_stop.into(), u64::from(self.level0_slow) + 1, 20_000)?;
        between("open_tables_max", self.open_tables_max.unwrap_or(8).into(), 8, u64::from(u32::MAX))?;
        between("background_threads", self.background_threads.into(), 1, 8)?;
        sized("read_ahead_bytes", self.read_ahead_bytes.into(), 4096, 16 * MIB)?;
        if let Durability::Interval(limit) = self.durability {
            between("durability interval in ms", limit.as_millis() as u64, 1, 3_600_000)?;
        }
        Ok(())
    }
}

/// Bytes for people.
#[derive(Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        for larger in units {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, larger);
        }
        let text = if unit == "B" { format!("{value} {unit}") } else { format!("{value:.1} {unit}") };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_alone_are_enough() {
        Options::at("/tmp/x").validate().unwrap();
        Options::tiered(TierOptions::fast("a", 1 << 30), TierOptions::capacity("b", 8 << 30))
            .validate()
            .unwrap();
    }

    #[test]
    fn sizes_that_do_not_add_up_are_named() {
        let refuse = |change: fn(&mut Options), word: &str| {
            let mut options = Options::at("x");
            change(&mut options);
            let error = options.validate().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        refuse(|o| o.tiers.clear(), "tiers");
        refuse(|o| o.memory_bytes = 1, "memory_bytes");
        refuse(|o| o.tiers.push(o.tiers[0].clone()), "named twice");
        refuse(|o| o.memtable_bytes = Some(o.memory_bytes), "memtable_bytes");
        refuse(|o| o.level0_stop = o.level0_slow, "level0_stop");
        refuse(|o| o.candidate_tables = 5, "candidate_tables");
        refuse(|o| o.tiers[0].sector_bytes = 256, "sector_bytes");
        refuse(|o| o.tiers[0].sector_bytes = 8192, "sector_bytes");
        refuse(|o| o.tiers[0].sector_bytes = 1000, "no power of two");
        refuse(
            |o| (o.tiers[0].capacity_bytes, o.memtable_bytes) = (100 * MIB, Some(32 * MIB)),
            "of log there",
        );
        let small = Options { tiers: vec![TierOptions::fast("x", 100 * MIB)], ..Options::default() };
        small.validate().unwrap();
        refuse(|o| o.durability = Durability::Interval(Duration::ZERO), "interval");
        refuse(|o| (o.profile, o.log_free) = (Some(Profile::Leveled), true), "log_free");
    }

    #[test]
    fn names_are_read_back() {
        for text in ["sync", "interval:5", "os", "unlogged"] {
            assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
        }
        assert!("interval:0".parse::<Durability>().is_err());
        assert_eq!("leveled".parse::<Profile>().unwrap(), Profile::Leveled);
        assert!("prism".parse::<Profile>().unwrap_err().to_string().contains("leveled"));
    }
}
