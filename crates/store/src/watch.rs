//! The watch: a look at whether the store's files are still there. While some are missing, writes
//! are refused; rows that are only in memory go to the base as far as that is there, and the log then goes on by
//! itself.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The time between looks: writes may be acknowledged without their files for so long.
const INTERVAL: Duration = Duration::from_millis(500);

/// The state that the watching thread shares.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The missing files, as a text.
    missing: Option<String>,
    closing: bool,
    closed: bool,
}

impl Watch {
    /// Returns the reason why there are no writes, if files are missing.
    pub(crate) fn missing(&self) -> Option<String> {
        self.state.lock().missing.clone()
    }

    /// Notes the missing files that a look has found, if any.
    pub(crate) fn on_look(&self, missing: &Option<String>) {
        self.state.lock().missing.clone_from(missing);
    }

    /// Runs the watching thread: looks now and then, until `stop`.
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
