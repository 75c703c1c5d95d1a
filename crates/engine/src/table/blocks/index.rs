//! Index blocks: which block can hold a key (`docs/format/table.md`).
//!
//! An entry is a bound, at or above everything in its block and below everything in the next, and one or two block
//! handles. Beside the bounds stands an array of heads: the first eight bytes of each bound behind the prefix that
//! all of them share, as numbers. A search runs over the heads, eight to a cache line, and compares whole keys only
//! among equal heads.

use crate::format::coding::{put_bytes, put_varint};
use crate::format::{Decode, Malformed, Reader};
use crate::key::{Trailer, common_prefix, compare};
use crate::table::stored::{BlockHandle, HANDLE_BYTES};
use std::cmp::Ordering;
use std::ops::Range;

/// Fixed bytes per entry besides its handles: head, trailer, end of its key.
pub(crate) const ENTRY_BYTES: usize = 8 + 8 + 4;

/// Entries that are compared one by one before a search near one of them becomes a search.
const NEAR: usize = 3;

/// The first eight bytes as a number that sorts like them.
fn head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let n = bytes.len().min(8);
    head[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(head)
}

/// Collects an index block's entries.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    bounds: Vec<(Vec<u8>, Trailer)>,
    handles: Vec<BlockHandle>,
    key_bytes: usize,
}

impl IndexBuilder {
    /// Adds an entry; every entry of a block has as many handles.
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, handles: &[BlockHandle]) {
        self.key_bytes += key.len();
        self.bounds.push((key.to_vec(), trailer));
        self.handles.extend_from_slice(handles);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// An upper bound of the encoded size.
    pub(crate) fn bytes(&self) -> usize {
        16 + self.bounds.len() * ENTRY_BYTES + self.handles.len() * HANDLE_BYTES + self.key_bytes
    }

    /// The block; the builder is empty again.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let Self { bounds, handles, .. } = std::mem::take(self);
        let prefix = match (bounds.first(), bounds.last()) {
            (Some((first, _)), Some((last, _))) => common_prefix(first, last),
            _ => 0,
        };
        let mut out = Vec::new();
        put_bytes(&mut out, bounds.first().map_or(&[], |(key, _)| &key[..prefix]));
        put_varint(&mut out, bounds.len() as u64);
        bounds.iter().for_each(|(key, _)| out.extend_from_slice(&head(&key[prefix..]).to_le_bytes()));
        bounds.iter().for_each(|(_, trailer)| out.extend_from_slice(&trailer.0.to_le_bytes()));
        let mut end = 0u32;
        for (key, _) in &bounds {
            end += (key.len() - prefix) as u32;
            out.extend_from_slice(&end.to_le_bytes());
        }
        handles.iter().for_each(|handle| handle.encode(&mut out));
        bounds.iter().for_each(|(key, _)| out.extend_from_slice(&key[prefix..]));
        out
    }
}

