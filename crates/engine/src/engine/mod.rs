//! The store at work: one [`Engine`] behind every public handle.
//!
//! What is shared, and who may change it:
//!
//! | state | changed by | read by |
//! |---|---|---|
//! | `current`: memtables, store and version | whoever holds `catalog`'s lock | everyone, without a lock |
//! | `visible` | the leader of a group of writes | everyone, without a lock |
//! | the log and the active memtable's writing end | the leader ([`write`]) | – |
//! | `root`: manifest and superblock | whoever has its turn | – |
//! | `catalog` | whoever has the root's turn, after the manifest has the edit | short lock |
//!
//! Lock order: `background` → the store's state → `catalog` → `snapshots`; `background` → the store's offers → its
//! state; `queue`, `creations`, the pacer's and the promotion policy's are taken alone. Who needs both the root's turn
//! and the lead takes the root first; the store's turn comes before both, and its pen is held while slots are written
//! and nothing else is owned. No lock is held across I/O.
//!
//! A reader loads `current` first and `visible` second. Whatever compaction had dropped by then was shadowed by a
//! version at or below a `visible` of before, so the reader's number finds everything it should; and what is newer
//! than the loaded memtables is a suffix of the order, which a concurrent read may miss.

pub(crate) mod admission;
pub(crate) mod background;
pub(crate) mod commit;
pub(crate) mod explain;
mod guards;
pub(crate) mod iterate;
pub(crate) mod jobs;
pub(crate) mod keyspaces;
pub(crate) mod mend;
pub(crate) mod open;
pub(crate) mod operations;
pub(crate) mod read;
pub(crate) mod snapshots;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod turn;
pub(crate) mod write;

use crate::error::{Error, ErrorKind, Result};
use crate::format::StoreId;
use crate::key::Seq;
use crate::memtable::MemTable;
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::range_tombstones::{Erased, RangeTombstones};
use crate::store::Contents;
use crate::tier::{LogRoom, Tiers};
use crate::tracker::Tracker;
use crate::version::{Catalog, KeyspaceState, Tables, Version};
use admission::Pacer;
use arc_swap::ArcSwap;
use background::Background;
use commit::Root;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use keyspaces::Creations;
use operations::Operations;
use snapshots::Snapshots;
use stats::OpenStats;
use std::sync::{Arc, OnceLock};
use store::{Announced, Store};
use turn::Turn;
use write::WriteQueue;

pub(crate) use crate::options::SEALED_MAX;

/// A memtable that takes no more writes.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) memtable: Arc<MemTable>,
    /// The first log that has entries of it.
    pub(crate) first_log: u64,
    /// Of its entries, or of those before, the last one's number.
    pub(crate) last_seq: Seq,
    /// Slots that have some of its entries already.
    pub(crate) announced: Arc<Announced>,
    /// As memtables are counted since the store was opened.
    pub(crate) number: u64,
}

/// Where reads look, from the top: one consistent set of containers.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) active: Arc<MemTable>,
    /// The first log that has entries of the active memtable.
    pub(crate) active_log: u64,
    /// The active memtable's, as [`Sealed::number`].
    pub(crate) active_number: u64,
    /// Newest first.
    pub(crate) sealed: Vec<Sealed>,
    /// The store below the memtables; empty in profiles that have none.
    pub(crate) contents: Arc<Contents>,
    /// Of such profiles: which keys were asked for of late.
    pub(crate) tracker: Option<Arc<Tracker>>,
    pub(crate) version: Arc<Version>,
    /// Raised by every change of this set.
    pub(crate) generation: u64,
}

impl Current {
    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<MemTable>> {
        std::iter::once(&self.active).chain(self.sealed.iter().map(|sealed| &sealed.memtable))
    }

    /// Sets of range tombstones: what any container has is to be held against all of them.
    fn range_tombstones(&self) -> impl Iterator<Item = Arc<RangeTombstones>> {
        let flushed = std::iter::once(self.version.range_tombstones.clone());
        self.memtables().map(|memtable| memtable.range_tombstones()).chain(flushed)
    }

    /// What range tombstones take away from readers; those up to a number that was visible before are all in it.
    pub(crate) fn erased(&self) -> Erased {
        Erased::by(self.range_tombstones())
    }

    /// The number of the newest range tombstone up to `at` that covers `key`; 0 for none.
    fn covering(&self, key: &[u8], at: Seq) -> Seq {
        let newest = self.memtables().map(|memtable| memtable.covering(key, at)).max().unwrap_or_default();
        newest.max(self.version.range_tombstones.covering(key, at))
    }
}

/// One open store.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) sched: Sched,
    pub(crate) store: StoreId,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) current: ArcSwap<Current>,
    /// Every batch up to here is applied whole.
    pub(crate) visible: AtomicU64,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) root: Turn<Root>,
    pub(crate) creations: Creations,
    pub(crate) default_keyspace: Arc<KeyspaceState>,
    pub(crate) queue: WriteQueue,
    pub(crate) snapshots: Mutex<Snapshots>,
    pub(crate) background: Background,
    /// Of profiles that have a store below the memtable.
    pub(crate) objects: Option<Store>,
    pub(crate) pacer: Pacer,
    pub(crate) operations: Operations,
    pub(crate) opened: OpenStats,
    /// Why writes are refused for good.
    pub(crate) failure: OnceLock<Error>,
    pub(crate) log_room: LogRoom,
    pub(crate) closed: AtomicBool,
}

impl Engine {
    pub(crate) fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::Acquire))
    }

    /// # Errors
    /// `Closed` once the store is.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Error::closed()),
        }
    }

    /// # Errors
    /// `Closed`, or `ReadOnly` with the failure that caused it.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(Error::caused_by(
                ErrorKind::ReadOnly,
                "the store takes no writes since an earlier failure; reads go on; reopen it to write again",
                cause.clone(),
            )),
        }
    }

    /// Closes the store for writes, for good. The first failure is the one that is told.
    pub(crate) fn fail(&self, cause: &Error) {
        if planted::has(Bug::FailureForgotten) {
            return;
        }
        // A second failure adds nothing a caller could act on.
        drop(self.failure.set(cause.clone()));
        self.background.wake();
        self.queue.wake();
    }

    /// Whether all that was read of persistent memory so far was there. Memory that was lost closes the store for
    /// writes.
    pub(crate) fn check_memory(&self) -> Result<()> {
        self.tiers.check_memory().inspect_err(|lost| self.fail(lost))
    }

    /// Replaces what reads look at. The caller holds the catalog's lock and passes its version on.
    pub(crate) fn install(&self, catalog: &Catalog, change: impl FnOnce(&mut Current)) {
        let old = self.current.load();
        let mut next = Current {
            active: old.active.clone(),
            active_log: old.active_log,
            active_number: old.active_number,
            sealed: old.sealed.clone(),
            contents: old.contents.clone(),
            tracker: old.tracker.clone(),
            version: catalog.version.clone(),
            generation: old.generation + 1,
        };
        change(&mut next);
        drop(old);
        self.tables.cache.memory().set_sealed(next.sealed.len() as u64);
        self.current.store(Arc::new(next));
    }
}
