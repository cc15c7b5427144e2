//! Deadlines of fields: set, removed, read, and carried out.

use super::field::Fields;
use super::packing::Packing;
use super::rows::Rows;
use super::{Form, has_expired, look_stored};
use crate::element::ROWS_INLINE_MAX;
use crate::key::{self, Entry};
use crate::packed::Packed;
use crate::{Result, hash::index_range};
use haypile_store::{Direction, Key, Txn};
use std::ops::{ControlFlow, Range};

/// The rule for the deadlines of fields that are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    Keep,
    Never,
    /// A time that has not passed.
    Until(u64),
}

/// The condition for a new deadline to be taken, compared with the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    /// NX: there was none.
    Without,
    /// XX: there was one.
    With,
    /// GT: it was earlier. None counts as one that never comes.
    Later,
    /// LT: it was later, or there was none.
    Earlier,
}

impl Condition {
    fn allows(self, before: Option<u64>, after: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::Without => before.is_none(),
            Condition::With => before.is_some(),
            Condition::Later => before.is_some_and(|before| before < after),
            Condition::Earlier => before.is_none_or(|before| before > after),
        }
    }
}

/// The outcome for a field that was to get another deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    NoField,
    /// The condition does not hold, or there is no deadline to take away.
    Unchanged,
    Changed,
    /// The deadline has passed already: the field is gone.
    Deleted,
}

/// Returns the deadline of each field: `None` for one that is not there, `Some(None)` for one without.
pub fn times<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    fields: impl Iterator<Item = &'a [u8]>,
    mut each: impl FnMut(Option<Option<u64>>),
) -> Result<()> {
    for field in fields {
        each(look_stored(txn, key, entry, field, |stored| stored.deadline_ms)?);
    }
    Ok(())
}

/// Gives fields a deadline, or deletes them if it has passed.
pub fn set_deadlines<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    deadline_ms: u64,
    condition: Condition,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Vec<After>> {
    change(txn, key, entry, fields, |now_ms, before| match condition.allows(before, deadline_ms) {
        false => (After::Unchanged, before),
        true if deadline_ms <= now_ms => (After::Deleted, before),
        true => (After::Changed, Some(deadline_ms)),
    })
}

/// Takes away the deadlines of fields.
pub fn persist<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Vec<After>> {
    change(txn, key, entry, fields, |_, before| match before {
        Some(_) => (After::Changed, None),
        None => (After::Unchanged, None),
    })
}

/// Changes the deadlines of fields as `decide` says of the time and the deadline before.
fn change<'a>(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    entry: &Entry,
    fields: impl ExactSizeIterator<Item = &'a [u8]>,
    decide: impl Fn(u64, Option<u64>) -> (After, Option<u64>),
) -> Result<Vec<After>> {
    if fields.len() > ROWS_INLINE_MAX {
        txn.long()?;
    }
    let now_ms = txn.expiry_ms();
    let mut outcomes = Vec::with_capacity(fields.len());
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let mut packing = Packing::of(txn, key, &entry.header, &packed)?;
            for field in fields {
                let place = super::find(&packing.as_packed(), field)?;
                let Some(place) = place else {
                    outcomes.push(After::NoField);
                    continue;
                };
                let (outcome, deadline_ms) = decide(now_ms, place.deadline_ms);
                match outcome {
                    After::Changed => packing.set_deadline(field, deadline_ms)?,
                    After::Deleted => drop(packing.remove(field)?),
                    After::NoField | After::Unchanged => {}
                }
                outcomes.push(outcome);
            }
            if has_changed(&outcomes) || packing.count < packed.count.into() {
                packing.finish(txn, key)?;
            }
        }
        Form::Rows(head, timing) => {
            let mut rows = Rows::of(entry, head, timing);
            for field in fields {
                outcomes.push(rows.change_deadline(txn, key, field, &decide)?);
            }
            if has_changed(&outcomes) {
                rows.finish(txn, key)?;
            }
        }
    }
    // A deadline that has passed already makes a field one that has expired, as in Redis.
    txn.on_expired_fields(outcomes.iter().filter(|outcome| **outcome == After::Deleted).count() as u64);
    Ok(outcomes)
}

fn has_changed(outcomes: &[After]) -> bool {
    outcomes.iter().any(|outcome| matches!(outcome, After::Changed | After::Deleted))
}

/// The outcome of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    pub fields: u64,
    /// The latest deadline of the fields removed.
    pub until_ms: u64,
    /// Whether more of its fields may be due.
    pub may_be_more: bool,
}

/// Removes up to `max` fields whose deadlines have passed. Some field is left: a key whose last field expires goes as a
/// whole.
fn expire_fields(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, max: usize) -> Result<Expired> {
    match Form::of(entry)? {
        Form::Packed(packed) => {
            let packing = Packing::of(txn, key, &entry.header, &packed)?;
            let fields = u64::from(packed.count) - packing.count as u64;
            packing.finish(txn, key)?;
            Ok(Expired { fields, until_ms: txn.expiry_ms().saturating_sub(1), may_be_more: false })
        }
        Form::Rows(head, timing) => {
            let mut rows = Rows::of(entry, head, timing);
            let (fields, until_ms) = rows.reclaim(txn, key, max)?;
            rows.finish(txn, key)?;
            Ok(Expired { fields, until_ms, may_be_more: fields == max as u64 })
        }
    }
}

/// Tells whether the deadline of some field lies in a span of time that has passed.
pub fn has_expired_within(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry, span: Range<u64>) -> Result<bool> {
    if !has_expired(entry, span.end) {
        return Ok(false);
    }
    match Form::of(entry)? {
        Form::Packed(packed) => is_any_within(&packed, span),
        Form::Rows(head, _) => {
            let (from, until) = index_range(key, &head, span.start, span.end);
            let mut found = false;
            txn.visit(&from, &until, Direction::Forward, 1, |_, _| {
                found = true;
                ControlFlow::Break(())
            })?;
            Ok(found)
        }
    }
}

fn is_any_within(packed: &Packed<'_>, span: Range<u64>) -> Result<bool> {
    let mut fields = Fields::of(packed);
    while let Some(field) = fields.next()? {
        if field.stored.deadline_ms.is_some_and(|deadline| span.contains(&deadline)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The outcome of a deadline row that came due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lapsed {
    Key,
    /// Fields of the hash expired.
    Fields(Expired),
    Nothing,
}

/// Carries out the expiry that a deadline row of a key stands for, at most `max` fields of it.
pub fn expire(txn: &mut Txn<'_>, key: &Key<'_>, deadline_ms: u64, max: usize) -> Result<Lapsed> {
    Ok(match key::expire(txn, key, deadline_ms)? {
        key::Due::Removed => Lapsed::Key,
        key::Due::Fields(entry) => Lapsed::Fields(expire_fields(txn, key, &entry, max)?),
        key::Due::Nothing => Lapsed::Nothing,
    })
}
