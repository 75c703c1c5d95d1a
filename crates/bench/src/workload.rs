//! The mixes: YCSB's six core workloads, the load, a write-only one, and mixes like those of production systems.

use crate::distribution::Distribution;
use crate::record::VALUE_BYTES_MIN;
use cuesta_sched::Rng;
use serde::{Deserialize, Serialize};

/// A named mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Inserts every record once.
    Load,
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of what was inserted last, 5 % inserts.
    D,
    /// 95 % scans of 1 to 100 records, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
    /// Updates only.
    W,
    /// Four fifths updates, the others reads. With W, A and C the mixes of NVLSM (§6.3.1).
    W80,
    /// A fifth updates.
    W20,
    /// Scans of one record.
    Seek,
    /// Scans of 48 records (NVLSM, §6.3.2).
    Range48,
    /// Scans of 1,024.
    Range1024,
    /// Like Facebook's ZippyDB: 83 % reads, 14 % updates, 3 % scans, small values; by the fits of Cao et al., FAST 2020.
    Facebook,
    /// Like Twitter's cluster 19: 75 % reads, Zipfian, 25 % updates of any record; values of 102 bytes. This and the
    /// next two as PrismDB, §7, sums up Yang et al., OSDI 2020.
    Twitter19,
    /// Like Twitter's cluster 39: 6 % reads, 94 % updates, of any record.
    Twitter39,
    /// Like Twitter's cluster 51: 90 % reads, 10 % updates, both Zipfian; values of 370 bytes.
    Twitter51,
}

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// All of so many bytes.
    Fixed(usize),
    /// Generalised Pareto from 0, of this shape and scale; none longer than a mebibyte.
    Pareto {
        /// Shape.
        k: f64,
        /// Scale, in bytes.
        sigma: f64,
    },
}

impl Values {
    /// The next value's bytes.
    pub fn draw(self, rng: &mut Rng) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Pareto { k, sigma } => (pareto(rng, k, sigma) as usize).min(1 << 20),
        }
    }

    /// How long they are in the mean, with those counted that are made [`VALUE_BYTES_MIN`] long.
    pub fn mean_bytes(self) -> f64 {
        match self {
            Self::Fixed(bytes) => bytes.max(VALUE_BYTES_MIN) as f64,
            Self::Pareto { k, sigma } => {
                // The chances of each byte beyond the least, summed: an integral from half a byte on.
                let least = VALUE_BYTES_MIN as f64;
                least + sigma / (1.0 - k) * (1.0 + k * (least + 0.5) / sigma).powf(1.0 - 1.0 / k)
            }
        }
    }
}

fn pareto(rng: &mut Rng, k: f64, sigma: f64) -> f64 {
    // 1 - u is never 0.
    sigma * ((1.0 - rng.unit()).powf(-k) - 1.0) / k
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads a record.
    Read,
    /// Overwrites a record.
    Update,
    /// Adds a record.
    Insert,
    /// Reads records in key order.
    Scan,
    /// Reads a record and overwrites it.
    ReadModifyWrite,
    /// Deletes a record; only traces do.
    Delete,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite, Self::Delete];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
            Self::Delete => "delete",
        }
    }
}

/// Longest scan of YCSB's, in records; lengths are uniform from 1.
const SCAN_RECORDS_MAX: u64 = 100;
/// Facebook's scans: shape and scale of their lengths, and the longest.
const FACEBOOK_SCAN: (f64, f64, u64) = (2.517, 14.236, 10_000);
/// Facebook's values: shape and scale.
const FACEBOOK_VALUES: Values = Values::Pareto { k: 0.2615, sigma: 25.45 };

/// Shares of operations, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: [(Operation, u64); 3],
}

impl Workload {
    /// Whether its reads are of single records, of a set that does not grow.
    pub fn reads_points(self) -> bool {
        !matches!(
            self,
            Self::Load
                | Self::W
                | Self::D
                | Self::E
                | Self::Seek
                | Self::Range48
                | Self::Range1024
                | Self::Facebook
        )
    }

    /// Every workload.
    pub const ALL: [Self; 17] = [
        Self::Load,
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
        Self::W,
        Self::W80,
        Self::W20,
        Self::Seek,
        Self::Range48,
        Self::Range1024,
        Self::Facebook,
        Self::Twitter19,
        Self::Twitter39,
        Self::Twitter51,
    ];

