//! A look, about once a second, at whether the store's files are still there. While some are missing, writes are
//! refused; what is only in memory goes to the base as far as that is there, and the log then goes on by itself.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(500);

/// What the watching thread shares.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is missing.
    missing: Option<String>,
    closing: bool,
    closed: bool,
}

impl Watch {
    /// Why there are no writes.
    pub(crate) fn missing(&self) -> Option<String> {
        self.state.lock().missing.clone()
    }

    /// Notes what a look has found missing, if anything.
    pub(crate) fn on_look(&self, missing: &Option<String>) {
        self.state.lock().missing.clone_from(missing);
    }

    /// The watching thread's life: looks now and then, until `stop`.
    pub(crate) fn run(&self, look: impl Fn()) {
        let mut state = self.state.lock();
        while !state.closing {
            self.changed.wait_for(&mut state, INTERVAL);
            if !state.closing {
                MutexGuard::unlocked(&mut state, &look);
            }
        }
        state.closed = true;
        self.changed.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| !state.closed);
    }
}
