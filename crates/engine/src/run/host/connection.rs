//! The connection of the running command, and the changes of its session that commands ask for.

use crate::clients::client::Names;
use crate::clients::pubsub::Change;
use crate::clients::session::{Effect, State};
use crate::clients::tracking::Caching;
use crate::clients::usage::Seat;
use crate::run::host::SessionHost;
use haypile_acl::User;
use haypile_acl::user::DEFAULT;
use haypile_commands::host::{Connection, Library, Replies, SessionChange};
use haypile_resp::Protocol;
use std::sync::Arc;

impl Connection for SessionHost<'_, '_> {
    fn client_id(&self) -> u64 {
        self.session
    }

    fn client_name(&self) -> &[u8] {
        &self.state.names.name
    }

    fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    fn database(&self) -> u32 {
        self.state.database
    }

    fn databases(&self) -> u32 {
        self.engine.databases
    }

    fn is_local(&self) -> bool {
        self.state.is_local
    }

    fn monitors(&self) -> bool {
        self.state.monitors
    }

    fn is_bound_to_channels(&self) -> bool {
        self.state.is_bound()
    }

    fn is_in_block(&self) -> bool {
        self.txn.is_some()
    }
}

impl SessionHost<'_, '_> {
    /// Makes a change of the session in the state that the run works on, where the commands behind it in the same block
    /// see it.
    pub(super) fn change_session(&mut self, change: SessionChange) {
        let state = &mut *self.state;
        match change {
            SessionChange::Database(index) => {
                state.database = index;
                if let Some(txn) = &mut self.txn {
                    txn.select(index);
                }
            }
            SessionChange::NoTouch(on) => {
                state.no_touch = on;
                if let Some(txn) = &mut self.txn {
                    txn.set_touching(!on);
                }
            }
            SessionChange::NoEvict(on) => state.no_evict = on,
            SessionChange::ReadsHere(on) => state.reads_here = on,
            SessionChange::Proxied => (state.proxied, state.is_local) = (true, false),
            SessionChange::Close => state.closing = true,
            SessionChange::ReplicaSays(said) => state.note_replica(said),
            SessionChange::HandOver(words) => state.handed_over = Some(words),
            SessionChange::Synchronize(mut words) => {
                words.extend(state.replica_says.take().into_iter().flat_map(|said| said.to_vec()));
                state.handed_over = Some(words);
            }
            // A client that gets no replies at all skips none.
            SessionChange::Replies(Replies::SkipNext) if state.replies == Replies::Off => {}
            SessionChange::Replies(replies) => state.replies = replies,
            SessionChange::Track(options) => self.track(options),
            // In a block it is about the commands behind it.
            SessionChange::CacheNext if self.txn.is_some() => state.caching = Caching::Now,
            SessionChange::CacheNext => state.caching = Caching::Next,
            SessionChange::Login(user) => {
                let seat = self.engine.accounts.seat(&user, state.seat.as_ref());
                state.changing().log_in(user, seat);
            }
            SessionChange::Protocol(protocol) => state.changing().protocol = protocol,
            SessionChange::Monitor => state.changing().monitors = true,
            SessionChange::Name(name) => state.changing_names().name = name,
            SessionChange::Library(Library::Name, value) => state.changing_names().library_name = value,
            SessionChange::Library(Library::Version, value) => state.changing_names().library_version = value,
            SessionChange::Subscribe(kind, name) => state.subscribe(Change { kind, name, subscribed: true }),
            SessionChange::Unsubscribe(kind, name) => state.subscribe(Change { kind, name, subscribed: false }),
        }
    }
}

impl State {
    /// The state, for a change that other clients are to see.
    pub(super) fn changing(&mut self) -> &mut State {
        self.changed = true;
        self
    }

    /// Makes the client act as a user that was authenticated.
    pub(in crate::run) fn log_in(&mut self, user: Arc<User>, seat: Option<Arc<Seat>>) {
        let name = (**user.name() != *DEFAULT).then(|| user.name().clone());
        Arc::make_mut(&mut self.names).user = name;
        (self.authenticated, self.user, self.seat) = (true, user, seat);
    }

    fn changing_names(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.changing().names)
    }

    /// Begins or ends a subscription.
    fn subscribe(&mut self, change: Change) {
        let subscriptions = Arc::make_mut(&mut self.subscriptions);
        match change.subscribed {
            true => subscriptions.insert(change.kind, change.name.clone()),
            false => subscriptions.remove(change.kind, &change.name),
        }
        self.changing().effects.push(Effect::Subscription(change));
    }
}
