//! `cuesta bench`: YCSB's workloads over a store of its own.

mod alone;

use crate::failure::{Failure, Outcome, Result};
use crate::measure::ours::MemoryModel;
use crate::measure::process::Devices;
use crate::measure::run::{Plan, Record, Stage, entries};
use crate::measure::{self, page, report};
use crate::model::{Models, TIERS};
use crate::output::{Say, check_writable, print_line, tell_line};
use crate::size::{Place, Size, human};
use crate::store::{ShapeArgs, TUNING};
use cuesta::{Create, Demotion, Durability, Options, Profile, PromoteReads, TierOptions};
use cuesta_bench::{Config, Distribution, Keys, Length, VALUE_BYTES_MIN, Values, Workload};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const FAST_BYTES: u64 = 1 << 30;
/// What is loaded when nothing is said, alone and against peers.
const RECORDS: [u64; 2] = [1_000_000, 2_000_000];
const THREADS: [u64; 2] = [2, 8];
const VALUE_BYTES: [usize; 2] = [100, 1000];
const MEMORY_BYTES: u64 = 256 << 20;
/// Against peers: the parts of the data that fast tier and memory have, and how often it fits into the capacity tier.
const FAST_PART: u64 = 5;
const MEMORY_PART: u64 = 10;
const CAPACITY_TIMES: u64 = 8;
/// Against peers, in seconds.
const SECONDS: f64 = 20.0;
const WARM_UP: f64 = 10.0;
/// Where modelled devices keep their bytes: in memory, which is faster than all of them.
const IN_MEMORY: &str = "/dev/shm";
/// Longest phase, in seconds.
const SECONDS_MAX: f64 = 86_400.0;
const CAPACITY_BYTES: u64 = 64 << 30;

/// Under which options are listed.
const WORKLOAD: &str = "Workload";
const STORE: &str = "Store";
const DEVICES: &str = "Modelled devices";
const COMPARISON: &str = "Comparison";
const RESULTS: &str = "Results";

