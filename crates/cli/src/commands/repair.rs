//! `cuesta repair`

use crate::failure::{Outcome, Result};
use crate::output::{BYTES, insert_bytes, print_json, print_line, progress, reveal};
use crate::size::human;
use crate::store::StoreArgs;
use cuesta::{Create, KeyIn, Lost, Repair, RepairReport};
use serde_json::{Map, Value, json};

/// Give up what is damaged, and make the rest whole.
///
/// Says what is damaged in tables and slots of a closed store, and what is lost with it; with --accept-loss, gives that
/// up and makes the rest whole, so that a store that does not open, or takes no more writes, does again. Of a key whose
/// newest version is lost an older one counts again, if there is one. Exit code 3 if there is damage that stays.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Give up what is damaged, if no more than so many versions are lost with it: the number that was told. Copy the
    /// store's directories first, if what is lost may be wanted again
    #[arg(long, value_name = "VERSIONS")]
    accept_loss: Option<u64>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let bar = progress(0, "repair", BYTES);
    let what = args.accept_loss.map_or(Repair::Tell, Repair::GiveUp);
    let report = cuesta::repair(&args.store.options(Create::Never), what, &mut |at| {
        bar.set_length(at.bytes_total);
        bar.set_position(at.bytes_done);
        reveal(&bar);
    })?;
    bar.finish_and_clear();
    match args.json {
        true => print_json(&json_of(&report))?,
        false => print_words(&report)?,
    }
    let whole = report.damages.is_empty() || report.repaired && report.left.is_empty();
    Ok(if whole { Outcome::Done } else { Outcome::Damaged })
}

fn print_words(report: &RepairReport) -> Result<()> {
    let RepairReport { damages, versions_lost, left, .. } = report;
    for damage in damages {
        print_line(&format!("{}; {}", damage.message, damage.lost))?;
    }
    let looked_at = format!("{} files of tables and slabs, {}", report.files, human(report.bytes));
    print_line(&match (damages.len(), report.repaired) {
        (0, _) => format!("no damage found in {looked_at}; `cuesta verify` reads all other files, too"),
        (n, false) => format!(
            "damage at {n} places of {looked_at}; {versions_lost} versions are lost with it. Nothing was changed: \
             `--accept-loss {versions_lost}` gives them up, and makes the store whole without them"
        ),
        (n, true) => format!("damage at {n} places is given up, and {versions_lost} versions with it"),
    })?;
    left.iter().try_for_each(|problem| print_line(&format!("still damaged: {}", problem.message)))
}

fn json_of(report: &RepairReport) -> Value {
    let key = |found: &KeyIn| {
        let mut object = Map::new();
        object.insert("keyspace".to_owned(), json!(found.keyspace));
        insert_bytes(&mut object, "key", &found.key);
        Value::Object(object)
    };
    let damage = |damage: &cuesta::Damage| {
        let lost = match &damage.lost {
            Lost::Nothing => json!("nothing"),
            Lost::Key(found) => key(found),
            Lost::Keys(first, last) => json!({ "first": key(first), "last": key(last) }),
            Lost::Unknown(versions) => json!({ "unknown": versions }),
        };
        json!({ "message": damage.message, "lost": lost })
    };
    json!({
        "files": report.files,
        "bytes": report.bytes,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "versions_lost": report.versions_lost,
        "repaired": report.repaired,
        "left": report.left.iter().map(|problem| &problem.message).collect::<Vec<_>>(),
    })
}
