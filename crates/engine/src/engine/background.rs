//! The workers: flush sealed memtables, carry out plans (merges, moves, relocations), remove dead files, keep interval
//! syncs.
//!
//! A worker asks [`Engine::next_job`] for work, under one short lock; a flush goes before any merge, and only one
//! runs at a time, oldest memtable first, so runs come to level 0 in order. Plans that run are part of the next
//! plan's view. Before a job begins it has leases for its worst case. One that finds no room says how much it wants on
//! the fast tier, and tables go down before anything else; if none can, it is put off until room returns (looked for a
//! few times a second), and after the third time writers are told. A job that fails otherwise is tried anew a few times;
//! then the store closes for writes.

use super::admission::{Paced, Work};
use super::{Engine, iterate};
use crate::compaction::{OutputOptions, Placed, Retain, copy_data, write_tables};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileId, FileKind};
use crate::memtable::MemCursor;
use crate::merge::Merge;
use crate::options::Durability;
use crate::planted::{self, Bug};
use crate::policy::{self, Plan, RunningPlan, TierView, View, placement};
use crate::tier::Lease;
use crate::version::edit::AddedTable;
use crate::version::{Edit, TableHandle, TableMeta};
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Condvar, Mutex, Priority, Sched, Thread};
use iterate::{RunCursor, Source};
use std::sync::Arc;
use std::time::Duration;

/// A job that failed for another reason than room is tried this often.
const TRIES_MAX: u32 = 4;
/// How long a worker sleeps when nothing wakes it.
const IDLE: Duration = Duration::from_secs(1);
/// How long to wait before a job that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// Read-ahead of merges, in bytes.
const MERGE_READ_AHEAD_BYTES: usize = 512 << 10;
/// Reads per table at which all counts are halved.
const COOL_READS: u64 = 1 << 14;
/// A job that finds no room is tried this often before writers are told.
const TIMES_FULL_MAX: u32 = 2;
/// Of a memtable, what its indexes and filters may take: one part in so many.
const META_SHARE: u64 = 8;
/// Least bytes that a job needs for indexes and filters.
const META_LEAST: u64 = 32 << 10;
/// A log file that is kept to be filled again.
const RETIRED_MAX: usize = 1;

/// A log whose entries are all in tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetiredLog {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    flushing: bool,
    running: Vec<RunningPlan>,
    stopping: bool,
    /// Why the last job was put off, while it is.
    out_of_room: Option<Error>,
    /// How often in a row a job found no room.
    times_full: u32,
    failures: u32,
    /// Nothing was to be planned at this generation of the containers.
    idle_at: Option<u64>,
    retired: Vec<RetiredLog>,
    threads: Vec<Thread>,
}

/// What the workers share.
#[derive(Debug)]
pub(crate) struct Background {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes that a job waits for on the fast tier.
    wanted: AtomicU64,
}

/// A flush or a merge, as the executor is asked for it.
#[derive(Clone, Copy)]
struct RunJob<'a> {
    /// Most that its outputs take, and of indexes and filters among them.
    bytes: u64,
    meta_bytes: u64,
    level: usize,
    /// Nothing older of its keys lies below.
    bottom: bool,
    cause: Cause,
    paced: &'a Paced<'a>,
}

/// Work for a worker.
enum Job {
    Flush,
    Compact(Plan),
    Garbage,
}

impl Background {
    pub(crate) fn new(sched: &Sched) -> Self {
        let (state, changed) = (Mutex::new(sched, State::default()), Condvar::new(sched));
        Self { state, changed, wanted: AtomicU64::new(0) }
    }

    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    pub(crate) fn out_of_room(&self) -> Option<Error> {
        self.state.lock().out_of_room.clone()
    }

    pub(crate) fn take_retired_log(&self) -> Option<RetiredLog> {
        self.state.lock().retired.pop()
    }

    /// Waits while `condition` holds and the background can do something about it.
    ///
    /// # Errors
    /// `Full` when it cannot for want of room; why the store takes no writes.
    pub(crate) fn wait_while(&self, engine: &Engine, condition: impl Fn() -> bool) -> Result<()> {
        let began = engine.sched.now();
        let mut state = self.state.lock();
        while condition() {
            engine.check_writable()?;
            if let Some(error) = &state.out_of_room {
                return Err(error.clone());
            }
            (state, _) = self.changed.wait_for(state, IDLE);
        }
        drop(state);
        engine.operations.slowed(engine.sched.now().saturating_sub(began));
        Ok(())
    }

    /// Ends the workers and waits for them.
    pub(crate) fn stop(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.stopping = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        for thread in threads {
            thread.join();
        }
    }
}

