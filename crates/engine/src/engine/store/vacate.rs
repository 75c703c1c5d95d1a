//! Vacating slabs: what is left in them moves to slots of others, so that a flush may make slabs of another class, or
//! tables have room for their indexes on the fast tier. Which slabs: [`crate::policy::vacate`].
//!
//! From when it is chosen no slot of a slab is given out, unless its own class wants it back. Objects move in rounds of
//! up to half of a memtable: they are read, written to free slots of their class in slabs that an edit names, and
//! synced; the round's edit frees the slots where they lay, and the index that goes with it says where they lie. What
//! has gone meanwhile stays gone. Other jobs look for objects where they were when these jobs began, so a move is
//! remembered for as long as somebody holds a moment from before ([`crate::store::Moves`]), and until then no other
//! slab is vacated: those that somebody may read give no room in any case. A slab goes once nothing in it is in use, as
//! any empty one. One with a slot that cannot be read stays, and so does one of which the last object found no place.
//!
//! Costs, for each object that moves: its bytes read, a page read and written or a part of one, and its place in a new
//! leaf of the index.

use super::{Filling, Freed, Store};
use crate::engine::Engine;
use crate::engine::jobs::is_refusal;
use crate::error::Result;
use crate::key::{Entry, Trailer};
use crate::memory::Holder;
use crate::policy::vacate::{SlabView, to_vacate};
use crate::store::{Changes, Index, Location, Moment, Moves, Slab, SlotRun, Slots};
use crate::version::Edit;
use cuesta_device::Cause;
use cuesta_sched::atomic::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A round moves one part in so many of a memtable's bytes at most.
const ROUND_SHARE: u64 = 2;
/// About what an object that moves takes besides its slot's bytes, until it has moved; and after that, while it is
/// remembered.
const REMAINING_BYTES: u64 = 256;
const MOVE_BYTES: u64 = 64;

/// A slab that is vacated, and which of its slots were live when that began.
type Vacated = (Arc<Slab>, Slots);

/// Objects that were read out of slabs.
struct Remains {
    /// Keys and values.
    bytes: Vec<u8>,
    objects: Vec<Remaining>,
}

struct Remaining {
    key: Range<usize>,
    value: Range<usize>,
    trailer: Trailer,
    from: Location,
}

impl Remains {
    fn key(&self, remaining: &Remaining) -> &[u8] {
        &self.bytes[remaining.key.clone()]
    }

    fn entry(&self, remaining: &Remaining) -> Entry<'_> {
        Entry {
            key: self.key(remaining),
            trailer: remaining.trailer,
            value: &self.bytes[remaining.value.clone()],
        }
    }
}

impl Engine {
    /// Vacates slabs, for others of another class; whether any.
    pub(super) fn make_room_for_slabs(&self, store: &Store) -> Result<bool> {
        let vacated = self.vacate(store, u64::MAX)?;
        if vacated {
            // Or it is there once readers leave.
            self.remove_empty_slabs(store)?;
        }
        Ok(vacated)
    }

    /// Vacates slabs where tables had no room for their indexes on the fast tier: else what lies in slabs would never
    /// make way for them. What closes the store for writes has done so; nothing else that goes wrong is anybody's loss.
    pub(in crate::engine) fn make_room_beside(&self) {
        let Some(store) = &self.objects else { return };
        let wanted = store.refused_beside.swap(0, Ordering::Relaxed);
        let lacks = wanted.saturating_sub(self.tiers.fast().free_bytes());
        if lacks > 0 && store.has_room_beside(self, wanted) && self.vacate(store, lacks).is_ok_and(|any| any)
        {
            drop(self.remove_empty_slabs(store));
        }
    }

