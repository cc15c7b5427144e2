//! The commands on bits of a string: one bit, a count, a search, and whole strings combined.
//!
//! Owns their options and replies. How a string lies in rows, and the bits themselves, belong to `haypile-types`.
//! Integers of any width are in `field.rs`.

pub(crate) mod field;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Begin, Body, Command, Find, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::bitmap::combine::{self, Operation};
use haypile_types::bitmap::{self, Bitmap};
use haypile_types::{event, key};
use std::ops::Range;

pub(crate) const COMMANDS: &[Command] = &[BITCOUNT, BITOP, BITPOS, GETBIT, SETBIT];

const SETBIT: Command = Command {
    name: "setbit",
    since: "2.2.0",
    group: Group::Bitmap,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Sets or clears one bit of a string, which grows with zeros as far as it has to.",
    syntax: "key offset value:integer",
    access: Access::Write,
    body: Body::Txn(setbit),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

/// Sets a bit. Returns the bit that was there.
fn setbit(txn: &mut Txn, args: Args) -> Result<Reply> {
    let offset = offset(txn, args.get(2), None)?;
    let bit = match args.get(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let key = args.key(txn, 1);
    let set = bitmap::set(txn, &key, offset, bit)?;
    if set.changed {
        txn.on_event(event::STRING, "setbit", &key);
    }
    Ok(Reply::Integer(set.before.into()))
}

/// An argument as the place of a bit, inside the longest string that is allowed. After `#` it counts integers of so
/// many bits, where the command has such.
pub(crate) fn offset(txn: &Txn, argument: &[u8], bits: Option<u8>) -> Result<u64> {
    let (argument, times) = match (argument, bits) {
        ([b'#', rest @ ..], Some(bits)) => (rest, u64::from(bits)),
        _ => (argument, 1),
    };
    number::parse_i64(argument)
        .and_then(|offset| u64::try_from(offset).ok()?.checked_mul(times))
        .filter(|offset| offset / 8 < txn.value_bytes_max())
        .ok_or(Error::text("ERR bit offset is not an integer or out of range"))
}

const GETBIT: Command = Command {
    name: "getbit",
    since: "2.2.0",
    group: Group::Bitmap,
    arity: Arity::exactly(3),
    keys: Keys::first(1),
    summary: "Returns one bit of a string.",
    syntax: "key offset",
    access: Access::Read,
    body: Body::Txn(getbit),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn getbit(txn: &mut Txn, args: Args) -> Result<Reply> {
    let offset = offset(txn, args.get(2), None)?;
    let key = args.key(txn, 1);
    let bit = match Bitmap::lookup(txn, &key)? {
        Some(bitmap) => bitmap.bit(txn, offset)?,
        None => false,
    };
    Ok(Reply::Integer(bit.into()))
}

const BITCOUNT: Command = Command {
    name: "bitcount",
    since: "2.6.0",
    group: Group::Bitmap,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Counts the bits of a string, or of a part of it, that are set.",
    syntax: "key [index=(start end [index_unit@7.0.0=(BYTE | BIT)])]",
    complexity: "O(N)",
    access: Access::Read,
    body: Body::Txn(bitcount),
    history: &[("7.0.0", "Added the `BYTE|BIT` option.")],
    ..Command::USUAL
};

/// Counts bits. Wrong arguments are an error even if the key is absent, as of 7.2.
fn bitcount(txn: &mut Txn, args: Args) -> Result<Reply> {
    let part = match args.len() {
        2 => None,
        4 | 5 => Some((args.int(2)?, args.int(3)?, unit(args, 4)?)),
        _ => return Err(Error::Syntax),
    };
    let key = args.key(txn, 1);
    let Some(bitmap) = Bitmap::lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let range = match part {
        None => 0..bitmap.length * 8,
        Some((start, end, _)) if start < 0 && end < 0 && start > end => 0..0,
        Some((start, end, unit)) => unit.range(start, Some(end), bitmap.length),
    };
    Ok(Reply::Integer(bitmap.count(txn, range)? as i64))
}

/// The unit of a range's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

fn unit(args: Args, i: usize) -> Result<Unit> {
    match args.opt(i) {
        None => Ok(Unit::Byte),
        Some(_) if args.is(i, "BYTE") => Ok(Unit::Byte),
        Some(_) if args.is(i, "BIT") => Ok(Unit::Bit),
        Some(_) => Err(Error::Syntax),
    }
}

impl Unit {
    /// The bits from `start` to `end`, both included and negative ones counting from the end of a string of so many
    /// bytes.
    fn range(self, start: i64, end: Option<i64>, length: u64) -> Range<u64> {
        let (total, bits) = match self {
            Unit::Byte => (length as i64, 8),
            Unit::Bit => (length as i64 * 8, 1),
        };
        let within = |at: i64| if at < 0 { (total + at).max(0) } else { at };
        let (start, end) = (within(start), end.map_or(total - 1, within).min(total - 1));
        if start > end { 0..0 } else { start as u64 * bits..(end as u64 + 1) * bits }
    }
}

const BITPOS: Command = Command {
    name: "bitpos",
    since: "2.8.7",
    group: Group::Bitmap,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Finds the first bit of a string, or of a part of it, that is set or clear.",
    syntax: "key bit:integer [index=(start [end_index=(end [index_unit@7.0.0=(BYTE | BIT)])])]",
    complexity: "O(N)",
    access: Access::Read,
    body: Body::Txn(bitpos),
    history: &[("7.0.0", "Added the `BYTE|BIT` option.")],
    ..Command::USUAL
};

/// Finds the first bit of a value. A string is followed by zeros, unless the part that is searched has an end. Wrong
/// arguments are an error even if the key is absent, as of 7.2.
fn bitpos(txn: &mut Txn, args: Args) -> Result<Reply> {
    const NOT_FOUND: Reply = Reply::Integer(-1);
    let bit = match args.int(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::text("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(Error::Syntax);
    }
    let start = if args.len() > 3 { args.int(3)? } else { 0 };
    let unit = unit(args, 5)?;
    let end = if args.len() > 4 { Some(args.int(4)?) } else { None };
    let key = args.key(txn, 1);
    let Some(bitmap) = Bitmap::lookup(txn, &key)? else { return Ok(Reply::Integer(if bit { -1 } else { 0 })) };
    let range = unit.range(start, end, bitmap.length);
    if range.is_empty() {
        return Ok(NOT_FOUND);
    }
    Ok(match bitmap.first(txn, bit, range)? {
        Some(position) => Reply::Integer(position as i64),
        None if !bit && end.is_none() => Reply::Integer(bitmap.length as i64 * 8),
        None => NOT_FOUND,
    })
}

const BITOP: Command = Command {
    name: "bitop",
    since: "2.6.0",
    group: Group::Bitmap,
    arity: Arity::at_least(4),
    keys: Keys::Many(&[
        KeySpec::at(2).with(Mode::Ow, &[Use::Update]),
        KeySpec { begin: Begin::Index(3), find: Find::Range { last: -1, step: 1, limit: 0 }, ..KeySpec::at(3) },
    ]),
    summary: "Combines the bits of strings and stores the result.",
    syntax: "operation destkey:key key...",
    complexity: "O(N)",
    access: Access::Write,
    body: Body::Txn(bitop),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

/// Combines strings. Returns the length of the result, which is as long as the longest operand.
fn bitop(txn: &mut Txn, args: Args) -> Result<Reply> {
    let operations = [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
        ("DIFF", Operation::Diff),
        ("DIFF1", Operation::Diff1),
        ("ANDOR", Operation::AndOr),
        ("ONE", Operation::One),
    ];
    let (word, operation) = operations.into_iter().find(|(word, _)| args.is(1, word)).ok_or(Error::Syntax)?;
    match operation {
        Operation::Not if args.len() != 4 => {
            return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
        }
        Operation::Diff | Operation::Diff1 | Operation::AndOr if args.len() < 5 => {
            return Err(Error::text(format!("ERR BITOP {word} must be called with at least two source keys.")));
        }
        _ => {}
    }
    let mut operands = Vec::with_capacity(args.len() - 3);
    for i in 3..args.len() {
        let key = args.key(txn, i);
        operands.push(Bitmap::lookup(txn, &key)?);
    }
    let key = args.key(txn, 2);
    let length = combine::store(txn, operation, &key, operands)?;
    if length > 0 {
        txn.on_event(event::STRING, "set", &key);
    } else if key::delete(txn, &key)? {
        txn.on_event(event::GENERIC, "del", &key);
    }
    if matches!(operation, Operation::Diff | Operation::Diff1 | Operation::AndOr | Operation::One) {
        // Operations of Redis 8.2.
        statement::state_value(txn, &key)?;
    }
    Ok(Reply::Integer(length as i64))
}
