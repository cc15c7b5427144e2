//! When a command has ended: what is counted of it, and what is kept of it if it took long.
//!
//! Nearly every command ends where it began, and costs one look at the clock: its end is the beginning of the next one.
//! One that waits carries its times in its session (`Timed`), one whose reply waits for the log (with `durability
//! fsync`) leaves them there (`Unacknowledged`) until the reply leaves.

use crate::clients::session::Session;
use crate::clients::statistics::{Called, Caller, Moment, Outcome, Shown, Sizes, Spent, Timed, Unacknowledged, Wait};
use crate::run::engine::Engine;
use crate::run::worker::{Worker, WorkerState};
use haypile_commands::{Entry, Flag};
use haypile_log::Index;
use haypile_resp::Args;

/// Commands of one session whose replies wait for the log and that are counted when these leave. Those beyond are
/// counted without this wait: a client may send many more before it reads.
const UNACKNOWLEDGED_MAX: usize = 4096;

impl WorkerState {
    /// Counts a command that began at `started` and has ended now; the moment when the next one begins.
    #[inline]
    pub(crate) fn count_ended(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        started: Moment,
        sizes: Sizes,
    ) -> Moment {
        let statistics = &*engine.statistics;
        let ended = statistics.clock.now();
        let ns = statistics.clock.ns(started, ended);
        let command = engine.counters(self.index).commands_by_id.of(entry.id);
        match std::mem::take(&mut self.outcome) {
            Outcome::Done => {}
            Outcome::Failed => command.failed.add(1),
            Outcome::Rejected => {
                command.rejected.add(1);
                return ended;
            }
            Outcome::Queued => return ended,
        }
        command.calls.add(1);
        command.ns.add(ns);
        if statistics.is_large(sizes) {
            note_large(engine, session, entry, &Shown::new(entry, args), sizes);
        }
        if self.syncs && self.waits_for_log(engine, session) {
            let shown = statistics.has_slowlog().then(|| Shown::new(entry, args));
            session.add_unacknowledged(Unacknowledged {
                command: entry.id,
                ns,
                spent: Spent::default(),
                ended,
                gate: session.gate(),
                shown,
            });
            return ended;
        }
        if statistics.tracks() {
            command.add_time(ns);
        }
        if statistics.is_notable(ns) {
            note(engine, session, entry, || Shown::new(entry, args), ns, &Spent::default());
        }
        ended
    }

    /// The command has not ended: it is counted when what it waits for has come.
    #[cold]
    pub(crate) fn put_off(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        entry: &Entry,
        args: Args<'_>,
        started: Moment,
        sizes: Sizes,
    ) {
        self.outcome = Outcome::Done;
        let shown = engine.statistics.has_logs().then(|| Shown::new(entry, args));
        let timed = session.timed.get_or_insert_with(Box::default);
        (timed.command, timed.started, timed.shown, timed.sizes) = (Some(entry.id), started, shown, sizes);
    }

    /// Counts a command that was put off and has ended now.
    #[cold]
    pub(crate) fn count_timed(&mut self, engine: &Engine, session: &mut Session, mut timed: Timed) {
        let ended = engine.statistics.clock.now();
        timed.end_pause(&engine.statistics.clock, ended);
        let Timed { command: Some(id), started, shown, spent, paused_ns, sizes, .. } = timed else { return };
        let (statistics, counters, entry) = (&engine.statistics, engine.counters(self.index), engine.table.entry(id));
        let command = counters.commands_by_id.of(id);
        match std::mem::take(&mut self.outcome) {
            Outcome::Done | Outcome::Queued => {}
            Outcome::Failed => command.failed.add(1),
            Outcome::Rejected => return command.rejected.add(1),
        }
        let ns = statistics.clock.ns(started, ended).saturating_sub(paused_ns);
        command.calls.add(1);
        command.ns.add(ns);
        spent.iter().for_each(|(wait, ns)| counters.waits_ns[wait as usize].add(ns, 1));
        if let Some(shown) = shown.as_ref().filter(|_| statistics.is_large(sizes)) {
            note_large(engine, session, entry, shown, sizes);
        }
        if self.syncs && self.waits_for_log(engine, session) {
            session.add_unacknowledged(Unacknowledged { command: id, ns, spent, ended, gate: session.gate(), shown });
            return;
        }
        if statistics.tracks() {
            command.add_time(ns);
        }
        if statistics.is_notable(ns) {
            note(engine, session, entry, || shown.unwrap_or_else(|| Shown::name(&entry.full_name)), ns, &spent);
        }
    }

