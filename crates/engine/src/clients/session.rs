//! A client's session: its choices, its queued commands, and what it waits for.
//!
//! A session belongs to one event loop and is no more than data: `execute` runs its commands, `host` lets session
//! commands change it. A session that waits holds the command that waits, so that nothing else of its connection can
//! overtake it.

use crate::clients::acts::Acts;
use crate::clients::blocked::Held;
use crate::clients::client::{Client, IDLE_BYTES, Names};
use crate::clients::parted_list::PartedList;
use crate::clients::pending::{Event, Pending, Queued, What};
use crate::clients::pubsub::{Change, Deferred, Name, Payload, Subscriptions};
use crate::clients::repeating::Repeating;
use crate::clients::statistics::{Moment, Timed, Unacknowledged};
use crate::clients::steps::Steps;
use crate::clients::tracking::{Caching, Tracker};
use crate::clients::usage::Seat;
use crate::keys::waiters::Waiter;
use crate::keys::watch::Watching;
use haypile_acl::User;
use haypile_commands::CommandId;
use haypile_commands::host::{Audience, Channels, ClientType, GroupOrder, Reload, Replies, Wait};
use haypile_log::Index;
use haypile_resp::{Limits, Parser, Pieces, Protocol, ReplyPieces};
use haypile_store::Pins;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The shortest time that timers can measure.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The part of a session that its commands may change. EXEC runs on a copy, which becomes the session's with the
/// block's effects.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub database: u32,
    pub protocol: Protocol,
    pub names: Arc<Names>,
    /// No password was needed when the client came, or it gave one.
    pub authenticated: bool,
    /// The user that the client acts as.
    pub(crate) user: Arc<User>,
    /// The client's place among those of its user. None until the client has logged in, or while all are taken.
    pub(crate) seat: Option<Arc<Seat>>,
    pub replies: Replies,
    pub no_evict: bool,
    pub no_touch: bool,
    /// READONLY: the client reads what a member of a group has that does not lead, however old that is.
    pub reads_here: bool,
    /// The client has come by another member of the group, which hands its bytes on.
    pub proxied: bool,
    /// The session repeats the commands of a master that is no Haypile.
    pub(crate) repeating: Option<Arc<Repeating>>,
    /// The client is shown all commands: MONITOR.
    pub monitors: bool,
    pub subscriptions: Arc<Subscriptions>,
    /// How the client is told of keys that change, if it is.
    pub(crate) tracker: Option<Arc<Tracker>>,
    pub(crate) caching: Caching,
    /// The connection ends after the reply.
    pub closing: bool,
    /// The client is on the same host.
    pub is_local: bool,
    /// The reply of the running command is held back.
    pub wait: Option<Wait>,
    /// The running command has the data opened again.
    pub reload: Option<Reload>,
    /// The running command gives the server's group an order.
    pub order: Option<GroupOrder>,
    /// The connection leaves its event loop: to whoever answers these words, or to the group's leader.
    pub handed_over: Option<Vec<Vec<u8>>>,
    /// The words that the client, a Redis that is to follow, has said of itself: `option=value` each.
    pub(crate) replica_says: Option<Arc<[Vec<u8>]>>,
    /// The acts that the client's event loop carries out once the command, or its block, has taken effect.
    pub(crate) effects: Vec<Effect>,
    /// The acts that are carried out on the server once the command, or its block, has taken effect.
    pub(crate) acts: Acts,
    /// Something that other clients see may have changed: `run::show_changes` shows it to them.
    pub(crate) changed: bool,
}

/// An act that the client's own event loop carries out, which has the subscriptions of its clients.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Subscription(Change),
    Publish { kind: Channels, channel: Name, payload: Arc<Payload>, audience: Audience },
}

