//! Which cache lines of persistent memory a thread touches, and what they cost more than ordinary memory's.
//!
//! A processor does not say how often a program reached into which memory, so who reads a view says it
//! ([`crate::View::touch`]). Lines are counted once for each operation ([`begin_operation`]): the next touches are in
//! the processor's cache. Where memory stands for slower memory, each line is a debt, and what a thread owes is spun
//! off when it is above a microsecond, as a clock cannot be asked for less. Views of memory that is what it is count
//! nothing.

use super::LINE_BYTES;
use cuesta_sched::Sched;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A debt is paid from here on.
const DEBT_MAX: Duration = Duration::from_micros(1);
/// A thread tells all others of what it touched after so many lines.
const TELL_LINES: u64 = 128;
/// Lines that are known to be touched in one operation; one that touches more begins anew.
const SEEN_MAX: usize = 4096;

/// What a line costs more than one of ordinary memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// To be read.
    pub read: Duration,
    /// To be written back.
    pub write: Duration,
}

impl Timing {
    /// Memory with a battery: as fast as any.
    pub const NVDIMM: Self = Self { read: Duration::ZERO, write: Duration::ZERO };
    /// Phase-change memory: 100 and 400 ns, of which ordinary memory's 50 are paid anyway.
    pub const PCM: Self = Self { read: Duration::from_nanos(50), write: Duration::from_nanos(350) };
}

/// Counts what is touched, and has it paid for.
#[derive(Debug)]
pub struct Toll {
    timing: Timing,
    sched: Sched,
    /// Of all threads: lines and bytes that were read, and lines written back.
    told: [AtomicU64; 3],
}

/// What a thread has touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Cache lines, once for each operation.
    pub lines: u64,
    /// Bytes, however often.
    pub bytes: u64,
    /// Lines written back.
    pub written: u64,
}

#[derive(Default)]
struct Thread {
    touched: Touched,
    /// Of this, what was told.
    told: Touched,
    debt: Duration,
    /// Line and operation, hashed by line.
    seen: Vec<(u64, u64)>,
    seen_now: usize,
    operation: u64,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// From here on this thread's lines count anew.
pub fn begin_operation() {
    THREAD.with_borrow_mut(Thread::begin);
}

/// What this thread has touched of all that is counted, since it began.
pub fn touched() -> Touched {
    THREAD.with_borrow(|thread| thread.touched)
}

impl Thread {
    fn begin(&mut self) {
        self.operation += 1;
        self.seen_now = 0;
    }

    /// Whether the operation touches this line for the first time.
    fn is_new(&mut self, line: u64) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![(0, 0); 2 * SEEN_MAX];
            self.begin();
        }
        if self.seen_now == SEEN_MAX {
            self.begin();
        }
        // Fibonacci hashing: neighbours go far from each other.
        let mut at = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % self.seen.len();
        while self.seen[at].1 == self.operation {
            if self.seen[at].0 == line {
                return false;
            }
            at = (at + 1) % self.seen.len();
        }
        self.seen[at] = (line, self.operation);
        self.seen_now += 1;
        true
    }
}

impl Toll {
    /// Counts, and spins by the clock of `sched`, which must be a real one where lines cost anything.
    pub fn new(sched: &Sched, timing: Timing) -> Self {
        Self { timing, sched: sched.clone(), told: Default::default() }
    }

    /// What all threads have touched, but for the last lines of each, 128 at most, which it has not told yet. A thread
    /// tells the toll that it pays to at that moment.
    pub fn touched(&self) -> Touched {
        let [lines, bytes, written] = self.told.each_ref().map(|count| count.load(Ordering::Relaxed));
        Touched { lines, bytes, written }
    }

    /// These addresses are read.
    pub(crate) fn read(&self, addresses: Range<usize>) {
        if addresses.is_empty() {
            return;
        }
        let (first, last) = (addresses.start as u64 / LINE_BYTES, (addresses.end as u64 - 1) / LINE_BYTES);
        THREAD.with_borrow_mut(|thread| {
            let new = (first..=last).filter(|line| thread.is_new(*line)).count() as u32;
            thread.touched.lines += u64::from(new);
            thread.touched.bytes += addresses.len() as u64;
            self.owe(thread, self.timing.read * new);
        });
    }

    /// So many lines are written back.
    pub(crate) fn written(&self, lines: u64) {
        THREAD.with_borrow_mut(|thread| {
            thread.touched.written += lines;
            self.owe(thread, self.timing.write * lines.min(u64::from(u32::MAX)) as u32);
        });
    }

    fn owe(&self, thread: &mut Thread, debt: Duration) {
        let (touched, told) = (thread.touched, thread.told);
        let lines = touched.lines + touched.written - told.lines - told.written;
        if lines >= TELL_LINES {
            let more =
                [touched.lines - told.lines, touched.bytes - told.bytes, touched.written - told.written];
            for (count, more) in self.told.iter().zip(more) {
                count.fetch_add(more, Ordering::Relaxed);
            }
            thread.told = touched;
        }
        thread.debt += debt;
        if thread.debt > DEBT_MAX {
            let until = self.sched.now() + std::mem::take(&mut thread.debt);
            while self.sched.now() < until {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;
    use std::sync::Arc;

    fn counted(timing: Timing) -> View {
        View::from(vec![0; 1 << 20]).counted(Arc::new(Toll::new(&Sched::real(1), timing)))
    }

    fn lines_of(work: impl FnOnce()) -> u64 {
        let before = touched().lines;
        work();
        touched().lines - before
    }

    #[test]
    fn a_line_counts_once_an_operation() {
        let view = counted(Timing::NVDIMM);
        // Where a line begins in it.
        let at = view.as_ptr().align_offset(LINE_BYTES as usize);
        begin_operation();
        assert_eq!(lines_of(|| view.touch(at..at + 1)), 1);
        assert_eq!(lines_of(|| view.touch(at + 63..at + 65)), 1, "the second of the two");
        assert_eq!(lines_of(|| view.touch(at..at)), 0);
        begin_operation();
        assert_eq!(lines_of(|| view.touch(at..at + 65)), 2);
        assert_eq!(lines_of(|| view.touch(at..at + (1 << 19))), (1 << 19) / LINE_BYTES - 2);
        assert_eq!(lines_of(|| View::from(vec![0; 10]).touch(0..10)), 0, "memory that is what it is");
    }

    #[test]
    fn what_is_owed_is_paid_by_the_clock() {
        let sched = Sched::real(1);
        let view = counted(Timing::PCM);
        let began = sched.now();
        for i in 0..200 {
            begin_operation();
            view.touch(i * 640..i * 640 + 640);
        }
        // Ten or eleven lines each, and less than a microsecond still owed.
        assert!(sched.now() - began >= Duration::from_nanos(200 * 10 * 50 - 1000));
        let (began, toll) = (sched.now(), Toll::new(&sched, Timing::PCM));
        toll.written(1000);
        assert!(sched.now() - began >= Duration::from_micros(350));
        // With what was not told before.
        assert!((1000..1000 + TELL_LINES).contains(&toll.touched().written), "{:?}", toll.touched());
    }
}
