//! Which tables are open, and which are closed to open others.
//!
//! An open table holds two files and, in memory, its top index. Handles of open tables stand in a ring; when there are
//! too many, or they hold more than their share of the memory number ([`OpenMost`]), a hand goes round and closes those
//! that nobody has used since it came by last (a clock). Who reads a table while it is closed goes on: the files are
//! closed with their last user.
//!
//! Opening costs a few reads of the meta part; finding a table open costs a load, and now and then a store.

use super::tables::TableHandle;
use crate::memory::{Holder, Memory};
use std::sync::{Arc, Weak};

/// How much may be open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMost {
    pub(crate) tables: usize,
    /// They may hold one part in so many of the memory number.
    pub(crate) memory_share: u64,
}

/// At least so many stay open, whatever the limits say.
const LEAST: usize = 8;
/// Places that each opening looks at for handles that are gone.
const SWEEP: usize = 2;

/// Handles of open tables.
#[derive(Debug)]
pub(super) struct Opened {
    most: OpenMost,
    ring: Vec<Weak<TableHandle>>,
    hand: usize,
}

impl Opened {
    pub(super) fn new(most: OpenMost) -> Self {
        Self { most: OpenMost { tables: most.tables.max(LEAST), ..most }, ring: Vec::new(), hand: 0 }
    }

    /// Takes in a handle whose table was opened; the handles whose tables are to be closed.
    pub(super) fn add(&mut self, opened: &Arc<TableHandle>, memory: &Memory) -> Vec<Arc<TableHandle>> {
        self.ring.push(Arc::downgrade(opened));
        let mut close = Vec::new();
        let mut held = memory.held(Holder::Tables);
        // Twice round at most: at the second look none has been used since the first.
        for step in 0..2 * self.ring.len() {
            let OpenMost { tables, memory_share } = self.most;
            let too_many = self.ring.len() > tables || held > memory.limit() / memory_share;
            if (!too_many || self.ring.len() <= LEAST) && step >= SWEEP || self.ring.is_empty() {
                break;
            }
            self.hand %= self.ring.len();
            match self.ring[self.hand].upgrade() {
                Some(handle) if !too_many || Arc::ptr_eq(&handle, opened) || handle.was_used() => {
                    self.hand += 1;
                }
                Some(handle) => {
                    held = held.saturating_sub(handle.held_bytes());
                    close.push(handle);
                    self.ring.swap_remove(self.hand);
                }
                None => drop(self.ring.swap_remove(self.hand)),
            }
        }
        close
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::format::StoreId;
    use crate::tier::Tiers;
    use crate::version::Tables;
    use crate::version::edit::TableMeta;
    use cuesta_device::{Access, Meter};
    use cuesta_sched::Sched;

    fn handles() -> Vec<Arc<TableHandle>> {
        let tiers = Tiers { all: Vec::new(), meter: Meter::new(0), table_access: Access::Buffered };
        let cache = Arc::new(Cache::new(1 << 20, 1));
        let tables = Tables::new(
            &Sched::simulated(1),
            StoreId(1),
            Arc::new(tiers),
            cache,
            OpenMost { tables: 0, memory_share: 8 },
        );
        let meta = |number| TableMeta { number, ..TableMeta::default() };
        (0..20).map(|number| TableHandle::new(meta(number), None, tables.clone())).collect()
    }

    fn numbers(handles: &[Arc<TableHandle>]) -> Vec<u64> {
        handles.iter().map(|handle| handle.meta.number).collect()
    }

    #[test]
    fn those_that_nobody_uses_are_closed_first() {
        let (handles, memory) = (handles(), Memory::new(1 << 20, 0, 0));
        let mut opened = Opened::new(OpenMost { tables: 10, memory_share: 8 });
        for handle in &handles[..10] {
            assert!(opened.add(handle, &memory).is_empty());
        }
        (0..10).step_by(2).for_each(|i| handles[i].use_now());
        let closed: Vec<_> = handles[10..15].iter().flat_map(|handle| opened.add(handle, &memory)).collect();
        assert_eq!(closed.len(), 5);
        assert!(numbers(&closed).iter().all(|number| number % 2 == 1), "{:?}", numbers(&closed));
    }

    #[test]
    fn some_is_closed_even_if_all_are_used_and_none_of_the_last_few_for_memory() {
        let (handles, memory) = (handles(), Memory::new(800, 0, 0));
        let mut opened = Opened::new(OpenMost { tables: 10, memory_share: 8 });
        for handle in &handles[..10] {
            opened.add(handle, &memory);
            handle.use_now();
        }
        assert_eq!(opened.add(&handles[10], &memory).len(), 1);
        let held = memory.charge(Holder::Tables, 101);
        assert_eq!(opened.add(&handles[11], &memory).len(), 3, "down to eight");
        drop(held);
    }

    #[test]
    fn handles_that_are_gone_leave_the_ring() {
        let memory = Memory::new(1 << 20, 0, 0);
        let mut opened = Opened::new(OpenMost { tables: 1000, memory_share: 8 });
        for _ in 0..20 {
            handles().iter().for_each(|handle| drop(opened.add(handle, &memory)));
        }
        assert!(opened.ring.len() < 60, "{} are left", opened.ring.len());
    }
}
