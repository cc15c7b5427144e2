//! The commands that take elements from one of several lists, or from one list to another.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::list::{on_pop, on_push, pop_one, pop_some};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Deprecated, Find, Flag, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::Reply;
use haypile_store::{Key, Txn, Value};
use haypile_types::list::{self, Side};

pub(crate) const COMMANDS: &[Command] = &[LMOVE, RPOPLPUSH, LMPOP];

pub(crate) const SOURCE_AND_DESTINATION: Keys = Keys::Many(&[
    KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete]),
    KeySpec::at(2).with(Mode::Rw, &[Use::Insert]),
]);

const LMOVE: Command = Command {
    name: "lmove",
    since: "6.2.0",
    group: Group::List,
    arity: Arity::exactly(5),
    keys: SOURCE_AND_DESTINATION,
    summary: "Takes an element from an end of a list, adds it at an end of another one and returns it.",
    syntax: "source:key destination:key wherefrom=(LEFT | RIGHT) whereto=(LEFT | RIGHT)",
    access: Access::Write,
    body: Body::Txn(lmove),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn lmove(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (from, to) = (side(args, 3)?, side(args, 4)?);
    let keys = [args.key(txn, 1), args.key(txn, 2)];
    Ok(move_one(txn, keys, from, to)?.map_or(Reply::Null, |element| Reply::bulk(element.into_parts())))
}

const RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    since: "1.2.0",
    group: Group::List,
    arity: Arity::exactly(3),
    keys: SOURCE_AND_DESTINATION,
    summary: "Takes the last element of a list, adds it at the head of another one and returns it.",
    syntax: "source:key destination:key",
    access: Access::Write,
    body: Body::Txn(rpoplpush),
    flags: &[Flag::Denyoom],
    deprecated: Some(Deprecated { since: "6.2.0", instead: "`LMOVE` with the `RIGHT` and `LEFT` arguments" }),
    ..Command::USUAL
};

fn rpoplpush(txn: &mut Txn, args: Args) -> Result<Reply> {
    let keys = [args.key(txn, 1), args.key(txn, 2)];
    let element = move_one(txn, keys, Side::Tail, Side::Head)?;
    Ok(element.map_or(Reply::Null, |element| Reply::bulk(element.into_parts())))
}

/// The command that pops from an end of a list, in a statement.
pub(super) fn pop_of(side: Side) -> &'static [u8] {
    match side {
        Side::Head => b"LPOP",
        Side::Tail => b"RPOP",
    }
}

/// States that one element was moved.
pub(crate) fn state_move(txn: &mut Txn, [source, destination]: [&[u8]; 2], from: Side, to: Side) {
    let word = |side| if side == Side::Head { &b"LEFT"[..] } else { b"RIGHT" };
    statement::state(txn, &[b"LMOVE", source, destination, word(from), word(to)]);
}

/// Reads argument `i`, which is LEFT or RIGHT.
pub(crate) fn side(args: Args, i: usize) -> Result<Side> {
    if args.is(i, "left") {
        Ok(Side::Head)
    } else if args.is(i, "right") {
        Ok(Side::Tail)
    } else {
        Err(Error::Syntax)
    }
}

/// Takes an element from the first list and adds it to the second, which may be the same; nothing if there is no first
/// one.
pub(crate) fn move_one(txn: &mut Txn, keys: [Key; 2], from: Side, to: Side) -> Result<Option<Value>> {
    let [source, destination] = keys;
    let Some(mut list) = list::edit(txn, &source)? else { return Ok(None) };
    let is_last = list.len() == 1;
    if source == destination && (from == to || is_last) {
        let element = list.get(txn, if from == Side::Head { 0 } else { list.len() - 1 })?;
        list.touch(txn, &source)?;
        on_push(txn, &source, to);
        on_pop(txn, &source, from, false);
        return Ok(Some(element));
    }
    // Before anything is taken, both have to be lists.
    let target = if source == destination { None } else { list::edit(txn, &destination)? };
    let element = list::pop(txn, &source, list, from)?;
    let target = if source == destination { list::edit(txn, &destination)? } else { target };
    list::push(txn, &destination, target, to, std::iter::once(&*element))?;
    on_push(txn, &destination, to);
    on_pop(txn, &source, from, is_last);
    Ok(Some(element))
}

