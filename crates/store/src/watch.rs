//! A look, about once a second, at whether the store's files are still there. While some are missing, writes are
//! refused; what is only in memory goes to the base as far as that is there, and the log then goes on by itself.

use crate::base::BaseError;
use crate::store::Store;
use parking_lot::{Condvar, Mutex};
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
}

impl Store {
    /// The watching thread's life: until `close`.
    pub(crate) fn run_watch(&self) {
        let mut state = self.watch.state.lock();
        while !state.closing {
            self.watch.changed.wait_for(&mut state, INTERVAL);
            if !state.closing {
                parking_lot::MutexGuard::unlocked(&mut state, || self.look());
            }
        }
        state.closed = true;
        self.watch.changed.notify_all();
    }

    /// Looks at all files, and stops writes where some are missing; says which.
    fn look(&self) -> Option<String> {
        if self.options.memory_only {
            // Nothing outlives the process anyway.
            return None;
        }
        let log = self.log.look();
        for path in log.unneeded {
            tracing::warn!("{} was removed while the server runs; it is not needed", path.display());
        }
        let base = self.base.look().err().map(|error: BaseError| error.to_string());
        let missing = log.missing.or(base);
        self.watch.state.lock().missing.clone_from(&missing);
        if let Some(missing) = &missing {
            // The flush thread may be at it for long, and says so itself afterwards.
            self.flush.stop_for(missing);
            self.flush.demand();
        }
        missing
    }

    /// Ends the thread; what was missing at the end.
    pub(crate) fn stop_watch(&self) -> Option<String> {
        let mut state = self.watch.state.lock();
        state.closing = true;
        self.watch.changed.notify_all();
        self.watch.changed.wait_while(&mut state, |state| !state.closed);
        drop(state);
        self.look()
    }
}
