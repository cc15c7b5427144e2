//! A list in rows: each element lies at a *position*, a number whose order is that of the list. A new list begins in
//! the middle of all positions and grows `STEP` by `STEP` at both ends, so that while nothing is inserted or removed in
//! between it is *dense*: a multiplication gives the position of an index. After that, a directory of segments gives
//! it.
//!
//! Invariants: `first` and `last` are the positions of the first and the last element; a list without directory is
//! dense; no row of the object lies between `first` and `last` but elements, and none outside but the directory's
//! nodes.

use super::directory::{Directory, Kind, Segment};
use super::packed::PackedList;
use super::{ROWS_INLINE_MAX, Side, encoding_after};
use crate::element::{Head, ROW_PREFIX_BYTES, Rows};
use crate::key::{self, Entry, Header, Object, Tag, damaged};
use crate::value::encoding;
use crate::{Result, listpack};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, NextRows, Sought, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// A list as its header describes it while it is dense, for guesses: the header is not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dense {
    rows: Rows,
    pub(crate) count: u64,
    first: u64,
}

impl Dense {
    /// Reads a header; `payload` is the rest of the meta row of a list in rows.
    #[inline]
    pub(crate) fn guess(rows: Rows, payload: &[u8]) -> Option<Dense> {
        let number = |at: usize| Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?));
        let (count, first) = (number(Head::COUNT_AT)?, number(Head::BYTES + FIRST_AT)?);
        let has_directory = payload.get(Head::BYTES + ROOT_AT..)?.first_chunk::<4>()? != &[0; 4];
        (!has_directory).then_some(Dense { rows, count, first })
    }

    /// Returns where the element at an index stands.
    #[inline]
    pub(crate) fn sought(&self, index: u64) -> Option<Sought> {
        (index < self.count).then(|| self.rows.sought_at(self.first.wrapping_add(index.wrapping_mul(STEP))))
    }
}

/// Positions between neighbours of a dense list. Part of the format: elements that come in between lie at halves of it.
pub(super) const STEP: u64 = 1 << 16;

/// The position of the first element of a new list.
pub(super) const ORIGIN: u64 = 1 << 63;

/// Elements lie below; the directory's nodes lie from here on.
pub(super) const POSITIONS_END: u64 = 0xffff_ffff << 32;

/// Elements lie above: as much room as there is at the other end.
pub(super) const POSITIONS_START: u64 = u64::MAX - POSITIONS_END;

/// Bytes of a header behind the part that all collections share.
const OWN_BYTES: usize = 28;

/// The places of `first` and `root` in the header's own bytes.
const FIRST_AT: usize = 4;
const ROOT_AT: usize = 20;

/// More rows are not removed one by one: the elements that stay are copied to a fresh object instead, which may be
/// written ahead.
pub(super) const REMOVED_MAX: u64 = 1 << 17;

/// Fewer rows than these are removed one by one, however few are left.
pub(super) const REMOVED_MIN: u64 = 64;

/// Rows and bytes that are copied in one step.
const STEP_ROWS: usize = 1024;
pub(super) const STEP_BYTES: usize = 1 << 20;

/// The header of a list in rows, with its directory.
#[derive(Clone, Debug)]
pub(super) struct ListRows {
    pub head: Head,
    pub rows: Rows,
    /// Bytes of Redis's listpack, as long as Redis would hold the list as one.
    pub listpack_bytes: u32,
    pub first: u64,
    pub last: u64,
    pub directory: Option<Directory>,
}

impl ListRows {
    pub fn of(key: &Key<'_>, entry: &Entry) -> Result<ListRows> {
        let (head, own) = Head::parse(entry, OWN_BYTES)?;
        let number = |at: usize| u32::from_be_bytes(own[at..at + 4].try_into().expect("four bytes"));
        let position = |at: usize| u64::from_be_bytes(own[at..at + 8].try_into().expect("eight bytes"));
        let rows = head.rows(key);
        let (first, last, root) = (position(FIRST_AT), position(12), number(ROOT_AT));
        let directory = (root != 0).then(|| Directory::stored(rows, root, number(24)));
        let is_dense = last.checked_sub(first) == head.count.checked_sub(1).and_then(|steps| steps.checked_mul(STEP));
        if head.count == 0 || first > last || last >= POSITIONS_END || directory.is_none() && !is_dense {
            return Err(damaged("the header of a list", entry.payload()));
        }
        Ok(ListRows { head, rows, listpack_bytes: number(0), first, last, directory })
    }

