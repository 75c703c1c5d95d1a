//! Where the store is: options that every command shares.

use crate::failure::{Failure, Result};
use crate::output::note;
use crate::size::{Place, Size};
use cuesta::{Create, Db, ErrorKind, Keyspace, Options, Profile, Question, Range, TierOptions, ask};
use std::ops::{Bound, RangeInclusive};
use std::path::PathBuf;

const FAST_BYTES: u64 = 4 << 30;
const CAPACITY_BYTES: u64 = 64 << 30;

/// Under which options are listed that few need.
pub(crate) const TUNING: &str = "Tuning (defaults suit most)";

/// Where the store is.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store's directory
    #[arg(long, default_value = "./cuesta-data", env = "CUESTA_DIR")]
    pub(crate) dir: PathBuf,
    /// The fast tier: a directory and what may be used there [default: DIR/fast:4GiB]
    #[arg(long, value_name = "DIR:SIZE")]
    pub(crate) fast: Option<Place>,
    /// The capacity tier: a directory and what may be used there [default: DIR/capacity:64GiB]
    #[arg(long, value_name = "DIR:SIZE")]
    pub(crate) capacity: Option<Place>,
    /// Persistent memory: a directory of a file system on it, and what may be used there; instead of both tiers
    #[arg(long, value_name = "DIR:SIZE", conflicts_with_all = ["fast", "capacity"])]
    pub(crate) pmem: Option<Place>,
    /// Memory for everything the store holds
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) memory: Size,
    /// How a new store is made: leveled, fragmented, prismdb, or nvlsm, which is meant for --pmem [default: leveled]
    ///
    /// A store that is there stays what it is.
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<Profile>,
    /// prismdb: write single keys straight to slots of the fast tier, and not to the log
    #[arg(long)]
    pub(crate) log_free: bool,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
}

/// How large tables are, and how much guards may have, in profiles that have them.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = TUNING)]
pub(crate) struct ShapeArgs {
    /// How large tables are [default: 32MiB]
    ///
    /// At least 32 KiB; never more than a 64th of the fast tier, if that is 2 MiB. Larger for fewer files, smaller for
    /// merges that take less at once.
    #[arg(long, value_name = "SIZE")]
    table_bytes: Option<Size>,
    /// prismdb: the unit in which slots are read and written [default: 4096; of a modelled device, its own]
    ///
    /// From 512 to 4096: less than a page for media that do not rewrite one for less, such as Optane.
    #[arg(long, value_name = "SIZE")]
    sector: Option<Size>,
    /// fragmented: how many runs a guard may have
    ///
    /// More for fewer bytes written, fewer for faster reads.
    #[arg(
        long,
        value_name = "RUNS",
        default_value_t = Options::default().runs_max,
        value_parser = clap::value_parser!(u32).range(allowed(Options::RUNS_MAX_ALLOWED)),
    )]
    max_runs: u32,
    /// leveled and prismdb: how many runs may lie above one another in the last level
    ///
    /// Where that is on a slower tier than the others (prismdb: up to twice as many where the fast tier is small). More
    /// for fewer bytes written, fewer for faster scans and less room taken.
    #[arg(
        long,
        value_name = "RUNS",
        default_value_t = Options::default().log_runs_max,
        value_parser = clap::value_parser!(u32).range(allowed(Options::LOG_RUNS_MAX_ALLOWED)),
    )]
    log_runs: u32,
    /// prismdb: of how many neighbouring tables the key ranges are that go down
    ///
    /// More for fewer and longer demotions.
    #[arg(
        long,
        value_name = "TABLES",
        default_value_t = Options::default().candidate_tables,
        value_parser = clap::value_parser!(u32).range(allowed(Options::CANDIDATE_TABLES_ALLOWED)),
    )]
    candidate_tables: u32,
    /// nvlsm: how many floors a guard may have [default: it follows the mix of reads and writes]
    ///
    /// More for fewer bytes written, fewer for faster reads.
    #[arg(
        long,
        value_name = "FLOORS",
        value_parser = clap::value_parser!(u32).range(allowed(Options::FLOORS_MAX_ALLOWED)),
    )]
    max_floors: Option<u32>,
}

impl ShapeArgs {
    /// The options, of this shape.
    pub(crate) fn of(&self, mut options: Options) -> Options {
        if let (Some(Size(bytes)), Some(fast)) = (&self.sector, options.tiers.first_mut()) {
            // What is too much for the field is too much for the store, which says so.
            fast.sector_bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
        }
        Options {
            table_bytes: self.table_bytes.as_ref().map_or(options.table_bytes, |size| size.0),
            runs_max: self.max_runs,
            log_runs_max: self.log_runs,
            candidate_tables: self.candidate_tables,
            floors_max: self.max_floors,
            ..options
        }
    }
}

