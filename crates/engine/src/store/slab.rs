//! A slab: a file of slots of one size (`docs/format/slab.md`).
//!
//! A slab that is not what the manifest says has a *flaw*, and costs no more than it has to: every slot says by itself
//! whether it is whole, so what can be read is served, and nothing is written to it any more. One that is missing, or
//! of another length, is *lost*: reads of its slots fail, by an error that names slab and slot. It is removed once
//! nothing in it is live. A single slot that is found damaged later, by who has to write elsewhere what it holds, is
//! lost alike, until it is used for something else. What the medium cannot read, twice in a row, is damaged.

use super::generation::{Generation, Generations, LostUses};
use super::slot::{Head, Object, decode, decode_head};
use crate::error::{Error, Result};
use crate::format::file::{HEADER_BYTES, check_header, encode_header};
use crate::format::{Decode, FileId, FileKind, Malformed, Place, Reader, StoreId};
use crate::garbage::{Garbage, HeldFile};
use crate::key::{Entry, Seq};
use crate::planted::{self, Bug};
use crate::tier::Tiers;
use cuesta_device::{
    ALIGNMENT, Access, AlignedBuf, Cause, Device, Geometry, ReadRequest, Ticket, WhatIsLeft, is_unreadable,
    read_twice, read_what_can_be,
};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Where the first slot begins.
pub(crate) const SLOTS_FROM: u64 = ALIGNMENT as u64;
/// Bytes behind the file's header that say size and number of the slots.
pub(crate) const SHAPE_BYTES: usize = 16;
/// No slot is larger, and no slab has more of them, whatever a file says.
const SLOT_BYTES_MAX: u64 = 1 << 30;
const SLOTS_MAX: u32 = 1 << 24;
/// A slab has at least so many slots, unless it would be larger than it should by as many times.
const SLOTS_MIN: u64 = 4;
/// The tier that slabs are on.
pub(crate) const SLAB_TIER: u32 = 0;
/// Slots whose sectors follow each other, or lie in one page, are read together, up to so many bytes, unless one slot
/// is longer.
const RUN_BYTES_MAX: u64 = 256 << 10;
/// A scan of a slab reads so many times ahead.
const SCAN_DEPTH: usize = 4;

/// Slots of such a size in a slab that should take `target` bytes, and takes whole pages.
pub(crate) fn slots_in(slot_bytes: u64, target: u64) -> u32 {
    let target = target.next_multiple_of(ALIGNMENT as u64);
    let least = if slot_bytes < SLOTS_MIN * target { SLOTS_MIN } else { 1 };
    (target / slot_bytes).clamp(least, u64::from(SLOTS_MAX)) as u32
}

/// What is known of a slab without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabMeta {
    pub(crate) number: u64,
    /// Of each slot.
    pub(crate) slot_bytes: u64,
    pub(crate) slots: u32,
}

impl SlabMeta {
    pub(crate) fn file(&self) -> FileId {
        FileId::new(FileKind::Slab, self.number)
    }

    /// Length of its file.
    pub(crate) fn file_bytes(&self) -> u64 {
        SLOTS_FROM + (u64::from(self.slots) * self.slot_bytes).next_multiple_of(ALIGNMENT as u64)
    }

    /// Whether a store may have made it.
    pub(crate) fn is_sane(&self) -> bool {
        (1..=SLOTS_MAX).contains(&self.slots) && (1..=SLOT_BYTES_MAX).contains(&self.slot_bytes)
    }

