//! Seeded random numbers. The sequence for a seed is fixed for good, so that a printed seed replays years later;
//! therefore no crate is used, whose generator may change between versions. Not for anything that must be
//! unpredictable.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns an independent stream for part number `part` of a run with `seed`.
    pub fn of_part(seed: u64, part: u64) -> Random {
        let mut random = Random::new(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.next();
        random
    }

    #[allow(clippy::should_implement_trait)] // an endless sequence, not an iterator
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// The finalizer of SplitMix64: spreads a number over 64 bits, one to one.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns a seed for a run without a given one.
pub fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    mix(now ^ u64::from(std::process::id())) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_good() {
        let mut random = Random::new(1);
        let numbers = [random.next(), random.next(), random.below(10), random.between(5, 7)];
        assert_eq!(numbers, [10451216379200822465, 13757245211066428519, 9, 6]);
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(3);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((4..=6).contains(&random.between(4, 6)));
            assert!((0.0..1.0).contains(&random.fraction()));
        }
        assert_eq!(random.below(0), 0);
    }
}
