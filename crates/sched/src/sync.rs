//! Mutexes and condition variables that belong to a [`Sched`].

use crate::Sched;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// A lock around a value.
#[derive(Debug)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

/// The right to use the value of a [`Mutex`], until dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A lock of `sched` around `value`.
    pub fn new(_sched: &Sched, value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner) }
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
    inner: std::sync::Condvar,
}

impl Condvar {
    /// A condition variable of `sched`.
    pub fn new(_sched: &Sched) -> Self {
        Self { inner: std::sync::Condvar::new() }
    }

    /// Gives the lock up, waits for a notification, and takes the lock again. Wakes may be spurious.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { inner: self.inner.wait(guard.inner).unwrap_or_else(PoisonError::into_inner) }
    }

    /// As [`Condvar::wait`], for at most `limit`; `true` when the time ran out.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, limit: Duration) -> (MutexGuard<'a, T>, bool) {
        let (inner, result) =
            self.inner.wait_timeout(guard.inner, limit).unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { inner }, result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
