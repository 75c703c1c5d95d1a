//! The write path: admit, sequence, log (or slots that were announced: `engine/store/announced.rs`), apply, publish.
//!
//! Writers put their batches into the present group under a short lock, which gives each its block of sequence
//! numbers. Whoever finds nobody leading takes the lead: it owns the log and the memtable's writing end, takes the
//! whole group, writes it to the log with one call, syncs if any member asked for it, applies the entries, and
//! publishes them by raising `visible`. The others sleep until their group is done, or until one of them finds the
//! lead free. An uncontended write under `Os` meets no other thread: two short locks, one write call, one copy into
//! the group and one into the memtable, no allocation once the buffers have grown.
//!
//! A group that asked for a sync is published after it, so no reader sees what a power cut could still take from a
//! `Sync` writer.

use super::store::{Announced, Filled};
use super::{Engine, SEALED_MAX, Sealed};
use crate::error::{Error, ErrorKind, Result};
use crate::format::record::{RECORD_HEADER_BYTES, push_unsealed, stored_bytes};
use crate::format::{FileId, FileKind, Malformed};
use crate::key::{Entry, KeyspaceId, Seq};
use crate::log::{BatchEntries, LogWriter, MANIFEST_END_BYTES, NextLog, SEAL_BYTES, range_tombstone};
use crate::memtable::{MemTable, MemTableWriter};
use crate::options::Durability;
use crate::planted::{self, Bug};
use crate::store::Slab;
use crate::version::KeyspaceState;
use cuesta_device::{ByteBuf, Cause};
use cuesta_sched::atomic::Ordering;
use cuesta_sched::{Condvar, Mutex, MutexGuard, Sched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A group takes no further batch once it has this many bytes; a single batch may be larger.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// A batch in a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    first_seq: Seq,
    entries: u32,
    payload_bytes: usize,
    logged: bool,
}

/// Batches that will be written together: records with holes for their headers.
#[derive(Debug, Default)]
struct Group {
    number: u64,
    records: ByteBuf,
    members: Vec<Member>,
    sync: bool,
}

/// What only the leader touches.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) log: LogWriter,
    pub(crate) memtable: MemTableWriter,
    /// Bytes of the log's files that the fast tier has counted, for the current file.
    pub(crate) log_counted: u64,
    /// Earlier files that are not retired yet.
    pub(crate) old_logs: Vec<OldLog>,
    /// Slots for entries of the memtable, where the log is not to have them.
    pub(crate) announced: Announced,
    /// Slabs that were written to since the last sync.
    unsynced: BTreeMap<u64, Arc<Slab>>,
    /// The last number that is in log or slots, and the last that is durable there.
    last_seq: Seq,
    durable_seq: Seq,
    spare: Group,
}

/// A log file that nothing is appended to any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldLog {
    pub(crate) number: u64,
    /// As the fast tier has counted it.
    pub(crate) bytes: u64,
    /// The medium has refused to remove it.
    pub(crate) was_refused: bool,
}

impl Lead {
    /// After an open, which has made durable all up to `last_seq`.
    pub(crate) fn new(
        log: LogWriter,
        memtable: MemTableWriter,
        (log_counted, old_logs): (u64, Vec<OldLog>),
        last_seq: Seq,
    ) -> Self {
        Self {
            log,
            memtable,
            log_counted,
            old_logs,
            announced: Announced::default(),
            unsynced: BTreeMap::new(),
            last_seq,
            durable_seq: last_seq,
            spare: Group::default(),
        }
    }

    /// These slabs are durable, and nothing more comes into announced slots of theirs: they must not be held open,
    /// which would keep their room once they are removed.
    pub(crate) fn forget(&mut self, slabs: &BTreeSet<u64>) {
        self.unsynced.retain(|slab, _| !slabs.contains(slab));
    }

    /// Makes everything durable that log and slots have.
    ///
    /// # Errors
    /// The state of what was written is unknown then, and there must not be another write.
    pub(crate) fn sync(&mut self) -> Result<()> {
        while let Some((_, slab)) = self.unsynced.pop_first() {
            if !planted::has(Bug::AnnouncedUnsynced) {
                slab.sync()?;
            }
        }
        self.log.sync()?;
        self.durable_seq = self.last_seq;
        Ok(())
    }
}

