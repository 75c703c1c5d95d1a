//! `cuesta delete`

use crate::failure::{Outcome, Result};
use crate::output::print_json;
use crate::store::{KeyspaceArgs, RangeArgs, StoreArgs};
use clap::ArgGroup;
use cuesta::{Batch, Durability, Range};
use serde_json::json;

/// Take a key's value away.
///
/// Or those of all keys of a range, in one step. Keys without one are fine.
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("which").required(true).multiple(true).args(["key", "from", "to", "prefix", "all"])))]
pub(crate) struct Args {
    /// The key; or else a range: --from, --to, --prefix or --all
    #[arg(conflicts_with_all = ["from", "to", "prefix", "all"])]
    key: Option<String>,
    #[command(flatten)]
    range: RangeArgs,
    /// Every key of the keyspace
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
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
    let range = if args.all { Range::all() } else { args.range.range() };
    let db = args.store.open()?;
    let mut batch = Batch::new();
    match (args.keyspace.open(&db)?, &args.key) {
        (Some(keyspace), Some(key)) => batch.delete_in(&keyspace, key),
        (None, Some(key)) => batch.delete(key),
        (Some(keyspace), None) => batch.delete_range_in(&keyspace, range),
        (None, None) => batch.delete_range(range),
    };
    let sequence = db.write_with(batch, args.durability)?;
    db.close()?;
    if args.json {
        print_json(&json!({ "sequence": sequence }))?;
    }
    Ok(Outcome::Done)
}
