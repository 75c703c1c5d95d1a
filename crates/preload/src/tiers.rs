//! Modelled tiers, the files that lie on them, and what calls on these cost.
//!
//! **Direct files**: each call is one of the device.
//!
//! **Buffered files**: a read costs what of it the page cache does not hold. A write goes to the cache; it is handed to
//! the device a mebibyte at a time, for which nobody waits, unless the device is further behind than the dirty limit (a
//! fifth of the page cache). A sync hands over the rest, and waits for all of it and for a flush.
//!
//! What a file still has to hand over is kept by its number; descriptors are entries of a table of fixed size, of which
//! the ones of other files are 0.

use crate::pages::{PAGE, PageCache};
use cuesta_device::{Call, Pacing};
use cuesta_model::{Counts, Modelled, POINT_READ_MAX, TIERS_MAX, Tier as TierCounts};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Descriptors that are told apart. The process may have no more ([`limit_descriptors`]), and numbers lie below that.
const DESCRIPTORS: usize = 1 << 16;
/// Bytes of a file that are handed to the device together.
const CHUNK: u64 = 1 << 20;
/// The dirty limit is this part of the page cache.
const DIRTY_PART: u64 = 5;

/// Numbers of a tier, as `cuesta_model::Tier` has them.
const READS: usize = 0;
const READ_BYTES: usize = 1;
const WRITES: usize = 2;
const WRITTEN_BYTES: usize = 3;
const FLUSHES: usize = 4;
const WAITED: usize = 5;
const LATE: usize = 6;
const CACHED: usize = 7;
const POINT_READS: usize = 8;
/// And of the process.
const SEEN_READ: usize = TIERS_MAX * TierCounts::FIELDS;
const SEEN_WRITTEN: usize = SEEN_READ + 1;
const BURNT: usize = SEEN_READ + 2;
const REFUSED: usize = SEEN_READ + 3;

pub(crate) type Counters = [AtomicU64; Counts::FIELDS];

static DESCRIPTOR: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
static TIERS: OnceLock<Tiers> = OnceLock::new();

/// All that is modelled.
pub(crate) struct Tiers {
    pub(crate) tiers: Vec<Tier>,
    pub(crate) pages: PageCache,
    pub(crate) page_cache_bytes: u64,
    pub(crate) counters: &'static Counters,
}

pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// `None` when its calls are only counted.
    pub(crate) model: Option<(Pacing, Arc<Modelled>)>,
    pub(crate) unwritten: Mutex<HashMap<u64, Unwritten>>,
}

/// What a buffered file still owes the device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unwritten {
    /// Not handed over yet.
    bytes: u64,
    /// When the device is done with what was handed over.
    done_at: Duration,
}

/// An open file of a tier: what a descriptor's number says of it.
#[derive(Clone, Copy)]
pub(crate) struct File {
    tier: usize,
    direct: bool,
    synced: bool,
    number: u64,
}

impl File {
    const DIRECT: u64 = 1 << 8;
    const SYNCED: u64 = 1 << 9;
    const NUMBER: u32 = 16;

    fn pack(self) -> u64 {
        let flag = |is: bool, bit: u64| if is { bit } else { 0 };
        (self.tier as u64 + 1)
            | flag(self.direct, Self::DIRECT)
            | flag(self.synced, Self::SYNCED)
            | self.number << Self::NUMBER
    }

    fn unpack(packed: u64) -> Option<Self> {
        let tier = (packed & 0xff).checked_sub(1)? as usize;
        let (direct, synced) = (packed & Self::DIRECT != 0, packed & Self::SYNCED != 0);
        Some(Self { tier, direct, synced, number: packed >> Self::NUMBER })
    }

    /// Of a descriptor, if it is a tier's.
    pub(crate) fn of(descriptor: i32) -> Option<Self> {
        let entry = DESCRIPTOR.get(usize::try_from(descriptor).ok()?)?;
        Self::unpack(entry.load(Ordering::Relaxed))
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }
}

/// The descriptor is closed, or another file's from now on.
pub(crate) fn forget(descriptor: i32) {
    if let Some(entry) = usize::try_from(descriptor).ok().and_then(|i| DESCRIPTOR.get(i)) {
        entry.store(0, Ordering::Relaxed);
    }
}

