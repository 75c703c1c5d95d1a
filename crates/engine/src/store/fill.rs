//! Writing objects into slots: sectors that share objects are read, changed and written once.
//!
//! Objects are sorted by place, and neighbouring ones, those of a page among them, gathered into runs of sectors (of
//! pages, where the medium is not said to write less for less). A run that has other slots' bytes in it is read first,
//! since direct I/O writes whole sectors. Reads and writes of several runs are under way at once; buffers in flight are
//! bounded. What is in free slots is anything, and bytes of live slots come back as they were, so a torn write leaves
//! every live slot as it was. Per run: one read, unless its slab is new, and one write.
//!
//! A page with a sector that the medium cannot read is not written to, for the sake of what others may have there: who
//! asked for it looks for slots elsewhere.

use super::contents::Contents;
use super::index::Location;
use super::slab::{Slab, are_neighbours, held_bytes, pages_of};
use super::slot::{early_bytes, encode, object_bytes};
use crate::error::Result;
use crate::key::{Entry, Seq};
use crate::planted::{self, Bug};
use crate::tier::Tiers;
use cuesta_device::{AlignedBuf, Cause, Device, ReadRequest, Ticket, WriteRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Longest run of sectors, in bytes, unless one object is longer.
const RUN_BYTES_MAX: u64 = 64 << 10;
/// Bytes of runs, each in whole pages, that are being read at once, and that are being written. Readers, and the log,
/// queue behind them: at eight times as many readers waited for 256 pages, 2.6 ms of a modelled Optane of a fifth of
/// its bandwidth; and for the log's write a whole group waits.
const READING_BYTES_MAX: u64 = 64 << 10;
const WRITING_BYTES_MAX: u64 = 32 << 10;

/// An object, and the slot that it goes to.
pub(crate) type Write<'a> = (Location, Entry<'a>);

/// What a run's sectors had.
enum Sectors {
    Read(AlignedBuf),
    /// The medium cannot read some of them, which these slots have bytes in.
    Spoiled(Vec<Range<u32>>),
}

/// Objects of one slab in neighbouring sectors.
struct Run<'w, 'e> {
    slab: Arc<Slab>,
    device: Arc<dyn Device>,
    sectors: Range<u64>,
    writes: &'w [&'w Write<'e>],
    /// No edit names what is written yet: up to which number everything is durable.
    durable: Option<Seq>,
}

impl Run<'_, '_> {
    fn bytes(&self) -> u64 {
        self.sectors.end - self.sectors.start
    }

    /// Begins to read its sectors; a new slab's are zeros.
    fn begin(&self, is_new: bool) -> Ticket {
        let buffer = AlignedBuf::exactly(self.bytes() as usize);
        match is_new || planted::has(Bug::SlotNeighboursOverwritten) {
            true => Ticket::done(Ok(buffer)),
            false => self.device.submit(ReadRequest { buffer, offset: self.sectors.start }),
        }
    }

    /// Its sectors as they are now.
    fn end_read(&self, read: Ticket) -> Result<Sectors> {
        if let Some(buffer) = self.slab.end_read(read)? {
            return Ok(Sectors::Read(buffer));
        }
        let mut buffer = AlignedBuf::exactly(self.bytes() as usize);
        let unreadable = self.slab.read_what_can_be(self.device.as_ref(), &mut buffer, self.sectors.start)?;
        // By the page: a sector between two objects may have bytes of neither, and who looks for other slots must not
        // come back to these.
        let spoiled = unreadable.iter().map(|sectors| self.slab.slots_in(&pages_of(sectors)));
        let spoiled: Vec<Range<u32>> = spoiled.collect();
        Ok(if spoiled.is_empty() { Sectors::Read(buffer) } else { Sectors::Spoiled(spoiled) })
    }

    /// Puts its objects into its sectors, and begins to write these.
    fn change(&self, mut buffer: AlignedBuf) -> Ticket {
        for (location, entry) in self.writes {
            let place = self.slab.place(location.slot);
            let from = (place.offset - self.sectors.start) as usize;
            let place = if planted::has(Bug::SlotChecksumOfAnotherPlace) { place.at(0) } else { place };
            // An edit that announces slots has begun their next use; otherwise the one that will take them does.
            let known = self.slab.generation(location.slot);
            let generation = if self.durable.is_some() { known } else { known.next() };
            encode(&mut buffer[from..], (place, generation), entry, self.durable);
        }
        let bytes = buffer.len();
        self.device.submit_write(WriteRequest { buffer, bytes, offset: self.sectors.start })
    }

    fn end(&self, written: Ticket) -> Result<()> {
        written.wait().map(drop).map_err(|source| self.slab.failed("write", source))
    }
}

/// What is under way.
struct Flight<'w, 'e> {
    runs: VecDeque<(Run<'w, 'e>, Ticket)>,
    bytes: u64,
    bytes_max: u64,
}

