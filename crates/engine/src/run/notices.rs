//! The way of notices to the sessions of an event loop: orders at once, messages some at a time.
//!
//! A message may have tens of thousands of subscribers, and thousands of messages may come at once. An event loop
//! delivers some in each of its rounds; the rest waits, and counts in the inbox until it is delivered, so that senders
//! wait while it is too much.
//!
//! Invariant: no request of a session that hears messages is looked at before it was sent all that had been published
//! when the request came, and none hears what was published before it subscribed; as in a server with one thread. Other
//! sessions wait for nobody's messages.

use crate::clients::inbox::{Delivered, Notice, Order};
use crate::clients::pending::{Event, What};
use crate::clients::pubsub::{Name, Receiver, Subscribers};
use crate::clients::push::Push;
use crate::clients::session::Session;
use crate::run::engine::Engine;
use crate::run::worker::{Delivery, Worker, WorkerState};
use haypile_commands::host::Channels;
use haypile_log::Index;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Deliveries in a round at most: a millisecond, about.
const DELIVERIES_MAX: usize = 2048;

/// Deliveries between two looks at the clock.
const BETWEEN_LOOKS: usize = 32;

/// The length of a list of receivers whose memory is kept for the next message.
const KEPT_RECEIVERS_MAX: usize = 4096;

/// The notices that were taken from the inbox and are not all delivered.
#[derive(Default)]
pub(crate) struct Backlog {
    notices: VecDeque<Notice>,
    /// The sessions that the first notice goes to, if they were looked up.
    receivers: Vec<Receiver>,
    /// How many of them have been sent it; `None` before they were looked up.
    delivered: Option<usize>,
    /// The number of notices that have ever been delivered.
    ended: u64,
    begun: Begun,
    /// The deliveries of this round, and the time that they took.
    in_round: usize,
    took: Duration,
}

/// The subscriptions that began while notices were on their way, which are not for them.
#[derive(Default)]
struct Begun {
    /// The number of the last notice that a subscription has nothing of.
    until: HashMap<Subscription, u64>,
    /// All of them in order, by which they are forgotten.
    queue: VecDeque<(u64, Subscription)>,
}

/// A session, and the name that it is subscribed to; none for MONITOR.
type Subscription = (u64, Option<(u8, Name)>);

impl Begun {
    /// Takes those out of the receivers of a notice, by its number, that were no subscribers yet.
    fn exclude(&mut self, notice: &Notice, number: u64, receivers: &mut Vec<Receiver>) {
        while let Some((until, _)) = self.queue.front()
            && *until < number
        {
            let (until, subscription) = self.queue.pop_front().expect("there is one");
            if self.until.get(&subscription) == Some(&until) {
                self.until.remove(&subscription);
            }
        }
        // Notices of other kinds are for a session, not for whoever hears.
        if !self.until.is_empty() && matches!(notice, Notice::Message(_) | Notice::Line(_)) {
            receivers.retain(|receiver| {
                let name = match notice {
                    Notice::Message(message) => Some(message.name_for(*receiver)),
                    _ => None,
                };
                let subscription = (receiver.session, name.map(|(kind, name)| (kind as u8, name.clone())));
                self.until.get(&subscription).is_none_or(|until| *until < number)
            });
        }
    }
}

impl WorkerState {
    /// Notes that a session begins to hear something, by name or all of MONITOR: from the notices of now on.
    pub(crate) fn on_begun(&mut self, session: u64, name: Option<(Channels, &Name)>) {
        if self.inbox.has_notices() {
            let subscription = (session, name.map(|(kind, name)| (kind as u8, name.clone())));
            let until = self.inbox.notified();
            self.backlog.begun.until.insert(subscription.clone(), until);
            self.backlog.begun.queue.push_back((until, subscription));
        }
    }
}

