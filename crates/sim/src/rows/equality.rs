//! Rows 13 and 23: what must be the same. One trace of operations answers alike under any options; one seed run twice
//! asks the same of the media, operation by operation.

use super::config;
use crate::fixture::{Kind, contents, kind, options, world};
use crate::run::Run;
use cuesta::{Batch, Db, Durability, Options, Range, Snapshot};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

const OPERATIONS: u64 = 10_000;
const OPTION_SETS: u64 = 16;
const KEYS: u64 = 1000;

pub(super) fn twice(seed: u64) -> Result<u64, String> {
    let hashes = [0, 1].map(|_| Run::new(config(seed, 200, 60)).run());
    match &hashes {
        [Ok(a), Ok(b)] if a != b => {
            Err("two runs of one seed asked different things of the media".to_owned())
        }
        [Err(what), _] | [_, Err(what)] => Err(what.clone()),
        _ => Ok(1),
    }
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let mut first = None;
    for set in 0..OPTION_SETS {
        let (options, tiers) = option_set(set);
        let answers = answers(seed, &options, tiers).map_err(|what| format!("options {set}: {what}"))?;
        match *first.get_or_insert(answers) {
            expected if expected == answers => {}
            _ => return Err(format!("options {set} answer differently from options 0")),
        }
    }
    Ok(1)
}

/// Option sets that have little in common.
fn option_set(set: u64) -> (Options, usize) {
    let mut rng = Rng::new(set ^ 0x0b5e);
    let levels = [
        Durability::Os,
        Durability::Sync,
        Durability::Interval(Duration::from_millis(1)),
        Durability::Unlogged,
    ];
    let mut chosen = Options {
        memory_bytes: [8 << 20, 16 << 20, 64 << 20][rng.below(3) as usize],
        memtable_bytes: Some([64 << 10, 256 << 10, 1 << 20][rng.below(3) as usize]),
        table_bytes: [64 << 10, 256 << 10, 4 << 20][rng.below(3) as usize],
        direct_io: rng.one_in(2),
        read_ahead_bytes: [4 << 10, 256 << 10][rng.below(2) as usize],
        durability: levels[(set % 4) as usize],
        ..options(set * 31, Durability::Os)
    };
    // One tier alone is not for every profile.
    let tiers = match kind() {
        Kind::PrismDb | Kind::PrismDbLogFree => 2,
        Kind::NvLsm => 1,
        _ => 1 + (set % 2) as usize,
    };
    // None of the fast tier's size, little, or all of it: where data lies must not matter.
    chosen.tiers[0].capacity_bytes = [16 << 20, 24 << 20, 1 << 30][rng.below(3) as usize];
    chosen.tiers.truncate(tiers);
    if kind() == Kind::NvLsm {
        chosen.tiers[0].capacity_bytes = 64 << 20;
    } else if tiers == 1 && set % 4 == 1 {
        chosen.tiers = Options::in_memory("memory", 64 << 20).tiers;
    } else if tiers == 1 {
        chosen.tiers[0].capacity_bytes = 1 << 30;
    }
    (chosen, tiers)
}

/// A digest of everything that the store answered.
fn answers(seed: u64, options: &Options, tiers: usize) -> Result<u64, String> {
    let mut rng = Rng::new(seed ^ 0xace);
    let disk = SimDisk::new(&Sched::simulated(seed), tiers, SimConfig::default());
    let mut digest = DefaultHasher::new();
    let mut left = OPERATIONS;
    let mut life = 0;
    while left > 0 {
        life += 1;
        let sched = Sched::simulated(seed + life);
        let disk = disk.on(&sched);
        let lived = sched.run(|| {
            let db = Db::open_in(options, world(&sched, &disk, options))?;
            let mut snapshot = None;
            while left > 0 {
                left -= 1;
                operate(&db, &mut snapshot, &mut rng, &mut digest)?;
                if rng.one_in(2000) {
                    break;
                }
            }
            drop(snapshot);
            contents(&db)?.hash(&mut digest);
            db.close()
        });
        lived.map_err(|error| format!("{left} operations left: {error}"))?;
    }
    Ok(digest.finish())
}

fn operate(
    db: &Db,
    snapshot: &mut Option<Snapshot>,
    rng: &mut Rng,
    digest: &mut DefaultHasher,
) -> cuesta::Result<()> {
    let key = |rng: &mut Rng| format!("key{}", rng.below(KEYS)).into_bytes();
    match rng.below(1000) {
        0..450 => {
            let mut batch = Batch::new();
            for _ in 0..1 + rng.below(4) {
                let (key, len) = (key(rng), rng.below(300));
                match rng.one_in(5) {
                    true => batch.delete(key),
                    false => batch.put(key, vec![rng.next_u64() as u8; len as usize]),
                };
            }
            db.write(batch).map(drop)
        }
        450..850 => {
            let key = key(rng);
            db.get(key)?.as_deref().hash(digest);
            Ok(())
        }
        850..980 => {
            let (low, high, limit) = (key(rng), key(rng), rng.below(20));
            let backwards = rng.one_in(2);
            if low < high {
                let scan = db.scan(Range::from(&low[..]..&high[..]).with_limit(limit))?;
                let mut add = |pair: cuesta::Result<(Vec<u8>, cuesta::Value)>| -> cuesta::Result<()> {
                    let (key, value) = pair?;
                    (key, &value[..]).hash(digest);
                    Ok(())
                };
                match backwards {
                    true => scan.rev().try_for_each(&mut add)?,
                    false => { scan }.try_for_each(&mut add)?,
                }
            }
            Ok(())
        }
        980..985 => {
            *snapshot = Some(db.snapshot()?);
            Ok(())
        }
        985..995 => {
            let key = key(rng);
            if let Some(snapshot) = snapshot {
                snapshot.get(key)?.as_deref().hash(digest);
            }
            Ok(())
        }
        995..998 => db.flush(),
        _ => db.wait_for_background(),
    }
}
