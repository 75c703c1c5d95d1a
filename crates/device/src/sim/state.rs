//! The state of a simulated disk: for each file and directory what is there now, what is durable, and the ordered
//! list of what lies between.
//!
//! Invariants:
//! - A file's `image` is what reads return; applying `pending` to `durable` in order gives it, but after a sync that
//!   failed with [`SyncFailure::CleanNew`] or a direct edit.
//! - The numbers in all pending lists come from one count, so what is pending has one order over all tiers.
//! - A tier's `used` is the sum of the lengths of its files that have a name or are open, as a file system counts.
//!
//! Everything here runs under the lock of [`super::SimDisk`] and never waits.
//!
//! Steps of an operation: number, log and count it; fail if the power is off; turn the power off if this is the
//! operation to be cut; look for a fault; then do the work. The operation that is cut leaves its change pending and
//! fails, so that whether it happened, or how much of it, is decided like for everything else that is pending.

use super::fault::{Effect, Failure, Fault, SyncFailure};
use super::op::{Counts, IoLog, Op, OpKind};
use super::{SimConfig, power_cut};
use crate::Listed;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

pub(super) type FileId = u64;

/// Smallest unit of a file that a power cut does not tear, in bytes.
const SECTOR_BYTES: u64 = 512;
/// Smallest unit of memory that it does not.
const WORD_BYTES: u64 = 8;

/// How far a misdirected transfer goes astray, in bytes.
const ASTRAY: u64 = 4096;

/// A change of a file that is not durable.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Data { offset: u64, bytes: Box<[u8]> },
    Len(u64),
}

/// A change of a directory that is not durable.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create { name: String, file: FileId },
    Remove { name: String, file: FileId },
    Rename { from: String, to: String, file: FileId },
}

impl NameChange {
    pub(super) fn file(&self) -> FileId {
        match self {
            Self::Create { file, .. } | Self::Remove { file, .. } | Self::Rename { file, .. } => *file,
        }
    }

    fn concerns(&self, given: &str) -> bool {
        match self {
            Self::Create { name, .. } | Self::Remove { name, .. } => name == given,
            Self::Rename { from, to, .. } => from == given || to == given,
        }
    }

    pub(super) fn apply(&self, entries: &mut BTreeMap<String, FileId>) {
        match self {
            Self::Create { name, file } => {
                entries.insert(name.clone(), *file);
            }
            // The name may be another file's by now, if only some changes survive.
            Self::Remove { name, file } => {
                if entries.get(name) == Some(file) {
                    entries.remove(name);
                }
            }
            // By the file and not by `from`: an earlier rename of it may be lost, and a file has one name.
            Self::Rename { to, file, .. } => {
                entries.retain(|_, id| id != file);
                entries.insert(to.clone(), *file);
            }
        }
    }
}

/// A change and its place in the order of all changes.
#[derive(Clone, Debug)]
pub(super) struct Pending<C> {
    pub(super) number: u64,
    pub(super) change: C,
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) tier: usize,
    /// The name now, or the last one.
    pub(super) name: String,
    pub(super) image: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Pending<Change>>,
    /// What a power cut does not tear, in bytes.
    pub(super) unit_bytes: u64,
    /// What the last sync that overwrote durable bytes replaced.
    replaced: Vec<(u64, Vec<u8>)>,
    /// Of memory, lines whose write-back no fence has ended, each with the last change before it.
    written_back: Vec<(Range<u64>, u64)>,
    sync_fails: bool,
    opens: usize,
    /// No longer counted in the tier's `used`.
    freed: bool,
}

impl File {
    pub(super) fn new(tier: usize, name: &str, bytes: Vec<u8>) -> Self {
        Self {
            tier,
            name: name.to_owned(),
            durable: bytes.clone(),
            image: bytes,
            pending: Vec::new(),
            unit_bytes: SECTOR_BYTES,
            replaced: Vec::new(),
            written_back: Vec::new(),
            sync_fails: false,
            opens: 0,
            freed: false,
        }
    }

    fn make_durable(&mut self) {
        let mut replaced = Vec::new();
        for pending in self.pending.drain(..) {
            match pending.change {
                Change::Len(len) => self.durable.resize(len as usize, 0),
                Change::Data { offset, bytes } => {
                    let (start, end) = (offset as usize, offset as usize + bytes.len());
                    let known = self.durable.len();
                    if start < known {
                        replaced.push((offset, self.durable[start..end.min(known)].to_vec()));
                    }
                    self.durable.resize(known.max(end), 0);
                    self.durable[start..end].copy_from_slice(&bytes);
                }
            }
        }
        if !replaced.is_empty() {
            self.replaced = replaced;
        }
    }

