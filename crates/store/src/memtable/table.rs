//! One generation of one shard: the rows of its slots.

use super::keys::{MetaEntry, SlotKeys};
use super::{Found, Patch, SLOTS_PER_SHARD, is_meta};
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
    /// One for each slot of the shard, none before the first key.
    keys: Vec<SlotKeys>,
    rows: BTreeMap<Box<[u8]>, Entry>,
    spaces: Vec<Space>,
}

impl Table {
    #[inline]
    pub fn meta(&self, key: &Key<'_>) -> Found {
        self.keys_of(key).and_then(|keys| keys.get(key)).map_or(Found::Unknown, MetaEntry::found)
    }

    #[inline]
    fn keys_of(&self, key: &Key<'_>) -> Option<&SlotKeys> {
        self.keys.get(usize::from(key.slot.0) % SLOTS_PER_SHARD)
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
            return self.put_meta(&key, value, index);
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

    #[inline]
    fn put_meta(&mut self, key: &Key<'_>, value: Option<&[u8]>, index: Index) -> i64 {
        if self.keys.is_empty() {
            self.keys.resize_with(SLOTS_PER_SHARD, SlotKeys::default);
        }
        if !self.spaces.contains(&key.space) {
            self.spaces.push(key.space);
        }
        self.keys[usize::from(key.slot.0) % SLOTS_PER_SHARD].put(key, value, index)
    }

    /// Takes a row out without a trace; returns by how much the table shrank, as a negative number.
    pub fn forget(&mut self, row: &[u8]) -> i64 {
        if let Some(key) = parse_meta_row(row) {
            let keys = self.keys.get_mut(usize::from(key.slot.0) % SLOTS_PER_SHARD);
            return keys.and_then(|keys| keys.remove(&key)).map_or(0, |gone| -gone.bytes());
        }
        self.rows.remove(row).map_or(0, |gone| -gone.bytes(row))
    }

    /// Takes out the keys that a slot has of a space; also returns what they took.
    pub fn take_keys(&mut self, space: Space, slot: Slot) -> (Vec<MetaEntry>, i64) {
        let gone =
            self.keys.get_mut(usize::from(slot.0) % SLOTS_PER_SHARD).map_or_else(Vec::new, |keys| keys.take(space));
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
        let keys: i64 = self.keys.iter().map(SlotKeys::count_bytes).sum();
        keys + self.rows.iter().map(|(row, entry)| entry.bytes(row)).sum::<i64>()
    }

    fn note_space(&mut self, row: &[u8]) {
        if Family::of(row) != Some(Family::System)
            && let Some(space) = row.get(1..5).and_then(|bytes| bytes.try_into().ok())
        {
            let space = Space(u32::from_be_bytes(space));
            if !self.spaces.contains(&space) {
                self.spaces.push(space);
            }
        }
    }

    /// Whether a row or its deletion is in this table.
    pub fn holds(&self, row: &[u8]) -> bool {
        match parse_meta_row(row) {
            Some(key) => self.keys_of(&key).is_some_and(|keys| keys.get(&key).is_some()),
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

    /// Whether no slot has a key: a scan passes over the shard.
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

    /// Meta rows of a slot from a hash on, in scan order: hash, name, value (`None`: deleted).
    pub fn keys_from(&self, space: Space, slot: Slot, hash: u32) -> impl Iterator<Item = (u32, &MetaEntry)> {
        self.keys.get(usize::from(slot.0) % SLOTS_PER_SHARD).into_iter().flat_map(move |keys| keys.range(space, hash))
    }

    /// Rows that are not meta rows with `from <= key < until`, in order, each with the record that wrote it.
    pub fn rows_in<'t>(
        &'t self,
        from: &[u8],
        until: &[u8],
    ) -> impl Iterator<Item = (&'t [u8], Option<&'t [u8]>, Index)> + use<'t> {
        // BTreeMap panics on an inverted range; an empty one is what the caller means.
        let until = if until < from { from } else { until };
        self.rows
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(until)))
            .map(|(row, entry)| (&row[..], entry.value.as_deref(), entry.index))
    }
}
