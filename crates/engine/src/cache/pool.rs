//! Memory for cached objects: pages of equal slots, which can be emptied.
//!
//! Objects come and go one by one, here and there. On a heap each leaves a hole among others that stay, which is of use
//! to other objects alone: when blocks take the cache over, or somebody else wants memory, the heap keeps what objects
//! had at their most. Here an object lies in a slot of its size class ([`slot_bytes`]), in a page of such slots that
//! comes from the system and goes back to it once it is empty. (A page here is up to sixteen of the machine's.) An
//! object goes to the first page with a free slot, so the last ones run empty by themselves. Where that is not enough,
//! once the pages that could be had by moving are more than one part in [`HOLES_SHARE`] of all, the cache moves what a
//! page has left to others of its class ([`Pool::begin_emptying`]), from the last page on and class by class; for each
//! byte that is given back less than one is copied. (Slabs in memory whose pages are moved between uses: CacheLib, Berg
//! et al., OSDI 2020; memory that is cleaned by copying: Rumble et al., FAST 2014.)
//!
//! What is named by an [`Object`] stays where it is for as long as anybody holds it: to move one is to make a copy and
//! to put that into its place in the cache. So a page in which somebody else holds an object, a caller a value say, is
//! passed over.
//!
//! **Invariants.** A slot's header is valid from when it is taken until it is given back, both under the lock. Its
//! references are 0 at both ends of that time, and above 0 between; what is behind the header is written while they are
//! 0 and read while they are not. A page holds its pool, and so does whoever gives a slot back while that takes, so a
//! pool outlives its objects. No object is dropped under the lock.
//!
//! **Cost.** An object takes the lock twice, and the heap never, but for the lists of a new page. Who uses one touches
//! one piece of memory: header, key and value lie behind each other. Holes cost nobody anything while too few can be
//! closed; who closes some looks at [`SEARCHED_MAX`] pages at most for one to empty.
//!
//! No thread of its own. The lock and the references are the standard library's, as `Arc`'s are, and not the
//! schedule's: under the lock there is no point at which a simulation exchanges one thread for another, so it repeats
//! what lies where, too.

#![expect(
    unsafe_code,
    reason = "a slot is taken and given back by itself, inside a page that it shares with others"
)]

use super::object::{Header, Object};
use crate::key::Seq;
use crate::size_class::slot_bytes;
use cuesta_device::{ALIGNMENT, AlignedBuf};
use cuesta_sched::atomic::AtomicBool;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages are emptied once as many could be had by that as are more than one part in so many of all.
const HOLES_SHARE: u64 = 16;
/// Pages that are looked at for one to empty.
const SEARCHED_MAX: usize = 32;
/// A page is as small as it can be with no more than one part in so many left over behind its last slot,
const REST_SHARE: usize = 32;
/// and no larger than so many of the machine's, unless one slot is.
const PAGES_MAX: usize = 16;
/// Every slot begins at a multiple of this.
const SLOT_ALIGNMENT: usize = 8;

const _: () = assert!(align_of::<Header>() <= SLOT_ALIGNMENT);

/// Bytes of the slot for a key and a value of so many bytes together: of its class, and what a page has left over
/// besides.
pub(super) fn slot_bytes_of(bytes: usize) -> usize {
    let class = slot_bytes((size_of::<Header>() + bytes) as u64) as usize;
    let slot = class.next_multiple_of(SLOT_ALIGNMENT);
    let page = page_bytes(slot);
    let shared = page / (page / slot);
    shared - shared % SLOT_ALIGNMENT
}

/// Bytes of a page of such slots.
fn page_bytes(slot_bytes: usize) -> usize {
    let wastes_little = |bytes: &usize| bytes % slot_bytes <= bytes / REST_SHARE && *bytes >= slot_bytes;
    let largest = PAGES_MAX * ALIGNMENT;
    let mut sizes = (0..).map(|i| ALIGNMENT << i).take_while(|bytes| *bytes <= largest);
    sizes.find(wastes_little).unwrap_or(slot_bytes.next_multiple_of(ALIGNMENT).max(largest))
}

