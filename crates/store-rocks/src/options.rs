//! Every setting of RocksDB that differs from its default, with the reason or the measurement beside it.
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

/// What the store may decide about its base.
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
    /// What flushes write and compactions read passes the page cache by, where the file system can do that.
    pub direct_background: bool,
    /// Threads for compactions.
    pub background_threads: u32,
    /// The upper bound of what compactions write in a second; the limiter tunes itself below it. 0 is no bound.
    pub compaction_bytes_per_s: u64,
    /// At least so many bytes of files that nobody needs any more go in a second; more where there are very many.
    pub removal_bytes_per_s: u64,
    /// Uncompressed bytes of a data block.
    pub block_bytes: u64,
    /// A flush is cut into files of about this size.
    pub ingest_file_bytes: u64,
    /// Files at level 0 with which a compaction into the next level begins while flushes follow each other.
    pub level0_files: u32,
    /// The same in quiet times: then reads are what matters.
    pub level0_files_quiet: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: 64 * MIB,
            // Measured with examples/ingest_cost.rs, CPU time per row of 155 bytes: writing a flush costs 180 ns with
            // none and 350 ns with LZ4; the compaction that follows soon costs about 340 ns with either.
            ingest_compression: Compression::None,
            compression: Compression::Lz4,
            bottommost_compression: Compression::Lz4,
            direct_reads: false,
            // SET of 10 KB cost 1.05 of redis-server instead of 1.24: RocksDB's writer of flushed files drops them from
            // the page cache anyway, so that compactions had to read them from the disk through a copy.
            direct_background: true,
            background_threads: 2,
            compaction_bytes_per_s: 0,
            // When a compaction's inputs went all at once, 1.6 GB of them, and the file system told the disk so (mount
            // option `discard`), each read took 5 ms instead of 0.13 for half a second.
            removal_bytes_per_s: 256 * MIB,
            block_bytes: 8 * KIB,
            ingest_file_bytes: 128 * MIB,
            // The same: compactions cost 630 ns for each flushed row with 4, 380 with 8, 310 with 16; a file at level 0
            // costs each read about 100 ns. With rows of 10 KB over 1 GB, 16 instead of 8 made SET 1.19 of redis-server
            // instead of 1.73, in two rounds that differed much.
            level0_files: 16,
            level0_files_quiet: 4,
        }
    }
}

/// What a compaction reads at once of each of its files, for each byte of block cache. A compaction of level 0 has a
/// buffer of that size for each of some dozens of files, beside the budget: with RocksDB's 2 MiB these were 60 MB of
/// 256.
const READAHEAD_SHARE: u64 = 128;
const READAHEAD_MIN: u64 = 256 * KIB;
const READAHEAD_MAX: u64 = 2 * MIB;

/// Bits of the bloom filters for each row: one absent row in a hundred is looked for in a block.
const BLOOM_BITS: f64 = 10.0;

/// The same in the files that flushes write: one in two thousand, because a lookup passes all files of level 0. With 10
/// bits and a dozen files, every eighth SET of a new key read the disk.
const BLOOM_BITS_FLUSHED: f64 = 16.0;

impl Options {
    /// The settings of the database.
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
        let readahead = (self.cache_bytes / READAHEAD_SHARE).clamp(READAHEAD_MIN, READAHEAD_MAX);
        options.set_compaction_readahead_size(readahead as usize);

        // All files stay open: no table cache lookups, and no opening of files on a read's way.
        options.set_max_open_files(-1);
        options.set_skip_stats_update_on_db_open(true);
        // Old versions of the file set are taken apart by background threads, not by a reader that saw them last.
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

    /// The settings of the files that flushes write.
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

    /// One link for each file, no copy: a flush that cannot link fails instead of writing everything twice.
    pub(crate) fn ingestion(&self) -> IngestExternalFileOptions {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        options.set_failed_move_fall_back_to_copy(false);
        // No snapshots are ever taken; so none asks for sequence numbers where nothing overlaps.
        options.set_snapshot_consistency(false);
        options
    }

    /// How files are laid out. Measured with examples/point_reads.rs (1 million rows of 155 bytes, 164 MiB in the
    /// cache, on a busy machine of two cores: differences under a tenth are noise). What a read costs there are cache
    /// misses of the processor: the same read over 100 thousand rows (16 MiB) costs half.
    fn table(&self, cache: &Cache, bloom_bits: f64) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        // 2 to 16 KiB cost the same to read from memory. A small block is less to read from the disk, a large one needs
        // less index: with 8 KiB that of 5 GB takes 15 MB, beside 37 MB of filters.
        table.set_block_size(self.block_bytes as usize);
        // 8 strips the keys' common prefix from each block, which a read must then touch too: 3.26 against 3.10 us.
        table.set_format_version(7);
        // A hash of the keys in each block, and a key in full every 4 rows: 2.97 against 3.45 us, 3 % more bytes.
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table.set_block_restart_interval(4);
        // In the last level too: it answers whether a plain SET creates a key.
        table.set_bloom_filter(bloom_bits, false);
        table.set_whole_key_filtering(true);
        // In the cache, so that one budget holds all; those of level 0 stay there.
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
    /// One block each: a read looks into two blocks fewer (1.34 against 1.81 us over 100 thousand rows), and half a MiB
    /// is read when such a block is not in the cache. For data whose indexes and filters fit the cache.
    Whole,
    /// In blocks of 4 KiB: only those in use need memory. For data beyond that.
    Partitioned,
}

/// Bytes of files for each byte of cache, above which indexes and filters no longer fit in a quarter of it: they are a
/// fortieth of the data at the most, with rows of 60 bytes and more.
const PARTITION_ABOVE: u64 = 10;

impl IndexLayout {
    /// The layout for so much data; the one in use stays until the data is half of what would change it.
    pub(crate) fn choose(self, file_bytes: u64, cache_bytes: u64) -> IndexLayout {
        let limit = match self {
            IndexLayout::Whole => cache_bytes.saturating_mul(PARTITION_ABOVE),
            IndexLayout::Partitioned => cache_bytes.saturating_mul(PARTITION_ABOVE / 2),
        };
        if file_bytes > limit { IndexLayout::Partitioned } else { IndexLayout::Whole }
    }

    /// The change of RocksDB's options that makes compactions write it from now on.
    pub(crate) fn change(self) -> [(&'static str, &'static str); 1] {
        let table = match self {
            IndexLayout::Whole => "{index_type=kBinarySearch;partition_filters=false}",
            IndexLayout::Partitioned => "{index_type=kTwoLevelIndexSearch;partition_filters=true}",
        };
        [("block_based_table_factory", table)]
    }
}
