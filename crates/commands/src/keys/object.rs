//! OBJECT: what Redis tells about the inside of a value.
//!
//! Owns the encodings as Redis would choose them for a value that is set as a whole: nothing of them is stored here, so
//! that what a value has been through does not show. MEMORY USAGE and DEBUG OBJECT ask here, too.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::server::introspect::help;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, TxnFn};
use haypile_resp::{Reply, number};
use haypile_store::{Key, Txn};
use haypile_types::key::{self, Entry, Type};
use haypile_types::string::{self, Content};
use haypile_types::value;

pub(crate) const COMMANDS: &[Command] = &[OBJECT];

const OBJECT: Command = Command {
    name: "object",
    since: "2.2.3",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands about the inside of values.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Container,
    subcommands: &[
        about("encoding", "2.2.3", "Returns how Redis would keep the value of a key.", encoding),
        about("freq", "4.0.0", "Returns how often a key is used, on a scale of logarithms.", freq),
        about("idletime", "2.2.3", "Returns the seconds since a key was last used.", idletime),
        about("refcount", "2.2.3", "Returns how many references Redis would have to the value of a key.", refcount),
        OBJECT_HELP,
    ],
    ..Command::USUAL
};

const fn about(name: &'static str, since: &'static str, summary: &'static str, run: TxnFn) -> Command {
    Command {
        name,
        since,
        group: Group::Generic,
        arity: Arity::exactly(3),
        keys: Keys::first(2).ro(&[]),
        summary,
        syntax: "key",
        access: Access::Read,
        body: Body::Txn(run),
        tips: &["nondeterministic_output"],
        ..Command::USUAL
    }
}

const OBJECT_HELP: Command = Command {
    name: "help",
    since: "6.2.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::NONE,
    summary: "Lists the subcommands of OBJECT.",
    syntax: "",
    body: Body::Host(help),
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::USUAL
};

/// How Redis keeps a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Int(i64),
    Embstr,
    Raw,
}

/// Longer strings are an allocation of their own.
const EMBSTR_BYTES_MAX: u64 = 44;

/// Redis has one object for each of the integers below.
const SHARED_INTEGERS: i64 = 10_000;

impl Encoding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
        }
    }

    /// The reference count that Redis shows: a constant for a shared integer, which is never freed.
    pub fn references(self) -> i64 {
        match self {
            Self::Int(0..SHARED_INTEGERS) => i32::MAX.into(),
            _ => 1,
        }
    }
}

/// How Redis would keep a string that is set as it is now, and its length.
pub(crate) fn string_encoding(txn: &mut Txn, key: &Key, entry: Entry) -> Result<(Encoding, u64)> {
    let length = string::length_of(key, &entry)?;
    if length > EMBSTR_BYTES_MAX {
        return Ok((Encoding::Raw, length));
    }
    let integer = match string::content(txn, key, entry)? {
        Content::Shared(bytes) => number::parse_i64(&bytes),
        Content::Owned(bytes) => number::parse_i64(&bytes),
        Content::Long(_) => None,
    };
    Ok((integer.map_or(Encoding::Embstr, Encoding::Int), length))
}

fn encoding(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let Some(entry) = key::inspect(txn, &key)? else { return Ok(Reply::Null) };
    match value::encoding_name(&entry)? {
        Some(name) => Ok(Reply::bulk(name)),
        None => Ok(Reply::bulk(string_encoding(txn, &key, entry)?.0.name())),
    }
}

fn refcount(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let Some(entry) = key::inspect(txn, &key)? else { return Ok(Reply::Null) };
    if entry.header.type_of() != Type::String {
        return Ok(Reply::Integer(1));
    }
    let (encoding, _) = string_encoding(txn, &key, entry)?;
    Ok(Reply::Integer(encoding.references()))
}

fn freq(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    if key::inspect(txn, &key)?.is_none() {
        return Ok(Reply::Null);
    }
    if !txn.has_frequency_policy() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    Ok(Reply::Integer(txn.frequency(&key).into()))
}

fn idletime(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    if key::inspect(txn, &key)?.is_none() {
        return Ok(Reply::Null);
    }
    if txn.has_frequency_policy() {
        return Err(Error::text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    Ok(Reply::Integer(txn.idle_s(&key) as i64))
}
