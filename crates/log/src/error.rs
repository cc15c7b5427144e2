//! Why a log cannot be opened, and which of its records are damaged.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::DirectoryId;
use crate::format::{FORMAT_VERSION, Index};

/// Advice to an operator whose data directory has missing or damaged files.
pub const ADVICE: &str = "Nothing was repaired. Put back what is missing, or restore a backup into an empty directory: \
docs/operations.md, \"When something goes wrong\", has the steps";

/// Records that should be there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    /// Offset in the file of the bad place.
    pub offset: u64,
    /// The first record that cannot be read.
    pub index: Index,
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { file, offset, index, reason } = self;
        write!(f, "the log is damaged: {} at offset {offset}, record {index}: {reason}", file.display())
    }
}

/// Why a log cannot be opened, or replayed.
#[derive(Debug)]
pub enum OpenError {
    Io {
        path: PathBuf,
        error: io::Error,
    },
    Damage(Damage),
    /// A later version has written the log: with a kind of record that this one does not know, or a note of another
    /// format.
    Newer {
        path: PathBuf,
        what: String,
    },
    /// The log has another version of the format, which this program does not read.
    OtherVersion {
        path: PathBuf,
        found: u32,
    },
    /// The end file names another directory than the one it is in.
    Mixed {
        path: PathBuf,
        found: DirectoryId,
        expected: DirectoryId,
    },
    /// The first segment cannot be made.
    Begin(String),
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        move |error| OpenError::Io { path: path.to_owned(), error }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Io { path, error } => write!(f, "cannot read the log: {}: {error}", path.display()),
            OpenError::Damage(damage) => write!(f, "{damage}. {ADVICE}"),
            OpenError::Newer { path, what } => {
                write!(f, "the log was written by a newer version: {}: {what}", path.display())
            }
            OpenError::OtherVersion { path, found, .. } => {
                let (age, reads) = (if *found > FORMAT_VERSION { "a newer" } else { "an older" }, FORMAT_VERSION);
                write!(
                    f,
                    "the log was written by {age} version: {} has format version {found}, and this version of Haypile \
                     reads version {reads} only. Export the data with the version that wrote them, and import them here",
                    path.display()
                )
            }
            OpenError::Mixed { path, found, expected } => {
                write!(
                    f,
                    "files of two directories are mixed: {} belongs to directory {found}, and the others to {expected}. {ADVICE}",
                    path.display()
                )
            }
            OpenError::Begin(text) => write!(f, "cannot begin to write the log: {text}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why records could not be made durable; they are still in memory, and the log tries again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncError(pub String);

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log cannot be synced: {}", self.0)
    }
}

impl std::error::Error for SyncError {}