/// Load records into a fresh store, run workloads on it, and print what it took.
///
/// Prints throughput, latencies and bytes per tier.
///
/// Workloads are YCSB's: a (half reads, half updates), b (5 % updates), c (reads), d (reads of the latest, 5 %
/// inserts), e (scans of 1 to 100, 5 % inserts), f (half reads, half read-modify-writes); w, w80 and w20 (updates, so
/// many of a hundred, and reads); seek, range48 and range1024 (scans of so many); facebook, twitter19, twitter39 and
/// twitter51, which are like production systems; and load. Every value read is checked. Values do not compress.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What to run, in order; the records are loaded first in any case [default: load,a; with --against a,b,c,f,d,e]
    #[arg(long, help_heading = WORKLOAD, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Play this trace on an empty store instead: lines of time,op,key,value_bytes
    #[arg(long, help_heading = WORKLOAD, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// Records to load [default: 1000000; with --against 2000000]
    #[arg(long, help_heading = WORKLOAD)]
    records: Option<u64>,
    /// Operations of each workload
    #[arg(long, help_heading = WORKLOAD, default_value_t = 1_000_000)]
    ops: u64,
    /// Run each workload for so many seconds instead [with --against 20]
    #[arg(long, help_heading = WORKLOAD, conflicts_with = "ops")]
    seconds: Option<f64>,
    /// Before each workload run it for so many seconds that are not measured [default: 0; with --against 10]
    #[arg(long, help_heading = WORKLOAD)]
    warm_up: Option<f64>,
    /// Client threads [default: 2; with --against 8]
    #[arg(long, help_heading = WORKLOAD)]
    threads: Option<u64>,
    /// Bytes of a value, 8 or more [default: the first workload's own, or 100; with --against 1000]
    #[arg(long, help_heading = WORKLOAD)]
    value_bytes: Option<usize>,
    /// zipfian, ycsb, uniform, latest or facebook, for every workload [default: each workload's own]
    #[arg(long, help_heading = WORKLOAD)]
    distribution: Option<Distribution>,
    /// Skew of the Zipfian distribution, more than 0 and at most 2, and not 1
    #[arg(long, help_heading = WORKLOAD, default_value_t = 0.99)]
    theta: f64,
    /// Of every choice
    #[arg(long, help_heading = WORKLOAD, default_value_t = 1)]
    seed: u64,
    /// Where the store is made; emptied first if an earlier benchmark made it [default: ./cuesta-bench-data; with --against
    /// and --model in memory, under /dev/shm]
    #[arg(long, help_heading = STORE)]
    dir: Option<PathBuf>,
    /// leveled, fragmented, prismdb, or nvlsm, which is meant for --pmem
    #[arg(long, help_heading = STORE, default_value = "leveled")]
    profile: Profile,
    /// The fast tier [default: DIR/fast:1GiB]
    #[arg(long, help_heading = STORE, value_name = "DIR:SIZE")]
    fast: Option<Place>,
    /// The capacity tier [default: DIR/capacity:64GiB]
    #[arg(long, help_heading = STORE, value_name = "DIR:SIZE")]
    capacity: Option<Place>,
    /// Persistent memory, instead of both tiers
    #[arg(long, help_heading = STORE, value_name = "DIR:SIZE", conflicts_with_all = ["fast", "capacity", "against", "model"])]
    pmem: Option<Place>,
    /// Memory for everything the store holds [default: 256MiB; with --against a tenth of the data]
    #[arg(long, help_heading = STORE, value_name = "SIZE")]
    memory: Option<Size>,
    /// sync, interval:MS, os or unlogged
    #[arg(long, help_heading = STORE, default_value = "os")]
    durability: Durability,
    /// prismdb: write single keys straight to slots of the fast tier, and not to the log
    #[arg(long, help_heading = STORE, conflicts_with = "against")]
    log_free: bool,
    /// Tiers as slow as other devices, TIER=PRESET with commas (optane, nvme, sata, qlc, hdd; qlc*0.2 for a fifth of
    /// its bandwidth and channels) or a TOML file; their bytes stay where they are, best in memory, such as --fast
    /// /dev/shm/fast:1GiB
    #[arg(long, help_heading = DEVICES, value_name = "MODEL")]
    model: Option<Models>,
    /// Persistent memory that --pmem stands for: pcm (100 ns a cache line read, 400 ns written) or nvdimm (as fast as
    /// memory). Cache lines are counted then
    #[arg(long, help_heading = DEVICES, value_name = "MODEL", requires = "pmem")]
    pmem_model: Option<MemoryModel>,
    /// Run the same on these peers in turns, and print ratios: rocksdb, fjall, redb (see docs/benchmarks.md);
    /// rocksdb:lru+m8 is set otherwise than is best (lru or hyper, row, m4, m8 or m10)
    #[arg(long, help_heading = COMPARISON, value_delimiter = ',', value_name = "PEERS", conflicts_with_all = ["trace", "ops", "fast", "capacity", "max_runs", "max_floors", "log_runs", "candidate_tables", "table_bytes", "sector"])]
    against: Vec<String>,
    /// Turns of each, with --against
    #[arg(long, help_heading = COMPARISON, default_value_t = 5, requires = "against")]
    pairs: u64,
    /// With --against, the fast tier of each [default: a fifth of the data]
    #[arg(long, help_heading = COMPARISON, value_name = "SIZE", requires = "against")]
    fast_size: Option<Size>,
    /// With --against, bound nobody's memory by the kernel's memory groups: for stores that hold much more than they
    /// are given, as fjall does
    #[arg(long, help_heading = COMPARISON, requires = "against")]
    no_memory_groups: bool,
    /// Write everything measured to this file
    #[arg(long, help_heading = RESULTS, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots to this file; it needs nothing else to be read (not of a trace)
    #[arg(long, help_heading = RESULTS, value_name = "FILE", conflicts_with = "trace")]
    report: Option<PathBuf>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// prismdb: how the next key range to go down is chosen: approx, precise or random
    #[arg(long, help_heading = TUNING, default_value = "approx", conflicts_with = "against")]
    demotion: Demotion,
    /// prismdb: when what a read found on the capacity tier comes up: auto, always or never
    #[arg(long, help_heading = TUNING, default_value = "auto", conflicts_with = "against")]
    promote_reads: PromoteReads,
}

impl Args {
    /// 0 when Cuesta runs alone, 1 against peers.
    fn kind(&self) -> usize {
        usize::from(!self.against.is_empty())
    }

    fn records(&self) -> u64 {
        self.records.unwrap_or(RECORDS[self.kind()])
    }

