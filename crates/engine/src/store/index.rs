//! The index: every key of the store and the slots of its versions, in key order.
//!
//! A value, not a place: [`Index::changed`] makes another one, which shares every leaf that the changes leave alone. So
//! readers take no lock, and whoever holds an index may look into it for as long as it likes.
//!
//! Entries lie in leaves of one or two pages, each one run of bytes: the prefix that all its keys have, then per entry
//! the rest of the key, the slab and the slot. A lookup is a binary search over the leaves' first keys and one in a
//! leaf; an entry takes its key's rest, and about ten bytes. A change costs a copy of each leaf that it falls into, and
//! of the list of leaves. A leaf that is nearly full afterwards is copied by runs of entries ([`Leaf::changed`]),
//! another one entry by entry, together with its neighbours. Versions of a key stand next to each other, newest first,
//! and never in two leaves.

use crate::format::coding::{put_bytes, put_varint};
use crate::format::{Decode, Reader};
use cuesta_device::{ALIGNMENT, AlignedBuf, ByteBuf, PageVec};
use cuesta_sched::Rng;
use cuesta_sched::atomic::{AtomicU64, Ordering};
use std::cmp;
use std::fmt;
use std::sync::Arc;

/// Bytes that a leaf has at most, unless one key has more: pieces of one and of two pages are what it is kept in.
const LEAF_BYTES: usize = 2 * ALIGNMENT;
/// A leaf that has become smaller is joined with what follows.
const LEAF_BYTES_MIN: usize = ALIGNMENT / 2;
/// A changed leaf stays by itself while it fills so much of its pages: else memory would be lost to half-full ones.
const LEAF_FILL: (usize, usize) = (3, 4);

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location {
    /// Number of the slab's file.
    pub(crate) slab: u64,
    pub(crate) slot: u32,
    pub(crate) holds: Holds,
}

/// What a slot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holds {
    #[default]
    Value,
    Tombstone,
    /// A value that a table has as well, in the same version.
    Copy,
}

impl Location {
    /// The same, when tables may no longer have what it holds.
    pub(crate) fn owned(self) -> Self {
        let holds = if self.holds == Holds::Copy { Holds::Value } else { self.holds };
        Self { holds, ..self }
    }
}

impl Holds {
    fn of_bits(bits: u64) -> Self {
        [Self::Value, Self::Tombstone, Self::Copy][(bits % 4).min(2) as usize]
    }
}

impl Location {
    /// Slab, slot and what the slot holds, as two numbers.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.slab);
        put_varint(out, 4 * u64::from(self.slot) + self.holds as u64);
    }

    /// As [`Location::put`] wrote it.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Decode<Self> {
        let (slab, slot) = (reader.varint()?, reader.varint()?);
        Ok(Self { slab, slot: (slot / 4) as u32, holds: Holds::of_bits(slot) })
    }
}

/// Keys and locations; see the module's head.
#[derive(Clone, Default)]
pub(crate) struct Index {
    leaves: Vec<Arc<Leaf>>,
    entries: u64,
    bytes: u64,
    /// Bytes of all leaves that it, those that it came from, and those that were made of it have made, and that are
    /// there.
    there: Arc<AtomicU64>,
}

/// A place in an index: before its end, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    leaf: usize,
    entry: usize,
}

/// At least one entry. In pages of its own, since a heap that serves many threads would grow with what each change of
/// the index leaves behind.
struct Leaf {
    /// The prefix; per entry: varint length of the key's rest, the rest, varint slab, varint four times the slot and
    /// what it holds; then where each entry begins, as u32.
    bytes: AlignedBuf,
    prefix: usize,
    /// Where the list of beginnings begins.
    starts: usize,
    len: usize,
    tombstones: u64,
    copies: u64,
    /// Where its bytes are counted as long as it is there.
    there: Arc<AtomicU64>,
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.there.fetch_sub(self.held_bytes(), Ordering::Relaxed);
    }
}

impl Leaf {
    fn prefix(&self) -> &[u8] {
        &self.bytes[..self.prefix]
    }

    /// Rest of the key, and the location, of entry `i`.
    fn entry(&self, i: usize) -> (&[u8], Location) {
        let read = || -> Decode<_> {
            let start = Reader::new(&self.bytes[self.starts + 4 * i..]).u32()?;
            let mut reader = Reader::new(&self.bytes[start as usize..self.starts]);
            let rest = reader.bytes()?;
            Ok((rest, Location::take(&mut reader)?))
        };
        // Written by `LeafBytes`, and never on media.
        read().unwrap_or_else(|malformed| unreachable!("a leaf that cannot be read: {malformed}"))
    }

    fn len(&self) -> usize {
        self.len
    }

