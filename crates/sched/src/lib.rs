//! Locks, waits, threads, time and randomness, from one place.
//!
//! The engine never touches `std::sync` locks, `std::thread` or a clock itself; it is handed a [`Sched`]. In
//! production that is a thin layer over the standard library. In simulation it lets one thread run at a time and
//! chooses, by a seed, who runs next at every wait and at every call to a simulated device; so one seed replays a
//! whole run.
//!
//! Any thread may call anything here. In simulation only what happens inside [`Sched::run`] is replayed, and only if
//! the code in it takes no decision from elsewhere: no wall clock, no iteration order of a randomly seeded map, no
//! address.
//!
//! Poisoning is not modelled: a thread that panics while it holds a [`Mutex`] leaves the value as it was.

#![allow(clippy::disallowed_methods, reason = "this is the one place where real time and real sleep come in")]

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync;
    pub(crate) use std::thread;
}
/// The same, as the crate shuttle has them.
#[cfg(feature = "shuttle")]
mod real {
    pub(crate) use shuttle::sync;
    pub(crate) use shuttle::thread;
}
mod rng;
mod sim;
mod sync;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Atomics: the standard library's, or shuttle's when interleavings are tried.
pub mod atomic {
    pub use crate::real::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU64, Ordering};
}
pub use rng::Rng;
#[cfg(feature = "shuttle")]
pub use shuttle;
pub use sync::{Condvar, Mutex, MutexGuard};

use sim::{OneIn, Sim, Wait};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much less a background thread asks for, in the kernel's units of niceness (0 to 19).
const BACKGROUND_NICENESS: i32 = 10;

/// Who runs when, and what time it is. Cheap to clone; clones share one scheduler.
#[derive(Clone, Debug)]
pub struct Sched {
    started: Instant,
    seed: u64,
    sim: Option<Arc<Sim>>,
}

/// How urgently the operating system should run a thread. A simulation makes no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// As urgent as the caller.
    Normal,
    /// Yields to foreground work when the processor is short: the thread asks the kernel to be nicer, and goes on as
    /// it is when that is refused.
    Background,
}

/// A running thread; [`Thread::join`] waits for its end.
#[derive(Debug)]
pub struct Thread(Handle);

#[derive(Debug)]
enum Handle {
    Real(real::thread::JoinHandle<()>),
    /// And which simulation, and which task of it.
    Simulated(std::thread::JoinHandle<()>, Arc<Sim>, u64),
}

impl Sched {
    /// Real threads, real time; `seed` feeds [`Sched::rng`] only.
    pub fn real(seed: u64) -> Self {
        Self { started: Instant::now(), seed, sim: None }
    }

    /// Threads one at a time, by `seed`, in virtual time that begins at zero. Work is done inside [`Sched::run`].
    pub fn simulated(seed: u64) -> Self {
        // Another stream than any of `rng`: what a program draws does not shift who runs.
        let sim = Sim::new(Rng::new(seed.rotate_left(32) ^ 0x5bd1_e995_7f4a_7c15));
        Self { sim: Some(Arc::new(sim)), ..Self::real(seed) }
    }

    /// Calls `body` and returns its result. In simulation the caller is the first thread, named `main`, and waits for
    /// its turns like the others; threads it has not joined by the end go on without a promise about their order.
    /// Called inside a run it only calls `body`.
    ///
    /// # Panics
    /// When `body` does, or when the simulated threads wait for each other for ever.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        let _entered = self.sim.as_ref().filter(|sim| sim.me().is_none()).map(|sim| sim.enter("main"));
        body()
    }

    /// Time since this scheduler was made: monotonic, never the wall clock. Virtual in simulation: it moves by a
    /// microsecond at each yield point, and to the next deadline when all threads wait.
    pub fn now(&self) -> Duration {
        self.sim.as_ref().map_or_else(|| self.started.elapsed(), |sim| sim.now())
    }

    /// Lets at least `duration` pass. Prefer a [`Condvar`] wait, which can be woken.
    pub fn sleep(&self, duration: Duration) {
        match self.task() {
            Some((sim, me)) => {
                sim.wait(me, Wait::Time, Some(duration));
            }
            None => real::thread::sleep(duration),
        }
    }

    /// A point at which another thread may run; every call of a simulated device is one. Nothing for real.
    pub fn yield_point(&self) {
        match &self.sim {
            Some(sim) => sim.yield_point(OneIn::OFTEN),
            #[cfg(feature = "shuttle")]
            None => shuttle::thread::yield_now(),
            #[cfg(not(feature = "shuttle"))]
            None => {}
        }
    }

    /// A digest of who ran when, so far: two runs with equal digests interleaved alike. 0 for real.
    pub fn trace_hash(&self) -> u64 {
        self.sim.as_ref().map_or(0, |sim| sim.trace())
    }

    /// A stream of pseudo-random numbers, fixed by the scheduler's seed and by `stream`.
    pub fn rng(&self, stream: u64) -> Rng {
        Rng::stream(self.seed, stream)
    }

    /// Starts a named thread.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        let Some(sim) = &self.sim else {
            let builder = real::thread::Builder::new().name(name.to_owned());
            let handle = builder.spawn(move || {
                ask_for(priority);
                body();
            })?;
            return Ok(Thread(Handle::Real(handle)));
        };
        let builder = std::thread::Builder::new().name(name.to_owned());
        let task = sim.prepare(name);
        let theirs = Arc::clone(sim);
        let spawned = builder.spawn(move || {
            theirs.begin(task);
            let result = catch_unwind(AssertUnwindSafe(body));
            theirs.end(task);
            if let Err(panic) = result {
                resume_unwind(panic);
            }
        });
        match spawned {
            Ok(handle) => {
                sim.started(task, handle.thread());
                sim.yield_point(OneIn::OFTEN);
                Ok(Thread(Handle::Simulated(handle, Arc::clone(sim), task)))
            }
            Err(error) => {
                sim.finish(task);
                Err(error)
            }
        }
    }

    fn task(&self) -> Option<(&Sim, u64)> {
        let sim = self.sim.as_deref()?;
        Some((sim, sim.me()?))
    }
}

/// On Linux niceness is a thread's own, so this changes the calling thread only.
fn ask_for(priority: Priority) {
    // Under shuttle all threads are one.
    if priority == Priority::Background && cfg!(not(feature = "shuttle")) {
        // Best effort: a thread that may not be nicer does the same work, only less politely.
        rustix::process::nice(BACKGROUND_NICENESS).ok();
    }
}

impl Thread {
    /// Waits until the thread has ended; `false` if it panicked.
    pub fn join(self) -> bool {
        match self.0 {
            Handle::Real(handle) => handle.join().is_ok(),
            Handle::Simulated(handle, sim, task) => {
                sim.join(task);
                handle.join().is_ok()
            }
        }
    }
}
