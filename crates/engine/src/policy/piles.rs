//! Piles: what comes down to the last level may be laid on the tables there as a run of its own, and merged with them
//! later.
//!
//! Where each byte that comes down is merged at once, it rewrites several of those it meets. Laid on them it is written
//! once when it comes, and once more, with one or two others, when the *pile*, tables that lie on one another, is
//! merged: when that has `runs_max` runs, or would have more bytes over the oldest run than a part of what is in it,
//! from a half to all. The part is drawn by the pile's first key, since updates are laid on all piles alike: with one
//! number for all they would be merged all at once, and then for long none. (Lazy leveling, Dayan and Idreos, SIGMOD
//! 2018, turned round: there the last level alone is one run.) Up to all of the level is there twice meanwhile, and a
//! read asks a filter more for each run, a scan a table more. What is laid may lie on several tables of the oldest run;
//! these make one pile then.
//!
//! A run is newer than those under it: its age is one more than that of the newest of these, and less than `runs_max`
//! over the oldest's (where it is laid across guards, it may be more in some of them, which are merged the sooner).
//! Below a store of objects what is laid are demotions ([`super::msc`]); in leveled compaction, merges into the last
//! level, where that lies on a slower tier than the levels above ([`super::leveled`]). What comes to a pile that takes
//! no more is merged with it: with the tables of all newer runs among its keys, each with what it lies on, and with the
//! oldest run. Other tables of newer runs may reach into what that merge writes; these stay above it, as they were.
//!
//! Nothing is laid where the last tier is short of room.

use super::{GuardView, Plan, RunView, TableView, View, fragmented, leveled};
use crate::key;
use crate::planted::{self, Bug};
use crate::version::owners;
use std::ops::Range;
use std::sync::Arc;

/// The last tier has room for piles while so many times as much is free as is kept for merges that make room.
pub(crate) const ROOMY: u64 = 2;

/// Tables that lie on one another, as far as they say whether more is laid on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pile {
    /// Of the oldest run, and of all newer ones.
    pub(crate) oldest_bytes: u64,
    pub(crate) upper_bytes: u64,
    /// How much more the newest run's age is than the oldest's.
    pub(crate) age: u64,
    /// Of the oldest run's bytes half may lie on them, and so many parts in 2^32 of the other half.
    pub(crate) drawn: u32,
}

/// Tables of a guard that lie on one another; no other table has keys between their first and last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PileView {
    /// In the order of their first keys: the place of each one's run, and its own there.
    pub(crate) tables: Vec<(usize, usize)>,
    /// Which ends last.
    pub(super) last: (usize, usize),
    /// Of all tables.
    pub(crate) bytes: u64,
}

/// The piles of a guard's runs, in key order.
pub(super) fn of(runs: &[RunView]) -> Vec<PileView> {
    let table = |(run, table): (usize, usize)| &runs[run].tables[table];
    let of_run = |run: usize| (0..runs[run].tables.len()).map(move |table| (run, table));
    let mut places: Vec<(usize, usize)> = (0..runs.len()).flat_map(of_run).collect();
    places.sort_by(|a, b| table(*a).smallest.cmp(&table(*b).smallest));
    let mut piles: Vec<PileView> = Vec::new();
    for place in places {
        let next = table(place);
        match piles.last_mut().filter(|pile| table(pile.last).largest >= next.smallest) {
            Some(pile) => {
                pile.tables.push(place);
                pile.bytes += next.bytes;
                if next.largest > table(pile.last).largest {
                    pile.last = place;
                }
            }
            None => piles.push(PileView { tables: vec![place], last: place, bytes: next.bytes }),
        }
    }
    piles
}

/// What is drawn for the pile that begins with this key.
pub(crate) fn drawn(first: &[u8]) -> u32 {
    key::hash(first) as u32
}

