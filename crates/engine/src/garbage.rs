//! Files that go with their last holder.
//!
//! Whoever may open a file holds a [`HeldFile`]. The edit after which nothing names the file marks it obsolete; when
//! the last holder lets go of it, it comes onto the list here, and a background worker removes it: readers never do.

use crate::error::Result;
use crate::format::FileId;
use crate::tier::Tiers;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::sync::Arc;

/// A file: its tier, its name, its bytes.
pub(crate) type Part = (u32, FileId, u64);

/// Files that nobody holds any more.
#[derive(Debug)]
pub(crate) struct Garbage {
    files: Mutex<Vec<Part>>,
    /// Files that are obsolete and still there.
    pending: AtomicU64,
}

/// A file, as long as somebody may open it.
#[derive(Debug)]
pub(crate) struct HeldFile {
    part: Part,
    garbage: Arc<Garbage>,
    obsolete: AtomicBool,
}

impl Garbage {
    pub(crate) fn new(sched: &Sched) -> Arc<Self> {
        Arc::new(Self { files: Mutex::new(sched, Vec::new()), pending: AtomicU64::new(0) })
    }

    /// Whether there is anything to collect.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }

    /// Whether files will go once their holders let go of them.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Removes what has come onto the list, and tells `gone` of each file. Names are not synced: a file that comes back
    /// after a power cut is an orphan, and open removes it.
    pub(crate) fn collect(&self, tiers: &Tiers, mut gone: impl FnMut(FileId)) -> Result<()> {
        let files = std::mem::take(&mut *self.files.lock());
        for (tier, file, bytes) in files {
            let tier = tiers.get(tier)?;
            tier.remove(file)?;
            tier.uncount(bytes);
            self.pending.fetch_sub(1, Ordering::Relaxed);
            gone(file);
        }
        Ok(())
    }
}

impl HeldFile {
    pub(crate) fn new(part: Part, garbage: Arc<Garbage>) -> Self {
        Self { part, garbage, obsolete: AtomicBool::new(false) }
    }

    pub(crate) fn part(&self) -> &Part {
        &self.part
    }

    /// It goes with its last holder.
    pub(crate) fn mark_obsolete(&self) {
        if !self.obsolete.swap(true, Ordering::AcqRel) {
            self.garbage.pending.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.garbage.files.lock().push(self.part);
        }
    }
}
