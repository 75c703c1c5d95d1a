//! `cuesta scan`

use crate::failure::{Failure, Outcome, Result};
use crate::output::pair_json;
use crate::store::{KeyspaceArgs, StoreArgs};
use cuesta::{Range, Scan};
use serde_json::Value;
use std::io::{BufWriter, Write};
use std::ops::Bound;

/// Print the pairs of a range, a line each: key, tab, value. Line ends in values print as they are; --json escapes
/// them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// First key
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// Key to stop before
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys that begin so
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print no values
    #[arg(long)]
    keys_only: bool,
    /// Answer in JSON, an object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    fn range(&self) -> Range<'_> {
        let range = match &self.prefix {
            Some(prefix) => Range::prefix(prefix.as_bytes()),
            None => {
                let low = self.from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.as_bytes()));
                let high = self.to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_bytes()));
                Range::new(low, high)
            }
        };
        match self.limit {
            Some(limit) => range.with_limit(limit),
            None => range,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = args.store.open()?;
    let scan: Scan = match args.keyspace.open(&db)? {
        Some(keyspace) => keyspace.scan(args.range())?,
        None => db.scan(args.range())?,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut print = |pair: cuesta::Result<(Vec<u8>, cuesta::Value)>| -> Result<()> {
        let (key, value) = pair?;
        let written = match (args.json, args.keys_only) {
            (true, keys_only) => {
                let value = (!keys_only).then_some(&value[..]);
                writeln!(out, "{}", Value::Object(pair_json(&key, value)))
            }
            (false, true) => out.write_all(&[&key[..], b"\n"].concat()),
            (false, false) => out.write_all(&[&key[..], b"\t", &value, b"\n"].concat()),
        };
        written.map_err(Failure::io("write to standard output"))
    };
    match args.reverse {
        true => scan.rev().try_for_each(&mut print)?,
        false => { scan }.try_for_each(&mut print)?,
    }
    out.flush().map_err(Failure::io("write to standard output"))?;
    Ok(Outcome::Done)
}
