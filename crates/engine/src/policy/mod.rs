//! Policies: pure functions from a view of what exists to a plan of what to do next. No I/O, no clock, no chance but
//! the view's seed; so each decision can be tested as text in, text out.

pub(crate) mod candidates;
pub(crate) mod climb;
pub(crate) mod erase;
pub(crate) mod fragmented;
pub(crate) mod leveled;
pub(crate) mod log_guards;
pub(crate) mod mix;
pub(crate) mod msc;
pub(crate) mod piles;
pub(crate) mod placement;
pub(crate) mod promotion;
pub(crate) mod sorted_log;
pub(crate) mod vacate;

use crate::key::Seq;
use crate::options::Options;
use crate::range_tombstones::RangeTombstones;
use crate::tracker::Pinning;
use crate::version::{Guard, LEVELS_MAX, TableHandle, TablePart, Version, owners};
pub(crate) use msc::{RangeHeat, RangeView, StoreView};
pub(crate) use piles::PileView;
pub(crate) use placement::TierView;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Above all keys: no keyspace has this id.
pub(crate) const AFTER_ALL: [u8; 4] = [0xff; 4];

/// Heat is reads per so many bytes.
const HEAT_BYTES: u64 = 1 << 20;

/// A table, as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableView {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// What its data may take in other tables, where nothing is packed; in persistent memory, what both parts may.
    pub(crate) unpacked: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) smallest_seq: Seq,
    pub(crate) largest_seq: Seq,
    /// Range tombstones up to this number cover nothing in it that is older.
    pub(crate) erased: Seq,
    /// Of its data.
    pub(crate) tier: usize,
    /// Of its index, filter and properties.
    pub(crate) meta_tier: usize,
    pub(crate) meta_bytes: u64,
}

/// A run: disjoint tables in key order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunView {
    pub(crate) age: u64,
    /// It points into the next older one, which goes nowhere without it.
    pub(crate) linked: bool,
    pub(crate) tables: Vec<TableView>,
}

/// A guard: a range of keys of a level, up to where the next one starts, and its runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardView {
    pub(crate) start: Vec<u8>,
    pub(crate) runs: Vec<RunView>,
    /// Of all runs.
    bytes: u64,
    /// In key order; of a sorted log's guards alone.
    pub(crate) piles: Vec<PileView>,
    /// The most bytes of the oldest run that are one pile since tables lie across them ([`piles::untangle`]); of a
    /// sorted log's guards alone.
    joined_bytes: u64,
}

/// A level: its guards in key order. Views share those that did not change between them ([`Seen`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelView {
    pub(crate) guards: Vec<Arc<GuardView>>,
    /// Of all guards: asked for with every plan that is weighed.
    bytes: u64,
}

/// What the guards of an earlier version look like, level by level: a version shares most of its guards with the one
/// before. Guards are not kept: tables go with the last version that has them.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<SeenLevel>);

#[derive(Debug, Default)]
struct SeenLevel {
    guards: Vec<Weak<Guard>>,
    /// What they look like.
    view: Arc<LevelView>,
}

/// A plan that is being carried out: what it reads, and where it will write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningPlan {
    pub(crate) inputs: Vec<u64>,
    /// The upper one of the levels that it reads.
    pub(crate) level: usize,
    pub(crate) output_level: usize,
    pub(crate) from: Vec<u8>,
    /// The first key behind.
    pub(crate) to: Vec<u8>,
}

