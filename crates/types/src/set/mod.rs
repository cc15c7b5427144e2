//! Sets: the members in the meta row while they are few and short (`packed`), else a row for each (`element`). Owns
//! that choice, and how a set is read and how members come and go. The encodings of Redis are in `encoding`, several
//! sets at once in `merge`, random members in `draw`. Format: docs/format/set.md.

pub mod draw;
pub(crate) mod encoding;
pub mod merge;
pub mod store;

use crate::element::{self, HASH_BYTES, Head, ROW_PREFIX_BYTES, Rows};
use crate::key::{self, Entry, Header, Object, PATCH_FROM_BYTES, Tag, Type};
use crate::packed::{self, Packed, Reader};
use crate::set::encoding::Limits;
use crate::value::encoding::{MASK, SET_INTSET};
use crate::{Result, integer};
use haypile_store::{Direction, Key, RowPresence, Txn, Value};
use std::ops::ControlFlow;

/// A set that was looked up.
#[derive(Clone, Debug)]
pub struct Set {
    entry: Entry,
    /// The encoding that Redis would report.
    pub encoding: u8,
    count: u64,
    /// The rows of the members; `None` if the members are in the meta row.
    rows: Option<Rows>,
}

impl Set {
    /// Returns the set of a key that was looked up; an error if it holds something else.
    #[inline]
    pub fn of(key: &Key<'_>, entry: Entry) -> Result<Set> {
        let entry = entry.expect(Type::Set)?;
        if entry.header.tag == Tag::SetPacked {
            let Packed { encoding, count, .. } = Packed::parse(entry.payload())?;
            return Ok(Set { entry, encoding: encoding & MASK, count: u64::from(count), rows: None });
        }
        let (head, _) = Head::parse(&entry, 0)?;
        Ok(Set { encoding: head.encoding & MASK, count: head.count, rows: Some(head.rows(key)), entry })
    }

    /// Returns the set of a key for a reader, and counts one.
    #[inline]
    pub fn lookup(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Set>> {
        key::lookup(txn, key)?.map(|entry| Set::of(key, entry)).transpose()
    }

    pub fn header(&self) -> &Header {
        &self.entry.header
    }

    /// Returns the number of members, which is never 0.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns where the members are if they have rows of their own.
    pub fn rows(&self) -> Option<Rows> {
        self.rows
    }

    /// Returns the members of a set that has no rows.
    pub(crate) fn packed(&self) -> Result<Packed<'_>> {
        Packed::parse(self.entry.payload())
    }

    /// Returns the whole payload, sharing the row's bytes.
    pub(crate) fn into_payload(self) -> Value {
        self.entry.into_payload()
    }

    #[inline]
    pub fn contains(&self, txn: &mut Txn<'_>, member: &[u8]) -> Result<bool> {
        match &self.rows {
            None => Ok(find(self.packed()?.reader(), member)?.is_some()),
            Some(rows) => has_row(txn, rows, member),
        }
    }

    /// Looks at every member, until `visit` breaks: for sets that are not too large for where the command runs.
    pub fn visit(&self, txn: &mut Txn<'_>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        let Some(rows) = &self.rows else {
            let mut reader = self.packed()?.reader();
            while !reader.is_at_end() {
                if visit(reader.string()?).is_break() {
                    break;
                }
            }
            return Ok(());
        };
        let (from, until) = rows.from_hash(0);
        let want = self.count.min(usize::MAX as u64) as usize;
        Ok(txn.visit(&from, &until, Direction::Forward, want, |row, _| match element::of_row(row) {
            Some((_, member)) => visit(member),
            None => ControlFlow::Continue(()),
        })?)
    }
}

/// Returns where a member begins and ends among the entries.
fn find(mut reader: Reader<'_>, member: &[u8]) -> Result<Option<(usize, usize)>> {
    while !reader.is_at_end() {
        let start = reader.position();
        if reader.string()? == member {
            return Ok(Some((start, reader.position())));
        }
    }
    Ok(None)
}

pub(crate) fn has_row(txn: &mut Txn<'_>, rows: &Rows, member: &[u8]) -> Result<bool> {
    let row = rows.element(element::hash(txn, member), member);
    Ok(txn.row_presence(&row)? != RowPresence::Absent)
}

/// Adds members to the set of a key, which may be absent, and returns how many were new. There is at least one.
pub fn add<'m>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: Option<Entry>,
    members: impl ExactSizeIterator<Item = &'m [u8]> + Clone,
) -> Result<u64> {
    let limits = Limits::of(txn);
    let hint = members.len() as u64;
    let Some(entry) = entry else {
        let Some(first) = members.clone().next() else { return Ok(0) };
        let growing = Growing::new(limits.fresh(first, hint), None);
        return growing.add_all(txn, key, &limits, members);
    };
    let set = Set::of(key, entry)?;
    let encoding = limits.hinted(set.encoding, hint);
    if set.rows.is_none() && hint == 1 {
        return add_one(txn, key, &limits, set, members);
    }
    let mut growing = Growing::new(encoding, Some(set.entry.header));
    growing.count = set.count;
    match set.rows {
        Some(rows) => growing.rows = Some(rows),
        None => growing.entries.extend_from_slice(set.packed()?.entries),
    }
    growing.add_all(txn, key, &limits, members)
}

