//! The store from outside, on real files.

mod basics;
mod kill;
