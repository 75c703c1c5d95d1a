//! `cuesta stats`

use crate::failure::{Outcome, Result};
use crate::output::{print, print_json};
use crate::store::{Reached, StoreArgs};
use cuesta::{ObjectStats, Question, Stats, StoreState};
use serde_json::{Value, json};

/// Print the store in numbers.
///
/// Tiers, levels, memory, bytes by tier and cause since the store was made.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Answer in JSON; not of a store that is open elsewhere
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let db = match args.json {
        true => Box::new(args.store.open()?),
        false => match args.store.open_or_ask(&Question::Stats)? {
            Reached::Opened(db) => db,
            Reached::Answered(answer) => {
                print(answer.as_bytes())?;
                return Ok(Outcome::Done);
            }
        },
    };
    let (stats, keyspaces) = (db.stats(), db.keyspaces()?);
    match args.json {
        true => {
            let mut value = to_json(&stats);
            value["keyspaces"] = json!(keyspaces);
            print_json(&value)?;
        }
        false => {
            print(stats.to_string().as_bytes())?;
            if !keyspaces.is_empty() {
                print(format!("keyspaces  {}\n", keyspaces.join(", ")).as_bytes())?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn objects_json(of: ObjectStats) -> Value {
    json!({
        "objects": of.objects, "slabs": of.slabs, "slab_bytes": of.slab_bytes, "free_bytes": of.free_bytes,
        "copies": of.copies, "tracked": of.tracked, "tracked_max": of.tracked_max,
        "tracked_below": of.tracked_below, "pinned_percent": of.pinned_percent, "clocks": of.clocks, "selections": of.selections, "weighed": of.weighed,
        "log_free": of.log_free, "probes": of.probes, "filter_probes": of.filter_probes, "damaged": of.damaged, "flawed_slabs": of.flawed_slabs,
        "lost_slots": of.lost_slots, "moved": of.moved, "index_bytes": of.index_bytes,
    })
}

/// Statistics for a program.
pub(crate) fn to_json(stats: &Stats) -> Value {
    let state = match &stats.state {
        StoreState::Open => json!({ "state": "open" }),
        StoreState::OutOfRoom(why) => json!({ "state": "out of room", "why": why }),
        StoreState::ReadOnly(why) => json!({ "state": "read-only", "why": why }),
    };
    let tiers: Vec<Value> =
        stats.tiers.iter().enumerate().map(|(i, tier)| tier_json(stats, i, tier)).collect();
    let levels: Vec<Value> = stats
        .levels
        .iter()
        .map(|level| {
            json!({
                "guards": level.guards, "runs": level.runs, "tables": level.tables, "bytes_by_tier": level.bytes,
                "index_bytes": level.index_bytes, "entries": level.entries, "tombstones": level.tombstones,
            })
        })
        .collect();
    let (operations, ratios) = (&stats.operations, stats.ratios());
    json!({
        "store": state,
        "opened": {
            "seconds": stats.opened.took.as_secs_f64(),
            "log_seconds": stats.opened.log_took.as_secs_f64(),
            "log_bytes": stats.opened.log_bytes,
            "torn_slots": stats.opened.torn_slots,
        },
        "sequence": stats.sequence,
        "tiers": tiers,
        "levels": levels,
        "runs_max": stats.runs_max,
        "memory": {
            "limit_bytes": stats.memory.limit_bytes,
            "memtable_bytes": stats.memory.memtable_bytes,
            "cache_bytes": stats.memory.cache_bytes,
            "cache_limit_bytes": stats.memory.cache_limit_bytes,
            "table_bytes": stats.memory.table_bytes,
            "read_bytes": stats.memory.read_bytes,
            "write_bytes": stats.memory.write_bytes,
            "keyspace_bytes": stats.memory.keyspace_bytes,
            "index_bytes": stats.memory.index_bytes,
            "range_bytes": stats.memory.range_bytes,
            "job_bytes": stats.memory.job_bytes,
            "hole_bytes": stats.memory.hole_bytes,
        },
        "objects": stats.objects.map(objects_json),
        "ratios": {
            "write_amplification": ratios.write_amplification,
            "space_amplification": ratios.space_amplification,
            "reads_by_tier": ratios.reads_by_tier,
            "index_bytes_per_entry": ratios.index_bytes_per_entry,
        },
        "cache": {
            "blocks": { "hits": stats.cache.blocks.hits, "misses": stats.cache.blocks.misses },
            "objects": { "hits": stats.cache.objects.hits, "misses": stats.cache.objects.misses },
        },
        "operations": {
            "gets": operations.gets, "writes": operations.writes, "written_bytes": operations.written_bytes,
            "scans": operations.scans, "seeks": operations.seeks, "flushes": operations.flushes, "merges": operations.merges,
            "relocations": operations.relocations,
            "slowed_seconds": operations.slowed_nanos as f64 / 1e9,
        },
        "answers": stats.answers.iter().map(|answer| (answer.container.replace(' ', "_"), json!(answer.gets)))
            .collect::<serde_json::Map<_, _>>(),
        "latencies": stats.latencies.iter().map(latency_json).collect::<serde_json::Map<_, _>>(),
        "snapshots": stats.snapshots,
        "range_tombstones": stats.range_tombstones,
    })
}

fn latency_json(latency: &cuesta::LatencyStats) -> (String, Value) {
    let value = json!({
        "samples": latency.samples,
        "median_seconds": latency.median.as_secs_f64(), "p99_seconds": latency.p99.as_secs_f64(),
        "p999_seconds": latency.p999.as_secs_f64(), "longest_seconds": latency.longest.as_secs_f64(),
    });
    (latency.operation.to_owned(), value)
}

fn tier_json(stats: &Stats, i: usize, tier: &cuesta::TierStats) -> Value {
    let causes = cuesta::Cause::ALL.into_iter().map(|cause| {
        let count = stats.io.get(i, cause);
        let value = json!({
            "read_ops": count.read_ops, "read_bytes": count.read_bytes,
            "write_ops": count.write_ops, "write_bytes": count.write_bytes, "syncs": count.syncs,
        });
        (cause.name().replace(' ', "_"), value)
    });
    json!({
        "place": tier.place, "capacity_bytes": tier.capacity_bytes, "used_bytes": tier.used_bytes,
        "set_aside_bytes": tier.set_aside_bytes, "no_direct_io": tier.no_direct_io,
        "persistence": tier.persistence,
        "io": causes.collect::<serde_json::Map<_, _>>(),
    })
}
