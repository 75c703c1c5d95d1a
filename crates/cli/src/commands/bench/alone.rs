//! `cuesta bench` without peers: phases on a store inside this process, each told of when it ends.
//!
//! Where devices are modelled the rules for runs that say nothing are those of every run
//! (`docs/decisions/0010-comparisons.md`): the bytes that the store's meter saw beside the kernel's, and what waiting
//! took of the processors.

use super::{Args, to_json, write_results};
use crate::failure::{Failure, Outcome, Result};
use crate::measure::endurance::{self, Lifetime, Wear};
use crate::measure::ours::Cuesta;
use crate::measure::place::make_room;
use crate::measure::process::CUESTA;
use crate::measure::run::{Best, Contender, Plan, Record, Turn};
use crate::measure::{report, summary};
use crate::model::{KeptBy, Running, TIERS};
use crate::output::{COUNT, COUNT_UP, Say, progress, reveal};
use crate::size::human;
use crate::store::durable_by;
use cuesta::{Cause, Db, Stats};
use cuesta_bench::contender::{self, Contender as _, Ran};
use cuesta_bench::{
    Config, Length, Measured, Operation, PhaseResult, TraceStep, VALUE_BYTES_MIN, Values, Workload, play,
    read_trace, run_phase,
};
use cuesta_device::mapped::LINE_BYTES;
use cuesta_model::{Counts, Report, Tier, kernel_bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

pub(super) fn run(args: &Args) -> Result<Outcome> {
    let steps = args.trace.as_deref().map_or(Ok(Vec::new()), read_steps)?;
    let options = args.options();
    options.validate()?;
    for tier in &options.tiers {
        make_room(&tier.path)?;
    }
    args.check_outputs()?;
    let say = args.say();
    let title = title(args, &steps);
    say(&title)?;
    for (name, tier) in args.tier_names().into_iter().zip(&options.tiers) {
        say(&format!("{name}: {} of {}", tier.path.display(), human(tier.capacity_bytes)))?;
    }
    let [fast_bytes, capacity_bytes] =
        [0, 1].map(|i| options.tiers.get(i).map_or(0, |tier| tier.capacity_bytes));
    // Price and lifetimes are reckoned as if both tiers were full: the data is as large as they are together.
    let plan = Plan { data_bytes: fast_bytes + capacity_bytes, fast_bytes, capacity_bytes, ..args.plan()? };
    let record = Record::new(title, &plan);
    // From here on nobody else reads or writes much.
    let kernel_before = kernel_bytes();
    let (store, models) = match &args.model {
        Some(models) => {
            let (world, running) = models.world(&options)?;
            (Cuesta::new(Db::open_in(&options, world)?), running)
        }
        None => (Cuesta::open(&options, args.pmem_model)?, Running::default()),
    };
    if let Some(persistence) = store.db.stats().tiers.first().and_then(|tier| tier.persistence.clone()) {
        say(&durable_by(&persistence))?;
    }
    let mut alone = Alone {
        args,
        say,
        record,
        plan,
        store: &store,
        models: &models,
        places: options.tiers.iter().map(|tier| tier.path.clone()).collect(),
        burnt: None,
        phases: Vec::new(),
    };
    alone.record.contenders.push(Contender {
        name: CUESTA.to_owned(),
        settings: BTreeMap::from([(String::new(), store.settings())]),
        devices: None,
        invalid: None,
    });
    if let Some(price) = alone.record.dollars_per_gigabyte {
        say(&format!("tiers of these sizes cost {price:.2} $/GB"))?;
    }
    let ran = match steps.is_empty() {
        true => alone.run_phases(),
        false => alone.run_trace(&steps),
    };
    let judged = alone.judge(kernel_before);
    let Alone { record, phases, places, .. } = alone;
    let failed = store.take_failure();
    let closed = store.db.close().map_err(Failure::from);
    // Phases that ended are told of, whatever happened to the next.
    let written = to_json(&record).and_then(|mut all| {
        if let Some(all) = all.as_object_mut() {
            // They are the phases, which tell more.
            all.remove("turns");
            all.insert("phases".to_owned(), phases.into());
            all.insert("models".to_owned(), models.to_json());
        }
        write_results(args, &record, &all)
    });
    // An error of the store's names a file; which disk that is on is for us to say.
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let ran = ran.map_err(|failure| {
        Failure::At(places.join(" and "), Box::new(failed.map_or(failure, Failure::Store)))
    });
    ran.and(judged).and(closed).and(written).map(|()| Outcome::Done)
}

/// What is run, in words.
fn title(args: &Args, steps: &[TraceStep]) -> String {
    let what = match (args.values(), steps.len()) {
        (Values::Fixed(bytes), 0) => {
            format!("{} records of {} bytes", args.records(), args.keys().bytes() + bytes as u64)
        }
        (Values::Pareto { k, sigma }, 0) => format!(
            "{} records of {} bytes and a value by Pareto({k}, {sigma}), {VALUE_BYTES_MIN} at least",
            args.records(),
            args.keys().bytes()
        ),
        (_, steps) => format!("a trace of {steps} operations"),
    };
    format!(
        "{what}, {} threads, profile {}, durability {}, memory {}, seed {}",
        args.threads(),
        args.profile,
        args.durability,
        human(args.memory_bytes()),
        args.seed
    )
}

/// A store that runs by itself, and what is known of it so far.
struct Alone<'a> {
    args: &'a Args,
    say: Say,
    store: &'a Cuesta,
    models: &'a Running,
    /// Where its tiers are.
    places: Vec<PathBuf>,
    plan: Plan,
    record: Record,
    /// Of a trace: the share of the processors that waiting for modelled devices took.
    burnt: Option<f64>,
    phases: Vec<Value>,
}

