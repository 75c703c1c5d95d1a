//! `cuesta contender`: a store of Cuesta's as one of those that `cuesta bench --against` and `cuesta repro` measure. It
//! is started by these commands, and answers requests on its standard input (`cuesta_bench::contender`).

use crate::failure::{Failure, Outcome, Result};
use crate::measure::ours::{Cuesta, MemoryModel};
use crate::model::{Models, TIERS};
use crate::size::{Size, human};
use cuesta::{Cause, Create, Options, Profile, PromoteReads, TierOptions};
use cuesta_bench::contender::{Contender, Setup, serve};
use cuesta_model::environment;
use std::collections::BTreeMap;

/// Be measured by another command, which starts this itself.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What is set otherwise than the requests say, with commas: a profile; approx, precise or random; promote=WHEN;
    /// table=SIZE; memtable=SIZE; sector=BYTES; pinned=PERCENT; runs=NUMBER; log-runs=NUMBER; candidates=TABLES;
    /// floors=NUMBER; level0=TABLES; filter=BITS; pmem=MODEL for persistent memory as its only tier; log-free;
    /// forget-heat, so that nothing is known to be hot when it is opened
    #[arg(default_value = "")]
    variant: String,
}

/// Tables in level 0 at which writers are slowed and stopped, in those that make a merge due.
const LEVEL0_TIMES: [u32; 2] = [3, 6];

/// What a variant sets.
struct Varied {
    options: Options,
    /// What persistent memory there is stands for.
    memory: Option<MemoryModel>,
    forgets_heat: bool,
}

/// `options` as a variant has them.
fn vary(mut options: Options, variant: &str) -> std::result::Result<Varied, String> {
    let (mut memory, mut forgets_heat) = (None, false);
    for word in variant.split(',').filter(|word| !word.is_empty()) {
        match word {
            "log-free" => options.log_free = true,
            "forget-heat" => forgets_heat = true,
            _ => {}
        }
        if ["log-free", "forget-heat"].contains(&word) {
            continue;
        }
        let Some((name, value)) = word.split_once('=') else {
            match (word.parse::<Profile>(), word.parse()) {
                (Ok(profile), _) => options.profile = Some(profile),
                (_, Ok(demotion)) => options.demotion = demotion,
                _ => {
                    return Err(format!(
                        "{word:?} is neither a profile, nor a way of demotion, nor log-free or forget-heat"
                    ));
                }
            }
            continue;
        };
        let number = || value.parse::<u32>().map_err(|_| format!("{value:?} is no number for {name}"));
        match name {
            "promote" => {
                options.promote_reads = value.parse::<PromoteReads>().map_err(|error| error.to_string())?;
            }
            "table" => options.table_bytes = value.parse::<Size>()?.0,
            "memtable" => options.memtable_bytes = Some(value.parse::<Size>()?.0),
            "sector" => {
                let bytes = number()?;
                options.tiers.iter_mut().take(1).for_each(|tier| tier.sector_bytes = bytes);
            }
            "pinned" => options.pinned_percent = Some(number()?),
            "runs" => options.runs_max = number()?,
            "log-runs" => options.log_runs_max = number()?,
            "candidates" => options.candidate_tables = number()?,
            "floors" => options.floors_max = Some(number()?),
            "level0" => {
                options.level0_merge = number()?;
                [options.level0_slow, options.level0_stop] =
                    LEVEL0_TIMES.map(|times| options.level0_merge.saturating_mul(times));
            }
            "filter" => {
                let bits = number()?;
                options.tiers.iter_mut().for_each(|tier| tier.filter_bits_per_key = bits);
            }
            "pmem" => {
                memory = Some(value.parse::<MemoryModel>()?);
                options.tiers.truncate(1);
                for tier in &mut options.tiers {
                    tier.persistent_memory = true;
                }
            }
            _ => return Err(format!("there is nothing called {name:?} to set")),
        }
    }
    Ok(Varied { options, memory, forgets_heat })
}

