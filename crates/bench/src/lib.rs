//! Workloads (YCSB's, and some like those of production systems), their generators, and the runner that measures them.
//!
//! Nothing here knows an engine: a contender implements [`Store`]. Every choice follows from the seed and the
//! thread's number, so two contenders get the same operations. Every value says which record it belongs to and
//! carries a checksum of itself, so each read is checked, and a wrong answer is an error rather than a number.

#![allow(clippy::disallowed_methods, reason = "measuring needs the real clock")]

pub mod contender;
mod distribution;
pub mod oracle;
mod record;
mod runner;
mod trace;
mod workload;

pub use distribution::{Chooser, Distribution, Permutation, Zipfian};
pub use record::{KEY_BYTES, Key, Keys, VALUE_BYTES_MIN, check_value, key_of, value_of};
pub use runner::{
    Config, LatencySummary, Length, Measured, OperationResult, PhaseResult, SLICE, Store, run_phase,
};
pub use trace::{TraceStep, play, read_trace};
pub use workload::{Mix, Operation, Values, Workload};
