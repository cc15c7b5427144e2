//! The commit: from a transaction's own writes to a record in the log and rows in the memtable, in one step.
//!
//! Under the latches of the shards it writes, taken in order: the record gets its index, then its effects go in. So the
//! order in the log is the order in the memtable for every key, and a freeze, which takes all latches, never sees half.

use crate::memtable::{Memtable, Patch, Shard, shard_of_row};
use crate::own::Op;
use crate::row::{Family, parse_expire_row};
use crate::store::Store;
use crate::txn::{Mode, Stop, Txn};
use crate::value::Value;
use haypile_log::{Effect, Index, Kind, body_crc};
use parking_lot::MutexGuard;
use smallvec::SmallVec;

/// What a commit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its record; `None` if there was nothing to write.
    pub index: Option<Index>,
    /// The newest record that its reply depends on.
    pub gate: Index,
}

/// The latches of the shards that a record touches, in order.
type Latches<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>;

impl Txn<'_> {
    /// Makes all of it visible at once and hands it to the log; or fails with no effect at all.
    pub fn commit(&mut self) -> Result<Committed, Stop> {
        assert!(self.call.mode != Mode::Load, "a run that only loads rows never commits");
        self.overlay.join();
        for &(space, counter, delta) in self.counts.iter().filter(|(_, _, delta)| *delta != 0) {
            self.overlay.body().count(space.0, counter as u8, delta);
        }
        let body = self.overlay.body_bytes();
        if body.is_empty() {
            return Ok(Committed { index: None, gate: self.gate });
        }
        let store = self.store;
        let reserved = store.reserve(body.len(), self.call.mode)?;
        let crc = body_crc(body);
        let mut latches = latch_all(&store.memtable, self.overlay.keys());
        let index = store.log.append(reserved, Kind::Effects, self.call.now_ms, body, crc);
        let mut grown = 0;
        for (row, op, value, before) in self.overlay.writes() {
            let shard = shard_in(&mut latches, row);
            grown += match op {
                Op::Put => store.put_applied(shard, row, Some(value), index),
                Op::Delete => store.put_applied(shard, row, None, index),
                Op::Patch { offset, len_after } => {
                    let patch = Patch { offset, bytes: value, len_after };
                    shard.1.patch(row, patch, before.map(|value| &**value), index)
                }
            };
        }
        for &(space, counter, delta) in &self.counts {
            store.databases.add(space, counter as u8, delta);
        }
        drop(latches);
        store.memtable.account(grown);
        store.after_commit();
        self.gate = self.gate.max(index);
        Ok(Committed { index: Some(index), gate: self.gate })
    }

    /// Writes rows of this transaction's own objects ahead of the rest, as a record of their own.
    pub(crate) fn write_ahead(&mut self) -> Result<(), Stop> {
        match self.call.mode {
            Mode::Memory | Mode::Load => return Err(Stop::Long),
            Mode::Disk => {}
        }
        let store = self.store;
        store.wait_for_room()?;
        let body = self.overlay.ahead_body();
        let reserved = store.reserve(body.len(), self.call.mode)?;
        store.append_effects(reserved, self.call.now_ms, body)?;
        store.log.write();
        self.overlay.on_written_ahead();
        Ok(())
    }
}

impl Store {
    /// Appends a record and applies it by reading it back: the way of replay, of writes ahead and of the store's own rows.
    /// Patches find the row below in the base.
    pub(crate) fn append_effects(&self, reserved: haypile_log::Reservation<'_>, now_ms: u64, body: &[u8]) -> Result<Index, Stop> {
        let crc = body_crc(body);
        let parsed = parse(body).map_err(|why| Stop::Failed(format!("ERR {why}")))?;
        let mut latches = latch_all(&self.memtable, parsed.iter().filter_map(row_of));
        let index = self.log.append(reserved, Kind::Effects, now_ms, body, crc);
        let grown = self.apply(&mut latches, &parsed, index, |_| None);
        drop(latches);
        self.memtable.account(grown);
        self.after_commit();
        Ok(index)
    }

