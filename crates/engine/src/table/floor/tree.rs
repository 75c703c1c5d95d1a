//! The cascading search (NVLSM, section 4.3 and Algorithm 1, with the cases at both ends of a floor that it leaves
//! out).
//!
//! In each floor the search finds where the target would stand, between the neighbour before it, `p`, and the one at or
//! behind it, `s`. A floor with the key in `s` has the answer: newest on top. Else `p`'s pointer says where to go on:
//! it names the highest floor below that has anything at or behind `p`. The floors that it leaves out end before `p`,
//! and so before the target; and in the floor that it names everything before the entry that it names lies before `p`.
//! So the search goes on from there, and mostly ends there. Without a `p` nothing is known but that the target lies
//! before the whole of this floor; then the next floor is searched from its first entry to where `s` points, or to its
//! end. A floor that lies behind all of the tree so far is such a case: the paper gives it a minimum key that points
//! below, here it is this rule.

use super::{Floor, Pointer};
use crate::error::{Error, Result};
use crate::key::Trailer;
use crate::planted::{self, Bug};
use std::ops::Range;
use std::sync::Arc;

/// Floors that point into those below them, all in one memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The bottom first: a floor's slot is its place here.
    floors: Vec<Arc<Floor>>,
}

/// A version of a key, found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit<'a> {
    pub(crate) trailer: Trailer,
    pub(crate) value: &'a [u8],
}

/// What one floor of a tree has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFloor {
    /// The table that it is.
    pub(crate) table: u64,
    /// Its filter says that the key is not there, so nothing was looked for.
    pub(crate) excluded: bool,
    /// Versions, newest first, with the bytes of their values.
    pub(crate) versions: Vec<(Trailer, u64)>,
}

/// A search on its way down.
struct Cascade<'a> {
    floors: &'a [Arc<Floor>],
    key: &'a [u8],
    trailer: Trailer,
    /// The floor to be searched, and which of its entries may be the first at or behind the target; and whether it is
    /// thought to be near the first of these.
    next: Option<(usize, Range<u32>, bool)>,
}

impl Tree {
    /// A tree of these floors, the bottom first.
    ///
    /// # Errors
    /// `Corrupt` when they were not made to lie on each other.
    pub(crate) fn new(floors: Vec<Arc<Floor>>) -> Result<Self> {
        let mut below = 0;
        for (slot, floor) in floors.iter().enumerate() {
            let shape = &floor.shape;
            if usize::from(shape.slot) != slot || shape.below != below {
                let why = format!(
                    "floor {} was made to lie on {} others, the first of them {}; here it lies on {slot}, the first of them {below}",
                    floor.number, shape.slot, shape.below
                );
                return Err(floor.meta.corrupt(0, why));
            }
            below = floor.number;
        }
        Ok(Self { floors })
    }

