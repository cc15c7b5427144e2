//! Changes of hashes: fields set, added to and removed. A packed hash that outgrows its row moves into rows here, and a hash
//! that has lost its last field goes.

use super::{Form, PLAIN, Place, find, pair, value_of_row};
use crate::element::{self, Head, ROWS_INLINE_MAX};
use crate::extended::Extended;
use crate::key::{self, Entry, Header, Object, PATCH_FROM_BYTES, Tag, Type};
use crate::packed::{self, HEAD_BYTES, Packed, put_string, string_bytes};
use crate::value::encoding::{HASH_LISTPACK, HASH_TABLE};
use crate::{Error, Result, integer};
use haypile_store::{EncodingLimit, Key, RowPresence, Txn};
use smallvec::SmallVec;

/// What a packed hash without deadline begins with.
fn packed_header(deadline_ms: Option<u64>) -> Header {
    Header { tag: Tag::HashPacked, deadline_ms, object: None }
}

/// Sets fields to values, creates the key if it is absent, and returns how many fields are new. The deadline stays.
pub fn set<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Result<u64> {
    if pairs.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    match lookup(txn, key)? {
        Some(entry) => set_in(txn, key, entry, pairs),
        None => {
            let encoding = encoding_for(txn, HASH_LISTPACK, pairs.clone(), pairs.len());
            Packing::empty(None, encoding).set_all(txn, key, pairs)
        }
    }
}

/// Sets a field that is not there yet; whether it was not.
pub fn set_absent(txn: &mut Txn<'_>, key: &Key<'_>, field: &[u8], value: &[u8]) -> Result<bool> {
    let pairs = std::iter::once((field, value));
    match lookup(txn, key)? {
        Some(entry) if super::contains(txn, key, &entry, field)? => Ok(false),
        Some(entry) => set_in(txn, key, entry, pairs).map(|_| true),
        None => {
            let encoding = encoding_for(txn, HASH_LISTPACK, pairs.clone(), 1);
            Packing::empty(None, encoding).set_all(txn, key, pairs).map(|_| true)
        }
    }
}

/// A hash that is going to be changed.
fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Entry>> {
    key::lookup_write(txn, key)?.map(|entry| entry.expect(Type::Hash)).transpose()
}

fn set_in<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: Entry,
    mut pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Result<u64> {
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let encoding = encoding_for(txn, packed.encoding, pairs.clone(), 0);
            match (pairs.len(), pairs.clone().next()) {
                (1, Some((field, value))) => {
                    let place = find(&packed, field)?;
                    let created = place.is_none();
                    put(txn, key, entry, place, encoding, field, value)?;
                    Ok(u64::from(created))
                }
                _ => Packing::of(&entry.header, &packed, encoding).set_all(txn, key, pairs),
            }
        }
        Form::Rows(head) => {
            let encoding = encoding_for(txn, head.encoding, pairs.clone(), 0);
            let mut fields = Fields { head: Head { encoding, ..head }, created: 0 };
            pairs.try_for_each(|(field, value)| fields.set(txn, key, field, value))?;
            fields.finish(txn, key, Some(&entry.header), entry.header.deadline_ms)
        }
    }
}

/// How Redis would hold a hash in which these are set: it never goes back. `new_fields` are expected to be as many as that,
/// where Redis guesses so.
#[inline]
fn encoding_for<'a>(
    txn: &Txn<'_>,
    encoding: u8,
    mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    new_fields: usize,
) -> u8 {
    if encoding != HASH_LISTPACK {
        return encoding;
    }
    let bytes_max = txn.encoding_limit(EncodingLimit::HashValue);
    let is_long = |bytes: &[u8]| bytes.len() as i64 > bytes_max;
    if new_fields as i64 > txn.encoding_limit(EncodingLimit::HashEntries)
        || pairs.any(|(field, value)| is_long(field) || is_long(value))
    {
        return HASH_TABLE;
    }
    HASH_LISTPACK
}