impl Worker {
    /// Takes what others have for sessions of this event loop, and calls `deliver` for each of those, as often as a
    /// round allows. To be called before each turn if the inbox has notices.
    pub fn take_notices(&mut self, mut deliver: impl FnMut(u64, Delivery<'_>)) {
        let Worker { engine, state } = self;
        loop {
            for order in state.inbox.take_notices(&mut state.backlog.notices) {
                state.carry_order_out(order, &mut deliver);
            }
            if state.backlog.notices.is_empty() {
                return;
            }
            state.deliver_some(engine, &mut deliver);
            if !state.backlog.notices.is_empty() || !state.inbox.has_notices() {
                return;
            }
        }
    }

    /// Begins a round, in which some more deliveries are made. To be called when others have had their turns.
    pub fn begin_deliveries(&mut self) {
        (self.state.backlog.in_round, self.state.backlog.took) = (0, Duration::ZERO);
    }

    /// Returns whether a session's requests have to wait: what it may have to be sent first is left for the next
    /// rounds. To be called behind `take_notices`.
    pub fn owes_messages(&self, session: &mut Session) -> bool {
        if !self.state.inbox.has_notices() || !session.hears() {
            session.notices_due = None;
            return false;
        }
        let due = *session.notices_due.get_or_insert_with(|| self.state.inbox.notified());
        let owes = self.state.backlog.ended < due;
        if !owes {
            session.notices_due = None;
        }
        owes
    }
}

impl WorkerState {
    fn carry_order_out(&self, order: Order, deliver: &mut impl FnMut(u64, Delivery<'_>)) {
        match order {
            Order::Close(session) => deliver(session, Delivery::Close),
            Order::Recheck(session) => deliver(session, Delivery::Recheck),
            Order::Resume => {
                for &session in &self.paused {
                    deliver(session, Delivery::Event(Event { session, what: What::Retry, begun: None }));
                }
            }
        }
    }

    /// Delivers notices from the first on, until all have been delivered or it is enough for this round.
    fn deliver_some(&mut self, engine: &Engine, deliver: &mut impl FnMut(u64, Delivery<'_>)) {
        let WorkerState { backlog, subscribers, step_time_max, .. } = self;
        let (began, left) = (Instant::now(), step_time_max.saturating_sub(backlog.took));
        let mut ended = Delivered::default();
        while backlog.in_round < DELIVERIES_MAX
            && let Some(notice) = backlog.notices.front()
        {
            let delivered = *backlog.delivered.get_or_insert_with(|| {
                notice.find_receivers(subscribers, &mut backlog.receivers);
                backlog.begun.exclude(notice, backlog.ended + 1, &mut backlog.receivers);
                0
            });
            let most = BETWEEN_LOOKS.min(DELIVERIES_MAX - backlog.in_round);
            let until = backlog.receivers.len().min(delivered + most);
            if let Some(gate) = gate_of(engine, notice) {
                for receiver in &backlog.receivers[delivered..until] {
                    deliver(receiver.session, Delivery::Push { push: notice.push_for(*receiver), gate });
                }
            }
            backlog.delivered = Some(until);
            let before = backlog.in_round;
            // A notice that nobody hears takes time, too.
            backlog.in_round += (until - delivered).max(1);
            if until == backlog.receivers.len() {
                ended.add(notice);
                backlog.end_first();
            }
            if before / BETWEEN_LOOKS != backlog.in_round / BETWEEN_LOOKS && began.elapsed() >= left {
                backlog.in_round = DELIVERIES_MAX;
            }
        }
        backlog.took += began.elapsed();
        if self.inbox.settle(ended, backlog.notices.is_empty()) {
            self.inbox.wake();
        }
    }
}

/// Returns the record that a delivery depends on; `None` for a message of what was taken back, which is none.
fn gate_of(engine: &Engine, notice: &Notice) -> Option<Index> {
    let gate = engine.gate_now(notice.gate());
    let always = matches!(notice, Notice::Invalidate { .. });
    gate.or(always.then_some(Index(0)))
}

impl Backlog {
    fn end_first(&mut self) {
        self.notices.pop_front();
        self.delivered = None;
        self.receivers.clear();
        self.receivers.shrink_to(KEPT_RECEIVERS_MAX);
        self.ended += 1;
    }
}

impl Notice {
    fn find_receivers(&self, subscribers: &Subscribers, into: &mut Vec<Receiver>) {
        match self {
            Notice::Message(message) => subscribers.receivers(message, into),
            Notice::Line(_) => into.extend(subscribers.monitors.iter().map(|&session| Receiver::direct(session))),
            Notice::Invalidate { session, .. } | Notice::RedirectBroken { session, .. } => {
                into.push(Receiver::direct(*session));
            }
        }
    }

    fn push_for(&self, receiver: Receiver) -> Push<'_> {
        match self {
            Notice::Message(message) => Push::Message { head: message.head_for(receiver), payload: message.payload() },
            Notice::Line(payload) => Push::Message { head: &[], payload },
            Notice::Invalidate { is_redirected, keys, .. } => {
                Push::Invalidation { is_redirected: *is_redirected, keys: keys.as_ref() }
            }
            Notice::RedirectBroken { redirect, .. } => Push::RedirectBroken(*redirect),
        }
    }
}
