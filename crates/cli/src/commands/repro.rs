//! `cuesta repro`: a paper's experiments, run again.

use crate::failure::{Failure, Outcome, Result};
use crate::measure::run::{Record, run as run_plan, this_build};
use crate::measure::{page, report};
use crate::output::{check_writable, print_line, tell_line, unfinished, write_whole};
use crate::repro::{Claim, Experiment, PAPERS, Paper, Run, Setting};
use cuesta::MEMORY_BYTES_MIN;
use cuesta_bench::Workload;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest scale: a hundred times a million records.
const SCALE_MAX: f64 = 100.0;

/// Run a paper's experiments again.
///
/// Prints its numbers beside those measured here. Runs are kept in --results and not made again, so what was cut short
/// can be gone on with; one that had not ended begins anew. Exits with 7 if a target is missed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Which paper
    #[arg(required_unless_present = "list")]
    paper: Option<String>,
    /// Which figures or tables of it [default: all that there are here]
    experiments: Vec<String>,
    /// Print what there is, and run nothing
    #[arg(long)]
    list: bool,
    /// Of the data: 1 is one or two million records where the paper has a hundred (nvlsm: ten where it has fifty or a
    /// hundred) [default: each experiment's own, see --list; chosen for a whole paper to end within the hour]
    #[arg(long)]
    scale: Option<f64>,
    /// Of every choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where stores are made while they run
    #[arg(long, default_value = "/dev/shm/cuesta-repro")]
    dir: PathBuf,
    /// Where runs are kept
    #[arg(long, default_value = "./cuesta-repro")]
    results: PathBuf,
    /// Run again what was run before
    #[arg(long)]
    again: bool,
    /// Write the claims to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn find(name: &str) -> Result<&'static Paper> {
    let found = PAPERS.iter().find(|paper| paper.name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
        Failure::Input(format!("there is no paper {name:?} here; there are {}", known.join(", ")))
    })
}

