//! `cuesta contender`: a store of Cuesta's as one of those that `cuesta bench --against` and `cuesta repro` measure. It is
//! started by these commands, and answers requests on its standard input (`cuesta_bench::contender`).

use super::bench::Cuesta;
use crate::failure::{Failure, Outcome, Result};
use crate::model::TIERS;
use crate::size::{Size, human};
use cuesta::{Cause, Create, Db, Options, Profile, PromoteReads, TierOptions};
use cuesta_bench::contender::{Contender, Setup, serve};
use std::collections::BTreeMap;

/// Be measured by another command, which starts this itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What is set otherwise than the requests say, with commas: a profile; approx, precise or random; promote=WHEN;
    /// table=SIZE; pinned=PERCENT; runs=NUMBER
    #[arg(default_value = "")]
    variant: String,
}

/// `options` as a variant has them.
fn vary(mut options: Options, variant: &str) -> std::result::Result<Options, String> {
    for word in variant.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("promote", when)) => {
                options.promote_reads = when.parse::<PromoteReads>().map_err(|error| error.to_string())?;
            }
            Some(("table", size)) => options.table_bytes = size.parse::<Size>()?.0,
            Some(("pinned", percent)) => {
                let percent = percent.parse().map_err(|_| format!("{percent:?} is no percentage"))?;
                options.pinned_percent = Some(percent);
            }
            Some(("runs", runs)) => {
                options.runs_max = runs.parse().map_err(|_| format!("{runs:?} is no number of runs"))?;
            }
            Some((name, _)) => return Err(format!("there is nothing called {name:?} to set")),
            None => match (word.parse::<Profile>(), word.parse()) {
                (Ok(profile), _) => options.profile = Some(profile),
                (_, Ok(demotion)) => options.demotion = demotion,
                _ => return Err(format!("{word:?} is neither a profile nor a way of demotion")),
            },
        }
    }
    Ok(options)
}

impl Contender for Cuesta {
    fn settings(&self) -> String {
        format!("memory {}", human(self.0.stats().memory.limit_bytes))
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        let stats = self.0.stats();
        let mut all = BTreeMap::from([("memory:index".to_owned(), stats.memory.index_bytes)]);
        if let Some(objects) = &stats.objects {
            let named =
                [("objects", objects.objects), ("copies", objects.copies), ("tracked", objects.tracked)];
            all.extend(named.map(|(name, count)| (name.to_owned(), count)));
            let clocks = objects.clocks.iter().enumerate();
            all.extend(clocks.map(|(value, keys)| (format!("clock:{value}"), *keys)));
        }
        all
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        let stats = self.0.stats();
        let mut all = BTreeMap::new();
        for answer in &stats.answers {
            all.insert(format!("found:{}", answer.container), answer.gets);
        }
        for (i, tier) in TIERS.iter().enumerate().take(stats.tiers.len()) {
            for cause in Cause::ALL {
                let count = stats.io.get(i, cause);
                all.insert(format!("read:{tier}:{}", cause.name()), count.read_bytes);
                all.insert(format!("written:{tier}:{}", cause.name()), count.write_bytes);
            }
        }
        if let Some(objects) = &stats.objects {
            let counts = [
                ("selections", objects.selections),
                ("weighed", objects.weighed),
                ("probes", objects.probes),
            ];
            all.extend(counts.map(|(name, count)| (name.to_owned(), count)));
        }
        all
    }

    fn settle(&self) -> std::result::Result<(), String> {
        self.0.wait_for_background().map_err(|error| error.to_string())
    }

    fn close(self: Box<Self>) -> std::result::Result<(), String> {
        self.0.close().map_err(|error| error.to_string())
    }
}

fn open(setup: &Setup, variant: &str) -> std::result::Result<Box<dyn Contender>, String> {
    let tiers = match setup.tiers.as_slice() {
        [only] => vec![TierOptions::fast(only.path.clone(), only.bytes)],
        [fast, capacity] => vec![
            TierOptions::fast(fast.path.clone(), fast.bytes),
            TierOptions::capacity(capacity.path.clone(), capacity.bytes),
        ],
        other => return Err(format!("it needs one tier or two, and was given {}", other.len())),
    };
    let parse = || -> cuesta::Result<Options> {
        Ok(Options {
            tiers,
            memory_bytes: setup.memory_bytes,
            profile: Some(setup.profile.parse()?),
            durability: setup.durability.parse()?,
            create: Create::IfMissing,
            seed: setup.seed,
            ..Options::default()
        })
    };
    let options = vary(parse().map_err(|error| error.to_string())?, variant)?;
    let db = Db::open(&options).map_err(|error| error.to_string())?;
    Ok(Box::new(Cuesta(db)))
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    // What went wrong was answered; whoever asked tells it.
    serve(&|setup| open(setup, &args.variant)).map_err(Failure::Input)?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuesta::Demotion;

    #[test]
    fn a_variant_sets_what_it_names_and_refuses_what_nobody_knows() {
        let varied =
            vary(Options::at("x"), "prismdb,random,promote=never,table=2MiB,pinned=30,runs=5").unwrap();
        assert_eq!((varied.profile, varied.demotion), (Some(Profile::PrismDb), Demotion::Random));
        assert_eq!((varied.promote_reads, varied.table_bytes), (PromoteReads::Never, 2 << 20));
        assert_eq!(varied.runs_max, 5);
        let plain = vary(Options::at("x"), "").unwrap();
        assert_eq!((varied.pinned_percent, plain.pinned_percent), (Some(30), None));
        for word in ["quick", "tables=2MiB", "pinned=some", "runs=all", "promote=later", "table=large"] {
            assert!(vary(Options::at("x"), word).is_err(), "{word}");
        }
    }
}
