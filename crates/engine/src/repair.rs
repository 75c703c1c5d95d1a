//! Giving up what is damaged in a closed store, so that the rest can be read and written again: [`repair`].
//!
//! Damage that a store meets while it is open costs what is damaged, and is never made good on its own: a merge that
//! meets a damaged table closes the store for writes, and a store whose tables are missing, or whose live slots cannot
//! be read after a crash, does not open (`docs/durability.md`). What to give up is for a person to say, who may have a
//! copy. So repairing has two halves. The first reads every byte of tables and slots, changes nothing, and tells for
//! each thing that is damaged which versions of which keys are lost with it: what a table has lost, the whole blocks on
//! both sides bound and the manifest counts; whose a slot was, its header tells, or the image of a clean close. The
//! second, if it is asked for, opens the store without what is broken (`engine::mend`).
//!
//! Of a key whose newest version is lost an older one counts again, if there is one: what was deleted may come back.
//!
//! Not repaired: superblocks of which no copy is whole, manifest and log, without which nobody knows what the store
//! was; announced slots of `log_free` that cannot be read; and persistent memory, where what lies on a damaged table
//! points into it. Costs: everything is read once, tables that are damaged three times, and what is left of them is
//! written, for which their tiers need room. Memory: as opening takes; the image's index where slots are damaged; and
//! the list.

use crate::engine::mend::{Broken, BrokenTable};
use crate::engine::open::{self, Found, World};
use crate::engine::store::read_image;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Problem, VerifyProgress, check_logs, here, locked, manifest_goes_on, verify_in};
use crate::format::{FileId, FileKind};
use crate::key::{Cursor, KEYSPACE_BYTES, KeyspaceId, Target};
use crate::options::{Create, Options};
use crate::store::{Holds, Location, Slab, SlabState};
use crate::table::{Gap, Remains};
use crate::version::TableHandle;
use cuesta_device::Cause;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Whether what is damaged is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is only told: nothing is written.
    Tell,
    /// It is given up, and the rest made whole, if no more than so many versions are lost: as many as were told.
    GiveUp(u64),
}

/// A key, and the keyspace that it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyIn {
    /// The keyspace's name; of one that was dropped, its number.
    pub keyspace: String,
    /// The key.
    pub key: Vec<u8>,
}

impl fmt::Display for KeyIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keyspace, key } = self;
        write!(f, "\"{}\" of keyspace {keyspace}", key.escape_ascii())
    }
}

/// What is lost where something is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing: all that was there can be read, and what leads to it is made anew.
    Nothing,
    /// A version of this key.
    Key(KeyIn),
    /// Versions of keys from the first of these up to the second, both included; of several keyspaces, in the order in
    /// which they were made.
    Keys(KeyIn, KeyIn),
    /// So many versions of some keys: nobody can tell which.
    Unknown(u64),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing is lost"),
            Self::Key(key) => write!(f, "lost: a version of {key}"),
            Self::Keys(first, last) => write!(f, "lost: versions of keys from {first} up to {last}"),
            Self::Unknown(versions) => {
                write!(f, "lost: versions of some keys, {versions} of them, nobody can tell which")
            }
        }
    }
}

/// Something that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What was found, with file and place.
    pub message: String,
    /// What is lost with it.
    pub lost: Lost,
}

/// What a repair found, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Tables and slabs that were looked at.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Empty where there is nothing to repair, and only there.
    pub damages: Vec<Damage>,
    /// How many versions are lost: values and tombstones, of one key perhaps several.
    pub versions_lost: u64,
    /// Whether the store was made whole without them.
    pub repaired: bool,
    /// What is wrong after that, by a verification: nothing, unless the medium goes on failing.
    pub left: Vec<Problem>,
}

