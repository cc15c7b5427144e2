//! The inbox of a member, which other threads fill: messages of the others, progress of its log, lost messages.

use haypile_raft::Envelope;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that may wait, and their bytes: who sends more waits with the rest in its connection.
const MESSAGES_MAX: usize = 4096;
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
struct State {
    messages: VecDeque<(Envelope, usize)>,
    bytes: usize,
    /// Members to which a message was lost; and members of which bytes of a message with entries have come that is not
    /// whole, each with its term.
    lost: BTreeSet<u64>,
    sending: BTreeMap<u64, u64>,
    /// The end of a fetch: the last entry of the copy, if there is one.
    fetched: Option<Option<(u64, u64)>>,
    progress: bool,
    closing: bool,
    /// The member is to end, and not the server.
    ending: bool,
    /// The member is to end, and has not been told.
    closing_is_news: bool,
}

/// See the file's head.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    /// The threads that wait for something to be there.
    filled: Condvar,
    /// The threads that wait for room.
    emptied: Condvar,
    /// The threads that wait for the member to end.
    closed: Condvar,
}

/// All that a member was told since it looked last.
#[derive(Default)]
pub struct Told {
    pub messages: Vec<Envelope>,
    pub lost: BTreeSet<u64>,
    pub sending: BTreeMap<u64, u64>,
    /// A fetch has ended; with the last entry of the copy, term and number, if it has brought one.
    pub fetched: Option<Option<(u64, u64)>>,
    /// The log has got further, reads wait, or there are orders.
    pub progress: bool,
    pub closing: bool,
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log has got further, reads wait, or there are orders.
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

    /// Bytes of a member's message with entries, of this term, have come, and not yet all.
    pub fn on_bytes_of(&self, from: u64, term: u64) {
        let mut state = self.state();
        if state.sending.insert(from, term).is_none() {
            self.filled.notify_one();
        }
    }

    /// A fetch has ended.
    pub fn on_fetched(&self, copy: Option<(u64, u64)>) {
        self.state().fetched = Some(copy);
        self.on_progress();
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
        let is_news = |state: &State| {
            !(state.messages.is_empty() && state.lost.is_empty() && state.sending.is_empty())
                || state.progress
                || state.closing_is_news
        };
        while !is_news(&state) {
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
            sending: std::mem::take(&mut state.sending),
            fetched: state.fetched.take(),
            progress: std::mem::take(&mut state.progress),
            closing: state.closing || state.ending,
        }
    }

    /// Has the member end, whose server goes on.
    pub fn end_member(&self) {
        let mut state = self.state();
        (state.ending, state.closing_is_news) = (true, true);
        self.filled.notify_all();
    }

    /// The member has ended; another one may begin.
    pub fn begin_member(&self) {
        let mut state = self.state();
        let State { closing, closing_is_news, .. } = *state;
        *state = State { closing, closing_is_news, ..State::default() };
        self.emptied.notify_all();
    }

    /// Has the member end, with its server.
    pub fn close(&self) {
        let mut state = self.state();
        (state.closing, state.closing_is_news) = (true, true);
        drop(state);
        self.filled.notify_all();
        self.emptied.notify_all();
        self.closed.notify_all();
    }

    /// Waits for so long, or until the member is to end; returns whether it is.
    pub fn wait_for_close(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.closed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.closing
    }

    /// Whether the member is to end.
    pub fn is_closing(&self) -> bool {
        let state = self.state();
        state.closing || state.ending
    }
}
