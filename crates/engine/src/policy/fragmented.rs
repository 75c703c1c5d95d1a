//! Fragmented compaction: what comes down to a level is put beside what is there, and rewritten only when it goes
//! further down (Raju et al., PebblesDB, SOSP 2017, §3; Zhang and Du, ACM TOS 17(3), 2021, §2, whose baseline it is).
//!
//! A level is cut into guards; a guard has up to `runs_max` runs, and the newer version of a key lies in the newer run.
//! All runs of a guard go down together: merged, cut where guards of the next level begin, and put on top there. So
//! each byte is written once a level, where leveled compaction rewrites several times what comes down. In the last
//! level, from where nothing goes further, the newer runs of a guard are merged into its oldest, when there are as many
//! runs as there may be, as many bytes over the oldest run as in it (of a small one, as a guard should have), or half
//! as many tombstones as it has entries: space stays within about twice what is live.
//!
//! **What is due.** Level 0 as in leveled compaction; a guard that is full; the guards of a level over its target,
//! those with the most bytes first. Nothing is put into a full guard: that one goes down, or is merged, before; so it
//! is as urgent as what waits above it. Targets, and where a level's data goes, are leveled compaction's ([`leveled`]).
//!
//! **Little room.** Runs go down from the oldest on, and so may some of them alone, or a table of the oldest; where a
//! guard has one run they may be merged with that, as in leveled compaction, in steps of a table; in the last level the
//! next-oldest run, or a table of that, may be merged into the oldest alone, in steps of a table.
//!
//! **Linked runs** (accumulative compaction: Zhang and Du, §4): each run of a guard is one table that points into the
//! next older one, so nothing goes without all that lies on it. Little room is met by merging the runs of a guard among
//! themselves; so are runs that are too little to be shared out among the guards below. What is put on a guard's runs
//! points into these, so it has the guard for itself. Runs of level 0 point into one another, too, those that a flush
//! found idle.
//!
//! **Guards** should have `guard_bytes` in one run, in all of them where they are linked, so that what goes down makes
//! about a table in each guard below. They are cut ([`change`]) when nothing is left that a cut could go through: when
//! they have gone down or are one run; where they begin in the next level, if that has several among their keys, so
//! that what goes down there covers whole guards. Bounds between empty guards go where a table is put across them: what
//! is little and spread over many guards would become as many tables.
//!
//! A plan that runs keeps others off its keys in all levels that it reads or writes, so bounds among these do not
//! change while it writes. Linear in the number of tables.

use super::leveled::{self, first_that_fits, is_free_of, level_targets, moved, numbers, output_of, span};
use super::{GuardView, Plan, RunView, RunningPlan, TableView, View, halves};
use crate::planted::{self, Bug};
use crate::version::owners;

/// A guard of less than its size over this joins the one before.
const SMALL: u64 = 4;

/// A guard of the last level is merged when one part in so many of its oldest run may be deleted.
const DELETED_SHARE: f64 = 2.0;

/// The next thing to do, if anything is due.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    let targets = level_targets(view);
    let last = view.levels.len() - 1;
    let mut due: Vec<(f64, usize, &GuardView, bool)> = Vec::new();
    // How urgent it is that each level takes in what comes from above.
    let mut urgency = vec![0.0_f64; view.levels.len()];
    for (level, (seen, target)) in view.levels.iter().zip(targets).enumerate() {
        let over = view.idle_bytes(level) as f64 / target.max(1) as f64;
        let over = if (1..last).contains(&level) && over > 1.0 { over } else { 0.0 };
        let mut most = 0.0_f64;
        for guard in seen.guards.iter().filter(|guard| !guard.runs.is_empty()) {
            let mut score = fullness(view, level, guard);
            if score >= 1.0 {
                // What waits above cannot come down before.
                score = score.max(urgency[level]);
            }
            score = score.max(over);
            if score >= 1.0 {
                most = most.max(score);
                due.push((score, level, guard, over > 1.0));
            }
        }
        if level < last {
            let output = output_of(view, level);
            urgency[output] = urgency[output].max(most);
        }
    }
    // The lower level first where two are equally far over: it makes way for the upper.
    due.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.bytes().cmp(&a.2.bytes())));
    first_that_fits(
        view,
        due.into_iter().flat_map(|(_, level, guard, is_over)| merges_of(view, level, guard, is_over)),
    )
}

