//! When a modelled device is done.
//!
//! A call takes one of the channels, the first that is free, for a latency drawn for it; and its bytes take the link,
//! one call after the other in each direction, whole sectors of the device. It is done when both are. So a lone small
//! call takes its latency, many at once as many channels as there are, and large ones the bandwidth.
//!
//! Waits are kept by sleeping. A thread that sleeps is woken late, by some microseconds that are taken off each sleep:
//! measured when the device is made, and followed since, for they depend on how long threads sleep and on what else
//! runs. It is a running median: each sleep that ends later than thought has the next ones end a little earlier, and
//! the other way about, within bounds. Waits shorter than that are left out and counted, so that a run can tell how
//! well its model was kept ([`Kept`]). What sleeping takes of the processor, and so from others, is measured on one
//! sleep in sixteen.
//!
//! A call costs one short lock and one draw.

use crate::{Latency, Spec};
use cuesta_device::{Call, Medium, Sleep, thread_took};
use cuesta_sched::{Rng, Sched};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Sleeps by which being woken late is measured, and how long each is.
const PROBES: u32 = 50;
const PROBE: Duration = Duration::from_micros(100);
/// More than that is a machine that was busy while it was measured, and may not be afterwards.
const PROBED_LATE_MAX: Duration = Duration::from_micros(200);
/// Of one sleep in so many it is measured what it takes of the processor.
const SAMPLE: u64 = 16;
/// What each sleep changes of how late one is thought to be woken.
const STEP_NANOS: u64 = 100;
/// How late one is thought to be woken grows by so much at most beyond what was probed: past that processors are short,
/// and who waits for a device waits for them, too.
const BUSY_LATE_MAX: Duration = Duration::from_micros(30);

/// A device that takes the time that its spec says.
#[derive(Debug)]
pub struct Modelled {
    spec: Spec,
    state: Mutex<State>,
    /// In nanoseconds.
    woken_late: AtomicU64,
    /// What it may grow to.
    woken_late_max: Duration,
    /// What a look at the thread's clock takes of the processor.
    look: Duration,
    calls: AtomicU64,
    late: AtomicU64,
    left_out: AtomicU64,
    sleeps: AtomicU64,
    waited_nanos: AtomicU64,
    burnt_nanos: AtomicU64,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// When each channel is free.
    channels: Vec<Duration>,
    /// When the link is free: for reads, for writes.
    link: [Duration; 2],
}

/// How well a model was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Calls made.
    pub calls: u64,
    /// Calls that took longer for real than by the model: the hardware is slower than what it stands for.
    pub late: u64,
    /// Calls whose wait was shorter than a sleeper is woken late, and was left out.
    pub left_out: u64,
    /// What callers slept, all together.
    pub waited: Duration,
    /// What that took of the processor, reckoned from a sample.
    pub burnt: Duration,
}

impl Modelled {
    /// A device of this spec; latencies are drawn by `seed`.
    pub fn new(sched: &Sched, spec: Spec, seed: u64) -> Self {
        let channels = vec![Duration::ZERO; spec.channels as usize];
        let state = State { rng: Rng::new(seed), channels, link: [Duration::ZERO; 2] };
        let woken_late = woken_late(sched);
        let [calls, late, left_out, sleeps, waited_nanos, burnt_nanos] = [const { AtomicU64::new(0) }; 6];
        Self {
            spec,
            state: Mutex::new(state),
            woken_late: AtomicU64::new(woken_late.as_nanos() as u64),
            woken_late_max: woken_late + BUSY_LATE_MAX,
            look: look(),
            calls,
            late,
            left_out,
            sleeps,
            waited_nanos,
            burnt_nanos,
        }
    }

    /// What it stands for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How well it was kept so far.
    pub fn kept(&self) -> Kept {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Kept {
            calls: count(&self.calls),
            late: count(&self.late),
            left_out: count(&self.left_out),
            waited: Duration::from_nanos(count(&self.waited_nanos)),
            burnt: Duration::from_nanos(count(&self.burnt_nanos)),
        }
    }

    fn woken_late(&self) -> Duration {
        Duration::from_nanos(self.woken_late.load(Ordering::Relaxed))
    }

