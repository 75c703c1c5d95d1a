//! Row 16: does the table find bugs? Each planted bug is woken in turn, and rows are run until one of them fails.

use crate::fixture::{Kind, set_kind};
use crate::rows::{self, Effort, Row};
pub use cuesta::planted::{Bug, wake};

/// How a bug was found.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The row that failed.
    pub row: u8,
    /// Units that were run before, over all rows.
    pub after: u64,
    /// The case, and what it said.
    pub violation: (u64, String),
}

/// The rows that hunt, in this order, and how much of each at most: nowhere more than 12,000 seeds.
const HUNT: [(u8, f64); 12] = [
    (12, 0.01),
    (1, 0.01),
    (27, 0.2),
    (9, 1.0),
    (14, 0.2),
    (21, 0.1),
    (10, 0.5),
    (7, 0.3),
    (2, 0.3),
    (8, 0.2),
    (6, 0.1),
    (1, 0.6),
];

/// The kinds of stores that have the bug's line; one for each where there are several such lines.
fn kinds(bug: Bug) -> &'static [Kind] {
    match bug {
        bug if bug.is_in_store() => &[Kind::PrismDb],
        bug if bug.is_log_free() => &[Kind::PrismDbLogFree],
        bug if bug.is_in_guards() => &[Kind::Fragmented],
        bug if bug.is_in_floors() => &[Kind::NvLsm],
        Bug::ErasedSlotsKept | Bug::ErasedObjectsRise => &[Kind::PrismDb],
        // A memtable goes to a table, or to slots.
        Bug::LogTrimmedEarly => &[Kind::PrismDb, Kind::Leveled],
        _ => &[Kind::Leveled],
    }
}

/// Runs rows with `bug` awake until one fails, over the stores of each kind that has the bug's line; `None` when for
/// one of them none does, and else what the last of them said.
pub fn hunt(bug: Bug) -> Option<Caught> {
    kinds(bug).iter().map(|kind| hunt_over(bug, *kind)).reduce(|before, caught| {
        let (before, caught) = (before?, caught?);
        Some(Caught { after: before.after + caught.after, ..caught })
    })?
}

fn hunt_over(bug: Bug, kind: Kind) -> Option<Caught> {
    set_kind(kind);
    // What the rows share is made by a healthy store.
    rows::prepare();
    wake(Some(bug));
    let mut after = 0;
    let mut caught = None;
    for (number, share) in HUNT {
        let simulated = |row: &&Row| row.number == number && row.is_simulated();
        let Some(row) = rows::ALL.iter().find(simulated) else { continue };
        let report = run(row, share);
        after += report.runs;
        if let Some(violation) = report.violations.into_iter().next() {
            caught = Some(Caught { row: number, after, violation });
            break;
        }
    }
    wake(None);
    caught
}

fn run(row: &Row, share: f64) -> rows::Report {
    rows::run(row, Effort { share, stop_at_first: true, ..Effort::default() }, &|_| {})
}
