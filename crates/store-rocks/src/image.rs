//! The base on disk, opened to be read only, for checks and exports of a directory on which no server runs: nothing in
//! the directory changes, not even RocksDB's own notes.

use crate::cursor::RocksCursor;
use crate::error::{OpenError, base_error, open_error, would_block};
use crate::handle::{Handle, Open};
use crate::presence::refuse_headless;
use haypile_store::Value;
use haypile_store::base::{Base, BaseError, Cursor, Direction, Lookup, Pressure, Reclaim, Rows, Step, Tier};
use rust_rocksdb::{BlockBasedOptions, Cache, DB, Options, Range, ReadOptions, ReadTier};
use std::path::Path;
use std::sync::Arc;

/// Bytes for blocks, indexes and filters of the files in use: all memory that would grow with the data.
const CACHE_BYTES: usize = 64 << 20;

/// Files that are open at a time.
const OPEN_FILES_MAX: i32 = 512;

/// Bytes that are read at once where rows are read in order.
const READAHEAD_BYTES: usize = 1 << 20;

/// A base without background work, caches beyond a bound, or any way to change it.
pub struct Image {
    /// The database; none in a directory in which no server has made one yet.
    open: Option<Arc<Open>>,
    memory_reads: ReadOptions,
    disk_reads: ReadOptions,
}

impl Image {
    /// Opens the base in `directory`, which exists. No other process may have it open for writing.
    pub fn open(directory: &Path) -> Result<Image, OpenError> {
        refuse_headless(directory)?;
        if !directory.join("CURRENT").exists() {
            return Ok(Image::empty());
        }
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_hyper_clock_cache(CACHE_BYTES, 0));
        table.set_cache_index_and_filter_blocks(true);
        // The files have filters; this only says that they are to be used.
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_skip_stats_update_on_db_open(true);
        let db = DB::open_for_read_only(&options, directory, false).map_err(|error| open_error(error, directory))?;
        Ok(Image::of(Some(Handle::new(db).1)))
    }

    /// Returns the base of a directory in which no server has made one yet.
    pub fn empty() -> Image {
        Image::of(None)
    }

    fn of(open: Option<Arc<Open>>) -> Image {
        let mut memory_reads = ReadOptions::default();
        memory_reads.set_read_tier(ReadTier::BlockCache);
        Image { open, memory_reads, disk_reads: ReadOptions::default() }
    }

    fn db(&self) -> Option<&DB> {
        self.open.as_ref().map(|open| &open.db)
    }

    /// Returns the rows in order, read with these options.
    fn cursor(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        reads: ReadOptions,
    ) -> Box<dyn Cursor + Send + 'static> {
        match &self.open {
            Some(open) => Box::new(RocksCursor::new(open.clone(), from, until, direction, reads)),
            None => Box::new(Nothing),
        }
    }
}

/// Returns the options of long reads in order, which pass the cache by.
fn long_reads() -> ReadOptions {
    let mut reads = ReadOptions::default();
    reads.fill_cache(false);
    reads.set_readahead_size(READAHEAD_BYTES);
    reads
}

/// The cursor over a base that does not exist.
struct Nothing;

impl Cursor for Nothing {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        Ok(Step::End)
    }
}

impl Base for Image {
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError> {
        let Some(db) = self.db() else { return Ok(Lookup::Absent) };
        let reads = match tier {
            Tier::Memory => &self.memory_reads,
            Tier::Disk => &self.disk_reads,
        };
        match db.get_pinned_opt(key, reads) {
            Ok(Some(value)) => Ok(Lookup::Row(Value::from(&*value))),
            Ok(None) => Ok(Lookup::Absent),
            Err(error) if would_block(&error) => Ok(Lookup::WouldBlock),
            Err(error) => Err(base_error(error)),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError> {
        let mut reads = ReadOptions::default();
        reads.set_read_tier(match tier {
            Tier::Memory => ReadTier::BlockCache,
            Tier::Disk => ReadTier::All,
        });
        Ok(self.cursor(from, until, direction, reads))
    }

    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError> {
        Ok(self.cursor(from, until, direction, long_reads()))
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn ingest(&self, _: &mut dyn Rows) -> Result<(), BaseError> {
        Err(only_read())
    }

    fn set_busy(&self, _: bool) {}

    fn pace_removals(&self, _: bool) {}

    fn set_reclaim(&self, _: Reclaim) {}

    fn reclaim_range(&self, _: &[u8], _: &[u8]) -> Result<(), BaseError> {
        Err(only_read())
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        let Some(db) = self.db().filter(|_| from < until) else { return 0 };
        // The sizes come from the indexes of the files; one that cannot be read is met again where rows are read.
        db.get_approximate_sizes(&[Range::new(from, until)]).map_or(0, |sizes| sizes.into_iter().sum())
    }

    fn pressure(&self) -> Pressure {
        Pressure::default()
    }

    fn checkpoint(&self, _: &Path) -> Result<(), BaseError> {
        Err(only_read())
    }

    fn background_error(&self) -> Option<BaseError> {
        None
    }

    fn resume(&self) -> Result<(), BaseError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        0
    }

    fn set_cache_bytes(&self, _: u64) {}

    fn figures(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn close(&self) {}
}

fn only_read() -> BaseError {
    BaseError::Failed("this base is only read".into())
}