/// The first key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// What a policy decides from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) levels: Vec<Arc<LevelView>>,
    pub(crate) running: Vec<RunningPlan>,
    /// How often a table's data was read from media lately: the power of two of reads per mebibyte; 0 for those that
    /// are not here, and for all where there is one tier, or a store.
    pub(crate) heat: BTreeMap<u64, u32>,
    /// Parts of tables that cannot be put on another tier for now: a reader still holds them where they were before.
    pub(crate) lingering: BTreeSet<(u64, TablePart)>,
    /// Fastest first.
    pub(crate) tiers: Vec<TierView>,
    /// How many times larger a level is than the one above.
    pub(crate) ratio: u64,
    /// Runs that a guard may have below level 0.
    pub(crate) runs_max: usize,
    /// Runs that may lie on one another in the last level, where guards have one run (below a small store more, if it
    /// is the only one: [`sorted_log`]); one where what comes down is merged at once.
    pub(crate) laid_max: u64,
    /// Where a guard has several runs these point into one another: each is one table, and they go together.
    pub(crate) linked: bool,
    /// What a guard should have in one run, in bytes.
    pub(crate) guard_bytes: u64,
    /// And below a store, in piles.
    pub(crate) guard_piles: usize,
    /// Runs in level 0 that make a merge due.
    pub(crate) level0_merge: usize,
    /// Runs at which a guard of level 0 goes that has little.
    pub(crate) level0_most: usize,
    /// Least target of the level that level 0 merges into.
    pub(crate) base_bytes: u64,
    /// Writers are refused for want of room: what is shadowed or deleted should give its room back.
    pub(crate) reclaim: bool,
    /// The store below the memtable, in profiles that have one.
    pub(crate) store: Option<StoreView>,
    /// Of the version.
    pub(crate) range_tombstones: Arc<RangeTombstones>,
    /// The oldest number that anybody reads at, or will.
    pub(crate) oldest_read: Seq,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Merge tables of `level` with what they meet below, into `output_level`.
    Merge {
        level: usize,
        /// Table numbers, of runs of `level` and, with what comes down to a pile, of newer runs than the oldest there.
        above: Vec<u64>,
        output_level: usize,
        /// Disjoint tables there, in key order, that the outputs take the place of.
        below: Vec<u64>,
        /// The age of the run that the outputs join; `None` for the newest of each guard, or for one above that, where
        /// that has anything among their keys.
        joins: Option<u64>,
        /// Nothing older of these keys lies below the output.
        drop_tombstones: bool,
        smallest: Vec<u8>,
        largest: Vec<u8>,
    },
    /// Put a table into another level as it is.
    Move { table: u64, from: usize, to: usize, smallest: Vec<u8>, largest: Vec<u8> },
    /// Put a part of a table on another tier as it is.
    Relocate { table: u64, part: TablePart, level: usize, to: usize, smallest: Vec<u8>, largest: Vec<u8> },
    /// Merge the store's objects from one key up to before another with tables, into `level`, but for those that stay.
    Demote {
        /// All of the level that have these keys; none where the objects are laid on what is there.
        tables: Vec<u64>,
        level: usize,
        /// Of the run that the outputs join, or make: 0 is the oldest.
        age: u64,
        /// Nothing older of these keys lies below that.
        drop_tombstones: bool,
        from: Vec<u8>,
        to: Vec<u8>,
        pinning: Pinning,
    },
    /// Let so many bytes of the store's copies of what tables have go, but for those that stay.
    Release { pinning: Pinning, bytes: u64 },
    /// Have guards of a level begin at some keys that no table crosses, and at others no more. All are from one key up
    /// to before another.
    CutGuards { level: usize, added: Vec<Vec<u8>>, removed: Vec<Vec<u8>>, from: Vec<u8>, to: Vec<u8> },
    /// Forget range tombstones that no table needs: of keys from one up to before another, all of them together.
    Forget { tombstones: Vec<Seq>, from: Vec<u8>, to: Vec<u8> },
}

