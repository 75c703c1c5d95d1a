//! A store in a process of its own, measured by another process.
//!
//! The measuring process writes [`Request`]s to the contender's standard input, a line of JSON each; the contender
//! answers each with an [`Answer`] on its standard output, and between them says how far it is. It ends when its input
//! does. Whoever implements [`Contender`] is a contender by a call of [`serve`]. [`run`] measures one phase; `cuesta
//! bench` without peers calls it inside its own process.

use crate::runner::{Config, PhaseResult, Store, run_phase};
use crate::workload::Workload;
use cuesta_model::{Counts, environment};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// A directory and the bytes that may be used there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSetup {
    /// The directory.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
}

/// What a contender is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Fast first. A store that knows no tiers is given one.
    pub tiers: Vec<TierSetup>,
    /// Memory for all that it holds.
    pub memory_bytes: u64,
    /// `os`, `sync` and so on, as the command line has them.
    pub durability: String,
    /// Which shape of store, where it has several.
    pub profile: String,
    /// Bytes of keys and values that will be loaded.
    pub data_bytes: u64,
    /// Of its own choices.
    pub seed: u64,
    /// What it will run next: a store may have settings for each.
    pub workload: Workload,
}

/// What the measuring process asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Opens the store, or opens it again.
    Open(Setup),
    /// Runs a phase on it, and waits until it has nothing more to do.
    Run {
        /// The phase.
        config: Config,
        /// Records that the store has.
        records: u64,
    },
    /// Closes it.
    Close,
}

/// What a contender says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The store is open, with these settings, in words.
    Opened(String),
    /// So many operations of the phase are done.
    Progress(u64),
    /// The phase is done.
    Ran(Box<Ran>),
    /// The store is closed.
    Closed,
    /// It failed.
    Failed(String),
}

/// A phase that was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// What it gave.
    pub result: PhaseResult,
    /// Records that the store has now.
    pub records: u64,
    /// What it took.
    pub usage: Usage,
}

/// What a phase took, with the work in the background that came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Of processor.
    pub cpu_seconds: f64,
    /// Until the background work was done, after the last operation.
    pub settle_seconds: f64,
    /// The most memory that the process had meanwhile, files excepted, looked at up to a hundred times a second.
    pub anonymous_bytes_peak: u64,
    /// The most bytes that each directory of the setup had in files, looked at a few times a second.
    pub tier_bytes_peak: Vec<u64>,
    /// By tier, where a preloaded library or the store's own meter counted.
    pub counts: Option<Counts>,
    /// What the store counted itself.
    pub counters: BTreeMap<String, u64>,
    /// What it holds at the end.
    #[serde(default)]
    pub gauges: BTreeMap<String, u64>,
}

