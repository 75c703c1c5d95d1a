//! Placement: which table's data lies on which tier.
//!
//! Indexes and filters are made on the first tier; where one found no room there it lies on a slower one, and every
//! lookup that comes by pays for that. So it goes up before any data does, and data makes way for it, but for a quarter
//! of the tier that stays data's.
//!
//! Tables are ranked: upper levels before lower ones, and within a level those that are read more from media before
//! those that are read less, then by key. Each goes to the first tier that has room left when its turn comes, once the
//! levels above have what they may come to need ([`leveled::claims`]): room that the last level's tables took would
//! have to be given back by copies as soon as somebody writes. So the top levels fill the fast tier, and one level
//! straddles, table by table. Room is what is free and what tables take already, less a sixty-fourth of the tier (64
//! KiB at least) for jobs on their way, and on the last tier less what is kept for deletes and merges.
//!
//! A table that is not where it should be is put there by a [`Plan::Relocate`], one at a time and after merges that are
//! due: the highest rank that wants up first, as soon as there is room; the lowest that must go down only when the
//! tier is short of room or a higher rank waits for it. Heat is compared by powers of two, and a table that is on the
//! faster tier counts for one more, so that two tables do not change places over a small difference.
//!
//! Linear in the number of tables, but for the sort.

use super::{LevelView, Plan, TableView, View, leveled};
use crate::version::TablePart;
use std::cmp::Reverse;
use std::sync::Arc;

/// Of a tier, what jobs on their way may need: one part in so many, and no less than so many bytes.
pub(crate) const KEEP_FREE_SHARE: u64 = 64;
pub(crate) const KEEP_FREE_BYTES_MIN: u64 = 64 << 10;

/// Of the first tier, what stays data's while indexes wait for room there: one part in so many.
const DATA_SHARE: u64 = 4;

/// A tier, as policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierView {
    pub(crate) capacity: u64,
    /// Not taken by files or running jobs, nor set aside for the log.
    pub(crate) free: u64,
    /// What no table should fill; on the last tier, what merges need that make room.
    pub(crate) keep_free: u64,
    /// What a job that waits for room needs here.
    pub(crate) wanted: u64,
}

impl TierView {
    /// The same, for those that wait included.
    fn kept(&self) -> u64 {
        self.keep_free.max(self.wanted)
    }

    /// Tables must go before anything else is done.
    fn is_short(&self) -> bool {
        self.free < self.wanted.max(self.keep_free / 2)
    }
}

/// A table, and the tier it should be on.
struct Wish<'a> {
    level: usize,
    table: &'a TableView,
    tier: usize,
}

/// Room for tables on each tier.
fn rooms(view: &View) -> Vec<u64> {
    rooms_of_first(view, view.tiers.len())
}

/// Room for tables on the first so many tiers.
fn rooms_of_first(view: &View, tiers: usize) -> Vec<u64> {
    let mut rooms: Vec<u64> = (0..tiers).map(|tier| room_of(view, tier)).collect();
    if let Some(first) = rooms.first_mut() {
        let waiting: u64 = indexes_below(view).map(|(_, table)| table.meta_bytes).sum();
        if waiting > 0 {
            *first -= waiting.min(room_for_indexes(view));
        }
    }
    rooms
}

/// Room for tables on a tier if all indexes stay where they are.
fn room_of(view: &View, tier: usize) -> u64 {
    let tables = view.levels.iter().flat_map(|level| level.tables()).filter(|table| table.tier == tier);
    let all = view.tiers[tier].free + tables.map(|table| table.bytes).sum::<u64>();
    all.saturating_sub(view.tiers[tier].kept())
}

/// Tables whose index lies on a slower tier than the first, each with its level; none beside a store of objects, which
/// makes way for no index.
fn indexes_below(view: &View) -> impl Iterator<Item = (usize, &TableView)> {
    let levels = view.levels.iter().enumerate().filter(|_| view.store.is_none());
    let tables = levels.flat_map(|(level, seen)| seen.tables().map(move |table| (level, table)));
    tables.filter(|(_, table)| table.meta_tier > 0)
}

/// Bytes that indexes from slower tiers may take on the first.
fn room_for_indexes(view: &View) -> u64 {
    room_of(view, 0).saturating_sub(view.tiers[0].capacity / DATA_SHARE)
}

/// Room for tables on all tiers but the last.
pub(super) fn room_above(view: &View) -> u64 {
    rooms_of_first(view, view.tiers.len().saturating_sub(1)).iter().sum()
}

/// Takes so much off the rooms, from the first on.
fn take(rooms: &mut [u64], mut bytes: u64) {
    for room in rooms {
        let taken = bytes.min(*room);
        *room -= taken;
        bytes -= taken;
    }
}

/// Every table, by rank.
fn wishes(view: &View) -> Vec<Wish<'_>> {
    let last = view.tiers.len() - 1;
    fn all((level, seen): (usize, &Arc<LevelView>)) -> impl Iterator<Item = (usize, &TableView)> {
        seen.tables().map(move |table| (level, table))
    }
    let mut ranked: Vec<(usize, &TableView)> = view.levels.iter().enumerate().flat_map(all).collect();
    let warmth =
        |table: &TableView| view.heat.get(&table.number).copied().unwrap_or(0) + u32::from(table.tier < last);
    ranked.sort_by(|(a_level, a), (b_level, b)| {
        (a_level, Reverse(warmth(a)), a.tier, &a.smallest).cmp(&(
            b_level,
            Reverse(warmth(b)),
            b.tier,
            &b.smallest,
        ))
    });
    let mut rooms = rooms(view);
    let unused: Vec<u64> = leveled::claims(view)
        .into_iter()
        .zip(&view.levels)
        .map(|(claim, level)| claim.saturating_sub(level.bytes()))
        .collect();
    let mut from = 0;
    let wish = |(level, table): (usize, &'_ TableView)| {
        take(&mut rooms[..last], unused[from..level].iter().sum());
        from = level;
        let tier = (0..last).find(|tier| rooms[*tier] >= table.bytes).unwrap_or(last);
        rooms[tier] = rooms[tier].saturating_sub(table.bytes);
        (level, tier)
    };
    let placed: Vec<(usize, usize)> = ranked.iter().copied().map(wish).collect();
    let wish = |((level, tier), (_, table))| Wish { level, table, tier };
    placed.into_iter().zip(ranked).map(wish).collect()
}

