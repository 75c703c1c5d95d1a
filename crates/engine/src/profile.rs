//! Profiles: the papers' designs as choices of parts.

use crate::error::{Error, Result};
use std::fmt;

/// A choice of containers, policies and tracker for one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// Sorted tables in levels; the upper levels on the fast tier.
    #[default]
    Leveled,
    /// Objects in slots on the fast tier, cold ones in one level of sorted tables on the capacity tier: PrismDB (Raina et
    /// al., ASPLOS 2023). Needs two tiers.
    PrismDb,
}

impl Profile {
    /// Every profile that exists.
    pub const ALL: [Self; 2] = [Self::Leveled, Self::PrismDb];

    /// Its name, as options and files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "leveled",
            Self::PrismDb => "prismdb",
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
