//! Opening a store: the base's own facts, then the log replayed on top of it.

mod replay;

use crate::access::AccessPolicy;
use crate::apply::staged::Staged;
use crate::base::{Base, BaseError, Direction, Rows};
use crate::cache::RowCache;
use crate::databases::{Databases, counts_row, database_row};
use crate::derived::Derived;
use crate::flush::FlushControl;
use crate::flush::dead_rows::DeadRows;
use crate::lending::lender::Lending;
use crate::memtable::{Found, Memtable};
use crate::objects::{Objects, lease_row};
use crate::options::StoreOptions;
use crate::presence::Presence;
use crate::reclaim::Reclaimer;
use crate::role::{Role, RoleNow};
use crate::row::{Family, SystemScope, system_row};
use crate::store::{Store, VALUE_BYTES_MAX, hash_seed_row};
use crate::stretches::Stretches;
use crate::watch::Watch;
use haypile_log::{ADVICE, Closed, HistoryStart, Index, Log, Progress, Replay};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The number of stores that this process has opened: a row that was read from one is never taken for a row of another.
static STORES: AtomicU64 = AtomicU64::new(0);

/// Bits that suffice to count the flushes of one store.
const EPOCH_BITS: u32 = 40;

/// The reason why a store does not open; the text gives the remedy where it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError(pub String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// A row on its way to the base.
struct OneRow<'r>(Option<(&'r [u8], &'r [u8])>);

impl Rows for OneRow<'_> {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        Ok(self.0.take().map(|(row, value)| (row, Some(value))))
    }
}

