//! Idempotent IDs (Redis 8.6): a producer says with each entry that it adds what it calls it, and one that it has added
//! already is not added again. Owns the rows of what a stream keeps of its producers, and for how long.
//!
//! An idempotent ID is found by its producer and name. It lies in the order of the entries' ids twice: among those of
//! its producer, of which the oldest goes where there are too many, and among all, of which those go whose time is
//! over. Nobody finds one of these, though they are removed only when others are added. Format:
//! docs/format/stream_producers.md.

use super::group::remove_rows;
use super::{Kind, Stream, StreamId};
use crate::element::{ROW_PREFIX_BYTES, ROWS_INLINE_MAX, Rows, lowered};
use crate::key::damaged;
use crate::limits::EncodingLimit;
use crate::{Error, Result};
use haypile_store::row::RowKey;
use haypile_store::{Direction, Key, Txn};
use std::ops::ControlFlow;

/// Redis's highest values for how long, and how many, idempotent IDs are known.
pub const DURATION_S_MAX: u32 = 86_400;
pub const IDS_MAX: u32 = 10_000;

/// Idempotent IDs whose time is over that are removed when one is added: more than one, so that they go.
const REMOVED_AT_ONCE: usize = 16;

/// The row about all producers. There is one from the first idempotent ID on, and where XCFGSET has set something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducersState {
    /// Seconds for which an idempotent ID is known.
    pub duration_s: u32,
    /// Idempotent IDs of one producer.
    pub ids_max: u32,
    /// The number that the next producer gets.
    pub next: u32,
    pub producers: u32,
    /// Idempotent IDs of all producers, with those whose time is over.
    pub ids: u64,
    /// Entries that were ever added with an idempotent ID.
    pub added: u64,
    /// Entries that were not added because they were there.
    pub duplicates: u64,
    /// No idempotent ID is of an older entry.
    pub from: StreamId,
}

impl ProducersState {
    pub const BYTES: usize = 4 * 4 + 3 * 8 + StreamId::BYTES;

    /// Returns `duration_s: u32 | ids_max: u32 | next: u32 | producers: u32 | ids: u64 | added: u64 | duplicates: u64 |
    /// from: u64, u64`.
    pub fn encode(&self) -> [u8; ProducersState::BYTES] {
        let mut bytes = [0; ProducersState::BYTES];
        let shorts = [self.duration_s, self.ids_max, self.next, self.producers];
        shorts.iter().zip(bytes.chunks_exact_mut(4)).for_each(|(number, to)| to.copy_from_slice(&number.to_be_bytes()));
        let longs = [self.ids, self.added, self.duplicates];
        let places = bytes[16..].chunks_exact_mut(8);
        longs.iter().zip(places).for_each(|(number, to)| to.copy_from_slice(&number.to_be_bytes()));
        bytes[40..].copy_from_slice(&self.from.to_bytes());
        bytes
    }

    pub fn parse(value: &[u8]) -> Option<ProducersState> {
        let value: &[u8; ProducersState::BYTES] = value.try_into().ok()?;
        let short = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().expect("eight bytes"));
        Some(ProducersState {
            duration_s: short(0),
            ids_max: short(4),
            next: short(8),
            producers: short(12),
            ids: long(16),
            added: long(24),
            duplicates: long(32),
            from: StreamId { ms: long(40), seq: long(48) },
        })
    }

    /// Panics unless the numbers agree with one another.
    fn assert_sound(&self) {
        let ProducersState { next, producers, ids, .. } = *self;
        let is_shared = u64::from(producers) <= ids && (producers > 0 || ids == 0);
        assert!(is_shared, "Invariant: producers have at least one idempotent ID each: {ids} of {producers}");
        assert!(producers <= next, "Invariant: the numbers of producers differ, and are below the next");
        assert!(producers > 0 || next == 0, "Invariant: the next number is 0 if there is no producer");
    }

    /// Tells whether the time of an idempotent ID is over that stands for this entry.
    pub fn is_over(&self, id: StreamId, now_ms: u64) -> bool {
        id.ms.saturating_add(u64::from(self.duration_s) * 1000) <= now_ms
    }
}