    fn threads(&self) -> u64 {
        self.threads.unwrap_or(THREADS[self.kind()])
    }

    /// Of all phases: they are loaded once.
    fn keys(&self) -> Keys {
        if self.workloads().contains(&Workload::Facebook) { Keys::Ordered } else { Keys::Scattered }
    }

    /// Bytes of keys and values that are loaded; of values of varying length, about as many.
    fn data_bytes(&self) -> u64 {
        (self.records() as f64 * (self.keys().bytes() as f64 + self.values().mean_bytes())) as u64
    }

    fn memory_bytes(&self) -> u64 {
        let default = if self.against.is_empty() { MEMORY_BYTES } else { self.data_bytes() / MEMORY_PART };
        self.memory.map_or(default, |size| size.0)
    }

    fn workloads(&self) -> Vec<Workload> {
        use Workload::{A, B, C, D, E, F, Load};
        match (self.workload.as_slice(), self.kind()) {
            ([], 0) => vec![Load, A],
            ([], _) => vec![Load, A, B, C, F, D, E],
            (named, _) => named.to_vec(),
        }
    }

    fn dir(&self) -> PathBuf {
        let default = match (&self.model, self.kind()) {
            (Some(_), 1) => Path::new(IN_MEMORY).join("cuesta-bench-data"),
            _ => PathBuf::from("./cuesta-bench-data"),
        };
        self.dir.clone().unwrap_or(default)
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Failure::Input(what.to_owned()));
        match self {
            Self { records: Some(0), .. } => refuse("--records must be 1 or more"),
            Self { ops: 0, .. } => refuse("--ops must be 1 or more"),
            Self { pairs: 0 | 101.., .. } => refuse("--pairs must be from 1 to 100"),
            Self { threads: Some(0 | 1025..), .. } => refuse("--threads must be from 1 to 1024"),
            Self { value_bytes: Some(0..VALUE_BYTES_MIN), .. } => {
                refuse("--value-bytes must be 8 or more: values check themselves")
            }
            Self { seconds: Some(seconds), .. } if !(*seconds > 0.0 && *seconds <= SECONDS_MAX) => {
                refuse("--seconds must be more than 0 and at most 86400")
            }
            Self { warm_up: Some(warm_up), .. } if !(0.0..=SECONDS_MAX).contains(warm_up) => {
                refuse("--warm-up must be from 0 to 86400")
            }
            Self { theta, .. } if !(*theta > 0.0 && *theta <= 2.0 && (*theta - 1.0).abs() > 1e-3) => {
                refuse("--theta must be more than 0 and at most 2, and not 1")
            }
            // Better known now than once ours is loaded.
            Self { against, durability: Durability::Interval(_) | Durability::Unlogged, .. }
                if !against.is_empty() =>
            {
                refuse("--durability must be os or sync with --against: peers have nothing else")
            }
            _ => Ok(()),
        }
    }

    /// Whether results can be written: better known now than after half an hour.
    fn check_outputs(&self) -> Result<()> {
        self.json.iter().chain(&self.report).try_for_each(|path| check_writable(path))
    }

    /// Who wants files gets them, whoever reads what is printed.
    fn say(&self) -> Say {
        if self.json.is_some() || self.report.is_some() { tell_line } else { print_line }
    }

    /// What the tiers are called, fastest first.
    fn tier_names(&self) -> [&'static str; 2] {
        if self.pmem.is_some() { ["pmem", ""] } else { TIERS }
    }

    fn options(&self) -> Options {
        let tier = |place: &Option<Place>, name: &str, bytes: u64| match place {
            Some(place) => (place.path.clone(), place.size.0),
            None => (self.dir().join(name), bytes),
        };
        let (fast, fast_bytes) = tier(&self.fast, "fast", FAST_BYTES);
        let (capacity, capacity_bytes) = tier(&self.capacity, "capacity", CAPACITY_BYTES);
        let tiers = (TierOptions::fast(fast, fast_bytes), TierOptions::capacity(capacity, capacity_bytes));
        let of_tiers = match &self.pmem {
            Some(Place { path, size }) => Options::in_memory(path, size.0),
            None => Options::tiered(tiers.0, tiers.1),
        };
        let options = Options {
            memory_bytes: self.memory_bytes(),
            profile: Some(self.profile),
            demotion: self.demotion,
            promote_reads: self.promote_reads,
            log_free: self.log_free,
            durability: self.durability,
            create: Create::New,
            seed: self.seed,
            ..of_tiers
        };
        self.shape.of(match &self.model {
            Some(models) => models.with_sectors(options),
            None => options,
        })
    }

    /// How long values are, in all phases: they are loaded once.
    fn values(&self) -> Values {
        let own = || self.workloads().iter().find_map(|workload| workload.values());
        self.value_bytes.map(Values::Fixed).or_else(own).unwrap_or(Values::Fixed(VALUE_BYTES[self.kind()]))
    }

    fn config(&self, workload: Workload, phase: u64) -> Config {
        Config {
            workload,
            records: self.records(),
            length: match self.seconds {
                _ if workload == Workload::Load => Length::Operations(self.records()),
                Some(seconds) => Length::Seconds(seconds),
                None => Length::Operations(self.ops),
            },
            threads: self.threads(),
            keys: self.keys(),
            values: self.values(),
            distribution: self.distribution,
            theta: self.theta,
            seed: self.seed,
            phase,
        }
    }
}

