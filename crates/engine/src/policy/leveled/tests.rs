use super::super::placement::KEEP_FREE_SHARE;
use super::super::{GuardView, RunningPlan, TierView};
use super::*;
use crate::key::Seq;
use crate::range_tombstones::RangeTombstone;
use crate::version::TablePart;
use expect_test::{Expect, expect};
use std::collections::{BTreeMap, BTreeSet};

/// Reads a view: a line a level, guards between slashes, all but the first with where they start and a colon; runs
/// newest first between bars, tables as `number[first..last bytes]`, `!` for busy, `~n` for n tombstones in a hundred
/// entries, `@n` for tier n, `^n` for heat n, `=` for one that lingers, `i10` for an index of 10 bytes on tier 1, `#5`
/// for a last number of 5 (else 1), `x5` for a table to which range tombstones up to number 5 were applied. "erased 5
/// b..d" is a range tombstone, "read at 9" the oldest number that is read at (else 100). "running L2 a..c" adds a
/// running plan that writes to level 2; "tier 400 free 50 wanted 9" a tier; "base 10" the base's least target; "runs 4
/// guard 50" how many runs a guard may have, and of how many bytes one should be; "laid 4" how many may lie on one
/// another in the last level; "linked" that they point into one another, below level 0, and a `+` before a run that
/// this does there; "reclaim" that writers are refused.
pub(in crate::policy) fn view(text: &str) -> View {
    let mut view = View {
        levels: vec![Arc::default(); 8],
        running: Vec::new(),
        heat: BTreeMap::new(),
        lingering: BTreeSet::new(),
        tiers: Vec::new(),
        ratio: 10,
        runs_max: 1,
        laid_max: 1,
        linked: false,
        guard_bytes: 500,
        guard_piles: 64,
        level0_merge: 4,
        level0_most: 8,
        base_bytes: 100,
        reclaim: false,
        store: None,
        range_tombstones: Arc::default(),
        oldest_read: Seq(100),
    };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("running L") {
            let (level, range) = rest.split_once(' ').unwrap();
            let (smallest, largest) = range.split_once("..").unwrap();
            view.running.push(RunningPlan {
                inputs: Vec::new(),
                level: level.parse().unwrap(),
                output_level: level.parse().unwrap(),
                from: smallest.into(),
                to: super::super::behind(largest.as_bytes()),
            });
            continue;
        }
        if let Some(rest) = line.strip_prefix("erased ") {
            let (seq, range) = rest.split_once(' ').unwrap();
            let (from, to) = range.split_once("..").unwrap();
            let (from, to) = (from.as_bytes().into(), to.as_bytes().into());
            let tombstone = RangeTombstone { seq: Seq(seq.parse().unwrap()), from, to };
            view.range_tombstones = Arc::new(view.range_tombstones.with(tombstone));
            continue;
        }
        if let Some(oldest) = line.strip_prefix("read at ") {
            view.oldest_read = Seq(oldest.parse().unwrap());
            continue;
        }
        if line == "linked" {
            view.linked = true;
            continue;
        }
        if line == "reclaim" {
            view.reclaim = true;
            continue;
        }
        if let Some(bytes) = line.strip_prefix("base ") {
            view.base_bytes = bytes.parse().unwrap();
            continue;
        }
        if let Some(runs) = line.strip_prefix("laid ") {
            view.laid_max = runs.parse().unwrap();
            continue;
        }
        if let Some(rest) = line.strip_prefix("runs ") {
            let (runs, bytes) = rest.split_once(" guard ").unwrap();
            (view.runs_max, view.guard_bytes) = (runs.parse().unwrap(), bytes.parse().unwrap());
            continue;
        }
        if let Some(rest) = line.strip_prefix("tier ") {
            let numbers: Vec<u64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
            view.tiers.push(TierView {
                capacity: numbers[0],
                free: numbers[1],
                keep_free: numbers[0] / KEEP_FREE_SHARE,
                wanted: numbers.get(2).copied().unwrap_or(0),
            });
            continue;
        }
        let (level, guards) = line.strip_prefix('L').unwrap().split_once(':').unwrap();
        let guards = guards.split(" / ").enumerate().map(|(i, guard)| {
            let (start, guard) = if i > 0 { guard.split_once(':').unwrap() } else { ("", guard) };
            let mut runs = runs(&mut view, guard);
            if let Some((_, newer)) = runs.split_last_mut().filter(|_| view.linked && !level.starts_with('0'))
            {
                newer.iter_mut().for_each(|run| run.linked = true);
            }
            Arc::new(GuardView::new(start.into(), runs).piled())
        });
        let level_view = LevelView::new(guards.collect());
        view.levels[level.parse::<usize>().unwrap()] = Arc::new(level_view);
    }
    view
}

