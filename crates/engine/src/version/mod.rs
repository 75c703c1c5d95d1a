//! What exists: the tables of each level, as an immutable [`Version`]; the [`Edit`]s that lead from one version to
//! the next; the manifest that records them; the superblock that points at the manifest.
//!
//! A level is a list of disjoint guards; a guard owns the keys from its start to the next guard's start and holds runs,
//! newest first; a run is disjoint tables in key order. A table in persistent memory may lie on the one table of the
//! next older run and point into it; so it goes only together with all that lie on it, and readers find them all
//! through the topmost. No table crosses from one guard into the next. Level 0's guards are cut by flushes; profiles
//! `fragmented` and `nvlsm` have many with several runs each in the other levels, too, `prismdb` many with one run,
//! `leveled` one with one run, both in the last level with what is laid on it
//! (`docs/decisions/0012-guards-with-several-runs.md`). Versions share the guards that an edit leaves as they are
//! (`docs/decisions/0013-many-tables.md`).
//!
//! A version never changes. Readers hold it by `Arc` for as long as they look at it, and a table's files outlive the
//! last version that names them (see [`tables`]). Finding a key's tables is a binary search for its guard in each
//! level, and one in each of its runs.

pub(crate) mod catalog;
pub(crate) mod edit;
mod layer;
pub(crate) mod manifest;
mod opened;
pub(crate) mod superblock;
pub(crate) mod tables;

pub(crate) use catalog::{Catalog, KeyspaceState};
pub(crate) use edit::{Edit, InMemory, TableMeta, TablePart};
pub(crate) use layer::{Layer, Level0Sums, Spot};
pub(crate) use opened::OpenMost;
pub(crate) use tables::{TableHandle, Tables};

use crate::error::{Error, Result};
use crate::planted::{self, Bug};
use crate::range_tombstones::RangeTombstones;
use layer::{GuardSums, Sums};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Done, or why what an edit asks for does not fit.
type Fits = std::result::Result<(), String>;

/// Tables by number, with their levels.
pub(crate) type Present = BTreeMap<u64, (usize, Arc<TableHandle>)>;

/// What an edit leads to.
pub(crate) struct Applied {
    pub(crate) version: Version,
    /// Tables that it removes; of these it may put some elsewhere, with their data or without.
    pub(crate) removed: Present,
    /// Tables that it adds, or puts elsewhere.
    pub(crate) added: Present,
}

/// Levels a version can have, level 0 included.
pub(crate) const LEVELS_MAX: usize = 8;

/// The tables of a store at one moment.
#[derive(Default)]
pub(crate) struct Version {
    pub(crate) levels: Vec<Level>,
    /// Those that may cover something here, or in the store of objects.
    pub(crate) range_tombstones: Arc<RangeTombstones>,
    /// Reckoned when somebody scans it first.
    sums: OnceLock<Sums>,
    /// Reckoned when somebody writes first; apart, since writes should not wait for a look at all tables.
    level0_sums: OnceLock<Level0Sums>,
}

/// Disjoint guards in key order; the first starts at the empty key.
#[derive(Clone, Default)]
pub(crate) struct Level {
    /// Those that an edit leaves as they were are shared by the versions before and after it.
    pub(crate) guards: Vec<Arc<Guard>>,
}

/// A range of keys and the runs in it, newest first.
#[derive(Default)]
pub(crate) struct Guard {
    pub(crate) start: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    /// Reckoned when somebody asks first; forgotten by who changes it.
    sums: OnceLock<GuardSums>,
}

/// Disjoint tables in key order. A larger age is newer; the age is given by the edit that made the run.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) age: u64,
    pub(crate) tables: Vec<Arc<TableHandle>>,
}

impl Run {
    /// Whether its one table lies on that of `older`, so that it is read with that.
    pub(crate) fn lies_on(&self, older: &Self) -> bool {
        let ([table], [below]) = (&self.tables[..], &older.tables[..]) else { return false };
        table.meta.below() == Some(below.meta.number)
    }

    /// The table that may hold `key`.
    pub(crate) fn table_of(&self, key: &[u8]) -> Option<&Arc<TableHandle>> {
        let i = self.tables.partition_point(|table| table.largest() < key);
        self.tables.get(i).filter(|table| table.smallest() <= key)
    }
}

impl Clone for Guard {
    fn clone(&self) -> Self {
        Self::new(self.start.clone(), self.runs.clone())
    }
}

impl Guard {
    pub(crate) fn new(start: Vec<u8>, runs: Vec<Run>) -> Self {
        Self { start, runs, sums: OnceLock::new() }
    }