/// A client's session.
pub struct Session {
    /// Unique among all sessions since the server started, rising.
    pub id: u64,
    /// The facts about the client that others see.
    pub client: Arc<Client>,
    pub(crate) state: State,
    /// The bits of `State::checks`, as the last command left them.
    pub(crate) checks: u32,
    /// The session is counted among those in MONITOR.
    pub(crate) is_monitor: bool,
    /// The notice that the next request waits for, by its number in the inbox.
    pub(crate) notices_due: Option<u64>,
    /// The tracker by which others find the session.
    pub(crate) shown_tracker: Option<Arc<Tracker>>,
    /// The command that ran last.
    pub(crate) last_command: Option<CommandId>,
    /// Messages that wait for the end of a long reply.
    pub(crate) deferred: Deferred,
    /// Bytes that a command or a long reply on the I/O pool holds.
    pub(crate) away_bytes: usize,
    /// Bytes of the long reply under way that have still to be made, as far as they are known.
    pub(crate) unmade_bytes: usize,
    pub(crate) parser: Parser,
    /// The version of the settings that the parser's limits come from.
    pub(crate) limits_version: u64,
    /// The newest record that a reply made so far depends on: none of them may leave before it is durable.
    /// Invariant: it never goes back, but where the store is another one.
    gate: Index,
    /// The version of the store that `gate` is an index of.
    pub(crate) store_version: u64,
    /// Calls that a consensus group's leader alone runs, and that have begun here.
    pub(crate) led_calls: u64,
    /// The last call is one that a consensus group's leader alone runs.
    pub(crate) is_led: bool,
    /// The last call reads on a member of a group that does not lead.
    pub(crate) reads_beside: bool,
    /// The version of the data that the oldest call of a group rests on whose reply has not been given its gate.
    rests_on: Option<u64>,
    /// The question to the leader that such a read waits for, or has waited for.
    pub(crate) question: Option<Question>,
    /// Bytes of the client's input that are done with.
    pub(crate) input_at: u64,
    /// A reply depends on a record of a store that was taken away before replicas had confirmed it. None leaves any
    /// more.
    pub(crate) is_lost: bool,
    /// MULTI was called.
    pub(crate) multi: Option<Box<Multi>>,
    /// The watched keys, if there are any.
    pub(crate) watching: Option<Arc<Watching>>,
    pub(crate) waiting: Waiting,
    /// Long replies that have begun.
    pub(crate) streams: u64,
    /// The long reply that was under way at the last look, as a number of `streams`, and when it was seen first, in
    /// microseconds.
    stream_seen: (u64, u64),
    /// The time that the session's writes have still to wait because the flush is behind: many short times become one
    /// that a timer can measure.
    pub(crate) debt: Duration,
    /// The request that is held has been counted for the limits of its user.
    pub(crate) is_counted: bool,
    /// The event that has come for the command that waits.
    pub(crate) event: Option<What>,
    /// The moment when the I/O pool began what has come back, if it was there.
    pub(crate) begun: Option<Moment>,
    /// The times of the command that waits.
    pub(crate) timed: Option<Box<Timed>>,
    /// Commands whose replies wait for the log, in order.
    pub(crate) unacknowledged: Vec<Unacknowledged>,
    /// The rows that were loaded last, until the requests that came together with the one that lacked them have run.
    pub(crate) pins: Option<Box<Pins>>,
}

/// The question to a group's leader that a read beside it waits for, or has waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub round: u64,
    /// The store whose data are to have what is answered.
    pub store_version: u64,
    /// The end of the input that had come when this was asked: requests in it need no question of their own.
    pub through: u64,
}

/// A transaction that is being queued.
#[derive(Default)]
pub(crate) struct Multi {
    pub commands: PartedList<Queued>,
    /// Bytes of all queued arguments.
    pub bytes: usize,
    /// A command was refused when it came: EXEC refuses all.
    pub refused: bool,
}

impl Multi {
    /// Returns the bytes of the queue and of all queued arguments.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.bytes + self.commands.memory_bytes()
    }
}

