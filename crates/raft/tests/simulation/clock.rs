//! A member's clock: it goes on while the member is stalled, and faster or slower than those of the others.

use crate::group::TICK;
use haypile_log::testing::Random;
use haypile_raft::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rates of clocks, in thousandths of the true one: the quickest gains less than an eighth on the slowest, which is
/// what the server's leases leave for that.
const RATE_MIN: u64 = 938;
const RATE_MAX: u64 = 1062;

/// The most ticks that are made up for at once, as in the server.
const TICKS_AT_ONCE: u64 = 3;

pub struct OwnClock {
    /// Microseconds, for leaders that rely on leases.
    now_us: Arc<AtomicU64>,
    rate: u64,
    next_tick_us: u64,
    /// Steps of time for which the member does nothing.
    stalled: u64,
}

impl OwnClock {
    pub fn new(random: &mut Random) -> OwnClock {
        let rate = RATE_MIN + random.below(RATE_MAX + 1 - RATE_MIN);
        OwnClock { now_us: Arc::default(), rate, next_tick_us: tick_us(), stalled: 0 }
    }

    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Returns the clock as leases read it.
    pub fn reader(&self) -> Clock {
        let now_us = self.now_us.clone();
        Box::new(move || now_us.load(Ordering::Relaxed))
    }

    /// The time of one tick goes by.
    pub fn go_on(&mut self) {
        self.now_us.fetch_add(tick_us() * self.rate / 1000, Ordering::Relaxed);
        self.stalled = self.stalled.saturating_sub(1);
    }

    /// The member begins: its first tick is a whole one.
    pub fn begin(&mut self) {
        (self.next_tick_us, self.stalled) = (self.now_us() + tick_us(), 0);
    }

    /// Stalls the member for so many steps of time.
    pub fn stall(&mut self, steps: u64) {
        self.stalled = steps;
    }

    pub fn is_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// Returns how many ticks are due, and takes them as made. Those that a stall has missed are not made up for: a
    /// follower that hears of its leader late must wait from then on.
    pub fn take_ticks(&mut self) -> u64 {
        let (now_us, mut ticks) = (self.now_us(), 0);
        while now_us >= self.next_tick_us && ticks < TICKS_AT_ONCE {
            (self.next_tick_us, ticks) = (self.next_tick_us + tick_us(), ticks + 1);
        }
        self.next_tick_us = self.next_tick_us.max(now_us);
        ticks
    }
}

fn tick_us() -> u64 {
    TICK.as_micros() as u64
}
