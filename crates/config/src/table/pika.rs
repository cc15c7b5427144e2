//! The settings of Pika that have no directive here, with what takes their place: an error names it, and docs/pika.md
//! has all of them.

/// Settings of pika.conf up to version 4.0, each with what is to be used instead.
pub const INSTEAD: &[(&str, &str)] = &[
    // Threads.
    ("thread-pool-size", WORKERS),
    ("slow-cmd-pool", WORKERS),
    ("slow-cmd-thread-pool-size", WORKERS),
    ("slow-cmd-list", WORKERS),
    ("admin-thread-pool-size", WORKERS),
    ("admin-cmd-list", WORKERS),
    ("rtc-cache-read", WORKERS),
    ("sync-thread-num", REPLICATION),
    ("sync-binlog-thread-num", REPLICATION),
    ("sync-buffer-size", REPLICATION),
    // Files.
    ("db-path", "all data are below `dir`"),
    ("log-path", "all data are below `dir`, the log of writes too; `logfile` is the log for people"),
    ("db-sync-path", "all data are below `dir`"),
    ("dump-path", "backups are in `backups` below `dir`"),
    ("dump-prefix", "a backup is named by its time"),
    ("dump-expire", "`backups-keep` is how many backups are kept"),
    ("log-level", "`loglevel` is debug, verbose, notice or warning"),
    ("log-retention-time", "logrotate, or the journal, keeps `logfile` short"),
    ("log-net-activities", "`loglevel verbose`"),
    // Who may do what.
    ("userpass", USERS),
    ("userblacklist", USERS),
    ("root-connection-num", "`maxclients` holds for everybody; a user may have `connections=`"),
    ("slowlog-write-errorlog", "SLOWLOG GET shows the slow log, `slowlog-max-len` is how much of it is kept"),
    (
        "max-client-response-size",
        "`client-output-buffer-limit` bounds replies, `maxmemory-clients` those of all clients",
    ),
    // The log of writes, and replication.
    ("write-binlog", "there is always a log; `durability` says when it is synced"),
    ("expire-logs-days", RETENTION),
    ("expire-logs-nums", RETENTION),
    ("max-total-wal-size", "`flush-log-bytes`"),
    ("db-sync-speed", REPLICATION),
    ("throttle-bytes-per-second", REPLICATION),
    ("rsync-timeout-ms", "`repl-timeout`"),
    ("max-rsync-parallel-num", REPLICATION),
    ("sync-window-size", REPLICATION),
    ("replication-num", "`raft-peers` names the members of a group; replicas need not be counted"),
    ("replication-id", "the data directory remembers its history by itself"),
    ("run-id", "every start makes one"),
    ("master-run-id", "the data directory remembers its history by itself"),
    ("server-id", "the data directory remembers its history by itself"),
    ("identify-binlog-type", "versions say to each other what they speak"),
    ("double-master-ip", DOUBLE_MASTER),
    ("double-master-port", DOUBLE_MASTER),
    ("double-master-sid", DOUBLE_MASTER),
    ("double-master-server-id", DOUBLE_MASTER),
    ("network-interface", "`replica-announce-ip`"),
    ("internal-used-unfinished-full-sync", "the data directory knows it"),
    // Databases and slots.
    ("instance-mode", "there are `databases` databases"),
    ("default-slot-num", SLOTS),
    ("slotmigrate", SLOTS),
    ("slotmigrate-thread-num", SLOTS),
    ("thread-migrate-keys-num", SLOTS),
    ("db-instance-num", "there is one base, whose compactions go on beside each other"),
    // Compactions.
    ("disable_auto_compactions", COMPACTIONS),
    ("max-subcompactions", COMPACTIONS),
    ("max-background-flushes", COMPACTIONS),
    ("max-background-compactions", COMPACTIONS),
    ("max-background-jobs", COMPACTIONS),
    ("max-compaction-bytes", COMPACTIONS),
    ("max-cache-statistic-keys", COMPACTIONS),
    ("small-compaction-threshold", COMPACTIONS),
    ("small-compaction-duration-threshold", COMPACTIONS),
    ("compaction-strategy", COMPACTIONS),
    ("rocksdb-ttl-second", COMPACTIONS),
    ("rocksdb-periodic-second", COMPACTIONS),
    ("delayed-write-rate", "writes are slowed down by how far the flush is behind"),
    ("rate-limiter-mode", RATE),
    ("rate-limiter-bandwidth", RATE),
    ("rate-limiter-refill-period-us", RATE),
    ("rate-limiter-fairness", RATE),
    ("rate-limiter-auto-tuned", RATE),
    // The base and memory.
    ("arena-block-size", BASE),
    ("target-file-size-base", BASE),
    ("max-bytes-for-level-multiplier", BASE),
    ("level0-stop-writes-trigger", BASE),
    ("level0-slowdown-writes-trigger", BASE),
    ("level0-file-num-compaction-trigger", BASE),
    ("min-write-buffer-number-to-merge", BASE),
    ("max-write-buffer-num", BASE),
    ("compression_per_level", "`compression` is of all levels"),
    ("max-cache-files", "the limit of open files (`ulimit -n`) is what counts"),
    ("block-size", BASE),
    ("num-shard-bits", BASE),
    ("share-block-cache", BASE),
    ("enable-partitioned-index-filters", BASE),
    ("cache-index-and-filter-blocks", BASE),
    ("pin_l0_filter_and_index_blocks_in_cache", BASE),
    ("optimize-filters-for-hits", BASE),
    ("level-compaction-dynamic-level-bytes", BASE),
    ("enable-db-statistics", "INFO rocksdb shows figures of the base"),
    ("db-statistics-level", "INFO rocksdb shows figures of the base"),
    ("enable-blob-files", BLOBS),
    ("min-blob-size", BLOBS),
    ("blob-file-size", BLOBS),
    ("blob-compression-type", BLOBS),
    ("enable-blob-garbage-collection", BLOBS),
    ("blob-garbage-collection-age-cutoff", BLOBS),
    ("blob_garbage_collection_force_threshold", BLOBS),
    ("blob-cache", BLOBS),
    ("blob-num-shard-bits", BLOBS),
    ("block-cache", "`maxmemory` is shared out; `block-cache-size` fixes a part, and 0 stands for a share there"),
    ("max-write-buffer-size", "`maxmemory` is shared out; `memtable-size` fixes a part"),
    ("cache-num", CACHE),
    ("cache-model", CACHE),
    ("cache-type", CACHE),
    ("cache-maxmemory", CACHE),
    ("cache-maxmemory-policy", CACHE),
    ("cache-maxmemory-samples", CACHE),
    ("cache-lfu-decay-time", CACHE),
    ("cache-value-item-max-size", CACHE),
    ("max-key-size-in-cache", CACHE),
    ("zset-cache-field-num-per-key", CACHE),
    ("zset-cache-start-direction", CACHE),
    // A full disk.
    ("min-check-resume-ratio", DISK),
    ("least-free-disk-resume-size", DISK),
    ("manually-resume-interval", DISK),
];