impl Plan {
    /// The plan as later views have to respect it.
    pub(crate) fn running(&self) -> RunningPlan {
        match self {
            Self::Merge { level, above, output_level, below, smallest, largest, .. } => RunningPlan {
                inputs: above.iter().chain(below).copied().collect(),
                level: *level,
                output_level: *output_level,
                from: smallest.clone(),
                to: behind(largest),
            },
            Self::Move { table, from: level, to: output_level, smallest, largest }
            | Self::Relocate { table, level, to: output_level, smallest, largest, .. } => RunningPlan {
                inputs: vec![*table],
                level: *level,
                // A relocation's is a tier.
                output_level: if matches!(self, Self::Move { .. }) { *output_level } else { *level },
                from: smallest.clone(),
                to: behind(largest),
            },
            Self::Demote { tables, level, from, to, .. } => RunningPlan {
                inputs: tables.clone(),
                level: *level,
                output_level: *level,
                from: from.clone(),
                to: to.clone(),
            },
            Self::CutGuards { level, from, to, .. } => RunningPlan {
                inputs: Vec::new(),
                level: *level,
                output_level: *level,
                from: from.clone(),
                to: to.clone(),
            },
            Self::Forget { from, to, .. } => RunningPlan {
                inputs: Vec::new(),
                level: LEVELS_MAX,
                output_level: LEVELS_MAX,
                from: from.clone(),
                to: to.clone(),
            },
            Self::Release { .. } => RunningPlan {
                inputs: Vec::new(),
                level: LEVELS_MAX,
                output_level: LEVELS_MAX,
                from: Vec::new(),
                to: AFTER_ALL.to_vec(),
            },
        }
    }
}

impl RunningPlan {
    /// Whether it is about keys from `smallest` to `largest`.
    fn meets(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.from.as_slice() <= largest && smallest < self.to.as_slice()
    }
}

impl RunView {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// Where the tables are that hold keys from `smallest` to `largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let begin = self.tables.partition_point(|table| table.largest.as_slice() < smallest);
        let count = self.tables[begin..].partition_point(|table| table.smallest.as_slice() <= largest);
        begin..begin + count
    }
}

impl GuardView {
    pub(crate) fn new(start: Vec<u8>, runs: Vec<RunView>) -> Self {
        let bytes = runs.iter().map(RunView::bytes).sum();
        Self { start, runs, bytes, ..Self::default() }
    }

    /// The guard, as one of a sorted log: n log n in its tables.
    pub(crate) fn piled(self) -> Self {
        Self { piles: piles::of(&self.runs), joined_bytes: piles::joined_bytes(&self.runs), ..self }
    }

    /// The table at a place that a pile names.
    pub(crate) fn table(&self, (run, table): (usize, usize)) -> &TableView {
        &self.runs[run].tables[table]
    }

    pub(crate) fn smallest_of(&self, pile: &PileView) -> &[u8] {
        &self.table(pile.tables[0]).smallest
    }

    pub(crate) fn largest_of(&self, pile: &PileView) -> &[u8] {
        &self.table(pile.last).largest
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tables of all runs; of half of them, the older ones; of half of these; and so on. Runs that point into one
    /// another stay together.
    pub(crate) fn oldest_halves(&self) -> impl Iterator<Item = Vec<&TableView>> {
        let mut more = usize::MAX;
        let counts = halves(self.runs.len()).map(|count| self.whole(count));
        let counts = counts.filter(move |count| *count < std::mem::replace(&mut more, *count));
        let of = |count: usize| &self.runs[self.runs.len() - count..];
        counts.map(move |count| of(count).iter().flat_map(|run| &run.tables).collect())
    }

    /// Of so many of the oldest runs, or of a few more, none is pointed into by a newer one.
    fn whole(&self, count: usize) -> usize {
        let newer = self.runs[..self.runs.len() - count].iter().rev();
        count + newer.take_while(|run| run.linked).count()
    }

    /// The oldest run, where nothing points into it.
    pub(crate) fn oldest_alone(&self) -> Option<&RunView> {
        self.runs.last().filter(|_| self.whole(1) == 1)
    }
}

/// A number, half of it, and so on, down to one.
fn halves(count: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(count), |count| Some(count / 2)).take_while(|count| *count > 0)
}

impl LevelView {
    pub(crate) fn new(guards: Vec<Arc<GuardView>>) -> Self {
        let bytes = guards.iter().map(|guard| guard.bytes).sum();
        Self { guards, bytes }
    }

    /// The first key behind a guard.
    pub(crate) fn end_of(&self, guard: usize) -> Vec<u8> {
        self.guards.get(guard + 1).map_or_else(|| AFTER_ALL.to_vec(), |next| next.start.clone())
    }