pub(super) struct Page {
    /// Owned, and looked at through `start` alone: a slice of it would be one of what others read and write.
    _memory: AlignedBuf,
    start: NonNull<u8>,
    /// Slots that are free.
    free: Vec<u16>,
    /// Nothing goes to it: somebody empties it.
    closed: bool,
    /// For as long as anything lies in it.
    _pool: Arc<Pool>,
}

// SAFETY: its memory is its own, but for slots in use, of which `Object` says why any thread may come to them.
unsafe impl Send for Page {}

/// Pages of equal slots.
struct Class {
    /// Of a page.
    page_bytes: usize,
    slots: usize,
    pages: BTreeMap<u32, Page>,
    /// Of these, the ones that have free slots and are not closed.
    open: BTreeSet<u32>,
    /// Numbers below the highest that no page has.
    unused: BTreeSet<u32>,
    /// Free slots of all pages.
    free: usize,
    /// The page that was looked at last for whether to empty it; the next is the one before it.
    turn: u32,
}

/// Pages of all classes, by the size of their slots.
#[derive(Default)]
struct Classes {
    all: BTreeMap<usize, Class>,
    /// The class whose pages are emptied, or the first behind it.
    turn: usize,
}

/// A page that is closed, with what it had then.
pub(super) struct Emptying {
    pub(super) objects: Vec<Object>,
    slot_bytes: usize,
    page: u32,
}

/// The memory of one cache's objects.
#[derive(Default)]
pub(super) struct Pool {
    classes: Mutex<Classes>,
    /// Bytes of all pages, and of slots in use.
    held: AtomicU64,
    used: AtomicU64,
    /// Bytes of the pages that would be empty if all of each class were moved together.
    closable: AtomicU64,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Classes> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new object, not confirmed yet. `of` is the block that it came from, or 0, and what that weighs.
    pub(super) fn object(self: &Arc<Self>, key: &[u8], seq: Seq, value: &[u8], of: (u32, u32)) -> Object {
        let (sample, block_weight) = of;
        let slot_bytes = slot_bytes_of(key.len() + value.len());
        let header = self.take(slot_bytes, |page, slot| Header {
            references: AtomicU32::new(0),
            page,
            slot,
            confirmed: AtomicBool::new(false),
            // Keys are at most `KEY_BYTES_MAX` long, and values less than a block.
            slot_bytes: slot_bytes as u32,
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
            sample,
            block_weight,
            seq,
            pool: Arc::as_ptr(self),
        });
        // SAFETY: the slot was taken for a header and so many bytes behind it. Nobody reads these while there are no
        // references, and the memory of a page that has a slot in use stays.
        unsafe {
            let bytes = header.as_ptr().add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
            header.as_ref().references.store(1, Ordering::Release);
        }
        Object { header }
    }

    /// The same in another slot, confirmed if `object` is.
    pub(super) fn copy(self: &Arc<Self>, object: &Object) -> Object {
        let copy = self.object(object.key(), object.seq(), object.value(), object.sample());
        if object.is_confirmed() {
            copy.confirm();
        }
        copy
    }

    fn take(self: &Arc<Self>, slot_bytes: usize, header: impl FnOnce(u32, u16) -> Header) -> NonNull<Header> {
        let mut classes = self.lock();
        let class = classes.all.entry(slot_bytes).or_insert_with(|| Class::new(slot_bytes));
        let closable = class.closable();
        let number = class.open.first().copied().unwrap_or_else(|| class.unused_number());
        let page = class.pages.entry(number).or_insert_with(|| {
            class.free += class.slots;
            class.open.insert(number);
            self.held.fetch_add(class.page_bytes as u64, Ordering::Relaxed);
            Page::new(class.page_bytes, class.slots, self.clone())
        });
        let Some(slot) = page.free.pop() else { panic!("an open page has no free slot") };
        if page.free.is_empty() {
            class.open.remove(&number);
        }
        class.free -= 1;
        self.used.fetch_add(slot_bytes as u64, Ordering::Relaxed);
        let place = page.place(usize::from(slot), slot_bytes);
        // SAFETY: the slot lies within the page's memory, at an address that suits a header, and was free.
        unsafe { place.write(header(number, slot)) };
        self.note_closable(closable, class.closable());
        place
    }

