//! Jobs: flushes, merges, moves and relocations, as the workers carry them out.
//!
//! Each leases room for its worst case, has the executor write, and commits one edit; a merge that finds no room for
//! all of it goes in steps, each with an edit of its own. A job that fails leaves nothing behind and can be planned
//! anew.

use super::Engine;
use super::admission::{Leaving, Paced, Work};
use super::commit::Root;
use super::iterate::{KeyRange, RunCursor, Source};
use super::store::Demotion;
use super::write::OldLog;
use crate::compaction::{OutputOptions, Placed, Retain, copy_part, write_tables};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileId, FileKind};
use crate::key::{self, Entry, Seq, Trailer};
use crate::memtable::{MemCursor, MemTable};
use crate::merge::Merge;
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::policy::{Plan, placement};
use crate::range_tombstones::{Erased, RangeTombstone, RangeTombstones};
use crate::store::Index;
use crate::table::{FLOOR_ENTRY_BYTES, FLOOR_SECTOR_BYTES};
use crate::tier::Lease;
use crate::version::edit::{AddedTable, ENTRY_BYTES};
use crate::version::{Edit, Layer, Run, TableHandle, TableMeta, TablePart};
use cuesta_device::{ALIGNMENT, Cause};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A merge reads one part in so many of the memory number ahead, over all its runs.
const MERGE_MEMORY_SHARE: u64 = 32;
/// Read-ahead of merges, in bytes of a run, at most.
const MERGE_READ_AHEAD_BYTES: usize = 512 << 10;
/// Reads per table at which all counts are halved.
const COOL_READS: u64 = 1 << 14;
/// Of a memtable, what its indexes and filters may take: one part in so many.
const META_SHARE: u64 = 8;
/// Part of a packed table may hold so many times its share of what was packed.
const PACKED_SLACK: f64 = 1.5;
/// Pages that index, filter and properties of one more table take, however few entries it has.
const META_TABLE_PAGES: u64 = 2;
/// What an entry of a floor takes in the meta part with the largest filter, besides checksums.
const FLOOR_META_BYTES_MAX: u64 = FLOOR_ENTRY_BYTES as u64 + 8;
/// Checksums of a floor take one part in so many of what they are of.
const FLOOR_SUMS_SHARE: u64 = (FLOOR_SECTOR_BYTES / 4) as u64;
/// Least bytes that a job needs for indexes and filters.
const META_LEAST: u64 = 32 << 10;

/// Most bytes that a job's outputs take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    data: u64,
    /// Indexes and filters.
    meta: u64,
}

impl Need {
    /// Of entries that take so many bytes without compression.
    fn of_entries(options: &Options, bytes: u64, meta: u64) -> Self {
        Self { data: options.tables_bytes_max(bytes), meta: meta + META_LEAST }
    }

    /// Of entries that become floors: tables of which both parts count when they are cut.
    fn of_floors(options: &Options, bytes: u64, meta: u64) -> Self {
        Self::of_entries(options, bytes, meta).and_cuts((bytes + meta) / options.table_bytes() + 1)
    }

    /// Of all that a memtable has.
    fn of_memtable(options: &Options, memtable: &MemTable, in_memory: bool) -> Self {
        let bytes = memtable.used_bytes();
        if !in_memory {
            return Self::of_entries(options, bytes, bytes / META_SHARE);
        }
        let entries = memtable.entry_count() * FLOOR_META_BYTES_MAX;
        Self::of_floors(options, bytes, entries + (bytes + entries) / FLOOR_SUMS_SHARE)
    }

    /// Of shares of tables: nothing is dropped, and nothing compressed. Indexes and filters take as much as now, with a
    /// quarter more for filters of more bits and tables cut elsewhere.
    pub(super) fn of_tables<'a>(
        options: &Options,
        tables: impl Iterator<Item = (&'a TableMeta, f64)>,
    ) -> Self {
        let (mut bytes, mut meta_bytes, mut in_memory) = (0.0, 0.0, false);
        for (meta, share) in tables {
            bytes += meta.unpacked_bytes() as f64 * share;
            meta_bytes += meta.meta_bytes as f64 * share * 1.25;
            in_memory |= meta.memory.is_some();
        }
        let of = if in_memory { Self::of_floors } else { Self::of_entries };
        of(options, bytes as u64, meta_bytes as u64)
    }

    /// In as many more tables, each with a first and a last page, and an index and a filter of its own.
    fn and_cuts(self, cuts: u64) -> Self {
        let page = ALIGNMENT as u64;
        Self { data: self.data + cuts * 2 * page, meta: self.meta + cuts * META_TABLE_PAGES * page }
    }

