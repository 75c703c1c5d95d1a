//! Devices that are made slower than they are. A [`Medium`] says when a call is done; a [`PacedDirectory`] lets all
//! calls to a directory's files end then and not before. The [`Limiter`] is a medium of a stated bandwidth and time per
//! call, which may change while it is used; it can also hold back single devices.
//!
//! The real call is done first; the caller sleeps for what is missing. Waits that are shorter than the medium thinks
//! worth a sleep are left out: a limiter's channel makes up for them at the next call, so that the rate holds where the
//! system cannot sleep for microseconds. In simulation the time is virtual, and a medium that stalls for an hour takes
//! no longer than one that does not. Submitted reads are under way together as far as both the device and the medium
//! have them so.

use crate::mapped::Persistence;
use crate::{
    Access, AlignedBuf, Device, Directory, Geometry, Listed, Lock, Pending, ReadRequest, Ticket, View,
    WriteRequest,
};
use cuesta_sched::{Mutex, Sched};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Waits shorter than this are put together: sleeping costs about as much.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// What is asked of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read of some bytes.
    Read,
    /// A write of some bytes.
    Write,
    /// A sync of a file or directory.
    Sync,
}

/// Something that takes its time. All times are of one clock, [`Sched::now`].
pub trait Medium: Send + Sync + Debug {
    /// When a call of so many bytes that began at `began` is done.
    fn done_at(&self, began: Duration, call: Call, bytes: usize) -> Duration;

    /// The call that was to be done at `done_at` was done for real at `really`; the caller has not waited yet.
    fn note(&self, _done_at: Duration, _really: Duration) {}

    /// Whether it wants to know what the next sleep takes of the processor.
    fn samples(&self) -> bool {
        false
    }

    /// A caller has slept for a call.
    fn slept(&self, _sleep: Sleep) {}

    /// Waits shorter than this are left out.
    fn sleep_min(&self) -> Duration {
        SLEEP_MIN
    }
}

/// A caller's sleep. Times are of the medium's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// When it began.
    pub began: Duration,
    /// When the call was done, and the sleep should have ended.
    pub done_at: Duration,
    /// When it ended.
    pub ended: Duration,
    /// What it took of the processor, where the medium wanted to know, with one look at that clock.
    pub took: Option<Duration>,
}

/// How fast a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second, reads and writes together; 0 for no limit.
    pub bytes_per_second: u64,
    /// Time that each read, write and sync takes besides.
    pub per_call: Duration,
}

/// A medium of one channel: a call takes its bytes' share of the bandwidth there, after the calls before it, and then
/// the time per call beside the others. Clones share it.
#[derive(Clone, Debug)]
pub struct Limiter {
    sched: Sched,
    channel: Arc<Channel>,
}

#[derive(Debug)]
struct Channel {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// When the channel has done all that was asked of it.
    free_at: Duration,
}

/// A directory whose files are as slow as a medium. Clones share it.
#[derive(Clone, Debug)]
pub struct PacedDirectory {
    directory: Arc<dyn Directory>,
    pacing: Pacing,
}

/// A medium and its clock: what makes a call as slow as the medium, for those who make calls by themselves.
#[derive(Clone, Debug)]
pub struct Pacing {
    sched: Sched,
    medium: Arc<dyn Medium>,
}

impl Limiter {
    /// To `pace`.
    pub fn new(sched: &Sched, pace: Pace) -> Self {
        let state = Mutex::new(sched, State { pace, free_at: Duration::ZERO });
        Self { sched: sched.clone(), channel: Arc::new(Channel { state }) }
    }

    /// Another pace from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.channel.state.lock().pace = pace;
    }

    /// Nothing is done for this long.
    pub fn stall(&self, duration: Duration) {
        let mut state = self.channel.state.lock();
        state.free_at = state.free_at.max(self.sched.now()) + duration;
    }

    /// `device`, held back.
    pub fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Paced { device, pacing: self.pacing() })
    }

    /// `directory`, held back.
    pub fn wrap_directory(&self, directory: Arc<dyn Directory>) -> PacedDirectory {
        PacedDirectory { directory, pacing: self.pacing() }
    }

    fn pacing(&self) -> Pacing {
        Pacing::new(&self.sched, self.channel.clone())
    }
}

impl PacedDirectory {
    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Paced { device, pacing: self.pacing.clone() })
    }

    /// `directory`, as slow as `medium`.
    pub fn new(sched: &Sched, directory: Arc<dyn Directory>, medium: Arc<dyn Medium>) -> Self {
        Self { directory, pacing: Pacing::new(sched, medium) }
    }
}

impl Medium for Channel {
    fn done_at(&self, began: Duration, _: Call, bytes: usize) -> Duration {
        let mut state = self.state.lock();
        let nanos = match state.pace.bytes_per_second {
            0 => 0,
            rate => (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64,
        };
        state.free_at = state.free_at.max(began) + Duration::from_nanos(nanos);
        state.free_at + state.pace.per_call
    }
}

impl Pacing {
    /// Of calls to `medium`, by the clock of `sched`.
    pub fn new(sched: &Sched, medium: Arc<dyn Medium>) -> Self {
        Self { sched: sched.clone(), medium }
    }

    /// The time by its clock.
    pub fn now(&self) -> Duration {
        self.sched.now()
    }

    /// Asks the medium for a call that began at `began` and has just returned; when it is done there.
    pub fn ask(&self, began: Duration, call: Call, bytes: usize) -> Duration {
        let done_at = self.medium.done_at(began, call, bytes);
        self.medium.note(done_at, self.sched.now());
        done_at
    }

