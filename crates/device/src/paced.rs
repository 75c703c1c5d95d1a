//! Devices that are made slower than they are: a stated bandwidth and time per call, which may change while they are used.
//! A [`Limiter`] holds back those that are handed to it; a [`PacedDirectory`] all files of a directory.
//!
//! The medium is one channel: a call takes its bytes' share of the bandwidth there, after the calls before it, and then
//! the time per call beside the others. The real call is done first; the caller sleeps for what is missing. Waits are
//! collected until they are worth a sleep, so that the rate holds where the system cannot sleep for microseconds. In
//! simulation the time is virtual, and a medium that stalls for an hour takes no longer than one that does not. Submitted
//! reads are done one after the other: reads that are under way together are not modelled.

use crate::{Access, Device, Directory, Geometry, Listed, Lock};
use cuesta_sched::{Mutex, Sched};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Waits shorter than this are put together: sleeping costs about as much.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// How fast a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per second, reads and writes together; 0 for no limit.
    pub bytes_per_second: u64,
    /// Time that each read, write and sync takes besides.
    pub per_call: Duration,
}

/// A directory whose files are reached at a [`Pace`]. Clones share it.
#[derive(Clone, Debug)]
pub struct PacedDirectory {
    directory: Arc<dyn Directory>,
    limiter: Limiter,
}

/// Holds back the devices that are wrapped by it, together to one [`Pace`]. Clones share it.
#[derive(Clone, Debug)]
pub struct Limiter {
    channel: Arc<Channel>,
}

#[derive(Debug)]
struct Channel {
    sched: Sched,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    /// When the channel has done all that was asked of it.
    free_at: Duration,
}

impl Limiter {
    /// To `pace`.
    pub fn new(sched: &Sched, pace: Pace) -> Self {
        let state = Mutex::new(sched, State { pace, free_at: Duration::ZERO });
        Self { channel: Arc::new(Channel { sched: sched.clone(), state }) }
    }

    /// Another pace from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.channel.state.lock().pace = pace;
    }

    /// `device`, held back.
    pub fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(Paced { device, channel: self.channel.clone() })
    }
}

impl PacedDirectory {
    /// `directory`, at `pace`.
    pub fn new(sched: &Sched, directory: Arc<dyn Directory>, pace: Pace) -> Self {
        Self { directory, limiter: Limiter::new(sched, pace) }
    }

    /// Another pace from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.limiter.set_pace(pace);
    }

    /// Nothing is done for this long.
    pub fn stall(&self, duration: Duration) {
        let channel = &self.limiter.channel;
        let mut state = channel.state.lock();
        state.free_at = state.free_at.max(channel.sched.now()) + duration;
    }
}

impl Channel {
    /// A call of so many bytes that began at `began` has been done for real; lets the rest of its time pass.
    fn pass(&self, began: Duration, bytes: usize) {
        let done_at = {
            let mut state = self.state.lock();
            let nanos = match state.pace.bytes_per_second {
                0 => 0,
                rate => (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64,
            };
            state.free_at = state.free_at.max(began) + Duration::from_nanos(nanos);
            state.free_at + state.pace.per_call
        };
        let missing = done_at.saturating_sub(self.sched.now());
        if missing >= SLEEP_MIN {
            self.sched.sleep(missing);
        }
    }

    fn timed<T>(&self, bytes: usize, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let began = self.sched.now();
        let result = call();
        self.pass(began, bytes);
        result
    }
}

#[derive(Debug)]
struct Paced {
    device: Arc<dyn Device>,
    channel: Arc<Channel>,
}

impl Device for Paced {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.channel.timed(buffer.len(), || self.device.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.channel.timed(bytes.len(), || self.device.write_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.channel.timed(0, || self.device.sync())
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
}

impl Directory for PacedDirectory {
    fn create(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.create(name, access).map(|device| self.limiter.wrap(device))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn Device>> {
        self.directory.open(name, access).map(|device| self.limiter.wrap(device))
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
        self.limiter.channel.timed(0, || self.directory.sync())
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
            let directory = PacedDirectory::new(&sched, disk.directory(0), pace);
            let file = directory.create("x", Access::Buffered).unwrap();
            let timed = |call: &dyn Fn()| {
                let began = sched.now();
                call();
                (sched.now() - began).as_millis()
            };
            assert_eq!(timed(&|| file.write_at(&[1; 1 << 19], 0).unwrap()), 502);
            assert_eq!(timed(&|| file.read_at(&mut [0; 1 << 17], 0).unwrap()), 127);
            directory.stall(Duration::from_secs(30));
            assert_eq!(timed(&|| file.sync().unwrap()) / 1000, 30);
            directory.set_pace(Pace { bytes_per_second: 0, per_call: Duration::ZERO });
            assert_eq!(timed(&|| file.write_at(&[1; 1 << 19], 0).unwrap()), 0);
        });
    }
}
