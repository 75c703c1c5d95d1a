//! Other stores as contenders of `cuesta bench --against`: `cuesta-peers NAME` is one of them, and answers requests on
//! its standard input (`cuesta_bench::contender`).
//!
//! What each is set to is in its own file, with the reasons. What all contenders have alike, Cuesta too, is the
//! command's: one arena of the C library's allocator, and of a modelled page cache half as many bytes as the memory
//! number. Nothing depends on this crate, and no other build compiles it:
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

/// A store that can be measured.
struct Peer {
    name: &'static str,
    /// Refuses what follows the colon of its name if it does not know it.
    check: fn(&str) -> Result<(), String>,
    /// Opens it; what follows the colon has been checked.
    open: Open,
}

type Open = fn(&Setup, &str) -> Result<Box<dyn Contender>, String>;

/// Every peer of this build.
const PEERS: &[Peer] = &[
    #[cfg(feature = "rocksdb")]
    Peer { name: "rocksdb", check: rocksdb::check, open: rocksdb::open },
    #[cfg(feature = "fjall")]
    Peer { name: "fjall", check: no_variant, open: |setup, _| fjall::open(setup) },
    #[cfg(feature = "redb")]
    Peer { name: "redb", check: no_variant, open: |setup, _| redb::open(setup) },
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let (peer, variant) = name.split_once(':').unwrap_or((&name, ""));
    let Some(found) = PEERS.iter().find(|known| known.name == peer) else {
        let known: Vec<&str> = PEERS.iter().map(|known| known.name).collect();
        eprintln!("there is no peer {peer:?} in this build; there are {}", known.join(", "));
        return ExitCode::from(2);
    };
    if let Err(why) = (found.check)(variant) {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    match serve(&|setup| (found.open)(setup, variant)) {
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