    /// Every run, guard by guard, newest first in each.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunView> {
        self.guards.iter().flat_map(|guard| &guard.runs)
    }

    /// Whether a guard has more than one.
    pub(crate) fn has_several_runs(&self) -> bool {
        self.guards.iter().any(|guard| guard.runs.len() > 1)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableView> {
        self.runs().flat_map(|run| &run.tables)
    }

    /// The guards that own keys from `smallest` to `largest`.
    pub(crate) fn guards_of(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<GuardView>] {
        &self.guards[owners(&self.guards, |guard| &guard.start, smallest, largest)]
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The tables that hold keys from `smallest` to `largest`; logarithmic in the number of guards and tables, besides
    /// them.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> impl Iterator<Item = &TableView> {
        let runs = self.guards_of(smallest, largest).iter().flat_map(|guard| &guard.runs);
        runs.flat_map(move |run| &run.tables[run.overlapping(smallest, largest)])
    }
}

impl View {
    /// Whether some tier has room for outputs as large as `inputs`; a merge leases its worst case before it begins.
    pub(crate) fn has_room_for(&self, inputs: u64) -> bool {
        // The first tier is the store's, where there is one.
        let mut tiers = self.tiers.iter().skip(usize::from(self.store.is_some()));
        self.tiers.is_empty() || tiers.any(|tier| tier.free > inputs + inputs / 4)
    }

    /// Whether a table is part of a plan that runs.
    pub(crate) fn is_busy(&self, table: &TableView) -> bool {
        self.running.iter().any(|plan| plan.inputs.contains(&table.number))
    }

    /// Bytes of a level in tables that no plan runs with.
    pub(crate) fn idle_bytes(&self, level: usize) -> u64 {
        self.levels[level].bytes() - self.busy_bytes(level, |_| true)
    }

    /// Bytes of a level that stay in it when the plans that run have ended, but for what those drop.
    pub(crate) fn staying_bytes(&self, level: usize) -> u64 {
        self.levels[level].bytes() - self.busy_bytes(level, |plan| plan.output_level > level)
    }

    /// Bytes of a level in tables that some plans run with.
    fn busy_bytes(&self, level: usize, among: impl Fn(&RunningPlan) -> bool) -> u64 {
        let seen = &self.levels[level];
        let running = self.running.iter().filter(|plan| !plan.inputs.is_empty() && among(plan));
        let busy = running.flat_map(|plan| {
            // A plan's inputs have keys of its own only.
            let tables = seen.overlapping(&plan.from, &plan.to);
            tables.filter(|table| plan.inputs.contains(&table.number))
        });
        busy.map(|table| table.bytes).sum()
    }

    /// The view of a version that looks like these levels; where there are several tiers and no store, linear in its
    /// tables.
    pub(crate) fn of(
        version: &Version,
        options: &Options,
        running: &[RunningPlan],
        tiers: Vec<TierView>,
        store: Option<StoreView>,
        (reclaim, runs_max, levels): (bool, usize, Vec<Arc<LevelView>>),
    ) -> Self {
        let (mut heat, mut lingering) = (BTreeMap::new(), BTreeSet::new());
        // Nobody asks below a store.
        let tables = (tiers.len() > 1 && store.is_none()).then(|| version.tables());
        for table in tables.into_iter().flatten() {
            let reads = table.reads() * HEAT_BYTES / table.meta.data_bytes.max(1);
            heat.extend(reads.checked_ilog2().map(|n| (table.meta.number, n + 1)));
            let parts = [TablePart::Data, TablePart::Meta].into_iter().filter(|part| table.lingers(*part));
            lingering.extend(parts.map(|part| (table.meta.number, part)));
        }
        Self {
            levels,
            running: running.to_vec(),
            heat,
            lingering,
            tiers,
            ratio: u64::from(options.level_ratio),
            runs_max,
            laid_max: options.laid_max().into(),
            linked: options.has_trees(),
            guard_bytes: options.guard_bytes(),
            guard_piles: options.log_guard_tables as usize,
            level0_merge: options.level0_merge as usize,
            level0_most: options.level0_most() as usize,
            base_bytes: options.memtable_bytes() * u64::from(options.level0_merge),
            reclaim,
            store,
            range_tombstones: version.range_tombstones.clone(),
            oldest_read: Seq(0),
        }
    }
}

