//! Rows that commands take one after the other, each its own: the elements at the end of a queue. Where the base has to
//! be asked for one, the rows behind it are read ahead into a stretch: a row that a cursor passes costs a fraction of
//! one that is looked for.

use crate::access::Touch;
use crate::base::{Direction, Tier};
use crate::cache::Cached;
use crate::memtable::ObjectKey;
use crate::row::RowKey;
use crate::stop::{Stop, failed};
use crate::stretch::Stretch;
use crate::txn::Txn;
use crate::txn::merge::Below;
use crate::value::Value;
use std::sync::Arc;
use std::time::Duration;

/// Rows that a thread which may wait for the disk reads at once where an event loop would read one: the clients that
/// share a queue shall not all wait again soon.
const DISK_FACTOR: usize = 16;

/// The most bytes of rows that are read at once: where the disk may be read for an object whose rows were of use, and
/// else.
const DISK_BYTES: u64 = 512 << 10;
const MEMORY_BYTES: u64 = 64 << 10;

/// The part of the room for all stretches that one read may fill; twice as much if the rows turn out to be longer than
/// those before.
const READ_PART: u64 = 4;

/// How long a thread waits for another one that reads the rows of the same queue.
const TURN_WAIT: Duration = Duration::from_millis(2);

/// Rows that cost as much as one that is looked for.
const ROWS_A_LOOK: usize = 8;

/// The fewest rows that are read against the direction in which they will be asked for.
const TOWARDS_MIN: usize = 4;

/// Rows that are going to be asked for, one after the other.
pub struct NextRows {
    /// The last one of them in their direction, or one behind it.
    pub end: RowKey,
    /// Whether no more of them than were asked about lie through `end`; the base may have others that are deleted.
    pub is_counted: bool,
}

/// A read of rows for those that follow it.
struct ReadAhead<'a> {
    object: ObjectKey,
    row: &'a [u8],
    direction: Direction,
    /// Rows that are to be read, and the most bytes of them.
    count: usize,
    bytes_max: usize,
}

/// Rows ahead of one that is asked for.
enum Ahead {
    /// Rows of the base among which it is.
    Rows(Arc<Stretch>),
    /// The row is read alone, and counts as a read of its object: rows are not read ahead yet, or not kept.
    Alone(ObjectKey),
    /// Nothing is to be read.
    Not,
}

