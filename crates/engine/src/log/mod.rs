//! The log: what was acknowledged and is not yet in a table.
//!
//! A chain of files, each a header and then records ([`crate::format::record`]). A file is filled, sealed with a
//! record that names the next one, and retired once every entry in it is in a table; a retired file is renamed and
//! filled again, which spares the file system from growing a new one. Stale records in it cannot be mistaken: the
//! file's number is part of every checksum.
//!
//! One thread at a time owns the [`LogWriter`] (whoever leads a group of writes); readers exist only at open.
//!
//! Cost: an append is one write call and no copy beyond the group's buffer; a sync is one call for the current file,
//! and one for each earlier file that was sealed since the last sync. On persistent memory an append is one copy and no
//! call, and a sync writes back each cache line that was appended to, and ends with one fence.

mod batch;
mod reader;
mod writer;

pub(crate) use batch::{BatchEntries, put_entry, range_tombstone};
pub(crate) use reader::{Chain, RecordReader, Replayed, Step, check_manifest_end, replay};
pub(crate) use writer::{EXTEND_BYTES, LogWriter, MANIFEST_END_BYTES, NextLog, SEAL_BYTES};
