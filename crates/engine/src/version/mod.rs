//! What exists: the tables of each level, as an immutable [`Version`]; the [`Edit`]s that lead from one version to
//! the next; the manifest that records them; the superblock that points at the manifest.
//!
//! A level is a list of disjoint guards; a guard owns the keys from its start to the next guard's start and holds
//! runs, newest first; a run is disjoint tables in key order. Level 0 has one guard whose runs overlap; `leveled`
//! keeps one guard with one run in every other level.
//!
//! A version never changes. Readers hold it by `Arc` for as long as they look at it, and a table's files outlive the
//! last version that names them (see [`tables`]). Finding a key's table is a comparison per run in level 0 and a
//! binary search in each other level.

pub(crate) mod catalog;
pub(crate) mod edit;
pub(crate) mod manifest;
mod opened;
pub(crate) mod superblock;
pub(crate) mod tables;

pub(crate) use catalog::{Catalog, KeyspaceState};
pub(crate) use edit::{Edit, TableMeta};
pub(crate) use tables::{TableHandle, Tables};

use crate::error::{Error, Result};
use crate::planted::{self, Bug};
use std::fmt;
use std::sync::Arc;

/// Levels a version can have, level 0 included.
pub(crate) const LEVELS_MAX: usize = 8;

/// The tables of a store at one moment.
#[derive(Clone, Default)]
pub(crate) struct Version {
    pub(crate) levels: Vec<Level>,
}

/// Disjoint guards in key order; the first starts at the empty key.
#[derive(Clone, Default)]
pub(crate) struct Level {
    pub(crate) guards: Vec<Guard>,
}

/// A range of keys and the runs in it, newest first.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) start: Vec<u8>,
    pub(crate) runs: Vec<Run>,
}

/// Disjoint tables in key order. A larger age is newer; the age is given by the edit that made the run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) age: u64,
    pub(crate) tables: Vec<Arc<TableHandle>>,
}

impl Run {
    /// The table that may hold `key`.
    pub(crate) fn table_of(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let i = self.tables.partition_point(|table| table.meta.largest.as_slice() < key);
        self.tables.get(i).filter(|table| table.meta.smallest.as_slice() <= key)
    }
}

impl Level {
    /// The guard that owns `key`.
    pub(crate) fn guard_of(&self, key: &[u8]) -> Option<&Guard> {
        let i = self.guards.partition_point(|guard| guard.start.as_slice() <= key);
        self.guards.get(i.checked_sub(1)?)
    }

    /// Every run of the level, guard by guard, newest first in each.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.guards.iter().flat_map(|guard| &guard.runs)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.runs().flat_map(|run| &run.tables)
    }
}

impl Version {
    /// Every table, level by level.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.levels.iter().flat_map(Level::tables)
    }

    /// Runs in level 0.
    pub(crate) fn level0_runs(&self) -> usize {
        self.levels.first().map_or(0, |level| level.runs().count())
    }

    /// The version that `edit` leads to. `opener` makes handles for tables that this version does not have.
    ///
    /// # Errors
    /// `Internal` when the edit does not fit: a table removed that is not there, added twice, crossing a guard, or
    /// overlapping another of its run.
    pub(crate) fn apply(&self, edit: &Edit, tables: &Arc<Tables>) -> Result<Self> {
        let mut next = self.clone();
        let mut moved: Vec<Arc<TableHandle>> = Vec::new();
        for number in &edit.removed {
            moved.push(next.remove(*number)?);
        }
        for added in &edit.added {
            let known = moved.iter().position(|table| table.meta.number == added.meta.number);
            let handle = match known {
                Some(i) if moved[i].meta == added.meta => moved.swap_remove(i),
                Some(i) => moved.swap_remove(i).relocated(added.meta.clone()),
                None => TableHandle::new(added.meta.clone(), tables.clone()),
            };
            next.insert(added.level, added.age, handle)?;
        }
        Ok(next)
    }

    fn remove(&mut self, number: u64) -> Result<Arc<TableHandle>> {
        for guard in self.levels.iter_mut().flat_map(|level| &mut level.guards) {
            for r in 0..guard.runs.len() {
                let tables = &mut guard.runs[r].tables;
                if let Some(i) = tables.iter().position(|table| table.meta.number == number) {
                    let table = tables.remove(i);
                    if tables.is_empty() {
                        guard.runs.remove(r);
                    }
                    return Ok(table);
                }
            }
        }
        Err(Error::internal(format!("an edit removes table {number}, which is not there")))
    }

    fn insert(&mut self, level: u32, age: u64, table: Arc<TableHandle>) -> Result<()> {
        let refuse =
            |why: &str| Err(Error::internal(format!("table {} at level {level}: {why}", table.meta.number)));
        let level_index = level as usize;
        if level_index >= LEVELS_MAX {
            return refuse("there is no such level");
        }
        while self.levels.len() <= level_index {
            self.levels.push(Level { guards: vec![Guard { start: Vec::new(), runs: Vec::new() }] });
        }
        if self.tables().any(|other| other.meta.number == table.meta.number) {
            return refuse("it is there already");
        }
        let level = &mut self.levels[level_index];
        let g =
            level.guards.partition_point(|guard| guard.start.as_slice() <= table.meta.smallest.as_slice())
                - 1;
        if level.guards.get(g + 1).is_some_and(|next| next.start <= table.meta.largest) {
            return refuse("it crosses a guard");
        }
        let runs = &mut level.guards[g].runs;
        let r = match planted::has(Bug::OldestRunOnTop) {
            true => runs.partition_point(|run| run.age < age),
            false => runs.partition_point(|run| run.age > age),
        };
        if runs.get(r).is_none_or(|run| run.age != age) {
            runs.insert(r, Run { age, tables: Vec::new() });
        }
        let tables = &mut runs[r].tables;
        let i = tables.partition_point(|other| other.meta.largest < table.meta.smallest);
        if tables.get(i).is_some_and(|other| other.meta.smallest <= table.meta.largest) {
            return refuse("it overlaps another table of its run");
        }
        tables.insert(i, table);
        Ok(())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, level) in self.levels.iter().enumerate() {
            for (guard, run) in
                level.guards.iter().flat_map(|guard| guard.runs.iter().map(move |run| (guard, run)))
            {
                write!(f, "L{i} [{}..] age {}:", guard.start.escape_ascii(), run.age)?;
                run.tables.iter().try_for_each(|table| write!(f, " {}", table.meta))?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
