//! Streams on their way to and from Redis's format. Their entries lie there in nodes of about a hundred, which are counted before they
//! are written: so the entries are walked over twice.

use super::{INLINE_BYTES_MAX, Refused, damaged, failed, unwritten};
use crate::error::{Error, Result};
use haypile_rdb::event as rdb;
use haypile_rdb::nodes::{Grouping, Node};
use haypile_rdb::{Output, Part, StreamHead, StreamId as RdbId, Writer};
use haypile_store::{Direction, Key, Stop, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::Entry;
use haypile_types::stream::{self, ConsumerState, Fields, Maker, Past, Stream, StreamId};
use std::io;
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
        groups: u64::from(stream.groups(txn)?),
    };
    writer.stream(&head).map_err(unwritten)?;
    write_groups(txn, &stream, head.groups, writer)
}

fn write_groups<O: Output>(txn: &mut Txn, stream: &Stream, count: u64, writer: &mut Writer<O>) -> Result<()> {
    let all = || StreamId::MIN..=StreamId::MAX;
    let mut groups = Vec::new();
    stream.visit_groups(txn, |name, state| groups.push((name.to_vec(), state)))?;
    if groups.len() as u64 != count {
        return Err(unwritten(damaged()));
    }
    for (name, state) in &groups {
        let (pending, consumers) = (state.pending, u64::from(state.consumers));
        if pending + consumers > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let (last, entries_read) = (to_rdb(state.last), Some(state.entries_read.map_or(-1, |read| read as i64)));
        writer.group(&rdb::Group { name, last, entries_read, pending }).map_err(unwritten)?;
        let group = stream.group(name, *state);
        let mut walk = Walk::new(pending);
        group.visit_pending(txn, all(), Direction::Forward, usize::MAX, |id, pending| {
            walk.each(|| writer.pending(to_rdb(id), pending.delivered_ms, pending.deliveries))
        })?;
        walk.end()?;
        writer.length(consumers).map_err(unwritten)?;
        let mut names = Vec::new();
        group.visit_consumers(txn, |name, state| names.push((name.to_vec(), state)))?;
        if names.len() as u64 != consumers {
            return Err(unwritten(damaged()));
        }
        for (name, ConsumerState { seen_ms, active_ms, pending, .. }) in &names {
            let active_ms = active_ms.map_or(-1, |ms| ms as i64);
            let told = rdb::Consumer { name, seen_ms: *seen_ms, active_ms, pending: *pending };
            writer.consumer(&told).map_err(unwritten)?;
            let consumer = group.consumer(txn, name)?.ok_or_else(|| unwritten(damaged()))?;
            let mut walk = Walk::new(*pending);
            group.visit_ids_of(txn, &consumer, all(), usize::MAX, |id| walk.each(|| writer.owned(to_rdb(id))))?;
            walk.end()?;
        }
    }
    Ok(())
}

/// Rows that are written one by one, as many as were told before.
struct Walk {
    missing: u64,
    result: Result<()>,
}

impl Walk {
    fn new(count: u64) -> Walk {
        Walk { missing: count, result: Ok(()) }
    }

    fn each(&mut self, write: impl FnOnce() -> io::Result<()>) -> ControlFlow<()> {
        self.result = match self.missing.checked_sub(1) {
            Some(missing) => {
                self.missing = missing;
                write().map_err(unwritten)
            }
            None => Err(unwritten(damaged())),
        };
        if self.result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn end(self) -> Result<()> {
        self.result?;
        if self.missing == 0 { Ok(()) } else { Err(unwritten(damaged())) }
    }
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

/// Takes a part of a stream; returns its bytes.
pub(super) fn take(maker: &mut Maker, txn: &mut Txn, key: &Key, part: Part<'_>) -> std::result::Result<usize, Refused> {
    let (bytes, is_right) = match part {
        Part::Entry { id, fields } => {
            maker.add(txn, key, from_rdb(id), fields.strings())?;
            (fields.strings().map(<[u8]>::len).sum(), true)
        }
        Part::Stream(StreamHead { last, max_deleted, entries_added, .. }) => {
            let (last, max_deleted) = (from_rdb(last), from_rdb(max_deleted));
            maker.set_past(txn, key, Past { last, max_deleted, entries_added })?;
            (0, true)
        }
        Part::Group(rdb::Group { name, last, entries_read, .. }) => {
            // Below zero: not known.
            let entries_read = entries_read.map(|read| u64::try_from(read).ok());
            (name.len(), maker.add_group(txn, key, name, from_rdb(last), entries_read)?)
        }
        Part::Pending { id, delivered_ms, deliveries } => {
            maker.add_pending(txn, from_rdb(id), delivered_ms, deliveries)?;
            (0, true)
        }
        Part::Consumer(rdb::Consumer { name, seen_ms, active_ms, .. }) => {
            let active_ms = u64::try_from(active_ms).ok();
            (name.len(), maker.add_consumer(txn, name, seen_ms, active_ms)?)
        }
        Part::Owned(id) => (0, maker.give(txn, from_rdb(id))?),
        Part::String(_) | Part::Element(_) | Part::Scored(..) | Part::Field { .. } => {
            unreachable!("a stream has no such parts")
        }
    };
    if is_right { Ok(bytes) } else { Err(Refused::Corrupt("a group, a consumer or a pending entry is there twice")) }
}
