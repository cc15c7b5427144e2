//! Ranges of sorted sets: ZRANGE with its older relatives, ZRANGESTORE, and the ZREMRANGEBY... commands.
//!
//! Owns their options and the forms of replies with scores; a range's rows belong to `haypile-types`. Short replies are
//! put together in memory, long ones leave piece by piece from one moment's view.

use crate::args::Args;
use crate::elements;
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Deprecated, Flag, Group, KeySpec, Keys, Mode, Use};
use crate::zset::{lex_range, on_removed, score_range};
use haypile_resp::{Elements, Nesting, Reply, Scored, Shape, write};
use haypile_store::{Direction, STATEMENTS_BYTES_MAX, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::zset::{self, Maker, Range, Stretch, Zset};
use haypile_types::{event, key};
use std::ops::ControlFlow;

pub(crate) const ZRANGE: Command = Command {
    name: "zrange",
    since: "1.2.0",
    summary: "Returns the members of a sorted set within a range of indexes, scores or members.",
    syntax: "key start:string stop [sortby@6.2.0=(BYSCORE | BYLEX)] [REV@6.2.0] [LIMIT offset_count@6.2.0=(offset count)] \
        [WITHSCORES]",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
    access: Access::Read,
    body: Body::Txn(zrange),
    history: &[("6.2.0", "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options.")],
    ..OF_RANGE
};

pub(crate) const ZREVRANGE: Command = Command {
    name: "zrevrange",
    since: "1.2.0",
    summary: "Returns the members of a sorted set within a range of indexes, from the highest score down.",
    syntax: "key start stop:integer [WITHSCORES]",
    complexity: ZRANGE.complexity,
    access: Access::Read,
    body: Body::Txn(zrevrange),
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`ZRANGE` with the `REV` argument" }),
    ..OF_RANGE
};

pub(crate) const ZRANGEBYSCORE: Command = Command {
    name: "zrangebyscore",
    since: "1.0.5",
    summary: "Returns the members of a sorted set within a range of scores.",
    syntax: "key min:double max:double [WITHSCORES@2.0.0] [LIMIT offset_count=(offset count)]",
    access: Access::Read,
    body: Body::Txn(zrangebyscore),
    history: &[("2.0.0", "Added the `WITHSCORES` modifier.")],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`ZRANGE` with the `BYSCORE` argument" }),
    ..OF_RANGE
};

pub(crate) const ZREVRANGEBYSCORE: Command = Command {
    name: "zrevrangebyscore",
    since: "2.2.0",
    summary: "Returns the members of a sorted set within a range of scores, from the highest down.",
    syntax: "key max:double min:double [WITHSCORES] [LIMIT offset_count=(offset count)]",
    access: Access::Read,
    body: Body::Txn(zrevrangebyscore),
    history: &[("2.1.6", "`min` and `max` can be exclusive.")],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`ZRANGE` with the `REV` and `BYSCORE` arguments" }),
    ..OF_RANGE
};

pub(crate) const ZRANGEBYLEX: Command = Command {
    name: "zrangebylex",
    since: "2.8.9",
    summary: "Returns the members of a sorted set within a range of members.",
    syntax: "key min max [LIMIT offset_count=(offset count)]",
    access: Access::Read,
    body: Body::Txn(zrangebylex),
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`ZRANGE` with the `BYLEX` argument" }),
    ..OF_RANGE
};

pub(crate) const ZREVRANGEBYLEX: Command = Command {
    name: "zrevrangebylex",
    since: "2.8.9",
    summary: "Returns the members of a sorted set within a range of members, in reverse order.",
    syntax: "key max min [LIMIT offset_count=(offset count)]",
    access: Access::Read,
    body: Body::Txn(zrevrangebylex),
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`ZRANGE` with the `REV` and `BYLEX` arguments" }),
    ..OF_RANGE
};

const OF_RANGE: Command = Command {
    group: Group::SortedSet,
    arity: Arity::at_least(4),
    keys: Keys::first(1),
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being \
        returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it \
        O(log(N)).",
    ..Command::USUAL
};

/// The order that the bounds of a range refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Index,
    Score,
    Lex,
}

