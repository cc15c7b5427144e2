//! Memory, and the directives by which Redis is told how to keep data.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;
use crate::special::Special;

const POLICIES: &[(&str, u32)] = &[
    ("volatile-lru", 1),
    ("volatile-lfu", 2),
    ("volatile-random", 3),
    ("volatile-ttl", 4),
    ("allkeys-lru", 5),
    ("allkeys-lfu", 6),
    ("allkeys-random", 7),
    ("noeviction", 0),
];
/// The choices of `appendfsync`; `always` is the one that matters.
pub(crate) const APPENDFSYNC: &[(&str, u32)] = &[("everysec", 0), ("always", 1), ("no", 2)];

pub(super) const MEMORY: &[Row] = &[
    Row::used(
        "maxmemory",
        Kind::Bytes { min: 0, max: u64::MAX },
        "0",
        "Memory budget for memtables and caches; 0 means half of what the machine or the cgroup has, and what is above all of that counts as all of it. It does not bound the data. The share of the presence set changes with the next start only.",
    ),
    Row::used(
        "maxmemory-policy",
        Kind::Choice(POLICIES),
        "noeviction",
        "Nothing is evicted, since cold data is on disk; with an LFU policy, OBJECT FREQ counts instead of OBJECT IDLETIME.",
    ),
    Row::harmless("maxmemory-samples", int(1, INT_MAX), "5", "Keys that an eviction looks at."),
    Row::harmless("maxmemory-eviction-tenacity", int(0, 100), "10", "Effort of an eviction."),
    Row::used("lfu-log-factor", COUNT, "10", "How slowly the counters of OBJECT FREQ grow."),
    Row::used(
        "lfu-decay-time",
        unit(0, INT_MAX, "minutes"),
        "1",
        "In so many minutes without a use, a counter of OBJECT FREQ falls by one; 0 is never.",
    ),
    Row::harmless(
        "lazyfree-lazy-eviction",
        BOOL,
        "no",
        "Frees evicted keys in the background; removing a key is cheap here, whatever its size.",
    ),
    Row::harmless("lazyfree-lazy-expire", BOOL, "no", "Frees expired keys in the background."),
    Row::harmless("lazyfree-lazy-server-del", BOOL, "no", "Frees overwritten keys in the background."),
    Row::harmless("lazyfree-lazy-user-del", BOOL, "no", "Lets DEL work as UNLINK; both cost the same here."),
    Row::harmless(
        "lazyfree-lazy-user-flush",
        BOOL,
        "no",
        "Lets FLUSHALL work as FLUSHALL ASYNC; both cost the same here.",
    ),
    Row::harmless("activedefrag", BOOL, "no", "Defragments memory in the background."),
    Row::harmless("active-defrag-ignore-bytes", bytes(1), "100mb", "Waste below which nothing is defragmented."),
    Row::harmless(
        "active-defrag-threshold-lower",
        unit(0, 1000, "percent"),
        "10",
        "Waste below which nothing is defragmented.",
    ),
    Row::harmless(
        "active-defrag-threshold-upper",
        unit(0, 1000, "percent"),
        "100",
        "Waste above which most effort is made.",
    ),
    Row::harmless("active-defrag-cycle-min", unit(1, 99, "percent"), "1", "Least effort of defragmentation."),
    Row::harmless("active-defrag-cycle-max", unit(1, 99, "percent"), "25", "Most effort of defragmentation."),
    Row::harmless(
        "active-defrag-max-scan-fields",
        int(1, i64::MAX),
        "1000",
        "Fields above which a key is defragmented by itself.",
    ),
    Row::harmless("jemalloc-bg-thread", BOOL, "yes", "Lets the allocator return memory in the background."),
];

