//! Random runs: operations, cuts, kills, failed syncs and reopens from one seed.
//!
//! Operation `i` draws from a stream of its own, so leaving one out does not change what the others do; that is how a
//! failing run is shrunk.

use crate::fixture::{Kind, contents, options_of, world};
use crate::model::Model;
use cuesta::{Batch, Db, Durability, ErrorKind, Keyspace, Profile, Range, Snapshot, World};
use cuesta_device::sim::{Effect, Fault, OpKind, SimConfig, SimDisk, Survival, SyncFailure};
use cuesta_device::{Limiter, Pace};
use cuesta_sched::{Rng, Sched};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Few keys, so that versions meet.
const KEYS: u64 = 60;
/// Of the writes in a batch one in so many deletes a range, of a few keys most often.
const RANGE_ONE_IN: u64 = 16;
const RANGE_KEYS: u64 = 8;
/// A clean reopen comes once in so many operations.
const REOPEN_ONE_IN: u64 = 80;

/// What a random run is like. As text (`profile=leveled seed=7 operations=300 crash=60 skip=1,5`) it is what replays
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// The store's.
    pub kind: Kind,
    /// Of everything.
    pub seed: u64,
    /// Operations before the last check.
    pub operations: u64,
    /// Power is cut, the process killed or a sync made to fail once in so many operations on average; 0 for never.
    pub crash_one_in: u64,
    /// Operations that are left out.
    pub skip: BTreeSet<u64>,
}

impl fmt::Display for RunConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "profile={} seed={} operations={} crash={}",
            self.kind, self.seed, self.operations, self.crash_one_in
        )?;
        let skip: Vec<String> = self.skip.iter().map(u64::to_string).collect();
        if skip.is_empty() { Ok(()) } else { write!(f, " skip={}", skip.join(",")) }
    }
}

impl FromStr for RunConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = Kind::Leveled;
        let mut config = Self { kind, seed: 0, operations: 300, crash_one_in: 60, skip: BTreeSet::new() };
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("profile", value)) => {
                    config.kind = value.parse()?;
                }
                Some(("seed", value)) => config.seed = number(value)?,
                Some(("operations", value)) => config.operations = number(value)?,
                Some(("crash", value)) => config.crash_one_in = number(value)?,
                Some(("skip", value)) => {
                    config.skip = value.split(',').map(number).collect::<Result<_, _>>()?
                }
                _ => return Err(format!("{word:?} is none of profile=, seed=, operations=, crash=, skip=")),
            }
        }
        Ok(config)
    }
}

/// A random run.
#[derive(Debug)]
pub struct Run {
    config: RunConfig,
    durability: Durability,
    /// Of what happens between operations.
    rng: Rng,
    model: Model,
    /// The operation that comes next.
    next: u64,
    /// Raised by every write, so that no two values are alike.
    version: u64,
    /// Store lives so far.
    lives: u64,
    /// What the store had counted when it was opened last.
    counted: [u64; 3],
}

/// A fast tier that was made smaller.
fn shrunk_bytes(kind: Kind) -> u64 {
    match kind {
        Kind::PrismDb | Kind::PrismDbLogFree => 2_000_000,
        // All of the data must fit.
        Kind::NvLsm => 5 << 20,
        _ => 1_500_000,
    }
}
/// Operations between two changes of how fast a medium is.
const SLOWER_ONE_IN: u64 = 20;

/// Media that slow down, stall for seconds, and recover.
#[derive(Default)]
struct Slow(Vec<Limiter>);

impl Slow {
    const USUAL: Pace = Pace { bytes_per_second: 200 << 20, per_call: Duration::from_micros(100) };

    /// Puts paced directories into the world.
    fn down(world: &mut World) -> Self {
        let sched = world.sched.clone();
        let limiters: Vec<_> = world.directories.iter().map(|_| Limiter::new(&sched, Self::USUAL)).collect();
        for (directory, limiter) in world.directories.iter_mut().zip(&limiters) {
            *directory = Arc::new(limiter.wrap_directory(directory.clone()));
        }
        Self(limiters)
    }

    fn change(&self, rng: &mut Rng) {
        if self.0.is_empty() || !rng.one_in(SLOWER_ONE_IN) {
            return;
        }
        let medium = &self.0[rng.below(self.0.len() as u64) as usize];
        match rng.below(3) {
            0 => medium.stall(Duration::from_millis(rng.below(10_000))),
            1 => medium.set_pace(Pace { bytes_per_second: 1 << 20, per_call: Duration::from_millis(20) }),
            _ => medium.set_pace(Self::USUAL),
        }
    }
}

