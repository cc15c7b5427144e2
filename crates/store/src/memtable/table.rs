//! One generation of one shard: the rows of its slots.

use super::elements::Elements;
use super::entry::RowEntry;
use super::keys::{Keys, Order, Probe};
use super::objects::{ObjectKey, Objects};
use super::{Change, Found};
use crate::access::Access;
use crate::row::{Family, Key, Slot, Space, family_range, parse_expire_row, parse_meta_row};
use crate::value::Value;
use haypile_log::Index;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that a row takes besides its key and value in the ordered map: nodes, counters and the allocator's share.
const ROW_BYTES: i64 = 96;

/// The newest write of a row.
pub struct Entry {
    /// The value; `None` if the row was deleted.
    value: Option<Arc<[u8]>>,
    index: Index,
}

impl Entry {
    fn bytes(&self, row: &[u8]) -> i64 {
        row.len() as i64 + self.value.as_ref().map_or(0, |value| value.len() as i64) + ROW_BYTES
    }
}

/// The rows of a shard: user keys by slot, those of objects by object, everything else ordered by row key.
#[derive(Default)]
pub struct Table {
    keys: Keys,
    pub objects: Objects,
    /// Deadlines and system rows.
    rows: BTreeMap<Box<[u8]>, Entry>,
    /// Spaces by their numbers in `keys`.
    spaces: Vec<Space>,
}

impl Table {
    /// Returns the meta row of a key, or its tombstone.
    #[inline]
    pub fn find(&self, key: &Key<'_>) -> Option<&RowEntry> {
        self.keys.get(self.order_of(key)?, key.name)
    }

