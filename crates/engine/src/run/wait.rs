//! The long way: commands that could not run to their end at once, and replies too long to be held at once.
//!
//! A pending command tries again whenever what it waited for has come: a lock, its turn to run exclusively, loaded
//! rows, some time. It runs in memory under its locks first; after rows were loaded for it without locks, with these
//! rows pinned; and after a few such rounds on the I/O pool under its locks. Until then nothing it did has had any
//! effect, so that starting over is all there is to it.

use crate::clients::client_memory::Counted;
use crate::clients::pending::{Event, Pending, What, Work};
use crate::clients::session::{Session, State, Waiting};
use crate::clients::statistics::{Outcome, Timed, Wait};
use crate::keys::admission::{Admitted, ExclusionHeld, KeysHeld};
use crate::keys::exclusion::Exclusive;
use crate::keys::locks::{HeldFor, Parked, Turn};
use crate::keys::visits::ON_LOOP_MAX;
use crate::run::engine::Engine;
use crate::run::execute::{Deferral, pressure};
use crate::run::pool::{Job, LOADS_MAX, Task};
use crate::run::reply::discarded;
use crate::run::serving::Place;
use crate::run::together::Together;
use crate::run::work::{Needs, Ran};
use crate::run::worker::{Next, WorkerState};
use haypile_commands::error::refusal;
use haypile_log::Index;
use haypile_resp::{Pieces, Reply, ReplyPieces};
use haypile_store::{Call, Mode, Stop, Store, WritePressure};
use std::time::Instant;

/// Runs of a script on its event loop that came to a key which another run held, after which a dry run finds its keys.
const AGAIN_MAX: u32 = 2;

impl WorkerState {
    /// Goes on with what the session waits for, if it has come.
    pub(crate) fn go_on(&mut self, engine: &Engine, session: &mut Session, out: &mut Vec<u8>) -> Next {
        let waiting = match std::mem::take(&mut session.waiting) {
            Waiting::Nothing => return Next::Read,
            // The turn goes on with the request that was held, which may be held again.
            Waiting::Paused => {
                session.event = None;
                self.go_on_after_pause(engine, session);
                return Next::Read;
            }
            Waiting::Steps(steps) => return self.step(engine, session, steps, out),
            Waiting::Stream(pieces) if out.len() >= engine.output_bytes_max() => {
                session.waiting = Waiting::Stream(pieces);
                timed(session).begin_pause(&engine.statistics.clock);
                return Next::Drain;
            }
            Waiting::Stream(pieces) => {
                let task = Task::Piece(pieces, session.state.protocol);
                timed(session).begin(&engine.statistics.clock, Wait::Disk);
                return self.offload(session, Waiting::Piece, task);
            }
            waiting => waiting,
        };
        let waiting = match waiting {
            // A blocked session looks at its clock, too.
            Waiting::Blocked(held) => {
                let event = session.event.take();
                return self.stay_blocked(engine, session, held, event, out);
            }
            Waiting::ForKeys(waiter) => {
                session.event = None;
                return self.look_at_waiter(engine, session, waiter, out);
            }
            waiting => waiting,
        };
        let Some(event) = session.event.take() else {
            session.waiting = waiting;
            return Next::Wait;
        };
        let was_locked = matches!(&event, What::Finished(finished) if finished.was_locked);
        let begun = session.begun.take();
        timed(session).end(&engine.statistics.clock, begun, was_locked);
        self.go_on_with(engine, session, waiting, event, out)
    }

