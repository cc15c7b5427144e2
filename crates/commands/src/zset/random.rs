//! Members of sorted sets in no order that means anything: ZRANDMEMBER and ZSCAN.
//!
//! A random member is the one at a random index, which the rank tree finds: all are equally likely, and the set is not
//! read.

use crate::args::Args;
use crate::elements::{self, DRAWS_MAX, DRAWS_SHARE, Page, Sample};
use crate::error::Result;
use crate::table::{Access, Arity, Body, Command, Group, Keys};
use crate::zset::range::{Found, Wanted};
use haypile_resp::{Elements, Reply, Shape};
use haypile_store::{Direction, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::score;
use haypile_types::walk::{Choice, Dice};
use haypile_types::zset::{Range, Stretch, Zset};
use std::collections::HashSet;
use std::ops::ControlFlow;

pub(crate) const ZRANDMEMBER: Command = Command {
    name: "zrandmember",
    since: "6.2.0",
    group: Group::SortedSet,
    arity: Arity::at_least(2),
    keys: Keys::first(1),
    summary: "Returns random members of a sorted set.",
    syntax: "key [options=(count [WITHSCORES])]",
    complexity: "O(N) where N is the number of elements returned",
    access: Access::Read,
    body: Body::Txn(zrandmember),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn zrandmember(txn: &mut Txn, args: Args) -> Result<Reply> {
    if args.len() == 2 {
        return one(txn, args);
    }
    let (sample, with_scores) = Sample::parse(args, 2, "withscores")?;
    let wanted = if with_scores { Wanted::Scores } else { Wanted::Members };
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(wanted.none()) };
    let length = zset.cardinality()?;
    let mut dice = Dice::new(txn);
    match sample {
        Sample::Different(0) | Sample::Any(0) => Ok(wanted.none()),
        Sample::Different(count) if count <= DRAWS_MAX && count.saturating_mul(DRAWS_SHARE) < length => {
            let mut drawn = HashSet::new();
            while (drawn.len() as u64) < count {
                drawn.insert(dice.below(length));
            }
            at_indexes(txn, &zset, drawn.into_iter(), wanted)
        }
        Sample::Different(count) => {
            chosen(txn, &zset, Choice { total: length, count: count.min(length) }, dice, wanted)
        }
        Sample::Any(count) => at_indexes(txn, &zset, (0..count).map(|_| dice.below(length)), wanted),
    }
}

/// A single member, as a bulk string.
fn one(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(Reply::Null) };
    let index = Dice::new(txn).below(zset.cardinality()?);
    let mut reply = Reply::Null;
    zset.visit(txn, at(index), |member, _| {
        reply = Reply::bulk(member.to_vec());
        ControlFlow::Break(())
    })?;
    Ok(reply)
}

fn at(index: u64) -> Stretch<'static> {
    let range = Range::Index { from: index, until: index + 1 };
    Stretch { range, direction: Direction::Forward, skip: 0, take: 1 }
}

/// Draws that are made where they were asked for: each looks at some dozens of rows.
const DRAWS_INLINE_MAX: usize = 32;

/// Members that are drawn by themselves are put together in memory.
const DRAWN_BYTES_MAX: usize = 512 << 20;

fn at_indexes(txn: &mut Txn, zset: &Zset, indexes: impl Iterator<Item = u64>, wanted: Wanted) -> Result<Reply> {
    let mut found = Found::new(wanted);
    for index in indexes {
        if (found.len() == DRAWS_INLINE_MAX && !zset.is_packed())
            || found.len() == ROWS_INLINE_MAX
            || found.bytes() > REPLY_INLINE_BYTES_MAX
        {
            txn.long()?;
        }
        zset.visit(txn, at(index), |member, score| {
            found.push(member, score);
            ControlFlow::Break(())
        })?;
        if found.bytes() > DRAWN_BYTES_MAX {
            return Err(crate::Error::text("ERR the reply would be longer than 512 MB"));
        }
    }
    Ok(found.reply(wanted))
}

/// A choice of many different members, in the set's order.
fn chosen(txn: &mut Txn, zset: &Zset, mut choice: Choice, mut dice: Dice, wanted: Wanted) -> Result<Reply> {
    if choice.total > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let mut found = Found::new(wanted);
    zset.visit(txn, Stretch::whole(Range::Index { from: 0, until: choice.total }), |member, score| {
        if choice.takes_next(&mut dice) {
            found.push(member, score);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found.reply(wanted))
}

pub(crate) const ZSCAN: Command = Command {
    name: "zscan",
    since: "2.8.0",
    group: Group::SortedSet,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Iterates over the members of a sorted set, a bounded step at a time.",
    syntax: "key cursor [MATCH pattern] [COUNT count]",
    complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for \
        the cursor to return back to 0. N is the number of elements inside the collection.",
    access: Access::Read,
    body: Body::Txn(zscan),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

fn zscan(txn: &mut Txn, args: Args) -> Result<Reply> {
    let cursor = elements::cursor(args, 2)?;
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(elements::empty_page()) };
    let page = Page::parse(args, 3, false)?;
    let is_listpack = zset.is_listpack()?;
    let mut found = Elements::new(Shape::Array);
    let mut text = Vec::new();
    let (from, count) = page.step(cursor, is_listpack.then(|| zset.cardinality()).transpose()?);
    let next = zset.page(txn, from, count, |member, score| {
        if page.passes(member) {
            text.clear();
            // Redis prints what its listpack holds as it stands there, other scores with all their digits.
            match is_listpack {
                true => haypile_resp::number::write_double(&mut text, score),
                false => score::write_digits(&mut text, score),
            }
            found.push(member);
            found.push(&text);
        }
    })?;
    Ok(elements::page(next, found))
}
