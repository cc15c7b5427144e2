//! The commands on members of sorted sets: ZADD, ZSCORE, ZRANK and their relatives.
//!
//! Owns their options and replies. How elements lie in rows belongs to `haypile-types`. Ranges are in `range.rs`, pops
//! in `pop.rs`, several sets together in `combine.rs`, random members and ZSCAN in `random.rs`.

pub(crate) mod combine;
pub(crate) mod pop;
pub(crate) mod random;
pub(crate) mod range;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Command, ElementArgs, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::event;
use haypile_types::score;
use haypile_types::zset::{Added, Adding, Edit, LexBound, Range, ScoreBound, Zset};

pub(crate) const COMMANDS: &[Command] = &[
    pop::ZMPOP,
    ZADD,
    ZCARD,
    ZCOUNT,
    combine::ZDIFF,
    combine::ZDIFFSTORE,
    ZINCRBY,
    combine::ZINTER,
    combine::ZINTERCARD,
    combine::ZINTERSTORE,
    ZLEXCOUNT,
    ZMSCORE,
    pop::ZPOPMAX,
    pop::ZPOPMIN,
    random::ZRANDMEMBER,
    range::ZRANGE,
    range::ZRANGEBYLEX,
    range::ZRANGEBYSCORE,
    range::ZRANGESTORE,
    ZRANK,
    ZREM,
    range::ZREMRANGEBYLEX,
    range::ZREMRANGEBYRANK,
    range::ZREMRANGEBYSCORE,
    range::ZREVRANGE,
    range::ZREVRANGEBYLEX,
    range::ZREVRANGEBYSCORE,
    ZREVRANK,
    random::ZSCAN,
    ZSCORE,
    combine::ZUNION,
    combine::ZUNIONSTORE,
];

const ZADD: Command = Command {
    name: "zadd",
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::at_least(4),
    keys: Keys::first(1).rw(&[Use::Update]),
    summary: "Adds members to a sorted set or changes their scores, under conditions.",
    syntax: "key [condition@3.0.2=(NX | XX)] [comparison@6.2.0=(GT | LT)] [CH change:pure-token@3.0.2] \
        [INCR increment:pure-token@3.0.2] score_member=(score:double member)...",
    complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
    access: Access::Write,
    body: Body::Txn(zadd),
    flags: &[Flag::Denyoom, Flag::Fast],
    history: &[
        ("2.4.0", "Accepts multiple elements."),
        ("3.0.2", "Added the `XX`, `NX`, `CH` and `INCR` options."),
        ("6.2.0", "Added the `GT` and `LT` options."),
    ],
    elements: Some(ElementArgs::Names { first: 3, step: 2 }),
    ..Command::USUAL
};

fn zadd(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (mut how, mut counts_changes, mut first) = (Adding::default(), false, 2);
    while first < args.len() {
        if args.is(first, "nx") {
            how.new_only = true;
        } else if args.is(first, "xx") {
            how.old_only = true;
        } else if args.is(first, "gt") {
            how.greater = true;
        } else if args.is(first, "lt") {
            how.less = true;
        } else if args.is(first, "ch") {
            counts_changes = true;
        } else if args.is(first, "incr") {
            how.increment = true;
        } else {
            break;
        }
        first += 1;
    }
    let rest = args.len() - first;
    if rest == 0 || rest % 2 == 1 {
        return Err(Error::Syntax);
    }
    if how.new_only && how.old_only {
        return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
    }
    if [how.greater, how.less, how.new_only].iter().filter(|given| **given).count() > 1 {
        return Err(Error::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if how.increment && rest > 2 {
        return Err(Error::text("ERR INCR option supports a single increment-element pair"));
    }
    add(txn, args, first, how, counts_changes)
}

const ZINCRBY: Command = Command {
    name: "zincrby",
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Access, Use::Update]),
    summary: "Adds a number to the score of a member of a sorted set.",
    syntax: "key increment member",
    complexity: "O(log(N)) where N is the number of elements in the sorted set.",
    access: Access::Write,
    body: Body::Txn(zincrby),
    flags: &[Flag::Denyoom, Flag::Fast],
    elements: Some(ElementArgs::Names { first: 3, step: 2 }),
    ..Command::USUAL
};

fn zincrby(txn: &mut Txn, args: Args) -> Result<Reply> {
    add(txn, args, 2, Adding { increment: true, ..Adding::default() }, false)
}