    /// Goes on with what has come.
    fn go_on_with(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        waiting: Waiting,
        event: What,
        out: &mut Vec<u8>,
    ) -> Next {
        match (waiting, event) {
            (Waiting::Here(pending), What::Retry) => self.run_pending(engine, session, pending, out),
            (Waiting::Here(mut pending), What::Granted) => {
                pending.exclusive = true;
                self.run_pending(engine, session, pending, out)
            }
            (Waiting::Pool, What::Loaded(pending, pins)) => {
                self.come_back();
                let mut pins = Box::new(pins);
                // Rows that came with the first load are still wanted by the commands behind this one.
                if pending.loads > 1
                    && let Some(earlier) = session.pins.take()
                {
                    pins.add(*earlier);
                }
                session.pins = Some(pins);
                self.run_pending(engine, session, pending, out)
            }
            (Waiting::Pool, What::Finished(finished)) => {
                self.come_back();
                session.state = finished.state;
                self.show_earlier_changes(engine, session, finished.gate);
                engine.depend_on_earlier(session, finished.gate);
                if finished.was_block {
                    engine.unwatch(session);
                }
                self.count_block(engine, session, finished.called);
                match finished.waiter {
                    Some(waiter) => self.wait_for_keys(engine, session, waiter, out),
                    None => self.reply_or_hold(engine, session, finished.reply, out),
                }
            }
            (Waiting::Pool, What::Watching(watching)) => {
                self.come_back();
                session.watching = watching;
                self.reply(engine, session, Reply::ok(), Index(0), out)
            }
            (Waiting::Piece, What::Piece { bytes, rest, failed }) => {
                self.come_back();
                out.extend_from_slice(&bytes);
                session.unmade_bytes =
                    if rest.is_some() { session.unmade_bytes.saturating_sub(bytes.len()) } else { 0 };
                self.go_on_after_piece(engine, session, rest, failed, out)
            }
            _ => unreachable!("a session is told what it waits for"),
        }
    }

