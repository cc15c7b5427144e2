//! The commands on lists: pushing, popping, elements by index. Commands that look for elements are in `middle.rs`,
//! those on several keys in `moving.rs`.
//!
//! Owns their options, replies and events. Never builds a row: how a list lies there belongs to `haypile-types`.

pub(crate) mod middle;
pub(crate) mod moving;
pub(crate) mod moving_many;

use crate::args::Args;
use crate::elements::stream;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Command, ElementArgs, Flag, Group, Keys, TxnFn, Use};
use haypile_resp::{Elements, Reply, Shape, write};
use haypile_store::{Direction, Key, Txn, Value};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::list::{self, List, Side};
use haypile_types::{event, key};
use std::ops::{ControlFlow, Range};

pub(crate) const COMMANDS: &[Command] = &[LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP, LLEN, LINDEX, LSET, LRANGE, LTRIM];

const LPUSH: Command = Command {
    history: &[("2.4.0", "Accepts multiple `element` arguments.")],
    ..pushing("lpush", "1.0.0", "Adds elements at the head of a list, which comes to be if there is none.", lpush)
};

const RPUSH: Command = Command {
    history: &[("2.4.0", "Accepts multiple `element` arguments.")],
    ..pushing("rpush", "1.0.0", "Adds elements at the tail of a list, which comes to be if there is none.", rpush)
};

const LPUSHX: Command = Command {
    history: &[("4.0.0", "Accepts multiple `element` arguments.")],
    ..pushing("lpushx", "2.2.0", "Adds elements at the head of a list, if there is one.", lpushx)
};

const RPUSHX: Command = Command {
    history: &[("4.0.0", "Accepts multiple `element` arguments.")],
    ..pushing("rpushx", "2.2.0", "Adds elements at the tail of a list, if there is one.", rpushx)
};

const fn pushing(name: &'static str, since: &'static str, summary: &'static str, run: TxnFn) -> Command {
    Command {
        name,
        since,
        group: Group::List,
        arity: Arity::at_least(3),
        keys: Keys::first(1).rw(&[Use::Insert]),
        summary,
        syntax: "key element...",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple \
                     arguments.",
        access: Access::Write,
        body: Body::Txn(run),
        flags: &[Flag::Denyoom, Flag::Fast],
        ..Command::USUAL
    }
}

fn lpush(txn: &mut Txn, args: Args) -> Result<Reply> {
    push_all(txn, args, Side::Head, true)
}

fn rpush(txn: &mut Txn, args: Args) -> Result<Reply> {
    push_all(txn, args, Side::Tail, true)
}

fn lpushx(txn: &mut Txn, args: Args) -> Result<Reply> {
    push_all(txn, args, Side::Head, false)
}

fn rpushx(txn: &mut Txn, args: Args) -> Result<Reply> {
    push_all(txn, args, Side::Tail, false)
}

#[inline]
fn push_all(txn: &mut Txn, args: Args, side: Side, creates: bool) -> Result<Reply> {
    let key = args.key(txn, 1);
    let list = list::edit(txn, &key)?;
    if list.is_none() && !creates {
        return Ok(Reply::Integer(0));
    }
    let length = list::push(txn, &key, list, side, args.iter_from(2))?;
    on_push(txn, &key, side);
    Ok(Reply::Integer(length as i64))
}

/// Tells of elements that were added.
pub(crate) fn on_push(txn: &mut Txn, key: &Key, side: Side) {
    txn.on_event(event::LIST, if side == Side::Head { "lpush" } else { "rpush" }, key);
}

/// Tells of elements that were taken, and of the key if they were the last ones.
pub(crate) fn on_pop(txn: &mut Txn, key: &Key, side: Side, emptied: bool) {
    txn.on_event(event::LIST, if side == Side::Head { "lpop" } else { "rpop" }, key);
    if emptied {
        txn.on_event(event::GENERIC, "del", key);
    }
}

const LPOP: Command = Command {
    name: "lpop",
    access: Access::Write,
    body: Body::Txn(lpop),
    ..popping("Takes elements from the head of a list and returns them.")
};

