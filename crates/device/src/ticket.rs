//! What a submitted read leaves in the caller's hand.

use crate::AlignedBuf;
use std::fmt::Debug;
use std::io;

/// A read or a write under way, as the device that does it sees it.
pub trait Pending: Send + Debug {
    /// Waits for it; what [`Ticket::wait`] promises.
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf>;
}

/// A read or a write that was submitted. Dropped, it may or may not be done; nobody learns of it.
#[derive(Debug)]
pub struct Ticket {
    state: State,
}

#[derive(Debug)]
enum State {
    Done(io::Result<AlignedBuf>),
    Pending(Box<dyn Pending>),
}

impl Ticket {
    /// One whose outcome is known.
    pub fn done(result: io::Result<AlignedBuf>) -> Self {
        Self { state: State::Done(result) }
    }

    /// One under way.
    pub fn pending(transfer: Box<dyn Pending>) -> Self {
        Self { state: State::Pending(transfer) }
    }

    /// Waits for it and hands the buffer back, filled by a read.
    ///
    /// # Errors
    /// As [`crate::Device::read_at`] and [`crate::Device::write_at`].
    pub fn wait(self) -> io::Result<AlignedBuf> {
        match self.state {
            State::Done(result) => result,
            State::Pending(transfer) => transfer.wait(),
        }
    }
}