/// Where a guard may have one run, but has more from a time when it might: these become one. As long as there is no
/// room for that, what else there is goes down, by the rules for linked runs: that may give room back, and nothing else
/// would.
pub(crate) fn collapse(view: &View) -> Option<Plan> {
    let levels = view.levels.iter().enumerate().skip(1);
    let guards = levels.flat_map(|(level, seen)| seen.guards.iter().map(move |guard| (level, guard)));
    let several = guards.filter(|(_, guard)| guard.runs.len() > 1);
    let collapsing = first_that_fits(view, several.flat_map(|(level, guard)| within(view, level, guard)))?;
    match leveled::fits(view, &collapsing) {
        true => Some(collapsing),
        false => plan(view).or_else(|| reclaim(view)).or(Some(collapsing)),
    }
}

/// While writers are refused for want of room, what may be shadowed or deleted goes, due or not: newer runs of the
/// lowest level are merged into the oldest, and what is above goes down.
pub(crate) fn reclaim(view: &View) -> Option<Plan> {
    let lowest = view.levels.iter().rposition(|level| level.bytes() > 0).filter(|_| view.reclaim)?;
    let guards = view.levels[lowest].guards.iter().filter(|_| lowest > 0);
    let inside = guards.flat_map(|guard| within(view, lowest, guard));
    let above =
        (0..lowest.max(1)).flat_map(|level| view.levels[level].guards.iter().map(move |g| (level, g)));
    first_that_fits(view, inside.chain(above.flat_map(|(level, guard)| down(view, level, guard))))
}

/// How close a guard is to what it may have; 1 makes it due.
fn fullness(view: &View, level: usize, guard: &GuardView) -> f64 {
    let runs = guard.runs.len() as f64;
    match guard.runs.split_last() {
        _ if level == 0 => leveled::level0_score(view, guard),
        Some((_, [])) if level + 1 == view.levels.len() => 0.0,
        Some((oldest, newer)) if level + 1 == view.levels.len() => {
            let bytes: u64 = newer.iter().map(RunView::bytes).sum();
            let enough = oldest.bytes().max(view.guard_bytes).max(1);
            let deleted: u64 = newer.iter().flat_map(|run| &run.tables).map(|table| table.tombstones).sum();
            let entries: u64 = oldest.tables.iter().map(|table| table.entries).sum();
            (runs / view.runs_max as f64)
                .max(bytes as f64 / enough as f64)
                .max(deleted as f64 * DELETED_SHARE / entries.max(1) as f64)
        }
        // Which goes as a whole, so that must not become too much to go at all.
        _ if view.linked => (runs / view.runs_max as f64).max(guard.bytes() as f64 / most_linked_bytes(view)),
        _ => runs / view.runs_max as f64,
    }
}

/// What a guard of linked runs has at most before it goes down, however few they are.
fn most_linked_bytes(view: &View) -> f64 {
    2.0 * view.guard_bytes.max(1) as f64
}

fn merges_of<'a>(
    view: &'a View,
    level: usize,
    guard: &'a GuardView,
    is_over: bool,
) -> Box<dyn Iterator<Item = Plan> + 'a> {
    if level + 1 == view.levels.len() {
        Box::new(within(view, level, guard))
    } else if !is_over && would_scatter(view, level, guard) {
        Box::new(within(view, level, guard).chain(down(view, level, guard)))
    } else {
        Box::new(down(view, level, guard))
    }
}

