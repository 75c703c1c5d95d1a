//! Which of the tracked keys stay on the fast tier: so many of the hottest, by the distribution of clock values (PrismDB,
//! §4.3, "pinning threshold algorithm").
//!
//! Classes of clock values stay from the hottest down, while they fit whole; of the class that does not, keys are sampled
//! by a seeded hash, so the policy that weighs a range and the merge that carries it out agree on every key. Keys at 0 never
//! stay, as in the paper's code: they were met once, or are about to be forgotten, and to keep a random part of them would
//! leave every range that goes down thinned out for nothing.
//!
//! Copies of what tables have are another matter: one that stays costs the capacity tier nothing, then or when it goes. So
//! while reads are what is asked for, copies of keys that are tracked at all stay, the hottest first, in the room that is set
//! aside for what is hot and that the above leaves.

use super::CLOCKS;

/// Of a class, all.
const ALL: u64 = 1 << 32;

/// How many of each class of clock values stay, in parts of 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinning {
    stays: [u64; CLOCKS],
    copies_stay: [u64; CLOCKS],
    seed: u64,
}

/// So many of so many.
fn share(fitting: u64, count: u64, room: u64) -> u64 {
    (fitting * ALL).checked_div(count).unwrap_or(if room > 0 { ALL } else { 0 })
}

impl Pinning {
    /// Nothing stays.
    pub(crate) const NONE: Self = Self { stays: [0; CLOCKS], copies_stay: [0; CLOCKS], seed: 0 };

    /// So many keys stay of `counts` by clock value; with those whose objects are copies, `with_copies` at most.
    pub(crate) fn of(counts: [u64; CLOCKS], mut keys: u64, with_copies: u64, seed: u64) -> Self {
        let [mut stays, mut copies_stay] = [[0; CLOCKS]; 2];
        let pinned = keys.min(counts[1..].iter().sum());
        let mut copies = with_copies.saturating_sub(pinned);
        for (clock, count) in counts.into_iter().enumerate().rev() {
            let room = if clock == 0 { 0 } else { keys };
            let fitting = room.min(count);
            stays[clock] = share(fitting, count, room);
            keys -= fitting;
            let fitting_copies = copies.min(count - fitting);
            copies_stay[clock] = share(fitting + fitting_copies, count, room + copies);
            copies -= fitting_copies;
        }
        Self { stays, copies_stay, seed }
    }

    /// Whether a key of this clock value, if it has one, and of this hash stays.
    pub(crate) fn pins(&self, clock: Option<u8>, hash: u64) -> bool {
        self.is_among(&self.stays, clock, hash)
    }

    /// As [`Pinning::pins`], of a key whose object is a copy.
    pub(crate) fn keeps_copy(&self, clock: Option<u8>, hash: u64) -> bool {
        self.is_among(&self.copies_stay, clock, hash)
    }

    fn is_among(&self, stays: &[u64; CLOCKS], clock: Option<u8>, hash: u64) -> bool {
        let Some(clock) = clock else { return false };
        let drawn = (hash ^ self.seed).wrapping_mul(0xa076_1d64_78bd_642f) >> 32;
        drawn < stays[usize::from(clock) % CLOCKS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    /// How many in a hundred of each class stay.
    fn stays(counts: [u64; CLOCKS], keys: u64) -> [usize; CLOCKS] {
        let pinning = Pinning::of(counts, keys, 0, 5);
        let alone = percent(|clock, hash| pinning.pins(clock, hash));
        assert_eq!(percent(|clock, hash| pinning.keeps_copy(clock, hash)), alone);
        alone
    }

    fn percent(stays: impl Fn(Option<u8>, u64) -> bool) -> [usize; CLOCKS] {
        let stays = |clock, i: u64| stays(Some(clock), hash(&i.to_be_bytes()));
        [0, 1, 2, 3].map(|clock| (0..10_000).filter(|i| stays(clock, *i)).count().div_ceil(50) / 2)
    }

    #[test]
    fn copies_stay_in_the_room_that_is_left() {
        let copies = |keys, copies| {
            let pinning = Pinning::of([50, 30, 10, 10], keys, copies, 5);
            assert!(!pinning.keeps_copy(None, 1));
            percent(|clock, hash| pinning.keeps_copy(clock, hash))
        };
        assert_eq!(copies(15, 20), [0, 0, 100, 100]);
        assert_eq!(copies(15, 35), [0, 50, 100, 100]);
        assert_eq!(copies(15, 75), [50, 100, 100, 100]);
        assert_eq!(copies(200, 75), [50, 100, 100, 100]);
        assert_eq!(copies(200, 200), [100; 4]);
        assert_eq!(copies(0, 5), [0, 0, 0, 50]);
    }

    #[test]
    fn the_hottest_stay_and_the_class_between_is_sampled() {
        // The paper's example: 15 % of what is tracked.
        assert_eq!(stays([50, 30, 10, 10], 15), [0, 0, 50, 100]);
        assert_eq!(stays([50, 30, 10, 10], 5), [0, 0, 0, 50]);
        assert_eq!(stays([50, 30, 10, 10], 35), [0, 50, 100, 100]);
        assert_eq!(stays([50, 30, 10, 10], 200), [0, 100, 100, 100]);
        assert_eq!(stays([50, 30, 10, 0], 0), [0; 4]);
        assert_eq!(stays([0; 4], 10), [0, 100, 100, 100]);
        assert!(!Pinning::of([1; 4], 4, 0, 0).pins(None, 1) && !Pinning::NONE.pins(Some(3), 1));
    }
}
