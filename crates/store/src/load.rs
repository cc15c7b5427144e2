//! A load: whole transactions go to the base past the log and the memtable, their rows sorted, in one step at the end.
//! For an exclusive caller that brings many rows into a store that holds nothing yet: each row is written once, or
//! twice where memory does not hold all of them.
//!
//! Until that step no row of the load is there, neither for readers nor after a crash. Other keys may be committed
//! meanwhile.

use crate::base::{BaseError, Cursor, Direction, Rows, Step, Tier};
use crate::databases::{COUNTERS, CountsAt, counts_row, encode_counts};
use crate::flush::sorted::OwnRows;
use crate::flush::{Frozen, applied_row, encode_applied};
use crate::row::{Family, RowKey, Space, parse_meta_row};
use crate::spool::sorter::{Sorted, Sorter};
use crate::stop::Stop;
use crate::store::Store;
use crate::txn::Txn;
use haypile_log::HistoryStart;
use parking_lot::MutexGuard;
use std::collections::{BTreeMap, btree_map};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows between two looks at the load's progress and the disk's room.
const TELL_ROWS: u64 = 4096;

/// A load in progress. Made by `Store::load`.
pub struct Load<'s> {
    store: &'s Store,
    rows: Sorter,
    counts: BTreeMap<Space, CountsAt>,
    /// The error after which the load takes nothing more: of one transaction, not all may be among the rows.
    failed: Option<BaseError>,
}

/// The reason why nothing was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// A key came twice.
    Twice { database: Option<u32>, name: Vec<u8> },
    /// The disk failed or is full.
    Failed(String),
}

impl Store {
    /// Begins a load, of which up to `bytes_max` bytes stay in memory; the others go to a file in `directory`. `None`
    /// if the store holds anything.
    ///
    /// # Errors
    /// The base cannot be read or written.
    pub fn load(&self, directory: &Path, bytes_max: usize) -> Result<Option<Load<'_>>, String> {
        self.flush_now()?;
        let (from, until) = ([Family::Meta as u8], [Family::System as u8]);
        let mut rows = self.base.scan(&from, &until, Direction::Forward, Tier::Disk).map_err(|e| e.to_string())?;
        match rows.step().map_err(|error| error.to_string())? {
            Step::End => {}
            Step::Row { .. } | Step::WouldBlock => return Ok(None),
        }
        let rows = Sorter::new(directory.to_owned(), bytes_max);
        Ok(Some(Load { store: self, rows, counts: BTreeMap::new(), failed: None }))
    }
}

impl Load<'_> {
    /// Takes a transaction's writes, in place of its commit. Returns false, and takes nothing, if some of them are in
    /// the log already: then the transaction is to be committed.
    ///
    /// # Errors
    /// The sorted rows cannot be written to their file. Nothing will be loaded.
    pub fn take(&mut self, txn: &mut Txn<'_>) -> Result<bool, Stop> {
        assert!(!txn.committed, "a transaction ends once");
        if txn.overlay.was_written_ahead() {
            return Ok(false);
        }
        for (row, value) in txn.overlay.last() {
            // An empty base has no row that the deletion would hide.
            let Some(value) = value else { continue };
            if self.rows.push(row, &value)
                && let Err(error) = self.store.has_room(self.rows.bytes()).and_then(|()| self.rows.spill())
            {
                self.failed = Some(error.clone());
                return Err(Stop::Failed(error.to_string()));
            }
        }
        for &(space, counter, delta) in &txn.counts {
            self.counts.entry(space).or_default()[counter as usize] += delta;
        }
        txn.committed = true;
        Ok(true)
    }

    /// Brings all rows into the base, or none. `told` gets, now and then, the number of rows that have been written,
    /// and of all.
    ///
    /// # Errors
    /// A key came twice, or the disk failed or is full. Nothing was loaded.
    pub fn finish(self, told: impl FnMut(u64, u64)) -> Result<(), LoadError> {
        let Load { store, rows, counts, failed: why } = self;
        why.map_or(Ok(()), |error| Err(failed(error)))?;
        // The guard is held to the end, so that no flush comes between the counters and their rows.
        let (_frozen, start) = store.begin_loaded()?;
        if let Err(error) = store.take_loaded(rows, &counts, start, told) {
            store.abandon_loaded(start)?;
            return Err(error);
        }
        store.log.purge(start.after());
        for (space, counts) in counts {
            for (counter, delta) in (0..).zip(counts) {
                store.databases.add(space, counter, delta);
            }
        }
        store.on_loaded();
        Ok(())
    }
}

fn failed(error: BaseError) -> LoadError {
    LoadError::Failed(error.to_string())
}

impl Store {
    /// Begins a history right behind the last record that the base has, and keeps flushes out as long as the guard is
    /// held.
    fn begin_loaded(&self) -> Result<(MutexGuard<'_, Option<Arc<Frozen>>>, HistoryStart), LoadError> {
        loop {
            // Ids are leased in the base before it has rows of their objects.
            self.flush_now().map_err(LoadError::Failed)?;
            let frozen = self.frozen.lock();
            if frozen.is_some() || self.last_applied().0 > self.applied.load(Ordering::Acquire) {
                continue;
            }
            // The loaded rows have no records: a copy that has all records up to now does not have all data. So the log
            // begins a new history.
            let start = self.log.begin_loaded_history().map_err(|error| LoadError::Failed(error.to_string()))?;
            if start.after().0 == self.applied.load(Ordering::Acquire) {
                return Ok((frozen, start));
            }
            // The base lacks a record before it: that of a transaction which came between.
            self.abandon_loaded(start)?;
        }
    }

