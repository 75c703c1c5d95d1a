//! Blocks and the footer as they lie in a table's files (`docs/format/table.md`).

use super::compression::{Compression, RAW_BLOCK_BYTES_MAX};
use crate::format::{Decode, Malformed, Place, Reader};
use crate::planted::{self, Bug};

/// Where a stored block lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    /// Bytes as stored, trailer included.
    pub(crate) bytes: u32,
}

impl BlockHandle {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Decode<Self> {
        Ok(Self { offset: reader.fixed_number()?, bytes: reader.u32()? })
    }

    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }
}

/// Bytes of a stored handle.
pub(crate) const HANDLE_BYTES: usize = 12;
/// Behind each stored block: compression (1), length before compression (4), checksum (4).
pub(crate) const BLOCK_TRAILER_BYTES: usize = 9;
/// The last bytes of a meta part.
pub(crate) const FOOTER_BYTES: usize = 64;
const FOOTER_MAGIC: &[u8; 8] = b"CUESTAFT";

/// The trailer of a block stored at `place`.
pub(crate) fn encode_block_trailer(
    place: Place,
    payload: &[u8],
    compression: Compression,
    raw_bytes: usize,
) -> [u8; BLOCK_TRAILER_BYTES] {
    let mut trailer = [0; BLOCK_TRAILER_BYTES];
    trailer[0] = compression as u8;
    trailer[1..5].copy_from_slice(&(raw_bytes as u32).to_le_bytes());
    let sum = place.checksum(&[payload, &trailer[..5]]);
    trailer[5..].copy_from_slice(&sum.to_le_bytes());
    trailer
}

/// A stored block that passed its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) compression: Compression,
    pub(crate) raw_bytes: usize,
}

/// Checks a stored block read from `place`.
pub(crate) fn decode_stored(bytes: &[u8], place: Place) -> Decode<Stored<'_>> {
    let Some((payload, trailer)) = bytes.split_last_chunk::<BLOCK_TRAILER_BYTES>() else {
        return Err(Malformed(format!("a block of {} bytes is shorter than its trailer", bytes.len())));
    };
    let mut reader = Reader::new(trailer);
    let (compression, raw_bytes, sum) = (reader.u8()?, reader.u32()? as usize, reader.u32()?);
    if place.checksum(&[payload, &trailer[..5]]) != sum && !planted::has(Bug::BlockChecksumSkipped) {
        return Err(Malformed::new("a block does not match its checksum"));
    }
    let compression = Compression::from_stored(compression)?;
    match compression {
        // What it says of itself costs nobody memory.
        Compression::None if raw_bytes != payload.len() => {
            Err(Malformed(format!("the block has {} bytes, {raw_bytes} were stored", payload.len())))
        }
        Compression::Lz4 | Compression::Zstd if raw_bytes > RAW_BLOCK_BYTES_MAX => {
            Err(Malformed(format!("a block of {raw_bytes} bytes is past the limit")))
        }
        _ => Ok(Stored { payload, compression, raw_bytes }),
    }
}

/// Where the top index and the properties lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) top: BlockHandle,
    pub(crate) properties: BlockHandle,
}

impl Footer {
    pub(crate) fn encode(self, place: Place) -> Vec<u8> {
        let mut out = FOOTER_MAGIC.to_vec();
        self.top.encode(&mut out);
        self.properties.encode(&mut out);
        out.resize(FOOTER_BYTES - 4, 0);
        let sum = place.checksum(&[&out]);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8], place: Place) -> Decode<Self> {
        let mut reader = Reader::new(bytes);
        if reader.take(8)? != FOOTER_MAGIC {
            return Err(Malformed::new("the footer is missing; the file was not finished"));
        }
        let footer =
            Self { top: BlockHandle::decode(&mut reader)?, properties: BlockHandle::decode(&mut reader)? };
        match footer.encode(place) == bytes {
            true => Ok(footer),
            false => Err(Malformed::new("the footer does not match its checksum")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileId, FileKind, StoreId};

    #[test]
    fn what_a_block_says_of_its_length_is_bounded_by_what_is_there_or_by_what_can_be() {
        let place = Place { store: StoreId(7), file: FileId::new(FileKind::Meta, 1), offset: 0 };
        let decoded = |payload: &[u8], compression, raw_bytes| {
            let stored = [payload, &encode_block_trailer(place, payload, compression, raw_bytes)].concat();
            decode_stored(&stored, place).map(|stored| stored.raw_bytes).map_err(|why| why.0)
        };
        assert_eq!(decoded(b"four", Compression::None, 4), Ok(4));
        assert!(decoded(b"four", Compression::None, 5).is_err());
        assert_eq!(decoded(b"four", Compression::Lz4, RAW_BLOCK_BYTES_MAX), Ok(RAW_BLOCK_BYTES_MAX));
        assert!(decoded(b"four", Compression::Zstd, RAW_BLOCK_BYTES_MAX + 1).is_err());
        // The checksums of a floor's sectors may be as long as they are.
        let long = vec![7; RAW_BLOCK_BYTES_MAX + 1];
        assert_eq!(decoded(&long, Compression::None, long.len()), Ok(long.len()));
    }
}
