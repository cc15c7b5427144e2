//! The records that wait to be confirmed by replicas: since when, and whether these are late.

use crate::keys::gate::StoreGate;
use crate::sync::{Mutex, lock};
use haypile_config::OnLateReplicas;
use haypile_log::Index;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Samples of what waits, at most: what comes while there are so many is noted when the oldest is confirmed.
const SAMPLES_MAX: usize = 256;

/// Stores that were taken away with records that nobody had confirmed, as far as these are remembered: sessions look
/// soon.
const LOST_MAX: usize = 64;

/// The records that wait to be confirmed by replicas.
#[derive(Default)]
pub(crate) struct Confirmations {
    state: Mutex<State>,
    is_late: AtomicBool,
    /// The last record that has waited too long, where replies that wait for it are given up; 0 for none.
    overdue: AtomicU64,
    /// Whether `State::lost` has any.
    has_lost: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The version of the store that this is about.
    version: u64,
    /// Records that wait, each with the time when it was seen. Both rise.
    waiting: VecDeque<(Index, Instant)>,
    late: Option<OnLateReplicas>,
    /// The number of times that replicas were late.
    times_late: u64,
    /// Stores that were taken away: their versions, and through where their records were confirmed.
    lost: VecDeque<(u64, Index)>,
}

/// The facts about confirmations, for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Confirmed {
    /// The server's answer to replicas that are late; None if they are not.
    pub late: Option<OnLateReplicas>,
    pub times_late: u64,
    /// The time that the oldest record that waits has been waiting.
    pub waiting: Duration,
}

/// A look at the records that wait.
pub(crate) struct Look {
    pub version: u64,
    pub durable: Index,
    pub confirmed: Index,
    /// The time after which replicas are late; None if records wait for as long as it takes.
    pub timeout: Option<Duration>,
    pub on_late: OnLateReplicas,
    pub now: Instant,
}

impl Confirmations {
    /// Notes what waits, and decides what is to be done if replicas are late.
    pub fn look(&self, look: Look) {
        let Look { version, durable, confirmed, timeout, on_late, now } = look;
        let mut state = lock(&self.state);
        if state.version != version {
            state.waiting.clear();
            state.version = version;
        }
        while state.waiting.front().is_some_and(|(index, _)| *index <= confirmed) {
            state.waiting.pop_front();
        }
        let is_new = state.waiting.back().is_none_or(|(index, _)| *index < durable);
        if durable > confirmed && is_new && state.waiting.len() < SAMPLES_MAX {
            state.waiting.push_back((durable, now));
        }
        let is_late = |since: Instant| timeout.is_some_and(|timeout| now.duration_since(since) >= timeout);
        let overdue = state.waiting.iter().take_while(|(_, since)| is_late(*since)).last().map(|(index, _)| *index);
        let late = overdue.map(|_| on_late);
        self.is_late.store(late.is_some(), Ordering::Relaxed);
        let given_up = overdue.filter(|_| on_late == OnLateReplicas::Refuse);
        self.overdue.store(given_up.map_or(0, |index| index.0), Ordering::Relaxed);
        let before = std::mem::replace(&mut state.late, late);
        if before != late {
            state.times_late += u64::from(before.is_none());
            tell(late, confirmed);
        }
    }

    /// Returns what is done because replicas are late; None if they are not.
    pub fn late(&self) -> Option<OnLateReplicas> {
        lock(&self.state).late
    }

    /// Whether replicas are late. One load.
    pub fn are_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Returns the last record that has waited too long, where replies that wait for it are given up. One load.
    #[inline]
    pub fn overdue(&self) -> Option<Index> {
        let overdue = self.overdue.load(Ordering::Relaxed);
        (overdue > 0).then_some(Index(overdue))
    }

    /// Notes a store that is taken away, and through where its records were confirmed.
    pub fn note_lost(&self, version: u64, confirmed: Index) {
        let mut state = lock(&self.state);
        state.lost.truncate(LOST_MAX - 1);
        state.lost.push_front((version, confirmed));
        self.has_lost.store(true, Ordering::Release);
    }

