//! Tiers on modelled devices, for `cuesta bench --model`.

use crate::failure::{Failure, Result};
use crate::output::print_line;
use cuesta::{Options, Stats, World};
use cuesta_device::{Directory, FileDirectory, PacedDirectory};
use cuesta_model::{Modelled, Spec, dollars_per_gigabyte, lifetime_years, parse};
use cuesta_sched::Sched;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

/// What tiers are called, fastest first.
pub(crate) const TIERS: [&str; 2] = ["fast", "capacity"];

/// The size of store and the loads, in operations a day, for which PrismDB (§7.2) tells lifetimes: those of two production
/// systems.
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

/// Modelled devices at work, by tier.
#[derive(Debug, Default)]
pub(crate) struct Running(Vec<(&'static str, Arc<Modelled>)>);

impl Models {
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
    pub(crate) fn report(&self) -> Result<()> {
        for (tier, model) in &self.0 {
            let (spec, kept) = (model.spec(), model.kept());
            let share = 100.0 * kept.late as f64 / kept.calls.max(1) as f64;
            print_line(&format!(
                "  {tier} was modelled as {} ({} µs read, {} µs write): of {} calls {share:.2} % took longer for real",
                spec.name, spec.read.median_us, spec.write.median_us, kept.calls
            ))?;
        }
        Ok(())
    }

    /// What the devices cost, and how long they last under what a phase of so many operations wrote; only when every tier
    /// is modelled.
    pub(crate) fn report_cost(&self, operations: u64, before: &Stats, after: &Stats) -> Result<()> {
        if self.0.len() < after.tiers.len() {
            return Ok(());
        }
        let tiers: Vec<_> = self.0.iter().zip(&after.tiers).collect();
        let sized: Vec<_> =
            tiers.iter().map(|((_, model), tier)| (model.spec(), tier.capacity_bytes)).collect();
        print_line(&format!("  tiers of these sizes cost {:.2} $/GB", dollars_per_gigabyte(&sized)))?;
        let all: f64 = sized.iter().map(|(_, bytes)| *bytes as f64).sum();
        for (i, ((name, _), (spec, bytes))) in self.0.iter().zip(&sized).enumerate() {
            let written = after.io.total(i).write_bytes - before.io.total(i).write_bytes;
            let share = (*bytes as f64 / all * STORE_BYTES) as u64;
            let years =
                LOADS.map(|load| lifetime_years(spec, share, written as f64 / operations as f64 * load));
            print_line(&format!(
                "  {name}, of 600 GB shared alike, would last {:.1} years at 100 million of these operations a day, {:.1} \
                 at 500 million",
                years[0], years[1]
            ))?;
        }
        Ok(())
    }

    /// What a read of a tier takes in the mean, where it is modelled.
    pub(crate) fn read_seconds(&self, tier: &str) -> Option<f64> {
        let found = self.0.iter().find(|(name, _)| *name == tier);
        found.map(|(_, model)| model.spec().read.mean_us() / 1e6)
    }

    pub(crate) fn to_json(&self) -> Value {
        let one = |(tier, model): &(&str, Arc<Modelled>)| {
            let kept = model.kept();
            json!({ "tier": tier, "model": model.spec(), "calls": kept.calls, "late": kept.late })
        };
        self.0.iter().map(one).collect()
    }
}
