//! Hashes: fields with values, packed into the meta row while they are small, else a row for each field. A field may
//! have a deadline of its own; one whose deadline has passed is absent to readers. Format: docs/format/hash.md.
//!
//! Reading is here. The layout of a field is in `field`, changes in `change` (with `packing` and `rows` for the two
//! forms), deadlines in `deadline`. A lookup returns a key's entry, and every operation works on that, so that the meta
//! row is read once.

mod change;
mod deadline;
mod field;
mod make;
mod packing;
mod rows;

pub use change::{Deleted, delete, delete_in, increment, increment_float, lookup, set, set_absent, set_until};
pub use deadline::{
    After, Condition, Expired, Lapsed, Timed, expire, has_expired_within, persist, set_deadlines, times,
};
pub(crate) use field::Deadlines;
pub use field::{Stored, field_of_row, stored_in_row};
pub use make::Maker;

use crate::element::{self, Head, ROWS_INLINE_MAX};
use crate::key::{Entry, Tag, damaged};
use crate::packed::{HEAD_BYTES, Packed};
use crate::value::encoding::{self, HASH_LISTPACK};
use crate::walk::{self, Dice};
use crate::{Error, Result};
use field::{Fields, HAS_DEADLINES, Place};
use haypile_store::row::{RowKey, score_row};
use haypile_store::{Direction, Key, RowPresence, Txn, Value, View};
use std::ops::ControlFlow;

/// How a hash lies in its rows.
#[derive(Clone, Copy)]
enum Form<'e> {
    Packed(Packed<'e>),
    Rows(Head, Timing),
}

/// The part of a hash's head that is about its fields' deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Timing {
    /// Whether fields may have deadlines: `count` follows the head then.
    is_timed: bool,
    /// Fields that have one.
    count: u64,
}