impl Seen {
    /// The levels of a version. Linear in its guards, and in the tables of those that were not seen the last time.
    pub(crate) fn look(&mut self, version: &Version, options: &Options) -> Vec<Arc<LevelView>> {
        self.0.resize_with(LEVELS_MAX, SeenLevel::default);
        // Who asks may still hold a version with fewer levels than the one that was looked at last.
        let levels = version.levels.iter().map(|level| &level.guards[..]).chain(iter::repeat(&[][..]));
        for (seen, guards) in self.0.iter_mut().zip(levels) {
            seen.look(guards, options);
        }
        self.0.iter().map(|seen| seen.view.clone()).collect()
    }
}

impl SeenLevel {
    fn look(&mut self, guards: &[Arc<Guard>], options: &Options) {
        // Nothing else can lie where a guard was as long as somebody holds on to it weakly.
        let is = |seen: &Weak<Guard>, guard: &Arc<Guard>| seen.as_ptr() == Arc::as_ptr(guard);
        if self.guards.len() == guards.len() && self.guards.iter().zip(guards).all(|(a, b)| is(a, b)) {
            return;
        }
        let before = std::mem::take(self);
        // No view has it any more, as a rule; what did not change need not be touched then.
        let views = Arc::try_unwrap(before.view).unwrap_or_else(|shared| (*shared).clone()).guards;
        let mut known = before.guards.into_iter().zip(views).peekable();
        let (mut kept, mut views) = (Vec::with_capacity(guards.len()), Vec::with_capacity(guards.len()));
        for guard in guards {
            // Both are in key order.
            while known.next_if(|(seen, view)| !is(seen, guard) && view.start < guard.start).is_some() {}
            let (seen, view) = known
                .next_if(|(seen, _)| is(seen, guard))
                .unwrap_or_else(|| (Arc::downgrade(guard), Arc::new(guard_view(guard, options))));
            kept.push(seen);
            views.push(view);
        }
        *self = Self { guards: kept, view: Arc::new(LevelView::new(views)) };
    }
}

fn guard_view(guard: &Guard, options: &Options) -> GuardView {
    let table = |table: &Arc<TableHandle>| {
        let meta = &table.meta;
        TableView {
            number: meta.number,
            bytes: meta.level_bytes(),
            unpacked: options.tables_bytes_max(meta.unpacked_bytes())
                + meta.memory.as_ref().map_or(0, |_| meta.meta_bytes * 5 / 4),
            entries: meta.entries,
            tombstones: meta.tombstones,
            smallest: meta.smallest.clone(),
            largest: meta.largest.clone(),
            smallest_seq: meta.smallest_seq,
            largest_seq: meta.largest_seq,
            erased: meta.erased,
            tier: meta.data_tier as usize,
            meta_tier: meta.meta_tier as usize,
            meta_bytes: meta.meta_bytes,
        }
    };
    let runs = guard.runs.iter().enumerate().map(|(i, run)| RunView {
        age: run.age,
        linked: guard.runs.get(i + 1).is_some_and(|older| run.lies_on(older)),
        tables: run.tables.iter().map(table).collect(),
    });
    let view = GuardView::new(guard.start.clone(), runs.collect());
    if options.has_store() { view.piled() } else { view }
}