/// Whether linked runs are as many as there may be, but so little that each guard below would get a small part of a
/// table.
fn would_scatter(view: &View, level: usize, guard: &GuardView) -> bool {
    if !view.linked || level == 0 || guard.runs.len() < 2 {
        return false;
    }
    let tables = guard.runs.iter().flat_map(|run| &run.tables);
    let Some((smallest, largest)) = span(tables) else { return false };
    let below = view.levels[output_of(view, level)].guards_of(smallest, largest).len() as u64;
    guard.bytes() < below * view.guard_bytes / (view.ratio * SMALL)
}

/// Tables that can be moved; all runs of a guard into the next level; in case there is no room for that, fewer of them,
/// the oldest; then each table of the oldest; then any of these merged with what is there, in steps; runs that point
/// into one another at last among themselves, so that they become tables.
pub(super) fn down<'a>(
    view: &'a View,
    level: usize,
    guard: &'a GuardView,
) -> impl Iterator<Item = Plan> + 'a {
    let oldest = move || {
        let tables = guard.oldest_alone().into_iter().flat_map(|run| &run.tables);
        tables.map(|table| vec![table])
    };
    let inputs = move || guard.oldest_halves().chain(oldest());
    let is_tree = view.linked && level > 0 && guard.runs.len() > 1;
    let moved = oldest().take_while(|_| guard.runs.len() == 1);
    let moved = moved.filter_map(move |inputs| put_down(view, level, &inputs));
    let put = inputs().filter_map(move |inputs| put_down(view, level, &inputs));
    moved
        .filter(|plan| matches!(plan, Plan::Move { .. }))
        .chain(put)
        .chain(inputs().filter_map(move |inputs| merge_down(view, level, &inputs)))
        .chain(is_tree.then(|| within(view, level, guard)).into_iter().flatten())
}

/// Puts tables of a level on top of what the next has among their keys; `None` while a guard there is full, or when
/// that would meet a running plan.
fn put_down(view: &View, level: usize, inputs: &[&TableView]) -> Option<Plan> {
    let output = output_of(view, level);
    let (smallest, largest) = span(inputs.iter().copied())?;
    let below = view.levels[output].guards_of(smallest, largest);
    let too_much = |guard: &GuardView| {
        view.linked && output + 1 < view.levels.len() && guard.bytes() as f64 >= most_linked_bytes(view)
    };
    let is_full = below.iter().any(|guard| guard.runs.len() >= view.runs_max || too_much(guard));
    if is_full || is_met(view, level, output, inputs, smallest, largest) {
        return None;
    }
    // Bounds between empty guards go where a table is put across them.
    let is_within_one = below.len() <= 1 && !view.linked || below.iter().all(|guard| guard.runs.is_empty());
    if let ([table], true) = (inputs, is_within_one) {
        return Some(moved(table, level, output));
    }
    let older = output + usize::from(planted::has(Bug::TombstonesDroppedOverRuns));
    Some(Plan::Merge {
        level,
        above: numbers(inputs),
        output_level: output,
        below: Vec::new(),
        joins: None,
        drop_tombstones: is_free_of(&view.levels[older..], smallest, largest),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
    })
}

/// Merges tables of a level with the one run that each guard of the next has among their keys.
fn merge_down(view: &View, level: usize, inputs: &[&TableView]) -> Option<Plan> {
    let output = output_of(view, level);
    let (smallest, largest) = span(inputs.iter().copied())?;
    let below = view.levels[output].guards_of(smallest, largest);
    if below.iter().any(|guard| guard.runs.len() > 1) {
        return None;
    }
    let all: Vec<&TableView> =
        view.levels[output].overlapping(smallest, largest).chain(inputs.iter().copied()).collect();
    let (smallest, largest) = span(all.iter().copied())?;
    let is_met = is_met(view, level, output, &all, smallest, largest);
    if is_met || all.len() == inputs.len() { None } else { leveled::merge(view, level, inputs, output) }
}

