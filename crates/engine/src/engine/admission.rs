//! Admission: how fast writers may go, so that nothing grows without bound and nobody waits long.
//!
//! Writers share one rate. It is decided anew whenever a job begins or ends or a memtable is sealed, and a hundred
//! times a second while it holds, by a pure function ([`Load::rate`]) of what waits and of how fast jobs have been
//! going:
//!
//! - *Flushes.* From half of the memory for memtables on, writers go from twice the speed of flushes down to a quarter.
//! - *Level 0.* Up to `level0_slow` runs nobody is slowed: bursts are taken as they come. Beyond, the merge that
//!   empties level 0 is known to end at some time, by its progress and its speed; the room up to `level0_stop` is
//!   spread evenly over the time until then. Of that, no more is taken than leaves `level0_slow` runs for the merge
//!   after it, so the sizes of merges settle instead of swinging between few and many. Since every look corrects the
//!   one before, a merge that is slower than it was expected to be costs a little speed for a while, and no stop. Of
//!   several guards some are merged at a time; the time until then is that of all, at their speed.
//! - *Room.* Below four memtables' worth of room on the tiers, writers slow down with what is left. A part of each
//!   tier, an eighth at most, is not for puts: deletes, and the merges that make them give room back, go on when a put
//!   is refused.
//!
//! Merges and relocations go by the same numbers: where a tier holds them back, for the sake of reads, they are let go
//! faster as level 0 fills, and as fast as they can before any writer is slowed for them.
//!
//! Hard bounds stand behind: a full third memtable and `level0_stop` make writers wait; without room a put waits for
//! what runs, and is told `Full` when nothing that could be done will make any. A write that is not slowed costs three
//! loads of what others seldom write, and reads no clock.

use super::background::Awaited;
use super::{Engine, SEALED_MAX};
use crate::cache::LARGE_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Seq;
use crate::memory::{Charge, Holder};
use crate::policy::leveled::GUARD_BYTES;
use crate::range_tombstones::RANGE_TOMBSTONES_MAX;
use crate::tier::Tier;
use crate::version::Level0Sums;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::time::Duration;

/// The rate while nobody is slowed.
const UNLIMITED: u64 = u64::MAX;
/// However far the background is behind, writers go at this many bytes a second, up to the hard bounds.
const RATE_MIN: f64 = 65_536.0;
/// The rate where it has to be one but nothing is known: a gigabyte a second.
const RATE_UNKNOWN: f64 = 1e9;
/// A writer is slowed by at most this much per batch.
const DELAY_MAX: Duration = Duration::from_millis(200);
/// Writers sleep once they are this far ahead of the rate: shorter sleeps cost more than they are worth.
const AHEAD_MAX: Duration = Duration::from_millis(2);
/// Merges that are held back may go so many times as fast before they are not.
const BACKGROUND_RAISE: f64 = 4.0;
/// How long a decision holds.
const DECISION: Duration = Duration::from_millis(10);
/// Memtables' worth of room below which writers are slowed.
const ROOM_MEMTABLES: f64 = 4.0;
/// Range tombstones take one part in so many of the memory number at most.
const RANGES_SHARE: u64 = 64;
/// Of a tier, what puts leave alone: one part in so many, or twice that if it is less than so many tables; and at most
/// so many.
const RESERVE_SHARE: u64 = 16;
const RESERVE_TABLES_MIN: u64 = 6;
const RESERVE_TABLES_MAX: u64 = 16;
/// What is known of a job's speed from jobs before it counts as much as so many seconds of its own.
const EVIDENCE: f64 = 2.0;

/// Work whose speed decides how fast writers may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Flush,
    /// Of level 0.
    MergeTop,
    /// Of another level.
    MergeBelow,
}

/// A job that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    id: u64,
    work: Work,
    began: Duration,
    total: u64,
    done: u64,
    /// Of that, what steps that have ended did.
    steps_done: u64,
    /// What of level 0 goes when it ends.
    leaves: Leaving,
}

