//! A process that is killed at any moment loses nothing that it acknowledged, whatever the durability level (but
//! `Unlogged`, which may lose what was not flushed): the kernel lives on.
//!
//! The parent runs this test binary again as its child, which writes and prints each key it was told is written; the
//! parent kills it, opens the store, and looks.

use crate::basics::small;
use cuesta::{Db, Durability, Options};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const DIR: &str = "CUESTA_TEST_KILL_DIR";
const DURABILITY: &str = "CUESTA_TEST_KILL_DURABILITY";
const FIRST: &str = "CUESTA_TEST_KILL_FIRST";

/// What the child does; nothing, where no parent asked.
#[test]
fn child_writes_until_it_is_killed() {
    let (Ok(dir), Ok(durability)) = (std::env::var(DIR), std::env::var(DURABILITY)) else { return };
    let options = Options { durability: durability.parse().unwrap(), ..small(dir.as_ref()) };
    let db = Db::open(&options).unwrap();
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut out = std::io::stderr();
    for i in first..first + 1_000_000 {
        db.put(i.to_be_bytes(), vec![i as u8; 500]).unwrap();
        // In one call, so that a kill leaves whole lines.
        out.write_all(format!("acknowledged {i}\n").as_bytes()).unwrap();
    }
}

fn kill_loop(durability: Durability, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability, ..small(dir.path()) };
    let mut next = 0u64;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child_writes_until_it_is_killed", "--nocapture"])
            .env(DIR, dir.path())
            .env(DURABILITY, durability.to_string())
            .env(FIRST, next.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut acknowledged = None;
        let mut left = 20 + round * 97 % 800;
        for line in lines {
            let line = line.unwrap();
            if let Some(i) = line.strip_prefix("acknowledged ") {
                acknowledged = Some(i.parse::<u64>().unwrap());
            }
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let db = Db::open(&options).unwrap();
        let last = acknowledged.unwrap_or_else(|| panic!("round {round}: the child wrote nothing"));
        let lost = (0..=last).filter(|i| db.get(i.to_be_bytes()).unwrap().is_none()).count();
        if durability != Durability::Unlogged {
            assert_eq!(
                lost, 0,
                "round {round} of {durability}: {lost} of {last} acknowledged writes are gone"
            );
        }
        // Whatever is there must be right, and a prefix in each round but for what was not logged.
        for pair in db.scan(..).unwrap() {
            let (key, value) = pair.unwrap();
            let i = u64::from_be_bytes(key.try_into().unwrap());
            assert_eq!(value, vec![i as u8; 500]);
        }
        next = last + 1;
        if durability == Durability::Unlogged {
            (0..next).for_each(|i| assert!(db.put(i.to_be_bytes(), vec![i as u8; 500]).unwrap() > 0));
        }
        db.close().unwrap();
        assert_eq!(cuesta::verify(&options, &mut |_| {}).unwrap().problems, []);
    }
}

#[test]
fn a_kill_loses_nothing_under_sync() {
    kill_loop(Durability::Sync, 4);
}

#[test]
fn a_kill_loses_nothing_under_interval() {
    kill_loop(Durability::Interval(Duration::from_millis(5)), 8);
}

#[test]
fn a_kill_loses_nothing_under_os() {
    kill_loop(Durability::Os, 8);
}

#[test]
fn a_kill_leaves_a_sound_store_under_unlogged() {
    kill_loop(Durability::Unlogged, 4);
}
