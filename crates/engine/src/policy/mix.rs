//! How many floors a guard may have, by what the store is asked.
//!
//! Floors trade reads for writes (Zhang and Du, ACM TOS 17(3), 2021, §4.2; in Fig. 18 they are set by hand). A guard
//! that may have `f` is rewritten after `f` arrivals, so a write costs about `W / f`; a read goes through half of them,
//! so it costs about `R * f`. Of `w` writes and `r` reads the sum is least at `f = sqrt(W / R * w / r)`. `W / R` is
//! [`REWRITE`]: in modelled persistent memory a floor more is two cache lines in each of three levels to a read, and a
//! write moves its record ten times where guards have one floor.
//!
//! What was asked is remembered over windows, each counting three quarters of the one after it: a number that follows
//! every burst would have guards rewritten for nothing. For the same reason it changes only when it is half as much too
//! large or too small. It is never one, which is another way of compaction; that is chosen by hand.
//!
//! Costs a few instructions each time that a worker looks for work.

use crate::options::FLOORS_BY_MIX;

/// What rewriting a record costs, in reads of a floor.
const REWRITE: u64 = 64;
/// A window has an operation for so many bytes of a memtable: that of some memtables' entries.
const WINDOW_SHARE: u64 = 32;

/// The mix of reads and writes, and the floors that are best for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    floors: u32,
    /// Of the last windows.
    reads: u64,
    writes: u64,
    /// All there had been at the end of the last window; what was before this began to look does not count.
    end: Option<(u64, u64)>,
    window: u64,
}

impl Mix {
    /// For a store whose memtables have so many bytes; as for writes alone until something else is seen.
    pub(crate) fn new(memtable_bytes: u64) -> Self {
        let (floors, window) = (*FLOORS_BY_MIX.end(), memtable_bytes / WINDOW_SHARE);
        Self { floors, reads: 0, writes: 0, end: None, window }
    }

    /// How many floors a guard may have.
    pub(crate) fn floors(&self) -> u32 {
        self.floors
    }

    /// Takes up what there has been so far: lookups and seeks, and entries written. Whether the number is another now.
    pub(crate) fn look(&mut self, reads: u64, writes: u64) -> bool {
        let end = *self.end.get_or_insert((reads, writes));
        let since = (reads.saturating_sub(end.0), writes.saturating_sub(end.1));
        if since.0 + since.1 < self.window {
            return false;
        }
        self.end = Some((reads, writes));
        self.reads = self.reads - self.reads.div_ceil(4) + since.0;
        self.writes = self.writes - self.writes.div_ceil(4) + since.1;
        let best = (REWRITE * self.writes / self.reads.max(1)).isqrt() as u32;
        let best = best.clamp(*FLOORS_BY_MIX.start(), *FLOORS_BY_MIX.end());
        let differs = best * 2 >= self.floors * 3 || best * 3 <= self.floors * 2;
        if differs {
            self.floors = best;
        }
        differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store's that was read a lot before it was opened.
    fn begun() -> Mix {
        let mut mix = Mix::new(100 * WINDOW_SHARE);
        assert!(!mix.look(1_000_000, 0));
        mix
    }

    /// Windows of so many reads and writes, together a hundred; the number after each.
    fn after(mix: &mut Mix, (reads, writes): (u64, u64), windows: u64) -> Vec<u32> {
        let ended = |_| {
            let end = mix.end.unwrap();
            mix.look(end.0 + reads, end.1 + writes);
            mix.floors()
        };
        (0..windows).map(ended).collect()
    }

    fn settled(reads: u64, writes: u64) -> u32 {
        after(&mut begun(), (reads, writes), 20)[19]
    }

    #[test]
    fn more_reads_make_for_fewer_floors() {
        let of = |writes| settled(100 - writes, writes);
        assert_eq!([100, 80, 50, 20, 5, 0].map(of), [10, 10, 10, 4, 2, 2]);
    }

    #[test]
    fn a_mix_that_stays_settles_and_one_window_changes_little() {
        let mut mix = begun();
        let writing = after(&mut mix, (10, 90), 10);
        assert_eq!(writing, [10; 10]);
        // One window in between changes little, many everything; and then it stays.
        assert_eq!(after(&mut mix, (100, 0), 1), [10]);
        assert_eq!(after(&mut mix, (10, 90), 3), [10; 3]);
        let reading = after(&mut mix, (100, 0), 20);
        assert!(reading.is_sorted_by(|a, b| a >= b) && reading[19] == 2, "{reading:?}");
        let back = after(&mut mix, (10, 90), 20);
        assert!(back.is_sorted() && back[19] == 10, "{back:?}");
    }

    #[test]
    fn nothing_changes_within_a_window() {
        let mut mix = begun();
        assert!(!mix.look(1_000_000 + mix.window - 1, 0));
        assert!(mix.look(1_000_000 + mix.window, 0));
        assert_eq!(mix.floors(), 2);
        // Counters that begin anew are no reads.
        assert!(!mix.look(0, 0));
    }
}
