//! Makes a flush visible in one step, as files. Writes under `ingest/` in the base's directory, syncs each file, hands
//! all of them over in one call, and leaves nothing behind when any of that fails.

use crate::error::{base_error, io_error};
use crate::options::Options;
use haypile_store::base::{BaseError, Rows};
use parking_lot::Mutex;
use rust_rocksdb::{
    Cache, DB, EnvOptions, IngestExternalFileOptions, Options as RocksOptions, ReadOptions, SstFileWriter,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The directory of files that are not yet the base's.
const DIRECTORY: &str = "ingest";

/// How many bytes of rows may pass between two checks of the size of the file being written.
const LOOK_EVERY_BYTES: usize = 256 * 1024;

/// Writes flushes into the base, one at a time.
pub(crate) struct Ingest {
    directory: PathBuf,
    files: RocksOptions,
    env: EnvOptions,
    how: IngestExternalFileOptions,
    file_bytes: u64,
    one_at_a_time: Mutex<()>,
    pub(crate) count: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) last_write_us: AtomicU64,
    pub(crate) last_ingest_us: AtomicU64,
}

/// A file that was begun, with its first row key.
struct Staged {
    path: PathBuf,
    first: Vec<u8>,
    bytes: u64,
}

impl Ingest {
    pub(crate) fn new(base: &Path, options: &Options, cache: &Cache) -> Self {
        Ingest {
            directory: base.join(DIRECTORY),
            files: options.flush_files(cache),
            env: options.flush_env(),
            how: options.ingestion(),
            file_bytes: options.ingest_file_bytes.max(1),
            one_at_a_time: Mutex::new(()),
            count: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            last_write_us: AtomicU64::new(0),
            last_ingest_us: AtomicU64::new(0),
        }
    }

    /// Removes the files that an earlier run left: those of a flush that never became visible, or second links of files
    /// that did (RocksDB removes those after the step that counts).
    pub(crate) fn clean(&self) -> Result<(), BaseError> {
        match std::fs::remove_dir_all(&self.directory) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("removing", &self.directory, error)),
        }
        std::fs::create_dir_all(&self.directory).map_err(|error| io_error("creating", &self.directory, error))
    }

    /// Takes all rows in, or none. Returns when they are on disk and visible.
    pub(crate) fn run(&self, db: &DB, rows: &mut dyn Rows) -> Result<(), BaseError> {
        let _turn = self.one_at_a_time.lock();
        let begun = Instant::now();
        let mut staged = Vec::new();
        let done = self.write(rows, &mut staged).and_then(|count| {
            self.last_write_us.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
            if staged.is_empty() {
                return Ok(());
            }
            let begun = Instant::now();
            warm(db, &staged);
            db.ingest_external_file_opts(&self.how, staged.iter().map(|file| &file.path).collect())
                .map_err(base_error)?;
            self.last_ingest_us.store(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
            self.rows.fetch_add(count, Ordering::Relaxed);
            self.bytes.fetch_add(staged.iter().map(|file| file.bytes).sum(), Ordering::Relaxed);
            Ok(())
        });
        if done.is_err() {
            // A file that cannot be removed now is removed at the next open.
            for file in &staged {
                let _ = std::fs::remove_file(&file.path);
            }
        }
        done
    }

    /// Writes the rows into files that do not overlap; a file that was begun is in `staged`, so that it can be removed.
    fn write(&self, rows: &mut dyn Rows, staged: &mut Vec<Staged>) -> Result<u64, BaseError> {
        let mut count = 0;
        let mut writer = SstFileWriter::create_with_env_options(&self.files, &self.env);
        let mut unlooked = None;
        while let Some((key, value)) = rows.next_row()? {
            let bytes = match unlooked {
                Some(bytes) => bytes,
                None => {
                    let path = self.directory.join(format!("{}.sst", staged.len()));
                    remove_staged(&path)?;
                    staged.push(Staged { path: path.clone(), first: key.to_vec(), bytes: 0 });
                    writer.open(&path).map_err(base_error)?;
                    0
                }
            };
            match value {
                Some(value) => writer.put(key, value),
                None => writer.delete(key),
            }
            .map_err(base_error)?;
            count += 1;
            unlooked = Some(bytes + key.len() + value.map_or(0, <[u8]>::len));
            if unlooked.is_some_and(|bytes| bytes >= LOOK_EVERY_BYTES) {
                unlooked = Some(0);
                if writer.file_size() >= self.file_bytes {
                    finish(&mut writer, staged)?;
                    unlooked = None;
                }
            }
        }
        if unlooked.is_some() {
            finish(&mut writer, staged)?;
        }
        Ok(count)
    }
}

/// Removes what has a staged file's name. Another link to a file of the base may have it still: RocksDB ignores where
/// it cannot remove the name of a file that it took in. To write to that name would overwrite the base's file.
fn remove_staged(path: &Path) -> Result<(), BaseError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("removing", path, error)),
        _ => Ok(()),
    }
}

/// Ends and syncs the file that is being written.
fn finish(writer: &mut SstFileWriter<'_>, staged: &mut [Staged]) -> Result<(), BaseError> {
    writer.finish().map_err(base_error)?;
    if let Some(file) = staged.last_mut() {
        file.bytes = writer.file_size();
    }
    Ok(())
}

/// Reads the blocks around the begin of each file into the cache. The ingestion looks there under RocksDB's mutex, for
/// which readers wait whose view of the files is outdated.
fn warm(db: &DB, staged: &[Staged]) {
    for file in staged {
        let mut rows = db.raw_iterator_opt(ReadOptions::default());
        rows.seek(&file.first);
    }
}
