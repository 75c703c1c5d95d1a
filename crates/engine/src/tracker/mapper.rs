//! Which of the tracked keys stay on the fast tier: so many of the hottest, by the distribution of clock values
//! (PrismDB, §4.3, "pinning threshold algorithm").
//!
//! Classes of clock values stay from the hottest down, while they fit whole; of the class that does not, keys are
//! sampled by a seeded hash, so the policy that weighs a range and the merge that carries it out agree on every key.
//! Keys at 0 never stay, as in the paper's code: they were met once, or are about to be forgotten, and to keep a random
//! part of them would leave every range that goes down thinned out for nothing.
//!
//! Copies of what tables have are another matter: one that stays costs the capacity tier nothing, then or when it goes,
//! and so it may stay on less. While 97 of 100 operations read, those copies stay that were asked for most often, by
//! the sketch's counts, in the room that is left; of copies of one count those that a hash of their keys puts first.
//! Where to cut is seen in those that are there: a part of a count's keys would be most of its copies, once the others
//! have gone. Who comes up makes one go, and so has to be ahead of it by its count alone.

use super::{Asked, CLOCKS};

/// Of a class, all.
const ALL: u64 = 1 << 32;

/// How many of each class stay, in parts of 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinning {
    /// By clock value.
    stays: [u64; CLOCKS],
    /// `None` if copies are treated as all others.
    copies: Option<Cuts>,
    seed: u64,
}

/// By what copies are told apart: their counts, then a hash.
pub(crate) type Rank = (u8, u32);

/// Before all others.
const NOBODY: Rank = (u8::MAX, u32::MAX);

/// Which copies stay, and who comes up; `None` for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cuts {
    /// Those that are before this one.
    stays: Option<Rank>,
    /// Those of a higher count.
    rises: Option<u8>,
}

/// The largest classes first, as long as there is room.
fn shares(counts: [u64; CLOCKS], mut room: u64) -> [u64; CLOCKS] {
    let mut shares = [0; CLOCKS];
    for (class, count) in counts.into_iter().enumerate().rev() {
        let fitting = room.min(count);
        let share = (u128::from(fitting) * u128::from(ALL)).checked_div(u128::from(count));
        // No more than all.
        shares[class] = share.map_or(if room > 0 { ALL } else { 0 }, |share| share as u64);
        room -= fitting;
    }
    shares
}

impl Pinning {
    /// Nothing stays.
    pub(crate) const NONE: Self = Self { stays: [0; CLOCKS], copies: None, seed: 0 };

    /// So many keys stay of `counts` by clock value.
    pub(crate) fn of(counts: [u64; CLOCKS], keys: u64, seed: u64) -> Self {
        let mut stays = shares(counts, keys);
        stays[0] = 0;
        Self { stays, copies: None, seed }
    }

    /// And of copies like these as many as are `kept` of them. Who comes up has a higher count than the first for which
    /// there is no `room`, or than the first that goes, where that is how far they get.
    pub(crate) fn with_copies(self, mut copies: Vec<Rank>, kept: usize, room: usize) -> Self {
        copies.sort_unstable_by(|a, b| b.cmp(a));
        let first_behind = |place: usize| if place == 0 { Some(NOBODY) } else { copies.get(place).copied() };
        let (stays, rises) = (first_behind(kept), first_behind(room).or_else(|| first_behind(kept)));
        Self { copies: Some(Cuts { stays, rises: rises.map(|(count, _)| count) }), ..self }
    }

    /// Whether a key of this hash stays.
    pub(crate) fn pins(&self, asked: Asked, hash: u64) -> bool {
        let Some(clock) = asked.clock else { return false };
        self.draws(self.stays[usize::from(clock) % CLOCKS], hash)
    }

    /// Whether a copy of what tables have stays.
    pub(crate) fn keeps_copy(&self, asked: Asked, hash: u64) -> bool {
        match self.copies {
            None => self.pins(asked, hash),
            Some(Cuts { stays, .. }) => stays.is_none_or(|cut| self.rank(asked, hash) > cut),
        }
    }

