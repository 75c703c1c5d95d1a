//! Which pages of a region are free.
//!
//! A map from where free ranges begin to where they end; neighbours are one range. Taking looks for the lowest that is large
//! enough, which costs a step for each free range before it.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free ranges.
#[derive(Debug)]
pub(super) struct Space {
    free: BTreeMap<u64, u64>,
}

impl Space {
    /// All of it is free.
    pub(super) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]) }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free.iter().map(|(start, end)| end - start).sum()
    }

    /// How many ranges are free.
    pub(super) fn pieces(&self) -> usize {
        self.free.len()
    }

    /// Takes so many bytes off the lowest range that has them.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        if bytes == 0 {
            return Some(0);
        }
        let (&start, _) = self.free.iter().find(|(start, end)| *end - *start >= bytes)?;
        self.take_at(start..start + bytes).then_some(start)
    }

    /// Takes so many bytes: in one piece, or in as few as there are, the longest first; none if they are more than `most`.
    pub(super) fn take_pieces(&mut self, bytes: u64, most: usize) -> Option<Vec<Range<u64>>> {
        if let Some(at) = self.take(bytes) {
            return Some(std::iter::once(at..at + bytes).collect());
        }
        let mut free: Vec<Range<u64>> = self.free.iter().map(|(start, end)| *start..*end).collect();
        free.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        let (mut taken, mut left) = (Vec::new(), bytes);
        for range in free.into_iter().take(most) {
            let piece = range.start..range.end.min(range.start + left);
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
        self.free.remove(&start);
        for left in [start..range.start, range.end..end] {
            if !left.is_empty() {
                self.free.insert(left.start, left.end);
            }
        }
        true
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, _)) = self.free.range(..start).next_back().filter(|(_, end)| **end == start) {
            self.free.remove(&before);
            start = before;
        }
        if let Some(behind) = self.free.remove(&end) {
            end = behind;
        }
        self.free.insert(start, end);
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
}
