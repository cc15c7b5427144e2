//! The sections `store`, `log`, `cache` and `rocksdb`: what the store's figures mean. The store says which there are.

/// A figure: its name, whether it only grows, and what it tells.
pub(crate) type Figure = (&'static str, Grows, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grows {
    Yes,
    No,
}

use Grows::{No, Yes};

pub(crate) const FIGURES: &[Figure] = &[
    ("memtable_active_bytes", No, "Bytes of the memtable that fills."),
    ("memtable_frozen_bytes", No, "Bytes of the memtable that is being flushed."),
    ("memtable_flushed_bytes", No, "Bytes of a memtable that was flushed and is still read."),
    ("memtable_bytes_max", No, "Bytes at which a memtable is flushed."),
    ("presence_bytes", No, "Bytes of the set that knows which keys exist."),
    ("views_bytes", No, "Bytes that long reads keep."),
    ("dead_spaces", No, "Emptied databases whose space is not reclaimed yet."),
    ("writes_refused", No, "Whether writes are refused, because the disk is short or fails, or memory is."),
    ("disk_reserve_bytes", No, "Bytes of the disk that are held for deletions."),
    ("flush_waits_for_base_us", Yes, "Microseconds in which flushes waited for compactions."),
    ("flushes_completed", Yes, "Flushes."),
    ("flushed_rows", Yes, "Rows that flushes wrote."),
    ("last_flush_us", No, "Microseconds that the last flush took."),
    ("reclaim_jobs", No, "Ranges that wait to be reclaimed."),
    ("reclaimed_ranges", Yes, "Ranges that were reclaimed."),
    ("reclaimed_spaces", Yes, "Emptied databases that were reclaimed."),
    ("dead_object_bytes", No, "Bytes of deleted values that are still in the base."),
    (
        "full_compaction_running",
        No,
        "Whether a full compaction goes on, or is held until its hours come (COMPACT, compact-cron).",
    ),
    ("full_compaction_ranges_left", No, "Ranges of it that are left."),
    ("full_compactions_done", Yes, "Full compactions that have ended."),
    ("full_compactions_failed", Yes, "Full compactions that were given up."),
    ("log_bytes", No, "Bytes of the log on disk."),
    ("log_segments", No, "Files of the log."),
    ("log_unsynced_bytes", No, "Bytes of the log that are not synced."),
    ("log_since_applied_bytes", No, "Bytes of the log that a start replays."),
    ("log_writes", Yes, "Writes to the log."),
    ("log_deferred_writes", Yes, "Writes to the log that another one waited for."),
    ("log_syncs", Yes, "Syncs of the log."),
    ("log_last_sync_us", No, "Microseconds that the last sync took."),
    ("row_cache_bytes", No, "Bytes of the row cache."),
    ("row_cache_bytes_max", No, "Bytes that it may have."),
    ("row_cache_entries", No, "Rows in the row cache."),
    ("row_cache_lent_bytes", No, "Bytes of that which are the memtable's, as long as it does not need them."),
    (
        "base_stretches_bytes",
        No,
        "Bytes of rows of the base that are kept because an object is read there again and again.",
    ),
    ("base_stretches_bytes_max", No, "The bound of that, which is taken from the row cache's."),
    ("base_stretches_hits", Yes, "Reads that found their rows there."),
    ("row_cache_kept_rows", Yes, "Rows that it took over from the memtable, because they were still read."),
    ("row_cache_hits", Yes, "Lookups that the row cache answered."),
    ("row_cache_misses", Yes, "Lookups that it did not."),
    ("block_cache_bytes", No, "Bytes of the cache of blocks."),
    ("block_cache_pinned_bytes", No, "Bytes of blocks in use."),
    ("block_cache_capacity_bytes", No, "Bytes that it may have."),
    ("block_cache_entries", No, "Blocks in the cache."),
    ("trash_bytes", No, "Bytes of files that are being removed."),
    ("index_partitions", No, "Whether new files have partitioned indexes."),
    ("table_readers_bytes", No, "Bytes of indexes and filters outside of the cache."),
    ("sst_bytes", No, "Bytes of all files of the base."),
    ("live_sst_bytes", No, "Bytes of its files in use."),
    ("pending_compaction_bytes", No, "Bytes that compactions have still to read."),
    ("running_compactions", No, "Compactions that run."),
    ("running_flushes", No, "Flushes of RocksDB's own memtable, which is unused."),
    ("level0_files", No, "Files of level 0."),
    ("level1_files", No, "Files of level 1."),
    ("level2_files", No, "Files of level 2."),
    ("level3_files", No, "Files of level 3."),
    ("level4_files", No, "Files of level 4."),
    ("level5_files", No, "Files of level 5."),
    ("level6_files", No, "Files of level 6."),
    ("ingests", Yes, "Ingestions of files that flushes wrote."),
    ("ingested_rows", Yes, "Rows that were ingested."),
    ("ingested_bytes", Yes, "Bytes that were ingested."),
    ("last_ingest_write_us", No, "Microseconds that writing the last files took."),
    ("last_ingest_us", No, "Microseconds that the last ingestion took."),
    ("compactions", Yes, "Compactions."),
    ("compaction_read_bytes", Yes, "Bytes that compactions read."),
    ("compaction_written_bytes", Yes, "Bytes that compactions wrote."),
    ("compaction_read_rows", Yes, "Rows that compactions read."),
    ("compaction_written_rows", Yes, "Rows that compactions wrote."),
    ("compaction_cpu_us", Yes, "Microseconds of processor time of compactions."),
    ("reclaimed_rows", Yes, "Rows without owner that compactions dropped."),
    ("owner_reads", Yes, "Owners that compactions looked for."),
    ("background_errors", Yes, "Errors of background work."),
    ("stalls", Yes, "Times that RocksDB would have stalled writes."),
];

pub(crate) fn figure(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|(known, ..)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_explained_once() {
        for (at, (name, _, about)) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..at].iter().all(|(earlier, ..)| earlier != name), "{name}");
            assert!(about.ends_with('.'), "{name}");
        }
    }
}