/// A range command, its arguments parsed.
struct Asked<'a> {
    bounds: Bounds<'a>,
    direction: Direction,
    offset: i64,
    limit: Option<i64>,
    with_scores: bool,
}

enum Bounds<'a> {
    /// The first and the last index; negative ones count from the end.
    Index(i64, i64),
    Range(Range<'a>),
}

impl<'a> Asked<'a> {
    /// The arguments from the first bound on, which is argument `first`. `by` and `direction` are what the command's
    /// name says.
    fn parse(
        args: Args<'a>,
        first: usize,
        by: Option<By>,
        direction: Option<Direction>,
        stores: bool,
    ) -> Result<Asked<'a>> {
        let (mut by, mut direction, mut offset, mut limit, mut with_scores) = (by, direction, 0, None, false);
        let mut i = first + 2;
        while i < args.len() {
            if !stores && args.is(i, "withscores") {
                with_scores = true;
            } else if args.is(i, "limit") && i + 2 < args.len() {
                offset = args.int(i + 1)?;
                // -1 is as none.
                limit = Some(args.int(i + 2)?).filter(|limit| *limit != -1);
                i += 2;
            } else if direction.is_none() && args.is(i, "rev") {
                direction = Some(Direction::Backward);
            } else if by.is_none() && args.is(i, "bylex") {
                by = Some(By::Lex);
            } else if by.is_none() && args.is(i, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        let (by, direction) = (by.unwrap_or(By::Index), direction.unwrap_or(Direction::Forward));
        if by == By::Index && limit.is_some() {
            return Err(Error::text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == By::Lex && with_scores {
            return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (mut min, mut max) = (args.get(first), args.get(first + 1));
        if direction == Direction::Backward && by != By::Index {
            (min, max) = (max, min);
        }
        let bounds = match by {
            By::Index => Bounds::Index(args.int(first)?, args.int(first + 1)?),
            By::Score => Bounds::Range(score_range(min, max)?),
            By::Lex => Bounds::Range(lex_range(min, max)?),
        };
        Ok(Asked { bounds, direction, offset, limit, with_scores })
    }

    /// The part of a set of `length` elements that is asked for; `None` if it is empty.
    fn stretch(&self, length: u64) -> Option<Stretch<'a>> {
        let range = match self.bounds {
            Bounds::Index(start, stop) => {
                let (from, until) = indexes(start, stop, length)?;
                match self.direction {
                    Direction::Forward => Range::Index { from, until },
                    Direction::Backward => Range::Index { from: length - until, until: length - from },
                }
            }
            Bounds::Range(range) => range,
        };
        // LIMIT means nothing to a range of indexes.
        let (offset, limit) = match self.bounds {
            Bounds::Index(..) => (0, None),
            Bounds::Range(_) => (self.offset, self.limit),
        };
        let skip = u64::try_from(offset).ok()?;
        let take = limit.and_then(|limit| u64::try_from(limit).ok()).unwrap_or(u64::MAX);
        (take > 0).then_some(Stretch { range, direction: self.direction, skip, take })
    }
}

/// Redis's indexes as a range within `length` elements, the end exclusive; `None` if it is empty.
fn indexes(start: i64, stop: i64, length: u64) -> Option<(u64, u64)> {
    let from_end = |index: i64| if index < 0 { length as i64 + index } else { index };
    let (start, stop) = (from_end(start).max(0) as u64, from_end(stop));
    let stop = u64::try_from(stop).ok()?;
    (start <= stop && start < length).then(|| (start, stop.min(length - 1) + 1))
}

fn zrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, None, None)
}

fn zrevrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, Some(By::Index), Some(Direction::Backward))
}

