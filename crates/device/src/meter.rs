//! Counts what goes through devices, by tier and cause: the one place that amplification and wear come from.
//!
//! A metered device adds two relaxed atomic additions to each call and nothing to a byte.

use crate::{Device, Geometry, ReadRequest, Ticket, View, WriteRequest};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why bytes are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The log.
    Log,
    /// The manifest.
    Manifest,
    /// A memtable becoming a table.
    Flush,
    /// A merge between levels.
    Compaction,
    /// Objects moving down a tier.
    Demotion,
    /// Objects moving up a tier.
    Promotion,
    /// Indexes and filters, read for users.
    Index,
    /// Data, read for users.
    UserRead,
    /// Opening the store.
    Recovery,
    /// Checking files.
    Verify,
}

impl Cause {
    /// Every cause, in the order of counters.
    pub const ALL: [Self; 10] = [
        Self::Log,
        Self::Manifest,
        Self::Flush,
        Self::Compaction,
        Self::Demotion,
        Self::Promotion,
        Self::Index,
        Self::UserRead,
        Self::Recovery,
        Self::Verify,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Manifest => "manifest",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::Demotion => "demotion",
            Self::Promotion => "promotion",
            Self::Index => "index",
            Self::UserRead => "user read",
            Self::Recovery => "recovery",
            Self::Verify => "verify",
        }
    }
}

/// Calls and bytes of one tier and cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Read calls.
    pub read_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write calls.
    pub write_ops: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Syncs.
    pub syncs: u64,
}

#[derive(Debug, Default)]
struct Cell {
    fields: [AtomicU64; FIELDS],
}

const FIELDS: usize = 5;
const READ_OPS: usize = 0;
const READ_BYTES: usize = 1;
const WRITE_OPS: usize = 2;
const WRITE_BYTES: usize = 3;
const SYNCS: usize = 4;

/// Counters of all tiers and causes.
#[derive(Debug)]
pub struct Meter {
    cells: Vec<[Cell; Cause::ALL.len()]>,
}

/// Counters read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    counts: Vec<[Count; Cause::ALL.len()]>,
}

impl Meter {
    /// Zeros for so many tiers.
    pub fn new(tiers: usize) -> Arc<Self> {
        Arc::new(Self { cells: (0..tiers).map(|_| Default::default()).collect() })
    }

    /// `device`, counted under `tier` and `cause`; a tier the meter does not have is not counted.
    pub fn attach(self: &Arc<Self>, device: Arc<dyn Device>, tier: usize, cause: Cause) -> Arc<dyn Device> {
        match tier < self.cells.len() {
            true => Arc::new(Metered { device, meter: self.clone(), tier, cause }),
            false => device,
        }
    }

    /// The counters as they are.
    pub fn snapshot(&self) -> Counters {
        let count = |cell: &Cell| {
            let field = |i: usize| cell.fields[i].load(Ordering::Relaxed);
            Count {
                read_ops: field(READ_OPS),
                read_bytes: field(READ_BYTES),
                write_ops: field(WRITE_OPS),
                write_bytes: field(WRITE_BYTES),
                syncs: field(SYNCS),
            }
        };
        Counters { counts: self.cells.iter().map(|tier| tier.each_ref().map(count)).collect() }
    }

    /// Adds numbers that [`Counters::numbers`] gave; those of another number of tiers are left alone.
    pub fn restore(&self, numbers: &[u64]) {
        let fields = self.cells.iter().flatten().flat_map(|cell| &cell.fields);
        if numbers.len() == self.cells.len() * Cause::ALL.len() * FIELDS {
            fields.zip(numbers).for_each(|(field, number)| {
                field.fetch_add(*number, Ordering::Relaxed);
            });
        }
    }
}

impl Counters {
    /// One tier and cause; zeros for a tier there is not.
    pub fn get(&self, tier: usize, cause: Cause) -> Count {
        self.counts.get(tier).map_or_else(Count::default, |counts| counts[cause as usize])
    }

    /// How many tiers are counted.
    pub fn tiers(&self) -> usize {
        self.counts.len()
    }

    /// All causes of a tier together.
    pub fn total(&self, tier: usize) -> Count {
        Cause::ALL.into_iter().map(|cause| self.get(tier, cause)).fold(Count::default(), |a, b| Count {
            read_ops: a.read_ops + b.read_ops,
            read_bytes: a.read_bytes + b.read_bytes,
            write_ops: a.write_ops + b.write_ops,
            write_bytes: a.write_bytes + b.write_bytes,
            syncs: a.syncs + b.syncs,
        })
    }

    /// Every number, tier by tier and cause by cause.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        let fields = |c: &Count| [c.read_ops, c.read_bytes, c.write_ops, c.write_bytes, c.syncs];
        self.counts.iter().flatten().flat_map(fields)
    }
}

#[derive(Debug)]
struct Metered {
    device: Arc<dyn Device>,
    meter: Arc<Meter>,
    tier: usize,
    cause: Cause,
}

impl Metered {
    fn add(&self, field: usize, number: u64) {
        self.meter.cells[self.tier][self.cause as usize].fields[field].fetch_add(number, Ordering::Relaxed);
    }
}

impl Device for Metered {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.add(READ_OPS, 1);
        self.add(READ_BYTES, buffer.len() as u64);
        self.device.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.add(WRITE_OPS, 1);
        self.add(WRITE_BYTES, bytes.len() as u64);
        self.device.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.add(SYNCS, 1);
        self.device.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.device.reserve(bytes)
    }

    fn view(&self) -> io::Result<Option<View>> {
        self.device.view()
    }

    fn extents(&self) -> Option<Vec<Range<u64>>> {
        self.device.extents()
    }

    fn submit(&self, request: ReadRequest) -> Ticket {
        self.add(READ_OPS, 1);
        self.add(READ_BYTES, request.buffer.len() as u64);
        self.device.submit(request)
    }

    fn submit_write(&self, request: WriteRequest) -> Ticket {
        self.add(WRITE_OPS, 1);
        self.add(WRITE_BYTES, request.bytes as u64);
        self.device.submit_write(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, AlignedBuf, Directory, FileDirectory};

    #[test]
    fn calls_and_bytes_are_counted_where_they_belong() {
        let dir = tempfile::tempdir().unwrap();
        let meter = Meter::new(2);
        let file = FileDirectory::open(dir.path()).unwrap().create("x", Access::Buffered).unwrap();
        let log = meter.attach(file.clone(), 1, Cause::Log);
        log.write_at(&[1; 100], 0).unwrap();
        let request = WriteRequest { buffer: AlignedBuf::zeroed(4096), bytes: 50, offset: 100 };
        log.submit_write(request).wait().unwrap();
        log.sync().unwrap();
        meter.attach(file, 0, Cause::UserRead).read_at(&mut [0; 30], 10).unwrap();
        let counters = meter.snapshot();
        let expected = Count { write_ops: 2, write_bytes: 150, syncs: 1, ..Count::default() };
        assert_eq!(counters.get(1, Cause::Log), expected);
        assert_eq!(counters.total(0), Count { read_ops: 1, read_bytes: 30, ..Count::default() });
        let other = Meter::new(2);
        other.restore(&counters.numbers().collect::<Vec<_>>());
        assert_eq!(other.snapshot(), counters);
    }
}
