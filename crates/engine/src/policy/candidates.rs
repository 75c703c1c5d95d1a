//! Candidates: the key ranges that could go down from the store (Raina et al., PrismDB, §5.3: the ranges of some consecutive tables), as the
//! level says that they go to.
//!
//! A candidate is one pile of a guard with the gap behind it, or as many piles as have a number of bytes together; a guard without
//! tables is one. Its first and last reach to the guard's ends, so all candidates of a level are disjoint and leave no key out. Which piles go together
//! follows from the guard alone, and a guard's piles are found once ([`super::Seen`]). So to [`draw`] some candidates costs the number of guards, and for each a
//! walk over its guard's piles: where there are tens of thousands of tables a plan must not look at all of them.

use super::{AFTER_ALL, GuardView, LevelView, PileView};
use cuesta_sched::Rng;
use std::ops::Range;

/// Where there are no more piles than so many, all candidates are looked at.
const FEW_PILES: usize = 64;
/// Drawn, for one plan, at most.
const DRAWS_MAX: usize = 64;

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
        let to = if self.piles.end < guard.piles.len() { begins(self.piles.end) } else { self.ends(level) };
        (from, to)
    }

    /// Where its guard ends.
    fn ends(&self, level: &LevelView) -> Vec<u8> {
        level.guards.get(self.guard + 1).map_or_else(|| AFTER_ALL.to_vec(), |next| next.start.clone())
    }
}

/// A guard's piles in groups of up to `range_bytes`, at least of one.
fn groups(guard: &GuardView, range_bytes: u64) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let from = next?;
        let (mut to, mut bytes) = (from, 0);
        while let Some(pile) =
            guard.piles.get(to).filter(|pile| to == from || bytes + pile.bytes <= range_bytes)
        {
            (to, bytes) = (to + 1, bytes + pile.bytes);
        }
        next = (to < guard.piles.len()).then_some(to);
        Some(from..to)
    })
}

/// All candidates of a level, in key order.
pub(crate) fn all(level: &LevelView, range_bytes: u64) -> Vec<Candidate> {
    let of_guard = |(at, guard)| groups(guard, range_bytes).map(move |piles| Candidate { guard: at, piles });
    let guards = level.guards.iter().map(|guard| &**guard).enumerate();
    let all: Vec<Candidate> = guards.flat_map(of_guard).collect();
    if all.is_empty() { vec![Candidate { guard: 0, piles: 0..0 }] } else { all }
}

/// Whether there are so few candidates that all may be looked at for every plan.
pub(crate) fn are_few(level: &LevelView) -> bool {
    level.guards.iter().map(|guard| guard.piles.len().max(1)).sum::<usize>() <= FEW_PILES
}

/// Draws candidates, those of many piles more often, none twice, until `is_enough` says so of what was drawn last, or that seems to be in vain.
pub(crate) fn draw(
    level: &LevelView,
    range_bytes: u64,
    seed: u64,
    mut is_enough: impl FnMut(&Candidate) -> bool,
) -> bool {
    let mut ends = Vec::with_capacity(level.guards.len());
    for guard in &level.guards {
        ends.push(ends.last().copied().unwrap_or(0) + guard.piles.len().max(1) as u64);
    }
    let Some(piles) = ends.last().copied() else { return false };
    let (mut rng, mut drawn) = (Rng::new(seed), Vec::new());
    for _ in 0..DRAWS_MAX {
        let pile = rng.below(piles);
        let at = ends.partition_point(|end| *end <= pile);
        let begins = at.checked_sub(1).map_or(0, |before| ends[before]);
        let pile = (pile - begins) as usize;
        let group = groups(&level.guards[at], range_bytes).find(|group| pile < group.end.max(1));
        let candidate = group.map(|piles| Candidate { guard: at, piles });
        let Some(candidate) = candidate.filter(|candidate| !drawn.contains(candidate)) else { continue };
        if is_enough(&candidate) {
            return true;
        }
        drawn.push(candidate);
    }
    false
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
        let shown = |text: &str, range_bytes| -> Vec<String> {
            let level = level(text);
            all(&level, range_bytes).iter().map(|candidate| show(&level, candidate)).collect()
        };
        let end = "\\xff\\xff\\xff\\xff";
        assert_eq!(
            shown(LOG, 40),
            ["..h #1 #5 #2", "h..k #3", "k..m #4", "m..p #6", &format!("p..{end} #7")]
        );
        // Several together, but none of two guards.
        assert_eq!(shown(LOG, 80), ["..h #1 #5 #2", "h..m #3 #4", &format!("m..{end} #6 #7")]);
        assert_eq!(shown(LOG, 129), ["..k #1 #5 #2 #3", "k..m #4", &format!("m..{end} #6 #7")]);
        assert_eq!(shown("", 40), [format!("..{end}")]);
        assert_eq!(shown("L7: / m:6[n..o,40]", 40), ["..m".to_owned(), format!("m..{end} #6")]);
    }

    #[test]
    fn each_is_drawn_as_often_as_it_has_piles_and_no_draw_has_one_twice() {
        let level = level(LOG);
        let mut times = std::collections::BTreeMap::new();
        for seed in 0..1_000 {
            draw(&level, 80, seed, |candidate| {
                *times.entry(show(&level, candidate).split(' ').next().unwrap().to_owned()).or_insert(0) += 1;
                true
            });
        }
        // Of five piles one, two and two.
        let near = |times: &i32, of: i32| (of - 60..of + 60).contains(times);
        let times: Vec<i32> = times.into_values().collect();
        assert!(near(&times[0], 200) && near(&times[1], 400) && near(&times[2], 400), "{times:?}");
        let mut drawn = Vec::new();
        let is_enough = draw(&level, 40, 7, |candidate| {
            drawn.push(candidate.clone());
            false
        });
        drawn.sort_by_key(|candidate| (candidate.guard, candidate.piles.start));
        assert_eq!((is_enough, drawn), (false, all(&level, 40)));
        assert!(are_few(&level));
    }
}
