//! The room on the disk, and whether writes go on: they stop while the flush of the memtable would find no room, and go
//! on by themselves.

use crate::base::BaseError;
use crate::refusal::Refusal;
use crate::store::Store;

impl Store {
    /// Returns the free bytes of the disk, the reserve among them.
    pub(crate) fn disk_free(&self) -> u64 {
        let held = self.options.reserve.as_ref().map_or(0, |reserve| reserve.held_bytes());
        (self.options.disk_free.0)().map_or(u64::MAX, |free| free.saturating_add(held))
    }

    /// Returns how many free bytes the disk must have for writes: `disk-free-min`, and room for the flush of the
    /// memtable. So a disk that only this store fills never lacks the room for a flush.
    fn disk_demand(&self) -> u64 {
        let least = self.flush.disk_free_min_bytes();
        if least == 0 || self.options.memory_only {
            return least;
        }
        least.saturating_add(self.memtable.active_bytes() + self.memtable.frozen_bytes())
    }

    /// Sets how far the active generation may grow until the next look.
    pub(super) fn bound_active(&self, free: u64) {
        let demand = self.disk_demand();
        let is_bounded = demand > 0 && !self.options.memory_only;
        let more = if is_bounded { free.saturating_sub(demand) } else { u64::MAX };
        self.flush.on_disk(free, self.memtable.active_bytes().saturating_add(more));
    }

    /// Returns the refusal of writes that the disk has no room for.
    pub(crate) fn short_of_disk(&self) -> Refusal {
        let least = self.flush.disk_free_min_bytes();
        let unflushed = self.disk_demand().saturating_sub(least);
        Refusal::DiskShort { free: self.flush.disk_free_bytes(), least, unflushed }
    }

    /// Stops writes while the disk is nearly full, or flushes fail with the memtable full, and lets writes go on
    /// afterwards.
    pub(super) fn look_at_the_disk(&self, failure: Option<&String>) {
        let least = self.flush.disk_free_min_bytes();
        let refused = self.flush.is_log_refusing();
        let log_failure = self.log.failed();
        if let Some(reserve) = &self.options.reserve {
            let beside = self.disk_free().saturating_sub(reserve.held_bytes());
            let needed = failure.is_some() || log_failure.is_some() || refused;
            if reserve.settle(beside, least, needed) {
                self.log.retry();
            }
        }
        let free = self.disk_free();
        let full = self.memtable.active_bytes() > self.flush.memtable_bytes();
        self.bound_active(free);
        let is_short = free < self.disk_demand();
        let stopped = if let Some(missing) = self.watch.missing() {
            Some(Refusal::FilesMissing(missing))
        } else if let Some(failure) = log_failure {
            Some(Refusal::LogFailed(failure))
        } else if let (Some(failure), true) = (failure, full) {
            Some(Refusal::FlushFailed { why: failure.clone(), deletions_go_on: true })
        } else {
            is_short.then(|| self.short_of_disk())
        };
        self.flush.set_crowded(is_short && free >= least);
        self.base.pace_removals(stopped.is_some() || refused);
        self.flush.set_stopped(stopped);
        if self.flush.is_log_to_retry() {
            self.log.retry();
        }
    }

    /// Looks at all files, and stops writes where some are missing; returns the reason.
    pub(crate) fn look_at_files(&self) -> Option<String> {
        if self.options.memory_only {
            // Nothing outlives the process anyway.
            return None;
        }
        let log = self.log.look();
        for path in log.unneeded {
            tracing::warn!("{} was removed while the server runs; it is not needed", path.display());
        }
        let base = self.base.look().err().map(|error: BaseError| error.to_string());
        let missing = log.missing.or(base);
        self.watch.on_look(&missing);
        if let Some(missing) = &missing {
            // The flush thread may be busy for long, and says so itself afterwards.
            self.flush.stop_for(Refusal::FilesMissing(missing.clone()));
            self.flush.demand();
        }
        missing
    }
}
