//! Rows that commands take one after the other, each its own: the elements at the end of a queue. Where the base has to
//! be asked for one, the rows behind it are read along, into the row cache: a row that a cursor passes costs a fraction
//! of one that is looked for.

use crate::access::{Stamp, Touch};
use crate::base::{Direction, Step, Tier};
use crate::cache::{Cached, Fill};
use crate::row::RowKey;
use crate::stop::{Stop, failed};
use crate::txn::Txn;
use crate::value::Value;
use std::cmp::Ordering;

/// Rows that are read along, at most, and their bytes: enough that the clients which share a queue do not all wait
/// again soon.
const NEXT_ROWS: usize = 512;
const NEXT_BYTES: usize = 64 << 10;

/// Rows that are read along at a time: a few large ones fill `NEXT_BYTES`, and the others need not be asked for.
const BATCH_ROWS: usize = 32;

impl Txn<'_> {
    /// Returns a row that is no meta row, by its full key. `next` are the keys of rows that will soon be asked for,
    /// too, in order.
    pub fn row_and_next(
        &mut self,
        row: &[u8],
        direction: Direction,
        next: impl Iterator<Item = RowKey>,
    ) -> Result<Option<Value>, Stop> {
        self.row_below(row, |txn| txn.read_along(row, direction, next))
    }

    /// Reads rows of the base into the row cache, if that misses the first one and the disk may be read. Rows in the
    /// block cache are found there as fast when they are asked for.
    fn read_along(&mut self, row: &[u8], direction: Direction, next: impl Iterator<Item = RowKey>) -> Result<(), Stop> {
        if self.tier() == Tier::Memory || self.is_pinned(row) {
            return Ok(());
        }
        let mut keys = std::iter::once(RowKey::from_slice(row)).chain(next.take(NEXT_ROWS - 1));
        let (mut bytes, mut goes_on) = (0, true);
        while goes_on && bytes < NEXT_BYTES {
            // The guards are taken before the base is read, as for every fill.
            let mut fills = Vec::with_capacity(BATCH_ROWS);
            goes_on = false;
            for key in keys.by_ref() {
                match self.store.cache.get(&key, &Touch::Nothing, Stamp::UNUSED) {
                    Cached::Miss(fill) => fills.push((key, fill)),
                    // The rows from here on are cached already, or another thread is reading them.
                    Cached::Hit(_) | Cached::Elsewhere => break,
                }
                if fills.len() == BATCH_ROWS {
                    goes_on = true;
                    break;
                }
            }
            bytes += self.fill(fills, direction)?;
        }
        Ok(())
    }

    /// Reads these rows of the base, which are in order, and returns their bytes.
    fn fill(&self, fills: Vec<(RowKey, Fill<'_>)>, direction: Direction) -> Result<usize, Stop> {
        let (Some((first, _)), Some((last, _))) = (fills.first(), fills.last()) else { return Ok(0) };
        let (from, until) = match direction {
            Direction::Forward => (first, last),
            Direction::Backward => (last, first),
        };
        let (from, mut until) = (from.clone(), until.clone());
        until.push(0);
        let mut cursor = self.store.base.scan(&from, &until, direction, Tier::Disk).map_err(|error| failed(&error))?;
        let (mut fills, mut bytes) = (fills.into_iter().peekable(), 0);
        while bytes < NEXT_BYTES
            && let Step::Row { key, value } = cursor.step().map_err(|error| failed(&error))?
        {
            let order = |wanted: &RowKey| match direction {
                Direction::Forward => wanted[..].cmp(key),
                Direction::Backward => key.cmp(wanted),
            };
            // A row that the base does not have is left to the command that asks for it.
            while fills.next_if(|(wanted, _)| order(wanted) == Ordering::Less).is_some() {}
            if let Some((_, fill)) = fills.next_if(|(wanted, _)| order(wanted) == Ordering::Equal) {
                bytes += value.len();
                // Fails if a flush has brought a newer version meanwhile, which must win.
                let _ = fill.insert(Some(Value::from(value)));
            }
        }
        Ok(bytes)
    }
}
