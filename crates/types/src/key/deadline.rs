//! The deadlines of keys, and of the first of a hash's fields: the rows that stand for them, and what is done when they
//! come due.

use super::{Entry, Header, PATCH_FROM_BYTES, put, remove, update_counters_and_rows};
use crate::{Result, event};
use haypile_store::Txn;
use haypile_store::row::{self, Key};
use smallvec::SmallVec;

/// The purpose of a deadline row that came due.
#[derive(Clone, Debug)]
pub enum Due {
    /// A key that this has removed.
    Removed,
    /// Fields of this hash.
    Fields(Entry),
    /// The row calls for nothing that is to be done now.
    Nothing,
}

/// Carries out a deadline row that comes due: removes the key if it still has that deadline and it has passed. A
/// deadline row that its key does not have any more, as an overwrite that did not look may leave it, is removed.
pub fn expire(txn: &mut Txn<'_>, key: &Key<'_>, deadline_ms: u64) -> Result<Due> {
    let entry = txn.meta(key)?.map(Entry::parse).transpose()?;
    let Some(entry) = entry.filter(|entry| deadline_rows(Some(&entry.header)).iter().any(|row| row.0 == deadline_ms))
    else {
        txn.delete_row(&row::expire_row(key, deadline_ms))?;
        return Ok(Due::Nothing);
    };
    let header = entry.header;
    if header.is_expired(txn.expiry_ms()) {
        remove(txn, key, &header)?;
        tell_expired(txn, key, &entry);
        return Ok(Due::Removed);
    }
    let is_of_fields = header.fields.is_some_and(|fields| fields.first_ms == deadline_ms);
    Ok(if is_of_fields && txn.expiry_ms() > deadline_ms { Due::Fields(entry) } else { Due::Nothing })
}

/// Returns the deadline rows of a key, with their values: one for its own deadline, and one for the first of its
/// fields'. Where both are the same, the key's stands for both.
pub(crate) fn deadline_rows(header: Option<&Header>) -> SmallVec<[(u64, &'static [u8]); 2]> {
    let Some(header) = header else { return SmallVec::new() };
    let first = header.fields.map(|fields| fields.first_ms).filter(|first| Some(*first) != header.deadline_ms);
    let rows = header.deadline_ms.map(|deadline| (deadline, &OF_KEY[..])).into_iter();
    rows.chain(first.map(|first| (first, &OF_FIELDS[..]))).collect()
}

/// Values of deadline rows.
const OF_KEY: [u8; 0] = [];
const OF_FIELDS: [u8; 1] = [1];

/// Gives the key this deadline, or none; the value stays.
pub fn set_deadline(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, deadline_ms: Option<u64>) -> Result<()> {
    let after = Header { deadline_ms, ..entry.header };
    update_counters_and_rows(txn, key, Some(&entry.header), Some(&after))?;
    match deadline_ms {
        Some(deadline) if entry.header.deadline_ms.is_some() && entry.row.len() >= PATCH_FROM_BYTES => {
            Ok(txn.patch_meta(key, 2, &deadline.to_be_bytes(), entry.row.len() as u32)?)
        }
        _ => put(txn, key, &after, &[entry.payload()]),
    }
}

/// Tells that a key has expired, by its own deadline or with the last of its fields.
pub(super) fn tell_expired(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) {
    txn.on_expired();
    txn.on_found_expired(key);
    if entry.header.deadline_ms.is_some_and(|deadline| txn.expiry_ms() > deadline) {
        txn.on_event(event::EXPIRED, "expired", key);
    } else {
        txn.on_expired_fields(entry.fields());
        txn.on_event(event::HASH, "hexpired", key);
        txn.on_event(event::GENERIC, "del", key);
    }
}
