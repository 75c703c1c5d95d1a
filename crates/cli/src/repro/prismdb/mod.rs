//! PrismDB (Raina, Lu, Cidon, Freedman: "Efficient Compactions between Storage Tiers with PrismDB", ASPLOS 2023).
//!
//! [`rocksdb`]: what there is before PrismDB, figure 2 and table 2. [`profile`]: what profile `prismdb` does beside
//! RocksDB and beside other settings of itself, figures 5 to 11 and table 5. [`shown`]: what is printed besides, of
//! figures with a claim and without. [`plans`]: what is run for these.
//!
//! Left out: RocksDB's L2 cache, the read-aware RocksDB, and Mutant, of which there is no code to run; SpanDB, which is
//! a paper of its own.

mod plans;
mod profile;
mod rocksdb;
mod shown;

use super::{Experiment, Paper};

pub(super) const PAPER: Paper = Paper {
    name: "prismdb",
    title: "Efficient Compactions between Storage Tiers with PrismDB (ASPLOS 2023)",
    experiments: &[
        Experiment {
            shows: rocksdb::levels,
            ..Experiment::judged(
                "fig2",
                "where a tiered RocksDB merges, and which levels its reads reach",
                &[rocksdb::ALONE],
                rocksdb::figure_2,
            )
        },
        Experiment::judged(
            "table2",
            "RocksDB on Optane, on QLC, and on both",
            &[rocksdb::ALONE],
            rocksdb::table_2,
        ),
        Experiment::judged(
            "fig7",
            "YCSB's workloads: throughput and p99 beside RocksDB",
            &[plans::YCSB],
            profile::figure_7,
        ),
        Experiment::judged(
            "fig10",
            "bytes written, and how long the flash lasts",
            &[plans::YCSB],
            profile::figure_10,
        ),
        Experiment::judged(
            "oracle",
            "reads that reach the capacity tier, beside the best placement fixed in advance",
            &[plans::YCSB],
            profile::oracle,
        ),
        Experiment {
            shows: shown::figure_5,
            ..Experiment::judged(
                "fig5",
                "how the key range that goes down is chosen: precise, approx, random",
                &[plans::DEMOTION],
                profile::figure_5,
            )
        },
        Experiment::judged("fig8", "YCSB-A over skews, beside RocksDB", &plans::SKEWS, profile::figure_8),
        Experiment::judged(
            "fig9",
            "A and F with every write synced, beside RocksDB",
            &[plans::SYNC],
            profile::figure_9,
        ),
        Experiment::judged(
            "fig11a",
            "reads only, from an empty cache and tracker: what promotion gives",
            &[plans::PROMOTION],
            profile::figure_11a,
        ),
        Experiment::judged(
            "fig11b",
            "the pinning threshold, found by trying, beside five that are given",
            &[plans::THRESHOLD],
            profile::figure_11b,
        ),
        Experiment::judged(
            "table5",
            "workloads like Twitter's clusters 39, 19 and 51, beside RocksDB (of smaller values, so 51 at 0.11 at least, 19 at 0.34)",
            &plans::TWITTER,
            profile::table_5,
        ),
        Experiment::shown(
            "fig7a",
            "YCSB-A on one tier and on two: operations a second, p99, and what a gigabyte costs",
            &plans::PRICES,
            shown::figure_7a,
        ),
        Experiment::shown(
            "fig5once",
            "figure 5 where what goes down is merged at once, as in the paper",
            &[plans::MERGED],
            shown::figure_5,
        ),
        Experiment::shown("fig8d", "how long reads take in YCSB-B", &[plans::YCSB], shown::figure_8d),
        Experiment::shown(
            "fig11c",
            "YCSB-A by the number of clients (there are no partitions here)",
            &plans::CLIENTS,
            shown::figure_11c,
        ),
        Experiment::shown(
            "fig11d",
            "YCSB-A over time: what demotions take from it",
            &[plans::YCSB],
            shown::figure_11d,
        ),
        Experiment::shown(
            "fig12",
            "clock values of tracked keys after YCSB-A, by its skew",
            &plans::SKEWS,
            shown::figure_12,
        ),
        Experiment::shown(
            "unscaled",
            "figure 7 on devices with all of their bandwidth and channels",
            &[plans::UNSCALED],
            |_| Vec::new(),
        ),
    ],
};