/// The row of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The number by which its idempotent IDs are found.
    pub number: u32,
    /// How many idempotent IDs the producer has, with those whose time is over; at least one.
    pub ids: u32,
    /// The oldest entry that an idempotent ID of the producer may be of.
    pub from: StreamId,
    /// The newest entry that was added.
    pub last: StreamId,
}

impl ProducerState {
    pub const BYTES: usize = 4 + 4 + 2 * StreamId::BYTES;

    /// Returns `number: u32 | ids: u32 | from: u64, u64 | last: u64, u64`.
    pub fn encode(&self) -> [u8; ProducerState::BYTES] {
        let mut bytes = [0; ProducerState::BYTES];
        bytes[..4].copy_from_slice(&self.number.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.ids.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.from.to_bytes());
        bytes[24..].copy_from_slice(&self.last.to_bytes());
        bytes
    }

    pub fn parse(value: &[u8]) -> Option<ProducerState> {
        let value: &[u8; ProducerState::BYTES] = value.try_into().ok()?;
        let short = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().expect("four bytes"));
        let id = |at: usize| StreamId::from_bytes(value[at..at + 16].try_into().expect("sixteen bytes"));
        Some(ProducerState { number: short(0), ids: short(4), from: id(8), last: id(24) })
    }
}

/// The producers of a stream, under change.
pub struct Producers {
    rows: Rows,
    pub state: ProducersState,
    /// The row as it is written; `None`: not yet.
    saved: Option<ProducersState>,
}

/// Splits `number: u32 | id: u64, u64 | rest`, or with the id first.
fn parts(element: &[u8], is_id_first: bool) -> Option<(u32, StreamId, &[u8])> {
    let (number, id, rest) = if is_id_first {
        let (id, rest) = element.split_first_chunk::<{ StreamId::BYTES }>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        (number, id, rest)
    } else {
        let (number, rest) = element.split_first_chunk::<4>()?;
        let (id, rest) = rest.split_first_chunk::<{ StreamId::BYTES }>()?;
        (number, id, rest)
    };
    Some((u32::from_be_bytes(*number), StreamId::from_bytes(*id), rest))
}

/// Returns the producer's number, the entry's id and the name in the row of an idempotent ID by its producer.
pub fn idempotent_in_row(row: &[u8]) -> Option<(u32, StreamId, &[u8])> {
    parts(row.get(ROW_PREFIX_BYTES + 1..)?, false)
}

impl Stream {
    /// Returns what the stream keeps of its producers; `None` if it never had any and keeps to the configuration.
    pub fn producers(&self, txn: &mut Txn<'_>) -> Result<Option<Producers>> {
        let rows = self.rows();
        let Some(value) = txn.row(&rows.data(&[Kind::Producers as u8]))? else { return Ok(None) };
        match ProducersState::parse(&value) {
            Some(state) => Ok(Some(Producers { rows, state, saved: Some(state) })),
            None => Err(damaged("the producers of a stream", &value)),
        }
    }

    /// Returns the same for a writer: with the bounds of the configuration, if there is nothing yet.
    pub fn edit_producers(&self, txn: &mut Txn<'_>) -> Result<Producers> {
        if let Some(producers) = self.producers(txn)? {
            return Ok(producers);
        }
        let bound = |limit: EncodingLimit, most: u32| limit.of(txn).clamp(1, i64::from(most)) as u32;
        let duration_s = bound(EncodingLimit::IdempotentSeconds, DURATION_S_MAX);
        let ids_max = bound(EncodingLimit::IdempotentIds, IDS_MAX);
        let (from, [ids, added, duplicates]) = (StreamId::MIN, [0; 3]);
        let state = ProducersState { duration_s, ids_max, next: 0, producers: 0, ids, added, duplicates, from };
        Ok(Producers { rows: self.rows(), state, saved: None })
    }
}

impl Producers {
    fn row(&self, kind: Kind, parts: &[&[u8]]) -> RowKey {
        let mut row = self.rows.data(&[kind as u8]);
        parts.iter().for_each(|part| row.extend_from_slice(part));
        row
    }

