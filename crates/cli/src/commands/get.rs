//! `cuesta get`

use crate::failure::{Outcome, Result};
use crate::output::{pair_json, print, print_json};
use crate::store::{KeyspaceArgs, StoreArgs};
use serde_json::Value;
use std::io::IsTerminal;

/// Print a key's value.
///
/// Byte for byte; on a terminal a line end follows. Exit code 1 if the key has none.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key
    key: String,
    /// Answer in JSON: {"key": …, "value": …}; bytes that are no text as key_hex and value_hex
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open()?;
    let found = match args.keyspace.open(&db)? {
        Some(keyspace) => keyspace.get(&args.key)?,
        None => db.get(&args.key)?,
    };
    let Some(value) = found else { return Ok(Outcome::NotFound) };
    if args.json {
        print_json(&Value::Object(pair_json(args.key.as_bytes(), Some(&value))))?;
    } else {
        print(&value)?;
        if std::io::stdout().is_terminal() {
            print(b"\n")?;
        }
    }
    Ok(Outcome::Done)
}
