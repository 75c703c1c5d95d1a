//! What is run to judge profile `prismdb`.
//!
//! Scale 1 has two million records of 1,000 bytes where the paper has a hundred million, a fast tier of a fifth of the
//! data and memory for a tenth, eight clients, Zipf 0.99 unless a figure varies it, and durability `os` unless it is
//! about syncs. Tables are cut at 2 MiB, so that there are as many for each key as in the paper. Phases are so many
//! requests for each key as the paper's are (§7): A and F three, half of which warm up; B, C and D three, of which four
//! fifths do; scans a tenth, half of which do. Devices are modelled Optane and QLC, with that share of their bandwidth
//! and channels that this machine's processors are of the paper's ten.

use crate::measure::process::Devices;
use crate::measure::run::{Entry, Plan, Spread, Stage};
use crate::repro::{Run, Setting, run};
use cuesta::MEMORY_BYTES_MIN;
use cuesta_bench::{Config, Distribution, KEY_BYTES, Keys, Length, Values, Workload};

const RECORDS: f64 = 2e6;
const VALUE_BYTES: usize = 1000;
const THETA: f64 = 0.99;
const THREADS: u64 = 8;
const ROUNDS: u64 = 3;
/// Turns of [`PROMOTION`]: the first and the last are compared.
const MANY_ROUNDS: u64 = 20;
const FAST_PERCENT: u64 = 20;
const MEMORY_PERCENT: u64 = 10;
const CAPACITY_TIMES: u64 = 8;
/// Processors that the paper's stores had.
const PROCESSORS: f64 = 10.0;

/// Shares of the data that the fast tier of [`PRICES`] has, in percent.
pub(super) const HETS: [u64; 4] = [5, 10, 20, 50];

pub(super) const PRISMDB: &str = "prismdb";
pub(super) const LEVELED: &str = "leveled";
pub(super) const ROCKSDB: &str = "rocksdb";
pub(super) const PRECISE: &str = "prismdb, precise";
pub(super) const RANDOM: &str = "prismdb, random";

/// Thresholds that are given, with their variants.
pub(super) const FIXED: [(&str, &str); 5] = [
    ("pinned 10", "prismdb,pinned=10"),
    ("pinned 30", "prismdb,pinned=30"),
    ("pinned 50", "prismdb,pinned=50"),
    ("pinned 70", "prismdb,pinned=70"),
    ("pinned 90", "prismdb,pinned=90"),
];

pub(super) const YCSB: Run = run("prismdb-ycsb", 0.15, ycsb);
pub(super) const UNSCALED: Run =
    run("prismdb-unscaled", 0.07, |setting| Plan { devices: devices(setting, 1.0), ..ycsb(setting) });
