//! One error type. Its kind tells the caller what to do next; its text says where, what was found, and what to do.

use cuesta_device::is_unreadable;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What went wrong, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request or an option is wrong; nothing was written. Change it.
    Invalid,
    /// There is no store (or keyspace, or file) of that name.
    NotFound,
    /// There already is one.
    Exists,
    /// Another process, or another handle of this one, has the store open.
    Locked,
    /// Bytes on media are not what was written there. The text names tier, file and offset.
    Corrupt {
        /// The file, by name.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// The files are of a newer format, or use a feature that this version does not know.
    Unsupported,
    /// The tier has no room, by its budget or by its medium. Reads go on; writes resume when space returns.
    Full,
    /// An earlier failure closed the store for writes; reads go on. Reopen it.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// The medium or the operating system failed the call.
    Io,
    /// A bug in this library: an invariant did not hold.
    Internal,
}

/// An error of the store. Cheap to clone.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What every fallible call of the store returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: None }) }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the store is closed")
    }

    pub(crate) fn corrupt(file: impl Into<String>, offset: u64, found: impl fmt::Display) -> Self {
        let file = file.into();
        let message = format!("{file} at byte {offset}: {found}");
        Self::new(ErrorKind::Corrupt { file, offset }, message)
    }

    /// An I/O failure; `doing` completes "failed to …" and names the file. No room on the medium is
    /// [`ErrorKind::Full`].
    pub(crate) fn io(doing: impl fmt::Display, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::Full
            }
            _ => ErrorKind::Io,
        };
        let message = format!("failed to {doing}");
        Self { inner: Arc::new(Inner { kind, message, source: Some(Arc::new(source)) }) }
    }

    /// The same failure seen from further out: `context` is put before the text, kind and source stay.
    pub(crate) fn context(self, context: impl fmt::Display) -> Self {
        let message = format!("{context}: {}", self.inner.message);
        let source = self.inner.source.clone();
        Self { inner: Arc::new(Inner { kind: self.inner.kind.clone(), message, source }) }
    }

    /// A later refusal caused by an earlier failure.
    pub(crate) fn caused_by(kind: ErrorKind, message: impl Into<String>, cause: Error) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: Some(Arc::new(cause)) }) }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// True for [`ErrorKind::Corrupt`].
    pub fn is_corrupt(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Corrupt { .. })
    }

    /// Whether bytes are not what was written, or the medium cannot read them.
    pub(crate) fn is_damage(&self) -> bool {
        let source = self.inner.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>());
        self.is_corrupt() || source.is_some_and(is_unreadable)
    }

    /// As [`Error::is_damage`], of a file that is named by a manifest which can be read: it is not of a newer format
    /// than that.
    pub(crate) fn is_damage_of_named(&self) -> bool {
        self.is_damage() || self.inner.kind == ErrorKind::Unsupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.message)?;
        match &self.inner.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.inner.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_ref().map(|source| source.as_ref() as _)
    }
}