impl Pile {
    /// Whether so many bytes that go are laid on it, where up to `runs_max` runs may lie on one another.
    pub(crate) fn takes(&self, goes: u64, runs_max: u64) -> bool {
        let upper_bytes = self.upper_bytes.saturating_add(goes);
        let part = ((u128::from(self.oldest_bytes.div_ceil(2)) * u128::from(self.drawn)) >> 32) as u64;
        self.oldest_bytes > 0 && self.age + 1 < runs_max && upper_bytes <= self.oldest_bytes / 2 + part
    }
}

/// What tables that come down to a level meet there, and what becomes of them.
pub(super) struct Met<'a> {
    /// They are laid on what is there, and merged with nothing.
    pub(super) is_laid: bool,
    /// Else, what they are merged with: tables of newer runs than the oldest, newest first; and those of the oldest, in
    /// key order.
    pub(super) upper: Vec<&'a TableView>,
    pub(super) under: Vec<&'a TableView>,
    /// The age of the run that they join; `None` where there is one run at most among their keys, and as far as anybody
    /// knows always was.
    pub(super) joins: Option<u64>,
}

/// What `inputs`, tables of a level above, which have keys from `smallest` to `largest`, meet in a level.
pub(super) fn met<'a>(
    view: &'a View,
    inputs: &[&'a TableView],
    level: usize,
    (smallest, largest): (&'a [u8], &'a [u8]),
) -> Met<'a> {
    let is_last = level + 1 == view.levels.len();
    let piled = if is_last { piled(view) } else { &[] };
    let among = piled[owners(piled, |guard| &guard.start, smallest, largest)].iter();
    let guards: Vec<_> = among.filter_map(|guard| guard.runs.split_last()).collect();
    if guards.iter().all(|(_, newer)| view.laid_max <= 1 && newer.is_empty()) {
        let under = view.levels[level].overlapping(smallest, largest).collect();
        let is_first = is_last && view.laid_max > 1 && view.levels[level].runs().next().is_none();
        return Met { is_laid: false, upper: Vec::new(), under, joins: is_first.then_some(0) };
    }
    let (mut upper, mut under): (Vec<&TableView>, Vec<&TableView>) = <_>::default();
    let (mut oldest_age, mut newest_age, mut age) = (u64::MAX, 0, 0);
    for (oldest, newer) in guards {
        let (found, newest) = upper_among(newer, smallest, largest);
        let (from, to) = leveled::span(found.iter().chain(inputs).copied()).unwrap_or((smallest, largest));
        under.extend(&oldest.tables[oldest.overlapping(from, to)]);
        upper.extend(found);
        let newest = newest.unwrap_or(oldest.age);
        (oldest_age, newest_age) = (oldest_age.min(oldest.age), newest_age.max(newest));
        age = age.max(newest - oldest.age);
    }
    let sum = |of: fn(&TableView) -> u64| under.iter().map(|table| of(table)).sum::<u64>();
    let (oldest_bytes, entries) = (sum(|table| table.bytes), sum(|table| table.entries));
    // A tombstone is small, but what it deletes gives room back only when they are merged.
    let weight = |table: &TableView| {
        let deleted = table.tombstones as f64 / entries.max(1) as f64;
        table.bytes + (deleted * oldest_bytes as f64) as u64
    };
    let weights = |tables: &[&TableView]| tables.iter().map(|table| weight(table)).sum::<u64>();
    let drawn = under.first().map_or(0, |table| drawn(&table.smallest));
    let pile = Pile { oldest_bytes, upper_bytes: weights(&upper), age, drawn };
    // The latter looks at all tables.
    match pile.takes(weights(inputs), view.laid_max) && may_lay(view) {
        true => Met { is_laid: true, upper: Vec::new(), under: Vec::new(), joins: Some(newest_age + 1) },
        false => Met { is_laid: false, upper, under, joins: Some(oldest_age) },
    }
}