pub(super) const DEMOTION: Run = run("prismdb-demotion", 0.15, |setting| demotion(setting, ""));
/// What goes down is merged with the tables there at once, as in the paper.
pub(super) const MERGED: Run = run("prismdb-merged", 0.15, |setting| demotion(setting, ",log-runs=1"));
/// Zipf's law by ever larger skews, and none.
pub(super) const SKEWS: [Run; 5] = [
    run("prismdb-zipf0.6", 0.1, |setting| skewed(setting, 0.6)),
    run("prismdb-zipf0.8", 0.1, |setting| skewed(setting, 0.8)),
    run("prismdb-zipf0.99", 0.1, |setting| skewed(setting, 0.99)),
    run("prismdb-zipf1.2", 0.1, |setting| skewed(setting, 1.2)),
    run("prismdb-uniform", 0.1, |setting| {
        let plan = skewed(setting, THETA);
        Plan { load: Config { distribution: Some(Distribution::Uniform), ..plan.load.clone() }, ..plan }
    }),
];
pub(super) const SYNC: Run = run("prismdb-sync", 0.1, |setting| Plan {
    stages: vec![stage(setting, Workload::A, ROUNDS), stage(setting, Workload::F, ROUNDS)],
    durability: "sync".to_owned(),
    ..base(setting)
});
/// The threshold that is found by trying, and thresholds that are given.
pub(super) const THRESHOLD: Run = run("prismdb-threshold", 0.12, |setting| Plan {
    entries: std::iter::once(ours(PRISMDB, "prismdb"))
        .chain(FIXED.map(|(name, variant)| ours(name, variant)))
        .collect(),
    stages: [Workload::A, Workload::B, Workload::C].map(|workload| stage(setting, workload, ROUNDS)).to_vec(),
    ..base(setting)
});
/// One tier alone (Optane, QLC; then TLC), and two of them in several proportions.
pub(super) const PRICES: [Run; 6] = [
    run("prismdb-alone", 0.1, |setting| {
        alone(setting, &["fast", "capacity"], devices_of(setting, "qlc", scaled()))
    }),
    run("prismdb-tlc", 0.1, |setting| alone(setting, &["capacity"], devices_of(setting, "nvme", scaled()))),
    run("prismdb-het5", 0.1, |setting| het(setting, HETS[0])),
    run("prismdb-het10", 0.1, |setting| het(setting, HETS[1])),
    run("prismdb-het20", 0.1, |setting| het(setting, HETS[2])),
    run("prismdb-het50", 0.1, |setting| het(setting, HETS[3])),
];
pub(super) const CLIENTS: [Run; 5] = [
    run("prismdb-clients1", 0.07, |setting| clients(setting, 1)),
    run("prismdb-clients2", 0.07, |setting| clients(setting, 2)),
    run("prismdb-clients4", 0.07, |setting| clients(setting, 4)),
    run("prismdb-clients8", 0.07, |setting| clients(setting, 8)),
    run("prismdb-clients16", 0.07, |setting| clients(setting, 16)),
];
/// What loading left in the tracker is forgotten.
pub(super) const PROMOTION: Run = run("prismdb-promotion", 0.15, |setting| Plan {
    entries: vec![ours(PRISMDB, "prismdb,forget-heat")],
    stages: vec![Stage::new(Workload::C, requests(setting, 3.0 / MANY_ROUNDS as f64))],
    rounds: MANY_ROUNDS,
    ..base(setting)
});
pub(super) const TWITTER: [Run; 3] = [
    run("prismdb-twitter39", 0.15, |setting| twitter(setting, Workload::Twitter39)),
    run("prismdb-twitter19", 0.15, |setting| twitter(setting, Workload::Twitter19)),
    run("prismdb-twitter51", 0.15, |setting| twitter(setting, Workload::Twitter51)),
];

/// A store of ours. The level below has small tables in either profile.
fn ours(name: &str, variant: &str) -> Entry {
    let kind = format!("cuesta:{variant},table=2MiB");
    Entry { name: name.to_owned(), kind, spread: Spread::Tiered }
}

fn peer() -> Entry {
    Entry { name: ROCKSDB.to_owned(), kind: "rocksdb".to_owned(), spread: Spread::Tiered }
}

fn records(setting: &Setting) -> u64 {
    (RECORDS * setting.scale) as u64
}

/// So many requests for each key.
fn requests(setting: &Setting, each: f64) -> Length {
    Length::Operations(((records(setting) as f64 * each) as u64).max(1))
}

/// A workload as long as the paper's.
fn stage(setting: &Setting, workload: Workload, rounds: u64) -> Stage {
    let (each, warm_up) = match workload {
        Workload::B | Workload::C | Workload::D => (3.0, 0.8),
        Workload::E => (0.1, 0.5),
        _ => (3.0, 0.5),
    };
    Stage {
        warm_up: Some(requests(setting, each * warm_up)),
        ..Stage::new(workload, requests(setting, each * (1.0 - warm_up) / rounds as f64))
    }
}

/// The share of their bandwidth and channels that devices have.
fn scaled() -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    (processors as f64 / PROCESSORS).min(1.0)
}

fn devices(setting: &Setting, share: f64) -> Devices {
    devices_of(setting, "qlc", share)
}

fn devices_of(setting: &Setting, below: &str, share: f64) -> Devices {
    let part = if share < 1.0 { format!("*{share}") } else { String::new() };
    Devices {
        models: format!("fast=optane{part},capacity={below}{part}"),
        page_cache_bytes: data_bytes(setting, VALUE_BYTES) * MEMORY_PERCENT / 200,
        seed: setting.seed,
    }
}

fn data_bytes(setting: &Setting, value_bytes: usize) -> u64 {
    records(setting) * (KEY_BYTES + value_bytes as u64)
}

/// A store of ours and RocksDB, without a workload.
fn base(setting: &Setting) -> Plan {
    of_values(setting, VALUE_BYTES)
}

