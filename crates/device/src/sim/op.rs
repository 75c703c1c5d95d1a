//! What the simulated device does, counted and logged: kinds of operations, counters, the log's digest and its tail.
//!
//! Plain data, used under the disk's lock. The digest costs one multiplication per eight bytes written; the textual
//! tail costs a formatted line an operation and is off unless asked for.

use std::collections::VecDeque;

/// A kind of operation; each is one call of [`crate::Device`] or [`crate::Directory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`crate::Device::read_at`], and each read that is submitted.
    Read,
    /// [`crate::Device::write_at`].
    Write,
    /// [`crate::Device::sync`].
    Sync,
    /// [`crate::Device::len`].
    Len,
    /// [`crate::Device::set_len`].
    SetLen,
    /// [`crate::Directory::create`].
    Create,
    /// [`crate::Directory::open`].
    Open,
    /// [`crate::Directory::remove`].
    Remove,
    /// [`crate::Directory::rename`].
    Rename,
    /// [`crate::Directory::list`].
    List,
    /// [`crate::Directory::sync`].
    SyncDirectory,
    /// [`crate::Directory::lock`].
    Lock,
    /// [`crate::Directory::free_bytes`].
    FreeBytes,
}

impl OpKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 13] = [
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Len,
        Self::SetLen,
        Self::Create,
        Self::Open,
        Self::Remove,
        Self::Rename,
        Self::List,
        Self::SyncDirectory,
        Self::Lock,
        Self::FreeBytes,
    ];

    /// True for the two kinds of sync.
    pub fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::SyncDirectory)
    }
}

/// What one tier was asked for since the disk was made or [`super::SimDisk::reset_counts`]; failed calls count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    ops: [u64; OpKind::ALL.len()],
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Bytes of the largest single read.
    pub read_bytes_max: u64,
    /// Reads submitted and not waited for, at present.
    pub reads_under_way: u64,
    /// The most there were of these at once.
    pub reads_under_way_max: u64,
    /// Bytes handed to writes.
    pub write_bytes: u64,
    /// Operations that were interrupted once and carried out by the device's own retry.
    pub interrupted: u64,
}

impl Counts {
    /// Operations of one kind.
    pub fn of(&self, kind: OpKind) -> u64 {
        self.ops[kind as usize]
    }

    /// Reads.
    pub fn reads(&self) -> u64 {
        self.of(OpKind::Read)
    }

    /// Writes.
    pub fn writes(&self) -> u64 {
        self.of(OpKind::Write)
    }

    /// Syncs of files; those of directories are [`OpKind::SyncDirectory`].
    pub fn syncs(&self) -> u64 {
        self.of(OpKind::Sync)
    }

    pub(super) fn add(&mut self, op: &Op<'_>) {
        self.ops[op.kind as usize] += 1;
        match op.kind {
            OpKind::Read => {
                self.read_bytes += op.len;
                self.read_bytes_max = self.read_bytes_max.max(op.len);
            }
            OpKind::Write => self.write_bytes += op.len,
            _ => {}
        }
    }
}

/// One operation, as it is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op<'a> {
    pub(super) kind: OpKind,
    pub(super) tier: usize,
    pub(super) name: &'a str,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The bytes of a write, the new name of a rename.
    pub(super) payload: &'a [u8],
}

impl<'a> Op<'a> {
    pub(super) fn new(kind: OpKind, tier: usize, name: &'a str) -> Self {
        Self { kind, tier, name, offset: 0, len: 0, payload: &[] }
    }
}

/// Digest and tail of all operations.
#[derive(Clone, Debug)]
pub(super) struct IoLog {
    digest: u64,
    tail: VecDeque<String>,
    keep: usize,
}

impl IoLog {
    pub(super) fn new(keep: usize) -> Self {
        Self { digest: 0, tail: VecDeque::new(), keep }
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    pub(super) fn add(&mut self, number: u64, op: &Op<'_>) {
        for word in [op.kind as u64, op.tier as u64, op.offset, op.len] {
            self.mix(word);
        }
        self.mix_bytes(op.name.as_bytes());
        self.mix_bytes(op.payload);
        if self.keep == 0 {
            return;
        }
        if self.tail.len() == self.keep {
            self.tail.pop_front();
        }
        let Op { kind, tier, name, offset, len, .. } = op;
        self.tail.push_back(format!("{number} {kind:?} tier {tier} {name} {len} at {offset}"));
    }

    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(27);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The zeros that fill up are told from bytes: names hold none, and the length of data is mixed in.
        self.mix(u64::from_le_bytes(last));
    }
}
