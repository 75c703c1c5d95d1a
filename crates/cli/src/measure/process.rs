//! A contender: a process that answers requests (`cuesta_bench::contender`), under the preloaded library that counts
//! what it asks of devices and makes these as slow as their models. Without models it need not be there; nothing is
//! counted then.
//!
//! Where the kernel lets us, each is in a memory group (`super::memory_group`). One that says nothing for half an hour
//! is ended.
//!
//! Library and peers are looked for beside this program, or where `CUESTA_PRELOAD` and `CUESTA_PEERS` say.

use super::memory_group::MemoryGroup;
use crate::failure::{Failure, Result};
use crate::size::human;
use cuesta_bench::contender::{Answer, Ran, Request};
use cuesta_model::{Report, environment};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Peers that there are.
const PEERS: [&str; 3] = ["rocksdb", "fjall", "redb"];
/// Cuesta's own name among contenders.
pub(crate) const CUESTA: &str = "cuesta";
/// Who says nothing for so long is taken to hang: operations are told of as they are done, merges come to an end, and
/// so does a process.
const SILENCE_MAX: Duration = Duration::from_secs(30 * 60);
/// Names of the files beside this program.
const LIBRARY: &str = "libcuesta_preload.so";
const PEERS_PROGRAM: &str = "cuesta-peers";
/// How they are built, from the project's directory.
const BUILD_LIBRARY: &str = "cargo build --release -p cuesta-preload";
const BUILD_PEERS: &str = "cargo build --release --manifest-path peers/Cargo.toml --target-dir target";

/// Who a contender of this kind is, and what it is set to.
fn split(kind: &str) -> (&str, &str) {
    kind.split_once(':').unwrap_or((kind, ""))
}

/// Refuses a name that is no peer's; what follows a colon is for the peer to know.
pub(crate) fn check_peer(name: &str) -> Result<()> {
    let peer = split(name).0;
    match PEERS.contains(&peer) {
        true => Ok(()),
        false => Err(Failure::Input(format!("there is no peer {peer:?}; there are {}", PEERS.join(", ")))),
    }
}

/// Whether it spreads its data over tiers by itself.
pub(crate) fn knows_tiers(name: &str) -> bool {
    matches!(split(name).0, "rocksdb" | CUESTA)
}

/// The devices under a contender.
#[derive(Clone, Debug)]
pub(crate) struct Devices {
    /// As `--model` has them; empty for the real ones.
    pub(crate) models: String,
    /// Page cache that buffered files are modelled to have, in bytes.
    pub(crate) page_cache_bytes: u64,
    /// Of latencies.
    pub(crate) seed: u64,
}

/// A running contender.
pub(crate) struct Process {
    name: String,
    /// Where its tiers lie.
    dir: PathBuf,
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<io::Result<String>>,
    /// How long it may say nothing.
    silence_max: Duration,
    /// Removed after it has ended.
    group: Option<MemoryGroup>,
    /// Where the library reports, if there is one.
    report: Option<PathBuf>,
}

/// A file that a variable names or that is beside this program; or why it is not there, and what to do about it.
fn find(variable: &str, file: &str, build: &str) -> Result<PathBuf> {
    let here = std::env::current_exe().map_err(Failure::io("find this program"))?;
    let path = std::env::var_os(variable).map_or_else(|| here.with_file_name(file), PathBuf::from);
    match path.exists() {
        true => Ok(path),
        false => Err(Failure::Input(format!(
            "{} is not there; build it by `{build}` in the project's directory, or say in {variable} where it is",
            path.display()
        ))),
    }
}

