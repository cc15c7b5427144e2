//! Facts: small values of the data set as a whole that the program above names, which every node has in memory.
//!
//! A fact is a system row, so it is written by a transaction, replicated and backed up like any row. Transactions see
//! all facts of one moment, with their own changes. Whoever changes facts holds the exclusive lock, because a
//! transaction depends on all that it has not found, too.

use crate::row::{RowKey, SystemScope, system_row};
use haypile_log::Index;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

const FACT_ROW: &[u8] = b"fact/";

/// Returns the row of a fact: `fact/` and its name; the value is the fact's.
pub fn fact_row(name: &[u8]) -> RowKey {
    system_row(SystemScope::Replicated, &[FACT_ROW, name].concat())
}

/// Returns where the rows of facts begin, and where they end.
pub(crate) fn fact_rows() -> (RowKey, RowKey) {
    (fact_row(b""), system_row(SystemScope::Replicated, b"fact0"))
}

/// Returns whether a row is a fact.
pub(crate) fn is_fact_row(row: &[u8]) -> bool {
    row.starts_with(&fact_row(b""))
}

/// All facts of one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    values: BTreeMap<Box<[u8]>, Arc<[u8]>>,
    /// The newest record that changed each fact, also those that are gone.
    changes: BTreeMap<Box<[u8]>, Index>,
    /// The newest record that changed a fact.
    pub(crate) changed_at: Index,
}

impl Facts {
    pub fn get(&self, name: &[u8]) -> Option<&Arc<[u8]>> {
        self.values.get(name)
    }

    /// Returns names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Arc<[u8]>)> {
        self.values.iter().map(|(name, value)| (&**name, value))
    }

    /// Returns the newest record that changed one whose name begins so; 0 where there is none.
    pub fn changed_at_of(&self, prefix: &[u8]) -> Index {
        let of = self.changes.range(Box::from(prefix)..).take_while(|(name, _)| name.starts_with(prefix));
        of.map(|(_, index)| *index).max().unwrap_or(Index(0))
    }

    pub(crate) fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => _ = self.values.insert(name.into(), value.into()),
            None => _ = self.values.remove(name),
        }
    }
}

/// The facts of a store, as its records say.
#[derive(Default)]
pub(crate) struct KnownFacts(RwLock<Arc<Facts>>);

impl KnownFacts {
    pub fn now(&self) -> Arc<Facts> {
        self.0.read().clone()
    }

    /// Notes a system row as its record is applied or read from the base at open. Rows that are no facts are left
    /// alone.
    pub fn on_system_row(&self, row: &[u8], value: Option<&[u8]>, index: Index) {
        let prefix = fact_row(b"");
        if let Some(name) = row.strip_prefix(&prefix[..]) {
            let mut now = self.0.write();
            let facts = Arc::make_mut(&mut now);
            facts.set(name, value);
            facts.changed_at = facts.changed_at.max(index);
            let at = facts.changes.entry(name.into()).or_default();
            *at = index.max(*at);
        }
    }
}
