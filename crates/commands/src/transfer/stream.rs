//! Streams on their way to and from Redis's format. Their entries lie there in nodes of about a hundred, which are
//! counted before they are written: so the entries are walked over twice.

use super::{Broken, INLINE_BYTES_MAX, Refused, damaged, failed, unwritten};
use crate::error::{Error, Result};
use haypile_rdb::event as rdb;
use haypile_rdb::nodes::{Grouping, Node};
use haypile_rdb::{Idempotency, Kind, Output, Part, StreamHead, StreamId as RdbId, Writer};
use haypile_store::{Direction, Key, Stop, Txn, View};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::Entry;
use haypile_types::stream::{self, ConsumerState, Fields, GroupState, GroupViews, Maker, Past};
use haypile_types::stream::{ProducerState, Stream, StreamId};
use std::io;
use std::ops::ControlFlow;

fn to_rdb(id: StreamId) -> RdbId {
    RdbId { ms: id.ms, seq: id.seq }
}

fn from_rdb(id: RdbId) -> StreamId {
    StreamId::new(id.ms, id.seq)
}

/// Returns the oldest form of the format that holds the stream.
pub(super) fn kind(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<Kind> {
    let (stream, mut nacked) = (Stream::of(key, entry)?, false);
    stream.visit_groups(txn, |_, state| nacked |= state.nacked > 0)?;
    let has_producers = stream.producers(txn)?.is_some();
    Ok(match (nacked, has_producers) {
        (true, _) => Kind::NackedStream,
        (false, true) => Kind::IdempotentStream,
        (false, false) => Kind::Stream,
    })
}

pub(super) fn write<O: Output>(
    txn: &mut Txn,
    key: &Key,
    entry: &Entry,
    kind: Kind,
    writer: &mut Writer<O>,
) -> Result<()> {
    let stream = Stream::of(key, entry)?;
    writer.length(nodes(txn, &stream)?).map_err(unwritten)?;
    let (mut grouping, mut node) = (Grouping::default(), Node::default());
    each_entry(txn, &stream, |id, fields| put_entry(writer, &mut grouping, &mut node, id, fields).map_err(unwritten))?;
    end_node(writer, &mut node).map_err(unwritten)?;
    let head = head(txn, &stream)?;
    writer.stream(&head).map_err(unwritten)?;
    write_groups(txn, &stream, head.groups, kind, writer)?;
    if kind == Kind::Stream { Ok(()) } else { write_producers(txn, &stream, writer) }
}

/// Seconds for which Redis keeps an idempotent ID, and how many of a producer, unless it is told otherwise.
const DURATION_S: u64 = 100;
const IDS_MAX: u64 = 100;

/// The producers of a stream on their way out: the bounds and counts, and the producers in the order of their numbers,
/// in which the rows of their idempotent IDs lie, too.
struct Kept {
    bounds: Idempotency,
    added: u64,
    duplicates: u64,
    producers: Vec<(Vec<u8>, ProducerState)>,
}

impl Kept {
    fn of(txn: &mut Txn, stream: &Stream) -> Result<Kept> {
        let Some(found) = stream.producers(txn)? else {
            let bounds = Idempotency { duration_s: DURATION_S, ids_max: IDS_MAX, producers: 0 };
            return Ok(Kept { bounds, added: 0, duplicates: 0, producers: Vec::new() });
        };
        let state = found.state;
        if state.ids > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let producers = found.list(txn)?;
        let (duration_s, ids_max) = (state.duration_s.into(), state.ids_max.into());
        let bounds = Idempotency { duration_s, ids_max, producers: producers.len() as u64 };
        Ok(Kept { bounds, added: state.added, duplicates: state.duplicates, producers })
    }
}

fn write_producers<O: Output>(txn: &mut Txn, stream: &Stream, writer: &mut Writer<O>) -> Result<()> {
    let kept = Kept::of(txn, stream)?;
    writer.idempotency(&kept.bounds).map_err(unwritten)?;
    for (name, state) in &kept.producers {
        writer.producer(name, state.ids.into()).map_err(unwritten)?;
        let Some(producers) = stream.producers(txn)? else { return Err(unwritten(damaged())) };
        let mut walk = Walk::new(state.ids.into());
        producers.visit(txn, state, |id, name| walk.each(|| writer.idempotent(name, to_rdb(id))))?;
        walk.end()?;
    }
    writer.idempotency_counts(kept.added, kept.duplicates).map_err(unwritten)
}

/// Nodes that the entries lie in.
fn nodes(txn: &mut Txn, stream: &Stream) -> Result<u64> {
    let (mut grouping, mut nodes, mut entries) = (Grouping::default(), 0, 0);
    each_entry(txn, stream, |_, fields| {
        nodes += u64::from(grouping.begins(bytes_of(fields)));
        entries += 1;
        Ok(())
    })?;
    if entries == stream.head.count { Ok(nodes) } else { Err(unwritten(damaged())) }
}

fn put_entry<O: Output>(
    writer: &mut Writer<O>,
    grouping: &mut Grouping,
    node: &mut Node,
    id: StreamId,
    fields: Fields<'_>,
) -> io::Result<()> {
    if grouping.begins(bytes_of(fields)) {
        end_node(writer, node)?;
    }
    node.push(to_rdb(id), fields.collect::<Vec<_>>().into_iter());
    Ok(())
}

fn end_node<O: Output>(writer: &mut Writer<O>, node: &mut Node) -> io::Result<()> {
    if node.is_empty() { Ok(()) } else { writer.node(node) }
}

fn head(txn: &mut Txn, stream: &Stream) -> Result<StreamHead> {
    let head = stream.head;
    Ok(StreamHead {
        length: head.count,
        last: to_rdb(head.last),
        first: to_rdb(head.first),
        max_deleted: to_rdb(head.max_deleted),
        entries_added: head.entries_added,
        groups: u64::from(stream.groups(txn)?),
    })
}

/// The groups in the order of their numbers, in which the rows of all of them lie, too.
fn groups(txn: &mut Txn, stream: &Stream, count: u64) -> Result<Vec<(Vec<u8>, GroupState)>> {
    let mut groups = Vec::new();
    stream.visit_groups(txn, |name, state| groups.push((name.to_vec(), state)))?;
    groups.sort_unstable_by_key(|(_, state)| state.number);
    if groups.len() as u64 == count { Ok(groups) } else { Err(unwritten(damaged())) }
}

/// Returns how many pending entries of a group the form has: all but those without consumer, or all.
fn pending_in(kind: Kind, state: &GroupState) -> u64 {
    if kind == Kind::NackedStream { state.pending } else { state.pending.saturating_sub(state.nacked) }
}

fn put_group<O: Output>(writer: &mut Writer<O>, kind: Kind, name: &[u8], state: &GroupState) -> io::Result<()> {
    let (last, entries_read) = (to_rdb(state.last), Some(state.entries_read.map_or(-1, |read| read as i64)));
    writer.group(&rdb::Group { name, last, entries_read, pending: pending_in(kind, state) })
}

fn put_consumer<O: Output>(writer: &mut Writer<O>, name: &[u8], state: &ConsumerState) -> io::Result<()> {
    let ConsumerState { seen_ms, active_ms, pending, .. } = *state;
    let active_ms = active_ms.map_or(-1, |ms| ms as i64);
    writer.consumer(&rdb::Consumer { name, seen_ms, active_ms, pending })
}

fn write_groups<O: Output>(
    txn: &mut Txn,
    stream: &Stream,
    count: u64,
    kind: Kind,
    writer: &mut Writer<O>,
) -> Result<()> {
    let all = || StreamId::MIN..=StreamId::MAX;
    for (name, state) in &groups(txn, stream, count)? {
        let (pending, consumers) = (state.pending, u64::from(state.consumers));
        if pending + consumers > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        put_group(writer, kind, name, state).map_err(unwritten)?;
        let group = stream.group(name, *state);
        let mut walk = Walk::new(pending_in(kind, state));
        group.visit_pending(txn, all(), Direction::Forward, usize::MAX, |id, pending| {
            if pending.holder.consumer().is_none() && kind != Kind::NackedStream {
                return ControlFlow::Continue(());
            }
            walk.each(|| writer.pending(to_rdb(id), pending.delivered_ms, pending.deliveries))
        })?;
        walk.end()?;
        writer.length(consumers).map_err(unwritten)?;
        let mut names = Vec::new();
        group.visit_consumers(txn, |name, state| names.push((name.to_vec(), state)))?;
        if names.len() as u64 != consumers {
            return Err(unwritten(damaged()));
        }
        names.sort_unstable_by_key(|(_, state): &(Vec<u8>, ConsumerState)| state.number);
        for (name, state) in &names {
            put_consumer(writer, name, state).map_err(unwritten)?;
            let consumer = group.consumer(txn, name)?.ok_or_else(|| unwritten(damaged()))?;
            let mut walk = Walk::new(state.pending);
            group.visit_ids_of(txn, &consumer, all(), usize::MAX, |id| walk.each(|| writer.owned(to_rdb(id))))?;
            walk.end()?;
        }
        if kind == Kind::NackedStream {
            writer.length(state.nacked).map_err(unwritten)?;
            let mut walk = Walk::new(state.nacked);
            group.visit_zone(txn, 0, usize::MAX, |_, id| walk.each(|| writer.owned(to_rdb(id))))?;
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

/// A stream on its way out. Memory is bounded, but for the names of its groups, and of the consumers of one of them.
pub(super) struct Outgoing {
    kind: Kind,
    nodes: u64,
    head: StreamHead,
    /// A view of the entries; `None` if there are none.
    entries: Option<View>,
    /// Entries that are still to come.
    missing: u64,
    grouping: Grouping,
    node: Node,
    groups: std::vec::IntoIter<(Vec<u8>, GroupState)>,
    views: Option<GroupViews>,
    /// The producers, and the rows of their idempotent IDs.
    kept: Option<(Kept, View)>,
    next: Next,
}

/// The part of a stream that comes next.
enum Next {
    Entries,
    Group,
    Pending { group: GroupState, missing: u64 },
    Consumer { group: GroupState, consumers: Consumers },
    Owned { group: GroupState, consumers: Consumers, number: u32, missing: u64 },
    Nacked { group: GroupState, missing: u64 },
    Producer(std::vec::IntoIter<(Vec<u8>, ProducerState)>),
    Idempotent { producers: std::vec::IntoIter<(Vec<u8>, ProducerState)>, number: u32, missing: u32 },
    End,
}

type Consumers = std::vec::IntoIter<(Vec<u8>, ConsumerState)>;

impl Outgoing {
    pub fn open(txn: &mut Txn, key: &Key, entry: &Entry, kind: Kind) -> Result<Outgoing> {
        let stream = Stream::of(key, entry)?;
        let (nodes, head) = (nodes(txn, &stream)?, head(txn, &stream)?);
        let groups = groups(txn, &stream, head.groups)?;
        let views = if groups.is_empty() { None } else { Some(stream.view_groups(txn)?) };
        let kept = match kind {
            Kind::Stream => None,
            _ => Some((Kept::of(txn, &stream)?, stream.view_idempotent(txn)?)),
        };
        let entries = stream.view(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward)?;
        let (grouping, node) = Default::default();
        let (missing, groups, next) = (head.length, groups.into_iter(), Next::Entries);
        Ok(Outgoing { kind, nodes, head, entries, missing, grouping, node, groups, views, kept, next })
    }

    pub fn begin<O: Output>(&self, writer: &mut Writer<O>) -> io::Result<()> {
        writer.length(self.nodes)
    }

    /// Writes what comes next; whether there is more.
    pub fn next<O: Output>(&mut self, writer: &mut Writer<O>) -> std::result::Result<bool, Broken> {
        let next = std::mem::replace(&mut self.next, Next::Group);
        self.next = match next {
            Next::Entries => self.entry(writer)?,
            Next::Group => {
                let Some((name, group)) = self.groups.next() else { return self.begin_producers(writer) };
                put_group(writer, self.kind, &name, &group)?;
                Next::Pending { group, missing: pending_in(self.kind, &group) }
            }
            Next::End => return Ok(false),
            Next::Pending { group, missing: 0 } => {
                writer.length(group.consumers.into())?;
                Next::Consumer { group, consumers: self.consumers(&group)? }
            }
            Next::Pending { group, missing } => {
                let (row, value) = self.views()?.pending.next_row()?.ok_or_else(damaged)?;
                let (id, pending) = stream::pending_in_row(group.number, &row, &value).ok_or_else(damaged)?;
                let is_left_out = pending.holder.consumer().is_none() && self.kind != Kind::NackedStream;
                if !is_left_out {
                    writer.pending(to_rdb(id), pending.delivered_ms, pending.deliveries)?;
                }
                Next::Pending { group, missing: missing - u64::from(!is_left_out) }
            }
            Next::Consumer { group, mut consumers } => match consumers.next() {
                None if self.kind == Kind::NackedStream => {
                    writer.length(group.nacked)?;
                    Next::Nacked { group, missing: group.nacked }
                }
                None => Next::Group,
                Some((name, state)) => {
                    put_consumer(writer, &name, &state)?;
                    Next::Owned { group, consumers, number: state.number, missing: state.pending }
                }
            },
            Next::Owned { group, consumers, missing: 0, .. } => Next::Consumer { group, consumers },
            Next::Owned { group, consumers, number, missing } => {
                let (row, _) = self.views()?.owned.next_row()?.ok_or_else(damaged)?;
                let id = stream::owned_in_row(group.number, number, &row).ok_or_else(damaged)?;
                writer.owned(to_rdb(id))?;
                Next::Owned { group, consumers, number, missing: missing - 1 }
            }
            Next::Producer(mut producers) => match producers.next() {
                None => self.end(writer)?,
                Some((name, state)) => {
                    writer.producer(&name, state.ids.into())?;
                    Next::Idempotent { producers, number: state.number, missing: state.ids }
                }
            },
            Next::Idempotent { producers, missing: 0, .. } => Next::Producer(producers),
            Next::Idempotent { producers, number, missing } => {
                let row = self.kept.as_mut().and_then(|(_, view)| view.next_row().transpose()).transpose()?;
                let (row, _) = row.ok_or_else(damaged)?;
                let found = stream::idempotent_in_row(&row).filter(|(of, ..)| *of == number);
                let (_, id, name) = found.ok_or_else(damaged)?;
                writer.idempotent(name, to_rdb(id))?;
                Next::Idempotent { producers, number, missing: missing - 1 }
            }
            Next::Nacked { missing: 0, .. } => Next::Group,
            Next::Nacked { group, missing } => {
                let (row, value) = self.views()?.nacked.next_row()?.ok_or_else(damaged)?;
                writer.owned(to_rdb(stream::nacked_in_row(group.number, &row, &value).ok_or_else(damaged)?))?;
                Next::Nacked { group, missing: missing - 1 }
            }
        };
        Ok(true)
    }

    /// Begins with what is kept of producers, behind the groups; whether there is anything.
    fn begin_producers<O: Output>(&mut self, writer: &mut Writer<O>) -> std::result::Result<bool, Broken> {
        self.next = Next::End;
        let Some((kept, _)) = &mut self.kept else { return Ok(false) };
        writer.idempotency(&kept.bounds)?;
        self.next = Next::Producer(std::mem::take(&mut kept.producers).into_iter());
        Ok(true)
    }

    /// Writes what comes behind the producers.
    fn end<O: Output>(&mut self, writer: &mut Writer<O>) -> io::Result<Next> {
        if let Some((kept, _)) = &self.kept {
            writer.idempotency_counts(kept.added, kept.duplicates)?;
        }
        Ok(Next::End)
    }

    fn entry<O: Output>(&mut self, writer: &mut Writer<O>) -> std::result::Result<Next, Broken> {
        let row = match &mut self.entries {
            Some(view) => view.next_row()?,
            None => None,
        };
        let Some((row, value)) = row else {
            if self.missing > 0 {
                return Err(damaged().into());
            }
            end_node(writer, &mut self.node)?;
            writer.stream(&self.head)?;
            return Ok(Next::Group);
        };
        let (Some(id), Some(fields)) = (stream::id_of(&row), Fields::of(&value)) else { return Err(damaged().into()) };
        self.missing = self.missing.checked_sub(1).ok_or_else(damaged)?;
        put_entry(writer, &mut self.grouping, &mut self.node, id, fields)?;
        Ok(Next::Entries)
    }

    fn views(&mut self) -> io::Result<&mut GroupViews> {
        self.views.as_mut().ok_or_else(damaged)
    }

    /// The consumers of the group that comes next, in the order of their numbers.
    fn consumers(&mut self, group: &GroupState) -> std::result::Result<Consumers, Broken> {
        let mut consumers = Vec::new();
        for _ in 0..group.consumers {
            let (row, value) = self.views()?.consumers.next_row()?.ok_or_else(damaged)?;
            let (name, state) = stream::consumer_in_row(group.number, &row, &value).ok_or_else(damaged)?;
            consumers.push((name.to_vec(), state));
        }
        consumers.sort_unstable_by_key(|(_, state)| state.number);
        Ok(consumers.into_iter())
    }
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
            // -1: not known.
            let entries_read = entries_read.map(|read| (read != -1).then_some(read as u64));
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
        Part::Nacked(id) => (0, maker.hand_back(txn, from_rdb(id))?),
        Part::Idempotency(Idempotency { duration_s, ids_max, .. }) => {
            // The reader has checked that both are within Redis's bounds.
            maker.set_bounds(txn, key, duration_s as u32, ids_max as u32)?;
            (0, true)
        }
        Part::Producer { name, .. } => (name.len(), maker.add_producer(name)),
        Part::Idempotent { name, id } => {
            maker.add_idempotent(txn, name, from_rdb(id))?;
            (name.len(), true)
        }
        Part::IdempotencyCounts { added, duplicates } => {
            maker.set_counts(added, duplicates);
            (0, true)
        }
        Part::Ahead { .. } | Part::String(_) | Part::Element(_) | Part::Scored(..) | Part::Field { .. } => {
            unreachable!("a stream has no such parts")
        }
    };
    if is_right { Ok(bytes) } else { Err(Refused::Corrupt("a group, a consumer or a pending entry is there twice")) }
}
