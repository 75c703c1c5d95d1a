//! A walk over the contents of a store, in key order, both ways.
//!
//! Neighbours by key lie here and there. So a walk that is known to be short begins with reads of as many objects as
//! are expected of it, and one that goes on has more and more of the next ones read ahead, up to [`AHEAD_MAX`] and as
//! far as memory allows; one that turns round begins anew with one. Reads are begun in batches, each once half of the
//! last is used up, and of a batch objects in the same page or neighbouring sectors are one read: memtables are placed
//! in key order, so what came with one of them lies together. A merge, which goes to the end in any case, reads further
//! ahead ([`MERGE_AHEAD_MAX`]), and so finds more neighbours: as many as lie in the pages that memory has room for.
//! Where that ends a batch, the next one waits until half of this is used up, too: one object at a time, each as
//! another is done with, would find none. What lies in pages that are there for others, or are being read, is not read
//! again: each page of small objects has some of every few dozen that follow. Of what a merge will read no more is
//! begun while [`MERGE_UNDER_WAY_BYTES`] are under way, in the order in which it wants them: the device is as busy with
//! these, and a write of the log, for which all writers wait, does not queue behind the rest.
//!
//! A cursor does not hold the contents that it walks over, or one that rests would keep slots from being used again:
//! whoever moves it holds them meanwhile.

