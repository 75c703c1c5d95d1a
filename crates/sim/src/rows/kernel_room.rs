//! Row 10 on real file systems: small ones in memory, as tmpfs and as ext4, with a file beside the store that takes
//! the room and gives it back.

use super::room::{Filled, INDEXES_FIT, delete_most};
use crate::kernel::media::{Mount, image, make_ext4};
use crate::kernel::scratch;
use crate::kernel::script::{Script, reopened};
use cuesta::{Db, Durability, ErrorKind, Options};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of each file system.
const BYTES: u64 = 24 << 20;
/// What names and locks may take.
const ROOM_OF_NAMES: u64 = 64 << 10;
/// Times the store fills up in one case.
const CYCLES: u64 = 2;

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let dir = scratch()?;
    let mount = |name: &str| {
        let at = dir.path().join(name);
        if seed.is_multiple_of(2) {
            return Mount::tmpfs(BYTES, &at);
        }
        let file = dir.path().join(format!("{name}.ext4"));
        image(&file, BYTES, &[])?;
        make_ext4(&file)?;
        Mount::ext4(&file, &at)
    };
    let mounts = [mount("fast")?, mount("capacity")?];
    let [fast, capacity] = [mounts[0].at().join("store"), mounts[1].at().join("store")];
    let mut options = Script::new(seed).options(&fast, &capacity, Durability::Os);
    let in_memory = options.tiers[0].persistent_memory;
    let least = if in_memory { 12 << 20 } else { INDEXES_FIT };
    options.tiers[0].capacity_bytes = options.tiers[0].capacity_bytes.max(least);
    let mut rng = Rng::new(seed ^ 0x400e);
    let sched = Sched::real(seed);
    if in_memory {
        refuses_more_than_there_is(&options, mounts[0].at())?;
    }
    let db = Db::open(&options).map_err(|error| error.to_string())?;
    let mut filled = Filled { db: &db, sched: &sched, now: BTreeMap::new(), at: 0 };
    for cycle in 0..CYCLES {
        let full = if rng.one_in(2) { &mounts[..] } else { &mounts[..1] };
        let room = (512 << 10) + rng.below(1 << 20);
        let little = || full.iter().try_for_each(|mount| leave(mount.at(), room));
        let mut thinned = Rng::new(rng.next_u64());
        let enough = |now: &mut _| {
            full.iter().try_for_each(|mount| free(mount.at()))?;
            // Persistent memory is allocated when the store is made: what has filled up is its own bound.
            if !in_memory {
                return Ok(());
            }
            // That there is room again shows when something is tried.
            sched.sleep(Duration::from_secs(1));
            delete_most(&db, now, &mut thinned)
        };
        filled.cycle(little, enough).map_err(|what| format!("cycle {cycle}: {what}"))?;
    }
    let now = filled.now;
    db.close().map_err(|error| format!("close: {error}"))?;
    match reopened(&options)? == now {
        true => Ok(CYCLES),
        false => Err("after a reopen the store holds something else".to_owned()),
    }
}

/// Persistent memory that a file system has no room for is refused before anything of it is taken.
fn refuses_more_than_there_is(options: &Options, at: &Path) -> Result<(), String> {
    let mut large = options.clone();
    large.tiers[0].capacity_bytes = 4 * BYTES;
    match Db::open(&large) {
        Err(error) if *error.kind() == ErrorKind::Full => {}
        Err(error) => return Err(format!("memory for which there is no room: {error}")),
        Ok(_) => return Err("memory for which there is no room was mapped".to_owned()),
    }
    // What little is there is the directory's and the lock's.
    match used_bytes(at)? {
        0..=ROOM_OF_NAMES => Ok(()),
        taken => Err(format!("{taken} bytes are taken by a store that was refused")),
    }
}

fn used_bytes(at: &Path) -> Result<u64, String> {
    let files = |dir: &Path| -> std::io::Result<u64> {
        fs::read_dir(dir)?.map(|entry| entry?.metadata().map(|file| file.blocks() * 512)).sum()
    };
    files(&at.join("store")).map_err(|error| format!("{}: {error}", at.display()))
}

/// Takes all room of a file system but so many bytes.
fn leave(at: &Path, room: u64) -> Result<(), String> {
    let ballast = at.join("ballast");
    let take = || -> std::io::Result<()> {
        let mut file = File::create(&ballast)?;
        let chunk = vec![1; 64 << 10];
        while file.write_all(&chunk).is_ok() {}
        file.sync_all().or_else(|_| file.set_len(file.metadata()?.len()))?;
        file.set_len(file.metadata()?.len().saturating_sub(room))
    };
    take().map_err(|error| format!("{}: {error}", ballast.display()))
}

/// Gives it back.
fn free(at: &Path) -> Result<(), String> {
    fs::remove_file(at.join("ballast")).map_err(|error| error.to_string())
}
