//! Scripts over a store of objects: they do there what they are for.
//!
//! A test binary of its own: the kind of stores is the process's.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Cause, Stats};
use cuesta_sim::{Kind, scenarios, set_kind};

/// What a store said before the part of a script that is cut, and after it.
fn played(name: &str) -> [Stats; 2] {
    let scenario = scenarios::ALL.iter().find(|scenario| scenario.name == name).unwrap();
    scenarios::play(scenario, None).unwrap().stats.map(Option::unwrap)
}

#[test]
fn scripts_fill_slots_and_free_them_and_have_objects_go_down_and_come_up() {
    set_kind(Kind::PrismDb);
    let written = |[before, after]: &[Stats; 2], tier, cause| {
        let bytes = |stats: &Stats| stats.io.get(tier, cause).write_bytes;
        bytes(after) - bytes(before)
    };
    let stats = played("tables between tiers");
    assert!(written(&stats, 0, Cause::Flush) > 0, "{}", stats[1]);
    assert!(written(&stats, 1, Cause::Demotion) > 0, "{}", stats[1]);
    let stats = played("what is read comes up");
    assert!(written(&stats, 0, Cause::Promotion) > 0, "{}", stats[1]);
    assert!(stats[1].objects.unwrap().copies > 0, "{}", stats[1]);
    // Of twenty-nine objects of 900 bytes in the end, four to a slab, twenty have the slots that the first had.
    let [before, after] = played("objects become smaller and larger, and others take their places")
        .map(|stats| stats.objects.unwrap());
    assert_eq!((before.objects, before.slabs, after.objects), (20, 5, 29));
    assert!(after.slabs < 12, "{after:?}");
    // A slab for each of the large ones.
    let [_, after] = played("values larger than a memtable").map(|stats| stats.objects.unwrap());
    assert!(after.slabs >= 4 && after.slab_bytes > 4 * 30_000, "{after:?}");
}
