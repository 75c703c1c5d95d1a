//! `cuesta inspect`

use crate::failure::{Failure, Outcome, Result};
use crate::output::print;
use crate::store::StoreArgs;
use cuesta::Create;
use std::path::PathBuf;

/// Print one file of a store in words.
///
/// Superblock (CUESTA), manifest, log, or either part of a table; or a table of a closed store by its number, wherever
/// its parts are.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The file
    #[arg(conflicts_with = "table")]
    file: Option<PathBuf>,
    /// The meta part that goes with a table's data part [default: that of the same number beside it; without any,
    /// blocks are told by their checksums]
    #[arg(long, value_name = "FILE", requires = "file")]
    meta: Option<PathBuf>,
    /// The table of this number, as `explain` and the manifest name it
    #[arg(long, value_name = "NUMBER")]
    table: Option<u64>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let mut text = String::new();
    let inspected = match (&args.file, args.table) {
        (_, Some(number)) => cuesta::inspect_table(&args.store.options(Create::Never), number, &mut text),
        (Some(file), None) => cuesta::inspect(file, args.meta.as_deref(), &mut text),
        (None, None) => {
            return Err(Failure::Input("say which file, or by --table which table of the store".to_owned()));
        }
    };
    // What could be read before the damage is worth seeing too.
    print(text.as_bytes())?;
    inspected?;
    Ok(Outcome::Done)
}
