//! Row 3: a store on two ext4 file systems whose disks are recorded; power is cut at places of the record, the kernel
//! mends its file systems, and the store must hold what it promised.

use crate::kernel::blocks::{Recorder, Recording, Survival};
use crate::kernel::media::{Mount, image, make_ext4};
use crate::kernel::scratch;
use crate::kernel::script::{Script, reopened};
use cuesta::{Db, Durability};
use cuesta_sched::Rng;
use std::path::Path;

/// Bytes of the two disks.
const DISKS: [usize; 2] = [16 << 20, 24 << 20];
const BATCHES: u64 = 120;
/// Cuts of one recording.
const CUTS: u64 = 20;

/// What the store had said when, by the number of events so far.
#[derive(Default)]
struct Said {
    /// When each batch was begun.
    begun: Vec<usize>,
    /// From when on so many batches were durable.
    durable: Vec<(usize, u64)>,
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let dir = scratch()?;
    let script = Script::new(seed);
    let (recording, said) = record(dir.path(), script)?;
    let mut rng = Rng::new(seed ^ 0xb10c);
    for cut in 0..CUTS {
        let at = rng.below(recording.events.len() as u64 + 1) as usize;
        let survival = [Survival::None, Survival::Some, Survival::Some, Survival::All][rng.below(4) as usize];
        let disks = recording.cut(at, survival, &mut rng);
        let told = |what| {
            format!("cut {cut}, behind event {at} of {}, {survival:?}: {what}", recording.events.len())
        };
        // Under names of its own: a file system that could not be unmounted at once lives on for a moment, and `mount`
        // of the same file again would show that one.
        check(&dir.path().join(format!("cut{cut}")), script, &disks, &said, at).map_err(told)?;
    }
    Ok(CUTS)
}

/// Two mounted file systems and the script's store on them.
struct Machine {
    options: cuesta::Options,
    _mounts: [Mount; 2],
}

impl Machine {
    fn start(dir: &Path, script: Script, disks: [&Path; 2]) -> Result<Self, String> {
        let mounts =
            [Mount::ext4(disks[0], &dir.join("fast"))?, Mount::ext4(disks[1], &dir.join("capacity"))?];
        let [fast, capacity] = [mounts[0].at().join("store"), mounts[1].at().join("store")];
        Ok(Self { options: script.options(&fast, &capacity, script.durability()), _mounts: mounts })
    }
}

fn record(dir: &Path, script: Script) -> Result<(Recording, Said), String> {
    let recorder = Recorder::start(&dir.join("disks"), &DISKS)?;
    let disks = [recorder.disk(0), recorder.disk(1)];
    disks.iter().try_for_each(|disk| make_ext4(disk))?;
    recorder.begin();
    let machine = Machine::start(dir, script, [&disks[0], &disks[1]])?;
    let mut said = Said::default();
    operate(&recorder, &machine, script, &mut said)
        .map_err(|error| format!("while it was recorded: {error}"))?;
    drop(machine);
    Ok((recorder.recording(), said))
}

fn operate(recorder: &Recorder, machine: &Machine, script: Script, said: &mut Said) -> cuesta::Result<()> {
    let mut rng = Rng::new(script.seed() ^ 0x3c47);
    let mut db = Db::open(&machine.options)?;
    for i in 0..BATCHES {
        said.begun.push(recorder.position());
        let unlogged = machine.options.durability == Durability::Unlogged;
        let durability =
            if !unlogged && rng.one_in(6) { Durability::Sync } else { machine.options.durability };
        script.write(&db, i, durability)?;
        let mut durable = durability == Durability::Sync;
        match rng.below(40) {
            0..2 => {
                db.flush()?;
                durable = true;
            }
            2..4 => {
                db.sync()?;
                durable |= !unlogged;
            }
            4 => {
                db.close()?;
                db = Db::open(&machine.options)?;
                durable = true;
            }
            _ => {}
        }
        if durable {
            said.durable.push((recorder.position(), i + 1));
        }
    }
    db.close()?;
    said.durable.push((recorder.position(), BATCHES));
    Ok(())
}

fn check(dir: &Path, script: Script, disks: &[Vec<u8>], said: &Said, at: usize) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| error.to_string())?;
    let files = [dir.join("disk0"), dir.join("disk1")];
    for (file, bytes) in files.iter().zip(disks) {
        image(file, bytes.len() as u64, bytes)?;
    }
    let machine = Machine::start(dir, script, [&files[0], &files[1]])?;
    let durable =
        said.durable.iter().rev().find(|(position, _)| *position <= at).map_or(0, |(_, batches)| *batches);
    let begun = said.begun.iter().filter(|position| **position <= at).count() as u64;
    let found = reopened(&machine.options)?;
    script.find(&found, durable, begun)?;
    drop(machine);
    // They take memory, and more cuts follow.
    files.iter().try_for_each(std::fs::remove_file).map_err(|error| error.to_string())
}