/// The wait that has to end before the connection's next request is looked at.
#[derive(Default)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// The end of a pause; its request was not looked at.
    Paused,
    /// A lock, its turn or some time; the command is here.
    Here(Box<Pending>),
    /// The I/O pool, which has the command.
    Pool,
    /// The time, the log or CLIENT UNBLOCK, until which the reply is held back.
    Blocked(Box<Held>),
    /// A key of its command, its time or CLIENT UNBLOCK.
    ForKeys(Arc<Waiter>),
    /// A long reply: its next piece is to be asked for when the output has room.
    Stream(Box<ReplyPieces>),
    /// The rest of very many names to subscribe to, or not any more.
    Steps(Box<Steps>),
    /// A long reply: the I/O pool is making its next piece.
    Piece,
}

/// The facts that a Redis that is to follow may say of itself.
const REPLICA_SAYS_MAX: usize = 16;

impl State {
    /// Notes what a Redis that is to follow says of itself; of what it says twice the last word counts.
    pub(crate) fn note_replica(&mut self, said: Vec<Vec<u8>>) {
        let before = self.replica_says.take();
        let all = before.iter().flat_map(|before| before.iter().cloned()).chain(said);
        let all: Vec<Vec<u8>> = all.collect();
        self.replica_says = Some(all[all.len().saturating_sub(REPLICA_SAYS_MAX)..].into());
    }

