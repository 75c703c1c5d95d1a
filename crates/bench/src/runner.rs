//! Runs a workload on several threads and measures each operation.

use crate::distribution::{Chooser, Distribution};
use crate::record::{Key, Keys, check_value, value_of};
use crate::workload::{Operation, Values, Workload};
use cuesta_sched::Rng;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What is measured. Errors are texts: a benchmark ends at the first.
pub trait Store: Sync {
    /// The value of a key, handed to `see`.
    ///
    /// # Errors
    /// What the store says.
    fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String>;
    /// Gives a key a value.
    ///
    /// # Errors
    /// What the store says.
    fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String>;
    /// Up to `records` pairs from `key` on; how many there were.
    ///
    /// # Errors
    /// What the store says.
    fn scan(&self, key: &[u8], records: u64) -> Result<u64, String>;
    /// Takes a key's value away. Traces ask for it, which only a store of ours plays.
    ///
    /// # Errors
    /// What the store says; by default that it cannot.
    fn delete(&self, key: &[u8]) -> Result<(), String> {
        Err(format!("key {}: deletes are not among what this store is measured at", key.escape_ascii()))
    }
}

/// How long a phase is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// So many operations, of all threads together; a load has one for each record.
    Operations(u64),
    /// So many seconds.
    Seconds(f64),
}

/// What a phase does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The mix.
    pub workload: Workload,
    /// Records that the load makes.
    pub records: u64,
    /// How long it is.
    pub length: Length,
    /// Threads.
    pub threads: u64,
    /// In the order of the records for workloads of which some ranges of keys are hot.
    #[serde(default)]
    pub keys: Keys,
    /// How long values are; [`crate::VALUE_BYTES_MIN`] at least.
    pub values: Values,
    /// `None` for the workload's own.
    pub distribution: Option<Distribution>,
    /// Of the Zipfian distribution.
    pub theta: f64,
    /// Of every choice.
    pub seed: u64,
    /// The phase's number in its run: phases share which records are hot, and not the order in which they are asked
    /// for.
    pub phase: u64,
}

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Mean.
    pub mean_us: f64,
    /// Half are faster.
    pub p50_us: f64,
    /// 90 % are faster.
    pub p90_us: f64,
    /// 99 % are faster.
    pub p99_us: f64,
    /// 99.9 % are faster.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// One kind of operation of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationResult {
    /// Which.
    pub operation: Operation,
    /// How many.
    pub count: u64,
    /// How long each took.
    pub latency: LatencySummary,
    /// Points of the distribution: so many percent took at most so many microseconds.
    pub quantiles: Vec<[f64; 2]>,
}

/// What a run gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// From the first operation to the last.
    pub seconds: f64,
    /// All operations over all seconds.
    pub operations_per_second: f64,
    /// Operations per second, for each [`SLICE`] of the run.
    pub timeline: Vec<f64>,
    /// By kind.
    pub operations: Vec<OperationResult>,
    /// Reads that found no value. In a phase, inserted records excepted that were not there yet, it should be 0; in a
    /// trace, reads of keys that nothing had been written to.
    pub not_found: u64,
}

/// What a phase gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhaseResult {
    /// What was run.
    pub config: Config,
    /// What it gave.
    #[serde(flatten)]
    pub measured: Measured,
}

/// How often the rate is noted, in seconds.
pub const SLICE: f64 = 0.5;
/// Points of a distribution that are told, in percent.
const QUANTILES: [f64; 15] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.9, 99.99];
/// Threads report their progress this often.
const REPORT_OPERATIONS: u64 = 256;
/// Latencies are kept to three digits.
const DIGITS: u8 = 3;
/// Longest latency that is told apart: an hour, in nanoseconds.
const LATENCY_MAX: u64 = 3_600_000_000_000;

struct Shared<'a> {
    config: &'a Config,
    store: &'a dyn Store,
    done: AtomicU64,
    /// Records inserted, or about to be.
    begun: AtomicU64,
    /// Records whose inserts have all returned, below which any can be read.
    inserted: AtomicU64,
    failed: AtomicBool,
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    rng: Rng,
    /// For reads and scans, and for updates.
    choosers: [Chooser; 2],
    times: Times,
    not_found: u64,
    version: u64,
}

