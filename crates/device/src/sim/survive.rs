//! What a power cut leaves: from a disk's durable state and the ordered list of its pending changes, a new state in
//! which everything is durable.
//!
//! Each pending change survives, or not, or in part, as a [`Survival`] says; those that do are applied in order. Data
//! and lengths are changes of their own: data without its length cannot be seen, a length without its data reads as
//! zeros, and a shorter length zeroes what a later longer one shows again. A torn write is torn at multiples of the
//! sector size in the file; sectors that were not written keep what they held. A directory's changes are applied each
//! for itself; a rename is one change.
//!
//! Cost: one copy of the durable bytes and of what survives.

use super::state::{Change, File, FileId, NameChange, State};
use cuesta_sched::Rng;
use std::collections::BTreeMap;

/// Which of the changes that are pending at a power cut reach the medium. Indexes count in the order in which the
/// changes were made, over all tiers, below [`super::SimDisk::pending_len`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Only what was synced.
    None,
    /// Everything, as if the power had waited for the caches.
    All,
    /// Each change for itself: kept, lost, or (data) torn at 512 bytes, in memory at 8. How much is kept is drawn for
    /// each cut.
    Random,
    /// Just this one.
    Only(usize),
    /// All but this one.
    Without(usize),
    /// All, but of this one only some sectors. A change that is no data, or lies in one sector, is lost.
    Torn {
        /// The change.
        index: usize,
        /// Size of a sector: 512 or 4,096.
        bytes: u64,
        /// The sectors that reach the medium.
        keep: Keep,
    },
}

/// Sectors of a torn write that reach the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The first half, rounded down.
    First,
    /// The last half, rounded down.
    Last,
    /// Every other one, from the first.
    Alternate,
}

/// Where a pending change stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    File(FileId, usize),
    Name(usize, usize),
}

/// What becomes of one change.
#[derive(Clone, Debug)]
enum Fate {
    Kept,
    Lost,
    Torn { sector_bytes: u64, kept: Vec<bool> },
}

impl State {
    /// All changes that could matter after a cut, in the order in which they were made.
    fn pending(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (&id, file) in self.files.iter().filter(|(_, file)| !file.pending.is_empty()) {
            if self.may_survive(id) {
                let of_file = file.pending.iter().enumerate();
                places.extend(of_file.map(|(index, pending)| (pending.number, Place::File(id, index))));
            }
        }
        for (tier, names) in self.tiers.iter().enumerate() {
            let of_tier = names.pending.iter().enumerate();
            places.extend(of_tier.map(|(index, pending)| (pending.number, Place::Name(tier, index))));
        }
        places.sort_unstable_by_key(|(number, _)| *number);
        places.into_iter().map(|(_, place)| place).collect()
    }

    pub(super) fn pending_len(&self) -> usize {
        self.pending().len()
    }

    fn data(&self, place: Place) -> Option<(u64, &[u8])> {
        match place {
            Place::File(id, index) => match &self.files.get(&id)?.pending[index].change {
                Change::Data { offset, bytes } => Some((*offset, bytes)),
                Change::Len(_) => None,
            },
            Place::Name(..) => None,
        }
    }

    /// What a cut does not tear of this change.
    fn unit_bytes(&self, place: Place) -> u64 {
        match place {
            Place::File(id, _) => self.files[&id].unit_bytes,
            Place::Name(..) => 1,
        }
    }

    pub(super) fn describe_pending(&self) -> Vec<String> {
        let describe = |place: &Place| match *place {
            Place::File(id, index) => {
                let file = &self.files[&id];
                let what = match &file.pending[index].change {
                    Change::Data { offset, bytes } => format!("write {} at {offset}", bytes.len()),
                    Change::Len(len) => format!("length {len}"),
                };
                format!("tier {} {}: {what}", file.tier, file.name)
            }
            Place::Name(tier, index) => {
                let what = match &self.tiers[tier].pending[index].change {
                    NameChange::Create { name, .. } => format!("create {name}"),
                    NameChange::Remove { name, .. } => format!("remove {name}"),
                    NameChange::Rename { from, to, .. } => format!("rename {from} to {to}"),
                };
                format!("tier {tier}: {what}")
            }
        };
        self.pending().iter().map(describe).collect()
    }

