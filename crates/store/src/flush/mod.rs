//! The flush: from a full memtable to rows in the base, in the order that loses nothing.
//!
//! Freeze at an index F; sync the log through F; ingest all rows with the applied index and the counters among them in
//! one atomic step; bring the row cache and the presence set up to date; let go of the log's segments. The generation
//! is unlinked right before the next freeze: until then its room is free, and it is read. Runs on a thread of its own.
//! A failure leaves the frozen generation where it is and tries again.

pub(crate) mod dying;
pub(crate) mod sorted;
mod tidy;

use crate::base::{BaseError, Reclaim, Rows};
use crate::databases::{CountsAt, counts_row, dead_row, encode_counts};
use crate::flush::sorted::{OwnRows, Row, SortedRows};
use crate::memtable::{TOGETHER_MAX, Table};
use crate::objects::settled_row;
use crate::presence::Presence;
use crate::reclaim::Orphan;
use crate::role::Role;
use crate::row::{Family, RowKey, Space, SystemScope, system_row};
use crate::store::Store;
use crate::txn::{Mode, PLAIN_STRING};
use haypile_log::{History, Index};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the thread looks at what nobody tells it: the log's length, the disk's room.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long it waits after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A flush waits while the base has more files than this at level 0, through each of which every read goes: twice
/// as many as those with which compaction begins.
const LEVEL0_FILES_MAX: u64 = 32;

/// Flushes that are not further apart than this follow each other.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// Or while compaction is so far behind, a fraction of what RocksDB would allow: the disk must have room for it twice.
const PENDING_COMPACTION_BYTES_MAX: u64 = 16 << 30;

/// But never longer than this, whatever the base says of itself: writers wait for it behind a full memtable.
const BASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often it looks whether the base has caught up.
const BASE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The index up to which the base holds everything, u64 BE, and the history it belongs to.
pub fn applied_row() -> RowKey {
    system_row(SystemScope::Local, b"applied")
}

/// The value of that row.
pub(crate) fn encode_applied(index: Index, history: History) -> Vec<u8> {
    [&index.0.to_be_bytes()[..], &history.0].concat()
}

/// How far apart flushes are that make room.
const ROOM_INTERVAL: Duration = Duration::from_secs(2);

/// Why there are no writes now.
struct Stopped {
    why: String,
    /// Those that only make room go on.
    shrinking_goes_on: bool,
}

impl Stopped {
    fn wholly(reason: &str) -> Stopped {
        Stopped { why: format!("MISCONF Haypile cannot write: {reason}. Reads go on."), shrinking_goes_on: false }
    }

    fn but_for_deletions(why: String) -> Stopped {
        Stopped { why, shrinking_goes_on: true }
    }
}

/// What the flush thread and the others tell each other.
pub struct FlushControl {
    memtable_bytes: AtomicU64,
    /// Log bytes above the applied index that start a flush.
    log_bytes: AtomicU64,
    /// Free bytes of the disk below which there are no writes.
    disk_free_min_bytes: Arc<AtomicU64>,
    /// The active generation may grow to this: by the last look, the disk has room for no more.
    active_bytes_max: AtomicU64,
    /// Free bytes of the disk at that look.
    disk_free_bytes: AtomicU64,
    /// Writes wait for a flush: what is not flushed needs the room that they want.
    is_crowded: AtomicBool,
    requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Mirrors whether `State::stopped` is set, for a look without a lock.
    is_stopped: AtomicBool,
    /// While the disk was short something was written that makes room: it does so when it has been flushed.
    shrunk: AtomicBool,
    /// The same for `State::failure`.
    is_failing: AtomicBool,
    /// Since when the log refuses records: it is told now and then to try again, whoever else asks it.
    log_refused: Mutex<Option<Instant>>,
    /// When the last generation was frozen.
    frozen_at: Mutex<Option<Instant>>,
    completed: AtomicU64,
    waits_us: AtomicU64,
    rows: AtomicU64,
    last_us: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Flushes that have ended, well or badly.
    attempts: u64,
    /// How often a caller has asked for everything up to then in the base; up to which of these a flush has begun, and
    /// has ended well.
    forced: u64,
    tried: u64,
    served: u64,
    closing: bool,
    /// The thread ends without a last flush.
    abandoned: bool,
    closed: bool,
    /// Why the last flush failed, if it did.
    failure: Option<String>,
    /// Why the store takes no writes.
    stopped: Option<Stopped>,
}

