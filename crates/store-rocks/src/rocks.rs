//! `Rocks`: the base on disk.
//!
//! The directory is RocksDB's own, plus `ingest/`. Every file in it is the base's; nothing else may write there.

use crate::cursor::RocksCursor;
use crate::error::{OpenError, base_error, io_error, open_error, would_block};
use crate::events::Events;
use crate::handle::Handle;
use crate::ingest::Ingest;
use crate::options::{IndexLayout, Options};
use crate::presence::{Presence, refuse_headless};
use crate::reclaim::{Reclaimer, dead_ranges};
use crate::removal::Removal;
use haypile_store::Value;
use haypile_store::base::{Base, BaseError, Cursor, Direction, Lookup, Pressure, Reclaim, Rows, Tier};
use parking_lot::Mutex;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    BottommostLevelCompaction, Cache, CompactOptions, DB, ErrorKind, Range, ReadOptions, ReadTier, properties,
};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long after a compaction that found no room the next one begins by itself, unless there is as much room as that
/// one read. A running compaction takes room that others may need; those that give room back are asked for
/// (`Base::reclaim_range`).
const COMPACTION_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Rows on disk, up to the applied index.
pub struct Rocks {
    directory: PathBuf,
    handle: Handle,
    presence: Presence,
    ingest: Ingest,
    reclaimer: Arc<Reclaimer>,
    events: Arc<Events>,
    removal: Removal,
    cache: Cache,
    layout: Mutex<IndexLayout>,
    /// The number of files with which a compaction begins: while flushes follow each other, and in quiet times.
    level0_files: (u32, u32),
    pace: Mutex<Pace>,
    memory_reads: ReadOptions,
    disk_reads: ReadOptions,
}

/// The times when compactions begin by themselves.
#[derive(Default)]
struct Pace {
    /// No compaction begins before this, since one has found no room.
    held_until: Option<Instant>,
    /// Shortages that were answered.
    shortages: u64,
}

impl Rocks {
    /// Opens the base in `directory`, which is created if it does not exist.
    pub fn open(directory: &Path, mut options: Options) -> Result<Rocks, OpenError> {
        std::fs::create_dir_all(directory)
            .map_err(|error| OpenError::Failed(format!("creating {}: {error}", directory.display())))?;
        refuse_headless(directory)?;
        let has_direct_io = has_direct_io(directory);
        if options.direct_reads && !has_direct_io.clone().map_err(not_opened)? {
            let what = "reads past the page cache are asked for, and this file system has no direct I/O";
            return Err(OpenError::Failed(format!("{}: {what}", directory.display())));
        }
        options.direct_background &= has_direct_io.unwrap_or(false);
        let cache = Cache::new_hyper_clock_cache(options.cache_bytes as usize, 0);
        let reclaimer = Arc::new(Reclaimer::default());
        let events = Arc::new(Events::default());
        let removal = Removal::new(options.removal_bytes_per_s);
        let ingest = Ingest::new(directory, &options, &cache);
        let settings = options.database(&cache, &reclaimer, &events, &removal);
        let db = open_where_room_comes(&settings, directory, &ingest, &removal)?;
        // Only now is the lock ours, so that these are no other's files.
        ingest.clean().map_err(not_opened)?;
        let presence = Presence::new(directory).map_err(not_opened)?;
        let (handle, open) = Handle::new(db);
        reclaimer.open(open);
        let mut memory_reads = ReadOptions::default();
        memory_reads.set_read_tier(ReadTier::BlockCache);
        let rocks = Rocks {
            directory: directory.to_path_buf(),
            level0_files: (options.level0_files, options.level0_files_quiet),
            handle,
            presence,
            ingest,
            reclaimer,
            events,
            removal,
            cache,
            layout: Mutex::new(IndexLayout::Whole),
            pace: Mutex::default(),
            memory_reads,
            disk_reads: ReadOptions::default(),
        };
        rocks.choose_layout();
        Ok(rocks)
    }