    /// Takes back a slot whose last reference went, and hands over its page if that was the last slot in use, to be
    /// dropped when the lock is free.
    pub(super) fn give_back(&self, place: NonNull<Header>) -> Option<Page> {
        // SAFETY: it is valid until it is dropped here, and without references nobody else comes to it but under the
        // lock.
        let (number, slot, slot_bytes) = unsafe {
            let header = place.as_ref();
            (header.page, header.slot, header.slot_bytes as usize)
        };
        let mut classes = self.lock();
        // SAFETY: as above; once, since references come back to 0 once.
        unsafe { place.drop_in_place() };
        self.used.fetch_sub(slot_bytes as u64, Ordering::Relaxed);
        let class = classes.all.get_mut(&slot_bytes)?;
        let closable = class.closable();
        let page = class.pages.get_mut(&number)?;
        page.free.push(slot);
        class.free += 1;
        let gone = if page.free.len() == class.slots {
            self.held.fetch_sub(class.page_bytes as u64, Ordering::Relaxed);
            class.remove(number)
        } else {
            if !page.closed {
                class.open.insert(number);
            }
            None
        };
        self.note_closable(closable, class.closable());
        gone
    }

    fn note_closable(&self, before: usize, after: usize) {
        if before != after {
            // Less is more that wraps around.
            self.closable.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
        }
    }

    /// Bytes of pages that no object has.
    pub(super) fn free_bytes(&self) -> u64 {
        // Of numbers that are read one after the other, the second may be of a later moment.
        self.held.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// The same, up to as many as there may be before pages are emptied. What is beyond that is about to be given back:
    /// if it counted, what goes from the cache for its sake would leave as many again.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.free_bytes().min(self.held.load(Ordering::Relaxed) / HOLES_SHARE)
    }

    /// Whether pages are worth to be emptied.
    pub(super) fn has_holes(&self) -> bool {
        self.closable.load(Ordering::Relaxed) > self.held.load(Ordering::Relaxed) / HOLES_SHARE
    }

    /// Closes a page that has at least as many free slots as those of its class have on average, and says what is in
    /// it; the others have room for that. To be ended by [`Pool::end_emptying`] before another is begun. `None` if none
    /// was found within some steps, from which the next call goes on.
    pub(super) fn begin_emptying(&self) -> Option<Emptying> {
        let mut classes = self.lock();
        let Classes { all, turn } = &mut *classes;
        let mut in_turn = all.range(*turn..).chain(all.range(..*turn));
        let (&slot_bytes, _) = in_turn.find(|(_, class)| class.closable() > 0)?;
        let class = all.get_mut(&slot_bytes)?;
        for _ in 0..SEARCHED_MAX.min(class.pages.len()) {
            let before = class.pages.range(..class.turn).next_back();
            let (&number, page) = before.or_else(|| class.pages.last_key_value())?;
            class.turn = number;
            let is_sparse = page.free.len() * class.pages.len() >= class.free;
            if is_sparse && let Some(objects) = page.objects(slot_bytes, class.slots) {
                class.open.remove(&number);
                class.pages.entry(number).and_modify(|page| page.closed = true);
                *turn = slot_bytes;
                return Some(Emptying { objects, slot_bytes, page: number });
            }
        }
        // Others have their turn before more of this one's pages.
        *turn = slot_bytes + 1;
        None
    }

