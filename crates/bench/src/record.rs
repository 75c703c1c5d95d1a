//! Keys and values of records.
//!
//! A key is `user` and the scattered record number in 19 digits: 23 bytes, as in YCSB. A value is the record's
//! number, a version, pseudo-random bytes that no compression shrinks, and a checksum.

use crate::distribution::fnv64;
use cuesta_sched::Rng;

/// Bytes of a key.
pub const KEY_BYTES: u64 = 23;
/// Number, version and checksum.
const FIXED_BYTES: usize = 24;

/// The key of a record, scattered over the key space.
pub fn key_of(record: u64) -> [u8; 23] {
    key_of_number(fnv64(record) >> 1)
}

/// The key of a record, in the order of the records.
pub fn ordered_key_of(record: u64) -> [u8; 23] {
    key_of_number(record)
}

fn key_of_number(mut number: u64) -> [u8; 23] {
    let mut key = *b"user0000000000000000000";
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

/// A value of `bytes` bytes (24 at least) for a record; other versions have other bytes.
pub fn value_of(record: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes.max(FIXED_BYTES));
    value.extend_from_slice(&record.to_le_bytes());
    value.extend_from_slice(&version.to_le_bytes());
    let mut rng = Rng::new(fnv64(record) ^ version);
    while value.len() + 8 < bytes {
        let word = rng.next_u64().to_le_bytes();
        let room = (bytes - 8 - value.len()).min(8);
        value.extend_from_slice(&word[..room]);
    }
    let sum = checksum(&value);
    value.extend_from_slice(&sum.to_le_bytes());
    value
}

/// Whether `value` is one that [`value_of`] made for `record`.
pub fn check_value(record: u64, value: &[u8]) -> bool {
    let Some((body, sum)) = value.split_last_chunk::<8>() else { return false };
    body.starts_with(&record.to_le_bytes()) && checksum(body).to_le_bytes() == *sum
}

fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_their_record_and_of_no_other() {
        for bytes in [0, 24, 25, 100, 1000] {
            let value = value_of(7, 3, bytes);
            assert_eq!(value.len(), bytes.max(FIXED_BYTES));
            assert!(check_value(7, &value) && !check_value(8, &value));
            let mut damaged = value.clone();
            damaged[20] ^= 1;
            assert!(!check_value(7, &damaged));
        }
        assert_ne!(value_of(7, 3, 100), value_of(7, 4, 100));
    }

    #[test]
    fn keys_have_the_form_of_ycsb() {
        let key = key_of(42);
        assert!(key.starts_with(b"user") && key[4..].iter().all(u8::is_ascii_digit));
        assert_ne!(key_of(1), key_of(2));
        assert!(ordered_key_of(9) < ordered_key_of(10) && key_of(9).len() == ordered_key_of(9).len());
    }
}
