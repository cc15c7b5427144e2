//! From a client's bytes to its replies: the hot path of the server.
//!
//! `Worker::turn` parses what a connection has sent and runs it command by command. Most commands take the short way in
//! here: their key locks, one transaction in memory, their reply into the output. Whatever cannot go on becomes a
//! `Pending` in its session and takes the long way (`wait.rs`). MULTI and its relatives are in `multi.rs`.

use crate::ahead::{Ahead, Behind, Call as Planned, Located};
use crate::attention::Attended;
use crate::clients::{Client, Names, Peer};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::host::Desk;
use crate::inbox::{Inbox, Notice, Wake};
use crate::locks::{Claims, Duration as Held, Hold, Refused, Turn as LockTurn};
use crate::pool::Job;
use crate::pubsub::{Change, Subscribers};
use crate::session::{Effect, Event, Pending, Session, State, Waiting, What, Work};
use crate::statistics::Outcome;
use haypile_commands::host::Replies;
use haypile_commands::table::DataFn;
use haypile_commands::{Args, Control, Entry, Error, Flag, Run};
use haypile_config::Durability;
use haypile_log::Index;
use haypile_resp::{self as resp, Limits, Reply};
use haypile_store::{Call, Key, Mode, Stop, Store, TxnBuffers, WritePressure};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Commands of one connection in one turn. Then the others have theirs: what they wait for is bounded, and a pipeline of
/// this length has its costs shared well enough.
const TURN_COMMANDS_MAX: usize = 1024;

/// Bytes of output at which a connection's next commands wait until its client has read some.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// One event loop's part of the engine.
pub struct Worker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) desk: Workbench,
}

/// What one event loop reuses from command to command.
pub(crate) struct Workbench {
    pub index: usize,
    pub inbox: Arc<Inbox>,
    pub buffers: TxnBuffers,
    claims: Claims,
    ahead: Ahead,
    /// What the turns since the last `start_jobs` have left for the I/O pool.
    pub jobs: Vec<Job>,
    /// Sessions that wait for the I/O pool.
    pub on_pool: usize,
    /// The exclusion was entered in this turn.
    inside: bool,
    /// Who gets which messages.
    pub subscribers: Subscribers,
    /// Sessions that a pause keeps waiting.
    paused: HashSet<u64>,
    /// Wall clock of this turn, in milliseconds since 1970.
    pub now_ms: u64,
    seed: u64,
    /// How the running command ends, if not well.
    pub(crate) outcome: Outcome,
    /// Replies wait until the log is synced.
    pub(crate) syncs: bool,
    /// The version of the store that this turn uses.
    store_version: u64,
    /// The version of the settings that `limits` come from.
    limits_version: u64,
    limits: Limits,
}

/// What a turn has done, and what its connection does next.
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
    /// Take the next turn when an event for the session has been delivered, or when this time has passed. The client may
    /// go meanwhile: nothing of it is under way elsewhere.
    Block(Option<Duration>),
    /// Take the next turn when the client has read some of the output.
    Drain,
    /// Send the output, then close.
    Close,
}

/// Something that comes for a session unasked.
pub enum Delivery<'a> {
    /// Bytes that the client is sent: `Session::push` takes them.
    Push { bytes: &'a [u8], gate: Index },
    /// What `Session::deliver_unasked` takes.
    Event(Event),
    /// Its connection is to end.
    Close,
}

/// Why a command did not run to its end at once.
pub(crate) enum Hindrance {
    /// Somebody is alone.
    Outside,
    Locked(Refused),
    /// Rows have to be loaded.
    Load,
    /// It is going to take long.
    Long,
    Slow(Duration),
    /// It has to be alone, or is a block: only the long way can do that.
    LongWay,
}