impl Alone<'_> {
    /// Plays a trace and reports on it.
    fn run_trace(&mut self, steps: &[TraceStep]) -> Result<()> {
        let (before, operations) = (self.store.db.stats(), steps.len() as u64);
        let (began, kept) = (Instant::now(), self.models.kept());
        let result = shown("trace", Some(operations), |progress| {
            play(self.store, steps, self.args.threads(), progress)
        })?;
        self.store.db.wait_for_background()?;
        let (time, stats) = (began.elapsed(), self.store.db.stats());
        report_phase(self.say, "trace", &result, &before, &stats)?;
        self.models.report(self.say)?;
        let counts = counts([&before, &stats], [&kept, &self.models.kept()]);
        let burnt = Duration::from_nanos(counts.burnt_nanos);
        self.burnt = summary::share(burnt, time, self.record.processors);
        let written = [0, 1].map(|i| counts.tiers[i].written_bytes);
        let wear = Wear { has: self.tiers(), operations, written };
        let lifetimes = endurance::of_wear(&self.plan, CUESTA, &wear);
        report_lifetimes(self.say, &lifetimes)?;
        self.phases.push(json!({
            "trace": self.args.trace,
            "result": result,
            "counts": counts,
            "stats": crate::commands::stats::to_json(&stats),
            "lifetimes": lifetimes,
        }));
        Ok(())
    }

    /// Loads the records, runs the workloads one after the other, and reports on each.
    fn run_phases(&mut self) -> Result<()> {
        let mut phases = self.args.workloads();
        phases.retain(|workload| *workload != Workload::Load);
        phases.insert(0, Workload::Load);
        let mut records = 0;
        for (phase, workload) in (0..).zip(phases) {
            let config = self.args.config(workload, 2 * phase);
            let warm_up = self.args.warm_up.unwrap_or(0.0);
            if workload != Workload::Load && warm_up > 0.0 {
                let config =
                    Config { length: Length::Seconds(warm_up), phase: 2 * phase + 1, ..config.clone() };
                let store = self.store;
                (_, records) =
                    shown("warm-up", None, |progress| run_phase(store, &config, records, progress))?;
                // What it leaves to be merged is no part of what is measured.
                store.db.wait_for_background()?;
            }
            records = self.run_phase(&config, records)?;
        }
        Ok(())
    }

    /// Runs a phase on a store of so many records; how many it has then.
    fn run_phase(&mut self, config: &Config, records: u64) -> Result<u64> {
        let workload = config.workload;
        let operations = match config.length {
            Length::Operations(operations) => Some(operations),
            Length::Seconds(_) => None,
        };
        let (before, kept) = (self.store.db.stats(), self.models.kept());
        let mut ran = shown(workload.name(), operations, |progress| {
            contender::run(self.store, &self.places, config, records, progress)
        })?;
        let stats = self.store.db.stats();
        ran.usage.counts = Some(counts([&before, &stats], [&kept, &self.models.kept()]));
        let Ran { result, records, usage } = &ran;
        report_phase(self.say, workload.name(), &result.measured, &before, &stats)?;
        report_touched(self.say, &result.measured, &usage.counters)?;
        let oracle = self.oracle(result, &before, &stats);
        if let Some(oracle) = &oracle {
            oracle.report(self.say)?;
            self.record.best.insert(workload.name().to_owned(), oracle.best);
        }
        self.models.report(self.say)?;
        let records = *records;
        self.phases.push(json!({
            "result": result,
            "usage": usage,
            "stats": crate::commands::stats::to_json(&stats),
            "oracle": oracle,
        }));
        let round = summary::turns(&self.record, workload, CUESTA).count() as u64;
        self.record.turns.push(Turn {
            workload,
            round,
            contender: CUESTA.to_owned(),
            tiers: self.tiers(),
            ran,
        });
        let lifetimes = endurance::lifetimes(&self.plan, &self.record, workload);
        report_lifetimes(self.say, &lifetimes)?;
        if !lifetimes.is_empty() {
            self.record.lifetimes.insert(workload.name().to_owned(), lifetimes);
        }
        Ok(records)
    }

    /// Whether it has a fast and a capacity tier.
    fn tiers(&self) -> [bool; 2] {
        [true, self.places.len() > 1]
    }

    /// For phases of which the reads are point reads of a fixed set of records.
    fn oracle(&self, result: &PhaseResult, before: &Stats, after: &Stats) -> Option<Oracle> {
        let gets = after.operations.gets - before.operations.gets;
        let best = self.plan.best(result.config.workload).filter(|_| gets > 0)?;
        let there = |stats: &Stats| stats.io.get(1, Cause::UserRead).read_ops;
        let measured = (there(after) - there(before)) as f64 / gets as f64;
        Some(Oracle { measured, best })
    }

    /// Whether what was measured says anything, where devices are modelled.
    fn judge(&mut self, kernel_before: Option<[u64; 2]>) -> Result<()> {
        let (Some(before), Some(after), false) = (kernel_before, kernel_bytes(), self.models.is_empty())
        else {
            return Ok(());
        };
        self.record.contenders[0].devices = Some(Report {
            names: TIERS.map(str::to_owned).to_vec(),
            counts: counts_so_far(&self.store.db.stats(), &self.models.kept()),
            kernel_read_bytes: after[0].saturating_sub(before[0]),
            kernel_written_bytes: after[1].saturating_sub(before[1]),
            cpu_nanos: (summary::cpu_seconds(&self.record, CUESTA) * 1e9) as u64,
        });
        let invalid = summary::invalid(&self.record, &self.record.contenders[0]);
        self.record.contenders[0].invalid = invalid.or_else(|| summary::waited_too_long(self.burnt?));
        (self.say)("")?;
        report::validity(&self.record).iter().try_for_each(|line| (self.say)(line))
    }
}

