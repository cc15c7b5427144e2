//! How much may be reserved: two counters that every append touches without a lock.
//!
//! `charged` is the running total of all reservations, `limit` what it may rise to; the log moves the limit up as it
//! writes, syncs and makes segments. What the limit is made of is in `state.rs`. `tests/loom.rs` tries every
//! interleaving.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Budget {
    charged: Padded<AtomicU64>,
    limit: AtomicU64,
}

/// Keeps what every append writes off the cache lines of its neighbours.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Budget {
    /// Makes a budget of which nothing is charged, and nothing may be.
    #[allow(clippy::new_without_default)] // loom's atomics have no default either
    pub fn new() -> Budget {
        Budget { charged: Padded(AtomicU64::new(0)), limit: AtomicU64::new(0) }
    }

    /// Charges, if the total stays within the limit.
    #[inline]
    pub fn take(&self, charge: u64) -> bool {
        // In this order: a reservation that `freeze` does not count comes after it, and sees its limit of 0.
        let charged = self.charged.fetch_add(charge, Ordering::SeqCst) + charge;
        let fits = charged <= self.limit.load(Ordering::SeqCst);
        if !fits {
            self.charged.fetch_sub(charge, Ordering::SeqCst);
        }
        fits
    }

    /// Charges in any case.
    pub fn force(&self, charge: u64) {
        self.charged.fetch_add(charge, Ordering::SeqCst);
    }

    pub fn give_back(&self, charge: u64) {
        let charged = self.charged.fetch_sub(charge, Ordering::SeqCst);
        assert!(charged >= charge, "only what was charged is given back: {charge} of {charged}");
    }

    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::SeqCst)
    }

    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Refuses all further reservations; returns at least what is charged then.
    pub fn freeze(&self) -> u64 {
        self.limit.swap(0, Ordering::SeqCst);
        // A read-modify-write, so that it has its place among those of `take`.
        self.charged.fetch_add(0, Ordering::SeqCst)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "only what was charged is given back: 3 of 2")]
    fn nothing_is_given_back_twice() {
        let budget = Budget::new();
        budget.force(5);
        budget.give_back(3);
        budget.give_back(3);
    }
}
