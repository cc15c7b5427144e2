//! Keys and values of the disk benchmarks, and how likely each key is asked for.

use crate::random::{Random, mix};

/// Bytes of a value, as in the table of the small cases.
pub const VALUE_BYTES: usize = 128;

pub fn key(number: u64) -> [u8; 14] {
    let mut key = *b"k:000000000000";
    let mut rest = number;
    for digit in key[2..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Returns the value of a key, different for each: half of it random, half of it constant, so that about half
/// compresses. The value depends on the number alone, so that a reader can tell whether it got the right one.
pub fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'-'; VALUE_BYTES];
    Random::new(mix(number)).fill(&mut value[..VALUE_BYTES / 2]);
    value
}

/// The distribution of the keys that are asked for.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Every key of `0..keys` is equally likely.
    Uniform {
        keys: u64,
    },
    Zipf(Zipf),
    /// Every key of `0..keys` comes once, in an order that jumps about.
    EachOnce {
        keys: u64,
        stride: u64,
    },
}

impl Choice {
    /// Returns a choice of `keys` keys, each once, far from sorted.
    pub fn each_once(keys: u64) -> Choice {
        // A stride near the golden section that shares no factor with the count visits all.
        let mut stride = ((keys as f64 * 0.618_033_988_75) as u64).max(1);
        while gcd(stride, keys) != 1 {
            stride += 1;
        }
        Choice::EachOnce { keys, stride }
    }

    /// Returns the key of operation number `number`.
    pub fn pick(&self, random: &mut Random, number: u64) -> u64 {
        match self {
            Choice::Uniform { keys } => random.below(*keys),
            Choice::Zipf(zipf) => zipf.pick(random),
            Choice::EachOnce { keys, stride } => (u128::from(number) * u128::from(*stride) % u128::from(*keys)) as u64,
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Zipf's distribution with exponent 0.99 (Gray et al., "Quickly generating billion-record synthetic databases", 1994,
/// as in YCSB), with the popular keys scattered over the key space.
#[derive(Clone, Debug)]
pub struct Zipf {
    keys: u64,
    alpha: f64,
    eta: f64,
    zeta: f64,
}

const THETA: f64 = 0.99;

impl Zipf {
    pub fn new(keys: u64) -> Zipf {
        let zeta: f64 = (1..=keys).map(|rank| 1.0 / (rank as f64).powf(THETA)).sum();
        let zeta_of_two = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two / zeta);
        Zipf { keys, alpha: 1.0 / (1.0 - THETA), eta, zeta }
    }

    fn pick(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let uz = u * self.zeta;
        let rank = if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            (self.keys as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        };
        mix(rank) % self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn each_key_comes_once() {
        for keys in [1, 2, 10, 1000] {
            let choice = Choice::each_once(keys);
            let mut random = Random::new(1);
            let mut found: Vec<u64> = (0..keys).map(|number| choice.pick(&mut random, number)).collect();
            found.sort_unstable();
            assert_eq!(found, (0..keys).collect::<Vec<_>>());
        }
    }

    #[test]
    fn zipf_prefers_few_keys() {
        let choice = Choice::Zipf(Zipf::new(10_000));
        let mut random = Random::new(1);
        let mut counts = HashMap::new();
        for number in 0..100_000 {
            *counts.entry(choice.pick(&mut random, number)).or_insert(0u32) += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        // The first rank's share is 1 / zeta(10000), about a tenth.
        assert!((8_000..13_000).contains(&most), "{most}");
    }

    #[test]
    fn keys_and_values_are_fixed() {
        assert_eq!(&key(42), b"k:000000000042");
        assert_ne!(value(1), value(2));
        assert_eq!(value(1)[64..], [b'-'; 64]);
    }
}