/// What a merge takes away from level 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    /// Runs of its guards.
    pub(super) runs: usize,
    /// Their bytes.
    pub(super) bytes: u64,
}

impl Running {
    fn progress(&mut self, done_in_step: u64) {
        self.done = (self.steps_done + done_in_step).min(self.total);
    }

    fn end_step(&mut self) {
        self.steps_done = self.done;
    }
}

#[derive(Debug, Default)]
struct State {
    running: Vec<Running>,
    next_id: u64,
    /// Bytes a second that flushes and merges went at, lately.
    flush_rate: Option<f64>,
    merge_rate: Option<f64>,
    /// When all that was admitted so far is paid for, and when the rate was decided.
    paid_at: Duration,
    decided_at: Duration,
}

/// What decides how fast writers may go.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// For puts; never more than for deletes alone.
    rate: AtomicU64,
    rate_of_deletes: AtomicU64,
    state: Mutex<State>,
}

/// What waits, and how fast it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Bytes in memtables that no table has.
    pub(crate) unflushed: f64,
    /// Bytes that the memtables may have together.
    pub(crate) unflushed_max: f64,
    /// Bytes a second.
    pub(crate) flush_rate: Option<f64>,
    /// Runs in level 0 and on their way there, in memtables' worths.
    pub(crate) runs: f64,
    /// Of these, the ones that the running merge takes away.
    pub(crate) leaving: f64,
    /// Seconds until a merge has emptied level 0 of what is there now.
    pub(crate) seconds_left: f64,
    /// Bytes of a run.
    pub(crate) run_bytes: f64,
    /// Bytes that puts may still take on the tiers.
    pub(crate) room: f64,
    /// Runs up to which nobody is slowed, and at which all wait.
    pub(crate) slow: f64,
    pub(crate) stop: f64,
}

impl Level0Sums {
    /// How many times what so many bytes are of its guards it has in all of them.
    fn guards_per(&self, leaving_bytes: u64) -> f64 {
        if self.guards > 1 { (self.bytes as f64 / leaving_bytes.max(1) as f64).max(1.0) } else { 1.0 }
    }

    /// Its runs; in several guards no fewer than the memtables that its bytes are.
    fn depth(&self, run_bytes: f64) -> f64 {
        if self.guards > 1 { self.runs.max(self.bytes as f64 / run_bytes) } else { self.runs }
    }
}

impl Load {
    /// Bytes a second that writers may write; `None` for any. Deletes are not slowed for want of room: they make it.
    pub(crate) fn rate(&self, puts: bool) -> Option<f64> {
        let rates = [self.rate_by_flushes(), self.rate_by_level0(), self.rate_by_room().filter(|_| puts)];
        rates.into_iter().flatten().reduce(f64::min).map(|rate| rate.max(RATE_MIN))
    }

    /// How many times as fast as asked merges may go, by the runs beyond those that make one due; `None` for any speed.
    pub(crate) fn background(&self, due: f64) -> Option<f64> {
        let way = (self.runs - due) / (self.slow - due);
        (way < 1.0 && self.room > 0.0).then_some(1.0 + (BACKGROUND_RAISE - 1.0) * way.max(0.0))
    }

    fn rate_by_flushes(&self) -> Option<f64> {
        let half = self.unflushed_max / 2.0;
        let way = ((self.unflushed - half) / half).min(1.0);
        (way > 0.0).then_some(self.flush_rate? * (2.0 - 1.75 * way))
    }

    fn rate_by_level0(&self) -> Option<f64> {
        if self.runs <= self.slow {
            return None;
        }
        let over_time = |runs: f64| (runs * self.run_bytes / self.seconds_left.max(0.1)).max(0.0);
        let highest = over_time(self.stop - self.runs);
        if self.leaving == 0.0 {
            return Some(highest);
        }
        Some(over_time(self.slow - (self.runs - self.leaving)).clamp(highest / 4.0, highest))
    }

