//! Handles to tables, and the end of their files.
//!
//! A handle opens its table on first use, so a damaged table hurts only those who read it. The edit that removes a
//! table marks its handle; when the last version or cursor that holds it lets go, the handle puts its files on the
//! list of garbage, and a background worker removes them: readers never do.

use super::edit::TableMeta;
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, StoreId};
use crate::table::{BlockCache, Table};
use crate::tier::Tiers;
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicBool, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What all tables of a store share.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) store: StoreId,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) cache: Arc<BlockCache>,
    garbage: Mutex<Vec<TableMeta>>,
}

impl Tables {
    pub(crate) fn new(sched: &Sched, store: StoreId, tiers: Arc<Tiers>, cache: Arc<BlockCache>) -> Arc<Self> {
        Arc::new(Self { store, tiers, cache, garbage: Mutex::new(sched, Vec::new()) })
    }

    /// Removes the files of tables that nobody holds any more. Names are not synced: a file that comes back after a
    /// power cut is an orphan, and open removes it.
    pub(crate) fn collect_garbage(&self) -> Result<()> {
        let garbage = std::mem::take(&mut *self.garbage.lock());
        for meta in garbage {
            for (tier, file, bytes) in meta.parts() {
                let tier = self.tiers.get(tier)?;
                tier.remove(file)?;
                tier.uncount(bytes);
            }
        }
        Ok(())
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
    obsolete: AtomicBool,
}

impl TableHandle {
    pub(crate) fn new(meta: TableMeta, tables: Arc<Tables>) -> Arc<Self> {
        Arc::new(Self { meta, tables, opened: OnceLock::new(), obsolete: AtomicBool::new(false) })
    }

    /// The table, opened on first use: a few reads of its meta part.
    ///
    /// # Errors
    /// What [`Table::open`] says; the next call tries again.
    pub(crate) fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.opened.get() {
            return Ok(table);
        }
        let table = self.open(Cause::UserRead, Cause::Index)?;
        self.check(&table)?;
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
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.tables.garbage.lock().push(std::mem::take(&mut self.meta));
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.meta)
    }
}
