//! A file of a directory that is written through a mapping of its own: a log in persistent memory.
//!
//! Its name and its length are the file system's, as for any file, so nobody has to remember where it lies. It is as
//! long as what is reserved of it ([`Device::reserve`]), and that is mapped; there a write is a copy into memory and no
//! system call, and a sync writes back the lines that were stored to, each once, and ends with one fence. What is
//! written behind, what changes the length, and the next sync, or the first, are calls to the file.
//!
//! Reads go to the file: a log is read before it is written, and both show the same bytes. Whoever opens the file anew
//! is the one who maps it; who had it before goes on by calls to the file.

#![expect(unsafe_code, reason = "memory is unsafe by its contract; here one file has it for itself")]

use super::dirty::Dirty;
use super::{MapFiles, Memory};
use crate::{ALIGNMENT, Device, Geometry};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub(super) struct OwnFile {
    name: String,
    file: Arc<dyn Device>,
    map: Arc<dyn MapFiles>,
    /// Held while bytes are stored and persisted, so wanted by one thread at a time.
    body: Mutex<Body>,
}

#[derive(Debug)]
struct Body {
    memory: Option<Box<dyn Memory>>,
    /// What was stored to it.
    dirty: Dirty,
    /// There may be more to be made durable than that: the length, what was stored to an earlier mapping, or by
    /// another.
    is_more: bool,
    /// Somebody else may map the file, or it has another name.
    is_unmapped: bool,
    /// A sync has failed. What it was to write back may be gone, and no later one would tell.
    is_unsure: bool,
}

impl OwnFile {
    /// `file`, which is called `name` as long as it is written.
    pub(super) fn new(name: &str, file: Arc<dyn Device>, map: &Arc<dyn MapFiles>) -> Arc<Self> {
        let body = Body {
            memory: None,
            dirty: Dirty::default(),
            is_more: true,
            is_unmapped: false,
            is_unsure: false,
        };
        Arc::new(Self { name: name.to_owned(), file, map: map.clone(), body: Mutex::new(body) })
    }

    fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on by calls to the file.
    pub(super) fn unmap(&self) {
        let mut body = self.body();
        body.let_go();
        body.is_unmapped = true;
    }
}

impl Body {
    /// Gives the mapping up.
    fn let_go(&mut self) {
        (self.memory, self.dirty, self.is_more) = (None, Dirty::default(), true);
    }
}

impl Device for OwnFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let mut body = self.body();
        let Some(memory) = body.memory.as_ref().filter(|memory| end <= memory.bytes()) else {
            body.is_more = true;
            return self.file.write_at(bytes, offset);
        };
        // SAFETY: one of those who have the file open maps it (`MappedDirectory::opened`), nobody views it, and the
        // lock is held.
        unsafe { memory.store(offset, bytes) }?;
        memory.check()?;
        body.dirty.note(offset..end);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut body = self.body();
        if body.is_unsure {
            return Err(io::Error::other("an earlier sync of this file has failed"));
        }
        let Body { memory, dirty, is_more, .. } = &mut *body;
        // First: lines must not lie behind an end that is not durable.
        let synced = match *is_more || memory.is_none() {
            true => self.file.sync(),
            false => Ok(()),
        };
        let synced = synced.and_then(|()| match memory {
            // The last line may go on behind the file.
            Some(memory) if !dirty.is_empty() => memory.persist(&dirty.take_before(memory.bytes())),
            Some(memory) => memory.check(),
            None => Ok(()),
        });
        *is_more = false;
        body.is_unsure = synced.is_err();
        synced
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut body = self.body();
        // Nobody may reach behind the new end.
        body.let_go();
        self.file.set_len(len)
    }

    /// Any write of bytes; what a line holds can be torn.
    fn geometry(&self) -> Geometry {
        Geometry { direct: false, sector_bytes: ALIGNMENT as u32, atomic_write_bytes: 1 }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut body = self.body();
        if body.is_unmapped || body.memory.as_ref().map_or(0, |memory| memory.bytes()) >= bytes {
            return Ok(());
        }
        body.let_go();
        let mut len = self.file.len()?;
        if len < bytes {
            len = bytes;
            self.file.set_len(len)?;
        }
        body.memory = Some(self.map.map(&self.name, len)?);
        Ok(())
    }
}
