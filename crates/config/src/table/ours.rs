//! Directives that Redis does not have: event loops, durability, the log, the memtable, the base and its caches.

use super::Row;
use super::kinds::*;
use crate::compaction::{check_interval, check_window};
use crate::kind::{Kind, Zero};
use crate::selection::{check_databases, check_slots};

/// The names and numbers of `crate::config::OnLateReplicas`.
const ON_LATE_REPLICAS: &[(&str, u32)] = &[("refuse", 0), ("go-on", 1)];
const REFUSED_COMMANDS: &[(&str, u32)] = &[("stop", 0), ("skip", 1)];
/// How a leader knows that a read misses nothing, and how reads beside it do.
const RAFT_READS: &[(&str, u32)] = &[("index", 0), ("lease", 1)];
const RAFT_USERS: &[(&str, u32)] = &[("own", 0), ("group", 1)];
const FOLLOWER_READS: &[(&str, u32)] = &[("stale", 0), ("linearizable", 1)];
/// The names and numbers of `crate::config::Durability`.
pub(crate) const DURABILITIES: &[(&str, u32)] = &[("os", 0), ("fsync", 1)];
/// The names and numbers of `crate::config::Engine`.
pub(crate) const ENGINES: &[(&str, u32)] = &[("rocksdb", 0), ("memory", 1)];
/// The names and numbers of `crate::config::Compression`.
pub(crate) const COMPRESSIONS: &[(&str, u32)] = &[("lz4", 0), ("zstd", 1), ("none", 2)];

/// The names and numbers of `crate::config::ChangeStream`.
pub(crate) const CHANGE_STREAMS: &[(&str, u32)] = &[("no", 0), ("yes", 1), ("before", 2)];

const MIB: u64 = 1 << 20;

