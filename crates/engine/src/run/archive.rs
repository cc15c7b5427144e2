//! An archive: backups and the log at another place. The server writes to it; commands and INFO know of it here.

use crate::sync::{Mutex, lock};
use haypile_commands::Error;
use haypile_log::Index;
use std::sync::OnceLock;
use std::time::Instant;

/// The part of the server that writes to an archive.
pub trait Archiver: Send + Sync {
    /// Begins a backup that goes to the archive.
    ///
    /// # Errors
    /// A text for people: there is no archive, or one is being made.
    fn begin_backup(&self) -> Result<(), String>;
}

/// The facts about an archive, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFacts {
    /// The place of the archive; empty without one.
    pub place: String,
    /// `off`, `opening`, `writing`, `watching` (another server writes) or `failing`.
    pub state: &'static str,
    /// The last record that is in the archive, as far as is known.
    pub through: Index,
    /// The moment since when records wait to be archived.
    pub waiting: Option<Instant>,
    pub chunks: u64,
    pub bytes: u64,
    pub failures: u64,
    /// The last failure, in one line.
    pub failure: String,
    /// The records that are missing in the archive, if some were let go of: the first and the last one.
    pub hole: Option<(Index, Index)>,
    pub backup: BackupFacts,
}

/// The facts about backups in an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupFacts {
    pub is_running: bool,
    /// Bytes of files of the backup that is being made, and how many of them are in the archive.
    pub bytes: u64,
    pub bytes_done: u64,
    /// Bytes that were sent for it.
    pub bytes_sent: u64,
    /// The last complete backup: its name, and when it was made, in seconds since 1970.
    pub last: String,
    pub last_s: u64,
    /// The reason why the last backup failed, in one line; empty if it did not.
    pub failure: String,
    pub made: u64,
}

/// See the file's head.
#[derive(Default)]
pub struct Archiving {
    archiver: OnceLock<Box<dyn Archiver>>,
    facts: Mutex<ArchiveFacts>,
}

impl Archiving {
    /// Has `archiver` write to archives; once.
    pub fn set(&self, archiver: Box<dyn Archiver>) {
        let is_first = self.archiver.set(archiver).is_ok();
        assert!(is_first, "a server has one archiver");
    }

    /// Changes what INFO tells.
    pub fn note(&self, change: impl FnOnce(&mut ArchiveFacts)) {
        change(&mut lock(&self.facts));
    }

    /// Returns what INFO tells.
    pub fn facts(&self) -> ArchiveFacts {
        lock(&self.facts).clone()
    }
}

impl Archiving {
    /// Begins a backup that goes to the archive: ARCHIVE.BACKUP.
    pub(crate) fn begin_backup(&self) -> Result<(), Error> {
        let Some(archiver) = self.archiver.get() else {
            return Err(Error::text("ERR this server has no archive"));
        };
        archiver.begin_backup().map_err(|why| Error::text(format!("ERR {why}")))
    }
}