/// Adds the pairs from argument `first` on: all scores are read before anything is done.
fn add(txn: &mut Txn, args: Args, first: usize, how: Adding, counts_changes: bool) -> Result<Reply> {
    if args.len() - first > 2 {
        for i in (first..args.len()).step_by(2) {
            score_of(args, i)?;
        }
    }
    let first_score = score_of(args, first)?;
    let pairs = (first..args.len()).step_by(2).map(|i| {
        // All scores have been read before.
        let score = if i == first { first_score } else { score_of(args, i).unwrap_or_default() };
        (score, args.get(i + 1))
    });
    add_all(txn, args, pairs, how, counts_changes)
}

/// Adds scores and members to the key that is argument 1.
pub(crate) fn add_all<'a>(
    txn: &mut Txn,
    args: Args<'a>,
    pairs: impl ExactSizeIterator<Item = (f64, &'a [u8])>,
    how: Adding,
    counts_changes: bool,
) -> Result<Reply> {
    let key = args.key(txn, 1);
    let zset = Zset::write(txn, &key)?;
    if zset.is_none() && how.old_only {
        return Ok(if how.increment { Reply::Null } else { Reply::Integer(0) });
    }
    if pairs.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let mut edit = Edit::of(zset)?;
    let (mut added, mut moved, mut last) = (0, 0, None);
    for (score, member) in pairs {
        last = match edit.add(txn, &key, how, score, member)? {
            Added::Refused => None,
            Added::Same(score) => Some(score),
            Added::New(score) => {
                added += 1;
                Some(score)
            }
            Added::Moved(score) => {
                moved += 1;
                Some(score)
            }
        };
    }
    edit.finish(txn, &key)?;
    if added + moved > 0 {
        txn.on_event(event::ZSET, if how.increment { "zincr" } else { "zadd" }, &key);
    }
    Ok(match how.increment {
        true => last.map_or(Reply::Null, Reply::Double),
        false => Reply::Integer(added + if counts_changes { moved } else { 0 }),
    })
}

fn score_of(args: Args, i: usize) -> Result<f64> {
    score::parse(args.get(i)).ok_or(Error::NotFloat)
}

const ZREM: Command = Command {
    name: "zrem",
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::at_least(3),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes members from a sorted set and returns how many there were.",
    syntax: "key member...",
    complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be \
        removed.",
    access: Access::Write,
    body: Body::Txn(zrem),
    flags: &[Flag::Fast],
    history: &[("2.4.0", "Accepts multiple elements.")],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn zrem(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::write(txn, &key)? else { return Ok(Reply::Integer(0)) };
    if args.len() - 2 > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let mut edit = Edit::of(Some(zset))?;
    let mut removed = 0;
    for member in args.iter_from(2) {
        removed += i64::from(edit.remove(txn, member)?);
    }
    let is_empty = edit.is_empty();
    edit.finish(txn, &key)?;
    if removed > 0 {
        on_removed(txn, &key, "zrem", is_empty);
    }
    Ok(Reply::Integer(removed))
}

/// Tells of members that went, and of the key if it went with them.
pub(crate) fn on_removed(txn: &mut Txn, key: &Key, event: &'static str, is_gone: bool) {
    txn.on_event(event::ZSET, event, key);
    if is_gone {
        txn.on_event(event::GENERIC, "del", key);
    }
}

const ZCARD: Command = Command {
    name: "zcard",
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[]),
    summary: "Returns how many members a sorted set has.",
    syntax: "key",
    access: Access::Read,
    body: Body::Txn(zcard),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn zcard(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::Integer(zset.cardinality()? as i64))
}

const ZSCORE: Command = Command {
    name: "zscore",
    since: "1.2.0",
    group: Group::SortedSet,
    arity: Arity::exactly(3),
    keys: Keys::first(1),
    summary: "Returns the score of a member of a sorted set.",
    syntax: "key member",
    access: Access::Read,
    body: Body::Txn(zscore),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn zscore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(Reply::Null) };
    Ok(zset.score(txn, args.get(2))?.map_or(Reply::Null, Reply::Double))
}

const ZMSCORE: Command = Command {
    name: "zmscore",
    since: "6.2.0",
    group: Group::SortedSet,
    arity: Arity::at_least(3),
    keys: Keys::first(1),
    summary: "Returns the scores of several members of a sorted set.",
    syntax: "key member...",
    complexity: "O(N) where N is the number of members being requested.",
    access: Access::Read,
    body: Body::Txn(zmscore),
    flags: &[Flag::Fast],
    elements: Some(ElementArgs::Names { first: 2, step: 1 }),
    ..Command::USUAL
};

fn zmscore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let zset = Zset::read(txn, &key)?;
    if args.len() - 2 > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let mut scores = Vec::with_capacity(args.len() - 2);
    for member in args.iter_from(2) {
        let score = match &zset {
            Some(zset) => zset.score(txn, member)?,
            None => None,
        };
        scores.push(score.map_or(Reply::Null, Reply::Double));
    }
    Ok(Reply::Array(scores))
}

