//! What there is before PrismDB: figure 2 and table 2 are about RocksDB alone: on Optane (the paper's NVM), on QLC, and
//! with 11 % of the store on Optane (`het`).
//!
//! The paper has 100 GB and 10 cores, YCSB-A of records of 1 KB with a Zipfian skew of 0.8, and memory for a tenth.
//! Here it is a million records at scale 1 and as many cores as there are; devices are modelled, and RocksDB is set as
//! it is for every comparison (`peers/src/rocksdb.rs`), past the page cache.
//!
//! The paper states no bounds for these figures: they describe what is there before PrismDB. What is asked is that they
//! come out here within a factor of one and a half, so that what is measured beside them later stands on the same
//! ground.

use crate::measure::process::Devices;
use crate::measure::run::{Entry, Plan, Record, Spread, Stage, Turn};
use crate::measure::summary::{Numbers, turns};
use crate::repro::numbers::{median, statement, table};
use crate::repro::{Run, Setting, Statement, Target, run};
use cuesta_bench::{Config, Keys, Length, Values, Workload};
use std::collections::BTreeSet;

pub(super) const ALONE: Run = run("prismdb-rocksdb", 1.0, plan);

const RECORDS: f64 = 1e6;
const VALUE_BYTES: usize = 1000;
const RECORD_BYTES: u64 = 1023;
const THETA: f64 = 0.8;
const THREADS: u64 = 8;
const FAST_PERCENT: u64 = 11;
/// Measured numbers of a peer may be off the paper's by this factor.
const FACTOR: f64 = 1.5;
const NVM: &str = "rocksdb on NVM";
const QLC: &str = "rocksdb on QLC";
const HET: &str = "rocksdb het";
/// Counters of reads of files and of milliseconds of merges, by level.
const KINDS: [&str; 2] = ["files:", "merge_ms:"];
/// Of our RocksDB, the levels that lie on the capacity tier.
const FIRST_LEVEL_BELOW: u32 = 3;

fn plan(setting: &Setting) -> Plan {
    let records = (RECORDS * setting.scale) as u64;
    let data_bytes = records * RECORD_BYTES;
    let entry = |name: &str, spread| Entry { name: name.to_owned(), kind: "rocksdb".to_owned(), spread };
    Plan {
        entries: vec![
            entry(HET, Spread::Tiered),
            entry(NVM, Spread::Only("fast")),
            entry(QLC, Spread::Only("capacity")),
        ],
        stages: vec![Stage {
            warm_up: Some(Length::Seconds(10.0)),
            ..Stage::new(Workload::A, Length::Seconds(20.0))
        }],
        load: Config {
            workload: Workload::Load,
            records,
            length: Length::Operations(records),
            threads: THREADS,
            keys: Keys::Scattered,
            values: Values::Fixed(VALUE_BYTES),
            distribution: None,
            theta: THETA,
            seed: setting.seed,
            phase: 0,
        },
        rounds: 3,
        killed: false,
        grouped: true,
        dir: setting.dir.clone(),
        fast_bytes: data_bytes * FAST_PERCENT / 100,
        capacity_bytes: data_bytes * 8,
        memory_bytes: data_bytes / 10,
        data_bytes,
        durability: "os".to_owned(),
        profile: "leveled".to_owned(),
        devices: Devices {
            models: "fast=optane,capacity=qlc".to_owned(),
            page_cache_bytes: data_bytes / 20,
            seed: setting.seed,
        },
        scale: Some(setting.scale),
    }
}

fn of<T>(record: &Record, contender: &str, number: impl Fn(&Turn) -> Option<T>) -> Vec<T> {
    turns(record, Workload::A, contender).filter_map(number).collect()
}

/// The levels' counts of one kind of counter: on the fast tier, and below it.
fn by_tier(turn: &Turn, kind: &str) -> [u64; 2] {
    let mut sums = [0, 0];
    for (name, count) in &turn.ran.usage.counters {
        let level = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix("level "));
        if let Some(level) = level.and_then(|level| level.parse::<u32>().ok()) {
            sums[usize::from(level >= FIRST_LEVEL_BELOW)] += count;
        }
    }
    sums
}

/// What each container of the tiered one has of a kind of counter, as a share of all, in the median of the turns.
fn share_of(record: &Record, kind: &str, container: &str) -> Option<f64> {
    let share = |turn: &Turn| {
        let counters = &turn.ran.usage.counters;
        let all: u64 =
            counters.iter().filter(|(name, _)| name.starts_with(kind)).map(|(_, count)| count).sum();
        let count = counters.get(&format!("{kind}{container}"))?;
        (all > 0).then(|| *count as f64 / all as f64)
    };
    median(record, Workload::A, HET, share)
}

/// Of reads of files and of the time that merges took, which part fell to each level.
pub(super) fn levels(records: &[&Record]) -> Vec<String> {
    let record = records[0];
    let counters = turns(record, Workload::A, HET).flat_map(|turn| turn.ran.usage.counters.keys());
    let containers: BTreeSet<&str> =
        counters.filter_map(|name| KINDS.iter().find_map(|kind| name.strip_prefix(kind))).collect();
    let rows = containers.into_iter().map(|container| {
        (container.to_owned(), KINDS.map(|kind| share_of(record, kind, container)).to_vec())
    });
    table(&["file reads", "merge time"], rows)
}

pub(super) fn figure_2(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let merged = |turn: &Turn| {
        let [fast, capacity] = by_tier(turn, "merge_ms:");
        (fast + capacity > 0).then(|| fast as f64 / (fast + capacity) as f64)
    };
    let from_flash = |turn: &Turn| Numbers::of(turn).reads[1];
    vec![
        statement(
            "prismdb/fig2a/compaction-in-nvm",
            "more than 80 % of a tiered RocksDB's compaction time goes into levels on NVM",
            0.8,
            Target::AtLeast(0.8),
            of(record, HET, merged),
        ),
        statement(
            "prismdb/fig2b/reads-from-flash",
            "42 % of a tiered RocksDB's reads are served from flash",
            0.42,
            Target::Between(0.42 / FACTOR, 0.42 * FACTOR),
            of(record, HET, from_flash),
        ),
    ]
}

pub(super) fn table_2(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let rates = |name: &str| of(record, name, |turn| Some(Numbers::of(turn).operations_per_second));
    let ratio = |a: &str, b: &str| rates(a).iter().zip(rates(b)).map(|(a, b)| a / b).collect::<Vec<f64>>();
    let (nvm_qlc, het_nvm, het_qlc) = (121.0 / 54.0, 93.0 / 121.0, 93.0 / 54.0);
    let around = |value: f64| Target::Between(value / FACTOR, value * FACTOR);
    vec![
        statement(
            "prismdb/table2/nvm-over-qlc",
            "RocksDB on NVM does 2.2 times the operations of RocksDB on QLC",
            nvm_qlc,
            around(nvm_qlc),
            ratio(NVM, QLC),
        ),
        statement(
            "prismdb/table2/het-over-nvm",
            "a tiered RocksDB does 23 % fewer operations than one on NVM",
            het_nvm,
            around(het_nvm),
            ratio(HET, NVM),
        ),
        statement(
            "prismdb/table2/het-over-qlc",
            "a tiered RocksDB does 1.7 times the operations of one on QLC",
            het_qlc,
            around(het_qlc),
            ratio(HET, QLC),
        ),
    ]
}
