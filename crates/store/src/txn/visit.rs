//! Ordered reads of rows that are not meta rows, up and down: own writes, both generations of the memtable and the
//! base, merged in steps of bounded size. Also the lookup whether one row exists.
//!
//! A step reads the base first and then the memtable. That misses nothing unless a flush ends in between, which the
//! epoch tells; then the step is done again. Rows of one object, which are nearly all that is read, are visited where
//! they lie, under their shard's latch; other ranges are merged in a map.

use crate::base::{Direction, Step, Tier};
use crate::memtable::{ElementRange, Found, ObjectKey, RowEntry, SHARDS, shard_of};
use crate::row::{self, Family, ObjectId, RowKey};
use crate::sparse::DEAD_MIN;
use crate::stop::{Stop, failed};
use crate::store::Store;
use crate::txn::Txn;
use crate::txn::merge::{Below, Source, first};
use crate::value::Value;
use haypile_log::Index;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Rows from one place of the store: `None` is a tombstone that hides the row below.
pub(crate) type Layer = BTreeMap<Vec<u8>, Option<Value>>;

/// Rows read from one source in one step, or visited under a latch.
pub(crate) const STEP_ROWS: usize = 256;

/// Bytes after which a step ends sooner, of the rows that were visited or read from the base.
const STEP_BYTES: usize = 64 << 10;

/// The extent of one step so far.
#[derive(Default)]
struct Visited {
    rows: usize,
    /// Tombstones among the rows.
    dead: usize,
    bytes: usize,
    /// The newest record that wrote any of the rows.
    newest: Index,
}

/// Visits the rows of the only source of a step, of which `row` is the next one, and mostly all that the object has.
/// Returns the last one if there may be more.
fn visit_only<'t>(
    mut row: &'t RowEntry,
    source: &mut Source<'t>,
    visited: &mut Visited,
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Option<RowKey> {
    loop {
        visited.newest = visited.newest.max(row.index());
        let value = row.value();
        visited.dead += usize::from(value.is_none());
        if value.is_some_and(|value| visit(row.row(), value).is_break()) {
            return None;
        }
        if visited.is_full_with(value) {
            return Some(RowKey::from_slice(row.row()));
        }
        source.advance();
        row = source.peek()?;
    }
}

impl Visited {
    /// Counts a row or its tombstone. Returns whether the step has enough.
    #[inline]
    fn is_full_with(&mut self, value: Option<&[u8]>) -> bool {
        self.rows += 1;
        self.bytes += value.map_or(0, <[u8]>::len);
        self.rows == STEP_ROWS || self.bytes >= STEP_BYTES
    }
}

/// The result of `row_presence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowPresence {
    Absent,
    /// The row exists; its value was not read.
    Present,
    /// The row exists, and its value had to be read to know that.
    Row(Value),
}

