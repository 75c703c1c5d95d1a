//! Whole stores run from one seed, on a disk that can be cut and made to fail, against a model outside the store.
//!
//! [`Model`] is the oracle: every state that the store has acknowledged, in the one order of commits. [`Run`] drives
//! random operations from a seed, cuts or kills at any point, also during recovery, reopens, and checks that what is
//! found is a state the durability level allows. [`scenarios`] are short scripts for exhaustive cuts. [`rows`] is the
//! table of faults; [`planted`] shows that it finds bugs. [`kernel`] does to real processes and file systems what can
//! be done to them.
//!
//! A violation is told with one line that replays it.

mod fixture;
pub mod kernel;
mod model;
pub mod planted;
pub mod rows;
mod run;
pub mod scenarios;

pub use fixture::{Kind, contents, kind, options, options_of, set_kind, world};
pub use model::{Contents, Model};
pub use run::{Run, RunConfig, shrink};
