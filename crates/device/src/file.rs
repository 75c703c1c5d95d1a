//! Files of the operating system: buffered, or by direct I/O.
//!
//! Every call is one system call through libc (more only where the kernel returns short or interrupts), so models and
//! fault injectors that are preloaded see it. No lock is taken but by submitted reads, which a directory's threads
//! carry out several at once if it was given any ([`FileDirectory::with_threads`]).

use crate::buffer::{ALIGNMENT, SECTOR_BYTES_MIN, require_aligned};
use crate::name::{LOCK_NAME, check_name};
use crate::transfers::{Request, Transfers};
use crate::{Access, Device, Directory, Geometry, Listed, Lock, ReadRequest, Ticket, WriteRequest};
use cuesta_sched::Sched;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fstatfs, statx};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What every drive in use keeps whole in a power cut: its logical block.
const ATOMIC_WRITE_BYTES: u32 = 512;
/// What `statfs` calls a file system in memory, which takes any offset and length.
const TMPFS: i64 = 0x0102_1994;

/// Unit of direct I/O on a file: what its file system says (Linux 6.1), else a page, but for one in memory.
fn sector_bytes(file: &File) -> u32 {
    let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = said.ok().filter(|said| said.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let is_in_memory = || fstatfs(file).is_ok_and(|stat| stat.f_type == TMPFS);
    match said.map(|said| said.stx_dio_offset_align).filter(|bytes| bytes.is_power_of_two()) {
        Some(bytes) => bytes.clamp(SECTOR_BYTES_MIN, ALIGNMENT as u32),
        None if is_in_memory() => SECTOR_BYTES_MIN,
        None => ALIGNMENT as u32,
    }
}

/// Makes a directory that is missing, its parents first. Each new name must outlive a power cut like the files that will
/// be under it.
fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    make(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        // By somebody else, a moment ago.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(parent)?.sync_all()
}

/// A directory of the operating system.
#[derive(Debug)]
pub struct FileDirectory {
    path: PathBuf,
    handle: File,
    transfers: Option<Arc<Transfers>>,
}

impl FileDirectory {
    /// Opens a directory, made first if it is missing (mode 0700, parents too).
    ///
    /// # Errors
    /// What the operating system says: no permission, a file of that name, a read-only medium.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        make(path)?;
        Ok(Self { handle: File::open(path)?, path: path.to_owned(), transfers: None })
    }

    /// Opens a directory that exists.
    ///
    /// # Errors
    /// `NotFound`, and what the operating system says.
    pub fn open_existing(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        Ok(Self { handle: File::open(path)?, path: path.to_owned(), transfers: None })
    }

    /// Has submitted reads of files that are opened from now on carried out by a few threads of `sched`.
    #[must_use]
    pub fn with_threads(self, sched: &Sched) -> Self {
        Self { transfers: Some(Arc::new(Transfers::new(sched))), ..self }
    }

    fn file(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
    }

    fn open_file(&self, name: &str, access: Access, create: bool) -> io::Result<Arc<dyn Device>> {
        let path = self.file(name)?;
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(create).mode(0o600);
            options.custom_flags((flags | OFlags::NOFOLLOW).bits() as i32).open(&path)
        };
        if access != Access::Buffered {
            match open(OFlags::DIRECT) {
                Ok(file) => return Ok(self.opened(file, access)),
                // A file system without direct I/O refuses the flag, some only after they made the file.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                    if create && path.exists() {
                        std::fs::remove_file(&path)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.opened(open(OFlags::empty())?, Access::Buffered))
    }

    fn opened(&self, file: File, granted: Access) -> Arc<dyn Device> {
        let (direct, sector_bytes) =
            (granted != Access::Buffered, granted.sector_bytes(|| sector_bytes(&file)));
        Arc::new(OpenFile { file: Arc::new(file), direct, sector_bytes, transfers: self.transfers.clone() })
    }
}

impl Directory for FileDirectory {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, access, true)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, access, false)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.file(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.file(from)?, self.file(to)?)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                // Removed by another thread since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
            if metadata.is_file() && name != LOCK_NAME {
                listed.push(Listed { name, bytes: metadata.len() });
            }
        }
        listed.sort();
        Ok(listed)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join(LOCK_NAME))?;
        let locked = FileLock::take(file)?;
        let in_use =
            || io::Error::new(io::ErrorKind::WouldBlock, format!("{} is in use", self.path.display()));
        Ok(Box::new(locked.ok_or_else(in_use)?))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.handle)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// An open file that nobody else has locked; the operating system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl FileLock {
    /// `None` when another has it, in this process or elsewhere.
    pub(crate) fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Lock for FileLock {}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone would not do: a process that is being forked off holds a copy of the descriptor until it
        // runs its own program, and the lock would live as long. If unlocking fails, closing is what is left.
        drop(self.file.unlock());
    }
}

