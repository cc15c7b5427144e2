//! `Store`: the log, the memtable on top and the base below, as one. Owns what they share; the stories are elsewhere:
//! `open` (start and replay), `txn` (reads and writes), `commit`, `flush`, `visit`, `scan`, `view`.

use crate::access::AccessPolicy;
use crate::apply::staged::Staged;
use crate::base::{Base, Direction, Lookup, Tier};
use crate::cache::RowCache;
use crate::databases::{Counter, Databases};
use crate::flush::dying::Dying;
use crate::flush::{FlushControl, Frozen};
use crate::memtable::{Memtable, Sought};
use crate::objects::{Objects, lease_row, settled_row};
use crate::presence::Presence;
use crate::reclaim::{Orphan, Reclaimer};
use crate::reserve::Reserve;
use crate::role::{Role, RoleNow};
use crate::row::{self, Key, ObjectId, RowKey, Space, SystemScope, system_row};
use crate::txn::{Call, Mode, Stop, Txn, TxnBuffers};
use crate::value::Value;
use crate::watch::Watch;
use haypile_log::{AppendError, Body, History, Index, Log, Reservation};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Asks the disk for its free bytes.
#[derive(Clone)]
pub struct DiskFree(pub Arc<dyn Fn() -> Option<u64> + Send + Sync>);

impl std::fmt::Debug for DiskFree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskFree({:?})", (self.0)())
    }
}

/// What a store is opened with. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// How the log is kept; its `dir` is the log's own directory.
    pub log: haypile_log::Options,
    pub databases: u32,
    /// A generation of the memtable is frozen at this size.
    pub memtable_bytes: u64,
    /// Or when so much of the log would have to be replayed.
    pub flush_log_bytes: u64,
    /// 0 switches the row cache off.
    pub row_cache_bytes: u64,
    pub presence_bytes: u64,
    /// Bound of one transaction's record.
    pub txn_bytes_max: u64,
    /// Whether a plain SET of a cold key does without reading whether it exists; DBSIZE is an estimate then.
    pub blind_set: bool,
    /// No base: nothing is ever flushed, `memtable_bytes` is the bound of the data, nothing survives a stop.
    pub memory_only: bool,
    /// Writes stop while the disk has less room than this, beside what is still to be flushed. 0: they never stop.
    pub disk_free_min_bytes: u64,
    /// Free bytes of the disk, if they can be told.
    pub disk_free: DiskFree,
    /// Holds a part of `disk_free_min_bytes`.
    pub reserve: Option<Arc<Reserve>>,
    /// The secret of a new store's key hashes. An existing one keeps its own.
    pub hash_seed: u64,
}

/// How willing the store is to take writes: asked before locks are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WritePressure {
    Go,
    /// The flush is falling behind: wait so long before the next write.
    Slow(Duration),
    /// No writes now; the text of the error reply. Reads go on.
    Stop(String),
}

/// A deadline that has passed, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub space: Space,
    pub deadline_ms: u64,
    pub name: Vec<u8>,
}

impl Due {
    fn of(row: &[u8]) -> Option<Due> {
        row::parse_expire_row(row).map(|(deadline_ms, key)| Due {
            space: key.space,
            deadline_ms,
            name: key.name.to_vec(),
        })
    }
}

