//! What modelled devices counted: of a preloaded library, for whoever wants to know while the process runs, and of a
//! store inside this process.
//!
//! One page of a file that the preloaded library maps and counts in (`docs/device-model.md`): 64-bit little-endian
//! numbers, [`TIERS_MAX`] tiers of [`Tier::FIELDS`] each, then those of the whole process. Numbers only grow, and each
//! is read by itself: those of one moment may lie some calls apart.

use serde::{Deserialize, Serialize};

/// The variables of the environment by which the library is told what to do.
pub mod environment {
    /// Devices by tier, as for [`crate::parse`].
    pub const MODELS: &str = "CUESTA_MODEL";
    /// Where tiers lie: `fast=/a,capacity=/b`. One without a model is only counted.
    pub const PATHS: &str = "CUESTA_MODEL_PATHS";
    /// Bytes of page cache that buffered files are modelled to have.
    pub const PAGE_CACHE: &str = "CUESTA_MODEL_PAGE_CACHE";
    /// Where the counts go while the process runs.
    pub const COUNTS: &str = "CUESTA_MODEL_COUNTS";
    /// Where the report goes when the process exits; `%p` is its number.
    pub const REPORT: &str = "CUESTA_MODEL_REPORT";
    /// By which latencies are drawn.
    pub const SEED: &str = "CUESTA_MODEL_SEED";
}

/// Most tiers that a process has.
pub const TIERS_MAX: usize = 4;
/// Bytes of the file.
pub const COUNTS_BYTES: usize = 4096;

/// Longest read that counts as a lookup's.
pub const POINT_READ_MAX: u64 = 64 << 10;

/// Of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// Reads that the device was asked for.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes that the device was asked for.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Nanoseconds that callers waited, all together.
    pub waited_nanos: u64,
    /// Calls that took longer for real than by the model.
    pub late: u64,
    /// Reads that the modelled page cache answered.
    pub cached_reads: u64,
    /// Of the reads, those of [`POINT_READ_MAX`] bytes or less: lookups, since merges read more at once.
    pub point_reads: u64,
}

/// Of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By tier, in the order in which they were named.
    pub tiers: [Tier; TIERS_MAX],
    /// Bytes of all reads seen, of whatever file.
    pub seen_read_bytes: u64,
    /// Bytes of all writes seen, of whatever file.
    pub seen_written_bytes: u64,
    /// Nanoseconds of the processor that waiting took, reckoned from a sample.
    pub burnt_nanos: u64,
    /// Mappings and copies inside the kernel that tiers' files were refused, and asynchronous I/O of any: they have no
    /// model.
    pub refused: u64,
}

impl Tier {
    /// Numbers of each.
    pub const FIELDS: usize = 9;

    fn from_numbers(n: &[u64]) -> Self {
        Self {
            reads: n[0],
            read_bytes: n[1],
            writes: n[2],
            written_bytes: n[3],
            flushes: n[4],
            waited_nanos: n[5],
            late: n[6],
            cached_reads: n[7],
            point_reads: n[8],
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
            waited_nanos: self.waited_nanos - before.waited_nanos,
            late: self.late - before.late,
            cached_reads: self.cached_reads - before.cached_reads,
            point_reads: self.point_reads - before.point_reads,
        }
    }
}

impl Counts {
    /// Numbers of all.
    pub const FIELDS: usize = TIERS_MAX * Tier::FIELDS + 4;

    /// From the numbers in their order.
    pub fn from_numbers(numbers: &[u64; Self::FIELDS]) -> Self {
        let (tiers, rest) = numbers.split_at(TIERS_MAX * Tier::FIELDS);
        let mut counts = Self {
            seen_read_bytes: rest[0],
            seen_written_bytes: rest[1],
            burnt_nanos: rest[2],
            refused: rest[3],
            ..Self::default()
        };
        for (tier, numbers) in counts.tiers.iter_mut().zip(tiers.chunks_exact(Tier::FIELDS)) {
            *tier = Tier::from_numbers(numbers);
        }
        counts
    }

