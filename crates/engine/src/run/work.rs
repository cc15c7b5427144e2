//! Runs a command or a block between MULTI and EXEC as one transaction, in any of the store's modes.
//!
//! Here is what runs between the two ends of the `protocol`. Getting it admitted (the exclusion, key locks) is the
//! business of `wait` on event loops and of `pool` elsewhere. The short way, for a single command that nothing holds
//! up, is in `short`.

use crate::clients::pending::{Block, Pending, Queued, Work};
use crate::clients::session::State;
use crate::clients::statistics::Called;
use crate::keys::claims::{Claims, Hold};
use crate::keys::gate::StoreGate;
use crate::keys::visits::Visits;
use crate::keys::waiters::{Waiter, in_ms};
use crate::run::engine::Engine;
use crate::run::host::SessionHost;
use crate::run::monitor;
use crate::run::protocol::{Keeps, conclude, prepare};
use crate::run::reply::discarded;
use crate::run::script::{self, Found, Part};
use crate::run::serving::{Place, Service};
use crate::run::short::ARGUMENTS_AT_ONCE;
use haypile_acl::log::Context;
use haypile_commands::host::{Act, Answer};
use haypile_commands::rights::Requested;
use haypile_commands::table::WaitFn;
use haypile_commands::{
    self as commands, Access, Args, Awaited, Body, Command, CommandId, Entry, Error, Flag, Table, Tried, statement,
};
use haypile_resp::decode::error_text;
use haypile_resp::{self as resp, Bytes, OwnedArgs, Reply};
use haypile_store::{Call, Key, KeyLocks, Lacking, Mode, Pins, Stop, Store, Txn, TxnBuffers};
use haypile_types::hash;
use haypile_types::key as types_key;
use std::sync::Arc;
use std::time::Instant;

/// Arguments of more bytes are given back before the commit.
const FORGOTTEN_FROM_BYTES: usize = 1 << 20;

/// The locks that a command or a block has to have before it may run.
#[derive(Default)]
pub(crate) struct Needs {
    pub claims: Claims,
    /// The run is exclusive; it claims no keys then.
    pub exclusive: bool,
}

/// The outcome of a run.
pub(crate) struct Ran {
    pub reply: Result<Reply, Stop>,
    /// The newest record that the reply depends on.
    pub gate: StoreGate,
    pub buffers: TxnBuffers,
    /// The rows that a run in `Mode::Load` has read.
    pub pins: Pins,
    /// The commands of a block that has run.
    pub called: Vec<Called>,
    /// The command has found nothing, and waits for its keys.
    pub waiter: Option<Arc<Waiter>>,
    /// Keys whose locks it lacked, or that it took on its way to no effect; of a dry run, those of its scripts' calls.
    pub missing: Vec<Lacking>,
    /// Whether the run has to be an exclusive one.
    pub needs_exclusion: bool,
}

impl Pending {
    /// Adds keys that a run has found.
    pub fn add_keys(&mut self, keys: Vec<Lacking>, needs_exclusion: bool) {
        self.needs_exclusion |= needs_exclusion;
        let before = self.more.capacity();
        self.more.extend(keys);
        self.bytes += (self.more.capacity() - before) * size_of::<Lacking>();
        self.more.sort_unstable_by_key(|key| (key.hash, !key.exclusive));
        self.more.dedup_by_key(|key| key.hash);
    }

    pub fn needs(&self, table: &Table, store: &Store) -> Needs {
        let mut needs = Needs::default();
        self.work.add_to(&mut needs, table, store);
        for Lacking { hash, exclusive } in &self.more {
            needs.claims.add(*hash, if *exclusive { Hold::Exclusive } else { Hold::Shared });
        }
        needs.exclusive |= self.needs_exclusion;
        if needs.exclusive {
            needs.claims.clear();
        }
        needs.claims.arrange();
        needs
    }
}

impl Work {
    pub fn is_block(&self) -> bool {
        matches!(self, Work::Block(_))
    }

