//! When reads bring hot objects up (PrismDB, §5.3, "read-triggered compactions"): detection, epochs while it helps, and
//! a pause once it does not.
//!
//! Detection: at least 95 of 100 operations since the last look were reads, and over a fifth of the tracked keys lie
//! below. Then objects rise for an epoch, and for another as long as the share of reads that tables below answer goes
//! down by one part in a hundred; else there is a pause. An epoch is a hundredth of the keys' number of reads, a pause
//! a tenth, as the paper's million and ten million are of its hundred million keys; but no fewer than it takes to tell
//! a share of a quarter from one that is better by a hundredth of it ([`EPOCH_MIN`]), so below thirty million keys an
//! epoch is longer than in the paper. Where that would be more than three reads a key, it is three: the store is so
//! small that nothing is lost by a guess.
//!
//! Looks come by gets, and by writes where there are hardly any gets. The first one after an open only notes what there
//! has been: what was asked for before says nothing.
//!
//! Whether the store is a cache of what lies below, and copies stay by how often they were asked for, is looked at as
//! often, and takes 97 reads in 100: where one operation in twenty writes, more reads reach the capacity tier with it
//! (`docs/decisions/0011-store-below-the-memtable.md`).

/// Reads are what is asked for: so many in a hundred.
const READS_PERCENT: u64 = 95;
/// Reads are all but all of it.
const CACHE_PERCENT: u64 = 97;
/// Tracked keys that lie below: more than so many in a hundred.
const BELOW_PERCENT: u64 = 20;
/// Going on takes an improvement by so many in a hundred.
const BETTER_PERCENT: u64 = 1;
/// An epoch and a pause have one read for so many keys.
const EPOCH_KEYS: u64 = 100;
const PAUSE_KEYS: u64 = 10;
/// And so many at least: of 300,000, a share of a quarter has a standard deviation of a third of a hundredth of itself,
/// so that an epoch that was better by a hundredth is seldom taken for one that was not. To look whether to begin,
/// fewer do.
const EPOCH_MIN: u64 = 300_000;
const LOOK_MIN: u64 = 100_000;
/// Looks cost as much as some reads.
const READS_MIN: u64 = 100;
/// But no more reads than so many for each key.
const EPOCH_READS_MAX: u64 = 3;
const LOOK_READS_MAX: u64 = 1;

/// What was asked so far, and where it was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadView {
    pub(crate) gets: u64,
    /// Entries.
    pub(crate) writes: u64,
    /// Gets that tables answered.
    pub(crate) below: u64,
    /// Tracked keys, and how many of them lie below.
    pub(crate) tracked: (u64, u64),
    pub(crate) keys: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Watching,
    /// With the gets and those answered below of the epoch before.
    Promoting {
        gets: u64,
        below: u64,
    },
    Pausing,
}

/// Where the decision stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promotion {
    phase: Phase,
    is_cache: bool,
    last: Option<ReadView>,
    next_look: [u64; 2],
}

impl Promotion {
    /// The numbers of gets and of writes at either of which it wants to be asked again.
    pub(crate) fn next_look(&self) -> [u64; 2] {
        self.next_look
    }

    /// Whether at the last look at least 97 of 100 operations were reads.
    pub(crate) fn is_cache(&self) -> bool {
        self.is_cache
    }

