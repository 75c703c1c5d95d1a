//! Candidates: the key ranges that could go down from the store (Raina et al., PrismDB, §5.3: the ranges of some
//! consecutive tables), as the level says that they go to.
//!
//! A candidate is one pile of a guard with the gap behind it, or as many piles as have a number of bytes, or of tables,
//! together; a guard without tables is one. A guard's first and last reach to its ends, so all candidates of a level
//! are disjoint and leave no key out. Which piles go together follows from the guard alone, and a guard's piles are
//! found once ([`super::Seen`]). So the candidate that a key belongs to ([`of`]) costs a search by halving and a walk
//! over a guard's piles: where there are tens of thousands of tables a plan must not look at all of them.

use super::{AFTER_ALL, GuardView, LevelView, PileView};
use std::ops::Range;

/// Where there are no more piles than so many, all candidates are looked at.
const FEW_PILES: usize = 64;

/// How many piles a candidate has, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// As many as have no more bytes together,
    pub(crate) bytes: u64,
    /// or no more tables of the oldest run.
    pub(crate) tables: u64,
}

/// Neighbouring piles of a guard of the level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    guard: usize,
    piles: Range<usize>,
}

impl Candidate {
    pub(crate) fn guard<'a>(&self, level: &'a LevelView) -> Option<&'a GuardView> {
        level.guards.get(self.guard).map(|guard| &**guard)
    }

    pub(crate) fn piles<'a>(&self, level: &'a LevelView) -> &'a [PileView] {
        self.guard(level).map_or(&[], |guard| &guard.piles[self.piles.clone()])
    }

    /// Its first key, and the first behind it.
    pub(crate) fn keys(&self, level: &LevelView) -> (Vec<u8>, Vec<u8>) {
        let Some(guard) = self.guard(level) else { return (Vec::new(), AFTER_ALL.to_vec()) };
        let begins = |at: usize| guard.smallest_of(&guard.piles[at]).to_vec();
        let from = if self.piles.start == 0 { guard.start.clone() } else { begins(self.piles.start) };
        let to = if self.piles.end < guard.piles.len() {
            begins(self.piles.end)
        } else {
            level.end_of(self.guard)
        };
        (from, to)
    }
}

/// A guard's piles in groups of that extent.
fn groups(guard: &GuardView, extent: Extent) -> impl Iterator<Item = Range<usize>> + '_ {
    let oldest = guard.runs.len().saturating_sub(1);
    // What lies beside the oldest run counts as one.
    let tables =
        move |pile: &PileView| pile.tables.iter().filter(|(run, _)| *run == oldest).count().max(1) as u64;
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let from = next?;
        let (mut to, mut had) = (from, Extent { bytes: 0, tables: 0 });
        while let Some(pile) = guard.piles.get(to) {
            let with = Extent { bytes: had.bytes + pile.bytes, tables: had.tables + tables(pile) };
            if to > from && with.bytes > extent.bytes && with.tables > extent.tables {
                break;
            }
            (to, had) = (to + 1, with);
        }
        next = (to < guard.piles.len()).then_some(to);
        Some(from..to)
    })
}

/// All candidates of a level, in key order.
pub(crate) fn all(level: &LevelView, extent: Extent) -> Vec<Candidate> {
    let of_guard = |(at, guard)| groups(guard, extent).map(move |piles| Candidate { guard: at, piles });
    let guards = level.guards.iter().map(|guard| &**guard).enumerate();
    let all: Vec<Candidate> = guards.flat_map(of_guard).collect();
    if all.is_empty() { vec![Candidate { guard: 0, piles: 0..0 }] } else { all }
}

/// Whether there are so few piles that all candidates may be looked at for every plan. Linear in guards.
pub(crate) fn are_few(level: &LevelView) -> bool {
    level.guards.iter().map(|guard| guard.piles.len().max(1)).sum::<usize>() <= FEW_PILES
}

/// The candidate that has a key.
pub(crate) fn of(level: &LevelView, extent: Extent, key: &[u8]) -> Option<Candidate> {
    let at = level.guards.partition_point(|guard| guard.start.as_slice() <= key).checked_sub(1)?;
    let guard = &level.guards[at];
    // What lies in front of the first goes with it.
    let pile = guard.piles.partition_point(|pile| guard.smallest_of(pile) <= key).saturating_sub(1);
    let piles = groups(guard, extent).find(|group| pile < group.end.max(1))?;
    Some(Candidate { guard: at, piles })
}

#[cfg(test)]
mod tests {
    use super::super::leveled::tests::view;
    use super::*;

    fn level(text: &str) -> LevelView {
        (*view(text).levels[7]).clone()
    }

    fn show(level: &LevelView, candidate: &Candidate) -> String {
        let guard = candidate.guard(level);
        let numbers = candidate.piles(level).iter().flat_map(|pile| &pile.tables);
        let numbers: Vec<_> = numbers.map(|at| format!(" #{}", guard.unwrap().table(*at).number)).collect();
        let (from, to) = candidate.keys(level);
        format!("{}..{}{}", from.escape_ascii(), to.escape_ascii(), numbers.concat())
    }

    const LOG: &str = "L7: 5[b..d,9] | 1[a..c,40] 2[d..f,40] 3[h..i,40] 4[k..l,40] / m:6[n..o,40] 7[p..q,40]";

    #[test]
    fn candidates_are_piles_with_the_gaps_behind_them_and_leave_no_key_out() {
        let shown_of = |text: &str, extent| -> Vec<String> {
            let level = level(text);
            all(&level, extent).iter().map(|candidate| show(&level, candidate)).collect()
        };
        let shown = |text: &str, bytes| shown_of(text, Extent { bytes, tables: 1 });
        let end = "\\xff\\xff\\xff\\xff";
        assert_eq!(
            shown(LOG, 40),
            ["..h #1 #5 #2", "h..k #3", "k..m #4", "m..p #6", &format!("p..{end} #7")]
        );
        // Several together, but none of two guards.
        assert_eq!(shown(LOG, 80), ["..h #1 #5 #2", "h..m #3 #4", &format!("m..{end} #6 #7")]);
        assert_eq!(shown(LOG, 129), ["..k #1 #5 #2 #3", "k..m #4", &format!("m..{end} #6 #7")]);
        // By tables of the oldest run, whatever lies on them and however large they are.
        let of_tables = |tables| shown_of(LOG, Extent { bytes: 39, tables });
        assert_eq!(of_tables(2), ["..h #1 #5 #2", "h..m #3 #4", &format!("m..{end} #6 #7")]);
        assert_eq!(of_tables(3), ["..k #1 #5 #2 #3", "k..m #4", &format!("m..{end} #6 #7")]);
        assert_eq!(shown("", 40), [format!("..{end}")]);
        assert_eq!(shown("L7: / m:6[n..o,40]", 40), ["..m".to_owned(), format!("m..{end} #6")]);
    }

    #[test]
    fn a_key_belongs_to_the_candidate_that_has_it() {
        let level = level(LOG);
        for (bytes, tables) in [(40, 1), (80, 1), (129, 1), (1_000, 1), (40, 3)] {
            let extent = Extent { bytes, tables };
            let all = all(&level, extent);
            for key in b'a'..=b'z' {
                let has = |candidate: &&Candidate| {
                    let (from, to) = candidate.keys(&level);
                    from.as_slice() <= &[key][..] && [key][..] < *to
                };
                assert_eq!(of(&level, extent, &[key]).as_ref(), all.iter().find(has), "{key}");
            }
            assert_eq!(of(&level, extent, b"").as_ref(), all.first());
        }
        assert!(are_few(&level));
    }
}