impl Store {
    /// Opens a store over `base` and starts its flush thread. `progress` is told now and then while the log is
    /// replayed; the replay may take long after a kill, and reads the disk all the time.
    pub fn open(
        options: StoreOptions,
        base: Arc<dyn Base>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Arc<Store>, OpenError> {
        let stamp = crate::check::applied(&*base).map_err(unreadable)?;
        let applied = stamp.map(|stamp| stamp.index.0);
        let disk_free_min = Arc::new(AtomicU64::new(options.disk_free_min_bytes));
        let log = haypile_log::Options { room: room(&options, disk_free_min.clone()), ..options.log.clone() };
        let opened = Log::open(log, stamp.unwrap_or_default()).map_err(|error| OpenError(error.to_string()))?;
        if let Some(cut) = &opened.cut {
            tracing::warn!(
                "the end of the log is cut off: {cut}. Nothing says that they were synced: with 'durability os' there may \
                 be acknowledged writes of the last second among them"
            );
        }
        let store = Arc::new(Store {
            memtable: Memtable::new(!options.memory_only),
            staged: Staged::default(),
            entry_turn: Mutex::default(),
            cache: RowCache::new(options.row_cache_bytes),
            attempts: Default::default(),
            lending: Lending::of(&options),
            sparse: Default::default(),
            stretches: Stretches::new(options.row_cache_bytes / 16),
            presence: Presence::new(options.presence_bytes, options.hash_seed, applied.is_none()),
            derived: Derived::default(),
            databases: Databases::new(options.databases),
            facts: Default::default(),
            members: Default::default(),
            objects: Objects::default(),
            flush: FlushControl::new(options.memtable_bytes, options.flush_log_bytes, disk_free_min),
            reclaimer: Reclaimer::default(),
            frozen: Mutex::new(None),
            applied: AtomicU64::new(applied.unwrap_or(0)),
            epoch: AtomicU64::new(STORES.fetch_add(1, Ordering::Relaxed) << EPOCH_BITS),
            hash_seed: AtomicU64::new(options.hash_seed),
            blind_set: AtomicBool::new(options.blind_set),
            txn_bytes_max: AtomicU64::new(options.txn_bytes_max),
            value_bytes_max: AtomicU64::new(VALUE_BYTES_MAX),
            access_policy: AccessPolicy::default(),
            tunables: Default::default(),
            replayed: AtomicU64::new(applied.unwrap_or(0)),
            role: RoleNow::default(),
            opened_at: AtomicU64::new(0),
            base_ids_end: AtomicU64::new(0),
            orphans: Mutex::default(),
            dead_rows: DeadRows::default(),
            view_age_max_ms: AtomicU64::new(crate::txn::view::AGE_MAX.as_millis() as u64),
            watch: Watch::default(),
            views_bytes: Arc::default(),
            room: std::sync::OnceLock::new(),
            stops_commands: Arc::default(),
            states: AtomicU8::new(0),
            is_closed: AtomicBool::new(false),
            log: opened.log,
            base: base.clone(),
            options,
        });
        store.read_system_rows()?;
        if opened.last == Index(0) {
            store.keep_hash_seed()?;
        }
        let (objects_below, dead_spaces) = (store.objects.settled_below(), store.databases.dead());
        base.set_reclaim(crate::base::Reclaim { objects_below, dead_spaces });
        if store.options.in_group {
            store.log.join_group();
        }
        store.purge_log(Index(applied.unwrap_or(0)));
        store.start_thread("flush", Store::run_flushes);
        if let Err(error) = store.catch_up(opened.replay, opened.lacking, &mut progress) {
            store.stop_flushes(false);
            // The base is closed here, because the flush thread may be the last to drop it, when the process ends
            // already.
            base.close();
            return Err(error);
        }
        store.start_upkeep();
        Ok(store)
    }

    /// Starts the threads that an open store has beside the flush.
    fn start_upkeep(self: &Arc<Store>) {
        self.start_thread("reclaim", Store::run_reclaims);
        self.start_thread("lend", Store::run_lending);
        self.start_thread("watch", |store| store.watch.run(|| drop(store.look_at_files())));
    }

    /// Brings the store from the base's facts to the log's last record; the store is ready for transactions then.
    fn catch_up(
        &self,
        mut replay: Replay,
        lacking: Option<HistoryStart>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), OpenError> {
        if self.options.in_group {
            replay.finish().map_err(|error| OpenError(error.to_string()))?;
        } else {
            self.replay_all(&mut replay, lacking, progress)?;
        }
        self.opened_at.store(self.log.last().0, Ordering::Relaxed);
        self.role.set(if self.options.log.follows { Role::Following } else { Role::Leading });
        if lacking.is_some() && !self.base.is_read_only() {
            // Records without effects follow a history that begins with data which the base never took: the flush gets
            // the base beyond them.
            self.flush_now().map_err(OpenError)?;
        }
        let last = self.log.last();
        if last > Index(0) && !self.options.memory_only && !self.has_row(&hash_seed_row())? {
            let what = format!("the base has no hash seed, and the log has records up to {last}");
            return Err(OpenError(format!("{what}: it is not the base of this log. {ADVICE}")));
        }
        Ok(())
    }

    /// Brings the hash seed of a new store into the base, before the first record whose keys it places: an open makes
    /// no record.
    fn keep_hash_seed(&self) -> Result<(), OpenError> {
        if self.options.memory_only || self.base.is_read_only() || self.has_row(&hash_seed_row())? {
            return Ok(());
        }
        let (row, seed) = (hash_seed_row(), self.hash_seed().to_be_bytes());
        let kept = self.base.ingest(&mut OneRow(Some((&row, &seed))));
        kept.map_err(|error| OpenError(format!("a new store cannot be written: {error}")))
    }

    fn has_row(&self, row: &[u8]) -> Result<bool, OpenError> {
        match self.memtable.row(row) {
            Found::Row(..) => Ok(true),
            Found::Deleted(_) => Ok(false),
            Found::Unknown => {
                let value = self.base_value(row).map_err(|why| OpenError(format!("{why}. {ADVICE}")))?;
                Ok(value.is_some())
            }
        }
    }

    /// Reads the base's system rows: databases, counters, ids, the hash seed and facts.
    fn read_system_rows(&self) -> Result<(), OpenError> {
        let from = system_row(SystemScope::Replicated, b"");
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut cursor = self
            .base
            .scan(&from, &[Family::System as u8 + 1], Direction::Forward, crate::base::Tier::Disk)
            .map_err(unreadable)?;
        while let crate::base::Step::Row { key, value } = cursor.step().map_err(unreadable)? {
            rows.push((key.to_vec(), value.to_vec()));
        }
        // Counters belong to spaces: so the databases come first, then the numbers of their keys.
        let counts = counts_row(crate::row::Space(0));
        let is_counts = |row: &[u8]| row.len() == counts.len() && row.starts_with(&counts[..counts.len() - 4]);
        debug_assert!(!is_counts(&database_row(0)));
        rows.sort_by_key(|(row, _)| is_counts(row));
        for (row, value) in &rows {
            self.on_system_row(row, Some(value), Index(0));
        }
        if let Some(leased) = read_number(&*self.base, &lease_row())? {
            self.objects.on_lease(leased);
            // Ids are leased before their first use, so the base has this row with the first rows of an object.
            self.base_ids_end.store(leased, Ordering::Release);
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, name: &str, run: fn(&Store)) {
        let store = self.clone();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&store))
            .expect("the operating system gives a thread at start");
    }