/// Calls that the store has counted since it was made. What the background does is counted while this looks.
fn counted(db: &Db) -> [u64; 3] {
    let calls = db.stats().operations;
    [calls.gets, calls.writes, calls.written_bytes]
}

/// A live snapshot, and what it must go on showing.
type Held = (Snapshot, BTreeMap<Vec<u8>, Vec<u8>>);

/// Why an operation did not do what it should.
enum Trouble {
    /// The store said no.
    Refused(cuesta::Error),
    /// The store answered, and wrongly.
    Wrong(String),
}

impl From<cuesta::Error> for Trouble {
    fn from(error: cuesta::Error) -> Self {
        Self::Refused(error)
    }
}

/// How a life of the store ended.
enum End {
    /// Every operation was done.
    Done(SimDisk),
    /// There is more to do, on this disk.
    GoOn(SimDisk),
}

impl Run {
    /// A run that has not begun.
    pub fn new(config: RunConfig) -> Self {
        let levels = [
            Durability::Os,
            Durability::Sync,
            Durability::Interval(Duration::from_millis(3)),
            Durability::Os,
        ];
        Self {
            durability: levels[(config.seed % 4) as usize],
            rng: Rng::new(config.seed ^ 0x51a7),
            model: Model::default(),
            next: 0,
            version: 0,
            lives: 0,
            counted: [0; 3],
            config,
        }
    }

    /// Runs it; the hash of all I/O of its last life, for comparing two runs of one seed.
    ///
    /// # Errors
    /// What went wrong.
    pub fn run(mut self) -> Result<u64, String> {
        let mut disk = SimDisk::new(&Sched::simulated(0), 2, SimConfig::default());
        loop {
            self.lives += 1;
            let sched = Sched::simulated(self.config.seed.wrapping_add(self.lives << 32));
            disk = disk.on(&sched);
            // The cut may fall into the open, and then into the next open, and so on.
            if self.config.crash_one_in > 0 && self.rng.one_in(3) {
                disk.cut_at(disk.ops() + self.rng.below(60));
            }
            match sched.run(|| self.live(&sched, &disk))? {
                End::Done(disk) => {
                    self.check_after_all(&disk)?;
                    return Ok(disk.log_hash());
                }
                End::GoOn(left) => disk = left,
            }
        }
    }

    fn told(&self, what: impl fmt::Display) -> String {
        format!("life {}, operation {}: {what}", self.lives, self.next)
    }

    /// One life of the store: open, check, operate.
    fn live(&mut self, sched: &Sched, disk: &SimDisk) -> Result<End, String> {
        let mut options = options_of(self.config.kind, self.config.seed, self.durability);
        if self.config.seed % 7 == 2 && self.lives.is_multiple_of(2) {
            // Less than it may hold by now: what is too much drains.
            options.tiers[0].capacity_bytes = shrunk_bytes(self.config.kind);
        }
        if self.config.kind.profile() == Profile::NvLsm {
            // What guards have from before may be more than they may have now; none of them has it follow the load.
            let most = options.floors_max.map_or(0, |most| most + self.lives as u32) % 6;
            options.floors_max = (most > 0).then_some(most);
        }
        let mut world = world(sched, disk, &options);
        let slow = if self.config.seed % 5 == 3 { Slow::down(&mut world) } else { Slow::default() };
        let opened = Db::open_in(&options, world);
        let opened = opened.and_then(|db| Ok((counted(&db), contents(&db)?, db)));
        let (counted, found, db) = match opened {
            Ok(opened) => opened,
            Err(_) if disk.is_cut() => return Ok(End::GoOn(self.crash(disk))),
            Err(error) => return Err(self.told(format!("open failed: {error}"))),
        };
        if counted.iter().zip(self.counted).any(|(now, before)| *now < before) {
            return Err(self.told(format!("counters went from {:?} back to {counted:?}", self.counted)));
        }
        self.counted = counted;
        self.model.rebase(found).map_err(|what| self.told(what))?;
        let mut snapshots: Vec<Held> = Vec::new();
        while self.next < self.config.operations && !disk.is_cut() {
            let index = self.next;
            self.next += 1;
            if self.config.skip.contains(&index) {
                continue;
            }
            let mut rng = Rng::new(self.config.seed.wrapping_mul(0x9e37_79b9) ^ index.wrapping_add(1) << 20);
            if self.config.crash_one_in > 0 && rng.one_in(self.config.crash_one_in) {
                self.arm(disk, &mut rng);
            }
            slow.change(&mut rng);
            match self.operate(&db, &mut snapshots, &mut rng) {
                Ok(()) => {}
                Err(Trouble::Wrong(what)) => return Err(self.told(what)),
                Err(Trouble::Refused(_)) if disk.is_cut() => {}
                // A failed sync has closed the store for writes: the process ends, and another one opens it.
                Err(Trouble::Refused(_)) if disk.faults_struck() > 0 => {
                    drop(snapshots);
                    let left = self.crash(disk);
                    drop(db);
                    return Ok(End::GoOn(left));
                }
                Err(Trouble::Refused(error)) => return Err(self.told(error)),
            }
            if self.config.crash_one_in == 0 && rng.one_in(REOPEN_ONE_IN) {
                break;
            }
        }
        drop(snapshots);
        if disk.is_cut() {
            drop(db);
            return Ok(End::GoOn(self.crash(disk)));
        }
        match db.close() {
            // A clean close, in the middle of a run too: nothing may be lost.
            Ok(()) => self.model.synced(),
            Err(_) if disk.is_cut() || disk.faults_struck() > 0 => return Ok(End::GoOn(self.crash(disk))),
            Err(error) => return Err(self.told(format!("close failed: {error}"))),
        }
        if disk.is_cut() {
            return Ok(End::GoOn(self.crash(disk)));
        }
        // What was armed and not reached is not for the next life.
        disk.cut_at(u64::MAX);
        disk.set_faults(Vec::new());
        Ok(if self.next >= self.config.operations {
            End::Done(disk.clone())
        } else {
            End::GoOn(disk.clone())
        })
    }

