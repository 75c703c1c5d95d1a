//! Layers: the newest tables of all guards of a level, in key order; those of the runs below these; and so on. Tables
//! of a layer are disjoint, so who walks over all of a level needs no more cursors than a guard has runs.
//!
//! A layer of a whole version finds its tables when they are asked for, a search by halving among guards and one in a
//! run, so that a scan of a few keys does not look at every table. It keeps the version; a list of tables keeps these
//! alone.

use super::{Guard, Level, Run, TableHandle, Version};
use crate::planted::{self, Bug};
use std::sync::Arc;

/// Over the tables of a guard.
#[derive(Clone, Debug, Default)]
pub(super) struct GuardSums {
    entries: u64,
    data_bytes: u64,
    /// Of the data that each layer has of it.
    depths: Vec<u64>,
}

impl GuardSums {
    fn of(guard: &Guard) -> Self {
        let mut sums = Self::default();
        for table in guard.runs.iter().flat_map(|run| &run.tables) {
            sums.entries += table.meta.entries;
            sums.data_bytes += table.meta.data_bytes;
        }
        let data_bytes = |run: &Run| run.tables.iter().map(|table| table.meta.data_bytes).sum();
        sums.depths = guard.tops().map(data_bytes).collect();
        sums
    }
}

/// What scans, and plans, ask of a version before they begin.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// In all tables.
    entries: u64,
    data_bytes: u64,
    /// Level and depth of each layer, and the bytes of its data.
    layers: Vec<(usize, usize, u64)>,
}

/// What is in level 0, as each write asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level0Sums {
    pub(crate) guards: usize,
    pub(crate) bytes: u64,
    /// Runs of that guard which has most.
    pub(crate) runs_max: usize,
    /// Runs of its guards, which count by their bytes.
    pub(crate) runs: f64,
}

impl Level0Sums {
    fn of(guards: &[Arc<Guard>]) -> Self {
        let mut sums = Self { guards: guards.len(), ..Self::default() };
        let mut weighed = 0.0;
        for guard in guards {
            let tables = guard.runs.iter().flat_map(|run| &run.tables);
            let bytes: u64 = tables.map(|table| table.meta.level_bytes()).sum();
            sums.bytes += bytes;
            sums.runs_max = sums.runs_max.max(guard.runs.len());
            weighed += bytes as f64 * guard.runs.len() as f64;
        }
        Self { runs: weighed / sums.bytes.max(1) as f64, ..sums }
    }
}

/// Disjoint tables in key order.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    /// Those of a version that lie so many runs from the top in the guards of a level.
    Of { version: Arc<Version>, level: usize, depth: usize },
    /// These.
    Listed(Vec<Arc<TableHandle>>),
}

/// Where a table of a layer is: its guard, of which a list is one, and its place in the run there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    guard: usize,
    table: usize,
}

/// The tables of a guard that belong to a layer.
fn run_of(guard: &Guard, depth: usize) -> &[Arc<TableHandle>] {
    guard.tops().nth(depth).map_or(&[], |run| &run.tables)
}

/// How many layers these guards have.
fn depth_of(guards: &[Arc<Guard>]) -> usize {
    let most = guards.iter().map(|guard| guard.tops().count()).max().unwrap_or(0);
    if planted::has(Bug::OlderLayersLeftOut) { most.min(1) } else { most }
}

impl Level {
    /// The tables of each layer that may have keys from `smallest` to `largest`.
    pub(crate) fn layers_among(
        &self,
        smallest: &[u8],
        largest: &[u8],
    ) -> impl Iterator<Item = Vec<Arc<TableHandle>>> {
        let guards = self.guards_of(smallest, largest);
        (0..depth_of(guards)).map(move |depth| {
            let tables = guards.iter().flat_map(|guard| {
                let run = run_of(guard, depth);
                let run = &run[run.partition_point(|table| table.largest() < smallest)..];
                &run[..run.partition_point(|table| table.smallest() <= largest)]
            });
            tables.cloned().collect()
        })
    }
}

impl Version {
    /// Whether no more than so many tables may have keys from `smallest` to `largest`; stops counting there.
    pub(crate) fn has_few_among(&self, smallest: &[u8], largest: &[u8], most: usize) -> bool {
        let guards = self.levels.iter().flat_map(|level| level.guards_of(smallest, largest));
        let in_run = |tables: &[Arc<TableHandle>]| {
            let from = tables.partition_point(|table| table.largest() < smallest);
            tables[from..].partition_point(|table| table.smallest() <= largest)
        };
        // A guard counts as one at least, so that counting ends.
        let counts = guards.map(|guard| guard.tops().map(|run| in_run(&run.tables)).sum::<usize>().max(1));
        counts
            .scan(0, |all, count| {
                Some({
                    *all += count;
                    *all
                })
            })
            .all(|all| all <= most)
    }

