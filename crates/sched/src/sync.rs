//! Mutexes and condition variables that belong to a [`Sched`].
//!
//! For real they are those of the standard library and one branch. In simulation a task tries the same lock and, when
//! it is taken, waits in the simulator for its release; so all bookkeeping of who holds what stays with the standard
//! lock, and a thread that is no task of the simulation can use it plainly.
//!
//! A wait on a [`Condvar`] is announced before the lock is given up, and there is no yield point between; so no
//! notification is lost, of another task or of an outsider.
//!
//! The standard library's notification is a system call, whether anybody waits or not; so waiters are counted. A waiter
//! counts itself while it has the lock: who changes under the lock what it waits for, and notifies after that, finds it
//! counted, or is found to have changed it.

use crate::Sched;
use crate::atomic::{AtomicU64, Ordering};
use crate::real;
use crate::sim::{OneIn, Sim, Wait, Woken};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

/// A lock around a value.
#[derive(Debug)]
pub struct Mutex<T> {
    inner: real::sync::Mutex<T>,
    sim: Option<Arc<Sim>>,
}

/// The right to use the value of a [`Mutex`], until dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // Dropped before `release`, which tells the simulator that the lock is free.
    inner: real::sync::MutexGuard<'a, T>,
    lock: &'a Mutex<T>,
    release: Option<Release<'a>>,
}

/// Tells the simulator of a lock's release.
#[derive(Debug)]
struct Release<'a> {
    sim: &'a Sim,
    lock: usize,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.sim.wake_all(Wait::Lock(self.lock));
    }
}

impl<T> Mutex<T> {
    /// A lock of `sched` around `value`.
    pub fn new(sched: &Sched, value: T) -> Self {
        Self { inner: real::sync::Mutex::new(value), sim: sched.sim.clone() }
    }

    /// Waits for the lock. Not reentrant: taking it twice is a deadlock, which a simulation reports.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let Some(sim) = &self.sim else { return self.guard(self.lock_plainly(), None) };
        let release = Release { sim, lock: (&raw const self.inner).addr() };
        let inner = match sim.me() {
            None => self.lock_plainly(),
            Some(me) => {
                sim.yield_point(OneIn::SELDOM);
                loop {
                    if let Some(inner) = self.try_lock() {
                        break inner;
                    }
                    sim.announce(me, Wait::Lock(release.lock), None);
                    if let Some(inner) = self.try_lock() {
                        sim.retract(me);
                        break inner;
                    }
                    sim.block(me);
                }
            }
        };
        self.guard(inner, Some(release))
    }

    fn try_lock(&self) -> Option<real::sync::MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock_plainly(&self) -> real::sync::MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard<'a>(
        &'a self,
        inner: real::sync::MutexGuard<'a, T>,
        release: Option<Release<'a>>,
    ) -> MutexGuard<'a, T> {
        MutexGuard { inner, lock: self, release }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A place to wait for a change of what a [`Mutex`] guards.
#[derive(Debug)]
pub struct Condvar {
    inner: real::sync::Condvar,
    /// Threads that wait for `inner`.
    waiters: AtomicU64,
    sim: Option<Arc<Sim>>,
}

impl Condvar {
    /// A condition variable of `sched`.
    pub fn new(sched: &Sched) -> Self {
        Self { inner: real::sync::Condvar::new(), waiters: AtomicU64::new(0), sim: sched.sim.clone() }
    }

    /// Gives the lock up, waits for a notification, and takes the lock again. Wakes may be spurious.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if let Some((sim, me)) = self.task() {
            let lock = guard.lock;
            sim.announce(me, self.notice(), None);
            drop(guard);
            sim.block(me);
            return lock.lock();
        }
        let MutexGuard { inner, lock, release } = guard;
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let inner = self.inner.wait(inner).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        MutexGuard { inner, lock, release }
    }

    /// As [`Condvar::wait`], for at most `limit`; `true` when the time ran out.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> (MutexGuard<'a, T>, bool) {
        if let Some((sim, me)) = self.task() {
            let lock = guard.lock;
            sim.announce(me, self.notice(), Some(limit));
            drop(guard);
            let woken = sim.block(me);
            return (lock.lock(), woken == Woken::ByTime);
        }
        let MutexGuard { inner, lock, release } = guard;
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let (inner, result) = self.inner.wait_timeout(inner, limit).unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        (MutexGuard { inner, lock, release }, result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        if self.is_waited_for() {
            self.inner.notify_one();
        }
        if let Some(sim) = &self.sim {
            sim.wake_one(self.notice());
        }
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        if self.is_waited_for() {
            self.inner.notify_all();
        }
        if let Some(sim) = &self.sim {
            sim.wake_all(self.notice());
        }
    }

    fn is_waited_for(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    fn task(&self) -> Option<(&Sim, u64)> {
        let sim = self.sim.as_deref()?;
        Some((sim, sim.me()?))
    }

    fn notice(&self) -> Wait {
        Wait::Notice((&raw const self.inner).addr())
    }
}