    /// Settles what is pending in these ranges up to a change each, and leaves the rest: it is durable from now on, or
    /// counts as clean and is not.
    fn settle_in(&mut self, ranges: &[(Range<u64>, u64)], is_durable: bool) {
        for pending in std::mem::take(&mut self.pending) {
            let Change::Data { offset, bytes } = pending.change else {
                self.pending.push(pending);
                continue;
            };
            let end = offset + bytes.len() as u64;
            let piece = |from: u64, to: u64| &bytes[(from - offset) as usize..(to - offset) as usize];
            let mut at = offset;
            let number = pending.number;
            let settled = |(range, until): &&(Range<u64>, u64)| {
                range.start < end && offset < range.end && number <= *until
            };
            for (range, _) in ranges.iter().filter(settled) {
                let (from, to) = (range.start.max(at), range.end.min(end));
                if from >= to {
                    continue;
                }
                if at < from {
                    let change = Change::Data { offset: at, bytes: piece(at, from).into() };
                    self.pending.push(Pending { number: pending.number, change });
                }
                if is_durable {
                    // Shorter where a sync of the length has lied.
                    self.durable.resize(self.durable.len().max(to as usize), 0);
                    self.durable[from as usize..to as usize].copy_from_slice(piece(from, to));
                }
                at = to;
            }
            if at < end {
                let change = Change::Data { offset: at, bytes: piece(at, end).into() };
                self.pending.push(Pending { number: pending.number, change });
            }
        }
    }

