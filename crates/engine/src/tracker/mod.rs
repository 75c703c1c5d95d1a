//! Which keys were asked for of late: a clock of two bits for each of a bounded share of the keys (PrismDB, Raina et
//! al., ASPLOS 2023, §4.3).
//!
//! A key that is new enters at 0, one that is met again goes to 3; where a new one finds no room, the clock values of
//! others go down by one until there is one at 0, which makes way. An entry is one word: most of a hash of the key,
//! when the key was last read, whether its newest version lies below the fast tier, as far as anybody has seen, and the
//! clock. It holds no key.
//!
//! Reads are told of when they happen, writes when their memtable is flushed. Who reads a key to write it anew has
//! asked for it once: such accesses are correlated (O'Neil, O'Neil and Weikum, SIGMOD 1993), and that there are two of
//! them says nothing of whether a third comes. Were both counted, each cold key would be as hot as can be by one
//! read-modify-write. So a write does not count when its key, as far as it is tracked, was last read while its memtable
//! was the active one, or the one before was, in whatever order. Memtables are numbered for that, and a word says which
//! one was active when its key was last read. So a write counts, too, if its key is read again, under a later memtable,
//! before its own is flushed.
//!
//! Entries lie in sets of [`WAYS`], a set in two neighbouring cache lines with a hand of its own that goes round it. So
//! an access touches two lines, one of the sketch, and the counts if something changes, takes no lock, and never walks
//! further than four times round its set; a hot key's word changes about once in a memtable's time. Threads change words
//! by compare-and-swap; who loses a race lets its access go, and the counts stay exact.
//!
//! A clean close writes the words down, and the next open reads them (`docs/format/image.md`); after any other end all
//! keys are cold. What two bits forget a [`Sketch`] counts, for all keys and more roughly; [`mapper`] says who stays.

pub(crate) mod mapper;
mod sketch;

use cuesta_sched::atomic::{AtomicU64, Ordering};
pub(crate) use mapper::{Pinning, Rank};
use sketch::Sketch;
use std::fmt;
use std::sync::Arc;

/// Entries of a set.
const WAYS: usize = 15;
/// Of a word: the clock, whether the key lies below, in which memtable's time it was last read, and whose it is, which
/// is never 0.
const CLOCK: u64 = 0b011;
const BELOW: u64 = 0b100;
const READ_IN: u64 = 0xff << READ_IN_SHIFT;
const READ_IN_SHIFT: u32 = 3;
const NAME: u64 = !(CLOCK | BELOW | READ_IN);
/// Numbers of memtables that [`READ_IN`] tells apart; 0 is a key that was not read since a write of it counted. One
/// that was read as many memtables ago, and has been tracked since, is taken for one that was read just now.
const MEMTABLES: u64 = 255;
/// Clock values.
pub(crate) const CLOCKS: usize = 4;
const HOTTEST: u64 = CLOCK;

/// Where the newest version of a key was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// In memory: its place stays as it was known.
    InMemory,
    /// In the store below the memtable, or on its way there.
    InStore,
    /// In a table.
    Below,
}

impl Seen {
    /// The bits of a word for a key whose word was `old`.
    fn bits(self, old: u64) -> u64 {
        match self {
            Self::InMemory => old & BELOW,
            Self::InStore => 0,
            Self::Below => BELOW,
        }
    }
}

/// How often a key was asked for, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its clock value, if it is tracked.
    pub(crate) clock: Option<u8>,
    /// About how often of late, up to [`sketch::COUNT_MAX`].
    pub(crate) count: u8,
}

#[repr(align(128))]
struct Set {
    words: [AtomicU64; WAYS],
    /// Where the hand stands: a place among the words.
    hand: AtomicU64,
}

/// See the module's head.
pub(crate) struct Tracker {
    sets: Box<[Set]>,
    sketch: Arc<Sketch>,
    seed: u64,
    /// Entries by clock value, and those of keys that lie below.
    counts: [AtomicU64; CLOCKS],
    below: AtomicU64,
}

impl Tracker {
    /// Of `keys` keys, room for about so many that are tracked.
    #[cfg(test)]
    pub(crate) fn new(keys: u64, tracked: u64, seed: u64) -> Self {
        Self::with(Arc::new(Sketch::new(keys)), tracked, seed)
    }

    fn with(sketch: Arc<Sketch>, tracked: u64, seed: u64) -> Self {
        let sets = (tracked as usize).div_ceil(WAYS).max(1);
        let zero = || AtomicU64::new(0);
        let empty = |_| Set { words: std::array::from_fn(|_| zero()), hand: zero() };
        Self {
            sets: (0..sets).map(empty).collect(),
            sketch,
            seed,
            counts: Default::default(),
            below: AtomicU64::new(0),
        }
    }

