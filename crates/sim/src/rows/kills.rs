//! Row 21: a store that is opened and killed over and over does not grow and keeps no file that nothing names.

use crate::fixture::{contents, options, world};
use cuesta::{Db, Durability};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};

/// Opens in one case.
const OPENS: u64 = 1000;
/// Files of a store of this size, with room for a merge that was under way.
const FILES_MAX: usize = 24;

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0x411);
    let options = options(seed, Durability::Os);
    let mut disk = SimDisk::new(&Sched::simulated(seed), 2, SimConfig::default());
    let mut settled = None;
    for open in 0..OPENS {
        let sched = Sched::simulated(seed + open);
        let here = disk.on(&sched);
        // Most lives write nothing; the rest write the same few keys again.
        let writes = if rng.one_in(4) { rng.below(20) } else { 0 };
        disk = sched.run(|| {
            let db = Db::open_in(&options, world(&sched, &here, &options))
                .map_err(|error| format!("open {open}: {error}"))?;
            for i in 0..writes {
                db.put(format!("key{i}"), vec![open as u8; 500]).map_err(|error| error.to_string())?;
            }
            let found = contents(&db).map_err(|error| error.to_string())?;
            let left = here.kill();
            drop(db);
            if found[""].len() > 20 {
                return Err("more keys than were written".to_owned());
            }
            Ok(left)
        })?;
        let files = (0..2).map(|tier| disk.files(tier).len()).sum::<usize>();
        let bytes = (0..2).map(|tier| disk.used_bytes(tier)).sum::<u64>();
        if files > FILES_MAX {
            return Err(format!("{files} files after {open} opens"));
        }
        if open == OPENS / 2 {
            settled = Some(bytes);
        }
        if settled.is_some_and(|settled| bytes > 2 * settled + (512 << 10)) {
            return Err(format!("{bytes} bytes after {open} opens, {settled:?} in the middle"));
        }
    }
    Ok(OPENS)
}