    fn rate_by_room(&self) -> Option<f64> {
        let way = self.room / (ROOM_MEMTABLES * self.run_bytes);
        (way < 1.0).then_some(self.flush_rate.unwrap_or(RATE_UNKNOWN) * way)
    }
}

impl State {
    /// Seconds that a job still takes.
    fn seconds_left(&self, job: &Running, now: Duration) -> f64 {
        let known = if job.work == Work::Flush { self.flush_rate } else { self.merge_rate };
        let elapsed = now.saturating_sub(job.began).as_secs_f64();
        let (done, left) = (job.done as f64, job.total.saturating_sub(job.done) as f64);
        let rate = match known {
            Some(known) => (done + known * EVIDENCE) / (elapsed + EVIDENCE),
            None => done / elapsed.max(1e-3),
        };
        left / rate.max(RATE_MIN)
    }

    fn rate_of(&mut self, work: Work) -> &mut Option<f64> {
        if work == Work::Flush { &mut self.flush_rate } else { &mut self.merge_rate }
    }
}

impl Pacer {
    pub(crate) fn new(sched: &Sched) -> Self {
        let (rate, rate_of_deletes) = (AtomicU64::new(UNLIMITED), AtomicU64::new(UNLIMITED));
        Self { rate, rate_of_deletes, state: Mutex::new(sched, State::default()) }
    }

    /// Bytes a second that writers may write at present; `None` for any.
    pub(crate) fn rate(&self, puts: bool) -> Option<u64> {
        let rate = if puts { &self.rate } else { &self.rate_of_deletes };
        Some(rate.load(Ordering::Relaxed)).filter(|rate| *rate != UNLIMITED)
    }
}

/// A job as the pacer sees it; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Paced<'a> {
    engine: &'a Engine,
    id: u64,
}

impl Paced<'_> {
    /// So many bytes of the job's present step are done.
    pub(crate) fn progress(&self, done: u64) {
        let mut state = self.engine.pacer.state.lock();
        if let Some(job) = state.running.iter_mut().find(|job| job.id == self.id) {
            job.progress(done);
        }
    }

    /// A step has ended; the next begins to count anew.
    pub(crate) fn step_ended(&self) {
        let mut state = self.engine.pacer.state.lock();
        if let Some(job) = state.running.iter_mut().find(|job| job.id == self.id) {
            job.end_step();
        }
    }
}

impl Drop for Paced<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.pacer.state.lock();
        let Some(i) = state.running.iter().position(|job| job.id == self.id) else { return };
        let job = state.running.swap_remove(i);
        let took = self.engine.sched.now().saturating_sub(job.began).as_secs_f64();
        // What failed early, or was over at once, says nothing of speed.
        if job.done > job.total / 2 && took > 0.0 {
            let (weight, rate) = (took / (took + EVIDENCE), job.done as f64 / took);
            let known = state.rate_of(job.work);
            *known = Some(known.map_or(rate, |known| known * (1.0 - weight) + rate * weight));
        }
        drop(state);
        self.engine.pace();
    }
}

