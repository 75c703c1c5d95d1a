//! Appends to the log; owned by one thread at a time.
//!
//! Growing a file costs metadata at every sync, so a fresh file is extended with zeros, a step ahead of the records and
//! in the same write call; a recycled file has its length already, and so has one that the medium could make room for.

use crate::error::{Error, ErrorKind, Result};
use crate::format::file::{HEADER_BYTES, encode_header};
use crate::format::record::{self, RecordKind, encode_record};
use crate::format::{FileId, FileKind, Place, Position, StoreId};
use crate::key::Seq;
use crate::planted::{self, Bug};
use cuesta_device::{Access, ByteBuf, Device, Directory};
use std::sync::Arc;

/// How far ahead of the records a fresh file is filled with zeros, in bytes.
pub(crate) const EXTEND_BYTES: u64 = 256 << 10;
/// Bytes of the record that ends a file.
pub(crate) const SEAL_BYTES: u64 = (record::RECORD_HEADER_BYTES + size_of::<u64>()) as u64;
/// Bytes of the record that says where the manifest ends.
pub(crate) const MANIFEST_END_BYTES: u64 = (record::RECORD_HEADER_BYTES + 2 * size_of::<u64>()) as u64;

/// A log file ready to be written to: named, with its header durable.
#[derive(Debug)]
pub(crate) struct NextLog {
    number: u64,
    device: Arc<dyn Device>,
    /// Bytes that the file has already, written with zeros or stale records.
    filled: u64,
}

impl NextLog {
    /// Makes a log file that will have about `bytes`, from `recycled` if there is one; when it returns, name and header
    /// are durable.
    pub(crate) fn prepare(
        directory: &dyn Directory,
        wrap: &dyn Fn(Arc<dyn Device>) -> Arc<dyn Device>,
        store: StoreId,
        number: u64,
        (recycled, bytes): (Option<u64>, u64),
    ) -> Result<Self> {
        let file = FileId::new(FileKind::Log, number);
        let name = file.to_string();
        let fail = |source| Error::io(format!("make {name} in {}", directory.place()), source);
        let device = match recycled {
            Some(old) => {
                directory.rename(&FileId::new(FileKind::Log, old).to_string(), &name).map_err(fail)?;
                directory.open(&name, Access::Buffered).map_err(fail)?
            }
            None => directory.create(&name, Access::Buffered).map_err(fail)?,
        };
        let device = wrap(device);
        device.reserve(bytes).map_err(fail)?;
        device.write_at(&encode_header(store, file), 0).map_err(fail)?;
        device.sync().map_err(fail)?;
        if !planted::has(Bug::LogNameSyncDropped) {
            directory.sync().map_err(fail)?;
        }
        let filled = device.len().map_err(fail)?;
        Ok(Self { number, device, filled })
    }
}

/// The end of the log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    place: Place,
    device: Arc<dyn Device>,
    /// Bytes that the file has, records or not.
    filled: u64,
    /// Everything before is on media.
    durable: Position,
    /// Files sealed since the last sync; a sync of the current file must not run ahead of them.
    sealed: Vec<(u64, Arc<dyn Device>)>,
}

impl LogWriter {
    /// Goes on in a fresh file.
    pub(crate) fn start(store: StoreId, next: NextLog) -> Self {
        let place =
            Place { store, file: FileId::new(FileKind::Log, next.number), offset: HEADER_BYTES as u64 };
        let durable = Position { file: next.number, offset: place.offset };
        Self { place, device: next.device, filled: next.filled, durable, sealed: Vec::new() }
    }

    /// As [`LogWriter::start`] for a file that no edit names yet: until the next sync its records claim nothing to be
    /// durable. After a crash before that edit they lie beyond the log's end, and what they say of it would count.
    pub(crate) fn start_unnamed(store: StoreId, next: NextLog) -> Self {
        Self { durable: Position::default(), ..Self::start(store, next) }
    }

    /// Goes on behind the last record of a file that was replayed and synced, and will have about `bytes`.
    pub(crate) fn resume(place: Place, device: Arc<dyn Device>, bytes: u64) -> Result<Self> {
        let fail = |source| Error::io(format!("make room for {}", place.file), source);
        device.reserve(bytes).map_err(fail)?;
        let filled = device.len().map_err(|source| Error::io(format!("measure {}", place.file), source))?;
        let durable = Position { file: place.file.number, offset: place.offset };
        Ok(Self { place, device, filled, durable, sealed: Vec::new() })
    }

    /// Where the next record begins.
    pub(crate) fn end(&self) -> Position {
        Position { file: self.place.file.number, offset: self.place.offset }
    }

    /// Everything before this is on media.
    pub(crate) fn durable(&self) -> Position {
        self.durable
    }

    /// Bytes that the file will have once `bytes` more are appended.
    pub(crate) fn filled_after(&self, bytes: u64) -> u64 {
        let end = self.place.offset + bytes;
        if end > self.filled { end.next_multiple_of(EXTEND_BYTES) } else { self.filled }
    }