impl Txn<'_> {
    /// Returns a row that is no meta row, by its full key. Others will soon be asked for that follow it in this
    /// direction: `next` says where the next ones end, with this one so many.
    pub fn row_and_next(
        &mut self,
        row: &[u8],
        direction: Direction,
        next: impl Fn(usize) -> NextRows,
    ) -> Result<Option<Value>, Stop> {
        self.on_read()?;
        if let Some(newer) = self.row_above_base(row) {
            return Ok(newer);
        }
        // The epoch after the memtable was asked: rows that have left it before are in the base of that one.
        if let Some(found) = self.store.stretches.row(self.store.epoch(), row) {
            return Ok(found);
        }
        if self.is_pinned(row) {
            return self.base_row(row, false, false);
        }
        let ahead = self.read_ahead(row, direction, next)?;
        if let Ahead::Rows(rows) = &ahead
            && let Some(found) = rows.find(row)
        {
            self.pin(row, &found);
            return Ok(found);
        }
        let found = self.base_row(row, false, false)?;
        if let Ahead::Alone(object) = ahead {
            self.store.stretches.on_read(object);
        }
        Ok(found)
    }

    /// Reads a row of the base and those that follow it, where that is of use.
    fn read_ahead(
        &mut self,
        row: &[u8],
        direction: Direction,
        next: impl Fn(usize) -> NextRows,
    ) -> Result<Ahead, Stop> {
        let Some((object, _)) = ObjectKey::of(row) else { return Ok(Ahead::Not) };
        self.goes_on()?;
        let (store, tier) = (self.store, self.tier());
        if matches!(store.cache.look(row, &Touch::Nothing), Cached::Hit(_)) {
            return Ok(Ahead::Not);
        }
        let _turn = match tier {
            Tier::Disk => store.stretches.wait_for_turn(object, TURN_WAIT),
            Tier::Memory => None,
        };
        let epoch = store.epoch();
        if let Some(rows) = store.stretches.with_row(epoch, row) {
            return Ok(Ahead::Rows(rows));
        }
        let ahead = store.stretches.ahead(object);
        let room = store.stretches.bytes_max() / READ_PART;
        let (count, bytes_max) = match tier {
            Tier::Disk if ahead == 0 => (DISK_FACTOR, MEMORY_BYTES.min(room)),
            Tier::Disk => (ahead * DISK_FACTOR, DISK_BYTES.min(room)),
            Tier::Memory => (ahead, MEMORY_BYTES.min(room)),
        };
        if count == 0 || bytes_max == 0 || !store.stretches.would_keep(object) {
            return Ok(Ahead::Alone(object));
        }
        if tier == Tier::Memory {
            self.on_look_in_base(count.div_ceil(ROWS_A_LOOK))?;
        }
        let read = ReadAhead { object, row, direction, count, bytes_max: bytes_max as usize };
        let rows = match self.read_towards(epoch, &read, &next)? {
            Some(rows) => rows,
            None => self.read_from(epoch, &read, next(count).end)?,
        };
        store.stretches.on_read(object);
        store.stretches.keep(object, rows.clone());
        Ok(Ahead::Rows(rows))
    }

    /// Reads rows from the first one on.
    fn read_from(&self, epoch: u64, read: &ReadAhead<'_>, end: RowKey) -> Result<Arc<Stretch>, Stop> {
        let (mut from, mut until) = (RowKey::from_slice(read.row), end);
        if read.direction == Direction::Backward {
            (from, until) = (until, from);
        }
        until.push(0);
        self.read_rows(epoch, (&from, &until), read.direction, (1, read.count), read.bytes_max)
    }

    /// Reads rows that are going to be asked for backward from the last one of them on, forward, which costs far less.
    /// Returns nothing where that may be in vain.
    fn read_towards(
        &self,
        epoch: u64,
        read: &ReadAhead<'_>,
        next: &impl Fn(usize) -> NextRows,
    ) -> Result<Option<Arc<Stretch>>, Stop> {
        let Some(row_bytes) = self.store.stretches.row_bytes(read.object) else { return Ok(None) };
        let count = read.count.min(read.bytes_max / row_bytes.max(1));
        if read.direction == Direction::Forward || count < TOWARDS_MIN {
            return Ok(None);
        }
        let NextRows { end, is_counted: true } = next(count) else { return Ok(None) };
        let mut until = RowKey::from_slice(read.row);
        until.push(0);
        let rows = match self.read_rows(epoch, (&end, &until), Direction::Forward, (count, count), 2 * read.bytes_max) {
            // The row that is wanted may be in memory nevertheless.
            Err(Stop::WouldBlock) => return Ok(None),
            rows => rows?,
        };
        // Long ones fill the room before the one that is wanted.
        Ok(Some(rows).filter(|rows| rows.covers(read.row)))
    }

    /// Reads rows of a range in a direction: at least as many as are wanted, and those ahead as far as the tier allows.
    fn read_rows(
        &self,
        epoch: u64,
        (from, until): (&RowKey, &RowKey),
        direction: Direction,
        (wanted, ahead): (usize, usize),
        bytes_max: usize,
    ) -> Result<Arc<Stretch>, Stop> {
        let (store, tier) = (self.store, self.tier());
        let cursor = store.base.scan(from, until, direction, tier).map_err(|error| failed(&error))?;
        let mut below = Below::cursor(epoch, direction, cursor, 0);
        let is_there = below.fill((from, until), wanted, ahead, bytes_max).map_err(|error| failed(&error))?;
        if tier == Tier::Memory {
            store.attempts.note(is_there);
        }
        below.rows().filter(|_| is_there).cloned().ok_or(Stop::WouldBlock)
    }
}