    /// And of so many objects of a store, in slots of so many bytes.
    pub(super) fn and_objects(self, options: &Options, entries: u64, bytes: u64) -> Self {
        let more = Self::of_entries(options, bytes + entries * ENTRY_BYTES, bytes / META_SHARE);
        Self { data: self.data + more.data, meta: self.meta + more.meta }
    }
}

/// What a run is written into.
struct Room<'t, 'b> {
    need: Need,
    /// Where tables may end before they are full.
    soft_bounds: &'b [Vec<u8>],
    data: Lease<'t>,
    meta: Lease<'t>,
}

/// A flush or a merge, as the executor is asked for it.
#[derive(Clone, Copy)]
pub(super) struct RunJob<'a> {
    pub(super) need: Need,
    pub(super) level: usize,
    /// Where guards of that begin among its keys, but for the first.
    pub(super) bounds: &'a [Vec<u8>],
    /// Where tables begin among its keys that it will be merged with: of the level below, or of what a merge of levels
    /// is laid on.
    pub(super) soft_bounds: &'a [Vec<u8>],
    /// What it makes lies on the runs that are there, and points into them.
    pub(super) links: bool,
    /// Nothing older of its keys lies below.
    pub(super) bottom: bool,
    pub(super) cause: Cause,
    pub(super) paced: &'a Paced<'a>,
    /// After the first of these keys, up to the second.
    pub(super) keys: (Option<&'a [u8]>, Option<&'a [u8]>),
    /// Keys of which the store has newer versions than the input.
    pub(super) above: Option<&'a Index>,
    /// Told each entry that stays and is its key's newest.
    pub(super) meet: Option<&'a dyn Fn(&Entry<'_>)>,
    /// The range tombstones that there were when its input was found, durable or about to be.
    pub(super) erased: &'a Erased,
}

/// Tables to be merged, as a plan has chosen them.
struct MergeJob {
    level: usize,
    /// Runs, newest first: so many of `level`, and behind them those that lie on others in the output level.
    above: Vec<Vec<Arc<TableHandle>>>,
    from_level: usize,
    output: usize,
    /// The age of the run that the outputs join.
    joins: Option<u64>,
    /// Nothing older of their keys lies below.
    bottom: bool,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    /// The version's range tombstones when the tables were found.
    erased: Erased,
    /// Tables of which these leave nothing.
    gone: BTreeSet<u64>,
}

impl Engine {
    /// Turns the oldest sealed memtable into a run of level 0, or puts it into the store.
    pub(super) fn flush_oldest(&self) -> Result<()> {
        // The tables of this moment are let go of at once: their room may be needed while this runs.
        let Some(sealed) = self.current.load().sealed.last().cloned() else { return Ok(()) };
        let input = &mut MemCursor::new(sealed.memtable.clone());
        // All of it is visible: a memtable is sealed between groups.
        let ranges = sealed.memtable.range_tombstones();
        // An object that comes into a slot is near enough there, unless it is of the hottest: memory is worth more for
        // what lies below.
        let tracker = self.current.load().tracker.clone();
        let stays = |key: &[u8]| tracker.as_ref().is_none_or(|tracker| tracker.is_hottest(key::hash(key)));
        self.tables.cache.flush(input, &ranges, &stays)?;
        if let Some(store) = &self.objects {
            let log_start = match planted::has(Bug::LogTrimmedEarly) {
                true => self.current.load().active_log,
                false => self.log_after_oldest(),
            };
            self.flush_into(store, &sealed, log_start)?;
            return self.retire_logs(log_start);
        }
        let bytes = sealed.memtable.used_bytes();
        let paced = self.begin_paced(Work::Flush, bytes, Leaving::default());
        let need = Need::of_memtable(&self.options, &sealed.memtable, self.tiers.fast().memory.is_some());
        let guards = self.guards_for(&sealed.memtable);
        let flushed = self.current.load().version.range_tombstones.clone();
        let erased = Erased::by([flushed, ranges.clone()]);
        let job = RunJob {
            need,
            level: 0,
            bounds: if planted::has(Bug::FlushCrossesGuards) { &[] } else { &guards.bounds },
            soft_bounds: &[],
            links: self.links_flush(need.data + need.meta),
            bottom: false,
            cause: Cause::Flush,
            paced: &paced,
            keys: (None, None),
            above: None,
            meet: None,
            erased: &erased,
        };
        let written = self.write_run(input, &job);
        let added = match written {
            // What is damaged below is no reason to keep this from being durable.
            Err(error) if error.is_corrupt() && job.links => {
                self.write_run(input, &RunJob { links: false, ..job })?
            }
            written => written?,
        };
        let age = self.catalog.lock().take_file_number();
        let log_start = match planted::has(Bug::LogTrimmedEarly) {
            true => self.current.load().active_log,
            false => self.log_after_oldest(),
        };
        if planted::has(Bug::LogRetiredBeforeEdit) {
            self.retire_logs(log_start)?;
        }
        let edit = Edit {
            added: added.into_iter().map(|meta| AddedTable { level: 0, age, meta }).collect(),
            guards_added: guards.added,
            guards_removed: guards.removed,
            ranges_added: ranges_of(&ranges),
            flushed: Some(sealed.last_seq),
            log_start: Some(log_start),
            counters: Some(self.encode_counters()),
            times: Some(self.operations.encode_times()),
            asked: self.catalog.lock().newly_asked(),
            ..Edit::default()
        };
        self.commit_tables(edit, |current| drop(current.sealed.pop()))?;
        self.operations.flushed();
        self.retire_logs(log_start)
    }

