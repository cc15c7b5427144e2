//! One generation of one shard: the rows of its slots.

use super::keys::{Keys, MetaEntry, Order, Probe};
use super::{Found, Patch, is_meta};
use crate::row::{Family, Key, Slot, Space, family_range, parse_expire_row, parse_meta_row};
use crate::value::Value;
use haypile_log::Index;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What a row takes besides its key and value in the ordered map: nodes, counters and the allocator's share.
const ROW_BYTES: i64 = 96;

/// The last thing that happened to a row.
pub struct Entry {
    /// `None`: deleted.
    value: Option<Arc<[u8]>>,
    index: Index,
}

impl Entry {
    fn bytes(&self, row: &[u8]) -> i64 {
        row.len() as i64 + self.value.as_ref().map_or(0, |value| value.len() as i64) + ROW_BYTES
    }
}

/// The rows of a shard: user keys by slot, everything else ordered by row key.
#[derive(Default)]
pub struct Table {
    keys: Keys,
    rows: BTreeMap<Box<[u8]>, Entry>,
    /// A space's place in it is its number in `keys`.
    spaces: Vec<Space>,
}

impl Table {
    #[inline]
    pub fn meta(&self, key: &Key<'_>) -> Found {
        self.find(key).map_or(Found::Unknown, MetaEntry::found)
    }

    /// The meta row of a key, or its deletion.
    #[inline]
    pub fn find(&self, key: &Key<'_>) -> Option<&MetaEntry> {
        self.keys.get(self.order_of(key)?, key.name)
    }

    /// The first step of `find`.
    #[inline]
    pub fn probe(&self, key: &Key<'_>) -> Option<Probe<'_>> {
        self.keys.probe(self.order_of(key)?)
    }

    /// Where a key stands; `None` if nothing of its space is here.
    #[inline]
    fn order_of(&self, key: &Key<'_>) -> Option<Order> {
        // The newest space is the one that is asked for.
        let space = self.spaces.iter().rposition(|space| *space == key.space)?;
        Some(Order::new(space, key.slot, key.hash))
    }

    pub fn row(&self, row: &[u8]) -> Found {
        if is_meta(row) {
            return parse_meta_row(row).map_or(Found::Unknown, |key| self.meta(&key));
        }
        self.rows.get(row).map_or(Found::Unknown, |entry| match &entry.value {
            Some(value) => Found::Row(Value::new(value.clone(), 0..value.len()), entry.index),
            None => Found::Deleted(entry.index),
        })
    }

    /// Writes a row or its deletion; returns by how many bytes the table grew.
    #[inline]
    pub fn put(&mut self, row: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        if let Some(key) = parse_meta_row(row) {
            let space = self.number_of(key.space);
            return self.keys.put(Order::new(space, key.slot, key.hash), row, value, index);
        }
        if let Some(entry) = self.rows.get_mut(row) {
            let before = entry.value.as_ref().map_or(0, |value| value.len() as i64);
            entry.value = value.map(Arc::from);
            entry.index = index;
            return value.map_or(0, |value| value.len() as i64) - before;
        }
        self.note_space(row);
        self.rows.insert(row.into(), Entry { value: value.map(Arc::from), index });
        row.len() as i64 + value.map_or(0, |value| value.len() as i64) + ROW_BYTES
    }

    /// A space's number in this table.
    #[inline]
    fn number_of(&mut self, space: Space) -> usize {
        self.spaces.iter().rposition(|other| *other == space).unwrap_or_else(|| {
            self.spaces.push(space);
            self.spaces.len() - 1
        })
    }

    /// Takes a row out without a trace; returns by how much the table shrank, as a negative number.
    pub fn forget(&mut self, row: &[u8]) -> i64 {
        if let Some(key) = parse_meta_row(row) {
            let gone = self.order_of(&key).and_then(|order| self.keys.remove(order, key.name));
            return gone.map_or(0, |gone| -gone.bytes());
        }
        self.rows.remove(row).map_or(0, |gone| -gone.bytes(row))
    }

    /// Takes out the keys that a slot has of a space; also returns what they took.
    pub fn take_keys(&mut self, space: Space, slot: Slot) -> (Vec<MetaEntry>, i64) {
        let from = self.order_of(&Key { space, slot, hash: 0, name: b"" });
        let gone = from.map_or_else(Vec::new, |from| self.keys.take(from, from.end_of_slot()));
        let bytes = gone.iter().map(MetaEntry::bytes).sum();
        (gone, bytes)
    }

    /// Takes out the first `max` rows with `from <= key < until`, none of them meta rows; also returns what they took.
    pub fn take_rows(&mut self, from: &[u8], until: &[u8], max: usize) -> (Vec<Entry>, i64) {
        let keys: Vec<Box<[u8]>> = self.rows_in(from, until).take(max).map(|(row, ..)| row.into()).collect();
        let mut bytes = 0;
        let gone =
            keys.iter().filter_map(|row| self.rows.remove(row).inspect(|entry| bytes += entry.bytes(row))).collect();
        (gone, bytes)
    }

    /// What the rows take, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        self.keys.count_bytes() + self.rows.iter().map(|(row, entry)| entry.bytes(row)).sum::<i64>()
    }

