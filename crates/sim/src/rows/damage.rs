//! Rows 8 and 9: bytes that are not what was written. A store that is opened on them refuses, or answers right, or
//! answers with an error; it never answers wrongly and never leaves out silently. Damage to a data part harms no key
//! outside its block.

use crate::fixture::{Shared, contents, options, world};
use crate::model::Contents;
use cuesta::{Db, Durability, MEMORY_NAME, Options, Profile};
use cuesta_device::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};
use std::collections::BTreeMap;

const KEYS: u64 = 60;
const VALUE_BYTES: usize = 300;
/// More entries than a block holds.
const KEYS_PER_BLOCK: usize = 20;
const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// A store at rest, and what it holds.
struct Base {
    name: &'static str,
    disk: SimDisk,
    /// The states that it went through since it was opened last, and the first of them that was durable.
    states: Vec<Contents>,
    durable: usize,
    /// It was closed cleanly, so there is one state and every damaged byte must be found.
    closed: bool,
}

impl Base {
    /// The states that it may open to: all hold what was durable. But where damage `hides_end`, covering all that came
    /// last in its log, what told how far that was durable may be gone too, and a shorter log cannot be told from a
    /// torn one.
    fn allowed(&self, hides_end: bool) -> &[Contents] {
        if hides_end { &self.states } else { &self.states[self.durable..] }
    }
}

struct Bases {
    all: Vec<Base>,
    /// The first of them as it was one clean close earlier, and what it held.
    older: SimDisk,
    /// Another store.
    foreign: SimDisk,
}

fn small() -> Options {
    Options { block_bytes: 4096, ..options(3, Durability::Os) }
}

/// Runs `body` on the store on a copy of `disk`.
fn with_copy<R>(disk: &SimDisk, body: impl FnOnce(&SimDisk, &Sched) -> R) -> R {
    let sched = Sched::simulated(8);
    let disk = disk.kill().on(&sched);
    sched.run(|| body(&disk, &sched))
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn fill(db: &Db, round: u64) -> cuesta::Result<()> {
    fill_and(db, round, &mut || Ok(()))
}

/// As [`fill`], doing something after each write.
fn fill_and(db: &Db, round: u64, then: &mut dyn FnMut() -> cuesta::Result<()>) -> cuesta::Result<()> {
    for i in (0..KEYS).filter(|i| i % (round + 1) == 0) {
        db.put(format!("key{i:03}"), vec![(i * 3 + round) as u8; VALUE_BYTES])?;
        then()?;
    }
    db.delete(format!("key{:03}", round + 7))?;
    then()
}

/// A store as it was when it was first closed, and as it is after some lives more, each with what it held.
fn make(seed: u64) -> Result<[(SimDisk, Contents); 2], String> {
    let sched = Sched::simulated(seed);
    let disk = SimDisk::new(&sched, 2, SimConfig::default());
    let keeps_objects = small().profile == Some(Profile::PrismDb);
    let put_alone = |db: &Db, version: u8| {
        db.put(b"alone", vec![version; 3 * VALUE_BYTES])?;
        db.flush()
    };
    let run = |body: &dyn Fn(&Db) -> cuesta::Result<()>| {
        sched.run(|| {
            let db = Db::open_in(&small(), world(&sched, &disk, &small()))?;
            body(&db)?;
            let found = contents(&db)?;
            db.close().map(|()| found)
        })
    };
    let first = run(&|db| {
        fill(db, 0)?;
        db.flush()?;
        db.wait_for_background()?;
        db.create_keyspace("space")?.put(b"in", b"side")?;
        if keeps_objects { put_alone(db, 1) } else { Ok(()) }
    })
    .map_err(told)?;
    let older = disk.kill();
    // A key's slot is freed, and used again by the same key, which has a slab for itself: only the count of uses tells
    // the older object from the newer.
    if keeps_objects {
        for version in [2, 3] {
            run(&|db| put_alone(db, version)).map_err(told)?;
        }
    }
    let found = run(&|db| {
        fill(db, 1)?;
        db.flush()?;
        fill(db, 2)?;
        db.create_keyspace("more").map(drop)
    })
    .map_err(told)?;
    Ok([(older, first), (disk.kill(), found)])
}

fn bases() -> &'static Result<Bases, String> {
    static BASES: Shared<Result<Bases, String>> = Shared::new();
    BASES.get_or_init(|| {
        let [(older, _), (closed, found)] = make(1)?;
        let [_, (foreign, _)] = make(2)?;
        let mut all =
            vec![Base { name: "closed", disk: closed.kill(), states: vec![found], durable: 0, closed: true }];
        // The same store, opened again, written to and killed.
        let killed = with_copy(&closed, |disk, sched| -> cuesta::Result<Base> {
            let db = Db::open_in(&small(), world(sched, disk, &small()))?;
            let mut states = vec![contents(&db)?];
            fill_and(&db, 3, &mut || contents(&db).map(|state| states.push(state)))?;
            db.sync()?;
            let durable = states.len() - 1;
            for i in 0..5 {
                db.put(format!("late{i}"), b"unsynced")?;
                states.push(contents(&db)?);
            }
            let disk = disk.kill();
            drop(db);
            Ok(Base { name: "killed", disk, states, durable, closed: false })
        });
        all.push(killed.map_err(told)?);
        Ok(Bases { all, older, foreign })
    })
}

