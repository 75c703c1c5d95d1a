//! Scripts about guards with several runs, over each kind of stores that has them; alone, since the kind is one for the
//! process.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta_sim::{Kind, scenarios, set_kind};

#[test]
fn scripts_about_guards_bring_about_what_they_are_for() {
    let mut played = 0;
    for kind in [Kind::Fragmented, Kind::NvLsm, Kind::NvLsmBlocks] {
        set_kind(kind);
        for scenario in scenarios::ALL.iter().filter(|scenario| scenario.name.contains("guard")) {
            // A script that never gets there says so.
            let trace = scenarios::play(scenario, None).unwrap_or_else(|why| panic!("{kind}: {why}")).trace;
            assert!(trace.len() > 100, "{kind}, {}: {} operations", scenario.name, trace.len());
            played += 1;
        }
    }
    assert_eq!(played, 9);
}