/// A store that can be measured.
pub trait Contender: Store {
    /// Its settings, in words.
    fn settings(&self) -> String;
    /// What it counts itself, since any moment, by name: `found:CONTAINER` for the lookups that a container answered,
    /// `blocks:cached` and `blocks:read` for blocks of tables that its cache had and had not, `read:TIER:CAUSE` and
    /// `written:TIER:CAUSE` for bytes (`read:CAUSE` and `written:CAUSE` where it does not know the tier), and others of
    /// its own.
    fn counters(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
    /// What it holds at this moment, by name: `memory:HOLDER` in bytes, and others of its own.
    fn gauges(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
    /// Waits until it has no work left to do.
    ///
    /// # Errors
    /// What the store says.
    fn settle(&self) -> Result<(), String>;
    /// Closes it.
    ///
    /// # Errors
    /// What the store says.
    fn close(self: Box<Self>) -> Result<(), String>;
}

/// How a contender opens its store.
pub type Open<'a> = dyn Fn(&Setup) -> Result<Box<dyn Contender>, String> + 'a;

/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(500);

/// Answers requests until there are no more.
///
/// # Errors
/// What went wrong, which has been answered too; a line that is no request.
pub fn serve(open: &Open<'_>) -> Result<(), String> {
    let mut store = Opened::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let request = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        match respond(request, &mut store, open) {
            Ok(answer) => say(&answer)?,
            Err(why) => {
                say(&Answer::Failed(why.clone()))?;
                return Err(why);
            }
        }
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<(), String> {
    let text = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// The store that is open, and where it lies.
#[derive(Default)]
struct Opened {
    store: Option<Box<dyn Contender>>,
    places: Vec<PathBuf>,
    /// To be opened.
    took: Duration,
}

/// Among the gauges: what it took to open the store, in microseconds.
const OPEN_MICROS: &str = "open:micros";

fn respond(request: Request, opened: &mut Opened, open: &Open<'_>) -> Result<Answer, String> {
    match request {
        Request::Open(setup) => {
            opened.store.take().map_or(Ok(()), Contender::close)?;
            opened.places = setup.tiers.iter().map(|tier| tier.path.clone()).collect();
            let began = Instant::now();
            let store = open(&setup)?;
            opened.took = began.elapsed();
            let settings = store.settings();
            opened.store = Some(store);
            Ok(Answer::Opened(settings))
        }
        Request::Run { config, records } => {
            let store = opened.store.as_deref().ok_or("no store is open")?;
            let mut ran = run(store, &opened.places, &config, records, &progress())?;
            ran.usage.gauges.insert(OPEN_MICROS.to_owned(), opened.took.as_micros() as u64);
            Ok(Answer::Ran(Box::new(ran)))
        }
        Request::Close => opened.store.take().map_or(Ok(()), Contender::close).map(|()| Answer::Closed),
    }
}

/// Tells progress from time to time.
fn progress() -> impl Fn(u64) + Sync {
    let told = Mutex::new(Instant::now());
    move |done| {
        if let Ok(mut told) = told.try_lock()
            && told.elapsed() > PROGRESS
        {
            // Whoever should read it will notice by the answer.
            say(&Answer::Progress(done)).ok();
            *told = Instant::now();
        }
    }
}

/// Runs a phase on a store that lies in these places and has so many records, and waits until it has nothing more to
/// do.
///
/// # Errors
/// As [`run_phase`]; what the store says; what keeps this process from knowing its times.
pub fn run(
    store: &dyn Contender,
    places: &[PathBuf],
    config: &Config,
    records: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Ran, String> {
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let peaks = scope.spawn(move || peaks(places, &end));
        let ran = measure(store, config, records, progress);
        drop(ended);
        let (tier_bytes_peak, anonymous_bytes_peak) = peaks.join().unwrap_or_default();
        ran.map(|ran| Ran { usage: Usage { tier_bytes_peak, anonymous_bytes_peak, ..ran.usage }, ..ran })
    })
}

/// How often the memory of this process is looked at. The kernel keeps a peak by itself, but of all pages together:
/// those of mapped files come and go, and would count as ours.
const MEMORY_LOOK: Duration = Duration::from_millis(10);

/// The most bytes that files under each of these places have, and that this process has in memory of its own, until the
/// other end is dropped.
fn peaks(places: &[PathBuf], end: &mpsc::Receiver<()>) -> (Vec<u64>, u64) {
    let (mut peaks, mut anonymous) = (vec![0; places.len()], 0);
    let mut looked: Option<Instant> = None;
    loop {
        let ends = end.recv_timeout(MEMORY_LOOK) != Err(mpsc::RecvTimeoutError::Timeout);
        anonymous = anonymous_bytes().unwrap_or(0).max(anonymous);
        if ends || looked.is_none_or(|looked| looked.elapsed() > PROGRESS) {
            looked = Some(Instant::now());
            for (peak, place) in peaks.iter_mut().zip(places) {
                *peak = bytes_under(place).max(*peak);
            }
        }
        if ends {
            return (peaks, anonymous);
        }
    }
}

/// Resident bytes of this process that are no file's. Of the files that tell, this one is the shortest: what is read of
/// it counts as the process's reading, which is compared with what devices did.
fn anonymous_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = statm.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

/// Bytes that files under a place have allocated. What comes and goes meanwhile counts or does not; what is renamed
/// does once.
fn bytes_under(place: &Path) -> u64 {
    let mut blocks = BTreeMap::new();
    look_under(place, &mut blocks);
    blocks.values().sum::<u64>() * BLOCK
}

/// Adds the files under a place, and their blocks, each by what it is and not by its name.
fn look_under(place: &Path, blocks: &mut BTreeMap<(u64, u64), u64>) {
    let Ok(entries) = std::fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => look_under(&entry.path(), blocks),
            Ok(meta) => {
                blocks.insert((meta.dev(), meta.ino()), meta.blocks());
            }
            Err(_) => {}
        }
    }
}

/// Unit in which the kernel tells what a file has allocated.
const BLOCK: u64 = 512;

fn measure(
    store: &dyn Contender,
    config: &Config,
    records: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Ran, String> {
    let (before, counters_before) = (Taken::so_far()?, store.counters());
    let (result, records) = run_phase(store, config, records, progress)?;
    let ended = Instant::now();
    store.settle()?;
    let settle_seconds = ended.elapsed().as_secs_f64();
    let after = Taken::so_far()?;
    let counts = after.counts.zip(before.counts).map(|(after, before)| after.since(&before));
    let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
    let counters = since(store.counters(), &counters_before);
    // Who looks at these all the while fills them in.
    let (tier_bytes_peak, anonymous_bytes_peak) = (Vec::new(), 0);
    let gauges = store.gauges();
    let usage = Usage {
        cpu_seconds,
        settle_seconds,
        anonymous_bytes_peak,
        tier_bytes_peak,
        counts,
        counters,
        gauges,
    };
    Ok(Ran { result, records, usage })
}

/// What counters have counted since they were at `before`.
pub fn since(mut counters: BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    for (name, count) in &mut counters {
        *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
    }
    counters
}

/// What this process has taken since it began.
struct Taken {
    cpu_seconds: f64,
    counts: Option<Counts>,
}

/// Of the kernel's clock that times of processes are told in, everywhere on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Taken {
    fn so_far() -> Result<Self, String> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let stat = read("/proc/self/stat")?;
        // The second field is a name, which may have spaces, in brackets; user and system time are fields 14 and 15.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Self { cpu_seconds: ticks as f64 / TICKS_PER_SECOND, counts: devices_so_far() })
    }
}

