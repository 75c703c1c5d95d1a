//! What can be made to go wrong: a list of [`Fault`]s, each a filter, a time and an effect.
//!
//! A fault counts the operations that pass its filter and that its effect can apply to, and strikes at the one asked
//! for. The first fault of the list that strikes wins. Plain data, used under the disk's lock; the cost is a look at
//! each fault an operation.

use super::op::{Op, OpKind};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// An error that a medium or file system returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EIO.
    Io,
    /// ENOSPC: `ErrorKind::StorageFull`.
    NoSpace,
    /// EDQUOT: `ErrorKind::QuotaExceeded`.
    Quota,
    /// EAGAIN: `ErrorKind::WouldBlock`.
    Again,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::Quota => Errno::DQUOT,
            Self::Again => Errno::AGAIN,
        }
        .into()
    }
}

/// What a failed sync leaves behind; real systems do each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFailure {
    /// The error comes once. What was not durable counts as clean: reads return the new state, no later sync writes
    /// it, a power cut brings the old one back.
    CleanNew,
    /// The error comes once, and reads return the old, durable state again.
    CleanOld,
    /// This and all later syncs of the same file or directory fail; what was not durable stays so.
    Sticky,
}

/// What a fault does to the operation it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is done and the error is returned.
    Fail(Failure),
    /// A write does only its first `bytes` bytes, then fails.
    Short {
        /// How many bytes are written.
        bytes: usize,
        /// The error after them.
        failure: Failure,
    },
    /// The call panics, as a bug below the store would.
    Panics,
    /// A signal interrupts the call. The device retries by itself; only [`super::Counts::interrupted`] tells.
    Interrupted,
    /// A sync of a file or directory fails.
    SyncFails(SyncFailure),
    /// A sync of a file or directory returns `Ok` and makes nothing durable; a later honest one still does.
    SyncLies,
    /// A read returns the durable state if that differs from what was written since, else what the last sync of the
    /// file overwrote. Bytes that never were anything else are returned as they are.
    StaleRead,
    /// A read returns the bytes 4,096 before its place (after it, at the start of the file); zeros past the end.
    MisdirectedRead,
    /// A read returns its bytes after so long, on the scheduler's clock.
    LateRead(Duration),
    /// A write lands 4,096 bytes before its place (after it, at the start of the file).
    MisdirectedWrite,
}

impl Effect {
    fn fits(self, kind: OpKind) -> bool {
        match self {
            Self::Fail(_) | Self::Panics | Self::Interrupted => true,
            Self::Short { .. } | Self::MisdirectedWrite => kind == OpKind::Write,
            Self::SyncFails(_) | Self::SyncLies => kind.is_sync(),
            Self::StaleRead | Self::MisdirectedRead | Self::LateRead(_) => kind == OpKind::Read,
        }
    }
}

/// One thing to go wrong. Made for the first operation that the effect fits; narrowed by the other methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    effect: Effect,
    kind: Option<OpKind>,
    tier: Option<usize>,
    prefix: String,
    place: Option<Range<u64>>,
    first: u64,
    repeats: bool,
    seen: u64,
}

impl Fault {
    /// Strikes the first operation that `effect` fits.
    pub fn new(effect: Effect) -> Self {
        let (prefix, place) = (String::new(), None);
        Self { effect, kind: None, tier: None, prefix, place, first: 1, repeats: false, seen: 0 }
    }

    /// Only operations of this kind.
    pub fn on(self, kind: OpKind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Only operations of this tier.
    pub fn in_tier(self, tier: usize) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// Only files whose name begins so; a rename is of the old name, and operations of a directory have no name.
    pub fn named(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Only operations that are about some of these bytes of a file.
    pub fn touching(self, place: Range<u64>) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Strikes the `nth` operation that passes, once; the first is 1.
    pub fn nth(self, nth: u64) -> Self {
        Self { first: nth, repeats: false, ..self }
    }

    /// Strikes the `nth` operation that passes and all after it.
    pub fn since(self, nth: u64) -> Self {
        Self { first: nth, repeats: true, ..self }
    }

    /// Counts `op` if it passes; the effect if the fault strikes it.
    pub(super) fn meet(&mut self, op: &Op<'_>) -> Option<Effect> {
        let passes = self.effect.fits(op.kind)
            && self.kind.is_none_or(|kind| kind == op.kind)
            && self.tier.is_none_or(|tier| tier == op.tier)
            && op.name.starts_with(&self.prefix)
            && self
                .place
                .as_ref()
                .is_none_or(|place| op.offset < place.end && place.start < op.offset + op.len);
        if !passes {
            return None;
        }
        self.seen += 1;
        let strikes = if self.repeats { self.seen >= self.first } else { self.seen == self.first };
        strikes.then_some(self.effect)
    }
}
