//! `cuesta load`: records of a file into the store, in batches.

mod formats;

use crate::failure::{Failure, Outcome, Result};
use crate::output::{BYTES, note, print_json, print_line, progress, reveal};
use crate::size::human;
use crate::store::{KeyspaceArgs, StoreArgs};
use cuesta::{Batch, Create, Db, Durability, Keyspace};
use formats::{Format, Record, Records};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a batch, and of a small fast tier what part of it.
const BATCH_BYTES: usize = 1 << 20;
const FAST_SHARE: u64 = 64;

/// Store the records of a file.
///
/// The store is made if there is none; a record with the key of an earlier one replaces it. What was loaded is durable
/// when the command ends.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Formats:
  deb822  stanzas apart by empty lines, fields `Name: value`; --key names a field,
          the value is the whole stanza
  tsv     a header line, then tab-separated columns; --key names a column or is its
          number from 1; the value is the line
  jsonl   a JSON object a line; --key names a field (text or number); the value is
          the line
  lines   any lines; the key is the line's number in 12 digits, or with --key line
          the line itself
  dump    what `cuesta dump` prints")]
pub(crate) struct Args {
    /// The file; `-` reads standard input
    file: PathBuf,
    /// deb822, tsv, jsonl, lines or dump
    #[arg(long)]
    format: Format,
    /// What of a record is its key, see below
    #[arg(long)]
    key: Option<String>,
    /// Count records that cannot be read instead of stopping at the first
    #[arg(long)]
    skip_bad: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Default)]
struct Totals {
    records: u64,
    bytes: u64,
    bad: u64,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let began = Instant::now();
    let (input, total) = open(&args.file)?;
    let mut records = Records::new(args.format, args.key.as_deref(), input)?;
    let db = args.store.open_as(Create::IfMissing)?;
    let keyspace = args.keyspace.open_or_create(&db)?;
    let bar = progress(total, "load", BYTES);
    let fast = args.store.options(Create::IfMissing).tiers.first().map_or(0, |tier| tier.capacity_bytes);
    let batch_bytes = BATCH_BYTES.min((fast / FAST_SHARE) as usize);
    let (batch, totals) = (Batch::new(), Totals::default());
    let mut loader =
        Loader { db: &db, keyspace, others: BTreeMap::new(), batch, batch_bytes, totals, stored: 0 };
    let told = |records: &Records| {
        bar.set_position(records.bytes());
        reveal(&bar);
    };
    let loaded = load(args, &mut records, &mut loader, told);
    bar.finish_and_clear();
    let synced = db.sync();
    let is_durable = if synced.is_ok() { "" } else { ", but may not survive a power cut" };
    if let Err(failure) = loaded.and(synced.map_err(Failure::from)) {
        note(&format!("{} records were stored before that{is_durable}", loader.stored));
        return Err(failure);
    }
    let Totals { records, bytes, bad } = loader.totals;
    db.close()?;
    let seconds = began.elapsed().as_secs_f64();
    match args.json {
        true => print_json(&json!({ "records": records, "bytes": bytes, "bad": bad, "seconds": seconds }))?,
        false => {
            let skipped = if bad > 0 { format!(", {bad} bad records skipped") } else { String::new() };
            print_line(&format!("{records} records, {} in {seconds:.2} s{skipped}", human(bytes)))?;
        }
    }
    Ok(Outcome::Done)
}

/// Stores all records, or those before the first that is bad or cannot be read.
fn load(args: &Args, records: &mut Records, loader: &mut Loader<'_>, told: impl Fn(&Records)) -> Result<()> {
    let ended = loop {
        match records.next() {
            Ok(Some(Ok(record))) => loader.add(&record)?,
            Ok(Some(Err(_))) if args.skip_bad => loader.totals.bad += 1,
            Ok(Some(Err(bad))) => {
                break Err(Failure::Input(format!("{}: {bad}; --skip-bad goes on", args.file.display())));
            }
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
        told(records);
    };
    loader.write()?;
    ended
}

/// The input, and its length where it has one.
fn open(path: &Path) -> Result<(Box<dyn BufRead>, u64)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(std::io::stdin())), 0));
    }
    let fail = || Failure::io(format!("open {}", path.display()));
    let file = File::open(path).map_err(fail())?;
    let metadata = file.metadata().map_err(fail())?;
    if metadata.is_dir() {
        return Err(Failure::Input(format!("{} is a directory", path.display())));
    }
    Ok((Box::new(BufReader::with_capacity(1 << 20, file)), metadata.len()))
}

struct Loader<'a> {
    db: &'a Db,
    keyspace: Option<Keyspace>,
    /// Keyspaces that records of a dump name.
    others: BTreeMap<String, Keyspace>,
    batch: Batch,
    batch_bytes: usize,
    totals: Totals,
    /// Of the records, those that are in the store.
    stored: u64,
}

impl Loader<'_> {
    fn add(&mut self, record: &Record) -> Result<()> {
        if let Some(name) = &record.keyspace
            && !self.others.contains_key(name)
        {
            let asked = KeyspaceArgs { keyspace: Some(name.clone()) };
            self.others.extend(asked.open_or_create(self.db)?.map(|keyspace| (name.clone(), keyspace)));
        }
        let named = record.keyspace.as_ref().and_then(|name| self.others.get(name));
        match named.or(self.keyspace.as_ref()) {
            Some(keyspace) => self.batch.put_in(keyspace, &record.key, &record.value),
            None => self.batch.put(&record.key, &record.value),
        };
        self.totals.records += 1;
        self.totals.bytes += (record.key.len() + record.value.len()) as u64;
        if self.batch.bytes() >= self.batch_bytes {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.db.write_with(std::mem::take(&mut self.batch), Durability::Os)?;
        self.stored = self.totals.records;
        Ok(())
    }
}
