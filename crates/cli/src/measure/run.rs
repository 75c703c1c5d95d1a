//! Contenders taking turns.
//!
//! Every contender has directories and a process of its own. Each loads its store once; then, for each workload, each
//! opens its store anew, warms up, and they take turns, round by round, the other way about in every second round. A
//! turn ends when its store has no work left, so that nobody works in another's turn; what that took is part of it. A
//! plan may have stores killed instead of closed, for what opening takes then. Where only the load is measured, each
//! turn loads into empty directories.
//!
//! Workloads that insert come last, whatever order they were named in.

use super::endurance::{self, Lifetime};
use super::memory_group;
use super::place::make_room;
use super::process::{CUESTA, Devices, Process, check, check_peer, knows_tiers, maps_its_tier};
use super::summary::{Ratio, invalid, ratios};
use crate::failure::{Failure, Result};
use crate::output::{COUNT_UP, progress, reveal};
use cuesta_bench::contender::{Ran, Request, Setup, TierSetup};
use cuesta_bench::{Config, Length, Workload, oracle};
use cuesta_model::Report;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

/// Phases of updates before turns are numbered from here on.
const UPDATES: u64 = 500;

/// What is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Who takes part; the first is the one that others are compared to.
    pub(crate) entries: Vec<Entry>,
    /// The load is run in any case.
    pub(crate) stages: Vec<Stage>,
    /// A load of the records; other phases are like it, of their workload and length.
    pub(crate) load: Config,
    pub(crate) rounds: u64,
    /// Whether stores are killed instead of closed, with nothing left to do, before each workload is opened for. Not
    /// for those on modelled devices, whose counts would be lost.
    pub(crate) killed: bool,
    /// Whether contenders may be in memory groups, where there can be some.
    pub(crate) grouped: bool,
    /// Where contenders have their directories.
    pub(crate) dir: PathBuf,
    pub(crate) fast_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) durability: String,
    pub(crate) profile: String,
    pub(crate) devices: Devices,
    /// Of a paper's experiment.
    pub(crate) scale: Option<f64>,
}

/// A workload, and how long it is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) workload: Workload,
    /// Before anything is measured.
    pub(crate) warm_up: Option<Length>,
    /// Updates before each turn that are no part of it: so that turns find level 0 as full as it happens to be, and not
    /// all of them as full as it was when the load ended.
    pub(crate) updates: Option<u64>,
    /// Of each turn.
    pub(crate) turn: Length,
}

impl Stage {
    /// Of nothing but turns.
    pub(crate) fn new(workload: Workload, turn: Length) -> Self {
        Self { workload, warm_up: None, updates: None, turn }
    }
}

/// Who takes part in a run.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What it is called in this run.
    pub(crate) name: String,
    /// `cuesta`, or a peer as `cuesta-peers` knows it; behind a colon what it is set to.
    pub(crate) kind: String,
    pub(crate) spread: Spread,
}

/// A store among others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// What it was set to, by workload.
    pub(crate) settings: BTreeMap<String, String>,
    /// What its devices counted, all in all.
    pub(crate) devices: Option<Report>,
    /// Why its figures say nothing, if they do not.
    pub(crate) invalid: Option<String>,
}

/// One contender's turn at a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) workload: Workload,
    pub(crate) round: u64,
    pub(crate) contender: String,
    /// Whether it has a fast and a capacity tier.
    pub(crate) tiers: [bool; 2],
    #[serde(flatten)]
    pub(crate) ran: Ran,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) version: String,
    /// Which build of this program measured, see [`this_build`]; empty in what was kept before builds were told apart.
    #[serde(default)]
    pub(crate) build: String,
    /// What was called.
    pub(crate) command: Vec<String>,
    /// In words.
    pub(crate) title: String,
    /// Of a paper's experiment.
    #[serde(default)]
    pub(crate) scale: Option<f64>,
    pub(crate) durability: String,
    /// Of each contender that has both tiers, and the memory number.
    pub(crate) fast_bytes: u64,
    pub(crate) memory_bytes: u64,
    /// What each contender's memory group may take, or why there are none.
    #[serde(default)]
    pub(crate) memory_group_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) no_memory_group: Option<String>,
    /// Of the machine.
    pub(crate) processors: u32,
    /// The first is ours.
    pub(crate) contenders: Vec<Contender>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) ratios: Vec<Ratio>,
    /// What a placement fixed in advance could do at best, by workload.
    pub(crate) best: BTreeMap<String, Best>,
    /// Of a store with both tiers, where both are modelled.
    #[serde(default)]
    pub(crate) dollars_per_gigabyte: Option<f64>,
    /// How long modelled tiers last, by workload.
    #[serde(default)]
    pub(crate) lifetimes: BTreeMap<String, Vec<Lifetime>>,
}

