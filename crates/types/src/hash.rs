//! Hashes: fields with values, packed into the meta row while they are small, else a row for each field. Owns that choice,
//! both layouts and the operations. Format: docs/format/hash.md.
//!
//! Reading is here, changes are in `change`. What is looked up is a key's entry; every operation works on it, so that the
//! meta row is read once.

mod change;

pub use change::{Deleted, delete, increment, increment_float, set, set_absent};

use crate::element::{self, Head, of_row};
use crate::key::{Entry, Tag, damaged};
use crate::packed::{HEAD_BYTES, Packed, Reader};
use crate::walk::{self, Dice};
use crate::{Error, Result};
use haypile_store::{Direction, Key, RowPresence, Txn, Value, View};
use std::ops::{ControlFlow, Range};

/// How a hash lies in its rows.
#[derive(Clone, Copy)]
enum Form<'e> {
    Packed(Packed<'e>),
    Rows(Head),
}

impl<'e> Form<'e> {
    #[inline]
    fn of(entry: &'e Entry) -> Result<Form<'e>> {
        match entry.header.tag {
            Tag::HashPacked => Packed::parse(entry.payload()).map(Form::Packed),
            Tag::HashRows => Head::parse(entry, 0).map(|(head, _)| Form::Rows(head)),
            _ => Err(Error::WrongType),
        }
    }
}

/// The first byte of a field's row: what comes before the value. Nothing, so far.
const PLAIN: u8 = 0;

/// The value in a field's row.
#[inline]
pub fn value_of_row(row: &[u8]) -> Result<&[u8]> {
    match row {
        [PLAIN, value @ ..] => Ok(value),
        _ => Err(damaged("the row of a field", row)),
    }
}

/// Where a field's value lies among packed entries: its length, and its bytes behind that.
struct Place {
    /// From the field's length on, up to the next field.
    entry: Range<usize>,
    /// From the value's length on.
    value: usize,
    /// The value's bytes, up to the entry's end.
    bytes: usize,
}

/// Looks a field up among packed entries.
#[inline]
fn find(packed: &Packed<'_>, field: &[u8]) -> Result<Option<Place>> {
    let mut reader = packed.reader();
    while !reader.is_at_end() {
        let start = reader.position();
        let is_it = reader.string()? == field;
        let value = reader.position();
        let bytes = reader.string()?.len();
        if is_it {
            let end = reader.position();
            return Ok(Some(Place { entry: start..end, value, bytes: end - bytes }));
        }
    }
    Ok(None)
}

/// Reads the next field and its value.
#[inline]
fn pair<'p>(reader: &mut Reader<'p>) -> Result<(&'p [u8], &'p [u8])> {
    Ok((reader.string()?, reader.string()?))
}

/// How many fields there are.
#[inline]
pub fn len(entry: &Entry) -> Result<u64> {
    Ok(match Form::of(entry)? {
        Form::Packed(packed) => packed.count.into(),
        Form::Rows(head) => head.count,
    })
}

/// A field's value, sharing the bytes of its row.
#[inline]
pub fn get(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry, field: &[u8]) -> Result<Option<Value>> {
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let Some(place) = find(&packed, field)? else { return Ok(None) };
            let range = HEAD_BYTES + place.bytes..HEAD_BYTES + place.entry.end;
            Ok(Some(entry.into_payload().slice(range)))
        }
        Form::Rows(head) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            let Some(row) = txn.row(&row)? else { return Ok(None) };
            let start = row.len() - value_of_row(&row)?.len();
            Ok(Some(row.slice(start..row.len())))
        }
    }
}

/// What `look` makes of a field's value; `None` if there is no such field.
#[inline]
pub fn look<R>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    field: &[u8],
    look: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let place = find(&packed, field)?;
            Ok(place.map(|place| look(&packed.entries[place.bytes..place.entry.end])))
        }
        Form::Rows(head) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            match txn.row(&row)? {
                Some(row) => Ok(Some(look(value_of_row(&row)?))),
                None => Ok(None),
            }
        }
    }
}