    /// The state after a power cut now.
    pub(super) fn after_cut(&self, survival: Survival, rng: &mut Rng) -> Self {
        let mut images: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
        let mut lengths: BTreeMap<FileId, u64> = BTreeMap::new();
        let mut names: Vec<_> = self.tiers.iter().map(|tier| tier.durable.clone()).collect();
        // Out of four; a cut that loses nearly all or nearly nothing finds other faults than an even one.
        let keep_in_four = rng.below(5);
        for (index, place) in self.pending().into_iter().enumerate() {
            let fate = survival.fate(index, self.data(place), self.unit_bytes(place), keep_in_four, rng);
            match place {
                _ if matches!(fate, Fate::Lost) => {}
                Place::Name(tier, index) => self.tiers[tier].pending[index].change.apply(&mut names[tier]),
                Place::File(id, index) => {
                    let file = &self.files[&id];
                    let image = images.entry(id).or_insert_with(|| file.durable.clone());
                    match &file.pending[index].change {
                        Change::Data { offset, bytes } => fate.write(image, bytes, *offset),
                        Change::Len(len) => {
                            image.truncate(*len as usize);
                            lengths.insert(id, *len);
                        }
                    }
                }
            }
        }
        self.with(names, |id, file| {
            let mut image = images.remove(&id).unwrap_or_else(|| file.durable.clone());
            image.resize(lengths.get(&id).map_or(file.durable.len(), |&len| len as usize), 0);
            image
        })
    }

    /// A state of these names, everything durable.
    fn with(
        &self,
        names: Vec<BTreeMap<String, FileId>>,
        mut bytes: impl FnMut(FileId, &File) -> Vec<u8>,
    ) -> Self {
        let capacities: Vec<_> = self.tiers.iter().map(|tier| tier.capacity).collect();
        let mut state = Self::new(self.config, &capacities);
        for (tier, names) in names.into_iter().enumerate() {
            for (name, old) in names {
                let Some(file) = self.files.get(&old) else { continue };
                let id = state.insert(File::new(tier, &name, bytes(old, file)));
                state.tiers[tier].entries.insert(name.clone(), id);
                state.tiers[tier].durable.insert(name, id);
            }
        }
        state
    }
}

impl Survival {
    fn fate(
        self,
        index: usize,
        data: Option<(u64, &[u8])>,
        unit_bytes: u64,
        keep_in_four: u64,
        rng: &mut Rng,
    ) -> Fate {
        let kept = match self {
            Self::None => false,
            Self::All => true,
            Self::Only(only) => index == only,
            Self::Without(lost) => index != lost,
            Self::Torn { index: torn, bytes, keep } if index == torn => {
                return data.map_or(Fate::Lost, |data| keep.fate(sectors(data, bytes), bytes));
            }
            Self::Torn { .. } => true,
            Self::Random => {
                let kept = rng.below(4) < keep_in_four;
                let torn = rng.one_in(2);
                match data {
                    Some(data) if !kept && torn => {
                        let count = sectors(data, unit_bytes);
                        let kept = (0..count).map(|_| rng.one_in(2)).collect();
                        return Fate::Torn { sector_bytes: unit_bytes, kept };
                    }
                    _ => kept,
                }
            }
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }
}

/// How many sectors a write touches.
fn sectors((offset, bytes): (u64, &[u8]), sector_bytes: u64) -> usize {
    ((offset + bytes.len() as u64).div_ceil(sector_bytes) - offset / sector_bytes) as usize
}

impl Keep {
    fn fate(self, count: usize, sector_bytes: u64) -> Fate {
        if count < 2 {
            return Fate::Lost;
        }
        let is_kept = |sector: usize| match self {
            Self::First => sector < count / 2,
            Self::Last => sector >= count - count / 2,
            Self::Alternate => sector.is_multiple_of(2),
        };
        Fate::Torn { sector_bytes, kept: (0..count).map(is_kept).collect() }
    }
}

impl Fate {
    /// Puts what survives of a write into `image`, growing it where needed.
    fn write(&self, image: &mut Vec<u8>, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        image.resize(image.len().max(end as usize), 0);
        let mut put = |from: u64, to: u64| {
            let source = &bytes[(from - offset) as usize..(to - offset) as usize];
            image[from as usize..to as usize].copy_from_slice(source);
        };
        match self {
            Self::Lost => {}
            Self::Kept => put(offset, end),
            Self::Torn { sector_bytes, kept } => {
                let first = offset / sector_bytes;
                for (index, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                    let start = (first + index as u64) * sector_bytes;
                    put(start.max(offset), (start + sector_bytes).min(end));
                }
            }
        }
    }
}