/// The least that any fixed placement sends to the capacity tier, knowing every key's share of the reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Best {
    /// Share of the reads.
    pub(crate) below: f64,
    /// Reads per second that these clients cannot exceed by it, where the tier is modelled.
    pub(crate) ceiling: Option<f64>,
}

impl Record {
    /// Of a run that has not begun.
    pub(crate) fn new(title: String, plan: &Plan) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: this_build(),
            command: std::env::args().collect(),
            title,
            scale: plan.scale,
            durability: plan.durability.clone(),
            fast_bytes: plan.fast_bytes,
            memory_bytes: plan.memory_bytes,
            memory_group_bytes: None,
            no_memory_group: None,
            processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            contenders: Vec::new(),
            turns: Vec::new(),
            ratios: Vec::new(),
            best: BTreeMap::new(),
            dollars_per_gigabyte: endurance::price(plan),
            lifetimes: BTreeMap::new(),
        }
    }
}

/// A hash of this program, so that no two builds which differ are taken for one; "unknown" where it cannot be read.
pub(crate) fn this_build() -> String {
    let mut hasher = DefaultHasher::new();
    match std::env::current_exe().and_then(std::fs::read) {
        Ok(program) => hasher.write(&program),
        Err(_) => return "unknown".to_owned(),
    }
    format!("{:016x}", hasher.finish())
}

/// Where a contender keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Tiered,
    Only(&'static str),
}

struct Player {
    name: String,
    spread: Spread,
    dir: PathBuf,
    /// The directory is ours to remove.
    made: bool,
    process: Option<Process>,
    records: u64,
}

impl Drop for Player {
    /// What a run that failed leaves would go on taking memory where devices have their bytes there.
    fn drop(&mut self) {
        drop(self.process.take());
        if self.made {
            fs::remove_dir_all(&self.dir).ok();
        }
    }
}

impl Plan {
    /// Workloads that read first, then those that insert.
    fn order(&self) -> Vec<Stage> {
        let mut order = self.stages.clone();
        order.retain(|stage| stage.workload != Workload::Load);
        order.sort_by_key(|stage| matches!(stage.workload, Workload::D | Workload::E));
        order
    }

    fn setup(&self, player: &Player, workload: Workload) -> Setup {
        let tier = |name: &str| {
            let bytes = match (player.spread, name) {
                (Spread::Tiered, "fast") => self.fast_bytes,
                // A store that has one tier has all of its room there.
                _ => self.capacity_bytes,
            };
            TierSetup { path: player.dir.join(name).join("data"), bytes }
        };
        Setup {
            tiers: match player.spread {
                Spread::Tiered => vec![tier("fast"), tier("capacity")],
                Spread::Only(name) => vec![tier(name)],
            },
            memory_bytes: self.memory_bytes,
            durability: self.durability.clone(),
            profile: self.profile.clone(),
            data_bytes: self.data_bytes,
            seed: self.load.seed,
            workload,
        }
    }

    /// What a placement fixed in advance could do at a workload.
    pub(crate) fn best(&self, workload: Workload) -> Option<Best> {
        let phase = Config { workload, ..self.load.clone() };
        let below = oracle::best(&phase, self.fast_bytes + self.memory_bytes)?;
        let models = cuesta_model::parse(&self.devices.models).unwrap_or_default();
        let read = models.get("capacity").map(|spec| spec.read.mean_us() / 1e6);
        let ceiling = read.filter(|_| below > 0.0).map(|s| oracle::ceiling(self.load.threads, below, s));
        Some(Best { below, ceiling })
    }

    fn phase(&self, workload: Workload, length: Length, phase: u64) -> Config {
        Config { workload, length, phase, ..self.load.clone() }
    }
}

