//! Bytes that lie in memory and are read where they lie.

#![expect(unsafe_code, reason = "bytes that are not the heap's are reached by pointers")]

use crate::mapped::Toll;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, io};

/// Keeps the bytes of a [`View`] where they are.
pub trait Holder: Send + Sync {
    /// Whether what was read so far was there: a mapped file can lose bytes, which then read as zeros.
    ///
    /// # Errors
    /// What became of the mapping.
    fn check(&self) -> io::Result<()>;
}

/// Bytes that do not change and stay where they are as long as anyone holds a view of them. A clone is another holder,
/// not a copy.
#[derive(Clone)]
pub struct View {
    bytes: NonNull<[u8]>,
    holder: Arc<dyn Holder>,
    /// Of memory that is counted.
    toll: Option<Arc<Toll>>,
}

// SAFETY: the bytes are not written as long as the holder lives (`View::new`), and the holder may be shared and sent.
unsafe impl Send for View {}
// SAFETY: as above; a view gives out shared references only.
unsafe impl Sync for View {}

impl View {
    /// A view of `bytes`, which `holder` keeps.
    ///
    /// # Safety
    /// As long as `holder` lives, the bytes can be read and nobody writes them.
    pub(crate) unsafe fn new(bytes: NonNull<[u8]>, holder: Arc<dyn Holder>) -> Self {
        Self { bytes, holder, toll: None }
    }

    /// The same bytes, of which every touch is counted and paid for.
    #[must_use]
    pub fn counted(self, toll: Arc<Toll>) -> Self {
        Self { toll: Some(toll), ..self }
    }

    /// Some of its bytes; `None` when it does not have them.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let bytes = NonNull::from(self.get(range)?);
        Some(Self { bytes, holder: self.holder.clone(), toll: self.toll.clone() })
    }

    /// These bytes are about to be read: where that is counted, it is counted here.
    pub fn touch(&self, range: Range<usize>) {
        if let Some(toll) = &self.toll {
            let start = self.bytes.as_ptr().cast::<u8>() as usize;
            toll.read(start + range.start..start + range.end);
        }
    }

    /// Whether all that was read of it so far was there. To be asked after reading: a mapped file that is cut short by
    /// somebody else, or whose medium fails, reads as zeros from then on.
    ///
    /// # Errors
    /// What became of the mapping.
    pub fn check(&self) -> io::Result<()> {
        self.holder.check()
    }
}

impl Holder for Vec<u8> {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

impl From<Vec<u8>> for View {
    fn from(bytes: Vec<u8>) -> Self {
        let holder = Arc::new(bytes);
        let bytes = NonNull::from(holder.as_slice());
        // SAFETY: the vector lives in the holder, and nobody can change it there.
        unsafe { Self::new(bytes, holder) }
    }
}

impl Deref for View {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: what `View::new` asks for.
        unsafe { self.bytes.as_ref() }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in memory", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_the_whole() {
        let view = View::from(vec![1, 2, 3, 4]);
        let part = view.part(1..3).and_then(|part| part.part(1..2)).expect("it has them");
        assert!(view.part(3..5).is_none() && view.part(4..4).is_some());
        drop(view);
        assert_eq!(part[..], [3]);
        part.check().expect("the heap loses nothing");
    }
}
