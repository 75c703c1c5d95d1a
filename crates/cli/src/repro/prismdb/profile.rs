//! What the paper says of PrismDB, asked of profile `prismdb`.

use super::plans::{FIXED, LEVELED, PRECISE, PRISMDB, RANDOM, ROCKSDB};
use crate::measure::run::{Record, Turn};
use crate::measure::summary::{Numbers, turns};
use crate::model::{LOADS, STORE_BYTES};
use crate::repro::numbers::{each, over, over_all, rate, statement};
use crate::repro::{Statement, Target};
use cuesta_bench::{Operation, Workload, oracle as best_placement};
use cuesta_model::{Spec, lifetime_years};

/// A modelled read of QLC, in microseconds: its median.
const SLOW_READ_US: f64 = 391.0;

fn p99(turn: &Turn) -> Option<f64> {
    Some(Numbers::of(turn).p99_us)
}

fn read_p99(turn: &Turn) -> Option<f64> {
    let reads = turn.ran.result.measured.operations.iter().find(|of| of.operation == Operation::Read);
    reads.map(|reads| reads.latency.p99_us)
}

fn operations(turn: &Turn) -> f64 {
    turn.ran.result.measured.operations.iter().map(|of| of.count).sum::<u64>() as f64
}

/// Bytes written for each operation: to the fast tier, to the capacity tier.
fn written(turn: &Turn) -> Option<[f64; 2]> {
    let counts = turn.ran.usage.counts?;
    Some([0, 1].map(|tier| counts.tiers[tier].written_bytes as f64 / operations(turn)))
}

fn written_below(turn: &Turn) -> Option<f64> {
    written(turn).map(|[_, below]| below)
}

fn written_in_all(turn: &Turn) -> Option<f64> {
    written(turn).map(|written| written.iter().sum())
}

/// Share of the reads that reach the capacity tier.
fn slow_reads(turn: &Turn) -> Option<f64> {
    Numbers::of(turn).reads[1]
}

const OURS: (&str, &str) = (PRISMDB, ROCKSDB);

pub(super) fn figure_5(records: &[&Record]) -> Vec<Statement> {
    let probes = |contender| {
        let sum = |name: &str| -> f64 {
            let turns = turns(records[0], Workload::A, contender);
            turns.filter_map(|turn| turn.ran.usage.counters.get(name)).sum::<u64>() as f64
        };
        sum("probes") / sum("selections")
    };
    let below = |pair| over_all(records[0], Workload::A, pair, written_below);
    vec![
        statement(
            "fig5.flash_writes",
            "choosing at random writes 2.5 times as much to flash as weighing every range",
            2.5,
            Target::AtLeast(2.0),
            below((RANDOM, PRECISE)),
        ),
        statement(
            "fig5.approx_writes",
            "weighing a few ranges writes nearly as little to flash as weighing all",
            1.0,
            Target::AtMost(1.15),
            below((PRISMDB, PRECISE)),
        ),
        statement(
            "fig5.approx_cost",
            "weighing a few ranges asks for a fraction of the objects (25 s went down to 1.7)",
            1.7 / 25.0,
            Target::AtMost(1.0 / 20.0),
            vec![probes(PRISMDB) / probes(PRECISE)],
        ),
        statement(
            "fig5.approx_cost.throughput",
            "and is no slower",
            1.0,
            Target::AtLeast(1.0),
            over(records[0], Workload::A, (PRISMDB, PRECISE), rate),
        ),
    ]
}

pub(super) fn figure_7(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let faster = |workload| over(record, workload, OURS, rate);
    let tail = |workload| over(record, workload, OURS, p99);
    let slow = |workload| -> Vec<f64> {
        each(record, workload, PRISMDB, read_p99).iter().map(|us| us / SLOW_READ_US).collect()
    };
    let throughput = [
        ("fig7.a", "A: operations a second over a tiered RocksDB's", Workload::A, 2.4, 2.0),
        ("fig7.b", "B: the same", Workload::B, 2.5, 1.7),
        ("fig7.c", "C: the same", Workload::C, 2.5, 1.7),
        ("fig7.d", "D: the same", Workload::D, 2.5, 1.7),
        ("fig7.e", "E, scans: the same, where the paper's is slower than RocksDB", Workload::E, 1.0, 1.0),
        ("fig7.f", "F: the same", Workload::F, 2.4, 2.0),
    ];
    let of_rocksdb =
        [("fig7.p99.a", "A: p99 over RocksDB's", Workload::A), ("fig7.p99.f", "F: the same", Workload::F)];
    let of_a_read = [
        ("fig7.p99.b", "B: p99 of reads over one slow read", Workload::B),
        ("fig7.p99.c", "C: the same", Workload::C),
        ("fig7.p99.d", "D: the same", Workload::D),
    ];
    let mut all = Vec::new();
    for (id, claim, workload, paper, target) in throughput {
        let of = statement(id, claim, paper, Target::AtLeast(target), faster(workload));
        all.push(if target < paper { of.stretching_to(paper) } else { of });
    }
    for (id, claim, workload) in of_rocksdb {
        all.push(statement(id, claim, 0.5, Target::AtMost(0.5), tail(workload)));
    }
    for (id, claim, workload) in of_a_read {
        all.push(statement(id, claim, 1.0, Target::AtMost(1.25), slow(workload)));
    }
    all
}

