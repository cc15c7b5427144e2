//! Changes of hashes: fields set, added to and removed. A hash that has lost its last field is removed.

use super::deadline::Timed;
use super::field::Place;
use super::packing::{Deadline, Packing};
use super::rows::Rows;
use super::{Form, find};
use crate::EncodingLimit;
use crate::element::{self, ROWS_INLINE_MAX};
use crate::extended::Extended;
use crate::key::{self, Entry, Header, PATCH_FROM_BYTES, Type};
use crate::packed::{self, HEAD_BYTES, Packed};
use crate::value::encoding::{self, HASH_LISTPACK, HASH_TABLE};
use crate::{Error, Result, integer};
use haypile_store::{Key, Txn};
use smallvec::SmallVec;

/// Sets fields to values, creates the key if it is absent, and returns how many fields are new. The key's deadline
/// stays, those of the fields go.
pub fn set<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Result<u64> {
    let entry = lookup(txn, key)?;
    set_in(txn, key, entry, pairs, Deadline::Is(None))
}

/// Sets fields like `set`, with a deadline that has not passed for the fields, or keeping theirs.
pub fn set_until<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: Option<Entry>,
    pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    timed: Timed,
) -> Result<u64> {
    let deadline = match timed {
        Timed::Keep => Deadline::Keep,
        Timed::Never => Deadline::Is(None),
        Timed::Until(deadline_ms) => Deadline::Is(Some(deadline_ms)),
    };
    set_in(txn, key, entry, pairs, deadline)
}

/// Sets a field that is not there yet; returns whether it was not.
pub fn set_absent(txn: &mut Txn<'_>, key: &Key<'_>, field: &[u8], value: &[u8]) -> Result<bool> {
    let entry = lookup(txn, key)?;
    if let Some(entry) = &entry
        && super::contains(txn, key, entry, field)?
    {
        return Ok(false);
    }
    set_in(txn, key, entry, std::iter::once((field, value)), Deadline::Is(None)).map(|_| true)
}

/// Returns the hash of a key for a writer.
pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    key::lookup_write(txn, key)?.map(|entry| entry.expect(Type::Hash)).transpose()
}

fn set_in<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: Option<Entry>,
    mut pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    deadline: Deadline,
) -> Result<u64> {
    if pairs.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let Some(entry) = entry else {
        let encoding = encoding_for(txn, HASH_LISTPACK, pairs.clone(), pairs.len());
        return set_packed(txn, key, Packing::empty(encoding), pairs, deadline);
    };
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let encoding = encoding_for(txn, packed.encoding, pairs.clone(), 0);
            let is_plain = packed.encoding & encoding::HASH_HAS_DEADLINES == 0 && deadline == Deadline::Is(None);
            match (pairs.len(), pairs.clone().next()) {
                (1, Some((field, value))) if is_plain => {
                    let place = find(&packed, field)?;
                    let created = place.is_none();
                    put(txn, key, entry, place, encoding, field, value)?;
                    Ok(u64::from(created))
                }
                _ => {
                    let mut packing = Packing::of(txn, key, &entry.header, &packed)?;
                    packing.encoding = encoding;
                    set_packed(txn, key, packing, pairs, deadline)
                }
            }
        }
        Form::Rows(head, timing) => {
            let mut rows = Rows::of(&entry, head, timing);
            rows.head.encoding = encoding_for(txn, head.encoding, pairs.clone(), 0);
            let mut created = 0;
            pairs.try_for_each(|(field, value)| {
                created += u64::from(rows.set(txn, key, field, value, deadline)?);
                Result::Ok(())
            })?;
            rows.finish(txn, key)?;
            Ok(created)
        }
    }
}

