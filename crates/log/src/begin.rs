//! The steps of an open log from one history to the next: by a load, by going on without its leader, by its leader's
//! example.

use std::time::Duration;

use crate::error::SyncError;
use crate::format::{HistoryStart, Index, Origin};
use crate::histories::Histories;
use crate::log::Log;
use crate::options::random_history;
use crate::phase::Phase;

/// The longest time between two looks at whether the log has settled.
const SETTLE: Duration = Duration::from_millis(10);

impl Log {
    /// Begins a history without a parent, because the base is about to take in data that no record tells of. It is on
    /// the disk when this returns, and takes no index. Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced. The history is abandoned, so that no record gets into it as soon as the log
    /// works again.
    pub fn begin_loaded_history(&self) -> Result<HistoryStart, SyncError> {
        let history = random_history(&self.shared.options);
        let begun = self.begin(|_, last| HistoryStart { history, origin: Origin::Loaded(last) });
        if begun.is_err()
            && let Some(start) = self.histories().start_of(history)
        {
            // Abandoning meets the same failure, which is known: the log goes on in the next history when it recovers.
            drop(self.abandon_loaded_history(start));
        }
        begun
    }

    /// Begins a history of this log's own, which forks behind the last record: what a copy does that goes on by itself.
    /// It is on the disk when this returns, and takes no index. Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn begin_history(&self) -> Result<HistoryStart, SyncError> {
        let history = random_history(&self.shared.options);
        let start = self.begin(|histories, last| {
            let parent = histories.newest().expect("an open log has a history").history;
            HistoryStart { history, origin: Origin::Fork(parent, last) }
        })?;
        self.shared.state.lock().follows = false;
        Ok(start)
    }

    /// Goes on with the next history of the log of which this one is a copy. Where that log went through several
    /// without a record, each is followed in turn. It is on the disk when this returns. Blocks.
    ///
    /// # Panics
    /// The history is not known, and forks right behind the last record from one in which this log
    /// [stands](Histories::standing).
    ///
    /// # Errors
    /// The log cannot be written or synced. It may be tried again.
    pub fn follow_history(&self, start: HistoryStart) -> Result<(), SyncError> {
        let state = self.shared.state.lock();
        let current = state.start();
        if current == start {
            return state.failure.as_ref().map_or(Ok(()), |failure| Err(SyncError(failure.text.clone())));
        }
        drop(state);
        self.begin(|histories, last| {
            let forks = |history| start.parent() == Some((history, last));
            assert!(histories.standing(last).any(forks), "the next history forks behind the last record");
            assert!(histories.start_of(start.history).is_none(), "a history begins once");
            start
        })
        .map(drop)
    }

    /// Leaves a history that began with a load which never came to be: another one goes on with what was before.
    /// Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn abandon_loaded_history(&self, loaded: HistoryStart) -> Result<(), SyncError> {
        if self.last() != loaded.after() {
            // Records of it are there: the base gets beyond its start with the next flush.
            return Ok(());
        }
        let history = random_history(&self.shared.options);
        self.begin(|histories, _| HistoryStart { history, origin: histories.origin_without(loaded) }).map(drop)
    }

    /// Begins the history of `next`, which is told what there is and the last index. All before is on the disk then,
    /// and so is the segment that names it.
    fn begin(&self, next: impl Fn(&Histories, Index) -> HistoryStart) -> Result<HistoryStart, SyncError> {
        let shared = &*self.shared;
        loop {
            self.sync_through(self.last())?;
            let mut state = shared.state.lock();
            if !state.phase.is_live() {
                return Err(SyncError("it is not running".into()));
            }
            if state.writing || matches!(state.phase, Phase::Rotating | Phase::Broken) {
                shared.progress_cv.wait_for(&mut state, SETTLE);
                continue;
            }
            // Records appended from here on are of the new history: the segment that is made for it takes them.
            let last = shared.queue.lock().last();
            if last != state.synced {
                continue;
            }
            let start = next(&state.histories, last);
            state.histories.push(start);
            shared.recover(&mut state);
            if state.can_write() {
                shared.drive(&mut state, usize::MAX);
            }
            let failure = state.failure.as_ref().map(|failure| SyncError(failure.text.clone()));
            drop(state);
            shared.wake();
            return failure.map_or(Ok(start), Err);
        }
    }
}
