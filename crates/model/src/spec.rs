//! What a device is, in numbers.

use cuesta_device::{ALIGNMENT, SECTOR_BYTES_MIN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// How long a call of up to 4 KiB takes on an idle device: log-normal, between its median and its 99th percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Half of the calls are faster, in microseconds.
    pub median_us: f64,
    /// 99 in 100 are faster, in microseconds.
    pub p99_us: f64,
}

/// Standard deviations that the 99th percentile of a normal distribution lies above its median.
const P99_DEVIATIONS: f64 = 2.326;

impl Latency {
    /// The standard deviation of its logarithm.
    pub(crate) fn deviation(&self) -> f64 {
        (self.p99_us / self.median_us).ln() / P99_DEVIATIONS
    }

    /// The mean, in microseconds; some are much slower than the median.
    pub fn mean_us(&self) -> f64 {
        self.median_us * (self.deviation().powi(2) / 2.0).exp()
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// What it is called.
    pub name: String,
    /// Of reads.
    pub read: Latency,
    /// Of writes, until the device has them, in a cache of its own or not.
    pub write: Latency,
    /// Of flushes, until what was written is durable.
    pub flush: Latency,
    /// Bytes per second, reads.
    pub read_bytes_per_second: u64,
    /// Bytes per second, writes.
    pub write_bytes_per_second: u64,
    /// Calls that are under way at once; others wait.
    pub channels: u32,
    /// What it reads and writes at least, in bytes: less takes as long on the link.
    pub sector_bytes: u32,
    /// Price of a gigabyte, in dollars.
    pub dollars_per_gigabyte: f64,
    /// How often it may be written over in a day, for the years of its warranty.
    pub drive_writes_per_day: f64,
}

/// What a file may state of a device; what it does not is the preset's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    preset: Option<String>,
    read: Option<Latency>,
    write: Option<Latency>,
    flush: Option<Latency>,
    read_bytes_per_second: Option<u64>,
    write_bytes_per_second: Option<u64>,
    channels: Option<u32>,
    sector_bytes: Option<u32>,
    dollars_per_gigabyte: Option<f64>,
    drive_writes_per_day: Option<f64>,
}

/// A page, in bytes.
const PAGE_BYTES: u32 = ALIGNMENT as u32;
/// Longest latency that is modelled, in microseconds.
const LATENCY_MAX_US: f64 = 60e6;

fn latency(median_us: f64, p99_us: f64) -> Latency {
    Latency { median_us, p99_us }
}

impl Spec {
    /// Names of the presets, fastest first.
    pub const PRESETS: [&str; 5] = ["optane", "nvme", "sata", "qlc", "hdd"];

    /// A device of the papers: an Optane SSD, an NVMe drive of TLC, a SATA SSD, an NVMe drive of QLC, a disk.
    ///
    /// # Errors
    /// That there is none of this name, and which there are.
    pub fn preset(name: &str) -> Result<Self, String> {
        const MB: u64 = 1_000_000;
        let spec = |read, write, flush, mb: (u64, u64), channels, price, endurance| Self {
            name: name.to_owned(),
            read,
            write,
            flush,
            read_bytes_per_second: mb.0 * MB,
            write_bytes_per_second: mb.1 * MB,
            channels,
            // Flash is written by the page, and more, whatever its controller takes.
            sector_bytes: PAGE_BYTES,
            dollars_per_gigabyte: price,
            drive_writes_per_day: endurance,
        };
        let (us, slow) = (latency, latency(1000.0, 4000.0));
        Ok(match name {
            "optane" => Self {
                sector_bytes: SECTOR_BYTES_MIN,
                ..spec(us(8.0, 12.0), us(8.0, 12.0), us(2.0, 4.0), (2500, 2000), 16, 2.5, 30.0)
            },
            "nvme" => spec(us(85.0, 150.0), us(18.0, 60.0), us(100.0, 400.0), (2900, 2080), 64, 0.32, 1.0),
            "sata" => spec(us(120.0, 300.0), us(37.0, 150.0), slow, (540, 510), 32, 0.26, 1.0),
            "qlc" => spec(us(391.0, 800.0), us(30.0, 120.0), us(500.0, 2000.0), (1800, 250), 64, 0.1, 0.1),
            "hdd" => spec(us(4200.0, 12_000.0), us(4200.0, 12_000.0), slow, (110, 110), 1, 0.11, 100.0),
            _ => {
                let presets = Self::PRESETS.join(", ");
                return Err(format!("there is no device model {name:?}; there are {presets}"));
            }
        })
    }

    /// The same with a share of its bandwidth and of its channels, as fewer processors than the device was made for
    /// could use: calls take as long as they did.
    ///
    /// # Errors
    /// That too little would be left.
    pub fn shared(self, share: f64) -> Result<Self, String> {
        let part = |bytes: u64| (bytes as f64 * share) as u64;
        Self {
            name: format!("{} * {share}", self.name),
            read_bytes_per_second: part(self.read_bytes_per_second),
            write_bytes_per_second: part(self.write_bytes_per_second),
            channels: ((f64::from(self.channels) * share).round() as u32).max(1),
            ..self
        }
        .check()
    }

