//! A script or a function as part of a transaction.
//!
//! A script is one transaction, as a block is: what it has written stands as a whole, also where an error ends it, as
//! in Redis. Each call of a script is a command (`script_server`), which needs its keys' locks like any other; a run
//! that lacks one is dropped and begun again, with the same random numbers. Texts and interpreters are in `scripts`.

use crate::clients::checks::{IN_GROUP, STALE};
use crate::clients::pending::Queued;
use crate::clients::session::State;
use crate::clients::statistics::Called;
use crate::run::check::MASTER_DOWN;
use crate::run::engine::Engine;
use crate::run::script_server::ScriptServer;
use crate::run::scripts::cache::Script;
use crate::run::scripts::local;
use crate::run::scripts::running::Kind;
use haypile_commands::error::refusal;
use haypile_commands::flags::Flags as CommandFlags;
use haypile_commands::function::Library;
use haypile_commands::table::Script as By;
use haypile_commands::{Access, Args, Body, Entry, Error, Flag};
use haypile_resp::{Protocol, Reply};
use haypile_script::{Flags, Halted, Outcome, Program, Run, Shebang};
use haypile_store::{Mode, Stop, Txn, WritePressure};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that a run takes at most on an event loop. One that needs more leaves it.
const MEMORY_BYTES_ON_LOOP: usize = 4 << 20;

/// Bytes that a run takes elsewhere, at least and at most: in between a share of `maxmemory`, so that as many as run at
/// the same time fit beside the data.
const MEMORY_BYTES_MIN: usize = 8 << 20;
const MEMORY_BYTES_MAX: usize = 64 << 20;
const MEMORY_SHARE: u64 = 16;

/// The rule of these bounds, in the error of a run that needs more.
const MEMORY_RULE: &str = "a sixteenth of 'maxmemory', at least 8 MB and at most 64 MB";

/// The facts that a run of scripts has found out.
#[derive(Default)]
pub(crate) struct Found {
    /// The hashes of the keys of all calls of a dry run, and whether one changes them.
    pub keys: HashMap<u32, bool>,
    /// A call can only run while nothing else does.
    pub needs_exclusion: bool,
    /// The moment when the first script of the run has begun: a block has as long on its event loop as one script.
    pub started: Option<Instant>,
    /// The lines that clients in MONITOR are shown when the run has taken effect.
    pub lines: Vec<Vec<u8>>,
}

/// The run that a script is part of.
pub(crate) struct Part<'a, 'r, 's> {
    pub engine: &'a Engine,
    pub txn: &'r mut Txn<'s>,
    pub session: u64,
    /// The client's state, of which only the acts of the script's calls change.
    pub state: &'r mut State,
    pub mode: Mode,
    /// Whether nothing else runs.
    pub is_exclusive: bool,
    pub called: &'r mut Vec<Called>,
    pub found: &'r mut Found,
}

