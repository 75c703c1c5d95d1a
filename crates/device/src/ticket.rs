//! What a submitted read leaves in the caller's hand.

use crate::AlignedBuf;
use std::fmt::Debug;
use std::io;

/// A read under way, as the device that does it sees it.
pub trait Pending: Send + Debug {
    /// Waits for the read; what [`Ticket::wait`] promises.
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf>;
}

/// A read that was submitted. Dropped, the read may or may not be done; nobody learns of it.
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
    /// A read whose outcome is known.
    pub fn done(result: io::Result<AlignedBuf>) -> Self {
        Self { state: State::Done(result) }
    }

    /// A read under way.
    pub fn pending(read: Box<dyn Pending>) -> Self {
        Self { state: State::Pending(read) }
    }

    /// Waits for the read and hands the filled buffer back.
    ///
    /// # Errors
    /// As [`crate::Device::read_at`].
    pub fn wait(self) -> io::Result<AlignedBuf> {
        match self.state {
            State::Done(result) => result,
            State::Pending(read) => read.wait(),
        }
    }
}