/// As [`forget`], of a range of descriptors, ends included.
pub(crate) fn forget_all(first: u32, last: u32) {
    let count = (last.saturating_sub(first) as usize).saturating_add(1);
    let entries = DESCRIPTOR.iter().skip(first as usize).take(count);
    entries.for_each(|entry| entry.store(0, Ordering::Relaxed));
}

/// `to` is the same file as `from`.
pub(crate) fn duplicated(from: i32, to: i32) {
    let entry = |descriptor: i32| usize::try_from(descriptor).ok().and_then(|i| DESCRIPTOR.get(i));
    if let (Some(from), Some(to)) = (entry(from), entry(to)) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Has this process open no more files than are told apart: one more would not be modelled and nobody would know. Its
/// limit is lowered for good; a privileged process could raise it again, which none here does.
pub(crate) fn limit_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours to be written, and then read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            libc::setrlimit(libc::RLIMIT_NOFILE, &told_apart(limit));
        }
    }
}

/// A limit of descriptors, or as many as are told apart.
fn told_apart(limit: libc::rlimit) -> libc::rlimit {
    let [rlim_cur, rlim_max] = [limit.rlim_cur, limit.rlim_max].map(|limit| limit.min(DESCRIPTORS as u64));
    libc::rlimit { rlim_cur, rlim_max }
}

/// Sets out what is modelled, once.
pub(crate) fn set(tiers: Tiers) {
    TIERS.set(tiers).ok();
}

