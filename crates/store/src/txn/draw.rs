//! A draw of a random row of an object that lies in memory: rows are not numbered, so a place is drawn that may have
//! none.
//!
//! Only for objects that one generation of the memtable has whole, or all of whose rows in the base are kept as a
//! stretch: each draw of another object that is not too large reads some more of its rows into one. Until then the
//! caller draws from short ordered reads.

use crate::base::{Direction, Step};
use crate::memtable::{ElementRange, Elements, Found, shard_of};
use crate::row::RowKey;
use crate::stop::{Stop, failed};
use crate::txn::Txn;
use std::sync::Arc;

/// Places that are drawn under the latch. Where so many have no row, most rows of the object were deleted.
const ATTEMPTS: usize = 64;

/// Places that are drawn where rows of the base that were deleted since are among them.
const ATTEMPTS_BELOW: usize = 256;

/// Rows of the base that a draw reads for those that follow it, and their bytes.
const AHEAD_ROWS: usize = 128;
const AHEAD_BYTES: usize = 32 << 10;

/// The result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// No row was drawn, which does not mean that there is none.
    No,
    Row,
    /// A row was drawn, out of so many dead ones that the object is better copied without them.
    OfFew,
}

/// Rows of the base to each live row from which they are few.
const FEW_SHARE: u64 = 8;

impl Txn<'_> {
    /// Draws one of the rows of an object with `from <= key < until`, all equally likely, by the numbers that `random`
    /// gives, and gives its key and value to `take`, which only looks at bytes. `count` is about how many there are.
    pub fn draw(
        &mut self,
        from: &[u8],
        until: &[u8],
        count: u64,
        random: impl FnMut() -> u64,
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<Drawn, Stop> {
        self.on_read_many()?;
        let Some(range) = ElementRange::of(from, until) else { return Ok(Drawn::No) };
        if !self.own_writes(from, until, Direction::Forward).is_empty() {
            return Ok(Drawn::No);
        }
        match self.store.is_above_base(from) {
            true => self.draw_above(&range, (from, until), random, take),
            false => self.draw_with_base(&range, (from, until), count, random, take),
        }
    }

    /// Draws a row of an object that the memtable has whole.
    fn draw_above(
        &mut self,
        range: &ElementRange<'_>,
        (from, until): (&[u8], &[u8]),
        mut random: impl FnMut() -> u64,
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<Drawn, Stop> {
        let store = self.store;
        let latch = store.memtable.latch(shard_of(range.object.slot()));
        // Flushed rows may have left the memtable meanwhile, and do not come back above the base.
        if !store.is_above_base(from) {
            return Ok(Drawn::No);
        }
        let frozen = latch.frozen.as_ref().and_then(|frozen| frozen.objects.elements(range.object));
        let elements = match (latch.active.objects.elements(range.object), frozen) {
            (Some(elements), None) | (None, Some(elements)) => elements,
            _ => return Ok(Drawn::No),
        };
        for _ in 0..ATTEMPTS {
            let Some(row) = elements.at_place(random()) else { continue };
            let Some(value) = row.value().filter(|_| from <= row.row() && row.row() < until) else { continue };
            self.gate.rise(row.index());
            take(row.row(), value);
            return Ok(Drawn::Row);
        }
        Ok(Drawn::No)
    }

    /// Draws a row of an object whose rows in the base are kept; where they are not, keeps some more of them.
    ///
    /// A place is drawn out of all that the memtable's generations and the stretch have. A row that a newer generation
    /// knows, too, counts there only: so each row has one place.
    fn draw_with_base(
        &mut self,
        range: &ElementRange<'_>,
        (from, until): (&[u8], &[u8]),
        count: u64,
        mut random: impl FnMut() -> u64,
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<Drawn, Stop> {
        let store = self.store;
        let epoch = store.epoch();
        let Some(kept) = store.stretches.whole(epoch, range.object, from, until) else {
            self.keep_more(range, (from, until), epoch, count)?;
            return Ok(Drawn::No);
        };
        let latch = store.memtable.latch(shard_of(range.object.slot()));
        if store.epoch() != epoch {
            return Ok(Drawn::No);
        }
        let active = latch.active.objects.elements(range.object);
        let frozen = latch.frozen.as_ref().and_then(|frozen| frozen.objects.elements(range.object));
        let places = [active, frozen].map(|elements| elements.map_or(0, Elements::places) as u64);
        let all = places[0] + places[1] + kept.rows.len() as u64;
        for _ in 0..ATTEMPTS_BELOW {
            if all == 0 {
                break;
            }
            let place = ((u128::from(random()) * u128::from(all)) >> 64) as u64;
            let in_memory = match place {
                place if place < places[0] => active.and_then(|elements| elements.at_place(random())),
                place if place < places[0] + places[1] => frozen
                    .and_then(|elements| elements.at_place(random()))
                    .filter(|row| latch.active.objects.find(row.row()).is_none()),
                place => {
                    let at = kept.rows.start + (place - places[0] - places[1]) as usize;
                    let (key, value) = kept.stretch.row(at);
                    if latch.row(key) != Found::Unknown {
                        continue;
                    }
                    take(key, value);
                    let is_few = kept.rows.len() as u64 > count.saturating_mul(FEW_SHARE);
                    return Ok(if is_few { Drawn::OfFew } else { Drawn::Row });
                }
            };
            let Some(row) = in_memory else { continue };
            let Some(value) = row.value().filter(|_| from <= row.row() && row.row() < until) else { continue };
            self.gate.rise(row.index());
            take(row.row(), value);
            return Ok(Drawn::Row);
        }
        Ok(Drawn::No)
    }

    /// Reads some rows of the base behind those that are kept of an object, from its first one on, if all of them have
    /// room, and no disk has to be waited for.
    fn keep_more(
        &mut self,
        range: &ElementRange<'_>,
        (from, until): (&[u8], &[u8]),
        epoch: u64,
        count: u64,
    ) -> Result<(), Stop> {
        let store = self.store;
        let Some(mut rows) = store.stretches.take_to_grow(range.object, epoch, from, count) else {
            return Ok(());
        };
        let begin = RowKey::from_slice(rows.until());
        let cursor = store.base.scan(&begin, until, Direction::Forward, self.tier());
        let mut cursor = cursor.map_err(|error| failed(&error))?;
        let (rows_max, bytes_max) = (rows.len() + AHEAD_ROWS, rows.row_bytes() + AHEAD_BYTES);
        rows.open(until);
        while rows.len() < rows_max && rows.row_bytes() < bytes_max {
            match cursor.step().map_err(|error| failed(&error))? {
                Step::Row { key, value } => rows.push(key, value),
                Step::End => {
                    store.stretches.keep(range.object, Arc::new(rows));
                    return Ok(());
                }
                Step::WouldBlock => break,
            }
        }
        rows.cut(Direction::Forward);
        store.stretches.keep(range.object, Arc::new(rows));
        Ok(())
    }
}