/// Adds one member to a packed set: the most frequent case, without a copy of the others.
fn add_one<'m>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    limits: &Limits,
    set: Set,
    members: impl ExactSizeIterator<Item = &'m [u8]> + Clone,
) -> Result<u64> {
    let (Some(member), packed) = (members.clone().next(), set.packed()?) else { return Ok(0) };
    if find(packed.reader(), member)?.is_some() {
        return Ok(0);
    }
    let header = set.entry.header;
    if !packed::fits(packed.entries.len() + packed::string_bytes(member), set.count as usize + 1) {
        let mut growing = Growing::new(set.encoding, Some(header));
        (growing.count, growing.entries) = (set.count, packed.entries.to_vec());
        return growing.add_all(txn, key, limits, members);
    }
    let encoding = limits.added(set.encoding, set.count, member, || longest(packed.reader()))?;
    let head = Packed { encoding, count: packed.count + 1, entries: &[] }.head();
    let item = packed::item(member);
    let payload_bytes = packed::HEAD_BYTES + packed.entries.len();
    if encoding == SET_INTSET {
        let (before, after) = packed.entries.split_at(place_of_integer(packed.reader(), member)?);
        if cfg!(debug_assertions) {
            assert_order(encoding, &[before, &item, after].concat());
        }
        key::write(txn, key, Some(&header), &header, &[&head, before, &item, after])?;
    } else if payload_bytes >= PATCH_FROM_BYTES {
        drop(set);
        key::patch(txn, key, &header, 0, &head, payload_bytes)?;
        key::patch(txn, key, &header, payload_bytes, &item, payload_bytes + item.len())?;
    } else {
        key::write(txn, key, Some(&header), &header, &[&head, packed.entries, &item])?;
    }
    Ok(1)
}

/// Returns the bytes of the longest member.
fn longest(mut reader: Reader<'_>) -> Result<usize> {
    let mut longest = 0;
    while !reader.is_at_end() {
        longest = longest.max(reader.string()?.len());
    }
    Ok(longest)
}

/// Returns where a number belongs among ascending ones.
fn place_of_integer(mut reader: Reader<'_>, member: &[u8]) -> Result<usize> {
    let number = integer::parse(member);
    loop {
        let at = reader.position();
        if reader.is_at_end() || integer::parse(reader.string()?) > number {
            return Ok(at);
        }
    }
}

/// A set that members are added to, in memory as long as it fits one row.
struct Growing {
    before: Option<Header>,
    encoding: u8,
    count: u64,
    /// The members, while they have no rows.
    entries: Vec<u8>,
    rows: Option<Rows>,
}

impl Growing {
    fn new(encoding: u8, before: Option<Header>) -> Growing {
        Growing { before, encoding, count: 0, entries: Vec::new(), rows: None }
    }

    /// Adds members and writes the key, unless all of them were there.
    fn add_all<'m>(
        mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        limits: &Limits,
        members: impl Iterator<Item = &'m [u8]>,
    ) -> Result<u64> {
        let count_before = self.count;
        for member in members {
            match self.rows {
                None => self.add_packed(txn, key, limits, member)?,
                Some(rows) => self.add_row(txn, rows, limits, member)?,
            }
        }
        if self.count > count_before {
            self.write(txn, key)?;
        }
        Ok(self.count - count_before)
    }

    fn add_packed(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, limits: &Limits, member: &[u8]) -> Result<()> {
        let packed = Packed { encoding: self.encoding, count: self.count as u16, entries: &self.entries };
        if find(packed.reader(), member)?.is_some() {
            return Ok(());
        }
        if !packed::fits(self.entries.len() + packed::string_bytes(member), self.count as usize + 1) {
            let rows = self.unpack(txn, key)?;
            return self.add_row(txn, rows, limits, member);
        }
        let encoding = limits.added(self.encoding, self.count, member, || longest(packed.reader()))?;
        if encoding == SET_INTSET {
            let at = place_of_integer(packed.reader(), member)?;
            let after = self.entries.split_off(at);
            packed::put_string(&mut self.entries, member);
            self.entries.extend_from_slice(&after);
        } else {
            packed::put_string(&mut self.entries, member);
        }
        self.encoding = encoding;
        self.count += 1;
        Ok(())
    }

    /// Moves the members into the rows of an object that nothing names yet.
    fn unpack(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Rows> {
        let rows = Rows { space: key.space, object: Object::new(txn, key)? };
        let entries = std::mem::take(&mut self.entries);
        let (mut reader, mut moved) = (Packed { encoding: 0, count: 0, entries: &entries }.reader(), 0);
        while !reader.is_at_end() {
            let member = reader.string()?;
            txn.put_row(&rows.element(element::hash(txn, member), member), &[])?;
            moved += 1;
        }
        debug_assert_eq!(moved, self.count, "Invariant: a set has as many rows as members");
        self.rows = Some(rows);
        Ok(rows)
    }

    fn add_row(&mut self, txn: &mut Txn<'_>, rows: Rows, limits: &Limits, member: &[u8]) -> Result<()> {
        let row = rows.element(element::hash(txn, member), member);
        if txn.row_presence(&row)? != RowPresence::Absent {
            return Ok(());
        }
        self.encoding = limits.added(self.encoding, self.count, member, || longest_of_rows(txn, &rows))?;
        self.count += 1;
        Ok(txn.put_row(&row, &[])?)
    }

    /// Writes the meta row, last of all: until it names the object, the members' rows may be written ahead.
    fn write(&self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        let deadline_ms = self.before.and_then(|before| before.deadline_ms);
        write(txn, key, self.before.as_ref(), deadline_ms, self.encoding, self.count, &self.entries, self.rows)
    }
}