impl<'e> Form<'e> {
    #[inline]
    fn of(entry: &'e Entry) -> Result<Form<'e>> {
        match entry.header.tag {
            Tag::HashPacked => Packed::parse(entry.payload()).map(Form::Packed),
            Tag::HashRows => {
                let is_timed = entry.payload().get(Head::ENCODING_AT).is_some_and(|byte| byte & HAS_DEADLINES != 0);
                let (head, own) = Head::parse(entry, if is_timed { 8 } else { 0 })?;
                let count = own.try_into().map_or(0, u64::from_be_bytes);
                Ok(Form::Rows(head, Timing { is_timed, count }))
            }
            _ => Err(Error::WrongType),
        }
    }
}

/// Looks a field up among packed entries.
#[inline]
fn find(packed: &Packed<'_>, name: &[u8]) -> Result<Option<Place>> {
    let mut fields = Fields::of(packed);
    while let Some(field) = fields.next()? {
        if field.name == name {
            return Ok(Some(field.place));
        }
    }
    Ok(None)
}

/// Tells whether some field's deadline has passed: a reader that counts or lists fields has to look at their deadlines
/// then.
#[inline]
fn has_expired(entry: &Entry, now_ms: u64) -> bool {
    entry.header.fields.is_some_and(|fields| now_ms > fields.first_ms)
}

/// Returns how many fields there are.
#[inline]
pub fn len(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) -> Result<u64> {
    match Form::of(entry)? {
        Form::Packed(packed) if !has_expired(entry, txn.expiry_ms()) => Ok(packed.count.into()),
        Form::Rows(head, _) if !has_expired(entry, txn.expiry_ms()) => Ok(head.count),
        Form::Packed(packed) => {
            let (mut live, mut fields) = (0, Fields::of(&packed));
            while let Some(field) = fields.next()? {
                live += u64::from(field.stored.is_live(txn.expiry_ms()));
            }
            Ok(live)
        }
        Form::Rows(head, _) => Ok(head.count.saturating_sub(expired_rows(txn, key, &head)?)),
    }
}

/// Returns how many fields of a hash in rows have passed their deadlines and were not removed yet.
fn expired_rows(txn: &mut Txn<'_>, key: &Key<'_>, head: &Head) -> Result<u64> {
    let (from, until) = index_range(key, head, 0, txn.expiry_ms());
    let most = if txn.long().is_ok() { u64::MAX } else { ROWS_INLINE_MAX as u64 };
    let mut seen = 0;
    txn.visit(&from, &until, Direction::Forward, ROWS_INLINE_MAX, |_, _| {
        seen += 1;
        if seen > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if seen > most {
        txn.long()?;
    }
    Ok(seen)
}

/// Returns the bounds of the rows of the index of deadlines in `from_ms..until_ms`.
fn index_range(key: &Key<'_>, head: &Head, from_ms: u64, until_ms: u64) -> (RowKey, RowKey) {
    let at = |ms: u64| score_row(key.space, head.object.slot, head.object.id, &ms.to_be_bytes());
    (at(from_ms), at(until_ms))
}

/// Returns a field's value, sharing the bytes of its row.
#[inline]
pub fn get(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry, field: &[u8]) -> Result<Option<Value>> {
    match Form::of(&entry)? {
        Form::Packed(packed) => {
            let Some(place) = find(&packed, field)?.filter(|place| place.is_live(txn.expiry_ms())) else {
                return Ok(None);
            };
            let range = HEAD_BYTES + place.value.start..HEAD_BYTES + place.value.end;
            Ok(Some(entry.into_payload().slice(range)))
        }
        Form::Rows(head, _) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            let Some(row) = txn.row(&row)? else { return Ok(None) };
            let stored = stored_in_row(&row)?;
            let start = row.len() - stored.value.len();
            Ok(stored.is_live(txn.expiry_ms()).then(|| row.slice(start..row.len())))
        }
    }
}

/// Returns the result of `look` for a field's value; `None` if there is no such field.
#[inline]
pub fn look<R>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    field: &[u8],
    look: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    look_stored(txn, key, entry, field, |stored| look(stored.value))
}

/// Returns the result of `look` for a field's value and deadline; `None` if there is no such field.
#[inline]
fn look_stored<R>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    field: &[u8],
    look: impl FnOnce(Stored<'_>) -> R,
) -> Result<Option<R>> {
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let place = find(&packed, field)?.filter(|place| place.is_live(txn.expiry_ms()));
            Ok(place.map(|place| {
                look(Stored { value: &packed.entries[place.value.clone()], deadline_ms: place.deadline_ms })
            }))
        }
        Form::Rows(head, _) => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            let Some(row) = txn.row(&row)? else { return Ok(None) };
            let stored = stored_in_row(&row)?;
            Ok(stored.is_live(txn.expiry_ms()).then(|| look(stored)))
        }
    }
}

/// Tells whether there is such a field.
pub fn contains(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, field: &[u8]) -> Result<bool> {
    match Form::of(entry)? {
        Form::Rows(head, timing) if !timing.is_timed => {
            let row = head.rows(key).element(element::hash(txn, field), field);
            Ok(txn.row_presence(&row)? != RowPresence::Absent)
        }
        _ => Ok(look_stored(txn, key, entry, field, |_| ())?.is_some()),
    }
}

/// Gives all fields and their values to `each`, until that breaks: packed ones in the order in which they came, others
/// in the order of their hashes.
pub fn visit(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<()> {
    visit_stored(txn, key, entry, |field, stored| each(field, stored.value))
}

/// Gives all fields, their values and their deadlines to `each`, in the order of `visit`, until that breaks.
pub fn visit_stored(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    mut each: impl FnMut(&[u8], Stored<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let now_ms = txn.expiry_ms();
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let mut fields = Fields::of(&packed);
            while let Some(field) = fields.next()? {
                if field.stored.is_live(now_ms) && each(field.name, field.stored).is_break() {
                    break;
                }
            }
            Ok(())
        }
        Form::Rows(head, _) => {
            let mut damage = Ok(());
            walk::all(txn, head.rows(key), head.count.min(1 << 20) as usize, |field, row| match stored_in_row(row) {
                Ok(stored) if stored.is_live(now_ms) => each(field, stored),
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    damage = Err(error);
                    ControlFlow::Break(())
                }
            })?;
            damage
        }
    }
}

/// Returns the rows of all fields as they are now, for a reply that is sent piece by piece; `None` for a packed hash.
/// `field_of_row` reads their keys, `stored_in_row` their values; the deadlines of some may have passed.
pub fn view(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) -> Result<Option<View>> {
    let Form::Rows(head, _) = Form::of(entry)? else { return Ok(None) };
    let (from, until) = head.rows(key).from_hash(0);
    Ok(Some(txn.view(&from, &until, Direction::Forward)?))
}