/// A short bound at or above (`last`, its trailer) and below (`next`, its trailer).
pub(crate) fn bound_between(last: (&[u8], Trailer), next: &[u8]) -> (Vec<u8>, Trailer) {
    let shared = common_prefix(last.0, next);
    match (last.0.get(shared), next.get(shared)) {
        // The versions of one key go on in the next block.
        (None, None) => (last.0.to_vec(), last.1),
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
    trailers: usize,
    ends: usize,
    handles: usize,
    keys: usize,
    per_entry: usize,
}

impl Index {
    /// Finds the parts of a block with `per_entry` handles an entry; a few instructions. A block that did not pass
    /// [`Index::check`] must not be searched.
    pub(crate) fn parse(block: &[u8], per_entry: usize) -> Decode<Self> {
        let mut reader = Reader::new(block);
        let prefix_len = reader.bytes()?.len();
        let prefix_end = block.len() - reader.rest().len();
        let count = reader.length()?;
        let heads = block.len() - reader.rest().len();
        let fixed = ENTRY_BYTES + per_entry * HANDLE_BYTES;
        if count.checked_mul(fixed).is_none_or(|bytes| bytes > reader.rest().len()) {
            return Err(Malformed(format!("an index of {count} entries in {} bytes", block.len())));
        }
        let trailers = heads + count * 8;
        let ends = trailers + count * 8;
        let handles = ends + count * 4;
        let keys = handles + count * per_entry * HANDLE_BYTES;
        let index = Self {
            prefix: prefix_end - prefix_len..prefix_end,
            count,
            heads,
            trailers,
            ends,
            handles,
            keys,
            per_entry,
        };
        Ok(index)
    }

    /// The rest of the checks, linear in the entries: once per block, when it is read from media.
    pub(crate) fn check(&self, block: &[u8]) -> Decode<()> {
        let mut previous = 0;
        for i in 0..self.count {
            let end = self.end(block, i);
            if end < previous || self.keys + end > block.len() {
                return Err(Malformed::new("keys of an index lie outside it"));
            }
            previous = end;
        }
        match self.keys + previous == block.len() {
            true => Ok(()),
            false => Err(Malformed::new("bytes left over behind an index")),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn number<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&block[at..at + N]);
        bytes
    }

    fn end(&self, block: &[u8], i: usize) -> usize {
        u32::from_le_bytes(Self::number(block, self.ends + i * 4)) as usize
    }

    fn head(&self, block: &[u8], i: usize) -> u64 {
        u64::from_le_bytes(Self::number(block, self.heads + i * 8))
    }

    /// Handle `j` of entry `i`.
    pub(crate) fn handle(&self, block: &[u8], i: usize, j: usize) -> BlockHandle {
        let at = self.handles + (i * self.per_entry + j) * HANDLE_BYTES;
        let offset = u64::from_le_bytes(Self::number(block, at));
        BlockHandle { offset, bytes: u32::from_le_bytes(Self::number(block, at + 8)) }
    }

    /// The bound of entry `i`: what follows the prefix, and the trailer.
    fn bound<'a>(&self, block: &'a [u8], i: usize) -> (&'a [u8], Trailer) {
        let start = if i == 0 { 0 } else { self.end(block, i - 1) };
        let suffix = &block[self.keys + start..self.keys + self.end(block, i)];
        (suffix, Trailer(u64::from_le_bytes(Self::number(block, self.trailers + i * 8))))
    }

    /// The bound of entry `i`, whole.
    pub(crate) fn full_bound(&self, block: &[u8], i: usize) -> (Vec<u8>, Trailer) {
        let (suffix, trailer) = self.bound(block, i);
        ([&block[self.prefix.clone()], suffix].concat(), trailer)
    }

    /// As [`Index::find`], for one who thinks that it is entry `near`, or one of the next: a comparison or two if that is so. Where it is
    /// not, everything is searched; so a wrong guess costs time alone.
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
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            match self.head(block, middle) < wanted {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        while low < self.count
            && self.head(block, low) == wanted
            && compare(self.bound(block, low), (suffix, trailer)) == Ordering::Less
        {
            low += 1;
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_found_entry_is_the_first_at_or_after(
            keys in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 0..12), 1..40),
            probe in proptest::collection::vec(0u8..4, 0..12),
            seq in 0u64..3,
        ) {
            let trailer = |seq| Trailer::new(Seq(seq), Kind::Put);
            let keys: Vec<_> = keys.into_iter().map(|key| [b"pre", &key[..]].concat()).collect();
            let mut builder = IndexBuilder::default();
            for (i, key) in keys.iter().enumerate() {
                builder.add(key, trailer(1), &[BlockHandle { offset: i as u64, bytes: 9 }]);
            }
            let bound = builder.bytes();
            let block = builder.finish();
            prop_assert!(block.len() <= bound);
            let index = Index::parse(&block, 1).unwrap();
            for probe in [probe.clone(), [b"pre", &probe[..]].concat(), b"zz".to_vec()] {
                let expected = keys.partition_point(|key| compare((key, trailer(1)), (&probe, trailer(seq))) == Ordering::Less);
                prop_assert_eq!(index.find(&block, &probe, trailer(seq)), expected);
                for near in 0..keys.len() + 2 {
                    prop_assert_eq!(index.find_near(&block, near, &probe, trailer(seq)), expected);
                }
                if expected < keys.len() {
                    prop_assert_eq!(index.handle(&block, expected, 0).offset, expected as u64);
                    prop_assert_eq!(index.full_bound(&block, expected), (keys[expected].clone(), trailer(1)));
                }
            }
        }

        #[test]
        fn a_bound_separates(a in proptest::collection::vec(0u8..5, 0..6), b in proptest::collection::vec(0u8..5, 0..6)) {
            let (a, b) = if a <= b { (a, b) } else { (b, a) };
            let (old, new) = (Trailer::new(Seq(3), Kind::Put), Trailer::new(Seq(5), Kind::Put));
            let (key, trailer) = bound_between((&a, new), &b);
            prop_assert!(compare((&key, trailer), (&a, new)) != Ordering::Less);
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
