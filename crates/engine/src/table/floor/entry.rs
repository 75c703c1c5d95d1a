//! An index entry of a floor, in 40 bytes (`docs/format/table.md`): the start of the key, number and kind, where the
//! rest of the key and the value lie, and where the key is next found below.

use crate::format::{Decode, Malformed, Reader};
use crate::key::{KEY_BYTES_MAX, KEYSPACE_BYTES, Trailer, VALUE_BYTES_MAX};

/// Bytes of an index entry.
pub(crate) const ENTRY_BYTES: usize = 40;
/// Bytes of the key that are in its entry, behind what all keys of the floor begin with.
pub(crate) const PREFIX_BYTES: usize = 16;
/// A tree's floors are told apart by one byte, of which one value means none.
pub(crate) const FLOORS_MAX: usize = 255;
/// Where the pointer lies in an entry.
pub(super) const POINTER_AT: usize = 32;

const VALUE_BITS: u32 = 27;
const NO_SLOT: u8 = u8::MAX;

/// The data part of a floor must end before.
pub(super) const DATA_BYTES_MAX: u64 = 1 << (u64::BITS - VALUE_BITS);

const _: () = assert!(VALUE_BYTES_MAX < 1 << VALUE_BITS && KEY_BYTES_MAX + KEYSPACE_BYTES < 1 << 24);

/// An entry of a lower floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The floor, counted from the bottom.
    pub(super) slot: u8,
    /// The entry, counted from the floor's first.
    pub(super) at: u32,
}

/// An index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Filled with zeros where the key is shorter.
    pub(super) prefix: [u8; PREFIX_BYTES],
    pub(super) trailer: Trailer,
    /// Where in the data part the rest of the key is, and the value behind it.
    pub(super) offset: u64,
    pub(super) value_bytes: u32,
    /// Behind what all keys of the floor begin with; what is more than the prefix takes is the rest.
    pub(super) key_bytes: u32,
    /// The first entry at or behind this one of the highest floor below that has any; `None` where none has.
    pub(super) next: Option<Pointer>,
}

/// The first bytes of a key, as a number in the order of keys.
pub(super) fn prefix_of(key: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let n = key.len().min(PREFIX_BYTES);
    prefix[..n].copy_from_slice(&key[..n]);
    prefix
}

impl Head {
    /// Bytes of the key that are in the data part.
    pub(super) fn rest_bytes(&self) -> u64 {
        u64::from(self.key_bytes).saturating_sub(PREFIX_BYTES as u64)
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        debug_assert!(self.offset < DATA_BYTES_MAX && self.value_bytes < 1 << VALUE_BITS);
        let place = self.offset << VALUE_BITS | u64::from(self.value_bytes);
        let next = self.next.unwrap_or(Pointer { slot: NO_SLOT, at: 0 });
        let mut out = [0; ENTRY_BYTES];
        out[..16].copy_from_slice(&self.prefix);
        out[16..24].copy_from_slice(&self.trailer.0.to_le_bytes());
        out[24..32].copy_from_slice(&place.to_le_bytes());
        out[32..36].copy_from_slice(&(u32::from(next.slot) << 24 | self.key_bytes).to_le_bytes());
        out[36..].copy_from_slice(&next.at.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Decode<Self> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(Malformed::new("an index entry that is cut off"));
        };
        let mut reader = Reader::new(rest);
        let (trailer, place) = (Trailer(reader.u64()?), reader.u64()?);
        if trailer.kind().is_none() {
            return Err(Malformed(format!("{trailer:?} is of a kind that is not known")));
        }
        let (key_bytes, next) = decode_pointer(reader.rest())?;
        Ok(Self {
            prefix: *prefix,
            trailer,
            offset: place >> VALUE_BITS,
            value_bytes: (place & ((1 << VALUE_BITS) - 1)) as u32,
            key_bytes,
            next,
        })
    }
}

/// The end of an entry, from [`POINTER_AT`] on: the key's length, and where it is next found below.
pub(super) fn decode_pointer(bytes: &[u8]) -> Decode<(u32, Option<Pointer>)> {
    let mut reader = Reader::new(bytes);
    let (word, at) = (reader.u32()?, reader.u32()?);
    let slot = (word >> 24) as u8;
    Ok((word & 0xff_ffff, (slot != NO_SLOT).then_some(Pointer { slot, at })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq};

    #[test]
    fn an_entry_is_read_back_at_its_limits() {
        for next in [None, Some(Pointer { slot: 254, at: u32::MAX }), Some(Pointer { slot: 0, at: 0 })] {
            let head = Head {
                prefix: prefix_of(b"seventeen bytes k"),
                trailer: Trailer::new(Seq::MAX, Kind::Delete),
                offset: DATA_BYTES_MAX - 1,
                value_bytes: VALUE_BYTES_MAX as u32,
                key_bytes: (KEY_BYTES_MAX + KEYSPACE_BYTES) as u32,
                next,
            };
            let bytes = head.encode();
            assert_eq!(Head::decode(&bytes), Ok(head));
            assert_eq!(decode_pointer(&bytes[POINTER_AT..]), Ok((head.key_bytes, next)));
        }
        assert!(Head::decode(&[0; ENTRY_BYTES]).is_err(), "kind 0");
        assert!(Head::decode(&[1; 20]).is_err());
    }
}
