//! Multi-tiered storage compaction: which key range's objects go down (Raina et al., PrismDB, §5.2 and §5.3).
//!
//! Candidates are the key ranges of one table of the capacity tier each, with the gap behind it; of several, where
//! these are small, or the store is ([`super::sorted_log`]), or where that is asked for (`candidate_tables`, the
//! paper's i); and where there are no tables yet, or many more objects than a table holds, pieces of that. A
//! candidate's score is benefit over cost, equation (1): the objects that are there, weighted by how cold each is, over
//! what each byte that goes costs the capacity tier, F (2 - o) / (1 - p) + 1, with F the bytes of tables for each byte
//! of objects, o the share of the tables' bytes that the objects replace, p the share of the objects that stay since
//! they are hot. The paper counts objects of one size; here all of it is in bytes.
//!
//! Weighing a candidate means asking the tracker for its keys, so [`candidates`] says which are worth it: all
//! ([`Demotion::Precise`]), or [`CANDIDATES`] drawn by the view's seed, of which the engine then asks for a sample of
//! the keys, and the tables' filters for some of these ([`Demotion::Approx`]; the paper keeps bitmaps for buckets of
//! keys instead, see `docs/decisions/0011-store-below-the-memtable.md`), or one, whatever it weighs
//! ([`Demotion::Random`]). [`plan`] decides among those that were weighed. Both are linear in the number of ranges that
//! they are told of, which are not all where there are many ([`super::candidates`]): then the engine tells of such as
//! drawn objects are in, until [`CANDIDATES`] of them could go down. So what has many objects is weighed more often.
//!
//! Where all that was weighed is hot, or nearly, and nothing is on its way down, the coldest goes anyway, hot objects
//! and all, unless room is wanted for promotions alone. Copies of what tables have cost nothing to let go of
//! ([`Plan::Release`]) and go first.

use super::piles::{self, Pile};
use super::{Plan, RunningPlan, TableView, View};
use crate::key::Seq;
use crate::profile::Demotion;
use crate::tracker::Pinning;
use crate::version::LEVELS_MAX;
use cuesta_sched::Rng;
use std::collections::BTreeSet;

/// Ranges that are weighed for one plan: power of k choices, and the paper's k.
const CANDIDATES: u64 = 8;
/// A range in which less than one part in so many would go counts as hot.
const COLD_SHARE_MIN: u64 = 8;

/// The store below the memtable, as policies see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreView {
    /// It is nearly full, or somebody waits for room in it, or would use some.
    pub(crate) due: bool,
    /// Room is only for what would come up: nothing hot goes for it.
    pub(crate) spares_hot: bool,
    /// Somebody waits for room in it.
    pub(crate) pressed: bool,
    /// Bytes that it is short of.
    pub(crate) missing: u64,
    /// Bytes of cold copies of what tables have.
    pub(crate) releasable: u64,
    /// As many of those are worth a plan of their own.
    pub(crate) release_min: u64,
    /// Which objects stay.
    pub(crate) pinning: Pinning,
    pub(crate) demotion: Demotion,
    /// Bytes that slabs may have, by which the log has its levels; all there are where it should have one.
    pub(crate) bytes: u64,
    /// The level of the sorted log that objects go to ([`sorted_log`]).
    pub(crate) level: usize,
    /// How many runs may lie on one another there.
    pub(crate) runs_max: u64,
    /// Piles with more bytes in their oldest run are taken apart.
    pub(crate) pile_max: u64,
    /// Range tombstones that stay, since what they cover in the store could not be read.
    pub(crate) held_tombstones: BTreeSet<Seq>,
    /// For what is drawn.
    pub(crate) seed: u64,
    /// In key order, disjoint; told only when a demotion may be due.
    pub(crate) ranges: Vec<RangeView>,
}

/// What a range's objects are like: all of them, or as a sample says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeHeat {
    /// Bytes of objects, each divided by its clock value and one.
    pub(crate) cold_bytes: u64,
    /// Bytes of objects that stay.
    pub(crate) pinned_bytes: u64,
    /// Bytes of the tables' entries that objects replace, those that stay included.
    pub(crate) replaced_bytes: u64,
}