    /// The first log with entries of another memtable than the oldest, which is being flushed. After a crash several
    /// may share one.
    fn log_after_oldest(&self) -> u64 {
        let current = self.current.load();
        let newer = current.sealed.split_last().map_or(&[][..], |(_, newer)| newer);
        newer.last().map_or(current.active_log, |oldest| oldest.first_log)
    }

    /// Removes logs before this one, which hold nothing any more, or keeps one to be filled again.
    fn retire_logs(&self, first: u64) -> Result<()> {
        let retired = self.with_lead(|_, lead| {
            if !planted::has(Bug::RetiredLogsHeld) {
                lead.log.forget_before(first);
            }
            let is_retired = |log: &mut OldLog| log.number < first;
            Ok(lead.old_logs.extract_if(.., is_retired).collect::<Vec<_>>())
        })?;
        let fast = self.tiers.fast();
        let mut left = Vec::new();
        for log in retired {
            // One that could not be removed may be gone all the same, and is not to be filled again.
            if !log.was_refused && self.background.keep_retired_log(log) {
                continue;
            }
            // As with any other file that nothing names (`garbage`): the next flush tries it again.
            match fast.remove(FileId::new(FileKind::Log, log.number)) {
                Ok(()) => self.log_room.release(fast, log.bytes),
                Err(_) => left.push(OldLog { was_refused: true, ..log }),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        self.with_lead(|_, lead| {
            lead.old_logs.append(&mut left);
            Ok(())
        })
    }

    /// Carries out a plan.
    pub(super) fn compact(&self, plan: &Plan) -> Result<()> {
        let current = self.current.load_full();
        // A plan's tables are among its keys, which few guards of many have.
        let runs = |level: usize, smallest: &[u8], largest: &[u8]| {
            let level = current.version.levels.get(level);
            let guards = level.map_or(&[][..], |level| level.guards_of(smallest, largest));
            guards.iter().flat_map(|guard| &guard.runs)
        };
        let find = |number: u64, level: usize, smallest: &[u8], largest: &[u8]| {
            let mut tables = runs(level, smallest, largest).flat_map(|run| &run.tables);
            let found = tables.find(|table| table.meta.number == number).cloned();
            found.ok_or_else(|| Error::internal(format!("a plan names table {number}, which is gone")))
        };
        match plan {
            Plan::CutGuards { level, added, removed, .. } => {
                drop(current);
                self.cut_guards(*level, added, removed)
            }
            Plan::Forget { tombstones, .. } => {
                drop(current);
                self.forget_ranges(tombstones)
            }
            Plan::Move { table, from, to, smallest, largest } => {
                let meta = find(*table, *from, smallest, largest)?.meta.clone();
                drop(current);
                self.move_table(meta, *to)
            }
            Plan::Demote { tables, level, age, drop_tombstones, from, to, pinning } => {
                drop(current);
                let (level, age, bottom) = (*level, *age, *drop_tombstones);
                self.demote(&Demotion { tables, level, age, bottom, from, to, pinning })
            }
            Plan::Release { pinning, bytes } => {
                drop(current);
                self.release(pinning, *bytes)
            }
            Plan::Relocate { table, part, level, to, smallest, largest } => {
                self.relocate(find(*table, *level, smallest, largest)?.as_ref(), *part, *level, *to)
            }
            Plan::Merge { level, above, output_level, below, joins, drop_tombstones, smallest, largest } => {
                let chosen = |run: &Run| -> Vec<Arc<TableHandle>> {
                    run.tables.iter().filter(|table| above.contains(&table.meta.number)).cloned().collect()
                };
                let chosen_of = |level: usize| -> Vec<Vec<Arc<TableHandle>>> {
                    runs(level, smallest, largest).map(chosen).filter(|run| !run.is_empty()).collect()
                };
                let of_output = |number: &u64| find(*number, *output_level, smallest, largest);
                let mut above = chosen_of(*level);
                let from_level = above.len();
                if level < output_level {
                    above.extend(chosen_of(*output_level));
                }
                let below = below.iter().map(of_output).collect::<Result<Vec<_>>>()?;
                // What memtables delete is not durable yet.
                let erased = Erased::by([current.version.range_tombstones.clone()]);
                let gone = self.erased_whole(&erased, above.iter().flatten().chain(&below));
                let job = MergeJob {
                    level: *level,
                    above,
                    from_level,
                    output: *output_level,
                    joins: *joins,
                    bottom: *drop_tombstones,
                    smallest: smallest.clone(),
                    largest: largest.clone(),
                    erased,
                    gone,
                };
                drop(current);
                self.merge(&job, below)
            }
        }
    }

    /// Puts a table into another level as it is.
    fn move_table(&self, meta: TableMeta, to: usize) -> Result<()> {
        let counters = Some(self.encode_counters());
        let mut edit = Edit { removed: vec![meta.number], counters, ..Edit::default() };
        // Nobody else changes guards from here on.
        let mut root = self.root.take();
        // Nothing of its keys is there, and more may be laid on the oldest run than on others.
        let joins = (self.options.laid_max() > 1).then(|| self.oldest_age(to, &meta.smallest).unwrap_or(0));
        self.add_tables(&mut edit, &[meta], to, joins);
        self.commit_tables_as(&mut root, edit, |_| {})?;
        self.operations.merged();
        Ok(())
    }

    /// Merges tables, with disjoint ones of the output level in key order, into one run: at once if there is room for
    /// that, else in steps, a table of the output level each. What a step has merged is below and still above, as the
    /// same versions, until the last step's edit takes the tables above away; so each step is whole by itself, and
    /// needs room for little more than the tables above and one below.
    fn merge(&self, job: &MergeJob, below: Vec<Arc<TableHandle>>) -> Result<()> {
        let all = job.above.iter().flatten().chain(&below).map(|table| &table.meta);
        let all: Vec<&TableMeta> = all.filter(|meta| !job.gone.contains(&meta.number)).collect();
        let from_top = job.level == 0 && !job.above.is_empty();
        let leaving = job.above[..job.from_level].iter().flatten();
        let (work, leaves) = match from_top {
            true => {
                let bytes = leaving.map(|table| table.meta.level_bytes()).sum();
                (Work::MergeTop, Leaving { runs: job.from_level, bytes })
            }
            false => (Work::MergeBelow, Leaving::default()),
        };
        let paced = self.begin_paced(work, all.iter().map(|meta| meta.raw_bytes).sum(), leaves);
        let links = self.options.links_runs() && below.is_empty() && job.joins.is_none();
        // Guards that are rewritten whole are cut anew.
        let bounds = match self.options.adds_floors() && !links {
            true => Vec::new(),
            false => self.cuts_between(job.level, job.output, &job.smallest, &job.largest),
        };
        let is_from_above = job.level < job.output && job.above.len() == job.from_level;
        let is_laid = is_from_above && below.is_empty() && job.joins.is_some();
        let over = job.output + usize::from(!is_laid);
        let soft_bounds = self.tables_begin_in(over, &job.smallest, &job.largest);
        let whole = RunJob {
            need: Need::of_tables(&self.options, all.iter().map(|meta| (*meta, 1.0))),
            level: job.output,
            bounds: &bounds,
            soft_bounds: &soft_bounds,
            links,
            bottom: job.bottom,
            cause: Cause::Compaction,
            paced: &paced,
            keys: (None, None),
            above: None,
            meet: None,
            erased: &job.erased,
        };
        // In steps too where it would fit onto a slower tier only than the one its level belongs to; and where that is
        // a faster one, as soon as it could not do the same again: another merge may be about to.
        let view = if self.tiers.all.len() > 1 { self.view_of_tables() } else { None };
        let belongs = view.map_or(0, |view| placement::of_level(&view, job.output));
        let at_once = if belongs + 1 < self.tiers.all.len() { 2 } else { 1 };
        let need = self.with_cuts(whole.need, &bounds, &soft_bounds);
        let is_roomy = self.tiers.get(belongs as u32)?.free_bytes() >= at_once * need.data;
        let fits = all.is_empty() || is_roomy && self.lease_run(whole.need, &bounds, &soft_bounds).is_ok();
        if fits || below.len() < 2 {
            self.merge_step(job, &below, true, &whole)?;
        } else {
            let mut after: Option<Vec<u8>> = None;
            let mut below = VecDeque::from(below);
            // Let go of, so that its files go with the step.
            while let Some(table) = below.pop_front() {
                let table = [table];
                let up_to = (!below.is_empty()).then(|| table[0].meta.largest.clone());
                let keys = (after.as_deref(), up_to.as_deref());
                let stays = |table: &&Arc<TableHandle>| !job.gone.contains(&table.meta.number);
                let mut shares: Vec<_> = table.iter().filter(stays).map(|table| (&table.meta, 1.0)).collect();
                let above: Vec<&Arc<TableHandle>> = job.above.iter().flatten().filter(stays).collect();
                let lie: Vec<_> = above.iter().map(|table| (table.meta.number, table.meta.below())).collect();
                for (table, topmost) in above.iter().zip(topmost_of(&lie)) {
                    // Of floors that lie on one another it knows the share of all together, and none its own.
                    let topmost = above[topmost].table()?;
                    let share = topmost.share_between(&self.tables.cache, keys.0, keys.1)?;
                    // Blocks are not all packed alike.
                    let is_packed = table.meta.raw_bytes > table.meta.data_bytes;
                    let share = if is_packed { (share * PACKED_SLACK).min(1.0) } else { share };
                    shares.push((&table.meta, share));
                }
                let need = Need::of_tables(&self.options, shares.into_iter());
                self.merge_step(job, &table, up_to.is_none(), &RunJob { need, keys, ..whole })?;
                paced.step_ended();
                drop(table);
                self.tables.collect_garbage();
                after = up_to;
            }
        }
        self.operations.merged();
        Ok(())
    }

    /// Merges what is above with some of what is below, of the keys that `part` says, and commits the outputs in place
    /// of these, and with the last part in place of what is above.
    fn merge_step(
        &self,
        job: &MergeJob,
        below: &[Arc<TableHandle>],
        is_last: bool,
        part: &RunJob<'_>,
    ) -> Result<()> {
        let runs = job.above.iter().map(Vec::as_slice).chain([below]).filter(|run| !run.is_empty());
        // Of tables that lie on one another the topmost stands for all.
        let covered: Vec<u64> = runs.clone().flatten().filter_map(|table| table.meta.below()).collect();
        let alone = planted::has(Bug::CoveredMergedAlone);
        let runs = runs.filter(|run| match alone {
            true => run[0].meta.below().is_none(),
            false => !covered.contains(&run[0].meta.number),
        });
        let read_ahead = self.merge_read_ahead(job.above.len() + 1);
        let read = runs.map(|run| -> Vec<Arc<TableHandle>> {
            run.iter().filter(|table| !job.gone.contains(&table.meta.number)).cloned().collect()
        });
        let source = |run| self.merge_source(run, read_ahead, Cause::Compaction);
        let sources: Vec<Source> = read.filter(|run| !run.is_empty()).map(source).collect();
        // Nothing needs no room.
        let metas =
            if sources.is_empty() { Vec::new() } else { self.write_run(&mut Merge::new(sources), part)? };
        if planted::has(Bug::InputsRemovedBeforeEdit) {
            let tables = job.above.iter().flatten().chain(below);
            for (tier, file, _) in tables.flat_map(|table| table.meta.parts()) {
                self.tiers.get(tier)?.remove(file)?;
            }
        }
        let done = if is_last { &job.above[..] } else { &[] };
        let removed: Vec<u64> =
            below.iter().chain(done.iter().flatten()).map(|table| table.meta.number).collect();
        let mut edit = Edit { removed, counters: Some(self.encode_counters()), ..Edit::default() };
        // Nobody else changes guards from here on.
        let mut root = self.root.take();
        self.add_tables(&mut edit, &metas, job.output, job.joins);
        if is_last {
            self.change_guards(&mut edit, job.level, job.output, (&job.smallest, &job.largest));
        }
        self.commit_tables_as(&mut root, edit, |_| {})
    }

    /// Of these tables, those of which the durable range tombstones leave nothing that any reader sees. Tables that lie
    /// on one another are read together.
    fn erased_whole<'a>(
        &self,
        erased: &Erased,
        tables: impl Iterator<Item = &'a Arc<TableHandle>>,
    ) -> BTreeSet<u64> {
        // What is read from now on is read at a number that is as high.
        let oldest = self.boundaries()[0];
        let metas: Vec<&TableMeta> = tables.map(|table| &table.meta).collect();
        let covered: Vec<u64> = metas.iter().filter_map(|meta| meta.below()).collect();
        let alone =
            metas.into_iter().filter(|meta| meta.below().is_none() && !covered.contains(&meta.number));
        let is_gone = |meta: &&TableMeta| {
            erased.covers_whole((&meta.smallest, &meta.largest), meta.largest_seq, oldest)
        };
        alone.filter(is_gone).map(|meta| meta.number).collect()
    }

    /// Forgets range tombstones that cover nothing any more.
    fn forget_ranges(&self, tombstones: &[Seq]) -> Result<()> {
        let edit = Edit { ranges_removed: tombstones.to_vec(), ..Edit::default() };
        if let Some(store) = &self.objects {
            return self.forget_ranges_of_store(store, edit);
        }
        self.commit(&mut self.root.take(), edit, |_| {})
    }

    /// Puts a part of a table on another tier.
    fn relocate(&self, table: &TableHandle, part: TablePart, level: usize, to: usize) -> Result<()> {
        let (tier, file, bytes) = table.meta.part(part);
        // A copy begins by clearing its name on the target: that must be neither where the part lies nor where a reader
        // still holds an older copy.
        if tier as usize == to || table.lingers(part) {
            return Ok(());
        }
        let lease = self.tiers.get(to as u32)?.lease(bytes)?;
        let meta = copy_part(&self.tiers, &table.meta, part, to as u32, &|| self.check_open())?;
        lease.settle(bytes);
        if planted::has(Bug::CopiedFromRemovedBeforeEdit) {
            self.tiers.get(tier)?.remove(file)?;
        }
        let committed = {
            // Its run may get another age as long as somebody else commits.
            let mut root = self.root.take();
            let age = self.age_of(level, meta.number);
            let edit = Edit {
                removed: vec![meta.number],
                added: vec![AddedTable { level: level as u32, age, meta: meta.clone() }],
                counters: Some(self.encode_counters()),
                ..Edit::default()
            };
            self.commit(&mut root, edit, |_| {})
        };
        if committed.as_ref().is_err_and(is_refusal) {
            let to = self.tiers.get(to as u32)?;
            to.remove(file)?;
            to.uncount(bytes);
        }
        committed?;
        self.operations.relocated();
        self.cool_tables();
        Ok(())
    }

    /// Lets old reads count less, once there are many.
    fn cool_tables(&self) {
        let current = self.current.load_full();
        let (tables, reads) =
            current.version.tables().fold((0, 0), |(n, reads), t| (n + 1, reads + t.reads()));
        if reads > tables * COOL_READS {
            current.version.tables().for_each(|table| table.cool());
        }
    }

    /// The age of a level's oldest run, of the guard that owns a key.
    fn oldest_age(&self, level: usize, key: &[u8]) -> Option<u64> {
        let current = self.current.load();
        let guard = current.version.levels.get(level)?.guard_of(key)?;
        guard.runs.last().map(|run| run.age)
    }

    /// The age of the run that a table is in.
    fn age_of(&self, level: usize, number: u64) -> u64 {
        let current = self.current.load();
        let mut runs = current.version.levels.get(level).into_iter().flat_map(|level| level.runs());
        runs.find(|run| run.tables.iter().any(|table| table.meta.number == number)).map_or(0, |run| run.age)
    }

    /// Bytes that a merge of so many runs reads ahead in each.
    pub(super) fn merge_read_ahead(&self, runs: usize) -> usize {
        let merges = u64::from(self.options.background_threads - 1).max(1);
        let share = self.options.memory_bytes / MERGE_MEMORY_SHARE / merges / runs as u64;
        (share as usize).min(MERGE_READ_AHEAD_BYTES)
    }

    /// A cursor over tables of a run that leaves the cache alone.
    pub(super) fn merge_source(
        &self,
        tables: Vec<Arc<TableHandle>>,
        read_ahead: usize,
        cause: Cause,
    ) -> Source {
        let (cache, tiers) = (self.tables.cache.clone(), self.tiers.clone());
        let open = move |handle: &Arc<TableHandle>| {
            let (number, tier) = (handle.meta.number, handle.meta.data_tier);
            let data = tiers.open_table_file(tier, FileId::new(FileKind::Data, number))?;
            let data = tiers.metered(data, tier as usize, cause);
            Ok(handle.table()?.cursor_over(data, cache.clone(), read_ahead))
        };
        Source::Run(Box::new(RunCursor::new(Layer::Listed(tables), KeyRange::ALL, open)))
    }

    /// Writes what readers can still see of `input` as tables of `level`.
    pub(super) fn write_run(
        &self,
        input: &mut dyn crate::key::Cursor,
        job: &RunJob<'_>,
    ) -> Result<Vec<TableMeta>> {
        let RunJob { need, level, links, bottom, cause, paced, keys, above, meet, erased, .. } = *job;
        let bounds = among(job.bounds, keys);
        let Room { need, soft_bounds, data: data_lease, meta: meta_lease } =
            self.lease_run(need, bounds, among(job.soft_bounds, keys))?;
        let (job_tier, meta_tier) = (data_lease.tier(), meta_lease.tier());
        self.pace();
        // A guard of linked runs that is rewritten whole becomes guards of a table each; a run of level 0 that lies on
        // others is one.
        let table_bytes = match (level, links) {
            (0, true) if self.options.adds_floors() => need.data + need.meta,
            (1.., false) if self.options.adds_floors() => self.options.guard_bytes(),
            _ => self.options.table_bytes(),
        };
        let boundaries = self.boundaries();
        let dead = self.catalog.lock().dead.clone();
        let place = |bytes: u64| {
            // Without a faster one there is nothing to choose.
            if self.objects.is_some() || job_tier == 0 {
                return Placed::on(job_tier);
            }
            let bytes = bytes.min(need.data);
            // A table goes to a faster tier than the job's if it should be there and there is room; the job's room
            // is kept for it all the same.
            let view = self.view_of_tables();
            let tier = view.map_or(0, |view| placement::of_output(&view, level, bytes));
            let faster = self.tiers.all[..job_tier as usize].get(tier);
            let leased = faster.and_then(|faster| faster.lease(bytes).ok());
            leased.map_or(Placed::on(job_tier), |lease| Placed { tier: tier as u32, lease: Some(lease) })
        };
        let link_under = |key: &[u8], trailer: Trailer| self.link_under(level, key, trailer);
        let options = OutputOptions {
            store: self.store,
            tiers: &self.tiers,
            cache: &self.tables.cache,
            cause,
            place: &place,
            meta_tier,
            table_bytes,
            block_bytes: self.options.block_bytes,
            take_number: &|| self.catalog.lock().take_file_number(),
            check: &|done| {
                paced.progress(done);
                self.check_open()
            },
            most: (need.data, need.meta),
            bounds,
            soft_bounds,
            under: &|key| if links { self.tree_under(level, key) } else { Ok(None) },
            link: links.then_some(&link_under),
            keys,
            meet,
            erased: erased.newest_at(if planted::has(Bug::ErasedTooHigh) { Seq::MAX } else { boundaries[0] }),
        };
        let retain = Retain::new(boundaries, dead, bottom).without(erased.clone());
        let mut retain = match above {
            Some(above) => retain.below(above.clone()),
            None => retain,
        };
        let made = write_tables(input, &mut retain, &options)?;
        let here = made.iter().filter(|meta| meta.data_tier == job_tier);
        let data: u64 = here.map(|meta| meta.data_bytes).sum();
        let meta: u64 = made.iter().map(|meta| meta.meta_bytes).sum();
        debug_assert!(
            data <= need.data && meta <= need.meta,
            "{data} and {meta} bytes written, leased {need:?}"
        );
        data_lease.settle(data);
        meta_lease.settle(meta);
        Ok(made)
    }

    /// Room for a run that has guards at `bounds`, and tables that end at soft ones as far as there is room for these.
    fn lease_run<'a>(
        &self,
        need: Need,
        bounds: &[Vec<u8>],
        soft_bounds: &'a [Vec<u8>],
    ) -> Result<Room<'_, 'a>> {
        let lease = |soft_bounds: &'a [Vec<u8>]| {
            let need = self.with_cuts(need, bounds, soft_bounds);
            let (data, meta) = self.lease_job(need)?;
            Ok(Room { need, soft_bounds, data, meta })
        };
        lease(soft_bounds).or_else(|error| if soft_bounds.is_empty() { Err(error) } else { lease(&[]) })
    }

    /// The same in as many more tables as are cut at these bounds, and at most at those soft ones.
    fn with_cuts(&self, need: Need, bounds: &[Vec<u8>], soft_bounds: &[Vec<u8>]) -> Need {
        // A table that ends before it is full is half full.
        let halves = (2 * need.data / self.options.table_bytes() + 1).min(soft_bounds.len() as u64);
        need.and_cuts(bounds.len() as u64 + halves)
    }

    /// Room for a whole job, so that it can end once it has begun: for data on the slowest tier that has it, for
    /// indexes and filters on the fast tier. These go elsewhere only after jobs were refused, when no table can make
    /// way for them; beside a store of objects, at once, and slabs are vacated for those of the next
    /// ([`Engine::make_room_beside`]).
    fn lease_job(&self, need: Need) -> Result<(Lease<'_>, Lease<'_>)> {
        let tiers = &self.tiers.all;
        let beside_slabs = self.objects.as_ref().is_none_or(|store| store.has_room_beside(self, need.meta));
        let has_store = self.objects.is_some();
        let elsewhere = if self.background.is_refused() || has_store { &tiers[1..] } else { &[] };
        let mut full = None;
        for meta_tier in tiers[..usize::from(beside_slabs)].iter().chain(elsewhere.iter().rev()) {
            // The first tier is the store's, where there is one.
            let first = usize::from(has_store);
            for tier in tiers[first..].iter().rev() {
                match tier.lease(need.data).and_then(|data| Ok((data, meta_tier.lease(need.meta)?))) {
                    Ok(leases) => {
                        self.background.want(0);
                        let is_beside = std::ptr::eq(meta_tier, &tiers[0]);
                        if let Some(store) = self.objects.as_ref().filter(|_| beside_slabs) {
                            store.refuse_beside(if is_beside { 0 } else { need.meta });
                        }
                        return Ok(leases);
                    }
                    Err(error) => full = full.or(Some(error)),
                }
            }
        }
        self.background.want(if tiers.len() > 1 { need.meta } else { 0 });
        Err(full.unwrap_or_else(|| Error::internal("there is no tier")))
    }

    /// Commits tables that were made; if the edit is refused they are discarded.
    pub(super) fn commit_tables(&self, edit: Edit, change: impl FnOnce(&mut super::Current)) -> Result<()> {
        self.commit_tables_as(&mut self.root.take(), edit, change)
    }

    /// As [`Engine::commit_tables`], with the root in hand.
    pub(super) fn commit_tables_as(
        &self,
        root: &mut Root,
        edit: Edit,
        change: impl FnOnce(&mut super::Current),
    ) -> Result<()> {
        let made: Vec<TableMeta> = edit
            .added
            .iter()
            .filter(|added| !edit.removed.contains(&added.meta.number))
            .map(|added| added.meta.clone())
            .collect();
        let committed = self.commit(root, edit, change);
        if committed.as_ref().is_err_and(is_refusal) {
            made.iter().flat_map(TableMeta::parts).for_each(|part| self.tables.garbage.throw(part));
        }
        committed
    }
}

