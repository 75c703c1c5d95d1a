//! One change to what exists, as the manifest records it (`docs/format/manifest.md`).
//!
//! An edit is a list of tag-length-value fields. A field that a reader must understand, and does not, makes it refuse
//! the store; any other unknown field is skipped.

use crate::error::{Error, ErrorKind, Result};
use crate::format::coding::{put_bytes, put_field, put_varint};
use crate::format::{Decode, FileId, FileKind, Malformed, Reader};
use crate::key::Seq;
use crate::profile::Profile;
use crate::range_tombstones::RangeTombstone;
use crate::store::{SlabMeta, SlotRun};
use std::fmt;
use std::ops::Range;

/// What is known of a table without opening it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub(crate) number: u64,
    /// Tier of the data part, and of the meta part.
    pub(crate) data_tier: u32,
    pub(crate) meta_tier: u32,
    /// Bytes of each part's file.
    pub(crate) data_bytes: u64,
    pub(crate) meta_bytes: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Bytes of keys and values before compression.
    pub(crate) raw_bytes: u64,
    /// First and last key, with their keyspaces.
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) smallest_seq: Seq,
    pub(crate) largest_seq: Seq,
    /// Range tombstones up to this number cover none of its entries that is older.
    pub(crate) erased: Seq,
    /// For one in persistent memory.
    pub(crate) memory: Option<InMemory>,
}

/// What is known of a table in persistent memory, besides what is known of every table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InMemory {
    /// Where each part lies, in bytes of the memory: the data part, the meta part.
    pub(crate) places: [Vec<Range<u64>>; 2],
    /// The table that it lies on and points into; 0 for none.
    pub(crate) below: u64,
}

/// One of a table's two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TablePart {
    /// Its entries.
    Data,
    /// What leads to them: index, filter and properties.
    Meta,
}

/// What an entry takes in a block besides key and value, at most.
pub(crate) const ENTRY_BYTES: u64 = 20;

impl TableMeta {
    /// The table's files: tier, name and bytes of each part.
    pub(crate) fn parts(&self) -> [(u32, FileId, u64); 2] {
        [
            (self.data_tier, FileId::new(FileKind::Data, self.number), self.data_bytes),
            (self.meta_tier, FileId::new(FileKind::Meta, self.number), self.meta_bytes),
        ]
    }

    /// One of these.
    pub(crate) fn part(&self, part: TablePart) -> (u32, FileId, u64) {
        self.parts()[part as usize]
    }

    /// The same table with one of its parts on another tier.
    pub(crate) fn with_part_on(&self, part: TablePart, tier: u32) -> Self {
        let mut meta = self.clone();
        match part {
            TablePart::Data => meta.data_tier = tier,
            TablePart::Meta => meta.meta_tier = tier,
        }
        meta
    }

    /// The table that it lies on and points into.
    pub(crate) fn below(&self) -> Option<u64> {
        self.memory.as_ref().map(|memory| memory.below).filter(|below| *below > 0)
    }

    /// Most bytes that its entries take in blocks that are not packed.
    pub(crate) fn unpacked_bytes(&self) -> u64 {
        self.data_bytes.max(self.raw_bytes + self.entries * ENTRY_BYTES)
    }

    /// What it counts in the size of its level: in persistent memory, where what leads to entries is about as much as
    /// they, both parts; else the data part.
    pub(crate) fn level_bytes(&self) -> u64 {
        if self.memory.is_some() { self.bytes() } else { self.data_bytes }
    }

