//! Row 17: bytes that somebody made up. Checksums find damage, not malice and not the mistakes of a later writer; so
//! here they are always right (they are planted to be zero), and everything behind them must hold by itself: a store is
//! opened, read, verified and closed on files that were changed at will, and may only answer or refuse. No panic, no
//! endless loop.
//!
//! [`feed`] makes changes out of any bytes: cases draw these by their seed, the targets in `fuzz/` let libFuzzer find
//! them.

use crate::fixture::{Kind, Shared, contents, kind, options, world};
use cuesta::{Db, Durability, MEMORY_NAME, Options};
use cuesta_device::sim::{SimConfig, SimDisk};
use cuesta_sched::{Rng, Sched};

/// Which files are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Records of batches.
    Log,
    /// Records of edits.
    Manifest,
    /// Tiers' superblocks.
    Superblock,
    /// Data parts of tables.
    Data,
    /// Meta parts of tables.
    Meta,
    /// Slabs of the store below the memtable, in profiles that have one.
    Slab,
    /// Images of that store.
    Image,
    /// Floors, in persistent memory.
    Floor,
    /// All of them.
    Store,
}

impl Format {
    /// Every one; an input kept in `crates/sim/hostile` begins with its name.
    pub const ALL: [Self; 9] = [
        Self::Log,
        Self::Manifest,
        Self::Superblock,
        Self::Data,
        Self::Meta,
        Self::Slab,
        Self::Image,
        Self::Floor,
        Self::Store,
    ];

    /// The kind of stores that has such files; `None` where all have.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self::Slab | Self::Image => Some(Kind::PrismDb),
            Self::Floor => Some(Kind::NvLsm),
            _ => None,
        }
    }

    /// Whether stores of the present kind have such files.
    fn is_there(self) -> bool {
        let of_blocks = matches!(self, Self::Data | Self::Meta);
        let like = if kind() == Kind::PrismDbLogFree { Kind::PrismDb } else { kind() };
        self.kind().is_none_or(|of| of == like) && !(of_blocks && kind() == Kind::NvLsm)
    }

    fn includes(self, name: &str) -> bool {
        match self {
            Self::Log => name.starts_with("log-"),
            Self::Manifest => name.starts_with("manifest-"),
            Self::Superblock => name == "CUESTA",
            Self::Data => name.starts_with("data-"),
            Self::Meta => name.starts_with("meta-"),
            Self::Slab => name.starts_with("slab-"),
            Self::Image => name.starts_with("image-"),
            Self::Floor => name == MEMORY_NAME,
            Self::Store => true,
        }
    }
}

/// Longest file that a change may make.
const BYTES_MAX: usize = 1 << 20;
/// Of persistent memory.
const MEMORY_BYTES: u64 = 4 << 20;
/// Changes of persistent memory go to sectors that hold something.
const SECTOR_BYTES: usize = 512;
/// Changes taken out of one input.
const CHANGES_MAX: usize = 16;

fn small() -> Options {
    let mut options = Options { block_bytes: 512, ..options(3, Durability::Os) };
    // It is copied for each change.
    for tier in options.tiers.iter_mut().filter(|tier| tier.persistent_memory) {
        tier.capacity_bytes = MEMORY_BYTES;
    }
    options
}

/// A store closed cleanly, and one killed with a log to be replayed; made without checksums.
fn bases() -> &'static [SimDisk; 2] {
    static BASES: Shared<[SimDisk; 2]> = Shared::new();
    BASES.get_or_init(|| {
        let sched = Sched::simulated(5);
        let disk = SimDisk::new(&sched, 2, SimConfig::default());
        let live = |last: &dyn Fn(Db) -> SimDisk| {
            sched.run(|| {
                let open = || -> cuesta::Result<Db> {
                    let db = Db::open_in(&small(), world(&sched, &disk, &small()))?;
                    let space = db.create_keyspace("space").or_else(|_| db.create_keyspace("again"))?;
                    for round in 0..2u8 {
                        for i in 0..40 {
                            db.put(format!("key{:03}", i * (round + 1)), vec![i; 60])?;
                        }
                        db.delete(format!("key{:03}", round * 7))?;
                        space.put(b"in", b"side")?;
                        db.flush()?;
                    }
                    for i in 0..20u8 {
                        db.put(format!("late{i}"), vec![i; 30])?;
                    }
                    Ok(db)
                };
                last(open().unwrap_or_else(|error| panic!("a sound store: {error}")))
            })
        };
        let closed = live(&|db| {
            db.close().unwrap_or_else(|error| panic!("a sound store: {error}"));
            disk.kill()
        });
        let killed = live(&|db| {
            let left = disk.kill();
            drop(db);
            left
        });
        [closed, killed]
    })
}