fn runs(view: &mut View, text: &str) -> Vec<RunView> {
    let runs = text.split('|').filter(|run| !run.trim().is_empty());
    let run = |(i, run): (usize, &str)| {
        let (linked, run) = run.trim().strip_prefix('+').map_or((false, run), |run| (true, run));
        let tables = run.split_whitespace().map(|word| table(view, word)).collect();
        RunView { age: 100 - i as u64, linked, tables }
    };
    runs.enumerate().map(run).collect()
}

/// A plan that runs with a table, and keeps others off no key.
fn with_table(number: u64) -> RunningPlan {
    RunningPlan { inputs: vec![number], level: 8, output_level: 8, from: Vec::new(), to: b"~".to_vec() }
}

fn table(view: &mut View, word: &str) -> TableView {
    let (number, rest) = word.split_once('[').unwrap();
    let (smallest, rest) = rest.split_once("..").unwrap();
    let (largest, rest) = rest.split_once(',').unwrap();
    let (bytes, flags) = rest.split_once(']').unwrap();
    let flag = |mark: char| {
        let digits: String = flags.split_once(mark)?.1.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    };
    let number = number.parse().unwrap();
    view.heat.extend(flag('^').map(|heat| (number, heat)));
    view.lingering.extend(flags.contains('=').then_some((number, TablePart::Data)));
    view.running.extend(flags.contains('!').then(|| with_table(number)));
    TableView {
        number,
        bytes: bytes.parse().unwrap(),
        unpacked: bytes.parse().unwrap(),
        entries: 100,
        tombstones: flag('~').unwrap_or(0).into(),
        smallest: smallest.into(),
        largest: largest.into(),
        smallest_seq: Seq(1),
        largest_seq: Seq(flag('#').unwrap_or(1).into()),
        erased: Seq(flag('x').unwrap_or(0).into()),
        tier: flag('@').unwrap_or(0) as usize,
        meta_tier: flag('i').map_or(0, |_| 1),
        meta_bytes: flag('i').unwrap_or(0).into(),
    }
}

fn check(text: &str, expected: Expect) {
    let view = view(text);
    let planned =
        plan(&view).or_else(|| reclaim(&view)).map_or("nothing is due".to_owned(), |plan| plan.to_string());
    expected.assert_eq(&format!(
        "targets {:?}, base L{}, debt {}\n{planned}\n",
        level_targets(&view),
        base_level(&view),
        debt(&view)
    ));
}

#[test]
fn an_empty_store_needs_nothing() {
    check(
        "",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 0
        nothing is due
    "#]],
    );
}

#[test]
fn level_0_waits_for_its_number_of_runs() {
    check(
        "L0: 3[a..z,10] | 2[a..z,10] | 1[a..z,10]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 0
        nothing is due
    "#]],
    );
}

#[test]
fn of_level_0_the_guard_with_most_runs_goes() {
    let level0 = "L0: 2[a..c,10] | 1[a..c,10] / m: 6[m..p,10] | 5[m..p,10] | 4[m..p,10] | 3[m..p,10]";
    check(
        &format!("{level0}\nL7: 9[a..f,40] 8[g..z,40]"),
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 60
            merge L0: #6 #5 #4 #3 L7: #8 into L7 [g..z], tombstones go
        "#]],
    );
    // What is on its way stays alone, and the other is not due.
    check(
        &format!("{}\nL7: 9[a..f,40] 8[g..z,40]", level0.replace("3[m..p,10]", "3[m..p,10]!")),
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 60
            nothing is due
        "#]],
    );
    // Writers who are refused have it go all the same.
    check(
        &format!("{}\nreclaim\nL7: 9[a..f,40] 8[g..z,40]", level0.replace("3[m..p,10]", "3[m..p,10]!")),
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 60
            merge L0: #2 #1 L7: #9 into L7 [a..f], tombstones go
        "#]],
    );
}

