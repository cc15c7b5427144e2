//! Streams on their way to and from Redis's format. Their entries lie there in nodes of about a hundred, which are counted before they
//! are written: so the entries are walked over twice.

use super::{INLINE_BYTES_MAX, Refused, damaged, failed, unwritten};
use crate::error::{Error, Result};
use haypile_rdb::nodes::{Grouping, Node};
use haypile_rdb::{Output, StreamHead, StreamId as RdbId, Writer};
use haypile_store::{Direction, Key, Stop, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::Entry;
use haypile_types::stream::{self, Fields, Maker, Past, Stream, StreamId};
use std::ops::ControlFlow;

fn to_rdb(id: StreamId) -> RdbId {
    RdbId { ms: id.ms, seq: id.seq }
}

fn from_rdb(id: RdbId) -> StreamId {
    StreamId::new(id.ms, id.seq)
}

pub(super) fn write<O: Output>(txn: &mut Txn, key: &Key, entry: &Entry, writer: &mut Writer<O>) -> Result<()> {
    let stream = Stream::of(key, entry)?;
    let (mut grouping, mut nodes, mut entries) = (Grouping::default(), 0, 0);
    each_entry(txn, &stream, |_, fields| {
        nodes += u64::from(grouping.begins(bytes_of(fields)));
        entries += 1;
        Ok(())
    })?;
    let head = stream.head;
    if entries != head.count {
        return Err(unwritten(damaged()));
    }
    writer.length(nodes).map_err(unwritten)?;
    let (mut grouping, mut node) = (Grouping::default(), Node::default());
    each_entry(txn, &stream, |id, fields| {
        if grouping.begins(bytes_of(fields)) && !node.is_empty() {
            writer.node(&mut node).map_err(unwritten)?;
        }
        node.push(to_rdb(id), fields.collect::<Vec<_>>().into_iter());
        Ok(())
    })?;
    if !node.is_empty() {
        writer.node(&mut node).map_err(unwritten)?;
    }
    let head = StreamHead {
        length: head.count,
        last: to_rdb(head.last),
        first: to_rdb(head.first),
        max_deleted: to_rdb(head.max_deleted),
        entries_added: head.entries_added,
        groups: 0,
    };
    writer.stream(&head).map_err(unwritten)
}

fn bytes_of(fields: Fields<'_>) -> usize {
    fields.map(<[u8]>::len).sum()
}

/// Gives all entries to `each`; where they are many or long, on the I/O pool.
fn each_entry(txn: &mut Txn, stream: &Stream, mut each: impl FnMut(StreamId, Fields<'_>) -> Result<()>) -> Result<()> {
    let all = StreamId::MIN..=StreamId::MAX;
    if stream.len() > ROWS_INLINE_MAX as u64 {
        let Some(mut view) = stream.view(txn, all, Direction::Forward)? else { return Ok(()) };
        while let Some((row, value)) = view.next_row().map_err(failed)? {
            match (stream::id_of(&row), Fields::of(&value)) {
                (Some(id), Some(fields)) => each(id, fields)?,
                _ => return Err(unwritten(damaged())),
            }
        }
        return Ok(());
    }
    let (mut result, mut bytes, may_be_long) = (Ok(()), 0, txn.long().is_ok());
    stream.visit(txn, all, Direction::Forward, stream.len() as usize, |id, fields| {
        bytes += bytes_of(fields);
        result = match bytes > INLINE_BYTES_MAX && !may_be_long {
            true => Err(Error::Stop(Stop::Long)),
            false => each(id, fields),
        };
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    result
}

/// Takes an entry.
pub(super) fn take_entry(
    maker: &mut Maker,
    txn: &mut Txn,
    key: &Key,
    id: RdbId,
    fields: haypile_rdb::Fields<'_>,
) -> std::result::Result<usize, Refused> {
    maker.add(txn, key, from_rdb(id), fields.strings())?;
    Ok(fields.strings().map(<[u8]>::len).sum())
}

/// Takes what a stream is beside its entries.
pub(super) fn take_head(
    maker: &mut Maker,
    txn: &mut Txn,
    key: &Key,
    head: &StreamHead,
) -> std::result::Result<(), Refused> {
    let past =
        Past { last: from_rdb(head.last), max_deleted: from_rdb(head.max_deleted), entries_added: head.entries_added };
    Ok(maker.set_past(txn, key, past)?)
}
