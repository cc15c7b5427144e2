//! The commit: from a transaction's own writes to a record in the log and rows in the memtable, in one step.
//!
//! Under the latches of the shards it writes, taken in order: the record gets its index, then its effects go in. So the
//! order in the log is the order in the memtable for every key, and a freeze, which takes all latches, never sees half. What
//! writes very many rows is applied in steps (`staged`).

use crate::accesses::Written;
use crate::databases::dead_space;
use crate::intent::{intent_row, intent_value};
use crate::memtable::{Change, Memtable, Shard, shard_of_row};
use crate::own::{Op, print_of_row};
use crate::reclaim::Orphan;
use crate::row::{Family, Space, parse_expire_row, parse_meta_row};
use crate::staged::{OneLatch, ROWS_AT_ONCE};
use crate::store::Store;
use crate::txn::{Mode, Stop, Txn};
use crate::value::Value;
use haypile_log::{Effect, Index, Kind, Reservation, body_crc};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::time::Duration;

/// How long a record that is written ahead lets those who may not wait go first.
const LEAVE_ROOM_WAIT: Duration = Duration::from_secs(1);

/// What a commit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its record; `None` if there was nothing to write.
    pub index: Option<Index>,
    /// The newest record that its reply depends on.
    pub gate: Index,
}

/// The latches of the shards that a record touches, in order.
pub(crate) type Latches<'a> = SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>;

