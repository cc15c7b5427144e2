//! The latches under which a record is applied: of all its shards at once, or of one after the other.

use crate::memtable::{Memtable, Shard, shard_of_row};
use parking_lot::MutexGuard;
use smallvec::SmallVec;

/// Rows of one shard that are applied before other threads have a chance to take its latch.
const ROWS_IN_STEP: usize = 64;

/// A shard by its number, latched.
pub(crate) type Latched<'a> = (usize, MutexGuard<'a, Shard>);

/// The latches of the shards that a record touches, in order.
pub(crate) type Latches<'a> = SmallVec<[Latched<'a>; 2]>;

/// Latches under which rows are written.
pub(crate) trait Latching<'a> {
    /// Whether no latch is held between two rows.
    const ONE_BY_ONE: bool;

    /// Returns the latch of the shard that a row lives in; `None` if it is not among the held ones.
    fn latch_of(&mut self, row: &[u8]) -> Option<&mut Latched<'a>>;
}

impl<'a> Latching<'a> for Latches<'a> {
    const ONE_BY_ONE: bool = false;

    #[inline]
    fn latch_of(&mut self, row: &[u8]) -> Option<&mut Latched<'a>> {
        let shard = shard_of_row(row);
        let at = match self.len() {
            1 => 0,
            _ => self.binary_search_by_key(&shard, |(held, _)| *held).ok()?,
        };
        self.get_mut(at).filter(|(held, _)| *held == shard)
    }
}

/// The latch of one shard at a time, changed from row to row.
pub(crate) struct OneLatch<'a> {
    memtable: &'a Memtable,
    latches: Latches<'a>,
    rows: usize,
}

impl<'a> OneLatch<'a> {
    pub fn new(memtable: &'a Memtable) -> Self {
        OneLatch { memtable, latches: Latches::new(), rows: 0 }
    }
}

impl<'a> Latching<'a> for OneLatch<'a> {
    const ONE_BY_ONE: bool = true;

    fn latch_of(&mut self, row: &[u8]) -> Option<&mut Latched<'a>> {
        let shard = shard_of_row(row);
        let is_held = self.latches.first().is_some_and(|(held, _)| *held == shard);
        if !is_held || self.rows == ROWS_IN_STEP {
            if let Some((_, latch)) = self.latches.pop() {
                // Waiting threads take the latch first.
                MutexGuard::unlock_fair(latch);
            }
            self.latches.push((shard, self.memtable.latch(shard)));
            self.rows = 0;
        }
        self.rows += 1;
        self.latches.first_mut()
    }
}

/// Takes the latches of all shards that these rows live in, in ascending order; at least one, because a freeze must not
/// come between a record without rows and its index.
#[inline]
pub(crate) fn latch_all<'a, 'r>(memtable: &'a Memtable, rows: impl Iterator<Item = &'r [u8]>) -> Latches<'a> {
    let mut shards: SmallVec<[usize; 16]> = SmallVec::new();
    for row in rows {
        let shard = shard_of_row(row);
        if shards.last() != Some(&shard) {
            shards.push(shard);
        }
    }
    if shards.is_empty() {
        shards.push(0);
    }
    if shards.len() > 1 {
        shards.sort_unstable();
        shards.dedup();
    }
    debug_assert!(shards.windows(2).all(|two| two[0] < two[1]), "latches are taken in ascending order, each once");
    let mut latches = Latches::new();
    for &shard in &shards {
        latches.push((shard, memtable.latch(shard)));
    }
    latches
}