    /// Returns the end of the rows of a producer's idempotent IDs in their order.
    fn end_of(&self, producer: &ProducerState) -> RowKey {
        match producer.number.checked_add(1) {
            Some(next) => self.row(Kind::OfProducer, &[&next.to_be_bytes()]),
            None => self.row(Kind::ByAge, &[]),
        }
    }

    fn producer(&self, txn: &mut Txn<'_>, name: &[u8]) -> Result<Option<ProducerState>> {
        let Some(value) = txn.row(&self.row(Kind::Producer, &[name]))? else { return Ok(None) };
        match ProducerState::parse(&value) {
            Some(state) => Ok(Some(state)),
            None => Err(damaged("a producer", &value)),
        }
    }

    fn entry_of(&self, txn: &mut Txn<'_>, producer: u32, name: &[u8]) -> Result<Option<StreamId>> {
        let row = self.row(Kind::Idempotent, &[&producer.to_be_bytes(), name]);
        let Some(value) = txn.row(&row)? else { return Ok(None) };
        match value[..].try_into() {
            Ok(id) => Ok(Some(StreamId::from_bytes(id))),
            Err(_) => Err(damaged("an idempotent ID", &value)),
        }
    }

    /// Returns the entry that a producer has added by this name, unless that is too long ago. The stream need not have
    /// it any more.
    pub fn find(&self, txn: &mut Txn<'_>, producer: &[u8], name: &[u8]) -> Result<Option<StreamId>> {
        let Some(state) = self.producer(txn, producer)? else { return Ok(None) };
        let found = self.entry_of(txn, state.number, name)?;
        Ok(found.filter(|id| !self.state.is_over(*id, txn.now_ms())))
    }

    /// Notes that a producer has added an entry by a name, which `find` does not know.
    pub fn add(&mut self, txn: &mut Txn<'_>, producer: &[u8], name: &[u8], id: StreamId) -> Result<()> {
        self.remove_some(txn)?;
        let mut state = match self.producer(txn, producer)? {
            Some(state) => state,
            None => self.add_producer(id)?,
        };
        if let Some(other) = self.entry_of(txn, state.number, name)? {
            self.delete(txn, &mut state, other, name)?;
        }
        let (number, key) = (state.number.to_be_bytes(), id.to_bytes());
        txn.put_row(&self.row(Kind::Idempotent, &[&number, name]), &[&key])?;
        txn.put_row(&self.row(Kind::OfProducer, &[&number, &key, name]), &[])?;
        txn.put_row(&self.row(Kind::ByAge, &[&key, &number, name]), &[producer])?;
        if state.ids == 0 {
            (state.from, state.last) = (id, id);
        }
        (state.ids, state.from, state.last) = (state.ids + 1, state.from.min(id), state.last.max(id));
        self.state.from = if self.state.ids == 0 { id } else { self.state.from.min(id) };
        self.state.ids += 1;
        self.state.added += 1;
        if state.ids > self.state.ids_max {
            self.delete_oldest(txn, &mut state)?;
        }
        self.write_producer(txn, producer, &state)
    }

    /// Returns a new producer, whose first idempotent ID is of this entry.
    fn add_producer(&mut self, first: StreamId) -> Result<ProducerState> {
        let number = self.state.next;
        self.state.next = number.checked_add(1).ok_or(Error::Overflow)?;
        self.state.producers += 1;
        Ok(ProducerState { number, ids: 0, from: first, last: first })
    }

    fn write_producer(&mut self, txn: &mut Txn<'_>, name: &[u8], state: &ProducerState) -> Result<()> {
        let row = self.row(Kind::Producer, &[name]);
        if state.ids > 0 {
            debug_assert!(
                txn.is_dry_run() || state.from <= state.last,
                "Invariant: the entries of a producer lie between its first and its last"
            );
            return Ok(txn.put_row(&row, &[&state.encode()])?);
        }
        self.state.producers = lowered(txn, u64::from(self.state.producers), 1) as u32;
        if self.state.producers == 0 {
            // Nothing is left that has a number.
            self.state.next = 0;
        }
        Ok(txn.delete_row(&row)?)
    }

