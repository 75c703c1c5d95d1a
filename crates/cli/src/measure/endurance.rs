//! What a configuration of modelled devices costs, and how long they last under what contenders wrote (PrismDB, §7.2).
//!
//! A store of 600 GB is reckoned with, of which the fast tier has the part that it had here of the data, and the
//! capacity tier the rest. What a phase wrote for each of its operations, merges included, is what an operation of such
//! a store writes.

use super::run::{Plan, Record, Turn};
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

/// What so many operations of a contender's wrote: bytes by tier, of which it `has` some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wear {
    pub(crate) has: [bool; 2],
    pub(crate) operations: u64,
    pub(crate) written: [u64; 2],
}

impl Wear {
    /// Of some turns, all together; `None` of no turns, or where nothing was counted.
    fn of(turns: &[&Turn]) -> Option<Self> {
        let made = turns.iter().flat_map(|turn| &turn.ran.result.measured.operations);
        let written = |i: usize| {
            turns.iter().map(|turn| Some(turn.ran.usage.counts?.tiers[i].written_bytes)).sum::<Option<u64>>()
        };
        Some(Self {
            has: turns.first()?.tiers,
            operations: made.map(|of| of.count).sum(),
            written: [written(0)?, written(1)?],
        })
    }
}

/// How long the modelled tiers of a contender last.
pub(crate) fn of_wear(plan: &Plan, contender: &str, wear: &Wear) -> Vec<Lifetime> {
    let specs = parse(&plan.devices.models).unwrap_or_default();
    let lifetime = |(i, tier): (usize, &&str)| {
        let spec = specs.get(*tier).filter(|_| wear.has[i])?;
        let part = if wear.has == [true, true] { parts(plan)[i] } else { 1.0 };
        let each = wear.written[i] as f64 / wear.operations.max(1) as f64;
        let years = |load| lifetime_years(spec, (part * STORE_BYTES) as u64, each * load);
        // What has no part of the data has no size that could be told.
        (part > 0.0).then(|| Lifetime {
            contender: contender.to_owned(),
            tier: (*tier).to_owned(),
            years: (wear.written[i] > 0).then(|| LOADS.map(years)),
        })
    };
    TIERS.iter().enumerate().filter_map(lifetime).collect()
}

/// Of the turns at a workload, all together.
pub(crate) fn lifetimes(plan: &Plan, record: &Record, workload: Workload) -> Vec<Lifetime> {
    let of = |name: &str| {
        let turns: Vec<_> = turns(record, workload, name).collect();
        Wear::of(&turns).map(|wear| of_wear(plan, name, &wear))
    };
    record.contenders.iter().filter_map(|contender| of(&contender.name)).flatten().collect()
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
    use crate::measure::process::Devices;
    use cuesta_bench::{Config, Keys, Length, Values};
    use cuesta_model::Spec;

    #[test]
    fn what_is_written_and_the_size_decide_how_long_a_tier_lasts() {
        let (gigabyte, operations) = (1_000_000_000, 1_000_000);
        let plan = |fast_bytes| Plan {
            entries: Vec::new(),
            stages: Vec::new(),
            load: Config {
                workload: Workload::Load,
                records: 1,
                length: Length::Operations(1),
                threads: 1,
                keys: Keys::Scattered,
                values: Values::Fixed(8),
                distribution: None,
                theta: 0.99,
                seed: 1,
                phase: 0,
            },
            rounds: 1,
            killed: false,
            grouped: true,
            dir: "/".into(),
            fast_bytes,
            capacity_bytes: 0,
            memory_bytes: 0,
            data_bytes: 10 * gigabyte,
            durability: String::new(),
            profile: String::new(),
            devices: Devices { models: "fast=optane,capacity=qlc".to_owned(), page_cache_bytes: 0, seed: 1 },
            scale: None,
        };
        let years = |fast_bytes, has, written| -> Vec<Option<[f64; 2]>> {
            let wear = Wear { has, operations, written };
            of_wear(&plan(fast_bytes), "ours", &wear).into_iter().map(|of| of.years).collect()
        };
        // 120 GB of Optane and 480 of QLC, a kilobyte an operation; they are made for five years of their drive writes
        // a day.
        let by_hand = |name, bytes: f64, load: f64| {
            let five_years = bytes * Spec::preset(name).unwrap().drive_writes_per_day * 5.0;
            five_years / (1000.0 * load)
        };
        let both = years(2 * gigabyte, [true, true], [gigabyte, gigabyte]);
        for (got, (name, bytes)) in both.iter().zip([("optane", 120e9), ("qlc", 480e9)]) {
            let asked = LOADS.map(|load| by_hand(name, bytes, load));
            assert!((0..2).all(|i| (got.unwrap()[i] / asked[i] - 1.0).abs() < 1e-6), "{got:?} and {asked:?}");
        }
        // One tier alone has all of it; what is not written to lasts, and what has no part of the data is not told of.
        assert!(
            years(2 * gigabyte, [false, true], [0, gigabyte])[0].unwrap()[0] > both[1].unwrap()[0] * 1.24
        );
        assert_eq!(years(2 * gigabyte, [true, true], [gigabyte, 0])[1], None);
        assert_eq!(years(10 * gigabyte, [true, true], [gigabyte, 1]).len(), 1);
        assert!(price(&plan(2 * gigabyte)).unwrap() > price(&plan(gigabyte)).unwrap());
    }

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