    /// Returns whether the work runs a script, whose keys only its run can tell.
    pub fn has_script(&self, table: &Table) -> bool {
        let is_script = |id: CommandId| matches!(table.entry(id).command.body, Body::Script(_));
        match self {
            Work::Command(id, _) | Work::Again(id, ..) => is_script(*id),
            Work::Block(block) => block.commands.iter().any(|queued| is_script(queued.command)),
        }
    }

    /// The one key of a read that looks at one row of it, for the most part: that needs no lock.
    pub fn reads_one_row<'a>(&'a self, table: &Table, store: &Store, database: u32) -> Option<Key<'a>> {
        let Work::Command(id, args) = self else { return None };
        let entry = table.entry(*id);
        let is_script = matches!(entry.command.body, Body::Script(_));
        if entry.command.access != Access::Read || entry.command.waits() || is_script || !entry.looks_at_one_row {
            return None;
        }
        let args = args.as_args();
        let mut keys = entry.command.keys(Args::from(args)).map(|(at, _)| store.key(database, args.get(at)));
        let key = keys.next()?;
        keys.next().is_none().then_some(key)
    }

    /// Whether nothing but scripts may write in it: their calls are looked at one by one.
    pub fn only_scripts_write(&self, table: &Table) -> bool {
        let writes_itself = |id: CommandId| table.entry(id).flags.has(Flag::Write);
        self.has_script(table)
            && match self {
                Work::Command(..) | Work::Again(..) => true,
                Work::Block(block) => !block.commands.iter().any(|queued| writes_itself(queued.command)),
            }
    }

    /// Returns whether the work writes, and whether some write may make the data larger.
    pub fn writes(&self, table: &Table) -> (bool, bool) {
        let of = |id: CommandId| {
            let Entry { command, flags, .. } = table.entry(id);
            match command.body {
                // A script writes by its calls, which are looked at one by one.
                Body::Script(_) => (command.access != Access::Read, false),
                _ => (flags.has(Flag::Write), flags.has(Flag::Denyoom)),
            }
        };
        match self {
            Work::Command(id, _) | Work::Again(id, ..) => of(*id),
            Work::Block(block) => block.commands.iter().fold((false, false), |(writes, grows), queued| {
                let (also_writes, also_grows) = of(queued.command);
                (writes | also_writes, grows | also_grows)
            }),
        }
    }

    /// The reply where the work has ended without effect. A block says that none of its commands stands.
    pub fn refusal(&self, stop: Stop) -> Reply {
        match (Error::Stop(stop).into_reply(), self) {
            (Reply::Error(why), Work::Block(_)) => discarded(&why),
            (reply, _) => reply,
        }
    }

    /// Bytes of its arguments.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Command(_, args) | Work::Again(_, args, _) => args.memory_bytes(),
            Work::Block(block) => {
                let of_args = |queued: &Queued| size_of::<Queued>() + queued.args.memory_bytes();
                let watched = block.watching.as_ref().map_or(0, |watching| watching.bytes());
                block.commands.iter().map(of_args).sum::<usize>() + watched
            }
        }
    }

    /// Returns the command and its arguments, unless it is a block.
    fn command(&self) -> Option<(CommandId, &OwnedArgs)> {
        match self {
            Work::Command(id, args) | Work::Again(id, args, _) => Some((*id, args)),
            Work::Block(_) => None,
        }
    }

    /// Gives the arguments of a very long command back, which has run and has only to be committed: its record is as
    /// long again.
    fn forget_long_args(&mut self) {
        if let Work::Command(_, args) = self
            && args.memory_bytes() > FORGOTTEN_FROM_BYTES
        {
            *args = OwnedArgs::default();
        }
    }

    fn add_to(&self, needs: &mut Needs, table: &Table, store: &Store) {
        match self {
            Work::Command(id, args) | Work::Again(id, args, _) => needs.add(table.entry(*id), args.as_args(), store),
            Work::Block(block) => {
                for queued in &block.commands {
                    needs.add(table.entry(queued.command), queued.args.as_args(), store);
                }
                for (database, name, _) in block.watching.iter().flat_map(|watching| watching.iter()) {
                    needs.claims.add(store.key(database, name).hash, Hold::Shared);
                }
            }
        }
    }

    /// Runs it in a transaction of `call`; the caller has what it needs, and gives it back only afterwards. `state` is
    /// changed even where it fails.
    #[allow(clippy::too_many_arguments, reason = "the pieces of one run, handed on as they are")]
    pub fn run(
        &mut self,
        engine: &Engine,
        store: &Store,
        session: u64,
        state: &mut State,
        call: Call<'_>,
        buffers: TxnBuffers,
        place: Place<'_>,
    ) -> Ran {
        let mut called = Vec::new();
        let mut found = Found::default();
        let mut awaited = None;
        let visits = match place {
            Place::Locked { claims, held_for, .. } => {
                Some(Visits::new(&engine.locks, claims, held_for, &engine.waiters))
            }
            _ => None,
        };
        let repeating = state.repeating.clone();
        let mut txn = store.begin(buffers, call);
        prepare(engine, &mut txn, place, !state.no_touch);
        if let Some(repeating) = &repeating {
            txn.repeat(&repeating.repeated);
        }
        if let Some(visits) = &visits {
            txn.set_locks(visits);
        }
        let (mode, is_exclusive) = (call.mode, matches!(place, Place::Exclusive { .. }));
        let (called_here, found_here) = (&mut called, &mut found);
        let part =
            Part { engine, txn: &mut txn, session, state, mode, is_exclusive, called: called_here, found: found_here };
        let reply = self.answer(part, &mut awaited);
        // Nothing that is left can ask for another run: no waiter is served, no database exchanged.
        let is_final = mode == Mode::Disk && txn.ready().is_empty() && txn.moved_databases().next().is_none();
        if is_final && reply.is_ok() && awaited.is_none() && repeating.is_none() {
            self.forget_long_args();
        }
        let reply = if repeating.is_some() { refused_as_a_whole(reply) } else { reply };
        debug_assert!(txn.is_read_only() || self.writes(&engine.table).0, "Invariant: a read makes no record");
        let keeps = Work::keeps(place);
        let locks = visits.as_ref().map(|visits| visits as &dyn KeyLocks);
        let mut service = Service::new(engine, store, place, locks);
        let mut waiter = None;
        let reply = match reply {
            Ok(reply) => conclude(engine, store, &mut txn, Some(&mut service), keeps, session).map(|()| {
                if let (Some(awaited), Some(inbox), Some((id, args))) = (awaited, place.inbox(), self.command()) {
                    let (user, database, deadline) = (&state.user, call.database, self.deadline(&awaited));
                    waiter = Some(engine.begin_wait(session, user, inbox, id, args, database, awaited, deadline));
                }
                reply
            }),
            Err(Error::Stop(stop)) => Err(stop),
            // Without effect: an error leaves nothing behind.
            Err(error) => {
                if repeating.is_some() {
                    // A block that comes again begins where it has begun.
                    state.database = call.database;
                }
                Ok(error.into_reply())
            }
        };
        if let (Some(repeating), Err(stop)) = (&repeating, &reply) {
            repeating.note_stop(stop);
        }
        if keeps != Keeps::DryRun && reply.is_ok() {
            engine.add_lookups(txn.lookups());
            std::mem::take(&mut found.lines).into_iter().for_each(|line| monitor::send(engine, line));
        }
        let mut missing = txn.take_lacking();
        missing.extend(found.keys.into_iter().map(|(hash, exclusive)| Lacking { hash, exclusive }));
        missing.extend(service.take_missing().into_iter().map(|hash| Lacking { hash, exclusive: true }));
        if let (Err(_), Some(visits)) = (&reply, &visits) {
            visits.add_to(&mut missing);
        }
        drop(service);
        let (pins, gate, needs_exclusion) = (txn.take_pins(), engine.gate_at(txn.gate()), found.needs_exclusion);
        Ran { reply, gate, buffers: txn.finish(), pins, called, waiter, missing, needs_exclusion }
    }

    /// Runs the command or the block; `awaited` says what a command waits for that has found nothing.
    fn answer(&self, part: Part<'_, '_, '_>, awaited: &mut Option<Awaited>) -> Result<Reply, Error> {
        let (id, args) = match self {
            Work::Command(id, args) | Work::Again(id, args, _) => (*id, args),
            Work::Block(block) => return block.run(part),
        };
        match part.engine.table.entry(id) {
            entry @ Entry { command: Command { body: Body::Wait(run), .. }, .. } => {
                self.attempt(part.txn, entry, *run, Args::from(args.as_args())).map(|tried| match tried {
                    Tried::Got(reply) => reply,
                    Tried::Nothing(nothing) => {
                        *awaited = Some(nothing);
                        Reply::None
                    }
                })
            }
            entry @ Entry { command: Command { body: Body::Script(by), .. }, .. } => {
                script::run(part, entry, *by, Args::from(args.as_args()))
            }
            entry => {
                let Part { engine, txn, session, state, mode, .. } = part;
                make_room(txn, entry, args.as_args());
                let mut host = SessionHost { engine, session, state, txn: Some(txn), may_wait: mode == Mode::Disk };
                let answer = commands::call(&mut host, entry, Args::from(args.as_args()));
                answer.and_then(|answer| host.note(answer))
            }
        }
    }

    /// Tries a command that waits where it finds nothing. One that has waited before leaves no trace then.
    fn attempt(&self, txn: &mut Txn<'_>, entry: &Entry, run: WaitFn, args: Args<'_>) -> Result<Tried, Error> {
        let before = matches!(self, Work::Again(..)).then(|| txn.savepoint());
        let stating = statement::begin(txn, entry, args)?;
        let tried = run(txn, args)?;
        statement::end_waiting(txn, stating);
        if let (Tried::Nothing(_), Some(before)) = (&tried, before) {
            txn.rollback(before);
        }
        Ok(tried)
    }

    /// Returns the end of a wait; one that goes on keeps its own.
    fn deadline(&self, awaited: &Awaited) -> Option<Instant> {
        match self {
            Work::Again(_, _, deadline) => *deadline,
            Work::Command(..) | Work::Block(_) => awaited.timeout_ms.and_then(in_ms),
        }
    }

    /// Returns which part of a run in this place stays when it has come to its end.
    fn keeps(place: Place<'_>) -> Keeps {
        if matches!(place, Place::DryRun) { Keeps::DryRun } else { Keeps::Effects }
    }
}