impl Txn<'_> {
    /// Makes all of it visible at once and hands it to the log; or fails with no effect at all.
    pub fn commit(&mut self) -> Result<Committed, Stop> {
        assert!(!self.is_rehearsal(), "a run without key locks never commits");
        assert!(!self.committed, "a transaction commits once");
        if !self.is_read_only() {
            // A block of which a command was ended has no effect, or it would be done in half.
            self.goes_on()?;
        }
        for object in self.ahead.iter().filter(|_| !self.store.options.memory_only) {
            let row = intent_row(object.id);
            self.overlay.delete(print_of_row(&row), &[&row], false);
        }
        self.overlay.join();
        let rows_bytes = self.overlay.main_bytes();
        for &(space, counter, delta) in self.counts.iter().filter(|(_, _, delta)| *delta != 0) {
            self.overlay.body().count(space.0, counter as u8, delta);
        }
        let body = self.overlay.body_bytes();
        if body.is_empty() {
            return Ok(Committed { index: None, gate: self.gate });
        }
        let store = self.store;
        let reserved = match store.reserve(body.len(), self.call.mode) {
            Ok(reserved) => reserved,
            Err(stop) => {
                self.overlay.body().truncate(rows_bytes);
                return Err(stop);
            }
        };
        let crc = body_crc(body);
        let index = match self.overlay.len() > ROWS_AT_ONCE {
            true => self.commit_in_steps(reserved, crc),
            false => self.commit_at_once(reserved, crc),
        };
        store.after_commit();
        self.committed = true;
        self.gate = self.gate.max(index);
        Ok(Committed { index: Some(index), gate: self.gate })
    }

    /// Under the latches of all shards that it writes to.
    #[inline]
    fn commit_at_once(&mut self, reserved: Reservation<'_>, crc: u32) -> Index {
        let store = self.store;
        let mut latches = latch_all(&store.memtable, self.overlay.keys());
        let index = store.log.append(reserved, Kind::Effects, self.call.now_ms, self.overlay.body_bytes(), crc);
        let (mut grown, written) = (0, self.written());
        self.overlay.take_writes(false, |row, op, value, before| {
            grown += store.write_applied(&mut latches, row, op, value, before, index, written);
        });
        if let Some(own) = &self.accesses {
            self.settle_accesses(own, &latches);
        }
        self.settle_counts(grown);
        index
    }

    /// Under one latch after the other, see `staged`.
    #[cold]
    fn commit_in_steps(&mut self, reserved: Reservation<'_>, crc: u32) -> Index {
        let store = self.store;
        let _turn = store.staged.begin(self.overlay.keys().filter_map(parse_meta_row));
        let index = store.log.append(reserved, Kind::Effects, self.call.now_ms, self.overlay.body_bytes(), crc);
        let (mut grown, written) = (0, self.written());
        let mut latch = OneLatch::new(&store.memtable);
        self.overlay.take_writes(false, |row, op, value, before| {
            grown += store.write_applied(latch.of(row), row, op, value, before, index, written);
        });
        if let Some(own) = &self.accesses {
            self.settle_accesses_in_steps(own, &mut latch);
        }
        self.settle_counts(grown);
        index
    }

    fn settle_counts(&self, grown: i64) {
        for &(space, counter, delta) in &self.counts {
            self.store.databases.add(space, counter as u8, delta);
        }
        self.store.memtable.account(grown);
    }

    /// Writes rows of this transaction's own objects ahead of the rest, as a record of their own.
    pub(crate) fn write_ahead(&mut self) -> Result<(), Stop> {
        match self.call.mode {
            Mode::Memory | Mode::Look | Mode::Load => return Err(Stop::Long),
            Mode::Disk => {}
        }
        self.goes_on()?;
        let store = self.store;
        store.wait_for_room()?;
        self.note_ahead();
        let body = self.overlay.ahead_body();
        store.log.leave_room(body.len(), LEAVE_ROOM_WAIT);
        let reserved = store.reserve(body.len(), self.call.mode)?;
        let crc = body_crc(body);
        let mut latches = latch_all(&store.memtable, self.overlay.keys_of(true));
        let index = store.log.append(reserved, Kind::Effects, self.call.now_ms, body, crc);
        let (mut grown, written) = (0, self.written());
        self.overlay.on_written_ahead(|row, op, value, before| {
            grown += store.write_applied(&mut latches, row, op, value, before, index, written);
        });
        store.memtable.account(grown);
        drop(latches);
        store.after_commit();
        store.log.write();
        Ok(())
    }

    /// Notes the objects whose first rows are about to be written ahead; in the log, an intent says so.
    fn note_ahead(&mut self) {
        let noted = self.ahead.len();
        for object in self.overlay.keys_of(true).filter_map(Orphan::of) {
            if self.ahead.last() != Some(&object) && !self.ahead.contains(&object) {
                self.ahead.push(object);
            }
        }
        if self.store.options.memory_only {
            // Nothing of the log is read again.
            return;
        }
        for object in &self.ahead[noted..] {
            let row = intent_row(object.id);
            self.overlay.put(print_of_row(&row), &[&row], &[&intent_value(object)], true);
        }
    }
}

impl Store {
    /// Appends a record of the store's own system rows and applies it.
    pub(crate) fn append_effects(&self, reserved: Reservation<'_>, now_ms: u64, body: &[u8]) -> Result<Index, Stop> {
        let crc = body_crc(body);
        let mut parsed = Vec::new();
        parse(body, &mut parsed).map_err(|why| Stop::Failed(format!("ERR {why}")))?;
        let mut latches = self.latch_all(&parsed);
        let index = self.log.append(reserved, Kind::Effects, now_ms, body, crc);
        self.apply(&mut latches, &parsed, index, HashMap::new(), now_ms);
        drop(latches);
        self.after_commit();
        Ok(index)
    }

