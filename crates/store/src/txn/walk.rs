//! A walk over the base: lookups of very many keys in the order of their rows are answered from one ordered read for as
//! long as the rows lie close together.
//!
//! A lookup of its own finds the file, the block and the row anew each time; the next row of an ordered read costs a
//! tenth of that. Where rows lie far apart, the walk passes over too many to be of use: then rows are looked up one by
//! one, which still reads each block once, and the walk is tried again later.

use super::Txn;
use crate::base::{Base, BaseError, Cursor, Direction, Step};
use crate::row::{Key, RowKey, meta_row};
use crate::stop::Mode;
use crate::value::Value;

/// Rows that the walk may pass over for each one that is looked up: about as many as cost what a lookup does.
const PASSED_PER_LOOKUP: u32 = 8;

/// Rows that may be passed over in advance, and the most that are saved up.
const CREDIT: u32 = 64;
const CREDIT_MAX: u32 = 512;

/// Lookups one by one after a walk that was of no use, twice as many each time, up to the most.
const APART: u32 = 128;
const APART_MAX: u32 = 1 << 14;

/// The walk of one command.
pub(crate) struct Walk {
    /// Beyond the last row that is looked up.
    until: RowKey,
    at: Option<At>,
    credit: u32,
    /// Lookups that are left until the walk is tried again, and how many these are the next time.
    apart: u32,
    apart_next: u32,
}

/// An ordered read, and the place that it has come to.
struct At {
    /// The epoch before the read was opened. Invariant: the rows are those of the base for as long as no generation
    /// leaves the memtable.
    epoch: u64,
    rows: Box<dyn Cursor + Send>,
    /// The row that was looked up last. Invariant: the base has none from here to `key`.
    from: RowKey,
    /// The row that the read has come to; empty before the first one.
    key: Vec<u8>,
    value: Vec<u8>,
    is_over: bool,
}

impl Txn<'_> {
    /// Begins a walk: the keys that are looked up from here on come in the order of their rows, and `last` is the last
    /// of them. Their rows are not put into the row cache: so many that are read once would take the place of others.
    pub fn begin_walk(&mut self, last: &Key<'_>) {
        // Invariant: only a run under its key locks walks. Without them a row may be written, and flushed, after the
        // memtable was asked for it and before the epoch changes.
        if self.call.mode == Mode::Disk {
            let mut until = meta_row(last);
            until.push(0);
            self.walk = Some(Box::new(Walk { until, at: None, credit: CREDIT, apart: 0, apart_next: APART }));
        }
    }

    pub fn end_walk(&mut self) {
        self.walk = None;
    }

    /// Returns whether the order in which keys are visited is told: by the events of these keys.
    pub fn tells_order(&self) -> bool {
        self.event_classes != 0
    }
}

impl Walk {
    /// Returns what the base has of a row; `None` where the row is to be looked up by itself. `epoch` was read after
    /// the memtable was asked for the row.
    pub fn find(&mut self, base: &dyn Base, epoch: u64, row: &[u8]) -> Result<Option<Option<Value>>, BaseError> {
        if row >= &self.until[..] {
            return Ok(None);
        }
        if self.apart > 0 {
            self.apart -= 1;
            return Ok(None);
        }
        let at = match self.at.take().filter(|at| at.epoch == epoch) {
            Some(at) => at,
            None => At::open(base, epoch, row, &self.until)?,
        };
        let at = self.at.insert(at);
        if row < &at.from[..] {
            return Ok(None);
        }
        at.from = RowKey::from_slice(row);
        self.credit = (self.credit + PASSED_PER_LOOKUP).min(CREDIT_MAX);
        match at.come_to(row, &mut self.credit)? {
            None => {
                self.give_up();
                Ok(None)
            }
            Some(found) => {
                if self.credit == CREDIT_MAX {
                    self.apart_next = APART;
                }
                Ok(Some(found))
            }
        }
    }

    /// Ends the ordered read, which passes over too many rows.
    fn give_up(&mut self) {
        (self.at, self.credit, self.apart) = (None, CREDIT, self.apart_next);
        self.apart_next = (self.apart_next * 2).min(APART_MAX);
    }
}

impl At {
    fn open(base: &dyn Base, epoch: u64, row: &[u8], until: &[u8]) -> Result<At, BaseError> {
        let rows = base.view(row, until, Direction::Forward)?;
        let (key, value) = (Vec::new(), Vec::new());
        Ok(At { epoch, rows, from: RowKey::from_slice(row), key, value, is_over: false })
    }

    /// Goes on to a row; returns what the base has of it, or `None` where more than `credit` rows lie before it.
    fn come_to(&mut self, row: &[u8], credit: &mut u32) -> Result<Option<Option<Value>>, BaseError> {
        while !self.is_over && &self.key[..] < row {
            match self.rows.step()? {
                Step::Row { key, value } if key >= row => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.value.clear();
                    self.value.extend_from_slice(value);
                }
                Step::Row { .. } => match credit.checked_sub(1) {
                    Some(left) => *credit = left,
                    None => return Ok(None),
                },
                Step::End => self.is_over = true,
                Step::WouldBlock => unreachable!("a view reads the disk"),
            }
        }
        let is_there = !self.is_over && self.key == row;
        Ok(Some(is_there.then(|| Value::from(&self.value[..]))))
    }
}
