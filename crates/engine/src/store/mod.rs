//! The store below the memtable: objects on the fast tier, one slot each, found by an index in memory.
//!
//! After PrismDB (Raina et al., ASPLOS 2023, §4.1), with what its promises need besides: see
//! `docs/decisions/0011-store-below-the-memtable.md`.
//!
//! | part | what |
//! |---|---|
//! | [`class`] | which size of slot an object goes to |
//! | [`slot`] | an object's bytes in its slot |
//! | [`generation`] | how often a slot was used |
//! | [`slab`] | a file of slots of one size |
//! | [`index`] | keys, and the slots of their versions |
//! | [`contents`] | index and slabs of one moment, for readers |
//! | [`cursor`] | a walk over them |
//! | [`space`] | which slots are taken |
//! | [`fill`] | writing objects into slots, page by page |
//!
//! Contents are replaced by the edit that makes a change durable; who replaces them owns the store's turn ([`Store`]).

mod contents;
mod cursor;
mod fill;
mod generation;
mod index;
mod slab;
mod slot;
mod space;

pub(crate) use contents::{Contents, Damaged, Found, Moment};
pub(crate) use cursor::StoreCursor;
pub(crate) use fill::{Write, Written, fill};
pub(crate) use generation::Generations;
pub(crate) use index::{Changes, Holds, Index, IndexBuilder, Location, Position, shared_prefix};
#[cfg(test)]
pub(crate) use slab::SLOTS_FROM;
pub(crate) use slab::{SHAPE_BYTES, SLAB_TIER, Slab, SlabMeta, slots_in};
#[cfg(test)]
pub(crate) use slot::SLOT_HEADER_BYTES;
pub(crate) use slot::{Object, decode as decode_slot, early_bytes, object_bytes};
pub(crate) use space::{Moves, SlabState, SlotRun, Slots, Space, lies_now};
