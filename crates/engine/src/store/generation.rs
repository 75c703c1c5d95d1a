//! How often a slot was used.
//!
//! A medium that loses a write leaves what was there before: an older object, whole, at its place, and with its
//! checksum. So the manifest counts how often each slot was given to an object, and an object in a slot says the count
//! that was its own.
//!
//! One thing is missed: a count is a byte, and begins anew after 255. So an object counts as the present one that was
//! written 256 uses before; opens after a crash, each of which begins a use, are among these.
//!
//! An edit that takes a slot, or announces it, begins its next use ([`crate::version::Catalog::apply`]); to take what
//! was announced does not. What was written and is not taken, since it is of no use by then or its flush has failed, an
//! edit wastes, which begins the next use, too. After a crash nobody knows what was written and not named, so the next
//! use of every free slot begins. Whoever writes to a slot that no edit has taken yet knows that the next one is meant.
//! A slot that a reader can see is not given out again ([`super::Space`]), so a reader that looks later than it found
//! the slot finds the same count. Contents are handed over with the set of containers, so nothing here has to be
//! ordered.

use cuesta_sched::atomic::{AtomicU8, AtomicU16, Ordering};
use std::fmt;
use std::sync::OnceLock;

/// Which use of a slot: 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u8);

impl Generation {
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Of every slot of a slab: a byte each.
pub(crate) struct Generations(Box<[AtomicU8]>);

impl Generations {
    /// Of a slab of so many slots, none of which was used.
    pub(crate) fn new(slots: u32) -> Self {
        Self((0..slots).map(|_| AtomicU8::new(0)).collect())
    }

    /// Which use of `slot` the manifest knows of; 0 past the slab's end.
    pub(crate) fn of(&self, slot: u32) -> Generation {
        Generation(self.0.get(slot as usize).map_or(0, |count| count.load(Ordering::Relaxed)))
    }

    /// The next use of `slot` begins.
    pub(crate) fn advance(&self, slot: u32) {
        if let Some(count) = self.0.get(slot as usize) {
            count.store(self.of(slot).next().0, Ordering::Relaxed);
        }
    }

    /// As they were written down.
    pub(crate) fn set(&self, counts: &[u8]) {
        self.0.iter().zip(counts).for_each(|(count, written)| count.store(*written, Ordering::Relaxed));
    }

    /// To be written down.
    pub(crate) fn counts(&self) -> Vec<u8> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generations of {} slots", self.0.len())
    }
}

/// Slots whose present use was found damaged. Most slabs never have any: that costs a load.
#[derive(Debug, Default)]
pub(super) struct LostUses(OnceLock<Box<[AtomicU16]>>);

impl LostUses {
    /// What is never lost is 0.
    fn mark(of: Generation) -> u16 {
        u16::from(of.0) + 1
    }

    /// Of a slab of `slots` slots.
    pub(super) fn add(&self, slots: u32, slot: u32, lost: Generation) {
        let all = self.0.get_or_init(|| (0..slots).map(|_| AtomicU16::new(0)).collect());
        if let Some(mark) = all.get(slot as usize) {
            mark.store(Self::mark(lost), Ordering::Relaxed);
        }
    }

    /// Whether this use of a slot was.
    pub(super) fn has(&self, slot: u32, used: Generation) -> bool {
        let mark = self.0.get().and_then(|all| all.get(slot as usize));
        mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == Self::mark(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_slot_is_lost_until_it_is_used_again() {
        let (uses, lost) = (Generations::new(3), LostUses::default());
        let is_lost = |slot| lost.has(slot, uses.of(slot));
        assert!(!is_lost(1));
        uses.advance(1);
        lost.add(3, 1, uses.of(1));
        assert_eq!([0, 1, 2, 3].map(is_lost), [false, true, false, false]);
        uses.advance(1);
        assert!(!is_lost(1));
        lost.add(3, 1, uses.of(1));
        assert!(is_lost(1));
    }
}
