//! What is run to judge profile `nvlsm`.
//!
//! Scale 1 has ten million records of a 16-byte key and 128 bytes where the paper has fifty million or a hundred. A run
//! of level 0, and a table, is 2 MB for each fifty million records, ten runs of level 0 make a merge due, and levels
//! differ by ten, so that there are as many levels and runs as in the paper. One client; memory is modelled as PCM
//! unless a run says otherwise, and filters are off. The paper's stores have one thread; here merges run beside the
//! client, so times are those until a store has no work left.
//!
//! Reads depend on how many runs level 0 has, and where a load leaves it is chance, for each way of compaction another.
//! So where reads are compared by themselves there are updates before each of the five turns, which make two runs of
//! the ten at which level 0 is merged.

use crate::measure::process::Devices;
use crate::measure::run::{Entry, Plan, Spread, Stage};
use crate::repro::{Run, Setting, run};
use cuesta_bench::{Config, Distribution, Keys, Length, Values, Workload};

const RECORDS: f64 = 1e7;
/// Where none is asked for.
const SCALE: f64 = 0.25;
const VALUE_BYTES: usize = 128;
/// What a run of level 0 has for each record, in bytes.
const RUN_SHARE: f64 = 2e6 / 5e7;
/// What level 0 gets before each turn of reads, in runs.
const UPDATED_RUNS: f64 = 2.0;
/// What an entry takes in a memtable, about.
const ENTRY_BYTES: f64 = 192.0;
/// Least memtable that there is.
const RUN_BYTES_MIN: u64 = 64 << 10;
const ROUNDS: u64 = 5;
/// Room a store has, in tenths of its entries: what is mapped is taken from memory at once.
const ROOM_TENTHS: u64 = 16;
const ROOM_BYTES_MIN: u64 = 16 << 20;
const MEMORY_BYTES: u64 = 64 << 20;
/// On block devices memory and the fast tier have one part in so many of the data, as for other papers' experiments.
const MEMORY_SHARE: u64 = 10;
const FAST_SHARE: u64 = 5;
const CAPACITY_TIMES: u64 = 8;

pub(super) const NVLSM: &str = "nvlsm";
pub(super) const LEVELED: &str = "leveled";
pub(super) const FRAGMENTED: &str = "fragmented";
pub(super) const ROCKSDB: &str = "rocksdb";
pub(super) const FJALL: &str = "fjall";
const TWO: &str = "nvlsm, 2 floors";
pub(super) const BY_LOAD: &str = "nvlsm, floors by load";
/// Numbers of floors that are compared, with their names.
pub(super) const BY_FLOORS: [(&str, u32); 5] =
    [("1 floor", 1), ("2 floors", 2), ("4 floors", 4), ("10 floors", 10), ("20 floors", 20)];

pub(super) const MAIN: Run = run("nvlsm-main", SCALE, |setting| main_on(setting, "pcm"));
pub(super) const NVDIMM: Run = run("nvlsm-nvdimm", SCALE, |setting| main_on(setting, "nvdimm"));
pub(super) const FILTERS: Run = run("nvlsm-filters", SCALE, |setting| {
    let entries = all_three(setting, "pcm,filter=10");
    Plan { entries, stages: vec![reads(setting), writes(setting, Workload::W)], ..base(setting) }
});
pub(super) const FLOORS: Run = run("nvlsm-floors", SCALE, |setting| {
    let floors = BY_FLOORS.map(|(name, floors)| ours(setting, name, &format!("nvlsm,floors={floors}"), PCM));
    let entries = std::iter::once(ours(setting, LEVELED, LEVELED, PCM)).chain(floors).collect();
    let stages = vec![reads(setting), writes(setting, Workload::W), writes(setting, Workload::W80)];
    Plan { entries, stages, ..base(setting) }
});
/// Stores of values of 8, 128 and 512 bytes, a quarter as many as elsewhere.
pub(super) const VALUES: [Run; 3] = [
    run("nvlsm-values8", SCALE, |setting| loads(setting, 8)),
    run("nvlsm-values128", SCALE, |setting| loads(setting, 128)),
    run("nvlsm-values512", SCALE, |setting| loads(setting, 512)),
];
pub(super) const YCSB: Run = run("nvlsm-ycsb", SCALE, |setting| {
    use Workload::{A, B, C, D, E, F};
    let mut entries = all_three(setting, PCM);
    entries.push(ours(setting, TWO, "nvlsm,floors=2", PCM));
    entries.push(ours(setting, BY_LOAD, NVLSM, PCM));
    let base = base(setting);
    let load = Config { distribution: None, ..base.load.clone() };
    let stage = |workload| match workload {
        E => stage(setting, E, 0.003),
        other => stage(setting, other, 0.03),
    };
    Plan { entries, load, stages: [A, B, C, F, D, E].map(stage).to_vec(), ..base }
});
/// A store that is killed with updates in its log, and opened again.
pub(super) const KILLED: Run = run("nvlsm-killed", SCALE, |setting| {
    let entries = vec![ours(setting, NVLSM, "nvlsm,floors=10", PCM)];
    let stages = vec![
        stage(setting, Workload::W, 0.01),
        stage(setting, Workload::W20, 0.01),
        stage(setting, Workload::C, 0.001),
    ];
    Plan { entries, stages, rounds: 1, killed: true, ..base(setting) }
});
/// The same trees on a fast and a capacity tier, in blocks.
pub(super) const BLOCK: Run = run("nvlsm-block", SCALE, |setting| {
    let kinds = [(NVLSM, "nvlsm,floors=10"), (LEVELED, LEVELED), (FRAGMENTED, FRAGMENTED), (BY_LOAD, NVLSM)];
    let tiered = |(name, variant): (&str, &str)| {
        let kind = format!("cuesta:{variant},{}", shape(setting));
        Entry { name: name.to_owned(), kind, spread: Spread::Tiered }
    };
    let base = base(setting);
    let memory_bytes = (base.data_bytes / MEMORY_SHARE).max(cuesta::MEMORY_BYTES_MIN);
    Plan {
        entries: kinds.map(tiered).to_vec(),
        stages: vec![
            updated(setting, Workload::C, 0.003),
            updated(setting, Workload::Seek, 0.0012),
            writes(setting, Workload::W),
        ],
        fast_bytes: (base.data_bytes / FAST_SHARE).max(ROOM_BYTES_MIN),
        capacity_bytes: base.data_bytes * CAPACITY_TIMES,
        memory_bytes,
        devices: Devices {
            models: "fast=nvme,capacity=qlc".to_owned(),
            page_cache_bytes: memory_bytes / 2,
            seed: setting.seed,
        },
        ..base
    }
});
/// Stores that write through a file system in memory; ours is on memory that is as fast.
pub(super) const PEERS: Run = run("nvlsm-peers", SCALE, |setting| {
    let peer =
        |name: &str| Entry { name: name.to_owned(), kind: name.to_owned(), spread: Spread::Only("fast") };
    let memory = "nvdimm,filter=10";
    let entries = vec![
        ours(setting, LEVELED, LEVELED, memory),
        ours(setting, NVLSM, "nvlsm,floors=10", memory),
        peer(ROCKSDB),
        peer(FJALL),
    ];
    Plan { entries, stages: vec![reads(setting)], ..base(setting) }
});

