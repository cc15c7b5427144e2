//! RocksDB's errors, translated for the store. RocksDB hands out a text only: `code: [subcode:] where`, which is taken
//! apart here and nowhere else.

use haypile_store::ADVICE;
use haypile_store::base::BaseError;
use rust_rocksdb::{Error, ErrorKind};
use std::path::Path;

/// The reason why a base could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The directory is open already, in another process or in another base of this one.
    Busy(String),
    /// The disk is full.
    Full(String),
    /// Files are missing or damaged: which and how, as far as known.
    Corrupt(String),
    /// RocksDB failed in any other way.
    Failed(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Busy(why) => write!(f, "the base is open elsewhere: {why}"),
            OpenError::Full(why) => write!(f, "the disk is full: {why}"),
            OpenError::Corrupt(why) => write!(f, "the base is damaged: {why}. {ADVICE}"),
            OpenError::Failed(why) => write!(f, "the base cannot be opened: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Tells whether RocksDB could not answer without the disk (`ReadTier::BlockCache`).
pub(crate) fn would_block(error: &Error) -> bool {
    error.kind() == ErrorKind::Incomplete
}

/// Translates an error of a read, a write or of background work.
pub(crate) fn base_error(error: Error) -> BaseError {
    let text = error.as_ref();
    if names_full_disk(text) {
        BaseError::Full(error.into_string())
    } else if error.kind() == ErrorKind::Corruption {
        BaseError::Corrupt(error.into_string())
    } else {
        BaseError::Failed(error.into_string())
    }
}

/// Returns the error of a call of the operating system on `path`.
pub(crate) fn io_error(what: &str, path: &std::path::Path, error: std::io::Error) -> BaseError {
    let text = format!("{what} {}: {error}", path.display());
    if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
        BaseError::Full(text)
    } else {
        BaseError::Failed(text)
    }
}

/// Translates an error of opening a base in `directory`. A file that the manifest names and the directory lacks is
/// damage too. RocksDB names some files without their directory.
pub(crate) fn open_error(error: Error, directory: &Path) -> OpenError {
    let text = error.as_ref();
    if text.contains("While lock file") || text.contains("lock hold by current process") {
        OpenError::Busy(error.into_string())
    } else if names_full_disk(text) {
        OpenError::Full(error.into_string())
    } else if error.kind() == ErrorKind::Corruption || text.contains("No such file or directory") {
        let is_named = directory.to_str().is_some_and(|directory| text.contains(directory));
        let place = if is_named { String::new() } else { format!("{}: ", directory.display()) };
        OpenError::Corrupt(format!("{place}{text}"))
    } else {
        OpenError::Failed(error.into_string())
    }
}

/// Tells whether the text says ENOSPC, EDQUOT, or RocksDB's own limit on space.
fn names_full_disk(text: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "Space limit reached"].iter().any(|full| text.contains(full))
}