pub(super) const PERSISTENCE: &[Row] = &[
    Row::used(
        "appendfsync",
        Kind::Choice(APPENDFSYNC),
        "everysec",
        "Another way to say `durability`: `always` is `fsync`, `everysec` and `no` are `os`; the last one given counts.",
    ),
    Row::harmless("appendonly", BOOL, "no", "Keeps a log of commands; Haypile always keeps its log."),
    Row::harmless(
        "save",
        Kind::Special(Special::Save),
        "3600 1 300 100 60 10000",
        "When to write a snapshot; Haypile keeps all data on disk at all times, and makes a backup when SAVE or BGSAVE asks for one.",
    ),
    Row::harmless("dbfilename", Kind::Text(db_filename), "dump.rdb", "Name of the snapshot.").protected(),
    Row::harmless("appendfilename", Kind::Text(aof_filename), "appendonly.aof", "Name of the log of commands.")
        .immutable(),
    Row::harmless("appenddirname", Kind::Text(aof_dirname), "appendonlydir", "Directory of the log of commands.")
        .immutable(),
    Row::harmless("no-appendfsync-on-rewrite", BOOL, "no", "Does not sync while a snapshot is written."),
    Row::harmless(
        "auto-aof-rewrite-percentage",
        unit(0, INT_MAX, "percent"),
        "100",
        "Growth after which the log of commands is rewritten.",
    ),
    Row::harmless("auto-aof-rewrite-min-size", BYTES, "64mb", "Size below which the log of commands is not rewritten."),
    Row::harmless(
        "aof-load-truncated",
        BOOL,
        "yes",
        "Starts with a log whose end is torn; Haypile ends its log at the last whole record, and refuses one with damage before it.",
    ),
    Row::harmless("aof-use-rdb-preamble", BOOL, "yes", "Begins the log of commands with a snapshot."),
    Row::harmless(
        "aof-timestamp-enabled",
        BOOL,
        "no",
        "Writes times into the log of commands; each record of Haypile's has one.",
    ),
    Row::harmless("aof-disable-auto-gc", BOOL, "no", "Keeps old logs of commands."),
    Row::harmless("aof-rewrite-incremental-fsync", BOOL, "yes", "Syncs often while the log of commands is rewritten."),
    Row::harmless("rdb-save-incremental-fsync", BOOL, "yes", "Syncs often while a snapshot is written."),
    Row::harmless("rdbcompression", BOOL, "yes", "Compresses strings in snapshots."),
    Row::harmless("rdbchecksum", BOOL, "yes", "Ends a snapshot with a checksum.").immutable(),
    Row::harmless("rdb-del-sync-files", BOOL, "no", "Removes the snapshots of replication."),
    Row::harmless("rdb-key-save-delay", int(INT_MIN, INT_MAX), "0", "For tests of Redis.").hidden(),
    Row::harmless("key-load-delay", int(INT_MIN, INT_MAX), "0", "For tests of Redis.").hidden(),
    Row::harmless("loading-process-events-interval-bytes", int(1024, INT_MAX), "2097152", "For tests of Redis.")
        .hidden(),
    Row::harmless(
        "stop-writes-on-bgsave-error",
        BOOL,
        "yes",
        "Stops writes when a snapshot fails; Haypile stops them when its log or its flush fails.",
    ),
    Row::harmless(
        "sanitize-dump-payload",
        Kind::Choice(&[("no", 0), ("yes", 1), ("clients", 2)]),
        "no",
        "How deeply RESTORE checks its input.",
    ),
];

fn base_name(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, b'/' | b'\\'))
}

fn db_filename(name: &[u8]) -> Result<(), &'static str> {
    if base_name(name) { Ok(()) } else { Err("dbfilename can't be a path, just a filename") }
}

fn aof_filename(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("appendfilename can't be empty"),
        name if !base_name(name) => Err("appendfilename can't be a path, just a filename"),
        _ => Ok(()),
    }
}

fn aof_dirname(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("appenddirname can't be empty"),
        name if !base_name(name) => Err("appenddirname can't be a path, just a dirname"),
        _ => Ok(()),
    }
}