pub(super) fn figure_8(records: &[&Record]) -> Vec<Statement> {
    let ids = ["fig8.skew.0.6", "fig8.skew.0.8", "fig8.skew.0.99", "fig8.skew.1.2", "fig8.skew.uniform"];
    let claim = "A with this skew: operations a second over a tiered RocksDB's";
    let judge = |(nth, id): (usize, &'static str)| {
        let measured = over(records[nth], Workload::A, OURS, rate);
        statement(id, claim, 1.0, Target::AtLeast(1.0), measured).of_run(nth)
    };
    ids.into_iter().enumerate().map(judge).collect()
}

pub(super) fn figure_9(records: &[&Record]) -> Vec<Statement> {
    let of = |id, claim, workload| {
        statement(id, claim, 6.4, Target::AtLeast(3.0), over(records[0], workload, OURS, rate))
            .stretching_to(4.0)
    };
    vec![
        of("fig9.sync.a", "A, every write synced: operations a second over a tiered RocksDB's", Workload::A),
        of("fig9.sync.f", "F: the same", Workload::F),
    ]
}

pub(super) fn figure_10(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let all = |other| over_all(record, Workload::A, (PRISMDB, other), written_in_all);
    let years = || {
        let below = each(record, Workload::A, PRISMDB, written_below);
        let mean = below.iter().sum::<f64>() / below.len() as f64;
        let qlc = Spec::preset("qlc").ok()?;
        Some(lifetime_years(&qlc, STORE_BYTES as u64, mean * LOADS[0]))
    };
    vec![
        statement(
            "fig10.total",
            "A writes fewer bytes to both tiers together than RocksDB",
            1.0,
            Target::AtMost(1.0),
            all(ROCKSDB),
        ),
        statement("fig10.total.leveled", "and than profile leveled", 1.0, Target::AtMost(1.0), all(LEVELED)),
        statement(
            "fig10.total.flash",
            "and to flash hardly more than RocksDB",
            1.2,
            Target::AtMost(1.2),
            over_all(record, Workload::A, OURS, written_below),
        ),
        statement(
            "fig10.life",
            "600 GB of QLC last so many years at a hundred million operations a day, half of them updates",
            3.0,
            Target::AtLeast(3.0),
            years().into_iter().collect(),
        ),
    ]
}

/// The least share of a turn's reads that a placement fixed in advance would send below, with memory less what `gauge`
/// names.
fn best(record: &Record, turn: &Turn) -> Option<f64> {
    let index = turn.ran.usage.gauges.get("memory:index").copied().unwrap_or(0);
    best_placement::best(
        &turn.ran.result.config,
        record.fast_bytes + record.memory_bytes.saturating_sub(index),
    )
}

pub(super) fn figure_11a(records: &[&Record]) -> Vec<Statement> {
    let all: Vec<&Turn> = turns(records[0], Workload::C, PRISMDB).collect();
    let closed = || {
        let (first, last) = (all.first()?, all.last()?);
        let (before, after) = (slow_reads(first)?, slow_reads(last)?);
        Some((before - after) / (before - best(records[0], last)?))
    };
    vec![statement(
        "fig11a.promote",
        "C from an empty cache and tracker: of the slow reads beyond the best placement's, so many are gone after three \
         requests a key",
        0.6,
        Target::AtLeast(0.6),
        closed().into_iter().collect(),
    )]
}

pub(super) fn figure_11b(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let of = |id, claim, workload| {
        let median = |contender: &str| {
            let mut rates = each(record, workload, contender, rate);
            rates.sort_by(f64::total_cmp);
            rates.get(rates.len() / 2).copied().unwrap_or(0.0)
        };
        let best = FIXED.map(|(name, _)| median(name)).into_iter().fold(0.0, f64::max);
        let rates = each(record, workload, PRISMDB, rate);
        let over = rates.into_iter().filter(|_| best > 0.0).map(|rate| rate / best).collect();
        statement(id, claim, 1.0, Target::AtLeast(0.97), over)
    };
    vec![
        of(
            "fig11b.threshold.a",
            "A: operations a second with the threshold found by trying over the best given",
            Workload::A,
        ),
        of("fig11b.threshold.b", "B: the same", Workload::B),
        of("fig11b.threshold.c", "C: the same", Workload::C),
    ]
}

pub(super) fn table_5(records: &[&Record]) -> Vec<Statement> {
    let rows = [
        ("table5.39", Workload::Twitter39, 1.43, 1.3),
        ("table5.19", Workload::Twitter19, 1.0, 1.0),
        ("table5.51", Workload::Twitter51, 3.2, 2.0),
    ];
    let claim = "a workload like this cluster of Twitter's: operations a second over a tiered RocksDB's";
    let judge = |(nth, (id, workload, paper, target)): (usize, (&'static str, Workload, f64, f64))| {
        let measured = over(records[nth], workload, OURS, rate);
        statement(id, claim, paper, Target::AtLeast(target), measured).of_run(nth)
    };
    rows.into_iter().enumerate().map(judge).collect()
}

pub(super) fn oracle(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let times =
        |workload| each(record, workload, PRISMDB, |turn| Some(slow_reads(turn)? / best(record, turn)?));
    let of = |id, claim, workload| {
        statement(id, claim, 1.0, Target::AtMost(1.35), times(workload)).stretching_to(1.25)
    };
    vec![
        of("oracle.b", "B: slow reads over those of the best placement fixed in advance", Workload::B),
        of("oracle.c", "C: the same", Workload::C),
    ]
}