#[derive(Debug)]
struct Queue {
    group: Group,
    /// `None` while somebody leads.
    lead: Option<Box<Lead>>,
    /// Number of the last group that is done.
    done: u64,
    next_seq: Seq,
    /// Groups that failed, and how many of their members have not been told.
    failed: BTreeMap<u64, (Error, usize)>,
}

/// Where writers meet.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<Queue>,
    /// By the parity of a group's number: its members wait here for their turn or for its end.
    groups: [Condvar; 2],
    /// Others who wait for the lead.
    lead: Condvar,
}

impl WriteQueue {
    pub(crate) fn new(sched: &Sched, lead: Lead, last_seq: Seq) -> Self {
        let queue = Queue {
            group: Group { number: 1, ..Group::default() },
            lead: Some(Box::new(lead)),
            done: 0,
            next_seq: Seq(last_seq.0 + 1),
            failed: BTreeMap::new(),
        };
        let groups = [Condvar::new(sched), Condvar::new(sched)];
        Self { state: Mutex::new(sched, queue), groups, lead: Condvar::new(sched) }
    }

    fn members_of(&self, group: u64) -> &Condvar {
        &self.groups[(group % 2) as usize]
    }

    /// One member of the present group is enough to lead it; others who want the lead are few.
    fn lead_is_free(&self, present: u64) {
        self.members_of(present).notify_one();
        self.lead.notify_all();
    }

    pub(crate) fn wake(&self) {
        // Through the lock, so that no waiter is between its check and its wait.
        drop(self.state.lock());
        self.groups.iter().chain([&self.lead]).for_each(Condvar::notify_all);
    }
}

/// A batch as the write path takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded<'a> {
    /// Entries as [`crate::log::put_entry`] writes them.
    pub(crate) payload: &'a [u8],
    pub(crate) entries: u32,
    /// It has more than deletes.
    pub(crate) puts: bool,
    /// How many of the entries delete ranges, and bytes of their keys.
    pub(crate) ranges: (usize, usize),
    /// The keyspaces it writes to, besides the default one.
    pub(crate) keyspaces: &'a [(Arc<KeyspaceState>, u32)],
}

impl Engine {
    /// Whether what is written is synced within so long without being asked to.
    fn syncs_within(&self, limit: Duration) -> bool {
        matches!(self.options.durability, Durability::Interval(own) if own <= limit)
    }

    /// Waits until nobody leads a group, and wakes all who wait for one; but not longer than `most`: a leader that has
    /// panicked never gives the lead back.
    pub(super) fn wait_for_leader(&self, most: Duration) {
        self.queue.wake();
        let until = self.sched.now() + most;
        let mut queue = self.queue.state.lock();
        while queue.lead.is_none() && self.sched.now() < until {
            let left = until.saturating_sub(self.sched.now());
            (queue, _) = self.queue.lead.wait_for(queue, left);
        }
    }

    /// Writes a batch; returns the number of its last entry.
    pub(crate) fn write(&self, batch: Encoded<'_>, durability: Durability) -> Result<Seq> {
        self.check_writable()?;
        if batch.entries == 0 {
            return Ok(self.visible());
        }
        let durability = match durability {
            // A number that is missing in slots and log would end the replay of both.
            Durability::Unlogged if self.options.log_free => Durability::Os,
            // Nobody syncs as often as that: rather now than later than was asked for.
            Durability::Interval(limit) if !self.syncs_within(limit) => Durability::Sync,
            asked => asked,
        };
        self.admit_ranges(batch.ranges)?;
        let held = self.admit(batch.payload.len(), batch.puts)?;
        let mut queue = self.queue.state.lock();
        while !queue.group.members.is_empty()
            && queue.group.records.len() + batch.payload.len() > GROUP_BYTES_MAX
        {
            let full = queue.group.number;
            queue = self.lead_or_wait(queue, full);
            if let Err(error) = self.check_writable() {
                // Who was told that the lead is free, and does not want it, tells another.
                self.queue.lead_is_free(queue.group.number);
                return Err(error);
            }
        }
        // A drop that is under way at this moment may come before or after; one that has returned is seen.
        batch.keyspaces.iter().try_for_each(|(keyspace, _)| keyspace.check())?;
        self.check_writable()?;
        let first = queue.next_seq;
        if first.0 + u64::from(batch.entries) > Seq::MAX.0 {
            return Err(Error::internal("sequence numbers are used up"));
        }
        queue.next_seq = Seq(first.0 + u64::from(batch.entries));
        let number = queue.group.join(batch, first, durability);
        while queue.done < number {
            queue = self.lead_or_wait(queue, number);
        }
        let outcome = queue.outcome(number);
        drop(queue);
        if held.is_some() {
            drop(held);
            self.background.wake();
        }
        outcome?;
        Ok(Seq(first.0 + u64::from(batch.entries) - 1))
    }

