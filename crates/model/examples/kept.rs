//! How well modelled devices are kept on this machine: `cargo run --release -p cuesta-model --example kept -- DIR`.
//!
//! For each preset, reads of 4 KiB by one thread and by eight, and writes of 1 MiB by one, for two seconds each, on a
//! file in DIR, which should be in memory (`/dev/shm/…`). Told are the latencies asked and reached, the bandwidth, the
//! share of calls that the machine was too slow for, and the share of a processor that went into it all.

#![allow(clippy::disallowed_methods, reason = "it measures")]
#![allow(clippy::print_stdout, reason = "a command's output")]

use cuesta_device::{Access, Device, Directory, FileDirectory, PacedDirectory};
use cuesta_model::{Modelled, Spec};
use cuesta_sched::Sched;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const FOR: Duration = Duration::from_secs(2);
const FILE_BYTES: u64 = 64 << 20;
const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Times of reads by so many threads, sorted, in microseconds.
fn reads(file: &dyn Device, threads: u64) -> Result<Vec<f64>, Failure> {
    let one = |thread: u64| -> Result<Vec<f64>, Failure> {
        let (mut times, mut buffer, mut at) = (Vec::new(), vec![0; PAGE], thread * 977);
        let begun = Instant::now();
        while begun.elapsed() < FOR {
            at = (at + 7919) % (FILE_BYTES / PAGE as u64);
            let began = Instant::now();
            file.read_at(&mut buffer, at * PAGE as u64)?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    };
    let mut all = std::thread::scope(|scope| -> Result<Vec<f64>, Failure> {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })?;
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// Bytes per second of writes one after the other.
fn write_rate(file: &dyn Device) -> Result<f64, Failure> {
    let (bytes, begun, mut written) = (vec![1; MIB], Instant::now(), 0u64);
    while begun.elapsed() < FOR {
        file.write_at(&bytes, written % FILE_BYTES)?;
        written += MIB as u64;
    }
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}

/// Processor time of this process so far, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn main() -> Result<(), Failure> {
    let dir = std::env::args().nth(1).ok_or("usage: kept DIR")?;
    // As `cuesta bench --model` does.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let sched = Sched::real(1);
    println!("| device | asked | depth 1 | depth 8 | MB/s written, asked | reached | late | processor |");
    println!("|---|---|---|---|---|---|---|---|");
    for name in Spec::PRESETS {
        let spec = Spec::preset(name)?;
        let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(Path::new(&dir))?);
        directory.remove("kept").or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let plain = directory.create("kept", Access::Buffered)?;
        for at in (0..FILE_BYTES).step_by(MIB) {
            plain.write_at(&[0; MIB], at)?;
        }
        let model = Arc::new(Modelled::new(&sched, spec.clone(), 1));
        let paced = PacedDirectory::new(&sched, directory, model.clone());
        let file = paced.open("kept", Access::Buffered)?;
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        let told = |times: &[f64]| {
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
            format!("{:.0} / {:.0}", at(0.5), at(0.99))
        };
        let (one, eight) = (told(&reads(file.as_ref(), 1)?), told(&reads(file.as_ref(), 8)?));
        let rate = write_rate(file.as_ref())? / 1e6;
        let processor = 100.0 * (cpu_seconds() - cpu_before) / began.elapsed().as_secs_f64();
        let kept = model.kept();
        println!(
            "| {name} | {:.0} / {:.0} | {one} | {eight} | {:.0} | {rate:.0} | {:.2} % | {processor:.0} % |",
            spec.read.median_us,
            spec.read.p99_us,
            spec.write_bytes_per_second as f64 / 1e6,
            100.0 * kept.late as f64 / kept.calls.max(1) as f64
        );
        paced.remove("kept")?;
    }
    Ok(())
}
