//! The commands on hashes.
//!
//! Owns their options and replies. How fields lie in rows belongs to `haypile-types`; what all collections share is in
//! `elements.rs`, random fields are in `random.rs`.

pub(crate) mod expire;
pub(crate) mod random;

use crate::args::Args;
use crate::elements::{self, Page};
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Deprecated, ElementArgs, Flag, Group, Keys, Use};
use haypile_resp::{Elements, Reply, Shape, write};
use haypile_store::{Key, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::event;
use haypile_types::extended::Extended;
use haypile_types::hash;
use haypile_types::key::{self, Entry, Type};
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[
    HSET,
    HSETNX,
    HMSET,
    HGET,
    HMGET,
    HGETALL,
    HKEYS,
    HVALS,
    HLEN,
    HSTRLEN,
    HEXISTS,
    HDEL,
    HINCRBY,
    HINCRBYFLOAT,
    crate::hash::random::HRANDFIELD,
    HSCAN,
];

const HSET: Command = Command {
    name: "hset",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::at_least(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets fields of a hash to values and returns how many of them are new.",
    syntax: "key field_value=(field value)...",
    complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called \
        with multiple field/value pairs.",
    access: Access::Write,
    body: Body::Txn(hset),
    flags: &[Flag::Denyoom, Flag::Fast],
    history: &[("4.0.0", "Accepts multiple `field` and `value` arguments.")],
    elements: Some(ElementArgs::Names { first: 2, step: 2 }),
    ..Command::USUAL
};

fn hset(txn: &mut Txn, args: Args) -> Result<Reply> {
    Ok(Reply::Integer(set(txn, args, "hset")? as i64))
}

const HMSET: Command = Command {
    name: "hmset",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::at_least(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Sets fields of a hash to values.",
    syntax: "key field_value=(field value)...",
    complexity: "O(N) where N is the number of fields being set.",
    access: Access::Write,
    body: Body::Txn(hmset),
    flags: &[Flag::Denyoom, Flag::Fast],
    deprecated: Some(Deprecated { since: "4.0.0", instead: "`HSET` with multiple field-value pairs" }),
    elements: Some(ElementArgs::Names { first: 2, step: 2 }),
    ..Command::USUAL
};

fn hmset(txn: &mut Txn, args: Args) -> Result<Reply> {
    set(txn, args, "hmset")?;
    Ok(Reply::ok())
}

/// Sets all fields. Returns how many are new.
#[inline]
fn set(txn: &mut Txn, args: Args, command: &str) -> Result<u64> {
    if args.len() % 2 == 1 {
        return Err(Error::WrongArity(command.into()));
    }
    let key = args.key(txn, 1);
    let pairs = (2..args.len()).step_by(2).map(|i| (args.get(i), args.get(i + 1)));
    let created = hash::set(txn, &key, pairs)?;
    txn.on_event(event::HASH, "hset", &key);
    Ok(created)
}

const HSETNX: Command = Command {
    name: "hsetnx",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Insert]),
    summary: "Sets a field of a hash to a value if there is no such field.",
    syntax: "key field value",
    access: Access::Write,
    body: Body::Txn(hsetnx),
    flags: &[Flag::Denyoom, Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 2 }),
    ..Command::USUAL
};

fn hsetnx(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let created = hash::set_absent(txn, &key, args.get(2), args.get(3))?;
    if created {
        txn.on_event(event::HASH, "hset", &key);
    }
    Ok(Reply::Integer(i64::from(created)))
}

/// The hash in argument 1 as readers see it.
#[inline]
pub(crate) fn lookup(txn: &mut Txn, key: &Key) -> Result<Option<Entry>> {
    match key::lookup(txn, key)? {
        Some(entry) => Ok(Some(entry.expect(Type::Hash)?)),
        None => Ok(None),
    }
}

const HGET: Command = Command {
    name: "hget",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(3),
    keys: Keys::first(1),
    summary: "Returns the value of a field of a hash.",
    syntax: "key field",
    access: Access::Read,
    body: Body::Txn(hget),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn hget(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Null) };
    let value = hash::get(txn, &key, entry, args.get(2))?;
    Ok(value.map_or(Reply::Null, |value| Reply::bulk(value.into_parts())))
}