    /// How entry `i`'s key compares with `key`.
    fn compare(&self, i: usize, key: &[u8]) -> cmp::Ordering {
        let shared = self.prefix.min(key.len());
        self.bytes[..shared].cmp(&key[..shared]).then_with(|| match key.get(self.prefix..) {
            Some(rest) => self.entry(i).0.cmp(rest),
            None => cmp::Ordering::Greater,
        })
    }

    /// The first entry whose key is at or after `key`; as many as there are if none is.
    fn seek(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, key) {
                cmp::Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Where entry `i` begins, or the last one ends.
    fn start(&self, i: usize) -> usize {
        let at = self.starts + 4 * i;
        let start = self.bytes[at..].first_chunk().filter(|_| i < self.len);
        start.map_or(self.starts, |start| u32::from_le_bytes(*start) as usize)
    }

    /// The leaf after changes to keys that belong into it, if it is one to be kept by itself then: nearly full, of the
    /// same prefix.
    fn changed(&self, changes: &[(&[u8], &[Location])]) -> Option<Self> {
        let prefix = self.prefix();
        if !changes.iter().all(|(key, _)| key.starts_with(prefix)) {
            return None;
        }
        let mut made = LeafBytes::with(prefix);
        let mut holds = [0, self.tombstones, self.copies];
        let mut from = 0;
        for (key, locations) in changes {
            let at = self.seek(key);
            made.copy(self, from..at);
            from = at;
            while from < self.len() && self.compare(from, key) == cmp::Ordering::Equal {
                if let Some(count) = holds.get_mut(self.entry(from).1.holds as usize).filter(|n| **n > 0) {
                    *count -= 1;
                }
                from += 1;
            }
            for location in *locations {
                made.push(&key[prefix.len()..], *location);
                holds[location.holds as usize] += 1;
            }
        }
        made.copy(self, from..self.len());
        let (bytes, pages) = (made.len(), made.len().next_multiple_of(ALIGNMENT));
        let is_full = bytes <= LEAF_BYTES && bytes * LEAF_FILL.1 >= pages * LEAF_FILL.0;
        (is_full && !made.starts.is_empty())
            .then(|| made.leaf(prefix.len(), holds[1], holds[2], self.there.clone()))
    }

    fn key_to(&self, i: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.entry(i).0);
    }

    /// Bytes of memory, the list's pointer to it included.
    fn held_bytes(&self) -> u64 {
        (self.bytes.len() + size_of::<Self>() + 3 * size_of::<usize>()) as u64
    }
}

/// A leaf in the making.
struct LeafBytes {
    /// The prefix, and the entries.
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl LeafBytes {
    fn with(prefix: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(LEAF_BYTES);
        bytes.extend_from_slice(prefix);
        Self { bytes, starts: Vec::with_capacity(LEAF_BYTES / 16) }
    }

    fn len(&self) -> usize {
        self.bytes.len() + 4 * self.starts.len()
    }

    fn push(&mut self, rest: &[u8], location: Location) {
        self.starts.push(self.bytes.len() as u32);
        put_bytes(&mut self.bytes, rest);
        location.put(&mut self.bytes);
    }

    /// Takes over entries of a leaf of the same prefix.
    fn copy(&mut self, leaf: &Leaf, entries: std::ops::Range<usize>) {
        let (from, to) = (leaf.start(entries.start), leaf.start(entries.end));
        let at = self.bytes.len();
        let starts = &leaf.bytes[leaf.starts + 4 * entries.start..leaf.starts + 4 * entries.end];
        let (starts, _) = starts.as_chunks();
        self.starts
            .extend(starts.iter().map(|start| (u32::from_le_bytes(*start) as usize - from + at) as u32));
        self.bytes.extend_from_slice(&leaf.bytes[from..to]);
    }

    fn leaf(self, prefix: usize, tombstones: u64, copies: u64, there: Arc<AtomicU64>) -> Leaf {
        let (len, starts) = (self.starts.len(), self.bytes.len());
        let mut bytes = AlignedBuf::zeroed(self.len());
        bytes[..starts].copy_from_slice(&self.bytes);
        for (place, start) in bytes[starts..].chunks_exact_mut(4).zip(self.starts) {
            place.copy_from_slice(&start.to_le_bytes());
        }
        let leaf = Leaf { bytes, prefix, starts, len, tombstones, copies, there };
        leaf.there.fetch_add(leaf.held_bytes(), Ordering::Relaxed);
        leaf
    }
}

impl Index {
    /// Versions of all keys.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Memory that it takes, leaves that others share included.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes
    }

    /// The same with leaves that have been replaced, and that somebody holds still; and with those of changes that are
    /// under way.
    #[cfg(test)]
    fn bytes_there(&self) -> u64 {
        self.there.load(Ordering::Relaxed)
    }

    /// Where leaves of this index, of those that it came from and of those that are made of it count, as long as
    /// somebody has them.
    pub(crate) fn there(&self) -> &Arc<AtomicU64> {
        &self.there
    }