    /// Whether the record is one of a store that was taken away before it was confirmed.
    pub fn is_lost(&self, gate: StoreGate) -> bool {
        let is_it = |(version, confirmed): &(u64, Index)| *version == gate.version && gate.index > *confirmed;
        self.has_lost.load(Ordering::Acquire) && lock(&self.state).lost.iter().any(is_it)
    }

    /// Returns the facts for INFO.
    pub fn facts(&self) -> Confirmed {
        let state = lock(&self.state);
        let waiting = state.waiting.front().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        Confirmed { late: state.late, times_late: state.times_late, waiting }
    }

    /// Ends all waits: no replicas are asked.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        state.waiting.clear();
        state.late = None;
        self.is_late.store(false, Ordering::Relaxed);
        self.overdue.store(0, Ordering::Relaxed);
    }
}

fn tell(late: Option<OnLateReplicas>, confirmed: Index) {
    match late {
        None => {
            tracing::info!("replicas have acknowledged all through record {confirmed}: replies wait for them again")
        }
        Some(OnLateReplicas::Refuse) => tracing::warn!(
            "no replicas have acknowledged what follows record {confirmed}, for as long as replicas-to-ack-timeout: writes \
             are refused, and clients that wait are disconnected"
        ),
        Some(OnLateReplicas::GoOn) => tracing::warn!(
            "no replicas have acknowledged what follows record {confirmed}, for as long as replicas-to-ack-timeout: replies \
             do not wait for them any more"
        ),
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// A course of looks.
    struct Play {
        confirmations: Confirmations,
        began: Instant,
        on_late: OnLateReplicas,
    }

    impl Play {
        fn new(on_late: OnLateReplicas) -> Play {
            Play { confirmations: Confirmations::default(), began: Instant::now(), on_late }
        }

        /// Looks at a time, and returns whether replicas are late, and what is given up.
        fn look(&self, ms: u64, version: u64, durable: u64, confirmed: u64) -> (bool, u64) {
            self.confirmations.look(Look {
                version,
                durable: Index(durable),
                confirmed: Index(confirmed),
                timeout: Some(Duration::from_millis(1000)),
                on_late: self.on_late,
                now: self.began + Duration::from_millis(ms),
            });
            let is_late = lock(&self.confirmations.state).late == Some(self.on_late);
            (is_late, self.confirmations.overdue.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn what_has_waited_too_long_is_given_up_and_no_more() {
        let play = Play::new(OnLateReplicas::Refuse);
        assert_eq!(play.look(0, 1, 5, 5), (false, 0), "nothing waits");
        assert_eq!(play.look(100, 1, 8, 5), (false, 0));
        assert_eq!(play.look(200, 1, 9, 5), (false, 0));
        assert_eq!(play.look(1099, 1, 20, 5), (false, 0));
        assert_eq!(play.look(1100, 1, 20, 5), (true, 8));
        assert_eq!(play.look(1150, 1, 20, 8), (false, 0), "the next one has waited for less");
        assert_eq!(play.look(1250, 1, 20, 8), (true, 9));
        assert_eq!(play.look(2500, 1, 20, 9), (true, 20));
        assert_eq!(play.look(2600, 1, 20, 20), (false, 0));
        assert_eq!(lock(&play.confirmations.state).times_late, 2);
        assert_eq!(play.look(2700, 1, 30, 20), (false, 0));
        assert_eq!(play.look(9000, 3, 12, 0), (false, 0), "the indexes of another store are others");
        assert_eq!(play.look(10_000, 3, 12, 0), (true, 12));
        play.confirmations.end();
        assert_eq!(play.confirmations.overdue.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn where_replies_go_on_none_is_given_up() {
        let play = Play::new(OnLateReplicas::GoOn);
        assert_eq!(play.look(0, 1, 8, 5), (false, 0));
        assert_eq!(play.look(1000, 1, 9, 5), (true, 0));
        // However long it lasts, what is kept of it is bounded.
        for index in 0..1000 {
            assert_eq!(play.look(1000 + index, 1, 10 + index, 5), (true, 0));
        }
        assert!(lock(&play.confirmations.state).waiting.len() <= SAMPLES_MAX);
        assert_eq!(play.look(2000, 1, 2000, 2000), (false, 0));
    }
}
