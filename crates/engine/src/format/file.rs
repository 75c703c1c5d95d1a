//! Files: their names, and the header that each begins with (`docs/format/README.md`).
//!
//! A file is recorded by tier and name, never by path, so a tier's directory can be moved. The header repeats what
//! the name says, so a file that was renamed or copied over another is found out.

use super::checksum::Place;
use super::coding::{Decode, Malformed, NUMBER_MAX, Reader};
use crate::error::{Error, ErrorKind, Result};
use std::fmt;

/// Bytes of the header at the front of every log, manifest, table, slab and image file.
pub(crate) const HEADER_BYTES: usize = 64;
/// The format this version writes, and the only one it reads before 0.1.
pub(crate) const FORMAT_VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"CUESTA\r\n";

/// Which store a file belongs to; drawn once, when the store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoreId(pub(crate) u128);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a file holds. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum FileKind {
    /// Identity of the store on one tier.
    Superblock = 1,
    /// Edits.
    Manifest = 2,
    /// Batches not yet in a table.
    Log = 3,
    /// The data part of a table.
    Data = 4,
    /// The meta part of a table.
    Meta = 5,
    /// Slots of objects.
    Slab = 6,
    /// What memory had of the store below the memtable at a clean close.
    Image = 7,
}

impl FileKind {
    const NAMED: [(Self, &'static str); 6] = [
        (Self::Manifest, "manifest"),
        (Self::Log, "log"),
        (Self::Data, "data"),
        (Self::Meta, "meta"),
        (Self::Slab, "slab"),
        (Self::Image, "image"),
    ];

    fn from_stored(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Superblock),
            _ => Self::NAMED.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u8 == number),
        }
    }
}

/// A file of the store: what it holds and its number. A table's two parts share a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId {
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
}

impl FileId {
    pub(crate) fn new(kind: FileKind, number: u64) -> Self {
        Self { kind, number }
    }

    /// The file a name means; `None` for a name this store did not give.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        if name == SUPERBLOCK_NAME {
            return Some(Self::new(FileKind::Superblock, 0));
        }
        let (stem, digits) = name.split_once('-')?;
        let (kind, _) = FileKind::NAMED.into_iter().find(|(_, word)| *word == stem)?;
        let number = digits.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
        let id = Self::new(kind, number);
        (id.to_string() == name).then_some(id)
    }
}

/// The name of the superblock on each tier.
pub(crate) const SUPERBLOCK_NAME: &str = "CUESTA";

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FileKind::NAMED.into_iter().find(|(kind, _)| *kind == self.kind) {
            Some((_, word)) => write!(f, "{word}-{:08}", self.number),
            None => f.write_str(SUPERBLOCK_NAME),
        }
    }
}

/// The header of `file` in `store`.
pub(crate) fn encode_header(store: StoreId, file: FileId) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    out[12] = file.kind as u8;
    out[16..32].copy_from_slice(&store.0.to_le_bytes());
    out[32..40].copy_from_slice(&file.number.to_le_bytes());
    let sum = Place { store, file, offset: 0 }.checksum(&[&out[..60]]);
    out[60..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Why a header was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Of a format this version does not read.
    Version(u32),
    /// Damaged, or not a file of a store at all.
    Malformed(Malformed),
}

/// Reads a header: store and file as it names them itself.
pub(crate) fn decode_header(bytes: &[u8]) -> std::result::Result<(StoreId, FileId), BadHeader> {
    let malformed = |message: String| BadHeader::Malformed(Malformed(message));
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Err(malformed(format!("a header of {HEADER_BYTES} bytes expected, found {}", bytes.len())));
    };
    if &header[..8] != MAGIC {
        return Err(malformed("not a file of a Cuesta store: its magic is missing".to_owned()));
    }
    let (version, kind, reserved, store, number) = fields(header).map_err(BadHeader::Malformed)?;
    if version != FORMAT_VERSION {
        return Err(BadHeader::Version(version));
    }
    let Some(kind) = FileKind::from_stored(kind) else {
        return Err(malformed(format!("file kind {kind} is not known")));
    };
    let (store, file) = (StoreId(store), FileId::new(kind, number));
    if encode_header(store, file) != *header || reserved != 0 {
        return Err(malformed("the header's checksum does not match".to_owned()));
    }
    Ok((store, file))
}

/// Checks a file's header: that it is of this store, and is the file its name says.
pub(crate) fn check_header(bytes: &[u8], store: StoreId, file: FileId) -> Result<()> {
    match decode_header(bytes) {
        Ok(found) if found == (store, file) => Ok(()),
        Ok((other, _)) if other != store => Err(Error::corrupt(
            file.to_string(),
            0,
            format!("belongs to store {other}, not to store {store}"),
        )),
        Ok((_, other)) => Err(Error::corrupt(file.to_string(), 0, format!("is a copy of {other}"))),
        Err(BadHeader::Version(version)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{file} is of format {version}; this version reads format {FORMAT_VERSION}"),
        )),
        Err(BadHeader::Malformed(malformed)) => Err(Error::corrupt(file.to_string(), 0, malformed)),
    }
}

fn fields(header: &[u8; HEADER_BYTES]) -> Decode<(u32, u8, u32, u128, u64)> {
    let mut reader = Reader::new(&header[8..]);
    let (version, kind) = (reader.u32()?, reader.u8()?);
    let reserved = u32::from(reader.u16()?) << 8 | u32::from(reader.u8()?);
    Ok((version, kind, reserved, reader.u128()?, reader.fixed_number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_their_files_and_no_others() {
        for id in [
            FileId::new(FileKind::Superblock, 0),
            FileId::new(FileKind::Manifest, 1),
            FileId::new(FileKind::Log, 123_456_789),
            FileId::new(FileKind::Data, 7),
            FileId::new(FileKind::Meta, NUMBER_MAX),
        ] {
            assert_eq!(FileId::from_name(&id.to_string()), Some(id));
        }
        for name in [
            "log-7",
            "log-+0000007",
            "data-00000001.tmp",
            "LOCK",
            "",
            "log",
            "superblock-00000001",
            "log-18446744073709551615",
        ] {
            assert_eq!(FileId::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_bit_of_a_header_counts() {
        let (store, file) = (StoreId(0xfeed), FileId::new(FileKind::Log, 3));
        let header = encode_header(store, file);
        assert_eq!(decode_header(&header), Ok((store, file)));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = header;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut header = encode_header(StoreId(1), FileId::new(FileKind::Data, 1));
        header[8] = 9;
        assert_eq!(decode_header(&header), Err(BadHeader::Version(9)));
    }
}
