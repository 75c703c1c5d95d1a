//! What experiments of every paper do with the turns that were measured.

use super::{Statement, Target};
use crate::measure::report::short;
use crate::measure::run::{Record, Turn};
use crate::measure::summary::{Quartiles, turns};
use cuesta_bench::Workload;

/// A number of each of a contender's turns at a workload.
pub(super) fn each(
    record: &Record,
    workload: Workload,
    contender: &str,
    number: impl Fn(&Turn) -> Option<f64>,
) -> Vec<f64> {
    turns(record, workload, contender).filter_map(number).collect()
}

pub(super) fn rate(turn: &Turn) -> Option<f64> {
    Some(turn.ran.result.measured.operations_per_second)
}

/// One contender's number over another's, turn by turn.
pub(super) fn over(
    record: &Record,
    workload: Workload,
    (a, b): (&str, &str),
    number: impl Fn(&Turn) -> Option<f64>,
) -> Vec<f64> {
    let of = |contender| each(record, workload, contender, &number);
    of(a).iter().zip(of(b)).map(|(a, b)| a / b).collect()
}

/// Of all turns together: merges come in bursts, of which a turn has one or none.
pub(super) fn over_all(
    record: &Record,
    workload: Workload,
    (a, b): (&str, &str),
    number: impl Fn(&Turn) -> Option<f64>,
) -> Vec<f64> {
    let sum = |contender| each(record, workload, contender, &number).iter().sum::<f64>();
    vec![sum(a) / sum(b)]
}

pub(super) fn statement(
    id: &'static str,
    claim: &'static str,
    paper_value: f64,
    target: Target,
    measured: Vec<f64>,
) -> Statement {
    Statement { id, claim, paper_value, target, stretch: None, of_run: None, measured }
}

/// The median of what a contender's turns at a workload say.
pub(super) fn median(
    record: &Record,
    workload: Workload,
    contender: &str,
    number: impl Fn(&Turn) -> Option<f64>,
) -> Option<f64> {
    let numbers: Vec<f64> = turns(record, workload, contender).filter_map(number).collect();
    Quartiles::of(numbers).map(|of| of.median)
}

/// The mean of what a contender's turns at a workload say.
pub(super) fn mean(
    record: &Record,
    workload: Workload,
    contender: &str,
    number: impl Fn(&Turn) -> Option<f64>,
) -> Option<f64> {
    let of = each(record, workload, contender, number);
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

fn cell(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), short)
}

pub(super) fn names(record: &Record) -> impl Iterator<Item = &str> {
    record.contenders.iter().map(|contender| contender.name.as_str())
}

/// A table: what stands in front of each line, and its numbers.
pub(super) fn table(
    head: &[&str],
    rows: impl IntoIterator<Item = (String, Vec<Option<f64>>)>,
) -> Vec<String> {
    let line = |name: &str, cells: Vec<String>| {
        let cells: Vec<String> = cells.into_iter().map(|cell| format!("{cell:>13}")).collect();
        format!("{name:<32}{}", cells.concat())
    };
    let head = line("", head.iter().map(|text| (*text).to_owned()).collect());
    let rows = rows.into_iter().map(|(name, numbers)| line(&name, numbers.into_iter().map(cell).collect()));
    std::iter::once(head).chain(rows).collect()
}
