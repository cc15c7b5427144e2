//! The bytes that a stream would take in Redis's memory, and in an RDB file: nodes that are listpacks, under a radix
//! tree of ids.
//!
//! A node begins with the fields of its first entry, and entries with the same fields leave them out. Nodes are taken
//! to be full, as those of a stream are to which entries were only added.

use crate::error::Result;
use crate::memory::sizes::{allocated, extrapolated, listpack_bytes, rdb_bytes, rdb_number_bytes};
use haypile_store::{Direction, Key, Txn};
use haypile_types::EncodingLimit;
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::Entry;
use haypile_types::listpack;
use haypile_types::stream::{Fields, Stream, StreamId};
use std::ops::ControlFlow;

/// Redis's structure for a stream.
const STREAM_BYTES: u64 = 80;

/// The bytes that Redis counts for a node of the radix tree: its header, and thirty words for its content.
const TREE_NODE_BYTES: u64 = 4 + 30 * 8;

/// Redis's structures for a consumer group, a consumer and a pending entry (7.2).
const GROUP_BYTES: u64 = 40;
const CONSUMER_BYTES: u64 = 32;
const PENDING_BYTES: u64 = 24;

/// Pending entries of a group, and of a consumer, that are looked at, and how many if all elements are asked for.
const PENDING_SEEN: usize = 100;
const PENDING_SEEN_MAX: usize = 1 << 16;

/// The node that is being filled is allocated as a whole.
const NODE_BYTES: u64 = 4096;

/// A listpack in the making.
struct Node {
    first: StreamId,
    /// The fields of the first entry, each with its length.
    fields: Vec<u8>,
    entries: u64,
    bytes: u64,
}

fn integer_bytes(value: u64) -> u64 {
    let mut text = Vec::with_capacity(20);
    haypile_resp::number::write_u64(&mut text, value);
    listpack_bytes(&text)
}

/// The names of an entry's fields, so that two entries with the same ones have the same bytes.
fn names(fields: Fields) -> Vec<u8> {
    let mut names = Vec::new();
    for name in fields.step_by(2) {
        names.extend_from_slice(&(name.len() as u64).to_be_bytes());
        names.extend_from_slice(name);
    }
    names
}

impl Node {
    fn begin(id: StreamId, fields: Fields) -> Node {
        let named: u64 = fields.step_by(2).map(listpack_bytes).sum();
        let pairs = fields.len() as u64 / 2;
        // Entries, deleted ones, number of fields, the fields, and a zero.
        let bytes = listpack::EMPTY_BYTES as u64 + 3 * integer_bytes(1) + integer_bytes(pairs) + named;
        Node { first: id, fields: names(fields), entries: 0, bytes }
    }

    fn add(&mut self, id: StreamId, fields: Fields) {
        let has_same = names(fields) == self.fields;
        let pairs = fields.len() as u64 / 2;
        let content: u64 = match has_same {
            true => fields.skip(1).step_by(2).map(listpack_bytes).sum(),
            false => integer_bytes(pairs) + fields.map(listpack_bytes).sum::<u64>(),
        };
        let parts = if has_same { pairs + 3 } else { 2 * pairs + 4 };
        let number = integer_bytes(id.ms - self.first.ms) + integer_bytes(id.seq.wrapping_sub(self.first.seq));
        // An entry is its flags, the distance to the first id, the content, and how many parts that makes.
        self.bytes += integer_bytes(1) + number + content + integer_bytes(parts);
        self.entries += 1;
    }
}

/// Looks at the nodes of a stream from the first one on, until `visit` breaks.
fn visit_nodes(
    txn: &mut Txn,
    stream: &Stream,
    most: u64,
    mut visit: impl FnMut(&Node) -> ControlFlow<()>,
) -> Result<()> {
    let entries_max = u64::try_from(EncodingLimit::StreamNodeEntries.of(txn));
    let entries_max = entries_max.ok().filter(|entries| *entries > 0).unwrap_or(u64::MAX);
    if stream.len().min(most.saturating_mul(entries_max)) > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut node, mut ended): (Option<Node>, _) = (None, false);
    stream.visit(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward, ROWS_INLINE_MAX, |id, fields| {
        let bytes: u64 = fields.map(|field| field.len() as u64).sum();
        if let Some(full) = node.take_if(|node| node.entries >= entries_max || node.bytes + bytes >= NODE_BYTES)
            && visit(&full).is_break()
        {
            ended = true;
            return ControlFlow::Break(());
        }
        node.get_or_insert_with(|| Node::begin(id, fields)).add(id, fields);
        ControlFlow::Continue(())
    })?;
    if let Some(node) = node.filter(|_| !ended) {
        let _ = visit(&node);
    }
    Ok(())
}

