//! The surplus of an archive: backups beyond a number, and what leads to no backup that stays.

use crate::catalog::Catalog;
use crate::manifest::Manifest;
use crate::names::ChunkName;

/// The objects that may go, in the order in which it goes: backups first, so that none lacks a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    pub backups: Vec<Manifest>,
    pub chunks: Vec<ChunkName>,
}

/// Finds what may go where `keep` backups stay, and the one that was just made; 0 keeps all. The newest ones stay of
/// those that lead to the data of that one, or to what was written last; of other branches what is no older, and the
/// newest one of each whose log goes on behind that: a server still writes to it, and has no other one. A branch that
/// was left goes with time.
///
/// Invariant: from each backup that stays, every later moment that could be restored before can be restored.
pub fn surplus(catalog: &Catalog, keep: usize, made: Option<&Manifest>) -> Surplus {
    let age = |backup: &Manifest| (backup.made_ms, backup.through);
    let chain = made.map(Manifest::chain).or_else(|| catalog.newest().map(|(_, chain)| chain));
    let leads =
        |backup: &Manifest| chain.as_ref().is_some_and(|chain| chain.leads_from(backup.history(), backup.through));
    let mut ages: Vec<_> = catalog.backups.iter().filter(|backup| leads(backup)).map(age).collect();
    ages.sort_unstable();
    let oldest = ages.len().checked_sub(keep.max(1)).filter(|_| keep > 0).map(|at| ages[at]);
    // A clock that was wrong may have made others the newest.
    let others: Vec<_> = oldest.map_or(Vec::new(), |(oldest_ms, _)| newest_of_written(catalog, oldest_ms));
    let stays = |backup: &&Manifest| {
        Some(*backup) == made || oldest.is_none_or(|oldest| age(backup) >= oldest) || others.contains(backup)
    };
    let (kept, gone): (Vec<&Manifest>, Vec<&Manifest>) = catalog.backups.iter().partition(stays);
    let mut chunks = Vec::new();
    if let Some(oldest_ms) = kept.iter().map(|backup| backup.made_ms).min().filter(|_| keep > 0) {
        for lane in catalog.lanes.values() {
            let history = lane.chain.starts().last().map(|start| start.history);
            let is_needed = |chunk: &ChunkName| {
                kept.iter().any(|backup| {
                    let leads_on =
                        lane.chain.leads_from(backup.history(), backup.through) || Some(backup.history()) == history;
                    leads_on && chunk.last > backup.applied
                        // The part of an older history that comes before the backup's own.
                        || backup.chain().position(chunk.history).is_some_and(|at| {
                            chunk.last > backup.applied && chunk.first <= backup.chain().end(at)
                        })
                })
            };
            // Chunks of a history that no backup was made of yet are younger than those that are.
            chunks.extend(lane.chunks.iter().filter(|chunk| chunk.time_ms < oldest_ms && !is_needed(chunk)));
        }
    }
    let surplus = Surplus { backups: gone.into_iter().cloned().collect(), chunks };
    debug_assert!(leaves_every_moment(catalog, &surplus), "Invariant: what could be restored still can: {surplus:?}");
    surplus
}

/// Returns whether the log leads as far as before from each backup that stays, in each history that it leads to.
fn leaves_every_moment(catalog: &Catalog, surplus: &Surplus) -> bool {
    let mut left = catalog.clone();
    left.backups.retain(|backup| !surplus.backups.contains(backup));
    for lane in left.lanes.values_mut() {
        lane.chunks.retain(|chunk| !surplus.chunks.contains(chunk));
    }
    let chains = || left.lanes.values().map(|lane| lane.chain.clone()).chain(left.backups.iter().map(Manifest::chain));
    left.backups.iter().all(|backup| {
        let mut leads = chains().filter(|chain| chain.leads_from(backup.history(), backup.through));
        leads.all(|chain| left.reach(&chain, backup.through) == catalog.reach(&chain, backup.through))
    })
}

/// Returns the newest backup of each history that has records which are later than this time.
fn newest_of_written(catalog: &Catalog, time_ms: u64) -> Vec<&Manifest> {
    let written = catalog.lanes.values().filter(|lane| lane.chunks.iter().any(|chunk| chunk.time_ms > time_ms));
    let newest = written.filter_map(|lane| {
        let leads = |backup: &&Manifest| lane.chain.leads_from(backup.history(), backup.through);
        catalog.backups.iter().filter(leads).max_by_key(|backup| (backup.made_ms, backup.through))
    });
    newest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Lane;
    use crate::chain::Chain;
    use haypile_log::{History, HistoryStart, Index, Origin};

    #[test]
    fn a_chunk_that_a_backup_needs_is_missed() {
        let history = History([1; 20]);
        let histories = vec![HistoryStart { history, origin: Origin::Nothing }];
        let chunk = |first, last| ChunkName { history, first: Index(first), last: Index(last), time_ms: last };
        let chunks = vec![chunk(1, 10), chunk(11, 20), chunk(21, 30)];
        let backup = Manifest { made_ms: 15, through: Index(15), applied: Index(12), histories, files: Vec::new() };
        let lane = Lane { chain: Chain::new(&backup.histories), chunks: chunks.clone() };
        let catalog = Catalog {
            backups: vec![backup.clone()],
            lanes: [(history, lane)].into_iter().collect(),
            ..Catalog::default()
        };
        let leaves = |backups: &[Manifest], chunks: &[ChunkName]| {
            leaves_every_moment(&catalog, &Surplus { backups: backups.to_vec(), chunks: chunks.to_vec() })
        };
        assert!(leaves(&[], &chunks[..1]));
        assert!(!leaves(&[], &chunks[1..2]) && !leaves(&[], &chunks[2..]));
        assert!(leaves(&[backup], &chunks));
    }
}