    /// Makes everything written so far durable, as far as a log has it; `true` when entries exist that none has.
    pub(crate) fn sync_log(&self) -> Result<bool> {
        self.with_lead(|engine, lead| {
            engine.check_writable()?;
            lead.sync().inspect_err(|error| engine.fail(error))?;
            Ok(lead.memtable.table().unlogged())
        })
    }

    /// Seals the active memtable if it has anything, so that it will be flushed.
    pub(crate) fn seal_active(&self) -> Result<()> {
        self.with_lead(|engine, lead| {
            engine.check_writable()?;
            match lead.memtable.is_empty() {
                true => Ok(()),
                false => engine.rotate(lead),
            }
        })
    }

    /// Runs `work` as the leader, between groups.
    pub(crate) fn with_lead<T>(&self, work: impl FnOnce(&Self, &mut Lead) -> Result<T>) -> Result<T> {
        let mut queue = self.queue.state.lock();
        let mut lead = loop {
            match queue.lead.take() {
                Some(lead) => break lead,
                None => queue = self.queue.lead.wait(queue),
            }
        };
        drop(queue);
        let result = work(self, &mut lead);
        let mut queue = self.queue.state.lock();
        queue.lead = Some(lead);
        self.queue.lead_is_free(queue.group.number);
        result
    }

