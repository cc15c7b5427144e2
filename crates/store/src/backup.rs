//! A backup: a checkpoint of the base, and the log from its applied index to an index of now. Opened, it holds exactly
//! the records up to that index.
//!
//! A backup stops nothing. The base's checkpoint is the base of one moment, between two ingestions; the log's records
//! above the index that was applied before are held until they are copied, and where the base has got further
//! meanwhile, an open passes over the records that it has. The index is taken after the checkpoint, so that the log
//! reaches beyond the base's content, and holds every record that was acknowledged before.

use crate::base::BaseError;
use crate::store::Store;
use haypile_log::Index;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The extent of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The last record that is in the backup.
    pub index: Index,
    /// The base has no record behind this one.
    pub applied: Index,
    /// Bytes of the log's part.
    pub log_bytes: u64,
}

impl Store {
    /// Writes a backup: the base to `base`, which does not exist yet, the log into the empty directory `log`. Both are
    /// synced when this returns, but for the directory that holds them. Reads and writes the disk all the time; asks
    /// `goes_on` now and then, and ends with an error where that says no. After an error, the files that were written
    /// are of no use.
    ///
    /// # Errors
    /// A text for people.
    pub fn back_up(&self, base: &Path, log: &Path, goes_on: &dyn Fn() -> bool) -> Result<BackedUp, String> {
        if self.options.memory_only {
            return Err("with 'engine memory' there is nothing on disk to back up".into());
        }
        let hold = self.log.hold();
        self.base.checkpoint(base).map_err(|error: BaseError| error.to_string())?;
        if !goes_on() {
            return Err("it was broken off".into());
        }
        // A generation that has just gone into the base, and so may be in the copy, is not counted as applied before
        // the row cache knows of it.
        let frozen = self.frozen.lock().as_ref().map(|frozen| frozen.index);
        let applied = frozen.unwrap_or(Index(self.applied.load(Ordering::Acquire)));
        let index = self.backup_end();
        self.log.sync_through(index).map_err(|error| error.to_string())?;
        let exported = self.log.export(&hold, index, log, goes_on).map_err(|error| error.to_string())?;
        // The base may have got further since the checkpoint; the backup need not.
        let applied = applied.min(index);
        Ok(BackedUp { index, applied, log_bytes: exported.bytes })
    }

    /// Returns the last record of a backup whose base was copied just now. A group may yet take back what it has not
    /// agreed on; the base has nothing of that.
    pub(crate) fn backup_end(&self) -> Index {
        let applied = Index(self.applied.load(Ordering::Acquire));
        if self.options.in_group { self.log.confirmed().max(applied) } else { self.log.last() }
    }

    /// Returns the last record that nobody takes back: an archive may have it, once it is on the disk.
    pub fn archivable(&self) -> Index {
        if self.options.in_group { self.log.confirmed() } else { self.log.last() }
    }

    /// Returns about how many bytes of the log a backup would copy now.
    pub fn backup_log_bytes(&self) -> u64 {
        self.log.stats().since_applied_bytes
    }

    /// Returns the free bytes of the disk, if they can be told, and how many the disk should keep.
    pub fn disk_room(&self) -> (Option<u64>, u64) {
        ((self.options.disk_free.0)().map(|_| self.disk_free()), self.flush.disk_free_min_bytes())
    }
}
