//! The bounds up to which Redis would hold a value compactly: OBJECT ENCODING reports collections by them, and they say
//! whether a HyperLogLog is sparse; and the bounds that new streams get. Never says how anything is stored.

use haypile_store::{Store, TUNABLES, Txn};

/// One of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EncodingLimit {
    HashEntries,
    HashValue,
    /// Positive: elements of a part of a list; -1 to -5: 4 to 64 KB.
    ListSize,
    SetIntsetEntries,
    SetEntries,
    SetValue,
    ZsetEntries,
    ZsetValue,
    /// Entries of a node of a stream, which an approximate trim removes as a whole; 0: there is one node.
    StreamNodeEntries,
    /// The most bytes of a sparse HyperLogLog.
    HllSparseBytes,
    /// Seconds for which a new stream knows an idempotent ID.
    IdempotentSeconds,
    /// Idempotent IDs of a producer that a new stream keeps.
    IdempotentIds,
}

/// Each bound with its directive and Redis's default, in the order of the enumeration.
pub const LIMITS: [(EncodingLimit, &str, i64); 12] = [
    (EncodingLimit::HashEntries, "hash-max-listpack-entries", 512),
    (EncodingLimit::HashValue, "hash-max-listpack-value", 64),
    (EncodingLimit::ListSize, "list-max-listpack-size", -2),
    (EncodingLimit::SetIntsetEntries, "set-max-intset-entries", 512),
    (EncodingLimit::SetEntries, "set-max-listpack-entries", 128),
    (EncodingLimit::SetValue, "set-max-listpack-value", 64),
    (EncodingLimit::ZsetEntries, "zset-max-listpack-entries", 128),
    (EncodingLimit::ZsetValue, "zset-max-listpack-value", 64),
    (EncodingLimit::StreamNodeEntries, "stream-node-max-entries", 100),
    (EncodingLimit::HllSparseBytes, "hll-sparse-max-bytes", 3000),
    (EncodingLimit::IdempotentSeconds, "stream-idmp-duration", 100),
    (EncodingLimit::IdempotentIds, "stream-idmp-maxsize", 100),
];

const _: () = {
    let mut at = 0;
    while at < LIMITS.len() {
        assert!(LIMITS[at].0 as usize == at, "a bound is found by its number");
        at += 1;
    }
    assert!(LIMITS.len() <= TUNABLES);
};

impl EncodingLimit {
    /// Returns the bound that a directive sets.
    pub fn of_directive(name: &str) -> Option<EncodingLimit> {
        LIMITS.iter().find(|(_, directive, _)| *directive == name).map(|(limit, ..)| *limit)
    }

    /// Returns the bound's value for a transaction, as the configuration has it now.
    #[inline]
    pub fn of(self, txn: &Txn<'_>) -> i64 {
        txn.tunable(self as usize).unwrap_or(LIMITS[self as usize].2)
    }

    /// Sets the bound's value for all transactions of a store.
    pub fn set(self, store: &Store, value: i64) {
        store.tunables.set(self as usize, value);
    }
}
