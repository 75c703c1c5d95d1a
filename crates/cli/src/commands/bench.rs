//! `cuesta bench`: YCSB's workloads over a store of its own.

use crate::failure::{Failure, Outcome, Result};
use crate::measure::ours::{Cuesta, MemoryModel};
use crate::measure::place::make_room;
use crate::measure::process::Devices;
use crate::measure::run::{Plan, Record, Stage, entries};
use crate::measure::{self, page, report};
use crate::model::{Models, Running, TIERS};
use crate::output::{COUNT, COUNT_UP, print_line, progress, reveal};
use crate::size::{Place, Size, human};
use crate::store::{GuardArgs, durable_by};
use cuesta::{Cause, Create, Db, Demotion, Durability, Options, Profile, PromoteReads, Stats, TierOptions};
use cuesta_bench::contender::since;
use cuesta_bench::oracle;
use cuesta_bench::{
    Config, Distribution, Keys, Length, Measured, Operation, PhaseResult, TraceStep, VALUE_BYTES_MIN, Values,
    Workload, play, read_trace, run_phase,
};
use cuesta_device::mapped::LINE_BYTES;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

/// Load records into a fresh store, run workloads on it, and print throughput, latencies and bytes per tier.
///
/// Workloads are YCSB's: a (half reads, half updates), b (5 % updates), c (reads), d (reads of the latest, 5 %
/// inserts), e (scans of 1 to 100, 5 % inserts), f (half reads, half read-modify-writes); w, w80 and w20 (updates, so many of
/// a hundred, and reads); seek, range48 and range1024 (scans of so many); facebook, twitter19, twitter39 and twitter51, which are like
/// production systems; and load.
/// Every value read is checked. Values do not compress.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where the store is made; emptied first if an earlier benchmark made it [default: ./cuesta-bench-data; with --against
    /// and --model in memory, under /dev/shm]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// leveled, fragmented, prismdb, or nvlsm, which is meant for --pmem
    #[arg(long, default_value = "leveled")]
    profile: Profile,
    #[command(flatten)]
    guards: GuardArgs,
    /// With profile prismdb, write single keys straight to slots of the fast tier, and not to the log
    #[arg(long, conflicts_with = "against")]
    log_free: bool,
    /// With profile prismdb, how the next key range to go down is chosen: approx, precise or random
    #[arg(long, default_value = "approx", conflicts_with = "against")]
    demotion: Demotion,
    /// With profile prismdb, when what a read found on the capacity tier comes up: auto, always or never
    #[arg(long, default_value = "auto", conflicts_with = "against")]
    promote_reads: PromoteReads,
    /// What to run, in order; the records are loaded first in any case [default: load,a; with --against a,b,c,f,d,e]
    #[arg(long, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Run the same on these peers in turns, and print ratios: rocksdb, fjall, redb (see docs/benchmarks.md)
    #[arg(long, value_delimiter = ',', value_name = "PEERS", conflicts_with_all = ["trace", "ops", "fast", "capacity", "max_runs", "max_floors", "log_runs"])]
    against: Vec<String>,
    /// Turns of each, with --against
    #[arg(long, default_value_t = 5, requires = "against")]
    pairs: u64,
    /// With --against, the fast tier of each [default: a fifth of the data]
    #[arg(long, value_name = "SIZE", requires = "against")]
    fast_size: Option<Size>,
    /// Play this trace on an empty store instead: lines of time,op,key,value_bytes
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// Records to load [default: 1000000; with --against 2000000]
    #[arg(long)]
    records: Option<u64>,
    /// Operations of each workload
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Run each workload for so many seconds instead [with --against 20]
    #[arg(long, conflicts_with = "ops")]
    seconds: Option<f64>,
    /// Before each workload run it for so many seconds that are not measured [default: 0; with --against 10]
    #[arg(long)]
    warm_up: Option<f64>,
    /// Client threads [default: 2; with --against 8]
    #[arg(long)]
    threads: Option<u64>,
    /// Bytes of a value, 8 or more [default: the first workload's own, or 100; with --against 1000]
    #[arg(long)]
    value_bytes: Option<usize>,
    /// zipfian, ycsb, uniform, latest or facebook, for every workload [default: each workload's own]
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Skew of the Zipfian distribution, more than 0 and at most 2, and not 1
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
    /// Of every choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The fast tier [default: DIR/fast:1GiB]
    #[arg(long, value_name = "DIR:SIZE")]
    fast: Option<Place>,
    /// The capacity tier [default: DIR/capacity:64GiB]
    #[arg(long, value_name = "DIR:SIZE")]
    capacity: Option<Place>,
    /// Persistent memory, instead of both tiers
    #[arg(long, value_name = "DIR:SIZE", conflicts_with_all = ["fast", "capacity", "against", "model"])]
    pmem: Option<Place>,
    /// Persistent memory that --pmem stands for: pcm (100 ns a cache line read, 400 ns written) or nvdimm (as fast as memory). Cache
    /// lines are counted then
    #[arg(long, value_name = "MODEL", requires = "pmem")]
    pmem_model: Option<MemoryModel>,
    /// Memory for everything the store holds [default: 256MiB; with --against a tenth of the data]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// sync, interval:MS, os or unlogged
    #[arg(long, default_value = "os")]
    durability: Durability,
    /// Tiers as slow as other devices, TIER=PRESET with commas (optane, nvme, sata, qlc, hdd; qlc*0.2 for a fifth of its
    /// bandwidth and channels) or a TOML file; their bytes stay where they are, best in memory, such as --fast
    /// /dev/shm/fast:1GiB
    #[arg(long, value_name = "MODEL")]
    model: Option<Models>,
    /// Write everything measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with tables and plots to this file; it needs nothing else to be read
    #[arg(long, value_name = "FILE", requires = "against")]
    report: Option<PathBuf>,
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
            _ => Ok(()),
        }
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
        Options {
            memory_bytes: self.memory_bytes(),
            profile: Some(self.profile),
            demotion: self.demotion,
            promote_reads: self.promote_reads,
            runs_max: self.guards.max_runs,
            log_runs_max: self.guards.log_runs,
            floors_max: self.guards.max_floors,
            log_free: self.log_free,
            durability: self.durability,
            create: Create::New,
            seed: self.seed,
            ..of_tiers
        }
    }

    /// How long values are, in all phases: they are loaded once.
    fn values(&self) -> Values {
        let own = || self.workloads().iter().find_map(|workload| workload.values());
        self.value_bytes.map(Values::Fixed).or_else(own).unwrap_or(Values::Fixed(VALUE_BYTES[self.kind()]))
    }

    /// For phases of which the reads are point reads of a fixed set of records.
    fn oracle(
        &self,
        result: &PhaseResult,
        before: &Stats,
        after: &Stats,
        models: &Running,
    ) -> Option<Oracle> {
        let gets = after.operations.gets - before.operations.gets;
        let above = after.tiers[0].capacity_bytes + self.memory_bytes();
        let best = oracle::best(&result.config, above).filter(|_| gets > 0)?;
        let there = |stats: &Stats| stats.io.get(1, Cause::UserRead).read_ops;
        let seconds = models.read_seconds(TIERS[1]);
        Some(Oracle {
            measured: (there(after) - there(before)) as f64 / gets as f64,
            best,
            ceiling: seconds.filter(|_| best > 0.0).map(|s| oracle::ceiling(self.threads(), best, s)),
        })
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
    // Better now than after half an hour.
    for path in args.json.iter().chain(&args.report) {
        fs::write(path, "").map_err(Failure::io(format!("write {}", path.display())))?;
    }
    print_line(&title)?;
    let mut record = Record::new(title, &plan);
    if let Some(price) = record.dollars_per_gigabyte {
        print_line(&format!("both tiers together cost {price:.2} $/GB"))?;
    }
    let ran = measure::run::run(&plan, &mut record);
    print_line("")?;
    report::validity(&record).iter().try_for_each(|line| print_line(line))?;
    let written = write_results(args, &record);
    ran.and(written).map(|()| Outcome::Done)
}

