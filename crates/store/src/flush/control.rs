//! The control of the flush, by which its thread and the others talk: bounds, requests, the result of the last flush,
//! and the reason why there are no writes.

use crate::refusal::Refusal;
use haypile_log::AppendError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the thread looks at what no other thread tells it: the log's length, the disk's room.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the thread waits after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Flushes that are not further apart than this count as following each other.
const QUIET_AFTER: Duration = Duration::from_secs(10);

/// The time between two flushes that make room.
const ROOM_INTERVAL: Duration = Duration::from_secs(2);

/// The control of the flush thread.
pub struct FlushControl {
    memtable_bytes: AtomicU64,
    /// Log bytes above the applied index that start a flush.
    log_bytes: AtomicU64,
    /// Free bytes of the disk below which there are no writes.
    disk_free_min_bytes: Arc<AtomicU64>,
    /// Bound of the active generation: by the last look, the disk has room for no more.
    active_bytes_max: AtomicU64,
    /// Free bytes of the disk at the last look.
    disk_free_bytes: AtomicU64,
    /// Whether writes wait for a flush: rows that are not flushed take the room that they need.
    is_crowded: AtomicBool,
    requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Mirrors whether `State::stopped` is set, for a look without a lock.
    is_stopped: AtomicBool,
    /// Whether, while the disk was short, something was written that makes room as soon as it has been flushed.
    shrunk: AtomicBool,
    /// Mirrors whether `State::failure` is set.
    is_failing: AtomicBool,
    /// The time since which the log refuses records: the thread has it try again now and then, whether or not a client
    /// writes.
    log_refused: Mutex<Option<Instant>>,
    /// The time of the last freeze.
    frozen_at: Mutex<Option<Instant>>,
    /// The time of the last flush's end.
    flushed_at: Mutex<Option<Instant>>,
    completed: AtomicU64,
    waits_us: AtomicU64,
    rows: AtomicU64,
    last_us: AtomicU64,
}

/// The next turn of the flush thread.
pub(super) struct Work {
    /// Requests up to this one are served by a successful flush; `is_forced` says whether there are any.
    pub forced: u64,
    pub is_forced: bool,
    pub closing: bool,
    pub abandoned: bool,
}

impl Work {
    /// Returns whether the turn, if it succeeds, brings everything up to its begin into the base. One that only tries
    /// again what a failure left over does not, nor does the last turn of a thread that ends without a flush.
    fn is_whole(&self) -> bool {
        (self.is_forced || self.closing) && !self.abandoned
    }
}

