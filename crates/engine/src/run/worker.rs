//! The part of the engine that belongs to one event loop: what the server drives, and what the loop reuses from command
//! to command.
//!
//! Clients come and go here, and so does what others have for them; each turn of a connection begins here. What a turn
//! does is in `execute`.

use crate::clients::checks::LIMITED;
use crate::clients::client::{Client, Peer};
use crate::clients::inbox::{Inbox, Wake};
use crate::clients::pending::{Event, What};
use crate::clients::pubsub::Subscribers;
use crate::clients::push::Push;
use crate::clients::session::{Session, State, Waiting};
use crate::clients::statistics::Outcome;
use crate::clients::statistics::counters::Counters;
use crate::clients::steps::STEP_TIME_MAX;
use crate::keys::claims::Claims;
use crate::keys::locks::Waiter;
use crate::keys::waiters::End;
use crate::run::ahead::Ahead;
use crate::run::engine::Engine;
use crate::run::expiry::BATCH;
use crate::run::notices::Backlog;
use crate::run::pool::Job;
use crate::run::subscribing::Departed;
use haypile_config::Durability;
use haypile_log::Index;
use haypile_resp::Limits;
use haypile_store::TxnBuffers;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The part of the engine that belongs to one event loop.
pub struct Worker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) state: WorkerState,
}

/// The buffers and counts that an event loop reuses from command to command.
pub(crate) struct WorkerState {
    pub index: usize,
    pub inbox: Arc<Inbox>,
    /// The notices that were taken from there and are not all delivered.
    pub backlog: Backlog,
    pub buffers: TxnBuffers,
    pub claims: Claims,
    pub ahead: Ahead,
    /// Jobs for the I/O pool that turns and clients' ends since the last `start_jobs` have left.
    pub jobs: Vec<Job>,
    /// Sessions that wait for the I/O pool.
    pub on_pool: usize,
    /// The exclusion was entered in this turn.
    inside: bool,
    /// The subscriptions of this event loop's clients.
    pub subscribers: Subscribers,
    /// Clients that have gone, whose subscriptions have still to be ended.
    pub departed: VecDeque<Departed>,
    /// Subscriptions that have begun since some of these ended.
    pub subscribed: usize,
    /// The time after which a step stops, of subscriptions that end and of messages that are delivered.
    pub step_time_max: Duration,
    /// Sessions of this event loop that a pause keeps waiting; all event loops' are counted in `Checks::held`.
    pub paused: HashSet<u64>,
    /// Wall clock of this turn, in milliseconds since 1970.
    pub now_ms: u64,
    seed: u64,
    /// Expired keys that the next call of `expire` looks at.
    pub(crate) expiry_batch: usize,
    /// The running command's outcome, where it is not `Done`.
    pub(crate) outcome: Outcome,
    /// Replies wait until the log is synced.
    pub(crate) syncs: bool,
    /// The version of the store that this turn uses.
    pub store_version: u64,
    /// The place of the request that is looked at in its client's input.
    pub(crate) position: Position,
    /// The version of the settings that `limits` come from.
    pub limits_version: u64,
    pub limits: Limits,
}

/// The begin and the end of a request in its client's input, and the end of that input by now: bytes since the session
/// began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub at: u64,
    pub through: u64,
    pub end: u64,
}

/// The result of a turn: what it has consumed, and what its connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Commands that began.
    pub commands: usize,
    pub next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All whole requests have run: read more.
    Read,
    /// Let the others have a turn, then take the next one.
    Yield,
    /// Take the next turn when an event for the session has been delivered.
    Wait,
    /// Take the next turn, after `Session::wake`, when this time has passed.
    Sleep(Duration),
    /// Take the next turn when an event for the session has been delivered, or when this time has passed. The client
    /// may go meanwhile: nothing of it is under way elsewhere.
    Block(Option<Duration>),
    /// Take the next turn when the client has read some of the output.
    Drain,
    /// Send the output, then close.
    Close,
    /// Send the output, then hand the connection to replication, with `Session::take_handed_over`.
    HandOver,
    /// Close at once: output that has not left never does, and what has come behind is not looked at.
    Abort,
}

/// Something that comes for a session unasked.
pub enum Delivery<'a> {
    /// Something that the client is sent, which depends on the record `gate`: `Session::push` takes it.
    Push { push: Push<'a>, gate: Index },
    /// An event for `Session::deliver_unasked`.
    Event(Event),
    /// The client's connection is to end.
    Close,
    /// The client's connection is to end if `Engine::loses_channels` says so.
    Recheck,
}

impl Worker {
    /// Event loop `index` of `engine`. `wake` is called, from any thread, when its inbox is no longer empty.
    pub fn new(engine: Arc<Engine>, index: usize, wake: Wake) -> Self {
        assert!(index <= engine.workers(), "the engine was made for this many event loops");
        let (limits_version, limits) = engine.limits();
        let inbox = Arc::new(Inbox::new(wake));
        engine.add_inbox(index, inbox.clone());
        Worker {
            state: WorkerState {
                index,
                inbox,
                backlog: Backlog::default(),
                buffers: TxnBuffers::default(),
                claims: Claims::default(),
                ahead: Ahead::default(),
                jobs: Vec::new(),
                on_pool: 0,
                inside: false,
                subscribers: Subscribers::default(),
                departed: VecDeque::new(),
                subscribed: 0,
                step_time_max: STEP_TIME_MAX,
                paused: HashSet::new(),
                now_ms: engine.now_ms(),
                seed: engine.random_seed(),
                expiry_batch: BATCH,
                outcome: Outcome::Done,
                syncs: engine.settings.config().durability == Durability::Fsync,
                store_version: 0,
                position: Position::default(),
                limits_version,
                limits,
            },
            engine,
        }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.state.inbox
    }