#[test]
fn guards_of_level_0_with_few_runs_go_when_all_have_much() {
    check(
        "L0: 1[a..c,50] / m: 2[m..p,49]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 0
        nothing is due
    "#]],
    );
    check(
        "L0: 1[a..c,50] / m: 2[m..p,51] / q: 3[q..r,40]!",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 0
        move #2 from L0 to L7
    "#]],
    );
    // In one guard runs alone count.
    check(
        "L0: 1[a..c,150]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 0
        nothing is due
    "#]],
    );
}

#[test]
fn level_0_goes_to_the_last_level_while_that_is_small() {
    check(
        "L0: 4[c..m,10] | 3[a..z,10] | 2[a..z,10] | 1[a..z,10]
           L7: 9[a..c,40] 8[y..zz,40]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 40
        merge L0: #4 #3 #2 #1 L7: #9 #8 into L7 [a..zz], tombstones go
    "#]],
    );
}

#[test]
fn the_base_rises_as_the_last_level_grows() {
    check(
        "L0: 4[c..m,10] | 3[a..f,10] | 2[a..z,10] | 1[a..z,10]
           L5: 5[x..zz,10]
           L6: 6[a..b,100]
           L7: 7[a..z,20000]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 200, 2000, 20000], base L5, debt 40
            merge L0: #4 #3 #2 #1 L5: #5 into L5 [a..zz]
        "#]],
    );
}

#[test]
fn no_level_with_data_is_passed_by() {
    check(
        "L0: 4[c..m,10] | 3[a..f,10] | 2[a..z,10] | 1[a..z,10]
           L5: 5[a..b,10]
           L7: 7[a..z,20]",
        expect![[r#"
               targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 50
               merge L5: #5 L7: #7 into L7 [a..z], tombstones go
           "#]],
    );
}

#[test]
fn the_table_that_drags_least_goes_first() {
    check(
        "L6: 1[a..c,120] 2[d..f,120] 3[g..i,120]
           L7: 4[a..b,500] 5[d..e,100] 6[h..z,900]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 150, 1500], base L6, debt 210
            merge L6: #2 L7: #5 into L7 [d..f], tombstones go
        "#]],
    );
}

#[test]
fn neighbours_go_together_where_that_drags_less() {
    check(
        "L6: 1[a..c,120] 2[d..f,120] 3[x..z,120]
           L7: 4[a..f,300] 5[w..z,200]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 500], base L7, debt 360
            merge L6: #1 #2 L7: #4 into L7 [a..f], tombstones go
        "#]],
    );
    // Not those behind one that is on its way.
    check(
        "L6: 1[a..c,120] 2[d..f,120]! 3[x..z,120] 4[zz..zzz,120]
           L7: 4[a..f,300] 5[w..zzz,200]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 500], base L7, debt 480
            merge L6: #3 #4 L7: #5 into L7 [w..zzz], tombstones go
        "#]],
    );
}

#[test]
fn so_many_tables_are_merged_together_and_no_more() {
    // Each table above drags seven along, and shares the last with the next.
    let above: String = (0..20).map(|i| format!(" {i}[{:03}0..{:03}9,10]", i * 6 + 1, i * 6 + 6)).collect();
    let below: String = (0..125).map(|i| format!(" {}[{i:03}5..{:03}4,10]", 100 + i, i + 1)).collect();
    let view = view(&format!("base 50\nL6:{above}\nL7:{below}"));
    let Some(Plan::Merge { above, below, .. }) = plan(&view) else { panic!("a merge is due") };
    assert_eq!([above.len(), below.len()], [3, 19]);
}

