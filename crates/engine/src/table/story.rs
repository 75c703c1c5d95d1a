//! What the entries of a table say themselves, to be compared with what its properties say of them.

use super::{Compression, Properties};
use crate::format::{Decode, Malformed};
use crate::key::{Entry, Trailer, compare};
use std::cmp::Ordering;

/// What the entries themselves say.
#[derive(Default)]
pub(super) struct Story {
    counted: Properties,
    last: Option<(Vec<u8>, Trailer)>,
}

impl Story {
    /// Takes in the next entry, which must lie behind the last.
    pub(super) fn entry(&mut self, entry: Entry<'_>) -> Decode<()> {
        let here = (entry.key, entry.trailer);
        if self.last.as_ref().is_some_and(|(key, trailer)| compare((key, *trailer), here) != Ordering::Less) {
            return Err(Malformed(format!("{entry:?} is out of order")));
        }
        self.counted.count(entry);
        let (key, trailer) = self.last.get_or_insert((Vec::new(), Trailer::LAST));
        key.clear();
        key.extend_from_slice(entry.key);
        *trailer = entry.trailer;
        Ok(())
    }

    /// Whether the properties say of the entries what these do.
    pub(super) fn check_properties(mut self, properties: &Properties) -> Decode<()> {
        self.counted.largest_key = self.last.take().map(|(key, _)| key).unwrap_or_default();
        let told = Properties {
            data_end: 0,
            data_file_bytes: 0,
            meta_file_bytes: 0,
            filter_bits_per_key: 0,
            compression: Compression::None,
            linked: false,
            floor: None,
            ..properties.clone()
        };
        match told == self.counted {
            true => Ok(()),
            false => {
                Err(Malformed(format!("the properties are\n{told}but the entries are\n{}", self.counted)))
            }
        }
    }
}
