//! A slot's bytes (`docs/format/slab.md`): one version of one object.
//!
//! Two checksums, both over their place: one of header and key, one of the value. So damage to a value costs that value
//! and not the knowledge of which key it was.
//!
//! What was written before an edit named it as live says in a tail how far everything was durable at that time: the mark by which
//! an open that misses a number tells damage from a write that a crash cut short.

use crate::format::{Decode, Malformed, Place, Reader};
use crate::key::{Entry, KEY_BYTES_MAX, KEYSPACE_BYTES, Seq, Trailer, VALUE_BYTES_MAX};

/// Bytes before the key.
pub(crate) const SLOT_HEADER_BYTES: usize = 24;
/// Bytes behind the value where there is a tail.
const TAIL_BYTES: usize = 8;
/// In the value's length: there is a tail.
const HAS_TAIL: u32 = 1 << 31;

/// What a slot says of its object besides the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
    value_bytes: usize,
    /// Of the tail.
    tail_bytes: usize,
    value_sum: u32,
}

/// Bytes that an object takes in its slot.
pub(crate) fn object_bytes(entry: &Entry<'_>) -> u64 {
    (SLOT_HEADER_BYTES + entry.key.len() + entry.value.len()) as u64
}

/// The same for one that is written before an edit names it.
pub(crate) fn early_bytes(entry: &Entry<'_>) -> u64 {
    object_bytes(entry) + TAIL_BYTES as u64
}

/// Writes an object to the front of `out`, which is its slot's bytes at `place`; with a tail, if no edit names it yet: every number
/// up to `durable` is on media.
pub(crate) fn encode(out: &mut [u8], place: Place, entry: &Entry<'_>, durable: Option<Seq>) {
    let (header, body) = out.split_at_mut(SLOT_HEADER_BYTES);
    let (key, value) = body.split_at_mut(entry.key.len());
    key.copy_from_slice(entry.key);
    let (value, tail) = value.split_at_mut(entry.value.len());
    value.copy_from_slice(entry.value);
    let (mut value_bytes, mut tail_bytes) = (entry.value.len() as u32, 0);
    if let Some(durable) = durable {
        (value_bytes, tail_bytes) = (value_bytes | HAS_TAIL, TAIL_BYTES);
        tail[..TAIL_BYTES].copy_from_slice(&durable.0.to_le_bytes());
    }
    header[4..8].copy_from_slice(&place.checksum(&[value, &tail[..tail_bytes]]).to_le_bytes());
    header[8..16].copy_from_slice(&entry.trailer.0.to_le_bytes());
    header[16..20].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
    header[20..24].copy_from_slice(&value_bytes.to_le_bytes());
    let sum = place.checksum(&[&header[4..], key]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads header and key of the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode_head(slot: &[u8], place: Place) -> Decode<Head<'_>> {
    let mut reader = Reader::new(slot);
    let (sum, value_sum) = (reader.u32()?, reader.u32()?);
    let trailer = Trailer(reader.u64()?);
    let (key_bytes, value_bytes) = (reader.u32()? as usize, reader.u32()?);
    let tail_bytes = if value_bytes & HAS_TAIL == 0 { 0 } else { TAIL_BYTES };
    let value_bytes = (value_bytes & !HAS_TAIL) as usize;
    if key_bytes > KEYSPACE_BYTES + KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err(Malformed(format!("a key of {key_bytes} and a value of {value_bytes} bytes")));
    }
    let key = reader.take(key_bytes)?;
    if reader.rest().len() < value_bytes + tail_bytes {
        return Err(Malformed(format!("a value of {value_bytes} bytes is longer than its slot")));
    }
    if place.checksum(&[&slot[4..SLOT_HEADER_BYTES], key]) != sum {
        return Err(Malformed::new("the checksum of header and key does not match"));
    }
    if trailer.kind().is_none() || key_bytes < KEYSPACE_BYTES || trailer.seq() > Seq::MAX {
        return Err(Malformed::new("an object of an unknown kind or without a keyspace"));
    }
    Ok(Head { key, trailer, value_bytes, tail_bytes, value_sum })
}

/// Reads the object in the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode(slot: &[u8], place: Place) -> Decode<Entry<'_>> {
    decode_early(slot, place).map(|(entry, _)| entry)
}

/// As [`decode`], and what the tail says, if there is one.
pub(crate) fn decode_early(slot: &[u8], place: Place) -> Decode<(Entry<'_>, Option<Seq>)> {
    let head = decode_head(slot, place)?;
    let from = SLOT_HEADER_BYTES + head.key.len();
    let body = &slot[from..from + head.value_bytes + head.tail_bytes];
    if place.checksum(&[body]) != head.value_sum {
        return Err(Malformed::new("the value's checksum does not match"));
    }
    let (value, tail) = body.split_at(head.value_bytes);
    let durable = tail.try_into().ok().map(|tail| Seq(u64::from_le_bytes(tail)));
    Ok((Entry { key: head.key, trailer: head.trailer, value }, durable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileId, FileKind, StoreId};
    use crate::key::{KeyspaceId, Kind};

    const PLACE: Place =
        Place { store: StoreId(9), file: FileId { kind: FileKind::Slab, number: 4 }, offset: 4096 + 3 * 88 };

    fn sample(out: &mut [u8]) -> (Vec<u8>, Trailer) {
        let (key, trailer) = (KeyspaceId(1).key(b"key"), Trailer::new(Seq(77), Kind::Put));
        encode(out, PLACE, &Entry { key: &key, trailer, value: b"some value" }, None);
        (key, trailer)
    }

    #[test]
    fn a_tail_is_read_back_and_guarded() {
        let (key, trailer) = (KeyspaceId(1).key(b"key"), Trailer::new(Seq(77), Kind::Put));
        let entry = Entry { key: &key, trailer, value: b"some value" };
        let bytes = early_bytes(&entry) as usize;
        let mut clean = [0xee; 88];
        encode(&mut clean, PLACE, &entry, Some(Seq(70)));
        assert_eq!(decode_early(&clean, PLACE), Ok((entry, Some(Seq(70)))));
        assert_eq!(decode(&clean, PLACE), Ok(entry));
        assert!(
            decode_early(&clean[..bytes], PLACE).is_ok() && decode_early(&clean[..bytes - 1], PLACE).is_err()
        );
        for bit in 0..bytes * 8 {
            let mut slot = clean;
            slot[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_early(&slot, PLACE).is_err(), "bit {bit}");
        }
        encode(&mut clean, PLACE, &entry, None);
        assert_eq!(decode_early(&clean, PLACE), Ok((entry, None)));
    }

    #[test]
    fn an_object_is_read_back_from_its_place_and_no_other() {
        let mut slot = [0xee; 88];
        let (key, trailer) = sample(&mut slot);
        assert_eq!(decode(&slot, PLACE), Ok(Entry { key: &key, trailer, value: b"some value" }));
        assert!(decode(&slot, PLACE.at(PLACE.offset + 88)).is_err());
        assert!(decode(&slot[..40], PLACE).is_err());
    }

    #[test]
    fn damage_to_a_value_leaves_the_key_known() {
        let mut clean = [0; 88];
        let (key, _) = sample(&mut clean);
        let bytes = SLOT_HEADER_BYTES + key.len() + 10;
        for bit in 0..bytes * 8 {
            let mut slot = clean;
            slot[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&slot, PLACE).is_err(), "bit {bit}");
            let in_value = bit / 8 >= SLOT_HEADER_BYTES + key.len();
            assert_eq!(decode_head(&slot, PLACE).is_ok(), in_value, "bit {bit}");
        }
    }
}
