//! The store from outside, on real files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test they are the assertion and the report"
)]

mod basics;
mod fixtures;
mod memory;
mod ranges;