fn of_values(setting: &Setting, value_bytes: usize) -> Plan {
    let data_bytes = data_bytes(setting, value_bytes);
    Plan {
        entries: vec![ours(PRISMDB, "prismdb"), peer()],
        stages: Vec::new(),
        load: Config {
            workload: Workload::Load,
            records: records(setting),
            length: Length::Operations(records(setting)),
            threads: THREADS,
            keys: Keys::Scattered,
            values: Values::Fixed(value_bytes),
            distribution: None,
            theta: THETA,
            seed: setting.seed,
            phase: 0,
        },
        rounds: ROUNDS,
        killed: false,
        grouped: true,
        dir: setting.dir.clone(),
        fast_bytes: data_bytes * FAST_PERCENT / 100,
        capacity_bytes: data_bytes * CAPACITY_TIMES,
        memory_bytes: data_bytes * MEMORY_PERCENT / 100,
        data_bytes,
        durability: "os".to_owned(),
        profile: "prismdb".to_owned(),
        devices: Devices {
            page_cache_bytes: data_bytes * MEMORY_PERCENT / 200,
            ..devices(setting, scaled())
        },
        scale: Some(setting.scale),
    }
}

/// Stores with levels on one tier each.
fn alone(setting: &Setting, tiers: &[&'static str], devices: Devices) -> Plan {
    let on = |tier: &&'static str| {
        let spread = || Spread::Only(tier);
        let name = |of: &str| format!("{of}, {tier}");
        [
            Entry { name: name(LEVELED), spread: spread(), ..ours(LEVELED, "leveled") },
            Entry { name: name(ROCKSDB), spread: spread(), ..peer() },
        ]
    };
    let base = base(setting);
    Plan {
        entries: tiers.iter().flat_map(on).collect(),
        stages: vec![stage(setting, Workload::A, ROUNDS)],
        // All of the data, and merges, are on it.
        fast_bytes: base.capacity_bytes,
        devices,
        ..base
    }
}

fn het(setting: &Setting, percent: u64) -> Plan {
    let base = base(setting);
    Plan {
        fast_bytes: base.data_bytes * percent / 100,
        stages: vec![stage(setting, Workload::A, ROUNDS)],
        ..base
    }
}

/// Ways to choose what goes down.
fn demotion(setting: &Setting, more: &str) -> Plan {
    let ways = [(PRISMDB, "approx"), (PRECISE, "precise"), (RANDOM, "random")];
    Plan {
        entries: ways.map(|(name, way)| ours(name, &format!("prismdb,{way}{more}"))).to_vec(),
        stages: vec![stage(setting, Workload::A, ROUNDS)],
        ..base(setting)
    }
}

fn clients(setting: &Setting, threads: u64) -> Plan {
    let plan = base(setting);
    let load = Config { threads, ..plan.load.clone() };
    Plan { load, stages: vec![stage(setting, Workload::A, ROUNDS)], ..plan }
}

fn ycsb(setting: &Setting) -> Plan {
    use Workload::{A, B, C, D, E, F};
    Plan {
        entries: vec![ours(PRISMDB, "prismdb"), peer(), ours(LEVELED, "leveled")],
        stages: [A, B, C, F, D, E].map(|workload| stage(setting, workload, ROUNDS)).to_vec(),
        ..base(setting)
    }
}

fn skewed(setting: &Setting, theta: f64) -> Plan {
    let plan = base(setting);
    let load = Config { theta, ..plan.load.clone() };
    Plan { load, stages: vec![stage(setting, Workload::A, ROUNDS)], ..plan }
}

/// A store of these values is as large at least as makes a tenth of it the least memory that a store of ours takes.
fn twitter(setting: &Setting, workload: Workload) -> Plan {
    let value_bytes = match workload.values() {
        Some(Values::Fixed(bytes)) => bytes,
        _ => VALUE_BYTES,
    };
    let least = MEMORY_BYTES_MIN as f64 * 100.0 / MEMORY_PERCENT as f64;
    let scale = setting.scale.max(least / (RECORDS * (KEY_BYTES as f64 + value_bytes as f64)) + 1e-4);
    let setting = &Setting { scale, ..setting.clone() };
    Plan { stages: vec![stage(setting, workload, ROUNDS)], ..of_values(setting, value_bytes) }
}