    /// Leads the present group if nobody does, else waits for the lead or for the end of the group `waits_for`.
    fn lead_or_wait<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, waits_for: u64) -> MutexGuard<'a, Queue> {
        let Some(mut lead) = queue.lead.take() else {
            return self.queue.members_of(waits_for).wait(queue);
        };
        let fresh = Group { number: queue.group.number + 1, ..std::mem::take(&mut lead.spare) };
        let mut group = std::mem::replace(&mut queue.group, fresh);
        drop(queue);

        let result = self.carry_out(&mut lead, &mut group);

        let mut queue = self.queue.state.lock();
        let group_number = group.number;
        queue.done = group_number;
        if let Err(error) = result {
            queue.failed.insert(group.number, (error, group.members.len()));
        }
        group.clear();
        lead.spare = group;
        queue.lead = Some(lead);
        self.queue.members_of(group_number).notify_all();
        self.queue.lead_is_free(queue.group.number);
        queue
    }

    /// Log, apply, publish.
    fn carry_out(&self, lead: &mut Lead, group: &mut Group) -> Result<()> {
        self.check_writable()?;
        let used = lead.memtable.used_bytes() + lead.announced.held_bytes();
        let limit = self.options.memtable_bytes();
        // Sealed a little early rather than grown beyond its limit by a large group.
        let full = used >= limit || (used > limit / 2 && used + group.records.len() as u64 > limit);
        if full && self.current.load().sealed.len() < SEALED_MAX {
            self.rotate(lead)?;
        }
        if let Err(error) = self.record_group(lead, group) {
            // Out of room is the one failure after which the log's end is known: nothing counts as appended.
            if *error.kind() != ErrorKind::Full {
                self.fail(&error);
            }
            return Err(error);
        }
        if planted::has(Bug::PublishedEarly)
            && let Some((_, last)) = group.numbers()
        {
            self.visible.store(last.0, Ordering::Release);
            self.sched.yield_point();
        }
        if let Err(error) = group.apply(&mut lead.memtable) {
            self.fail(&error);
            return Err(error);
        }
        if let Some((_, last)) = group.numbers() {
            self.visible.store(last.0, Ordering::Release);
        }
        Ok(())
    }

    /// Puts a group where a crash leaves it: into slots, if that is the store's way and there are any for all of it,
    /// else into the log; and makes it durable, if a member asked for that.
    fn record_group(&self, lead: &mut Lead, group: &mut Group) -> Result<()> {
        let Some((first, last)) = group.numbers() else { return Ok(()) };
        if self.options.log_free {
            self.log_refused(lead, first)?;
        }
        match self.fill_slots(lead, group)? {
            Filled::All => {}
            Filled::Nothing => self.log_group(lead, group)?,
            // Not `Full`: who is refused must not find it done after a crash.
            Filled::Perhaps => self.log_group(lead, group).map_err(|error| {
                Error::caused_by(
                    ErrorKind::Io,
                    "a write may be in slots, and the log has no room for it",
                    error,
                )
            })?,
        }
        lead.last_seq = last;
        match group.sync && !planted::has(Bug::AcknowledgedEarly) {
            // Not `Full`, whatever the medium says: after a failed sync nothing is known.
            true => lead
                .sync()
                .map_err(|error| Error::caused_by(ErrorKind::Io, "the log could not be made durable", error)),
            false => Ok(()),
        }
    }

    /// Tells the log that nobody got the numbers before `first`, if a group that had them was refused.
    fn log_refused(&self, lead: &mut Lead, first: Seq) -> Result<()> {
        while lead.last_seq.0 + 1 < first.0 && !planted::has(Bug::RefusedNumbersForgotten) {
            let missing = (first.0 - lead.last_seq.0 - 1).min(u64::from(u32::MAX)) as u32;
            let mut record = ByteBuf::default();
            push_unsealed(&mut record, &[]);
            self.count_log(&lead.log, &mut lead.log_counted, record.len() as u64)?;
            let numbers = (Seq(lead.last_seq.0 + 1), missing);
            lead.log.append(&mut record, std::iter::once((numbers, 0)))?;
            lead.last_seq = Seq(lead.last_seq.0 + u64::from(missing));
        }
        Ok(())
    }

    /// Puts a group into slots that were announced, if it may go there.
    fn fill_slots(&self, lead: &mut Lead, group: &Group) -> Result<Filled> {
        let store = self.objects.as_ref().filter(|_| self.options.log_free);
        let Some(store) = store.filter(|_| group.members.iter().all(|member| member.entries == 1)) else {
            return Ok(Filled::Nothing);
        };
        let mut batches: Vec<BatchEntries<'_>> =
            group.payloads().map(|(member, payload)| BatchEntries::new(payload, member.first_seq)).collect();
        let mut entries: Vec<Entry<'_>> = Vec::with_capacity(batches.len());
        for batch in &mut batches {
            entries.extend(batch.next().map_err(unreadable)?);
        }
        if entries.iter().any(|entry| entry.trailer.is_range_delete()) {
            return Ok(Filled::Nothing);
        }
        let Lead { announced, unsynced, durable_seq, log, log_counted, .. } = lead;
        let tell = &mut |end| {
            self.count_log(log, log_counted, MANIFEST_END_BYTES)?;
            log.append_manifest_end(end)
        };
        self.fill_announced(store, announced, unsynced, &entries, *durable_seq, tell)
    }

    fn log_group(&self, lead: &mut Lead, group: &mut Group) -> Result<()> {
        let numbers = |m: &Member| ((m.first_seq, m.entries), m.payload_bytes);
        let unlogged = group.members.iter().filter(|member| !member.logged).count();
        if unlogged > 0 {
            lead.memtable.table().mark_unlogged();
        }
        if unlogged < group.members.len() {
            let mut only_logged = if unlogged > 0 { group.logged_records() } else { ByteBuf::default() };
            let records = if unlogged > 0 { &mut only_logged } else { &mut group.records };
            self.count_log(&lead.log, &mut lead.log_counted, records.len() as u64)?;
            lead.log.append(records, group.members.iter().filter(|member| member.logged).map(numbers))?;
        }
        Ok(())
    }

    /// Counts the log's growth against the fast tier before it happens.
    fn count_log(&self, log: &LogWriter, counted: &mut u64, bytes: u64) -> Result<()> {
        let filled = log.filled_after(bytes);
        if let Some(more) = filled.checked_sub(*counted).filter(|more| *more > 0) {
            self.log_room.charge(self.tiers.fast(), more)?;
            *counted = filled;
        }
        Ok(())
    }

    /// Seals memtable and log, and goes on in new ones.
    fn rotate(&self, lead: &mut Lead) -> Result<()> {
        self.count_log(&lead.log, &mut lead.log_counted, SEAL_BYTES)?;
        let number = self.catalog.lock().take_file_number();
        let recycled = self.background.take_retired_log();
        let fast = self.tiers.fast();
        let wrap = |device| self.tiers.metered(device, fast.ordinal, Cause::Log);
        let from = (recycled.map(|retired| retired.number), self.options.log_file_bytes());
        let next = NextLog::prepare(fast.directory.as_ref(), &wrap, self.store, number, from).inspect_err(
            |error| {
                match (error.kind(), recycled) {
                    // Nothing names the new file yet; what is left of it is an orphan at worst.
                    (ErrorKind::Full, None) => drop(fast.remove(FileId::new(FileKind::Log, number))),
                    // A rename that failed half way leaves a log under a name of unknown durability.
                    _ => self.fail(error),
                }
            },
        )?;
        let sealed = OldLog { number: lead.log.end().file, bytes: lead.log_counted, was_refused: false };
        lead.log.rotate(next).inspect_err(|error| self.fail(error))?;
        lead.old_logs.push(sealed);
        lead.log_counted = recycled.map_or(0, |retired| retired.bytes);
        let (writer, memtable) = MemTable::new(self.sched.rng(number).next_u64());
        lead.memtable = writer;
        let (last_seq, announced) = (lead.last_seq, Arc::new(std::mem::take(&mut lead.announced)));
        let catalog = self.catalog.lock();
        self.install(&catalog, |current| {
            let memtable = std::mem::replace(&mut current.active, memtable);
            let first_log = std::mem::replace(&mut current.active_log, number);
            let number = current.active_number;
            current.sealed.insert(0, Sealed { memtable, first_log, last_seq, announced, number });
            current.active_number += 1;
        });
        drop(catalog);
        // Room is kept for one more from now on; where nothing is read the cache would not look.
        self.tables.cache.fit();
        self.pace();
        self.background.wake();
        Ok(())
    }
}

