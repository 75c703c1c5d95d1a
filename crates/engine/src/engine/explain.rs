//! What a point read of a key would meet, container by container from the top: for people who ask why a read is slow,
//! where a key lies, or which old versions still take room.
//!
//! It takes the way of [`Engine::get`], and does not stop at the answer. Blocks that a read would have to fetch are
//! counted before they are looked into; looking leaves the cache as it was.

use super::Engine;
use crate::error::Result;
use crate::key::{Cursor, Entry, Kind, Seq, Target, Trailer};
use crate::memtable::MemCursor;
use crate::store::SLAB_TIER;
use crate::table::{InFloor, Way};
use crate::version::TableHandle;
use std::fmt;
use std::sync::Arc;

/// A version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionFound {
    /// Its number in the order of commits.
    pub sequence: u64,
    /// Bytes of its value; `None` for a tombstone.
    pub value_bytes: Option<u64>,
}

impl VersionFound {
    fn new(trailer: Trailer, value_bytes: u64) -> Self {
        let Seq(sequence) = trailer.seq();
        let is_put = trailer.kind() == Some(Kind::Put);
        Self { sequence, value_bytes: is_put.then_some(value_bytes) }
    }

    fn of(entry: &Entry<'_>) -> Self {
        Self::new(entry.trailer, entry.value.len() as u64)
    }
}

/// A container that a read of the key asks, or would ask if nothing above had answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// What it is, in words.
    pub container: String,
    /// The tier of its data; `None` for memory.
    pub tier: Option<usize>,
    /// The table's filter says that the key is not there, so its data is not looked at.
    pub excluded_by_filter: bool,
    /// Versions of the key in it, newest first.
    pub versions: Vec<VersionFound>,
    /// Reads of media, by tier, that asking it takes with the cache as it is.
    pub reads: Vec<u64>,
    /// A read ends here.
    pub answers: bool,
}

/// What a read of a key would meet; `Display` is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The read is as of this number.
    pub sequence: u64,
    /// The number of the newest range delete that the key is in: versions that are older are gone. 0 for none.
    pub erased: u64,
    /// From the top.
    pub holdings: Vec<Holding>,
    /// Reads of media, by tier, up to the answer, with the cache as it is.
    pub reads: Vec<u64>,
}

impl Engine {
    /// What a read of `key` (with its keyspace) would meet.
    pub(crate) fn explain(&self, key: &[u8]) -> Result<Explanation> {
        self.check_open()?;
        let current = self.current.load_full();
        let at = self.visible();
        let Seq(erased) = self.covering(&current, key, at);
        let tiers = self.tiers.all.len();
        let in_memory = |container, versions| {
            let (reads, excluded_by_filter, answers) = (vec![0; tiers], false, false);
            Holding { container, tier: None, excluded_by_filter, versions, reads, answers }
        };
        let mut holdings = Vec::new();
        let sealed =
            current.sealed.iter().map(|sealed| ("memtable that waits for its flush", &sealed.memtable));
        for (container, memtable) in std::iter::once(("memtable", &current.active)).chain(sealed) {
            let versions = versions(&mut MemCursor::new(memtable.clone()), key)?;
            holdings.push(in_memory(container.to_owned(), versions));
        }
        if let Some((Seq(sequence), bytes)) = self.tables.cache.peek_object(key, at) {
            let version = VersionFound { sequence, value_bytes: Some(bytes as u64) };
            holdings.push(in_memory("cached object".to_owned(), vec![version]));
        }
        let objects = self.objects.is_some().then(|| current.contents.index.locations(key));
        for location in objects.into_iter().flatten() {
            let found = current.contents.read(location, key)?;
            let entry = found.entry();
            let mut reads = vec![0; tiers];
            reads[SLAB_TIER as usize] += 1;
            holdings.push(Holding {
                container: format!("store, slab {}, slot {}", location.slab, location.slot),
                tier: Some(SLAB_TIER as usize),
                excluded_by_filter: false,
                versions: vec![VersionFound::of(&entry)],
                reads,
                answers: false,
            });
        }
        for (number, level) in current.version.levels.iter().enumerate() {
            let Some(guard) = level.guard_of(key) else { continue };
            for table in guard.tops().filter_map(|run| run.table_of(key)) {
                let mut of_table = self.holdings_of(number, table, key, Trailer::read_at(at))?;
                if table.meta.largest_seq.0 <= erased && table.meta.below().is_none() {
                    of_table.iter_mut().for_each(|holding| holding.reads.fill(0));
                }
                holdings.extend(of_table);
            }
        }
        let mut reads = vec![0; tiers];
        for holding in &mut holdings {
            reads.iter_mut().zip(&holding.reads).for_each(|(sum, more)| *sum += more);
            holding.answers = holding.versions.iter().any(|version| version.sequence <= at.0);
            if holding.answers {
                break;
            }
        }
        Ok(Explanation { sequence: at.0, erased, holdings, reads })
    }