    /// Lets go of what was to be moved, and opens the page again if that was not all.
    pub(super) fn end_emptying(&self, Emptying { objects, slot_bytes, page: number }: Emptying) {
        drop(objects);
        let mut classes = self.lock();
        let Some(class) = classes.all.get_mut(&slot_bytes) else { return };
        // Another one may have come to its number.
        if let Some(page) = class.pages.get_mut(&number) {
            page.closed = false;
            if !page.free.is_empty() {
                class.open.insert(number);
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, used) = (self.held.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed));
        write!(f, "Pool({used} of {held} bytes)")
    }
}

impl Class {
    fn new(slot_bytes: usize) -> Self {
        let page_bytes = page_bytes(slot_bytes);
        let (pages, open, unused) = Default::default();
        Self { page_bytes, slots: page_bytes / slot_bytes, pages, open, unused, free: 0, turn: 0 }
    }

    fn unused_number(&mut self) -> u32 {
        self.unused.pop_first().unwrap_or(self.pages.len() as u32)
    }

    fn remove(&mut self, number: u32) -> Option<Page> {
        let page = self.pages.remove(&number)?;
        self.free -= self.slots;
        self.open.remove(&number);
        self.unused.insert(number);
        Some(page)
    }

    /// Bytes of the pages that would be empty if all objects of this class were moved together.
    fn closable(&self) -> usize {
        self.free / self.slots * self.page_bytes
    }
}

impl Page {
    fn new(bytes: usize, slots: usize, pool: Arc<Pool>) -> Self {
        let mut memory = AlignedBuf::zeroed(bytes);
        let start = NonNull::from(&mut *memory).cast();
        // The first slot first.
        let free = (0..slots as u16).rev().collect();
        Self { _memory: memory, start, free, closed: false, _pool: pool }
    }

    /// The header in a slot.
    fn place(&self, slot: usize, slot_bytes: usize) -> NonNull<Header> {
        // SAFETY: the slot lies within the page's memory.
        unsafe { self.start.add(slot * slot_bytes).cast() }
    }

