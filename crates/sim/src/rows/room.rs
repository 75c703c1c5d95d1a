//! Row 10: media that fill up. Writers get a typed error, reads go on, nothing acknowledged is lost, and writes are
//! back within five seconds of room, without a reopen.

use crate::fixture::{contents, options, world};
use crate::model::{Contents, Model};
use cuesta::{Batch, Db, Durability, ErrorKind, Options};
use cuesta_device::sim::{SimConfig, SimDisk, Survival};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::time::Duration;

/// Times the store fills up in one case.
const CYCLES: u64 = 2;
/// How long writes may take to come back.
const BACK_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0x400d);
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let options = Options { seed: seed | 1, ..options(seed, Durability::Os) };
    let mut now: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk)).map_err(|error| error.to_string())?;
        let mut at = 0;
        for cycle in 0..CYCLES {
            let tiers = [[true, true], [true, false]][rng.below(2) as usize];
            for (tier, fills) in tiers.into_iter().enumerate() {
                let room = (512 << 10) + rng.below(1 << 20);
                disk.set_capacity(tier, if fills { disk.used_bytes(tier) + room } else { u64::MAX });
            }
            fill(&db, &mut now, &mut at).map_err(|what| format!("cycle {cycle}: {what}"))?;
            let found = contents(&db).map_err(|error| format!("full, reading fails: {error}"))?;
            if found[""] != now {
                return Err(format!("cycle {cycle}: full, the store holds something else"));
            }
            (0..2).for_each(|tier| disk.set_capacity(tier, u64::MAX));
            let begun = sched.now();
            loop {
                match db.put(b"back", b"again") {
                    Ok(_) => break,
                    Err(error) if sched.now() - begun > BACK_WITHIN => {
                        return Err(format!("cycle {cycle}: there is room, but {error}"));
                    }
                    Err(_) => sched.sleep(Duration::from_millis(100)),
                }
            }
            now.insert(b"back".to_vec(), b"again".to_vec());
        }
        db.sync().map_err(|error| format!("sync: {error}"))?;
        disk.cut_now();
        drop(db);
        Ok(())
    })?;
    let mut model = Model::default();
    model.step(|contents| *contents = Contents::from([(String::new(), now)]));
    model.synced();
    let sched = Sched::simulated(seed + 1);
    let disk = disk.after_cut(Survival::Random, &mut rng).on(&sched);
    sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk)).map_err(|error| format!("open: {error}"))?;
        model.rebase(contents(&db).map_err(|error| error.to_string())?)
    })?;
    Ok(CYCLES)
}

/// Writes until there is no room: at least three refusals in a row.
fn fill(db: &Db, now: &mut BTreeMap<Vec<u8>, Vec<u8>>, at: &mut u64) -> Result<(), String> {
    let mut refused = 0;
    while refused < 3 {
        *at += 1;
        if *at > 100_000 {
            return Err("the store never fills".to_owned());
        }
        let (key, value) = (format!("key{:05}", *at % 2000).into_bytes(), vec![*at as u8; 5000]);
        let mut batch = Batch::new();
        batch.put(&key, &value);
        match db.write_with(batch, Durability::Os) {
            Ok(_) => {
                refused = 0;
                now.insert(key, value);
            }
            Err(error) if *error.kind() == ErrorKind::Full => refused += 1,
            Err(error) => return Err(format!("not told that it is full but {error}")),
        }
    }
    Ok(())
}
