//! Scripts and functions that lately took too long for an event loop: they go to the I/O pool at once, instead of
//! taking their millisecond from other clients each time before they do.
//!
//! As a branch predictor does it, a small table has counters by a hash of what is run, and no names: two that share a
//! counter are no more than slower or faster than they could be.

use crate::clients::statistics::counters::Count;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters.
const COUNTERS: usize = 1024;

/// Runs at most that go to the pool before an event loop tries one again.
const PASSES_MAX: u32 = 1 << 10;

/// The counters, by scripts.
pub(crate) struct Slow {
    counters: [Counter; COUNTERS],
    hasher: RandomState,
    /// Runs that have gone to the pool at once.
    pub passed: Count,
}

/// A counter: in its lower half the runs that go to the pool at once from now on, in the upper one how many these were
/// when an event loop tried the script last; each time in vain doubles them. Changes of two threads at the same time
/// may lose one of them.
pub(crate) struct Counter(AtomicU32);

impl Default for Slow {
    fn default() -> Self {
        let counters = [const { Counter(AtomicU32::new(0)) }; COUNTERS];
        Slow { counters, hasher: RandomState::default(), passed: Count::default() }
    }
}

impl Slow {
    /// Returns the counter of a script or function.
    pub fn counter(&self, name: &str) -> &Counter {
        &self.counters[self.hasher.hash_one(name) as usize % COUNTERS]
    }
}

impl Counter {
    /// Returns whether a run is to go to the pool at once, and counts it as one of these.
    pub fn passes(&self) -> bool {
        let count = self.0.load(Ordering::Relaxed);
        let passes = left(count) > 0;
        if passes {
            self.0.store(count - 1, Ordering::Relaxed);
        }
        passes
    }

    /// Notes that a run took too long for its event loop.
    pub fn has_left(&self) {
        let passes = (2 * before(self.0.load(Ordering::Relaxed))).clamp(1, PASSES_MAX);
        self.0.store(passes << 16 | passes, Ordering::Relaxed);
    }

    /// Notes that a run has ended within the time of an event loop.
    pub fn was_short(&self) {
        // Nearly all are, and write nothing that other threads read.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

fn left(count: u32) -> u32 {
    count & 0xffff
}

fn before(count: u32) -> u32 {
    count >> 16
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_is_slow_is_tried_ever_more_seldom_and_at_once_when_it_is_not() {
        let slow = Slow::default();
        let counter = slow.counter("a");
        let until_tried = || (0..).take_while(|_| counter.passes()).count();
        assert_eq!(until_tried(), 0);
        for passes in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024] {
            counter.has_left();
            assert_eq!(until_tried(), passes);
        }
        counter.has_left();
        counter.was_short();
        assert!(!counter.passes());
        counter.has_left();
        assert!(counter.passes() && !counter.passes());
    }
}