    /// Goes on with the rest of a long reply, if there is any.
    fn go_on_after_piece(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        rest: Option<Box<ReplyPieces>>,
        failed: Option<String>,
        out: &mut Vec<u8>,
    ) -> Next {
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
            // The messages come first that waited for its end.
            (None, None) if !session.deferred.is_empty() => Next::Yield,
            (None, None) => Next::Read,
        }
    }

    /// Runs a pending command, or sees to it that it goes on later.
    pub(crate) fn run_pending(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        pending: Box<Pending>,
        out: &mut Vec<u8>,
    ) -> Next {
        match self.try_pending(engine, session, pending, out) {
            Ok(next) | Err(next) => next,
        }
    }

    /// Runs a pending command.
    ///
    /// # Errors
    /// The command does not run now; the error says what the connection does next.
    fn try_pending(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        pending: Box<Pending>,
        out: &mut Vec<u8>,
    ) -> Result<Next, Next> {
        let Some(store) = engine.store() else {
            // The store is being opened again, exclusively.
            return Err(self.hold(engine, session, pending, Deferral::Outside));
        };
        let mut pending = self.weigh(engine, &store, session, pending, out)?;
        if pending.long {
            return Err(self.run_on_pool(engine, session, pending));
        }
        let mut needs = pending.needs(&engine.table, &store);
        let mut is_unlocked = false;
        if !needs.exclusive {
            if !self.enter(engine) {
                return Err(self.hold(engine, session, pending, Deferral::Outside));
            }
            is_unlocked = pending.goes_unlocked(engine, &store, session.state.database);
            if is_unlocked {
                needs.claims.clear();
            }
        }
        let admitted;
        (pending, admitted) = self.admit(engine, session, pending, &needs)?;
        // From in here it is not exchanged.
        let Some(store) = engine.store() else { unreachable!("nobody comes in while there is none") };
        if pending.work.is_block() {
            // The rules of this moment count, however long it has waited.
            engine.refresh_user(&mut session.state);
        }
        let mut state = session.state.clone();
        let call = Call {
            now_ms: self.now_ms,
            seed: pending.seed,
            database: state.database,
            mode: Mode::Memory,
            pins: session.pins.as_deref(),
        };
        let inbox = &self.inbox;
        let place = match needs.exclusive {
            true => Place::Exclusive { inbox },
            false if is_unlocked => Place::Unlocked { inbox },
            false => Place::Locked { claims: &needs.claims, held_for: HeldFor::Moment, inbox },
        };
        let buffers = std::mem::take(&mut self.buffers);
        let mut ran = pending.work.run(engine, &store, session.id, &mut state, call, buffers, place);
        self.buffers = std::mem::take(&mut ran.buffers);
        drop(admitted);
        Ok(self.end_pending(engine, session, pending, state, ran, out))
    }

    /// Looks whether the store takes what a command is going to write.
    fn weigh(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &mut Session,
        pending: Box<Pending>,
        out: &mut Vec<u8>,
    ) -> Result<Box<Pending>, Next> {
        let (writes, grows) = pending.work.writes(&engine.table);
        // A command that was called from a queue goes to its lock: those behind it wait for that.
        if writes && !pending.exclusive && pending.turn == Turn::Newcomer {
            match pressure(store, &session.state, grows) {
                WritePressure::Slow(wait) if !pending.slowed => {
                    if let Some(wait) = session.owe(wait) {
                        return Err(self.hold(engine, session, pending, Deferral::Slow(wait)));
                    }
                }
                WritePressure::Slow(_) | WritePressure::Go => {}
                // A script may only read: its calls are refused one by one.
                WritePressure::Stop(_) if pending.work.only_scripts_write(&engine.table) => {}
                WritePressure::Stop(why) => {
                    let next = self.give_up(engine, session, &pending.work, refusal(&why), out);
                    let bytes = pending.bytes;
                    if let Work::Block(block) = pending.work {
                        engine.release_queue(session, block.commands, bytes);
                    }
                    return Err(next);
                }
            }
        }
        Ok(pending)
    }

    /// Gets a pending command what it needs. An event loop that is to claim keys is inside the exclusion.
    fn admit<'a>(
        &mut self,
        engine: &'a Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        needs: &'a Needs,
    ) -> Result<(Box<Pending>, Admitted<'a>), Next> {
        if !needs.exclusive {
            return match KeysHeld::try_take(&engine.locks, &needs.claims, pending.turn, HeldFor::Moment) {
                Ok(keys) => {
                    pending.turn = Turn::Newcomer;
                    Ok((pending, Admitted::OnLoop { _keys: keys }))
                }
                Err(refused) => Err(self.hold(engine, session, pending, Deferral::Locked(refused))),
            };
        }
        // If the exclusion was granted, it was for this run.
        if std::mem::take(&mut pending.exclusive) {
            return Ok((pending, Admitted::Exclusive { _held: ExclusionHeld::granted(&engine.exclusion) }));
        }
        self.leave(engine);
        let (inbox, id) = (self.inbox.clone(), session.id);
        let held = ExclusionHeld::try_hold(&engine.exclusion, |answer| {
            Box::new(move || {
                let what = if answer == Exclusive::WillBeGranted { What::Granted } else { What::Retry };
                inbox.push(Event { session: id, what, begun: None });
            })
        });
        let Some(held) = held else {
            timed(session).begin(&engine.statistics.clock, Wait::Queue);
            session.waiting = Waiting::Here(pending);
            return Err(Next::Wait);
        };
        Ok((pending, Admitted::Exclusive { _held: held }))
    }

    /// Answers a pending command that has run, or sees to it that it runs again.
    fn end_pending(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        mut state: State,
        ran: Ran,
        out: &mut Vec<u8>,
    ) -> Next {
        let reply = match ran.reply {
            Ok(reply) => {
                let reply = engine.carry_out(session.id, &mut state, reply, pending.work.is_block());
                session.state = state;
                self.count_block(engine, session, ran.called);
                self.show_earlier_changes(engine, session, ran.gate);
                if let Some(waiter) = ran.waiter {
                    return self.wait_for_keys(engine, session, waiter, out);
                }
                reply
            }
            Err(Stop::NeedsLocks) => {
                pending.needs_locks = true;
                pending.add_keys(ran.missing, ran.needs_exclusion);
                // A dry run finds all keys that a script comes to, not only those that it has come to so far: others
                // had one of these, and it begins again with them once or twice before that.
                if pending.work.has_script(&engine.table) && !pending.needs_exclusion {
                    pending.again += 1;
                    if pending.again > AGAIN_MAX || pending.more.len() > ON_LOOP_MAX {
                        return self.hold(engine, session, pending, Deferral::Load);
                    }
                }
                session.waiting = Waiting::Here(pending);
                session.event = Some(What::Retry);
                return Next::Yield;
            }
            Err(Stop::WouldBlock) => return self.hold(engine, session, pending, Deferral::Load),
            // One that has come to keys which its arguments do not name is to have all of them from its beginning.
            Err(Stop::Long) => {
                let finds_keys =
                    !ran.missing.is_empty() && pending.loads == 0 && pending.work.has_script(&engine.table);
                pending.add_keys(ran.missing, ran.needs_exclusion);
                pending.long = true;
                let why = if finds_keys { Deferral::Load } else { Deferral::Long };
                return self.hold(engine, session, pending, why);
            }
            Err(stop) => pending.work.refusal(stop),
        };
        if pending.work.is_block() {
            engine.unwatch(session);
        }
        engine.depend_on_earlier(session, ran.gate);
        self.reply_or_hold(engine, session, reply, out)
    }

    /// Defers the command: it is left where what it waits for will find it.
    pub(crate) fn hold(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        mut pending: Box<Pending>,
        why: Deferral,
    ) -> Next {
        let (counters, clock) = (engine.counters(self.index), &engine.statistics.clock);
        let queued = match why {
            Deferral::Load if pending.loads >= LOADS_MAX => return self.run_on_pool(engine, session, pending),
            Deferral::Load => {
                counters.loads.add(1);
                timed(session).begin(clock, Wait::Disk);
                let task = Task::Load(pending, session.state.clone(), Together::new(1, None));
                return self.offload(session, Waiting::Pool, task);
            }
            Deferral::Long => return self.run_on_pool(engine, session, pending),
            Deferral::Remote(timeout) => {
                timed(session).begin(clock, Wait::Pool);
                let until = Instant::now().checked_add(timeout);
                let task = Task::Migrate(pending, session.state.clone(), until);
                return self.offload(session, Waiting::Pool, task);
            }
            Deferral::Slow(wait) => {
                counters.slowed.add(1);
                timed(session).begin(clock, Wait::Stall);
                pending.slowed = true;
                session.waiting = Waiting::Here(pending);
                return Next::Sleep(wait);
            }
            Deferral::Outside => {
                timed(session).begin(clock, Wait::Queue);
                engine.exclusion.wait_outside(self.waiter(session.id, What::Retry)).is_none()
            }
            Deferral::Locked(refused) => {
                counters.lock_waits.add(1);
                timed(session).begin(clock, Wait::Lock);
                let turn = std::mem::replace(&mut pending.turn, Turn::Called(refused));
                matches!(engine.locks.park(refused, turn, self.waiter(session.id, What::Retry)), Parked::Queued)
            }
            Deferral::LongWay | Deferral::MoreLocks | Deferral::Awaited => {
                unreachable!("this is the long way")
            }
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
        timed(session).begin(&engine.statistics.clock, Wait::Pool);
        let task = Task::Run(pending, session.state.clone());
        self.offload(session, Waiting::Pool, task)
    }

    pub(crate) fn offload(&mut self, session: &mut Session, waiting: Waiting, task: Task) -> Next {
        session.waiting = waiting;
        session.away_bytes = task.bytes();
        self.on_pool += 1;
        self.jobs.push(Job { session: session.id, inbox: self.inbox.clone(), task });
        Next::Wait
    }

    /// Leaves it to the I/O pool to free the rest of a long reply: an event loop would go through all of its rows.
    pub(crate) fn release_reply(&mut self, engine: &Engine, session: &mut Session) {
        /// About as many as are freed in a tenth of a millisecond.
        const FREED_BYTES_MAX: usize = 64 << 10;
        let Waiting::Stream(pieces) = &session.waiting else { return };
        let bytes = pieces.weight().held_bytes;
        if bytes > FREED_BYTES_MAX
            && let Waiting::Stream(pieces) = std::mem::take(&mut session.waiting)
        {
            let task = Task::Release(Box::new((pieces, Counted::new(&engine.client_memory, bytes))));
            self.jobs.push(Job { session: session.id, inbox: self.inbox.clone(), task });
        }
    }

    /// Answers a client whose writes the store refuses now.
    pub(crate) fn give_up(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        work: &Work,
        why: String,
        out: &mut Vec<u8>,
    ) -> Next {
        let reply = if work.is_block() {
            engine.unwatch(session);
            discarded(&why)
        } else {
            Reply::error(why)
        };
        let next = self.reply(engine, session, reply, Index(0), out);
        self.outcome = Outcome::Rejected;
        next
    }
}

impl Pending {
    /// Returns whether the command reads one row without a lock: whoever holds the key for long may not have it wait,
    /// and a row that was loaded is read as one in memory is. A command that was called from a queue takes its lock, or
    /// those behind it would wait for ever. The caller is inside the exclusion.
    fn goes_unlocked(&self, engine: &Engine, store: &Store, database: u32) -> bool {
        !self.needs_locks
            && self.turn == Turn::Newcomer
            && self.work.reads_one_row(&engine.table, store, database).is_some_and(|key| !store.is_staged(&key))
    }
}

/// The times of the command that waits.
pub(crate) fn timed(session: &mut Session) -> &mut Timed {
    session.timed.get_or_insert_with(Box::default)
}
