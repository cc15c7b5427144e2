//! The commands about a key whatever it holds: existence, type, deletion, names.
//!
//! Owns their replies. Deadlines are in `expire.rs`, iteration in `scan.rs`, whole databases in `server/database.rs`.

pub mod dump;
pub(crate) mod expire;
pub(crate) mod in_order;
pub mod migrate;
pub(crate) mod object;
pub(crate) mod scan;
pub mod sort;
pub(crate) mod sort_large;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::in_order::Rows;
use crate::table::{Access, Arity, Body, Command, Databases, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::key;
use haypile_types::value;

pub(crate) const COMMANDS: &[Command] = &[DEL, UNLINK, EXISTS, TOUCH, TYPE, RENAME, RENAMENX, COPY, MOVE];

const DEL: Command = Command {
    name: "del",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1).rm(&[Use::Delete]),
    summary: "Deletes keys and returns how many there were.",
    syntax: "key...",
    complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a \
        value other than a string, the individual complexity for this key is O(M) where M is the \
        number of elements in the list, set, sorted set or hash. Removing a single key that holds \
        a string value is O(1).",
    access: Access::Write,
    body: Body::Txn(del),
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..Command::USUAL
};

fn del(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut deleted = 0;
    in_order::visit(txn, args, 1, 1, Rows::Replaced, |txn, _, key| {
        if key::delete(txn, key)? {
            txn.on_event(event::GENERIC, "del", key);
            deleted += 1;
        }
        Ok(())
    })?;
    Ok(Reply::Integer(deleted))
}

const UNLINK: Command = Command {
    name: "unlink",
    since: "4.0.0",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1).rm(&[Use::Delete]),
    summary: "Deletes keys and returns how many there were; the same as DEL, whose cost does not \
             depend on size either.",
    syntax: "key...",
    complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a \
        different thread in order to reclaim memory, where N is the number of allocations the \
        deleted objects where composed of.",
    access: Access::Write,
    body: Body::Txn(unlink),
    flags: &[Flag::Fast],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..Command::USUAL
};

fn unlink(txn: &mut Txn, args: Args) -> Result<Reply> {
    del(txn, args)
}

const EXISTS: Command = Command {
    name: "exists",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1).ro(&[]),
    summary: "Returns how many of the given keys exist, each as often as it is given.",
    syntax: "key...",
    complexity: "O(N) where N is the number of keys to check.",
    access: Access::Read,
    body: Body::Txn(exists),
    flags: &[Flag::Fast],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    history: &[("3.0.3", "Accepts multiple `key` arguments.")],
    ..Command::USUAL
};

fn exists(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut found = 0;
    in_order::visit(txn, args, 1, 1, Rows::Kept, |txn, _, key| {
        found += i64::from(key::lookup_unused(txn, key)?.is_some());
        Ok(())
    })?;
    Ok(Reply::Integer(found))
}

const TOUCH: Command = Command {
    name: "touch",
    since: "3.2.1",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1).ro(&[]),
    summary: "Returns how many of the given keys exist, and counts as an access to them.",
    syntax: "key...",
    complexity: "O(N) where N is the number of keys that will be touched.",
    access: Access::Read,
    body: Body::Txn(touch),
    flags: &[Flag::Fast],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..Command::USUAL
};

/// Counts the keys that exist. TOUCH counts as an access even for a client whose other commands do not.
fn touch(txn: &mut Txn, args: Args) -> Result<Reply> {
    let touched = txn.set_touching(true);
    let mut found = 0;
    in_order::visit(txn, args, 1, 1, Rows::Kept, |txn, _, key| {
        found += i64::from(key::lookup(txn, key)?.is_some());
        Ok(())
    })?;
    txn.set_touching(touched);
    Ok(Reply::Integer(found))
}

const TYPE: Command = Command {
    name: "type",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns the type of the value of a key.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(type_of),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn type_of(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = key::lookup_unused(txn, &key)?;
    Ok(Reply::Simple(entry.map_or("none", |entry| entry.header.type_of().name())))
}

const RENAME: Command = Command {
    name: "rename",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(3),
    keys: Keys::Many(&[
        KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete]),
        KeySpec::at(2).with(Mode::Ow, &[Use::Update]),
    ]),
    summary: "Gives a key another name, replacing the key that had it.",
    syntax: "key newkey",
    access: Access::Write,
    body: Body::Txn(rename),
    ..Command::USUAL
};

fn rename(txn: &mut Txn, args: Args) -> Result<Reply> {
    move_to_name(txn, args, Taken::Replace)?;
    Ok(Reply::ok())
}

