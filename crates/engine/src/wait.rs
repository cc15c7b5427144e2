//! The long way: commands that could not run to their end at once, and replies too long to be held at once.
//!
//! A pending command tries again whenever what it waited for has come: a lock, its turn to be alone, loaded rows, some
//! time. It runs in memory under its locks first; after rows were loaded for it without locks, with these rows pinned;
//! and after a few such rounds on the I/O pool under its locks. Until then nothing it did has had any effect, so that
//! starting over is all there is to it.

use crate::ahead::Call as Planned;
use crate::engine::Engine;
use crate::exclusion::Alone;
use crate::execute::{Hindrance, Next, OUTPUT_BYTES_MAX, Workbench, pressure};
use crate::locks::{Duration as Held, Parked, Turn};
use crate::pool::{Job, LOADS_MAX, Task};
use crate::session::{Event, Pending, Session, Waiting, What, Work};
use crate::together::{Together, Wanted};
use haypile_commands::{Error, Run};
use haypile_log::Index;
use haypile_resp::Reply;
use haypile_store::{Call, Key, Mode, Stop, Store, WritePressure};

impl Workbench {
    /// Goes on with what the session waits for, if it has come.
    pub(crate) fn go_on(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        let waiting = match std::mem::take(&mut session.waiting) {
            Waiting::Nothing => return Next::Read,
            Waiting::Stream(pieces) if out.len() >= OUTPUT_BYTES_MAX => {
                session.waiting = Waiting::Stream(pieces);
                return Next::Drain;
            }
            Waiting::Stream(pieces) => {
                let task = Task::Piece(pieces, session.state.protocol);
                return self.offload(session, Waiting::Piece, task);
            }
            waiting => waiting,
        };
        let Some(event) = session.event.take() else {
            session.waiting = waiting;
            return Next::Wait;
        };
        match (waiting, event) {
            (Waiting::Here(pending), What::Retry) => self.run_pending(engine, session, pending, out),
            (Waiting::Here(mut pending), What::Granted) => {
                pending.alone = true;
                self.run_pending(engine, session, pending, out)
            }
            (Waiting::Pool, What::Loaded(pending, pins)) => {
                self.on_pool -= 1;
                session.pins = Some(Box::new(pins));
                self.run_pending(engine, session, pending, out)
            }
            (Waiting::Pool, What::Finished(finished)) => {
                self.on_pool -= 1;
                session.state = finished.state;
                if finished.was_block {
                    engine.unwatch(session);
                }
                self.reply(engine, session, finished.reply, finished.gate, out)
            }
            (Waiting::Piece, What::Piece { bytes, rest, failed }) => {
                self.on_pool -= 1;
                out.extend_from_slice(&bytes);
                match (rest, failed) {
                    (_, Some(why)) => {
                        tracing::warn!("a reply could not be read to its end, its connection is closed: {why}");
                        Next::Close
                    }
                    (Some(pieces), None) => {
                        session.waiting = Waiting::Stream(pieces);
                        self.go_on(engine, session, out)
                    }
                    (None, None) if session.state.closing => Next::Close,
                    (None, None) => Next::Read,
                }
            }
            _ => unreachable!("a session is told what it waits for"),
        }
    }

    /// Runs a pending command, or sees to it that it goes on later.
    pub(crate) fn run_pending(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        out: &mut Vec<u8>,
    ) -> Next {
        let Some(store) = engine.store() else {
            return self.refuse(engine, session, engine.loading_error(), out);
        };
        let needs = pending.work.needs(&engine.table, store);
        // One that was called from a queue goes to its lock: those behind it wait for that.
        if needs.writes && !pending.alone && pending.turn == Turn::Newcomer {
            match pressure(store, needs.grows) {
                WritePressure::Slow(wait) if !pending.slowed => {
                    if let Some(wait) = session.owe(wait) {
                        return self.hold(engine, session, pending, Hindrance::Slow(wait));
                    }
                }
                WritePressure::Slow(_) | WritePressure::Go => {}
                WritePressure::Stop(why) => return self.give_up(engine, session, &pending.work, why, out),
            }
        }
        if pending.long {
            return self.run_on_pool(engine, session, pending);
        }
        if needs.alone {
            // What the exclusion was granted for, if anything, is this run.
            if !std::mem::take(&mut pending.alone) {
                self.leave(engine);
                let (inbox, id) = (self.inbox.clone(), session.id);
                let answer = engine.exclusion.alone(|answer| {
                    Box::new(move || {
                        let what = if answer == Alone::WillBeGranted { What::Granted } else { What::Retry };
                        inbox.push(Event { session: id, what });
                    })
                });
                if answer != Alone::Granted {
                    session.waiting = Waiting::Here(pending);
                    return Next::Wait;
                }
            }
        } else {
            if !self.enter(engine) {
                return self.hold(engine, session, pending, Hindrance::Outside);
            }
            if let Err(refused) = engine.locks.try_lock(&needs.claims, pending.turn, Held::Moment) {
                return self.hold(engine, session, pending, Hindrance::Locked(refused));
            }
            pending.turn = Turn::Newcomer;
        }
        let mut state = session.state.clone();
        let call = Call {
            now_ms: self.now_ms,
            seed: pending.seed,
            database: state.database,
            mode: Mode::Memory,
            pins: session.pins.as_deref(),
        };
        let ran = pending.work.run(engine, store, session.id, &mut state, call, std::mem::take(&mut self.buffers));
        self.buffers = ran.buffers;
        if needs.alone {
            engine.exclusion.open();
        } else {
            engine.locks.unlock(&needs.claims);
        }
        let reply = match ran.reply {
            Ok(reply) => {
                session.state = state;
                reply
            }
            Err(Stop::WouldBlock) => return self.hold(engine, session, pending, Hindrance::Load),
            Err(Stop::Long) => return self.hold(engine, session, pending, Hindrance::Long),
            Err(stop) => Error::Stop(stop).into_reply(),
        };
        if pending.work.is_block() {
            engine.unwatch(session);
        }
        self.reply(engine, session, reply, ran.gate, out)
    }

