//! `cuesta inspect`

use crate::failure::{Outcome, Result};
use crate::output::print;
use std::path::PathBuf;

/// Print one file of a store in words: superblock (CUESTA), manifest, log, or either part of a table.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The file
    file: PathBuf,
    /// The meta part that goes with a table's data part [default: that of the same number beside it]
    #[arg(long, value_name = "FILE")]
    meta: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut text = String::new();
    let inspected = cuesta::inspect(&args.file, args.meta.as_deref(), &mut text);
    // What could be read before the damage is worth seeing too.
    print(text.as_bytes())?;
    inspected?;
    Ok(Outcome::Done)
}
