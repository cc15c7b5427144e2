//! The clock of statistics: ticks of the processor where they can be trusted, which cost less than half of a look at
//! the system's clock, and that where they cannot. It tells how long things took, never what time it is.

/// A moment of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment as a number, for a caller that keeps it in a word which others read.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(raw: u64) -> Moment {
        Moment(raw)
    }
}

#[derive(Clone)]
pub struct Clock {
    clock: quanta::Clock,
    /// Ticks of a millisecond, about.
    ticks_per_ms: u64,
}

impl Default for Clock {
    fn default() -> Self {
        const TICKS: u64 = 1 << 30;
        let clock = quanta::Clock::default();
        let ns = clock.delta_as_nanos(0, TICKS).max(1);
        let ticks_per_ms = (u128::from(TICKS) * 1_000_000 / u128::from(ns)) as u64;
        Clock { clock, ticks_per_ms }
    }
}

impl Clock {
    #[inline]
    pub fn now(&self) -> Moment {
        Moment(self.clock.raw())
    }

    /// Whether more than a millisecond lies between two moments: for who asks after each command.
    #[inline]
    pub fn is_ms_between(&self, from: Moment, to: Moment) -> bool {
        to.0.saturating_sub(from.0) > self.ticks_per_ms
    }

    /// Nanoseconds between two moments; 0 if they come the other way round, as two cores may see them.
    #[inline]
    pub fn ns(&self, from: Moment, to: Moment) -> u64 {
        self.clock.delta_as_nanos(from.0, to.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn it_goes_as_fast_as_the_clock_of_the_system() {
        let clock = Clock::default();
        let (from, since) = (clock.now(), Instant::now());
        while since.elapsed().as_millis() < 50 {
            std::hint::spin_loop();
        }
        let (to, took) = (clock.now(), since.elapsed().as_nanos() as f64);
        let ratio = clock.ns(from, to) as f64 / took;
        assert!((0.95..1.05).contains(&ratio), "{ratio}");
        assert_eq!(clock.ns(to, from), 0);
        assert!(clock.is_ms_between(from, to) && !clock.is_ms_between(to, from) && !clock.is_ms_between(from, from));
        let ms = clock.ns(Moment(0), Moment(clock.ticks_per_ms)) as f64 / 1e6;
        assert!((0.99..1.01).contains(&ms), "{ms}");
    }
}
