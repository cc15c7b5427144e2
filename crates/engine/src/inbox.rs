//! The one way by which anything comes back to an event loop from other threads: a queue, and one wake-up for all that
//! gathers in it until the loop looks.

use crate::session::Event;
use crate::sync::{Mutex, lock};

/// Wakes an event loop. May be called from any thread.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// Events on their way to one event loop. Bounded by the number of its sessions: each waits for one event at most.
pub struct Inbox {
    events: Mutex<Vec<Event>>,
    wake: Wake,
}

impl Inbox {
    pub fn new(wake: Wake) -> Self {
        Inbox { events: Mutex::default(), wake }
    }

    pub(crate) fn push(&self, event: Event) {
        let first = {
            let mut events = lock(&self.events);
            events.push(event);
            events.len() == 1
        };
        if first {
            (self.wake)();
        }
    }

    /// Takes all events; `into` is empty and its memory is kept.
    pub fn take(&self, into: &mut Vec<Event>) {
        std::mem::swap(&mut *lock(&self.events), into);
    }
}