    /// The guard, to be changed: a copy if others have it.
    fn change(guard: &mut Arc<Self>) -> &mut Self {
        let guard = Arc::make_mut(guard);
        guard.sums = OnceLock::new();
        guard
    }

    /// Its runs as readers look into them, newest first: of tables that lie on one another the topmost, which stands
    /// for all.
    pub(crate) fn tops(&self) -> impl Iterator<Item = &Run> {
        let is_covered = |i: usize| i > 0 && self.runs[i - 1].lies_on(&self.runs[i]);
        self.runs.iter().enumerate().filter(move |(i, _)| !is_covered(*i)).map(|(_, run)| run)
    }

    /// Each table that lies on another must find that as the next older run, and all of it: pointers lead there.
    fn check_links(&self) -> Fits {
        for (i, run) in self.runs.iter().enumerate() {
            for table in run.tables.iter().filter(|table| table.meta.below().is_some()) {
                if !self.runs.get(i + 1).is_some_and(|older| run.lies_on(older)) {
                    return Err(format!("{} is not on top of what it lies on", table.meta));
                }
            }
        }
        Ok(())
    }

    /// Puts a table into its run, which is made if there is none of that age.
    fn insert(&mut self, age: u64, table: Arc<TableHandle>) -> Fits {
        let runs = &mut self.runs;
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
            return Err("it overlaps another table of its run".to_owned());
        }
        tables.insert(i, table);
        Ok(())
    }
}

/// The places of the guards that own keys from `smallest` to `largest`; the first guard starts at the empty key.
pub(crate) fn owners<G>(
    guards: &[G],
    start: impl Fn(&G) -> &[u8],
    smallest: &[u8],
    largest: &[u8],
) -> Range<usize> {
    let begin = guards.partition_point(|guard| start(guard) <= smallest);
    begin.saturating_sub(1)..guards.partition_point(|guard| start(guard) <= largest)
}

