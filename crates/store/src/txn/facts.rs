//! Facts as a transaction sees and changes them.

use super::Txn;
use crate::facts::{Facts, fact_row, fact_rows};
use crate::stop::Stop;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Txn<'_> {
    /// Returns all facts as this transaction sees them.
    pub fn facts(&mut self) -> Arc<Facts> {
        let now = self.store.facts.now();
        self.gate.rise(now.changed_at);
        let (from, until) = fact_rows();
        let changed = if self.committed { BTreeMap::new() } else { self.overlay.range(&from, &until) };
        if changed.is_empty() {
            return now;
        }
        let mut own = Facts::clone(&now);
        for (row, value) in &changed {
            own.set(&row[from.len()..], value.as_deref());
        }
        Arc::new(own)
    }

    /// Writes a fact, or removes it.
    ///
    /// # Errors
    /// The transaction has become too large.
    pub fn put_fact(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), Stop> {
        debug_assert!(self.is_exclusive || self.is_dry_run(), "facts are changed under the exclusive lock");
        match value {
            Some(value) => self.put_row(&fact_row(name), &[value]),
            None => self.delete_row(&fact_row(name)),
        }
    }
}
