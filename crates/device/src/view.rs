//! Bytes that lie in memory and are read where they lie.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that do not change and stay where they are as long as anyone holds a view of them. A clone is another holder, not
/// a copy.
#[derive(Clone)]
pub struct View {
    bytes: Arc<[u8]>,
}

impl From<Vec<u8>> for View {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into() }
    }
}

impl Deref for View {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in memory", self.len())
    }
}