    /// Puts older bytes into `buffer`, which holds the image's from `offset`.
    fn make_stale(&self, buffer: &mut [u8], offset: u64) {
        let known = self.durable.get(offset as usize..).unwrap_or_default();
        let count = known.len().min(buffer.len());
        if buffer[..count] != known[..count] {
            buffer[..count].copy_from_slice(&known[..count]);
            return;
        }
        let end = offset + buffer.len() as u64;
        // Newest first, so that the oldest bytes are what is left.
        for (at, old) in self.replaced.iter().rev() {
            let (from, to) = (offset.max(*at), end.min(at + old.len() as u64));
            if from < to {
                let old = &old[(from - at) as usize..(to - at) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(old);
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tier {
    pub(super) capacity: u64,
    pub(super) used: u64,
    pub(super) entries: BTreeMap<String, FileId>,
    pub(super) durable: BTreeMap<String, FileId>,
    pub(super) pending: Vec<Pending<NameChange>>,
    pub(super) locked: bool,
    pub(super) counts: Counts,
    sync_fails: bool,
}

/// What [`State::begin`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Run,
    /// Leave the change pending, and fail.
    Cut,
    Fault(Effect),
}

impl Fate {
    /// The end of an operation whose change is made.
    fn result(self) -> io::Result<()> {
        if self == Self::Cut { Err(power_cut()) } else { Ok(()) }
    }

    /// For operations that change nothing.
    fn or_cut(self) -> io::Result<Self> {
        self.result().map(|()| self)
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) config: SimConfig,
    pub(super) tiers: Vec<Tier>,
    pub(super) files: BTreeMap<FileId, File>,
    next_file: FileId,
    next_change: u64,
    pub(super) ops: u64,
    pub(super) log: IoLog,
    pub(super) cut_at: Option<u64>,
    pub(super) power_is_off: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) faults_struck: u64,
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name} in this tier"))
}

impl State {
    pub(super) fn new(config: SimConfig, capacities: &[u64]) -> Self {
        let tier = |&capacity: &u64| Tier {
            capacity,
            used: 0,
            entries: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            locked: false,
            counts: Counts::default(),
            sync_fails: false,
        };
        Self {
            config,
            tiers: capacities.iter().map(tier).collect(),
            files: BTreeMap::new(),
            next_file: 0,
            next_change: 0,
            ops: 0,
            log: IoLog::new(config.trace_ops),
            cut_at: None,
            power_is_off: false,
            faults: Vec::new(),
            faults_struck: 0,
        }
    }

    /// The same bytes and pending changes, as another process finds them.
    pub(super) fn reopened(&self) -> Self {
        let mut state = self.clone();
        state.ops = 0;
        state.log = IoLog::new(state.config.trace_ops);
        state.cut_at = None;
        state.power_is_off = false;
        state.faults.clear();
        state.faults_struck = 0;
        for tier in &mut state.tiers {
            tier.locked = false;
            tier.counts = Counts::default();
        }
        let open: Vec<_> = state.files.iter().filter(|(_, file)| file.opens > 0).map(|(id, _)| *id).collect();
        for id in open {
            if let Some(file) = state.files.get_mut(&id) {
                file.opens = 0;
            }
            state.settle(id);
        }
        state
    }

    fn begin(&mut self, op: &Op<'_>) -> io::Result<Fate> {
        let mut retried = false;
        loop {
            if self.power_is_off {
                return Err(power_cut());
            }
            self.ops += 1;
            self.log.add(self.ops, op);
            self.tiers[op.tier].counts.add(op);
            if self.cut_at.is_some_and(|at| self.ops >= at) {
                self.power_is_off = true;
                return Ok(Fate::Cut);
            }
            match self.strike(op) {
                // One interruption a call: a storm of signals ends some time too.
                Some(Effect::Interrupted) if !retried => {
                    self.tiers[op.tier].counts.interrupted += 1;
                    retried = true;
                }
                Some(Effect::Fail(failure)) => return Err(failure.error()),
                Some(Effect::Panics) => panic!("a fault that panics"),
                None | Some(Effect::Interrupted) => return Ok(Fate::Run),
                Some(effect) => return Ok(Fate::Fault(effect)),
            }
        }
    }

    /// All faults see the operation, so that each counts right; the first that strikes is taken.
    fn strike(&mut self, op: &Op<'_>) -> Option<Effect> {
        let mut struck = None;
        for fault in &mut self.faults {
            let effect = fault.meet(op);
            struck = struck.or(effect);
        }
        self.faults_struck += u64::from(struck.is_some());
        struck
    }

    /// Begins an operation of an open file.
    fn begin_file(
        &mut self,
        id: FileId,
        kind: OpKind,
        offset: u64,
        len: u64,
        payload: &[u8],
    ) -> io::Result<Fate> {
        // Taken out for the call, so that the name can be looked at while the counters change.
        let name = std::mem::take(&mut self.file(id)?.name);
        let tier = self.file(id)?.tier;
        let fate = self.begin(&Op { kind, tier, name: &name, offset, len, payload });
        self.file(id)?.name = name;
        fate
    }

    fn file(&mut self, id: FileId) -> io::Result<&mut File> {
        self.files.get_mut(&id).ok_or_else(|| not_found("(closed)"))
    }

    fn number(&mut self) -> u64 {
        self.next_change += 1;
        self.next_change
    }

    /// How long the caller has to wait for what is in `buffer`.
    pub(super) fn read(&mut self, id: FileId, buffer: &mut [u8], offset: u64) -> io::Result<Duration> {
        let fate = self.begin_file(id, OpKind::Read, offset, buffer.len() as u64, &[])?.or_cut()?;
        let file = self.file(id)?;
        if !buffer.is_empty() && offset.saturating_add(buffer.len() as u64) > file.image.len() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut from = offset as usize;
        if fate == Fate::Fault(Effect::MisdirectedRead) {
            from = astray(offset) as usize;
        }
        let there = file.image.get(from..).unwrap_or_default();
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        buffer[count..].fill(0);
        if fate == Fate::Fault(Effect::StaleRead) {
            file.make_stale(buffer, offset);
        }
        match fate {
            Fate::Fault(Effect::LateRead(late)) => Ok(late),
            _ => Ok(Duration::ZERO),
        }
    }

    pub(super) fn write(&mut self, id: FileId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fate = self.begin_file(id, OpKind::Write, offset, bytes.len() as u64, bytes)?;
        match fate {
            Fate::Fault(Effect::Short { bytes: count, failure }) => {
                self.store(id, &bytes[..count.min(bytes.len())], offset)?;
                Err(failure.error())
            }
            Fate::Fault(Effect::MisdirectedWrite) => self.store(id, bytes, astray(offset)),
            _ => {
                let stored = self.store(id, bytes, offset);
                fate.result().and(stored)
            }
        }
    }

    fn store(&mut self, id: FileId, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let before = self.file(id)?.image.len() as u64;
        if end > before {
            self.take_space(id, end - before)?;
        }
        let (number, number_of_len) = (self.number(), self.number());
        let file = self.file(id)?;
        let change = Change::Data { offset, bytes: bytes.into() };
        file.pending.push(Pending { number, change });
        if end > before {
            file.image.resize(end as usize, 0);
            file.pending.push(Pending { number: number_of_len, change: Change::Len(end) });
        }
        file.image[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn take_space(&mut self, id: FileId, bytes: u64) -> io::Result<()> {
        let tier = self.file(id)?.tier;
        let tier = &mut self.tiers[tier];
        match tier.used.checked_add(bytes) {
            Some(used) if used <= tier.capacity => {
                tier.used = used;
                Ok(())
            }
            _ => Err(Failure::NoSpace.error()),
        }
    }

    pub(super) fn len(&mut self, id: FileId) -> io::Result<u64> {
        self.begin_file(id, OpKind::Len, 0, 0, &[])?.or_cut()?;
        Ok(self.file(id)?.image.len() as u64)
    }

    pub(super) fn set_len(&mut self, id: FileId, len: u64) -> io::Result<()> {
        let fate = self.begin_file(id, OpKind::SetLen, 0, len, &[])?;
        let before = self.file(id)?.image.len() as u64;
        if len > before {
            self.take_space(id, len - before)?;
        }
        let number = self.number();
        let file = self.file(id)?;
        file.image.resize(len as usize, 0);
        file.pending.push(Pending { number, change: Change::Len(len) });
        let tier = file.tier;
        self.tiers[tier].used -= before.saturating_sub(len);
        fate.result()
    }

    pub(super) fn sync(&mut self, id: FileId) -> io::Result<()> {
        let fate = self.begin_file(id, OpKind::Sync, 0, 0, &[])?.or_cut()?;
        let file = self.file(id)?;
        if file.sync_fails {
            return Err(Failure::Io.error());
        }
        match fate {
            Fate::Fault(Effect::SyncLies) => return Ok(()),
            Fate::Fault(Effect::SyncFails(SyncFailure::CleanNew)) => file.pending.clear(),
            Fate::Fault(Effect::SyncFails(SyncFailure::CleanOld)) => {
                file.pending.clear();
                let before = file.image.len() as u64;
                file.image.clone_from(&file.durable);
                let (tier, after) = (file.tier, file.image.len() as u64);
                let used = &mut self.tiers[tier].used;
                *used = *used - before + after;
            }
            Fate::Fault(Effect::SyncFails(SyncFailure::Sticky)) => file.sync_fails = true,
            _ => {
                file.make_durable();
                return Ok(());
            }
        }
        Err(Failure::Io.error())
    }

    /// A file that is memory, and how many bytes it has; made, durable, if there is none.
    pub(super) fn memory(&mut self, tier: usize, name: &str) -> (FileId, u64) {
        let id = self.find(tier, name).unwrap_or_else(|_| {
            let id = self.insert(File::new(tier, name, Vec::new()));
            self.tiers[tier].entries.insert(name.to_owned(), id);
            self.tiers[tier].durable.insert(name.to_owned(), id);
            id
        });
        let Some(file) = self.files.get_mut(&id) else { return (id, 0) };
        file.unit_bytes = WORD_BYTES;
        file.opens += 1;
        (id, file.durable.len() as u64)
    }

    /// Makes a file that is memory as long as that, durably; it becomes no shorter.
    pub(super) fn allot(&mut self, id: FileId, bytes: u64) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let more = bytes.saturating_sub(file.image.len() as u64);
        [&mut file.image, &mut file.durable].into_iter().for_each(|held| {
            held.resize(held.len().max(bytes as usize), 0);
        });
        self.tiers[file.tier].used += more;
    }

    /// A file that is there, as memory from here on; its length.
    pub(super) fn map(&mut self, tier: usize, name: &str) -> io::Result<(FileId, u64)> {
        let id = self.find(tier, name)?;
        let file = self.file(id)?;
        file.unit_bytes = WORD_BYTES;
        file.opens += 1;
        Ok((id, file.image.len() as u64))
    }

    /// Notes that these ranges of a file that is memory are on their way, which by itself promises nothing.
    pub(super) fn write_back(&mut self, id: FileId, ranges: &[Range<u64>]) {
        let now = self.next_change;
        let Some(file) = self.files.get_mut(&id) else { return };
        file.written_back.extend(ranges.iter().map(|range| (range.clone(), now)));
    }

    /// Makes what was written back of these ranges of a file that is memory durable. It can fail or lie, as a sync
    /// does.
    pub(super) fn fence(&mut self, id: FileId, ranges: &[Range<u64>]) -> io::Result<()> {
        let under_way = &mut self.file(id)?.written_back;
        let mut ended: Vec<_> = under_way.extract_if(.., |(range, _)| ranges.contains(range)).collect();
        ended.sort_by_key(|(range, _)| range.start);
        let fate = self.begin_file(id, OpKind::Sync, 0, 0, &[])?.or_cut()?;
        let file = self.file(id)?;
        match fate {
            Fate::Fault(Effect::SyncLies) => Ok(()),
            Fate::Fault(Effect::SyncFails(SyncFailure::Sticky)) => {
                file.sync_fails = true;
                Err(Failure::Io.error())
            }
            // Memory shows what was stored to it, whatever becomes of it.
            Fate::Fault(Effect::SyncFails(_)) => {
                file.settle_in(&ended, false);
                Err(Failure::Io.error())
            }
            _ if file.sync_fails => Err(Failure::Io.error()),
            _ => {
                file.settle_in(&ended, true);
                Ok(())
            }
        }
    }

    pub(super) fn create(&mut self, tier: usize, name: &str) -> io::Result<FileId> {
        let fate = self.begin(&Op::new(OpKind::Create, tier, name))?;
        if self.tiers[tier].entries.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} is there already")));
        }
        let id = self.insert(File::new(tier, name, Vec::new()));
        self.change_names(tier, NameChange::Create { name: name.to_owned(), file: id });
        fate.result()?;
        self.file(id)?.opens = 1;
        Ok(id)
    }

    pub(super) fn open(&mut self, tier: usize, name: &str) -> io::Result<FileId> {
        self.begin(&Op::new(OpKind::Open, tier, name))?.or_cut()?;
        let id = self.find(tier, name)?;
        self.file(id)?.opens += 1;
        Ok(id)
    }

    /// Counts a submitted read of an open file; its tier.
    pub(super) fn submitted(&mut self, id: FileId) -> usize {
        let tier = self.files.get(&id).map_or(0, |file| file.tier);
        let counts = &mut self.tiers[tier].counts;
        counts.reads_under_way += 1;
        counts.reads_under_way_max = counts.reads_under_way_max.max(counts.reads_under_way);
        tier
    }

    /// Counts a submitted read that nobody waits for any more.
    pub(super) fn waited(&mut self, tier: usize) {
        let counts = &mut self.tiers[tier].counts;
        counts.reads_under_way = counts.reads_under_way.saturating_sub(1);
    }

    pub(super) fn close(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.opens -= 1;
            self.settle(id);
        }
    }

