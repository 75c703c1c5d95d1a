//! What the store has done and what it holds, in numbers.
//!
//! Bytes are counted by the device meter, per tier and cause, calls and their times in `operations`, lookups in the
//! cache, and what each keyspace was asked by its state. All are cumulative over restarts: edits carry them into the
//! manifest.

use super::Engine;
use super::operations::{AnswerStats, LatencyStats, OperationCounts, Operations};
use crate::cache::{Cache, HitCounts};
use crate::format::coding::put_varint;
use crate::format::{Decode, Reader};
use crate::memory::Holder;
use crate::options::Size;
use cuesta_device::{Cause, Counters, Meter};
use std::fmt;
use std::time::Duration;

/// Whether the store takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// Reads and writes.
    Open,
    /// Reads and writes, but a flush or merge waits for room; the text says on which tier.
    OutOfRoom(String),
    /// Reads only, since the failure that the text tells.
    ReadOnly(String),
}

/// One tier, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierStats {
    /// Where it is.
    pub place: String,
    /// What the store may take there, in bytes.
    pub capacity_bytes: u64,
    /// What its files take, what running jobs have been promised, and what is set aside.
    pub used_bytes: u64,
    /// Of these, what is set aside for the log to grow.
    pub set_aside_bytes: u64,
    /// Tables go through the operating system's page cache here, since the file system cannot do the direct I/O that
    /// was asked for: it holds their blocks a second time, beyond the memory number.
    pub no_direct_io: bool,
    /// Of persistent memory, how what is stored becomes durable.
    pub persistence: Option<String>,
}

/// One level, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Guards: ranges of keys with runs of their own.
    pub guards: u64,
    /// Sorted runs in the guard that has most.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes of data parts, by tier.
    pub bytes: Vec<u64>,
    /// Bytes of meta parts: indexes and filters.
    pub index_bytes: u64,
    /// Entries, old versions and tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
}

/// The store of objects below the memtable, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Objects, old versions and tombstones included.
    pub objects: u64,
    /// Slabs: files of slots of one size.
    pub slabs: u64,
    /// Bytes of the slabs' files.
    pub slab_bytes: u64,
    /// Bytes of slots that could be filled at once.
    pub free_bytes: u64,
    /// Entries that went to slots instead of the log since the store was opened ([`crate::Options::log_free`]).
    pub log_free: u64,
    /// Objects that were moved from slot to slot since the store was opened, so that slabs could go.
    pub moved: u64,
    /// Memory of the index alone, and of what is known of each slot.
    pub index_bytes: u64,
    /// Objects that a table has in the same version.
    pub copies: u64,
    /// Keys that the tracker knows, and for how many it has room.
    pub tracked: u64,
    /// See `tracked`.
    pub tracked_max: u64,
    /// Tracked keys whose newest version lies in a table, as far as was seen.
    pub tracked_below: u64,
    /// How many of a hundred tracked keys stay.
    pub pinned_percent: u32,
    /// Tracked keys by clock value, the coldest first.
    pub clocks: [u64; 4],
    /// Choices of what goes down since the store was opened, key ranges weighed for them, and objects that the tracker
    /// was asked for.
    pub selections: u64,
    /// See `selections`.
    pub weighed: u64,
    /// See `selections`.
    pub probes: u64,
    /// Filters of tables that were asked for the same choices whether they have an object.
    pub filter_probes: u64,
    /// Live slots that were found damaged when the store was opened; keys that neither a memtable nor a slot has cannot
    /// be answered.
    pub damaged: u64,
    /// Slabs that were missing, or not what the manifest says, when the store was opened: what can be read of them is
    /// served, and nothing is written to them.
    pub flawed_slabs: u64,
    /// Slots that were found damaged since, when what they hold was to go down; those whose keys were written anew
    /// meanwhile included.
    pub lost_slots: u64,
}

/// What it took to open the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenStats {
    /// From when the tiers were locked until workers were started.
    pub took: Duration,
    /// Of this, what reading the log took, and putting what it held into another log or into tables.
    pub log_took: Duration,
    /// Bytes of keys and values, with their framing, that the log held.
    pub log_bytes: u64,
    /// Slots for writes without a log ([`crate::Options::log_free`]) with bytes that are torn, or another slot's, and
    /// were dropped; what an earlier crash left in slots that are not used since is among them.
    pub torn_slots: u64,
}

