//! CRC-32C over bytes *and their place*: store, file and offset. A block that is intact but stale, misdirected, or
//! from another store fails like a damaged one.

use super::file::{FileId, StoreId};
use crate::planted::{self, Bug};

/// Where some bytes belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) store: StoreId,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
}

impl Place {
    /// The same file, at `offset`.
    pub(crate) fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The checksum of `parts`, one after the other, at this place: over store id (16 bytes), file kind (1),
    /// file number (8), offset (8), all little-endian, then the parts.
    pub(crate) fn checksum(&self, parts: &[&[u8]]) -> u32 {
        if planted::has(Bug::ChecksumsSkipped) {
            return 0;
        }
        let mut place = [0u8; 33];
        place[..16].copy_from_slice(&self.store.0.to_le_bytes());
        place[16] = self.file.kind as u8;
        place[17..25].copy_from_slice(&self.file.number.to_le_bytes());
        place[25..].copy_from_slice(&self.offset.to_le_bytes());
        if planted::has(Bug::ChecksumWithoutPlace) {
            place = [0; 33];
        }
        parts.iter().fold(crc32c::crc32c(&place), |crc, part| crc32c::crc32c_append(crc, part))
    }
}

impl Place {
    /// The checksum of what led to `sum`, and of `part` behind it.
    pub(crate) fn checksum_on(sum: u32, part: &[u8]) -> u32 {
        crc32c::crc32c_append(sum, part)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::FileKind;
    use super::*;

    #[test]
    fn a_block_fails_at_any_other_place() {
        let file = FileId { kind: FileKind::Data, number: 7 };
        let place = Place { store: StoreId(1), file, offset: 4096 };
        let sum = place.checksum(&[b"block"]);
        assert_eq!(sum, place.checksum(&[b"bl", b"ock"]));
        let elsewhere = [
            Place { store: StoreId(2), ..place },
            Place { file: FileId { number: 8, ..file }, ..place },
            Place { file: FileId { kind: FileKind::Meta, ..file }, ..place },
            place.at(8192),
        ];
        for other in elsewhere {
            assert_ne!(sum, other.checksum(&[b"block"]), "{other:?}");
        }
    }
}
