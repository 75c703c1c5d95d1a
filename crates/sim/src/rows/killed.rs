//! Row 5: a process is killed at any moment. It loses nothing that it acknowledged, whatever the durability level,
//! since the kernel lives on; only what was not logged may go, back to the last flush.
//!
//! The parent runs its own program as a child, which writes the batches of a script and says each that it was told is
//! written; the parent kills it, opens the store, looks, and lets another child go on.

use crate::fixture::kind;
use crate::kernel::scratch;
use crate::kernel::script::{Script, reopened};
use cuesta::{Db, Durability};
use cuesta_sched::Rng;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Processes killed in one case.
const KILLS: u64 = 10;
/// The child flushes once in so many batches.
const FLUSH_EVERY: u64 = 40;

/// The levels that cases go through.
fn durability(seed: u64) -> Durability {
    if seed % 4 == 3 { Durability::Unlogged } else { Script::new(seed).durability() }
}

/// What the child does: batches from number `first` on, until it is killed.
///
/// # Errors
/// What the store said.
pub fn child(dir: &Path, seed: u64, first: u64) -> Result<(), String> {
    let script = Script::new(seed);
    let options = script.options(&dir.join("fast"), &dir.join("capacity"), durability(seed));
    let write = || -> cuesta::Result<()> {
        let db = Db::open(&options)?;
        for i in first..first + 1_000_000 {
            script.write(&db, i, options.durability)?;
            say("written", i);
            if i % FLUSH_EVERY == FLUSH_EVERY - 1 {
                db.flush()?;
                say("flushed", i);
            }
        }
        Ok(())
    };
    write().map_err(|error| error.to_string())
}

/// In one call, so that a kill leaves whole lines. Who cannot be told any more is gone.
fn say(word: &str, i: u64) {
    drop(std::io::stdout().write_all(format!("{word} {i}\n").as_bytes()));
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let dir = scratch()?;
    let script = Script::new(seed);
    let options = script.options(&dir.path().join("fast"), &dir.path().join("capacity"), durability(seed));
    let mut rng = Rng::new(seed ^ 0x5161);
    let mut next = 0;
    for kill in 0..KILLS {
        let told = |what: String| format!("kill {kill} under {}: {what}", options.durability);
        let said = kill_one(dir.path(), seed, next, &mut rng).map_err(told)?;
        let durable = if options.durability == Durability::Unlogged { said.flushed } else { said.written };
        // What was there when the child began was shown to somebody, and must stay.
        let durable = durable.unwrap_or(next);
        let begun = said.written.unwrap_or(next) + 1;
        let found = reopened(&options).map_err(told)?;
        next = script.find(&found, durable, begun).map_err(told)?;
        let report = cuesta::verify(&options, &mut |_| {}).map_err(|error| told(error.to_string()))?;
        if let Some(problem) = report.problems.first() {
            return Err(told(format!("verification found: {}", problem.message)));
        }
    }
    Ok(KILLS)
}

/// How many batches, counted from the script's first, a child said were written and flushed.
#[derive(Default)]
struct Said {
    written: Option<u64>,
    flushed: Option<u64>,
}

#[allow(clippy::disallowed_methods, reason = "a real process dies in real time")]
fn kill_one(dir: &Path, seed: u64, first: u64, rng: &mut Rng) -> Result<Said, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args([
            "child".as_ref(),
            kind().name().as_ref(),
            dir.as_os_str(),
            seed.to_string().as_ref(),
            first.to_string().as_ref(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("a child could not be started: {error}"))?;
    // Every fourth dies in the first milliseconds, so while it opens the store.
    let lines_before = if rng.one_in(4) { 0 } else { rng.below(150) };
    let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
    let mut said = Said::default();
    let mut hear = |line: std::io::Result<String>| {
        let line = line.unwrap_or_default();
        match line.split_once(' ') {
            Some(("written", i)) => said.written = i.parse::<u64>().ok().map(|i| i + 1),
            Some(("flushed", i)) => said.flushed = i.parse::<u64>().ok().map(|i| i + 1),
            _ => {}
        }
    };
    lines.by_ref().take(lines_before as usize).for_each(&mut hear);
    let wait = if lines_before == 0 { 8000 } else { 300 };
    std::thread::sleep(Duration::from_micros(rng.below(wait)));
    child.kill().map_err(|error| format!("kill: {error}"))?;
    lines.for_each(&mut hear);
    let status = child.wait().map_err(|error| format!("wait: {error}"))?;
    if status.signal().is_none() {
        let mut why = String::new();
        drop(child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut why)));
        return Err(format!("the child ended by itself ({status}): {why}"));
    }
    Ok(said)
}
