//! Small stores on simulated disks: their options, their world, what they hold.

use crate::model::Contents;
use cuesta::{
    Compression, Db, Demotion, Durability, MEMORY_NAME, Options, Profile, PromoteReads, Range, TierOptions,
    World, mapped_tier,
};
use cuesta_device::Directory;
use cuesta_device::mapped::Region;
use cuesta_device::sim::SimDisk;
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const MIB: u64 = 1 << 20;

/// What stores of the table are made as: a profile, and where that changes what is written, the media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Profile `leveled`.
    Leveled,
    /// Profile `fragmented`.
    Fragmented,
    /// Profile `prismdb`.
    PrismDb,
    /// Profile `prismdb` whose writes go to slots instead of the log.
    PrismDbLogFree,
    /// Profile `nvlsm` on persistent memory.
    NvLsm,
    /// Profile `nvlsm` on a fast and a capacity tier.
    NvLsmBlocks,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 6] = [
        Self::Leveled,
        Self::Fragmented,
        Self::PrismDb,
        Self::PrismDbLogFree,
        Self::NvLsm,
        Self::NvLsmBlocks,
    ];

    /// The profile.
    pub fn profile(self) -> Profile {
        match self {
            Self::Leveled => Profile::Leveled,
            Self::Fragmented => Profile::Fragmented,
            Self::PrismDb | Self::PrismDbLogFree => Profile::PrismDb,
            Self::NvLsm | Self::NvLsmBlocks => Profile::NvLsm,
        }
    }

    /// Its name, as the command line spells it: the profile's, and what tells it from another of that.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrismDbLogFree => "prismdb-log-free",
            Self::NvLsmBlocks => "nvlsm-blocks",
            other => other.profile().name(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there are no stores of profile {text:?}; there are: {known}")
        })
    }
}

/// The kind of stores that the table is run over; one for the whole process, since a case is a number.
static KIND: AtomicUsize = AtomicUsize::new(0);

/// The kind that stores are made as.
pub fn kind() -> Kind {
    Kind::ALL[KIND.load(Ordering::Relaxed)]
}

/// From now on stores are made as this.
pub fn set_kind(kind: Kind) {
    let i = Kind::ALL.iter().position(|other| *other == kind);
    KIND.store(i.unwrap_or_default(), Ordering::Relaxed);
}

/// Options for small stores in simulation: everything happens after few operations.
pub fn options(seed: u64, durability: Durability) -> Options {
    options_of(kind(), seed, durability)
}