    /// Size and number of its slots, as they stand behind the file's header.
    fn encode_shape(&self, store: StoreId) -> [u8; SHAPE_BYTES] {
        let mut out = [0; SHAPE_BYTES];
        out[..8].copy_from_slice(&self.slot_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.slots.to_le_bytes());
        let sum = Place { store, file: self.file(), offset: HEADER_BYTES as u64 }.checksum(&[&out[..12]]);
        out[12..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The first page of its file.
    fn header_page(&self, store: StoreId) -> AlignedBuf {
        let mut page = AlignedBuf::zeroed(SLOTS_FROM as usize);
        page[..HEADER_BYTES].copy_from_slice(&encode_header(store, self.file()));
        page[HEADER_BYTES..HEADER_BYTES + SHAPE_BYTES].copy_from_slice(&self.encode_shape(store));
        page
    }

    /// # Errors
    /// `Corrupt` where its file has another length; what the device says.
    fn check_length(&self, device: &dyn Device) -> Result<()> {
        let found = device.len().map_err(|source| Error::io(format!("read {}", self.file()), source))?;
        if found == self.file_bytes() {
            return Ok(());
        }
        let why = format!("the file has {found} bytes; it was written with {}", self.file_bytes());
        Err(Error::corrupt(self.file().to_string(), found, why))
    }

    /// Reads what stands behind the header of slab `number`.
    pub(crate) fn decode_shape(bytes: &[u8], store: StoreId, number: u64) -> Decode<Self> {
        let mut reader = Reader::new(bytes);
        let meta = Self { slot_bytes: reader.fixed_number()?, slots: reader.u32()?, number };
        match bytes.get(..SHAPE_BYTES) == Some(&meta.encode_shape(store)[..]) {
            true if meta.is_sane() => Ok(meta),
            _ => Err(Malformed::new("size and number of the slots are damaged")),
        }
    }

    /// Where a slot begins.
    pub(crate) fn offset(&self, slot: u32) -> u64 {
        SLOTS_FROM + u64::from(slot) * self.slot_bytes
    }
}

impl fmt::Display for SlabMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slab {} of {} slots of {} bytes", self.number, self.slots, self.slot_bytes)
    }
}

/// An open slab; its file goes with the last holder once it is obsolete.
pub(crate) struct Slab {
    pub(crate) meta: SlabMeta,
    store: StoreId,
    /// Counts what is read as read for users.
    device: Arc<dyn Device>,
    unmetered: Arc<dyn Device>,
    held: HeldFile,
    /// The manifest's.
    generations: Arc<Generations>,
    /// Why it is not the slab that the manifest names.
    flaw: Option<Error>,
    is_lost: bool,
    lost_uses: LostUses,
    /// Unit of I/O on its slots, in bytes: the tier's, or its medium's if that is larger.
    sector_bytes: u64,
}

/// What a lost slab is read from.
#[derive(Debug)]
struct Nothing;

impl Nothing {
    fn fail<T>() -> io::Result<T> {
        Err(io::Error::new(io::ErrorKind::NotFound, "the slab is lost"))
    }
}

impl Device for Nothing {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Self::fail()
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Self::fail()
    }

    fn sync(&self) -> io::Result<()> {
        Self::fail()
    }

    fn len(&self) -> io::Result<u64> {
        Self::fail()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Self::fail()
    }

    fn geometry(&self) -> Geometry {
        Geometry { direct: false, sector_bytes: ALIGNMENT as u32, atomic_write_bytes: 0 }
    }
}

/// Sectors that were read, and a slot in them.
#[derive(Debug)]
pub(crate) struct SlotBytes {
    sectors: Arc<AlignedBuf>,
    range: Range<usize>,
}

impl SlotBytes {
    /// `slot` of `slab`, in the sectors from `start` on.
    pub(crate) fn new(slab: &Slab, slot: u32, sectors: Arc<AlignedBuf>, start: u64) -> Self {
        let from = (slab.meta.offset(slot) - start) as usize;
        Self { sectors, range: from..from + slab.meta.slot_bytes as usize }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.sectors[self.range.clone()]
    }
}

/// Memory that a read or a write of so many bytes takes: whole pages.
pub(super) fn held_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT as u64)
}

/// The pages that these bytes are in.
pub(super) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / ALIGNMENT as u64 * ALIGNMENT as u64..bytes.end.next_multiple_of(ALIGNMENT as u64)
}

/// Whether what begins at `next` is read or written together with what ends at `end`: what lies between in one page
/// costs less than a call of its own. So no two that are apart share a page, but where a run is as long as it may be.
pub(super) fn are_neighbours(end: u64, next: u64) -> bool {
    next <= end.next_multiple_of(ALIGNMENT as u64)
}

