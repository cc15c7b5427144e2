//! The clock of statistics: ticks of the processor where they can be trusted, which cost less than half of a look at the
//! system's clock, and that where they cannot. It tells how long things took, never what time it is.

/// A moment of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// For who keeps it in a word that others read.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(raw: u64) -> Moment {
        Moment(raw)
    }
}

#[derive(Clone, Default)]
pub struct Clock(quanta::Clock);

impl Clock {
    #[inline]
    pub fn now(&self) -> Moment {
        Moment(self.0.raw())
    }

    /// Nanoseconds between two moments; 0 if they come the other way round, as two cores may see them.
    #[inline]
    pub fn ns(&self, from: Moment, to: Moment) -> u64 {
        self.0.delta_as_nanos(from.0, to.0)
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
    }
}
