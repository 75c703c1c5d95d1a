//! `cuesta-sim`: runs the table of faults over whole simulated stores, or one case of it again.
//!
//! Exit codes: 0 nothing went wrong and every figure was reached; 1 otherwise; 2 wrong usage.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output")]
#![allow(clippy::disallowed_methods, reason = "a person waits for real seconds")]

use clap::{Parser, Subcommand};
use cuesta_sim::planted::{Bug, Caught, hunt, wake};
use cuesta_sim::rows::{self, Effort, Report, Row};
use cuesta_sim::{Kind, kind, set_kind};
use cuesta_sim::{Run, RunConfig};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Run the table of faults over whole simulated stores.
///
/// Every case is replayed by its row and number alone: `cuesta-sim --rows 2 --seed 17`.
#[derive(Parser)]
#[command(name = "cuesta-sim", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Which rows: all, simulation, kernel, or names with commas
    #[arg(long, default_value = "all")]
    rows: String,
    /// Whose stores: a profile, prismdb-log-free for writes to slots instead of the log, nvlsm-blocks for nvlsm on
    /// block devices, or all, one after the other
    #[arg(long, default_value = "all")]
    profile: String,
    /// Run just this case (for rows of random runs: this seed) of the first of the rows
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run one random run as a failure told it, e.g. "seed=7 operations=40 crash=60 skip=1,2"
    #[arg(long, value_name = "RUN", conflicts_with_all = ["seed"])]
    run: Option<RunConfig>,
    /// How much of each row's figure to run, in percent
    #[arg(long, default_value_t = 100.0, value_name = "PERCENT")]
    share: f64,
    /// Begin no case of a row after so long; that it ran short is no failure then
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// The first seed of rows of random runs
    #[arg(long, default_value_t = 0, value_name = "N")]
    first_seed: u64,
    /// Cases at once [default: one a processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run them with this planted bug awake
    #[arg(long, value_name = "BUG")]
    awake: Option<String>,
    /// Write the cases that failed into this directory, a file each
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// One JSON object a row
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Wake each planted bug in turn and say which row finds it
    Planted {
        /// Only this one
        #[arg(long, value_name = "NAME")]
        bug: Option<String>,
        /// Begin no hunt after so long, and say how many were left out
        #[arg(long, value_name = "MINUTES")]
        minutes: Option<f64>,
        /// One JSON object a bug
        #[arg(long)]
        json: bool,
    },
    /// What row 5 kills
    #[command(hide = true)]
    Child { kind: Kind, dir: PathBuf, seed: u64, first: u64 },
}

fn named(name: &str) -> Result<Bug, String> {
    let names = || Bug::ALL.iter().map(|bug| bug.name()).collect::<Vec<_>>().join(", ");
    let bug = Bug::ALL.into_iter().find(|bug| bug.name() == name);
    bug.ok_or_else(|| format!("there is no bug {name:?}; there are {}", names()))
}

fn planted(only: Option<&str>, minutes: Option<f64>, json: bool) -> Result<bool, String> {
    let all = only.map_or_else(|| Ok(Bug::ALL.to_vec()), |name| named(name).map(|bug| vec![bug]))?;
    let (mut found, mut hunted, first) = (0, 0, Instant::now());
    for bug in &all {
        let begun = Instant::now();
        if minutes.is_some_and(|minutes| begun.duration_since(first).as_secs_f64() > minutes * 60.0) {
            break;
        }
        hunted += 1;
        let caught = hunt(*bug);
        found += usize::from(caught.is_some());
        let seconds = begun.elapsed().as_secs_f64();
        let name = bug.name();
        match (caught, json) {
            (Some(Caught { row, after, violation: (case, what) }), true) => println!(
                "{}",
                json!({ "bug": name, "caught": true, "row": row, "after": after, "case": case, "what": what })
            ),
            (None, true) => println!("{}", json!({ "bug": name, "caught": false })),
            (Some(Caught { row, after, violation: (case, what) }), false) => {
                let what = what.lines().next().unwrap_or_default();
                let what: String = what.chars().take(120).collect();
                println!("{name}: row {row} case {case}, after {after} runs, {seconds:.1} s: {what}");
            }
            (None, false) => println!("{name}: NOT FOUND in {seconds:.1} s"),
        }
    }
    if !json {
        println!("{found} of {hunted} planted bugs found");
        if hunted < all.len() {
            println!("SKIPPED: {} others, for want of time", all.len() - hunted);
        }
    }
    Ok(found == hunted)
}

