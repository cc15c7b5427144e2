//! The rate at which unneeded files are removed. RocksDB makes trash of them and removes one after the other, at the
//! rate that is set here.

use rust_rocksdb::SstFileManager;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The highest rate, however much trash there is: the disk is left to others.
const BYTES_PER_S_MAX: u64 = 1 << 30;

/// The seconds in which the trash of one moment is gone, as long as the highest rate allows.
const SECONDS: u64 = 30;

pub(crate) struct Removal {
    manager: SstFileManager,
    bytes_per_s_min: u64,
    /// The rate set; 0 for at once.
    bytes_per_s: AtomicU64,
}

impl Removal {
    pub(crate) fn new(bytes_per_s_min: u64) -> Removal {
        let manager = SstFileManager::new();
        // RocksDB would remove files at once when trash is a large part of all bytes that it knows of; flushes' files
        // are not among these before the next open.
        manager.set_max_trash_db_ratio(f64::INFINITY);
        let removal = Removal { manager, bytes_per_s_min, bytes_per_s: AtomicU64::new(0) };
        removal.pace(false);
        removal
    }

    pub(crate) fn manager(&self) -> &SstFileManager {
        &self.manager
    }

    /// Returns the bytes of files that are still to be removed.
    pub(crate) fn trash_bytes(&self) -> u64 {
        self.manager.get_total_trash_size()
    }

    /// Has the trash removed at once, and waits until it is gone, but not for long.
    pub(crate) fn finish(&self) {
        /// The longest wait: what is left then is left to the next open.
        const PATIENCE: Duration = Duration::from_secs(10);
        self.pace(true);
        let begun = Instant::now();
        // RocksDB tells nobody when it has removed a file. Nothing runs on the base yet.
        while self.trash_bytes() > 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sets the rate by the trash of this moment.
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
