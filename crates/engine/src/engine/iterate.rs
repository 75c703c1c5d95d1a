//! Walks over what a reader may see: of each key the newest version at or below the reader's number, unless that is
//! a tombstone.
//!
//! What a range tombstone covers is passed by as what a tombstone deletes, entry by entry; but tables that one covers
//! whole are not looked into, for as long as they are still there.
//!
//! A [`Walk`] is a position and a number. It merges cursors over the memtables and the runs; when the set of
//! containers has changed since, it re-seats itself on the new one before its next step, so it holds neither flushed
//! memtables nor dead files for longer than one step. Its number is registered, so compaction keeps what it sees.
//!
//! Per entry: one step of the merge, one copy of key and value into buffers that are reused. After an error the walk
//! stays in it.

use super::operations::Timed;
use super::{Current, Engine};
use crate::cache::LARGE_BYTES;
use crate::error::{Error, Result};
use crate::key::{Cursor, Entry, Kind, Seq, Target, Trailer};
use crate::memory::{Charge, Holder};
use crate::memtable::MemCursor;
use crate::merge::Merge;
use crate::planted::{self, Bug};
use crate::range_tombstones::Erased;
use crate::store::StoreCursor;
use crate::table::{Fill, ReadAhead, TableCursor};
use crate::version::{KeyspaceState, Layer, Spot, TableHandle};
use cuesta_device::Cause;
use std::ops::Bound;
use std::sync::Arc;

/// A walk over so many tables at most holds these alone, so that it keeps no files of others; one over more holds the
/// whole version, and looks for its tables as it comes to them.
const LISTED_MAX: usize = 64;

/// What a run expects to give of a walk, times its share: runs do not take turns evenly.
const RUN_EXPECTS: f64 = 1.125;

/// One sorted input of a merge.
#[derive(Debug)]
pub(crate) enum Source {
    Memtable(MemCursor),
    Store(Box<StoreCursor>),
    Run(Box<RunCursor>),
}

/// Opens a cursor in a table of a run.
type OpenTable = Box<dyn Fn(&Arc<TableHandle>) -> Result<TableCursor> + Send>;

/// A cursor over disjoint tables; only the present one is open.
pub(crate) struct RunCursor {
    tables: Layer,
    /// Tables that have nothing inside are as if they were not there.
    range: KeyRange,
    /// Nor are those of which range tombstones up to a number leave nothing.
    erased: (Erased, Seq),
    /// Which table, and the cursor in it.
    at: Option<(Spot, TableCursor)>,
    open: OpenTable,
}

impl std::fmt::Debug for RunCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunCursor(at {:?})", self.at.as_ref().map(|at| at.0))
    }
}

impl RunCursor {
    pub(crate) fn new(
        tables: Layer,
        range: KeyRange,
        open: impl Fn(&Arc<TableHandle>) -> Result<TableCursor> + Send + 'static,
    ) -> Self {
        let erased = (Erased::default(), Seq(0));
        Self { tables, range, erased, at: None, open: Box::new(open) }
    }

    /// Passes by tables of which a reader at this number sees nothing.
    pub(crate) fn without(self, erased: Erased, at: Seq) -> Self {
        Self { erased: (erased, at), ..self }
    }

    /// The first place from this one on whose table may have something for the reader.
    fn with_any(&self, mut spot: Option<Spot>, forward: bool) -> Option<Spot> {
        let (erased, at) = &self.erased;
        if erased.is_empty() {
            return spot;
        }
        loop {
            let table = self.tables.table(spot?)?;
            // A table that lies on others stands for them, and they may have what is newer.
            let is_alone = table.meta.below().is_none();
            let keys = (table.smallest(), table.largest());
            if !(is_alone && erased.covers_whole(keys, table.meta.largest_seq, *at)) {
                return spot;
            }
            spot = if forward { self.tables.after(spot?) } else { self.tables.before(spot?) };
        }
    }

    /// Whether a table has anything inside.
    fn is_inside(&self, spot: Spot) -> bool {
        let table = self.tables.table(spot);
        table.is_some_and(|table| self.range.touches(table.smallest(), table.largest()))
    }

