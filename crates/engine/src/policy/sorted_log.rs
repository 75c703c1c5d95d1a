//! The sorted log below a store of objects: tables of one level, in key order, and upon them what has come down since.
//!
//! In the paper (Raina et al., PrismDB, §4) the log is one run, so each demotion rewrites the tables among its keys: where the store has a
//! sixth of the data and half of that is hot, ten bytes for each that goes. Here what goes is *laid on* those tables
//! as a run of its own, and merged with them once the range has [`View`]'s number of runs, or these have half as many bytes together as the
//! oldest. So a byte is written when it goes down, and once more, with two others, when its range is merged; what stays in the
//! store costs what goes nothing. For that up to half of the log is there twice, a quarter in the mean, and a read that the store does not
//! answer asks a filter more for each run.
//!
//! A run is no older than those under it. Tables of newer runs end where a table of the oldest run begins, so a *pile*, tables that lie on
//! one another, is little more than one of the oldest with what lies on it. A demotion that merges takes piles whole.
//!
//! Where the last tier is short of room nothing is laid on anything, and [`reclaim`] merges what is.

use super::msc::RangeView;
use super::{Plan, View, fragmented, leveled};
use crate::version::LEVELS_MAX;

/// The level that the log is.
pub(crate) const LEVEL: usize = LEVELS_MAX - 1;

/// What lies on a range's oldest tables is merged with them once it would have more than one part in so many of their bytes.
const UPPER_SHARE: u64 = 2;

/// Whether so many bytes that go are laid on a range's tables, where up to `runs_max` runs may lie on one another.
pub(crate) fn is_laid_on(range: &RangeView, runs_max: u64, goes: u64) -> bool {
    let oldest = range.table_bytes - range.upper_bytes;
    oldest > 0 && range.age + 1 < runs_max && (range.upper_bytes + goes) * UPPER_SHARE <= oldest
}

/// While writers are refused for want of room, what lies on others is merged with them, due or not: what it replaces and deletes gives its
/// room back.
pub(crate) fn reclaim(view: &View) -> Option<Plan> {
    let guards = view.levels[LEVEL].guards.iter().filter(|_| view.reclaim && view.store.is_some());
    leveled::first_that_fits(view, guards.flat_map(|guard| fragmented::each_into_oldest(view, LEVEL, guard)))
}

#[cfg(test)]
mod tests {
    use super::super::StoreView;
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn what_goes_is_laid_on_until_that_is_half_of_what_is_there_or_has_many_runs() {
        let range =
            |upper_bytes, age| RangeView { table_bytes: 100, upper_bytes, age, ..RangeView::default() };
        let laid = |range: RangeView, goes| is_laid_on(&range, 4, goes);
        assert!(laid(range(0, 0), 50) && !laid(range(0, 0), 51));
        assert!(laid(range(20, 1), 20) && !laid(range(20, 1), 21));
        assert!(laid(range(3, 2), 1) && !laid(range(3, 3), 1));
        // The paper's log; and where there is nothing yet.
        assert!(!is_laid_on(&range(0, 0), 1, 1) && !is_laid_on(&RangeView::default(), 4, 1));
    }

    fn check(text: &str, expected: Expect) {
        let view = View { store: Some(StoreView::default()), ..view(text) };
        expected.assert_eq(&reclaim(&view).map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    #[test]
    fn who_is_refused_gets_what_lies_on_others_merged() {
        let log = "L7: 1[a..b,6] | 2[a..c,6] 3[x..y,6] | 8[a..c,60] 9[d..f,60]";
        check(log, expect!["nothing"]);
        check(&format!("{log}\nreclaim"), expect!["merge L7: #2 L7: #8 into L7 [a..c], tombstones go"]);
        // Not where a demotion is at work.
        check(
            &format!("{log}\nreclaim\nrunning L7 b..bb"),
            expect!["merge L7: #3 into L7 [x..y], tombstones go"],
        );
        check("L7: 8[a..c,60] 9[d..f,60]\nreclaim", expect!["nothing"]);
    }
}
