//! The table: a row for each kind of fault, run to a stated figure.
//!
//! A row is a numbered list of independent cases. A case is replayed by its number alone; how many there are is fixed
//! (every cut of every scenario) or not (seeds). Cases run on several threads, in an order that spreads a part of them
//! over the whole.

mod concurrent;
mod cuts;
mod damage;
mod equality;
mod faults;
mod hostile;
mod kernel_cuts;
mod kernel_room;
mod killed;
mod kills;
mod lopsided;
mod room;

use crate::fixture;
use crate::kernel;
use crate::planted::{Bug, wake};
use crate::run::{Run, RunConfig, shrink};
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use hostile::{Format, feed};
pub use killed::child;

/// Where a row's stores live.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On simulated disks, under a simulated scheduler: replayed by the case's number.
    Simulation,
    /// On a real kernel; says why not, where that cannot be.
    Kernel(fn() -> Option<String>),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number.
    pub number: u8,
    /// Where it runs.
    pub place: Place,
    /// What is done to the store.
    pub fault: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How many of these each push should see.
    pub figure: u64,
    /// How many cases there are; `None`: each number is a seed.
    pub cases: Option<fn() -> u64>,
    /// A planted bug that its cases want awake.
    pub awake: Option<Bug>,
    /// Runs a case; how many units it was.
    pub case: fn(u64) -> Result<u64, String>,
}

/// Every row.
pub const ALL: &[Row] = &[
    Row {
        number: 1,
        place: Place::Simulation,
        fault: "power cuts, kills and failed syncs in random runs",
        unit: "seeds",
        figure: 20_000,
        cases: None,
        awake: None,
        case: random_cut,
    },
    Row {
        number: 2,
        place: Place::Simulation,
        fault: "a power cut at every operation, in every way it can turn out",
        unit: "images",
        figure: 50_000,
        cases: Some(cuts::cases),
        awake: None,
        case: cuts::case,
    },
    Row {
        number: 3,
        place: Place::Kernel(kernel::no_recording),
        fault: "a power cut under two ext4 file systems, at any write or flush of their disks",
        unit: "cuts",
        figure: 300,
        cases: None,
        awake: None,
        case: kernel_cuts::case,
    },
    Row {
        number: 5,
        place: Place::Kernel(|| None),
        fault: "a process killed by SIGKILL at any moment",
        unit: "kills",
        figure: 200,
        cases: None,
        awake: None,
        case: killed::case,
    },
    Row {
        number: 6,
        place: Place::Simulation,
        fault: "the nth operation fails, once or for ever",
        unit: "faults",
        figure: 100_000,
        cases: Some(faults::cases),
        awake: None,
        case: faults::case,
    },
    Row {
        number: 7,
        place: Place::Simulation,
        fault: "a failed sync, in three modes",
        unit: "faults",
        figure: 5_000,
        cases: Some(faults::sync_cases),
        awake: None,
        case: faults::sync_case,
    },
    Row {
        number: 8,
        place: Place::Simulation,
        fault: "bit rot and bad sectors",
        unit: "damaged stores",
        figure: 30_000,
        cases: Some(damage::rot_cases),
        awake: None,
        case: damage::rot_case,
    },
    Row {
        number: 9,
        place: Place::Simulation,
        fault: "lost, misdirected, stale and swapped blocks and files, a tier rolled back",
        unit: "damaged stores",
        figure: 2_000,
        cases: Some(damage::astray_cases),
        awake: None,
        case: damage::astray_case,
    },
    Row {
        number: 10,
        place: Place::Simulation,
        fault: "full tiers and media, then room again",
        unit: "cycles",
        figure: 40,
        cases: None,
        awake: None,
        case: room::case,
    },
    Row {
        number: 10,
        place: Place::Kernel(kernel::no_mounts),
        fault: "full tmpfs and ext4 file systems, then room again",
        unit: "cycles",
        figure: 40,
        cases: None,
        awake: None,
        case: kernel_room::case,
    },
    Row {
        number: 12,
        place: Place::Simulation,
        fault: "none: equal to a map, 500 operations a run",
        unit: "runs",
        figure: 5_000,
        cases: None,
        awake: None,
        case: random_equal,
    },
    Row {
        number: 13,
        place: Place::Simulation,
        fault: "none: one trace of 10,000 operations under 16 sets of options",
        unit: "traces",
        figure: 60,
        cases: None,
        awake: None,
        case: equality::case,
    },
    Row {
        number: 14,
        place: Place::Simulation,
        fault: "several writers and readers at once, then a cut",
        unit: "histories",
        figure: 2_000,
        cases: None,
        awake: None,
        case: concurrent::case,
    },
    Row {
        number: 17,
        place: Place::Simulation,
        fault: "hostile bytes with right checksums, in every format",
        unit: "stores",
        figure: 100_000,
        cases: None,
        awake: Some(Bug::ChecksumsSkipped),
        case: hostile::case,
    },
    Row {
        number: 21,
        place: Place::Simulation,
        fault: "one store opened and killed a thousand times: no orphan, no growth",
        unit: "opens",
        figure: 1_000,
        cases: None,
        awake: None,
        case: kills::case,
    },
    Row {
        number: 23,
        place: Place::Simulation,
        fault: "none: one seed run twice",
        unit: "seeds",
        figure: 200,
        cases: None,
        awake: None,
        case: equality::twice,
    },
    Row {
        number: 27,
        place: Place::Simulation,
        fault: "none: equal to a map, with more data than the fast tier has room for",
        unit: "stores",
        figure: 200,
        cases: None,
        awake: None,
        case: lopsided::case,
    },
];

