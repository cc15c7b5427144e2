//! Writes, buffered in the bytes of the record that they will be: rows, small changes of rows, counters, databases.

use super::{AHEAD_BYTES, Txn};
use crate::databases::Counter;
use crate::memtable::{Change, Patch, Splice};
use crate::row::{self, Key, ObjectId, Space};
use crate::stop::{Mode, Stop};
use crate::txn::own::{print_of_key, print_of_row};
use crate::value::Value;
use std::sync::atomic::Ordering;

/// The bytes of an effect and of a meta row beside the key's name and its value.
const AROUND_NAME: usize = 24;

impl Txn<'_> {
    /// Makes room for the writes of so many keys, whose names and values have so many bytes together, if they are the
    /// first ones.
    pub fn reserve(&mut self, keys: usize, bytes: usize) {
        self.overlay.reserve_first(keys, (keys * AROUND_NAME + bytes).min(self.store.txn_bytes_max() as usize));
    }

    /// Writes the meta row of a key: the parts, one after the other.
    #[inline]
    pub fn put_meta(&mut self, key: &Key<'_>, parts: &[&[u8]]) -> Result<(), Stop> {
        if !self.lapsed.is_empty() {
            self.lapsed.retain(|lapsed| (lapsed.space, &*lapsed.name) != (key.space, key.name));
        }
        // A key that was deleted here is a new one, unless an access was noted for it since.
        if self.keeps_accesses()
            && self.own_key(key).is_some_and(|at| !self.overlay.is_there(at))
            && !self.has_noted_access(key)
        {
            self.forget_access(key);
        }
        let prefix = row::meta_prefix(key);
        self.overlay.put(print_of_key(key), &[&prefix, key.name], parts, false);
        self.bounded()
    }

    #[inline]
    pub fn delete_meta(&mut self, key: &Key<'_>) -> Result<(), Stop> {
        if self.has_noted_access(key) {
            self.forget_access(key);
        }
        let prefix = row::meta_prefix(key);
        self.overlay.delete(print_of_key(key), &[&prefix, key.name], false);
        self.bounded()
    }

    /// Writes any other row. Rows of an object that this transaction made may be written ahead of the rest.
    pub fn put_row(&mut self, row: &[u8], parts: &[&[u8]]) -> Result<(), Stop> {
        let is_ahead = self.is_ahead(row);
        self.overlay.put(print_of_row(row), &[row], parts, is_ahead);
        self.spill()
    }

    /// Returns whether no key can name the row yet: it is an element of an object that this transaction made.
    fn is_ahead(&self, row: &[u8]) -> bool {
        !self.issued.is_empty()
            && row::Family::of(row) != Some(row::Family::Owner)
            && row::object_of(row).is_some_and(|id| self.issued[self.issued_before..].contains(&id))
    }

    fn spill(&mut self) -> Result<(), Stop> {
        if self.overlay.ahead_bytes() > AHEAD_BYTES {
            self.write_ahead()?;
        }
        self.bounded()
    }

    /// Writes `bytes` at `offset` of a row that is `len_after` bytes long afterwards, zero-extended or cut. Only the
    /// change goes into the log.
    pub fn patch_row(&mut self, row: &[u8], offset: u32, bytes: &[u8], len_after: u32) -> Result<(), Stop> {
        // The row below is read now: it must be in memory when the change is applied.
        let before = if self.own_row(row).is_some() { None } else { self.row(row)? };
        self.patch_read_row(row, before, offset, bytes, len_after)
    }

    /// Patches a row (`patch_row`) that the caller has just read, and gives back: `read` is the only other handle, if
    /// the row shall change in place.
    pub fn patch_read_row(
        &mut self,
        row: &[u8],
        read: Option<Value>,
        offset: u32,
        bytes: &[u8],
        len_after: u32,
    ) -> Result<(), Stop> {
        self.change_row(row, self.own_row(row), read, Change::Patch(Patch { offset, bytes, len_after }))
    }

    /// Puts `bytes` in place of the `removed` ones at `offset` of a row, a missing one being empty; the bytes behind
    /// them move. Only the change goes into the log. Panics if the row is shorter than that.
    pub fn splice_row(&mut self, row: &[u8], offset: u32, removed: u32, bytes: &[u8]) -> Result<(), Stop> {
        let before = if self.own_row(row).is_some() { None } else { self.row(row)? };
        self.splice_read_row(row, before, offset, removed, bytes)
    }

    /// Splices a row (`splice_row`) that the caller has just read, and gives back, as to `patch_read_row`.
    pub fn splice_read_row(
        &mut self,
        row: &[u8],
        read: Option<Value>,
        offset: u32,
        removed: u32,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let earlier = self.own_row(row);
        let len_before = match earlier {
            Some(at) => self.overlay.len_at(at),
            None => read.as_ref().map_or(0, |row| row.len()),
        };
        assert!(offset as usize + removed as usize <= len_before, "a splice lies inside the row it finds");
        let len_after = u32::try_from(len_before - removed as usize + bytes.len());
        let len_after = len_after.expect("the caller bounds a row far below 4 GiB");
        self.change_row(row, earlier, read, Change::Splice(Splice { offset, removed, bytes, len_after }))
    }

    fn change_row(
        &mut self,
        row: &[u8],
        earlier: Option<usize>,
        read: Option<Value>,
        change: Change<'_>,
    ) -> Result<(), Stop> {
        assert!(change.fits(), "a change lies inside the row it leaves");
        let before = if earlier.is_some() { None } else { read };
        let is_ahead = self.is_ahead(row);
        self.overlay.change(print_of_row(row), row, change, before, earlier, is_ahead);
        self.spill()
    }

    /// Patches (`patch_row`) the meta row of a key.
    pub fn patch_meta(&mut self, key: &Key<'_>, offset: u32, bytes: &[u8], len_after: u32) -> Result<(), Stop> {
        self.patch_row(&row::meta_row(key), offset, bytes, len_after)
    }

    pub fn delete_row(&mut self, row: &[u8]) -> Result<(), Stop> {
        let is_ahead = self.is_ahead(row);
        self.overlay.delete(print_of_row(row), &[row], is_ahead);
        self.bounded()
    }

    fn bounded(&self) -> Result<(), Stop> {
        if self.overlay.main_bytes() as u64 > self.store.txn_bytes_max() { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Names a key whose value this transaction changes, and whose meta row stays as it is. Invariant: a record names
    /// each key whose elements it writes, by this or by its meta row.
    pub fn touch_key(&mut self, key: &Key<'_>) {
        let row = row::meta_row(key);
        // A MULTI block may name very many keys, which are told apart when it commits.
        if self.named.last() != Some(&row) {
            self.named.push(row);
        }
    }

    /// Adds to a counter of a space, as a part of this transaction's record.
    #[inline]
    pub fn count(&mut self, space: Space, counter: Counter, delta: i64) {
        match self.counts.iter_mut().find(|(at, which, _)| (*at, *which) == (space, counter)) {
            Some((_, _, sum)) => *sum += delta,
            None => self.counts.push((space, counter, delta)),
        }
    }

    /// Returns a counter with this transaction's own changes.
    pub fn counter(&mut self, space: Space, counter: Counter) -> i64 {
        let sum = self.peek_counter(space, counter);
        // The counter stands for all records so far. The record with which a log begins is no commit, and waits where
        // there is no room.
        let last = self.store.log.last();
        if last.0 > self.store.opened_at.load(Ordering::Relaxed) || self.store.log.asks_others() {
            self.gate.rise(last);
        }
        sum
    }

    /// Returns a counter that need not last, with this transaction's own changes: for INFO.
    pub fn peek_counter(&self, space: Space, counter: Counter) -> i64 {
        let committed = self.store.databases.counter(space, counter);
        let pending = if self.committed { &[][..] } else { &self.counts[..] };
        let own: i64 =
            pending.iter().filter(|(at, which, _)| (*at, *which) == (space, counter)).map(|(_, _, delta)| delta).sum();
        committed + own
    }

    /// Returns a fresh object id, whose rows no other transaction can name.
    pub fn new_object(&mut self) -> Result<ObjectId, Stop> {
        let id = match self.call.mode {
            // Objects of a dry run never come to be.
            Mode::Look | Mode::Load => ObjectId(u64::MAX - 1 - self.issued.len() as u64),
            mode => self.store.issue_object(mode)?,
        };
        self.issued.push(id);
        Ok(id)
    }

    /// Gives a database a fresh, empty space; the old space's rows are garbage from then on. The caller holds the
    /// exclusive lock.
    pub fn flush_database(&mut self, database: u32) -> Result<(), Stop> {
        use crate::databases::{database_row, dead_row, next_space_row};
        let old = self.space(database);
        let fresh = self.next_space.unwrap_or_else(|| self.store.databases.next_space());
        let next = Space(fresh.0.checked_add(1).ok_or_else(|| Stop::Failed("all spaces are used up".into()))?);
        self.put_row(&database_row(database), &[&fresh.0.to_be_bytes()])?;
        self.put_row(&next_space_row(), &[&next.0.to_be_bytes()])?;
        self.put_row(&dead_row(old), &[])?;
        self.counts.retain(|(space, _, _)| *space != old);
        self.moved.push((database, fresh));
        self.next_space = Some(next);
        Ok(())
    }

    /// Swaps what two databases hold. The caller holds the exclusive lock.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Result<(), Stop> {
        use crate::databases::database_row;
        let (space_a, space_b) = (self.space(a), self.space(b));
        self.put_row(&database_row(a), &[&space_b.0.to_be_bytes()])?;
        self.put_row(&database_row(b), &[&space_a.0.to_be_bytes()])?;
        self.moved.extend([(a, space_b), (b, space_a)]);
        Ok(())
    }
}
