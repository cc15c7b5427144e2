//! The commands about the server: INFO, CONFIG, TIME, SHUTDOWN.
//!
//! Owns their options and replies. Facts, directives and the way to stop belong to the engine, behind [`Host`].

pub(crate) mod acl;
pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod compact;
pub(crate) mod database;
pub(crate) mod group;
pub(crate) mod introspect;
pub(crate) mod latency;
pub(crate) mod lolwut;
pub(crate) mod modules;
pub(crate) mod replication;
pub(crate) mod slowlog;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, Shown, Shutdown};
use crate::server::introspect::help;
use crate::table::{Arity, Body, Category, Command, Flag, Group, Keys};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[INFO, CONFIG, TIME, SHUTDOWN, BGREWRITEAOF];

const INFO: Command = Command {
    name: "info",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Returns facts and statistics about the server.",
    syntax: "[section...]",
    body: Body::Host(info),
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Dangerous],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    history: &[("7.0.0", "Added support for taking multiple section arguments.")],
    ..Command::USUAL
};

/// The sections that `INFO keyspace 1`, of Pika, shows beside the first of them.
const OF_KEYSPACE_1: [&str; 2] = ["types", SIZES];

/// The section that asks the base, which may take long.
const SIZES: &str = "sizes";

/// Answers the sections in the server's order, each once, whatever the order of the arguments; an unknown one is left
/// out.
fn info(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let has_sizes = args.len() == 3 && args.is(1, "keyspace") && args.get(2) == b"1";
    if has_sizes || (1..args.len()).any(|at| args.is(at, SIZES)) {
        host.expect_wait()?;
    }
    let mut text = String::new();
    for section in host.info_sections() {
        let asked = |arg: &[u8]| {
            let is = |word: &str| arg.eq_ignore_ascii_case(word.as_bytes());
            let is_all = is("all") || is("everything");
            is(section.name)
                || has_sizes && OF_KEYSPACE_1.contains(&section.name)
                || section.shown != Shown::Never && is_all
                || section.shown == Shown::Always && is("default")
        };
        if if args.len() == 1 { section.shown == Shown::Always } else { args.iter_from(1).any(asked) } {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str("# ");
            text.push_str(section.title);
            text.push_str("\r\n");
            host.info(section.name, &mut text);
        }
    }
    Ok(Reply::Verbatim("txt", text.into()))
}

const CONFIG: Command = Command {
    name: "config",
    since: "2.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about the server's configuration.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[CONFIG_GET, CONFIG_SET, CONFIG_REWRITE, CONFIG_RESETSTAT, CONFIG_HELP],
    ..Command::USUAL
};

const CONFIG_GET: Command = Command {
    name: "get",
    since: "2.0.0",
    group: Group::Server,
    arity: Arity::at_least(3),
    keys: Keys::NONE,
    summary: "Returns the directives whose names match patterns, with their values.",
    syntax: "parameter=(parameter)...",
    complexity: "O(N) when N is the number of configuration parameters provided",
    body: Body::Host(config_get),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    history: &[("7.0.0", "Added the ability to pass multiple pattern parameters in one call")],
    ..Command::USUAL
};

fn config_get(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let patterns: Vec<&[u8]> = args.iter_from(2).collect();
    let found = host.config_get(&patterns);
    Ok(Reply::Map(found.into_iter().map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).collect()))
}

const CONFIG_SET: Command = Command {
    name: "set",
    since: "2.0.0",
    group: Group::Server,
    arity: Arity::at_least(4),
    keys: Keys::NONE,
    summary: "Sets directives, all of them or none.",
    syntax: "parameter_value=(parameter value)...",
    complexity: "O(N) when N is the number of configuration parameters provided",
    body: Body::Act(config_set),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("7.0.0", "Added the ability to set multiple parameters in one call.")],
    ..Command::USUAL
};

fn config_set(_: &mut dyn Host, args: Args) -> Result<Answer> {
    let words: Vec<&[u8]> = args.iter_from(2).collect();
    let (pairs, []) = words.as_chunks::<2>() else {
        return Err(Error::Syntax);
    };
    // The texts of errors are made where settings are; a name that is no text is quoted here, as its bytes.
    if let Some([name, _]) = pairs.iter().find(|[name, _]| std::str::from_utf8(name).is_err()) {
        return Err(Error::quoting("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'"));
    }
    Ok(Answer::ok(Act::SetConfig(pairs.iter().map(|[name, value]| (name.to_vec(), value.to_vec())).collect())))
}

const CONFIG_REWRITE: Command = Command {
    name: "rewrite",
    since: "2.8.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Writes the values of the directives into the configuration file.",
    syntax: "",
    complexity: "O(1)",
    body: Body::Act(config_rewrite),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn config_rewrite(host: &mut dyn Host, _args: Args) -> Result<Answer> {
    if !host.has_config_file() {
        return Err(Error::text("ERR The server is running without a config file"));
    }
    Ok(Answer::ok(Act::RewriteConfig))
}

const CONFIG_RESETSTAT: Command = Command {
    name: "resetstat",
    since: "2.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Sets the statistics that INFO shows back to zero.",
    syntax: "",
    complexity: "O(1)",
    body: Body::Act(config_resetstat),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

fn config_resetstat(_host: &mut dyn Host, _args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::ResetStatistics))
}

const CONFIG_HELP: Command = Command {
    name: "help",
    since: "5.0.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of CONFIG.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

const TIME: Command = Command {
    name: "time",
    since: "2.6.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns the server's clock: Unix seconds, and microseconds of the second.",
    syntax: "",
    body: Body::Host(time),
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn time(host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let now_us = host.now_us();
    Ok(Reply::array([now_us / 1_000_000, now_us % 1_000_000].map(|part| Reply::bulk(part.to_string()))))
}

const SHUTDOWN: Command = Command {
    name: "shutdown",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Makes all data durable and stops the server.",
    syntax: "[nosave_save=(NOSAVE | SAVE)] [NOW@7.0.0] [FORCE@7.0.0] [ABORT@7.0.0]",
    complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, \
        otherwise O(1)",
    body: Body::Act(shutdown),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale, Flag::NoMulti, Flag::AllowBusy],
    history: &[("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers.")],
    ..Command::USUAL
};

fn shutdown(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let (mut how, mut abort) = (Shutdown::default(), false);
    for i in 1..args.len() {
        let save = if args.is(i, "SAVE") { Some(true) } else { args.is(i, "NOSAVE").then_some(false) };
        match save {
            Some(save) if how.save.is_none_or(|earlier| earlier == save) => how.save = Some(save),
            None if args.is(i, "NOW") => how.now = true,
            None if args.is(i, "FORCE") => how.force = true,
            None if args.is(i, "ABORT") => abort = true,
            _ => return Err(Error::Syntax),
        }
    }
    if !abort {
        return Ok(Answer::with(Reply::None, Act::Shutdown(how)));
    }
    if how != Shutdown::default() {
        return Err(Error::Syntax);
    }
    Ok(Answer::ok(Act::AbortShutdown))
}

const BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Does nothing: the log goes by itself where the base has what it holds.",
    syntax: "",
    body: Body::Host(bgrewriteaof),
    flags: &[Flag::NoAsyncLoading, Flag::Admin, Flag::Noscript],
    ..Command::USUAL
};

fn bgrewriteaof(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::Simple("Background append only file rewriting started"))
}