impl Row {
    /// What names it: its number, and `-kernel` if another row of that number runs in simulation.
    pub fn name(&self) -> String {
        let twin = ALL.iter().any(|row| row.number == self.number && row.is_simulated());
        format!("{}{}", self.number, if twin && !self.is_simulated() { "-kernel" } else { "" })
    }

    /// Whether it runs in simulation.
    pub fn is_simulated(&self) -> bool {
        matches!(self.place, Place::Simulation)
    }

    /// Why it cannot run here, if it cannot.
    pub fn missing(&self) -> Option<String> {
        match self.place {
            Place::Simulation => None,
            Place::Kernel(missing) => missing(),
        }
    }
}

fn config(seed: u64, operations: u64, crash_one_in: u64) -> RunConfig {
    RunConfig { kind: fixture::kind(), seed, operations, crash_one_in, skip: BTreeSet::new() }
}

fn random(config: &RunConfig) -> Result<u64, String> {
    Run::new(config.clone()).run().map(|_| 1)
}

/// Runs that shrinking may cost.
const SHRINK_TRIES: u64 = 300;

/// The smallest random run found that fails as a case of `row` does; `None` for rows that are no random runs.
pub fn smallest(row: &Row, case: u64) -> Option<RunConfig> {
    let config = match row.number {
        1 => config(case, 300, 60),
        12 => config(case, 500, 0),
        _ => return None,
    };
    let fails = |config: &RunConfig| guarded(|| random(config)).is_err();
    Some(shrink(&config, SHRINK_TRIES, fails))
}

/// Makes what cases share, if no case has needed it yet.
pub fn prepare() {
    damage::prepare();
}

fn random_cut(seed: u64) -> Result<u64, String> {
    random(&config(seed, 300, 60))
}

fn random_equal(seed: u64) -> Result<u64, String> {
    random(&config(seed, 500, 0))
}

/// How much of a row to run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Of the row's figure; rows with a fixed number of cases never run more than these.
    pub share: f64,
    /// Cases at once.
    pub threads: usize,
    /// The first violation ends the row.
    pub stop_at_first: bool,
    /// Seeds begin here.
    pub first_seed: u64,
    /// No case begins after so long.
    pub time_limit: Option<Duration>,
}

