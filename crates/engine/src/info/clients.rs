//! The section `clients`: who is connected, and what their commands wait for.

use super::field::{Field, constant, gauge};
use haypile_commands::host::ClientType;

pub(super) const FIELDS: &[Field] = &[
    gauge("connected_clients", |engine| engine.connected(), "Clients that are connected."),
    constant("cluster_connections", "0", "There is no cluster yet."),
    gauge("maxclients", |engine| u64::from(engine.settings.config().maxclients), "Clients that may be connected."),
    gauge(
        "client_recent_max_input_buffer",
        |engine| engine.clients.largest(|client| &client.input_bytes),
        "The most bytes of an incomplete request that one client has sent.",
    ),
    gauge(
        "client_recent_max_output_buffer",
        |engine| engine.clients.largest(|client| &client.output_bytes),
        "The most bytes of replies and messages that one client has still to read.",
    ),
    gauge(
        "pubsub_clients",
        |engine| engine.clients.count(|client| client.kind() == ClientType::PubSub),
        "Clients that are subscribed to something.",
    ),
    gauge("monitor_clients", |engine| engine.checks.monitors() as u64, "Clients that are shown all commands."),
    gauge(
        "blocked_clients",
        |engine| (engine.blocked.count() + engine.waiters.count() + engine.checks.held()) as u64,
        "Clients that wait for keys (BLPOP and its relatives), whose reply is held back (WAIT, WAITAOF), or whose command \
         waits for the end of a CLIENT PAUSE.",
    ),
    gauge(
        "tracking_clients",
        |engine| engine.tracking.clients() as u64,
        "Clients that are told of keys that change (CLIENT TRACKING).",
    ),
    constant("clients_in_timeout_table", "0", "Each event loop keeps the times of its own clients."),
    gauge("total_watched_keys", |engine| engine.watches.count() as u64, "Keys that clients watch."),
    gauge("total_blocking_keys", |engine| engine.waiters.keys() as u64, "Keys that clients wait for."),
    gauge(
        "total_blocking_keys_on_nokey",
        |engine| engine.waiters.keys_until_gone() as u64,
        "Keys that clients wait for who are to learn, too, when the key is gone (XREADGROUP).",
    ),
    gauge("commands_waiting_for_locks", |engine| engine.locks.parked() as u64, "Commands that wait for a key's lock."),
    gauge("io_pool_queued", |engine| engine.pool.queued() as u64, "Jobs that wait for a thread of the I/O pool."),
];