/// Finds out what is damaged in a closed store, and gives it up if `what` says so.
///
/// # Errors
/// `Locked`, `NotFound`, `Io`, `Invalid`; `Corrupt` where manifest, log, superblocks or announced slots are damaged,
/// which nothing is known to replace, and `Unsupported` where persistent memory is; `Full` where there is no room for
/// what is left of tables. Nothing is given up then: what fails once it is, the report has.
pub fn repair(
    options: &Options,
    what: Repair,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<RepairReport> {
    let (options, world) = here(options)?;
    repair_in(&options, world, what, progress)
}

/// As [`repair`], in a world that is handed in.
pub fn repair_in(
    options: &Options,
    world: World,
    what: Repair,
    progress: &mut dyn FnMut(&VerifyProgress),
) -> Result<RepairReport> {
    let options = Options { create: Create::Never, ..options.clone() };
    options.validate()?;
    let (tiers, locks) = locked(&options, &world)?;
    let beyond = |error: Error| match error.is_damage() {
        true => error.context("this cannot be repaired"),
        false => error,
    };
    let found = open::find_any(&options, &world, tiers, locks).map_err(beyond)?;
    check_logs(&found).map_err(beyond)?;
    found.check_announced().map_err(beyond)?;
    let mut survey = Survey::new(&found, progress);
    survey.tables()?;
    survey.slabs()?;
    let Survey { broken, mut report, .. } = survey;
    let agreed = match what {
        Repair::GiveUp(agreed) if !broken.is_empty() => agreed,
        _ => return Ok(report),
    };
    // A medium that is not well may be able to read less each time.
    if report.versions_lost > agreed {
        let lost = report.versions_lost;
        return Err(Error::invalid(format!(
            "with what is damaged {lost} versions are lost, and it was agreed to {agreed}; nothing was given up"
        )));
    }
    let opened = found.open(options.clone(), world.clone(), Some(&broken));
    report.repaired = broken.is_given_up.get().is_some();
    let closed = match opened {
        Err(error) if !report.repaired => return Err(error),
        // It is done, whatever has failed since.
        opened => opened.and_then(|(engine, _locks)| engine.close()),
    };
    match closed.and_then(|()| verify_in(&options, world, progress)) {
        Ok(verified) => report.left = verified.problems,
        Err(error) => {
            report.left.push(Problem { file: String::new(), offset: 0, message: error.to_string() });
        }
    }
    Ok(report)
}

/// Where something is missing: what is wrong there, and the whole keys before and behind it.
type Missing = (String, Option<Vec<u8>>, Option<Vec<u8>>);

/// How many entries of a table's data part can be read, and where others are missing.
fn read_remains(file: FileId, remains: &mut Remains, largest: &[u8]) -> Result<(u64, Vec<Missing>)> {
    let mut last = None;
    remains.go(Target::First)?;
    while let Some(entry) = remains.entry() {
        let last: &mut Vec<u8> = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(entry.key);
        remains.next()?;
    }
    let told = |gap: &Gap| {
        let Gap { bytes, why, between: (before, behind) } = gap;
        let message = format!("{file} at bytes {} to {}: {why}", bytes.start, bytes.end);
        (message, before.clone(), behind.clone())
    };
    let mut gaps: Vec<Missing> = remains.gaps().iter().map(told).collect();
    // It may be cut where a block ended.
    let ends = remains.gaps().last().is_some_and(|gap| gap.between.1.is_none());
    if gaps.is_empty() || last.as_deref() != Some(largest) && !ends {
        gaps.push((format!("{file} may end too early"), last, None));
    }
    Ok((remains.entries(), gaps))
}

/// A live slot that cannot be read, with its key if that can.
struct Unreadable {
    slab: u64,
    slot: u32,
    message: String,
    key: Option<Vec<u8>>,
}

/// A store, read to find what is damaged.
struct Survey<'a> {
    found: &'a Found,
    broken: Broken,
    report: RepairReport,
    told: VerifyProgress,
    progress: &'a mut dyn FnMut(&VerifyProgress),
}

