//! The commands that wait until there is something to take: from lists and from sorted sets.
//!
//! Owns their options and replies. Each tries once: what it answers then says that it has got something, or what it
//! waits for; who waits, how long and in which order is the engine's business. How elements and members are taken is in
//! `list/moving.rs` and `zset/pop.rs`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::list::moving::{Pops, SOURCE_AND_DESTINATION, move_one, pop_from_first, side, state_move};
use crate::list::moving_many::Many;
use crate::table::{
    Access, Arity, Awaited, Body, Command, Deprecated, Find, Flag, Group, KeySpec, Keys, Mode, Tried, Use,
};
use crate::zset::pop::{self, End, Mpop};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::extended::Extended;
use haypile_types::key::Type;
use haypile_types::list::Side;
use std::ops::Range;

pub(crate) const COMMANDS: &[Command] =
    &[BLPOP, BRPOP, BLMOVE, BLMOVEM, BRPOPLPUSH, BLMPOP, BZPOPMIN, BZPOPMAX, BZMPOP];

/// Keys that an event loop looks at in one command.
const KEYS_AT_ONCE: usize = 1024;

/// Redis's note of the version since which a timeout may have a fraction.
const DOUBLE_SINCE: (&str, &str) = ("6.0.0", "`timeout` is interpreted as a double instead of an integer.");

const BLPOP: Command = Command {
    name: "blpop",
    summary: "Takes the first element of the first of several lists that is there, or waits until one is.",
    access: Access::Write,
    body: Body::Wait(blpop),
    ..POPPING
};

const BRPOP: Command = Command {
    name: "brpop",
    summary: "Takes the last element of the first of several lists that is there, or waits until one is.",
    access: Access::Write,
    body: Body::Wait(brpop),
    ..POPPING
};

const POPPING: Command = Command {
    since: "2.0.0",
    group: Group::List,
    arity: Arity::at_least(3),
    keys: KEYS_BEFORE_TIMEOUT,
    syntax: "key... timeout:double",
    complexity: "O(N) where N is the number of provided keys.",
    history: &[DOUBLE_SINCE],
    ..Command::USUAL
};

const KEYS_BEFORE_TIMEOUT: Keys = Keys::One(KeySpec {
    find: Find::Range { last: -2, step: 1, limit: 0 },
    ..KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete])
});

fn blpop(txn: &mut Txn, args: Args) -> Result<Tried> {
    pop(txn, args, Side::Head)
}

fn brpop(txn: &mut Txn, args: Args) -> Result<Tried> {
    pop(txn, args, Side::Tail)
}

fn pop(txn: &mut Txn, args: Args, side: Side) -> Result<Tried> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(txn, args, last)?;
    let keys = look_at(txn, 1..last)?;
    Ok(match pop_from_first(txn, args, keys.clone(), side)? {
        Some(reply) => Tried::Got(reply),
        None => Tried::Nothing(Awaited::new(keys, Type::List, timeout_ms, Reply::NullArray)),
    })
}

const BLMOVE: Command = Command {
    name: "blmove",
    since: "6.2.0",
    arity: Arity::exactly(6),
    syntax: "source:key destination:key wherefrom=(LEFT | RIGHT) whereto=(LEFT | RIGHT) timeout:double",
    access: Access::Write,
    body: Body::Wait(blmove),
    ..MOVING
};

const BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    since: "2.2.0",
    arity: Arity::exactly(4),
    syntax: "source:key destination:key timeout:double",
    access: Access::Write,
    body: Body::Wait(brpoplpush),
    history: &[DOUBLE_SINCE],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`BLMOVE` with the `RIGHT` and `LEFT` arguments" }),
    ..MOVING
};