/// The next thing to do, if anything is due. Tables that a range tombstone covers whole go before anything else, for
/// they cost nothing. With a store below the memtable that is a demotion, a change of guards, or a merge within the
/// sorted log, the demotion first where somebody waits for it, then merges for the room that they give back. Else room
/// on a tier that is almost out of it, then merges, then merges for their room, then tables that lie on the wrong tier.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    if let Some(store) = &view.store {
        let within = || sorted_log::plan(view);
        let planned = || match store.pressed {
            true => msc::plan(view).or_else(|| log_guards::plan(view)).or_else(within),
            false => log_guards::plan(view).or_else(within).or_else(|| msc::plan(view)),
        };
        let first = erase::whole(view).or_else(|| erase::pressing(view));
        let planned = first.or_else(planned).or_else(|| sorted_log::reclaim(view));
        return planned.or_else(|| erase::apply(view));
    }
    let merge = || match view.runs_max {
        // It had more once.
        ..=1 if piles::has_stray_runs(view) => fragmented::collapse(view),
        ..=1 => leveled::plan(view).or_else(|| leveled::reclaim(view)).or_else(|| piles::settle(view)),
        _ => fragmented::plan(view).or_else(|| fragmented::reclaim(view)),
    };
    let first = erase::whole(view).or_else(|| placement::urgent(view)).or_else(|| erase::pressing(view));
    first.or_else(merge).or_else(|| erase::apply(view)).or_else(|| placement::plan(view))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge { level, above, output_level, below, joins, drop_tombstones, smallest, largest } => {
                write!(f, "merge")?;
                for (level, numbers) in [(level, above), (output_level, below)] {
                    if !numbers.is_empty() {
                        let numbers: Vec<_> = numbers.iter().map(|number| format!("#{number}")).collect();
                        write!(f, " L{level}: {}", numbers.join(" "))?;
                    }
                }
                let (smallest, largest) = (smallest.escape_ascii(), largest.escape_ascii());
                match joins.filter(|_| level < output_level && below.is_empty()) {
                    Some(age) => write!(f, " onto L{output_level}, as run {age} [{smallest}..{largest}]")?,
                    None => write!(f, " into L{output_level} [{smallest}..{largest}]")?,
                }
                if *drop_tombstones { write!(f, ", tombstones go") } else { Ok(()) }
            }
            Self::Move { table, from, to, .. } => write!(f, "move #{table} from L{from} to L{to}"),
            Self::Relocate { table, part, level, to, .. } => {
                let part = if *part == TablePart::Meta { "index of " } else { "" };
                write!(f, "relocate {part}#{table} of L{level} to tier {to}")
            }
            Self::CutGuards { level, added, removed, .. } => {
                let keys = |keys: &[Vec<u8>]| -> String {
                    keys.iter().map(|key| format!(" {}", key.escape_ascii())).collect()
                };
                match (added.is_empty(), removed.is_empty()) {
                    (false, true) => write!(f, "cut L{level} at{}", keys(added)),
                    (true, false) => write!(f, "join L{level} at{}", keys(removed)),
                    _ => write!(f, "cut L{level} at{}, join it at{}", keys(added), keys(removed)),
                }
            }
            Self::Release { bytes, .. } => write!(f, "release {bytes} bytes of copies"),
            Self::Forget { tombstones, from, to } => {
                let (from, to) = (from.escape_ascii(), to.escape_ascii());
                let numbers: Vec<_> = tombstones.iter().map(|seq| format!("{seq:?}")).collect();
                write!(f, "forget range tombstones {} of [{from}..{to})", numbers.join(" "))
            }
            Self::Demote { tables, level, age, drop_tombstones: _, from, to, pinning } => {
                let whole = if *pinning == Pinning::NONE { " whole" } else { "" };
                write!(f, "demote{whole} [{}..{})", from.escape_ascii(), to.escape_ascii())?;
                let tables: Vec<_> = tables.iter().map(|number| format!("#{number}")).collect();
                match (tables.is_empty(), age) {
                    (true, 0) => Ok(()),
                    (true, age) => write!(f, " onto L{level}, as run {age}"),
                    (false, _) => write!(f, " into L{level}: {}", tables.join(" ")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Level;

    #[test]
    fn levels_that_only_a_later_version_has_are_not_seen_in_an_earlier_one() {
        let guard = |start: &str| Arc::new(Guard::new(start.into(), Vec::new()));
        let level = |starts: &[&str]| Level { guards: starts.iter().map(|start| guard(start)).collect() };
        let mut earlier = Version::default();
        earlier.levels.push(level(&[""]));
        let mut later = Version::default();
        later.levels = vec![earlier.levels[0].clone(), level(&["", "k"])];

        let options = Options::default();
        let mut seen = Seen::default();
        for version in [&later, &earlier, &later] {
            assert_eq!(seen.look(version, &options), Seen::default().look(version, &options));
        }
    }
}
