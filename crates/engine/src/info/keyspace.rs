//! The sections `replication`, `cluster`, `keyspace` and `types`.

use super::field::{Field, constant, gauge, text};
use crate::run::engine::Engine;
use haypile_store::{Counter, Txn};

const NO_REPLICAS: &str = "There are no replicas yet.";

pub(super) const REPLICATION: &[Field] = &[
    constant("role", "master", NO_REPLICAS),
    constant("connected_slaves", "0", NO_REPLICAS),
    constant("master_failover_state", "no-failover", NO_REPLICAS),
    text(
        "master_replid",
        |engine| engine.store().map_or_else(|| "0".repeat(40), |store| store.history().to_string()),
        "The history of the data: a new one begins when a stop was not clean.",
    ),
    constant("master_replid2", "0000000000000000000000000000000000000000", NO_REPLICAS),
    gauge(
        "master_repl_offset",
        |engine| engine.store().map_or(0, |store| store.log().last().0),
        "The last record of the log.",
    ),
    constant("second_repl_offset", "-1", NO_REPLICAS),
    constant("repl_backlog_active", "0", NO_REPLICAS),
    text(
        "repl_backlog_size",
        |engine| {
            let found = engine.settings.get(&[b"repl-backlog-size"]).pop();
            found.map_or_else(|| "0".into(), |(_, value)| String::from_utf8_lossy(&value).into_owned())
        },
        "The directive, which has no effect yet.",
    ),
    constant("repl_backlog_first_byte_offset", "0", NO_REPLICAS),
    constant("repl_backlog_histlen", "0", NO_REPLICAS),
];

pub(super) const CLUSTER: &[Field] = &[constant("cluster_enabled", "0", "There is no cluster yet.")];

/// The kinds of keys, as fields and labels name them.
pub(super) const TYPES: &[(&str, Counter)] = &[
    ("strings", Counter::Strings),
    ("lists", Counter::Lists),
    ("sets", Counter::Sets),
    ("sorted_sets", Counter::SortedSets),
    ("hashes", Counter::Hashes),
    ("streams", Counter::Streams),
];

/// A database that holds keys.
pub(super) struct Database {
    pub number: u32,
    pub keys: i64,
    pub expires: i64,
    /// In the order of `TYPES`.
    pub types: Vec<i64>,
}

/// The databases that hold keys; within a transaction as it sees them.
pub(super) fn databases(engine: &Engine, txn: Option<&Txn<'_>>) -> Vec<Database> {
    let Some(store) = engine.store() else { return Vec::new() };
    let database = |number| {
        let count = |counter| match txn {
            Some(txn) => txn.peek_counter(txn.space(number), counter),
            None => store.counter(number, counter),
        };
        let types = TYPES.iter().map(|(_, counter)| count(*counter)).collect();
        Database { number, keys: count(Counter::Keys), expires: count(Counter::Deadlines), types }
    };
    (0..engine.databases).map(database).filter(|database| database.keys > 0).collect()
}

/// Redis estimates `avg_ttl` from the keys that it samples, and shows 0 until it has; nothing is sampled here.
pub(super) fn keyspace(engine: &Engine, txn: Option<&Txn<'_>>, out: &mut String) {
    for Database { number, keys, expires, .. } in databases(engine, txn) {
        super::field(out, &format!("db{number}"), &format!("keys={keys},expires={expires},avg_ttl=0"));
    }
}

/// Writes the number of keys of each type in each database.
pub(super) fn types(engine: &Engine, txn: Option<&Txn<'_>>, out: &mut String) {
    for database in databases(engine, txn) {
        let counts: Vec<String> =
            TYPES.iter().zip(&database.types).map(|((name, _), count)| format!("{name}={count}")).collect();
        super::field(out, &format!("types_db{}", database.number), &counts.join(","));
    }
}