fn zrangebyscore(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, Some(By::Score), Some(Direction::Forward))
}

fn zrevrangebyscore(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, Some(By::Score), Some(Direction::Backward))
}

fn zrangebylex(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, Some(By::Lex), Some(Direction::Forward))
}

fn zrevrangebylex(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, Some(By::Lex), Some(Direction::Backward))
}

fn range(txn: &mut Txn, args: Args, by: Option<By>, direction: Option<Direction>) -> Result<Reply> {
    let asked = Asked::parse(args, 2, by, direction, false)?;
    let wanted = if asked.with_scores { Wanted::Scores } else { Wanted::Members };
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(wanted.none()) };
    match asked.stretch(zset.cardinality()?) {
        Some(stretch) => elements_of(txn, &zset, stretch, wanted),
        None => Ok(wanted.none()),
    }
}

/// The parts of each element that a reply has, and their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Members,
    /// Members with scores, as pairs in RESP3 and in turn in RESP2.
    Scores,
    /// Members with scores in turn, as pairs in neither protocol.
    FlatScores,
    /// Members with scores as pairs in both protocols.
    NestedScores,
}

impl Wanted {
    fn nesting(self) -> Nesting {
        match self {
            Wanted::Members | Wanted::FlatScores => Nesting::Never,
            Wanted::Scores => Nesting::Resp3,
            Wanted::NestedScores => Nesting::Always,
        }
    }

    /// The reply without elements.
    pub fn none(self) -> Reply {
        Reply::Array(Vec::new())
    }

    pub fn reply(self, found: Scored) -> Reply {
        Reply::Scored(Box::new(found.nesting(self.nesting())))
    }
}

/// Elements that are being put together in memory.
pub(crate) enum Found {
    Members(Elements),
    Scored(Scored),
}

impl Found {
    pub fn new(wanted: Wanted) -> Found {
        match wanted {
            Wanted::Members => Found::Members(Elements::new(Shape::Array)),
            _ => Found::Scored(Scored::new()),
        }
    }

    #[inline]
    pub fn push(&mut self, member: &[u8], score: f64) {
        match self {
            Found::Members(members) => members.push(member),
            Found::Scored(scored) => scored.push(member, score),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Found::Members(members) => members.len(),
            Found::Scored(scored) => scored.len(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Found::Members(members) => members.bytes(),
            Found::Scored(scored) => scored.bytes(),
        }
    }

    pub fn reply(self, wanted: Wanted) -> Reply {
        match self {
            Found::Members(members) => Reply::Elements(members),
            Found::Scored(scored) => wanted.reply(scored),
        }
    }
}

/// The elements of a stretch: put together in memory while they are few, else piece by piece.
fn elements_of(txn: &mut Txn, zset: &Zset, stretch: Stretch, wanted: Wanted) -> Result<Reply> {
    let is_known_long = match stretch.range {
        Range::Index { from, until } => until - from > ROWS_INLINE_MAX as u64,
        _ => false,
    };
    if !is_known_long {
        let mut found = Found::new(wanted);
        let is_short = |found: &Found| found.len() <= ROWS_INLINE_MAX && found.bytes() <= REPLY_INLINE_BYTES_MAX;
        zset.visit(txn, stretch, |member, score| {
            found.push(member, score);
            if is_short(&found) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if is_short(&found) {
            return Ok(found.reply(wanted));
        }
    }
    let count = zset.count(txn, stretch.range)?.saturating_sub(stretch.skip).min(stretch.take);
    scored_stream(txn, zset, stretch, count, wanted)
}

/// A reply of the `count` elements of a stretch, in pieces.
pub(crate) fn scored_stream(txn: &mut Txn, zset: &Zset, stretch: Stretch, count: u64, wanted: Wanted) -> Result<Reply> {
    let Some((view, mut skip)) = zset.view(txn, stretch)? else { return Ok(wanted.none()) };
    let nesting = wanted.nesting();
    // A member with its score is two elements in one protocol and one in the other.
    let head = move |protocol, out: &mut Vec<u8>| {
        let flat = if wanted == Wanted::Members || nesting.nests(protocol) { 1 } else { 2 };
        write::array_len(out, count as usize * flat);
    };
    Ok(elements::stream_with(view, head, count, move |row, value, protocol, out| {
        if skip > 0 {
            skip -= 1;
            return Ok(0);
        }
        let (member, score) = zset::element_of(row, value).ok_or("an element of a sorted set is damaged")?;
        if nesting.nests(protocol) {
            write::array_len(out, 2);
        }
        write::bulk(out, member);
        if wanted != Wanted::Members {
            write::double(protocol, out, score);
        }
        Ok(1)
    }))
}

pub(crate) const ZRANGESTORE: Command = Command {
    name: "zrangestore",
    since: "6.2.0",
    arity: Arity::at_least(5),
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Ow, &[Use::Update]), KeySpec::at(2)]),
    summary: "Stores the members of a sorted set within a range of indexes, scores or members.",
    syntax: "dst:key src:key min max [sortby=(BYSCORE | BYLEX)] [REV] [LIMIT offset_count=(offset count)]",
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored \
        into the destination key.",
    access: Access::Write,
    body: Body::Txn(zrangestore),
    flags: &[Flag::Denyoom],
    ..OF_RANGE
};