fn longest_of_rows(txn: &mut Txn<'_>, rows: &Rows) -> Result<usize> {
    let (from, until) = rows.from_hash(0);
    let mut longest = 0;
    txn.visit(&from, &until, Direction::Forward, usize::MAX, |row, _| {
        longest = longest.max(row.len() - ROW_PREFIX_BYTES - HASH_BYTES);
        ControlFlow::Continue(())
    })?;
    Ok(longest)
}

/// Writes the meta row of a set that has members, in either form.
#[allow(clippy::too_many_arguments)] // All of them say what a set is, and what it was.
pub(crate) fn write(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    before: Option<&Header>,
    deadline_ms: Option<u64>,
    encoding: u8,
    count: u64,
    entries: &[u8],
    rows: Option<Rows>,
) -> Result<()> {
    debug_assert!(txn.is_dry_run() || count > 0, "Invariant: a collection has at least one element");
    match rows {
        None => {
            if cfg!(debug_assertions) {
                assert_order(encoding, entries);
            }
            let header = Header { tag: Tag::SetPacked, deadline_ms, fields: None, object: None };
            let head = Packed { encoding, count: count as u16, entries: &[] }.head();
            key::write(txn, key, before, &header, &[&head, entries])
        }
        Some(Rows { object, .. }) => {
            let header = Header { tag: Tag::SetRows, deadline_ms, fields: None, object: Some(object) };
            key::write(txn, key, before, &header, &[&Head { object, encoding, count }.encode()])
        }
    }
}

/// Panics unless the packed members of a set with this encoding are those of an intset, if it is one.
fn assert_order(encoding: u8, entries: &[u8]) {
    let (mut reader, mut before) = (Packed { encoding, count: 0, entries }.reader(), None);
    while encoding & MASK == SET_INTSET && !reader.is_at_end() {
        let number = reader.string().ok().and_then(integer::parse);
        assert!(number.is_some() && before < number, "Invariant: the members of an intset are integers that ascend");
        before = number;
    }
}

/// Removes members from a set, the key with the last of them; returns how many were there, and how many are left.
pub fn remove<'m>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    set: &Set,
    members: impl Iterator<Item = &'m [u8]>,
) -> Result<(u64, u64)> {
    let mut left = set.count;
    let mut entries = Vec::new();
    match set.rows {
        None => {
            entries.extend_from_slice(set.packed()?.entries);
            for member in members {
                let reader = Packed { encoding: 0, count: 0, entries: &entries }.reader();
                if let Some((start, end)) = find(reader, member)? {
                    entries.drain(start..end);
                    left -= 1;
                }
            }
        }
        Some(rows) => {
            for member in members {
                let row = rows.element(element::hash(txn, member), member);
                if txn.row_presence(&row)? != RowPresence::Absent {
                    txn.delete_row(&row)?;
                    left = element::lowered(txn, left, 1);
                }
            }
        }
    }
    if left < set.count {
        write_or_remove(txn, key, set, left, &entries)?;
    }
    Ok((set.count - left, left))
}

/// Writes the rest of a set that lost members, or removes the key.
pub(crate) fn write_or_remove(txn: &mut Txn<'_>, key: &Key<'_>, set: &Set, left: u64, entries: &[u8]) -> Result<()> {
    let header = set.header();
    match left {
        0 => key::remove(txn, key, header),
        _ => write(txn, key, Some(header), header.deadline_ms, set.encoding, left, entries, set.rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::encoding::SET_LISTPACK;

    fn entries(members: &[&[u8]]) -> Vec<u8> {
        members.iter().flat_map(|member| packed::item(member)).collect()
    }

    #[test]
    #[should_panic(expected = "the members of an intset are integers that ascend")]
    fn an_intset_without_order_is_noticed() {
        assert_order(SET_LISTPACK, &entries(&[b"9", b"10", b"9a"]));
        assert_order(SET_INTSET, &entries(&[b"-1", b"9", b"10"]));
        assert_order(SET_INTSET, &entries(&[b"10", b"9"]));
    }

    #[test]
    #[should_panic(expected = "the members of an intset are integers that ascend")]
    fn a_member_of_an_intset_that_is_no_integer_is_noticed() {
        assert_order(SET_INTSET, &entries(&[b"9", b"010"]));
    }
}