/// Estimates the bytes of a stream in Redis: some nodes are looked at and stand for all; the last one is taken to be as
/// large as one that is being filled.
pub(crate) fn in_memory(txn: &mut Txn, key: &Key, entry: &Entry, samples: u64) -> Result<u64> {
    let stream = Stream::of(key, entry)?;
    let (mut nodes, mut entries, mut bytes, mut last) = (0, 0, 0, 0);
    visit_nodes(txn, &stream, samples, |node| {
        nodes += 1;
        entries += node.entries;
        last = allocated(node.bytes);
        bytes += last;
        if nodes < samples { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let all = extrapolated(nodes, entries, stream.len()).max(nodes);
    let bytes = if all == nodes { bytes - last + last.max(NODE_BYTES) } else { extrapolated(bytes, nodes, all) };
    let groups = of_groups(txn, &stream, if samples == u64::MAX { PENDING_SEEN_MAX } else { PENDING_SEEN })?;
    Ok(STREAM_BYTES + all * StreamId::BYTES as u64 + (all + 1) * TREE_NODE_BYTES + bytes + groups)
}

/// The consumer groups: `most` pending entries of each, and of each consumer, stand for all of theirs.
fn of_groups(txn: &mut Txn, stream: &Stream, most: usize) -> Result<u64> {
    let (mut bytes, mut groups, mut rows) = (0, Vec::new(), 0);
    stream.visit_groups(txn, |name, state| {
        rows += 1 + u64::from(state.consumers) + 2 * state.pending.min(most as u64);
        groups.push((name.to_vec(), state));
    })?;
    if rows > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    for (name, state) in &groups {
        let group = stream.group(name, *state);
        let mut ids = Vec::new();
        let all = StreamId::MIN..=StreamId::MAX;
        group.visit_pending(txn, all, Direction::Forward, most, |id, _| more(&mut ids, id, most))?;
        bytes += GROUP_BYTES + tree_bytes(&ids, state.pending) + PENDING_BYTES * state.pending;
        let mut names: Vec<Vec<u8>> = Vec::new();
        group.visit_consumers(txn, |name, _| names.push(name.to_vec()))?;
        for name in names {
            let Some(consumer) = group.consumer(txn, &name)? else { continue };
            ids.clear();
            let all = StreamId::MIN..=StreamId::MAX;
            group.visit_ids_of(txn, &consumer, all, most, |id| more(&mut ids, id, most))?;
            bytes += CONSUMER_BYTES + name.len() as u64 + tree_bytes(&ids, consumer.state.pending);
        }
    }
    Ok(bytes)
}

/// Takes an id, until there are `most`.
fn more(ids: &mut Vec<[u8; StreamId::BYTES]>, id: StreamId, most: usize) -> ControlFlow<()> {
    ids.push(id.to_bytes());
    if ids.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// The bytes that Redis counts for a radix tree of `count` ids, of which these are the first ones.
fn tree_bytes(ids: &[[u8; StreamId::BYTES]], count: u64) -> u64 {
    let nodes = extrapolated(tree_nodes(ids, 0), ids.len() as u64, count).max(1);
    count * StreamId::BYTES as u64 + nodes * TREE_NODE_BYTES
}

/// Nodes of a radix tree of ids, which ascend and are the same up to `from`: where they part there is a node, one at
/// the end of each, and one for all the bytes between two of these.
fn tree_nodes(ids: &[[u8; StreamId::BYTES]], from: usize) -> u64 {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return 0 };
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let between = u64::from(common > from);
    if common == StreamId::BYTES {
        return between + 1;
    }
    let parts = ids.chunk_by(|a, b| a[common] == b[common]);
    between + 1 + parts.map(|ids| tree_nodes(ids, common + 1)).sum::<u64>()
}

/// Nodes, each with its first id, and the header.
pub(crate) fn serialized(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<u64> {
    let stream = Stream::of(key, entry)?;
    let (mut nodes, mut bytes) = (0, 0);
    visit_nodes(txn, &stream, u64::MAX, |node| {
        nodes += 1;
        bytes += rdb_bytes(StreamId::BYTES as u64) + rdb_bytes(node.bytes);
        ControlFlow::Continue(())
    })?;
    let (head, groups) = (&stream.head, stream.groups(txn)?);
    let ids = [head.last, head.first, head.max_deleted].map(|id| [id.ms, id.seq]);
    let counts = [nodes, head.count, head.entries_added, groups.into()];
    Ok(bytes + ids.as_flattened().iter().chain(&counts).map(|number| rdb_number_bytes(*number)).sum::<u64>())
}