    /// From the file's bytes; `None` if it is too short to be one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0; Self::FIELDS];
        let (words, _) = bytes.as_chunks::<8>();
        for (i, number) in numbers.iter_mut().enumerate() {
            *number = u64::from_le_bytes(*words.get(i)?);
        }
        Some(Self::from_numbers(&numbers))
    }

    /// What was counted since `before`, which must be earlier.
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = Self {
            seen_read_bytes: self.seen_read_bytes - before.seen_read_bytes,
            seen_written_bytes: self.seen_written_bytes - before.seen_written_bytes,
            burnt_nanos: self.burnt_nanos - before.burnt_nanos,
            refused: self.refused - before.refused,
            ..Self::default()
        };
        for (i, tier) in counts.tiers.iter_mut().enumerate() {
            *tier = self.tiers[i].since(&before.tiers[i]);
        }
        counts
    }
}

/// Bytes that this process has read and written so far, as the kernel counts them; `None` where it does not tell.
pub fn kernel_bytes() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
    Some([field("rchar:")?, field("wchar:")?])
}

/// What a process says of its modelled devices when it exits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What tiers are called, in the order of the counts.
    pub names: Vec<String>,
    /// All that was counted.
    pub counts: Counts,
    /// Bytes read by the process, as the kernel counts them.
    pub kernel_read_bytes: u64,
    /// Bytes written by it.
    pub kernel_written_bytes: u64,
    /// Nanoseconds of processor that it took; of a store inside the measuring process, that its phases did.
    pub cpu_nanos: u64,
}

/// The kernel's bytes may differ from those seen by so much.
const BYTES_APART_MAX: f64 = 0.02;
/// Bytes that need no explanation: what the C library itself reads of the system's files.
const BYTES_IGNORED: u64 = 1 << 20;

impl Report {
    /// Why the run says nothing, if it does not: bytes passed the model by.
    pub fn invalid(&self) -> Option<String> {
        let apart = |kernel: u64, seen: u64| {
            let difference = kernel.abs_diff(seen).saturating_sub(BYTES_IGNORED);
            difference as f64 / kernel.max(1) as f64
        };
        let read = apart(self.kernel_read_bytes, self.counts.seen_read_bytes);
        let written = apart(self.kernel_written_bytes, self.counts.seen_written_bytes);
        (read.max(written) > BYTES_APART_MAX).then(|| {
            format!(
                "bytes passed the model by: it saw {} read and {} written, the kernel {} and {}",
                self.counts.seen_read_bytes,
                self.counts.seen_written_bytes,
                self.kernel_read_bytes,
                self.kernel_written_bytes
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_file_are_those_that_were_counted() {
        let bytes: Vec<u8> = (0..COUNTS_BYTES as u64 / 8).flat_map(u64::to_le_bytes).collect();
        let counts = Counts::from_bytes(&bytes).unwrap();
        let second = counts.tiers[1];
        assert_eq!((second.reads, second.cached_reads, counts.refused), (9, 16, 39));
        let nothing = counts.since(&counts);
        assert_eq!(nothing, Counts::default());
        assert!(Counts::from_bytes(&bytes[..64]).is_none());
    }

    #[test]
    fn a_run_of_which_bytes_passed_the_model_by_is_invalid() {
        const MIB: u64 = 1 << 20;
        let counts =
            Counts { seen_read_bytes: 1000 * MIB, seen_written_bytes: 100 * MIB, ..Counts::default() };
        let report = Report {
            counts,
            kernel_read_bytes: 1010 * MIB,
            kernel_written_bytes: 100 * MIB,
            ..Report::default()
        };
        assert_eq!(report.invalid(), None);
        let off = Report { kernel_written_bytes: 104 * MIB, ..report };
        assert!(off.invalid().unwrap().contains("passed the model by"));
    }
}
