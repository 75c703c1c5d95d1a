//! Which keys a scan covers.

use super::check_key;
use crate::engine::iterate::KeyRange;
use crate::error::{Error, Result};
use crate::key::{KEYSPACE_BYTES, KeyspaceId};
use std::borrow::Cow;
use std::ops::{Bound, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys, with an optional limit on how many. Standard ranges of byte strings turn into one.
///
/// ```
/// use cuesta::Range;
/// let some: Range = (&b"a"[..]..&b"c"[..]).into();
/// let named = Range::prefix(b"user:").with_limit(10);
/// ```
#[derive(Clone, Debug)]
pub struct Range<'a> {
    low: Bound<Cow<'a, [u8]>>,
    high: Bound<Cow<'a, [u8]>>,
    limit: Option<u64>,
}

impl<'a> Range<'a> {
    /// Every key.
    pub fn all() -> Self {
        Self { low: Bound::Unbounded, high: Bound::Unbounded, limit: None }
    }

    /// Keys from one bound to another.
    pub fn new(low: Bound<&'a [u8]>, high: Bound<&'a [u8]>) -> Self {
        Self { low: low.map(Cow::Borrowed), high: high.map(Cow::Borrowed), limit: None }
    }

    /// Keys that begin with `prefix`.
    pub fn prefix(prefix: &'a [u8]) -> Self {
        let high = match after_prefix(prefix) {
            Some(high) => Bound::Excluded(Cow::Owned(high)),
            None => Bound::Unbounded,
        };
        Self { low: Bound::Included(Cow::Borrowed(prefix)), high, limit: None }
    }

    /// At most so many pairs; read-ahead stops there.
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The first key, and the first behind: empty where the key space ends. `None` if no key can be inside.
    ///
    /// # Errors
    /// `Invalid` when a bound is no key, or there is a limit: what goes is all of it.
    pub(super) fn to_delete(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.limit.is_some() {
            return Err(Error::invalid("a range that is deleted has no limit: all of its keys go"));
        }
        for bound in [&self.low, &self.high] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                check_key(key)?;
            }
        }
        let behind = |key: &Cow<'_, [u8]>| [key, &[0][..]].concat();
        let low = match &self.low {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let high = match &self.high {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        let has_any = high.as_ref().is_none_or(|high| low < *high);
        Ok(has_any.then(|| (low, high.unwrap_or_default())))
    }

    /// The range among the keys of all keyspaces.
    pub(super) fn in_keyspace(&self, id: KeyspaceId) -> KeyRange {
        let whole = |key: &Cow<'_, [u8]>| id.key(key);
        let low = match &self.low {
            Bound::Included(key) => Bound::Included(whole(key)),
            Bound::Excluded(key) => Bound::Excluded(whole(key)),
            Bound::Unbounded => Bound::Included(id.key(&[])),
        };
        let high = match &self.high {
            Bound::Included(key) => Bound::Included(whole(key)),
            Bound::Excluded(key) => Bound::Excluded(whole(key)),
            Bound::Unbounded => match after_prefix(&id.key(&[])) {
                Some(high) => Bound::Excluded(high),
                None => Bound::Unbounded,
            },
        };
        KeyRange { low, high }
    }
}

/// The smallest key above everything that begins with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut high = prefix[..=last].to_vec();
    high[last] += 1;
    Some(high)
}

/// A user key, of a key with its keyspace.
pub(super) fn user_key(key: &[u8]) -> &[u8] {
    key.get(KEYSPACE_BYTES..).unwrap_or_default()
}

macro_rules! from_ranges {
    ($($kind:ty),*) => {$(
        impl<'a> From<$kind> for Range<'a> {
            fn from(range: $kind) -> Self {
                Self::new(range.start_bound().map(|key| *key), range.end_bound().map(|key| *key))
            }
        }
    )*};
}

from_ranges!(
    std::ops::Range<&'a [u8]>,
    RangeInclusive<&'a [u8]>,
    RangeFrom<&'a [u8]>,
    RangeTo<&'a [u8]>,
    RangeToInclusive<&'a [u8]>,
    (Bound<&'a [u8]>, Bound<&'a [u8]>)
);

impl From<RangeFull> for Range<'_> {
    fn from(_: RangeFull) -> Self {
        Self::all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deleted_has_a_first_key_and_one_behind() {
        let of = |range: Range<'_>| range.to_delete().unwrap();
        let pair = |low: &[u8], high: &[u8]| Some((low.to_vec(), high.to_vec()));
        assert_eq!(of((&b"a"[..]..&b"c"[..]).into()), pair(b"a", b"c"));
        assert_eq!(of((&b"a"[..]..=&b"c"[..]).into()), pair(b"a", b"c\0"));
        assert_eq!(of(Range::new(Bound::Excluded(b"a"), Bound::Unbounded)), pair(b"a\0", b""));
        assert_eq!(of(Range::all()), pair(b"", b""));
        assert_eq!(of(Range::prefix(b"ab")), pair(b"ab", b"ac"));
        for nothing in [&b"c"[..]..&b"a"[..], b"c"..b"c", b""..b""] {
            assert_eq!(of(nothing.into()), None);
        }
        assert_eq!(of((&b"c"[..]..=&b"a"[..]).into()), None);
        assert!(Range::all().with_limit(3).to_delete().is_err());
        assert!(Range::prefix(&[7; crate::KEY_BYTES_MAX + 1]).to_delete().is_err());
    }

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
