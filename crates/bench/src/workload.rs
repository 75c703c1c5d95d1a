//! The mixes: YCSB's six core workloads, the load, and a write-only one.

use crate::distribution::Distribution;
use cuesta_sched::Rng;
use serde::Serialize;

/// A named mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] = [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read-modify-write",
        }
    }
}

/// Longest scan, in records; lengths are uniform from 1.
pub(crate) const SCAN_RECORDS_MAX: u64 = 100;

/// Shares of operations, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: [(Operation, u64); 2],
}

impl Workload {
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
        }
    }

    /// What it consists of.
    pub fn mix(self) -> Mix {
        use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
        let shares = match self {
            Self::Load => [(Insert, 100), (Insert, 0)],
            Self::A => [(Read, 50), (Update, 50)],
            Self::B => [(Read, 95), (Update, 5)],
            Self::C => [(Read, 100), (Read, 0)],
            Self::D => [(Read, 95), (Insert, 5)],
            Self::E => [(Scan, 95), (Insert, 5)],
            Self::F => [(Read, 50), (ReadModifyWrite, 50)],
            Self::W => [(Update, 100), (Update, 0)],
        };
        Mix { shares }
    }

    /// The distribution it is defined with, where the caller does not choose one.
    pub fn distribution(self, chosen: Option<Distribution>) -> Distribution {
        chosen.unwrap_or(if self == Self::D { Distribution::Latest } else { Distribution::Zipfian })
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Load, Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::W];
        let found = all.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| format!("{text:?} is no workload; use load, a, b, c, d, e, f or w"))
    }
}

impl Mix {
    /// The next operation.
    pub fn choose(&self, rng: &mut Rng) -> Operation {
        if rng.below(100) < self.shares[0].1 { self.shares[0].0 } else { self.shares[1].0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (Workload::Load, Operation::Insert, 100),
        ] {
            let mix = workload.mix();
            let seen = (0..100_000).filter(|_| mix.choose(&mut rng) == operation).count() as i64;
            assert!((seen - share * 1000).abs() <= 500, "{workload:?}: {seen} of 100000");
            assert_eq!(workload.name().parse(), Ok(workload));
        }
    }

    #[test]
    fn d_reads_the_latest() {
        assert_eq!(Workload::D.distribution(None), Distribution::Latest);
        assert_eq!(Workload::D.distribution(Some(Distribution::Uniform)), Distribution::Uniform);
        assert_eq!(Workload::A.distribution(None), Distribution::Zipfian);
    }
}