const WORKERS: &str = "`workers` is the number of event loops, `io-pool` that of threads that read from the disk; what is slow goes there by itself";
const REPLICATION: &str = "replication takes what it needs by itself";
const USERS: &str =
    "a line `user`, or ACL SETUSER: `user app on >PASSWORD ~* &* +@all -flushall -shutdown -keys -config`";
const RETENTION: &str =
    "the log goes by itself where the base has what is in it; `log-retention-size` and `log-retention-age` keep more";
const DOUBLE_MASTER: &str = "there is one master; `raft-peers`, or Sentinel, has another one take over";
const SLOTS: &str = "keys are not spread over servers by Codis; MIGRATE moves keys";
const COMPACTIONS: &str = "compactions begin by themselves; COMPACT and `compact-cron` begin a full one";
const RATE: &str = "`background-io-rate` bounds what compactions write";
const BASE: &str = "the base is set for this server";
const BLOBS: &str = "long strings are kept in pieces of their own";
const CACHE: &str = "what is hot is in memory without a second cache; `maxmemory` says how much";
const DISK: &str =
    "`disk-free-min` is when writes are refused, and they are taken again by themselves when there is room";

/// Returns what takes the place of a setting of Pika, in any case.
pub fn instead(name: &[u8]) -> Option<&'static str> {
    INSTEAD.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, instead)| *instead)
}
