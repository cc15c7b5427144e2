//! `Spool`: rows that a command sorts or collects and that are too many for memory, in a file of this node that has no
//! name.
//!
//! Owns the bound of the rows that stay in memory and the order in which they come back. Never writes a record: a read
//! leaves nothing in the log, on no node. The file is made in the log's directory, open to no other user, and gone with
//! its last handle, however the process ends. `sorter` sorts in memory, `runs` is the file.

mod runs;
pub(crate) mod sorter;

use crate::base::{BaseError, Direction};
use crate::refusal::Refusal;
use crate::stop::{Stop, failed};
use crate::txn::Txn;
use crate::txn::view::Life;
use sorter::{GROUP_BYTES, Sorted, Sorter};

/// Bytes of a spool that stay in memory while it grows. As many make a run of the file.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// Bytes that are read ahead of a spool's file: a client that is slow to read its reply keeps them.
const AHEAD_BYTES: usize = 256 << 10;

/// A spool that takes rows. Rows come back in the order of the places that they were put at, equal ones as they were
/// put.
pub struct Spool {
    sorter: Sorter,
    direction: Direction,
    /// The row in hand, put together.
    place: Vec<u8>,
    value: Vec<u8>,
}

impl Txn<'_> {
    /// Returns a spool for a command that runs on the I/O pool, to be read from the lowest place on or from the
    /// highest.
    pub fn spool(&self, direction: Direction) -> Result<Spool, Stop> {
        self.long()?;
        let sorter = Sorter::new(self.store.options.log.dir.clone(), MEMORY_BYTES_MAX);
        Ok(Spool { sorter, direction, place: Vec::new(), value: Vec::new() })
    }
}

impl Spool {
    /// Puts a row at a place. Invariant: of two places of one spool none is the beginning of the other, unless they are
    /// equal.
    ///
    /// # Errors
    /// The disk has no room for it, the file cannot be written, or the server stops.
    pub fn put(&mut self, txn: &Txn<'_>, place: &[u8], value: &[&[u8]]) -> Result<(), Stop> {
        self.place.clear();
        self.place.extend_from_slice(&[0; GROUP_BYTES]);
        match self.direction {
            Direction::Forward => self.place.extend_from_slice(place),
            Direction::Backward => self.place.extend(place.iter().map(|byte| !byte)),
        }
        self.place.extend_from_slice(&self.sorter.rows().to_be_bytes());
        self.value.clear();
        value.iter().for_each(|part| self.value.extend_from_slice(part));
        if !self.sorter.push(&self.place, &self.value) {
            return Ok(());
        }
        txn.goes_on()?;
        txn.store.has_room(self.sorter.bytes()).and_then(|()| self.sorter.spill()).map_err(|error| no_spool(&error))
    }

    /// Returns the number of rows.
    pub fn count(&self) -> u64 {
        self.sorter.rows()
    }

    /// Returns all rows, in order. They stay readable when the transaction has ended.
    ///
    /// # Errors
    /// The disk has no room for them, the file cannot be written, or the server stops.
    pub fn into_rows(self, txn: &Txn<'_>) -> Result<Spooled, Stop> {
        let written = if self.sorter.has_file() { self.sorter.bytes() } else { 0 };
        let has_room = if written > 0 { txn.store.has_room(written) } else { Ok(()) };
        let rows = has_room.and_then(|()| self.sorter.sorted(AHEAD_BYTES)).map_err(|error| no_spool(&error))?;
        let life = txn.store.begin_life(rows.bytes() as u64);
        Ok(Spooled { rows, life })
    }
}

/// The rows of a spool on their way out. Owned, as a view is: for a reply that is produced in pieces. Reading them
/// reads the disk.
pub struct Spooled {
    rows: Sorted,
    life: Life,
}

impl Spooled {
    /// Returns the next row's value, or the end. An error's text says what failed.
    pub fn next_row(&mut self) -> Result<Option<&[u8]>, String> {
        self.life.goes_on()?;
        Ok(self.rows.next_row().map_err(|error| error.to_string())?.map(|(_, value)| value))
    }

    /// Returns the bytes of memory that the rows take.
    pub fn bytes(&self) -> u64 {
        self.life.bytes()
    }
}

fn no_spool(error: &BaseError) -> Stop {
    match error {
        BaseError::Full(_) => Stop::Refused(Refusal::SpoolFull(error.to_string())),
        BaseError::Corrupt(_) | BaseError::Failed(_) => failed(error),
    }
}
