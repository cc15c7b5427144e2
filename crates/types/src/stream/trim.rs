//! The removal of the oldest entries of a stream: down to a number of them, or up to an id.
//!
//! Redis keeps a stream in nodes of a hundred entries, and an approximate trim removes only whole ones, as long as the
//! next one may go as a whole. Here every entry has a row, so nodes are only numbers: the entries ever added make
//! hundreds, and the entries missing by now are taken for the first ones. Where nothing was removed from the middle of
//! a stream, these are Redis's nodes. A trim that minds the references of groups goes entry by entry: `trim_by`.

use super::{ELEMENT_BYTES, Kind, Policy, STEP_ROWS, Stream, StreamId, copy_rows, element_of};
use crate::Result;
use crate::element::{self, ROW_PREFIX_BYTES, ROWS_INLINE_MAX};
use crate::key::damaged;
use haypile_store::{Direction, Key, Txn};
use std::ops::{ControlFlow, RangeInclusive};

/// The bound beyond which entries are too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The number of entries that stay, the newest ones.
    Length(u64),
    /// Entries below this id.
    Id(StreamId),
}

/// The rule that only whole nodes are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Entries of a node; 0: there is one node.
    pub entries: u64,
    /// The most entries that are removed; 0: no bound.
    pub limit: u64,
}

/// The bound of a trim, and whether it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    pub bound: Bound,
    /// The rule of whole nodes; `None` if all entries that are too old are removed, and no others.
    pub nodes: Option<Nodes>,
    pub policy: Policy,
}

/// Fewer entries than these are removed one by one, whatever is left.
const REMOVED_MIN: u64 = 64;

/// Bytes of a transaction that the removal of a row takes, about.
pub(super) const REMOVAL_BYTES: u64 = (ROW_PREFIX_BYTES + ELEMENT_BYTES) as u64 + 16;

impl Nodes {
    /// Returns how many of the `removable` first entries are removed: whole nodes.
    fn whole(self, stream: &Stream, removable: u64) -> u64 {
        let head = &stream.head;
        let allowed = |removed: u64| self.limit == 0 || removed <= self.limit;
        if removable == head.count && allowed(head.count) {
            return head.count;
        }
        let Some(gone) = head.entries_added.saturating_sub(head.count).checked_rem(self.entries) else { return 0 };
        let most = if self.limit == 0 { removable } else { removable.min(self.limit) };
        // Entries before the last border that is not behind `most`.
        (gone + most).checked_div(self.entries).map_or(0, |nodes| (nodes * self.entries).saturating_sub(gone))
    }
}

impl Stream {
    /// Removes the entries that are too old and returns how many they were. If there were any, the stream is to be
    /// saved then.
    pub fn trim(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, trim: Trim) -> Result<u64> {
        if trim.policy != Policy::KeepRef {
            return self.trim_by(txn, key, trim);
        }
        let removable = self.removable(txn, trim)?;
        let removed = match trim.nodes {
            None => removable,
            Some(nodes) => nodes.whole(self, removable),
        };
        if removed > 0 {
            self.remove_first(txn, key, removed)?;
        }
        Ok(removed)
    }

    /// Counts the entries that are too old, as far as they matter.
    pub(super) fn removable(&self, txn: &mut Txn<'_>, trim: Trim) -> Result<u64> {
        match trim.bound {
            Bound::Length(length) => Ok(self.head.count.saturating_sub(length)),
            Bound::Id(id) => self.count_below(txn, id, trim.nodes),
        }
    }

    /// Counts the entries below an id, as far as they matter.
    fn count_below(&self, txn: &mut Txn<'_>, id: StreamId, nodes: Option<Nodes>) -> Result<u64> {
        let Some(last) = id.previous() else { return Ok(0) };
        let most = nodes.map(|nodes| nodes.limit).filter(|limit| *limit > 0).unwrap_or(u64::MAX);
        let at_once = most.min(ROWS_INLINE_MAX as u64);
        let count = self.count_up_to(txn, StreamId::MIN..=last, at_once)?;
        if count < at_once || at_once == most {
            return Ok(count);
        }
        txn.long()?;
        self.count_up_to(txn, StreamId::MIN..=last, most)
    }

