//! Reservations: room for a record, taken before anything of a change is seen, so that an append never fails.
//!
//! What there is room for is in `state.rs`; the way without a lock is in `budget.rs`. A reservation that finds no room
//! there is decided here.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::phase::Phase;
use crate::state::{Failure, Shared, State};

/// Room for one record, given back if it is dropped unused.
#[must_use]
pub struct Reservation<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) charge: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shared.give_back(self.charge);
    }
}

impl PartialEq for Reservation<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.shared, other.shared) && self.charge == other.charge
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("charge", &self.charge).finish()
    }
}

/// Why a record cannot be appended now. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The disk is full, with what it said. The log tries again by itself; see also [`Log::retry`].
    Full(String),
    /// Writes have stopped after a failure; the log tries again by itself.
    Failed(String),
    /// The bound of unsynced bytes is reached or a segment is being made: wait for `on_durable` and try again, or use
    /// [`Log::reserve_within`].
    Busy,
    /// The record is longer than any may be.
    TooLarge,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Full(text) => write!(f, "no space for the log: {text}"),
            AppendError::Failed(text) => write!(f, "the log cannot be written: {text}"),
            AppendError::Busy => f.write_str("the log is behind with writing"),
            AppendError::TooLarge => f.write_str("a log record is limited to 4 GiB"),
        }
    }
}

impl std::error::Error for AppendError {}

impl From<&Failure> for AppendError {
    fn from(failure: &Failure) -> AppendError {
        let text = failure.text.clone();
        if failure.full { AppendError::Full(text) } else { AppendError::Failed(text) }
    }
}

impl Shared {
    /// Tries again with the state locked; waits until `deadline`, if there is one, while the log is busy.
    #[cold]
    pub(crate) fn reserve_slowly(
        &self,
        charge: u64,
        deadline: Option<Instant>,
    ) -> Result<Reservation<'_>, AppendError> {
        let mut state = self.state.lock();
        // The charge counts while it waits, so that room is kept for it.
        self.budget.force(charge);
        loop {
            let error = match self.admit(&mut state, charge) {
                Ok(()) => return Ok(Reservation { shared: self, charge }),
                Err(error) => error,
            };
            let waits = error == AppendError::Busy
                && deadline.is_some_and(|deadline| !self.progress_cv.wait_until(&mut state, deadline).timed_out());
            if !waits {
                self.budget.give_back(charge);
                return Err(error);
            }
        }
    }

    /// Decides about a charge that is counted already.
    fn admit(&self, state: &mut State, charge: u64) -> Result<(), AppendError> {
        if let Some(failure) = state.failure.as_ref().or(state.missing.as_ref()) {
            return Err(failure.into());
        }
        if state.closing || state.phase == Phase::Closed {
            return Err(AppendError::Failed("it is closed".into()));
        }
        if state.phase == Phase::Opening {
            return Err(AppendError::Failed("it has not been replayed to its end".into()));
        }
        // Set before the look at what is charged: a thread that gives room back after that look sees the flag.
        self.busy.store(true, Ordering::SeqCst);
        if matches!(state.phase, Phase::Broken | Phase::Recovering) {
            return Err(AppendError::Busy);
        }
        let charged = self.budget.charged();
        let fits = charged <= state.space_limit();
        // A record longer than the memory bound passes when no other record takes memory.
        if fits
            && (charged <= state.memory_limit(self.options.unsynced_bytes_max)
                || charged - charge <= state.synced_charge)
        {
            return Ok(());
        }
        // Records that are appended and not synced are in the way.
        state.sync_wanted = state.sync_wanted.max(self.reached.last());
        self.sync_cv.notify_one();
        if fits {
            return Err(AppendError::Busy);
        }
        // Or there is no spare, or none that is large enough.
        state.need = state.need.max(charge);
        self.space_cv.notify_one();
        state.space_error.as_ref().map_or(Err(AppendError::Busy), |failure| Err(failure.into()))
    }

    pub(crate) fn give_back(&self, charge: u64) {
        self.budget.give_back(charge);
        if self.busy.load(Ordering::SeqCst) {
            let state = self.state.lock();
            let wake = self.room_made();
            drop(state);
            if wake {
                self.wake();
            }
        }
    }
}
