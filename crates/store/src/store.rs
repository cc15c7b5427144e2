//! `Store`: the log, the memtable on top and the base below, as one. Owns the state that they share; the stories are
//! elsewhere: `open` (start and replay), `txn` (reads and writes), `commit`, `flush`, `visit`, `scan`, `view`.

use crate::access::AccessPolicy;
use crate::apply::staged::Staged;
use crate::attempts::Attempts;
use crate::base::{Base, Lookup, Tier};
use crate::cache::RowCache;
use crate::databases::{Counter, Databases};
use crate::derived::Derived;
use crate::facts::{Facts, KnownFacts};
use crate::flush::dead_rows::DeadRows;
use crate::flush::{FlushControl, Frozen};
use crate::lending::lender::{Lending, Shares};
use crate::memtable::{Memtable, Sought};
use crate::objects::{Objects, lease_row, settled_row};
use crate::options::StoreOptions;
use crate::presence::Presence;
use crate::reclaim::{Orphan, Reclaimer};
use crate::role::{Role, RoleNow};
use crate::row::{self, Key, RowKey, Space, SystemScope, system_row};
use crate::sparse::Sparse;
use crate::stretches::Stretches;
use crate::value::Value;
use crate::watch::Watch;
use haypile_log::{History, Index, Log};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The store: a log, a memtable and a base, and the state that they share.
pub struct Store {
    pub(crate) options: StoreOptions,
    pub(crate) log: Log,
    pub(crate) base: Arc<dyn Base>,
    pub(crate) memtable: Memtable,
    /// The commit that is being applied in steps.
    pub(crate) staged: Staged,
    /// The lock under which an entry of a consensus group is applied: a generation has all of an entry, or nothing.
    pub(crate) entry_turn: Mutex<()>,
    pub(crate) cache: RowCache,
    /// Whether the base is likely to have what neither the memtable nor the row cache has in memory.
    pub(crate) attempts: Attempts,
    pub(crate) lending: Lending,
    pub(crate) presence: Presence,
    pub(crate) derived: Derived,
    pub(crate) databases: Databases,
    pub(crate) facts: KnownFacts,
    /// The members of the store's consensus group, as the member says it; None before the first change.
    pub(crate) members: RwLock<Option<Arc<[u8]>>>,
    pub(crate) objects: Objects,
    pub(crate) flush: FlushControl,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) dead_rows: DeadRows,
    pub(crate) watch: Watch,
    /// The generation on its way to the base, until it is there.
    pub(crate) frozen: Mutex<Option<Arc<Frozen>>>,
    /// The index up to which the base holds everything.
    pub(crate) applied: AtomicU64,
    /// The number of flushes whose rows went from the memtable to the base: a row that was read from the base in an
    /// earlier epoch may be old.
    pub(crate) epoch: AtomicU64,
    pub(crate) hash_seed: AtomicU64,
    pub(crate) blind_set: AtomicBool,
    pub(crate) txn_bytes_max: AtomicU64,
    pub(crate) value_bytes_max: AtomicU64,
    pub access_policy: AccessPolicy,
    pub tunables: crate::tunables::Tunables,
    /// The last record in the memtable while the log is replayed, and while a group's leader is followed. Else the log
    /// knows it.
    pub(crate) replayed: AtomicU64,
    pub(crate) role: RoleNow,
    /// The last record before the first commit: all records up to it were on the disk when the store was opened.
    pub(crate) opened_at: AtomicU64,
    pub(crate) stretches: Stretches,
    pub(crate) sparse: Sparse,
    /// Invariant: no object with this id or a higher one has rows in the base that the memtable does not have too.
    /// Raised when a generation that was flushed is unlinked, before its rows leave the memtable.
    pub(crate) base_ids_end: AtomicU64,
    /// Objects that no key will own: of transactions that wrote ahead and did not commit, and in `engine memory` of
    /// any. While the log is replayed, those of transactions that have not committed yet.
    pub(crate) orphans: Mutex<Vec<Orphan>>,
    pub(crate) view_age_max_ms: AtomicU64,
    /// Bytes that views have copied out of the memtable.
    pub(crate) views_bytes: Arc<AtomicU64>,
    /// The counter that is asked before a command collects much.
    pub(crate) room: OnceLock<Arc<dyn crate::room::Room>>,
    /// Whether the server stops: a command that runs on the I/O pool ends at its next read or write then.
    pub(crate) stops_commands: Arc<AtomicBool>,
    /// Why records say what they do, if they do, and how much (`txn::statements`).
    pub(crate) states: AtomicU8,
    pub(crate) is_closed: AtomicBool,
}

