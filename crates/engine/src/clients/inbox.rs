//! The one way by which anything comes back to an event loop from other threads: two queues, and one wake-up for all
//! that gathers in them until the loop looks.
//!
//! Events are for sessions that wait for them. Notices are for whoever they concern, and come unasked: messages. Orders
//! come so, too, such as to close. An event loop takes its notices before each turn of a session, so that what happened
//! before a request was sent is seen before it is answered, as in a server with one thread.

use crate::clients::pending::{Event, What};
use crate::clients::pubsub::{Message, Payload};
use crate::keys::gate::StoreGate;
use crate::keys::waiters::Bell;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Wakes an event loop. May be called from any thread.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The events and notices on their way to one event loop.
pub struct Inbox {
    /// The events for sessions. Their number is bounded by that of the sessions: each waits for one event at most.
    events: Mutex<Vec<Event>>,
    /// The notices. Senders bound them: they wait while these weigh too much (`Engine::is_congested`).
    notices: Mutex<Notices>,
    /// Bytes of the notices that nobody else has.
    bytes: AtomicU64,
    has_notices: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct Notices {
    queue: VecDeque<Notice>,
    orders: Vec<Order>,
    /// The weight of the queue, and of the notices that were taken from it and are not all delivered.
    weight: usize,
    /// The number of notices that there ever were.
    count: u64,
}

/// Something that a session is told at once, before messages that came earlier.
pub(crate) enum Order {
    Close(u64),
    /// The user of the session with this number may have lost channels that the session is subscribed to.
    Recheck(u64),
    /// CLIENT PAUSE has ended.
    Resume,
}

/// Something that clients are sent and nobody waits for.
pub(crate) enum Notice {
    Message(Arc<Message>),
    /// A line for all clients in MONITOR, encoded.
    Line(Arc<Payload>),
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
}

/// The notices that have been delivered, as their inbox counts them.
#[derive(Default)]
pub(crate) struct Delivered {
    weight: usize,
    own_bytes: usize,
}

impl Delivered {
    pub fn add(&mut self, notice: &Notice) {
        self.weight += notice.weight();
        self.own_bytes += notice.bytes().0;
    }
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

    /// Adds a notice; what all that are not delivered weigh now.
    pub(crate) fn notify(&self, notice: Notice) -> usize {
        let (first, weight) = {
            let mut notices = lock(&self.notices);
            notices.weight += notice.weight();
            notices.count += 1;
            self.bytes.fetch_add(notice.bytes().0 as u64, Relaxed);
            notices.queue.push_back(notice);
            self.has_notices.store(true, Ordering::Release);
            (notices.queue.len() == 1, notices.weight)
        };
        if first {
            (self.wake)();
        }
        weight
    }

    /// Adds an order.
    pub(crate) fn order(&self, order: Order) {
        let first = {
            let mut notices = lock(&self.notices);
            notices.orders.push(order);
            self.has_notices.store(true, Ordering::Release);
            notices.orders.len() == 1
        };
        if first {
            (self.wake)();
        }
    }

    /// Takes all events; `into` is empty and its memory is kept.
    pub fn take(&self, into: &mut Vec<Event>) {
        std::mem::swap(&mut *lock(&self.events), into);
    }

    /// Whether there are orders, or notices that are not delivered. One load.
    #[inline]
    pub fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Acquire)
    }

    /// The weight of the notices that are not delivered: their bytes, and those that receivers are going to be sent.
    pub(crate) fn weight(&self) -> usize {
        lock(&self.notices).weight
    }

    /// The number of notices that there ever were.
    pub(crate) fn notified(&self) -> u64 {
        lock(&self.notices).count
    }

    /// Bytes of the notices that no other event loop has as well.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Takes all orders, and all notices if those that were taken before have been delivered.
    pub(crate) fn take_notices(&self, backlog: &mut VecDeque<Notice>) -> Vec<Order> {
        let mut notices = lock(&self.notices);
        if backlog.is_empty() {
            std::mem::swap(backlog, &mut notices.queue);
        }
        self.has_notices.store(!(backlog.is_empty() && notices.queue.is_empty()), Ordering::Release);
        std::mem::take(&mut notices.orders)
    }

    /// Counts notices as delivered; whether there are others. `all` says that none of those that were taken is left.
    pub(crate) fn settle(&self, delivered: Delivered, all: bool) -> bool {
        let mut notices = lock(&self.notices);
        let Delivered { weight, own_bytes } = delivered;
        assert!(weight <= notices.weight, "a notice is delivered once");
        notices.weight -= weight;
        self.bytes.fetch_sub(own_bytes as u64, Relaxed);
        let are_left = !(all && notices.queue.is_empty() && notices.orders.is_empty());
        self.has_notices.store(are_left, Ordering::Release);
        are_left
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
        }
    }

    fn weight(&self) -> usize {
        let (own, shared) = self.bytes();
        let sent = if let Notice::Message(message) = self { message.sent_bytes() } else { 0 };
        own + shared + sent
    }

    /// Returns the record that the notice depends on.
    pub fn gate(&self) -> StoreGate {
        match self {
            Notice::Message(message) => message.gate,
            Notice::Invalidate { gate, .. } => *gate,
            Notice::Line(_) | Notice::RedirectBroken { .. } => StoreGate::default(),
        }
    }
}

impl Bell for Inbox {
    fn ring(&self, session: u64) {
        self.push(Event { session, what: What::Look, begun: None });
    }
}
