//! Events of RocksDB's background work: errors, stalls, costs of compactions. Called from RocksDB's threads; keeps
//! numbers and one error, never calls back into the database.

use crate::error::base_error;
use crate::level0::Level0;
use haypile_store::base::BaseError;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, DBWriteStallCondition, EventListener,
    MutableStatus, StatusSeverity, WriteStallInfo,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thread_priority::{ThreadPriority, ThreadPriorityValue, set_current_thread_priority};

/// Counts since open.
#[derive(Default)]
pub(crate) struct Events {
    error: Mutex<Option<BaseError>>,
    /// The error of the last compaction that ended for want of room; none when one has ended well since.
    short: Mutex<Option<BaseError>>,
    pub(crate) background_errors: AtomicU64,
    /// Compactions that found no room, and what the last of them would have read.
    pub(crate) shortages: AtomicU64,
    pub(crate) short_bytes: AtomicU64,
    pub(crate) level0: Level0,
    pub(crate) stalls: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_read_bytes: AtomicU64,
    pub(crate) compaction_written_bytes: AtomicU64,
    pub(crate) compaction_read_rows: AtomicU64,
    pub(crate) compaction_written_rows: AtomicU64,
    pub(crate) compaction_cpu_us: AtomicU64,
}

impl Events {
    /// Returns the error that stands, if any.
    pub(crate) fn error(&self) -> Option<BaseError> {
        self.error.lock().clone()
    }

    pub(crate) fn clear_error(&self) {
        *self.error.lock() = None;
    }

    /// Returns the reason why compactions find no room, if the last one did not.
    pub(crate) fn short_of_room(&self) -> Option<BaseError> {
        self.short.lock().clone()
    }

    fn on_short_of_room(&self, error: BaseError) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
        let was_short = self.short.lock().replace(error.clone()).is_some();
        if !was_short {
            tracing::warn!("a compaction of the base found no room: {error}");
        }
    }
}

/// Bytes of the files that a compaction reads.
fn input_bytes(job: &CompactionJobInfo) -> u64 {
    let paths = (0..job.input_file_count()).filter_map(|at| job.input_file_at(at));
    paths.filter_map(|path| std::fs::metadata(OsStr::from_bytes(path)).ok()).map(|file| file.len()).sum()
}

/// The listener that RocksDB owns.
pub(crate) struct Listener(pub(crate) Arc<Events>);

/// The priority of compactions, of 99, for niceness 15; the default is 48.
const COMPACTION_PRIORITY: u8 = 10;

/// Gives this thread, one of RocksDB's own, only the rest of a core. A compaction runs long, while a thread that reads
/// a row needs the core for a moment and often, and goes first (`engine::run::pool`). A higher niceness would starve
/// compactions beside hot reads that keep all cores busy.
fn stand_back() {
    let priority = ThreadPriorityValue::try_from(COMPACTION_PRIORITY);
    let set = priority.map_or(Ok(()), |priority| set_current_thread_priority(ThreadPriority::Crossplatform(priority)));
    if let Err(why) = set {
        tracing::debug!("a compaction keeps its priority: {why}");
    }
}

impl EventListener for Listener {
    fn on_compaction_begin(&self, job: &CompactionJobInfo) {
        if job.base_input_level() == 0 {
            self.0.level0.on_begin(input_bytes(job));
        }
        stand_back();
    }

    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        let events = &self.0;
        if job.base_input_level() == 0 {
            events.level0.on_end(job.status().is_ok());
        }
        match job.status() {
            Ok(()) => *events.short.lock() = None,
            // Before anybody is told why.
            Err(_) => events.short_bytes.store(input_bytes(job), Ordering::Relaxed),
        }
        events.compactions.fetch_add(1, Ordering::Relaxed);
        events.compaction_read_bytes.fetch_add(job.total_input_bytes(), Ordering::Relaxed);
        events.compaction_written_bytes.fetch_add(job.total_output_bytes(), Ordering::Relaxed);
        events.compaction_read_rows.fetch_add(job.input_records(), Ordering::Relaxed);
        events.compaction_written_rows.fetch_add(job.output_records(), Ordering::Relaxed);
        events.compaction_cpu_us.fetch_add(job.stats().cpu_micros(), Ordering::Relaxed);
    }

    fn on_stall_conditions_changed(&self, stall: &WriteStallInfo) {
        // Nothing is written through RocksDB's memtable, so that a stall delays no writer; a stall shows that
        // compaction lags.
        if !matches!(stall.cur(), DBWriteStallCondition::KNormal) {
            self.0.stalls.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        let Err(why) = status.result() else { return };
        self.0.background_errors.fetch_add(1, Ordering::Relaxed);
        let error = base_error(why.clone());
        if matches!((reason, status.severity()), (DBBackgroundErrorReason::KCompaction, StatusSeverity::KSoftError))
            && matches!(error, BaseError::Full(_))
        {
            // Nothing has changed. RocksDB would remember the error, and silently begin no compaction until there is
            // room for all that this one read. Where only a compaction makes room, that is never, so RocksDB is told to
            // forget the error; `Rocks` decides when compactions begin again.
            status.reset();
            return self.0.on_short_of_room(error);
        }
        tracing::error!(?reason, error = %why, severity = ?status.severity(), "background work of the base failed");
        *self.0.error.lock() = Some(error);
    }

    fn on_error_recovery_end(&self, recovery: &BackgroundErrorRecoveryInfo) {
        match recovery.new_bg_error().result() {
            Ok(()) => {
                tracing::info!("background work of the base goes on");
                self.0.clear_error();
            }
            Err(error) => *self.0.error.lock() = Some(base_error(error.clone())),
        }
    }
}
