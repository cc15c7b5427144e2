//! How fast files go that nobody needs any more. RocksDB makes trash of them and takes one after the other away, at a
//! rate that is set here.

use rust_rocksdb::SstFileManager;
use std::sync::atomic::{AtomicU64, Ordering};

/// However much trash there is, this rate leaves the disk to others.
const BYTES_PER_S_MAX: u64 = 1 << 30;

/// Below that rate, what is trash now is gone in so many seconds.
const SECONDS: u64 = 30;

pub(crate) struct Removal {
    manager: SstFileManager,
    bytes_per_s_min: u64,
    /// 0 for at once.
    bytes_per_s: AtomicU64,
}

impl Removal {
    pub(crate) fn new(bytes_per_s_min: u64) -> Removal {
        let manager = SstFileManager::new();
        // RocksDB would take files away at once when trash is a part of all bytes that it knows of, among which
        // flushes' files are not before the next open.
        manager.set_max_trash_db_ratio(f64::INFINITY);
        let removal = Removal { manager, bytes_per_s_min, bytes_per_s: AtomicU64::new(0) };
        removal.pace(false);
        removal
    }

    pub(crate) fn manager(&self) -> &SstFileManager {
        &self.manager
    }

    /// Bytes of files that are still to go.
    pub(crate) fn trash_bytes(&self) -> u64 {
        self.manager.get_total_trash_size()
    }

    /// Sets the rate by what there is now.
    pub(crate) fn pace(&self, short_of_space: bool) {
        let rate = match short_of_space {
            true => 0,
            false => (self.trash_bytes() / SECONDS).min(BYTES_PER_S_MAX).max(self.bytes_per_s_min),
        };
        if self.bytes_per_s.swap(rate, Ordering::Relaxed) != rate {
            self.manager.set_delete_rate_bytes_per_second(i64::try_from(rate).unwrap_or(i64::MAX));
        }
    }
}
