//! A slot's bytes (`docs/format/slab.md`): one version of one object.
//!
//! Two checksums, both over their place: one of header and key, one of the value. So damage to a value costs that value
//! and not the knowledge of which key it was.

use crate::format::{Decode, Malformed, Place, Reader};
use crate::key::{Entry, KEY_BYTES_MAX, KEYSPACE_BYTES, Seq, Trailer, VALUE_BYTES_MAX};

/// Bytes before the key.
pub(crate) const SLOT_HEADER_BYTES: usize = 24;

/// What a slot says of its object besides the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
    value_bytes: usize,
    value_sum: u32,
}

/// Bytes that an object takes in its slot.
pub(crate) fn object_bytes(entry: &Entry<'_>) -> u64 {
    (SLOT_HEADER_BYTES + entry.key.len() + entry.value.len()) as u64
}

/// Writes an object to the front of `out`, which is its slot's bytes at `place`.
pub(crate) fn encode(out: &mut [u8], place: Place, entry: &Entry<'_>) {
    let (header, body) = out.split_at_mut(SLOT_HEADER_BYTES);
    header[4..8].copy_from_slice(&place.checksum(&[entry.value]).to_le_bytes());
    header[8..16].copy_from_slice(&entry.trailer.0.to_le_bytes());
    header[16..20].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
    header[20..24].copy_from_slice(&(entry.value.len() as u32).to_le_bytes());
    let sum = place.checksum(&[&header[4..], entry.key]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    let (key, value) = body.split_at_mut(entry.key.len());
    key.copy_from_slice(entry.key);
    value[..entry.value.len()].copy_from_slice(entry.value);
}

/// Reads header and key of the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode_head(slot: &[u8], place: Place) -> Decode<Head<'_>> {
    let mut reader = Reader::new(slot);
    let (sum, value_sum) = (reader.u32()?, reader.u32()?);
    let trailer = Trailer(reader.u64()?);
    let (key_bytes, value_bytes) = (reader.u32()? as usize, reader.u32()? as usize);
    if key_bytes > KEYSPACE_BYTES + KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return Err(Malformed(format!("a key of {key_bytes} and a value of {value_bytes} bytes")));
    }
    let key = reader.take(key_bytes)?;
    if reader.rest().len() < value_bytes {
        return Err(Malformed(format!("a value of {value_bytes} bytes is longer than its slot")));
    }
    if place.checksum(&[&slot[4..SLOT_HEADER_BYTES], key]) != sum {
        return Err(Malformed::new("the checksum of header and key does not match"));
    }
    if trailer.kind().is_none() || key_bytes < KEYSPACE_BYTES || trailer.seq() > Seq::MAX {
        return Err(Malformed::new("an object of an unknown kind or without a keyspace"));
    }
    Ok(Head { key, trailer, value_bytes, value_sum })
}

/// Reads the object in the slot at `place`, whose bytes `slot` are.
pub(crate) fn decode(slot: &[u8], place: Place) -> Decode<Entry<'_>> {
    let head = decode_head(slot, place)?;
    let from = SLOT_HEADER_BYTES + head.key.len();
    let value = &slot[from..from + head.value_bytes];
    match place.checksum(&[value]) == head.value_sum {
        true => Ok(Entry { key: head.key, trailer: head.trailer, value }),
        false => Err(Malformed::new("the value's checksum does not match")),
    }
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
        encode(out, PLACE, &Entry { key: &key, trailer, value: b"some value" });
        (key, trailer)
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