/// The library that counts, and is needed for models; without them it may be missing.
fn library(devices: &Devices) -> Result<Option<PathBuf>> {
    match find("CUESTA_PRELOAD", LIBRARY, BUILD_LIBRARY) {
        Ok(path) => Ok(Some(path)),
        Err(_) if devices.models.is_empty() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The program that is a contender of this kind.
fn program(kind: &str) -> Result<PathBuf> {
    match split(kind).0 {
        CUESTA => std::env::current_exe().map_err(Failure::io("find this program")),
        _ => find("CUESTA_PEERS", PEERS_PROGRAM, BUILD_PEERS),
    }
}

/// Whether its tier is a file that it maps, as persistent memory is.
pub(crate) fn maps_its_tier(kind: &str) -> bool {
    split(kind).1.split(',').any(|word| word.starts_with("pmem="))
}

/// The library for this contender. One that maps its tier has none: the library refuses mappings, which get around what
/// it counts, and cache lines are counted by the contender itself.
fn library_of(kind: &str, devices: &Devices) -> Result<Option<PathBuf>> {
    if maps_its_tier(kind) { Ok(None) } else { library(devices) }
}

/// Whether what a contender needs is there and knows what it is set to, before anybody has run for minutes.
pub(crate) fn check(kind: &str, devices: &Devices) -> Result<()> {
    let mut command = command(kind)?;
    library_of(kind, devices)?;
    // Asked for nothing, it ends at once.
    let output = command.stdin(Stdio::null()).output().map_err(Failure::io(format!("start {kind}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::Input(format!("{kind}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// The contender's program, to be started.
fn command(kind: &str) -> Result<Command> {
    let mut command = Command::new(program(kind)?);
    match split(kind) {
        (CUESTA, variant) => command.args(["contender", variant]),
        _ => command.arg(kind),
    };
    Ok(command)
}

impl Process {
    /// Starts a contender whose tiers lie in `fast` and `capacity` under `dir`, an absolute path; in a memory group of
    /// so many bytes.
    pub(crate) fn start(
        name: &str,
        kind: &str,
        dir: &Path,
        devices: &Devices,
        group_bytes: Option<u64>,
    ) -> Result<Self> {
        let mut command = command(kind)?;
        let make = |bytes| MemoryGroup::make(bytes).map_err(Failure::Input);
        let group = group_bytes.map(make).transpose()?;
        let report = library_of(kind, devices)?.map(|library| {
            let report = dir.join("report");
            let (fast, capacity) = (dir.join("fast"), dir.join("capacity"));
            command
                .env("LD_PRELOAD", library)
                .env(environment::MODELS, &devices.models)
                .env(environment::PATHS, format!("fast={},capacity={}", fast.display(), capacity.display()))
                .env(environment::PAGE_CACHE, devices.page_cache_bytes.to_string())
                .env(environment::SEED, devices.seed.to_string())
                .env(environment::COUNTS, dir.join("counts"))
                .env(environment::REPORT, &report);
            report
        });
        command
            // Of the C library's allocator: arenas for each thread keep what was freed, and memory is what is compared.
            .env("MALLOC_ARENA_MAX", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::io(format!("start {name}")))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Input(format!("{name} has no input or output")));
        };
        let process = Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            child,
            requests: Some(requests),
            answers: lines(answers),
            silence_max: SILENCE_MAX,
            group,
            report,
        };
        // It waits for what it is asked, and has taken next to nothing so far.
        process.group.as_ref().map_or(Ok(()), |group| group.take_in(process.child.id()))?;
        Ok(process)
    }

    /// What it answers; progress is told on the way.
    fn ask(&mut self, request: &Request, progress: &dyn Fn(u64)) -> Result<Answer> {
        let line = serde_json::to_string(request).map_err(|error| self.failed(&error.to_string()))?;
        let sent = self.requests.as_mut().map_or(Ok(()), |requests| writeln!(requests, "{line}"));
        if sent.is_err() {
            return Err(self.ended());
        }
        loop {
            let line = match self.answers.recv_timeout(self.silence_max) {
                Ok(line) => line.map_err(|error| self.failed(&error.to_string()))?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => return Err(self.silent()),
            };
            match serde_json::from_str(&line) {
                Ok(Answer::Progress(done)) => progress(done),
                Ok(Answer::Failed(why)) => return Err(self.failed(&why)),
                Ok(answer) => return Ok(answer),
                Err(error) => return Err(self.failed(&format!("answered {line:?}: {error}"))),
            }
        }
    }

    /// Opens its store; its settings in words.
    pub(crate) fn open(&mut self, request: &Request) -> Result<String> {
        match self.ask(request, &|_| {})? {
            Answer::Opened(settings) => Ok(settings),
            other => Err(self.failed(&format!("answered {other:?}"))),
        }
    }

    /// Runs a phase.
    pub(crate) fn run(&mut self, request: &Request, progress: &dyn Fn(u64)) -> Result<Ran> {
        match self.ask(request, progress)? {
            Answer::Ran(ran) => Ok(*ran),
            other => Err(self.failed(&format!("answered {other:?}"))),
        }
    }

    /// Closes its store and lets it end; what its devices counted.
    pub(crate) fn close(mut self) -> Result<Option<Report>> {
        self.ask(&Request::Close, &|_| {})?;
        drop(self.requests.take());
        // It has nothing more to say, but that it ends.
        if matches!(self.answers.recv_timeout(self.silence_max), Err(RecvTimeoutError::Timeout)) {
            return Err(self.silent());
        }
        let status = self.child.wait().map_err(Failure::io(format!("wait for {}", self.name)))?;
        if !status.success() {
            return Err(self.failed(&status.to_string()));
        }
        let Some(path) = &self.report else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(|error| self.failed(&format!("no report: {error}")))?;
        serde_json::from_str(&text).map(Some).map_err(|error| self.failed(&format!("its report: {error}")))
    }

    /// Ends it without a word. What its devices counted is lost.
    pub(crate) fn kill(mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(Failure::io(format!("kill {}", self.name)))
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::Input(format!("{} in {} failed: {why}", self.name, self.dir.display()))
    }

    fn silent(&mut self) -> Failure {
        self.child.kill().ok();
        let minutes = self.silence_max.as_secs() / 60;
        self.failed(&format!("it has said nothing for {minutes} minutes, and was ended"))
    }

    fn ended(&mut self) -> Failure {
        drop(self.requests.take());
        match (self.child.wait(), &self.group) {
            (Ok(_), Some(group)) if group.is_exceeded() => {
                let bytes = human(group.bytes());
                self.failed(&format!(
                    "the kernel ended it for want of memory, of which its group may have {bytes}; --memory gives all of them more, \
                     --no-memory-groups takes the bound away"
                ))
            }
            (Ok(status), _) => self.failed(&format!("it ended ({status})")),
            (Err(error), _) => self.failed(&error.to_string()),
        }
    }
}

/// What is said, line by line, until its other end is closed.
fn lines(answers: ChildStdout) -> Receiver<io::Result<String>> {
    let (say, lines) = sync_channel(1);
    std::thread::spawn(move || {
        // Nobody listens any more: so be it.
        BufReader::new(answers).lines().try_for_each(|line| say.send(line)).ok();
    });
    lines
}

impl Drop for Process {
    /// One that is still there is of no use any more.
    fn drop(&mut self) {
        drop(self.requests.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A contender that is a shell script.
    fn script(script: &str, silence_max: Duration, group: Option<MemoryGroup>) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (requests, answers) = (child.stdin.take(), lines(child.stdout.take().unwrap()));
        let (name, dir) = ("it".to_owned(), PathBuf::from("there"));
        group.iter().for_each(|group| group.take_in(child.id()).unwrap());
        Process { name, dir, child, requests, answers, silence_max, group, report: None }
    }

    #[test]
    fn who_says_nothing_is_ended_and_who_ends_is_told_of() {
        let ask = |text: &str, silence_max| script(text, silence_max, None).close().unwrap_err().to_string();
        let told = ask("read request; exec sleep 1000", Duration::from_millis(50));
        assert!(told.contains("it in there") && told.contains("said nothing"), "{told}");
        let told = ask("read request; echo '\"closed\"'; exec sleep 1000", Duration::from_millis(50));
        assert!(told.contains("said nothing"), "{told}");
        let told = ask("read request; exit 9", SILENCE_MAX);
        assert!(told.contains("it ended (exit status: 9)"), "{told}");
        let told = ask("read request; echo no", SILENCE_MAX);
        assert!(told.contains("answered \"no\""), "{told}");
    }

    #[test]
    fn who_wants_more_memory_than_its_group_has_is_told_of() {
        let Some(group) = crate::measure::memory_group::tests::made((32 << 20) + 4096) else { return };
        // A buffer of so many bytes, read into.
        let text = "read request; exec dd if=/dev/zero of=/dev/null bs=200000000 count=1";
        let mut process = script(text, SILENCE_MAX, Some(group));
        let told = process.ask(&Request::Close, &|_| {}).unwrap_err().to_string();
        assert!(told.contains("its group may have 32.0 MiB; --memory"), "{told}");
    }

    #[test]
    fn who_maps_its_tier_is_not_counted_by_a_library_that_refuses_mappings() {
        // Which is not there beside a test's program, and needed for models.
        let devices = Devices { models: "fast=optane".to_owned(), page_cache_bytes: 0, seed: 1 };
        assert!(library_of("cuesta:nvlsm,table=65536,pmem=pcm", &devices).unwrap().is_none());
        let beside = std::env::var_os("CUESTA_PRELOAD").is_some();
        assert!(beside || !matches!(library_of("cuesta:nvlsm", &devices), Ok(None)));
    }
}
