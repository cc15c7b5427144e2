//! Numbers of a log, for INFO and metrics.

use crate::format::Index;
use crate::log::Log;

/// Numbers for INFO and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes on the disk: all segments, and the spare.
    pub bytes: u64,
    pub segments: u64,
    /// A segment with allocated space waits for its turn.
    pub has_spare: bool,
    /// Bytes in memory that are not synced yet.
    pub unsynced_bytes: u64,
    /// Bytes of segments that hold records above the applied index last given to `purge`.
    pub since_applied_bytes: u64,
    /// Groups written.
    pub writes: u64,
    /// Rounds of the writer thread.
    pub deferred_writes: u64,
    pub syncs: u64,
    pub last_sync_us: u64,
    /// Times that unsynced records went to a new segment, the first segment after open included.
    pub recoveries: u64,
    /// The failure that led to the newest recovery.
    pub last_failure: Option<String>,
    /// Index of the first record that is still kept.
    pub first: Index,
}

impl Log {
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        let spare_bytes = state.spare.as_ref().map_or(0, |spare| spare.bytes);
        let counters = &state.counters;
        Stats {
            bytes: state.segments.iter().map(|held| held.bytes).sum::<u64>() + spare_bytes,
            segments: state.segments.len() as u64,
            has_spare: state.spare.is_some(),
            unsynced_bytes: self.shared.budget.charged().saturating_sub(state.synced_charge),
            since_applied_bytes: state.bytes_since_applied(),
            writes: counters.writes,
            deferred_writes: counters.deferred_writes,
            syncs: counters.syncs,
            last_sync_us: counters.last_sync_us,
            recoveries: counters.recoveries,
            last_failure: counters.last_failure.clone(),
            first: state.segments.first().map_or(state.written.next(), |held| held.first),
        }
    }

    /// Returns about how many bytes of the log are behind this record. Records of one segment count as equally long.
    pub fn bytes_after(&self, after: Index) -> u64 {
        let state = self.shared.state.lock();
        let behind = |held: &crate::segment::Held| {
            let records = (held.last.0 + 1).saturating_sub(held.first.0);
            let lacking = held.last.0.saturating_sub(after.0).min(records);
            (u128::from(held.end.min(held.bytes)) * u128::from(lacking)).checked_div(u128::from(records)).unwrap_or(0)
        };
        state.segments.iter().map(behind).sum::<u128>() as u64
    }

    /// Returns how long the slowest sync since the last call took.
    pub fn take_slowest_sync_us(&self) -> u64 {
        std::mem::take(&mut self.shared.state.lock().counters.slowest_sync_us)
    }
}
