//! The time of a key's last use, or its count of uses: four bytes beside each row in memory, for OBJECT IDLETIME and
//! OBJECT FREQ.
//!
//! `maxmemory-policy` decides which of the two is noted, as in Redis. A lookup stamps the row that it has found anyway,
//! and only where the stamp changes: for times, once a second at most, so that readers of a hot key do not take its
//! cache line from each other. Stamps are never stored. Module `accesses` holds the uses that transactions make of
//! stamps.

use crate::random::next_random;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The content of a stamp: a time in seconds, or, with the first bit set, the minute of the last use and a count, as in
/// Redis's LFU: `1: u1 | 0: u7 | minute: u16 | count: u8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

const COUNTS: u32 = 1 << 31;

/// The count of a new key, so that the key is not taken for an unused one.
const COUNT_AT_FIRST: u8 = 5;

/// A time does not say which century it is from: a time that seems this far ahead lies behind, or the clock was set
/// back.
const AHEAD_FROM_S: u32 = COUNTS / 2;

const MINUTE_MS: u64 = 60_000;

impl Access {
    /// Returns the access of a key used at a time.
    #[inline]
    pub fn at(now_ms: u64) -> Access {
        Access((now_ms / 1000) as u32 & !COUNTS)
    }

    /// Returns the access of a key used at a time, as often as a count says.
    pub fn counted(now_ms: u64, count: u8) -> Access {
        Access(COUNTS | u32::from(minute(now_ms)) << 8 | u32::from(count))
    }

    fn is_count(self) -> bool {
        self.0 & COUNTS != 0
    }

    fn last_minute(self) -> u16 {
        (self.0 >> 8) as u16
    }

    /// Returns the seconds since the last use; of a key that was counted, in whole minutes.
    pub fn idle_s(self, now_ms: u64) -> u64 {
        if self.is_count() {
            return u64::from(minute(now_ms).wrapping_sub(self.last_minute())) * 60;
        }
        let since = (now_ms / 1000) as u32 & !COUNTS;
        match since.wrapping_sub(self.0) & !COUNTS {
            AHEAD_FROM_S.. => 0,
            idle => idle.into(),
        }
    }

    /// The coarseness of times of last use.
    pub const PRECISION: Duration = Duration::from_secs(1);

    /// Returns whether the last use was within this time, for sure.
    pub fn is_used_within(self, time: Duration, now_ms: u64) -> bool {
        let coarse_s = if self.is_count() { MINUTE_MS / 1000 } else { Self::PRECISION.as_secs() };
        let is_ahead = !self.is_count() && self.0 > (now_ms / 1000) as u32 & !COUNTS;
        !is_ahead && self.idle_s(now_ms) + coarse_s <= time.as_secs()
    }

    /// Returns how often the key is used, on a scale of logarithms: one less for each `decay_minutes` without a use.
    fn count(self, now_ms: u64, decay_minutes: u32) -> u8 {
        let count = if self.is_count() { self.0 as u8 } else { COUNT_AT_FIRST };
        let idle_minutes = self.idle_s(now_ms) / 60;
        let decayed = idle_minutes.checked_div(decay_minutes.into()).unwrap_or(0);
        count.saturating_sub(u8::try_from(decayed).unwrap_or(u8::MAX))
    }

    /// Returns the access as the low bits of a number, where DEBUG OBJECT shows it: Redis's field has 24.
    pub fn low_bits(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// Returns the later one of two accesses that were noted of a key in different places.
    fn later(self, other: Access, now_ms: u64) -> Access {
        match (self.idle_s(now_ms), other.idle_s(now_ms)) {
            (idle, others) if idle != others => {
                if idle < others {
                    self
                } else {
                    other
                }
            }
            _ if self.0 >= other.0 => self,
            _ => other,
        }
    }
}

/// Returns the 16 bits of minutes that a count has room for.
fn minute(now_ms: u64) -> u16 {
    (now_ms / MINUTE_MS) as u16
}

/// An access as it stands beside a row. A reader without the latch may stamp it, too: of two stamps at once, one wins.
#[derive(Debug)]
pub struct Stamp(AtomicU32);

impl Stamp {
    /// The access of a row that is not a key's.
    pub const UNUSED: Access = Access(0);

    #[inline]
    pub fn new(access: Access) -> Stamp {
        Stamp(AtomicU32::new(access.0))
    }

    #[inline]
    pub fn get(&self) -> Access {
        Access(self.0.load(Ordering::Relaxed))
    }

