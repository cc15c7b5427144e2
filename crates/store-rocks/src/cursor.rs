//! Ordered reads: one RocksDB iterator from start to end. The iterator pins the files it reads, so that neither
//! compaction nor the compaction filter takes rows from under it, and no RocksDB snapshot is needed.

use crate::error::{base_error, would_block};
use crate::handle::Open;
use haypile_store::base::{BaseError, Cursor, Direction, Step};
use rust_rocksdb::{DBRawIterator, ReadOptions};
use std::sync::Arc;

/// Rows of a range in order.
pub(crate) struct RocksCursor {
    /// The iterator borrows from `open`. Declared before `open`, hence dropped before it.
    rows: DBRawIterator<'static>,
    direction: Direction,
    begun: bool,
    _open: Arc<Open>,
}

impl RocksCursor {
    /// Opens a cursor over `from` to `until` (excluded), at the end where the direction begins, with these options.
    pub(crate) fn new(
        open: Arc<Open>,
        from: &[u8],
        until: &[u8],
        direction: Direction,
        mut options: ReadOptions,
    ) -> Self {
        // The bounds let RocksDB leave out files and blocks, and stop readahead at the end.
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(until);
        // Files that became obsolete meanwhile are deleted by a background thread, not by the one that drops the
        // cursor.
        options.set_background_purge_on_iterator_cleanup(true);
        let rows = open.db.raw_iterator_opt(options);
        // SAFETY: the iterator borrows from the database inside `open`, an `Arc` that this cursor holds, never hands
        // out mutably and drops after the iterator (the order of the fields). The lifetime stands for that borrow only.
        #[allow(unsafe_code, reason = "a cursor owns both the database and what borrows from it")]
        let mut rows = unsafe { std::mem::transmute::<DBRawIterator<'_>, DBRawIterator<'static>>(rows) };
        match direction {
            Direction::Forward => rows.seek(from),
            // The last row below the upper bound.
            Direction::Backward => rows.seek_to_last(),
        }
        RocksCursor { rows, direction, begun: false, _open: open }
    }
}

impl Cursor for RocksCursor {
    fn step(&mut self) -> Result<Step<'_>, BaseError> {
        if self.begun {
            match self.direction {
                Direction::Forward => self.rows.next(),
                Direction::Backward => self.rows.prev(),
            }
        }
        self.begun = true;
        if self.rows.valid() {
            let (key, value) = self.rows.item().expect("the iterator is valid");
            return Ok(Step::Row { key, value });
        }
        match self.rows.status() {
            Ok(()) => Ok(Step::End),
            Err(error) if would_block(&error) => Ok(Step::WouldBlock),
            Err(error) => Err(base_error(error)),
        }
    }
}