/// Sets fields of a packed hash, and of the rows that it moves into if they become too many; returns how many are new.
fn set_packed<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    mut packing: Packing,
    mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    deadline: Deadline,
) -> Result<u64> {
    let mut created = 0;
    while packing.fits() {
        let Some((field, value)) = pairs.next() else {
            packing.finish(txn, key)?;
            return Ok(created);
        };
        created += u64::from(packing.set(field, value, deadline)?);
    }
    let mut rows = packing.into_rows(txn, key)?;
    for (field, value) in pairs {
        created += u64::from(rows.set(txn, key, field, value, deadline)?);
    }
    rows.finish(txn, key)?;
    Ok(created)
}

/// Returns the encoding that Redis would use after these fields are set; it never goes back. `new_fields` are expected
/// to be as many as that, where Redis guesses so.
#[inline]
pub(super) fn encoding_for<'a>(
    txn: &Txn<'_>,
    encoding: u8,
    mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    new_fields: usize,
) -> u8 {
    if encoding & encoding::MASK != HASH_LISTPACK {
        return encoding;
    }
    let bytes_max = EncodingLimit::HashValue.of(txn);
    let is_long = |bytes: &[u8]| bytes.len() as i64 > bytes_max;
    if new_fields as i64 > EncodingLimit::HashEntries.of(txn)
        || pairs.any(|(field, value)| is_long(field) || is_long(value))
    {
        return encoding | HASH_TABLE;
    }
    encoding
}

/// Returns the encoding that Redis would use for a hash that has so many fields now.
#[inline]
pub fn encoding_of_count(txn: &Txn<'_>, encoding: u8, count: u64) -> u8 {
    let is_listpack = encoding & encoding::MASK == HASH_LISTPACK;
    let is_table = is_listpack && count as i64 > EncodingLimit::HashEntries.of(txn);
    if is_table { encoding | HASH_TABLE } else { encoding }
}

/// Puts one value where `place` says into a packed hash without deadlines, or behind all others.
fn put(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: Entry,
    place: Option<Place>,
    encoding: u8,
    field: &[u8],
    value: &[u8],
) -> Result<()> {
    let packed = Packed::parse(entry.payload())?;
    let count = packed.count + u16::from(place.is_none());
    let encoding = encoding_of_count(txn, encoding, count.into());
    let header = entry.header;
    if let Some(place) = &place
        && place.value.len() == value.len()
        && encoding == packed.encoding
        && entry.payload().len() >= PATCH_FROM_BYTES
    {
        let (offset, len) = (HEAD_BYTES + place.value.start, entry.payload().len());
        drop(entry);
        return key::patch(txn, key, &header, offset, value, len);
    }
    let (before, after) = match &place {
        Some(place) => (&packed.entries[..place.value_length], &packed.entries[place.entry.end..]),
        None => (packed.entries, &[][..]),
    };
    let mut new = Entries::new();
    if place.is_none() {
        push_string(&mut new, field);
    }
    push_string(&mut new, value);
    let head = Packed { encoding, count, entries: &[] }.head();
    if packed::fits(before.len() + new.len() + after.len(), count.into()) {
        return key::write(txn, key, Some(&header), &header, &[&head, before, &new, after]);
    }
    let mut packing = Packing::of(txn, key, &header, &packed)?;
    packing.encoding = encoding;
    packing.set(field, value, Deadline::Is(None))?;
    packing.finish(txn, key)
}

/// Entries on the stack, unless they are long.
type Entries = SmallVec<[u8; 256]>;

fn push_string(entries: &mut Entries, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        entries.push(length as u8 | 0x80);
        length >>= 7;
    }
    entries.push(length as u8);
    entries.extend_from_slice(bytes);
}

/// The outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub fields: u64,
    /// Whether the last field was among them: the key is gone.
    pub key: bool,
}

/// Removes fields.
pub fn delete<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Deleted> {
    match lookup(txn, key)? {
        Some(entry) => delete_in(txn, key, &entry, fields),
        None => Ok(Deleted { fields: 0, key: false }),
    }
}

