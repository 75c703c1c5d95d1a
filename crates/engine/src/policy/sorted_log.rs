//! The sorted log below a store of objects: how many levels it has, which of their tables are merged, and what is laid
//! on them (Raina et al., PrismDB, §4 and §5: one level, and several where the fast tier is less than a tenth of the
//! data; each of one run).
//!
//! **Runs.** With one run each demotion rewrites the tables among its keys: where the store has a sixth of the data and
//! half of that is hot, ten bytes for each that goes. Here, while there is one level, what goes is *laid on* those
//! tables as a run of its own, and merged with them once the range has [`runs_max`] runs, or these would have as many
//! bytes together as the oldest, or half as many ([`piles`]). So a byte is written when it goes down, and once more,
//! with one or two others, when its range is merged; what stays in the store costs what goes nothing. For that up to
//! all of the log is there twice, and a read that the store does not answer asks a filter more for each run. A run is
//! newer than those under it. A demotion that merges takes *piles*, tables that lie on one another, whole.
//!
//! **A small store.** The smaller the store, the less of each range is in it, and the more runs it takes until as many
//! bytes are laid as are worth a merge: from `ratio` times the store on there may be more runs, up to twice as many.
//! And the smaller are the tables that are laid, each with an index, a filter and syncs of its own. So ranges are
//! larger then ([`range_bytes`]): a demotion lays one table on several of the oldest run, which are one pile from then
//! on. So it does where ranges of several tables are asked for (`candidate_tables`).
//!
//! **Levels.** From `ratio` times as many runs as there may be, the log gets a level above its last, a `ratio`-th as
//! large, to which demotions go from then on, and above that another where it is still more than `ratio` times the
//! store. (A level of `r` runs costs what one of one run does below a store `r` times as large, so with one run this is
//! the paper's rule: levels from a tenth on.) Levels above the last are of one run each. A byte then costs half of what
//! the first level is larger than the store, half of `ratio` for each level between, and three or four in the last,
//! where what comes down is laid on what is there ([`piles`]). Reads that the store does not answer ask a filter more
//! for each level. A level that is there stays until it would be wanted only at half that size, and is merged down
//! then, and what it laid across many tables with these. Merges between levels are those of leveled compaction
//! ([`leveled`]): the tables that drag the fewest bytes along first.
//!
//! Where the last tier is short of room one level of one run is all that is wanted, and [`reclaim`] merges what is
//! there.

use super::candidates::Extent;
use super::{Plan, View, leveled, msc, piles};
use crate::options::RANGE_TABLES_MAX;
use crate::version::LEVELS_MAX;

/// A range has so many bytes in the store, if it need not be too large for that: what is laid is worth a table then.
const LAID_BYTES: u64 = 128 << 10;
/// Nor more than one part in so many of what the last tier has free: as much may come to lie on it before it is merged,
/// and others fill the tier meanwhile.
const RANGE_SHARE: u64 = 16;

/// What the shape of the log follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Of each level's tables.
    pub(crate) levels: [u64; LEVELS_MAX],
    /// What slabs may have, and what objects have there.
    pub(crate) store: u64,
    pub(crate) filled: u64,
    /// What a table has.
    pub(crate) table: u64,
    /// How many tables a range has at least.
    pub(crate) range_tables: u64,
    /// What the last tier has free.
    pub(crate) free: u64,
    /// Levels and runs above take room for what they have newer, and their merges take more: there is enough.
    pub(crate) is_roomy: bool,
}

/// What demotions meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The level that they go to.
    pub(crate) level: usize,
    /// How many runs may lie on one another there.
    pub(crate) runs_max: u64,
    /// What of the tables a range has, at least one pile.
    pub(crate) range: Extent,
    /// Piles with more bytes in their oldest run are taken apart.
    pub(crate) pile_max: u64,
}

