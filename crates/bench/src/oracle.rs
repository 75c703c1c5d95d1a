//! What the best placement could do: a bound to hold measurements against.
//!
//! A static placement keeps some records above and leaves the others below for the whole run. The best one keeps the
//! records that are read most, which the generator's own frequencies name; no log, index or block takes its room. What
//! is read below by it is the least that any static placement sends there; and if nothing but those reads took time,
//! clients that wait for each could not be faster than one over that time.

use crate::distribution::{Chooser, Distribution};
use crate::runner::Config;
use crate::workload::Values;

/// Ranks of generators without an end that are told apart; what lies behind them is spread evenly.
const RANKS: u64 = 1 << 20;

/// Share of the reads that go to each record, most first; sums to 1. `Latest` is taken as it begins, before anything is
/// inserted.
pub fn frequencies(distribution: Distribution, theta: f64, records: u64) -> Vec<f64> {
    let records = records.max(1);
    let mut shares = match distribution {
        Distribution::Uniform => vec![1.0; records as usize],
        Distribution::Zipfian | Distribution::Latest => {
            (1..=records).map(|rank| (rank as f64).powf(-theta)).collect()
        }
        Distribution::Ycsb | Distribution::Facebook => Chooser::head(distribution, records, RANKS),
    };
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares.sort_unstable_by(|a, b| b.total_cmp(a));
    shares
}

/// The least share of reads that a static placement with room for `above` records sends below.
pub fn least_share_below(frequencies: &[f64], above: u64) -> f64 {
    let above = (above as usize).min(frequencies.len());
    let below: f64 = frequencies[above..].iter().sum();
    // The sum of nothing is minus zero.
    (below + 0.0).clamp(0.0, 1.0)
}

/// Reads per second that so many clients cannot exceed, if each waits for its reads and those below take `seconds`.
pub fn ceiling(clients: u64, share_below: f64, seconds: f64) -> f64 {
    clients as f64 / (share_below * seconds)
}

/// The least share of a phase's reads that reach the slow tier, with so many bytes above it; `None` for phases whose
/// reads are not point reads of a fixed set of records of one size.
pub fn best(config: &Config, bytes_above: u64) -> Option<f64> {
    let Values::Fixed(bytes) = config.values else { return None };
    if !config.workload.reads_points() {
        return None;
    }
    let [reads, _] = config.workload.distributions(config.distribution);
    let frequencies = frequencies(reads, config.theta, config.records);
    Some(least_share_below(&frequencies, bytes_above / (config.keys.bytes() + bytes as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    #[test]
    fn of_two_million_records_the_coldest_seven_tenths_have_a_twelfth_or_a_third_of_the_reads() {
        let outside = |distribution| least_share_below(&frequencies(distribution, 0.99, 2_000_000), 600_000);
        let (zipfian, ycsb) = (outside(Distribution::Zipfian), outside(Distribution::Ycsb));
        assert!((0.08..0.09).contains(&zipfian) && (0.28..0.34).contains(&ycsb), "{zipfian} and {ycsb}");
    }

    #[test]
    fn the_oracle_knows_what_the_generators_do() {
        const DRAWS: u64 = 2_000_000;
        let records = 20_000;
        for distribution in [Distribution::Zipfian, Distribution::Ycsb, Distribution::Facebook] {
            let frequencies = frequencies(distribution, 0.99, records);
            assert!(frequencies.is_sorted_by(|a, b| a >= b));
            assert!((frequencies.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let (mut chooser, mut rng) = (Chooser::new(distribution, 0.99, records, 5), Rng::new(1));
            let mut seen = vec![0u64; records as usize];
            (0..DRAWS).for_each(|_| seen[chooser.choose(&mut rng, records) as usize] += 1);
            seen.sort_unstable_by(|a, b| b.cmp(a));
            for above in [1, 100, 2000, 6000] {
                let told = least_share_below(&frequencies, above);
                let found = seen[above as usize..].iter().sum::<u64>() as f64 / DRAWS as f64;
                // Sorting by what was drawn keeps a little more above than there is.
                assert!((told - found).abs() < 0.02, "{distribution:?}, {above}: {told} of {found}");
            }
        }
        let uniform = frequencies(Distribution::Uniform, 0.99, 100);
        assert_eq!(least_share_below(&uniform, 1000).to_bits(), 0, "not minus zero");
        assert!((least_share_below(&uniform, 30) - 0.7).abs() < 1e-9);
        assert!((ceiling(8, 0.1, 400e-6) - 200_000.0).abs() < 1.0);
    }
}
