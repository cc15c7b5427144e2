//! The commands that treat a string as a number.
//!
//! Owns their replies. The arithmetic and its limits are in `haypile-types`; whole strings are in `string/mod.rs`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::extended::Extended;
use haypile_types::string;

pub(crate) const COMMANDS: &[Command] = &[INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT];

const INCR: Command = Command {
    name: "incr",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds one to the integer in a key; a missing key counts as 0.",
    syntax: "key",
    access: Access::Write,
    body: Body::Txn(incr),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn incr(txn: &mut Txn, args: Args) -> Result<Reply> {
    add(txn, args, 1)
}

const DECR: Command = Command {
    name: "decr",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Subtracts one from the integer in a key; a missing key counts as 0.",
    syntax: "key",
    access: Access::Write,
    body: Body::Txn(decr),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn decr(txn: &mut Txn, args: Args) -> Result<Reply> {
    add(txn, args, -1)
}

const INCRBY: Command = Command {
    name: "incrby",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds a number to the integer in a key; a missing key counts as 0.",
    syntax: "key increment",
    access: Access::Write,
    body: Body::Txn(incrby),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn incrby(txn: &mut Txn, args: Args) -> Result<Reply> {
    add(txn, args, args.int(2)?)
}

const DECRBY: Command = Command {
    name: "decrby",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Subtracts a number from the integer in a key; a missing key counts as 0.",
    syntax: "key decrement",
    access: Access::Write,
    body: Body::Txn(decrby),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn decrby(txn: &mut Txn, args: Args) -> Result<Reply> {
    let delta = args.int(2)?.checked_neg().ok_or(Error::DecrementOverflow)?;
    add(txn, args, delta)
}

fn add(txn: &mut Txn, args: Args, delta: i64) -> Result<Reply> {
    let key = args.key(txn, 1);
    let sum = string::increment(txn, &key, delta)?;
    txn.on_event(event::STRING, "incrby", &key);
    Ok(Reply::Integer(sum))
}

const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    since: "2.6.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds a number with a fraction to the one in a key; a missing key counts as 0.",
    syntax: "key increment:double",
    access: Access::Write,
    body: Body::Txn(incrbyfloat),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

fn incrbyfloat(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let sum = string::increment_float(txn, &key, Extended::parse(args.get(2)))?;
    txn.on_event(event::STRING, "incrbyfloat", &key);
    statement::state(txn, &[b"SET", key.name, sum.as_bytes(), b"KEEPTTL"]);
    Ok(Reply::bulk(sum.into_bytes()))
}