const HMGET: Command = Command {
    name: "hmget",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Returns the values of several fields of a hash.",
    syntax: "key field...",
    complexity: "O(N) where N is the number of fields being requested.",
    access: Access::Read,
    body: Body::Txn(hmget),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn hmget(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let entry = lookup(txn, &key)?;
    if args.len() - 2 > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let mut values = Elements::with_capacity(Shape::Array, args.len() - 2, VALUE_BYTES);
    for field in args.iter_from(2) {
        let found = match &entry {
            Some(entry) => hash::look(txn, &key, entry, field, |value| values.push(value))?,
            None => None,
        };
        if found.is_none() {
            values.push_null();
        }
        if values.bytes() > REPLY_INLINE_BYTES_MAX {
            txn.long()?;
        }
    }
    Ok(Reply::Elements(values))
}

/// The assumed length of a value before it is read.
const VALUE_BYTES: usize = 24;

/// Which part of each field goes into a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Fields,
    Values,
    Both,
}

impl Part {
    fn shape(self) -> Shape {
        if self == Part::Both { Shape::Map } else { Shape::Array }
    }

    /// Elements for each field.
    fn width(self) -> u64 {
        if self == Part::Both { 2 } else { 1 }
    }
}

const HGETALL: Command = Command {
    name: "hgetall",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns all fields of a hash and their values.",
    syntax: "key",
    complexity: "O(N) where N is the size of the hash.",
    access: Access::Read,
    body: Body::Txn(hgetall),
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn hgetall(txn: &mut Txn, args: Args) -> Result<Reply> {
    everything(txn, args, Part::Both)
}

const HKEYS: Command = Command {
    name: "hkeys",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns all fields of a hash.",
    syntax: "key",
    complexity: "O(N) where N is the size of the hash.",
    access: Access::Read,
    body: Body::Txn(hkeys),
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn hkeys(txn: &mut Txn, args: Args) -> Result<Reply> {
    everything(txn, args, Part::Fields)
}

const HVALS: Command = Command {
    name: "hvals",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the values of all fields of a hash.",
    syntax: "key",
    complexity: "O(N) where N is the size of the hash.",
    access: Access::Read,
    body: Body::Txn(hvals),
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn hvals(txn: &mut Txn, args: Args) -> Result<Reply> {
    everything(txn, args, Part::Values)
}

/// All fields: put together in memory while they are few, else piece by piece from one moment's view.
fn everything(txn: &mut Txn, args: Args, part: Part) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Elements(Elements::new(part.shape()))) };
    let (count, now_ms) = (hash::len(txn, &key, &entry)?, txn.expiry_ms());
    if count <= ROWS_INLINE_MAX as u64 {
        let mut elements = Elements::with_capacity(part.shape(), (count * part.width()) as usize, VALUE_BYTES);
        hash::visit(txn, &key, &entry, |field, value| {
            if part != Part::Values {
                elements.push(field);
            }
            if part != Part::Fields {
                elements.push(value);
            }
            if elements.bytes() > REPLY_INLINE_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if elements.bytes() <= REPLY_INLINE_BYTES_MAX {
            return Ok(Reply::Elements(elements));
        }
    }
    let Some(view) = hash::view(txn, &key, &entry)? else {
        unreachable!("a packed hash makes a short reply");
    };
    Ok(elements::stream(view, part.shape(), count * part.width(), move |row, value, _, out| {
        let stored = hash::stored_in_row(value).map_err(describe)?;
        if !stored.is_live(now_ms) {
            return Ok(0);
        }
        if part != Part::Values {
            write::bulk(out, hash::field_of_row(row).map_err(describe)?);
        }
        if part != Part::Fields {
            write::bulk(out, stored.value);
        }
        Ok(part.width())
    }))
}

/// The text of an error, where only a text can be handed on.
pub(crate) fn describe(error: haypile_types::Error) -> String {
    match error {
        haypile_types::Error::Stop(haypile_store::Stop::Failed(why)) => why,
        other => format!("{other:?}"),
    }
}

const HLEN: Command = Command {
    name: "hlen",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns how many fields a hash has.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(hlen),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn hlen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::Integer(hash::len(txn, &key, &entry)? as i64))
}

const HSTRLEN: Command = Command {
    name: "hstrlen",
    since: "3.2.0",
    group: Group::Hash,
    arity: Arity::exactly(3),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns the length of the value of a field of a hash.",
    syntax: "key field",
    access: Access::Read,
    body: Body::Txn(hstrlen),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn hstrlen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let length = hash::look(txn, &key, &entry, args.get(2), <[u8]>::len)?;
    Ok(Reply::Integer(length.unwrap_or(0) as i64))
}

const HEXISTS: Command = Command {
    name: "hexists",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(3),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns whether a hash has a field.",
    syntax: "key field",
    access: Access::Read,
    body: Body::Txn(hexists),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn hexists(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::Integer(i64::from(hash::contains(txn, &key, &entry, args.get(2))?)))
}

const HDEL: Command = Command {
    name: "hdel",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes fields from a hash, and the hash with its last field; returns how many there were.",
    syntax: "key field...",
    complexity: "O(N) where N is the number of fields to be removed.",
    access: Access::Write,
    body: Body::Txn(hdel),
    flags: &[Flag::Fast],
    history: &[("2.4.0", "Accepts multiple `field` arguments.")],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn hdel(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let deleted = hash::delete(txn, &key, args.iter_from(2))?;
    if deleted.fields > 0 {
        txn.on_event(event::HASH, "hdel", &key);
    }
    if deleted.key {
        txn.on_event(event::GENERIC, "del", &key);
    }
    Ok(Reply::Integer(deleted.fields as i64))
}

const HINCRBY: Command = Command {
    name: "hincrby",
    since: "2.0.0",
    group: Group::Hash,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds a number to the integer in a field of a hash; a missing field counts as 0.",
    syntax: "key field increment",
    access: Access::Write,
    body: Body::Txn(hincrby),
    flags: &[Flag::Denyoom, Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 2 }),
    ..Command::USUAL
};

fn hincrby(txn: &mut Txn, args: Args) -> Result<Reply> {
    let delta = args.int(3)?;
    let key = args.key(txn, 1);
    let sum = hash::increment(txn, &key, args.get(2), delta).map_err(of_value)?;
    txn.on_event(event::HASH, "hincrby", &key);
    Ok(Reply::Integer(sum))
}

const HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    since: "2.6.0",
    group: Group::Hash,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds a number with a fraction to the one in a field of a hash; a missing field counts as 0.",
    syntax: "key field increment:double",
    access: Access::Write,
    body: Body::Txn(hincrbyfloat),
    flags: &[Flag::Denyoom, Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 2 }),
    ..Command::USUAL
};

