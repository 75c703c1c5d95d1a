//! What several turns say together: plain functions of what was measured.

use super::run::{Contender, Record, Turn};
use cuesta_bench::contender::Usage;
use cuesta_bench::{Measured, Operation, Workload};
use cuesta_model::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The middle of some numbers and of their halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quartiles {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
}

impl Quartiles {
    /// By interpolation between neighbours; `None` of no numbers, or where one is none.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        if sorted.is_empty() || sorted.iter().any(|number| !number.is_finite()) {
            return None;
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self { lower: at(0.25), median: at(0.5), upper: at(0.75) })
    }
}

/// One turn in the numbers that are compared.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) operations_per_second: f64,
    /// Of the slowest kind of operation, and of each, as [`Operation::ALL`] has them, of which there were some.
    pub(crate) p99_us: f64,
    #[serde(default)]
    pub(crate) p99_us_of: [Option<f64>; Operation::ALL.len()],
    /// Of processor, with the work in the background.
    pub(crate) cpu_us: f64,
    /// Calls of devices for each operation.
    pub(crate) device_calls: Option<f64>,
    /// By tier: bytes written for each byte of keys and values.
    pub(crate) written: [Option<f64>; 2],
    /// By tier: lookups of a device for each operation that reads.
    pub(crate) reads: [Option<f64>; 2],
}

/// How often operations of this kind were made.
fn count(measured: &Measured, operation: Operation) -> u64 {
    measured.operations.iter().filter(|of| of.operation == operation).map(|of| of.count).sum()
}

/// Bytes of keys and values that a turn wrote, about.
fn user_bytes(turn: &Turn) -> u64 {
    let writes = [Operation::Update, Operation::Insert, Operation::ReadModifyWrite];
    let written: u64 = writes.into_iter().map(|operation| count(&turn.ran.result.measured, operation)).sum();
    let config = &turn.ran.result.config;
    (written as f64 * (config.keys.bytes() as f64 + config.values.mean_bytes())) as u64
}

/// Bytes that a turn wrote to the capacity tier, if its contender has one that is counted.
fn capacity_bytes(turn: &Turn) -> Option<u64> {
    turn.ran.usage.counts.filter(|_| turn.tiers[1]).map(|counts| counts.tiers[1].written_bytes)
}

/// What is written for each byte in all turns, of which some write more than others.
fn of_all(turns: impl Iterator<Item = Option<(u64, u64)>>) -> Option<f64> {
    let (written, bytes): (Vec<u64>, Vec<u64>) = turns.collect::<Option<Vec<_>>>()?.into_iter().unzip();
    part_of(written.iter().sum(), bytes.iter().sum())
}

