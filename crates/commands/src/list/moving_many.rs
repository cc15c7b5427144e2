//! LMOVEM: moves several elements from one list to another (Redis 8.10).

use crate::args::Args;
use crate::error::{Error, Result};
use crate::list::moving::{SOURCE_AND_DESTINATION, pop_of, side};
use crate::list::{on_pop, on_push};
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group};
use haypile_resp::Reply;
use haypile_store::{Direction, Key, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::list::{self, List, Side};
use std::ops::{ControlFlow, Range};

pub(crate) const COMMANDS: &[Command] = &[LMOVEM];

const LMOVEM: Command = Command {
    name: "lmovem",
    since: "8.10.0",
    group: Group::List,
    arity: Arity::at_least(5),
    keys: SOURCE_AND_DESTINATION,
    summary: "Takes elements from an end of a list, adds them at an end of another one and returns them.",
    syntax: "source:key destination:key wherefrom=(LEFT | RIGHT) whereto=(LEFT | RIGHT) \
             [how-many=(selector=(COUNT | EXACTLY) count:integer ordering=(OBO | BULK))]",
    complexity: "O(N) where N is the number of elements that are moved.",
    access: Access::Write,
    body: Body::Txn(lmovem),
    flags: &[Flag::Denyoom],
    ..Command::USUAL
};

fn lmovem(txn: &mut Txn, args: Args) -> Result<Reply> {
    let (from, to) = (side(args, 3)?, side(args, 4)?);
    let many = Many::parse(args, 5)?;
    let keys = [args.key(txn, 1), args.key(txn, 2)];
    Ok(many.try_once(txn, keys, from, to)?.unwrap_or(Reply::NullArray))
}

/// The number of elements, and their order where they arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Many {
    count: u64,
    /// Whether nothing is moved where there are fewer elements than `count`.
    is_exact: bool,
    /// Whether the elements stay in order, rather than to arrive as one move after the other would have them.
    keeps_order: bool,
}

impl Many {
    /// `COUNT|EXACTLY count OBO|BULK` from argument `at` to the last one, or nothing.
    pub fn parse(args: Args, at: usize) -> Result<Many> {
        if args.len() == at {
            return Ok(Many { count: 1, is_exact: false, keeps_order: false });
        }
        if args.len() != at + 3 {
            return Err(Error::Syntax);
        }
        let one_of = |at: usize, words: [&str; 2]| {
            words.iter().position(|word| args.is(at, word)).map(|place| place == 1).ok_or(Error::Syntax)
        };
        let is_exact = one_of(at, ["COUNT", "EXACTLY"])?;
        let count = match args.int(at + 1) {
            Ok(count @ 1..) => count as u64,
            _ => return Err(Error::text("ERR count should be greater than 0")),
        };
        Ok(Many { count, is_exact, keeps_order: one_of(at + 2, ["OBO", "BULK"])? })
    }

    /// Moves the elements from the first list to the second, which may be the same; returns them in the order in which
    /// they lie there. None if there are not enough of them.
    pub fn try_once(self, txn: &mut Txn, keys: [Key; 2], from: Side, to: Side) -> Result<Option<Reply>> {
        let [source, destination] = &keys;
        let Some(mut list) = list::edit(txn, source)? else { return Ok(None) };
        let length = list.len();
        if self.is_exact && length < self.count {
            return Ok(None);
        }
        let count = self.count.min(length);
        if count > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        // Before anything is taken, both have to be lists.
        let target = if source == destination { None } else { list::edit(txn, destination)? };
        let (taken, kept) = match from {
            Side::Head => (0..count, count..length),
            Side::Tail => (length - count..length, 0..length - count),
        };
        let mut block = elements(txn, &mut list, taken)?;
        // One move after the other turns them round where they are taken from the end that they arrive at.
        if !self.keeps_order && from == to {
            block.reverse();
        }
        if source == destination {
            self.turn(txn, source, list, kept, &block, to)?;
            statement::state_value(txn, source)?;
            on_pop(txn, source, from, false);
            on_push(txn, source, to);
        } else {
            list::trim(txn, source, list, kept)?;
            push(txn, destination, target, to, &block)?;
            state_block(txn, source, destination, from, to, &block);
            on_push(txn, destination, to);
            on_pop(txn, source, from, count == length);
        }
        Ok(Some(Reply::array(block.into_iter().map(Reply::bulk))))
    }

    /// Moves a block of elements within a list, which keeps its deadline even if all of them are moved.
    fn turn(self, txn: &mut Txn, key: &Key, list: List, kept: Range<u64>, block: &[Vec<u8>], to: Side) -> Result<()> {
        if !kept.is_empty() {
            list::trim(txn, key, list, kept)?;
            let rest = list::edit(txn, key)?;
            return push(txn, key, rest, to, block);
        }
        let count = block.len() as u64;
        push(txn, key, Some(list), to, block)?;
        let all = list::edit(txn, key)?.expect("it has all elements twice");
        Ok(list::trim(txn, key, all, if to == Side::Head { 0..count } else { count..2 * count })?)
    }
}

/// States that a block was taken from an end of one list and lies at an end of another one.
fn state_block(txn: &mut Txn, source: &Key, destination: &Key, from: Side, to: Side, block: &[Vec<u8>]) {
    if !txn.states() {
        return;
    }
    statement::state(txn, &[pop_of(from), source.name, &statement::digits(block.len() as u64)]);
    let elements = block.iter().map(Vec::as_slice);
    let words: Vec<&[u8]> = match to {
        Side::Head => [&b"LPUSH"[..], destination.name].into_iter().chain(elements.rev()).collect(),
        Side::Tail => [&b"RPUSH"[..], destination.name].into_iter().chain(elements).collect(),
    };
    statement::state(txn, &words);
}

/// Returns the elements of a range, in order.
fn elements(txn: &mut Txn, list: &mut List, range: Range<u64>) -> Result<Vec<Vec<u8>>> {
    let mut elements = Vec::new();
    list.visit(txn, range, Direction::Forward, |element| {
        elements.push(element.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(elements)
}

/// Adds a block of elements at an end of a list, where they lie in order.
fn push(txn: &mut Txn, key: &Key, list: Option<List>, to: Side, block: &[Vec<u8>]) -> Result<()> {
    match to {
        Side::Head => list::push(txn, key, list, to, block.iter().rev().map(Vec::as_slice))?,
        Side::Tail => list::push(txn, key, list, to, block.iter().map(Vec::as_slice))?,
    };
    Ok(())
}