#[derive(Default)]
struct State {
    /// Flushes that have ended, well or badly.
    attempts: u64,
    /// The number of requests to bring everything up to then into the base; up to which of these a flush has begun, has
    /// ended well, and has failed.
    forced: u64,
    tried: u64,
    served: u64,
    failed: u64,
    closing: bool,
    /// Whether the thread ends without a last flush.
    abandoned: bool,
    closed: bool,
    /// The error of the last flush, if it failed.
    failure: Option<String>,
    /// The reason why the store takes no writes.
    stopped: Option<Refusal>,
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
            flushed_at: Mutex::default(),
            completed: AtomicU64::new(0),
            waits_us: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
        }
    }

    /// Returns the size at which a generation is frozen.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// Returns the log bytes above the applied index that start a flush.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
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

    /// Requests a flush because a generation is full. Cheap when requested before.
    pub fn request(&self) {
        if !self.requested.load(Ordering::Relaxed) && !self.requested.swap(true, Ordering::Relaxed) {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// Returns whether there is a reason for no writes now.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the reason why there are no writes now; with `shrinks`, why there are not even those that cannot make
    /// the data larger.
    pub fn stopped(&self, shrinks: bool) -> Option<Refusal> {
        if !self.is_stopped() {
            return None;
        }
        let state = self.state.lock();
        let stopped = state.stopped.as_ref()?;
        if shrinks && stopped.deletions_go_on() {
            self.shrunk.store(true, Ordering::Relaxed);
            return None;
        }
        Some(stopped.clone())
    }

    /// Stops all writes, until the next look at the disk finds no reason any more.
    pub(crate) fn stop_for(&self, why: Refusal) {
        self.set_stopped(Some(why));
    }

    /// Requests that everything up to now is brought into the base, without waiting for it.
    pub(crate) fn demand(&self) {
        self.state.lock().forced += 1;
        self.changed.notify_all();
    }

    /// Returns whether somebody waits for a flush that has not begun.
    pub fn is_demanded(&self) -> bool {
        let state = self.state.lock();
        state.forced > state.tried
    }

    /// Returns the error of the last flush, if it failed.
    pub fn failure(&self) -> Option<String> {
        if !self.is_failing.load(Ordering::Relaxed) {
            return None;
        }
        self.state.lock().failure.clone()
    }

    /// Notes that the log took no record, unless it was only behind with writing, or the record was too long.
    #[cold]
    pub fn on_log_refused(&self, error: &AppendError) {
        match error {
            AppendError::Full(_) | AppendError::Failed(_) => {
                self.log_refused.lock().get_or_insert_with(Instant::now);
            }
            AppendError::Busy | AppendError::TooLarge => {}
        }
    }

    /// Returns the time since the last freeze.
    pub fn age(&self) -> Duration {
        self.frozen_at.lock().map_or(Duration::ZERO, |frozen| frozen.elapsed())
    }

    pub fn last_freeze(&self) -> Option<Instant> {
        *self.frozen_at.lock()
    }

    /// Returns the time since the last flush has ended; very long before the first one.
    pub fn since_flush(&self) -> Duration {
        self.flushed_at.lock().map_or(Duration::MAX, |flushed| flushed.elapsed())
    }

    /// Returns whether flushes follow each other. A flush that a caller asked for may be the only one for long.
    pub fn is_busy(&self) -> bool {
        self.frozen_at.lock().is_some_and(|frozen| frozen.elapsed() < QUIET_AFTER)
    }

    pub(super) fn set_stopped(&self, stopped: Option<Refusal>) {
        let mut state = self.state.lock();
        // Texts are not compared: they tell how much room there is, which changes all the time.
        let kind = |stopped: &Option<Refusal>| stopped.as_ref().map(Refusal::deletions_go_on);
        if kind(&state.stopped) != kind(&stopped) {
            match &stopped {
                Some(why) => tracing::error!("Haypile cannot write: {why}"),
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

    /// Sleeps until there is something to do or to look at.
    pub(super) fn wait_for_work(&self, has_failed: bool) -> Work {
        let mut state = self.state.lock();
        let wait = if has_failed { RETRY_INTERVAL } else { LOOK_INTERVAL };
        let idle = |state: &mut State| {
            !state.closing && state.forced == state.tried && (has_failed || !self.requested.load(Ordering::Relaxed))
        };
        self.changed.wait_while_for(&mut state, idle, wait);
        self.requested.store(false, Ordering::Relaxed);
        let is_forced = state.forced > state.tried;
        state.tried = state.forced;
        Work { forced: state.forced, is_forced, closing: state.closing, abandoned: state.abandoned }
    }

    /// Notes the result of the thread's turn.
    pub(super) fn on_turn(&self, work: &Work, result: Result<(), String>) {
        let mut state = self.state.lock();
        state.attempts += 1;
        match result {
            Ok(()) if work.is_whole() => state.served = work.forced,
            Ok(()) => {}
            Err(_) => state.failed = work.forced,
        }
        self.is_failing.store(result.is_err(), Ordering::Relaxed);
        state.failure = result.err();
        state.closed = work.closing;
        self.changed.notify_all();
    }

    /// Brings everything up to now into the base. Blocks; an error says why this attempt failed; the thread goes on
    /// trying.
    pub fn flush_now(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        state.forced += 1;
        let mine = state.forced;
        self.changed.notify_all();
        // A flush that is in flight does not count; nor does its failure.
        let waiting = |state: &mut State| state.served < mine && state.failed < mine && !state.closed;
        self.changed.wait_while(&mut state, waiting);
        if state.served >= mine {
            Ok(())
        } else {
            Err(state.failure.clone().unwrap_or_else(|| "the store is closed".into()))
        }
    }

    /// Ends the thread after a last flush, or without it.
    pub fn stop(&self, last_flush: bool) {
        let mut state = self.state.lock();
        state.closing = true;
        state.abandoned = !last_flush;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| !state.closed);
    }

    /// Returns whether the thread is to end.
    pub fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    /// Waits, and returns whether the thread is to end.
    pub fn is_closing_within(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        !self.changed.wait_while_for(&mut state, |state| !state.closing, wait).timed_out()
    }

    /// Notes that a generation was frozen.
    pub fn on_freeze(&self) {
        *self.frozen_at.lock() = Some(Instant::now());
    }

    /// Notes how long a flush has waited for the base.
    pub fn on_waited(&self, time: Duration) {
        self.waits_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Notes a flush of so many rows.
    pub fn on_flushed(&self, rows: u64, time: Duration) {
        *self.flushed_at.lock() = Some(Instant::now());
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.last_us.store(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns whether a flush makes room on a short disk: deletions and the log give back their bytes only then.
    pub fn makes_room(&self) -> bool {
        (self.shrunk.load(Ordering::Relaxed) || self.is_crowded.load(Ordering::Relaxed))
            && self.last_freeze().is_none_or(|frozen| frozen.elapsed() > ROOM_INTERVAL)
    }

    /// Notes a look at the disk: its free bytes, and how far the active generation may grow until the next one.
    pub fn on_disk(&self, free_bytes: u64, active_bytes_max: u64) {
        self.disk_free_bytes.store(free_bytes, Ordering::Relaxed);
        self.active_bytes_max.store(active_bytes_max, Ordering::Relaxed);
    }

    /// Returns the free bytes of the disk at the last look.
    pub fn disk_free_bytes(&self) -> u64 {
        self.disk_free_bytes.load(Ordering::Relaxed)
    }

    /// Sets whether rows that are not flushed take the room that writes need.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    /// Returns whether the log has refused records lately.
    pub fn is_log_refusing(&self) -> bool {
        self.log_refused.lock().is_some()
    }

    /// Returns whether the log has refused records for so long that it is to try again. After another refusal, that
    /// time begins anew.
    pub fn is_log_to_retry(&self) -> bool {
        self.log_refused.lock().take_if(|since| since.elapsed() > RETRY_INTERVAL).is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> FlushControl {
        FlushControl::new(1 << 20, 1 << 20, Arc::default())
    }

    #[test]
    fn a_turn_that_brings_only_what_was_left_over_serves_no_request() {
        let control = control();
        control.demand();
        let forced = Work { forced: 1, is_forced: true, closing: false, abandoned: false };
        let served = |work: &Work, result| {
            control.on_turn(work, result);
            control.state.lock().served
        };
        assert_eq!(served(&forced, Err("the disk is full".into())), 0);
        assert_eq!(served(&Work { is_forced: false, ..forced }, Ok(())), 0, "the caller may not have been told yet");
        assert_eq!(served(&Work { abandoned: true, closing: true, ..forced }, Ok(())), 0, "nothing was flushed");
        assert_eq!(served(&Work { closing: true, is_forced: false, ..forced }, Ok(())), 1);
        assert_eq!(control.flush_now(), Err("the store is closed".into()));
    }

    #[test]
    fn a_log_that_is_only_busy_does_not_refuse() {
        let control = control();
        for (error, is_refusing) in [
            (AppendError::Busy, false),
            (AppendError::TooLarge, false),
            (AppendError::Full("no room".into()), true),
            (AppendError::Busy, true),
        ] {
            control.on_log_refused(&error);
            assert_eq!(control.is_log_refusing(), is_refusing, "{error}");
        }
    }
}