    /// Applies a record of the log at open.
    pub(crate) fn replay(&self, body: &[u8], index: Index) -> Result<(), String> {
        let parsed = parse(body)?;
        // The rows below patches are read before any latch is taken.
        let mut below: Vec<(&[u8], Option<Value>)> = Vec::new();
        for effect in &parsed {
            if let Effect::Patch { key, .. } = effect
                && self.memtable.row(key) == crate::memtable::Found::Unknown
            {
                below.push((key, self.base_value(key)?));
            }
        }
        let mut latches = latch_all(&self.memtable, parsed.iter().filter_map(row_of));
        let grown = self.apply(&mut latches, &parsed, index, |row| {
            below.iter().find(|(key, _)| *key == row).and_then(|(_, value)| value.clone())
        });
        drop(latches);
        self.memtable.account(grown);
        Ok(())
    }

    fn apply(&self, latches: &mut Latches<'_>, effects: &[Effect<'_>], index: Index, below: impl Fn(&[u8]) -> Option<Value>) -> i64 {
        let mut grown = 0;
        for effect in effects {
            match *effect {
                Effect::Put { key, value } => grown += self.put_applied(shard_in(latches, key), key, Some(value), index),
                Effect::Delete { key } => grown += self.put_applied(shard_in(latches, key), key, None, index),
                Effect::Patch { key, offset, bytes, len_after } => {
                    let before = below(key);
                    grown += shard_in(latches, key).1.patch(key, Patch { offset, bytes, len_after }, before.as_deref(), index);
                }
                Effect::Count { space, counter, delta } => self.databases.add(crate::row::Space(space), counter, delta),
            }
        }
        grown
    }

    /// One put or delete under its shard's latch, and what else has to know of it.
    #[inline]
    fn put_applied(&self, shard: &mut (usize, MutexGuard<'_, Shard>), row: &[u8], value: Option<&[u8]>, index: Index) -> i64 {
        match Family::of(row) {
            Some(Family::Expire) if value.is_some() => {
                if let Some((deadline_ms, _)) = parse_expire_row(row) {
                    self.memtable.note_deadline(shard.0, deadline_ms);
                }
            }
            Some(Family::System) => self.on_system_row(row, value),
            _ => {}
        }
        shard.1.put(row, value, index)
    }
}

fn row_of<'a>(effect: &Effect<'a>) -> Option<&'a [u8]> {
    match *effect {
        Effect::Put { key, .. } | Effect::Delete { key } | Effect::Patch { key, .. } => Some(key),
        Effect::Count { .. } => None,
    }
}

/// The effects of a body that comes from disk, checked.
fn parse(body: &[u8]) -> Result<Vec<Effect<'_>>, String> {
    haypile_log::effects(body)
        .map(|effect| {
            let effect = effect.map_err(|error| format!("a record of the log does not parse: {error}"))?;
            if let Effect::Patch { offset, bytes, len_after, .. } = effect
                && !(Patch { offset, bytes, len_after }).fits()
            {
                return Err("a record of the log holds a patch beyond its row".into());
            }
            Ok(effect)
        })
        .collect()
}

/// Takes the latches of all shards that these rows live in, in ascending order.
#[inline]
fn latch_all<'a, 'r>(memtable: &'a Memtable, rows: impl Iterator<Item = &'r [u8]>) -> Latches<'a> {
    let mut shards: SmallVec<[usize; 16]> = SmallVec::new();
    for row in rows {
        let shard = shard_of_row(row);
        if shards.last() != Some(&shard) {
            shards.push(shard);
        }
    }
    if shards.len() > 1 {
        shards.sort_unstable();
        shards.dedup();
    }
    shards.into_iter().map(|shard| (shard, memtable.latch(shard))).collect()
}

#[inline]
fn shard_in<'l, 'a>(latches: &'l mut Latches<'a>, row: &[u8]) -> &'l mut (usize, MutexGuard<'a, Shard>) {
    let shard = shard_of_row(row);
    let at = if latches.len() == 1 { Ok(0) } else { latches.binary_search_by_key(&shard, |(shard, _)| *shard) };
    &mut latches[at.expect("the latches of all rows are held")]
}