/// What a store's devices did between two looks.
fn counts(stats: [&Stats; 2], kept: [&KeptBy; 2]) -> Counts {
    counts_so_far(stats[1], kept[1]).since(&counts_so_far(stats[0], kept[0]))
}

/// What a store's devices did so far. A lookup is a read for a user; there is no page cache, and nothing is refused.
fn counts_so_far(stats: &Stats, kept: &KeptBy) -> Counts {
    let mut counts = Counts::default();
    for (i, tier) in counts.tiers.iter_mut().enumerate().take(stats.tiers.len()) {
        let (io, kept) = (stats.io.total(i), TIERS.get(i).and_then(|name| kept.get(name)));
        *tier = Tier {
            reads: io.read_ops,
            read_bytes: io.read_bytes,
            writes: io.write_ops,
            written_bytes: io.write_bytes,
            flushes: io.syncs,
            waited_nanos: kept.map_or(0, |kept| kept.waited.as_nanos() as u64),
            late: kept.map_or(0, |kept| kept.late),
            cached_reads: 0,
            point_reads: stats.io.get(i, Cause::UserRead).read_ops,
        };
        counts.seen_read_bytes += io.read_bytes;
        counts.seen_written_bytes += io.write_bytes;
        counts.burnt_nanos += kept.map_or(0, |kept| kept.burnt.as_nanos() as u64);
    }
    counts
}

