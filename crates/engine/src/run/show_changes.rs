//! Shows other clients what session commands have changed: subscriptions, messages, MONITOR, what CLIENT LIST
//! shows. RESET and the end of a client are such changes, too.

use crate::clients::client::Names;
use crate::clients::inbox::Order;
use crate::clients::session::{Effect, Session, State};
use crate::clients::steps::ENDED_BETWEEN_LOOKS;
use crate::keys::gate::StoreGate;
use crate::run::engine::Engine;
use crate::run::subscribing::Departed;
use crate::run::worker::WorkerState;
use haypile_log::Index;
use haypile_resp::Limits;
use std::sync::Arc;

/// The limits of a master, which has taken the same from its clients.
const UNLIMITED: Limits = Limits {
    bulk_bytes_max: u64::MAX,
    multibulk_len_max: u32::MAX,
    inline_bytes_max: 64 << 10,
    request_bytes_max: u32::MAX,
    authenticated: true,
};

impl WorkerState {
    /// Makes what session commands have changed true for everybody else. What they tell others depends on the record
    /// `gate`, as their replies do.
    #[inline]
    pub(crate) fn show_changes(&mut self, engine: &Engine, session: &mut Session, gate: Index) {
        if session.state.changed {
            self.show_all_changes(engine, session, engine.gate_at(gate));
        }
    }

    /// Makes true for everybody else what a command has changed that has ended earlier.
    pub(crate) fn show_earlier_changes(&mut self, engine: &Engine, session: &mut Session, gate: StoreGate) {
        if session.state.changed {
            self.show_all_changes(engine, session, gate);
        }
    }

    #[cold]
    fn show_all_changes(&mut self, engine: &Engine, session: &mut Session, gate: StoreGate) {
        session.state.changed = false;
        for effect in std::mem::take(&mut session.state.effects) {
            match effect {
                Effect::Subscription(change) => {
                    self.subscribed += usize::from(change.subscribed);
                    if change.subscribed {
                        self.on_begun(session.id, Some((change.kind, &change.name)));
                    }
                    self.subscribers.change(&engine.pubsub, self.index, session.id, &change)
                }
                Effect::Publish { kind, channel, payload, audience } => {
                    engine.publish(kind, channel, payload, audience, gate);
                }
            }
        }
        if engine.refresh_user(&mut session.state) && !session.state.closing {
            // Channels that the client has subscribed to just now may be among those that it must not hear. One that
            // ends anyway gets its reply before.
            self.inbox.order(Order::Recheck(session.id));
        }
        let state = &session.state;
        session.client.show_names(&state.names);
        session.client.show_subscriptions(state.subscriptions.counts());
        session.checks = state.checks();
        if session.shown_tracker.as_ref().map(Arc::as_ptr) != state.tracker.as_ref().map(Arc::as_ptr) {
            session.shown_tracker = state.tracker.clone();
            engine.show_tracker(session.id, state.tracker.clone());
        }
        if state.monitors != session.is_monitor {
            session.is_monitor = state.monitors;
            if state.monitors {
                self.on_begun(session.id, None);
            }
            engine.set_monitor(self.index, state.monitors);
            match state.monitors {
                true => self.subscribers.monitors.insert(session.id),
                false => self.subscribers.monitors.remove(&session.id),
            };
        }
        self.set_limits(session);
    }

    /// The end of a client. More than a few subscriptions end one after the other: many clients may go at once.
    pub(crate) fn depart(&mut self, engine: &Engine, session: &mut Session) {
        if session.state.subscriptions.len() > ENDED_BETWEEN_LOOKS {
            let all = Arc::unwrap_or_clone(std::mem::take(&mut session.state.subscriptions));
            // The subscriptions are counted until they have ended.
            engine.client_memory.add_shared(all.bytes());
            if self.departed.is_empty() {
                self.inbox.wake();
                self.subscribed = 0;
            }
            self.departed.push_back(Departed { session: session.id, left: all });
        }
        self.reset(engine, session);
    }

    /// Everything as it was when the client came, but for what it told about its library: RESET, or the client's end.
    pub(crate) fn reset(&mut self, engine: &Engine, session: &mut Session) {
        if session.state.repeating.is_some() {
            // A master stays one.
            return;
        }
        engine.drop_queue(session);
        engine.unwatch(session);
        let fresh = engine.fresh_state();
        self.end_some(engine, session.id, Arc::make_mut(&mut session.state.subscriptions), usize::MAX, None);
        let names = Names { name: Vec::new(), user: None, ..Names::clone(&session.state.names) };
        session.state = State {
            names: Arc::new(names),
            no_evict: session.state.no_evict,
            proxied: session.state.proxied,
            is_local: session.state.is_local,
            ..fresh
        };
        self.show_all_changes(engine, session, StoreGate::default());
    }

    pub(crate) fn set_limits(&self, session: &mut Session) {
        let limits = if session.state.repeating.is_some() { UNLIMITED } else { self.limits };
        session.parser.set_limits(Limits { authenticated: session.state.authenticated, ..limits });
    }
}