/// Members that one statement names at most.
const STATED_AT_ONCE: usize = 10_000;

/// Bytes that a member takes in a statement, and until then, beside its own.
const AROUND_MEMBER: usize = 32;

/// Elements that ZRANGESTORE takes over at once.
const STEP: u64 = 1024;

fn zrangestore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let asked = Asked::parse(args, 3, None, None, true)?;
    let (to, from) = (args.key(txn, 1), args.key(txn, 2));
    let zset = Zset::read(txn, &from)?;
    let before = key::lookup_overwrite(txn, &to)?;
    let (mut maker, mut cuts_its_own_way) = (Maker::new(), false);
    if let Some(zset) = &zset
        && let Some(stretch) = asked.stretch(zset.cardinality()?)
    {
        cuts_its_own_way = cuts_as_no_redis(txn, zset, stretch.range)?;
        let count = zset.count(txn, stretch.range)?.saturating_sub(stretch.skip).min(stretch.take);
        if count > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let is_known = matches!(stretch.range, Range::Index { .. });
        maker = Maker::one_by_one(txn, is_known.then_some(count));
        let mut done = 0;
        while done < count {
            let mut step = Vec::with_capacity((count - done).min(STEP) as usize);
            let part = Stretch { skip: stretch.skip + done, take: (count - done).min(STEP), ..stretch };
            zset.visit(txn, part, |member, score| {
                step.push((member.to_vec(), score));
                ControlFlow::Continue(())
            })?;
            for (member, score) in &step {
                maker.add(txn, &to, member, *score)?;
            }
            done += STEP;
        }
    }
    let reply = store(txn, &to, before, maker, "zrangestore")?;
    if cuts_its_own_way {
        statement::state_value(txn, &to)?;
    }
    Ok(reply)
}

/// Returns whether a Redis that follows might cut a range elsewhere: one by members of several scores.
fn cuts_as_no_redis(txn: &mut Txn, zset: &Zset, range: Range) -> Result<bool> {
    if !txn.states() || !matches!(range, Range::Lex { .. }) {
        return Ok(false);
    }
    let (last, mut ends) = (zset.cardinality()?.saturating_sub(1), [0.0; 2]);
    let range = Range::Index { from: 0, until: last + 1 };
    for (direction, end) in [Direction::Forward, Direction::Backward].into_iter().zip(&mut ends) {
        let stretch = Stretch { range, direction, skip: 0, take: 1 };
        zset.visit(txn, stretch, |_, score| {
            *end = score;
            ControlFlow::Break(())
        })?;
    }
    Ok(ends[0] != ends[1])
}

