//! Filters: whether a key can be in a partition of a table (`docs/format/table.md`).
//!
//! A blocked Bloom filter: one hash picks a line of 64 bytes, all probes fall into it, so a lookup is one cache miss.
//! It answers "no" wrongly never, and "yes" wrongly for about one absent key in 100 at 10 bits a key, in 700 at 14.
//! Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom filters", 2007.

use crate::format::{Decode, Malformed};
use crate::planted::{self, Bug};

/// Kind of filter, in its first byte.
const BLOCKED_BLOOM: u8 = 1;
/// Tag, probes, two reserved bytes, number of lines.
pub(crate) const FILTER_HEADER_BYTES: usize = 8;
/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;
const PROBES_MAX: u8 = 16;
/// Each bit of a key lets so many more of those in vain ask: a little more than the ln 2 to the ln 2 of a plain filter.
const PASS_EACH_BIT: f64 = 0.63;

/// Lines for so many keys.
fn lines(keys: usize, bits_per_key: u32) -> usize {
    (keys * bits_per_key as usize).div_ceil(LINE_BYTES * 8).max(1)
}

/// Bytes of a filter.
pub(crate) fn filter_bytes(keys: usize, bits_per_key: u32) -> usize {
    FILTER_HEADER_BYTES + lines(keys, bits_per_key) * LINE_BYTES
}

/// About which share of keys that are not in a filter it lets pass.
pub(crate) fn strangers(bits_per_key: u32) -> f64 {
    PASS_EACH_BIT.powi(bits_per_key as i32)
}

/// A filter of keys with these hashes.
pub(crate) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let lines = lines(hashes.len(), bits_per_key);
    // ln 2 bits per probe are best for a plain filter; a blocked one wants slightly fewer.
    let probes = (f64::from(bits_per_key) * 0.6).round().clamp(1.0, f64::from(PROBES_MAX)) as u8;
    let mut out = vec![0; FILTER_HEADER_BYTES + lines * LINE_BYTES];
    out[0] = BLOCKED_BLOOM;
    out[1] = probes;
    out[4..8].copy_from_slice(&(lines as u32).to_le_bytes());
    let forgotten = usize::from(planted::has(Bug::FilterForgetsAKey));
    for hash in &hashes[forgotten..] {
        let line = FILTER_HEADER_BYTES + line_of(*hash, lines) * LINE_BYTES;
        for bit in bits(*hash, probes) {
            out[line + bit / 8] |= 1 << (bit % 8);
        }
    }
    out
}

fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Which bits of its line a hash sets: nine bits of each step of a multiplicative sequence.
fn bits(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let mut state = (hash as u32) | 1;
    (0..probes).map(move |_| {
        state = state.wrapping_mul(0x9e37_79b1).rotate_left(15);
        (state >> 23) as usize
    })
}

/// What the header of a filter says: enough to look at one line of it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterShape {
    probes: u8,
    lines: usize,
}

impl FilterShape {
    /// Of the filter of so many bytes that begins with `header`.
    pub(crate) fn decode(header: &[u8; FILTER_HEADER_BYTES], filter_bytes: usize) -> Decode<Self> {
        let lines = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let shape = header[0] == BLOCKED_BLOOM && (1..=PROBES_MAX).contains(&header[1]);
        if !shape || lines == 0 || filter_bytes != FILTER_HEADER_BYTES + lines * LINE_BYTES {
            return Err(Malformed(format!("a filter of kind {} and {lines} lines that is none", header[0])));
        }
        Ok(Self { probes: header[1], lines })
    }

    /// Where the line for this hash begins in the filter; it has [`LINE_BYTES`].
    pub(crate) fn line_at(self, hash: u64) -> usize {
        FILTER_HEADER_BYTES + line_of(hash, self.lines) * LINE_BYTES
    }

    /// Whether a key with this hash can be in the filter of which that is the line.
    pub(crate) fn may_contain(self, line: &[u8], hash: u64) -> bool {
        bits(hash, self.probes).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
    }
}

/// Whether a key with this hash can be in the filter.
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> Decode<bool> {
    let Some(header) = filter.first_chunk() else {
        return Err(Malformed::new("a filter shorter than its header"));
    };
    let shape = FilterShape::decode(header, filter.len())?;
    Ok(shape.may_contain(&filter[shape.line_at(hash)..][..LINE_BYTES], hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    #[test]
    fn no_key_is_denied_and_few_strangers_pass() {
        for (bits, one_in) in [(10, 70), (14, 350)] {
            let key = |i: u32| hash(format!("user{i:08}").as_bytes());
            let hashes: Vec<u64> = (0..10_000).map(key).collect();
            let filter = build(&hashes, bits);
            assert_eq!(filter.len(), filter_bytes(10_000, bits));
            assert!(hashes.iter().all(|hash| may_contain(&filter, *hash).unwrap()));
            let passed = (10_000..110_000).filter(|i| may_contain(&filter, key(*i)).unwrap()).count();
            assert!(passed < 100_000 / one_in, "{passed} of 100000 strangers pass at {bits} bits");
            let thought = strangers(bits) * 100_000.0;
            assert!((0.6..1.4).contains(&(passed as f64 / thought)), "{passed}, {thought}");
        }
    }

    #[test]
    fn bytes_that_are_no_filter_are_refused() {
        let filter = build(&[1, 2, 3], 10);
        assert!(may_contain(&filter[..filter.len() - 1], 1).is_err());
        assert!(may_contain(&[], 1).is_err());
        let mut other = filter.clone();
        other[0] = 2;
        assert!(may_contain(&other, 1).is_err());
    }
}