/// The newer runs of a guard into its oldest; in case there is no room for that, fewer of them, the oldest; then each
/// table of the next-oldest.
pub(super) fn within<'a>(
    view: &'a View,
    level: usize,
    guard: &'a GuardView,
) -> impl Iterator<Item = Plan> + 'a {
    let split = guard.runs.split_last().into_iter();
    split.flat_map(move |(oldest, newer)| {
        let parts = if view.linked { 1 } else { usize::MAX };
        let runs = halves(newer.len()).take(parts).map(|count| {
            newer[newer.len() - count..].iter().flat_map(|run| &run.tables).collect::<Vec<&TableView>>()
        });
        let all = runs.filter_map(move |inputs| put_into(view, level, &inputs, oldest));
        all.chain(each_into_oldest(view, level, guard).filter(|_| !view.linked))
    })
}

/// Each table of a guard's next-oldest run into its oldest.
pub(super) fn each_into_oldest<'a>(
    view: &'a View,
    level: usize,
    guard: &'a GuardView,
) -> impl Iterator<Item = Plan> + 'a {
    let oldest_two = guard.runs.split_last().and_then(|(oldest, newer)| Some((newer.last()?, oldest)));
    oldest_two.into_iter().flat_map(move |(next, oldest)| {
        next.tables.iter().filter_map(move |table| put_into(view, level, &[table], oldest))
    })
}

/// Merges tables of a level into the oldest run of their guard; `None` when that would meet a running plan.
fn put_into(view: &View, level: usize, inputs: &[&TableView], oldest: &RunView) -> Option<Plan> {
    let (smallest, largest) = span(inputs.iter().copied())?;
    // Who reads a run that points into others reads these with it.
    let all_of_it = 0..oldest.tables.len();
    let met = if view.linked { all_of_it } else { oldest.overlapping(smallest, largest) };
    let below: Vec<&TableView> = oldest.tables[met].iter().collect();
    let all = [inputs, &below].concat();
    let (smallest, largest) = span(all.iter().copied())?;
    if is_met(view, level, level, &all, smallest, largest) {
        return None;
    }
    Some(Plan::Merge {
        level,
        above: numbers(inputs),
        output_level: level,
        below: numbers(&below),
        joins: Some(oldest.age),
        drop_tombstones: is_free_of(&view.levels[level + 1..], smallest, largest),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
    })
}

/// Whether a running plan is about some of these tables, or about their keys in any of the levels.
pub(super) fn is_met(
    view: &View,
    level: usize,
    output: usize,
    inputs: &[&TableView],
    smallest: &[u8],
    largest: &[u8],
) -> bool {
    let meets = |plan: &RunningPlan| {
        let is_among_levels = plan.level <= output && level <= plan.output_level;
        // What is put on a guard's runs and points into them has the guard for itself.
        let shares_guard = |level: usize| {
            let guards = &view.levels[level].guards;
            let [mine, its] = [(smallest, largest), (&plan.from, &plan.to)]
                .map(|(from, to)| owners(guards, |guard| &guard.start, from, to));
            mine.start < its.end && its.start < mine.end
        };
        let mut both = level.max(plan.level).max(1)..=output.min(plan.output_level);
        is_among_levels && (plan.meets(smallest, largest) || view.linked && both.any(shares_guard))
    };
    let is_busy = inputs.iter().any(|table| view.is_busy(table));
    is_busy || view.running.iter().any(meets)
}

/// What becomes of a guard's bounds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Where guards begin that are cut off it.
    pub(crate) added: Vec<Vec<u8>>,
    /// It becomes part of the one before.
    pub(crate) is_joined: bool,
}

/// Keys that nothing in a guard goes across, and how many bytes lie between one and the next.
pub(crate) type Piece = (Vec<u8>, u64);