    /// Fits the layout of indexes and filters to the data and the cache. Files change when they are compacted.
    fn choose_layout(&self) {
        let mut layout = self.layout.lock();
        let changed = self.handle.with(|db| {
            let files = number(db, properties::LIVE_SST_FILES_SIZE);
            let fitting = layout.choose(files, self.cache.get_capacity() as u64);
            if fitting != *layout {
                db.set_options(&fitting.change()).map_err(base_error)?;
            }
            Ok(fitting)
        });
        match changed {
            Ok(fitting) => *layout = fitting,
            // Either layout works; the next flush tries again.
            Err(error) => tracing::warn!("the layout of indexes stays as it is: {error}"),
        }
    }

    /// Whether there is as much room as the last compaction read that found none.
    fn has_room_for_compaction(&self) -> bool {
        free_bytes(&self.directory) >= self.events.short_bytes.load(Ordering::Relaxed)
    }

    /// Holds automatic compactions back for a while after one that found no room, unless another has found some since.
    fn pace_compactions(&self) {
        let mut pace = self.pace.lock();
        let shortages = self.events.shortages.load(Ordering::Relaxed);
        let is_short = self.events.short_of_room().is_some();
        let held_until = match pace.held_until {
            None if shortages > pace.shortages => Some(Instant::now() + COMPACTION_RETRY_INTERVAL),
            Some(until) if !is_short || Instant::now() >= until || self.has_room_for_compaction() => None,
            _ => return,
        };
        *pace = Pace { held_until, shortages };
        let setting = ("disable_auto_compactions", if held_until.is_some() { "true" } else { "false" });
        if let Err(error) = self.handle.with(|db| db.set_options(&[setting]).map_err(base_error)) {
            // The change is in force all the same where only the file of options finds no room.
            tracing::debug!("compactions are held back, or let go: {error}");
        }
    }
}

/// Opens the database. Without room an open fails, and may have made some: it removes the tables that a kill has left
/// only after it has failed to write its file of options. It is tried again as long as there is more room each time.
fn open_where_room_comes(
    settings: &rust_rocksdb::Options,
    directory: &Path,
    ingest: &Ingest,
    removal: &Removal,
) -> Result<DB, OpenError> {
    let mut free = None;
    loop {
        match DB::open(settings, directory).map_err(|error| open_error(error, directory)) {
            // The open got as far as to write, so that the directory is ours, with the files that an unfinished flush
            // has left.
            Err(full @ OpenError::Full(_)) => {
                ingest.clean().map_err(not_opened)?;
                removal.finish();
                let before = free.replace(free_bytes(directory));
                if before.is_some() && free <= before {
                    return Err(full);
                }
            }
            opened => return opened,
        }
    }
}

/// Returns how much room the disk has left, in bytes; 0 if that is not known.
fn free_bytes(directory: &Path) -> u64 {
    rustix::fs::statvfs(directory).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
}

impl Base for Rocks {
    fn get(&self, key: &[u8], tier: Tier) -> Result<Lookup, BaseError> {
        let options = match tier {
            Tier::Memory => &self.memory_reads,
            Tier::Disk => &self.disk_reads,
        };
        self.handle.with(|db| match db.get_pinned_opt(key, options) {
            Ok(Some(value)) => Ok(Lookup::Row(Value::from(&*value))),
            Ok(None) => Ok(Lookup::Absent),
            Err(error) if would_block(&error) => Ok(Lookup::WouldBlock),
            Err(error) => Err(base_error(error)),
        })
    }

