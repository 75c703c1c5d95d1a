//! Index blocks: which block can hold a key (`docs/format/table.md`).
//!
//! An entry is a bound, at or above everything in its block and below everything in the next, and where the block lies.
//! Beside the bounds stands an array of heads: the first four bytes of each bound behind the prefix that all of them
//! share, as numbers. A search runs over the heads, sixteen to a cache line, and compares whole keys only among equal
//! heads.
//!
//! Indexes are most of what a cache holds besides data, so an entry has what it needs and no more: data blocks follow
//! each other, so an end says where a block begins and ends; bounds are as short as they can be ([`bound_between`]);
//! trailers are there only where a key's versions go on in the next block. Fifteen bytes an entry, where keys of twenty
//! are scattered.

use crate::format::coding::{NUMBER_MAX, put_bytes, put_varint};
use crate::format::{Decode, Malformed, Reader};
use crate::key::{Trailer, common_prefix, compare};
use crate::table::stored::{BlockHandle, HANDLE_BYTES};
use std::cmp::Ordering;
use std::ops::Range;

const HEAD_BYTES: usize = 4;
const TRAILER_BYTES: usize = 8;

/// What an index block has, as bits.
mod shape {
    /// Trailers; without them all are [`super::Trailer::LAST`].
    pub(super) const TRAILERS: u8 = 1;
    /// Ends of bounds have four bytes, not two.
    pub(super) const LONG_BOUNDS: u8 = 2;
    /// Ends of blocks have eight bytes, not four.
    pub(super) const FAR_BLOCKS: u8 = 4;
    /// Handles, and not the ends of blocks that follow each other.
    pub(super) const HANDLES: u8 = 8;
}

/// Entries that are compared one by one before a search near one of them becomes a search.
const NEAR: usize = 3;

/// The first bytes as a number that sorts like them.
fn head(bytes: &[u8]) -> u32 {
    let mut head = [0; HEAD_BYTES];
    let n = bytes.len().min(HEAD_BYTES);
    head[..n].copy_from_slice(&bytes[..n]);
    u32::from_be_bytes(head)
}

/// The first of the numbers for which it is false, or the range's end; it is true for none behind one for which it is
/// false.
fn first_not(mut range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    while !range.is_empty() {
        let middle = usize::midpoint(range.start, range.end);
        match is_before(middle) {
            true => range.start = middle + 1,
            false => range.end = middle,
        }
    }
    range.start
}

fn number<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}

/// Appends the lowest bytes of a number.
fn put_low(out: &mut Vec<u8>, number: u64, bytes: usize) {
    out.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

/// Collects an index block's entries.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    bounds: Vec<(Vec<u8>, Trailer)>,
    handles: Vec<BlockHandle>,
    key_bytes: usize,
    /// What all bounds begin with.
    prefix: usize,
    has_trailers: bool,
}

