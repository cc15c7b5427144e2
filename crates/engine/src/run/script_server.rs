//! The server of a running script: its calls are commands of the transaction that it is part of.

use crate::clients::checks::{MONITORED, STALE};
use crate::clients::session::State;
use crate::clients::statistics::{Called, Moment};
use crate::run::engine::Engine;
use crate::run::execute::pressure;
use crate::run::host::SessionHost;
use crate::run::monitor::{is_shown, line};
use crate::run::script::{Found, halted};
use crate::run::scripts::running::Place;
use haypile_acl::log::Context;
use haypile_commands::error::refusal;
use haypile_commands::rights::Requested;
use haypile_commands::{Access, Args, Body, Entry, Error, Flag, call};
use haypile_resp::{self as resp, Protocol, Reply};
use haypile_script::{Halted, LogLevel, Server};
use haypile_store::{Key, Mode, Refusal, Stop, Txn, WritePressure};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// How long a script runs on an event loop before it moves to the I/O pool.
const ON_LOOP_MAX: Duration = Duration::from_millis(1);

/// Questions whether the run goes on, some thousand instructions each, after which a dry run has found enough.
const DRY_STEPS_MAX: u32 = 1000;

/// Bytes of replies that a script gets on an event loop.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Calls between two looks at the clock.
const CALLS_PER_LOOK: u32 = 32;

/// Calls of a script that are counted one by one; those beyond are added to others of the same command.
const CALLED_MAX: usize = 1000;

/// Calls of a script that clients in MONITOR are shown.
const LINES_MAX: usize = 1000;

/// The keys of a call, each with the position of its argument.
type Keys<'a> = SmallVec<[(usize, Key<'a>); 2]>;

/// The server of one run of a script.
pub(crate) struct ScriptServer<'a, 'r, 's> {
    engine: &'a Engine,
    txn: &'r mut Txn<'s>,
    session: u64,
    /// The state of the script's own client: calls change it, and only its acts outlive the script.
    state: State,
    mode: Mode,
    is_exclusive: bool,
    only_reads: bool,
    allows_oom: bool,
    called: &'r mut Vec<Called>,
    found: &'r mut Found,
    running: Option<Place<'a>>,
    /// Why the transaction cannot go on.
    stop: Option<Stop>,
    started: Instant,
    calls: u32,
    /// Calls that write and were permitted.
    writes: u32,
    /// The moment at which the call before ended.
    ended: Moment,
    steps: u32,
    /// Bytes of replies.
    bytes: usize,
}

impl<'a, 'r, 's> ScriptServer<'a, 'r, 's> {
    #[allow(clippy::too_many_arguments, reason = "the pieces of one run, handed on as they are")]
    pub fn new(
        engine: &'a Engine,
        txn: &'r mut Txn<'s>,
        session: u64,
        state: State,
        mode: Mode,
        is_exclusive: bool,
        only_reads: bool,
        allows_oom: bool,
        called: &'r mut Vec<Called>,
        found: &'r mut Found,
        running: Option<Place<'a>>,
    ) -> Self {
        let started = *found.started.get_or_insert_with(Instant::now);
        ScriptServer {
            engine,
            txn,
            session,
            state,
            mode,
            is_exclusive,
            only_reads,
            allows_oom,
            called,
            found,
            running,
            stop: None,
            started,
            calls: 0,
            writes: 0,
            ended: engine.statistics.clock.now(),
            steps: 0,
            bytes: 0,
        }
    }

    /// Returns whether so far the run has taken no more than an event loop has for it: of time, and of replies.
    pub fn is_short(&self) -> bool {
        self.started.elapsed() <= ON_LOOP_MAX && self.bytes <= REPLY_BYTES_MAX
    }

    /// Returns the state of the script's client, and why the transaction cannot go on, if it cannot.
    pub fn end(self) -> (State, Option<Stop>) {
        (self.state, self.stop)
    }

    fn halt(&mut self, why: Stop) -> Halted {
        halted(&mut self.stop, why)
    }

