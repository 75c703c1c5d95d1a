//! Leveled compaction: one run per level below level 0, but for what is laid on the last ([`piles`]), each level
//! `ratio` times larger than the one above.
//!
//! Sizes are dynamic: the last level is as large as it is, and targets follow from it upwards; the first level whose
//! target is not below the base takes level 0's merges, and levels between are left empty; so is one that would be
//! little smaller than the one below it. So the last level holds all but about a `ratio`-th of the data, however much
//! there is (Dong et al., "Optimizing space amplification in RocksDB", CIDR 2017).
//!
//! **Tiers.** Where the store does not fit onto the faster tiers whole, the level above the last takes what room they
//! have beside level 0, the level that takes its merges, and a merge's outputs: the larger it is, the fewer bytes of
//! the last level each of its bytes drags along, and what is written to the slow tier is what wears it out. Of its
//! tables the densest go first, so small tables make for twice the density (about half the dragging) of an even choice.
//!
//! What comes down to a last level on a slower tier is laid on what is there, or merged with it and what lies on it
//! ([`piles`]).
//!
//! The level that is furthest over its target goes first; of its tables those that drag the fewest bytes of the next
//! level along for each of their own: neighbours together, since at both ends of a merge a table of the next level
//! reaches beyond it, and that is half of what one table alone drags where levels differ little in size. A table that
//! drags nothing is moved. Plans never overlap ones that run. One that the tiers have no room for gives way to a
//! smaller one; and while writers are refused for want of room, levels are merged down whether they are due or not.
//!
//! A plan costs two searches by halving for each table of a level, and as many more as tables are looked at together;
//! where the last level has several runs, two more in each of them for what is planned.

use super::piles::{self, Met};
use super::{GuardView, LevelView, Plan, RunView, TableView, View, placement};
use crate::planted::{self, Bug};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Share of its target at which a level is due.
const SCORE_DUE: f64 = 1.0;
/// Neighbours are merged together as long as so many tables are read in all: the longer a merge, the longer others wait
/// for it, and the more room it takes. What else a pile is made of is not counted.
const TOGETHER_MAX: usize = 24;
/// Level 0 merges into a level of less than so many times what makes it due, without one between: that would have to be
/// half as large at least, so each byte would be written as often as it is without it.
const SKIPPED_BELOW: u64 = 6;
/// What the level above the last has over its target is as much as another target once it is one part in so many of
/// what level 0 may have.
const OVER_SHARE: u64 = 10;
/// What a table takes in each guard, however little it has: a first and a last page, and two for its index.
pub(crate) const GUARD_BYTES: u64 = 16 << 10;

/// The level that level 0 merges into.
pub(crate) fn base_level(view: &View) -> usize {
    level_targets(view).iter().skip(1).position(|target| *target > 0).map_or(view.levels.len() - 1, |i| i + 1)
}

/// Bytes that each level should have at most; 0 for level 0, which goes by runs, and for levels to be left empty.
pub(crate) fn level_targets(view: &View) -> Vec<u64> {
    let mut targets = vec![0; view.levels.len()];
    // The largest level is the last in use, wherever it is; empty ones above it are skipped.
    let used = view.levels.iter().skip(1).map(|level| level.bytes()).max().unwrap_or(0);
    let mut target = used.max(view.base_bytes);
    let mut on_faster = on_faster_tiers(view).min(used / 2);
    let lays = piles::may_lay(view);
    for level in targets[1..].iter_mut().rev() {
        *level = target;
        let on_faster = std::mem::take(&mut on_faster);
        // What lies on one another is there twice, and makes for no larger a level above; nor does that drag anything
        // along at once.
        let next =
            if lays && on_faster >= view.base_bytes { on_faster } else { on_faster.max(target / view.ratio) };
        // Without others' bytes to drag along, a level of level 0's own size would be one more to be written to; and
        // where it is not much smaller than the one below, it takes room there, and spares less than it costs.
        let is_little = next < view.base_bytes && target < SKIPPED_BELOW * view.base_bytes;
        if target <= view.base_bytes || view.runs_max > 1 && next < view.base_bytes || is_little {
            break;
        }
        target = next.max(view.base_bytes);
    }
    targets
}

/// Room on the tiers above the last for the level above the last, beside the levels over it and what a merge of level 0
/// makes; none where all fits there, or where there is no such tier.
fn on_faster_tiers(view: &View) -> u64 {
    if fits_above(view) {
        return 0;
    }
    let (half, above_last) = (view.base_bytes / 2, view.levels.len() - 2);
    let between: u64 = view.levels[1..above_last].iter().map(|level| level.bytes()).sum();
    // Runs that wait may be more than make a merge due, but what they take then is for a moment.
    let level0 = view.levels[0].bytes().clamp(half, 4 * half);
    let room = placement::room_above(view).saturating_sub(level0 + between + half);
    if room < SKIPPED_BELOW * view.base_bytes { room } else { room - half.saturating_sub(between) }
}