impl Args {
    fn plan(&self) -> Result<Plan> {
        let data_bytes = self.data_bytes();
        let warm_up = self.warm_up.unwrap_or(WARM_UP);
        let stage = |workload| Stage {
            warm_up: (warm_up > 0.0).then_some(Length::Seconds(warm_up)),
            ..Stage::new(workload, Length::Seconds(self.seconds.unwrap_or(SECONDS)))
        };
        Ok(Plan {
            entries: entries(&self.against)?,
            stages: self.workloads().into_iter().map(stage).collect(),
            load: self.config(Workload::Load, 0),
            rounds: self.pairs,
            killed: false,
            grouped: !self.no_memory_groups,
            dir: self.dir(),
            fast_bytes: self.fast_size.map_or(data_bytes / FAST_PART, |size| size.0),
            capacity_bytes: data_bytes * CAPACITY_TIMES,
            memory_bytes: self.memory_bytes(),
            data_bytes,
            durability: self.durability.to_string(),
            profile: self.profile.to_string(),
            devices: Devices {
                models: self.model.as_ref().map_or(String::new(), |models| models.as_named.clone()),
                page_cache_bytes: self.memory_bytes() / 2,
                seed: self.seed,
            },
            scale: None,
        })
    }
}

/// Runs the plan and shows what came of it, all of it or what there was when a contender failed.
fn run_against(args: &Args) -> Result<Outcome> {
    let plan = args.plan()?;
    let title = format!(
        "{} records of {}, {} threads, durability {}, memory {}, fast tier {}, devices {}, seed {}",
        plan.load.records,
        human(data_record(&plan)),
        plan.load.threads,
        plan.durability,
        human(plan.memory_bytes),
        human(plan.fast_bytes),
        if plan.devices.models.is_empty() { "of this machine" } else { &plan.devices.models },
        args.seed
    );
    args.check_outputs()?;
    let say = args.say();
    say(&title)?;
    let mut record = Record::new(title, &plan);
    if let Some(price) = record.dollars_per_gigabyte {
        say(&format!("both tiers together cost {price:.2} $/GB"))?;
    }
    let ran = measure::run::run(&plan, &mut record, &say);
    // Files first: nobody may be reading what is printed any more.
    let written = to_json(&record).and_then(|all| write_results(args, &record, &all));
    let shown = say("").and_then(|()| report::validity(&record).iter().try_for_each(|line| say(line)));
    ran.and(written).and(shown).map(|()| Outcome::Done)
}

fn data_record(plan: &Plan) -> u64 {
    plan.data_bytes / plan.load.records
}

fn to_json(record: &Record) -> Result<Value> {
    serde_json::to_value(record).map_err(|error| Failure::Input(error.to_string()))
}

/// Writes what was asked for: everything in `all`, and the record's page.
fn write_results(args: &Args, record: &Record, all: &Value) -> Result<()> {
    if let Some(path) = &args.json {
        fs::write(path, format!("{all:#}\n")).map_err(Failure::io(format!("write {}", path.display())))?;
    }
    if let Some(path) = &args.report {
        fs::write(path, page::page(record)?).map_err(Failure::io(format!("write {}", path.display())))?;
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    args.check()?;
    match args.against.is_empty() {
        true => alone::run(args),
        false => run_against(args),
    }
}
