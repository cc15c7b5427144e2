//! Numbers that the crates above set while the store is open, and that their operations read: the store only keeps
//! them, so that each store has its own.

use std::sync::atomic::{AtomicI64, Ordering};

/// The number of tunables.
pub const TUNABLES: usize = 16;

/// The value of a number that nobody has set.
const UNSET: i64 = i64::MIN;

/// The numbers, by index.
pub struct Tunables([AtomicI64; TUNABLES]);

impl Default for Tunables {
    fn default() -> Self {
        Tunables([const { AtomicI64::new(UNSET) }; TUNABLES])
    }
}

impl Tunables {
    /// Returns a number, if it has been set.
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        Some(self.0[index].load(Ordering::Relaxed)).filter(|value| *value != UNSET)
    }

    /// Sets a number.
    pub fn set(&self, index: usize, value: i64) {
        assert_ne!(value, UNSET, "a number that is set differs from one that is not");
        self.0[index].store(value, Ordering::Relaxed);
    }
}
