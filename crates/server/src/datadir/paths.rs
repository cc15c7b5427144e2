//! The files and directories of a data directory.

use super::foreign;
use std::path::{Path, PathBuf};

pub(super) const END_FILE: &str = "haypile.end";

/// Returns where the log is.
pub fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Returns where the base is.
pub fn base_dir(dir: &Path) -> PathBuf {
    dir.join("base")
}

/// Returns the file with the term and the vote of a member of a Raft group.
pub fn ballot_file(dir: &Path) -> PathBuf {
    dir.join("raft.ballot")
}

/// Returns the file that says which member of a Raft group the server is.
pub fn member_file(dir: &Path) -> PathBuf {
    dir.join("raft.member")
}

/// Returns the file that reserves disk space for writes that make room.
pub fn reserve_file(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

/// Returns the file that says how far those who follow and are no Haypile have come.
pub fn stream_file(dir: &Path) -> PathBuf {
    dir.join("haypile.stream")
}

/// Returns the file that says how far the log is in an archive.
pub fn archived_file(dir: &Path) -> PathBuf {
    dir.join("haypile.archived")
}

/// Returns the file with the checksums of files that are in an archive.
pub fn digests_file(dir: &Path) -> PathBuf {
    dir.join("haypile.digests")
}

/// Returns where a backup is made that goes to an archive.
pub fn archiving_dir(dir: &Path) -> PathBuf {
    dir.join("archiving")
}

/// Returns where backups are.
pub fn backups_dir(dir: &Path) -> PathBuf {
    dir.join("backups")
}

/// Returns where the copies are that replicas fetch from this server.
pub fn copies_dir(dir: &Path) -> PathBuf {
    dir.join("copies")
}

/// Returns where the tails of logs are that this node has given up.
pub fn tails_dir(dir: &Path) -> PathBuf {
    dir.join("tails")
}

/// Returns the file of a directory that a restore fills.
pub fn restoring_file(dir: &Path) -> PathBuf {
    dir.join(foreign::RESTORING_FILE)
}

/// Returns where the copy of a master's data is put together.
pub fn incoming_dir(dir: &Path) -> PathBuf {
    dir.join("incoming")
}
