//! Random runs: operations, cuts, kills and reopens from one seed.

use crate::model::{Contents, Model};
use cuesta::{Batch, Compression, Db, Durability, Keyspace, Options, Range, Snapshot, TierOptions, World};
use cuesta_device::sim::{SimConfig, SimDisk, Survival};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
/// Few keys, so that versions meet.
const KEYS: u64 = 60;

/// What a random run is like.
#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    /// Of everything.
    pub seed: u64,
    /// Operations before the last check.
    pub operations: u64,
    /// Power is cut, or the process killed, once in so many operations on average; 0 for never.
    pub crash_one_in: u64,
    /// What an acknowledgement means.
    pub durability: Durability,
}

/// Options for small stores in simulation: everything happens after few operations.
pub fn options(seed: u64, durability: Durability) -> Options {
    let mut rng = Rng::new(seed);
    let compressions = Compression::ALL;
    let mut tiers = vec![
        TierOptions::fast(PathBuf::from("fast"), 64 * MIB),
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
        durability,
        seed: seed | 1,
        ..Options::default()
    }
}

/// The world of a simulated disk.
pub fn world(sched: &Sched, disk: &SimDisk) -> World {
    World { sched: sched.clone(), directories: (0..disk.tiers()).map(|tier| disk.directory(tier)).collect() }
}

/// A random run.
#[derive(Debug)]
pub struct Run {
    config: RunConfig,
    rng: Rng,
    model: Model,
    /// Raised by every write, so that no two values are alike.
    version: u64,
    /// Store lives so far.
    pub lives: u64,
}

/// A live snapshot, and what it must go on showing.
type Held = (Snapshot, BTreeMap<Vec<u8>, Vec<u8>>);

/// How a life of the store ended.
enum End {
    /// Every operation was done.
    Done(SimDisk),
    /// Power was cut, or the process killed.
    Crashed(SimDisk),
}

impl Run {
    /// A run that has not begun.
    pub fn new(config: RunConfig) -> Self {
        Self { config, rng: Rng::new(config.seed ^ 0x51a7), model: Model::default(), version: 0, lives: 0 }
    }

    /// Runs it; the hash of all I/O of its last life, for comparing two runs of one seed.
    ///
    /// # Errors
    /// What went wrong, with the line that replays it.
    pub fn run(mut self) -> Result<u64, String> {
        let config = self.config;
        self.run_lives().map_err(|what| {
            let RunConfig { seed, operations, crash_one_in, durability } = config;
            format!("{what}\nreplay: CUESTA_SEED={seed} ({operations} operations, crash 1/{crash_one_in}, {durability})")
        })
    }

    fn run_lives(&mut self) -> Result<u64, String> {
        let mut disk = SimDisk::new(&Sched::simulated(0), 2, SimConfig::default());
        let mut left = self.config.operations;
        loop {
            self.lives += 1;
            let sched = Sched::simulated(self.config.seed.wrapping_add(self.lives << 32));
            disk = disk.on(&sched);
            // The cut may fall into the open, and then into the next open, and so on.
            if self.config.crash_one_in > 0 && self.rng.one_in(3) {
                disk.cut_at(disk.ops() + self.rng.below(60));
            }
            let end = sched.run(|| self.live(&sched, &disk, &mut left))?;
            disk = match end {
                End::Done(disk) => {
                    self.check_after_all(&disk)?;
                    return Ok(disk.log_hash());
                }
                End::Crashed(disk) => disk,
            };
        }
    }