    /// Removes the rows of an idempotent ID; its producer is to be written.
    fn delete(&mut self, txn: &mut Txn<'_>, of: &mut ProducerState, id: StreamId, name: &[u8]) -> Result<()> {
        let (number, key) = (of.number.to_be_bytes(), id.to_bytes());
        txn.delete_row(&self.row(Kind::Idempotent, &[&number, name]))?;
        txn.delete_row(&self.row(Kind::OfProducer, &[&number, &key, name]))?;
        txn.delete_row(&self.row(Kind::ByAge, &[&key, &number, name]))?;
        of.ids = lowered(txn, u64::from(of.ids), 1) as u32;
        self.state.ids = lowered(txn, self.state.ids, 1);
        Ok(())
    }

    fn delete_oldest(&mut self, txn: &mut Txn<'_>, of: &mut ProducerState) -> Result<()> {
        let number = of.number.to_be_bytes();
        let from = self.row(Kind::OfProducer, &[&number, &of.from.to_bytes()]);
        let until = self.end_of(of);
        let mut oldest = None;
        txn.visit(&from, &until, Direction::Forward, 1, |row, _| {
            oldest = idempotent_in_row(row).map(|(_, id, name)| (id, name.to_vec()));
            ControlFlow::Break(())
        })?;
        let Some((id, name)) = oldest else { return Err(damaged("the idempotent IDs of a producer", &of.encode())) };
        self.delete(txn, of, id, &name)?;
        of.from = id;
        Ok(())
    }

    /// Removes some idempotent IDs whose time is over.
    fn remove_some(&mut self, txn: &mut Txn<'_>) -> Result<()> {
        if self.state.ids == 0 || !self.state.is_over(self.state.from, txn.now_ms()) {
            return Ok(());
        }
        let (state, now_ms, mut found) = (self.state, txn.now_ms(), Vec::new());
        let (from, until) = (self.row(Kind::ByAge, &[&state.from.to_bytes()]), self.row(Kind::End, &[]));
        let (mut next, mut ended) = (None, Ok(()));
        txn.visit(&from, &until, Direction::Forward, REMOVED_AT_ONCE + 1, |row, producer| {
            let Some((_, id, name)) = parts(&row[ROW_PREFIX_BYTES + 1..], true) else {
                ended = Err(damaged("an idempotent ID", row));
                return ControlFlow::Break(());
            };
            next = Some(id);
            if found.len() == REMOVED_AT_ONCE || !state.is_over(id, now_ms) {
                return ControlFlow::Break(());
            }
            found.push((id, name.to_vec(), producer.to_vec()));
            ControlFlow::Continue(())
        })?;
        ended?;
        for (id, name, producer) in found {
            let Some(mut state) = self.producer(txn, &producer)? else {
                return Err(damaged("the producer of an idempotent ID", &producer));
            };
            self.delete(txn, &mut state, id, &name)?;
            state.from = id;
            self.write_producer(txn, &producer, &state)?;
        }
        self.state.from = next.unwrap_or(self.state.from);
        Ok(())
    }

    /// Sets the bounds. Where one changes, all producers are forgotten; tells whether one has.
    pub fn set_bounds(&mut self, txn: &mut Txn<'_>, duration_s: u32, ids_max: u32) -> Result<bool> {
        if (duration_s, ids_max) == (self.state.duration_s, self.state.ids_max) {
            return Ok(false);
        }
        if self.state.ids > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        if self.state.ids > 0 {
            let removed = remove_rows(txn, self.row(Kind::Producer, &[]), &self.row(Kind::End, &[]))?;
            debug_assert!(
                txn.is_dry_run() || removed == u64::from(self.state.producers) + 3 * self.state.ids,
                "Invariant: each producer has one row, each idempotent ID has three"
            );
        }
        let [next, producers] = [0; 2];
        let from = StreamId::MIN;
        self.state = ProducersState { duration_s, ids_max, next, producers, ids: 0, from, ..self.state };
        Ok(true)
    }

