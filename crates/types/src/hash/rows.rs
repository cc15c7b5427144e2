//! A hash in rows that is changed: the rows of its fields, the index of their deadlines, and its meta row at the end.
//!
//! The index has a `score` row `deadline_ms: u64 BE | h32: u32 BE | field` for each field with a deadline, so that the
//! earliest comes first.

use super::Timing;
use super::deadline::After;
use super::field::{HAS_DEADLINES, RowHead, Stored, stored_in_row};
use super::packing::Deadline;
use crate::element::{self, Head};
use crate::key::{self, Entry, FieldTimes, Header, NEVER_MS, Object, Tag};
use crate::{Result, event};
use haypile_store::row::{RowKey, score_row};
use haypile_store::{Direction, Key, RowPresence, Txn, Value};
use std::ops::ControlFlow;

pub struct Rows {
    before: Option<Header>,
    pub head: Head,
    timing: Timing,
    count_before: u64,
    /// Whether deadlines have changed: `finish` then reads from the index the span that the meta row states.
    is_retimed: bool,
    /// Whether fields were removed or replaced whose deadlines had passed.
    has_expired: bool,
    deadline_ms: Option<u64>,
}

impl Rows {
    /// Returns a hash under a new object, for a key that was `before`.
    pub fn new(txn: &mut Txn<'_>, key: &Key<'_>, before: Option<Header>, encoding: u8) -> Result<Rows> {
        let head = Head { object: Object::new(txn, key)?, encoding, count: 0 };
        let timing = Timing { is_timed: encoding & HAS_DEADLINES != 0, count: 0 };
        let deadline_ms = before.and_then(|before| before.deadline_ms);
        let (is_retimed, has_expired) = (false, false);
        Ok(Rows { before, head, timing, count_before: 0, is_retimed, has_expired, deadline_ms })
    }

    /// Returns the hash of an entry.
    pub fn of(entry: &Entry, head: Head, timing: Timing) -> Rows {
        let (before, count_before, deadline_ms) = (Some(entry.header), head.count, entry.header.deadline_ms);
        Rows { before, head, timing, count_before, is_retimed: false, has_expired: false, deadline_ms }
    }

    fn row(&self, txn: &Txn<'_>, key: &Key<'_>, name: &[u8]) -> RowKey {
        self.head.rows(key).element(element::hash(txn, name), name)
    }

    fn index_row(&self, txn: &Txn<'_>, key: &Key<'_>, deadline_ms: u64, name: &[u8]) -> RowKey {
        let hash = element::hash(txn, name).to_be_bytes();
        let mut row = score_row(key.space, self.head.object.slot, self.head.object.id, &deadline_ms.to_be_bytes());
        row.extend_from_slice(&hash);
        row.extend_from_slice(name);
        row
    }

    /// Adds a field that is not there.
    pub fn insert(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, name: &[u8], stored: Stored<'_>) -> Result<()> {
        let row = self.row(txn, key, name);
        self.head.count += 1;
        self.retime(txn, key, name, None, stored.deadline_ms)?;
        Ok(txn.put_row(&row, &[RowHead::new(stored.deadline_ms).bytes(), stored.value])?)
    }

    /// Sets a field; returns whether it is new to readers.
    pub fn set(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        name: &[u8],
        value: &[u8],
        deadline: Deadline,
    ) -> Result<bool> {
        let row = self.row(txn, key, name);
        if !self.timing.is_timed && matches!(deadline, Deadline::Keep | Deadline::Is(None)) {
            // No deadline is possible, so the old value need not be read.
            let is_new = txn.row_presence(&row)? == RowPresence::Absent;
            self.head.count += u64::from(is_new);
            txn.put_row(&row, &[RowHead::new(None).bytes(), value])?;
            return Ok(is_new);
        }
        let before = txn.row(&row)?;
        self.replace(txn, key, name, before.as_ref(), value, deadline)
    }