impl<'a> Survey<'a> {
    fn new(found: &'a Found, progress: &'a mut dyn FnMut(&VerifyProgress)) -> Self {
        let tables = found.catalog.version.tables().map(|table| table.meta.bytes());
        let slabs = found.catalog.slabs.values().map(|slab| slab.meta.file_bytes());
        let bytes_total = tables.chain(slabs).fold(0, u64::saturating_add);
        let files = found.catalog.version.tables().count() * 2 + found.catalog.slabs.len();
        let report = RepairReport { files: files as u64, bytes: bytes_total, ..RepairReport::default() };
        let told = VerifyProgress { file: String::new(), bytes_done: 0, bytes_total };
        Self { found, broken: Broken::default(), report, told, progress }
    }

    fn at(&mut self, file: FileId) {
        self.told.file = file.to_string();
        (self.progress)(&self.told);
    }

    fn done(&mut self, bytes: u64) {
        self.told.bytes_done = self.told.bytes_done.saturating_add(bytes);
        (self.progress)(&self.told);
    }

    /// A key as people know it.
    fn name(&self, key: &[u8]) -> KeyIn {
        let id = KeyspaceId::of(key).unwrap_or(KeyspaceId::DEFAULT);
        let keyspaces = self.found.catalog.keyspaces.values().chain([&self.found.catalog.default_keyspace]);
        let name = keyspaces.into_iter().find(|keyspace| keyspace.id == id).map(|found| found.name.clone());
        let keyspace = name.unwrap_or_else(|| format!("{} (dropped)", id.0));
        KeyIn { keyspace, key: key.get(KEYSPACE_BYTES..).unwrap_or_default().to_vec() }
    }