fn hincrbyfloat(txn: &mut Txn, args: Args) -> Result<Reply> {
    let delta = Extended::parse(args.get(3)).ok_or(Error::NotFloat)?;
    if !delta.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let key = args.key(txn, 1);
    let sum = hash::increment_float(txn, &key, args.get(2), delta).map_err(of_value)?;
    txn.on_event(event::HASH, "hincrbyfloat", &key);
    statement::state(txn, &[b"HSET", key.name, args.get(2), sum.as_bytes()]);
    Ok(Reply::bulk(sum.into_bytes()))
}

/// Names the value of a hash in errors about a number, as Redis does.
fn of_value(error: haypile_types::Error) -> Error {
    match error {
        haypile_types::Error::NotInteger => Error::text("ERR hash value is not an integer"),
        haypile_types::Error::NotFloat => Error::text("ERR hash value is not a float"),
        other => other.into(),
    }
}

const HSCAN: Command = Command {
    name: "hscan",
    since: "2.8.0",
    group: Group::Hash,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Iterates over the fields of a hash, a bounded step at a time.",
    syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES@7.4.0]",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for \
        the cursor to return back to 0. N is the number of elements inside the collection.",
    access: Access::Read,
    body: Body::Txn(hscan),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn hscan(txn: &mut Txn, args: Args) -> Result<Reply> {
    let cursor = elements::cursor(args, 2)?;
    let key = args.key(txn, 1);
    let Some(entry) = lookup(txn, &key)? else { return Ok(elements::empty_page()) };
    let page = Page::parse(args, 3, true)?;
    let mut found = Elements::new(Shape::Array);
    let (from, count) = page.step(cursor, hash::count_in_listpack(&entry)?);
    let next = hash::page(txn, &key, &entry, from, count, |field, value| {
        if page.passes(field) {
            found.push(field);
            if !page.names_only {
                found.push(value);
            }
        }
    })?;
    Ok(elements::page(next, found))
}