    /// Leaves the command where what hinders it will find it.
    pub(crate) fn hold(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        hindrance: Hindrance,
    ) -> Next {
        let counters = engine.counters(self.index);
        let queued = match hindrance {
            Hindrance::Load if pending.loads >= LOADS_MAX => return self.run_on_pool(engine, session, pending),
            Hindrance::Load => {
                counters.loads.add(1);
                let task = Task::Load(pending, session.state.clone());
                return self.offload(session, Waiting::Pool, task);
            }
            Hindrance::Long => return self.run_on_pool(engine, session, pending),
            Hindrance::Slow(wait) => {
                counters.slowed.add(1);
                pending.slowed = true;
                session.waiting = Waiting::Here(pending);
                return Next::Sleep(wait);
            }
            Hindrance::Outside => engine.exclusion.wait_outside(self.waiter(session.id, What::Retry)).is_none(),
            Hindrance::Locked(refused) => {
                counters.lock_waits.add(1);
                let turn = std::mem::replace(&mut pending.turn, Turn::Called(refused));
                matches!(engine.locks.park(refused, turn, self.waiter(session.id, What::Retry)), Parked::Queued)
            }
            Hindrance::LongWay => unreachable!("this is the long way"),
        };
        session.waiting = Waiting::Here(pending);
        if queued {
            return Next::Wait;
        }
        session.event = Some(What::Retry);
        Next::Yield
    }

    fn run_on_pool(&mut self, engine: &Engine, session: &mut Session, pending: Box<Pending>) -> Next {
        engine.counters(self.index).offloaded.add(1);
        let task = Task::Run(pending, session.state.clone());
        self.offload(session, Waiting::Pool, task)
    }

    fn offload(&mut self, session: &mut Session, waiting: Waiting, task: Task) -> Next {
        session.waiting = waiting;
        self.on_pool += 1;
        self.jobs.push(Job { session: session.id, inbox: self.inbox.clone(), task });
        Next::Wait
    }

    /// Loads what a command lacks, which is the first of `calls`, together with what the commands behind it are going to
    /// lack.
    pub(crate) fn load(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        pending: Box<Pending>,
        calls: &[Option<Planned<'_>>],
        keys: &[Key<'_>],
    ) -> Next {
        let wanted = match engine.store() {
            Some(store) => self.lacking(store, session, calls, keys),
            None => Vec::new(),
        };
        if wanted.len() < 2 {
            return self.hold(engine, session, pending, Hindrance::Load);
        }
        engine.counters(self.index).loads.add(1);
        let together = Together::new(session.state.database, wanted, pending);
        let (id, inbox) = (session.id, &self.inbox);
        self.jobs.extend(together.tasks().map(|task| Job { session: id, inbox: inbox.clone(), task }));
        self.on_pool += 1;
        session.waiting = Waiting::Pool;
        Next::Wait
    }

    /// The keys whose rows are not in memory, up to the first command that may change what those behind it mean.
    fn lacking(
        &mut self,
        store: &Store,
        session: &Session,
        calls: &[Option<Planned<'_>>],
        keys: &[Key<'_>],
    ) -> Vec<Wanted> {
        let database = session.state.database;
        let pins = session.pins.as_deref();
        let call = Call { now_ms: self.now_ms, seed: 0, database, mode: Mode::Memory, pins };
        let mut txn = store.begin(std::mem::take(&mut self.buffers), call);
        let mut wanted: Vec<Wanted> = Vec::new();
        for call in calls.iter().flatten() {
            let Ok(entry) = &call.entry else { break };
            let writes = match entry.command.run {
                Run::Read(_) => false,
                Run::Write(_) => true,
                Run::Session(_) | Run::Exclusive(_) | Run::Control(_) | Run::Container => break,
            };
            for key in keys[call.keys.clone()].iter().filter(|key| store.is_in(key, database)) {
                let found = if writes { txn.presence(key).map(drop) } else { txn.meta(key).map(drop) };
                if found == Err(Stop::WouldBlock) && wanted.iter().all(|wanted| *wanted.name != *key.name) {
                    wanted.push(Wanted { name: key.name.into(), writes });
                }
            }
        }
        self.buffers = txn.finish();
        wanted
    }

    /// The store takes no writes now.
    fn give_up(&mut self, engine: &Engine, session: &mut Session, work: &Work, why: String, out: &mut Vec<u8>) -> Next {
        if !work.is_block() {
            return self.reply(engine, session, Reply::error(why), Index(0), out);
        }
        engine.unwatch(session);
        let text = format!("EXECABORT Transaction discarded because of: {why}");
        self.reply(engine, session, Reply::error(text), Index(0), out)
    }
}
