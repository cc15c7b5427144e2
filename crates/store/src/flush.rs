//! The flush: from a full memtable to rows in the base, in the order that loses nothing.
//!
//! Freeze at an index F; sync the log through F; ingest all rows with the applied index and the counters among them in
//! one atomic step; bring the row cache and the presence set up to date; unlink the generation; let go of the log's
//! segments. Runs on a thread of its own. A failure leaves the frozen generation where it is and tries again.

use crate::base::{BaseError, Reclaim, Rows};
use crate::databases::{CountsAt, counts_row, encode_counts};
use crate::memtable::Table;
use crate::reclaim::Orphan;
use crate::row::{Family, RowKey, Space, SystemScope, home_slot, object_of, space_of, system_row};
use crate::sorted::SortedRows;
use crate::store::Store;
use crate::txn::PLAIN_STRING;
use haypile_log::Index;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the thread looks at what nobody tells it: the log's length, the disk's room.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long it waits after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The index up to which the base holds everything, u64 BE, and the history it belongs to.
pub fn applied_row() -> RowKey {
    system_row(SystemScope::Local, b"applied")
}

/// Objects below this id are wholly in the base or gone, u64 BE.
pub fn settled_row() -> RowKey {
    system_row(SystemScope::Local, b"objects-settled")
}

/// What the flush thread and the others tell each other.
pub struct FlushControl {
    memtable_bytes: AtomicU64,
    requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Mirrors whether `State::stopped` is set, for a look without a lock.
    is_stopped: AtomicBool,
    completed: AtomicU64,
    rows: AtomicU64,
    last_us: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Flushes that have ended, well or badly.
    attempts: u64,
    /// A caller wants everything up to now in the base.
    forced: u64,
    served: u64,
    closing: bool,
    closed: bool,
    /// Why the store takes no writes.
    stopped: Option<String>,
}

/// A generation on its way down, and what was true at its index.
pub(crate) struct Frozen {
    pub tables: Vec<Arc<Table>>,
    pub index: Index,
    counts: Vec<(Space, CountsAt)>,
    dead: Vec<Space>,
    objects_below: u64,
}

impl FlushControl {
    pub fn new(memtable_bytes: u64) -> Self {
        FlushControl {
            memtable_bytes: AtomicU64::new(memtable_bytes),
            requested: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            completed: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
        }
    }

