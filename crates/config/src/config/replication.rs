//! The directives of a server that follows another one, or is followed.

use super::choices::{CHANGE_STREAMS, ChangeStream, ON_LATE_REPLICAS, OnLateReplicas, REFUSED_COMMANDS};
use super::fields::Fields;
use crate::selection::Selection;
use crate::special::master_of;

/// The directives of a server that follows another one, or is followed.
#[derive(Clone, Debug, PartialEq)]
pub struct Replication {
    /// The server to follow: host and port.
    pub replicaof: Option<(String, u16)>,
    /// The address that connections to masters and members come from; empty = any.
    pub source_address: String,
    /// The password for the master; empty if none is given.
    pub masterauth: Vec<u8>,
    /// The user for the master; empty for the default user.
    pub masteruser: Vec<u8>,
    pub timeout_s: u32,
    /// A replica serves what it has while its master is not there.
    pub serves_stale_data: bool,
    /// Good replicas without which writes are refused; 0 = none is needed.
    pub min_replicas: u32,
    /// The time since a good replica acknowledged something, at most; 0 = no replica is needed.
    pub max_lag_s: u32,
    /// Replicas that have what a reply depends on before it leaves; 0 = none is waited for.
    pub replicas_to_ack: u32,
    /// Milliseconds that a record waits for replicas before they are late; 0 for as long as it takes.
    pub ack_timeout_ms: u64,
    pub on_late_replicas: OnLateReplicas,
    /// Bytes of the log for a replica that is behind; 0 = as far as the disk allows.
    pub log_bytes: u64,
    /// The share of the disk that the log for such a replica takes, in per cent; 0 = no bound.
    pub log_disk_share: u32,
    /// The time between pings to a Redis that follows.
    pub ping_s: u32,
    /// How long the log is kept for a Redis that has followed; 0 = for ever.
    pub backlog_ttl_s: u64,
    /// Commands of a Redis that are refused are left out.
    pub skips_refused: bool,
    /// The keys of a Redis that are taken.
    pub selection: Selection,
    /// The words that records have for programs that follow the changes.
    pub change_stream: ChangeStream,
    /// The priority that Sentinel reads.
    pub priority: u32,
    pub announced: bool,
    /// The address that the replica tells its master; empty for the one that the master sees.
    pub announce_ip: String,
    /// The port that the replica tells its master; 0 for `port`.
    pub announce_port: u16,
}

impl Replication {
    pub(super) fn read(fields: &mut Fields) -> Replication {
        Replication {
            replicaof: master_of(fields.value("replicaof")),
            source_address: fields.string("bind-source-addr"),
            masterauth: fields.text("masterauth"),
            masteruser: fields.text("masteruser"),
            min_replicas: fields.int("min-replicas-to-write"),
            max_lag_s: fields.int("min-replicas-max-lag"),
            replicas_to_ack: fields.int("replicas-to-ack"),
            ack_timeout_ms: fields.int("replicas-to-ack-timeout"),
            on_late_replicas: fields.choice("replicas-to-ack-on-timeout", ON_LATE_REPLICAS),
            log_bytes: fields.bytes("replica-log-size"),
            log_disk_share: fields.int("replica-log-disk-share"),
            ping_s: fields.int("repl-ping-replica-period"),
            backlog_ttl_s: fields.int("repl-backlog-ttl"),
            change_stream: fields.choice("change-stream", CHANGE_STREAMS),
            skips_refused: fields.choice("replica-refused-commands", REFUSED_COMMANDS),
            selection: Selection::read(&fields.printed("replicaof-databases"), &fields.printed("replicaof-slots")),
            priority: fields.int("replica-priority"),
            announced: fields.bool("replica-announced"),
            serves_stale_data: fields.bool("replica-serve-stale-data"),
            timeout_s: fields.int("repl-timeout"),
            announce_ip: fields.printed("replica-announce-ip"),
            announce_port: fields.int("replica-announce-port"),
        }
    }
}
