//! Experiments of the papers, run again: what a paper measured is a [`Run`] of contenders here, and what it says of it
//! are [`Claim`]s on the run's record. Runs are kept in files, so that what was measured once need not be again.

mod numbers;
pub(crate) mod nvlsm;
pub(crate) mod prismdb;

use crate::measure::run::{Contender, Plan, Record};
use serde::Serialize;
use std::collections::BTreeSet;

/// What a claim asks of the number that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
}

impl Target {
    fn is_met(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(least) => measured >= least,
            Self::AtMost(most) => measured <= most,
            Self::Between(least, most) => (least..=most).contains(&measured),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least:.2}"),
            Self::AtMost(most) => write!(f, "at most {most:.2}"),
            Self::Between(least, most) => write!(f, "{least:.2} to {most:.2}"),
        }
    }
}

/// A statement of a paper, and what was measured here.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) id: &'static str,
    pub(crate) experiment: &'static str,
    pub(crate) claim: &'static str,
    pub(crate) paper_value: f64,
    pub(crate) target: Target,
    /// What would be better still: at least, or at most, as for the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stretch: Option<f64>,
    /// The median; `None` if it could not be measured.
    pub(crate) measured: Option<f64>,
    /// The quartiles.
    pub(crate) spread: Option<[f64; 2]>,
    /// Why the run is invalid, if it is.
    pub(crate) invalid: Option<String>,
    /// The target is, by a valid run.
    pub(crate) met: bool,
    /// Of the run that it is about, or the first of several.
    pub(crate) scale: Option<f64>,
    pub(crate) durability: String,
    /// Which builds of this program measured it, maybe at an earlier time, see [`crate::measure::run::this_build`].
    pub(crate) builds: BTreeSet<String>,
    pub(crate) command: String,
}

/// What an experiment is run with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) scale: f64,
    pub(crate) seed: u64,
    pub(crate) dir: std::path::PathBuf,
}

/// Contenders at work; several experiments may be about one run.
pub(crate) struct Run {
    pub(crate) name: &'static str,
    /// Its scale where none is asked for: all of a paper's runs together should end within an hour on two processors.
    pub(crate) scale: f64,
    pub(crate) plan: fn(&Setting) -> Plan,
}

/// A run under its name.
const fn run(name: &'static str, scale: f64, plan: fn(&Setting) -> Plan) -> Run {
    Run { name, scale, plan }
}

/// A figure or table. What its runs gave is handed to `claims` and `shows` in their order.
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) runs: &'static [Run],
    claims: fn(&[&Record]) -> Vec<Statement>,
    /// What is to be looked at and claims nothing, as lines.
    shows: fn(&[&Record]) -> Vec<String>,
}

/// A claim, and the numbers it is judged by, one for each turn.
pub(crate) struct Statement {
    pub(crate) id: &'static str,
    pub(crate) claim: &'static str,
    pub(crate) paper_value: f64,
    pub(crate) target: Target,
    pub(crate) stretch: Option<f64>,
    /// Which of the experiment's runs it is about, if it is about one of several.
    pub(crate) of_run: Option<usize>,
    pub(crate) measured: Vec<f64>,
}

impl Statement {
    /// With what would be better still than the target.
    fn stretching_to(self, stretch: f64) -> Self {
        Self { stretch: Some(stretch), ..self }
    }

    /// About one of the experiment's runs.
    fn of_run(self, nth: usize) -> Self {
        Self { of_run: Some(nth), ..self }
    }
}

/// A paper.
pub(crate) struct Paper {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) experiments: &'static [Experiment],
}

/// All that can be run again.
pub(crate) const PAPERS: &[Paper] = &[prismdb::PAPER, nvlsm::PAPER];

impl Experiment {
    /// One that is judged by its claims.
    const fn judged(
        name: &'static str,
        about: &'static str,
        runs: &'static [Run],
        claims: fn(&[&Record]) -> Vec<Statement>,
    ) -> Self {
        Self { name, about, runs, claims, shows: |_| Vec::new() }
    }