impl Slab {
    /// Makes a slab's file, and its header. Neither is durable when this returns.
    pub(crate) fn create(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        meta: SlabMeta,
        generations: Arc<Generations>,
    ) -> Result<Self> {
        let directory = &tiers.get(SLAB_TIER)?.directory;
        let fail = |source| Error::io(format!("make {} in {}", meta.file(), directory.place()), source);
        let device =
            directory.create(&meta.file().to_string(), tiers.slab_access(SLAB_TIER)?).map_err(fail)?;
        let slab = Self::over(tiers, garbage, store, (meta, generations), device);
        let written = slab
            .unmetered
            .set_len(meta.file_bytes())
            .and_then(|()| slab.metered(tiers, Cause::Flush).write_at(&meta.header_page(store), 0));
        written.map_err(fail)?;
        Ok(slab)
    }

    /// Opens a slab; what is wrong with its file is its flaw.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn open(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        meta: SlabMeta,
        generations: &Arc<Generations>,
    ) -> Result<Self> {
        let opened = tiers.open_slab_file(SLAB_TIER, meta.file());
        let opened = opened.and_then(|device| meta.check_length(device.as_ref()).map(|()| device));
        Self::opened(tiers, garbage, store, (meta, generations), opened)
    }

    /// As [`Slab::open`], for who wants whatever slots are left, however long the file is and wherever the medium
    /// cannot read it: only where there is no file the slab is lost.
    pub(crate) fn open_what_is_left(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        meta: SlabMeta,
        generations: &Arc<Generations>,
    ) -> Result<Self> {
        let opened = tiers.open_through(Access::Buffered, SLAB_TIER, meta.file());
        let (opened, length) = match opened {
            Ok(device) => {
                let length = meta.check_length(device.as_ref());
                (Ok(Arc::new(WhatIsLeft::new(device)) as Arc<dyn Device>), length)
            }
            Err(error) => (Err(error), Ok(())),
        };
        let slab = Self::opened(tiers, garbage, store, (meta, generations), opened)?;
        match length {
            Err(error) if !error.is_corrupt() => Err(error),
            length => Ok(Self { flaw: slab.flaw.or(length.err()), ..slab }),
        }
    }

    /// Makes a slab's file what the manifest says, but for what is in its slots. Durable when this returns.
    pub(crate) fn mend(tiers: &Tiers, store: StoreId, meta: SlabMeta) -> Result<()> {
        let device = tiers.open_slab_file(SLAB_TIER, meta.file())?;
        let device = tiers.metered(device, SLAB_TIER as usize, Cause::Recovery);
        let mended = device
            .set_len(meta.file_bytes())
            .and_then(|()| device.write_at(&meta.header_page(store), 0))
            .and_then(|()| device.sync());
        mended.map_err(|source| Error::io(format!("mend {}", meta.file()), source))
    }

    /// Over its file, or lost if that is damage.
    fn opened(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        (meta, generations): (SlabMeta, &Arc<Generations>),
        device: Result<Arc<dyn Device>>,
    ) -> Result<Self> {
        let over = |device| Self::over(tiers, garbage, store, (meta, generations.clone()), device);
        let slab = match device {
            Err(why) if why.is_corrupt() => {
                return Ok(Self { flaw: Some(why), is_lost: true, ..over(Arc::new(Nothing)) });
            }
            opened => over(opened?),
        };
        let fail = |source| Error::io(format!("read {}", meta.file()), source);
        let mut page = AlignedBuf::zeroed(SLOTS_FROM as usize);
        let corrupt = |why: String| Error::corrupt(meta.file().to_string(), HEADER_BYTES as u64, why);
        let header = match read_twice(slab.metered(tiers, Cause::Recovery).as_ref(), &mut page, 0) {
            Err(source) if is_unreadable(&source) => {
                Err(corrupt(format!("the medium cannot read the header: {source}")))
            }
            read => read.map(|()| &page).map_err(fail).map(Ok)?,
        };
        let flaw = header.and_then(|page| check_header(page, store, meta.file())).and_then(|_| {
            match SlabMeta::decode_shape(&page[HEADER_BYTES..], store, meta.number) {
                Ok(found) if found == meta => Ok(()),
                Ok(found) => Err(corrupt(format!("it is {found}, and the manifest names {meta}"))),
                Err(malformed) => Err(corrupt(malformed.to_string())),
            }
        });
        Ok(Self { flaw: flaw.err(), ..slab })
    }

    /// Why it is not the slab that the manifest names, if it is not: nothing is to be written to it.
    pub(crate) fn flaw(&self) -> Option<&Error> {
        self.flaw.as_ref()
    }

    /// Why none of its slots can be read, if none can.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.flaw.as_ref().filter(|_| self.is_lost)
    }

    fn over(
        tiers: &Tiers,
        garbage: &Arc<Garbage>,
        store: StoreId,
        (meta, generations): (SlabMeta, Arc<Generations>),
        device: Arc<dyn Device>,
    ) -> Self {
        let held = HeldFile::new((SLAB_TIER, meta.file(), meta.file_bytes()), garbage.clone());
        let unmetered = device.clone();
        let sector_bytes = device.geometry().sector_bytes.into();
        Self {
            meta,
            store,
            device: tiers.metered(device, SLAB_TIER as usize, Cause::UserRead),
            unmetered,
            held,
            generations,
            flaw: None,
            is_lost: false,
            lost_uses: LostUses::default(),
            sector_bytes,
        }
    }

    /// What is in `slot` was found damaged: it is lost.
    pub(crate) fn lose(&self, slot: u32) {
        self.lost_uses.add(self.meta.slots, slot, self.generation(slot));
    }

    /// Whether what is in `slot` cannot be read, as far as that is known.
    pub(crate) fn has_lost(&self, slot: u32) -> bool {
        self.is_lost || self.lost_uses.has(slot, self.generation(slot))
    }

    /// The slots that have bytes in these sectors.
    pub(super) fn slots_in(&self, sectors: &Range<u64>) -> Range<u32> {
        let slot = |at: u64| at.saturating_sub(SLOTS_FROM) / self.meta.slot_bytes;
        let end = sectors.end.saturating_sub(SLOTS_FROM).div_ceil(self.meta.slot_bytes);
        slot(sectors.start) as u32..end.min(self.meta.slots.into()) as u32
    }

    /// Its device, counting under `cause`.
    pub(crate) fn metered(&self, tiers: &Tiers, cause: Cause) -> Arc<dyn Device> {
        tiers.metered(self.unmetered.clone(), SLAB_TIER as usize, cause)
    }

    /// Counting what is read as read for users.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if planted::has(Bug::SlabSyncDropped) {
            return Ok(());
        }
        self.device.sync().map_err(|source| self.failed("sync", source))
    }

    /// No later edit names it.
    pub(crate) fn mark_obsolete(&self) {
        self.held.mark_obsolete();
    }

    pub(crate) fn place(&self, slot: u32) -> Place {
        Place { store: self.store, file: self.meta.file(), offset: self.meta.offset(slot) }
    }

    /// Which use of `slot` the manifest knows of.
    pub(crate) fn generation(&self, slot: u32) -> Generation {
        self.generations.of(slot)
    }

    /// # Errors
    /// When what is in `slot` was written for another use of it.
    fn check_generation(&self, slot: u32, found: Generation) -> Decode<()> {
        let wanted = self.generation(slot);
        match found == wanted || planted::has(Bug::SlotGenerationsIgnored) {
            true => Ok(()),
            false => Err(Malformed(format!(
                "use {found} of the slot, where use {wanted} should have been written over it"
            ))),
        }
    }

    pub(crate) fn failed(&self, what: &str, source: io::Error) -> Error {
        let why = self.lost().cloned();
        why.unwrap_or_else(|| Error::io(format!("{what} {}", self.meta.file()), source))
    }

    /// The sectors from the first to the last of so many bytes from where a slot begins.
    pub(super) fn sectors(&self, slot: u32, bytes: u64) -> Range<u64> {
        let (from, to) = (self.meta.offset(slot), self.meta.offset(slot) + bytes);
        from - from % self.sector_bytes..to.next_multiple_of(self.sector_bytes)
    }

    /// The sectors of a slot.
    pub(super) fn sectors_of(&self, slot: u32) -> Range<u64> {
        self.sectors(slot, self.meta.slot_bytes)
    }

    /// How many of these slots, which ascend, are read together, and the sectors to read for them.
    pub(crate) fn run(&self, slots: impl IntoIterator<Item = u32>) -> (usize, Range<u64>) {
        let (mut count, mut sectors) = (0, 0..0);
        for slot in slots {
            let next = self.sectors_of(slot);
            if count == 0 {
                sectors = next;
            } else if are_neighbours(sectors.end, next.start) && next.end - sectors.start <= RUN_BYTES_MAX {
                sectors.end = next.end.max(sectors.end);
            } else {
                break;
            }
            count += 1;
        }
        (count, sectors)
    }

    /// Begins to read sectors through `device`, which is one of this slab's.
    pub(crate) fn begin_read(device: &dyn Device, sectors: &Range<u64>) -> Ticket {
        let buffer = AlignedBuf::exactly((sectors.end - sectors.start) as usize);
        device.submit(ReadRequest { buffer, offset: sectors.start })
    }

    /// Waits for what [`Slab::begin_read`] began. `None` where the medium cannot read all of it, or the slab is lost:
    /// each slot is to be read by itself then, and has an error of its own.
    pub(crate) fn end_read(&self, ticket: Ticket) -> Result<Option<AlignedBuf>> {
        match ticket.wait() {
            Err(source) if self.is_lost || is_unreadable(&source) => Ok(None),
            read => read.map(Some).map_err(|source| self.failed("read", source)),
        }
    }

    /// Reads a slot for a user.
    ///
    /// # Errors
    /// As [`Slab::read_through`].
    pub(crate) fn read(&self, slot: u32) -> Result<SlotBytes> {
        self.read_through(self.device.as_ref(), slot)
    }

    /// Reads a slot through `device`, which is one of this slab's.
    ///
    /// # Errors
    /// `Corrupt`, with slab and slot, where the medium cannot read it twice in a row, or the slab is lost; else what
    /// the device says.
    pub(crate) fn read_through(&self, device: &dyn Device, slot: u32) -> Result<SlotBytes> {
        let sectors = self.sectors_of(slot);
        let mut buffer = AlignedBuf::exactly((sectors.end - sectors.start) as usize);
        let unreadable = match read_twice(device, &mut buffer, sectors.start) {
            Err(source) if is_unreadable(&source) && !self.is_lost => {
                self.read_what_can_be(device, &mut buffer, sectors.start)?;
                Some(source)
            }
            read => {
                read.map_err(|source| match self.lost() {
                    Some(why) => self.corrupt(slot, why),
                    None => self.failed("read", source),
                })?;
                None
            }
        };
        let bytes = SlotBytes::new(self, slot, Arc::new(buffer), sectors.start);
        match unreadable {
            // The object may end before what cannot be read.
            Some(source) if self.decode_object(slot, bytes.bytes()).is_err() => {
                Err(self.corrupt(slot, format_args!("the medium cannot read it: {source}")))
            }
            _ => Ok(bytes),
        }
    }

    /// As [`read_what_can_be`], sector by sector.
    pub(super) fn read_what_can_be(
        &self,
        device: &dyn Device,
        buffer: &mut [u8],
        start: u64,
    ) -> Result<Vec<Range<u64>>> {
        let unit = self.sector_bytes as usize;
        read_what_can_be(device, buffer, start, unit).map_err(|source| self.failed("read", source))
    }

    /// Reads `slots`, which ascend, and hands over each one's bytes, or why the medium cannot read them.
    ///
    /// # Errors
    /// What the device says besides.
    pub(crate) fn read_slots(
        &self,
        tiers: &Tiers,
        slots: &[u32],
        cause: Cause,
        found: &mut dyn FnMut(u32, Result<&[u8]>),
    ) -> Result<()> {
        let device = self.metered(tiers, cause);
        let mut under_way: VecDeque<(Ticket, u64, &[u32])> = VecDeque::new();
        let mut rest = slots;
        loop {
            while !rest.is_empty() && under_way.len() < SCAN_DEPTH {
                let (count, sectors) = self.run(rest.iter().copied());
                let (run, after) = rest.split_at(count);
                rest = after;
                under_way.push_back((Self::begin_read(device.as_ref(), &sectors), sectors.start, run));
            }
            let Some((ticket, from, run)) = under_way.pop_front() else { return Ok(()) };
            let sectors = self.end_read(ticket)?;
            for slot in run {
                match &sectors {
                    Some(bytes) => {
                        let at = (self.meta.offset(*slot) - from) as usize;
                        found(*slot, Ok(&bytes[at..at + self.meta.slot_bytes as usize]));
                    }
                    None => match self.read_through(device.as_ref(), *slot) {
                        Err(error) if !error.is_corrupt() => return Err(error),
                        read => found(*slot, read.as_ref().map(SlotBytes::bytes).map_err(Clone::clone)),
                    },
                }
            }
        }
    }

    /// The object in `slot`, whose bytes these are.
    ///
    /// # Errors
    /// `Corrupt`, with slab and slot.
    pub(crate) fn decode<'a>(&self, slot: u32, bytes: &'a [u8]) -> Result<Entry<'a>> {
        self.decode_object(slot, bytes).map(|object| object.entry).map_err(|why| self.corrupt(slot, why))
    }

    /// The same for a slot that the index has for a key, which `is_its` knows. Another key's object may have the right
    /// checksum and count of uses.
    ///
    /// # Errors
    /// `Corrupt`, with slab and slot.
    pub(super) fn decode_of<'a>(
        &self,
        slot: u32,
        bytes: &'a [u8],
        is_its: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Entry<'a>> {
        let entry = self.decode(slot, bytes)?;
        match is_its(entry.key) {
            true => Ok(entry),
            false => Err(self.corrupt(
                slot,
                "the object of another key, where a later one should have been written over it",
            )),
        }
    }

    fn decode_object<'a>(&self, slot: u32, bytes: &'a [u8]) -> Decode<Object<'a>> {
        let object = decode(bytes, self.place(slot))?;
        self.check_generation(slot, object.generation).map(|()| object)
    }

    /// Header and key of the object in `slot`, whose bytes these are.
    ///
    /// # Errors
    /// `Corrupt`, with slab and slot.
    pub(crate) fn decode_head<'a>(&self, slot: u32, bytes: &'a [u8]) -> Result<Head<'a>> {
        let head = decode_head(bytes, self.place(slot)).and_then(|head| {
            self.check_generation(slot, head.generation)?;
            Ok(head)
        });
        head.map_err(|malformed| self.corrupt(slot, malformed))
    }

    /// The object in `slot`, whose bytes these are, if it was written before an edit named it; and up to which number
    /// everything was durable then. `None` for what is empty, or of an earlier use of the slot.
    ///
    /// # Errors
    /// When a checksum, which is over the place as well, does not match: torn, or another slot's bytes.
    pub(crate) fn decode_early<'a>(&self, slot: u32, bytes: &'a [u8]) -> Decode<Option<(Entry<'a>, Seq)>> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let object = decode(bytes, self.place(slot))?;
        let is_of_this_use = self.check_generation(slot, object.generation).is_ok();
        Ok(object.durable.filter(|_| is_of_this_use).map(|durable| (object.entry, durable)))
    }

    fn corrupt(&self, slot: u32, why: impl fmt::Display) -> Error {
        Error::corrupt(self.meta.file().to_string(), self.meta.offset(slot), format!("slot {slot}: {why}"))
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_larger_than_a_slab_has_one_to_itself() {
        assert_eq!(
            [64, 1088, 5000, 65_000, 1 << 20].map(|slot| slots_in(slot, 16 << 10)),
            [256, 15, 4, 4, 1]
        );
        // As many as its last page has room for.
        assert_eq!(slots_in(1088, 119_882), 112);
    }
}
