//! The short way: one command on its keys, in memory, from admission to its reply, on an event loop.
//!
//! The short way is the `protocol` with nobody to serve: where a client waits for a key that a command makes, the long
//! way runs it. A deferred run leaves nothing behind.

use crate::clients::session::Session;
use crate::keys::admission::KeysHeld;
use crate::keys::claims::Hold;
use crate::keys::locks::{HeldFor, Turn as LockTurn};
use crate::run::engine::Engine;
use crate::run::execute::{Deferral, pressure};
use crate::run::protocol::{Keeps, conclude, prepare};
use crate::run::serving::Place;
use crate::run::worker::{Next, WorkerState};
use haypile_commands::error::refusal;
use haypile_commands::table::{TxnFn, WaitFn};
use haypile_commands::{Access, Args, Entry, Error, Flag, Tried, statement};
use haypile_log::Index;
use haypile_resp::{self as resp, Reply};
use haypile_store::{Call, Key, Lookups, Mode, Stop, Store, Txn, WritePressure};
use smallvec::SmallVec;

/// Arguments of a command, or of a block with its watched keys, that an event loop works on at once. More are for the
/// I/O pool.
pub(crate) const ARGUMENTS_AT_ONCE: usize = 4096;

/// A function of the short way.
pub(crate) trait Runs {
    /// Runs the function and writes its reply in place, because a reply is large to move. Returns false if there is
    /// nothing to have yet.
    fn run(&self, txn: &mut Txn<'_>, args: Args<'_>, reply: &mut Result<Reply, Error>) -> bool;
}

/// A command that ends at once.
#[derive(Clone, Copy)]
pub(crate) struct Once<'e>(pub TxnFn, pub &'e Entry);

/// A command that waits where it finds nothing.
#[derive(Clone, Copy)]
pub(crate) struct Try<'a>(pub WaitFn, pub &'a Entry);

impl Runs for Once<'_> {
    #[inline]
    fn run(&self, txn: &mut Txn<'_>, args: Args<'_>, reply: &mut Result<Reply, Error>) -> bool {
        let begun = statement::begin(txn, self.1, args);
        *reply = begun.and_then(|before| {
            let database = txn.database();
            let reply = (self.0)(txn, args)?;
            statement::end(txn, before, database, self.1, args);
            Ok(reply)
        });
        true
    }
}

impl Runs for Try<'_> {
    #[inline]
    fn run(&self, txn: &mut Txn<'_>, args: Args<'_>, reply: &mut Result<Reply, Error>) -> bool {
        let begun = statement::begin(txn, self.1, args);
        match begun.and_then(|before| Ok(((self.0)(txn, args)?, before))) {
            Ok((Tried::Got(got), before)) => {
                statement::end_waiting(txn, before);
                *reply = Ok(got);
            }
            Ok((Tried::Nothing(_), _)) => return false,
            Err(error) => *reply = Err(error),
        }
        true
    }
}

/// The keys of a command, each with the position of its argument.
type Keys<'a> = SmallVec<[(usize, Key<'a>); 2]>;

/// A command that was let in: what each attempt to run it needs.
struct Short<'a, R> {
    run: R,
    args: resp::Args<'a>,
    keys: &'a [(usize, Key<'a>)],
    keeps: Keeps,
    /// The command's keys are locked.
    locked: bool,
    /// An earlier attempt has touched its keys.
    is_again: bool,
}

/// The outcome of an attempt.
struct Attempted {
    reply: Result<Reply, Error>,
    /// The newest record that the reply depends on.
    gate: Index,
    lookups: Lookups,
}

impl Default for Attempted {
    fn default() -> Attempted {
        Attempted { reply: Err(Error::Stop(Stop::NeedsLocks)), gate: Index(0), lookups: Lookups::default() }
    }
}

