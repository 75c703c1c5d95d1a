//! `cuesta dump`

use crate::failure::{Failure, Outcome, Result};
use crate::output::pair_json;
use crate::store::{KeyspaceArgs, StoreArgs};
use cuesta::{Range, Scan};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};

/// Print every pair of every keyspace as JSON lines, for `load --format dump`.
///
/// Or of one keyspace: {"key": …, "value": …} with "keyspace" where it is not the default one, and key_hex or value_hex
/// for bytes that are no text.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open()?;
    let snapshot = db.snapshot()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut print = |name: Option<&str>, scan: Scan| -> Result<()> {
        for pair in scan {
            let (key, value) = pair?;
            let mut object = pair_json(&key, Some(&value));
            if let Some(name) = name {
                object.insert("keyspace".to_owned(), json!(name));
            }
            writeln!(out, "{}", Value::Object(object)).map_err(Failure::io("write to standard output"))?;
        }
        Ok(())
    };
    let names = match &args.keyspace.keyspace {
        Some(name) => vec![name.clone()],
        None => {
            print(None, snapshot.scan(Range::all())?)?;
            db.keyspaces()?
        }
    };
    for name in names {
        let asked = KeyspaceArgs { keyspace: Some(name) };
        if let Some(keyspace) = asked.open(&db)? {
            print(Some(keyspace.name()), snapshot.scan_in(&keyspace, Range::all())?)?;
        }
    }
    out.flush().map_err(Failure::io("write to standard output"))?;
    Ok(Outcome::Done)
}