fn allowed(range: RangeInclusive<u32>) -> RangeInclusive<i64> {
    let (least, most) = range.into_inner();
    least.into()..=most.into()
}

/// Which keys: those of a keyspace.
#[derive(clap::Args, Debug)]
pub(crate) struct KeyspaceArgs {
    /// The keyspace [default: the one that every store has]
    #[arg(long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
}

/// Which keys: those of a range.
#[derive(clap::Args, Debug)]
pub(crate) struct RangeArgs {
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Key to stop before
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys that begin so
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
}

impl RangeArgs {
    /// The range; every key if nothing was said.
    pub(crate) fn range(&self) -> Range<'_> {
        if let Some(prefix) = &self.prefix {
            return Range::prefix(prefix.as_bytes());
        }
        let low = self.from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.as_bytes()));
        let high = self.to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
        Range::new(low, high)
    }
}

impl StoreArgs {
    /// The options for this place.
    pub(crate) fn options(&self, create: Create) -> Options {
        let tier = |place: &Option<Place>, name: &str, bytes: u64| match place {
            Some(place) => (place.path.clone(), place.size.0),
            None => (self.dir.join(name), bytes),
        };
        let (fast, fast_bytes) = tier(&self.fast, "fast", FAST_BYTES);
        let (capacity, capacity_bytes) = tier(&self.capacity, "capacity", CAPACITY_BYTES);
        let tiers = (TierOptions::fast(fast, fast_bytes), TierOptions::capacity(capacity, capacity_bytes));
        let (memory_bytes, profile) = (self.memory.0, self.profile);
        let of_tiers = match &self.pmem {
            Some(Place { path, size }) => Options::in_memory(path, size.0),
            None => Options::tiered(tiers.0, tiers.1),
        };
        let log_free = self.log_free;
        self.shape.of(Options { memory_bytes, profile, create, log_free, ..of_tiers })
    }

    /// The first tier's directory.
    pub(crate) fn fast_dir(&self) -> PathBuf {
        self.pmem
            .as_ref()
            .or(self.fast.as_ref())
            .map_or_else(|| self.dir.join("fast"), |place| place.path.clone())
    }

    /// Opens a store that must be there.
    pub(crate) fn open(&self) -> Result<Db> {
        self.open_as(Create::Never)
    }

    /// Opens a store.
    pub(crate) fn open_as(&self, create: Create) -> Result<Db> {
        Ok(self.opened(create)?)
    }

    /// As [`StoreArgs::open_as`], with the store's own error. Of persistent memory, what makes it durable is told.
    fn opened(&self, create: Create) -> cuesta::Result<Db> {
        let db = Db::open(&self.options(create))?;
        if self.pmem.is_some()
            && let Some(persistence) = db.stats().tiers.into_iter().find_map(|tier| tier.persistence)
        {
            note(&durable_by(&persistence));
        }
        Ok(db)
    }
}

/// What is told of persistent memory where it is opened.
pub(crate) fn durable_by(persistence: &str) -> String {
    format!("persistent memory is made durable by {persistence}")
}

/// A store, or what an open one answered.
pub(crate) enum Reached {
    Opened(Box<Db>),
    Answered(String),
}

impl StoreArgs {
    /// Opens a store that must be there; one that is open elsewhere is asked the question, which is answered in words.
    pub(crate) fn open_or_ask(&self, question: &Question) -> Result<Reached> {
        match self.opened(Create::Never) {
            Ok(db) => Ok(Reached::Opened(Box::new(db))),
            Err(locked) if *locked.kind() == ErrorKind::Locked => match ask(&self.fast_dir(), question) {
                Ok(answer) => Ok(Reached::Answered(answer)),
                // Nobody to ask: why it could not be opened says more.
                Err(error) if *error.kind() == ErrorKind::NotFound => Err(locked.into()),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

impl KeyspaceArgs {
    /// The keyspace, which must be there; `None` for the default one.
    pub(crate) fn open(&self, db: &Db) -> Result<Option<Keyspace>> {
        let Some(name) = &self.keyspace else { return Ok(None) };
        let missing =
            || Failure::Input(format!("there is no keyspace {name:?}; `cuesta stats` names those there are"));
        db.keyspace(name)?.ok_or_else(missing).map(Some)
    }

    /// The keyspace, made if it is not there.
    pub(crate) fn open_or_create(&self, db: &Db) -> Result<Option<Keyspace>> {
        let Some(name) = &self.keyspace else { return Ok(None) };
        match db.keyspace(name)? {
            Some(keyspace) => Ok(Some(keyspace)),
            None => Ok(Some(db.create_keyspace(name)?)),
        }
    }
}