    /// Moves what is left in some slabs elsewhere, where that is worth it, so that so many bytes become free. Whether
    /// any slab was vacated; what room that gives is there once no reader needs it.
    fn vacate(&self, store: &Store, wanted: u64) -> Result<bool> {
        let most = self.options.memtable_bytes() / ROUND_SHARE;
        let Some((moment, slabs)) = self.begin_to_vacate(store, wanted, most) else { return Ok(false) };
        // Slots with what is left in them, by place.
        let slots = slabs.iter().flat_map(|(slab, live)| live.iter().map(move |slot| (slab, slot)));
        let mut rest = slots.peekable();
        let mut vacated = Ok(true);
        while rest.peek().is_some() && matches!(vacated, Ok(true)) {
            let (mut round, mut bytes) = (Vec::new(), 0);
            while let Some((slab, slot)) = rest.next_if(|_| bytes < most) {
                bytes += slab.meta.slot_bytes;
                round.push((slab, slot));
            }
            let held = bytes + round.len() as u64 * REMAINING_BYTES;
            let _held = self.tables.cache.memory().charge(Holder::Jobs, held);
            self.tables.cache.fit();
            vacated = self.read_remains(store, &round).and_then(|remains| self.move_out(store, &remains));
        }
        drop(moment);
        let mut state = store.state.lock();
        let catalog = self.catalog.lock();
        let is_left = |slab: &u64| catalog.slabs.get(slab).is_some_and(|slab| slab.live.count() > 0);
        let left: Vec<u64> = slabs.iter().map(|(slab, _)| slab.meta.number).filter(is_left).collect();
        left.iter().for_each(|slab| state.space.stay(*slab));
        state.vacating = false;
        match vacated {
            // The edit may be on media.
            Err(error) if self.failure.get().is_some() && !is_refusal(&error) => Err(error),
            // Who waits for room finds another way.
            _ => Ok(left.len() < slabs.len()),
        }
    }

    /// Chooses slabs, of which no slot is given out from then on, and tells which of their slots are live. What is
    /// freed as long as the moment is held is not used again.
    fn begin_to_vacate(&self, store: &Store, wanted: u64, most: u64) -> Option<(Arc<Moment>, Vec<Vacated>)> {
        let _turn = store.turn.take();
        let mut state = store.state.lock();
        state.space.collect();
        if state.vacating || !state.space.moves().is_empty() {
            return None;
        }
        let contents = self.current.load().contents.clone();
        let catalog = self.catalog.lock();
        state.stuck.retain(|slab| catalog.slabs.contains_key(slab));
        let live = |slab: u64| catalog.slabs.get(&slab).map_or(0, |slab| slab.live.count());
        let told = state.space.quiet_slabs(&live).into_iter();
        let told = told.filter(|(meta, _)| !state.stuck.contains(&meta.number));
        let views: Vec<SlabView> = told
            .map(|(meta, free)| SlabView {
                number: meta.number,
                slot_bytes: meta.slot_bytes,
                slots: meta.slots,
                live: live(meta.number),
                free,
            })
            .collect();
        let chosen = to_vacate(&views, wanted, most);
        let slots =
            |slab: &u64| Some((contents.slab(*slab).ok()?.clone(), catalog.slabs.get(slab)?.live.clone()));
        let slabs: Vec<Vacated> = chosen.iter().filter_map(slots).collect();
        slabs.iter().for_each(|(slab, _)| state.space.leave(slab.meta.number));
        state.vacating = !slabs.is_empty();
        (!slabs.is_empty()).then(|| (contents.moment.clone(), slabs))
    }

    /// Reads what is left in these slots, which ascend, in the order of keys. Where one cannot be read its slab is left
    /// as it is.
    fn read_remains(&self, store: &Store, slots: &[(&Arc<Slab>, u32)]) -> Result<Remains> {
        let contents = self.current.load().contents.clone();
        let (mut bytes, mut objects) = (Vec::new(), Vec::new());
        for same in slots.chunk_by(|a, b| a.0.meta.number == b.0.meta.number) {
            let (slab, before) = (same[0].0, objects.len());
            let slots: Vec<u32> = same.iter().map(|(_, slot)| *slot).collect();
            let mut is_damaged = false;
            slab.read_slots(&self.tiers, &slots, Cause::Compaction, &mut |slot, found| {
                let Ok(entry) = found.and_then(|found| slab.decode(slot, found)) else {
                    is_damaged = true;
                    return;
                };
                let place = (slab.meta.number, slot);
                let mut locations = contents.index.locations(entry.key);
                // Else it has gone meanwhile.
                let Some(from) = locations.find(|at| (at.slab, at.slot) == place) else { return };
                let start = bytes.len();
                let (key, end) = (start + entry.key.len(), start + entry.key.len() + entry.value.len());
                bytes.extend_from_slice(entry.key);
                bytes.extend_from_slice(entry.value);
                objects.push(Remaining { key: start..key, value: key..end, trailer: entry.trailer, from });
            })?;
            if is_damaged {
                objects.truncate(before);
                store.state.lock().stuck.insert(slab.meta.number);
            }
        }
        let key = |remaining: &Remaining| &bytes[remaining.key.clone()];
        objects.sort_by(|a: &Remaining, b| key(a).cmp(key(b)).then(b.trailer.0.cmp(&a.trailer.0)));
        Ok(Remains { bytes, objects })
    }