/// See the file's head.
pub struct Store {
    pub(crate) options: StoreOptions,
    pub(crate) log: Log,
    pub(crate) base: Arc<dyn Base>,
    pub(crate) memtable: Memtable,
    /// The commit that is being applied in steps.
    pub(crate) staged: Staged,
    pub(crate) cache: RowCache,
    pub(crate) presence: Presence,
    pub(crate) databases: Databases,
    pub(crate) objects: Objects,
    pub(crate) flush: FlushControl,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) dying: Dying,
    pub(crate) watch: Watch,
    /// The generation on its way to the base, until it is there.
    pub(crate) frozen: Mutex<Option<Arc<Frozen>>>,
    /// The index up to which the base holds everything.
    pub(crate) applied: AtomicU64,
    /// Flushes whose rows went from the memtable to the base: what was read from the base in an earlier epoch may be
    /// old.
    pub(crate) epoch: AtomicU64,
    pub(crate) hash_seed: AtomicU64,
    pub(crate) blind_set: AtomicBool,
    pub(crate) txn_bytes_max: AtomicU64,
    pub(crate) value_bytes_max: AtomicU64,
    pub access_policy: AccessPolicy,
    pub encoding_limits: crate::limits::EncodingLimits,
    /// While the log is replayed: the last record in the memtable. Afterwards the log says.
    pub(crate) replayed: AtomicU64,
    pub(crate) role: RoleNow,
    /// The last record before the first commit: all that came before was on the disk when the store was opened.
    pub(crate) opened_at: AtomicU64,
    /// No object with this id or a higher one has rows in the base that the memtable does not have too: raised when a
    /// generation that was flushed is let go of, before its rows leave the memtable.
    pub(crate) base_ids_end: AtomicU64,
    /// Objects that nobody will own: of transactions that wrote ahead and did not commit, and in `engine memory` of
    /// any. While the log is replayed, those of transactions that have not committed yet.
    pub(crate) orphans: Mutex<Vec<Orphan>>,
    pub(crate) view_age_max_ms: AtomicU64,
    /// What views have copied out of the memtable.
    pub(crate) views_bytes: Arc<AtomicU64>,
    /// Asked before a command collects much.
    pub(crate) room: OnceLock<Arc<dyn crate::room::Room>>,
    /// Set when the server stops: what runs on the I/O pool ends at its next read or write.
    pub(crate) stops_commands: Arc<AtomicBool>,
    pub(crate) is_closed: AtomicBool,
}

/// While a generation is on its way to the base, writers are slowed once the next one is so full, in parts of the size
/// at which it is frozen itself: early enough that they hardly ever get to the end of it.
const SLOW_FROM: f64 = 0.75;

/// And from here on there are none, if the generation has been on its way for longer than `LATE`: before that, one very
/// large transaction may have filled the next one beyond its size.
const SLOW_UNTIL: f64 = 1.5;
const LATE: Duration = Duration::from_secs(5);

/// The wait where a generation is full and will be frozen at once.
const FREEZE_WAIT: Duration = Duration::from_millis(1);

/// The longest value until the configuration says otherwise: the default of Redis's proto-max-bulk-len.
pub(crate) const VALUE_BYTES_MAX: u64 = 512 << 20;

const TOO_FAR_BEHIND: &str = "MISCONF Haypile cannot write: the disk is too far behind. Reads go on.";

/// The longest wait of one write. It grows with the fourth power of the way between: 12 ms where the next generation is
/// full, less than 1 ms until nine tenths of it are.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// How often what is written ahead on the I/O pool looks whether there is room again.
const ROOM_LOOK: Duration = Duration::from_millis(5);

/// How long a command on the I/O pool waits for room in the log or the memtable.
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long what is written ahead waits for the flush: it may be the rest of a command that has run for minutes, and
/// holds up nobody but those who want its keys.
const AHEAD_WAIT: Duration = Duration::from_secs(120);

/// The key hash's secret, as u64 BE. In the base from before the first record, and in none.
pub fn hash_seed_row() -> RowKey {
    system_row(SystemScope::Replicated, b"hash-seed")
}