    /// Seals records one after the other in `group`, each a hole for its header, a payload and padding, and writes
    /// them with one call. `records` gives each one's numbers and payload length, in order.
    ///
    /// # Errors
    /// When the write fails, nothing counts as appended; the next append overwrites what may have arrived.
    pub(crate) fn append(
        &mut self,
        group: &mut ByteBuf,
        records: impl Iterator<Item = ((Seq, u32), usize)>,
    ) -> Result<()> {
        let mut at = 0;
        for (numbers, payload_bytes) in records {
            let len = record::stored_bytes(payload_bytes);
            let place = self.place.at(self.place.offset + at as u64);
            record::seal_record(
                &mut group[at..at + len],
                place,
                RecordKind::Batch,
                numbers,
                payload_bytes,
                self.durable,
            );
            at += len;
        }
        debug_assert_eq!(at, group.len());
        self.write(group)
    }

    /// Writes records at the end, extending a fresh file in the same call.
    fn write(&mut self, records: &mut ByteBuf) -> Result<()> {
        let len = records.len();
        let end = self.place.offset + len as u64;
        if end > self.filled {
            records.resize((self.filled_after(len as u64) - self.place.offset) as usize);
        }
        let written = self.device.write_at(records, self.place.offset);
        let filled = self.place.offset + records.len() as u64;
        records.resize(len);
        written
            .or_else(|source| self.take_back(Error::io(format!("append to {}", self.place.file), source)))?;
        self.filled = self.filled.max(filled);
        self.place.offset = end;
        Ok(())
    }

    /// After an append for which there was no room: part of it may have arrived, whole records even, which a killed
    /// process's successor would replay though their writers were refused. So the first header is wiped.
    fn take_back(&self, refused: Error) -> Result<()> {
        if *refused.kind() == ErrorKind::Full && !planted::has(Bug::RefusedRecordLeft) {
            let wiped = self.device.write_at(&[0; record::RECORD_HEADER_BYTES], self.place.offset);
            let wiped =
                wiped.map_err(|source| Error::io(format!("wipe the end of {}", self.place.file), source));
            // No room for this either: then nothing has arrived.
            if let Err(error) = wiped
                && *error.kind() != ErrorKind::Full
            {
                return Err(error);
            }
        }
        Err(refused)
    }

    /// Appends where the manifest ends, so that a replay knows if that has lost its end.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub(crate) fn append_manifest_end(&mut self, end: Position) -> Result<()> {
        let payload = [end.file.to_le_bytes(), end.offset.to_le_bytes()].concat();
        let kind = RecordKind::ManifestEnd;
        let record = encode_record(self.place, kind, (Seq(0), 0), &payload, self.durable);
        debug_assert_eq!(record.len() as u64, MANIFEST_END_BYTES);
        self.write(&mut record.into())
    }

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// The state of what was appended is unknown then, and this writer must not be used again.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.durable == self.end() {
            return Ok(());
        }
        if planted::has(Bug::SealedLogSyncDropped) {
            self.sealed.clear();
        }
        let sealed = self.sealed.drain(..).map(|(_, device)| device);
        for device in sealed.chain([self.device.clone()]) {
            if planted::has(Bug::LogSyncDropped) || planted::has(Bug::SyncRetried) && device.sync().is_err() {
                continue;
            }
            device.sync().map_err(|source| Error::io(format!("sync {}", self.place.file), source))?;
        }
        self.durable = self.end();
        Ok(())
    }

    /// Seals the current file and goes on in `next`. Nothing becomes durable by it.
    pub(crate) fn rotate(&mut self, next: NextLog) -> Result<()> {
        let payload = next.number.to_le_bytes();
        let seal = encode_record(self.place, RecordKind::Seal, (Seq(0), 0), &payload, self.durable);
        debug_assert_eq!(seal.len() as u64, SEAL_BYTES);
        self.write(&mut seal.into())?;
        let file = FileId::new(FileKind::Log, next.number);
        let sealed = std::mem::replace(&mut self.device, next.device);
        self.sealed.push((self.place.file.number, sealed));
        self.place = Place { store: self.place.store, file, offset: HEADER_BYTES as u64 };
        self.filled = next.filled;
        Ok(())
    }

    /// What files before `first` hold is durable elsewhere: they need no sync, and must not be held open, which would
    /// keep their room once they are removed.
    pub(crate) fn forget_before(&mut self, first: u64) {
        self.sealed.retain(|(number, _)| *number >= first);
    }

    /// Makes everything durable and cuts off what the file has beyond its last record.
    pub(crate) fn trim(&mut self) -> Result<()> {
        if !planted::has(Bug::CloseSyncDropped) {
            self.sync()?;
        }
        if self.filled > self.place.offset {
            let fail = |source| Error::io(format!("trim {}", self.place.file), source);
            self.device.set_len(self.place.offset).map_err(fail)?;
            if !planted::has(Bug::CloseSyncDropped) {
                self.device.sync().map_err(fail)?;
            }
            self.filled = self.place.offset;
        }
        Ok(())
    }
}
