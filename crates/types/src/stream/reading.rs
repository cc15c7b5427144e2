//! How a group reads a stream: the delivery of new entries, and how far behind the group is, as far as that is known.
//!
//! As in Redis, a group counts the entries that it has read only as long as that can be known: entries that were
//! removed behind the one it has read last make the count unknown, until an entry is delivered whose place among all is
//! known again.

use super::pending::{Edit, Place};
use super::{Fields, Head, Stream, StreamId};
use crate::Result;
use crate::element::{REPLY_INLINE_BYTES_MAX, ROWS_INLINE_MAX};
use haypile_store::{Direction, Txn};
use smallvec::SmallVec;
use std::ops::ControlFlow;

/// Bytes of the log for an entry that becomes pending, besides its consumer's name.
const PENDING_BYTES: u64 = 160;

impl Head {
    /// Tells whether an entry at or behind `from` was removed by its id, and others before it are still there.
    fn has_gaps_from(&self, from: StreamId) -> bool {
        let has_gaps = self.max_deleted != StreamId::MIN && self.first <= self.max_deleted;
        self.count > 0 && has_gaps && from <= self.max_deleted
    }

    /// Returns how many entries of all that were ever added stand up to an id, if that can be known.
    pub fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if id == self.last || self.count == 0 && id < self.last {
            return Some(self.entries_added);
        }
        if id > self.last {
            return None;
        }
        let is_whole = self.max_deleted == StreamId::MIN || self.max_deleted < self.first;
        let before_first = self.entries_added.wrapping_sub(self.count);
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less if is_whole => Some(before_first),
            std::cmp::Ordering::Equal if is_whole => Some(before_first.wrapping_add(1)),
            _ => None,
        }
    }

    /// Returns how many entries a group that has read up to `last` has still to read, if that can be known.
    pub fn lag(&self, last: StreamId, entries_read: Option<u64>) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = match entries_read {
            Some(read) if !self.has_gaps_from(last) => Some(read),
            _ => self.entries_up_to(last),
        };
        read.map(|read| self.entries_added.wrapping_sub(read) as i64)
    }

    /// Returns the count of a group that has read so many entries and gets this one.
    fn read_one(&self, entries_read: Option<u64>, id: StreamId) -> Option<u64> {
        match entries_read {
            Some(read) if !self.has_gaps_from(id) => Some(read.wrapping_add(1)),
            // XSETID may say that no entry was ever added: the count stays then.
            read if self.entries_added == 0 => read,
            _ => self.entries_up_to(id),
        }
    }
}

/// How new entries are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The most entries that are delivered.
    pub limit: u64,
    /// Whether delivered entries count as acknowledged.
    pub acknowledged: bool,
}

impl Edit<'_> {
    /// Delivers the entries behind the last one that the group has got, and shows them; returns how many there were.
    /// `each` returns how many bytes the caller has made of those that were shown, or `None` if it does not take this
    /// one: then neither this one nor any behind it is delivered. One call delivers no more than one transaction can
    /// note.
    pub fn deliver(
        &mut self,
        txn: &mut Txn<'_>,
        stream: &Stream,
        to: Place,
        how: Delivery,
        mut each: impl FnMut(StreamId, Fields<'_>) -> Option<usize>,
    ) -> Result<u64> {
        let Some(from) = self.group.state.last.next() else { return Ok(0) };
        let name_bytes = self.consumer(to).name.len() as u64;
        let notable = (txn.bytes_max() / 2 / (PENDING_BYTES + name_bytes)).max(1);
        let limit = if how.acknowledged { how.limit } else { how.limit.min(notable) };
        let may_be_long = txn.long().is_ok();
        let (mut ids, mut seen, mut is_long) = (SmallVec::<[StreamId; 16]>::new(), 0, false);
        let (mut last, mut entries_read) = (self.group.state.last, self.group.state.entries_read);
        let want = usize::try_from(limit).unwrap_or(usize::MAX);
        stream.visit(txn, from..=StreamId::MAX, Direction::Forward, want, |id, fields| {
            let Some(bytes) = each(id, fields) else { return ControlFlow::Break(()) };
            entries_read = stream.head.read_one(entries_read, id);
            last = id;
            if !how.acknowledged {
                ids.push(id);
            }
            seen += 1;
            is_long = !may_be_long && (seen > ROWS_INLINE_MAX as u64 || bytes > REPLY_INLINE_BYTES_MAX);
            if is_long || seen == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if is_long {
            txn.long()?;
        }
        (self.group.state.last, self.group.state.entries_read) = (last, entries_read);
        let now_ms = txn.now_ms();
        for id in &ids {
            // A consumer may have the entry already, where the group was set back.
            let held = self.pending(txn, *id)?;
            self.give(txn, *id, held.as_ref(), to, now_ms, 1)?;
        }
        if !ids.is_empty() {
            self.on_active(txn, to);
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Object;
    use haypile_store::row::{ObjectId, Slot};

    fn head(count: u64, first: u64, last: u64, max_deleted: u64, entries_added: u64) -> Head {
        let id = |ms| StreamId { ms, seq: 0 };
        let object = Object { id: ObjectId(1), slot: Slot(0) };
        Head { object, count, last: id(last), first: id(first), max_deleted: id(max_deleted), entries_added }
    }

    #[test]
    fn the_lag_is_known_or_not() {
        let cases = [
            ("a stream that never had an entry", head(0, 0, 0, 0, 0), 5, Some(3), Some(0)),
            ("a known count", head(5, 1, 5, 0, 5), 2, Some(2), Some(3)),
            ("a count that was set too high", head(5, 1, 5, 0, 5), 2, Some(7), Some(-2)),
            ("the end", head(5, 1, 5, 0, 5), 5, None, Some(0)),
            ("an arbitrary id", head(5, 1, 5, 0, 5), 2, None, None),
            ("the first entry", head(5, 1, 5, 0, 5), 1, None, Some(4)),
            ("before the first entry", head(5, 2, 6, 0, 5), 1, None, Some(5)),
            ("before the first entry of a trimmed stream", head(3, 4, 6, 0, 6), 1, None, Some(3)),
            ("a gap ahead", head(4, 1, 5, 3, 5), 2, Some(2), None),
            ("a gap behind", head(4, 1, 5, 3, 5), 4, Some(4), Some(1)),
            ("a gap before the first entry", head(4, 2, 5, 1, 5), 2, None, Some(3)),
            ("a known count, and a gap before the first entry", head(4, 2, 5, 1, 5), 0, Some(0), Some(5)),
            ("an empty stream", head(0, 0, 5, 5, 5), 2, None, Some(0)),
            ("an id of the future", head(5, 1, 5, 0, 5), 9, None, None),
        ];
        for (name, head, last, read, lag) in cases {
            assert_eq!(head.lag(StreamId { ms: last, seq: 0 }, read), lag, "{name}");
        }
    }
}
