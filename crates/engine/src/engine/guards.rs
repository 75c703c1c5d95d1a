//! Guards as jobs need them: where tables are cut, which run they join, and what becomes of the bounds.
//!
//! A job reads bounds before it writes and changes them when it commits. What it found stays true in between: plans
//! keep off each other's keys in the levels that they read or write (`policy/fragmented.rs`), and bounds are changed
//! among a plan's own keys only (a sorted log's where nothing runs on both sides: `policy/log_guards.rs`), or taken
//! away, which is no harm. What becomes of bounds is decided with the root in hand, so that no two edits take the same
//! one away. Level 0's are a flush's to change, of which one runs at a time: it cuts those that it finds empty by what
//! it has for them, and merges only ever empty more of them while it writes. (And an open's, when nothing else runs.)
//!
//! With one run a guard nobody needs guards below level 0 but the sorted log below a store (`policy/log_guards.rs`),
//! and all runs are of age 0, but for what is laid on the last level. A store of profile `nvlsm` may have both from a
//! time with more floors: outputs are not cut at such bounds but put across, and the guards that become one with them,
//! of one age.

use super::Engine;
use crate::error::Result;
use crate::key::Trailer;
use crate::memtable::MemTable;
use crate::planted::{self, Bug};
use crate::policy::AFTER_ALL;
use crate::policy::fragmented::{Change, Piece, change};
use crate::table::{Link, Tree};
use crate::version::edit::AddedTable;
use crate::version::{Edit, Guard, LEVELS_MAX, Level, Run, TableHandle, TableMeta, Version, owners};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A piece of a memtable is one part in so many of what a guard of level 0 should get of it.
const PIECES: u64 = 16;
/// What an entry takes besides its key and value, about.
const ENTRY_BYTES: u64 = 16;

/// Guards of level 0, as a flush will have changed them.
#[derive(Debug, Default)]
pub(super) struct Level0 {
    /// Where they begin, but for the first.
    pub(super) bounds: Vec<Vec<u8>>,
    /// Of these, those that are new; and those that were there and are not any more: each with its level.
    pub(super) added: Vec<(u32, Vec<u8>)>,
    pub(super) removed: Vec<(u32, Vec<u8>)>,
}

/// What a guard has once an edit is applied.
struct After<'a> {
    guard: &'a Guard,
    /// Where the next one begins.
    end: Option<&'a [u8]>,
    /// By age.
    runs: BTreeMap<u64, Vec<Piece>>,
    /// Runs of the guard before it.
    runs_before: usize,
}

impl After<'_> {
    /// A table each.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = self.runs.values().flatten().cloned().collect();
        pieces.sort();
        pieces
    }
}

impl Engine {
    /// How level 0 is to be cut for the run that a memtable becomes. A walk over the memtable.
    pub(super) fn guards_for(&self, memtable: &MemTable) -> Level0 {
        let current = self.current.load();
        let guards = current.version.levels.first().map_or(&[][..], |level| &level.guards);
        match self.options.level0_guard_bytes() {
            Some(bytes) => level0_for(guards, &pieces_of(memtable, bytes / PIECES), bytes),
            None => Level0::default(),
        }
    }