/// Bytes of memory, by holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// The memory number.
    pub limit_bytes: u64,
    /// Memtables: active and waiting for their flush.
    pub memtable_bytes: u64,
    /// Cached blocks and objects.
    pub cache_bytes: u64,
    /// What the cache may have at present: what the others leave.
    pub cache_limit_bytes: u64,
    /// Indexes of open tables.
    pub table_bytes: u64,
    /// Cursors, read-ahead of scans and merges, large blocks on their way.
    pub read_bytes: u64,
    /// Large batches on their way.
    pub write_bytes: u64,
    /// Keyspaces.
    pub keyspace_bytes: u64,
    /// The index of the store below the memtable and its tracker, and what flushes have replaced of the index while
    /// somebody holds that.
    pub index_bytes: u64,
    /// Range tombstones that were flushed.
    pub range_bytes: u64,
    /// What flushes, demotions and promotions of the store below the memtable list: what goes where.
    pub job_bytes: u64,
    /// What lies between cached objects.
    pub hole_bytes: u64,
}

/// The cache, in numbers, since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups of blocks, indexes and filters included; a miss is a read.
    pub blocks: HitCounts,
    /// Lookups of objects, by point reads that no memtable answered; after a miss the tables are asked.
    pub objects: HitCounts,
}

/// The store in numbers; `Display` is one screen.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Whether it takes writes.
    pub state: StoreState,
    /// How it was opened.
    pub opened: OpenStats,
    /// Number of the last write that readers see.
    pub sequence: u64,
    /// Fastest first.
    pub tiers: Vec<TierStats>,
    /// The store below the memtable, in profiles that have one.
    pub objects: Option<ObjectStats>,
    /// From the top.
    pub levels: Vec<LevelStats>,
    /// Runs that a guard below level 0 may have at present: one, but in profiles `fragmented` and `nvlsm`, which calls
    /// them floors.
    pub runs_max: u64,
    /// Who holds memory.
    pub memory: MemoryStats,
    /// What was found in the cache.
    pub cache: CacheStats,
    /// Calls, since the store was made.
    pub operations: OperationCounts,
    /// Which containers answered the keys looked up, from the top, since the store was made.
    pub answers: Vec<AnswerStats>,
    /// How long calls took, of each kind of which there were any, since the store was made.
    pub latencies: Vec<LatencyStats>,
    /// Bytes and calls on media by tier and cause, since the store was made.
    pub io: Counters,
    /// Numbers that snapshots and iterators hold.
    pub snapshots: u64,
    /// Live keyspaces, besides the default one.
    pub keyspaces: u64,
    /// Range deletes that are not worked off yet.
    pub range_tombstones: u64,
}

/// What the counters come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// Bytes written to media for each byte of keys and values, log and merges included, since the store was made.
    pub write_amplification: f64,
    /// Bytes of tables for each byte of the largest level: what old versions and tombstones above it take at most.
    pub space_amplification: f64,
    /// Share of the reads for users, of data and indexes, that went to each tier, since the store was made; what the
    /// cache answered is none.
    pub reads_by_tier: Vec<f64>,
    /// Bytes of indexes and filters for each entry.
    pub index_bytes_per_entry: f64,
}

impl Stats {
    /// What the counters come to; 0 where there is nothing to divide by.
    pub fn ratios(&self) -> Ratios {
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let tiers = 0..self.tiers.len();
        let written: u64 = tiers.clone().map(|tier| self.io.total(tier).write_bytes).sum();
        let reads =
            |tier| self.io.get(tier, Cause::UserRead).read_ops + self.io.get(tier, Cause::Index).read_ops;
        let all_reads: u64 = tiers.clone().map(reads).sum();
        let bytes = |level: &LevelStats| level.bytes.iter().sum::<u64>();
        let largest = self.levels.iter().map(bytes).max().unwrap_or(0);
        Ratios {
            write_amplification: ratio(written, self.operations.written_bytes),
            space_amplification: ratio(self.levels.iter().map(bytes).sum(), largest),
            reads_by_tier: tiers.map(|tier| ratio(reads(tier), all_reads)).collect(),
            index_bytes_per_entry: ratio(
                self.levels.iter().map(|level| level.index_bytes).sum(),
                self.levels.iter().map(|level| level.entries).sum(),
            ),
        }
    }
}

