//! The device model for programs that know nothing of it: a library to be preloaded, which stands between a program and
//! the C library's file calls.
//!
//! ```text
//! CUESTA_MODEL=capacity=qlc CUESTA_MODEL_PATHS=capacity=/dev/shm/x LD_PRELOAD=libcuesta_preload.so program
//! ```
//!
//! `hooks` are the calls, by their names in C. They make the real call first (`real`) and hand what it gave to `tiers`,
//! which know the files of modelled paths and let the caller wait until the device of the model is done. `pages` is the
//! page cache that buffered files are modelled to have, since real bytes in memory would all be cached.
//!
//! Nothing here keeps a lock while it waits or calls. Calls on other files cost one load more. A wait is a sleep; what
//! sleeping takes of the processor is measured on a sample of the waits, so that a run can tell when it measured the
//! model instead of the program (`cuesta_model::Report`). Counts are kept in a mapped file, so that they can be read
//! while the process runs.

#![allow(unsafe_code, reason = "C's own calls, by pointers of C's")]

mod hooks;
mod pages;
mod real;
mod start;
mod tiers;