    /// Its name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::W => "w",
            Self::W80 => "w80",
            Self::W20 => "w20",
            Self::Seek => "seek",
            Self::Range48 => "range48",
            Self::Range1024 => "range1024",
            Self::Facebook => "facebook",
            Self::Twitter19 => "twitter19",
            Self::Twitter39 => "twitter39",
            Self::Twitter51 => "twitter51",
        }
    }

    /// How long its values are, where it says.
    pub fn values(self) -> Option<Values> {
        match self {
            Self::Facebook => Some(FACEBOOK_VALUES),
            Self::Twitter19 => Some(Values::Fixed(102)),
            Self::Twitter51 => Some(Values::Fixed(370)),
            _ => None,
        }
    }

    /// Records that the next scan asks for.
    pub fn scan_records(self, rng: &mut Rng) -> u64 {
        let (k, sigma, longest) = FACEBOOK_SCAN;
        match self {
            Self::Facebook => 1 + pareto(rng, k, sigma) as u64 % longest,
            Self::Seek => 1,
            Self::Range48 => 48,
            Self::Range1024 => 1024,
            _ => 1 + rng.below(SCAN_RECORDS_MAX),
        }
    }

    /// What it consists of.
    pub fn mix(self) -> Mix {
        use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
        let all = |operation| [(operation, 100), (operation, 0), (operation, 0)];
        let two = |(a, share), b| [(a, share), (b, 100 - share), (b, 0)];
        let shares = match self {
            Self::Load => all(Insert),
            Self::A => two((Read, 50), Update),
            Self::B => two((Read, 95), Update),
            Self::C => all(Read),
            Self::D => two((Read, 95), Insert),
            Self::E => two((Scan, 95), Insert),
            Self::F => two((Read, 50), ReadModifyWrite),
            Self::W => all(Update),
            Self::W80 => two((Read, 20), Update),
            Self::W20 => two((Read, 80), Update),
            Self::Seek | Self::Range48 | Self::Range1024 => all(Scan),
            Self::Facebook => [(Read, 83), (Update, 14), (Scan, 3)],
            Self::Twitter19 => two((Read, 75), Update),
            Self::Twitter39 => two((Read, 6), Update),
            Self::Twitter51 => two((Read, 90), Update),
        };
        Mix { shares }
    }

    /// The distributions of its reads and of its updates, where the caller does not choose one for both.
    pub fn distributions(self, chosen: Option<Distribution>) -> [Distribution; 2] {
        use Distribution::{Facebook, Latest, Uniform, Zipfian};
        let own = match self {
            Self::D => [Latest, Latest],
            Self::Facebook => [Facebook, Facebook],
            Self::Twitter19 => [Zipfian, Uniform],
            Self::Twitter39 => [Uniform, Uniform],
            _ => [Zipfian, Zipfian],
        };
        chosen.map_or(own, |chosen| [chosen, chosen])
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| format!("{text:?} is no workload; use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl Mix {
    /// The next operation.
    pub fn choose(&self, rng: &mut Rng) -> Operation {
        let mut left = rng.below(100);
        for (operation, share) in &self.shares[..2] {
            if left < *share {
                return *operation;
            }
            left -= share;
        }
        self.shares[2].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_long_as_their_mean_says() {
        let mut rng = Rng::new(1);
        for values in [FACEBOOK_VALUES, Values::Pareto { k: 0.1, sigma: 3.0 }, Values::Fixed(370)] {
            let drawn = (0..100_000).map(|_| values.draw(&mut rng).max(VALUE_BYTES_MIN) as f64).sum::<f64>();
            let (drawn, mean) = (drawn / 100_000.0, values.mean_bytes());
            assert!((drawn / mean - 1.0).abs() < 0.01, "{values:?}: {drawn} and {mean}");
        }
    }

    #[test]
    fn mixes_have_their_shares() {
        let mut rng = Rng::new(1);
        for (workload, operation, share) in [
            (Workload::A, Operation::Update, 50),
            (Workload::B, Operation::Update, 5),
            (Workload::C, Operation::Read, 100),
            (Workload::D, Operation::Insert, 5),
            (Workload::E, Operation::Scan, 95),
            (Workload::F, Operation::ReadModifyWrite, 50),
            (Workload::W, Operation::Update, 100),
            (Workload::W80, Operation::Update, 80),
            (Workload::W20, Operation::Update, 20),
            (Workload::Range48, Operation::Scan, 100),
            (Workload::Load, Operation::Insert, 100),
            (Workload::Facebook, Operation::Update, 14),
            (Workload::Facebook, Operation::Scan, 3),
            (Workload::Twitter19, Operation::Update, 25),
            (Workload::Twitter39, Operation::Update, 94),
            (Workload::Twitter51, Operation::Read, 90),
        ] {
            let mix = workload.mix();
            let seen = (0..100_000).filter(|_| mix.choose(&mut rng) == operation).count() as i64;
            assert!((seen - share * 1000).abs() <= 500, "{workload:?}: {seen} of 100000");
            assert_eq!(workload.name().parse(), Ok(workload));
        }
    }

    #[test]
    fn d_reads_the_latest() {
        assert_eq!(Workload::D.distributions(None), [Distribution::Latest; 2]);
        assert_eq!(Workload::D.distributions(Some(Distribution::Uniform)), [Distribution::Uniform; 2]);
        assert_eq!(Workload::A.distributions(None), [Distribution::Zipfian; 2]);
        assert_eq!(Workload::Twitter19.distributions(None), [Distribution::Zipfian, Distribution::Uniform]);
    }

    #[test]
    fn facebook_s_values_and_scans_are_as_long_as_measured_there() {
        let mut rng = Rng::new(3);
        let mean =
            |draw: &mut dyn FnMut() -> u64| (0..200_000).map(|_| draw()).sum::<u64>() as f64 / 200_000.0;
        // Of a generalised Pareto: sigma / (1 - k); half a byte less, since bytes are whole.
        let values = mean(&mut || FACEBOOK_VALUES.draw(&mut rng) as u64);
        assert!((values - (25.45 / (1.0 - 0.2615) - 0.5)).abs() < 1.0, "{values}");
        // The median: sigma (2^k - 1) / k.
        let mut scans: Vec<u64> = (0..100_001).map(|_| Workload::Facebook.scan_records(&mut rng)).collect();
        scans.sort_unstable();
        let median = 1.0 + 14.236 * (2f64.powf(2.517) - 1.0) / 2.517;
        assert!((scans[50_000] as f64 / median - 1.0).abs() < 0.1, "{} of {median}", scans[50_000]);
    }
}
