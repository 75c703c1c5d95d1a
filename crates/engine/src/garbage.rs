//! Files that go with their last holder.
//!
//! Whoever may open a file holds a [`HeldFile`]. The edit after which nothing names the file marks it obsolete; when
//! the last holder lets go of it, it comes onto the list here, and a background worker removes it: readers never do.
//! What cannot be removed is tried again with whatever comes after it, and its room counts as taken until then. It is
//! no job's failure: what is still there at the end is an orphan, which the next open removes, or says that it cannot.

use crate::format::FileId;
use crate::tier::Tiers;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::sync::Arc;

/// A file: its tier, its name, its bytes.
pub(crate) type Part = (u32, FileId, u64);

#[derive(Debug, Default)]
struct Lists {
    /// What nobody has tried to remove.
    new: Vec<Part>,
    /// What could not be removed.
    left: Vec<Part>,
}

/// Files that nobody holds any more.
#[derive(Debug)]
pub(crate) struct Garbage {
    lists: Mutex<Lists>,
    /// Files that are obsolete, and that nobody has tried to remove.
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
        Arc::new(Self { lists: Mutex::new(sched, Lists::default()), pending: AtomicU64::new(0) })
    }

    /// Puts a file onto the list that nobody holds and nothing will name.
    pub(crate) fn throw(&self, part: Part) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.lists.lock().new.push(part);
    }

    /// Whether there is nothing new to collect.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.lock().new.is_empty()
    }

    /// Whether files will go once their holders let go of them.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Removes what has come onto the list, and tells `gone` of each file. Names are not synced: a file that comes back
    /// after a power cut is an orphan, and open removes it.
    pub(crate) fn collect(&self, tiers: &Tiers, mut gone: impl FnMut(FileId)) {
        let Lists { new, mut left } = std::mem::take(&mut *self.lists.lock());
        let tried = new.len() as u64;
        left.extend(new);
        left.retain(|(tier, file, bytes)| {
            let removed = tiers.get(*tier).and_then(|tier| {
                tier.remove(*file)?;
                tier.uncount(*bytes);
                Ok(())
            });
            if removed.is_ok() {
                gone(*file);
            }
            removed.is_err()
        });
        if !left.is_empty() {
            self.lists.lock().left.append(&mut left);
        }
        self.pending.fetch_sub(tried, Ordering::Relaxed);
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
            self.garbage.lists.lock().new.push(self.part);
        }
    }
}
