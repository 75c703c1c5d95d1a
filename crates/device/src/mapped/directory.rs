//! Files in persistent memory, beside the ordinary files of a directory.
//!
//! Which of the names are in memory is said when the directory is made. Such a file is an extent and a length; neither
//! is written down here, so a store remembers both in its manifest and claims the file at the next open. Creating,
//! removing and renaming one is therefore nothing that could be lost in a crash: a file that nobody claims is free
//! space.
//!
//! A write stores the bytes and notes their range; a sync writes the ranges' lines back, each once, and ends with one
//! fence. A file that outgrows its extent takes the pages behind it if they are free, and others if not; who says
//! beforehand how much will come ([`Device::reserve`]) mostly has it in one piece.

use super::dirty::Dirty;
use super::own::OwnFile;
use super::region::{Extent, Region};
use super::{MapFiles, PAGE_BYTES, Persistence};
use crate::name::check_name;
use crate::{ALIGNMENT, Access, Device, Directory, Geometry, Listed, Lock, View};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A directory with some of its files in persistent memory.
#[derive(Debug)]
pub struct MappedDirectory {
    files: Arc<dyn Directory>,
    region: Arc<Region>,
    /// What the names of files in memory begin with.
    prefixes: &'static [&'static str],
    names: Mutex<BTreeMap<String, Arc<MappedFile>>>,
    own: Option<OwnFiles>,
    /// Of these, those that somebody has open.
    opened: Mutex<BTreeMap<String, Weak<OwnFile>>>,
}

/// Files of a directory that are written through a mapping each.
#[derive(Debug)]
pub struct OwnFiles {
    /// What their names begin with.
    pub prefixes: &'static [&'static str],
    /// Maps them.
    pub map: Arc<dyn MapFiles>,
}

#[derive(Debug)]
struct MappedFile {
    region: Arc<Region>,
    /// Its length, for those who list it while it is being written.
    len: AtomicU64,
    /// Held while its bytes are stored and persisted, so wanted by one thread at a time: its writer, then its readers,
    /// who take it for a moment.
    body: Mutex<Body>,
}

#[derive(Debug)]
enum Body {
    /// Being written.
    Open(Written),
    /// Not written any more: its extent, and its length.
    Frozen(Arc<Extent>, u64),
}

/// A file being written.
#[derive(Debug, Default)]
struct Written {
    extent: Option<Extent>,
    len: u64,
    /// What was stored since the last sync, in bytes of the file.
    dirty: Dirty,
    /// A sync has failed. What it was to write back may be gone, and no later one would tell.
    is_unsure: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MappedDirectory {
    /// `files`, but for those whose names begin with one of `prefixes`: these are in `region`; and those that `own`
    /// names are written through mappings.
    pub fn new(
        files: Arc<dyn Directory>,
        region: Arc<Region>,
        prefixes: &'static [&'static str],
        own: Option<OwnFiles>,
    ) -> Arc<Self> {
        Arc::new(Self { files, region, prefixes, names: Mutex::default(), own, opened: Mutex::default() })
    }