fn data_record(plan: &Plan) -> u64 {
    plan.data_bytes / plan.load.records
}

fn write_results(args: &Args, record: &Record) -> Result<()> {
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(record).map_err(|error| Failure::Input(error.to_string()))?;
        fs::write(path, text + "\n").map_err(Failure::io(format!("write {}", path.display())))?;
    }
    if let Some(path) = &args.report {
        fs::write(path, page::page(record)?).map_err(Failure::io(format!("write {}", path.display())))?;
    }
    Ok(())
}

/// The trace in a file; at least one step.
fn read_steps(path: &Path) -> Result<Vec<TraceStep>> {
    let fail = || Failure::io(format!("read {}", path.display()));
    let file = fs::File::open(path).map_err(fail())?;
    let steps = read_trace(std::io::BufReader::new(file));
    let steps = steps.map_err(|why| Failure::Input(format!("{}: {why}", path.display())))?;
    match steps.is_empty() {
        true => Err(Failure::Input(format!("{} has no lines to play", path.display()))),
        false => Ok(steps),
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    args.check()?;
    if !args.against.is_empty() {
        return run_against(args);
    }
    let steps = args.trace.as_deref().map_or(Ok(Vec::new()), read_steps)?;
    let options = args.options();
    options.validate()?;
    for tier in &options.tiers {
        make_room(&tier.path)?;
    }
    print_line(&format!(
        "{}, {} threads, profile {}, durability {}, memory {}, seed {}",
        match (args.values(), steps.len()) {
            (Values::Fixed(bytes), 0) => {
                format!("{} records of {} bytes", args.records(), args.keys().bytes() + bytes as u64)
            }
            (Values::Pareto { k, sigma }, 0) => format!(
                "{} records of {} bytes and a value by Pareto({k}, {sigma}), {VALUE_BYTES_MIN} at least",
                args.records(),
                args.keys().bytes()
            ),
            (_, steps) => format!("a trace of {steps} operations"),
        },
        args.threads(),
        args.profile,
        args.durability,
        human(args.memory_bytes()),
        args.seed
    ))?;
    for (name, tier) in args.tier_names().into_iter().zip(&options.tiers) {
        print_line(&format!("{name}: {} of {}", tier.path.display(), human(tier.capacity_bytes)))?;
    }
    let (store, models) = match &args.model {
        Some(models) => {
            let (world, running) = models.world(&options)?;
            (Cuesta::new(Db::open_in(&options, world)?), running)
        }
        None => (Cuesta::open(&options, args.pmem_model)?, Running::default()),
    };
    if let Some(persistence) = store.db.stats().tiers.first().and_then(|tier| tier.persistence.clone()) {
        print_line(&durable_by(&persistence))?;
    }
    let mut phases = Vec::new();
    let ran = match steps.is_empty() {
        true => run_phases(args, &store, &models, &mut phases),
        false => run_trace(args, &store, &steps, &models).map(|trace| phases.push(trace)),
    };
    let closed = store.db.close().map_err(Failure::from);
    // Phases that ended are told of, whatever happened to the next.
    let written = args.json.as_ref().map_or(Ok(()), |path| {
        let text = json!({
            "phases": phases,
            "models": models.to_json(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        fs::write(path, format!("{text:#}\n")).map_err(Failure::io(format!("write {}", path.display())))
    });
    ran.and(closed).and(written).map(|()| Outcome::Done)
}

/// Plays a trace and reports on it.
fn run_trace(args: &Args, store: &Cuesta, steps: &[TraceStep], models: &Running) -> Result<Value> {
    let (before, operations) = (store.db.stats(), steps.len() as u64);
    let result = shown("trace", Some(operations), |progress| play(store, steps, args.threads(), progress))?;
    store.db.wait_for_background()?;
    let stats = store.db.stats();
    report_phase("trace", &result, &before, &stats)?;
    models.report()?;
    models.report_cost(operations, &before, &stats)?;
    Ok(json!({ "trace": args.trace, "result": result, "stats": super::stats::to_json(&stats) }))
}

/// Loads the records, runs the workloads one after the other, and reports on each; those that ended are in `results`.
fn run_phases(args: &Args, store: &Cuesta, models: &Running, results: &mut Vec<Value>) -> Result<()> {
    let mut phases = args.workloads();
    phases.retain(|workload| *workload != Workload::Load);
    phases.insert(0, Workload::Load);
    let mut records = 0;
    for (phase, workload) in (0..).zip(phases) {
        let config = args.config(workload, 2 * phase);
        if workload != Workload::Load && args.warm_up.unwrap_or(0.0) > 0.0 {
            let length = Length::Seconds(args.warm_up.unwrap_or(0.0));
            let config = Config { length, phase: 2 * phase + 1, ..config.clone() };
            (_, records) = shown_phase(store, &config, records, "warm-up")?;
        }
        let (before, touched) = (store.db.stats(), store.touched());
        let (result, after) = shown_phase(store, &config, records, workload.name())?;
        records = after;
        store.db.wait_for_background()?;
        let stats = store.db.stats();
        report_phase(workload.name(), &result.measured, &before, &stats)?;
        let touched = since(store.touched(), &touched);
        report_touched(&result.measured, &touched)?;
        let oracle = args.oracle(&result, &before, &stats, models);
        if let Some(oracle) = &oracle {
            oracle.report()?;
        }
        models.report()?;
        let operations = result.measured.operations.iter().map(|operation| operation.count).sum();
        models.report_cost(operations, &before, &stats)?;
        results.push(json!({
            "result": result,
            "stats": super::stats::to_json(&stats),
            "oracle": oracle,
            "touched": touched,
        }));
    }
    Ok(())
}

/// Cache lines that operations touched, where persistent memory is modelled.
fn report_touched(measured: &Measured, touched: &BTreeMap<String, u64>) -> Result<()> {
    let count = |operations: &[Operation]| -> u64 {
        let of = measured.operations.iter().filter(|of| operations.contains(&of.operation));
        of.map(|of| of.count).sum()
    };
    let reads = [Operation::Read, Operation::ReadModifyWrite];
    for (name, operations) in [("gets", &reads[..]), ("scans", &[Operation::Scan])] {
        let (lines, count) = (touched.get(&format!("touched:{name}")), count(operations));
        if let Some(lines) = lines.filter(|_| count > 0) {
            let each = *lines as f64 / count as f64;
            print_line(&format!("  cache lines of persistent memory touched by {name}: {each:.1} each"))?;
        }
    }
    if let (Some(read), Some(written)) = (touched.get("touched"), touched.get("written:lines")) {
        print_line(&format!(
            "  lines of persistent memory, merges included: {} read, {} written back",
            human(read * LINE_BYTES),
            human(written * LINE_BYTES)
        ))?;
    }
    Ok(())
}

/// Reads that reached the capacity tier, beside the best that any static placement could do.
#[derive(serde::Serialize)]
struct Oracle {
    /// Share of the records looked up that took a read there.
    measured: f64,
    /// The least share, with room for as many records as fast tier and memory have bytes.
    best: f64,
    /// Reads per second that these clients cannot exceed by it, where the tier is modelled.
    ceiling: Option<f64>,
}

impl Oracle {
    fn report(&self) -> Result<()> {
        let ceiling = self.ceiling.map(|rate| format!(", so at most {rate:.0} reads/s by these clients"));
        print_line(&format!(
            "  reads that reached the capacity tier: {:.1} %; the best static placement sends {:.1} % there{}",
            100.0 * self.measured,
            100.0 * self.best,
            ceiling.unwrap_or_default()
        ))
    }
}

/// Runs a phase and shows how far it is; as [`run_phase`].
fn shown_phase(
    store: &Cuesta,
    config: &Config,
    records: u64,
    name: &'static str,
) -> Result<(PhaseResult, u64)> {
    let operations = match config.length {
        Length::Operations(operations) => Some(operations),
        Length::Seconds(_) => None,
    };
    shown(name, operations, |progress| run_phase(store, config, records, progress))
}

/// Shows how many operations `run` has done, of so many if that is known.
fn shown<T>(
    name: &str,
    operations: Option<u64>,
    run: impl FnOnce(&(dyn Fn(u64) + Sync)) -> std::result::Result<T, String>,
) -> Result<T> {
    let bar = progress(operations.unwrap_or(0), name, if operations.is_some() { COUNT } else { COUNT_UP });
    let ran = run(&|done| {
        bar.set_position(done);
        reveal(&bar);
    });
    bar.finish_and_clear();
    ran.map_err(Failure::Input)
}

fn report_phase(name: &str, result: &Measured, before: &Stats, after: &Stats) -> Result<()> {
    let rate = result.operations_per_second;
    print_line(&format!("\n{name}: {rate:.0} operations/s ({:.1} s)", result.seconds))?;
    print_line("  latency in µs          count     mean      p50      p90      p99    p99.9      max")?;
    for line in &result.operations {
        let l = &line.latency;
        print_line(&format!(
            "  {:<18} {:>9} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.0}",
            line.operation.name(),
            line.count,
            l.mean_us,
            l.p50_us,
            l.p90_us,
            l.p99_us,
            l.p999_us,
            l.max_us
        ))?;
    }
    if result.not_found > 0 {
        print_line(&format!("  {} reads found no value", result.not_found))?;
    }
    print_line("  tier         used       read    written  by cause (read / written)")?;
    for (i, tier) in after.tiers.iter().enumerate() {
        let (was, is) = (before.io.total(i), after.io.total(i));
        let cause = |cause: Cause| {
            let (was, is) = (before.io.get(i, cause), after.io.get(i, cause));
            let (read, written) = (is.read_bytes - was.read_bytes, is.write_bytes - was.write_bytes);
            (read + written > 0).then(|| format!("{} {} / {}", cause.name(), human(read), human(written)))
        };
        let causes: Vec<_> = Cause::ALL.into_iter().filter_map(cause).collect();
        print_line(&format!(
            "  {:<5} {:>11} {:>10} {:>10}  {}",
            match &tier.persistence {
                Some(_) => "pmem",
                None => TIERS.get(i).unwrap_or(&"tier"),
            },
            human(tier.used_bytes),
            human(is.read_bytes - was.read_bytes),
            human(is.write_bytes - was.write_bytes),
            causes.join(", ")
        ))?;
    }
    let user = after.operations.written_bytes - before.operations.written_bytes;
    let media: u64 =
        (0..after.tiers.len()).map(|i| after.io.total(i).write_bytes - before.io.total(i).write_bytes).sum();
    if user > 0 {
        let amplification = media as f64 / user as f64;
        print_line(&format!(
            "  write amplification {amplification:.2}: {} written to media for {} of keys and values, merges included",
            human(media),
            human(user)
        ))?;
    }
    Ok(())
}