    /// A table of blocks, or each floor of a tree from the top.
    fn holdings_of(
        &self,
        level: usize,
        handle: &Arc<TableHandle>,
        key: &[u8],
        bound: Trailer,
    ) -> Result<Vec<Holding>> {
        let (table, meta) = (handle.table()?, &handle.meta);
        let mut reads = vec![0; self.tiers.all.len()];
        let tier = Some(meta.data_tier as usize);
        if let Some(tree) = table.tree() {
            let floors = tree.versions_by_floor(key)?;
            let name = |below: usize, floor: &InFloor| match floors.len() {
                1 => format!("level {level}, table {}", floor.table),
                _ => format!("level {level}, table {}, floor {}", floor.table, below + 1),
            };
            let floor = |(below, floor): (usize, &InFloor)| Holding {
                container: name(below, floor),
                tier,
                excluded_by_filter: floor.excluded,
                versions: floor.versions.iter().map(|(trailer, n)| VersionFound::new(*trailer, *n)).collect(),
                reads: reads.clone(),
                answers: false,
            };
            let below = (0..floors.len()).rev();
            return Ok(below.zip(&floors).map(floor).collect());
        }
        let Way { meta_reads, data_reads, excluded } = table.way_to(&self.tables.cache, key, bound)?;
        reads[meta.meta_tier as usize] += meta_reads;
        reads[meta.data_tier as usize] += data_reads;
        let cursor = || {
            let data = self.tiers.open_table_file(meta.data_tier, meta.parts()[0].1)?;
            Ok(table.cursor_over(data, self.tables.cache.clone(), self.options.block_bytes as usize))
        };
        let versions = if excluded { Vec::new() } else { versions(&mut cursor()?, key)? };
        Ok(vec![Holding {
            container: format!("level {level}, table {}", meta.number),
            tier,
            excluded_by_filter: excluded,
            versions,
            reads,
            answers: false,
        }])
    }
}

/// All versions of `key` under a cursor.
fn versions(cursor: &mut dyn Cursor, key: &[u8]) -> Result<Vec<VersionFound>> {
    let mut found = Vec::new();
    cursor.go(Target::AtOrAfter(key, Trailer::FIRST))?;
    while let Some(entry) = cursor.entry().filter(|entry| entry.key == key) {
        found.push(VersionFound::of(&entry));
        cursor.next()?;
    }
    Ok(found)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "as of number {}, from the top:", self.sequence)?;
        if self.erased > 0 {
            writeln!(f, "  #{} deleted a range with it: versions before that are gone", self.erased)?;
        }
        let mut answered = false;
        for holding in &self.holdings {
            let tier = holding.tier.map_or("in memory".to_owned(), |tier| format!("on tier {tier}"));
            write!(f, "  {} {tier}: ", holding.container)?;
            let told = |version: &VersionFound| match version.value_bytes {
                Some(bytes) => format!("#{} of {bytes} bytes", version.sequence),
                None => format!("#{} deleted", version.sequence),
            };
            match (holding.excluded_by_filter, holding.versions.is_empty()) {
                (true, _) => write!(f, "its filter says no")?,
                (false, true) => write!(f, "nothing")?,
                _ => write!(f, "{}", holding.versions.iter().map(told).collect::<Vec<_>>().join(", "))?,
            }
            let told = match (holding.answers, answered) {
                (true, _) => ", which answers",
                (false, true) => ", not asked",
                (false, false) => "",
            };
            answered |= holding.answers;
            writeln!(f, "{told}")?;
        }
        if !answered {
            writeln!(f, "  no container has the key")?;
        }
        let reads = |(tier, n): (usize, &u64)| format!("{n} of tier {tier}");
        let reads: Vec<String> = self.reads.iter().enumerate().map(reads).collect();
        writeln!(f, "reads of media now: {}", reads.join(", "))
    }
}
