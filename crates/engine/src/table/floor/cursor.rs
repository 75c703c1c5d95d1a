//! Walks over one floor, and over all floors of a tree.
//!
//! Each floor of a tree is a source of a merge. Going somewhere is one cascading search for all of them; a step is one
//! of a heap. Keys are put together in a buffer of the floor's cursor, values are not copied. Of the floors that the
//! walk is not on only entries are read, and no values.

use super::{Floor, Head, PREFIX_BYTES, Tree};
use crate::error::Result;
use crate::key::{Cursor, Entry, Target};
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
    head: Option<Head>,
    /// Where the value is, once it was asked for.
    value: Range<usize>,
}

impl FloorCursor {
    pub(super) fn new(floor: Arc<Floor>) -> Self {
        let shared = &floor.shape.shared;
        // Room for a key of which a few bytes are not in its entry: a seek makes a cursor for each floor.
        let mut key = Vec::with_capacity(shared.len() + 2 * PREFIX_BYTES);
        key.extend_from_slice(shared);
        Self { floor, at: None, key, head: None, value: 0..0 }
    }

    /// To entry `at`; past the end where there is none.
    fn seat(&mut self, at: Option<u32>) -> Result<()> {
        (self.at, self.head, self.value) = (None, None, 0..0);
        let Some(at) = at.filter(|at| *at < self.floor.entries) else { return Ok(()) };
        let head = self.floor.head(at)?;
        self.key.truncate(self.floor.shape.shared.len());
        self.key.extend_from_slice(&head.prefix[..PREFIX_BYTES.min(head.key_bytes as usize)]);
        if head.rest_bytes() > 0 {
            self.key.extend_from_slice(self.floor.rest(&head)?);
        }
        (self.at, self.head) = (Some(at), Some(head));
        Ok(())
    }

    /// Finds the value of the entry that the cursor is on, which has none before.
    pub(super) fn take_value(&mut self) -> Result<()> {
        if let Some(head) = &self.head {
            self.value = self.floor.value_range(head)?;
        }
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
        self.seat(None)
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
        let head = self.head.as_ref()?;
        Some(Entry { key: &self.key, trailer: head.trailer, value: self.floor.value(self.value.clone()) })
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

    /// After a move: finds the value, and sees to it that nobody is left on an entry that was not there.
    fn arrive(&mut self, moved: Result<()>) -> Result<()> {
        let taken = moved.and_then(|()| self.merge.top_mut().map_or(Ok(()), FloorCursor::take_value));
        let arrived = self.tree.check_memory().and(taken);
        if arrived.is_err() {
            self.merge.leave();
        }
        arrived
    }
}

impl Cursor for TreeCursor {
    fn begin(&mut self, target: Target<'_>) -> Result<()> {
        self.merge.begin(target)
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        match target {
            Target::AtOrAfter(key, trailer) | Target::Before(key, trailer) => {
                let found = self.tree.seats(key, trailer, &mut self.seats);
                if found.is_err() {
                    return self.arrive(found);
                }
            }
            Target::First | Target::Last => self.seats.resize(self.tree.floors().len(), 0),
        }
        let seats = self.seats.iter().rev();
        let seat = |source: &mut FloorCursor, seat: &u32| source.seat_at(target, *seat);
        let moved = self.merge.finish_with(target.is_forward(), seats, seat);
        self.arrive(moved)
    }

    fn next(&mut self) -> Result<()> {
        let moved = self.merge.next();
        self.arrive(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let moved = self.merge.prev();
        self.arrive(moved)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.merge.entry()
    }
}
