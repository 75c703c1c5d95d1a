//! Taking out of a store what is broken in it, so that the rest goes on (`crate::repair` finds out what that is).
//!
//! A part of opening, between the replay of the log and the first write to what exists. Of each broken table the blocks
//! that are whole go to new tables in its place, in the same run, if they are still as many as were told; slots that
//! cannot be read are freed, and slabs that are not there removed. All of that is one edit. It is in no manifest that
//! is there: the open begins a new one, as after a crash, whose snapshot has it, and the superblock that names this one
//! commits it. Before that, slabs of another length, or with a damaged header, are made what the manifest says, since
//! opening reads them: that costs no slot anything that could be read, and is the same each time; what another slab's
//! file has under their name is no more than that, and was agreed to be lost. So a crash before the commit leaves the
//! store as broken as it was, with new tables that nothing names: opening removes these, and so does mending, before it
//! makes others. The image of a clean close is not used: objects that count as copies in it may have lost their
//! originals.

use super::open::Found;
use crate::error::{Error, Result};
use crate::format::{FileId, FileKind, Place};
use crate::options::Options;
use crate::range_tombstones::Erased;
use crate::store::{SLAB_TIER, Slab, Slots};
use crate::table::Remains;
use crate::version::edit::AddedTable;
use crate::version::{Edit, TableHandle};
use cuesta_device::{Access, Cause};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// What is broken.
#[derive(Debug, Default)]
pub(crate) struct Broken {
    pub(crate) tables: Vec<BrokenTable>,
    /// Live slots that cannot be read, by slab.
    pub(crate) slots: BTreeMap<u64, Slots>,
    /// Slabs that are not there.
    pub(crate) lost_slabs: BTreeSet<u64>,
    /// Slabs of another length, or whose header is damaged or another's.
    pub(crate) flawed_slabs: BTreeSet<u64>,
    /// Once it is given up for good, whatever fails after that.
    pub(crate) is_given_up: OnceLock<()>,
}

/// A table of which something cannot be read.
#[derive(Debug)]
pub(crate) struct BrokenTable {
    pub(crate) table: Arc<TableHandle>,
    /// Where its run is.
    pub(crate) level: u32,
    pub(crate) age: u64,
    /// How many of its entries can be read; `None` where its data part is not there.
    pub(crate) entries: Option<u64>,
}

impl Broken {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { tables, slots, lost_slabs, flawed_slabs, .. } = self;
        tables.is_empty() && slots.is_empty() && lost_slabs.is_empty() && flawed_slabs.is_empty()
    }
}

impl Found {
    /// What is left of a table's data part.
    ///
    /// # Errors
    /// `Corrupt` where it is not there; what the device says.
    pub(crate) fn remains_of(&self, table: &TableHandle, cause: Cause) -> Result<Remains> {
        let (tier, file) = (table.meta.data_tier, FileId::new(FileKind::Data, table.meta.number));
        // Of any length.
        let device = self.tiers.open_through(Access::Buffered, tier, file)?;
        let device = self.tiers.metered(device, tier as usize, cause);
        let place = Place { store: self.superblocks[0].store, file, offset: 0 };
        match table.open(cause, cause).and_then(|opened| opened.remains(place, device.clone())) {
            // Without an index, then.
            Err(error) if error.is_damage_of_named() => Ok(Remains::new(place, device, None)),
            remains => remains,
        }
    }

    /// Removes tables that repairs before have left, which were cut short.
    fn remove_unnamed(&mut self) -> Result<()> {
        for (tier, listed) in self.tiers.all.iter().zip(&mut self.listed) {
            for file in std::mem::take(listed) {
                let id = FileId::from_name(&file.name);
                let is_table = |id: &FileId| matches!(id.kind, FileKind::Data | FileKind::Meta);
                match id.filter(|id| is_table(id) && id.number >= self.first_unnamed) {
                    Some(id) => {
                        tier.remove(id)?;
                        tier.uncount(file.bytes);
                    }
                    None => listed.push(file),
                }
            }
        }
        Ok(())
    }

    /// Takes out what is broken. What takes its place is durable when this returns; that it does is not.
    ///
    /// # Errors
    /// `Io` where the medium can read less of a table than was found before; what devices and tiers say.
    pub(super) fn mend(&mut self, options: &Options, broken: &Broken) -> Result<()> {
        self.remove_unnamed()?;
        let mut edit = Edit::default();
        for BrokenTable { table, level, age, entries } in &broken.tables {
            let meta = &table.meta;
            edit.removed.push(meta.number);
            let Some(entries) = *entries else { continue };
            let mut remains = self.remains_of(table, Cause::Recovery)?;
            let tiers = (&[meta.data_tier as usize][..], meta.meta_tier);
            let erased = Erased::by([self.catalog.version.range_tombstones.clone()]);
            let most = (meta.unpacked_bytes(), &[][..]);
            let made = self.write_tables(options, &mut remains, tiers, most, erased)?;
            if remains.entries() != entries {
                let (now, number) = (remains.entries(), meta.number);
                let source =
                    std::io::Error::other(format!("{now} entries can be read now, {entries} before"));
                return Err(Error::io(format!("read table {number} once more"), source));
            }
            edit.added.extend(made.into_iter().map(|meta| AddedTable { level: *level, age: *age, meta }));
        }
        edit.freed = broken.slots.iter().flat_map(|(slab, slots)| slots.runs(*slab)).collect();
        for number in &broken.lost_slabs {
            edit.slabs_removed.push(*number);
            // It counted as what it was.
            let was = self.catalog.slabs.get(number).map_or(0, |slab| slab.meta.file_bytes());
            self.tiers.get(SLAB_TIER)?.uncount(was);
        }
        for slab in broken.flawed_slabs.iter().filter_map(|number| self.catalog.slabs.get(number)) {
            Slab::mend(&self.tiers, self.superblocks[0].store, slab.meta)?;
        }
        // Files of what is gone are orphans, and go when the new manifest is there.
        self.catalog.apply(&edit, &self.tables).map(drop)
    }
}
