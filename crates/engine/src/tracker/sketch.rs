//! How often keys were asked for, roughly, for all keys at two bytes each: what the tracker's clocks cannot tell apart.
//!
//! A key on the border of what the fast tier holds is asked for about once while as many reads go by as there are keys.
//! Two bits for a fifth of the keys forget it in between; so which of two such objects is worth the room takes a count
//! that lasts longer. This is a count-min sketch (Cormode and Muthukrishnan, 2005) with conservative update and ageing,
//! as TinyLFU has it (Einziger, Friedman and Manes, 2017): a block is one cache line, a key has four counters of four
//! bits in one block, and the least of them is its count: the truth since the last halvings, or more where others share
//! all four.
//!
//! All counters are halved once so many have been added to, for each key that the sketch is for: each block by itself,
//! when it is next met, so nobody sweeps. Were blocks halved each by its own additions, counts of two blocks would tell
//! of different pasts. What is counted is additions, not accesses: while the same keys are asked for as often as can be
//! counted, nothing is forgotten.
//!
//! An access touches one line, and writes to it only while the key's count still grows; one addition in sixteen writes
//! to what all threads share. Threads change words by compare-and-swap, and who loses a race lets its addition go.

use cuesta_sched::atomic::{AtomicU64, Ordering};

/// Counters that a key has.
const COUNTERS: usize = 4;
/// Words of counters in a block; its last word is its age, and additions that are not yet told of.
const WORDS: usize = 7;
const NIBBLES: u64 = 16 * WORDS as u64;
/// Keys to a block: so a key has about three and a half counters of its own, and two bytes.
const KEYS: u64 = 32;
/// Additions for each key before the first halving; from then on half as many come between two. With the skew of YCSB
/// that is six to eight reads for each key.
const ADDITIONS: u64 = 4;
/// Additions of a block that are told of at once.
const TOLD: u64 = 16;
/// So many halvings leave nothing.
const HALVINGS_MAX: u64 = 4;
/// Counts end here.
pub(super) const COUNT_MAX: u8 = 15;

#[derive(Default)]
#[repr(align(64))]
struct Block {
    words: [AtomicU64; WORDS],
    /// Halvings that it has seen, times [`TOLD`], and additions that are not yet told of.
    state: AtomicU64,
}

/// What grows with additions, in a line of its own.
#[repr(align(64))]
struct Additions {
    told: AtomicU64,
    /// As many as bring the next halving.
    halving_at: AtomicU64,
}

/// See the module's head.
pub(crate) struct Sketch {
    blocks: Box<[Block]>,
    /// Halvings so far.
    age: AtomicU64,
    additions: Additions,
}