pub(super) const ROWS: &[Row] = &[
    Row::used("workers", int(0, 1024), "0", "Event loops; 0 means one for each core.").immutable().ours().of_pika("thread-num"),
    Row::used("io-pool", unit(1, 1024, "threads"), "16", "Threads that read from disk for commands that miss memory; half as many make long replies, and as many as these run commands that take long.").immutable().ours(),
    Row::used("engine", Kind::Choice(ENGINES), "rocksdb", "Where data lives below the memtable; with `memory` nothing is kept after a stop.").immutable().ours(),
    Row::used(
        "durability",
        Kind::Choice(DURABILITIES),
        "os",
        "When a write is acknowledged: `os` when the operating system has it (it is synced every second), `fsync` when it is on the disk.",
    )
    .ours(),
    Row::used("log-segment-size", Kind::Bytes { min: MIB, max: 2 << 30 }, "64mb", "Size of a file of the log.").immutable().ours().of_pika("binlog-file-size"),
    Row::used("log-retention-size", BYTES, "0", "Bytes of the log to keep beyond what recovery needs.").immutable().ours(),
    Row::used("log-retention-age", unit(0, i64::MAX / 1000, "seconds"), "0", "Age up to which the log is kept within `log-retention-size`; 0 means any age.").immutable().ours(),
    Row::used("replicas-to-ack", COUNT, "0", "Replicas that must have what a reply depends on, as durable as `durability` says, before it leaves; 0 waits for none.").ours().of_pika("consensus-level"),
    Row::used("replicas-to-ack-timeout", unit(0, i64::MAX, "milliseconds"), "10000", "How long replies wait for that; 0 is as long as it takes.").ours(),
    Row::used("replicas-to-ack-on-timeout", Kind::Choice(ON_LATE_REPLICAS), "refuse", "What happens then: with `refuse`, clients that wait are disconnected and writes are refused until the replicas have caught up; with `go-on`, replies do not wait for them meanwhile.").ours(),
    Row::used("replica-log-size", BYTES, "0", "Bytes of the log that are kept for a replica that is behind, at most; 0 means as many as `replica-log-disk-share` says and as leave the disk twice `disk-free-min`. A replica that needs more gets a copy when it comes back.").ours(),
    Row::used("replica-log-disk-share", unit(0, 100, "percent"), "25", "The share of the disk that the log which is kept for one such replica may take; 0 sets no bound by share.").ours(),
    Row::used("replica-refused-commands", Kind::Choice(REFUSED_COMMANDS), "stop", "What becomes of a command of a master that is a Redis, or of its block, where it is refused here: with `stop` nothing behind it runs until it is taken, with `skip` it is left out, and said in the log.").ours(),
    Row::used("replicaof-databases", Kind::Text(check_databases), "\"\"", "The databases of a master that is a Redis whose keys are taken, like `0` or `0,3-5`; empty takes all. Holds from the next connection to the master on; all its data come anew then. A master that is a Haypile is followed as a whole.").ours(),
    Row::used("replicaof-slots", Kind::Text(check_slots), "\"\"", "The slots, as those of Redis Cluster, whose keys are taken of a master that is a Redis, like `0-5460`; empty takes all. Holds from the next connection to the master on; all its data come anew then. A master that is a Haypile is followed as a whole.").ours(),
    Row::used("raft-node-id", unit(0, i64::MAX, "a number"), "0", "This server's number among the members of its Raft group; 0 means that it is in none.").immutable().ours(),
    Row::used("raft-peers", TEXT, "\"\"", "The members with which the group begins, this server included: `1@host:port,2@host:port,…`, the same on each of them.").immutable().ours(),
    Row::used("raft-election-timeout", unit(50, 600_000, "milliseconds"), "1000", "How long members wait for a word of the leader before they elect another one, at least; at most twice as long.").immutable().ours(),
    Row::used("raft-heartbeat-interval", unit(5, 60_000, "milliseconds"), "100", "How often a leader says that it is there; less than half of `raft-election-timeout`.").immutable().ours(),
    Row::used("raft-read", Kind::Choice(RAFT_READS), "index", "How a leader knows that no other one has been elected when it replies to a read: `index` asks a majority each time, for all reads of a moment together; `lease` relies on its own clock and those of the others going alike for an election timeout. The same on all members.").immutable().ours(),
    Row::used("raft-follower-reads", Kind::Choice(FOLLOWER_READS), "stale", "What a client that has said READONLY reads on a member that does not lead: with `stale` what that one has, with `linearizable` all that was acknowledged before, for which it asks the leader.").ours(),
    Row::used("raft-users", Kind::Choice(RAFT_USERS), "own", "Whether users are each member's `own`, as those of the nodes of a Redis Cluster, or the `group`'s: ACL SETUSER and DELUSER run on the leader, and take effect on all members. The same on all members, and not with `aclfile`.").immutable().ours(),
    Row::used("raft-follower-proxy", BOOL, "no", "Whether a member that does not lead hands the connections of its clients on to the leader, instead of telling them by MOVED where that is.").ours(),
    Row::used("flush-log-bytes", bytes(MIB), "256mb", "Bytes of the log that are not in the base yet which start a flush, so that recovery stays short.").ours(),
    Row::used("memtable-size", Kind::BytesOrAuto { min: MIB, zero: Zero::Auto }, "auto", "Bytes at which the memtable is frozen and flushed; `auto` is a share of `maxmemory`.").ours().of_pika("write-buffer-size"),
    Row::used("row-cache-size", Kind::BytesOrAuto { min: MIB, zero: Zero::Off }, "auto", "Bytes of the cache of single rows; `auto` is a share of `maxmemory` and, while `memtable-size` is `auto` too, what the memtable does not use of its own; 0 turns it off.").ours(),
    Row::used("block-cache-size", Kind::BytesOrAuto { min: MIB, zero: Zero::Auto }, "auto", "Bytes of the cache of blocks of the base; `auto` is a share of `maxmemory`.").ours(),
    Row::used("txn-bytes-max", Kind::Bytes { min: MIB, max: 3 << 30 }, "64mb", "Bytes that one command, MULTI block or script may write, the content of new large values not counted.").ours(),
    Row::used("compression", Kind::Choice(COMPRESSIONS), "lz4", "Compression of the base's files.").immutable().ours(),
    Row::used("direct-reads", BOOL, "no", "Reads the base's files past the page cache of the operating system.").immutable().ours(),
    Row::used(
        "blind-set",
        BOOL,
        "no",
        "Lets a plain SET overwrite a key on disk without looking; DBSIZE becomes an estimate.",
    )
    .ours(),
    Row::used(
        "data-file-mode",
        Kind::Octal { always: 0o600, max: 0o644 },
        "600",
        "File mode of the data, the log and backups; who may read them may enter their directories. It holds for what is created from now on.",
    )
    .immutable()
    .ours(),
    Row::used("backups-keep", COUNT, "2", "Backups that are kept in `backups`; when SAVE or BGSAVE has made one more, the oldest goes. 0 keeps all of them.").ours(),
    Row::used("disk-free-min", BYTES, "256mb", "Free disk space below which writes get an error, beside what the next flush needs; a quarter of it, up to 64mb, is held in the file `reserve` for those that cannot make the data larger. 0 checks and reserves nothing.").ours(),
    Row::used("background-io-rate", BYTES, "0", "Bytes a second that compactions write at most; 0 is no bound. Flushes are never held up.").immutable().ours(),
    Row::used("compact-cron", Kind::Text(check_window), "\"\"", "Hours in which a full compaction begins by itself, as COMPACT begins one, and how many percent of the disk have to be free: `02-04/60` every night, `3/02-04/60` on Wednesdays. The hours are those of the system's time zone; what is not done by their end goes on when they come again.").ours(),
    Row::used("compact-interval", Kind::Text(check_interval), "\"\"", "Hours from one full compaction to the next, and how many percent of the disk have to be free: `24/60`. Then `compact-cron` does not count.").ours(),
];

