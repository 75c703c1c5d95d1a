//! The simulator behind [`crate::Sched::simulated`]: real threads, of which one runs at a time, chosen by a seed.
//!
//! Words: a *task* is a thread that the simulator knows: the caller of [`crate::Sched::run`] and what
//! [`crate::Sched::spawn`] starts. The *token* is the right to run. An *outsider* is any other thread.
//!
//! Invariants:
//! - At most one task holds the token, and a task touches anything shared only while it does. So the order of events
//!   is a function of the seed and of the program alone.
//! - A task gives the token up only inside this module: at a yield point, or when it waits.
//! - Virtual time moves by [`STEP`] at each yield point, and jumps to the earliest deadline when nobody can run.
//! - When nobody can run and nobody waits for a time, all waiting tasks panic with the list of who waits for what.
//!   All of them, so that the joins and locks of those that unwind can be answered.
//! - So they do after [`TIME_MAX`] or [`STEPS_MAX`]: a program that goes round for ever ends, too, and says where.
//!
//! Choosing: the generator is asked at each yield point whether to switch; if so, one of the runnable tasks is drawn.
//! Passing the token parks one thread and unparks another (some microseconds); not switching costs one uncontended
//! lock, some tens of nanoseconds. Lists are short (a store has about ten threads), so they are searched, not indexed.
//!
//! Outsiders never hold the token. They may take locks, notify and join, as happens when what outlived `run` is
//! dropped; then tasks that are left run beside them, and nothing is promised of the order. While `run` is in
//! progress a task that waits for something only an outsider could do is a deadlock.

use crate::Rng;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// How far a yield point moves the virtual clock.
const STEP: Duration = Duration::from_micros(1);

/// A program that is not done after so much virtual time hangs.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// One that is not done after so many yield points goes round for ever.
const STEPS_MAX: u64 = 20_000_000;

type TaskId = u64;

thread_local! {
    /// Which task of which simulator this thread is.
    static ME: Cell<Option<(u64, TaskId)>> = const { Cell::new(None) };
}

/// How likely a yield point is to pass the token on: once in this many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneIn(u64);

impl OneIn {
    /// Device operations, sleeps, spawned threads: what interleavings are made of.
    pub(crate) const OFTEN: Self = Self(2);
    /// Locks, which are much more frequent and mostly uncontended.
    pub(crate) const SELDOM: Self = Self(16);
}

/// What a task waits for. The number tells one lock from another; it is an address or an id, compared and never
/// ordered, so the choice does not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A lock to be given up.
    Lock(usize),
    /// A notification.
    Notice(usize),
    /// The end of a task.
    End(TaskId),
    /// Time alone.
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runnable,
    Waiting { wait: Wait, deadline: Option<Duration> },
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    ByEvent,
    ByTime,
}

#[derive(Debug)]
struct Task {
    name: String,
    status: Status,
    woken: Woken,
    baton: Arc<Baton>,
}

/// Where one task waits for the token.
#[derive(Debug)]
struct Baton {
    passed: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Baton {
    fn new(thread: Option<Thread>) -> Arc<Self> {
        Arc::new(Self { passed: AtomicBool::new(false), thread: Mutex::new(thread) })
    }

    fn pass(&self) {
        self.passed.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.as_ref() {
            thread.unpark();
        }
    }

    fn take(&self) {
        while !self.passed.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

#[derive(Debug)]
struct State {
    rng: Rng,
    now: Duration,
    steps: u64,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    /// Who holds the token; nobody before the first task and when only outsiders could go on.
    current: Option<TaskId>,
    /// How many callers are inside `run`: only then is a standstill a deadlock.
    runs: usize,
    /// Earliest deadline of any waiting task, or an earlier time.
    alarm: Option<Duration>,
    /// Why all tasks are to panic.
    given_up: Option<String>,
    trace: u64,
    /// Scratch of `choose`, kept to spare an allocation a switch.
    runnable: Vec<TaskId>,
}

/// One simulated world. See the module.
pub(crate) struct Sim {
    id: u64,
    state: Mutex<State>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({})", self.id)
    }
}

/// Ends a task of [`Sim::enter`], by return or by panic.
pub(crate) struct Entered<'a> {
    sim: &'a Sim,
    task: TaskId,
    before: Option<(u64, TaskId)>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.sim.locked().runs -= 1;
        ME.set(self.before);
        self.sim.finish(self.task);
    }
}

