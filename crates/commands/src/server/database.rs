//! The commands about whole databases.
//!
//! Owns their options. What a database is (a number for a space) belongs to `haypile-store`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Category, Command, Databases, Flag, Group, Keys};
use haypile_resp::Reply;
use haypile_store::{Counter, Txn};

pub(crate) const COMMANDS: &[Command] = &[DBSIZE, FLUSHDB, FLUSHALL, SWAPDB];

const DBSIZE: Command = Command {
    name: "dbsize",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::exactly(1),
    keys: Keys::NONE,
    summary: "Returns how many keys the database has.",
    syntax: "",
    access: Access::Read,
    body: Body::Txn(dbsize),
    flags: &[Flag::Fast],
    categories: &[Category::Keyspace],
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    ..Command::USUAL
};

fn dbsize(txn: &mut Txn, _args: Args) -> Result<Reply> {
    Ok(Reply::Integer(txn.counter(txn.space(txn.database()), Counter::Keys)))
}

const FLUSHDB: Command = Command {
    name: "flushdb",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Removes all keys of the selected database.",
    syntax: "[async=(ASYNC@4.0.0 | SYNC@6.2.0)]",
    complexity: "O(N) where N is the number of keys in the selected database",
    access: Access::Exclusive,
    body: Body::Txn(flushdb),
    categories: &[Category::Dangerous, Category::Keyspace],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    history: &[
        ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
        ("6.2.0", "Added the `SYNC` flushing mode modifier."),
    ],
    ..Command::USUAL
};

fn flushdb(txn: &mut Txn, args: Args) -> Result<Reply> {
    check_mode(args)?;
    txn.flush_database(txn.database())?;
    Ok(Reply::ok())
}

/// SYNC and ASYNC make no difference: a database is emptied at once, and its room comes back in the background.
fn check_mode(args: Args) -> Result<()> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "sync") || args.is(1, "async") => Ok(()),
        _ => Err(Error::Syntax),
    }
}

const FLUSHALL: Command = Command {
    name: "flushall",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(1),
    keys: Keys::NONE,
    summary: "Removes all keys of all databases.",
    syntax: "[async=(ASYNC@4.0.0 | SYNC@6.2.0)]",
    complexity: "O(N) where N is the total number of keys in all databases",
    access: Access::Exclusive,
    body: Body::Txn(flushall),
    categories: &[Category::Dangerous, Category::Keyspace],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    history: &[
        ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
        ("6.2.0", "Added the `SYNC` flushing mode modifier."),
    ],
    databases: Databases::All,
    ..Command::USUAL
};

fn flushall(txn: &mut Txn, args: Args) -> Result<Reply> {
    check_mode(args)?;
    for database in 0..txn.databases() {
        txn.flush_database(database)?;
    }
    Ok(Reply::ok())
}

const SWAPDB: Command = Command {
    name: "swapdb",
    since: "4.0.0",
    group: Group::Server,
    arity: Arity::exactly(3),
    keys: Keys::NONE,
    summary: "Swaps two databases for all clients at once.",
    syntax: "index1 index2",
    complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
    access: Access::Exclusive,
    body: Body::Txn(swapdb),
    flags: &[Flag::Fast],
    categories: &[Category::Dangerous, Category::Keyspace],
    databases: Databases::Arguments(&[1, 2]),
    ..Command::USUAL
};

fn swapdb(txn: &mut Txn, args: Args) -> Result<Reply> {
    let first = index(args, 1, "ERR invalid first DB index")?;
    let second = index(args, 2, "ERR invalid second DB index")?;
    let existing = |index: i32| u32::try_from(index).ok().filter(|index| *index < txn.databases());
    let (Some(first), Some(second)) = (existing(first), existing(second)) else {
        return Err(Error::DatabaseOutOfRange);
    };
    if first != second {
        txn.swap_databases(first, second)?;
    }
    Ok(Reply::ok())
}

fn index(args: Args, i: usize, text: &'static str) -> Result<i32> {
    args.int(i).ok().and_then(|index| i32::try_from(index).ok()).ok_or(Error::text(text))
}
