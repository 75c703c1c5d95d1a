//! Opening: which object is in which live slot.

use super::holds_of;
use crate::error::Result;
use crate::planted::{self, Bug};
use crate::store::{Changes, Contents, Index, Location, Slab, SlabMeta, Slots};
use cuesta_device::Cause;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opens the slabs that the manifest names, and finds out which object is in which live slot.
pub(in crate::engine) fn load(
    engine: &LoadFrom<'_>,
    slabs: &BTreeMap<u64, (SlabMeta, Slots)>,
) -> Result<Contents> {
    let mut found: Vec<(Vec<u8>, u64, Location)> = Vec::new();
    let (mut open, mut damaged) = (Vec::new(), Vec::new());
    for (meta, live) in slabs.values() {
        let slab = Slab::open(engine.tiers, engine.garbage, engine.store, *meta)?;
        let slots: Vec<u32> = match planted::has(Bug::FreedSlotBelieved) {
            true => (0..meta.slots).collect(),
            false => live.iter().collect(),
        };
        slab.read_slots(engine.tiers, &slots, Cause::Recovery, &mut |slot, bytes| match slab
            .decode_head(slot, bytes)
        {
            Ok(head) => {
                // Whether a table has the same is no longer known: it is taken for no copy.
                let location = Location { slab: meta.number, slot, holds: holds_of(head.trailer) };
                found.push((head.key.to_vec(), head.trailer.0, location));
            }
            Err(error) => damaged.push(error),
        })?;
        open.push(Arc::new(slab));
    }
    if planted::has(Bug::FreedSlotBelieved) {
        damaged.clear();
    }
    // Newest first.
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut changes = Changes::default();
    for same in found.chunk_by(|a, b| a.0 == b.0) {
        changes.push(&same[0].0, same.iter().map(|(_, _, location)| *location));
    }
    Ok(Contents {
        index: Index::default().changed(&changes),
        slabs: Arc::new(open),
        damaged: Arc::new(damaged),
    })
}

/// What loading needs.
pub(in crate::engine) struct LoadFrom<'a> {
    pub(in crate::engine) tiers: &'a crate::tier::Tiers,
    pub(in crate::engine) garbage: &'a Arc<crate::garbage::Garbage>,
    pub(in crate::engine) store: crate::format::StoreId,
}