    /// Writes the row about all producers if it has changed.
    pub fn save(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        if self.saved != Some(self.state) {
            // In a dry run the rows may be of two moments.
            if cfg!(debug_assertions) && !txn.is_dry_run() {
                self.state.assert_sound();
            }
            txn.touch_key(key);
            txn.put_row(&self.row(Kind::Producers, &[]), &[&self.state.encode()])?;
            self.saved = Some(self.state);
        }
        Ok(())
    }

    /// Returns all producers, in the order of their numbers.
    pub fn list(&self, txn: &mut Txn<'_>) -> Result<Vec<(Vec<u8>, ProducerState)>> {
        if self.state.producers as usize > ROWS_INLINE_MAX {
            txn.long()?;
        }
        let (mut found, mut ended) = (Vec::new(), Ok(()));
        let (from, until) = (self.row(Kind::Producer, &[]), self.row(Kind::Idempotent, &[]));
        let want = self.state.producers as usize;
        txn.visit(&from, &until, Direction::Forward, want, |row, value| match ProducerState::parse(value) {
            Some(state) => {
                found.push((row[ROW_PREFIX_BYTES + 1..].to_vec(), state));
                ControlFlow::Continue(())
            }
            None => {
                ended = Err(damaged("a producer", value));
                ControlFlow::Break(())
            }
        })?;
        ended?;
        found.sort_unstable_by_key(|(_, state)| state.number);
        Ok(found)
    }

    /// Shows the idempotent IDs of a producer, the oldest first.
    pub fn visit(
        &self,
        txn: &mut Txn<'_>,
        of: &ProducerState,
        mut visit: impl FnMut(StreamId, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let number = of.number.to_be_bytes();
        let from = self.row(Kind::OfProducer, &[&number, &of.from.to_bytes()]);
        let until = self.end_of(of);
        let mut ended = Ok(());
        txn.visit(&from, &until, Direction::Forward, of.ids as usize, |row, _| match idempotent_in_row(row) {
            Some((_, id, name)) => visit(id, name),
            None => {
                ended = Err(damaged("an idempotent ID", row));
                ControlFlow::Break(())
            }
        })?;
        ended
    }

    /// Returns how many producers and idempotent IDs are known whose time is not over.
    pub fn known(&self, txn: &mut Txn<'_>) -> Result<(u64, u64)> {
        let (state, now_ms) = (self.state, txn.now_ms());
        let producers = self.list(txn)?;
        let live = producers.iter().filter(|(_, producer)| !state.is_over(producer.last, now_ms)).count() as u64;
        if state.ids == 0 || !state.is_over(state.from, now_ms) {
            return Ok((live, state.ids));
        }
        if state.ids > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let (from, until) = (self.row(Kind::ByAge, &[&state.from.to_bytes()]), self.row(Kind::End, &[]));
        let mut over = 0;
        txn.visit(&from, &until, Direction::Forward, ROWS_INLINE_MAX, |row, _| {
            match parts(&row[ROW_PREFIX_BYTES + 1..], true) {
                Some((_, id, _)) if state.is_over(id, now_ms) => {
                    over += 1;
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok((live, state.ids.saturating_sub(over)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "producers have at least one idempotent ID each")]
    fn a_producer_without_idempotent_id_is_noticed() {
        let [ids_max, next, producers] = [1; 3];
        let [added, duplicates] = [0; 2];
        let one =
            ProducersState { duration_s: 1, ids_max, next, producers, ids: 1, added, duplicates, from: StreamId::MIN };
        one.assert_sound();
        ProducersState { ids: 0, ..one }.assert_sound();
    }

    #[test]
    fn the_rows_of_producers_come_apart_as_they_were_put_together() {
        let from = StreamId::new(8, 9);
        let all =
            ProducersState { duration_s: 1, ids_max: 2, next: 3, producers: 4, ids: 5, added: 6, duplicates: 7, from };
        assert_eq!(ProducersState::parse(&all.encode()), Some(all));
        let one = ProducerState { number: 1, ids: 2, from, last: StreamId::new(10, 11) };
        assert_eq!(ProducerState::parse(&one.encode()), Some(one));
        assert!(!all.is_over(StreamId::new(1000, 0), 1999) && all.is_over(StreamId::new(1000, 5), 2000));
    }
}