const MOVING: Command = Command {
    group: Group::List,
    keys: SOURCE_AND_DESTINATION,
    summary: "Takes an element from a list, adds it to another one and returns it, or waits until there is one.",
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn blmove(txn: &mut Txn, args: Args) -> Result<Tried> {
    let (from, to) = (side(args, 3)?, side(args, 4)?);
    moving(txn, args, from, to, 5)
}

fn brpoplpush(txn: &mut Txn, args: Args) -> Result<Tried> {
    moving(txn, args, Side::Tail, Side::Head, 3)
}

fn moving(txn: &mut Txn, args: Args, from: Side, to: Side, timeout_at: usize) -> Result<Tried> {
    let timeout_ms = timeout_ms(txn, args, timeout_at)?;
    let keys = [args.key(txn, 1), args.key(txn, 2)];
    Ok(match move_one(txn, keys, from, to)? {
        Some(element) => {
            state_move(txn, [args.get(1), args.get(2)], from, to);
            Tried::Got(Reply::bulk(element.into_parts()))
        }
        None => Tried::Nothing(Awaited::new(1..2, Type::List, timeout_ms, Reply::Null)),
    })
}

const BLMOVEM: Command = Command {
    name: "blmovem",
    since: "8.10.0",
    arity: Arity::at_least(6),
    summary: "Takes elements from a list, adds them to another one and returns them, or waits until there are enough.",
    syntax: "source:key destination:key wherefrom=(LEFT | RIGHT) whereto=(LEFT | RIGHT) timeout:double \
             [how-many=(selector=(COUNT | EXACTLY) count:integer ordering=(OBO | BULK))]",
    complexity: "O(N) where N is the number of elements that are moved.",
    access: Access::Write,
    body: Body::Wait(blmovem),
    ..MOVING
};

fn blmovem(txn: &mut Txn, args: Args) -> Result<Tried> {
    let (from, to) = (side(args, 3)?, side(args, 4)?);
    let timeout_ms = timeout_ms(txn, args, 5)?;
    let many = Many::parse(args, 6)?;
    let keys = [args.key(txn, 1), args.key(txn, 2)];
    Ok(match many.try_once(txn, keys, from, to)? {
        Some(reply) => Tried::Got(reply),
        None => Tried::Nothing(Awaited::new(1..2, Type::List, timeout_ms, Reply::NullArray)),
    })
}

const BLMPOP: Command = Command {
    name: "blmpop",
    group: Group::List,
    summary: "Takes elements of the first of several lists that is there, or waits until one is.",
    syntax: "timeout:double numkeys:integer key... where=(LEFT | RIGHT) [COUNT count]",
    complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
    access: Access::Write,
    body: Body::Wait(blmpop),
    ..POPPING_MANY
};

const POPPING_MANY: Command = Command {
    since: "7.0.0",
    arity: Arity::at_least(5),
    keys: Keys::One(KeySpec {
        find: Find::KeyNum { count_at: 0, first: 1, step: 1 },
        ..KeySpec::at(2).with(Mode::Rw, &[Use::Access, Use::Delete])
    }),
    ..Command::USUAL
};

fn blmpop(txn: &mut Txn, args: Args) -> Result<Tried> {
    let pops = Pops::parse(args, 2)?;
    let timeout_ms = timeout_ms(txn, args, 1)?;
    let keys = look_at(txn, pops.keys.clone())?;
    Ok(match pops.try_once(txn, args)? {
        Some(reply) => Tried::Got(reply),
        None => Tried::Nothing(Awaited::new(keys, Type::List, timeout_ms, Reply::NullArray)),
    })
}

const BZPOPMIN: Command = Command {
    name: "bzpopmin",
    summary: "Takes the member with the lowest score of the first of several sorted sets that is there, or waits until one is.",
    access: Access::Write,
    body: Body::Wait(bzpopmin),
    ..POPPING_MEMBERS
};

const BZPOPMAX: Command = Command {
    name: "bzpopmax",
    summary: "Takes the member with the highest score of the first of several sorted sets that is there, or waits until one is.",
    access: Access::Write,
    body: Body::Wait(bzpopmax),
    ..POPPING_MEMBERS
};

const POPPING_MEMBERS: Command = Command {
    since: "5.0.0",
    group: Group::SortedSet,
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    flags: &[Flag::Fast],
    ..POPPING
};

fn bzpopmin(txn: &mut Txn, args: Args) -> Result<Tried> {
    pop_member(txn, args, End::Min)
}

fn bzpopmax(txn: &mut Txn, args: Args) -> Result<Tried> {
    pop_member(txn, args, End::Max)
}

fn pop_member(txn: &mut Txn, args: Args, end: End) -> Result<Tried> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(txn, args, last)?;
    let keys = look_at(txn, 1..last)?;
    Ok(match pop::pop_from_first(txn, args, keys.clone(), end)? {
        Some(reply) => Tried::Got(reply),
        None => Tried::Nothing(Awaited::new(keys, Type::Zset, timeout_ms, Reply::NullArray)),
    })
}

const BZMPOP: Command = Command {
    name: "bzmpop",
    group: Group::SortedSet,
    summary: "Takes the members with the lowest or highest scores of the first of several sorted sets that is there, or waits \
              until one is.",
    syntax: "timeout:double numkeys:integer key... where=(MIN | MAX) [COUNT count]",
    complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted \
                 set, and M being the number of elements popped.",
    access: Access::Write,
    body: Body::Wait(bzmpop),
    ..POPPING_MANY
};

fn bzmpop(txn: &mut Txn, args: Args) -> Result<Tried> {
    let asked = Mpop::parse(args, 2)?;
    let timeout_ms = timeout_ms(txn, args, 1)?;
    let keys = look_at(txn, asked.keys.clone())?;
    Ok(match asked.take(txn, args)? {
        Some(reply) => Tried::Got(reply),
        None => Tried::Nothing(Awaited::new(keys, Type::Zset, timeout_ms, Reply::NullArray)),
    })
}

/// The keys that a command is about to look at; many of them take long.
fn look_at(txn: &Txn, keys: Range<usize>) -> Result<Range<usize>> {
    if keys.len() > KEYS_AT_ONCE {
        txn.long()?;
    }
    Ok(keys)
}

/// Argument `i` as a time to wait in seconds: in milliseconds, rounded up; nothing for 0, which is for ever.
fn timeout_ms(txn: &Txn, args: Args, i: usize) -> Result<Option<u64>> {
    let seconds = Extended::parse(args.get(i)).ok_or(Error::text("ERR timeout is not a float or out of range"))?;
    let out_of_range = Error::text("ERR timeout is out of range");
    match u64::try_from(seconds.thousandfold()) {
        Err(_) => Err(Error::text("ERR timeout is negative")),
        Ok(0) => Ok(None),
        Ok(ms) if ms > i64::MAX as u64 - txn.now_ms() => Err(out_of_range),
        Ok(ms) => Ok(Some(ms)),
    }
}