/// A generation on its way down, and what was true at its index.
pub(crate) struct Frozen {
    pub tables: Vec<Arc<Table>>,
    pub index: Index,
    counts: Vec<(Space, CountsAt)>,
    dead: Vec<Space>,
    /// Spaces of which nothing is left, and that the base remembers as dead until now.
    gone: Vec<Space>,
    objects_below: u64,
}

/// What the flush thread is to do.
struct Work {
    /// The callers' demands that a successful flush serves, and whether there are any.
    forced: u64,
    is_forced: bool,
    closing: bool,
    abandoned: bool,
}

impl FlushControl {
    pub fn new(memtable_bytes: u64, log_bytes: u64, disk_free_min_bytes: Arc<AtomicU64>) -> Self {
        FlushControl {
            memtable_bytes: AtomicU64::new(memtable_bytes),
            log_bytes: AtomicU64::new(log_bytes),
            disk_free_min_bytes,
            active_bytes_max: AtomicU64::new(u64::MAX),
            disk_free_bytes: AtomicU64::new(u64::MAX),
            is_crowded: AtomicBool::new(false),
            requested: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            shrunk: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            log_refused: Mutex::default(),
            frozen_at: Mutex::default(),
            completed: AtomicU64::new(0),
            waits_us: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
        }
    }