/// The shape of a log of these sizes; `least` runs may lie on one another above a large store.
pub(crate) fn shape(sizes: &Sizes, ratio: u64, least: u64) -> Shape {
    let store = if sizes.is_roomy { sizes.store } else { u64::MAX };
    let level = first_level(&sizes.levels, store, ratio, least);
    let log = sizes.levels[LEVELS_MAX - 1];
    let has_runs = sizes.is_roomy && level + 1 == LEVELS_MAX;
    let runs_max = if has_runs { runs_max(log, store, ratio, least) } else { 1 };
    let range = Extent {
        bytes: match runs_max > 1 {
            true => range_bytes(log, sizes.filled, sizes.table, sizes.free),
            false => sizes.table,
        },
        tables: if sizes.is_roomy { range_tables(sizes) } else { 1 },
    };
    let pile_max = if least > 1 { pile_max(sizes.table, sizes.free) } else { 0 };
    Shape { level, runs_max, range, pile_max }
}

/// Most runs that there may ever be where `least` is what there may be above a large store.
fn most_runs(least: u64) -> u64 {
    if least > 1 { 2 * least } else { least }
}

/// How many runs may lie on one another in a log of one level: `least`, and up to twice as many where it is over
/// `ratio` times the store.
fn runs_max(log_bytes: u64, store_bytes: u64, ratio: u64, least: u64) -> u64 {
    let runs = least.saturating_mul(log_bytes) / store_bytes.saturating_mul(ratio).max(1);
    runs.clamp(least, most_runs(least))
}

/// How many bytes of tables, at least of one pile, the ranges have that go down at once, where objects in the store
/// have `filled_bytes` and the last tier so much free.
fn range_bytes(log_bytes: u64, filled_bytes: u64, table_bytes: u64, free: u64) -> u64 {
    let wanted = u128::from(LAID_BYTES) * u128::from(log_bytes) / u128::from(filled_bytes.max(1));
    let most = range_bytes_max(table_bytes).min(free / RANGE_SHARE).max(table_bytes);
    u64::try_from(wanted).unwrap_or(u64::MAX).clamp(table_bytes, most)
}

/// How many tables a range has at least, however small what lies below the store is.
fn range_tables(sizes: &Sizes) -> u64 {
    sizes.range_tables.min(sizes.free / RANGE_SHARE / sizes.table.max(1)).max(1)
}

/// Most bytes that a range's tables may have.
fn range_bytes_max(table_bytes: u64) -> u64 {
    u64::from(RANGE_TABLES_MAX) * table_bytes
}

/// Of their oldest run, the bytes with which piles are too large for a demotion: with as much on them, and their
/// objects, they would not fit the last tier; or something was laid on them from a level above, or tables were larger
/// once.
fn pile_max(table_bytes: u64, free: u64) -> u64 {
    range_bytes_max(table_bytes).min(msc::fitting(free) / 3)
}

/// The log of so many bytes by level, below a store of `store_bytes`: what each level should have at most, 0 for those
/// to be left empty.
fn targets(levels: &[u64], store_bytes: u64, ratio: u64, runs: u64) -> Vec<u64> {
    let mut targets = vec![0; levels.len()];
    let Some(last) = levels.len().checked_sub(1) else { return targets };
    targets[last] = levels[last];
    // Level 0 is for runs that overlap.
    for level in (2..levels.len()).rev() {
        let is_last = level == last;
        let most =
            store_bytes.saturating_mul(ratio).saturating_mul(if is_last { most_runs(runs) } else { 1 });
        let is_wanted = targets[level] > if levels[level - 1] > 0 { most / 2 } else { most };
        if !is_wanted {
            break;
        }
        targets[level - 1] = targets[level] / ratio;
    }
    targets
}

/// The level that demotions go to: the first that is wanted, or that has anything, since no newer version may come to
/// lie below an older one.
fn first_level(levels: &[u64], store_bytes: u64, ratio: u64, runs: u64) -> usize {
    let wanted = targets(levels, store_bytes, ratio, runs);
    let is_there = wanted.iter().zip(levels).position(|(wanted, bytes)| wanted + bytes > 0);
    is_there.unwrap_or(levels.len().saturating_sub(1))
}

