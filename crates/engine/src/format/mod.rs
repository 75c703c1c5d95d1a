//! How things are written down: numbers, checksums that cover a place, file headers, tag-length-value fields.
//!
//! Encoding cannot fail; decoding is total: any bytes give a value or a message, never a panic and never an
//! allocation larger than the input. `docs/format/` has the layouts byte by byte.

pub(crate) mod checksum;
pub(crate) mod coding;
#[cfg(test)]
mod documented;
pub(crate) mod file;

pub(crate) use checksum::Place;
pub(crate) use coding::{Decode, Malformed, Reader};
pub(crate) use file::{FileId, FileKind, StoreId};
pub(crate) mod record;
pub(crate) mod window;
pub(crate) use record::Position;