    /// Looks whether a script may call a command.
    fn permit(&mut self, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        let flags = entry.flags;
        let is_runnable =
            !matches!(entry.command.body, Body::Engine(_) | Body::Container | Body::Migrate(_) | Body::Script(_));
        if flags.has(Flag::Noscript) || !is_runnable {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        if self.engine.checks.bits() & STALE != 0 && !flags.has(Flag::Stale) {
            return Err(Error::text("ERR Can not execute the command on a stale replica"));
        }
        self.check_rights(entry, args)?;
        if self.only_reads && (flags.has(Flag::Write) || flags.has(Flag::MayReplicate)) {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        if flags.has(Flag::Write) && self.writes.is_multiple_of(CALLS_PER_LOOK) {
            self.look_at_pressure(flags.has(Flag::Denyoom))?;
        }
        self.writes += u32::from(flags.has(Flag::Write));
        Ok(())
    }

    /// Looks whether the script's user may make a call.
    fn check_rights(&mut self, entry: &Entry, args: Args<'_>) -> Result<(), Error> {
        let user = &self.state.user;
        if user.is_unrestricted() {
            return Ok(());
        }
        let called = Requested { entry, args, database: self.txn.database() };
        let Err(denied) = called.check(user) else { return called.check_other_keys(user) };
        let text = format!("ERR ACL failure in script: {}", called.text(user, denied));
        let denial = called.denial(user, denied, Context::Script);
        self.state.acts.add_denial(denial);
        Err(Error::text(text))
    }

    /// Looks whether the store takes writes.
    #[cold]
    fn look_at_pressure(&self, grows: bool) -> Result<(), Error> {
        let Some(store) = self.engine.store() else { return Ok(()) };
        match pressure(&store, &self.state, grows) {
            // As in Redis, a script that has begun to write is not stopped for want of memory.
            WritePressure::Stop(Refusal::OutOfMemory) if self.allows_oom || self.writes > 0 => Ok(()),
            WritePressure::Stop(why) => Err(Error::text(refusal(&why))),
            WritePressure::Slow(_) | WritePressure::Go => Ok(()),
        }
    }

    /// Makes sure that a call's keys are locked, or notes them in a dry run. Returns the keys.
    fn claim<'b>(&mut self, entry: &Entry, args: Args<'b>) -> Result<Keys<'b>, Stop> {
        let command = entry.command;
        if command.access == Access::Exclusive && !self.is_exclusive {
            self.found.needs_exclusion = true;
            if !self.txn.is_dry_run() {
                return Err(Stop::NeedsLocks);
            }
        }
        let mut keys = Keys::new();
        for (at, spec) in command.keys(args) {
            let (key, exclusive) = (self.txn.key(args.get(at)), command.changes(spec));
            if self.txn.is_dry_run() {
                *self.found.keys.entry(key.hash).or_default() |= exclusive;
            } else {
                self.txn.claim(std::iter::once(key.hash), exclusive)?;
            }
            keys.push((at, key));
        }
        Ok(keys)
    }

    /// Runs a command that the script may call.
    ///
    /// # Errors
    /// `Error::Stop`: the transaction cannot go on. Any other error is the command's reply.
    fn command(&mut self, entry: &Entry, args: resp::Args<'_>) -> Result<Reply, Error> {
        let keys = self.claim(entry, Args::from(args))?;
        let args = Args::with_keys(args, &keys);
        let may_wait = self.mode == Mode::Disk;
        self.engine.note_read(&self.state, entry, args);
        let (engine, session, state) = (self.engine, self.session, &mut self.state);
        let mut host = SessionHost { engine, session, state, txn: Some(&mut *self.txn), may_wait };
        let reply = call(&mut host, entry, args).and_then(|answer| host.note(answer))?;
        // A reply in pieces is long.
        self.bytes += if reply.has_stream() { REPLY_BYTES_MAX + 1 } else { reply.weight().held_bytes };
        if !may_wait && self.bytes > REPLY_BYTES_MAX {
            return Err(Error::Stop(Stop::Long));
        }
        Ok(reply)
    }

