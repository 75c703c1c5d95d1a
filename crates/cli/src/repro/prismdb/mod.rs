//! PrismDB (Raina, Lu, Cidon, Freedman: "Efficient Compactions between Storage Tiers with PrismDB", ASPLOS 2023).
//!
//! [`rocksdb`]: what there is before PrismDB, figure 2 and table 2. [`profile`]: what profile `prismdb` does beside RocksDB
//! and beside other settings of itself, figures 5 to 11 and table 5. [`plans`]: what is run for these.
//!
//! Left out: RocksDB's L2 cache, the read-aware RocksDB, and Mutant, of which there is no code to run; SpanDB, which is a
//! paper of its own.

mod plans;
mod profile;
mod rocksdb;

use super::{Experiment, Paper, Run};

pub(super) const PAPER: Paper = Paper {
    name: "prismdb",
    title: "Efficient Compactions between Storage Tiers with PrismDB (ASPLOS 2023)",
    experiments: &[
        Experiment {
            name: "fig2",
            about: "where a tiered RocksDB merges, and which levels its reads reach",
            runs: &[rocksdb::ALONE],
            claims: rocksdb::figure_2,
        },
        Experiment {
            name: "table2",
            about: "RocksDB on Optane, on QLC, and on both",
            runs: &[rocksdb::ALONE],
            claims: rocksdb::table_2,
        },
        Experiment {
            name: "fig7",
            about: "YCSB's workloads: throughput and p99 beside RocksDB",
            runs: &[plans::YCSB],
            claims: profile::figure_7,
        },
        Experiment {
            name: "fig10",
            about: "bytes written, and how long the flash lasts",
            runs: &[plans::YCSB],
            claims: profile::figure_10,
        },
        Experiment {
            name: "oracle",
            about: "reads that reach the capacity tier, beside the best placement fixed in advance",
            runs: &[plans::YCSB],
            claims: profile::oracle,
        },
        Experiment {
            name: "fig5",
            about: "how the key range that goes down is chosen: precise, approx, random",
            runs: &[plans::DEMOTION],
            claims: profile::figure_5,
        },
        Experiment {
            name: "fig8",
            about: "YCSB-A over skews, beside RocksDB",
            runs: &plans::SKEWS,
            claims: profile::figure_8,
        },
        Experiment {
            name: "fig9",
            about: "A and F with every write synced, beside RocksDB",
            runs: &[plans::SYNC],
            claims: profile::figure_9,
        },
        Experiment {
            name: "fig11a",
            about: "reads only, from an empty cache and tracker: what promotion gives",
            runs: &[plans::PROMOTION],
            claims: profile::figure_11a,
        },
        Experiment {
            name: "fig11b",
            about: "the pinning threshold, found by trying, beside five that are given",
            runs: &[plans::THRESHOLD],
            claims: profile::figure_11b,
        },
        Experiment {
            name: "table5",
            about: "workloads like Twitter's clusters 39, 19 and 51, beside RocksDB",
            runs: &plans::TWITTER,
            claims: profile::table_5,
        },
        Experiment {
            name: "unscaled",
            about: "figure 7 on devices with all of their bandwidth and channels, to look at: it claims nothing",
            runs: &[plans::UNSCALED],
            claims: |_| Vec::new(),
        },
    ],
};

/// A run of the paper's; kept under its name.
const fn run(name: &'static str, plan: fn(&super::Setting) -> crate::measure::run::Plan) -> Run {
    Run { name, plan }
}