/// Runs a phase on a store that holds `config.records` records (none, for a load); `progress` is told now and then
/// how many operations are done.
///
/// # Errors
/// The first error of the store, or a value that is not what was written.
pub fn run_phase(
    store: &dyn Store,
    config: &Config,
    records_before: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(PhaseResult, u64), String> {
    let shared = Shared {
        config,
        store,
        done: AtomicU64::new(0),
        begun: AtomicU64::new(records_before),
        inserted: AtomicU64::new(records_before),
        failed: AtomicBool::new(false),
    };
    let began = Instant::now();
    let (workers, timeline) = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let shared = &shared;
            scope.spawn(move || {
                let mut worker = Worker::new(shared, thread)?;
                worker.run(thread, progress).inspect_err(|_| shared.failed.store(true, Ordering::Relaxed))?;
                Ok(worker)
            })
        };
        let threads: Vec<_> = (0..config.threads).map(run).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<_, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread of the benchmark panicked".to_owned()))
        };
        let (ended, end) = mpsc::channel::<()>();
        let done = &shared.done;
        let timeline = scope.spawn(move || rates(done, &end));
        let workers = threads.into_iter().map(join).collect::<Result<Vec<Worker<'_>>, String>>();
        drop(ended);
        workers.map(|workers| (workers, timeline.join().unwrap_or_default()))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let not_found = workers.iter().map(|worker| worker.not_found).sum();
    let times: Vec<Times> = workers.into_iter().map(|worker| worker.times).collect();
    let measured = Measured::new(shared.done.load(Ordering::Relaxed), seconds, &times, not_found);
    let measured = Measured { timeline, ..measured };
    Ok((PhaseResult { config: config.clone(), measured }, shared.begun.load(Ordering::Relaxed)))
}

/// How fast `done` grows, a number for each slice, until the other end of `end` is dropped.
fn rates(done: &AtomicU64, end: &mpsc::Receiver<()>) -> Vec<f64> {
    let (mut rates, mut before, mut since) = (Vec::new(), 0, Instant::now());
    while end.recv_timeout(Duration::from_secs_f64(SLICE)) == Err(mpsc::RecvTimeoutError::Timeout) {
        let now = done.load(Ordering::Relaxed);
        rates.push((now - before) as f64 / since.elapsed().as_secs_f64());
        (before, since) = (now, Instant::now());
    }
    rates
}

impl Measured {
    pub(crate) fn new(operations: u64, seconds: f64, threads: &[Times], not_found: u64) -> Self {
        let operations_per_second = operations as f64 / seconds;
        let operations = Times::summarise(threads);
        Self { seconds, operations_per_second, timeline: Vec::new(), operations, not_found }
    }
}

/// How long operations took, by kind.
pub(crate) struct Times(Vec<Histogram<u64>>);