impl Default for Effort {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self { share: 1.0, threads, stop_at_first: false, first_seed: 0, time_limit: None }
    }
}

/// What running a row showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Units run.
    pub runs: u64,
    /// Units that were asked for.
    pub wanted: u64,
    /// The cases that went wrong, and how.
    pub violations: Vec<(u64, String)>,
}

impl Report {
    /// Nothing went wrong, and as much was run as was asked for.
    pub fn met(&self) -> bool {
        self.violations.is_empty() && self.runs >= self.wanted
    }
}

/// Violations that are kept; more say nothing new.
const VIOLATIONS_MAX: usize = 20;

/// Runs a row; `progress` is told how many units are done.
#[allow(clippy::disallowed_methods, reason = "a bound on real time, for people; no case sees it")]
pub fn run(row: &Row, effort: Effort, progress: &(dyn Fn(u64) + Sync)) -> Report {
    let begun = Instant::now();
    let cases = row.cases.map(|cases| cases());
    let wanted = (row.figure as f64 * effort.share).ceil() as u64;
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let violations = Mutex::new(Vec::new());
    if row.awake.is_some() {
        wake(row.awake);
    }
    let worker = || {
        while !stop.load(Ordering::Relaxed) && done.load(Ordering::Relaxed) < wanted {
            if effort.time_limit.is_some_and(|limit| begun.elapsed() > limit) {
                return;
            }
            let i = next.fetch_add(1, Ordering::Relaxed);
            let case = match cases {
                Some(cases) if i >= cases => return,
                Some(cases) => spread(i, cases),
                None => effort.first_seed + i,
            };
            match guarded(|| (row.case)(case)) {
                Ok(units) => progress(done.fetch_add(units, Ordering::Relaxed) + units),
                Err(what) => {
                    done.fetch_add(1, Ordering::Relaxed);
                    let mut violations = violations.lock().unwrap_or_else(PoisonError::into_inner);
                    violations.push((case, what));
                    let enough = effort.stop_at_first || violations.len() >= VIOLATIONS_MAX;
                    stop.fetch_or(enough, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..effort.threads {
            scope.spawn(worker);
        }
        worker();
    });
    if row.awake.is_some() {
        wake(None);
    }
    let mut violations = violations.into_inner().unwrap_or_else(PoisonError::into_inner);
    violations.sort();
    let runs = done.into_inner();
    // Where there are fewer cases than the figure, all of them are all there is to want.
    let exhausted = cases.is_some_and(|cases| next.into_inner() >= cases);
    Report { runs, wanted: if exhausted { wanted.min(runs) } else { wanted }, violations }
}

/// The `i`th of `cases` in an order in which any first part lies spread over all.
fn spread(i: u64, cases: u64) -> u64 {
    // A step that shares no factor with the number of cases, about the golden ratio of it.
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut step = (cases as f64 * 0.618) as u64 | 1;
    while gcd(step, cases) != 1 {
        step += 1;
    }
    (u128::from(i) * u128::from(step) % u128::from(cases)) as u64
}

/// A panic in a case is a violation like any other.
pub fn guarded<T>(case: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| Err(format!("panicked: {}", told(&*panic))))
}

fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_order_meets_every_case_once() {
        for cases in [1, 2, 7, 100, 1024] {
            let met: BTreeSet<u64> = (0..cases).map(|i| spread(i, cases)).collect();
            assert_eq!(met.len() as u64, cases);
        }
    }

    #[test]
    fn a_row_counts_and_tells() {
        fn odd_ones_fail(case: u64) -> Result<u64, String> {
            match case % 5 {
                0 => panic!("case {case}"),
                _ => Ok(2),
            }
        }
        let row = Row { cases: Some(|| 10), figure: 100, case: odd_ones_fail, ..ALL[0] };
        let report = run(&row, Effort { threads: 2, ..Effort::default() }, &|_| {});
        assert_eq!((report.runs, report.violations.len(), report.met()), (18, 2, false));
        assert!(report.violations[1].1.contains("case 5"));
    }
}
