//! BITFIELD and BITFIELD_RO: a string as an array of integers of any width.
//!
//! Owns how their subcommands are read. The integers belong to `haypile-types`, single bits to `bitmap/mod.rs`.

use crate::args::Args;
use crate::bitmap::offset;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Mode, Use};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::bitmap::field::{self, Kind, Operation, Outcome, Overflow, Step};
use haypile_types::event;

pub(crate) const COMMANDS: &[Command] = &[BITFIELD, BITFIELD_RO];

const BITFIELD: Command = Command {
    name: "bitfield",
    since: "3.2.0",
    group: Group::Bitmap,
    arity: Arity::at_least(2),
    keys: Keys::first(1)
        .rw(&[Use::Access, Use::Update, Use::VariableFlags])
        .noting("This command allows both access and modification of the key"),
    summary: "Reads and changes integers of any width at any bit of a string.",
    syntax: "key [operation=(GET encoding_offset=(encoding offset) | write=([OVERFLOW wrap_sat_fail=(WRAP | SAT | FAIL)] \
             write_operation=(SET encoding_offset_value=(encoding offset value:integer) | INCRBY \
             encoding_offset_increment=(encoding offset increment))))...]",
    complexity: "O(1) for each subcommand specified",
    access: Access::Write,
    body: Body::Txn(bitfield),
    flags: &[Flag::Denyoom],
    uses: Some(uses_of_bitfield),
    ..Command::USUAL
};

/// A call that only gets is a read. One that makes no sense counts as a write, as in Redis.
fn uses_of_bitfield(args: Args) -> (Mode, &'static [Use]) {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match left {
            2.. if args.is(at, "GET") => 3,
            1.. if args.is(at, "OVERFLOW") => 2,
            _ => return (Mode::Rw, &[Use::Access, Use::Update]),
        };
    }
    (Mode::Ro, &[Use::Access])
}

fn bitfield(txn: &mut Txn, args: Args) -> Result<Reply> {
    let steps = parse(txn, args)?;
    let key = args.key(txn, 1);
    if is_read_only(&steps) {
        return Ok(reply(field::read(txn, &key, &steps)?));
    }
    let outcome = field::change(txn, &key, &steps)?;
    if outcome.changed {
        txn.on_event(event::STRING, "setbit", &key);
    }
    Ok(reply(outcome))
}

const BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    since: "6.0.0",
    group: Group::Bitmap,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Reads integers of any width at any bit of a string.",
    syntax: "key [GET encoding_offset=(encoding offset)*]",
    complexity: "O(1) for each subcommand specified",
    access: Access::Read,
    body: Body::Txn(bitfield_ro),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn bitfield_ro(txn: &mut Txn, args: Args) -> Result<Reply> {
    let steps = parse(txn, args)?;
    if !is_read_only(&steps) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let key = args.key(txn, 1);
    Ok(reply(field::read(txn, &key, &steps)?))
}

fn is_read_only(steps: &[Step]) -> bool {
    steps.iter().all(|step| step.operation == Operation::Get)
}

fn reply(outcome: Outcome) -> Reply {
    Reply::Array(outcome.values.into_iter().map(|value| value.map_or(Reply::Null, Reply::Integer)).collect())
}

/// The subcommands. OVERFLOW says what those behind it do.
fn parse(txn: &Txn, args: Args) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::default();
    let mut i = 2;
    while i < args.len() {
        let has = |more: usize| i + more < args.len();
        let (words, value_of): (usize, fn(i64, Overflow) -> Operation) = if args.is(i, "GET") && has(2) {
            (3, |_, _| Operation::Get)
        } else if args.is(i, "SET") && has(3) {
            (4, Operation::Set)
        } else if args.is(i, "INCRBY") && has(3) {
            (4, Operation::Increment)
        } else if args.is(i, "OVERFLOW") && has(1) {
            let ways = [("WRAP", Overflow::Wrap), ("SAT", Overflow::Sat), ("FAIL", Overflow::Fail)];
            let way = ways.into_iter().find(|(word, _)| args.is(i + 1, word));
            overflow = way.ok_or(Error::text("ERR Invalid OVERFLOW type specified"))?.1;
            i += 2;
            continue;
        } else {
            return Err(Error::Syntax);
        };
        let kind = kind(args.get(i + 1))?;
        let offset = offset(txn, args.get(i + 2), Some(kind.bits))?;
        let value = if words == 4 { args.int(i + 3)? } else { 0 };
        steps.push(Step { operation: value_of(value, overflow), kind, offset });
        i += words;
    }
    Ok(steps)
}

/// `i` or `u` and a number of bits.
fn kind(argument: &[u8]) -> Result<Kind> {
    let parsed = match argument {
        [b'i', bits @ ..] => Some((true, bits, 64)),
        [b'u', bits @ ..] => Some((false, bits, 63)),
        _ => None,
    };
    parsed
        .and_then(|(signed, bits, most)| {
            let bits = number::parse_i64(bits).filter(|bits| (1..=most).contains(bits))?;
            Some(Kind { signed, bits: bits as u8 })
        })
        .ok_or(Error::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))
}
