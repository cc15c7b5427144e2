//! Keys: the type, the deadline, the object that holds the value, and how these agree with the rows around them. Owns
//! the meta row's header, the deadline and owner rows, and the counters: every creation, change and removal of a key
//! goes through here, so that they always agree. Never looks at a value. Format: docs/format/rows.md.
//!
//! Invariants, for each key: one meta row; if it has a deadline, exactly one deadline row, at that time, and one at the
//! first deadline of its fields, if any has one; if its value has an object, exactly one owner row, which names the
//! key; and it counts once in `Keys`, once in its type's counter, and once in `Deadlines` if it has one. A key whose
//! deadline has passed reads as absent, but keeps all of these until a write removes it. Every change of a value writes
//! the meta row, even if its bytes stay: that is how others learn that the key was touched.
//!
//! The writes are here. Next: `header` (the type, the object, the beginning of a meta row), `lookups` (a key as readers
//! and writers see it), `deadline` (keys that expire).

mod deadline;
mod header;
mod lookups;

pub(crate) use deadline::deadline_rows;
pub use deadline::{Due, expire, set_deadline};
pub(crate) use header::damaged;
pub use header::{Entry, FieldTimes, Header, NEVER_MS, Object, PLAIN, Tag, Type};
pub use lookups::{
    count_lookup, inspect, lookup, lookup_overwrite, lookup_unused, lookup_update, lookup_version, lookup_write, peek,
};

use crate::{Result, event};
use haypile_store::row::{self, Key};
use haypile_store::{Counter, Txn, Value};
use header::HEADER_BYTES_MAX;

/// Writes the key: `before` is its old header, `after` the new one, with the payload in parts (four at most). An object
/// of `before` that is not one of `after` is abandoned with this.
#[inline]
pub fn write(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    after: &Header,
    payload: &[&[u8]],
) -> Result<()> {
    if before != Some(after) {
        update_counters_and_rows(txn, key, before, Some(after))?;
    }
    put(txn, key, after, payload)
}

/// Changes `bytes` at `offset` of the payload, which is `len_after` bytes long afterwards; the header stays. The cost
/// is that of the change, not of the row.
pub fn patch(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    offset: usize,
    bytes: &[u8],
    len_after: usize,
) -> Result<()> {
    let at = header.bytes_len();
    Ok(txn.patch_meta(key, (at + offset) as u32, bytes, (at + len_after) as u32)?)
}

/// Patches like `patch`, for a caller that has just read the entry and gives its payload back: the row changes in place
/// if that is the only handle on it.
pub fn patch_read(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    payload: Value,
    offset: usize,
    bytes: &[u8],
    len_after: usize,
) -> Result<()> {
    let (at, row) = (header.bytes_len(), row::meta_row(key));
    let read = Some(row_of(header, payload));
    Ok(txn.patch_read_row(&row, read, (at + offset) as u32, bytes, (at + len_after) as u32)?)
}

/// Puts `bytes` in place of the `removed` ones at `offset` of the payload, for a caller that has just read the entry
/// and gives its payload back, as in `patch_read`.
pub fn splice_read(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    header: &Header,
    payload: Value,
    offset: usize,
    removed: usize,
    bytes: &[u8],
) -> Result<()> {
    let at = (header.bytes_len() + offset) as u32;
    Ok(txn.splice_read_row(&row::meta_row(key), Some(row_of(header, payload)), at, removed as u32, bytes)?)
}

/// Returns the row of a payload, as the same handle on it.
fn row_of(header: &Header, payload: Value) -> Value {
    let (block, range) = payload.into_parts();
    Value::new(block, range.start as usize - header.bytes_len()..range.end as usize)
}

/// Removes the key: two or three rows, whatever its size.
pub fn remove(txn: &mut Txn<'_>, key: &Key<'_>, before: &Header) -> Result<()> {
    update_counters_and_rows(txn, key, Some(before), None)?;
    Ok(txn.delete_meta(key)?)
}

