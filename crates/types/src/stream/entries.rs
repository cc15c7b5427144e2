//! The entries of a stream: a row for each, in the order of their ids. Adding an entry reads nothing and writes its
//! row; ranges are read where they lie.
//!
//! Reads begin at the first entry that the head knows, never before: entries trimmed away there leave deletions behind,
//! which no read should walk over.

use super::{Kind, Stream, StreamId};
use crate::Result;
use crate::element::{self, ROW_PREFIX_BYTES};
use crate::key::damaged;
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, RowPresence, Txn, Value, View};
use smallvec::SmallVec;
use std::ops::{ControlFlow, RangeInclusive};

/// Bytes of an entry's element: `0: u8 | ms: u64 BE | seq: u64 BE`.
pub const ELEMENT_BYTES: usize = 1 + StreamId::BYTES;

/// Returns the element of an entry's row.
#[inline]
pub fn element_of(id: StreamId) -> [u8; ELEMENT_BYTES] {
    let mut element = [0; ELEMENT_BYTES];
    element[0] = Kind::Entry as u8;
    element[1..].copy_from_slice(&id.to_bytes());
    element
}

/// Returns the id in the key of an entry's row.
#[inline]
pub fn id_of(row: &[u8]) -> Option<StreamId> {
    match row.get(ROW_PREFIX_BYTES..)?.split_first()? {
        (0, id) => Some(StreamId::from_bytes(id.try_into().ok()?)),
        _ => None,
    }
}

/// Most bytes of an entry's fields and values, as in Redis.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Fields and values of an entry, in turn: `(length: LEB128 | bytes)*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<'v> {
    rest: &'v [u8],
    count: usize,
}

impl<'v> Fields<'v> {
    /// Returns the fields in an entry's row; `None` if these are no pairs.
    #[inline]
    pub fn of(value: &'v [u8]) -> Option<Fields<'v>> {
        let (mut rest, mut count) = (value, 0);
        while !rest.is_empty() {
            let (length, behind) = length_of(rest)?;
            rest = behind.get(length..)?;
            count += 1;
        }
        (count > 0 && count % 2 == 0).then_some(Fields { rest: value, count })
    }

    /// Returns the fields in an entry's row, or an error if these are no pairs.
    #[inline]
    pub fn read(value: &'v [u8]) -> Result<Fields<'v>> {
        Fields::of(value).ok_or_else(|| damaged("an entry of a stream", value))
    }

    /// Returns the number of fields and values together.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // An entry has at least one field.
    pub fn len(&self) -> usize {
        self.count
    }
}

impl<'v> Iterator for Fields<'v> {
    type Item = &'v [u8];

    #[inline]
    fn next(&mut self) -> Option<&'v [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (length, behind) = length_of(self.rest)?;
        let (string, rest) = behind.split_at_checked(length)?;
        self.rest = rest;
        self.count -= 1;
        Some(string)
    }
}

/// Splits off a length. Five bytes are enough for any.
#[inline]
fn length_of(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut length, mut at) = (0, 0);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * at);
        at += 1;
        if byte < 0x80 {
            return Some((length, &bytes[at..]));
        }
        if at == 5 {
            return None;
        }
    }
}

