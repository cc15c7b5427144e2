//! Lists: packed into the meta row while they are small (`packed`), elements in rows beyond (`rows`), with a directory
//! of segments (`directory`) once something was inserted or removed in their middle (`middle`). Owns the choice between
//! these, and the encoding that Redis would report. Format: docs/format/list.md.
//!
//! Both ends cost a row each, whatever the length. A list that has left its meta row never goes back, nor does its
//! encoding.

use crate::EncodingLimit;
use crate::key::{self, Entry, Header, Tag, Type};
use crate::value::encoding;
use crate::{Error, Result};
use crate::{element, listpack};
use haypile_store::{Direction, Key, Txn, Value, View};
use std::ops::{ControlFlow, Range};

mod packed;

mod rows;

mod directory;

mod middle;

mod make;

mod verify;

pub use make::Maker;
use packed::PackedList;
pub use rows::Dense;
use rows::ListRows;

/// An operation on more rows calls `Txn::long`.
const ROWS_INLINE_MAX: u64 = element::ROWS_INLINE_MAX as u64;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Head,
    Tail,
}

impl Side {
    /// Returns the direction from this end through the list.
    fn inwards(self) -> Direction {
        match self {
            Side::Head => Direction::Forward,
            Side::Tail => Direction::Backward,
        }
    }
}

/// The side of the pivot where a new element goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Before,
    After,
}

/// A list as it was looked up.
#[derive(Clone, Debug)]
pub struct List {
    header: Header,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Packed(PackedList),
    Rows(ListRows),
}