    /// Where guards of a level begin behind `smallest`, up to `largest`, but for those between two that are empty.
    pub(super) fn bounds_between(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Vec<Vec<u8>> {
        let current = self.current.load();
        let level = current.version.levels.get(level);
        let guards = level.map_or(&[][..], |level| level.guards_of(smallest, largest));
        let holds = |pair: &&[Arc<Guard>]| pair.iter().any(|guard| !guard.runs.is_empty());
        guards.windows(2).filter(holds).map(|pair| pair[1].start.clone()).collect()
    }

    /// Where what goes from one level to another is cut: at the bounds there; with one run a guard, and no store above,
    /// what comes from level 0 at its own, so that its next guard finds no table there that goes across.
    pub(super) fn cuts_between(
        &self,
        from: usize,
        to: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> Vec<Vec<u8>> {
        if self.options.runs_max() > 1 || self.options.has_store() {
            return self.bounds_between(to, smallest, largest);
        }
        let current = self.current.load();
        let level0 = current.version.levels.first().filter(|_| from == 0 && to > 0);
        let own = level0.into_iter().flat_map(Level::bounds);
        own.filter(|bound| smallest < *bound && *bound <= largest).map(<[u8]>::to_vec).collect()
    }

    /// Where tables of the first level from `level` on that has any begin behind `smallest`, up to `largest`, those of
    /// its oldest run: what ends there as well drags none of them along for a few of its keys. None where guards may
    /// have several runs, whose bounds decide; nor where there are bounds from such a time: they go when a table is put
    /// across them, and this would keep tables from that.
    pub(super) fn tables_begin_in(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Vec<Vec<u8>> {
        let current = self.current.load();
        let levels = &current.version.levels;
        let is_cut = levels.iter().skip(1).any(|level| level.guards.len() > 1);
        if self.options.runs_max() > 1 || is_cut && !self.options.has_store() {
            return Vec::new();
        }
        let below = levels.iter().skip(level).find(|level| level.tables().next().is_some());
        let guards = below.into_iter().flat_map(|level| level.guards_of(smallest, largest));
        let oldest = guards.filter_map(|guard| guard.runs.last());
        let starts = oldest.flat_map(|run| &run.tables).map(|table| table.smallest());
        starts.filter(|start| smallest < *start && *start <= largest).map(<[u8]>::to_vec).collect()
    }

    /// Has `edit` add tables to a level, which come in key order: to the run of age `joins`; else to the newest of
    /// their guard, or to one above that where it has anything among their keys. Bounds that they go across are taken
    /// away; with one run a guard, all that they come among is of one age then.
    pub(super) fn add_tables(&self, edit: &mut Edit, metas: &[TableMeta], level: usize, joins: Option<u64>) {
        let current = self.current.load();
        let guards = current.version.levels.get(level).map_or(&[][..], |level| &level.guards);
        let among = match metas {
            [first, .., last] | [first @ last] => {
                &guards[owners(guards, |guard| &guard.start, &first.smallest, &last.largest)]
            }
            [] => return,
        };
        let is_one_run = self.options.runs_max() == 1
            && joins.is_none()
            && among.iter().all(|guard| guard.runs.len() <= 1);
        let (mut added, mut again) = (Vec::new(), Vec::new());
        let owner = |meta: &TableMeta| guards.partition_point(|guard| guard.start <= meta.smallest);
        for mine in metas.chunk_by(|a, b| owner(a) == owner(b)) {
            let guard = owner(&mine[0]).checked_sub(1).map(|i| &guards[i]);
            let age = match joins {
                Some(age) => age,
                None if is_one_run => 0,
                None => guard.map_or(0, |guard| age_on(guard, mine, &edit.removed)),
            };
            let level = level as u32;
            added.extend(mine.iter().map(|meta| AddedTable { level, age, meta: meta.clone() }));
        }
        if is_one_run {
            let others = among.iter().flat_map(|guard| &guard.runs).filter(|run| run.age > 0);
            for table in others.flat_map(|run| &run.tables).filter(|table| stays(table, &edit.removed)) {
                added.push(AddedTable { level: level as u32, age: 0, meta: table.meta.clone() });
                again.push(table.meta.number);
            }
        }
        edit.removed.extend(again);
        edit.added.extend(added);
        for meta in metas {
            let crossed = owners(guards, |guard| &guard.start, &meta.smallest, &meta.largest).skip(1);
            edit.guards_removed.extend(crossed.map(|i| (level as u32, guards[i].start.clone())));
        }
        // Level 0's bounds are not a merge's to change.
        if level > 0 && self.options.adds_floors() && !planted::has(Bug::GuardsNotSeparated) {
            separate(edit, guards, metas, level as u32);
        }
    }

    /// Has guards of a level begin at some keys, and at others no more, as far as they still can.
    pub(super) fn cut_guards(&self, level: usize, added: &[Vec<u8>], removed: &[Vec<u8>]) -> Result<()> {
        // Nobody else changes guards from here on.
        let mut root = self.root.take();
        let current = self.current.load_full();
        let Some(at) = current.version.levels.get(level) else { return Ok(()) };
        let has = |start: &&Vec<u8>| at.guard_of(start).is_some_and(|guard| guard.start == **start);
        let crosses = |start: &[u8], run: &Run| {
            let reaches = run.tables.partition_point(|table| table.largest() < start);
            run.tables.get(reaches).is_some_and(|table| table.smallest() < start)
        };
        let can_be = |start: &&Vec<u8>| {
            let runs = at.guard_of(start).into_iter().flat_map(|guard| &guard.runs);
            !has(start) && !runs.into_iter().any(|run| crosses(start, run))
        };
        let level = level as u32;
        let edit = Edit {
            guards_added: added.iter().filter(can_be).map(|start| (level, start.clone())).collect(),
            guards_removed: removed.iter().filter(has).map(|start| (level, start.clone())).collect(),
            ..Edit::default()
        };
        drop(current);
        if edit.guards_added.is_empty() && edit.guards_removed.is_empty() {
            return Ok(());
        }
        self.commit_tables_as(&mut root, edit, |_| {})
    }

    /// The floors that a table of `key` which is put on top in a level is to lie on.
    pub(super) fn tree_under(&self, level: usize, key: &[u8]) -> Result<Option<Tree>> {
        let current = self.current.load();
        let guard = current.version.levels.get(level).and_then(|level| level.guard_of(key));
        let top = guard.and_then(|guard| guard.runs.first()).filter(|run| run.tables.len() == 1);
        let top = top.and_then(|run| run.tables.first());
        top.map_or(Ok(None), |top| Ok(top.table()?.tree().cloned()))
    }

    /// Where a search for a place goes on in the newest run of a level there: of the guard's tables in the one that
    /// reaches the key. A table that cannot be opened is not pointed into, which is for its readers to find out.
    pub(super) fn link_under(&self, level: usize, key: &[u8], trailer: Trailer) -> Option<Link> {
        let current = self.current.load();
        let run = current.version.levels.get(level)?.guard_of(key)?.runs.first()?;
        let behind = run.tables.partition_point(|table| table.largest() < key);
        run.tables.get(behind)?.table().ok()?.link_to(key, trailer)
    }

    /// Has the edit that ends a merge cut guards that have outgrown their size, and join those that have become small,
    /// where nothing is left that a bound could go through: a guard of `level` from which all has gone down to
    /// `output`, and, in the last level, one that is a single run.
    pub(super) fn change_guards(
        &self,
        edit: &mut Edit,
        level: usize,
        output: usize,
        (smallest, largest): (&[u8], &[u8]),
    ) {
        if self.options.runs_max() <= 1 {
            return;
        }
        let current = self.current.load();
        let after = |level: usize| -> Vec<After<'_>> {
            let guards = current.version.levels.get(level).map_or(&[][..], |level| &level.guards);
            let owners = owners(guards, |guard| &guard.start, smallest, largest);
            owners.map(|i| guard_after(guards, i, level as u32, edit)).collect()
        };
        let below = after(output);
        let mut changes = Vec::new();
        let links = self.options.adds_floors();
        if output + 1 == LEVELS_MAX {
            // What lies on one another stays in a guard of its own, and those are cut when they are written.
            let most = usize::from(!links);
            let single = below.iter().filter(|after| after.runs.len() <= most);
            changes.extend(single.map(|after| (output, after, after.runs_before, after.pieces())));
        }
        let above = if (1..output).contains(&level) { after(level) } else { Vec::new() };
        for emptied in above.iter().filter(|after| after.runs.is_empty()) {
            // Nothing is put into the guard before it.
            changes.push((level, emptied, 0, pieces_below(edit, &below)));
        }
        for (level, After { guard, end, .. }, runs_before, pieces) in changes {
            let ends = (guard.start.as_slice(), *end);
            let change = change(ends, &pieces, smallest, largest, self.options.guard_bytes());
            let level = level as u32;
            edit.guards_added.extend(change.added.into_iter().map(|start| (level, start)));
            let removed = (level, guard.start.clone());
            let is_joined = change.is_joined && (links || runs_before < self.options.runs_max());
            if is_joined && !edit.guards_removed.contains(&removed) {
                edit.guards_removed.push(removed);
            }
        }
    }
}

/// A memtable in pieces of about so many bytes, that no key's versions are parted by.
fn pieces_of(memtable: &MemTable, piece_bytes: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut last: &[u8] = &[];
    for entry in memtable.entries() {
        let entry_bytes = (entry.key.len() + entry.value.len()) as u64 + ENTRY_BYTES;
        match pieces.last_mut().filter(|(_, bytes)| *bytes < piece_bytes || entry.key == last) {
            Some((_, bytes)) => *bytes += entry_bytes,
            None => pieces.push((entry.key.to_vec(), entry_bytes)),
        }
        last = entry.key;
    }
    pieces
}

/// Guards of level 0 for a run in these pieces. An empty guard is cut where it gets much of it, and joins the one
/// before where it gets little; one that has tables stays as it is, which might go through a cut.
fn level0_for(guards: &[Arc<Guard>], pieces: &[Piece], guard_bytes: u64) -> Level0 {
    let none = [Arc::default()];
    let guards = if guards.is_empty() { &none } else { guards };
    let mut level0 = Level0::default();
    for (i, guard) in guards.iter().enumerate() {
        let until = |start: &[u8]| pieces.partition_point(|(key, _)| key.as_slice() < start);
        let end = guards.get(i + 1).map(|next| next.start.as_slice());
        let own = until(&guard.start)..end.map_or(pieces.len(), until);
        let change = match guard.runs.is_empty() {
            true => change((&guard.start, end), &pieces[own], &[], &AFTER_ALL, guard_bytes),
            false => Change::default(),
        };
        if change.is_joined {
            level0.removed.push((0, guard.start.clone()));
        } else if i > 0 {
            level0.bounds.push(guard.start.clone());
        }
        level0.added.extend(change.added.iter().map(|start| (0, start.clone())));
        level0.bounds.extend(change.added);
    }
    level0
}

/// Whether a table is there after an edit that removes these.
fn stays(table: &TableHandle, removed: &[u64]) -> bool {
    !removed.contains(&table.meta.number)
}

/// The age that tables which are added to a guard have there: the newest run's, or one above where that has anything
/// among their keys which stays, or where they lie on its tree.
fn age_on(guard: &Guard, mine: &[TableMeta], removed: &[u64]) -> u64 {
    if mine.iter().any(|meta| meta.below().is_some()) {
        return guard.runs.first().map_or(0, |run| run.age + 1);
    }
    let meets = |table: &TableHandle| {
        let (smallest, largest) = (&table.meta.smallest, &table.meta.largest);
        mine.iter().any(|meta| meta.smallest <= *largest && *smallest <= meta.largest)
    };
    if planted::has(Bug::AgesByCount) {
        return guard.runs.len() as u64;
    }
    let newest = guard.runs.iter().find(|run| run.tables.iter().any(|table| stays(table, removed)));
    newest.map_or(0, |run| {
        run.age + u64::from(run.tables.iter().any(|table| stays(table, removed) && meets(table)))
    })
}

/// Has `edit`, which adds `metas` to a level, cut guards so that tables which do not lie on one another are in
/// different ones.
fn separate(edit: &mut Edit, guards: &[Arc<Guard>], metas: &[TableMeta], level: u32) {
    let (Some(first), Some(last)) = (metas.first(), metas.last()) else { return };
    let touched = owners(guards, |guard| &guard.start, &first.smallest, &last.largest);
    let had = guards[touched.clone()].iter().flat_map(|guard| &guard.runs).flat_map(|run| &run.tables);
    let stay: Vec<_> = had.filter(|table| !edit.removed.contains(&table.meta.number)).collect();
    let covered: Vec<u64> = stay.iter().filter_map(|table| table.meta.below()).collect();
    let stays = stay.into_iter().filter(|table| !covered.contains(&table.meta.number));
    let new = metas.iter().filter(|meta| meta.below().is_none());
    let mut apart: Vec<(&[u8], &[u8])> = stays
        .map(|table| (table.smallest(), table.largest()))
        .chain(new.map(|meta| (meta.smallest.as_slice(), meta.largest.as_slice())))
        .collect();
    apart.sort_unstable();
    let removed = |start: &[u8]| edit.guards_removed.iter().any(|(l, gone)| *l == level && gone == start);
    let starts: Vec<&[u8]> =
        guards[touched].iter().map(|guard| guard.start.as_slice()).filter(|start| !removed(start)).collect();
    let is_cut =
        |before: &[u8], behind: &[u8]| starts.iter().any(|start| before < *start && *start <= behind);
    let cuts = gaps(apart.into_iter()).into_iter().filter(|(before, behind)| !is_cut(before, behind));
    let cuts: Vec<_> = cuts.map(|(_, behind)| (level, behind.to_vec())).collect();
    edit.guards_added.extend(cuts);
}

/// Between ranges of keys, which come in the order of their first keys: the last key before each gap, and the first
/// behind it.
fn gaps<'a>(ranges: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<(&'a [u8], &'a [u8])> {
    let mut found = Vec::new();
    let mut end: Option<&[u8]> = None;
    for (smallest, largest) in ranges {
        found.extend(end.filter(|end| *end < smallest).map(|end| (end, smallest)));
        end = end.max(Some(largest));
    }
    found
}

/// Has guards that were written with one floor be ready for more: level 0 is one guard over all keys, and each table
/// below that no other lies on gets a guard of its own, so that a floor which is put there has one table to lie on.
pub(super) fn ready_for_floors(version: &Version) -> Edit {
    let mut edit = Edit::default();
    let bounds = version.levels.iter().take(1).flat_map(Level::bounds);
    edit.guards_removed.extend(bounds.map(|start| (0, start.to_vec())));
    for (number, level) in version.levels.iter().enumerate().skip(1) {
        for guard in &level.guards {
            let mut tops: Vec<_> = guard.tops().flat_map(|run| &run.tables).collect();
            tops.sort_unstable_by_key(|table| table.smallest());
            let ranges = tops.iter().map(|table| (table.smallest(), table.largest()));
            let starts = gaps(ranges).into_iter().map(|(_, start)| (number as u32, start.to_vec()));
            edit.guards_added.extend(starts);
        }
    }
    edit
}

/// Guard `i` of a level as `edit` leaves it.
fn guard_after<'a>(guards: &'a [Arc<Guard>], i: usize, level: u32, edit: &Edit) -> After<'a> {
    let (guard, next) = (&guards[i], guards.get(i + 1));
    let had = guard.runs.iter().flat_map(|run| run.tables.iter().map(|table| (run.age, &table.meta)));
    let stay = had.filter(|(_, meta)| !edit.removed.contains(&meta.number));
    let owned =
        |meta: &TableMeta| guard.start <= meta.smallest && next.is_none_or(|next| meta.smallest < next.start);
    let come = edit.added.iter().filter(|added| added.level == level && owned(&added.meta));
    let mut runs: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for (age, meta) in stay.chain(come.map(|added| (added.age, &added.meta))) {
        runs.entry(age).or_default().push((meta.smallest.clone(), meta.level_bytes()));
    }
    let runs_before = i.checked_sub(1).map_or(0, |before| guards[before].runs.len());
    After { guard, end: next.map(|next| next.start.as_slice()), runs, runs_before }
}