/// Returns how many fields a hash has that Redis would hold in a listpack, those included whose deadlines have passed;
/// `None` of any other.
pub fn count_in_listpack(entry: &Entry) -> Result<Option<u64>> {
    let (encoding, count) = match Form::of(entry)? {
        Form::Packed(packed) => (packed.encoding, packed.count.into()),
        Form::Rows(head, _) => (head.encoding, head.count),
    };
    Ok((encoding & encoding::MASK == HASH_LISTPACK).then_some(count))
}

/// Gives about `max` fields from a hash on, and their values, to `each`; says where to go on. A packed hash goes out
/// whole.
pub fn page(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    from: Option<u32>,
    max: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<Option<u32>> {
    let (head, from) = match (Form::of(entry)?, from) {
        (Form::Packed(_), _) => {
            visit(txn, key, entry, |field, value| {
                each(field, value);
                ControlFlow::Continue(())
            })?;
            return Ok(None);
        }
        (Form::Rows(..), None) => return Ok(None),
        (Form::Rows(head, _), Some(from)) => (head, from),
    };
    let (now_ms, mut damage) = (txn.expiry_ms(), Ok(()));
    let next = walk::page(txn, head.rows(key), from, max, |field, row| match stored_in_row(row) {
        Ok(stored) if stored.is_live(now_ms) => each(field, stored.value),
        Ok(_) => {}
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
    let now_ms = txn.expiry_ms();
    match Form::of(entry)? {
        Form::Packed(_) => {
            let mut left = dice.below(len(txn, key, entry)?.max(1));
            visit(txn, key, entry, |field, value| {
                if left == 0 {
                    take(field, value);
                    return ControlFlow::Break(());
                }
                left -= 1;
                ControlFlow::Continue(())
            })
        }
        Form::Rows(head, _) => {
            for _ in 0..EXPIRED_DRAWS_MAX {
                let (mut damage, mut found) = (Ok(()), false);
                walk::draw(txn, head.rows(key), head.count, dice, |field, row| match stored_in_row(row) {
                    Ok(stored) => {
                        found = stored.is_live(now_ms);
                        if found {
                            take(field, stored.value);
                        }
                    }
                    Err(error) => damage = Err(error),
                })?;
                damage?;
                if found {
                    return Ok(());
                }
            }
            draw_on_a_walk(txn, key, entry, dice, take)
        }
    }
}

/// Draws that may meet fields past their deadlines before the fields are looked at one by one.
const EXPIRED_DRAWS_MAX: u32 = 64;

/// Draws a field by a walk, where most fields have passed their deadlines.
fn draw_on_a_walk(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    dice: &mut Dice,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    txn.long()?;
    let mut left = dice.below(len(txn, key, entry)?.max(1));
    visit(txn, key, entry, |field, value| {
        if left == 0 {
            take(field, value);
            return ControlFlow::Break(());
        }
        left -= 1;
        ControlFlow::Continue(())
    })
}

/// Returns a packed hash by itself, to draw from it as often as one likes; `None` for one in rows.
pub fn packed(txn: &Txn<'_>, entry: Entry) -> Result<Option<PackedHash>> {
    match Form::of(&entry)? {
        Form::Packed(_) => Ok(Some(PackedHash { now_ms: txn.expiry_ms(), payload: entry.into_payload() })),
        Form::Rows(..) => Ok(None),
    }
}

/// A packed hash that `packed` returns.
pub struct PackedHash {
    payload: Value,
    now_ms: u64,
}

impl PackedHash {
    /// Returns field number `index` of those that are there, and its value.
    pub fn nth(&self, mut index: u64) -> Result<(&[u8], &[u8])> {
        let mut fields = Fields::of(&Packed::parse(&self.payload)?);
        while let Some(field) = fields.next()? {
            if field.stored.is_live(self.now_ms) {
                if index == 0 {
                    return Ok((field.name, field.stored.value));
                }
                index -= 1;
            }
        }
        Err(damaged("a packed hash", &self.payload))
    }
}