impl Engine {
    /// Starts the workers.
    pub(crate) fn start_background(self: &Arc<Self>) -> Result<()> {
        let fail = |source| Error::io("start a background thread", source);
        let mut threads = Vec::new();
        for i in 0..self.options.background_threads {
            let engine = self.clone();
            let body = move || engine.work();
            threads.push(
                self.sched.spawn(&format!("cuesta-work-{i}"), Priority::Background, body).map_err(fail)?,
            );
        }
        if let Durability::Interval(interval) = self.options.durability {
            let engine = self.clone();
            let body = move || engine.sync_regularly(interval);
            threads.push(self.sched.spawn("cuesta-sync", Priority::Normal, body).map_err(fail)?);
        }
        self.background.state.lock().threads.extend(threads);
        Ok(())
    }

    /// Waits until no memtable waits for its flush and no merge is due.
    pub(crate) fn wait_for_background(&self) -> Result<()> {
        self.background.wait_while(self, || {
            let generation = self.current.load().generation;
            !self.current.load().sealed.is_empty() || !self.background_is_idle_at(generation)
        })
    }

    /// Waits until the memtables sealed so far are tables.
    pub(crate) fn wait_for_flush(&self) -> Result<()> {
        self.background.wait_while(self, || !self.current.load().sealed.is_empty())
    }

    /// Called under the background's lock by way of `wait_while`, which is why it does not take it.
    fn background_is_idle_at(&self, generation: u64) -> bool {
        self.view(&[]).and_then(|view| policy::plan(&view)).is_none()
            && self.current.load().generation == generation
    }

    fn work(self: Arc<Self>) {
        while let Some(job) = self.next_job() {
            let result = match &job {
                Job::Flush => self.flush_oldest(),
                Job::Compact(plan) => self.compact(plan),
                Job::Garbage => Ok(()),
            };
            let result = self.tables.collect_garbage().and(result);
            self.job_ended(&job, result);
        }
    }

