//! `cuesta explain`

use crate::failure::{Outcome, Result};
use crate::output::{print, print_json};
use crate::store::{KeyspaceArgs, Reached, StoreArgs};
use cuesta::Question;
use serde_json::json;

/// Say where a key's versions lie, and what a read of it costs.
///
/// Which container on which tier holds which of them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The key
    key: String,
    /// Answer in JSON; not of a store that is open elsewhere
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let question =
        Question::Explain { keyspace: args.keyspace.keyspace.clone(), key: args.key.clone().into_bytes() };
    let db = match args.json {
        true => Box::new(args.store.open()?),
        false => match args.store.open_or_ask(&question)? {
            Reached::Opened(db) => db,
            Reached::Answered(answer) => {
                print(answer.as_bytes())?;
                return Ok(Outcome::Done);
            }
        },
    };
    let explanation = match args.keyspace.open(&db)? {
        Some(keyspace) => keyspace.explain(&args.key)?,
        None => db.explain(&args.key)?,
    };
    if !args.json {
        print(explanation.to_string().as_bytes())?;
        return Ok(Outcome::Done);
    }
    let holding = |holding: &cuesta::Holding| {
        let version = |version: &cuesta::VersionFound| json!({ "sequence": version.sequence, "value_bytes": version.value_bytes });
        json!({
            "container": holding.container,
            "tier": holding.tier,
            "excluded_by_filter": holding.excluded_by_filter,
            "versions": holding.versions.iter().map(version).collect::<Vec<_>>(),
            "reads_by_tier": holding.reads,
            "answers": holding.answers,
        })
    };
    print_json(&json!({
        "key": args.key,
        "sequence": explanation.sequence,
        "erased": explanation.erased,
        "holdings": explanation.holdings.iter().map(holding).collect::<Vec<_>>(),
        "reads_by_tier": explanation.reads,
    }))?;
    Ok(Outcome::Done)
}
