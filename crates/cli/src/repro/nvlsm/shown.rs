//! Figures of the paper that are printed beside what is claimed, and are judged by nobody.

use super::claims::{
    amplification, bytes_per_get, counter, gauge, lines_per_get, opened, reads_per_get, room, time, updates,
};
use super::plans::{FJALL, ROCKSDB};
use crate::measure::run::{Record, Turn};
use crate::repro::numbers::{each, mean, median, names, table};
use cuesta_bench::Workload;

/// A million over so many microseconds.
fn rate(turn: &Turn) -> Option<f64> {
    time(turn).map(|us| 1e6 / us)
}

/// A line for each contender: a number for each of these workloads.
fn by_workload(
    record: &Record,
    workloads: &[Workload],
    number: fn(&Turn) -> Option<f64>,
) -> Vec<(String, Vec<Option<f64>>)> {
    let of = |name: &str| workloads.iter().map(|workload| median(record, *workload, name, number)).collect();
    names(record).map(|name| (name.to_owned(), of(name))).collect()
}

/// Beside other stores, on memory as fast as any (Fig. 8); and how many times as fast as the fastest of these ours are.
pub(super) fn figure_8(records: &[&Record]) -> Vec<String> {
    let workloads = [Workload::Load, Workload::C];
    let rows = by_workload(records[0], &workloads, rate);
    let is_peer = |name: &str| [ROCKSDB, FJALL].contains(&name);
    let best = |i: usize| {
        let peers = rows.iter().filter(|(name, _)| is_peer(name)).filter_map(|(_, rates)| rates[i]);
        peers.reduce(f64::max)
    };
    let best: Vec<_> = (0..workloads.len()).map(best).collect();
    let over = |rates: &[Option<f64>]| -> Vec<Option<f64>> {
        rates.iter().zip(&best).map(|(ours, peer)| Some((*ours)? / (*peer)?)).collect()
    };
    let rows = rows.iter().map(|(name, rates)| (name.clone(), [rates.clone(), over(rates)].concat()));
    table(&["puts/s", "gets/s", "puts, times", "gets, times"], rows)
}

/// Amplification itself (Fig. 9).
pub(super) fn figure_9(records: &[&Record]) -> Vec<String> {
    let record = records[0];
    let row = |name: &str| {
        let of = |workload, number: fn(&Turn) -> Option<f64>| median(record, workload, name, number);
        let numbers = vec![
            of(Workload::Load, |turn| amplification(turn, true)),
            of(Workload::Load, |turn| amplification(turn, false)),
            of(Workload::W, |turn| amplification(turn, true)),
            of(Workload::W, |turn| amplification(turn, false)),
            of(Workload::C, lines_per_get),
            of(Workload::C, bytes_per_get),
            of(Workload::Load, room),
            of(Workload::W, room),
        ];
        (name.to_owned(), numbers)
    };
    let head = [
        "load: WA",
        "without log",
        "updates: WA",
        "without log",
        "lines a get",
        "bytes a get",
        "room, load",
        "updates",
    ];
    table(&head, names(record).map(row))
}

/// What makes floors durable: a fence for each of the two files of a floor, and a sync of the manifest for each edit.
/// The paper has six lines of a log flushed for each compaction, and none of what it writes (section 4.4). Tables that
/// move as they are count as merges.
pub(super) fn section_4_4(records: &[&Record]) -> Vec<String> {
    let record = records[0];
    let row = |name: &str| {
        let sum = |of: &dyn Fn(&Turn) -> Option<f64>| each(record, Workload::W, name, of).iter().sum::<f64>();
        let counted = |counter_of: &str| sum(&|turn| counter(turn, counter_of));
        let (flushes, merges) = (counted("flushes"), counted("merges"));
        let numbers = [
            counted("syncs:fast:flush") / flushes,
            counted("syncs:fast:compaction") / merges,
            counted("syncs:fast:manifest") / (flushes + merges),
            counted("lines:written") / sum(&|turn| Some(updates(turn))),
        ];
        (name.to_owned(), numbers.map(Some).to_vec())
    };
    table(&["fences a flush", "a merge", "manifest", "lines a put"], names(record).map(row))
}

