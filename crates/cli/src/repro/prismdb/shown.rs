//! Figures of the paper that are printed beside what is claimed, and are judged by nobody.

use super::plans::HETS;
use crate::measure::report::short;
use crate::measure::run::{Record, Turn};
use crate::measure::summary::{Numbers, Quartiles, turns};
use crate::repro::numbers::{median, names, table};
use cuesta_bench::{Operation, Workload};
use cuesta_model::{Spec, dollars_per_gigabyte};

/// What a gigabyte costs where so many hundredths of the data are on Optane, and the others on a device of that name.
fn price(percent: u64, below: &str) -> Option<f64> {
    let (fast, below) = (Spec::preset("optane").ok()?, Spec::preset(below).ok()?);
    Some(dollars_per_gigabyte(&[(&fast, percent), (&below, 100 - percent)]))
}

/// What goes down by how it is chosen (Fig. 5): operations a second, bytes written to flash for each one updated, and
/// the share of reads that get there.
pub(super) fn figure_5(records: &[&Record]) -> Vec<String> {
    let rows = names(records[0]).map(|contender| {
        let of = |number: fn(&Numbers) -> Option<f64>| {
            median(records[0], Workload::A, contender, |turn| number(&Numbers::of(turn)))
        };
        let numbers = vec![of(|n| Some(n.operations_per_second)), of(|n| n.written[1]), of(|n| n.reads[1])];
        (contender.to_owned(), numbers)
    });
    table(&["operations/s", "flash bytes", "slow reads"], rows)
}

/// Throughput and cost of configurations (Fig. 7a).
pub(super) fn figure_7a(records: &[&Record]) -> Vec<String> {
    let hets = HETS.map(|percent| (format!("het{percent}"), price(percent, "qlc")));
    let configurations =
        [("one tier".to_owned(), None), ("TLC alone".to_owned(), price(0, "nvme"))].into_iter().chain(hets);
    let rows = records.iter().zip(configurations).flat_map(|(record, (name, price_of))| {
        names(record).map(move |contender| {
            // Of what is on one tier alone, that tier's.
            let price = match contender.rsplit_once(", ") {
                Some((_, "fast")) => price(100, "qlc"),
                _ => price_of.or_else(|| price(0, "qlc")),
            };
            let of = |number: fn(&Numbers) -> f64| {
                median(record, Workload::A, contender, |turn| Some(number(&Numbers::of(turn))))
            };
            let numbers = vec![price, of(|n| n.operations_per_second), of(|n| n.p99_us)];
            (format!("{name}: {contender}"), numbers)
        })
    });
    table(&["$/GB", "operations/s", "p99, us"], rows)
}

/// Latencies of reads (Fig. 8d).
pub(super) fn figure_8d(records: &[&Record]) -> Vec<String> {
    let rows = names(records[0]).map(|contender| {
        let of = |number: fn(&cuesta_bench::LatencySummary) -> f64| {
            median(records[0], Workload::B, contender, |turn| {
                let all = &turn.ran.result.measured.operations;
                all.iter().find(|of| of.operation == Operation::Read).map(|reads| number(&reads.latency))
            })
        };
        let numbers =
            vec![of(|l| l.p50_us), of(|l| l.p90_us), of(|l| l.p99_us), of(|l| l.p999_us), of(|l| l.max_us)];
        (contender.to_owned(), numbers)
    });
    table(&["p50, us", "p90", "p99", "p99.9", "most"], rows)
}

/// Throughput by clients (Fig. 11c).
pub(super) fn figure_11c(records: &[&Record]) -> Vec<String> {
    let rows = records.iter().flat_map(|record| {
        names(record).map(|contender| {
            let threads = turns(record, Workload::A, contender).next();
            let threads = threads.map_or(0, |turn| turn.ran.result.config.threads);
            let rate = |turn: &Turn| Some(turn.ran.result.measured.operations_per_second);
            let numbers = vec![
                median(record, Workload::A, contender, rate),
                median(record, Workload::A, contender, |turn| Some(Numbers::of(turn).p99_us)),
            ];
            (format!("{threads} clients: {contender}"), numbers)
        })
    });
    table(&["operations/s", "p99, us"], rows)
}

/// Throughput over time (Fig. 11d).
pub(super) fn figure_11d(records: &[&Record]) -> Vec<String> {
    let of = |contender: &str| {
        let all = turns(records[0], Workload::A, contender);
        let rates: Vec<f64> = all.flat_map(|turn| turn.ran.result.measured.timeline.clone()).collect();
        let middle = Quartiles::of(rates.clone())?.median;
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let thousands: Vec<String> = rates.iter().map(|rate| short(rate / 1000.0)).collect();
        let share = short(least / middle);
        Some(format!(
            "{contender}: thousands a second, by half seconds: {}; the slowest has {share} of the median",
            thousands.join(" ")
        ))
    };
    names(records[0]).filter_map(of).collect()
}

/// Shares of the clock values among tracked keys (Fig. 12).
pub(super) fn figure_12(records: &[&Record]) -> Vec<String> {
    let skews = ["Zipf 0.6", "Zipf 0.8", "Zipf 0.99", "Zipf 1.2", "uniform"];
    let rows = skews.iter().zip(records).map(|(skew, record)| {
        let contender = names(record).next().unwrap_or_default();
        let clock = |turn: &Turn, value: usize| {
            let count = |value| turn.ran.usage.gauges.get(&format!("clock:{value}")).copied();
            let all: u64 = (0..4).filter_map(count).sum();
            Some(count(value)? as f64 / all.max(1) as f64)
        };
        let of = |value| median(record, Workload::A, contender, |turn| clock(turn, value));
        ((*skew).to_owned(), (0..4).map(of).collect())
    });
    table(&["0 (coldest)", "1", "2", "3"], rows)
}
