//! `cuesta verify`

use crate::failure::{Outcome, Result};
use crate::output::{BYTES, print_json, print_line, progress, reveal};
use crate::size::human;
use crate::store::StoreArgs;
use cuesta::Create;
use serde_json::json;

/// Read every byte of every file and check it.
///
/// Against its checksums and against the other files; the store must be closed. Exit code 3 if anything is wrong; each
/// problem is printed with its file and offset.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let bar = progress(0, "verify", BYTES);
    let report = cuesta::verify(&args.store.options(Create::Never), &mut |at| {
        bar.set_length(at.bytes_total);
        bar.set_position(at.bytes_done);
        reveal(&bar);
    })?;
    bar.finish_and_clear();
    if args.json {
        let problem =
            |p: &cuesta::Problem| json!({ "file": p.file, "offset": p.offset, "message": p.message });
        let problems: Vec<_> = report.problems.iter().map(problem).collect();
        print_json(&json!({ "files": report.files, "bytes": report.bytes, "problems": problems }))?;
    } else {
        for problem in &report.problems {
            print_line(&problem.message)?;
        }
        let verdict = match report.problems.len() {
            0 => "no problem found".to_owned(),
            n => format!("{n} problems found"),
        };
        print_line(&format!("{verdict} in {} files, {}", report.files, human(report.bytes)))?;
    }
    Ok(if report.problems.is_empty() { Outcome::Done } else { Outcome::Damaged })
}