/// The next merge between levels, if one is due: of the level that is furthest over its target.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    let store = view.store.as_ref()?;
    let levels: Vec<u64> = view.levels.iter().map(|level| level.bytes()).collect();
    let mut due: Vec<(f64, usize)> = targets(&levels, store.bytes, view.ratio, view.laid_max)
        .into_iter()
        .take(levels.len() - 1)
        .enumerate()
        .filter_map(|(level, target)| {
            let idle = view.idle_bytes(level);
            (idle > target).then(|| (idle as f64 / target.max(1) as f64, level))
        })
        .collect();
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    // A demotion takes whole piles, and so has them small.
    let takes_piles = store.level + 1 == levels.len();
    let mut untangled = takes_piles.then(|| piles::untangle(view, store.pile_max)).into_iter().flatten();
    // One that does not fit is in nobody's way: others may give it room.
    untangled.find(|plan| leveled::fits(view, plan)).or_else(|| {
        leveled::first_that_fits(view, due.into_iter().flat_map(|(_, level)| merges_of(view, level)))
    })
}

/// While writers are refused for want of room, what has something below it, or lies on something, is merged with that,
/// due or not: what it replaces and deletes there gives its room back.
pub(crate) fn reclaim(view: &View) -> Option<Plan> {
    if !view.reclaim || view.store.is_none() {
        return None;
    }
    let down = (1..view.levels.len() - 1).flat_map(|level| merges_of(view, level));
    leveled::first_that_fits(view, piles::into_oldest(view).chain(down))
}

fn merges_of(view: &View, level: usize) -> impl Iterator<Item = Plan> + '_ {
    leveled::merges_between(view, level, level + 1)
}

#[cfg(test)]
mod tests {
    use super::super::StoreView;
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn a_level_more_for_each_time_that_the_log_is_as_much_larger() {
        let of = |last| {
            let levels = [0, 0, 0, 0, 0, 0, 0, last];
            (targets(&levels, 10, 10, 1)[3..].to_vec(), first_level(&levels, 10, 10, 1))
        };
        assert_eq!(of(0), (vec![0, 0, 0, 0, 0], 7));
        assert_eq!(of(100), (vec![0, 0, 0, 0, 100], 7));
        assert_eq!(of(101), (vec![0, 0, 0, 10, 101], 6));
        assert_eq!(of(1_000), (vec![0, 0, 0, 100, 1_000], 6));
        assert_eq!(of(1_010), (vec![0, 0, 10, 101, 1_010], 5));
        // However small the store: level 0 is none of them.
        assert_eq!(first_level(&[0, 0, 0, 0, 0, 0, 0, u64::MAX], 0, 2, 1), 1);
        assert_eq!(first_level(&[], 10, 10, 1), 0);
    }

    #[test]
    fn where_there_may_be_runs_they_come_before_levels() {
        let of = |last| {
            let levels = [0, 0, 0, 0, 0, 0, 0, last];
            (runs_max(last, 10, 10, 6), first_level(&levels, 10, 10, 6))
        };
        assert_eq!([0, 100, 117, 150, 200].map(of), [(6, 7), (6, 7), (7, 7), (9, 7), (12, 7)]);
        assert_eq!([1_200, 1_201, 12_000].map(of), [(12, 7), (12, 5), (12, 4)]);
        assert_eq!(targets(&[0, 0, 0, 0, 0, 0, 0, 1_201], 10, 10, 6)[6], 120);
        // One run is all that there may be.
        assert_eq!(runs_max(1_000, 10, 10, 1), 1);
    }

    #[test]
    fn a_range_has_enough_in_the_store_to_be_worth_a_table() {
        let (table, free) = (2 << 20, 1 << 30);
        let of = |times: u64| range_bytes(times << 30, 1 << 30, table, free);
        assert_eq!([0, 7, 16].map(of), [table; 3]);
        assert_eq!([24, 40, 64, 1000].map(of), [3 << 20, 5 << 20, 8 << 20, 16 << 20]);
        // Where room is short, or nothing is there.
        assert_eq!(range_bytes(1 << 40, 1 << 30, table, 96 << 20), 6 << 20);
        assert_eq!((range_bytes(1 << 40, 1 << 30, table, 0), range_bytes(0, 0, table, free)), (table, table));
        assert_eq!(range_bytes(1 << 40, 0, table, free), range_bytes_max(table));
        assert_eq!((pile_max(table, free), pile_max(table, 30 << 20)), (16 << 20, 8 << 20));
    }

