//! A small seeded generator (SplitMix64): good enough for choices, not for secrets.

/// How far apart the states of two numbers are that follow one another.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of pseudo-random numbers; the same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// One of many streams of a seed, each at a place of its own. All of the generator's streams are parts of one
    /// circle, of which each number is a step further: seeds that are multiples of that step apart would have one
    /// stream follow another closely, with the same numbers. So a stream's place is itself drawn, twice.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let of_seed = Self::new(seed).next_u64();
        Self::new(Self::new(of_seed ^ stream).next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times on average; never when `n` is 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn streams_of_a_seed_have_no_number_in_common() {
        for seed in [0, 1, STEP] {
            let streams = (0..64).chain((0..64).map(|i| STEP.wrapping_mul(i + 1)));
            let numbers: HashSet<u64> = streams
                .flat_map(|stream| {
                    let mut rng = Rng::stream(seed, stream);
                    (0..1000).map(move |_| rng.next_u64())
                })
                .collect();
            assert_eq!(numbers.len(), 128_000);
        }
    }
}