/// The longest value until the configuration says otherwise: the default of Redis's proto-max-bulk-len.
pub(crate) const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Returns the row of the key hash's secret; the value is u64 BE. The base has the row from before the first record,
/// and no record has it.
pub fn hash_seed_row() -> RowKey {
    system_row(SystemScope::Replicated, b"hash-seed")
}

/// Returns the row of the members of the store's consensus group; the value is the group's.
pub(crate) fn members_row() -> RowKey {
    system_row(SystemScope::Replicated, b"members")
}

impl Store {
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the history that this store's next record belongs to.
    pub fn history(&self) -> History {
        self.log.history()
    }

    pub fn hash_seed(&self) -> u64 {
        self.hash_seed.load(Ordering::Relaxed)
    }

    /// Returns the number of databases.
    pub fn databases(&self) -> u32 {
        self.databases.len()
    }

    /// Returns a key of a database as it is now: the caller keeps databases from being exchanged meanwhile.
    #[inline]
    pub fn key<'a>(&self, database: u32, name: &'a [u8]) -> Key<'a> {
        Key {
            space: self.databases.space(database),
            slot: row::slot_of(name),
            hash: row::hash_of(name, self.hash_seed()),
            name,
        }
    }

    /// Prefetches the rows of these keys, all together, and, for keys that `writes` inserts, the rows that they move:
    /// worth it for two keys and more, and never wrong.
    #[inline]
    pub fn prefetch(&self, keys: &[Key<'_>], writes: bool) {
        let missing = self.memtable.prefetch(keys, writes);
        if !missing.is_empty() {
            self.presence.prefetch(missing.iter().map(|key| row::meta_row(key)));
        }
    }

    /// Prefetches the rows of elements of objects; returns how many the memtable has.
    #[inline]
    pub fn prefetch_elements(&self, sought: &[Sought]) -> usize {
        self.memtable.prefetch_elements(sought)
    }

    /// Returns the result of `look` on the meta row of a key, if the memtable has it: for guesses only.
    #[inline]
    pub fn peek<R>(&self, key: &Key<'_>, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.memtable.peek(key, look)
    }

    /// Returns an element's place among the others of its collection.
    #[inline]
    pub fn element_hash(&self, element: &[u8]) -> u32 {
        row::element_hash_of(element, self.hash_seed())
    }

    /// Returns whether this is still how a key of a database is located.
    #[inline]
    pub fn is_in(&self, key: &Key<'_>, database: u32) -> bool {
        key.space == self.databases.space(database)
    }

    /// Returns the database that a space is now; `None` for a dead one.
    pub fn database_of(&self, space: Space) -> Option<u32> {
        self.databases.database_of(space)
    }

    /// Returns the databases that may have keys, in order. A walk over all databases needs only these.
    pub fn counted_databases(&self) -> Vec<u32> {
        self.databases.counted()
    }

    pub fn counter(&self, database: u32, counter: Counter) -> i64 {
        self.databases.counter(self.databases.space(database), counter)
    }

    /// Returns the epoch, which changes only when rows have left the memtable for the base.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn blind_set(&self) -> bool {
        self.blind_set.load(Ordering::Relaxed)
    }

    pub(crate) fn txn_bytes_max(&self) -> u64 {
        self.txn_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets whether a plain SET of a cold key does without a read.
    pub fn set_blind_set(&self, blind: bool) {
        self.blind_set.store(blind, Ordering::Relaxed);
    }

    /// Sets the bound of one transaction.
    pub fn set_txn_bytes_max(&self, bytes: u64) {
        self.txn_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Sets the longest value that a command may make by adding to one.
    pub fn set_value_bytes_max(&self, bytes: u64) {
        self.value_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Divides the memory anew: the size at which a generation of the memtable is frozen, the bounds of the row cache
    /// and of the base's caches. All in bytes.
    pub fn set_memory(&self, memtable_bytes: u64, row_cache_bytes: u64, base_cache_bytes: u64) {
        self.flush.set_memtable_bytes(memtable_bytes);
        self.lending.divide(Shares::of(memtable_bytes, row_cache_bytes));
        // Else the thread that lends moves its bound.
        if !self.lending.is_on() {
            self.cache.set_bytes(row_cache_bytes);
        }
        self.base.set_cache_bytes(base_cache_bytes);
        self.after_commit();
    }

    /// Sets the log bytes above the applied index that start a flush, and the free bytes of the disk below which there
    /// are no writes.
    pub fn set_flush_bounds(&self, log_bytes: u64, disk_free_min_bytes: u64) {
        self.flush.set_log_bytes(log_bytes);
        self.flush.set_disk_free_min_bytes(disk_free_min_bytes);
    }

    /// Ends transactions and views that may read the disk, wherever they are: no client waits for them any more.
    pub fn stop_commands(&self) {
        self.stops_commands.store(true, Ordering::Release);
    }

    /// Ends each commit: wakes the flush if a generation is full.
    #[inline]
    pub(crate) fn after_commit(&self) {
        let active_bytes = self.memtable.active_bytes();
        if active_bytes > self.flush.memtable_bytes() {
            self.flush.request();
        }
        if self.lending.is_near(active_bytes) {
            self.lending.wake();
        }
    }

    /// Returns the facts of this moment. Whether they are durable is not known: a transaction's reply waits for that.
    pub fn facts(&self) -> Arc<Facts> {
        self.facts.now()
    }

    /// Notes a system row that was applied in the parts of the store that keep it in memory.
    pub(crate) fn on_system_row(&self, row: &[u8], value: Option<&[u8]>, index: Index) {
        let number = || value.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        if row == &hash_seed_row()[..] {
            if let Some(seed) = number() {
                self.hash_seed.store(seed, Ordering::Relaxed);
            }
        } else if row == &lease_row()[..] {
            // A leader's lease is noted by the thread that asked for it.
            if let Some(leased) = number().filter(|_| self.role.get() != Role::Leading) {
                self.objects.on_lease(leased);
            }
        } else if row == &settled_row()[..] {
            if let Some(below) = number() {
                self.objects.on_settled(below);
            }
        } else {
            if self.role.get() != Role::Leading {
                self.on_intent(row, value);
            }
            if row == &members_row()[..] {
                *self.members.write() = value.map(Arc::from);
            }
            self.databases.on_system_row(row, value, index);
            self.facts.on_system_row(row, value, index);
        }
    }

    /// Reads a row of the base, from memory or from the disk.
    pub(crate) fn base_value(&self, row: &[u8]) -> Result<Option<Value>, String> {
        match self.base.get(row, Tier::Disk).map_err(|error| error.to_string())? {
            Lookup::Row(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => Err("the base said that a read of the disk would block".into()),
        }
    }

    /// Returns the last record whose effects are in the memtable. Stable only under all latches.
    pub(crate) fn last_applied(&self) -> Index {
        match self.role.get() {
            Role::Replaying => Index(self.replayed.load(Ordering::Acquire)),
            Role::Following if self.options.in_group => Index(self.replayed.load(Ordering::Acquire)),
            Role::Following | Role::Leading => self.log.last(),
        }
    }

    /// Returns whether a commit in flight changes a key together with very many others: such a key is read under its
    /// lock only.
    #[inline]
    pub fn is_staged(&self, key: &Key<'_>) -> bool {
        self.staged.holds(key)
    }

    /// Sets the counter that is asked for room.
    pub fn set_room(&self, room: Arc<dyn crate::room::Room>) {
        // Once for each store that is opened.
        let _ = self.room.set(room);
    }

    /// Returns the base's bytes on disk.
    pub fn base_disk_bytes(&self) -> u64 {
        self.base.disk_bytes()
    }
}