    /// The numbers of this event loop.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.engine.counters(self.state.index)
    }

    /// A new client.
    pub fn connect(&mut self, peer: Peer) -> Session {
        let Worker { engine, state } = self;
        engine.counters(state.index).connections.add(1);
        state.refresh_limits(engine);
        let client = Arc::new(Client::new(engine.next_session(), state.index, peer, engine.now_ms()));
        engine.clients.add(client.clone());
        let fresh = State { is_local: client.peer.is_local, ..engine.fresh_state() };
        let session = Session::new(client, fresh, state.limits, state.limits_version);
        engine.count_client(&session, 0, 0, 0);
        session
    }

    /// Logs a new client in whose certificate has this common name, if there is such a user.
    pub fn log_in_by_certificate(&mut self, session: &mut Session, name: &[u8]) {
        self.engine.log_in_by_certificate(session, name);
        self.state.set_limits(session);
    }

    /// Ends some subscriptions of clients that have gone; returns whether others are left, for which the loop is woken
    /// again. To be called once in a round, whatever the number of turns in it: it takes as long as a turn may.
    pub fn end_departed(&mut self) -> bool {
        let Worker { engine, state } = self;
        let are_left = state.end_departed(engine);
        if are_left {
            state.inbox.wake();
        }
        are_left
    }

    /// Sets the time after which a step stops, of subscriptions that end and of messages that are delivered. Some are
    /// done with whatever the time.
    pub fn set_step_time_max(&mut self, time: Duration) {
        self.state.step_time_max = time;
    }

    /// Whether some session waits for the I/O pool: others are answered without delay then, rather than together.
    pub fn has_slow_company(&self) -> bool {
        self.state.on_pool > 0
    }

    /// Whether the turns have left something for the I/O pool.
    pub fn has_jobs(&self) -> bool {
        !self.state.jobs.is_empty()
    }

    /// Hands the I/O pool what the turns have left for it. To be called when the replies of the round have left: to
    /// wake a thread takes longer than most commands do.
    pub fn start_jobs(&mut self) {
        if self.has_jobs() {
            self.engine.pool.submit_all(&mut self.state.jobs);
        }
    }

    /// A client has gone: nothing is taken for it any more, and another may come in its place. `part` follows.
    ///
    /// Invariant: that is at once. A key that comes to be is not for a client that was gone before.
    pub fn lose(&mut self, session: &mut Session) {
        debug_assert!(!matches!(session.waiting, Waiting::Pool | Waiting::Piece), "its event comes first");
        match session.waiting {
            Waiting::Blocked(_) => _ = self.engine.blocked.remove(session.id),
            Waiting::ForKeys(_) => _ = self.engine.end_wait(session.id, End::Gone),
            _ => {}
        }
        self.engine.on_disconnect();
    }

    /// Ends the session of a client that has gone; may leave something for the I/O pool.
    pub fn part(&mut self, session: &mut Session) {
        let Worker { engine, state } = self;
        state.depart(engine, session);
        state.release_reply(engine, session);
        state.go_on_after_pause(engine, session);
        session.state.seat = None;
        engine.clients.remove(session.id);
        engine.client_memory.forget(&session.client);
    }

    /// A client has gone, and its session ends.
    pub fn disconnect(&mut self, session: &mut Session) {
        self.lose(session);
        self.part(session);
    }

    /// Runs what `input` holds for `session`, replies into `out`. `now_ms` is the wall clock.
    pub fn turn(&mut self, session: &mut Session, input: &[u8], out: &mut Vec<u8>, now_ms: u64) -> Turn {
        let Worker { engine, state } = self;
        state.now_ms = now_ms;
        let before = out.len();
        let turn = state.turn(engine, session, input, out);
        if session.checks & LIMITED != 0 {
            session.charge(out.len().saturating_sub(before));
        }
        state.leave(engine);
        session.client.show(session, state.now_ms, session.last_command);
        turn
    }
}

impl WorkerState {
    /// Enters the exclusion, once per turn.
    #[inline]
    pub(crate) fn enter(&mut self, engine: &Engine) -> bool {
        self.inside = self.inside || engine.exclusion.enter(self.index);
        self.inside
    }

    #[inline]
    pub(crate) fn leave(&mut self, engine: &Engine) {
        if std::mem::take(&mut self.inside) {
            engine.exclusion.leave(self.index);
        }
    }

    /// A fresh start for a command's random numbers. Consecutive ones are far apart in the sequence that a transaction
    /// makes of them.
    #[inline]
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        self.seed
    }

    /// Notes that the I/O pool has answered a session.
    pub(crate) fn come_back(&mut self) {
        assert!(self.on_pool > 0, "the pool answers each session once");
        self.on_pool -= 1;
    }

    /// Notes that a pause holds the session, so that its end can be told to it.
    pub(crate) fn hold_back(&mut self, engine: &Engine, session: &Session) {
        if self.paused.insert(session.id) {
            engine.checks.add_held();
        }
    }

    pub(crate) fn go_on_after_pause(&mut self, engine: &Engine, session: &Session) {
        if self.paused.remove(&session.id) {
            engine.checks.remove_held();
        }
    }

    pub(crate) fn refresh_limits(&mut self, engine: &Engine) {
        (self.limits_version, self.limits) = engine.limits();
        self.syncs = engine.settings.config().durability == Durability::Fsync;
    }

    /// The bound of what a client may have under way.
    pub(crate) fn request_bytes_max(&self) -> usize {
        self.limits.request_bytes_max as usize
    }

    /// A waiter that brings the session back to this event loop.
    pub(crate) fn waiter(&self, session: u64, what: What) -> Waiter {
        let inbox = self.inbox.clone();
        Box::new(move || inbox.push(Event { session, what, begun: None }))
    }
}
