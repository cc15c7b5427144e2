//! Replicas and clusters. Clusters are not there yet; directives that only tune them do no harm.

use super::Row;
use super::kinds::*;
use crate::kind::{Kind, any_text};
use crate::special::Special;

pub(super) const ROWS: &[Row] = &[
    Row::used("replicaof", Kind::Special(Special::ReplicaOf), "no one", "Follows another server.")
        .alias("slaveof")
        .immutable(),
    Row::used("masterauth", TEXT, "\"\"", "Password for the server to follow.").sensitive(),
    Row::used("masteruser", TEXT, "\"\"", "User for the server to follow.").sensitive(),
    Row::used("min-replicas-to-write", COUNT, "0", "Replicas without which writes are refused.")
        .alias("min-slaves-to-write"),
    Row::used("min-replicas-max-lag", SECONDS, "10", "Lag up to which a replica counts.").alias("min-slaves-max-lag"),
    Row::used("replica-serve-stale-data", BOOL, "yes", "Whether a replica without master answers.")
        .alias("slave-serve-stale-data"),
    Row::harmless(
        "replica-read-only",
        Kind::OnlyYes("a replica takes its master's writes only"),
        "yes",
        "A replica takes its master's writes only: `no` is refused.",
    )
    .alias("slave-read-only"),
    Row::harmless("replica-lazy-flush", BOOL, "no", "Whether a replica empties itself in the background.")
        .alias("slave-lazy-flush"),
    Row::harmless("replica-ignore-maxmemory", BOOL, "yes", "Whether a replica leaves eviction to its master.")
        .alias("slave-ignore-maxmemory"),
    Row::harmless("replica-ignore-disk-write-errors", BOOL, "no", "Whether a replica goes on when it cannot write."),
    Row::used("replica-priority", COUNT, "100", "Rank among replicas for Sentinel.").alias("slave-priority"),
    Row::used("replica-announced", BOOL, "yes", "Whether Sentinel tells of this replica."),
    Row::used("replica-announce-ip", TEXT, "\"\"", "Address that a replica gives for itself.")
        .alias("slave-announce-ip"),
    Row::used("replica-announce-port", PORT, "0", "Port that a replica gives for itself.").alias("slave-announce-port"),
    Row::used(
        "repl-timeout",
        unit(1, INT_MAX, "seconds"),
        "60",
        "Silence after which a connection of replication is given up.",
    ),
    Row::used(
        "repl-ping-replica-period",
        unit(1, INT_MAX, "seconds"),
        "10",
        "Time between pings to a Redis that follows, where nothing else is written; a Haypile hears of its master once a second.",
    )
    .alias("repl-ping-slave-period"),
    Row::harmless("repl-disable-tcp-nodelay", BOOL, "no", "Whether small packets to replicas wait."),
    Row::harmless(
        "repl-backlog-size",
        bytes(1),
        "1mb",
        "Memory from which a replica can catch up; here that is the log, as `log-retention-size` and `replica-log-size` say.",
    ),
    Row::used(
        "repl-backlog-ttl",
        unit(0, i64::MAX, "seconds"),
        "3600",
        "How long the log is kept for a Redis that has followed and may come back; 0 keeps it as long as there is room.",
    ),
    Row::harmless(
        "repl-diskless-sync",
        BOOL,
        "yes",
        "Whether a full sync goes to the socket at once; here files of the base do, without a copy.",
    ),
    Row::harmless("repl-diskless-sync-delay", SECONDS, "5", "How long a full sync waits for more replicas."),
    Row::harmless("repl-diskless-sync-max-replicas", COUNT, "0", "Replicas that a full sync waits for."),
    Row::harmless(
        "repl-diskless-load",
        Kind::Choice(&[("disabled", 0), ("on-empty-db", 1), ("swapdb", 2)]),
        "disabled",
        "Whether a replica loads from the socket at once.",
    ),
    Row::harmless(
        "propagation-error-behavior",
        Kind::Choice(&[("ignore", 0), ("panic", 1), ("panic-on-replicas", 2)]),
        "ignore",
        "What a replica does when a command of its master fails.",
    ),
];

pub(super) const CLUSTER: &[Row] = &[
    Row::not_yet("cluster-enabled", BOOL, "no", "Makes the server a node of a cluster.").immutable(),
    Row::harmless("cluster-config-file", TEXT, "nodes.conf", "File of the cluster's state.").immutable(),
    Row::harmless(
        "cluster-node-timeout",
        unit(0, i64::MAX, "milliseconds"),
        "15000",
        "Silence after which a node counts as failed.",
    ),
    Row::harmless("cluster-ping-interval", int(0, i64::MAX), "1000", "For tests of Redis.").hidden(),
    Row::harmless("cluster-port", PORT, "0", "Port of the cluster's bus.").immutable(),
    Row::harmless("cluster-announce-ip", TEXT, "\"\"", "Address that the node gives for itself."),
    Row::harmless("cluster-announce-port", PORT, "0", "Port that the node gives for itself."),
    Row::harmless("cluster-announce-tls-port", PORT, "0", "TLS port that the node gives for itself."),
    Row::harmless("cluster-announce-bus-port", PORT, "0", "Port of the bus that the node gives for itself."),
    Row::harmless(
        "cluster-announce-hostname",
        Kind::Text(hostname),
        "\"\"",
        "Host name that the node gives for itself.",
    ),
    Row::harmless("cluster-announce-human-nodename", Kind::Text(any_text), "\"\"", "Name of the node for people."),
    Row::harmless(
        "cluster-preferred-endpoint-type",
        Kind::Choice(&[("ip", 0), ("hostname", 1), ("unknown-endpoint", 2)]),
        "ip",
        "What a redirection names.",
    ),
    Row::harmless("cluster-replica-validity-factor", COUNT, "10", "How stale a replica may be to take over.")
        .alias("cluster-slave-validity-factor"),
    Row::harmless("cluster-replica-no-failover", BOOL, "no", "Whether a replica never takes over.")
        .alias("cluster-slave-no-failover"),
    Row::harmless("cluster-migration-barrier", COUNT, "1", "Replicas that a master keeps."),
    Row::harmless("cluster-allow-replica-migration", BOOL, "yes", "Whether replicas change their master."),
    Row::harmless("cluster-require-full-coverage", BOOL, "yes", "Whether a cluster with a hole answers."),
    Row::used(
        "cluster-allow-reads-when-down",
        BOOL,
        "no",
        "Whether a member of a Raft group that knows no leader serves clients that have said READONLY.",
    ),
    Row::harmless(
        "cluster-allow-pubsubshard-when-down",
        BOOL,
        "yes",
        "Whether a node serves sharded channels when the cluster is down.",
    ),
    Row::harmless(
        "cluster-link-sendbuf-limit",
        Kind::Bytes { min: 0, max: u64::MAX },
        "0",
        "Memory of a link of the bus.",
    ),
];

/// Redis's `NET_HOST_STR_LEN`.
const HOSTNAME_BYTES_MAX: usize = 256;

fn hostname(name: &[u8]) -> Result<(), &'static str> {
    if name.len() >= HOSTNAME_BYTES_MAX {
        return Err("Hostnames must be less than 256 characters");
    }
    if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots");
    }
    Ok(())
}
