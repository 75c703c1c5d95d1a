//! `cuesta contender`: a store of Cuesta's as one of those that `cuesta bench --against` measures. It is started by that
//! command, and answers requests on its standard input (`cuesta_bench::contender`).

use super::bench::Cuesta;
use crate::failure::{Failure, Outcome, Result};
use crate::model::TIERS;
use crate::size::human;
use cuesta::{Cause, Create, Db, Options, TierOptions};
use cuesta_bench::contender::{Contender, Setup, serve};
use std::collections::BTreeMap;

impl Contender for Cuesta {
    fn settings(&self) -> String {
        format!("memory {}", human(self.0.stats().memory.limit_bytes))
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
        all
    }

    fn settle(&self) -> std::result::Result<(), String> {
        self.0.wait_for_background().map_err(|error| error.to_string())
    }

    fn close(self: Box<Self>) -> std::result::Result<(), String> {
        self.0.close().map_err(|error| error.to_string())
    }
}

fn open(setup: &Setup) -> std::result::Result<Box<dyn Contender>, String> {
    let [fast, capacity] = setup.tiers.as_slice() else {
        return Err(format!("it needs two tiers, and was given {}", setup.tiers.len()));
    };
    let parse = || -> cuesta::Result<Db> {
        let tiers = (
            TierOptions::fast(fast.path.clone(), fast.bytes),
            TierOptions::capacity(capacity.path.clone(), capacity.bytes),
        );
        Db::open(&Options {
            memory_bytes: setup.memory_bytes,
            profile: Some(setup.profile.parse()?),
            durability: setup.durability.parse()?,
            create: Create::IfMissing,
            seed: setup.seed,
            ..Options::tiered(tiers.0, tiers.1)
        })
    };
    parse().map(|db| Box::new(Cuesta(db)) as Box<dyn Contender>).map_err(|error| error.to_string())
}

pub(crate) fn run() -> Result<Outcome> {
    // What went wrong was answered; whoever asked tells it.
    serve(&open).map_err(Failure::Input)?;
    Ok(Outcome::Done)
}
