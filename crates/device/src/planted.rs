//! Bugs that are compiled in for the simulation alone, asleep: the engine wakes them with its own, one at a time.

/// A step towards durable bytes in persistent memory that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LeftOut {
    /// The fence that ends a write-back.
    Fence = 1,
    /// All of it, for files of extents.
    Extents,
}

#[cfg(feature = "planted")]
static LEFT_OUT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Leaves this step out from here on, in the whole process, or none.
#[cfg(feature = "planted")]
pub fn leave_out(step: Option<LeftOut>) {
    LEFT_OUT.store(step.map_or(0, |step| step as u8), std::sync::atomic::Ordering::Relaxed);
}

/// Whether `step` is left out.
#[inline(always)]
pub(crate) fn leaves_out(step: LeftOut) -> bool {
    #[cfg(feature = "planted")]
    return LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) == step as u8;
    #[cfg(not(feature = "planted"))]
    {
        _ = step;
        false
    }
}