/// Gives a result to a key, and says how many elements it has.
pub(crate) fn store(
    txn: &mut Txn,
    to: &haypile_store::Key,
    before: Option<key::Header>,
    maker: Maker,
    event: &'static str,
) -> Result<Reply> {
    let count = maker.len();
    let was_there = before.is_some_and(|before| !before.is_expired(txn.expiry_ms()));
    maker.finish(txn, to, before.as_ref())?;
    if count > 0 {
        txn.on_event(event::ZSET, event, to);
    } else if was_there {
        txn.on_event(event::GENERIC, "del", to);
    }
    Ok(Reply::Integer(count as i64))
}

pub(crate) const ZREMRANGEBYRANK: Command = Command {
    name: "zremrangebyrank",
    since: "2.0.0",
    summary: "Removes the members of a sorted set within a range of indexes.",
    syntax: "key start stop:integer",
    access: Access::Write,
    body: Body::Txn(zremrangebyrank),
    ..OF_REMOVAL
};

pub(crate) const ZREMRANGEBYSCORE: Command = Command {
    name: "zremrangebyscore",
    since: "1.2.0",
    summary: "Removes the members of a sorted set within a range of scores.",
    syntax: "key min:double max:double",
    access: Access::Write,
    body: Body::Txn(zremrangebyscore),
    ..OF_REMOVAL
};

pub(crate) const ZREMRANGEBYLEX: Command = Command {
    name: "zremrangebylex",
    since: "2.8.9",
    summary: "Removes the members of a sorted set within a range of members.",
    syntax: "key min max",
    access: Access::Write,
    body: Body::Txn(zremrangebylex),
    ..OF_REMOVAL
};

const OF_REMOVAL: Command = Command {
    group: Group::SortedSet,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Delete]),
    complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed \
        by the operation.",
    ..Command::USUAL
};

fn zremrangebyrank(txn: &mut Txn, args: Args) -> Result<Reply> {
    let bounds = Bounds::Index(args.int(2)?, args.int(3)?);
    remove(txn, args, bounds, "zremrangebyrank")
}

fn zremrangebyscore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let bounds = Bounds::Range(score_range(args.get(2), args.get(3))?);
    remove(txn, args, bounds, "zremrangebyscore")
}

fn zremrangebylex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let bounds = Bounds::Range(lex_range(args.get(2), args.get(3))?);
    remove(txn, args, bounds, "zremrangebylex")
}

fn remove(txn: &mut Txn, args: Args, bounds: Bounds, event: &'static str) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::write(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let length = zset.cardinality()?;
    let asked = Asked { bounds, direction: Direction::Forward, offset: 0, limit: None, with_scores: false };
    let Some(stretch) = asked.stretch(length) else { return Ok(Reply::Integer(0)) };
    let (names_them, mut gone, mut bytes) = (cuts_as_no_redis(txn, &zset, stretch.range)?, Vec::new(), 0);
    let removed = zset.remove_range(txn, &key, stretch, |member, _| {
        bytes += member.len() + AROUND_MEMBER;
        if names_them && bytes <= STATEMENTS_BYTES_MAX {
            gone.push(member.to_vec());
        }
    })?;
    if removed > 0 {
        on_removed(txn, &key, event, removed == length);
    }
    if names_them && removed == length {
        statement::state_deletion(txn, key.name);
        return Ok(Reply::Integer(removed as i64));
    }
    if names_them && bytes > STATEMENTS_BYTES_MAX {
        txn.state_too_much();
    }
    for some in gone.chunks(STATED_AT_ONCE) {
        let words: Vec<&[u8]> = [&b"ZREM"[..], key.name].into_iter().chain(some.iter().map(Vec::as_slice)).collect();
        statement::state(txn, &words);
    }
    Ok(Reply::Integer(removed as i64))
}
