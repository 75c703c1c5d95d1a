//! What comes down to the last level of `leveled` is laid on what is there, and becomes one run for who wants one. That
//! it answers as a map does is row 27's to show.

#![allow(clippy::unwrap_used, reason = "in a test it is the assertion")]

use cuesta::{Db, Durability, Options, Range};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use cuesta_sim::{Kind, options_of, world};
use std::collections::BTreeMap;

const KEYS: u64 = 4000;

/// Of the fast tier the log may take one mebibyte, which leaves little for tables.
fn little(log_runs_max: u32) -> Options {
    let mut options = options_of(Kind::Leveled, 3, Durability::Os);
    options.tiers[0].capacity_bytes = 5 << 18;
    options.tiers.iter_mut().for_each(|tier| tier.compression = cuesta::Compression::None);
    Options { level_ratio: 10, level0_merge: 2, table_bytes: 32 << 10, log_runs_max, ..options }
}

/// Most runs that lie on one another in a level below level 0.
fn runs(db: &Db) -> u64 {
    db.stats().levels[1..].iter().map(|level| level.runs).max().unwrap_or(0)
}

#[test]
fn runs_are_laid_on_the_last_level_and_become_one_for_who_wants_one() {
    let sched = Sched::simulated(1);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    sched.run(|| {
        let options = little(4);
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        let (mut written, mut rng, mut most) = (BTreeMap::new(), Rng::new(11), 0);
        for _ in 0..24 {
            for _ in 0..500 {
                // Half of it goes to a tenth of the keys.
                let keys = if rng.one_in(2) { KEYS } else { KEYS / 10 };
                let key = format!("key{:05}", rng.below(keys) * 7 % KEYS).into_bytes();
                let value = rng.next_u64().to_le_bytes().repeat(64);
                db.put(&key, &value).unwrap();
                written.insert(key, value);
            }
            most = most.max(runs(&db));
        }
        assert!((2..=4).contains(&most), "{most} runs, {}", db.stats());
        db.close().unwrap();
        let options = little(1);
        let db = Db::open_in(&options, world(&sched, &disk, &options)).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(runs(&db), 1, "{}", db.stats());
        let pairs = db.scan(Range::all()).unwrap().map(|pair| pair.unwrap());
        assert!(pairs.map(|(key, value)| (key, value.to_vec())).eq(written));
        db.close().unwrap();
        let verified = cuesta::verify_in(&options, world(&sched, &disk, &options), &mut |_| {}).unwrap();
        assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    });
}