#[test]
fn tombstones_tip_the_scale() {
    check(
        "L6: 1[a..c,120] 2[d..f,120] 3[g..i,120]~100
           L7: 4[a..b,120] 5[d..e,120] 6[h..z,130]
           L5: 9[zz..zzz,5]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 370], base L7, debt 365
            merge L6: #3 L7: #6 into L7 [g..z], tombstones go
        "#]],
    );
}

#[test]
fn what_drags_nothing_is_moved() {
    check(
        "L6: 1[a..c,120] 2[d..f,120]
           L7: 4[d..b,500] 5[d..e,100] 6[h..z,900]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 150, 1500], base L6, debt 90
            move #1 from L6 to L7
        "#]],
    );
}

#[test]
fn a_plan_keeps_off_those_that_run() {
    check(
        "L6: 1[a..c,120] 2[d..f,120] 3[g..i,120]
           L7: 4[a..b,500] 5[d..e,100]! 6[h..z,900]
           running L7 a..b",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 150, 1500], base L6, debt 210
            merge L6: #3 L7: #6 into L7 [g..z], tombstones go
        "#]],
    );
    check(
        "L0: 4[c..m,10]! | 3[a..z,10] | 2[a..z,10] | 1[a..z,10]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 0, 100], base L7, debt 40
        nothing is due
    "#]],
    );
}

#[test]
fn tombstones_stay_while_older_data_lies_deeper() {
    check(
        "L0: 4[c..m,10] | 3[a..f,10] | 2[a..z,10] | 1[a..z,10]
           L6: 6[a..b,10]
           L7: 7[c..d,1500]",
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 150, 1500], base L6, debt 40
            merge L0: #4 #3 #2 #1 L6: #6 into L6 [a..z]
        "#]],
    );
}

/// The runs of a level that has one guard, changed.
fn change_runs(view: &mut View, level: usize, change: impl FnOnce(&mut Vec<RunView>)) {
    let mut runs = view.levels[level].guards.first().map_or(Vec::new(), |guard| guard.runs.clone());
    change(&mut runs);
    view.levels[level] = Arc::new(LevelView::new(vec![Arc::new(GuardView::new(Vec::new(), runs))]));
}

/// Applies plans to sizes alone, until nothing is due.
fn settle(view: &mut View) -> u64 {
    let mut written = 0;
    for step in 0.. {
        assert!(step < 10_000, "plans never end");
        let Some(plan) = plan(view) else { return written };
        let running = plan.running();
        let mut bytes = 0;
        let mut entries = Vec::new();
        for level in 0..view.levels.len() {
            change_runs(view, level, |runs| {
                for run in runs.iter_mut() {
                    let taken = run.tables.iter().filter(|table| running.inputs.contains(&table.number));
                    taken.for_each(|table| {
                        bytes += table.bytes;
                        entries.push(table.number);
                    });
                    run.tables.retain(|table| !running.inputs.contains(&table.number));
                }
                runs.retain(|run| !run.tables.is_empty());
            });
        }
        if matches!(plan, Plan::Merge { .. }) {
            written += bytes;
        }
        // The output is cut into tables of 50 bytes that share its range evenly.
        let pieces = bytes.div_ceil(50).max(1);
        let low = u64::from_be_bytes(running.from[..8].try_into().unwrap());
        let high = u64::from_be_bytes(running.to[..8].try_into().unwrap());
        let mut made = Vec::new();
        for piece in 0..pieces {
            let at = |i: u64| low + ((high - low) as u128 * u128::from(i) / u128::from(pieces)) as u64;
            let (smallest, largest) = (at(piece), if piece + 1 == pieces { high } else { at(piece + 1) - 1 });
            made.push(TableView {
                number: entries[0] * 1000 + piece + step * 1_000_000_000,
                bytes: bytes / pieces,
                unpacked: bytes / pieces,
                entries: 10,
                tombstones: 0,
                smallest: smallest.to_be_bytes().into(),
                largest: largest.to_be_bytes().into(),
                smallest_seq: Seq(1),
                largest_seq: Seq(1),
                erased: Seq(0),
                tier: 0,
                meta_tier: 0,
                meta_bytes: 0,
            });
        }
        change_runs(view, running.output_level, |output| {
            if output.is_empty() {
                output.push(RunView { age: 0, linked: false, tables: Vec::new() });
            }
            output[0].tables.extend(made);
            output[0].tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        });
    }
    written
}

