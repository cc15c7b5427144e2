//! Full compactions: all rows of some databases are compacted, so that the base drops what nothing can reach, and what
//! was overwritten. Asked for by an operator, or begun in quiet hours.
//!
//! A full compaction goes piece by piece, on the reclaiming thread, when nothing else is to be reclaimed; between two
//! pieces it can be held.

use super::dead::RANGE_SLOTS;
use super::jobs::slots_range;
use super::whole::Wanted;
use crate::base::BaseError;
use crate::row::{Family, RowKey, SLOTS, Space, family_range};
use crate::store::Store;
use std::collections::BTreeSet;

/// About how many bytes of the base one piece has: between two, ranges that are to be reclaimed have their turn.
const PIECE_BYTES: u64 = 512 << 20;

const FAMILIES: [Family; 5] = [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire];

impl Store {
    /// Has all rows of these databases compacted, or of all, in the background: as soon as the full compaction under
    /// way has ended, if there is one.
    pub fn compact(&self, databases: Option<&[u32]>) {
        let wanted = match databases {
            Some(databases) => Wanted::Spaces(databases.iter().map(|number| self.databases.space(*number)).collect()),
            None => Wanted::All,
        };
        self.reclaimer.compact(wanted);
    }

    /// Sets whether no piece of a full compaction begins; one that has begun ends.
    pub fn hold_compaction(&self, is_held: bool) {
        self.reclaimer.hold_compaction(is_held);
    }

    /// Returns whether a full compaction was asked for that has not ended.
    pub fn is_compacting(&self) -> bool {
        self.reclaimer.is_compacting()
    }

    /// Ends the full compaction under way, behind the piece that has begun, and forgets what was to follow.
    pub fn give_compaction_up(&self) {
        self.reclaimer.give_compaction_up();
    }

    /// Divides a full compaction into pieces. What is in memory only goes into the base first: it may be what says that
    /// rows there are dead.
    pub(super) fn begin_compaction(&self, wanted: &Wanted) -> Result<(), BaseError> {
        if let Err(why) = self.flush_now() {
            tracing::warn!("a full compaction begins without what is in memory: {why}");
        }
        let pieces = self.pieces(wanted);
        let bytes = self.base.disk_bytes();
        tracing::info!("a full compaction begins: {} ranges of a base of {bytes} bytes", pieces.len());
        self.reclaimer.on_pieces(pieces, bytes);
        Ok(())
    }

    pub(super) fn compact_piece(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        self.base.reclaim_range(from, until)?;
        if let Some((since, before)) = self.reclaimer.on_piece() {
            let (seconds, after) = (since.elapsed().as_secs_f64(), self.base.disk_bytes());
            tracing::info!("a full compaction has ended after {seconds:.1} s: {before} bytes became {after}");
        }
        Ok(())
    }

    fn pieces(&self, wanted: &Wanted) -> Vec<(RowKey, RowKey)> {
        let bytes_in = |from: &[u8], until: &[u8]| self.base.bytes_in(from, until);
        match wanted {
            Wanted::All => {
                let spaces: BTreeSet<Space> =
                    (0..self.databases()).map(|number| self.databases.space(number)).collect();
                let cuts = FAMILIES.iter().flat_map(|family| {
                    spaces.iter().flat_map(|space| {
                        let begin = family_range(*family, *space).0;
                        std::iter::once(begin).chain(slot_cuts(*family, *space, &bytes_in))
                    })
                });
                cut(RowKey::new(), RowKey::from_slice(&[u8::MAX]), cuts, &bytes_in)
            }
            Wanted::Spaces(spaces) => {
                let all = FAMILIES.iter().flat_map(|family| spaces.iter().map(|space| (*family, *space)));
                let pieces = all.flat_map(|(family, space)| {
                    let (from, until) = family_range(family, space);
                    cut(from, until, slot_cuts(family, space, &bytes_in), &bytes_in)
                });
                pieces.collect()
            }
        }
    }
}

/// Returns the keys at which the rows of a space may be cut; none where they are few.
fn slot_cuts(family: Family, space: Space, bytes_in: &impl Fn(&[u8], &[u8]) -> u64) -> Vec<RowKey> {
    let (from, until) = family_range(family, space);
    if bytes_in(&from, &until) <= PIECE_BYTES {
        return Vec::new();
    }
    (1..SLOTS / RANGE_SLOTS).map(|range| slots_range(family, space, range).0).collect()
}

/// Cuts a range at some of these ascending keys, so that no piece has many more bytes than it should, and few have
/// much less.
fn cut(
    from: RowKey,
    until: RowKey,
    cuts: impl IntoIterator<Item = RowKey>,
    bytes_in: &impl Fn(&[u8], &[u8]) -> u64,
) -> Vec<(RowKey, RowKey)> {
    let (mut pieces, mut begin, mut last, mut bytes) = (Vec::new(), from.clone(), from, 0);
    for at in cuts {
        bytes += bytes_in(&last, &at);
        last = at;
        if bytes >= PIECE_BYTES {
            pieces.push((std::mem::replace(&mut begin, last.clone()), last.clone()));
            bytes = 0;
        }
    }
    pieces.push((begin, until));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_where_a_piece_is_full() {
        let key = |number: u8| RowKey::from_slice(&[number]);
        let mib = |from: &[u8], until: &[u8]| (u64::from(until[0]) - u64::from(from[0])) << 20;
        let pieces = cut(key(0), key(255), (1..=25).map(|number| key(number * 10)), &mib);
        assert_eq!(pieces, [(key(0), key(255))], "255 MiB are one piece");
        let gib = |from: &[u8], until: &[u8]| mib(from, until) << 10;
        let pieces = cut(key(0), key(4), (1..=3).map(key), &gib);
        assert_eq!(pieces, [(key(0), key(1)), (key(1), key(2)), (key(2), key(3)), (key(3), key(4))]);
    }
}
