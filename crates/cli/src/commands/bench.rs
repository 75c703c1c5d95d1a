//! `cuesta bench`: YCSB's workloads over a store of its own.

use crate::failure::{Failure, Outcome, Result};
use crate::model::{Models, Running, TIERS};
use crate::output::{COUNT, COUNT_UP, print_line, progress, reveal};
use crate::size::{Place, Size, human};
use cuesta::{Cause, Create, Db, Durability, Options, Profile, Range, Stats, TierOptions};
use cuesta_bench::oracle;
use cuesta_bench::{
    Config, Distribution, Length, Measured, PhaseResult, Store, TraceStep, Values, Workload, play,
    read_trace, run_phase,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Marks a directory as one that a benchmark made and may empty.
const MARK: &str = "cuesta-bench";
const FAST_BYTES: u64 = 1 << 30;
/// Longest phase, in seconds.
const SECONDS_MAX: f64 = 86_400.0;
const CAPACITY_BYTES: u64 = 64 << 30;

/// Load records into a fresh store, run workloads on it, and print throughput, latencies and bytes per tier.
///
/// Workloads are YCSB's: a (half reads, half updates), b (5 % updates), c (reads), d (reads of the latest, 5 %
/// inserts), e (scans of 1 to 100, 5 % inserts), f (half reads, half read-modify-writes); w (updates only); facebook,
/// twitter19, twitter39 and twitter51, which are like production systems; and load.
/// Every value read is checked. Values do not compress.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where the store is made; emptied first if an earlier benchmark made it
    #[arg(long, default_value = "./cuesta-bench-data")]
    dir: PathBuf,
    /// leveled
    #[arg(long, default_value = "leveled")]
    profile: Profile,
    /// What to run, in order; the records are loaded first in any case
    #[arg(long, value_delimiter = ',', default_value = "load,a")]
    workload: Vec<Workload>,
    /// Play this trace on an empty store instead: lines of time,op,key,value_bytes
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// Records to load
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Operations of each workload
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Run each workload for so many seconds instead
    #[arg(long, conflicts_with = "ops")]
    seconds: Option<f64>,
    /// Before each workload run it for so many seconds that are not measured
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// Client threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Bytes of a value, 24 or more [default: the first workload's own, or 100]
    #[arg(long)]
    value_bytes: Option<usize>,
    /// zipfian, ycsb, uniform, latest or facebook, for every workload [default: each workload's own]
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Skew of the Zipfian distribution, between 0 and 1
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
    /// Memory for everything the store holds
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Size,
    /// sync, interval:MS, os or unlogged
    #[arg(long, default_value = "os")]
    durability: Durability,
    /// Tiers as slow as other devices, TIER=PRESET with commas (optane, nvme, sata, qlc, hdd) or a TOML file; their
    /// bytes stay where they are, best in memory, such as --fast /dev/shm/fast:1GiB
    #[arg(long, value_name = "MODEL")]
    model: Option<Models>,
    /// Write everything measured to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

struct Cuesta(Db);

impl Store for Cuesta {
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> std::result::Result<(), String> {
        let value = self.0.get(key).map_err(|error| error.to_string())?;
        see(value.as_deref());
        Ok(())
    }

    fn write(&self, key: &[u8], value: &[u8]) -> std::result::Result<(), String> {
        self.0.put(key, value).map(drop).map_err(|error| error.to_string())
    }

    fn scan(&self, key: &[u8], records: u64) -> std::result::Result<u64, String> {
        let mut seen = 0;
        let range = Range::from(key..).with_limit(records);
        for pair in self.0.scan(range).map_err(|error| error.to_string())? {
            pair.map_err(|error| error.to_string())?;
            seen += 1;
        }
        Ok(seen)
    }
}

impl Args {
    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Failure::Input(what.to_owned()));
        match self {
            Self { records: 0, .. } => refuse("--records must be 1 or more"),
            Self { ops: 0, .. } => refuse("--ops must be 1 or more"),
            Self { threads: 0 | 1025.., .. } => refuse("--threads must be from 1 to 1024"),
            Self { value_bytes: Some(0..24), .. } => {
                refuse("--value-bytes must be 24 or more: values check themselves")
            }
            Self { seconds: Some(seconds), .. } if !(*seconds > 0.0 && *seconds <= SECONDS_MAX) => {
                refuse("--seconds must be more than 0 and at most 86400")
            }
            Self { warm_up, .. } if !(0.0..=SECONDS_MAX).contains(warm_up) => {
                refuse("--warm-up must be from 0 to 86400")
            }
            Self { theta, .. } if !(*theta > 0.0 && *theta < 1.0) => {
                refuse("--theta must lie between 0 and 1")
            }
            _ => Ok(()),
        }
    }

    fn options(&self) -> Options {
        let tier = |place: &Option<Place>, name: &str, bytes: u64| match place {
            Some(place) => (place.path.clone(), place.size.0),
            None => (self.dir.join(name), bytes),
        };
        let (fast, fast_bytes) = tier(&self.fast, "fast", FAST_BYTES);
        let (capacity, capacity_bytes) = tier(&self.capacity, "capacity", CAPACITY_BYTES);
        let tiers = (TierOptions::fast(fast, fast_bytes), TierOptions::capacity(capacity, capacity_bytes));
        Options {
            memory_bytes: self.memory.0,
            profile: self.profile,
            durability: self.durability,
            create: Create::New,
            seed: self.seed,
            ..Options::tiered(tiers.0, tiers.1)
        }
    }

    /// How long values are, in all phases: they are loaded once.
    fn values(&self) -> Values {
        let own = || self.workload.iter().find_map(|workload| workload.values());
        self.value_bytes.map(Values::Fixed).or_else(own).unwrap_or(Values::Fixed(100))
    }

    /// For phases of which the reads are point reads of a fixed set of records.
    fn oracle(
        &self,
        result: &PhaseResult,
        before: &Stats,
        after: &Stats,
        models: &Running,
    ) -> Option<Oracle> {
        let workload = result.config.workload;
        let Values::Fixed(bytes) = result.config.values else { return None };
        let [reads, _] = workload.distributions(result.config.distribution);
        let gets = after.operations.gets - before.operations.gets;
        if gets == 0 || matches!(workload, Workload::D | Workload::E | Workload::Facebook) {
            return None;
        }
        let above = (after.tiers[0].capacity_bytes + self.memory.0) / (23 + bytes as u64);
        let frequencies = oracle::frequencies(reads, self.theta, self.records);
        let best = oracle::least_share_below(&frequencies, above);
        let there = |stats: &Stats| stats.io.get(1, Cause::UserRead).read_ops;
        let seconds = models.read_seconds(TIERS[1]);
        Some(Oracle {
            measured: (there(after) - there(before)) as f64 / gets as f64,
            best,
            ceiling: seconds.filter(|_| best > 0.0).map(|s| oracle::ceiling(self.threads, best, s)),
        })
    }

    fn config(&self, workload: Workload, phase: u64) -> Config {
        Config {
            workload,
            records: self.records,
            length: match self.seconds {
                _ if workload == Workload::Load => Length::Operations(self.records),
                Some(seconds) => Length::Seconds(seconds),
                None => Length::Operations(self.ops),
            },
            threads: self.threads,
            ordered_keys: self.workload.contains(&Workload::Facebook),
            values: self.values(),
            distribution: self.distribution,
            theta: self.theta,
            seed: self.seed,
            phase,
        }
    }
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