#[test]
fn a_long_fill_settles_within_targets_at_a_bearable_write_amplification() {
    let mut view = view("");
    let mut rng = cuesta_sched::Rng::new(5);
    let (mut filled, mut written) = (0, 0);
    for flush in 0..400 {
        let (low, high) = (rng.below(1 << 40), (1 << 60) + rng.below(1 << 60));
        let table = TableView {
            number: flush + 1,
            bytes: 25,
            unpacked: 25,
            entries: 10,
            tombstones: 0,
            smallest: low.to_be_bytes().into(),
            largest: high.to_be_bytes().into(),
            smallest_seq: Seq(1),
            largest_seq: Seq(1),
            erased: Seq(0),
            tier: 0,
            meta_tier: 0,
            meta_bytes: 0,
        };
        filled += 25;
        change_runs(&mut view, 0, |runs| {
            runs.insert(0, RunView { age: flush + 1, linked: false, tables: vec![table] })
        });
        written += 25 + settle(&mut view);
        let targets = level_targets(&view);
        assert!(view.levels[0].runs().count() < 4);
        for (level, target) in targets.iter().enumerate().take(7).skip(1) {
            assert!(view.levels[level].bytes() <= *target, "level {level} after flush {flush}");
        }
    }
    let amplification = written as f64 / f64::from(filled);
    assert!((2.0..16.0).contains(&amplification), "{amplification}");
}

