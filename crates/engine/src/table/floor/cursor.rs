//! Walks over one floor, and over all floors of a tree.
//!
//! Each floor of a tree is a source of a merge. Going somewhere is one cascading search for all of them; a step is one of a
//! heap. Keys are put together in a buffer of the floor's cursor, values are not copied.

use super::{Floor, Head, PREFIX_BYTES, Tree};
use crate::error::Result;
use crate::key::{Cursor, Entry, Target, Trailer};
use crate::merge::Merge;
use std::ops::Range;
use std::sync::Arc;

/// A place in one floor.
#[derive(Debug)]
pub(super) struct FloorCursor {
    floor: Arc<Floor>,
    /// `None` past either end.
    at: Option<u32>,
    key: Vec<u8>,
    trailer: Trailer,
    value: Range<usize>,
}

impl FloorCursor {
    pub(super) fn new(floor: Arc<Floor>) -> Self {
        let key = floor.shape.shared.clone();
        Self { floor, at: None, key, trailer: Trailer::LAST, value: 0..0 }
    }

    /// To entry `at`; past the end where there is none.
    fn seat(&mut self, at: Option<u32>) -> Result<()> {
        self.at = None;
        let Some(at) = at.filter(|at| *at < self.floor.entries) else { return Ok(()) };
        let head: Head = self.floor.head(at)?;
        self.key.truncate(self.floor.shape.shared.len());
        self.key.extend_from_slice(&head.prefix[..PREFIX_BYTES.min(head.key_bytes as usize)]);
        if head.rest_bytes() > 0 {
            self.key.extend_from_slice(self.floor.rest(&head)?);
        }
        self.value = self.floor.value_range(&head)?;
        self.trailer = head.trailer;
        self.at = Some(at);
        Ok(())
    }

    /// To the place that `target` means, given the first entry at or behind its key.
    fn seat_at(&mut self, target: Target<'_>, bound: u32) -> Result<()> {
        self.seat(match target {
            Target::AtOrAfter(..) => Some(bound),
            Target::Before(..) => bound.checked_sub(1),
            Target::First => Some(0),
            Target::Last => self.floor.entries.checked_sub(1),
        })
    }
}

impl Cursor for FloorCursor {
    fn begin(&mut self, _: Target<'_>) -> Result<()> {
        self.at = None;
        Ok(())
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        let all = 0..self.floor.entries;
        let bound = match target {
            Target::AtOrAfter(key, trailer) | Target::Before(key, trailer) => {
                self.floor.lower_bound(key, trailer, all)?
            }
            Target::First | Target::Last => 0,
        };
        self.seat_at(target, bound)
    }

    fn next(&mut self) -> Result<()> {
        self.seat(self.at.and_then(|at| at.checked_add(1)))
    }

    fn prev(&mut self) -> Result<()> {
        self.seat(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.at?;
        let value = self.floor.value(self.value.clone());
        Some(Entry { key: &self.key, trailer: self.trailer, value })
    }
}

/// A place in a tree: all versions that its floors have, in order.
#[derive(Debug)]
pub(crate) struct TreeCursor {
    tree: Tree,
    merge: Merge<FloorCursor>,
    seats: Vec<u32>,
}

impl TreeCursor {
    pub(crate) fn new(tree: Tree) -> Self {
        // Newest first, as everywhere.
        let sources = tree.floors().iter().rev().cloned().map(FloorCursor::new).collect();
        Self { tree, merge: Merge::new(sources), seats: Vec::new() }
    }
}

impl Cursor for TreeCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        self.merge.begin(target)
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        match target {
            Target::AtOrAfter(key, trailer) | Target::Before(key, trailer) => {
                self.tree.seats(key, trailer, &mut self.seats)?;
            }
            Target::First | Target::Last => self.seats.resize(self.tree.floors().len(), 0),
        }
        let seats = self.seats.iter().rev();
        self.merge.finish_with(target.is_forward(), seats, |source, seat| source.seat_at(target, *seat))
    }

    fn next(&mut self) -> Result<()> {
        self.merge.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.merge.prev()
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.merge.entry()
    }
}
