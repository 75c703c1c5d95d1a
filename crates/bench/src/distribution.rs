//! Which record an operation goes to.

use cuesta_sched::Rng;
use serde::Serialize;

/// How operations are spread over records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// A few records get most operations; which ones is scattered over the key space.
    Zipfian,
    /// Every record gets as many.
    Uniform,
    /// Records inserted last get most.
    Latest,
}

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "zipfian" => Ok(Self::Zipfian),
            "uniform" => Ok(Self::Uniform),
            "latest" => Ok(Self::Latest),
            _ => Err(format!("{text:?} is no distribution; use zipfian, uniform or latest")),
        }
    }
}

/// Zipf-distributed ranks: rank r, from 0, with probability proportional to 1 / (r + 1)^theta.
///
/// Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as YCSB uses it. One draw is a
/// power and a few multiplications; the sum over all ranks is computed once, and extended as the records grow.
#[derive(Clone, Debug)]
pub struct Zipfian {
    theta: f64,
    items: u64,
    zeta: f64,
    zeta2: f64,
}

impl Zipfian {
    /// Ranks below `items`, at least 1; `theta` in (0, 1).
    pub fn new(items: u64, theta: f64) -> Self {
        let zeta2 = zeta(0, 2, theta, 0.0);
        let mut zipfian = Self { theta, items: 0, zeta: 0.0, zeta2 };
        zipfian.grow(items.max(1));
        zipfian
    }

    /// Ranks below `items` from now on.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta = zeta(self.items, items, self.theta, self.zeta);
            self.items = items;
        }
    }

    /// A rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let alpha = 1.0 / (1.0 - self.theta);
        let eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta)) / (1.0 - self.zeta2 / self.zeta);
        let u = rng.unit();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (eta * u - eta + 1.0).powf(alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// `known`, the sum over the first `from` ranks, extended to `to`.
fn zeta(from: u64, to: u64, theta: f64, known: f64) -> f64 {
    (from..to).fold(known, |sum, rank| sum + 1.0 / ((rank + 1) as f64).powf(theta))
}

/// FNV-1a over the eight bytes of a number: YCSB's scatter.
pub(crate) fn fnv64(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Chooses records for one thread.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    zipfian: Zipfian,
}

impl Chooser {
    /// Over `records` records to begin with.
    pub fn new(distribution: Distribution, theta: f64, records: u64) -> Self {
        let items = if distribution == Distribution::Uniform { 1 } else { records };
        Self { distribution, zipfian: Zipfian::new(items, theta) }
    }

    /// A record below `records`, how many there are by now.
    pub fn choose(&mut self, rng: &mut Rng, records: u64) -> u64 {
        match self.distribution {
            Distribution::Uniform => rng.below(records),
            Distribution::Zipfian => fnv64(self.zipfian.draw(rng)) % records,
            Distribution::Latest => {
                self.zipfian.grow(records);
                records - 1 - self.zipfian.draw(rng).min(records - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_zipf_says() {
        let (items, draws) = (1000, 1_000_000);
        let zipfian = Zipfian::new(items, 0.99);
        let mut rng = Rng::new(1);
        let mut seen = vec![0u64; items as usize];
        (0..draws).for_each(|_| seen[zipfian.draw(&mut rng) as usize] += 1);
        let zeta: f64 = (1..=items).map(|i| 1.0 / (i as f64).powf(0.99)).sum();
        // The two first ranks are exact; the others follow a continuous approximation.
        for (rank, tolerance) in [(0, 0.02), (1, 0.02), (10, 0.15), (100, 0.15), (900, 0.25)] {
            let expected = draws as f64 / ((rank + 1) as f64).powf(0.99) / zeta;
            let off = (seen[rank] as f64 - expected).abs() / expected;
            assert!(off < tolerance, "rank {rank}: {} of {expected:.0}", seen[rank]);
        }
    }

    #[test]
    fn a_grown_generator_is_a_new_one() {
        let mut grown = Zipfian::new(10, 0.99);
        grown.grow(5000);
        let fresh = Zipfian::new(5000, 0.99);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9);
        let (mut a, mut b) = (Rng::new(3), Rng::new(3));
        assert!((0..1000).all(|_| grown.draw(&mut a) == fresh.draw(&mut b)));
    }

    #[test]
    fn latest_prefers_the_newest_and_uniform_nobody() {
        let mut rng = Rng::new(2);
        let mut latest = Chooser::new(Distribution::Latest, 0.99, 1000);
        let newest = (0..10_000).filter(|_| latest.choose(&mut rng, 2000) >= 1900).count();
        assert!(newest > 5000, "{newest}");
        let mut uniform = Chooser::new(Distribution::Uniform, 0.99, 1000);
        let newest = (0..10_000).filter(|_| uniform.choose(&mut rng, 2000) >= 1900).count();
        assert!((400..600).contains(&newest), "{newest}");
    }
}
