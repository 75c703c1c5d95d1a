//! What comes down to the last level of `leveled` is laid on what is there: it answers as a map does, and gives its room back.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, Options, Range, Snapshot};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{Kind, options_of, world};
use std::collections::BTreeMap;

const KEYS: u64 = 4000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Of the fast tier the log may take one mebibyte, which leaves little for tables.
fn little(log_runs_max: u32) -> Options {
    let mut options = options_of(Kind::Leveled, 3, Durability::Os);
    options.tiers[0].capacity_bytes = 5 << 18;
    options.tiers.iter_mut().for_each(|tier| tier.compression = cuesta::Compression::None);
    Options { level_ratio: 10, level0_merge: 2, table_bytes: 32 << 10, log_runs_max, ..options }
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn contents(db: &Db, snapshot: Option<&Snapshot>) -> Model {
    let scan = match snapshot {
        Some(snapshot) => snapshot.scan(Range::all()),
        None => db.scan(Range::all()),
    };
    let pairs = scan.unwrap().map(|pair| pair.unwrap());
    pairs.map(|(key, value)| (key, value.to_vec())).collect()
}

/// Most runs that lie on one another in a level below level 0.
fn runs(db: &Db) -> u64 {
    db.stats().levels[1..].iter().map(|level| level.runs).max().unwrap_or(0)
}

#[test]
fn what_is_laid_on_others_is_what_is_newest() {
    let sched = Sched::simulated(1);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let options = little(4);
        let mut db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        let (mut model, mut rng, mut most) = (Model::new(), Rng::new(11), 0);
        for round in 0..24 {
            let before = (db.snapshot().unwrap(), model.clone());
            for _ in 0..800 {
                // Half of it goes to a tenth of the keys.
                let keys = if rng.one_in(2) { KEYS } else { KEYS / 10 };
                let key = key(rng.below(keys) * 7 % KEYS);
                match rng.below(4) {
                    0 => {
                        db.delete(&key).unwrap();
                        model.remove(&key);
                    }
                    1 => {
                        let found = db.get(&key).unwrap();
                        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "round {round}");
                    }
                    _ => {
                        let value = rng.next_u64().to_le_bytes().repeat(64);
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
            }
            most = most.max(runs(&db));
            assert!(contents(&db, Some(&before.0)) == before.1, "round {round}");
            drop(before);
            if round % 4 == 3 {
                db.wait_for_background().unwrap();
                assert!(contents(&db, None) == model, "round {round}, {}", db.stats());
                db.close().unwrap();
                let problems = cuesta::verify_in(&options, world(&sched, &disk, &options), &mut |_| {})
                    .unwrap()
                    .problems;
                assert!(problems.is_empty(), "{problems:?}");
                db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
            }
        }
        assert!((2..=4).contains(&most), "{most} runs, {}", db.stats());
        db.close().unwrap();
        // Who wants one run gets it.
        let options = little(1);
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        db.wait_for_background().unwrap();
        assert!(runs(&db) == 1 && contents(&db, None) == model, "{}", db.stats());
        db.close().unwrap();
    });
}