impl Level {
    /// Where its guards begin, but for the first.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = &[u8]> {
        self.guards.iter().skip(1).map(|guard| guard.start.as_slice())
    }

    /// The guards that own keys from `smallest` to `largest`.
    pub(crate) fn guards_of(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<Guard>] {
        &self.guards[owners(&self.guards, |guard| &guard.start, smallest, largest)]
    }

    /// Cuts a guard off the one that owns `start`.
    fn add_guard(&mut self, start: &[u8]) -> Fits {
        let at = self.guards.partition_point(|guard| guard.start.as_slice() <= start);
        let Some(owner) = at.checked_sub(1).and_then(|at| self.guards.get_mut(at)) else {
            return Err("nobody owns that key".to_owned());
        };
        let owner = Guard::change(owner);
        if owner.start == start {
            return Err("it is there already".to_owned());
        }
        let mut made = Guard::new(start.to_vec(), Vec::new());
        for run in &mut owner.runs {
            let behind = run.tables.partition_point(|table| table.meta.largest.as_slice() < start);
            if let Some(crossing) = run.tables.get(behind).filter(|t| t.meta.smallest.as_slice() < start) {
                return Err(format!("table {} crosses it", crossing.meta.number));
            }
            made.runs.push(Run { age: run.age, tables: run.tables.split_off(behind) });
        }
        for guard in [&mut *owner, &mut made] {
            guard.runs.retain(|run| !run.tables.is_empty());
        }
        self.guards.insert(at, Arc::new(made));
        Ok(())
    }

    /// Makes a guard part of the one before.
    fn remove_guard(&mut self, start: &[u8]) -> Fits {
        let found = self.guards.iter().position(|guard| guard.start == start);
        let Some(at) = found.filter(|at| *at > 0) else { return Err("there is none to remove".to_owned()) };
        let gone = self.guards.remove(at);
        for run in gone.runs.iter().filter(|run| !run.tables.is_empty()) {
            let before = Guard::change(&mut self.guards[at - 1]);
            run.tables.iter().try_for_each(|table| before.insert(run.age, table.clone()))?;
        }
        Ok(())
    }

    /// The guard that owns `key`.
    pub(crate) fn guard_of(&self, key: &[u8]) -> Option<&Guard> {
        let i = self.guards.partition_point(|guard| guard.start.as_slice() <= key);
        self.guards.get(i.checked_sub(1)?).map(|guard| &**guard)
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

    /// What `edit` leads to. `present` has the tables of this version, so that none of those is looked at which the
    /// edit does not name; guards that it does not change are shared.
    ///
    /// # Errors
    /// `Internal` when the edit does not fit: a table removed that is not there, or that another lies on, added twice,
    /// crossing a guard, or overlapping another of its run; a guard that is there already, or is not.
    pub(crate) fn apply(&self, edit: &Edit, tables: &Arc<Tables>, present: &Present) -> Result<Applied> {
        let mut range_tombstones = self.range_tombstones.clone();
        for tombstone in &edit.ranges_added {
            range_tombstones = Arc::new(range_tombstones.with(tombstone.clone()));
        }
        if !edit.ranges_removed.is_empty() {
            range_tombstones = Arc::new(range_tombstones.without(&edit.ranges_removed));
        }
        let mut next = Self { levels: self.levels.clone(), range_tombstones, ..Self::default() };
        let mut removed = Present::new();
        for number in &edit.removed {
            let found = present.get(number).filter(|_| !removed.contains_key(number));
            let Some((level, table)) = found else {
                return Err(Error::internal(format!("an edit removes table {number}, which is not there")));
            };
            next.remove(*level, table);
            removed.insert(*number, (*level, table.clone()));
        }
        let removals = edit.guards_removed.iter().map(|guard| (guard, false));
        for ((level, start), adds) in removals.chain(edit.guards_added.iter().map(|guard| (guard, true))) {
            let changed =
                next.level_mut(*level).map_or(Err("there can be none".to_owned()), |level| match adds {
                    true => level.add_guard(start),
                    false => level.remove_guard(start),
                });
            let refuse =
                |why| Error::internal(format!("guard {} of level {level}: {why}", start.escape_ascii()));
            changed.map_err(refuse)?;
        }
        // What lies on another comes behind it.
        let mut adds: Vec<&edit::AddedTable> = edit.added.iter().collect();
        adds.sort_by_key(|added| added.age);
        let mut made = Present::new();
        for added in adds {
            let number = added.meta.number;
            let find = |number: &u64| {
                let before = || present.get(number).filter(|_| !removed.contains_key(number));
                made.get(number).or_else(before).map(|(_, table)| table)
            };
            if find(&number).is_some() {
                let level = added.level;
                return Err(Error::internal(format!("table {number} at level {level}: it is there already")));
            }
            let handle = match removed.get(&number) {
                Some((_, table)) if table.meta == added.meta => table.clone(),
                Some((_, table)) => table.relocated(added.meta.clone()),
                None => {
                    let below = added.meta.below().and_then(|below| find(&below).cloned());
                    TableHandle::new(added.meta.clone(), below, tables.clone())
                }
            };
            next.insert(added.level, added.age, handle.clone())?;
            made.insert(number, (added.level as usize, handle));
        }
        // Those that are shared fitted before.
        let changed = next.levels.iter().flat_map(|level| &level.guards);
        let mut changed = changed.filter(|guard| Arc::strong_count(guard) == 1);
        changed.try_for_each(|guard| guard.check_links()).map_err(Error::internal)?;
        Ok(Applied { version: next, removed, added: made })
    }

    /// Takes a table away that is in this level.
    fn remove(&mut self, level: usize, table: &TableHandle) {
        let guards = &mut self.levels[level].guards;
        let owner = guards.partition_point(|guard| guard.start <= table.meta.smallest);
        let guard = Guard::change(&mut guards[owner - 1]);
        for run in &mut guard.runs {
            run.tables.retain(|other| other.meta.number != table.meta.number);
        }
        guard.runs.retain(|run| !run.tables.is_empty());
    }

    /// A level, made if it can be and there is none; one guard over all keys at first.
    fn level_mut(&mut self, level: u32) -> Option<&mut Level> {
        let level = (level as usize).min(LEVELS_MAX);
        while level < LEVELS_MAX && self.levels.len() <= level {
            self.levels.push(Level { guards: vec![Arc::default()] });
        }
        self.levels.get_mut(level)
    }

    fn insert(&mut self, level: u32, age: u64, table: Arc<TableHandle>) -> Result<()> {
        let number = table.meta.number;
        let refuse = |why: &str| Err(Error::internal(format!("table {number} at level {level}: {why}")));
        let Some(level) = self.level_mut(level) else { return refuse("there is no such level") };
        let behind = level.guards.partition_point(|guard| guard.start <= table.meta.smallest);
        if level.guards.get(behind).is_some_and(|next| next.start <= table.meta.largest) {
            return refuse("it crosses a guard");
        }
        Guard::change(&mut level.guards[behind - 1]).insert(age, table).or_else(|why| refuse(&why))
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

#[cfg(test)]
mod tests;