/// For each table, given as its number and that of the one that it lies on, the place of the topmost of those that lie
/// on it, or its own.
fn topmost_of(tables: &[(u64, Option<u64>)]) -> Vec<usize> {
    let covers = |(at, (_, below)): (usize, &(u64, Option<u64>))| below.map(|below| (below, at));
    let covered: BTreeMap<u64, usize> = tables.iter().enumerate().filter_map(covers).collect();
    let next = |at: &usize| covered.get(&tables[*at].0).copied();
    let topmost = |at| std::iter::successors(Some(at), next).take(tables.len()).last().unwrap_or(at);
    (0..tables.len()).map(topmost).collect()
}

/// Of bounds, those after the first of these keys, up to the second.
fn among<'a>(bounds: &'a [Vec<u8>], (after, up_to): (Option<&[u8]>, Option<&[u8]>)) -> &'a [Vec<u8>] {
    let behind = |key: &[u8]| bounds.partition_point(|bound| bound.as_slice() <= key);
    &bounds[after.map_or(0, behind)..up_to.map_or(bounds.len(), behind)]
}

/// What a flush tells of its memtable's range tombstones.
pub(super) fn ranges_of(ranges: &RangeTombstones) -> Vec<RangeTombstone> {
    if planted::has(Bug::RangesLeftOutOfFlush) { Vec::new() } else { ranges.iter().cloned().collect() }
}

/// Whether a commit's error says that the manifest was not written to. After any other the edit may be on media, tables
/// and all.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed | ErrorKind::ReadOnly)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_of_what_lies_on_one_another_is_found() {
        let topmost = |tables: &[(u64, u64)]| {
            let tables = tables.iter().map(|(number, below)| (*number, Some(*below).filter(|at| *at > 0)));
            topmost_of(&tables.collect::<Vec<_>>())
        };
        assert_eq!(topmost(&[(3, 0), (5, 3), (9, 5)]), [2, 2, 2]);
        // Two trees, and a table by itself; one lies on what is not among them.
        assert_eq!(topmost(&[(9, 5), (4, 0), (5, 2), (7, 6), (6, 0)]), [0, 1, 0, 3, 3]);
        assert_eq!(topmost(&[]), []);
    }
}