    /// One life of the store: open, check, operate.
    fn live(&mut self, sched: &Sched, disk: &SimDisk, left: &mut u64) -> Result<End, String> {
        let options = options(self.config.seed, self.config.durability);
        let db = match Db::open_in(&options, world(sched, disk)) {
            Ok(db) => db,
            Err(_) if disk.is_cut() => return Ok(End::Crashed(self.crash(disk))),
            Err(error) => return Err(format!("life {}: open failed: {error}", self.lives)),
        };
        let found = match contents(&db) {
            Ok(found) => found,
            Err(_) if disk.is_cut() => return Ok(End::Crashed(self.crash(disk))),
            Err(error) => return Err(format!("life {}: reading failed: {error}", self.lives)),
        };
        self.model.rebase(found).map_err(|what| format!("life {}: {what}", self.lives))?;
        if disk.is_cut() {
            return Ok(End::Crashed(self.crash(disk)));
        }
        let mut snapshots: Vec<Held> = Vec::new();
        while *left > 0 {
            *left -= 1;
            if self.config.crash_one_in > 0 && self.rng.one_in(self.config.crash_one_in) {
                disk.cut_at(disk.ops() + self.rng.below(40));
            }
            let done = self.operate(&db, &mut snapshots);
            if disk.is_cut() {
                drop(snapshots);
                drop(db);
                return Ok(End::Crashed(self.crash(disk)));
            }
            done.map_err(|what| format!("life {}, {left} operations left: {what}", self.lives))?;
            if self.config.crash_one_in == 0 && self.rng.one_in(80) {
                break;
            }
        }
        drop(snapshots);
        let closed = db.close();
        match (disk.is_cut(), closed) {
            (true, _) => return Ok(End::Crashed(self.crash(disk))),
            (false, Err(error)) => return Err(format!("close failed: {error}")),
            // A clean close, in the middle of a run too: nothing may be lost.
            (false, Ok(())) => self.model.synced(),
        }
        // A cut that was armed and not reached is not for the next life.
        disk.cut_at(u64::MAX);
        Ok(if *left == 0 { End::Done(disk.clone()) } else { End::Crashed(disk.clone()) })
    }

    /// The disk after the crash: power cut with a random part of what was pending, or a kill.
    fn crash(&mut self, disk: &SimDisk) -> SimDisk {
        let survival = match self.rng.below(8) {
            6.. => {
                self.model.killed();
                return disk.kill();
            }
            0 => Survival::None,
            1 => Survival::All,
            _ => Survival::Random,
        };
        self.model.cut();
        disk.after_cut(survival, &mut self.rng)
    }