    /// The size at which a generation is frozen.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    pub fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn disk_free_min_bytes(&self) -> u64 {
        self.disk_free_min_bytes.load(Ordering::Relaxed)
    }

    pub fn set_disk_free_min_bytes(&self, bytes: u64) {
        self.disk_free_min_bytes.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub fn active_bytes_max(&self) -> u64 {
        self.active_bytes_max.load(Ordering::Relaxed)
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

    /// Why there are no writes now, or none that cannot make the data larger.
    pub fn stopped(&self, shrinks: bool) -> Option<String> {
        if !self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.state.lock();
        let stopped = state.stopped.as_ref()?;
        if shrinks && stopped.shrinking_goes_on {
            self.shrunk.store(true, Ordering::Relaxed);
            return None;
        }
        Some(stopped.why.clone())
    }

    /// Stops writes wholly, until the next look at the disk finds no reason any more.
    pub(crate) fn stop_for(&self, reason: &str) {
        self.set_stopped(Some(Stopped::wholly(reason)));
    }

    /// Has everything up to now brought into the base, without waiting for it.
    pub(crate) fn demand(&self) {
        self.state.lock().forced += 1;
        self.changed.notify_all();
    }

    /// Why the last flush failed.
    pub fn failure(&self) -> Option<String> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        self.state.lock().failure.clone()
    }

    /// The log had no room for a record.
    #[cold]
    pub fn on_log_refused(&self) {
        self.log_refused.lock().get_or_insert_with(Instant::now);
    }

    /// How long ago the last generation was frozen.
    pub fn age(&self) -> Duration {
        self.frozen_at.lock().map_or(Duration::ZERO, |frozen| frozen.elapsed())
    }

    pub fn last_freeze(&self) -> Option<Instant> {
        *self.frozen_at.lock()
    }

    /// Whether flushes follow each other. One that a caller asked for may be the only one for long.
    fn is_busy(&self) -> bool {
        self.frozen_at.lock().is_some_and(|frozen| frozen.elapsed() < QUIET_AFTER)
    }

    fn set_stopped(&self, stopped: Option<Stopped>) {
        let mut state = self.state.lock();
        // The text tells how much room there is, which changes all the time.
        let kind = |stopped: &Option<Stopped>| stopped.as_ref().map(|stopped| stopped.shrinking_goes_on);
        if kind(&state.stopped) != kind(&stopped) {
            match &stopped {
                Some(stopped) => tracing::error!("{}", stopped.why),
                None => tracing::info!("writes go on"),
            }
        }
        if stopped.is_none() {
            self.shrunk.store(false, Ordering::Relaxed);
        }
        self.is_stopped.store(stopped.is_some(), Ordering::Relaxed);
        state.stopped = stopped;
        self.changed.notify_all();
    }

    /// Blocks until a flush has ended or `wait` is over.
    pub fn wait_for_progress(&self, wait: Duration) {
        let mut state = self.state.lock();
        let attempts = state.attempts;
        self.changed.wait_while_for(&mut state, |state| state.attempts == attempts, wait);
    }

    pub fn figures(&self) -> [(&'static str, u64); 4] {
        [
            ("flush_waits_for_base_us", self.waits_us.load(Ordering::Relaxed)),
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
        let mut busy = false;
        loop {
            let work = self.wait_for_work(failures);
            let result = if work.abandoned { Ok(()) } else { self.do_work(&work) };
            failures = if result.is_ok() { 0 } else { failures + 1 };
            let mut state = self.flush.state.lock();
            state.attempts += 1;
            if result.is_ok() {
                state.served = work.forced;
            }
            state.failure = result.err();
            self.flush.is_failing.store(failures > 0, Ordering::Relaxed);
            state.closed = work.closing;
            self.flush.changed.notify_all();
            drop(state);
            if work.closing {
                return;
            }
            let was_busy = std::mem::replace(&mut busy, self.flush.is_busy());
            if busy != was_busy {
                self.base.set_busy(busy);
            }
        }
    }

    /// One turn: a flush where one is due, and a look at the disk.
    fn do_work(&self, work: &Work) -> Result<(), String> {
        if self.options.memory_only {
            self.tidy_memory();
            self.look_at_the_disk(None);
            return Ok(());
        }
        if self.base.is_read_only() {
            return Ok(());
        }
        if self.role.get() == Role::Leading {
            self.disown_orphans();
        }
        let held_over = self.frozen.lock().is_some();
        let whole = work.is_forced || work.closing;
        let due = whole || held_over || self.flush_is_due() || self.flush_makes_room() || self.flush_gives_room();
        let mut result = if due { self.flush_once() } else { Ok(()) };
        if result.is_ok() && whole && held_over {
            // That was the generation of a flush that had failed; what was asked for is the one after it.
            result = self.flush_once();
        }
        if !work.closing && (whole || self.memtable.flushed_bytes() > self.flush.memtable_bytes() / 4 * 5) {
            // It is frozen as soon as it is larger than its size, hence a little later; only what is far larger has to
            // go. Who asks for everything in the base means to read it there; and CONFIG SET may have lowered the
            // budget.
            self.let_go_of_flushed();
        }
        if let Err(error) = &result {
            tracing::warn!("a flush failed and will be tried again: {error}");
        }
        self.look_at_the_disk(result.as_ref().err());
        result
    }

    /// Sleeps until there is something to do or to look at.
    fn wait_for_work(&self, failures: u32) -> Work {
        let control = &self.flush;
        let mut state = control.state.lock();
        let wait = if failures > 0 { RETRY_INTERVAL } else { LOOK_INTERVAL };
        let idle = |state: &mut State| {
            !state.closing
                && state.forced == state.tried
                && (failures > 0 || !control.requested.load(Ordering::Relaxed))
        };
        control.changed.wait_while_for(&mut state, idle, wait);
        control.requested.store(false, Ordering::Relaxed);
        let is_forced = state.forced > state.tried;
        state.tried = state.forced;
        Work { forced: state.forced, is_forced, closing: state.closing, abandoned: state.abandoned }
    }

    fn flush_is_due(&self) -> bool {
        // Segments count as a whole, and the last one always does.
        let logged = self.log.stats().since_applied_bytes;
        let logged_max = self.flush.log_bytes.load(Ordering::Relaxed).max(2 * self.options.log.segment_bytes);
        self.memtable.active_bytes() > self.flush.memtable_bytes() || logged > logged_max
    }

    /// On a short disk, what deletions give back and what the log takes come free with a flush.
    fn flush_makes_room(&self) -> bool {
        (self.flush.shrunk.load(Ordering::Relaxed) || self.flush.is_crowded.load(Ordering::Relaxed))
            && self.flush.last_freeze().is_none_or(|frozen| frozen.elapsed() > ROOM_INTERVAL)
    }

    /// Free bytes of the disk, the reserve among them.
    pub(crate) fn disk_free(&self) -> u64 {
        let held = self.options.reserve.as_ref().map_or(0, |reserve| reserve.held_bytes());
        (self.options.disk_free.0)().map_or(u64::MAX, |free| free.saturating_add(held))
    }

    /// What the disk must have for writes: `disk-free-min`, and room for the flush of what is in memory. So a disk that
    /// only this store fills never lacks the room for a flush.
    fn disk_demand(&self) -> u64 {
        let least = self.flush.disk_free_min_bytes();
        if least == 0 || self.options.memory_only {
            return least;
        }
        least.saturating_add(self.memtable.active_bytes() + self.memtable.frozen_bytes())
    }

    /// Sets how far the active generation may grow until the next look.
    fn bound_active(&self, free: u64) {
        let demand = self.disk_demand();
        let is_bounded = demand > 0 && !self.options.memory_only;
        let more = if is_bounded { free.saturating_sub(demand) } else { u64::MAX };
        self.flush.disk_free_bytes.store(free, Ordering::Relaxed);
        self.flush.active_bytes_max.store(self.memtable.active_bytes().saturating_add(more), Ordering::Relaxed);
    }

    /// The error reply of writes that the disk has no room for.
    pub(crate) fn short_of_disk(&self) -> String {
        let free = self.flush.disk_free_bytes.load(Ordering::Relaxed);
        let unflushed = match self.flush.disk_free_min_bytes() {
            least if free < least => "less than disk-free-min".into(),
            least => format!("{} of which are for a flush, disk-free-min is {least}", self.disk_demand() - least),
        };
        format!("MISCONF Haypile cannot write: the disk has {free} bytes left, {unflushed}. Reads and deletions go on.")
    }

    /// Stops writes while the disk is nearly full or flushes fail with the memtable full, and lets them go on by
    /// itself.
    fn look_at_the_disk(&self, failure: Option<&String>) {
        let least = self.flush.disk_free_min_bytes();
        let refused = self.flush.log_refused.lock().is_some();
        let log_failure = self.log.failed();
        if let Some(reserve) = &self.options.reserve {
            let beside = self.disk_free().saturating_sub(reserve.held_bytes());
            let needed = failure.is_some() || log_failure.is_some() || refused;
            if reserve.settle(beside, least, needed) {
                self.log.retry();
            }
        }
        let free = self.disk_free();
        let full = self.memtable.active_bytes() > self.flush.memtable_bytes();
        self.bound_active(free);
        let is_short = free < self.disk_demand();
        let stopped = if let Some(missing) = self.watch.missing() {
            Some(Stopped::wholly(&missing))
        } else if let Some(failure) = log_failure {
            Some(Stopped::wholly(&failure))
        } else if let (Some(failure), true) = (failure, full) {
            let why = format!("MISCONF Haypile cannot write: {failure}. Reads and deletions go on.");
            Some(Stopped::but_for_deletions(why))
        } else {
            is_short.then(|| Stopped::but_for_deletions(self.short_of_disk()))
        };
        self.flush.is_crowded.store(is_short && free >= least, Ordering::Relaxed);
        self.base.pace_removals(stopped.is_some() || refused);
        self.flush.set_stopped(stopped);
        let mut refused = self.flush.log_refused.lock();
        if refused.is_some_and(|since| since.elapsed() > RETRY_INTERVAL) {
            // If it refuses again, that begins anew.
            *refused = None;
            self.log.retry();
        }
    }

    /// Why the last flush failed, if it did: after `close`, what the log has to bring back at the next start.
    pub fn flush_failure(&self) -> Option<String> {
        self.flush.failure()
    }

    /// Brings everything up to now into the base. Blocks; an error says why the attempt failed, of which there will be
    /// more.
    pub fn flush_now(&self) -> Result<(), String> {
        let mut state = self.flush.state.lock();
        state.forced += 1;
        let (mine, before) = (state.forced, state.attempts);
        self.flush.changed.notify_all();
        // A flush that is under way does not count; nor does its failure.
        let waiting = |state: &mut State| {
            let failed = state.failure.is_some() && state.tried >= mine && state.attempts > before;
            state.served < mine && !state.closed && !failed
        };
        self.flush.changed.wait_while(&mut state, waiting);
        if state.served >= mine {
            Ok(())
        } else {
            Err(state.failure.clone().unwrap_or_else(|| "the store is closed".into()))
        }
    }

    /// Ends the flush thread after a last flush, or without it.
    pub(crate) fn stop_flushes(&self, last_flush: bool) {
        let mut state = self.flush.state.lock();
        state.closing = true;
        state.abandoned = !last_flush;
        self.flush.changed.notify_all();
        self.flush.changed.wait_while(&mut state, |state| !state.closed);
    }

    /// Lets compaction catch up before there is more for it: ingestion is not slowed by the base itself.
    fn wait_for_base(&self) {
        let started = Instant::now();
        let is_behind = || {
            let pressure = self.base.pressure();
            pressure.level0_files > LEVEL0_FILES_MAX || pressure.pending_compaction_bytes > PENDING_COMPACTION_BYTES_MAX
        };
        while is_behind() && started.elapsed() < BASE_WAIT_MAX {
            let mut state = self.flush.state.lock();
            let timed_out =
                self.flush.changed.wait_while_for(&mut state, |state| !state.closing, BASE_LOOK_INTERVAL).timed_out();
            if !timed_out {
                break;
            }
        }
        self.flush.waits_us.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// One flush: of the generation that is frozen, or of a new one.
    fn flush_once(&self) -> Result<(), String> {
        let started = Instant::now();
        if let Some(error) = self.base.background_error() {
            match self.base.resume() {
                // A compaction may wait for room that only this flush can bring: it takes what is there.
                Ok(()) | Err(BaseError::Full(_)) => {}
                Err(again) => return Err(format!("{error}; after another attempt: {again}")),
            }
        }
        let frozen = self.frozen_or_freeze();
        let Some(frozen) = frozen else { return Ok(()) };
        self.bound_active(self.disk_free());
        // A flush that failed for want of room leaves out what has died since. The record that says so has to outlive
        // what is left out.
        let mut dead = self.databases.dead();
        dead.extend(&frozen.dead);
        dead.sort_unstable();
        dead.dedup();
        let needed = if dead == frozen.dead { frozen.index } else { self.log.last() };
        self.log.sync_through(needed).map_err(|error| error.to_string())?;
        self.wait_for_base();
        // Of the record, not of this run: while the log is replayed these may differ.
        let history = self.log.history_of(frozen.index);
        let history = history.ok_or_else(|| format!("record {} is not in the log any more", frozen.index))?;
        let own = frozen.own_rows(history, &dead);
        let mut rows = Noted::new(SortedRows::new(&frozen.tables, &dead, &own), &self.presence);
        self.base.ingest(&mut rows).map_err(|error: BaseError| error.to_string())?;
        let Noted { count, orphans, .. } = rows;
        self.on_ingested(&frozen);
        self.memtable.keep_flushed();
        *self.frozen.lock() = None;
        self.base.set_reclaim(Reclaim { objects_below: frozen.objects_below, dead_spaces: dead.clone() });
        // What has died since is looked after when the generation that says so is flushed: it may hold rows of it.
        self.on_dead(&frozen.dead, &orphans);
        self.log.purge(frozen.index);
        self.flush.rows.fetch_add(count, Ordering::Relaxed);
        self.flush.completed.fetch_add(1, Ordering::Relaxed);
        self.flush.last_us.store(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        tracing::debug!(rows = count, index = frozen.index.0, ms = started.elapsed().as_millis() as u64, "flushed");
        Ok(())
    }

    /// Takes a generation that was flushed out of the memtable.
    fn let_go_of_flushed(&self) {
        let held = self.frozen.lock();
        let gone = if held.is_none() { self.unlink_flushed() } else { Vec::new() };
        drop(held);
        self.on_unlinked(&gone);
    }

    /// The same for who holds `frozen` and has seen that nothing waits there; returns what it took.
    fn unlink_flushed(&self) -> Vec<Arc<Table>> {
        if !self.memtable.has_frozen() {
            return Vec::new();
        }
        // Before the rows leave the memtable: who does not find them there any more sees this.
        self.base_ids_end.fetch_max(self.memtable.frozen_ids_end(), Ordering::AcqRel);
        // From here on, what was read from the base before may be older than what the memtable no longer holds.
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.memtable.unlink_frozen()
    }

    fn on_unlinked(&self, gone: &[Arc<Table>]) {
        self.cache.on_unlinked(gone, |space| self.databases.is_dead(space), crate::now_ms());
    }

    /// The generation of a flush that failed, or the active one frozen now; `None` if there is nothing to flush.
    fn frozen_or_freeze(&self) -> Option<Arc<Frozen>> {
        let mut gone = Vec::new();
        let frozen = self.freeze_after(&mut gone);
        // Writers wait for a freeze, but not for this.
        self.on_unlinked(&gone);
        frozen
    }

    /// The same; `gone` gets the generation that it takes out of the memtable before.
    fn freeze_after(&self, gone: &mut Vec<Arc<Table>>) -> Option<Arc<Frozen>> {
        // A record that is being applied in steps is in this generation as a whole.
        let _staged = self.staged.keep_out();
        let mut held = self.frozen.lock();
        if held.is_none() {
            // So that the latches are not taken, nor the generation before given up, for nothing.
            if self.last_applied().0 <= self.applied.load(Ordering::Acquire) {
                return None;
            }
            *gone = self.unlink_flushed();
            self.settle_objects();
            let still = self.memtable.still();
            let index = self.last_applied();
            if index.0 <= self.applied.load(Ordering::Acquire) {
                return None;
            }
            let counts = self.databases.counts_now();
            let (dead, gone) = (self.databases.dead(), self.reclaimer.gone());
            let objects_below = self.objects.settled_below();
            let tables = still.freeze();
            self.dying.forget();
            *self.flush.frozen_at.lock() = Some(Instant::now());
            *held = Some(Arc::new(Frozen { tables, index, counts, dead, gone, objects_below }));
        }
        held.clone()
    }

    /// Says in the log below which id every object is decided, where that has changed since it was said last. Whoever
    /// applies that record has applied what it is about, so that it bounds the compaction of every node. A log that
    /// takes nothing now is told with a later freeze, and a clean stop says nothing: an early bound is a safe one.
    fn settle_objects(&self) {
        let ended = self.objects.ended_below();
        let is_said = self.role.get() != Role::Leading || ended <= self.objects.settled_below();
        if is_said || self.flush.state.lock().closing {
            return;
        }
        if let Err(stop) = self.put_system(&[(&settled_row(), Some(&ended.to_be_bytes()))], Mode::Memory) {
            tracing::debug!(?stop, "the log is not told yet which objects are settled");
        }
    }

    /// Tells the row cache what the base holds now, before the generation is unlinked. Not sooner: a fill that reads
    /// the base before the ingestion must find its placeholder gone.
    fn on_ingested(&self, frozen: &Frozen) {
        let own = OwnRows::new();
        for (row, value) in SortedRows::new(&frozen.tables, &frozen.dead, &own) {
            self.cache.on_flushed(row, value);
        }
        self.applied.store(frozen.index.0, Ordering::Release);
        self.reclaimer.on_forgotten(&frozen.gone);
    }
}

/// The rows of a flush on their way to the base, and what is learned of them on the way: what the presence set is told
/// (nobody asks it about rows that are still in the memtable), and which objects have lost their owner.
struct Noted<'f> {
    rows: SortedRows<'f>,
    presence: &'f Presence,
    count: u64,
    orphans: Vec<Orphan>,
    /// The next rows, as many as the presence set is asked to fetch together.
    window: SmallVec<[Row<'f>; TOGETHER_MAX]>,
    at: usize,
}

impl<'f> Noted<'f> {
    fn new(rows: SortedRows<'f>, presence: &'f Presence) -> Self {
        Noted { rows, presence, count: 0, orphans: Vec::new(), window: SmallVec::new(), at: 0 }
    }

    fn next_window(&mut self) {
        self.at = 0;
        self.window.clear();
        self.window.extend(self.rows.by_ref().take(TOGETHER_MAX));
        let is_held = |row: &&[u8]| matches!(Family::of(row), Some(Family::Meta | Family::Data));
        self.presence.prefetch(self.window.iter().map(|(row, _)| *row).filter(is_held));
        for (row, value) in &self.window {
            match (Family::of(row), value) {
                (Some(Family::Meta), Some(value)) => self.presence.insert(row, value.starts_with(&PLAIN_STRING)),
                (Some(Family::Data), Some(_)) => self.presence.insert_element(row),
                (Some(Family::Meta | Family::Data), None) => self.presence.remove(row),
                (Some(Family::Owner), None) => self.orphans.extend(Orphan::of(row)),
                _ => {}
            }
        }
        self.count += self.window.len() as u64;
    }
}

impl Rows for Noted<'_> {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        if self.at == self.window.len() {
            self.next_window();
        }
        let row = self.window.get(self.at).copied();
        self.at += 1;
        Ok(row)
    }
}

impl Frozen {
    /// The rows that say what the base holds from now on. Spaces that have died since its index are dead in the base at
    /// once: the replay passes over what earlier records say of their rows.
    fn own_rows(&self, history: History, dead: &[Space]) -> OwnRows {
        let mut rows = OwnRows::new();
        rows.insert(applied_row(), Some(encode_applied(self.index, history)));
        // Which spaces have counters in memory depends on a node's starts, and so no row says that there is nothing.
        let counted = |counts: &CountsAt| counts.iter().any(|count| *count != 0).then(|| encode_counts(counts));
        rows.extend(self.counts.iter().map(|(space, counts)| (counts_row(*space), counted(counts))));
        // Dead spaces have no counters any more.
        rows.extend(dead.iter().map(|space| (counts_row(*space), None)));
        rows.extend(self.gone.iter().map(|space| (dead_row(*space), None)));
        let late = dead.iter().filter(|space| self.dead.binary_search(space).is_err());
        rows.extend(late.map(|space| (dead_row(*space), Some(Vec::new()))));
        rows
    }
}
