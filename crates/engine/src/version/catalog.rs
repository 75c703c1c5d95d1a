//! Everything the manifest says: the present version, the keyspaces, where the log starts, which numbers were used.
//! Guarded by one short lock in the engine; no I/O happens under it.

use super::edit::{AddedTable, Edit};
use super::{Applied, Present, TableHandle, Tables, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{KeyspaceId, Seq};
use crate::memory::Holder;
use crate::planted::{self, Bug};
use crate::profile::Profile;
use crate::store::{Generations, SlabMeta, SlabState, SlotRun, Slots};
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// Longest name of a keyspace, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A keyspace that exists, or existed when a handle to it was taken.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    dropped: AtomicBool,
    /// What it was asked, since it was made.
    pub(crate) gets: AtomicU64,
    pub(crate) written: AtomicU64,
    /// The sum of both that an edit has told last.
    told: AtomicU64,
}

/// Memory that a keyspace takes: its name twice, its state, its place in the map.
fn keyspace_bytes(name: &str) -> u64 {
    2 * name.len() as u64 + 256
}

impl KeyspaceState {
    pub(crate) fn new(id: KeyspaceId, name: &str) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: name.to_owned(),
            dropped: AtomicBool::new(false),
            gets: AtomicU64::new(0),
            written: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// What it was asked: its id, keys looked up, entries written.
    fn asked(&self) -> (u32, u64, u64) {
        (self.id.0, self.gets.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }

    /// Takes up what an edit tells, which may be behind what has been counted since.
    fn was_asked(&self, gets: u64, written: u64) {
        self.gets.fetch_max(gets, Ordering::Relaxed);
        self.written.fetch_max(written, Ordering::Relaxed);
        self.told.store(gets + written, Ordering::Relaxed);
    }

    /// # Errors
    /// `NotFound` once the keyspace was dropped.
    pub(crate) fn check(&self) -> Result<()> {
        match self.dropped.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::NotFound, format!("the keyspace {:?} was dropped", self.name))),
        }
    }
}

/// What exists, and what numbers are free.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) version: Arc<Version>,
    /// The tables of that version.
    present: Present,
    pub(crate) log_start: u64,
    pub(crate) next_file: u64,
    pub(crate) last_seq: Seq,
    pub(crate) next_keyspace: u32,
    pub(crate) keyspaces: BTreeMap<String, Arc<KeyspaceState>>,
    pub(crate) default_keyspace: Arc<KeyspaceState>,
    /// Memory that they take.
    keyspace_bytes: u64,
    /// Ids of dropped keyspaces whose entries may still lie in tables.
    pub(crate) dead: BTreeSet<u32>,
    pub(crate) counters: Vec<u8>,
    pub(crate) times: Vec<u8>,
    /// What the store was made as, and must be opened as.
    pub(crate) profile: Profile,
    /// The slabs of the store below the memtable.
    pub(crate) slabs: BTreeMap<u64, SlabState>,
    /// Of slabs that are being made: no edit names them yet.
    begun: BTreeMap<u64, Weak<Generations>>,
    /// Slots that may hold objects that no edit takes yet, by slab.
    pub(crate) announced: BTreeMap<u64, Slots>,
    /// Numbers up to this mean nothing in such a slot, or in a log.
    pub(crate) flushed: Seq,
    /// The image of all this, if nothing has changed since it was written.
    pub(crate) image: Option<u64>,
}

/// What an edit makes of what exists.
pub(crate) struct Fitting {
    /// Slabs that it changes, and what of each is announced then.
    slabs: BTreeMap<u64, SlabState>,
    announced: BTreeMap<u64, Slots>,
    applied: Option<Applied>,
}

/// What an edit leaves without a use.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// Tables that are in no later version.
    pub(crate) obsolete: Vec<Arc<TableHandle>>,
    /// Tables of which later versions have a part on another tier, and how they have them.
    pub(crate) relocated: Vec<(Arc<TableHandle>, Arc<TableHandle>)>,
}

impl Gone {
    /// Their files go with their last holders.
    pub(crate) fn mark(&self) {
        self.obsolete.iter().for_each(|table| table.mark_obsolete());
        self.relocated.iter().for_each(|(table, newer)| table.mark_relocated(newer));
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            version: Arc::default(),
            present: Present::new(),
            log_start: 0,
            next_file: 1,
            last_seq: Seq(0),
            next_keyspace: 1,
            keyspaces: BTreeMap::new(),
            default_keyspace: KeyspaceState::new(KeyspaceId::DEFAULT, "default"),
            keyspace_bytes: 0,
            dead: BTreeSet::new(),
            counters: Vec::new(),
            times: Vec::new(),
            profile: Profile::Leveled,
            slabs: BTreeMap::new(),
            begun: BTreeMap::new(),
            announced: BTreeMap::new(),
            flushed: Seq(0),
            image: None,
        }
    }
}

