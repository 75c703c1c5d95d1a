//! Row 27: more data than the fast tier has room for, so that much of it comes down, is laid on what is there and is
//! merged with it: the store answers as a map does, at snapshots too, and as often as it is opened anew.

use crate::fixture::{Kind, contents, kind, options, world};
use cuesta::{Batch, Db, Durability, Options, Range, Snapshot};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;

const KEYS: u64 = 2000;
const LIVES: u64 = 4;
const ROUNDS: u64 = 4;
/// Operations in one round.
const OPERATIONS: u64 = 500;
const VALUE_BYTES: usize = 500;
/// After a round, so often so many neighbours are read, enough for those below to come up at once, and some of them are
/// deleted by range before they have.
const ERASED_TIMES: u64 = 3;
const READ: u64 = 160;
const ERASED: u64 = 10;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the log, and persistent memory, leave of the fast tier is a part of the data.
fn little(seed: u64) -> Options {
    let mut options = Options { table_bytes: 32 << 10, ..options(seed, Durability::Os) };
    match kind() {
        Kind::NvLsm => {}
        Kind::PrismDb | Kind::PrismDbLogFree => options.tiers[0].capacity_bytes = 2_000_000,
        _ => options.tiers[0].capacity_bytes = 5 << 18,
    }
    options
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let (options, mut rng, mut map) = (little(seed), Rng::new(seed ^ 0x10b), Map::new());
    let mut disk = SimDisk::new(&Sched::simulated(seed), 2, SimConfig::default());
    for life in 0..LIVES {
        let sched = Sched::simulated(seed + life);
        let here = disk.on(&sched);
        sched
            .run(|| live(&options, (&sched, &here), &mut rng, &mut map))
            .map_err(|what| format!("life {life}: {what}"))?;
        disk = here;
    }
    Ok(1)
}

fn live(
    options: &Options,
    (sched, disk): (&Sched, &SimDisk),
    rng: &mut Rng,
    map: &mut Map,
) -> Result<(), String> {
    let text = |error: cuesta::Error| error.to_string();
    let db = Db::open_in(options, world(sched, disk, options)).map_err(text)?;
    for round in 0..ROUNDS {
        let before = (db.snapshot().map_err(text)?, map.clone());
        for _ in 0..OPERATIONS {
            operate(&db, rng, map).map_err(|what| format!("round {round}: {what}"))?;
        }
        equal(&before.0, &before.1).map_err(|what| format!("the snapshot of round {round}: {what}"))?;
        // Nobody reads at an older number: what is deleted is gone at once.
        drop(before);
        for _ in 0..ERASED_TIMES {
            erase(&db, rng, map).map_err(|what| format!("after round {round}: {what}"))?;
        }
    }
    if contents(&db).map_err(text)?.remove("").unwrap_or_default() != *map {
        return Err("the store has something else than the map".to_owned());
    }
    db.close().map_err(text)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{:04}", i % KEYS).into_bytes()
}

fn operate(db: &Db, rng: &mut Rng, map: &mut Map) -> Result<(), String> {
    let text = |error: cuesta::Error| error.to_string();
    // Half of it goes to a tenth of the keys.
    let keys = if rng.one_in(2) { KEYS } else { KEYS / 10 };
    let key = key(rng.below(keys) * 7);
    match rng.below(8) {
        0 => {
            db.delete(&key).map_err(text)?;
            map.remove(&key);
        }
        1 => read(db, &key, map)?,
        _ => {
            // Nothing that packing makes little of.
            let value: Vec<u8> = std::iter::repeat_with(|| rng.next_u64() as u8).take(VALUE_BYTES).collect();
            db.put(&key, &value).map_err(text)?;
            map.insert(key, value);
        }
    }
    Ok(())
}

fn read(db: &Db, key: &[u8], map: &Map) -> Result<(), String> {
    let found = db.get(key).map_err(|error| error.to_string())?;
    match found.as_deref() == map.get(key).map(Vec::as_slice) {
        true => Ok(()),
        false => Err(format!("{} is not what the map has", key.escape_ascii())),
    }
}

fn erase(db: &Db, rng: &mut Rng, map: &mut Map) -> Result<(), String> {
    let text = |error: cuesta::Error| error.to_string();
    let first = rng.below(KEYS - READ);
    (first..first + READ).try_for_each(|i| read(db, &key(i), map))?;
    let (from, to) = (key(first), key(first + ERASED));
    let mut batch = Batch::new();
    batch.delete_range(&from[..]..&to[..]);
    db.write(batch).map_err(text)?;
    map.retain(|key, _| !(&from..&to).contains(&key));
    db.flush().map_err(text)
}

fn equal(snapshot: &Snapshot, map: &Map) -> Result<(), String> {
    let scan = snapshot.scan(Range::all()).map_err(|error| error.to_string())?;
    let mut expected = map.iter();
    for pair in scan {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        if expected.next() != Some((&key, &value.to_vec())) {
            return Err(format!("{} is not what the map has next", key.escape_ascii()));
        }
    }
    expected.next().map_or(Ok(()), |(key, _)| Err(format!("{} is missing", key.escape_ascii())))
}
