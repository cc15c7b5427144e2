//! A list in its meta row: elements from head to tail, one after the other.

use super::{Side, encoding_after};
use crate::key::{self, Header, Tag};
use crate::packed::{self, Packed, Reader};
use crate::value::encoding;
use crate::{Result, listpack};
use haypile_store::{Direction, Key, Txn, Value};
use std::ops::{ControlFlow, Range};

/// A list in its meta row; without a payload if the list does not exist yet.
#[derive(Clone, Debug)]
pub(super) struct PackedList {
    payload: Option<Value>,
    pub encoding: u8,
    count: u16,
}

impl Default for PackedList {
    fn default() -> Self {
        PackedList { payload: None, encoding: encoding::LIST_LISTPACK, count: 0 }
    }
}

/// Bytes by which an entry of a listpack may exceed one of ours, whose strings are at most a kilobyte.
const LISTPACK_EXTRA_BYTES: usize = 3;

impl PackedList {
    #[inline]
    pub fn of(payload: Value) -> Result<PackedList> {
        let Packed { encoding, count, .. } = Packed::parse(&payload)?;
        Ok(PackedList { payload: Some(payload), encoding, count })
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    #[inline]
    fn entries(&self) -> &[u8] {
        self.payload.as_ref().map_or(&[], |payload| &payload[packed::HEAD_BYTES..])
    }

    fn reader(&self) -> Reader<'_> {
        self.packed().reader()
    }