/// A key range, what the store has in it, and the tables of the level that objects go to that have keys in it, of all
/// runs; two ranges may share a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeView {
    pub(crate) from: Vec<u8>,
    /// The first key after the range.
    pub(crate) to: Vec<u8>,
    /// Objects, tombstones included, and the bytes of their slots.
    pub(crate) objects: u64,
    pub(crate) tombstones: u64,
    pub(crate) object_bytes: u64,
    pub(crate) tables: Vec<u64>,
    pub(crate) table_bytes: u64,
    pub(crate) table_entries: u64,
    /// Of those bytes, what lies in newer runs than the oldest, whose age is 0.
    pub(crate) upper_bytes: u64,
    /// The age of the newest run.
    pub(crate) age: u64,
    /// First and last key of its tables, where it is a part of what these have: what is merged with them may not meet
    /// what is laid beside it.
    pub(crate) reach: Option<(Vec<u8>, Vec<u8>)>,
    /// If it was weighed.
    pub(crate) heat: Option<RangeHeat>,
}

impl RangeView {
    /// Its tables, as far as they say whether more is laid on them.
    fn pile(&self) -> Pile {
        let upper_bytes = self.upper_bytes;
        let (oldest_bytes, drawn) = (self.table_bytes - upper_bytes, piles::drawn(&self.from));
        Pile { oldest_bytes, upper_bytes, age: self.age, drawn }
    }

    /// Equation (1), with nothing but what a table costs where all stays.
    fn score(&self, heat: &RangeHeat, keeps_hot: bool) -> f64 {
        let (objects, tables) = (self.object_bytes as f64, self.table_bytes as f64);
        let stay = if keeps_hot { heat.pinned_bytes as f64 / objects } else { 0.0 };
        let overlap = if tables > 0.0 { (heat.replaced_bytes as f64 / tables).min(1.0) } else { 0.0 };
        let cost = tables / objects * (2.0 - overlap) / (1.0 - stay) + 1.0;
        heat.cold_bytes as f64 / cost
    }

    /// So much of it is hot that it is not worth the tables' bytes.
    fn is_hot(&self, heat: &RangeHeat) -> bool {
        self.object_bytes.saturating_sub(heat.pinned_bytes) < self.object_bytes.div_ceil(COLD_SHARE_MIN)
    }

    /// By how much the capacity tier fills up: tombstones take away what they delete there.
    fn growth(&self) -> i64 {
        let per_object = self.object_bytes.checked_div(self.objects).unwrap_or(0);
        let per_entry = self.table_bytes.checked_div(self.table_entries).unwrap_or(0);
        let deleted = self.tombstones * (per_object + per_entry);
        self.object_bytes as i64 - deleted.min(self.object_bytes + self.table_bytes) as i64
    }

    /// What a demotion of it reads, and may have to write.
    fn bytes(&self) -> u64 {
        self.object_bytes + self.table_bytes
    }
}

/// Whether the store should give something up.
fn is_due(view: &View) -> Option<&StoreView> {
    view.store.as_ref().filter(|store| store.due || store.pressed || view.reclaim)
}

/// Bytes of objects and tables that a demotion may be about where the last tier has so much free.
pub(crate) fn fitting(free: u64) -> u64 {
    free / 5 * 4
}

/// How many ranges are weighed for one plan, of those that could go down.
pub(crate) fn weighed_max(demotion: Demotion) -> u64 {
    match demotion {
        Demotion::Precise => u64::MAX,
        Demotion::Approx => CANDIDATES,
        Demotion::Random => 1,
    }
}

/// Whether a range could go down: no plan that runs is about it, and where the last tier has so much free there is room
/// to merge it.
pub(crate) fn is_eligible(range: &RangeView, running: &[RunningPlan], free: u64) -> bool {
    let overlaps = |running: &RunningPlan| {
        let shares = range.tables.iter().any(|table| running.inputs.contains(table));
        let reaches = |(first, last): &(Vec<u8>, Vec<u8>)| running.from <= *last && *first < running.to;
        let meets = running.from < range.to && range.from < running.to;
        shares || meets || range.reach.as_ref().is_some_and(reaches)
    };
    range.object_bytes > 0 && range.bytes() <= fitting(free) && !running.iter().any(overlaps)
}

