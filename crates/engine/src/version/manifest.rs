//! The manifest: edits, one record each, in a file of their own (`docs/format/manifest.md`).
//!
//! The first record leads from nothing to what existed when the file was begun. Every append is synced before it
//! counts. When the file has grown well past such a first record, a new one is begun: written, synced, named, and
//! only then pointed at by the superblock; the old one is removed after that.
//!
//! An append that failed may still be on media, so the manifest must not be used again after one: what it committed
//! is known only after a reopen. Room is made before a record is begun, so a full medium is not such a failure.

use super::edit::Edit;
use crate::error::{Error, Result};
use crate::format::file::{HEADER_BYTES, encode_header};
use crate::format::record::{RecordKind, encode_record, stored_bytes};
use crate::format::{FileId, FileKind, Place, Position, StoreId};
use crate::key::Seq;
use crate::log::{Chain, Replayed, replay};
use crate::planted::{self, Bug};
use cuesta_device::{Access, Device, Directory};
use std::sync::Arc;

/// A file is filled with zeros this far ahead of its records.
const EXTEND_BYTES: u64 = 64 << 10;
/// A manifest smaller than this is never worth beginning anew.
const ROLL_BYTES_MIN: u64 = 32 << 10;
/// A manifest is begun anew when it is this many times larger than its first record.
const ROLL_RATIO: u64 = 4;

/// Wraps a device so that its bytes are counted.
pub(crate) type Wrap<'a> = &'a dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// The end of the manifest; owned by whoever commits an edit.
#[derive(Debug)]
pub(crate) struct Manifest {
    place: Place,
    device: Arc<dyn Device>,
    filled: u64,
    /// Where the first record ends, or would if all were said anew.
    first_end: u64,
}

impl Manifest {
    /// Begins manifest `number` with `snapshot`; on return it is durable, name included.
    pub(crate) fn begin(
        directory: &dyn Directory,
        wrap: Wrap<'_>,
        store: StoreId,
        number: u64,
        snapshot: &Edit,
    ) -> Result<Self> {
        let file = FileId::new(FileKind::Manifest, number);
        let fail = |source| Error::io(format!("make {file} in {}", directory.place()), source);
        let device = wrap(directory.create(&file.to_string(), Access::Buffered).map_err(fail)?);
        device.write_at(&encode_header(store, file), 0).map_err(fail)?;
        let place = Place { store, file, offset: HEADER_BYTES as u64 };
        let mut manifest = Self { place, device, filled: place.offset, first_end: 0 };
        manifest.append(snapshot)?;
        manifest.first_end = manifest.place.offset;
        if !planted::has(Bug::ManifestNameSyncDropped) {
            directory.sync().map_err(fail)?;
        }
        Ok(manifest)
    }

    /// Reads manifest `number` and hands each edit to `apply`.
    pub(crate) fn read(
        store: StoreId,
        number: u64,
        floor: Position,
        open: &dyn Fn(FileId) -> Result<Arc<dyn Device>>,
        apply: &mut dyn FnMut(Edit) -> Result<()>,
    ) -> Result<Replayed> {
        let file = FileId::new(FileKind::Manifest, number);
        let name = file.to_string();
        let present = [number];
        let chain = Chain {
            store,
            kind: FileKind::Manifest,
            first: number,
            present: &present,
            floor,
            last_seq: Seq(0),
        };
        replay(chain, open, &mut |kind, header, payload| match kind {
            RecordKind::Edit => apply(Edit::decode(payload, &name, header.durable.offset)?),
            other => {
                Err(Error::corrupt(&name, header.durable.offset, format!("a {other:?} record in a manifest")))
            }
        })
    }

    /// Goes on behind the last record of a manifest that was read, of which `snapshot` is what it comes to; syncs what
    /// it found.
    pub(crate) fn resume(
        store: StoreId,
        end: Position,
        device: Arc<dyn Device>,
        snapshot: &Edit,
    ) -> Result<Self> {
        let file = FileId::new(FileKind::Manifest, end.file);
        let fail = |source| Error::io(format!("resume {file}"), source);
        device.sync().map_err(fail)?;
        let filled = device.len().map_err(fail)?;
        let first_end = (HEADER_BYTES + stored_bytes(snapshot.encode().len())) as u64;
        Ok(Self { place: Place { store, file, offset: end.offset }, device, filled, first_end })
    }

    pub(crate) fn number(&self) -> u64 {
        self.place.file.number
    }

    pub(crate) fn end(&self) -> Position {
        Position { file: self.place.file.number, offset: self.place.offset }
    }

    /// Bytes that the file takes.
    pub(crate) fn filled_bytes(&self) -> u64 {
        self.filled
    }

    /// Whether the file has grown so far past its first record that a new one should be begun.
    pub(crate) fn should_roll(&self) -> bool {
        self.place.offset > (self.first_end * ROLL_RATIO).max(ROLL_BYTES_MIN)
    }

    /// Makes `edit` durable.
    ///
    /// # Errors
    /// `Full` when there is no room: nothing was written. After any other error this manifest must not be used again.
    pub(crate) fn append(&mut self, edit: &Edit) -> Result<()> {
        let record = encode_record(self.place, RecordKind::Edit, (Seq(0), 0), &edit.encode(), self.end());
        self.reserve(record.len() as u64)?;
        let fail = |source| {
            // A write into room that is there already cannot be out of room; whatever this is, it is not `Full`.
            let kind = crate::error::ErrorKind::Io;
            Error::caused_by(
                kind,
                format!("failed to append to {}", self.place.file),
                Error::io("write", source),
            )
        };
        self.device.write_at(&record, self.place.offset).map_err(fail)?;
        if !planted::has(Bug::ManifestSyncDropped) {
            self.device.sync().map_err(fail)?;
        }
        self.place.offset += record.len() as u64;
        Ok(())
    }

    /// Fills the file with zeros to hold `bytes` more.
    fn reserve(&mut self, bytes: u64) -> Result<()> {
        let end = self.place.offset + bytes;
        if end <= self.filled {
            return Ok(());
        }
        let filled = end.next_multiple_of(EXTEND_BYTES);
        let zeros = vec![0; (filled - self.filled) as usize];
        let fail = |source| Error::io(format!("make room in {}", self.place.file), source);
        self.device.write_at(&zeros, self.filled).map_err(fail)?;
        self.filled = filled;
        Ok(())
    }

    /// Cuts off what the file has beyond its last record.
    pub(crate) fn trim(&mut self) -> Result<()> {
        let fail = |source| Error::io(format!("trim {}", self.place.file), source);
        self.device.set_len(self.place.offset).map_err(fail)?;
        self.device.sync().map_err(fail)?;
        self.filled = self.place.offset;
        Ok(())
    }
}
