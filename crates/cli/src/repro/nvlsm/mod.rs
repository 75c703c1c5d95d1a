//! NVLSM (Zhang and Du: "NVLSM: A Persistent Memory Key-Value Store Using Log-Structured Merge Tree with Accumulative
//! Compaction", ACM TOS 17(3), 2021).
//!
//! The paper compares three ways of compaction over one form of table; here they are the profiles `leveled`,
//! `fragmented` and `nvlsm` on modelled persistent memory. [`plans`]: what is run. [`claims`]: what is asked of it.
//! [`shown`]: figures without a claim of their own.
//!
//! Left out: the B+-tree FFTree, of which there is no code to run here, and NoveLSM's buffer.

mod claims;
mod plans;
mod shown;

use super::{Experiment, Paper};

pub(super) const PAPER: Paper = Paper {
    name: "nvlsm",
    title: "NVLSM: persistent memory, accumulative compaction (ACM TOS 17(3), 2021)",
    experiments: &[
        Experiment::judged(
            "fig9",
            "bytes written, cache lines read and room taken, three ways of compaction, no filters",
            &[plans::MAIN],
            claims::figure_9,
        ),
        Experiment::judged(
            "fig10",
            "the same by the number of floors a guard may have",
            &[plans::FLOORS],
            claims::figure_10,
        ),
        Experiment::judged("fig11", "mixes of updates and reads", &[plans::MAIN], claims::figure_11),
        Experiment::judged("fig14", "puts by the length of values", &plans::VALUES, claims::figure_14),
        Experiment::judged("fig15", "seeks and ranges", &[plans::MAIN], claims::figure_15),
        Experiment::judged("fig16", "bytes read and written over YCSB", &[plans::YCSB], claims::figure_16),
        Experiment::judged("fig17", "YCSB's A and F", &[plans::YCSB], claims::figure_17),
        Experiment::judged(
            "fig18",
            "YCSB's B, with floors that follow the load",
            &[plans::YCSB],
            claims::figure_18,
        ),
        Experiment::judged(
            "s64",
            "opening a store after a kill, its log apart",
            &[plans::KILLED],
            claims::section_6_4,
        ),
        Experiment::judged(
            "block",
            "the same ways of compaction on a fast and a capacity tier",
            &[plans::BLOCK],
            claims::block,
        ),
        Experiment::shown("blocks", "block's numbers themselves", &[plans::BLOCK], shown::block),
        Experiment::shown("fig8", "beside RocksDB and fjall on tmpfs", &[plans::PEERS], shown::figure_8),
        Experiment::shown(
            "fig9f",
            "figure 9 with filters of ten bits a key",
            &[plans::FILTERS],
            shown::figure_9,
        ),
        Experiment::shown(
            "fig9n",
            "figure 9's numbers themselves, and after updates",
            &[plans::MAIN],
            shown::figure_9,
        ),
        Experiment::shown(
            "fig12",
            "operations a second by mix, on PCM and on NVDIMM",
            &[plans::MAIN, plans::NVDIMM],
            shown::figure_12,
        ),
        Experiment::shown("fig18s", "YCSB's workloads, with two floors as well", &[plans::YCSB], shown::ycsb),
        Experiment::shown(
            "s44",
            "fences of a flush and of a merge, and lines that are written back",
            &[plans::MAIN],
            shown::section_4_4,
        ),
        Experiment::shown("s64n", "s64's seconds themselves", &[plans::KILLED], shown::section_6_4),
        Experiment::shown("fig13", "mixes by the number of floors", &[plans::FLOORS], shown::figure_13),
        Experiment::shown("dram", "memory that stores held at most", &[plans::MAIN], shown::dram),
    ],
};
