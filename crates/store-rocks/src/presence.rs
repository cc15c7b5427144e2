//! Checks that the base's files are still there. RocksDB keeps its files open and does not notice that their names are
//! gone.

use crate::error::{OpenError, io_error};
use haypile_store::base::BaseError;
use rust_rocksdb::LiveFile;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The file that names the manifest, and so all others.
const HEAD: &str = "CURRENT";

/// The number of looks from one search for the files with rows, one by one, to the next.
const FILES_EVERY: u64 = 16;

/// The place where the base was opened.
pub(crate) struct Presence {
    directory: PathBuf,
    /// Device and inode: the name may come to stand for another directory.
    identity: (u64, u64),
    looks: AtomicU64,
}

impl Presence {
    pub(crate) fn new(directory: &Path) -> Result<Presence, BaseError> {
        let about = std::fs::metadata(directory).map_err(|error| io_error("reading", directory, error))?;
        Ok(Presence { directory: directory.to_owned(), identity: (about.dev(), about.ino()), looks: AtomicU64::new(0) })
    }

    /// Returns an error if the directory or a file of it is gone; `live` lists the files with rows.
    pub(crate) fn look(&self, live: impl Fn() -> Result<Vec<LiveFile>, BaseError>) -> Result<(), BaseError> {
        let gone = |path: &Path| BaseError::Failed(format!("{} was removed while the server runs", path.display()));
        let is_ours = std::fs::metadata(&self.directory).map(|about| (about.dev(), about.ino()) == self.identity);
        if matches!(is_ours, Ok(false)) || is_ours.is_err_and(is_not_found) {
            return Err(gone(&self.directory));
        }
        let head = self.directory.join(HEAD);
        if std::fs::metadata(&head).is_err_and(is_not_found) {
            return Err(gone(&head));
        }
        if !self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(FILES_EVERY) {
            return Ok(());
        }
        let path_of = |file: &LiveFile| self.directory.join(file.name.trim_start_matches('/'));
        let missing: Vec<PathBuf> =
            live()?.iter().map(path_of).filter(|path| std::fs::metadata(path).is_err_and(is_not_found)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // A file that a compaction has replaced since is not missed.
        let still: Vec<PathBuf> = live()?.iter().map(path_of).collect();
        missing.iter().find(|path| still.contains(path)).map_or(Ok(()), |path| Err(gone(path)))
    }
}

fn is_not_found(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Refuses a directory with files of a base and without the one that names them. RocksDB would begin a new base there.
pub(crate) fn refuse_headless(directory: &Path) -> Result<(), OpenError> {
    let head = directory.join(HEAD);
    if std::fs::symlink_metadata(&head).is_ok() {
        return Ok(());
    }
    let failed = |error: std::io::Error| OpenError::Failed(format!("{}: {error}", directory.display()));
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy();
        // RocksDB makes none of these files before the one that names them.
        if name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("OPTIONS-") {
            return Err(OpenError::Corrupt(format!("{} is missing, and there is {name}", head.display())));
        }
    }
    Ok(())
}
