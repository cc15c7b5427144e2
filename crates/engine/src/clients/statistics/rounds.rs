//! The rounds of an event loop: how many, how long they took and how many commands ran in one, as `eventloop_...` of
//! INFO.
//!
//! A round begins when the loop wakes up or when the round before it has ended, and ends when its replies have left or
//! when the loop goes to sleep: sleep is no part of it. It costs looks at the clock once a round, not for each command.
//! Only the event loop writes these numbers.

use super::clock::{Clock, Moment};
use crate::clients::statistics::counters::Count;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An event loop's counts of its rounds.
#[derive(Default)]
pub struct Rounds {
    pub count: Count,
    /// The time of all of them together, in nanoseconds.
    pub ns: Count,
    /// The time of the longest one.
    pub longest_ns: Count,
    /// The most commands that began in one.
    pub commands_max: Count,
    /// The beginning of the round under way.
    since: AtomicU64,
    /// No round has ended since the loop woke up.
    has_just_begun: AtomicBool,
    /// The number of commands that had begun when the last round ended.
    commands_before: AtomicU64,
}

impl Rounds {
    /// The loop has woken up.
    pub(crate) fn begin(&self, clock: &Clock) {
        self.since.store(clock.now().raw(), Ordering::Relaxed);
        self.has_just_begun.store(true, Ordering::Relaxed);
    }

    /// The replies of the round have left, and the next round begins. `commands` is how many have begun since the
    /// start.
    pub(crate) fn end(&self, clock: &Clock, commands: u64) {
        self.has_just_begun.store(false, Ordering::Relaxed);
        self.count.add(1);
        self.take_time(clock);
        // CONFIG RESETSTAT begins to count anew.
        let ran = commands.saturating_sub(self.commands_before.load(Ordering::Relaxed));
        self.commands_max.raise(ran);
        self.commands_before.store(commands, Ordering::Relaxed);
    }

    /// The loop goes to sleep. That ends a round if none has ended since it woke up.
    pub(crate) fn rest(&self, clock: &Clock) {
        self.count.add(u64::from(self.has_just_begun.load(Ordering::Relaxed)));
        self.take_time(clock);
    }

    fn take_time(&self, clock: &Clock) {
        let now = clock.now();
        let ns = clock.ns(Moment::from_raw(self.since.load(Ordering::Relaxed)), now);
        self.ns.add(ns);
        self.longest_ns.raise(ns);
        self.since.store(now.raw(), Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        [&self.count, &self.ns, &self.longest_ns, &self.commands_max].into_iter().for_each(Count::reset);
        self.commands_before.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_round_ends_with_its_replies_and_sleep_is_none() {
        let (clock, rounds) = (Clock::default(), Rounds::default());
        rounds.begin(&clock);
        rounds.end(&clock, 3);
        rounds.rest(&clock);
        assert_eq!(rounds.count.get(), 1, "nothing came after its end");
        std::thread::sleep(Duration::from_millis(20));
        rounds.begin(&clock);
        rounds.rest(&clock);
        assert_eq!(rounds.count.get(), 2, "it woke up for nothing");
        rounds.begin(&clock);
        rounds.end(&clock, 10);
        rounds.end(&clock, 11);
        assert_eq!((rounds.count.get(), rounds.commands_max.get()), (4, 7));
        assert!(rounds.ns.get() < 20_000_000, "{}", rounds.ns.get());
        assert!(rounds.longest_ns.get() <= rounds.ns.get());
        rounds.reset();
        rounds.end(&clock, 2);
        assert_eq!((rounds.count.get(), rounds.commands_max.get()), (1, 2));
    }
}