const RPOP: Command = Command {
    name: "rpop",
    access: Access::Write,
    body: Body::Txn(rpop),
    ..popping("Takes elements from the tail of a list and returns them.")
};

const fn popping(summary: &'static str) -> Command {
    Command {
        since: "1.0.0",
        group: Group::List,
        arity: Arity::at_least(2),
        keys: Keys::first(1).rw(&[Use::Access, Use::Delete]),
        summary,
        syntax: "key [count@6.2.0]",
        complexity: "O(N) where N is the number of elements returned",
        flags: &[Flag::Fast],
        history: &[("6.2.0", "Added the `count` argument.")],
        ..Command::USUAL
    }
}

fn lpop(txn: &mut Txn, args: Args) -> Result<Reply> {
    pop(txn, args, Side::Head, "lpop")
}

fn rpop(txn: &mut Txn, args: Args) -> Result<Reply> {
    pop(txn, args, Side::Tail, "rpop")
}

fn pop(txn: &mut Txn, args: Args, side: Side, name: &str) -> Result<Reply> {
    let count = match args.len() {
        2 => None,
        3 => Some(count(args, 2, "ERR value is out of range, must be positive")?),
        _ => return Err(Error::WrongArity(name.into())),
    };
    let key = args.key(txn, 1);
    let Some(count) = count else {
        return Ok(pop_one(txn, &key, side)?.map_or(Reply::Null, bulk));
    };
    match list::edit(txn, &key)? {
        None => Ok(Reply::NullArray),
        Some(_) if count == 0 => Ok(Reply::Array(Vec::new())),
        Some(list) => pop_some(txn, &key, list, side, count),
    }
}

/// Argument `i` as a number that is not negative; else the error is this one.
pub(crate) fn count(args: Args, i: usize, error: &'static str) -> Result<u64> {
    let number = args.int(i).or(Err(Error::text(error)))?;
    u64::try_from(number).or(Err(Error::text(error)))
}

fn bulk(element: Value) -> Reply {
    Reply::bulk(element.into_parts())
}

/// Takes the element at an end of the list of a key, if there is one.
pub(crate) fn pop_one(txn: &mut Txn, key: &Key, side: Side) -> Result<Option<Value>> {
    let Some(list) = list::edit(txn, key)? else { return Ok(None) };
    let emptied = list.len() == 1;
    let element = list::pop(txn, key, list, side)?;
    on_pop(txn, key, side, emptied);
    Ok(Some(element))
}

/// Takes up to `count` elements, at least one, from an end of a list and answers them.
pub(crate) fn pop_some(txn: &mut Txn, key: &Key, mut list: List, side: Side, count: u64) -> Result<Reply> {
    let length = list.len();
    let count = count.min(length);
    let (taken, kept, direction) = match side {
        Side::Head => (0..count, count..length, Direction::Forward),
        Side::Tail => (length - count..length, 0..length - count, Direction::Backward),
    };
    let reply = elements(txn, &mut list, taken, direction)?;
    list::trim(txn, key, list, kept)?;
    on_pop(txn, key, side, count == length);
    Ok(reply)
}

/// The assumed bytes of an element in a reply, before its length is known.
const ELEMENT_BYTES: usize = 24;