impl Txn<'_> {
    /// Returns whether committed deletes of rows of a row's object leave no tombstones, and have left none.
    pub fn forgets_deleted(&self, row: &[u8]) -> bool {
        self.store.is_dense(row)
    }

    /// Returns whether an ordered read of an object's rows in the score family has passed over many tombstones.
    pub fn is_sparse(&self, id: ObjectId) -> bool {
        self.store.sparse.has(id)
    }

    /// Forgets that an object is sparse: it was copied.
    pub fn forget_sparse(&self, id: ObjectId) {
        if !self.is_dry_run() {
            self.store.sparse.forget(id);
        }
    }

    /// Returns whether deleted rows of a row's object have left nothing that an ordered read has to pass over before it
    /// comes to the first row. Other than for `forgets_deleted`, deletes of the transaction itself count, too.
    pub fn is_dense(&self, row: &[u8]) -> bool {
        self.overlay.is_empty() && self.store.is_dense(row)
    }

    /// Visits rows that are not meta rows with `from <= key < until`, ascending or descending, as they are now, own
    /// writes included, until `visit` breaks or the range ends. `want` is how many rows the caller expects to need.
    /// `visit` gets key and value; it may run under a latch and only looks at bytes.
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
        if ElementRange::of(from, until).is_some() {
            self.visit_object(from, until, direction, want, &mut visit)
        } else {
            self.visit_any(from, until, direction, want, &mut visit)
        }
    }

    /// Visits a range within one object.
    fn visit_object(
        &mut self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let store = self.store;
        let own = self.own_writes(from, until, direction);
        let mut own = &own[..];
        let (mut from, mut until) = (RowKey::from_slice(from), RowKey::from_slice(until));
        let mut below: Option<Below<'_>> = None;
        let mut dead = 0;
        loop {
            self.goes_on()?;
            let epoch = store.epoch();
            let range = ElementRange::of(&from, &until).expect("a part of a range within an object");
            let held = match below.take().filter(|below| below.epoch == epoch && !below.is_over()) {
                Some(held) => held,
                None if store.is_above_base(&from) => Below::none(epoch, direction),
                None => store.below(self.tier(), epoch, range.object, (&from, &until), direction)?,
            };
            let rest = below.insert(held);
            if rest.is_short() {
                store.read_below(rest, range.object, (&from, &until), want)?;
            }
            let latch = store.memtable.latch(shard_of(range.object.slot()));
            if store.epoch() != epoch {
                continue;
            }
            debug_assert_eq!(rest.epoch, epoch, "rows of the base are merged in the epoch in which they were read");
            let generations = [Some(&latch.active), latch.frozen.as_deref()];
            let sources = generations.map(|table| Source::new(table, &range, direction, want));
            let (after, visited) = self.visit_step(&mut own, sources, rest, direction, visit);
            drop(latch);
            self.gate.rise(visited.newest);
            dead += visited.dead;
            match (after, direction) {
                (None, _) => {
                    if dead >= DEAD_MIN && !self.is_dry_run() && Family::of(&from) == Some(Family::Score) {
                        row::object_of(&from).into_iter().for_each(|id| store.sparse.note(id));
                    }
                    return Ok(());
                }
                (Some(mut last), Direction::Forward) => {
                    last.push(0);
                    from = last;
                }
                (Some(last), Direction::Backward) => until = last,
            }
        }
    }

    /// Visits the rows of one step under the latch. Returns the last one if there may be more, and what was visited.
    fn visit_step(
        &self,
        own: &mut &[usize],
        mut sources: [Source<'_>; 2],
        below: &mut Below<'_>,
        direction: Direction,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> (Option<RowKey>, Visited) {
        let mut visited = Visited::default();
        loop {
            let [active, frozen] = &mut sources;
            if own.is_empty() && active.peek().is_none() && frozen.peek().is_none() {
                return (below.visit_rest(visit), visited);
            }
            if own.is_empty() && below.peek().is_none() {
                // Mostly one generation has all of the object, and nothing is to be compared.
                let only = match (active.peek(), frozen.peek()) {
                    (None, None) => return (None, visited),
                    (Some(row), None) => Some((row, active)),
                    (None, Some(row)) => Some((row, frozen)),
                    (Some(_), Some(_)) => None,
                };
                if let Some((row, source)) = only {
                    return (visit_only(row, source, &mut visited, visit), visited);
                }
            }
            if let ControlFlow::Break(last) = self.visit_first(own, &mut sources, below, direction, &mut visited, visit)
            {
                return (last, visited);
            }
        }
    }

    /// Visits the row that comes first in any layer, and passes it in all of them. Breaks where the step ends: with
    /// that row if there may be more.
    #[inline]
    fn visit_first(
        &self,
        own: &mut &[usize],
        [active, frozen]: &mut [Source<'_>; 2],
        below: &mut Below<'_>,
        direction: Direction,
        visited: &mut Visited,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<Option<RowKey>> {
        let own_key = own.first().map(|at| self.overlay.key_at(*at));
        let base_key = below.peek().map(|(key, _)| key);
        let Some(key) = first(direction, [own_key, active.key(), frozen.key(), base_key]) else {
            return ControlFlow::Break(None);
        };
        let [is_own, in_active, in_frozen, in_base] =
            [own_key, active.key(), frozen.key(), base_key].map(|other| other == Some(key));
        let in_memory = if in_active {
            active.peek()
        } else if in_frozen {
            frozen.peek()
        } else {
            None
        };
        visited.newest = visited.newest.max(in_memory.map_or(Index(0), RowEntry::index));
        let own_value = if is_own { self.overlay.look(own[0]) } else { None };
        let value = if is_own {
            own_value.as_deref()
        } else if let Some(row) = in_memory {
            row.value()
        } else {
            below.peek().map(|(_, value)| value)
        };
        visited.dead += usize::from(value.is_none() && !is_own);
        if value.is_some_and(|value| visit(key, value).is_break()) {
            return ControlFlow::Break(None);
        }
        // Where the base's rows in hand end, the memtable's rows behind them have to wait for the base's next ones.
        let is_end = visited.is_full_with(value) || (in_base && below.is_last_in_hand());
        let last = is_end.then(|| RowKey::from_slice(key));
        if is_own {
            *own = &own[1..];
        }
        if in_active {
            active.advance();
        }
        if in_frozen {
            frozen.advance();
        }
        if in_base {
            below.advance();
        }
        if is_end { ControlFlow::Break(last) } else { ControlFlow::Continue(()) }
    }

    /// Visits any range.
    fn visit_any(
        &mut self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        want: usize,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Stop> {
        let (mut from, mut until) = (from.to_vec(), until.to_vec());
        while from < until {
            self.goes_on()?;
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

    /// Returns the places of the transaction's last writes of each row in a range, in a direction.
    pub(crate) fn own_writes(&self, from: &[u8], until: &[u8], direction: Direction) -> Vec<usize> {
        if self.overlay.is_empty() || self.committed {
            return Vec::new();
        }
        let mut own = self.overlay.last_in(from, until);
        if direction == Direction::Backward {
            own.reverse();
        }
        own
    }

    /// Returns the rows with `from <= key < until`, none of them meta rows, in order, at most `max`.
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

    /// Returns whether a row that is no meta row exists, without its value where that is known without reading it.
    pub fn row_presence(&mut self, row: &[u8]) -> Result<RowPresence, Stop> {
        self.on_read()?;
        if let Some(exists) = self.own_presence(row) {
            return Ok(if exists { RowPresence::Present } else { RowPresence::Absent });
        }
        let (presence, index) = match self.store.memtable.row(row) {
            Found::Row(_, index) => (RowPresence::Present, index),
            Found::Deleted(index) => (RowPresence::Absent, index),
            Found::Unknown => return self.base_row_presence(row),
        };
        self.gate.rise(index);
        Ok(presence)
    }

    fn base_row_presence(&mut self, row: &[u8]) -> Result<RowPresence, Stop> {
        match self.store.element_below(row) {
            Some(true) => return Ok(RowPresence::Present),
            Some(false) => return Ok(RowPresence::Absent),
            None => {}
        }
        let found = self.base_row(row, true, false)?;
        if found.is_some() && !self.is_dry_run() && Family::of(row) == Some(Family::Data) {
            // The key's lock is held, and the memtable does not have the row: no thread can have changed it since it
            // was read.
            self.store.presence.insert_element(row);
        }
        Ok(found.map_or(RowPresence::Absent, RowPresence::Row))
    }

    /// Makes one step: returns merged rows, and the bound between what they cover and the rest of the range, if there
    /// may be more.
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
            self.gate.rise(newest);
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

    /// Returns the transaction's own writes in a range, the last one of each row.
    pub(crate) fn own_range(&self, from: &[u8], until: &[u8]) -> Layer {
        if self.committed { Layer::new() } else { self.overlay.range(from, until) }
    }

    /// Returns rows of the base, and the bound between them and the rest if there may be more.
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

/// Returns the bound between the rows that were read and `row`, the first one that was not: rows at it or above belong
/// to one side, rows below to the other.
fn bound_before(row: &[u8], direction: Direction) -> Vec<u8> {
    let mut bound = row.to_vec();
    if direction == Direction::Backward {
        bound.push(0);
    }
    bound
}

impl Store {
    /// Returns rows of an object that the base has, of those with `from <= key < until`: rows that are kept, or what a
    /// cursor reads.
    fn below(
        &self,
        tier: Tier,
        epoch: u64,
        object: ObjectKey,
        (from, until): (&[u8], &[u8]),
        direction: Direction,
    ) -> Result<Below<'_>, Stop> {
        if let Some(part) = self.stretches.find(epoch, object, from, until, direction) {
            return Ok(Below::kept(epoch, direction, part));
        }
        let cursor = self.base.scan(from, until, direction, tier).map_err(|error| failed(&error))?;
        Ok(Below::cursor(epoch, direction, cursor, self.stretches.ahead(object)))
    }

    /// Reads the base's next rows; more than are wanted, and to be kept, where the reads of the object follow each
    /// other.
    fn read_below(
        &self,
        below: &mut Below<'_>,
        object: ObjectKey,
        (from, until): (&[u8], &[u8]),
        want: usize,
    ) -> Result<(), Stop> {
        let ahead = below.take_ahead();
        if !below.fill((from, until), want, ahead, STEP_BYTES).map_err(|error| failed(&error))? {
            return Err(Stop::WouldBlock);
        }
        self.stretches.on_read(object);
        if let Some(rows) = below.rows().filter(|_| ahead > 0) {
            self.stretches.keep(object, rows.clone());
        }
        Ok(())
    }

    /// Returns whether the memtable has all of a row's object, so that the base need not be asked: rows that a flush
    /// has brought there are in the memtable as well, until the next freeze.
    #[inline]
    pub(crate) fn is_above_base(&self, row: &[u8]) -> bool {
        row::object_of(row).is_some_and(|id| id.0 >= self.base_ids_end.load(Ordering::Acquire))
    }

    /// Returns whether committed deletes of rows of this row's object have left no tombstones.
    pub(crate) fn is_dense(&self, row: &[u8]) -> bool {
        self.is_above_base(row) && self.memtable.is_active_only(row)
    }

    /// Returns whether the base has a row that the memtable does not know, as far as that is known without a look at
    /// the base.
    #[inline]
    pub(crate) fn element_below(&self, row: &[u8]) -> Option<bool> {
        if self.is_above_base(row) {
            return Some(false);
        }
        if Family::of(row) == Some(Family::Data) { self.presence.has_element(row) } else { None }
    }

    /// Adds rows of both generations, the newer one's winning; `bound` moves to where a generation was cut off. Returns
    /// the newest record that wrote any of them.
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
