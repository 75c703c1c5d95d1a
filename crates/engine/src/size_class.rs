//! Size classes: which slot an object goes to, on media and in memory, by a rule and not by a list.
//!
//! Sixteen classes to each doubling, so that a slot is at most a sixteenth larger than its object, and on average a
//! thirty-second; from [`SLOT_BYTES_MIN`] up without an end. Classes cost nothing while nobody uses them.

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
}
