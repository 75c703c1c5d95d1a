//! Range tombstones: deletes of all keys from one up to before another.
//!
//! They lie beside the containers and not in them: a memtable has those of its own time, a version those that were
//! flushed, and what a container answers is held against all of them by number. So one mechanism serves every profile,
//! tables and slots know nothing of it, and a table that is covered whole goes without being read (`policy/erase.rs`).
//! What covers nothing any more is forgotten by an edit (`docs/decisions/0014-range-deletes.md`).
//!
//! A set never changes; one more makes a new one, in time linear in the set. A lookup as of now is a binary search; one
//! at an older number looks at the tombstones one by one where a newer one covers the key.

use crate::key::Seq;
use std::fmt;
use std::sync::Arc;

/// Most range tombstones that a store has in its memtables and its version together.
pub(crate) const RANGE_TOMBSTONES_MAX: usize = 1024;

/// The keys from one up to before another have no value from this number on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    pub(crate) seq: Seq,
    /// Both with their keyspace's prefix.
    pub(crate) from: Arc<[u8]>,
    pub(crate) to: Arc<[u8]>,
}

impl RangeTombstone {
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        *self.from <= *key && *key < *self.to
    }

    /// Bytes of memory that its keys take.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.from.len() + self.to.len()) as u64
    }
}

impl fmt::Display for RangeTombstone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of [{}..{})", self.seq, self.from.escape_ascii(), self.to.escape_ascii())
    }
}

/// Some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeTombstones {
    /// By number.
    all: Vec<RangeTombstone>,
    /// The newest one that covers the keys from here on, up to the next of these; 0 for none.
    newest: Vec<(Arc<[u8]>, Seq)>,
}

impl RangeTombstones {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let places = self.newest.len() * size_of::<(Arc<[u8]>, Seq)>();
        self.all.iter().map(RangeTombstone::bytes).sum::<u64>() + places as u64
    }

    /// Each, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.all.iter()
    }

    /// The number of the newest one, up to `at`; 0 for none.
    pub(crate) fn newest_at(&self, at: Seq) -> Seq {
        let up_to = self.all.partition_point(|tombstone| tombstone.seq <= at);
        up_to.checked_sub(1).map_or(Seq(0), |last| self.all[last].seq)
    }

    /// The number of the newest one up to `at` that covers `key`; 0 for none.
    pub(crate) fn covering(&self, key: &[u8], at: Seq) -> Seq {
        let behind = self.newest.partition_point(|(from, _)| **from <= *key);
        let newest = behind.checked_sub(1).map_or(Seq(0), |place| self.newest[place].1);
        if newest <= at {
            return newest;
        }
        let older = self.all.iter().rev().filter(|tombstone| tombstone.seq <= at);
        older.into_iter().find(|tombstone| tombstone.covers(key)).map_or(Seq(0), |found| found.seq)
    }

    /// The ranges that they cover together, disjoint, in key order.
    pub(crate) fn spans(&self) -> Vec<(&[u8], &[u8])> {
        let mut spans: Vec<(&[u8], &[u8])> = Vec::new();
        for pair in self.newest.windows(2).filter(|pair| pair[0].1 > Seq(0)) {
            match spans.last_mut() {
                Some((_, end)) if **end == *pair[0].0 => *end = &pair[1].0,
                _ => spans.push((&pair[0].0, &pair[1].0)),
            }
        }
        spans
    }

    /// These and one more. One that is here already (replay may bring it twice) is left as it is.
    pub(crate) fn with(&self, tombstone: RangeTombstone) -> Self {
        let at = self.all.partition_point(|other| other.seq < tombstone.seq);
        if self.all.get(at).is_some_and(|other| other.seq == tombstone.seq) {
            return self.clone();
        }
        let mut all = self.all.clone();
        let is_newest = at == all.len();
        all.insert(at, tombstone);
        if !is_newest {
            return Self::of(all);
        }
        let mut newest = self.newest.clone();
        lay_over(&mut newest, &all[at]);
        Self { all, newest }
    }

    /// These but for some.
    pub(crate) fn without(&self, gone: &[Seq]) -> Self {
        Self::of(self.all.iter().filter(|tombstone| !gone.contains(&tombstone.seq)).cloned().collect())
    }

    fn of(all: Vec<RangeTombstone>) -> Self {
        let mut newest = Vec::new();
        all.iter().for_each(|tombstone| lay_over(&mut newest, tombstone));
        Self { all, newest }
    }
}

/// Has a tombstone, which is newer than all before, be the one of its keys.
fn lay_over(newest: &mut Vec<(Arc<[u8]>, Seq)>, tombstone: &RangeTombstone) {
    let begin = newest.partition_point(|(from, _)| *from < tombstone.from);
    let end = newest.partition_point(|(from, _)| *from <= tombstone.to);
    let behind = end.checked_sub(1).map_or(Seq(0), |last| newest[last].1);
    let laid = [(tombstone.from.clone(), tombstone.seq), (tombstone.to.clone(), behind)];
    newest.splice(begin..end, laid);
}

