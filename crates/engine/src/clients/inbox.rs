//! The one way by which anything comes back to an event loop from other threads: two queues, and one wake-up for all
//! that gathers in them until the loop looks.
//!
//! Events are for sessions that wait for them. Notices are for whoever they concern, and come unasked: messages, orders
//! to close. An event loop takes its notices before each turn of a session, so that what happened before a request was
//! sent is seen before it is answered, as in a server with one thread.

use crate::clients::pending::{Event, What};
use crate::clients::pubsub::{Message, Payload};
use crate::keys::gate::StoreGate;
use crate::keys::waiters::Bell;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Wakes an event loop. May be called from any thread.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The events and notices on their way to one event loop.
pub struct Inbox {
    /// The events for sessions. Their number is bounded by that of the sessions: each waits for one event at most.
    events: Mutex<Vec<Event>>,
    /// The notices. Senders bound them: they wait while there are too many bytes here (`Engine::is_congested`).
    notices: Mutex<Notices>,
    /// Bytes of the notices that nobody else has.
    bytes: AtomicU64,
    has_notices: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct Notices {
    queue: Vec<Notice>,
    /// Bytes of all of them, also of those that are shared with other event loops.
    bytes: usize,
}

/// Something that nobody waits for.
pub(crate) enum Notice {
    Message(Arc<Message>),
    /// A line for all clients in MONITOR, encoded.
    Line(Arc<Payload>),
    Close(u64),
    /// The user of the session with this number may have lost channels that the session is subscribed to.
    Recheck(u64),
    /// The values that this session, or one that it hears for, has kept of these keys count no more; those of all keys,
    /// if none are named. It depends on the record `gate`.
    Invalidate {
        session: u64,
        is_redirected: bool,
        keys: Option<Arc<Payload>>,
        gate: StoreGate,
    },
    /// The client that was to be sent this session's messages has gone.
    RedirectBroken {
        session: u64,
        redirect: u64,
    },
    /// CLIENT PAUSE has ended.
    Resume,
}

impl Inbox {
    pub fn new(wake: Wake) -> Self {
        let (events, notices, has_notices) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Inbox { events, notices, bytes: AtomicU64::new(0), has_notices, wake }
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

    /// Wakes the event loop for work of its own.
    pub(crate) fn wake(&self) {
        (self.wake)();
    }

    /// Adds a notice; how many bytes there are in the queue now.
    pub(crate) fn notify(&self, notice: Notice) -> usize {
        let (first, queued) = {
            let mut notices = lock(&self.notices);
            let (own, shared) = notice.bytes();
            notices.bytes += own + shared;
            self.bytes.fetch_add(own as u64, Relaxed);
            notices.queue.push(notice);
            self.has_notices.store(true, Ordering::Release);
            (notices.queue.len() == 1, notices.bytes)
        };
        if first {
            (self.wake)();
        }
        queued
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

    /// Bytes of the notices in the queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        lock(&self.notices).bytes
    }

    /// Bytes of the notices that no other event loop has as well.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Takes all notices.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        let mut notices = lock(&self.notices);
        self.has_notices.store(false, Ordering::Release);
        self.bytes.store(0, Relaxed);
        std::mem::take(&mut *notices).queue
    }
}

impl Notice {
    /// Returns the notice's own bytes, and those that several event loops share.
    fn bytes(&self) -> (usize, usize) {
        match self {
            Notice::Message(message) => message.bytes(),
            Notice::Line(line) => line.own_and_shared_bytes(),
            Notice::Invalidate { keys, .. } => {
                let (own, shared) = keys.as_ref().map_or((0, 0), |keys| keys.own_and_shared_bytes());
                (own + size_of::<Notice>(), shared)
            }
            Notice::RedirectBroken { .. } => (size_of::<Notice>(), 0),
            Notice::Close(_) | Notice::Recheck(_) | Notice::Resume => (0, 0),
        }
    }
}

impl Bell for Inbox {
    fn ring(&self, session: u64) {
        self.push(Event { session, what: What::Look, begun: None });
    }
}
