//! SLOWLOG: the commands that made their users wait for long.
//!
//! Owns the options and the replies; the log itself belongs to the engine, behind [`Host`].

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host, SlowCall};
use crate::server::introspect::help;
use crate::table::{Arity, Body, Command, Flag, Group};
use haypile_resp::Reply;

pub(crate) const COMMANDS: &[Command] = &[SLOWLOG];

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
        3 => match args.int(2) {
            Ok(-1) => usize::MAX,
            Ok(count @ 0..) => count as usize,
            Ok(_) | Err(_) => return Err(Error::text("ERR count should be greater than or equal to -1")),
        },
        _ => return Err(args.wrong_subcommand()),
    };
    Ok(Reply::array(host.slowlog(count).into_iter().map(entry)))
}

fn entry(call: SlowCall) -> Reply {
    Reply::Array(vec![
        Reply::Integer(call.id as i64),
        Reply::Integer(call.time_s as i64),
        Reply::Integer(call.us as i64),
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
    body: Body::Host(|host, _| Ok(Reply::Integer(host.slowlog_len() as i64))),
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
    Ok(Answer::ok(Act::ResetSlowlog))
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
