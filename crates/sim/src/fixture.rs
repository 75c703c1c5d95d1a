//! Small stores on simulated disks: their options, their world, what they hold.

use crate::model::Contents;
use cuesta::{Compression, Db, Durability, Options, Range, TierOptions, World};
use cuesta_device::sim::SimDisk;
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// Options for small stores in simulation: everything happens after few operations.
pub fn options(seed: u64, durability: Durability) -> Options {
    let mut rng = Rng::new(seed);
    let compressions = Compression::ALL;
    // Every other one has a fast tier that is too small for the data, so that tables move between tiers.
    let fast = if rng.one_in(2) { MIB * 7 / 5 } else { 64 * MIB };
    let mut tiers = vec![
        TierOptions::fast(PathBuf::from("fast"), fast),
        TierOptions::capacity(PathBuf::from("capacity"), 256 * MIB),
    ];
    for tier in &mut tiers {
        tier.compression = compressions[rng.below(3) as usize];
        tier.filter_bits_per_key = [0, 10, 14][rng.below(3) as usize];
    }
    Options {
        tiers,
        memory_bytes: 8 * MIB,
        memtable_bytes: Some(64 << 10),
        table_bytes: 64 << 10,
        block_bytes: [512, 1024, 4096][rng.below(3) as usize],
        level_ratio: 2 + rng.below(9) as u32,
        level0_merge: 1 + rng.below(4) as u32,
        background_threads: 1 + rng.below(2) as u32,
        open_tables_max: rng.one_in(2).then_some(8),
        durability,
        seed: seed | 1,
        ..Options::default()
    }
}

/// The world of a simulated disk.
pub fn world(sched: &Sched, disk: &SimDisk) -> World {
    World { sched: sched.clone(), directories: (0..disk.tiers()).map(|tier| disk.directory(tier)).collect() }
}

/// Everything a store holds.
///
/// # Errors
/// What reading says.
pub fn contents(db: &Db) -> cuesta::Result<Contents> {
    let pairs = |scan: cuesta::Scan| -> cuesta::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        scan.map(|pair| pair.map(|(k, v)| (k, v.to_vec()))).collect()
    };
    let mut contents = Contents::from([(String::new(), pairs(db.scan(Range::all())?)?)]);
    for name in db.keyspaces()? {
        if let Some(keyspace) = db.keyspace(&name)? {
            contents.insert(name, pairs(keyspace.scan(Range::all())?)?);
        }
    }
    Ok(contents)
}