/// Takes numbers out of an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take(1).map(|bytes| usize::from(bytes[0]))
    }

    /// A number below `limit`, of three bytes.
    fn below(&mut self, limit: usize) -> Option<usize> {
        let bytes = self.take(3)?;
        Some(
            (usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16) % limit.max(1),
        )
    }
}

/// Where in a file changes may be.
enum Places {
    Anywhere(usize),
    Sectors(Vec<usize>),
}

impl Places {
    fn of(name: &str, bytes: &[u8]) -> Self {
        if name != MEMORY_NAME {
            return Self::Anywhere(bytes.len());
        }
        let sectors = bytes.chunks_exact(SECTOR_BYTES).enumerate();
        let used = sectors.filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        Self::Sectors(used.map(|(i, _)| i * SECTOR_BYTES).collect())
    }

    fn draw(&self, input: &mut Input<'_>) -> Option<usize> {
        match self {
            Self::Anywhere(bytes) => input.below(*bytes),
            Self::Sectors(sectors) => {
                let drawn = input.below(sectors.len() * SECTOR_BYTES)?;
                sectors.get(drawn / SECTOR_BYTES).map(|sector| sector + drawn % SECTOR_BYTES)
            }
        }
    }
}

/// One change of the files that an input stands for; `None` at its end.
fn change(disk: &SimDisk, format: Format, input: &mut Input<'_>) -> Option<()> {
    let mut files = Vec::new();
    for tier in 0..disk.tiers() {
        let names = disk.files(tier).into_iter().map(|file| (tier, file.name));
        files.extend(names.filter(|(_, name)| format.includes(name)));
    }
    let (kind, which) = (input.byte()?, input.byte()?);
    let (tier, name) = files.get(which % files.len().max(1))?;
    let mut bytes = disk.read_file(*tier, name);
    let places = Places::of(name, &bytes);
    match if bytes.is_empty() { 4 } else { kind % 5 } {
        // Bytes of the input, in place.
        0 | 1 => {
            let (at, len) = (places.draw(input)?, input.byte()? % 32);
            let new = input.take(len)?;
            let end = (at + len).min(bytes.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        // Bytes of the file, elsewhere.
        2 => {
            let (from, to, len) = (places.draw(input)?, places.draw(input)?, input.below(4096)?);
            let len = len.min(bytes.len() - from.max(to));
            bytes.copy_within(from..from + len, to);
        }
        // A number, little-endian, one step aside.
        3 => {
            let (at, step) = (places.draw(input)?, input.byte()?);
            bytes[at] = bytes[at].wrapping_add([1, 255, 128, 16][step % 4]);
        }
        _ => bytes.resize(input.below(BYTES_MAX.min(bytes.len() * 2 + 4096))?, 0),
    }
    disk.write_file(*tier, name, &bytes);
    Some(())
}

/// Opens, reads, verifies and closes a store whose files were changed as `input` says. Wants
/// [`ChecksumsSkipped`](crate::planted::Bug::ChecksumsSkipped) awake from the first call on.
///
/// # Panics
/// When the store does: that is what it looks for.
pub fn feed(format: Format, input: &[u8]) {
    let mut input = Input(input);
    let base = input.byte().unwrap_or(0) % 2;
    let sched = Sched::simulated(6);
    let disk = bases()[base].kill().on(&sched);
    for _ in 0..CHANGES_MAX {
        if change(&disk, format, &mut input).is_none() {
            break;
        }
    }
    sched.run(|| {
        drop(cuesta::verify_in(&small(), world(&sched, &disk, &small()), &mut |_| {}));
        let Ok(db) = Db::open_in(&small(), world(&sched, &disk, &small())) else { return };
        for i in 0..10 {
            drop(db.get(format!("key{:03}", i * 4)));
        }
        drop(contents(&db));
        drop(db.scan(..).map(|scan| scan.rev().take(100).count()));
        drop(db.put(b"key", b"value"));
        drop(db.flush());
        drop(db.close());
    });
}

pub(super) fn case(seed: u64) -> Result<u64, String> {
    let formats: Vec<Format> = Format::ALL.into_iter().filter(|format| format.is_there()).collect();
    let format = formats[(seed % formats.len() as u64) as usize];
    let mut rng = Rng::new(seed ^ 0x0bad);
    let mut input = vec![rng.below(2) as u8];
    for _ in 0..1 + rng.below(4) {
        input.extend([rng.below(5) as u8, rng.below(256) as u8]);
        for _ in 0..40 {
            input.push([rng.below(256) as u8, 0, 0xff, 0x7f, 0x80, 1][rng.below(6) as usize]);
        }
    }
    feed(format, &input);
    Ok(1)
}
