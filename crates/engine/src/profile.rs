//! Profiles: the papers' designs as choices of parts, and the choices that a profile leaves open.

use crate::error::{Error, Result};
use std::fmt;

/// A choice of containers, policies and tracker for one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// Sorted tables in levels; the upper levels on the fast tier.
    #[default]
    Leveled,
    /// As `leveled`, but what comes down to a level is put beside what is there, up to a number of runs: fewer bytes
    /// are written, and reads ask more tables. Fragmented compaction (Raju et al., PebblesDB, SOSP 2017), as Zhang and
    /// Du compare it with theirs (ACM TOS 17(3), 2021).
    Fragmented,
    /// Objects in slots on the fast tier, cold ones in sorted tables on the capacity tier: PrismDB (Raina et
    /// al., ASPLOS 2023). Needs two tiers.
    PrismDb,
    /// As `fragmented`, but runs of a guard point into one another, so that a read searches one of them and follows
    /// pointers into the others: NVLSM (Zhang and Du, ACM TOS 17(3), 2021). Meant for persistent memory, where each
    /// entry points; on other tiers the indexes do.
    NvLsm,
}

impl Profile {
    /// Every profile that exists.
    pub const ALL: [Self; 4] = [Self::Leveled, Self::Fragmented, Self::PrismDb, Self::NvLsm];

    /// Its name, as options and files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "leveled",
            Self::Fragmented => "fragmented",
            Self::PrismDb => "prismdb",
            Self::NvLsm => "nvlsm",
        }
    }

    /// Whether it has a store of objects below the memtable.
    pub(crate) fn has_store(self) -> bool {
        matches!(self, Self::PrismDb)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no profile {text:?}; this version has: {known}"))
        })
    }
}

/// How the key range whose objects go down is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Demotion {
    /// The best of eight, weighed by samples of their objects.
    #[default]
    Approx,
    /// The best of all, weighed by all of their objects: for comparisons, since that takes long.
    Precise,
    /// Any: for comparisons.
    Random,
}

impl Demotion {
    /// Every way there is.
    pub const ALL: [Self; 3] = [Self::Approx, Self::Precise, Self::Random];

    /// Its name, as options spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approx => "approx",
            Self::Precise => "precise",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Demotion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Demotion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|demotion| demotion.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no way of demotion {text:?}; there are: {known}"))
        })
    }
}

/// When what a read found below comes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromoteReads {
    /// While reads are what is asked for, many hot keys lie below, and it helps.
    #[default]
    Auto,
    /// Whenever the key is hot.
    Always,
    /// Never: hot keys come up when a merge meets them, or when they are written.
    Never,
}

impl PromoteReads {
    /// Every choice there is.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// Its name, as options spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

impl fmt::Display for PromoteReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for PromoteReads {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|promote| promote.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no way of promotion {text:?}; there are: {known}"))
        })
    }
}