    /// Bytes of both parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.data_bytes + self.meta_bytes
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.number,
            u64::from(self.data_tier),
            u64::from(self.meta_tier),
            self.data_bytes,
            self.meta_bytes,
            self.entries,
            self.tombstones,
            self.raw_bytes,
            self.smallest_seq.0,
            self.largest_seq.0,
        ] {
            put_varint(out, number);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
    }

    fn decode(reader: &mut Reader<'_>) -> Decode<Self> {
        let meta = Self {
            number: reader.number()?,
            data_tier: reader.varint_u32()?,
            meta_tier: reader.varint_u32()?,
            data_bytes: reader.number()?,
            meta_bytes: reader.number()?,
            entries: reader.number()?,
            tombstones: reader.number()?,
            raw_bytes: reader.number()?,
            smallest_seq: Seq(reader.number()?),
            largest_seq: Seq(reader.number()?),
            smallest: reader.bytes()?.to_vec(),
            largest: reader.bytes()?.to_vec(),
            erased: Seq(0),
            memory: None,
        };
        match meta.smallest <= meta.largest && meta.largest_seq <= Seq::MAX {
            true => Ok(meta),
            false => Err(Malformed(format!("table {}: its range is upside down", meta.number))),
        }
    }
}

impl InMemory {
    fn encode(&self, out: &mut Vec<u8>) {
        for pieces in &self.places {
            put_varint(out, pieces.len() as u64);
            for piece in pieces {
                put_varint(out, piece.start);
                put_varint(out, piece.end - piece.start);
            }
        }
        put_varint(out, self.below);
    }

    fn decode(reader: &mut Reader<'_>) -> Decode<Self> {
        let mut places = [Vec::new(), Vec::new()];
        for pieces in &mut places {
            for _ in 0..reader.number()? {
                let (start, bytes) = (reader.number()?, reader.number()?);
                let end = start.checked_add(bytes).filter(|end| *end > start);
                let end = end.ok_or_else(|| Malformed(format!("{bytes} bytes of memory at {start}")))?;
                pieces.push(start..end);
            }
        }
        Ok(Self { places, below: reader.number()? })
    }
}

impl fmt::Display for TableMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (smallest, largest) = (self.smallest.escape_ascii(), self.largest.escape_ascii());
        write!(f, "#{}[{smallest}..{largest} {} entries {} bytes", self.number, self.entries, self.bytes())?;
        if let Some(memory) = &self.memory {
            let start = |pieces: &Vec<Range<u64>>| pieces.first().map_or(0, |piece| piece.start);
            let [data, meta] = memory.places.each_ref().map(start);
            write!(f, ", in memory at {data} and {meta}")?;
        }
        self.below().map_or(Ok(()), |below| write!(f, ", on #{below}"))?;
        f.write_str("]")
    }
}

/// A table that an edit adds, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedTable {
    pub(crate) level: u32,
    /// Age of its run; larger is newer.
    pub(crate) age: u64,
    pub(crate) meta: TableMeta,
}

