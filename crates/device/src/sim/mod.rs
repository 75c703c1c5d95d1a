//! A simulated device in memory that keeps synced and unsynced bytes apart, and can be cut or made to fail at any
//! operation.
//!
//! A [`SimDisk`] is all tiers of one store; [`SimDisk::directory`] hands out what the store is opened on. All tiers
//! share one count of operations, so a cut falls between two operations of different tiers like between any others.
//!
//! It is strict: a new name is lost in a cut unless its directory was synced, a file holds what was synced and no
//! more, data and lengths are lost apart. What a kind device would keep is had by asking [`SimDisk::after_cut`] for
//! more than [`Survival::None`].
//!
//! A harness runs a store on a disk, lets the power fail by [`SimDisk::cut_at`], ends the store, and opens the next
//! one on [`SimDisk::after_cut`]; or takes [`SimDisk::kill`], as when only the process ends. Either is a disk of its
//! own: what is left of the old store cannot touch it.
//!
//! Any thread may call anything. Each operation is first a yield point of the scheduler and then one critical section
//! under a plain lock, which no thread holds while it waits. Cost: a read copies its bytes once, a write three times
//! until it is synced; nothing is copied per operation but what it moves.

mod fault;
mod memory;
mod op;
mod state;
mod survive;
#[cfg(test)]
mod tests;

pub use fault::{Effect, Failure, Fault, SyncFailure};
pub use op::{Counts, OpKind};
pub use survive::{Keep, Survival};

use crate::buffer::require_aligned;
use crate::name::check_name;
use crate::{
    Access, AlignedBuf, Device, Directory, Geometry, Listed, Lock, Pending, ReadRequest, SECTOR_BYTES_MIN,
    Ticket,
};
use cuesta_sched::{Rng, Sched};
use state::{File, FileId, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{error, fmt, io};

/// What a simulated disk is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Bytes that each tier can hold; [`SimDisk::set_capacity`] changes one.
    pub capacity_bytes: u64,
    /// Whether direct access is granted when asked for. If not, it falls back to buffered.
    pub direct: bool,
    /// The unit of direct I/O that it asks for at least.
    pub sector_bytes: u32,
    /// What [`Geometry::atomic_write_bytes`] says. Cuts tear at 512 bytes whatever it says.
    pub atomic_write_bytes: u32,
    /// How many of the last operations [`SimDisk::trace`] keeps as text; each then costs a formatted line.
    pub trace_ops: usize,
}

impl Default for SimConfig {
    fn default() -> Self {
        let (capacity_bytes, sector_bytes) = (u64::MAX, SECTOR_BYTES_MIN);
        Self { capacity_bytes, direct: true, sector_bytes, atomic_write_bytes: 512, trace_ops: 0 }
    }
}

/// Every call after the cut fails with this inside; see [`is_power_cut`].
#[derive(Debug)]
struct PowerCut;

impl fmt::Display for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated power is off")
    }
}

impl error::Error for PowerCut {}

fn power_cut() -> io::Error {
    io::Error::other(PowerCut)
}

/// True for the error of a simulated device whose power is off.
pub fn is_power_cut(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<PowerCut>())
}

/// The simulated media of one store. Clones share one state.
#[derive(Clone, Debug)]
pub struct SimDisk {
    sched: Sched,
    state: Arc<Mutex<Guarded>>,
}

/// The state, printed short: a disk may hold megabytes.
struct Guarded(State);

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files after {} operations", self.0.files.len(), self.0.ops)
    }
}

impl SimDisk {
    /// An empty disk of `tiers` tiers, whose operations are yield points of `sched`.
    pub fn new(sched: &Sched, tiers: usize, config: SimConfig) -> Self {
        Self::of(sched, State::new(config, &vec![config.capacity_bytes; tiers]))
    }

    fn of(sched: &Sched, state: State) -> Self {
        Self { sched: sched.clone(), state: Arc::new(Mutex::new(Guarded(state))) }
    }

    /// The same disk with operations that are yield points of `sched`; for the next store after a crash.
    pub fn on(&self, sched: &Sched) -> Self {
        Self { sched: sched.clone(), state: Arc::clone(&self.state) }
    }

    /// The names of one tier.
    ///
    /// # Panics
    /// Here and in all that takes a tier: when the disk has no such tier.
    pub fn directory(&self, tier: usize) -> Arc<dyn Directory> {
        assert!(tier < self.tiers(), "a disk of {} tiers has no tier {tier}", self.tiers());
        Arc::new(SimDirectory { disk: self.clone(), tier })
    }

    /// How many tiers there are.
    pub fn tiers(&self) -> usize {
        self.with(|state| state.tiers.len())
    }