    /// Whether the running command's reply is sent, where not every one is.
    pub(crate) fn wants_reply(&mut self) -> bool {
        match self.replies {
            Replies::On => return true,
            Replies::Off => {}
            Replies::SkipNext => self.replies = Replies::Skip,
            Replies::Skip => self.replies = Replies::On,
        }
        false
    }
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, state: State, limits: Limits, limits_version: u64) -> Self {
        Session {
            id: client.id,
            client,
            checks: state.checks(),
            parser: Parser::new(Limits { authenticated: state.authenticated, ..limits }),
            state,
            is_monitor: false,
            notices_due: None,
            shown_tracker: None,
            last_command: None,
            deferred: Deferred::default(),
            away_bytes: 0,
            unmade_bytes: 0,
            limits_version,
            gate: Index(0),
            store_version: 0,
            led_calls: 0,
            is_led: false,
            reads_beside: false,
            rests_on: None,
            question: None,
            input_at: 0,
            is_lost: false,
            multi: None,
            watching: None,
            waiting: Waiting::Nothing,
            debt: Duration::ZERO,
            is_counted: false,
            event: None,
            begun: None,
            timed: None,
            unacknowledged: Vec::new(),
            pins: None,
            streams: 0,
            stream_seen: (0, 0),
        }
    }

    /// Returns the client's names, and the user that it is logged in as.
    pub fn names(&self) -> Arc<Names> {
        self.state.names.clone()
    }

    /// Takes the words that replication is to answer on the session's connection.
    pub fn take_handed_over(&mut self) -> Option<Vec<Vec<u8>>> {
        self.state.handed_over.take()
    }

    /// Returns how many calls have begun that a consensus group's leader alone runs.
    #[inline]
    pub fn led_calls(&self) -> u64 {
        self.led_calls
    }

    /// The newest record that a reply made so far depends on.
    #[inline]
    pub fn gate(&self) -> Index {
        self.gate
    }

    /// The newest record of the store of this version that a reply made so far depends on; None if the last one that
    /// depends on any is of another store.
    #[inline]
    pub(crate) fn gate_of(&self, store_version: u64) -> Option<Index> {
        (self.store_version == store_version).then_some(self.gate)
    }

    /// The session's replies depend on records of another store from now on, whose indexes may be lower: the data were
    /// exchanged.
    #[cold]
    pub(crate) fn begin_store(&mut self, store_version: u64) {
        (self.store_version, self.gate) = (store_version, Index(0));
        self.unacknowledged.iter_mut().for_each(|command| command.gate = Index(0));
    }

    /// Has replies from now on wait for this record, too.
    #[inline]
    pub(crate) fn depend_on(&mut self, gate: Index) {
        self.gate = self.gate.max(gate);
    }

    /// Notes a command whose reply waits for the log.
    pub(crate) fn add_unacknowledged(&mut self, command: Unacknowledged) {
        let earlier = self.unacknowledged.last().map(|last| last.gate);
        assert!(earlier.is_none_or(|earlier| earlier <= command.gate), "a gate never goes back: {earlier:?}");
        self.unacknowledged.push(command);
    }

    /// Hands over what the session waits for; `Worker::turn` goes on with it.
    pub fn deliver(&mut self, event: Event) {
        debug_assert_eq!(event.session, self.id);
        // An event may come too late, or too early: a session that has had its reply has no use for it, one that is
        // about to wait looks by itself, and none must lose what it waits for now.
        let concerns_blocked = matches!(event.what, What::Look);
        let is_blocked = matches!(self.waiting, Waiting::Blocked(_) | Waiting::ForKeys(_));
        if !concerns_blocked || is_blocked && self.event.is_none() {
            (self.event, self.begun) = (Some(event.what), event.begun);
        }
    }

    /// Hands over something that concerns one way of waiting only; whether the session waits so.
    pub fn deliver_unasked(&mut self, event: Event) -> bool {
        let concerns = matches!((&self.waiting, &event.what), (Waiting::Paused, What::Retry));
        if concerns {
            self.deliver(event);
        }
        concerns
    }

    /// The time that a slowed write had to wait is over.
    pub fn wake(&mut self) {
        self.event = Some(What::Retry);
    }

    /// Adds to what the session's writes have to wait; the whole of it, to be waited now, once it is worth a timer.
    pub(crate) fn owe(&mut self, wait: Duration) -> Option<Duration> {
        self.debt += wait;
        (self.debt >= SLEEP_MIN).then(|| std::mem::take(&mut self.debt))
    }

    /// Whether a command is under way elsewhere; its effects may still come.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.waiting, Waiting::Nothing)
    }

    /// A call begins on data of this version, which count if a group's member runs it, as its leader or beside it.
    pub(crate) fn rest_on(&mut self, store_version: u64) {
        if self.is_led || self.reads_beside {
            self.rests_on.get_or_insert(store_version);
        }
    }

    /// The call waits for keys: whatever data it is served from, it is looked at then.
    pub(crate) fn rest_on_nothing(&mut self) {
        self.rests_on = None;
    }

    /// Returns whether what has been replied to calls of a group may leave a member with data of this version: what was
    /// known when they began is true of these. To be asked before replies are given their gates.
    pub fn may_leave(&mut self, store_version: u64) -> bool {
        let may_leave = self.rests_on.is_none_or(|rests_on| rests_on == store_version);
        if may_leave && !self.is_waiting() {
            self.rests_on = None;
        }
        may_leave
    }

    /// Whether a command is under way elsewhere that a consensus group's leader alone runs.
    pub fn waits_as_led(&self) -> bool {
        self.is_waiting() && self.is_led
    }

    /// Whether there are commands that end when their replies leave: tell `Worker::on_left`.
    #[inline]
    pub fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    /// Returns the client's address as SLOWLOG shows it.
    pub(crate) fn address(&self) -> &str {
        &self.client.peer.address
    }

    /// Whether a blocking command waits: its client's end ends it.
    pub fn waits_for_keys(&self) -> bool {
        matches!(self.waiting, Waiting::ForKeys(_))
    }

    /// Returns whether the session's command waits for keys or for the exclusion, which others have.
    pub(crate) fn waits_for_its_turn(&self) -> bool {
        matches!(self.waiting, Waiting::Here(_))
    }

    /// Returns whether the session is in the middle of a command that takes effect step by step.
    pub fn takes_steps(&self) -> bool {
        matches!(self.waiting, Waiting::Steps(_))
    }

    /// Whether CLIENT PAUSE keeps it waiting, and not the question to a group's leader.
    pub fn is_paused(&self) -> bool {
        matches!(self.waiting, Waiting::Paused) && !self.reads_beside
    }

    /// Whether a long reply has begun and not ended: nothing may come in between.
    pub fn is_half_out(&self) -> bool {
        matches!(self.waiting, Waiting::Stream(_) | Waiting::Piece)
    }

    /// Whether the long reply under way has been so for longer than `age_max_us`: it may keep files of the base. To be
    /// asked about once a second.
    pub fn lingers(&mut self, now_us: u64, age_max_us: u64) -> bool {
        if self.stream_seen.0 != self.streams {
            self.stream_seen = (self.streams, now_us);
        }
        self.is_half_out() && now_us.saturating_sub(self.stream_seen.1) > age_max_us
    }

    /// The kind of client that it is, which decides how much it may leave unread.
    pub fn kind(&self) -> ClientType {
        if self.state.subscriptions.is_empty() { ClientType::Normal } else { ClientType::PubSub }
    }

    /// Returns whether the client is shown all commands.
    pub fn monitors(&self) -> bool {
        self.state.monitors
    }

    /// Returns whether the client may be sent what it did not ask for.
    pub(crate) fn hears(&self) -> bool {
        self.listens() || self.state.tracker.is_some() || self.client.hears_for_others.load(Ordering::Relaxed)
    }

    /// Returns whether the client may be silent for as long as it likes: it only listens.
    pub fn listens(&self) -> bool {
        self.state.monitors || !self.state.subscriptions.is_empty()
    }

    /// Bytes that are going to follow what is in the output: of a long reply that has not been made, as far as they are
    /// known, and of messages that wait for its end.
    pub fn coming_bytes(&self) -> usize {
        self.unmade_bytes + self.deferred.bytes()
    }

    /// Bytes of queued commands and watched keys.
    #[inline]
    pub(crate) fn queued_bytes(&self) -> usize {
        let watched = self.watching.as_ref().map_or(0, |watching| watching.bytes());
        self.multi.as_deref().map_or(0, Multi::memory_bytes) + watched
    }

    /// Bytes of the arguments of a command that waits.
    #[inline]
    pub(crate) fn argument_bytes(&self) -> usize {
        match &self.waiting {
            Waiting::Here(pending) => pending.bytes,
            Waiting::Pool => self.away_bytes,
            Waiting::ForKeys(waiter) => waiter.bytes(),
            Waiting::Steps(steps) => steps.bytes(),
            _ => 0,
        }
    }

    /// Bytes of a long reply under way: the rows that it holds, for the most part.
    #[inline]
    pub fn reply_bytes(&self) -> usize {
        match &self.waiting {
            Waiting::Stream(pieces) => pieces.weight().held_bytes,
            Waiting::Piece => self.away_bytes,
            _ => 0,
        }
    }

    /// Bytes of a reply that is held back. Until its wait is over, no reader can take it: the client is not spared for
    /// it.
    #[inline]
    fn held_bytes(&self) -> usize {
        match &self.waiting {
            Waiting::Blocked(held) => held.bytes,
            _ => 0,
        }
    }

    /// Bytes that the session takes beside its connection's buffers: of its own, and of messages that it shares with
    /// others.
    #[inline]
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let own = self.queued_bytes() + self.argument_bytes() + self.reply_bytes() + self.held_bytes();
        let own = own + self.state.subscriptions.bytes();
        let own = own + self.shown_tracker.as_ref().map_or(0, |tracker| tracker.bytes());
        let (deferred, shared) = self.deferred.own_and_shared_bytes();
        (IDLE_BYTES + own + deferred, shared)
    }

    /// Whether something was delivered that the next turn goes on with.
    pub fn has_event(&self) -> bool {
        self.event.is_some()
    }

    /// Whether its next requests are queued for EXEC.
    pub fn in_multi(&self) -> bool {
        self.multi.is_some()
    }

    /// Forgets the request that was read in part: its bytes are dropped.
    pub fn restart_request(&mut self) {
        self.parser.restart();
    }

    /// Returns the bytes that the rest of the request under way has at least, as its client claims.
    pub fn needed_bytes(&self) -> usize {
        self.parser.needed()
    }
}