impl WorkerState {
    /// Runs one command on its keys, as its access asks for.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one request, handed on as they are")]
    pub(crate) fn on_rows(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &mut Session,
        entry: &Entry,
        run: impl Runs,
        args: resp::Args<'_>,
        located: &[Key<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Next, Deferral> {
        match entry.command.access {
            Access::Read => self.data::<false>(engine, store, session, entry, run, args, located, out),
            Access::Write => self.data::<true>(engine, store, session, entry, run, args, located, out),
            Access::Exclusive => Err(Deferral::LongWay),
            Access::None => unreachable!("a law of the table: what runs over a transaction reads or writes"),
        }
    }

    /// Runs one command on its keys, for which `WRITES` says how they are locked.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one request, handed on as they are")]
    fn data<const WRITES: bool>(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &mut Session,
        entry: &Entry,
        run: impl Runs,
        args: resp::Args<'_>,
        located: &[Key<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Next, Deferral> {
        let keeps = match keeps::<WRITES>(store, session, entry)? {
            Ok(keeps) => keeps,
            Err(why) => return Ok(self.refuse(engine, session, Reply::error(why), out)),
        };
        // So many keys take their time to look at, to lock and to answer for.
        if args.len() > ARGUMENTS_AT_ONCE {
            return Err(Deferral::Long);
        }
        // Before the keys: which space they are in must not change until they are locked.
        if !self.enter(engine) || self.store_version != engine.store_version() {
            return Err(Deferral::Outside);
        }
        let mut keys = Keys::new();
        self.claim::<WRITES>(store, session.state.database, entry, args, located, &mut keys);
        // A read of one row sees it as it is at one moment, without waiting for the holder of its key.
        let locked =
            WRITES || keys.len() != 1 || !entry.looks_at_one_row || keys.iter().any(|(_, key)| store.is_staged(key));
        let mut short = Short { run, args, keys: &keys, keeps, locked, is_again: false };
        let mut attempted = Attempted::default();
        self.attempt_with_locks::<WRITES>(engine, store, session, &mut short, &mut attempted)?;
        self.answer(engine, session, attempted, out)
    }

    /// Writes the reply to an attempt, unless the long way has to go on with its command.
    #[inline(always)]
    fn answer(
        &mut self,
        engine: &Engine,
        session: &mut Session,
        attempted: Attempted,
        out: &mut Vec<u8>,
    ) -> Result<Next, Deferral> {
        let reply = match attempted.reply {
            Ok(reply) => {
                engine.counters(self.index).add_lookups(attempted.lookups);
                return Ok(self.reply(engine, session, reply, attempted.gate, out));
            }
            Err(Error::Stop(Stop::WouldBlock)) => return Err(Deferral::Load),
            Err(Error::Stop(Stop::Long)) => return Err(Deferral::Long),
            Err(Error::Stop(Stop::NeedsLocks)) => return Err(Deferral::MoreLocks),
            Err(Error::Stop(stop)) => {
                if let Some(repeating) = &session.state.repeating {
                    repeating.note_stop(&stop);
                }
                Error::Stop(stop).into_reply()
            }
            Err(error) => {
                engine.counters(self.index).add_lookups(attempted.lookups);
                error.into_reply()
            }
        };
        Ok(self.reply(engine, session, reply, attempted.gate, out))
    }

    /// Finds the keys of a command, and claims them.
    #[inline(always)]
    fn claim<'a, const WRITES: bool>(
        &mut self,
        store: &Store,
        database: u32,
        entry: &Entry,
        args: resp::Args<'a>,
        located: &[Key<'a>],
        keys: &mut Keys<'a>,
    ) {
        self.claims.clear();
        for (number, (at, spec)) in entry.command.keys(Args::from(args)).enumerate() {
            let key = match located.get(number) {
                Some(key) if store.is_in(key, database) => *key,
                _ => store.key(database, args.get(at)),
            };
            keys.push((at, key));
            let hold = if WRITES && entry.command.changes(spec) { Hold::Exclusive } else { Hold::Shared };
            self.claims.add(key.hash, hold);
        }
        self.claims.arrange();
    }

    /// Runs a command, once more with its locks where it turns out to need them.
    #[inline]
    fn attempt_with_locks<const WRITES: bool>(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &Session,
        short: &mut Short<'_, impl Runs>,
        attempted: &mut Attempted,
    ) -> Result<(), Deferral> {
        loop {
            self.attempt::<WRITES>(engine, store, session, short, attempted)?;
            if short.locked || !matches!(attempted.reply, Err(Error::Stop(Stop::NeedsLocks))) {
                return Ok(());
            }
            (short.locked, short.is_again) = (true, true);
        }
    }

    /// Runs a command in a transaction, under its locks where it has to.
    #[inline]
    fn attempt<const WRITES: bool>(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: &Session,
        short: &Short<'_, impl Runs>,
        attempted: &mut Attempted,
    ) -> Result<(), Deferral> {
        let seed = self.next_seed();
        let place = Place::Short { locked: short.locked, writes: WRITES };
        let take = || KeysHeld::try_take(&engine.locks, &self.claims, LockTurn::Newcomer, HeldFor::Moment);
        let held = short.locked.then(take).transpose().map_err(Deferral::Locked)?;
        let (database, pins) = (session.state.database, session.pins.as_deref());
        let call = Call { now_ms: self.now_ms, seed, database, mode: Mode::Memory, pins };
        let touches = !session.state.no_touch && !short.is_again;
        let mut txn = store.begin(std::mem::take(&mut self.buffers), call);
        prepare(engine, &mut txn, place, touches);
        if let Some(repeating) = &session.state.repeating {
            txn.repeat(&repeating.repeated);
        }
        let has_reply = short.run.run(&mut txn, Args::with_keys(short.args, short.keys), &mut attempted.reply);
        debug_assert!(WRITES || txn.is_read_only(), "Invariant: a read makes no record");
        // The long way tries again, and waits.
        let deferral = match &attempted.reply {
            _ if !has_reply => Some(Deferral::LongWay),
            Ok(_) if WRITES && engine.is_awaited(&txn) => Some(Deferral::Awaited),
            _ => None,
        };
        if deferral.is_none()
            && attempted.reply.is_ok()
            && let Err(stop) = conclude(engine, store, &mut txn, None, short.keeps, session.id)
        {
            attempted.reply = Err(Error::Stop(stop));
        }
        (attempted.gate, attempted.lookups) = (txn.gate(), txn.lookups());
        self.buffers = txn.end();
        drop(txn);
        drop(held);
        deferral.map_or(Ok(()), Err)
    }
}

/// Returns which part of a run is to stay, as far as the store takes writes now.
///
/// # Errors
/// The outer one: it has to wait first. The inner one: it is refused, with this text.
#[inline]
fn keeps<const WRITES: bool>(
    store: &Store,
    session: &mut Session,
    entry: &Entry,
) -> Result<Result<Keeps, String>, Deferral> {
    if !WRITES {
        return Ok(Ok(Keeps::Nothing));
    }
    Ok(match pressure(store, &session.state, entry.flags.has(Flag::Denyoom)) {
        WritePressure::Go => Ok(Keeps::Effects),
        WritePressure::Slow(wait) => match session.owe(wait) {
            Some(wait) => return Err(Deferral::Slow(wait)),
            None => Ok(Keeps::Effects),
        },
        WritePressure::Stop(why) => Err(refusal(&why)),
    })
}
