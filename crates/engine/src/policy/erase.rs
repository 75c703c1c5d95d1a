//! Range tombstones at work: tables that one covers lose what it covers, and one that covers nothing any more is
//! forgotten.
//!
//! A tombstone is due once nobody reads before it. A table *needs* it if it has keys of its range, an entry that is
//! older, and was not written with it in hand ([`TableView::erased`]). Tables that are covered whole come first
//! ([`whole`]): they go by edits of many, and nothing is read or written. The others are rewritten in place, one at a
//! time, when nothing else is due ([`apply`]), or before that once there are half as many tombstones as there may be
//! ([`pressing`]); runs that point into one another are merged as their guard's rules say. When no table needs it, it
//! is forgotten; but not while a plan runs among its keys where there is a store: a demotion may be about to write what
//! it has read there before the tombstone came; nor one over what could not be read there. (A merge reads tables, which
//! are there until its edit.)
//!
//! Each tombstone takes as long as there are tables in its range.

use super::fragmented::{down, is_met, within};
use super::leveled::{fits, is_free_of, numbers, span};
use super::{GuardView, Plan, RunView, TableView, View};
use crate::planted::{self, Bug};
use crate::range_tombstones::{RANGE_TOMBSTONES_MAX, RangeTombstone};
use crate::version::LEVELS_MAX;
use std::sync::Arc;

/// Tables that go by one plan: those who carry it out look for each.
const TOGETHER_MAX: usize = 512;

/// What a run of a guard has that needs a tombstone.
struct Needing<'a> {
    level: usize,
    guard: &'a GuardView,
    /// Which of its runs.
    run: usize,
    tables: Vec<&'a TableView>,
}

/// Forgets tombstones that nothing needs, or takes away tables that one covers whole.
pub(crate) fn whole(view: &View) -> Option<Plan> {
    forgotten(view).or_else(|| due(view).find_map(|tombstone| covered(view, tombstone)))
}

fn forgotten(view: &View) -> Option<Plan> {
    let is_needed = |tombstone: &RangeTombstone| {
        needing(view, tombstone).next().is_some() && !planted::has(Bug::RangesForgottenEarly)
    };
    let is_met = |tombstone: &RangeTombstone| {
        let mut plans = view.running.iter().filter(|plan| plan.meets(&tombstone.from, &tombstone.to));
        // Another that forgets has no level.
        plans.any(|plan| view.store.is_some() || plan.level == LEVELS_MAX)
    };
    let is_held = |tombstone: &RangeTombstone| {
        view.store.as_ref().is_some_and(|store| store.held_tombstones.contains(&tombstone.seq))
    };
    let stays = |tombstone: &RangeTombstone| is_held(tombstone) || is_needed(tombstone) || is_met(tombstone);
    let gone: Vec<_> = due(view).filter(|tombstone| !stays(tombstone)).collect();
    Some(Plan::Forget {
        tombstones: gone.iter().map(|tombstone| tombstone.seq).collect(),
        from: gone.iter().map(|tombstone| tombstone.from.to_vec()).min()?,
        to: gone.iter().map(|tombstone| tombstone.to.to_vec()).max()?,
    })
}

/// The tables of a run that a tombstone covers whole; all of them, or one where others of these run.
fn covered(view: &View, tombstone: &RangeTombstone) -> Option<Plan> {
    needing(view, tombstone).filter(|needing| !needing.is_tree(view)).find_map(|needing| {
        let is_whole = |table: &&&TableView| {
            let (smallest, largest) = (&table.smallest, &table.largest);
            tombstone.covers(smallest) && tombstone.covers(largest) && table.largest_seq < tombstone.seq
        };
        let tables: Vec<&TableView> = needing.tables.iter().filter(is_whole).copied().collect();
        let alone = tables.iter().map(std::slice::from_ref);
        let mut parts = tables.chunks(TOGETHER_MAX).chain(alone);
        parts.find_map(|tables| needing.rewritten(view, tables))
    })
}

/// As [`apply`], where there are so many tombstones that writers may soon wait.
pub(crate) fn pressing(view: &View) -> Option<Plan> {
    if 2 * view.range_tombstones.len() < RANGE_TOMBSTONES_MAX { None } else { apply(view) }
}