    /// One to look at.
    const fn shown(
        name: &'static str,
        about: &'static str,
        runs: &'static [Run],
        shows: fn(&[&Record]) -> Vec<String>,
    ) -> Self {
        Self { name, about, runs, claims: |_| Vec::new(), shows }
    }

    /// The scale of its runs where none is asked for.
    pub(crate) fn scale(&self) -> f64 {
        self.runs[0].scale
    }

    /// What its runs' records show, under its name.
    pub(crate) fn show(&self, records: &[&Record]) -> Vec<String> {
        let lines = (self.shows)(records);
        let title = (!lines.is_empty()).then(|| format!("\n{}: {}", self.name, self.about));
        title.into_iter().chain(lines.into_iter().map(|line| format!("  {line}"))).collect()
    }

    /// What its runs' records say of its claims.
    pub(crate) fn judge(&self, records: &[&Record], command: &str) -> Vec<Claim> {
        let why = |contender: &Contender| {
            contender.invalid.as_ref().map(|why| format!("{}: {why}", contender.name))
        };
        let judge = |statement: Statement| {
            let about = statement.of_run.map_or(records, |nth| &records[nth..=nth]);
            let invalid = about.iter().flat_map(|record| &record.contenders).find_map(why);
            let quartiles = crate::measure::summary::Quartiles::of(statement.measured);
            Claim {
                id: statement.id,
                experiment: self.name,
                claim: statement.claim,
                paper_value: statement.paper_value,
                target: statement.target,
                stretch: statement.stretch,
                measured: quartiles.map(|of| of.median),
                spread: quartiles.map(|of| [of.lower, of.upper]),
                met: invalid.is_none() && quartiles.is_some_and(|of| statement.target.is_met(of.median)),
                invalid,
                scale: about[0].scale,
                durability: about[0].durability.clone(),
                builds: about.iter().map(|record| record.build.clone()).collect(),
                command: command.to_owned(),
            }
        };
        (self.claims)(records).into_iter().map(judge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_their_ends() {
        assert!(Target::AtLeast(1.0).is_met(1.0) && !Target::AtLeast(1.0).is_met(0.99));
        assert!(Target::AtMost(1.0).is_met(1.0) && !Target::AtMost(1.0).is_met(1.01));
        let between = Target::Between(1.0, 2.0);
        assert!(
            between.is_met(1.0) && between.is_met(2.0) && !between.is_met(2.01) && !between.is_met(f64::NAN)
        );
    }

    #[test]
    fn runs_of_an_experiment_have_one_scale() {
        for experiment in PAPERS.iter().flat_map(|paper| paper.experiments) {
            let mut runs = experiment.runs.iter();
            assert!(runs.all(|run| run.scale == experiment.scale()), "{}", experiment.name);
        }
    }

    #[test]
    fn stores_have_memory_enough_at_default_scales() {
        for run in PAPERS.iter().flat_map(|paper| paper.experiments).flat_map(|experiment| experiment.runs) {
            let setting = Setting { scale: run.scale, seed: 1, dir: "/".into() };
            assert!((run.plan)(&setting).memory_bytes >= cuesta::MEMORY_BYTES_MIN, "{}", run.name);
        }
    }

    #[test]
    fn a_run_has_as_many_records_as_the_scale_that_it_tells() {
        for run in PAPERS.iter().flat_map(|paper| paper.experiments).flat_map(|experiment| experiment.runs) {
            for scale in [run.scale, 10.0] {
                let plan = (run.plan)(&Setting { scale, seed: 1, dir: "/".into() });
                let records_of_one = plan.load.records as f64 / plan.scale.unwrap();
                // Of PrismDB's tables and figures, and of NVLSM's.
                let is_one = |records: &f64| (records_of_one / records - 1.0).abs() < 1e-3;
                assert!([1e6, 2e6, 1e7].iter().any(is_one), "{}: {records_of_one}", run.name);
            }
        }
    }

    #[test]
    fn experiments_have_names_of_their_own() {
        for paper in PAPERS {
            let mut names: Vec<&str> = paper.experiments.iter().map(|experiment| experiment.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), paper.experiments.len(), "{}", paper.name);
        }
    }
}
