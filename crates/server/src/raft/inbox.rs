//! The inbox of a member, which other threads fill: messages of the others, progress of its log, lost messages.

use haypile_raft::Envelope;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Messages that may wait, and their bytes: who sends more waits with the rest in its connection.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
struct State {
    messages: VecDeque<(Envelope, usize)>,
    bytes: usize,
    /// Members to which a message was lost.
    lost: BTreeSet<u64>,
    progress: bool,
    closing: bool,
    /// The member is to end, and has not been told.
    closing_is_news: bool,
}

/// See the file's head.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    /// Told when there is something.
    filled: Condvar,
    /// Told when there is room.
    emptied: Condvar,
}

/// All that a member was told since it looked last.
#[derive(Default)]
pub struct Told {
    pub messages: Vec<Envelope>,
    pub lost: BTreeSet<u64>,
    /// The log has got further, or reads wait.
    pub progress: bool,
    pub closing: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log has got further, or reads wait.
    pub fn on_progress(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.progress, true) {
            self.filled.notify_one();
        }
    }

    /// A message to a member was lost.
    pub fn on_lost(&self, to: u64) {
        let mut state = self.state();
        if state.lost.insert(to) {
            self.filled.notify_one();
        }
    }

    /// Puts a message of so many bytes into the inbox, when there is room. False when the member ends.
    pub fn put(&self, envelope: Envelope, bytes: usize) -> bool {
        let mut state = self.state();
        while (state.messages.len() >= MESSAGES_MAX || state.bytes >= BYTES_MAX) && !state.closing {
            state = self.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += bytes;
        state.messages.push_back((envelope, bytes));
        self.filled.notify_one();
        !state.closing
    }

    /// Returns what the member was told; waits until there is something, or until `deadline`.
    pub fn take(&self, deadline: Instant) -> Told {
        let mut state = self.state();
        while state.messages.is_empty() && state.lost.is_empty() && !state.progress && !state.closing_is_news {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.bytes = 0;
        state.closing_is_news = false;
        self.emptied.notify_all();
        Told {
            messages: state.messages.drain(..).map(|(envelope, _)| envelope).collect(),
            lost: std::mem::take(&mut state.lost),
            progress: std::mem::take(&mut state.progress),
            closing: state.closing,
        }
    }

    /// Has the member end.
    pub fn close(&self) {
        let mut state = self.state();
        (state.closing, state.closing_is_news) = (true, true);
        drop(state);
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Whether the member is to end.
    pub fn is_closing(&self) -> bool {
        self.state().closing
    }
}
