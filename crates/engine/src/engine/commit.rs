//! The one way in which what exists changes: an edit becomes durable in the manifest, then visible.

use super::{Current, Engine};
use crate::error::{ErrorKind, Result};
use crate::format::{FileId, FileKind};
use crate::planted::{self, Bug};
use crate::tier::Tier;
use crate::version::Edit;
use crate::version::manifest::Manifest;
use crate::version::superblock::Superblock;
use cuesta_device::Cause;

/// The end of the manifest and the superblock that points at it; owned by turns.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) manifest: Manifest,
    pub(crate) superblock: Superblock,
    /// Bytes of the manifest that the first tier has counted.
    pub(crate) counted_bytes: u64,
}

impl Root {
    /// Counts what the manifest has grown by. After the fact: it must never be refused for want of budget, and its
    /// steps are small.
    fn count(&mut self, tier: &Tier) {
        let filled = self.manifest.filled_bytes();
        tier.count(filled.saturating_sub(self.counted_bytes));
        self.counted_bytes = filled.max(self.counted_bytes);
    }
}

impl Engine {
    /// Makes `edit` durable, then takes it in; `change` adapts the memtables in the same step. Who has the root is
    /// alone: what the edit says of the version, it has to have looked up since.
    ///
    /// # Errors
    /// `Full` when the manifest has no room: nothing changed. Any other failure closes the store for writes, since
    /// nobody can know whether the edit is on media; or it is an edit that does not fit what exists, which must not get
    /// there, since no later open would get past it.
    pub(super) fn commit(
        &self,
        root: &mut Root,
        mut edit: Edit,
        change: impl FnOnce(&mut Current),
    ) -> Result<()> {
        self.check_writable()?;
        let fitting = {
            let catalog = self.catalog.lock();
            edit.next_file = Some(catalog.next_file);
            edit.last_seq = Some(self.visible().max(catalog.last_seq));
            catalog.fit(&edit, &self.tables)
        };
        let fitting = fitting.inspect_err(|error| self.fail(error))?;
        let applied = root.manifest.append(&edit).map(|()| {
            let mut catalog = self.catalog.lock();
            let gone = catalog.take_in(&edit, fitting, &self.tables);
            self.install(&catalog, change);
            gone.mark();
        });
        root.count(self.tiers.fast());
        if let Err(error) = applied {
            if *error.kind() != ErrorKind::Full {
                self.fail(&error);
            }
            return Err(error);
        }
        if root.manifest.should_roll() {
            self.roll_manifest(root);
        }
        Ok(())
    }

    /// Begins a new manifest and points the superblock at it. The edit that led here is durable whatever comes of it,
    /// so no failure is its caller's.
    fn roll_manifest(&self, root: &mut Root) {
        let (number, snapshot) = {
            let mut catalog = self.catalog.lock();
            let number = catalog.take_file_number();
            (number, catalog.snapshot())
        };
        let fast = self.tiers.fast();
        let wrap = |device| self.tiers.metered(device, fast.ordinal, Cause::Manifest);
        if planted::has(Bug::SuperblockBeforeManifest) {
            let ahead = Superblock { manifest: number, ..root.superblock };
            drop(ahead.write(fast.directory.as_ref()));
        }
        let begun = Manifest::begin(fast.directory.as_ref(), &wrap, self.store, number, &snapshot);
        // The old manifest has everything; a failure to begin a new one costs only its growth. Here and below, a file
        // that cannot be removed is an orphan, which the next open tries again.
        let Ok(begun) = begun else { return drop(fast.remove(FileId::new(FileKind::Manifest, number))) };
        let mut superblock = root.superblock;
        superblock.manifest = number;
        superblock.generation += 1;
        if let Err(error) = superblock.write(fast.directory.as_ref()) {
            // Either manifest may be the one that counts now, so neither may grow.
            return self.fail(&error);
        }
        let old = std::mem::replace(&mut root.manifest, begun);
        root.superblock = superblock;
        fast.uncount(std::mem::take(&mut root.counted_bytes));
        root.count(fast);
        drop(fast.remove(FileId::new(FileKind::Manifest, old.number())));
    }
}