    /// When the device itself is done with a call.
    fn end(&self, began: Duration, call: Call, bytes: usize) -> Duration {
        let (latency, direction, rate) = match call {
            Call::Read => (self.spec.read, 0, self.spec.read_bytes_per_second),
            Call::Write => (self.spec.write, 1, self.spec.write_bytes_per_second),
            Call::Sync => (self.spec.flush, 1, self.spec.write_bytes_per_second),
        };
        let bytes = bytes.next_multiple_of(self.spec.sector_bytes as usize);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let took = draw(&mut state.rng, latency);
        let first = state.channels.iter().enumerate().min_by_key(|(_, free_at)| **free_at);
        let (channel, free_at) = first.map_or((0, began), |(i, free_at)| (i, *free_at));
        let starts = free_at.max(began);
        let on_link = Duration::from_nanos((bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64);
        state.link[direction] = state.link[direction].max(starts) + on_link;
        let done_at = (starts + took).max(state.link[direction]);
        state.channels[channel] = done_at;
        done_at
    }
}

impl Medium for Modelled {
    fn done_at(&self, began: Duration, call: Call, bytes: usize) -> Duration {
        self.end(began, call, bytes).saturating_sub(self.woken_late())
    }

    fn note(&self, done_at: Duration, really: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (is_late, sleeps) = (really > done_at + self.woken_late(), really < done_at);
        self.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        self.left_out.fetch_add(u64::from(!is_late && !sleeps), Ordering::Relaxed);
    }

    fn samples(&self) -> bool {
        self.sleeps.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE)
    }

    fn slept(&self, sleep: Sleep) {
        let Sleep { began, done_at, ended, took } = sleep;
        self.waited_nanos.fetch_add(ended.saturating_sub(began).as_nanos() as u64, Ordering::Relaxed);
        if let Some(took) = took {
            let nanos = took.saturating_sub(self.look).as_nanos() as u64;
            self.burnt_nanos.fetch_add(nanos * SAMPLE, Ordering::Relaxed);
        }
        // Of steps that meet one is lost, which is as good.
        let (was, late) = (self.woken_late(), ended.saturating_sub(done_at));
        let step = Duration::from_nanos(STEP_NANOS);
        let is = if late > was { (was + step).min(self.woken_late_max) } else { was.saturating_sub(step) };
        self.woken_late.store(is.as_nanos() as u64, Ordering::Relaxed);
    }

    fn sleep_min(&self) -> Duration {
        Duration::from_nanos(1)
    }
}

/// A latency, log-normal between its median and its 99th percentile.
fn draw(rng: &mut Rng, latency: Latency) -> Duration {
    let uniform = |rng: &mut Rng| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    // Box and Muller's; 1 - u is never 0.
    let normal = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos();
    Duration::from_secs_f64(latency.median_us * (latency.deviation() * normal).exp() / 1e6)
}

/// How much later than asked a sleeper is woken here: the median of some sleeps.
fn woken_late(sched: &Sched) -> Duration {
    let probe = |_| {
        let began = sched.now();
        sched.sleep(PROBE);
        (sched.now() - began).saturating_sub(PROBE)
    };
    median((0..PROBES).map(probe).collect()).min(PROBED_LATE_MAX)
}

