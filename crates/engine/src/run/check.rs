//! A request is looked at before its command runs, because one of the bits of `clients::checks` is set.

use crate::clients::checks::{CONGESTED, IN_GROUP, LIMITED, MONITORED, REDIRECTED, RESTRICTED, STALE, TRACKS};
use crate::clients::inbox::Order;
use crate::clients::repeating::Selected;
use crate::clients::session::{Session, Waiting};
use crate::run::ahead::Call as Planned;
use crate::run::engine::Engine;
use crate::run::group::{Leader, Runner};
use crate::run::multi::{NOT_IN_MULTI, may_be_queued};
use crate::run::proxy::{begins_at_leader, can_go, words_of};
use crate::run::script::{flags_of, flags_of_queued};
use crate::run::worker::{Next, Position, WorkerState};
use haypile_acl::log::Context;
use haypile_acl::user::DEFAULT;
use haypile_commands::flags::Flags;
use haypile_commands::host::Paused;
use haypile_commands::rights::Requested;
use haypile_commands::table::Script;
use haypile_commands::{Body, Control, Entry, Flag};
use haypile_log::Index;
use haypile_resp::{Args, Reply};
use std::time::Duration;

/// How long a command waits for a congested inbox before it looks again.
const CONGESTED_WAIT: Duration = Duration::from_millis(1);

/// The outcome of the checks before a request runs.
pub(crate) enum Checked {
    Go,
    /// The request is not looked at before its connection's next turn.
    Held(Next),
    Answered(Next),
}

/// The destination of a call that this member of a group does not run.
enum Away {
    /// Nowhere: its client is told this error.
    Refused(String),
    /// The call goes to the leader, with its client's connection, as these words say.
    Proxied(Vec<Vec<u8>>),
    /// The member by which its client has come knows better: the connection ends.
    Closed,
}

impl Engine {
    /// Returns where a call goes that this member does not run; `why` is the error if that is nowhere.
    #[cold]
    fn away(&self, session: &Session, why: String) -> Away {
        if session.state.proxied && why.starts_with("MOVED") {
            return Away::Closed;
        }
        self.proxied(session).map_or(Away::Refused(why), Away::Proxied)
    }

    /// Returns the words with which a client's connection goes to the leader, if it does.
    #[cold]
    fn proxied(&self, session: &Session) -> Option<Vec<Vec<u8>>> {
        if !can_go(session) || !self.settings.config().raft.proxies {
            return None;
        }
        let Leader::At(address) = self.group.leader_now() else { return None };
        // Without a password a client can only be the default user.
        let has_password = !self.accounts.default_user().is_open() || **session.state.user.name() != *DEFAULT;
        Some(words_of(session, address, self.group.facts()?.group, has_password))
    }

    /// CLIENT UNPAUSE: what was held goes on, on all event loops.
    pub(crate) fn unpause(&self) {
        self.checks.unpause();
        self.wake_held();
    }

    /// Has commands that were held look again.
    pub fn wake_held(&self) {
        // The thread that repeats a master's commands has the last place.
        (0..=self.workers()).for_each(|worker| self.order(worker, Order::Resume));
    }
}

/// The refusal of a replica whose master is not there and that does not serve what it has.
pub(crate) const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

impl WorkerState {
    /// Ends a call here that another member runs, if it is run at all.
    #[cold]
    fn send_away(&mut self, engine: &Engine, session: &mut Session, away: Away, out: &mut Vec<u8>) -> Checked {
        match away {
            Away::Refused(why) => Checked::Answered(self.refuse(engine, session, Reply::error(why), out)),
            Away::Closed => Checked::Answered(Next::Close),
            Away::Proxied(words) => {
                session.client.hand_on();
                session.state.handed_over = Some(words);
                Checked::Held(Next::HandOver)
            }
        }
    }