/// The slabs that an edit changes, as they are after it.
///
/// # Errors
/// `Internal` when it names a slab or a slot that is not there, or not so.
fn changed_slabs(catalog: &Catalog, edit: &Edit) -> Result<BTreeMap<u64, SlabState>> {
    let slabs = &catalog.slabs;
    let refuse = |slab: u64, why: &str| Err(Error::internal(format!("an edit of slab {slab}: {why}")));
    let mut changed = BTreeMap::new();
    for meta in &edit.slabs_added {
        let begun = catalog.begun.get(&meta.number).and_then(Weak::upgrade);
        let generations = begun.unwrap_or_else(|| Arc::new(Generations::new(meta.slots)));
        let state = SlabState { meta: *meta, live: Slots::default(), generations };
        if slabs.contains_key(&meta.number) || changed.insert(meta.number, state).is_some() {
            return refuse(meta.number, "it is there already");
        }
    }
    let all = [(&edit.freed, false), (&edit.taken, true)];
    for (run, takes) in all.into_iter().flat_map(|(runs, takes)| runs.iter().map(move |run| (run, takes))) {
        let slab = run.slab;
        let SlabState { meta, live, .. } = match changed.entry(slab) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(new) => match slabs.get(&slab) {
                Some(found) => new.insert(found.clone()),
                None => return refuse(slab, "it is not there"),
            },
        };
        let verb = if takes { "taken" } else { "freed" };
        if run.end().is_none_or(|end| end > meta.slots) {
            return refuse(slab, &format!("slots past its end are {verb}"));
        }
        for slot in run.slots() {
            if !(if takes { live.insert(slot) } else { live.remove(slot) }) {
                return refuse(slab, &format!("slot {slot} cannot be {verb}"));
            }
        }
    }
    for run in &edit.wasted {
        let Some(SlabState { meta, live, .. }) = changed.get(&run.slab).or_else(|| slabs.get(&run.slab))
        else {
            return refuse(run.slab, "it is not there");
        };
        if run.end().is_none_or(|end| end > meta.slots) || run.slots().any(|slot| live.contains(slot)) {
            return refuse(run.slab, "slots that are live, or past its end, are wasted");
        }
    }
    for slab in &edit.slabs_removed {
        let live = changed.get(slab).or_else(|| slabs.get(slab)).map(|slab| slab.live.count());
        if live != Some(0) {
            return refuse(*slab, &format!("it is removed with {live:?} live slots"));
        }
    }
    Ok(changed)
}

/// The slabs whose announced slots an edit changes, and these after it; `slabs` are those that it changes otherwise.
///
/// # Errors
/// `Internal` when it announces a slot that is live or announced, takes one that is announced, or withdraws one that is
/// not.
fn changed_announcements(
    catalog: &Catalog,
    slabs: &BTreeMap<u64, SlabState>,
    edit: &Edit,
) -> Result<BTreeMap<u64, Slots>> {
    let mut changed: BTreeMap<u64, Slots> = BTreeMap::new();
    let all = [(&edit.withdrawn, false), (&edit.announced, true)];
    for (run, announces) in all.into_iter().flat_map(|(runs, adds)| runs.iter().map(move |run| (run, adds))) {
        let number = run.slab;
        let refuse =
            |why: &str| Err(Error::internal(format!("an edit of announced slots of slab {number}: {why}")));
        let slots = changed
            .entry(number)
            .or_insert_with(|| catalog.announced.get(&number).cloned().unwrap_or_default());
        let Some(SlabState { meta, live, .. }) = slabs.get(&number).or_else(|| catalog.slabs.get(&number))
        else {
            return refuse("it is not there");
        };
        if run.end().is_none_or(|end| end > meta.slots) {
            return refuse("slots past its end");
        }
        for slot in run.slots() {
            let is_right =
                if announces { !live.contains(slot) && slots.insert(slot) } else { slots.remove(slot) };
            if !is_right {
                return refuse(&format!(
                    "slot {slot} cannot be {}",
                    if announces { "announced" } else { "withdrawn" }
                ));
            }
        }
    }
    let announced = |slab: u64| changed.get(&slab).or_else(|| catalog.announced.get(&slab));
    for run in edit.taken.iter().chain(&edit.wasted) {
        if announced(run.slab).is_some_and(|slots| run.slots().any(|slot| slots.contains(slot))) {
            return Err(Error::internal(format!(
                "an edit takes or wastes announced slots of slab {}",
                run.slab
            )));
        }
    }
    if let Some(slab) =
        edit.slabs_removed.iter().find(|slab| announced(**slab).is_some_and(|slots| slots.count() > 0))
    {
        return Err(Error::internal(format!("an edit removes slab {slab}, of which slots are announced")));
    }
    Ok(changed)
}

