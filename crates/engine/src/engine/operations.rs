//! Counters of calls, and how long they take.
//!
//! Counters are relaxed atomics, one or two per call. One call in [`TIMED`] of each kind is timed, with two looks at
//! the clock and a histogram behind a lock: so that a get costs next to nothing more, and the histogram of any busy
//! second still has thousands of them.

use crate::format::coding::put_varint;
use crate::format::{Decode, Reader};
use crate::version::LEVELS_MAX;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use hdrhistogram::Histogram;
use std::time::Duration;

/// One call in so many is timed; a power of two.
const TIMED: u64 = 64;
/// Histograms tell times up to a minute, in microseconds' tenths, to two digits.
const UNIT_NANOS: u64 = 100;
const LONGEST_UNITS: u64 = 60_000_000_000 / UNIT_NANOS;
const DIGITS: u8 = 2;
/// Memtables, cached objects, the store below the memtable, the levels, and nothing.
const ANSWERS: usize = LEVELS_MAX + 4;
/// The place of lookups that memtables answered.
pub(super) const BY_MEMTABLES: usize = 0;
/// The place of lookups that a cached object answered.
pub(super) const BY_OBJECTS: usize = 1;
/// The place of lookups that the store below the memtable answered.
pub(super) const BY_STORE: usize = 2;
/// The place of lookups that level 0 answered; the levels below follow.
pub(super) const BY_LEVEL_0: usize = 3;
/// The place of lookups that found nothing.
pub(super) const BY_NOTHING: usize = ANSWERS - 1;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Get = 0,
    Write = 1,
    Seek = 2,
}

impl Timed {
    const ALL: [Self; 3] = [Self::Get, Self::Write, Self::Seek];

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Write => "write",
            Self::Seek => "seek",
        }
    }
}

/// Counters of calls.
#[derive(Debug)]
pub(crate) struct Operations {
    sched: Sched,
    gets: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    scans: AtomicU64,
    seeks: AtomicU64,
    flushes: AtomicU64,
    merges: AtomicU64,
    relocations: AtomicU64,
    slowed_nanos: AtomicU64,
    answered: [AtomicU64; ANSWERS],
    times: [Mutex<Option<Histogram<u64>>>; Timed::ALL.len()],
}

/// Counters of calls, read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Keys looked up.
    pub gets: u64,
    /// Batches written; a put is a batch of one.
    pub writes: u64,
    /// Bytes of keys and values in them.
    pub written_bytes: u64,
    /// Scans and cursors begun.
    pub scans: u64,
    /// Times that one of them was put somewhere, but for steps.
    pub seeks: u64,
    /// Memtables turned into tables.
    pub flushes: u64,
    /// Merges and moves between levels.
    pub merges: u64,
    /// Tables whose data was put on another tier.
    pub relocations: u64,
    /// Nanoseconds that writers were slowed or made to wait.
    pub slowed_nanos: u64,
}

/// How many lookups a container answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerStats {
    /// "memtables", "objects" (cached), "store", "level N" or "nothing".
    pub container: String,
    /// Keys looked up that stopped here.
    pub gets: u64,
}

/// How long calls of one kind took: one in 64 of them is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyStats {
    /// "get", "write" or "seek".
    pub operation: &'static str,
    /// How many were timed.
    pub samples: u64,
    /// Half of them took no longer.
    pub median: Duration,
    /// 99 in 100 took no longer.
    pub p99: Duration,
    /// 999 in 1000 took no longer.
    pub p999: Duration,
    /// The longest that was timed.
    pub longest: Duration,
}

/// A call that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing(Option<Duration>);

impl Timing {
    /// Whether this call is one in [`TIMED`].
    pub(super) fn is_timed(&self) -> bool {
        self.0.is_some()
    }
}

