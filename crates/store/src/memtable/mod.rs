//! The memtable: the rows that were written lately, in front of the base. Reads look here first.
//!
//! Rows live in shards by slot, each with a latch that is taken only inside a commit, a lookup or a freeze, in
//! ascending order, and never across I/O. Two generations: `active` takes writes, `frozen` is on its way to the base
//! and never changes. A freeze holds all latches for an instant, so that it cuts at one index: every record up to it is
//! wholly in the frozen generation, every later one wholly in the next. A frozen generation that was flushed is still
//! read until the next freeze.
//!
//! Next: `table` (one generation of one shard), `keys` (its meta rows, in scan order), `objects` and `elements` (the
//! rows of objects), `run` and `entry` (the building blocks of these), `change` (small changes of rows), `prefetch`
//! (many lookups at once).

mod change;
mod elements;
mod entry;
mod keys;
mod objects;
mod prefetch;
mod run;
mod table;

pub use change::{Change, Patch, Splice};
pub use elements::{Elements, Range};
pub use entry::RowEntry;
pub use objects::{ElementRange, ObjectKey};
pub use prefetch::{Fetched, Sought, TOGETHER_MAX};
pub use table::Table;

use crate::access::{Access, Touch};
use crate::row::{Key, SLOTS, Slot, Space, home_slot};
use crate::value::Value;
use haypile_log::Index;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shards, each of `SLOTS / SHARDS` consecutive slots. Enough that workers rarely meet, few enough that a freeze and a
/// look at all of them take microseconds.
pub const SHARDS: usize = 256;
const SLOTS_PER_SHARD: usize = SLOTS / SHARDS;

/// The memtable's answer about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Row(Value, Index),
    Deleted(Index),
    /// The memtable knows nothing of the row: the base has to be asked.
    Unknown,
}

/// Returns the shard of a slot.
pub fn shard_of(slot: Slot) -> usize {
    usize::from(slot.0) / SLOTS_PER_SHARD
}

/// Returns the shard of any row; rows without a slot live in the first one.
pub fn shard_of_row(row: &[u8]) -> usize {
    home_slot(row).map_or(0, shard_of)
}

/// A shard on cache lines of its own: two workers on neighbouring shards do not disturb each other.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The two generations of one shard, under its latch.
pub struct Shard {
    pub active: Table,
    pub frozen: Option<Arc<Table>>,
    /// Whether nothing lies below the memtable: a deleted row then leaves no tombstone, which would stay forever.
    forgets: bool,
}

/// The rows of all shards. Invariant: the bytes of each generation are accounted exactly.
pub struct Memtable {
    shards: Box<[Padded]>,
    active_bytes: AtomicU64,
    frozen_bytes: AtomicU64,
    /// Bytes of the frozen generation once it is in the base and stays only to be read.
    flushed_bytes: AtomicU64,
    /// A lower bound, for each shard, of the deadlines that stand in it: active expiry begins to look there.
    earliest: Box<[AtomicU64]>,
}

/// The latches of all shards, held at once: no record is applied, so that the memtable is that of one index.
pub struct AllLatches<'a> {
    memtable: &'a Memtable,
    shards: Vec<MutexGuard<'a, Shard>>,
}

