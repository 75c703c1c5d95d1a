//! The pinning threshold, found by trying: what PrismDB leaves for later (§6.3, "a hill climbing approach").
//!
//! What should be low is what the lower tiers have to do for each operation: bytes read and written there, by users'
//! reads and by demotions. To pin more spares reads, and makes every range that goes down dearer. After an epoch at the
//! threshold that holds, a trial is made for another, a step away: if that cost clearly less it holds from then on, and
//! the next trial lies as far beyond; else the trial after next lies on the other side. When neither side is better,
//! steps become smaller, and in the end it rests for a while: a workload may have changed by then. An epoch has so many
//! operations that both reads and demotions have had their say. No trial begins while what holds is still becoming
//! cheaper by itself, as it does after an open, when the cache fills: any trial would be the better for it, and the
//! next one, down to where nothing stays.
//!
//! While the store is a cache ([`super::promotion`]) it makes no trials: which copies stay is not the threshold's
//! matter then, and to pin fewer of the rest sends objects down for the sake of an epoch.

/// Where it begins: the paper's.
const PERCENT_FIRST: i32 = 70;
const PERCENT_MIN: i32 = 5;
const PERCENT_MAX: i32 = 95;
/// The first step, and the least that is worth taking, in hundredths of the tracked keys.
const STEP_FIRST: i32 = 20;
const STEP_LEAST: i32 = 5;
/// Costs that differ by less than one part in so many are the same.
const SAME: u128 = 50;
/// Epochs that it rests once steps have become too small.
const REST: u32 = 20;
/// Operations of an epoch: one for so many keys, and so many at least, but no more than so many for each key.
const EPOCH_KEYS: u64 = 4;
const EPOCH_MIN: u64 = 100_000;
const EPOCH_EACH_MAX: u64 = 4;
const EPOCH_LEAST: u64 = 100;

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Keys read or written by users.
    pub(crate) operations: u64,
    /// Bytes read and written on lower tiers.
    pub(crate) below_bytes: u64,
}

/// Where the search stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Climb {
    /// The threshold that holds, and the work of the last epoch with it.
    holds: i32,
    work: Work,
    /// The threshold that is tried.
    tried: Option<i32>,
    /// How far, and in which direction, trials lie from what holds; how many in a row were no better.
    step: i32,
    failed: u32,
    rests: u32,
    /// All work up to the end of the last epoch, or to the first look: what was done before an open is of no epoch.
    end: Option<Work>,
}

impl Default for Climb {
    fn default() -> Self {
        let work = Work::default();
        Self { holds: PERCENT_FIRST, work, tried: None, step: -STEP_FIRST, failed: 0, rests: 0, end: None }
    }
}

impl Climb {
    /// In hundredths of the tracked keys.
    pub(crate) fn percent(&self) -> u32 {
        self.tried.unwrap_or(self.holds).unsigned_abs()
    }

    /// Looks whether an epoch has ended, in a store of so many keys.
    pub(crate) fn look(&mut self, now: Work, keys: u64) {
        let end = *self.end.get_or_insert(now);
        let work = Work {
            operations: now.operations.saturating_sub(end.operations),
            below_bytes: now.below_bytes.saturating_sub(end.below_bytes),
        };
        let least = EPOCH_MIN.min(keys.saturating_mul(EPOCH_EACH_MAX)).max(EPOCH_LEAST);
        if work.operations < (keys / EPOCH_KEYS).max(least) {
            return;
        }
        self.end = Some(now);
        match self.tried.take() {
            Some(tried) if work.is_cheaper_than(&self.work) => {
                (self.holds, self.work, self.failed) = (tried, work, 0);
                self.begin_trial();
            }
            // What holds is measured anew before the next trial: meanwhile the store may have become another.
            Some(_) => self.give_up_trial(),
            None => {
                let improves = self.work.operations == 0 || work.is_cheaper_than(&self.work);
                self.work = work;
                match self.rests.checked_sub(1) {
                    Some(rests) => self.rests = rests,
                    None if improves => {}
                    None => self.begin_trial(),
                }
            }
        }
    }

    /// No trials for now: what holds is what counts, and the next epoch begins when there may be trials again.
    pub(crate) fn pause(&mut self, now: Work) {
        (self.tried, self.end) = (None, Some(now));
    }

    fn begin_trial(&mut self) {
        let to = (self.holds + self.step).clamp(PERCENT_MIN, PERCENT_MAX);
        if to == self.holds { self.give_up_trial() } else { self.tried = Some(to) }
    }

    fn give_up_trial(&mut self) {
        self.step = -self.step;
        self.failed += 1;
        if self.failed == 2 {
            (self.step, self.failed) = (self.step / 2, 0);
        }
        if self.step.abs() < STEP_LEAST {
            (self.step, self.rests) = (self.step.signum() * STEP_FIRST, REST);
        }
    }
}

