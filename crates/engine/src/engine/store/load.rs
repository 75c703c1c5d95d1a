//! Opening: which object is in which live slot, from the image of a clean close, or else from the slots.

use super::holds_of;
use super::image::{Heat, read_image};
use crate::error::{Error, Result};
use crate::planted::{self, Bug};
use crate::store::{Contents, Index, IndexBuilder, Location, Slab, SlabMeta, Slots};
use cuesta_device::Cause;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opens the slabs that the manifest names, and finds out which object is in which live slot, and what was hot, if `image`
/// tells that.
pub(in crate::engine) fn load(
    from: &LoadFrom<'_>,
    slabs: &BTreeMap<u64, (SlabMeta, Slots)>,
    image: Option<u64>,
) -> Result<(Contents, Heat)> {
    let open =
        |(meta, _): &(SlabMeta, Slots)| Slab::open(from.tiers, from.garbage, from.store, *meta).map(Arc::new);
    let opened = slabs.values().map(open).collect::<Result<Vec<_>>>()?;
    // One that is missing or damaged, or whose device fails, is no loss but of time and heat.
    let image =
        image.and_then(|number| read_image(from.tiers, from.store, number, slabs, Cause::Recovery).ok());
    let (index, heat) = image.map_or((None, Heat::default()), |image| (image.index, image.heat));
    let (index, damaged) = match index {
        Some(index) => (index, Vec::new()),
        None => scan(from, slabs, &opened)?,
    };
    Ok((Contents { index, slabs: Arc::new(opened), damaged: Arc::new(damaged) }, heat))
}

/// Reads every live slot: the index of them, and what cannot be read.
fn scan(
    from: &LoadFrom<'_>,
    slabs: &BTreeMap<u64, (SlabMeta, Slots)>,
    opened: &[Arc<Slab>],
) -> Result<(Index, Vec<Error>)> {
    let mut found: Vec<(Vec<u8>, u64, Location)> = Vec::new();
    let mut damaged = Vec::new();
    for ((meta, live), slab) in slabs.values().zip(opened) {
        let slots: Vec<u32> = match planted::has(Bug::FreedSlotBelieved) {
            true => (0..meta.slots).collect(),
            false => live.iter().collect(),
        };
        slab.read_slots(from.tiers, &slots, Cause::Recovery, &mut |slot, bytes| match slab
            .decode_head(slot, bytes)
        {
            Ok(head) => {
                // Whether a table has the same is no longer known: it is taken for no copy.
                let location = Location { slab: meta.number, slot, holds: holds_of(head.trailer) };
                found.push((head.key.to_vec(), head.trailer.0, location));
            }
            Err(error) => damaged.push(error),
        })?;
    }
    if planted::has(Bug::FreedSlotBelieved) {
        damaged.clear();
    }
    // Newest first.
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut made = IndexBuilder::default();
    found.iter().for_each(|(key, _, location)| made.push(key, *location));
    Ok((made.finish(), damaged))
}

/// What loading needs.
pub(in crate::engine) struct LoadFrom<'a> {
    pub(in crate::engine) tiers: &'a crate::tier::Tiers,
    pub(in crate::engine) garbage: &'a Arc<crate::garbage::Garbage>,
    pub(in crate::engine) store: crate::format::StoreId,
}
