//! Short scripts, each cut at every one of its I/O operations in every way that a power cut can turn out.

use crate::fixture::{contents, options, small_fast_bytes, world};
use crate::model::Model;
use cuesta::{
    Batch, Compression, Db, Demotion, Durability, ErrorKind, Options, Profile, PromoteReads, Range, Stats,
};
use cuesta_device::sim::{Effect, Fault, Keep, OpKind, SimConfig, SimDisk, Survival, SyncFailure};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;
use std::time::Duration;

/// A script: acts on a store and tells the model.
pub struct Scenario {
    /// Its name, in failures.
    pub name: &'static str,
    /// Runs before power can fail, to bring the store where it is interesting.
    pub before: fn(&mut Actor<'_>),
    /// What is cut.
    pub during: fn(&mut Actor<'_>),
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What a script acts with. Every action is told to the model first. Errors are ignored, since a cut may cause them,
/// but nothing counts as acknowledged after one, and what was refused must have no effect.
#[derive(Debug)]
pub struct Actor<'a> {
    sched: &'a Sched,
    disk: SimDisk,
    options: Options,
    model: &'a mut Model,
    db: Option<Db>,
    /// After how many further operations, counted from `counted_from`, power is cut.
    cut: Option<u64>,
    counted_from: u64,
    /// The store has closed for writes.
    refused: bool,
    /// The first thing that was wrong.
    violation: Option<String>,
    /// What was asked of the disks so far, if it is recorded.
    trace: Vec<String>,
    faults_struck: u64,
}

/// The options of every script: a fast tier that some of them overfill.
fn small() -> Options {
    let mut options = options(3, Durability::Os);
    options.tiers[0].capacity_bytes = small_fast_bytes();
    (options.promote_reads, options.demotion) = (PromoteReads::Always, Demotion::Approx);
    if options.profile != Some(Profile::Leveled) {
        // Guards are small; the sorted log has two levels from a mebibyte on.
        options.level_ratio = 2;
        // Scripts are played once for each operation of theirs.
        options.table_bytes = 64 << 10;
    }
    if has_guards(&options) {
        options.floors_max = Some(4);
        // What scripts fill guards with would else be packed into nothing.
        options.tiers.iter_mut().for_each(|tier| tier.compression = Compression::None);
    }
    options
}

/// Whether there is a store of objects below the memtable.
fn has_objects(options: &Options) -> bool {
    options.profile == Some(Profile::PrismDb)
}

/// Whether guards may have several runs.
fn has_guards(options: &Options) -> bool {
    matches!(options.profile, Some(Profile::Fragmented | Profile::NvLsm))
}

impl<'a> Actor<'a> {
    fn new(sched: &'a Sched, disk: SimDisk, model: &'a mut Model) -> Self {
        let options = small();
        Self {
            sched,
            disk,
            options,
            model,
            db: None,
            cut: None,
            counted_from: 0,
            refused: false,
            violation: None,
            trace: Vec::new(),
            faults_struck: 0,
        }
    }

    /// Opens the store, if it is not, and looks at what it holds.
    pub fn open(&mut self) {
        if self.db.is_some() {
            return;
        }
        let opened = Db::open_in(&self.options, world(self.sched, &self.disk, &self.options));
        let found = opened.as_ref().map_err(Clone::clone).and_then(contents);
        // Who does not know what there is cannot go on.
        let readable = found.is_ok();
        let checked = match found {
            Ok(found) => self.model.rebase(found),
            // A fault or a cut may be the reason; what there is will be seen by the next open.
            Err(error) if self.disk.is_cut() || self.faults_struck + self.disk.faults_struck() > 0 => {
                drop(error);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        self.violation = self.violation.take().or(checked.err());
        self.db = opened.ok().filter(|_| readable);
        self.refused = false;
    }

    /// What became of a step that the model was told of.
    fn settle_step<T>(&mut self, done: cuesta::Result<T>, durable: bool) {
        match done {
            Ok(_) if self.refused => {
                let what = "a write was acknowledged after the store had closed for writes".to_owned();
                self.violation = self.violation.take().or(Some(what));
            }
            Ok(_) if durable => self.model.synced(),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Full) => {
                self.refused |= *error.kind() == ErrorKind::ReadOnly;
                self.model.refused();
            }
            Err(_) => {}
        }
    }

    /// The process dies; what the kernel has lives on.
    pub fn kill(&mut self) {
        if self.disk.is_cut() {
            return;
        }
        let next = self.disk.kill().on(self.sched);
        if let Some(cut) = self.cut {
            let left = cut.saturating_sub(self.disk.ops() - self.counted_from);
            self.arm(&next, left);
        }
        self.record();
        // What is left of the old store ends on the old disk, which nobody looks at any more.
        self.disk = next;
        drop(self.db.take());
    }

    /// Takes down what was asked of the present disk.
    fn record(&mut self) {
        self.trace.extend(self.disk.trace());
        self.faults_struck += self.disk.faults_struck();
    }

    fn arm(&mut self, disk: &SimDisk, cut: u64) {
        (self.cut, self.counted_from) = (Some(cut), disk.ops());
        disk.cut_at(disk.ops() + cut);
    }

    /// A sync of a file whose name contains `name` fails once, from now on.
    pub fn fail_next_sync(&mut self, name: &str, mode: SyncFailure) {
        let fault = Fault::new(Effect::SyncFails(mode)).on(OpKind::Sync).named(name).nth(1);
        self.disk.set_faults(vec![fault]);
    }

    /// Closes it cleanly.
    pub fn close(&mut self) {
        if let Some(db) = self.db.take()
            && db.close().is_ok()
        {
            self.model.synced();
        }
    }

    /// A batch of puts; a value of `None` deletes.
    pub fn write(&mut self, pairs: &[(&str, Option<&[u8]>)], durability: Durability) {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| ("", *key, *value)).collect();
        self.write_in(&pairs, durability);
    }

    /// A batch over keyspaces, the default one under the empty name; not written if one of them is not there.
    pub fn write_in(&mut self, entries: &[(&str, &str, Option<&[u8]>)], durability: Durability) {
        let Some(db) = &self.db else { return };
        let mut batch = Batch::new();
        for (keyspace, key, value) in entries {
            if keyspace.is_empty() {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
                continue;
            }
            let Ok(Some(keyspace)) = db.keyspace(keyspace) else { return };
            match value {
                Some(value) => batch.put_in(&keyspace, key, value),
                None => batch.delete_in(&keyspace, key),
            };
        }
        self.model.step(|contents| {
            for (keyspace, key, value) in entries {
                let all = contents.entry((*keyspace).to_owned()).or_default();
                match value {
                    Some(value) => drop(all.insert(key.as_bytes().to_vec(), value.to_vec())),
                    None => drop(all.remove(key.as_bytes())),
                }
            }
        });
        let done = db.write_with(batch, durability);
        self.settle_step(done, durability == Durability::Sync);
    }

    /// Deletes the keys from one up to before another.
    pub fn delete_range(&mut self, from: &str, to: &str, durability: Durability) {
        let Some(db) = &self.db else { return };
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let mut batch = Batch::new();
        batch.delete_range(from..to);
        self.model.step(|contents| {
            let all = contents.entry(String::new()).or_default();
            all.retain(|key, _| !(from..to).contains(&key.as_slice()));
        });
        let done = db.write_with(batch, durability);
        self.settle_step(done, durability == Durability::Sync);
    }

    /// Takes a snapshot, lets `body` work, and looks whether the snapshot still shows what it did.
    pub fn with_snapshot(&mut self, body: impl FnOnce(&mut Self)) {
        let Some(Ok(snapshot)) = self.db.as_ref().map(Db::snapshot) else { return body(self) };
        let shown = || {
            let scan = snapshot.scan(Range::all())?;
            scan.map(|pair| pair.map(|(k, v)| (k, v.to_vec()))).collect::<cuesta::Result<BTreeMap<_, _>>>()
        };
        let before = shown();
        body(self);
        if let (Ok(before), Ok(after)) = (before, shown())
            && before != after
        {
            self.violation = self.violation.take().or(Some("a snapshot shows something else".to_owned()));
        }
    }

    /// `n` puts of `bytes` bytes under `Os`.
    pub fn fill(&mut self, n: usize, bytes: usize) {
        for i in 0..n {
            self.write(&[(&format!("fill{:03}", i * 37 % 100), Some(&vec![i as u8; bytes]))], Durability::Os);
        }
    }

    /// Looks up some of what [`Actor::fill`] writes, twice, and whether it is what it should be.
    pub fn read(&mut self, keys: std::ops::Range<usize>) {
        for i in keys.clone().chain(keys) {
            let key = format!("fill{:03}", i * 37 % 100);
            let Some(Ok(found)) = self.db.as_ref().map(|db| db.get(&key)) else { return };
            if self.is_disturbed() {
                return;
            }
            let there = self.model.now().get("").and_then(|all| all.get(key.as_bytes()));
            if found.as_deref() != there.map(Vec::as_slice) {
                let what = format!("a read of {key} gives another value than was written");
                self.violation = self.violation.take().or(Some(what));
            }
        }
    }

    /// Something has struck that a script does not go on after.
    fn is_disturbed(&self) -> bool {
        self.disk.is_cut() || self.refused || self.faults_struck + self.disk.faults_struck() > 0
    }

    /// Lets time pass, in which workers find something to do.
    pub fn rest(&mut self) {
        self.sched.sleep(Duration::from_secs(3));
    }

    /// Flushes; whether that was done.
    pub fn flush(&mut self) -> bool {
        let flushed = self.db.as_ref().is_some_and(|db| db.flush().is_ok());
        if flushed {
            self.model.synced();
        }
        flushed
    }

    /// Waits for merges.
    pub fn settle(&mut self) {
        drop(self.db.as_ref().map(Db::wait_for_background));
    }

    /// What the levels below the first look like.
    fn shape(&self) -> Shape {
        let levels = self.db.as_ref().map(|db| db.stats().levels).unwrap_or_default();
        let below = levels.iter().skip(1);
        Shape {
            cuts: below.clone().map(|level| level.guards.saturating_sub(1)).sum(),
            runs: below.map(|level| level.runs).collect(),
        }
    }

    /// Where guards may have several runs: puts of so many bytes, a flush and its merges, once and again until the
    /// levels below the first look like that. Where they never do, the script is none, which is a violation as well.
    fn until(&mut self, (n, bytes): (usize, usize), mut shows: impl FnMut(&Shape) -> bool) {
        const ROUNDS: usize = 24;
        if !has_guards(&self.options) {
            return;
        }
        for _ in 0..ROUNDS {
            if self.db.is_none() || self.refused || self.disk.is_cut() {
                return;
            }
            self.fill(n, bytes);
            self.flush();
            self.settle();
            if shows(&self.shape()) {
                return;
            }
        }
        if !self.is_disturbed() {
            let what = format!("{ROUNDS} rounds did not bring it about: {:?}", self.shape());
            self.violation = self.violation.take().or(Some(what));
        }
    }

    /// Objects were moved to vacate slabs, or the script is none, unless something disturbed it.
    fn moved(&mut self) {
        let objects = self.db.as_ref().and_then(|db| db.stats().objects);
        if !self.is_disturbed() && objects.is_none_or(|objects| objects.moved == 0) {
            self.violation = self.violation.take().or(Some("no slab was vacated".to_owned()));
        }
    }

    /// Syncs.
    pub fn sync(&mut self) {
        if self.db.as_ref().is_some_and(|db| db.sync().is_ok()) {
            self.model.synced();
        }
    }

    /// Makes or drops a keyspace.
    pub fn keyspace(&mut self, name: &str, there: bool) {
        let Some(db) = &self.db else { return };
        let done = match there {
            true => {
                self.model.step(|contents| drop(contents.insert(name.to_owned(), Default::default())));
                db.create_keyspace(name).map(drop)
            }
            false => {
                self.model.step(|contents| drop(contents.remove(name)));
                db.drop_keyspace(name)
            }
        };
        self.settle_step(done, true);
    }
}

const V: Option<&[u8]> = Some(b"value");
/// Objects of which slabs are full where the tier is small.
const SMALL_ONES: usize = 320;

/// What the levels below the first look like.
#[derive(Clone, Debug, Default)]
struct Shape {
    /// Bounds between guards, of all levels.
    cuts: u64,
    /// By level, runs in the guard that has most.
    runs: Vec<u64>,
}

impl Shape {
    /// Runs in the guard that has most.
    fn most(&self) -> u64 {
        self.runs.iter().copied().max().unwrap_or(0)
    }
}

/// Every script.
pub const ALL: &[Scenario] = &[
    Scenario { name: "create", before: |_| {}, during: |a| a.open() },
    Scenario {
        name: "put",
        before: |a| a.open(),
        during: |a| {
            a.write(&[("a", V)], Durability::Sync);
            a.write(&[("b", V)], Durability::Os);
            a.write(&[("a", None)], Durability::Sync);
        },
    },
    Scenario {
        name: "batch",
        before: |a| a.open(),
        during: |a| {
            let large = vec![7; 3000];
            a.write(&[("a", Some(&large)), ("b", Some(&large)), ("c", V)], Durability::Os);
            a.write(&[("a", None), ("b", V), ("d", Some(&large))], Durability::Sync);
        },
    },
    Scenario {
        name: "sync after many",
        before: |a| a.open(),
        during: |a| {
            a.fill(8, 300);
            a.sync();
            a.fill(3, 300);
        },
    },
    Scenario {
        name: "flush",
        before: |a| {
            a.open();
            a.fill(8, 500);
        },
        during: |a| {
            a.flush();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "log rotation and recycling",
        before: |a| {
            a.open();
            a.fill(16, 9000);
            a.settle();
            a.fill(5, 9000);
            // So that there is a log to be recycled.
            a.settle();
            a.sync();
        },
        during: |a| {
            a.fill(6, 9000);
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "compaction",
        before: |a| {
            a.open();
            for _ in 0..3 {
                a.fill(6, 900);
                a.flush();
            }
        },
        during: |a| {
            a.fill(4, 900);
            a.write(&[("fill000", None), ("fill037", None)], Durability::Sync);
            a.flush();
            a.settle();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "keyspace made and dropped",
        before: |a| {
            a.open();
            a.keyspace("old", true);
        },
        during: |a| {
            a.keyspace("new", true);
            a.keyspace("old", false);
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "manifest roll-over",
        before: |a| {
            a.open();
            for i in 0..122 {
                a.keyspace(&long_name(i), true);
            }
        },
        during: |a| {
            for i in 122..127 {
                a.keyspace(&long_name(i), true);
            }
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "clean close and open",
        before: |a| {
            a.open();
            a.fill(6, 300);
        },
        during: |a| {
            a.close();
            a.open();
            a.write(&[("after", V)], Durability::Sync);
            a.close();
        },
    },
    Scenario {
        name: "overwrites and deletes over flushes",
        before: |a| {
            a.open();
            a.write(&[("a", V), ("b", V), ("c", V)], Durability::Sync);
            a.flush();
        },
        during: |a| {
            a.write(&[("a", Some(b"second")), ("b", None)], Durability::Os);
            a.flush();
            a.write(&[("a", Some(b"third")), ("b", V), ("c", None)], Durability::Sync);
            a.flush();
            a.settle();
            a.write(&[("", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "batch over keyspaces",
        before: |a| {
            a.open();
            a.keyspace("one", true);
            a.keyspace("two", true);
        },
        during: |a| {
            a.write_in(&[("one", "a", V), ("two", "a", V), ("", "a", V)], Durability::Os);
            a.write_in(&[("one", "a", None), ("two", "b", V), ("", "b", V)], Durability::Sync);
            a.flush();
            a.write_in(&[("two", "a", None), ("one", "c", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "keyspace with data dropped, made again, merged",
        before: |a| {
            a.open();
            a.keyspace("one", true);
            a.write_in(&[("one", "old", V), ("", "a", V)], Durability::Sync);
            a.flush();
        },
        during: |a| {
            a.keyspace("one", false);
            a.keyspace("one", true);
            a.write_in(&[("one", "new", V)], Durability::Sync);
            a.flush();
            a.settle();
            a.close();
            a.open();
            a.write_in(&[("one", "newer", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "writes of single keys and of several",
        before: |a| {
            a.open();
            a.fill(1, 300);
            // Where single keys go to slots, these are announced by now.
            a.rest();
        },
        during: |a| {
            a.fill(3, 300);
            a.write(&[("a", V)], Durability::Sync);
            a.write(&[("a", None), ("b", V)], Durability::Os);
            a.fill(2, 300);
            a.write(&[("b", None)], Durability::Sync);
            a.flush();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "a kill between writes of single keys",
        before: |a| {
            a.open();
            a.fill(1, 300);
            a.rest();
            a.fill(4, 300);
        },
        during: |a| {
            a.fill(2, 290);
            a.kill();
            a.open();
            a.fill(1, 300);
            a.rest();
            a.fill(3, 310);
            a.write(&[("b", V)], Durability::Sync);
            a.kill();
            a.open();
            a.flush();
        },
    },
    Scenario {
        name: "single keys over several memtables",
        before: |a| {
            a.open();
            a.fill(1, 3000);
            a.rest();
            a.fill(40, 3000);
            a.settle();
        },
        during: |a| {
            a.fill(25, 3000);
            a.write(&[("a", V)], Durability::Sync);
            a.kill();
            a.open();
            a.fill(4, 3000);
            a.close();
            a.open();
        },
    },
    Scenario {
        name: "values larger than a memtable",
        before: |a| a.open(),
        during: |a| {
            // Or as large as there may be any: a store of objects on a small tier takes no larger ones.
            let large = vec![7; a.options.value_bytes_max().min(150_000) as usize - 100];
            a.write(&[("a", Some(&large)), ("b", V)], Durability::Os);
            a.write(&[("a", Some(&large[..large.len() / 3 * 2]))], Durability::Sync);
            a.write(&[("c", Some(&large)), ("d", Some(&large)), ("e", Some(&large))], Durability::Os);
            a.flush();
            a.settle();
        },
    },
    Scenario {
        name: "objects become smaller and larger, and others take their places",
        before: |a| {
            a.open();
            a.fill(20, 900);
            a.flush();
        },
        during: |a| {
            a.fill(20, 100);
            a.flush();
            a.fill(30, 900);
            a.write(&[("fill000", None)], Durability::Sync);
            a.flush();
            a.settle();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "slabs are vacated for what is larger",
        before: |a| {
            a.open();
            if has_objects(&a.options) {
                // Two to a slab, and as many as there is room for.
                small_ones(a, |_| true, Some(&[1; 1500]));
                a.flush();
                a.settle();
            }
        },
        during: |a| {
            if !has_objects(&a.options) {
                return;
            }
            small_ones(a, |i| i % 2 == 0, None);
            a.flush();
            a.fill(24, 3000);
            a.write(&[("small001", Some(b"since")), ("small003", None)], Durability::Os);
            a.flush();
            a.fill(24, 3500);
            a.flush();
            a.moved();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "several logs replayed",
        before: |a| {
            a.open();
            a.fill(24, 9000);
            a.sync();
        },
        during: |a| {
            a.fill(3, 9000);
            a.kill();
            a.open();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "two kills in a row",
        before: |a| {
            a.open();
            a.write(&[("a", V)], Durability::Os);
        },
        during: |a| {
            a.kill();
            a.open();
            a.kill();
            a.open();
            a.write(&[("b", V)], Durability::Sync);
            a.kill();
            a.open();
        },
    },
    Scenario {
        name: "snapshot over a merge",
        before: |a| {
            a.open();
            a.fill(6, 900);
            a.flush();
        },
        during: |a| {
            a.with_snapshot(|a| {
                a.write(&[("fill000", Some(b"changed")), ("fill037", None)], Durability::Sync);
                a.flush();
                a.settle();
            });
        },
    },
    Scenario {
        name: "clean close after a kill",
        before: |a| {
            a.open();
            a.fill(4, 300);
        },
        during: |a| {
            a.kill();
            a.open();
            a.close();
            a.open();
            a.write(&[("b", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "kill, reopen, sync",
        before: |a| {
            a.open();
            a.write(&[("synced", V)], Durability::Sync);
        },
        during: |a| {
            a.write(&[("a", V)], Durability::Os);
            a.kill();
            a.open();
            a.write(&[("b", V)], Durability::Sync);
            a.keyspace("new", true);
            a.kill();
            a.open();
            a.write(&[("c", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "failed sync of the log that kept the new bytes, reopen",
        before: |a| a.open(),
        during: |a| fail_sync_and_reopen(a, "log", SyncFailure::CleanNew),
    },
    Scenario {
        name: "failed sync of the log that went back to the old bytes, reopen",
        before: |a| a.open(),
        during: |a| fail_sync_and_reopen(a, "log", SyncFailure::CleanOld),
    },
    Scenario {
        name: "failed sync of the manifest that kept the new bytes, reopen",
        before: |a| a.open(),
        during: |a| fail_sync_and_reopen(a, "manifest", SyncFailure::CleanNew),
    },
    Scenario {
        name: "failed sync of the manifest that went back to the old bytes, reopen",
        before: |a| a.open(),
        during: |a| fail_sync_and_reopen(a, "manifest", SyncFailure::CleanOld),
    },
    Scenario {
        name: "failed sync of a table, reopen",
        before: |a| a.open(),
        during: |a| fail_sync_and_reopen(a, "data", SyncFailure::CleanNew),
    },
    Scenario {
        name: "failed sync of the superblock, reopen",
        before: |a| {
            a.open();
            a.write(&[("a", V)], Durability::Sync);
            a.close();
        },
        during: |a| {
            a.fail_next_sync("CUESTA", SyncFailure::CleanNew);
            a.open();
            a.kill();
            a.open();
            a.write(&[("b", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "a range deleted over tables and memtables",
        before: |a| {
            a.open();
            a.fill(60, 2000);
            a.flush();
            a.settle();
            a.fill(30, 300);
        },
        during: |a| {
            a.delete_range("fill01", "fill05", Durability::Os);
            a.write(&[("fill020", V), ("fill021", None)], Durability::Os);
            a.flush();
            a.settle();
            a.delete_range("fill04", "fill09", Durability::Sync);
            a.kill();
            a.open();
            a.settle();
            a.fill(20, 500);
            a.flush();
            a.settle();
        },
    },
    Scenario {
        name: "a range deleted beneath a snapshot",
        before: |a| {
            a.open();
            a.fill(60, 1000);
            a.flush();
            a.settle();
        },
        during: |a| {
            a.with_snapshot(|a| {
                a.delete_range("fill02", "fill08", Durability::Os);
                a.fill(10, 200);
                a.flush();
                a.settle();
            });
            a.read(0..60);
            a.rest();
            a.settle();
            a.close();
            a.open();
            a.read(0..60);
        },
    },
    Scenario {
        name: "tables between tiers",
        before: |a| {
            a.open();
            for _ in 0..4 {
                a.fill(16, 9000);
                a.flush();
                a.settle();
            }
            if has_objects(&a.options) {
                below(a);
            }
        },
        during: |a| {
            // Slots take more, before something goes down for it.
            a.fill(if has_objects(&a.options) { 30 } else { 8 }, 9000);
            a.flush();
            a.settle();
            a.write(&[("after", V)], Durability::Sync);
        },
    },
    Scenario {
        name: "what is read comes up",
        before: below,
        during: |a| {
            a.read(0..6);
            a.rest();
            a.write(&[("fill000", None), ("fill037", V)], Durability::Sync);
            a.flush();
            a.read(0..6);
        },
    },
    Scenario {
        name: "what was read is deleted by range while it comes up",
        before: below,
        during: |a| {
            a.read(0..6);
            a.delete_range("fill0", "fill2", Durability::Sync);
            a.flush();
            a.rest();
            a.settle();
            a.read(0..6);
        },
    },
    Scenario {
        name: "long: a sorted log of two levels",
        before: |a| {
            below_twice(a);
            a.write(&[("fill000", None), ("fill037", V)], Durability::Os);
        },
        during: |a| {
            a.fill(3, 30_000);
            a.flush();
            a.settle();
        },
    },
    Scenario {
        name: "unlogged writes",
        before: |a| a.open(),
        during: |a| {
            a.write(&[("u", V)], Durability::Unlogged);
            // What was not logged is in the order of commits only once it is flushed.
            if a.flush() {
                a.write(&[("w", V)], Durability::Sync);
            }
        },
    },
    Scenario {
        name: "long: a run is put on a guard's, or a floor on a tree",
        before: one_run,
        during: |a| a.until((3, 900), |shape| shape.most() > 1),
    },
    Scenario {
        name: "long: a guard's runs, or floors, are merged",
        before: |a| {
            one_run(a);
            a.until((3, 900), |shape| shape.most() > 1);
        },
        during: |a| {
            let mut had = a.shape();
            a.until((6, 2000), |shape| {
                let merged = had.runs.iter().zip(&shape.runs).any(|(had, has)| (1..*had).contains(has));
                had = shape.clone();
                merged
            });
        },
    },
    Scenario {
        name: "long: a guard is cut",
        before: one_run,
        during: |a| {
            let had = a.shape();
            a.until((40, 6000), |shape| shape.cuts > had.cuts);
        },
    },
];

/// Writes, or deletes, those of the small objects, in batches.
fn small_ones(a: &mut Actor<'_>, which: impl Fn(usize) -> bool, value: Option<&[u8]>) {
    let keys: Vec<String> = (0..SMALL_ONES).filter(|i| which(*i)).map(|i| format!("small{i:03}")).collect();
    for keys in keys.chunks(20) {
        let pairs: Vec<(&str, Option<&[u8]>)> = keys.iter().map(|key| (key.as_str(), value)).collect();
        a.write(&pairs, Durability::Os);
    }
}

/// Where guards may have several runs, brings a store to where one is below level 0.
fn one_run(a: &mut Actor<'_>) {
    a.open();
    a.until((20, 6000), |shape| shape.most() > 0);
}

/// Brings a store to where most of what was written is on the capacity tier.
fn below(a: &mut Actor<'_>) {
    a.open();
    a.fill(90, 6000);
    a.flush();
    a.settle();
    a.rest();
}

/// As [`below`], and there is so much of it that the sorted log has two levels.
fn below_twice(a: &mut Actor<'_>) {
    a.open();
    a.fill(80, 30_000);
    a.flush();
    a.settle();
    a.rest();
}

/// A sync fails, the store closes for writes, the process ends, and the next one goes on.
fn fail_sync_and_reopen(a: &mut Actor<'_>, name: &str, mode: SyncFailure) {
    a.write(&[("a", V)], Durability::Sync);
    a.write(&[("b", V)], Durability::Os);
    a.fail_next_sync(name, mode);
    a.sync();
    a.keyspace("maybe", true);
    a.flush();
    a.write(&[("c", V)], Durability::Sync);
    a.kill();
    a.open();
    a.write(&[("d", V)], Durability::Sync);
    a.keyspace("after", true);
    a.write(&[("e", V)], Durability::Sync);
}

/// The scripts in which nothing fails by itself, and that are short enough to be played anew for each fault in each of
/// their operations.
pub fn healthy() -> impl Iterator<Item = &'static Scenario> {
    let is_left_out = |name: &str| name.starts_with("failed sync") || name.starts_with("long: ");
    ALL.iter().filter(move |scenario| !is_left_out(scenario.name))
}

/// Long names fill the manifest with few edits.
fn long_name(i: u32) -> String {
    format!("{i:0200}")
}

/// What one exhaustive cut covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// I/O operations at which power was cut.
    pub points: u64,
    /// Disks that were opened and checked.
    pub images: u64,
}

/// Random outcomes of each cut, besides the listed ones.
const RANDOM_IMAGES: usize = 6;

/// The ways in which a cut with so many pending operations can turn out.
fn survivals(pending: usize) -> Vec<Survival> {
    let mut all = vec![Survival::None, Survival::All];
    for index in 0..pending {
        all.extend([Survival::Only(index), Survival::Without(index)]);
        for (bytes, keep) in
            [(512, Keep::First), (512, Keep::Last), (512, Keep::Alternate), (4096, Keep::First)]
        {
            all.push(Survival::Torn { index, bytes, keep });
        }
    }
    all
}

/// Cuts a scenario at every operation, in every way, and checks what each leaves, opened with a second cut on the
/// way in for one in `second_cut_one_in`.
///
/// # Errors
/// The first violation, with what replays it.
pub fn cut_everywhere(scenario: &Scenario, second_cut_one_in: u64) -> Result<Covered, String> {
    let mut covered = Covered::default();
    for point in 0.. {
        let Some(images) = cut_at(scenario, point, second_cut_one_in)? else { break };
        covered.points += 1;
        covered.images += images;
    }
    Ok(covered)
}

/// As [`cut_everywhere`], at one operation: how many disks were checked; `None` when the script ends before it.
///
/// # Errors
/// The first violation, with what replays it.
pub fn cut_at(scenario: &Scenario, point: u64, second_cut_one_in: u64) -> Result<Option<u64>, String> {
    let told = |what| format!("{}, cut at operation {point}: {what}", scenario.name);
    let Played { disk, model, reached, .. } = play(scenario, Some(point)).map_err(told)?;
    if !reached {
        return Ok(None);
    }
    let mut rng = Rng::new(7 ^ point << 8);
    let mut survivals = survivals(disk.pending_len());
    // And some where several are lost and torn at once.
    survivals.extend([Survival::Random; RANDOM_IMAGES]);
    for survival in &survivals {
        let image = disk.after_cut(*survival, &mut rng);
        let second = rng.one_in(second_cut_one_in).then(|| rng.below(40));
        check(&image, &model, second, &mut rng).map_err(|what| {
            format!(
                "{}, cut at operation {point}, {survival:?}, second cut {second:?}: {what}",
                scenario.name
            )
        })?;
    }
    Ok(Some(survivals.len() as u64))
}

/// How a script that met a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Power is cut, and nothing unsynced survives.
    Cut,
    /// The process dies.
    Kill,
    /// The process dies, another one writes, and then power is cut.
    KillThenCut,
}

/// What is done to a script.
#[derive(Clone, Debug)]
pub struct Play {
    /// What goes wrong, from before the store is opened first.
    pub faults: Vec<Fault>,
    /// How it ends.
    pub end: End,
}

/// Plays a scenario with faults, and checks what is left; whether a fault struck.
///
/// # Errors
/// The violation.
pub fn play_and_check(scenario: &Scenario, play: Play) -> Result<bool, String> {
    let Played { disk, mut model, faults_struck, .. } = play_on(scenario, None, play.faults)?;
    let sched = Sched::simulated(12);
    let image = match play.end {
        End::Cut => {
            disk.cut_now();
            disk.after_cut(Survival::None, &mut Rng::new(1))
        }
        End::Kill => disk.kill(),
        End::KillThenCut => {
            let disk = disk.kill().on(&sched);
            let wrong = sched.run(|| {
                let mut actor = Actor::new(&sched, disk.clone(), &mut model);
                actor.open();
                actor.write(&[("one more", V)], Durability::Sync);
                disk.cut_now();
                actor.violation.take()
            });
            if let Some(what) = wrong {
                return Err(what);
            }
            disk.after_cut(Survival::None, &mut Rng::new(1))
        }
    };
    check(&image, &model, None, &mut Rng::new(1))?;
    Ok(faults_struck > 0)
}

/// What a played scenario leaves.
#[derive(Debug)]
pub struct Played {
    /// The disk, its power off if the cut was reached.
    pub disk: SimDisk,
    /// What it may hold.
    pub model: Model,
    /// Whether the cut was reached.
    pub reached: bool,
    /// All operations, as text, if there was no cut.
    pub trace: Vec<String>,
    /// How often a fault struck.
    pub faults_struck: u64,
    /// What the store said of itself before the second part, and in the end, if it was open.
    pub stats: [Option<Stats>; 2],
}

/// Plays a scenario, with a cut at operation `cut` of its second part.
///
/// # Errors
/// What was wrong before the cut.
pub fn play(scenario: &Scenario, cut: Option<u64>) -> Result<Played, String> {
    play_on(scenario, cut, Vec::new())
}

fn play_on(scenario: &Scenario, cut: Option<u64>, faults: Vec<Fault>) -> Result<Played, String> {
    let sched = Sched::simulated(11);
    let mut model = Model::default();
    let undisturbed = cut.is_none() && faults.is_empty();
    let trace_ops = if undisturbed { usize::MAX } else { 0 };
    let disk = SimDisk::new(&sched, 2, SimConfig { trace_ops, ..SimConfig::default() });
    disk.set_faults(faults);
    let (disk, violation, trace, faults_struck, stats) = sched.run(|| {
        let mut actor = Actor::new(&sched, disk, &mut model);
        (scenario.before)(&mut actor);
        if let Some(cut) = cut {
            actor.arm(&actor.disk.clone(), cut);
        }
        let before = actor.db.as_ref().map(Db::stats);
        (scenario.during)(&mut actor);
        let stats = [before, actor.db.as_ref().map(Db::stats)];
        if undisturbed || cut.is_some() && !actor.disk.is_cut() {
            actor.close();
        }
        actor.record();
        // The store may not tidy up: what comes next is a crash.
        let left = if undisturbed || actor.disk.is_cut() { actor.disk.clone() } else { actor.disk.kill() };
        drop(actor.db.take());
        (left, actor.violation, actor.trace, actor.faults_struck, stats)
    });
    match violation {
        Some(what) => Err(what),
        None => Ok(Played { reached: disk.is_cut(), disk, model, trace, faults_struck, stats }),
    }
}

/// Opens an image, cut again on the way in if asked, and checks that it holds a state that the model allows, and
/// that it does so again after a reopen.
fn check(image: &SimDisk, model: &Model, second_cut: Option<u64>, rng: &mut Rng) -> Result<(), String> {
    let options = small();
    let mut image = image.clone();
    if let Some(after) = second_cut {
        let sched = Sched::simulated(12);
        let disk = image.on(&sched);
        disk.cut_at(disk.ops() + after);
        sched.run(|| drop(Db::open_in(&options, world(&sched, &disk, &options))));
        disk.cut_now();
        image = disk.after_cut(Survival::Random, rng);
    }
    let mut model = model.clone();
    for round in 0..2 {
        let sched = Sched::simulated(13);
        let disk = image.on(&sched);
        sched.run(|| -> Result<(), String> {
            let db = Db::open_in(&options, world(&sched, &disk, &options))
                .map_err(|error| format!("open {round}: {error}"))?;
            let found = contents(&db).map_err(|error| format!("reading: {error}"))?;
            model.rebase(found).map_err(|what| format!("open {round}: {what}"))?;
            // What a reader has been shown must stay, so the next round has no choice left.
            model.synced();
            db.close().map_err(|error| format!("close: {error}"))
        })?;
        image = disk;
    }
    Ok(())
}
