//! Every setting of RocksDB that differs from its default, with its reason; the figures are in docs/benchmarks-notes.md
//! and in the history of this file.
//!
//! Two sets are made from one `Options`: the database's, and the flush's own for the files it writes
//! (`SstFileWriter` takes the *bottommost* level's compression of the options it is given, else the last level's).

use crate::events::{Events, Listener};
use crate::reclaim::{ReclaimFactory, Reclaimer};
use crate::removal::Removal;
use rust_rocksdb::{
    BlockBasedOptions, BlockBasedPinningTier, Cache, DBCompressionType, DataBlockIndexType, EnvOptions,
    IngestExternalFileOptions, LogLevel, Options as RocksOptions,
};
use std::sync::Arc;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// How blocks are compressed in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

impl Compression {
    fn rocks(self) -> DBCompressionType {
        match self {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Zstd => DBCompressionType::Zstd,
        }
    }
}

/// The settings of its base that the store decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The block cache: data blocks, index and filter partitions.
    pub cache_bytes: u64,
    /// Files that flushes write.
    pub ingest_compression: Compression,
    /// Files that compactions write, the last level excepted.
    pub compression: Compression,
    /// Files of the last level: most of the data.
    pub bottommost_compression: Compression,
    /// Reads pass the page cache by.
    pub direct_reads: bool,
    /// Flushes and compactions pass the page cache by, where the file system can do that.
    pub direct_background: bool,
    /// Threads for compactions.
    pub background_threads: u32,
    /// The upper bound of what compactions write in a second; the limiter tunes itself below it. 0 is no bound.
    pub compaction_bytes_per_s: u64,
    /// The least rate at which unneeded files are removed; higher where there are very many.
    pub removal_bytes_per_s: u64,
    /// Uncompressed bytes of a data block.
    pub block_bytes: u64,
    /// A flush is cut into files of about this size.
    pub ingest_file_bytes: u64,
    /// Files at level 0 with which a compaction into the next level begins while flushes follow each other.
    pub level0_files: u32,
    /// The number of `level0_files` in quiet times, when the cost of reads matters more.
    pub level0_files_quiet: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: 64 * MIB,
            // Writing a flush costs less without compression, and the compaction that follows soon costs no more.
            ingest_compression: Compression::None,
            compression: Compression::Lz4,
            bottommost_compression: Compression::Lz4,
            direct_reads: false,
            // RocksDB's writer of flushed files drops them from the page cache anyway, so that compactions would read
            // them from the disk through a copy; and what compactions write would push out what readers brought there.
            direct_background: true,
            background_threads: 2,
            compaction_bytes_per_s: 0,
            // A compaction's inputs are not removed all at once: where the file system tells the disk so (mount option
            // `discard`), reads would wait for that.
            removal_bytes_per_s: 256 * MIB,
            block_bytes: 8 * KIB,
            ingest_file_bytes: 128 * MIB,
            // More files at level 0 make compactions cheaper for each flushed row, and reads a little dearer.
            level0_files: 16,
            level0_files_quiet: 4,
        }
    }
}

/// The share of the block cache that a compaction reads at once of each of its files. A compaction of level 0 has a
/// buffer of that size for each of some dozens of files, beside the budget.
const READAHEAD_SHARE: u64 = 128;
const READAHEAD_MIN: u64 = 256 * KIB;
const READAHEAD_MAX: u64 = 2 * MIB;

/// Bits of the bloom filters for each row: one absent row in a hundred is looked for in a block.
const BLOOM_BITS: f64 = 10.0;

/// Bits of the bloom filters in the files that flushes write: one absent row in two thousand is looked for in a block,
/// because a lookup passes all files of level 0.
const BLOOM_BITS_FLUSHED: f64 = 16.0;

impl Options {
    /// Returns the settings of the database.
    pub(crate) fn database(
        &self,
        cache: &Cache,
        reclaimer: &Arc<Reclaimer>,
        events: &Arc<Events>,
        removal: &Removal,
    ) -> RocksOptions {
        let mut options = RocksOptions::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&self.table(cache, BLOOM_BITS));

        // Levels: sized from the last one upwards, so that all but a tenth of the data lies in the last level.
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_level_zero_file_num_compaction_trigger(self.level0_files_quiet as i32);
        options.set_max_bytes_for_level_base(u64::from(self.level0_files) * 64 * MIB);
        options.set_target_file_size_base(64 * MIB);
        options.set_compression_type(self.compression.rocks());
        options.set_bottommost_compression_type(self.bottommost_compression.rocks());
        options.set_compaction_filter_factory(ReclaimFactory(reclaimer.clone()));