    /// `floor` on top of a tree.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub(crate) fn on(below: Option<&Self>, floor: Arc<Floor>) -> Result<Self> {
        let below = below.map_or(&[][..], |tree| &tree.floors);
        Self::new(below.iter().cloned().chain([floor]).collect())
    }

    pub(crate) fn floors(&self) -> &[Arc<Floor>] {
        &self.floors
    }

    /// The last key of all floors.
    pub(crate) fn largest_key(&self) -> &[u8] {
        let keys = self.floors.iter().map(|floor| floor.properties.largest_key.as_slice());
        keys.max().unwrap_or_default()
    }

    /// Memory that is held for the topmost floor.
    pub(crate) fn held_bytes(&self) -> usize {
        self.floors.last().map_or(0, |floor| floor.held_bytes()) + size_of_val(&self.floors[..])
    }

    /// Whether some floor may have `key`, by their filters.
    pub(crate) fn may_contain(&self, key: &[u8]) -> Result<bool> {
        let may = self.floors.iter().map(|floor| floor.may_contain(key));
        let found = may.into_iter().find(|may| !matches!(may, Ok(false)));
        self.check_memory().and(found.unwrap_or(Ok(false)))
    }

    /// Which share of the bytes that entries take is of those from one place on and before another; all of one side for
    /// `None`.
    pub(crate) fn share_between(
        &self,
        from: Option<(&[u8], Trailer)>,
        to: Option<(&[u8], Trailer)>,
    ) -> Result<f64> {
        let (mut seats, mut all) = (Vec::new(), 0);
        let mut before = |place: Option<(&[u8], Trailer)>, otherwise: u32| -> Result<u64> {
            match place {
                Some((key, trailer)) => self.seats(key, trailer, &mut seats)?,
                None => {
                    seats.clear();
                    seats.extend(self.floors.iter().map(|floor| floor.entries.min(otherwise)));
                }
            }
            self.floors.iter().zip(&seats).map(|(floor, seat)| floor.bytes_before(*seat)).sum()
        };
        let (start, end) = (before(from, 0)?, before(to, u32::MAX)?);
        for floor in &self.floors {
            all += floor.bytes_before(floor.entries)?;
        }
        self.check_memory()?;
        Ok(end.saturating_sub(start) as f64 / all.max(1) as f64)
    }

    /// From the floor at `slot` down.
    fn cascade<'a>(&'a self, slot: usize, key: &'a [u8], trailer: Trailer) -> Cascade<'a> {
        let next = self.floors.get(slot).map(|floor| (slot, 0..floor.entries, false));
        Cascade { floors: &self.floors, key, trailer, next }
    }

    /// What `take` makes of the newest version of `key` at or after `bound` in the order of versions.
    ///
    /// # Errors
    /// `Corrupt` with file and offset; `Io` when the memory was lost before `take` was done with it.
    pub(crate) fn get<R>(
        &self,
        key: &[u8],
        bound: Trailer,
        take: impl FnOnce(Hit<'_>) -> R,
    ) -> Result<Option<R>> {
        let taken = self.find(key, bound).map(|hit| hit.map(take));
        // What was found is worth something only if it was there; damage may be zeros in place of what was lost.
        self.check_memory().and(taken)
    }

    /// Whether all that was read so far was there.
    pub(super) fn check_memory(&self) -> Result<()> {
        self.floors.first().map_or(Ok(()), |floor| floor.meta.check_memory())
    }

    fn find(&self, key: &[u8], bound: Trailer) -> Result<Option<Hit<'_>>> {
        // The first floor from `slot` down whose filter does not deny the key.
        let first_of = |mut slot: usize| -> Result<Option<usize>> {
            while let Some(below) = slot.checked_sub(1) {
                if self.floors[below].may_contain(key)? {
                    return Ok(Some(below));
                }
                slot = below;
            }
            Ok(None)
        };
        let Some(mut wanted) = first_of(self.floors.len())? else { return Ok(None) };
        let mut cascade = self.cascade(wanted, key, bound);
        while let Some((slot, at)) = cascade.step()? {
            let floor = &self.floors[slot];
            let is_passed = slot > 0 && planted::has(Bug::OlderFloorAnswers);
            if at < floor.entries && floor.has_key(at, key)? && !is_passed {
                let head = floor.head(at)?;
                let value = floor.value(floor.value_range(&head)?);
                return Ok(Some(Hit { trailer: head.trailer, value }));
            }
            // Floors that the filters deny are on the way, but where none is left the way ends.
            if slot <= wanted {
                match first_of(slot)? {
                    Some(below) => wanted = below,
                    None => return Ok(None),
                }
            }
        }
        Ok(None)
    }

    /// What each floor has of `key`, from the top.
    pub(crate) fn versions_by_floor(&self, key: &[u8]) -> Result<Vec<InFloor>> {
        let (mut seats, mut found) = (Vec::new(), Vec::new());
        self.seats(key, Trailer::FIRST, &mut seats)?;
        for (floor, seat) in self.floors.iter().zip(seats).rev() {
            let excluded = !floor.may_contain(key)?;
            let mut versions = Vec::new();
            for at in seat..if excluded { seat } else { floor.entries } {
                if !floor.has_key(at, key)? {
                    break;
                }
                let head = floor.head(at)?;
                versions.push((head.trailer, u64::from(head.value_bytes)));
            }
            found.push(InFloor { table: floor.number, excluded, versions });
        }
        self.check_memory()?;
        Ok(found)
    }

    /// Where the first entry at or behind the target lies in each floor; its number of entries for none.
    pub(super) fn seats(&self, key: &[u8], trailer: Trailer, seats: &mut Vec<u32>) -> Result<()> {
        seats.clear();
        seats.extend(self.floors.iter().map(|floor| floor.entries));
        let mut cascade = self.cascade(self.floors.len().wrapping_sub(1), key, trailer);
        while let Some((slot, at)) = cascade.step()? {
            seats[slot] = at;
        }
        Ok(())
    }
}

impl Cascade<'_> {
    /// Searches the next floor: which it is, and its first entry at or behind the target. The floors in between, and
    /// below the last, have none.
    fn step(&mut self) -> Result<Option<(usize, u32)>> {
        let Some((slot, range, is_near)) = self.next.take() else { return Ok(None) };
        let floor = &self.floors[slot];
        let at = match is_near {
            true => floor.lower_bound_near(self.key, self.trailer, range)?,
            false => floor.lower_bound(self.key, self.trailer, range)?,
        };
        self.next = match at.checked_sub(1) {
            Some(before) => match floor.pointer(before)? {
                Some(pointer) if planted::has(Bug::FloorLeftOut) && pointer.slot > 0 => {
                    let below = usize::from(pointer.slot) - 1;
                    Some((below, 0..self.floors[below].entries, false))
                }
                Some(pointer) => {
                    let entries = check(self.floors, slot, pointer)?;
                    Some((usize::from(pointer.slot), pointer.at..entries, true))
                }
                None => None,
            },
            None if planted::has(Bug::MinimumLeftOut) => None,
            None => match slot.checked_sub(1) {
                Some(below) => {
                    let pointer = if at < floor.entries { floor.pointer(at)? } else { None };
                    let ends_at = pointer.filter(|pointer| usize::from(pointer.slot) == below);
                    let entries = self.floors[below].entries;
                    Some((below, 0..ends_at.map_or(entries, |pointer| pointer.at.min(entries)), false))
                }
                None => None,
            },
        };
        Ok(Some((slot, at)))
    }
}

/// The number of entries of the floor that a pointer out of floor `slot` leads to.
pub(super) fn check(floors: &[Arc<Floor>], slot: usize, pointer: Pointer) -> Result<u32> {
    let lower = floors[..slot].get(usize::from(pointer.slot));
    match lower.map(|floor| floor.entries).filter(|entries| pointer.at < *entries) {
        Some(entries) => Ok(entries),
        None => Err(Error::corrupt(
            floors[slot].meta.place.file.to_string(),
            0,
            format!("a pointer to entry {} of floor {}, which there is not", pointer.at, pointer.slot),
        )),
    }
}