#[derive(Debug)]
struct OpenFile {
    /// Shared with the transfers under way.
    file: Arc<File>,
    direct: bool,
    sector_bytes: u32,
    transfers: Option<Arc<Transfers>>,
}

impl OpenFile {
    /// The kernel would refuse an unaligned call too, but without saying why, and not on every file system.
    fn check(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.direct { require_aligned(bytes, offset, self.sector_bytes) } else { Ok(()) }
    }

    fn transfer(&self, request: Request) -> Ticket {
        match &self.transfers {
            Some(transfers) => transfers.submit(&self.file, request),
            None => Ticket::done(request.carry_out(&self.file)),
        }
    }
}

impl Device for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(buffer, offset)?;
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check(bytes, offset)?;
        self.file.write_all_at(bytes, offset)
    }

    /// By `fdatasync`, which writes the length too wherever reading the data back depends on it.
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn geometry(&self) -> Geometry {
        let (direct, sector_bytes) = (self.direct, self.sector_bytes);
        Geometry { direct, sector_bytes, atomic_write_bytes: ATOMIC_WRITE_BYTES }
    }

    fn submit(&self, request: ReadRequest) -> Ticket {
        match self.check(&request.buffer, request.offset) {
            Ok(()) => self.transfer(Request::Read(request)),
            Err(error) => Ticket::done(Err(error)),
        }
    }

    fn submit_write(&self, request: WriteRequest) -> Ticket {
        match self.check(&request.buffer[..request.bytes], request.offset) {
            Ok(()) => self.transfer(Request::Write(request)),
            Err(error) => Ticket::done(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    #[test]
    fn what_is_written_is_read_by_either_access() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path().join("a/b")).unwrap();
        let mut page = AlignedBuf::zeroed(ALIGNMENT);
        page.fill(7);
        directory.create("x", Access::Direct).unwrap().write_at(&page, 4096).unwrap();
        let mut bytes = [1; 10];
        let file = directory.open("x", Access::Buffered).unwrap();
        file.read_at(&mut bytes, 4090).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 7, 7, 7, 7]);
        assert_eq!(file.read_at(&mut bytes, 8190).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(directory.list().unwrap(), [Listed { name: "x".to_owned(), bytes: 8192 }]);
    }

    #[test]
    fn an_unaligned_direct_call_is_refused() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        let file = directory.create("x", Access::Direct).unwrap();
        if file.geometry().direct {
            let error = file.write_at(&[0; 100], 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn sectors_are_as_small_as_the_medium_has_them_and_no_smaller_than_asked_for() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        let file = directory.create("x", Access::Direct).unwrap();
        assert_eq!(file.geometry().sector_bytes, 4096);
        let sectors = |bytes| directory.open("x", Access::Sectors(bytes)).unwrap().geometry().sector_bytes;
        let least = sectors(SECTOR_BYTES_MIN);
        assert!((SECTOR_BYTES_MIN..=4096).contains(&least) && least.is_power_of_two(), "{least}");
        assert_eq!((sectors(2048), sectors(4096)), (least.max(2048), 4096));
        // By what it says the file can be written and read.
        let file = directory.open("x", Access::Sectors(SECTOR_BYTES_MIN)).unwrap();
        let mut sector = AlignedBuf::exactly(least as usize);
        sector.fill(7);
        assert_eq!(sector.len(), least as usize);
        file.write_at(&sector, 3 * u64::from(least)).unwrap();
        let read =
            ReadRequest { buffer: AlignedBuf::exactly(2 * least as usize), offset: 2 * u64::from(least) };
        let read = file.submit(read).wait().unwrap();
        assert_eq!(*read, *[vec![0; least as usize], vec![7; least as usize]].concat());
        let page = directory.open("x", Access::Direct).unwrap();
        if page.geometry().direct && least < 4096 {
            let error = page.read_at(&mut sector, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        let lock = directory.lock().unwrap();
        assert_eq!(directory.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        directory.lock().unwrap();
        assert!(directory.list().unwrap().is_empty());
    }

    #[test]
    fn a_lock_goes_though_a_process_being_forked_has_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).open(dir.path().join("x")).unwrap()
        };
        let file = open();
        let inherited = file.try_clone().unwrap();
        let lock = FileLock::take(file).unwrap().unwrap();
        assert!(FileLock::take(open()).unwrap().is_none());
        drop(lock);
        assert!(FileLock::take(open()).unwrap().is_some());
        drop(inherited);
    }

    #[test]
    fn names_stay_inside_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let directory = FileDirectory::open(dir.path()).unwrap();
        for name in ["", "..", "a/b", "../x", LOCK_NAME] {
            assert_eq!(directory.remove(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