/// Makes of the error that a script has ended with one that leaves nothing of it: a master's command takes effect as
/// there, or not at all.
fn refused_as_a_whole(reply: Result<Reply, Error>) -> Result<Reply, Error> {
    match reply {
        Ok(reply) => match error_text(&reply) {
            Some(why) => Err(Error::text(why.into_owned())),
            None => Ok(reply),
        },
        stopped => stopped,
    }
}

/// Looks whether the user of a block's client, who may be another one by now or have lost rights, may make a call.
///
/// # Errors
/// The answer instead of the call's.
fn may_run(state: &State, entry: &Entry, args: Args<'_>, database: u32) -> Result<(), Answer> {
    let called = Requested { entry, args, database };
    if let Err(denied) = called.check(&state.user) {
        let reply = Reply::error(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
             is no longer allowed for the following reason: {}",
            denied.text_in_block()
        ));
        return Err(Answer::with(reply, Act::NoteDenial(called.denial(&state.user, denied, Context::Multi), 1)));
    }
    called.check_other_keys(&state.user).map_err(|error| error.into_reply().into())
}

/// Makes room in a transaction for what a command with very many keys writes, one row for each.
fn make_room(txn: &mut Txn<'_>, entry: &Entry, args: resp::Args<'_>) {
    if args.len() > ARGUMENTS_AT_ONCE && entry.command.access == Access::Write {
        let changed = entry.command.keys(Args::from(args)).filter(|(_, spec)| entry.command.changes(spec));
        let keys = changed.count();
        if keys > ARGUMENTS_AT_ONCE {
            txn.reserve(keys, args.bytes_len());
        }
    }
}