impl Memtable {
    /// Returns an empty memtable. `over_base` says whether there is a base below, from which a tombstone has to hide
    /// rows.
    pub fn new(over_base: bool) -> Self {
        let shard = || Shard { active: Table::default(), frozen: None, forgets: !over_base };
        Memtable {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(shard()))).collect(),
            active_bytes: AtomicU64::new(0),
            frozen_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
            earliest: (0..SHARDS).map(|_| AtomicU64::new(u64::MAX)).collect(),
        }
    }

    /// Takes the latch of one shard.
    #[inline]
    pub fn latch(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// Takes the latch of a user key's shard.
    #[inline]
    pub fn latch_of(&self, key: &Key<'_>) -> MutexGuard<'_, Shard> {
        self.latch(shard_of(key.slot))
    }

    /// Returns the row of a user key, on which `touch` is left.
    #[inline]
    pub fn meta(&self, key: &Key<'_>, touch: &Touch<'_>) -> Found {
        self.latch_of(key).meta(key, touch)
    }

    /// Returns the result of `look` on a user key's row, if the row is here and no thread holds its shard's latch.
    #[inline]
    pub fn peek<R>(&self, key: &Key<'_>, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.shards[shard_of(key.slot)].0.try_lock()?.find(key)?.value().map(look)
    }

    /// Returns any row that is not a user key's.
    pub fn row(&self, row: &[u8]) -> Found {
        self.latch(shard_of_row(row)).row(row)
    }

    /// Returns whether the frozen generation has no row of a row's object: rows that the base does not have either
    /// leave no tombstone when they are deleted.
    pub fn is_active_only(&self, row: &[u8]) -> bool {
        let latch = self.latch(shard_of_row(row));
        let Some(frozen) = &latch.frozen else { return true };
        ObjectKey::of(row).is_some_and(|(object, _)| frozen.objects.elements(object).is_none())
    }

    /// Returns the bytes of the active generation: keys, values and bookkeeping.
    pub fn active_bytes(&self) -> u64 {
        self.active_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the frozen generation that waits for its flush; 0 if there is none.
    pub fn frozen_bytes(&self) -> u64 {
        self.frozen_bytes.load(Ordering::Relaxed)
    }

    /// Returns an id such that no object with this id or a higher one has rows in the frozen generation.
    pub fn frozen_ids_end(&self) -> u64 {
        let ids_end = |shard| self.latch(shard).frozen.as_ref().map_or(0, |frozen| frozen.objects.ids_end());
        (0..SHARDS).map(ids_end).max().unwrap_or(0)
    }

    /// Returns whether there is a frozen generation, flushed or not.
    pub fn has_frozen(&self) -> bool {
        self.latch(0).frozen.is_some()
    }

    /// Returns the bytes of a generation that was flushed and is still read; 0 if there is none.
    pub fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes.load(Ordering::Relaxed)
    }

    /// Adds the bytes by which a commit made the active generation grow. Most overwrites add none.
    #[inline]
    pub fn account(&self, delta: i64) {
        if delta != 0 {
            let before = self.active_bytes.fetch_add(delta as u64, Ordering::Relaxed);
            debug_assert!(before.checked_add_signed(delta).is_some(), "bytes never go below zero: {before}, {delta}");
        }
    }

    /// Notes a deadline that was put into a shard.
    pub fn note_deadline(&self, shard: usize, deadline_ms: u64) {
        self.earliest[shard].fetch_min(deadline_ms, Ordering::Relaxed);
    }

    /// Returns deadlines up to `now_ms` that stand in the memtable, at most `max`, but for those of dead spaces: row
    /// keys of the expire family. Corrects the bounds on the way. A deadline is found again until it is deleted.
    pub fn due(&self, now_ms: u64, max: usize, is_dead: &dyn Fn(Space) -> bool) -> Vec<Box<[u8]>> {
        let mut due = Vec::new();
        for (shard, earliest) in self.earliest.iter().enumerate() {
            let from_ms = earliest.load(Ordering::Relaxed);
            if from_ms > now_ms {
                continue;
            }
            if due.len() >= max {
                break;
            }
            let latch = self.latch(shard);
            let next = latch.due(from_ms, now_ms, max, is_dead, &mut due);
            earliest.store(next, Ordering::Relaxed);
        }
        due
    }

    /// Takes the latches of all shards, in ascending order.
    pub fn latch_all_shards(&self) -> AllLatches<'_> {
        AllLatches { memtable: self, shards: (0..SHARDS).map(|shard| self.latch(shard)).collect() }
    }

    /// Notes that the frozen generation is in the base. Reads still find it: its room is free until the next one is
    /// frozen, and recently written rows are read often.
    pub fn keep_flushed(&self) {
        assert!(self.has_frozen(), "a generation is flushed while it is in sight");
        let bytes = self.frozen_bytes.swap(0, Ordering::Relaxed);
        let before = self.flushed_bytes.swap(bytes, Ordering::Relaxed);
        assert_eq!(before, 0, "a generation is flushed once");
    }

    /// Takes the frozen generation away from readers and returns it; its rows are in the base.
    pub fn unlink_frozen(&self) -> Vec<Arc<Table>> {
        assert_eq!(self.frozen_bytes(), 0, "a generation is in the base before it is dropped");
        let gone = (0..SHARDS).filter_map(|shard| self.latch(shard).frozen.take()).collect();
        self.flushed_bytes.store(0, Ordering::Relaxed);
        gone
    }
}

impl AllLatches<'_> {
    /// Returns the bytes that the active generation takes, counted anew: for tests of the accounting.
    pub fn count_bytes(&self) -> i64 {
        self.shards.iter().map(|shard| shard.active.count_bytes()).sum()
    }

    /// Makes the active generation the frozen one. Panics if there is one already: the caller has unlinked it.
    pub fn freeze(mut self) -> Vec<Arc<Table>> {
        let mut tables = Vec::with_capacity(SHARDS);
        for shard in &mut self.shards {
            assert!(shard.frozen.is_none(), "a freeze comes only after the flush of the generation before");
            let table = Arc::new(std::mem::take(&mut shard.active));
            shard.frozen = Some(table.clone());
            tables.push(table);
        }
        let bytes = self.memtable.active_bytes.swap(0, Ordering::Relaxed);
        self.memtable.frozen_bytes.store(bytes, Ordering::Relaxed);
        tables
    }
}

impl Shard {
    /// Returns the meta row of a key or its tombstone, from the newest generation that has it.
    #[inline]
    pub fn find(&self, key: &Key<'_>) -> Option<&RowEntry> {
        self.active.find(key).or_else(|| self.frozen.as_ref()?.find(key))
    }

    #[inline]
    pub fn meta(&self, key: &Key<'_>, touch: &Touch<'_>) -> Found {
        let Some(entry) = self.find(key) else { return Found::Unknown };
        entry.stamp().touch(touch);
        entry.found()
    }