    /// Whether one that lies below comes up as a copy.
    pub(crate) fn raises(&self, asked: Asked, hash: u64) -> bool {
        match self.copies {
            None => self.pins(asked, hash),
            Some(Cuts { rises, .. }) => rises.is_none_or(|cut| asked.count > cut),
        }
    }

    /// By what a copy is before or behind others.
    pub(crate) fn rank(&self, asked: Asked, hash: u64) -> Rank {
        (asked.count, self.draw(hash))
    }

    fn draw(&self, hash: u64) -> u32 {
        ((hash ^ self.seed).wrapping_mul(0xa076_1d64_78bd_642f) >> 32) as u32
    }

    fn draws(&self, stays: u64, hash: u64) -> bool {
        u64::from(self.draw(hash)) < stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    /// How many in a hundred of each class stay.
    fn percent(stays: impl Fn(usize, u64) -> bool) -> [usize; CLOCKS] {
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
        let pinning = Pinning::of([50, 30, 10, 10], 15, 5);
        let asked = |count: usize| Asked { count: count as u8, ..Asked::default() };
        // A thousand copies, of which half have a count of 0, and so on.
        let all: Vec<(Asked, u64)> = (0..1000)
            .map(|i| (asked([0, 0, 0, 0, 0, 1, 1, 1, 2, 3][i % 10]), hash(&i.to_be_bytes())))
            .collect();
        let cut = |copies: &[(Asked, u64)], kept| {
            let ranks = copies.iter().map(|(asked, hash)| pinning.rank(*asked, *hash)).collect();
            pinning.with_copies(ranks, kept, kept)
        };
        let copies = |room| {
            let pinning = cut(&all, room);
            assert!(pinning.pins(at(3), 1) && !pinning.pins(at(1), 1));
            let stay = |(asked, hash): &&(Asked, u64)| pinning.keeps_copy(*asked, *hash);
            let staying: Vec<_> = all.iter().filter(stay).copied().collect();
            // Those that stay when there is less room are of these.
            let again = cut(&staying, room / 2);
            assert_eq!(
                staying.iter().filter(|(asked, hash)| again.keeps_copy(*asked, *hash)).count(),
                (room / 2).min(1000)
            );
            let of = |count: u8| staying.iter().filter(|(asked, _)| asked.count == count).count();
            let raised = (0..4).filter(|count| pinning.raises(asked(*count), 1)).count();
            ([of(0), of(1), of(2), of(3)], raised)
        };
        assert_eq!(copies(0), ([0; 4], 0));
        assert_eq!(copies(50), ([0, 0, 0, 50], 0));
        assert_eq!(copies(350), ([0, 150, 100, 100], 2));
        assert_eq!(copies(750), ([250, 300, 100, 100], 3));
        assert_eq!(copies(2000), ([500, 300, 100, 100], 4));
    }

    #[test]
    fn who_comes_up_is_ahead_of_what_goes() {
        let raised = |copies: &[u8], kept, room| {
            let ranks = copies.iter().map(|count| (*count, 7)).collect();
            let pinning = Pinning::of([1; 4], 4, 5).with_copies(ranks, kept, room);
            (0..=15).find(|count| pinning.raises(Asked { count: *count, ..Asked::default() }, 1))
        };
        let copies = [5, 9, 3, 7];
        assert_eq!([4, 3, 2, 1].map(|room| raised(&copies, room, room)), [0, 4, 6, 8].map(Some));
        // What goes may be more than what has no room, or all that says where that ends.
        assert_eq!([raised(&copies, 2, 3), raised(&copies, 2, 9)], [Some(4), Some(6)]);
        // Without room nobody does, whether there are copies or not; with room all do.
        assert_eq!([raised(&copies, 0, 0), raised(&[], 0, 0), raised(&[], 1, 1)], [None, None, Some(0)]);
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