/// Cuts a guard into parts of about `guard_bytes`, between pieces, or joins it with the one before if it has become
/// small. Cuts are between its own ends, of which the last guard has but one, and behind `smallest`, up to `largest`:
/// beyond them others may be writing.
pub(crate) fn change(
    (start, end): (&[u8], Option<&[u8]>),
    pieces: &[Piece],
    smallest: &[u8],
    largest: &[u8],
    guard_bytes: u64,
) -> Change {
    let total: u64 = pieces.iter().map(|(_, bytes)| bytes).sum();
    let parts = (total + guard_bytes / 2) / guard_bytes.max(1);
    let part = total / parts.max(1);
    let (mut added, mut bytes, mut left) = (Vec::new(), 0, total);
    for (key, of_piece) in pieces {
        let key_is_own = end.is_none_or(|end| key.as_slice() < end);
        let inside = key_is_own && key.as_slice() > smallest.max(start) && key.as_slice() <= largest;
        if inside && parts > 1 && bytes >= part && left >= part / SMALL {
            added.push(key.clone());
            bytes = 0;
        }
        bytes += of_piece;
        left -= of_piece;
    }
    Change { added, is_joined: !start.is_empty() && total < guard_bytes / SMALL }
}

#[cfg(test)]
mod tests {
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expected: Expect) {
        let view = view(&format!("runs 3 guard 100\nbase 50\n{text}"));
        let planned = plan(&view).or_else(|| reclaim(&view));
        expected.assert_eq(&planned.map_or("nothing".to_owned(), |plan| plan.to_string()));
    }

    #[test]
    fn level_0_is_put_on_top_of_what_is_there() {
        let level0 = "L0: 4[c..m,10] | 3[a..z,10] | 2[a..z,10] | 1[a..z,10]";
        check(level0, expect!["merge L0: #4 #3 #2 #1 into L7 [a..z], tombstones go"]);
        // Older versions lie below it now.
        check(
            &format!("{level0}\nL7: 8[a..c,40] | 9[a..z,40]"),
            expect!["merge L0: #4 #3 #2 #1 into L7 [a..z]"],
        );
        check("L0: 3[a..z,10] | 2[a..z,10] | 1[a..z,10]", expect!["nothing"]);
    }

    #[test]
    fn a_full_guard_goes_before_anything_is_put_into_it() {
        let level0 = "L0: 4[c..m,10] | 3[a..z,10] | 2[a..z,10] | 1[a..z,10]";
        check(
            &format!("{level0}\nL7: 7[a..c,4] | 8[a..c,4] | 9[a..z,40] / p: 6[p..z,40]"),
            expect!["merge L7: #7 #8 L7: #9 into L7 [a..z], tombstones go"],
        );
        check(
            &format!("{level0}\nL6: 5[a..b,10] | 7[a..c,10] | 8[a..c,10]\nL7: 9[a..z,200]"),
            expect!["merge L6: #5 #7 #8 into L7 [a..c]"],
        );
        // While that runs, nothing is put there.
        check(
            &format!(
                "{level0}\nL6: 5[a..b,10]! | 7[a..c,10]! | 8[a..c,10]!\nL7: 9[a..z,200]\nrunning L7 a..c"
            ),
            expect!["nothing"],
        );
    }

    #[test]
    fn of_a_level_over_its_target_the_fullest_guard_goes() {
        check(
            "L6: 1[a..c,60] / m: 2[m..n,40] | 3[n..p,40] / q: 4[q..z,30]\nL7: 9[a..z,900]",
            expect!["merge L6: #2 #3 into L7 [m..p]"],
        );
        // Not what runs, or is among its keys in a level that it reads or writes.
        check(
            "L6: 1[a..c,60] / m: 2[m..n,40] | 3[n..p,40] / q: 4[q..z,90]\nL7: 9[a..z,900]\nrunning L7 o..o",
            expect!["move #4 from L6 to L7"],
        );
        check("L6: 1[a..c,60] / m: 2[m..z,60]!\nL7: 9[a..z,900]", expect!["nothing"]);
    }

    #[test]
    fn a_table_within_one_guard_is_moved_and_one_across_two_is_not() {
        check("L6: 1[a..c,160]\nL7: 8[a..k,700] / m: 9[m..z,200]", expect!["move #1 from L6 to L7"]);
        check("L6: 1[a..p,160]\nL7: 8[a..k,700] / m: 9[m..z,200]", expect!["merge L6: #1 into L7 [a..p]"]);
        check(
            "L6: 1[n..p,160]\nL7: 8[a..k,700] / m: / o: / q: 9[q..z,200]",
            expect!["move #1 from L6 to L7"],
        );
    }

    #[test]
    fn the_last_level_is_merged_within_its_guards() {
        check("L7: 1[a..c,30] | 2[a..z,900]", expect!["nothing"]);
        check(
            "L7: 1[a..c,3] | 2[a..c,3] | 3[a..e,90] 4[f..z,90]",
            expect!["merge L7: #1 #2 L7: #3 into L7 [a..e], tombstones go"],
        );
        // As much over the oldest as in it.
        check("L7: 1[a..c,90] | 2[a..c,10]", expect!["nothing"]);
        check("L7: 1[a..c,100] | 2[a..c,10]", expect!["merge L7: #1 L7: #2 into L7 [a..c], tombstones go"]);
        check("L7: 1[a..c,300] | 2[a..c,400]", expect!["nothing"]);
        // Half of what is there may be deleted.
        check("L7: 1[a..c,1]~49 | 2[a..c,99]", expect!["nothing"]);
        check("L7: 1[a..c,1]~50 | 2[a..c,99]", expect!["merge L7: #1 L7: #2 into L7 [a..c], tombstones go"]);
        check("L7: 1[a..c,400] | 2[a..c,400]", expect!["merge L7: #1 L7: #2 into L7 [a..c], tombstones go"]);
    }

    #[test]
    fn where_room_is_short_the_oldest_go_alone() {
        let level6 = "L6: 1[a..c,40] | 2[a..c,40] | 3[a..b,30] 4[c..d,20]\nL7: 9[a..c,900]";
        check(level6, expect!["merge L6: #1 #2 #3 #4 into L7 [a..d]"]);
        check(&format!("{level6}\ntier 1000 free 70"), expect!["merge L6: #3 #4 into L7 [a..d]"]);
        check(&format!("{level6}\ntier 1000 free 30"), expect!["move #3 from L6 to L7"]);
        // Merged with what is there, in steps, if each guard would get a table else.
        let level6 = "L6: 4[a..e,50]\nL5: 3[z..zz,1]\nreclaim\nL7: 8[a..c,9] / d: 9[d..e,9]";
        check(level6, expect!["merge L6: #4 into L7 [a..e]"]);
        check(
            &format!("{level6}\ntier 9000 free 8300"),
            expect!["merge L6: #4 L7: #8 #9 into L7 [a..e], tombstones go"],
        );
        let level7 = "L7: 1[a..c,40] | 2[a..c,40] | 3[a..b,30] 4[c..d,20]";
        check(
            &format!("{level7}\ntier 1000 free 120"),
            expect!["merge L7: #2 L7: #3 #4 into L7 [a..d], tombstones go"],
        );
    }

    #[test]
    fn who_is_refused_gets_what_is_shadowed() {
        let levels = "L6: 5[a..c,10]\nL7: 1[a..c,30] | 2[a..z,900]";
        check(levels, expect!["nothing"]);
        check(&format!("reclaim\n{levels}"), expect!["merge L7: #1 L7: #2 into L7 [a..z], tombstones go"]);
        check("reclaim\nL6: 5[a..c,10]\nL7: 2[a..z,900]", expect!["move #5 from L6 to L7"]);
    }

    #[test]
    fn linked_runs_go_together() {
        // Where there is no room for that, they become one first.
        let level6 = "linked\nL6: 1[a..c,40] | 2[a..c,40] | 3[a..d,30]\nL7: 9[a..c,900]";
        check(level6, expect!["merge L6: #1 #2 #3 into L7 [a..d]"]);
        check(&format!("{level6}\ntier 2000 free 1200"), expect!["merge L6: #1 #2 #3 into L7 [a..d]"]);
        let level6 =
            "linked\nL6: 1[a..c,40] | 2[a..c,40] | 3[a..d,30]\nL7: 8[a..b,9] | 7[a..c,90] / d: 9[d..e,9]";
        check(&format!("{level6}\ntier 1000 free 140"), expect!["merge L6: #1 #2 L6: #3 into L6 [a..d]"]);
        // In the last level, the oldest with them though they do not meet.
        check(
            "linked\nL7: 1[x..z,60] | 2[x..z,60] | 3[a..e,90]",
            expect!["merge L7: #1 #2 L7: #3 into L7 [a..z], tombstones go"],
        );
        check("linked\nL7: 1[x..z,60]! | 2[x..z,60] | 3[a..e,90]", expect!["nothing"]);
    }

    #[test]
    fn linked_runs_of_level_0_are_not_parted() {
        // Of four runs two are together, so where there is room for half of them it is these.
        let level0 = "L0: 4[a..c,40] | 3[a..c,40] | +2[a..c,40] | 1[a..c,40]";
        let roomy = |free| format!("linked\ntier 2000 free {free}\n{level0}");
        check(&roomy(900), expect!["merge L0: #4 #3 #2 #1 into L7 [a..c], tombstones go"]);
        check(&roomy(120), expect!["merge L0: #2 #1 into L7 [a..c], tombstones go"]);
        check(&roomy(90), expect!["merge L0: #4 #3 #2 #1 into L7 [a..c], tombstones go"]);
        // Three are as many as one.
        let three = "linked\ntier 2000 free 180\nL0: 4[a..c,40] | +3[a..c,40] | +2[a..c,40] | 1[a..c,40]";
        check(three, expect!["merge L0: #3 #2 #1 into L7 [a..c], tombstones go"]);
    }

    #[test]
    fn what_would_be_scattered_is_merged_where_it_is() {
        let levels = |bytes, below| {
            let runs = format!("L6: 1[a..c,{bytes}] | 2[a..h,{bytes}] | 3[a..c,{bytes}]");
            format!("linked\n{runs}\nL7: 9[a..c,{below}] / d: 6[d..e,{below}] / g: 5[g..h,{below}]")
        };
        check(&levels(2, 900), expect!["merge L6: #1 #2 L6: #3 into L6 [a..h]"]);
        check(&levels(3, 900), expect!["merge L6: #1 #2 #3 into L7 [a..h]"]);
        // Of a level that has too much something goes, however little.
        check(&levels(2, 9), expect!["merge L6: #1 #2 #3 into L7 [a..h]"]);
    }

    #[test]
    fn what_is_put_on_linked_runs_has_their_guard_for_itself() {
        let level0 = "L0: 4[x..z,10] | 3[x..z,10] | 2[x..z,10] | 1[x..z,10]\nL6: 7[u..y,10]\nL7: 9[a..z,900]";
        check(&format!("linked\n{level0}"), expect!["merge L0: #4 #3 #2 #1 into L6 [x..z]"]);
        // Of the same guard, though of other keys.
        check(&format!("linked\n{level0}\nrunning L6 a..b"), expect!["nothing"]);
        check(&format!("{level0}\nrunning L6 a..b"), expect!["merge L0: #4 #3 #2 #1 into L6 [x..z]"]);
        let level0 = level0.replace("L6: ", "L6: 6[a..c,10] / g: ");
        check(&format!("linked\n{level0}\nrunning L6 a..b"), expect!["merge L0: #4 #3 #2 #1 into L6 [x..z]"]);
        // A table is moved to where nothing is, and not beside others.
        check(
            "linked\nL6: 1[a..c,160]\nL7: 8[k..l,700]",
            expect!["merge L6: #1 into L7 [a..c], tombstones go"],
        );
        check("linked\nL6: 1[a..c,160]\nL7: / k: 8[k..l,700]", expect!["move #1 from L6 to L7"]);
    }

    #[test]
    fn a_guard_of_linked_runs_goes_before_it_is_too_much() {
        check("linked\nL6: 1[a..c,99] | 2[a..c,100]\nL7: 9[a..z,9000]", expect!["nothing"]);
        check(
            "linked\nL6: 1[a..c,100] | 2[a..c,100]\nL7: 9[a..z,9000]",
            expect!["merge L6: #1 #2 into L7 [a..c]"],
        );
        // And nothing is put into it meanwhile.
        check(
            "linked\nL0: 6[a..b,9] | 5[a..b,9] | 4[a..b,9] | 3[a..b,9]\nL5: 1[a..c,100]! | 2[a..c,100]!\nL7: 9[a..z,9000]",
            expect!["nothing"],
        );
    }

    #[test]
    fn a_guard_that_may_have_one_run_and_has_several_is_merged_first() {
        let plan = |text: &str| {
            let view = view(&format!("runs 1 guard 100\nlinked\ntier 9000 free 8000\n{text}"));
            super::super::plan(&view).map_or("nothing".to_owned(), |plan| plan.to_string())
        };
        let level0 = "L0: 6[a..b,9] | 5[a..b,9] | 4[a..b,9] | 3[a..b,9]";
        let several = format!("{level0}\nL7: 1[m..n,9] | 2[m..n,9]");
        expect!["merge L7: #1 L7: #2 into L7 [m..n], tombstones go"].assert_eq(&plan(&several));
        // While that runs nothing else does, since the others know nothing of links.
        let running = format!("{level0}\nL7: 1[m..n,9]! | 2[m..n,9]!\nrunning L7 m..n");
        expect!["nothing"].assert_eq(&plan(&running));
        // One that there is no room for does not keep the others from giving some back.
        let large = format!("{level0}\nL7: 7[a..b,9] / m: 1[m..n,8000] | 2[m..n,9000]");
        expect!["merge L0: #6 #5 #4 #3 into L5 [a..b]"].assert_eq(&plan(&large));
        let one = format!("{level0}\nL7: 2[m..n,9]");
        expect!["merge L0: #6 #5 #4 #3 into L7 [a..b], tombstones go"].assert_eq(&plan(&one));
    }

    fn changed(start: &str, pieces: &[(&str, u64)], within: (&str, &str)) -> String {
        changed_between((start, None), pieces, within)
    }

    fn changed_between(ends: (&str, Option<&str>), pieces: &[(&str, u64)], within: (&str, &str)) -> String {
        let pieces: Vec<Piece> =
            pieces.iter().map(|(key, bytes)| (key.as_bytes().to_vec(), *bytes)).collect();
        let (smallest, largest) = (within.0.as_bytes(), within.1.as_bytes());
        let ends = (ends.0.as_bytes(), ends.1.map(str::as_bytes));
        let change = change(ends, &pieces, smallest, largest, 100);
        let added: Vec<_> = change.added.iter().map(|key| key.escape_ascii().to_string()).collect();
        format!("{}{}", added.join(" "), if change.is_joined { "joined" } else { "" })
    }

    #[test]
    fn guards_are_cut_into_parts_of_one_size() {
        let five = [("a", 50), ("b", 50), ("c", 50), ("d", 50), ("e", 50)];
        assert_eq!(changed("", &five, ("a", "z")), "c e");
        assert_eq!(changed("", &five[..3], ("a", "z")), "c");
        assert_eq!(changed("", &[("a", 70), ("b", 70)], ("a", "z")), "");
        // Only among the keys that are its own; the rest waits.
        assert_eq!(changed("", &five, ("d", "z")), "e");
        assert_eq!(changed("", &five, ("a", "b")), "");
        // What went down from it may reach into the next one's keys, where a table may lie across.
        assert_eq!(changed_between(("", Some("e")), &five, ("a", "z")), "c");
        assert_eq!(changed_between(("", Some("ea")), &five, ("a", "z")), "c e");
        // Appended to for ever.
        assert_eq!(changed("", &[("a", 100), ("b", 30), ("c", 30)], ("b", "c")), "c");
    }

    #[test]
    fn small_guards_join_the_one_before() {
        assert_eq!(changed("k", &[("m", 24)], ("a", "z")), "joined");
        assert_eq!(changed("k", &[("m", 25)], ("a", "z")), "");
        assert_eq!(changed("", &[("m", 24)], ("a", "z")), "");
    }
}