    /// Stores an access, but only where it changes something.
    #[inline]
    pub fn set(&self, access: Access) {
        if self.get() != access {
            self.0.store(access.0, Ordering::Relaxed);
        }
    }

    /// Leaves a lookup's trace on the row that it found.
    #[inline]
    pub fn touch(&self, touch: &Touch<'_>) {
        self.set(touch.on(self.get()));
    }

    /// Takes over what another place has noted of this stamp's key.
    pub fn merge(&self, access: Access, now_ms: u64) {
        self.set(self.get().later(access, now_ms));
    }
}

impl Clone for Stamp {
    fn clone(&self) -> Stamp {
        Stamp::new(self.get())
    }
}

/// The trace that a lookup leaves on the row that it finds.
#[derive(Clone, Copy)]
pub enum Touch<'p> {
    Nothing,
    Time(Access),
    Count(Counting<'p>),
}

/// One use of a key under a policy that counts.
#[derive(Clone, Copy)]
pub struct Counting<'p> {
    policy: &'p AccessPolicy,
    now_s: u32,
    random: u32,
}

impl Touch<'_> {
    /// Draws a random number for the next lookup.
    #[inline]
    pub fn draw(&mut self) {
        if let Touch::Count(counting) = self {
            counting.random = (next_random(&mut counting.random.into()) >> 32) as u32;
        }
    }

    /// Returns the access after this use, given the one before.
    #[inline]
    pub fn on(&self, before: Access) -> Access {
        match self {
            Touch::Nothing => before,
            Touch::Time(now) => *now,
            Touch::Count(counting) => counting.used(before),
        }
    }
}

impl Counting<'_> {
    /// Returns the access after one more use: the higher the count, the less likely it grows (Redis's scale).
    #[cold]
    fn used(&self, before: Access) -> Access {
        let now_ms = u64::from(self.now_s) * 1000;
        let count = self.policy.frequency(before, now_ms);
        let above = u64::from(count.saturating_sub(COUNT_AT_FIRST));
        // The count grows once in so many uses.
        let odds = above * u64::from(self.policy.log_factor.load(Ordering::Relaxed)) + 1;
        let rises = (u128::from(self.random) * u128::from(odds)) >> 32 == 0;
        Access::counted(now_ms, count.saturating_add(rises.into()))
    }
}

/// The part of the configuration that says what is noted.
pub struct AccessPolicy {
    counts: AtomicBool,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
}

impl Default for AccessPolicy {
    fn default() -> Self {
        AccessPolicy {
            counts: AtomicBool::new(false),
            log_factor: AtomicU32::new(10),
            decay_minutes: AtomicU32::new(1),
        }
    }
}

impl AccessPolicy {
    /// Sets whether `maxmemory-policy` is one that counts how often keys are used. An access of the other kind, noted
    /// before, stays as far as it goes: a time counts as its minute with the count of a new key, a count as its minute.
    pub fn set_counts(&self, counts: bool) {
        self.counts.store(counts, Ordering::Relaxed);
    }

    /// Sets `lfu-log-factor`.
    pub fn set_log_factor(&self, factor: u32) {
        self.log_factor.store(factor, Ordering::Relaxed);
    }

    /// Sets `lfu-decay-time`; 0 is never.
    pub fn set_decay_minutes(&self, minutes: u32) {
        self.decay_minutes.store(minutes, Ordering::Relaxed);
    }

