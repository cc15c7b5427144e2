//! The commands on one set.
//!
//! Owns their replies. Random members are in `random.rs`, several sets at once in `algebra.rs`; how a set lies in its
//! rows belongs to `haypile-types`.

pub(crate) mod algebra;
pub(crate) mod card;
pub(crate) mod random;

use crate::args::Args;
use crate::elements::{self, Page};
use crate::error::Result;
use crate::table::{Access, Arity, Body, Command, ElementArgs, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::{Elements, Reply, Shape, write};
use haypile_store::{Key, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::key;
use haypile_types::set::merge::{self, Means, Members, Operation};
use haypile_types::set::{self, Set};
use haypile_types::value::encoding::SET_TABLE;
use haypile_types::{event, walk};
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[SADD, SREM, SMOVE, SISMEMBER, SMISMEMBER, SCARD, SMEMBERS, SSCAN];

const SADD: Command = Command {
    name: "sadd",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Insert]),
    summary: "Adds members to a set and returns how many are new.",
    syntax: "key member...",
    complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple \
        arguments.",
    access: Access::Write,
    body: Body::Txn(sadd),
    flags: &[Flag::Denyoom, Flag::Fast],
    history: &[("2.4.0", "Accepts multiple `member` arguments.")],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn sadd(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    bound(txn, args.len() - 2)?;
    let entry = key::lookup_write(txn, &key)?;
    let added = set::add(txn, &key, entry, args.iter_from(2))?;
    if added > 0 {
        txn.on_event(event::SET, "sadd", &key);
    }
    Ok(Reply::Integer(added as i64))
}

/// Asks for the I/O pool where a command names many members, and so looks at as many rows.
fn bound(txn: &Txn, members: usize) -> Result<()> {
    if members > ROWS_INLINE_MAX {
        txn.long()?;
    }
    Ok(())
}

const SREM: Command = Command {
    name: "srem",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes members from a set and returns how many there were; the key goes with the last one.",
    syntax: "key member...",
    complexity: "O(N) where N is the number of members to be removed.",
    access: Access::Write,
    body: Body::Txn(srem),
    flags: &[Flag::Fast],
    history: &[("2.4.0", "Accepts multiple `member` arguments.")],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn srem(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    bound(txn, args.len() - 2)?;
    let Some(entry) = key::lookup_write(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let set = Set::of(&key, entry)?;
    let removed = remove(txn, &key, &set, args.iter_from(2))?;
    Ok(Reply::Integer(removed as i64))
}

/// Removes members and tells of it.
fn remove<'m>(txn: &mut Txn, key: &Key, set: &Set, members: impl Iterator<Item = &'m [u8]>) -> Result<u64> {
    let (removed, left) = set::remove(txn, key, set, members)?;
    if removed > 0 {
        txn.on_event(event::SET, "srem", key);
        on_removed(txn, key, left);
    }
    Ok(removed)
}

/// Tells that a set has gone if no members are left.
pub(crate) fn on_removed(txn: &mut Txn, key: &Key, left: u64) {
    if left == 0 {
        txn.on_event(event::GENERIC, "del", key);
    }
}

const SMOVE: Command = Command {
    name: "smove",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::exactly(4),
    keys: Keys::Many(&[
        KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete]),
        KeySpec::at(2).with(Mode::Rw, &[Use::Insert]),
    ]),
    summary: "Moves a member from one set to another.",
    syntax: "source:key destination:key member",
    access: Access::Write,
    body: Body::Txn(smove),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

/// Moves a member. Answers whether it was in the source.
fn smove(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (from, to) = (args.key(txn, 1), args.key(txn, 2));
    let source = key::lookup_write(txn, &from)?;
    let target = key::lookup_write(txn, &to)?;
    let Some(source) = source else { return Ok(Reply::Integer(0)) };
    let source = Set::of(&from, source)?;
    if let Some(target) = &target {
        Set::of(&to, target.clone())?;
    }
    if from == to {
        return Ok(Reply::Integer(source.contains(txn, args.get(3))?.into()));
    }
    let member = || std::iter::once(args.get(3));
    if remove(txn, &from, &source, member())? == 0 {
        return Ok(Reply::Integer(0));
    }
    if set::add(txn, &to, target, member())? > 0 {
        txn.on_event(event::SET, "sadd", &to);
    }
    Ok(Reply::Integer(1))
}

const SISMEMBER: Command = Command {
    name: "sismember",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::exactly(3),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns whether a set has a member.",
    syntax: "key member",
    access: Access::Read,
    body: Body::Txn(sismember),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn sismember(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(set) = Set::lookup(txn, &key)? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::Integer(set.contains(txn, args.get(2))?.into()))
}

const SMISMEMBER: Command = Command {
    name: "smismember",
    since: "6.2.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Returns for each of several members whether a set has it.",
    syntax: "key member...",
    complexity: "O(N) where N is the number of elements being checked for membership",
    access: Access::Read,
    body: Body::Txn(smismember),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn smismember(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    bound(txn, args.len() - 2)?;
    let set = Set::lookup(txn, &key)?;
    let mut found = Vec::with_capacity(args.len() - 2);
    for member in args.iter_from(2) {
        let contains = match &set {
            Some(set) => set.contains(txn, member)?,
            None => false,
        };
        found.push(Reply::Integer(contains.into()));
    }
    Ok(Reply::Array(found))
}

const SCARD: Command = Command {
    name: "scard",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns the number of members of a set.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(scard),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn scard(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(Reply::Integer(Set::lookup(txn, &key)?.map_or(0, |set| set.count() as i64)))
}

const SMEMBERS: Command = Command {
    name: "smembers",
    since: "1.0.0",
    group: Group::Set,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns all members of a set.",
    syntax: "key",
    complexity: "O(N) where N is the set cardinality.",
    access: Access::Read,
    body: Body::Txn(smembers),
    tips: &["nondeterministic_output_order"],
    ..Command::USUAL
};

fn smembers(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    match Set::lookup(txn, &key)? {
        None => Ok(Reply::Elements(Elements::new(Shape::Set))),
        Some(set) => members(txn, &key, &set, Shape::Set),
    }
}

/// A guess at how long members are.
const USUAL_BYTES: usize = 16;

/// All members, at once or, where they are many or long, piece by piece.
pub(crate) fn members(txn: &mut Txn, key: &Key, set: &Set, shape: Shape) -> Result<Reply> {
    if set.count() <= ROWS_INLINE_MAX as u64 {
        let mut elements = Elements::with_capacity(shape, set.count() as usize, USUAL_BYTES);
        set.visit(txn, |member| {
            elements.push(member);
            if elements.bytes() <= REPLY_INLINE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if elements.bytes() <= REPLY_INLINE_BYTES_MAX {
            return Ok(Reply::Elements(elements));
        }
    }
    txn.long()?;
    let all = merge::merge(txn, &[*key], &[Some(set.clone())], Operation::Union, Means::Walks)?;
    Ok(long_members(shape, set.count(), all.into_members()))
}

/// A reply of `count` members, sent piece by piece.
pub(crate) fn long_members(shape: Shape, count: u64, mut members: Members) -> Reply {
    elements::stream_of(shape, count, move |out| {
        let more = members.advance()?;
        if more {
            write::bulk(out, members.member());
        }
        Ok(more)
    })
}

const SSCAN: Command = Command {
    name: "sscan",
    since: "2.8.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Iterates over the members of a set, a bounded step at a time.",
    syntax: "key cursor [MATCH pattern] [COUNT count]",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to \
        return back to 0. N is the number of elements inside the collection..",
    access: Access::Read,
    body: Body::Txn(sscan),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

/// Answers a page of members; a set that lies in its meta row comes whole.
fn sscan(txn: &mut Txn, args: Args) -> Result<Reply> {
    let cursor = elements::cursor(args, 2)?;
    let key = args.key(txn, 1);
    let Some(set) = Set::lookup(txn, &key)? else { return Ok(elements::empty_page()) };
    let page = Page::parse(args, 3, false)?;
    let mut found = Elements::new(Shape::Array);
    let mut each = |member: &[u8]| {
        if page.passes(member) {
            found.push(member);
        }
    };
    let (from, count) = page.step(cursor, (set.encoding != SET_TABLE).then(|| set.count()));
    let next = match (set.rows(), from) {
        (None, _) => {
            set.visit(txn, |member| {
                each(member);
                ControlFlow::Continue(())
            })?;
            None
        }
        (Some(_), None) => None,
        (Some(rows), Some(from)) => walk::page(txn, rows, from, count, |member, _| each(member))?,
    };
    Ok(elements::page(next, found))
}