    /// Opens the table there; past the end when there is none.
    fn open_table(&mut self, spot: Option<Spot>) -> Result<Option<&mut TableCursor>> {
        let spot = spot.filter(|spot| self.is_inside(*spot));
        let Some((spot, table)) = spot.and_then(|spot| Some((spot, self.tables.table(spot)?))) else {
            self.at = None;
            return Ok(None);
        };
        let cursor = match self.at.take() {
            Some((at, cursor)) if at == spot => cursor,
            _ => (self.open)(table)?,
        };
        let (_, cursor) = self.at.insert((spot, cursor));
        Ok(Some(cursor))
    }

    /// Past the end after a failure.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let moved = work(self);
        if moved.is_err() {
            self.at = None;
        }
        moved
    }

    /// Where the present table has nothing more, the neighbour on that side goes on.
    fn spill(&mut self, forward: bool) -> Result<()> {
        while let Some((spot, cursor)) = &self.at {
            if cursor.entry().is_some() {
                return Ok(());
            }
            let (next, target) = match forward {
                true => (self.tables.after(*spot), Target::First),
                false => (self.tables.before(*spot), Target::Last),
            };
            if let Some(cursor) = self.open_table(self.with_any(next, forward))? {
                cursor.go(target)?;
            }
        }
        Ok(())
    }
}

impl Cursor for RunCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        let spot = match target {
            Target::AtOrAfter(key, _) => self.tables.first_to_reach(key),
            Target::Before(key, _) => self.tables.last_to_begin(key),
            Target::First => self
                .range
                .low_key()
                .map_or_else(|| self.tables.first(), |key| self.tables.first_to_reach(key)),
            Target::Last => {
                self.range.high_key().map_or_else(|| self.tables.last(), |key| self.tables.last_to_begin(key))
            }
        };
        // One that ends with the key which a range begins behind, or begins with the one that it ends before, is passed
        // by.
        let spot = spot.and_then(|spot| match (self.is_inside(spot), target.is_forward()) {
            (true, _) => Some(spot),
            (false, true) => self.tables.after(spot),
            (false, false) => self.tables.before(spot),
        });
        let spot = self.with_any(spot, target.is_forward());
        self.guarded(|run| run.open_table(spot)?.map_or(Ok(()), |cursor| cursor.begin(target)))
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        self.guarded(|run| {
            if let Some((_, cursor)) = &mut run.at {
                cursor.finish(target)?;
            }
            run.spill(target.is_forward())
        })
    }

    fn next(&mut self) -> Result<()> {
        self.guarded(|run| {
            let Some((_, cursor)) = &mut run.at else { return Ok(()) };
            cursor.next()?;
            run.spill(true)
        })
    }

    fn prev(&mut self) -> Result<()> {
        self.guarded(|run| {
            let Some((_, cursor)) = &mut run.at else { return Ok(()) };
            cursor.prev()?;
            run.spill(false)
        })
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.at.as_ref()?.1.entry()
    }
}

impl Cursor for Source {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        match self {
            Self::Memtable(cursor) => cursor.begin(target),
            Self::Store(cursor) => cursor.begin(target),
            Self::Run(cursor) => cursor.begin(target),
        }
    }
    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        match self {
            Self::Memtable(cursor) => cursor.finish(target),
            Self::Store(cursor) => cursor.finish(target),
            Self::Run(cursor) => cursor.finish(target),
        }
    }
    fn next(&mut self) -> Result<()> {
        match self {
            Self::Memtable(cursor) => cursor.next(),
            Self::Store(cursor) => cursor.next(),
            Self::Run(cursor) => cursor.next(),
        }
    }
    fn prev(&mut self) -> Result<()> {
        match self {
            Self::Memtable(cursor) => cursor.prev(),
            Self::Store(cursor) => cursor.prev(),
            Self::Run(cursor) => cursor.prev(),
        }
    }
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Self::Memtable(cursor) => cursor.entry(),
            Self::Store(cursor) => cursor.entry(),
            Self::Run(cursor) => cursor.entry(),
        }
    }
}

