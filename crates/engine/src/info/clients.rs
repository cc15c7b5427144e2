//! The section `clients`: who is connected, and what their commands wait for.

use super::field::{Field, constant, gauge};

const NOT_YET: &str = "Not counted yet.";

pub(super) const FIELDS: &[Field] = &[
    gauge("connected_clients", |engine| engine.connected(), "Clients that are connected."),
    constant("cluster_connections", "0", "There is no cluster yet."),
    gauge("maxclients", |engine| u64::from(engine.settings.config().maxclients), "Clients that may be connected."),
    // To be counted by the registry of clients.
    constant("client_recent_max_input_buffer", "0", NOT_YET),
    constant("client_recent_max_output_buffer", "0", NOT_YET),
    gauge(
        "blocked_clients",
        |engine| engine.blocked.count() as u64,
        "Clients whose reply is held back: WAIT, WAITAOF.",
    ),
    constant("tracking_clients", "0", "There is no client-side caching yet."),
    constant("clients_in_timeout_table", "0", "Each event loop keeps the times of its own clients."),
    gauge("total_watched_keys", |engine| engine.watches.count() as u64, "Keys that clients watch."),
    gauge("commands_waiting_for_locks", |engine| engine.locks.parked() as u64, "Commands that wait for a key's lock."),
    gauge("io_pool_queued", |engine| engine.pool.queued() as u64, "Jobs that wait for a thread of the I/O pool."),
];