    /// Waits for something to do; `None` once the store closes.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.background.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if self.tables.has_garbage() {
                return Some(Job::Garbage);
            }
            let current = self.current.load_full();
            let writable = self.failure.get().is_none();
            // Room that a job waits for comes before the job.
            if writable && state.running.is_empty() && self.background.wanted.load(Ordering::Relaxed) > 0 {
                let makes_room = self.view(&[]).and_then(|view| placement::urgent(&view));
                if let Some(plan) = makes_room {
                    state.running.push(plan.running());
                    return Some(Job::Compact(plan));
                }
            }
            if writable && !state.flushing && !current.sealed.is_empty() {
                state.flushing = true;
                return Some(Job::Flush);
            }
            // One worker stays free for the next flush, if there is more than one: writers wait for flushes.
            let merges_max = (self.options.background_threads as usize - 1).max(1);
            if writable && state.running.len() < merges_max && state.idle_at != Some(current.generation) {
                let plan = self.view(&state.running).and_then(|view| policy::plan(&view));
                match plan {
                    Some(plan) => {
                        state.running.push(plan.running());
                        return Some(Job::Compact(plan));
                    }
                    None => state.idle_at = Some(current.generation),
                }
            }
            let timed_out;
            (state, timed_out) = self.background.changed.wait_for(state, IDLE);
            if timed_out {
                // Tables may have grown hot, and room may have come back.
                state.idle_at = None;
            }
        }
    }

    fn job_ended(&self, job: &Job, result: Result<()>) {
        let mut state = self.background.state.lock();
        match job {
            Job::Flush => state.flushing = false,
            Job::Compact(plan) => {
                let ended = plan.running();
                state.running.retain(|running| *running != ended);
            }
            Job::Garbage => {}
        }
        // What was refused for overlapping this job may be planned now.
        state.idle_at = None;
        let wait = match result {
            Ok(()) => {
                if !matches!(job, Job::Garbage) {
                    state.out_of_room = None;
                    state.times_full = 0;
                    state.failures = 0;
                }
                false
            }
            Err(error) if *error.kind() == ErrorKind::Closed || self.failure.get().is_some() => {
                drop(error);
                false
            }
            // Tables that go down will make room.
            Err(error) if *error.kind() == ErrorKind::Full && self.can_make_room() => {
                drop(error);
                false
            }
            // At first what is being removed, or another job that ends, may make room; only then writers are told.
            Err(error) if *error.kind() == ErrorKind::Full => {
                state.times_full += 1;
                if state.times_full > TIMES_FULL_MAX {
                    state.out_of_room = Some(error);
                }
                true
            }
            Err(error) => {
                state.failures += 1;
                let fatal = error.is_corrupt() || *error.kind() == ErrorKind::Internal;
                if fatal || state.failures >= TRIES_MAX {
                    drop(state);
                    self.fail(&error.context("background work failed"));
                    return;
                }
                true
            }
        };
        self.background.changed.notify_all();
        if wait && !state.stopping {
            drop(self.background.changed.wait_for(state, RETRY));
        }
    }

    /// Whether the next plan takes tables off a tier that is short of room.
    fn can_make_room(&self) -> bool {
        self.view(&[]).is_some_and(|view| placement::urgent(&view).is_some())
    }

    /// What the policy looks at.
    fn view(&self, running: &[RunningPlan]) -> Option<View> {
        let current = self.current.load();
        let tiers = self.tiers.all.iter().map(|tier| TierView {
            capacity: tier.capacity_bytes,
            free: tier.free_bytes(),
            wanted: if tier.ordinal == 0 { self.background.wanted.load(Ordering::Relaxed) } else { 0 },
        });
        let is_empty = current.version.levels.is_empty();
        (!is_empty).then(|| View::of(&current.version, &self.options, running, tiers.collect()))
    }

    /// Turns the oldest sealed memtable into a run of level 0.
    fn flush_oldest(&self) -> Result<()> {
        let current = self.current.load_full();
        let Some(sealed) = current.sealed.last() else { return Ok(()) };
        let input = &mut MemCursor::new(sealed.memtable.clone());
        let bytes = sealed.memtable.bytes();
        let meta_bytes = bytes / META_SHARE + META_LEAST;
        let paced = self.begin_paced(Work::Flush, sealed.memtable.used_bytes(), 0);
        let job = RunJob { bytes, meta_bytes, level: 0, bottom: false, cause: Cause::Flush, paced: &paced };
        let added = self.write_run(input, &job)?;
        let age = self.catalog.lock().take_file_number();
        let log_start = match planted::has(Bug::LogTrimmedEarly) {
            true => self.current.load().active_log,
            false => self.log_after(sealed.first_log),
        };
        if planted::has(Bug::LogRetiredBeforeEdit) {
            self.retire_logs(sealed.first_log, log_start)?;
        }
        let edit = Edit {
            added: added.into_iter().map(|meta| AddedTable { level: 0, age, meta }).collect(),
            log_start: Some(log_start),
            counters: Some(self.encode_counters()),
            ..Edit::default()
        };
        self.commit_tables(edit, |current| drop(current.sealed.pop()))?;
        self.operations.flushed();
        self.retire_logs(sealed.first_log, log_start)
    }

    /// The first log with entries that are newer than the memtable that began at `first_log`.
    fn log_after(&self, first_log: u64) -> u64 {
        let current = self.current.load();
        let firsts = current.sealed.iter().map(|s| s.first_log).chain([current.active_log]);
        firsts.filter(|first| *first > first_log).min().unwrap_or(current.active_log)
    }

    /// Removes logs that hold nothing any more, or keeps one to be filled again.
    fn retire_logs(&self, from: u64, to: u64) -> Result<()> {
        let fast = self.tiers.fast();
        let listed = fast.directory.list().map_err(|source| Error::io("list the fast tier", source))?;
        for file in listed {
            let Some(FileId { kind: FileKind::Log, number }) = FileId::from_name(&file.name) else {
                continue;
            };
            if !(from..to).contains(&number) {
                continue;
            }
            let mut state = self.background.state.lock();
            if state.retired.len() < RETIRED_MAX && !state.stopping {
                state.retired.push(RetiredLog { number, bytes: file.bytes });
                continue;
            }
            drop(state);
            fast.remove(FileId::new(FileKind::Log, number))?;
            self.log_room.release(fast, file.bytes);
        }
        Ok(())
    }

    fn compact(&self, plan: &Plan) -> Result<()> {
        let current = self.current.load_full();
        let find = |number: u64| {
            let found = current.version.tables().find(|table| table.meta.number == number);
            found
                .cloned()
                .ok_or_else(|| Error::internal(format!("a plan names table {number}, which is gone")))
        };
        // Until the edit is committed: before, level 0 is as it was.
        let paced;
        let edit = match plan {
            Plan::Move { table, to, .. } => {
                let meta = find(*table)?.meta.clone();
                let added = vec![AddedTable { level: *to as u32, age: 0, meta }];
                Edit { removed: vec![*table], added, ..Edit::default() }
            }
            Plan::Relocate { table, level, to, .. } => {
                return self.relocate(find(*table)?.as_ref(), *level, *to);
            }
            Plan::Merge { inputs, output_level, drop_tombstones, .. } => {
                let numbers: Vec<u64> =
                    inputs.iter().flat_map(|(_, numbers)| numbers.iter().copied()).collect();
                let tables = numbers.iter().map(|number| find(*number)).collect::<Result<Vec<_>>>()?;
                let bytes = tables.iter().map(|table| table.meta.bytes() + table.meta.raw_bytes / 8).sum();
                // As much as the inputs have, with a quarter more for filters of more bits and tables cut elsewhere.
                let meta_bytes =
                    tables.iter().map(|table| table.meta.meta_bytes).sum::<u64>() / 4 * 5 + META_LEAST;
                let runs = if inputs.iter().any(|(level, _)| *level == 0) {
                    current.version.level0_runs()
                } else {
                    0
                };
                let work = if runs > 0 { Work::MergeTop } else { Work::MergeBelow };
                paced = self.begin_paced(work, tables.iter().map(|table| table.meta.raw_bytes).sum(), runs);
                let mut input = Merge::new(self.merge_sources(&current.version, &numbers));
                let (level, bottom) = (*output_level, *drop_tombstones);
                let job =
                    RunJob { bytes, meta_bytes, level, bottom, cause: Cause::Compaction, paced: &paced };
                let metas = self.write_run(&mut input, &job)?;
                if planted::has(Bug::InputsRemovedBeforeEdit) {
                    for (tier, file, _) in tables.iter().flat_map(|table| table.meta.parts()) {
                        self.tiers.get(tier)?.remove(file)?;
                    }
                }
                let level = *output_level as u32;
                let added = metas.into_iter().map(|meta| AddedTable { level, age: 0, meta }).collect();
                Edit { removed: numbers, added, ..Edit::default() }
            }
        };
        let edit = Edit { counters: Some(self.encode_counters()), ..edit };
        self.commit_tables(edit, |_| {})?;
        self.operations.merged();
        Ok(())
    }

    /// Puts a table's data on another tier.
    fn relocate(&self, table: &TableHandle, level: usize, to: usize) -> Result<()> {
        // A copy begins by clearing its name on the target: that must be neither where the data lies nor where a reader
        // still holds an older copy.
        if table.meta.data_tier as usize == to || self.tables.lingers(table.meta.number) {
            return Ok(());
        }
        let lease = self.tiers.get(to as u32)?.lease(table.meta.data_bytes)?;
        let meta = copy_data(&self.tiers, &table.meta, to as u32, &|| self.check_open())?;
        lease.settle(meta.data_bytes);
        let (tier, file, _) = table.meta.parts()[0];
        if planted::has(Bug::CopiedFromRemovedBeforeEdit) {
            self.tiers.get(tier)?.remove(file)?;
        }
        let age = self.age_of(level, meta.number);
        let added = vec![AddedTable { level: level as u32, age, meta: meta.clone() }];
        let edit = Edit {
            removed: vec![meta.number],
            added,
            counters: Some(self.encode_counters()),
            ..Edit::default()
        };
        let committed = self.commit(edit, |_| {});
        if committed.as_ref().is_err_and(is_refusal) {
            let to = self.tiers.get(to as u32)?;
            to.remove(file)?;
            to.uncount(meta.data_bytes);
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

    /// The age of the run that a table is in.
    fn age_of(&self, level: usize, number: u64) -> u64 {
        let current = self.current.load();
        let mut runs = current.version.levels.get(level).into_iter().flat_map(|level| level.runs());
        runs.find(|run| run.tables.iter().any(|table| table.meta.number == number)).map_or(0, |run| run.age)
    }

    /// One cursor per run that has tables among `numbers`, newest first.
    fn merge_sources(&self, version: &crate::version::Version, numbers: &[u64]) -> Vec<Source> {
        let cache = self.tables.cache.clone();
        let chosen = |run: &crate::version::Run| -> Vec<Arc<TableHandle>> {
            run.tables.iter().filter(|table| numbers.contains(&table.meta.number)).cloned().collect()
        };
        let runs = version.levels.iter().flat_map(|level| level.runs());
        let cursor = |tables: Vec<Arc<TableHandle>>| {
            let (cache, tiers) = (cache.clone(), self.tiers.clone());
            let open = move |handle: &TableHandle| {
                let (number, tier) = (handle.meta.number, handle.meta.data_tier);
                let data = tiers.open_table_file(tier, FileId::new(FileKind::Data, number))?;
                let data = tiers.metered(data, tier as usize, Cause::Compaction);
                Ok(handle.table()?.cursor_over(data, cache.clone(), MERGE_READ_AHEAD_BYTES))
            };
            Source::Run(Box::new(RunCursor::new(tables, open)))
        };
        runs.map(chosen).filter(|tables| !tables.is_empty()).map(cursor).collect()
    }

    /// Writes what readers can still see of `input` as tables of `level`.
    fn write_run(&self, input: &mut dyn crate::key::Cursor, job: &RunJob<'_>) -> Result<Vec<TableMeta>> {
        let RunJob { bytes, meta_bytes, level, bottom, cause, paced } = *job;
        // Worst case: nothing is dropped or compressed, and every table's two files are rounded up to whole pages.
        let worst = bytes + bytes / 8 + (64 << 10);
        let (job_tier, lease, meta_lease) = self.lease_job(worst, meta_bytes)?;
        let boundaries = {
            let snapshots = self.snapshots.lock();
            snapshots.boundaries(self.visible())
        };
        let dead = self.catalog.lock().dead.clone();
        let place = |bytes: u64| {
            let bytes = bytes.min(worst);
            // A table goes to a faster tier than the job's if it should be there and there is room; the job's room
            // is kept for it all the same.
            let tier = self.view(&[]).map_or(0, |view| placement::of_output(&view, level, bytes));
            let faster = self.tiers.all[..job_tier as usize].get(tier);
            let leased = faster.and_then(|faster| faster.lease(bytes).ok());
            leased.map_or(Placed::on(job_tier), |lease| Placed { tier: tier as u32, lease: Some(lease) })
        };
        let options = OutputOptions {
            store: self.store,
            tiers: &self.tiers,
            cause,
            place: &place,
            table_bytes: self.options.table_bytes,
            block_bytes: self.options.block_bytes,
            take_number: &|| self.catalog.lock().take_file_number(),
            check: &|done| {
                paced.progress(done);
                self.check_open()
            },
        };
        let made = write_tables(input, &mut Retain::new(boundaries, dead, bottom), &options)?;
        let here = made.iter().filter(|meta| meta.data_tier == job_tier);
        let data: u64 = here.map(|meta| meta.data_bytes).sum();
        let meta: u64 = made.iter().map(|meta| meta.meta_bytes).sum();
        match meta_lease {
            Some(meta_lease) => {
                lease.settle(data);
                meta_lease.settle(meta);
            }
            None => lease.settle(data + meta),
        }
        Ok(made)
    }

    /// Room for a whole job of at most `worst` bytes, so that it can end once it has begun: on the slowest tier that
    /// has it, and on the fast tier for indexes and filters.
    fn lease_job(&self, worst: u64, meta_worst: u64) -> Result<(u32, Lease<'_>, Option<Lease<'_>>)> {
        let mut full = None;
        for tier in self.tiers.all.iter().rev() {
            // Indexes and filters are part of what the first tier is asked for.
            let meta = (tier.ordinal > 0).then(|| self.tiers.fast().lease(meta_worst)).transpose();
            match tier.lease(worst).and_then(|lease| Ok((lease, meta?))) {
                Ok((lease, meta)) => {
                    self.background.wanted.store(0, Ordering::Relaxed);
                    return Ok((tier.ordinal as u32, lease, meta));
                }
                Err(error) => full = full.or(Some(error)),
            }
        }
        self.background
            .wanted
            .store(if self.tiers.all.len() > 1 { meta_worst } else { 0 }, Ordering::Relaxed);
        Err(full.unwrap_or_else(|| Error::internal("there is no tier")))
    }

    /// Commits tables that were made; if the edit is refused they are discarded.
    fn commit_tables(&self, edit: Edit, change: impl FnOnce(&mut super::Current)) -> Result<()> {
        let made: Vec<TableMeta> = edit
            .added
            .iter()
            .filter(|added| !edit.removed.contains(&added.meta.number))
            .map(|added| added.meta.clone())
            .collect();
        let committed = self.commit(edit, change);
        if committed.as_ref().is_err_and(is_refusal) {
            for meta in made {
                for (tier, file, bytes) in meta.parts() {
                    let tier = self.tiers.get(tier)?;
                    tier.remove(file)?;
                    tier.uncount(bytes);
                }
            }
        }
        committed
    }

    /// Syncs the log again and again, for `Interval`.
    fn sync_regularly(&self, interval: Duration) {
        let mut state = self.background.state.lock();
        while !state.stopping {
            (state, _) = self.background.changed.wait_for(state, interval);
            drop(state);
            // A failure has closed the store for writes; the next writer is told.
            let synced = self.sync_log();
            state = self.background.state.lock();
            if synced.is_err() {
                return;
            }
        }
    }
}

/// Whether a commit's error says that the manifest was not written to. After any other the edit may be on media, tables
/// and all.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Closed | ErrorKind::ReadOnly)
}
