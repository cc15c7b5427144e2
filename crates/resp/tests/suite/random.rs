//! Seeded random numbers for tests: a failing case prints the variable that repeats it.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// A small generator (splitmix64); equal seeds give equal sequences.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Up to `len_max` bytes out of `alphabet`.
    pub fn bytes(&mut self, alphabet: &[u8], len_max: usize) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len).map(|_| *self.pick(alphabet)).collect()
    }
}

/// Runs `case` with `count` seeds in a row, or with `HAYPILE_SEED` only if that is set. `HAYPILE_CASES` replaces
/// `count`.
pub fn cases(count: u64, mut case: impl FnMut(&mut Random)) {
    struct Report(u64);
    impl Drop for Report {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("this case failed; repeat it with HAYPILE_SEED={}", self.0);
            }
        }
    }
    let number = |name: &str| -> Option<u64> {
        let value = env::var(name).ok()?;
        let number = value.parse();
        Some(number.unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
    };
    let (first, count) = match number("HAYPILE_SEED") {
        Some(seed) => (seed, 1),
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("the clock is past 1970").as_micros() as u64;
            (now, number("HAYPILE_CASES").unwrap_or(count))
        }
    };
    println!("seeds {first} to {}", first.wrapping_add(count - 1));
    for i in 0..count {
        let seed = first.wrapping_add(i);
        let report = Report(seed);
        case(&mut Random::new(seed));
        drop(report);
    }
}