/// Whether the tiers above the last have room for everything, and for level 0 at work.
pub(super) fn fits_above(view: &View) -> bool {
    fits_above_beside(view, view.base_bytes)
}

/// Whether they have room for everything, and for so many bytes besides.
pub(super) fn fits_above_beside(view: &View, bytes: u64) -> bool {
    let all: u64 = view.levels.iter().map(|level| level.bytes()).sum();
    all + bytes <= placement::room_above(view)
}

/// Bytes that placement keeps room for by level: what each should have at most; of level 0 a merge's worth. Where
/// everything fits above, and for the last level, it is what is there.
pub(super) fn shares(view: &View) -> Vec<u64> {
    if fits_above(view) {
        return view.levels.iter().map(|level| level.bytes()).collect();
    }
    let mut shares = level_targets(view);
    shares[0] = view.base_bytes;
    if let (Some(share), Some(level)) = (shares.last_mut(), view.levels.last()) {
        *share = level.bytes();
    }
    shares
}

/// Bytes that each level has or may come to have.
pub(super) fn claims(view: &View) -> Vec<u64> {
    shares(view).into_iter().zip(&view.levels).map(|(share, level)| share.max(level.bytes())).collect()
}

/// Bytes above what the levels should have: what merging still has to do.
#[cfg(test)]
pub(crate) fn debt(view: &View) -> u64 {
    let targets = level_targets(view);
    let last = view.levels.len() - 1;
    let over = |i: usize| view.levels[i].bytes().saturating_sub(targets[i]);
    let is_due = view.levels[0].guards.iter().any(|guard| guard.runs.len() >= view.level0_merge);
    let level0 = if is_due { view.levels[0].bytes() } else { 0 };
    level0 + (1..last).map(over).sum::<u64>()
}

/// The next thing to do, if anything is due.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    let targets = level_targets(view);
    let last = view.levels.len() - 1;
    let mut scores: Vec<(f64, usize)> = Vec::new();
    scores.push((level0_due(view).map(|(score, _)| score).fold(0.0, f64::max), 0));
    for (level, target) in targets.into_iter().enumerate().take(last).skip(1) {
        // What a merge from above gives back is here all the time.
        let bytes = view.staying_bytes(level);
        if bytes > 0 {
            scores.push((level_score(view, level, bytes, target), level));
        }
    }
    // The upper level first where two are equally far over.
    scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let due = scores.into_iter().filter(|(score, level)| is_due(*score, *level));
    let planned = first_that_fits(view, due.flat_map(|(_, level)| merges_of(view, level)))?;
    // Where nothing that is due has room, what lies on others gives some back, and takes less.
    let may_go = |plan: &Plan| fits(view, plan);
    if may_go(&planned) { Some(planned) } else { piles::into_oldest(view).find(may_go).or(Some(planned)) }
}

/// While writers are refused for want of room, everything that lies on something, or has something below it, is merged
/// with that, due or not: what it shadows or deletes there gives its room back.
pub(crate) fn reclaim(view: &View) -> Option<Plan> {
    let lowest = view.levels.iter().rposition(|level| level.bytes() > 0).filter(|_| view.reclaim)?;
    let down = (0..lowest.max(1)).flat_map(|level| merges_of(view, level));
    first_that_fits(view, piles::into_oldest(view).chain(down))
}

/// The first plan whose outputs have room, else the first: when that finds no room, those who wait are told.
pub(super) fn first_that_fits(view: &View, plans: impl Iterator<Item = Plan>) -> Option<Plan> {
    let mut first = None;
    for plan in plans {
        if fits(view, &plan) {
            return Some(plan);
        }
        first = first.or(Some(plan));
    }
    first
}

/// Whether some tier has room for a plan's outputs.
pub(super) fn fits(view: &View, plan: &Plan) -> bool {
    view.has_room_for(needs(view, plan))
}