impl Sim {
    pub(crate) fn new(rng: Rng) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let state = State {
            rng,
            now: Duration::ZERO,
            steps: 0,
            tasks: BTreeMap::new(),
            next_task: 0,
            current: None,
            runs: 0,
            alarm: None,
            given_up: None,
            trace: 0,
            runnable: Vec::new(),
        };
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), state: Mutex::new(state) }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task that the calling thread is; `None` for an outsider.
    pub(crate) fn me(&self) -> Option<TaskId> {
        ME.get().filter(|(sim, _)| *sim == self.id).map(|(_, task)| task)
    }

    pub(crate) fn now(&self) -> Duration {
        self.locked().now
    }

    pub(crate) fn trace(&self) -> u64 {
        self.locked().trace
    }

    /// Makes the calling outsider a task, and waits for the token.
    pub(crate) fn enter(&self, name: &str) -> Entered<'_> {
        let baton = Baton::new(Some(thread::current()));
        let mut state = self.locked();
        state.runs += 1;
        let task = state.add(name, Arc::clone(&baton));
        let before = ME.replace(Some((self.id, task)));
        let entered = Entered { sim: self, task, before };
        state.dispatch_if_idle();
        drop(state);
        baton.take();
        entered
    }

    /// Adds a task for a thread that is about to be started; it runs no earlier than [`Sim::started`] says who it is.
    pub(crate) fn prepare(&self, name: &str) -> TaskId {
        self.locked().add(name, Baton::new(None))
    }

    /// Names the thread of a prepared task.
    pub(crate) fn started(&self, task: TaskId, thread: &Thread) {
        let mut state = self.locked();
        if let Some(entry) = state.tasks.get(&task) {
            *entry.baton.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.clone());
            // The token may have been passed before the thread was known.
            thread.unpark();
        }
        state.dispatch_if_idle();
    }

    /// First call of a prepared task's thread: returns when it may run.
    pub(crate) fn begin(&self, task: TaskId) {
        ME.set(Some((self.id, task)));
        let baton = self.locked().tasks.get(&task).map(|entry| Arc::clone(&entry.baton));
        if let Some(baton) = baton {
            baton.take();
        }
    }

    /// Last call of a spawned task's thread.
    pub(crate) fn end(&self, task: TaskId) {
        ME.set(None);
        self.finish(task);
    }

    /// Takes a task out: those who join it may go on, and the token is passed.
    pub(crate) fn finish(&self, task: TaskId) {
        let mut state = self.locked();
        state.tasks.remove(&task);
        state.wake(Wait::End(task), usize::MAX);
        if state.current == Some(task) {
            state.current = None;
        }
        state.dispatch_if_idle();
    }

    /// Maybe lets another task run. Nothing for an outsider.
    pub(crate) fn yield_point(&self, chance: OneIn) {
        let Some(me) = self.me() else { return };
        let mut state = self.locked();
        state.now += STEP;
        state.ring();
        state.steps += 1;
        if state.steps > STEPS_MAX {
            state.declare_hang();
            drop(state);
            self.after_wait(me);
            return;
        }
        if !state.rng.one_in(chance.0) {
            return;
        }
        if let Some(next) = state.choose()
            && next != me
        {
            self.pass(state, me, next);
        }
    }

    /// Waits as `me`, until woken or until `limit` has passed.
    ///
    /// # Panics
    /// When that would be for ever.
    pub(crate) fn wait(&self, me: TaskId, wait: Wait, limit: Option<Duration>) -> Woken {
        self.announce(me, wait, limit);
        self.block(me)
    }

    /// First half of a wait: from here on `me` can be woken, but still runs. What an outsider does between the look
    /// at a lock and the wait for it is not missed this way.
    pub(crate) fn announce(&self, me: TaskId, wait: Wait, limit: Option<Duration>) {
        let mut state = self.locked();
        state.now += STEP;
        // A limit past the end of time is none.
        let deadline = limit.and_then(|limit| state.now.checked_add(limit));
        if let Some(deadline) = deadline {
            state.alarm = Some(state.alarm.map_or(deadline, |alarm| alarm.min(deadline)));
        }
        if let Some(task) = state.tasks.get_mut(&me) {
            task.status = Status::Waiting { wait, deadline };
        }
    }

    /// Takes an announcement back.
    pub(crate) fn retract(&self, me: TaskId) {
        if let Some(task) = self.locked().tasks.get_mut(&me) {
            task.status = Status::Runnable;
        }
    }

    /// Second half of a wait.
    pub(crate) fn block(&self, me: TaskId) -> Woken {
        let mut state = self.locked();
        state.ring();
        match state.next() {
            Some(next) if next == me => drop(state),
            Some(next) => self.pass(state, me, next),
            // Only when `run` has ended: an outsider may still wake this task.
            None => {
                state.current = None;
                let baton = state.tasks.get(&me).map(|task| Arc::clone(&task.baton));
                drop(state);
                if let Some(baton) = baton {
                    baton.take();
                }
            }
        }
        self.after_wait(me)
    }

    fn after_wait(&self, me: TaskId) -> Woken {
        let state = self.locked();
        let woken = state.tasks.get(&me).map_or(Woken::ByEvent, |task| task.woken);
        if let Some(message) = &state.given_up
            && !thread::panicking()
        {
            let message = message.clone();
            drop(state);
            panic!("{message}");
        }
        woken
    }

    /// Hands the token from `me` to `next`, and returns when `me` has it again.
    fn pass(&self, mut state: MutexGuard<'_, State>, me: TaskId, next: TaskId) {
        let mine = state.tasks.get(&me).map(|task| Arc::clone(&task.baton));
        state.dispatch(next);
        drop(state);
        if let Some(mine) = mine {
            mine.take();
        }
    }

    /// Wakes all who wait for `wait`.
    pub(crate) fn wake_all(&self, wait: Wait) {
        let mut state = self.locked();
        state.wake(wait, usize::MAX);
        state.dispatch_if_idle();
    }

    /// Wakes one of those who wait for `wait`, drawn by the seed.
    pub(crate) fn wake_one(&self, wait: Wait) {
        let mut state = self.locked();
        let waiting = state.tasks.values().filter(|task| task.waits_for(wait)).count();
        let drawn = state.rng.below(waiting as u64) as usize;
        state.wake(wait, drawn);
        state.dispatch_if_idle();
    }

    /// Waits for the end of `task` if the caller is a task; an outsider waits for its thread instead.
    pub(crate) fn join(&self, task: TaskId) {
        let Some(me) = self.me() else { return };
        self.yield_point(OneIn::OFTEN);
        while self.locked().tasks.contains_key(&task) {
            self.wait(me, Wait::End(task), None);
        }
    }
}