    fn operate(&mut self, db: &Db, snapshots: &mut Vec<Held>) -> Result<(), String> {
        let fail = |error: cuesta::Error| error.to_string();
        match self.rng.below(100) {
            0..60 => self.write_batch(db),
            60..75 => {
                let key = self.key();
                let expected = self.model.now()[""].get(&key).cloned();
                let found = db.get(&key).map_err(fail)?.map(|value| value.to_vec());
                same("get", &key, found, expected)
            }
            75..82 => {
                let (mut low, mut high) = (self.key(), self.key());
                if low > high {
                    std::mem::swap(&mut low, &mut high);
                }
                let scan = db.scan(&low[..]..&high[..]).map_err(fail)?;
                let expected: Vec<_> =
                    self.model.now()[""].range(low..high).map(|(k, v)| (k.clone(), v.clone())).collect();
                let pairs =
                    |pair: cuesta::Result<(Vec<u8>, cuesta::Value)>| pair.map(|(k, v)| (k, v.to_vec()));
                let found: Result<Vec<_>, _> = match self.rng.one_in(2) {
                    true => scan.map(pairs).collect(),
                    false => scan.rev().map(pairs).collect::<Result<Vec<_>, _>>().map(|mut v| {
                        v.reverse();
                        v
                    }),
                };
                if found.map_err(fail)? == expected { Ok(()) } else { Err("a scan differs".to_owned()) }
            }
            82..86 => {
                snapshots.push((db.snapshot().map_err(fail)?, self.model.now()[""].clone()));
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
                Ok(())
            }
            86..91 => snapshots.iter().try_for_each(|(snapshot, expected)| {
                let key = self.key();
                let found = snapshot.get(&key).map_err(fail)?.map(|value| value.to_vec());
                same("snapshot", &key, found, expected.get(&key).cloned())?;
                let all = snapshot.scan(Range::all()).map_err(fail)?;
                let all: Result<Vec<_>, _> = all.map(|pair| pair.map(|(k, _)| k)).collect();
                let keys: Vec<_> = expected.keys().cloned().collect();
                if all.map_err(fail)? == keys { Ok(()) } else { Err("a snapshot's scan differs".to_owned()) }
            }),
            91..94 => self.keyspace(db),
            94..96 => {
                let synced = db.sync();
                if synced.is_ok() {
                    self.model.synced();
                }
                synced.map_err(fail)
            }
            96..98 => {
                let flushed = db.flush();
                if flushed.is_ok() {
                    self.model.synced();
                }
                flushed.map_err(fail)
            }
            98 => db.wait_for_background().map_err(fail),
            _ => {
                let found = contents(db).map_err(fail)?;
                if found == *self.model.now() { Ok(()) } else { Err("the whole differs".to_owned()) }
            }
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.below(KEYS);
        // Lengths differ, and some keys are prefixes of others; the empty key is one.
        match number {
            0 => Vec::new(),
            _ => format!("k{}", number * number % 1000).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.version += 1;
        let len = match self.rng.below(20) {
            0 => 20_000,
            1..4 => 3000,
            _ => self.rng.below(200),
        };
        let mut value = format!("v{}-", self.version).into_bytes();
        value.resize(value.len() + len as usize, b'x');
        value
    }

    fn write_batch(&mut self, db: &Db) -> Result<(), String> {
        let names: Vec<String> = self.model.now().keys().cloned().collect();
        let keyspaces: BTreeMap<&str, Keyspace> =
            names.iter().filter_map(|name| Some((name.as_str(), db.keyspace(name).ok()??))).collect();
        let mut batch = Batch::new();
        let mut next = self.model.now().clone();
        for _ in 0..1 + self.rng.below(4) {
            let name = &names[self.rng.below(names.len() as u64) as usize];
            let (key, delete) = (self.key(), self.rng.one_in(4));
            let value = (!delete).then(|| self.value());
            let pairs = next.entry(name.clone()).or_default();
            match &value {
                Some(value) => drop(pairs.insert(key.clone(), value.clone())),
                None => drop(pairs.remove(&key)),
            }
            match (keyspaces.get(name.as_str()), value) {
                (Some(keyspace), Some(value)) => drop(batch.put_in(keyspace, key, value).len()),
                (Some(keyspace), None) => drop(batch.delete_in(keyspace, key).len()),
                (None, Some(value)) => drop(batch.put(key, value).len()),
                (None, None) => drop(batch.delete(key).len()),
            }
        }
        self.model.step(|contents| *contents = next);
        let durability = if self.rng.one_in(6) { Durability::Sync } else { self.config.durability };
        let written = db.write_with(batch, durability);
        if written.is_ok() && durability == Durability::Sync {
            self.model.synced();
        }
        written.map(drop).map_err(|error| format!("write: {error}"))
    }

    fn keyspace(&mut self, db: &Db) -> Result<(), String> {
        let name = format!("space{}", self.rng.below(3));
        let there = self.model.now().contains_key(&name);
        // Durable when it returns, and so is every write before it: there is one order of commits.
        let done = match there {
            true => {
                self.model.step(|contents| drop(contents.remove(&name)));
                db.drop_keyspace(&name)
            }
            false => {
                self.model.step(|contents| drop(contents.insert(name.clone(), BTreeMap::new())));
                db.create_keyspace(&name).map(drop)
            }
        };
        if done.is_ok() {
            self.model.synced();
        }
        done.map_err(|error| format!("keyspace {name}: {error}"))
    }

    /// After a clean close: verification finds nothing, and everything is there.
    fn check_after_all(&mut self, disk: &SimDisk) -> Result<(), String> {
        let sched = Sched::simulated(self.config.seed ^ 0xf1a1);
        let disk = disk.on(&sched);
        let options = options(self.config.seed, self.config.durability);
        sched.run(|| {
            let report = cuesta::verify_in(&options, world(&sched, &disk), &mut |_| {});
            let report = report.map_err(|error| format!("verification failed: {error}"))?;
            if let Some(problem) = report.problems.first() {
                return Err(format!("verification found: {}", problem.message));
            }
            let db = Db::open_in(&options, world(&sched, &disk)).map_err(|error| error.to_string())?;
            let found = contents(&db).map_err(|error| error.to_string())?;
            self.model.synced();
            self.model.rebase(found)
        })
    }
}

fn same(what: &str, key: &[u8], found: Option<Vec<u8>>, expected: Option<Vec<u8>>) -> Result<(), String> {
    let show = |v: &Option<Vec<u8>>| {
        v.as_ref().map_or("nothing".to_owned(), |v| v[..v.len().min(12)].escape_ascii().to_string())
    };
    match found == expected {
        true => Ok(()),
        false => Err(format!(
            "{what} {}: expected {}, found {}",
            key.escape_ascii(),
            show(&expected),
            show(&found)
        )),
    }
}

/// Everything a store holds.
pub(crate) fn contents(db: &Db) -> cuesta::Result<Contents> {
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
