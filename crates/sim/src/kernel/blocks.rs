//! Disks that remember what they were asked: files of a FUSE file system, which loop devices and file systems are put
//! upon. Writes and flushes of all disks are logged in one order; from the log a disk can be made as a power cut at any
//! place of it may leave it.
//!
//! A flush covers the writes that were answered before it came. What was written since may be there or not, page by
//! page, and one page half: that is all that ordinary drives promise (`docs/durability.md`). The first page comes
//! whole: ext4 reads its superblock there before it replays its journal, and refuses to mount one whose checksum is
//! wrong. A file system that nobody can mount says nothing about a store.

use cuesta_sched::Rng;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// What survives a cut or not as one.
const PAGE: usize = 4096;
/// What is never torn.
const SECTOR: usize = 512;
/// Attributes do not change.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Disks have these inode numbers and above.
const FIRST_INODE: u64 = 2;

/// Something that a disk was asked.
#[derive(Clone, Debug)]
pub enum Event {
    /// Bytes to keep.
    Write {
        /// Which disk.
        disk: usize,
        /// Where, in bytes.
        offset: usize,
        /// What.
        bytes: Box<[u8]>,
    },
    /// To make durable what was written.
    Flush {
        /// Which disk.
        disk: usize,
    },
}

#[derive(Debug, Default)]
struct State {
    disks: Vec<Vec<u8>>,
    /// The disks as they were when recording began.
    base: Vec<Vec<u8>>,
    events: Vec<Event>,
    recording: bool,
}

/// Recorded disks, while they are there.
#[derive(Debug)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
    dir: PathBuf,
    // Unmounts when dropped.
    _session: BackgroundSession,
}

/// All that was recorded.
#[derive(Debug)]
pub struct Recording {
    base: Vec<Vec<u8>>,
    /// In the order in which the disks were asked.
    pub events: Vec<Event>,
}