/// Runs the script that a command names.
///
/// # Errors
/// `Error::Stop`: the transaction as a whole cannot go on. Any other error is the reply, and nothing has run.
pub(crate) fn run(mut part: Part<'_, '_, '_>, entry: &Entry, by: By, args: Args<'_>) -> Result<Reply, Error> {
    let (callee, keys_end) = callee(&mut part, by, args)?;
    let only_reads = permit(&part, entry, callee.flags())?;
    // Of a block, the first script alone tells how long one takes: those behind it have what is left of its time.
    let is_first = part.found.started.is_none();
    let is_on_loop = matches!(part.mode, Mode::Memory | Mode::Look);
    let slow = &part.engine.scripts.slow;
    let counter = slow.counter(callee.name());
    if is_on_loop && counter.passes() {
        slow.passed.add_shared(1);
        return Err(Error::Stop(Stop::Long));
    }
    let keys: Vec<&[u8]> = args.iter_from(3).take(keys_end - 3).collect();
    let values: Vec<&[u8]> = args.iter_from(keys_end).collect();
    let allows_oom = callee.flags().is_some_and(|flags| flags.allow_oom);
    let seed = part.txn.random();
    let run = Run {
        name: callee.name(),
        program: callee.program(),
        keys: &keys,
        args: &values,
        seed,
        memory_bytes: if part.mode == Mode::Disk { memory_bytes(part.engine) } else { MEMORY_BYTES_ON_LOOP },
        memory_rule: MEMORY_RULE,
    };
    let Part { engine, txn, session, state, mode, is_exclusive, called, found } = part;
    let own = State { protocol: Protocol::Resp2, ..state.clone() };
    let database = txn.database();
    txn.set_nested(true);
    let running = engine.scripts.running.begin(mode, callee.kind(), args);
    let mut server = ScriptServer::new(
        engine,
        txn,
        session,
        own,
        mode,
        is_exclusive,
        only_reads,
        allows_oom,
        called,
        found,
        running,
    );
    let outcome = local::with(&engine.scripts, |interpreter| interpreter.run(&run, &mut server));
    let is_short = is_on_loop || mode == Mode::Disk && server.is_short();
    let (own, stop) = server.end();
    match stop {
        Some(Stop::Long) if is_first && is_on_loop => counter.has_left(),
        None if is_short => counter.was_short(),
        _ => {}
    }
    txn.set_nested(false);
    txn.select(database);
    (state.acts, state.effects) = (own.acts, own.effects);
    state.changed |= own.changed;
    match (outcome, stop) {
        (_, Some(stop)) => Err(Error::Stop(stop)),
        (Outcome::Halted(Halted::Failed(why)), None) => Ok(Reply::error(format!("{why} script: {}", run.name))),
        (Outcome::Halted(Halted::Dropped), None) => unreachable!("a run is dropped for a stop"),
        (Outcome::Reply(reply), None) => Ok(reply),
    }
}

/// Returns the bytes that a run takes at most on the I/O pool.
fn memory_bytes(engine: &Engine) -> usize {
    let share = engine.settings.config().maxmemory / MEMORY_SHARE;
    usize::try_from(share).unwrap_or(usize::MAX).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
}

/// A script or function that a command runs.
enum Callee {
    Script(Arc<Script>),
    /// A function, its name as it was registered.
    Function {
        library: Arc<Library>,
        name: String,
        flags: Flags,
    },
}

impl Callee {
    fn name(&self) -> &str {
        match self {
            Callee::Script(script) => &script.name,
            Callee::Function { name, .. } => name,
        }
    }

    /// The flags; nothing for a script that has no first line.
    fn flags(&self) -> Option<Flags> {
        match self {
            Callee::Script(script) => script.shebang.flags,
            Callee::Function { flags, .. } => Some(*flags),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Callee::Script(_) => Kind::Script,
            Callee::Function { .. } => Kind::Function,
        }
    }

    fn program(&self) -> Program<'_> {
        match self {
            Callee::Script(script) => Program::Script { text: &script.text, head_bytes: script.shebang.bytes },
            Callee::Function { library, .. } => {
                Program::Function { identity: &library.fact, text: library.code(), head_bytes: library.head_bytes }
            }
        }
    }
}

/// Finds what a command runs, and where its keys end.
fn callee(part: &mut Part<'_, '_, '_>, by: By, args: Args<'_>) -> Result<(Callee, usize), Error> {
    if by == By::Function {
        let functions = local::functions(&part.txn.facts());
        let (library, function) = functions.find(args.get(1)).ok_or(Error::text("ERR Function not found"))?;
        let keys_end = haypile_commands::script::keys_end(args).map_err(|error| match error {
            Error::NotInteger => Error::text("ERR Bad number of keys provided"),
            error => error,
        })?;
        let name = String::from_utf8_lossy(&function.name).into_owned();
        return Ok((Callee::Function { library: library.clone(), name, flags: function.flags }, keys_end));
    }
    let keys_end = haypile_commands::script::keys_end(args)?;
    let script = match by {
        By::Text if part.state.repeating.is_some() => {
            part.engine.scripts.of_master_text(args.get(1)).map_err(Error::Quoting)?
        }
        By::Text => part.engine.scripts.of_text(args.get(1)).map_err(Error::Quoting)?,
        By::Name | By::Function => find(part, args.get(1))?,
    };
    Ok((Callee::Script(script), keys_end))
}