/// The part of so many; `None` of none.
fn part_of(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

impl Numbers {
    pub(crate) fn of(turn: &Turn) -> Self {
        let (measured, usage) = (&turn.ran.result.measured, &turn.ran.usage);
        let operations = measured.operations.iter().map(|of| of.count).sum::<u64>() as f64;
        let reads: u64 =
            [Operation::Read, Operation::ReadModifyWrite].into_iter().map(|of| count(measured, of)).sum();
        let user_bytes = user_bytes(turn);
        let tier = |i: usize| usage.counts.map(|counts| counts.tiers[i]).filter(|_| turn.tiers[i]);
        Self {
            operations_per_second: measured.operations_per_second,
            p99_us: measured.operations.iter().map(|of| of.latency.p99_us).fold(0.0, f64::max),
            p99_us_of: Operation::ALL.map(|kind| {
                let mut of_kind =
                    measured.operations.iter().filter(|of| of.operation == kind && of.count > 0);
                of_kind.next().map(|of| of.latency.p99_us)
            }),
            cpu_us: usage.cpu_seconds * 1e6 / operations,
            device_calls: calls(usage).map(|calls| calls as f64 / operations),
            written: [0, 1].map(|i| tier(i).and_then(|tier| part_of(tier.written_bytes, user_bytes))),
            reads: [0, 1].map(|i| tier(i).and_then(|tier| part_of(tier.point_reads, reads))),
        }
    }
}

/// Waiting may take so much of what the machine's processors can do in a turn.
const BURNT_MAX: f64 = 0.05;

/// What waiting for modelled devices took of the processors in a contender's turns, all together.
pub(crate) fn burnt(record: &Record, contender: &str) -> Option<f64> {
    let turns = || record.turns.iter().filter(|turn| turn.contender == contender);
    let nanos = turns().map(|turn| Some(turn.ran.usage.counts?.burnt_nanos)).sum::<Option<u64>>()?;
    let seconds: f64 =
        turns().map(|turn| turn.ran.result.measured.seconds + turn.ran.usage.settle_seconds).sum();
    share(Duration::from_nanos(nanos), Duration::from_secs_f64(seconds), record.processors)
}

/// The part of what the processors could do in some time; `None` of no time.
pub(crate) fn share(took: Duration, of: Duration, processors: u32) -> Option<f64> {
    let share = took.as_secs_f64() / (of.as_secs_f64() * f64::from(processors));
    share.is_finite().then_some(share)
}

/// Why figures say nothing if waiting took so much of the processors.
pub(crate) fn waited_too_long(share: f64) -> Option<String> {
    (share > BURNT_MAX).then(|| format!("waiting took {:.1} % of the processors", 100.0 * share))
}

/// What a contender's turns took of the processor, with the work in the background that came of them.
pub(crate) fn cpu_seconds(record: &Record, contender: &str) -> f64 {
    let turns = record.turns.iter().filter(|turn| turn.contender == contender);
    turns.map(|turn| turn.ran.usage.cpu_seconds).sum()
}

/// Why a contender's figures say nothing, if they do not.
pub(crate) fn invalid(record: &Record, contender: &Contender) -> Option<String> {
    let passed_by = contender.devices.as_ref().and_then(Report::invalid);
    passed_by.or_else(|| waited_too_long(burnt(record, &contender.name)?))
}

/// Peaks of memory further apart than this are told beside the figures.
const MEMORY_APART_MAX: f64 = 0.05;

/// How many times as much memory a contender held at most as the first, if that is not about as much.
pub(crate) fn memory_apart(record: &Record, contender: &str) -> Option<f64> {
    let first = &record.contenders.first()?.name;
    let peak = |name: &str| {
        let turns = record.turns.iter().filter(|turn| turn.contender == name);
        turns.map(|turn| turn.ran.usage.anonymous_bytes_peak).max()
    };
    apart(peak(contender)?, peak(first)?)
}

fn apart(bytes: u64, of_first: u64) -> Option<f64> {
    let times = bytes as f64 / of_first as f64;
    (times.is_finite() && (times - 1.0).abs() > MEMORY_APART_MAX).then_some(times)
}

fn calls(usage: &Usage) -> Option<u64> {
    let tiers = usage.counts?.tiers;
    Some(tiers.iter().map(|tier| tier.reads + tier.writes + tier.flushes).sum())
}

impl Ratio {
    /// The p99 of each kind of operation, where there are several, as text.
    pub(crate) fn p99_by_kind(&self) -> Option<String> {
        let of = self.p99_of.iter().map(|(kind, of)| format!("{kind} {:.2}", of.median));
        (self.p99_of.len() > 1).then(|| of.collect::<Vec<_>>().join(", "))
    }
}

/// One workload: the first contender beside another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) workload: Workload,
    pub(crate) peer: String,
    /// Operations per second, ours over the peer's, turn by turn.
    pub(crate) throughput: Quartiles,
    /// The slowest kind's p99, ours over the peer's, and each kind's by its name.
    pub(crate) p99: Quartiles,
    #[serde(default)]
    pub(crate) p99_of: BTreeMap<String, Quartiles>,
    /// Processor for each operation, ours over the peer's.
    pub(crate) cpu: Option<Quartiles>,
    /// Bytes written to the capacity tier for each byte of ours and of the peer's; of all turns together.
    pub(crate) capacity_written: Option<[f64; 2]>,
}

/// Workloads in the order in which they were run.
pub(crate) fn workloads(record: &Record) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for turn in &record.turns {
        if !workloads.contains(&turn.workload) {
            workloads.push(turn.workload);
        }
    }
    workloads
}

/// The turns of a contender at a workload.
pub(crate) fn turns<'a>(
    record: &'a Record,
    workload: Workload,
    contender: &str,
) -> impl Iterator<Item = &'a Turn> {
    record.turns.iter().filter(move |turn| turn.workload == workload && turn.contender == contender)
}

