//! Tiers on modelled devices, for `cuesta bench --model`.

use crate::failure::{Failure, Result};
use crate::output::Say;
use cuesta::{Options, World};
use cuesta_device::{Directory, FileDirectory, PacedDirectory};
use cuesta_model::{Kept, Modelled, Spec, parse};
use cuesta_sched::Sched;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

/// What tiers are called, fastest first.
pub(crate) const TIERS: [&str; 2] = ["fast", "capacity"];

/// The size of store and the loads, in operations a day, for which PrismDB (§7.2) tells lifetimes: those of two
/// production systems.
pub(crate) const STORE_BYTES: f64 = 600e9;
pub(crate) const LOADS: [f64; 2] = [100e6, 500e6];

/// Devices by tier, as the command line names them.
#[derive(Clone, Debug)]
pub(crate) struct Models {
    specs: BTreeMap<String, Spec>,
    pub(crate) as_named: String,
}

impl std::str::FromStr for Models {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let specs = parse(text)?;
        match specs.keys().find(|tier| !TIERS.contains(&tier.as_str())) {
            Some(tier) => Err(format!("there is no tier {tier:?}; there are {}", TIERS.join(" and "))),
            None => Ok(Self { specs, as_named: text.to_owned() }),
        }
    }
}

/// How well modelled devices were kept, by tier.
pub(crate) type KeptBy = BTreeMap<&'static str, Kept>;

/// Modelled devices at work, by tier.
#[derive(Debug, Default)]
pub(crate) struct Running(Vec<(&'static str, Arc<Modelled>)>);

impl Models {
    /// Modelled tiers with sectors as their devices have them.
    pub(crate) fn with_sectors(&self, mut options: Options) -> Options {
        for (name, tier) in TIERS.into_iter().zip(&mut options.tiers) {
            tier.sector_bytes = self.specs.get(name).map_or(tier.sector_bytes, |spec| spec.sector_bytes);
        }
        options
    }

    /// A world in which the options' tiers are as slow as their models.
    pub(crate) fn world(&self, options: &Options) -> Result<(World, Running)> {
        // Waits are short, and by default the kernel may stretch each by 50 µs. Threads made from here on inherit this.
        let exact = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        exact.map_err(|errno| Failure::Io("ask the system for exact waits".to_owned(), errno.into()))?;
        let sched = Sched::real(options.seed);
        let (mut directories, mut running) = (Vec::new(), Running::default());
        for (name, tier) in TIERS.into_iter().zip(&options.tiers) {
            let opened = FileDirectory::open(&tier.path);
            let opened = opened.map_err(Failure::io(format!("open {}", tier.path.display())))?;
            let mut directory: Arc<dyn Directory> = Arc::new(opened.with_threads(&sched));
            if let Some(spec) = self.specs.get(name) {
                let model = Arc::new(Modelled::new(&sched, spec.clone(), options.seed));
                directory = Arc::new(PacedDirectory::new(&sched, directory, model.clone()));
                running.0.push((name, model));
            }
            directories.push(directory);
        }
        Ok((World { sched, directories }, running))
    }
}

impl Running {
    /// How well the models were kept, in words.
    pub(crate) fn report(&self, say: Say) -> Result<()> {
        for (tier, model) in &self.0 {
            let (spec, kept) = (model.spec(), model.kept());
            let share = |part: u64| 100.0 * part as f64 / kept.calls.max(1) as f64;
            say(&format!(
                "  {tier} was modelled as {} ({} µs read, {} µs write): of {} calls {:.2} % took longer for real, {:.2} % were \
                 shorter than one can sleep",
                spec.name,
                spec.read.median_us,
                spec.write.median_us,
                kept.calls,
                share(kept.late),
                share(kept.left_out)
            ))?;
        }
        Ok(())
    }

    /// How well they were kept so far.
    pub(crate) fn kept(&self) -> KeptBy {
        self.0.iter().map(|(tier, model)| (*tier, model.kept())).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_json(&self) -> Value {
        let one = |(tier, model): &(&str, Arc<Modelled>)| {
            let kept = model.kept();
            json!({
                "tier": tier,
                "model": model.spec(),
                "calls": kept.calls,
                "late": kept.late,
                "left_out": kept.left_out,
                "waited_seconds": kept.waited.as_secs_f64(),
                "burnt_seconds": kept.burnt.as_secs_f64(),
            })
        };
        self.0.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta::TierOptions;

    #[test]
    fn modelled_tiers_have_the_sectors_of_their_devices() {
        let sectors = |models: &str| {
            let options =
                Options::tiered(TierOptions::fast("a", 1 << 30), TierOptions::capacity("b", 8 << 30));
            let options = models.parse::<Models>().unwrap().with_sectors(options);
            options.tiers.iter().map(|tier| tier.sector_bytes).collect::<Vec<_>>()
        };
        assert_eq!(sectors("fast=optane*0.2,capacity=qlc"), [512, 4096]);
        assert_eq!(sectors("capacity=qlc"), [4096, 4096]);
        assert_eq!(sectors("fast=nvme"), [4096, 4096]);
    }
}