    /// Returns a list without elements under a fresh object, which nothing names yet.
    pub fn new(txn: &mut Txn<'_>, key: &Key<'_>, encoding: u8) -> Result<ListRows> {
        let head = Head { object: Object::new(txn, key)?, encoding, count: 0 };
        let listpack_bytes = listpack::EMPTY_BYTES as u32;
        Ok(ListRows { head, rows: head.rows(key), listpack_bytes, first: ORIGIN, last: ORIGIN - STEP, directory: None })
    }

    /// Moves the elements of a list from its meta row into rows.
    pub fn unpack(txn: &mut Txn<'_>, key: &Key<'_>, packed: &PackedList) -> Result<ListRows> {
        let mut list = ListRows::new(txn, key, packed.encoding)?;
        for element in packed.elements()? {
            list.append(txn, Side::Tail, element)?;
        }
        Ok(list)
    }

    pub fn len(&self) -> u64 {
        self.head.count
    }

    /// Writes the changes of the directory, and the meta row.
    pub fn save(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        before: Option<&Header>,
        deadline_ms: Option<u64>,
    ) -> Result<()> {
        if let Some(directory) = &mut self.directory {
            // In a dry run the rows may be of two moments.
            if cfg!(debug_assertions) && !txn.is_dry_run() {
                let count = directory.count(txn)?;
                assert_eq!(count, self.head.count, "Invariant: segments have as many elements as the list");
                directory.assert_sound();
            }
            if directory.is_dense() {
                directory.clear();
            }
            directory.save(txn)?;
            if directory.is_empty() {
                self.directory = None;
            }
        }
        if self.head.encoding != encoding::LIST_LISTPACK {
            self.listpack_bytes = 0;
        }
        if cfg!(debug_assertions) && !txn.is_dry_run() {
            self.assert_sound();
        }
        let (root, next_node) = self.directory.as_ref().map_or((0, 0), Directory::numbers);
        let mut payload = [0; Head::BYTES + OWN_BYTES];
        let (head, own) = payload.split_at_mut(Head::BYTES);
        head.copy_from_slice(&self.head.encode());
        own[..4].copy_from_slice(&self.listpack_bytes.to_be_bytes());
        own[4..12].copy_from_slice(&self.first.to_be_bytes());
        own[12..20].copy_from_slice(&self.last.to_be_bytes());
        own[20..24].copy_from_slice(&root.to_be_bytes());
        own[24..].copy_from_slice(&next_node.to_be_bytes());
        let header = Header { tag: Tag::ListRows, deadline_ms, fields: None, object: Some(self.head.object) };
        key::write(txn, key, before, &header, &[&payload])
    }

    /// Panics unless the header says what a list can be.
    fn assert_sound(&self) {
        let (count, first, last) = (self.head.count, self.first, self.last);
        assert!(count > 0, "Invariant: a collection has at least one element");
        let bounds = POSITIONS_START..POSITIONS_END;
        let is_within = first <= last && bounds.contains(&first) && bounds.contains(&last);
        assert!(is_within, "Invariant: elements lie within all positions: {first:x} to {last:x}");
        let is_dense = last - first == (count - 1).saturating_mul(STEP);
        assert!(is_dense || self.directory.is_some(), "Invariant: a list without directory is dense");
    }

    #[inline]
    pub fn row(&self, position: u64) -> RowKey {
        self.rows.data(&position.to_be_bytes())
    }

    fn is_listpack(&self) -> bool {
        self.head.encoding == encoding::LIST_LISTPACK
    }

