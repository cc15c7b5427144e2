//! The application of records to the memtable. One function applies a record for each caller that has it: the commit
//! that has just given it an index, the replay, and a store that follows another one's log.
//!
//! The caller holds the latches of the shards that the record writes to, or one after the other (`staged`). The other
//! half of a commit, which gives the record its index, is in `commit`.

mod latches;
pub(crate) mod staged;
mod written;

pub(crate) use latches::{Latched, Latches, Latching, OneLatch, latch_all};
pub(crate) use written::{Written, access_of};

use crate::databases::dead_space;
use crate::memtable::Change;
use crate::reclaim::Orphan;
use crate::row::{Family, Space, parse_expire_row};
use crate::store::Store;
use crate::txn::own::Op;
use crate::value::Value;
use haypile_log::{Effect, Index};
use std::collections::HashMap;

/// One write of a row.
pub(crate) struct Write<'w> {
    pub row: &'w [u8],
    pub op: Op,
    /// The row's value, or the bytes of a change.
    pub value: &'w [u8],
    /// The row below a change, where the record does not write it before.
    pub before: Option<Value>,
}

/// The effects of a record, and the bytes that state them.
pub(crate) trait Effects {
    /// The record's body.
    fn body(&self) -> &[u8];
    /// Hands out the writes, in order.
    fn take_writes(&mut self, apply: impl FnMut(Write<'_>));
    /// Hands out the record's changes of counters.
    fn counts(&self, add: impl FnMut(Space, u8, i64));
}

/// The effects of a record that comes as bytes.
pub(crate) struct ParsedEffects<'r, 'e> {
    pub body: &'r [u8],
    pub effects: &'e [Effect<'r>],
    /// The rows that the record changes in part and does not write first.
    pub below: HashMap<&'r [u8], Option<Value>>,
}

impl Effects for ParsedEffects<'_, '_> {
    fn body(&self) -> &[u8] {
        self.body
    }

    fn take_writes(&mut self, mut apply: impl FnMut(Write<'_>)) {
        for effect in self.effects {
            let (row, op, value) = match *effect {
                Effect::Put { key, value } => (key, Op::Put, value),
                Effect::Delete { key } => (key, Op::Delete, &[][..]),
                Effect::Patch { key, offset, bytes, len_after } => (key, Op::Patch { offset, len_after }, bytes),
                Effect::Splice { key, offset, removed, bytes, len_after } => {
                    (key, Op::Splice { offset, removed, len_after }, bytes)
                }
                Effect::Count { .. } | Effect::Touch { .. } | Effect::Statement { .. } => continue,
            };
            let before = if op.is_change() { self.below.remove(row).flatten() } else { None };
            apply(Write { row, op, value, before });
        }
    }

    fn counts(&self, mut add: impl FnMut(Space, u8, i64)) {
        for effect in self.effects {
            if let Effect::Count { space, counter, delta } = *effect {
                add(Space(space), counter, delta);
            }
        }
    }
}

impl Store {
    /// Applies a record to the memtable and the counters. The caller holds the latches of all rows that the record
    /// writes.
    #[inline(always)]
    pub(crate) fn apply<'a>(
        &self,
        index: Index,
        effects: &mut impl Effects,
        latches: &mut impl Latching<'a>,
        written: Written,
    ) {
        let mut grown = 0;
        effects.take_writes(|write| {
            let latched = latches.latch_of(write.row).expect("the latches of all rows are held");
            grown += self.apply_write(latched, write, index, written);
        });
        effects.counts(|space, counter, delta| self.databases.add(space, counter, delta));
        self.memtable.account(grown);
    }

    /// Applies one write under its shard's latch, and notes it in the store's other structures. Returns by how much the
    /// memtable grew.
    #[inline(always)]
    fn apply_write(&self, latched: &mut Latched<'_>, write: Write<'_>, index: Index, written: Written) -> i64 {
        let (shard, latch) = latched;
        let Write { row, op, value, before } = write;
        let access = written.on(latch, row, &self.cache);
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
            Some(Family::Owner) if value.is_none() => self.dead_rows.on_object(Orphan::of(row)),
            Some(Family::System) => {
                self.dead_rows.on_spaces(dead_space(row).filter(|_| value.is_some()));
                self.on_system_row(row, value, index);
            }
            _ => {}
        }
        // A reader of the missing element learns the record's index from the key's meta row, which every change of a
        // value writes.
        if value.is_none() && matches!(Family::of(row), Some(Family::Data | Family::Score)) && self.is_above_base(row) {
            return latch.delete_element(row, index);
        }
        latch.put(row, value, index, access)
    }

    /// Returns the access that the writes of a record leave, where the record is not a transaction's.
    pub(crate) fn written_at(&self, time_ms: u64) -> Written {
        Written::At(self.access_policy.fresh(time_ms))
    }

    /// Takes the latches of all shards that these effects write to.
    pub(crate) fn latch_all<'s>(&'s self, effects: &[Effect<'_>]) -> Latches<'s> {
        latch_all(&self.memtable, effects.iter().filter_map(Effect::key))
    }
}

/// Checks a body that comes from disk or from another server, and hands out its effects.
#[inline]
pub(crate) fn parse<'a>(body: &'a [u8], mut add: impl FnMut(Effect<'a>)) -> Result<(), String> {
    for effect in haypile_log::effects(body) {
        let effect = effect.map_err(|error| format!("a record of the log does not parse: {error}"))?;
        if Change::of(&effect).is_some_and(|(_, change)| !change.fits()) {
            return Err("a record of the log holds a change beyond its row".into());
        }
        add(effect);
    }
    Ok(())
}
