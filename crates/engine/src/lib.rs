//! Cuesta: a persistent key-value store for machines with a small fast tier and a big cheap one.
//!
//! Open a [`Db`] with [`Options`], put and get bytes, write [`Batch`]es that are all or nothing, scan ranges both
//! ways, look back through [`Snapshot`]s, keep separate sets of keys in [`Keyspace`]s. Calls block; handles are
//! `Send + Sync`. What an acknowledgement means is a choice: [`Durability`].
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("cuesta-lib-{}", std::process::id()));
//! use cuesta::{Batch, Db, Options, Range};
//!
//! let db = Db::open(&Options::at(&dir))?;
//! let mut batch = Batch::new();
//! batch.put(b"a", b"1").put(b"b", b"2").delete(b"c");
//! db.write(batch)?;
//!
//! let before = db.snapshot()?;
//! db.put(b"a", b"3")?;
//! assert_eq!(before.get(b"a")?.as_deref(), Some(&b"1"[..]));
//!
//! let keys: Result<Vec<_>, _> = db.scan(Range::all())?.rev().map(|pair| pair.map(|(key, _)| key)).collect();
//! assert_eq!(keys?, [b"b", b"a"]);
//! # drop(before);
//! # db.close()?;
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok::<(), cuesta::Error>(())
//! ```
//!
//! Linux only. The formats are of version 1 and may change before 0.1.

#[cfg(not(target_os = "linux"))]
compile_error!("Cuesta runs on Linux only");

mod cache;
mod compaction;
mod db;
mod engine;
mod error;
mod files;
mod format;
mod garbage;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod key;
mod live;
mod log;
mod memory;
mod memtable;
mod merge;
mod options;
#[doc(hidden)]
pub mod planted;
mod policy;
mod profile;
mod range_tombstones;
mod repair;
mod size_class;
mod store;
mod table;
mod tier;
mod tracker;
mod value;
mod version;

pub use cache::HitCounts;
pub use cuesta_device::{Cause, Count, Counters};
pub use db::{Batch, Cursor, Db, Keyspace, KeyspaceStats, Range, Scan, Snapshot};
pub use engine::explain::{Explanation, Holding, VersionFound};
pub use engine::open::World;
pub use engine::operations::{AnswerStats, LatencyStats, OperationCounts};
pub use engine::stats::{
    CacheStats, LevelStats, MemoryStats, ObjectStats, OpenStats, Ratios, Stats, StoreState, TierStats,
};
pub use error::{Error, ErrorKind, Result};
pub use files::{Problem, VerifyProgress, VerifyReport, inspect, inspect_table, verify, verify_in};
pub use key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use live::{Question, ask};
pub use options::{Create, Durability, MEMORY_BYTES_MIN, Options, TierOptions};
pub use profile::{Demotion, Profile, PromoteReads};
pub use repair::{Damage, KeyIn, Lost, Repair, RepairReport, repair, repair_in};
pub use table::Compression;
pub use tier::{MEMORY_NAME, mapped_tier};
pub use value::Value;
