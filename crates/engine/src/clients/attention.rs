//! What stands between a request and its command only at times: a login that is missing, a client bound to its channels, a
//! pause, clients in MONITOR, inboxes that are too full. Each is a bit; while none is set, a command pays for one load.

use crate::clients::inbox::Notice;
use crate::clients::session::{Session, State, Waiting};
use crate::engine::Engine;
use crate::run::ahead::Call as Planned;
use crate::run::worker::{Next, Workbench};
use haypile_commands::host::Paused;
use haypile_commands::{Control, Entry, Flag, Run};
use haypile_resp::{Args, Protocol, Reply};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Set in the engine.
const PAUSED: u32 = 1;
const MONITORED: u32 = 2;
/// Messages come faster than some event loop takes them.
const CONGESTED: u32 = 4;
/// Set in a session.
const UNAUTHENTICATED: u32 = 8;
/// It is subscribed and speaks RESP2, in which a message cannot be told from a reply.
const BOUND: u32 = 16;
/// It is in MONITOR, which to Redis is a kind of replica.
const MONITORS: u32 = 32;

/// Commands that a client in that state may call.
const ALLOWED_WHILE_BOUND: [&str; 9] =
    ["ping", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "quit", "reset"];

/// How long a command waits for a congested inbox before it looks again.
const CONGESTED_WAIT: Duration = Duration::from_millis(1);

/// The engine's part.
#[derive(Default)]
pub(crate) struct Attention {
    bits: AtomicU32,
    pause: Mutex<Option<Pause>>,
    monitors: AtomicUsize,
    /// Sessions that a pause keeps waiting, of all event loops.
    held: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until_ms: u64,
    what: Paused,
}

/// What is to become of a request.
pub(crate) enum Attended {
    Go,
    /// It is not looked at before its connection's next turn.
    Held(Next),
    Answered(Next),
}

impl Attention {
    #[inline]
    pub fn bits(&self) -> u32 {
        self.bits.load(Ordering::Relaxed)
    }

