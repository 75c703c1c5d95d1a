//! Which of the tracked keys stay on the fast tier: so many of the hottest, by the distribution of clock values (PrismDB,
//! §4.3, "pinning threshold algorithm").
//!
//! Classes of clock values stay from the hottest down, while they fit whole; of the class that does not, keys are sampled
//! by a seeded hash, so the policy that weighs a range and the merge that carries it out agree on every key. Keys at 0 never
//! stay, as in the paper's code: they were met once, or are about to be forgotten, and to keep a random part of them would
//! leave every range that goes down thinned out for nothing.

use super::CLOCKS;

/// Of a class, all.
const ALL: u64 = 1 << 32;

/// How many of each class of clock values stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinning {
    /// In parts of 2^32.
    stays: [u64; CLOCKS],
    seed: u64,
}

impl Pinning {
    /// Nothing stays.
    pub(crate) const NONE: Self = Self { stays: [0; CLOCKS], seed: 0 };

    /// So many keys stay of `counts` by clock value.
    pub(crate) fn of(counts: [u64; CLOCKS], mut keys: u64, seed: u64) -> Self {
        let mut stays = [0; CLOCKS];
        for (stays, count) in stays.iter_mut().zip(counts).skip(1).rev() {
            let fitting = keys.min(count);
            *stays = (fitting * ALL).checked_div(count).unwrap_or(if keys > 0 { ALL } else { 0 });
            keys -= fitting;
        }
        Self { stays, seed }
    }

    /// Whether a key of this clock value, if it has one, and of this hash stays.
    pub(crate) fn pins(&self, clock: Option<u8>, hash: u64) -> bool {
        let Some(clock) = clock else { return false };
        let drawn = (hash ^ self.seed).wrapping_mul(0xa076_1d64_78bd_642f) >> 32;
        drawn < self.stays[usize::from(clock) % CLOCKS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    /// How many in a hundred of each class stay.
    fn stays(counts: [u64; CLOCKS], keys: u64) -> [usize; CLOCKS] {
        let pinning = Pinning::of(counts, keys, 5);
        let pins = |clock, i: u64| pinning.pins(Some(clock), hash(&i.to_be_bytes()));
        [0, 1, 2, 3].map(|clock| (0..10_000).filter(|i| pins(clock, *i)).count().div_ceil(50) / 2)
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
        assert!(!Pinning::of([1; 4], 4, 0).pins(None, 1) && !Pinning::NONE.pins(Some(3), 1));
    }
}