    fn tables(&mut self) -> Result<()> {
        let version = self.found.catalog.version.clone();
        for (level, of) in version.levels.iter().enumerate() {
            for (run, table) in of.runs().flat_map(|run| run.tables.iter().map(move |table| (run, table))) {
                self.table(table, level as u32, run.age)?;
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Arc<TableHandle>, level: u32, age: u64) -> Result<()> {
        let meta = &table.meta;
        let file = FileId::new(FileKind::Data, meta.number);
        self.at(file);
        let checked = self.check(table);
        self.done(meta.bytes());
        let why = match checked {
            Err(why) if why.is_damage_of_named() => why.to_string(),
            checked => return checked,
        };
        if meta.memory.is_some() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{why}; what lies on a damaged table in persistent memory points into it, so that this cannot be \
                     repaired: `dump` prints what can be read"
                ),
            ));
        }
        let (entries, gaps) = match self.found.remains_of(table, Cause::Verify) {
            // What has taken its place may be named by an end of the manifest that is damaged, and is not an orphan
            // then.
            Err(missing) if missing.is_corrupt() && manifest_goes_on(self.found)? => {
                return Err(missing.context(
                    "this cannot be repaired: there are bytes behind the last whole record of the manifest, which may have \
                     been of a change that this belongs to",
                ));
            }
            Err(missing) if missing.is_corrupt() => (None, vec![(missing.to_string(), None, None)]),
            remains => {
                let (entries, gaps) = read_remains(file, &mut remains?, &meta.largest)?;
                (Some(entries), gaps)
            }
        };
        let lost = meta.entries.saturating_sub(entries.unwrap_or(0));
        if lost == 0 {
            self.report.damages.push(Damage { message: why, lost: Lost::Nothing });
        } else {
            for (message, first, last) in gaps {
                let first = first.as_ref().unwrap_or(&meta.smallest);
                let lost = Lost::Keys(self.name(first), self.name(last.as_ref().unwrap_or(&meta.largest)));
                self.report.damages.push(Damage { message, lost });
            }
        }
        self.report.versions_lost = self.report.versions_lost.saturating_add(lost);
        self.broken.tables.push(BrokenTable { table: table.clone(), level, age, entries });
        Ok(())
    }

    /// Reads every byte of a table.
    fn check(&mut self, table: &Arc<TableHandle>) -> Result<()> {
        for (tier, file, bytes) in table.meta.parts() {
            let device = self.found.tiers.open_table_file(tier, file)?;
            let len = device.len().map_err(|source| Error::io(format!("measure {file}"), source))?;
            if len != bytes && table.meta.memory.is_none() {
                let why = format!("the file has {len} bytes; it was written with {bytes}");
                return Err(Error::corrupt(file.to_string(), len, why));
            }
        }
        // As in a verification: through the handle first.
        table.table()?;
        table.open(Cause::Verify, Cause::Verify)?.verify(&mut |_| {})
    }

    fn slabs(&mut self) -> Result<()> {
        let (found, mut damaged) = (self.found, Vec::new());
        let (garbage, store) = (&found.tables.garbage, found.tables.store);
        for SlabState { meta, live, generations } in found.catalog.slabs.values() {
            self.at(meta.file());
            let slab = Slab::open_what_is_left(&found.tiers, garbage, store, *meta, generations)?;
            if let Some(why) = slab.flaw() {
                let is_lost = slab.lost().is_some();
                let kind = if is_lost { &mut self.broken.lost_slabs } else { &mut self.broken.flawed_slabs };
                kind.insert(meta.number);
                // Of what was in it each slot is told.
                if !is_lost || live.count() == 0 {
                    self.report.damages.push(Damage { message: why.to_string(), lost: Lost::Nothing });
                }
            }
            let slots: Vec<u32> = live.iter().collect();
            slab.read_slots(&found.tiers, &slots, Cause::Verify, &mut |slot, bytes| {
                let key = bytes.as_ref().ok().and_then(|bytes| slab.decode_head(slot, bytes).ok());
                let key = key.map(|head| head.key.to_vec());
                if let Err(why) = bytes.and_then(|bytes| slab.decode(slot, bytes)) {
                    damaged.push(Unreadable { slab: meta.number, slot, message: why.to_string(), key });
                }
            })?;
            self.done(meta.file_bytes());
        }
        let mut known = if damaged.is_empty() { BTreeMap::new() } else { self.in_image(&damaged) };
        // The slab of the last whose key nobody can tell: those that follow are told with it.
        let mut with = None;
        for Unreadable { slab, slot, message, key } in damaged {
            let lost = match (known.remove(&(slab, slot)), key) {
                // The table that has the original is looked at by itself.
                (Some((_, Holds::Copy)), _) => Lost::Nothing,
                (Some((key, _)), _) | (None, Some(key)) => Lost::Key(self.name(&key)),
                (None, None) => Lost::Unknown(1),
            };
            self.broken.slots.entry(slab).or_default().insert(slot);
            self.report.versions_lost += u64::from(lost != Lost::Nothing);
            let before = self.report.damages.last_mut().filter(|_| with == Some(slab));
            with = (lost == Lost::Unknown(1)).then_some(slab);
            match before {
                Some(Damage { lost: Lost::Unknown(versions), .. }) if with.is_some() => *versions += 1,
                _ => self.report.damages.push(Damage { message, lost }),
            }
        }
        Ok(())
    }

    /// Whose these slots are, and what they hold, if an image tells.
    fn in_image(&self, slots: &[Unreadable]) -> BTreeMap<(u64, u32), (Vec<u8>, Holds)> {
        let asked: BTreeSet<(u64, u32)> = slots.iter().map(|found| (found.slab, found.slot)).collect();
        let mut known = BTreeMap::new();
        let catalog = &self.found.catalog;
        let read = |image| {
            read_image(&self.found.tiers, self.found.tables.store, image, &catalog.slabs, Cause::Verify)
        };
        let index = catalog.image.and_then(|image| read(image).ok()).and_then(|image| image.index);
        let Some(index) = index else { return known };
        let (mut at, mut key) = (index.first(), Vec::new());
        while let Some(Location { slab, slot, holds }) = index.entry_to(at, &mut key) {
            if asked.contains(&(slab, slot)) {
                known.insert((slab, slot), (key.clone(), holds));
            }
            at = index.next(at);
        }
        known
    }
}
