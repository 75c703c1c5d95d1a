//! The numbers that readers still read at; compaction keeps what they can see.

use crate::key::Seq;
use crate::planted::{self, Bug};
use std::collections::BTreeMap;

/// How many readers hold each number.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    held: BTreeMap<u64, u64>,
}

impl Snapshots {
    pub(crate) fn hold(&mut self, seq: Seq) {
        *self.held.entry(seq.0).or_default() += 1;
    }

    pub(crate) fn release(&mut self, seq: Seq) {
        if let Some(count) = self.held.get_mut(&seq.0) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&seq.0);
            }
        }
    }

    /// Readers there are.
    pub(crate) fn count(&self) -> u64 {
        self.held.values().sum()
    }

    /// The held numbers and `visible`, ascending, each once: for every key and every one of these numbers the newest
    /// version at or below it has to stay.
    pub(crate) fn boundaries(&self, visible: Seq) -> Vec<Seq> {
        let mut all: Vec<Seq> = self.held.keys().map(|seq| Seq(*seq)).filter(|seq| *seq < visible).collect();
        if planted::has(Bug::SnapshotsForgotten) {
            all.clear();
        }
        all.push(visible);
        all
    }
}
