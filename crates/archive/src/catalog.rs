//! The content of an archive: its backups, and for each history the chunks of its log.

use crate::chain::Chain;
use crate::manifest::Manifest;
use crate::names::ChunkName;
use haypile_log::{History, Index};
use std::collections::BTreeMap;

/// The content of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The complete backups, in the order in which they were made.
    pub backups: Vec<Manifest>,
    pub lanes: BTreeMap<History, Lane>,
    /// The names of objects that are no backup or chunk, or damaged ones, and why.
    pub strange: Vec<(String, String)>,
}

/// The chunks of one history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The histories that lead to this one, and itself.
    pub chain: Chain,
    /// Invariant: in the order of their records; they may overlap, and have holes.
    pub chunks: Vec<ChunkName>,
}

impl Lane {
    /// Returns the chunk that has this record, and the most behind it.
    pub fn chunk_with(&self, index: Index) -> Option<ChunkName> {
        debug_assert!(self.chunks.is_sorted_by_key(|chunk| chunk.first), "chunks come in the order of their records");
        let begun = self.chunks.partition_point(|chunk| chunk.first <= index);
        self.chunks[..begun].iter().filter(|chunk| chunk.last >= index).max_by_key(|chunk| chunk.last).copied()
    }

    /// Returns the first record behind `index` that a chunk has.
    pub fn first_behind(&self, index: Index) -> Option<Index> {
        self.chunks.iter().map(|chunk| chunk.first).find(|first| *first > index)
    }
}

impl Catalog {
    /// Returns the history that was written to last, and its chain; None of an archive without backups and chunks.
    pub fn newest(&self) -> Option<(History, Chain)> {
        let lanes = self.lanes.iter().filter_map(|(history, lane)| {
            let last = lane.chunks.iter().max_by_key(|chunk| chunk.last)?;
            Some((last.time_ms, lane.chain.starts().len(), *history, &lane.chain))
        });
        let of_lane = lanes.max_by_key(|(time_ms, depth, ..)| (*time_ms, *depth));
        let of_backup = self.backups.iter().max_by_key(|backup| backup.made_ms);
        match (of_lane, of_backup) {
            (Some((_, _, history, chain)), None) => Some((history, chain.clone())),
            (None, Some(backup)) => Some((backup.history(), backup.chain())),
            (None, None) => None,
            (Some((time_ms, _, history, chain)), Some(backup)) => {
                // A backup that was made behind all chunks, in a history that has none yet.
                let is_behind = backup.made_ms > time_ms
                    && chain.position(backup.history()).is_none()
                    && !self.lanes.contains_key(&backup.history());
                Some(if is_behind { (backup.history(), backup.chain()) } else { (history, chain.clone()) })
            }
        }
    }

    /// Returns the chain of a history.
    pub fn chain_of(&self, history: History) -> Option<Chain> {
        let of_lane = self.lanes.get(&history).map(|lane| lane.chain.clone());
        of_lane.or_else(|| self.backups.iter().find(|backup| backup.history() == history).map(Manifest::chain))
    }

    /// Returns what is here without what cannot be read of these chunks: of each the last record that can is known, or
    /// the one before the first.
    pub fn sound(&self, damaged: &[(ChunkName, Index)]) -> Catalog {
        let mut sound = self.clone();
        for (chunk, last) in damaged {
            let Some(lane) = sound.lanes.get_mut(&chunk.history) else { continue };
            lane.chunks.retain_mut(|other| {
                if other == chunk {
                    other.last = *last;
                }
                other.first <= other.last
            });
        }
        sound
    }

    /// Returns the last record of this chain that is here without a hole behind `after`; `after` if the next one is
    /// not.
    pub fn reach(&self, chain: &Chain, after: Index) -> Index {
        let mut reached = after;
        while let Some((_, last)) = self.next_chunk(chain, reached) {
            reached = last;
        }
        reached
    }

    /// Returns the chunk with the record behind `reached`, and the last record of it that counts in this chain.
    pub fn next_chunk(&self, chain: &Chain, reached: Index) -> Option<(ChunkName, Index)> {
        let next = reached.next();
        let at = (0..chain.starts().len()).rfind(|at| chain.starts()[*at].after() < next)?;
        let chunk = self.lanes.get(&chain.starts()[at].history)?.chunk_with(next)?;
        let last = chunk.last.min(chain.end(at));
        debug_assert!(chunk.first <= next && next <= last, "a chunk leads on from where the one before ended");
        Some((chunk, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::{HistoryStart, Origin};

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "in the order of their records")]
    fn chunks_out_of_order_are_noticed() {
        let history = History([1; 20]);
        let chunk = |first, last| ChunkName { history, first: Index(first), last: Index(last), time_ms: last };
        let chain = Chain::new(&[HistoryStart { history, origin: Origin::Nothing }]);
        Lane { chain, chunks: vec![chunk(11, 20), chunk(1, 10)] }.chunk_with(Index(5));
    }
}