    /// Brings everything to disk, marks the log as cleanly shut and closes the base. The store takes no call
    /// afterwards.
    pub fn close(&self) -> Result<(), String> {
        self.close_with(true)
    }

    /// Closes the store without a last flush: rows that are only in the memtable are left to the log. The store takes
    /// no call afterwards.
    pub fn close_without_flush(&self) -> Result<(), String> {
        self.close_with(false)
    }

    /// Ends the store without writing anything more, neither to the base nor to the log: what becomes of records that
    /// its log has not written, or that the group has not agreed on, is not its own to say any more.
    pub fn abandon(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.watch.stop();
        self.lending.stop();
        self.reclaimer.stop(|| self.base.end_reclaims());
        self.stop_flushes(false);
        self.log.abandon();
        self.base.close();
    }

    fn close_with(&self, last_flush: bool) -> Result<(), String> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.watch.stop();
        self.lending.stop();
        let missing = self.look_at_files();
        self.reclaimer.stop(|| self.base.end_reclaims());
        self.stop_flushes(last_flush);
        let closed = self.log.close();
        self.base.close();
        match closed {
            Ok(Closed::Marked | Closed::Followed) => {}
            Ok(Closed::Unmarked(why)) => {
                tracing::warn!("nothing that was acknowledged is lost, but the log has no mark of this stop: {why}");
            }
            Err(error) => return Err(error.to_string()),
        }
        missing.map_or(Ok(()), Err)
    }
}

/// Returns the room that segments of the log may take: the disk keeps `disk-free-min`.
fn room(options: &StoreOptions, disk_free_min: Arc<AtomicU64>) -> Arc<dyn Fn() -> Option<u64> + Send + Sync> {
    let (free, reserve) = (options.disk_free.0.clone(), options.reserve.clone());
    Arc::new(move || {
        let free = free()? + reserve.as_ref().map_or(0, |reserve| reserve.held_bytes());
        Some(free.saturating_sub(disk_free_min.load(Ordering::Relaxed)))
    })
}

fn unreadable(error: crate::base::BaseError) -> OpenError {
    OpenError(format!("the base cannot be read: {error}. {ADVICE}"))
}

fn read_number(base: &dyn Base, row: &[u8]) -> Result<Option<u64>, OpenError> {
    use crate::base::Lookup;
    match base.get(row, crate::base::Tier::Disk).map_err(unreadable)? {
        Lookup::Row(value) => match value.get(..8).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => Ok(Some(u64::from_be_bytes(bytes))),
            None => Err(OpenError("a system row of the base is too short: the directory is damaged".into())),
        },
        Lookup::Absent | Lookup::WouldBlock => Ok(None),
    }
}
