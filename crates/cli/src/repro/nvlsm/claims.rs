//! What the paper says of NVLSM, asked of profile `nvlsm`.

use super::plans::{BY_FLOORS, BY_LOAD, FRAGMENTED, LEVELED, NVLSM};
use crate::measure::run::{Record, Turn};
use crate::measure::summary::turns;
use crate::repro::numbers::{each, mean, over, over_all, statement};
use crate::repro::{Statement, Target};
use cuesta_bench::{Operation, Values, Workload};

/// Ours and another way of compaction.
const LEVELED_BESIDE: (&str, &str) = (NVLSM, LEVELED);
const FRAGMENTED_BESIDE: (&str, &str) = (NVLSM, FRAGMENTED);

/// What the store itself counted in a turn.
pub(super) fn counter(turn: &Turn, name: &str) -> Option<f64> {
    turn.ran.usage.counters.get(name).map(|number| *number as f64)
}

fn count(turn: &Turn, operations: &[Operation]) -> f64 {
    let all = turn.ran.result.measured.operations.iter();
    all.filter(|of| operations.contains(&of.operation)).map(|of| of.count).sum::<u64>() as f64
}

/// Microseconds for each operation, until the store had nothing left to do.
pub(super) fn time(turn: &Turn) -> Option<f64> {
    let seconds = turn.ran.result.measured.seconds + turn.ran.usage.settle_seconds;
    Some(seconds * 1e6 / count(turn, &Operation::ALL))
}

/// Bytes that were written, with the log or without it.
fn written(turn: &Turn, with_log: bool) -> f64 {
    let counters = turn.ran.usage.counters.iter();
    let bytes =
        counters.filter(|(name, _)| name.starts_with("written:") && (with_log || !name.ends_with(":log")));
    bytes.map(|(_, bytes)| *bytes).sum::<u64>() as f64
}

/// Bytes of keys and values of so many records.
fn data(turn: &Turn, records: f64) -> Option<f64> {
    let config = &turn.ran.result.config;
    let Values::Fixed(value_bytes) = config.values else { return None };
    Some(records * (config.keys.bytes() as f64 + value_bytes as f64))
}

/// Operations that wrote.
pub(super) fn updates(turn: &Turn) -> f64 {
    count(turn, &[Operation::Insert, Operation::Update, Operation::ReadModifyWrite])
}

/// Bytes written for each byte of keys and values.
pub(super) fn amplification(turn: &Turn, with_log: bool) -> Option<f64> {
    Some(written(turn, with_log) / data(turn, updates(turn))?)
}

fn with_log(turn: &Turn) -> Option<f64> {
    amplification(turn, true)
}

fn per_get(turn: &Turn, name: &str) -> Option<f64> {
    Some(counter(turn, name)? / count(turn, &[Operation::Read, Operation::ReadModifyWrite]))
}

/// Cache lines touched by a read.
pub(super) fn lines_per_get(turn: &Turn) -> Option<f64> {
    per_get(turn, "touched:gets")
}

/// Bytes looked at by a read.
pub(super) fn bytes_per_get(turn: &Turn) -> Option<f64> {
    per_get(turn, "touched:gets:bytes")
}

pub(super) fn gauge(turn: &Turn, name: &str) -> Option<f64> {
    turn.ran.usage.gauges.get(name).map(|number| *number as f64)
}

/// Room taken for each byte of keys and values.
pub(super) fn room(turn: &Turn) -> Option<f64> {
    Some(gauge(turn, "used")? / data(turn, turn.ran.result.config.records as f64)?)
}

pub(super) fn figure_9(records: &[&Record]) -> Vec<Statement> {
    use Workload::{C, Load};
    let record = records[0];
    vec![
        statement(
            "fig9.wa",
            "bytes written by a load in random order, log included, over those of leveled compaction",
            0.34,
            Target::AtMost(0.40),
            over_all(record, Load, LEVELED_BESIDE, with_log),
        ),
        statement(
            "fig9.wa_fragmented",
            "and over those of fragmented compaction",
            1.0,
            Target::AtMost(1.15),
            over_all(record, Load, FRAGMENTED_BESIDE, with_log),
        ),
        statement(
            "fig9.ra",
            "cache lines that a get touches, over those of leveled compaction",
            1.67,
            Target::AtMost(1.8),
            over_all(record, C, LEVELED_BESIDE, lines_per_get),
        ),
        statement(
            "fig9.ra_fragmented",
            "and over those of fragmented compaction",
            0.305,
            Target::AtMost(0.5),
            over_all(record, C, FRAGMENTED_BESIDE, lines_per_get),
        ),
        statement(
            "fig9.space",
            "room taken after the load over that of fragmented compaction",
            1.027,
            Target::AtMost(1.05),
            over_all(record, Load, FRAGMENTED_BESIDE, room),
        ),
    ]
}

