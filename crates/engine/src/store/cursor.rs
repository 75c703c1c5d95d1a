//! A walk over the contents of a store, in key order, both ways.
//!
//! Each object is a read of its own, so a walk that goes on keeps more and more of the next objects' reads under way, up
//! to [`AHEAD_MAX`] and as far as memory allows; one that is known to be short, or turns round, reads no further than it
//! needs.
//!
//! A cursor does not hold the contents that it walks over, or one that rests would keep slots from being used again:
//! whoever moves it holds them meanwhile.

use super::contents::{Contents, Found};
use super::index::{Index, Location, Position};
use crate::error::{Error, Result};
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::memory::{Charge, Holder, Memory};
use crate::tier::Tiers;
use cuesta_device::{Cause, Device, Ticket};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Objects whose reads are under way at once, at most.
const AHEAD_MAX: usize = 32;

/// A read under way.
struct Pending {
    at: Position,
    location: Location,
    read: (Ticket, Range<usize>),
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
    /// Reads of the entries that follow in the present direction.
    ahead: VecDeque<Pending>,
    /// How many of them there should be.
    window: usize,
    /// The walk ends after so many entries.
    limit: usize,
    held: Option<Charge>,
    device: Option<(u64, Arc<dyn Device>)>,
    key: Vec<u8>,
}

impl StoreCursor {
    /// Past the end. `limit` is how many entries will be asked for, if that is known.
    pub(crate) fn new(
        contents: &Arc<Contents>,
        tiers: Arc<Tiers>,
        memory: Arc<Memory>,
        cause: Cause,
        limit: Option<u64>,
    ) -> Self {
        let limit = limit.map_or(AHEAD_MAX, |limit| limit.min(AHEAD_MAX as u64) as usize);
        Self {
            contents: Arc::downgrade(contents),
            tiers,
            cause,
            memory,
            at: None,
            forward: true,
            ahead: VecDeque::new(),
            window: 0,
            limit,
            held: None,
            device: None,
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

    /// Begins reads until there are `count` under way, the first at `from` if there is none.
    fn begin_reads(&mut self, contents: &Contents, from: Option<Position>, count: usize) -> Result<()> {
        let mut next = match self.ahead.back() {
            Some(last) => self.step(&contents.index, last.at),
            None => from,
        };
        while self.ahead.len() < count {
            let Some(at) = next else { break };
            let Some(location) = contents.index.entry_to(at, &mut self.key) else { break };
            let slab = contents.slab(location.slab)?.clone();
            if !self.ahead.is_empty() && !self.memory.has_room_to_read_ahead(slab.meta.slot_bytes) {
                break;
            }
            let device = match &self.device {
                Some((number, device)) if *number == location.slab => device.clone(),
                _ if self.cause == Cause::UserRead => slab.device().clone(),
                _ => self.device.insert((location.slab, slab.metered(&self.tiers, self.cause))).1.clone(),
            };
            let read = slab.begin_read(device.as_ref(), location.slot);
            self.ahead.push_back(Pending { at, location, read });
            next = self.step(&contents.index, at);
        }
        Ok(())
    }

    /// Onto the entry of the first read under way; past the end if there is none.
    fn arrive(&mut self, contents: &Contents) -> Result<()> {
        self.at = None;
        if let Some(Pending { at, location, read }) = self.ahead.pop_front() {
            let slab = contents.slab(location.slab)?;
            let bytes = slab.end_read(read)?;
            self.at = Some((at, Found::new(slab, location.slot, bytes)?));
        }
        let bytes: u64 = self.ahead.iter().map(|pending| pending.read.1.len() as u64).sum();
        if self.held.as_ref().map_or(0, Charge::bytes) != bytes {
            self.held = (bytes > 0).then(|| self.memory.charge(Holder::Reads, bytes));
        }
        Ok(())
    }

    fn turn(&mut self, forward: bool) {
        if self.forward != forward {
            self.ahead.clear();
            (self.forward, self.window) = (forward, 0);
        }
    }

    fn go_on(&mut self, contents: &Contents, forward: bool) -> Result<()> {
        let Some((at, _)) = self.at.take() else { return Ok(()) };
        self.turn(forward);
        self.window = (2 * self.window).clamp(1, self.limit.max(1));
        self.begin_reads(contents, self.step(&contents.index, at), self.window)?;
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
        self.ahead.clear();
        (self.forward, self.window) = (target.is_forward(), 0);
        let from = Self::position(&contents.index, target);
        self.begin_reads(&contents, from, 1)
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