impl Recorder {
    /// Disks of so many bytes each, as files in `dir`, which becomes a mount point.
    ///
    /// # Errors
    /// When FUSE is not to be had.
    pub fn start(dir: &Path, bytes: &[usize]) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(dir).map_err(told)?;
        let disks = bytes.iter().map(|bytes| vec![0; *bytes]).collect();
        let state = Arc::new(Mutex::new(State { disks, ..State::default() }));
        let session = fuser::spawn_mount(Disks(state.clone()), dir, &Config::default()).map_err(told)?;
        Ok(Self { state, dir: dir.to_owned(), _session: session })
    }

    /// The file of a disk.
    pub fn disk(&self, disk: usize) -> PathBuf {
        self.dir.join(format!("disk{disk}"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on everything is taken down.
    pub fn begin(&self) {
        let mut state = self.state();
        state.base = state.disks.clone();
        state.events.clear();
        state.recording = true;
    }

    /// How many events there are so far.
    pub fn position(&self) -> usize {
        self.state().events.len()
    }

    /// Everything up to here.
    pub fn recording(&self) -> Recording {
        let mut state = self.state();
        state.recording = false;
        Recording { base: std::mem::take(&mut state.base), events: std::mem::take(&mut state.events) }
    }
}

/// What a power cut leaves of writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// None of them.
    None,
    /// All.
    All,
    /// Half of the pages, drawn by the seed, and one of them torn.
    Some,
}

impl Recording {
    /// The disks after a power cut behind `events` events.
    pub fn cut(&self, events: usize, survival: Survival, rng: &mut Rng) -> Vec<Vec<u8>> {
        let events = &self.events[..events];
        let mut disks = self.base.clone();
        for (number, image) in disks.iter_mut().enumerate() {
            let is_flush = |event: &Event| matches!(event, Event::Flush { disk } if *disk == number);
            let flushed = events.iter().rposition(is_flush).map_or(0, |at| at + 1);
            let mut torn = false;
            for (i, event) in events.iter().enumerate() {
                let Event::Write { disk, offset, bytes } = event else { continue };
                if *disk != number {
                    continue;
                }
                if i < flushed || survival == Survival::All {
                    image[*offset..offset + bytes.len()].copy_from_slice(bytes);
                    continue;
                }
                if survival == Survival::None {
                    continue;
                }
                for (page, bytes) in bytes.chunks(PAGE).enumerate() {
                    if rng.one_in(2) {
                        continue;
                    }
                    let at = offset + page * PAGE;
                    let tear = !torn && at != 0 && rng.one_in(8);
                    torn |= tear;
                    let keep = if tear {
                        bytes.len().min(SECTOR * (1 + rng.below(7) as usize))
                    } else {
                        bytes.len()
                    };
                    image[at..at + keep].copy_from_slice(&bytes[..keep]);
                }
            }
        }
        disks
    }
}

/// The file system: a directory of disks.
struct Disks(Arc<Mutex<State>>);

impl Disks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(inode: INodeNo) -> Option<usize> {
        inode.0.checked_sub(FIRST_INODE).map(|index| index as usize)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let size = match Self::index(inode) {
            Some(index) => Some(self.state().disks.get(index)?.len() as u64),
            None => None,
        };
        Some(FileAttr {
            ino: inode,
            size: size.unwrap_or(0),
            blocks: size.unwrap_or(0) / SECTOR as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if size.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: if size.is_some() { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        })
    }
}

impl Filesystem for Disks {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Large writes come whole; where the kernel offers less, less.
        if let Err(most) = config.set_max_write(1 << 20) {
            _ = config.set_max_write(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index =
            name.to_str().and_then(|name| name.strip_prefix("disk")).and_then(|n| n.parse::<u64>().ok());
        let inode = index.and_then(|index| index.checked_add(FIRST_INODE)).map(INodeNo);
        match inode.and_then(|inode| self.attributes(inode)) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        let Some(disk) = Self::index(inode).and_then(|index| state.disks.get(index)) else {
            return reply.error(Errno::ENOENT);
        };
        let begin = disk.len().min(offset as usize);
        let end = disk.len().min(begin + size as usize);
        reply.data(&disk[begin..end]);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let (index, offset) = (Self::index(inode).unwrap_or(usize::MAX), offset as usize);
        let Some(place) =
            state.disks.get_mut(index).and_then(|disk| disk.get_mut(offset..offset + data.len()))
        else {
            return reply.error(Errno::ENOSPC);
        };
        place.copy_from_slice(data);
        if state.recording {
            state.events.push(Event::Write { disk: index, offset, bytes: data.into() });
        }
        drop(state);
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        if let (Some(disk), true) = (Self::index(inode), state.recording) {
            state.events.push(Event::Flush { disk });
        }
        drop(state);
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_what_was_flushed_and_may_lose_the_rest() {
        let write = |disk, offset, byte| Event::Write { disk, offset, bytes: vec![byte; PAGE].into() };
        let events = vec![
            write(0, 0, 1),
            Event::Flush { disk: 0 },
            write(0, PAGE, 2),
            write(1, 0, 3),
            Event::Flush { disk: 1 },
        ];
        let recording = Recording { base: vec![vec![0; 2 * PAGE], vec![0; PAGE]], events };
        let firsts = |events, survival| {
            let disks = recording.cut(events, survival, &mut Rng::new(1));
            [disks[0][0], disks[0][PAGE], disks[1][0]]
        };
        assert_eq!(firsts(1, Survival::None), [0, 0, 0]);
        assert_eq!(firsts(2, Survival::None), [1, 0, 0]);
        assert_eq!(firsts(4, Survival::None), [1, 0, 0]);
        assert_eq!(firsts(4, Survival::All), [1, 2, 3]);
        assert_eq!(firsts(5, Survival::None), [1, 0, 3]);
        let half = (0..50)
            .filter(|seed| recording.cut(5, Survival::Some, &mut Rng::new(*seed))[0][PAGE] == 2)
            .count();
        assert!((5..45).contains(&half), "{half} of 50");

        let torn = |page: usize| {
            let write = Event::Write { disk: 0, offset: page * PAGE, bytes: vec![2; PAGE].into() };
            let recording = Recording { base: vec![vec![1; 2 * PAGE]], events: vec![write] };
            (0..200).any(|seed| {
                let disk = recording.cut(1, Survival::Some, &mut Rng::new(seed)).swap_remove(0);
                let page = &disk[page * PAGE..][..PAGE];
                page[0] != page[PAGE - 1]
            })
        };
        assert!(torn(1) && !torn(0), "any page but the one of the superblock tears");
    }
}
