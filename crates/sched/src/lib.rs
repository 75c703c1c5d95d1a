//! Locks, waits, threads, time and randomness, from one place.
//!
//! The engine never touches `std::sync` locks, `std::thread` or a clock itself; it is handed a [`Sched`]. In
//! production that is a thin layer over the standard library. In simulation it lets one thread run at a time and
//! chooses, by a seed, who runs next at every wait and at every call to a simulated device; so one seed replays a
//! whole run.
//!
//! Poisoning is not modelled: a thread that panics while it holds a [`Mutex`] leaves the value as it was.

mod rng;
mod sync;

pub use rng::Rng;
pub use sync::{Condvar, Mutex, MutexGuard};

use std::io;
use std::time::{Duration, Instant};

/// Who runs when, and what time it is. Cheap to clone; clones share one scheduler.
#[derive(Clone, Debug)]
pub struct Sched {
    started: Instant,
    seed: u64,
}

/// How urgently the operating system should run a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// As urgent as the caller.
    Normal,
    /// Yields to foreground work when the processor is short.
    Background,
}

/// A running thread; [`Thread::join`] waits for its end.
#[derive(Debug)]
pub struct Thread {
    handle: std::thread::JoinHandle<()>,
}

impl Sched {
    /// Real threads, real time; `seed` feeds [`Sched::rng`] only.
    pub fn real(seed: u64) -> Self {
        Self { started: Instant::now(), seed }
    }

    /// Time since this scheduler was made: monotonic, never the wall clock.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Lets at least `duration` pass. Prefer a [`Condvar`] wait, which can be woken.
    pub fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// A point at which another thread may run; every call of a simulated device is one.
    pub fn yield_point(&self) {}

    /// A stream of pseudo-random numbers, fixed by the scheduler's seed and by `stream`.
    pub fn rng(&self, stream: u64) -> Rng {
        Rng::new(self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Starts a named thread.
    ///
    /// # Errors
    /// When the operating system refuses another thread.
    pub fn spawn(
        &self,
        name: &str,
        _priority: Priority,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Thread { handle })
    }
}

impl Thread {
    /// Waits until the thread has ended; `false` if it panicked.
    pub fn join(self) -> bool {
        self.handle.join().is_ok()
    }
}