fn replace(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl Block {
    /// Where a key's counters are: word and shift.
    fn places(hash: u64) -> [(usize, u32); COUNTERS] {
        let step = (hash >> 32 | 1) % NIBBLES;
        std::array::from_fn(|i| {
            // Steps that share a factor with the number of counters would meet themselves: `i * i` keeps them apart.
            let place = (hash % NIBBLES + i as u64 * step + (i * i) as u64) % NIBBLES;
            ((place / 16) as usize, (place % 16 * 4) as u32)
        })
    }

    fn counts(&self, places: &[(usize, u32); COUNTERS]) -> [u8; COUNTERS] {
        places.map(|(word, shift)| (self.words[word].load(Ordering::Relaxed) >> shift) as u8 & COUNT_MAX)
    }

    /// Halves all counters as often as it has not yet been done of `age` times.
    fn catch_up(&self, age: u64) {
        let state = self.state.load(Ordering::Relaxed);
        let behind = age.saturating_sub(state / TOLD).min(HALVINGS_MAX);
        if behind == 0 || !replace(&self.state, state, age * TOLD + state % TOLD) {
            return;
        }
        (0..behind).for_each(|_| self.words.iter().for_each(halve));
    }
}

/// Halves sixteen counters, whoever comes between.
fn halve(word: &AtomicU64) {
    loop {
        let old = word.load(Ordering::Relaxed);
        if replace(word, old, old >> 1 & 0x7777_7777_7777_7777) {
            return;
        }
    }
}

impl Sketch {
    /// For about so many keys.
    pub(crate) fn new(keys: u64) -> Self {
        Self::of((0..keys.div_ceil(KEYS).max(1)).map(|_| Block::default()).collect(), ADDITIONS)
    }

    /// With `additions` more for each key before the next halving.
    fn of(blocks: Box<[Block]>, additions: u64) -> Self {
        let halving_at = AtomicU64::new(additions * KEYS * blocks.len() as u64);
        Self { blocks, age: AtomicU64::new(0), additions: Additions { told: AtomicU64::new(0), halving_at } }
    }

    /// Memory that it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        size_of_val(&*self.blocks) as u64
    }

    /// Whether it is about as large as one for so many keys.
    pub(crate) fn fits(&self, keys: u64) -> bool {
        let mine = self.blocks.len() as u64 * KEYS;
        keys <= 2 * mine && mine <= 4 * keys.max(KEYS)
    }

    /// All blocks, each as eight words, of which the last is 0.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let age = self.age.load(Ordering::Relaxed);
        let words = move |block: &Block| {
            block.catch_up(age);
            let [a, b, c, d, e, f, g] = block.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            [a, b, c, d, e, f, g, 0]
        };
        self.blocks.iter().flat_map(words)
    }

    /// The one whose words these are, if it is about as large as one for so many keys.
    pub(crate) fn of_words(words: &[u64], keys: u64) -> Option<Self> {
        let block = |words: &[u64]| Block {
            words: std::array::from_fn(|i| AtomicU64::new(words[i])),
            state: AtomicU64::new(0),
        };
        // As many to the next halving as if the last had just been.
        let made = Self::of(words.chunks_exact(WORDS + 1).map(block).collect(), ADDITIONS / 2);
        (!made.blocks.is_empty() && made.fits(keys)).then_some(made)
    }

    fn block_of(&self, hash: u64) -> &Block {
        let block = &self.blocks[((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize];
        block.catch_up(self.age.load(Ordering::Relaxed));
        block
    }

    /// How often a key of this hash was asked for of late, or more often.
    pub(crate) fn count(&self, hash: u64) -> u8 {
        let counts = self.block_of(hash).counts(&Block::places(hash));
        counts.into_iter().min().unwrap_or(0)
    }

    /// A key of this hash was asked for.
    pub(crate) fn add(&self, hash: u64) {
        let (block, places) = (self.block_of(hash), Block::places(hash));
        let counts = block.counts(&places);
        let least = counts.into_iter().min().unwrap_or(COUNT_MAX);
        if least == COUNT_MAX {
            return;
        }
        for ((word, shift), count) in places.into_iter().zip(counts) {
            if count == least {
                let word = &block.words[word];
                let old = word.load(Ordering::Relaxed);
                // Somebody else may have added meanwhile.
                if (old >> shift) as u8 & COUNT_MAX == count {
                    replace(word, old, old + (1 << shift));
                }
            }
        }
        let state = block.state.load(Ordering::Relaxed);
        match state % TOLD + 1 < TOLD {
            true => drop(replace(&block.state, state, state + 1)),
            false if replace(&block.state, state, state + 1 - TOLD) => self.tell(),
            false => {}
        }
    }

    /// Sixteen more were added.
    fn tell(&self) {
        let told = self.additions.told.fetch_add(TOLD, Ordering::Relaxed) + TOLD;
        let halving_at = self.additions.halving_at.load(Ordering::Relaxed);
        let next = halving_at + ADDITIONS / 2 * KEYS * self.blocks.len() as u64;
        if told >= halving_at && replace(&self.additions.halving_at, halving_at, next) {
            self.age.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash;

    fn key(i: u64) -> u64 {
        hash(&i.to_be_bytes()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn it_counts_up_to_its_end() {
        let sketch = Sketch::new(1000);
        for i in 0..20u8 {
            assert_eq!(sketch.count(key(1)), i.min(COUNT_MAX));
            sketch.add(key(1));
        }
        assert_eq!(sketch.held_bytes(), 32 * 64);
        let distinct = |i: u64| {
            let mut places = Block::places(key(i)).to_vec();
            places.sort_unstable();
            places.dedup();
            places.len()
        };
        let few = (0..1000).filter(|i| distinct(*i) < COUNTERS).count();
        assert!(few < 100, "{few}");
    }

    #[test]
    fn what_is_asked_for_more_counts_more_and_the_past_fades() {
        let sketch = Sketch::new(10_000);
        // A tenth three times as often as the others.
        let round = |from: u64| {
            for i in 0..10_000 {
                let times = if (i + from).is_multiple_of(10) { 3 } else { 1 };
                (0..times).for_each(|_| sketch.add(key(i)));
            }
        };
        (0..20).for_each(|_| round(0));
        let mean = |which: u64| (0..1000).map(|i| u64::from(sketch.count(key(10 * i + which)))).sum::<u64>();
        let (hot, cold) = (mean(0), mean(5));
        assert!(hot > 2 * cold && cold > 500, "{hot} {cold}");
        (0..20).for_each(|_| round(5));
        let (hot, cold) = (mean(5), mean(0));
        assert!(hot > 2 * cold, "{hot} {cold}");
    }

    #[test]
    fn a_count_tells_the_same_whoever_shares_its_block() {
        let sketch = Sketch::new(10_000);
        let is_beside = |a: u64, b: u64| std::ptr::eq(sketch.block_of(key(a)), sketch.block_of(key(b)));
        let busy: Vec<u64> = (1..10_000).filter(|i| is_beside(*i, 0)).take(20).collect();
        let quiet = (1..10_000).find(|i| !is_beside(*i, 0)).unwrap();
        let mut apart = [0, 0];
        for round in 0..200 {
            (0..10_000).filter(|i| (i + round) % 5 == 0).for_each(|i| sketch.add(key(i)));
            busy.iter().for_each(|i| (0..3).for_each(|_| sketch.add(key(*i))));
            [0, quiet].into_iter().for_each(|i| sketch.add(key(i)));
            apart[0] += i32::from(sketch.count(key(0)));
            apart[1] += i32::from(sketch.count(key(quiet)));
        }
        assert!(apart.iter().all(|sum| *sum > 200 * 5) && (apart[0] - apart[1]).abs() < 200, "{apart:?}");
    }

    #[test]
    fn it_is_made_again_of_its_words() {
        let sketch = Sketch::new(1000);
        (0..500).for_each(|i| (0..i % 5).for_each(|_| sketch.add(key(i))));
        let words: Vec<u64> = sketch.words().collect();
        let same = Sketch::of_words(&words, 1500).unwrap();
        assert!((0..1000).all(|i| same.count(key(i)) == sketch.count(key(i))));
        assert!(words.iter().any(|word| *word != 0) && same.words().eq(words.iter().copied()));
        assert!(
            [(&words[..], 5000), (&words[..], 100), (&words[..7], 10), (&[], 0)]
                .into_iter()
                .all(|(words, keys)| Sketch::of_words(words, keys).is_none())
        );
    }

    #[test]
    fn few_keys_are_taken_for_others() {
        let sketch = Sketch::new(10_000);
        (0..5_000).for_each(|i| (0..2).for_each(|_| sketch.add(key(i))));
        let wrong = (5_000..10_000).filter(|i| sketch.count(key(*i)) > 0).count();
        assert!(wrong < 500, "{wrong}");
        assert!((0..5_000).all(|i| sketch.count(key(i)) >= 2));
    }
}
