//! A draw of a random row of an object that lies in memory: rows are not numbered, so a place is drawn that may have
//! none.
//!
//! Only for objects that one generation of the memtable has whole; of an object that is spread over more, or lies in
//! the base, the caller draws from short ordered reads.

use crate::base::Direction;
use crate::memtable::{ElementRange, shard_of};
use crate::stop::Stop;
use crate::txn::Txn;

/// Places that are drawn under the latch. Where so many have no row, most rows of the object were deleted.
const ATTEMPTS: usize = 64;

impl Txn<'_> {
    /// Draws one of the rows of an object with `from <= key < until`, all equally likely, by the numbers that `random`
    /// gives, and gives its key and value to `take`, which only looks at bytes. Returns false if nothing was drawn,
    /// which does not mean that there is no row.
    pub fn draw(
        &mut self,
        from: &[u8],
        until: &[u8],
        mut random: impl FnMut() -> u64,
        take: impl FnOnce(&[u8], &[u8]),
    ) -> Result<bool, Stop> {
        self.on_read_many()?;
        let store = self.store;
        let Some(range) = ElementRange::of(from, until) else { return Ok(false) };
        if !store.is_above_base(from) || !self.own_writes(from, until, Direction::Forward).is_empty() {
            return Ok(false);
        }
        let latch = store.memtable.latch(shard_of(range.object.slot()));
        // Flushed rows may have left the memtable meanwhile, and do not come back above the base.
        if !store.is_above_base(from) {
            return Ok(false);
        }
        let frozen = latch.frozen.as_ref().and_then(|frozen| frozen.objects.elements(range.object));
        let elements = match (latch.active.objects.elements(range.object), frozen) {
            (Some(elements), None) | (None, Some(elements)) => elements,
            _ => return Ok(false),
        };
        for _ in 0..ATTEMPTS {
            let Some(row) = elements.at_place(random()) else { continue };
            let Some(value) = row.value().filter(|_| from <= row.row() && row.row() < until) else { continue };
            self.gate.rise(row.index());
            take(row.row(), value);
            return Ok(true);
        }
        Ok(false)
    }
}