    fn locked(&self) -> MutexGuard<'_, Guarded> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        body(&mut self.locked().0)
    }

    /// An operation of the store: others may run first.
    fn operate<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        self.sched.yield_point();
        self.with(body)
    }

    /// Operations so far, over all tiers, failed ones too; calls after the cut do not count.
    pub fn ops(&self) -> u64 {
        self.with(|state| state.ops)
    }

    /// Cuts the power at operation `number` (the first is 1; a past one means the next). That operation fails, and
    /// its change is among those that may survive in part; all later ones fail without any effect.
    pub fn cut_at(&self, number: u64) {
        self.with(|state| state.cut_at = Some(number));
    }

    /// Cuts the power between two operations.
    pub fn cut_now(&self) {
        self.with(|state| state.power_is_off = true);
    }

    /// True once the power is off.
    pub fn is_cut(&self) -> bool {
        self.with(|state| state.power_is_off)
    }

    /// What a power cut now leaves, or has left: a new disk with the same scheduler and capacities, on which
    /// everything is durable and nothing is locked, counted or faulty. This disk stays as it is, so that other
    /// outcomes of the same cut can be asked for. `rng` is drawn from alike for every policy but
    /// [`Survival::Random`].
    pub fn after_cut(&self, survival: Survival, rng: &mut Rng) -> Self {
        Self::of(&self.sched, self.with(|state| state.after_cut(survival, rng)))
    }

    /// What the death of the process leaves, the kernel alive: a new disk that reads as this one and has the same
    /// changes pending; locks and open files are gone, counts and faults too. A sync that fails for good stays so.
    pub fn kill(&self) -> Self {
        Self::of(&self.sched, self.with(|state| state.reopened()))
    }

    /// How many changes are pending: the indexes of [`Survival`].
    pub fn pending_len(&self) -> usize {
        self.with(|state| state.pending_len())
    }

    /// The pending changes in words, in their order.
    pub fn pending(&self) -> Vec<String> {
        self.with(|state| state.describe_pending())
    }

    /// Replaces the faults; what they have counted begins anew.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.with(|state| state.faults = faults);
    }

    /// How often a fault has struck.
    pub fn faults_struck(&self) -> u64 {
        self.with(|state| state.faults_struck)
    }

    /// A digest of all operations so far, with their places and bytes: equal for equal runs.
    pub fn log_hash(&self) -> u64 {
        self.with(|state| state.log.digest())
    }

    /// The last operations as text, oldest first; see [`SimConfig::trace_ops`].
    pub fn trace(&self) -> Vec<String> {
        self.with(|state| state.log.tail())
    }

    /// What each tier was asked for.
    pub fn counts(&self) -> Vec<Counts> {
        self.with(|state| state.tiers.iter().map(|tier| tier.counts).collect())
    }

    /// Begins all counts anew.
    pub fn reset_counts(&self) {
        self.with(|state| state.tiers.iter_mut().for_each(|tier| tier.counts = Counts::default()));
    }

    /// Changes how many bytes a tier can hold. Below what it holds, it only takes no more.
    pub fn set_capacity(&self, tier: usize, bytes: u64) {
        self.with(|state| state.tiers[tier].capacity = bytes);
    }

    /// Bytes of a tier in use: of all files that have a name or are open.
    pub fn used_bytes(&self, tier: usize) -> u64 {
        self.with(|state| state.tiers[tier].used)
    }
}

/// Edits at rest: they are no operations, change what is read and what is durable alike, and work with the power off.
///
/// They panic when the file is not there or ends before the place: a harness that edits nothing tests nothing.
impl SimDisk {
    /// The files of a tier, by name.
    pub fn files(&self, tier: usize) -> Vec<Listed> {
        self.with(|state| state.listed(tier))
    }

    /// The bytes of a file, as they are read.
    pub fn read_file(&self, tier: usize, name: &str) -> Vec<u8> {
        self.edit(tier, name, |file| file.image.clone())
    }

    /// Inverts one bit (0 to 7) of one byte.
    pub fn flip_bit(&self, tier: usize, name: &str, offset: u64, bit: u8) {
        self.edit(tier, name, |file| {
            let at = offset as usize;
            file.image[at] ^= 1 << bit;
            if let Some(byte) = file.durable.get_mut(at) {
                *byte ^= 1 << bit;
            }
        });
    }