impl Work {
    /// Clearly fewer bytes for each operation.
    fn is_cheaper_than(&self, other: &Self) -> bool {
        let cost = u128::from(self.below_bytes) * u128::from(other.operations);
        let other_cost = u128::from(other.below_bytes) * u128::from(self.operations);
        cost + other_cost / SAME < other_cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    const KEYS: u64 = 100_000;

    /// The threshold after so many epochs of a workload whose cost is `cost` of the threshold; operations are many.
    fn after(climb: &mut Climb, now: &mut Work, epochs: u32, cost: impl Fn(f64) -> f64) -> i32 {
        let mut rng = Rng::new(3);
        for _ in 0..epochs {
            let operations = EPOCH_MIN + rng.below(1000);
            // Noise of half a hundredth.
            let noise = 0.995 + rng.below(1000) as f64 / 100_000.0;
            now.operations += operations;
            now.below_bytes += (cost(f64::from(climb.percent())) * noise * operations as f64) as u64;
            climb.look(*now, KEYS);
        }
        climb.holds
    }

    #[test]
    fn it_finds_the_lowest_cost_wherever_that_is() {
        for best in [10.0, 30.0, 50.0, 70.0, 90.0] {
            let mut now = Work::default();
            let cost = |percent: f64| 1000.0 + (percent - best).powi(2);
            let found = after(&mut Climb::default(), &mut now, 60, cost);
            assert!(cost(f64::from(found)) <= 1100.0, "{found} for {best}");
        }
    }

    #[test]
    fn it_follows_a_workload_that_changes() {
        let (mut climb, mut now) = (Climb::default(), Work::default());
        let first = after(&mut climb, &mut now, 50, |percent| 1000.0 + (percent - 20.0).powi(2));
        let second = after(&mut climb, &mut now, 80, |percent| 1000.0 + (percent - 85.0).powi(2));
        assert!(first <= 30 && second >= 75, "{first} {second}");
    }

    #[test]
    fn a_store_that_warms_up_is_not_tried() {
        let (mut climb, mut now) = (Climb::default(), Work::default());
        for cost in (0..20).map(|epoch| 1000.0 * 0.95_f64.powi(epoch)) {
            after(&mut climb, &mut now, 1, |_| cost);
            assert_eq!((climb.tried, climb.holds), (None, PERCENT_FIRST));
        }
        after(&mut climb, &mut now, 1, |_| 380.0);
        assert!(climb.tried.is_some());
    }

    #[test]
    fn what_was_done_before_an_open_is_of_no_epoch() {
        // Cheap for years, then opened anew: nothing is tried while the cache fills.
        let mut climb = Climb::default();
        let mut now = Work { operations: 1 << 40, below_bytes: 1 << 40 };
        climb.look(now, KEYS);
        for cost in (0..20).map(|epoch| 1000.0 * 0.95_f64.powi(epoch)) {
            after(&mut climb, &mut now, 1, |_| cost);
            assert_eq!((climb.tried, climb.holds), (None, PERCENT_FIRST));
        }
    }

    #[test]
    fn while_it_pauses_what_held_holds() {
        let (mut climb, mut now) = (Climb::default(), Work::default());
        let cost = |percent: f64| 1000.0 + (percent - 20.0).powi(2);
        while climb.tried.is_none() {
            after(&mut climb, &mut now, 1, cost);
        }
        let holds = climb.holds.unsigned_abs();
        assert_ne!(climb.percent(), holds);
        now.operations += 10 * EPOCH_MIN;
        climb.pause(now);
        assert_eq!((climb.percent(), climb.end), (holds, Some(now)));
        // What was done meanwhile is of no epoch.
        climb.look(Work { operations: now.operations + EPOCH_MIN - 1, ..now }, KEYS);
        assert_eq!((climb.percent(), climb.end), (holds, Some(now)));
        assert!(after(&mut climb, &mut now, 50, cost) <= 30);
    }

    #[test]
    fn it_stays_where_nothing_matters_and_waits_for_an_epoch() {
        let (mut climb, mut now) = (Climb::default(), Work::default());
        let tries = (0..60).filter(|_| {
            assert_eq!(after(&mut climb, &mut now, 1, |_| 1000.0), PERCENT_FIRST);
            climb.tried.is_some()
        });
        // Both sides at twenty and at ten and at five, then a rest.
        let tries = tries.count();
        assert!((6..=14).contains(&tries), "{tries}");
        let before = climb;
        climb.look(Work { operations: now.operations + 10, ..now }, KEYS);
        climb.look(Work { operations: now.operations + EPOCH_MIN, ..now }, u64::MAX / 2);
        assert_eq!((climb.percent(), climb.end), (before.percent(), before.end));
        // Of few keys it takes fewer.
        climb.look(Work { operations: now.operations + 400, ..now }, 100);
        assert_eq!(climb.end.unwrap().operations, now.operations + 400);
    }
}