/// The places of ranges that could go down.
fn eligible<'a>(view: &'a View, store: &'a StoreView) -> impl Iterator<Item = usize> + Clone + 'a {
    let free = view.tiers.last().map_or(u64::MAX, |tier| tier.free);
    let ranges = store.ranges.iter().enumerate();
    ranges.filter_map(move |(i, range)| is_eligible(range, &view.running, free).then_some(i))
}

/// Which ranges should be weighed before [`plan`] is asked: their places, ascending.
pub(crate) fn candidates(view: &View) -> Vec<usize> {
    let Some(store) = is_due(view) else { return Vec::new() };
    let all: Vec<usize> = eligible(view, store).collect();
    let count = weighed_max(store.demotion);
    if all.len() as u64 <= count {
        return all;
    }
    let (mut rng, mut drawn) = (Rng::new(store.seed), BTreeSet::new());
    while (drawn.len() as u64) < count {
        drawn.insert(all[rng.below(all.len() as u64) as usize]);
    }
    drawn.into_iter().collect()
}

/// The next demotion, if one is due.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    let store = is_due(view)?;
    let is_nearly_full = store.due || store.pressed;
    // A release beside a demotion takes nothing from it: both check that an object is where they found it.
    let releases = view.running.iter().any(|running| running.output_level == LEVELS_MAX);
    if is_nearly_full && store.releasable > store.release_min && !releases {
        return Some(Plan::Release { pinning: store.pinning, bytes: store.missing.max(store.release_min) });
    }
    // The capacity tier keeps a part for deletes. Once it is down to that, what gives room back goes, and else only
    // what those who wait need: where it fills up least.
    let room = view.tiers.last().map_or(u64::MAX, |tier| tier.free.saturating_sub(tier.keep_free));
    let by_growth = |a: &&RangeView, b: &&RangeView| a.growth().cmp(&b.growth()).then(a.from.cmp(&b.from));
    let fitting = eligible(view, store).map(|i| &store.ranges[i]);
    let roomy = fitting.clone().filter(|range| is_nearly_full && range.object_bytes <= room);
    let weighed: Vec<(&RangeView, &RangeHeat)> =
        roomy.filter_map(|range| Some((range, range.heat.as_ref()?))).collect();
    let best = |keeps_hot: bool| {
        let worth_it = weighed.iter().filter(|(range, heat)| !keeps_hot || !range.is_hot(heat));
        let by_score = |a: &&(&RangeView, &RangeHeat), b: &&(&RangeView, &RangeHeat)| {
            let score = |(range, heat): &(&RangeView, &RangeHeat)| range.score(heat, keeps_hot);
            score(a).total_cmp(&score(b)).then(b.0.from.cmp(&a.0.from))
        };
        worth_it.max_by(by_score).map(|(range, _)| *range)
    };
    // What is on its way down may be enough for those who wait; merges within the log give the store no room.
    let within_log = |running: &RunningPlan| (store.level + 1..LEVELS_MAX).contains(&running.output_level);
    let nothing_runs = view.running.iter().all(within_log);
    let helps = |range: &&RangeView| store.pressed && nothing_runs || range.growth() < 0;
    let (range, pinning) = best(true)
        .map(|range| (range, store.pinning))
        .or_else(|| {
            let whole = best(false).filter(|_| nothing_runs && !store.spares_hot);
            whole.map(|range| (range, Pinning::NONE))
        })
        .or_else(|| Some((fitting.filter(helps).min_by(by_growth)?, Pinning::NONE)))?;
    let stays = range.heat.filter(|_| pinning != Pinning::NONE).map_or(0, |heat| heat.pinned_bytes);
    let goes = range.object_bytes.saturating_sub(stays);
    let is_laid_on = range.pile().takes(goes, store.runs_max);
    // Its tables may have keys outside the range.
    let (first, last) = match &range.reach {
        Some((first, last)) => (first.min(&range.from), last.max(&range.to)),
        None => (&range.from, &range.to),
    };
    let level = view.levels.get(store.level).into_iter();
    let among = level.flat_map(|level| level.overlapping(first, last));
    let tables: Vec<&TableView> = among.filter(|table| range.tables.contains(&table.number)).collect();
    let smallest = tables.iter().map(|table| &table.smallest).chain([&range.from]).min()?;
    let largest = tables.iter().map(|table| &table.largest).chain([&range.to]).max()?;
    let mut deeper = view.levels.iter().skip(store.level + 1);
    let is_lowest = deeper.all(|deeper| deeper.overlapping(smallest, largest).next().is_none());
    Some(Plan::Demote {
        tables: if is_laid_on { Vec::new() } else { range.tables.clone() },
        level: store.level,
        age: if is_laid_on { range.age + 1 } else { 0 },
        drop_tombstones: is_lowest && !is_laid_on,
        from: range.from.clone(),
        to: range.to.clone(),
        pinning,
    })
}