impl IndexBuilder {
    /// Adds an entry; every entry of a block has as many handles.
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, handles: &[BlockHandle]) {
        self.prefix =
            self.bounds.first().map_or(key.len(), |(first, _)| common_prefix(&first[..self.prefix], key));
        self.has_trailers |= trailer != Trailer::LAST;
        self.key_bytes += key.len();
        self.bounds.push((key.to_vec(), trailer));
        self.handles.extend_from_slice(handles);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Bytes of the bounds behind their prefix.
    fn rest_bytes(&self) -> usize {
        self.key_bytes - self.bounds.len() * self.prefix
    }

    /// Where blocks begin, and how far they reach, if each has one that begins where the one before it ends.
    fn run_of_blocks(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.handles.first()?, self.handles.last()?);
        let follow = self.handles.windows(2).all(|pair| pair[0].end() == pair[1].offset);
        (follow && self.handles.len() == self.bounds.len()).then(|| (first.offset, last.end() - first.offset))
    }

    fn shape(&self, run: Option<(u64, u64)>) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.has_trailers, shape::TRAILERS)
            | bit(self.rest_bytes() > u16::MAX.into(), shape::LONG_BOUNDS)
            | bit(run.is_some_and(|(_, bytes)| bytes > u32::MAX.into()), shape::FAR_BLOCKS)
            | bit(run.is_none(), shape::HANDLES)
    }

    /// An upper bound of the encoded size, where blocks follow each other: a few instructions. No less than a quarter
    /// of the bounds as they are: one more, of keys that begin otherwise, and all of them are written out.
    pub(crate) fn bytes(&self) -> usize {
        let entry = HEAD_BYTES
            + if self.has_trailers { TRAILER_BYTES } else { 0 }
            + if self.rest_bytes() > u16::MAX.into() { 4 } else { 2 };
        let blocks = match (self.handles.first(), self.handles.last()) {
            (Some(first), Some(last)) if last.end() - first.offset > u32::MAX.into() => 8,
            _ => 4,
        };
        let most = 32 + self.prefix + self.bounds.len() * (entry + blocks) + self.rest_bytes();
        most.max(self.key_bytes / 4)
    }

    /// The block; the builder is empty again.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let run = self.run_of_blocks();
        let shape = self.shape(run);
        let has = |bit: u8| shape & bit != 0;
        let Self { bounds, handles, prefix, .. } = std::mem::take(self);
        let mut out = Vec::new();
        put_bytes(&mut out, bounds.first().map_or(&[], |(key, _)| &key[..prefix]));
        put_varint(&mut out, bounds.len() as u64);
        out.push(shape);
        if let Some((begin, _)) = run {
            put_varint(&mut out, begin);
        }
        bounds.iter().for_each(|(key, _)| out.extend_from_slice(&head(&key[prefix..]).to_le_bytes()));
        if has(shape::TRAILERS) {
            bounds.iter().for_each(|(_, trailer)| out.extend_from_slice(&trailer.0.to_le_bytes()));
        }
        let mut end = 0;
        for (key, _) in &bounds {
            end += key.len() - prefix;
            put_low(&mut out, end as u64, if has(shape::LONG_BOUNDS) { 4 } else { 2 });
        }
        for handle in &handles {
            match run {
                Some((begin, _)) => {
                    put_low(&mut out, handle.end() - begin, if has(shape::FAR_BLOCKS) { 8 } else { 4 });
                }
                None => handle.encode(&mut out),
            }
        }
        bounds.iter().for_each(|(key, _)| out.extend_from_slice(&key[prefix..]));
        out
    }
}

/// A bound at or above (`last`, its trailer) and below all of `next`'s versions: where keys differ, no longer than it
/// takes to tell them apart, but for a `next` that has no more bytes than that.
pub(crate) fn bound_between(last: (&[u8], Trailer), next: &[u8]) -> (Vec<u8>, Trailer) {
    let shared = common_prefix(last.0, next);
    match (last.0.get(shared), next.get(shared)) {
        // The versions of one key go on in the next block.
        (None, None) => (last.0.to_vec(), last.1),
        _ if shared + 1 < next.len() => (next[..=shared].to_vec(), Trailer::LAST),
        (Some(a), Some(b)) if shared + 1 < last.0.len() && *a + 1 < *b => {
            let mut bound = last.0[..=shared].to_vec();
            bound[shared] += 1;
            (bound, Trailer::LAST)
        }
        _ => (last.0.to_vec(), Trailer::LAST),
    }
}

/// Looks into an index block. Offsets are computed once; the block's bytes are passed to each call.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    prefix: Range<usize>,
    count: usize,
    heads: usize,
    trailers: Option<usize>,
    ends: Ends,
    blocks: Blocks,
    keys: usize,
}

/// An array of numbers, of so many bytes each.
#[derive(Clone, Copy, Debug)]
struct Ends {
    at: usize,
    width: usize,
}

#[derive(Clone, Copy, Debug)]
enum Blocks {
    /// They follow each other from an offset on.
    From(u64, Ends),
    /// So many handles an entry.
    Handles { at: usize, each: usize },
}

impl Ends {
    fn of(self, block: &[u8], i: usize) -> u64 {
        let at = self.at + i * self.width;
        match self.width {
            2 => u16::from_le_bytes(number(block, at)).into(),
            4 => u32::from_le_bytes(number(block, at)).into(),
            _ => u64::from_le_bytes(number(block, at)),
        }
    }

    /// Where entry `i` begins.
    fn before(self, block: &[u8], i: usize) -> u64 {
        i.checked_sub(1).map_or(0, |before| self.of(block, before))
    }
}