impl Stats {
    /// What happened each second since `earlier`, `elapsed` ago, in a few lines.
    pub(crate) fn since(&self, earlier: &Self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (now, before) = (&self.operations, &earlier.operations);
        let mut text = format!(
            "a second   {:.0} gets, {:.0} writes ({}), {:.0} seeks; writers slowed {:.1} % of it\n",
            rate(now.gets, before.gets),
            rate(now.writes, before.writes),
            Size(rate(now.written_bytes, before.written_bytes) as u64),
            rate(now.seeks, before.seeks),
            rate(now.slowed_nanos, before.slowed_nanos) / 1e7,
        );
        for tier in 0..self.tiers.len() {
            let (now, before) = (self.io.total(tier), earlier.io.total(tier));
            text += &format!(
                "           tier {tier}: {:.0} reads ({}), {:.0} writes ({}), {:.0} syncs\n",
                rate(now.read_ops, before.read_ops),
                Size(rate(now.read_bytes, before.read_bytes) as u64),
                rate(now.write_ops, before.write_ops),
                Size(rate(now.write_bytes, before.write_bytes) as u64),
                rate(now.syncs, before.syncs),
            );
        }
        text
    }
}

impl Engine {
    pub(crate) fn stats(&self) -> Stats {
        let current = self.current.load_full();
        let tier = |tier: &crate::tier::Tier| TierStats {
            place: tier.directory.place(),
            capacity_bytes: tier.capacity_bytes,
            used_bytes: tier.taken_bytes(),
            set_aside_bytes: if tier.ordinal == 0 { self.log_room.spare_bytes() } else { 0 },
            no_direct_io: tier.has_no_direct_io(),
            persistence: tier.memory.map(|memory| memory.to_string()),
        };
        let tiers: Vec<TierStats> = self.tiers.all.iter().map(tier).collect();
        let level = |level: &crate::version::Level| {
            let mut stats = LevelStats { bytes: vec![0; tiers.len()], ..LevelStats::default() };
            stats.guards = level.guards.len() as u64;
            stats.runs = level.guards.iter().map(|guard| guard.runs.len()).max().unwrap_or(0) as u64;
            for table in level.tables() {
                stats.tables += 1;
                stats.bytes[table.meta.data_tier as usize] += table.meta.data_bytes;
                stats.index_bytes += table.meta.meta_bytes;
                stats.entries += table.meta.entries;
                stats.tombstones += table.meta.tombstones;
            }
            stats
        };
        let held = self.tables.cache.memory();
        let memory = MemoryStats {
            limit_bytes: self.options.memory_bytes,
            memtable_bytes: current.memtables().map(|memtable| memtable.bytes()).sum(),
            cache_bytes: self.tables.cache.bytes(),
            cache_limit_bytes: held.for_cache(),
            table_bytes: held.held(Holder::Tables),
            read_bytes: held.held(Holder::Reads),
            write_bytes: held.held(Holder::Writes),
            keyspace_bytes: held.held(Holder::Keyspaces),
            index_bytes: held.held(Holder::Index),
            range_bytes: held.held(Holder::RangeTombstones),
            job_bytes: held.held(Holder::Jobs),
            hole_bytes: held.held(Holder::Holes),
        };
        let state = match (self.failure.get(), self.background.out_of_room()) {
            (Some(cause), _) => StoreState::ReadOnly(cause.to_string()),
            (None, Some(error)) => StoreState::OutOfRoom(error.to_string()),
            (None, None) => StoreState::Open,
        };
        let objects = self.objects.as_ref().map(|store| {
            let (slab_bytes, free_bytes) = store.bytes();
            let (tracked, tracked_below) =
                current.tracker.as_ref().map_or((0, 0), |tracker| tracker.tracked());
            let [selections, weighed, probes, filter_probes] = store.weighings();
            ObjectStats {
                index_bytes: current.contents.held_bytes(),
                copies: current.contents.index.copies(),
                tracked,
                tracked_max: current.tracker.as_ref().map_or(0, |tracker| tracker.capacity()),
                tracked_below,
                pinned_percent: self.pinned_percent(store),
                clocks: current.tracker.as_ref().map_or([0; 4], |tracker| tracker.counts()),
                weighed,
                selections,
                probes,
                filter_probes,
                objects: current.contents.index.entries(),
                slabs: current.contents.slabs.len() as u64,
                slab_bytes,
                free_bytes,
                log_free: store.log_free(),
                moved: store.moved(),
                damaged: current.contents.damaged.slots,
                flawed_slabs: current.contents.slabs.iter().filter(|slab| slab.flaw().is_some()).count()
                    as u64,
                lost_slots: current.contents.slabs.lost_slots(),
            }
        });
        Stats {
            state,
            opened: self.opened,
            objects,
            sequence: self.visible().0,
            levels: current.version.levels.iter().map(level).collect(),
            runs_max: self.runs_max() as u64,
            memory,
            cache: CacheStats {
                blocks: self.tables.cache.block_hits(),
                objects: self.tables.cache.object_hits(),
            },
            operations: self.operations.counts(),
            answers: self.operations.answers(),
            latencies: self.operations.latencies(),
            io: self.tiers.meter.snapshot(),
            snapshots: self.snapshots.lock().count(),
            keyspaces: self.catalog.lock().keyspaces.len() as u64,
            range_tombstones: current.range_tombstones().map(|set| set.len() as u64).sum(),
            tiers,
        }
    }

