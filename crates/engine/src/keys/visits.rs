//! Keys that a run finds only while it runs.

use crate::keys::claims::{Claims, Hold};
use crate::keys::locks::{HeldFor, Locks};
use crate::sync::pause;
use haypile_store::KeyLocks;
use std::time::Duration;

/// Keys that an event loop's run holds at most which are not its arguments', and that one holds by their stripes which
/// takes longer than an event loop's: one in a hundred stripes.
pub const FEW_KEYS: usize = 128;

/// Keys with which a run asks for no more, so that it comes to an end however its keys change meanwhile. Its claims and
/// its locks take some 40 bytes of memory each.
pub const CLAIMS_MAX: usize = 1 << 17;

/// How often, and after what time each, a run on the I/O pool tries to have a key for a moment before it asks to have
/// it from its beginning. Invariant: the wait has an end, because its thread holds other keys meanwhile.
const TRIES_MAX: u32 = 100;
const TRY_EVERY: Duration = Duration::from_micros(100);

/// The locks of a run, and those that it takes for a moment besides.
pub struct Visits<'a> {
    locks: &'a Locks,
    claims: &'a Claims,
    held_for: HeldFor,
}

impl<'a> Visits<'a> {
    pub fn new(locks: &'a Locks, claims: &'a Claims, held_for: HeldFor) -> Self {
        Visits { locks, claims, held_for }
    }
}

impl KeyLocks for Visits<'_> {
    fn holds(&self, hash: u32, exclusive: bool) -> bool {
        let hold = if exclusive { Hold::Exclusive } else { Hold::Shared };
        self.locks.cover(self.claims, self.held_for, hash, hold)
    }

    fn try_share(&self, hash: u32) -> bool {
        let tries = if self.held_for == HeldFor::Long { TRIES_MAX } else { 1 };
        for number in 0..tries {
            if number > 0 {
                pause(TRY_EVERY);
            }
            if self.locks.try_share(hash) {
                return true;
            }
        }
        false
    }

    fn give_back(&self, hash: u32) {
        self.locks.end_share(hash);
    }

    fn takes_more(&self) -> bool {
        self.claims.len() < CLAIMS_MAX
    }
}
