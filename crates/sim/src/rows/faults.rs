//! Rows 6 and 7: operations that fail, and syncs that do. Each fault strikes one operation of a scenario (or all from
//! it on); after the script the process ends or power is cut, the medium is whole again, and the store must open to
//! an allowed state.

use crate::scenarios::{self, End, Play, Scenario};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SyncFailure};

/// Each scenario's operations are dealt out to so many cases.
const SLICES: u64 = 48;

const EFFECTS: [Effect; 7] = [
    Effect::Fail(Failure::Io),
    Effect::Fail(Failure::NoSpace),
    Effect::Fail(Failure::Quota),
    Effect::Fail(Failure::Again),
    Effect::Short { bytes: 100, failure: Failure::NoSpace },
    Effect::Short { bytes: 520, failure: Failure::Io },
    Effect::Interrupted,
];

pub(super) fn cases() -> u64 {
    scenarios::healthy().count() as u64 * SLICES
}

fn scenario(number: u64) -> Result<&'static Scenario, String> {
    scenarios::healthy().nth(number as usize).ok_or_else(|| "there is no such case".to_owned())
}

pub(super) fn case(number: u64) -> Result<u64, String> {
    let (scenario, slice) = (scenario(number / SLICES)?, number % SLICES);
    let mut played = 0;
    for nth in (slice + 1..).step_by(SLICES as usize) {
        let mut struck = false;
        for effect in EFFECTS {
            for (fault, end) in [
                (Fault::new(effect).nth(nth), End::Cut),
                (Fault::new(effect).nth(nth), End::Kill),
                (Fault::new(effect).since(nth), End::Cut),
                (Fault::new(effect).since(nth), End::Kill),
            ] {
                let told = |what| format!("{}, {fault:?}, {end:?}: {what}", scenario.name);
                struck |= scenarios::play_and_check(scenario, Play { faults: vec![fault.clone()], end })
                    .map_err(told)?;
                played += 1;
            }
        }
        if !struck {
            return Ok(played);
        }
    }
    Ok(played)
}

/// Files whose syncs fail, of each scenario; the empty name is the directories.
const FILES: [&str; 6] = ["log", "manifest", "data", "meta", "CUESTA", ""];

/// How a sync fails, and how the script ends. A sync that fails for good can be met only by another medium, that is,
/// after a cut. A directory whose failed sync leaves its names in memory, clean, is not among these: file systems
/// with a journal stop at such a failure.
fn ways(directory: bool) -> impl Iterator<Item = (SyncFailure, End)> {
    let all = [
        (SyncFailure::Sticky, End::Cut),
        (SyncFailure::CleanOld, End::Cut),
        (SyncFailure::CleanOld, End::Kill),
        (SyncFailure::CleanOld, End::KillThenCut),
        (SyncFailure::CleanNew, End::Cut),
        (SyncFailure::CleanNew, End::Kill),
        (SyncFailure::CleanNew, End::KillThenCut),
    ];
    all.into_iter().filter(move |(mode, _)| !directory || *mode != SyncFailure::CleanNew)
}

pub(super) fn sync_cases() -> u64 {
    scenarios::healthy().count() as u64 * FILES.len() as u64
}

pub(super) fn sync_case(number: u64) -> Result<u64, String> {
    let files = FILES.len() as u64;
    let (scenario, file) = (scenario(number / files)?, FILES[(number % files) as usize]);
    let kind = if file.is_empty() { OpKind::SyncDirectory } else { OpKind::Sync };
    let mut played = 0;
    for nth in 1.. {
        let mut struck = false;
        for (mode, end) in ways(file.is_empty()) {
            let fault = Fault::new(Effect::SyncFails(mode)).on(kind).named(file).nth(nth);
            let told = |what| format!("{}, {fault:?}, {end:?}: {what}", scenario.name);
            struck |= scenarios::play_and_check(scenario, Play { faults: vec![fault.clone()], end })
                .map_err(told)?;
            played += 1;
        }
        if !struck {
            return Ok(played);
        }
    }
    Ok(played)
}
