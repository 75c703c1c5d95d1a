//! A slot's bytes (`docs/format/slab.md`): one version of one object.
//!
//! Two checksums, both over their place: one of header and key, one of the value. So damage to a value costs that value
//! and not the knowledge of which key it was.
//!
//! A slot is used for one object after the other, so an object has the [`Generation`] of the slot with it, by which a
//! reader tells it from what was there before and should have been written over.
//!
//! What was written before an edit named it as live says in a tail how far everything was durable at that time: the
//! mark by which an open that misses a number tells damage from a write that a crash cut short.

use super::generation::Generation;
use crate::format::{Decode, Malformed, Place, Reader};
use crate::key::{Entry, KEY_BYTES_MAX, KEYSPACE_BYTES, Seq, Trailer, VALUE_BYTES_MAX};

/// Bytes before the key.
pub(crate) const SLOT_HEADER_BYTES: usize = 24;
/// Bytes behind the value where there is a tail.
const TAIL_BYTES: usize = 8;
/// In the value's length: there is a tail.
const HAS_TAIL: u32 = 1 << 31;
/// In the key's length: where the slot's generation begins.
const GENERATION_SHIFT: u32 = 24;

/// What a slot says of its object besides the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
    pub(crate) generation: Generation,
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

/// Writes an object to the front of `out`, which is its slot's bytes at `place`, for the slot's use of that generation;
/// with a tail, if no edit names it yet: every number up to `durable` is on media.
pub(crate) fn encode(
    out: &mut [u8],
    (place, generation): (Place, Generation),
    entry: &Entry<'_>,
    durable: Option<Seq>,
) {
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
    let key_bytes = entry.key.len() as u32 | u32::from(generation.0) << GENERATION_SHIFT;
    header[16..20].copy_from_slice(&key_bytes.to_le_bytes());
    header[20..24].copy_from_slice(&value_bytes.to_le_bytes());
    let sum = place.checksum(&[&header[4..], key]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads header and key of the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode_head(slot: &[u8], place: Place) -> Decode<Head<'_>> {
    let mut reader = Reader::new(slot);
    let (sum, value_sum) = (reader.u32()?, reader.u32()?);
    let trailer = Trailer(reader.u64()?);
    let (key_bytes, value_bytes) = (reader.u32()?, reader.u32()?);
    let generation = Generation((key_bytes >> GENERATION_SHIFT) as u8);
    let key_bytes = (key_bytes & ((1 << GENERATION_SHIFT) - 1)) as usize;
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
    Ok(Head { key, trailer, generation, value_bytes, tail_bytes, value_sum })
}

/// An object in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object<'a> {
    pub(crate) entry: Entry<'a>,
    pub(crate) generation: Generation,
    /// What its tail says, if it has one.
    pub(crate) durable: Option<Seq>,
}

/// Reads the object in the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode(slot: &[u8], place: Place) -> Decode<Object<'_>> {
    let head = decode_head(slot, place)?;
    let from = SLOT_HEADER_BYTES + head.key.len();
    let body = &slot[from..from + head.value_bytes + head.tail_bytes];
    if place.checksum(&[body]) != head.value_sum {
        return Err(Malformed::new("the value's checksum does not match"));
    }
    let (value, tail) = body.split_at(head.value_bytes);
    let durable = tail.try_into().ok().map(|tail| Seq(u64::from_le_bytes(tail)));
    let entry = Entry { key: head.key, trailer: head.trailer, value };
    Ok(Object { entry, generation: head.generation, durable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileId, FileKind, StoreId};
    use crate::key::{KeyspaceId, Kind};

    const PLACE: Place =
        Place { store: StoreId(9), file: FileId { kind: FileKind::Slab, number: 4 }, offset: 4096 + 3 * 88 };

    const HERE: (Place, Generation) = (PLACE, Generation(200));

    fn sample(out: &mut [u8]) -> (Vec<u8>, Trailer) {
        let (key, trailer) = (KeyspaceId(1).key(b"key"), Trailer::new(Seq(77), Kind::Put));
        encode(out, HERE, &Entry { key: &key, trailer, value: b"some value" }, None);
        (key, trailer)
    }

    #[test]
    fn a_tail_is_read_back_and_guarded() {
        let (key, trailer) = (KeyspaceId(1).key(b"key"), Trailer::new(Seq(77), Kind::Put));
        let entry = Entry { key: &key, trailer, value: b"some value" };
        let bytes = early_bytes(&entry) as usize;
        let mut clean = [0xee; 88];
        encode(&mut clean, HERE, &entry, Some(Seq(70)));
        let object = Object { entry, generation: HERE.1, durable: Some(Seq(70)) };
        assert_eq!(decode(&clean, PLACE), Ok(object));
        assert!(decode(&clean[..bytes], PLACE).is_ok() && decode(&clean[..bytes - 1], PLACE).is_err());
        for bit in 0..bytes * 8 {
            let mut slot = clean;
            slot[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&slot, PLACE).is_err(), "bit {bit}");
        }
        encode(&mut clean, HERE, &entry, None);
        assert_eq!(decode(&clean, PLACE), Ok(Object { durable: None, ..object }));
    }

    #[test]
    fn an_object_is_read_back_from_its_place_and_no_other() {
        let mut slot = [0xee; 88];
        let (key, trailer) = sample(&mut slot);
        let entry = Entry { key: &key, trailer, value: b"some value" };
        assert_eq!(decode(&slot, PLACE), Ok(Object { entry, generation: HERE.1, durable: None }));
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
