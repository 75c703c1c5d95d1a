//! A value that one thread at a time owns, across I/O if need be.
//!
//! The lock inside is held only to take the value out and to put it back, so no lock is held while the owner waits
//! for a device; who wants the value next sleeps on a condition.

use cuesta_sched::{Condvar, Mutex, Sched};
use std::ops::{Deref, DerefMut};

/// Holds the value while nobody owns it.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    value: Mutex<Option<T>>,
    back: Condvar,
}

/// Ownership of a [`Turn`]'s value; dropping it hands the value back.
#[derive(Debug)]
pub(crate) struct Owned<'a, T> {
    turn: &'a Turn<T>,
    /// Taken out only by `drop`.
    value: Option<T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(sched: &Sched, value: T) -> Self {
        Self { value: Mutex::new(sched, Some(value)), back: Condvar::new(sched) }
    }

    /// Waits for the value.
    pub(crate) fn take(&self) -> Owned<'_, T> {
        let mut value = self.value.lock();
        loop {
            match value.take() {
                Some(value) => return Owned { turn: self, value: Some(value) },
                None => value = self.back.wait(value),
            }
        }
    }
}

impl<T> Deref for Owned<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("only drop takes the value out"),
        }
    }
}

impl<T> DerefMut for Owned<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("only drop takes the value out"),
        }
    }
}

impl<T> Drop for Owned<'_, T> {
    fn drop(&mut self) {
        *self.turn.value.lock() = self.value.take();
        self.turn.back.notify_one();
    }
}