impl Args {
    /// The experiments that were asked for.
    fn chosen(&self, paper: &'static Paper) -> Result<Vec<&'static Experiment>> {
        let named = |name: &String| {
            let found = paper.experiments.iter().find(|experiment| experiment.name == name);
            found.ok_or_else(|| {
                let known: Vec<&str> = paper.experiments.iter().map(|experiment| experiment.name).collect();
                let message =
                    format!("{} has no experiment {name:?} here; it has {}", paper.name, known.join(", "));
                Failure::Input(message)
            })
        };
        match self.experiments.is_empty() {
            true => Ok(paper.experiments.iter().collect()),
            false => self.experiments.iter().map(named).collect(),
        }
    }

    fn setting(&self, run: &Run) -> Setting {
        Setting { scale: self.scale.unwrap_or(run.scale), seed: self.seed, dir: self.dir.clone() }
    }

    /// Whether stores have memory enough at this scale, before anything is run.
    fn check_scale(&self, experiments: &[&Experiment]) -> Result<()> {
        for run in experiments.iter().flat_map(|experiment| experiment.runs) {
            let setting = self.setting(run);
            let plan = (run.plan)(&setting);
            let is_ours = plan.entries.iter().any(|entry| entry.kind.starts_with("cuesta"));
            if is_ours && plan.memory_bytes < MEMORY_BYTES_MIN {
                let least = setting.scale * MEMORY_BYTES_MIN as f64 / plan.memory_bytes.max(1) as f64;
                return Err(Failure::Input(format!(
                    "at scale {} {} has {} bytes of memory, and a store needs {MEMORY_BYTES_MIN}; take a --scale of at least {:.2}",
                    setting.scale,
                    run.name,
                    plan.memory_bytes,
                    (least * 100.0).ceil() / 100.0,
                )));
            }
        }
        Ok(())
    }

    /// A run's record: of an earlier time, or made now.
    fn record(&self, run: &Run) -> Result<Record> {
        let setting = self.setting(run);
        let plan = (run.plan)(&setting);
        // Some need more records than they are asked for, or fewer.
        let scale = plan.scale.unwrap_or(setting.scale);
        let path = self.results.join(format!("{}-scale{scale}-seed{}.json", run.name, self.seed));
        if path.exists() && !self.again {
            let text = fs::read_to_string(&path).map_err(Failure::io(format!("read {}", path.display())))?;
            let kept = serde_json::from_str(&text);
            let mut kept: Record = kept.map_err(|error| {
                Failure::Input(format!("{}: {error}; --again measures it anew", path.display()))
            })?;
            let loads = kept.turns.iter().filter(|turn| turn.workload == Workload::Load);
            let records = loads.map(|turn| turn.ran.result.config.records).max();
            // Before scales were told as they are, records of some runs had others in their names.
            if records == Some(plan.load.records) {
                let by = if kept.build == this_build() { "" } else { ", by another build of this program" };
                tell_line(&format!("{} was measured before{by}; --again measures it anew", path.display()))?;
                kept.scale = Some(scale);
                return Ok(kept);
            }
            tell_line(&format!("{} is of another number of records, and is measured anew", path.display()))?;
        }
        let (records, models) = (plan.load.records, &plan.devices.models);
        let title = format!("{} at scale {scale}, {records} records: devices {models}", run.name);
        tell_line(&title)?;
        // Better known before the run than after it.
        fs::create_dir_all(&self.results).map_err(Failure::io(format!("make {}", self.results.display())))?;
        check_writable(&unfinished(&path))?;
        fs::remove_file(unfinished(&path)).map_err(Failure::io(format!("write {}", path.display())))?;
        let mut record = Record::new(title, &plan);
        let ran = run_plan(&plan, &mut record, &tell_line);
        // What there is of a run that failed is for who wants to look, and not gone on with.
        let path = if ran.is_ok() { path } else { path.with_extension("failed.json") };
        let kept = self.keep(&record, &path);
        ran.and(kept).map(|()| record)
    }

    fn keep(&self, record: &Record, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(record).map_err(|error| Failure::Input(error.to_string()))?;
        write_whole(&path.with_extension("html"), &page::page(record)?)?;
        write_whole(path, &(text + "\n"))
    }

    /// Shows experiments one by one as they are done; what has been claimed until then goes to `claims` even if one
    /// fails.
    fn run(&self, experiments: &[&Experiment], claims: &mut Vec<Claim>) -> Result<()> {
        let mut records = BTreeMap::new();
        let command: Vec<String> = std::env::args().skip(1).collect();
        for experiment in experiments {
            for run in experiment.runs {
                if !records.contains_key(run.name) {
                    let record = self.record(run)?;
                    tell_line("")?;
                    report::validity(&record).iter().try_for_each(|line| tell_line(line))?;
                    records.insert(run.name, record);
                }
            }
            let of_runs: Vec<&Record> = experiment.runs.iter().map(|run| &records[run.name]).collect();
            experiment.show(&of_runs).iter().try_for_each(|line| tell_line(line))?;
            claims.extend(experiment.judge(&of_runs, &format!("cuesta {}", command.join(" "))));
        }
        Ok(())
    }
}

fn list() -> Result<()> {
    for paper in PAPERS {
        print_line(&format!("{}: {}", paper.name, paper.title))?;
        for experiment in paper.experiments {
            print_line(&format!(
                "  {:<8} {} (scale {})",
                experiment.name,
                experiment.about,
                experiment.scale()
            ))?;
        }
    }
    Ok(())
}

fn print_claim(claim: &Claim) -> Result<()> {
    let measured = match (claim.measured, claim.spread) {
        (Some(median), Some([low, high])) => format!("{median:.2} ({low:.2} to {high:.2})"),
        _ => "nothing".to_owned(),
    };
    let met = match (&claim.invalid, claim.met) {
        (Some(why), _) => format!("the run is INVALID ({why})"),
        (None, true) => "met".to_owned(),
        (None, false) => "MISSED".to_owned(),
    };
    let stretch = claim.stretch.map_or(String::new(), |stretch| format!(", better still {stretch:.2}"));
    tell_line(&format!(
        "{}\n  {}\n  paper {:.2}, measured {measured}, target {}{stretch}: {met}",
        claim.id, claim.claim, claim.paper_value, claim.target,
    ))
}

fn write_claims(claims: &[Claim], path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(claims).map_err(|error| Failure::Input(error.to_string()))?;
    fs::write(path, text + "\n").map_err(Failure::io(format!("write {}", path.display())))
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(name) = args.paper.as_ref().filter(|_| !args.list) else {
        return list().map(|()| Outcome::Done);
    };
    if args.scale.is_some_and(|scale| !(scale > 0.0 && scale <= SCALE_MAX)) {
        return Err(Failure::Input(format!("--scale must be more than 0 and at most {SCALE_MAX}")));
    }
    let mut claims = Vec::new();
    let experiments = args.chosen(find(name)?)?;
    args.check_scale(&experiments)?;
    args.json.as_deref().map_or(Ok(()), check_writable)?;
    let ran = args.run(&experiments, &mut claims);
    let written = args.json.as_ref().map_or(Ok(()), |path| write_claims(&claims, path));
    // To standard output, which nobody reads any more.
    let written = written.or_else(|failure| if failure.is_closed_pipe() { Ok(()) } else { Err(failure) });
    let shown = tell_line("").and_then(|()| claims.iter().try_for_each(print_claim));
    ran.and(written).and(shown)?;
    match claims.iter().all(|claim| claim.met) {
        true => Ok(Outcome::Done),
        false => Ok(Outcome::Missed),
    }
}
