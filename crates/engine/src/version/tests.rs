//! Guards: cut and joined by edits, and what is refused.

use super::edit::AddedTable;
use super::*;
use crate::cache::Cache;
use crate::format::StoreId;
use crate::store::{SlabMeta, SlotRun};
use crate::tier::Tiers;
use cuesta_device::{Access, Meter};
use cuesta_sched::Sched;
use expect_test::expect;

fn tables() -> Arc<Tables> {
    let tiers = Tiers { all: Vec::new(), meter: Meter::new(1), table_access: Access::Buffered };
    Tables::new(
        &Sched::simulated(1),
        StoreId(1),
        Arc::new(tiers),
        Arc::new(Cache::new(1 << 20, 1)),
        OpenMost { tables: 9, memory_share: 8 },
    )
}

/// Words like `+3@9[a..c]` (table 3 into a run of age 9), `+3@9[a..c]^2` (that lies on table 2), `-3`, `|m` (a guard
/// from there on), `!m` (none any more), all at level 2.
fn edit(text: &str) -> Edit {
    let mut edit = Edit::default();
    for word in text.split_whitespace() {
        let (what, rest) = word.split_at(1);
        match what {
            "-" => edit.removed.push(rest.parse().unwrap()),
            "|" => edit.guards_added.push((2, rest.into())),
            "!" => edit.guards_removed.push((2, rest.into())),
            _ => {
                let (number, rest) = rest.split_once('@').unwrap();
                let (rest, below) = rest.split_once(']').unwrap();
                let below = below.strip_prefix('^').map(|below| below.parse().unwrap());
                let (age, keys) = rest.split_once('[').unwrap();
                let (smallest, largest) = keys.split_once("..").unwrap();
                let meta = TableMeta {
                    number: number.parse().unwrap(),
                    smallest: smallest.into(),
                    largest: largest.into(),
                    memory: below.map(|below| InMemory { below, ..InMemory::default() }),
                    ..TableMeta::default()
                };
                edit.added.push(AddedTable { level: 2, age: age.parse().unwrap(), meta });
            }
        }
    }
    edit
}

/// Guards with their runs, as `m: 9[3 4] 7[2]`.
fn shown(version: &Version) -> String {
    let run = |run: &Run| {
        let numbers: Vec<String> = run.tables.iter().map(|table| table.meta.number.to_string()).collect();
        format!(" {}[{}]", run.age, numbers.join(" "))
    };
    let guard = |guard: &Arc<Guard>| {
        format!("{}:{}", guard.start.escape_ascii(), guard.runs.iter().map(run).collect::<String>())
    };
    let guards: Vec<String> = version.levels[2].guards.iter().map(guard).collect();
    guards.join(" | ")
}

fn made(edits: &[&str]) -> Result<Arc<Version>> {
    let tables = tables();
    let mut catalog = Catalog::default();
    edits.iter().try_for_each(|text| catalog.apply(&edit(text), &tables).map(drop))?;
    Ok(catalog.version)
}

#[test]
fn guards_are_cut_between_tables_and_joined_by_age() {
    let begun = "+1@5[a..c] +2@5[m..o] +3@9[b..d] +4@9[n..p]";
    let cut = made(&[begun, "|m"]).unwrap();
    expect![": 9[3] 5[1] | m: 9[4] 5[2]"].assert_eq(&shown(&cut));
    assert_eq!(cut.levels[2].guard_of(b"lz").unwrap().start, b"");
    assert_eq!(cut.levels[2].guard_of(b"m").unwrap().start, b"m");
    // A run of one guard alone is one when they are joined, too, and has its place by its age.
    let joined = made(&[begun, "|m", "-4 +5@7[n..p]", "!m"]).unwrap();
    expect![": 9[3] 7[5] 5[1 2]"].assert_eq(&shown(&joined));
    // By one edit: what crossed is gone when the guard comes, and what is added finds it there.
    let rewritten = made(&["+1@0[a..z]", "-1 |g |q +2@0[a..f] +3@0[g..h] +4@0[q..z]"]).unwrap();
    expect![": 0[2] | g: 0[3] | q: 0[4]"].assert_eq(&shown(&rewritten));
    let moved = made(&["|g +1@0[g..h]", "!g |f"]).unwrap();
    expect![": | f: 0[1]"].assert_eq(&shown(&moved));
}

#[test]
fn a_table_crosses_no_guard() {
    let refused = |edits: &[&str]| made(edits).map(|version| shown(&version)).unwrap_err().to_string();
    assert!(refused(&["+1@0[a..m]", "|m"]).contains("table 1 crosses it"));
    assert!(refused(&["|m", "+1@0[a..m]"]).contains("it crosses a guard"));
    assert!(refused(&["|m", "|m"]).contains("it is there already"));
    assert!(refused(&["|m", "!n"]).contains("there is none to remove"));
    assert!(refused(&["!"]).contains("there is none to remove"));
    assert!(refused(&["|"]).contains("it is there already"));
    let nowhere = Edit { guards_added: vec![(LEVELS_MAX as u32, b"m".to_vec())], ..Edit::default() };
    assert!(Catalog::default().apply(&nowhere, &tables()).is_err());
}