/// What [`thread_took`] takes itself: the median of some calls.
fn look() -> Duration {
    let looks: Vec<Duration> = (0..=PROBES).map(|_| thread_took()).collect();
    median(looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta_device::sim::{SimConfig, SimDisk};
    use cuesta_device::{Access, AlignedBuf, Device, Directory, PacedDirectory, ReadRequest};
    use std::sync::Arc;

    const QLC_READ_US: f64 = 391.0;

    /// What `body` takes on a file of 8 MiB on a modelled device, in virtual time.
    fn on(spec: Spec, body: impl FnOnce(&Sched, &dyn Device)) {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let disk = SimDisk::new(&sched, 1, SimConfig::default());
            let model = Arc::new(Modelled::new(&sched, spec, 7));
            let directory = PacedDirectory::new(&sched, disk.directory(0), model.clone());
            let file = directory.create("x", Access::Buffered).unwrap();
            file.write_at(&vec![1; 8 << 20], 0).unwrap();
            sched.sleep(Duration::from_secs(1));
            body(&sched, file.as_ref());
            assert!(model.kept().calls > 1);
        });
    }

    fn sorted_us(mut times: Vec<Duration>) -> Vec<f64> {
        times.sort_unstable();
        times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
    }

    #[test]
    fn lone_reads_take_what_the_spec_says() {
        on(Spec::preset("qlc").unwrap(), |sched, file| {
            let read = |_| {
                let began = sched.now();
                file.read_at(&mut [0; 4096], 0).unwrap();
                sched.now() - began
            };
            let times = sorted_us((0..4000).map(read).collect());
            let (median, p99) = (times[2000], times[3960]);
            assert!((median / QLC_READ_US - 1.0).abs() < 0.03, "{median}");
            assert!((p99 / 800.0 - 1.0).abs() < 0.1, "{p99}");
            let (mean, says) =
                (times.iter().sum::<f64>() / 4000.0, Spec::preset("qlc").unwrap().read.mean_us());
            assert!((mean / says - 1.0).abs() < 0.02, "{mean} and {says}");
        });
    }

    #[test]
    fn what_is_less_than_a_sector_takes_as_long_as_one() {
        let took = |sector_bytes| {
            let mut took = Duration::ZERO;
            let read_bytes_per_second = 1 << 20;
            let spec = Spec { sector_bytes, read_bytes_per_second, ..Spec::preset("optane").unwrap() };
            on(spec, |sched, file| {
                let began = sched.now();
                file.read_at(&mut [0; 700], 0).unwrap();
                took = sched.now() - began;
            });
            took.as_micros()
        };
        // Two sectors of 512 bytes, and one of 4,096, at a mebibyte a second.
        assert_eq!([512, 4096].map(took), [976, 3906]);
    }

    #[test]
    fn sleeps_end_earlier_by_the_median_of_how_late_they_end_and_not_by_more_than_a_busy_machine_explains() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let model = Modelled::new(&sched, Spec::preset("qlc").unwrap(), 7);
            let wake = |late_us: u64| {
                let done_at = Duration::from_secs(1);
                let ended = done_at + Duration::from_micros(late_us);
                model.slept(Sleep { began: Duration::ZERO, done_at, ended, took: None });
            };
            // Two thirds are 12 µs late, one 500.
            (0..3000).for_each(|i| wake(if i % 3 == 0 { 500 } else { 12 }));
            assert!((11..14).contains(&model.woken_late().as_micros()), "{:?}", model.woken_late());
            (0..3000).for_each(|_| wake(500));
            let most = model.woken_late().as_micros();
            assert!((30..40).contains(&most), "{most}");
            (0..3000).for_each(|_| wake(0));
            assert_eq!(model.woken_late(), Duration::ZERO);
        });
    }

    #[test]
    fn calls_are_late_or_left_out_or_slept_for_and_one_sleep_in_sixteen_stands_for_all() {
        let sched = Sched::simulated(1);
        sched.run(|| {
            let model = Modelled::new(&sched, Spec::preset("qlc").unwrap(), 7);
            let (done_at, sampled) = (Duration::from_secs(1), Duration::from_micros(50));
            model.note(done_at, done_at + Duration::from_secs(1));
            model.note(done_at, done_at);
            model.note(done_at, Duration::ZERO);
            let mut samples = 0;
            for _ in 0..160 {
                let took = model.samples().then_some(sampled + model.look);
                samples += u64::from(took.is_some());
                model.slept(Sleep { began: Duration::ZERO, done_at, ended: done_at, took });
            }
            let kept = model.kept();
            assert_eq!((kept.calls, kept.late, kept.left_out, samples), (3, 1, 1, 10));
            assert_eq!((kept.waited, kept.burnt), (done_at * 160, sampled * 160));
        });
    }

    #[test]
    fn as_many_reads_are_under_way_as_there_are_channels() {
        let spec = Spec {
            channels: 4,
            read: Latency { median_us: 1000.0, p99_us: 1000.0 },
            ..Spec::preset("qlc").unwrap()
        };
        on(spec, |sched, file| {
            let began = sched.now();
            let request = |i: u64| ReadRequest { buffer: AlignedBuf::zeroed(4096), offset: i * 4096 };
            let tickets: Vec<_> = (0..8).map(|i| file.submit(request(i))).collect();
            tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
            assert_eq!((sched.now() - began).as_millis(), 2);
        });
    }

    #[test]
    fn long_transfers_take_the_bandwidth() {
        on(Spec::preset("qlc").unwrap(), |sched, file| {
            let began = sched.now();
            (0..100).for_each(|_| file.write_at(&vec![2; 1 << 20], 0).unwrap());
            let rate = 100.0 * (1 << 20) as f64 / (sched.now() - began).as_secs_f64();
            assert!((rate / 250e6 - 1.0).abs() < 0.02, "{rate}");
        });
    }
}
