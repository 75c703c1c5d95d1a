//! A directory of which no sync succeeds once one has failed.
//!
//! A file system may drop the names that it could not make durable, and report success the next time. Who made names
//! meanwhile, and syncs after somebody else's sync has failed, would be told that they are durable. So syncs take
//! turns, and after the first that fails the names that are there are as unsure as they look: whoever needs them has to
//! open the store anew.
//!
//! Costs a lock for each sync.

use crate::mapped::Persistence;
use crate::{Access, Device, Directory, Listed, Lock};
use cuesta_sched::{Mutex, Sched};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct SureNames {
    directory: Arc<dyn Directory>,
    has_failed: Mutex<bool>,
}

impl SureNames {
    /// The same directory.
    pub fn new(sched: &Sched, directory: Arc<dyn Directory>) -> Self {
        Self { directory, has_failed: Mutex::new(sched, false) }
    }
}

impl Directory for SureNames {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.create(name, access)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.open(name, access)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.directory.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.directory.list()
    }

    fn sync(&self) -> io::Result<()> {
        let mut has_failed = self.has_failed.lock();
        if *has_failed {
            return Err(io::Error::other("an earlier sync of the names here has failed"));
        }
        self.directory.sync().inspect_err(|_| *has_failed = true)
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.directory.lock()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.directory.free_bytes()
    }

    fn place(&self) -> String {
        self.directory.place()
    }

    fn persistence(&self) -> Option<Persistence> {
        self.directory.persistence()
    }

    fn claim(&self, name: &str, pieces: &[Range<u64>], bytes: u64) -> io::Result<()> {
        self.directory.claim(name, pieces, bytes)
    }

    fn allot_memory(&self) -> io::Result<()> {
        self.directory.allot_memory()
    }

    fn check_memory(&self) -> io::Result<()> {
        self.directory.check_memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Effect, Fault, OpKind, SimConfig, SimDisk, SyncFailure};

    #[test]
    fn who_syncs_after_a_sync_that_failed_is_not_told_that_names_are_durable() {
        let sched = Sched::simulated(1);
        let disk = SimDisk::new(&sched, 1, SimConfig::default());
        sched.run(|| {
            let names = SureNames::new(&sched, disk.directory(0));
            drop(names.create("a", Access::Buffered).unwrap());
            names.sync().unwrap();
            drop(names.create("b", Access::Buffered).unwrap());
            let fails = Fault::new(Effect::SyncFails(SyncFailure::CleanOld)).on(OpKind::SyncDirectory);
            disk.set_faults(vec![fails]);
            assert!(names.sync().is_err());
            assert!(disk.directory(0).sync().is_ok(), "the file system says so");
            assert!(names.sync().unwrap_err().to_string().contains("earlier"));
        });
    }
}
