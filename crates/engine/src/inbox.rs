//! The one way by which anything comes back to an event loop from other threads: two queues, and one wake-up for all that
//! gathers in them until the loop looks.
//!
//! Events are for sessions that wait for them. Notices are for whoever they concern, and come unasked: messages, orders to
//! close. An event loop takes its notices before each turn of a session, so that what happened before a request was sent is
//! seen before it is answered, as in a server with one thread.

use crate::pubsub::Message;
use crate::session::Event;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use std::sync::Arc;

/// Wakes an event loop. May be called from any thread.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// Bytes of messages in one inbox beyond which those who send more have to wait.
const CONGESTED_BYTES: usize = 32 << 20;

/// What is on its way to one event loop.
pub struct Inbox {
    /// Bounded by the number of its sessions: each waits for one event at most.
    events: Mutex<Vec<Event>>,
    /// Bounded by who sends: it waits while there are too many bytes here (`is_congested`).
    notices: Mutex<Notices>,
    has_notices: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct Notices {
    queue: Vec<Notice>,
    bytes: usize,
}

/// Something that nobody waits for.
pub(crate) enum Notice {
    Message(Arc<Message>),
    /// A line for all clients in MONITOR, encoded.
    Line(Arc<[u8]>),
    Close(u64),
    /// CLIENT PAUSE has ended.
    Resume,
    /// Clients that have gone have left many subscriptions.
    Departed,
}

impl Inbox {
    pub fn new(wake: Wake) -> Self {
        Inbox { events: Mutex::default(), notices: Mutex::default(), has_notices: AtomicBool::new(false), wake }
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

    /// Adds a notice; whether there is more in the queue now than should be.
    pub(crate) fn notify(&self, notice: Notice) -> bool {
        let (first, congested) = {
            let mut notices = lock(&self.notices);
            notices.bytes += notice.bytes();
            notices.queue.push(notice);
            self.has_notices.store(true, Ordering::Release);
            (notices.queue.len() == 1, notices.bytes > CONGESTED_BYTES)
        };
        if first {
            (self.wake)();
        }
        congested
    }

    /// Takes all events; `into` is empty and its memory is kept.
    pub fn take(&self, into: &mut Vec<Event>) {
        std::mem::swap(&mut *lock(&self.events), into);
    }

    /// Whether there are notices. One load.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Acquire)
    }

    /// Whether there is more in the queue than should be.
    pub(crate) fn is_congested(&self) -> bool {
        lock(&self.notices).bytes > CONGESTED_BYTES
    }

    /// Takes all notices.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        let mut notices = lock(&self.notices);
        self.has_notices.store(false, Ordering::Release);
        std::mem::take(&mut *notices).queue
    }
}

impl Notice {
    fn bytes(&self) -> usize {
        match self {
            Notice::Message(message) => message.bytes(),
            Notice::Line(line) => line.len(),
            Notice::Close(_) | Notice::Resume | Notice::Departed => 0,
        }
    }
}
