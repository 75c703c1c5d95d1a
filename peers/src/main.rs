//! Other stores as contenders of `cuesta bench --against`: `cuesta-peers NAME` is one of them, and answers requests on its
//! standard input (`cuesta_bench::contender`).
//!
//! What each is set to is in its own file, with the reasons, and nowhere else. Nothing depends on this crate, and no other
//! build compiles it:
//!
//! ```text
//! cargo build --release --manifest-path peers/Cargo.toml --target-dir target
//! ```
//!
//! Without RocksDB, which takes a quarter of an hour and libclang: `--no-default-features --features fjall,redb`.

#![allow(clippy::disallowed_methods, reason = "what is measured is measured in real time")]

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use cuesta_bench::contender::{Contender, Setup, serve};
use std::process::ExitCode;

/// Opens a contender; the text is what follows the colon of its name.
type Open = fn(&Setup, &str) -> Result<Box<dyn Contender>, String>;

/// Every peer of this build.
const PEERS: &[(&str, Open)] = &[
    #[cfg(feature = "rocksdb")]
    ("rocksdb", rocksdb::open),
    #[cfg(feature = "fjall")]
    ("fjall", fjall::open),
    #[cfg(feature = "redb")]
    ("redb", redb::open),
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let (peer, variant) = name.split_once(':').unwrap_or((&name, ""));
    let Some((_, open)) = PEERS.iter().find(|(known, _)| *known == peer) else {
        let known: Vec<&str> = PEERS.iter().map(|(known, _)| *known).collect();
        eprintln!("there is no peer {peer:?} in this build; there are {}", known.join(", "));
        return ExitCode::from(2);
    };
    match serve(&|setup| open(setup, variant)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{peer}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What a peer that knows one directory has: tiers are for the measuring process to choose.
fn only_tier(setup: &Setup) -> Result<&cuesta_bench::contender::TierSetup, String> {
    match setup.tiers.as_slice() {
        [tier] => Ok(tier),
        tiers => Err(format!("it keeps its data in one directory, and was given {}", tiers.len())),
    }
}

/// Whether each write is durable when it returns: of the durabilities that all stores have.
fn syncs(setup: &Setup) -> Result<bool, String> {
    match setup.durability.as_str() {
        "os" => Ok(false),
        "sync" => Ok(true),
        other => Err(format!("it has no durability {other:?}; use os or sync")),
    }
}

/// For a peer that is only measured one way.
fn no_variant(variant: &str) -> Result<(), String> {
    if variant.is_empty() { Ok(()) } else { Err(format!("it has no variant {variant:?}, nor any other")) }
}