    pub(crate) fn first(&self) -> Position {
        Position { leaf: 0, entry: 0 }
    }

    pub(crate) fn end(&self) -> Position {
        Position { leaf: self.leaves.len(), entry: 0 }
    }

    /// The first entry whose key is at or after `key`.
    pub(crate) fn seek(&self, key: &[u8]) -> Position {
        // The last leaf that begins before the key: it may hold it, or end before it.
        let after = self.leaves.partition_point(|leaf| leaf.compare(0, key) == cmp::Ordering::Less);
        let Some(leaf) = after.checked_sub(1) else { return self.first() };
        let entry = self.leaves[leaf].seek(key);
        match entry < self.leaves[leaf].len() {
            true => Position { leaf, entry },
            false => Position { leaf: leaf + 1, entry: 0 },
        }
    }

    /// The entry after `at`, or the end.
    pub(crate) fn next(&self, at: Position) -> Position {
        match self.leaves.get(at.leaf) {
            Some(leaf) if at.entry + 1 < leaf.len() => Position { entry: at.entry + 1, ..at },
            Some(_) => Position { leaf: at.leaf + 1, entry: 0 },
            None => at,
        }
    }

    /// The entry before `at`.
    pub(crate) fn prev(&self, at: Position) -> Option<Position> {
        match at.entry.checked_sub(1) {
            Some(entry) => Some(Position { entry, ..at }),
            None => {
                let leaf = at.leaf.checked_sub(1)?;
                Some(Position { leaf, entry: self.leaves[leaf].len() - 1 })
            }
        }
    }

    /// What is at `at`: the key into the buffer, and its location; `None` at the end.
    pub(crate) fn entry_to(&self, at: Position, key: &mut Vec<u8>) -> Option<Location> {
        let leaf = self.leaves.get(at.leaf)?;
        leaf.key_to(at.entry, key);
        Some(leaf.entry(at.entry).1)
    }

    /// Whether the key at a position is this one.
    pub(crate) fn is_at(&self, at: Position, key: &[u8]) -> bool {
        self.leaves.get(at.leaf).is_some_and(|leaf| leaf.compare(at.entry, key) == cmp::Ordering::Equal)
    }

    /// Where the object at a position lies.
    pub(crate) fn location(&self, at: Position) -> Option<Location> {
        Some(self.leaves.get(at.leaf)?.entry(at.entry).1)
    }