/// One atomic change. Removals come before additions, so a table that is in both has moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) added: Vec<AddedTable>,
    pub(crate) removed: Vec<u64>,
    /// Level and first key of guards that are cut off the one before, between removals and additions of tables.
    pub(crate) guards_added: Vec<(u32, Vec<u8>)>,
    /// Of guards that become part of the one before; ahead of those that are added.
    pub(crate) guards_removed: Vec<(u32, Vec<u8>)>,
    /// Logs before this number hold nothing that is not in a table.
    pub(crate) log_start: Option<u64>,
    /// Every file number below this may have been used.
    pub(crate) next_file: Option<u64>,
    /// Every sequence number up to this may have been used.
    pub(crate) last_seq: Option<Seq>,
    pub(crate) created: Vec<(u32, String)>,
    pub(crate) dropped: Vec<u32>,
    /// Keyspace ids below this were given out.
    pub(crate) next_keyspace: Option<u32>,
    /// Bytes and operations so far, by tier and cause, as [`crate::engine::stats`] encodes them.
    pub(crate) counters: Option<Vec<u8>>,
    /// How long calls took so far, as [`crate::engine::operations`] encodes it.
    pub(crate) times: Option<Vec<u8>>,
    /// What keyspaces were asked so far: id, keys looked up, entries written. Those that are not named were asked as
    /// much as the last edit that names them says.
    pub(crate) asked: Vec<(u32, u64, u64)>,
    /// What the store was made as.
    pub(crate) profile: Option<Profile>,
    pub(crate) slabs_added: Vec<SlabMeta>,
    /// After slots were freed and taken; nothing in them is live any more.
    pub(crate) slabs_removed: Vec<u64>,
    /// Range tombstones that a flush has found in its memtable.
    pub(crate) ranges_added: Vec<RangeTombstone>,
    /// The numbers of those that cover nothing any more.
    pub(crate) ranges_removed: Vec<Seq>,
    /// Slots that are live from now on, by place.
    pub(crate) taken: Vec<SlotRun>,
    /// Slots that are live no more, by place.
    pub(crate) freed: Vec<SlotRun>,
    /// Slots that may hold objects that no edit takes yet, by place.
    pub(crate) announced: Vec<SlotRun>,
    /// Slots that are announced no more, by place; ahead of those that are taken.
    pub(crate) withdrawn: Vec<SlotRun>,
    /// Slots that were written to and are of no use, by place: not live, and what is written there next is of another
    /// use.
    pub(crate) wasted: Vec<SlotRun>,
    /// How often slots were used so far, from a slab's first one on, whatever this edit takes, announces or wastes.
    pub(crate) generations: Vec<(u64, Vec<u8>)>,
    /// What lies in logs and announced slots up to this number is worth nothing: a flush has settled what became of it.
    pub(crate) flushed: Option<Seq>,
    /// The image that tells of everything up to this edit; a later edit, whatever it says, makes it worthless.
    pub(crate) image: Option<u64>,
}

mod field {
    pub(super) const ADD_TABLE: u64 = 1;
    pub(super) const REMOVE_TABLE: u64 = 2;
    pub(super) const LOG_START: u64 = 3;
    pub(super) const NEXT_FILE: u64 = 4;
    pub(super) const LAST_SEQ: u64 = 5;
    pub(super) const CREATE_KEYSPACE: u64 = 6;
    pub(super) const DROP_KEYSPACE: u64 = 7;
    pub(super) const NEXT_KEYSPACE: u64 = 8;
    pub(super) const COUNTERS: u64 = 9;
    pub(super) const ASKED: u64 = 10;
    pub(super) const TIMES: u64 = 11;
    pub(super) const PROFILE: u64 = 12;
    pub(super) const ADD_SLAB: u64 = 13;
    pub(super) const REMOVE_SLAB: u64 = 14;
    pub(super) const TAKE_SLOTS: u64 = 15;
    pub(super) const FREE_SLOTS: u64 = 16;
    pub(super) const IMAGE: u64 = 17;
    pub(super) const ADD_GUARD: u64 = 18;
    pub(super) const REMOVE_GUARD: u64 = 19;
    pub(super) const ADD_FLOOR: u64 = 20;
    pub(super) const ANNOUNCE_SLOTS: u64 = 21;
    pub(super) const WITHDRAW_SLOTS: u64 = 22;
    pub(super) const FLUSHED: u64 = 23;
    pub(super) const ADD_RANGE_TOMBSTONE: u64 = 24;
    pub(super) const REMOVE_RANGE_TOMBSTONE: u64 = 25;
    pub(super) const ERASED: u64 = 26;
    pub(super) const GENERATIONS: u64 = 27;
    pub(super) const WASTE_SLOTS: u64 = 28;
}

/// Slots of one slab, which are sorted: its number, then runs of neighbours, each the distance from the end of the run
/// before and its length.
fn put_slots(out: &mut Vec<u8>, runs: &[SlotRun]) {
    put_varint(out, runs[0].slab);
    let mut end = 0;
    for run in runs {
        put_varint(out, u64::from(run.from - end));
        put_varint(out, u64::from(run.len));
        end = run.from + run.len;
    }
}

