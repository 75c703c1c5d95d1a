//! Targets of libFuzzer, one a format; what they do is `cuesta_sim::rows::feed`.

pub use cuesta_sim::rows::{Format, feed};
pub use libfuzzer_sys::fuzz_target;

use cuesta_sim::planted::{Bug, wake};

/// To be called once: stores that have files of the format, and no checksums.
pub fn begin(format: Format) {
    format.kind().into_iter().for_each(cuesta_sim::set_kind);
    wake(Some(Bug::ChecksumsSkipped));
}

/// The target of a format.
#[macro_export]
macro_rules! target {
    ($format:ident) => {
        $crate::fuzz_target!(
            init: $crate::begin($crate::Format::$format),
            |input: &[u8]| $crate::feed($crate::Format::$format, input)
        );
    };
}
