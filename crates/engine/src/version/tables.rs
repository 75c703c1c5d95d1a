//! Handles to tables, and the end of their files.
//!
//! A handle opens its table on first use, so a damaged table hurts only those who read it. The edit that removes a
//! table marks its handle; when the last version or cursor that holds it lets go, the handle puts its files on the
//! list of garbage, and a background worker removes them: readers never do.

use super::edit::TableMeta;
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, StoreId};
use crate::planted::{self, Bug};
use crate::table::{BlockCache, Table};
use crate::tier::Tiers;
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What all tables of a store share.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) store: StoreId,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) cache: Arc<BlockCache>,
    garbage: Mutex<Vec<Part>>,
    /// Tables whose data was relocated and still lies where it was, too, for readers that hold it.
    lingering: Mutex<BTreeSet<u64>>,
}

/// A file of a table: its tier, its name, its bytes.
type Part = (u32, FileId, u64);

impl Tables {
    pub(crate) fn new(sched: &Sched, store: StoreId, tiers: Arc<Tiers>, cache: Arc<BlockCache>) -> Arc<Self> {
        let (garbage, lingering) = (Mutex::new(sched, Vec::new()), Mutex::new(sched, BTreeSet::new()));
        Arc::new(Self { store, tiers, cache, garbage, lingering })
    }

    /// Removes the files of tables that nobody holds any more. Names are not synced: a file that comes back after a
    /// power cut is an orphan, and open removes it.
    pub(crate) fn collect_garbage(&self) -> Result<()> {
        let garbage = std::mem::take(&mut *self.garbage.lock());
        for (tier, file, bytes) in garbage {
            let tier = self.tiers.get(tier)?;
            tier.remove(file)?;
            tier.uncount(bytes);
            if file.kind == FileKind::Data {
                self.lingering.lock().remove(&file.number);
            }
        }
        Ok(())
    }

    /// Whether an old copy of this table's data is still there.
    pub(crate) fn lingers(&self, number: u64) -> bool {
        self.lingering.lock().contains(&number)
    }

    /// Whether there is anything to collect.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.garbage.lock().is_empty()
    }
}

/// A table of a version.
pub(crate) struct TableHandle {
    pub(crate) meta: TableMeta,
    tables: Arc<Tables>,
    opened: OnceLock<Arc<Table>>,
    /// Reads of its data from media; outlives a relocation.
    reads: Arc<AtomicU64>,
    obsolete: AtomicBool,
    /// Only its data part is.
    relocated: AtomicBool,
}

impl TableHandle {
    pub(crate) fn new(meta: TableMeta, tables: Arc<Tables>) -> Arc<Self> {
        Self::with_reads(meta, tables, Arc::default())
    }

    fn with_reads(meta: TableMeta, tables: Arc<Tables>, reads: Arc<AtomicU64>) -> Arc<Self> {
        let (obsolete, relocated) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { meta, tables, opened: OnceLock::new(), reads, obsolete, relocated })
    }

    /// The same table with its data elsewhere, as `meta` says; it stays as hot.
    pub(crate) fn relocated(&self, meta: TableMeta) -> Arc<Self> {
        Self::with_reads(meta, self.tables.clone(), self.reads.clone())
    }

    /// Reads of its data from media, halved now and then by [`TableHandle::cool`].
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Whether an old copy of its data is still there, for readers that hold it.
    pub(crate) fn lingers(&self) -> bool {
        self.tables.lingers(self.meta.number)
    }

    /// Old reads count half as much from now on.
    pub(crate) fn cool(&self) {
        self.reads.store(self.reads() / 2, Ordering::Relaxed);
    }

    /// The table, opened on first use: a few reads of its meta part.
    ///
    /// # Errors
    /// What [`Table::open`] says; the next call tries again.
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.opened.get() {
            return Ok(table);
        }
        let mut table = self.open(Cause::UserRead, Cause::Index)?;
        self.check(&table)?;
        table.count_reads_in(self.reads.clone());
        table.charge_to(self.tables.cache.memory());
        // Two readers may have opened it at once; one of the two stays.
        Ok(self.opened.get_or_init(|| Arc::new(table)))
    }

    /// The table anew, through devices that count under these causes.
    pub(crate) fn open(&self, data_cause: Cause, meta_cause: Cause) -> Result<Table> {
        let tiers = &self.tables.tiers;
        let open = |(tier, file, _): (u32, FileId, u64), cause| -> Result<_> {
            Ok(tiers.metered(tiers.open_table_file(tier, file)?, tier as usize, cause))
        };
        let [data, meta] = self.meta.parts();
        Table::open(self.tables.store, self.meta.number, open(data, data_cause)?, open(meta, meta_cause)?)
    }

    /// The manifest and the table must tell the same story.
    fn check(&self, table: &Table) -> Result<()> {
        let properties = table.properties();
        let agree = properties.entries == self.meta.entries
            && properties.smallest_key == self.meta.smallest
            && properties.largest_key == self.meta.largest;
        match agree {
            true => Ok(()),
            false => {
                let file = FileId::new(FileKind::Meta, self.meta.number).to_string();
                Err(Error::corrupt(file, 0, "its properties are not those that the manifest recorded"))
            }
        }
    }

    /// The table is in no later version; its files go with the last holder of this handle.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Later versions have the table's data elsewhere; the data part here goes with the last holder of this handle.
    pub(crate) fn mark_relocated(&self) {
        self.tables.lingering.lock().insert(self.meta.number);
        self.relocated.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        let parts = self.meta.parts();
        let gone = match (*self.obsolete.get_mut(), *self.relocated.get_mut()) {
            (true, _) => &parts[..],
            (false, true) if planted::has(Bug::RelocatedKeptForEver) => return,
            (false, true) => &parts[..1],
            (false, false) => return,
        };
        self.tables.garbage.lock().extend(gone);
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.meta)
    }
}