    /// Replaces bytes. What is pending for the same place still comes over it in a sync.
    pub fn overwrite(&self, tier: usize, name: &str, offset: u64, bytes: &[u8]) {
        self.edit(tier, name, |file| {
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            file.image[start..end].copy_from_slice(bytes);
            let known = file.durable.len();
            if start < known {
                let end = end.min(known);
                file.durable[start..end].copy_from_slice(&bytes[..end - start]);
            }
        });
    }

    /// Puts a durable file there, instead of what had the name; open devices keep the old one. Capacity is not
    /// asked.
    pub fn write_file(&self, tier: usize, name: &str, bytes: &[u8]) {
        self.with(|state| {
            state.forget_name(tier, name);
            let id = state.insert(File::new(tier, name, bytes.to_vec()));
            state.tiers[tier].entries.insert(name.to_owned(), id);
            state.tiers[tier].durable.insert(name.to_owned(), id);
        });
    }

    /// Takes a file away durably.
    pub fn remove_file(&self, tier: usize, name: &str) {
        self.edit(tier, name, |_| {});
        self.with(|state| state.forget_name(tier, name));
    }

    fn edit<R>(&self, tier: usize, name: &str, change: impl FnOnce(&mut File) -> R) -> R {
        self.with(|state| {
            let id = state.find(tier, name).ok();
            let Some(file) = id.and_then(|id| state.files.get_mut(&id)) else {
                panic!("tier {tier} has no file {name}")
            };
            change(file)
        })
    }
}

#[derive(Debug)]
struct SimDirectory {
    disk: SimDisk,
    tier: usize,
}

impl SimDirectory {
    fn device(&self, id: FileId, access: Access) -> Arc<dyn Device> {
        let config = self.disk.with(|state| state.config);
        let geometry = Geometry {
            direct: access != Access::Buffered && config.direct,
            sector_bytes: access.sector_bytes(|| config.sector_bytes),
            atomic_write_bytes: config.atomic_write_bytes,
        };
        Arc::new(SimDevice { disk: self.disk.clone(), id, geometry })
    }
}

impl Directory for SimDirectory {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        check_name(name)?;
        let id = self.disk.operate(|state| state.create(self.tier, name))?;
        Ok(self.device(id, access))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        check_name(name)?;
        let id = self.disk.operate(|state| state.open(self.tier, name))?;
        Ok(self.device(id, access))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.disk.operate(|state| state.remove(self.tier, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.disk.operate(|state| state.rename(self.tier, from, to))
    }

    fn list(&self) -> io::Result<Vec<Listed>> {
        self.disk.operate(|state| state.list(self.tier))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.operate(|state| state.sync_directory(self.tier))
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        self.disk.operate(|state| state.lock(self.tier))?;
        Ok(Box::new(SimLock { disk: self.disk.clone(), tier: self.tier }))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.operate(|state| state.free_bytes(self.tier))
    }

    fn place(&self) -> String {
        format!("simulated tier {}", self.tier)
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    tier: usize,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.with(|state| state.tiers[self.tier].locked = false);
    }
}

#[derive(Debug)]
struct SimDevice {
    disk: SimDisk,
    id: FileId,
    geometry: Geometry,
}

impl SimDevice {
    fn check(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Geometry { direct, sector_bytes, .. } = self.geometry;
        if direct { require_aligned(bytes, offset, sector_bytes) } else { Ok(()) }
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.disk.with(|state| state.close(self.id));
    }
}

impl Device for SimDevice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(buffer, offset)?;
        let late = self.disk.operate(|state| state.read(self.id, buffer, offset))?;
        if !late.is_zero() {
            self.disk.sched.sleep(late);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check(bytes, offset)?;
        self.disk.operate(|state| state.write(self.id, bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.operate(|state| state.sync(self.id))
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.operate(|state| state.len(self.id))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.operate(|state| state.set_len(self.id, len))
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Done at once, as an operation of its own; what is counted is how many have not been waited for.
    fn submit(&self, request: ReadRequest) -> Ticket {
        let ReadRequest { mut buffer, offset } = request;
        let result = self.read_at(&mut buffer, offset).map(|()| buffer);
        let tier = self.disk.with(|state| state.submitted(self.id));
        Ticket::pending(Box::new(Submitted { disk: self.disk.clone(), tier, result: Some(result) }))
    }
}

/// A submitted read.
#[derive(Debug)]
struct Submitted {
    disk: SimDisk,
    tier: usize,
    /// Taken by who waits for it.
    result: Option<io::Result<AlignedBuf>>,
}

impl Pending for Submitted {
    fn wait(mut self: Box<Self>) -> io::Result<AlignedBuf> {
        self.result.take().unwrap_or_else(|| Err(io::Error::other("a read is waited for once")))
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        self.disk.with(|state| state.waited(self.tier));
    }
}