    /// Where the versions of `key` lie, newest first.
    pub(crate) fn locations<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = Location> + 'a {
        let mut at = self.seek(key);
        std::iter::from_fn(move || {
            let leaf = self.leaves.get(at.leaf)?;
            if leaf.compare(at.entry, key) != cmp::Ordering::Equal {
                return None;
            }
            let found = leaf.entry(at.entry).1;
            at = self.next(at);
            Some(found)
        })
    }

    /// Entries from `from` up to `to`; linear in the leaves between.
    pub(crate) fn count(&self, from: Position, to: Position) -> u64 {
        let leaves: usize = self.leaves[from.leaf.min(to.leaf)..to.leaf].iter().map(|leaf| leaf.len()).sum();
        (leaves + to.entry).saturating_sub(from.entry) as u64
    }

    /// Tombstones from `from` up to `to`; linear in the leaves between, and in the entries of the first and the last if
    /// these have any.
    pub(crate) fn tombstones(&self, from: Position, to: Position) -> u64 {
        let within = |leaf: usize, entries: std::ops::Range<usize>| {
            let leaf = self.leaves.get(leaf).filter(|leaf| leaf.tombstones > 0);
            leaf.map_or(0, |leaf| {
                entries.filter(|i| leaf.entry(*i).1.holds == Holds::Tombstone).count() as u64
            })
        };
        if from.leaf == to.leaf {
            return within(from.leaf, from.entry..to.entry);
        }
        let first = self.leaves.get(from.leaf).map_or(0, |leaf| within(from.leaf, from.entry..leaf.len()));
        let whole: u64 =
            self.leaves[(from.leaf + 1).min(to.leaf)..to.leaf].iter().map(|leaf| leaf.tombstones).sum();
        first + whole + within(to.leaf, 0..to.entry)
    }

    /// Copies of what tables have; linear in the leaves.
    pub(crate) fn copies(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.copies).sum()
    }

    /// The place so many entries further, or the end; linear in the leaves between.
    pub(crate) fn skip(&self, mut at: Position, mut entries: u64) -> Position {
        while let Some(leaf) = self.leaves.get(at.leaf) {
            let left = (leaf.len() - at.entry) as u64;
            if entries < left {
                return Position { entry: at.entry + entries as usize, ..at };
            }
            entries -= left;
            at = Position { leaf: at.leaf + 1, entry: 0 };
        }
        at
    }

    /// The key of an entry that is drawn: about as likely each as any other, as far as leaves have as many.
    pub(crate) fn draw(&self, rng: &mut Rng, key: &mut Vec<u8>) -> Option<Location> {
        let leaf = rng.below((self.leaves.len() as u64).max(1)) as usize;
        let entries = self.leaves.get(leaf)?.len() as u64;
        self.entry_to(Position { leaf, entry: rng.below(entries.max(1)) as usize }, key)
    }

    /// Keys that cut the entries from `from` up to `to` into pieces of `entries` each; linear in the leaves between.
    pub(crate) fn cuts(&self, from: Position, to: Position, entries: u64) -> Vec<Vec<u8>> {
        let (mut cuts, mut at, mut last) = (Vec::new(), from, Vec::new());
        loop {
            at = self.skip(at, entries.max(1));
            let mut key = Vec::new();
            if at >= to || self.entry_to(at, &mut key).is_none() {
                return cuts;
            }
            // Versions of a key stay together.
            if self.prev(at).and_then(|before| self.entry_to(before, &mut last)).is_some() && last != key {
                cuts.push(key);
            }
        }
    }

    /// All entries from one key up to before another, and a few around them; shares their leaves.
    pub(crate) fn between(&self, from: &[u8], to: &[u8]) -> Self {
        let (first, end) = (self.seek(from), self.seek(to));
        let behind = if end.entry > 0 { end.leaf + 1 } else { end.leaf };
        let mut made = IndexBuilder::beside(self);
        self.leaves[first.leaf.min(behind)..behind].iter().for_each(|leaf| made.share(leaf));
        made.finish()
    }

    /// Indexes of which each begins behind the last key of the one before, as one, which shares their leaves; all of
    /// them made beside one.
    pub(crate) fn joined(parts: impl Iterator<Item = Self>) -> Self {
        let mut parts = parts.peekable();
        let mut made = parts.peek().map_or_else(IndexBuilder::default, IndexBuilder::beside);
        parts.for_each(|part| part.leaves.iter().for_each(|leaf| made.share(leaf)));
        made.finish()
    }

    /// The index after `changes`, each of which says where all versions of its key lie from now on.
    pub(crate) fn changed(&self, changes: &Changes) -> Self {
        self.changed_by(changes.iter())
    }

    /// The same by changes that come one by one, in key order.
    pub(crate) fn changed_by<'a>(&self, changes: impl Iterator<Item = (&'a [u8], &'a [Location])>) -> Self {
        let mut made = IndexBuilder::beside(self);
        let mut changes = changes.peekable();
        let (mut key, mut here) = (Vec::new(), Vec::new());
        for (i, leaf) in self.leaves.iter().enumerate() {
            let ends_before = |key: &[u8]| {
                self.leaves.get(i + 1).is_some_and(|next| next.compare(0, key) != cmp::Ordering::Greater)
            };
            here.clear();
            here.extend(std::iter::from_fn(|| changes.next_if(|(key, _)| !ends_before(key))));
            if !made.is_short() {
                let changed =
                    if here.is_empty() { Some(leaf.clone()) } else { leaf.changed(&here).map(Arc::new) };
                if let Some(changed) = changed {
                    made.end_leaf();
                    made.share(&changed);
                    continue;
                }
            }
            let mut here = here.iter().copied().peekable();
            for entry in 0..leaf.len() {
                leaf.key_to(entry, &mut key);
                while let Some((changed, locations)) = here.next_if(|(changed, _)| *changed < &key[..]) {
                    locations.iter().for_each(|location| made.push(changed, *location));
                }
                if here.peek().is_none_or(|(changed, _)| *changed != &key[..]) {
                    made.push(&key, leaf.entry(entry).1);
                } else if entry + 1 == leaf.len() || leaf.compare(entry + 1, &key) != cmp::Ordering::Equal {
                    // The last version that was there: in its place what is there now.
                    let (_, locations) = here.next().unwrap_or_default();
                    locations.iter().for_each(|location| made.push(&key, *location));
                }
            }
            for (changed, locations) in here {
                locations.iter().for_each(|location| made.push(changed, *location));
            }
        }
        for (changed, locations) in changes {
            locations.iter().for_each(|location| made.push(changed, *location));
        }
        made.finish()
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({} entries in {} leaves, {} bytes)", self.entries, self.leaves.len(), self.bytes)
    }
}

/// Keys in ascending order, each with where its versions lie, newest first; none for a key that is gone. In pages of
/// its own, as a leaf is, but for keys that are few.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    keys: ByteBuf,
    locations: PageVec<Location>,
    /// Of each key the length, and how many locations it has.
    lens: PageVec<(u32, u32)>,
}

impl Changes {
    /// `key` comes after all that were pushed before.
    pub(crate) fn push(&mut self, key: &[u8], locations: impl IntoIterator<Item = Location>) {
        self.keys.extend_from_slice(key);
        let before = self.locations.len();
        self.locations.extend(locations);
        self.lens.push((key.len() as u32, (self.locations.len() - before) as u32));
    }