/// Makes the stores that the cases damage.
pub(super) fn prepare() {
    stretches();
    astray();
}

/// Opens a damaged store and reads everything, key by key and as a scan. `once` for damage to one read, which hurts
/// only whoever made it; `file` is the one that is damaged, if it is one.
fn look(allowed: &[Contents], disk: &SimDisk, sched: &Sched, file: &str, once: bool) -> Result<bool, String> {
    let Ok(db) = Db::open_in(&small(), world(sched, disk, &small())) else { return Ok(false) };
    let newest = &allowed[allowed.len() - 1];
    // Of the tail of an unclean log any part may be gone; what was durable may not.
    let may_be = |keyspace: &str, key: &[u8], found: Option<&[u8]>| {
        allowed.iter().any(|state| state.get(keyspace).and_then(|c| c.get(key)).map(Vec::as_slice) == found)
    };
    match db.keyspaces() {
        Ok(names) if names.iter().eq(newest.keys().filter(|name| !name.is_empty())) => {}
        Ok(names) => return Err(format!("the keyspaces are {names:?}")),
        Err(_) => {}
    }
    let mut unreadable = 0;
    for (name, pairs) in newest {
        let keyspace = if name.is_empty() { None } else { db.keyspace(name).map_err(told)? };
        let absent: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::from([(b"absent".to_vec(), Vec::new())]);
        for key in pairs.keys().chain(absent.keys()) {
            let found = keyspace.as_ref().map_or_else(|| db.get(key), |keyspace| keyspace.get(key));
            match found {
                Ok(found) if may_be(name, key, found.as_deref()) => {}
                Ok(found) => {
                    let found = found.map(|value| value.len());
                    return Err(format!("{name:?}/{}: found {found:?} bytes", key.escape_ascii()));
                }
                Err(_) => unreadable += 1,
            }
        }
    }
    let in_slab = file.starts_with("slab");
    if (in_slab || file.starts_with("data")) && unreadable > KEYS_PER_BLOCK {
        return Err(format!("damage to one block made {unreadable} keys unreadable"));
    }
    let scanned = contents(&db);
    match if once { scanned.or_else(|_| contents(&db)) } else { scanned } {
        Ok(found) if allowed.contains(&found) => {}
        Ok(_) => return Err("a scan shows a state that never was".to_owned()),
        // A scan looks at each version that lies in a slot or in memory, also where there is a newer one.
        Err(error) if unreadable > 0 || error.to_string().contains("slab-") || file == MEMORY_NAME => {}
        Err(error) => return Err(format!("every key can be read, but a scan fails: {error}")),
    }
    Ok(true)
}