    /// Begins the lookup of a key: finds its run.
    #[inline]
    pub fn probe(&self, key: &Key<'_>) -> Option<Probe<'_>> {
        self.keys.probe(self.order_of(key)?)
    }

    /// Returns the order of a key; `None` if nothing of its space is here.
    #[inline]
    fn order_of(&self, key: &Key<'_>) -> Option<Order> {
        // Searched from the end: the newest space is the one that lookups mostly ask for.
        let space = self.spaces.iter().rposition(|space| *space == key.space)?;
        Some(Order::new(space, key.slot, key.hash))
    }

    pub fn row(&self, row: &[u8]) -> Found {
        if is_of_object(row) {
            return self.objects.row(row);
        }
        if let Some(key) = parse_meta_row(row) {
            return self.find(&key).map_or(Found::Unknown, RowEntry::found);
        }
        self.rows.get(row).map_or(Found::Unknown, |entry| match &entry.value {
            Some(value) => Found::Row(Value::new(value.clone(), 0..value.len()), entry.index),
            None => Found::Deleted(entry.index),
        })
    }

    /// Writes a row or its tombstone; `access` counts where the row is a key's. Returns by how many bytes the table
    /// grew.
    #[inline]
    pub fn put(&mut self, row: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> i64 {
        if let Some(key) = parse_meta_row(row) {
            let space = self.number_of(key.space);
            return self.keys.put(Order::new(space, key.slot, key.hash), row, value, index, access);
        }
        if is_of_object(row) {
            let (object, _) = ObjectKey::of(row).expect("a row of an object names it");
            let (grown, is_new) = self.objects.put(object, row, value, index);
            if is_new {
                self.note_space(row);
            }
            return grown;
        }
        if let Some(entry) = self.rows.get_mut(row) {
            debug_assert!(entry.index <= index, "records write a row in their order: {index} after {}", entry.index);
            let before = entry.value.as_ref().map_or(0, |value| value.len() as i64);
            entry.value = value.map(Arc::from);
            entry.index = index;
            return value.map_or(0, |value| value.len() as i64) - before;
        }
        self.note_space(row);
        self.rows.insert(row.into(), Entry { value: value.map(Arc::from), index });
        row.len() as i64 + value.map_or(0, |value| value.len() as i64) + ROW_BYTES
    }

    /// Returns a space's number in this table.
    #[inline]
    fn number_of(&mut self, space: Space) -> usize {
        self.spaces.iter().rposition(|other| *other == space).unwrap_or_else(|| {
            self.spaces.push(space);
            self.spaces.len() - 1
        })
    }

    /// Deletes a row of an object of which an older table has rows, too; returns by how many bytes the table grew.
    pub fn hide(&mut self, row: &[u8], below: &Elements, index: Index) -> i64 {
        let (grown, is_new) = self.objects.hide(row, below, index);
        if is_new {
            self.note_space(row);
        }
        grown
    }

    /// Takes a row out without a trace; returns by how much the table shrank, as a negative number.
    pub fn forget(&mut self, row: &[u8]) -> i64 {
        if let Some(key) = parse_meta_row(row) {
            let gone = self.order_of(&key).and_then(|order| self.keys.remove(order, key.name));
            return gone.map_or(0, |gone| -gone.bytes());
        }
        if is_of_object(row) {
            return self.objects.forget(row);
        }
        self.rows.remove(row).map_or(0, |gone| -gone.bytes(row))
    }

    /// Takes out the keys that a slot has of a space; also returns the bytes that they took.
    pub fn take_keys(&mut self, space: Space, slot: Slot) -> (Vec<RowEntry>, i64) {
        let from = self.order_of(&Key { space, slot, hash: 0, name: b"" });
        let gone = from.map_or_else(Vec::new, |from| self.keys.take(from, from.end_of_slot()));
        let bytes = gone.iter().map(RowEntry::bytes).sum();
        (gone, bytes)
    }

    /// Takes out the first `max` deadlines of a space; also returns the bytes that they took.
    pub fn take_deadlines(&mut self, space: Space, max: usize) -> (Vec<Entry>, i64) {
        let (from, until) = family_range(Family::Expire, space);
        let range = (Bound::Included(&from[..]), Bound::Excluded(&until[..]));
        let keys: Vec<Box<[u8]>> = self.rows.range::<[u8], _>(range).take(max).map(|(row, _)| row.clone()).collect();
        let mut bytes = 0;
        let gone =
            keys.iter().filter_map(|row| self.rows.remove(row).inspect(|entry| bytes += entry.bytes(row))).collect();
        (gone, bytes)
    }

    /// Returns the bytes that the rows take, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        self.keys.count_bytes()
            + self.objects.count_bytes()
            + self.rows.iter().map(|(row, entry)| entry.bytes(row)).sum::<i64>()
    }

    fn note_space(&mut self, row: &[u8]) {
        if Family::of(row) != Some(Family::System)
            && let Some(space) = row.get(1..5).and_then(|bytes| bytes.try_into().ok())
        {
            self.number_of(Space(u32::from_be_bytes(space)));
        }
    }

    /// Changes a row, a deleted one as an empty one; returns by how much the table grew, `None` if the row is not here.
    /// Drops `before` first if the row is here: `before` may be another handle on the row's block, which could not
    /// change in place then.
    pub fn change(
        &mut self,
        row: &[u8],
        change: Change<'_>,
        before: &mut Option<Value>,
        index: Index,
        access: Access,
    ) -> Option<i64> {
        let held = if is_of_object(row) {
            self.objects.find_mut(row)
        } else if let Some(key) = parse_meta_row(row) {
            self.order_of(&key).and_then(|order| self.keys.get_mut(order, key.name))
        } else {
            return self.change_other(row, change, index);
        };
        let held = held?;
        *before = None;
        Some(held.change(change, index, access))
    }

    fn change_other(&mut self, row: &[u8], change: Change<'_>, index: Index) -> Option<i64> {
        let entry = self.rows.get_mut(row)?;
        debug_assert!(entry.index <= index, "records change a row in their order: {index} after {}", entry.index);
        let before = entry.bytes(row);
        let changed = change.apply(entry.value.as_deref().unwrap_or_default());
        *entry = Entry { value: Some(Arc::from(changed)), index };
        Some(entry.bytes(row) - before)
    }

    /// Returns whether there is no key: a scan passes over the shard.
    pub fn has_no_keys(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the spaces that have or had rows here.
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns the deadlines of one space that stand, from `from_ms` on, earliest first: the row and its time in
    /// milliseconds.
    pub fn deadlines(&self, space: Space, from_ms: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let (mut from, until) = family_range(Family::Expire, space);
        from.extend_from_slice(&from_ms.to_be_bytes());
        self.rows
            .range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&until[..])))
            .filter(|(_, entry)| entry.value.is_some())
            .filter_map(|(row, _)| parse_expire_row(row).map(|(deadline_ms, _)| (&row[..], deadline_ms)))
    }

    /// Returns the meta rows of a slot from a hash on, in scan order, each with its hash.
    pub fn keys_from(&self, space: Space, slot: Slot, hash: u32) -> impl Iterator<Item = (u32, &RowEntry)> {
        let from = self.order_of(&Key { space, slot, hash, name: b"" });
        let rows = from.into_iter().flat_map(|from| self.keys.range(from, from.end_of_slot()));
        rows.map(|(order, entry)| (order.hash(), entry))
    }

    /// Returns all meta rows of a space, in scan order.
    pub fn keys_in(&self, space: Space) -> impl Iterator<Item = &RowEntry> {
        let number = self.spaces.iter().position(|other| *other == space);
        let rows = number.into_iter().flat_map(|number| {
            let (from, last) = Order::of_space(number);
            self.keys.range(from, last)
        });
        rows.map(|(_, entry)| entry)
    }

    /// Returns deadlines and system rows with `from <= key < until`, in order, each with the record that wrote it.
    pub fn other_rows(
        &self,
        from: &[u8],
        until: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>, Index)> + use<'_> {
        // BTreeMap panics on an inverted range, which means an empty one here.
        let until = if until < from { from } else { until };
        self.rows
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(until)))
            .map(|(row, entry)| (&row[..], entry.value.as_deref(), entry.index))
    }

    /// Returns rows that are not meta rows with `from <= key < until`, in order, each with the record that wrote it: of
    /// any objects, deadlines and system rows. Looks at all objects.
    pub fn rows_in(
        &self,
        from: &[u8],
        until: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>, Index)> + use<'_> {
        // The families of objects come before the others.
        let of_objects = self.objects.rows_in(from, until).into_iter();
        of_objects.map(|entry| (entry.row(), entry.value(), entry.index())).chain(self.other_rows(from, until))
    }
}

/// Returns whether a row belongs to a family of objects.
#[inline]
fn is_of_object(row: &[u8]) -> bool {
    matches!(Family::of(row), Some(Family::Data | Family::Score | Family::Owner))
}