/// Bytes of room without which a plan cannot be carried out: without room for all that it writes a merge goes in steps,
/// of a table of the output level each, and lets go of what is above when it ends.
fn needs(view: &View, plan: &Plan) -> u64 {
    let Plan::Merge { level, above, output_level, below, smallest, largest, .. } = plan else { return 0 };
    let among = |numbers: &[u64]| -> Vec<u64> {
        let levels = [*level, *output_level].into_iter().collect::<BTreeSet<_>>().into_iter();
        let tables = levels.flat_map(|level| view.levels[level].overlapping(smallest, largest));
        tables.filter(|table| numbers.contains(&table.number)).map(|table| table.unpacked).collect()
    };
    let above: u64 = among(above).into_iter().sum();
    let most = among(below).into_iter().max();
    // Without one below it is not in steps, and cut at guards, but for those between two that are empty.
    let guards = view.levels[*output_level].guards_of(smallest, largest);
    let cuts = guards.windows(2).filter(|pair| pair.iter().any(|guard| !guard.runs.is_empty())).count();
    above + most.unwrap_or(GUARD_BYTES * cuts as u64)
}

/// What a level could merge into the next, best first.
fn merges_of(view: &View, level: usize) -> Box<dyn Iterator<Item = Plan> + '_> {
    match level {
        0 => Box::new(plan_level0(view)),
        _ => Box::new(merges_between(view, level, output_of(view, level))),
    }
}

/// Level 0 is due when it has its number of runs; a level below when it is over its target.
fn is_due(score: f64, level: usize) -> bool {
    if level == 0 { score >= SCORE_DUE } else { score > SCORE_DUE }
}

/// How close a level is to being merged; more than 1 makes it due. What the level above the last has over its target is
/// in the way of everything else on the faster tiers: what level 0 makes goes to a slower one then, and is written
/// twice there. So a tenth of what level 0 may have is as much as two targets elsewhere.
fn level_score(view: &View, level: usize, bytes: u64, target: u64) -> f64 {
    let is_above_last = level + 2 == view.levels.len() && !fits_above(view);
    match bytes.checked_sub(target).filter(|_| is_above_last) {
        Some(over) => 1.0 + over as f64 / (view.base_bytes / OVER_SHARE).clamp(1, target.max(1)) as f64,
        None => bytes as f64 / target.max(1) as f64,
    }
}

/// How close a guard of level 0 is to being merged; 1 makes it due. By its runs; and all of them by what they have
/// together, since keys that nobody writes any more would leave theirs behind for good. Where there is a slower tier to
/// be spared, one that has less than its share of what level 0 may have waits for more runs: what it has would drag as
/// much along as that of one that has all.
pub(super) fn level0_score(view: &View, guard: &GuardView) -> f64 {
    let (guards, of) =
        (view.levels[0].guards.len(), |bytes: u64| bytes as f64 / view.base_bytes.max(1) as f64);
    let runs = guard.runs.len() as f64 / view.level0_merge as f64;
    if guards < 2 || guard.runs.is_empty() {
        return runs;
    }
    let share = if view.tiers.len() > 1 { of(guard.bytes()) * guards as f64 } else { f64::INFINITY };
    runs.min(share).max(guard.runs.len() as f64 / view.level0_most as f64).max(of(view.idle_bytes(0)))
}

/// Guards of level 0 that are due, each with how much so: those with most runs first, and where none has more than make
/// it due those with the oldest run, which would else stay behind where nobody writes any more; of these those with
/// most bytes.
fn level0_due(view: &View) -> impl Iterator<Item = (f64, &GuardView)> {
    let guards = view.levels[0].guards.iter().filter(|guard| !guard.runs.is_empty());
    let scored = guards.map(|guard| (level0_score(view, guard), &**guard));
    let mut due: Vec<_> = scored.filter(|(score, _)| view.reclaim || is_due(*score, 0)).collect();
    let oldest = |guard: &GuardView| guard.runs.last().map_or(0, |run| run.age);
    due.sort_by_key(|(_, guard)| {
        let runs = guard.runs.len().max(view.level0_merge);
        (Reverse(runs), oldest(guard), Reverse(guard.bytes()))
    });
    due.into_iter()
}

/// All runs of a guard of level 0 into the base level; then, in case there is no room for that, fewer of them, the
/// oldest.
fn plan_level0(view: &View) -> impl Iterator<Item = Plan> {
    // A newer run must not overtake an older one that is on its way.
    let is_idle =
        |guard: &GuardView| !guard.runs.iter().flat_map(|run| &run.tables).any(|table| view.is_busy(table));
    let guards = level0_due(view).filter(move |(_, guard)| is_idle(guard));
    let inputs = guards.flat_map(|(_, guard)| guard.oldest_halves());
    inputs.filter_map(move |inputs| merge(view, 0, &inputs, output_of(view, 0)))
}

/// Where a level's data goes: to the base, or to the next level below it; but never past a level that holds data,
/// which would put newer versions below older ones.
pub(super) fn output_of(view: &View, level: usize) -> usize {
    let wanted = (level + 1).max(base_level(view));
    (level + 1..wanted).find(|between| view.levels[*between].bytes() > 0).unwrap_or(wanted)
}

