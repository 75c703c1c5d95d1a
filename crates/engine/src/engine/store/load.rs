//! Opening: which object is in which live slot, from the image of a clean close, or else from the slots.

use super::image::{Heat, read_image};
use super::scan::scan;
use crate::error::Result;
use crate::options::Options;
use crate::store::{Contents, Damaged, Slab, SlabState};
use cuesta_device::Cause;
use cuesta_sched::Sched;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Opens the slabs that the manifest names, and finds out which object is in which live slot, and what was hot, if
/// `image` tells that.
pub(in crate::engine) fn load(
    from: &LoadFrom<'_>,
    slabs: &BTreeMap<u64, SlabState>,
    image: Option<u64>,
) -> Result<(Contents, Heat)> {
    let open = |slab: &SlabState| {
        Slab::open(from.tiers, from.garbage, from.store, slab.meta, &slab.generations).map(Arc::new)
    };
    let opened = slabs.values().map(open).collect::<Result<Vec<_>>>()?;
    // One that is missing or damaged, or whose device fails, is no loss but of time and heat, and of which keys a lost
    // slab had.
    let image =
        image.and_then(|number| read_image(from.tiers, from.store, number, slabs, Cause::Recovery).ok());
    let (index, heat) = image.map_or((None, Heat::default()), |image| (image.index, image.heat));
    let (index, damaged) = match index {
        Some(index) => (index, Damaged::default()),
        None => scan(from, slabs, &opened)?,
    };
    let slabs = Arc::new(opened.into_iter().collect());
    Ok((Contents { index, slabs, damaged: Arc::new(damaged), moment: Arc::default() }, heat))
}

/// What loading needs.
pub(in crate::engine) struct LoadFrom<'a> {
    pub(in crate::engine) options: &'a Options,
    pub(in crate::engine) sched: &'a Sched,
    pub(in crate::engine) tiers: &'a Arc<crate::tier::Tiers>,
    pub(in crate::engine) garbage: &'a Arc<crate::garbage::Garbage>,
    pub(in crate::engine) store: crate::format::StoreId,
}
