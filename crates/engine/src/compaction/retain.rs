//! Which entries of a sorted input stay.
//!
//! Between two neighbouring numbers that readers hold, only the newest version of a key can be seen; the others go. A
//! tombstone that every reader can see goes when nothing older of its key can lie below the output. Entries of dropped
//! keyspaces go. An entry that the input has twice comes out once. Versions of a key that a container above has a newer
//! one of go, unless somebody reads at an older number. So does what a range tombstone covers that everybody sees who
//! could see it.

use crate::key::{KeyspaceId, Kind, Seq, Trailer};
use crate::planted::{self, Bug};
use crate::range_tombstones::Erased;
use crate::store::{Index, Position};
use std::collections::BTreeSet;

/// Walks along a sorted input and decides entry by entry.
#[derive(Debug)]
pub(crate) struct Retain {
    /// Numbers that are read at, ascending; the last is the present one.
    boundaries: Vec<Seq>,
    dead: BTreeSet<u32>,
    /// Nothing older than the input lies below the output.
    bottom: bool,
    above: Option<Above>,
    erased: Erased,
    key: Option<Vec<u8>>,
    key_is_dead: bool,
    /// Of the present key: the lowest boundary that a version was kept for, as an index; versions that no lower
    /// boundary sees are shadowed.
    served: usize,
    last: Option<Trailer>,
}

/// Keys of which a container above has a newer version, and the next of them.
#[derive(Debug)]
struct Above {
    keys: Index,
    at: Position,
    next: Option<Vec<u8>>,
}

impl Above {
    fn new(keys: Index) -> Self {
        let mut above = Self { at: keys.first(), keys, next: Some(Vec::new()) };
        above.read();
        above
    }

    fn read(&mut self) {
        if let Some(mut key) = self.next.take() {
            self.next = self.keys.entry_to(self.at, &mut key).map(|_| key);
        }
    }

    /// Whether it has `key`, which is greater than all that it was asked for before.
    fn has(&mut self, key: &[u8]) -> bool {
        while self.next.as_deref().is_some_and(|next| next < key) {
            self.at = self.keys.next(self.at);
            self.read();
        }
        self.next.as_deref() == Some(key)
    }
}

impl Retain {
    pub(crate) fn new(boundaries: Vec<Seq>, dead: BTreeSet<u32>, bottom: bool) -> Self {
        debug_assert!(boundaries.is_sorted() && !boundaries.is_empty());
        let (key, above, erased) = (None, None, Erased::default());
        Self {
            boundaries,
            dead,
            bottom,
            above,
            erased,
            key,
            key_is_dead: false,
            served: usize::MAX,
            last: None,
        }
    }

    /// A container above has newer versions of these keys, which every reader of the present number sees.
    pub(crate) fn below(mut self, above: Index) -> Self {
        // An older number may see what they are newer than.
        self.above = (self.boundaries.len() == 1).then(|| Above::new(above));
        self
    }

    /// These range tombstones are durable, or become so with what stays.
    pub(crate) fn without(mut self, erased: Erased) -> Self {
        self.erased = erased;
        self
    }

    /// Whether `key` is another than that of the entry before.
    pub(crate) fn is_new_key(&self, key: &[u8]) -> bool {
        self.key.as_deref() != Some(key)
    }

