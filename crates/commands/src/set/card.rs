//! The commands that count the members of a union, a difference or an intersection.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::set::algebra::{OF_ALL, OF_INTERSECTION, keys};
use crate::table::{Access, Arity, Begin, Body, Command, Find, Group, KeySpec, Keys};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::set::merge::{self, Means, Operation};

pub(crate) const COMMANDS: &[Command] = &[SINTERCARD, SUNIONCARD, SDIFFCARD];

const SINTERCARD: Command = Command {
    name: "sintercard",
    since: "7.0.0",
    summary: "Returns how many members all of several sets have, counted up to a limit.",
    complexity: OF_INTERSECTION,
    access: Access::Read,
    body: Body::Txn(sintercard),
    ..COUNTING
};

const SUNIONCARD: Command = Command {
    name: "sunioncard",
    summary: "Returns how many members any of several sets has, counted up to a limit.",
    syntax: "numkeys:integer key... [APPROX] [LIMIT limit:integer]",
    access: Access::Read,
    body: Body::Txn(sunioncard),
    ..COUNTING
};

const SDIFFCARD: Command = Command {
    name: "sdiffcard",
    summary: "Returns how many members of a set none of the other sets has, counted up to a limit.",
    access: Access::Read,
    body: Body::Txn(sdiffcard),
    ..COUNTING
};

const COUNTING: Command = Command {
    since: "8.10.0",
    group: Group::Set,
    arity: Arity::at_least(3),
    keys: Keys::One(KeySpec {
        begin: Begin::Index(1),
        find: Find::KeyNum { count_at: 0, first: 1, step: 1 },
        ..KeySpec::at(1)
    }),
    syntax: "numkeys:integer key... [LIMIT limit:integer]",
    complexity: OF_ALL,
    ..Command::USUAL
};

fn sintercard(txn: &mut Txn, args: Args) -> Result<Reply> {
    card(txn, args, Operation::Intersection)
}

fn sunioncard(txn: &mut Txn, args: Args) -> Result<Reply> {
    card(txn, args, Operation::Union)
}

fn sdiffcard(txn: &mut Txn, args: Args) -> Result<Reply> {
    card(txn, args, Operation::Difference)
}

/// Counts the members of the result. Sets are walked in one order, so an exact count needs no more memory than an
/// estimate: APPROX changes nothing.
fn card(txn: &mut Txn, args: Args, operation: Operation) -> Result<Reply> {
    let number = |i: usize, least: i64, error: &'static str| {
        number::parse_i64(args.get(i)).filter(|number| *number >= least).ok_or(Error::text(error))
    };
    let count = number(1, 1, "ERR numkeys should be greater than 0")?;
    if count > (args.len() - 2) as i64 {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    let end = 2 + count as usize;
    let (mut limit, mut at) = (0, end);
    while at < args.len() {
        if args.is(at, "limit") && at + 1 < args.len() {
            limit = number(at + 1, 0, "ERR LIMIT can't be negative")?;
            at += 2;
        } else if operation == Operation::Union && args.is(at, "approx") {
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    let keys = keys(txn, args, 2..end);
    let sets = merge::lookup(txn, &keys)?;
    let mut merge = merge::merge(txn, &keys, &sets, operation, Means::Any)?;
    let mut found = 0;
    while merge.advance(txn)? {
        found += 1;
        if found == limit {
            break;
        }
    }
    Ok(Reply::Integer(found))
}