/// Merges of tables of `level` into `output`, those that drag the least along first: neighbours together where that
/// drags less, since the tables of the output at both ends of what is merged reach beyond it.
pub(super) fn merges_between(view: &View, level: usize, output: usize) -> impl Iterator<Item = Plan> {
    let mut candidates: Vec<(f64, &[TableView])> = Vec::new();
    for run in view.levels[level].runs() {
        candidates.extend((0..run.tables.len()).flat_map(|from| together_from(view, run, from, output)));
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1[0].number.cmp(&b.1[0].number)));
    candidates
        .into_iter()
        .filter_map(move |(_, tables)| merge(view, level, &tables.iter().collect::<Vec<_>>(), output))
}

/// The table at `from`, and as many behind it as make what each byte drags along least, each with that cost.
fn together_from<'a>(
    view: &View,
    run: &'a RunView,
    from: usize,
    output: usize,
) -> impl Iterator<Item = (f64, &'a [TableView])> {
    let (mut bytes, mut live, mut dragged, mut tables) = (0, 0, 0, 0);
    let (mut alone, mut best): (_, Option<(f64, &[TableView])>) = (None, None);
    for (at, table) in run.tables.iter().enumerate().skip(from) {
        bytes += table.bytes;
        // Tombstones are cheap to merge and free room below.
        live += table.bytes - table.bytes * table.tombstones.min(table.entries) / table.entries.max(1) / 2;
        tables += 1;
        // What the table before drags along already is not counted again.
        let counted = |below: &TableView| at > from && below.smallest <= run.tables[at - 1].largest;
        for below in view.levels[output].overlapping(&table.smallest, &table.largest) {
            if !counted(below) {
                dragged += below.bytes;
                tables += 1;
            }
        }
        if view.is_busy(table) || (best.is_some() && tables > TOGETHER_MAX) {
            break;
        }
        let cost = (dragged + live) as f64 / bytes.max(1) as f64;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, &run.tables[from..=at]));
        }
        alone = alone.or(best);
    }
    // The one alone as well, in case there is no room for more.
    best.into_iter().chain(alone.filter(|_| best != alone))
}

/// Merges `inputs` of `level` and what they meet in `output`, or lays them on that; `None` when that would meet a
/// running plan.
pub(super) fn merge(view: &View, level: usize, inputs: &[&TableView], output: usize) -> Option<Plan> {
    let (smallest, largest) = span(inputs.iter().copied())?;
    let meets_running = |smallest: &[u8], largest: &[u8]| {
        let mut running = view.running.iter();
        running.any(|plan| (level..=output).contains(&plan.output_level) && plan.meets(smallest, largest))
    };
    // Told by few keys already for most that do.
    if meets_running(smallest, largest) {
        return None;
    }
    let Met { is_laid, upper, under, joins } = piles::met(view, inputs, output, (smallest, largest));
    let met = || upper.iter().chain(&under).copied();
    let (smallest, largest) = span(inputs.iter().copied().chain(met()))?;
    if meets_running(smallest, largest) || met().any(|table| view.is_busy(table)) {
        return None;
    }
    if let ([table], None, false) = (inputs, met().next(), is_laid) {
        return Some(moved(table, level, output));
    }
    let is_lowest = !is_laid || planted::has(Bug::TombstonesDroppedOnPiles);
    Some(Plan::Merge {
        level,
        above: inputs.iter().chain(&upper).map(|table| table.number).collect(),
        output_level: output,
        below: numbers(&under),
        joins,
        drop_tombstones: is_lowest && is_free_of(&view.levels[output + 1..], smallest, largest),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
    })
}

/// The first and the last key of tables.
pub(super) fn span<'a>(tables: impl Iterator<Item = &'a TableView> + Clone) -> Option<(&'a [u8], &'a [u8])> {
    let smallest = tables.clone().map(|table| table.smallest.as_slice()).min()?;
    Some((smallest, tables.map(|table| table.largest.as_slice()).max()?))
}

pub(super) fn numbers(tables: &[&TableView]) -> Vec<u64> {
    tables.iter().map(|table| table.number).collect()
}

pub(super) fn moved(table: &TableView, from: usize, to: usize) -> Plan {
    let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
    Plan::Move { table: table.number, from, to, smallest, largest }
}

/// Whether no table of these levels has keys from `smallest` to `largest`.
pub(super) fn is_free_of(levels: &[Arc<LevelView>], smallest: &[u8], largest: &[u8]) -> bool {
    levels.iter().all(|level| level.overlapping(smallest, largest).next().is_none())
}

#[cfg(test)]
pub(super) mod tests;
