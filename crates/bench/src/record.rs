//! Keys and values of records.
//!
//! A key is `user` and the scattered record number in 19 digits: 23 bytes, as in YCSB; or as [`Keys`] says. A value is
//! the record's number, a version, pseudo-random bytes that no compression shrinks, and a checksum; a short one has
//! three bytes for the number and as many for the checksum.

use crate::distribution::fnv64;
use cuesta_sched::Rng;
use serde::{Deserialize, Serialize};

/// Bytes of YCSB's keys, and of the longest.
pub const KEY_BYTES: u64 = 23;
/// Bytes of a short key.
const SHORT_KEY_BYTES: usize = 16;
/// Number, version and checksum.
const FIXED_BYTES: usize = 24;
/// Least bytes of a value.
pub const VALUE_BYTES_MIN: usize = 8;
/// Number, and checksum, of a value shorter than [`FIXED_BYTES`].
const SHORT_PART_BYTES: usize = 3;

/// What keys are made of records' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// As in YCSB, scattered over the key space.
    #[default]
    Scattered,
    /// The same, in the order of the records.
    Ordered,
    /// Sixteen hexadecimal digits, scattered.
    Short,
}

/// The key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    room: [u8; KEY_BYTES as usize],
    bytes: usize,
}

impl Keys {
    /// Bytes of each.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Scattered | Self::Ordered => KEY_BYTES,
            Self::Short => SHORT_KEY_BYTES as u64,
        }
    }

    /// The key of a record.
    pub fn of(self, record: u64) -> Key {
        match self {
            Self::Scattered => Key::written(b"user", fnv64(record) >> 1, 19, 10),
            Self::Ordered => Key::written(b"user", record, 19, 10),
            Self::Short => Key::written(b"", fnv64(record), SHORT_KEY_BYTES, 16),
        }
    }
}

impl Key {
    /// So many digits behind a word.
    fn written(word: &[u8], mut number: u64, digits: usize, base: u64) -> Self {
        let (mut room, bytes) = ([0; KEY_BYTES as usize], word.len() + digits);
        room[..word.len()].copy_from_slice(word);
        for digit in room[word.len()..bytes].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(number % base) as usize];
            number /= base;
        }
        Self { room, bytes }
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[..self.bytes]
    }
}

/// The key of a record, as in YCSB, scattered over the key space.
pub fn key_of(record: u64) -> Key {
    Keys::Scattered.of(record)
}

/// A value of `bytes` bytes ([`VALUE_BYTES_MIN`] at least) for a record; other versions have other bytes.
pub fn value_of(record: u64, version: u64, bytes: usize) -> Vec<u8> {
    if bytes < FIXED_BYTES {
        return short_value_of(record, version, bytes.max(VALUE_BYTES_MIN));
    }
    let mut value = Vec::with_capacity(bytes);
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

fn short_value_of(record: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = fnv64(record).to_le_bytes()[..SHORT_PART_BYTES].to_vec();
    let mut rng = Rng::new(fnv64(record) ^ version);
    value.resize_with(bytes - SHORT_PART_BYTES, || rng.next_u64() as u8);
    let sum = checksum(&value).to_le_bytes();
    value.extend_from_slice(&sum[5..]);
    value
}

/// Whether `value` is one that [`value_of`] made for `record`.
pub fn check_value(record: u64, value: &[u8]) -> bool {
    if value.len() < FIXED_BYTES {
        let Some((body, sum)) = value.split_last_chunk::<SHORT_PART_BYTES>() else { return false };
        let number = &fnv64(record).to_le_bytes()[..SHORT_PART_BYTES];
        return body.starts_with(number) && checksum(body).to_le_bytes()[5..] == *sum;
    }
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
        for bytes in [0, 8, 9, 23, 24, 25, 100, 1000] {
            let value = value_of(7, 3, bytes);
            assert_eq!(value.len(), bytes.max(VALUE_BYTES_MIN));
            assert!(check_value(7, &value) && !check_value(8, &value));
            for at in [0, value.len() / 2, value.len() - 1] {
                let mut damaged = value.clone();
                damaged[at] ^= 1;
                assert!(!check_value(7, &damaged), "{bytes} {at}");
            }
            assert_ne!(value, value_of(7, 4, bytes));
        }
        assert!(!check_value(7, b"") && !check_value(7, b"ab"));
    }

    #[test]
    fn keys_have_the_form_of_ycsb_or_sixteen_digits() {
        let key = key_of(42);
        assert!(key.starts_with(b"user") && key[4..].iter().all(u8::is_ascii_digit));
        assert_ne!(*key_of(1), *key_of(2));
        assert!(*Keys::Ordered.of(9) < *Keys::Ordered.of(10));
        assert_eq!(*Keys::Ordered.of(1_234_567), *b"user0000000000001234567");
        assert!(Keys::Short.of(7).iter().all(u8::is_ascii_hexdigit));
        for keys in [Keys::Scattered, Keys::Ordered, Keys::Short] {
            assert_eq!(keys.of(3).len() as u64, keys.bytes());
        }
    }
}