impl Engine {
    /// A job begins that has so many bytes to go through.
    pub(super) fn begin_paced(&self, work: Work, total: u64, leaves: Leaving) -> Paced<'_> {
        let mut state = self.pacer.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.running.push(Running {
            id,
            work,
            began: self.sched.now(),
            total,
            done: 0,
            steps_done: 0,
            leaves,
        });
        drop(state);
        self.pace();
        Paced { engine: self, id }
    }

    /// Decides anew how fast writers may go.
    pub(super) fn pace(&self) {
        let mut state = self.pacer.state.lock();
        state.decided_at = self.sched.now();
        let load = self.load(&state);
        let rate = |puts| load.rate(puts).map_or(UNLIMITED, |rate| rate as u64);
        self.pacer.rate.store(rate(true), Ordering::Relaxed);
        self.pacer.rate_of_deletes.store(rate(false), Ordering::Relaxed);
        if load.rate_by_room().is_none() {
            self.background.stop_reclaiming();
        }
        let times = load.background(f64::from(self.options.level0_merge));
        self.tiers.all.iter().for_each(|tier| tier.raise_background(times));
    }

    fn load(&self, state: &State) -> Load {
        let now = self.sched.now();
        let current = self.current.load();
        let run_bytes = self.options.memtable_bytes() as f64;
        let of = |work: Work| state.running.iter().filter(move |job| job.work == work);
        let flushed: u64 = of(Work::Flush).map(|job| job.done).sum();
        let memtables = std::iter::once(&current.active).chain(current.sealed.iter().map(|s| &s.memtable));
        let unflushed = memtables.map(|memtable| memtable.used_bytes()).sum::<u64>().saturating_sub(flushed);
        let left = |work| of(work).map(|job| state.seconds_left(job, now)).sum::<f64>();
        let level0 = current.version.level0();
        // Merges of some guards speak for all: others take as long, one after the other.
        let merging = of(Work::MergeTop).map(|job| job.leaves).max_by_key(|leaves| leaves.runs);
        let leaving_bytes: u64 = of(Work::MergeTop).map(|job| job.leaves.bytes).sum();
        let seconds_left = match merging {
            // It has to wait its turn, and then takes its inputs' time.
            None => {
                let mut top = current.version.levels.iter().filter(|level| level.tables().next().is_some());
                let inputs = top.by_ref().take(2).flat_map(|level| level.tables());
                let bytes: u64 = inputs.map(|table| table.meta.raw_bytes).sum();
                left(Work::MergeBelow)
                    + bytes as f64 / state.merge_rate.unwrap_or(f64::INFINITY).max(RATE_MIN)
            }
            Some(_) => left(Work::MergeTop) * level0.guards_per(leaving_bytes),
        };
        Load {
            unflushed: unflushed as f64,
            unflushed_max: run_bytes * (SEALED_MAX + 1) as f64,
            flush_rate: state.flush_rate,
            runs: level0.depth(run_bytes) + unflushed as f64 / run_bytes,
            leaving: merging.map_or(0, |leaves| leaves.runs) as f64,
            seconds_left,
            run_bytes,
            room: self.room(true) as f64,
            slow: f64::from(self.options.level0_slow),
            stop: f64::from(self.options.level0_stop),
        }
    }

    /// Lets a batch of so many bytes in: at once, after a while, or when the background has made room for it. A large
    /// one holds memory until it is written.
    ///
    /// # Errors
    /// As [`super::background::Background::wait_while`].
    pub(super) fn admit(&self, bytes: usize, puts: bool) -> Result<Option<Charge>> {
        let held = if bytes >= LARGE_BYTES { Some(self.admit_large(bytes as u64)?) } else { None };
        let memory_is_full = || {
            let current = self.current.load();
            current.sealed.len() >= SEALED_MAX && current.active.used_bytes() >= self.options.memtable_bytes()
        };
        let stop = self.options.level0_stop;
        let level0_is_full = || self.current.load().version.level0().runs_max >= stop as usize;
        // Few runs in each of many guards may be as much.
        let level0_is_large = || {
            let run_bytes = self.options.memtable_bytes() as f64;
            self.current.load().version.level0().depth(run_bytes) >= f64::from(stop)
        };
        if memory_is_full() {
            self.background.wait_while(self, &[Awaited::Flush], memory_is_full)?;
        }
        if level0_is_full() {
            self.background.wait_while(self, &[Awaited::Merge], level0_is_full)?;
        }
        if self.pacer.rate.load(Ordering::Relaxed) != UNLIMITED {
            if level0_is_large() {
                self.background.wait_while(self, &[Awaited::Merge], level0_is_large)?;
            }
            self.slow_down(bytes, puts);
            if self.room(puts) < bytes as u64 {
                self.background.wait_for_room(self, bytes as u64, puts)?;
            }
        }
        Ok(held)
    }

    /// Waits until the store may have so many more range tombstones, of so many bytes: each costs every read a little,
    /// and memory. Writers who ask at the same moment may go beyond that by what they bring.
    ///
    /// # Errors
    /// `Invalid` for more than a store may have; `Full` when nothing works off those that there are.
    pub(super) fn admit_ranges(&self, (more, more_bytes): (usize, usize)) -> Result<()> {
        if more > RANGE_TOMBSTONES_MAX {
            let why = format!("a batch deletes at most {RANGE_TOMBSTONES_MAX} ranges; this one has {more}");
            return Err(Error::invalid(why));
        }
        let most_bytes = self.options.memory_bytes / RANGES_SHARE;
        if more_bytes as u64 > most_bytes {
            let why = format!(
                "the ranges that a batch deletes have at most {most_bytes} bytes of keys with this memory number; these have \
                 {more_bytes}"
            );
            return Err(Error::invalid(why));
        }
        let has_room = || {
            let current = self.current.load();
            let sets = current.range_tombstones();
            let (count, bytes) =
                sets.fold((0, 0), |(count, bytes), set| (count + set.len(), bytes + set.bytes()));
            count + more <= RANGE_TOMBSTONES_MAX && bytes + more_bytes as u64 <= most_bytes
        };
        if more == 0 || has_room() {
            return Ok(());
        }
        // Those of memtables are worked off once they are flushed.
        self.wait_for_flush()?;
        if !self.current.load().active.range_tombstones().is_empty() {
            self.seal_active()?;
        }
        self.background.wait_for_ranges(self, has_room)
    }

    /// Memory for a large batch: its copy in the group, and in the memtable. Waits while others have too much of it.
    fn admit_large(&self, bytes: u64) -> Result<Charge> {
        let memory = self.tables.cache.memory();
        let mut held = None;
        let must_wait = |held: &mut Option<Charge>| {
            let current = self.current.load();
            let sealed: u64 = current.sealed.iter().map(|sealed| sealed.memtable.used_bytes()).sum();
            let unflushed = sealed + current.active.used_bytes();
            let most = memory.for_writes().saturating_sub(unflushed);
            // With nothing to be flushed, what is in the active memtable makes room for nobody.
            if sealed == 0 || 2 * bytes <= most {
                *held = memory.try_charge(Holder::Writes, 2 * bytes, most);
            }
            held.is_none()
        };
        self.background.wait_while(self, &[Awaited::Flush], || must_wait(&mut held))?;
        self.tables.cache.fit();
        held.ok_or_else(|| Error::internal("a batch was let in without memory"))
    }

    /// Bytes that writers may still take on the tiers, what is in memory and not flushed yet taken off; `puts` leave a
    /// part of each tier alone.
    pub(super) fn room(&self, puts: bool) -> u64 {
        let current = self.current.load();
        // The one that is being flushed has its lease and counts twice for a while.
        let sealed = current.sealed.iter().map(|sealed| sealed.memtable.used_bytes());
        let unflushed = sealed.sum::<u64>() + current.active.used_bytes();
        let kept = |tier: &Tier| match tier.ordinal {
            0 if self.objects.is_some() => self.options.beside_slabs_bytes(),
            _ if puts => self.reserve(tier),
            _ => 0,
        };
        let free = |tier: &Tier| tier.free_bytes().saturating_sub(kept(tier));
        // Tombstones need slots, too.
        let in_slots = self.objects.as_ref().map_or(0, |store| {
            let (all, free) = store.bytes();
            free.saturating_sub(if puts { all / RESERVE_SHARE } else { 0 })
        });
        let in_tiers: Vec<u64> = self.tiers.all.iter().map(free).collect();
        let all: u64 = in_tiers.iter().sum::<u64>() + in_slots;
        // What comes into slots goes down some day, and free slots may be of sizes that nothing wants.
        let below = in_tiers.last().filter(|_| puts && self.objects.is_some());
        below.map_or(all, |below| all.min(*below)).saturating_sub(unflushed + unflushed / 4)
    }

    /// Bytes of a tier that are not for puts: what some tables need, and on the slowest tier what goes down from a
    /// level of few deletes into each of the guards of the next, where it becomes a table, however small.
    pub(super) fn reserve(&self, tier: &Tier) -> u64 {
        let table = self.options.table_bytes().max(self.options.memtable_bytes());
        let (least, most) = (RESERVE_TABLES_MIN * table, RESERVE_TABLES_MAX * table);
        let share = tier.capacity_bytes / RESERVE_SHARE;
        let of_tables = share.max(least).min(most).min(2 * share);
        if tier.ordinal + 1 < self.tiers.all.len() {
            return of_tables;
        }
        let current = self.current.load();
        let guards = current.version.levels.iter().map(|level| level.guards.len() as u64).max();
        of_tables + (guards.unwrap_or(0) * GUARD_BYTES).min(2 * share)
    }

    /// Why there can be no more range tombstones.
    pub(super) fn full_of_ranges(&self) -> Error {
        let newest = self.current.load().version.range_tombstones.newest_at(Seq::MAX);
        let why = match self.boundaries()[0] < newest {
            true => "older snapshots or iterators see what they had: let these go",
            false => {
                "there is no room to rewrite the tables that have some of their keys: give the tiers more, or delete data"
            }
        };
        let message =
            format!("as many range deletes as there may be are not worked off: {why}; or delete key by key");
        Error::new(ErrorKind::Full, message)
    }

    /// Why a writer finds no room.
    pub(super) fn full(&self, bytes: u64) -> Error {
        let used = |tier: &Tier| {
            let (place, taken, capacity) = (tier.directory.place(), tier.taken_bytes(), tier.capacity_bytes);
            format!("tier {} ({place}) has {taken} of {capacity} bytes taken", tier.ordinal)
        };
        let tiers: Vec<String> = self.tiers.all.iter().map(used).collect();
        let message = format!(
            "there is no room for {bytes} bytes more: {}; what is left is kept for deletes and merges; delete data or give a \
             tier more",
            tiers.join(", ")
        );
        Error::new(ErrorKind::Full, message)
    }

    fn slow_down(&self, bytes: usize, puts: bool) {
        let now = self.sched.now();
        let mut state = self.pacer.state.lock();
        if now.saturating_sub(state.decided_at) >= DECISION {
            drop(state);
            self.pace();
            state = self.pacer.state.lock();
        }
        let Some(rate) = self.pacer.rate(puts) else { return };
        let pays = Duration::from_secs_f64(bytes as f64 / rate as f64);
        state.paid_at = (state.paid_at.max(now) + pays).min(now + DELAY_MAX);
        let ahead = state.paid_at - now;
        drop(state);
        if ahead > AHEAD_MAX {
            self.operations.slowed(ahead);
            self.sched.sleep(ahead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;
    const LOAD: Load = Load {
        unflushed: 10.0 * MIB,
        unflushed_max: 96.0 * MIB,
        flush_rate: Some(100.0 * MIB),
        runs: 4.0,
        leaving: 0.0,
        seconds_left: 10.0,
        run_bytes: 32.0 * MIB,
        room: 10_000.0 * MIB,
        slow: 12.0,
        stop: 24.0,
    };

    #[test]
    fn nobody_is_slowed_before_there_is_a_need() {
        assert_eq!(LOAD.rate(true), None);
        assert_eq!(Load { runs: 12.0, ..LOAD }.rate(true), None);
        // Without anything known of flushes' speed there is nothing to slow to.
        assert_eq!(Load { unflushed: 90.0 * MIB, flush_rate: None, ..LOAD }.rate(true), None);
    }

    #[test]
    fn flushes_slow_writers_the_more_the_less_memory_is_left() {
        let rate = |unflushed: f64| Load { unflushed: unflushed * MIB, ..LOAD }.rate(true).unwrap() / MIB;
        assert_eq!(rate(72.0), 112.5);
        assert_eq!(rate(96.0), 25.0);
        assert_eq!(rate(200.0), 25.0);
    }

    #[test]
    fn the_room_of_level_0_is_spread_over_the_time_until_it_is_merged() {
        let rate = |runs: f64, leaving: f64| Load { runs, leaving, ..LOAD }.rate(true).unwrap() / MIB;
        // 10 runs in 10 seconds; of them, 2 are too many for the next merge if this one leaves 2 behind.
        assert_eq!(rate(14.0, 0.0), 32.0);
        assert_eq!(rate(14.0, 12.0), 32.0);
        assert_eq!(rate(14.0, 10.0), 25.6);
        // The next merge is too large already: a quarter of what there is room for.
        assert_eq!(rate(20.0, 4.0), 3.2);
        // Never none at all.
        assert_eq!(rate(30.0, 4.0) * MIB, RATE_MIN);
    }

    #[test]
    fn merges_that_are_held_back_are_let_go_as_level_0_fills() {
        let times = |runs: f64| Load { runs, ..LOAD }.background(4.0);
        assert_eq!([1.0, 4.0, 8.0, 12.0].map(times), [Some(1.0), Some(1.0), Some(2.5), None]);
        assert_eq!(Load { room: 0.0, ..LOAD }.background(4.0), None);
    }

    #[test]
    fn writers_slow_down_with_the_room_that_is_left() {
        let rate = |room: f64| Load { room: room * MIB, ..LOAD }.rate(true).unwrap() / MIB;
        assert_eq!((rate(64.0), rate(32.0)), (50.0, 25.0));
        assert_eq!(rate(0.0) * MIB, RATE_MIN);
        assert_eq!(Load { room: 0.0, ..LOAD }.rate(false), None);
    }

    #[test]
    fn a_merge_of_one_guard_speaks_for_the_time_of_all() {
        let level0 = Level0Sums { guards: 4, bytes: 400, runs_max: 4, runs: 3.0 };
        assert_eq!(level0.guards_per(100), 4.0);
        assert_eq!(level0.guards_per(1000), 1.0);
        assert_eq!(Level0Sums { guards: 1, ..level0 }.guards_per(100), 1.0);
        // Three runs where the bytes are, but as many bytes as eight memtables.
        assert_eq!((level0.depth(50.0), level0.depth(200.0)), (8.0, 3.0));
        assert_eq!(Level0Sums { guards: 1, ..level0 }.depth(50.0), 3.0);
    }

    #[test]
    fn steps_of_a_job_add_up() {
        let (began, work) = (Duration::ZERO, Work::MergeTop);
        let mut job = Running {
            id: 0,
            work,
            began,
            total: 100,
            done: 0,
            steps_done: 0,
            leaves: Leaving { runs: 4, bytes: 0 },
        };
        job.progress(20);
        job.progress(30);
        job.end_step();
        job.progress(10);
        assert_eq!(job.done, 40);
        // A share was estimated too small.
        job.progress(500);
        assert_eq!(job.done, 100);
    }

    #[test]
    fn a_job_that_is_late_is_expected_to_stay_late() {
        let state = State { merge_rate: Some(100.0), ..State::default() };
        let began = Duration::ZERO;
        let (id, work, total, steps_done) = (0, Work::MergeTop, 100_000_000, 0);
        let leaves = Leaving::default();
        let job = |done| Running { id, work, began, total, done, steps_done, leaves };
        let at = |seconds, done| state.seconds_left(&job(done), Duration::from_secs(seconds));
        assert!(at(100, 50_000_000) < at(100, 40_000_000));
        assert!(at(200, 40_000_000) > at(100, 40_000_000));
    }
}