/// What the devices under this process have counted since it began, where the preloaded library counts.
pub fn devices_so_far() -> Option<Counts> {
    let path = std::env::var_os(environment::COUNTS)?;
    Counts::from_bytes(&std::fs::read(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::tests::{Map, config};

    struct InMemory(Map);

    impl Store for InMemory {
        fn read(&self, key: &[u8], see: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), String> {
            self.0.read(key, see)
        }
        fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
            self.0.write(key, value)
        }
        fn scan(&self, key: &[u8], records: u64) -> Result<u64, String> {
            self.0.scan(key, records)
        }
    }

    impl Contender for InMemory {
        fn settings(&self) -> String {
            "a map".to_owned()
        }
        fn settle(&self) -> Result<(), String> {
            Ok(())
        }
        fn close(self: Box<Self>) -> Result<(), String> {
            Err("a map cannot be closed".to_owned())
        }
    }

    #[test]
    fn requests_are_answered_in_turn_and_failures_named() {
        let open = |_: &Setup| Ok(Box::new(InMemory(Map::default())) as Box<dyn Contender>);
        let mut store = Opened::default();
        let load = Request::Run { config: config(Workload::Load, 1000), records: 0 };
        let error = respond(load.clone(), &mut store, &open).unwrap_err();
        assert!(error.contains("no store is open"), "{error}");
        let setup = Setup {
            tiers: Vec::new(),
            memory_bytes: 0,
            durability: "os".to_owned(),
            profile: "leveled".to_owned(),
            data_bytes: 0,
            seed: 1,
            workload: Workload::Load,
        };
        let opened = respond(Request::Open(setup), &mut store, &open).unwrap();
        assert!(matches!(opened, Answer::Opened(settings) if settings == "a map"));
        let text = serde_json::to_string(&respond(load, &mut store, &open).unwrap()).unwrap();
        let Answer::Ran(ran) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((ran.records, ran.result.measured.operations[0].count), (1000, 1000));
        assert!(ran.usage.gauges.contains_key(OPEN_MICROS));
        assert!(ran.usage.anonymous_bytes_peak > 64 << 10 && ran.usage.counts.is_none(), "{:?}", ran.usage);
        let error = respond(Request::Close, &mut store, &open).unwrap_err();
        assert!(error.contains("cannot be closed"), "{error}");
    }

    #[test]
    fn a_file_that_is_met_under_two_names_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("a"), vec![1; 64 << 10]).unwrap();
        let alone = bytes_under(dir.path());
        assert!(alone > 0);
        std::fs::hard_link(dir.path().join("a"), dir.path().join("sub/b")).unwrap();
        assert_eq!(bytes_under(dir.path()), alone);
        std::fs::write(dir.path().join("sub/c"), vec![1; 64 << 10]).unwrap();
        assert_eq!(bytes_under(dir.path()), 2 * alone);
    }
}