    fn packed(&self) -> Packed<'_> {
        Packed { encoding: self.encoding, count: self.count, entries: self.entries() }
    }

    /// Returns `encoding | count` with `count` elements.
    #[inline]
    fn head(&self, count: usize) -> [u8; packed::HEAD_BYTES] {
        Packed { encoding: self.encoding, count: count as u16, entries: &[] }.head()
    }

    /// Returns the elements, head first.
    pub fn elements(&self) -> Result<Vec<&[u8]>> {
        let mut reader = self.reader();
        let mut elements = Vec::with_capacity(self.len());
        for _ in 0..self.count {
            elements.push(reader.string()?);
        }
        Ok(elements)
    }

    /// Returns where the entry at `index` begins and ends.
    fn place(&self, index: usize) -> Result<Range<usize>> {
        let mut reader = self.reader();
        for _ in 0..index {
            reader.string()?;
        }
        let start = reader.position();
        reader.string()?;
        Ok(start..reader.position())
    }

    /// Returns the bytes of the entries in `range`.
    fn byte_range(&self, range: &Range<usize>) -> Result<Range<usize>> {
        let mut reader = self.reader();
        for _ in 0..range.start {
            reader.string()?;
        }
        let start = reader.position();
        for _ in range.clone() {
            reader.string()?;
        }
        Ok(start..reader.position())
    }

    /// Tells whether anything follows the last element.
    pub fn has_more(&self) -> bool {
        let mut reader = self.reader();
        (0..self.count).any(|_| reader.string().is_err()) || !reader.is_at_end()
    }

    /// Returns the bytes of Redis's listpack.
    pub fn listpack_bytes(&self) -> Result<usize> {
        Ok(listpack::EMPTY_BYTES + self.elements()?.into_iter().map(listpack::entry_bytes).sum::<usize>())
    }

    /// Raises the encoding to that of the list after `added` elements of `bytes` together are added.
    #[inline]
    pub fn grow(&mut self, txn: &Txn<'_>, bytes: usize, added: usize) -> Result<()> {
        if self.encoding != encoding::LIST_LISTPACK {
            return Ok(());
        }
        let count = (self.len() + added) as u64;
        let at_most = listpack::EMPTY_BYTES + self.entries().len() + LISTPACK_EXTRA_BYTES * self.len();
        let after = encoding_after(txn, self.encoding, at_most + bytes, count);
        if after != self.encoding {
            self.encoding = encoding_after(txn, self.encoding, self.listpack_bytes()? + bytes, count);
        }
        Ok(())
    }

    /// Tells whether the list stays in its meta row with so many more bytes of entries and so many more entries.
    #[inline]
    pub fn has_room(&self, added_bytes: usize, added: usize) -> bool {
        packed::fits(self.entries().len() + added_bytes, self.len() + added)
    }

    /// Adds elements, for which there is room, and returns the length then.
    #[inline]
    pub fn push<'e>(
        &self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        side: Side,
        elements: impl Iterator<Item = &'e [u8]>,
        added_bytes: usize,
    ) -> Result<u64> {
        let (mut added, mut count) = (Vec::with_capacity(added_bytes), self.len());
        for element in elements {
            count += 1;
            packed::put_string(&mut added, element);
            if side == Side::Head {
                // Later elements go before earlier ones.
                added.rotate_right(packed::string_bytes(element));
            }
        }
        let head = self.head(count);
        let parts: [&[u8]; 3] = match side {
            Side::Head => [&head, &added, self.entries()],
            Side::Tail => [&head, self.entries(), &added],
        };
        key::write(txn, key, before, &header_of(before), &parts)?;
        Ok(count as u64)
    }

    pub fn pop(self, txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, side: Side) -> Result<Value> {
        let last = self.len() - 1;
        let index = if side == Side::Head { 0 } else { last };
        let element = self.get(index)?;
        match (last, side) {
            (0, _) => key::remove(txn, key, header)?,
            (_, Side::Head) => self.trim(txn, key, header, 1..self.len())?,
            (_, Side::Tail) => self.trim(txn, key, header, 0..last)?,
        }
        Ok(element)
    }

    pub fn get(&self, index: usize) -> Result<Value> {
        let place = self.place(index)?;
        let element = Packed { entries: &self.entries()[place.clone()], ..self.packed() }.reader().string()?.len();
        let end = packed::HEAD_BYTES + place.end;
        Ok(self.payload.as_ref().expect("what has an element has a row").slice(end - element..end))
    }

    pub fn visit(
        &self,
        range: Range<usize>,
        direction: Direction,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if direction == Direction::Backward {
            let _ = self.elements()?[range].iter().rev().try_for_each(|element| visit(element));
            return Ok(());
        }
        let mut reader = self.reader();
        for index in 0..range.end {
            let element = reader.string()?;
            if index >= range.start && visit(element).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub fn trim(&self, txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, keep: Range<usize>) -> Result<()> {
        let place = self.byte_range(&keep)?;
        key::write(txn, key, Some(header), header, &[&self.head(keep.len()), &self.entries()[place]])
    }

    pub fn touch(&self, txn: &mut Txn<'_>, key: &Key<'_>, header: &Header) -> Result<()> {
        key::write(txn, key, Some(header), header, &[&self.head(self.len()), self.entries()])
    }

    /// Puts an element into the place of the one at `index`; returns false if there is no room for it.
    pub fn set(&self, txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, index: usize, element: &[u8]) -> Result<bool> {
        let place = self.place(index)?;
        self.splice(txn, key, header, place, self.len(), element)
    }

    /// Adds an element before the one at `index`; returns false if there is no room for it.
    pub fn insert(
        &self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        header: &Header,
        index: usize,
        element: &[u8],
    ) -> Result<bool> {
        let at = self.place(index)?.start;
        self.splice(txn, key, header, at..at, self.len() + 1, element)
    }

    fn splice(
        &self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        header: &Header,
        place: Range<usize>,
        count: usize,
        element: &[u8],
    ) -> Result<bool> {
        let entries = self.entries();
        if !packed::fits(entries.len() - place.len() + packed::string_bytes(element), count) {
            return Ok(false);
        }
        let mut entry = Vec::with_capacity(packed::string_bytes(element));
        packed::put_string(&mut entry, element);
        let parts: [&[u8]; 4] = [&self.head(count), &entries[..place.start], &entry, &entries[place.end..]];
        key::write(txn, key, Some(header), header, &parts)?;
        Ok(true)
    }

    /// Removes elements that equal `element`, at most `limit` of them, from one side on, and returns how many. Writes
    /// nothing if these are none or all.
    pub fn remove(
        &self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        header: &Header,
        from: Side,
        limit: usize,
        element: &[u8],
    ) -> Result<usize> {
        let elements = self.elements()?;
        let equal = elements.iter().filter(|candidate| **candidate == element).count();
        let removed = equal.min(limit);
        if removed == 0 || removed == elements.len() {
            return Ok(removed);
        }
        // The first of the equal elements are removed, or the last.
        let gone = if from == Side::Head { 0..removed } else { equal - removed..equal };
        let (mut entries, mut seen) = (Vec::with_capacity(self.entries().len()), 0);
        for candidate in &elements {
            if *candidate == element {
                seen += 1;
                if gone.contains(&(seen - 1)) {
                    continue;
                }
            }
            packed::put_string(&mut entries, candidate);
        }
        key::write(txn, key, Some(header), header, &[&self.head(elements.len() - removed), &entries])?;
        Ok(removed)
    }
}

fn header_of(before: Option<&Header>) -> Header {
    Header {
        tag: Tag::ListPacked,
        deadline_ms: before.and_then(|before| before.deadline_ms),
        fields: None,
        object: None,
    }
}