const PCM: &str = "pcm,filter=0";

fn records(setting: &Setting) -> u64 {
    (RECORDS * setting.scale) as u64
}

/// Bytes of a run of level 0.
fn run_bytes(setting: &Setting) -> u64 {
    ((records(setting) as f64 * RUN_SHARE) as u64).max(RUN_BYTES_MIN)
}

/// What gives a store of ours the paper's shape.
fn shape(setting: &Setting) -> String {
    let run = run_bytes(setting);
    format!("table={run},memtable={run},level0=10")
}

/// A store of ours on memory of that model.
fn ours(setting: &Setting, name: &str, variant: &str, memory: &str) -> Entry {
    let kind = format!("cuesta:{variant},{},pmem={memory}", shape(setting));
    Entry { name: name.to_owned(), kind, spread: Spread::Only("fast") }
}

fn all_three(setting: &Setting, memory: &str) -> Vec<Entry> {
    let variants = [(NVLSM, "nvlsm,floors=10"), (LEVELED, LEVELED), (FRAGMENTED, FRAGMENTED)];
    variants.map(|(name, variant)| ours(setting, name, variant, memory)).to_vec()
}

/// So many operations for each record in a turn.
fn stage(setting: &Setting, workload: Workload, each: f64) -> Stage {
    let operations = ((records(setting) as f64 * each) as u64).max(1);
    Stage::new(workload, Length::Operations(operations))
}

/// The same, with updates before each turn.
fn updated(setting: &Setting, workload: Workload, each: f64) -> Stage {
    let updates = UPDATED_RUNS * run_bytes(setting) as f64 / ENTRY_BYTES;
    Stage { updates: Some(updates as u64), ..stage(setting, workload, each) }
}

fn writes(setting: &Setting, workload: Workload) -> Stage {
    stage(setting, workload, 0.06)
}

fn reads(setting: &Setting) -> Stage {
    updated(setting, Workload::C, 0.03)
}

fn main_on(setting: &Setting, memory: &str) -> Plan {
    use Workload::{A, Range48, Range1024, Seek, W, W20, W80};
    let ranges = [
        updated(setting, Seek, 0.012),
        updated(setting, Range48, 0.006),
        updated(setting, Range1024, 0.0006),
    ];
    let stages = std::iter::once(reads(setting))
        .chain(ranges)
        .chain([W, W80, A, W20].map(|workload| writes(setting, workload)))
        .collect();
    Plan { entries: all_three(setting, &format!("{memory},filter=0")), stages, ..base(setting) }
}

fn loads(setting: &Setting, value_bytes: usize) -> Plan {
    let fewer = Setting { scale: setting.scale / 4.0, ..setting.clone() };
    let plan = of_values(&fewer, value_bytes);
    Plan { entries: all_three(&fewer, PCM), ..plan }
}

fn base(setting: &Setting) -> Plan {
    of_values(setting, VALUE_BYTES)
}

fn of_values(setting: &Setting, value_bytes: usize) -> Plan {
    let data_bytes = records(setting) * (Keys::Short.bytes() + value_bytes as u64);
    // Entries of short values take more than these.
    let room = ROOM_BYTES_MIN + (data_bytes + records(setting) * 64) * ROOM_TENTHS / 10;
    Plan {
        entries: Vec::new(),
        stages: Vec::new(),
        load: Config {
            workload: Workload::Load,
            records: records(setting),
            length: Length::Operations(records(setting)),
            threads: 1,
            keys: Keys::Short,
            values: Values::Fixed(value_bytes),
            distribution: Some(Distribution::Uniform),
            theta: 0.99,
            seed: setting.seed,
            phase: 0,
        },
        rounds: ROUNDS,
        killed: false,
        grouped: true,
        dir: setting.dir.clone(),
        fast_bytes: room,
        capacity_bytes: room,
        memory_bytes: MEMORY_BYTES,
        data_bytes,
        durability: "os".to_owned(),
        profile: "leveled".to_owned(),
        devices: Devices { models: String::new(), page_cache_bytes: 0, seed: setting.seed },
        scale: Some(setting.scale),
    }
}
