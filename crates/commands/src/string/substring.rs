//! The commands that read and write parts of a string.
//!
//! Owns their replies. Never loads what it does not touch: `haypile-types` keeps large strings in chunks. Whole strings
//! are in `string/mod.rs`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::string::bulk;
use crate::table::{Access, Arity, Body, Command, Deprecated, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::string;

pub(crate) const COMMANDS: &[Command] = &[APPEND, STRLEN, GETRANGE, SUBSTR, SETRANGE];

const APPEND: Command = Command {
    name: "append",
    since: "2.0.0",
    group: Group::String,
    arity: Arity::exactly(3),
    keys: Keys::first(1).rw(&[Use::Insert]),
    summary: "Appends bytes to a string; a missing key counts as empty.",
    syntax: "key value",
    complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the \
        already present value is of any size, since the dynamic string library used by Redis will \
        double the free space available on every reallocation.",
    access: Access::Write,
    body: Body::Txn(append),
    flags: &[Flag::Denyoom, Flag::Fast],
    ..Command::USUAL
};

/// Appends to a string. Answers the new length.
fn append(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let length_max = txn.value_bytes_max();
    let length = string::append(txn, &key, args.get(2), length_max)?;
    txn.on_event(event::STRING, "append", &key);
    Ok(integer(length))
}

fn integer(length: u64) -> Reply {
    Reply::Integer(length as i64)
}

const STRLEN: Command = Command {
    name: "strlen",
    since: "2.2.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns the length of a string in bytes.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(strlen),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn strlen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(integer(string::length(txn, &key)?))
}

const GETRANGE: Command = Command {
    name: "getrange",
    since: "2.4.0",
    group: Group::String,
    arity: Arity::exactly(4),
    keys: Keys::first(1),
    summary: "Returns the bytes of a string between two offsets, both included.",
    syntax: "key start end",
    complexity: "O(N) where N is the length of the returned string. The complexity is ultimately \
        determined by the returned length, but because creating a substring from an existing \
        string is very cheap, it can be considered O(1) for small strings.",
    access: Access::Read,
    body: Body::Txn(getrange),
    ..Command::USUAL
};

/// The bytes from `start` to `end`, both included, negative offsets counting from the end; empty if there are none.
fn getrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (start, end) = (args.int(2)?, args.int(3)?);
    let key = args.key(txn, 1);
    Ok(string::range(txn, &key, start, end)?.map_or(Reply::bulk(""), bulk))
}

const SUBSTR: Command = Command {
    name: "substr",
    since: "1.0.0",
    group: Group::String,
    arity: Arity::exactly(4),
    keys: Keys::first(1),
    summary: "Returns the bytes of a string between two offsets, both included.",
    syntax: "key start end",
    complexity: "O(N) where N is the length of the returned string. The complexity is ultimately \
        determined by the returned length, but because creating a substring from an existing \
        string is very cheap, it can be considered O(1) for small strings.",
    access: Access::Read,
    body: Body::Txn(substr),
    deprecated: Some(Deprecated { since: "2.0.0", instead: "`GETRANGE`" }),
    ..Command::USUAL
};

fn substr(txn: &mut Txn, args: Args) -> Result<Reply> {
    getrange(txn, args)
}

const SETRANGE: Command = Command {
    name: "setrange",
    since: "2.2.0",
    group: Group::String,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Overwrites the bytes of a string from an offset on; a gap is filled with zeros.",
    syntax: "key offset value",
    complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string \
        is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M \
        being the length of the value argument.",
    access: Access::Write,
    body: Body::Txn(setrange),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

/// Overwrites a part of a string. Answers the new length.
fn setrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    let offset = u64::try_from(args.int(2)?).map_err(|_| Error::OffsetOutOfRange)?;
    let key = args.key(txn, 1);
    let length_max = txn.value_bytes_max();
    let length = string::set_range(txn, &key, offset, args.get(3), length_max)?;
    if !args.get(3).is_empty() {
        txn.on_event(event::STRING, "setrange", &key);
    }
    Ok(integer(length))
}