    /// Something will go wrong soon.
    fn arm(&self, disk: &SimDisk, rng: &mut Rng) {
        if !rng.one_in(5) {
            disk.cut_at(disk.ops() + rng.below(40));
            return;
        }
        let modes = [SyncFailure::CleanNew, SyncFailure::CleanOld, SyncFailure::Sticky];
        let file = ["log", "log", "manifest", "data", "meta"][rng.below(5) as usize];
        let fails = Effect::SyncFails(modes[rng.below(3) as usize]);
        disk.set_faults(vec![Fault::new(fails).on(OpKind::Sync).named(file).nth(1 + rng.below(3))]);
    }

    /// The disk after the crash: power cut with a random part of what was pending, or a kill.
    fn crash(&mut self, disk: &SimDisk) -> SimDisk {
        let survival = match self.rng.below(8) {
            6.. => {
                // After a failed sync the kernel may show the old bytes again, so a kill may lose what was not synced.
                if disk.faults_struck() > 0 {
                    self.model.cut()
                } else {
                    self.model.killed()
                }
                return disk.kill();
            }
            0 => Survival::None,
            1 => Survival::All,
            _ => Survival::Random,
        };
        self.model.cut();
        disk.after_cut(survival, &mut self.rng)
    }

    fn operate(&mut self, db: &Db, snapshots: &mut Vec<Held>, rng: &mut Rng) -> Result<(), Trouble> {
        match rng.below(100) {
            0..60 => self.write_batch(db, rng),
            60..75 => {
                let key = key(rng);
                let expected = self.model.now()[""].get(&key).cloned();
                same("get", &key, db.get(&key)?.map(|value| value.to_vec()), expected)
            }
            75..82 => self.scan(db, rng),
            82..86 => {
                snapshots.push((db.snapshot()?, self.model.now()[""].clone()));
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
                Ok(())
            }
            86..91 => snapshots.iter().try_for_each(|(snapshot, expected)| {
                let key = key(rng);
                let found = snapshot.get(&key)?.map(|value| value.to_vec());
                same("snapshot", &key, found, expected.get(&key).cloned())?;
                let all = snapshot.scan(Range::all())?;
                let all = all.map(|pair| Ok(pair?.0)).collect::<cuesta::Result<Vec<_>>>()?;
                match all.iter().eq(expected.keys()) {
                    true => Ok(()),
                    false => {
                        let number = snapshot.sequence();
                        let differs = |key: &&Vec<u8>| expected.contains_key(*key) != all.contains(key);
                        let key = all.iter().chain(expected.keys()).find(differs);
                        let key = key.map(|key| key.escape_ascii().to_string());
                        Err(Trouble::Wrong(format!(
                            "the scan of a snapshot at {number} differs, first at {key:?}"
                        )))
                    }
                }
            }),
            91..94 => self.keyspace(db, rng),
            94..96 => {
                db.sync()?;
                self.model.synced();
                Ok(())
            }
            96..98 => {
                db.flush()?;
                self.model.synced();
                Ok(())
            }
            98 => Ok(db.wait_for_background()?),
            _ => match contents(db)? == *self.model.now() {
                true => Ok(()),
                false => Err(Trouble::Wrong("the whole differs".to_owned())),
            },
        }
    }