#[inline]
fn put_length(bytes: &mut SmallVec<[u8; 256]>, mut length: usize) {
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

impl Stream {
    #[inline]
    fn row(&self, id: StreamId) -> RowKey {
        self.rows.data(&element_of(id))
    }

    /// Adds an entry of at least one field with its value; its id is above all others. Clients that wait for the stream
    /// learn of it. The stream is to be saved then.
    #[inline]
    pub fn append<'f>(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        id: StreamId,
        fields: impl Iterator<Item = &'f [u8]>,
    ) -> Result<()> {
        debug_assert!(id > self.head.last, "ids never go back");
        self.put(txn, id, fields)?;
        self.head.last = id;
        self.head.entries_added = self.head.entries_added.wrapping_add(1);
        if self.is_saved() {
            txn.on_ready(key);
        }
        Ok(())
    }

    /// Puts an entry behind the others, for callers that rebuild a stream from elsewhere and set the rest of the head
    /// themselves.
    #[inline]
    pub fn put<'f>(&mut self, txn: &mut Txn<'_>, id: StreamId, fields: impl Iterator<Item = &'f [u8]>) -> Result<()> {
        let mut value: SmallVec<[u8; 256]> = SmallVec::new();
        for field in fields {
            put_length(&mut value, field.len());
            value.extend_from_slice(field);
        }
        debug_assert!(Fields::of(&value).is_some(), "Invariant: an entry has fields, each with a value");
        debug_assert!(self.head.count == 0 || id > self.head.first, "Invariant: no entry is below the first one");
        txn.put_row(&self.row(id), &[&value])?;
        if self.head.count == 0 {
            self.head.first = id;
        }
        self.head.count += 1;
        Ok(())
    }

    /// Returns the bounds of the rows of the entries in a range; `None` if there can be none.
    fn range(&self, ids: &RangeInclusive<StreamId>) -> Option<(RowKey, RowKey)> {
        let (from, to) = (*ids.start().max(&self.head.first), *ids.end().min(&self.head.last));
        if self.head.count == 0 || from > to {
            return None;
        }
        let until = match to.next() {
            Some(behind) => self.row(behind),
            None => self.rows.data(&[Kind::Group as u8]),
        };
        Some((self.row(from), until))
    }

    /// Shows the entries in a range, up or down, until `visit` breaks. `want` is how many the caller expects to need.
    pub fn visit(
        &self,
        txn: &mut Txn<'_>,
        ids: RangeInclusive<StreamId>,
        direction: Direction,
        want: usize,
        mut visit: impl FnMut(StreamId, Fields<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some((from, until)) = self.range(&ids) else { return Ok(()) };
        let mut ended = Ok(());
        txn.visit(&from, &until, direction, want, |row, value| match (id_of(row), Fields::of(value)) {
            (Some(id), Some(fields)) => visit(id, fields),
            _ => {
                ended = Err(damaged("an entry of a stream", row));
                ControlFlow::Break(())
            }
        })?;
        ended
    }

    /// Shows the ids of the entries in a range, up or down, until `visit` breaks.
    pub fn visit_ids(
        &self,
        txn: &mut Txn<'_>,
        ids: RangeInclusive<StreamId>,
        direction: Direction,
        want: usize,
        mut visit: impl FnMut(StreamId) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some((from, until)) = self.range(&ids) else { return Ok(()) };
        let mut ended = Ok(());
        txn.visit(&from, &until, direction, want, |row, _| match id_of(row) {
            Some(id) => visit(id),
            None => {
                ended = Err(damaged("an entry of a stream", row));
                ControlFlow::Break(())
            }
        })?;
        ended
    }

    /// Returns the first or the last id in a range.
    pub fn edge(
        &self,
        txn: &mut Txn<'_>,
        ids: RangeInclusive<StreamId>,
        direction: Direction,
    ) -> Result<Option<StreamId>> {
        let mut found = None;
        self.visit_ids(txn, ids, direction, 1, |id| {
            found = Some(id);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Returns the highest id of an entry that exists, which may be below the last id given out.
    pub fn last_entry(&self, txn: &mut Txn<'_>) -> Result<Option<StreamId>> {
        self.edge(txn, StreamId::MIN..=StreamId::MAX, Direction::Backward)
    }

    /// Returns the rows of the entries in a range as a view of this moment, to be read later and elsewhere; `None` if
    /// there can be none.
    pub fn view(&self, txn: &mut Txn<'_>, ids: RangeInclusive<StreamId>, direction: Direction) -> Result<Option<View>> {
        match self.range(&ids) {
            Some((from, until)) => Ok(Some(txn.view(&from, &until, direction)?)),
            None => Ok(None),
        }
    }

    /// Returns the value of an entry's row (`Fields::of`), if there is one.
    pub fn get(&self, txn: &mut Txn<'_>, id: StreamId) -> Result<Option<Value>> {
        if !self.may_have(id) {
            return Ok(None);
        }
        Ok(txn.row(&self.row(id))?)
    }

    /// Tells whether there is an entry.
    pub fn has(&self, txn: &mut Txn<'_>, id: StreamId) -> Result<bool> {
        Ok(self.may_have(id) && txn.row_presence(&self.row(id))? != RowPresence::Absent)
    }

    #[inline]
    fn may_have(&self, id: StreamId) -> bool {
        self.head.count > 0 && (self.head.first..=self.head.last).contains(&id)
    }

    /// Removes entries and returns how many there were. If there were any, the stream is to be saved then.
    pub fn remove(&mut self, txn: &mut Txn<'_>, ids: impl Iterator<Item = StreamId>) -> Result<u64> {
        let before = self.head.count;
        let mut first_is_gone = false;
        for id in ids {
            first_is_gone |= self.remove_one(txn, id)? && id == self.head.first;
        }
        self.update_first(txn, first_is_gone)?;
        Ok(before - self.head.count)
    }

    /// Removes an entry and returns whether there was one. `update_first` is to follow.
    pub(super) fn remove_one(&mut self, txn: &mut Txn<'_>, id: StreamId) -> Result<bool> {
        if !self.has(txn, id)? {
            return Ok(false);
        }
        txn.delete_row(&self.row(id))?;
        self.head.count = element::lowered(txn, self.head.count, 1);
        self.head.max_deleted = self.head.max_deleted.max(id);
        Ok(true)
    }

    /// Says which entry is the first one now, after the removal of some.
    pub(super) fn update_first(&mut self, txn: &mut Txn<'_>, first_is_gone: bool) -> Result<()> {
        if self.head.count == 0 {
            self.head.first = StreamId::MIN;
        } else if first_is_gone {
            self.find_first(txn)?;
        }
        Ok(())
    }

    /// Finds the new first entry, which exists, after the removal of the old one.
    fn find_first(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        match self.edge(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward)? {
            Some(first) => {
                self.head.first = first;
                Ok(())
            }
            None => Err(damaged("the count of a stream", &self.head.encode())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_apart_as_they_were_put_together() {
        let strings = [&b""[..], b"v", &[7; 127], &[8; 128], &[9; 20_000], b"end"];
        let mut value = SmallVec::new();
        for string in strings {
            put_length(&mut value, string.len());
            value.extend_from_slice(string);
        }
        let fields = Fields::of(&value).expect("they are pairs");
        assert_eq!(fields.len(), 6);
        assert!(fields.eq(strings));
        assert_eq!(Fields::of(&value[..value.len() - 1]), None, "cut off");
        assert_eq!(Fields::of(&[1, b'a']), None, "a field without value");
        assert_eq!(Fields::of(&[]), None, "no field");
        assert_eq!(Fields::of(&[0xff; 12]), None, "a length without end");
    }
}
