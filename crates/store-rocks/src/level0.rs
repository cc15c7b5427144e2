//! How long compactions of level 0 take: what is left of the one that runs, so that flushes are paced by it.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Bytes that a compaction reads in a second, until one has shown it.
const FIRST_BYTES_PER_S: u64 = 100 << 20;

/// The part of its estimated time that a compaction is taken to need still when that is over.
const LATE_SHARE: u32 = 8;

/// The compactions that begin at level 0, of which one runs at a time.
#[derive(Default)]
pub(crate) struct Level0 {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// When the one that runs began, and the bytes that it reads.
    running: Option<(Instant, u64)>,
    /// The bytes that the last one has read, and the time that it has taken.
    last: Option<(u64, Duration)>,
}

impl State {
    /// Returns how long it takes to compact so many bytes.
    fn estimate(&self, bytes: u64) -> Duration {
        let (read, time) = self.last.unwrap_or((FIRST_BYTES_PER_S, Duration::from_secs(1)));
        time.mul_f64(bytes as f64 / read.max(1) as f64)
    }

    /// Returns what is left of the one that runs; where none runs yet, how long the next one takes, if it is like the
    /// last one.
    fn left(&self, now: Instant) -> Duration {
        match self.running {
            Some((began, bytes)) => {
                let whole = self.estimate(bytes);
                whole.saturating_sub(now.saturating_duration_since(began)).max(whole / LATE_SHARE)
            }
            None => self.last.map_or(Duration::ZERO, |(_, time)| time),
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
        let ended = state.running.take().filter(|_| is_ok);
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
    }
}