    fn set(&self, bit: u32, on: bool) {
        match on {
            true => self.bits.fetch_or(bit, Ordering::Relaxed),
            false => self.bits.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    pub fn set_congested(&self, on: bool) {
        self.set(CONGESTED, on);
    }

    /// A client begins or ends to be shown all commands.
    pub fn add_monitor(&self) {
        self.monitors.fetch_add(1, Ordering::Relaxed);
        self.set(MONITORED, true);
    }

    pub fn remove_monitor(&self) {
        if self.monitors.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.set(MONITORED, false);
        }
    }

    /// Clients that are shown all commands.
    pub fn monitors(&self) -> usize {
        self.monitors.load(Ordering::Relaxed)
    }

    /// Sessions that a pause keeps waiting.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A pause begins or ends to keep a session waiting.
    pub fn add_held(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_held(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    /// CLIENT PAUSE. The later end and the stronger kind stand, as in Redis.
    pub fn pause(&self, until_ms: u64, what: Paused, now_ms: u64) {
        let mut pause = lock_pause(&self.pause);
        let earlier = pause.filter(|earlier| earlier.until_ms > now_ms);
        let is_all = what == Paused::All || earlier.is_some_and(|earlier| earlier.what == Paused::All);
        let until_ms = until_ms.max(earlier.map_or(0, |earlier| earlier.until_ms));
        *pause = Some(Pause { until_ms, what: if is_all { Paused::All } else { Paused::Writes } });
        self.set(PAUSED, true);
    }

    /// What is paused, and until when.
    pub fn paused(&self, now_ms: u64) -> Option<(Paused, u64)> {
        if self.bits() & PAUSED == 0 {
            return None;
        }
        let mut pause = lock_pause(&self.pause);
        match *pause {
            Some(Pause { until_ms, what }) if until_ms > now_ms => Some((what, until_ms)),
            _ => {
                *pause = None;
                self.set(PAUSED, false);
                None
            }
        }
    }

    fn unpause(&self) {
        *lock_pause(&self.pause) = None;
        self.set(PAUSED, false);
    }
}

fn lock_pause(pause: &Mutex<Option<Pause>>) -> std::sync::MutexGuard<'_, Option<Pause>> {
    pause.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Engine {
    /// CLIENT UNPAUSE: what was held goes on, on all event loops.
    pub(crate) fn unpause(&self) {
        self.attention.unpause();
        (0..self.workers()).for_each(|worker| self.notify(worker, Notice::Resume));
    }
}

impl State {
    /// The session's bits.
    pub fn attention(&self) -> u32 {
        let mut bits = 0;
        if !self.authenticated {
            bits |= UNAUTHENTICATED;
        }
        if self.is_bound() {
            bits |= BOUND;
        }
        if self.monitors {
            bits |= MONITORS;
        }
        bits
    }

    /// Whether the client is subscribed to something and speaks RESP2.
    pub fn is_bound(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}

impl Workbench {
    /// Looks at a request because one of the bits is set, in the order in which Redis does.
    #[cold]
    pub(crate) fn attend(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        call: &Planned<'_>,
        out: &mut Vec<u8>,
    ) -> Attended {
        // What is no command is answered as such, whoever asks.
        let Ok(entry) = &call.entry else { return Attended::Go };
        // It is the client's last one even while it is held, or if it is refused.
        session.last_command = Some(entry.id);
        // A password that was taken away meanwhile is not asked for, as in Redis.
        let has_password = !engine.settings.config().requirepass.is_empty();
        if !session.state.authenticated && has_password && !entry.flags.has(Flag::NoAuth) {
            return self.deny(engine, session, entry, call.args, "NOAUTH Authentication required.", out);
        }
        if session.state.is_bound() && !ALLOWED_WHILE_BOUND.contains(&&*entry.full_name) {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                entry.full_name
            );
            return self.deny(engine, session, entry, call.args, &text, out);
        }
        if engine.store().is_none() && !entry.flags.has(Flag::Loading) {
            return Attended::Go;
        }
        if session.state.monitors {
            // Redis counts them among the replicas, which no pause holds.
            if has_any(engine, session, entry, &[Flag::Readonly, Flag::Write, Flag::MayReplicate]) {
                let text = "ERR Replica can't interact with the keyspace";
                return self.deny(engine, session, entry, call.args, text, out);
            }
        } else if let Some((what, until_ms)) = engine.attention.paused(self.now_ms)
            && (what == Paused::All || may_change(engine, session, entry))
        {
            session.waiting = Waiting::Paused;
            self.hold_back(engine, session);
            let wait = Duration::from_millis(until_ms - self.now_ms);
            return Attended::Held(Next::Block(Some(wait.max(Duration::from_millis(1)))));
        }
        let bits = engine.attention.bits();
        if bits & CONGESTED != 0 && engine.is_congested(call.args.bytes_len()) && sends(engine, session, entry) {
            session.waiting = Waiting::Paused;
            return Attended::Held(Next::Sleep(CONGESTED_WAIT));
        }
        if bits & MONITORED != 0 && !(session.multi.is_some() && crate::run::execute::is_queued(entry)) {
            self.show_monitors(engine, session, entry, call.args);
        }
        Attended::Go
    }

    fn deny(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Attended {
        Attended::Answered(match entry.command.run {
            Run::Control(Control::Exec) => self.abort_block(engine, session, entry, args, text, out),
            _ => self.refuse(engine, session, Reply::error(text.to_owned()), out),
        })
    }

    /// What every client in MONITOR gets of a command that is about to run.
    fn show_monitors(&mut self, engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) {
        use crate::clients::monitor::{database_after, show};
        let mut database = session.state.database;
        // Those of a transaction come when it runs, before EXEC itself.
        if let (Run::Control(Control::Exec), Some(multi)) = (entry.command.run, &session.multi)
            && !multi.refused
            && session.watching.as_ref().is_none_or(|watching| !watching.is_outdated())
        {
            for queued in &multi.commands {
                let entry = engine.table.entry(queued.command);
                database = database_after(engine, entry, queued.args.as_args(), database);
                show(engine, session, database, entry, queued.args.as_args());
            }
        }
        database = database_after(engine, entry, args, database);
        show(engine, session, database, entry, args);
    }
}

/// Whether the command, or one that EXEC is about to run, has one of these flags.
fn has_any(engine: &Engine, session: &Session, entry: &Entry, flags: &[Flag]) -> bool {
    let has = |entry: &Entry| flags.iter().any(|&flag| entry.flags.has(flag));
    let is_exec = matches!(entry.command.run, Run::Control(Control::Exec));
    let queued = session.multi.iter().filter(|_| is_exec).flat_map(|multi| &multi.commands);
    has(entry) || queued.map(|queued| engine.table.entry(queued.command)).any(has)
}

/// Whether CLIENT PAUSE WRITE holds it.
fn may_change(engine: &Engine, session: &Session, entry: &Entry) -> bool {
    has_any(engine, session, entry, &[Flag::Write, Flag::MayReplicate])
}

/// Whether it may add to the inboxes: messages, lines of MONITOR, or events.
fn sends(engine: &Engine, session: &Session, entry: &Entry) -> bool {
    let writes_send = engine.events() != 0;
    let flags: &[Flag] = if writes_send { &[Flag::Write, Flag::MayReplicate] } else { &[Flag::MayReplicate] };
    let is_shown = engine.attention.bits() & MONITORED != 0 && crate::clients::monitor::is_shown(entry);
    is_shown || has_any(engine, session, entry, flags)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::Worker;
    use crate::clients::client::Peer;
    use crate::clients::pubsub::Payload;
    use crate::engine::Process;
    use crate::memory::Allocator;
    use haypile_commands::Table;
    use haypile_config::read::CommandLine;
    use std::sync::Arc;

    fn worker() -> Worker {
        let line = CommandLine::default();
        let settings = haypile_config::load(&line, &mut std::io::empty()).expect("no options are right").settings;
        let process = Process {
            executable: "test".into(),
            config_file: None,
            memory_budget: Arc::default(),
            version: "test",
            allocator: Allocator::NONE,
        };
        let engine = Engine::new(Arc::new(settings), Table::new(), 1, process, |_| ());
        Worker::new(engine, 0, Box::new(|| ()))
    }

    #[test]
    fn who_sends_waits_while_an_inbox_is_too_full_and_no_longer() {
        let mut worker = worker();
        let engine = worker.engine().clone();
        let mut session = worker.connect(Peer::default());
        let publish = |worker: &mut Worker, session: &mut Session| {
            let mut out = Vec::new();
            let turn = worker.turn(session, b"PUBLISH a b\r\n", &mut out, engine.now_ms());
            (turn.next, out)
        };
        engine.notify(0, Notice::Line(Payload::new(vec![0; 64 << 20], &engine.client_memory)));
        // Its client may close its half of the connection meanwhile, and still has its requests run.
        assert_eq!(publish(&mut worker, &mut session), (Next::Sleep(CONGESTED_WAIT), Vec::new()));
        worker.take_notices(|_, _| ());
        // Who added the last one may say that it is too full when all of it has been taken.
        engine.attention.set_congested(true);
        session.wake();
        assert_eq!(publish(&mut worker, &mut session), (Next::Read, b":0\r\n".to_vec()));
        assert_eq!(engine.attention.bits(), 0, "and the others do not have to look");
    }
}