impl Task {
    fn waits_for(&self, what: Wait) -> bool {
        matches!(self.status, Status::Waiting { wait, .. } if wait == what)
    }

    fn wake(&mut self, woken: Woken) {
        self.status = Status::Runnable;
        self.woken = woken;
    }
}

impl State {
    fn add(&mut self, name: &str, baton: Arc<Baton>) -> TaskId {
        let id = self.next_task;
        self.next_task += 1;
        let task = Task { name: name.to_owned(), status: Status::Runnable, woken: Woken::ByEvent, baton };
        self.tasks.insert(id, task);
        id
    }

    /// Wakes those who wait for `wait`: all for `usize::MAX`, else the one at that place among them.
    fn wake(&mut self, wait: Wait, which: usize) {
        let waiting = self.tasks.values_mut().filter(|task| task.waits_for(wait));
        for (place, task) in waiting.enumerate() {
            if which == usize::MAX || which == place {
                task.wake(Woken::ByEvent);
            }
        }
    }

    /// Wakes all whose deadline has come.
    fn ring(&mut self) {
        if self.alarm.is_none_or(|alarm| alarm > self.now) {
            return;
        }
        let now = self.now;
        let mut alarm: Option<Duration> = None;
        for task in self.tasks.values_mut() {
            let Status::Waiting { deadline: Some(deadline), .. } = task.status else { continue };
            if deadline <= now {
                task.wake(Woken::ByTime);
            } else {
                alarm = Some(alarm.map_or(deadline, |alarm| alarm.min(deadline)));
            }
        }
        self.alarm = alarm;
    }

