//! The memtable: recent writes in memory, sorted.
//!
//! A skip list in an [`arena`] of its own. One writer, any number of readers, no locks:
//!
//! * the [`MemTableWriter`] is the only handle that can insert, cannot be cloned, and inserts through `&mut`; so
//!   there is one insert at a time;
//! * an insert fills a node completely before it links it, bottom level first, with release stores; readers follow
//!   links with acquire loads, so a node that can be reached is whole;
//! * nodes are never changed otherwise, and never freed before the whole list is; whoever holds the [`MemTable`] by
//!   `Arc` may keep references into it.
//!
//! Each node also points back at level 0, so that walking backwards costs the same as forwards. A reader that goes
//! back while a node is being linked may miss that node; it is newer than anything the reader may see.
//!
//! Range tombstones are no nodes: they are in a set beside the list ([`RangeTombstones`]), which each one replaces by a
//! larger.
//!
//! An insert costs one bump of the arena and O(log n) comparisons, no allocation per entry; a lookup O(log n)
//! comparisons with a cache miss each, of which the first few levels stay cached. Pugh, "Skip lists", 1990.

#![expect(unsafe_code, reason = "nodes of variable size, reached by readers while the writer links new ones")]

mod arena;

use crate::error::Result;
use crate::key::{Cursor, Entry, Kind, Seq, Target, Trailer, compare};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};
use arc_swap::ArcSwap;
use arena::{Arena, Bump};
use cuesta_sched::Rng;
use cuesta_sched::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::cmp::Ordering as Order;
use std::ptr;
use std::slice;
use std::sync::Arc;

/// Levels of the tallest tower; with one node in four rising a level, enough for 16 million entries.
const HEIGHT_MAX: usize = 12;
/// One node in so many rises to the next level.
const BRANCHING: u64 = 4;

/// A node's fixed part. Behind it lie `height` forward links, then the key's bytes, then the value's.
#[repr(C)]
struct Node {
    trailer: Trailer,
    key_len: u32,
    value_len: u32,
    height: usize,
    previous: AtomicPtr<Node>,
}

type Link = AtomicPtr<Node>;

/// Forward link of `node` at `level`.
///
/// # Safety
/// `node` must be a linked or complete node of a live arena, and `level` below its height.
unsafe fn link<'a>(node: *mut Node, level: usize) -> &'a Link {
    // SAFETY: the links lie directly behind the fixed part, in the same allocation; `Node` ends aligned for them.
    unsafe { &*node.add(1).cast::<Link>().add(level) }
}

