//! Which record an operation goes to.

use cuesta_sched::Rng;
use serde::{Deserialize, Serialize};

/// How operations are spread over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// A few records get most operations; which ones is scattered over the key space by a seeded permutation, so that
    /// every record has a rank and the skew is Zipf's law and nothing else.
    Zipfian,
    /// The YCSB project's scrambled generator: ranks of ten thousand million, hashed onto the records. Its skew is
    /// milder, since all but the first ranks are spread evenly.
    Ycsb,
    /// Every record gets as many.
    Uniform,
    /// Records inserted last get most.
    Latest,
    /// Ranges of keys that are hot and cold, and hot keys in each (Cao et al., FAST 2020).
    Facebook,
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zipfian" => Ok(Self::Zipfian),
            "ycsb" => Ok(Self::Ycsb),
            "uniform" => Ok(Self::Uniform),
            "latest" => Ok(Self::Latest),
            "facebook" => Ok(Self::Facebook),
            _ => Err(format!("{text:?} is no distribution; use zipfian, ycsb, uniform, latest or facebook")),
        }
    }
}

/// Zipf-distributed ranks: rank r, from 0, with probability proportional to 1 / (r + 1)^theta, exactly.
///
/// By rejection from the inverse of the integral: Hörmann and Derflinger, "Rejection-inversion to generate variates
/// from monotone discrete distributions", 1996. No sum over the ranks is needed, so they may grow; a draw is a few
/// powers.
#[derive(Clone, Debug)]
pub struct Zipfian {
    theta: f64,
    items: u64,
    /// The integral at both ends.
    low: f64,
    high: f64,
    /// So close below its rank a point needs no second look.
    sure: f64,
}

impl Zipfian {
    /// Ranks below `items`, at least 1; `theta` above 0, and not 1.
    pub fn new(items: u64, theta: f64) -> Self {
        let mut zipfian = Self { theta, items: 0, low: 0.0, high: 0.0, sure: 0.0 };
        zipfian.low = zipfian.integral(1.5) - 1.0;
        zipfian.sure = 2.0 - zipfian.inverse(zipfian.integral(2.5) - 2f64.powf(-theta));
        zipfian.grow(items.max(1));
        zipfian
    }

    /// Ranks below `items` from now on.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.items = items;
            self.high = self.integral(items as f64 + 0.5);
        }
    }

    /// Of x^-theta.
    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.theta) - 1.0) / (1.0 - self.theta)
    }

    fn inverse(&self, area: f64) -> f64 {
        (1.0 + area * (1.0 - self.theta)).powf(1.0 / (1.0 - self.theta))
    }

    /// A rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.items as f64);
            if rank - x <= self.sure || area >= self.integral(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64 - 1;
            }
        }
    }
}

/// A permutation of the numbers below some number, by a seed: a Feistel network of four rounds over the next power of
/// four, walked on from what lies outside.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    items: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Of the numbers below `items`, at least 1.
    pub fn new(items: u64, seed: u64) -> Self {
        Self::growing(items, 0, seed)
    }

    /// The same, but as numbers come, up to twice as many as `begun`, most of the others stay where they went.
    fn growing(items: u64, begun: u64, seed: u64) -> Self {
        let bits = u64::BITS - items.max(2 * begun).max(2).saturating_sub(1).leading_zeros();
        Self { items: items.max(1), half_bits: bits.div_ceil(2), seed }
    }

    /// Where `number`, which must be below the items, goes.
    pub fn of(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut at = number;
        loop {
            let (mut left, mut right) = (at >> self.half_bits, at & mask);
            for round in 0..4 {
                let mixed = fnv64(right ^ self.seed.rotate_left(16 * round)).rotate_left(29);
                (left, right) = (right, left ^ mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & mask);
            }
            at = left << self.half_bits | right;
            if at < self.items {
                return at;
            }
        }
    }
}

