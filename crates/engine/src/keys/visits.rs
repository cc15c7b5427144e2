//! Keys that a run finds only while it runs.

use crate::keys::admission::MoreKeysHeld;
use crate::keys::claims::{Claims, Hold};
use crate::keys::locks::{HeldFor, Locks};
use crate::keys::waiters::Waiters;
use crate::sync::pause;
use haypile_store::{KeyLocks, Lacking};
use std::cell::RefCell;
use std::time::Duration;

/// Keys up to which a run on an event loop takes some on its way: it holds one in thirty stripes, for a millisecond.
pub const ON_LOOP_MAX: usize = 512;

/// Keys with which a run asks for no more, so that it comes to an end however its keys change meanwhile. Its claims and
/// its locks take some 40 bytes of memory each.
pub const CLAIMS_MAX: usize = 1 << 17;

/// How often, and after what time each, a run on the I/O pool tries to have a key for a moment before it asks to have
/// it from its beginning. Invariant: the wait has an end, because its thread holds other keys meanwhile.
const TRIES_MAX: u32 = 100;
const TRY_EVERY: Duration = Duration::from_micros(100);

/// The locks of a run, those that it takes on its way, and those that it takes for a moment besides.
pub struct Visits<'a> {
    locks: &'a Locks,
    claims: &'a Claims,
    held_for: HeldFor,
    waiters: &'a Waiters,
    /// Keys that the run has found and holds until its end: what it sees is from one moment.
    taken: RefCell<Option<MoreKeysHeld<'a>>>,
}

impl<'a> Visits<'a> {
    pub fn new(locks: &'a Locks, claims: &'a Claims, held_for: HeldFor, waiters: &'a Waiters) -> Self {
        Visits { locks, claims, held_for, waiters, taken: RefCell::new(None) }
    }

    /// Adds the keys that were taken on the way to those that the run is to have from its beginning the next time.
    pub fn add_to(&self, lacking: &mut Vec<Lacking>) {
        let taken = self.taken.borrow();
        let claims = taken.iter().flat_map(|taken| taken.claims().iter());
        lacking.extend(claims.map(|claim| Lacking { hash: claim.hash(), exclusive: claim.hold() == Hold::Exclusive }));
    }
}

fn hold(exclusive: bool) -> Hold {
    if exclusive { Hold::Exclusive } else { Hold::Shared }
}

impl KeyLocks for Visits<'_> {
    fn holds(&self, hash: u32, exclusive: bool) -> bool {
        let hold = hold(exclusive);
        self.locks.cover(self.claims, self.held_for, hash, hold)
            || self.taken.borrow().as_ref().is_some_and(|taken| taken.covers(hash, hold))
    }

    /// An event loop's run does. A longer one begins again instead: its clock would be older than what others have seen
    /// of such a key.
    fn try_hold(&self, hash: u32, exclusive: bool) -> bool {
        if self.held_for == HeldFor::Long {
            return false;
        }
        let mut taken = self.taken.borrow_mut();
        let taken = taken.get_or_insert_with(|| MoreKeysHeld::none(self.locks));
        self.claims.len() + taken.claims().len() < ON_LOOP_MAX && taken.try_add(hash, hold(exclusive))
    }

    fn is_waited_for(&self) -> bool {
        self.waiters.any()
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