/// Removes the key if readers see one, and says whether they did. An expired one is removed, too.
pub fn delete(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<bool> {
    let Some(entry) = lookup_write(txn, key)? else { return Ok(false) };
    remove(txn, key, &entry.header)?;
    Ok(true)
}

/// A row of at least this many bytes is patched where a small part of it changes; a shorter one is written again.
pub(crate) const PATCH_FROM_BYTES: usize = 256;

/// Moves the value of `from` to `to`, another key of the same database; `to_before` is the old header of `to`. The
/// value's rows stay where they are.
pub fn rename(
    txn: &mut Txn<'_>,
    from: &Key<'_>,
    entry: &Entry,
    to: &Key<'_>,
    to_before: Option<&Header>,
) -> Result<()> {
    debug_assert!(from != to, "a key is not renamed to itself");
    txn.move_access(from, to);
    // Without its object, the old name gives up everything but the owner row, which the new name then writes.
    let left = Header { object: None, ..entry.header };
    update_counters_and_rows(txn, from, Some(&left), None)?;
    txn.delete_meta(from)?;
    update_counters_and_rows(txn, to, to_before, Some(&entry.header))?;
    note_arrived(txn, to, to_before, &entry.header);
    if to_before.is_some() {
        // The old value of the name is gone, as in Redis.
        txn.on_event(event::NEW, "new", to);
    }
    put(txn, to, &entry.header, &[entry.payload()])
}

/// Notes a value that takes the place of another one under its name: somebody may wait for it, or for as many elements
/// as it has. What a command stores over a value serves nobody who waits, as in Redis.
pub(crate) fn note_arrived(txn: &mut Txn<'_>, key: &Key<'_>, before: Option<&Header>, after: &Header) {
    if before.is_some() && after.type_of().is_awaited() {
        txn.on_ready(key);
    }
}

/// Writes the meta row itself.
fn put(txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, payload: &[&[u8]]) -> Result<()> {
    // In a dry run the rows may be of two moments.
    if cfg!(debug_assertions) && !txn.is_dry_run() {
        header.assert_sound(payload[0]);
    }
    let mut bytes = [0; HEADER_BYTES_MAX];
    let header = if *header == Header::inline(None) { &PLAIN } else { header.encode(&mut bytes) };
    match payload {
        [one] => txn.put_meta(key, &[header, one])?,
        [one, two] => txn.put_meta(key, &[header, one, two])?,
        [one, two, three] => txn.put_meta(key, &[header, one, two, three])?,
        [one, two, three, four] => txn.put_meta(key, &[header, one, two, three, four])?,
        _ => unreachable!("payloads come in one to four parts"),
    }
    Ok(())
}

/// Moves the counters, the deadline rows and the owner row of a key from its header `before` to its header `after`.
fn update_counters_and_rows(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    after: Option<&Header>,
) -> Result<()> {
    let types = (before.map(Header::type_of), after.map(Header::type_of));
    if types.0 != types.1 {
        if let Some(was) = types.0 {
            txn.count(key.space, was.counter(), -1);
        }
        if let Some(is) = types.1 {
            txn.count(key.space, is.counter(), 1);
        }
        // Readers of a stream for a consumer group wait for its removal, too.
        let is_new = types.0.is_none() && types.1.is_some_and(Type::is_awaited);
        if is_new || types.0 == Some(Type::Stream) {
            txn.on_ready(key);
        }
        match types {
            (None, Some(_)) => {
                txn.count(key.space, Counter::Keys, 1);
                txn.on_event(event::NEW, "new", key);
            }
            (Some(_), None) => txn.count(key.space, Counter::Keys, -1),
            _ => {}
        }
    }
    let deadlines = (before.and_then(|h| h.deadline_ms), after.and_then(|h| h.deadline_ms));
    let fields = (before.and_then(|h| h.fields), after.and_then(|h| h.fields));
    if deadlines.0 != deadlines.1 || fields.0 != fields.1 {
        let (were, are) = (deadline_rows(before), deadline_rows(after));
        for (was, _) in were.iter().filter(|was| are.iter().all(|is| is.0 != was.0)) {
            txn.delete_row(&row::expire_row(key, *was))?;
        }
        for (is, value) in are.iter().filter(|is| !were.contains(is)) {
            txn.put_row(&row::expire_row(key, *is), &[value])?;
        }
        let changes = [
            (Counter::Deadlines, deadlines.0.is_some(), deadlines.1.is_some()),
            (Counter::FieldDeadlines, fields.0.is_some(), fields.1.is_some()),
        ];
        for (counter, was, is) in changes {
            if was != is {
                txn.count(key.space, counter, if is { 1 } else { -1 });
            }
        }
    }
    let objects = (before.and_then(|h| h.object), after.and_then(|h| h.object));
    if objects.0 != objects.1 {
        if let Some(was) = objects.0 {
            txn.delete_row(&row::owner_row(key.space, was.slot, was.id))?;
        }
        if types == (Some(Type::Stream), Some(Type::Stream)) {
            // Another stream has taken the place of one that readers wait for.
            txn.on_ready(key);
        }
        if let Some(is) = objects.1 {
            txn.put_row(&row::owner_row(key.space, is.slot, is.id), &[key.name])?;
        }
    }
    Ok(())
}
