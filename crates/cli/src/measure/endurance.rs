//! What a configuration of modelled devices costs, and how long they last under what contenders wrote (PrismDB, §7.2).
//!
//! A store of 600 GB is reckoned with, of which the fast tier has the part that it had here of the data, and the capacity tier the rest. What a
//! phase wrote for each of its operations, merges included, is what an operation of such a store writes.

use super::run::{Plan, Record};
use super::summary::turns;
use crate::model::{LOADS, STORE_BYTES, TIERS};
use cuesta_bench::Workload;
use cuesta_model::{dollars_per_gigabyte, lifetime_years, parse};
use serde::{Deserialize, Serialize};

/// How long a modelled tier of a contender's lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lifetime {
    pub(crate) contender: String,
    pub(crate) tier: String,
    /// At 100 and at 500 million operations a day; `None` where nothing was written.
    pub(crate) years: Option<[f64; 2]>,
}

/// Which part of the data each tier of a store has that has both.
fn parts(plan: &Plan) -> [f64; 2] {
    let fast = (plan.fast_bytes as f64 / plan.data_bytes.max(1) as f64).min(1.0);
    [fast, 1.0 - fast]
}

/// Dollars for a gigabyte of a store that has both tiers, where both are modelled.
pub(crate) fn price(plan: &Plan) -> Option<f64> {
    let specs = parse(&plan.devices.models).ok()?;
    let [fast, capacity] = parts(plan).map(|part| (part * STORE_BYTES) as u64);
    Some(dollars_per_gigabyte(&[(specs.get(TIERS[0])?, fast), (specs.get(TIERS[1])?, capacity)]))
}

/// Of the turns at a workload, all together.
pub(crate) fn lifetimes(plan: &Plan, record: &Record, workload: Workload) -> Vec<Lifetime> {
    let specs = parse(&plan.devices.models).unwrap_or_default();
    let mut all = Vec::new();
    for contender in &record.contenders {
        let turns: Vec<_> = turns(record, workload, &contender.name).collect();
        let Some(has) = turns.first().map(|turn| turn.tiers) else { continue };
        let made = turns.iter().flat_map(|turn| &turn.ran.result.measured.operations);
        let operations: u64 = made.map(|of| of.count).sum();
        for (i, tier) in TIERS.iter().enumerate().filter(|(i, _)| has[*i]) {
            let counted = turns.iter().map(|turn| Some(turn.ran.usage.counts?.tiers[i].written_bytes));
            let (Some(spec), Some(written)) = (specs.get(*tier), counted.sum::<Option<u64>>()) else {
                continue;
            };
            let part = if has == [true, true] { parts(plan)[i] } else { 1.0 };
            let each = written as f64 / operations.max(1) as f64;
            let years = |load| lifetime_years(spec, (part * STORE_BYTES) as u64, each * load);
            all.push(Lifetime {
                contender: contender.name.clone(),
                tier: (*tier).to_owned(),
                years: (written > 0).then(|| LOADS.map(years)),
            });
        }
    }
    all
}

/// A line for each modelled tier that somebody wrote to.
pub(crate) fn lines(lifetimes: &[Lifetime]) -> Vec<String> {
    let line = |tier: &&str| {
        let of_tier: Vec<&Lifetime> = lifetimes.iter().filter(|of| of.tier == **tier).collect();
        let text = |of: &Lifetime| match of.years {
            Some([rare, often]) => format!("{} {rare:.1} and {often:.1}", of.contender),
            None => format!("{} wrote nothing", of.contender),
        };
        let texts: Vec<String> = of_tier.iter().map(|of| text(of)).collect();
        of_tier.iter().any(|of| of.years.is_some()).then(|| {
            format!(
                "years that {tier}'s part of 600 GB would last at 100 and 500 million of these operations a day: {}",
                texts.join("; ")
            )
        })
    };
    TIERS.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_told_of_one_by_one_and_what_nobody_writes_does_not_wear() {
        let of = |contender: &str, tier: &str, years| Lifetime {
            contender: contender.to_owned(),
            tier: tier.to_owned(),
            years,
        };
        let told = lines(&[of("ours", "capacity", Some([10.04, 2.0])), of("theirs", "capacity", None)]);
        assert_eq!(told.len(), 1);
        assert!(told[0].ends_with("a day: ours 10.0 and 2.0; theirs wrote nothing"), "{told:?}");
        assert!(lines(&[of("ours", "fast", None)]).is_empty());
    }
}