    /// Raises the encoding to that of the list after `added` elements of `bytes` together are added.
    #[inline]
    pub fn grow(&mut self, txn: &Txn<'_>, bytes: usize, added: u64) {
        if self.is_listpack() {
            let bytes = self.listpack_bytes as usize + bytes;
            self.head.encoding = encoding_after(txn, self.head.encoding, bytes, self.len() + added);
        }
    }

    /// Counts the bytes of an element that has come or gone.
    pub fn count_listpack(&mut self, gone: Option<&[u8]>, come: Option<&[u8]>) {
        if self.is_listpack() {
            let bytes = |element: Option<&[u8]>| element.map_or(0, listpack::entry_bytes) as u32;
            self.listpack_bytes = (self.listpack_bytes + bytes(come)).saturating_sub(bytes(gone));
        }
    }

    /// Adds an element at an end that has room for it; the directory does not know of it yet.
    #[inline]
    fn append(&mut self, txn: &mut Txn<'_>, side: Side, element: &[u8]) -> Result<()> {
        let position = match side {
            Side::Head => self.first - STEP,
            Side::Tail => self.last + STEP,
        };
        txn.put_row(&self.row(position), &[element])?;
        match side {
            Side::Head => self.first = position,
            Side::Tail => self.last = position,
        }
        self.head.count += 1;
        self.count_listpack(None, Some(element));
        Ok(())
    }

    /// Tells whether so many positions are left at an end.
    fn has_positions(&self, side: Side, count: u64) -> bool {
        let room = match side {
            Side::Head => self.first - POSITIONS_START,
            Side::Tail => POSITIONS_END - 1 - self.last,
        };
        room / STEP >= count
    }

    /// Adds elements one after the other at an end.
    #[inline]
    pub fn push<'e>(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        side: Side,
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<()> {
        let before = (self.first, self.last);
        let added = elements.clone().count() as u64;
        if !self.has_positions(side, added) {
            // The list has wandered to the end of all positions.
            *self = self.copy(txn, key, 0..self.len(), |_, _| true)?;
        }
        for element in elements {
            self.append(txn, side, element)?;
        }
        if let Some(directory) = &mut self.directory {
            match side {
                Side::Head => directory.push_head(txn, before.0, added)?,
                Side::Tail => directory.push_tail(txn, before.1, added)?,
            }
        }
        Ok(())
    }

    /// Takes the element at an end out, the last one too.
    #[inline]
    pub fn pop(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, side: Side) -> Result<Value> {
        let position = match side {
            Side::Head => self.first,
            Side::Tail => self.last,
        };
        let element = self.end_element(txn, side, position)?;
        self.count_listpack(Some(&element), None);
        let count = self.len();
        if count == 1 {
            self.head.count = 0;
        } else {
            let keep = if side == Side::Head { 1..count } else { 0..count - 1 };
            self.cut(txn, &[position], keep)?;
        }
        debug_assert_eq!(key.space, self.rows.space);
        Ok(element)
    }

    /// Returns the element at an end. Others are going to be taken after it, and are read ahead where that saves reads.
    #[inline]
    fn end_element(&self, txn: &mut Txn<'_>, side: Side, position: u64) -> Result<Value> {
        let row = self.row(position);
        let next = |count: usize| {
            let is_counted = self.directory.is_none();
            let far = if is_counted { (count as u64 - 1).saturating_mul(STEP) } else { u64::MAX };
            let end = match side {
                Side::Head => self.last.min(self.first.saturating_add(far)),
                Side::Tail => self.first.max(self.last.saturating_sub(far)),
            };
            NextRows { end: self.row(end), is_counted }
        };
        match txn.row_and_next(&row, side.inwards(), next)? {
            Some(element) => Ok(element),
            None => Err(damaged("a list: the row of an element", &row)),
        }
    }

    /// Returns the element at a position where there must be one.
    fn element(&self, txn: &mut Txn<'_>, position: u64) -> Result<Value> {
        let row = self.row(position);
        match txn.row(&row)? {
            Some(element) => Ok(element),
            None => Err(damaged("a list: the row of an element", &row)),
        }
    }

