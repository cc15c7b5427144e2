//! Functions: FUNCTION, and FCALL and its relative.
//!
//! Owns their entries, and the libraries: how they are loaded, kept, listed, dumped and restored. Runs of functions are
//! the engine's, as those of scripts.

mod library;
mod prepared;
mod restore;

pub mod testing;

pub use library::{Functions, Library};
pub use restore::codes_of;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::script::{USUAL as USUAL_SCRIPT, USUAL_READ as USUAL_READ_SCRIPT};
use crate::server::introspect::help;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Script};
use haypile_config::glob;
use haypile_resp::Reply;
use haypile_script::LibraryHead;
use haypile_store::{Stop, Txn};

pub(crate) const COMMANDS: &[Command] = &[FCALL, FCALL_RO, FUNCTION];

const FCALL: Command = Command {
    name: "fcall",
    since: "7.0.0",
    summary: "Runs a function of a library.",
    syntax: "function numkeys:integer [key...] [arg...]",
    complexity: "Depends on the function that is executed.",
    keys: USUAL_SCRIPT.keys.noting("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
    body: Body::Script(Script::Function),
    ..USUAL_SCRIPT
};

const FCALL_RO: Command = Command {
    name: "fcall_ro",
    since: "7.0.0",
    summary: "Runs a function of a library that only reads.",
    syntax: "function numkeys:integer [key...] [arg...]",
    complexity: "Depends on the function that is executed.",
    keys: USUAL_READ_SCRIPT
        .keys
        .noting("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
    body: Body::Script(Script::Function),
    ..USUAL_READ_SCRIPT
};

const FUNCTION: Command = Command {
    name: "function",
    since: "7.0.0",
    group: Group::Scripting,
    arity: Arity::at_least(2),
    summary: "A container for commands about functions.",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[DELETE, DUMP, FLUSH, HELP, KILL, LIST, LOAD, restore::RESTORE, STATS],
    ..Command::USUAL
};

const USUAL: Command = Command {
    since: "7.0.0",
    group: Group::Scripting,
    keys: Keys::NONE,
    complexity: "O(1)",
    flags: &[Flag::Noscript],
    ..Command::USUAL
};

/// Commands that change libraries. A run of a function depends on all of them, so nothing else runs meanwhile.
const USUAL_CHANGE: Command = Command {
    access: Access::Exclusive,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..USUAL
};

const LOAD: Command = Command {
    name: "load",
    arity: Arity::at_least(3),
    summary: "Loads a library.",
    syntax: "[REPLACE] function-code",
    complexity: "O(1) (considering compilation time is redundant)",
    body: Body::Txn(load),
    flags: &[Flag::Denyoom, Flag::Noscript],
    ..USUAL_CHANGE
};

fn load(txn: &mut Txn, args: Args) -> Result<Reply> {
    let last = args.len() - 1;
    if let Some(option) = (2..last).find(|at| !args.is(*at, "replace")) {
        return Err(Error::Quoting([b"ERR Unknown option given: ", args.get(option)].concat()));
    }
    let code = args.get(last);
    let head = LibraryHead::of_library(code).map_err(Error::Quoting)?;
    let mut functions = Functions::of(&txn.facts());
    if last == 2 && functions.has_library(&head.name) {
        return Err(Error::Quoting([b"ERR Library '", &head.name[..], b"' already exists"].concat()));
    }
    let library = loaded(txn, code, head)?;
    let name = library.name.clone();
    functions.add(library.clone()).map_err(Error::Quoting)?;
    txn.put_fact(&library.fact_name(), Some(&library.fact))?;
    Ok(Reply::bulk(name))
}

/// Returns a library of its code, which was loaded in a dry run before: that may take half a second, and under the
/// exclusive lock everybody would wait for it.
///
/// # Errors
/// The code is no library, or a dry run has to load it first.
fn loaded(txn: &Txn, code: &[u8], head: LibraryHead) -> Result<Library> {
    if let Some(known) = prepared::find(code) {
        return known.map_err(Error::Quoting);
    }
    if !txn.may_take_long() {
        return Err(Error::Stop(Stop::WouldBlock));
    }
    let library = Library::load(code, head);
    prepared::keep(code, library.clone());
    library.map_err(Error::Quoting)
}

/// Puts a library of a file into the data, in the place of the one of its name. Returns false if that one is kept.
///
/// # Errors
/// The library cannot be loaded, or the transaction has become too large.
pub fn import(txn: &mut Txn, code: &[u8], keep: bool) -> Result<bool> {
    let head = LibraryHead::of_library(code).map_err(Error::Quoting)?;
    let mut functions = Functions::of(&txn.facts());
    if keep && functions.has_library(&head.name) {
        return Ok(false);
    }
    let library = Library::load(code, head).map_err(Error::Quoting)?;
    functions.add(library.clone()).map_err(Error::Quoting)?;
    txn.put_fact(&library.fact_name(), Some(&library.fact))?;
    Ok(true)
}

const DELETE: Command = Command {
    name: "delete",
    arity: Arity::exactly(3),
    summary: "Deletes a library and its functions.",
    syntax: "library-name",
    body: Body::Txn(delete),
    ..USUAL_CHANGE
};

fn delete(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut functions = Functions::of(&txn.facts());
    let library = functions.remove(args.get(2)).ok_or(Error::text("ERR Library not found"))?;
    txn.put_fact(&library.fact_name(), None)?;
    Ok(Reply::ok())
}

const FLUSH: Command = Command {
    name: "flush",
    arity: Arity::at_least(2),
    summary: "Deletes all libraries.",
    syntax: "[async=(ASYNC | SYNC)]",
    complexity: "O(N) where N is the number of functions deleted",
    body: Body::Txn(flush),
    ..USUAL_CHANGE
};

fn flush(txn: &mut Txn, args: Args) -> Result<Reply> {
    match args.len() {
        2 => {}
        3 if args.is(2, "sync") || args.is(2, "async") => {}
        3 => return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
        _ => return Err(args.wrong_subcommand()),
    }
    delete_all(txn)?;
    Ok(Reply::ok())
}

/// Deletes all libraries.
fn delete_all(txn: &mut Txn) -> Result<()> {
    for library in Functions::of(&txn.facts()).libraries() {
        txn.put_fact(&library.fact_name(), None)?;
    }
    Ok(())
}

const LIST: Command = Command {
    name: "list",
    arity: Arity::at_least(2),
    summary: "Lists libraries and their functions.",
    syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
    complexity: "O(N) where N is the number of functions",
    access: Access::Read,
    body: Body::Txn(list),
    tips: &["nondeterministic_output_order"],
    ..USUAL
};

fn list(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while at < args.len() {
        if !with_code && args.is(at, "withcode") {
            with_code = true;
        } else if pattern.is_none() && args.is(at, "libraryname") {
            at += 1;
            match at < args.len() {
                true => pattern = Some(args.get(at)),
                false => return Err(Error::text("ERR library name argument was not given")),
            }
        } else {
            return Err(Error::Quoting([b"ERR Unknown argument ", args.get(at)].concat()));
        }
        at += 1;
    }
    let functions = Functions::of(&txn.facts());
    let listed = functions
        .libraries()
        .filter(|library| pattern.is_none_or(|pattern| glob::matches(pattern, &library.name, true)));
    Ok(Reply::array(listed.map(|library| describe(library, with_code))))
}

fn describe(library: &Library, with_code: bool) -> Reply {
    let word = |word: &'static str| Reply::bulk(word.as_bytes());
    let functions = library.functions.iter().map(|function| {
        let description = function.description.clone().map_or(Reply::Null, Reply::bulk);
        let flags = function.flags.names().into_iter().map(Reply::Simple).collect();
        Reply::Map(vec![
            (word("name"), Reply::bulk(function.name.clone())),
            (word("description"), description),
            (word("flags"), Reply::Set(flags)),
        ])
    });
    let mut described = vec![
        (word("library_name"), Reply::bulk(library.name.clone())),
        (word("engine"), word("LUA")),
        (word("functions"), Reply::array(functions)),
    ];
    if with_code {
        described.push((word("library_code"), Reply::bulk(library.code().to_vec())));
    }
    Reply::Map(described)
}

const DUMP: Command = Command {
    name: "dump",
    arity: Arity::exactly(2),
    summary: "Returns all libraries in one payload.",
    complexity: "O(N) where N is the number of functions",
    access: Access::Read,
    body: Body::Txn(dump),
    ..USUAL
};

fn dump(txn: &mut Txn, _args: Args) -> Result<Reply> {
    let functions = Functions::of(&txn.facts());
    Ok(Reply::bulk(restore::payload(functions.libraries().map(|library| library.code()))?))
}

const KILL: Command = Command {
    name: "kill",
    arity: Arity::exactly(2),
    summary: "Ends the running functions that have written nothing.",
    body: Body::Act(kill),
    flags: &[Flag::Noscript, Flag::AllowBusy],
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    ..USUAL
};

fn kill(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::KillFunctions))
}

