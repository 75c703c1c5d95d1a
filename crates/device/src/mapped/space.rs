//! Which pages of a region are free.
//!
//! A map from where free ranges begin to where they end, in which neighbours are one range, and the same ranges by
//! size. Taking finds the smallest that is large enough, the lowest of these; so large ones stay whole as long as
//! others do. Everything is logarithmic in the number of free ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Free ranges.
#[derive(Debug)]
pub(super) struct Space {
    free: BTreeMap<u64, u64>,
    /// Their bytes and where they begin.
    by_size: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Space {
    /// All of it is free.
    pub(super) fn new(bytes: u64) -> Self {
        let mut space = Self { free: BTreeMap::new(), by_size: BTreeSet::new(), bytes: 0 };
        space.insert(0..bytes);
        space
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.bytes
    }

    /// How many ranges are free.
    pub(super) fn pieces(&self) -> usize {
        self.free.len()
    }

    fn insert(&mut self, range: Range<u64>) {
        let bytes = range.end - range.start;
        if bytes > 0 {
            self.free.insert(range.start, range.end);
            self.by_size.insert((bytes, range.start));
            self.bytes += bytes;
        }
    }

    /// Takes the free range out that begins there.
    fn remove(&mut self, start: u64) -> Option<Range<u64>> {
        let end = self.free.remove(&start)?;
        self.by_size.remove(&(end - start, start));
        self.bytes -= end - start;
        Some(start..end)
    }

    /// Takes so many bytes off the smallest range that has them.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        if bytes == 0 {
            return Some(0);
        }
        let (_, start) = *self.by_size.range((bytes, 0)..).next()?;
        self.take_at(start..start + bytes).then_some(start)
    }

    /// Takes so many bytes: in one piece, or in as few as there are, the longest first; none if they are more than
    /// `most`.
    pub(super) fn take_pieces(&mut self, bytes: u64, most: usize) -> Option<Vec<Range<u64>>> {
        if let Some(at) = self.take(bytes) {
            return Some(std::iter::once(at..at + bytes).collect());
        }
        let (mut taken, mut left) = (Vec::new(), bytes);
        for (len, start) in self.by_size.iter().rev().take(most) {
            let piece = *start..start + left.min(*len);
            left -= piece.end - piece.start;
            taken.push(piece);
            if left == 0 {
                break;
            }
        }
        let done = left == 0 && taken.iter().all(|piece| self.take_at(piece.clone()));
        done.then_some(taken)
    }

    /// Takes this range; `false` when not all of it is free.
    pub(super) fn take_at(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let found = self.free.range(..=range.start).next_back().map(|(start, end)| (*start, *end));
        let Some((start, end)) = found.filter(|(_, end)| *end >= range.end) else { return false };
        self.remove(start);
        self.insert(start..range.start);
        self.insert(range.end..end);
        true
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        let before = self.free.range(..start).next_back().filter(|(_, end)| **end == start);
        if let Some(before) = before.map(|(before, _)| *before) {
            self.remove(before);
            start = before;
        }
        if let Some(behind) = self.remove(end) {
            end = behind.end;
        }
        self.insert(start..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    #[test]
    fn what_is_taken_is_nobody_elses_and_comes_back_whole() {
        let mut rng = Rng::new(3);
        let mut space = Space::new(100);
        let (mut taken, mut refused) = (Vec::<Range<u64>>::new(), 0);
        for _ in 0..5000 {
            if rng.one_in(2) && !taken.is_empty() {
                space.give(taken.swap_remove(rng.below(taken.len() as u64) as usize));
            } else {
                let bytes = 1 + rng.below(20);
                let at = if rng.one_in(3) {
                    let at = rng.below(100);
                    let fits = at + bytes <= 100
                        && taken.iter().all(|other| other.end <= at || at + bytes <= other.start);
                    assert_eq!(space.take_at(at..at + bytes), fits);
                    fits.then_some(at)
                } else {
                    space.take(bytes)
                };
                match at {
                    Some(at) => taken.push(at..at + bytes),
                    None => refused += 1,
                }
            }
            let by_start = space.free.iter().map(|(start, end)| (end - start, *start));
            assert_eq!(by_start.collect::<BTreeSet<_>>(), space.by_size);
            for (i, a) in taken.iter().enumerate() {
                assert!(a.end <= 100 && taken[..i].iter().all(|b| a.end <= b.start || b.end <= a.start));
            }
            assert_eq!(
                space.free_bytes(),
                100 - taken.iter().map(|range| range.end - range.start).sum::<u64>()
            );
        }
        assert!(refused > 100, "{refused}");
        taken.drain(..).for_each(|range| space.give(range));
        assert_eq!(space.free, BTreeMap::from([(0, 100)]));
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_taken_and_else_the_longest() {
        let mut space = Space::new(100);
        for taken in [20..30, 35..40, 60..70] {
            assert!(space.take_at(taken));
        }
        // Free are 0..20, 30..35, 40..60 and 70..100.
        assert_eq!(space.take(4), Some(30));
        assert_eq!(space.take(6), Some(0));
        assert_eq!(space.take(20), Some(40));
        assert_eq!(space.take(31), None);
        assert_eq!(space.take_pieces(31, 1), None);
        assert_eq!(space.take_pieces(31, 2), Some(vec![70..100, 6..7]));
    }
}
