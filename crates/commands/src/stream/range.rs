//! XRANGE and XREVRANGE, and how entries are answered, which the other commands that read streams share.

use crate::args::Args;
use crate::elements;
use crate::error::{Error, Result};
use crate::stream::id;
use crate::table::{Access, Arity, Body, Command, Group, Keys, Use};
use haypile_resp::{Elements, Reply, Shape, write};
use haypile_store::{Direction, Txn};
use haypile_types::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_types::stream::{Fields, Stream, StreamId, id_of};
use std::ops::{ControlFlow, RangeInclusive};

pub(crate) const XRANGE: Command = Command {
    summary: "Returns the entries of a stream within a range of ids.",
    syntax: "key start:string end:string [COUNT count]",
    access: Access::Read,
    body: Body::Txn(xrange),
    ..of_range("xrange")
};

pub(crate) const XREVRANGE: Command = Command {
    summary: "Returns the entries of a stream within a range of ids, the last one first.",
    complexity: "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 \
                 elements with COUNT), you can consider it O(1).",
    syntax: "key end:string start:string [COUNT count]",
    access: Access::Read,
    body: Body::Txn(xrevrange),
    ..of_range("xrevrange")
};

const fn of_range(name: &'static str) -> Command {
    Command {
        name,
        since: "5.0.0",
        group: Group::Stream,
        arity: Arity::at_least(4),
        keys: Keys::first(1).ro(&[Use::Access]),
        complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the \
                     first 10 elements with COUNT), you can consider it O(1).",
        history: &[("6.2.0", "Added exclusive ranges.")],
        ..Command::USUAL
    }
}

fn xrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, [2, 3], Direction::Forward)
}

fn xrevrange(txn: &mut Txn, args: Args) -> Result<Reply> {
    range(txn, args, [3, 2], Direction::Backward)
}

fn range(txn: &mut Txn, args: Args, [start, end]: [usize; 2], direction: Direction) -> Result<Reply> {
    let (start, end) = id::range(args, start, end)?;
    let (mut limit, mut i) = (None, 4);
    while i < args.len() {
        if !args.is(i, "count") || i + 1 == args.len() {
            return Err(Error::Syntax);
        }
        limit = Some(u64::try_from(args.int(i + 1)?).unwrap_or(0));
        i += 2;
    }
    let key = args.key(txn, 1);
    let Some(stream) = Stream::lookup(txn, &key)? else { return Ok(Reply::Array(Vec::new())) };
    if limit == Some(0) {
        return Ok(Reply::NullArray);
    }
    entries(txn, &stream, start..=end, direction, limit.unwrap_or(u64::MAX))
}

/// The assumed bytes of an entry in a reply, before its length is known.
const ENTRY_BYTES: usize = 64;

/// The entries of a stream within a range of ids, up to `limit`, which is not 0, as an array.
pub(crate) fn entries(
    txn: &mut Txn,
    stream: &Stream,
    ids: RangeInclusive<StreamId>,
    direction: Direction,
    limit: u64,
) -> Result<Reply> {
    let most = limit.min(stream.len());
    // All of it is known to be long.
    let is_whole = *ids.start() <= stream.head.first && *ids.end() >= stream.head.last;
    if most <= ROWS_INLINE_MAX as u64 || !is_whole {
        let want = most.min(ROWS_INLINE_MAX as u64 + 1) as usize;
        let mut entries = Elements::with_capacity(Shape::Array, want.min(ROWS_INLINE_MAX / 16), ENTRY_BYTES);
        let mut is_long = false;
        stream.visit(txn, ids.clone(), direction, want, |id, fields| {
            is_long = entries.len() == ROWS_INLINE_MAX || entries.bytes() > REPLY_INLINE_BYTES_MAX;
            if is_long {
                return ControlFlow::Break(());
            }
            entries.push_with(|out| write_entry(out, id, fields));
            if entries.len() as u64 == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if !is_long {
            return Ok(Reply::Elements(entries));
        }
    }
    txn.long()?;
    let count = if is_whole { most } else { stream.count_up_to(txn, ids.clone(), most)? };
    let Some(view) = stream.view(txn, ids, direction)? else { return Ok(Reply::Array(Vec::new())) };
    Ok(elements::stream(view, Shape::Array, count, |row, value, _, out| match (id_of(row), Fields::of(value)) {
        (Some(id), Some(fields)) => {
            write_entry(out, id, fields);
            Ok(1)
        }
        _ => Err("an entry of a stream is damaged".into()),
    }))
}

/// An entry: its id, and its fields and values in turn.
#[inline]
pub(crate) fn write_entry(out: &mut Vec<u8>, id: StreamId, fields: Fields) {
    write::array_len(out, 2);
    id::write(out, id);
    write::array_len(out, fields.len());
    fields.for_each(|field| write::bulk(out, field));
}