/// Directives of the change stream.
pub(super) const CHANGES: &[Row] = &[
    Row::used("change-stream", Kind::Choice(CHANGE_STREAMS), "no", "Whether each record of the log says what it does, for programs that follow the changes: docs/changes.md. With `before` records have what there was before each change, too.").ours(),
];

/// Directives of the archive.
pub(super) const ARCHIVE: &[Row] = &[
    Row::used("archive-to", TEXT, "\"\"", "Where the log and backups are archived: a directory, or an address like `s3://bucket/path`, `gs://bucket/path` or `az://container/path`; empty archives nothing.").ours(),
    Row::used("archive-options", TEXT, "\"\"", "Options of an object store, `name=value` with spaces between them, like `endpoint=https://…` or `region=…`. What it is logged into with is better given in the environment, under the store's own names (`AWS_ACCESS_KEY_ID`, …).").sensitive().ours(),
    Row::used("archive-key-file", TEXT, "\"\"", "File with the key that encrypts the archive: 64 hexadecimal digits. Empty leaves that to the place.").ours(),
    Row::used("archive-interval", unit(1, 86_400, "seconds"), "60", "How long records wait for others before they are archived, at most.").ours(),
    Row::used("archive-backup-interval", unit(0, 315_360_000, "seconds"), "86400", "How old the newest backup in the archive may be before a master makes another one, at most one in 5 minutes; 0 makes none but the first one and those that are asked for.").ours(),
    Row::used("archive-backups-keep", COUNT, "7", "Backups that are kept in the archive, with the log from the oldest of them on; 0 keeps all.").ours(),
    Row::used("archive-log-size", BYTES, "0", "Bytes of the log that are kept for an archive that does not answer, at most; what is older goes, and leaves a hole in the archive. 0 means no bound: nothing goes before it is archived, and in the end the disk is full.").ours(),
];
