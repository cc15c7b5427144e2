//! Rows that commands take one after the other, each its own: the elements at the end of a queue. Where the base has to
//! be asked for one, the rows behind it are read ahead into a stretch: a row that a cursor passes costs a fraction of
//! one that is looked for.

use crate::base::{Direction, Tier};
use crate::memtable::ObjectKey;
use crate::row::RowKey;
use crate::stop::{Stop, failed};
use crate::txn::Txn;
use crate::txn::merge::Below;
use crate::value::Value;
use std::time::Duration;

/// Rows that a thread which may wait for the disk reads at once where an event loop would read one: the clients that
/// share a queue shall not all wait again soon.
const DISK_FACTOR: usize = 16;

/// The most bytes of rows that are read at once, where the disk may be read and where not.
const DISK_BYTES: u64 = 512 << 10;
const MEMORY_BYTES: u64 = 64 << 10;

/// The part of the room for all stretches that one read may fill.
const READ_PART: u64 = 4;

/// How long a thread waits for another one that reads the rows of the same queue.
const TURN_WAIT: Duration = Duration::from_millis(2);

/// Rows that cost as much as one that is looked for.
const ROWS_A_LOOK: usize = 8;

impl Txn<'_> {
    /// Returns a row that is no meta row, by its full key. Those that follow it in this direction, through the row at
    /// `end`, will soon be asked for, too.
    pub fn row_and_next(
        &mut self,
        row: &[u8],
        direction: Direction,
        end: impl FnOnce() -> RowKey,
    ) -> Result<Option<Value>, Stop> {
        self.on_read()?;
        if let Some(newer) = self.row_above_base(row) {
            return Ok(newer);
        }
        // The epoch after the memtable was asked: rows that have left it before are in the base of that one.
        if let Some(found) = self.store.stretches.row(self.store.epoch(), row) {
            return Ok(found);
        }
        if !self.is_pinned(row)
            && let Some(found) = self.read_ahead(row, direction, end)?
        {
            self.pin(row, &found);
            return Ok(found);
        }
        self.base_row(row, false, false)
    }

    /// Reads a row of the base and those that follow it, and returns it. Nothing where rows are not read ahead.
    fn read_ahead(
        &mut self,
        row: &[u8],
        direction: Direction,
        end: impl FnOnce() -> RowKey,
    ) -> Result<Option<Option<Value>>, Stop> {
        let Some((object, _)) = ObjectKey::of(row) else { return Ok(None) };
        self.goes_on()?;
        let (store, tier) = (self.store, self.tier());
        let _turn = match tier {
            Tier::Disk => store.stretches.wait_for_turn(object, TURN_WAIT),
            Tier::Memory => None,
        };
        let epoch = store.epoch();
        if let Some(found) = store.stretches.row(epoch, row) {
            return Ok(Some(found));
        }
        let ahead = store.stretches.ahead(object);
        let room = store.stretches.bytes_max() / READ_PART;
        let (ahead, bytes_max) = match tier {
            Tier::Disk => (ahead.max(1) * DISK_FACTOR, DISK_BYTES.min(room)),
            Tier::Memory => (ahead, MEMORY_BYTES.min(room)),
        };
        if ahead == 0 || bytes_max == 0 {
            return Ok(None);
        }
        if tier == Tier::Memory {
            self.on_look_in_base(ahead.div_ceil(ROWS_A_LOOK))?;
        }
        let (mut from, mut until) = (RowKey::from_slice(row), end());
        if direction == Direction::Backward {
            (from, until) = (until, from);
        }
        until.push(0);
        let cursor = store.base.scan(&from, &until, direction, tier).map_err(|error| failed(&error))?;
        let mut below = Below::cursor(epoch, direction, cursor, 0);
        let is_there = below.fill((&from, &until), 1, ahead, bytes_max as usize).map_err(|error| failed(&error))?;
        if tier == Tier::Memory {
            store.attempts.note(is_there);
        }
        let Some(rows) = below.rows().filter(|_| is_there) else { return Err(Stop::WouldBlock) };
        let found = rows.find(row);
        store.stretches.on_read(object);
        store.stretches.keep(object, rows.clone());
        Ok(found)
    }
}
