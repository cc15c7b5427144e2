//! When a log had got where: from that follows how many milliseconds a replica is behind.
//!
//! The thread that sends to a replica notes the log's end now and then; a note goes when the replica has acknowledged
//! that much. The oldest note that is left is about as old as the oldest record that the replica has not applied.

use haypile_log::Index;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time between two marks, at least.
const BETWEEN: Duration = Duration::from_millis(10);

/// Marks of one replica, at most: then each second one goes, and new ones lie twice as far apart. So a lag is told to
/// about a hundredth.
const MARKS_MAX: usize = 256;

/// The ends of the log that a replica has not reached, each with the time when it was the log's end.
///
/// Invariant: indexes and times rise.
#[derive(Clone, Debug)]
pub struct Marks {
    marks: VecDeque<(Index, Instant)>,
    /// The time between the next mark and the one before it, at least.
    between: Duration,
    /// The last record that the replica has applied.
    reached: Index,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { marks: VecDeque::new(), between: BETWEEN, reached: Index(0) }
    }
}

impl Marks {
    /// Notes that the log ends with `last` now.
    pub fn note(&mut self, last: Index, now: Instant) {
        let is_due = |at: &Instant| now.saturating_duration_since(*at) >= self.between;
        let is_new = self.marks.back().is_none_or(|(index, at)| last > *index && is_due(at));
        if last <= self.reached || !is_new {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            // The oldest one stays: how long the replica is behind is what it says.
            let mut keeps = false;
            self.marks.retain(|_| {
                keeps = !keeps;
                keeps
            });
            self.between *= 2;
        }
        self.marks.push_back((last, now));
    }

    /// Notes that the replica has applied all through `applied`.
    pub fn reach(&mut self, applied: Index) {
        self.reached = applied;
        while self.marks.front().is_some_and(|(index, _)| *index <= applied) {
            self.marks.pop_front();
        }
        if self.marks.is_empty() {
            self.between = BETWEEN;
        }
    }

    /// Returns how long the replica has been behind, as far as marks tell: zero where it has all, or lacks only what
    /// has come since the last one.
    pub fn lag(&self, now: Instant) -> Duration {
        self.marks.front().map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_as_late_as_the_oldest_record_that_it_lacks() {
        let (began, mut marks) = (Instant::now(), Marks::default());
        let at = |ms| began + Duration::from_millis(ms);
        let lag_ms = |marks: &Marks, ms| marks.lag(at(ms)).as_millis();
        assert_eq!(lag_ms(&marks, 1000), 0);
        // A record each millisecond, of which the replica has none.
        (0..=100).for_each(|ms| marks.note(Index(ms + 1), at(ms)));
        assert_eq!(lag_ms(&marks, 100), 100);
        marks.reach(Index(50));
        assert_eq!(lag_ms(&marks, 100), 50, "record 51 is 50 ms old");
        marks.reach(Index(55));
        assert_eq!(lag_ms(&marks, 100), 40, "marks lie 10 ms apart");
        marks.reach(Index(101));
        assert_eq!(lag_ms(&marks, 2000), 0, "it has all");
        marks.note(Index(101), at(2000));
        assert_eq!(lag_ms(&marks, 3000), 0, "nothing came since");
    }

    #[test]
    fn a_replica_that_stays_behind_keeps_few_marks_and_the_oldest() {
        let (began, mut marks) = (Instant::now(), Marks::default());
        let count = 100_000_u64;
        for number in 1..=count {
            marks.note(Index(number), began + 10 * Duration::from_millis(number));
            assert!(marks.marks.len() <= MARKS_MAX);
        }
        let now = began + 10 * Duration::from_millis(count);
        assert_eq!(marks.lag(now), 10 * Duration::from_millis(count - 1));
        marks.reach(Index(count / 2));
        let (lag, half) = (marks.lag(now), 10 * Duration::from_millis(count / 2));
        assert!(lag <= half && lag >= half * 98 / 100, "{lag:?} of {half:?}");
        marks.reach(Index(count));
        marks.note(Index(count + 1), now);
        marks.note(Index(count + 2), now + BETWEEN);
        marks.reach(Index(count + 1));
        assert_eq!(marks.lag(now + 2 * BETWEEN), BETWEEN, "marks lie close again where the replica had all");
    }
}
