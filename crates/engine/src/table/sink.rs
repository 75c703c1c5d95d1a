//! One file of a table, written from front to back in aligned pieces.
//!
//! Memory: two staging buffers of 256 KiB, one that is filled while the other is written; the second only for a file
//! that is larger than the first.

use super::compression::Compression;
use super::stored::{BLOCK_TRAILER_BYTES, BlockHandle, encode_block_trailer};
use crate::error::{Error, Result};
use crate::format::file::encode_header;
use crate::format::{FileId, FileKind, Place, StoreId};
use crate::planted::{self, Bug};
use cuesta_device::{ALIGNMENT, AlignedBuf, Device, Ticket, WriteRequest};
use std::io;
use std::sync::Arc;

/// Bytes gathered before they are written.
const STAGING_BYTES: usize = 256 << 10;
/// After so many blocks that did not compress, one in so many is tried.
const UNPACKED_MAX: u32 = 16;

/// One file being written from front to back, in aligned pieces.
#[derive(Debug)]
pub(super) struct Sink {
    device: Arc<dyn Device>,
    place: Place,
    staging: AlignedBuf,
    staged: usize,
    /// The piece before, while it is being written.
    under_way: Option<Ticket>,
    /// Blocks in a row that compression did not make smaller.
    unpacked: u32,
    /// Bytes written to the device.
    written: u64,
    /// What the file has room for already, where that is to be in one piece.
    reserved: u64,
    /// Bytes that the file has at most.
    most: u64,
    /// Checksums of the sectors written, where they are wanted.
    sums: Option<Vec<u32>>,
    /// Bytes that share one of these.
    sector_bytes: usize,
}

impl Sink {
    pub(super) fn new(device: Arc<dyn Device>, store: StoreId, file: FileId) -> Result<Self> {
        let place = Place { store, file, offset: 0 };
        let staging = AlignedBuf::zeroed(STAGING_BYTES);
        let mut sink = Self {
            device,
            place,
            staging,
            staged: 0,
            under_way: None,
            unpacked: 0,
            written: 0,
            reserved: 0,
            most: 0,
            sums: None,
            sector_bytes: ALIGNMENT,
        };
        sink.push(&encode_header(store, file))?;
        Ok(sink)
    }

    /// From the file's first byte on, the checksum of each sector is kept for [`Sink::sums`].
    pub(super) fn with_sums(self, sector_bytes: usize) -> Self {
        Self { sums: Some(Vec::new()), sector_bytes, ..self }
    }

    /// Room for the file, of at most so many bytes, is made in few pieces: one where it is written at once, else twice
    /// as much each time.
    pub(super) fn with_room(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// Has the device find room for as much again as will have been written.
    fn reserve(&mut self, written: u64) -> Result<()> {
        let wanted = (2 * written).min(self.most);
        if wanted <= self.reserved {
            return Ok(());
        }
        self.reserved = wanted;
        match self.device.reserve(wanted) {
            // Less may do.
            Err(source) if source.kind() != io::ErrorKind::StorageFull => {
                Err(Error::io(format!("make room for {}", self.place.file), source))
            }
            _ => Ok(()),
        }
    }

    /// The checksums of all sectors up to here, the last one shorter.
    pub(super) fn sums(&self) -> Vec<u32> {
        let mut sums = self.sums.clone().unwrap_or_default();
        self.push_sums(&mut sums, self.staged);
        sums
    }

    /// Adds those of what is staged, which begins with a sector.
    fn push_sums(&self, sums: &mut Vec<u32>, bytes: usize) {
        for (i, sector) in self.staging[..bytes].chunks(self.sector_bytes).enumerate() {
            sums.push(self.place.at(self.written + (i * self.sector_bytes) as u64).checksum(&[sector]));
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.written + self.staged as u64
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(STAGING_BYTES - self.staged);
            self.staging[self.staged..self.staged + n].copy_from_slice(&bytes[..n]);
            self.staged += n;
            bytes = &bytes[n..];
            if self.staged == STAGING_BYTES {
                self.begin_write()?;
            }
        }
        Ok(())
    }

    /// Has the full staging buffer written while the other is being filled.
    fn begin_write(&mut self) -> Result<()> {
        if let Some(mut sums) = self.sums.take() {
            self.push_sums(&mut sums, STAGING_BYTES);
            self.sums = Some(sums);
        }
        self.reserve(self.written + STAGING_BYTES as u64)?;
        let free = self.await_write()?.unwrap_or_else(|| AlignedBuf::zeroed(STAGING_BYTES));
        let (buffer, bytes) = (std::mem::replace(&mut self.staging, free), STAGING_BYTES);
        let request = WriteRequest { buffer, bytes, offset: self.written };
        self.under_way = Some(self.device.submit_write(request));
        self.written += bytes as u64;
        self.staged = 0;
        Ok(())
    }

    /// Waits for the piece that is being written; its buffer.
    fn await_write(&mut self) -> Result<Option<AlignedBuf>> {
        let Some(ticket) = self.under_way.take() else { return Ok(None) };
        ticket.wait().map(Some).map_err(|source| self.write_failed(source))
    }

    fn write_failed(&self, source: io::Error) -> Error {
        Error::io(format!("write {}", self.place.file), source)
    }

    /// Data that does not compress is not tried block by block: after some that did not, one in so many is.
    fn tries_to_pack(&self) -> bool {
        self.unpacked < UNPACKED_MAX || self.unpacked.is_multiple_of(UNPACKED_MAX)
    }

    /// Stores a block with its trailer.
    pub(super) fn block(&mut self, raw: &[u8], compression: Compression) -> Result<BlockHandle> {
        let packed = if self.tries_to_pack() { compression.compress(raw) } else { None };
        self.unpacked = if packed.is_some() { 0 } else { self.unpacked + 1 };
        let (payload, compression) = match &packed {
            Some(packed) => (&packed[..], compression),
            None => (raw, Compression::None),
        };
        let offset = self.offset();
        let trailer = encode_block_trailer(self.place.at(offset), payload, compression, raw.len());
        self.push(payload)?;
        self.push(&trailer)?;
        Ok(BlockHandle { offset, bytes: (payload.len() + BLOCK_TRAILER_BYTES) as u32 })
    }

    /// Fills the last page with zeros, but for `tail` at its very end, and makes the file durable: its length.
    pub(super) fn finish(&mut self, tail: impl FnOnce(Place) -> Vec<u8>, tail_bytes: usize) -> Result<u64> {
        let len = (self.offset() + tail_bytes as u64).next_multiple_of(ALIGNMENT as u64);
        let at = len - tail_bytes as u64;
        let zeros = vec![0; (at - self.offset()) as usize];
        self.push(&zeros)?;
        self.push(&tail(self.place.at(at)))?;
        if self.staged > 0 {
            let written = self.device.write_at(&self.staging[..self.staged], self.written);
            written.map_err(|source| self.write_failed(source))?;
        }
        self.await_write()?;
        let bug = match self.place.file.kind {
            FileKind::Data => Bug::TableDataSyncDropped,
            _ => Bug::TableMetaSyncDropped,
        };
        if !planted::has(bug) {
            self.device.sync().map_err(|source| Error::io(format!("sync {}", self.place.file), source))?;
        }
        Ok(len)
    }
}