/// What went down, by the guards where it is now; a table each, if that is one.
fn pieces_below(edit: &Edit, below: &[After<'_>]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for meta in edit.added.iter().map(|added| &added.meta) {
        let behind = below.partition_point(|after| after.guard.start <= meta.smallest);
        let owner = behind.checked_sub(1).filter(|_| below.len() > 1).map(|i| &below[i].guard.start);
        let start = owner.unwrap_or(&meta.smallest);
        match pieces.last_mut().filter(|(last, _)| last == start) {
            Some((_, bytes)) => *bytes += meta.level_bytes(),
            None => pieces.push((start.clone(), meta.level_bytes())),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyspaceId, Kind, Seq};
    use crate::version::Run;

    /// Guards from these keys on, and the first, which have a run where there is a `+`.
    fn guards(text: &str) -> Vec<Arc<Guard>> {
        let guard = |word: &str| {
            let start = word.trim_end_matches('+').as_bytes().to_vec();
            let runs =
                if word.ends_with('+') { vec![Run { age: 1, tables: Vec::new() }] } else { Vec::new() };
            Arc::new(Guard::new(start, runs))
        };
        text.split(' ').map(guard).collect()
    }

    /// Bounds, those that are new with a `|` and those that go behind a `!`, for a run of ten bytes at each letter.
    fn cut(text: &str, run: &str) -> String {
        let pieces: Vec<Piece> = run.chars().map(|letter| (letter.to_string().into_bytes(), 10)).collect();
        let level0 = level0_for(&guards(text), &pieces, 40);
        let word = |(_, start): &(u32, Vec<u8>)| String::from_utf8(start.clone()).unwrap();
        let added: Vec<_> = level0.added.iter().map(word).collect();
        let bound = |start: &Vec<u8>| String::from_utf8(start.clone()).unwrap();
        let shown = level0.bounds.iter().map(bound);
        let mut shown: Vec<_> =
            shown.map(|start| if added.contains(&start) { format!("|{start}") } else { start }).collect();
        shown.extend(level0.removed.iter().map(|removed| format!("!{}", word(removed))));
        shown.join(" ")
    }

    #[test]
    fn a_flush_cuts_what_it_finds_empty_by_what_it_brings() {
        assert_eq!(cut("", "abcdefghijkl"), "|e |i");
        assert_eq!(cut(" e i", "abcdefghijkl"), "e i");
        // What has tables stays as it is, however much or little it gets.
        assert_eq!(cut("+", "abcdefghijkl"), "");
        assert_eq!(cut(" e+ i+", "abcdefgh"), "e i");
        // Keys that are appended: guards that get nothing join those before, the last is cut.
        assert_eq!(cut(" e i", "klmnopqr"), "i |o !e");
        assert_eq!(cut(" e+ i", "xyz"), "e i");
        assert_eq!(cut(" e+ i", "abcd"), "e !i");
    }

    #[test]
    fn nothing_is_cut_where_a_range_goes_across() {
        let gaps = |text: &str| -> String {
            let words = text.split(' ').map(str::as_bytes).map(|word| (&word[..1], &word[1..]));
            let shown = gaps(words).into_iter().map(|(a, b)| format!("{}|{}", a[0] as char, b[0] as char));
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(gaps("ac df gh"), "c|d f|g");
        assert_eq!(gaps("az bc df"), "");
        assert_eq!(gaps("ad bc cf gh"), "f|g");
        assert_eq!(gaps("ac cf"), "");
    }

    #[test]
    fn pieces_of_a_memtable_part_no_key() {
        let (mut writer, memtable) = MemTable::new(1);
        for (seq, key) in (1..).zip([1, 1, 1, 2, 3, 4]) {
            writer.insert(&KeyspaceId::DEFAULT.key(&[key]), Trailer::new(Seq(seq), Kind::Put), &[7; 79]);
        }
        let pieces = pieces_of(&memtable, 150);
        let shown: Vec<_> = pieces.iter().map(|(key, bytes)| (key[4], *bytes)).collect();
        assert_eq!(shown, [(1, 300), (2, 200), (4, 100)]);
    }
}
