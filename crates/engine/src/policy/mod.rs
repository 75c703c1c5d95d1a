//! Policies: pure functions from a view of what exists to a plan of what to do next. No I/O, no clock, no chance but
//! the view's seed; so each decision can be tested as text in, text out.

pub(crate) mod leveled;

use crate::options::Options;
use crate::version::{LEVELS_MAX, Version};
use std::fmt;

/// A table, as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableView {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// Part of a plan that runs.
    pub(crate) busy: bool,
}

/// A run: disjoint tables in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunView {
    pub(crate) age: u64,
    pub(crate) tables: Vec<TableView>,
}

/// A level: its runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelView {
    pub(crate) runs: Vec<RunView>,
}

/// A plan that is being carried out: what it reads, and where it will write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningPlan {
    pub(crate) inputs: Vec<u64>,
    pub(crate) output_level: usize,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

/// What a policy decides from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) levels: Vec<LevelView>,
    pub(crate) running: Vec<RunningPlan>,
    /// How many times larger a level is than the one above.
    pub(crate) ratio: u64,
    /// Runs in level 0 that make a merge due.
    pub(crate) level0_merge: usize,
    /// Least target of the level that level 0 merges into.
    pub(crate) base_bytes: u64,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Merge tables of some levels into one run of `output_level`.
    Merge {
        /// Table numbers by level.
        inputs: Vec<(usize, Vec<u64>)>,
        output_level: usize,
        /// Nothing older of these keys lies below the output.
        drop_tombstones: bool,
        smallest: Vec<u8>,
        largest: Vec<u8>,
    },
    /// Put a table into another level as it is.
    Move { table: u64, from: usize, to: usize, smallest: Vec<u8>, largest: Vec<u8> },
}

impl Plan {
    /// The plan as later views have to respect it.
    pub(crate) fn running(&self) -> RunningPlan {
        match self {
            Self::Merge { inputs, output_level, smallest, largest, .. } => RunningPlan {
                inputs: inputs.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect(),
                output_level: *output_level,
                smallest: smallest.clone(),
                largest: largest.clone(),
            },
            Self::Move { table, to, smallest, largest, .. } => RunningPlan {
                inputs: vec![*table],
                output_level: *to,
                smallest: smallest.clone(),
                largest: largest.clone(),
            },
        }
    }
}

impl TableView {
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.smallest.as_slice() <= largest && smallest <= self.largest.as_slice()
    }
}

impl LevelView {
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableView> {
        self.runs.iter().flat_map(|run| &run.tables)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes).sum()
    }

    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> impl Iterator<Item = &TableView> {
        self.tables().filter(move |table| table.overlaps(smallest, largest))
    }
}

impl View {
    /// The view of a version; linear in its tables.
    pub(crate) fn of(version: &Version, options: &Options, running: &[RunningPlan]) -> Self {
        let busy = |number: u64| running.iter().any(|plan| plan.inputs.contains(&number));
        let table = |table: &std::sync::Arc<crate::version::TableHandle>| {
            let meta = &table.meta;
            TableView {
                number: meta.number,
                bytes: meta.data_bytes,
                entries: meta.entries,
                tombstones: meta.tombstones,
                smallest: meta.smallest.clone(),
                largest: meta.largest.clone(),
                busy: busy(meta.number),
            }
        };
        let run = |run: &crate::version::Run| RunView {
            age: run.age,
            tables: run.tables.iter().map(table).collect(),
        };
        let level = |level: &crate::version::Level| LevelView { runs: level.runs().map(run).collect() };
        let mut levels: Vec<LevelView> = version.levels.iter().map(level).collect();
        levels.resize_with(LEVELS_MAX, LevelView::default);
        Self {
            levels,
            running: running.to_vec(),
            ratio: u64::from(options.level_ratio),
            level0_merge: options.level0_merge as usize,
            base_bytes: options.memtable_bytes() * u64::from(options.level0_merge),
        }
    }

    /// The tier for a level's data: levels are laid out from the top, each on the first tier that its target, and
    /// those of the levels above it there, leave room for. A fifth of each tier is left for the log, for indexes and
    /// for merges on their way.
    pub(crate) fn tier_of(&self, level: usize, capacities: &[u64]) -> usize {
        let targets = leveled::level_targets(self);
        let (mut tier, mut taken) = (0, 0u64);
        for (i, target) in targets.iter().enumerate().take(level + 1) {
            // What a level may grow to before it is merged down, or has grown to already.
            let bytes = self.levels.get(i).map_or(0, LevelView::bytes).max(*target);
            while tier + 1 < capacities.len() && taken.saturating_add(bytes) > capacities[tier] / 5 * 4 {
                (tier, taken) = (tier + 1, 0);
            }
            taken = taken.saturating_add(bytes);
        }
        tier
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge { inputs, output_level, drop_tombstones, smallest, largest } => {
                write!(f, "merge")?;
                for (level, numbers) in inputs {
                    let numbers: Vec<_> = numbers.iter().map(|number| format!("#{number}")).collect();
                    write!(f, " L{level}: {}", numbers.join(" "))?;
                }
                let (smallest, largest) = (smallest.escape_ascii(), largest.escape_ascii());
                write!(f, " into L{output_level} [{smallest}..{largest}]")?;
                if *drop_tombstones { write!(f, ", tombstones go") } else { Ok(()) }
            }
            Self::Move { table, from, to, .. } => write!(f, "move #{table} from L{from} to L{to}"),
        }
    }
}