impl Store {
    /// Begins a transaction. It borrows the memory of `buffers`; `Txn::finish` gives it back.
    #[inline]
    pub fn begin<'s>(&'s self, buffers: TxnBuffers, call: Call<'s>) -> Txn<'s> {
        Txn::new(self, buffers, call)
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The history that this store's next record belongs to.
    pub fn history(&self) -> History {
        self.log.history()
    }

    pub fn hash_seed(&self) -> u64 {
        self.hash_seed.load(Ordering::Relaxed)
    }

    /// The number of databases.
    pub fn databases(&self) -> u32 {
        self.databases.len()
    }

    /// A key of a database as it is now: the caller keeps databases from being exchanged meanwhile.
    #[inline]
    pub fn key<'a>(&self, database: u32, name: &'a [u8]) -> Key<'a> {
        Key {
            space: self.databases.space(database),
            slot: row::slot_of(name),
            hash: row::hash_of(name, self.hash_seed()),
            name,
        }
    }

    /// Brings what lookups of these keys need into the CPU's caches, all together, and where `writes` what insertions
    /// move: worth it for two and more, and never wrong.
    #[inline]
    pub fn prefetch(&self, keys: &[Key<'_>], writes: bool) {
        let missing = self.memtable.prefetch(keys, writes);
        if !missing.is_empty() {
            self.presence.prefetch(missing.iter().map(|key| row::meta_row(key)));
        }
    }

    /// The same for elements of objects; says how many the memtable has.
    #[inline]
    pub fn prefetch_elements(&self, sought: &[Sought]) -> usize {
        self.memtable.prefetch_elements(sought)
    }

    /// What `look` makes of the meta row of a key, if the memtable has it: for guesses only.
    #[inline]
    pub fn peek<R>(&self, key: &Key<'_>, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.memtable.peek(key, look)
    }

    /// Where an element of a collection stands among the others.
    #[inline]
    pub fn element_hash(&self, element: &[u8]) -> u32 {
        row::element_hash_of(element, self.hash_seed())
    }

    /// Whether this is still how a key of a database is located.
    #[inline]
    pub fn is_in(&self, key: &Key<'_>, database: u32) -> bool {
        key.space == self.databases.space(database)
    }

    /// The database that a space is now; `None` for a dead one.
    pub fn database_of(&self, space: Space) -> Option<u32> {
        self.databases.database_of(space)
    }

    /// The databases that may have keys, in order. Whoever walks over all of them needs only these.
    pub fn counted_databases(&self) -> Vec<u32> {
        self.databases.counted()
    }

    pub fn counter(&self, database: u32, counter: Counter) -> i64 {
        self.databases.counter(self.databases.space(database), counter)
    }

    /// Changes only when rows have left the memtable for the base.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn blind_set(&self) -> bool {
        self.blind_set.load(Ordering::Relaxed)
    }

    pub(crate) fn txn_bytes_max(&self) -> u64 {
        self.txn_bytes_max.load(Ordering::Relaxed)
    }

    /// Whether a plain SET of a cold key does without a read, from now on.
    pub fn set_blind_set(&self, blind: bool) {
        self.blind_set.store(blind, Ordering::Relaxed);
    }

    /// The bound of one transaction, from now on.
    pub fn set_txn_bytes_max(&self, bytes: u64) {
        self.txn_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The longest value that a command may make by adding to one, from now on.
    pub fn set_value_bytes_max(&self, bytes: u64) {
        self.value_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether writes may come, should slow down, or must stop.
    pub fn pressure(&self) -> WritePressure {
        let stopped = self.flush.stopped(false);
        let is_beyond = stopped.is_none() && self.memtable.active_bytes() > self.flush.active_bytes_max();
        self.pressure_unless(if is_beyond { Some(self.short_of_disk()) } else { stopped })
    }

    /// Whether writes are refused now.
    pub fn refuses_writes(&self) -> bool {
        matches!(self.pressure(), WritePressure::Stop(_))
    }

    fn pressure_unless(&self, stopped: Option<String>) -> WritePressure {
        if let Some(why) = stopped {
            return WritePressure::Stop(why);
        }
        let part = self.memtable.active_bytes() as f64 / self.flush.memtable_bytes() as f64;
        if part < SLOW_FROM {
            return WritePressure::Go;
        }
        if self.options.memory_only {
            let why = "OOM command not allowed when used memory > 'maxmemory'.";
            return if part <= 1.0 { WritePressure::Go } else { WritePressure::Stop(why.into()) };
        }
        if let Some(failure) = self.flush.failure().filter(|_| part > 1.0) {
            return WritePressure::Stop(format!("MISCONF Haypile cannot write: {failure}. Reads go on."));
        }
        if self.memtable.frozen_bytes() == 0 {
            // It is frozen as soon as it is full.
            return if part <= 1.0 { WritePressure::Go } else { WritePressure::Slow(FREEZE_WAIT) };
        }
        if part >= SLOW_UNTIL && self.flush.age() > LATE {
            return WritePressure::Stop(TOO_FAR_BEHIND.into());
        }
        let way = ((part - SLOW_FROM) / (SLOW_UNTIL - SLOW_FROM)).min(1.0);
        WritePressure::Slow(SLOW_MAX.mul_f64(way.powi(4)))
    }

    /// The same for a command that cannot make the data larger: in `engine memory`, and on a disk that is short, it is
    /// what makes room.
    pub fn pressure_to_shrink(&self) -> WritePressure {
        let stopped = self.flush.stopped(true);
        // A flush that fails for want of room may need what is deleted now.
        let has_memory = || self.memtable.active_bytes() as f64 <= self.flush.memtable_bytes() as f64 * SLOW_UNTIL;
        if stopped.is_none() && (self.options.memory_only || self.flush.failure().is_some() && has_memory()) {
            return WritePressure::Go;
        }
        self.pressure_unless(stopped)
    }

    /// Divides the memory anew, from now on: the size at which a generation of the memtable is frozen, the bounds of
    /// the row cache and of the base's caches. All in bytes.
    pub fn set_memory(&self, memtable_bytes: u64, row_cache_bytes: u64, base_cache_bytes: u64) {
        self.flush.set_memtable_bytes(memtable_bytes);
        self.cache.set_bytes(row_cache_bytes);
        self.base.set_cache_bytes(base_cache_bytes);
        self.after_commit();
    }

    /// Log bytes above the applied index that start a flush, and free bytes of the disk below which there are no
    /// writes, from now on.
    pub fn set_flush_bounds(&self, log_bytes: u64, disk_free_min_bytes: u64) {
        self.flush.set_log_bytes(log_bytes);
        self.flush.set_disk_free_min_bytes(disk_free_min_bytes);
    }

    /// Blocks until the store takes more, for who writes much: what is written ahead on the I/O pool, and an import.
    /// Until a flush has made room, because more is going to come.
    pub fn wait_for_room(&self) -> Result<(), Stop> {
        let started = Instant::now();
        loop {
            match self.pressure() {
                WritePressure::Go => return Ok(()),
                WritePressure::Slow(_) if started.elapsed() < AHEAD_WAIT => self.flush.wait_for_progress(ROOM_LOOK),
                WritePressure::Slow(_) => return Err(Stop::Refused(TOO_FAR_BEHIND.into())),
                WritePressure::Stop(why) => return Err(Stop::Refused(why)),
            }
        }
    }

    /// Ends transactions and views that may read the disk, wherever they are: nobody waits for them any more.
    pub fn stop_commands(&self) {
        self.stops_commands.store(true, Ordering::Release);
    }

    /// What every commit does last: wakes the flush if a generation is full.
    #[inline]
    pub(crate) fn after_commit(&self) {
        if self.memtable.active_bytes() > self.flush.memtable_bytes() {
            self.flush.request();
        }
    }

    /// Room in the log for a record. Where it has to wait for the disk, an event loop moves the command to the I/O
    /// pool.
    #[inline]
    pub(crate) fn reserve(&self, body_bytes: usize, mode: Mode) -> Result<Reservation<'_>, Stop> {
        let reserved = match mode {
            Mode::Memory | Mode::Look => self.log.reserve(body_bytes),
            Mode::Load | Mode::Disk => self.log.reserve_within(body_bytes, ROOM_WAIT),
        };
        reserved.map_err(|error| match error {
            AppendError::Busy if mode == Mode::Memory => Stop::Long,
            error => {
                self.flush.on_log_refused();
                Stop::Refused(format!("MISCONF Haypile cannot write: {error}. Reads go on."))
            }
        })
    }

    /// A fresh object id.
    pub(crate) fn issue_object(&self, mode: Mode) -> Result<ObjectId, Stop> {
        let lease = |until: u64, waits: bool| {
            let mode = if waits { mode } else { Mode::Memory };
            self.put_system(&[(&lease_row(), Some(&until.to_be_bytes()))], mode)
        };
        // An event loop that finds the lease used up while another thread asks for more goes to the I/O pool.
        self.objects.issue(mode == Mode::Disk, lease)?.ok_or(Stop::Long)
    }

    /// Writes system rows of the store's own as a record.
    pub(crate) fn put_system(&self, rows: &[(&[u8], Option<&[u8]>)], mode: Mode) -> Result<(), Stop> {
        let mut body = Body::new();
        for (row, value) in rows {
            match value {
                Some(value) => body.put(&[row], &[value]),
                None => body.delete(&[row]),
            };
        }
        self.commit_own(body.bytes(), crate::now_ms(), mode)?;
        Ok(())
    }

    /// A system row that was applied: what the store keeps of it in memory.
    pub(crate) fn on_system_row(&self, row: &[u8], value: Option<&[u8]>, index: Index) {
        let number = || value.and_then(|value| value.try_into().ok()).map(u64::from_be_bytes);
        if row == &hash_seed_row()[..] {
            if let Some(seed) = number() {
                self.hash_seed.store(seed, Ordering::Relaxed);
            }
        } else if row == &lease_row()[..] {
            // A leader's lease is noted by whoever asked for it.
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
            self.databases.on_system_row(row, value, index);
        }
    }

    /// A row of the base, read from wherever it is.
    pub(crate) fn base_value(&self, row: &[u8]) -> Result<Option<Value>, String> {
        match self.base.get(row, Tier::Disk).map_err(|error| error.to_string())? {
            Lookup::Row(value) => Ok(Some(value)),
            Lookup::Absent => Ok(None),
            Lookup::WouldBlock => Err("the base said that a read of the disk would block".into()),
        }
    }

    /// The last record whose effects are in the memtable. Stable only under all latches.
    pub(crate) fn last_applied(&self) -> Index {
        match self.role.get() {
            Role::Replaying => Index(self.replayed.load(Ordering::Acquire)),
            Role::Following | Role::Leading => self.log.last(),
        }
    }

    /// Whether a key is about to be changed together with very many others: then it is read under its lock only.
    #[inline]
    pub fn is_staged(&self, key: &Key<'_>) -> bool {
        self.staged.holds(key)
    }

    /// Deadlines that have passed, as far as the memtable knows: candidates for active expiry, at most `max`.
    pub fn due_deadlines(&self, now_ms: u64, max: usize) -> Vec<Due> {
        self.memtable
            .due(now_ms, max, &|space| self.databases.is_dead(space))
            .iter()
            .filter_map(|row| Due::of(row))
            .collect()
    }

    /// The same from the base of one database: reads the disk, for the I/O pool. Deadlines that the memtable has
    /// deleted meanwhile may be among them; who removes the key looks at it anyway.
    pub fn due_in_base(&self, database: u32, now_ms: u64, max: usize) -> Result<Vec<Due>, String> {
        let space = self.databases.space(database);
        let (from, _) = row::family_range(row::Family::Expire, space);
        let mut until = from.clone();
        until.extend_from_slice(&(now_ms.saturating_add(1)).to_be_bytes());
        let mut due = Vec::new();
        let mut cursor =
            self.base.scan(&from, &until, Direction::Forward, Tier::Disk).map_err(|error| error.to_string())?;
        while due.len() < max {
            match cursor.step().map_err(|error| error.to_string())? {
                crate::base::Step::Row { key, .. } => {
                    // Deleted ones lie in the memtable as such, and what else it knows of, it tells itself.
                    if self.memtable.row(key) == crate::memtable::Found::Unknown
                        && let Some(found) = Due::of(key)
                    {
                        due.push(found);
                    }
                }
                crate::base::Step::End | crate::base::Step::WouldBlock => break,
            }
        }
        Ok(due)
    }

    /// Figures for INFO: section, name, value.
    pub fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut figures = self.own_figures();
        figures.extend(self.base_figures().into_iter().map(|(name, value)| ("rocksdb", name, value)));
        figures
    }

    /// Those of the base alone: may wait for it.
    pub fn base_figures(&self) -> Vec<(&'static str, u64)> {
        self.base.figures()
    }

    /// Without those of the base; waits for nothing that takes long.
    pub fn own_figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let log = self.log.stats();
        let mut figures = vec![
            ("store", "memtable_active_bytes", self.memtable.active_bytes()),
            ("store", "memtable_frozen_bytes", self.memtable.frozen_bytes()),
            ("store", "memtable_flushed_bytes", self.memtable.flushed_bytes()),
            ("store", "memtable_bytes_max", self.flush.memtable_bytes()),
            ("store", "presence_bytes", self.presence.bytes()),
            ("store", "views_bytes", self.views_bytes.load(Ordering::Relaxed)),
            ("store", "dead_spaces", self.databases.dead_count() as u64),
            ("store", "writes_refused", self.refuses_writes().into()),
            ("store", "disk_reserve_bytes", self.options.reserve.as_ref().map_or(0, |reserve| reserve.held_bytes())),
        ];
        figures.extend(self.flush.figures().map(|(name, value)| ("store", name, value)));
        figures.extend(self.reclaimer.figures().map(|(name, value)| ("store", name, value)));
        figures.extend(log_figures(&log).into_iter().map(|(name, value)| ("log", name, value)));
        figures.extend(self.cache.figures().map(|(name, value)| ("cache", name, value)));
        figures
    }

    /// The base's bytes on disk.
    pub fn base_disk_bytes(&self) -> u64 {
        self.base.disk_bytes()
    }
}

fn log_figures(stats: &haypile_log::Stats) -> [(&'static str, u64); 8] {
    [
        ("log_bytes", stats.bytes),
        ("log_segments", stats.segments),
        ("log_unsynced_bytes", stats.unsynced_bytes),
        ("log_since_applied_bytes", stats.since_applied_bytes),
        ("log_writes", stats.writes),
        ("log_deferred_writes", stats.deferred_writes),
        ("log_syncs", stats.syncs),
        ("log_last_sync_us", stats.last_sync_us),
    ]
}
