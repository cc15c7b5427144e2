//! ZPOPMIN, ZPOPMAX and ZMPOP: the members at the ends of sorted sets, taken away. The commands that wait for members
//! use the same functions.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keyspec::{Begin, Find, KeySpec};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Mode, Use};
use crate::zset::on_removed;
use crate::zset::range::{Wanted, scored_stream};
use haypile_resp::{Reply, Scored, number};
use haypile_store::{Direction, Key, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::zset::{Range, Stretch, Zset};

pub(crate) const ZPOPMIN: Command = Command {
    summary: "Removes and returns the members of a sorted set with the lowest scores.",
    access: Access::Write,
    body: Body::Txn(zpopmin),
    ..of_pop("zpopmin")
};

pub(crate) const ZPOPMAX: Command = Command {
    summary: "Removes and returns the members of a sorted set with the highest scores.",
    access: Access::Write,
    body: Body::Txn(zpopmax),
    ..of_pop("zpopmax")
};

const fn of_pop(name: &'static str) -> Command {
    Command {
        name,
        since: "5.0.0",
        group: Group::SortedSet,
        arity: Arity::at_least(2),
        keys: Keys::first(1).rw(&[Use::Access, Use::Delete]),
        syntax: "key [count]",
        complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of \
            elements popped.",
        flags: &[Flag::Fast],
        ..Command::USUAL
    }
}

/// The end of a sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Min,
    Max,
}

impl End {
    fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }

    fn direction(self) -> Direction {
        match self {
            End::Min => Direction::Forward,
            End::Max => Direction::Backward,
        }
    }

    /// The end that an argument names.
    pub fn parse(args: Args, i: usize) -> Result<End> {
        if args.is(i, "min") {
            Ok(End::Min)
        } else if args.is(i, "max") {
            Ok(End::Max)
        } else {
            Err(Error::Syntax)
        }
    }
}

fn zpopmin(txn: &mut Txn, args: Args) -> Result<Reply> {
    pop_of(txn, args, End::Min)
}

fn zpopmax(txn: &mut Txn, args: Args) -> Result<Reply> {
    pop_of(txn, args, End::Max)
}

fn pop_of(txn: &mut Txn, args: Args, end: End) -> Result<Reply> {
    if args.len() > 3 {
        return Err(Error::Syntax);
    }
    let count = match args.opt(2) {
        Some(digits) => number::parse_i64(digits)
            .and_then(|count| u64::try_from(count).ok())
            .ok_or(Error::text("ERR value is out of range, must be positive"))?,
        None => 1,
    };
    let key = args.key(txn, 1);
    let wanted = if args.len() == 2 { Wanted::FlatScores } else { Wanted::Scores };
    let Some(zset) = Zset::write(txn, &key)? else { return Ok(wanted.none()) };
    pop(txn, &key, zset, end, count, wanted)
}

/// Takes up to `count` members away from an end of a sorted set and answers with them.
pub(crate) fn pop(txn: &mut Txn, key: &Key, zset: Zset, end: End, count: u64, wanted: Wanted) -> Result<Reply> {
    let length = zset.cardinality()?;
    let count = count.min(length);
    if count == 0 {
        return Ok(wanted.none());
    }
    let range = Range::Index { from: 0, until: length };
    let stretch = Stretch { range, direction: end.direction(), skip: 0, take: count };
    let reply = if count > ROWS_INLINE_MAX as u64 {
        let reply = scored_stream(txn, &zset, stretch, count, wanted)?;
        zset.remove_range(txn, key, stretch, |_, _| {})?;
        reply
    } else {
        let mut found = Scored::new();
        zset.remove_range(txn, key, stretch, |member, score| found.push(member, score))?;
        wanted.reply(found)
    };
    on_removed(txn, key, end.event(), count == length);
    Ok(reply)
}

