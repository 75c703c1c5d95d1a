//! Which of the tracked keys stay on the fast tier: so many of the hottest, by the distribution of clock values (PrismDB,
//! §4.3, "pinning threshold algorithm").
//!
//! Classes of clock values stay from the hottest down, while they fit whole; of the class that does not, keys are sampled
//! by a seeded hash, so the policy that weighs a range and the merge that carries it out agree on every key. Keys at 0 never
//! stay, as in the paper's code: they were met once, or are about to be forgotten, and to keep a random part of them would
//! leave every range that goes down thinned out for nothing.
//!
//! Copies of what tables have are another matter: one that stays costs the capacity tier nothing, then or when it goes, and
//! so it may stay on less. While 97 of 100 operations read, those copies stay that were asked for most often, by the
//! sketch's counts, in the room that is left: whole counts from the highest down, and a part of the count that does not fit.

use super::{Asked, CLOCKS, COUNTS};

/// Of a class, all.
const ALL: u64 = 1 << 32;

/// How many of each class stay, in parts of 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinning {
    /// By clock value.
    stays: [u64; CLOCKS],
    /// `None` if copies are treated as all others.
    copies_stay: Option<Cut>,
    seed: u64,
}

/// Those of a higher count stay, those of a lower do not, and of this count so many do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    count: u8,
    stays: u64,
}

/// The largest classes first, as long as there is room.
fn shares<const N: usize>(counts: [u64; N], mut room: u64) -> [u64; N] {
    let mut shares = [0; N];
    for (class, count) in counts.into_iter().enumerate().rev() {
        let fitting = room.min(count);
        shares[class] = (fitting * ALL).checked_div(count).unwrap_or(if room > 0 { ALL } else { 0 });
        room -= fitting;
    }
    shares
}

impl Pinning {
    /// Nothing stays.
    pub(crate) const NONE: Self = Self { stays: [0; CLOCKS], copies_stay: None, seed: 0 };

    /// So many keys stay of `counts` by clock value.
    pub(crate) fn of(counts: [u64; CLOCKS], keys: u64, seed: u64) -> Self {
        let mut stays = shares(counts, keys);
        stays[0] = 0;
        Self { stays, copies_stay: None, seed }
    }

    /// And so many copies, of so many by count.
    pub(crate) fn with_copies(self, counts: [u64; COUNTS], copies: u64) -> Self {
        let shares = shares(counts, copies);
        let count = shares.iter().position(|stays| *stays > 0).unwrap_or(COUNTS - 1);
        Self { copies_stay: Some(Cut { count: count as u8, stays: shares[count] }), ..self }
    }

    /// Whether a key of this hash stays.
    pub(crate) fn pins(&self, asked: Asked, hash: u64) -> bool {
        let Some(clock) = asked.clock else { return false };
        self.draws(self.stays[usize::from(clock) % CLOCKS], hash)
    }

    /// Whether a copy of what tables have stays.
    pub(crate) fn keeps_copy(&self, asked: Asked, hash: u64) -> bool {
        match self.copies_stay {
            None => self.pins(asked, hash),
            Some(cut) => asked.count > cut.count || asked.count == cut.count && self.draws(cut.stays, hash),
        }
    }

    fn draws(&self, stays: u64, hash: u64) -> bool {
        (hash ^ self.seed).wrapping_mul(0xa076_1d64_78bd_642f) >> 32 < stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    /// How many in a hundred of each class stay.
    fn percent<const N: usize>(stays: impl Fn(usize, u64) -> bool) -> [usize; N] {
        let stays = |class, i: u64| stays(class, hash(&i.to_be_bytes()));
        std::array::from_fn(|class| (0..10_000).filter(|i| stays(class, *i)).count().div_ceil(50) / 2)
    }

    fn at(clock: usize) -> Asked {
        Asked { clock: Some(clock as u8), ..Asked::default() }
    }

    fn stays(counts: [u64; CLOCKS], keys: u64) -> [usize; CLOCKS] {
        let pinning = Pinning::of(counts, keys, 5);
        let alone = percent(|clock, hash| pinning.pins(at(clock), hash));
        assert_eq!(percent(|clock, hash| pinning.keeps_copy(at(clock), hash)), alone);
        alone
    }

    #[test]
    fn the_copies_that_were_asked_for_most_stay_in_the_room_that_is_left() {
        let copies = |room| {
            let counts: [u64; COUNTS] = std::array::from_fn(|count| [50, 30, 10, 10, 0][count.min(4)]);
            let pinning = Pinning::of([50, 30, 10, 10], 15, 5).with_copies(counts, room);
            assert!(pinning.pins(at(3), 1) && !pinning.pins(at(1), 1));
            let kept: [usize; COUNTS] = percent(|count, hash| {
                let asked = Asked { count: count as u8, ..Asked::default() };
                pinning.keeps_copy(asked, hash)
            });
            [kept[0], kept[1], kept[2], kept[3], kept[15]]
        };
        assert_eq!(copies(0), [0; 5]);
        assert_eq!(copies(5), [0, 0, 0, 50, 100]);
        assert_eq!(copies(35), [0, 50, 100, 100, 100]);
        assert_eq!(copies(75), [50, 100, 100, 100, 100]);
        assert_eq!(copies(200), [100; 5]);
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
        let asked = Asked { clock: Some(3), count: 15 };
        assert!(!Pinning::of([1; 4], 4, 0).pins(Asked::default(), 1) && !Pinning::NONE.pins(asked, 1));
        assert!(!Pinning::NONE.keeps_copy(asked, 1));
    }
}
