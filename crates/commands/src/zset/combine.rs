//! Several sorted sets and sets together: ZUNION, ZINTER, ZDIFF, what stores their results, and ZINTERCARD.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keyspec::{Begin, Find, KeySpec};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Mode, Use};
use crate::zset::range::{Found, Wanted, store};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::key;
use haypile_types::score;
use haypile_types::zset::{Aggregate, Combination, Input, Maker, Operation};
use std::ops::ControlFlow;

/// Keys whose number is argument `i`.
const fn counted(i: u16) -> KeySpec {
    KeySpec { begin: Begin::Index(i), find: Find::KeyNum { count_at: 0, first: 1, step: 1 }, ..KeySpec::at(i) }
}

const READ: Command = Command {
    group: Group::SortedSet,
    since: "6.2.0",
    arity: Arity::at_least(3),
    keys: Keys::One(counted(1)),
    ..Command::USUAL
};

const STORE: Command = Command {
    group: Group::SortedSet,
    since: "2.0.0",
    arity: Arity::at_least(4),
    keys: Keys::Many(&[KeySpec::at(1).with(Mode::Ow, &[Use::Update]), counted(2)]),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

pub(crate) const ZUNION: Command = Command {
    name: "zunion",
    summary: "Returns the members that any of several sorted sets has.",
    syntax: "numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE aggregate=(SUM | MIN | MAX | COUNT@8.8.0)] [WITHSCORES]",
    complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of \
        elements in the resulting sorted set.",
    access: Access::Read,
    body: Body::Txn(|txn, args| read(txn, args, Operation::Union, "zunion")),
    ..READ
};

pub(crate) const ZINTER: Command = Command {
    name: "zinter",
    summary: "Returns the members that all of several sorted sets have.",
    syntax: ZUNION.syntax,
    complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input \
        sorted sets and M being the number of elements in the resulting sorted set.",
    access: Access::Read,
    body: Body::Txn(|txn, args| read(txn, args, Operation::Intersection, "zinter")),
    ..READ
};

pub(crate) const ZDIFF: Command = Command {
    name: "zdiff",
    summary: "Returns the members of the first of several sorted sets that no other one has.",
    syntax: "numkeys:integer key... [WITHSCORES]",
    complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of \
        the first set, and K is the size of the result set.",
    access: Access::Read,
    body: Body::Txn(|txn, args| read(txn, args, Operation::Difference, "zdiff")),
    ..READ
};

pub(crate) const ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    summary: "Stores the members that any of several sorted sets has.",
    syntax: "destination:key numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE aggregate=(SUM | MIN | MAX | COUNT@8.8.0)]",
    complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of \
        elements in the resulting sorted set.",
    access: Access::Write,
    body: Body::Txn(|txn, args| write(txn, args, Operation::Union, "zunionstore")),
    ..STORE
};

pub(crate) const ZINTERSTORE: Command = Command {
    name: "zinterstore",
    summary: "Stores the members that all of several sorted sets have.",
    syntax: ZUNIONSTORE.syntax,
    complexity: ZINTER.complexity,
    access: Access::Write,
    body: Body::Txn(|txn, args| write(txn, args, Operation::Intersection, "zinterstore")),
    ..STORE
};

pub(crate) const ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    since: "6.2.0",
    summary: "Stores the members of the first of several sorted sets that no other one has.",
    syntax: "destination:key numkeys:integer key...",
    complexity: ZDIFF.complexity,
    access: Access::Write,
    body: Body::Txn(|txn, args| write(txn, args, Operation::Difference, "zdiffstore")),
    ..STORE
};

pub(crate) const ZINTERCARD: Command = Command {
    name: "zintercard",
    since: "7.0.0",
    summary: "Returns how many members all of several sorted sets have.",
    syntax: "numkeys:integer key... [LIMIT limit:integer]",
    complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.",
    access: Access::Read,
    body: Body::Txn(zintercard),
    ..READ
};

/// The options behind the keys.
#[derive(Default)]
struct Options {
    with_scores: bool,
    limit: u64,
}