    fn is_mapped(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Who has `name` open as a file with a mapping of its own goes on without: one at a time maps a file, and by the
    /// name that it has.
    fn unmap(&self, name: &str) {
        let opened = locked(&self.opened).remove(name);
        if let Some(file) = opened.as_ref().and_then(Weak::upgrade) {
            file.unmap();
        }
    }

    /// `file`, which is called `name` and not in the region: as it is, or with a mapping of its own.
    fn opened(&self, name: &str, file: Arc<dyn Device>) -> Arc<dyn Device> {
        self.unmap(name);
        let own = self.own.as_ref().filter(|own| own.prefixes.iter().any(|prefix| name.starts_with(prefix)));
        let Some(own) = own else { return file };
        let file = OwnFile::new(name, file, &own.map);
        locked(&self.opened).insert(name.to_owned(), Arc::downgrade(&file));
        file
    }
}

impl Directory for MappedDirectory {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        if !self.is_mapped(name) {
            return Ok(self.opened(name, self.files.create(name, access)?));
        }
        check_name(name)?;
        let mut names = locked(&self.names);
        if names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = MappedFile::new(&self.region, 0, Body::Open(Written::default()));
        names.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        if !self.is_mapped(name) {
            return Ok(self.opened(name, self.files.open(name, access)?));
        }
        match locked(&self.names).get(name) {
            Some(file) => Ok(file.clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.is_mapped(name) {
            self.unmap(name);
            return self.files.remove(name);
        }
        // Its pages are free with the last who has it open, or a view of it.
        let removed = locked(&self.names).remove(name);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        match (self.is_mapped(from), self.is_mapped(to)) {
            (false, false) => {
                [from, to].into_iter().for_each(|name| self.unmap(name));
                self.files.rename(from, to)
            }
            (true, true) => {
                let mut names = locked(&self.names);
                let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
                names.insert(to.to_owned(), file);
                Ok(())
            }
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = self.files.list()?;
        let names = locked(&self.names);
        listed.extend(names.iter().map(|(name, file)| Listed { name: name.clone(), bytes: file.bytes() }));
        listed.sort();
        Ok(listed)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.files.lock()
    }

    /// Of the memory: what the other files take is little.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.region.free_bytes())
    }

    fn place(&self) -> String {
        self.files.place()
    }

    fn persistence(&self) -> Option<Persistence> {
        Some(self.region.persistence())
    }

    fn claim(&self, name: &str, pieces: &[Range<u64>], bytes: u64) -> io::Result<()> {
        let mut names = locked(&self.names);
        if names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let extent = self.region.claim(pieces)?;
        if extent.bytes() != bytes.next_multiple_of(PAGE_BYTES) {
            let why = format!("{name} has {bytes} bytes, and places for {}", extent.bytes());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let body = Body::Frozen(Arc::new(extent), bytes);
        names.insert(name.to_owned(), MappedFile::new(&self.region, bytes, body));
        Ok(())
    }

    fn allot_memory(&self) -> io::Result<()> {
        self.region.allot()
    }

    fn check_memory(&self) -> io::Result<()> {
        self.region.check()
    }
}

impl Written {
    /// Sees to it that the file can have so many bytes.
    fn fit(&mut self, region: &Arc<Region>, bytes: u64) -> io::Result<()> {
        let Some(extent) = &mut self.extent else {
            self.extent = Some(region.take(bytes)?);
            return Ok(());
        };
        extent.extend(bytes)
    }

    fn store(&mut self, region: &Arc<Region>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        self.grow(region, offset)?;
        self.fit(region, end)?;
        if let Some(extent) = &mut self.extent {
            extent.store(offset, bytes)?;
        }
        self.dirty.note(offset..end);
        self.len = self.len.max(end);
        Ok(())
    }

    /// With zeros where the file ends before.
    fn grow(&mut self, region: &Arc<Region>, len: u64) -> io::Result<()> {
        self.fit(region, len)?;
        while self.len < len {
            let zeros = [0; PAGE_BYTES as usize];
            let bytes = (len - self.len).min(PAGE_BYTES);
            if let Some(extent) = &mut self.extent {
                extent.store(self.len, &zeros[..bytes as usize])?;
            }
            self.dirty.note(self.len..self.len + bytes);
            self.len += bytes;
        }
        Ok(())
    }

    fn sync(&mut self, region: &Region) -> io::Result<()> {
        if self.is_unsure {
            return Err(io::Error::other("an earlier sync of this file has failed"));
        }
        let Some(extent) = self.extent.as_ref().filter(|_| !self.dirty.is_empty()) else { return Ok(()) };
        let mut lines = Vec::new();
        // Lines at the end may go on behind the file, but not behind its pages.
        for range in self.dirty.take_before(extent.bytes()) {
            lines.extend(extent.within(range.start, range.end - range.start)?);
        }
        let persisted = region.persist(&lines);
        self.is_unsure = persisted.is_err();
        persisted
    }
}

impl MappedFile {
    fn new(region: &Arc<Region>, len: u64, body: Body) -> Arc<Self> {
        Arc::new(Self { region: region.clone(), len: AtomicU64::new(len), body: Mutex::new(body) })
    }

    fn bytes(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn written(&self, change: impl FnOnce(&mut Written) -> io::Result<()>) -> io::Result<()> {
        match &mut *locked(&self.body) {
            Body::Open(written) => {
                let changed = change(written);
                self.len.store(written.len, Ordering::Relaxed);
                changed
            }
            Body::Frozen(..) => {
                Err(io::Error::other("a file in persistent memory that is read is not written any more"))
            }
        }
    }
}

impl Device for MappedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let body = locked(&self.body);
        let (extent, len) = match &*body {
            Body::Open(written) => (written.extent.as_ref(), written.len),
            Body::Frozen(extent, len) => (Some(&**extent), *len),
        };
        if buffer.is_empty() {
            return Ok(());
        }
        match extent.filter(|_| offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= len)) {
            Some(extent) => extent.load(offset, buffer),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.written(|written| written.store(&self.region, offset, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        match &mut *locked(&self.body) {
            Body::Open(written) => written.sync(&self.region),
            Body::Frozen(..) => Ok(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written(|written| {
            written.grow(&self.region, len)?;
            written.len = len;
            Ok(())
        })
    }

    /// Any write of bytes; what a line holds can be torn.
    fn geometry(&self) -> Geometry {
        Geometry { direct: false, sector_bytes: ALIGNMENT as u32, atomic_write_bytes: 1 }
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.written(|written| written.fit(&self.region, bytes))
    }

    fn view(&self) -> io::Result<Option<View>> {
        let mut body = locked(&self.body);
        if let Body::Open(written) = &mut *body {
            // Nobody writes it back later.
            written.sync(&self.region)?;
            let (len, extent) = (written.len, written.extent.take());
            let mut extent = extent.map_or_else(|| self.region.take(0), Ok)?;
            extent.trim(len);
            *body = Body::Frozen(Arc::new(extent), len);
        }
        match &*body {
            Body::Frozen(extent, len) => extent.view(*len).map(Some),
            Body::Open(_) => Ok(None),
        }
    }

    fn extents(&self) -> Option<Vec<Range<u64>>> {
        match &*locked(&self.body) {
            Body::Frozen(extent, _) => Some(extent.pieces().to_vec()),
            Body::Open(_) => None,
        }
    }
}