fn chosen(words: &str) -> Result<Vec<Row>, String> {
    let mut chosen = Vec::new();
    for word in words.split(',').map(str::trim) {
        let is_meant = |row: &&Row| match word {
            "all" => true,
            "simulation" => row.is_simulated(),
            "kernel" => !row.is_simulated(),
            name => row.name() == name || row.number.to_string() == name,
        };
        let before = chosen.len();
        chosen.extend(rows::ALL.iter().filter(is_meant).copied());
        if chosen.len() == before {
            let known: Vec<String> = rows::ALL.iter().map(Row::name).collect();
            return Err(format!("there is no row {word:?}; there are {}", known.join(", ")));
        }
    }
    Ok(chosen)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic in a case is a violation and is told as one.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match &cli.command {
        Some(Command::Planted { bug, minutes, json }) => planted(bug.as_deref(), *minutes, *json),
        Some(Command::Child { kind, dir, seed, first }) => {
            set_kind(*kind);
            rows::child(dir, *seed, *first).map(|()| true)
        }
        None => {
            let awake = cli.awake.as_deref().map(named).transpose();
            awake.and_then(|bug| {
                let rows = chosen(&cli.rows)?;
                let kinds = match cli.profile.as_str() {
                    "all" => Kind::ALL.to_vec(),
                    name => vec![name.parse()?],
                };
                rows::guarded(|| {
                    rows::prepare();
                    Ok(())
                })?;
                wake(bug);
                Ok(table(&cli, &rows, &kinds))
            })
        }
    };
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cuesta-sim: {why}");
            ExitCode::from(2)
        }
    }
}

fn table(cli: &Cli, rows: &[Row], kinds: &[Kind]) -> bool {
    // For a single case; a random run names its own.
    set_kind(kinds[0]);
    match (&cli.run, cli.seed) {
        (Some(config), _) => one(&config.to_string(), || Run::new(config.clone()).run().map(drop)),
        (None, Some(case)) => {
            let row = &rows[0];
            if row.awake.is_some() {
                wake(row.awake);
            }
            one(&format!("row {} case {case}", row.name()), || (row.case)(case).map(drop))
        }
        (None, None) => {
            let failed = |kind: &Kind| {
                set_kind(*kind);
                rows.iter().filter(|row| !run_row(row, cli)).count()
            };
            kinds.iter().map(failed).sum::<usize>() == 0
        }
    }
}

fn one(name: &str, case: impl FnOnce() -> Result<(), String>) -> bool {
    match rows::guarded(case) {
        Ok(()) => println!("{name}: no violation"),
        Err(what) => {
            println!("{name}: {what}");
            return false;
        }
    }
    true
}

fn run_row(row: &Row, cli: &Cli) -> bool {
    if let Some(why) = row.missing() {
        match cli.json {
            true => println!("{}", json!({ "row": row.name(), "fault": row.fault, "skipped": why })),
            false => println!("row {:>9} SKIPPED: {}: {why}", row.name(), row.fault),
        }
        return true;
    }
    let default = Effort::default();
    let effort = Effort {
        share: cli.share / 100.0,
        threads: cli.threads.unwrap_or(default.threads),
        first_seed: cli.first_seed,
        time_limit: cli.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        ..default
    };
    let wanted = (row.figure as f64 * effort.share).ceil() as u64;
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(wanted).with_prefix(format!("row {}", row.name()));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let begun = Instant::now();
    let report = rows::run(row, effort, &|done| bar.set_position(done));
    bar.finish_and_clear();
    tell(row, cli, &report, begun.elapsed());
    report.met() || cli.minutes.is_some() && report.violations.is_empty()
}

fn tell(row: &Row, cli: &Cli, report: &Report, took: Duration) {
    let Row { fault, unit, figure, .. } = row;
    let name = row.name();
    if cli.json {
        let told = json!({
            "row": name, "fault": fault, "profile": kind().name(), "runs": report.runs, "unit": unit,
            "violations": report.violations.len(), "figure": figure, "met": report.met(),
            "seconds": took.as_secs_f64(),
        });
        println!("{told}");
    } else {
        let word = match (report.met(), report.violations.is_empty()) {
            (true, _) => "ok",
            (false, true) => "SHORT",
            (false, false) => "FAILED",
        };
        println!(
            "{} row {name:>9} {word:>6}: {} of {figure} {unit}, {} violations, {:.1} s: {fault}",
            kind(),
            report.runs,
            report.violations.len(),
            took.as_secs_f64()
        );
    }
    for (case, what) in &report.violations {
        let kind = kind();
        eprintln!("{kind} row {name} case {case}: {what}");
        eprintln!("  replay: cuesta-sim --profile {kind} --rows {name} --seed {case}");
        let small = rows::smallest(row, *case).map(|run| format!("smallest run that fails: --run \"{run}\""));
        if let Some(small) = &small {
            eprintln!("  {small}");
        }
        let kept = cli.keep.as_ref().map(|dir| {
            std::fs::create_dir_all(dir)?;
            let small = small.as_deref().unwrap_or_default();
            let text = format!("{kind} row {name} case {case}\n{what}\n{small}\n");
            std::fs::write(dir.join(format!("{kind}-row{name}-case{case}.txt")), text)
        });
        if let Some(Err(error)) = kept {
            eprintln!("cuesta-sim: the case could not be kept: {error}");
        }
    }
}
