//! Handles to tables, and the end of their files.
//!
//! A handle opens its table when it is read, so a damaged table hurts only those who read it. The edit that removes a
//! table marks its files, which go when the last version or cursor that holds one lets go (`garbage`). A table of which
//! a part was relocated has two handles for a while, which share the other part's file: a reader of the old one may
//! open it after the new one is gone.

use super::edit::{TableMeta, TablePart};
use super::opened::{OpenMost, Opened};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, StoreId};
use crate::garbage::{Garbage, HeldFile};
use crate::planted::{self, Bug};
use crate::table::Table;
use crate::tier::Tiers;
use arc_swap::{ArcSwapOption, Guard};
use cuesta_device::Cause;
use cuesta_sched::atomic::{AtomicBool, AtomicU64, Ordering};
use cuesta_sched::{Mutex, Sched};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What all tables of a store share.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) store: StoreId,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) garbage: Arc<Garbage>,
    opened: Mutex<Opened>,
    /// Parts of tables that were relocated and still lie where they were, too, for readers that hold them.
    lingering: Mutex<BTreeSet<FileId>>,
}

impl Tables {
    pub(crate) fn new(
        sched: &Sched,
        store: StoreId,
        tiers: Arc<Tiers>,
        cache: Arc<Cache>,
        open_most: OpenMost,
    ) -> Arc<Self> {
        let (garbage, lingering) = (Garbage::new(sched), Mutex::new(sched, BTreeSet::new()));
        let opened = Mutex::new(sched, Opened::new(open_most));
        Arc::new(Self { store, tiers, cache, garbage, opened, lingering })
    }

    /// Removes the files that nobody holds any more.
    pub(crate) fn collect_garbage(&self) {
        self.garbage.collect(&self.tiers, |file| {
            self.lingering.lock().remove(&file);
        });
    }

    /// Whether there is anything to collect.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }
}

/// A table of a version.
pub(crate) struct TableHandle {
    pub(crate) meta: TableMeta,
    /// The table that it lies on, which is there at least as long as this one.
    below: Option<Arc<TableHandle>>,
    /// First and last key of it and of all that it lies on.
    reach: (Vec<u8>, Vec<u8>),
    tables: Arc<Tables>,
    /// Data and meta part; what was not relocated is shared by all handles of the table.
    files: [Arc<HeldFile>; 2],
    opened: ArcSwapOption<Table>,
    /// Since the hand of the open tables came by last.
    used: AtomicBool,
    /// Reads of its data from media; outlives a relocation.
    reads: Arc<AtomicU64>,
}

/// A table that stays open at least as long as this lives.
#[derive(Debug)]
pub(crate) struct OpenTable(Guard<Option<Arc<Table>>>);

impl Deref for OpenTable {
    type Target = Arc<Table>;
    fn deref(&self) -> &Arc<Table> {
        self.0.as_ref().unwrap_or_else(|| panic!("made of tables that are open"))
    }
}

impl TableHandle {
    /// A table that lies on `below`.
    pub(crate) fn new(meta: TableMeta, below: Option<Arc<Self>>, tables: Arc<Tables>) -> Arc<Self> {
        let files = meta.parts().map(|part| Arc::new(HeldFile::new(part, tables.garbage.clone())));
        Self::over(meta, below, tables, files, Arc::default())
    }

    fn over(
        meta: TableMeta,
        below: Option<Arc<Self>>,
        tables: Arc<Tables>,
        files: [Arc<HeldFile>; 2],
        reads: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let reach = match below.as_deref().map(|below| &below.reach) {
            Some((smallest, largest)) if !planted::has(Bug::ReachForgotten) => {
                ((&meta.smallest).min(smallest).clone(), (&meta.largest).max(largest).clone())
            }
            _ => (meta.smallest.clone(), meta.largest.clone()),
        };
        Arc::new(Self {
            meta,
            below,
            reach,
            tables,
            files,
            opened: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            reads,
        })
    }

    /// The same table with parts elsewhere, as `meta` says; it stays as hot.
    pub(crate) fn relocated(&self, meta: TableMeta) -> Arc<Self> {
        let (below, tables) = (self.below.clone(), self.tables.clone());
        let mut files = self.files.clone();
        for (file, part) in files.iter_mut().zip(meta.parts()) {
            if *file.part() != part {
                *file = Arc::new(HeldFile::new(part, tables.garbage.clone()));
            }
        }
        Self::over(meta, below, tables, files, self.reads.clone())
    }