/// The tables of newer runs than the oldest, newest first, that have keys from `smallest` to `largest`, each with those
/// that it lies on; and the age of the newest.
fn upper_among<'a>(
    newer: &'a [RunView],
    smallest: &'a [u8],
    largest: &'a [u8],
) -> (Vec<&'a TableView>, Option<u64>) {
    let (mut found, mut age): (Vec<&TableView>, _) = (Vec::new(), None);
    let (mut from, mut to) = (smallest, largest);
    for run in newer {
        let among = &run.tables[run.overlapping(from, to)];
        let (Some(first), Some(last)) = (among.first(), among.last()) else { continue };
        if age.is_some() && planted::has(Bug::PileMergedPartly) {
            break;
        }
        age = age.or(Some(run.age));
        (from, to) = (from.min(&first.smallest), to.max(&last.largest));
        found.extend(among);
    }
    (found, age)
}

/// The last level's guards, if their runs may be taken apart: such as point into one another stay together. Without a
/// store there is one, unless it has several from another profile's time.
fn piled(view: &View) -> &[Arc<GuardView>] {
    let guards = view.levels.last().map_or(&[][..], |level| &level.guards);
    let is_linked = || view.linked || guards.iter().any(|guard| guard.runs.iter().any(|run| run.linked));
    match view.store.is_some() || guards.len() == 1 && !is_linked() {
        true => guards,
        false => &[],
    }
}

/// Whether a guard somewhere has several runs that are not laid on one another here: from a time when there might be
/// several.
pub(super) fn has_stray_runs(view: &View) -> bool {
    let several = view.levels.iter().skip(1).filter(|level| level.has_several_runs()).count();
    let of_last = view.levels.last().is_some_and(|level| level.has_several_runs()) && !piled(view).is_empty();
    several > usize::from(of_last)
}

/// Whether what comes down to the last level may be laid there: to spare a tier that is slower than those above, while
/// it has room.
pub(super) fn may_lay(view: &View) -> bool {
    let [_, .., last] = &view.tiers[..] else { return false };
    let has_room = last.free > ROOMY * last.keep_free;
    // The last looks at all tables.
    let is_spared = || view.store.is_some() || !leveled::fits_above(view);
    view.laid_max > 1 && has_room && !view.reclaim && is_spared()
}

/// Merges of what lies on the last level's oldest run with that, a table of the next-oldest each.
pub(super) fn into_oldest(view: &View) -> impl Iterator<Item = Plan> + '_ {
    let last = view.levels.len() - 1;
    view.levels[last].guards.iter().flat_map(move |guard| fragmented::each_into_oldest(view, last, guard))
}

/// Tables of newer runs that lie on several of the oldest run, those together that join the same ones; and the bytes of
/// that run that they join.
fn joined(runs: &[RunView]) -> Vec<(u64, Vec<&TableView>)> {
    let Some((oldest, newer)) = runs.split_last() else { return Vec::new() };
    let lies_on = |table: &TableView| oldest.overlapping(&table.smallest, &table.largest);
    let mut across: Vec<(Range<usize>, &TableView)> = newer
        .iter()
        .flat_map(|run| run.tables.iter().map(|table| (lies_on(table), table)))
        .filter(|(places, _)| places.len() > 1)
        .collect();
    across.sort_by_key(|(places, _)| places.start);
    let (mut all, mut rest) = (Vec::new(), &across[..]);
    while let Some((first, _)) = rest.first() {
        // Such as meet are joined.
        let (mut end, mut count) = (first.end, 1);
        while let Some((next, _)) = rest.get(count).filter(|(next, _)| next.start < end) {
            (end, count) = (end.max(next.end), count + 1);
        }
        let bytes = oldest.tables[first.start..end].iter().map(|table| table.bytes).sum();
        all.push((bytes, rest[..count].iter().map(|(_, table)| *table).collect()));
        rest = &rest[count..];
    }
    all
}

/// The most bytes of the oldest run that any tables join.
pub(super) fn joined_bytes(runs: &[RunView]) -> u64 {
    joined(runs).into_iter().map(|(bytes, _)| bytes).max().unwrap_or(0)
}

