//! From a client's bytes to its replies: the hot path of the server.
//!
//! `Worker::turn` parses what a connection has sent and runs it command by command. Most commands take the short way
//! (`short`): their key locks, one transaction in memory, their reply into the output. Whatever cannot go on becomes a
//! `Pending` in its session and takes the long way (`wait`). MULTI and its relatives are in `multi`, replies in
//! `reply`.

use crate::clients::checks::REPEATS;
use crate::clients::pending::{Pending, Work};
use crate::clients::session::{Session, State, Waiting};
use crate::clients::statistics::{Moment, Sizes};
use crate::clients::steps::Steps;
use crate::keys::locks::Refused;
use crate::run::ahead::{Ahead, Behind, Call as Planned, Located};
use crate::run::check::Checked;
use crate::run::engine::Engine;
use crate::run::host::SessionHost;
use crate::run::short::{Once, Try};
use crate::run::worker::{Next, Position, Turn, WorkerState};
use haypile_commands::error::refusal;
use haypile_commands::{Args, Body, Entry, Error, Flag, call_host};
use haypile_log::Index;
use haypile_resp::{self as resp, ProtocolError, Reply};
use haypile_store::{Key, Stop, Store, WritePressure};
use std::time::Duration;

/// Commands of one connection in one turn. Then the others have theirs: what they wait for is bounded, and a pipeline
/// of this length has its costs shared well enough.
const TURN_COMMANDS_MAX: usize = 1024;

/// The reason why a command that was to run at once is deferred.
pub(crate) enum Deferral {
    /// An exclusive run is under way.
    Outside,
    Locked(Refused),
    /// Rows have to be loaded.
    Load,
    /// The command is going to take long.
    Long,
    Slow(Duration),
    /// The command waits for another server, and for its turn to do so no longer than this.
    Remote(Duration),
    /// The command runs exclusively, is a block, or has to wait for keys: only the long way can do that.
    LongWay,
    /// The command has come to keys that are not among its arguments.
    MoreLocks,
    /// Clients wait for a key that the command makes: the long way serves them.
    Awaited,
}