    /// Counts the entries in a range, up to `most`, which is not 0.
    pub fn count_up_to(&self, txn: &mut Txn<'_>, ids: RangeInclusive<StreamId>, most: u64) -> Result<u64> {
        let mut count = 0;
        self.visit_ids(txn, ids, Direction::Forward, most.min(STEP_ROWS as u64) as usize, |_| {
            count += 1;
            if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(count)
    }

    /// Removes the first entries: one by one, or by copying the others to a fresh object, which may be written ahead.
    pub(super) fn remove_first(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, removed: u64) -> Result<()> {
        let kept = element::lowered(txn, self.head.count, removed);
        let is_too_much = removed > txn.bytes_max() / 2 / REMOVAL_BYTES;
        if is_too_much || removed > REMOVED_MIN && removed > kept && !self.has_more_than_entries(txn)? {
            return self.keep_last(txn, key, kept);
        }
        if removed > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let (mut gone, mut first) = (Vec::with_capacity(removed as usize), StreamId::MIN);
        let want = if kept > 0 { removed + 1 } else { removed };
        self.visit_ids(txn, StreamId::MIN..=StreamId::MAX, Direction::Forward, want as usize, |id| {
            if gone.len() as u64 == removed {
                first = id;
                return ControlFlow::Break(());
            }
            gone.push(id);
            if gone.len() as u64 == want { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if gone.len() as u64 + u64::from(first != StreamId::MIN) != want {
            return Err(damaged("the count of a stream", &self.head.encode()));
        }
        for id in gone {
            txn.delete_row(&self.rows().data(&element_of(id)))?;
        }
        (self.head.count, self.head.first) = (kept, first);
        Ok(())
    }

    /// Returns whether rows that are no entries would have to move with them: those of consumer groups, and of what
    /// producers have added.
    fn has_more_than_entries(&mut self, txn: &mut Txn<'_>) -> Result<bool> {
        let has_ids = self.producers(txn)?.is_some_and(|producers| producers.state.ids > 0);
        Ok(has_ids || self.groups(txn)? > 0)
    }

    /// Moves the last entries to a fresh object, which takes the place of this one.
    fn keep_last(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, kept: u64) -> Result<()> {
        if kept > ROWS_INLINE_MAX as u64 || self.has_more_than_entries(txn)? {
            txn.long()?;
        }
        let (mut seen, mut first) = (0, StreamId::MIN);
        if kept > 0 {
            let want = kept.min(STEP_ROWS as u64) as usize;
            self.visit_ids(txn, StreamId::MIN..=StreamId::MAX, Direction::Backward, want, |id| {
                (seen, first) = (seen + 1, id);
                if seen == kept { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if seen < kept {
                return Err(damaged("the count of a stream", &self.head.encode()));
            }
        }
        let old = self.move_without_entries(txn, key)?;
        if kept > 0 {
            let until = old.data(&[Kind::Group as u8]);
            copy_rows(txn, &mut old.data(&element_of(first)), &until, &self.rows())?;
        }
        (self.head.count, self.head.first) = (kept, first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Rows;
    use crate::key::Object;
    use crate::stream::Head;
    use haypile_store::{ObjectId, Slot, Space};

    #[test]
    fn nodes_go_as_a_whole() {
        let removed = |entries, limit, (added, count), removable| {
            let object = Object { id: ObjectId(1), slot: Slot(0) };
            let mut head = Head::empty(object);
            (head.entries_added, head.count) = (added, count);
            let stream = Stream { before: None, head, rows: Rows { space: Space(0), object } };
            Nodes { entries, limit }.whole(&stream, removable)
        };
        assert_eq!(removed(100, 0, (250, 250), 99), 0);
        assert_eq!(removed(100, 0, (250, 250), 100), 100);
        assert_eq!(removed(100, 0, (250, 250), 249), 200);
        assert_eq!(removed(100, 0, (250, 250), 250), 250, "the last node, too, though it is not full");
        assert_eq!(removed(100, 120, (250, 250), 250), 100, "not beyond the limit");
        assert_eq!(removed(100, 220, (250, 250), 250), 200);
        assert_eq!(removed(100, 99, (250, 250), 250), 0);
        assert_eq!(removed(100, 0, (250, 220), 69), 0, "thirty of the first node went before");
        assert_eq!(removed(100, 0, (250, 220), 70), 70);
        assert_eq!(removed(100, 0, (250, 220), 170), 170);
        assert_eq!(removed(0, 0, (250, 250), 249), 0, "all is one node");
        assert_eq!(removed(0, 0, (250, 250), 250), 250);
        assert_eq!(removed(100, 0, (5, 20), 10), 0, "XSETID may say that fewer were added");
    }
}