        options.set_max_background_jobs(self.background_threads.max(1) as i32);
        if self.compaction_bytes_per_s > 0 {
            let rate = i64::try_from(self.compaction_bytes_per_s).unwrap_or(i64::MAX);
            options.set_auto_tuned_ratelimiter(rate, 100_000, 10);
        }
        // Dirty pages leave steadily instead of all at once with the file's sync, which would hold up the log's.
        options.set_bytes_per_sync(MIB);
        options.set_use_direct_reads(self.direct_reads);
        options.set_use_direct_io_for_compaction_reads(self.direct_background);
        options.set_use_direct_io_for_flush_and_compaction(self.direct_background);
        let readahead = (self.cache_bytes / READAHEAD_SHARE).clamp(READAHEAD_MIN, READAHEAD_MAX);
        options.set_compaction_readahead_size(readahead as usize);

        // All files stay open: no table cache lookups, and no opening of files on a read's way.
        options.set_max_open_files(-1);
        options.set_skip_stats_update_on_db_open(true);
        // Background threads take old versions of the file set apart, not the reader that saw them last.
        options.set_avoid_unnecessary_blocking_io(true);

        options.set_sst_file_manager(removal.manager());

        // RocksDB's own memtable stays empty; its nominal size decides up to which file size (times 1.5) level 0 keeps
        // index and filter pinned, and flushes' files must be among those.
        options.set_write_buffer_size(self.ingest_file_bytes as usize);

        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(3);
        options.set_max_log_file_size(8 * MIB as usize);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.add_event_listener(Listener(events.clone()));
        options
    }

    /// Returns the settings of the files that flushes write.
    pub(crate) fn flush_files(&self, cache: &Cache) -> RocksOptions {
        let mut options = RocksOptions::default();
        options.set_block_based_table_factory(&self.table(cache, BLOOM_BITS_FLUSHED));
        options.set_compression_type(self.ingest_compression.rocks());
        options
    }

    pub(crate) fn flush_env(&self) -> EnvOptions {
        let mut env = EnvOptions::default();
        env.set_bytes_per_sync(MIB);
        env.set_use_direct_writes(self.direct_background);
        env
    }

    /// Returns the settings of an ingestion. Each file is linked, not copied: a flush that cannot link fails instead of
    /// writing everything twice.
    pub(crate) fn ingestion(&self) -> IngestExternalFileOptions {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        options.set_failed_move_fall_back_to_copy(false);
        // No snapshots are ever taken, so none asks for sequence numbers where nothing overlaps.
        options.set_snapshot_consistency(false);
        options
    }

    /// Returns the layout of files. `examples/point_reads.rs` measures it: most of a read's cost are cache misses of
    /// the processor.
    fn table(&self, cache: &Cache, bloom_bits: f64) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        // Sizes from 2 to 16 KiB cost the same to read from memory. A small block is less to read from the disk, a
        // large one needs less index.
        table.set_block_size(self.block_bytes as usize);
        // Version 8 strips the keys' common prefix from each block, which a read must then touch too.
        table.set_format_version(7);
        // A hash of the keys in each block, and a key in full every 4 rows, make reads cheaper for a few percent more
        // bytes.
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table.set_block_restart_interval(4);
        // The last level has filters too: they answer whether a plain SET creates a key.
        table.set_bloom_filter(bloom_bits, false);
        table.set_whole_key_filtering(true);
        // Indexes and filters lie in the cache, so that one budget holds all; those of level 0 stay there.
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_unpartitioned_pinning_tier(BlockBasedPinningTier::FlushAndSimilar);
        table.set_partition_pinning_tier(BlockBasedPinningTier::FlushAndSimilar);
        table.set_top_level_index_pinning_tier(BlockBasedPinningTier::All);
        table.set_metadata_block_size(4 * KIB as usize);
        table
    }
}

/// How compactions lay out index and filter of the files that they write. Both kinds are always readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexLayout {
    /// An index and a filter of one block each: a read looks into two blocks fewer, but reads half a MiB when such a
    /// block is not in the cache. For data whose indexes and filters fit the cache.
    Whole,
    /// Indexes and filters in blocks of 4 KiB: only those in use need memory. For larger data.
    Partitioned,
}

/// Bytes of files for each byte of cache, above which indexes and filters no longer fit in a quarter of it: they are a
/// fortieth of the data at the most, with rows of 60 bytes and more.
const PARTITION_ABOVE: u64 = 10;

impl IndexLayout {
    /// Returns the layout for so much data; the one in use stays until the data is half of what would change it.
    pub(crate) fn choose(self, file_bytes: u64, cache_bytes: u64) -> IndexLayout {
        let limit = match self {
            IndexLayout::Whole => cache_bytes.saturating_mul(PARTITION_ABOVE),
            IndexLayout::Partitioned => cache_bytes.saturating_mul(PARTITION_ABOVE / 2),
        };
        if file_bytes > limit { IndexLayout::Partitioned } else { IndexLayout::Whole }
    }

    /// Returns the change of RocksDB's options that makes compactions write this layout from now on.
    pub(crate) fn change(self) -> [(&'static str, &'static str); 1] {
        let table = match self {
            IndexLayout::Whole => "{index_type=kBinarySearch;partition_filters=false}",
            IndexLayout::Partitioned => "{index_type=kTwoLevelIndexSearch;partition_filters=true}",
        };
        [("block_based_table_factory", table)]
    }
}
