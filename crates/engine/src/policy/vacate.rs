//! Which slabs are vacated: what is left in them moves to free slots of others of their class, so that their room may
//! serve objects of another size, or indexes of tables.
//!
//! Demotions free slots here and there, and hardly ever a whole slab; and a slab serves one size. So a store whose
//! objects change in size would have free slots that nobody wants, and to make one slab of another class everything
//! would have to go down (slab allocators of caches know this as calcification). To move an object costs a read and a
//! write on the fast tier, and its heat stays.
//!
//! A slab is worth it only where its class can spare the slots: others are to have [`SPARE`] times as many free ones as
//! move, so that one class does not take from another what that wants back at once. What has least to move for its size
//! goes first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The slabs that stay are to have so many times as many free slots of the class as are moved.
const SPARE: u64 = 2;

/// What is told of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabView {
    pub(crate) number: u64,
    pub(crate) slot_bytes: u64,
    pub(crate) slots: u32,
    /// Slots that hold something.
    pub(crate) live: u32,
    /// Slots that could be given out.
    pub(crate) free: u32,
}

impl SlabView {
    /// By what share of it would have to move.
    fn fill(&self, other: &Self) -> Ordering {
        let shares = u64::from(self.live) * u64::from(other.slots);
        shares.cmp(&(u64::from(other.live) * u64::from(self.slots)))
    }
}

/// The slabs to vacate, and in which order, so that so many bytes become free; none of them is begun once `most` bytes
/// move. One at least, if any is worth it. In O(n log n).
pub(crate) fn to_vacate(slabs: &[SlabView], wanted: u64, most: u64) -> Vec<u64> {
    let mut free: BTreeMap<u64, u64> = BTreeMap::new();
    for slab in slabs {
        *free.entry(slab.slot_bytes).or_default() += u64::from(slab.free);
    }
    let mut by_fill: Vec<&SlabView> = slabs.iter().filter(|slab| slab.live > 0).collect();
    by_fill.sort_by(|a, b| a.fill(b).then_with(|| a.number.cmp(&b.number)));
    let (mut chosen, mut gains, mut moves) = (Vec::new(), 0, 0);
    for slab in by_fill {
        if gains >= wanted || moves >= most {
            break;
        }
        let Some(of_class) = free.get_mut(&slab.slot_bytes) else { continue };
        let (live, others) = (u64::from(slab.live), of_class.saturating_sub(slab.free.into()));
        if others >= SPARE * live {
            *of_class = others - live;
            gains += u64::from(slab.slots) * slab.slot_bytes;
            moves += live * slab.slot_bytes;
            chosen.push(slab.number);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab(number: u64, slot_bytes: u64, live: u32, free: u32) -> SlabView {
        SlabView { number, slot_bytes, slots: 10, live, free }
    }

    #[test]
    fn the_emptiest_go_while_their_class_can_spare_the_slots() {
        let slabs = [
            slab(1, 100, 9, 1),
            slab(2, 100, 2, 8),
            slab(3, 100, 3, 7),
            slab(4, 100, 8, 2),
            slab(5, 200, 1, 9),
            slab(6, 100, 0, 10),
        ];
        // The one alone in its class has nowhere to go; after these two others have six free ones, too few for eight.
        assert_eq!(to_vacate(&slabs, u64::MAX, u64::MAX), [2, 3]);
        // As many as are wanted, or as may move.
        assert_eq!(to_vacate(&slabs, 1000, u64::MAX), [2]);
        assert_eq!(to_vacate(&slabs, 1001, u64::MAX), [2, 3]);
        assert_eq!(to_vacate(&slabs, u64::MAX, 200), [2]);
        assert_eq!(to_vacate(&slabs, 0, u64::MAX), [] as [u64; 0]);
        assert_eq!(to_vacate(&slabs[..2], u64::MAX, u64::MAX), [] as [u64; 0]);
    }
}