impl Catalog {
    /// Every announced slot, by place.
    pub(crate) fn announced_runs(&self) -> Vec<SlotRun> {
        self.announced.iter().flat_map(|(slab, slots)| slots.runs(*slab)).collect()
    }

    /// A number for a new file.
    pub(crate) fn take_file_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    /// A number for a new slab, and the generations of its slots, which are to be the slab's.
    pub(crate) fn begin_slab(&mut self, meta: &mut SlabMeta) -> Arc<Generations> {
        meta.number = self.take_file_number();
        let generations = Arc::new(Generations::new(meta.slots));
        self.begun.insert(meta.number, Arc::downgrade(&generations));
        generations
    }

    /// The next use of every free slot begins: what a crash kept from being named may lie there.
    pub(crate) fn begin_uses_of_free_slots(&self) {
        for (number, slab) in &self.slabs {
            let announced = self.announced.get(number);
            let is_announced = |slot| announced.is_some_and(|announced| announced.contains(slot));
            let is_free = |slot: &u32| !slab.live.contains(*slot) && !is_announced(*slot);
            (0..slab.meta.slots).filter(is_free).for_each(|slot| slab.generations.advance(slot));
        }
    }

    /// The next uses of slots begin that an edit takes, wastes or announces. Its new slabs are there by now, its
    /// announcements are not.
    fn begin_uses(&self, edit: &Edit) {
        let uses = [(&edit.taken, true), (&edit.wasted, true), (&edit.announced, false)];
        for (run, writes) in
            uses.into_iter().flat_map(|(runs, writes)| runs.iter().map(move |run| (run, writes)))
        {
            // What was announced before is written to in the use that began then.
            let announced = self.announced.get(&run.slab).filter(|_| writes);
            let Some(slab) = self.slabs.get(&run.slab) else { continue };
            let begins = |slot: &u32| !announced.is_some_and(|announced| announced.contains(*slot));
            run.slots().filter(begins).for_each(|slot| slab.generations.advance(slot));
        }
        for (slab, counts) in &edit.generations {
            if let Some(slab) = self.slabs.get(slab) {
                slab.generations.set(counts);
            }
        }
    }

    /// Takes an edit in that was read, or that an open is about to commit. Returns the tables that it removed for good,
    /// and those of which it has a part elsewhere.
    ///
    /// # Errors
    /// `Internal` when it does not fit what exists; nothing changed then.
    pub(crate) fn apply(&mut self, edit: &Edit, tables: &Arc<Tables>) -> Result<Gone> {
        let fitting = self.fit(edit, tables)?;
        Ok(self.take_in(edit, fitting, tables))
    }

    /// What an edit makes of what exists, for [`Catalog::take_in`]: nothing changes yet. Who commits one finds out so
    /// before it is durable.
    ///
    /// # Errors
    /// `Internal` when it does not fit.
    pub(crate) fn fit(&self, edit: &Edit, tables: &Arc<Tables>) -> Result<Fitting> {
        let slabs = changed_slabs(self, edit)?;
        let announced = changed_announcements(self, &slabs, edit)?;
        let guards = [&edit.guards_added, &edit.guards_removed];
        let changes_guards = guards.iter().any(|guards| !guards.is_empty());
        let changes_ranges = !edit.ranges_added.is_empty() || !edit.ranges_removed.is_empty();
        let changes_tables = !edit.added.is_empty() || !edit.removed.is_empty();
        let applied = (changes_tables || changes_guards || changes_ranges)
            .then(|| self.version.apply(edit, tables, &self.present))
            .transpose()?;
        Ok(Fitting { slabs, announced, applied })
    }