#[cfg(test)]
mod tests {
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    /// Ranges as `from..to objects/tables`, tables numbered from 1; behind that what a range is like if it was weighed
    /// and is not all cold: `c` bytes of coldness, `p` bytes that stay, `r` bytes replaced; `?` if it was not.
    fn ranges(text: &str) -> Vec<RangeView> {
        let mut number = 0;
        let range = |text: &str| {
            let mut words = text.split(' ');
            let mut next = || words.next().unwrap_or_default();
            let keys = next();
            let (from, to) = keys.split_once("..").unwrap();
            let (objects, tables) = next().split_once('/').unwrap();
            let object_bytes = objects.parse().unwrap();
            let mut heat = Some(RangeHeat { cold_bytes: object_bytes, ..RangeHeat::default() });
            for word in words {
                let Some(seen) = heat.as_mut().filter(|_| word != "?") else {
                    heat = None;
                    continue;
                };
                let (what, bytes) = word.split_at(1);
                let field = match what {
                    "c" => &mut seen.cold_bytes,
                    "p" => &mut seen.pinned_bytes,
                    _ => &mut seen.replaced_bytes,
                };
                *field = bytes.parse().unwrap();
            }
            let table_bytes: u64 = tables.parse().unwrap();
            number += u64::from(table_bytes > 0);
            RangeView {
                from: from.into(),
                to: to.into(),
                objects: 10,
                table_entries: 10,
                tombstones: if keys.ends_with('-') { 9 } else { 0 },
                object_bytes,
                tables: (table_bytes > 0).then_some(number).into_iter().collect(),
                table_bytes,
                upper_bytes: 0,
                age: 0,
                reach: None,
                heat,
            }
        };
        text.split(", ").map(range).collect()
    }

    fn check(ranges: &str, running: &str, expected: Expect) {
        check_when(false, ranges, running, expected);
    }

    fn store(text: &str) -> StoreView {
        let pinning = Pinning::of([1; 4], 2, 1);
        let ranges = ranges(text);
        StoreView { due: true, level: 7, pinning, release_min: 100, ranges, ..StoreView::default() }
    }

    fn check_when(pressed: bool, ranges: &str, running: &str, expected: Expect) {
        let running = running.split_once("..").map(|(from, to)| RunningPlan {
            inputs: Vec::new(),
            level: 7,
            output_level: 7,
            from: from.into(),
            to: to.into(),
        });
        let view = View {
            store: Some(StoreView { pressed, ..store(ranges) }),
            running: running.into_iter().collect(),
            ..view("tier 1000 500\ntier 20000 700")
        };
        expected.assert_eq(&plan(&view).map_or("nothing".to_owned(), |plan| plan.to_string()));
        let idle = view.store.clone().map(|store| StoreView { due: false, pressed: false, ..store });
        assert_eq!(plan(&View { store: idle, ..view }), None);
    }

    #[test]
    fn the_range_with_most_objects_for_its_tables_goes_first() {
        check("a..c 100/100, c..f 50/0, f..x 90/50", "", expect!["demote [c..f)"]);
        check("a..c 100/100, c..f 40/0, f..x 90/50", "", expect!["demote [f..x) into L7: #2"]);
    }

    #[test]
    fn cold_objects_count_and_those_that_stay_make_it_dear() {
        check("a..c 100/100 c40, c..f 90/90 c80", "", expect!["demote [c..f) into L7: #2"]);
        check("a..c 100/100 p50, c..f 90/90", "", expect!["demote [c..f) into L7: #2"]);
        // Merging what is replaced costs less.
        check("a..c 100/100 r90, c..f 110/110", "", expect!["demote [a..c) into L7: #1"]);
        // Who was not weighed is left alone.
        check("a..c 100/100 ?, c..f 50/100", "", expect!["demote [c..f) into L7: #2"]);
    }

