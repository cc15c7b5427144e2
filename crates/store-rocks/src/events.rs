//! What RocksDB tells about its background work: errors, stalls, what compactions cost. Called from RocksDB's threads;
//! keeps numbers and one error, never calls back into the database.

use crate::error::base_error;
use haypile_store::base::BaseError;
use parking_lot::Mutex;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, DBWriteStallCondition, EventListener,
    MutableStatus, WriteStallInfo,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thread_priority::{ThreadPriority, ThreadPriorityValue, set_current_thread_priority};

/// Counted since open.
#[derive(Default)]
pub(crate) struct Events {
    error: Mutex<Option<BaseError>>,
    pub(crate) background_errors: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_read_bytes: AtomicU64,
    pub(crate) compaction_written_bytes: AtomicU64,
    pub(crate) compaction_read_rows: AtomicU64,
    pub(crate) compaction_written_rows: AtomicU64,
    pub(crate) compaction_cpu_us: AtomicU64,
}

impl Events {
    /// The error that stands, if any.
    pub(crate) fn error(&self) -> Option<BaseError> {
        self.error.lock().clone()
    }

    pub(crate) fn clear_error(&self) {
        *self.error.lock() = None;
    }
}

/// The listener that RocksDB owns.
pub(crate) struct Listener(pub(crate) Arc<Events>);

/// Of 99, for niceness 15; a thread that says nothing has 48.
const COMPACTION_PRIORITY: u8 = 10;

/// Has this thread, one of RocksDB's own, take what is left of a core. It runs on and on, while who reads a row needs
/// the core for a moment and often; those have the same niceness (`engine::pool`). Not more: beside hot reads that keep
/// all cores busy, a compaction took ten to thirty seconds instead of less than ten, and 19 weighs less than half of
/// 15.
fn stand_back() {
    let priority = ThreadPriorityValue::try_from(COMPACTION_PRIORITY);
    let set = priority.map_or(Ok(()), |priority| set_current_thread_priority(ThreadPriority::Crossplatform(priority)));
    if let Err(why) = set {
        tracing::debug!("a compaction keeps its priority: {why}");
    }
}

impl EventListener for Listener {
    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        stand_back();
    }

    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        let events = &self.0;
        events.compactions.fetch_add(1, Ordering::Relaxed);
        events.compaction_read_bytes.fetch_add(job.total_input_bytes(), Ordering::Relaxed);
        events.compaction_written_bytes.fetch_add(job.total_output_bytes(), Ordering::Relaxed);
        events.compaction_read_rows.fetch_add(job.input_records(), Ordering::Relaxed);
        events.compaction_written_rows.fetch_add(job.output_records(), Ordering::Relaxed);
        events.compaction_cpu_us.fetch_add(job.stats().cpu_micros(), Ordering::Relaxed);
    }

    fn on_stall_conditions_changed(&self, stall: &WriteStallInfo) {
        // Nothing is written through RocksDB's memtable, so that a stall delays nobody; it tells that compaction lags.
        if !matches!(stall.cur(), DBWriteStallCondition::KNormal) {
            self.0.stalls.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        if let Err(error) = status.result() {
            tracing::error!(?reason, %error, severity = ?status.severity(), "background work of the base failed");
            self.0.background_errors.fetch_add(1, Ordering::Relaxed);
            *self.0.error.lock() = Some(base_error(error.clone()));
        }
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
