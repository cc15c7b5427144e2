//! Checks that the base's files are still there. RocksDB keeps its files open and does not notice that their names are
//! gone.

use crate::error::{OpenError, io_error};
use haypile_store::base::BaseError;
use rust_rocksdb::LiveFile;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
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
    /// The files with rows that the last search has missed. Invariant: until they are back, or RocksDB needs them no
    /// more, each look misses them.
    missed: Mutex<Vec<PathBuf>>,
}

impl Presence {
    pub(crate) fn new(directory: &Path) -> Result<Presence, BaseError> {
        let about = std::fs::metadata(directory).map_err(|error| io_error("reading", directory, error))?;
        Ok(Presence {
            directory: directory.to_owned(),
            identity: (about.dev(), about.ino()),
            looks: AtomicU64::new(0),
            missed: Mutex::default(),
        })
    }

    /// Returns an error if the directory or a file of it is gone; `live` lists the files with rows.
    pub(crate) fn look(&self, live: impl Fn() -> Result<Vec<LiveFile>, BaseError>) -> Result<(), BaseError> {
        let gone = |path: &Path| BaseError::Failed(format!("{} was removed while the server runs", path.display()));
        let is_ours = std::fs::metadata(&self.directory).map(|about| (about.dev(), about.ino()) == self.identity);
        if matches!(is_ours, Ok(false)) || is_ours.is_err_and(|error| is_not_found(error.kind())) {
            return Err(gone(&self.directory));
        }
        if let Some(path) = self.missing_head() {
            return Err(gone(&path));
        }
        let mut missed = self.missed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if missed.is_empty() && !self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(FILES_EVERY) {
            return Ok(());
        }
        let path_of = |file: &LiveFile| self.directory.join(file.name.trim_start_matches('/'));
        let is_gone = |path: &PathBuf| std::fs::metadata(path).is_err_and(|error| is_not_found(error.kind()));
        *missed = live()?.iter().map(path_of).filter(is_gone).collect();
        if !missed.is_empty() {
            // A file that a compaction has replaced since is not missed.
            let still: Vec<PathBuf> = live()?.iter().map(path_of).collect();
            missed.retain(|path| still.contains(path));
        }
        missed.first().map_or(Ok(()), |path| Err(gone(path)))
    }

    /// Returns the file that names the manifest, or the manifest, if it is gone. One that cannot be read may be there.
    fn missing_head(&self) -> Option<PathBuf> {
        let head = self.directory.join(HEAD);
        let named = || std::fs::read_to_string(&head).map(|name| self.directory.join(name.trim_end()));
        let manifest = match named() {
            Err(error) if is_not_found(error.kind()) => return Some(head),
            Err(_) => return None,
            Ok(manifest) => manifest,
        };
        let is_gone = std::fs::metadata(&manifest).is_err_and(|error| is_not_found(error.kind()));
        // RocksDB may have gone on to another one meanwhile.
        (is_gone && named().is_ok_and(|again| again == manifest)).then_some(manifest)
    }
}

fn is_not_found(kind: std::io::ErrorKind) -> bool {
    kind == std::io::ErrorKind::NotFound
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