    /// What lies in its slots, unless one of these is held by somebody else than the cache, is about to be written to
    /// or to be given back.
    fn objects(&self, slot_bytes: usize, slots: usize) -> Option<Vec<Object>> {
        let mut in_use = vec![true; slots];
        self.free.iter().for_each(|slot| in_use[usize::from(*slot)] = false);
        let places = in_use.iter().enumerate().filter(|(_, in_use)| **in_use);
        let headers: Vec<_> = places.map(|(slot, _)| self.place(slot, slot_bytes)).collect();
        // SAFETY: the slots are in use and the lock is held, so their headers are valid.
        let references = |header: &NonNull<Header>| unsafe { &(*header.as_ptr()).references };
        if !headers.iter().all(|header| references(header).load(Ordering::Relaxed) == 1) {
            return None;
        }
        // By now the cache may have let go of some. Those that are left out here are given back once the lock is free.
        let more = |header: &NonNull<Header>| {
            let hold = |count: u32| (count > 0).then(|| count + 1);
            references(header).fetch_update(Ordering::Acquire, Ordering::Relaxed, hold).is_ok()
        };
        Some(headers.into_iter().filter(more).map(|header| Object { header }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_sched::Rng;

    fn object(pool: &Arc<Pool>, number: u64, bytes: usize) -> Object {
        pool.object(&number.to_le_bytes(), Seq(number), &vec![number as u8; bytes], (0, 0))
    }

    fn is_whole(object: &Object, number: u64, bytes: usize) -> bool {
        object.key() == number.to_le_bytes()
            && object.seq() == Seq(number)
            && object.value().len() == bytes
            && object.value().iter().all(|byte| *byte == number as u8)
    }

    #[test]
    fn pages_waste_little_behind_their_last_slot() {
        for bytes in (0..20_000).step_by(if cfg!(miri) { 997 } else { 7 }) {
            let (slot, object) = (slot_bytes_of(bytes), size_of::<Header>() + bytes);
            let page = page_bytes(slot);
            assert!(slot.is_multiple_of(SLOT_ALIGNMENT) && slot >= object, "{slot} for {object}");
            assert!(page % slot * 32 <= page, "{page} bytes of {slot}");
            // A page of a few large slots is shared out.
            let few = page / slot < 16;
            assert!(object < 64 || few || slot * 10 <= object * 11, "{slot} for {object}");
            assert!(slot * 3 <= object.max(64) * 5, "{slot} for {object}");
        }
        // As large as it has to be, where that is more than sixteen pages of the machine's.
        let slot = slot_bytes_of(100_000);
        assert_eq!((page_bytes(slot), slot % ALIGNMENT), (slot, 0));
    }

    #[test]
    fn objects_keep_their_bytes_while_others_come_and_go() {
        let pool = Arc::new(Pool::default());
        let mut rng = Rng::new(7);
        let mut held = BTreeMap::new();
        let steps = if cfg!(miri) { 100 } else { 20_000 };
        for number in 0..steps {
            let bytes =
                [0, 1, 100, 1000, 1023, 5000, 70_000][rng.below(if cfg!(miri) { 5 } else { 7 }) as usize];
            let made = object(&pool, number, bytes);
            let shared = made.clone();
            assert!(made.is(&shared) && !made.is(&pool.copy(&made)));
            drop(made);
            held.insert(number, (shared, bytes));
            let other = rng.below(number + 1);
            if held.len() > 60
                && let Some((object, bytes)) = held.remove(&other)
            {
                assert!(is_whole(&object, other, bytes));
            }
        }
        assert!(held.iter().all(|(number, (object, bytes))| is_whole(object, *number, *bytes)));
        let used: usize = held.values().map(|(_, bytes)| slot_bytes_of(8 + bytes)).sum();
        assert_eq!(pool.used.load(Ordering::Relaxed), used as u64);
        // A page that is empty is given back, and the last of them lets go of the pool.
        drop(held);
        assert_eq!((pool.held.load(Ordering::Relaxed), pool.free_bytes()), (0, 0));
        assert_eq!(Arc::strong_count(&pool), 1);
    }

    #[test]
    fn an_object_outlives_whoever_made_its_pool() {
        let pool = Arc::new(Pool::default());
        let left = object(&pool, 3, 500);
        let weak = Arc::downgrade(&pool);
        drop(pool);
        assert!(is_whole(&left, 3, 500));
        drop(left);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn what_is_moved_leaves_empty_pages() {
        let pool = Arc::new(Pool::default());
        let count = if cfg!(miri) { 150 } else { 1500 };
        let mut objects: Vec<_> = (0..count).map(|number| object(&pool, number, 1000)).collect();
        let most = pool.held.load(Ordering::Relaxed);
        // Nothing to be gained.
        assert!(!pool.has_holes() && pool.begin_emptying().is_none());
        let mut number = 0;
        objects.retain(|_| {
            number += 1;
            number % 3 == 0
        });
        assert!(pool.has_holes());
        while pool.has_holes()
            && let Some(page) = pool.begin_emptying()
        {
            for object in &mut objects {
                if page.objects.iter().any(|moved| moved.is(object)) {
                    *object = pool.copy(object);
                }
            }
            pool.end_emptying(page);
        }
        let left = pool.held.load(Ordering::Relaxed);
        assert!(left * 2 <= most, "{left} bytes of {most}");
        assert!(objects.iter().zip((2..).step_by(3)).all(|(object, number)| is_whole(object, number, 1000)));
    }

    #[test]
    fn the_last_two_to_give_back_may_do_so_at_once() {
        for number in 0..if cfg!(miri) { 20 } else { 500 } {
            let pool = Arc::new(Pool::default());
            let objects = [object(&pool, number, 100), object(&pool, number, 100)];
            drop(pool);
            std::thread::scope(|scope| {
                for object in objects {
                    scope.spawn(move || drop(object));
                }
            });
        }
    }

    #[test]
    fn classes_take_turns() {
        let pool = Arc::new(Pool::default());
        let some = |bytes: usize| -> Vec<_> {
            let all: Vec<_> = (0..320).map(|number| object(&pool, number, bytes)).collect();
            all.into_iter().step_by(5).collect()
        };
        let (small, large) = (some(100), some(3000));
        // What is left of the smaller ones, whose turn it is first, somebody else holds, too.
        let held = small.clone();
        let page = (0..4).find_map(|_| pool.begin_emptying()).unwrap();
        assert!(!page.objects.is_empty() && page.objects.iter().all(|object| object.value().len() == 3000));
        pool.end_emptying(page);
        drop((held, small, large));
    }

    #[test]
    fn a_page_that_somebody_holds_is_passed_over() {
        let pool = Arc::new(Pool::default());
        let objects: Vec<_> = (0..150).map(|number| object(&pool, number, 1000)).collect();
        // Of each page one is left, and of two of them others have it, too.
        let slots = page_bytes(slot_bytes_of(1008)) / slot_bytes_of(1008);
        let mut left: Vec<_> = objects.into_iter().step_by(slots).collect();
        let pages = left.len();
        let pinned = [left[3].clone(), left[pages - 1].clone()];
        while let Some(page) = pool.begin_emptying() {
            assert_eq!(page.objects.len(), 1);
            assert!(!pinned.iter().any(|object| object.is(&page.objects[0])));
            let copy = pool.copy(&page.objects[0]);
            let place = left.iter().position(|object| object.is(&page.objects[0])).unwrap();
            left[place] = copy;
            pool.end_emptying(page);
        }
        // Theirs, and one in which the others are together.
        assert_eq!(pool.held.load(Ordering::Relaxed), 3 * page_bytes(slot_bytes_of(1008)) as u64);
        assert!(left.iter().zip((0..).step_by(slots)).all(|(object, number)| is_whole(object, number, 1000)));
        // As good as others once nobody holds them.
        drop(pinned);
        let page = pool.begin_emptying().unwrap();
        pool.end_emptying(page);
    }

    #[test]
    fn nothing_goes_to_a_page_that_is_emptied() {
        let pool = Arc::new(Pool::default());
        let slots = page_bytes(slot_bytes_of(1008)) / slot_bytes_of(1008);
        let objects: Vec<_> = (0..2 * slots as u64).map(|number| object(&pool, number, 1000)).collect();
        // One is left in the first page, and most in the second.
        let left: Vec<_> = objects.into_iter().skip(slots - 1).take(slots - 3).collect();
        let page = pool.begin_emptying().unwrap();
        assert!(page.page == 0 && page.objects.len() == 1);
        assert_eq!(pool.copy(&page.objects[0]).header().page, 1);
        pool.end_emptying(page);
        assert_eq!(object(&pool, 1, 1000).header().page, 0);
        drop(left);
    }

    #[test]
    fn threads_take_move_and_give_back_at_once() {
        let pool = Arc::new(Pool::default());
        let shared: Mutex<BTreeMap<u64, Object>> = Mutex::default();
        let rounds = if cfg!(miri) { 20 } else { 5000 };
        let work = |seed: u64| {
            let mut rng = Rng::new(seed);
            for _ in 0..rounds {
                let number = rng.below(100);
                match rng.below(3) {
                    0 => {
                        let made = object(&pool, number, 900);
                        drop(shared.lock().unwrap().insert(number, made));
                    }
                    1 => {
                        let found = shared.lock().unwrap().get(&number).cloned();
                        assert!(found.is_none_or(|found| is_whole(&found, number, 900)));
                    }
                    _ => drop(shared.lock().unwrap().remove(&number)),
                }
                if rng.below(8) == 0
                    && let Some(page) = pool.begin_emptying()
                {
                    for object in &page.objects {
                        let number = object.seq().0;
                        let copy = pool.copy(object);
                        let mut shared = shared.lock().unwrap();
                        if shared.get(&number).is_some_and(|found| found.is(object)) {
                            drop(shared.insert(number, copy));
                        }
                    }
                    pool.end_emptying(page);
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        drop(shared);
        assert_eq!((pool.held.load(Ordering::Relaxed), pool.free_bytes()), (0, 0));
    }
}