#[test]
fn guards_come_back_with_the_first_edit_of_a_new_manifest() {
    let tables = tables();
    let mut catalog = Catalog::default();
    let edits = ["|g |q +2@4[a..f] +3@0[g..h]", "+4@8[q..z] +5@3[q..r]"];
    edits.iter().for_each(|text| drop(catalog.apply(&edit(text), &tables).unwrap()));
    let mut again = Catalog::default();
    drop(again.apply(&catalog.snapshot(), &tables).unwrap());
    assert_eq!(shown(&again.version), shown(&catalog.version));
    expect![": 4[2] | g: 0[3] | q: 8[4] 3[5]"].assert_eq(&shown(&again.version));
    // And an edit of guards alone counts.
    drop(again.apply(&edit("!g"), &tables).unwrap());
    expect![": 4[2] 0[3] | q: 8[4] 3[5]"].assert_eq(&shown(&again.version));
}

/// Words like `+9` (slab 9, of eight slots), `t9:3-5` (take), `f`, `a`, `w` and `u` (free, announce, withdraw, waste).
fn edit_of_slots(text: &str) -> Edit {
    let mut edit = Edit::default();
    for word in text.split_whitespace() {
        let (what, rest) = word.split_at(1);
        if what == "+" {
            edit.slabs_added.push(SlabMeta { number: rest.parse().unwrap(), slot_bytes: 100, slots: 8 });
            continue;
        }
        let (slab, slots) = rest.split_once(':').unwrap();
        let (from, to) = slots.split_once('-').unwrap_or((slots, slots));
        let [slab, from, to]: [u64; 3] = [slab, from, to].map(|number| number.parse().unwrap());
        let run = SlotRun { slab, from: from as u32, len: (to - from + 1) as u32 };
        match what {
            "t" => edit.taken.push(run),
            "f" => edit.freed.push(run),
            "a" => edit.announced.push(run),
            "u" => edit.wasted.push(run),
            _ => edit.withdrawn.push(run),
        }
    }
    edit
}

