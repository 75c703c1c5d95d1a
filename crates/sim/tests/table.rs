//! The table of faults, a five-hundredth of it, by the command that runs it all; and the runs that once found
//! something.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta_sim::{Run, RunConfig, scenarios};
use std::process::{Command, Output};

fn cuesta_sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cuesta-sim")).args(args).output().unwrap()
}

#[test]
fn every_row_holds() {
    let output = cuesta_sim(&["--rows", "all", "--share", "0.2", "--json"]);
    let (told, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{why}");
    let rows: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), cuesta_sim::rows::ALL.len() * cuesta_sim::Kind::ALL.len());
    for row in rows.iter().filter(|row| row.get("skipped").is_none()) {
        assert!(row["runs"].as_u64().unwrap() > 0 && row["met"].as_bool().unwrap(), "{row}");
        assert!(["row", "fault", "profile", "violations", "figure"].iter().all(|key| row.get(key).is_some()));
    }
}

#[test]
fn a_planted_bug_is_found_and_named() {
    let output = cuesta_sim(&["planted", "--bug", "log-sync-dropped"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("log-sync-dropped: row 1 case"), "{told}");
    // And the case that was told fails again by its number alone.
    let case = told.split("row 1 case ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let leveled = ["--profile", "leveled", "--rows", "1"];
    let output = cuesta_sim(&[&leveled[..], &["--seed", case, "--awake", "log-sync-dropped"]].concat());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_not_there_is_wrong_usage() {
    assert_eq!(cuesta_sim(&["--rows", "99"]).status.code(), Some(2));
    assert_eq!(cuesta_sim(&["planted", "--bug", "none"]).status.code(), Some(2));
}

#[test]
fn kept_runs_stay_mended() {
    let runs = include_str!("../kept.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for run in runs {
        let config: RunConfig = run.parse().unwrap();
        Run::new(config).run().unwrap_or_else(|what| panic!("{run}: {what}"));
    }
}

#[test]
fn kept_cases_stay_mended() {
    // Stores that were full for good: reserves that demotions had used up, and objects that had to go down together.
    for seed in ["93", "168", "186"] {
        let case = cuesta_sim(&["--profile", "prismdb", "--rows", "10", "--seed", seed]);
        assert!(case.status.success(), "{}", String::from_utf8_lossy(&case.stdout));
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
        ("tables between tiers", ["Create", "data-"]),
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