/// Returns the flags of what a call runs, as far as that is known without a transaction; nothing of a script that has
/// no first line, or that is not there.
pub(crate) fn script_flags(engine: &Engine, by: By, args: Args<'_>) -> Option<Flags> {
    match by {
        By::Text => Shebang::of_script(args.get(1)).ok()?.flags,
        By::Name => engine.scripts.find(args.get(1))?.shebang.flags,
        By::Function => {
            let functions = local::functions(&engine.store()?.facts());
            functions.find(args.get(1)).map(|(_, function)| function.flags)
        }
    }
}

/// Returns the flags by which a call is looked at before it runs. Those that a script declares take the place of its
/// command's, as in Redis.
pub(crate) fn flags_of(engine: &Engine, entry: &Entry, args: Args<'_>) -> CommandFlags {
    let Body::Script(by) = entry.command.body else { return entry.flags };
    let Some(declared) = script_flags(engine, by, args) else { return entry.flags };
    let mut flags = CommandFlags::default();
    let stays = |flag: &Flag| match flag {
        Flag::Write | Flag::Stale => false,
        Flag::MayReplicate => !declared.no_writes,
        _ => true,
    };
    entry.flags.iter().filter(stays).for_each(|flag| flags.add(flag));
    if !declared.no_writes {
        flags.add(Flag::Write);
    }
    if declared.allow_stale {
        flags.add(Flag::Stale);
    }
    flags
}

/// Returns the flags by which a call of a block is looked at.
pub(crate) fn flags_of_queued(engine: &Engine, queued: &Queued) -> CommandFlags {
    flags_of(engine, engine.table.entry(queued.command), queued.args.as_args().into())
}

/// Finds a script by its name: in the cache, or among those that the same block has loaded.
fn find(part: &Part<'_, '_, '_>, name: &[u8]) -> Result<Arc<Script>, Error> {
    let loaded = part.state.acts.loaded_script(name).map(|text| part.engine.scripts.of_text(text));
    let found = match loaded {
        Some(script) => Some(script.map_err(Error::Quoting)?),
        None if part.state.repeating.is_some() => part.engine.scripts.find_of_master(name),
        None => part.engine.scripts.find(name),
    };
    found.ok_or_else(|| Error::text("NOSCRIPT No matching script. Please use EVAL."))
}

/// Whether a script may only read; its flags are looked at before it runs. The texts are those for commands, as in
/// Redis wherever it knows the flags beforehand.
fn permit(part: &Part<'_, '_, '_>, entry: &Entry, flags: Option<Flags>) -> Result<bool, Error> {
    let only_reads = entry.command.access == Access::Read;
    let is_stale = part.engine.checks.bits() & STALE != 0;
    if flags.is_some_and(|flags| flags.no_cluster) && part.engine.checks.bits() & IN_GROUP != 0 {
        return Err(Error::text("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    if is_stale && flags.is_none_or(|flags| !flags.allow_stale) {
        return Err(Error::text(MASTER_DOWN));
    }
    let Some(flags) = flags else { return Ok(only_reads) };
    if flags.no_writes {
        return Ok(true);
    }
    let pressure = part.engine.store().map(|store| crate::run::execute::pressure(&store, part.state, !flags.allow_oom));
    match pressure {
        Some(WritePressure::Stop(why)) => Err(Error::text(refusal(&why))),
        _ if only_reads => Err(Error::text("ERR Can not execute a script with write flag using *_ro command.")),
        _ => Ok(false),
    }
}

/// The stop that a dropped run has noted.
pub(crate) fn halted(stop: &mut Option<Stop>, why: Stop) -> Halted {
    stop.get_or_insert(why);
    Halted::Dropped
}