/// The same for a hash that has so many fields now.
#[inline]
fn encoding_of_count(txn: &Txn<'_>, encoding: u8, count: u64) -> u8 {
    let is_table = encoding == HASH_LISTPACK && count as i64 > txn.encoding_limit(EncodingLimit::HashEntries);
    if is_table { HASH_TABLE } else { encoding }
}

/// Puts one value where `place` says into a packed hash, or behind all others.
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
        && place.entry.end - place.bytes == value.len()
        && encoding == packed.encoding
        && entry.payload().len() >= PATCH_FROM_BYTES
    {
        let (offset, len) = (HEAD_BYTES + place.bytes, entry.payload().len());
        drop(entry);
        return key::patch(txn, key, &header, offset, value, len);
    }
    let (before, after) = match &place {
        Some(place) => (&packed.entries[..place.value], &packed.entries[place.entry.end..]),
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
    let entries = [before, &new, after].concat();
    let packing = Packing { before: Some(header), encoding, count: count.into(), entries };
    packing.into_rows(txn, key)?.finish(txn, key, Some(&header), header.deadline_ms)?;
    Ok(())
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

/// A packed hash whose entries are changed many at once.
struct Packing {
    before: Option<Header>,
    encoding: u8,
    count: usize,
    entries: Vec<u8>,
}

impl Packing {
    fn empty(before: Option<Header>, encoding: u8) -> Packing {
        Packing { before, encoding, count: 0, entries: Vec::new() }
    }

    fn of(header: &Header, packed: &Packed<'_>, encoding: u8) -> Packing {
        Packing { before: Some(*header), encoding, count: packed.count.into(), entries: packed.entries.to_vec() }
    }

    fn as_packed(&self) -> Packed<'_> {
        // As many as fit a packed hash, and one.
        Packed { encoding: self.encoding, count: self.count as u16, entries: &self.entries }
    }

    /// Sets the fields and writes what comes of it; returns how many are new.
    fn set_all<'a>(
        mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        mut pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<u64> {
        let mut created = 0;
        while packed::fits(self.entries.len(), self.count) {
            let Some((field, value)) = pairs.next() else {
                let encoding = encoding_of_count(txn, self.encoding, self.count as u64);
                let head = Packed { encoding, ..self.as_packed() }.head();
                let header = packed_header(self.deadline_ms());
                key::write(txn, key, self.before.as_ref(), &header, &[&head, &self.entries])?;
                return Ok(created);
            };
            created += u64::from(self.set(field, value)?);
        }
        let (before, deadline_ms) = (self.before, self.deadline_ms());
        let mut fields = self.into_rows(txn, key)?;
        fields.created = created;
        pairs.try_for_each(|(field, value)| fields.set(txn, key, field, value))?;
        fields.finish(txn, key, before.as_ref(), deadline_ms)
    }

    fn deadline_ms(&self) -> Option<u64> {
        self.before.and_then(|before| before.deadline_ms)
    }

    /// Sets one field; whether it is new.
    fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        match find(&self.as_packed(), field)? {
            Some(place) => {
                let mut new = Entries::new();
                push_string(&mut new, value);
                self.entries.splice(place.value..place.entry.end, new);
                Ok(false)
            }
            None => {
                self.entries.reserve(string_bytes(field) + string_bytes(value));
                put_string(&mut self.entries, field);
                put_string(&mut self.entries, value);
                self.count += 1;
                Ok(true)
            }
        }
    }

    /// Writes the fields as rows of a new object, which nothing names yet.
    fn into_rows(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Fields> {
        let object = Object::new(txn, key)?;
        let head = Head { object, encoding: self.encoding, count: self.count as u64 };
        let rows = head.rows(key);
        let mut reader = self.as_packed().reader();
        while !reader.is_at_end() {
            let (field, value) = pair(&mut reader)?;
            txn.put_row(&rows.element(element::hash(txn, field), field), &[&[PLAIN], value])?;
        }
        Ok(Fields { head, created: 0 })
    }
}

