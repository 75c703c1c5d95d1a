//! Keys and their order.
//!
//! Below the public API a key is the keyspace's id (u32, big-endian) followed by the user's bytes, compared bytewise;
//! so a keyspace is a contiguous range of one store-wide order. Versions of a key are ordered newest first by their
//! [`Trailer`]. Key and trailer are compared one after the other, never as one run of bytes: a key that is a prefix
//! of another would otherwise be ordered by its trailer's bytes.

use std::cmp::Ordering;
use std::fmt;
use twox_hash::XxHash3_64;

/// Longest user key, in bytes. The empty key is a key.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value, in bytes; less with a memory number under 2 GiB ([`crate::Options::value_bytes_max`]).
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that the keyspace's id takes before a user key.
pub(crate) const KEYSPACE_BYTES: usize = 4;

/// A hash of a key with its prefix. Tables' filters are built from it, so it is part of their format.
pub(crate) fn hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// A keyspace's number; never reused in the life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyspaceId(pub(crate) u32);

impl KeyspaceId {
    /// The keyspace that every store has.
    pub(crate) const DEFAULT: Self = Self(0);

    /// The keyspace of a key with its prefix; `None` for a key too short to have one.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        key.first_chunk::<KEYSPACE_BYTES>().map(|id| Self(u32::from_be_bytes(*id)))
    }

    /// `user_key` with this keyspace's prefix, appended to `out`.
    pub(crate) fn prefix_to(self, out: &mut Vec<u8>, user_key: &[u8]) {
        out.reserve(KEYSPACE_BYTES + user_key.len());
        out.extend_from_slice(&self.0.to_be_bytes());
        out.extend_from_slice(user_key);
    }

    /// The first key behind all of this keyspace's.
    pub(crate) fn end(self) -> Vec<u8> {
        self.0.saturating_add(1).to_be_bytes().to_vec()
    }

    /// `user_key` with this keyspace's prefix.
    pub(crate) fn key(self, user_key: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.prefix_to(&mut out, user_key);
        out
    }
}

/// A place in the store-wide order of writes: 56 bits, from 1; 0 is before every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Seq(pub(crate) u64);

impl Seq {
    /// The largest number that fits a trailer.
    pub(crate) const MAX: Self = Self((1 << 56) - 1);
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What an entry does to its key. The numbers are part of every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(dead_code, reason = "the numbers of kinds to come are taken, so that no other kind gets them")]
pub(crate) enum Kind {
    /// The key has no value from here on: a tombstone.
    Delete = 1,
    /// The key has this value.
    Put = 2,
    /// Reserved: an operand for a merge operator.
    Merge = 3,
    /// No key from this one up to before another, its value, has a value from here on: a range tombstone. In logs only
    /// (`range_tombstones`).
    RangeDelete = 4,
    /// Reserved: the value lies elsewhere and this is its handle.
    ValueHandle = 5,
    /// Reserved: a value with a time after which it is gone.
    PutExpiring = 6,
}

impl Kind {
    /// The kind of a number in a container; `None` for one this version does not write or read there.
    pub(crate) fn from_stored(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Delete),
            2 => Some(Self::Put),
            _ => None,
        }
    }

    /// The kind of a number in a batch.
    pub(crate) fn from_logged(number: u8) -> Option<Self> {
        if number == Self::RangeDelete as u8 { Some(Self::RangeDelete) } else { Self::from_stored(number) }
    }
}

/// Sequence number and kind of an entry in one word: number << 8 | kind. Larger is newer, and newer sorts first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Trailer(pub(crate) u64);

impl Trailer {
    /// Sorts before every version of its key.
    pub(crate) const FIRST: Self = Self(u64::MAX);
    /// Sorts after every version of its key.
    pub(crate) const LAST: Self = Self(0);

    pub(crate) fn new(seq: Seq, kind: Kind) -> Self {
        debug_assert!(seq <= Seq::MAX);
        Self(seq.0 << 8 | kind as u64)
    }

    /// Where a read at `seq` begins: before every version of the key that it may see, after every newer one.
    pub(crate) fn read_at(seq: Seq) -> Self {
        Self(seq.0 << 8 | 0xff)
    }

    pub(crate) fn seq(self) -> Seq {
        Seq(self.0 >> 8)
    }

    /// `None` when the kind is not one of a container's entries; decoders refuse such entries.
    pub(crate) fn kind(self) -> Option<Kind> {
        Kind::from_stored((self.0 & 0xff) as u8)
    }