/// Items, sum and skew that YCSB's scrambled generator is made with, whatever the number of records.
const YCSB_ITEMS: f64 = 10_000_000_000.0;
const YCSB_ZETA: f64 = 26.469_028_201_783_02;
const YCSB_THETA: f64 = 0.99;

/// What YCSB's formula is made of: the sum over the first two ranks, and eta.
fn ycsb_constants() -> (f64, f64) {
    let zeta2 = 1.0 + 0.5f64.powf(YCSB_THETA);
    (zeta2, (1.0 - (2.0 / YCSB_ITEMS).powf(1.0 - YCSB_THETA)) / (1.0 - zeta2 / YCSB_ZETA))
}

/// Where YCSB scatters a rank.
fn ycsb_place(rank: u64, records: u64) -> u64 {
    (fnv64(rank) as i64).unsigned_abs() % records
}

/// A record as YCSB's scrambled Zipfian generator chooses it (Gray et al., SIGMOD 1994, with constants of its own).
fn ycsb(rng: &mut Rng, records: u64) -> u64 {
    let (zeta2, eta) = ycsb_constants();
    let u = rng.unit();
    let rank = match u * YCSB_ZETA {
        uz if uz < 1.0 => 0,
        uz if uz < zeta2 => 1,
        _ => (YCSB_ITEMS * (eta * u - eta + 1.0).powf(1.0 / (1.0 - YCSB_THETA))) as u64,
    };
    ycsb_place(rank, records)
}

/// Share of the draws that are of ranks below `rank`.
fn ycsb_below(rank: f64) -> f64 {
    let (zeta2, eta) = ycsb_constants();
    match rank {
        rank if rank < 1.0 => 0.0,
        rank if rank < 2.0 => 1.0 / YCSB_ZETA,
        // The formula gives a few more of the first ranks than these have by themselves.
        rank => (((rank / YCSB_ITEMS).powf(1.0 - YCSB_THETA) - 1.0 + eta) / eta).max(zeta2 / YCSB_ZETA),
    }
}

/// FNV-1a over the eight bytes of a number: YCSB's scatter.
pub(crate) fn fnv64(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Keys as Facebook's ZippyDB asks for them, by the fits of Cao et al., "Characterizing, modeling, and benchmarking
/// RocksDB key-value workloads at Facebook", FAST 2020, §6: thirty ranges of keys whose heat is a sum of two
/// exponentials, and in each a power law.
#[derive(Clone, Debug)]
struct Ranges {
    /// Up to which share of the draws each range, by its place, is chosen.
    shares: Vec<f64>,
}

const RANGES: u64 = 30;
/// Heat of the i-th hottest range: a e^(b i) + c e^(d i).
const RANGE_HEAT: [f64; 4] = [14.18, -2.917, 0.0164, -0.08082];
/// Share of the draws that go to the first x keys of a range: a x^b.
const KEY_HEAT: [f64; 2] = [0.002312, 0.3467];

impl Ranges {
    fn new(seed: u64) -> Self {
        let [a, b, c, d] = RANGE_HEAT;
        let heat = |rank: u64| {
            let i = rank as f64 + 1.0;
            a * (b * i).exp() + c * (d * i).exp()
        };
        let total: f64 = (0..RANGES).map(heat).sum();
        let scattered = Permutation::new(RANGES, seed);
        let mut rank_at = vec![0; RANGES as usize];
        (0..RANGES).for_each(|rank| rank_at[scattered.of(rank) as usize] = rank);
        let mut sum = 0.0;
        let shares = rank_at.into_iter().map(|rank| {
            sum += heat(rank) / total;
            sum
        });
        Self { shares: shares.collect() }
    }

    /// The first record of a range and the one behind its last.
    fn bounds(range: u64, records: u64) -> (u64, u64) {
        (records * range / RANGES, records * (range + 1) / RANGES)
    }

    fn choose(&self, rng: &mut Rng, records: u64) -> u64 {
        let u = rng.unit();
        let range = self.shares.partition_point(|share| *share <= u).min(RANGES as usize - 1) as u64;
        let [a, b] = KEY_HEAT;
        let key = (rng.unit() / a).powf(1.0 / b) as u64;
        let (from, to) = Self::bounds(range, records);
        from + fnv64(key) % (to - from).max(1)
    }
}

/// Chooses records for one thread.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    zipfian: Zipfian,
    permutation: Permutation,
    ranges: Ranges,
}

