//! Multi-tiered storage compaction: which key range's objects go down (Raina et al., PrismDB, §5.2 and §5.3).
//!
//! Candidates are the key ranges of one table of the capacity tier each, with the gap behind it; of several, where these are
//! small; and where there are no tables yet, or many more objects than a table holds, pieces of that. A candidate's score is benefit over cost, equation (1):
//! the objects that go, weighted by how cold each is, over what each byte of them costs the capacity tier,
//! F (2 - o) / (1 - p) + 1, with F the bytes of tables for each byte of objects, o the share of the tables' bytes that the
//! objects replace, p the share of the objects that stay. The paper counts objects of one size; here all of it is in bytes.
//!
//! Until there is a tracker, every object is as cold as any other (p = 0), and o is taken as 0. Each call looks at all
//! candidates: linear in their number.

use super::{Plan, View};

/// The store below the memtable, as policies see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreView {
    /// It is nearly full, or somebody waits for room in it.
    pub(crate) due: bool,
    /// Somebody waits for room in it.
    pub(crate) pressed: bool,
    /// In key order, disjoint; told only when a demotion may be due.
    pub(crate) ranges: Vec<RangeView>,
}

/// A key range, what the store has in it, and the tables that lie in it whole.
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
}

impl RangeView {
    /// Equation (1).
    fn score(&self) -> f64 {
        let (objects, tables) = (self.object_bytes as f64, self.table_bytes as f64);
        let fanout = tables / objects;
        objects / (2.0 * fanout + 1.0)
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

/// The next demotion, if one is due.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    let store = view.store.as_ref().filter(|store| store.due || store.pressed || view.reclaim)?;
    let is_free = |range: &&RangeView| {
        let overlaps =
            |running: &super::RunningPlan| running.smallest < range.to && range.from < running.largest;
        range.object_bytes > 0 && !view.running.iter().any(overlaps)
    };
    // The capacity tier keeps a part for deletes. Once it is down to that, what gives room back goes, and else only what
    // those who wait need: where it fills up least.
    let room = view.tiers.last().map_or(u64::MAX, |tier| tier.free.saturating_sub(tier.keep_free));
    let by_score = |a: &&RangeView, b: &&RangeView| a.score().total_cmp(&b.score()).then(b.from.cmp(&a.from));
    let by_growth = |a: &&RangeView, b: &&RangeView| a.growth().cmp(&b.growth()).then(a.from.cmp(&b.from));
    let free = view.tiers.last().map_or(u64::MAX, |tier| tier.free);
    let fits = |range: &&RangeView| range.bytes() + range.bytes() / 4 <= free;
    let fitting = store.ranges.iter().filter(is_free).filter(fits);
    let is_nearly_full = store.due || store.pressed;
    let roomy = fitting.clone().filter(|range| is_nearly_full && range.object_bytes <= room).max_by(by_score);
    let helps = |range: &&RangeView| store.pressed || range.growth() < 0;
    let best = roomy.or_else(|| fitting.filter(helps).min_by(by_growth))?;
    Some(Plan::Demote {
        tables: best.tables.clone(),
        level: view.levels.len() - 1,
        from: best.from.clone(),
        to: best.to.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::RunningPlan;
    use super::super::leveled::tests::view;
    use super::*;
    use expect_test::{Expect, expect};

    /// Ranges as `from..to objects/tables`, tables numbered from 1.
    fn check(ranges: &str, running: &str, expected: Expect) {
        check_when(false, ranges, running, expected);
    }

    fn check_when(pressed: bool, ranges: &str, running: &str, expected: Expect) {
        let mut number = 0;
        let range = |word: &str| {
            let (keys, bytes) = word.split_once(' ').unwrap();
            let ((from, to), (objects, tables)) =
                (keys.split_once("..").unwrap(), bytes.split_once('/').unwrap());
            let table_bytes: u64 = tables.parse().unwrap();
            number += u64::from(table_bytes > 0);
            RangeView {
                from: from.into(),
                to: to.into(),
                objects: 10,
                table_entries: 10,
                tombstones: if keys.ends_with('-') { 9 } else { 0 },
                object_bytes: objects.parse().unwrap(),
                tables: (table_bytes > 0).then_some(number).into_iter().collect(),
                table_bytes,
            }
        };
        let ranges = ranges.split(", ").map(range).collect();
        let running = running.split_once("..").map(|(smallest, largest)| RunningPlan {
            inputs: Vec::new(),
            output_level: 7,
            smallest: smallest.into(),
            largest: largest.into(),
        });
        let view = View {
            store: Some(StoreView { due: true, pressed, ranges }),
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
    fn a_range_that_is_being_moved_is_left_alone_and_so_is_an_empty_one() {
        check("a..c 100/100, c..f 50/0, f..x 0/0", "c..d", expect!["demote [a..c) into L7: #1"]);
        check("a..c 0/100, c..f 50/0", "b..d", expect!["nothing"]);
    }

    #[test]
    fn the_capacity_tiers_last_room_is_for_who_is_pressed() {
        check("a..c 500/0, c..f 50/0", "", expect!["demote [c..f)"]);
        check("a..c 500/0, c..f 9000/0", "", expect!["nothing"]);
        check_when(true, "a..c 500/0, c..f 9000/0", "", expect!["demote [a..c)"]);
        check_when(true, "a..c 500/0, c..e 480/0, e..f 9000/0", "", expect!["demote [c..e)"]);
        // Where most are tombstones it gives room back.
        check("a..c 400/100, c..e- 400/100", "", expect!["demote [c..e-) into L7: #2"]);
    }
}