impl Queue {
    /// What became of a member of a group that is done.
    fn outcome(&mut self, number: u64) -> Result<()> {
        let Some((error, untold)) = self.failed.get_mut(&number) else { return Ok(()) };
        let error = error.clone();
        *untold -= 1;
        if *untold == 0 {
            self.failed.remove(&number);
        }
        Err(error)
    }
}

impl Group {
    fn join(&mut self, batch: Encoded<'_>, first_seq: Seq, durability: Durability) -> u64 {
        push_unsealed(&mut self.records, batch.payload);
        self.members.push(Member {
            first_seq,
            entries: batch.entries,
            payload_bytes: batch.payload.len(),
            logged: durability != Durability::Unlogged,
        });
        self.sync |= durability == Durability::Sync;
        self.number
    }

    /// The first number and the last.
    fn numbers(&self) -> Option<(Seq, Seq)> {
        let (first, last) = (self.members.first()?, self.members.last()?);
        Some((first.first_seq, Seq(last.first_seq.0 + u64::from(last.entries) - 1)))
    }

    /// Each member with its payload.
    fn payloads(&self) -> impl Iterator<Item = (&Member, &[u8])> {
        let mut at = 0;
        self.members.iter().map(move |member| {
            let from = at + RECORD_HEADER_BYTES;
            at += stored_bytes(member.payload_bytes);
            (member, &self.records[from..from + member.payload_bytes])
        })
    }

    /// The records that go to the log, without the others.
    fn logged_records(&self) -> ByteBuf {
        let mut out = ByteBuf::default();
        let logged = self.payloads().filter(|(member, _)| member.logged);
        logged.for_each(|(_, payload)| push_unsealed(&mut out, payload));
        out
    }

    fn apply(&self, memtable: &mut MemTableWriter) -> Result<()> {
        self.payloads().try_for_each(|(member, payload)| apply_payload(memtable, payload, member.first_seq))
    }

    /// Empties the group; its buffers stay, unless a huge batch has blown them up.
    fn clear(&mut self) {
        self.records.clear();
        self.members.clear();
        self.sync = false;
    }
}

/// Inserts a batch's entries: the one way into a memtable, for live writes and for replay alike.
pub(crate) fn apply_payload(memtable: &mut MemTableWriter, payload: &[u8], first_seq: Seq) -> Result<()> {
    let mut entries = BatchEntries::new(payload, first_seq);
    while let Some(entry) = entries.next().map_err(unreadable)? {
        debug_assert!(KeyspaceId::of(entry.key).is_some());
        match entry.trailer.is_range_delete() {
            true => memtable.erase(range_tombstone(&entry).map_err(unreadable)?),
            false => memtable.insert(entry.key, entry.trailer, entry.value),
        }
    }
    Ok(())
}

fn unreadable(malformed: Malformed) -> Error {
    Error::internal(format!("a batch that cannot be read back: {malformed}"))
}