fn report_lifetimes(say: Say, lifetimes: &[Lifetime]) -> Result<()> {
    endurance::lines(lifetimes).iter().try_for_each(|line| say(&format!("  {line}")))
}

/// Cache lines that operations touched, where persistent memory is modelled.
fn report_touched(say: Say, measured: &Measured, touched: &BTreeMap<String, u64>) -> Result<()> {
    let count = |operations: &[Operation]| -> u64 {
        let of = measured.operations.iter().filter(|of| operations.contains(&of.operation));
        of.map(|of| of.count).sum()
    };
    let reads = [Operation::Read, Operation::ReadModifyWrite];
    for (name, operations) in [("gets", &reads[..]), ("scans", &[Operation::Scan])] {
        let (lines, count) = (touched.get(&format!("touched:{name}")), count(operations));
        if let Some(lines) = lines.filter(|_| count > 0) {
            let each = *lines as f64 / count as f64;
            say(&format!("  cache lines of persistent memory touched by {name}: {each:.1} each"))?;
        }
    }
    if let (Some(read), Some(written)) = (touched.get("touched"), touched.get("lines:written")) {
        say(&format!(
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
    /// With room for as many records as fast tier and memory have bytes.
    #[serde(flatten)]
    best: Best,
}

impl Oracle {
    fn report(&self, say: Say) -> Result<()> {
        let ceiling =
            self.best.ceiling.map(|rate| format!(", so at most {rate:.0} reads/s by these clients"));
        say(&format!(
            "  reads that reached the capacity tier: {:.1} %; the best static placement sends {:.1} % there{}",
            100.0 * self.measured,
            100.0 * self.best.below,
            ceiling.unwrap_or_default()
        ))
    }
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

fn report_phase(say: Say, name: &str, result: &Measured, before: &Stats, after: &Stats) -> Result<()> {
    let rate = result.operations_per_second;
    say(&format!("\n{name}: {rate:.0} operations/s ({:.1} s)", result.seconds))?;
    say("  latency in µs          count     mean      p50      p90      p99    p99.9      max")?;
    for line in &result.operations {
        let l = &line.latency;
        say(&format!(
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
        say(&format!("  {} reads found no value", result.not_found))?;
    }
    say("  tier         used       read    written  by cause (read / written)")?;
    for (i, tier) in after.tiers.iter().enumerate() {
        let (was, is) = (before.io.total(i), after.io.total(i));
        let cause = |cause: Cause| {
            let (was, is) = (before.io.get(i, cause), after.io.get(i, cause));
            let (read, written) = (is.read_bytes - was.read_bytes, is.write_bytes - was.write_bytes);
            (read + written > 0).then(|| format!("{} {} / {}", cause.name(), human(read), human(written)))
        };
        let causes: Vec<_> = Cause::ALL.into_iter().filter_map(cause).collect();
        say(&format!(
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
        say(&format!(
            "  write amplification {amplification:.2}: {} written to media for {} of keys and values, merges included",
            human(media),
            human(user)
        ))?;
    }
    Ok(())
}