/// What several sets say together: those of some memtables and of a version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Erased(Vec<Arc<RangeTombstones>>);

impl Erased {
    /// Sets that have nothing are left out.
    pub(crate) fn by(sets: impl IntoIterator<Item = Arc<RangeTombstones>>) -> Self {
        Self(sets.into_iter().filter(|set| !set.is_empty()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of the newest one up to `at` that covers `key`; 0 for none.
    pub(crate) fn covering(&self, key: &[u8], at: Seq) -> Seq {
        self.0.iter().map(|set| set.covering(key, at)).max().unwrap_or_default()
    }

    /// The number of the newest one, up to `at`; 0 for none.
    pub(crate) fn newest_at(&self, at: Seq) -> Seq {
        self.0.iter().map(|set| set.newest_at(at)).max().unwrap_or_default()
    }

    /// Whether one up to `at` covers all keys from `smallest` to `largest`, and is newer than `newest`.
    pub(crate) fn covers_whole(&self, (smallest, largest): (&[u8], &[u8]), newest: Seq, at: Seq) -> bool {
        let mut all = self.0.iter().flat_map(|set| set.iter());
        all.any(|one| one.seq > newest && one.seq <= at && one.covers(smallest) && one.covers(largest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    fn tombstone(seq: u64, from: &[u8], to: &[u8]) -> RangeTombstone {
        RangeTombstone { seq: Seq(seq), from: from.into(), to: to.into() }
    }

    #[test]
    fn the_newest_that_covers_a_key_counts() {
        let set = RangeTombstones::default()
            .with(tombstone(3, b"b", b"f"))
            .with(tombstone(5, b"d", b"h"))
            .with(tombstone(7, b"e", b"ea"));
        let of =
            |at: u64| -> Vec<u64> { "abcdefgh".bytes().map(|key| set.covering(&[key], Seq(at)).0).collect() };
        assert_eq!(of(9), [0, 3, 3, 5, 7, 5, 5, 0]);
        assert_eq!(of(6), [0, 3, 3, 5, 5, 5, 5, 0]);
        assert_eq!(of(4), [0, 3, 3, 3, 3, 0, 0, 0]);
        assert_eq!(of(2), [0; 8]);
        assert_eq!(set.spans(), [(&b"b"[..], &b"h"[..])]);
        assert_eq!(set.without(&[Seq(5)]).spans(), [(&b"b"[..], &b"f"[..])]);
        assert_eq!([9, 6, 2].map(|at| set.newest_at(Seq(at)).0), [7, 5, 0]);
        // The end is not in it.
        assert_eq!([&b"ea"[..], b"e\xff"].map(|key| set.covering(key, Seq::MAX).0), [5, 5]);
    }

    #[test]
    fn sets_say_what_each_tombstone_by_itself_says() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut all: Vec<RangeTombstone> = (1..=rng.below(12))
                .map(|seq| {
                    let [a, b] = [(); 2].map(|()| rng.below(20) as u8);
                    tombstone(2 * seq, &[a.min(b)], &[a.max(b) + 1])
                })
                .collect();
            // Replay brings some twice, and not in order.
            for i in 0..all.len() {
                all.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let twice = all.iter().chain(&all);
            let mut set = twice.fold(RangeTombstones::default(), |set, one| set.with(one.clone()));
            for removes in [false, true] {
                if removes {
                    let gone: Vec<Seq> = (0..3).map(|_| Seq(2 * rng.below(12))).collect();
                    set = set.without(&gone);
                    all.retain(|one| !gone.contains(&one.seq));
                }
                assert_eq!(set.len(), all.len());
                for (key, at) in (0..22).flat_map(|key| (0..26).map(move |at| (key, at))) {
                    let covers = all.iter().filter(|one| one.seq.0 <= at && one.covers(&[key]));
                    let expected = covers.map(|one| one.seq).max().unwrap_or_default();
                    assert_eq!(set.covering(&[key], Seq(at)), expected, "seed {seed}, key {key}, at {at}");
                }
            }
        }
    }

    #[test]
    fn a_table_is_covered_whole_by_one_that_is_newer_than_all_of_it() {
        let set = RangeTombstones::default().with(tombstone(5, b"b", b"f"));
        let erased = Erased::by([Arc::new(set), Arc::default()]);
        let whole = |smallest: &[u8], largest: &[u8], newest, at| {
            erased.covers_whole((smallest, largest), Seq(newest), Seq(at))
        };
        assert!(whole(b"b", b"e", 4, 5));
        assert!(!whole(b"b", b"f", 4, 5) && !whole(b"a", b"e", 4, 5));
        assert!(!whole(b"b", b"e", 6, 9) && !whole(b"b", b"e", 4, 4));
    }
}