/// A range of keys, with their keyspace's prefix; always within one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) low: Bound<Vec<u8>>,
    pub(crate) high: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key of every keyspace.
    pub(crate) const ALL: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    fn above_low(&self, key: &[u8]) -> bool {
        match &self.low {
            Bound::Included(low) => key >= low.as_slice(),
            Bound::Excluded(low) => key > low.as_slice(),
            Bound::Unbounded => true,
        }
    }

    fn below_high(&self, key: &[u8]) -> bool {
        match &self.high {
            Bound::Included(high) => key <= high.as_slice(),
            Bound::Excluded(high) => key < high.as_slice(),
            Bound::Unbounded => true,
        }
    }

    /// The key the range begins at, if it has one.
    pub(crate) fn low_key(&self) -> Option<&[u8]> {
        match &self.low {
            Bound::Included(low) | Bound::Excluded(low) => Some(low),
            Bound::Unbounded => None,
        }
    }

    /// The key the range ends at, if it has one.
    pub(crate) fn high_key(&self) -> Option<&[u8]> {
        match &self.high {
            Bound::Included(high) | Bound::Excluded(high) => Some(high),
            Bound::Unbounded => None,
        }
    }

    /// Whether any key of `smallest..=largest` can be inside.
    pub(crate) fn touches(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.above_low(largest) && self.below_high(smallest)
    }
}

/// Keeps a number registered for as long as it lives.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    pub(crate) seq: Seq,
}

impl Hold {
    /// Registers the present `visible`. Under the snapshots' lock, which compaction takes for the same two reads.
    pub(crate) fn new(engine: &Arc<Engine>) -> Arc<Self> {
        let mut snapshots = engine.snapshots.lock();
        let seq = engine.visible();
        snapshots.hold(seq);
        drop(snapshots);
        Arc::new(Self { engine: engine.clone(), seq })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.engine.snapshots.lock().release(self.seq);
    }
}

/// A position among what a reader may see.
#[derive(Debug)]
pub(crate) struct Walk {
    hold: Arc<Hold>,
    /// Whose keys they are: once it is dropped they go, whoever holds them.
    keyspace: Arc<KeyspaceState>,
    range: KeyRange,
    /// Entries that will be asked for, if that is known.
    limit: Option<u64>,
    generation: u64,
    merge: Merge<Source>,
    /// Of the same containers.
    erased: Erased,
    /// The entry the walk is on; `valid` says whether it is on one.
    key: Vec<u8>,
    value: Vec<u8>,
    valid: bool,
    /// The value's buffer, if it is large.
    held: Option<Charge>,
    /// Where the merge stands relative to the walk's entry.
    merge_is: Side,
    failed: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Not seated.
    Nowhere,
    /// Somewhere at or after the entry.
    AtOrAfter,
    /// Before every version of the entry's key.
    Before,
}