#[test]
fn writers_that_are_refused_have_everything_merged_down() {
    let levels = "L0: 3[a..c,10]~100
           L6: 5[d..f,10]
           L7: 6[a..z,900]";
    check(
        levels,
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 100, 900], base L6, debt 0
        nothing is due
    "#]],
    );
    check(
        &format!("reclaim\n{levels}"),
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 100, 900], base L6, debt 0
        move #3 from L0 to L6
    "#]],
    );
    check(
        "reclaim\nL6: 5[d..f,10]\nL7: 6[a..z,900]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 100, 900], base L6, debt 0
        merge L6: #5 L7: #6 into L7 [a..z], tombstones go
    "#]],
    );
    check(
        "reclaim\nL7: 6[a..z,900]",
        expect![[r#"
        targets [0, 0, 0, 0, 0, 0, 100, 900], base L6, debt 0
        nothing is due
    "#]],
    );
}

#[test]
fn a_merge_without_room_gives_way_to_a_smaller_one() {
    let levels = "L6: 3[a..c,60] 4[d..f,60] 5[g..i,20]
           L7: 6[a..b,60] 7[d..e,70] 8[g..h,30]";
    check(
        levels,
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 160], base L7, debt 140
            merge L6: #3 L7: #6 into L7 [a..c], tombstones go
        "#]],
    );
    check(
        &format!("{levels}\ntier 1000 free 70"),
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 160], base L7, debt 140
            merge L6: #5 L7: #8 into L7 [g..i], tombstones go
        "#]],
    );
    check(
        &format!("{levels}\ntier 1000 free 7"),
        expect![[r#"
            targets [0, 0, 0, 0, 0, 0, 0, 160], base L7, debt 140
            merge L6: #3 L7: #6 into L7 [a..c], tombstones go
        "#]],
    );
}

#[test]
fn the_level_above_the_last_takes_what_faster_tiers_have_left() {
    let levels = "L0: 9[a..z,20]
           L5: 1[a..b,40]
           L6: 2[c..d,300]
           L7: 3[a..z,3000]@1";
    let targets = |tiers: &str| level_targets(&view(&format!("base 20\n{tiers}\n{levels}")));
    // One tier: each level is a tenth of the next.
    assert_eq!(targets(""), [0, 0, 0, 0, 0, 30, 300, 3000]);
    // 640 less 10 that are kept, 20 of level 0, 40 of level 5, and 10 for what a merge makes.
    assert_eq!(targets("tier 640 free 280\ntier 90000 free 9000"), [0, 0, 0, 0, 0, 56, 560, 3000]);
    // Everything has room on the first.
    assert_eq!(targets("tier 6400 free 6000\ntier 90000 free 9000"), [0, 0, 0, 0, 0, 30, 300, 3000]);
    // Little room takes nothing away.
    assert_eq!(targets("tier 400 free 4\ntier 90000 free 9000"), [0, 0, 0, 0, 0, 30, 300, 3000]);
}

#[test]
fn a_level_that_is_little_smaller_than_the_one_below_is_left_out() {
    let targets = |base: u64| level_targets(&view(&format!("base {base}\nL7: 3[a..z,3000]")));
    assert_eq!(targets(501), [0, 0, 0, 0, 0, 0, 0, 3000]);
    assert_eq!(targets(500), [0, 0, 0, 0, 0, 0, 500, 3000]);
    assert_eq!(targets(60), [0, 0, 0, 0, 0, 0, 300, 3000]);
    assert_eq!(targets(50), [0, 0, 0, 0, 0, 50, 300, 3000]);
}

#[test]
fn what_the_level_above_the_last_has_too_much_weighs_by_what_level_0_may_have() {
    let levels = "L0: 4[a..z,4] | 5[a..z,4] | 6[a..z,4] | 7[a..z,4] | 8[a..z,4]
           L6: 1[a..b,300] 2[c..d,280]
           L7: 3[a..z,3000]@1";
    let due = |free: u64| {
        let tiers = format!("tier 640 free {free}\ntier 90000 free 9000");
        plan(&view(&format!("base 40\n{tiers}\n{levels}"))).unwrap().to_string()
    };
    // Level 0 has five runs of four. Level 6 should have 578 bytes at most, and has 2 too many: half of a tenth of what
    // level 0 may have.
    assert!(due(48).starts_with("merge L6:"), "{}", due(48));
    // None too many.
    assert!(due(50).starts_with("merge L0:"), "{}", due(50));
}

#[test]
fn what_a_merge_gives_back_counts_for_its_level() {
    let levels = "L0: 9[a..b,50]
           L6: 1[a..b,300] 2[c..d,320]
           L7: 3[a..b,1500]@1 4[c..d,1500]@1\ntier 640 free 0\ntier 90000 free 9000\nbase 40";
    let mut view = view(levels);
    let planned = |view: &View| plan(view).map_or("nothing".to_owned(), |plan| plan.to_string());
    let running = |level, output_level, inputs: &[u64]| RunningPlan {
        inputs: inputs.to_vec(),
        level,
        output_level,
        from: "a".into(),
        to: "bb".into(),
    };
    view.running = vec![running(0, 6, &[9, 1])];
    assert_eq!((view.idle_bytes(6), view.staying_bytes(6)), (320, 620));
    expect!["merge L6: #2 L7: #4 into L7 [c..d], tombstones go"].assert_eq(&planned(&view));
    // What goes down does not.
    view.running = vec![running(6, 7, &[1, 3])];
    assert_eq!((view.idle_bytes(6), view.staying_bytes(6)), (320, 320));
    expect!["nothing"].assert_eq(&planned(&view));
}

#[test]
fn a_guard_of_level_0_that_has_little_waits_for_more_runs() {
    let runs = |of: std::ops::Range<u32>, bytes: u32| {
        let runs = of.rev().map(|number| format!("{number}[m..p,{bytes}]"));
        runs.collect::<Vec<_>>().join(" | ")
    };
    let due = |runs: &str, tiers: &str| {
        let view = view(&format!("L0: 90[a..c,9] / m: {runs} / q: 91[q..r,9]\nL7: 92[a..z,9000]\n{tiers}"));
        plan(&view).is_some()
    };
    let tiers = "tier 640 free 500\ntier 90000 free 9000";
    // A third of what level 0 may have is its share.
    assert!(due(&runs(0..4, 9), tiers) && !due(&runs(0..4, 8), tiers));
    assert!(due(&runs(0..4, 8), ""));
    assert!(!due(&runs(0..3, 20), tiers));
    assert!(due(&runs(0..8, 1), tiers) && !due(&runs(0..7, 1), tiers));
}
