//! What was measured, as lines of text.

use super::endurance;
use super::run::{Contender, Record, Turn};
use super::summary::{Numbers, Quartiles, burnt, memory_apart, turns};
use crate::size::human;
use cuesta_bench::Workload;

/// A number with as many digits as tell something.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 1000.0 => thousands(number),
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 0.995 || n == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The median of what some turns have; a dash where they have none.
pub(crate) fn middle(numbers: &[Numbers], of: impl Fn(&Numbers) -> Option<f64>) -> Option<f64> {
    Quartiles::of(numbers.iter().map(of).collect::<Option<Vec<f64>>>()?).map(|quartiles| quartiles.median)
}

fn cell(number: Option<f64>, text: impl Fn(f64) -> String) -> String {
    number.map_or_else(|| "-".to_owned(), text)
}

/// How a workload went: each contender's medians, and ours beside each peer's.
pub(crate) fn workload(record: &Record, workload: Workload) -> Vec<String> {
    let rounds =
        record.turns.iter().filter(|turn| turn.workload == workload).map(|turn| turn.round + 1).max();
    let mut lines = vec![
        format!("\n{}: medians of {} turns", workload.name(), rounds.unwrap_or(0)),
        format!(
            "  {:<24} {:>11} {:>9} {:>8} {:>9} {:>15} {:>15} {:>9} {:>9}",
            "", "operations", "p99", "CPU", "device", "written/byte", "lookups/read", "memory", "fast tier"
        ),
        format!(
            "  {:<24} {:>11} {:>9} {:>8} {:>9} {:>15} {:>15} {:>9} {:>9}",
            "", "/s", "µs", "µs/op", "calls/op", "fast capacity", "fast capacity", "peak, MB", "peak, MB"
        ),
    ];
    for contender in &record.contenders {
        let all: Vec<_> = turns(record, workload, &contender.name).collect();
        let numbers: Vec<Numbers> = all.iter().map(|turn| Numbers::of(turn)).collect();
        let peak = all.iter().map(|turn| turn.ran.usage.anonymous_bytes_peak).max().unwrap_or(0);
        let has_fast = |turn: &&&Turn| turn.tiers[0];
        let on_fast = |turn: &&Turn| turn.ran.usage.tier_bytes_peak.first().map(|bytes| *bytes as f64);
        let fast_peak = all.iter().filter(has_fast).filter_map(on_fast).reduce(f64::max);
        let pair = |of: fn(&Numbers) -> [Option<f64>; 2]| {
            let [fast, capacity] = [0, 1].map(|i| cell(middle(&numbers, |n| of(n)[i]), short));
            format!("{fast:>6} {capacity:>8}")
        };
        lines.push(format!(
            "  {:<24} {:>11} {:>9} {:>8} {:>9} {} {} {:>9.0} {:>9}",
            contender.name,
            cell(middle(&numbers, |n| Some(n.operations_per_second)), short),
            cell(middle(&numbers, |n| Some(n.p99_us)), short),
            cell(middle(&numbers, |n| Some(n.cpu_us)), short),
            cell(middle(&numbers, |n| n.device_calls), short),
            pair(|n| n.written),
            pair(|n| n.reads),
            peak as f64 / 1e6,
            cell(fast_peak, |bytes| format!("{:.0}", bytes / 1e6)),
        ));
    }
    if let Some(best) = record.best.get(workload.name()) {
        let ceiling =
            best.ceiling.map(|rate| format!(", so at most {} reads/s by these clients", short(rate)));
        lines.push(format!(
            "  the best fixed placement sends {} of the reads to the capacity tier{}",
            short(best.below),
            ceiling.unwrap_or_default()
        ));
    }
    let lifetimes = record.lifetimes.get(workload.name());
    lines.extend(
        endurance::lines(lifetimes.map_or(&[], Vec::as_slice)).into_iter().map(|line| format!("  {line}")),
    );
    for ratio in record.ratios.iter().filter(|ratio| ratio.workload == workload) {
        let text = |of: &Quartiles| format!("{:.2} ({:.2} to {:.2})", of.median, of.lower, of.upper);
        lines.push(format!(
            "  {} over {}: throughput {}, slowest p99 {}{}{}",
            record.contenders[0].name,
            ratio.peer,
            text(&ratio.throughput),
            text(&ratio.p99),
            ratio.p99_by_kind().map_or(String::new(), |kinds| format!(" ({kinds})")),
            ratio.cpu.as_ref().map_or(String::new(), |cpu| format!(", CPU {}", text(cpu)))
        ));
    }
    lines
}

/// Why nobody knows whether a contender's figures say anything, if that is so.
pub(crate) fn unchecked(contender: &Contender) -> Option<&'static str> {
    let ended = contender.invalid.is_some() || contender.devices.is_some();
    (!ended).then_some("not checked, since not all of its calls were counted")
}

/// What keeps the contenders' memory alike, where several were measured.
pub(crate) fn memory_kept(record: &Record) -> Option<String> {
    let group = |bytes: u64| format!("each in a memory group of the kernel's, of {}", human(bytes));
    let none = |why: &String| {
        format!("in no memory group of the kernel's ({why}): peaks of memory are what is told")
    };
    record.memory_group_bytes.map(group).or_else(|| record.no_memory_group.as_ref().map(none))
}

/// What is to be known of all: whether the figures say anything.
pub(crate) fn validity(record: &Record) -> Vec<String> {
    let line = |contender: &Contender| {
        let why = match (&contender.invalid, unchecked(contender)) {
            (Some(why), _) => format!("INVALID: {why}"),
            (None, Some(why)) => why.to_owned(),
            (None, None) => "valid".to_owned(),
        };
        // What makes the figures invalid is told already.
        let share = burnt(record, &contender.name).filter(|_| contender.invalid.is_none());
        let burnt = share.map_or(String::new(), |share| {
            format!("; waiting took {:.1} % of the processors", 100.0 * share)
        });
        let apart = memory_apart(record, &contender.name);
        let memory = apart.map_or(String::new(), |times| {
            format!("; it held {times:.2} times as much memory as {}", record.contenders[0].name)
        });
        format!("  {}: {why}{burnt}{memory}", contender.name)
    };
    let kept = memory_kept(record).map(|kept| format!("  contenders were {kept}"));
    kept.into_iter().chain(record.contenders.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_tell_something() {
        for (number, text) in [
            (0.0, "0.00"),
            (0.1234, "0.123"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (999.6, "1000"),
            (1234567.0, "1,234,567"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