    /// Counters as the manifest keeps them.
    pub(crate) fn encode_counters(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let calls = [self.operations.numbers(), self.tables.cache.numbers().to_vec()].concat();
        put_varint(&mut out, calls.len() as u64);
        calls.into_iter().for_each(|number| put_varint(&mut out, number));
        for number in self.tiers.meter.snapshot().numbers() {
            put_varint(&mut out, number);
        }
        out
    }
}

/// Takes up counters where the last run left them. Counters of another shape (other tiers, another version) are begun
/// anew.
pub(crate) fn restore_counters(bytes: &[u8], operations: &Operations, cache: &Cache, meter: &Meter) {
    let mut reader = Reader::new(bytes);
    let mut numbers = || -> Decode<(Vec<u64>, Vec<u64>)> {
        let calls = reader.number()?;
        let calls = (0..calls).map(|_| reader.number()).collect::<Decode<Vec<u64>>>()?;
        let mut io = Vec::new();
        while !reader.is_empty() {
            io.push(reader.number()?);
        }
        Ok((calls, io))
    };
    if let Ok((calls, io)) = numbers()
        && let Some((calls, hits)) = calls.split_last_chunk()
        && operations.restore(calls)
    {
        cache.restore(*hits);
        meter.restore(&io);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            StoreState::Open => writeln!(
                f,
                "state      open, {} keyspaces, {} snapshots, {} range deletes to be worked off",
                self.keyspaces + 1,
                self.snapshots,
                self.range_tombstones
            )?,
            StoreState::OutOfRoom(why) => writeln!(f, "state      out of room: {why}")?,
            StoreState::ReadOnly(why) => writeln!(f, "state      read-only: {why}")?,
        }
        let [took, log_took] = [self.opened.took, self.opened.log_took].map(|took| took.as_secs_f64() * 1e3);
        let log_bytes = Size(self.opened.log_bytes);
        write!(f, "opened     in {took:.1} ms, {log_took:.1} ms of it for {log_bytes} of log")?;
        match self.opened.torn_slots {
            0 => writeln!(f)?,
            torn => writeln!(f, ", {torn} torn slots dropped")?,
        }
        for (i, tier) in self.tiers.iter().enumerate() {
            let share = tier.used_bytes as f64 * 100.0 / tier.capacity_bytes.max(1) as f64;
            let (used, capacity) = (Size(tier.used_bytes), Size(tier.capacity_bytes));
            write!(f, "tier {i}     {used} of {capacity} ({share:.1} %)  {}", tier.place)?;
            if tier.set_aside_bytes > 0 {
                write!(f, ", {} set aside for the log", Size(tier.set_aside_bytes))?;
            }
            if tier.no_direct_io {
                write!(f, ", no direct I/O there: through the page cache")?;
            }
            if let Some(persistence) = &tier.persistence {
                write!(f, ", persistent memory: {persistence}")?;
            }
            writeln!(f)?;
        }
        let m = &self.memory;
        writeln!(
            f,
            "memory     of {}: memtables {}, cache {} of {}, tables {}, reads {}, writes {}, keyspaces {}, index {}, ranges {}, \
             jobs {}, holes {}",
            Size(m.limit_bytes),
            Size(m.memtable_bytes),
            Size(m.cache_bytes),
            Size(m.cache_limit_bytes),
            Size(m.table_bytes),
            Size(m.read_bytes),
            Size(m.write_bytes),
            Size(m.keyspace_bytes),
            Size(m.index_bytes),
            Size(m.range_bytes),
            Size(m.job_bytes),
            Size(m.hole_bytes)
        )?;
        if let Some(o) = &self.objects {
            let index = o.index_bytes as f64 / o.objects.max(1) as f64;
            let found = [
                (o.flawed_slabs, "slabs flawed"),
                (o.damaged, "slots damaged"),
                (o.lost_slots, "slots found damaged since"),
            ];
            let found = found.into_iter().filter(|(count, _)| *count > 0);
            let damaged: String = found.map(|(count, what)| format!(", {count} {what}")).collect();
            writeln!(
                f,
                "store      {} objects in {} slabs of {}, {} free, {index:.1} bytes of index an object{damaged}",
                o.objects,
                o.slabs,
                Size(o.slab_bytes),
                Size(o.free_bytes)
            )?;
            if o.log_free > 0 {
                writeln!(f, "log-free   {} entries went to slots at once", o.log_free)?;
            }
            if o.moved > 0 {
                writeln!(f, "vacated    {} objects were moved so that slabs could go", o.moved)?;
            }
            writeln!(
                f,
                "heat       {} of {} keys tracked, {} of them below, {} % to stay; {} copies; {} ranges weighed in {} choices by {} objects",
                o.tracked,
                o.tracked_max,
                o.tracked_below,
                o.pinned_percent,
                o.copies,
                o.weighed,
                o.selections,
                o.probes
            )?;
        }
        let hits = |counts: HitCounts| {
            let HitCounts { hits, misses } = counts;
            let share = hits as f64 * 100.0 / (hits + misses).max(1) as f64;
            format!("{hits} hits, {misses} misses ({share:.1} %)")
        };
        writeln!(f, "cache      blocks {}; objects {}", hits(self.cache.blocks), hits(self.cache.objects))?;
        let o = &self.operations;
        writeln!(
            f,
            "calls      {} gets, {} writes ({}), {} scans",
            o.gets,
            o.writes,
            Size(o.written_bytes),
            o.scans
        )?;
        let slowed = o.slowed_nanos as f64 / 1e9;
        let runs = match self.runs_max {
            ..=1 => String::new(),
            most => format!("; up to {most} runs a guard"),
        };
        writeln!(
            f,
            "background {} flushes, {} merges, {} relocations; writers slowed {slowed:.3} s{runs}",
            o.flushes, o.merges, o.relocations
        )?;
        for latency in &self.latencies {
            let LatencyStats { operation, samples, .. } = latency;
            let [median, p99, p999, longest] = [latency.median, latency.p99, latency.p999, latency.longest]
                .map(|time| time.as_secs_f64() * 1e6);
            writeln!(
                f,
                "{operation:<10} {median:.1} µs median, {p99:.1} µs p99, {p999:.1} µs p99.9, {longest:.1} µs longest of \
                 {samples} timed"
            )?;
        }
        let answers: Vec<String> =
            self.answers.iter().map(|answer| format!("{} {}", answer.container, answer.gets)).collect();
        if !answers.is_empty() {
            writeln!(f, "answers    {}", answers.join(", "))?;
        }
        let ratios = self.ratios();
        let shares: Vec<String> =
            ratios.reads_by_tier.iter().map(|share| format!("{:.1} %", share * 100.0)).collect();
        writeln!(
            f,
            "ratios     {:.2} written per byte, {:.2} of the largest level taken, {:.1} bytes of index an entry, reads by \
             tier {}",
            ratios.write_amplification,
            ratios.space_amplification,
            ratios.index_bytes_per_entry,
            shares.join(", ")
        )?;
        writeln!(f, "level guards  runs tables    entries tombstones  bytes by tier")?;
        for (i, level) in self.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
            let bytes: Vec<_> = level.bytes.iter().map(|bytes| Size(*bytes).to_string()).collect();
            let LevelStats { guards, runs, tables, entries, tombstones, .. } = level;
            writeln!(
                f,
                "{i:>5} {guards:>6} {runs:>5} {tables:>6} {entries:>10} {tombstones:>10}  {}",
                bytes.join(", ")
            )?;
        }
        writeln!(f, "tier cause            reads     read      writes    written   syncs")?;
        for tier in 0..self.tiers.len() {
            for cause in Cause::ALL {
                let c = self.io.get(tier, cause);
                if c.read_ops + c.write_ops + c.syncs > 0 {
                    let (read, written) = (Size(c.read_bytes), Size(c.write_bytes));
                    let (name, reads, writes, syncs) = (cause.name(), c.read_ops, c.write_ops, c.syncs);
                    writeln!(
                        f,
                        "{tier:>4} {name:<12} {reads:>9} {read:>10} {writes:>9} {written:>10} {syncs:>7}"
                    )?;
                }
            }
        }
        Ok(())
    }
}
