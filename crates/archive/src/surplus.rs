//! The surplus of an archive: backups beyond a number, and what leads to no backup that stays.

use crate::catalog::Catalog;
use crate::manifest::Manifest;
use crate::names::{ChunkName, Digest};
use std::collections::HashSet;

/// The objects that may go, in the order in which it goes: backups first, so that none lacks a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    pub backups: Vec<Manifest>,
    pub chunks: Vec<ChunkName>,
    /// The files that backups that stay are made of: others may go.
    pub kept_files: HashSet<Digest>,
}

/// Finds what may go where `keep` backups stay, the newest ones, and the one that was just made; 0 keeps all.
///
/// Invariant: from each backup that stays, every later moment that could be restored before can be restored.
pub fn surplus(catalog: &Catalog, keep: usize, made: Option<&Manifest>) -> Surplus {
    let mut by_age: Vec<&Manifest> = catalog.backups.iter().collect();
    by_age.sort_by_key(|backup| (backup.made_ms, backup.through));
    let gone = if keep == 0 { 0 } else { by_age.len().saturating_sub(keep) };
    let (gone, kept) = by_age.split_at(gone);
    // A clock that was wrong may have made others the newest.
    let (just_made, gone): (Vec<&Manifest>, Vec<&Manifest>) = gone.iter().partition(|backup| Some(**backup) == made);
    let kept = [kept, &just_made].concat();
    let kept_files = kept.iter().flat_map(|backup| backup.files.iter().map(|file| file.digest)).collect();
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
    Surplus { backups: gone.into_iter().cloned().collect(), chunks, kept_files }
}