/// Writes everything anew, again and again, and finds it.
fn write_around(disk: &SimDisk, sched: &Sched) -> Result<(), String> {
    let db = Db::open_in(&small(), world(sched, disk, &small())).map_err(told)?;
    let value = |i: u64, round: u64| vec![(i * 5 + round) as u8; VALUE_BYTES];
    for round in 0..4 {
        for i in 0..KEYS {
            db.put(format!("key{i:03}"), value(i, round)).map_err(told)?;
        }
        db.flush().and_then(|()| db.wait_for_background()).map_err(told)?;
        for i in 0..KEYS {
            let found = db.get(format!("key{i:03}")).map_err(told)?;
            if found.as_deref() != Some(&value(i, round)[..]) {
                return Err(format!("key {i} is not what was written"));
            }
        }
    }
    db.close().map_err(told)
}

/// What happens to bytes.
#[derive(Clone, Copy, Debug)]
enum Rot {
    /// One bit of one byte.
    Bit,
    /// A sector or page overwritten.
    Fill(u64, Option<u8>),
    /// A sector that the medium cannot read, nor anything that is asked for together with it.
    Unreadable,
}

const ROTS: [Rot; 6] = [
    Rot::Bit,
    Rot::Fill(SECTOR, Some(0)),
    Rot::Fill(SECTOR, Some(0xff)),
    Rot::Fill(PAGE, Some(0)),
    // Garbage.
    Rot::Fill(SECTOR, None),
    Rot::Unreadable,
];

impl Rot {
    fn unit(self) -> u64 {
        match self {
            Self::Bit => 1,
            Self::Fill(bytes, _) => bytes,
            Self::Unreadable => SECTOR,
        }
    }
}

/// A run of cases: one kind of damage to one file.
struct Stretch {
    base: usize,
    tier: usize,
    file: String,
    rot: Rot,
    cases: u64,
}

fn stretches() -> &'static [Stretch] {
    static STRETCHES: Shared<Vec<Stretch>> = Shared::new();
    STRETCHES.get_or_init(|| {
        let mut out = Vec::new();
        let Ok(bases) = bases() else { return out };
        for (i, base) in bases.all.iter().enumerate() {
            for (tier, rot) in (0..2).flat_map(|tier| ROTS.map(|rot| (tier, rot))) {
                for file in base.disk.files(tier) {
                    // What lies behind all that was ever written of memory is nobody's.
                    let zeros = || {
                        base.disk.read_file(tier, &file.name).iter().rev().take_while(|b| **b == 0).count()
                    };
                    let free = if file.name == MEMORY_NAME { zeros() as u64 } else { 0 };
                    let cases = (file.bytes - free).div_ceil(rot.unit());
                    out.push(Stretch { base: i, tier, file: file.name, rot, cases });
                }
            }
        }
        out
    })
}

pub(super) fn rot_cases() -> u64 {
    stretches().iter().map(|stretch| stretch.cases).sum::<u64>().max(1)
}

