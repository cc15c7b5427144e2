//! Scripts: EVAL and its relatives, and SCRIPT.
//!
//! Owns their entries and how their arguments are read. The engine runs scripts, because each of their calls is a
//! command that needs its keys' locks.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::server::introspect::help;
use crate::table::{Access, Arity, Begin, Body, Command, Find, Flag, Group, KeySpec, Keys, Mode, Script, Use};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[EVAL, EVAL_RO, EVALSHA, EVALSHA_RO, SCRIPT];

/// The keys of a script: their number is argument 2, and they follow it.
const KEYS: KeySpec = KeySpec {
    begin: Begin::Index(2),
    find: Find::KeyNum { count_at: 0, first: 1, step: 1 },
    ..KeySpec::at(2).with(Mode::Rw, &[Use::Access, Use::Update])
};

/// The keys of a script that only reads.
const READ_KEYS: KeySpec = KEYS.with(Mode::Ro, &[Use::Access]);

pub(crate) const USUAL: Command = Command {
    group: Group::Scripting,
    arity: Arity::at_least(3),
    keys: Keys::One(KEYS),
    complexity: "Depends on the script that is executed.",
    flags: &[Flag::Noscript, Flag::Stale, Flag::SkipMonitor, Flag::MayReplicate, Flag::NoMandatoryKeys],
    ..Command::USUAL
};

pub(crate) const USUAL_READ: Command = Command {
    keys: Keys::One(READ_KEYS),
    access: Access::Read,
    flags: &[Flag::Noscript, Flag::Stale, Flag::SkipMonitor, Flag::NoMandatoryKeys],
    ..USUAL
};

const EVAL: Command = Command {
    name: "eval",
    since: "2.6.0",
    summary: "Runs a script of Lua.",
    syntax: "script numkeys:integer [key...] [arg...]",
    keys: Keys::One(KEYS).noting("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
    body: Body::Script(Script::Text),
    ..USUAL
};

const EVAL_RO: Command = Command {
    name: "eval_ro",
    since: "7.0.0",
    summary: "Runs a script of Lua that only reads.",
    syntax: "script numkeys:integer [key...] [arg...]",
    keys: Keys::One(READ_KEYS).noting("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
    body: Body::Script(Script::Text),
    ..USUAL_READ
};

const EVALSHA: Command = Command {
    name: "evalsha",
    since: "2.6.0",
    summary: "Runs a script by the SHA-1 of its text.",
    syntax: "sha1 numkeys:integer [key...] [arg...]",
    body: Body::Script(Script::Name),
    ..USUAL
};

const EVALSHA_RO: Command = Command {
    name: "evalsha_ro",
    since: "7.0.0",
    summary: "Runs a script that only reads by the SHA-1 of its text.",
    syntax: "sha1 numkeys:integer [key...] [arg...]",
    body: Body::Script(Script::Name),
    ..USUAL_READ
};

/// Returns where the keys of a call of EVAL or its relatives end, and the arguments begin.
///
/// # Errors
/// Argument 2 is no number of keys.
pub fn keys_end(args: Args) -> Result<usize> {
    /// The argument behind the number of keys.
    const FIRST: usize = 3;
    let count = args.int(2)?;
    match usize::try_from(count) {
        Err(_) => Err(Error::text("ERR Number of keys can't be negative")),
        Ok(count) if count > args.len() - FIRST => {
            Err(Error::text("ERR Number of keys can't be greater than number of args"))
        }
        Ok(count) => Ok(FIRST + count),
    }
}

const SCRIPT: Command = Command {
    name: "script",
    since: "2.6.0",
    group: Group::Scripting,
    arity: Arity::at_least(2),
    summary: "A container for commands about scripts.",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[SCRIPT_DEBUG, SCRIPT_EXISTS, SCRIPT_FLUSH, SCRIPT_HELP, SCRIPT_KILL, SCRIPT_LOAD],
    ..Command::USUAL
};

const USUAL_SCRIPT: Command = Command { group: Group::Scripting, flags: &[Flag::Noscript], ..Command::USUAL };

const SCRIPT_DEBUG: Command = Command {
    name: "debug",
    since: "3.2.0",
    arity: Arity::exactly(3),
    summary: "Sets the mode of the debugger, which is not there.",
    syntax: "mode=(YES | SYNC | NO)",
    body: Body::Host(debug),
    ..USUAL_SCRIPT
};

fn debug(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    match ["yes", "sync", "no"].iter().any(|mode| args.is(2, mode)) {
        true => Ok(Reply::ok()),
        false => Err(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
}

const SCRIPT_EXISTS: Command = Command {
    name: "exists",
    since: "2.6.0",
    arity: Arity::at_least(3),
    summary: "Says which scripts are in the cache.",
    syntax: "sha1...",
    complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
    body: Body::Host(exists),
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    ..USUAL_SCRIPT
};

fn exists(host: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(Reply::array(args.iter_from(2).map(|name| Reply::Integer(i64::from(host.has_script(name))))))
}

const SCRIPT_FLUSH: Command = Command {
    name: "flush",
    since: "2.6.0",
    arity: Arity::at_least(2),
    summary: "Empties the cache of scripts.",
    syntax: "[async@6.2.0=(ASYNC | SYNC)]",
    complexity: "O(N) with N being the number of scripts in cache",
    body: Body::Act(flush),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers.")],
    ..USUAL_SCRIPT
};

fn flush(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    match args.len() {
        2 => Ok(Answer::ok(Act::FlushScripts)),
        3 if args.is(2, "async") || args.is(2, "sync") => Ok(Answer::ok(Act::FlushScripts)),
        _ => Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
    }
}

const SCRIPT_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    arity: Arity::exactly(2),
    summary: "Lists the subcommands of SCRIPT.",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..USUAL_SCRIPT
};

const SCRIPT_KILL: Command = Command {
    name: "kill",
    since: "2.6.0",
    arity: Arity::exactly(2),
    summary: "Ends the running scripts that have written nothing.",
    body: Body::Act(kill),
    flags: &[Flag::Noscript, Flag::AllowBusy],
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    ..USUAL_SCRIPT
};

fn kill(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::KillScripts))
}

const SCRIPT_LOAD: Command = Command {
    name: "load",
    since: "2.6.0",
    arity: Arity::exactly(3),
    summary: "Puts a script into the cache.",
    syntax: "script",
    complexity: "O(N) with N being the length in bytes of the script body.",
    body: Body::Act(load),
    flags: &[Flag::Noscript, Flag::Stale],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..USUAL_SCRIPT
};

fn load(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let name = host.check_script(args.get(2))?;
    Ok(Answer::with(Reply::bulk(name.clone()), Act::LoadScript { name, text: args.get(2).into() }))
}
