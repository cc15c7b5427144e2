//! The lookups of a key, as readers see it and as writers do.

use super::deadline::tell_expired;
use super::{Entry, Header, remove};
use crate::{Result, event};
use haypile_store::row::Key;
use haypile_store::{Presence, Txn, Value, Version};

/// Returns the key as readers see it: one whose deadline has passed is absent. Counts a reader.
#[inline]
pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let row = txn.use_meta(key)?;
    let entry = as_readers_see(txn, key, row)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, and which version of its meta row that is, as far as it has one. Counts a reader.
pub fn lookup_version(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<(Entry, Option<Version>)>> {
    let (row, version) = txn.use_meta_version(key)?;
    let entry = as_readers_see(txn, key, row)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry.map(|entry| (entry, version)))
}

/// Returns the key as readers see it and counts a reader, for callers that do not use the value: it stays as idle as it
/// was.
pub fn lookup_unused(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = peek(txn, key)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, for callers that look at its layout: counts a reader, but tells of no miss.
pub fn inspect(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = peek(txn, key)?;
    txn.on_lookup(entry.is_some());
    Ok(entry)
}

/// Returns the key as readers see it, without counting a reader.
pub fn peek(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let row = txn.meta(key)?;
    as_readers_see(txn, key, row)
}

#[inline]
fn as_readers_see(txn: &mut Txn<'_>, key: &Key<'_>, row: Option<Value>) -> Result<Option<Entry>> {
    let Some(row) = row else { return Ok(None) };
    let entry = Entry::parse(row)?;
    if entry.header.is_expired(txn.expiry_ms()) {
        txn.on_found_expired(key);
        return Ok(None);
    }
    Ok(Some(entry))
}

/// Returns the key as writers see it, and counts a reader: for commands that read a key and then write it.
pub fn lookup_update(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let entry = lookup_write(txn, key)?;
    on_lookup(txn, key, entry.is_some());
    Ok(entry)
}

/// Counts a reader of a key that was looked up before and is looked up again.
#[inline]
pub fn count_lookup(txn: &mut Txn<'_>, key: &Key<'_>, found: bool) {
    on_lookup(txn, key, found);
}

#[inline]
fn on_lookup(txn: &mut Txn<'_>, key: &Key<'_>, found: bool) {
    txn.on_lookup(found);
    if !found {
        txn.on_event(event::KEY_MISS, "keymiss", key);
    }
}

/// Returns the key as writers see it: one whose deadline has passed is removed first.
pub fn lookup_write(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    let Some(row) = txn.use_meta(key)? else { return Ok(None) };
    let entry = Entry::parse(row)?;
    if let Some(end_ms) = entry.header.ends_ms().filter(|_| entry.header.is_expired(txn.expiry_ms())) {
        remove(txn, key, &entry.header)?;
        txn.on_lapsed(key, end_ms);
        tell_expired(txn, key, &entry);
        return Ok(None);
    }
    Ok(Some(entry))
}

/// Returns the header of a key that is about to be overwritten, an expired one too; does not read a plain string's
/// bytes.
#[inline]
pub fn lookup_overwrite(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Header>> {
    match txn.presence(key)? {
        Presence::Absent => Ok(None),
        Presence::Plain => Ok(Some(Header::inline(None))),
        Presence::Row(row) => {
            let entry = Entry::parse(row)?;
            if entry.header.is_expired(txn.expiry_ms()) {
                // An expired key counts as absent: the write makes a new key.
                tell_expired(txn, key, &entry);
                txn.on_event(event::NEW, "new", key);
                txn.on_ready(key);
                txn.forget_access(key);
            }
            Ok(Some(entry.header))
        }
    }
}
