//! How much memory is lent, and the thread's side that others see.

use crate::options::StoreOptions;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The time between looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks over which the share has to have been free before it is lent.
const LOOKS: usize = 30;

/// Parts of the share in which it is lent: each move makes the cache forget what it knows of evicted rows.
pub(super) const PARTS: u64 = 16;

/// The growth between two looks for which room is left, in looks.
const AHEAD_LOOKS: u64 = 4;

/// The shares of the budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The two generations of the memtable.
    pub memtables: u64,
    pub row_cache: u64,
}

impl Shares {
    /// Returns the shares where a generation has so many bytes.
    pub fn of(generation: u64, row_cache: u64) -> Shares {
        Shares { memtables: generation.saturating_mul(2), row_cache }
    }
}

/// The use of the memtables' share, look by look: the bytes in use, and how many more they were than before.
#[derive(Debug, Default)]
pub(super) struct Uses(VecDeque<(u64, u64)>);

impl Uses {
    /// Returns the bytes to lend from now on, where `used` are in use and `lent` are lent.
    ///
    /// Invariant: what is lent and what is in use, with the room for what is written until the next look, are no more
    /// than the share.
    pub(super) fn lend(&mut self, share: u64, used: u64, lent: u64) -> u64 {
        let part = (share / PARTS).max(1);
        let grown = self.0.back().map_or(0, |(before, _)| used.saturating_sub(*before));
        if self.0.len() == LOOKS {
            self.0.pop_front();
        }
        self.0.push_back((used, grown));
        let free = |used: u64, grown: u64| {
            let room = part.max(grown.saturating_mul(AHEAD_LOOKS));
            share.saturating_sub(used.saturating_add(room)) / part * part
        };
        let most = self.0.iter().fold((0, 0), |(used, grown), look| (used.max(look.0), grown.max(look.1)));
        let (now, steadily) = (free(used, grown), free(most.0, most.1));
        let to_lend = if now < lent {
            now
        } else if self.0.len() == LOOKS && steadily > lent {
            steadily
        } else {
            lent
        };
        debug_assert!(to_lend <= now, "what is lent is free: {to_lend}, {now}");
        to_lend
    }
}

/// The lending thread's side that others see.
#[derive(Debug)]
pub(crate) struct Lending {
    pub(super) memtables: AtomicU64,
    pub(super) row_cache: AtomicU64,
    pub(super) lent: AtomicU64,
    /// Bytes of the active generation with which the thread is woken; more than there can be while nothing is lent.
    pub(super) wake_at: AtomicU64,
    /// Memory is lent at all: the configuration gives neither share.
    pub(super) is_on: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    /// The thread runs.
    is_running: bool,
    is_closing: bool,
}

impl Lending {
    pub(crate) fn of(options: &StoreOptions) -> Lending {
        let shares = Shares::of(options.memtable_bytes, options.row_cache_bytes);
        let is_on = options.lends && !options.memory_only;
        Lending {
            memtables: AtomicU64::new(shares.memtables),
            row_cache: AtomicU64::new(shares.row_cache),
            lent: AtomicU64::new(0),
            wake_at: AtomicU64::new(u64::MAX),
            is_on: AtomicBool::new(is_on),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Divides the budget anew.
    pub(crate) fn divide(&self, shares: Shares) {
        self.memtables.store(shares.memtables, Ordering::Relaxed);
        self.row_cache.store(shares.row_cache, Ordering::Relaxed);
    }

    /// Returns whether memory is lent at all.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the memtables' share that the row cache has.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Returns whether a commit that leaves so many bytes in the active generation is to wake the thread.
    #[inline]
    pub(crate) fn is_near(&self, active_bytes: u64) -> bool {
        active_bytes > self.wake_at.load(Ordering::Relaxed)
    }

    /// Wakes the thread.
    #[cold]
    pub(crate) fn wake(&self) {
        // Once is enough until the thread has looked.
        if self.wake_at.swap(u64::MAX, Ordering::Relaxed) != u64::MAX {
            self.state.lock().is_woken = true;
            self.changed.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.is_running);
    }

    /// Notes that the thread runs, or has ended.
    pub(super) fn set_running(&self, is_running: bool) {
        self.state.lock().is_running = is_running;
        self.changed.notify_all();
    }

    /// Waits until the next look; returns whether there is one.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.is_woken && !state.is_closing, INTERVAL);
        state.is_woken = false;
        !state.is_closing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::next_random;

    const SHARE: u64 = 64 << 20;

    #[test]
    fn what_is_idle_is_lent_and_what_is_written_comes_back_at_once() {
        let (mut uses, mut lent) = (Uses::default(), 0);
        let used = SHARE / 4;
        for _ in 0..LOOKS - 1 {
            lent = uses.lend(SHARE, used, lent);
            assert_eq!(lent, 0, "it was not idle for long enough");
        }
        lent = uses.lend(SHARE, used, lent);
        assert_eq!(lent, SHARE - used - SHARE / PARTS);
        for _ in 0..100 {
            assert_eq!(uses.lend(SHARE, used, lent), lent, "nothing changes, so nothing moves");
        }
        let grown = SHARE / 8;
        lent = uses.lend(SHARE, used + grown, lent);
        assert_eq!(
            lent,
            SHARE - used - grown - AHEAD_LOOKS * grown,
            "there is room for what comes until the next look"
        );
        lent = uses.lend(SHARE, SHARE * 2, lent);
        assert_eq!(lent, 0);
        for _ in 0..LOOKS - 1 {
            assert_eq!(uses.lend(SHARE, used, lent), 0, "the use of a moment ago may come back");
        }
    }

    #[test]
    fn what_is_lent_and_used_never_exceeds_the_share() {
        for seed in 0..200u64 {
            let (mut random, mut uses, mut lent, mut used) = (seed, Uses::default(), 0, 0u64);
            let mut rate = 0;
            let mut moves = 0;
            for step in 0..2000 {
                let drawn = next_random(&mut random);
                if drawn.is_multiple_of(50) {
                    rate = [0, 1 << 10, 1 << 18, 4 << 20][(drawn >> 8) as usize % 4];
                }
                used += rate;
                if used > SHARE / 2 {
                    // A generation has been flushed.
                    used = SHARE / 4;
                }
                let before = lent;
                lent = uses.lend(SHARE, used, before);
                assert!(lent == 0 || lent + used <= SHARE, "seed {seed}, step {step}: {lent} lent, {used} used");
                assert_eq!(lent % (SHARE / PARTS), 0);
                moves += u32::from(before < lent);
            }
            assert!(moves <= 2000 / LOOKS as u32 + 1, "seed {seed}: it grew {moves} times");
        }
    }
}
