//! Data blocks: entries in order, their keys written as what differs from the key before (`docs/format/table.md`).
//!
//! Every sixteenth entry is a restart: its key is whole, and its place stands at the block's end, so a search halves
//! the restarts and walks at most one interval. Walking backwards decodes an interval once, front to back, into a
//! scratch, and hands it out from its end; so a step back costs about what a step forward does. No step allocates
//! once the buffers have grown.

use crate::cache::Block;
use crate::format::coding::{VARINT_BYTES_MAX, put_varint};
use crate::format::{Decode, Malformed, Reader};
use crate::key::{Entry, Target, Trailer, common_prefix, compare};
use cuesta_device::ByteBuf;
use std::cmp::Ordering;
use std::ops::Range;

/// Entries from one restart to the next.
pub(crate) const RESTART_INTERVAL: usize = 16;

/// Room for a key to begin with: one allocation a cursor, for keys of the usual size.
const KEY_BYTES_USUAL: usize = 128;

/// Collects a block's entries.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: ByteBuf,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) fn has_one(&self) -> bool {
        self.entries == 1
    }

    /// Bytes of the block so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.restarts.len() * 4 + 4
    }

    /// An upper bound of the length with `entry` added.
    pub(crate) fn len_with(&self, entry: Entry<'_>) -> usize {
        self.len() + 4 + 3 * VARINT_BYTES_MAX + entry.key.len() + 8 + entry.value.len()
    }

    /// Adds an entry behind the last.
    pub(crate) fn add(&mut self, entry: Entry<'_>) {
        let restart = self.entries.is_multiple_of(RESTART_INTERVAL);
        let shared = if restart { 0 } else { common_prefix(&self.last_key, entry.key) };
        if restart {
            self.restarts.push(self.bytes.len() as u32);
        }
        self.bytes.reserve(self.len_with(entry));
        for length in [shared, entry.key.len() - shared, entry.value.len()] {
            put_varint(&mut self.bytes, length as u64);
        }
        self.bytes.extend_from_slice(&entry.key[shared..]);
        self.bytes.extend_from_slice(&entry.trailer.0.to_le_bytes());
        self.bytes.extend_from_slice(entry.value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.entries += 1;
    }

    /// The block's bytes, valid until the builder is cleared.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.entries = 0;
    }
}

/// An entry of the interval that a walk backwards is in.
#[derive(Clone, Debug)]
struct Behind {
    start: usize,
    end: usize,
    /// In `keys_behind`.
    key: Range<usize>,
    trailer: Trailer,
    value: Range<usize>,
}

/// A position in a block.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    /// Where the entries end and the restarts begin, and how many of these there are.
    entries_end: usize,
    restarts: usize,
    /// The present entry lies at `start..end`; nothing is present when `start` is `entries_end`.
    start: usize,
    end: usize,
    key: Vec<u8>,
    trailer: Trailer,
    value: Range<usize>,
    /// Entries of the present interval before the present one, in order.
    behind: Vec<Behind>,
    keys_behind: Vec<u8>,
}

impl BlockCursor {
    /// Past the end of `block`.
    pub(crate) fn new(block: Block) -> Decode<Self> {
        let (entries_end, restarts) = Self::layout(&block)?;
        Ok(Self {
            block,
            entries_end,
            restarts,
            start: entries_end,
            end: entries_end,
            key: Vec::with_capacity(KEY_BYTES_USUAL),
            trailer: Trailer::LAST,
            value: 0..0,
            behind: Vec::new(),
            keys_behind: Vec::new(),
        })
    }

    /// The same buffers, past the end of another block.
    pub(crate) fn reset(&mut self, block: Block) -> Decode<()> {
        (self.entries_end, self.restarts) = Self::layout(&block)?;
        self.block = block;
        self.stop();
        Ok(())
    }

    fn layout(block: &[u8]) -> Decode<(usize, usize)> {
        let Some((rest, count)) = block.split_last_chunk::<4>() else {
            return Err(Malformed::new("a block too short for its number of restarts"));
        };
        let count = u32::from_le_bytes(*count) as usize;
        let entries_end = count.checked_mul(4).and_then(|bytes| rest.len().checked_sub(bytes));
        match entries_end {
            Some(entries_end) if count > 0 => Ok((entries_end, count)),
            _ => Err(Malformed(format!("a block of {} bytes with {count} restarts", block.len()))),
        }
    }