impl Chooser {
    /// Over `records` records to begin with. Threads of one run share the seed, and so which records are hot.
    pub fn new(distribution: Distribution, theta: f64, records: u64, seed: u64) -> Self {
        Self::of_run(distribution, theta, (records, records), seed)
    }

    /// The same in a run that began with so many of the records, for all phases of which about the same ones are hot.
    pub(crate) fn of_run(
        distribution: Distribution,
        theta: f64,
        (records, begun): (u64, u64),
        seed: u64,
    ) -> Self {
        Self {
            distribution,
            zipfian: Zipfian::new(records, theta),
            permutation: Permutation::growing(records, begun, seed),
            ranges: Ranges::new(seed),
        }
    }

    /// Share of the draws that each record gets, for the distributions that are made by hashing: of the first `ranks`
    /// ranks each for itself, of the others spread evenly.
    pub(crate) fn head(distribution: Distribution, records: u64, ranks: u64) -> Vec<f64> {
        let mut shares = vec![0.0; records as usize];
        let mut add =
            |from: u64, to: u64, weight: f64, below: &dyn Fn(u64) -> f64, place: &dyn Fn(u64) -> u64| {
                let (mut before, size) = (below(0), (to - from).max(1));
                for rank in 0..ranks {
                    let upto = below(rank + 1);
                    shares[(from + place(rank) % size).min(records - 1) as usize] += weight * (upto - before);
                    before = upto;
                }
                let rest = weight * (1.0 - before).max(0.0) / size as f64;
                shares[from as usize..to as usize].iter_mut().for_each(|share| *share += rest);
            };
        if distribution == Distribution::Ycsb {
            add(0, records, 1.0, &|rank| ycsb_below(rank as f64), &|rank| ycsb_place(rank, records));
            return shares;
        }
        let (ranges, [a, b], mut before) = (Ranges::new(0), KEY_HEAT, 0.0);
        for (range, share) in (0..).zip(&ranges.shares) {
            let (from, to) = Ranges::bounds(range, records);
            add(from, to, share - before, &|rank| (a * (rank as f64).powf(b)).min(1.0), &fnv64);
            before = *share;
        }
        shares
    }