/// The sets of a command whose number of keys is argument `i`, and its options.
fn parse(txn: &mut Txn, args: Args, i: usize, operation: Operation, command: &str) -> Result<(Combination, Options)> {
    let stores = i == 2;
    let is_card = command == "zintercard";
    let keys = args.int(i)?;
    if keys < 1 {
        return Err(Error::text(format!("ERR at least 1 input key is needed for '{command}' command")));
    }
    let first = i + 1;
    let Some(end) =
        usize::try_from(keys).ok().and_then(|keys| first.checked_add(keys)).filter(|end| *end <= args.len())
    else {
        return Err(Error::Syntax);
    };
    let mut inputs = Vec::new();
    for at in first..end {
        let key = args.key(txn, at);
        let entry = key::lookup(txn, &key)?;
        inputs.push(Input::of(&key, entry)?);
    }
    let (mut options, mut aggregate) = (Options::default(), Aggregate::Sum);
    let weighs = operation != Operation::Difference && !is_card;
    let mut at = end;
    while at < args.len() {
        let left = args.len() - at;
        if weighs && left > inputs.len() && args.is(at, "weights") {
            for (i, input) in inputs.iter_mut().enumerate() {
                let weight = score::parse(args.get(at + 1 + i));
                input.weight = weight.ok_or(Error::text("ERR weight value is not a float"))?;
            }
            at += inputs.len() + 1;
        } else if weighs && left >= 2 && args.is(at, "aggregate") {
            aggregate = if args.is(at + 1, "sum") {
                Aggregate::Sum
            } else if args.is(at + 1, "min") {
                Aggregate::Min
            } else if args.is(at + 1, "max") {
                Aggregate::Max
            } else if args.is(at + 1, "count") {
                Aggregate::Count
            } else {
                return Err(Error::Syntax);
            };
            at += 2;
        } else if !stores && !is_card && args.is(at, "withscores") {
            options.with_scores = true;
            at += 1;
        } else if is_card && left >= 2 && args.is(at, "limit") {
            let limit = number::parse_i64(args.get(at + 1)).and_then(|limit| u64::try_from(limit).ok());
            options.limit = limit.ok_or(Error::text("ERR LIMIT can't be negative"))?;
            at += 2;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok((Combination::new(inputs, operation, aggregate), options))
}

fn read(txn: &mut Txn, args: Args, operation: Operation, command: &str) -> Result<Reply> {
    let (combination, options) = parse(txn, args, 1, operation, command)?;
    let wanted = if options.with_scores { Wanted::Scores } else { Wanted::Members };
    let mut elements: Vec<(f64, Vec<u8>)> = Vec::new();
    combination.visit(txn, |_, member, score| {
        elements.push((score, member.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    elements.sort_unstable_by(|a, b| a.0.partial_cmp(&b.0).expect("no score is NaN").then_with(|| a.1.cmp(&b.1)));
    let mut found = Found::new(wanted);
    elements.iter().for_each(|(score, member)| found.push(member, *score));
    Ok(found.reply(wanted))
}

fn write(txn: &mut Txn, args: Args, operation: Operation, command: &'static str) -> Result<Reply> {
    let (combination, _) = parse(txn, args, 2, operation, command)?;
    let counts = combination.counts();
    let to = args.key(txn, 1);
    let before = key::lookup_overwrite(txn, &to)?;
    let mut maker = Maker::new();
    combination.visit(txn, |txn, member, score| {
        maker.add(txn, &to, member, score)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let reply = store(txn, &to, before, maker, command)?;
    if counts {
        // An aggregate of Redis 8.8.
        statement::state_value(txn, &to)?;
    }
    Ok(reply)
}

fn zintercard(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (combination, options) = parse(txn, args, 1, Operation::Intersection, "zintercard")?;
    let mut count = 0;
    combination.visit(txn, |_, _, _| {
        count += 1;
        Ok(if count == options.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(Reply::Integer(count as i64))
}