impl<'w, 'e> Flight<'w, 'e> {
    fn new(bytes_max: u64) -> Self {
        Self { runs: VecDeque::new(), bytes: 0, bytes_max }
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.bytes_max
    }

    fn push(&mut self, run: Run<'w, 'e>, ticket: Ticket) {
        self.bytes += held_bytes(run.bytes());
        self.runs.push_back((run, ticket));
    }

    fn pop(&mut self) -> Option<(Run<'w, 'e>, Ticket)> {
        let (run, ticket) = self.runs.pop_front()?;
        self.bytes -= held_bytes(run.bytes());
        Some((run, ticket))
    }
}

impl Drop for Flight<'_, '_> {
    /// A write that is still under way after a failure must not land on what is written there next.
    fn drop(&mut self) {
        self.runs.drain(..).for_each(|(_, ticket)| drop(ticket.wait()));
    }
}

/// How many of `writes`, which are sorted by place, make a run, and its sectors. Two runs never share a page, but where
/// one is as long as it may be: then they never share a sector.
fn first_run(slab: &Slab, writes: &[&Write<'_>], is_early: bool) -> (usize, Range<u64>) {
    let extent = |(location, entry): &Write<'_>| {
        slab.sectors(location.slot, if is_early { early_bytes(entry) } else { object_bytes(entry) })
    };
    let mut sectors = extent(writes[0]);
    let joins = |write: &&&Write<'_>| {
        if write.0.slab != slab.meta.number {
            return false;
        }
        let next = extent(write);
        let follows = are_neighbours(sectors.end, next.start) && next.end - sectors.start <= RUN_BYTES_MAX;
        let joined = next.start < sectors.end || follows;
        if joined {
            sectors.end = next.end.max(sectors.end);
        }
        joined
    };
    (writes[1..].iter().take_while(joins).count() + 1, sectors)
}

/// What became of some writes.
pub(crate) struct Written {
    /// Slabs that are to be synced.
    pub(crate) touched: Vec<Arc<Slab>>,
    /// Slots with bytes in pages that the medium cannot read all of, each with its slab: nothing was written to these,
    /// nor to their neighbours in a run.
    pub(crate) spoiled: Vec<(u64, Range<u32>)>,
}

/// Writes objects into slots of `contents`' slabs. `new` names slabs in which nothing is live yet; `durable` is given
/// for announced slots: the number up to which everything is on media. Nothing is durable before the slabs that are
/// returned have been synced, and where some slots are spoiled not everything is written.
///
/// # Errors
/// What the devices or `check` say; what is in the slots is unknown then. `check` is told the bytes written so far.
pub(crate) fn fill(
    tiers: &Tiers,
    contents: &Contents,
    new: &BTreeSet<u64>,
    writes: &mut [&Write<'_>],
    durable: Option<Seq>,
    cause: Cause,
    check: &dyn Fn(u64) -> Result<()>,
) -> Result<Written> {
    // No two have the same place, and a stable sort would take memory.
    writes.sort_unstable_by_key(|(location, _)| *location);
    let mut devices: BTreeMap<u64, Arc<dyn Device>> = BTreeMap::new();
    let (mut reading, mut writing) = (Flight::new(READING_BYTES_MAX), Flight::new(WRITING_BYTES_MAX));
    let (mut rest, mut done): (&[&Write<'_>], u64) = (writes, 0);
    let mut spoiled = Vec::new();
    loop {
        while let Some((first, _)) = rest.first().copied().filter(|_| !reading.is_full()) {
            let slab = contents.slab(first.slab)?.clone();
            let device = devices.entry(first.slab).or_insert_with(|| slab.metered(tiers, cause)).clone();
            let (count, sectors) = first_run(&slab, rest, durable.is_some());
            let (writes, after) = rest.split_at(count);
            rest = after;
            let run = Run { slab, device, sectors, writes, durable };
            let ticket = run.begin(new.contains(&run.slab.meta.number));
            reading.push(run, ticket);
        }
        let read = if writing.is_full() { None } else { reading.pop() };
        if let Some((run, ticket)) = read {
            match run.end_read(ticket)? {
                Sectors::Read(buffer) => {
                    let ticket = run.change(buffer);
                    writing.push(run, ticket);
                }
                Sectors::Spoiled(slots) => {
                    spoiled.extend(slots.into_iter().map(|slots| (run.slab.meta.number, slots)));
                }
            }
        } else if let Some((run, ticket)) = writing.pop() {
            run.end(ticket)?;
            done += run.bytes();
            check(done)?;
        } else {
            break;
        }
    }
    let touched = devices.keys().map(|slab| contents.slab(*slab).cloned()).collect::<Result<_>>()?;
    Ok(Written { touched, spoiled })
}
