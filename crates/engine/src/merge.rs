//! Several cursors as one, in order: a heap of sources, the smallest (or, backwards, the largest) entry on top.
//!
//! A step costs O(log n) comparisons of entries in place, no copy and no allocation. Going somewhere begins the reads
//! of all sources before it waits for any. Turning around re-seats every source, one or two seeks each. Entries that
//! two sources both have come out twice, next to each other.

use crate::error::Result;
use crate::key::{Cursor, Entry, Target, compare};
use std::cmp::Ordering;

/// Which way the heap is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A cursor over the union of its sources.
#[derive(Debug)]
pub(crate) struct Merge<C> {
    sources: Vec<C>,
    /// Indexes of the sources that are on an entry, as a binary heap.
    heap: Vec<usize>,
    direction: Direction,
}

impl<C: Cursor> Merge<C> {
    pub(crate) fn new(sources: Vec<C>) -> Self {
        Self { heap: Vec::with_capacity(sources.len()), sources, direction: Direction::Forward }
    }

    /// Whether source `a` comes out before source `b`. Ties go to the lower index, so that runs are alike.
    fn before(&self, a: usize, b: usize) -> bool {
        let (Some(x), Some(y)) = (self.sources[a].entry(), self.sources[b].entry()) else { return false };
        let order = compare((x.key, x.trailer), (y.key, y.trailer));
        match (self.direction, order) {
            (_, Ordering::Equal) => a < b,
            (Direction::Forward, order) => order == Ordering::Less,
            (Direction::Backward, order) => order == Ordering::Greater,
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    /// As [`Cursor::finish`], for one who knows where the sources go: `seat` moves each, given what `places` has for
    /// it.
    pub(crate) fn finish_with<P>(
        &mut self,
        forward: bool,
        places: impl Iterator<Item = P>,
        mut seat: impl FnMut(&mut C, P) -> Result<()>,
    ) -> Result<()> {
        self.sources.iter_mut().zip(places).try_for_each(|(source, place)| seat(source, place))?;
        self.rebuild(if forward { Direction::Forward } else { Direction::Backward });
        Ok(())
    }

    /// The source that the merge's entry is of. To be left on that entry.
    pub(crate) fn top_mut(&mut self) -> Option<&mut C> {
        self.sources.get_mut(*self.heap.first()?)
    }

    /// Goes past the end.
    pub(crate) fn leave(&mut self) {
        self.heap.clear();
    }

    fn rebuild(&mut self, direction: Direction) {
        self.direction = direction;
        self.heap.clear();
        self.heap.extend((0..self.sources.len()).filter(|i| self.sources[*i].entry().is_some()));
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Moves the source on top one step and restores the order.
    fn advance(&mut self) -> Result<()> {
        let Some(&top) = self.heap.first() else { return Ok(()) };
        let moved = match self.direction {
            Direction::Forward => self.sources[top].next(),
            Direction::Backward => self.sources[top].prev(),
        };
        if let Err(error) = moved {
            self.heap.clear();
            return Err(error);
        }
        if self.sources[top].entry().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Turns around without moving: the other sources go to the far side of the present entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let Some(entry) = self.entry() else { return Ok(()) };
        let (key, trailer) = (entry.key.to_vec(), entry.trailer);
        let top = self.heap[0];
        self.heap.clear();
        let here = Target::AtOrAfter(&key, trailer);
        let mut others: Vec<_> = self
            .sources
            .iter_mut()
            .enumerate()
            .filter(|(i, _)| *i != top)
            .map(|(_, source)| source)
            .collect();
        others.iter_mut().try_for_each(|source| source.begin(here))?;
        for source in others {
            source.finish(here)?;
            // Equal entries of other sources come after this one whichever way we go.
            let equal = |entry: Entry<'_>| entry.key == key && entry.trailer == trailer;
            if direction == Direction::Backward && !source.entry().is_some_and(equal) {
                source.go(Target::Before(&key, trailer))?;
            }
        }
        self.rebuild(direction);
        debug_assert!(self.entry().is_some_and(|entry| entry.key == key && entry.trailer == trailer));
        Ok(())
    }
}

impl<C: Cursor> Cursor for Merge<C> {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        self.heap.clear();
        self.sources.iter_mut().try_for_each(|source| source.begin(target))
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        self.sources.iter_mut().try_for_each(|source| source.finish(target))?;
        self.rebuild(if target.is_forward() { Direction::Forward } else { Direction::Backward });
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn(Direction::Forward)?;
        }
        self.advance()
    }

    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            self.turn(Direction::Backward)?;
        }
        self.advance()
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.sources[*self.heap.first()?].entry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Kind, Seq, Trailer};
    use proptest::prelude::*;

    /// A cursor over a sorted vector.
    #[derive(Debug)]
    struct Listed(Vec<(Vec<u8>, Trailer)>, Option<usize>);

    impl Cursor for Listed {
        fn begin(&mut self, _: Target<'_>) -> Result<()> {
            Ok(())
        }
        fn finish(&mut self, target: Target<'_>) -> Result<()> {
            let split = |key: &[u8], trailer| {
                self.0.partition_point(|e| compare((&e.0, e.1), (key, trailer)) == Ordering::Less)
            };
            self.1 = match target {
                Target::AtOrAfter(key, trailer) => Some(split(key, trailer)),
                Target::Before(key, trailer) => split(key, trailer).checked_sub(1),
                Target::First => Some(0),
                Target::Last => self.0.len().checked_sub(1),
            };
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.1 = self.1.map(|i| i + 1);
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.1 = self.1.and_then(|i| i.checked_sub(1));
            Ok(())
        }
        fn entry(&self) -> Option<Entry<'_>> {
            self.0.get(self.1?).map(|(key, trailer)| Entry { key, trailer: *trailer, value: b"" })
        }
    }

    proptest! {
        #[test]
        fn any_walk_over_the_merge_is_a_walk_over_the_union(
            keys in proptest::collection::vec((0u8..12, 1u64..40, 0usize..4), 0..40),
            moves in proptest::collection::vec((0u8..6, 0u8..12, 1u64..40), 0..60),
        ) {
            let mut sources = vec![Vec::new(); 4];
            let mut union = Vec::new();
            for (key, seq, source) in keys {
                let entry = (vec![key], Trailer::new(Seq(seq), Kind::Put));
                if !union.contains(&entry) {
                    sources[source].push(entry.clone());
                    union.push(entry);
                }
            }
            let order = |a: &(Vec<u8>, Trailer), b: &(Vec<u8>, Trailer)| compare((&a.0, a.1), (&b.0, b.1));
            sources.iter_mut().for_each(|source| source.sort_by(order));
            union.sort_by(order);
            let mut merge = Merge::new(sources.into_iter().map(|s| Listed(s, None)).collect());
            let mut model = Listed(union, None);
            for (step, key, seq) in moves {
                let trailer = Trailer::new(Seq(seq), Kind::Put);
                for cursor in [&mut merge as &mut dyn Cursor, &mut model] {
                    match step {
                        0 => cursor.go(Target::AtOrAfter(&[key], trailer)).unwrap(),
                        1 => cursor.go(Target::Before(&[key], trailer)).unwrap(),
                        2 => cursor.go(Target::First).unwrap(),
                        3 => cursor.go(Target::Last).unwrap(),
                        4 if cursor.entry().is_some() => cursor.next().unwrap(),
                        5 if cursor.entry().is_some() => cursor.prev().unwrap(),
                        _ => {}
                    }
                }
                prop_assert_eq!(merge.entry(), model.entry());
            }
        }
    }
}