    /// It, the table that it lies on, and so on.
    pub(crate) fn tree(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |table| table.below.as_deref())
    }

    /// The first key of all of these.
    pub(crate) fn smallest(&self) -> &[u8] {
        &self.reach.0
    }

    /// The last key of all of these.
    pub(crate) fn largest(&self) -> &[u8] {
        &self.reach.1
    }

    /// Reads of its data from media, halved now and then by [`TableHandle::cool`].
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Whether an old copy of a part is still there, for readers that hold it.
    pub(crate) fn lingers(&self, part: TablePart) -> bool {
        let (_, file, _) = self.meta.part(part);
        self.tables.lingering.lock().contains(&file)
    }

    /// Old reads count half as much from now on.
    pub(crate) fn cool(&self) {
        self.reads.store(self.reads() / 2, Ordering::Relaxed);
    }

    /// The table, if it is open; it stays open no longer for that.
    pub(crate) fn if_open(&self) -> Option<OpenTable> {
        let table = self.opened.load();
        table.is_some().then(|| OpenTable(table))
    }

    /// The table, opened if it is not: a few reads of its meta part. It stays open as long as it is used and there are
    /// not too many ([`super::opened`]).
    ///
    /// # Errors
    /// What [`Table::open`] says; the next call tries again.
    pub(crate) fn table(self: &Arc<Self>) -> Result<OpenTable> {
        let table = self.opened.load();
        if table.is_some() {
            self.use_now();
            return Ok(OpenTable(table));
        }
        let mut table = self.open(Cause::UserRead, Cause::Index)?;
        self.check(&table)?;
        table.charge_to(self.tables.cache.memory());
        let table = Arc::new(table);
        // Two readers may have opened it at once; one of the two stays.
        let before = self.opened.compare_and_swap(&None::<Arc<Table>>, Some(table.clone()));
        if before.is_some() {
            return Ok(OpenTable(before));
        }
        let close = self.tables.opened.lock().add(self, self.tables.cache.memory());
        close.iter().for_each(|handle| handle.opened.store(None));
        Ok(OpenTable(Guard::from_inner(Some(table))))
    }

    /// The table is used: it stays open for another round.
    pub(super) fn use_now(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the table was used since this was asked last.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Memory that the table holds while it is open.
    pub(super) fn held_bytes(&self) -> u64 {
        self.opened.load().as_ref().map_or(0, |table| table.held_bytes())
    }

    /// The table anew, through devices that count under these causes; those that it lies on as they are.
    pub(crate) fn open(&self, data_cause: Cause, meta_cause: Cause) -> Result<Table> {
        let tiers = &self.tables.tiers;
        let open = |(tier, file, _): (u32, FileId, u64), cause| -> Result<_> {
            Ok(tiers.metered(tiers.open_table_file(tier, file)?, tier as usize, cause))
        };
        let [data, meta] = self.meta.parts();
        let parts = (open(data, data_cause)?, open(meta, meta_cause)?);
        let below = self.below.as_ref().map(|below| below.table()).transpose()?;
        let below = below.as_ref().map(|below| below.as_ref());
        Table::open(self.tables.store, self.meta.number, parts, below, self.reads.clone())
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

    /// The table is in no later version; its files go with their last holders.
    pub(crate) fn mark_obsolete(&self) {
        self.files.iter().for_each(|file| file.mark_obsolete());
    }

    /// Later versions have the table as `newer`; parts that this has elsewhere go with the last holder of this handle.
    pub(crate) fn mark_relocated(&self, newer: &Self) {
        for (file, newer) in self.files.iter().zip(&newer.files) {
            if Arc::ptr_eq(file, newer) {
                continue;
            }
            let (_, name, _) = *file.part();
            self.tables.lingering.lock().insert(name);
            if !planted::has(Bug::RelocatedKeptForEver) {
                file.mark_obsolete();
            }
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Compression;
    use crate::tier::Tier;
    use cuesta_device::{Access, Directory, FileDirectory, Meter};

    /// Tables on two tiers, each with both parts of table 5, and what files there are.
    fn tables() -> (Arc<Tables>, impl Fn() -> String) {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let tier = |(i, dir): (usize, &tempfile::TempDir)| {
            let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(dir.path()).unwrap());
            for kind in [FileKind::Data, FileKind::Meta] {
                directory.create(&FileId::new(kind, 5).to_string(), Access::Buffered).unwrap();
            }
            Tier::new(i, directory, 1 << 20, (Compression::None, 10))
        };
        let all = dirs.iter().enumerate().map(tier).collect();
        let tiers = Arc::new(Tiers { all, meter: Meter::new(2), table_access: Access::Buffered });
        let cache = Arc::new(Cache::new(1 << 20, 1));
        let open_most = OpenMost { tables: 100, memory_share: 8 };
        let tables = Tables::new(&Sched::simulated(1), StoreId(1), tiers.clone(), cache, open_most);
        let files = move || {
            let listed = dirs.iter().zip(&tiers.all).map(|(_, tier)| tier.directory.list().unwrap());
            let mut names: Vec<String> = listed
                .enumerate()
                .flat_map(|(i, files)| files.into_iter().map(move |file| format!("{i} {}", file.name)))
                .collect();
            names.sort();
            names.join(", ")
        };
        (tables, files)
    }

    #[test]
    fn a_file_goes_with_the_last_handle_that_may_open_it() {
        let (tables, files) = tables();
        let [fast, below] =
            [0, 1].map(|data_tier| TableMeta { number: 5, data_tier, ..TableMeta::default() });
        let old = TableHandle::new(fast, None, tables.clone());
        let new = old.relocated(below);
        old.mark_relocated(&new);
        // Then merged away, while somebody still reads by a version from before both.
        new.mark_obsolete();
        drop(new);
        tables.collect_garbage();
        assert_eq!(files(), "0 data-00000005, 0 meta-00000005, 1 meta-00000005");
        drop(old);
        tables.collect_garbage();
        assert_eq!(files(), "1 meta-00000005");
    }

    #[test]
    fn a_part_that_was_put_elsewhere_lingers_until_nobody_reads_it_where_it_was() {
        let (tables, files) = tables();
        let [below, fast] =
            [1, 0].map(|meta_tier| TableMeta { number: 5, meta_tier, ..TableMeta::default() });
        let old = TableHandle::new(below, None, tables.clone());
        let new = old.relocated(fast);
        old.mark_relocated(&new);
        let lingers = || [TablePart::Data, TablePart::Meta].map(|part| new.lingers(part));
        tables.collect_garbage();
        assert_eq!(lingers(), [false, true]);
        drop(old);
        tables.collect_garbage();
        assert_eq!(lingers(), [false, false]);
        assert_eq!(files(), "0 data-00000005, 0 meta-00000005, 1 data-00000005");
    }
}