    /// How many keys.
    pub(crate) fn len(&self) -> usize {
        self.lens.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[Location])> {
        self.part(0, 1)
    }

    /// Part `i` of `parts`, of about as many keys each, in key order; linear in the keys before it.
    pub(crate) fn part(&self, i: usize, parts: usize) -> impl Iterator<Item = (&[u8], &[Location])> {
        let [from, to] = [i, i + 1].map(|i| i * self.lens.len() / parts);
        let (before, part) = self.lens[..to].split_at(from);
        let mut at = before.iter().fold((0, 0), |at, len| (at.0 + len.0 as usize, at.1 + len.1 as usize));
        part.iter().map(move |len| {
            let to = (at.0 + len.0 as usize, at.1 + len.1 as usize);
            let found = (&self.keys[at.0..to.0], &self.locations[at.1..to.1]);
            at = to;
            found
        })
    }

    /// What all of `these` have, in key order; of a key that several have, what the last says.
    pub(crate) fn merged(these: &[Self]) -> impl Iterator<Item = (&[u8], &[Location])> {
        let mut rest: Vec<_> = these.iter().map(|changes| changes.iter().peekable()).collect();
        std::iter::from_fn(move || {
            let key = rest.iter_mut().filter_map(|changes| changes.peek().map(|(key, _)| *key)).min()?;
            let same = rest.iter_mut().filter_map(|changes| changes.next_if(|(other, _)| *other == key));
            same.last()
        })
    }
}

/// Bytes that both begin with.
pub(crate) fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    // Eight at a time: it is asked for each key of an index in the making.
    let ((a_words, _), (b_words, _)) = (a.as_chunks::<8>(), b.as_chunks());
    let differs = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    let mut words = a_words.iter().zip(b_words).map(differs).enumerate();
    match words.find(|(_, differs)| *differs != 0) {
        Some((at, differs)) => 8 * at + differs.trailing_zeros() as usize / 8,
        None => {
            let from = 8 * a_words.len().min(b_words.len());
            from + a[from..].iter().zip(&b[from..]).take_while(|(a, b)| a == b).count()
        }
    }
}

/// An index in the making: entries come in key order, versions of a key newest first.
#[derive(Default)]
pub(crate) struct IndexBuilder {
    made: Index,
    /// Whole keys of the leaf to come, one after the other.
    keys: Vec<u8>,
    /// Where each key ends, and what all entries up to it take besides their keys; its location.
    entries: Vec<(Ends, Location)>,
}

#[derive(Clone, Copy)]
struct Ends {
    keys: usize,
    besides: usize,
}

/// What an entry takes besides its key's rest: that one's length, slab, slot, and where the entry begins.
fn bytes_besides(key: &[u8], location: Location) -> usize {
    let varint = |number: u64| (64 - number.leading_zeros() as usize).div_ceil(7).max(1);
    varint(key.len() as u64) + varint(location.slab) + varint(4 * u64::from(location.slot) + 3) + 4
}

impl IndexBuilder {
    /// Of one whose leaves are counted together with that one's.
    pub(crate) fn beside(index: &Index) -> Self {
        let made = Index { there: index.there.clone(), ..Index::default() };
        Self { made, ..Self::default() }
    }

    fn key(&self, i: usize) -> &[u8] {
        let from = i.checked_sub(1).map_or(0, |before| self.entries[before].0.keys);
        &self.keys[from..self.entries[i].0.keys]
    }

    /// Bytes of a leaf of the first `count` entries, at most.
    fn bytes_of(&self, count: usize) -> usize {
        let Some(last) = count.checked_sub(1) else { return 0 };
        let shared = shared_prefix(self.key(0), self.key(last));
        let Ends { keys, besides } = self.entries[last].0;
        keys - last * shared + besides
    }