    /// Lets time pass until then; whether that took a sleep.
    pub fn pass(&self, done_at: Duration) -> bool {
        let began = self.sched.now();
        let missing = done_at.saturating_sub(began);
        let sleeps = missing >= self.medium.sleep_min();
        if sleeps {
            let before = self.medium.samples().then(thread_took);
            self.sched.sleep(missing);
            let took = before.map(|before| thread_took().saturating_sub(before));
            self.medium.slept(Sleep { began, done_at, ended: self.sched.now(), took });
        }
        sleeps
    }

    fn timed<T>(&self, call: Call, bytes: usize, body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let done_at = self.medium.done_at(self.sched.now(), call, bytes);
        let result = body();
        self.medium.note(done_at, self.sched.now());
        self.pass(done_at);
        result
    }
}

/// The processor that this thread has taken so far.
pub fn thread_took() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[derive(Debug)]
struct Paced {
    device: Arc<dyn Device>,
    pacing: Pacing,
}

/// A transfer under way, for real and by the medium.
#[derive(Debug)]
struct Late {
    ticket: Ticket,
    done_at: Duration,
    pacing: Pacing,
}

impl Pending for Late {
    fn wait(self: Box<Self>) -> io::Result<AlignedBuf> {
        let asked = self.pacing.sched.now();
        let result = self.ticket.wait();
        // When it really ended nobody knows who comes for it later than it is due.
        let ended = if asked > self.done_at { self.done_at } else { self.pacing.sched.now() };
        self.pacing.medium.note(self.done_at, ended);
        self.pacing.pass(self.done_at);
        result
    }
}

impl Device for Paced {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.pacing.timed(Call::Read, buffer.len(), || self.device.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.pacing.timed(Call::Write, bytes.len(), || self.device.write_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.pacing.timed(Call::Sync, 0, || self.device.sync())
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.device.reserve(bytes)
    }

    fn view(&self) -> io::Result<Option<View>> {
        self.device.view()
    }

    fn extents(&self) -> Option<Vec<Range<u64>>> {
        self.device.extents()
    }

    fn submit(&self, request: ReadRequest) -> Ticket {
        let began = self.pacing.sched.now();
        let done_at = self.pacing.medium.done_at(began, Call::Read, request.buffer.len());
        let ticket = self.device.submit(request);
        Ticket::pending(Box::new(Late { ticket, done_at, pacing: self.pacing.clone() }))
    }

    fn submit_write(&self, request: WriteRequest) -> Ticket {
        let began = self.pacing.sched.now();
        let done_at = self.pacing.medium.done_at(began, Call::Write, request.bytes);
        let ticket = self.device.submit_write(request);
        Ticket::pending(Box::new(Late { ticket, done_at, pacing: self.pacing.clone() }))
    }
}

impl Directory for PacedDirectory {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.create(name, access).map(|device| self.wrap(device))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.open(name, access).map(|device| self.wrap(device))
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
        self.pacing.timed(Call::Sync, 0, || self.directory.sync())
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
    use crate::sim::{SimConfig, SimDisk};

    #[test]
    fn calls_take_their_share_of_the_bandwidth() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let disk = SimDisk::new(&sched, 1, SimConfig::default());
            let pace = Pace { bytes_per_second: 1 << 20, per_call: Duration::from_millis(2) };
            let limiter = Limiter::new(&sched, pace);
            let directory = limiter.wrap_directory(disk.directory(0));
            let file = directory.create("x", Access::Buffered).unwrap();
            let timed = |call: &dyn Fn()| {
                let began = sched.now();
                call();
                (sched.now() - began).as_millis()
            };
            assert_eq!(timed(&|| file.write_at(&[1; 1 << 19], 0).unwrap()), 502);
            assert_eq!(timed(&|| file.read_at(&mut [0; 1 << 17], 0).unwrap()), 127);
            limiter.stall(Duration::from_secs(30));
            assert_eq!(timed(&|| file.sync().unwrap()) / 1000, 30);
            limiter.set_pace(Pace { bytes_per_second: 0, per_call: Duration::ZERO });
            assert_eq!(timed(&|| file.write_at(&[1; 1 << 19], 0).unwrap()), 0);
        });
    }

    /// Of a millisecond a call, which remembers how much later than due each ended.
    #[derive(Debug)]
    struct Noting(Mutex<Vec<Duration>>);

    impl Medium for Noting {
        fn done_at(&self, began: Duration, _: Call, _: usize) -> Duration {
            began + Duration::from_millis(1)
        }

        fn note(&self, done_at: Duration, ended: Duration) {
            self.0.lock().push(ended.saturating_sub(done_at));
        }
    }

    #[test]
    fn a_transfer_is_not_late_because_its_owner_is() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let disk = SimDisk::new(&sched, 1, SimConfig::default());
            let noting = Arc::new(Noting(Mutex::new(&sched, Vec::new())));
            let directory = PacedDirectory::new(&sched, disk.directory(0), noting.clone());
            let file = directory.create("x", Access::Buffered).unwrap();
            file.write_at(&[1; 4096], 0).unwrap();
            for busy in [0, 5] {
                let ticket = file.submit(ReadRequest { buffer: AlignedBuf::exactly(4096), offset: 0 });
                sched.sleep(Duration::from_millis(busy));
                ticket.wait().unwrap();
            }
            let late = noting.0.lock().iter().filter(|late| **late > Duration::ZERO).count();
            assert_eq!((late, noting.0.lock().len()), (0, 3));
        });
    }
}
