//! Guards of the sorted log: where its levels are cut, so that who looks at some tables need not look at all.
//!
//! An edit copies the guards that it changes, a view of the tables is made anew for those alone, and candidates are
//! drawn guard by guard (`docs/decisions/0013-many-tables.md`). They are what is left of PrismDB's partitions (§4): key
//! ranges that are learned from what is there, and are split and joined by edits, as they fill and empty. Nothing else
//! hangs on them: no memory or room is a guard's own.
//!
//! A guard with over twice as many piles as it should have is cut between piles, which nothing has to be rewritten for;
//! such as have no more than half as many together become one. Demotions keep within a guard. What runs has read the
//! bounds among its keys, so none is put there meanwhile; to take one away is no harm to anybody, but one change at a
//! time is.

use super::{GuardView, LevelView, Plan, View};
use std::sync::Arc;

/// The next change of the guards of a level, if one is due. Linear in guards.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    view.store.as_ref()?;
    // Level 0 has no tables below a store.
    let mut levels = view.levels.iter().enumerate().skip(1);
    levels.find_map(|(level, seen)| cut(view, level, seen).or_else(|| join(view, level, seen)))
}

fn cut(view: &View, level: usize, seen: &LevelView) -> Option<Plan> {
    let mut large =
        seen.guards.iter().enumerate().filter(|(_, guard)| guard.piles.len() > 2 * view.guard_piles);
    large.find_map(|(at, guard)| {
        let added = cuts(view, level, guard);
        let (from, to) = (guard.start.clone(), seen.end_of(at));
        (!added.is_empty()).then(|| Plan::CutGuards { level, added, removed: Vec::new(), from, to })
    })
}

/// Where a guard is cut into such as have what they should have, or more where no cut can be.
fn cuts(view: &View, level: usize, guard: &GuardView) -> Vec<Vec<u8>> {
    let is_inside = |key: &[u8]| {
        let mut running =
            view.running.iter().filter(|plan| (plan.level..=plan.output_level).contains(&level));
        running.any(|plan| plan.from.as_slice() < key && key < plan.to.as_slice())
    };
    let (mut cuts, mut since) = (Vec::new(), 0);
    for (at, pile) in guard.piles.iter().enumerate() {
        let smallest = guard.smallest_of(pile);
        if since >= view.guard_piles && guard.piles.len() - at >= view.guard_piles && !is_inside(smallest) {
            cuts.push(smallest.to_vec());
            since = 0;
        }
        since += 1;
    }
    cuts
}

/// The first neighbours that have become small, as many as may be one.
fn join(view: &View, level: usize, seen: &LevelView) -> Option<Plan> {
    let guards = &seen.guards;
    let together = |at: usize| {
        let mut piles = guards[at].piles.len();
        let fits = |guard: &&Arc<GuardView>| {
            piles += guard.piles.len();
            piles <= view.guard_piles / 2
        };
        guards[at + 1..].iter().take_while(fits).count()
    };
    (0..guards.len()).find_map(|at| {
        let count = Some(together(at)).filter(|count| *count > 0)?;
        let (from, to) = (guards[at].start.clone(), seen.end_of(at + count));
        let is_met = view.running.iter().any(|plan| {
            let is_of_level = (plan.level..=plan.output_level).contains(&level);
            is_of_level && plan.from < to && from < plan.to
        });
        let removed = guards[at + 1..=at + count].iter().map(|guard| guard.start.clone()).collect();
        (!is_met).then(|| Plan::CutGuards { level, added: Vec::new(), removed, from, to })
    })
}

#[cfg(test)]
mod tests {
    use super::super::StoreView;
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expected: Expect) {
        let view = View { store: Some(StoreView::default()), guard_piles: 2, ..view(text) };
        let planned = plan(&view);
        expected.assert_eq(&planned.map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    const SIX: &str = "L7: 1[a..b,9] 2[c..d,9] 3[e..f,9] 4[g..h,9] 5[i..j,9] 6[k..l,9]";

    #[test]
    fn a_guard_of_many_piles_is_cut_between_them() {
        check("L7: 1[a..b,9] 2[c..d,9] 3[e..f,9] 4[g..h,9]", expect!["nothing"]);
        check(SIX, expect!["cut L7 at e i"]);
        check("L7: / c:1[c..d,9] 2[e..f,9] 3[g..h,9] 4[i..j,9] 5[k..l,9]", expect!["cut L7 at g"]);
        // Four piles, of six tables.
        check(&SIX.replace("L7:", "L7: 7[b..c,9] 8[d..e,9] |"), expect!["nothing"]);
        check(&SIX.replace("L7:", "L7: 8[d..e,9] |"), expect!["cut L7 at g"]);
    }

    #[test]
    fn nothing_is_cut_under_who_has_read_its_bounds() {
        check(&format!("{SIX}\nrunning L7 d..e"), expect!["cut L7 at g"]);
        check(&format!("{SIX}\nrunning L7 d..ez\nrunning L7 f..ga"), expect!["cut L7 at i"]);
        check(&format!("{SIX}\nrunning L7 e..h"), expect!["cut L7 at e i"]);
        check(&format!("{SIX}\nrunning L7 a..kz"), expect!["nothing"]);
        check(&format!("{SIX}\nrunning L6 a..kz"), expect!["cut L7 at e i"]);
    }

    #[test]
    fn what_has_become_little_is_joined() {
        let log = "L7: 1[a..b,9] / c: 2[c..d,9] 3[e..f,9] / h: / k: 4[k..l,9] / m: / o: 5[o..p,9]";
        check(log, expect!["join L7 at k m"]);
        check("L7: 1[a..b,9] / c: 2[c..d,9] 3[e..f,9]", expect!["nothing"]);
        // Not while somebody is at it.
        check(&format!("{log}\nrunning L7 i..j"), expect!["join L7 at m"]);
        check(&format!("{log}\nrunning L7 h..n"), expect!["nothing"]);
        // But by everybody together no more than half.
        check("L7: / c: / e: / g: 5[g..p,9] / r: 6[r..s,9]", expect!["join L7 at c e g"]);
    }
}