    fn restart(&self, i: usize) -> usize {
        let at = self.entries_end + i * 4;
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.block[at..at + 4]);
        u32::from_le_bytes(bytes) as usize
    }

    /// Past the end.
    fn stop(&mut self) {
        (self.start, self.end) = (self.entries_end, self.entries_end);
        self.behind.clear();
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.start < self.entries_end
    }

    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        let entry = Entry { key: &self.key, trailer: self.trailer, value: &self.block[self.value.clone()] };
        self.is_valid().then_some(entry)
    }

    /// Where the present entry's value lies in the block.
    pub(crate) fn value_range(&self) -> Range<usize> {
        self.value.clone()
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Reads the entry at `at`, whose key builds on the one in `self.key`; past the end when `at` is there.
    fn read(&mut self, at: usize) -> Decode<()> {
        if at >= self.entries_end {
            self.stop();
            return Ok(());
        }
        let mut reader = Reader::new(&self.block[at..self.entries_end]);
        let (shared, unshared, value) = (reader.length()?, reader.length()?, reader.length()?);
        if shared > self.key.len() {
            return Err(Malformed::new("a key that shares more than there is"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(reader.take(unshared)?);
        self.trailer = Trailer(reader.u64()?);
        if self.trailer.kind().is_none() {
            return Err(Malformed(format!("an entry of an unknown kind: {:?}", self.trailer)));
        }
        let value_start = self.entries_end - reader.rest().len();
        reader.take(value)?;
        self.value = value_start..value_start + value;
        (self.start, self.end) = (at, self.value.end);
        Ok(())
    }

    /// Key and trailer of the first entry of interval `i`, in place: that key is whole.
    fn restart_key(&self, i: usize) -> Decode<(&[u8], Trailer)> {
        let Some(entry) = self.block[..self.entries_end].get(self.restart(i)..) else {
            return Err(Malformed::new("a restart outside the entries"));
        };
        let mut reader = Reader::new(entry);
        let (shared, unshared, _) = (reader.length()?, reader.length()?, reader.length()?);
        if shared != 0 {
            return Err(Malformed::new("a restart whose key is not whole"));
        }
        Ok((reader.take(unshared)?, Trailer(reader.u64()?)))
    }

    /// To the first entry of interval `i`.
    fn seat_restart(&mut self, i: usize) -> Decode<()> {
        self.behind.clear();
        self.key.clear();
        let at = self.restart(i);
        if at >= self.entries_end {
            return Err(Malformed::new("a restart outside the entries"));
        }
        self.read(at)
    }

    pub(crate) fn first(&mut self) -> Decode<()> {
        self.seat_restart(0)
    }

    pub(crate) fn last(&mut self) -> Decode<()> {
        self.stop();
        self.prev_of(self.entries_end)
    }

    pub(crate) fn next(&mut self) -> Decode<()> {
        self.behind.clear();
        self.read(self.end)
    }

    /// To the entry before the present one; past the end when there is none.
    pub(crate) fn prev(&mut self) -> Decode<()> {
        self.prev_of(self.start)
    }

    /// To the last entry that begins before `before`.
    fn prev_of(&mut self, before: usize) -> Decode<()> {
        if self.behind.is_empty() && !self.read_interval(before)? {
            self.stop();
            return Ok(());
        }
        if let Some(entry) = self.behind.pop() {
            self.key.clear();
            self.key.extend_from_slice(&self.keys_behind[entry.key]);
            (self.start, self.end) = (entry.start, entry.end);
            (self.trailer, self.value) = (entry.trailer, entry.value);
        }
        Ok(())
    }

    /// Decodes the entries of the last interval that begins before `before`, up to there; `false` if there are none.
    fn read_interval(&mut self, before: usize) -> Decode<bool> {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = (low + high) / 2;
            match self.restart(middle) < before {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let Some(i) = low.checked_sub(1) else { return Ok(false) };
        self.seat_restart(i)?;
        self.keys_behind.clear();
        while self.is_valid() && self.start < before {
            let key = self.keys_behind.len()..self.keys_behind.len() + self.key.len();
            self.keys_behind.extend_from_slice(&self.key);
            let (start, end, value) = (self.start, self.end, self.value.clone());
            self.behind.push(Behind { start, end, key, trailer: self.trailer, value });
            let behind = std::mem::take(&mut self.behind);
            let read = self.read(end);
            self.behind = behind;
            read?;
        }
        Ok(true)
    }

    /// To `target`.
    pub(crate) fn go(&mut self, target: Target<'_>) -> Decode<()> {
        match target {
            Target::AtOrAfter(key, trailer) => self.seek(key, trailer),
            Target::Before(key, trailer) => self.seek_before(key, trailer),
            Target::First => self.first(),
            Target::Last => self.last(),
        }
    }

    /// To the first entry at or after (`key`, `trailer`).
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Decode<()> {
        // The last restart before the target; everything at or after the target follows it.
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = (low + high) / 2;
            match compare(self.restart_key(middle)?, (key, trailer)) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        self.seat_restart(low.saturating_sub(1))?;
        while self.is_valid() && compare((&self.key, self.trailer), (key, trailer)) == Ordering::Less {
            self.read(self.end)?;
        }
        Ok(())
    }

    /// To the last entry before (`key`, `trailer`).
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Decode<()> {
        self.seek(key, trailer)?;
        let before = self.start;
        self.behind.clear();
        self.prev_of(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};
    use proptest::prelude::*;

    fn block(bytes: &[u8]) -> Block {
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(bytes);
            Ok::<(), ()>(())
        };
        Block::filled(bytes.len(), fill).unwrap()
    }

    proptest! {
        #[test]
        fn every_walk_matches_a_sorted_list(
            entries in proptest::collection::btree_map(
                (proptest::collection::vec(0u8..4, 0..9), 1u64..4), proptest::collection::vec(any::<u8>(), 0..9), 1..90),
            moves in proptest::collection::vec((0u8..6, proptest::collection::vec(0u8..4, 0..9), 0u64..5), 1..60),
        ) {
            let put = |seq| Trailer::new(Seq(seq), Kind::Put);
            let mut listed: Vec<_> = entries.into_iter().map(|((key, seq), value)| (key, put(seq), value)).collect();
            listed.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
            let mut builder = BlockBuilder::default();
            for (key, trailer, value) in &listed {
                let entry = Entry { key, trailer: *trailer, value };
                let bound = builder.len_with(entry);
                builder.add(entry);
                prop_assert!(builder.len() <= bound);
            }
            let mut cursor = BlockCursor::new(block(builder.finish())).unwrap();
            let mut at: Option<usize> = None;
            for (step, key, seq) in moves {
                let split = listed.partition_point(|e| compare((&e.0, e.1), (&key, put(seq))) == Ordering::Less);
                match step {
                    0 => { cursor.seek(&key, put(seq)).unwrap(); at = Some(split); }
                    1 => { cursor.seek_before(&key, put(seq)).unwrap(); at = split.checked_sub(1); }
                    2 => { cursor.first().unwrap(); at = Some(0); }
                    3 => { cursor.last().unwrap(); at = Some(listed.len() - 1); }
                    4 if at.is_some() => { cursor.next().unwrap(); at = at.map(|i| i + 1); }
                    5 if at.is_some() => { cursor.prev().unwrap(); at = at.and_then(|i| i.checked_sub(1)); }
                    _ => {}
                }
                at = at.filter(|i| *i < listed.len());
                let expected = at.map(|i| (&listed[i].0[..], listed[i].1, &listed[i].2[..]));
                prop_assert_eq!(cursor.entry().map(|e| (e.key, e.trailer, e.value)), expected);
            }
        }

        #[test]
        fn any_bytes_are_a_block_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), key: Vec<u8>) {
            if let Ok(mut cursor) = BlockCursor::new(block(&bytes)) {
                let mut steps = 0;
                let mut walked = cursor.first();
                while walked.is_ok() && cursor.is_valid() && steps < 1000 {
                    walked = cursor.next();
                    steps += 1;
                }
                drop(cursor.seek(&key, Trailer::FIRST));
                let mut walked = cursor.last();
                while walked.is_ok() && cursor.is_valid() && steps < 2000 {
                    walked = cursor.prev();
                    steps += 1;
                }
            }
        }
    }
}