    #[test]
    fn a_part_of_what_tables_have_goes_beside_no_other_part() {
        let reaching = |reach: Option<(&[u8], &[u8])>| {
            let mut ranges = ranges("m..x 100/100");
            ranges[0].reach = reach.map(|(first, last)| (first.to_vec(), last.to_vec()));
            let running = RunningPlan {
                inputs: Vec::new(),
                level: 7,
                output_level: 7,
                from: b"c".to_vec(),
                to: b"m".to_vec(),
            };
            let store = StoreView { due: true, level: 7, ranges, ..StoreView::default() };
            let view =
                View { store: Some(store), running: vec![running], ..view("tier 1000 500\ntier 20000 700") };
            plan(&view).is_some()
        };
        assert!(reaching(None) && reaching(Some((b"m", b"z"))) && reaching(Some((b"a", b"b"))));
        assert!(!reaching(Some((b"l", b"z"))) && !reaching(Some((b"a", b"c"))));
    }

    #[test]
    fn where_all_is_hot_the_coldest_goes_whole() {
        check("a..c 100/0 c30 p90, c..f 90/50 c25 p80", "", expect!["demote whole [a..c)"]);
        check("a..c 100/0 c30 p90, c..f 90/50 c25 p70", "", expect!["demote [c..f) into L7: #1"]);
        check("a..c 100/100 c25 p100", "", expect!["demote whole [a..c) into L7: #1"]);
        // What is on its way down may be enough.
        check("a..c 100/100 c25 p100, c..f 90/90", "c..d", expect!["nothing"]);
        // A merge within the log gives no room.
        let below =
            RunningPlan { inputs: vec![9], level: 7, output_level: 7, from: "x".into(), to: "y".into() };
        let upper = StoreView { level: 6, ..store("a..c 100/100 c25 p100") };
        let beside = View {
            store: Some(upper),
            running: vec![below],
            ..view("L7: 9[x..xx,50]\ntier 1000 500\ntier 20000 700")
        };
        assert_eq!(plan(&beside).unwrap().to_string(), "demote whole [a..c) into L6: #1");
        // Nothing hot makes way for what would come up.
        let plan_for = |ranges: &str| {
            let store = StoreView { spares_hot: true, ..store(ranges) };
            plan(&View { store: Some(store), ..view("tier 1000 500\ntier 20000 700") })
                .map(|plan| plan.to_string())
        };
        assert_eq!(plan_for("a..c 100/0 c30 p90"), None);
        assert_eq!(plan_for("a..c 100/0 c30 p20").as_deref(), Some("demote [a..c)"));
    }

    #[test]
    fn cold_copies_go_first_whatever_goes_down_meanwhile() {
        let store = StoreView { releasable: 101, ..store("a..c 100/0") };
        let view = View { store: Some(store.clone()), ..view("tier 1000 500\ntier 20000 700") };
        assert_eq!(plan(&view).unwrap().to_string(), "release 100 bytes of copies");
        let few = View { store: Some(StoreView { releasable: 100, ..store }), ..view.clone() };
        assert_eq!(plan(&few).unwrap().to_string(), "demote [a..c)");
        // Beside a demotion, but not twice.
        let [releases, demotes] = [&view, &few].map(|view| plan(view).unwrap().running());
        let beside = View { running: vec![demotes], ..view.clone() };
        assert_eq!(plan(&beside).unwrap().to_string(), "release 100 bytes of copies");
        let short = StoreView { missing: 150, ..view.store.clone().unwrap() };
        let short = View { store: Some(short), ..view.clone() };
        assert_eq!(plan(&short).unwrap().to_string(), "release 150 bytes of copies");
        assert_eq!(plan(&View { running: vec![releases], ..view }), None);
    }