    /// Writes these objects elsewhere, as far as there is a place for them, and commits. `false` if there was none for
    /// some, or the medium cannot read some of the pages there.
    fn move_out(&self, store: &Store, remains: &Remains) -> Result<bool> {
        let mut filling = Filling::default();
        let from = self.place_elsewhere(store, remains, &mut filling);
        let have_places = from.len() == remains.objects.len();
        if from.is_empty() {
            return Ok(have_places);
        }
        let written = self.write_slots(store, &mut filling, Cause::Compaction, &|_| self.check_open());
        let moved = written.and_then(|is_whole| match is_whole {
            true => self.commit_moves(store, &filling, &from).map(|()| true),
            false => Ok(false),
        });
        let are_free = match &moved {
            Ok(is_done) => !is_done,
            // After any other failure the edit may be on media.
            Err(error) => self.failure.get().is_none() || is_refusal(error),
        };
        if are_free {
            self.give_back(store, &mut filling);
        }
        moved.map(|is_done| is_done && have_places)
    }

    /// Finds slots for these objects; where each that has one lies.
    fn place_elsewhere<'a>(
        &self,
        store: &Store,
        remains: &'a Remains,
        filling: &mut Filling<'a>,
    ) -> Vec<Location> {
        let mut state = store.state.lock();
        let class = |remaining: &Remaining| state.space.slot_bytes_in(remaining.from.slab);
        let classes: Vec<u64> = remains.objects.iter().map(class).collect();
        let mut wanted: BTreeMap<u64, usize> = BTreeMap::new();
        classes.iter().for_each(|class| *wanted.entry(*class).or_default() += 1);
        let slots =
            |(class, count): (u64, usize)| (class, state.space.take_together(class, count).into_iter());
        let mut slots: BTreeMap<u64, std::vec::IntoIter<Location>> = wanted.into_iter().map(slots).collect();
        let mut from = Vec::with_capacity(classes.len());
        for (class, remaining) in classes.iter().zip(&remains.objects) {
            if let Some(to) = slots.get_mut(class).and_then(Iterator::next) {
                let to = Location { holds: remaining.from.holds, ..to };
                filling.placed.push((to, remains.entry(remaining)));
                from.push(remaining.from);
            }
        }
        from
    }

    /// Puts what was moved into the contents, where it still lies where it was read.
    fn commit_moves(&self, store: &Store, filling: &Filling<'_>, from: &[Location]) -> Result<()> {
        let _turn = store.turn.take();
        let before = self.current.load().contents.clone();
        let held = self.tables.cache.memory().charge(Holder::Jobs, from.len() as u64 * MOVE_BYTES);
        let mut moved = Moves::new(held);
        let (mut changes, mut taken, mut freed, mut unused) = (Changes::default(), vec![], vec![], vec![]);
        let mut from = from.iter();
        for same in filling.placed.chunk_by(|a, b| a.1.key == b.1.key) {
            let key = same[0].1.key;
            let mut versions: Vec<Location> = before.index.locations(key).collect();
            for ((to, _), from) in same.iter().zip(from.by_ref()) {
                let is_there = |at: &&mut Location| (at.slab, at.slot) == (from.slab, from.slot);
                match versions.iter_mut().find(is_there) {
                    Some(at) => {
                        freed.push(*at);
                        moved.add(*at, *to);
                        // It may have become a copy.
                        *at = Location { holds: at.holds, ..*to };
                        taken.push(*at);
                    }
                    None => unused.push(*to),
                }
            }
            changes.push(key, versions);
        }
        let parts = self.index_parts(&before.index).min(changes.len() as u64).max(1) as usize;
        let index = before.index.changed_by(changes.part(0, parts));
        // As in a flush: leaves that parts replace are to make room for those of the next. Until the last one is there,
        // readers find the rest where it lay.
        let slabs_before = before.with_index(Index::default());
        drop(before);
        let after = slabs_before.with_index(index);
        let edit = Edit {
            taken: SlotRun::of(taken),
            wasted: SlotRun::of(&mut unused[..]),
            freed: SlotRun::of(freed),
            counters: Some(self.encode_counters()),
            ..Edit::default()
        };
        let objects = moved.len() as u64;
        let freed = Freed::by(&edit);
        self.replace_contents_in_parts(store, &slabs_before, after, (&changes, parts), (edit, freed), false)?;
        let mut state = store.state.lock();
        state.space.moved_after(&slabs_before.moment, moved);
        store.moved.fetch_add(objects, Ordering::Relaxed);
        Ok(())
    }
}
