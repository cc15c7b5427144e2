//! The data as a whole: backups, and data that are opened again.

use crate::error::Result;

/// The data of the server as a whole.
pub trait Storage {
    /// Whether what is written is going to be on a disk.
    fn has_disk(&self) -> bool;

    /// Closes and opens the data again; the reply of the running command is held back until then.
    ///
    /// # Errors
    /// In a transaction.
    fn reload(&mut self, how: Reload) -> Result<()>;

    /// Has a backup made: at once, or in a transaction when that has ended.
    fn begin_backup(&mut self) -> Result<BackupBegun>;

    /// Unix time in seconds: when the last backup was complete, or when the server started.
    fn last_backup_s(&self) -> u64;
}

/// Where data come from that are opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// All from the base: DEBUG RELOAD.
    Base,
    /// What is newer than the base from the log: DEBUG LOADAOF.
    Log,
}

/// When a backup begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupBegun {
    Now,
    Later,
}