    fn check(self) -> Result<Self, String> {
        let refuse = |what: String| Err(format!("device model {:?}: {what}", self.name));
        for (call, of) in [("read", self.read), ("write", self.write), ("flush", self.flush)] {
            if !(of.median_us > 0.0 && of.median_us <= of.p99_us && of.p99_us <= LATENCY_MAX_US) {
                return refuse(format!(
                    "{call} needs 0 < median_us <= p99_us <= {LATENCY_MAX_US}; it has {} and {}",
                    of.median_us, of.p99_us
                ));
            }
        }
        if self.channels == 0 || self.channels > 1024 {
            return refuse(format!("channels must be from 1 to 1024; it has {}", self.channels));
        }
        let sectors = SECTOR_BYTES_MIN..=PAGE_BYTES;
        if !(self.sector_bytes.is_power_of_two() && sectors.contains(&self.sector_bytes)) {
            return refuse(format!(
                "sector_bytes must be a power of two from {SECTOR_BYTES_MIN} to {PAGE_BYTES}; it is {}",
                self.sector_bytes
            ));
        }
        if self.read_bytes_per_second.min(self.write_bytes_per_second) < 1 << 20 {
            return refuse("bandwidth must be a mebibyte a second or more".to_owned());
        }
        Ok(self)
    }

    fn stated(tier: &str, stated: Stated) -> Result<Self, String> {
        let Some(preset) = &stated.preset else {
            return Err(format!("[{tier}] needs a preset to begin with, such as preset = \"qlc\""));
        };
        let base = Self::preset(preset)?;
        Self {
            name: format!("{preset}, changed"),
            read: stated.read.unwrap_or(base.read),
            write: stated.write.unwrap_or(base.write),
            flush: stated.flush.unwrap_or(base.flush),
            read_bytes_per_second: stated.read_bytes_per_second.unwrap_or(base.read_bytes_per_second),
            write_bytes_per_second: stated.write_bytes_per_second.unwrap_or(base.write_bytes_per_second),
            channels: stated.channels.unwrap_or(base.channels),
            sector_bytes: stated.sector_bytes.unwrap_or(base.sector_bytes),
            dollars_per_gigabyte: stated.dollars_per_gigabyte.unwrap_or(base.dollars_per_gigabyte),
            drive_writes_per_day: stated.drive_writes_per_day.unwrap_or(base.drive_writes_per_day),
        }
        .check()
    }
}

/// Models by tier: `fast=optane,capacity=qlc*0.5` (a [share](Spec::shared) of one), or the path of a TOML file with a
/// table for each tier.
///
/// # Errors
/// What is wrong, in words that name it.
pub fn parse(text: &str) -> Result<BTreeMap<String, Spec>, String> {
    if text.contains('=') {
        let pair = |pair: &str| {
            let (tier, preset) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is no TIER=PRESET"))?;
            let spec = match preset.split_once('*') {
                Some((preset, share)) => {
                    let number =
                        share.trim().parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                    let refuse = || format!("{pair:?}: {share:?} must be a number from 0 to 1");
                    Spec::preset(preset.trim())?.shared(number.ok_or_else(refuse)?)?
                }
                None => Spec::preset(preset.trim())?,
            };
            Ok((tier.trim().to_owned(), spec))
        };
        return text.split(',').map(pair).collect();
    }
    let path = Path::new(text);
    let content = std::fs::read_to_string(path)
        .map_err(|error| format!("{text:?} is neither TIER=PRESET nor a file that can be read: {error}"))?;
    let tiers: BTreeMap<String, Stated> =
        toml::from_str(&content).map_err(|error| format!("{}: {error}", path.display()))?;
    tiers
        .into_iter()
        .map(|(tier, stated)| {
            let spec = Spec::stated(&tier, stated).map_err(|why| format!("{}: {why}", path.display()))?;
            Ok((tier, spec))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_device() {
        for name in Spec::PRESETS {
            Spec::preset(name).and_then(Spec::check).unwrap();
        }
        let error = Spec::preset("floppy").unwrap_err();
        assert!(error.contains("floppy") && error.contains("qlc"), "{error}");
    }

    #[test]
    fn tiers_are_named_in_words_or_in_a_file() {
        let tiers = parse("fast=optane, capacity=qlc").unwrap();
        assert_eq!((tiers["fast"].name.as_str(), tiers["capacity"].channels), ("optane", 64));
        let file = tempfile::NamedTempFile::new().unwrap();
        let parse_file = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            parse(file.path().to_str().unwrap())
        };
        let text = "[capacity]\npreset = \"qlc\"\nchannels = 8\nread = { median_us = 300, p99_us = 500 }\n";
        let changed = parse_file(text).unwrap().remove("capacity").unwrap();
        assert_eq!((changed.channels, changed.read.median_us, changed.write.median_us), (8, 300.0, 30.0));
        for (text, word) in [
            ("[fast]\nchannels = 3\n", "preset"),
            ("[fast]\npreset = \"qlc\"\nchannel = 3\n", "channel"),
            ("[fast]\npreset = \"qlc\"\nchannels = 0\n", "channels"),
            ("[fast]\npreset = \"qlc\"\nsector_bytes = 1000\n", "sector_bytes"),
            ("[fast]\npreset = \"qlc\"\nsector_bytes = 8192\n", "sector_bytes"),
            ("[fast]\npreset = \"qlc\"\nread = { median_us = 9, p99_us = 8 }\n", "median_us"),
        ] {
            let error = parse_file(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let part = parse("fast=optane*0.2,capacity=qlc").unwrap();
        let (optane, part) = (Spec::preset("optane").unwrap(), &part["fast"]);
        assert_eq!((part.channels, part.read_bytes_per_second, part.read), (3, 500_000_000, optane.read));
        for (text, word) in [
            ("fast=floppy", "floppy"),
            ("/nowhere/model.toml", "nowhere"),
            ("fast=qlc,x", "x"),
            ("fast=qlc*2", "2"),
            ("fast=qlc*half", "half"),
            ("fast=qlc*0.001", "bandwidth"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