pub(super) fn rot_case(mut number: u64) -> Result<u64, String> {
    let bases = bases().as_ref().map_err(Clone::clone)?;
    let Some(stretch) = stretches().iter().find(|stretch| {
        let here = number < stretch.cases;
        number -= if here { 0 } else { stretch.cases };
        here
    }) else {
        return Err("there is no such case".to_owned());
    };
    let (base, tier, file) = (&bases.all[stretch.base], stretch.tier, stretch.file.as_str());
    let at = number * stretch.rot.unit();
    let checked = with_copy(&base.disk, |disk, sched| {
        let before = disk.read_file(tier, file);
        let end = (at + stretch.rot.unit()).min(before.len() as u64);
        match stretch.rot {
            Rot::Bit => disk.flip_bit(tier, file, at, (at * 5 % 8) as u8),
            Rot::Fill(_, byte) => {
                let mut rng = Rng::new(at);
                let garbage = (at..end).map(|_| byte.unwrap_or_else(|| rng.next_u64() as u8));
                disk.overwrite(tier, file, at, &garbage.collect::<Vec<_>>());
            }
            Rot::Unreadable => {
                let reads = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).in_tier(tier).named(file);
                disk.set_faults(vec![reads.touching(at..end).since(1)]);
            }
        }
        let is_unreadable = matches!(stretch.rot, Rot::Unreadable);
        if !is_unreadable && disk.read_file(tier, file) == before {
            return Ok(());
        }
        if base.closed {
            let report = cuesta::verify_in(&small(), world(sched, disk, &small()), &mut |_| {});
            // What is in a slab's free slots, or in free memory, is nobody's; that nothing is missed there, reading
            // shows.
            let is_table = file.starts_with("data-") || file.starts_with("meta-");
            // Nor need anybody read what lies behind the last record.
            let may_be_free = file.starts_with("slab-") || file == MEMORY_NAME || is_unreadable && !is_table;
            if report.is_ok_and(|report| report.problems.is_empty()) && !may_be_free {
                return Err("passes verification".to_owned());
            }
        }
        let is_last = before[end as usize..].iter().all(|byte| *byte == 0);
        let hides_end = matches!(stretch.rot, Rot::Fill(..)) && file.starts_with("log-") && is_last;
        let opens = look(base.allowed(hides_end), disk, sched, file, false)?;
        // Writers without a log stop there: others were promised what lies around.
        if is_unreadable && opens && file.starts_with("slab-") && !small().log_free {
            write_around(disk, sched).map_err(|error| format!("writes do not go on: {error}"))?;
        }
        Ok(())
    });
    let told = |what| {
        format!("{} store, {:?} at byte {at} of {file} of tier {tier}: {what}", base.name, stretch.rot)
    };
    checked.map(|()| 1).map_err(told)
}

/// What happens to blocks and files of the closed store.
#[derive(Clone, Debug)]
enum Astray {
    CutTo(usize, String, u64),
    LongerBy(usize, String, u64),
    Removed(usize, String),
    CopiedAs(usize, String, String),
    Swapped(usize, String, String),
    /// The file of that name of the older state, or of another store.
    FileOf(Whose, usize, String),
    PageOf(Whose, usize, String, u64),
    PagesSwapped(usize, String, u64, u64),
    /// The whole tier; must be refused.
    TierOf(Whose, usize),
    /// The nth read of opening and reading everything.
    Read(Effect, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Older,
    Foreign,
}

impl Bases {
    fn of(&self, whose: Whose) -> &SimDisk {
        match whose {
            Whose::Older => &self.older,
            Whose::Foreign => &self.foreign,
        }
    }
}

fn astray() -> &'static [Astray] {
    static ALL: Shared<Vec<Astray>> = Shared::new();
    ALL.get_or_init(|| {
        let mut out = Vec::new();
        let Ok(bases) = bases() else { return out };
        for tier in 0..2 {
            let files = bases.all[0].disk.files(tier);
            for file in &files {
                let (name, bytes) = (file.name.clone(), file.bytes);
                for end in [0, 1, 63, 64, 511, 512, bytes / 2, bytes - bytes % PAGE, bytes - 1] {
                    out.extend((end < bytes).then(|| Astray::CutTo(tier, name.clone(), end)));
                }
                for more in [1, 64, PAGE, 16 * PAGE] {
                    out.push(Astray::LongerBy(tier, name.clone(), more));
                }
                out.push(Astray::Removed(tier, name.clone()));
                for number in [1, 5, 900] {
                    if let Some((kind, _)) = name.split_once('-') {
                        let copy = format!("{kind}-{number:08}");
                        let taken = files.iter().any(|file| file.name == copy);
                        out.extend((!taken).then(|| Astray::CopiedAs(tier, name.clone(), copy)));
                    }
                }
                for other in files.iter().filter(|other| other.name > name) {
                    out.push(Astray::Swapped(tier, name.clone(), other.name.clone()));
                }
                let pages = bytes.div_ceil(PAGE);
                for whose in [Whose::Older, Whose::Foreign] {
                    if bases.of(whose).files(tier).iter().any(|file| file.name == name) {
                        out.push(Astray::FileOf(whose, tier, name.clone()));
                        out.extend((0..pages).map(|page| Astray::PageOf(whose, tier, name.clone(), page)));
                    }
                }
                for a in 0..pages {
                    out.extend((a + 1..pages).map(|b| Astray::PagesSwapped(tier, name.clone(), a, b)));
                }
            }
            out.extend([Astray::TierOf(Whose::Older, tier), Astray::TierOf(Whose::Foreign, tier)]);
        }
        for nth in 1..200 {
            out.extend([Astray::Read(Effect::StaleRead, nth), Astray::Read(Effect::MisdirectedRead, nth)]);
        }
        out
    })
}