    /// Of a batch: whether its value is the end of a range that goes.
    pub(crate) fn is_range_delete(self) -> bool {
        self.0 & 0xff == Kind::RangeDelete as u64
    }
}

impl fmt::Debug for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "#{} {kind:?}", self.seq().0),
            None => write!(f, "#{} kind {}", self.seq().0, self.0 & 0xff),
        }
    }
}

/// One version of one key, borrowed from wherever it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// With the keyspace's prefix.
    pub(crate) key: &'a [u8],
    pub(crate) trailer: Trailer,
    pub(crate) value: &'a [u8],
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} = {}", self.key.escape_ascii(), self.trailer, self.value.escape_ascii())
    }
}

/// Bytes that both begin with.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The order of every container: key bytewise, then newest first.
pub(crate) fn compare(a: (&[u8], Trailer), b: (&[u8], Trailer)) -> Ordering {
    a.0.cmp(b.0).then_with(|| b.1.0.cmp(&a.1.0))
}

/// Where a cursor is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The first entry at or after this place.
    AtOrAfter(&'a [u8], Trailer),
    /// The last entry before this place.
    Before(&'a [u8], Trailer),
    /// The first entry.
    First,
    /// The last entry.
    Last,
}

impl Target<'_> {
    /// True for the targets from which a walk goes on forwards.
    pub(crate) fn is_forward(self) -> bool {
        matches!(self, Self::AtOrAfter(..) | Self::First)
    }
}

/// Moves over the entries of one container, or of several merged, in [`compare`]'s order.
///
/// A cursor is on an entry or past either end; a new one is past the end. Every move may fail; after a failure the
/// cursor is past the end and its caller must not go on as if the end had been reached.
///
/// Going somewhere is two steps, so that who moves many cursors can have all their reads under way before it waits
/// for the first: [`Cursor::begin`], then [`Cursor::finish`] with the same target.
pub(crate) trait Cursor {
    /// Begins the reads that going to `target` needs, and does not wait for them.
    fn begin(&mut self, target: Target<'_>) -> crate::Result<()>;
    /// To `target`, for which `begin` was called last.
    fn finish(&mut self, target: Target<'_>) -> crate::Result<()>;
    /// To the following entry; must be on one.
    fn next(&mut self) -> crate::Result<()>;
    /// To the preceding entry; must be on one.
    fn prev(&mut self) -> crate::Result<()>;
    /// The entry the cursor is on; `None` past either end.
    fn entry(&self) -> Option<Entry<'_>>;

    /// To `target`.
    fn go(&mut self, target: Target<'_>) -> crate::Result<()> {
        self.begin(target)?;
        self.finish(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_sorts_before_its_extensions_whatever_their_trailers() {
        let old = Trailer::new(Seq(1), Kind::Put);
        let new = Trailer::new(Seq(9), Kind::Delete);
        assert_eq!(compare((b"a", old), (b"a\xff", new)), Ordering::Less);
        assert_eq!(compare((b"a", new), (b"a\0", old)), Ordering::Less);
    }

    #[test]
    fn newer_versions_of_a_key_sort_first() {
        let old = Trailer::new(Seq(1), Kind::Put);
        let new = Trailer::new(Seq(2), Kind::Delete);
        assert_eq!(compare((b"k", new), (b"k", old)), Ordering::Less);
        assert_eq!(compare((b"k", Trailer::FIRST), (b"k", new)), Ordering::Less);
        assert_eq!(compare((b"k", Trailer::LAST), (b"k", old)), Ordering::Greater);
    }

    #[test]
    fn a_read_begins_at_its_own_number() {
        let at = Trailer::read_at(Seq(5));
        assert_eq!(compare((b"k", at), (b"k", Trailer::new(Seq(5), Kind::Put))), Ordering::Less);
        assert_eq!(compare((b"k", at), (b"k", Trailer::new(Seq(6), Kind::Delete))), Ordering::Greater);
    }

    #[test]
    fn keyspaces_are_contiguous_ranges() {
        assert!(KeyspaceId(1).key(&[0xff; 9]) < KeyspaceId(2).key(b""));
        assert_eq!(KeyspaceId::of(&KeyspaceId(7).key(b"x")), Some(KeyspaceId(7)));
        assert_eq!(KeyspaceId::of(b"abc"), None);
    }
}
