//! The image: what memory has of the store, written down at a clean close and read at the next open, so that this one
//! need not read every slot, and heat outlives it (`docs/format/image.md`).
//!
//! The last edit before the close names the image, and any further edit makes it worthless; so what it says of slots is
//! what the manifest says, or nothing. An open checks that all the same, slot by slot, and whatever it does not like
//! about an image makes it read the slabs. An image serves once: the open that has read it removes it.
//!
//! It lies on the last tier: one sequential read is what that one is good at, and room on the first is dear. Where
//! there is no room, or the write fails, the store is closed without one. Memory: one group of records in writing, one
//! window in reading, besides what is made of it. Bytes: about those that the index and the tracker take in memory.

use super::Engine;
use crate::error::{Error, Result};
use crate::format::coding::{put_bytes, put_varint};
use crate::format::file::encode_header;
use crate::format::record::{RecordKind, encode_record};
use crate::format::{Decode, FileId, FileKind, Malformed, Place, Position, Reader, StoreId};
use crate::key::Seq;
use crate::log::{RecordReader, Step};
use crate::planted::{self, Bug};
use crate::store::{Index, IndexBuilder, Location, SlabState, Slots, shared_prefix};
use crate::tier::{Tier, Tiers};
use crate::tracker::Tracker;
use cuesta_device::{Access, Cause, Device};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A record ends once its payload has so many bytes.
const RECORD_BYTES: usize = 64 << 10;
/// Records are written once they have so many bytes together.
const GROUP_BYTES: usize = 1 << 20;

/// What an image tells.
#[derive(Debug)]
pub(crate) struct Image {
    /// `None` when it is not of exactly the live slots.
    pub(crate) index: Option<Index>,
    pub(crate) heat: Heat,
}

/// What a tracker knew: its room and its seed, its words, and those of its counts.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    pub(in crate::engine) capacity: u64,
    pub(in crate::engine) seed: u64,
    pub(in crate::engine) words: Vec<u64>,
    pub(in crate::engine) counted: Vec<u64>,
}

/// The tier that images lie on.
pub(crate) fn tier_of(tiers: &Tiers) -> &Tier {
    &tiers.all[tiers.all.len() - 1]
}

/// Appends records to a new image.
struct Writer<'a> {
    tier: &'a Tier,
    device: Arc<dyn Device>,
    place: Place,
    group: Vec<u8>,
    /// Bytes counted on the tier.
    counted: u64,
}

impl Writer<'_> {
    fn push(&mut self, kind: RecordKind, entries: u32, payload: &mut Vec<u8>) -> Result<()> {
        let place = self.place.at(self.place.offset + self.group.len() as u64);
        let record = encode_record(place, kind, (Seq(0), entries), payload, Position::default());
        self.group.extend_from_slice(&record);
        payload.clear();
        if self.group.len() >= GROUP_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let bytes = self.group.len() as u64;
        self.tier.lease(bytes)?.settle(bytes);
        self.counted += bytes;
        let written = self.device.write_at(&self.group, self.place.offset);
        written.map_err(|source| Error::io(format!("write {}", self.place.file), source))?;
        self.place.offset += bytes;
        self.group.clear();
        Ok(())
    }

    fn heat(&mut self, tracker: &Tracker) -> Result<()> {
        let mut payload = Vec::with_capacity(RECORD_BYTES);
        for word in tracker.words() {
            if payload.is_empty() {
                payload.extend_from_slice(&tracker.capacity().to_le_bytes());
                payload.extend_from_slice(&tracker.seed().to_le_bytes());
            }
            payload.extend_from_slice(&word.to_le_bytes());
            if payload.len() >= RECORD_BYTES {
                self.push(RecordKind::Heat, 0, &mut payload)?;
            }
        }
        if !payload.is_empty() {
            self.push(RecordKind::Heat, 0, &mut payload)?;
        }
        for word in tracker.counted() {
            payload.extend_from_slice(&word.to_le_bytes());
            if payload.len() >= RECORD_BYTES {
                self.push(RecordKind::Counts, 0, &mut payload)?;
            }
        }
        if payload.is_empty() { Ok(()) } else { self.push(RecordKind::Counts, 0, &mut payload) }
    }

    fn index(&mut self, index: &Index) -> Result<()> {
        let (mut payload, mut entries) = (Vec::with_capacity(RECORD_BYTES), 0);
        let (mut at, mut key, mut before) = (index.first(), Vec::new(), Vec::new());
        while let Some(location) = index.entry_to(at, &mut key) {
            let shared = if entries == 0 { 0 } else { shared_prefix(&before, &key) };
            put_varint(&mut payload, shared as u64);
            put_bytes(&mut payload, &key[shared..]);
            location.put(&mut payload);
            entries += 1;
            if payload.len() >= RECORD_BYTES {
                self.push(RecordKind::Index, std::mem::take(&mut entries), &mut payload)?;
            }
            std::mem::swap(&mut before, &mut key);
            at = index.next(at);
        }
        if entries == 0 { Ok(()) } else { self.push(RecordKind::Index, entries, &mut payload) }
    }
}

