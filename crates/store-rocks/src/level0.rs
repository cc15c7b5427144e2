//! How long compactions of level 0 take: what is left of the one that runs, so that flushes are paced by it.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Bytes that a compaction reads in a second, until one has shown it.
const FIRST_BYTES_PER_S: u64 = 100 << 20;

/// The bytes from which a compaction says how long others take: what a small one takes is mostly something else.
const TELLING_BYTES: u64 = 64 << 20;

/// The slowest and the fastest pace that is believed, in bytes read in a second.
const BYTES_PER_S: std::ops::RangeInclusive<u64> = 10 << 20..=2 << 30;

/// The part of its estimated time that a compaction is taken to need still when that is over.
const LATE_SHARE: u32 = 8;

/// The compactions that begin at level 0, of which one runs at a time.
#[derive(Default)]
pub(crate) struct Level0 {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The moment when the compaction that runs began, and the bytes that it reads.
    running: Option<(Instant, u64)>,
    /// The bytes that the last large one has read, and the time that it has taken.
    last: Option<(u64, Duration)>,
}

impl State {
    /// Returns how long it takes to compact so many bytes.
    fn estimate(&self, bytes: u64) -> Duration {
        let pace = self.last.map_or(FIRST_BYTES_PER_S as f64, |(read, time)| read as f64 / time.as_secs_f64());
        let pace = pace.clamp(*BYTES_PER_S.start() as f64, *BYTES_PER_S.end() as f64);
        Duration::from_secs_f64(bytes as f64 / pace)
    }

    /// Returns what is left of the one that runs; where none runs yet, how long the next one takes, if it is like the
    /// last one.
    fn left(&self, now: Instant) -> Duration {
        match self.running {
            Some((began, bytes)) => {
                let whole = self.estimate(bytes);
                whole.saturating_sub(now.saturating_duration_since(began)).max(whole / LATE_SHARE)
            }
            None => self.last.map_or(Duration::ZERO, |(bytes, _)| self.estimate(bytes)),
        }
    }
}

impl Level0 {
    /// Notes that a compaction begins, and how many bytes it reads.
    pub(crate) fn on_begin(&self, bytes: u64) {
        self.state.lock().running = Some((Instant::now(), bytes));
    }

    /// Notes that it has ended. One that has failed says nothing about the next one.
    pub(crate) fn on_end(&self, is_ok: bool) {
        let mut state = self.state.lock();
        let ended = state.running.take().filter(|(_, bytes)| is_ok && *bytes >= TELLING_BYTES);
        state.last = ended.map(|(began, bytes)| (bytes, began.elapsed())).or(state.last);
    }

    pub(crate) fn left(&self) -> Duration {
        self.state.lock().left(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_the_pace_of_the_last_one() {
        let began = Instant::now();
        let mut state = State::default();
        assert_eq!(state.left(began), Duration::ZERO, "none has run");
        state.running = Some((began, 400 << 20));
        assert_eq!(state.left(began + Duration::from_secs(1)), Duration::from_secs(3));
        state = State { running: None, last: Some((400 << 20, Duration::from_secs(8))) };
        assert_eq!(state.left(began), Duration::from_secs(8));
        state.running = Some((began, 800 << 20));
        assert_eq!(state.left(began + Duration::from_secs(6)), Duration::from_secs(10));
        assert_eq!(state.left(began + Duration::from_secs(60)), Duration::from_secs(2), "it is late, and not over");
        state = State { running: Some((began, 100 << 20)), last: Some((64 << 20, Duration::from_secs(640))) };
        assert_eq!(state.left(began), Duration::from_secs(10), "no disk is so slow");
    }

    #[test]
    fn a_small_compaction_says_nothing() {
        let level0 = Level0::default();
        level0.on_begin(TELLING_BYTES - 1);
        level0.on_end(true);
        assert_eq!(level0.left(), Duration::ZERO);
        level0.on_begin(TELLING_BYTES);
        level0.on_end(false);
        assert_eq!(level0.left(), Duration::ZERO, "nor does one that failed");
        level0.on_begin(TELLING_BYTES);
        level0.on_end(true);
        assert!(level0.left() > Duration::ZERO);
    }
}
