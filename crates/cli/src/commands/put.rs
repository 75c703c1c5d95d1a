//! `cuesta put`

use crate::failure::{Failure, Outcome, Result};
use crate::output::print_json;
use crate::store::{KeyspaceArgs, StoreArgs};
use cuesta::{Batch, Create, Durability};
use serde_json::json;
use std::io::Read;

/// Give a key a value.
///
/// The store is made if there is none.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key
    key: String,
    /// The value; `-` reads it from standard input
    value: String,
    /// sync, interval:MS, os or unlogged: when the write is acknowledged
    #[arg(long, default_value = "sync")]
    durability: Durability,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let value = match args.value.as_str() {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(Failure::io("read standard input"))?;
            bytes
        }
        text => text.as_bytes().to_vec(),
    };
    let db = args.store.open_as(Create::IfMissing)?;
    let mut batch = Batch::new();
    match args.keyspace.open_or_create(&db)? {
        Some(keyspace) => batch.put_in(&keyspace, &args.key, &value),
        None => batch.put(&args.key, &value),
    };
    let sequence = db.write_with(batch, args.durability)?;
    db.close()?;
    if args.json {
        print_json(&json!({ "sequence": sequence }))?;
    }
    Ok(Outcome::Done)
}