    /// Whether the next entry of the input stays.
    pub(crate) fn keeps(&mut self, key: &[u8], trailer: Trailer) -> bool {
        if self.is_new_key(key) {
            let held = self.key.get_or_insert_default();
            held.clear();
            held.extend_from_slice(key);
            let is_dropped = KeyspaceId::of(key).is_some_and(|id| self.dead.contains(&id.0));
            self.key_is_dead = is_dropped || self.above.as_mut().is_some_and(|above| above.has(key));
            self.served = usize::MAX;
            self.last = None;
        }
        if self.last.replace(trailer) == Some(trailer) || self.key_is_dead {
            return false;
        }
        // The lowest boundary that can see this version. One past the end: newer than what any reader reads at yet;
        // such versions all stay, since `visible` may come to stand between any two of them.
        let sees = self.boundaries.partition_point(|boundary| *boundary < trailer.seq());
        if sees < self.boundaries.len() {
            if self.served <= sees {
                return false;
            }
            self.served = sees;
            let at = match planted::has(Bug::ErasedUnderSnapshots) {
                true => Seq::MAX,
                false => self.boundaries[sees],
            };
            // Older versions are covered, too.
            if self.erased.covering(key, at) > trailer.seq() {
                return false;
            }
        }
        // At boundary 0 every reader sees the tombstone, and nothing for it to hide is left.
        let bottom = self.bottom || planted::has(Bug::TombstoneDroppedEarly);
        !(bottom && sees == 0 && trailer.kind() == Some(Kind::Delete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_tombstones::{RangeTombstone, RangeTombstones};
    use crate::store::{Changes, Holds, Location};
    use std::sync::Arc;

    /// What stays of `input` ("a5 a-3": key a, put number 5, then tombstone number 3).
    fn kept(boundaries: &[u64], bottom: bool, input: &str) -> String {
        let boundaries = boundaries.iter().map(|b| Seq(*b)).collect();
        let mut retain = Retain::new(boundaries, BTreeSet::from([9]), bottom);
        let stays = |word: &&str| {
            let (key, rest) = word.split_at(1);
            let keyspace = if key == "z" { KeyspaceId(9) } else { KeyspaceId(0) };
            let (kind, seq) = match rest.strip_prefix('-') {
                Some(seq) => (Kind::Delete, seq),
                None => (Kind::Put, rest),
            };
            retain.keeps(&keyspace.key(key.as_bytes()), Trailer::new(Seq(seq.parse().unwrap()), kind))
        };
        input.split(' ').filter(stays).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_the_newest_version_stays_without_snapshots() {
        assert_eq!(kept(&[100], false, "a5 a3 a1 b2"), "a5 b2");
    }

    #[test]
    fn a_snapshot_keeps_what_it_sees() {
        assert_eq!(kept(&[3, 100], false, "a5 a4 a3 a1 b2"), "a5 a3 b2");
        assert_eq!(kept(&[2, 4, 100], false, "a5 a4 a3 a2 a1"), "a5 a4 a2");
    }

    #[test]
    fn a_tombstone_goes_only_at_the_bottom_and_when_all_see_it() {
        assert_eq!(kept(&[100], false, "a-5 a3"), "a-5");
        assert_eq!(kept(&[100], true, "a-5 a3"), "");
        assert_eq!(kept(&[3, 100], true, "a-5 a3"), "a-5 a3");
        assert_eq!(kept(&[3, 100], true, "a-5 a-2"), "a-5");
    }

    #[test]
    fn what_is_newer_than_every_reader_stays_whole() {
        assert_eq!(kept(&[3], true, "a-6 a5 a3 a2"), "a-6 a5 a3");
    }

    #[test]
    fn what_a_container_above_has_newer_goes_unless_somebody_reads_before_it() {
        let mut keys = Changes::default();
        let at = Location { slab: 1, slot: 1, holds: Holds::Value };
        ["a", "c", "e"].into_iter().for_each(|key| keys.push(key.as_bytes(), [at]));
        let above = Index::default().changed(&keys);
        let kept = |boundaries: Vec<Seq>| -> String {
            let mut retain = Retain::new(boundaries, BTreeSet::new(), true).below(above.clone());
            let stays =
                |key: &char| retain.keeps(key.to_string().as_bytes(), Trailer::new(Seq(5), Kind::Put));
            "abbdef".chars().filter(stays).collect()
        };
        assert_eq!((kept(vec![Seq(9)]), kept(vec![Seq(3), Seq(9)])), ("bdf".to_owned(), "abdef".to_owned()));
    }

    #[test]
    fn what_a_range_covers_goes_unless_somebody_reads_before_it() {
        let one = |seq, from: &str, to: &str| RangeTombstone {
            seq: Seq(seq),
            from: from.as_bytes().into(),
            to: to.as_bytes().into(),
        };
        let set = RangeTombstones::default().with(one(4, "b", "d")).with(one(8, "c", "e"));
        let kept = |boundaries: &[u64]| -> String {
            let boundaries = boundaries.iter().map(|b| Seq(*b)).collect();
            let erased = Erased::by([Arc::new(set.clone())]);
            let mut retain = Retain::new(boundaries, BTreeSet::new(), false).without(erased);
            let input = "a3 b9 b3 b2 c7 c5 c3 d-6 d3 e3";
            let stays = |word: &&str| {
                let (key, rest) = word.split_at(1);
                let (kind, seq) = match rest.strip_prefix('-') {
                    Some(seq) => (Kind::Delete, seq),
                    None => (Kind::Put, rest),
                };
                retain.keeps(key.as_bytes(), Trailer::new(Seq(seq.parse().unwrap()), kind))
            };
            input.split(' ').filter(stays).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(kept(&[20]), "a3 b9 e3");
        assert_eq!(kept(&[5, 20]), "a3 b9 c5 d3 e3");
        assert_eq!(kept(&[3, 7, 20]), "a3 b9 b3 c7 c3 d-6 d3 e3");
    }

    #[test]
    fn doubles_and_dead_keyspaces_go() {
        assert_eq!(kept(&[100], false, "a5 a5 z7 z6"), "a5");
    }
}