/// How many of these numbers are more than the one before.
fn rises(numbers: &[Option<f64>]) -> Vec<f64> {
    let step = |pair: &[Option<f64>]| Some(f64::from(pair[1]? > pair[0]?));
    numbers.windows(2).map(step).sum::<Option<f64>>().into_iter().collect()
}

pub(super) fn figure_10(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let by_floors = |workload, number: fn(&Turn) -> Option<f64>| {
        BY_FLOORS.iter().skip(1).map(|(name, _)| mean(record, workload, name, number)).collect::<Vec<_>>()
    };
    let mut written = by_floors(Workload::Load, with_log);
    written.reverse();
    vec![
        statement(
            "fig10.floors.wa",
            "2, 4, 10, 20 floors: of three steps, so many write less",
            3.0,
            Target::AtLeast(3.0),
            rises(&written),
        ),
        statement(
            "fig10.floors.ra",
            "and so many have gets touch more lines",
            3.0,
            Target::AtLeast(3.0),
            rises(&by_floors(Workload::C, lines_per_get)),
        ),
        statement(
            "fig10.floors.one",
            "with one floor as many bytes are written as by leveled compaction",
            1.0,
            Target::Between(0.97, 1.03),
            over_all(record, Workload::Load, (BY_FLOORS[0].0, LEVELED), with_log),
        ),
    ]
}

/// How much longer the faster of the other two ways takes than ours.
fn lead(record: &Record, workload: Workload) -> Vec<f64> {
    let times = |contender| -> Vec<f64> { turns(record, workload, contender).filter_map(time).collect() };
    let others = times(LEVELED).into_iter().zip(times(FRAGMENTED)).map(|(a, b)| a.min(b));
    others.zip(times(NVLSM)).map(|(other, ours)| other / ours).collect()
}

pub(super) fn figure_11(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    vec![
        statement(
            "fig11.w100",
            "updates only: time over that of fragmented compaction",
            1.0,
            Target::AtMost(1.1),
            over(record, Workload::W, FRAGMENTED_BESIDE, time),
        ),
        statement(
            "fig11.w80",
            "four fifths updates: time of the better of the other ways over ours",
            1.19,
            Target::AtLeast(1.1),
            lead(record, Workload::W80),
        ),
        statement(
            "fig11.w50",
            "half updates: the same",
            1.32,
            Target::AtLeast(1.1),
            lead(record, Workload::A),
        ),
        statement(
            "fig11.w0",
            "reads only: time over that of leveled compaction",
            1.07,
            Target::AtMost(1.15),
            over(record, Workload::C, LEVELED_BESIDE, time),
        ),
    ]
}

pub(super) fn figure_14(records: &[&Record]) -> Vec<Statement> {
    let load = |record: &Record, contender: &str| -> f64 {
        let turns: Vec<f64> = turns(record, Workload::Load, contender).filter_map(time).collect();
        turns.iter().sum::<f64>() / turns.len() as f64
    };
    let growth = |contender| load(records[2], contender) / load(records[0], contender);
    vec![statement(
        "fig14.values",
        "time of a put of 512 bytes over one of 8, over the same of leveled compaction",
        0.86,
        Target::AtMost(1.0),
        vec![growth(NVLSM) / growth(LEVELED)],
    )]
}

pub(super) fn figure_15(records: &[&Record]) -> Vec<Statement> {
    use Workload::{Range48, Range1024, Seek};
    let of = |id, claim, paper, most, workload, pair| {
        statement(id, claim, paper, Target::AtMost(most), over(records[0], workload, pair, time))
    };
    vec![
        of("fig15.seek", "a seek over leveled compaction's", 1.11, 1.15, Seek, LEVELED_BESIDE),
        of("fig15.seek.fragmented", "and over fragmented compaction's", 0.57, 0.7, Seek, FRAGMENTED_BESIDE),
        of("fig15.r48", "a range of 48 over leveled compaction's", 1.235, 1.3, Range48, LEVELED_BESIDE),
        of(
            "fig15.r48.fragmented",
            "and over fragmented compaction's",
            0.67,
            0.75,
            Range48,
            FRAGMENTED_BESIDE,
        ),
        of(
            "fig15.r1024",
            "a range of 1,024 over leveled compaction's",
            1.16,
            1.25,
            Range1024,
            LEVELED_BESIDE,
        ),
    ]
}