/// Opening after kills (section 6.4).
pub(super) fn section_6_4(records: &[&Record]) -> Vec<String> {
    let after_kills = records[0].turns.iter().filter(|turn| turn.workload != Workload::Load);
    let row = |turn: &Turn| {
        let [all, without_log] = opened(turn).map_or([None; 2], |seconds| seconds.map(Some));
        let log = gauge(turn, "open:log:bytes").map(|bytes| bytes / f64::from(1 << 20));
        (format!("before {}", turn.workload.name()), vec![all, without_log, log])
    };
    table(&["open, s", "log apart, s", "log, MiB"], after_kills.map(row))
}

/// Operations a second by mix, on two kinds of memory (Fig. 11 and 12).
pub(super) fn figure_12(records: &[&Record]) -> Vec<String> {
    let workloads = [Workload::W, Workload::W80, Workload::A, Workload::W20, Workload::C];
    let rows = records.iter().zip(["PCM", "NVDIMM"]).flat_map(|(record, memory)| {
        let rows = by_workload(record, &workloads, rate);
        rows.into_iter().map(move |(name, numbers)| (format!("{memory}: {name}"), numbers))
    });
    table(&["100 % puts", "80 %", "50 %", "20 %", "0 %"], rows)
}

/// Operations a second of YCSB's workloads (Fig. 17 and 18).
pub(super) fn ycsb(records: &[&Record]) -> Vec<String> {
    use Workload::{A, B, C, D, E, F, Load};
    table(&["load", "a", "b", "c", "d", "e", "f"], by_workload(records[0], &[Load, A, B, C, D, E, F], rate))
}

/// Microseconds by floors (Fig. 13).
pub(super) fn figure_13(records: &[&Record]) -> Vec<String> {
    let workloads = [Workload::W, Workload::W80, Workload::C];
    let rows = by_workload(records[0], &workloads, time).into_iter().zip(figure_10(records[0]));
    let rows = rows.map(|((name, times), of)| (name, times.into_iter().chain(of).collect()));
    table(&["100 % puts, us", "80 %", "0 %", "load: WA", "lines a get", "room"], rows)
}

/// What figure 10 shows, a line for each contender.
fn figure_10(record: &Record) -> Vec<Vec<Option<f64>>> {
    let row = |name: &str| {
        vec![
            median(record, Workload::Load, name, |turn| amplification(turn, true)),
            mean(record, Workload::C, name, lines_per_get),
            median(record, Workload::Load, name, room),
        ]
    };
    names(record).map(row).collect()
}

/// The most memory that stores held, in MiB (§6.4).
pub(super) fn dram(records: &[&Record]) -> Vec<String> {
    let mib = |turn: &Turn| Some(turn.ran.usage.anonymous_bytes_peak as f64 / f64::from(1 << 20));
    table(
        &["load", "100 % puts", "0 %"],
        by_workload(records[0], &[Workload::Load, Workload::W, Workload::C], mib),
    )
}

/// On block devices: amplification, device reads and microseconds.
pub(super) fn block(records: &[&Record]) -> Vec<String> {
    let record = records[0];
    let row = |name: &str| {
        let of = |workload, number: fn(&Turn) -> Option<f64>| median(record, workload, name, number);
        let numbers = vec![
            of(Workload::Load, |turn| amplification(turn, true)),
            of(Workload::W, |turn| amplification(turn, true)),
            of(Workload::C, reads_per_get),
            of(Workload::C, time),
            of(Workload::Seek, time),
            of(Workload::W, time),
            of(Workload::Load, room),
        ];
        (name.to_owned(), numbers)
    };
    let head = ["load: WA", "updates", "reads a get", "get, us", "seek, us", "update, us", "room"];
    table(&head, names(record).map(row))
}
