//! The superblock: which store a tier belongs to, and on the first tier where the manifest is
//! (`docs/format/superblock.md`).
//!
//! A file of two slots of 4,096 bytes with the same content; a write fills and syncs one after the other, so at any
//! moment one of them is whole, and damage to one leaves the other. The slot with the higher generation counts.
//!
//! The epoch binds the tiers: each open raises it on all of them, the first tier before and after the others
//! ([`Phase::Opening`], then [`Phase::Open`]). A tier that was replaced, forgotten or restored from an older copy
//! has another epoch than the first tier says, and is refused.

use crate::error::{Error, ErrorKind, Result};
use crate::format::file::{FORMAT_VERSION, SUPERBLOCK_NAME};
use crate::format::{Decode, FileId, FileKind, Malformed, Place, Position, Reader, StoreId};
use cuesta_device::{Access, Device, Directory, read_what_can_be};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 4096;
const SLOTS: usize = 2;
/// Bytes of a slot that say something; the rest is zero.
const SLOT_USED_BYTES: usize = 100;
const MAGIC: &[u8; 8] = b"CUESTASB";

/// How far the last open got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The store is being made; the tier holds nothing yet.
    Creating = 1,
    /// The other tiers are being raised to this epoch.
    Opening = 2,
    /// All tiers are at this epoch.
    Open = 3,
    /// Closed cleanly: everything before the two ends is on media.
    Closed = 4,
}

/// What a tier says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) store: StoreId,
    /// Which tier of how many.
    pub(crate) tier: u32,
    pub(crate) tiers: u32,
    pub(crate) epoch: u64,
    pub(crate) phase: Phase,
    /// Raised by every write of the superblock.
    pub(crate) generation: u64,
    /// First tier only: number of the manifest.
    pub(crate) manifest: u64,
    /// First tier, closed cleanly: where manifest and log end.
    pub(crate) manifest_end: Position,
    pub(crate) log_end: Position,
}

impl Superblock {
    /// The superblock of a tier of a store in the making.
    pub(crate) fn new(store: StoreId, tier: u32, tiers: u32) -> Self {
        let nowhere = Position::default();
        Self {
            store,
            tier,
            tiers,
            epoch: 0,
            phase: Phase::Creating,
            generation: 0,
            manifest: 0,
            manifest_end: nowhere,
            log_end: nowhere,
        }
    }