pub(super) fn astray_cases() -> u64 {
    astray().len().max(1) as u64
}

pub(super) fn astray_case(number: u64) -> Result<u64, String> {
    let bases = bases().as_ref().map_err(Clone::clone)?;
    let Some(what) = astray().get(number as usize) else { return Err("there is no such case".to_owned()) };
    let base = &bases.all[0];
    let checked = with_copy(&base.disk, |disk, sched| {
        what.happen(bases, disk);
        let opened = look(base.allowed(false), disk, sched, "", matches!(what, Astray::Read(..)))?;
        match what {
            Astray::TierOf(..) if opened => Err("the store opens".to_owned()),
            _ => Ok(()),
        }
    });
    checked.map(|()| 1).map_err(|wrong| format!("{what:?}: {wrong}"))
}

impl Astray {
    fn happen(&self, bases: &Bases, disk: &SimDisk) {
        match self {
            Self::CutTo(tier, name, end) => {
                disk.write_file(*tier, name, &disk.read_file(*tier, name)[..*end as usize]);
            }
            Self::LongerBy(tier, name, more) => {
                let mut bytes = disk.read_file(*tier, name);
                bytes.resize(bytes.len() + *more as usize, 0x5a);
                disk.write_file(*tier, name, &bytes);
            }
            Self::Removed(tier, name) => disk.remove_file(*tier, name),
            Self::CopiedAs(tier, name, copy) => disk.write_file(*tier, copy, &disk.read_file(*tier, name)),
            Self::Swapped(tier, a, b) => {
                let (of_a, of_b) = (disk.read_file(*tier, a), disk.read_file(*tier, b));
                disk.write_file(*tier, a, &of_b);
                disk.write_file(*tier, b, &of_a);
            }
            Self::FileOf(whose, tier, name) => {
                disk.write_file(*tier, name, &bases.of(*whose).read_file(*tier, name));
            }
            Self::PageOf(whose, tier, name, page) => {
                let (mut bytes, theirs) =
                    (disk.read_file(*tier, name), bases.of(*whose).read_file(*tier, name));
                let (start, end) = ((page * PAGE) as usize, ((page + 1) * PAGE) as usize);
                let end = end.min(bytes.len()).min(theirs.len());
                if start < end {
                    bytes[start..end].copy_from_slice(&theirs[start..end]);
                }
                disk.write_file(*tier, name, &bytes);
            }
            Self::PagesSwapped(tier, name, a, b) => {
                let mut bytes = disk.read_file(*tier, name);
                let (a, b) = ((a * PAGE) as usize, (b * PAGE) as usize);
                let len = (PAGE as usize).min(bytes.len() - b);
                let (front, back) = bytes.split_at_mut(b);
                front[a..a + len].swap_with_slice(&mut back[..len]);
                disk.write_file(*tier, name, &bytes);
            }
            Self::TierOf(whose, tier) => {
                let theirs = bases.of(*whose);
                for file in disk.files(*tier) {
                    disk.remove_file(*tier, &file.name);
                }
                for file in theirs.files(*tier) {
                    disk.write_file(*tier, &file.name, &theirs.read_file(*tier, &file.name));
                }
            }
            Self::Read(effect, nth) => disk.set_faults(vec![Fault::new(*effect).nth(*nth)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_of_thing_goes_astray() {
        let kinds: BTreeSet<String> =
            astray().iter().map(|what| format!("{what:?}").split('(').next().unwrap().to_owned()).collect();
        assert_eq!(kinds.len(), 10, "{kinds:?}");
        assert!(rot_cases() > 30_000 && astray_cases() > 500, "{} {}", rot_cases(), astray_cases());
    }
}