    #[test]
    fn a_range_has_as_many_tables_as_were_asked_for_if_there_is_room() {
        let sizes = Sizes {
            levels: [0; LEVELS_MAX],
            store: 1 << 30,
            filled: 1 << 30,
            table: 2 << 20,
            range_tables: 4,
            free: 1 << 30,
            is_roomy: true,
        };
        let of = |sizes: Sizes, runs| shape(&sizes, 10, runs).range.tables;
        assert_eq!((of(sizes, 1), of(sizes, 6), of(Sizes { range_tables: 1, ..sizes }, 6)), (4, 4, 1));
        assert_eq!((of(Sizes { free: 96 << 20, ..sizes }, 6), of(Sizes { free: 0, ..sizes }, 6)), (3, 1));
        assert_eq!(of(Sizes { is_roomy: false, ..sizes }, 6), 1);
    }

    #[test]
    fn a_level_stays_until_half_of_what_made_it() {
        let of = |above, last| {
            let levels = [0, 0, 0, 0, 0, 0, above, last];
            (targets(&levels, 10, 10, 1)[6], first_level(&levels, 10, 10, 1))
        };
        assert_eq!(of(5, 60), (6, 6));
        // What is still there has to go before anything may go past it.
        assert_eq!(of(5, 50), (0, 6));
        assert_eq!(of(0, 60), (0, 7));
    }

