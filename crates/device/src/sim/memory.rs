//! Simulated persistent memory: a file of the disk of which a store changes a few bytes, and of which only those lines
//! become durable whose write-back a fence ends.
//!
//! What was stored is pending like any other change until a fence ends its write-back: a power cut keeps, loses or
//! tears each store for itself, in any order, and at every eight bytes. A store and a fence are operations of the disk,
//! at which it can be cut or made to fail. A view is a copy of what was there when it was made, since nothing is
//! written under one.

use super::state::FileId;
use super::{SimDisk, power_cut};
use crate::mapped::{Instruction, LINE_BYTES, MapFiles, Memory, Persistence};
use crate::{Holder, View};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
struct SimMemory {
    disk: SimDisk,
    id: FileId,
    bytes: u64,
    /// How long the file was when it was opened.
    kept_bytes: u64,
    is_allotted: AtomicBool,
    place: String,
}

impl SimDisk {
    /// The file `name` as memory of `bytes` bytes, or as long as it is; made, durable and empty, if there is none. To
    /// be asked for anew after a cut or a kill.
    pub fn memory(&self, tier: usize, name: &str, bytes: u64) -> Box<dyn Memory> {
        let (id, kept_bytes) = self.with(|state| state.memory(tier, name));
        SimMemory::new(self, tier, name, id, (bytes.max(kept_bytes), kept_bytes))
    }
}

/// Files of a tier of a simulated disk, each as memory of its own.
#[derive(Debug)]
struct SimMaps {
    disk: SimDisk,
    tier: usize,
}

impl SimDisk {
    /// The files of a tier as memory.
    pub fn maps(&self, tier: usize) -> Arc<dyn MapFiles> {
        Arc::new(SimMaps { disk: self.clone(), tier })
    }
}

impl MapFiles for SimMaps {
    fn map(&self, name: &str, bytes: u64) -> io::Result<Box<dyn Memory>> {
        let (id, there) = self.disk.with(|state| state.map(self.tier, name))?;
        let memory = SimMemory::new(&self.disk, self.tier, name, id, (there, there));
        if there < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(memory) }
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        self.disk.with(|state| state.close(self.id));
    }
}

/// What a view looks at.
struct Copied {
    bytes: Vec<u8>,
    holder: Arc<dyn Holder>,
}

impl Holder for Copied {
    fn check(&self) -> io::Result<()> {
        self.holder.check()
    }
}

impl SimMemory {
    fn new(
        disk: &SimDisk,
        tier: usize,
        name: &str,
        id: FileId,
        (bytes, kept_bytes): (u64, u64),
    ) -> Box<Self> {
        let place = format!("simulated tier {tier}/{name}");
        Box::new(Self {
            disk: disk.clone(),
            id,
            bytes,
            kept_bytes,
            is_allotted: AtomicBool::new(false),
            place,
        })
    }

    /// The lines that these ranges have part in, in order.
    fn lines_of(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let line = |range: &Range<u64>| {
            range.start - range.start % LINE_BYTES..range.end.next_multiple_of(LINE_BYTES).min(self.bytes)
        };
        let mut lines: Vec<_> = ranges.iter().map(line).collect();
        lines.sort_by_key(|range| range.start);
        lines
    }

    fn copied(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.disk.with(|state| {
            let image = state.files.get(&self.id).map(|file| file.image.as_slice()).unwrap_or_default();
            let bytes = image.get(range.start as usize..range.end as usize);
            bytes.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })
    }
}

#[expect(unsafe_code, reason = "memory is unsafe by its contract; here it is copied under a lock")]
impl Memory for SimMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn present_bytes(&self) -> u64 {
        if self.is_allotted.load(Ordering::Acquire) { self.bytes } else { self.kept_bytes }
    }

    fn allot(&self) -> io::Result<()> {
        if !self.is_allotted.load(Ordering::Acquire) {
            self.disk.with(|state| state.allot(self.id, self.bytes));
            self.is_allotted.store(true, Ordering::Release);
        }
        Ok(())
    }

    unsafe fn store(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.disk.operate(|state| state.write(self.id, bytes, at))
    }

    unsafe fn load(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check()?;
        buffer.copy_from_slice(&self.copied(at..at + buffer.len() as u64)?);
        Ok(())
    }

    unsafe fn view(&self, ranges: &[Range<u64>], holder: Arc<dyn Holder>) -> io::Result<View> {
        self.check()?;
        let pieces = ranges.iter().map(|range| self.copied(range.clone())).collect::<io::Result<Vec<_>>>()?;
        let copied = Arc::new(Copied { bytes: pieces.concat(), holder });
        let bytes = NonNull::from(copied.bytes.as_slice());
        // SAFETY: the bytes are in the holder, where nobody can change them.
        Ok(unsafe { View::new(bytes, copied) })
    }

    fn write_back(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.check()?;
        self.disk.with(|state| state.write_back(self.id, &self.lines_of(ranges)));
        Ok(())
    }

    fn fence(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        self.disk.operate(|state| state.fence(self.id, &self.lines_of(ranges)))
    }

    fn check(&self) -> io::Result<()> {
        if self.disk.is_cut() { Err(power_cut()) } else { Ok(()) }
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn persistence(&self) -> Persistence {
        Persistence::Lines(Instruction::Clwb)
    }
}