    /// Sets a field whose row was read already; returns whether it is new to readers.
    pub fn replace(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        name: &[u8],
        before: Option<&Value>,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<bool> {
        let old = before.map(|row| stored_in_row(row)).transpose()?;
        let live = old.filter(|old| old.is_live(txn.expiry_ms()));
        if old.is_some() && live.is_none() {
            self.has_expired = true;
            txn.on_found_expired_field(key, name);
        }
        let deadline_ms = deadline.after(live.and_then(|live| live.deadline_ms));
        self.head.count += u64::from(old.is_none());
        self.retime(txn, key, name, old.and_then(|old| old.deadline_ms), deadline_ms)?;
        let row = self.row(txn, key, name);
        txn.put_row(&row, &[RowHead::new(deadline_ms).bytes(), value])?;
        Ok(live.is_none())
    }

    /// Moves a field in the index.
    fn retime(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        name: &[u8],
        before: Option<u64>,
        after: Option<u64>,
    ) -> Result<()> {
        if before == after {
            return Ok(());
        }
        if let Some(before) = before {
            txn.delete_row(&self.index_row(txn, key, before, name))?;
            self.timing.count = element::lowered(txn, self.timing.count, 1);
        }
        if let Some(after) = after {
            txn.put_row(&self.index_row(txn, key, after, name), &[])?;
            self.timing.count += 1;
            self.timing.is_timed = true;
        }
        self.is_retimed = true;
        Ok(())
    }

    /// Gives a field the deadline that `decide` returns, or deletes it.
    pub fn change_deadline(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        name: &[u8],
        decide: impl Fn(u64, Option<u64>) -> (After, Option<u64>),
    ) -> Result<After> {
        let (row, now_ms) = (self.row(txn, key, name), txn.expiry_ms());
        let Some(before) = txn.row(&row)? else { return Ok(After::NoField) };
        let old = stored_in_row(&before)?;
        if !old.is_live(now_ms) {
            return Ok(After::NoField);
        }
        let (outcome, deadline_ms) = decide(now_ms, old.deadline_ms);
        match outcome {
            After::Changed => {
                self.retime(txn, key, name, old.deadline_ms, deadline_ms)?;
                txn.put_row(&row, &[RowHead::new(deadline_ms).bytes(), old.value])?;
            }
            After::Deleted => {
                txn.delete_row(&row)?;
                self.head.count = element::lowered(txn, self.head.count, 1);
                self.retime(txn, key, name, old.deadline_ms, None)?;
            }
            After::NoField | After::Unchanged => {}
        }
        Ok(outcome)
    }

    /// Removes a field; returns whether readers saw it.
    pub fn remove(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, name: &[u8]) -> Result<bool> {
        let row = self.row(txn, key, name);
        if !self.timing.is_timed {
            let is_there = self.head.count > 0 && txn.row_presence(&row)? != RowPresence::Absent;
            if is_there {
                txn.delete_row(&row)?;
                self.head.count = element::lowered(txn, self.head.count, 1);
            }
            return Ok(is_there);
        }
        let Some(before) = txn.row(&row)? else { return Ok(false) };
        let old = stored_in_row(&before)?;
        txn.delete_row(&row)?;
        self.head.count = element::lowered(txn, self.head.count, 1);
        self.retime(txn, key, name, old.deadline_ms, None)?;
        let is_live = old.is_live(txn.expiry_ms());
        if !is_live {
            self.has_expired = true;
            txn.on_found_expired_field(key, name);
        }
        Ok(is_live)
    }

    /// Removes up to `max` fields whose deadlines have passed; returns how many, and the latest of their deadlines.
    pub fn reclaim(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, max: usize) -> Result<(u64, u64)> {
        let (from, until) = super::index_range(key, &self.head, 0, txn.expiry_ms());
        let gone = txn.scan(&from, &until, max)?;
        for (row, _) in &gone {
            let Some(name) = row.get(element::ROW_PREFIX_BYTES + 8 + element::HASH_BYTES..) else {
                return Err(key::damaged("the index of a hash's deadlines", row));
            };
            txn.on_found_expired_field(key, name);
            txn.delete_row(&self.row(txn, key, name))?;
            txn.delete_row(row)?;
            self.head.count = element::lowered(txn, self.head.count, 1);
            self.timing.count = element::lowered(txn, self.timing.count, 1);
            self.is_retimed = true;
        }
        self.has_expired |= !gone.is_empty();
        let deadline_of =
            |row: &[u8]| row.get(element::ROW_PREFIX_BYTES..)?.first_chunk::<8>().map(|ms| u64::from_be_bytes(*ms));
        Ok((gone.len() as u64, gone.last().and_then(|(row, _)| deadline_of(row)).unwrap_or(0)))
    }

    /// Returns the earliest and the latest deadline of the index.
    fn times(&self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<FieldTimes>> {
        if self.timing.count == 0 {
            return Ok(None);
        }
        let first_ms = self.end_of_index(txn, key, Direction::Forward)?;
        let all_go = self.timing.count == self.head.count;
        let last_ms = if all_go { self.end_of_index(txn, key, Direction::Backward)? } else { NEVER_MS };
        Ok(Some(FieldTimes { first_ms, last_ms }))
    }

    fn end_of_index(&self, txn: &mut Txn<'_>, key: &Key<'_>, direction: Direction) -> Result<u64> {
        let (from, until) = super::index_range(key, &self.head, 0, u64::MAX);
        let mut found = None;
        txn.visit(&from, &until, direction, 1, |row, _| {
            let deadline = row.get(element::ROW_PREFIX_BYTES..).and_then(|rest| rest.first_chunk::<8>());
            found = deadline.map(|bytes| u64::from_be_bytes(*bytes));
            ControlFlow::Break(())
        })?;
        found.ok_or_else(|| key::damaged("the index of a hash's deadlines", &from))
    }

    /// Panics unless the counts agree with the span of deadlines that the meta row is to state.
    fn assert_sound(&self, fields: Option<FieldTimes>) {
        let (count, timed) = (self.head.count, self.timing.count);
        assert!(timed <= count, "Invariant: no more fields have deadlines than there are: {timed} of {count}");
        assert_eq!(fields.is_some(), timed > 0, "Invariant: the meta row states deadlines if some field has one");
        let ends = fields.is_some_and(|fields| fields.last_ms != NEVER_MS);
        assert!(!ends || timed == count, "Invariant: a hash ends with its fields if all have deadlines");
    }

    /// Writes the meta row. A hash without fields that readers see is removed.
    pub fn finish(mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        if self.has_expired {
            txn.on_event(event::HASH, "hexpired", key);
        }
        let was = self.before.and_then(|before| before.fields);
        // Another number of fields may change whether all of them have deadlines.
        let is_retimed = self.is_retimed || self.timing.is_timed && self.head.count != self.count_before;
        let fields = if is_retimed { self.times(txn, key)? } else { was };
        let header =
            Header { tag: Tag::HashRows, deadline_ms: self.deadline_ms, fields, object: Some(self.head.object) };
        if self.head.count == 0 || header.is_expired(txn.expiry_ms()) {
            // Fields that have expired may be left, and go with it.
            txn.on_expired_fields(self.head.count);
            txn.on_found_expired(key);
            return match &self.before {
                Some(before) => key::remove(txn, key, before),
                None => Ok(()),
            };
        }
        // In a dry run the rows may be of two moments.
        if cfg!(debug_assertions) && !txn.is_dry_run() {
            self.assert_sound(fields);
        }
        self.head.encoding = super::change::encoding_of_count(txn, self.head.encoding, self.head.count);
        if !self.timing.is_timed {
            return key::write(txn, key, self.before.as_ref(), &header, &[&self.head.encode()]);
        }
        self.head.encoding |= HAS_DEADLINES;
        let count = self.timing.count.to_be_bytes();
        key::write(txn, key, self.before.as_ref(), &header, &[&self.head.encode(), &count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_store::{ObjectId, Slot};

    /// Checks a hash of two fields, of which so many have deadlines.
    fn check(timed: u64, fields: Option<FieldTimes>) {
        let object = Object { id: ObjectId(1), slot: Slot(0) };
        let head = Head { object, encoding: HAS_DEADLINES, count: 2 };
        let timing = Timing { is_timed: true, count: timed };
        let (before, deadline_ms) = (None, None);
        let (is_retimed, has_expired) = (false, false);
        Rows { before, head, timing, count_before: 2, is_retimed, has_expired, deadline_ms }.assert_sound(fields);
    }

    #[test]
    #[should_panic(expected = "the meta row states deadlines if some field has one")]
    fn a_deadline_that_the_meta_row_does_not_state_is_noticed() {
        check(0, None);
        check(1, Some(FieldTimes { first_ms: 5, last_ms: NEVER_MS }));
        check(2, Some(FieldTimes { first_ms: 5, last_ms: 9 }));
        check(1, None);
    }

    #[test]
    #[should_panic(expected = "a hash ends with its fields if all have deadlines")]
    fn an_end_of_a_hash_before_its_last_field_goes_is_noticed() {
        check(1, Some(FieldTimes { first_ms: 5, last_ms: 5 }));
    }
}