    /// Draws one of the runnable tasks.
    fn choose(&mut self) -> Option<TaskId> {
        let mut runnable = std::mem::take(&mut self.runnable);
        runnable.clear();
        let is_runnable = |(_, task): &(&TaskId, &Task)| task.status == Status::Runnable;
        runnable.extend(self.tasks.iter().filter(is_runnable).map(|(id, _)| *id));
        let chosen = match runnable.len() {
            0 => None,
            1 => Some(runnable[0]),
            count => Some(runnable[self.rng.below(count as u64) as usize]),
        };
        self.runnable = runnable;
        chosen
    }

    /// The task to run when the current one cannot; moves time and finds deadlocks.
    fn next(&mut self) -> Option<TaskId> {
        loop {
            if let Some(task) = self.choose() {
                return Some(task);
            }
            if let Some(alarm) = self.alarm {
                self.now = self.now.max(alarm);
                self.ring();
                if self.now > TIME_MAX {
                    self.declare_hang();
                }
            } else if self.runs == 0 || self.tasks.is_empty() {
                return None;
            } else {
                self.declare_deadlock();
            }
        }
    }

    fn declare_deadlock(&mut self) {
        let message = format!("deadlock in simulation:{}", self.waiting());
        assert!(self.given_up.is_none(), "while unwinding from a deadlock, another {message}");
        self.end_all(message);
    }

    /// Once: those that unwind from it may take their time.
    fn declare_hang(&mut self) {
        if self.given_up.is_none() && self.runs > 0 {
            let (now, steps) = (self.now, self.steps);
            self.end_all(format!("no end after {now:.0?} and {steps} steps:{}", self.waiting()));
        }
    }

    /// Who waits for what.
    fn waiting(&self) -> String {
        let mut message = String::new();
        for task in self.tasks.values() {
            if let Status::Waiting { wait, .. } = task.status {
                let what = match wait {
                    Wait::Lock(_) => "a lock",
                    Wait::Notice(_) => "a notification",
                    Wait::End(_) => "the end of a thread",
                    Wait::Time => "time",
                };
                message += &format!(" {} waits for {what};", task.name);
            }
        }
        message
    }

    /// All tasks go on, to panic with `message`.
    fn end_all(&mut self, message: String) {
        self.tasks.values_mut().for_each(|task| task.wake(Woken::ByEvent));
        self.given_up = Some(message);
    }

    fn dispatch(&mut self, task: TaskId) {
        self.current = Some(task);
        self.trace = (self.trace ^ task).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
            ^ u64::from(self.now.subsec_nanos());
        if let Some(entry) = self.tasks.get(&task) {
            entry.baton.pass();
        }
    }

    /// Gives the token to a runnable task if nobody has it.
    fn dispatch_if_idle(&mut self) {
        if self.current.is_none()
            && let Some(next) = self.next()
        {
            self.dispatch(next);
        }
    }
}