    /// How many of the first entries take `bytes`, more or less; all versions of the last key among them.
    fn count_of(&self, bytes: usize) -> usize {
        let (mut low, mut high) = (1, self.entries.len());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.bytes_of(middle) <= bytes { low = middle } else { high = middle - 1 }
        }
        let ends_key = |count: &usize| self.key(*count) != self.key(*count - 1);
        (low..self.entries.len()).find(ends_key).unwrap_or(self.entries.len())
    }

    pub(crate) fn push(&mut self, key: &[u8], location: Location) {
        // Looked at now and then: it costs a comparison.
        if self.entries.len() % 16 == 15 && self.bytes_of(self.entries.len()) >= 2 * LEAF_BYTES {
            self.cut_leaf(self.count_of(LEAF_BYTES));
        }
        self.keys.extend_from_slice(key);
        let before = self.entries.last().map_or(0, |(ends, _)| ends.besides);
        let ends = Ends { keys: self.keys.len(), besides: before + bytes_besides(key, location) };
        self.entries.push((ends, location));
    }

    /// There is something to join with what follows.
    fn is_short(&self) -> bool {
        (1..LEAF_BYTES_MIN).contains(&self.bytes_of(self.entries.len()))
    }

    /// Makes one leaf of what there is, or two that are alike, so that a change stays in its leaf.
    fn end_leaf(&mut self) {
        let bytes = self.bytes_of(self.entries.len());
        if bytes >= 2 * LEAF_BYTES {
            self.cut_leaf(self.count_of(LEAF_BYTES));
            return self.end_leaf();
        }
        if bytes > LEAF_BYTES {
            self.cut_leaf(self.count_of(bytes / 2));
        }
        self.cut_leaf(self.entries.len());
    }

    /// Makes a leaf of the first `count` entries.
    fn cut_leaf(&mut self, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let prefix = shared_prefix(self.key(0), self.key(last));
        let mut leaf = LeafBytes::with(&self.key(0)[..prefix]);
        (0..count).for_each(|i| leaf.push(&self.key(i)[prefix..], self.entries[i].1));
        let that_hold = |what| self.entries[..count].iter().filter(|(_, at)| at.holds == what).count() as u64;
        let (tombstones, copies) = (that_hold(Holds::Tombstone), that_hold(Holds::Copy));
        let leaf = leaf.leaf(prefix, tombstones, copies, self.made.there.clone());
        let cut = self.entries[last].0;
        self.keys.drain(..cut.keys);
        self.entries.drain(..count);
        for (ends, _) in &mut self.entries {
            (ends.keys, ends.besides) = (ends.keys - cut.keys, ends.besides - cut.besides);
        }
        self.share(&Arc::new(leaf));
    }

    fn share(&mut self, leaf: &Arc<Leaf>) {
        self.made.entries += leaf.len() as u64;
        self.made.bytes += leaf.held_bytes();
        self.made.leaves.push(leaf.clone());
    }

    pub(crate) fn finish(mut self) -> Index {
        self.end_leaf();
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;
    use std::collections::BTreeMap;

    type Oracle = BTreeMap<Vec<u8>, Vec<Location>>;

    fn all(index: &Index) -> Oracle {
        let (mut found, mut key, mut at) = (Oracle::new(), Vec::new(), index.first());
        while let Some(location) = index.entry_to(at, &mut key) {
            found.entry(key.clone()).or_default().push(location);
            at = index.next(at);
        }
        assert_eq!(at, index.end());
        found
    }

    fn some_key(rng: &mut Rng) -> Vec<u8> {
        let digits = rng.below(4000).to_string();
        match rng.below(3) {
            0 => digits.into_bytes(),
            1 => format!("user{digits:0>12}").into_bytes(),
            _ => format!("user/{digits}/a longer key").into_bytes(),
        }
    }

    #[test]
    fn prefixes_are_shared_up_to_the_first_byte_that_differs_or_the_shorter_end() {
        let bytes: Vec<u8> = (0..40).collect();
        for (len, other) in (0..40).flat_map(|len| (0..40).map(move |other| (len, other))) {
            let shorter = len.min(other);
            assert_eq!(shared_prefix(&bytes[..len], &bytes[..other]), shorter);
            let mut changed = bytes[..other].to_vec();
            for at in 0..shorter {
                changed[at] ^= 0x80;
                assert_eq!(shared_prefix(&bytes[..len], &changed), at);
                changed[at] ^= 0x80;
            }
        }
    }

    #[test]
    fn changes_in_parts_lead_to_the_same_and_a_part_of_an_index_has_its_keys() {
        let mut rng = Rng::new(1);
        let changes = |rng: &mut Rng| {
            let keys: BTreeMap<Vec<u8>, u64> = (0..900).map(|_| (some_key(rng), rng.below(9))).collect();
            move || {
                let mut changes = Changes::default();
                let at = |slot: u64| Location { slab: 3, slot: slot as u32, holds: Holds::Value };
                keys.iter().for_each(|(key, slot)| changes.push(key, (*slot > 2).then(|| at(*slot))));
                changes
            }
        };
        let (first, second) = (changes(&mut rng), changes(&mut rng));
        let before = Index::default().changed(&first());
        let at_once = before.changed(&second());
        for parts in [1, 2, 7, 5000] {
            let second = second();
            let in_parts =
                (0..parts).fold(before.clone(), |index, i| index.changed_by(second.part(i, parts)));
            assert_eq!((0..parts).map(|i| second.part(i, parts).count()).sum::<usize>(), second.len());
            assert_eq!((all(&in_parts), in_parts.entries()), (all(&at_once), at_once.entries()));
        }
        for _ in 0..50 {
            let (a, b) = (some_key(&mut rng), some_key(&mut rng));
            let (from, to) = (a.clone().min(b.clone()), a.max(b));
            let part = at_once.between(&from, &to);
            let within = |index: &Index| -> Oracle {
                all(index).into_iter().filter(|(key, _)| *key >= from && *key < to).collect()
            };
            assert_eq!(within(&part), within(&at_once));
            // And a leaf more at either end at most.
            let around = part.entries() as usize - within(&part).values().map(Vec::len).sum::<usize>();
            assert!(around <= 2 * LEAF_BYTES / 8, "{around}");
        }
        assert_eq!(at_once.between(b"", b"").entries(), 0);
    }

    #[test]
    fn of_changes_that_are_merged_the_last_word_on_a_key_counts() {
        let mut rng = Rng::new(2);
        let (mut all, mut oracle) = (Vec::new(), Oracle::new());
        for slab in 0..4 {
            let keys: Oracle = (0..300)
                .map(|slot| {
                    let at = Location { slab, slot, holds: Holds::Value };
                    (some_key(&mut rng), vec![at; rng.below(3) as usize])
                })
                .collect();
            let mut changes = Changes::default();
            keys.iter().for_each(|(key, locations)| changes.push(key, locations.iter().copied()));
            all.push(changes);
            oracle.extend(keys);
        }
        let merged = Changes::merged(&all).map(|(key, locations)| (key.to_vec(), locations.to_vec()));
        assert!(merged.eq(oracle) && Changes::merged(&[]).next().is_none());
    }

    #[test]
    fn changes_lead_to_what_a_map_holds() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut index, mut oracle) = (Index::default(), Oracle::new());
            for round in 0..30 {
                // Growing at first, then shrinking.
                let removes = if round < 15 { 4 } else { 2 };
                let mut changed = Oracle::new();
                for _ in 0..rng.below(1500) {
                    let versions = if rng.one_in(removes) { 0 } else { 1 + rng.below(20) / 18 };
                    let locations = (0..versions)
                        .map(|_| {
                            let (slab, slot) = (rng.below(1 << 40), rng.below(1 << 30) as u32);
                            let holds = [Holds::Value, Holds::Tombstone, Holds::Copy][rng.below(3) as usize];
                            Location { slab, slot, holds }
                        })
                        .collect();
                    changed.insert(some_key(&mut rng), locations);
                }
                let mut changes = Changes::default();
                for (key, locations) in &changed {
                    changes.push(key, locations.iter().copied());
                }
                index = index.changed(&changes);
                oracle.extend(changed);
                oracle.retain(|_, locations| !locations.is_empty());
                assert_eq!(all(&index), oracle, "seed {seed}, round {round}");
                assert_eq!(index.entries(), oracle.values().map(|found| found.len() as u64).sum::<u64>());
                for _ in 0..50 {
                    let key = some_key(&mut rng);
                    let found: Vec<Location> = index.locations(&key).collect();
                    assert_eq!(found, oracle.get(&key).cloned().unwrap_or_default());
                    let (mut at, mut seen) = (index.seek(&key), Vec::new());
                    let next = oracle.range(key.clone()..).next();
                    assert_eq!(index.entry_to(at, &mut seen).is_some(), next.is_some());
                    assert!(next.is_none_or(|(next, _)| *next == seen));
                    let deletes = |found: &Vec<Location>| {
                        found.iter().filter(|at| at.holds == Holds::Tombstone).count() as u64
                    };
                    let tombstones: u64 = oracle.range(key.clone()..).map(|(_, found)| deletes(found)).sum();
                    assert_eq!(index.tombstones(at, index.end()), tombstones);
                    let before: usize = oracle.range(..key).map(|(_, found)| found.len()).sum();
                    assert_eq!(index.count(index.first(), at), before as u64);
                    if let Some(previous) = index.prev(at) {
                        assert_eq!(index.next(previous), at);
                        at = previous;
                    }
                    assert_eq!(index.count(index.first(), at), (before as u64).saturating_sub(1));
                }
            }
        }
    }

    #[test]
    fn leaves_that_changes_leave_alone_are_shared_and_small_ones_joined() {
        let key = |i: u64| format!("{i:08}").into_bytes();
        let at = |i: u64| Location { slab: 1, slot: i as u32, holds: Holds::Value };
        let mut changes = Changes::default();
        (0..10_000).for_each(|i| changes.push(&key(2 * i), [at(i)]));
        let index = Index::default().changed(&changes);
        assert!(index.leaves.iter().all(|leaf| leaf.bytes.len() <= LEAF_BYTES));
        let mut one = Changes::default();
        one.push(&key(5001), [at(7)]);
        let changed = index.changed(&one);
        let shared =
            changed.leaves.iter().filter(|leaf| index.leaves.iter().any(|old| Arc::ptr_eq(old, leaf)));
        assert_eq!(shared.count(), index.leaves.len() - 1);
        let mut most = Changes::default();
        (0..10_000).filter(|i| i % 100 != 0).for_each(|i| most.push(&key(2 * i), []));
        let few = index.changed(&most);
        assert_eq!((few.entries(), few.leaves.len()), (100, 1));
        assert_eq!(index.cuts(index.first(), index.end(), 1000).len(), 9);
        let mut many = Changes::default();
        (0..200).for_each(|i| many.push(&key(5000 + i), [at(i)]));
        let grown = index.changed(&many);
        assert!(grown.leaves.iter().all(|leaf| (100..1000).contains(&leaf.len())));
    }

    #[test]
    fn leaves_count_as_long_as_somebody_has_them() {
        let key = |i: u64| format!("{i:08}").into_bytes();
        let changes = |keys: &mut dyn Iterator<Item = u64>| {
            let mut changes = Changes::default();
            keys.for_each(|i| changes.push(&key(i), [Location { slab: 1, slot: 0, holds: Holds::Value }]));
            changes
        };
        let halves = [0..5000, 5000..10_000];
        let first = Index::default();
        let parts = halves.map(|mut keys| first.changed(&changes(&mut keys.by_ref().map(|i| 2 * i))));
        let index = Index::joined(parts.into_iter());
        assert_eq!(index.bytes_there(), index.held_bytes());
        let part = index.between(&key(3000), &key(4000));
        let changed = index.changed(&changes(&mut (0..20_000).step_by(100).map(|i| i + 1)));
        // All leaves are there twice.
        assert_eq!(changed.bytes_there(), index.held_bytes() + changed.held_bytes());
        drop(index);
        assert_eq!(changed.bytes_there(), part.held_bytes() + changed.held_bytes());
        drop(part);
        assert_eq!(changed.bytes_there(), changed.held_bytes());
        // Of another store.
        assert_eq!(Index::default().bytes_there(), 0);
    }

    #[test]
    fn leaves_stay_full_while_keys_come_and_go() {
        let mut rng = Rng::new(3);
        let mut keys = std::collections::BTreeSet::new();
        let mut index = Index::default();
        for round in 0..60 {
            let some = |rng: &mut Rng| format!("user{:019}", rng.next_u64() >> 1).into_bytes();
            let mut changed = Oracle::new();
            // At first as many as there shall be, then one in twenty comes and another goes.
            let (come, go) = if round == 0 { (20_000, 0) } else { (1000, 1000) };
            for _ in 0..go {
                let from = some(&mut rng);
                if let Some(key) = keys.range(from..).next().cloned() {
                    keys.remove(&key);
                    changed.insert(key, vec![]);
                }
            }
            for _ in 0..come {
                let key = some(&mut rng);
                let slot = rng.below(1000) as u32;
                changed.insert(key.clone(), vec![Location { slab: 2000, slot, holds: Holds::Value }]);
                keys.insert(key);
            }
            let mut changes = Changes::default();
            changed.iter().for_each(|(key, locations)| changes.push(key, locations.iter().copied()));
            index = index.changed(&changes);
        }
        assert_eq!(index.entries(), keys.len() as u64);
        let bytes = index.held_bytes() as f64 / index.entries() as f64;
        assert!((20.0..34.0).contains(&bytes), "{bytes} bytes an entry");
    }

    /// The aim: at most 30 bytes for keys of 23.
    #[test]
    fn any_entry_may_be_drawn() {
        let mut builder = IndexBuilder::default();
        let (mut rng, mut key) = (Rng::new(1), Vec::new());
        assert!(Index::default().draw(&mut rng, &mut key).is_none());
        for slot in 0..3_000 {
            builder.push(format!("{slot:05}").as_bytes(), Location { slab: 1, slot, holds: Holds::Value });
        }
        let index = builder.finish();
        let mut times = vec![0; 3_000];
        for _ in 0..300_000 {
            let location = index.draw(&mut rng, &mut key).unwrap();
            assert_eq!(key, format!("{:05}", location.slot).into_bytes());
            times[location.slot as usize] += 1;
        }
        // A hundred each, if all leaves have as many.
        assert!(times.iter().all(|times| (20..400).contains(times)), "{times:?}");
    }

    #[test]
    fn an_entry_takes_few_bytes() {
        let mut rng = Rng::new(1);
        let keys: std::collections::BTreeSet<Vec<u8>> = (0..100_000)
            .map(|_| [&[0; 4][..], format!("user{:019}", rng.next_u64() >> 1).as_bytes()].concat())
            .collect();
        let mut changes = Changes::default();
        for (i, key) in (0..).zip(&keys) {
            changes
                .push(key, [Location { slab: 2000 + i / 800, slot: (i % 800) as u32, holds: Holds::Value }]);
        }
        let index = Index::default().changed(&changes);
        let bytes = index.held_bytes() as f64 / index.entries() as f64;
        assert!((20.0..30.0).contains(&bytes), "{bytes} bytes an entry");
    }
}
