//! One file per subcommand: its options, and what it does.

pub(crate) mod bench;
pub(crate) mod contender;
pub(crate) mod delete;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod put;
pub(crate) mod repair;
pub(crate) mod repro;
pub(crate) mod scan;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod verify;