/// Whether there is such a field.
pub fn contains(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, field: &[u8]) -> Result<bool> {
    match Form::of(entry)? {
        Form::Packed(packed) => Ok(find(&packed, field)?.is_some()),
        Form::Rows(head) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            Ok(txn.row_presence(&row)? != RowPresence::Absent)
        }
    }
}

/// Gives all fields and their values to `each`, until that breaks: packed ones in the order in which they came, others in the
/// order of their hashes.
pub fn visit(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let mut reader = packed.reader();
            while !reader.is_at_end() {
                let (field, value) = pair(&mut reader)?;
                if each(field, value).is_break() {
                    break;
                }
            }
            Ok(())
        }
        Form::Rows(head) => {
            let mut damage = Ok(());
            walk::all(txn, head.rows(key), head.count.min(1 << 20) as usize, |field, row| match value_of_row(row) {
                Ok(value) => each(field, value),
                Err(error) => {
                    damage = Err(error);
                    ControlFlow::Break(())
                }
            })?;
            damage
        }
    }
}

/// The rows of all fields as they are now, for a reply that is sent piece by piece; `None` for a packed hash. Their keys are
/// read by `field_of_row`, their values by `value_of_row`.
pub fn view(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) -> Result<Option<View>> {
    let Form::Rows(head) = Form::of(entry)? else { return Ok(None) };
    let (from, until) = head.rows(key).from_hash(0);
    Ok(Some(txn.view(&from, &until, Direction::Forward)?))
}

/// The field whose row it is.
pub fn field_of_row(row: &[u8]) -> Result<&[u8]> {
    of_row(row).map(|(_, field)| field).ok_or_else(|| damaged("the key of a field's row", row))
}

/// Gives about `max` fields from a hash on, and their values, to `each`; says where to go on. A packed hash goes out whole.
pub fn page(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    from: Option<u32>,
    max: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<Option<u32>> {
    let head = match (Form::of(entry)?, from) {
        (Form::Packed(_), _) => {
            visit(txn, key, entry, |field, value| {
                each(field, value);
                ControlFlow::Continue(())
            })?;
            return Ok(None);
        }
        (Form::Rows(_), None) => return Ok(None),
        (Form::Rows(head), Some(_)) => head,
    };
    let mut damage = Ok(());
    let next = walk::page(txn, head.rows(key), from.unwrap_or(0), max, |field, row| match value_of_row(row) {
        Ok(value) => each(field, value),
        Err(error) => damage = Err(error),
    })?;
    damage.map(|()| next)
}

/// Gives one field and its value to `take`, all equally likely.
pub fn draw(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    dice: &mut Dice,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let mut reader = packed.reader();
            for _ in 0..dice.below(u64::from(packed.count).max(1)) {
                pair(&mut reader)?;
            }
            let (field, value) = pair(&mut reader)?;
            take(field, value);
            Ok(())
        }
        Form::Rows(head) => {
            let mut damage = Ok(());
            walk::draw(txn, head.rows(key), head.count, dice, |field, row| match value_of_row(row) {
                Ok(value) => take(field, value),
                Err(error) => damage = Err(error),
            })?;
            damage
        }
    }
}

/// A packed hash by itself, to draw from it as often as one likes; `None` for one in rows.
pub fn packed(entry: Entry) -> Result<Option<PackedHash>> {
    match Form::of(&entry)? {
        Form::Packed(_) => Ok(Some(PackedHash(entry.into_payload()))),
        Form::Rows(_) => Ok(None),
    }
}

/// See `packed`.
pub struct PackedHash(Value);

impl PackedHash {
    /// Field number `index` and its value.
    pub fn nth(&self, index: u64) -> Result<(&[u8], &[u8])> {
        let mut reader = Packed::parse(&self.0)?.reader();
        for _ in 0..index {
            pair(&mut reader)?;
        }
        pair(&mut reader)
    }
}