    fn scan(&self, db: &Db, rng: &mut Rng) -> Result<(), Trouble> {
        let (mut low, mut high) = (key(rng), key(rng));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let limit = if rng.one_in(2) { u64::MAX } else { rng.below(10) };
        let backwards = rng.one_in(2);
        let now = &self.model.now()[""];
        let expected = now.range(low.clone()..high.clone()).map(|(k, v)| (k.clone(), v.clone()));
        let expected: Vec<_> = match backwards {
            true => expected.rev().take(limit as usize).collect(),
            false => expected.take(limit as usize).collect(),
        };
        let scan = db.scan(Range::from(&low[..]..&high[..]).with_limit(limit))?;
        let pair = |pair: cuesta::Result<(Vec<u8>, cuesta::Value)>| pair.map(|(k, v)| (k, v.to_vec()));
        let found = match backwards {
            true => scan.rev().map(pair).collect::<cuesta::Result<Vec<_>>>()?,
            false => scan.map(pair).collect::<cuesta::Result<Vec<_>>>()?,
        };
        match found == expected {
            true => Ok(()),
            false => Err(Trouble::Wrong(format!("a scan differs (backwards: {backwards}, limit {limit})"))),
        }
    }

    fn value(&mut self, rng: &mut Rng) -> Vec<u8> {
        self.version += 1;
        let len = match rng.below(20) {
            0 => 20_000,
            1..4 => 3000,
            // Many of one length: a slot that is free too early must be taken again to be noticed.
            4..10 => 100,
            _ => rng.below(200),
        };
        let mut value = format!("v{}-", self.version).into_bytes();
        value.resize(value.len() + len as usize, b'x');
        value
    }