const RENAMENX: Command = Command {
    name: "renamenx",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(3),
    keys: Keys::Many(&[
        KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete]),
        KeySpec::at(2).with(Mode::Ow, &[Use::Insert]),
    ]),
    summary: "Gives a key another name if no key has it.",
    syntax: "key newkey",
    access: Access::Write,
    body: Body::Txn(renamenx),
    flags: &[Flag::Fast],
    history: &[("3.2.0", "The command no longer returns an error when source and destination names are the same.")],
    ..Command::USUAL
};

/// Renames a key unless the new name is taken. Answers whether it did.
fn renamenx(txn: &mut Txn, args: Args) -> Result<Reply> {
    Ok(Reply::Integer(i64::from(move_to_name(txn, args, Taken::Keep)?)))
}

/// The fate of a key that has the new name already.
#[derive(PartialEq, Eq)]
enum Taken {
    Replace,
    Keep,
}

/// Moves a key to another name. Returns whether it did; a key is never moved to its own name.
fn move_to_name(txn: &mut Txn, args: Args, taken: Taken) -> Result<bool> {
    let (from, to) = (args.key(txn, 1), args.key(txn, 2));
    let entry = key::lookup_write(txn, &from)?.ok_or(Error::NoSuchKey)?;
    if from.name == to.name {
        return Ok(false);
    }
    let replaced = key::lookup_write(txn, &to)?.map(|entry| entry.header);
    if replaced.is_some() && taken == Taken::Keep {
        return Ok(false);
    }
    key::rename(txn, &from, &entry, &to, replaced.as_ref())?;
    txn.on_event(event::GENERIC, "rename_from", &from);
    txn.on_event(event::GENERIC, "rename_to", &to);
    Ok(true)
}

const COPY: Command = Command {
    name: "copy",
    since: "6.2.0",
    group: Group::Generic,
    arity: Arity::at_least(3),
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Ro, &[Use::Access]), KeySpec::at(2).with(Mode::Ow, &[Use::Update])]),
    summary: "Copies the value and the deadline of a key to another key.",
    syntax: "source:key destination:key [DB destination-db:integer] [REPLACE]",
    complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
    access: Access::Write,
    body: Body::Txn(copy),
    flags: &[Flag::Denyoom],
    databases: Databases::Keyword("DB"),
    ..Command::USUAL
};

fn copy(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (mut database, mut taken) = (txn.database(), Taken::Keep);
    let mut i = 3;
    while i < args.len() {
        if args.is(i, "replace") {
            taken = Taken::Replace;
        } else if args.is(i, "db") && i + 1 < args.len() {
            i += 1;
            database = args.database(txn, i)?.ok_or(Error::DatabaseOutOfRange)?;
        } else {
            return Err(Error::Syntax);
        }
        i += 1;
    }
    let (from, to) = (args.key(txn, 1), txn.key_in(database, args.get(2)));
    if from == to {
        return Err(Error::SameObject);
    }
    let Some(entry) = key::lookup(txn, &from)? else { return Ok(Reply::Integer(0)) };
    let replaced = key::lookup_write(txn, &to)?.map(|entry| entry.header);
    if replaced.is_some() && taken == Taken::Keep {
        return Ok(Reply::Integer(0));
    }
    value::copy(txn, &from, &entry, &to, replaced.as_ref())?;
    if replaced.is_some() {
        txn.forget_access(&to);
        txn.on_event(event::NEW, "new", &to);
    }
    txn.on_event(event::GENERIC, "copy_to", &to);
    Ok(Reply::Integer(1))
}

const MOVE: Command = Command {
    name: "move",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Moves a key to another database.",
    syntax: "key db:integer",
    access: Access::Write,
    body: Body::Txn(move_to_database),
    flags: &[Flag::Fast],
    databases: Databases::Arguments(&[2]),
    ..Command::USUAL
};

/// Moves a key to another database at the cost of a copy: rows belong to one database.
fn move_to_database(txn: &mut Txn, args: Args) -> Result<Reply> {
    let database = args.database(txn, 2)?.ok_or(Error::DatabaseOutOfRange)?;
    let (from, to) = (args.key(txn, 1), txn.key_in(database, args.get(1)));
    if from == to {
        return Err(Error::SameObject);
    }
    let Some(entry) = key::lookup_write(txn, &from)? else { return Ok(Reply::Integer(0)) };
    if key::lookup_write(txn, &to)?.is_some() {
        return Ok(Reply::Integer(0));
    }
    value::copy(txn, &from, &entry, &to, None)?;
    txn.move_access(&from, &to);
    key::remove(txn, &from, &entry.header)?;
    txn.on_event(event::GENERIC, "move_from", &from);
    txn.on_event(event::GENERIC, "move_to", &to);
    Ok(Reply::Integer(1))
}