impl Walk {
    pub(crate) fn new(
        hold: Arc<Hold>,
        keyspace: Arc<KeyspaceState>,
        range: KeyRange,
        limit: Option<u64>,
    ) -> Self {
        let engine = hold.engine.clone();
        let current = engine.current.load();
        let erased = current.erased();
        let merge = Merge::new(engine.sources(&current, &range, limit, (&erased, hold.seq)));
        Self {
            hold,
            keyspace,
            range,
            limit,
            generation: current.generation,
            merge,
            erased,
            key: Vec::new(),
            value: Vec::new(),
            valid: false,
            held: None,
            merge_is: Side::Nowhere,
            failed: None,
        }
    }

    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.valid.then_some((&self.key[..], &self.value[..]))
    }

    /// To the first key of the range at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        let low = match &self.range.low {
            Bound::Included(low) if key < low.as_slice() => (low.clone(), Trailer::FIRST),
            Bound::Excluded(low) if key <= low.as_slice() => (low.clone(), Trailer::LAST),
            _ => (key.to_vec(), Trailer::FIRST),
        };
        self.placed(|walk| {
            walk.merge.go(Target::AtOrAfter(&low.0, low.1))?;
            walk.settle_forward()
        })
    }

    /// To the last key of the range at or before `key`.
    pub(crate) fn seek_back(&mut self, key: &[u8]) -> Result<()> {
        let high = match &self.range.high {
            Bound::Included(high) if key > high.as_slice() => (high.clone(), Trailer::LAST),
            Bound::Excluded(high) if key >= high.as_slice() => (high.clone(), Trailer::FIRST),
            _ => (key.to_vec(), Trailer::LAST),
        };
        self.placed(|walk| {
            walk.merge.go(Target::Before(&high.0, high.1))?;
            walk.settle_backward()
        })
    }

    /// To the first key of the range.
    pub(crate) fn first(&mut self) -> Result<()> {
        let low = match self.range.low.clone() {
            Bound::Included(low) => Some((low, Trailer::FIRST)),
            Bound::Excluded(low) => Some((low, Trailer::LAST)),
            Bound::Unbounded => None,
        };
        self.placed(|walk| {
            walk.merge.go(low.as_ref().map_or(Target::First, |(key, t)| Target::AtOrAfter(key, *t)))?;
            walk.settle_forward()
        })
    }

    /// To the last key of the range.
    pub(crate) fn last(&mut self) -> Result<()> {
        let high = match self.range.high.clone() {
            Bound::Included(high) => Some((high, Trailer::LAST)),
            Bound::Excluded(high) => Some((high, Trailer::FIRST)),
            Bound::Unbounded => None,
        };
        self.placed(|walk| {
            walk.merge.go(high.as_ref().map_or(Target::Last, |(key, t)| Target::Before(key, *t)))?;
            walk.settle_backward()
        })
    }

    /// To the following key; must be on one.
    pub(crate) fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.guarded(|_| Ok(()));
        }
        self.guarded(|walk| {
            if walk.merge_is != Side::AtOrAfter {
                walk.merge.go(Target::AtOrAfter(&walk.key, Trailer::LAST))?;
            }
            walk.skip_key_forward()?;
            walk.settle_forward()
        })
    }

    /// To the preceding key; must be on one.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.guarded(|_| Ok(()));
        }
        self.guarded(|walk| {
            if walk.merge_is != Side::Before {
                walk.merge.go(Target::Before(&walk.key, Trailer::FIRST))?;
            }
            walk.settle_backward()
        })
    }

    /// A move that is no step.
    fn placed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let engine = self.hold.engine.clone();
        let timing = engine.operations.seek();
        let moved = self.guarded(work);
        engine.operations.end(Timed::Seek, timing);
        moved
    }

    /// Runs a move: refuses on a closed store, re-seats on a newer set of containers, stays in error once it failed.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let engine = self.hold.engine.clone();
        let moved = engine.check_open().and_then(|()| {
            // Held while the walk moves, and by nobody for a walk that rests: cursors over the store rely on it.
            let current = engine.current.load();
            if current.generation != self.generation {
                self.generation = current.generation;
                self.erased = current.erased();
                let erased = (&self.erased, self.hold.seq);
                self.merge = Merge::new(engine.sources(&current, &self.range, self.limit, erased));
                self.merge_is = Side::Nowhere;
            }
            let worked = work(self);
            // What was copied out of memory that was lost meanwhile is worth nothing, and an error says less.
            engine.check_memory().and(worked)?;
            // What ends there may be the keyspace.
            self.keyspace.check()
        });
        if moved.is_err() && planted::has(Bug::ScanHidesErrors) {
            self.valid = false;
            return Ok(());
        }
        let bytes = self.value.capacity();
        if bytes < LARGE_BYTES {
            self.held = None;
        } else if self.held.as_ref().is_none_or(|held| held.bytes() != bytes as u64) {
            let memory = self.hold.engine.tables.cache.memory();
            self.held = Some(memory.charge(Holder::Reads, bytes as u64));
        }
        if let Err(error) = &moved {
            self.valid = false;
            self.failed = Some(error.clone());
        }
        moved
    }

    /// Past what is left of the present key.
    fn skip_key_forward(&mut self) -> Result<()> {
        while self.merge.entry().is_some_and(|entry| entry.key == self.key) {
            self.merge.next()?;
        }
        Ok(())
    }

    /// From the merge's position on: the first key with a version to be seen that is no tombstone.
    fn settle_forward(&mut self) -> Result<()> {
        self.merge_is = Side::AtOrAfter;
        self.valid = false;
        while let Some(entry) = self.merge.entry() {
            if !self.range.below_high(entry.key) {
                return Ok(());
            }
            if entry.trailer.seq() > self.hold.seq {
                self.merge.next()?;
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            if shows(&self.erased, self.hold.seq, &entry) {
                self.value.clear();
                self.value.extend_from_slice(entry.value);
                self.valid = true;
                return Ok(());
            }
            self.skip_key_forward()?;
        }
        Ok(())
    }

    /// From the merge's position backwards. Oldest versions come first there, so the last one seen of a key that
    /// may be seen is the one that counts.
    fn settle_backward(&mut self) -> Result<()> {
        self.merge_is = Side::Before;
        self.valid = false;
        loop {
            let Some(entry) = self.merge.entry() else { return Ok(()) };
            if !self.range.above_low(entry.key) {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            let mut found = false;
            while let Some(entry) = self.merge.entry().filter(|entry| entry.key == self.key) {
                if entry.trailer.seq() <= self.hold.seq {
                    found = shows(&self.erased, self.hold.seq, &entry);
                    if found {
                        self.value.clear();
                        self.value.extend_from_slice(entry.value);
                    }
                }
                self.merge.prev()?;
            }
            if found {
                self.valid = true;
                return Ok(());
            }
        }
    }
}

/// Whether a version, the newest that a reader at `at` may see of its key, is a value for it.
fn shows(erased: &Erased, at: Seq, entry: &Entry<'_>) -> bool {
    let covering = if planted::has(Bug::ScanSkipsRanges) { Seq(0) } else { erased.covering(entry.key, at) };
    entry.trailer.kind() == Some(Kind::Put) && entry.trailer.seq() > covering
}

impl Engine {
    /// Cursors over everything that can hold keys of `range`, newest first. Of a walk that is known to end after
    /// `limit` entries each run expects to give its share, by its bytes among all entries it may come from, and the
    /// store by its objects. Where one run is most of all it is taken to have every key, and what the others have for
    /// newer versions, which the walk meets besides: where these are new keys a little too much is read, and a run that
    /// expects too little costs a read more. Tables are left out of which `erased` leaves nothing.
    fn sources(
        &self,
        current: &Current,
        range: &KeyRange,
        limit: Option<u64>,
        (erased, at): (&Erased, Seq),
    ) -> Vec<Source> {
        let mut sources: Vec<Source> =
            current.memtables().map(|memtable| Source::Memtable(MemCursor::new(memtable.clone()))).collect();
        if !current.contents.is_empty() {
            let memory = self.tables.cache.memory().clone();
            let (contents, tiers) = (current.contents.clone(), self.tiers.clone());
            let (objects, others) = (contents.index.entries(), current.version.entries());
            // As if none of the entries below were an older version: nobody knows how many are.
            let share = objects as f64 / objects.max(others).max(1) as f64;
            let expected = limit.map_or(1, |limit| (limit as f64 * share * RUN_EXPECTS) as usize);
            let cursor = StoreCursor::new(&contents, tiers, memory, Cause::UserRead, expected);
            sources.push(Source::Store(Box::new(cursor)));
        }
        let version = &current.version;
        let from = range.low_key().unwrap_or_default();
        let few = range.high_key().filter(|to| version.has_few_among(from, to, LISTED_MAX));
        let (layers, entries): (Vec<(Layer, u64)>, u64) = match few {
            Some(to) => {
                let among = version.levels.iter().flat_map(|level| level.layers_among(from, to));
                let among: Vec<_> = among.filter(|tables| !tables.is_empty()).collect();
                let entries = among.iter().flatten().map(|table| table.meta.entries).sum();
                let listed = |tables: Vec<Arc<TableHandle>>| {
                    let bytes = tables.iter().map(|table| table.meta.data_bytes).sum();
                    (Layer::Listed(tables), bytes)
                };
                (among.into_iter().map(listed).collect(), entries)
            }
            None => (version.layers().collect(), version.entries()),
        };
        let (low, high) = (range.low_key().map(Arc::from), range.high_key().map(Arc::from));
        let sizes = || layers.iter().map(|(_, bytes)| *bytes);
        let (all, largest) = (sizes().sum::<u64>().max(1), sizes().max().unwrap_or(0));
        let keys =
            if 2 * largest > all { entries as f64 * largest as f64 / all as f64 } else { entries as f64 };
        for (layer, bytes) in layers {
            let expected = limit.map_or(0.0, |limit| limit as f64 * bytes as f64 / keys.max(1.0));
            let read_ahead = ReadAhead {
                expected_bytes: (expected * RUN_EXPECTS) as usize,
                max_bytes: self.options.read_ahead_bytes as usize,
                low: low.clone(),
                high: high.clone(),
            };
            let cache = self.tables.cache.clone();
            let open = move |handle: &Arc<TableHandle>| {
                Ok(handle.table()?.cursor(cache.clone(), Fill::Yes, read_ahead.clone()))
            };
            let run = RunCursor::new(layer, range.clone(), open).without(erased.clone(), at);
            sources.push(Source::Run(Box::new(run)));
        }
        sources
    }
}