/// As [`options`], for a kind of stores.
pub fn options_of(kind: Kind, seed: u64, durability: Durability) -> Options {
    let mut rng = Rng::new(seed);
    let compressions = Compression::ALL;
    // Every other one has a fast tier that is too small for the data, so that tables, or objects,
    // move between tiers.
    let small = match kind {
        // Of that the log has a mebibyte, and what is beside the slabs half a one.
        Kind::PrismDb | Kind::PrismDbLogFree => 2_000_000,
        _ => MIB * 7 / 5,
    };
    let fast = if rng.one_in(2) { small } else { 64 * MIB };
    let mut tiers = match kind {
        // As large as images of it can be copied often.
        Kind::NvLsm => {
            let bytes = [6, 12][usize::from(fast > small)] * MIB;
            vec![TierOptions::memory(PathBuf::from("memory"), bytes)]
        }
        _ => vec![
            TierOptions::fast(PathBuf::from("fast"), fast),
            TierOptions::capacity(PathBuf::from("capacity"), 256 * MIB),
        ],
    };
    for tier in &mut tiers {
        let compression = compressions[rng.below(3) as usize];
        tier.compression = if tier.persistent_memory { Compression::None } else { compression };
        tier.filter_bits_per_key = [0, 10, 14][rng.below(3) as usize];
    }
    if matches!(kind, Kind::PrismDb | Kind::PrismDbLogFree) {
        // Drawn apart, so that all else stays as it was.
        tiers[0].sector_bytes = [512, 2048, 4096][Rng::stream(seed, 1).below(3) as usize];
    }
    let has_guards = matches!(kind, Kind::Fragmented | Kind::NvLsm | Kind::NvLsmBlocks);
    Options {
        tiers,
        memory_bytes: 8 * MIB,
        memtable_bytes: Some(64 << 10),
        // Small enough for guards to be cut.
        table_bytes: if matches!(kind, Kind::Fragmented | Kind::NvLsmBlocks) { 32 << 10 } else { 64 << 10 },
        block_bytes: [512, 1024, 4096][rng.below(3) as usize],
        level_ratio: match (has_guards, rng.below(9) as u32) {
            (true, ratio) => 2 + ratio / 3,
            (false, ratio) => 2 + ratio,
        },
        level0_merge: 1 + rng.below(4) as u32,
        // All but one may merge.
        background_threads: 1 + rng.below(if has_guards { 4 } else { 2 }) as u32,
        open_tables_max: rng.one_in(2).then_some(8),
        durability,
        seed: seed | 1,
        profile: Some(kind.profile()),
        // What is read now and then comes up at once in small worlds.
        promote_reads: [PromoteReads::Auto, PromoteReads::Always][rng.below(2) as usize],
        demotion: [Demotion::Approx, Demotion::Random, Demotion::Precise][rng.below(3) as usize],
        runs_max: 2 + rng.below(4) as u32,
        log_runs_max: 1 + (seed % 6) as u32,
        candidate_tables: 1 + (seed / 18 % 3) as u32,
        log_guard_tables: 1 + (seed / 6 % 3) as u32,
        floors_max: Some(1 + rng.below(5) as u32),
        log_free: kind == Kind::PrismDbLogFree,
        ..Options::default()
    }
}

/// A fast tier that scripts overfill.
pub(crate) fn small_fast_bytes() -> u64 {
    match kind() {
        // Of this half a mebibyte is for the slabs.
        Kind::PrismDb | Kind::PrismDbLogFree => 2 << 20,
        // There is no other.
        Kind::NvLsm => 6 << 20,
        _ => 3 << 19,
    }
}

/// Something that cases share, made once for each kind of stores.
pub(crate) struct Shared<T>([OnceLock<T>; Kind::ALL.len()]);

impl<T> Shared<T> {
    /// Not made yet.
    pub(crate) const fn new() -> Self {
        Self([const { OnceLock::new() }; Kind::ALL.len()])
    }

    /// That of the present kind, made now if it is not.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.0[KIND.load(Ordering::Relaxed)].get_or_init(make)
    }
}

/// The world of a simulated disk, for these options.
pub fn world(sched: &Sched, disk: &SimDisk, options: &Options) -> World {
    let directory = |(i, tier): (usize, &TierOptions)| -> Arc<dyn Directory> {
        let files = disk.directory(i);
        if !tier.persistent_memory {
            return files;
        }
        let region = Region::new(disk.memory(i, MEMORY_NAME, options.mapped_bytes(tier)));
        mapped_tier(files, region, disk.maps(i))
    };
    let directories = options.tiers.iter().enumerate().map(directory).collect();
    World { sched: sched.clone(), directories }
}

/// Everything a store holds.
///
/// # Errors
/// What reading says.
pub fn contents(db: &Db) -> cuesta::Result<Contents> {
    let pairs = |scan: cuesta::Scan| -> cuesta::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        scan.map(|pair| pair.map(|(k, v)| (k, v.to_vec()))).collect()
    };
    let mut contents = Contents::from([(String::new(), pairs(db.scan(Range::all())?)?)]);
    for name in db.keyspaces()? {
        if let Some(keyspace) = db.keyspace(&name)? {
            contents.insert(name, pairs(keyspace.scan(Range::all())?)?);
        }
    }
    Ok(contents)
}
