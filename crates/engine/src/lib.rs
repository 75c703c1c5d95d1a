//! Cuesta: a persistent key-value store for machines with a small fast tier and a big cheap one.

mod error;
mod format;
mod key;

pub use error::{Error, ErrorKind, Result};
pub use key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
