//! `cuesta scan`

use crate::failure::{Failure, Outcome, Result};
use crate::output::pair_json;
use crate::store::{KeyspaceArgs, RangeArgs, StoreArgs};
use cuesta::{Range, Scan};
use serde_json::Value;
use std::io::{BufWriter, Write};

/// Print the pairs of a range.
///
/// A line each: key, tab, value. Line ends in values print as they are; --json escapes them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    range: RangeArgs,
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
        let range = self.range.range();
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