impl Engine {
    /// Writes the image of the present contents: its number, which an edit is to name. `None` when there is no store,
    /// or the image could not be written: nobody has been promised one, so the close goes on.
    pub(in crate::engine) fn write_image(&self) -> Option<u64> {
        let current = self.current.load_full();
        let tracker = current.tracker.as_ref()?;
        let number = self.catalog.lock().take_file_number();
        let file = FileId::new(FileKind::Image, number);
        let tier = tier_of(&self.tiers);
        let device = tier.directory.create(&file.to_string(), Access::Buffered).ok()?;
        let device = self.tiers.metered(device, tier.ordinal, Cause::Manifest);
        let place = Place { store: self.store, file, offset: 0 };
        let group = encode_header(self.store, file).to_vec();
        // Records behind a header that is written with the first of them.
        let mut writer = Writer { tier, device, place, group, counted: 0 };
        let written = writer.heat(tracker).and_then(|()| {
            // Slots that could not be read when the store was opened are in no index: the next open has to meet them
            // again.
            if current.contents.damaged.slots == 0 {
                writer.index(&current.contents.index)?;
            }
            writer.write()?;
            writer.device.sync().map_err(|source| Error::io(format!("sync {file}"), source))
        });
        if written.is_err() {
            tier.uncount(writer.counted);
            // What cannot be removed is an orphan, and the next open removes it.
            drop(tier.remove(file));
            return None;
        }
        Some(number)
    }
}

/// Takes the entries of one record in.
fn take_entries(
    payload: &[u8],
    entries: u32,
    live: &mut BTreeMap<u64, Slots>,
    made: &mut IndexBuilder,
    last: &mut Vec<u8>,
) -> Decode<()> {
    let (mut reader, mut key) = (Reader::new(payload), Vec::new());
    for _ in 0..entries {
        let (shared, rest) = (reader.number()? as usize, reader.bytes()?);
        if shared > key.len() {
            return Err(Malformed(format!("a key shares {shared} bytes with one of {}", key.len())));
        }
        key.truncate(shared);
        key.extend_from_slice(rest);
        if key < *last {
            return Err(Malformed::new("keys are not in order"));
        }
        let location = Location::take(&mut reader)?;
        let is_live = live.get_mut(&location.slab).is_some_and(|slots| slots.remove(location.slot));
        if !is_live && !planted::has(Bug::OldImageBelieved) {
            return Err(Malformed(format!("{location:?} is not live, or named twice")));
        }
        made.push(&key, location);
        last.clone_from(&key);
    }
    reader.finish()
}

fn take_words(mut from: Reader<'_>, words: &mut Vec<u64>) -> Decode<()> {
    while !from.is_empty() {
        words.push(from.u64()?);
    }
    Ok(())
}

/// Reads image `number`.
///
/// # Errors
/// What the device says, `Corrupt` when a record is damaged or does not fit the live slots.
pub(crate) fn read_image(
    tiers: &Tiers,
    store: StoreId,
    number: u64,
    slabs: &BTreeMap<u64, SlabState>,
    cause: Cause,
) -> Result<Image> {
    let (file, tier) = (FileId::new(FileKind::Image, number), tier_of(tiers));
    let device = tier.directory.open(&file.to_string(), Access::Buffered);
    let device = device.map_err(|source| Error::io(format!("open {file}"), source))?;
    let device = tiers.metered(device, tier.ordinal, cause);
    let bytes = device.len().map_err(|source| Error::io(format!("measure {file}"), source))?;
    let mut reader = RecordReader::open(store, file, device)?;
    let mut live: BTreeMap<u64, Slots> =
        slabs.iter().map(|(number, slab)| (*number, slab.live.clone())).collect();
    let (mut made, mut last, mut entries) = (IndexBuilder::default(), Vec::new(), 0);
    let mut heat = Heat::default();
    while reader.position().offset < bytes {
        let at = reader.position().offset;
        let corrupt = |why: Malformed| Error::corrupt(file.to_string(), at, why);
        let header = match reader.step()? {
            Step::Record(header) => header,
            Step::Bad(why) => return Err(corrupt(Malformed(why))),
        };
        let payload = reader.payload()?;
        match header.known_kind(file)? {
            Some(RecordKind::Heat) => {
                let mut numbers = Reader::new(payload);
                let mut number = || numbers.u64().map_err(corrupt);
                (heat.capacity, heat.seed) = (number()?, number()?);
                take_words(numbers, &mut heat.words).map_err(corrupt)?;
            }
            Some(RecordKind::Counts) => {
                take_words(Reader::new(payload), &mut heat.counted).map_err(corrupt)?;
            }
            Some(RecordKind::Index) => {
                entries += u64::from(header.entries);
                take_entries(payload, header.entries, &mut live, &mut made, &mut last).map_err(corrupt)?;
            }
            None => {}
            Some(other) => return Err(corrupt(Malformed(format!("a {other:?} record in an image")))),
        }
    }
    let left: u64 = live.values().map(|slots| u64::from(slots.count())).sum();
    if left > 0 && entries > 0 && !planted::has(Bug::OldImageBelieved) {
        return Err(Error::corrupt(file.to_string(), bytes, format!("{left} live slots are missing")));
    }
    let is_whole = left == 0 || planted::has(Bug::OldImageBelieved);
    Ok(Image { index: is_whole.then(|| made.finish()), heat })
}
