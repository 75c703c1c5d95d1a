//! The library's beginning, when it is loaded, and its end, when the process exits.

use crate::pages::PageCache;
use crate::tiers::{Counters, Tier, Tiers, limit_descriptors, set};
use cuesta_device::Pacing;
use cuesta_model::{COUNTS_BYTES, Counts, Modelled, Report, environment, kernel_bytes, parse};
use cuesta_sched::Sched;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

/// Page cache when none is stated.
const PAGE_CACHE_BYTES: u64 = 64 << 20;

/// What the kernel had counted when the library began: the loader's own reads.
static BEFORE: OnceLock<[u64; 2]> = OnceLock::new();
/// Where counts go that nobody wants to see.
static UNSEEN: Counters = [const { AtomicU64::new(0) }; Counts::FIELDS];

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg_attr(test, allow(dead_code, reason = "a test is not preloaded"))]
extern "C" fn begin() {
    let Some(paths) = std::env::var_os(environment::PATHS) else { return };
    // Waits are short, and by default the kernel may stretch each by 50 µs. Threads made from here on inherit this.
    // SAFETY: asks for a setting of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    match tiers(&paths.to_string_lossy()) {
        Ok(tiers) => {
            limit_descriptors();
            BEFORE.set(kernel_bytes().unwrap_or_default()).ok();
            set(tiers);
            // SAFETY: the function takes nothing and stays loaded as long as the process.
            unsafe { libc::atexit(end) };
        }
        Err(why) => {
            let text = format!("cuesta_preload: {why}\n");
            std::io::stderr().write_all(text.as_bytes()).ok();
            // SAFETY: ends the process; nothing of it has begun.
            unsafe { libc::_exit(2) };
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, default: u64) -> Result<u64, String> {
    variable(name).map_or(Ok(default), |text| {
        text.parse().map_err(|_| format!("{name} must be a number of bytes or a seed; it is {text:?}"))
    })
}

fn tiers(paths: &str) -> Result<Tiers, String> {
    let mut specs = variable(environment::MODELS).map_or(Ok(Default::default()), |text| parse(&text))?;
    let seed = number(environment::SEED, 1)?;
    let sched = Sched::real(seed);
    let mut tiers = Vec::new();
    for pair in paths.split(',') {
        let (name, path) = pair
            .split_once('=')
            .ok_or_else(|| format!("{}: {pair:?} is no TIER=PATH", environment::PATHS))?;
        let path =
            fs::canonicalize(path).map_err(|error| format!("{}: {path}: {error}", environment::PATHS))?;
        let model = specs.remove(name).map(|spec| {
            let model = Arc::new(Modelled::new(&sched, spec, seed));
            (Pacing::new(&sched, model.clone()), model)
        });
        tiers.push(Tier { name: name.to_owned(), path, model, unwritten: Mutex::new(HashMap::new()) });
    }
    if let Some(name) = specs.keys().next() {
        return Err(format!(
            "{} names the tier {name:?}, and {} does not",
            environment::MODELS,
            environment::PATHS
        ));
    }
    if tiers.len() > cuesta_model::TIERS_MAX {
        return Err(format!("{}: there may be {} tiers", environment::PATHS, cuesta_model::TIERS_MAX));
    }
    let page_cache_bytes = number(environment::PAGE_CACHE, PAGE_CACHE_BYTES)?;
    let counters = variable(environment::COUNTS).map_or(Ok(&UNSEEN), |path| counters(Path::new(&path)))?;
    let pages = PageCache::new(page_cache_bytes);
    Ok(Tiers { tiers, pages, page_cache_bytes, counters })
}

/// Counters that others can read in this file.
fn counters(path: &Path) -> Result<&'static Counters, String> {
    let fail = |error: std::io::Error| format!("{}: {}: {error}", environment::COUNTS, path.display());
    let open = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let file = open.map_err(fail)?;
    file.set_len(COUNTS_BYTES as u64).map_err(fail)?;
    // SAFETY: a new mapping of a file that is long enough; it is never unmapped, page-aligned, and any bytes are
    // numbers. Others only read it.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let map =
            libc::mmap(std::ptr::null_mut(), COUNTS_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        match map == libc::MAP_FAILED {
            true => Err(fail(std::io::Error::last_os_error())),
            false => Ok(&*map.cast::<Counters>()),
        }
    }
}

fn cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg_attr(test, allow(dead_code, reason = "as `begin`"))]
extern "C" fn end() {
    let (Some(tiers), Some(path)) = (Tiers::get(), variable(environment::REPORT)) else { return };
    let (before, kernel) = (BEFORE.get().copied().unwrap_or_default(), kernel_bytes().unwrap_or_default());
    let report = Report {
        names: tiers.tiers.iter().map(|tier| tier.name.clone()).collect(),
        counts: tiers.counts(),
        kernel_read_bytes: kernel[0].saturating_sub(before[0]),
        kernel_written_bytes: kernel[1].saturating_sub(before[1]),
        cpu_nanos: cpu_nanos(),
    };
    let path = path.replace("%p", &std::process::id().to_string());
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    if let Err(error) = fs::write(&path, text + "\n") {
        let text = format!("cuesta_preload: the report could not be written to {path}: {error}\n");
        std::io::stderr().write_all(text.as_bytes()).ok();
    }
}