const LMPOP: Command = Command {
    name: "lmpop",
    since: "7.0.0",
    group: Group::List,
    arity: Arity::at_least(4),
    keys: Keys::One(KeySpec {
        find: Find::KeyNum { count_at: 0, first: 1, step: 1 },
        ..KeySpec::at(1).with(Mode::Rw, &[Use::Access, Use::Delete])
    }),
    summary: "Takes elements from an end of the first of several lists that is there and returns them with its key.",
    syntax: "numkeys:integer key... where=(LEFT | RIGHT) [COUNT count]",
    complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
    access: Access::Write,
    body: Body::Txn(lmpop),
    ..Command::USUAL
};

fn lmpop(txn: &mut Txn, args: Args) -> Result<Reply> {
    let pops = Pops::parse(args, 1)?;
    Ok(pops.try_once(txn, args)?.unwrap_or(Reply::NullArray))
}

/// The arguments of LMPOP and BLMPOP.
#[derive(Clone, Debug)]
pub(crate) struct Pops {
    /// Arguments that are keys.
    pub keys: std::ops::Range<usize>,
    pub side: Side,
    pub count: u64,
}

impl Pops {
    /// `numkeys key [key ...] LEFT|RIGHT [COUNT count]`, from argument `at` to the last one.
    pub fn parse(args: Args, at: usize) -> Result<Pops> {
        let positive = |i: usize, error: &'static str| match args.int(i) {
            Ok(number @ 1..) => Ok(number as u64),
            _ => Err(Error::text(error)),
        };
        let keys = positive(at, "ERR numkeys should be greater than 0")?;
        let after = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(at + 1)).ok_or(Error::Syntax)?;
        if after >= args.len() {
            return Err(Error::Syntax);
        }
        let side = side(args, after)?;
        let count = match args.len() - after {
            1 => 1,
            3 if args.is(after + 1, "count") => positive(after + 2, "ERR count should be greater than 0")?,
            // Of two counts the first is looked at before the second is refused.
            4.. if args.is(after + 1, "count") => {
                positive(after + 2, "ERR count should be greater than 0")?;
                return Err(Error::Syntax);
            }
            _ => return Err(Error::Syntax),
        };
        Ok(Pops { keys: at + 1..after, side, count })
    }

    /// The key and the elements, if one of the lists is there.
    pub fn try_once(&self, txn: &mut Txn, args: Args) -> Result<Option<Reply>> {
        for i in self.keys.clone() {
            let key = args.key(txn, i);
            if let Some(list) = list::edit(txn, &key)? {
                let elements = pop_some(txn, &key, list, self.side, self.count)?;
                if txn.states() {
                    statement::state(txn, &[pop_of(self.side), key.name, &statement::digits(self.count)]);
                }
                return Ok(Some(Reply::Array(vec![Reply::bulk(key.name.to_vec()), elements])));
            }
        }
        Ok(None)
    }
}

/// The key and the element, if one of the lists is there: what BLPOP and BRPOP answer.
pub(crate) fn pop_from_first(
    txn: &mut Txn,
    args: Args,
    keys: std::ops::Range<usize>,
    side: Side,
) -> Result<Option<Reply>> {
    for i in keys {
        let key = args.key(txn, i);
        if let Some(element) = pop_one(txn, &key, side)? {
            statement::state(txn, &[pop_of(side), key.name]);
            return Ok(Some(Reply::Array(vec![Reply::bulk(key.name.to_vec()), Reply::bulk(element.into_parts())])));
        }
    }
    Ok(None)
}