impl Index {
    /// Finds the parts of a block with `per_entry` handles an entry; a few instructions. A block that did not pass
    /// [`Index::check`] must not be searched.
    pub(crate) fn parse(block: &[u8], per_entry: usize) -> Decode<Self> {
        let mut reader = Reader::new(block);
        let prefix_len = reader.bytes()?.len();
        let prefix_end = block.len() - reader.rest().len();
        let (count, shape) = (reader.length()?, reader.u8()?);
        let has = |bit: u8| shape & bit != 0;
        if shape & !(shape::TRAILERS | shape::LONG_BOUNDS | shape::FAR_BLOCKS | shape::HANDLES) != 0
            || !has(shape::HANDLES) && per_entry != 1
        {
            return Err(Malformed(format!("an index of {per_entry} handles an entry has shape {shape}")));
        }
        let begin = if has(shape::HANDLES) { 0 } else { reader.number()? };
        let trailer_bytes = if has(shape::TRAILERS) { TRAILER_BYTES } else { 0 };
        let end_bytes = if has(shape::LONG_BOUNDS) { 4 } else { 2 };
        let block_bytes = match has(shape::HANDLES) {
            true => per_entry * HANDLE_BYTES,
            false if has(shape::FAR_BLOCKS) => 8,
            false => 4,
        };
        let fixed = HEAD_BYTES + trailer_bytes + end_bytes + block_bytes;
        if count.checked_mul(fixed).is_none_or(|bytes| bytes > reader.rest().len()) {
            return Err(Malformed(format!("an index of {count} entries in {} bytes", block.len())));
        }
        let heads = block.len() - reader.rest().len();
        let trailers = heads + count * HEAD_BYTES;
        let ends = trailers + count * trailer_bytes;
        let blocks = ends + count * end_bytes;
        Ok(Self {
            prefix: prefix_end - prefix_len..prefix_end,
            count,
            heads,
            trailers: has(shape::TRAILERS).then_some(trailers),
            ends: Ends { at: ends, width: end_bytes },
            blocks: match has(shape::HANDLES) {
                true => Blocks::Handles { at: blocks, each: per_entry },
                false => Blocks::From(begin, Ends { at: blocks, width: block_bytes }),
            },
            keys: blocks + count * block_bytes,
        })
    }