/// Rewrites a table without what a tombstone covers.
pub(crate) fn apply(view: &View) -> Option<Plan> {
    due(view).find_map(|tombstone| {
        needing(view, tombstone).find_map(|needing| {
            let fits = |plan: &Plan| fits(view, plan);
            match (needing.is_tree(view), needing.level) {
                (true, 0) => down(view, 0, needing.guard).find(fits),
                (true, level) => within(view, level, needing.guard).find(fits),
                (false, _) => {
                    let mut tables = needing.tables.iter().map(std::slice::from_ref);
                    tables.find_map(|table| needing.rewritten(view, table).filter(fits))
                }
            }
        })
    })
}

/// Those that everybody sees who reads.
fn due(view: &View) -> impl Iterator<Item = &RangeTombstone> {
    view.range_tombstones.iter().take_while(|tombstone| tombstone.seq <= view.oldest_read)
}

/// By run, the tables that need a tombstone, the lowest level first: what lies there takes most room.
fn needing<'a>(view: &'a View, tombstone: &'a RangeTombstone) -> impl Iterator<Item = Needing<'a>> {
    let (from, to) = (&*tombstone.from, &*tombstone.to);
    let needs = move |table: &&TableView| {
        let is_old = table.erased < tombstone.seq && table.smallest_seq < tombstone.seq;
        is_old && table.smallest.as_slice() < to
    };
    let of_run = move |run: &'a RunView| -> Vec<&'a TableView> {
        run.tables[run.overlapping(from, to)].iter().filter(needs).collect()
    };
    let levels = view.levels.iter().enumerate().rev();
    let guards = levels.flat_map(move |(level, seen)| {
        let guards: &'a [Arc<GuardView>] = seen.guards_of(from, to);
        guards.iter().map(move |guard| (level, &**guard))
    });
    let runs = guards.flat_map(move |(level, guard)| {
        let needing =
            move |(run, of): (usize, &'a RunView)| Needing { level, guard, run, tables: of_run(of) };
        guard.runs.iter().enumerate().map(needing)
    });
    runs.filter(|needing| !needing.tables.is_empty())
}

impl Needing<'_> {
    /// Whether the guard's runs point into one another, or may.
    fn is_tree(&self, view: &View) -> bool {
        view.linked && self.guard.runs.len() > 1
    }

    /// Tables of the run as they are without what is covered, in their places; `None` while that would meet a running
    /// plan.
    fn rewritten(&self, view: &View, tables: &[&TableView]) -> Option<Plan> {
        let (smallest, largest) = span(tables.iter().copied())?;
        if is_met(view, self.level, self.level, tables, smallest, largest) {
            return None;
        }
        let is_oldest = self.run + 1 == self.guard.runs.len();
        Some(Plan::Merge {
            level: self.level,
            above: Vec::new(),
            output_level: self.level,
            below: numbers(tables),
            joins: Some(self.guard.runs[self.run].age),
            drop_tombstones: is_oldest && is_free_of(&view.levels[self.level + 1..], smallest, largest),
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::leveled::tests::view;
    use super::super::{StoreView, View, plan};
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expected: Expect) {
        let view = view(text);
        let planned = whole(&view).or_else(|| apply(&view));
        expected.assert_eq(&planned.map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    const LEVELS: &str = "
        L6: 1[a..b,10]#4 2[d..e,10]#4
        L7: 3[a..b,60]#3 4[c..d,60]#3 5[e..f,60]#3 6[h..i,60]#3";

    #[test]
    fn tables_that_are_covered_go_together_and_the_others_one_by_one() {
        // The lowest level first.
        check(&format!("{LEVELS}\nerased 9 c..g"), expect!["merge L7: #4 #5 into L7 [c..f], tombstones go"]);
        check(&format!("{LEVELS}\nerased 9 da..dz"), expect!["merge L6: #2 into L6 [d..e]"]);
        check(
            "L7: 3[a..b,60]#3 4[c..d,60]#3x9\nerased 9 a..cc",
            expect!["merge L7: #3 into L7 [a..b], tombstones go"],
        );
        check(
            "L7: 3[a..b,60]#3x9 4[c..d,60]#3x9\nerased 9 a..cc",
            expect!["forget range tombstones #9 of [a..cc)"],
        );
        // What is newer is not covered, and a table of nothing else needs nothing.
        check("L7: 4[c..d,60]#12\nerased 9 a..z", expect!["merge L7: #4 into L7 [c..d], tombstones go"]);
        check("L7: 4[c..d,60]#3\nerased 9 e..z", expect!["forget range tombstones #9 of [e..z)"]);
        check("L7: 4[c..d,60]#3\nerased 9 a..c", expect!["forget range tombstones #9 of [a..c)"]);
    }

    #[test]
    fn who_reads_before_it_keeps_what_it_covers() {
        check("L7: 4[c..d,60]#3\nerased 9 a..z\nread at 8", expect!["nothing"]);
        check(
            "L7: 4[c..d,60]#3\nerased 9 a..z\nread at 9",
            expect!["merge L7: #4 into L7 [c..d], tombstones go"],
        );
        // The older one is due.
        check(
            "L7: 4[c..d,60]#3x5\nerased 5 a..z\nerased 9 a..z\nread at 8",
            expect!["forget range tombstones #5 of [a..z)"],
        );
    }

    #[test]
    fn nothing_is_forgotten_while_a_plan_runs_there() {
        let planned = |running: &str, store: Option<StoreView>| {
            let view = view(&format!("L7: 4[m..n,60]#3\nerased 9 a..f\nrunning L7 {running}"));
            whole(&View { store, ..view }).is_some()
        };
        let store = Some(StoreView::default());
        assert!(!planned("e..g", store.clone()) && planned("g..h", store));
        // What a merge reads is there until it has ended.
        assert!(planned("e..g", None));
        // Nor is anything merged twice; what is idle goes meanwhile.
        check(
            "L7: 3[a..b,60]#3! 4[c..d,60]#3\nerased 9 a..z",
            expect!["merge L7: #4 into L7 [c..d], tombstones go"],
        );
    }

    #[test]
    fn runs_are_rewritten_in_their_places() {
        let guards = "runs 4 guard 50";
        // In the newer run tombstones may hide what the older one has.
        check(
            &format!("{guards}\nL7: 3[a..b,60]#8 | 4[a..b,60]#3\nerased 9 a..aa"),
            expect!["merge L7: #3 into L7 [a..b]"],
        );
        check(
            &format!("{guards}\nL7: 3[a..b,60]#8x9 | 4[a..b,60]#3\nerased 9 a..aa"),
            expect!["merge L7: #4 into L7 [a..b], tombstones go"],
        );
        // Those that point into one another go by their guard's rules.
        check(
            &format!("{guards}\nlinked\nL7: +3[a..b,60]#8 | 4[a..b,60]#3\nerased 9 a..z"),
            expect!["merge L7: #3 L7: #4 into L7 [a..b], tombstones go"],
        );
        check(
            &format!("{guards}\nlinked\nL0: +3[a..b,60]#8 | 4[a..b,60]#3\nerased 9 a..z"),
            expect!["merge L0: #3 #4 into L7 [a..b], tombstones go"],
        );
        check(
            &format!("{guards}\nlinked\nL7: 4[a..b,60]#3\nerased 9 a..aa"),
            expect!["merge L7: #4 into L7 [a..b], tombstones go"],
        );
    }

    #[test]
    fn what_costs_nothing_comes_before_merges_and_the_rest_behind() {
        let planned = |text: &str, store: bool| {
            let store = store.then(|| StoreView { bytes: 10, ..StoreView::default() });
            plan(&View { store, ..view(text) }).map_or("nothing".to_owned(), |plan| plan.to_string())
        };
        let over = "tier 900 free 500\nL6: 1[a..b,6]#1 2[d..e,16]#1\nL7: 8[a..c,60]#1 9[d..f,60]#1";
        let [whole, part] = ["erased 9 a..b\nerased 10 d..e0", "erased 9 dd..de"]
            .map(|erased| [false, true].map(|store| planned(&format!("{over}\n{erased}"), store)).join("\n"));
        expect![[r#"
            merge L6: #2 into L6 [d..e]
            merge L6: #2 into L6 [d..e]"#]]
        .assert_eq(&whole);
        expect![[r#"
            merge L6: #2 L7: #9 into L7 [d..f], tombstones go
            merge L6: #2 L7: #9 into L7 [d..f], tombstones go"#]]
        .assert_eq(&part);
        // Once they are many, what has to be written does not wait either.
        let many: String =
            (0..RANGE_TOMBSTONES_MAX / 2).map(|i| format!("\nerased {} dd..de", i + 9)).collect();
        let pressing = planned(&format!("{over}{many}\nread at 2000"), false);
        assert_eq!(pressing, "merge L7: #9 into L7 [d..f], tombstones go");
    }
}