    /// The size at which a generation is frozen.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.memtable_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A generation is full. Cheap when it was said before.
    pub fn request(&self) {
        if !self.requested.load(Ordering::Relaxed) && !self.requested.swap(true, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Why there are no writes now.
    pub fn stopped(&self) -> Option<String> {
        if !self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        self.state.lock().stopped.clone()
    }

    fn set_stopped(&self, why: Option<String>) {
        let mut state = self.state.lock();
        if state.stopped != why {
            match &why {
                Some(why) => tracing::error!("{why}"),
                None => tracing::info!("writes go on"),
            }
        }
        self.is_stopped.store(why.is_some(), Ordering::Relaxed);
        state.stopped = why;
        self.changed.notify_all();
    }

    /// Blocks until a flush has ended or `wait` is over.
    pub fn wait_for_progress(&self, wait: Duration) {
        let mut state = self.state.lock();
        let attempts = state.attempts;
        self.changed.wait_while_for(&mut state, |state| state.attempts == attempts, wait);
    }

    pub fn figures(&self) -> [(&'static str, u64); 3] {
        [
            ("flushes_completed", self.completed.load(Ordering::Relaxed)),
            ("flushed_rows", self.rows.load(Ordering::Relaxed)),
            ("last_flush_us", self.last_us.load(Ordering::Relaxed)),
        ]
    }
}

impl Store {
    /// The flush thread's life: until `close`.
    pub(crate) fn run_flushes(&self) {
        let mut failures = 0u32;
        loop {
            let (forced, closing) = self.wait_for_work(failures);
            let due = forced.is_some() || closing || self.flush_is_due() || self.memtable.has_frozen();
            if due && !self.options.memory_only {
                match self.flush_once() {
                    Ok(()) => {
                        failures = 0;
                        self.look_at_the_disk(None);
                    }
                    Err(error) => {
                        failures += 1;
                        tracing::warn!("a flush failed and will be tried again: {error}");
                        self.look_at_the_disk(Some(&error));
                    }
                }
            } else {
                self.look_at_the_disk(None);
                if self.options.memory_only {
                    self.log.purge(self.log.last());
                }
            }
            let mut state = self.flush.state.lock();
            state.attempts += 1;
            if let Some(forced) = forced.filter(|_| failures == 0) {
                state.served = forced;
            }
            state.closed = closing;
            self.flush.changed.notify_all();
            if closing {
                return;
            }
        }
    }

    /// Sleeps until there is something to look at; says which forced flush to serve, and whether it is the last one.
    fn wait_for_work(&self, failures: u32) -> (Option<u64>, bool) {
        let mut state = self.flush.state.lock();
        let wait = if failures > 0 { RETRY_INTERVAL } else { LOOK_INTERVAL };
        if !state.closing && (failures > 0 || (state.forced == state.served && !self.flush.requested.load(Ordering::Relaxed))) {
            self.flush.changed.wait_for(&mut state, wait);
        }
        self.flush.requested.store(false, Ordering::Relaxed);
        ((state.forced > state.served).then_some(state.forced), state.closing)
    }

    fn flush_is_due(&self) -> bool {
        let logged = self.log.stats().since_applied_bytes;
        self.memtable.active_bytes() > self.flush.memtable_bytes() || logged > self.options.flush_log_bytes
    }

    /// Stops writes while the disk is nearly full or flushes fail with the memtable full, and lets them go on by itself.
    fn look_at_the_disk(&self, failure: Option<&String>) {
        let free = (self.options.disk_free.0)().unwrap_or(u64::MAX);
        let full = self.memtable.active_bytes() > self.flush.memtable_bytes();
        let why = if free < self.options.disk_free_min_bytes {
            Some(format!(
                "MISCONF Haypile cannot write: the disk has {free} bytes left, less than disk-free-min. Reads go on."
            ))
        } else if let (Some(failure), true) = (failure, full) {
            Some(format!("MISCONF Haypile cannot write: {failure}. Reads go on."))
        } else if let Some(failure) = self.log.failed() {
            self.log.retry();
            Some(format!("MISCONF Haypile cannot write: {failure}. Reads go on."))
        } else {
            None
        };
        self.flush.set_stopped(why);
    }

    /// Brings everything up to now into the base. Blocks.
    pub fn flush_now(&self) -> Result<(), String> {
        let mut state = self.flush.state.lock();
        state.forced += 1;
        let (mine, attempts) = (state.forced, state.attempts);
        self.flush.changed.notify_all();
        // A flush that is under way does not count, but its failure does not either.
        self.flush.changed.wait_while(&mut state, |state| {
            state.served < mine && !state.closed && (state.stopped.is_none() || state.attempts < attempts + 2)
        });
        if state.served >= mine { Ok(()) } else { Err(state.stopped.clone().unwrap_or_else(|| "the store is closed".into())) }
    }

    /// Ends the flush thread after a last flush.
    pub(crate) fn stop_flushes(&self) {
        let mut state = self.flush.state.lock();
        state.closing = true;
        self.flush.changed.notify_all();
        self.flush.changed.wait_while(&mut state, |state| !state.closed);
    }

    /// One flush: of the generation that is frozen, or of a new one.
    fn flush_once(&self) -> Result<(), String> {
        let started = Instant::now();
        if let Some(error) = self.base.background_error() {
            self.base.resume().map_err(|again| format!("{error}; after another attempt: {again}"))?;
        }
        let frozen = self.frozen_or_freeze();
        let Some(frozen) = frozen else { return Ok(()) };
        self.log.sync_through(frozen.index).map_err(|error| error.to_string())?;
        let own = frozen.own_rows(&self.history.0);
        let mut rows = SortedRows::new(&frozen.tables, &frozen.dead, &own);
        self.base.ingest(&mut rows).map_err(|error: BaseError| error.to_string())?;
        let (count, orphans) = self.on_ingested(&frozen);
        // From here on, what was read from the base before may be older than what the memtable no longer holds.
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.memtable.unlink_frozen();
        *self.frozen.lock() = None;
        self.base.set_reclaim(Reclaim { objects_below: frozen.objects_below, dead_spaces: frozen.dead.clone() });
        self.on_dead(&frozen.dead, &orphans);
        self.log.purge(frozen.index);
        self.flush.rows.fetch_add(count, Ordering::Relaxed);
        self.flush.completed.fetch_add(1, Ordering::Relaxed);
        self.flush.last_us.store(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        tracing::debug!(rows = count, index = frozen.index.0, ms = started.elapsed().as_millis() as u64, "flushed");
        Ok(())
    }

    /// The generation of a flush that failed, or the active one frozen now; `None` if there is nothing to flush.
    fn frozen_or_freeze(&self) -> Option<Arc<Frozen>> {
        let mut held = self.frozen.lock();
        if held.is_none() {
            // Before the latches: who issues an object holds the ids and then takes a latch. An early bound is a safe one.
            let objects_below = self.objects.settled_below();
            let still = self.memtable.still();
            let index = self.last_applied();
            if index.0 <= self.applied.load(Ordering::Acquire) {
                return None;
            }
            let counts = self.databases.counts_now();
            let dead = self.databases.dead();
            let tables = still.freeze();
            *held = Some(Arc::new(Frozen { tables, index, counts, dead, objects_below }));
        }
        held.clone()
    }

    /// Tells the caches what the base holds now, before the generation is unlinked; returns the number of rows, and the
    /// objects that lost their owner.
    fn on_ingested(&self, frozen: &Frozen) -> (u64, Vec<Orphan>) {
        let own = BTreeMap::new();
        let mut rows = SortedRows::new(&frozen.tables, &frozen.dead, &own);
        let mut count = 0;
        let mut orphans = Vec::new();
        while let Some((row, value)) = rows.next_row() {
            count += 1;
            self.cache.on_flushed(row, value);
            match (Family::of(row), value) {
                (Some(Family::Meta), Some(value)) if value.starts_with(&PLAIN_STRING) => self.presence.insert(row),
                (Some(Family::Meta), _) => self.presence.remove(row),
                (Some(Family::Owner), None) => orphans.extend(orphan_of(row)),
                _ => {}
            }
        }
        self.applied.store(frozen.index.0, Ordering::Release);
        (count, orphans)
    }
}

fn orphan_of(row: &[u8]) -> Option<Orphan> {
    Some(Orphan { space: space_of(row)?, slot: home_slot(row)?, id: object_of(row)? })
}

impl Frozen {
    /// The rows that say what the base holds from now on.
    fn own_rows(&self, history: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut rows = BTreeMap::new();
        rows.insert(applied_row().to_vec(), [&self.index.0.to_be_bytes()[..], history].concat());
        rows.insert(settled_row().to_vec(), self.objects_below.to_be_bytes().to_vec());
        for (space, counts) in &self.counts {
            rows.insert(counts_row(*space).to_vec(), encode_counts(counts));
        }
        rows
    }
}
