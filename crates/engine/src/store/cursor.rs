//! A walk over the contents of a store, in key order, both ways.
//!
//! Neighbours by key lie here and there. So a walk that is known to be short begins with reads of as many objects as are expected
//! of it, and one that goes on has more and more of the next ones read ahead, up to [`AHEAD_MAX`] and as far as memory
//! allows; one that turns round begins anew with one. Reads are begun in batches, each once half of the last is used up, and of a batch
//! objects in the same or neighbouring pages are one read: memtables are placed in key order, so what came with one of
//! them lies together. A merge, which goes to the end in any case, reads further ahead ([`MERGE_AHEAD_MAX`]), and so finds
//! more neighbours.
//!
//! A cursor does not hold the contents that it walks over, or one that rests would keep slots from being used again:
//! whoever moves it holds them meanwhile.

use super::contents::{Contents, Found, is_passed_over};
use super::index::{Index, Location, Position};
use super::slab::{Slab, SlotBytes};
use crate::error::{Error, Result};
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::memory::{Charge, Holder, Memory};
use crate::tier::Tiers;
use cuesta_device::{AlignedBuf, Cause, Device, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

/// Objects that are read ahead at once, at most: for users, and for merges.
const AHEAD_MAX: usize = 32;
const MERGE_AHEAD_MAX: usize = 512;

/// An object that is read ahead, and by which read.
struct Pending {
    at: Position,
    location: Location,
    run: u64,
}

/// A read of neighbouring pages, for so many objects more.
struct PageRun {
    read: Read,
    start: u64,
    bytes: u64,
    users: usize,
}

enum Read {
    UnderWay(Ticket),
    /// `None` where the medium cannot read all of it.
    Done(Option<Arc<AlignedBuf>>),
}

/// See the module's head.
pub(crate) struct StoreCursor {
    contents: Weak<Contents>,
    tiers: Arc<Tiers>,
    cause: Cause,
    memory: Arc<Memory>,
    /// The present entry.
    at: Option<(Position, Found)>,
    forward: bool,
    /// The entries that follow in the present direction, as far as they are read ahead.
    ahead: VecDeque<Pending>,
    /// Their reads, numbered.
    runs: BTreeMap<u64, PageRun>,
    next_run: u64,
    /// How many entries the last batch filled up to; none of what a place begins with.
    window: usize,
    /// The most that it may.
    most: usize,
    /// How many to begin with at a place.
    expected: usize,
    held: Charge,
    key: Vec<u8>,
}

impl StoreCursor {
    /// Past the end. `expected` is how many entries will be asked for, as far as that is known.
    pub(crate) fn new(
        contents: &Arc<Contents>,
        tiers: Arc<Tiers>,
        memory: Arc<Memory>,
        cause: Cause,
        expected: usize,
    ) -> Self {
        let most = if cause == Cause::UserRead { AHEAD_MAX } else { MERGE_AHEAD_MAX };
        let held = memory.charge(Holder::Reads, 0);
        Self {
            contents: Arc::downgrade(contents),
            tiers,
            cause,
            memory,
            at: None,
            forward: true,
            ahead: VecDeque::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            window: 0,
            most,
            expected: expected.clamp(1, most),
            held,
            key: Vec::new(),
        }
    }

    /// # Errors
    /// `Internal` when whoever moves the cursor does not hold what it walks over.
    fn contents(&self) -> Result<Arc<Contents>> {
        self.contents.upgrade().ok_or_else(|| Error::internal("a walk over contents that nobody holds"))
    }

    fn step(&self, index: &Index, at: Position) -> Option<Position> {
        if self.forward { Some(index.next(at)) } else { index.prev(at) }
    }

    /// The place in the index that a target means, and the way that goes on from it.
    fn position(index: &Index, target: Target<'_>) -> Option<Position> {
        match target {
            Target::First => Some(index.first()),
            Target::Last => index.prev(index.end()),
            Target::AtOrAfter(key, _) => Some(index.seek(key)),
            // The last version of the key may come before the place.
            Target::Before(key, trailer) => {
                let mut at = index.seek(key);
                let mut seen = Vec::new();
                while trailer != Trailer::FIRST && index.entry_to(at, &mut seen).is_some() && seen == key {
                    at = index.next(at);
                }
                index.prev(at)
            }
        }
    }

    /// Begins reads until there are `count` entries ahead, the first at `from` if there is none.
    fn begin_reads(&mut self, contents: &Contents, from: Option<Position>, count: usize) -> Result<()> {
        let mut next = match self.ahead.back() {
            Some(last) => self.step(&contents.index, last.at),
            None => from,
        };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while self.ahead.len() + batch.len() < count {
            let Some(at) = next else { break };
            let Some(location) = contents.index.entry_to(at, &mut self.key) else { break };
            // As if each had its pages to itself.
            let pages = contents.slab(location.slab)?.pages(location.slot);
            bytes += pages.end - pages.start;
            let is_first = self.ahead.is_empty() && batch.is_empty();
            if !is_first && !self.memory.has_room_to_read_ahead(bytes) {
                break;
            }
            batch.push((at, location));
            next = self.step(&contents.index, at);
        }
        self.submit(contents, &batch)
    }

    /// Begins to read a batch of entries, neighbours by place together.
    fn submit(&mut self, contents: &Contents, batch: &[(Position, Location)]) -> Result<()> {
        let mut by_place: Vec<usize> = (0..batch.len()).collect();
        by_place.sort_unstable_by_key(|i| batch[*i].1);
        let mut run_of = vec![0; batch.len()];
        for in_slab in by_place.chunk_by(|a, b| batch[*a].1.slab == batch[*b].1.slab) {
            let slab = contents.slab(batch[in_slab[0]].1.slab)?;
            let device = self.device_of(slab);
            let mut rest = in_slab;
            while !rest.is_empty() {
                let (users, pages) = slab.run(rest.iter().map(|i| batch[*i].1.slot));
                let read = Read::UnderWay(Slab::begin_read(device.as_ref(), &pages));
                let bytes = pages.end - pages.start;
                self.runs.insert(self.next_run, PageRun { read, start: pages.start, bytes, users });
                rest[..users].iter().for_each(|i| run_of[*i] = self.next_run);
                self.next_run += 1;
                rest = &rest[users..];
            }
        }
        let pending = |((at, location), run): (&(Position, Location), u64)| Pending {
            at: *at,
            location: *location,
            run,
        };
        self.ahead.extend(batch.iter().zip(run_of).map(pending));
        Ok(())
    }

    /// The slot of an entry that was read ahead.
    fn end_read(&mut self, slab: &Slab, pending: &Pending) -> Result<SlotBytes> {
        let gone = || Error::internal("an entry that was read ahead, and its read is gone");
        let mut run = self.runs.remove(&pending.run).ok_or_else(gone)?;
        let pages = match run.read {
            Read::UnderWay(ticket) => slab.end_read(ticket)?.map(Arc::new),
            Read::Done(pages) => pages,
        };
        let (read, start) = (Read::Done(pages.clone()), run.start);
        run.users -= 1;
        if run.users > 0 {
            self.runs.insert(pending.run, PageRun { read, ..run });
        }
        let slot = pending.location.slot;
        match pages {
            Some(pages) => Ok(SlotBytes::new(slab, slot, pages, start)),
            None => slab.read_through(self.device_of(slab).as_ref(), slot),
        }
    }

    fn device_of(&self, slab: &Slab) -> Arc<dyn Device> {
        match self.cause {
            Cause::UserRead => slab.device().clone(),
            cause => slab.metered(&self.tiers, cause),
        }
    }

    fn forget_reads(&mut self) {
        self.ahead.clear();
        self.runs.clear();
    }

    /// Onto the first entry that was read ahead, but for damaged copies; past the end if there is none.
    fn arrive(&mut self, contents: &Contents) -> Result<()> {
        self.at = None;
        while let Some(pending) = self.ahead.pop_front() {
            let Pending { at, location, .. } = pending;
            let slab = contents.slab(location.slab)?;
            let bytes = self.end_read(slab, &pending);
            match bytes.and_then(|bytes| Found::new(slab, location.slot, bytes)) {
                Ok(found) => {
                    self.at = Some((at, found));
                    break;
                }
                Err(error) if is_passed_over(location, &error) => {
                    if self.ahead.is_empty() {
                        self.begin_reads(contents, self.step(&contents.index, at), 1)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let bytes: u64 = self.runs.values().map(|run| run.bytes).sum();
        self.held.resize(bytes);
        Ok(())
    }

    fn turn(&mut self, forward: bool) {
        if self.forward != forward {
            self.forget_reads();
            (self.forward, self.window) = (forward, 0);
        }
    }

    fn go_on(&mut self, contents: &Contents, forward: bool) -> Result<()> {
        let Some((at, _)) = self.at.take() else { return Ok(()) };
        self.turn(forward);
        let least = if self.cause == Cause::UserRead { 1 } else { self.most };
        let window = (2 * self.window).clamp(least, self.most);
        if 2 * self.ahead.len() <= window {
            self.window = window;
            self.begin_reads(contents, self.step(&contents.index, at), window)?;
        }
        self.arrive(contents)
    }

    /// Nothing was asked for beyond the place that it came to.
    fn settle(&mut self, contents: &Contents, target: Target<'_>) -> Result<()> {
        loop {
            let passed = match (target, self.entry()) {
                (Target::AtOrAfter(key, trailer), Some(entry)) => {
                    entry.key == key && entry.trailer.0 > trailer.0
                }
                (Target::Before(key, trailer), Some(entry)) => {
                    entry.key == key && entry.trailer.0 <= trailer.0
                }
                _ => false,
            };
            if !passed {
                return Ok(());
            }
            self.go_on(contents, target.is_forward())?;
        }
    }
}

impl Cursor for StoreCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        let contents = self.contents()?;
        contents.check_whole()?;
        self.at = None;
        self.forget_reads();
        (self.forward, self.window) = (target.is_forward(), 0);
        let from = Self::position(&contents.index, target);
        self.begin_reads(&contents, from, self.expected)
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        let contents = self.contents()?;
        self.arrive(&contents)?;
        self.settle(&contents, target)
    }

    fn next(&mut self) -> Result<()> {
        let contents = self.contents()?;
        self.go_on(&contents, true)
    }

    fn prev(&mut self) -> Result<()> {
        let contents = self.contents()?;
        self.go_on(&contents, false)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.at.as_ref().map(|(_, found)| found.entry())
    }
}

impl fmt::Debug for StoreCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StoreCursor(at {:?}, {} reads ahead)",
            self.at.as_ref().map(|(at, _)| at),
            self.ahead.len()
        )
    }
}
