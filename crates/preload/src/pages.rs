//! The page cache that buffered files are modelled to have: which pages it would hold, not their bytes.
//!
//! A clock over a fixed number of pages, in shards by page, each behind a lock of its own. Pages are known by file and
//! number; those of a file that is removed stay until the clock comes by.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
const SHARDS: usize = 16;

/// File and number of a page.
type Page = (u64, u64);

pub(crate) struct PageCache {
    shards: Vec<Mutex<Shard>>,
}

struct Shard {
    slots: HashMap<Page, usize>,
    /// The page of each slot, and whether it was used since the hand came by.
    clock: Vec<(Page, bool)>,
    hand: usize,
    pages_max: usize,
}

impl Shard {
    /// Whether the page was there; it is afterwards.
    fn touch(&mut self, page: Page) -> bool {
        if let Some(slot) = self.slots.get(&page) {
            self.clock[*slot].1 = true;
            return true;
        }
        if self.clock.len() < self.pages_max {
            self.slots.insert(page, self.clock.len());
            self.clock.push((page, false));
            return false;
        }
        while std::mem::take(&mut self.clock[self.hand].1) {
            self.hand = (self.hand + 1) % self.clock.len();
        }
        self.slots.remove(&self.clock[self.hand].0);
        self.clock[self.hand] = (page, false);
        self.slots.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.clock.len();
        false
    }
}

impl PageCache {
    /// Of so many bytes; a page for each shard at least.
    pub(crate) fn new(bytes: u64) -> Self {
        let pages_max = ((bytes / PAGE) as usize / SHARDS).max(1);
        let shard = |_| Shard { slots: HashMap::new(), clock: Vec::new(), hand: 0, pages_max };
        Self { shards: (0..SHARDS).map(shard).map(Mutex::new).collect() }
    }

    /// How many of the pages from `offset` on, for so many bytes, were not there; all are afterwards.
    pub(crate) fn touch(&self, file: u64, offset: u64, bytes: u64) -> u64 {
        let (first, last) = (offset / PAGE, (offset + bytes.max(1) - 1) / PAGE);
        let missing = |number: &u64| {
            let shard = &self.shards[(file.wrapping_mul(31).wrapping_add(*number)) as usize % SHARDS];
            !shard.lock().unwrap_or_else(PoisonError::into_inner).touch((file, *number))
        };
        (first..=last).filter(missing).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_stay_until_others_take_their_room() {
        let cache = PageCache::new(64 * PAGE);
        assert_eq!(cache.touch(1, 100, 8000), 2);
        assert_eq!(cache.touch(1, 0, 4096), 0);
        assert_eq!(cache.touch(2, 0, 1), 1);
        for number in 10..200 {
            // What is used goes on being there.
            assert_eq!(cache.touch(1, 0, 8192), 0);
            assert_eq!(cache.touch(1, number * PAGE, 4096), 1);
        }
        assert_eq!(cache.touch(1, 10 * PAGE, 4096), 1);
    }
}