/// Cuesta, and the peers; one that knows no tiers twice, on each.
pub(crate) fn entries(peers: &[String]) -> Result<Vec<Entry>> {
    let entry = |name: String, kind: &str, spread| Entry { name, kind: kind.to_owned(), spread };
    let mut all = vec![entry(CUESTA.to_owned(), CUESTA, Spread::Tiered)];
    for (i, peer) in peers.iter().enumerate() {
        check_peer(peer)?;
        if peers[..i].contains(peer) {
            return Err(Failure::Input(format!("{peer} is named twice")));
        }
        if knows_tiers(peer) {
            all.push(entry(peer.clone(), peer, Spread::Tiered));
        } else {
            let alone = |tier| entry(format!("{peer}, all on {tier}"), peer, Spread::Only(tier));
            all.extend(["capacity", "fast"].map(alone));
        }
    }
    Ok(all)
}

/// Lets all take their turns; what was measured until then goes to `record` even if one fails. Each workload's lines go
/// to `say` once it is done.
pub(crate) fn run(plan: &Plan, record: &mut Record, say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    let ran = run_all(plan, record, say);
    if ran.is_err() {
        // Who has not been closed has not been judged; what its devices counted nobody knows.
        for i in 0..record.contenders.len() {
            let invalid = invalid(record, &record.contenders[i]);
            let contender = &mut record.contenders[i];
            contender.invalid = contender.invalid.take().or(invalid);
        }
    }
    ran
}

fn run_all(plan: &Plan, record: &mut Record, say: &dyn Fn(&str) -> Result<()>) -> Result<()> {
    let dir = std::path::absolute(&plan.dir).map_err(Failure::io(format!("find {}", plan.dir.display())))?;
    let mut players = Vec::new();
    if plan.killed && !plan.devices.models.is_empty() {
        return Err(Failure::Input("stores that are killed cannot be on modelled devices".to_owned()));
    }
    plan.entries.iter().try_for_each(|entry| check(&entry.kind, &plan.devices))?;
    for (i, Entry { name, kind, spread }) in plan.entries.iter().cloned().enumerate() {
        let dir = dir.join(format!("{i}-{}", kind.replace([':', ','], "-")));
        record.contenders.push(Contender {
            name: name.clone(),
            settings: BTreeMap::new(),
            devices: None,
            invalid: None,
        });
        players.push((Player { name, spread, dir, made: false, process: None, records: 0 }, kind));
    }
    let groups = memory_groups(plan, &dir);
    record.no_memory_group = groups.as_ref().err().cloned();
    record.memory_group_bytes = groups.ok();
    let group = record.memory_group_bytes;
    let order = plan.order();
    let loads = if order.is_empty() { plan.rounds } else { 1 };
    for round in 0..loads {
        for (player, kind) in in_turn(&mut players, round) {
            finish(player, record)?;
            prepare(&player.dir)?;
            player.made = true;
            player.process = Some(Process::start(&player.name, kind, &player.dir, &plan.devices, group)?);
            player.records = 0;
            open(plan, player, Workload::Load, record)?;
            turn(player, plan.load.clone(), round, record)?;
        }
    }
    tell(plan, record, Workload::Load, say)?;
    for (nth, Stage { workload, warm_up, updates, turn: length }) in (1..).zip(order) {
        let phase = |i| nth * 1000 + i;
        let updates = updates.map(Length::Operations);
        for (player, kind) in &mut players {
            if let Some(process) = player.process.take_if(|_| plan.killed) {
                process.kill()?;
                let started = Process::start(&player.name, kind, &player.dir, &plan.devices, group);
                player.process = Some(started?);
            }
            open(plan, player, workload, record)?;
            if let Some(warm_up) = warm_up {
                measure(player, plan.phase(workload, warm_up, phase(0)), "warms up for")?;
            }
        }
        for round in 0..plan.rounds {
            for (player, _) in in_turn(&mut players, round) {
                if let Some(updates) = updates {
                    let updates = plan.phase(Workload::W, updates, phase(UPDATES + round));
                    measure(player, updates, "updates before")?;
                }
                turn(player, plan.phase(workload, length, phase(1 + round)), round, record)?;
            }
        }
        if let Some(best) = plan.best(workload) {
            record.best.insert(workload.name().to_owned(), best);
        }
        tell(plan, record, workload, say)?;
    }
    for (player, _) in &mut players {
        finish(player, record)?;
    }
    Ok(())
}

