//! What of a file was stored and is not written back.

use super::LINE_BYTES;
use std::ops::Range;

/// Ranges that are noted apart; more become one.
const RANGES_MAX: usize = 64;

/// Ranges of a file that were stored to since they were last written back, as whole cache lines: in order, apart from
/// each other.
#[derive(Debug, Default)]
pub(super) struct Dirty(Vec<Range<u64>>);

impl Dirty {
    /// Notes that `range` was stored to.
    pub(super) fn note(&mut self, range: Range<u64>) {
        // Lines are written back whole, and each once.
        let line = |at: u64| at - at % LINE_BYTES;
        let (mut start, mut end) = (line(range.start), range.end.next_multiple_of(LINE_BYTES));
        let first = self.0.partition_point(|other| other.end < start);
        let behind = self.0.partition_point(|other| other.start <= end);
        if let Some(touching) = self.0.get(first..behind).filter(|touching| !touching.is_empty()) {
            start = start.min(touching[0].start);
            end = end.max(touching[touching.len() - 1].end);
        }
        self.0.splice(first..behind, std::iter::once(start..end));
        if self.0.len() > RANGES_MAX {
            let all = self.0[0].start..self.0[self.0.len() - 1].end;
            self.0 = vec![all];
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, as far as they lie before `end`, and none from here on.
    pub(super) fn take_before(&mut self, end: u64) -> Vec<Range<u64>> {
        let mut ranges = std::mem::take(&mut self.0);
        ranges.iter_mut().for_each(|range| range.end = range.end.min(end));
        ranges.retain(|range| range.start < range.end);
        ranges
    }
}
