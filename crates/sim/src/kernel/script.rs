//! What cases outside the simulation do to a store: batches that are fixed by a seed and their number, so that a
//! parent knows what its child writes, and what a store must hold after the first so many of them.

use crate::fixture;
use cuesta::{Batch, Db, Durability, Options, Range};
use cuesta_sched::Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Few, so that versions meet.
const KEYS: u64 = 200;

/// Everything in the default keyspace.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Opens a store, reads everything, and closes it.
///
/// # Errors
/// What the store says.
pub fn reopened(options: &Options) -> Result<Pairs, String> {
    let read = || -> cuesta::Result<Pairs> {
        let db = Db::open(options)?;
        let pairs = db.scan(Range::all())?.map(|pair| pair.map(|(key, value)| (key, value.to_vec())));
        let pairs = pairs.collect::<cuesta::Result<Pairs>>()?;
        db.close()?;
        Ok(pairs)
    };
    read().map_err(|error| error.to_string())
}

/// A sequence of batches.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    seed: u64,
}

impl Script {
    /// The script of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// What it was made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its store: small, on two directories under `dir`.
    pub fn options(&self, fast: &Path, capacity: &Path, durability: Durability) -> Options {
        let mut options = fixture::options(self.seed, durability);
        options.tiers[0].path = fast.to_owned();
        match options.tiers.get_mut(1) {
            Some(tier) => tier.path = capacity.to_owned(),
            // Persistent memory, which takes all of its room at once.
            None => options.tiers[0].capacity_bytes = 6 << 20,
        }
        options
    }

    /// The durability that the seed stands for; all that keep a log, in turn.
    pub fn durability(&self) -> Durability {
        let interval = Durability::Interval(Duration::from_millis(3));
        [Durability::Sync, Durability::Os, interval][(self.seed % 3) as usize]
    }

    /// Batch `i`: keys, and values or deletions.
    fn entries(&self, i: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut rng = Rng::new(self.seed.wrapping_mul(0x9e37_79b9) ^ (i + 1) << 20);
        let entry = |n: u64| {
            let key = format!("key{:04}", rng.below(KEYS)).into_bytes();
            let value = (!rng.one_in(5)).then(|| {
                let mut value = format!("batch {i}, entry {n}: ").into_bytes();
                let len = if rng.one_in(20) { 12_000 } else { rng.below(1500) as usize };
                value.resize(value.len() + len, b'v');
                value
            });
            (key, value)
        };
        (0..1 + i % 4).map(entry).collect()
    }

    /// Writes batch `i`.
    ///
    /// # Errors
    /// What the store says.
    pub fn write(&self, db: &Db, i: u64, durability: Durability) -> cuesta::Result<()> {
        let mut batch = Batch::new();
        for (key, value) in self.entries(i) {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        db.write_with(batch, durability).map(drop)
    }

    /// What batch `i` makes of a store.
    pub fn apply(&self, pairs: &mut Pairs, i: u64) {
        for (key, value) in self.entries(i) {
            match value {
                Some(value) => drop(pairs.insert(key, value)),
                None => drop(pairs.remove(&key)),
            }
        }
    }

    /// After how many batches a store holds `found`, if that is at least `durable` and at most `begun`.
    ///
    /// # Errors
    /// That it is none of these, in words.
    pub fn find(&self, found: &Pairs, durable: u64, begun: u64) -> Result<u64, String> {
        let mut pairs = Pairs::new();
        (0..durable).for_each(|i| self.apply(&mut pairs, i));
        let oldest = pairs.clone();
        for batches in durable..=begun {
            if pairs == *found {
                return Ok(batches);
            }
            self.apply(&mut pairs, batches);
        }
        let differ = |key: &&Vec<u8>| oldest.get(*key) != found.get(*key);
        let keys = oldest.keys().chain(found.keys());
        let first = keys.filter(differ).min();
        let first = first.map(|key| key.escape_ascii().to_string()).unwrap_or_default();
        Err(format!(
            "none of the states after {durable} to {begun} batches; differs from the first at {first:?}"
        ))
    }
}
