//! Ordered reads of keys: own writes, both generations of the memtable and the base, merged in steps as in `visit`, but
//! by positions in the scan order in place of row keys.

use crate::base::Direction;
use crate::memtable::{SHARDS, Table, shard_of};
use crate::row::{self, Family, SLOTS, ScanPosition, Slot, Space};
use crate::stop::Stop;
use crate::store::Store;
use crate::txn::Txn;
use crate::txn::visit::{Layer, STEP_ROWS};
use crate::value::Value;
use haypile_log::Index;

/// The most steps of one call over keys: where there are only deleted keys, the call ends with less than was asked for.
const STEPS_MAX: usize = 16;

impl Txn<'_> {
    /// Returns keys of a space from a position on: names and meta rows in scan order, about `max` (names that share a
    /// hash go out together, and after bounded work fewer or none may be found); and the position to go on from, if
    /// there may be more.
    #[allow(clippy::type_complexity)] // A list of pairs and a position need no names of their own.
    pub fn scan_keys(
        &mut self,
        space: Space,
        from: ScanPosition,
        max: usize,
    ) -> Result<(Vec<(Vec<u8>, Value)>, Option<ScanPosition>), Stop> {
        self.on_read_many()?;
        let mut found: Vec<(Vec<u8>, Value)> = Vec::new();
        let mut at = from;
        let (_, until) = row::family_range(Family::Meta, space);
        for _ in 0..STEPS_MAX {
            let want = (max.saturating_sub(found.len())).clamp(1, STEP_ROWS);
            let (rows, next) = self.key_step(space, at, &until, want)?;
            for (row, value) in rows {
                if let (Some(key), Some(value)) = (row::parse_meta_row(&row), value) {
                    found.push((key.name.to_vec(), value));
                }
            }
            match next {
                None => return Ok((found, None)),
                Some(next) => at = next,
            }
            if found.len() >= max {
                break;
            }
        }
        Ok((found, Some(at)))
    }

    /// Makes one step over keys: returns merged rows, and the position of the next step.
    fn key_step(
        &mut self,
        space: Space,
        from: ScanPosition,
        until: &[u8],
        want: usize,
    ) -> Result<(Layer, Option<ScanPosition>), Stop> {
        loop {
            let epoch = self.store.epoch();
            let start = row::meta_position(space, from.slot, from.hash);
            let (mut rows, base_end) = self.base_rows(&start, until, Direction::Forward, want)?;
            // The base's part ends before the position of the first row that did not fit: names of one hash stay
            // together.
            let mut end = base_end.as_deref().and_then(position_of);
            if end == Some(from) {
                // More names than a step reads share one hash: all of them are read.
                end = from.next();
                let next = end.map(|next| row::meta_position(space, next.slot, next.hash));
                let until = next.as_deref().unwrap_or(until);
                rows = self.base_rows(&start, until, Direction::Forward, usize::MAX)?.0;
            }
            let mut layer = Layer::new();
            let newest = self.store.memtable_keys(space, from, want, &mut layer, &mut end);
            self.gate.rise(newest);
            let end_row = end.map(|end| row::meta_position(space, end.slot, end.hash));
            layer.extend(self.own_range(&start, end_row.as_deref().unwrap_or(until)));
            if self.store.epoch() != epoch {
                continue;
            }
            rows.extend(layer);
            if let Some(end) = end_row {
                rows.split_off(&end[..]);
            }
            return Ok((rows, end));
        }
    }
}

fn position_of(row: &[u8]) -> Option<ScanPosition> {
    row::parse_meta_row(row).map(|key| ScanPosition { slot: key.slot, hash: key.hash })
}

impl Store {
    /// Adds the meta rows of both generations in scan order, the newer one's winning; `end` moves down to where a
    /// generation was cut off. Returns the newest record that wrote any of them.
    pub(crate) fn memtable_keys(
        &self,
        space: Space,
        from: ScanPosition,
        want: usize,
        rows: &mut Layer,
        end: &mut Option<ScanPosition>,
    ) -> Index {
        let mut newest = Index(0);
        let mut taken = 0;
        let mut slot = from.slot;
        loop {
            if end.is_some_and(|end| slot > end.slot) {
                return newest;
            }
            let latch = self.memtable.latch(shard_of(slot));
            if latch.active.has_no_keys() && latch.frozen.as_ref().is_none_or(|frozen| frozen.has_no_keys()) {
                drop(latch);
                match first_slot_after_shard(slot) {
                    Some(next) => slot = next,
                    None => return newest,
                }
                continue;
            }
            let hash = if slot == from.slot { from.hash } else { 0 };
            for table in [Some(&latch.active), latch.frozen.as_deref()].into_iter().flatten() {
                let (count, last) = keys_of_slot(table, ScanPosition { slot, hash }, space, want, rows, end);
                taken += count;
                newest = newest.max(last);
            }
            drop(latch);
            if usize::from(slot.0) + 1 == SLOTS {
                return newest;
            }
            slot = Slot(slot.0 + 1);
            if taken >= want {
                let here = ScanPosition { slot, hash: 0 };
                *end = Some(end.map_or(here, |end| end.min(here)));
                return newest;
            }
        }
    }
}

fn first_slot_after_shard(slot: Slot) -> Option<Slot> {
    let next = (shard_of(slot) + 1) * (SLOTS / SHARDS);
    (next < SLOTS).then_some(Slot(next as u16))
}

/// Adds the keys of one slot from one generation; returns how many rows it took, and the newest record that wrote any
/// of them.
fn keys_of_slot(
    table: &Table,
    from: ScanPosition,
    space: Space,
    want: usize,
    rows: &mut Layer,
    end: &mut Option<ScanPosition>,
) -> (usize, Index) {
    let (mut taken, mut newest) = (0, Index(0));
    let mut last = None;
    for (hash, entry) in table.keys_from(space, from.slot, from.hash) {
        let at = ScanPosition { slot: from.slot, hash };
        if end.is_some_and(|end| at >= end) {
            break;
        }
        if taken >= want && last != Some(hash) {
            *end = Some(at);
            break;
        }
        rows.entry(entry.row().to_vec()).or_insert_with(|| entry.value().map(Value::from));
        newest = newest.max(entry.index());
        last = Some(hash);
        taken += 1;
    }
    (taken, newest)
}
