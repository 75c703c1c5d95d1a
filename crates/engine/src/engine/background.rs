//! The workers: flush sealed memtables, carry out plans (merges, moves, relocations), remove dead files, keep interval
//! syncs.
//!
//! A worker asks [`Engine::next_job`] for work, under one short lock; a flush goes before any merge, and only one runs
//! at a time, oldest memtable first, so runs come to level 0 in order. Plans that run are part of the next plan's view.
//! Before a job begins it has leases for its worst case. One that finds no room says how much it wants on the fast
//! tier, and tables go down before anything else; if none can, it is put off until room returns (looked for a few times
//! a second), and after the third time writers are told, unless other jobs run, which may have the room. A job that
//! fails otherwise is tried anew a few times; then the store closes for writes.

use super::Engine;
use super::store::Store;
use super::write::OldLog;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Durability;
use crate::policy::mix::Mix;
use crate::policy::placement::{self, KEEP_FREE_BYTES_MIN, KEEP_FREE_SHARE};
use crate::policy::{self, AFTER_ALL, LevelView, Plan, RunningPlan, Seen, TierView, View};
use crate::table::FLOORS_MAX;
use crate::version::{Run, TableMeta, Version};
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Condvar, Mutex, Priority, Sched, Thread};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A job that failed for another reason than room is tried this often.
const TRIES_MAX: u32 = 4;
/// How long a worker sleeps when nothing wakes it.
const IDLE: Duration = Duration::from_secs(1);
/// How long to wait before a job that failed is tried again; twice as long each time that it finds no room, up to eight
/// times.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_DOUBLINGS_MAX: u32 = 3;
/// A job that finds no room is tried this often before writers are told.
const TIMES_FULL_MAX: u32 = 2;
/// The same while others are being carried out: the room they have set aside comes back.
const TIMES_FULL_BESIDE_MAX: u32 = 16;
/// Runs of level 0 that point into one another have at most one part in so many of the first tier: they can only be
/// merged together.
const TREE_SHARE: u64 = 16;
/// A log file that is kept to be filled again.
const RETIRED_MAX: usize = 1;

#[derive(Debug)]
struct State {
    flushing: bool,
    promoting: bool,
    announcing: bool,
    running: Vec<RunningPlan>,
    /// The runs that a flush lies its own on.
    covering: Option<RunningPlan>,
    stopping: bool,
    /// Of flushes, and of merges.
    refused: [Refused; 2],
    /// From when on deletes are flushed again while jobs are refused, though their memtable is not full.
    seal_at: Duration,
    failures: u32,
    /// What may let a job succeed that has failed: jobs that did something, and requests for room.
    changes: u64,
    /// A worker has waited its time out, and nobody has since.
    idled: bool,
    /// Nothing was to be planned at this generation of the containers.
    idle_at: Option<u64>,
    /// Their entries are all in tables.
    retired: Vec<OldLog>,
    /// What is asked of the store.
    mix: Mix,
    threads: Vec<Thread>,
}

/// What became of jobs of one kind that found no room.
#[derive(Debug, Default)]
struct Refused {
    /// How often in a row.
    times: u32,
    /// Why; set once writers are told.
    why: Option<Error>,
}

/// A kind of job that writers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Flush = 0,
    Merge = 1,
}

impl State {
    fn new(mix: Mix) -> Self {
        Self {
            flushing: false,
            promoting: false,
            announcing: false,
            running: Vec::new(),
            covering: None,
            stopping: false,
            refused: Default::default(),
            seal_at: Duration::ZERO,
            failures: 0,
            changes: 0,
            idled: false,
            idle_at: None,
            retired: Vec::new(),
            mix,
            threads: Vec::new(),
        }
    }

    /// Of several that are alike, one: another may be of a plan that goes on.
    fn end(&mut self, plan: &Plan) {
        let ended = plan.running();
        if let Some(at) = self.running.iter().position(|running| *running == ended) {
            self.running.remove(at);
        }
    }

    /// What a new plan has to respect.
    fn kept_off(&self) -> Vec<RunningPlan> {
        self.running.iter().chain(&self.covering).cloned().collect()
    }

