//! Keys and values as readers get them.

use crate::cache::{BlockSlice, Object};
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A value. Clones are cheap; as long as one lives, it holds its bytes, or the block or page they lie in.
#[derive(Clone)]
pub struct Value {
    bytes: Bytes,
}

#[derive(Clone)]
enum Bytes {
    Copied(Arc<[u8]>),
    InBlock(BlockSlice),
    Object(Object),
}

impl Value {
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        Self { bytes: Bytes::Copied(bytes.into()) }
    }

    pub(crate) fn shared(bytes: Arc<[u8]>) -> Self {
        Self { bytes: Bytes::Copied(bytes) }
    }

    pub(crate) fn in_block(slice: BlockSlice) -> Self {
        Self { bytes: Bytes::InBlock(slice) }
    }

    pub(crate) fn object(object: Object) -> Self {
        Self { bytes: Bytes::Object(object) }
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Copied(bytes) => bytes,
            Bytes::InBlock(slice) => slice,
            Bytes::Object(object) => object.value(),
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        self[..] == *other.as_ref()
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}
