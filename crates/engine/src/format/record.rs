//! Records, the unit of the log, of the manifest and of images (`docs/format/record.md`).
//!
//! A record is a header of 48 bytes, a payload, and zeros to the next multiple of 8. Two checksums, both over bytes
//! and place: one for the header alone, so that a reader can look for headers beyond damage at little cost, and one
//! for the payload. Each header also carries the position that was known durable when it was written; that is how a
//! reader tells a torn tail from damage to something that had been acknowledged.

use super::checksum::Place;
use super::coding::{Decode, Malformed, NUMBER_MAX, Reader};
use super::file::FileId;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Seq;
use crate::planted::{self, Bug};
use cuesta_device::ByteBuf;

/// Bytes of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 48;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT: usize = 8;
/// Longest payload: a batch of a store with the largest memory number, with room to spare.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 3 << 30;

/// Records whose kind has this bit may be passed over by a version that does not know the kind; others may not.
pub(crate) const SKIPPABLE_KIND: u8 = 0x80;

/// What a record's payload is. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Entries of one batch.
    Batch = 1,
    /// The log goes on in the file whose number is the payload; this one ends here.
    Seal = 2,
    /// An edit of the version.
    Edit = 3,
    /// Of an image: what the tracker knew.
    Heat = 4,
    /// Of an image: entries of the index.
    Index = 5,
    /// Of an image: how often keys were asked for.
    Counts = 6,
    /// Of the log: where the manifest ended when this was written.
    ManifestEnd = 7,
}

impl RecordKind {
    fn from_stored(number: u8) -> Option<Self> {
        let all =
            [Self::Batch, Self::Seal, Self::Edit, Self::Heat, Self::Index, Self::Counts, Self::ManifestEnd];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A place in a chain of files: file number, then offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// A record's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// `None` for a kind of a newer version, see [`RecordHeader::known_kind`].
    kind: Option<RecordKind>,
    kind_number: u8,
    /// Number of the first entry; 0 where the kind has no entries.
    pub(crate) first_seq: Seq,
    pub(crate) entries: u32,
    pub(crate) payload_bytes: usize,
    /// Everything before this was durable when the record was written.
    pub(crate) durable: Position,
    payload_sum: u32,
}

impl RecordHeader {
    /// Bytes from the start of this record to the start of the next.
    pub(crate) fn stored_bytes(&self) -> usize {
        stored_bytes(self.payload_bytes)
    }

    /// What the payload is; `None` when the record may be passed over.
    ///
    /// # Errors
    /// `Unsupported` for a kind that a newer version wrote and that must be understood.
    pub(crate) fn known_kind(&self, file: FileId) -> Result<Option<RecordKind>> {
        match self.kind {
            None if self.kind_number & SKIPPABLE_KIND == 0 => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{file} has a record of kind {}, of a newer version of this store", self.kind_number),
            )),
            kind => Ok(kind),
        }
    }

    /// Whether `payload` is what was written under this header at `place`.
    pub(crate) fn covers(&self, place: Place, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes
            && (place.checksum(&[payload]) == self.payload_sum || planted::has(Bug::LogChecksumSkipped))
    }
}

/// Bytes that a record with such a payload takes.
pub(crate) fn stored_bytes(payload_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + payload_bytes.next_multiple_of(RECORD_ALIGNMENT)
}

/// Appends a payload as a record that is to be sealed: a hole for its header, the payload, padding.
pub(crate) fn push_unsealed(out: &mut ByteBuf, payload: &[u8]) {
    let at = out.len();
    let end = at + stored_bytes(payload.len());
    out.reserve(end);
    out.resize(at + RECORD_HEADER_BYTES);
    out.extend_from_slice(payload);
    out.resize(end);
}

/// Fills the header of a record that lies in `record` with its payload already in place behind the header.
///
/// `place` is where the record begins in its file.
pub(crate) fn seal_record(
    record: &mut [u8],
    place: Place,
    kind: RecordKind,
    (first_seq, entries): (Seq, u32),
    payload_bytes: usize,
    durable: Position,
) {
    debug_assert!(record.len() >= RECORD_HEADER_BYTES + payload_bytes && payload_bytes <= PAYLOAD_BYTES_MAX);
    let (header, rest) = record.split_at_mut(RECORD_HEADER_BYTES);
    let payload_sum = place.checksum(&[&rest[..payload_bytes]]);
    header[4..8].copy_from_slice(&payload_sum.to_le_bytes());
    header[8..12].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    header[12..16].copy_from_slice(&entries.to_le_bytes());
    header[16..24].copy_from_slice(&first_seq.0.to_le_bytes());
    header[24..32].copy_from_slice(&durable.file.to_le_bytes());
    header[32..40].copy_from_slice(&durable.offset.to_le_bytes());
    header[40] = kind as u8;
    header[41..].fill(0);
    let header_sum = place.checksum(&[&header[4..]]);
    header[..4].copy_from_slice(&header_sum.to_le_bytes());
}