    /// Whether a flush or a plan is being carried out.
    fn has_jobs(&self) -> bool {
        self.flushing || !self.running.is_empty()
    }

    /// Why jobs of these kinds are put off, while they are.
    fn refused(&self, awaited: &[Awaited]) -> Option<&Error> {
        awaited.iter().find_map(|kind| self.refused[*kind as usize].why.as_ref())
    }
}

/// What the workers share.
#[derive(Debug)]
pub(crate) struct Background {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes that a job waits for on the fast tier.
    wanted: AtomicU64,
    /// A writer was refused, or waits, for want of room.
    reclaim: AtomicBool,
    /// Floors that a guard may have, where that follows the mix.
    floors: AtomicU64,
    /// What the last view of the tables had. Nobody waits for anything while it is locked, so simulations need not know
    /// of it.
    seen: std::sync::Mutex<Seen>,
}

/// Work for a worker.
enum Job {
    Flush,
    Compact(Plan),
    /// Bring in objects that reads have offered.
    Promote,
    /// Announce slots that writers will fill.
    Announce,
    Garbage,
    /// Flush what the active memtable deletes, though it is not full: those who are refused need the room.
    Seal,
}

impl Background {
    /// For a store with memtables of so many bytes.
    pub(crate) fn new(sched: &Sched, memtable_bytes: u64) -> Self {
        let state = State::new(Mix::new(memtable_bytes));
        Self {
            floors: AtomicU64::new(state.mix.floors().into()),
            state: Mutex::new(sched, state),
            changed: Condvar::new(sched),
            wanted: AtomicU64::new(0),
            reclaim: AtomicBool::new(false),
            seen: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    pub(crate) fn out_of_room(&self) -> Option<Error> {
        self.state.lock().refused(&[Awaited::Flush, Awaited::Merge]).cloned()
    }

    pub(crate) fn take_retired_log(&self) -> Option<OldLog> {
        self.state.lock().retired.pop()
    }

    /// Keeps an old log to be filled again; `false` when there are enough.
    pub(super) fn keep_retired_log(&self, log: OldLog) -> bool {
        let mut state = self.state.lock();
        let keeps = state.retired.len() < RETIRED_MAX && !state.stopping;
        if keeps {
            state.retired.push(log);
        }
        keeps
    }

    /// Whether plans are being carried out.
    pub(super) fn is_at_work(&self) -> bool {
        !self.state.lock().running.is_empty()
    }

    /// Waits until a job begins or ends, or so long.
    pub(super) fn wait_for_change(&self, most: Duration) {
        drop(self.changed.wait_for(self.state.lock(), most));
    }

    /// Whether jobs find no room.
    pub(super) fn is_refused(&self) -> bool {
        self.state.lock().refused.iter().any(|refused| refused.times > 0)
    }

    /// Whether a writer was refused, or waits, for want of room.
    pub(super) fn reclaims(&self) -> bool {
        self.reclaim.load(Ordering::Relaxed)
    }

    /// There is room enough: merges are due by their sizes alone again.
    pub(super) fn stop_reclaiming(&self) {
        self.reclaim.store(false, Ordering::Relaxed);
    }

    /// Somebody waits for room that there is not: a writer, or a job.
    pub(super) fn lacks_room(&self) -> bool {
        self.reclaims() || self.wanted.load(Ordering::Relaxed) > 0
    }

    /// A job waits for so many bytes on the fast tier; 0 for none.
    pub(super) fn want(&self, bytes: u64) {
        self.wanted.store(bytes, Ordering::Relaxed);
    }

    /// Waits while `condition` holds, which jobs of the kinds that are `awaited` can end.
    ///
    /// # Errors
    /// `Full` when it cannot for want of room; why the store takes no writes.
    pub(crate) fn wait_while(
        &self,
        engine: &Engine,
        awaited: &[Awaited],
        mut condition: impl FnMut() -> bool,
    ) -> Result<()> {
        self.wait_while_state(engine, awaited, |_| condition())
    }

    fn wait_while_state(
        &self,
        engine: &Engine,
        awaited: &[Awaited],
        mut condition: impl FnMut(&State) -> bool,
    ) -> Result<()> {
        let began = engine.sched.now();
        let mut state = self.state.lock();
        while condition(&state) {
            engine.check_writable()?;
            if let Some(error) = state.refused(awaited) {
                return Err(error.clone());
            }
            (state, _) = self.changed.wait_for(state, IDLE);
        }
        drop(state);
        engine.operations.slowed(engine.sched.now().saturating_sub(began));
        Ok(())
    }

    /// Waits until there is room for `bytes` more, beyond what is kept for deletes and merges where they are `puts`.
    ///
    /// # Errors
    /// `Full` once nothing that runs or could be run will make room; why the store takes no writes.
    pub(crate) fn wait_for_room(&self, engine: &Engine, bytes: u64, puts: bool) -> Result<()> {
        let began = engine.sched.now();
        let mut state = self.state.lock();
        while engine.room(puts) < bytes {
            engine.check_writable()?;
            if let Some(error) = state.refused(&[Awaited::Flush, Awaited::Merge]) {
                return Err(error.clone());
            }
            if !self.reclaim.swap(true, Ordering::Relaxed) {
                state.idle_at = None;
                state.changes += 1;
                self.changed.notify_all();
            }
            let generation = engine.current.load().generation;
            let nothing_runs = !state.has_jobs() && !engine.tables.has_garbage();
            if nothing_runs && state.idle_at == Some(generation) {
                return Err(engine.full(bytes));
            }
            (state, _) = self.changed.wait_for(state, IDLE);
        }
        self.reclaim.store(false, Ordering::Relaxed);
        drop(state);
        engine.operations.slowed(engine.sched.now().saturating_sub(began));
        Ok(())
    }

    /// Waits until there is room for more range tombstones.
    ///
    /// # Errors
    /// `Full` once nothing that runs or could be run will work any off; why the store takes no writes.
    pub(super) fn wait_for_ranges(&self, engine: &Engine, has_room: impl Fn() -> bool) -> Result<()> {
        let began = engine.sched.now();
        let mut state = self.state.lock();
        // Who read at an older number may have ended.
        state.idle_at = None;
        state.changes += 1;
        self.changed.notify_all();
        while !has_room() {
            engine.check_writable()?;
            if let Some(error) = state.refused(&[Awaited::Flush, Awaited::Merge]) {
                return Err(error.clone());
            }
            let current = engine.current.load();
            let nothing_runs = !state.has_jobs() && current.sealed.is_empty();
            if nothing_runs && state.idle_at == Some(current.generation) {
                return Err(engine.full_of_ranges());
            }
            drop(current);
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

/// What a job's panic said.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal(format!("a background job panicked: {text}"))
}

impl Engine {
    /// Starts the workers.
    pub(crate) fn start_background(self: &Arc<Self>) -> Result<()> {
        let fail = |source| Error::io("start a background thread", source);
        // Each is on the list at once: whoever gives up after a later one could not be started ends those that were.
        let start = |name: &str, priority, body: Box<dyn FnOnce() + Send>| {
            let thread = self.sched.spawn(name, priority, body).map_err(fail)?;
            self.background.state.lock().threads.push(thread);
            Ok(())
        };
        for i in 0..self.options.background_threads {
            let engine = self.clone();
            start(&format!("cuesta-work-{i}"), Priority::Background, Box::new(move || engine.work()))?;
        }
        if let Durability::Interval(interval) = self.options.durability {
            let engine = self.clone();
            start("cuesta-sync", Priority::Normal, Box::new(move || engine.sync_regularly(interval)))?;
        }
        Ok(())
    }

    /// Waits until no memtable waits for its flush and no merge is due.
    pub(crate) fn wait_for_background(&self) -> Result<()> {
        self.background.wait_while_state(self, &[Awaited::Flush, Awaited::Merge], |state| {
            let generation = self.current.load().generation;
            // What a job took in is closed and removed only after its edit.
            state.has_jobs()
                || !self.current.load().sealed.is_empty()
                || !self.background_is_idle_at(generation)
        })
    }

    /// Waits until the memtables sealed so far are tables.
    pub(crate) fn wait_for_flush(&self) -> Result<()> {
        self.background.wait_while(self, &[Awaited::Flush], || !self.current.load().sealed.is_empty())
    }

    /// Called under the background's lock by way of `wait_while`, which is why it does not take it.
    fn background_is_idle_at(&self, generation: u64) -> bool {
        self.view(&[]).and_then(|view| policy::plan(&view)).is_none()
            && self.current.load().generation == generation
    }

    fn work(self: Arc<Self>) {
        while let Some(job) = self.next_job() {
            let run = || match &job {
                Job::Flush => {
                    let flushed = self.flush_oldest();
                    self.make_room_beside();
                    flushed
                }
                Job::Compact(plan) => self.compact(plan),
                Job::Promote => self.promote(),
                Job::Announce => self.announce(),
                Job::Garbage => Ok(()),
                Job::Seal => self.seal_active(),
            };
            // A job that panics must not leave writers waiting for what nobody does any more: the store is closed for
            // writes, and says why.
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            self.tables.collect_garbage();
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
            self.follow_mix(&mut state);
            let current = self.current.load_full();
            let writable = self.failure.get().is_none();
            // Room that a job waits for comes before the job.
            if writable && state.running.is_empty() && self.background.wanted.load(Ordering::Relaxed) > 0 {
                let makes_room = self.view_of_tables().and_then(|view| placement::urgent(&view));
                if let Some(plan) = makes_room {
                    state.running.push(plan.running());
                    return Some(Job::Compact(plan));
                }
            }
            if writable && !state.flushing && !current.sealed.is_empty() {
                state.flushing = true;
                return Some(Job::Flush);
            }
            let wants_announced = || self.objects.as_ref().is_some_and(Store::wants_announced);
            if writable && self.options.log_free && !state.announcing && wants_announced() {
                state.announcing = true;
                return Some(Job::Announce);
            }
            // Where jobs find no room, and so are never done, deletes may be what makes some: those of ranges at once,
            // since tables go with them as they are, the others by merges, which more runs make larger.
            let deletes = current.sealed.is_empty() && current.active.tombstones() > 0;
            let is_refused = state.refused(&[Awaited::Flush, Awaited::Merge]).is_some();
            let may_add_run = current.version.level0().runs_max < self.options.level0_most() as usize
                || !current.active.range_tombstones().is_empty();
            let may_help = is_refused && may_add_run && self.sched.now() >= state.seal_at;
            if writable && deletes && may_help {
                state.seal_at = self.sched.now() + IDLE;
                return Some(Job::Seal);
            }
            // One worker stays free for the next flush, if there is more than one: writers wait for flushes.
            let merges_max = (self.options.background_threads as usize - 1).max(1);
            let under_way = state.running.len() + usize::from(state.promoting);
            if writable && !state.promoting && under_way < merges_max && self.has_offers(state.idled) {
                // What is offered from now on gathers again.
                (state.promoting, state.idled) = (true, false);
                return Some(Job::Promote);
            }
            if writable && under_way < merges_max && state.idle_at != Some(current.generation) {
                let plan = self.view(&state.kept_off()).and_then(|view| policy::plan(&view));
                match plan {
                    Some(plan) => {
                        state.running.push(plan.running());
                        return Some(Job::Compact(plan));
                    }
                    None => {
                        state.idle_at = Some(current.generation);
                        let has_ranges = !current.version.range_tombstones.is_empty();
                        if self.background.reclaim.load(Ordering::Relaxed) || has_ranges {
                            // Who waits for room will not get it.
                            self.background.changed.notify_all();
                        }
                    }
                }
            }
            // Who sleeps must not hold tables that are gone: their room would be missed.
            drop(current);
            let timed_out;
            (state, timed_out) = self.background.changed.wait_for(state, IDLE);
            state.idled = timed_out;
            if timed_out {
                // Tables may have grown hot, and room may have come back.
                state.idle_at = None;
                if writable && deletes && self.background.reclaim.load(Ordering::Relaxed) {
                    return Some(Job::Seal);
                }
            }
        }
    }

    /// The next plan, which its caller carries out by itself.
    pub(super) fn begin_plan(&self) -> Option<Plan> {
        let mut state = self.background.state.lock();
        let plan = self.view(&state.kept_off()).and_then(|view| policy::plan(&view))?;
        state.running.push(plan.running());
        Some(plan)
    }

    /// What [`Engine::begin_plan`] began has ended.
    pub(super) fn end_plan(&self, plan: &Plan) {
        let mut state = self.background.state.lock();
        state.end(plan);
        state.idle_at = None;
        drop(state);
        self.background.changed.notify_all();
    }

    /// Whether a flush of so many bytes points into what is there.
    pub(super) fn links_flush(&self, bytes: u64) -> bool {
        match self.options.adds_floors() {
            true => self.cover_level_0(bytes),
            false => self.options.links_runs(),
        }
    }

    /// Whether a flush of so many bytes is to lie on the newest runs of level 0, those that point into one another
    /// already, so that a lookup goes through all of them as through one. Not while they are merged, or are about to
    /// be; nor where they would become too much to find room for at once. If so, no plan touches them until the flush
    /// has ended.
    fn cover_level_0(&self, bytes: u64) -> bool {
        let mut state = self.background.state.lock();
        let current = self.current.load();
        let runs = current.version.levels.first().and_then(|level| level.guards.first());
        let runs = runs.map_or(&[][..], |guard| &guard.runs);
        let is_busy = |run: &Run| {
            let busy = |number: &u64| state.running.iter().any(|plan| plan.inputs.contains(number));
            run.tables.iter().any(|table| busy(&table.meta.number))
        };
        let idle = runs.iter().take_while(|run| !is_busy(run)).count();
        let linked = runs.windows(2).take_while(|pair| pair[0].lies_on(&pair[1])).count();
        let tree: Vec<&TableMeta> =
            runs.iter().take(linked + 1).flat_map(|run| &run.tables).map(|table| &table.meta).collect();
        let together = bytes + tree.iter().map(|meta| meta.level_bytes()).sum::<u64>();
        let covers = (1..self.options.level0_merge as usize).contains(&idle)
            && tree.len() == linked + 1
            && tree.len() < FLOORS_MAX
            && together <= self.tiers.fast().capacity_bytes / TREE_SHARE;
        if covers {
            state.covering = Some(RunningPlan {
                inputs: tree.iter().map(|meta| meta.number).collect(),
                level: 0,
                output_level: 0,
                from: Vec::new(),
                to: AFTER_ALL.to_vec(),
            });
        }
        covers
    }

    fn job_ended(&self, job: &Job, result: Result<()>) {
        let mut state = self.background.state.lock();
        match job {
            Job::Flush => (state.flushing, state.covering) = (false, None),
            Job::Promote => state.promoting = false,
            Job::Announce => state.announcing = false,
            Job::Compact(plan) => state.end(plan),
            Job::Garbage | Job::Seal => {}
        }
        // What was refused for overlapping this job may be planned now.
        state.idle_at = None;
        // Flushes wait for demotions, so who waits for a flush waits for both.
        let is_flush = matches!(job, Job::Flush | Job::Compact(Plan::Demote { .. } | Plan::Release { .. }));
        let kind = if is_flush { Awaited::Flush } else { Awaited::Merge } as usize;
        let wait = match result {
            Ok(()) => {
                state.changes += u64::from(!matches!(job, Job::Garbage));
                // What a relocation, say, has made room for must show itself first.
                if matches!(
                    job,
                    Job::Flush
                        | Job::Compact(Plan::Merge { .. } | Plan::Demote { .. } | Plan::Release { .. })
                ) {
                    state.refused[kind] = Refused::default();
                    state.failures = 0;
                }
                false
            }
            Err(error) if *error.kind() == ErrorKind::Closed || self.failure.get().is_some() => {
                drop(error);
                false
            }
            // At first tables that go down, what is being removed, or another job that ends, may make room; only then
            // writers are told. Tables go down once no other job runs, and until then it is no use to try again.
            Err(error) if *error.kind() == ErrorKind::Full => {
                let others_run = state.promoting || !state.running.is_empty();
                let times_max = if others_run { TIMES_FULL_BESIDE_MAX } else { TIMES_FULL_MAX };
                state.refused[kind].times += 1;
                if state.refused[kind].times > times_max {
                    state.refused[kind].why = Some(error);
                }
                others_run || !self.can_make_room()
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
            let pause = RETRY * (1 << state.refused[kind].times.min(RETRY_DOUBLINGS_MAX));
            let (until, changes) = (self.sched.now() + pause, state.changes);
            // Not by another job that fails: two would go on waking each other.
            while !state.stopping && state.changes == changes && self.sched.now() < until {
                let left = until.saturating_sub(self.sched.now());
                (state, _) = self.background.changed.wait_for(state, left);
            }
        }
    }

    /// Whether the next plan takes tables off a tier that is short of room.
    fn can_make_room(&self) -> bool {
        self.view_of_tables().is_some_and(|view| placement::urgent(&view).is_some())
    }

    /// Has guards have more floors or fewer, by what the store is asked lately.
    fn follow_mix(&self, state: &mut State) {
        if self.options.follows_mix() && state.mix.look(self.operations.reads(), self.visible().0) {
            self.background.floors.store(state.mix.floors().into(), Ordering::Relaxed);
            state.idle_at = None;
        }
    }

    /// Runs that a guard may have at present.
    pub(super) fn runs_max(&self) -> usize {
        match self.options.follows_mix() {
            true => self.background.floors.load(Ordering::Relaxed) as usize,
            false => self.options.runs_max(),
        }
    }

    /// What the policy looks at, beside plans that run.
    pub(super) fn view(&self, running: &[RunningPlan]) -> Option<View> {
        self.view_with(running, true)
    }

    /// The same, without what only demotions are planned by.
    pub(super) fn view_of_tables(&self) -> Option<View> {
        self.view_with(&[], false)
    }

    fn view_with(&self, running: &[RunningPlan], demotes: bool) -> Option<View> {
        let current = self.current.load();
        let tiers = self.tiers.all.iter().map(|tier| TierView {
            capacity: tier.capacity_bytes,
            free: tier.free_bytes(),
            keep_free: match tier.ordinal + 1 == self.tiers.all.len() {
                true => self.reserve(tier),
                false => (tier.capacity_bytes / KEEP_FREE_SHARE).max(KEEP_FREE_BYTES_MIN),
            },
            wanted: if tier.ordinal == 0 { self.background.wanted.load(Ordering::Relaxed) } else { 0 },
        });
        let levels = self.levels_view(&current.version);
        let store = self.store_view(&current, &levels, running, demotes);
        let has_ranges = !current.version.range_tombstones.is_empty();
        let is_empty = current.version.levels.is_empty() && store.is_none() && !has_ranges;
        (!is_empty).then(|| {
            let reclaim = self.background.reclaim.load(Ordering::Relaxed);
            let tiers = tiers.collect();
            let about = (reclaim, self.runs_max(), levels);
            let mut view = View::of(&current.version, &self.options, running, tiers, store, about);
            if !view.range_tombstones.is_empty() {
                view.oldest_read = self.boundaries()[0];
            }
            self.weigh(&mut view, &current);
            view
        })
    }

    /// What the levels look like. Of guards that are as they were the last time nothing is looked at.
    fn levels_view(&self, version: &Version) -> Vec<Arc<LevelView>> {
        let mut seen = self.background.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let levels = seen.look(version, &self.options);
        debug_assert_eq!(
            levels,
            Seen::default().look(version, &self.options),
            "guards are not as they were seen"
        );
        levels
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_plans_that_look_alike_one_ends_at_a_time() {
        let mut state = State::new(Mix::new(1 << 20));
        let plan = Plan::Forget { tombstones: Vec::new(), from: b"a".to_vec(), to: b"b".to_vec() };
        state.running.extend([plan.running(), plan.running()]);
        state.end(&plan);
        assert_eq!(state.running, [plan.running()]);
        state.end(&plan);
        assert_eq!(state.running, []);
    }
}
