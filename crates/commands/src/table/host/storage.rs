//! The data as a whole: backups, and data that are opened again.

/// The data of the server as a whole.
pub trait Storage {
    /// Whether what is written is going to be on a disk.
    fn has_disk(&self) -> bool;

    /// Unix time in seconds: when the last backup was complete, or when the server started.
    fn last_backup_s(&self) -> u64;
}

/// The origin of data that are opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// All data come from the base: DEBUG RELOAD.
    Base,
    /// The records that are newer than the base, from the log: DEBUG LOADAOF.
    Log,
}