/// Empties directories of an earlier benchmark; refuses any other that holds something.
fn make_room(path: &Path) -> Result<()> {
    let fail = || Failure::io(format!("prepare {}", path.display()));
    let mark = path.join(MARK);
    if path.exists() {
        let empty = fs::read_dir(path).map_err(fail())?.next().is_none();
        if !empty && !mark.exists() {
            let what =
                format!("{} holds something that no benchmark made; name another directory", path.display());
            return Err(Failure::Input(what));
        }
        fs::remove_dir_all(path).map_err(fail())?;
    }
    fs::create_dir_all(path).map_err(fail())?;
    fs::write(mark, "made by `cuesta bench`, which empties it when it runs again\n").map_err(fail())
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    args.check()?;
    let steps = args.trace.as_deref().map_or(Ok(Vec::new()), read_steps)?;
    let options = args.options();
    options.validate()?;
    for tier in &options.tiers {
        make_room(&tier.path)?;
    }
    let (a, b) = (&options.tiers[0], &options.tiers[1]);
    print_line(&format!(
        "{}, {} threads, profile {}, durability {}, memory {}, seed {}",
        match (args.values(), steps.len()) {
            (Values::Fixed(bytes), 0) => format!("{} records of {} bytes", args.records, 23 + bytes),
            (Values::Pareto { k, sigma }, 0) => {
                format!(
                    "{} records of 23 bytes and a value by Pareto({k}, {sigma}), 24 at least",
                    args.records
                )
            }
            (_, steps) => format!("a trace of {steps} operations"),
        },
        args.threads,
        args.profile,
        args.durability,
        human(args.memory.0),
        args.seed
    ))?;
    for (name, tier) in [("fast", a), ("capacity", b)] {
        print_line(&format!("{name}: {} of {}", tier.path.display(), human(tier.capacity_bytes)))?;
    }
    let (db, models) = match &args.model {
        Some(models) => {
            let (world, running) = models.world(&options)?;
            (Db::open_in(&options, world)?, running)
        }
        None => (Db::open(&options)?, Running::default()),
    };
    let store = Cuesta(db);
    let results = match steps.is_empty() {
        true => run_phases(args, &store, &models)?,
        false => run_trace(args, &store, &steps, &models)?,
    };
    store.0.close()?;
    if let Some(path) = &args.json {
        let text = json!({
            "phases": results,
            "models": models.to_json(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        fs::write(path, format!("{text:#}\n")).map_err(Failure::io(format!("write {}", path.display())))?;
    }
    Ok(Outcome::Done)
}

/// Plays a trace and reports on it.
fn run_trace(args: &Args, store: &Cuesta, steps: &[TraceStep], models: &Running) -> Result<Vec<Value>> {
    let (before, operations) = (store.0.stats(), steps.len() as u64);
    let result = shown("trace", Some(operations), |progress| play(store, steps, args.threads, progress))?;
    store.0.wait_for_background()?;
    let stats = store.0.stats();
    report("trace", &result, &before, &stats)?;
    models.report()?;
    models.report_cost(operations, &before, &stats)?;
    Ok(vec![json!({ "trace": args.trace, "result": result, "stats": super::stats::to_json(&stats) })])
}

/// Loads the records, runs the workloads one after the other, and reports on each.
fn run_phases(args: &Args, store: &Cuesta, models: &Running) -> Result<Vec<Value>> {
    let mut phases = args.workload.clone();
    phases.retain(|workload| *workload != Workload::Load);
    phases.insert(0, Workload::Load);
    let (mut records, mut results) = (0, Vec::new());
    for (phase, workload) in (0..).zip(phases) {
        let config = args.config(workload, 2 * phase);
        if workload != Workload::Load && args.warm_up > 0.0 {
            let length = Length::Seconds(args.warm_up);
            let config = Config { length, phase: 2 * phase + 1, ..config.clone() };
            (_, records) = shown_phase(store, &config, records, "warm-up")?;
        }
        let before = store.0.stats();
        let (result, after) = shown_phase(store, &config, records, workload.name())?;
        records = after;
        store.0.wait_for_background()?;
        let stats = store.0.stats();
        report(workload.name(), &result.measured, &before, &stats)?;
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
        }));
    }
    Ok(results)
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

fn report(name: &str, result: &Measured, before: &Stats, after: &Stats) -> Result<()> {
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
            TIERS.get(i).unwrap_or(&"tier"),
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
