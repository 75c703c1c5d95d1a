//! Row 10: media that fill up, and the store's own bounds that are reached. Writers get a typed error, reads go on,
//! nothing acknowledged is lost, and writes are back within five seconds of room, without a reopen.

use crate::fixture::{Kind, contents, kind, options, world};
use crate::model::{Contents, Model};
use cuesta::{Batch, Compression, Db, Durability, ErrorKind, Options};
use cuesta_device::sim::{SimConfig, SimDisk, Survival};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// A fast tier of so many bytes has room for the indexes of as much data as is written here, a page or two for each of
/// the small tables.
pub(super) const INDEXES_FIT: u64 = 6 * MIB;
/// The cut comes within so many operations.
const CUT_WITHIN_OPS: u64 = 1000;
/// Times the store fills up in one case.
const CYCLES: u64 = 2;
/// How long writes may take to come back.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// A store whose media can be filled, and given room again.
pub(super) struct Filled<'a> {
    pub(super) db: &'a Db,
    pub(super) sched: &'a Sched,
    /// What it holds.
    pub(super) now: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Puts tried so far.
    pub(super) at: u64,
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    // Persistent memory is allocated when the store is made: what fills up later is its own bound.
    let by_budget_alone = kind() == Kind::NvLsm;
    if seed.is_multiple_of(3) || by_budget_alone { by_budget(seed) } else { by_medium(seed) }
}

/// The store's own bound is reached, and deletes make the room. At last the power is cut while merges, which have to go
/// in steps, work off the deletes.
fn by_budget(seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0x400f);
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let mut options = Options { seed: seed | 1, ..options(seed, Durability::Os) };
    options.tiers[0].capacity_bytes = 3 * MIB;
    if let Some(last) = options.tiers.last_mut() {
        last.capacity_bytes = 10 * MIB + rng.below(6 * MIB);
    }
    for tier in &mut options.tiers {
        tier.compression = Compression::None;
    }
    let now = sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).map_err(|error| error.to_string())?;
        let mut filled = Filled { db: &db, sched: &sched, now: BTreeMap::new(), at: 0 };
        let delete = |now: &mut _, rng: &mut Rng| delete_most(&db, now, rng);
        for cycle in 0..CYCLES {
            let made = filled.cycle(|| Ok(()), |now| delete(now, &mut rng));
            made.map_err(|what| format!("by budget, cycle {cycle}: {what}"))?;
            for (tier, stats) in db.stats().tiers.iter().enumerate() {
                // Files count that have no name any more and are open still.
                let held = disk.used_bytes(tier);
                if held > stats.capacity_bytes {
                    return Err(format!("tier {tier} holds {held} of {} bytes", stats.capacity_bytes));
                }
            }
        }
        filled.fill()?;
        delete(&mut filled.now, &mut rng)?;
        let now = filled.now;
        db.sync().map_err(|error| format!("sync: {error}"))?;
        disk.cut_at(disk.ops() + 1 + rng.below(CUT_WITHIN_OPS));
        // It ends, or the cut ends it.
        drop(db.flush().and_then(|()| db.wait_for_background()));
        disk.cut_now();
        drop(db);
        Ok::<_, String>(now)
    })?;
    holds_after_cut(&disk, &options, now, &mut rng).map(|()| CYCLES)
}

/// Deletes three keys of four.
pub(super) fn delete_most(
    db: &Db,
    now: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    rng: &mut Rng,
) -> Result<(), String> {
    let gone: Vec<_> = now.keys().filter(|_| rng.below(4) > 0).cloned().collect();
    gone.iter().try_for_each(|key| {
        let deleted =
            db.delete(key).map_err(|error| format!("full, a delete fails: {error}\n{}", db.stats()));
        deleted.map(|_| drop(now.remove(key)))
    })
}