/// A hash in rows that is being changed.
struct Fields {
    head: Head,
    /// Fields that are new.
    created: u64,
}

impl Fields {
    fn set(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, field: &[u8], value: &[u8]) -> Result<()> {
        let row = self.head.rows(key).element(element::hash(txn, field), field);
        if txn.row_presence(&row)? == RowPresence::Absent {
            self.head.count += 1;
            self.created += 1;
        }
        Ok(txn.put_row(&row, &[&[PLAIN], value])?)
    }

    /// Writes the meta row.
    fn finish(
        mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        deadline_ms: Option<u64>,
    ) -> Result<u64> {
        self.head.encoding = encoding_of_count(txn, self.head.encoding, self.head.count);
        let header = Header { tag: Tag::HashRows, deadline_ms, object: Some(self.head.object) };
        key::write(txn, key, before, &header, &[&self.head.encode()])?;
        Ok(self.created)
    }
}

/// What was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub fields: u64,
    /// It was the last one: the key is gone.
    pub key: bool,
}

/// Removes fields.
pub fn delete<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Deleted> {
    if fields.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let Some(entry) = lookup(txn, key)? else { return Ok(Deleted { fields: 0, key: false }) };
    let header = entry.header;
    let (deleted, left) = match Form::of(&entry)? {
        Form::Packed(packed) => {
            let mut packing = Packing::of(&header, &packed, packed.encoding);
            for field in fields {
                if let Some(place) = find(&packing.as_packed(), field)? {
                    packing.entries.drain(place.entry);
                    packing.count -= 1;
                }
            }
            let deleted = u64::from(packed.count) - packing.count as u64;
            if deleted > 0 && packing.count > 0 {
                key::write(txn, key, Some(&header), &header, &[&packing.as_packed().head(), &packing.entries])?;
            }
            (deleted, packing.count as u64)
        }
        Form::Rows(head) => {
            let mut left = head.count;
            for field in fields {
                let row = head.rows(key).element(element::hash(txn, field), field);
                if left > 0 && txn.row_presence(&row)? != RowPresence::Absent {
                    txn.delete_row(&row)?;
                    left -= 1;
                }
            }
            if left < head.count && left > 0 {
                key::write(txn, key, Some(&header), &header, &[&Head { count: left, ..head }.encode()])?;
            }
            (head.count - left, left)
        }
    };
    if left == 0 {
        key::remove(txn, key, &header)?;
    }
    Ok(Deleted { fields: deleted, key: left == 0 })
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

/// Sets a field to what `change` makes of its value.
fn change<R>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    field: &[u8],
    change: impl FnOnce(Option<&[u8]>) -> Result<(R, Digits)>,
) -> Result<R> {
    let Some(entry) = lookup(txn, key)? else {
        let (result, value) = change(None)?;
        let pairs = std::iter::once((field, &value[..]));
        let encoding = encoding_for(txn, HASH_LISTPACK, pairs.clone(), 1);
        Packing::empty(None, encoding).set_all(txn, key, pairs)?;
        return Ok(result);
    };
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let place = find(&packed, field)?;
            let old = place.as_ref().map(|place| &packed.entries[place.bytes..place.entry.end]);
            let (result, value) = change(old)?;
            let encoding = encoding_for(txn, packed.encoding, std::iter::once((field, &value[..])), 0);
            put(txn, key, entry, place, encoding, field, &value)?;
            Ok(result)
        }
        Form::Rows(mut head) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            let before = txn.row(&row)?;
            let old = before.as_deref().map(value_of_row).transpose()?;
            let (result, value) = change(old)?;
            head.encoding = encoding_for(txn, head.encoding, std::iter::once((field, &value[..])), 0);
            head.count += u64::from(before.is_none());
            drop(before);
            txn.put_row(&row, &[&[PLAIN], &value])?;
            Fields { head, created: 0 }.finish(txn, key, Some(&entry.header), entry.header.deadline_ms)?;
            Ok(result)
        }
    }
}