    /// Whether objects should rise from now on.
    pub(crate) fn next(&mut self, now: &ReadView) -> bool {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let last = *self.last.get_or_insert(*now);
        let (gets, writes) = (since(now.gets, last.gets), since(now.writes, last.writes));
        let below = since(now.below, last.below);
        let (tracked, tracked_below) = now.tracked;
        let are_reads = |percent| gets > 0 && gets * 100 >= (gets + writes) * percent;
        self.is_cache = are_reads(CACHE_PERCENT);
        let is_called_for = are_reads(READS_PERCENT) && tracked_below * 100 > tracked * BELOW_PERCENT;
        self.phase = match self.phase {
            Phase::Watching | Phase::Pausing if is_called_for => Phase::Promoting { gets, below },
            Phase::Watching | Phase::Pausing => Phase::Watching,
            Phase::Promoting { gets: gets_before, below: below_before } => {
                // below / gets <= 0.99 of what it was.
                let now = u128::from(below) * u128::from(gets_before) * 100;
                let before = u128::from(below_before) * u128::from(gets) * u128::from(100 - BETTER_PERCENT);
                let goes_on = is_called_for && now <= before;
                if goes_on { Phase::Promoting { gets, below } } else { Phase::Pausing }
            }
        };
        let promotes = matches!(self.phase, Phase::Promoting { .. });
        let share = if self.phase == Phase::Pausing { PAUSE_KEYS } else { EPOCH_KEYS };
        self.last = Some(*now);
        let (least, most) = if promotes { (EPOCH_MIN, EPOCH_READS_MAX) } else { (LOOK_MIN, LOOK_READS_MAX) };
        let epoch = (now.keys / share).max(least.min(now.keys * most)).max(READS_MIN);
        self.next_look = [now.gets, now.writes].map(|so_far| so_far + epoch);
        promotes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That has looked once.
    fn begun(view: &ReadView) -> Promotion {
        let mut promotion = Promotion::default();
        assert!(!promotion.next(view) && !promotion.is_cache());
        promotion
    }

    /// Looks one after the other: gets in ten thousands, writes, those answered below, tracked keys of a hundred that
    /// lie below.
    fn decisions(looks: &[(u64, u64, u64, u64)]) -> String {
        let mut view = ReadView { keys: 20_000_000, ..ReadView::default() };
        let mut promotion = begun(&view);
        let decide = |(gets, writes, below, percent): &(u64, u64, u64, u64)| {
            view.gets += gets * 10_000;
            view.writes += writes;
            view.below += below;
            view.tracked = (100, *percent);
            let wanted = promotion.next(&view);
            let cache = if promotion.is_cache() { " cache" } else { "" };
            format!("{wanted} {}{cache}", (promotion.next_look()[0] - view.gets) / 10_000)
        };
        looks.iter().map(decide).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn it_goes_on_while_it_helps_and_pauses_when_it_does_not() {
        let looks = [(20, 0, 3000, 30), (20, 0, 2900, 29), (20, 0, 2880, 29), (200, 0, 20_000, 29)];
        assert_eq!(decisions(&looks), "true 30 cache, true 30 cache, false 200 cache, true 30 cache");
    }

    #[test]
    fn epochs_are_a_hundredth_of_many_keys_and_three_reads_for_each_of_few() {
        let next = |keys, tracked_below| {
            let mut promotion = begun(&ReadView { keys, ..ReadView::default() });
            let view = ReadView { gets: 1000, keys, tracked: (100, tracked_below), ..ReadView::default() };
            (promotion.next(&view), promotion.next_look()[0] - 1000)
        };
        assert_eq!([next(100_000_000, 30), next(100_000_000, 20)], [(true, 1_000_000), (false, 1_000_000)]);
        assert_eq!([next(2_000_000, 30), next(2_000_000, 20)], [(true, 300_000), (false, 100_000)]);
        assert_eq!([next(1_000, 30), next(1_000, 20)], [(true, 3_000), (false, 1_000)]);
        assert_eq!(next(0, 0), (false, 100));
    }

    #[test]
    fn what_was_asked_for_before_an_open_says_nothing_and_writes_alone_are_looked_at() {
        let mut view = ReadView { gets: 1 << 40, keys: 1000, tracked: (100, 50), ..ReadView::default() };
        let mut promotion = begun(&view);
        view.gets += 1000;
        assert!(promotion.next(&view) && promotion.is_cache());
        assert_eq!(promotion.next_look(), [view.gets + 3000, 3000]);
        view.writes += 3000;
        assert!(!promotion.next(&view) && !promotion.is_cache());
    }

    #[test]
    fn copies_stay_by_count_where_hardly_anything_is_written() {
        let looks = [(97, 30_000, 3000, 30), (97, 30_001, 2900, 29)];
        assert_eq!(decisions(&looks), "true 30 cache, true 30");
    }

    #[test]
    fn it_takes_reads_and_hot_keys_below() {
        assert_eq!(decisions(&[(20, 11_000, 3000, 30), (20, 10_000, 3000, 20)]), "false 20, false 20");
        assert_eq!(decisions(&[(20, 10_000, 3000, 21), (20, 11_000, 0, 21)]), "true 30, false 200");
    }
}