/// The first contender beside each of the others, at each workload.
pub(crate) fn ratios(record: &Record) -> Vec<Ratio> {
    let Some((ours, peers)) = record.contenders.split_first() else { return Vec::new() };
    let ratio = |workload: Workload, peer: &str| {
        let numbers =
            |name: &str| -> Vec<Numbers> { turns(record, workload, name).map(Numbers::of).collect() };
        let (a, b) = (numbers(&ours.name), numbers(peer));
        let of =
            |number: fn(&Numbers) -> f64| Quartiles::of(a.iter().zip(&b).map(|(a, b)| number(a) / number(b)));
        let written = |name: &str| {
            let of = |turn: &Turn| Some((capacity_bytes(turn)?, user_bytes(turn)));
            of_all(turns(record, workload, name).map(of))
        };
        let p99_of = |(i, kind): (usize, Operation)| {
            let ratios = a.iter().zip(&b).map(|(a, b)| Some(a.p99_us_of[i]? / b.p99_us_of[i]?));
            Some((kind.name().to_owned(), Quartiles::of(ratios.collect::<Option<Vec<f64>>>()?)?))
        };
        Some(Ratio {
            workload,
            peer: peer.to_owned(),
            throughput: of(|numbers| numbers.operations_per_second)?,
            p99: of(|numbers| numbers.p99_us)?,
            p99_of: Operation::ALL.into_iter().enumerate().filter_map(p99_of).collect(),
            cpu: of(|numbers| numbers.cpu_us),
            capacity_written: written(&ours.name).zip(written(peer)).map(|(a, b)| [a, b]),
        })
    };
    let mut all = Vec::new();
    for workload in workloads(record) {
        all.extend(peers.iter().filter_map(|peer| ratio(workload, &peer.name)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_may_take_a_twentieth_of_all_processors() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let shares = [50, 51].map(|millis| share(Duration::from_millis(2 * millis), second, 2).unwrap());
        assert_eq!(
            shares.map(waited_too_long),
            [None, Some("waiting took 5.1 % of the processors".to_owned())]
        );
        assert_eq!((share(second, hour, 1), share(second, Duration::ZERO, 2)), (Some(1.0 / 3600.0), None));
    }

    #[test]
    fn memory_is_told_where_it_is_not_about_equal() {
        assert_eq!([96, 100, 104].map(|bytes| apart(bytes, 100)), [None; 3]);
        assert_eq!((apart(94, 100), apart(150, 100), apart(1, 0)), (Some(0.94), Some(1.5), None));
    }

    #[test]
    fn each_kind_s_p99_is_told_where_there_are_several() {
        let of = |median| Quartiles { median, ..Quartiles::default() };
        let ratio = |kinds: &[(&str, f64)]| Ratio {
            workload: Workload::A,
            peer: "peer".to_owned(),
            throughput: of(1.0),
            p99: of(2.0),
            p99_of: kinds.iter().map(|(kind, median)| ((*kind).to_owned(), of(*median))).collect(),
            cpu: None,
            capacity_written: None,
        };
        assert_eq!(ratio(&[("read", 1.0)]).p99_by_kind(), None);
        let told = ratio(&[("read", 0.5), ("update", 2.0)]).p99_by_kind();
        assert_eq!(told.as_deref(), Some("read 0.50, update 2.00"));
    }

    #[test]
    fn turns_count_by_what_they_write() {
        assert_eq!(of_all([Some((10, 1)), Some((0, 9))].into_iter()), Some(1.0));
        assert_eq!(of_all([Some((10, 1)), None].into_iter()), None);
        assert_eq!(of_all([Some((10, 0))].into_iter()), None);
    }

    #[test]
    fn quartiles_are_interpolated() {
        let of = |numbers: &[f64]| Quartiles::of(numbers.iter().copied());
        assert_eq!(of(&[5.0, 1.0, 3.0, 2.0, 4.0]), Some(Quartiles { lower: 2.0, median: 3.0, upper: 4.0 }));
        assert_eq!(of(&[1.0, 2.0]), Some(Quartiles { lower: 1.25, median: 1.5, upper: 1.75 }));
        assert_eq!((of(&[]), of(&[1.0, f64::NAN])), (None, None));
    }
}