/// Returns the list for a reader; `None` if the key is absent.
pub fn read(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<List>> {
    key::lookup(txn, key)?.map(|entry| List::of(key, entry)).transpose()
}

/// Returns the list for a writer; `None` if the key is absent.
#[inline]
pub fn edit(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<List>> {
    key::lookup_write(txn, key)?.map(|entry| List::of(key, entry)).transpose()
}

/// Adds elements one after the other at an end of a list, which is created if there is none; returns its length.
#[inline]
pub fn push<'e>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    list: Option<List>,
    side: Side,
    elements: impl Iterator<Item = &'e [u8]> + Clone,
) -> Result<u64> {
    let (before, form) = match list {
        Some(List { header, form }) => {
            // Somebody may wait for more elements than there are.
            txn.on_ready(key);
            (Some(header), form)
        }
        None => (None, Form::Packed(PackedList::default())),
    };
    let deadline_ms = before.and_then(|before| before.deadline_ms);
    let (mut added_bytes, mut raw_bytes, mut added) = (0, 0, 0);
    for element in elements.clone() {
        added_bytes += crate::packed::string_bytes(element);
        raw_bytes += element.len();
        added += 1;
    }
    let mut rows = match form {
        Form::Packed(mut packed) => {
            packed.grow(txn, raw_bytes, added)?;
            if packed.has_room(added_bytes, added) {
                return packed.push(txn, key, before.as_ref(), side, elements, added_bytes);
            }
            if u64::from(added as u32) > ROWS_INLINE_MAX {
                txn.long()?;
            }
            ListRows::unpack(txn, key, &packed)?
        }
        Form::Rows(mut rows) => {
            rows.grow(txn, raw_bytes, added as u64);
            rows
        }
    };
    rows.push(txn, key, side, elements)?;
    rows.save(txn, key, before.as_ref(), deadline_ms)?;
    Ok(rows.len())
}

/// Takes the element at an end out of a list. The key is removed with its last element.
#[inline]
pub fn pop(txn: &mut Txn<'_>, key: &Key<'_>, list: List, side: Side) -> Result<Value> {
    let List { header, form } = list;
    match form {
        Form::Packed(packed) => packed.pop(txn, key, &header, side),
        Form::Rows(mut rows) => {
            let element = rows.pop(txn, key, side)?;
            if rows.len() == 0 {
                key::remove(txn, key, &header)?;
            } else {
                rows.save(txn, key, Some(&header), header.deadline_ms)?;
            }
            Ok(element)
        }
    }
}

/// Removes the elements outside of `keep`, a range of indexes that lies within the list. If none is left, so is the
/// key.
pub fn trim(txn: &mut Txn<'_>, key: &Key<'_>, list: List, keep: Range<u64>) -> Result<()> {
    let List { header, form } = list;
    if keep.is_empty() {
        return key::remove(txn, key, &header);
    }
    match form {
        Form::Packed(packed) => packed.trim(txn, key, &header, keep.start as usize..keep.end as usize),
        Form::Rows(mut rows) => {
            rows.trim(txn, key, keep)?;
            rows.save(txn, key, Some(&header), header.deadline_ms)
        }
    }
}

/// Puts an element into the place of the one at `index`, which lies within the list.
pub fn set(txn: &mut Txn<'_>, key: &Key<'_>, list: List, index: u64, element: &[u8]) -> Result<()> {
    let List { header, form } = list;
    let mut rows = match form {
        Form::Packed(mut packed) => {
            packed.grow(txn, element.len(), 0)?;
            if packed.set(txn, key, &header, index as usize, element)? {
                return Ok(());
            }
            ListRows::unpack(txn, key, &packed)?
        }
        Form::Rows(mut rows) => {
            rows.grow(txn, element.len(), 0);
            rows
        }
    };
    rows.set(txn, index, element)?;
    rows.save(txn, key, Some(&header), header.deadline_ms)
}

/// Adds an element beside the first one that equals `pivot`, and returns the length then; `None` if no element does.
pub fn insert(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    mut list: List,
    beside: Beside,
    pivot: &[u8],
    element: &[u8],
) -> Result<Option<u64>> {
    let (mut found, length) = (None, list.len());
    list.search(txn, Side::Head, length, |index, candidate| {
        if candidate == pivot {
            found = Some(index);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(pivot) = found else { return Ok(None) };
    let index = if beside == Beside::Before { pivot } else { pivot + 1 };
    if index == 0 || index == length {
        let side = if index == 0 { Side::Head } else { Side::Tail };
        return push(txn, key, Some(list), side, std::iter::once(element)).map(Some);
    }
    txn.on_ready(key);
    let List { header, form } = list;
    let mut rows = match form {
        Form::Packed(mut packed) => {
            packed.grow(txn, element.len(), 1)?;
            if packed.insert(txn, key, &header, index as usize, element)? {
                return Ok(Some(length + 1));
            }
            ListRows::unpack(txn, key, &packed)?
        }
        Form::Rows(mut rows) => {
            rows.grow(txn, element.len(), 1);
            rows
        }
    };
    rows.insert(txn, key, index, element)?;
    rows.save(txn, key, Some(&header), header.deadline_ms)?;
    Ok(Some(length + 1))
}

/// Removes elements that equal `element`, at most `limit` of them, from one side on, and returns how many. The key is
/// removed with its last element.
pub fn remove(txn: &mut Txn<'_>, key: &Key<'_>, list: List, from: Side, limit: u64, element: &[u8]) -> Result<u64> {
    let length = list.len();
    let List { header, form } = list;
    let removed = match form {
        Form::Packed(packed) => packed.remove(txn, key, &header, from, limit as usize, element)? as u64,
        Form::Rows(mut rows) => {
            let removed = rows.remove_equal(txn, key, from, limit, element)?;
            if removed > 0 && removed < length {
                rows.save(txn, key, Some(&header), header.deadline_ms)?;
            }
            removed
        }
    };
    if removed == length {
        key::remove(txn, key, &header)?;
    }
    Ok(removed)
}

impl List {
    /// Returns the list that an entry holds; an error if it holds something else.
    #[inline]
    pub fn of(key: &Key<'_>, entry: Entry) -> Result<List> {
        let header = entry.header;
        let form = match header.tag {
            Tag::ListPacked => Form::Packed(PackedList::of(entry.into_payload())?),
            Tag::ListRows => Form::Rows(ListRows::of(key, &entry)?),
            _ => return Err(Error::WrongType),
        };
        debug_assert_eq!(header.type_of(), Type::List);
        Ok(List { header, form })
    }

    /// Returns the number of elements.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // No list is empty.
    pub fn len(&self) -> u64 {
        match &self.form {
            Form::Packed(packed) => packed.len() as u64,
            Form::Rows(rows) => rows.len(),
        }
    }

    /// Tells whether Redis would hold the list in a single listpack.
    pub fn is_listpack(&self) -> bool {
        let encoding = match &self.form {
            Form::Packed(packed) => packed.encoding,
            Form::Rows(rows) => rows.head.encoding,
        };
        encoding == encoding::LIST_LISTPACK
    }

    /// Writes the key again unchanged, so that others see that it was touched.
    pub fn touch(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        match &mut self.form {
            Form::Packed(packed) => packed.touch(txn, key, &self.header),
            Form::Rows(rows) => rows.save(txn, key, Some(&self.header), self.header.deadline_ms),
        }
    }

    /// Returns the element at `index`, which lies within the list.
    pub fn get(&mut self, txn: &mut Txn<'_>, index: u64) -> Result<Value> {
        match &mut self.form {
            Form::Packed(packed) => packed.get(index as usize),
            Form::Rows(rows) => rows.get(txn, index),
        }
    }

    /// Shows the elements in `range`, which lies within the list, in order or against it, until `visit` breaks.
    pub fn visit(
        &mut self,
        txn: &mut Txn<'_>,
        range: Range<u64>,
        direction: Direction,
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match &mut self.form {
            Form::Packed(packed) => packed.visit(range.start as usize..range.end as usize, direction, visit),
            Form::Rows(rows) => rows.visit(txn, range, direction, visit),
        }
    }

    /// Shows up to `limit` elements with their indexes, from one side on, until `visit` breaks. A long search goes on
    /// in the I/O pool.
    pub fn search(
        &mut self,
        txn: &mut Txn<'_>,
        from: Side,
        limit: u64,
        mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let length = self.len();
        match &mut self.form {
            Form::Packed(packed) => {
                let mut seen = 0;
                packed.visit(0..length as usize, from.inwards(), |element| {
                    let index = if from == Side::Head { seen } else { length - 1 - seen };
                    seen += 1;
                    if seen > limit { ControlFlow::Break(()) } else { visit(index, element) }
                })
            }
            Form::Rows(rows) => rows.search(txn, from, limit, |index, _, element| visit(index, element)),
        }
    }

    /// Returns the elements in `range`, which lies within the list, as a view of this moment, to be read later and
    /// elsewhere; `None` if they are few enough to be in the meta row.
    pub fn view(&mut self, txn: &mut Txn<'_>, range: Range<u64>, direction: Direction) -> Result<Option<View>> {
        match &mut self.form {
            Form::Packed(_) => Ok(None),
            Form::Rows(rows) => rows.view(txn, range, direction).map(Some),
        }
    }
}

/// Returns the encoding of a list that had `before` and now has, or could have for a moment, so many bytes and entries
/// in a listpack.
fn encoding_after(txn: &Txn<'_>, before: u8, listpack_bytes: usize, count: u64) -> u8 {
    match before {
        encoding::LIST_LISTPACK if !listpack::exceeds(EncodingLimit::ListSize.of(txn), listpack_bytes, count) => {
            encoding::LIST_LISTPACK
        }
        _ => encoding::LIST_QUICKLIST,
    }
}