impl Operations {
    pub(crate) fn new(sched: &Sched) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            sched: sched.clone(),
            gets: zero(),
            writes: zero(),
            written_bytes: zero(),
            scans: zero(),
            seeks: zero(),
            flushes: zero(),
            merges: zero(),
            relocations: zero(),
            slowed_nanos: zero(),
            answered: std::array::from_fn(|_| zero()),
            times: std::array::from_fn(|_| Mutex::new(sched, None)),
        }
    }

    /// Those that are kept over restarts.
    fn fields(&self) -> impl Iterator<Item = &AtomicU64> {
        let calls = [
            &self.gets,
            &self.writes,
            &self.written_bytes,
            &self.scans,
            &self.seeks,
            &self.flushes,
            &self.merges,
            &self.relocations,
            &self.slowed_nanos,
        ];
        calls.into_iter().chain(&self.answered)
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.fields().map(|field| field.load(Ordering::Relaxed)).collect()
    }

    /// Takes up what [`Operations::numbers`] gave; `false`, and nothing done, when these are of another version.
    pub(super) fn restore(&self, numbers: &[u64]) -> bool {
        let fits = self.fields().count() == numbers.len();
        if fits {
            self.fields().zip(numbers).for_each(|(field, number)| field.store(*number, Ordering::Relaxed));
        }
        fits
    }

    /// A key is looked up.
    pub(crate) fn get(&self) -> Timing {
        self.begin(self.gets.fetch_add(1, Ordering::Relaxed))
    }

    /// A batch is about to be written.
    pub(crate) fn write(&self) -> Timing {
        self.begin(self.writes.load(Ordering::Relaxed))
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A walk is put somewhere.
    pub(crate) fn seek(&self) -> Timing {
        self.begin(self.seeks.fetch_add(1, Ordering::Relaxed))
    }

    fn begin(&self, before: u64) -> Timing {
        Timing(before.is_multiple_of(TIMED).then(|| self.sched.now()))
    }

    /// A call has ended.
    pub(crate) fn end(&self, timed: Timed, timing: Timing) {
        if let Timing(Some(began)) = timing {
            self.record(timed, self.sched.now().saturating_sub(began));
        }
    }

    #[cold]
    fn record(&self, timed: Timed, took: Duration) {
        let units = (took.as_nanos() as u64 / UNIT_NANOS).clamp(1, LONGEST_UNITS);
        let mut times = self.times[timed as usize].lock();
        if times.is_none() {
            *times = Histogram::new_with_bounds(1, LONGEST_UNITS, DIGITS).ok();
        }
        if let Some(times) = times.as_mut() {
            times.saturating_record(units);
        }
    }

    /// How long calls took: of each kind how many different times, then each time, in units, and how often it was.
    pub(super) fn encode_times(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for times in &self.times {
            let times = times.lock();
            let recorded = || times.iter().flat_map(|times| times.iter_recorded());
            put_varint(&mut out, recorded().count() as u64);
            for time in recorded() {
                put_varint(&mut out, time.value_iterated_to());
                put_varint(&mut out, time.count_at_value());
            }
        }
        out
    }

    /// Takes up what [`Operations::encode_times`] gave; what cannot be read is begun anew.
    pub(super) fn restore_times(&self, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let mut restore = || -> Decode<()> {
            for times in &self.times {
                let mut restored = Histogram::new_with_bounds(1, LONGEST_UNITS, DIGITS).ok();
                for _ in 0..reader.number()? {
                    let (units, count) = (reader.number()?, reader.number()?);
                    restored.iter_mut().for_each(|times| times.saturating_record_n(units, count));
                }
                *times.lock() = restored.filter(|times| !times.is_empty());
            }
            Ok(())
        };
        // Times are no reason not to open.
        drop(restore());
    }

    /// Keys looked up, and how many of them tables below level 0 answered.
    pub(super) fn gets(&self) -> [u64; 2] {
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let below = self.answered[BY_LEVEL_0 + 1..BY_NOTHING].iter().map(read).sum();
        [read(&self.gets), below]
    }

    /// Keys looked up, and scans and cursors put somewhere.
    pub(super) fn reads(&self) -> u64 {
        self.gets.load(Ordering::Relaxed) + self.seeks.load(Ordering::Relaxed)
    }

    pub(crate) fn answered(&self, by: usize) {
        self.answered[by].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn scanned(&self) {
        self.scans.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn merged(&self) {
        self.merges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn relocated(&self) {
        self.relocations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn slowed(&self, time: Duration) {
        self.slowed_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> OperationCounts {
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        OperationCounts {
            gets: read(&self.gets),
            writes: read(&self.writes),
            written_bytes: read(&self.written_bytes),
            scans: read(&self.scans),
            seeks: read(&self.seeks),
            flushes: read(&self.flushes),
            merges: read(&self.merges),
            relocations: read(&self.relocations),
            slowed_nanos: read(&self.slowed_nanos),
        }
    }

    /// Containers that answered something.
    pub(super) fn answers(&self) -> Vec<AnswerStats> {
        let name = |by: usize| match by {
            BY_MEMTABLES => "memtables".to_owned(),
            BY_OBJECTS => "objects".to_owned(),
            BY_STORE => "store".to_owned(),
            BY_NOTHING => "nothing".to_owned(),
            _ => format!("level {}", by - BY_LEVEL_0),
        };
        let counts = self.answered.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        counts
            .filter(|(_, gets)| *gets > 0)
            .map(|(by, gets)| AnswerStats { container: name(by), gets })
            .collect()
    }

    pub(super) fn latencies(&self) -> Vec<LatencyStats> {
        let latency = |timed: Timed| {
            let times = self.times[timed as usize].lock();
            let times = times.as_ref()?;
            let at = |share: f64| Duration::from_nanos(times.value_at_quantile(share) * UNIT_NANOS);
            Some(LatencyStats {
                operation: timed.name(),
                samples: times.len(),
                median: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
                longest: Duration::from_nanos(times.max() * UNIT_NANOS),
            })
        };
        Timed::ALL.into_iter().filter_map(latency).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_so_many_is_timed_and_all_are_counted() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let operations = Operations::new(&sched);
            for i in 0..TIMED * 100 {
                let timing = operations.get();
                sched.sleep(Duration::from_micros(i / TIMED + 1));
                operations.end(Timed::Get, timing);
            }
            assert_eq!(operations.counts().gets, TIMED * 100);
            let [get] = operations.latencies()[..] else { panic!("{:?}", operations.latencies()) };
            assert_eq!((get.operation, get.samples), ("get", 100));
            assert!(
                (50..55).contains(&get.median.as_micros()) && (100..110).contains(&get.longest.as_micros())
            );
        });
    }

    #[test]
    fn counters_are_taken_up_only_by_a_version_that_has_the_same() {
        let sched = Sched::real(1);
        let (before, after) = (Operations::new(&sched), Operations::new(&sched));
        before.wrote(77);
        before.answered(BY_NOTHING);
        let numbers = before.numbers();
        assert!(after.restore(&numbers) && !after.restore(&numbers[1..]));
        assert_eq!(after.counts(), before.counts());
        assert_eq!(after.answers(), [AnswerStats { container: "nothing".to_owned(), gets: 1 }]);
    }
}
