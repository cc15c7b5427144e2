//! The server's addresses, and the bounds of its clients.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;
use crate::special::Special;

pub(super) const ROWS: &[Row] = &[
    Row::used("port", PORT, "6379", "TCP port; 0 means no TCP."),
    Row::used(
        "bind",
        Kind::Special(Special::Bind),
        "* -::*",
        "Addresses to listen on; one with a leading `-` may be missing, `\"\"` means no TCP.",
    ),
    Row::used("unixsocket", TEXT, "\"\"", "Path of a unix socket to listen on as well, relative to `dir`.").immutable(),
    Row::used(
        "unixsocketperm",
        Kind::Octal { always: 0, max: 0o777 },
        "0",
        "File mode of the unix socket; 0 leaves what `data-file-mode` gives: only who owns the process may connect.",
    )
    .immutable(),
    Row::used("tcp-backlog", COUNT, "511", "Length of the queue of connections that are not accepted yet.").immutable(),
    Row::used("tcp-keepalive", SECONDS, "300", "Idle time after which TCP probes a connection; 0 means never."),
    Row::used("timeout", SECONDS, "0", "Idle time after which a client is closed; 0 means never."),
    Row::used(
        "maxclients",
        int(1, u32::MAX as i64),
        "10000",
        "Clients at a time; one more gets an error and is closed.",
    ),
    Row::used("protected-mode", BOOL, "yes", "Without a password, refuses clients from other hosts."),
    Row::used(
        "client-query-buffer-limit",
        bytes(1 << 20),
        "1gb",
        "Bytes of commands that a client may have sent ahead; above it is closed.",
    )
    .of_pika("max-conn-rbuf-size"),
    Row::used("proto-max-bulk-len", bytes(1 << 20), "512mb", "Longest single argument."),
    Row::used(
        "client-output-buffer-limit",
        Kind::Special(Special::OutputBufferLimit),
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
        "Per class of clients: bytes of pending replies above which a client is closed at once, and those above which it is closed after so many seconds.",
    ),
    Row::used(
        "maxmemory-clients",
        Kind::BytesOrPercent,
        "50%",
        "Bytes that all clients' requests, replies, messages and subscriptions may take together, beside `maxmemory`, or a share of it, which is at least 32 MB; above it the clients with most are closed, those that read last. 0 is no bound.",
    ),
    Row::used(
        "bind-source-addr",
        TEXT,
        "\"\"",
        "Address of this host from which connections to masters and to members of the group come, from the next one on; `\"\"` is any, as is one that this host does not have.",
    ),
    Row::harmless("socket-mark-id", int(0, u32::MAX as i64), "0", "Mark on sockets for packet filters.").immutable(),
];
