//! Histories in their order, and which records of each count.

use haypile_log::{Histories, History, HistoryStart, Index};

/// The histories that a log went through, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    starts: Vec<HistoryStart>,
}

impl Chain {
    /// Makes a chain of histories, the oldest first.
    pub fn new(starts: &[HistoryStart]) -> Chain {
        Chain { starts: starts.to_vec() }
    }

    /// Returns the histories.
    pub fn starts(&self) -> &[HistoryStart] {
        &self.starts
    }

    /// Returns the place of a history.
    pub fn position(&self, history: History) -> Option<usize> {
        self.starts.iter().rposition(|start| start.history == history)
    }

    /// Returns the last record of the history at this place that counts; the greatest index of the newest one.
    pub fn end(&self, at: usize) -> Index {
        self.starts.get(at + 1).map_or(Index(u64::MAX), HistoryStart::after)
    }

    /// Returns the history that the record behind `index` is of.
    pub fn history_behind(&self, index: Index) -> Option<History> {
        self.starts.iter().rfind(|start| start.after() <= index).map(|start| start.history)
    }

    /// Whether data that stand at `through` of `history` come to where this chain ends by its records.
    pub fn leads_from(&self, history: History, through: Index) -> bool {
        let histories: Histories = self.starts.iter().copied().collect();
        histories.shared_through(history, through) == Some(through)
    }
}
