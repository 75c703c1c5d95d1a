//! The `cuesta` command: one file per subcommand under `commands`, the options they share in `store`.
//!
//! Exit codes: 0 done; 1 the key is not there; 2 wrong usage; 3 damage was found; 4 the store is open elsewhere;
//! 5 the medium failed, is full, or the store is read-only; 6 anything else; 7 an experiment missed a target; 8 there is
//! no such store or file.

#![allow(clippy::disallowed_methods, reason = "a person waits for real seconds")]

mod commands;
mod failure;
mod measure;
mod model;
mod output;
mod repro;
mod size;
mod store;

use clap::{Parser, Subcommand};
use failure::Outcome;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

/// A persistent key-value store for machines with a small fast tier and a big cheap one.
///
/// A store lives in a directory (--dir, default ./cuesta-data), its fast tier in DIR/fast and its capacity tier in
/// DIR/capacity, unless --fast and --capacity name other places.
#[derive(Parser)]
#[command(name = "cuesta", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Examples:
  cuesta load --format deb822 --key Package /var/lib/dpkg/status
  cuesta get bash
  cuesta scan --prefix lib --limit 5 --keys-only
  cuesta bench --records 100000

Exit codes: 0 done, 1 key not found, 2 wrong usage, 3 damage found, 4 store is open elsewhere,
5 medium failed or full or store read-only, 6 anything else, 7 an experiment missed a target,
8 no such store or file.";

// What each does stands with its options; a line here would take the place of all of that in its help.
#[derive(Subcommand)]
enum Command {
    Load(commands::load::Args),
    Put(commands::put::Args),
    Get(commands::get::Args),
    Explain(commands::explain::Args),
    Delete(commands::delete::Args),
    Scan(commands::scan::Args),
    Dump(commands::dump::Args),
    Stats(commands::stats::Args),
    Top(commands::top::Args),
    Verify(commands::verify::Args),
    Repair(commands::repair::Args),
    Inspect(commands::inspect::Args),
    Bench(Box<commands::bench::Args>),
    Repro(commands::repro::Args),
    /// Be measured by `bench --against`, which starts this itself.
    #[command(hide = true)]
    Contender(commands::contender::Args),
}

/// A store keeps two files open for each of its tables, and the usual limit of 1,024 would be met at some 15 GiB. Where
/// the system does not let us have more, the store's own error says which file it could not open.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
    }
}

fn main() -> ExitCode {
    raise_open_files();
    let outcome = match Cli::parse().command {
        Command::Load(args) => commands::load::run(&args),
        Command::Put(args) => commands::put::run(&args),
        Command::Get(args) => commands::get::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Delete(args) => commands::delete::run(&args),
        Command::Scan(args) => commands::scan::run(&args),
        Command::Dump(args) => commands::dump::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Repair(args) => commands::repair::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Repro(args) => commands::repro::run(&args),
        Command::Contender(args) => commands::contender::run(&args),
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::NotFound) => ExitCode::from(1),
        Ok(Outcome::Damaged) => ExitCode::from(3),
        Ok(Outcome::Missed) => ExitCode::from(7),
        Err(failure) => failure.report(),
    }
}