    fn scan(
        &self,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        tier: Tier,
    ) -> Result<Box<dyn Cursor + '_>, BaseError> {
        let mut options = ReadOptions::default();
        options.set_read_tier(match tier {
            Tier::Memory => ReadTier::BlockCache,
            Tier::Disk => ReadTier::All,
        });
        Ok(Box::new(RocksCursor::new(self.handle.share()?, from, until, direction, options)))
    }

    fn view(&self, from: &[u8], until: &[u8], direction: Direction) -> Result<Box<dyn Cursor + Send>, BaseError> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        Ok(Box::new(RocksCursor::new(self.handle.share()?, from, until, direction, options)))
    }

    fn ingest(&self, rows: &mut dyn Rows) -> Result<(), BaseError> {
        self.ingest.run(&self.handle.share()?.db, rows)?;
        self.choose_layout();
        Ok(())
    }

    fn set_busy(&self, busy: bool) {
        let files = if busy { self.level0_files.0 } else { self.level0_files.1 }.to_string();
        let changed = self
            .handle
            .with(|db| db.set_options(&[("level0_file_num_compaction_trigger", &files)]).map_err(base_error));
        if let Err(error) = changed {
            // Compactions then begin earlier or later than they might: nothing depends on that.
            tracing::warn!("level 0 is compacted as before: {error}");
        }
    }

    fn pace_removals(&self, short_of_space: bool) {
        self.removal.pace(short_of_space);
        self.pace_compactions();
    }

    fn set_reclaim(&self, reclaim: Reclaim) {
        self.reclaimer.set_reclaim(reclaim);
    }

    fn reclaim_range(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        let open = self.handle.share()?;
        for (first, last) in dead_ranges(&self.reclaimer.reclaim(), from, until) {
            open.db.delete_file_in_range(first, last).map_err(base_error)?;
        }
        let mut options = CompactOptions::default();
        // Automatic compactions of other ranges go on meanwhile.
        options.set_exclusive_manual_compaction(false);
        // The filter runs on the last level too: on all of its files where one that came there meanwhile may be the
        // work of a compaction that began before these rows were dead, because the caller will not ask again.
        let is_compacting = number(&open.db, properties::NUM_RUNNING_COMPACTIONS) > 0;
        options.set_bottommost_level_compaction(match is_compacting {
            true => BottommostLevelCompaction::Force,
            false => BottommostLevelCompaction::ForceOptimized,
        });
        let errors = number(&open.db, properties::BACKGROUND_ERRORS);
        open.db.compact_range_opt(Some(from), Some(until), &options);
        // The call itself returns nothing; RocksDB counts failures, also those that it tells no listener.
        match self.events.error() {
            Some(error) => Err(error),
            None if number(&open.db, properties::BACKGROUND_ERRORS) > errors => {
                let short = self.events.short_of_room();
                Err(short.unwrap_or_else(|| BaseError::Failed("a compaction failed, and another one has not".into())))
            }
            None => Ok(()),
        }
    }

    fn end_reclaims(&self) {
        let _ = self.handle.with(|db| {
            db.disable_manual_compaction();
            Ok(())
        });
    }

    fn bytes_in(&self, from: &[u8], until: &[u8]) -> u64 {
        // The sizes come from the indexes of the files, exact to a block at either end.
        let sizes = self.handle.with(|db| db.get_approximate_sizes(&[Range::new(from, until)]).map_err(base_error));
        sizes.map_or(0, |sizes| sizes.into_iter().sum())
    }

    fn pressure(&self) -> Pressure {
        // A flush that waits for the base looks at nothing else meanwhile.
        self.pace_compactions();
        let pressure = self.handle.with(|db| {
            Ok(Pressure {
                level0_files: level_files(db, 0),
                pending_compaction_bytes: number(db, properties::ESTIMATE_PENDING_COMPACTION_BYTES),
                running_compactions: number(db, properties::NUM_RUNNING_COMPACTIONS),
                level0_left: self.events.level0.left(),
            })
        });
        pressure.unwrap_or_default()
    }

    fn checkpoint(&self, directory: &Path) -> Result<(), BaseError> {
        let open = self.handle.share()?;
        let checkpoint = Checkpoint::new(&open.db).map_err(base_error)?;
        // RocksDB's memtable has nothing to flush first.
        checkpoint.create_checkpoint_with_log_size(directory, u64::MAX).map_err(base_error)
    }

    fn background_error(&self) -> Option<BaseError> {
        self.events.error()
    }

    fn resume(&self) -> Result<(), BaseError> {
        match self.handle.share()?.db.resume() {
            Ok(()) => {
                self.events.clear_error();
                Ok(())
            }
            // RocksDB resumes by itself already: where the list of files found no room, it looks for some every five
            // seconds. The error that stands is the one that it waits on.
            Err(error) if error.kind() == ErrorKind::Busy => match self.events.error() {
                Some(standing) => Err(standing),
                None => Ok(()),
            },
            Err(error) => Err(base_error(error)),
        }
    }

    fn look(&self) -> Result<(), BaseError> {
        let live = || self.handle.with(|db| db.live_files().map_err(base_error));
        self.presence.look(live)
    }

    fn disk_bytes(&self) -> u64 {
        self.handle.with(|db| Ok(number(db, properties::TOTAL_SST_FILES_SIZE))).unwrap_or(0)
    }

    fn set_cache_bytes(&self, bytes: u64) {
        self.cache.clone().set_capacity(bytes as usize);
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        const LEVEL_FILES: [&str; 7] = [
            "level0_files",
            "level1_files",
            "level2_files",
            "level3_files",
            "level4_files",
            "level5_files",
            "level6_files",
        ];
        let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        let mut figures = vec![
            ("block_cache_bytes", self.cache.get_usage() as u64),
            ("block_cache_pinned_bytes", self.cache.get_pinned_usage() as u64),
            ("block_cache_capacity_bytes", self.cache.get_capacity() as u64),
            ("block_cache_entries", self.cache.get_occupancy_count() as u64),
            ("trash_bytes", self.removal.trash_bytes()),
            ("index_partitions", u64::from(*self.layout.lock() == IndexLayout::Partitioned)),
        ];
        let _ = self.handle.with(|db| {
            figures.extend([
                ("table_readers_bytes", number(db, properties::ESTIMATE_TABLE_READERS_MEM)),
                ("sst_bytes", number(db, properties::TOTAL_SST_FILES_SIZE)),
                ("live_sst_bytes", number(db, properties::LIVE_SST_FILES_SIZE)),
                ("pending_compaction_bytes", number(db, properties::ESTIMATE_PENDING_COMPACTION_BYTES)),
                ("running_compactions", number(db, properties::NUM_RUNNING_COMPACTIONS)),
                ("running_flushes", number(db, properties::NUM_RUNNING_FLUSHES)),
            ]);
            figures.extend(LEVEL_FILES.iter().zip(0..).map(|(name, level)| (*name, level_files(db, level))));
            Ok(())
        });
        figures.extend([
            ("ingests", count(&self.ingest.count)),
            ("ingested_rows", count(&self.ingest.rows)),
            ("ingested_bytes", count(&self.ingest.bytes)),
            ("last_ingest_write_us", count(&self.ingest.last_write_us)),
            ("last_ingest_us", count(&self.ingest.last_ingest_us)),
            ("compactions", count(&self.events.compactions)),
            ("compaction_read_bytes", count(&self.events.compaction_read_bytes)),
            ("compaction_written_bytes", count(&self.events.compaction_written_bytes)),
            ("compaction_read_rows", count(&self.events.compaction_read_rows)),
            ("compaction_written_rows", count(&self.events.compaction_written_rows)),
            ("compaction_cpu_us", count(&self.events.compaction_cpu_us)),
            ("reclaimed_rows", count(&self.reclaimer.dropped_rows)),
            ("owner_reads", count(&self.reclaimer.owner_reads)),
            ("background_errors", count(&self.events.background_errors)),
            ("stalls", count(&self.events.stalls)),
        ]);
        figures
    }

    fn close(&self) {
        // The filter closes first: compactions that still run keep everything, and no owner read runs after this.
        self.reclaimer.close();
        let Some(open) = self.handle.take() else { return };
        // Running compactions, manual ones included, stop at the next row; callers that wait for them return.
        open.db.cancel_all_background_work(true);
        drop(open);
        if !self.handle.wait_gone() {
            tracing::warn!("the base is closed while a read of it has not ended; its files stay open until then");
        }
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a property that is a number; 0 if there is none.
fn number(db: &DB, name: &CStr) -> u64 {
    db.property_int_value(name).ok().flatten().unwrap_or(0)
}

fn level_files(db: &DB, level: usize) -> u64 {
    db.property_value(properties::num_files_at_level(level).as_c_str())
        .ok()
        .flatten()
        .and_then(|files| files.trim().parse().ok())
        .unwrap_or(0)
}

/// Tells whether files in this directory can be opened past the page cache: not on every file system.
fn has_direct_io(directory: &Path) -> Result<bool, BaseError> {
    let path = directory.join("direct-io-probe");
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&path, flags, FileMode::RUSR | FileMode::WUSR);
    // The file may be there even where that failed.
    let _ = std::fs::remove_file(&path);
    match opened {
        Ok(_) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(io_error("opening", &path, error.into())),
    }
}

fn not_opened(error: BaseError) -> OpenError {
    match error {
        BaseError::Full(why) => OpenError::Full(why),
        BaseError::Corrupt(why) | BaseError::Failed(why) => OpenError::Failed(why),
    }
}