    /// A record below `records`, how many there are by now, and no fewer than at first.
    pub fn choose(&mut self, rng: &mut Rng, records: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => rng.below(records),
            Distribution::Zipfian => self.permutation.of(self.zipfian.draw(rng)),
            Distribution::Ycsb => ycsb(rng, records),
            Distribution::Facebook => self.ranges.choose(rng, records).min(records - 1),
            Distribution::Latest => {
                self.zipfian.grow(records);
                records - 1 - self.zipfian.draw(rng).min(records - 1)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const DRAWS: u64 = 1_000_000;
    /// Chi-squared of 999 degrees of freedom is above this once in a thousand times.
    pub(crate) const CHI_1000: f64 = 1143.0;

    /// How often each record is chosen, most often first.
    fn counts(distribution: Distribution, records: u64) -> Vec<u64> {
        let (mut chooser, mut rng) = (Chooser::new(distribution, 0.99, records, 5), Rng::new(1));
        let mut seen = vec![0; records as usize];
        (0..DRAWS).for_each(|_| seen[chooser.choose(&mut rng, records) as usize] += 1);
        seen.sort_unstable_by(|a, b| b.cmp(a));
        seen
    }

    /// Pearson's chi-squared of counts beside what was to be expected of each.
    pub(crate) fn chi_squared(seen: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
        let off = |(i, seen): (usize, &u64)| (*seen as f64 - expected(i)).powi(2) / expected(i);
        seen.iter().enumerate().map(off).sum()
    }

    /// How many of the draws Zipf's law gives to each rank.
    fn zipf(items: u64, theta: f64) -> impl Fn(usize) -> f64 {
        let zeta: f64 = (1..=items).map(|i| 1.0 / (i as f64).powf(theta)).sum();
        move |rank| DRAWS as f64 / ((rank + 1) as f64).powf(theta) / zeta
    }

    /// Share of the draws that go to all but the hottest 30 % of the records.
    fn outside(seen: &[u64]) -> f64 {
        seen[seen.len() * 3 / 10..].iter().sum::<u64>() as f64 / DRAWS as f64
    }

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        for theta in [0.6, 0.99, 1.2] {
            let items = 1000;
            let zipfian = Zipfian::new(items, theta);
            let mut rng = Rng::new(1);
            let mut seen = vec![0u64; items as usize];
            (0..DRAWS).for_each(|_| seen[zipfian.draw(&mut rng) as usize] += 1);
            let expected = zipf(items, theta);
            let chi = chi_squared(&seen, &expected);
            assert!(chi < CHI_1000, "{theta}: {chi}");
            // What a wrong rejection would change most: the first ranks, here to four standard deviations.
            for (rank, seen) in seen.iter().enumerate().take(10) {
                let off = (*seen as f64 - expected(rank)).abs() / expected(rank).sqrt();
                assert!(off < 4.0, "{theta}, rank {rank}: {seen} of {}", expected(rank));
            }
        }
    }

    #[test]
    fn a_grown_generator_is_a_new_one() {
        let mut grown = Zipfian::new(10, 0.99);
        grown.grow(5000);
        let fresh = Zipfian::new(5000, 0.99);
        let (mut a, mut b) = (Rng::new(3), Rng::new(3));
        assert!((0..1000).all(|_| grown.draw(&mut a) == fresh.draw(&mut b)));
    }

    #[test]
    fn a_permutation_meets_every_number_once() {
        for items in [1, 2, 3, 30, 1000, 4096, 70_001] {
            let permutation = Permutation::new(items, 9);
            let mut met: Vec<u64> = (0..items).map(|number| permutation.of(number)).collect();
            let moved = met.iter().zip(0..).filter(|(to, from)| **to != *from).count() as u64;
            met.sort_unstable();
            assert!(met.into_iter().eq(0..items), "{items}");
            assert!(items < 30 || moved > items / 2, "{moved} of {items} moved");
        }
        assert_ne!(Permutation::new(1000, 1).of(5), Permutation::new(1000, 2).of(5));
        // Beyond a power of four, too.
        let of = |items| (0..1000).map(move |number| Permutation::growing(items, 1000, 1).of(number));
        let stay = of(1000).zip(of(1030)).filter(|(before, after)| before == after).count();
        assert!(stay > 930, "{stay}");
    }

    #[test]
    fn ycsb_is_milder_than_zipf() {
        let (zipfian, ycsb) = (counts(Distribution::Zipfian, 10_000), counts(Distribution::Ycsb, 10_000));
        let zeta = |from: u64, to: u64| (from..=to).map(|i| 1.0 / (i as f64).powf(0.99)).sum::<f64>();
        let expected = zeta(3001, 10_000) / zeta(1, 10_000);
        assert!((outside(&zipfian) - expected).abs() < 0.01, "{} of {expected}", outside(&zipfian));
        assert!(outside(&ycsb) > 2.0 * outside(&zipfian), "{} of {}", outside(&ycsb), outside(&zipfian));
        // The first rank's share is one in 26.469, whatever the number of records.
        let first = ycsb[0] as f64 / DRAWS as f64;
        assert!((first * 26.469 - 1.0).abs() < 0.03, "{first}");
    }

    #[test]
    fn ycsb_s_records_come_as_often_as_its_generator_is_published() {
        // Ten thousand million ranks, of which the generator inverts the sum of shares, and the hash of each rank says
        // which record it is.
        let (items, theta, zeta, records) = (1e10, 0.99f64, 26.469_028_201_783_02, 1000);
        let zeta_2 = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0f64 / items).powf(1.0 - theta)) / (1.0 - zeta_2 / zeta);
        let below = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / zeta,
            _ => (zeta_2 / zeta).max(((rank as f64 / items).powf(1.0 - theta) - 1.0 + eta) / eta),
        };
        let mut expected = vec![0.0; records];
        let ranks = 300_000;
        for rank in 0..ranks {
            let place = (fnv64(rank) as i64).unsigned_abs() % records as u64;
            expected[place as usize] += below(rank + 1) - below(rank);
        }
        let rest = (1.0 - below(ranks)) / records as f64;
        let mut rng = Rng::new(1);
        let mut seen = vec![0; records];
        (0..DRAWS).for_each(|_| seen[ycsb(&mut rng, records as u64) as usize] += 1);
        let chi = chi_squared(&seen, |record| DRAWS as f64 * (expected[record] + rest));
        assert!(chi < CHI_1000, "{chi}");
    }

    #[test]
    fn ycsb_scatters_by_the_public_hash() {
        let hashes = [0, 1, 0x0123_4567_89ab_cdef].map(fnv64);
        assert_eq!(hashes, [0xa8c7_f832_281a_39c5, 0x89cd_3129_1d2a_efa4, 0x37eb_3f33_4776_1c55]);
        // The absolute value of a signed number is what it is taken by.
        assert_eq!(ycsb_place(0, 1000), (u64::MAX - hashes[0] + 1) % 1000);
    }

    #[test]
    fn latest_prefers_the_newest_and_uniform_nobody() {
        let mut rng = Rng::new(2);
        // Of records that came since, too.
        let by_age = |distribution| {
            let mut chooser = Chooser::new(distribution, 0.99, 500, 1);
            let mut seen = vec![0u64; 1000];
            (0..DRAWS).for_each(|_| seen[999 - chooser.choose(&mut rng, 1000) as usize] += 1);
            seen
        };
        let [latest, uniform] = [Distribution::Latest, Distribution::Uniform].map(by_age);
        let chi = chi_squared(&latest, zipf(1000, 0.99));
        assert!(chi < CHI_1000, "latest: {chi}");
        let chi = chi_squared(&uniform, |_| DRAWS as f64 / 1000.0);
        assert!(chi < CHI_1000, "uniform: {chi}");
    }

    #[test]
    fn facebook_has_hot_ranges_and_hot_keys_in_them() {
        let records = 30_000;
        let (mut chooser, mut rng) = (Chooser::new(Distribution::Facebook, 0.99, records, 5), Rng::new(1));
        let mut by_range = vec![0u64; RANGES as usize];
        (0..DRAWS)
            .for_each(|_| by_range[(chooser.choose(&mut rng, records) * RANGES / records) as usize] += 1);
        by_range.sort_unstable_by(|a, b| b.cmp(a));
        let [a, b, c, d] = RANGE_HEAT;
        let heat = |i: f64| a * (b * i).exp() + c * (d * i).exp();
        let total: f64 = (1..=30).map(|i| heat(f64::from(i))).sum();
        // Chi-squared of 29 degrees of freedom is above this once in a thousand times.
        let chi = chi_squared(&by_range, |range| DRAWS as f64 * heat(range as f64 + 1.0) / total);
        assert!(chi < 58.3, "{chi}: {by_range:?}");
        assert!(outside(&counts(Distribution::Facebook, records)) < 0.4);
    }
}
