//! The base as it lies on disk, opened to be read only: nothing in the directory changes, not even RocksDB's own notes.
//! For who checks a directory on which no server runs.

use crate::error::{OpenError, base_error, open_error};
use haypile_store::Value;
use haypile_store::base::{BaseError, Cursor, Step};
use haypile_store::check::Stored;
use rust_rocksdb::{BlockBasedOptions, Cache, DB, DBRawIterator, Options, Range, ReadOptions};
use std::path::Path;

/// Blocks, and indexes and filters of the files in use: all that grows with the data stays within this.
const CACHE_BYTES: usize = 64 << 20;

/// Files that are open at a time.
const OPEN_FILES_MAX: i32 = 512;

/// What is read at once where rows are read in order.
const READAHEAD_BYTES: usize = 1 << 20;

/// A base without background work, caches beyond a bound, or any way to change it.
pub struct Image {
    /// None where no server has come so far as to make it.
    db: Option<DB>,
    reads: ReadOptions,
}

struct ImageCursor<'i> {
    rows: DBRawIterator<'i>,
    begun: bool,
}

impl Image {
    /// Opens the base in `directory`, which exists. No other process may have it open for writing.
    pub fn open(directory: &Path) -> Result<Image, OpenError> {
        if !directory.join("CURRENT").exists() && !has_rows(directory)? {
            return Ok(Image { db: None, reads: ReadOptions::default() });
        }
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_hyper_clock_cache(CACHE_BYTES, 0));
        table.set_cache_index_and_filter_blocks(true);
        // Files have theirs; this only says that they are to be used.
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_skip_stats_update_on_db_open(true);
        let db = DB::open_for_read_only(&options, directory, false).map_err(open_error)?;
        Ok(Image { db: Some(db), reads: ReadOptions::default() })
    }
}

/// Whether there are files with rows: then what names them is lost.
fn has_rows(directory: &Path) -> Result<bool, OpenError> {
    let failed = |error: std::io::Error| OpenError::Failed(format!("{}: {error}", directory.display()));
    let mut entries = std::fs::read_dir(directory).map_err(failed)?;
    entries.try_fold(false, |found, entry| {
        let path = entry.map_err(failed)?.path();
        Ok(found || path.extension().is_some_and(|extension| extension == "sst"))
    })
}

/// What is read of a base that is not there.
struct Nothing;

impl Cursor for Nothing {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        Ok(Step::End)
    }
}

impl Stored for Image {
    fn row(&self, row: &[u8]) -> Result<Option<Value>, BaseError> {
        let Some(db) = &self.db else { return Ok(None) };
        let found = db.get_pinned_opt(row, &self.reads).map_err(base_error)?;
        Ok(found.map(|value| Value::from(&*value)))
    }

    fn rows(&self, from: &[u8], until: &[u8]) -> Result<Box<dyn Cursor + '_>, BaseError> {
        let Some(db) = &self.db else { return Ok(Box::new(Nothing)) };
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(until);
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
        let mut rows = db.raw_iterator_opt(options);
        rows.seek(from);
        Ok(Box::new(ImageCursor { rows, begun: false }))
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        let Some(db) = self.db.as_ref().filter(|_| from < until) else { return 0 };
        // From the indexes of the files; what cannot be read there is met again where rows are read.
        db.get_approximate_sizes(&[Range::new(from, until)]).map_or(0, |sizes| sizes.into_iter().sum())
    }
}

impl Cursor for ImageCursor<'_> {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        if self.begun && self.rows.valid() {
            self.rows.next();
        }
        self.begun = true;
        if self.rows.valid() {
            let (key, value) = self.rows.item().expect("the iterator is valid");
            return Ok(Step::Row { key, value });
        }
        match self.rows.status() {
            Ok(()) => Ok(Step::End),
            Err(error) => Err(base_error(error)),
        }
    }
}
