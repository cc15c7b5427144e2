//! The log and the data of a member, as the part that runs it provides them.

use haypile_log::{Index, Kind, Log, Record};
use std::fmt;
use std::sync::Arc;

/// The reason why a member cannot go on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The log or the data take nothing now. The member begins again from what is on its disk.
    Refused(String),
    /// The log, the data or the ballot are damaged, or were lost in part. The member must not take part as it is.
    Damaged(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::Refused(why) | Fault::Damaged(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Fault {}

/// A log, and data that follow it.
///
/// Invariant: data are never ahead of what is committed, but for those of a machine that leads.
pub trait Machine {
    /// Returns the log: another one after `rebuild`.
    fn log(&self) -> &Log;

    /// Returns the last record that the data have.
    fn applied(&self) -> Index;

    /// Returns what the last change that the data have says of the group's members.
    fn members(&self) -> Option<Arc<[u8]>>;

    /// Makes a record that says this of the group's members, as this leader's: an entry of its own.
    ///
    /// # Errors
    /// There is no room.
    fn change_members(&mut self, members: &[u8]) -> Result<(), Fault>;

    /// Puts the records of a leader's entry behind the log's last one, all or none, without applying them.
    ///
    /// # Errors
    /// There is no room, or the entry does not come next.
    fn keep(&mut self, records: &[Record<'_>]) -> Result<(), Fault>;

    /// Puts a record without effects behind the log's last one, as the entry (term, number) of this leader; returns its
    /// index.
    ///
    /// # Errors
    /// There is no room.
    fn keep_own(&mut self, entry: (u64, u64), kind: Kind, body: &[u8]) -> Result<Index, Fault>;

    /// Applies records of the log through this one, which are written. May stop before, where there is no room for
    /// more: it is asked again.
    ///
    /// # Errors
    /// A record is damaged.
    fn apply(&mut self, through: Index) -> Result<(), Fault>;

    /// Has clients' transactions make records: entries of `term` from `first` on. All records have been applied.
    fn lead(&mut self, term: u64, first: u64);

    /// Opens log and data again: without the log's records behind `keep`, and without what the data have beyond
    /// `committed`. They follow then. Data of which nothing was taken back may have less than before.
    ///
    /// # Errors
    /// Log or data cannot be opened.
    fn rebuild(&mut self, keep: Index, committed: Index) -> Result<(), Fault>;

    /// Puts a copy of another member's log and data, which is on the disk as a whole, in the place of these, and opens
    /// them.
    ///
    /// # Errors
    /// That has failed; either are on the disk.
    fn install(&mut self) -> Result<(), Fault>;
}