    /// Removes the rows at the ends, whose positions are given, so that `keep` is left, which is not empty.
    fn cut(&mut self, txn: &mut Txn<'_>, removed: &[u64], keep: Range<u64>) -> Result<()> {
        for position in removed {
            txn.delete_row(&self.row(*position))?;
        }
        let ends = match &mut self.directory {
            None => (self.first + keep.start * STEP, self.first + (keep.end - 1) * STEP),
            Some(directory) => {
                directory.trim(txn, self.head.count, keep.clone())?;
                let count = keep.end - keep.start;
                let first = if keep.start == 0 { self.first } else { directory.position(txn, 0)? };
                let last = if keep.end == self.head.count { self.last } else { directory.position(txn, count - 1)? };
                (first, last)
            }
        };
        (self.first, self.last) = ends;
        self.head.count = keep.end - keep.start;
        Ok(())
    }

    /// Removes all but `keep`, which is not empty: deletes the other rows, or copies those that stay, whichever is
    /// less.
    pub fn trim(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, keep: Range<u64>) -> Result<()> {
        let count = self.len();
        let (kept, removed) = (keep.end - keep.start, count - (keep.end - keep.start));
        if removed == 0 {
            return Ok(());
        }
        if removed > REMOVED_MAX || removed > REMOVED_MIN && removed > kept {
            *self = self.copy(txn, key, keep, |_, _| true)?;
            return Ok(());
        }
        if removed > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let mut positions = Vec::with_capacity(removed as usize);
        for range in [0..keep.start, keep.end..count] {
            // The elements themselves are read only where their sizes matter.
            if self.directory.is_none() && !self.is_listpack() {
                positions.extend(range.map(|index| self.first + index * STEP));
                continue;
            }
            let mut listpack_bytes = 0;
            self.visit_rows(txn, range, Direction::Forward, |position, element| {
                positions.push(position);
                listpack_bytes += listpack::entry_bytes(element);
                ControlFlow::Continue(())
            })?;
            if self.is_listpack() {
                self.listpack_bytes = self.listpack_bytes.saturating_sub(listpack_bytes as u32);
            }
        }
        self.cut(txn, &positions, keep)
    }