/// Removes fields of a hash that was looked up.
pub fn delete_in<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Deleted> {
    if fields.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let header: Header = entry.header;
    let mut deleted = 0;
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let mut packing = Packing::of(txn, key, &header, &packed)?;
            for field in fields {
                deleted += u64::from(packing.remove(field)?);
            }
            if packing.count < packed.count.into() {
                packing.finish(txn, key)?;
            }
        }
        Form::Rows(head, timing) => {
            let mut rows = Rows::of(entry, head, timing);
            for field in fields {
                deleted += u64::from(rows.remove(txn, key, field)?);
            }
            if rows.head.count < head.count {
                rows.finish(txn, key)?;
            }
        }
    }
    let is_gone = deleted > 0 && key::peek(txn, key)?.is_none();
    Ok(Deleted { fields: deleted, key: is_gone })
}

/// Adds `delta` to the number that a field's value spells, 0 if there is no such field, and returns the sum.
pub fn increment(txn: &mut Txn<'_>, key: &Key<'_>, field: &[u8], delta: i64) -> Result<i64> {
    change(txn, key, field, |value| {
        let number = value.map_or(Some(0), integer::parse).ok_or(Error::NotInteger)?;
        let sum = number.checked_add(delta).ok_or(Error::Overflow)?;
        Ok((sum, SmallVec::from_slice(itoa::Buffer::new().format(sum).as_bytes())))
    })
}

/// Adds `delta` to the number that a field's value spells, 0 if there is no such field, and returns the sum as it is
/// spelled then.
pub fn increment_float(txn: &mut Txn<'_>, key: &Key<'_>, field: &[u8], delta: Extended) -> Result<String> {
    change(txn, key, field, |value| {
        let number = value.map_or(Some(Extended::ZERO), Extended::parse).ok_or(Error::NotFloat)?;
        let sum = (number + delta).filter(|sum| sum.is_finite()).ok_or(Error::NotFinite)?.print();
        let bytes = SmallVec::from_slice(sum.as_bytes());
        Ok((sum, bytes))
    })
}

/// Digits of a number.
type Digits = SmallVec<[u8; 32]>;

/// Sets a field to the value that `change` makes of the old one. Its deadline stays.
fn change<R>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    field: &[u8],
    change: impl FnOnce(Option<&[u8]>) -> Result<(R, Digits)>,
) -> Result<R> {
    let Some(entry) = lookup(txn, key)? else {
        let (result, value) = change(None)?;
        set_in(txn, key, None, std::iter::once((field, &value[..])), Deadline::Is(None))?;
        return Ok(result);
    };
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let place = find(&packed, field)?;
            let live = place.as_ref().filter(|place| place.is_live(txn.expiry_ms()));
            let (result, value) = change(live.map(|place| &packed.entries[place.value.clone()]))?;
            let encoding = encoding_for(txn, packed.encoding, std::iter::once((field, &value[..])), 0);
            if packed.encoding & encoding::HASH_HAS_DEADLINES == 0 {
                put(txn, key, entry, place, encoding, field, &value)?;
            } else {
                let mut packing = Packing::of(txn, key, &entry.header, &packed)?;
                packing.encoding = encoding;
                packing.set(field, &value, Deadline::Keep)?;
                packing.finish(txn, key)?;
            }
            Ok(result)
        }
        Form::Rows(head, timing) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            let before = txn.row(&row)?;
            let old = before.as_deref().map(super::stored_in_row).transpose()?;
            let live = old.filter(|old| old.is_live(txn.expiry_ms()));
            let (result, value) = change(live.map(|live| live.value))?;
            let mut rows = Rows::of(&entry, head, timing);
            rows.head.encoding = encoding_for(txn, head.encoding, std::iter::once((field, &value[..])), 0);
            rows.replace(txn, key, field, before.as_ref(), &value, Deadline::Keep)?;
            drop(before);
            rows.finish(txn, key)?;
            Ok(result)
        }
    }
}