use super::contents::{Contents, Found, is_passed_over};
use super::index::{Index, Location, Position};
use super::slab::{Slab, SlotBytes, held_bytes, pages_of};
use crate::error::{Error, Result};
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::memory::{Charge, Holder, Memory};
use crate::tier::Tiers;
use cuesta_device::{ALIGNMENT, AlignedBuf, Cause, Device, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Objects that are read ahead at once, at most: for users, and for merges.
const AHEAD_MAX: usize = 32;
const MERGE_AHEAD_MAX: usize = 2048;
/// Bytes of pages that a merge looks ahead for, at most: others read ahead too. And what it may have whatever others
/// take, or each page would be read for one object.
const MERGE_AHEAD_BYTES: u64 = 1 << 20;
const MERGE_LEAST_BYTES: u64 = 64 << 10;
/// Of these, bytes that are under way.
const MERGE_UNDER_WAY_BYTES: u64 = 96 << 10;

/// An object that is read ahead, and by which read.
struct Pending {
    at: Position,
    location: Location,
    run: u64,
}

/// A read of neighbouring sectors, for so many objects more.
struct SectorRun {
    read: Read,
    slab: u64,
    start: u64,
    bytes: u64,
    users: usize,
}

enum Read {
    Planned,
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
    runs: BTreeMap<u64, SectorRun>,
    /// The same by slab and first sector.
    by_place: BTreeMap<(u64, u64), u64>,
    next_run: u64,
    /// Memory that they take, those that are planned included.
    read_bytes: u64,
    /// Bytes of those under way.
    under_way: u64,
    /// For so many of the entries ahead, the first ones, they are begun.
    begun: usize,
    /// How many entries the last batch was to fill up to; none of what a place begins with.
    window: usize,
    /// How many it did, if memory had no room for more.
    cut_short_at: Option<usize>,
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
            by_place: BTreeMap::new(),
            next_run: 0,
            read_bytes: 0,
            under_way: 0,
            begun: 0,
            window: 0,
            cut_short_at: None,
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

    /// Reads, or is going to, until there are `count` entries ahead, the first at `from` if there is none.
    fn read_ahead(&mut self, contents: &Contents, from: Option<Position>, count: usize) -> Result<()> {
        let mut next = match self.ahead.back() {
            Some(last) => self.step(&contents.index, last.at),
            None => from,
        };
        let (mut batch, mut bytes, mut pages) = (Vec::new(), 0, BTreeSet::new());
        self.cut_short_at = None;
        while self.ahead.len() + batch.len() < count {
            let Some(at) = next else { break };
            let Some(location) = contents.index.entry_to(at, &mut self.key) else { break };
            let its = contents.slab(location.slab)?.sectors_of(location.slot);
            let mut new = 0;
            if self.run_with(location.slab, &its).is_none() {
                // What is read apart hardly ever shares a page, so it takes no more memory than its pages have bytes.
                let its =
                    pages_of(&its).step_by(ALIGNMENT).filter(|page| pages.insert((location.slab, *page)));
                new = (its.count() * ALIGNMENT) as u64;
            }
            bytes += new;
            let is_first = self.ahead.is_empty() && batch.is_empty();
            if !is_first && new > 0 && !self.has_room_for(bytes) {
                self.cut_short_at = Some(self.ahead.len() + batch.len());
                break;
            }
            batch.push((at, location));
            next = self.step(&contents.index, at);
        }
        self.plan_reads(contents, &batch)?;
        self.begin_reads(contents)
    }

    /// Whether so many bytes more may be read ahead.
    fn has_room_for(&self, bytes: u64) -> bool {
        let all = self.read_bytes + bytes;
        let has_room = self.memory.has_room_to_read_ahead(bytes);
        match self.cause {
            Cause::UserRead => has_room,
            _ => all <= MERGE_LEAST_BYTES || has_room && all <= MERGE_AHEAD_BYTES,
        }
    }

    /// The read that has these sectors, or is to have them.
    fn run_with(&self, slab: u64, sectors: &Range<u64>) -> Option<u64> {
        let ((of, _), run) = self.by_place.range(..=(slab, sectors.start)).next_back()?;
        let SectorRun { start, bytes, read, .. } = self.runs.get(run)?;
        let is_whole = !matches!(read, Read::Done(None));
        (*of == slab && sectors.end <= start + bytes && is_whole).then_some(*run)
    }

    /// Has what it holds counted.
    fn charge(&mut self) {
        self.held.resize(self.read_bytes + (self.ahead.len() * size_of::<Pending>()) as u64);
    }

    /// Plans the reads of a batch of entries, neighbours by place together.
    fn plan_reads(&mut self, contents: &Contents, batch: &[(Position, Location)]) -> Result<()> {
        let mut run_of = vec![0; batch.len()];
        let mut by_place = Vec::with_capacity(batch.len());
        for (i, (_, Location { slab, slot, .. })) in batch.iter().enumerate() {
            let run = self.run_with(*slab, &contents.slab(*slab)?.sectors_of(*slot));
            match run.and_then(|run| Some((run, self.runs.get_mut(&run)?))) {
                Some((number, run)) => {
                    run.users += 1;
                    run_of[i] = number;
                }
                None => by_place.push(i),
            }
        }
        by_place.sort_unstable_by_key(|i| batch[*i].1);
        for in_slab in by_place.chunk_by(|a, b| batch[*a].1.slab == batch[*b].1.slab) {
            let number = batch[in_slab[0]].1.slab;
            let slab = contents.slab(number)?;
            let mut rest = in_slab;
            while !rest.is_empty() {
                let (users, sectors) = slab.run(rest.iter().map(|i| batch[*i].1.slot));
                let bytes = sectors.end - sectors.start;
                self.read_bytes += held_bytes(bytes);
                // Where two begin at one page, the longer one.
                let before = self.by_place.get(&(number, sectors.start)).and_then(|run| self.runs.get(run));
                if before.is_none_or(|before| before.bytes < bytes) {
                    self.by_place.insert((number, sectors.start), self.next_run);
                }
                let run = SectorRun { read: Read::Planned, slab: number, start: sectors.start, bytes, users };
                self.runs.insert(self.next_run, run);
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
        self.charge();
        Ok(())
    }

    /// Begins reads that are planned, in the order of entries, as many as may be under way.
    fn begin_reads(&mut self, contents: &Contents) -> Result<()> {
        let most = if self.cause == Cause::UserRead { u64::MAX } else { MERGE_UNDER_WAY_BYTES };
        while self.under_way < most {
            let Some(pending) = self.ahead.get(self.begun) else { break };
            let (number, slab) = (pending.run, pending.location.slab);
            if let Some(run) = self.runs.get(&number).filter(|run| matches!(run.read, Read::Planned)) {
                let (sectors, device) =
                    (run.start..run.start + run.bytes, self.device_of(contents.slab(slab)?));
                let read = Read::UnderWay(Slab::begin_read(device.as_ref(), &sectors));
                self.under_way += held_bytes(run.bytes);
                self.runs.entry(number).and_modify(|run| run.read = read);
            }
            self.begun += 1;
        }
        Ok(())
    }

    /// The slot of an entry that was read ahead.
    fn end_read(&mut self, slab: &Slab, pending: &Pending) -> Result<SlotBytes> {
        let gone = || Error::internal("an entry that was read ahead, and its read is gone");
        let run = self.runs.get_mut(&pending.run).ok_or_else(gone)?;
        let pages = match std::mem::replace(&mut run.read, Read::Done(None)) {
            Read::Planned => return Err(Error::internal("an entry's read was not begun when its turn came")),
            Read::UnderWay(ticket) => {
                self.under_way -= held_bytes(run.bytes);
                slab.end_read(ticket)?.map(Arc::new)
            }
            Read::Done(pages) => pages,
        };
        let start = run.start;
        run.users -= 1;
        if run.users > 0 {
            run.read = Read::Done(pages.clone());
        } else {
            let place = (run.slab, start);
            self.read_bytes -= held_bytes(run.bytes);
            if self.by_place.get(&place) == Some(&pending.run) {
                self.by_place.remove(&place);
            }
            self.runs.remove(&pending.run);
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
        self.by_place.clear();
        (self.read_bytes, self.under_way, self.begun, self.cut_short_at) = (0, 0, 0, None);
        self.charge();
    }

    /// Onto the first entry that was read ahead, but for damaged copies; past the end if there is none.
    fn arrive(&mut self, contents: &Contents) -> Result<()> {
        self.at = None;
        loop {
            self.begin_reads(contents)?;
            let Some(pending) = self.ahead.pop_front() else { break };
            self.begun -= 1;
            let Pending { at, location, .. } = pending;
            let slab = contents.slab(location.slab)?;
            let bytes = self.end_read(slab, &pending);
            let is_its = |key: &[u8]| contents.index.is_at(at, key);
            match bytes.and_then(|bytes| Found::new(slab, location.slot, bytes, is_its)) {
                Ok(found) => {
                    self.at = Some((at, found));
                    break;
                }
                Err(error) if is_passed_over(location, &error) => {
                    if self.ahead.is_empty() {
                        self.read_ahead(contents, self.step(&contents.index, at), 1)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.charge();
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
        if 2 * self.ahead.len() <= self.cut_short_at.unwrap_or(window) {
            self.window = window;
            self.read_ahead(contents, self.step(&contents.index, at), window)?;
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
        self.read_ahead(&contents, from, self.expected)
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