const STATS: Command = Command {
    name: "stats",
    arity: Arity::exactly(2),
    summary: "Says which function runs, and how many there are.",
    body: Body::Host(stats),
    flags: &[Flag::Noscript, Flag::AllowBusy],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..USUAL
};

fn stats(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let word = |word: &'static str| Reply::bulk(word.as_bytes());
    let number = |number: usize| Reply::Integer(number as i64);
    let running = host.running_function().map_or(Reply::Null, |running| {
        Reply::Map(vec![
            (word("name"), Reply::bulk(running.name)),
            (word("command"), Reply::array(running.command.into_iter().map(Reply::bulk))),
            (word("duration_ms"), Reply::Integer(running.duration_ms as i64)),
        ])
    });
    let mut functions = host.functions();
    // Alone, it asks for no transaction: all threads that could run one may be busy with functions.
    let of_block = host.in_transaction(&mut |txn| {
        functions = Functions::of(&txn.facts());
        Ok(Reply::None)
    });
    if let Err(error) = of_block
        && !matches!(error, Error::Stop(Stop::Long))
    {
        return Err(error);
    }
    let counts = Reply::Map(vec![
        (word("libraries_count"), number(functions.libraries().len())),
        (word("functions_count"), number(functions.len())),
    ]);
    Ok(Reply::Map(vec![(word("running_script"), running), (word("engines"), Reply::Map(vec![(word("LUA"), counts)]))]))
}

const HELP: Command = Command {
    name: "help",
    arity: Arity::exactly(2),
    summary: "Lists the subcommands of FUNCTION.",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..USUAL
};
