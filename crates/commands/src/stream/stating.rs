//! Statements about streams and their groups: a Redis that follows is told who has which entries, as Redis tells its
//! own replicas (`t_stream.c`).

use crate::statement::{digits, state};
use haypile_store::{Key, Txn};
use haypile_types::stream::{Group, StreamId};
use smallvec::SmallVec;

/// An entry that was given to a consumer, with how often it has been delivered by now.
pub(super) type Given = (StreamId, u64);

fn text(id: StreamId) -> SmallVec<[u8; 48]> {
    let mut text = SmallVec::new();
    text.extend_from_slice(&digits(id.ms));
    text.push(b'-');
    text.extend_from_slice(&digits(id.seq));
    text
}

/// States that a consumer was given these entries at a time, in milliseconds since 1970.
pub(super) fn state_given(
    txn: &mut Txn,
    key: &Key,
    group: &Group,
    consumer: &[u8],
    given: &[Given],
    delivered_ms: u64,
) {
    if !txn.states() {
        return;
    }
    for alike in given.chunk_by(|(_, one), (_, other)| one == other) {
        let ids: Vec<_> = alike.iter().map(|(id, _)| text(*id)).collect();
        let (time, deliveries, last) = (digits(delivered_ms), digits(alike[0].1), text(group.state.last));
        let mut words: Vec<&[u8]> = vec![b"XCLAIM", key.name, group.name, consumer, b"0"];
        words.extend(ids.iter().map(|id| &id[..]));
        words.extend([&b"TIME"[..], &time, b"RETRYCOUNT", &deliveries, b"FORCE", b"JUSTID", b"LASTID", &last]);
        state(txn, &words);
    }
}

/// States how far a group has read its stream.
pub(super) fn state_read(txn: &mut Txn, key: &Key, group: &Group) {
    if txn.states() {
        let (last, read) = (text(group.state.last), group.state.entries_read.map(digits));
        let read: &[u8] = read.as_deref().unwrap_or(b"-1");
        state(txn, &[b"XGROUP", b"SETID", key.name, group.name, &last, b"ENTRIESREAD", read]);
    }
}

/// States that a group has a consumer.
pub(super) fn state_consumer(txn: &mut Txn, key: &Key, group: &Group, consumer: &[u8]) {
    state(txn, &[b"XGROUP", b"CREATECONSUMER", key.name, group.name, consumer]);
}

/// States that entries of a group are pending no more.
pub(super) fn state_released(txn: &mut Txn, key: &Key, group: &[u8], ids: &[StreamId]) {
    state_ids(txn, &[b"XACK", key.name, group], ids);
}

/// States that entries were removed.
pub(super) fn state_removed(txn: &mut Txn, key: &Key, ids: &[StreamId]) {
    state_ids(txn, &[b"XDEL", key.name], ids);
}

fn state_ids(txn: &mut Txn, words: &[&[u8]], ids: &[StreamId]) {
    if txn.states() && !ids.is_empty() {
        let ids: Vec<_> = ids.iter().map(|id| text(*id)).collect();
        let words: Vec<&[u8]> = words.iter().copied().chain(ids.iter().map(|id| &id[..])).collect();
        state(txn, &words);
    }
}

/// States that an entry was added to a stream, of which so many are left where others were trimmed away.
pub(super) fn state_added<'a>(
    txn: &mut Txn,
    key: &Key,
    id: StreamId,
    fields: impl Iterator<Item = &'a [u8]>,
    trimmed_to: Option<u64>,
) {
    if !txn.states() {
        return;
    }
    let (id, length) = (text(id), trimmed_to.map(digits));
    let fields: Vec<&[u8]> = fields.collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", key.name];
    if let Some(length) = &length {
        words.extend([&b"MAXLEN"[..], b"=", length]);
    }
    words.push(&id);
    words.extend(&fields);
    state(txn, &words);
}

/// States that the oldest entries of a stream were trimmed away, of which so many are left.
pub(super) fn state_trimmed(txn: &mut Txn, key: &Key, left: u64) {
    if txn.states() {
        state(txn, &[b"XTRIM", key.name, b"MAXLEN", b"=", &digits(left)]);
    }
}