    /// Counts a call that has ended. The time that the script itself has taken since the call before counts, too: a
    /// second look at the clock would cost more than most of it.
    fn count(&mut self, entry: &Entry, args: resp::Args<'_>, reply: &Reply) {
        let statistics = &self.engine.statistics;
        let started = std::mem::replace(&mut self.ended, statistics.clock.now());
        let called = Called::between(statistics, entry, args, reply, started, self.ended);
        let is_plain = called.failed.is_none() && called.shown.is_none();
        let is_same = |other: &Called| other.command == entry.id && other.failed.is_none() && other.shown.is_none();
        let last = self.called.len().checked_sub(1);
        let other = match last {
            Some(last) if is_plain && is_same(&self.called[last]) => Some(last),
            Some(last) if last >= CALLED_MAX => {
                let has_ended_so = |other: &Called| other.command == entry.id && other.failed == called.failed;
                self.called.iter().position(has_ended_so)
            }
            _ => None,
        };
        match other {
            Some(at) => self.called[at].add(&called),
            None => self.called.push(called),
        }
    }
}

impl Server for ScriptServer<'_, '_, '_> {
    fn call(&mut self, args: resp::Args<'_>) -> Result<Reply, Halted> {
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_PER_LOOK) {
            self.goes_on()?;
        }
        let engine = self.engine;
        let entry = match engine.table.resolve(Args::from(args)) {
            Ok(entry) if matches!(entry.command.body, Body::Container) => {
                return Ok(Reply::error("ERR Wrong number of args calling Redis command from script"));
            }
            Ok(entry) => entry,
            Err(Error::WrongArity(_)) => {
                return Ok(Reply::error("ERR Wrong number of args calling Redis command from script"));
            }
            Err(_) => return Ok(Reply::error("ERR Unknown Redis command called from script")),
        };
        let reply = match self.permit(entry, Args::from(args)) {
            Ok(()) => {
                // A call that is refused has written nothing: the script may still be killed.
                if entry.flags.has(Flag::Write)
                    && let Some(running) = &self.running
                    && !running.script.begin_write()
                {
                    return Err(Halted::Failed(running.script.killed_text()));
                }
                self.command(entry, args)
            }
            Err(error) => Err(error),
        };
        let reply = match reply {
            Err(Error::Stop(stop)) => return Err(self.halt(stop)),
            reply => reply.unwrap_or_else(Error::into_reply),
        };
        self.count(entry, args, &reply);
        if engine.checks.bits() & MONITORED != 0 && self.found.lines.len() < LINES_MAX && is_shown(entry) {
            self.found.lines.push(line(self.txn.database(), "lua", entry, args));
        }
        Ok(reply)
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.state.protocol = protocol;
    }

    fn permits(&mut self, args: resp::Args<'_>) -> Option<bool> {
        let entry = self.engine.table.lookup(Args::from(args))?;
        let called = Requested { entry, args: Args::from(args), database: self.txn.database() };
        Some(called.check(&self.state.user).is_ok())
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        // A run that is dropped begins again, and says it then.
        if self.txn.is_dry_run() {
            return;
        }
        let text = text.escape_ascii();
        match level {
            LogLevel::Debug => tracing::trace!("a script: {text}"),
            LogLevel::Verbose => tracing::debug!("a script: {text}"),
            LogLevel::Notice => tracing::info!("a script: {text}"),
            LogLevel::Warning => tracing::warn!("a script: {text}"),
        }
    }

    fn takes_long(&mut self) -> Result<(), Halted> {
        if self.mode == Mode::Disk { self.goes_on() } else { Err(self.halt(Stop::Long)) }
    }

    fn goes_on(&mut self) -> Result<(), Halted> {
        match self.mode {
            Mode::Memory | Mode::Look if self.started.elapsed() > ON_LOOP_MAX => Err(self.halt(Stop::Long)),
            Mode::Load => {
                self.steps += 1;
                if self.steps > DRY_STEPS_MAX { Err(self.halt(Stop::Long)) } else { Ok(()) }
            }
            Mode::Disk => {
                if let Err(stop) = self.txn.check_goes_on() {
                    return Err(self.halt(stop));
                }
                match &self.running {
                    Some(place) if place.script.is_killed() => Err(Halted::Failed(place.script.killed_text())),
                    _ => Ok(()),
                }
            }
            Mode::Memory | Mode::Look => Ok(()),
        }
    }
}