/// A whole record: header, payload, padding.
pub(crate) fn encode_record(
    place: Place,
    kind: RecordKind,
    numbers: (Seq, u32),
    payload: &[u8],
    durable: Position,
) -> Vec<u8> {
    let mut record = vec![0; stored_bytes(payload.len())];
    record[RECORD_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
    seal_record(&mut record, place, kind, numbers, payload.len(), durable);
    record
}

/// Reads the header at the front of `bytes`, which lie at `place`.
pub(crate) fn decode_record_header(bytes: &[u8], place: Place) -> Decode<RecordHeader> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err(Malformed(format!(
            "a record's header needs {RECORD_HEADER_BYTES} bytes, {} left",
            bytes.len()
        )));
    };
    // Cheap refusals first: a reader that looks for headers beyond damage comes here once for every 8 bytes.
    let kind_number = header[40];
    if kind_number == 0 {
        return Err(Malformed::new("no record"));
    }
    if header[41..].iter().any(|byte| *byte != 0) {
        return Err(Malformed::new("reserved bytes of a record's header are not zero"));
    }
    let mut reader = Reader::new(header);
    let header_sum = reader.u32()?;
    if place.checksum(&[&header[4..]]) != header_sum {
        return Err(Malformed::new("a record's header does not match its checksum"));
    }
    let (payload_sum, payload_bytes, entries) = (reader.u32()?, reader.u32()? as usize, reader.u32()?);
    let first_seq = Seq(reader.fixed_number()?);
    let durable = Position { file: reader.fixed_number()?, offset: reader.fixed_number()? };
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(Malformed(format!("a payload of {payload_bytes} bytes is past the limit")));
    }
    if first_seq.0 + u64::from(entries) > NUMBER_MAX {
        return Err(Malformed::new("a record's sequence numbers are past the limit"));
    }
    let kind = RecordKind::from_stored(kind_number);
    Ok(RecordHeader { kind, kind_number, first_seq, entries, payload_bytes, durable, payload_sum })
}

#[cfg(test)]
mod tests {
    use super::super::{FileId, FileKind, StoreId};
    use super::*;

    fn place() -> Place {
        Place { store: StoreId(5), file: FileId::new(FileKind::Log, 2), offset: 64 }
    }

    fn sample() -> Vec<u8> {
        let durable = Position { file: 2, offset: 64 };
        encode_record(place(), RecordKind::Batch, (Seq(10), 2), b"hello", durable)
    }

    #[test]
    fn numbers_past_the_limit_are_refused() {
        let encode = |seq, entries, file| {
            let durable = Position { file, offset: 64 };
            encode_record(place(), RecordKind::Batch, (Seq(seq), entries), b"", durable)
        };
        assert!(decode_record_header(&encode(NUMBER_MAX - 2, 2, 1), place()).is_ok());
        for (seq, entries, file) in [(NUMBER_MAX - 2, 3, 1), (u64::MAX, 1, 1), (1, 1, u64::MAX)] {
            assert!(
                decode_record_header(&encode(seq, entries, file), place()).is_err(),
                "{seq} {entries} {file}"
            );
        }
    }

    #[test]
    fn a_record_is_read_back() {
        let record = sample();
        assert_eq!(record.len(), 56);
        let header = decode_record_header(&record, place()).unwrap();
        assert_eq!((header.kind, header.first_seq, header.entries), (Some(RecordKind::Batch), Seq(10), 2));
        assert_eq!((header.payload_bytes, header.stored_bytes()), (5, 56));
        assert!(header.covers(place(), b"hello"));
        assert!(!header.covers(place(), b"hellp"));
    }

    #[test]
    fn every_bit_of_header_and_payload_counts() {
        let record = sample();
        for bit in 0..(RECORD_HEADER_BYTES + 5) * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let header = decode_record_header(&damaged, place());
            let intact =
                header.is_ok_and(|header| header.covers(place(), &damaged[RECORD_HEADER_BYTES..][..5]));
            assert!(!intact, "bit {bit}");
        }
    }

    #[test]
    fn a_kind_of_a_newer_version_is_refused_unless_it_may_be_passed_over() {
        for (kind, refused) in [(0x7f, true), (0xff, false)] {
            let mut record = sample();
            record[40] = kind;
            let sum = place().checksum(&[&record[4..RECORD_HEADER_BYTES]]);
            record[..4].copy_from_slice(&sum.to_le_bytes());
            let known = decode_record_header(&record, place()).unwrap().known_kind(place().file);
            match refused {
                true => assert_eq!(*known.unwrap_err().kind(), ErrorKind::Unsupported),
                false => assert_eq!(known.unwrap(), None),
            }
        }
    }

    #[test]
    fn a_record_of_a_recycled_file_is_refused() {
        let newer = Place { file: FileId::new(FileKind::Log, 3), ..place() };
        assert!(decode_record_header(&sample(), newer).is_err());
        assert!(decode_record_header(&sample(), place().at(128)).is_err());
    }
}
