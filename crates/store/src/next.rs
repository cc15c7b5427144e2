//! Rows that commands take one after the other, each its own: the elements at the end of a queue. Where the base has to be
//! asked for one, those behind it are read along, into the row cache: a row that a cursor passes costs a fraction of one that
//! is looked for.

use crate::access::{Stamp, Touch};
use crate::base::{Direction, Step};
use crate::cache::Cached;
use crate::row::RowKey;
use crate::txn::{Stop, Txn, failed};
use crate::value::Value;
use std::cmp::Ordering;

/// Rows that are read along, at most.
const NEXT_ROWS: usize = 32;

/// Not more bytes than these.
const NEXT_BYTES: usize = 64 << 10;

impl Txn<'_> {
    /// A row that is no meta row, by its full key. `next` are the keys of rows that will soon be asked for, too, in order.
    pub fn row_and_next(
        &mut self,
        row: &[u8],
        direction: Direction,
        next: impl Iterator<Item = RowKey>,
    ) -> Result<Option<Value>, Stop> {
        self.row_below(row, |txn| txn.read_along(row, direction, next))
    }

    /// Reads rows of the base into the row cache, if that misses the first one.
    fn read_along(&mut self, row: &[u8], direction: Direction, next: impl Iterator<Item = RowKey>) -> Result<(), Stop> {
        if self.is_pinned(row) {
            return Ok(());
        }
        let Cached::Miss(fill) = self.store.cache.get(row, &Touch::Nothing, Stamp::UNUSED) else { return Ok(()) };
        // The guards are taken before the base is read, as for every fill.
        let mut fills = vec![(RowKey::from_slice(row), fill)];
        for key in next.take(NEXT_ROWS) {
            match self.store.cache.get(&key, &Touch::Nothing, Stamp::UNUSED) {
                Cached::Miss(fill) => fills.push((key, fill)),
                Cached::Hit(_) | Cached::Elsewhere => break,
            }
        }
        let last = &fills[fills.len() - 1].0;
        let (from, until) = match direction {
            Direction::Forward => (row, last),
            Direction::Backward => (&last[..], &fills[0].0),
        };
        let mut until = until.clone();
        until.push(0);
        let from = from.to_vec();
        let mut cursor = self.store.base.scan(&from, &until, direction, self.tier()).map_err(|error| failed(&error))?;
        let (mut fills, mut bytes) = (fills.into_iter().peekable(), 0);
        while bytes < NEXT_BYTES
            && let Step::Row { key, value } = cursor.step().map_err(|error| failed(&error))?
        {
            let order = |wanted: &RowKey| match direction {
                Direction::Forward => wanted[..].cmp(key),
                Direction::Backward => key.cmp(wanted),
            };
            // What the base does not have is left for whoever asks for it.
            while fills.next_if(|(wanted, _)| order(wanted) == Ordering::Less).is_some() {}
            if let Some((_, fill)) = fills.next_if(|(wanted, _)| order(wanted) == Ordering::Equal) {
                bytes += value.len();
                // Fails if a flush has brought a newer version meanwhile: then it must.
                let _ = fill.insert(Some(Value::from(value)));
            }
        }
        Ok(())
    }
}