/// The elements in `range`, in order or against it, as an array.
fn elements(txn: &mut Txn, list: &mut List, range: Range<u64>, direction: Direction) -> Result<Reply> {
    let count = range.end - range.start;
    if count <= ROWS_INLINE_MAX as u64 {
        let mut elements = Elements::with_capacity(Shape::Array, count as usize, ELEMENT_BYTES);
        list.visit(txn, range.clone(), direction, |element| {
            elements.push(element);
            if elements.bytes() <= REPLY_INLINE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if elements.len() as u64 == count {
            return Ok(Reply::Elements(elements));
        }
    }
    let view = list.view(txn, range, direction)?.expect("what has so many bytes lies in rows");
    Ok(stream(view, Shape::Array, count, |_, element, _, out| {
        write::bulk(out, element);
        Ok(1)
    }))
}

const LLEN: Command = Command {
    name: "llen",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns the length of a list.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(llen),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn llen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(Reply::Integer(list::read(txn, &key)?.map_or(0, |list| list.len() as i64)))
}

const LINDEX: Command = Command {
    name: "lindex",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(3),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Returns the element at an index of a list.",
    syntax: "key index",
    complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for \
                 the first or the last element of the list O(1).",
    access: Access::Read,
    body: Body::Txn(lindex),
    elements: Some(ElementArgs::Index(2)),
    ..Command::USUAL
};

fn lindex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(mut list) = list::read(txn, &key)? else { return Ok(Reply::Null) };
    match index(args.int(2)?, list.len()) {
        Some(index) => Ok(bulk(list.get(txn, index)?)),
        None => Ok(Reply::Null),
    }
}

/// Redis's index, which counts from the end if it is negative, as one within `length` elements.
fn index(index: i64, length: u64) -> Option<u64> {
    let index = match u64::try_from(index) {
        Ok(index) => index,
        Err(_) => length.checked_sub(index.unsigned_abs())?,
    };
    (index < length).then_some(index)
}

/// Redis's two indexes, both included, as a range within `length` elements, perhaps an empty one.
fn range(start: i64, stop: i64, length: u64) -> Range<u64> {
    let from_end = |index: i64| match u64::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(index.unsigned_abs()),
    };
    let start = from_end(start).unwrap_or(0);
    let end = from_end(stop).map_or(0, |stop| stop.saturating_add(1).min(length));
    if start < end { start..end } else { 0..0 }
}

const LSET: Command = Command {
    name: "lset",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Puts an element into the place of the one at an index of a list.",
    syntax: "key index element",
    complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).",
    access: Access::Write,
    body: Body::Txn(lset),
    elements: Some(ElementArgs::Index(2)),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn lset(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let list = list::edit(txn, &key)?.ok_or(Error::NoSuchKey)?;
    let index = index(args.int(2)?, list.len()).ok_or(Error::text("ERR index out of range"))?;
    list::set(txn, &key, list, index, args.get(3))?;
    txn.on_event(event::LIST, "lset", &key);
    Ok(Reply::ok())
}

const LRANGE: Command = Command {
    name: "lrange",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(4),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Returns the elements of a list between two indexes, both included.",
    syntax: "key start stop:integer",
    complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) \
                 for large lists; and N is the number of elements in the specified range.",
    access: Access::Read,
    body: Body::Txn(lrange),
    ..Command::USUAL
};

fn lrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let key = args.key(txn, 1);
    let Some(mut list) = list::read(txn, &key)? else { return Ok(Reply::Array(Vec::new())) };
    let range = range(start, stop, list.len());
    if range.is_empty() {
        return Ok(Reply::Array(Vec::new()));
    }
    elements(txn, &mut list, range, Direction::Forward)
}

const LTRIM: Command = Command {
    name: "ltrim",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Leaves of a list the elements between two indexes, both included.",
    syntax: "key start stop:integer",
    complexity: "O(N) where N is the number of elements to be removed by the operation.",
    access: Access::Write,
    body: Body::Txn(ltrim),
    ..Command::USUAL
};

fn ltrim(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (start, stop) = (args.int(2)?, args.int(3)?);
    let key = args.key(txn, 1);
    let Some(list) = list::edit(txn, &key)? else { return Ok(Reply::ok()) };
    let keep = range(start, stop, list.len());
    let emptied = keep.is_empty();
    list::trim(txn, &key, list, keep)?;
    txn.on_event(event::LIST, "ltrim", &key);
    if emptied {
        txn.on_event(event::GENERIC, "del", &key);
    }
    Ok(Reply::ok())
}

/// The list of a key that was looked up, for those who look at everything.
pub(crate) fn visit_all(
    txn: &mut Txn,
    key: &Key,
    entry: key::Entry,
    visit: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut list = List::of(key, entry)?;
    if list.len() > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    Ok(list.visit(txn, 0..list.len(), Direction::Forward, visit)?)
}
