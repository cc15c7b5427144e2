//! The commands that look for elements of a list: LPOS, and those that change its middle.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::list::count;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::{Reply, write};
use haypile_store::Txn;
use haypile_types::event;
use haypile_types::list::{self, Beside, Side};
use std::ops::ControlFlow;

pub(crate) const COMMANDS: &[Command] = &[LINSERT, LREM, LPOS];

const LINSERT: Command = Command {
    name: "linsert",
    since: "2.2.0",
    group: Group::List,
    arity: Arity::exactly(5),
    keys: Keys::first(1).rw(&[Use::Insert]),
    summary: "Adds an element before or after another one of a list.",
    syntax: "key where=(BEFORE | AFTER) pivot element",
    complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that \
                 inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on \
                 the right end (tail) is O(N).",
    access: Access::Write,
    body: Body::Txn(linsert),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn linsert(txn: &mut Txn, args: Args) -> Result<Reply> {
    let beside = if args.is(2, "before") {
        Beside::Before
    } else if args.is(2, "after") {
        Beside::After
    } else {
        return Err(Error::Syntax);
    };
    let key = args.key(txn, 1);
    let Some(list) = list::edit(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let Some(length) = list::insert(txn, &key, list, beside, args.get(3), args.get(4))? else {
        return Ok(Reply::Integer(-1));
    };
    txn.on_event(event::LIST, "linsert", &key);
    Ok(Reply::Integer(length as i64))
}

const LREM: Command = Command {
    name: "lrem",
    since: "1.0.0",
    group: Group::List,
    arity: Arity::exactly(4),
    keys: Keys::first(1).rw(&[Use::Delete]),
    summary: "Removes elements of a list that equal a given one.",
    syntax: "key count element",
    complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
    access: Access::Write,
    body: Body::Txn(lrem),
    ..Command::USUAL
};

fn lrem(txn: &mut Txn, args: Args) -> Result<Reply> {
    let count = args.int(2)?;
    let key = args.key(txn, 1);
    let Some(list) = list::edit(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let (length, from) = (list.len(), if count < 0 { Side::Tail } else { Side::Head });
    let limit = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let removed = list::remove(txn, &key, list, from, limit, args.get(3))?;
    if removed > 0 {
        txn.on_event(event::LIST, "lrem", &key);
    }
    if removed == length {
        txn.on_event(event::GENERIC, "del", &key);
    }
    Ok(Reply::Integer(removed as i64))
}

const LPOS: Command = Command {
    name: "lpos",
    since: "6.0.6",
    group: Group::List,
    arity: Arity::at_least(3),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Returns the indexes of elements of a list that equal a given one.",
    syntax: "key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN len:integer]",
    complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for elements near \
                 the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant \
                 time.",
    access: Access::Read,
    body: Body::Txn(lpos),
    ..Command::USUAL
};

fn lpos(txn: &mut Txn, args: Args) -> Result<Reply> {
    let search = Search::parse(args)?;
    let key = args.key(txn, 1);
    let Some(mut list) = list::read(txn, &key)? else {
        return Ok(if search.count.is_some() { Reply::Array(Vec::new()) } else { Reply::Null });
    };
    let element = args.get(2);
    // Indexes are encoded as they are found: there may be as many as there are elements.
    let (mut matches, mut found, mut last, mut indexes) = (0, 0, None, Vec::new());
    // Of a search without COUNT, or COUNT 0, the bounds are one match and none.
    let wanted = search.count.map_or(1, |count| if count == 0 { u64::MAX } else { count });
    list.search(txn, search.from, search.length_max, |index, candidate| {
        if candidate == element {
            matches += 1;
            if matches >= search.rank {
                found += 1;
                last = Some(index as i64);
                write::integer(&mut indexes, index as i64);
            }
        }
        if found == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(match search.count {
        Some(_) => {
            let mut reply = Vec::with_capacity(indexes.len() + 16);
            write::array_len(&mut reply, found as usize);
            reply.extend_from_slice(&indexes);
            Reply::Raw(reply.into())
        }
        None => last.map_or(Reply::Null, Reply::Integer),
    })
}

const RANK_IS_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
                            start from the end of the list";

/// The error of the least rank, which cannot be negated, since 7.2; 7.0 takes such a rank for -1.
const RANK_IS_TOO_LOW: &str =
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

/// LPOS's options.
struct Search {
    from: Side,
    /// The first match that counts, from 1 on.
    rank: u64,
    count: Option<u64>,
    /// Elements to look at.
    length_max: u64,
}

impl Search {
    fn parse(args: Args) -> Result<Search> {
        let mut search = Search { from: Side::Head, rank: 1, count: None, length_max: u64::MAX };
        for i in (3..args.len()).step_by(2) {
            if i + 1 == args.len() {
                return Err(Error::Syntax);
            }
            if args.is(i, "rank") {
                let rank = args.int(i + 1)?;
                match rank {
                    0 => return Err(Error::text(RANK_IS_ZERO)),
                    i64::MIN => return Err(Error::text(RANK_IS_TOO_LOW)),
                    _ => {}
                }
                (search.from, search.rank) = (if rank < 0 { Side::Tail } else { Side::Head }, rank.unsigned_abs());
            } else if args.is(i, "count") {
                search.count = Some(count(args, i + 1, "ERR COUNT can't be negative")?);
            } else if args.is(i, "maxlen") {
                search.length_max = match count(args, i + 1, "ERR MAXLEN can't be negative")? {
                    0 => u64::MAX,
                    length => length,
                };
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(search)
    }
}