impl Worker {
    /// Event loop `index` of `engine`. `wake` is called, from any thread, when its inbox is no longer empty.
    pub fn new(engine: Arc<Engine>, index: usize, wake: Wake) -> Self {
        assert!(index < engine.workers(), "the engine was made for this many event loops");
        let (limits_version, limits) = engine.limits();
        let inbox = Arc::new(Inbox::new(wake));
        engine.add_inbox(index, inbox.clone());
        Worker {
            desk: Workbench {
                index,
                inbox,
                buffers: TxnBuffers::default(),
                claims: Claims::default(),
                ahead: Ahead::default(),
                jobs: Vec::new(),
                on_pool: 0,
                inside: false,
                subscribers: Subscribers::default(),
                paused: HashSet::new(),
                now_ms: engine.now_ms(),
                seed: engine.random_seed(),
                outcome: Outcome::Done,
                syncs: engine.settings.config().durability == Durability::Fsync,
                store_version: 0,
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
        &self.desk.inbox
    }

    /// This event loop's numbers.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.engine.counters(self.desk.index)
    }

    /// A new client.
    pub fn connect(&mut self, peer: Peer) -> Session {
        let Worker { engine, desk } = self;
        engine.counters(desk.index).connections.add(1);
        desk.refresh_limits(engine);
        let client = Arc::new(Client::new(engine.next_session(), desk.index, peer, engine.now_ms()));
        engine.clients.add(client.clone());
        let state = State { is_local: client.peer.is_local, ..engine.fresh_state() };
        Session::new(client, state, desk.limits, desk.limits_version)
    }

    /// Takes what others have for sessions of this event loop, and calls `deliver` for each of those. To be called before
    /// each turn if the inbox has notices.
    pub fn take_notices(&mut self, mut deliver: impl FnMut(u64, Delivery<'_>)) {
        let Worker { engine, desk } = self;
        let (notices, was_congested) = desk.inbox.take_notices();
        if was_congested {
            engine.attention.set_congested(false);
        }
        for notice in notices {
            match notice {
                Notice::Message(message) => {
                    let gate = message.gate;
                    desk.subscribers.route(&message, |session, bytes| deliver(session, Delivery::Push { bytes, gate }));
                }
                Notice::Line(bytes) => {
                    let push = || Delivery::Push { bytes: &bytes, gate: Index(0) };
                    desk.subscribers.monitors.iter().for_each(|&session| deliver(session, push()));
                }
                Notice::Close(session) => deliver(session, Delivery::Close),
                Notice::Resume => {
                    for session in std::mem::take(&mut desk.paused) {
                        deliver(session, Delivery::Event(Event { session, what: What::Retry, begun: None }));
                    }
                }
            }
        }
    }

    /// Whether some session waits for the I/O pool: others are answered without delay then, rather than together.
    pub fn has_slow_company(&self) -> bool {
        self.desk.on_pool > 0
    }

    /// Whether the turns have left something for the I/O pool.
    pub fn has_jobs(&self) -> bool {
        !self.desk.jobs.is_empty()
    }

    /// Hands the I/O pool what the turns have left for it. To be called when the replies of the round have left: to wake a
    /// thread takes longer than most commands do.
    pub fn start_jobs(&mut self) {
        if self.has_jobs() {
            self.engine.pool.submit_all(&mut self.desk.jobs);
        }
    }

    /// A client has gone. It was not waiting for anything: what waits ends first.
    pub fn disconnect(&mut self, session: &mut Session) {
        debug_assert!(!matches!(session.waiting, Waiting::Pool | Waiting::Piece), "its event comes first");
        let Worker { engine, desk } = self;
        desk.reset(engine, session);
        if matches!(session.waiting, Waiting::Blocked(_)) {
            engine.blocked.remove(session.id);
        }
        desk.paused.remove(&session.id);
        engine.clients.remove(session.id);
        engine.on_disconnect();
    }

    /// Runs what `input` holds for `session`, replies into `out`. `now_ms` is the wall clock.
    pub fn turn(&mut self, session: &mut Session, input: &[u8], out: &mut Vec<u8>, now_ms: u64) -> Turn {
        let Worker { engine, desk } = self;
        desk.now_ms = now_ms;
        let turn = desk.turn(engine, session, input, out);
        desk.leave(engine);
        session.client.show(session, desk.now_ms, session.last_command);
        turn
    }
}

impl Workbench {
    fn turn(&mut self, engine: &Engine, session: &mut Session, input: &[u8], out: &mut Vec<u8>) -> Turn {
        if !matches!(session.waiting, Waiting::Nothing) {
            let next = self.go_on(engine, session, out);
            if !session.is_waiting()
                && let Some(timed) = session.timed.take()
            {
                self.settle_timed(engine, session, *timed);
            }
            if next != Next::Read {
                return Turn { consumed: 0, commands: 0, next };
            }
        }
        if session.limits_version != self.limits_version || self.limits_version != engine.settings.version() {
            self.refresh_limits(engine);
            session.limits_version = self.limits_version;
            self.set_limits(session);
        }
        // In this order: a store that is exchanged in between is not run on.
        self.store_version = engine.store_version();
        let store = engine.store();
        let store = store.as_deref();
        let mut ahead = std::mem::take(&mut self.ahead);
        let (mut consumed, mut commands) = (0, 0);
        let next = loop {
            if commands >= TURN_COMMANDS_MAX {
                break Next::Yield;
            }
            let rest = &input[consumed..];
            // Who still has to authenticate has its limits changed by the very next request.
            let behind = ahead.parse(&mut session.parser, rest, session.state.authenticated);
            let (bytes, count, next) = self.run_ahead(engine, store, session, &ahead, rest, out);
            consumed += bytes;
            commands += count;
            if next != Next::Read {
                session.parser.restart();
                break next;
            }
            match behind {
                Behind::Unknown => {}
                Behind::Incomplete => break Next::Read,
                Behind::Wrong(error) => {
                    error.write_reply(out);
                    engine.statistics.errors.add_kind(b"ERR");
                    engine.counters(self.index).error_replies.add(1);
                    break Next::Close;
                }
            }
        };
        engine.counters(self.index).commands.add(commands as u64);
        if matches!(next, Next::Read | Next::Drain | Next::Close) {
            session.pins = None;
        }
        self.ahead = ahead;
        Turn { consumed, commands, next }
    }

    /// Runs what was parsed ahead, until something hinders: the bytes and the commands that are done with.
    #[inline]
    fn run_ahead(
        &mut self,
        engine: &Engine,
        store: Option<&Store>,
        session: &mut Session,
        ahead: &Ahead,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, usize, Next) {
        let located = Located::new(ahead, input, &engine.table, store, session.state.database);
        let (mut bytes, mut commands) = (0, 0);
        let mut started = engine.statistics.clock.now();
        for (at, call) in located.calls.iter().enumerate() {
            if out.len() >= OUTPUT_BYTES_MAX {
                return (bytes, commands, Next::Drain);
            }
            let before = std::mem::replace(&mut bytes, ahead.end(at));
            let Some(call) = call else { continue };
            let attended = match engine.attention.bits() | session.attention {
                0 => Attended::Go,
                _ => self.attend(engine, session, call, out),
            };
            let ran = match attended {
                Attended::Go => self.command(engine, store, session, call, &located.keys, out),
                Attended::Answered(next) => Ok(next),
                Attended::Held(next) => return (before, commands, next),
            };
            commands += 1;
            let next =
                ran.unwrap_or_else(|hindrance| self.take_long_way(engine, session, &located, at, hindrance, out));
            if let Ok(entry) = &call.entry {
                if session.is_waiting() {
                    self.put_off(engine, session, entry, call.args, started);
                } else {
                    started = self.settle(engine, session, entry, call.args, started);
                }
            }
            if next != Next::Read {
                return (bytes, commands, next);
            }
            // What this command has sent to its own client comes before the next reply.
            if session.listens() && self.inbox.has_notices() {
                return (bytes, commands, Next::Yield);
            }
        }
        (bytes, commands, Next::Read)
    }

    /// One request, from its name to its reply.
    #[inline]
    fn command(
        &mut self,
        engine: &Engine,
        store: Option<&Store>,
        session: &mut Session,
        call: &Planned<'_>,
        located: &[Key<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Next, Hindrance> {
        let args = call.args;
        let entry = match &call.entry {
            Ok(entry) => *entry,
            Err(error) => return Ok(self.refuse_request(engine, session, args, error.clone(), out)),
        };
        session.last_command = Some(entry.id);
        let located = &located[call.keys.clone()];
        if store.is_none() && !entry.flags.has(Flag::Loading) {
            return Ok(self.refuse(engine, session, engine.loading_error(), out));
        }
        if session.multi.is_some() && is_queued(entry) {
            return Ok(self.queue(engine, session, entry, args, out));
        }
        match (entry.command.run, store) {
            (Run::Read(run), Some(store)) => self.data::<false>(engine, store, session, entry, run, args, located, out),
            (Run::Write(run), Some(store)) => self.data::<true>(engine, store, session, entry, run, args, located, out),
            (Run::Session(run), _) => {
                session.client.show(session, self.now_ms, session.last_command);
                let mut desk = Desk {
                    engine,
                    session: session.id,
                    state: &mut session.state,
                    txn: None,
                    rehearsal: false,
                    may_wait: false,
                };
                match run(&mut desk, Args::from(args)) {
                    Err(Error::Stop(Stop::Long)) if store.is_some() => Err(Hindrance::Long),
                    // The I/O pool starts with the store.
                    Err(Error::Stop(Stop::Long)) => Ok(self.refuse(engine, session, engine.loading_error(), out)),
                    reply => {
                        if let Some(wait) = session.state.wait.take() {
                            return Ok(self.block(engine, session, wait, out));
                        }
                        if let Some(how) = session.state.reload.take() {
                            return Ok(self.reload(engine, session, how));
                        }
                        let reply = reply.unwrap_or_else(Error::into_reply);
                        self.adopt(engine, session);
                        Ok(self.reply(engine, session, reply, Index(0), out))
                    }
                }
            }
            (Run::Control(control), _) => Ok(self.control(engine, session, control, args, out)),
            (Run::Exclusive(_), Some(_)) => Err(Hindrance::LongWay),
            (Run::Read(_) | Run::Write(_) | Run::Exclusive(_), None) => {
                Ok(self.refuse(engine, session, engine.loading_error(), out))
            }
            (Run::Container, _) => unreachable!("a request for a container is resolved to its subcommand"),
        }
    }

    /// The short way: one command on its keys, in memory. A hindrance leaves nothing behind.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one request, handed on as they are")]
    fn data<const WRITES: bool>(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &mut Session,
        entry: &Entry,
        run: DataFn,
        args: resp::Args<'_>,
        located: &[Key<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Next, Hindrance> {
        if WRITES {
            match pressure(store, entry.flags.has(Flag::Denyoom)) {
                WritePressure::Go => {}
                WritePressure::Slow(wait) => {
                    if let Some(wait) = session.owe(wait) {
                        return Err(Hindrance::Slow(wait));
                    }
                }
                WritePressure::Stop(why) => return Ok(self.refuse(engine, session, Reply::error(why), out)),
            }
        }
        // Before the keys: which space they are in must not change until they are locked.
        if !self.enter(engine) || self.store_version != engine.store_version() {
            return Err(Hindrance::Outside);
        }
        let database = session.state.database;
        let mut keys: SmallVec<[(usize, Key<'_>); 2]> = SmallVec::new();
        self.claims.clear();
        for (number, (at, spec)) in entry.command.keys(Args::from(args)).enumerate() {
            let key = match located.get(number) {
                Some(key) if store.is_in(key, database) => *key,
                _ => store.key(database, args.get(at)),
            };
            keys.push((at, key));
            self.claims.add(key.hash, if WRITES && spec.writes() { Hold::Exclusive } else { Hold::Shared });
        }
        self.claims.arrange();
        // What reads one row sees it as it is at one moment, without waiting for who holds its key.
        let mut locked = WRITES || keys.len() != 1;
        loop {
            if locked {
                engine.locks.try_lock(&self.claims, LockTurn::Newcomer, Held::Moment).map_err(Hindrance::Locked)?;
            }
            let pins = session.pins.as_deref();
            let call = Call { now_ms: self.now_ms, seed: self.next_seed(), database, mode: Mode::Memory, pins };
            let mut txn = store.begin(std::mem::take(&mut self.buffers), call);
            txn.note_events(engine.events());
            if !locked {
                txn.read_one_row();
            }
            let mut reply = run(&mut txn, Args::with_keys(args, &keys));
            if WRITES && reply.is_ok() {
                match txn.commit() {
                    Ok(_) if engine.watches.any() => engine.watches.on_commit(&txn),
                    Ok(_) => {}
                    Err(stop) => reply = Err(Error::Stop(stop)),
                }
            }
            if !txn.events().is_empty() && reply.is_ok() {
                // Under the locks: in the order in which the keys changed.
                engine.tell(&txn);
            }
            let (gate, lookups) = (txn.gate(), txn.lookups());
            self.buffers = txn.finish();
            if locked {
                engine.locks.unlock(&self.claims);
            }
            return match reply {
                Ok(reply) => {
                    engine.counters(self.index).add_lookups(lookups);
                    Ok(self.reply(engine, session, reply, gate, out))
                }
                Err(Error::Stop(Stop::NeedsLocks)) if !locked => {
                    locked = true;
                    continue;
                }
                Err(Error::Stop(Stop::WouldBlock)) => Err(Hindrance::Load),
                Err(Error::Stop(Stop::Long)) => Err(Hindrance::Long),
                Err(error) => {
                    if !matches!(error, Error::Stop(_)) {
                        engine.counters(self.index).add_lookups(lookups);
                    }
                    Ok(self.reply(engine, session, error.into_reply(), gate, out))
                }
            };
        }
    }

    /// Keeps command `at` in its session and sees to it that it goes on.
    #[cold]
    fn take_long_way(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        located: &Located<'_>,
        at: usize,
        hindrance: Hindrance,
        out: &mut Vec<u8>,
    ) -> Next {
        let calls = &located.calls[at..];
        let Some(Some(Planned { args, entry: Ok(entry), .. })) = calls.first() else {
            unreachable!("a command that was hindered was going to run")
        };
        let seed = self.next_seed();
        let pending = Pending::new(Work::Command(entry.id, args.to_owned_args()), seed);
        match hindrance {
            Hindrance::LongWay => self.run_pending(engine, session, pending, out),
            Hindrance::Load => self.load_together(engine, session, pending, calls),
            hindrance => self.hold(engine, session, pending, hindrance),
        }
    }

    /// Encodes a reply whose command has ended.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        reply: Reply,
        gate: Index,
        out: &mut Vec<u8>,
    ) -> Next {
        session.gate = session.gate.max(gate);
        if reply.is_error() {
            self.outcome = Outcome::Failed;
            engine.counters(self.index).error_replies.add(1);
            engine.statistics.errors.add(&reply);
        }
        if session.state.replies != Replies::On && !session.state.wants_reply() {
            return if session.state.closing { Next::Close } else { Next::Read };
        }
        if reply.has_stream() {
            session.waiting = Waiting::Stream(Box::new(reply.into_pieces()));
            return self.go_on(engine, session, out);
        }
        reply.encode(session.state.protocol, out);
        if session.state.closing { Next::Close } else { Next::Read }
    }

    /// Answers a request that is not run; a transaction that is being queued will not run either.
    #[cold]
    pub(crate) fn refuse(&mut self, engine: &Engine, session: &mut Session, reply: Reply, out: &mut Vec<u8>) -> Next {
        if let Some(multi) = &mut session.multi {
            multi.refused = true;
        }
        let next = self.reply(engine, session, reply, Index(0), out);
        self.outcome = Outcome::Rejected;
        next
    }

    /// Answers a request that is none: no such command, or a wrong number of arguments.
    #[cold]
    fn refuse_request(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        args: resp::Args<'_>,
        error: Error,
        out: &mut Vec<u8>,
    ) -> Next {
        if let Error::WrongArity(name) = &error
            && let Some(entry) = engine.table.find_full(name.as_bytes())
        {
            engine.counters(self.index).commands_by_id.of(entry.id).rejected.add(1);
        }
        let entry = engine.table.find(args.get(0));
        let is_exec = entry.is_some_and(|entry| matches!(entry.command.run, Run::Control(Control::Exec)));
        if is_exec {
            // An EXEC that is refused ends the transaction all the same, and says so even where there is none, as in Redis.
            session.multi = None;
            engine.unwatch(session);
            let text = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
            let next = self.reply(engine, session, Reply::error(text), Index(0), out);
            self.outcome = Outcome::Done;
            return next;
        }
        let next = self.refuse(engine, session, error.into_reply(), out);
        // It was counted above: nobody else knows which command was meant.
        self.outcome = Outcome::Done;
        next
    }

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

    /// A fresh start for a command's random numbers. Consecutive ones are far apart in the sequence that a transaction makes
    /// of them.
    #[inline]
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        self.seed
    }

    /// Makes what session commands have changed true for everybody else.
    #[inline]
    pub(crate) fn adopt(&mut self, engine: &Engine, session: &mut Session) {
        if session.state.changed {
            self.adopt_changed(engine, session);
        }
    }

    #[cold]
    fn adopt_changed(&mut self, engine: &Engine, session: &mut Session) {
        session.state.changed = false;
        for effect in std::mem::take(&mut session.state.effects) {
            match effect {
                Effect::Subscription(change) => self.subscribers.change(engine, self.index, session.id, &change),
                Effect::Publish { kind, channel, payload, audience } => {
                    engine.publish(kind, channel, &payload, audience, Index(0));
                }
            }
        }
        let state = &session.state;
        session.client.show_names(&state.names);
        session.client.show_subscriptions(state.subscriptions.counts());
        session.attention = state.attention();
        if state.monitors != session.is_monitor {
            session.is_monitor = state.monitors;
            engine.set_monitor(self.index, state.monitors);
            match state.monitors {
                true => self.subscribers.monitors.insert(session.id),
                false => self.subscribers.monitors.remove(&session.id),
            };
        }
        self.set_limits(session);
    }

    /// RESET: everything as it was when the client came, but for what it told about its library.
    pub(crate) fn reset(&mut self, engine: &Engine, session: &mut Session) {
        session.multi = None;
        engine.unwatch(session);
        let fresh = engine.fresh_state();
        let ended = session.state.subscriptions.iter().map(|(kind, name)| Change {
            kind,
            name: name.clone(),
            subscribed: false,
        });
        let effects = ended.map(Effect::Subscription).collect();
        let names = Names { name: Vec::new(), ..Names::clone(&session.state.names) };
        session.state = State {
            names: Arc::new(names),
            effects,
            no_evict: session.state.no_evict,
            is_local: session.state.is_local,
            ..fresh
        };
        self.adopt_changed(engine, session);
    }

    fn set_limits(&self, session: &mut Session) {
        session.parser.set_limits(Limits { authenticated: session.state.authenticated, ..self.limits });
    }

    /// Notes that a pause holds the session, so that its end can be told to it.
    pub(crate) fn hold_back(&mut self, session: &Session) {
        self.paused.insert(session.id);
    }

    pub(crate) fn go_on_after_pause(&mut self, session: &Session) {
        self.paused.remove(&session.id);
    }

    fn refresh_limits(&mut self, engine: &Engine) {
        (self.limits_version, self.limits) = engine.limits();
        self.syncs = engine.settings.config().durability == Durability::Fsync;
    }

    /// The bound of what a client may have under way.
    pub(crate) fn request_bytes_max(&self) -> usize {
        self.limits.request_bytes_max as usize
    }

    /// A waiter that brings the session back to this event loop.
    pub(crate) fn waiter(&self, session: u64, what: crate::session::What) -> crate::locks::Waiter {
        let inbox = self.inbox.clone();
        Box::new(move || inbox.push(Event { session, what, begun: None }))
    }
}

/// What the store says to a write; one that cannot make the data larger is let through where it makes room.
#[inline]
pub(crate) fn pressure(store: &Store, grows: bool) -> WritePressure {
    if grows { store.pressure() } else { store.pressure_to_shrink() }
}

/// Whether MULTI queues the command, rather than letting it run at once.
pub(crate) fn is_queued(entry: &Entry) -> bool {
    match entry.command.run {
        Run::Control(control) => matches!(control, Control::Unwatch | Control::Save),
        _ => entry.command.name != "quit",
    }
}
