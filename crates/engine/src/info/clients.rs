//! The section `clients`: who is connected, and what their commands wait for.

use super::field::{Field, constant, gauge};
use crate::clients::client::Client;
use crate::clients::usage::Usage;
use crate::run::engine::Engine;
use haypile_commands::host::ClientType;

pub(super) const FIELDS: &[Field] = &[
    gauge("connected_clients", |engine| engine.connected(), "Clients that are connected."),
    constant("cluster_connections", "0", "There is no bus of a cluster."),
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
    gauge("monitor_clients", |engine| engine.checks.monitors() as u64, "Clients that are shown all commands."),
    gauge(
        "blocked_clients",
        |engine| (engine.blocked.count() + engine.waiters.count() + engine.checks.held()) as u64,
        "Clients that wait for keys (BLPOP and its relatives), whose reply is held back (WAIT, WAITAOF, REPLICAOF NO ONE \
         until the server takes writes), or whose command waits for the end of a CLIENT PAUSE.",
    ),
    gauge(
        "tracking_clients",
        |engine| engine.tracking.clients() as u64,
        "Clients that are told of keys that change (CLIENT TRACKING).",
    ),
    gauge(
        "pubsub_clients",
        |engine| engine.clients.count(|client| client.kind() == ClientType::PubSub),
        "Clients that are subscribed to something.",
    ),
    gauge("watching_clients", |engine| engine.clients.count(Client::watches), "Clients that watch keys (WATCH)."),
    constant("clients_in_timeout_table", "0", "Each event loop keeps the times of its own clients."),
    gauge(
        "total_watched_keys",
        |engine| engine.watches.keys() as u64,
        "Keys that clients watch; one that several watch counts once.",
    ),
    gauge("total_blocking_keys", |engine| engine.waiters.keys() as u64, "Keys that clients wait for."),
    gauge(
        "total_blocking_keys_on_nokey",
        |engine| engine.waiters.keys_until_gone() as u64,
        "Keys that clients wait for who are to learn, too, when the key is gone (XREADGROUP).",
    ),
    gauge("commands_waiting_for_locks", |engine| engine.locks.parked() as u64, "Commands that wait for a key's lock."),
    gauge("io_pool_queued", |engine| engine.pool.queued() as u64, "Jobs that wait for a thread of the I/O pool."),
];

/// The names of lines that depend on what there is: section, name and meaning.
pub(super) const PATTERNS: &[(&str, &str, &str)] = &[(
    "Clients",
    "limitsN",
    "A user whose rules have limits: its name, connections and the bytes that they take (where `memory=` is a limit), calls \
     that ran, bytes of requests and replies, calls that waited (each second of a longer wait anew) and for how many \
     microseconds, calls that were refused, logins that were, clients that were closed, and the limits.",
)];

/// Appends a line for each user that has limits.
pub(super) fn lines(engine: &Engine, out: &mut String) {
    for (number, (user, usage)) in engine.accounts.limited().iter().enumerate() {
        let numbers: Vec<String> =
            NUMBERS.iter().map(|number| format!("{}={}", number.name, (number.value)(usage))).collect();
        let limits = user.limits().text().replace(' ', ",");
        let value = format!("user={},{},{limits}", user.name().escape_ascii(), numbers.join(","));
        super::field(out, &format!("limits{number}"), &value);
    }
}

/// A number about a user that has limits.
pub(super) struct OfUser {
    /// The name of the field in INFO.
    pub name: &'static str,
    pub metric: &'static str,
    pub value: fn(&Usage) -> u64,
}

pub(super) const NUMBERS: &[OfUser] = &[
    OfUser { name: "used_connections", metric: "haypile_user_connections", value: Usage::connections },
    OfUser { name: "used_memory", metric: "haypile_user_memory_bytes", value: Usage::memory },
    OfUser { name: "calls", metric: "haypile_user_calls_total", value: |usage| usage.called.get() },
    OfUser { name: "bytes", metric: "haypile_user_bytes_total", value: |usage| usage.moved_bytes.get() },
    OfUser { name: "delayed", metric: "haypile_user_delayed_calls_total", value: |usage| usage.delayed.get() },
    OfUser {
        name: "delayed_usec",
        metric: "haypile_user_delay_microseconds_total",
        value: |usage| usage.delayed_us.get(),
    },
    OfUser { name: "refused", metric: "haypile_user_refused_calls_total", value: |usage| usage.refused.get() },
    OfUser {
        name: "turned_away",
        metric: "haypile_user_refused_connections_total",
        value: |usage| usage.turned_away.get(),
    },
    OfUser { name: "closed", metric: "haypile_user_closed_clients_total", value: |usage| usage.closed.get() },
];