pub(super) fn figure_16(records: &[&Record]) -> Vec<Statement> {
    // Over the load and all workloads.
    let sum = |contender: &str, number: fn(&Turn) -> f64| -> f64 {
        records[0].turns.iter().filter(|turn| turn.contender == contender).map(number).sum()
    };
    let times = |other, number| sum(NVLSM, number) / sum(other, number);
    vec![
        statement(
            "fig16.bytes",
            "bytes written over the load and A to F, log included, over leveled compaction's",
            0.17,
            Target::AtMost(0.4),
            vec![times(LEVELED, |turn| written(turn, true))],
        ),
        statement(
            "fig16.bytes.read",
            "cache lines read by all, merges included, over fragmented compaction's",
            0.36,
            Target::AtMost(0.5),
            vec![times(FRAGMENTED, |turn| counter(turn, "touched").unwrap_or(f64::NAN))],
        ),
    ]
}

pub(super) fn figure_17(records: &[&Record]) -> Vec<Statement> {
    let of = |id, claim, paper, least, workload| {
        statement(id, claim, paper, Target::AtLeast(least), lead(records[0], workload))
    };
    vec![
        of("fig17.a", "A: operations a second over the better of the other two ways", 1.26, 1.2, Workload::A),
        of("fig17.f", "F: the same", 1.49, 1.3, Workload::F),
    ]
}

pub(super) fn figure_18(records: &[&Record]) -> Vec<Statement> {
    let rate = |turn: &Turn| time(turn).map(|micros| 1.0 / micros);
    vec![statement(
        "fig18.b",
        "B, floors following the load: operations a second over leveled compaction's",
        1.0,
        Target::AtLeast(1.0),
        over(records[0], Workload::B, (BY_LOAD, LEVELED), rate),
    )]
}

/// Seconds that opening a store took that had been killed: with what its log took, and without.
pub(super) fn opened(turn: &Turn) -> Option<[f64; 2]> {
    let seconds = |name| Some(gauge(turn, name)? / 1e6);
    let all = seconds("open:micros")?;
    Some([all, all - seconds("open:log:micros")?])
}

pub(super) fn section_6_4(records: &[&Record]) -> Vec<Statement> {
    let of_ten_million = |turn: &Turn| Some(opened(turn)?[1] * 1e7 / turn.ran.result.config.records as f64);
    let after_kills = records[0].turns.iter().filter(|turn| turn.workload != Workload::Load);
    vec![statement(
        "s64.recovery",
        "seconds to open after a kill, for each ten million pairs, without those that the log takes",
        0.1,
        Target::AtMost(1.0),
        after_kills.filter_map(of_ten_million).collect(),
    )]
}

/// Calls to devices for each get.
pub(super) fn reads_per_get(turn: &Turn) -> Option<f64> {
    let counters = turn.ran.usage.counters.iter();
    let by_readers = |name: &str| name.ends_with(":user read") || name.ends_with(":index");
    let reads = counters.filter(|(name, _)| name.starts_with("reads:") && by_readers(name));
    Some(reads.map(|(_, reads)| *reads).sum::<u64>() as f64 / count(turn, &[Operation::Read]))
}

pub(super) fn block(records: &[&Record]) -> Vec<Statement> {
    let record = records[0];
    let of = |contender| each(record, Workload::C, contender, reads_per_get);
    let more = of(NVLSM).into_iter().zip(of(LEVELED)).map(|(ours, leveled)| ours - leveled).collect();
    let at_most = |id, claim, most, measured| statement(id, claim, most, Target::AtMost(most), measured);
    vec![
        at_most(
            "block.wa",
            "on a fast and a capacity tier: bytes written by a load in random order, log included, over leveled compaction's",
            0.5,
            over_all(record, Workload::Load, LEVELED_BESIDE, with_log),
        ),
        at_most("block.reads", "device reads a get, more than leveled compaction's", 0.2, more),
        at_most(
            "block.seek",
            "a seek over leveled compaction's",
            1.5,
            over(record, Workload::Seek, LEVELED_BESIDE, time),
        ),
    ]
}