const ZRANK: Command = Command {
    summary: "Returns how many members of a sorted set come before one, from the lowest score on.",
    access: Access::Read,
    body: Body::Txn(zrank),
    ..of_rank("zrank")
};

const ZREVRANK: Command = Command {
    summary: "Returns how many members of a sorted set come before one, from the highest score on.",
    access: Access::Read,
    body: Body::Txn(zrevrank),
    ..of_rank("zrevrank")
};

const fn of_rank(name: &'static str) -> Command {
    Command {
        name,
        since: "2.0.0",
        group: Group::SortedSet,
        arity: Arity::at_least(3),
        keys: Keys::first(1),
        syntax: "key member [WITHSCORE@7.2.0]",
        complexity: "O(log(N))",
        flags: &[Flag::Fast],
        history: &[("7.2.0", "Added the optional `WITHSCORE` argument.")],
        elements: Some(ElementArgs::Names { first: 2, step: 1 }),
        ..Command::USUAL
    }
}

fn zrank(txn: &mut Txn, args: Args) -> Result<Reply> {
    rank(txn, args, "zrank", false)
}

fn zrevrank(txn: &mut Txn, args: Args) -> Result<Reply> {
    rank(txn, args, "zrevrank", true)
}

fn rank(txn: &mut Txn, args: Args, command: &str, reverse: bool) -> Result<Reply> {
    if args.len() > 4 {
        return Err(Error::WrongArity(command.into()));
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "withscore") {
        return Err(Error::Syntax);
    }
    let key = args.key(txn, 1);
    let found = match Zset::read(txn, &key)? {
        Some(zset) => zset.rank(txn, args.get(2), reverse)?,
        None => None,
    };
    Ok(match found {
        Some((rank, score)) if with_score => Reply::array([Reply::Integer(rank as i64), Reply::Double(score)]),
        Some((rank, _)) => Reply::Integer(rank as i64),
        None if with_score => Reply::NullArray,
        None => Reply::Null,
    })
}

const ZCOUNT: Command = Command {
    name: "zcount",
    since: "2.0.0",
    summary: "Returns how many members of a sorted set have a score within a range.",
    syntax: "key min:double max:double",
    access: Access::Read,
    body: Body::Txn(zcount),
    ..OF_COUNT
};

const ZLEXCOUNT: Command = Command {
    name: "zlexcount",
    since: "2.8.9",
    summary: "Returns how many members of a sorted set lie within a range of members.",
    syntax: "key min max",
    access: Access::Read,
    body: Body::Txn(zlexcount),
    ..OF_COUNT
};

const OF_COUNT: Command = Command {
    group: Group::SortedSet,
    arity: Arity::exactly(4),
    keys: Keys::first(1),
    complexity: "O(log(N)) with N being the number of elements in the sorted set.",
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn zcount(txn: &mut Txn, args: Args) -> Result<Reply> {
    let range = score_range(args.get(2), args.get(3))?;
    count(txn, args, range)
}

fn zlexcount(txn: &mut Txn, args: Args) -> Result<Reply> {
    let range = lex_range(args.get(2), args.get(3))?;
    count(txn, args, range)
}

fn count(txn: &mut Txn, args: Args, range: Range) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(zset) = Zset::read(txn, &key)? else { return Ok(Reply::Integer(0)) };
    Ok(Reply::Integer(zset.count(txn, range)? as i64))
}

/// A range of scores from its two bounds.
pub(crate) fn score_range<'a>(min: &[u8], max: &[u8]) -> Result<Range<'a>> {
    let bound = |text: &[u8]| {
        let (exclusive, digits) = match text {
            [b'(', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        score::parse_bound(digits).map(|score| ScoreBound { score, exclusive })
    };
    match (bound(min), bound(max)) {
        (Some(min), Some(max)) => Ok(Range::Score { min, max }),
        _ => Err(Error::text("ERR min or max is not a float")),
    }
}

/// A range of members from its two bounds.
pub(crate) fn lex_range<'a>(min: &'a [u8], max: &'a [u8]) -> Result<Range<'a>> {
    let bound = |text: &'a [u8]| match text {
        // Redis takes the text to end at a NUL here.
        [b'+'] | [b'+', 0, ..] => Some(LexBound::Highest),
        [b'-'] | [b'-', 0, ..] => Some(LexBound::Lowest),
        [b'[', member @ ..] => Some(LexBound::At(member)),
        [b'(', member @ ..] => Some(LexBound::Beside(member)),
        _ => None,
    };
    match (bound(min), bound(max)) {
        (Some(min), Some(max)) => Ok(Range::Lex { min, max }),
        _ => Err(Error::text("ERR min or max not valid string range item")),
    }
}
