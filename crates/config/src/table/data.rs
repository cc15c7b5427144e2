//! Encodings of the data types, events, and Redis's measurements.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;
use crate::special::Special;

pub(super) const ROWS: &[Row] = &[
    Row::used(
        "notify-keyspace-events",
        Kind::Special(Special::KeyspaceEvents),
        "\"\"",
        "Classes of events about keys that are published, `K` to channels `__keyspace@<db>__:<key>`, `E` to `__keyevent@<db>__:<event>`.",
    ),
    Row::limit("hash-max-listpack-entries", LONG, "512", "Fields up to which Redis packs a hash.")
        .alias("hash-max-ziplist-entries"),
    Row::limit("hash-max-listpack-value", BYTES, "64", "Length of a field up to which Redis packs a hash.")
        .alias("hash-max-ziplist-value"),
    Row::limit("list-max-listpack-size", int(INT_MIN, INT_MAX), "-2", "Size of a packed part of a list.")
        .alias("list-max-ziplist-size"),
    Row::harmless("list-compress-depth", COUNT, "0", "Parts at the ends of a list that are not compressed."),
    Row::limit("set-max-intset-entries", LONG, "512", "Members up to which Redis packs a set of integers."),
    Row::limit("set-max-listpack-entries", LONG, "128", "Members up to which Redis packs a set."),
    Row::limit("set-max-listpack-value", LONG, "64", "Length of a member up to which Redis packs a set."),
    Row::limit("zset-max-listpack-entries", LONG, "128", "Members up to which Redis packs a sorted set.")
        .alias("zset-max-ziplist-entries"),
    Row::limit("zset-max-listpack-value", BYTES, "64", "Length of a member up to which Redis packs a sorted set.")
        .alias("zset-max-ziplist-value"),
    Row::limit("hll-sparse-max-bytes", BYTES, "3000", "Size up to which a HyperLogLog is sparse."),
    Row::harmless("stream-node-max-bytes", BYTES, "4096", "Size of a node of a stream."),
    Row::limit(
        "stream-node-max-entries",
        LONG,
        "100",
        "Entries of a stream that an approximate trim removes together.",
    ),
    Row::limit(
        "stream-idmp-duration",
        unit(1, 86_400, "seconds"),
        "100",
        "Time for which a stream knows the idempotent ID of an entry, unless XCFGSET says otherwise.",
    ),
    Row::limit(
        "stream-idmp-maxsize",
        int(1, 10_000),
        "100",
        "Idempotent IDs that a stream knows of a producer, unless XCFGSET says otherwise.",
    ),
    Row::harmless(
        "busy-reply-threshold",
        unit(0, i64::MAX, "milliseconds"),
        "5000",
        "Time after which Redis answers BUSY while a script runs; here those who want its keys wait, and the others do \
         not.",
    )
    .alias("lua-time-limit"),
    Row::used(
        "tracking-table-max-keys",
        LONG,
        "1000000",
        "Keys that client-side caching keeps track of, which also take no more than an eighth of `maxmemory`; 0 is no bound \
         of their number.",
    ),
];

pub(super) const MONITORING: &[Row] = &[
    Row::used(
        "slowlog-log-slower-than",
        unit(-1, i64::MAX, "microseconds"),
        "10000",
        "Time from which a command is in the slow log, whatever it waited for included; -1 turns the log off.",
    )
    .alias("commandlog-execution-slower-than"),
    Row::used("slowlog-max-len", LONG, "128", "Entries of the slow log.").alias("commandlog-slow-execution-max-len"),
    Row::used(
        "commandlog-request-larger-than",
        unit(-1, i64::MAX, "bytes"),
        "1048576",
        "Bytes of a request from which COMMANDLOG shows it; -1 for none.",
    )
    .ours(),
    Row::used("commandlog-large-request-max-len", LONG, "128", "Large requests that are kept.").ours(),
    Row::used(
        "commandlog-reply-larger-than",
        unit(-1, i64::MAX, "bytes"),
        "1048576",
        "Bytes of a reply from which COMMANDLOG shows its call; -1 for none.",
    )
    .ours(),
    Row::used("commandlog-large-reply-max-len", LONG, "128", "Calls with large replies that are kept.").ours(),
    Row::used(
        "latency-monitor-threshold",
        unit(0, i64::MAX, "milliseconds"),
        "0",
        "Time from which an event is kept for LATENCY; 0 keeps none.",
    ),
    Row::used("latency-tracking", BOOL, "yes", "Whether the times of commands are kept as histograms."),
    Row::used(
        "latency-tracking-info-percentiles",
        Kind::Special(Special::Percentiles),
        "50 99 99.9",
        "Percentiles of those times that INFO shows.",
    ),
    Row::used(
        "metrics-port",
        PORT,
        "0",
        "Port for Prometheus, on the addresses of `bind`: HTTP, without a password, at /metrics; 0 is none.",
    )
    .immutable()
    .ours(),
    Row::used("metrics-tls", BOOL, "no", "Whether /metrics is served over TLS, with the server's certificate.")
        .immutable()
        .ours(),
];
