//! Policies: pure functions from a view of what exists to a plan of what to do next. No I/O, no clock, no chance but
//! the view's seed; so each decision can be tested as text in, text out.

pub(crate) mod climb;
pub(crate) mod leveled;
pub(crate) mod msc;
pub(crate) mod placement;
pub(crate) mod promotion;
pub(crate) mod sorted_log;

use crate::options::Options;
use crate::tracker::Pinning;
use crate::version::{LEVELS_MAX, Version};
pub(crate) use msc::{RangeHeat, RangeView, StoreView};
pub(crate) use placement::TierView;
use std::fmt;
use std::ops::Range;

/// Above all keys: no keyspace has this id.
pub(crate) const AFTER_ALL: [u8; 4] = [0xff; 4];

/// Heat is reads per so many bytes.
const HEAT_BYTES: u64 = 1 << 20;

/// A table, as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableView {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// Of its data.
    pub(crate) tier: usize,
    /// How often its data was read from media lately: the power of two of reads per mebibyte.
    pub(crate) heat: u32,
    /// Part of a plan that runs.
    pub(crate) busy: bool,
    /// It cannot be put on another tier for now: a reader still holds its data where it was before.
    pub(crate) lingers: bool,
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
    pub(crate) from: Vec<u8>,
    /// The first key behind.
    pub(crate) to: Vec<u8>,
}

/// The first key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// What a policy decides from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) levels: Vec<LevelView>,
    pub(crate) running: Vec<RunningPlan>,
    /// Fastest first.
    pub(crate) tiers: Vec<TierView>,
    /// How many times larger a level is than the one above.
    pub(crate) ratio: u64,
    /// Runs in level 0 that make a merge due.
    pub(crate) level0_merge: usize,
    /// Least target of the level that level 0 merges into.
    pub(crate) base_bytes: u64,
    /// Writers are refused for want of room: what is shadowed or deleted should give its room back.
    pub(crate) reclaim: bool,
    /// The store below the memtable, in profiles that have one.
    pub(crate) store: Option<StoreView>,
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
    /// Put a table's data on another tier as it is.
    Relocate { table: u64, level: usize, to: usize, smallest: Vec<u8>, largest: Vec<u8> },
    /// Merge the store's objects from one key up to before another with tables, into `level`, but for those that stay.
    Demote {
        tables: Vec<u64>,
        level: usize,
        /// Nothing older of these keys lies below that.
        drop_tombstones: bool,
        from: Vec<u8>,
        to: Vec<u8>,
        pinning: Pinning,
    },
    /// Let so many bytes of the store's copies of what tables have go, but for those that stay.
    Release { pinning: Pinning, bytes: u64 },
}

impl Plan {
    /// The plan as later views have to respect it.
    pub(crate) fn running(&self) -> RunningPlan {
        match self {
            Self::Merge { inputs, output_level, smallest, largest, .. } => RunningPlan {
                inputs: inputs.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect(),
                output_level: *output_level,
                from: smallest.clone(),
                to: behind(largest),
            },
            Self::Move { table, to, smallest, largest, .. }
            | Self::Relocate { table, level: to, smallest, largest, .. } => RunningPlan {
                inputs: vec![*table],
                output_level: *to,
                from: smallest.clone(),
                to: behind(largest),
            },
            Self::Demote { tables, level, from, to, .. } => RunningPlan {
                inputs: tables.clone(),
                output_level: *level,
                from: from.clone(),
                to: to.clone(),
            },
            Self::Release { .. } => RunningPlan {
                inputs: Vec::new(),
                output_level: LEVELS_MAX,
                from: Vec::new(),
                to: AFTER_ALL.to_vec(),
            },
        }
    }
}

impl RunView {
    /// Where the tables are that hold keys from `smallest` to `largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let begin = self.tables.partition_point(|table| table.largest.as_slice() < smallest);
        let count = self.tables[begin..].partition_point(|table| table.smallest.as_slice() <= largest);
        begin..begin + count
    }
}

impl LevelView {
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableView> {
        self.runs.iter().flat_map(|run| &run.tables)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tables().map(|table| table.bytes).sum()
    }

    /// The tables that hold keys from `smallest` to `largest`; logarithmic in the number of tables, besides them.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> impl Iterator<Item = &TableView> {
        self.runs.iter().flat_map(move |run| &run.tables[run.overlapping(smallest, largest)])
    }
}

impl View {
    /// Whether some tier has room for outputs as large as `inputs`; a merge leases its worst case before it begins.
    pub(crate) fn has_room_for(&self, inputs: u64) -> bool {
        // The first tier is the store's, where there is one.
        let mut tiers = self.tiers.iter().skip(usize::from(self.store.is_some()));
        self.tiers.is_empty() || tiers.any(|tier| tier.free > inputs + inputs / 4)
    }

    /// The view of a version; linear in its tables.
    pub(crate) fn of(
        version: &Version,
        options: &Options,
        running: &[RunningPlan],
        tiers: Vec<TierView>,
        store: Option<StoreView>,
        reclaim: bool,
    ) -> Self {
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
                tier: meta.data_tier as usize,
                heat: (table.reads() * HEAT_BYTES / meta.data_bytes.max(1))
                    .checked_ilog2()
                    .map_or(0, |n| n + 1),
                busy: busy(meta.number),
                lingers: table.lingers(),
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
            tiers,
            ratio: u64::from(options.level_ratio),
            level0_merge: options.level0_merge as usize,
            base_bytes: options.memtable_bytes() * u64::from(options.level0_merge),
            reclaim,
            store,
        }
    }
}

/// The next thing to do, if anything is due. With a store below the memtable that is a demotion or a merge within the sorted
/// log, the demotion first where somebody waits for it, then merges for the room that they give back. Else room on a tier that
/// is almost out of it, then merges, then merges for their room, then tables that lie on the wrong tier.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    if let Some(store) = &view.store {
        let within = || sorted_log::plan(view);
        let planned = match store.pressed {
            true => msc::plan(view).or_else(within),
            false => within().or_else(|| msc::plan(view)),
        };
        return planned.or_else(|| sorted_log::reclaim(view));
    }
    placement::urgent(view)
        .or_else(|| leveled::plan(view))
        .or_else(|| leveled::reclaim(view))
        .or_else(|| placement::plan(view))
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
            Self::Relocate { table, level, to, .. } => {
                write!(f, "relocate #{table} of L{level} to tier {to}")
            }
            Self::Release { bytes, .. } => write!(f, "release {bytes} bytes of copies"),
            Self::Demote { tables, level, drop_tombstones: _, from, to, pinning } => {
                let whole = if *pinning == Pinning::NONE { " whole" } else { "" };
                write!(f, "demote{whole} [{}..{})", from.escape_ascii(), to.escape_ascii())?;
                let tables: Vec<_> = tables.iter().map(|number| format!("#{number}")).collect();
                if tables.is_empty() { Ok(()) } else { write!(f, " into L{level}: {}", tables.join(" ")) }
            }
        }
    }
}
