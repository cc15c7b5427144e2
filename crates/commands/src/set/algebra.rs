//! The commands on several sets at once: union, difference, intersection, and what stores them. `card.rs` has those
//! that count only.
//!
//! Owns their options and replies. The walk over the sets belongs to `haypile-types`.

use crate::args::Args;
use crate::error::Result;
use crate::set::long_members;
use crate::table::{Access, Arity, Body, Command, Find, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::{Elements, Reply, Shape};
use haypile_store::{Key, Txn};
use haypile_types::element::REPLY_INLINE_BYTES_MAX;
use haypile_types::event;
use haypile_types::key;
use haypile_types::set::merge::{self, Means, Operation};
use haypile_types::set::store;

pub(crate) const COMMANDS: &[Command] = &[SINTER, SINTERSTORE, SUNION, SUNIONSTORE, SDIFF, SDIFFSTORE];

pub(super) const OF_INTERSECTION: &str =
    "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.";
pub(super) const OF_ALL: &str = "O(N) where N is the total number of elements in all given sets.";
const ANY_ORDER: &[&str] = &["nondeterministic_output_order"];

/// Keys from argument 2 to the last one.
const SOURCES: KeySpec = KeySpec { find: Find::Range { last: -1, step: 1, limit: 0 }, ..KeySpec::at(2) };

const SINTER: Command = Command {
    name: "sinter",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(2),
    keys: Keys::all_from(1, 1),
    summary: "Returns the members that all of several sets have.",
    syntax: "key...",
    complexity: OF_INTERSECTION,
    access: Access::Read,
    body: Body::Txn(sinter),
    tips: ANY_ORDER,
    ..Command::USUAL
};

fn sinter(txn: &mut Txn, args: Args) -> Result<Reply> {
    result(txn, args, Operation::Intersection)
}

const SUNION: Command = Command {
    name: "sunion",
    summary: "Returns the members that any of several sets has.",
    complexity: OF_ALL,
    access: Access::Read,
    body: Body::Txn(sunion),
    ..SINTER
};

fn sunion(txn: &mut Txn, args: Args) -> Result<Reply> {
    result(txn, args, Operation::Union)
}

const SDIFF: Command = Command {
    name: "sdiff",
    summary: "Returns the members of a set that none of the other sets has.",
    complexity: OF_ALL,
    access: Access::Read,
    body: Body::Txn(sdiff),
    ..SINTER
};

fn sdiff(txn: &mut Txn, args: Args) -> Result<Reply> {
    result(txn, args, Operation::Difference)
}

/// The keys among the arguments of `range`.
pub(super) fn keys<'a>(txn: &Txn, args: Args<'a>, range: std::ops::Range<usize>) -> Vec<Key<'a>> {
    range.map(|i| args.key(txn, i)).collect()
}

/// The members of the result. Those of a long one are counted first, then sent as they are found again.
fn result(txn: &mut Txn, args: Args, operation: Operation) -> Result<Reply> {
    let keys = keys(txn, args, 1..args.len());
    let sets = merge::lookup(txn, &keys)?;
    let mut merge = merge::merge(txn, &keys, &sets, operation, Means::Any)?;
    let (mut found, mut count) = (Elements::new(Shape::Set), 0);
    while merge.advance(txn)? {
        count += 1;
        if found.bytes() <= REPLY_INLINE_BYTES_MAX {
            found.push(merge.member().1);
        }
    }
    if found.bytes() <= REPLY_INLINE_BYTES_MAX {
        return Ok(Reply::Elements(found));
    }
    txn.long()?;
    let again = merge::merge(txn, &keys, &sets, operation, Means::Walks)?;
    Ok(long_members(Shape::Set, count, again.into_members()))
}

const SINTERSTORE: Command = Command {
    name: "sinterstore",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Rw, &[Use::Update]), SOURCES]),
    summary: "Stores the members that all of several sets have, whatever the key held before.",
    syntax: "destination:key key...",
    complexity: OF_INTERSECTION,
    access: Access::Write,
    body: Body::Txn(sinterstore),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn sinterstore(txn: &mut Txn, args: Args) -> Result<Reply> {
    store(txn, args, Operation::Intersection, "sinterstore")
}

const SUNIONSTORE: Command = Command {
    name: "sunionstore",
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Ow, &[Use::Update]), SOURCES]),
    summary: "Stores the members that any of several sets has, whatever the key held before.",
    complexity: OF_ALL,
    access: Access::Write,
    body: Body::Txn(sunionstore),
    ..SINTERSTORE
};

fn sunionstore(txn: &mut Txn, args: Args) -> Result<Reply> {
    store(txn, args, Operation::Union, "sunionstore")
}

const SDIFFSTORE: Command = Command {
    name: "sdiffstore",
    summary: "Stores the members of a set that none of the other sets has, whatever the key held before.",
    access: Access::Write,
    body: Body::Txn(sdiffstore),
    ..SUNIONSTORE
};

fn sdiffstore(txn: &mut Txn, args: Args) -> Result<Reply> {
    store(txn, args, Operation::Difference, "sdiffstore")
}

/// Stores the result, and returns the number of its members. Without any, the key goes.
fn store(txn: &mut Txn, args: Args, operation: Operation, event: &'static str) -> Result<Reply> {
    let keys = keys(txn, args, 2..args.len());
    let to = args.key(txn, 1);
    let sets = merge::lookup(txn, &keys)?;
    let merge = merge::merge(txn, &keys, &sets, operation, Means::Any)?;
    let count = store::store(txn, &to, merge, operation, &sets)?;
    if count > 0 {
        txn.on_event(event::SET, event, &to);
    } else if key::delete(txn, &to)? {
        txn.on_event(event::GENERIC, "del", &to);
    }
    Ok(Reply::Integer(count as i64))
}