    /// Entries of all tables.
    pub(crate) fn entries(&self) -> u64 {
        self.sums().entries
    }

    /// Bytes of the data of all tables.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.sums().data_bytes
    }

    /// Every layer, with the bytes of its data.
    pub(crate) fn layers(self: &Arc<Self>) -> impl Iterator<Item = (Layer, u64)> {
        let layer = |(level, depth, bytes): &(usize, usize, u64)| {
            (Layer::Of { version: self.clone(), level: *level, depth: *depth }, *bytes)
        };
        self.sums().layers.iter().map(layer)
    }

    /// Linear in tables of level 0, once.
    pub(crate) fn level0(&self) -> &Level0Sums {
        let guards = self.levels.first().map_or(&[][..], |level| &level.guards);
        self.level0_sums.get_or_init(|| Level0Sums::of(guards))
    }

    /// Linear in guards, and in the tables of those that no version before had, once.
    fn sums(&self) -> &Sums {
        self.sums.get_or_init(|| {
            let mut sums = Sums::default();
            for (number, level) in self.levels.iter().enumerate() {
                let mut depths: Vec<u64> = vec![0; depth_of(&level.guards)];
                for guard in &level.guards {
                    let of_guard = guard.sums.get_or_init(|| GuardSums::of(guard));
                    sums.entries += of_guard.entries;
                    sums.data_bytes += of_guard.data_bytes;
                    depths.iter_mut().zip(&of_guard.depths).for_each(|(all, bytes)| *all += bytes);
                }
                let layers = depths.into_iter().enumerate().map(|(depth, bytes)| (number, depth, bytes));
                sums.layers.extend(layers);
            }
            sums
        })
    }
}

impl Layer {
    fn guards(&self) -> usize {
        match self {
            Self::Of { version, level, .. } => version.levels[*level].guards.len(),
            Self::Listed(_) => 1,
        }
    }

    fn run(&self, guard: usize) -> &[Arc<TableHandle>] {
        match self {
            Self::Of { version, level, depth } => {
                version.levels[*level].guards.get(guard).map_or(&[], |guard| run_of(guard, *depth))
            }
            Self::Listed(tables) if guard == 0 => tables,
            Self::Listed(_) => &[],
        }
    }

    /// The guard that owns a key.
    fn owner(&self, key: &[u8]) -> usize {
        let Self::Of { version, level, .. } = self else { return 0 };
        let guards = &version.levels[*level].guards;
        guards.partition_point(|guard| guard.start.as_slice() <= key).saturating_sub(1)
    }

    pub(crate) fn table(&self, spot: Spot) -> Option<&Arc<TableHandle>> {
        self.run(spot.guard).get(spot.table)
    }

    /// The first table from a place on.
    fn at_or_after(&self, spot: Spot) -> Option<Spot> {
        let Spot { guard, table } = spot;
        if table < self.run(guard).len() {
            return Some(spot);
        }
        let mut behind = guard + 1..self.guards();
        behind.find(|guard| !self.run(*guard).is_empty()).map(|guard| Spot { guard, table: 0 })
    }

    /// The last table before a place.
    pub(crate) fn before(&self, spot: Spot) -> Option<Spot> {
        let Spot { guard, table } = spot;
        if let Some(table) = table.checked_sub(1) {
            return Some(Spot { guard, table });
        }
        let found = (0..guard).rev().find(|guard| !self.run(*guard).is_empty())?;
        Some(Spot { guard: found, table: self.run(found).len() - 1 })
    }

    pub(crate) fn after(&self, spot: Spot) -> Option<Spot> {
        self.at_or_after(Spot { table: spot.table + 1, ..spot })
    }

    pub(crate) fn first(&self) -> Option<Spot> {
        self.at_or_after(Spot { guard: 0, table: 0 })
    }

    pub(crate) fn last(&self) -> Option<Spot> {
        self.before(Spot { guard: self.guards(), table: 0 })
    }

    /// The first table that reaches a key or begins behind it.
    pub(crate) fn first_to_reach(&self, key: &[u8]) -> Option<Spot> {
        let guard = self.owner(key);
        let table = self.run(guard).partition_point(|table| table.largest() < key);
        self.at_or_after(Spot { guard, table })
    }

    /// The last table that begins with a key or before it.
    pub(crate) fn last_to_begin(&self, key: &[u8]) -> Option<Spot> {
        let guard = self.owner(key);
        let table = self.run(guard).partition_point(|table| table.smallest() <= key);
        self.before(Spot { guard, table })
    }
}