    /// The rest of the checks, linear in the entries: once per block, when it is read from media.
    pub(crate) fn check(&self, block: &[u8]) -> Decode<()> {
        let (mut key, mut reach) = (0, 0);
        for i in 0..self.count {
            let end = self.ends.of(block, i);
            if end < key {
                return Err(Malformed::new("keys of an index lie outside it"));
            }
            key = end;
            if let Blocks::From(begin, ends) = self.blocks {
                let end = ends.of(block, i);
                if end.checked_sub(reach).is_none_or(|bytes| bytes > u32::MAX.into())
                    || begin.saturating_add(end) > NUMBER_MAX
                {
                    return Err(Malformed::new("blocks of an index do not follow each other"));
                }
                reach = end;
            }
        }
        match self.keys as u64 + key == block.len() as u64 {
            true => Ok(()),
            false => Err(Malformed::new("an index is not as long as its keys say")),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn head(&self, block: &[u8], i: usize) -> u32 {
        u32::from_le_bytes(number(block, self.heads + i * HEAD_BYTES))
    }

    /// Handle `j` of entry `i`.
    pub(crate) fn handle(&self, block: &[u8], i: usize, j: usize) -> BlockHandle {
        match self.blocks {
            Blocks::From(begin, ends) => {
                let (from, to) = (ends.before(block, i), ends.of(block, i));
                BlockHandle { offset: begin + from, bytes: (to - from) as u32 }
            }
            Blocks::Handles { at, each } => {
                let at = at + (i * each + j) * HANDLE_BYTES;
                let offset = u64::from_le_bytes(number(block, at));
                BlockHandle { offset, bytes: u32::from_le_bytes(number(block, at + 8)) }
            }
        }
    }

    /// The bound of entry `i`: what follows the prefix, and the trailer.
    fn bound<'a>(&self, block: &'a [u8], i: usize) -> (&'a [u8], Trailer) {
        let (start, end) = (self.ends.before(block, i) as usize, self.ends.of(block, i) as usize);
        let trailer = self.trailers.map_or(Trailer::LAST, |trailers| {
            Trailer(u64::from_le_bytes(number(block, trailers + i * TRAILER_BYTES)))
        });
        (&block[self.keys + start..self.keys + end], trailer)
    }

    /// The bound of entry `i`, whole.
    pub(crate) fn full_bound(&self, block: &[u8], i: usize) -> (Vec<u8>, Trailer) {
        let (suffix, trailer) = self.bound(block, i);
        ([&block[self.prefix.clone()], suffix].concat(), trailer)
    }

    /// As [`Index::find`], for one who thinks that it is entry `near`, or one of the next: a comparison or two if that
    /// is so. Where it is not, everything is searched; so a wrong guess costs time alone.
    pub(crate) fn find_near(&self, block: &[u8], near: usize, key: &[u8], trailer: Trailer) -> usize {
        let Some(suffix) = key.strip_prefix(&block[self.prefix.clone()]) else {
            return self.find(block, key, trailer);
        };
        let is_before = |i: usize| compare(self.bound(block, i), (suffix, trailer)) == Ordering::Less;
        let is_behind = near > self.count || near.checked_sub(1).is_some_and(|before| !is_before(before));
        let mut next = near..if is_behind { 0 } else { self.count.min(near + NEAR) };
        next.find(|i| !is_before(*i)).unwrap_or_else(|| self.find(block, key, trailer))
    }

    /// The first entry whose bound is at or after (`key`, `trailer`): the only one whose block can hold it. `len`
    /// when all bounds are before.
    pub(crate) fn find(&self, block: &[u8], key: &[u8], trailer: Trailer) -> usize {
        let prefix = &block[self.prefix.clone()];
        let Some(suffix) = key.strip_prefix(prefix) else {
            return if key < prefix { 0 } else { self.count };
        };
        let wanted = head(suffix);
        let low = first_not(0..self.count, |i| self.head(block, i) < wanted);
        let is_before = |i: usize| {
            self.head(block, i) == wanted
                && compare(self.bound(block, i), (suffix, trailer)) == Ordering::Less
        };
        // Hardly ever are there several of one head.
        if low < self.count && is_before(low) { first_not(low + 1..self.count, is_before) } else { low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};
    use proptest::prelude::*;

    /// Blocks of nine bytes, one behind the other or with gaps.
    fn blocks(far: u64, gap: u64) -> impl Fn(usize) -> BlockHandle {
        move |i| BlockHandle { offset: far + i as u64 * (9 + gap), bytes: 9 }
    }

    /// What an index of keys in their order has and takes.
    fn of_keys(count: u64, key: impl Fn(u64) -> Vec<u8>) -> usize {
        let mut builder = IndexBuilder::default();
        for i in 0..count {
            let (bound, trailer) = bound_between((&key(i), Trailer::LAST), &key(i + 1));
            builder.add(&bound, trailer, &[blocks(64, 0)(i as usize)]);
        }
        builder.finish().len()
    }

    #[test]
    fn an_entry_takes_few_bytes() {
        // As far apart as every third of a million keys of the whole range.
        let scattered =
            |i: u64| [b"user", i.wrapping_mul(55_340_232_221_128).to_string().as_bytes()].concat();
        let dense = |i: u64| format!("user{:016}", 3 * i).into_bytes();
        let (scattered, dense) = (of_keys(200, |i| scattered(i + 30_000)), of_keys(200, dense));
        assert!(scattered < 200 * 15 && dense < 200 * 15, "{scattered} {dense}");
    }

    #[test]
    fn keys_that_begin_otherwise_make_no_huge_block() {
        let mut builder = IndexBuilder::default();
        let key = |begin: u8, i: u16| [&[begin; 200], &i.to_be_bytes()[..]].concat();
        let mut count = 0;
        while builder.bytes() <= 4000 {
            builder.add(&key(0, count), Trailer::LAST, &[blocks(64, 0)(count.into())]);
            count += 1;
        }
        builder.add(&key(1, 0), Trailer::LAST, &[blocks(64, 0)(count.into())]);
        let bytes = builder.finish().len();
        assert!(count > 70 && bytes < 5 * 4000, "{count} {bytes}");
    }

    #[test]
    fn blocks_may_lie_far_apart_and_bounds_be_long() {
        let long = |i: u8| [vec![7; 40_000], vec![i], vec![i; 30_000]].concat();
        for per_block in [9u32, u32::MAX] {
            let mut builder = IndexBuilder::default();
            for i in 0..4u8 {
                let offset = (1 << 40) + u64::from(i) * u64::from(per_block);
                builder.add(&long(i), Trailer::LAST, &[BlockHandle { offset, bytes: per_block }]);
            }
            let most = builder.bytes();
            let block = builder.finish();
            assert!(block.len() <= most && most < block.len() + 40, "{} {most}", block.len());
            let index = Index::parse(&block, 1).unwrap();
            index.check(&block).unwrap();
            for i in 0..4u8 {
                assert_eq!(index.find(&block, &long(i), Trailer::LAST), i.into());
                let offset = (1 << 40) + u64::from(i) * u64::from(per_block);
                let handle = index.handle(&block, i.into(), 0);
                assert_eq!(handle, BlockHandle { offset, bytes: per_block });
                assert_eq!(index.full_bound(&block, i.into()).0, long(i));
            }
        }
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let mut builder = IndexBuilder::default();
        (0..3).for_each(|i| builder.add(&[i], Trailer::LAST, &[blocks(64, 0)(i.into())]));
        let block = builder.finish();
        let check = |block: &[u8], each| Index::parse(block, each).and_then(|index| index.check(block));
        check(&block, 1).unwrap();
        // Behind no prefix (1), a count (1), a shape (1) and where the first one begins (1): heads, ends of bounds,
        // ends of blocks.
        let [bound, end] = [4 + 3 * HEAD_BYTES, 4 + 3 * (HEAD_BYTES + 2)];
        for (at, byte) in [(2, 16), (bound, 3), (bound + 4, 9), (end, 30)] {
            let mut block = block.clone();
            assert_ne!(block[at], byte);
            block[at] = byte;
            assert!(check(&block, 1).is_err(), "{at}");
        }
        assert!(check(&block, 2).is_err() && check(&block[..block.len() - 1], 1).is_err());
    }

    proptest! {
        #[test]
        fn the_found_entry_is_the_first_at_or_after(
            keys in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 0..12), 1..40),
            probe in proptest::collection::vec(0u8..4, 0..12),
            seq in 0u64..3,
            own: bool,
            gap in 0u64..2,
        ) {
            let of = |seq| Trailer::new(Seq(seq), Kind::Put);
            let (trailer, wanted) = (if own { of(1) } else { Trailer::LAST }, of(seq));
            let keys: Vec<_> = keys.into_iter().map(|key| [b"pre", &key[..]].concat()).collect();
            let mut builder = IndexBuilder::default();
            for (i, key) in keys.iter().enumerate() {
                builder.add(key, trailer, &[blocks(1000, gap)(i)]);
            }
            let bound = builder.bytes() + if gap > 0 && keys.len() > 1 { 8 * keys.len() } else { 0 };
            let block = builder.finish();
            prop_assert!(block.len() <= bound);
            let index = Index::parse(&block, 1).unwrap();
            index.check(&block).unwrap();
            for probe in [probe.clone(), [b"pre", &probe[..]].concat(), b"zz".to_vec()] {
                let expected = keys.partition_point(|key| compare((key, trailer), (&probe, wanted)) == Ordering::Less);
                prop_assert_eq!(index.find(&block, &probe, wanted), expected);
                for near in 0..keys.len() + 2 {
                    prop_assert_eq!(index.find_near(&block, near, &probe, wanted), expected);
                }
                if expected < keys.len() {
                    prop_assert_eq!(index.handle(&block, expected, 0), blocks(1000, gap)(expected));
                    prop_assert_eq!(index.full_bound(&block, expected), (keys[expected].clone(), trailer));
                }
            }
        }

        #[test]
        fn a_bound_separates(a in proptest::collection::vec(0u8..5, 0..6), b in proptest::collection::vec(0u8..5, 0..6)) {
            let (a, b) = if a <= b { (a, b) } else { (b, a) };
            let (old, new) = (Trailer::new(Seq(3), Kind::Put), Trailer::new(Seq(5), Kind::Put));
            let (key, trailer) = bound_between((&a, new), &b);
            prop_assert!(compare((&key, trailer), (&a, new)) != Ordering::Less);
            prop_assert!(a == b || key.len() <= a.len().max(common_prefix(&a, &b) + 1));
            let next = if a == b { old } else { new };
            prop_assert!(compare((&key, trailer), (&b, next)) == Ordering::Less);
        }

        #[test]
        fn any_bytes_are_an_index_or_refused(bytes: Vec<u8>) {
            if let Ok(index) = Index::parse(&bytes, 1) && index.check(&bytes).is_ok() {
                index.find(&bytes, b"key", Trailer::FIRST);
            }
        }
    }
}