    pub(super) fn remove(&mut self, tier: usize, name: &str) -> io::Result<()> {
        let fate = self.begin(&Op::new(OpKind::Remove, tier, name))?;
        let file = self.find(tier, name)?;
        self.change_names(tier, NameChange::Remove { name: name.to_owned(), file });
        self.settle(file);
        fate.result()
    }

    pub(super) fn rename(&mut self, tier: usize, from: &str, to: &str) -> io::Result<()> {
        let op = Op { payload: to.as_bytes(), ..Op::new(OpKind::Rename, tier, from) };
        let fate = self.begin(&op)?;
        let file = self.find(tier, from)?;
        let replaced = self.tiers[tier].entries.get(to).copied().filter(|&replaced| replaced != file);
        if from != to {
            self.change_names(tier, NameChange::Rename { from: from.to_owned(), to: to.to_owned(), file });
            to.clone_into(&mut self.file(file)?.name);
        }
        if let Some(replaced) = replaced {
            self.settle(replaced);
        }
        fate.result()
    }

    pub(super) fn list(&mut self, tier: usize) -> io::Result<Vec<Listed>> {
        self.begin(&Op::new(OpKind::List, tier, ""))?.or_cut()?;
        Ok(self.listed(tier))
    }

    pub(super) fn listed(&self, tier: usize) -> Vec<Listed> {
        let bytes = |id: &FileId| self.files.get(id).map_or(0, |file| file.image.len() as u64);
        let listed = |(name, id): (&String, &FileId)| Listed { name: name.clone(), bytes: bytes(id) };
        self.tiers[tier].entries.iter().map(listed).collect()
    }