    /// Counts what a block or a script has run.
    pub(crate) fn count_block(&mut self, engine: &Engine, session: &Session, called: Vec<Called>) {
        let (statistics, counters) = (&engine.statistics, engine.counters(self.index));
        for Called { command: id, calls, ns, failed, shown, sizes } in called {
            let command = counters.commands_by_id.of(id);
            command.calls.add(calls);
            command.ns.add(ns);
            if let Some(kind) = failed {
                command.failed.add(calls);
                counters.error_replies.add(calls);
                statistics.errors.add_kinds(&kind, calls);
            }
            if statistics.tracks() {
                command.add_times(ns / calls, calls);
            }
            if let Some(shown) = shown.as_ref().filter(|_| statistics.is_large(sizes)) {
                note_large(engine, session, engine.table.entry(id), shown, sizes);
            }
            if statistics.is_notable(ns / calls) {
                let entry = engine.table.entry(id);
                let shown = || shown.unwrap_or_else(|| Shown::name(&entry.full_name));
                // Of calls that were counted together, each took so long.
                note(engine, session, entry, shown, ns / calls, &Spent::default());
            }
        }
    }

    fn waits_for_log(&self, engine: &Engine, session: &Session) -> bool {
        let confirmed = engine.store().map_or(Index(u64::MAX), |store| store.log().confirmed());
        engine.gate_of(session).is_none_or(|gate| gate > confirmed) && session.unacknowledged.len() < UNACKNOWLEDGED_MAX
    }
}

impl Worker {
    /// The replies that depend on no more than `durable` have left: their commands have ended now.
    pub fn on_left(&mut self, session: &mut Session, durable: Index) {
        let engine = &*self.engine;
        let (statistics, counters) = (&engine.statistics, engine.counters(self.state.index));
        let left = session.unacknowledged.iter().take_while(|command| command.gate <= durable).count();
        let now = statistics.clock.now();
        let acknowledged: Vec<Unacknowledged> = session.unacknowledged.drain(..left).collect();
        for Unacknowledged { command, ns, mut spent, ended, shown, .. } in acknowledged {
            let gate_ns = statistics.clock.ns(ended, now);
            spent.add(Wait::Gate, gate_ns);
            counters.waits_ns[Wait::Gate as usize].add(gate_ns, 1);
            let ns = ns + gate_ns;
            if statistics.tracks() {
                counters.commands_by_id.of(command).add_time(ns);
            }
            if statistics.is_notable(ns) {
                let entry = engine.table.entry(command);
                note(engine, session, entry, || shown.unwrap_or_else(|| Shown::name(&entry.full_name)), ns, &spent);
            }
        }
        if session.unacknowledged.is_empty() {
            session.unacknowledged = Vec::new();
        }
    }
}

/// Keeps a command whose request or reply is large.
#[cold]
fn note_large(engine: &Engine, session: &Session, entry: &Entry, shown: &Shown, sizes: Sizes) {
    if !entry.flags.has(Flag::SkipSlowlog) {
        let caller = Caller { address: session.address(), name: &session.state.names.name };
        engine.statistics.log_large(shown, sizes, &caller);
    }
}

/// Keeps what is to be kept of a command that took long.
#[cold]
fn note(engine: &Engine, session: &Session, entry: &Entry, shown: impl FnOnce() -> Shown, ns: u64, spent: &Spent) {
    let statistics = &engine.statistics;
    statistics.event(if entry.flags.has(Flag::Fast) { "fast-command" } else { "command" }, ns);
    spent.iter().for_each(|(wait, ns)| statistics.event(wait.event(), ns));
    // The slow log shows the commands of a block, as in Redis, and EXEC only for the waits of the block as a whole.
    let waited_ns = spent.iter().map(|(_, ns)| ns).sum();
    let is_shown = !entry.flags.has(Flag::SkipSlowlog) || statistics.is_slow(waited_ns) && waited_ns > 0;
    if statistics.is_slow(ns) && is_shown {
        let caller = Caller { address: session.address(), name: &session.state.names.name };
        statistics.log_slow(shown(), ns, spent, &caller);
    }
}
