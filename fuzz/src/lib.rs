//! Targets of libFuzzer, one a format; what they do is `cuesta_sim::rows::feed`.

pub use cuesta_sim::planted::{Bug, wake};
pub use cuesta_sim::rows::{Format, feed};
pub use libfuzzer_sys::fuzz_target;

/// The target of a format.
#[macro_export]
macro_rules! target {
    ($format:ident) => {
        $crate::fuzz_target!(
            init: $crate::wake(Some($crate::Bug::ChecksumsSkipped)),
            |input: &[u8]| $crate::feed($crate::Format::$format, input)
        );
    };
}
