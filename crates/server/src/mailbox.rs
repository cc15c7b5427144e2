//! How other threads reach an event loop: new clients, events for sessions, the log's progress, the order to stop. One
//! wake-up serves all of them.

use crate::stream::Accepted;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// One event loop's mailbox.
#[derive(Default)]
pub struct Mailbox {
    /// Clients that were accepted for this loop.
    accepted: Mutex<Vec<Accepted>>,
    /// The number of the loop's clients, those on their way included. The next one goes to the loop that has the
    /// fewest.
    pub clients: AtomicUsize,
    /// Whether replies of this loop wait for the log: only then its progress is worth a wake-up.
    pub waits_for_log: AtomicBool,
    stopped: AtomicBool,
    pub wake: Notify,
    pub stop: Notify,
}

impl Mailbox {
    pub fn accept(&self, client: Accepted) {
        self.clients.fetch_add(1, Ordering::Relaxed);
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        self.wake.notify_one();
    }

    pub fn take_accepted(&self) -> Vec<Accepted> {
        std::mem::take(&mut *self.accepted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that the log has become more durable.
    pub fn on_durable(&self) {
        if self.waits_for_log.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Ends the loop; once is enough.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