    /// Keys that it has room for.
    pub(crate) fn capacity(&self) -> u64 {
        (self.sets.len() * WAYS) as u64
    }

    /// Memory that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64 + self.sketch.held_bytes()
    }

    /// Entries by clock value.
    pub(crate) fn counts(&self) -> [u64; CLOCKS] {
        std::array::from_fn(|clock| self.counts[clock].load(Ordering::Relaxed))
    }

    /// Tracked keys, and how many of them lie below.
    pub(crate) fn tracked(&self) -> (u64, u64) {
        (self.counts().iter().sum(), self.below.load(Ordering::Relaxed))
    }

    /// Tables' filters use the hash as it is.
    fn mixed(&self, hash: u64) -> u64 {
        let mixed = (hash ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// The set of a key of this hash, and its name there.
    fn find(&self, hash: u64) -> (&Set, u64) {
        let name = (self.mixed(hash) & NAME).max(!NAME + 1);
        (self.set_of(name), name)
    }

    /// The set of a name; the bits that names lack are the lowest.
    fn set_of(&self, name: u64) -> &Set {
        &self.sets[((u128::from(name) * self.sets.len() as u128) >> 64) as usize]
    }

    /// What its words depend on.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Its entries, in no order that means anything, without when they were read: memtables are numbered anew when a
    /// store is opened.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries().map(|word| word & !READ_IN)
    }

    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.sets.iter().flat_map(|set| &set.words);
        words.map(|word| word.load(Ordering::Relaxed)).filter(|word| *word != 0)
    }

    /// The words of its counts.
    pub(crate) fn counted(&self) -> impl Iterator<Item = u64> + '_ {
        self.sketch.words()
    }

    /// One with room for about so many keys that knows what one of this seed knew: its words, and those of its counts,
    /// if these are of about as many keys. Who finds no room is forgotten.
    pub(crate) fn of_words(keys: u64, tracked: u64, seed: u64, words: &[u64], counted: &[u64]) -> Self {
        let sketch = Sketch::of_words(counted, keys).unwrap_or_else(|| Sketch::new(keys));
        // Words had longer names once.
        Self::with(Arc::new(sketch), tracked, seed).taking(words.iter().map(|word| word & !READ_IN))
    }

    fn taking(self, words: impl Iterator<Item = u64>) -> Self {
        let made = self;
        for word in words.filter(|word| word & NAME != 0) {
            let mut places = made.set_of(word & NAME).words.iter();
            let empty = places.find(|place| place.load(Ordering::Relaxed) == 0);
            empty.into_iter().for_each(|place| made.replace(place, 0, word));
        }
        made
    }

    /// The same for about so many keys. Counts begin anew if these have become quite another number.
    pub(crate) fn resized(&self, keys: u64, tracked: u64) -> Self {
        let sketch = if self.sketch.fits(keys) { self.sketch.clone() } else { Arc::new(Sketch::new(keys)) };
        Self::with(sketch, tracked, self.seed).taking(self.entries())
    }

    /// The clock value of a key, if it is tracked.
    pub(crate) fn clock(&self, hash: u64) -> Option<u8> {
        let (set, name) = self.find(hash);
        let mut words = set.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.find(|word| word & NAME == name).map(|word| (word & CLOCK) as u8)
    }

    /// What is known of a key.
    pub(crate) fn asked(&self, hash: u64) -> Asked {
        Asked { clock: self.clock(hash), count: self.sketch.count(self.mixed(hash)) }
    }

    /// Whether a key was asked for about as often as can be told: a full count that was just halved still is.
    pub(crate) fn is_hottest(&self, hash: u64) -> bool {
        self.sketch.count(self.mixed(hash)) >= sketch::COUNT_MAX / 2
    }

    /// A key was read while the active memtable was the one of this number. Its clock value of before, if it was
    /// tracked.
    pub(crate) fn read(&self, hash: u64, seen: Seen, memtable: u64) -> Option<u8> {
        self.touch(hash, seen, (memtable % MEMTABLES + 1) << READ_IN_SHIFT)
    }

    /// A key that the memtable of this number has comes into the store.
    pub(crate) fn written(&self, hash: u64, memtable: u64) {
        let (set, name) = self.find(hash);
        for word in &set.words {
            let old = word.load(Ordering::Relaxed);
            let read_in = (old & READ_IN) >> READ_IN_SHIFT;
            let before = (memtable % MEMTABLES + MEMTABLES + 1 - read_in) % MEMTABLES;
            if old & NAME == name && read_in != 0 && before <= 1 {
                self.replace(word, old, old & !BELOW);
                return;
            }
        }
        self.touch(hash, Seen::InStore, 0);
    }

    /// A key was asked for. Its clock value of before, if it was tracked.
    fn touch(&self, hash: u64, seen: Seen, read_in: u64) -> Option<u8> {
        self.sketch.add(self.mixed(hash));
        let (set, name) = self.find(hash);
        for word in &set.words {
            let old = word.load(Ordering::Relaxed);
            if old & NAME == name {
                self.replace(word, old, name | read_in | seen.bits(old) | HOTTEST);
                return Some((old & CLOCK) as u8);
            }
        }
        let from = set.hand.load(Ordering::Relaxed) as usize;
        for i in from..from + CLOCKS * WAYS {
            let word = &set.words[i % WAYS];
            let old = word.load(Ordering::Relaxed);
            if old & CLOCK == 0 {
                self.replace(word, old, name | read_in | seen.bits(0));
                set.hand.store(((i + 1) % WAYS) as u64, Ordering::Relaxed);
                break;
            }
            self.replace(word, old, old - 1);
        }
        None
    }

    /// A key has moved, and nobody asked for it.
    pub(crate) fn moved(&self, hash: u64, seen: Seen) {
        let (set, name) = self.find(hash);
        for word in &set.words {
            let old = word.load(Ordering::Relaxed);
            if old & NAME == name {
                self.replace(word, old, old & !BELOW | seen.bits(old));
            }
        }
    }

    fn replace(&self, word: &AtomicU64, old: u64, new: u64) {
        if old == new || word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let clock = |word: u64| (word & CLOCK) as usize;
        if old == 0 || clock(old) != clock(new) {
            self.counts[clock(new)].fetch_add(1, Ordering::Relaxed);
            if old != 0 {
                self.counts[clock(old)].fetch_sub(1, Ordering::Relaxed);
            }
        }
        match (old & BELOW != 0, new & BELOW != 0) {
            (false, true) => drop(self.below.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.below.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracker({:?} by clock, of {})", self.counts(), self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::sketch::COUNT_MAX;
    use super::*;
    use crate::key::hash;

    fn key(i: u64) -> u64 {
        hash(&i.to_be_bytes())
    }

    /// What the words themselves say of counts.
    fn counted(tracker: &Tracker) -> ([u64; CLOCKS], (u64, u64)) {
        let (mut counts, mut tracked, mut below) = ([0; CLOCKS], 0, 0);
        for word in tracker.words() {
            counts[(word & CLOCK) as usize] += 1;
            tracked += 1;
            below += u64::from(word & BELOW != 0);
        }
        (counts, (tracked, below))
    }

    #[test]
    fn a_new_key_enters_at_0_and_one_that_is_met_again_goes_to_3() {
        let tracker = Tracker::new(100, 100, 1);
        assert_eq!((tracker.clock(key(1)), tracker.capacity()), (None, 105));
        assert_eq!((tracker.read(key(1), Seen::Below, 0), tracker.clock(key(1))), (None, Some(0)));
        assert_eq!((tracker.read(key(1), Seen::InMemory, 0), tracker.clock(key(1))), (Some(0), Some(3)));
        assert_eq!((tracker.read(key(1), Seen::InMemory, 0), tracker.tracked()), (Some(3), (1, 1)));
        tracker.read(key(1), Seen::InStore, 0);
        assert_eq!((tracker.tracked(), tracker.counts()), ((1, 0), [0, 0, 0, 1]));
        tracker.moved(key(1), Seen::Below);
        tracker.moved(key(2), Seen::Below);
        assert_eq!((tracker.tracked(), tracker.clock(key(1))), ((1, 1), Some(3)));
    }

    #[test]
    fn who_reads_a_key_and_writes_it_has_asked_for_it_once() {
        let tracker = Tracker::new(1_000_000, 20_000, 1);
        let known = |i| (tracker.clock(key(i)), tracker.asked(key(i)).count);
        // Twice as far as numbers of memtables are told apart; a key of its own for each pair of read and write.
        for memtable in 1..2 * MEMTABLES {
            let keys = [0, 1, 2, 3, 4].map(|i| 5 * memtable + i);
            let [same, next, later, earlier, alone] = keys;
            [same, next, later, earlier]
                .into_iter()
                .for_each(|i| _ = tracker.read(key(i), Seen::Below, memtable));
            tracker.written(key(earlier), memtable - 1);
            tracker.written(key(same), memtable);
            tracker.written(key(next), memtable + 1);
            tracker.written(key(later), memtable + 2);
            tracker.written(key(alone), memtable);
            let (once, twice) = ((Some(0), 1), (Some(3), 2));
            assert_eq!(keys.map(known), [once, once, twice, twice, once], "{memtable}");
            assert_eq!(tracker.tracked().1, 0, "{memtable}");
            // Whoever is written long afterwards counts, and is not taken for one that was just read 255 memtables on.
            keys.into_iter().for_each(|i| tracker.written(key(i), memtable + 100));
            let thrice = (Some(3), 3);
            assert_eq!(keys.map(known), [twice, twice, thrice, thrice, twice], "{memtable}");
        }
    }

    #[test]
    fn what_was_asked_for_as_often_as_can_be_told_is_hottest_after_a_halving_too() {
        let tracker = Tracker::new(1000, 1000, 1);
        (0..20).for_each(|_| _ = tracker.read(key(1), Seen::InStore, 0));
        (0..3).for_each(|_| _ = tracker.read(key(2), Seen::InStore, 0));
        // All counters are halved once.
        (10..)
            .take_while(|i| {
                tracker.read(key(*i), Seen::Below, 0);
                tracker.asked(key(1)).count == COUNT_MAX
            })
            .for_each(drop);
        assert_eq!(
            [1, 2].map(|i| (tracker.asked(key(i)).count, tracker.is_hottest(key(i)))),
            [(7, true), (1, false)]
        );
    }

    #[test]
    fn words_that_are_kept_say_nothing_of_when_they_were_read() {
        let tracker = Tracker::new(100, 100, 1);
        tracker.read(key(1), Seen::Below, 7);
        let words: Vec<u64> = tracker.words().collect();
        assert!(words.len() == 1 && words[0] & READ_IN == 0);
        // One of another size knows that, one of words does not, nor if these have something else there.
        let same = tracker.resized(200, 200);
        same.written(key(1), 7);
        let again = Tracker::of_words(100, 100, 1, &[words[0] | 8 << READ_IN_SHIFT], &[]);
        assert_eq!((again.clock(key(1)), again.tracked()), (Some(0), (1, 1)));
        again.written(key(1), 7);
        assert_eq!((same.clock(key(1)), again.clock(key(1))), (Some(0), Some(3)));
    }

    #[test]
    fn it_is_bounded_keeps_what_is_asked_for_again_and_counts_what_it_has() {
        let tracker = Tracker::new(1600, 1600, 7);
        for i in 0..100_000 {
            let seen = if i % 3 == 0 { Seen::Below } else { Seen::InStore };
            tracker.read(key(i), seen, 0);
            // Some of the first thousand, again and again.
            tracker.read(key(i * 7 % 600), Seen::InMemory, 0);
        }
        let (tracked, _) = tracker.tracked();
        assert_eq!((tracker.counts(), tracker.tracked()), counted(&tracker));
        assert!((1590..=1605).contains(&tracked), "{tracked}");
        let hot = (0..600).filter(|i| tracker.clock(key(*i)).is_some_and(|clock| clock > 0)).count();
        let cold = (50_000..51_000).filter(|i| tracker.clock(key(*i)).is_some()).count();
        assert!(hot > 590 && cold < 30, "{hot} {cold}");
    }

    #[test]
    fn one_of_another_size_knows_what_this_one_knew() {
        let tracker = Tracker::new(1000, 1000, 3);
        for i in 0..700 {
            let seen = if i % 3 == 0 { Seen::Below } else { Seen::InStore };
            (0..1 + i % 2)
                .for_each(|_| assert!(tracker.read(key(i), seen, 0).is_none_or(|clock| clock == 0)));
        }
        let larger = tracker.resized(3000, 3000);
        assert_eq!((larger.counts(), larger.tracked()), counted(&larger));
        assert_eq!((larger.counts(), larger.tracked()), (tracker.counts(), tracker.tracked()));
        assert!((0..700).all(|i| larger.clock(key(i)) == tracker.clock(key(i))));
        let smaller = tracker.resized(300, 300);
        assert_eq!((smaller.counts(), smaller.tracked()), counted(&smaller));
        assert!((250..=300).contains(&smaller.tracked().0));
    }

    #[test]
    fn threads_that_meet_keep_the_counts_exact() {
        let tracker = Tracker::new(100, 64, 3);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tracker = &tracker;
                scope.spawn(move || {
                    for i in 0..20_000 {
                        let seen = if (i + thread) % 2 == 0 { Seen::Below } else { Seen::InStore };
                        tracker.read(key((i * (thread + 1)) % 100), seen, 0);
                        tracker.written(key(i % 70), i);
                        tracker.moved(key(i % 50), Seen::InStore);
                    }
                });
            }
        });
        assert_eq!((tracker.counts(), tracker.tracked()), counted(&tracker));
    }
}