/// After the cut there is what was synced.
fn holds_after_cut(
    disk: &SimDisk,
    options: &Options,
    now: BTreeMap<Vec<u8>, Vec<u8>>,
    rng: &mut Rng,
) -> Result<(), String> {
    let mut model = Model::default();
    model.step(|contents| *contents = Contents::from([(String::new(), now)]));
    model.synced();
    let sched = Sched::simulated(options.seed + 1);
    let disk = disk.after_cut(Survival::Random, rng).on(&sched);
    sched.run(|| {
        let db =
            Db::open_in(options, world(&sched, &disk, options)).map_err(|error| format!("open: {error}"))?;
        model.rebase(contents(&db).map_err(|error| error.to_string())?)
    })
}

/// The media fill up, and are given room.
fn by_medium(seed: u64) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0x400d);
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let mut options = Options { seed: seed | 1, ..options(seed, Durability::Os) };
    options.tiers[0].capacity_bytes = options.tiers[0].capacity_bytes.max(INDEXES_FIT);
    let now = sched.run(|| {
        let db = Db::open_in(&options, world(&sched, &disk, &options)).map_err(|error| error.to_string())?;
        let mut filled = Filled { db: &db, sched: &sched, now: BTreeMap::new(), at: 0 };
        for cycle in 0..CYCLES {
            let tiers = [[true, true], [true, false]][rng.below(2) as usize];
            let little = || {
                for (tier, fills) in tiers.into_iter().enumerate() {
                    let room = (512 << 10) + rng.below(1 << 20);
                    disk.set_capacity(tier, if fills { disk.used_bytes(tier) + room } else { u64::MAX });
                }
                Ok(())
            };
            let enough = |_: &mut _| {
                (0..2).for_each(|tier| disk.set_capacity(tier, u64::MAX));
                Ok(())
            };
            filled.cycle(little, enough).map_err(|what| format!("cycle {cycle}: {what}"))?;
        }
        let now = filled.now;
        db.sync().map_err(|error| format!("sync: {error}"))?;
        disk.cut_now();
        drop(db);
        Ok::<_, String>(now)
    })?;
    holds_after_cut(&disk, &options, now, &mut rng).map(|()| CYCLES)
}

impl Filled<'_> {
    /// Leaves `little` room, fills it, looks whether everything can be read, makes `enough`, and waits for writes to
    /// be back.
    pub(super) fn cycle(
        &mut self,
        little: impl FnOnce() -> Result<(), String>,
        enough: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String>,
    ) -> Result<(), String> {
        little()?;
        self.fill()?;
        let found = contents(self.db).map_err(|error| format!("full, reading fails: {error}"))?;
        if found[""] != self.now {
            return Err("full, the store holds something else".to_owned());
        }
        enough(&mut self.now)?;
        let begun = self.sched.now();
        loop {
            match self.db.put(b"back", b"again") {
                Ok(_) => break,
                Err(error) if self.sched.now() - begun > BACK_WITHIN => {
                    return Err(format!("there is room, but {error}\n{}", self.db.stats()));
                }
                Err(_) => self.sched.sleep(Duration::from_millis(100)),
            }
        }
        self.now.insert(b"back".to_vec(), b"again".to_vec());
        Ok(())
    }

    /// Writes until there is no room: at least three refusals in a row.
    fn fill(&mut self) -> Result<(), String> {
        let mut refused = 0;
        while refused < 3 {
            self.at += 1;
            if self.at > 100_000 {
                return Err("the store never fills".to_owned());
            }
            let key = format!("key{:05}", self.at % 20_000).into_bytes();
            // What compresses would fill the fast tier with indexes before it filled the other with data.
            let mut rng = Rng::new(self.at);
            let value: Vec<u8> = (0..625).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
            let mut batch = Batch::new();
            batch.put(&key, &value);
            match self.db.write_with(batch, Durability::Os) {
                Ok(_) => {
                    refused = 0;
                    self.now.insert(key, value);
                }
                Err(error) if *error.kind() == ErrorKind::Full => refused += 1,
                Err(error) => return Err(format!("not told that it is full but {error}")),
            }
        }
        Ok(())
    }
}
