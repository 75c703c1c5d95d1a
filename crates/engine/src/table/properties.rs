//! What a table says of itself: tag-length-value fields in the meta part (`docs/format/table.md`).

use super::compression::Compression;
use super::floor::Shape;
use crate::format::coding::{put_bytes, put_field, put_varint};
use crate::format::{Decode, Malformed, Reader};
use crate::key::{Entry, KeyspaceId, Kind, Seq};
use std::fmt;

/// Entries of one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceCount {
    pub(crate) id: u32,
    pub(crate) entries: u64,
    /// Bytes of keys and values before compression.
    pub(crate) bytes: u64,
}

/// Counts and bounds of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) smallest_key: Vec<u8>,
    pub(crate) largest_key: Vec<u8>,
    pub(crate) smallest_seq: Seq,
    pub(crate) largest_seq: Seq,
    /// Where the last data block ends, and how long the data part's file is.
    pub(crate) data_end: u64,
    pub(crate) data_file_bytes: u64,
    pub(crate) filter_bits_per_key: u32,
    pub(crate) compression: Compression,
    /// In order of ids.
    pub(crate) keyspaces: Vec<KeyspaceCount>,
    /// A table of blocks says of each partition where a search goes on below.
    pub(crate) linked: bool,
    /// What a floor says of itself; `None` for a table of blocks.
    pub(crate) floor: Option<Shape>,
    /// Length of the meta part's file: known once it is written, so not stored in it.
    pub(crate) meta_file_bytes: u64,
}

mod field {
    pub(super) const COUNTS: u64 = 1;
    pub(super) const SMALLEST: u64 = 2;
    pub(super) const LARGEST: u64 = 3;
    pub(super) const DATA: u64 = 4;
    pub(super) const KEYSPACES: u64 = 5;
    pub(super) const SHAPE: u64 = 6;
    pub(super) const FLOOR: u64 = 7;
    pub(super) const LINKED: u64 = 8;
}

impl Properties {
    /// Takes an entry into the counts.
    pub(crate) fn count(&mut self, entry: Entry<'_>) {
        let bytes = (entry.key.len() + entry.value.len()) as u64;
        let seq = entry.trailer.seq();
        if self.entries == 0 {
            self.smallest_key = entry.key.to_vec();
            self.smallest_seq = seq;
        }
        self.smallest_seq = self.smallest_seq.min(seq);
        self.largest_seq = self.largest_seq.max(seq);
        self.entries += 1;
        self.tombstones += u64::from(entry.trailer.kind() == Some(Kind::Delete));
        self.raw_bytes += bytes;
        let id = KeyspaceId::of(entry.key).unwrap_or(KeyspaceId::DEFAULT).0;
        if self.keyspaces.last().is_none_or(|last| last.id != id) {
            self.keyspaces.push(KeyspaceCount { id, ..KeyspaceCount::default() });
        }
        if let Some(last) = self.keyspaces.last_mut() {
            last.entries += 1;
            last.bytes += bytes;
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |number, write: &dyn Fn(&mut Vec<u8>)| {
            let mut body = Vec::new();
            write(&mut body);
            put_field(&mut out, number, true, &body);
        };
        put(field::COUNTS, &|body| {
            let numbers =
                [self.entries, self.tombstones, self.raw_bytes, self.smallest_seq.0, self.largest_seq.0];
            numbers.into_iter().for_each(|number| put_varint(body, number));
        });
        put(field::SMALLEST, &|body| put_bytes(body, &self.smallest_key));
        put(field::LARGEST, &|body| put_bytes(body, &self.largest_key));
        put(field::DATA, &|body| {
            put_varint(body, self.data_end);
            put_varint(body, self.data_file_bytes);
        });
        put(field::KEYSPACES, &|body| {
            for keyspace in &self.keyspaces {
                let numbers = [u64::from(keyspace.id), keyspace.entries, keyspace.bytes];
                numbers.into_iter().for_each(|number| put_varint(body, number));
            }
        });
        put(field::SHAPE, &|body| {
            put_varint(body, u64::from(self.filter_bits_per_key));
            body.push(self.compression as u8);
        });
        if self.linked {
            put(field::LINKED, &|_| {});
        }
        if let Some(shape) = &self.floor {
            put(field::FLOOR, &|body| shape.encode(body));
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Decode<Self> {
        let mut properties = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let field = reader.field()?;
            let known = properties.take(field.number, Reader::new(field.body))?;
            if !known && field.must_understand {
                return Err(Malformed(format!("feature {} of a newer version", field.number)));
            }
        }
        Ok(properties)
    }

    fn take(&mut self, number: u64, mut body: Reader<'_>) -> Decode<bool> {
        match number {
            field::COUNTS => {
                self.entries = body.number()?;
                self.tombstones = body.number()?;
                self.raw_bytes = body.number()?;
                self.smallest_seq = Seq(body.number()?);
                self.largest_seq = Seq(body.number()?);
            }
            field::SMALLEST => self.smallest_key = body.bytes()?.to_vec(),
            field::LARGEST => self.largest_key = body.bytes()?.to_vec(),
            field::DATA => {
                self.data_end = body.number()?;
                self.data_file_bytes = body.number()?;
            }
            field::KEYSPACES => {
                while !body.is_empty() {
                    let id = body.varint_u32()?;
                    self.keyspaces.push(KeyspaceCount { id, entries: body.number()?, bytes: body.number()? });
                }
            }
            field::SHAPE => {
                self.filter_bits_per_key = body.varint_u32()?;
                self.compression = Compression::from_stored(body.u8()?)?;
            }
            field::LINKED => self.linked = true,
            field::FLOOR => self.floor = Some(Shape::decode(&mut body)?),
            _ => return Ok(false),
        }
        body.finish()?;
        Ok(true)
    }
}

impl fmt::Display for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "entries        {} ({} tombstones)", self.entries, self.tombstones)?;
        writeln!(f, "bytes          {} before compression ({})", self.raw_bytes, self.compression)?;
        let (smallest, largest) = (self.smallest_key.escape_ascii(), self.largest_key.escape_ascii());
        writeln!(f, "keys           {smallest} to {largest}")?;
        writeln!(f, "numbers        {:?} to {:?}", self.smallest_seq, self.largest_seq)?;
        writeln!(
            f,
            "data part      blocks end at {}, file of {} bytes",
            self.data_end, self.data_file_bytes
        )?;
        writeln!(f, "filters        {} bits a key", self.filter_bits_per_key)?;
        if self.linked {
            writeln!(f, "indexes        say where to go on below")?;
        }
        for keyspace in &self.keyspaces {
            let KeyspaceCount { id, entries, bytes } = keyspace;
            writeln!(f, "keyspace {id:<5} {entries} entries, {bytes} bytes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Trailer;

    #[test]
    fn properties_are_read_back() {
        let mut properties = Properties { filter_bits_per_key: 14, linked: true, ..Properties::default() };
        for (id, seq, kind) in [(0, 9, Kind::Put), (0, 3, Kind::Delete), (7, 5, Kind::Put)] {
            let key = KeyspaceId(id).key(b"k");
            properties.count(Entry { key: &key, trailer: Trailer::new(Seq(seq), kind), value: b"v" });
        }
        properties.largest_key = KeyspaceId(7).key(b"k");
        assert_eq!((properties.entries, properties.tombstones), (3, 1));
        assert_eq!((properties.smallest_seq, properties.largest_seq), (Seq(3), Seq(9)));
        assert_eq!(properties.keyspaces.len(), 2);
        assert_eq!(Properties::decode(&properties.encode()), Ok(properties));
    }
}