    #[test]
    fn as_many_are_weighed_as_the_way_of_demotion_says() {
        let many: Vec<String> = (10..40).map(|i| format!("{i}..{} 10/10", i + 1)).collect();
        let drawn = |demotion, seed| {
            let store = StoreView { demotion, seed, ..store(&many.join(", ")) };
            let running = RunningPlan {
                inputs: Vec::new(),
                level: 7,
                output_level: 7,
                from: "10".into(),
                to: "12".into(),
            };
            let running = vec![running];
            candidates(&View { store: Some(store), running, ..view("tier 1000 500\ntier 20000 700") })
        };
        assert_eq!(drawn(Demotion::Precise, 1), (2..30).collect::<Vec<_>>());
        let some = drawn(Demotion::Approx, 1);
        assert!(some.len() == 8 && some.is_sorted() && some.iter().all(|i| *i > 1), "{some:?}");
        assert_eq!(drawn(Demotion::Approx, 1), some);
        assert_ne!(drawn(Demotion::Approx, 2), some);
        assert_eq!(drawn(Demotion::Random, 1).len(), 1);
    }

    #[test]
    fn a_range_that_is_being_moved_is_left_alone_and_so_is_an_empty_one() {
        check("a..c 100/100, c..f 50/0, f..x 0/0", "c..d", expect!["demote [a..c) into L7: #1"]);
        check("a..c 0/100, c..f 50/0", "b..d", expect!["nothing"]);
    }

    #[test]
    fn ranges_may_share_a_table_that_has_keys_beyond_them() {
        let mut ranges = ranges("a..c 100/100, c..f 90/100");
        ranges[1].tables = vec![1];
        let view = View {
            store: Some(StoreView { ranges, ..store("a..c 1/0") }),
            ..view("L7: 1[b..e,100]\ntier 1000 500\ntier 20000 700")
        };
        let first = plan(&view).unwrap();
        assert_eq!(first.to_string(), "demote [a..c) into L7: #1");
        // Not both at once.
        assert_eq!(plan(&View { running: vec![first.running()], ..view.clone() }), None);
        // What lies below a key of the table keeps its tombstone, whether it is in the range or not.
        let drops = |below: &str| {
            let levels = format!("L6: 1[b..e,100]\nL7: 8[{below},100]\ntier 1000 500\ntier 20000 700");
            let store = view.store.clone().map(|store| StoreView { level: 6, ..store });
            match plan(&View { store, ..super::super::leveled::tests::view(&levels) }) {
                Some(Plan::Demote { drop_tombstones, .. }) => drop_tombstones,
                _ => false,
            }
        };
        assert_eq!(["a..a", "d..d", "e..f", "g..h"].map(drops), [false, false, false, true]);
    }

    #[test]
    fn what_goes_is_laid_on_tables_that_are_many_times_as_much() {
        let with = |runs_max, upper_bytes, age, text: &str| {
            let mut store = StoreView { runs_max, ..store(text) };
            for range in &mut store.ranges {
                (range.upper_bytes, range.age) = (upper_bytes, age);
            }
            plan(&View { store: Some(store), ..view("tier 1000 500\ntier 20000 700") }).unwrap().to_string()
        };
        assert_eq!(with(4, 0, 0, "a..c 40/100"), "demote [a..c) onto L7, as run 1");
        assert_eq!(with(4, 10, 2, "a..c 30/100"), "demote [a..c) onto L7, as run 3");
        // Half of the objects stay.
        assert_eq!(with(4, 0, 0, "a..c 80/100 p40"), "demote [a..c) onto L7, as run 1");
        for (runs_max, upper_bytes, age, text) in [
            (1, 0, 0, "a..c 40/100"),
            (3, 10, 2, "a..c 30/100"),
            (4, 80, 1, "a..c 30/100"),
            (4, 0, 0, "a..c 110/100"),
        ] {
            assert_eq!(with(runs_max, upper_bytes, age, text), "demote [a..c) into L7: #1");
        }
        assert_eq!(with(4, 0, 0, "a..c 40/0"), "demote [a..c)");
    }

    #[test]
    fn the_capacity_tiers_last_room_is_for_who_is_pressed() {
        check("a..c 500/0, c..f 50/0", "", expect!["demote [c..f)"]);
        check("a..c 500/0, c..f 9000/0", "", expect!["nothing"]);
        check_when(true, "a..c 500/0, c..f 9000/0", "", expect!["demote whole [a..c)"]);
        check_when(true, "a..c 500/0, c..e 480/0, e..f 9000/0", "", expect!["demote whole [c..e)"]);
        // Where most are tombstones it gives room back.
        check("a..c 400/100, c..e- 400/100", "", expect!["demote whole [c..e-) into L7: #2"]);
    }
}