    fn note_space(&mut self, row: &[u8]) {
        if Family::of(row) != Some(Family::System)
            && let Some(space) = row.get(1..5).and_then(|bytes| bytes.try_into().ok())
        {
            self.number_of(Space(u32::from_be_bytes(space)));
        }
    }

    /// Whether a row or its deletion is in this table.
    pub fn holds(&self, row: &[u8]) -> bool {
        match parse_meta_row(row) {
            Some(key) => self.find(&key).is_some(),
            None => self.rows.contains_key(row),
        }
    }

    /// Patches a row that is in this table; a deleted one counts as empty. Returns by how much the table grew.
    pub fn patch(&mut self, row: &[u8], patch: Patch<'_>, index: Index) -> i64 {
        if !is_meta(row)
            && let Some(Entry { value: Some(value), index: at }) = self.rows.get_mut(row)
            && value.len() == patch.len_after as usize
            && let Some(bytes) = Arc::get_mut(value)
        {
            patch.write(bytes);
            *at = index;
            return 0;
        }
        let before = match self.row(row) {
            Found::Row(value, _) => Some(value),
            Found::Deleted(_) | Found::Unknown => None,
        };
        let patched = patch.apply(before.as_deref().unwrap_or_default());
        drop(before);
        self.put(row, Some(&patched), index)
    }

    /// Whether there is no key: a scan passes over the shard.
    pub fn has_no_keys(&self) -> bool {
        self.keys.is_empty()
    }

    /// Spaces that have or had rows here.
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Deadlines of one space that stand, from `from_ms` on, earliest first: the row and its time in milliseconds.
    pub fn deadlines(&self, space: Space, from_ms: u64) -> impl Iterator<Item = (&[u8], u64)> {
        let (mut from, until) = family_range(Family::Expire, space);
        from.extend_from_slice(&from_ms.to_be_bytes());
        self.rows
            .range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&until[..])))
            .filter(|(_, entry)| entry.value.is_some())
            .filter_map(|(row, _)| parse_expire_row(row).map(|(deadline_ms, _)| (&row[..], deadline_ms)))
    }

    /// Meta rows of a slot from a hash on, in scan order, each with its hash.
    pub fn keys_from(&self, space: Space, slot: Slot, hash: u32) -> impl Iterator<Item = (u32, &MetaEntry)> {
        let from = self.order_of(&Key { space, slot, hash, name: b"" });
        let rows = from.into_iter().flat_map(|from| self.keys.range(from, from.end_of_slot()));
        rows.map(|(order, entry)| (order.hash(), entry))
    }

    /// All meta rows of a space, in scan order.
    pub fn keys_in(&self, space: Space) -> impl Iterator<Item = &MetaEntry> {
        let number = self.spaces.iter().position(|other| *other == space);
        let rows = number.into_iter().flat_map(|number| {
            let (from, last) = Order::of_space(number);
            self.keys.range(from, last)
        });
        rows.map(|(_, entry)| entry)
    }

    /// Rows that are not meta rows with `from <= key < until`, in order, each with the record that wrote it.
    pub fn rows_in<'t>(
        &'t self,
        from: &[u8],
        until: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'t [u8], Option<&'t [u8]>, Index)> + use<'t> {
        // BTreeMap panics on an inverted range; an empty one is what the caller means.
        let until = if until < from { from } else { until };
        self.rows
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(until)))
            .map(|(row, entry)| (&row[..], entry.value.as_deref(), entry.index))
    }
}