/// Takes the member at an end of the first sorted set that is there away: its key, itself and its score, as BZPOPMIN
/// and BZPOPMAX answer.
pub(crate) fn pop_from_first(
    txn: &mut Txn,
    args: Args,
    keys: std::ops::Range<usize>,
    end: End,
) -> Result<Option<Reply>> {
    for i in keys {
        let key = args.key(txn, i);
        let Some(zset) = Zset::write(txn, &key)? else { continue };
        let length = zset.cardinality()?;
        let range = Range::Index { from: 0, until: length };
        let stretch = Stretch { range, direction: end.direction(), skip: 0, take: 1 };
        let mut reply = vec![Reply::bulk(key.name.to_vec())];
        zset.remove_range(txn, &key, stretch, |member, score| {
            reply.extend([Reply::bulk(member.to_vec()), Reply::Double(score)]);
        })?;
        on_removed(txn, &key, end.event(), length == 1);
        statement::state(txn, &[end.event().as_bytes(), key.name]);
        return Ok(Some(Reply::Array(reply)));
    }
    Ok(None)
}

pub(crate) const ZMPOP: Command = Command {
    name: "zmpop",
    since: "7.0.0",
    group: Group::SortedSet,
    arity: Arity::at_least(4),
    keys: Keys::One(KeySpec {
        begin: Begin::Index(1),
        find: Find::KeyNum { count_at: 0, first: 1, step: 1 },
        ..KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete])
    }),
    summary: "Removes and returns the lowest or highest members of the first sorted set that is not empty.",
    syntax: "numkeys:integer key... where=(MIN | MAX) [COUNT count]",
    complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted \
        set, and M being the number of elements popped.",
    access: Access::Write,
    body: Body::Txn(zmpop),
    ..Command::USUAL
};

fn zmpop(txn: &mut Txn, args: Args) -> Result<Reply> {
    let asked = Mpop::parse(args, 1)?;
    Ok(asked.take(txn, args)?.unwrap_or(Reply::NullArray))
}

/// The arguments of ZMPOP and BZMPOP.
pub(crate) struct Mpop {
    /// The arguments that name the keys.
    pub keys: std::ops::Range<usize>,
    pub end: End,
    pub count: u64,
}

impl Mpop {
    /// The arguments from `numkeys` on, which is argument `i`.
    pub fn parse(args: Args, i: usize) -> Result<Mpop> {
        let positive = |i: usize, text| {
            let count = number::parse_i64(args.get(i)).filter(|count| *count > 0);
            count.ok_or(Error::text(text))
        };
        let keys = positive(i, "ERR numkeys should be greater than 0")?;
        let first = i + 1;
        let Some(at) = usize::try_from(keys).ok().and_then(|keys| first.checked_add(keys)) else {
            return Err(Error::Syntax);
        };
        if at >= args.len() {
            return Err(Error::Syntax);
        }
        let end = End::parse(args, at)?;
        let (mut count, mut next) = (None, at + 1);
        while next < args.len() {
            if count.is_some() || !args.is(next, "count") || next + 1 >= args.len() {
                return Err(Error::Syntax);
            }
            count = Some(positive(next + 1, "ERR count should be greater than 0")? as u64);
            next += 2;
        }
        Ok(Mpop { keys: first..at, end, count: count.unwrap_or(1) })
    }

    /// Pops from the first key that holds a sorted set; nothing if none does.
    pub fn take(&self, txn: &mut Txn, args: Args) -> Result<Option<Reply>> {
        for i in self.keys.clone() {
            let key = args.key(txn, i);
            if let Some(zset) = Zset::write(txn, &key)? {
                let members = pop(txn, &key, zset, self.end, self.count, Wanted::NestedScores)?;
                if txn.states() {
                    statement::state(txn, &[self.end.event().as_bytes(), key.name, &statement::digits(self.count)]);
                }
                return Ok(Some(Reply::array([Reply::bulk(args.get(i).to_vec()), members])));
            }
        }
        Ok(None)
    }
}
