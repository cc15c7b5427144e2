//! Figures that the store counts of itself, for INFO and /metrics.

use crate::row::{Family, family_range};
use crate::store::Store;
use std::sync::atomic::Ordering;

impl Store {
    /// Returns the figures for INFO: section, name, value.
    pub fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut figures = self.own_figures();
        figures.extend(self.base_figures().into_iter().map(|(name, value)| ("rocksdb", name, value)));
        figures
    }

    /// Returns the figures of the base alone: may wait for it.
    pub fn base_figures(&self) -> Vec<(&'static str, u64)> {
        self.base.figures()
    }

    /// Returns about how many bytes of the base a database's rows take, by what they are: keys with strings and
    /// collections that are small, elements of what is large, members in the order of their scores, the keys that large
    /// values belong to, and deadlines. Asks the base; what is in memory only is not counted.
    pub fn base_bytes_of(&self, database: u32) -> [(&'static str, u64); 5] {
        let space = self.databases.space(database);
        let bytes = |family| {
            let (from, until) = family_range(family, space);
            self.base.bytes_in(&from, &until)
        };
        [
            ("keys", bytes(Family::Meta)),
            ("elements", bytes(Family::Data)),
            ("scores", bytes(Family::Score)),
            ("owners", bytes(Family::Owner)),
            ("deadlines", bytes(Family::Expire)),
        ]
    }

    /// Returns the figures without the base's; waits for nothing that takes long.
    pub fn own_figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let log = self.log.stats();
        let mut figures = vec![
            ("store", "memtable_active_bytes", self.memtable.active_bytes()),
            ("store", "memtable_frozen_bytes", self.memtable.frozen_bytes()),
            ("store", "memtable_flushed_bytes", self.memtable.flushed_bytes()),
            ("store", "memtable_bytes_max", self.flush.memtable_bytes()),
            ("store", "presence_bytes", self.presence.bytes()),
            ("store", "views_bytes", self.views_bytes.load(Ordering::Relaxed)),
            ("store", "dead_spaces", self.databases.dead_count() as u64),
            ("store", "writes_refused", self.refuses_writes().into()),
            ("store", "disk_reserve_bytes", self.options.reserve.as_ref().map_or(0, |reserve| reserve.held_bytes())),
        ];
        figures.extend(self.flush.figures().map(|(name, value)| ("store", name, value)));
        figures.extend(self.reclaimer.figures().map(|(name, value)| ("store", name, value)));
        figures.extend(log_figures(&log).into_iter().map(|(name, value)| ("log", name, value)));
        figures.push(("cache", "row_cache_lent_bytes", self.lending.lent()));
        figures.extend(self.stretches.figures().map(|(name, value)| ("cache", name, value)));
        figures.extend(self.cache.figures().map(|(name, value)| ("cache", name, value)));
        figures
    }
}

fn log_figures(stats: &haypile_log::Stats) -> [(&'static str, u64); 8] {
    [
        ("log_bytes", stats.bytes),
        ("log_segments", stats.segments),
        ("log_unsynced_bytes", stats.unsynced_bytes),
        ("log_since_applied_bytes", stats.since_applied_bytes),
        ("log_writes", stats.writes),
        ("log_deferred_writes", stats.deferred_writes),
        ("log_syncs", stats.syncs),
        ("log_last_sync_us", stats.last_sync_us),
    ]
}
