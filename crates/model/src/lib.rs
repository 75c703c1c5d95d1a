//! Storage devices as numbers, for runs on hardware that is not there.
//!
//! A [`Spec`] states a device: latencies, bandwidth, channels, endurance, price. Presets come from the papers' tables;
//! a TOML file states others. A [`Modelled`] medium turns a spec into the moment at which each call is done, and
//! [`cuesta_device::PacedDirectory`] lets the caller wait for it. What the model leaves out (garbage collection, caches
//! in the device, wear) and how well its waits are kept is in `docs/device-model.md`.

mod cost;
mod counts;
mod medium;
mod spec;

pub use cost::{dollars_per_gigabyte, lifetime_years};
pub use counts::{COUNTS_BYTES, Counts, POINT_READ_MAX, Report, TIERS_MAX, Tier, environment, kernel_bytes};
pub use medium::{Kept, Modelled};
pub use spec::{Latency, Spec, parse};