impl Needs {
    fn add(&mut self, entry: &Entry, args: resp::Args<'_>, store: &Store) {
        let command = &entry.command;
        self.exclusive |= command.access == Access::Exclusive;
        for (at, spec) in command.keys(Args::from(args)) {
            // A script changes the keys that it names, unless it says otherwise.
            let is_changed = match command.body {
                Body::Script(_) => command.access != Access::Read,
                _ => command.changes(spec),
            };
            let hold = if is_changed { Hold::Exclusive } else { Hold::Shared };
            self.claims.add(store.key(0, args.get(at)).hash, hold);
        }
    }
}

impl Block {
    /// Runs the commands one after the other. A command that its handler refuses leaves nothing of its own, and the
    /// others stand, as in Redis.
    ///
    /// # Errors
    /// A command was stopped by the store: it has to run elsewhere, its changes are too large, they are refused, or a
    /// read failed. Invariant: then the block as a whole has no effect, because what the other commands did may only be
    /// right together with what this one was to do. Of a master's block, every command has done something there: one
    /// that is refused here refuses the block.
    fn run(&self, part: Part<'_, '_, '_>) -> Result<Reply, Error> {
        let Part { engine, txn, session, state, mode, is_exclusive, called, found } = part;
        if self.is_outdated(txn)? {
            return Ok(Reply::NullArray);
        }
        let mut replies: Vec<Reply> = Vec::with_capacity(self.commands.len());
        for (at, queued) in self.commands.iter().enumerate() {
            state.acts.begin_command(at);
            let entry = engine.table.entry(queued.command);
            let (started, before) = (engine.statistics.clock.now(), state.protocol);
            let args = Args::from(queued.args.as_args());
            let answer = if let Err(answer) = may_run(state, entry, args, txn.database()) {
                SessionHost { engine, session, state, txn: Some(&mut *txn), may_wait: false }.note(answer)
            } else if let Body::Script(by) = entry.command.body {
                let (txn, state, called, found) = (&mut *txn, &mut *state, &mut *called, &mut *found);
                script::run(Part { engine, txn, session, state, mode, is_exclusive, called, found }, entry, by, args)
            } else {
                engine.note_read(state, entry, args);
                let txn = Some(&mut *txn);
                let mut host = SessionHost { engine, session, state, txn, may_wait: mode == Mode::Disk };
                commands::call(&mut host, entry, args).and_then(|answer| host.note(answer))
            };
            let reply = match answer {
                Err(error @ Error::Stop(_)) => return Err(error),
                answer if state.repeating.is_some() => refused_as_a_whole(answer)?,
                reply => reply.unwrap_or_else(Error::into_reply),
            };
            called.push(Called::new(&engine.statistics, entry, queued.args.as_args(), &reply, started));
            if state.protocol != before {
                // Earlier replies stay in the protocol of their time.
                for reply in replies.iter_mut().filter(|reply| !reply.has_stream()) {
                    let mut bytes = Vec::new();
                    reply.encode(before, &mut bytes);
                    *reply = Reply::Raw(Bytes::from(bytes));
                }
            }
            replies.push(reply);
        }
        Ok(Reply::Array(replies))
    }

    /// Whether a watched key has changed since it was watched, or has passed its deadline.
    fn is_outdated(&self, txn: &mut Txn<'_>) -> Result<bool, Error> {
        let Some(watching) = &self.watching else { return Ok(false) };
        if watching.is_outdated() {
            return Ok(true);
        }
        for (database, name, since_ms) in watching.iter() {
            let key = txn.key_in(database, name);
            let Some(row) = txn.meta(&key)? else { continue };
            let entry = types_key::Entry::parse(row)?;
            let since = since_ms..txn.now_ms();
            let header = &entry.header;
            if header.deadline_ms.is_some_and(|deadline_ms| since.contains(&deadline_ms))
                || header.fields.is_some() && hash::has_expired_within(txn, &key, &entry, since)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