#[test]
fn a_slots_next_use_begins_when_it_is_taken_or_announced() {
    let tables = tables();
    let mut catalog = Catalog::default();
    let mut counts = |text: &str| {
        drop(catalog.apply(&edit_of_slots(text), &tables).unwrap());
        // The first edit of a new manifest says the same.
        let mut again = Catalog::default();
        drop(again.apply(&catalog.snapshot(), &tables).unwrap());
        let counts = |catalog: &Catalog| catalog.slabs[&9].generations.counts();
        assert_eq!(counts(&again), counts(&catalog), "{text}");
        counts(&catalog)
    };
    assert_eq!(counts("+9"), [0; 8]);
    assert_eq!(counts("t9:0-2"), [1, 1, 1, 0, 0, 0, 0, 0]);
    // Freed and taken again by one edit.
    assert_eq!(counts("f9:0-1 t9:0"), [2, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(counts("a9:3-5"), [2, 1, 1, 1, 1, 1, 0, 0]);
    // What was announced is taken in the same use, or comes to nothing.
    assert_eq!(counts("w9:3-5 t9:3 t9:7"), [2, 1, 1, 1, 1, 1, 0, 1]);
    assert_eq!(counts("t9:4 a9:1"), [2, 2, 1, 1, 2, 1, 0, 1]);
    assert_eq!(counts("w9:1 a9:1"), [2, 3, 1, 1, 2, 1, 0, 1]);
    // What was written and is of no use: that is over. What was announced had begun.
    assert_eq!(counts("t9:6 u9:5"), [2, 3, 1, 1, 2, 2, 1, 1]);
    assert_eq!(counts("w9:1 u9:1"), [2, 3, 1, 1, 2, 2, 1, 1]);
    let refused = |text| catalog.apply(&edit_of_slots(text), &tables).is_err();
    assert!(["u9:6", "u9:8", "u7:0", "t9:5 u9:5", "a9:1 u9:1"].into_iter().all(refused));
    // After a crash: what is neither live nor announced.
    drop(catalog.apply(&edit_of_slots("f9:3 a9:1"), &tables).unwrap());
    catalog.begin_uses_of_free_slots();
    assert_eq!(catalog.slabs[&9].generations.counts(), [2, 4, 1, 2, 2, 3, 1, 1]);
}

#[test]
fn a_slab_that_is_made_shares_its_generations_with_the_catalog() {
    let tables = tables();
    let mut catalog = Catalog::default();
    let mut meta = SlabMeta { number: 0, slot_bytes: 100, slots: 8 };
    let generations = catalog.begin_slab(&mut meta);
    let named = Edit { slabs_added: vec![meta], ..Edit::default() };
    drop(catalog.apply(&Edit::default(), &tables).unwrap());
    drop(catalog.apply(&named, &tables).unwrap());
    let run = SlotRun { slab: meta.number, from: 1, len: 1 };
    drop(catalog.apply(&Edit { taken: vec![run], ..Edit::default() }, &tables).unwrap());
    assert_eq!(generations.counts(), [0, 1, 0, 0, 0, 0, 0, 0]);
}

/// The tables of a layer, which is walked over both ways.
fn walked(layer: &Layer) -> Vec<u64> {
    let number = |spot: Spot| layer.table(spot).unwrap().meta.number;
    let forward: Vec<Spot> = std::iter::successors(layer.first(), |spot| layer.after(*spot)).collect();
    let mut back: Vec<Spot> = std::iter::successors(layer.last(), |spot| layer.before(*spot)).collect();
    back.reverse();
    assert_eq!(forward, back);
    forward.into_iter().map(number).collect()
}

#[test]
fn layers_are_the_runs_of_all_guards_by_depth() {
    let tables = ["+1@0[a..c] +2@0[d..e] +3@1[b..d] |m +4@0[m..n] |q |t +5@0[t..u] +6@1[v..w] +7@2[t..z]"];
    let version = Arc::new(made(&tables).unwrap());
    let layers: Vec<Layer> = version.layers().map(|(layer, _)| layer).collect();
    assert_eq!(layers.iter().map(walked).collect::<Vec<_>>(), [vec![3, 4, 7], vec![1, 2, 6], vec![5]]);
    let number = |layer: &Layer, spot: Option<Spot>| spot.map(|spot| layer.table(spot).unwrap().meta.number);
    let each = |find: &dyn Fn(&Layer) -> Option<Spot>| -> Vec<Option<u64>> {
        layers.iter().map(|layer| number(layer, find(layer))).collect()
    };
    let reach = |key: &str| each(&|layer| layer.first_to_reach(key.as_bytes()));
    let begin = |key: &str| each(&|layer| layer.last_to_begin(key.as_bytes()));
    assert_eq!((reach(""), begin("")), (vec![Some(3), Some(1), Some(5)], vec![None; 3]));
    assert_eq!((reach("d"), begin("d")), (vec![Some(3), Some(2), Some(5)], vec![Some(3), Some(2), None]));
    // Behind the last of its guard, and in guards that have nothing.
    assert_eq!((reach("f"), begin("r")), (vec![Some(4), Some(6), Some(5)], vec![Some(4), Some(2), None]));
    assert_eq!((reach("v"), begin("zz")), (vec![Some(7), Some(6), None], vec![Some(7), Some(6), Some(5)]));
    assert_eq!(reach("zz"), [None; 3]);
    let among = |from: &str, to: &str| -> Vec<Vec<u64>> {
        let layers = version.levels[2].layers_among(from.as_bytes(), to.as_bytes());
        layers.map(|tables| tables.iter().map(|table| table.meta.number).collect()).collect()
    };
    assert_eq!(among("c", "p"), [vec![3, 4], vec![1, 2]]);
    assert_eq!(among("e", "e"), [vec![], vec![2]]);
    assert_eq!(among("r", "v"), [vec![7], vec![6], vec![5]]);
}

#[test]
fn what_lies_on_another_goes_with_it_and_is_read_through_the_topmost() {
    let stack = "|m +1@0[a..c] +2@1[b..f]^1 +3@2[d..e]^2 +9@0[m..z]";
    let version = made(&[stack]).unwrap();
    expect![": 2[3] 1[2] 0[1] | m: 0[9]"].assert_eq(&shown(&version));
    let guard = &version.levels[2].guards[0];
    let tops: Vec<u64> = guard.tops().flat_map(|run| &run.tables).map(|table| table.meta.number).collect();
    assert_eq!(tops, [3]);
    let top = &guard.runs[0].tables[0];
    assert_eq!((top.smallest(), top.largest()), (&b"a"[..], &b"f"[..]));
    assert_eq!(top.tree().map(|table| table.meta.number).collect::<Vec<_>>(), [3, 2, 1]);
    assert!(guard.runs[0].table_of(b"f").is_some(), "though its own keys end before");
    let version = Arc::new(version);
    let layers: Vec<_> = version.layers().map(|(layer, _)| walked(&layer)).collect();
    assert_eq!(layers, [[3, 9]]);
    // The order in which an edit names them is nothing.
    let other_way = made(&["+3@2[d..e]^2 +2@1[b..f]^1 +1@0[a..c]"]).unwrap();
    expect![": 2[3] 1[2] 0[1]"].assert_eq(&shown(&other_way));
    // All of them go at once, or the topmost.
    for fits in ["-1 -2 -3 +4@0[a..f]", "-3", "-3 -2", "+4@3[c..d]^3"] {
        made(&[stack, fits]).unwrap();
    }
    for refused in [
        // What something lies on; something between; beside, or above it but in another guard, or on another.
        "-1",
        "-2",
        "-1 -2 +4@0[a..f]",
        "+4@1[x..z]^1",
        "+4@3[x..z]^3",
        "+4@3[c..d]^2",
        "+4@3[c..d]^7",
        "+4@0[d..e]",
        "!m",
    ] {
        assert!(made(&[stack, refused]).is_err(), "{refused}");
    }
}