    fn check(text: &str, expected: Expect) {
        let view = view(text);
        let levels: Vec<u64> = view.levels.iter().map(|level| level.bytes()).collect();
        let level = first_level(&levels, 10, view.ratio, 1);
        let view = View { store: Some(StoreView { bytes: 10, level, ..StoreView::default() }), ..view };
        let planned = plan(&view).or_else(|| reclaim(&view));
        expected.assert_eq(&planned.map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    #[test]
    fn what_is_over_goes_down_the_cheapest_first() {
        let last = "L7: 8[a..c,60] 9[d..f,60]";
        check(&format!("L6: 1[a..b,6] 2[d..e,6]\n{last}"), expect!["nothing"]);
        check(
            &format!("L6: 1[a..b,6] 2[d..e,8]\n{last}"),
            expect!["merge L6: #2 L7: #9 into L7 [d..f], tombstones go"],
        );
        check(&format!("L6: 1[a..b,6] 2[g..h,8]\n{last}"), expect!["move #2 from L6 to L7"]);
        // Not where a demotion, or another merge, is at work.
        check(
            &format!("L6: 1[a..b,6] 2[d..e,8]\n{last}\nrunning L6 d..da"),
            expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"],
        );
        check(&format!("L6: 1[a..b,6] 2[d..e,8]!\n{last}"), expect!["nothing"]);
    }

    #[test]
    fn an_unwanted_level_goes() {
        check("L6: 1[a..b,1]\nL7: 8[a..c,50]", expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"]);
        check("L6: 1[a..b,1]", expect!["move #1 from L6 to L7"]);
    }

    #[test]
    fn who_is_refused_gets_what_deletes_leave() {
        let levels = "L6: 1[a..b,6]\nL7: 8[a..c,60] 9[d..f,60]";
        check(levels, expect!["nothing"]);
        check(&format!("{levels}\nreclaim"), expect!["merge L6: #1 L7: #8 into L7 [a..c], tombstones go"]);
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

    #[test]
    fn what_comes_down_to_the_last_level_is_laid_there() {
        let upper = "L6: 1[a..b,6] 2[d..e,18]";
        let last = "L7: 3[d..da,6]@1 | 8[a..c,60]@1 9[d..f,60]@1";
        let roomy = format!("laid 4\ntier 10 free 1\ntier 9000 free 8000\n{upper}\n{last}");
        check(&roomy, expect!["merge L6: #2 onto L7, as run 101 [d..e]"]);
        check(&format!("{roomy}\nrunning L7 d..da"), expect!["merge L6: #1 onto L7, as run 100 [a..b]"]);
        // Not where one run is all that there may be, or where room is short: then it is merged with all that is there.
        let merged = expect!["merge L6: #2 #3 L7: #9 into L7 [d..f], tombstones go"];
        check(&format!("{upper}\n{last}"), merged);
        // With one level they stay.
        check(last, expect!["nothing"]);
    }

    #[test]
    fn what_comes_down_across_guards_meets_the_piles_of_each() {
        let tiers = "laid 4\ntier 10 free 1\ntier 9000 free 8000";
        let upper = "L6: 1[a..k,18]@1";
        // On two runs in one guard and on one in the other: newer than both.
        let last = "L7: 3[b..d,6]@1 | 8[a..d,90]@1 / f:9[f..l,90]@1";
        check(&format!("{tiers}\n{upper}\n{last}"), expect!["merge L6: #1 onto L7, as run 101 [a..k]"]);
        // As many as there may be in one of them: all that it meets in both is merged, of each what lies there.
        let last =
            "L7: 3[b..c,6]@1 | 4[b..d,6]@1 | 5[c..d,6]@1 | 8[a..d,90]@1 / f:7[x..y,6]@1 | 9[f..l,90]@1";
        check(
            &format!("{tiers}\n{upper}\n{last}"),
            expect!["merge L6: #1 #3 #4 #5 L7: #8 #9 into L7 [a..l], tombstones go"],
        );
    }

    #[test]
    fn what_lies_across_many_is_merged_where_demotions_meet_it() {
        let last = "L7: 3[b..e,6] | 8[a..c,40] 9[d..f,40]";
        check(last, expect!["merge L7: #3 L7: #8 #9 into L7 [a..f], tombstones go"]);
        check("L6: 1[a..b,6]\nL7: 3[b..e,6] | 8[a..c,60] 9[d..f,60]", expect!["nothing"]);
        check("L7: 3[b..c,6] 4[cc..cd,6] 5[d..e,6] | 8[a..c,40] 9[d..f,40]", expect!["nothing"]);
        // With what it lies on, and no others; not where somebody is at it.
        let two = "L7: 3[b..e,6] | 2[a..b,6] 4[g..h,6] | 8[a..c,25] 9[d..f,25] 7[g..i,25]";
        check(two, expect!["merge L7: #2 L7: #8 into L7 [a..c], tombstones go"]);
        check(&two.replace("3[b..e,6]", "3[b..e,6]!"), expect!["nothing"]);
    }

    #[test]
    fn what_lies_across_few_stays() {
        let planned = |pile_max, text: &str| {
            let store = StoreView { bytes: 10, level: 7, pile_max, ..StoreView::default() };
            let view = View { store: Some(store), ..view(text) };
            plan(&view).map_or("nothing".to_owned(), |plan| plan.to_string())
        };
        let last = "L7: 3[b..e,6] | 8[a..c,40] 9[d..f,40]";
        assert_eq!(planned(80, last), "nothing");
        assert_eq!(planned(79, last), "merge L7: #3 L7: #8 #9 into L7 [a..f], tombstones go");
        // Others give it room first.
        let tiers = "tier 10 free 1\ntier 900 free 20";
        assert_eq!(planned(79, &format!("{tiers}\n{last}")), "nothing");
        // Two that meet one join what they lie on, others are piles of their own.
        let joined = "L7: 3[a..b,6] 4[dd..g,6] 6[i..k,6] | 5[b..d,6] | 7[a..ab,25] 8[b..c,25] 9[d..e,25] 10[f..h,25] 11[i..ia,25] 12[j..k,25]";
        assert_eq!(planned(100, joined), "nothing");
        assert_eq!(planned(99, joined), "merge L7: #5 L7: #8 #9 into L7 [b..e], tombstones go");
        assert_eq!(planned(99, &joined.replace("5[b..d,6]", "5[b..c,6]")), "nothing");
    }
}
