//! File layers for tests, here and in the crates above: one that forgets what was not synced, one that fails on demand.
//!
//! They are ordinary library code, small, and use nothing but this crate. A test that needs both stacks them:
//! `FaultFiles::new(forgetful.process())`.

mod check;
mod fault;
mod forgetful;

pub use crate::budget::Budget;
pub use check::check_bytes;
pub use fault::FaultFiles;
pub use forgetful::ForgetfulFiles;

/// A small seeded generator (splitmix64), so that a test's seed replays it on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
