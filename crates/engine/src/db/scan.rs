//! Iterators over pairs: [`Scan`] for loops, [`Cursor`] for seeking without a copy.

use super::range::user_key;
use crate::engine::iterate::{Hold, KeyRange, Walk};
use crate::error::Result;
use crate::key::KeyspaceId;
use crate::value::Value;
use crate::version::KeyspaceState;
use std::sync::Arc;

/// Pairs of a range, from either end. Ends with the store's `Closed` error if that is closed, and with `NotFound` if
/// its keyspace is dropped; once it has failed, it stays in error.
#[derive(Debug)]
pub struct Scan {
    hold: Arc<Hold>,
    keyspace: Arc<KeyspaceState>,
    range: KeyRange,
    limit: Option<u64>,
    left: u64,
    front: Option<Walk>,
    back: Option<Walk>,
    /// The last keys handed out at each end; what lies between is left.
    last_front: Option<Vec<u8>>,
    last_back: Option<Vec<u8>>,
    done: bool,
}

impl Scan {
    pub(super) fn new(
        hold: Arc<Hold>,
        keyspace: Arc<KeyspaceState>,
        range: KeyRange,
        limit: Option<u64>,
    ) -> Self {
        let left = limit.unwrap_or(u64::MAX);
        Self {
            hold,
            keyspace,
            range,
            limit,
            left,
            front: None,
            back: None,
            last_front: None,
            last_back: None,
            done: false,
        }
    }

    fn step(&mut self, forward: bool) -> Option<Result<(Vec<u8>, Value)>> {
        if self.done || self.left == 0 {
            return None;
        }
        let (end, last) = match forward {
            true => (&mut self.front, &self.last_front),
            false => (&mut self.back, &self.last_back),
        };
        let walk = end.get_or_insert_with(|| {
            Walk::new(self.hold.clone(), self.keyspace.clone(), self.range.clone(), self.limit)
        });
        let moved = match (forward, last.is_some()) {
            (true, false) => walk.first(),
            (true, true) => walk.next(),
            (false, false) => walk.last(),
            (false, true) => walk.prev(),
        };
        if let Err(error) = moved {
            return Some(Err(error));
        }
        let Some((key, value)) = walk.entry() else {
            self.done = true;
            return None;
        };
        let met = match forward {
            true => self.last_back.as_deref().is_some_and(|back| key >= back),
            false => self.last_front.as_deref().is_some_and(|front| key <= front),
        };
        if met {
            self.done = true;
            return None;
        }
        let pair = (user_key(key).to_vec(), Value::copied(value));
        let last = if forward { &mut self.last_front } else { &mut self.last_back };
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.left -= 1;
        Some(Ok(pair))
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for Scan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

/// A position in a range that can be moved at will. Key and value are borrowed from the cursor, not copied out.
#[derive(Debug)]
pub struct Cursor {
    walk: Walk,
    keyspace: KeyspaceId,
}

impl Cursor {
    pub(super) fn new(walk: Walk, keyspace: KeyspaceId) -> Self {
        Self { walk, keyspace }
    }

    /// To the first pair at or after `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.walk.seek(&self.keyspace.key(key.as_ref()))
    }

    /// To the last pair at or before `key`.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.walk.seek_back(&self.keyspace.key(key.as_ref()))
    }

    /// To the first pair of the range.
    pub fn first(&mut self) -> Result<()> {
        self.walk.first()
    }

    /// To the last pair of the range.
    pub fn last(&mut self) -> Result<()> {
        self.walk.last()
    }

    /// To the following pair; stays past the end if it is there.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor's move, which lends its entry; no iterator can"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.walk.next()
    }

    /// To the preceding pair; stays past the end if it is there.
    pub fn prev(&mut self) -> Result<()> {
        self.walk.prev()
    }

    /// The pair the cursor is on; `None` past either end.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.walk.entry().map(|(key, value)| (user_key(key), value))
    }
}
