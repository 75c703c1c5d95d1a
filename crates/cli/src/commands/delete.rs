//! `cuesta delete`

use crate::failure::{Outcome, Result};
use crate::output::print_json;
use crate::store::{KeyspaceArgs, StoreArgs};
use cuesta::{Batch, Durability};
use serde_json::json;

/// Take a key's value away. A key without one is fine.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key
    key: String,
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
    let db = args.store.open()?;
    let mut batch = Batch::new();
    match args.keyspace.open(&db)? {
        Some(keyspace) => batch.delete_in(&keyspace, &args.key),
        None => batch.delete(&args.key),
    };
    let sequence = db.write_with(batch, args.durability)?;
    db.close()?;
    if args.json {
        print_json(&json!({ "sequence": sequence }))?;
    }
    Ok(Outcome::Done)
}
