//! A frozen generation on its way to the base: the facts of the store at its index, and the rows that state them there.

use super::sorted::OwnRows;
use crate::databases::{CountsAt, counts_row, dead_row, encode_counts};
use crate::memtable::Table;
use crate::row::{RowKey, Space, SystemScope, system_row};
use haypile_log::{History, Index};
use std::sync::Arc;

/// Returns the row of the applied index: the index up to which the base holds everything, u64 BE, and the history that
/// the index belongs to.
pub fn applied_row() -> RowKey {
    system_row(SystemScope::Local, b"applied")
}

/// Returns the value of the row of the applied index.
pub(crate) fn encode_applied(index: Index, history: History) -> Vec<u8> {
    [&index.0.to_be_bytes()[..], &history.0].concat()
}

/// A generation on its way to the base, and the facts of the store at its index.
pub(crate) struct Frozen {
    pub tables: Vec<Arc<Table>>,
    pub index: Index,
    pub counts: Vec<(Space, CountsAt)>,
    pub dead: Vec<Space>,
    /// Spaces of which nothing is left, and that the base remembers as dead until this flush.
    pub gone: Vec<Space>,
    pub objects_below: u64,
}

impl Frozen {
    /// Returns the rows that state what the base holds after this flush. Spaces that have died since its index are dead
    /// in the base at once: the replay passes over the effects of earlier records on their rows.
    pub fn own_rows(&self, history: History, dead: &[Space]) -> OwnRows {
        let mut rows = OwnRows::new();
        rows.insert(applied_row(), Some(encode_applied(self.index, history)));
        // Only nodes' starts decide which spaces have counters in memory; so counters that are all zero get no row.
        let counted = |counts: &CountsAt| counts.iter().any(|count| *count != 0).then(|| encode_counts(counts));
        rows.extend(self.counts.iter().map(|(space, counts)| (counts_row(*space), counted(counts))));
        // Dead spaces have no counters any more.
        rows.extend(dead.iter().map(|space| (counts_row(*space), None)));
        rows.extend(self.gone.iter().map(|space| (dead_row(*space), None)));
        let late = dead.iter().filter(|space| self.dead.binary_search(space).is_err());
        rows.extend(late.map(|space| (dead_row(*space), Some(Vec::new()))));
        rows
    }
}
