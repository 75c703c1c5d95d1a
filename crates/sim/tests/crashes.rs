//! Random runs and exhaustive cuts, at the figures that continuous integration has time for. `CUESTA_SEEDS=n`
//! runs more.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test they are the assertion and the report"
)]

use cuesta_sim::{Run, RunConfig, scenarios};
use std::collections::BTreeSet;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn config(seed: u64, crash_one_in: u64) -> RunConfig {
    RunConfig { seed, operations: 300, crash_one_in, skip: BTreeSet::new() }
}

fn run_seeds(seeds: u64, crash_one_in: u64) {
    for seed in 0..number("CUESTA_SEEDS").unwrap_or(seeds) {
        if let Err(what) = Run::new(config(seed, crash_one_in)).run() {
            panic!("{}: {what}", config(seed, crash_one_in));
        }
    }
}

#[test]
fn a_store_answers_like_a_map_through_reopens() {
    run_seeds(50, 0);
}

#[test]
fn a_store_survives_random_cuts() {
    run_seeds(150, 60);
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        let hashes = [0, 1].map(|_| Run::new(config(seed, 60)).run().unwrap());
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}

#[test]
fn scenarios_do_what_their_names_say() {
    let played = |name: &str| {
        let scenario = scenarios::ALL.iter().find(|scenario| scenario.name == name).unwrap();
        scenarios::play(scenario, None).unwrap()
    };
    let words = [
        ("manifest roll-over", ["Remove", "manifest-"]),
        ("log rotation and recycling", ["Rename", "log-"]),
        ("flush", ["Create", "data-"]),
        ("compaction", ["Remove", "data-"]),
        ("clean close and open", ["SetLen", "log-"]),
    ];
    for (name, words) in words {
        let trace = played(name).trace;
        let found = trace.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{name} never asks for {words:?}: {trace:#?}");
    }
    for scenario in scenarios::ALL.iter().filter(|scenario| scenario.name.starts_with("failed sync")) {
        assert!(played(scenario.name).faults_struck > 0, "{}", scenario.name);
    }
}

#[test]
fn every_cut_of_every_scenario_leaves_an_allowed_state() {
    let (mut points, mut images) = (0, 0);
    for scenario in scenarios::ALL {
        let covered = scenarios::cut_everywhere(scenario, 4).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {} points, {} images", scenario.name, covered.points, covered.images);
        points += covered.points;
        images += covered.images;
    }
    println!("{points} points, {images} images");
    assert!(points > 300 && images > 3000, "{points} points, {images} images");
}