    #[inline]
    pub fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// Returns the trace that lookups of a transaction leave.
    #[inline]
    pub(crate) fn touch(&self, now_ms: u64, seed: u64) -> Touch<'_> {
        if self.counts() { self.counting(now_ms, seed) } else { Touch::Time(Access::at(now_ms)) }
    }

    #[cold]
    fn counting(&self, now_ms: u64, seed: u64) -> Touch<'_> {
        Touch::Count(Counting { policy: self, now_s: (now_ms / 1000) as u32, random: (seed ^ seed >> 32) as u32 })
    }

    /// Returns the access of a key that has just come to be, or into memory.
    pub(crate) fn fresh(&self, now_ms: u64) -> Access {
        if self.counts() { Access::counted(now_ms, COUNT_AT_FIRST) } else { Access::at(now_ms) }
    }

    /// Returns what OBJECT FREQ replies.
    pub(crate) fn frequency(&self, access: Access, now_ms: u64) -> u8 {
        access.count(now_ms, self.decay_minutes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;

    #[test]
    fn times_are_exact_to_the_second_and_never_ahead() {
        let access = Access::at(NOW_MS);
        for (later_ms, idle_s) in [(0, 0), (999, 0), (1000, 1), (86_400_000, 86_400), (1 << 39, (1 << 39) / 1000)] {
            assert_eq!(access.idle_s(NOW_MS + later_ms), idle_s);
        }
        assert_eq!(access.idle_s(NOW_MS - 5000), 0, "the clock was set back");
        // The seconds need 31 bits until 2038, and go on from 0 then.
        let end_ms = (1u64 << 31) * 1000;
        assert_eq!(Access::at(end_ms - 1000).idle_s(end_ms + 1000), 2);
    }

    fn counting(log_factor: u32, decay_minutes: u32) -> AccessPolicy {
        let policy = AccessPolicy::default();
        policy.set_counts(true);
        policy.set_log_factor(log_factor);
        policy.set_decay_minutes(decay_minutes);
        policy
    }

    /// Returns the count after so many uses.
    fn used(policy: &AccessPolicy, uses: u64) -> u8 {
        let stamp = Stamp::new(Access::counted(NOW_MS, COUNT_AT_FIRST));
        let mut touch = policy.touch(NOW_MS, 7);
        for _ in 0..uses {
            touch.draw();
            stamp.touch(&touch);
        }
        stamp.get().count(NOW_MS, 0)
    }

    /// The figures of redis.conf, each of one key: what a count is after so many hits.
    #[test]
    fn counts_rise_as_the_table_in_redis_conf_says() {
        let table = [
            (0, [(100, 104), (1000, 255), (100_000, 255)]),
            (1, [(100, 18), (1000, 49), (100_000, 255)]),
            (10, [(100, 10), (1000, 18), (100_000, 142)]),
            (100, [(100, 8), (1000, 11), (100_000, 49)]),
        ];
        for (factor, hits) in table {
            for (hits, expected) in hits {
                let seen = i32::from(used(&counting(factor, 0), hits));
                let near = 3 + expected / 6;
                assert!((seen - expected).abs() <= near, "factor {factor}, {hits} hits: {seen}, not {expected}");
            }
        }
    }

    #[test]
    fn counts_fall_by_the_minute_and_a_use_begins_at_what_is_left() {
        let stamp = Stamp::new(Access::counted(NOW_MS, 100));
        for (decay_minutes, left) in [(1, 40), (2, 70), (60, 99), (61, 100), (0, 100)] {
            assert_eq!(stamp.get().count(NOW_MS + HOUR_MS, decay_minutes), left);
        }
        stamp.touch(&counting(0, 1).touch(NOW_MS + HOUR_MS, 7));
        assert_eq!(stamp.get().count(NOW_MS + HOUR_MS, 1), 41);
        assert_eq!(stamp.get().count(NOW_MS + 24 * HOUR_MS, 1), 0, "never less than nothing");
    }

    #[test]
    fn after_a_change_of_policy_each_kind_says_what_it_can_of_the_other() {
        let (time, count) = (Access::at(NOW_MS), Access::counted(NOW_MS, 9));
        assert_eq!(count.idle_s(NOW_MS + 90_000), 60);
        assert_eq!(time.count(NOW_MS, 1), COUNT_AT_FIRST);
        assert_eq!(time.count(NOW_MS + 2 * MINUTE_MS, 1), COUNT_AT_FIRST - 2);
    }

    #[test]
    fn of_two_places_the_later_use_counts() {
        let (first, then) = (Access::at(NOW_MS), Access::at(NOW_MS + 1000));
        let (once, twice) = (Access::counted(NOW_MS, 5), Access::counted(NOW_MS, 6));
        for (one, other, expected) in
            [(first, then, then), (then, first, then), (once, twice, twice), (twice, once, twice)]
        {
            let stamp = Stamp::new(one);
            stamp.merge(other, NOW_MS + 5000);
            assert_eq!(stamp.get(), expected);
        }
    }

    #[test]
    fn nothing_is_written_where_nothing_changes() {
        let stamp = Stamp::new(Access::at(NOW_MS));
        stamp.touch(&Touch::Nothing);
        stamp.touch(&AccessPolicy::default().touch(NOW_MS + 999, 0));
        assert_eq!(stamp.get(), Access::at(NOW_MS));
        stamp.touch(&AccessPolicy::default().touch(NOW_MS + 1000, 0));
        assert_eq!(stamp.get(), Access::at(NOW_MS + 1000));
    }
}