    /// Leaves the history of a load whose rows the base has not taken: it would be refused without them.
    fn abandon_loaded(&self, start: HistoryStart) -> Result<(), LoadError> {
        self.log.abandon_loaded_history(start).map_err(|error| LoadError::Failed(error.to_string()))
    }

    /// Brings the rows of a load into the base, with what it says of itself behind them: all of it, or nothing.
    fn take_loaded(
        &self,
        rows: Sorter,
        counts: &BTreeMap<Space, CountsAt>,
        start: HistoryStart,
        told: impl FnMut(u64, u64),
    ) -> Result<(), LoadError> {
        let mut counted = counts.clone();
        for (space, now) in self.databases.counts_now() {
            let sum = counted.entry(space).or_insert([0; COUNTERS]);
            sum.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
        }
        let mut own: OwnRows =
            counted.iter().map(|(space, counts)| (counts_row(*space), Some(encode_counts(counts)))).collect();
        own.insert(applied_row(), Some(encode_applied(start.after(), start.history)));
        let (count, bytes_max) = (rows.rows(), rows.bytes_max());
        let mut rows = Loaded {
            store: self,
            rows: rows.sorted(bytes_max).map_err(failed)?,
            last: Vec::new(),
            below: Below::new(self).map_err(failed)?,
            own: own.into_iter(),
            of_own: None,
            twice: None,
            done: 0,
            count,
            told,
        };
        let taken = self.base.ingest(&mut rows);
        if let Some(row) = &rows.twice
            && let Some(key) = parse_meta_row(row)
        {
            return Err(LoadError::Twice { database: self.databases.database_of(key.space), name: key.name.to_vec() });
        }
        taken.map_err(failed)
    }

    /// Returns an error unless the disk has room for so many bytes and `disk-free-min`.
    pub(crate) fn has_room(&self, bytes: usize) -> Result<(), BaseError> {
        let (free, least) = (self.disk_free(), self.flush.disk_free_min_bytes());
        if free >= least.saturating_add(bytes as u64) {
            return Ok(());
        }
        Err(BaseError::Full(format!("it has {free} bytes left, too few for {bytes} more and `disk-free-min`")))
    }

    /// Forgets what is known of the base, which has rows that never were in the memtable: of objects with any id that
    /// was given out so far.
    fn on_loaded(&self) {
        self.base_ids_end.fetch_max(self.objects.issued_below(), Ordering::AcqRel);
        self.presence.forget();
        self.cache.clear();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.stretches.clear();
    }
}

/// Rows of a load on their way to the base.
struct Loaded<'s, T> {
    store: &'s Store,
    rows: Sorted,
    /// The key of the last meta row that passed.
    last: Vec<u8>,
    below: Below<'s>,
    /// The system rows, which come last.
    own: btree_map::IntoIter<RowKey, Option<Vec<u8>>>,
    of_own: Option<(RowKey, Option<Vec<u8>>)>,
    /// The meta row of a key that came twice.
    twice: Option<RowKey>,
    done: u64,
    count: u64,
    told: T,
}

impl<T: FnMut(u64, u64)> Rows for Loaded<'_, T> {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        if let Some((row, value)) = self.rows.next_row()? {
            if row[0] == Family::Meta as u8 {
                if self.last == row || self.below.has(row)? {
                    self.twice = Some(RowKey::from_slice(row));
                    return Err(BaseError::Failed("a key was loaded twice".into()));
                }
                self.last.clear();
                self.last.extend_from_slice(row);
            }
            self.done += 1;
            if self.done.is_multiple_of(TELL_ROWS) {
                self.store.has_room(0)?;
                (self.told)(self.done, self.count);
            }
            return Ok(Some((row, Some(value))));
        }
        self.of_own = self.own.next();
        Ok(self.of_own.as_ref().map(|(row, value)| (&row[..], value.as_deref())))
    }
}

/// A walk over the keys that were committed while the load went on, side by side with the loaded ones.
struct Below<'s> {
    cursor: Box<dyn Cursor + 's>,
    /// The next row; empty behind the last one.
    row: Vec<u8>,
}

impl<'s> Below<'s> {
    fn new(store: &'s Store) -> Result<Below<'s>, BaseError> {
        let (from, until) = ([Family::Meta as u8], [Family::Data as u8]);
        let cursor = store.base.scan(&from, &until, Direction::Forward, Tier::Disk)?;
        let mut below = Below { cursor, row: Vec::new() };
        below.advance()?;
        Ok(below)
    }

    fn advance(&mut self) -> Result<(), BaseError> {
        self.row.clear();
        match self.cursor.step()? {
            Step::Row { key, .. } => self.row.extend_from_slice(key),
            Step::End | Step::WouldBlock => {}
        }
        Ok(())
    }

    /// Returns whether a row is among the committed ones. Asked in ascending order.
    fn has(&mut self, row: &[u8]) -> Result<bool, BaseError> {
        while !self.row.is_empty() && &self.row[..] < row {
            self.advance()?;
        }
        Ok(self.row == row)
    }
}