    /// Copies the elements in `range` for which `keep` returns true, by index and content, to a fresh object, dense.
    /// The copy may turn out empty.
    pub fn copy(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        range: Range<u64>,
        mut keep: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<ListRows> {
        if range.end - range.start > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let mut copy = ListRows::new(txn, key, self.head.encoding)?;
        let mut index = range.start;
        let mut from = self.position(txn, range.start)?;
        let until = self.position(txn, range.end - 1)? + 1;
        while index < range.end {
            let step = self.step(txn, from..until)?;
            let Some((last, _)) = step.last() else { return Err(self.gap(from)) };
            from = last + 1;
            for (_, element) in &step {
                if keep(index, element) {
                    copy.append(txn, Side::Tail, element)?;
                }
                index += 1;
            }
        }
        Ok(copy)
    }

    /// Returns a few of the rows between two positions.
    pub fn step(&self, txn: &mut Txn<'_>, positions: Range<u64>) -> Result<Vec<(u64, Value)>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let (from, until) = (self.row(positions.start), self.row(positions.end));
        txn.visit(&from, &until, Direction::Forward, STEP_ROWS, |row, element| {
            bytes += element.len();
            found.push((position_of(row), Value::from(element)));
            if found.len() < STEP_ROWS && bytes < STEP_BYTES {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(found)
    }

    /// Returns the error for missing elements.
    #[cold]
    pub fn gap(&self, position: u64) -> crate::Error {
        damaged("a list: rows are missing behind the one", &self.row(position))
    }

    /// Returns where the element at `index`, which is within the list, lies.
    #[inline]
    pub fn position(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<u64> {
        debug_assert!(index < self.len());
        match &mut self.directory {
            None => Ok(self.first + index * STEP),
            Some(_) if index == 0 => Ok(self.first),
            Some(_) if index == self.head.count - 1 => Ok(self.last),
            Some(directory) => directory.position(txn, index),
        }
    }

    pub fn get(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<Value> {
        let position = self.position(txn, index)?;
        self.element(txn, position)
    }

    pub fn set(&mut self, txn: &mut Txn<'_>, index: u64, element: &[u8]) -> Result<()> {
        let position = self.position(txn, index)?;
        if self.is_listpack() {
            let gone = self.element(txn, position)?;
            self.count_listpack(Some(&gone), Some(element));
        }
        Ok(txn.put_row(&self.row(position), &[element])?)
    }

    /// Returns where the rows of the elements in `range`, which is not empty, begin and end.
    fn row_range(&mut self, txn: &mut Txn<'_>, range: &Range<u64>) -> Result<(RowKey, RowKey)> {
        let from = self.position(txn, range.start)?;
        let until = self.position(txn, range.end - 1)? + 1;
        Ok((self.row(from), self.row(until)))
    }

    /// Shows the elements in `range` with their positions, until `visit` breaks.
    pub fn visit_rows(
        &mut self,
        txn: &mut Txn<'_>,
        range: Range<u64>,
        direction: Direction,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (from, until) = self.row_range(txn, &range)?;
        let (wanted, mut seen) = (range.end - range.start, 0);
        txn.visit(&from, &until, direction, wanted.min(STEP_ROWS as u64) as usize, |row, element| {
            seen += 1;
            let visited = visit(position_of(row), element);
            // Nothing is read behind the last one.
            if seen == wanted {
                ControlFlow::Break(())
            } else if visited.is_break() {
                seen = wanted;
                visited
            } else {
                visited
            }
        })?;
        if seen == wanted { Ok(()) } else { Err(damaged("a list: elements are missing behind the row", &from)) }
    }

    pub fn visit(
        &mut self,
        txn: &mut Txn<'_>,
        range: Range<u64>,
        direction: Direction,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.visit_rows(txn, range, direction, |_, element| visit(element))
    }

    pub fn view(&mut self, txn: &mut Txn<'_>, range: Range<u64>, direction: Direction) -> Result<View> {
        let (from, until) = self.row_range(txn, &range)?;
        Ok(txn.view(&from, &until, direction)?)
    }

    /// Returns the directory; where there is none yet, a new one of a dense list.
    pub fn directory(&mut self) -> &mut Directory {
        let segment = Segment { start: self.first, count: self.head.count, kind: Kind::Dense };
        self.directory.get_or_insert_with(|| Directory::of(self.rows, segment))
    }
}

/// Returns the position in the key of an element's row.
pub(super) fn position_of(row: &[u8]) -> u64 {
    match row.get(ROW_PREFIX_BYTES..).and_then(|position| position.try_into().ok()) {
        Some(position) => u64::from_be_bytes(position),
        // Only damage puts other rows between two rows of eight bytes of position; the count shows it then.
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_store::{ObjectId, Slot, Space};

    /// Checks the header of a list of three elements without directory, which lie from `first` to `last`.
    fn check(first: u64, last: u64) {
        let object = Object { id: ObjectId(1), slot: Slot(0) };
        let head = Head { object, encoding: encoding::LIST_QUICKLIST, count: 3 };
        let rows = Rows { space: Space(0), object };
        ListRows { head, rows, listpack_bytes: 0, first, last, directory: None }.assert_sound();
    }

    #[test]
    #[should_panic(expected = "a list without directory is dense")]
    fn a_gap_without_directory_is_noticed() {
        check(ORIGIN, ORIGIN + 2 * STEP);
        check(ORIGIN, ORIGIN + 3 * STEP);
    }

    #[test]
    #[should_panic(expected = "elements lie within all positions")]
    fn an_element_among_the_nodes_is_noticed() {
        check(POSITIONS_END - 2 * STEP, POSITIONS_END);
    }
}