    fn encode(&self, slot: usize) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12] = self.phase as u8;
        out[16..32].copy_from_slice(&self.store.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.tier.to_le_bytes());
        out[36..40].copy_from_slice(&self.tiers.to_le_bytes());
        let numbers = [
            self.epoch,
            self.generation,
            self.manifest,
            self.manifest_end.file,
            self.manifest_end.offset,
            self.log_end.file,
            self.log_end.offset,
        ];
        for (at, number) in (40..).step_by(8).zip(numbers) {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = self.place(slot).checksum(&[&out[..96]]);
        out[96..SLOT_USED_BYTES].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn place(&self, slot: usize) -> Place {
        let file = FileId::new(FileKind::Superblock, 0);
        Place { store: self.store, file, offset: (slot * SLOT_BYTES) as u64 }
    }

    fn decode(bytes: &[u8], slot: usize) -> Decode<Self> {
        let mut reader = Reader::new(bytes);
        if reader.take(8)? != MAGIC {
            return Err(Malformed::new("its magic is missing"));
        }
        let version = reader.u32()?;
        if version != FORMAT_VERSION {
            return Err(Malformed(format!("format {version}; this version reads format {FORMAT_VERSION}")));
        }
        let phase = reader.u8()?;
        let phases = [Phase::Creating, Phase::Opening, Phase::Open, Phase::Closed];
        let Some(phase) = phases.into_iter().find(|known| *known as u8 == phase) else {
            return Err(Malformed(format!("phase {phase} is not known")));
        };
        reader.take(3)?;
        let store = StoreId(reader.u128()?);
        let (tier, tiers) = (reader.u32()?, reader.u32()?);
        let (epoch, generation, manifest) =
            (reader.fixed_number()?, reader.fixed_number()?, reader.fixed_number()?);
        let manifest_end = Position { file: reader.fixed_number()?, offset: reader.fixed_number()? };
        let log_end = Position { file: reader.fixed_number()?, offset: reader.fixed_number()? };
        let found = Self { store, tier, tiers, epoch, phase, generation, manifest, manifest_end, log_end };
        match found.encode(slot) == bytes {
            true => Ok(found),
            false => Err(Malformed::new("its checksum does not match")),
        }
    }

    /// Writes both slots, each durable before the next begins, and the name if it is new.
    pub(crate) fn write(&self, directory: &dyn Directory) -> Result<()> {
        let fail = |source| Error::io(format!("write {SUPERBLOCK_NAME} in {}", directory.place()), source);
        let (device, new) = match directory.open(SUPERBLOCK_NAME, Access::Buffered) {
            Ok(device) => (device, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (directory.create(SUPERBLOCK_NAME, Access::Buffered).map_err(fail)?, true)
            }
            Err(error) => return Err(fail(error)),
        };
        for slot in 0..SLOTS {
            device.write_at(&self.encode(slot), (slot * SLOT_BYTES) as u64).map_err(fail)?;
            device.sync().map_err(fail)?;
        }
        match new {
            true => directory.sync().map_err(fail),
            false => Ok(()),
        }
    }

    /// Reads a tier's superblock; `None` when it has none, or one whose making was cut short.
    ///
    /// # Errors
    /// `Corrupt` when neither slot is whole though bytes are there; `Unsupported` for another format.
    pub(crate) fn read(directory: &dyn Directory) -> Result<Option<Self>> {
        let fail = |source| Error::io(format!("read {SUPERBLOCK_NAME} in {}", directory.place()), source);
        let device = match directory.open(SUPERBLOCK_NAME, Access::Buffered) {
            Ok(device) => device,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let (bytes, unreadable) = read_slots(&device).map_err(fail)?;
        let found = [0, 1].map(|slot| Self::decode(&bytes[slot * SLOT_BYTES..][..SLOT_BYTES], slot));
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        match found {
            [Ok(a), Ok(b)] => Ok(Some(if b.generation > a.generation { b } else { a })),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(Some(one)),
            [Err(_), Err(_)] if !unreadable && bytes.iter().all(|byte| *byte == 0) => Ok(None),
            [Err(why), Err(_)] if &bytes[..8] == MAGIC && version != FORMAT_VERSION => {
                let message = format!("the store in {} is of another format: {why}", directory.place());
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            [Err(why), Err(_)] => {
                let file = format!("{}/{SUPERBLOCK_NAME}", directory.place());
                Err(Error::corrupt(file, 0, format!("neither copy of the superblock is whole: {why}")))
            }
        }
    }

    /// The superblock in words.
    pub(crate) fn describe(bytes: &[u8]) -> Vec<std::result::Result<Self, String>> {
        let slots = bytes.chunks(SLOT_BYTES).take(SLOTS).enumerate();
        slots
            .map(|(slot, bytes)| Self::decode(bytes, slot).map_err(|malformed| malformed.to_string()))
            .collect()
    }
}

impl fmt::Display for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, tier, tiers, epoch, generation, .. } = self;
        write!(f, "tier {tier} of {tiers} of store {store}, epoch {epoch}, generation {generation}, ")?;
        f.write_str(match self.phase {
            Phase::Creating => "being made",
            Phase::Opening => "being opened",
            Phase::Open => "open, or not closed cleanly",
            Phase::Closed => "closed cleanly",
        })?;
        if self.manifest > 0 {
            write!(f, ", {}", FileId::new(FileKind::Manifest, self.manifest))?;
        }
        if self.phase == Phase::Closed {
            let (manifest, log) = (self.manifest_end, self.log_end);
            let file = FileId::new(FileKind::Log, log.file);
            write!(f, " ends at byte {}, {file} at byte {}", manifest.offset, log.offset)?;
        }
        Ok(())
    }
}

/// Both slots, zeros where the file is short: a making that was cut leaves any length. Zeros, too, is a slot that the
/// medium cannot read, which is told: the other one may be whole.
fn read_slots(device: &Arc<dyn Device>) -> io::Result<([u8; SLOTS * SLOT_BYTES], bool)> {
    let mut bytes = [0; SLOTS * SLOT_BYTES];
    let len = device.len()?.min(bytes.len() as u64) as usize;
    let unreadable = read_what_can_be(device.as_ref(), &mut bytes[..len], 0, SLOT_BYTES)?;
    Ok((bytes, !unreadable.is_empty()))
}
