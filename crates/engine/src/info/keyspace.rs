//! The sections `cluster`, `keyspace`, `types` and `sizes`.

use super::field::{Field, text};
use crate::run::engine::Engine;
use haypile_store::{Counter, Txn};

pub(super) const CLUSTER: &[Field] = &[text(
    "cluster_enabled",
    |engine| u8::from(engine.group.is_member()).to_string(),
    "1 of a member of a Raft group, which answers CLUSTER; else 0.",
)];

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
    /// Hashes that have fields with a deadline.
    pub subexpiry: i64,
    /// The number of keys of each type, in the order of `TYPES`.
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
        let [keys, expires, subexpiry] = [Counter::Keys, Counter::Deadlines, Counter::FieldDeadlines].map(count);
        Database { number, keys, expires, subexpiry, types }
    };
    (0..engine.databases).map(database).filter(|database| database.keys > 0).collect()
}

/// Redis estimates `avg_ttl` from the keys that it samples, and shows 0 until it has; nothing is sampled here.
pub(super) fn keyspace(engine: &Engine, txn: Option<&Txn<'_>>, out: &mut String) {
    for Database { number, keys, expires, subexpiry, .. } in databases(engine, txn) {
        let value = format!("keys={keys},expires={expires},avg_ttl=0,subexpiry={subexpiry}");
        super::field(out, &format!("db{number}"), &value);
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

/// Writes about how many bytes of the base the rows of each database take, by what they are. Asks the base.
pub(super) fn sizes(engine: &Engine, out: &mut String) {
    let Some(store) = engine.store() else { return };
    for number in 0..engine.databases {
        let sizes = store.base_bytes_of(number);
        let bytes: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        if bytes > 0 {
            let parts: Vec<String> = sizes.iter().map(|(name, bytes)| format!("{name}={bytes}")).collect();
            super::field(out, &format!("sizes_db{number}"), &format!("bytes={bytes},{}", parts.join(",")));
        }
    }
}