impl Tiers {
    /// `None` before the library has begun, and where nothing is modelled.
    pub(crate) fn get() -> Option<&'static Self> {
        TIERS.get()
    }

    /// A file was opened with these flags.
    pub(crate) fn opened(&self, descriptor: i32, flags: i32) {
        let Some(entry) = usize::try_from(descriptor).ok().and_then(|i| DESCRIPTOR.get(i)) else { return };
        entry.store(0, Ordering::Relaxed);
        let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{descriptor}")) else { return };
        let Some(tier) = self.tier_of(&path) else { return };
        let Some(number) = number_of(descriptor) else { return };
        let (direct, synced) = (flags & libc::O_DIRECT != 0, flags & (libc::O_SYNC | libc::O_DSYNC) != 0);
        entry.store(File { tier, direct, synced, number }.pack(), Ordering::Relaxed);
    }

    fn tier_of(&self, path: &Path) -> Option<usize> {
        self.tiers.iter().position(|tier| path.starts_with(&tier.path))
    }

    fn add(&self, tier: usize, field: usize, amount: u64) {
        self.counters[tier * TierCounts::FIELDS + field].fetch_add(amount, Ordering::Relaxed);
    }

    /// So many bytes were read from any file.
    pub(crate) fn saw_read(&self, bytes: u64) {
        self.counters[SEEN_READ].fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were written to any file.
    pub(crate) fn saw_written(&self, bytes: u64) {
        self.counters[SEEN_WRITTEN].fetch_add(bytes, Ordering::Relaxed);
    }

    /// A call that has no model was refused.
    pub(crate) fn refused(&self) {
        self.counters[REFUSED].fetch_add(1, Ordering::Relaxed);
    }

    /// The clock of a file's device; zero where it is not modelled.
    pub(crate) fn now(&self, file: File) -> Duration {
        self.tiers[file.tier].model.as_ref().map_or(Duration::ZERO, |(pacing, _)| pacing.now())
    }

    /// What was counted so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts::from_numbers(&std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed)))
    }

    /// A read of `bytes` at `offset` that began at `began` has returned.
    pub(crate) fn read(&self, file: File, began: Duration, offset: u64, bytes: u64) {
        let from_device = match file.direct {
            true => bytes,
            false => self.pages.touch(file.number, offset, bytes) * PAGE,
        };
        if from_device == 0 {
            return self.add(file.tier, CACHED, 1);
        }
        let done_at = self.ask(file.tier, began, Call::Read, from_device);
        self.wait(file.tier, done_at);
    }

    /// A write has returned.
    pub(crate) fn written(&self, file: File, began: Duration, offset: u64, bytes: u64, synced: bool) {
        if file.direct {
            let done_at = self.ask(file.tier, began, Call::Write, bytes);
            self.wait(file.tier, done_at);
        } else {
            self.pages.touch(file.number, offset, bytes);
            self.buffer(file, began, bytes);
        }
        if file.synced || synced {
            self.sync(file, self.now(file));
        }
    }

    fn unwritten<T>(&self, file: File, change: impl FnOnce(&mut Unwritten) -> T) -> T {
        let mut all = self.tiers[file.tier].unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(file.number).or_default())
    }

    fn buffer(&self, file: File, began: Duration, bytes: u64) {
        let full = self.unwritten(file, |unwritten| {
            unwritten.bytes += bytes;
            unwritten.bytes >= CHUNK
        });
        if !full {
            return;
        }
        let done_at = self.hand_over(file, began);
        if let Some((_, model)) = &self.tiers[file.tier].model {
            let dirty = (self.page_cache_bytes / DIRTY_PART).max(CHUNK);
            let behind = Duration::from_secs_f64(dirty as f64 / model.spec().write_bytes_per_second as f64);
            self.wait(file.tier, done_at.saturating_sub(behind));
        }
    }

    /// Hands what is left of a file to its device; when that is done with all of it.
    pub(crate) fn hand_over(&self, file: File, began: Duration) -> Duration {
        let Unwritten { bytes, done_at } = self.unwritten(file, |unwritten| Unwritten {
            bytes: std::mem::take(&mut unwritten.bytes),
            ..*unwritten
        });
        if bytes == 0 {
            return done_at;
        }
        let done_at = done_at.max(self.ask(file.tier, began, Call::Write, bytes.next_multiple_of(PAGE)));
        self.unwritten(file, |unwritten| {
            unwritten.done_at = unwritten.done_at.max(done_at);
            unwritten.done_at
        })
    }

    /// The file's bytes are on the medium when this returns.
    pub(crate) fn sync(&self, file: File, began: Duration) {
        let written_at = self.hand_over(file, began);
        let done_at = self.ask(file.tier, began.max(written_at), Call::Sync, 0);
        self.wait(file.tier, done_at);
    }

    /// What was handed over is on the device when this returns.
    pub(crate) fn write_back(&self, file: File, began: Duration, waits: bool) {
        let done_at = self.hand_over(file, began);
        if waits {
            self.wait(file.tier, done_at);
        }
    }

    /// The file is empty: it owes nothing any more.
    pub(crate) fn emptied(&self, file: File) {
        self.unwritten(file, |unwritten| unwritten.bytes = 0);
    }

    /// Counts a call of a device; when it is done.
    fn ask(&self, tier: usize, began: Duration, call: Call, bytes: u64) -> Duration {
        match call {
            Call::Read => {
                self.add(tier, READS, 1);
                self.add(tier, READ_BYTES, bytes);
                self.add(tier, POINT_READS, u64::from(bytes <= POINT_READ_MAX));
            }
            Call::Write => {
                self.add(tier, WRITES, 1);
                self.add(tier, WRITTEN_BYTES, bytes);
            }
            Call::Sync => self.add(tier, FLUSHES, 1),
        }
        let Some((pacing, model)) = &self.tiers[tier].model else { return Duration::ZERO };
        let done_at = pacing.ask(began, call, bytes as usize);
        self.counters[tier * TierCounts::FIELDS + LATE].fetch_max(model.kept().late, Ordering::Relaxed);
        done_at
    }

    fn wait(&self, tier: usize, done_at: Duration) {
        let Some((pacing, model)) = &self.tiers[tier].model else { return };
        if pacing.pass(done_at) {
            let waited = model.kept().waited.as_nanos() as u64;
            self.counters[tier * TierCounts::FIELDS + WAITED].fetch_max(waited, Ordering::Relaxed);
            let models = self.tiers.iter().filter_map(|tier| tier.model.as_ref());
            let burnt: u64 = models.map(|(_, model)| model.kept().burnt.as_nanos() as u64).sum();
            self.counters[BURNT].fetch_max(burnt, Ordering::Relaxed);
        }
    }
}

/// The number of a file in its file system.
fn number_of(descriptor: i32) -> Option<u64> {
    // SAFETY: all zero is a value of it, and it is ours to be written.
    let (result, stat) = unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        (libc::fstat(descriptor, &mut stat), stat)
    };
    (result == 0).then_some(stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_files_can_be_open_than_are_told_apart() {
        let of = |rlim_cur, rlim_max| {
            let limit = told_apart(libc::rlimit { rlim_cur, rlim_max });
            (limit.rlim_cur, limit.rlim_max)
        };
        assert_eq!((of(1024, 4096), of(1024, libc::RLIM_INFINITY)), ((1024, 4096), (1024, 65536)));
        assert_eq!(of(1 << 20, 1 << 20), (65536, 65536));
    }
}