/// What the memory group of each contender under `dir` may take; or why there are none.
fn memory_groups(plan: &Plan, dir: &Path) -> std::result::Result<u64, String> {
    if !plan.grouped {
        return Err("--no-memory-groups".to_owned());
    }
    if plan.entries.iter().any(|entry| maps_its_tier(&entry.kind)) {
        return Err("persistent memory is mapped, and would count".to_owned());
    }
    let bytes = memory_group::bytes_for(plan.memory_bytes);
    let there = dir.ancestors().find(|dir| dir.is_dir()).ok_or("there is no such directory")?;
    memory_group::check(there, bytes).map(|()| bytes)
}

/// Every second round the other way about: who is first has no advantage.
fn in_turn<T>(players: &mut [T], round: u64) -> Box<dyn Iterator<Item = &mut T> + '_> {
    match round % 2 {
        0 => Box::new(players.iter_mut()),
        _ => Box::new(players.iter_mut().rev()),
    }
}

/// An empty directory for a contender, in place of an earlier one's.
fn prepare(dir: &Path) -> Result<()> {
    make_room(dir)?;
    let make = |tier| fs::create_dir_all(dir.join(tier).join("data"));
    ["fast", "capacity"]
        .into_iter()
        .try_for_each(make)
        .map_err(Failure::io(format!("prepare {}", dir.display())))
}

fn open(plan: &Plan, player: &mut Player, workload: Workload, record: &mut Record) -> Result<()> {
    let request = Request::Open(plan.setup(player, workload));
    let Some(process) = &mut player.process else { return Ok(()) };
    let settings = process.open(&request)?;
    if let Some(contender) = record.contenders.iter_mut().find(|contender| contender.name == player.name) {
        contender.settings.insert(workload.name().to_owned(), settings);
    }
    Ok(())
}

fn measure(player: &mut Player, config: Config, doing: &str) -> Result<Ran> {
    let Some(process) = &mut player.process else {
        return Err(Failure::Input(format!("{} has no process", player.name)));
    };
    let what = format!("{} {doing} {}", player.name, config.workload.name());
    let bar = progress(0, &what, COUNT_UP);
    let request = Request::Run { config, records: player.records };
    let ran = process.run(&request, &|done| {
        bar.set_position(done);
        reveal(&bar);
    });
    bar.finish_and_clear();
    let ran = ran?;
    player.records = ran.records;
    Ok(ran)
}

fn turn(player: &mut Player, config: Config, round: u64, record: &mut Record) -> Result<()> {
    let workload = config.workload;
    let ran = measure(player, config, "runs")?;
    let tiers = match player.spread {
        Spread::Tiered => [true, true],
        Spread::Only(name) => [name == "fast", name == "capacity"],
    };
    record.turns.push(Turn { workload, round, contender: player.name.clone(), tiers, ran });
    record.ratios = ratios(record);
    Ok(())
}

/// Closes a contender and removes its data.
fn finish(player: &mut Player, record: &mut Record) -> Result<()> {
    let Some(process) = player.process.take() else { return Ok(()) };
    let report = process.close()?;
    if let Some(i) = record.contenders.iter().position(|contender| contender.name == player.name) {
        record.contenders[i].devices = report;
        let invalid = invalid(record, &record.contenders[i]);
        let contender = &mut record.contenders[i];
        contender.invalid = contender.invalid.take().or(invalid);
    }
    player.made = false;
    fs::remove_dir_all(&player.dir).map_err(Failure::io(format!("remove {}", player.dir.display())))
}

/// What came of a workload.
fn tell(
    plan: &Plan,
    record: &mut Record,
    workload: Workload,
    say: &dyn Fn(&str) -> Result<()>,
) -> Result<()> {
    let lifetimes = endurance::lifetimes(plan, record, workload);
    if !lifetimes.is_empty() {
        record.lifetimes.insert(workload.name().to_owned(), lifetimes);
    }
    super::report::workload(record, workload).iter().try_for_each(|line| say(line))
}