    pub(super) fn sync_directory(&mut self, tier: usize) -> io::Result<()> {
        let fate = self.begin(&Op::new(OpKind::SyncDirectory, tier, ""))?.or_cut()?;
        if self.tiers[tier].sync_fails {
            return Err(Failure::Io.error());
        }
        let mut result = Err(Failure::Io.error());
        let names = &mut self.tiers[tier];
        match fate {
            Fate::Fault(Effect::SyncLies) => return Ok(()),
            Fate::Fault(Effect::SyncFails(SyncFailure::CleanNew)) => names.pending.clear(),
            Fate::Fault(Effect::SyncFails(SyncFailure::CleanOld)) => {
                names.pending.clear();
                names.entries.clone_from(&names.durable);
            }
            Fate::Fault(Effect::SyncFails(SyncFailure::Sticky)) => names.sync_fails = true,
            _ => {
                for pending in names.pending.drain(..) {
                    pending.change.apply(&mut names.durable);
                }
                result = Ok(());
            }
        }
        self.settle_all(tier);
        result
    }

    pub(super) fn lock(&mut self, tier: usize) -> io::Result<()> {
        self.begin(&Op::new(OpKind::Lock, tier, ""))?.or_cut()?;
        if self.tiers[tier].locked {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, format!("tier {tier} is in use")));
        }
        self.tiers[tier].locked = true;
        Ok(())
    }

    pub(super) fn free_bytes(&mut self, tier: usize) -> io::Result<u64> {
        self.begin(&Op::new(OpKind::FreeBytes, tier, ""))?.or_cut()?;
        Ok(self.tiers[tier].capacity.saturating_sub(self.tiers[tier].used))
    }

    pub(super) fn find(&self, tier: usize, name: &str) -> io::Result<FileId> {
        self.tiers[tier].entries.get(name).copied().ok_or_else(|| not_found(name))
    }

    pub(super) fn insert(&mut self, file: File) -> FileId {
        let id = self.next_file;
        self.next_file += 1;
        self.tiers[file.tier].used += file.image.len() as u64;
        self.files.insert(id, file);
        id
    }

    fn change_names(&mut self, tier: usize, change: NameChange) {
        let number = self.number();
        let tier = &mut self.tiers[tier];
        change.apply(&mut tier.entries);
        tier.pending.push(Pending { number, change });
    }

    /// Forgets all that was to become of a name, for direct edits.
    pub(super) fn forget_name(&mut self, tier: usize, name: &str) {
        let names = &mut self.tiers[tier];
        names.entries.remove(name);
        names.durable.remove(name);
        names.pending.retain(|pending| !pending.change.concerns(name));
        self.settle_all(tier);
    }

    /// True if a power cut could leave the file with a name.
    pub(super) fn may_survive(&self, id: FileId) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let tier = &self.tiers[file.tier];
        tier.durable.values().any(|&durable| durable == id)
            || tier.pending.iter().any(|pending| pending.change.file() == id)
    }

    fn settle_all(&mut self, tier: usize) {
        let names: Vec<_> = self.tiers[tier].entries.iter().map(|(name, id)| (*id, name.clone())).collect();
        for (id, name) in names {
            if let Some(file) = self.files.get_mut(&id) {
                file.name = name;
            }
        }
        let ids: Vec<_> =
            self.files.iter().filter(|(_, file)| file.tier == tier).map(|(id, _)| *id).collect();
        for id in ids {
            self.settle(id);
        }
    }

    /// Gives the space of a file back when nobody can reach it any more, takes it again when a failed sync brought
    /// its name back, and forgets it when no power cut could bring it back either.
    fn settle(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let tier = &mut self.tiers[file.tier];
        let reachable = file.opens > 0 || tier.entries.get(&file.name) == Some(&id);
        if reachable == file.freed {
            let bytes = file.image.len() as u64;
            tier.used = if file.freed { tier.used + bytes } else { tier.used - bytes };
            file.freed = !reachable;
        }
        if !reachable && !self.may_survive(id) {
            self.files.remove(&id);
        }
    }
}

fn astray(offset: u64) -> u64 {
    offset.checked_sub(ASTRAY).unwrap_or(offset + ASTRAY)
}
