//! A moving view of a file, for reading it from front to back in large pieces. Reads are aligned, but for the last of
//! a file whose length is not; so a window works over direct and buffered access alike.

use super::file::FileId;
use crate::error::{Error, Result};
use cuesta_device::{ALIGNMENT, AlignedBuf, Device};
use std::sync::Arc;

/// Bytes fetched at once, unless a single piece is longer.
const WINDOW_BYTES: usize = 1 << 20;

/// Reads a file forward; memory is one window, or the longest piece asked for.
#[derive(Debug)]
pub(crate) struct Window {
    device: Arc<dyn Device>,
    file: FileId,
    len: u64,
    start: u64,
    /// How many bytes of the buffer are the file's.
    held: usize,
    buffer: AlignedBuf,
}

impl Window {
    pub(crate) fn new(device: Arc<dyn Device>, file: FileId) -> Result<Self> {
        let len = device.len().map_err(|source| Error::io(format!("measure {file}"), source))?;
        Ok(Self { device, file, len, start: 0, held: 0, buffer: AlignedBuf::zeroed(0) })
    }

    /// Bytes of the whole file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The `n` bytes at `offset`; fewer where the file ends.
    pub(crate) fn at(&mut self, offset: u64, n: usize) -> Result<&[u8]> {
        let n = n.min(usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX));
        let held = self.start..self.start + self.held as u64;
        if n > 0 && !(held.contains(&offset) && offset + n as u64 <= held.end) {
            self.fetch(offset, n)?;
        }
        let from = if n == 0 { 0 } else { (offset - self.start) as usize };
        Ok(&self.buffer[from..from + n])
    }

    /// Moves the window so that it holds `n` bytes at `offset`.
    fn fetch(&mut self, offset: u64, n: usize) -> Result<()> {
        let start = offset - offset % ALIGNMENT as u64;
        let want = ((offset - start) as usize + n).max(WINDOW_BYTES).next_multiple_of(ALIGNMENT);
        let want = (want as u64).min(self.len - start) as usize;
        if self.buffer.len() < want || self.buffer.len() > want.max(WINDOW_BYTES) * 2 {
            self.buffer = AlignedBuf::zeroed(want);
        }
        self.held = 0;
        let read = self.device.read_at(&mut self.buffer[..want], start);
        read.map_err(|source| Error::io(format!("read {} at byte {offset}", self.file), source))?;
        (self.start, self.held) = (start, want);
        Ok(())
    }
}