/// Merges into the last level's oldest run of tables that lie on several of that run, and of what they lie on, if what
/// they join together has more than `pile_max` bytes of that run: what was laid there from a level above, or upon what
/// was merged since.
pub(super) fn untangle(view: &View, pile_max: u64) -> impl Iterator<Item = Plan> + '_ {
    let last = view.levels.len() - 1;
    let guards = piled(view).iter().filter(move |guard| guard.joined_bytes > pile_max);
    guards.flat_map(move |guard| {
        let too_large = joined(&guard.runs).into_iter().filter(|(bytes, _)| *bytes > pile_max);
        let mut large: Vec<&TableView> = too_large.flat_map(|(_, tables)| tables).collect();
        large.retain(|table| !view.is_busy(table));
        let has_any = !large.is_empty();
        let meets = move |plan: &Plan| {
            let plan = plan.running();
            large.iter().any(|table| plan.meets(&table.smallest, &table.largest))
        };
        let merges = has_any.then(|| fragmented::each_into_oldest(view, last, guard));
        merges.into_iter().flatten().filter(meets)
    })
}

/// Where nothing is laid, what was is merged with what is under it.
pub(super) fn settle(view: &View) -> Option<Plan> {
    // With room to spare: what is merged takes less, and what is laid next takes more again.
    let is_unwanted = view.laid_max <= 1 || leveled::fits_above_beside(view, 2 * view.base_bytes);
    let merges = (is_unwanted && !piled(view).is_empty()).then(|| into_oldest(view));
    leveled::first_that_fits(view, merges.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn more_is_laid_until_that_is_half_or_all_of_what_is_there_or_there_are_many_runs() {
        let drawn = |drawn, upper_bytes, age| Pile { oldest_bytes: 100, upper_bytes, age, drawn };
        let takes = |upper_bytes, age, goes| drawn(1 << 31, upper_bytes, age).takes(goes, 4);
        assert!(takes(0, 0, 75) && !takes(0, 0, 76));
        assert!(takes(20, 1, 55) && !takes(20, 1, 56));
        assert!(takes(3, 2, 1) && !takes(3, 3, 1));
        assert!(drawn(0, 0, 0).takes(50, 4) && !drawn(0, 0, 0).takes(51, 4));
        assert!(drawn(u32::MAX, 0, 0).takes(99, 4) && !drawn(u32::MAX, 0, 0).takes(101, 4));
        // One run is all that there may be; and where there is nothing yet.
        assert!(!Pile { oldest_bytes: 100, ..Pile::default() }.takes(1, 1) && !Pile::default().takes(1, 4));
    }

    fn check(text: &str, expected: Expect) {
        check_on("tier 640 free 6\ntier 90000 free 9000", text, expected);
    }

    fn check_on(tiers: &str, text: &str, expected: Expect) {
        let view = view(&format!("base 20\nlaid 4\n{tiers}\n{text}"));
        let planned = super::super::plan(&view);
        expected.assert_eq(&planned.map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    /// Two tables of 300 bytes, which is 24 too many.
    const UPPER: &str = "L6: 1[a..c,300] 2[x..z,300]";

    #[test]
    fn what_comes_down_is_laid_on_what_is_there() {
        check(
            &format!("{UPPER}\nL7: 8[a..c,700]@1 9[d..z,2000]@1"),
            expect!["merge L6: #1 onto L7, as run 101 [a..c]"],
        );
        // On one run, on two, and beside one.
        check(
            &format!("{UPPER}\nL7: 5[a..b,50]@1 | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #1 onto L7, as run 101 [a..c]"],
        );
        check(
            &format!("{UPPER}\nL7: 5[b..b,9]@1 | 6[a..b,9]@1 | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #1 onto L7, as run 101 [a..c]"],
        );
        check(
            &format!("{UPPER}\nL7: 5[d..e,50]@1 | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #1 onto L7, as run 100 [a..c]"],
        );
        // Where nothing is it is moved.
        check(
            "L6: 1[a..c,300] 2[x..z,300]\nL7: 5[m..n,9]@1 | 9[d..n,9000]@1",
            expect!["move #1 from L6 to L7"],
        );
    }

    #[test]
    fn a_pile_that_takes_no_more_is_merged_first() {
        // As many runs as there may be; as many bytes; as many deleted.
        let runs = "L7: 4[a..a,9]@1 | 5[a..b,9]@1 | 6[b..c,9]@1 7[cc..d,9]@1 | 8[a..c,800]@1 9[d..z,9000]@1";
        check(
            &format!("{UPPER}\n{runs}"),
            expect!["merge L6: #1 #4 #5 #6 L7: #8 into L7 [a..c], tombstones go"],
        );
        check(
            &format!("{UPPER}\nL7: 5[b..b,501]@1 | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #1 #5 L7: #8 into L7 [a..c], tombstones go"],
        );
        check(
            &format!("{UPPER}\nL7: 5[b..b,5]~63@1 | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #1 #5 L7: #8 into L7 [a..c], tombstones go"],
        );
        // Tables that do not meet what comes go with those that lie on them.
        check(
            &format!("{UPPER}\nL7: 5[c..f,800]@1 | 6[e..k,9]@1 | 8[a..c,800]@1 9[d..k,300]@1 7[x..z,9000]@1"),
            expect!["merge L6: #1 #5 #6 L7: #8 #9 into L7 [a..k], tombstones go"],
        );
        // Not while somebody else is at it: the others go.
        check(
            &format!("{UPPER}\nL7: 5[b..b,501]@1! | 8[a..c,800]@1 9[d..z,9000]@1"),
            expect!["merge L6: #2 onto L7, as run 100 [x..z]"],
        );
    }

    #[test]
    fn nothing_is_laid_where_it_spares_nothing() {
        let levels = format!("{UPPER}\nL7: 8[a..c,700]@1 9[d..z,2000]@1");
        // The last tier is short of room, or there is one tier, or writers are refused.
        check_on(
            "tier 640 free 6\ntier 90000 free 2000",
            &levels,
            expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"],
        );
        check_on(
            "tier 90000 free 9000",
            &levels,
            expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"],
        );
        check(&format!("reclaim\n{levels}"), expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"]);
    }

    #[test]
    fn piles_go_where_nothing_that_is_due_has_room() {
        let upper = UPPER.replace("300", "600");
        let levels = format!("{upper}\nL7: 5[b..b,9]@1 | 8[a..c,500]@1 9[d..z,9000]@1");
        let check_with = |free: u64, expected| {
            check_on(&format!("tier 640 free 6\ntier 90000 free {free}"), &levels, expected);
        };
        check_with(1400, expect!["merge L6: #1 #5 L7: #8 into L7 [a..c], tombstones go"]);
        check_with(700, expect!["merge L7: #5 L7: #8 into L7 [a..c], tombstones go"]);
        // Who waits is told.
        check_with(600, expect!["merge L6: #1 #5 L7: #8 into L7 [a..c], tombstones go"]);
    }

    #[test]
    fn piles_go_where_none_are_wanted() {
        let levels = "L6: 1[a..c,3]\nL7: 5[b..b,9]@1 | 8[a..c,800]@1 9[d..z,9000]@1";
        check_on("tier 640 free 600\ntier 90000 free 9000", levels, expect!["nothing"]);
        check(&format!("laid 1\n{levels}"), expect!["merge L7: #5 L7: #8 into L7 [a..c], tombstones go"]);
        check(&format!("reclaim\n{levels}"), expect!["merge L7: #5 L7: #8 into L7 [a..c], tombstones go"]);
        check_on(
            "tier 64000 free 50000\ntier 90000 free 9000",
            levels,
            expect!["merge L7: #5 L7: #8 into L7 [a..c], tombstones go"],
        );
    }
}
