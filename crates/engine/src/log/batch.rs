//! The payload of a batch record: entries one after the other, each a kind byte, the keyspace's id, the key's bytes
//! and, where the kind has one, the value's; of a range delete that is the key that the range ends before, as long as
//! the key space goes on if it is empty. The i-th entry has the record's first number plus i.

use crate::format::coding::{Append, put_bytes, put_varint};
use crate::format::{Decode, Malformed, Reader};
use crate::key::{Entry, KEY_BYTES_MAX, KeyspaceId, Kind, Seq, Trailer, VALUE_BYTES_MAX};
use crate::range_tombstones::RangeTombstone;

/// Appends one entry to a payload.
pub(crate) fn put_entry(out: &mut impl Append, kind: Kind, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
    out.append(&[kind as u8]);
    put_varint(out, u64::from(keyspace.0));
    put_bytes(out, key);
    if kind != Kind::Delete {
        put_bytes(out, value);
    }
}

/// The tombstone of a range delete, as [`BatchEntries`] gives it.
pub(crate) fn range_tombstone(entry: &Entry<'_>) -> Decode<RangeTombstone> {
    let missing = || Malformed::new("a range without a keyspace");
    let keyspace = KeyspaceId::of(entry.key).ok_or_else(missing)?;
    let to = if entry.value.is_empty() { keyspace.end() } else { keyspace.key(entry.value) };
    match entry.key < to.as_slice() {
        true => Ok(RangeTombstone { seq: entry.trailer.seq(), from: entry.key.into(), to: to.into() }),
        false => Err(Malformed::new("a range that ends before it begins")),
    }
}

/// Walks a payload's entries, numbering them.
#[derive(Debug)]
pub(crate) struct BatchEntries<'a> {
    reader: Reader<'a>,
    seq: Seq,
    /// The present entry's key with its prefix; one buffer for the whole walk.
    key: Vec<u8>,
}

impl<'a> BatchEntries<'a> {
    pub(crate) fn new(payload: &'a [u8], first_seq: Seq) -> Self {
        Self { reader: Reader::new(payload), seq: first_seq, key: Vec::new() }
    }

    /// The next entry; `None` at the end of the payload.
    pub(crate) fn next(&mut self) -> Decode<Option<Entry<'_>>> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let number = self.reader.u8()?;
        let Some(kind) = Kind::from_logged(number) else {
            return Err(Malformed(format!("entry kind {number} is not known to this version")));
        };
        let keyspace = KeyspaceId(self.reader.varint_u32()?);
        let user_key = self.reader.bytes()?;
        let value = if kind == Kind::Delete { &[][..] } else { self.reader.bytes()? };
        // A range may begin, and end, right behind the longest key.
        let (key_max, value_max) = match kind {
            Kind::RangeDelete => (KEY_BYTES_MAX + 1, KEY_BYTES_MAX + 1),
            _ => (KEY_BYTES_MAX, VALUE_BYTES_MAX),
        };
        if user_key.len() > key_max || value.len() > value_max || self.seq > Seq::MAX {
            return Err(Malformed::new("an entry past the limits of keys, values or numbers"));
        }
        self.key.clear();
        keyspace.prefix_to(&mut self.key, user_key);
        let trailer = Trailer::new(self.seq, kind);
        self.seq = Seq(self.seq.0 + 1);
        Ok(Some(Entry { key: &self.key, trailer, value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_numbered_from_the_first() {
        let mut payload = Vec::new();
        put_entry(&mut payload, Kind::Put, KeyspaceId(3), b"k", b"value");
        put_entry(&mut payload, Kind::Delete, KeyspaceId(0), b"", b"ignored");
        let mut entries = BatchEntries::new(&payload, Seq(7));
        let first = entries.next().unwrap().unwrap();
        assert_eq!((first.key, first.value), (&KeyspaceId(3).key(b"k")[..], &b"value"[..]));
        assert_eq!(first.trailer, Trailer::new(Seq(7), Kind::Put));
        let second = entries.next().unwrap().unwrap();
        assert_eq!((second.key, second.value), (&KeyspaceId(0).key(b"")[..], &b""[..]));
        assert_eq!(second.trailer, Trailer::new(Seq(8), Kind::Delete));
        assert_eq!(entries.next().unwrap(), None);
    }

    #[test]
    fn a_range_goes_up_to_its_end_or_that_of_its_keyspace() {
        let of = |from: &[u8], to: &[u8]| {
            let mut payload = Vec::new();
            put_entry(&mut payload, Kind::RangeDelete, KeyspaceId(3), from, to);
            let mut entries = BatchEntries::new(&payload, Seq(7));
            let entry = entries.next()?.expect("an entry");
            assert!(entry.trailer.is_range_delete() && entry.trailer.kind().is_none());
            range_tombstone(&entry)
        };
        let found = of(b"b", b"d").unwrap();
        let (from, to) = (KeyspaceId(3).key(b"b"), KeyspaceId(3).key(b"d"));
        assert_eq!((found.seq, &found.from[..], &found.to[..]), (Seq(7), &from[..], &to[..]));
        assert_eq!(of(b"", b"").unwrap().to[..], *KeyspaceId(4).key(b""));
        assert!(of(b"d", b"b").is_err() && of(b"d", b"d").is_err());
        let longest = [0xff; KEY_BYTES_MAX + 1];
        assert!(of(&longest, b"").is_ok() && of(&[&longest[..], &[0]].concat(), b"").is_err());
    }

    #[test]
    fn a_payload_cut_anywhere_is_refused_or_ends_at_an_entry() {
        let mut payload = Vec::new();
        put_entry(&mut payload, Kind::Put, KeyspaceId(3), b"key", b"value");
        for end in 1..payload.len() {
            assert!(BatchEntries::new(&payload[..end], Seq(1)).next().is_err(), "{end}");
        }
        assert!(BatchEntries::new(&[4, 0, 1, b'a'], Seq(1)).next().is_err());
    }
}
