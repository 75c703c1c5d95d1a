//! Size classes: which slot an object goes to, by a rule and not by a list.
//!
//! Sixteen classes to each doubling, so that a slot is at most a sixteenth larger than its object, and on average a
//! thirty-second; from [`SLOT_BYTES_MIN`] up without an end. Classes cost nothing while nobody uses them. A slab has as many slots of its
//! class as fit its size; an object much larger than that has a slab of its own.

use super::slab::SLOTS_MAX;

/// The smallest slot, in bytes.
pub(crate) const SLOT_BYTES_MIN: u64 = 64;
/// Classes to each doubling.
const STEPS: u64 = 16;

/// Bytes of the slot that an object of so many bytes goes to.
pub(crate) fn slot_bytes(object: u64) -> u64 {
    if object <= SLOT_BYTES_MIN {
        return SLOT_BYTES_MIN;
    }
    // The power of two below: the class of exactly that power is the last of the doubling before.
    let step = (1 << (object - 1).ilog2()) / STEPS;
    object.next_multiple_of(step)
}

/// A slab has at least so many slots, unless it would be larger than it should by as many times.
const SLOTS_MIN: u64 = 4;

/// Slots of such a size in a slab that should take `target` bytes.
pub(crate) fn slots_in(slot_bytes: u64, target: u64) -> u32 {
    let least = if slot_bytes < SLOTS_MIN * target { SLOTS_MIN } else { 1 };
    (target / slot_bytes).clamp(least, u64::from(SLOTS_MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_by_at_most_a_sixteenth() {
        let mut previous = 0;
        for object in 1..100_000 {
            let slot = slot_bytes(object);
            assert!(slot >= object && slot_bytes(slot) == slot, "{object} goes to {slot}");
            assert!(slot == SLOT_BYTES_MIN || slot * 16 <= object * 17, "{object} goes to {slot}");
            assert!(slot >= previous);
            previous = slot;
        }
        assert_eq!(
            [64, 65, 128, 129, 1051, 4096, 4097].map(slot_bytes),
            [64, 68, 128, 136, 1088, 4096, 4352]
        );
        assert_eq!(slot_bytes(64 << 20 | 1), 68 << 20);
    }

    #[test]
    fn an_object_larger_than_a_slab_has_one_to_itself() {
        assert_eq!(
            [64, 1088, 5000, 65_000, 1 << 20].map(|slot| slots_in(slot, 16 << 10)),
            [256, 15, 4, 4, 1]
        );
    }
}