impl Times {
    pub(crate) fn new() -> Result<Self, String> {
        let histogram = |_| Histogram::new_with_max(LATENCY_MAX, DIGITS).map_err(|error| error.to_string());
        Operation::ALL.into_iter().map(histogram).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn record(&mut self, operation: Operation, took: Duration) {
        self.0[operation as usize].saturating_record(took.as_nanos() as u64);
    }

    /// Of all threads together; what there was none of is left out.
    fn summarise(threads: &[Self]) -> Vec<OperationResult> {
        Operation::ALL.into_iter().filter_map(|operation| Self::of(operation, threads)).collect()
    }

    fn of(operation: Operation, threads: &[Self]) -> Option<OperationResult> {
        let mut all = Histogram::<u64>::new_with_max(LATENCY_MAX, DIGITS).ok()?;
        for times in threads {
            all.add(&times.0[operation as usize]).ok()?;
        }
        let at = |quantile: f64| all.value_at_quantile(quantile) as f64 / 1000.0;
        (!all.is_empty()).then(|| OperationResult {
            operation,
            count: all.len(),
            latency: LatencySummary {
                mean_us: all.mean() / 1000.0,
                p50_us: at(0.5),
                p90_us: at(0.9),
                p99_us: at(0.99),
                p999_us: at(0.999),
                max_us: all.max() as f64 / 1000.0,
            },
            quantiles: QUANTILES.map(|percent| [percent, at(percent / 100.0)]).to_vec(),
        })
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, thread: u64) -> Result<Self, String> {
        let config = shared.config;
        let records = shared.begun.load(Ordering::Relaxed).max(1);
        let records = (records, config.records);
        let chooser = |distribution| Chooser::of_run(distribution, config.theta, records, config.seed);
        let choosers = config.workload.distributions(config.distribution).map(chooser);
        let times = Times::new()?;
        // Clients that follow one another through one stream would ask for what another has just brought into the
        // cache.
        let rng = Rng::stream(config.seed, config.phase << 32 | thread);
        Ok(Self { shared, rng, choosers, times, not_found: 0, version: thread + 1 })
    }

    fn run(&mut self, thread: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<(), String> {
        let config = self.shared.config;
        let (share, ends) = match config.length {
            Length::Operations(all) => {
                (all / config.threads + u64::from(thread < all % config.threads), f64::INFINITY)
            }
            Length::Seconds(seconds) => (u64::MAX, seconds),
        };
        let (mix, started) = (config.workload.mix(), Instant::now());
        for i in 1..=share {
            let operation = mix.choose(&mut self.rng);
            let began = Instant::now();
            self.one(operation)?;
            self.times.record(operation, began.elapsed());
            let is_last = i == share || started.elapsed().as_secs_f64() >= ends;
            if i % REPORT_OPERATIONS == 0 || is_last {
                let more = if i % REPORT_OPERATIONS == 0 { REPORT_OPERATIONS } else { i % REPORT_OPERATIONS };
                progress(self.shared.done.fetch_add(more, Ordering::Relaxed) + more);
                if is_last || self.shared.failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn choose(&mut self, operation: Operation) -> u64 {
        let records = self.shared.inserted.load(Ordering::Acquire).max(1);
        let chooser = usize::from(operation == Operation::Update);
        self.choosers[chooser].choose(&mut self.rng, records)
    }

    fn one(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Insert => self.insert(),
            Operation::Read => {
                let record = self.choose(operation);
                self.read(record)
            }
            Operation::Update => {
                let record = self.choose(operation);
                self.update(record)
            }
            Operation::ReadModifyWrite => {
                let record = self.choose(operation);
                self.read(record)?;
                self.update(record)
            }
            Operation::Scan => {
                let (record, length) =
                    (self.choose(operation), self.shared.config.workload.scan_records(&mut self.rng));
                self.shared.store.scan(&self.key(record), length).map(drop)
            }
            Operation::Delete => {
                let record = self.choose(operation);
                self.shared.store.delete(&self.key(record))
            }
        }
    }

    fn key(&self, record: u64) -> Key {
        self.shared.config.keys.of(record)
    }

    fn insert(&mut self) -> Result<(), String> {
        let record = self.shared.begun.fetch_add(1, Ordering::Relaxed);
        self.update(record)?;
        // Readers choose below this; an insert that is overtaken by a later one may be missed for a moment, and is
        // counted as not found then.
        self.shared.inserted.fetch_max(record + 1, Ordering::Release);
        Ok(())
    }

    fn update(&mut self, record: u64) -> Result<(), String> {
        self.version += self.shared.config.threads;
        let value = value_of(record, self.version, self.shared.config.values.draw(&mut self.rng));
        self.shared.store.write(&self.key(record), &value)
    }

    fn read(&mut self, record: u64) -> Result<(), String> {
        let (mut found, mut right) = (false, true);
        self.shared.store.read(&self.key(record), &mut |value| {
            found = value.is_some();
            right = value.is_none_or(|value| check_value(record, value));
        })?;
        self.not_found += u64::from(!found);
        match right {
            true => Ok(()),
            false => Err(format!("record {record} has a value that was never written to it")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::distribution::tests::{CHI_1000, chi_squared};
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[derive(Default)]
    pub(crate) struct Map {
        pairs: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        longest_scan: AtomicU64,
    }

    impl Map {
        /// Changes every value.
        pub(crate) fn spoil(&self) {
            self.pairs.lock().unwrap().values_mut().for_each(|value| value[20] ^= 1);
        }
    }

    impl Store for Map {
        fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
            see(self.pairs.lock().unwrap().get(key).map(Vec::as_slice));
            Ok(())
        }
        fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
            self.pairs.lock().unwrap().insert(key.to_vec(), value.to_vec());
            Ok(())
        }
        fn delete(&self, key: &[u8]) -> Result<(), String> {
            self.pairs.lock().unwrap().remove(key);
            Ok(())
        }
        fn scan(&self, key: &[u8], records: u64) -> Result<u64, String> {
            self.longest_scan.fetch_max(records, Ordering::Relaxed);
            Ok(self.pairs.lock().unwrap().range(key.to_vec()..).take(records as usize).count() as u64)
        }
    }

    pub(crate) fn config(workload: Workload, operations: u64) -> Config {
        let (records, threads, values, theta, seed) = (1000, 2, Values::Fixed(100), 0.99, 5);
        let keys = if workload == Workload::Facebook { Keys::Ordered } else { Keys::Scattered };
        let distribution = None;
        let phase = 0;
        Config {
            workload,
            records,
            length: Length::Operations(operations),
            threads,
            keys,
            values,
            distribution,
            theta,
            seed,
            phase,
        }
    }

    /// Counts how often each key is read and written, and has none.
    #[derive(Default)]
    struct Counting([Mutex<BTreeMap<Vec<u8>, u64>>; 2]);

    impl Counting {
        fn count(&self, of: usize, key: &[u8]) {
            *self.0[of].lock().unwrap().entry(key.to_vec()).or_default() += 1;
        }
    }

    impl Store for Counting {
        fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
            self.count(0, key);
            see(None);
            Ok(())
        }
        fn write(&self, key: &[u8], _: &[u8]) -> Result<(), String> {
            self.count(1, key);
            Ok(())
        }
        fn scan(&self, _: &[u8], _: u64) -> Result<u64, String> {
            Ok(0)
        }
    }

    #[test]
    fn cluster_19_reads_what_is_hot_and_writes_all_alike() {
        let store = Counting::default();
        run_phase(&store, &config(Workload::Twitter19, 200_000), 1000, &|_| {}).unwrap();
        let [reads, writes] = store.0.map(|counts| {
            let mut seen: Vec<u64> = counts.into_inner().unwrap().into_values().collect();
            seen.sort_unstable_by(|a, b| b.cmp(a));
            seen.resize(1000, 0);
            (seen.iter().sum::<u64>() as f64, seen)
        });
        let hottest = reads.1[..100].iter().sum::<u64>() as f64 / reads.0;
        let zeta = |to: u64| (1..=to).map(|i| 1.0 / (i as f64).powf(0.99)).sum::<f64>();
        let expected = zeta(100) / zeta(1000);
        assert!((hottest - expected).abs() < 0.01, "{hottest} of {expected}");
        let chi = chi_squared(&writes.1, |_| writes.0 / 1000.0);
        assert!(chi < CHI_1000, "{chi}");
    }

    #[test]
    fn a_load_and_every_workload_run_and_find_what_they_read() {
        let store = Map::default();
        run_phase(&store, &Config { keys: Keys::Ordered, ..config(Workload::Load, 1000) }, 0, &|_| {})
            .unwrap();
        let (loaded, mut records) = run_phase(&store, &config(Workload::Load, 1000), 0, &|_| {}).unwrap();
        assert_eq!((loaded.measured.operations[0].count, records), (1000, 1000));
        for workload in Workload::ALL.into_iter().filter(|workload| *workload != Workload::Load) {
            let done = AtomicU64::new(0);
            let progress = |n| assert!(done.fetch_max(n, Ordering::Relaxed) <= 2001);
            let (result, after) = run_phase(&store, &config(workload, 2001), records, &progress).unwrap();
            assert_eq!(result.measured.operations.iter().map(|o| o.count).sum::<u64>(), 2001);
            assert_eq!(done.into_inner(), 2001);
            records = after;
        }
        assert!(store.longest_scan.into_inner() >= 100);
    }

    #[test]
    fn a_phase_of_so_many_seconds_ends_after_them() {
        let store = Map::default();
        let (_, records) = run_phase(&store, &config(Workload::Load, 1000), 0, &|_| {}).unwrap();
        let config = Config { length: Length::Seconds(0.05), ..config(Workload::A, 0) };
        let (result, _) = run_phase(&store, &config, records, &|_| {}).unwrap();
        let done: u64 = result.measured.operations.iter().map(|operation| operation.count).sum();
        let rate = done as f64 / result.measured.seconds;
        assert!(result.measured.seconds >= 0.05 && done > 10, "{result:?}");
        assert!((result.measured.operations_per_second / rate - 1.0).abs() < 1e-9, "{result:?}");
    }

    #[test]
    fn phases_ask_for_the_same_hot_records_in_another_order() {
        let asked = |phase| {
            let config = Config { phase, ..config(Workload::C, 0) };
            let store = Map::default();
            let shared = Shared {
                config: &config,
                store: &store,
                done: AtomicU64::new(0),
                begun: AtomicU64::new(1000),
                inserted: AtomicU64::new(1000),
                failed: AtomicBool::new(false),
            };
            let mut worker = Worker::new(&shared, 0).unwrap();
            (0..3000).map(|_| worker.choose(Operation::Read)).collect::<Vec<u64>>()
        };
        let hottest = |asked: &[u64]| {
            let count = |record: &u64| asked.iter().filter(|other| *other == record).count();
            asked.iter().max_by_key(|record| count(record)).copied()
        };
        let (first, second) = (asked(1), asked(2));
        assert!(first == asked(1) && first != second && hottest(&first) == hottest(&second));
    }

    #[test]
    fn clients_choose_apart() {
        let store = Map::default();
        let config =
            Config { threads: 8, distribution: Some(Distribution::Uniform), ..config(Workload::W, 8000) };
        run_phase(&store, &config, 1_000_000, &|_| {}).unwrap();
        // Of so many that are drawn from a million, 32 are expected to have been drawn before.
        let written = store.pairs.into_inner().unwrap().len();
        assert!(written > 7900, "{written}");
    }

    #[test]
    fn a_wrong_value_ends_the_run() {
        let store = Map::default();
        let (_, records) = run_phase(&store, &config(Workload::Load, 1000), 0, &|_| {}).unwrap();
        store.spoil();
        let error = run_phase(&store, &config(Workload::C, 100), records, &|_| {}).unwrap_err();
        assert!(error.contains("never written"), "{error}");
    }
}