fn take_slots(body: &mut Reader<'_>, runs: &mut Vec<SlotRun>) -> Decode<()> {
    let slab = body.number()?;
    let mut end = 0u32;
    while !body.is_empty() {
        let (gap, len) = (body.varint_u32()?, body.varint_u32()?);
        let from = end.checked_add(gap).filter(|_| len > 0);
        let (Some(from), Some(after)) = (from, end.checked_add(gap).and_then(|from| from.checked_add(len)))
        else {
            return Err(Malformed(format!("slab {slab}: a run of {len} slots, {gap} after {end}")));
        };
        end = after;
        runs.push(SlotRun { slab, from, len });
    }
    Ok(())
}

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut body = Vec::new();
        let mut put = |number: u64, must: bool, write: &dyn Fn(&mut Vec<u8>)| {
            body.clear();
            write(&mut body);
            put_field(&mut out, number, must, &body);
        };
        let varint = |value: u64| move |out: &mut Vec<u8>| put_varint(out, value);
        for number in &self.removed {
            put(field::REMOVE_TABLE, true, &varint(*number));
        }
        let guards = [(field::REMOVE_GUARD, &self.guards_removed), (field::ADD_GUARD, &self.guards_added)];
        for (number, (level, start)) in
            guards.into_iter().flat_map(|(number, guards)| guards.iter().map(move |guard| (number, guard)))
        {
            put(number, true, &|out| {
                put_varint(out, u64::from(*level));
                put_bytes(out, start);
            });
        }
        for added in &self.added {
            let memory = &added.meta.memory;
            put(if memory.is_some() { field::ADD_FLOOR } else { field::ADD_TABLE }, true, &|out| {
                put_varint(out, u64::from(added.level));
                put_varint(out, added.age);
                added.meta.encode(out);
                memory.iter().for_each(|memory| memory.encode(out));
            });
            if added.meta.erased > Seq(0) {
                put(field::ERASED, false, &varint(added.meta.erased.0));
            }
        }
        for tombstone in &self.ranges_added {
            put(field::ADD_RANGE_TOMBSTONE, true, &|out| {
                put_varint(out, tombstone.seq.0);
                put_bytes(out, &tombstone.from);
                put_bytes(out, &tombstone.to);
            });
        }
        for seq in &self.ranges_removed {
            put(field::REMOVE_RANGE_TOMBSTONE, true, &varint(seq.0));
        }
        for (id, name) in &self.created {
            put(field::CREATE_KEYSPACE, true, &|out| {
                put_varint(out, u64::from(*id));
                put_bytes(out, name.as_bytes());
            });
        }
        for id in &self.dropped {
            put(field::DROP_KEYSPACE, true, &varint(u64::from(*id)));
        }
        let numbers = [
            (field::LOG_START, self.log_start),
            (field::NEXT_FILE, self.next_file),
            (field::LAST_SEQ, self.last_seq.map(|seq| seq.0)),
            (field::NEXT_KEYSPACE, self.next_keyspace.map(u64::from)),
            (field::FLUSHED, self.flushed.map(|seq| seq.0)),
        ];
        for (number, value) in numbers {
            if let Some(value) = value {
                put(number, true, &varint(value));
            }
        }
        if let Some(profile) = self.profile {
            put(field::PROFILE, true, &|out| out.extend_from_slice(profile.name().as_bytes()));
        }
        for slab in &self.slabs_added {
            put(field::ADD_SLAB, true, &|out| {
                [slab.number, slab.slot_bytes, u64::from(slab.slots)]
                    .into_iter()
                    .for_each(|n| put_varint(out, n));
            });
        }
        let slots = [
            (field::WITHDRAW_SLOTS, &self.withdrawn),
            (field::FREE_SLOTS, &self.freed),
            (field::TAKE_SLOTS, &self.taken),
            (field::ANNOUNCE_SLOTS, &self.announced),
            (field::WASTE_SLOTS, &self.wasted),
        ];
        for (number, slots) in slots {
            for of_slab in slots.chunk_by(|a, b| a.slab == b.slab) {
                put(number, true, &|out| put_slots(out, of_slab));
            }
        }
        for (slab, counts) in &self.generations {
            put(field::GENERATIONS, true, &|out| {
                put_varint(out, *slab);
                out.extend_from_slice(counts);
            });
        }
        for number in &self.slabs_removed {
            put(field::REMOVE_SLAB, true, &varint(*number));
        }
        for (number, bytes) in [(field::COUNTERS, &self.counters), (field::TIMES, &self.times)] {
            if let Some(bytes) = bytes {
                put(number, false, &|out| out.extend_from_slice(bytes));
            }
        }
        if let Some(image) = self.image {
            put(field::IMAGE, false, &varint(image));
        }
        for (id, gets, written) in &self.asked {
            put(field::ASKED, false, &|out| {
                [u64::from(*id), *gets, *written].into_iter().for_each(|number| put_varint(out, number));
            });
        }
        out
    }

    /// Reads an edit of `file` at `offset`.
    pub(crate) fn decode(bytes: &[u8], file: &str, offset: u64) -> Result<Self> {
        let mut edit = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let field = reader.field().map_err(|malformed| Error::corrupt(file, offset, malformed))?;
            match edit.take(field.number, Reader::new(field.body)) {
                Ok(true) => {}
                Ok(false) if field.must_understand => {
                    let message =
                        format!("{file} uses feature {} of a newer version of this store", field.number);
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                Ok(false) => {}
                Err(malformed) => return Err(Error::corrupt(file, offset, malformed)),
            }
        }
        Ok(edit)
    }

    /// Takes one field in; `false` when its number is not known.
    fn take(&mut self, number: u64, mut body: Reader<'_>) -> Decode<bool> {
        match number {
            field::ADD_TABLE | field::ADD_FLOOR => {
                let (level, age) = (body.varint_u32()?, body.number()?);
                let mut meta = TableMeta::decode(&mut body)?;
                if number == field::ADD_FLOOR {
                    meta.memory = Some(InMemory::decode(&mut body)?);
                }
                self.added.push(AddedTable { level, age, meta });
            }
            field::REMOVE_TABLE => self.removed.push(body.number()?),
            field::LOG_START => self.log_start = Some(body.number()?),
            field::NEXT_FILE => self.next_file = Some(body.number()?),
            field::LAST_SEQ => self.last_seq = Some(Seq(body.number()?)),
            field::CREATE_KEYSPACE => {
                let id = body.varint_u32()?;
                self.created.push((id, body.text()?.to_owned()));
            }
            field::DROP_KEYSPACE => self.dropped.push(body.varint_u32()?),
            field::NEXT_KEYSPACE => self.next_keyspace = Some(body.varint_u32()?),
            field::COUNTERS => {
                self.counters = Some(body.rest().to_vec());
                return Ok(true);
            }
            field::TIMES => {
                self.times = Some(body.rest().to_vec());
                return Ok(true);
            }
            field::ASKED => self.asked.push((body.varint_u32()?, body.number()?, body.number()?)),
            field::PROFILE => {
                let name = std::str::from_utf8(body.rest()).ok();
                let profile = name.and_then(|name| name.parse().ok());
                self.profile = Some(profile.ok_or_else(|| Malformed::new("a profile that is not known"))?);
                return Ok(true);
            }
            field::ADD_SLAB => {
                let (number, slot_bytes, slots) = (body.number()?, body.number()?, body.varint_u32()?);
                let slab = SlabMeta { number, slot_bytes, slots };
                if !slab.is_sane() {
                    return Err(Malformed(format!("{slab}: that cannot be")));
                }
                self.slabs_added.push(slab);
            }
            field::REMOVE_SLAB => self.slabs_removed.push(body.number()?),
            field::TAKE_SLOTS => take_slots(&mut body, &mut self.taken)?,
            field::FREE_SLOTS => take_slots(&mut body, &mut self.freed)?,
            field::ANNOUNCE_SLOTS => take_slots(&mut body, &mut self.announced)?,
            field::WITHDRAW_SLOTS => take_slots(&mut body, &mut self.withdrawn)?,
            field::WASTE_SLOTS => take_slots(&mut body, &mut self.wasted)?,
            field::GENERATIONS => {
                self.generations.push((body.number()?, body.rest().to_vec()));
                return Ok(true);
            }
            field::FLUSHED => self.flushed = Some(Seq(body.number()?)),
            field::ADD_RANGE_TOMBSTONE => {
                let (seq, from, to) = (Seq(body.number()?), body.bytes()?, body.bytes()?);
                if from >= to || seq > Seq::MAX {
                    return Err(Malformed(format!("range tombstone {seq:?}: its range is upside down")));
                }
                self.ranges_added.push(RangeTombstone { seq, from: from.into(), to: to.into() });
            }
            field::REMOVE_RANGE_TOMBSTONE => self.ranges_removed.push(Seq(body.number()?)),
            field::ERASED => {
                let erased = Seq(body.number()?);
                let added = self.added.last_mut();
                added.ok_or_else(|| Malformed::new("what is erased of no table"))?.meta.erased = erased;
            }
            field::IMAGE => self.image = Some(body.number()?),
            field::ADD_GUARD => self.guards_added.push((body.varint_u32()?, body.bytes()?.to_vec())),
            field::REMOVE_GUARD => self.guards_removed.push((body.varint_u32()?, body.bytes()?.to_vec())),
            _ => return Ok(false),
        }
        body.finish()?;
        Ok(true)
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.removed.iter().map(|number| format!("remove table {number}")));
        for (verb, guards) in [("remove", &self.guards_removed), ("add", &self.guards_added)] {
            let word = |(level, start): &(u32, Vec<u8>)| {
                format!("{verb} guard of level {level} from {}", start.escape_ascii())
            };
            words.extend(guards.iter().map(word));
        }
        let added = |a: &AddedTable| format!("add to level {} (age {}) {}", a.level, a.age, a.meta);
        words.extend(self.added.iter().map(added));
        words.extend(self.ranges_added.iter().map(|tombstone| format!("add range tombstone {tombstone}")));
        words.extend(self.ranges_removed.iter().map(|seq| format!("remove range tombstone {seq:?}")));
        words.extend(self.created.iter().map(|(id, name)| format!("create keyspace {id} {name:?}")));
        words.extend(self.dropped.iter().map(|id| format!("drop keyspace {id}")));
        words.extend(self.log_start.map(|number| format!("log starts at {number}")));
        words.extend(self.next_file.map(|number| format!("next file {number}")));
        words.extend(self.last_seq.map(|seq| format!("last number {seq:?}")));
        words.extend(self.next_keyspace.map(|id| format!("next keyspace {id}")));
        words.extend(self.counters.as_ref().map(|counters| format!("counters ({} bytes)", counters.len())));
        words.extend(self.times.as_ref().map(|times| format!("times ({} bytes)", times.len())));
        let asked = |(id, gets, written): &(u32, u64, u64)| {
            format!("keyspace {id} was asked {gets} gets and {written} writes")
        };
        words.extend(self.asked.iter().map(asked));
        words.extend(self.profile.map(|profile| format!("profile {profile}")));
        words.extend(self.slabs_added.iter().map(|slab| format!("add {slab}")));
        words.extend(self.flushed.map(|seq| format!("flushed up to {seq:?}")));
        let slots = [
            ("withdraw", &self.withdrawn),
            ("free", &self.freed),
            ("take", &self.taken),
            ("announce", &self.announced),
            ("waste", &self.wasted),
        ];
        for (verb, slots) in slots {
            let of_slab = |runs: &[SlotRun]| {
                let slots = runs.iter().map(|run| match run.len {
                    1 => run.from.to_string(),
                    len => format!("{}-{}", run.from, run.from + len - 1),
                });
                format!("{verb} slots {} of slab {}", slots.collect::<Vec<_>>().join(" "), runs[0].slab)
            };
            words.extend(slots.chunk_by(|a, b| a.slab == b.slab).map(of_slab));
        }
        let used = |(slab, counts): &(u64, Vec<u8>)| {
            format!(
                "uses of {} slots of slab {slab}, {} at most",
                counts.len(),
                counts.iter().max().unwrap_or(&0)
            )
        };
        words.extend(self.generations.iter().map(used));
        words.extend(self.slabs_removed.iter().map(|number| format!("remove slab {number}")));
        words.extend(self.image.map(|number| format!("image {number}")));
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(slab: u64, from: u32, len: u32) -> SlotRun {
        SlotRun { slab, from, len }
    }

    fn sample() -> Edit {
        let meta = TableMeta {
            number: 300,
            data_tier: 1,
            data_bytes: 1 << 40,
            meta_bytes: 4096,
            entries: 12,
            smallest: b"a".to_vec(),
            largest: b"b".to_vec(),
            smallest_seq: Seq(1),
            largest_seq: Seq::MAX,
            ..TableMeta::default()
        };
        let places = [vec![1 << 33..1 << 40, 8192..12288], vec![4096..8192, 0..4096]];
        let memory = Some(InMemory { places, below: 299 });
        let floor = TableMeta { memory, erased: Seq(55), ..meta.clone() };
        Edit {
            added: vec![AddedTable { level: 3, age: 9, meta }, AddedTable { level: 4, age: 0, meta: floor }],
            removed: vec![1, 2],
            guards_added: vec![(3, b"am".to_vec()), (3, vec![0xff; 200])],
            guards_removed: vec![(7, b"x".to_vec())],
            log_start: Some(4),
            next_file: Some(301),
            last_seq: Some(Seq(77)),
            created: vec![(2, "späte Ernte".to_owned())],
            dropped: vec![1],
            next_keyspace: Some(3),
            counters: Some(vec![1, 2, 3]),
            times: Some(vec![4, 5]),
            asked: vec![(0, 7, 1 << 40), (2, 0, 3)],
            profile: Some(Profile::PrismDb),
            slabs_added: vec![SlabMeta { number: 9, slot_bytes: 1152, slots: 700 }],
            slabs_removed: vec![3],
            ranges_added: vec![
                RangeTombstone { seq: Seq(60), from: (*b"a").into(), to: (*b"b\xff").into() },
                RangeTombstone { seq: Seq(1 << 50), from: (*b"").into(), to: (*b"\0").into() },
            ],
            ranges_removed: vec![Seq(9), Seq(1 << 40)],
            taken: vec![run(9, 0, 3), run(9, 7, 1), run(9, 699, 1)],
            freed: vec![run(3, 5, 1), run(8, 1, 1), run(8, 4, 2)],
            announced: vec![run(9, 100, 300)],
            withdrawn: vec![run(9, 0, 4), run(10, 1, 1)],
            wasted: vec![run(9, 400, 2)],
            generations: vec![(8, vec![0, 1, 255]), (9, vec![])],
            flushed: Some(Seq(70)),
            image: Some(302),
        }
    }

    #[test]
    fn an_edit_is_read_back() {
        let edit = sample();
        assert_eq!(Edit::decode(&edit.encode(), "m", 0).unwrap(), edit);
        assert_eq!(Edit::decode(&[], "m", 0).unwrap(), Edit::default());
    }

    #[test]
    fn a_cut_edit_is_refused_or_ends_at_a_field() {
        let bytes = sample().encode();
        let refused = (1..bytes.len()).filter(|end| Edit::decode(&bytes[..*end], "m", 7).is_err()).count();
        assert!(refused > bytes.len() / 2);
    }

    #[test]
    fn what_must_be_understood_is_refused_and_the_rest_skipped() {
        let mut bytes = sample().encode();
        put_field(&mut bytes, 99, false, b"new");
        assert_eq!(Edit::decode(&bytes, "m", 0).unwrap(), sample());
        put_field(&mut bytes, 99, true, b"new");
        assert_eq!(*Edit::decode(&bytes, "m", 0).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