    pub fn row(&self, row: &[u8]) -> Found {
        let found = self.active.row(row);
        match (&found, &self.frozen) {
            (Found::Unknown, Some(frozen)) => frozen.row(row),
            _ => found,
        }
    }

    /// Writes a row: the value, or a tombstone. Returns by how much the active generation grew.
    #[inline]
    pub fn put(&mut self, row: &[u8], value: Option<&[u8]>, index: Index, access: Access) -> i64 {
        if value.is_none() && self.forgets {
            return self.active.forget(row);
        }
        self.active.put(row, value, index, access)
    }

    /// Deletes an element that the base does not have: no tombstone is left where the frozen generation does not have
    /// it either.
    pub fn delete_element(&mut self, row: &[u8], index: Index) -> i64 {
        let below = self.frozen.as_ref().and_then(|frozen| frozen.objects.elements(ObjectKey::of(row)?.0));
        match below {
            None => self.active.forget(row),
            Some(below) => self.active.hide(row, below, index),
        }
    }

    /// Applies a small change to a row. `before` is the row where no generation holds it (absent: empty).
    pub fn change(
        &mut self,
        row: &[u8],
        change: Change<'_>,
        mut before: Option<Value>,
        index: Index,
        access: Access,
    ) -> i64 {
        if let Some(grown) = self.active.change(row, change, &mut before, index, access) {
            return grown;
        }
        let older = match self.frozen.as_ref().map_or(Found::Unknown, |frozen| frozen.row(row)) {
            Found::Row(value, _) => Some(value),
            Found::Deleted(_) => None,
            Found::Unknown => before,
        };
        let changed = change.apply(older.as_deref().unwrap_or_default());
        self.active.put(row, Some(&changed), index, access)
    }

    /// Adds deadlines from `from_ms` to `now_ms` to `due`, until it holds `max`; returns the earliest deadline that
    /// stands.
    fn due(
        &self,
        from_ms: u64,
        now_ms: u64,
        max: usize,
        is_dead: &dyn Fn(Space) -> bool,
        due: &mut Vec<Box<[u8]>>,
    ) -> u64 {
        let generations = [Some(&self.active), self.frozen.as_deref()];
        let mut next = u64::MAX;
        for (age, table) in generations.iter().enumerate() {
            let Some(table) = table else { continue };
            for &space in table.spaces().iter().filter(|space| !is_dead(**space)) {
                for (row, deadline_ms) in table.deadlines(space, from_ms) {
                    // The older generation's row stands only if the newer one did not delete it.
                    if age > 0 && self.active.row(row) != Found::Unknown {
                        continue;
                    }
                    next = next.min(deadline_ms);
                    if deadline_ms > now_ms || due.len() >= max {
                        break;
                    }
                    due.push(row.into());
                }
            }
        }
        next
    }
}

/// Returns the spaces that have rows in any of these tables, ascending.
pub fn spaces_of(tables: &[Arc<Table>]) -> Vec<Space> {
    let mut spaces: Vec<Space> = tables.iter().flat_map(|table| table.spaces().iter().copied()).collect();
    spaces.sort_unstable();
    spaces.dedup();
    spaces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memtable whose frozen generation has one row.
    fn with_frozen() -> Memtable {
        let memtable = Memtable::new(true);
        let grown = memtable.latch(0).put(b"row", Some(b"v"), Index(1), Access::at(0));
        memtable.account(grown);
        memtable.latch_all_shards().freeze();
        memtable
    }

    #[test]
    fn a_generation_is_frozen_flushed_and_dropped() {
        let memtable = with_frozen();
        memtable.keep_flushed();
        assert!(memtable.has_frozen() && memtable.flushed_bytes() > 0);
        assert!(!memtable.unlink_frozen().is_empty() && !memtable.has_frozen());
    }

    #[test]
    #[should_panic(expected = "a generation is in the base before it is dropped")]
    fn a_generation_that_is_not_flushed_is_not_dropped() {
        with_frozen().unlink_frozen();
    }

    #[test]
    #[should_panic(expected = "a freeze comes only after the flush of the generation before")]
    fn a_generation_is_not_frozen_over_another_one() {
        with_frozen().latch_all_shards().freeze();
    }

    #[test]
    #[should_panic(expected = "a generation is flushed once")]
    fn a_generation_is_not_flushed_twice() {
        let memtable = with_frozen();
        memtable.keep_flushed();
        memtable.keep_flushed();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "bytes never go below zero")]
    fn bytes_below_zero_are_noticed() {
        Memtable::new(true).account(-1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "records write a row in their order")]
    fn an_older_record_does_not_overwrite_a_newer_one() {
        let memtable = Memtable::new(true);
        let row = crate::row::meta_row(&Key { space: Space(0), slot: Slot(0), hash: 7, name: b"k" });
        let write = |index: u64| memtable.latch(0).put(&row, Some(b"v"), Index(index), Access::at(0));
        write(2);
        write(1);
    }
}
