//! COMPACT, of Pika: a full compaction.
//!
//! Owns its options and replies; when and how it goes on is the engine's and the store's business.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, Host};
use crate::table::{Arity, Body, Command, Flag, Group, Keys};
use haypile_resp::number;

pub(crate) const COMMANDS: &[Command] = &[COMPACT];

/// The types that Pika keeps apart from each other. Here rows of all types lie side by side: all are compacted.
const TYPES: [&str; 7] = ["all", "string", "hash", "set", "zset", "list", "stream"];

const COMPACT: Command = Command {
    name: "compact",
    since: "7.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Begins a full compaction, of all databases or of some; one that is asked for meanwhile comes afterwards.",
    syntax: "[databases:string] [type=(ALL | STRING | HASH | SET | ZSET | LIST | STREAM)]",
    complexity: "O(N) in the background, where N is the size of the databases",
    body: Body::Act(compact),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Stale],
    ..Command::USUAL
};

fn compact(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let databases = match args.len() {
        1 | 2 => None,
        3 => Some(args.get(1).split(|byte| *byte == b',').map(|name| database(host, name)).collect::<Result<_>>()?),
        _ => return Err(Error::Syntax),
    };
    if args.len() > 1 && !TYPES.iter().any(|name| args.is(args.len() - 1, name)) {
        let types = TYPES.join(", ");
        return Err(Error::text(format!("ERR COMPACT takes databases, like db0,db1, and one of: {types}")));
    }
    if !host.has_disk() {
        return Err(Error::text("ERR a server with 'engine memory' has nothing to compact"));
    }
    Ok(Answer::ok(Act::Compact(databases)))
}

/// The number of a database that Pika calls `db0`.
fn database(host: &dyn Host, name: &[u8]) -> Result<u32> {
    let number = number::parse_i64(name.strip_prefix(b"db").unwrap_or(name));
    let database = number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number < host.databases());
    database.ok_or_else(|| Error::quoting("ERR there is no database '", name, "'"))
}