fn relocate(table: &TableView, part: TablePart, level: usize, to: usize) -> Plan {
    let (smallest, largest) = (table.smallest.clone(), table.largest.clone());
    Plan::Relocate { table: table.number, part, level, to, smallest, largest }
}

fn relocate_data(wish: &Wish<'_>) -> Plan {
    relocate(wish.table, TablePart::Data, wish.level, wish.tier)
}

/// Whether a part of a table can be put elsewhere now.
fn can_go(view: &View, table: &TableView, part: TablePart) -> bool {
    !view.is_busy(table) && !view.lingering.contains(&(table.number, part))
}

/// The next table to put elsewhere, or an index, if one is.
pub(crate) fn plan(view: &View) -> Option<Plan> {
    if view.tiers.len() < 2 {
        return None;
    }
    let for_indexes = room_for_indexes(view);
    let waiting: Vec<_> = indexes_below(view).filter(|(_, table)| table.meta_bytes <= for_indexes).collect();
    let first = &view.tiers[0];
    let finds_room = |(_, table): &&(usize, &TableView)| {
        first.free >= table.meta_bytes + first.kept() && can_go(view, table, TablePart::Meta)
    };
    if let Some((level, table)) = waiting.iter().find(finds_room) {
        return Some(relocate(table, TablePart::Meta, *level, 0));
    }
    let wishes = wishes(view);
    let idle = |wish: &&Wish<'_>| can_go(view, wish.table, TablePart::Data);
    let finds_room = |wish: &&Wish<'_>| {
        let tier = &view.tiers[wish.tier];
        wish.tier < wish.table.tier && tier.free >= wish.table.bytes + tier.kept()
    };
    if let Some(up) = wishes.iter().filter(idle).find(finds_room) {
        return Some(relocate_data(up));
    }
    let wanted = |tier: usize| {
        tier == 0 && !waiting.is_empty()
            || wishes.iter().any(|wish| wish.tier == tier && wish.table.tier > tier)
    };
    down(view, &wishes, |tier| wanted(tier) || view.tiers[tier].free < view.tiers[tier].kept())
}

/// What has to go down before anything else is done, since a tier is almost full.
pub(crate) fn urgent(view: &View) -> Option<Plan> {
    let short = |tier: usize| view.tiers[tier].is_short();
    // The first tier is the store's, where there is one, and no table's data lies there.
    if view.store.is_none() && (0..view.tiers.len() - 1).any(short) {
        down(view, &wishes(view), short)
    } else {
        None
    }
}

/// The lowest rank on a tier that is `crowded` and should be on a slower one that has room for it, and for a merge.
fn down(view: &View, wishes: &[Wish<'_>], crowded: impl Fn(usize) -> bool) -> Option<Plan> {
    let must_go = |wish: &&Wish<'_>| {
        let target = &view.tiers[wish.tier];
        let fits = target.free >= wish.table.bytes + target.keep_free / 2;
        let idle = can_go(view, wish.table, TablePart::Data);
        wish.tier > wish.table.tier && fits && idle && crowded(wish.table.tier)
    };
    wishes.iter().rev().find(must_go).map(relocate_data)
}

/// The tier that a level belongs to, whatever is there now: the first that the levels above leave some of. The last
/// level belongs to the last, unless everything fits above that.
pub(crate) fn of_level(view: &View, level: usize) -> usize {
    let last = view.tiers.len().saturating_sub(1);
    // The sorted log below a store of objects lies on the last tier whole.
    if view.store.is_some() || level + 1 == view.levels.len() && !leveled::fits_above(view) {
        return last;
    }
    let mut above: u64 = leveled::shares(view)[..level].iter().sum();
    for (i, room) in rooms_of_first(view, last).iter().enumerate() {
        if above < *room {
            return i;
        }
        above -= room;
    }
    last
}

/// The first tier that a new table of `bytes` of a level may go to. A level that will fit a tier whole may use what is
/// kept free for jobs; one that straddles leaves it alone. Of the last level nothing is made above the last tier,
/// unless everything fits there: what it took would be missing for what level 0 makes next. It comes up when nothing
/// else is to be done.
pub(crate) fn of_output(view: &View, level: usize, bytes: u64) -> usize {
    let last = view.tiers.len() - 1;
    if level + 1 == view.levels.len() && !leveled::fits_above(view) {
        return last;
    }
    let rooms = rooms_of_first(view, last);
    let mut above: u64 = leveled::claims(view)[..level].iter().sum();
    let own = view.levels[level].bytes();
    for (i, tier) in view.tiers[..last].iter().enumerate() {
        if above < rooms[i] {
            let kept = if above + own <= rooms[i] { 0 } else { tier.kept() };
            if tier.free >= bytes + kept {
                return i;
            }
        }
        above = above.saturating_sub(rooms[i]);
    }
    last
}

#[cfg(test)]
mod tests;