/// The entry in `node`.
///
/// # Safety
/// `node` must be a complete node other than the head, and the arena must outlive `'a`.
unsafe fn entry<'a>(node: *mut Node) -> Entry<'a> {
    // SAFETY: a complete node has its lengths set and that many initialised bytes behind its links.
    unsafe {
        let (key_len, value_len) = ((*node).key_len as usize, (*node).value_len as usize);
        let key = node.add(1).cast::<Link>().add((*node).height).cast::<u8>();
        Entry {
            key: slice::from_raw_parts(key, key_len),
            trailer: (*node).trailer,
            value: slice::from_raw_parts(key.add(key_len), value_len),
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct MemTable {
    arena: Arena,
    /// A node of full height without an entry; its links are the list's beginnings.
    head: *mut Node,
    /// The last node at level 0; the head while the list is empty.
    tail: AtomicPtr<Node>,
    entries: AtomicU64,
    used_bytes: AtomicU64,
    tombstones: AtomicU64,
    range_tombstones: ArcSwap<RangeTombstones>,
    /// Whether that has any, to be asked by every read.
    has_ranges: AtomicBool,
    /// Whether some entry is in no log; such a table must be flushed for its entries to be durable.
    unlogged: AtomicBool,
}

// SAFETY: `head` and every node are reached through atomics and are immutable once linked; the writer's exclusive
// handle is the only one that links.
unsafe impl Send for MemTable {}
// SAFETY: as above; shared references give only reads.
unsafe impl Sync for MemTable {}

/// The writing end.
#[derive(Debug)]
pub(crate) struct MemTableWriter {
    table: Arc<MemTable>,
    bump: Bump,
    rng: Rng,
}

// SAFETY: the bump pointer belongs to this writer alone and points into the arena that `table` keeps alive.
unsafe impl Send for MemTableWriter {}

impl MemTable {
    /// An empty table: its two ends. `seed` shapes the towers.
    pub(crate) fn new(seed: u64) -> (MemTableWriter, Arc<Self>) {
        let arena = Arena::default();
        let mut bump = Bump::default();
        let bytes = size_of::<Node>() + HEIGHT_MAX * size_of::<Link>();
        let head = bump.take(&arena, bytes).cast::<Node>();
        let fixed = Node {
            trailer: Trailer::FIRST,
            key_len: 0,
            value_len: 0,
            height: HEIGHT_MAX,
            previous: AtomicPtr::new(ptr::null_mut()),
        };
        // SAFETY: `take` gave that many bytes, aligned for a node, to us alone.
        unsafe {
            head.write(fixed);
            for level in 0..HEIGHT_MAX {
                head.add(1).cast::<Link>().add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
        }
        let table = Arc::new(Self {
            arena,
            head,
            tail: AtomicPtr::new(head),
            entries: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            range_tombstones: ArcSwap::default(),
            has_ranges: AtomicBool::new(false),
            unlogged: AtomicBool::new(false),
        });
        (MemTableWriter { table: table.clone(), bump, rng: Rng::new(seed) }, table)
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> u64 {
        self.arena.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Acquire) == 0 && !self.has_ranges.load(Ordering::Acquire)
    }

    pub(crate) fn entry_count(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }

    /// Bytes that entries and range tombstones take: what decides when the table is full.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// How many of its entries are tombstones, with range tombstones.
    pub(crate) fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    pub(crate) fn range_tombstones(&self) -> Arc<RangeTombstones> {
        self.range_tombstones.load_full()
    }

    /// The number of the newest range tombstone up to `at` that covers `key`; 0 for none. `at` must have been visible
    /// before.
    pub(crate) fn covering(&self, key: &[u8], at: Seq) -> Seq {
        match self.has_ranges.load(Ordering::Acquire) {
            true => self.range_tombstones.load().covering(key, at),
            false => Seq(0),
        }
    }

    /// Whether some entry is in no log.
    pub(crate) fn unlogged(&self) -> bool {
        self.unlogged.load(Ordering::Acquire)
    }

    /// Some entry is in no log.
    pub(crate) fn mark_unlogged(&self) {
        self.unlogged.store(true, Ordering::Release);
    }

    /// The newest version of `key` at or after `bound` in the order of versions.
    pub(crate) fn get(&self, key: &[u8], bound: Trailer) -> Option<(Trailer, &[u8])> {
        let node = self.at_or_after(key, bound);
        // SAFETY: not null means a linked node; `&self` keeps the arena.
        let found = (!node.is_null()).then(|| unsafe { entry(node) })?;
        (found.key == key).then_some((found.trailer, found.value))
    }

    /// Every entry, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        // SAFETY: the head is a complete node of full height.
        let mut node = unsafe { link(self.head, 0) }.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: not null means a linked node; `&self` keeps the arena for as long as the entry lives.
            let found = (!node.is_null()).then(|| unsafe { entry(node) })?;
            // SAFETY: as above; every node has a link at level 0.
            node = unsafe { link(node, 0) }.load(Ordering::Acquire);
            Some(found)
        })
    }

    /// The last node before (`key`, `trailer`) at every level in `before`, top down; the head where there is none.
    /// Returns the first node that is not before it, or null. Who followed the link of `before[0]` again instead might
    /// come to a node that was put between since, which belongs to another key or is too new.
    fn find_before(&self, key: &[u8], trailer: Trailer, before: &mut [*mut Node; HEIGHT_MAX]) -> *mut Node {
        let mut node = self.head;
        let mut next = ptr::null_mut();
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                // SAFETY: `node` is the head or was reached at this level or above, so it is that tall.
                next = unsafe { link(node, level) }.load(Ordering::Acquire);
                // SAFETY: a node that was reached is complete.
                if next.is_null() || !unsafe { is_before(next, key, trailer) } {
                    break;
                }
                node = next;
            }
            before[level] = node;
        }
        next
    }

    fn at_or_after(&self, key: &[u8], trailer: Trailer) -> *mut Node {
        self.find_before(key, trailer, &mut [self.head; HEIGHT_MAX])
    }
}

/// Whether the entry of `node` comes before (`key`, `trailer`).
///
/// # Safety
/// As for [`entry`].
unsafe fn is_before(node: *mut Node, key: &[u8], trailer: Trailer) -> bool {
    // SAFETY: the caller's promise.
    let entry = unsafe { entry(node) };
    compare((entry.key, entry.trailer), (key, trailer)) == Order::Less
}

