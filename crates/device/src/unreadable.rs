//! Reading around what a medium cannot read.
//!
//! A read that touches a bad sector fails whole, and what lies beside that sector may be as it was. So such a read is
//! made once more, and then unit by unit, and of those that cannot be read zeros are left: what is in them fails its
//! checksum, and the rest is used.

use crate::{ALIGNMENT, Device, Geometry};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether an error says that the medium cannot read what is there, or would return something else; what lies beside it
/// may be as it was.
pub fn is_unreadable(error: &io::Error) -> bool {
    // What Linux says of a bad sector: EIO, or of some media and layers below, more exactly, ENODATA and EILSEQ.
    let said = [Errno::IO, Errno::NODATA, Errno::ILSEQ];
    error.raw_os_error().is_some_and(|code| said.iter().any(|errno| errno.raw_os_error() == code))
}

/// Reads; once more where the medium says that it cannot.
///
/// # Errors
/// What the device says, the second time.
pub fn read_twice(device: &dyn Device, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    match device.read_at(buffer, offset) {
        Err(source) if is_unreadable(&source) => device.read_at(buffer, offset),
        read => read,
    }
}

/// Reads `unit` bytes at a time from `start` on, a multiple of that: those that the medium cannot read, twice in a row,
/// of which zeros are left.
///
/// # Errors
/// What the device says besides.
pub fn read_what_can_be(
    device: &dyn Device,
    buffer: &mut [u8],
    start: u64,
    unit: usize,
) -> io::Result<Vec<Range<u64>>> {
    let (mut at, mut unreadable) = (start, Vec::new());
    for part in buffer.chunks_mut(unit) {
        let end = at + part.len() as u64;
        match read_twice(device, part, at) {
            Err(source) if is_unreadable(&source) => {
                part.fill(0);
                unreadable.push(at..end);
            }
            read => read?,
        }
        at = end;
    }
    Ok(unreadable)
}

/// A device for who wants whatever is left of a file: pages that the medium cannot read, and all that lies behind the
/// file's end, are zeros. It is read from only, and asks the medium twice for a page that it cannot read, and not
/// again.
#[derive(Debug)]
pub struct WhatIsLeft {
    device: Arc<dyn Device>,
    /// Where pages begin that the medium cannot read.
    unreadable: Mutex<BTreeSet<u64>>,
}

impl WhatIsLeft {
    /// Of a file, through a device that takes any length.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, unreadable: Mutex::default() }
    }

    fn unreadable(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Page by page, from `at`, where one begins.
    fn read_pages(&self, buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        for page in buffer.chunks_mut(ALIGNMENT) {
            if self.unreadable().contains(&at) {
                page.fill(0);
            } else if !read_what_can_be(self.device.as_ref(), page, at, ALIGNMENT)?.is_empty() {
                self.unreadable().insert(at);
            }
            at += page.len() as u64;
        }
        Ok(())
    }
}

impl Device for WhatIsLeft {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = self.device.len()?;
        let there = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let (there, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        let range = offset - offset % ALIGNMENT as u64..offset + there.len() as u64;
        if there.is_empty() {
            return Ok(());
        }
        if self.unreadable().range(range.clone()).next().is_none() {
            match self.device.read_at(there, offset) {
                Err(source) if is_unreadable(&source) => {}
                read => return read,
            }
        }
        let before = (offset - range.start) as usize;
        let mut pages = vec![0; before + there.len()];
        self.read_pages(&mut pages, range.start)?;
        there.copy_from_slice(&pages[before..]);
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use crate::sim::{Effect, Failure, Fault, OpKind, SimConfig, SimDisk};
    use cuesta_sched::Sched;

    #[test]
    fn a_bad_sector_costs_its_page() {
        let sched = Sched::simulated(1);
        let disk = SimDisk::new(&sched, 1, SimConfig::default());
        sched.run(|| {
            let device = disk.directory(0).create("a", Access::Buffered).unwrap();
            device.write_at(&[7; 4 * ALIGNMENT], 0).unwrap();
            let page = ALIGNMENT as u64;
            let bad = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Read).touching(page + 9..page + 10);
            disk.set_faults(vec![bad.clone().since(1)]);
            let mut found = vec![1; 3 * ALIGNMENT];
            assert!(is_unreadable(&read_twice(device.as_ref(), &mut found, 0).unwrap_err()));
            let bad_page = page..2 * page;
            assert_eq!(read_what_can_be(device.as_ref(), &mut found, 0, ALIGNMENT).unwrap(), [bad_page]);
            let expected = [[7; ALIGNMENT], [0; ALIGNMENT], [7; ALIGNMENT]].concat();
            assert_eq!(found, expected);
            // Read by less, it costs less.
            let bad_sector = page..page + 512;
            assert_eq!(read_what_can_be(device.as_ref(), &mut found, 0, 512).unwrap(), [bad_sector]);
            assert_eq!(found[..ALIGNMENT + 513], [[7; ALIGNMENT].as_slice(), &[0; 512], &[7]].concat());
            let left = WhatIsLeft::new(device.clone());
            let read = |offset: usize, bytes: usize| {
                let mut found = vec![1; bytes];
                left.read_at(&mut found, offset as u64).map(|()| found).unwrap()
            };
            assert_eq!(read(0, 3 * ALIGNMENT), expected);
            // Some of each page, and what is behind the end.
            assert_eq!(read(ALIGNMENT - 2, 4), [7, 7, 0, 0]);
            assert_eq!(read(4 * ALIGNMENT - 2, 4), [7, 7, 0, 0]);
            assert_eq!(read(9 * ALIGNMENT, 2), [0, 0]);
            // It does not ask again.
            disk.set_faults(Vec::new());
            assert_eq!(read(0, 3 * ALIGNMENT), expected);
            // It was an accident, and another read gets everything.
            disk.set_faults(vec![bad]);
            read_twice(device.as_ref(), &mut found, 0).unwrap();
            assert_eq!(found, [7; 3 * ALIGNMENT]);
        });
    }
}
