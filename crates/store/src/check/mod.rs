//! A check of a data directory, offline and read only: the log, and the rows that the base and the log make together.
//! The rules of keys and values are checked above this crate; this module has the parts for that, and checks the rules
//! of the store's own rows.
//!
//! A check repairs nothing and changes nothing, and its memory does not grow with the base: the rows that the log holds
//! above the applied index are kept in memory, as the server does, and everything else is read in order. Read `records`
//! (the log), `merged` (the rows of both) and `facts` (system rows); `finding` is the result.

mod agreement;
mod facts;
mod finding;
mod merged;
mod meter;
mod records;

pub use agreement::Agreement;
pub use facts::{Facts, Standing};
pub use finding::{Finding, Findings, Garbage, Kind};
pub use merged::{Merged, Rows};
pub use meter::{Meter, Progress};
pub use records::Above;

use crate::base::{Base, BaseError, Cursor, Direction, Lookup, Tier};
use crate::flush::applied_row;
use crate::value::Value;
use haypile_log::{Applied, Histories, History, Index, Options, inspect};

/// A base that is only read.
pub trait Stored {
    fn row(&self, row: &[u8]) -> Result<Option<Value>, BaseError>;

    /// Returns the rows with `from <= key < until`, ascending.
    fn rows(&self, from: &[u8], until: &[u8]) -> Result<Box<dyn Cursor + '_>, BaseError>;

    /// Returns about how many bytes on disk the rows in `from <= key < until` take.
    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64;
}

impl<B: Base + ?Sized> Stored for B {
    fn row(&self, row: &[u8]) -> Result<Option<Value>, BaseError> {
        match self.get(row, Tier::Disk)? {
            Lookup::Row(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => Err(BaseError::Failed("a read of the disk would block".into())),
        }
    }

    fn rows(&self, from: &[u8], until: &[u8]) -> Result<Box<dyn Cursor + '_>, BaseError> {
        Ok(self.view(from, until, Direction::Forward)?)
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        Base::bytes_in(self, from, until)
    }
}

/// The reason why a check ended before it had seen everything.
#[derive(Debug)]
pub enum Broken {
    /// Something cannot be read at all: no permission, an error of the disk, a format that is newer than this program.
    Unreadable(String),
    /// Damage behind which nothing can be told; the damage is among the findings.
    Noted,
}

/// Returns up to which record the base holds everything, and that record's history; None if the base was never written
/// to.
pub(crate) fn applied(base: &(impl Stored + ?Sized)) -> Result<Option<Applied>, BaseError> {
    let Some(value) = base.row(&applied_row())? else { return Ok(None) };
    let (Some(index), Some(history)) = (value.first_chunk(), value.last_chunk()) else {
        return Err(BaseError::Corrupt("the row that says how far the base goes is too short".into()));
    };
    Ok(Some(Applied { index: Index(u64::from_be_bytes(*index)), history: Some(History(*history)) }))
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The last record of the log.
    pub last: Index,
    /// Term and number of the consensus group's entry that it belongs to; zeros of none.
    pub entry: (u64, u64),
}

/// The facts that an open would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    pub end: LogEnd,
    /// The histories that the log went through.
    pub histories: Histories,
}

/// Looks at a base and its log as an open would, without reading all of them.
///
/// # Errors
/// A text for people: they cannot be read, are damaged, or do not belong together.
pub fn look(source: &Options, base: &(impl Stored + ?Sized)) -> Result<Looked, String> {
    let applied = applied(base).map_err(|error| format!("the base cannot be read: {error}"))?;
    let found = inspect(source, applied.unwrap_or_default()).map_err(|error| error.to_string())?;
    Ok(Looked { end: LogEnd { last: found.last, entry: found.entry }, histories: found.histories })
}

/// Notes damage of the base where an error means damage.
pub fn note(error: BaseError, findings: &mut Findings<'_>) -> Broken {
    match error {
        BaseError::Corrupt(why) => {
            findings.add(Kind::Base, "base", format_args!("{why}; what follows there was not read"));
            Broken::Noted
        }
        error => Broken::Unreadable(format!("the base cannot be read: {error}")),
    }
}