    /// The latches of all shards that these effects write to.
    pub(crate) fn latch_all<'s>(&'s self, effects: &[Effect<'_>]) -> Latches<'s> {
        latch_all(&self.memtable, effects.iter().filter_map(row_of))
    }

    pub(crate) fn apply(
        &self,
        latches: &mut Latches<'_>,
        effects: &[Effect<'_>],
        index: Index,
        mut below: HashMap<&[u8], Option<Value>>,
        now_ms: u64,
    ) {
        let (mut grown, written) = (0, Written::At(self.access_policy.fresh(now_ms)));
        for effect in effects {
            grown += match *effect {
                Effect::Put { key, value } => self.write_applied(latches, key, Op::Put, value, None, index, written),
                Effect::Delete { key } => self.write_applied(latches, key, Op::Delete, &[], None, index, written),
                Effect::Patch { key, offset, bytes, len_after } => {
                    let before = below.remove(key).flatten();
                    self.write_applied(latches, key, Op::Patch { offset, len_after }, bytes, before, index, written)
                }
                Effect::Splice { key, offset, removed, bytes, len_after } => {
                    let (before, op) = (below.remove(key).flatten(), Op::Splice { offset, removed, len_after });
                    self.write_applied(latches, key, op, bytes, before, index, written)
                }
                Effect::Count { space, counter, delta } => {
                    self.databases.add(Space(space), counter, delta);
                    0
                }
            };
        }
        self.memtable.account(grown);
    }

    /// One write under its shard's latch, and what else has to know of it. Returns by how much the memtable grew.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the pieces of one write, handed on as they are")]
    fn write_applied(
        &self,
        latches: &mut Latches<'_>,
        row: &[u8],
        op: Op,
        value: &[u8],
        before: Option<Value>,
        index: Index,
        written: Written,
    ) -> i64 {
        let (shard, latch) = shard_in(latches, row);
        let access = self.access_of_written(written, latch, row);
        if let Some(change) = op.change(value) {
            return latch.change(row, change, before, index, access);
        }
        let value = (op == Op::Put).then_some(value);
        match Family::of(row) {
            Some(Family::Expire) if value.is_some() => {
                if let Some((deadline_ms, _)) = parse_expire_row(row) {
                    self.memtable.note_deadline(*shard, deadline_ms);
                }
            }
            Some(Family::Owner) if value.is_none() && self.options.memory_only => self.on_orphans(Orphan::of(row)),
            Some(Family::Owner) if value.is_none() => self.dying.on_object(Orphan::of(row)),
            Some(Family::System) => {
                self.dying.on_spaces(dead_space(row).filter(|_| value.is_some()));
                self.on_system_row(row, value, index);
            }
            _ => {}
        }
        // Who reads that an element is gone knows the record by the key's meta row, which every change of a value writes.
        if value.is_none() && matches!(Family::of(row), Some(Family::Data | Family::Score)) && self.is_above_base(row) {
            return latch.delete_element(row, index);
        }
        latch.put(row, value, index, access)
    }
}

/// The row that an effect is about.
pub(crate) fn row_of<'a>(effect: &Effect<'a>) -> Option<&'a [u8]> {
    match *effect {
        Effect::Put { key, .. } | Effect::Delete { key } | Effect::Patch { key, .. } | Effect::Splice { key, .. } => {
            Some(key)
        }
        Effect::Count { .. } => None,
    }
}

/// The effects of a body that comes from disk, checked.
pub(crate) fn parse<'a>(body: &'a [u8], into: &mut Vec<Effect<'a>>) -> Result<(), String> {
    for effect in haypile_log::effects(body) {
        let effect = effect.map_err(|error| format!("a record of the log does not parse: {error}"))?;
        if Change::of(&effect).is_some_and(|(_, change)| !change.fits()) {
            return Err("a record of the log holds a change beyond its row".into());
        }
        into.push(effect);
    }
    Ok(())
}

/// Takes the latches of all shards that these rows live in, in ascending order. At least one: a record without rows must
/// not fall into a freeze either.
#[inline]
fn latch_all<'a, 'r>(memtable: &'a Memtable, rows: impl Iterator<Item = &'r [u8]>) -> Latches<'a> {
    let mut shards: SmallVec<[usize; 16]> = SmallVec::new();
    for row in rows {
        let shard = shard_of_row(row);
        if shards.last() != Some(&shard) {
            shards.push(shard);
        }
    }
    if shards.is_empty() {
        shards.push(0);
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