/// Removes what a clean close left for the next open to know what was hot (`docs/format/image.md`).
fn forget_heat(tiers: &[TierOptions]) -> std::io::Result<()> {
    for tier in tiers.iter().filter(|tier| tier.path.is_dir()) {
        for entry in std::fs::read_dir(&tier.path)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("image-") {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

impl Contender for Cuesta {
    fn settings(&self) -> String {
        format!("memory {}", human(self.db.stats().memory.limit_bytes))
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        let stats = self.db.stats();
        let mut all = BTreeMap::from([
            ("memory:index".to_owned(), stats.memory.index_bytes),
            ("memory:ranges".to_owned(), stats.memory.range_bytes),
            ("memory:jobs".to_owned(), stats.memory.job_bytes),
            ("memory:holes".to_owned(), stats.memory.hole_bytes),
            ("used".to_owned(), stats.tiers.iter().map(|tier| tier.used_bytes).sum()),
            ("open:log:micros".to_owned(), stats.opened.log_took.as_micros() as u64),
            ("open:log:bytes".to_owned(), stats.opened.log_bytes),
        ]);
        for (i, level) in stats.levels.iter().enumerate() {
            all.insert(format!("tables:{i}"), level.tables);
            all.insert(format!("guards:{i}"), level.guards);
        }
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
        let stats = self.db.stats();
        let mut all = self.touched();
        all.insert("flushes".to_owned(), stats.operations.flushes);
        all.insert("merges".to_owned(), stats.operations.merges);
        for answer in &stats.answers {
            all.insert(format!("found:{}", answer.container), answer.gets);
        }
        all.insert("blocks:cached".to_owned(), stats.cache.blocks.hits);
        all.insert("blocks:read".to_owned(), stats.cache.blocks.misses);
        for (i, tier) in TIERS.iter().enumerate().take(stats.tiers.len()) {
            for cause in Cause::ALL {
                let count = stats.io.get(i, cause);
                all.insert(format!("reads:{tier}:{}", cause.name()), count.read_ops);
                all.insert(format!("read:{tier}:{}", cause.name()), count.read_bytes);
                all.insert(format!("written:{tier}:{}", cause.name()), count.write_bytes);
                all.insert(format!("syncs:{tier}:{}", cause.name()), count.syncs);
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
        self.db.wait_for_background().map_err(|error| self.told(error))
    }

    fn close(self: Box<Self>) -> std::result::Result<(), String> {
        self.db.close().map_err(|error| error.to_string())
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
    let mut options = parse().map_err(|error| error.to_string())?;
    // The library that makes devices slow is told of them so.
    if let Ok(models) = std::env::var(environment::MODELS)
        && !models.is_empty()
    {
        options = models.parse::<Models>()?.with_sectors(options);
    }
    let Varied { options, memory, forgets_heat } = vary(options, variant)?;
    if forgets_heat {
        forget_heat(&options.tiers).map_err(|error| format!("forget what was hot: {error}"))?;
    }
    Ok(Box::new(Cuesta::open(&options, memory).map_err(|error| error.to_string())?))
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    vary(Options::at("."), &args.variant).map_err(Failure::Input)?;
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
        let of = |variant| {
            let Varied { options, memory, forgets_heat } = vary(Options::at("x"), variant).unwrap();
            (options, memory, forgets_heat)
        };
        let (varied, memory, _) =
            of("prismdb,random,promote=never,table=2MiB,pinned=30,runs=5,log-runs=1,candidates=3");
        assert_eq!((varied.profile, varied.demotion), (Some(Profile::PrismDb), Demotion::Random));
        assert_eq!((varied.promote_reads, varied.table_bytes), (PromoteReads::Never, 2 << 20));
        assert_eq!((varied.runs_max, varied.log_runs_max, varied.candidate_tables, memory), (5, 1, 3, None));
        let (plain, _, forgets_heat) = of("");
        assert_eq!((varied.pinned_percent, plain.pinned_percent, forgets_heat), (Some(30), None, false));
        let (log_free, _, forgets_heat) = of("log-free,forget-heat");
        assert!(log_free.log_free && forgets_heat);
        let (linked, memory, _) = of("nvlsm,floors=4,level0=10,filter=0,memtable=1MiB,pmem=pcm");
        assert_eq!((linked.floors_max, linked.level0_merge, linked.level0_slow), (Some(4), 10, 30));
        assert_eq!((linked.tiers[0].filter_bits_per_key, linked.memtable_bytes), (0, Some(1 << 20)));
        assert!(linked.tiers[0].persistent_memory && memory.is_some());
        linked.validate().unwrap();
        for word in
            ["quick", "tables=2MiB", "pinned=some", "runs=all", "promote=later", "table=large", "pmem=qlc"]
        {
            assert!(vary(Options::at("x"), word).is_err(), "{word}");
        }
    }

    #[test]
    fn what_was_hot_is_forgotten_and_all_else_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::tiered(
            TierOptions::fast(dir.path().join("fast"), 64 << 20),
            TierOptions::capacity(dir.path().join("capacity"), 256 << 20),
        );
        options.profile = Some(Profile::PrismDb);
        let known = |forget: bool| {
            if forget {
                forget_heat(&options.tiers).unwrap();
            }
            let store = Cuesta::open(&options, None).unwrap();
            (0..50).for_each(|i| assert!(store.db.put(format!("key{i}"), b"v").is_ok()));
            assert_eq!(store.db.get(b"key7").unwrap().as_deref(), Some(&b"v"[..]));
            let tracked = store.db.stats().objects.unwrap().clocks;
            store.db.close().unwrap();
            tracked[3]
        };
        let (_, second, third) = (known(false), known(false), known(true));
        assert!(second > 0 && third < second, "{second} and {third}");
    }
}
