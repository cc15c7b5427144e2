//! Ordered reads of rows that are not meta rows, up and down: own writes, both generations of the memtable and the base,
//! merged in steps of bounded size. Also the look whether one row exists.
//!
//! A step reads the base first and then the memtable, up to where the base's part ended. That misses nothing unless a flush
//! ends in between, which the epoch tells; then the step is done again.

use crate::base::{Direction, Step};
use crate::memtable::{Found, SHARDS, shard_of};
use crate::row::{self, Family};
use crate::store::Store;
use crate::txn::{Stop, Txn, failed};
use crate::value::Value;
use haypile_log::Index;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Rows from one place of the store: `None` is a deletion that hides what lies below.
pub(crate) type Layer = BTreeMap<Vec<u8>, Option<Value>>;

/// Rows read from one source in one step.
pub(crate) const STEP_ROWS: usize = 256;

/// What `row_presence` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPresence {
    Absent,
    /// It exists; its value was not read.
    Present,
    /// It exists, and its value had to be read to know that.
    Row(Value),
}

impl Txn<'_> {
    /// Visits rows that are not meta rows with `from <= key < until`, ascending or descending, as they are now, own writes
    /// included, until `visit` breaks or the range ends. `want` is how many rows the caller expects to need. `visit` gets key
    /// and value; it may run under a latch and only looks at bytes.
    pub fn visit(
        &mut self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        self.on_read_many()?;
        let want = want.clamp(1, STEP_ROWS);
        let (mut from, mut until) = (from.to_vec(), until.to_vec());
        while from < until {
            let (rows, bound) = self.step(&from, &until, direction, want)?;
            let mut each = |(row, value): (&Vec<u8>, &Option<Value>)| match value {
                Some(value) => visit(row, value),
                None => ControlFlow::Continue(()),
            };
            let visited = match direction {
                Direction::Forward => rows.iter().try_for_each(&mut each),
                Direction::Backward => rows.iter().rev().try_for_each(&mut each),
            };
            match (visited, bound, direction) {
                (ControlFlow::Break(()), ..) | (_, None, _) => break,
                (_, Some(bound), Direction::Forward) => from = bound,
                (_, Some(bound), Direction::Backward) => until = bound,
            }
        }
        Ok(())
    }

    /// Rows with `from <= key < until`, none of them meta rows, in order, at most `max`.
    pub fn scan(&mut self, from: &[u8], until: &[u8], max: usize) -> Result<Vec<(Vec<u8>, Value)>, Stop> {
        let mut found = Vec::new();
        if max == 0 {
            return Ok(found);
        }
        self.visit(from, until, Direction::Forward, max, |row, value| {
            found.push((row.to_vec(), Value::from(value)));
            if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }

    /// Whether a row that is no meta row exists, without its value where that is known without reading it.
    pub fn row_presence(&mut self, row: &[u8]) -> Result<RowPresence, Stop> {
        self.on_read()?;
        if let Some(exists) = self.own_presence(row) {
            return Ok(if exists { RowPresence::Present } else { RowPresence::Absent });
        }
        let (presence, index) = match self.store.memtable.row(row) {
            Found::Row(_, index) => (RowPresence::Present, index),
            Found::Deleted(index) => (RowPresence::Absent, index),
            Found::Unknown => return Ok(self.base_row(row, true)?.map_or(RowPresence::Absent, RowPresence::Row)),
        };
        self.gate = self.gate.max(index);
        Ok(presence)
    }

    /// One step: merged rows, and the bound between what they cover and the rest of the range, if there may be more.
    fn step(
        &mut self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
    ) -> Result<(Layer, Option<Vec<u8>>), Stop> {
        loop {
            let epoch = self.store.epoch();
            let (mut rows, mut bound) = self.base_rows(from, until, direction, want)?;
            let mut layer = Layer::new();
            let newest = self.store.memtable_rows(from, until, direction, want, &mut layer, &mut bound);
            self.gate = self.gate.max(newest);
            let (own_from, own_until) = match (&bound, direction) {
                (Some(bound), Direction::Forward) => (from, &bound[..]),
                (Some(bound), Direction::Backward) => (&bound[..], until),
                (None, _) => (from, until),
            };
            layer.extend(self.own_range(own_from, own_until));
            if self.store.epoch() != epoch {
                continue;
            }
            rows.extend(layer);
            if let Some(bound) = &bound {
                let above = rows.split_off(bound);
                if direction == Direction::Backward {
                    rows = above;
                }
            }
            return Ok((rows, bound));
        }
    }

    /// Its own writes in a range, the last one of each row.
    pub(crate) fn own_range(&self, from: &[u8], until: &[u8]) -> Layer {
        if self.committed { Layer::new() } else { self.overlay.range(from, until) }
    }

    /// Rows of the base, and the bound between them and the rest if there may be more.
    pub(crate) fn base_rows(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
    ) -> Result<(Layer, Option<Vec<u8>>), Stop> {
        let mut rows = Layer::new();
        let mut cursor = self.store.base.scan(from, until, direction, self.tier()).map_err(|error| failed(&error))?;
        loop {
            match cursor.step().map_err(|error| failed(&error))? {
                Step::Row { key, value } if rows.len() < want => {
                    rows.insert(key.to_vec(), Some(Value::from(value)));
                }
                Step::Row { key, .. } => return Ok((rows, Some(bound_before(key, direction)))),
                Step::End => return Ok((rows, None)),
                Step::WouldBlock => return Err(Stop::WouldBlock),
            }
        }
    }
}

/// The bound between what was read and `row`, the first one that was not: what lies at it or above belongs to one side, what
/// lies below to the other.
fn bound_before(row: &[u8], direction: Direction) -> Vec<u8> {
    let mut bound = row.to_vec();
    if direction == Direction::Backward {
        bound.push(0);
    }
    bound
}

impl Store {
    /// Rows of both generations, the newer one's winning; `bound` moves to where a generation was cut off. Returns the
    /// newest record that wrote any of them.
    pub(crate) fn memtable_rows(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
        rows: &mut Layer,
        bound: &mut Option<Vec<u8>>,
    ) -> Index {
        let mut newest = Index(0);
        let shards = match (row::home_slot(from), Family::of(from)) {
            // One slot of one family lies in one shard; deadlines lie in all of them.
            (Some(slot), Some(Family::Data | Family::Score | Family::Owner)) if until.get(..7) == from.get(..7) => {
                shard_of(slot)..shard_of(slot) + 1
            }
            _ => 0..SHARDS,
        };
        let is_beyond = |row: &[u8], bound: &[u8]| match direction {
            Direction::Forward => row >= bound,
            Direction::Backward => row < bound,
        };
        for shard in shards {
            let latch = self.memtable.latch(shard);
            for table in [Some(&latch.active), latch.frozen.as_deref()].into_iter().flatten() {
                let mut in_table = table.rows_in(from, until);
                for count in 0.. {
                    let next = match direction {
                        Direction::Forward => in_table.next(),
                        Direction::Backward => in_table.next_back(),
                    };
                    let Some((row, value, index)) = next else { break };
                    if bound.as_deref().is_some_and(|bound| is_beyond(row, bound)) {
                        break;
                    }
                    if count == want {
                        *bound = Some(bound_before(row, direction));
                        break;
                    }
                    newest = newest.max(index);
                    rows.entry(row.to_vec()).or_insert_with(|| value.map(Value::from));
                }
            }
        }
        newest
    }
}