    /// Takes an edit in, whose `fitting` was made of what exists now, but for files and slabs that were begun since.
    /// Returns the tables that it removed for good, and those of which it has a part elsewhere; who commits a new edit,
    /// rather than reading an old one, marks them so.
    pub(crate) fn take_in(&mut self, edit: &Edit, fitting: Fitting, tables: &Arc<Tables>) -> Gone {
        let mut gone = Gone::default();
        let Fitting { slabs, announced, applied } = fitting;
        if let Some(Applied { version, removed, added }) = applied {
            for (number, (_, table)) in removed {
                self.present.remove(&number);
                match added.get(&number) {
                    None => gone.obsolete.push(table),
                    Some((_, newer)) if newer.meta.parts() != table.meta.parts() => {
                        gone.relocated.push((table, newer.clone()));
                    }
                    Some(_) => {}
                }
            }
            self.present.extend(added);
            self.version = Arc::new(version);
            tables.cache.memory().set(Holder::RangeTombstones, self.version.range_tombstones.bytes());
        }
        self.slabs.extend(slabs);
        self.begin_uses(edit);
        self.slabs.retain(|number, _| !edit.slabs_removed.contains(number));
        self.begun.retain(|number, begun| !self.slabs.contains_key(number) && begun.strong_count() > 0);
        self.announced.extend(announced);
        self.announced.retain(|_, slots| slots.count() > 0);
        self.flushed = edit.flushed.unwrap_or_default().max(self.flushed);
        self.profile = edit.profile.unwrap_or(self.profile);
        self.image = edit.image.or(self.image.filter(|_| planted::has(Bug::OldImageBelieved)));
        for id in &edit.dropped {
            self.dead.insert(*id);
            if let Some(state) = self.keyspaces.values().find(|state| state.id.0 == *id) {
                state.dropped.store(true, Ordering::Release);
                let name = state.name.clone();
                self.keyspaces.remove(&name);
                self.keyspace_bytes -= keyspace_bytes(&name);
            }
        }
        for (id, name) in &edit.created {
            self.keyspaces.insert(name.clone(), KeyspaceState::new(KeyspaceId(*id), name));
            self.keyspace_bytes += keyspace_bytes(name);
        }
        tables.cache.memory().set(Holder::Keyspaces, self.keyspace_bytes);
        self.next_keyspace = edit.next_keyspace.unwrap_or(0).max(self.next_keyspace);
        self.log_start = edit.log_start.unwrap_or(0).max(self.log_start);
        self.next_file = edit.next_file.unwrap_or(0).max(self.next_file);
        self.last_seq = edit.last_seq.unwrap_or_default().max(self.last_seq);
        if let Some(counters) = &edit.counters {
            self.counters.clone_from(counters);
        }
        if let Some(times) = &edit.times {
            self.times.clone_from(times);
        }
        if !edit.asked.is_empty() {
            let by_id: BTreeMap<u32, &Arc<KeyspaceState>> =
                self.states().map(|state| (state.id.0, state)).collect();
            for (id, gets, written) in &edit.asked {
                if let Some(state) = by_id.get(id) {
                    state.was_asked(*gets, *written);
                }
            }
        }
        gone
    }

    fn states(&self) -> impl Iterator<Item = &Arc<KeyspaceState>> {
        std::iter::once(&self.default_keyspace).chain(self.keyspaces.values())
    }

    /// What keyspaces were asked, of those of which no edit has told it yet.
    pub(crate) fn newly_asked(&self) -> Vec<(u32, u64, u64)> {
        let is_new = |state: &&Arc<KeyspaceState>| {
            let (_, gets, written) = state.asked();
            gets + written > state.told.load(Ordering::Relaxed)
        };
        self.states().filter(is_new).map(|state| state.asked()).collect()
    }

    /// One edit that leads from nothing to this.
    pub(crate) fn snapshot(&self) -> Edit {
        let mut edit = Edit {
            log_start: Some(self.log_start),
            next_file: Some(self.next_file),
            last_seq: Some(self.last_seq),
            created: self.keyspaces.values().map(|state| (state.id.0, state.name.clone())).collect(),
            dropped: self.dead.iter().copied().collect(),
            next_keyspace: Some(self.next_keyspace),
            counters: Some(self.counters.clone()),
            times: Some(self.times.clone()),
            asked: self
                .states()
                .map(|state| state.asked())
                .filter(|(_, gets, written)| gets + written > 0)
                .collect(),
            profile: Some(self.profile),
            image: self.image,
            slabs_added: self.slabs.values().map(|slab| slab.meta).collect(),
            taken: self.slabs.iter().flat_map(|(number, slab)| slab.live.runs(*number)).collect(),
            generations: self
                .slabs
                .iter()
                .map(|(number, slab)| (*number, slab.generations.counts()))
                .collect(),
            announced: self.announced_runs(),
            flushed: (self.flushed > Seq(0)).then_some(self.flushed),
            ranges_added: self.version.range_tombstones.iter().cloned().collect(),
            ..Edit::default()
        };
        for (level, runs) in self.version.levels.iter().enumerate() {
            let add = |run: &super::Run| {
                let age = run.age;
                let meta = |table: &Arc<TableHandle>| AddedTable {
                    level: level as u32,
                    age,
                    meta: table.meta.clone(),
                };
                run.tables.iter().map(meta).collect::<Vec<_>>()
            };
            let starts = runs.guards.iter().skip(1).map(|guard| (level as u32, guard.start.clone()));
            edit.guards_added.extend(starts);
            edit.added.extend(runs.runs().flat_map(add));
        }
        edit
    }
}