    /// What became of a step that the model was told of.
    fn settle<T>(&mut self, done: cuesta::Result<T>, durable: bool) -> Result<(), Trouble> {
        match done {
            Ok(_) if durable => self.model.synced(),
            Ok(_) => {}
            Err(error) => {
                // These say that nothing was done; after any other the step may have happened.
                if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Full) {
                    self.model.refused();
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn write_batch(&mut self, db: &Db, rng: &mut Rng) -> Result<(), Trouble> {
        let names: Vec<String> = self.model.now().keys().cloned().collect();
        let keyspaces: BTreeMap<&str, Keyspace> =
            names.iter().filter_map(|name| Some((name.as_str(), db.keyspace(name).ok()??))).collect();
        let mut batch = Batch::new();
        let mut next = self.model.now().clone();
        for _ in 0..1 + rng.below(4) {
            let name = &names[rng.below(names.len() as u64) as usize];
            if rng.one_in(RANGE_ONE_IN) {
                let pairs = next.entry(name.clone()).or_default();
                let low = key(rng);
                let behind = pairs.range(low.clone()..).nth(rng.below(RANGE_KEYS) as usize);
                let high = behind.map(|(key, _)| key.clone()).filter(|_| !rng.one_in(8));
                let range =
                    (Bound::Included(&low[..]), high.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
                match keyspaces.get(name.as_str()) {
                    Some(keyspace) => drop(batch.delete_range_in(keyspace, range).len()),
                    None => drop(batch.delete_range(range).len()),
                }
                pairs.retain(|key, _| *key < low || high.as_ref().is_some_and(|high| key >= high));
                continue;
            }
            let (key, delete) = (key(rng), rng.one_in(4));
            let value = (!delete).then(|| self.value(rng));
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
        if batch.is_empty() {
            // No key was in its ranges, and so it makes nothing durable.
            return Ok(());
        }
        self.model.step(|contents| *contents = next);
        let durability = if rng.one_in(6) { Durability::Sync } else { self.durability };
        let written = db.write_with(batch, durability);
        self.settle(written, durability == Durability::Sync)
    }

    fn keyspace(&mut self, db: &Db, rng: &mut Rng) -> Result<(), Trouble> {
        let name = format!("space{}", rng.below(3));
        // Durable when it returns, and so is every write before it: there is one order of commits.
        let done = match self.model.now().contains_key(&name) {
            true => {
                self.model.step(|contents| drop(contents.remove(&name)));
                db.drop_keyspace(&name)
            }
            false => {
                self.model.step(|contents| drop(contents.insert(name.clone(), BTreeMap::new())));
                db.create_keyspace(&name).map(drop)
            }
        };
        self.settle(done, true)
    }

    /// After a clean close: verification finds nothing, and everything is there.
    fn check_after_all(&mut self, disk: &SimDisk) -> Result<(), String> {
        let sched = Sched::simulated(self.config.seed ^ 0xf1a1);
        let disk = disk.on(&sched);
        let options = options_of(self.config.kind, self.config.seed, self.durability);
        sched.run(|| {
            let report = cuesta::verify_in(&options, world(&sched, &disk, &options), &mut |_| {});
            let report = report.map_err(|error| format!("verification failed: {error}"))?;
            if let Some(problem) = report.problems.first() {
                return Err(format!("verification found: {}", problem.message));
            }
            let db =
                Db::open_in(&options, world(&sched, &disk, &options)).map_err(|error| error.to_string())?;
            let found = contents(&db).map_err(|error| error.to_string())?;
            self.model.synced();
            self.model.rebase(found)
        })
    }
}

/// The smallest run found that fails as `config`'s does: fewer operations first, then operations left out, halves
/// before single ones. `fails` is asked about at most `tries` runs.
pub fn shrink(config: &RunConfig, tries: u64, fails: impl Fn(&RunConfig) -> bool) -> RunConfig {
    let mut best = config.clone();
    let mut left = tries;
    let mut attempt = |candidate: RunConfig, best: &mut RunConfig| {
        let smaller = left > 0 && {
            left -= 1;
            fails(&candidate)
        };
        if smaller {
            *best = candidate;
        }
        smaller
    };
    let (mut low, mut high) = (0, best.operations);
    while low + 1 < high {
        let middle = (low + high) / 2;
        match attempt(RunConfig { operations: middle, ..best.clone() }, &mut best) {
            true => high = middle,
            false => low = middle,
        }
    }
    let mut size = best.operations.div_ceil(2).max(1);
    loop {
        for start in (0..best.operations).step_by(size as usize) {
            let mut skip = best.skip.clone();
            skip.extend(start..(start + size).min(best.operations));
            if skip != best.skip {
                attempt(RunConfig { skip, ..best.clone() }, &mut best);
            }
        }
        if size == 1 {
            return best;
        }
        size = size.div_ceil(2);
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let number = rng.below(KEYS);
    // Lengths differ, and some keys are prefixes of others; the empty key is one.
    match number {
        0 => Vec::new(),
        _ => format!("k{}", number * number % 1000).into_bytes(),
    }
}

fn same(what: &str, key: &[u8], found: Option<Vec<u8>>, expected: Option<Vec<u8>>) -> Result<(), Trouble> {
    let show = |v: &Option<Vec<u8>>| {
        v.as_ref().map_or("nothing".to_owned(), |v| v[..v.len().min(12)].escape_ascii().to_string())
    };
    match found == expected {
        true => Ok(()),
        false => Err(Trouble::Wrong(format!(
            "{what} {}: expected {}, found {}",
            key.escape_ascii(),
            show(&expected),
            show(&found)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_as_text_is_read_back() {
        let skip = BTreeSet::from([1, 5]);
        let config = RunConfig { kind: Kind::PrismDb, seed: 7, operations: 12, crash_one_in: 0, skip };
        assert_eq!(config.to_string(), "profile=prismdb seed=7 operations=12 crash=0 skip=1,5");
        assert_eq!(config.to_string().parse(), Ok(config));
        assert!("seed=x".parse::<RunConfig>().is_err() && "sead=1".parse::<RunConfig>().is_err());
    }

    #[test]
    fn shrinking_leaves_what_the_failure_needs() {
        let config: RunConfig = "seed=7 operations=300 crash=0".parse().unwrap();
        let does = |config: &RunConfig, i: u64| i < config.operations && !config.skip.contains(&i);
        let shrunk = shrink(&config, 10_000, |config| does(config, 17) && does(config, 40));
        assert_eq!(shrunk.operations, 41);
        assert_eq!(shrunk.operations - shrunk.skip.len() as u64, 2);
    }
}
