//! SLOWLOG and COMMANDLOG: the calls that made their users wait for long, and those with large requests or replies.
//!
//! Owns the options and the replies; the logs themselves belong to the engine, behind [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, CommandLog, Host, LoggedCall};
use crate::server::introspect::help;
use crate::table::{Arity, Body, Command, Flag, Group};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[SLOWLOG, COMMANDLOG];

const SLOWLOG: Command = Command {
    name: "slowlog",
    since: "2.2.12",
    group: Group::Server,
    arity: Arity::at_least(2),
    summary: "A container for commands about the slow log.",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[SLOWLOG_GET, SLOWLOG_LEN, SLOWLOG_RESET, SLOWLOG_HELP],
    ..Command::USUAL
};

const SLOWLOG_GET: Command = Command {
    name: "get",
    since: "2.2.12",
    group: Group::Server,
    arity: Arity::at_least(2),
    summary: "Returns the newest entries of the slow log.",
    syntax: "[count]",
    complexity: "O(N) where N is the number of entries returned",
    body: Body::Host(get),
    flags: &[Flag::Admin, Flag::Loading, Flag::Stale],
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    history: &[("4.0.0", "Added client IP address, port and name to the reply.")],
    ..Command::USUAL
};

/// Entries that are shown if no number is asked for.
const COUNT: usize = 10;

/// Answers the newest entries, or all for a count of -1.
fn get(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let count = match args.len() {
        2 => COUNT,
        3 => count_of(args)?,
        _ => return Err(args.wrong_subcommand()),
    };
    Ok(Reply::array(host.logged_calls(CommandLog::Slow, count).into_iter().map(entry)))
}

/// Argument 2 as a number of entries, -1 for all.
fn count_of(args: Args) -> Result<usize> {
    match args.int(2) {
        Ok(-1) => Ok(usize::MAX),
        Ok(count @ 0..) => Ok(count as usize),
        Ok(_) | Err(_) => Err(Error::text("ERR count should be greater than or equal to -1")),
    }
}

fn entry(call: LoggedCall) -> Reply {
    Reply::Array(vec![
        Reply::Integer(call.id as i64),
        Reply::Integer(call.time_s as i64),
        Reply::Integer(call.value as i64),
        Reply::array(call.args.into_iter().map(Reply::bulk)),
        Reply::bulk(call.address),
        Reply::bulk(call.name),
    ])
}

const SLOWLOG_LEN: Command = Command {
    name: "len",
    since: "2.2.12",
    group: Group::Server,
    arity: Arity::exactly(2),
    summary: "Returns the number of entries of the slow log.",
    body: Body::Host(|host, _| Ok(Reply::Integer(host.logged_count(CommandLog::Slow) as i64))),
    flags: &[Flag::Admin, Flag::Loading, Flag::Stale],
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    ..Command::USUAL
};

const SLOWLOG_RESET: Command = Command {
    name: "reset",
    since: "2.2.12",
    group: Group::Server,
    arity: Arity::exactly(2),
    summary: "Forgets all entries of the slow log.",
    complexity: "O(N) where N is the number of entries in the slowlog",
    body: Body::Act(reset),
    flags: &[Flag::Admin, Flag::Loading, Flag::Stale],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Command::USUAL
};

fn reset(_: &mut dyn Host, _: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::ResetLog(CommandLog::Slow)))
}

const SLOWLOG_HELP: Command = Command {
    name: "help",
    since: "6.2.0",
    group: Group::Server,
    arity: Arity::exactly(2),
    summary: "Lists the subcommands of SLOWLOG.",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

const COMMANDLOG: Command = Command {
    name: "commandlog",
    since: "8.1.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    summary: "A container for commands about the logs of calls that stand out (Valkey 8.1).",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[COMMANDLOG_GET, COMMANDLOG_LEN, COMMANDLOG_RESET, COMMANDLOG_HELP],
    ..Command::USUAL
};

const COMMANDLOG_GET: Command = Command {
    since: "8.1.0",
    arity: Arity::exactly(4),
    summary: "Returns the newest entries of a log.",
    syntax: "count:integer type=(SLOW | LARGE-REQUEST | LARGE-REPLY)",
    body: Body::Host(get_of),
    history: &[],
    ..SLOWLOG_GET
};

fn get_of(host: &mut dyn Host, args: Args) -> Result<Reply> {
    let (count, log) = (count_of(args)?, log_of(args, 3)?);
    Ok(Reply::array(host.logged_calls(log, count).into_iter().map(entry)))
}

const COMMANDLOG_LEN: Command = Command {
    since: "8.1.0",
    arity: Arity::exactly(3),
    summary: "Returns the number of entries of a log.",
    syntax: "type=(SLOW | LARGE-REQUEST | LARGE-REPLY)",
    body: Body::Host(|host, args| Ok(Reply::Integer(host.logged_count(log_of(args, 2)?) as i64))),
    ..SLOWLOG_LEN
};

const COMMANDLOG_RESET: Command = Command {
    since: "8.1.0",
    arity: Arity::exactly(3),
    summary: "Forgets all entries of a log.",
    syntax: "type=(SLOW | LARGE-REQUEST | LARGE-REPLY)",
    complexity: "O(N) where N is the number of entries in the log",
    body: Body::Act(|_, args| Ok(Answer::ok(Act::ResetLog(log_of(args, 2)?)))),
    ..SLOWLOG_RESET
};

const COMMANDLOG_HELP: Command =
    Command { since: "8.1.0", summary: "Lists the subcommands of COMMANDLOG.", ..SLOWLOG_HELP };

/// Argument `at` as the name of a log.
fn log_of(args: Args, at: usize) -> Result<CommandLog> {
    let logs = [
        ("slow", CommandLog::Slow),
        ("large-request", CommandLog::LargeRequest),
        ("large-reply", CommandLog::LargeReply),
    ];
    let found = logs.into_iter().find(|(name, _)| args.is(at, name)).map(|(_, log)| log);
    found.ok_or(Error::text("ERR type should be one of the following: slow, large-request, large-reply"))
}