impl MemTableWriter {
    /// Bytes that entries and range tombstones take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.table.used_bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The reading end.
    pub(crate) fn table(&self) -> &Arc<MemTable> {
        &self.table
    }

    /// Takes away what the keys from one up to before another have. Linear in the range tombstones that are here.
    pub(crate) fn erase(&mut self, tombstone: RangeTombstone) {
        let table = &self.table;
        table.used_bytes.fetch_add(tombstone.bytes(), Ordering::Relaxed);
        table.range_tombstones.store(Arc::new(table.range_tombstones.load().with(tombstone)));
        table.tombstones.fetch_add(1, Ordering::Relaxed);
        table.has_ranges.store(true, Ordering::Release);
    }

    /// Adds a version. One that is there already (replay may bring it twice) is left as it is.
    pub(crate) fn insert(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let table = &self.table;
        let mut before = [table.head; HEIGHT_MAX];
        let next = table.find_before(key, trailer, &mut before);
        // SAFETY: a node that was reached is complete.
        if !next.is_null() && unsafe { entry(next).trailer == trailer && entry(next).key == key } {
            return;
        }
        let mut height = 1;
        while height < HEIGHT_MAX && self.rng.one_in(BRANCHING) {
            height += 1;
        }
        let bytes = size_of::<Node>() + height * size_of::<Link>() + key.len() + value.len();
        let node = self.bump.take(&table.arena, bytes).cast::<Node>();
        let fixed = Node {
            trailer,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            height,
            previous: AtomicPtr::new(before[0]),
        };
        // SAFETY: `take` gave that many bytes, aligned for a node, to us alone; every part is written before the
        // first release store makes the node reachable, and `before` holds nodes of at least each level's height.
        unsafe {
            node.write(fixed);
            for (level, before) in before[..height].iter().enumerate() {
                let next = link(*before, level).load(Ordering::Relaxed);
                node.add(1).cast::<Link>().add(level).write(AtomicPtr::new(next));
            }
            let tail = node.add(1).cast::<Link>().add(height).cast::<u8>();
            tail.copy_from_nonoverlapping(key.as_ptr(), key.len());
            tail.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
            for (level, before) in before[..height].iter().enumerate() {
                link(*before, level).store(node, Ordering::Release);
            }
            let next = link(node, 0).load(Ordering::Relaxed);
            match next.is_null() {
                true => table.tail.store(node, Ordering::Release),
                false => (*next).previous.store(node, Ordering::Release),
            }
        }
        if trailer.kind() == Some(Kind::Delete) {
            table.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        table.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        table.entries.fetch_add(1, Ordering::Release);
    }
}

/// Walks a memtable; holds it.
#[derive(Debug)]
pub(crate) struct MemCursor {
    table: Arc<MemTable>,
    /// Null past either end.
    node: *mut Node,
}

// SAFETY: the node belongs to the table that the cursor keeps alive and is immutable.
unsafe impl Send for MemCursor {}

impl MemCursor {
    /// Past the end.
    pub(crate) fn new(table: Arc<MemTable>) -> Self {
        Self { table, node: ptr::null_mut() }
    }

    /// The head is no entry.
    fn to(&mut self, node: *mut Node) {
        self.node = if node == self.table.head { ptr::null_mut() } else { node };
    }
}

impl Cursor for MemCursor {
    fn begin(&mut self, _: Target<'_>) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, target: Target<'_>) -> Result<()> {
        match target {
            Target::AtOrAfter(key, trailer) => self.node = self.table.at_or_after(key, trailer),
            Target::Before(key, trailer) => {
                let mut before = [self.table.head; HEIGHT_MAX];
                self.table.find_before(key, trailer, &mut before);
                self.to(before[0]);
            }
            // SAFETY: the head is a complete node of full height.
            Target::First => self.node = unsafe { link(self.table.head, 0) }.load(Ordering::Acquire),
            Target::Last => self.to(self.table.tail.load(Ordering::Acquire)),
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        if !self.node.is_null() {
            // SAFETY: the cursor is on a linked node.
            self.node = unsafe { link(self.node, 0) }.load(Ordering::Acquire);
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if !self.node.is_null() {
            // SAFETY: the cursor is on a linked node.
            let previous = unsafe { &(*self.node).previous }.load(Ordering::Acquire);
            self.to(previous);
        }
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: not null means a linked node of the table that the cursor holds.
        (!self.node.is_null()).then(|| unsafe { entry(self.node) })
    }
}

#[cfg(test)]
mod tests;