impl WorkerState {
    pub(crate) fn turn(&mut self, engine: &Engine, session: &mut Session, input: &[u8], out: &mut Vec<u8>) -> Turn {
        if !matches!(session.waiting, Waiting::Nothing) {
            let replied = out.len();
            let next = self.go_on(engine, session, out);
            if let Some(timed) = &mut session.timed {
                timed.sizes.reply += out.len() - replied;
            }
            if !session.is_waiting()
                && let Some(timed) = session.timed.take()
            {
                self.count_timed(engine, session, *timed);
            }
            if next != Next::Read {
                return Turn { consumed: 0, commands: 0, next };
            }
            if session.state.tracker.is_some() {
                // Deferred messages come before the next reply, however many replies have to wait.
                session.push_deferred(out);
            }
        }
        if session.limits_version != self.limits_version || self.limits_version != engine.settings.version() {
            self.refresh_limits(engine);
            session.limits_version = self.limits_version;
            engine.refresh_user(&mut session.state);
            if session.state.closing {
                return Turn { consumed: 0, commands: 0, next: Next::Close };
            }
            session.checks = session.state.checks();
            self.set_limits(session);
        }
        // In this order: a store that is exchanged in between is not run on.
        self.store_version = engine.store_version();
        let store = engine.store();
        let store = store.as_deref();
        let mut ahead = std::mem::take(&mut self.ahead);
        let (mut consumed, mut commands) = (0, 0);
        let mut begun = None;
        let next = loop {
            if commands >= TURN_COMMANDS_MAX {
                break Next::Yield;
            }
            let rest = &input[consumed..];
            // The very next request may change the limits of a client that still has to authenticate.
            let behind = ahead.parse(&mut session.parser, rest, session.state.authenticated);
            let (bytes, count, next) = self.run_ahead(engine, store, session, &ahead, rest, &mut begun, out);
            consumed += bytes;
            session.input_at += bytes as u64;
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
                    if error == ProtocolError::RequestTooLarge {
                        engine.counters(self.index).closed_at_input_limit.add(1);
                    }
                    engine.statistics.errors.add_kind(b"ERR");
                    engine.counters(self.index).error_replies.add(1);
                    break Next::Close;
                }
            }
        };
        engine.counters(self.index).commands.add(commands as u64);
        if matches!(next, Next::Read | Next::Drain | Next::Close | Next::Abort | Next::HandOver) {
            session.pins = None;
        }
        ahead.give_back();
        self.ahead = ahead;
        if let Some(tracker) = session.state.tracker.as_ref().filter(|_| !session.is_waiting()) {
            tracker.on_answered();
        }
        Turn { consumed, commands, next }
    }

    /// Runs what was parsed ahead, until one is deferred or the turn that has `begun` is over: the bytes and the
    /// commands that are done with.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one turn, handed on as they are")]
    fn run_ahead(
        &mut self,
        engine: &Engine,
        store: Option<&Store>,
        session: &mut Session,
        ahead: &Ahead,
        input: &[u8],
        begun: &mut Option<Moment>,
        out: &mut Vec<u8>,
    ) -> (usize, usize, Next) {
        let located = Located::new(ahead, input, &engine.table, store, session.state.database);
        let (mut bytes, mut commands) = (0, 0);
        let mut started = engine.statistics.clock.now();
        let begun = *begun.get_or_insert(started);
        let mut together = 0;
        if session.checks & REPEATS != 0
            && let Some(store) = store
            && let Some((count, end)) = self.repeat_together(engine, store, session, &located, ahead)
        {
            (together, bytes, commands) = (count, end, count);
        }
        for (at, call) in located.calls.iter().enumerate().skip(together) {
            if out.len() >= engine.output_bytes_max() {
                return (bytes, commands, Next::Drain);
            }
            let before = std::mem::replace(&mut bytes, ahead.end(at));
            let replied = out.len();
            let Some(call) = call else { continue };
            // A subscriber does not hear messages that were sent before.
            if commands > 0
                && call.entry.as_ref().is_ok_and(|entry| entry.flags.has(Flag::Pubsub))
                && self.inbox.has_notices()
            {
                return (before, commands, Next::Yield);
            }
            if let Some(store) = store {
                located.prefetch_elements_of(store, call);
            }
            let checked = match engine.checks.bits() | session.checks {
                0 => Checked::Go,
                _ => {
                    let at = session.input_at;
                    let (begin, through) = (at + before as u64, at + bytes as u64);
                    self.position = Position { at: begin, through, end: at + input.len() as u64 };
                    self.check(engine, session, call, out)
                }
            };
            let ran = match checked {
                Checked::Go => self.command(engine, store, session, call, &located.keys, out),
                Checked::Answered(next) => Ok(next),
                Checked::Held(next) => return (before, commands, next),
            };
            commands += 1;
            let next = ran.unwrap_or_else(|why| self.take_long_way(engine, session, &located, at, why, out));
            if let Ok(entry) = &call.entry {
                let sizes = Sizes { request: bytes - before, reply: out.len() - replied };
                if session.is_waiting() {
                    self.put_off(engine, session, entry, call.args, started, sizes);
                } else {
                    started = self.count_ended(engine, session, entry, call.args, started, sizes);
                }
            }
            if next != Next::Read {
                return (bytes, commands, next);
            }
            // A pipeline of commands that are each short enough is not: the others have their turn.
            if engine.statistics.clock.is_ms_between(begun, started) {
                return (bytes, commands, Next::Yield);
            }
            // Messages that this command has sent to its own client come before the next reply.
            let tracks = session.state.tracker.as_ref().inspect(|tracker| tracker.on_answered()).is_some();
            if (tracks || session.listens()) && self.inbox.has_notices() {
                return (bytes, commands, Next::Yield);
            }
        }
        (bytes, commands, Next::Read)
    }

    /// Runs one request, from its name to its reply.
    #[inline]
    fn command(
        &mut self,
        engine: &Engine,
        store: Option<&Store>,
        session: &mut Session,
        call: &Planned<'_>,
        located: &[Key<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Next, Deferral> {
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
        if session.multi.is_some() && !entry.command.runs_in_multi {
            return Ok(self.queue(engine, session, entry, args, out));
        }
        match (entry.command.body, store) {
            (Body::Txn(run), Some(store)) => {
                self.on_rows(engine, store, session, entry, Once(run, entry), args, located, out)
            }
            (Body::Wait(run), Some(store)) => {
                self.on_rows(engine, store, session, entry, Try(run, entry), args, located, out)
            }
            (Body::Host(_) | Body::Act(_), _) => {
                self.session_command(engine, store.is_some(), session, entry, args, out)
            }
            (Body::Engine(control), _) => Ok(self.control(engine, session, control, args, out)),
            (Body::Migrate(parse), Some(store)) => {
                let refused = match (parse(Args::from(args)), pressure(store, &session.state, false)) {
                    (Err(error), _) => error.into_reply(),
                    (Ok(migration), WritePressure::Stop(why)) if !migration.copy => Reply::error(refusal(&why)),
                    (Ok(migration), _) => return Err(Deferral::Remote(migration.timeout)),
                };
                Ok(self.reply(engine, session, refused, Index(0), out))
            }
            (Body::Script(_), Some(_)) => Err(Deferral::LongWay),
            (Body::Txn(_) | Body::Wait(_) | Body::Migrate(_) | Body::Script(_), None) => {
                Ok(self.refuse(engine, session, engine.loading_error(), out))
            }
            (Body::Container, _) => unreachable!("a request for a container is resolved to its subcommand"),
        }
    }

    /// Runs a command on the session's state, which needs no keys.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one request, handed on as they are")]
    fn session_command(
        &mut self,
        engine: &Engine,
        has_store: bool,
        session: &mut Session,
        entry: &Entry,
        args: resp::Args<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Next, Deferral> {
        if entry.flags.has(Flag::Pubsub)
            && let Some(steps) = Steps::of(entry, session, args)
        {
            return Ok(self.step(engine, session, steps, out));
        }
        if !entry.flags.has(Flag::Fast) {
            // A command that looks at clients finds this one as it is. Those that do are not fast.
            session.client.show(session, self.now_ms, session.last_command);
        }
        let mut host =
            SessionHost { engine, session: session.id, state: &mut session.state, txn: None, may_wait: false };
        let answer = match entry.command.body {
            // Most have no acts to be looked for.
            Body::Host(run) => run(&mut host, Args::from(args)),
            _ => call_host(&mut host, entry, Args::from(args)).and_then(|answer| host.note(answer)),
        };
        let reply = match answer {
            Err(Error::Stop(Stop::Long)) if has_store => return Err(Deferral::Long),
            // The I/O pool starts with the store.
            Err(Error::Stop(Stop::Long)) => return Ok(self.refuse(engine, session, engine.loading_error(), out)),
            reply => reply.unwrap_or_else(Error::into_reply),
        };
        if let Some(how) = session.state.reload.take() {
            return Ok(self.reload(engine, session, how));
        }
        if let Some(order) = session.state.order.take() {
            return Ok(self.order(engine, session, order));
        }
        if session.state.handed_over.is_some() {
            return Ok(Next::HandOver);
        }
        let reply = engine.carry_out(session.id, &mut session.state, reply, false);
        self.show_changes(engine, session, Index(0));
        Ok(self.reply_or_hold(engine, session, reply, out))
    }

    /// Keeps command `at` in its session and sees to it that it goes on.
    #[cold]
    fn take_long_way(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        located: &Located<'_>,
        at: usize,
        why: Deferral,
        out: &mut Vec<u8>,
    ) -> Next {
        let calls = &located.calls[at..];
        let Some(Some(Planned { args, entry: Ok(entry), .. })) = calls.first() else {
            unreachable!("a command that is deferred was going to run")
        };
        let seed = self.next_seed();
        let mut pending = Pending::new(Work::Command(entry.id, args.to_owned_args()), seed);
        // The write stall that the short way has waited out is not waited for again.
        pending.slowed = matches!(why, Deferral::MoreLocks | Deferral::Awaited);
        match why {
            Deferral::LongWay | Deferral::MoreLocks | Deferral::Awaited => {
                self.run_pending(engine, session, pending, out)
            }
            Deferral::Load => self.load_together(engine, session, pending, calls),
            why => self.hold(engine, session, pending, why),
        }
    }
}

/// Returns whether the store takes a session's write now; a write that cannot make the data larger is let through where
/// it makes room.
#[inline]
pub(crate) fn pressure(store: &Store, state: &State, grows: bool) -> WritePressure {
    match grows {
        _ if state.repeating.is_some() => store.pressure_to_repeat(grows),
        true => store.pressure(),
        false => store.pressure_to_shrink(),
    }
}