    /// Looks at a request because one of the bits is set.
    #[cold]
    pub(crate) fn check(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        call: &Planned<'_>,
        out: &mut Vec<u8>,
    ) -> Checked {
        let checked = self.look_at_request(engine, session, call, out);
        let entry = call.entry.as_ref().ok().copied();
        let is_refused = matches!(checked, Checked::Answered(_)) || entry.is_none();
        if is_refused && session.checks & TRACKS != 0 {
            // A request with a wrong number of arguments names its command all the same.
            let named = entry.or_else(|| engine.table.lookup(call.args.into()));
            let is_exec = named.is_some_and(|entry| matches!(entry.command.body, Body::Engine(Control::Exec)));
            if is_exec || session.multi.is_none() {
                engine.end_caching(&mut session.state, named);
            }
        }
        checked
    }

    /// Looks at a request in the order in which Redis does.
    fn look_at_request(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        call: &Planned<'_>,
        out: &mut Vec<u8>,
    ) -> Checked {
        begin_repeated(session, call, self.position);
        if let Some(answered) = self.leave_out(engine, session, call, out) {
            return answered;
        }
        // A password that was taken away meanwhile is not asked for, as in Redis.
        let is_open = session.state.authenticated || engine.accounts.default_user().is_open();
        // Strangers take nothing from the default user, as whom they begin.
        if session.checks & LIMITED != 0
            && is_open
            && !std::mem::take(&mut session.is_counted)
            && let Err(beyond) = self.check_limits(engine, session, call.entry.as_ref().ok().copied(), call.args)
        {
            return beyond.unwrap_or_else(|error| match &call.entry {
                Ok(entry) => self.deny(engine, session, entry, call.args, &error, out),
                Err(_) => Checked::Answered(self.refuse(engine, session, Reply::error(error), out)),
            });
        }
        // An unknown command is answered as such, whoever asks.
        let Ok(entry) = &call.entry else { return Checked::Go };
        // A command is the client's last one even while it is held, or if it is refused.
        session.last_command = Some(entry.id);
        if !is_open && !entry.flags.has(Flag::NoAuth) {
            return self.deny(engine, session, entry, call.args, "NOAUTH Authentication required.", out);
        }
        if let Some(answered) = self.check_rights(engine, session, entry, call.args, out) {
            return answered;
        }
        if session.state.is_bound() && !entry.command.runs_while_bound {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                entry.full_name
            );
            return self.deny(engine, session, entry, call.args, &text, out);
        }
        if is_stale(engine, session, entry, call.args) {
            return self.deny(engine, session, entry, call.args, MASTER_DOWN, out);
        }
        if let Some(away) = redirected(engine, session, entry, call.args) {
            return self.send_away(engine, session, away, out);
        }
        if engine.store().is_none() && !entry.flags.has(Flag::Loading) {
            return Checked::Go;
        }
        if session.reads_beside
            && let Some(held) = self.wait_for_leader(engine, session, entry)
        {
            return held;
        }
        if session.state.monitors {
            // Redis counts them among the replicas, which no pause holds.
            if has_any(engine, session, entry, call.args, &[Flag::Readonly, Flag::Write, Flag::MayReplicate]) {
                let text = "ERR Replica can't interact with the keyspace";
                return self.deny(engine, session, entry, call.args, text, out);
            }
        } else if let Some(held) = self.check_pause(engine, session, entry, call.args) {
            return held;
        }
        if is_congested(engine, session, entry, call.args) {
            (session.waiting, session.is_counted) = (Waiting::Paused, true);
            return Checked::Held(Next::Sleep(CONGESTED_WAIT));
        }
        if engine.checks.bits() & MONITORED != 0 && (session.multi.is_none() || entry.command.runs_in_multi) {
            self.show_monitors(engine, session, entry, call.args);
        }
        if session.checks & TRACKS != 0 && (session.multi.is_none() || entry.command.runs_in_multi) {
            engine.begin_tracked(&mut session.state, entry, session.multi.is_some());
            engine.note_read(&session.state, entry, call.args.into());
        }
        session.rest_on(self.store_version);
        Checked::Go
    }

    /// Returns the end of a command of a master of whose keys only some are taken, if it is not to run.
    fn leave_out(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        call: &Planned<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Checked> {
        let repeating = session.state.repeating.as_ref()?;
        let selected = match &call.entry {
            Ok(entry) => repeating.select(entry, call.args.into()),
            Err(_) => repeating.select_unknown(),
        };
        if selected != Selected::Runs
            && matches!(call.entry.as_ref().map(|entry| entry.command.body), Ok(Body::Script(Script::Text)))
        {
            // The name alone may come next, with keys that are taken.
            drop(engine.scripts.of_master_text(call.args.get(1)));
        }
        match selected {
            Selected::Runs => None,
            Selected::LeftOut => Some(Checked::Answered(Next::Read)),
            Selected::Refused(why) => {
                Some(Checked::Answered(self.refuse(engine, session, Reply::error(format!("ERR {why}")), out)))
            }
        }
    }

    /// Returns what becomes of a call that a pause holds.
    fn check_pause(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
    ) -> Option<Checked> {
        let (what, until_ms) = engine.checks.paused(self.now_ms)?;
        if what != Paused::All && !may_change(engine, session, entry, args) {
            return None;
        }
        (session.waiting, session.is_counted) = (Waiting::Paused, true);
        self.hold_back(engine, session);
        let wait = Duration::from_millis(until_ms - self.now_ms);
        Some(Checked::Held(Next::Block(Some(wait.max(Duration::from_millis(1))))))
    }

    /// Looks whether a block may have a call, and whether the client's user may make it; the answer if not.
    fn check_rights(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Checked> {
        if session.multi.is_some() && !may_be_queued(entry) {
            return Some(self.deny(engine, session, entry, args, NOT_IN_MULTI, out));
        }
        if session.checks & RESTRICTED == 0 {
            return None;
        }
        let user = session.state.user.clone();
        let called = Requested { entry, args: args.into(), database: session.state.database };
        if matches!(entry.command.body, Body::Script(_)) {
            // ACL LOG names the script's command where one of its calls is denied.
            session.client.show(session, self.now_ms, session.last_command);
        }
        let Err(denied) = called.check(&user) else {
            // A command of a block is told so when the block runs.
            let waits = session.multi.is_some() && !entry.command.runs_in_multi;
            let error = called.check_other_keys(&user).err().filter(|_| !waits)?;
            return Some(Checked::Answered(self.reply(engine, session, error.into_reply(), Index(0), out)));
        };
        let context = if session.multi.is_some() { Context::Multi } else { Context::Toplevel };
        session.client.show(session, self.now_ms, session.last_command);
        engine.note_denial(session.id, &session.state, called.denial(&user, denied, context), 1);
        let text = format!("NOPERM {}", called.text(&user, denied));
        Some(self.deny(engine, session, entry, args, &text, out))
    }

    fn deny(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Checked {
        Checked::Answered(match entry.command.body {
            Body::Engine(Control::Exec) => self.abort_block(engine, session, entry, args, text, out),
            _ => self.refuse(engine, session, Reply::error(text.to_owned()), out),
        })
    }

    /// Sends every client in MONITOR the line of a command that is about to run.
    fn show_monitors(&mut self, engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) {
        use crate::run::monitor::{database_after, show};
        let mut database = session.state.database;
        // The commands of a transaction come when it runs, before EXEC itself.
        if let (Body::Engine(Control::Exec), Some(multi)) = (entry.command.body, &session.multi)
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

/// Notes that a command of a master begins, if it is one, and whether the master asks how far its commands have come.
fn begin_repeated(session: &Session, call: &Planned<'_>, position: Position) {
    let Some(repeating) = &session.state.repeating else { return };
    repeating.begin(position.at, position.through, session.multi.is_some());
    let is_question = call.args.len() > 1 && call.args.get(1).eq_ignore_ascii_case(b"getack");
    if is_question && call.entry.as_ref().is_ok_and(|entry| entry.command.syscmd) {
        repeating.ask();
    }
}

/// Returns where a call goes that another member of a consensus group has to run; notes those that this one runs as the
/// leader. EXEC is what the commands of its block are; another member does not know the block, which ends.
fn redirected(engine: &Engine, session: &mut Session, entry: &Entry, args: Args<'_>) -> Option<Away> {
    let bits = engine.checks.bits();
    (session.is_led, session.reads_beside) = (false, false);
    if bits & IN_GROUP == 0 {
        return None;
    }
    let (leads, reads_here) = (bits & REDIRECTED == 0, session.state.reads_here);
    let runner = |entry: &Entry, args: Args<'_>| engine.runner(entry, args, leads, reads_here);
    let runner = match (entry.command.body, &session.multi) {
        (Body::Engine(Control::Exec), Some(multi)) if !multi.refused => {
            let runners =
                multi.commands.iter().map(|queued| runner(engine.table.entry(queued.command), queued.args.as_args()));
            runners.max().unwrap_or(Runner::Any)
        }
        (Body::Engine(Control::Exec), _) => Runner::Any,
        _ => runner(entry, args),
    };
    match runner {
        Runner::Any if !leads && begins_at_leader(session, entry) => engine.proxied(session).map(Away::Proxied),
        Runner::Any => None,
        Runner::Beside => {
            session.reads_beside = true;
            None
        }
        Runner::Leader => {
            session.is_led = true;
            session.led_calls += 1;
            None
        }
        Runner::Other(why) => {
            let away = engine.away(session, why);
            if matches!(entry.command.body, Body::Engine(Control::Exec)) {
                engine.drop_queue(session);
                engine.unwatch(session);
            }
            Some(away)
        }
    }
}

/// Whether the command, or one that EXEC is about to run, has one of these flags.
fn has_any(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>, wanted: &[Flag]) -> bool {
    any_of(engine, session, entry, args, |flags| wanted.iter().any(|&flag| flags.has(flag)))
}

/// Whether the flags of the call, or of one that EXEC is about to run, are like that.
fn any_of(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>, are: impl Fn(Flags) -> bool) -> bool {
    let is_exec = matches!(entry.command.body, Body::Engine(Control::Exec));
    let queued = session.multi.iter().filter(|_| is_exec).flat_map(|multi| &multi.commands);
    are(flags_of(engine, entry, args.into())) || queued.map(|queued| flags_of_queued(engine, queued)).any(are)
}

/// Returns whether a call needs data that are newer than those of a replica without its master.
fn is_stale(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) -> bool {
    engine.checks.bits() & STALE != 0 && any_of(engine, session, entry, args, |flags| !flags.has(Flag::Stale))
}

/// Returns whether a call waits for inboxes that are too full for what it may send.
fn is_congested(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) -> bool {
    engine.checks.bits() & CONGESTED != 0
        && engine.is_congested(args.bytes_len())
        && sends(engine, session, entry, args)
}

/// Returns whether CLIENT PAUSE WRITE holds a call.
fn may_change(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) -> bool {
    has_any(engine, session, entry, args, &[Flag::Write, Flag::MayReplicate])
}

/// Returns whether a call may add to the inboxes: messages, lines of MONITOR, or events.
fn sends(engine: &Engine, session: &Session, entry: &Entry, args: Args<'_>) -> bool {
    let writes_send = engine.events() != 0 || engine.tracking.any();
    let flags: &[Flag] = if writes_send { &[Flag::Write, Flag::MayReplicate] } else { &[Flag::MayReplicate] };
    let is_shown = engine.checks.bits() & MONITORED != 0 && crate::run::monitor::is_shown(entry);
    is_shown || has_any(engine, session, entry, args, flags)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::Worker;
    use crate::clients::client::Peer;
    use crate::clients::inbox::Notice;
    use crate::clients::pubsub::Payload;
    use crate::run::engine::Process;
    use crate::run::memory::Allocator;
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
        // The client may close its half of the connection meanwhile, and still has its requests run.
        assert_eq!(publish(&mut worker, &mut session), (Next::Sleep(CONGESTED_WAIT), Vec::new()));
        worker.take_notices(|_, _| ());
        // The sender of the last notice may find the inbox too full after all of it has been taken.
        engine.checks.set_congested(true);
        session.wake();
        let (next, reply) = publish(&mut worker, &mut session);
        // A turn that the machine held up for a millisecond is over behind the command.
        assert!(matches!(next, Next::Read | Next::Yield) && reply == b":0\r\n", "{next:?}");
        assert_eq!(engine.checks.bits(), 0, "and the others do not have to look");
    }
}
