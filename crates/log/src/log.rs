//! The log as its users see it: reserve, append, write, wait, close.
//!
//! The story of a change: `reserve` before anything is published, `append` under the caller's latches, `write` once
//! per tick, and the reply leaves when `durable` has reached its index. Bookkeeping is in `state.rs`, the threads
//! are in `write.rs`, `sync.rs` and `space.rs`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::durable::Durability;
use crate::error::OpenError;
use crate::files::write_all_at;
use crate::format::{Entry, History, HistoryStart, Index, Kind, Origin, clean_mark};
use crate::histories::{Applied, Histories};
use crate::options::Options;
use crate::phase::Phase;
use crate::queue::{NotNext, Queue};
use crate::reader::Reader;
use crate::record::Record;
use crate::replay::Replay;
use crate::state::{Failure, RECORD_CHARGE_BYTES, Shared, State, Threads};
use crate::survey::{Cut, Survey};

/// How long a look at whether the log has settled is put off.
const SETTLE: Duration = Duration::from_millis(10);

/// The longest body: with its headers it stays below 4 GiB.
const BODY_BYTES_MAX: usize = u32::MAX as usize - 4096;

/// An open log. Shared by reference; dropping it without [`close`](Log::close) is an unclean stop.
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

/// What [`Log::open`] found.
pub struct Opened {
    pub log: Log,
    /// The records above `applied`. The log takes appends when this is finished.
    pub replay: Replay,
    /// The history that appends go to: a new one unless the last stop was clean.
    pub history: History,
    /// What that history continues, and the last index that both share.
    pub parent: Option<(History, Index)>,
    /// The last stop left its mark.
    pub clean: bool,
    /// The last record of the log as found. Neither an open nor a close takes an index.
    pub last: Index,
    /// What was found behind it and does not count.
    pub cut: Option<Cut>,
    /// The first history that begins with data which were loaded into the base, and which the base does not have.
    /// Records behind that start cannot be applied to it; if there are none, the load never came to be.
    pub lacking: Option<HistoryStart>,
}

/// Room for one record, given back if it is dropped unused.
#[must_use]
pub struct Reservation<'a> {
    shared: &'a Shared,
    charge: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shared.give_back(self.charge);
    }
}

impl PartialEq for Reservation<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.shared, other.shared) && self.charge == other.charge
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("charge", &self.charge).finish()
    }
}

/// Why a record cannot be appended now. Nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The disk is full, with what it said. The log tries again by itself; see also [`Log::retry`].
    Full(String),
    /// Writes have stopped after a failure; the log tries again by itself.
    Failed(String),
    /// The bound of unsynced bytes is reached or a segment is being made: wait for `on_durable` and try again, or use
    /// [`Log::reserve_within`].
    Busy,
    /// Longer than any record may be.
    TooLarge,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Full(text) => write!(f, "no space for the log: {text}"),
            AppendError::Failed(text) => write!(f, "the log cannot be written: {text}"),
            AppendError::Busy => f.write_str("the log is behind with writing"),
            AppendError::TooLarge => f.write_str("a log record is limited to 4 GiB"),
        }
    }
}

impl std::error::Error for AppendError {}

impl From<&Failure> for AppendError {
    fn from(failure: &Failure) -> AppendError {
        let text = failure.text.clone();
        if failure.full { AppendError::Full(text) } else { AppendError::Failed(text) }
    }
}

/// Why records could not be made durable; they are still in memory, and the log tries again by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncError(pub String);

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log cannot be synced: {}", self.0)
    }
}

impl std::error::Error for SyncError {}

/// How a log was closed without losing what was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// With everything, and the mark of a clean stop.
    Marked,
    /// Without the mark, and without what was never written; why.
    Unmarked(SyncError),
}

/// Numbers for INFO and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes on the disk: all segments, and the spare.
    pub bytes: u64,
    pub segments: u64,
    /// A segment with allocated space waits for its turn.
    pub has_spare: bool,
    /// Bytes in memory that are not synced yet.
    pub unsynced_bytes: u64,
    /// Bytes of segments that hold records above the applied index last given to `purge`.
    pub since_applied_bytes: u64,
    /// Groups written.
    pub writes: u64,
    /// Rounds of the writer thread.
    pub deferred_writes: u64,
    pub syncs: u64,
    pub last_sync_us: u64,
    /// Times that unsynced records went to a new segment, the first segment after open included.
    pub recoveries: u64,
    /// What led to the newest recovery from a failure.
    pub last_failure: Option<String>,
    /// Index of the first record that is still kept.
    pub first: Index,
}

impl Log {
    /// Finds the log in `options.dir`, and makes durable what it finds. Nothing else is changed there until the replay
    /// is finished.
    pub fn open(options: Options, applied: impl Into<Applied>) -> Result<Opened, OpenError> {
        let applied = applied.into();
        let mut survey = Survey::of(&options, applied)?;
        survey.write_end_again(&*options.files)?;
        let (last, clean, cut) = (survey.last, survey.clean, survey.cut.take());
        let (mut histories, lacking) = (survey.histories.clone(), survey.lacking);
        if let Some(origin) = origin_at_open(&survey, options.follows) {
            histories.push(HistoryStart { history: random_history(&options), origin });
        }
        let next_number = survey.next_number;
        let shared =
            Arc::new(Shared::new(options, histories, (last, survey.time_ms), survey.segments.clone(), next_number));
        let start = shared.state.lock().start();
        let threads = Arc::new(Threads::default());
        let replay = Replay::new(shared.clone(), threads.clone(), survey, applied.index);
        let log = Log { shared, threads };
        Ok(Opened { log, replay, history: start.history, parent: start.parent(), clean, last, cut, lacking })
    }

    /// Takes room for one record with a body of at most `body_bytes`. Never blocks.
    #[inline]
    pub fn reserve(&self, body_bytes: usize) -> Result<Reservation<'_>, AppendError> {
        if body_bytes > BODY_BYTES_MAX {
            return Err(AppendError::TooLarge);
        }
        let shared = &*self.shared;
        let charge = body_bytes as u64 + RECORD_CHARGE_BYTES;
        if shared.budget.take(charge) {
            return Ok(Reservation { shared, charge });
        }
        shared.reserve_slowly(charge, None)
    }

    /// As [`reserve`](Self::reserve), but waits while the log is busy: for threads that may block. Who waits first is
    /// served first, and before those who do not wait.
    pub fn reserve_within(&self, body_bytes: usize, limit: Duration) -> Result<Reservation<'_>, AppendError> {
        let result = self.reserve(body_bytes);
        if result != Err(AppendError::Busy) {
            return result;
        }
        let deadline = Instant::now() + limit;
        let turn = self.shared.turn.try_lock_until(deadline);
        let _turn = turn.ok_or(AppendError::Busy)?;
        self.shared.reserve_slowly(body_bytes as u64 + RECORD_CHARGE_BYTES, Some(deadline))
    }

    /// Waits, up to `limit`, until a record of so many bytes leaves half of the memory bound free. A thread that writes
    /// much calls it before `reserve_within`, so that those who may not wait find room beside it. Nothing is reserved,
    /// and nothing is kept for who waits. A record of a quarter of the bound or of a segment, or more, does not wait
    /// here: it may need all of it.
    pub fn leave_room(&self, body_bytes: usize, limit: Duration) {
        let (shared, charge) = (&*self.shared, body_bytes as u64 + RECORD_CHARGE_BYTES);
        let unsynced_bytes_max = shared.options.unsynced_bytes_max;
        if charge >= unsynced_bytes_max.min(shared.options.segment_bytes) / 4 {
            return;
        }
        let deadline = Instant::now() + limit;
        let mut state = shared.state.lock();
        loop {
            // Set before the look at what is charged: whoever makes room after that look sees it.
            shared.busy.store(true, Ordering::SeqCst);
            let charged = shared.budget.charged();
            let fits = charged + charge <= state.memory_limit(unsynced_bytes_max / 2);
            if fits || state.failure.is_some() || state.closing || !state.phase.is_live() {
                return;
            }
            state.sync_wanted = state.sync_wanted.max(shared.reached.last());
            shared.sync_cv.notify_one();
            if shared.progress_cv.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Gives the record its index and puts it into the buffer: called under the latches that order the memtable.
    /// `time_ms` is the wall clock in milliseconds, and taken for that of the record before where it went back;
    /// `body_crc` is what [`body_crc`](crate::body_crc) makes of `body`.
    #[inline]
    pub fn append(&self, reserved: Reservation<'_>, kind: Kind, time_ms: u64, body: &[u8], body_crc: u32) -> Index {
        let charge = self.redeem(reserved, body.len());
        self.shared.append(&mut self.shared.queue.lock(), kind, time_ms, body, body_crc, charge)
    }

    /// Appends a record of another log, of which this one is a copy: with the same index, term, entry, time and body.
    /// Called under the latches that order the memtable. The record's history is the caller's to compare.
    ///
    /// # Errors
    /// The record does not come next: another log may say anything. Nothing has happened.
    pub fn append_at(&self, reserved: Reservation<'_>, record: &Record<'_>, body_crc: u32) -> Result<(), NotNext> {
        let Record { index, term, entry, kind, time_ms, body, .. } = *record;
        let mut queue = self.shared.queue.lock();
        queue.follow(index, Entry { term, number: entry }, time_ms)?;
        let charge = self.redeem(reserved, body.len());
        self.shared.append(&mut queue, kind, time_ms, body, body_crc, charge);
        Ok(())
    }

    /// Returns the charge of a reservation that a body of this length is about to use up.
    #[inline]
    fn redeem(&self, reserved: Reservation<'_>, body_bytes: usize) -> u64 {
        let charge = reserved.charge;
        assert!(
            std::ptr::eq(reserved.shared, &*self.shared) && body_bytes as u64 + RECORD_CHARGE_BYTES <= charge,
            "the reservation is of this log and covers the record"
        );
        std::mem::forget(reserved);
        charge
    }

    /// Records from here on are of this term and entry of a consensus group: their groups say so, and share none with
    /// the records before. Both numbers are 0 outside of one. Called under the latches that order the memtable.
    ///
    /// # Panics
    /// Terms and entries never go back.
    pub fn begin_entry(&self, term: u64, entry: u64) {
        self.shared.queue.lock().begin_entry(Entry { term, number: entry });
    }

    /// The last index given out.
    pub fn last(&self) -> Index {
        self.shared.reached.last()
    }

    /// Hands everything appended so far to the operating system if that can go at once, else wakes a thread to do it;
    /// then [`on_durable`](Self::on_durable) tells. Returns the contiguous written index.
    #[inline]
    pub fn write(&self) -> Index {
        let written = self.written();
        if written == self.last() { written } else { self.shared.write_inline() }
    }

    /// Every record up to here has been handed to the operating system.
    #[inline]
    pub fn written(&self) -> Index {
        self.shared.reached.written()
    }

    /// Every record up to here is on the disk.
    #[inline]
    pub fn synced(&self) -> Index {
        self.shared.reached.synced()
    }

    /// Every record up to here is as durable as the setting asks.
    #[inline]
    pub fn durable(&self) -> Index {
        self.shared.reached.durable()
    }

    /// Changes the setting at run time; what waits already waits for the new one.
    pub fn set_durability(&self, durability: Durability) {
        self.shared.reached.ask(durability);
        let state = self.shared.state.lock();
        self.shared.sync_cv.notify_one();
        drop(state);
        self.shared.wake();
    }

    /// `wake` is called whenever [`durable`](Self::durable) advanced on a thread other than a caller of
    /// [`write`](Self::write), or on such a caller for others, and when the log failed, recovered or got room. It must
    /// be quick and must not call back into the log's blocking functions.
    pub fn on_durable(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        let mut wakes = self.shared.wakes.lock();
        *wakes = wakes.iter().cloned().chain([wake]).collect();
    }

    /// Why writes have stopped, if they have.
    pub fn failed(&self) -> Option<String> {
        let state = self.shared.state.lock();
        state.failure.as_ref().or(state.missing.as_ref()).map(|failure| failure.text.clone())
    }

    /// Returns the history that appends go to.
    pub fn history(&self) -> History {
        self.shared.state.lock().start().history
    }

    /// Returns the histories that this log went through.
    pub fn histories(&self) -> Histories {
        self.shared.state.lock().histories.clone()
    }

    /// Returns the history that a base names which holds everything through `index`.
    pub fn history_of(&self, index: Index) -> Option<History> {
        self.shared.state.lock().histories.stamp(index)
    }

    /// Begins a history without a parent, because the base is about to take in data that no record tells of. It is on
    /// the disk when this returns, and takes no index. Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn begin_loaded_history(&self) -> Result<HistoryStart, SyncError> {
        let history = random_history(&self.shared.options);
        self.begin(|_, last| HistoryStart { history, origin: Origin::Loaded(last) })
    }

    /// Begins a history of this log's own, which forks behind the last record: what a copy does that goes on by itself.
    /// It is on the disk when this returns, and takes no index. Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn begin_history(&self) -> Result<HistoryStart, SyncError> {
        let history = random_history(&self.shared.options);
        self.begin(|histories, last| {
            let parent = histories.newest().expect("an open log has a history").history;
            HistoryStart { history, origin: Origin::Fork(parent, last) }
        })
    }

    /// Goes on with the next history of the log of which this one is a copy. Where that log went through several
    /// without a record, each is adopted in turn. It is on the disk when this returns. Blocks.
    ///
    /// # Panics
    /// The history forks right behind the last record from the one that this log has.
    ///
    /// # Errors
    /// The log cannot be written or synced. It may be tried again.
    pub fn adopt_history(&self, start: HistoryStart) -> Result<(), SyncError> {
        let state = self.shared.state.lock();
        let current = state.start();
        if current == start {
            return state.failure.as_ref().map_or(Ok(()), |failure| Err(SyncError(failure.text.clone())));
        }
        drop(state);
        self.begin(|_, last| {
            assert_eq!(start.parent(), Some((current.history, last)), "the next history forks behind the last record");
            start
        })
        .map(drop)
    }

    /// Leaves a history that began with a load which never came to be: another one goes on with what was before.
    /// Blocks.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn abandon_loaded_history(&self, loaded: HistoryStart) -> Result<(), SyncError> {
        if self.last() != loaded.after() {
            // Records of it are there: the base gets beyond its start with the next flush.
            return Ok(());
        }
        let history = random_history(&self.shared.options);
        self.begin(|histories, _| HistoryStart { history, origin: histories.origin_without(loaded) }).map(drop)
    }

    /// Begins the history of `next`, which is told what there is and the last index. All before is on the disk then,
    /// and so is the segment that names it.
    fn begin(&self, next: impl Fn(&Histories, Index) -> HistoryStart) -> Result<HistoryStart, SyncError> {
        let shared = &*self.shared;
        loop {
            self.sync_through(self.last())?;
            let mut state = shared.state.lock();
            if !state.phase.is_live() {
                return Err(SyncError("it is not running".into()));
            }
            if state.writing || matches!(state.phase, Phase::Rotating | Phase::Broken) {
                shared.progress_cv.wait_for(&mut state, SETTLE);
                continue;
            }
            // What is appended from here on is of the new history: the segment that is made for it takes it.
            let last = shared.queue.lock().last();
            if last != state.synced {
                continue;
            }
            let start = next(&state.histories, last);
            state.histories.push(start);
            shared.recover(&mut state);
            if state.can_write() {
                shared.drive(&mut state);
            }
            let failure = state.failure.as_ref().map(|failure| SyncError(failure.text.clone()));
            drop(state);
            shared.wake();
            return failure.map_or(Ok(start), Err);
        }
    }

    /// Blocks until every record up to `index` is on the disk. What is above the last index given out counts as that.
    pub fn sync_through(&self, index: Index) -> Result<(), SyncError> {
        let index = index.min(self.last());
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        while state.synced < index {
            if let Some(failure) = &state.failure {
                return Err(SyncError(failure.text.clone()));
            }
            if !state.phase.is_live() {
                return Err(SyncError("it is not running".into()));
            }
            state.sync_wanted = state.sync_wanted.max(index);
            shared.sync_cv.notify_one();
            shared.progress_cv.wait(&mut state);
        }
        Ok(())
    }

    /// Has everything appended so far synced soon, without waiting for it; [`on_durable`](Self::on_durable) tells when
    /// [`synced`](Self::synced) has got further.
    pub fn request_sync(&self) {
        let index = self.last();
        let shared = &*self.shared;
        let mut state = shared.state.lock();
        if state.synced < index {
            state.sync_wanted = state.sync_wanted.max(index);
            state.sync_is_watched = true;
            shared.sync_cv.notify_one();
        }
    }

    /// Tells the applied index of the base: segments that hold nothing above it go, as far as retention allows.
    pub fn purge(&self, applied: Index) {
        self.shared.purge(applied);
    }

    /// Follows the log behind `after`.
    pub fn reader(&self, after: Index) -> Reader {
        Reader::new(self.shared.clone(), after)
    }

    /// What is noted of the log's end is on the disk.
    pub fn is_end_durable(&self) -> bool {
        self.shared.state.lock().end_noted.is_none()
    }

    /// Tries at once what failed, instead of once a second.
    pub fn retry(&self) {
        let mut state = self.shared.state.lock();
        state.retry = true;
        self.shared.space_cv.notify_one();
    }

    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        let spare_bytes = state.spare.as_ref().map_or(0, |spare| spare.bytes);
        let counters = &state.counters;
        Stats {
            bytes: state.segments.iter().map(|held| held.bytes).sum::<u64>() + spare_bytes,
            segments: state.segments.len() as u64,
            has_spare: state.spare.is_some(),
            unsynced_bytes: self.shared.budget.charged().saturating_sub(state.synced_charge),
            since_applied_bytes: state.bytes_since_applied(),
            writes: counters.writes,
            deferred_writes: counters.deferred_writes,
            syncs: counters.syncs,
            last_sync_us: counters.last_sync_us,
            recoveries: counters.recoveries,
            last_failure: counters.last_failure.clone(),
            first: state.segments.first().map_or(state.written.next(), |held| held.first),
        }
    }

    /// What the slowest sync since the last call took.
    pub fn take_slowest_sync_us(&self) -> u64 {
        std::mem::take(&mut self.shared.state.lock().counters.slowest_sync_us)
    }

    /// Writes and syncs everything, leaves the mark of a clean stop, and ends the threads. Appends are refused from
    /// here on. Where that fails, it is an error only if records that were written are not on the disk: those that were
    /// never written have never been durable to anybody.
    ///
    /// # Errors
    /// Records that were written are not on the disk, or a file is missing that the next start needs.
    pub fn close(&self) -> Result<Closed, SyncError> {
        let shared = &*self.shared;
        let missing = self.look().missing.map(SyncError);
        {
            let mut state = shared.state.lock();
            if !state.phase.is_live() {
                return Ok(Closed::Marked);
            }
            state.closing = true;
            shared.set_limit(&state);
            shared.progress_cv.notify_all();
        }
        let synced = self.sync_through(self.last());
        self.stop();
        let marked = synced.and_then(|()| missing.clone().map_or(Ok(()), Err)).and_then(|()| shared.mark_clean());
        match marked {
            Ok(()) => Ok(Closed::Marked),
            Err(error) if missing.is_some() || self.written() > self.synced() => Err(error),
            Err(error) => Ok(Closed::Unmarked(error)),
        }
    }

    fn stop(&self) {
        {
            let mut state = self.shared.state.lock();
            state.close();
            let shared = &*self.shared;
            for cv in [&shared.sync_cv, &shared.write_cv, &shared.space_cv, &shared.progress_cv] {
                cv.notify_all();
            }
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            thread.join().expect("the log's threads do not panic");
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Tries again with the state locked; waits until `deadline`, if there is one, while the log is busy.
    #[cold]
    fn reserve_slowly(&self, charge: u64, deadline: Option<Instant>) -> Result<Reservation<'_>, AppendError> {
        let mut state = self.state.lock();
        // It counts while it waits, so that room is kept for it.
        self.budget.force(charge);
        loop {
            let error = match self.admit(&mut state, charge) {
                Ok(()) => return Ok(Reservation { shared: self, charge }),
                Err(error) => error,
            };
            let waits = error == AppendError::Busy
                && deadline.is_some_and(|deadline| !self.progress_cv.wait_until(&mut state, deadline).timed_out());
            if !waits {
                self.budget.give_back(charge);
                return Err(error);
            }
        }
    }

    /// Decides about a charge that is counted already.
    fn admit(&self, state: &mut State, charge: u64) -> Result<(), AppendError> {
        if let Some(failure) = state.failure.as_ref().or(state.missing.as_ref()) {
            return Err(failure.into());
        }
        if state.closing || state.phase == Phase::Closed {
            return Err(AppendError::Failed("it is closed".into()));
        }
        if state.phase == Phase::Opening {
            return Err(AppendError::Failed("it has not been replayed to its end".into()));
        }
        // Set before the look at what is charged: whoever gives back after that look sees it.
        self.busy.store(true, Ordering::SeqCst);
        if matches!(state.phase, Phase::Broken | Phase::Recovering) {
            return Err(AppendError::Busy);
        }
        let charged = self.budget.charged();
        let fits = charged <= state.space_limit();
        // A record longer than the memory bound passes when it is alone.
        if fits
            && (charged <= state.memory_limit(self.options.unsynced_bytes_max)
                || charged - charge <= state.synced_charge)
        {
            return Ok(());
        }
        // What is appended and not synced is in the way.
        state.sync_wanted = state.sync_wanted.max(self.reached.last());
        self.sync_cv.notify_one();
        if fits {
            return Err(AppendError::Busy);
        }
        // Or there is no spare, or none that is large enough.
        state.need = state.need.max(charge);
        self.space_cv.notify_one();
        state.space_error.as_ref().map_or(Err(AppendError::Busy), |failure| Err(failure.into()))
    }

    fn give_back(&self, charge: u64) {
        self.budget.give_back(charge);
        if self.busy.load(Ordering::SeqCst) {
            let state = self.state.lock();
            let wake = self.room_made();
            drop(state);
            if wake {
                self.wake();
            }
        }
    }

    #[inline]
    fn append(&self, queue: &mut Queue, kind: Kind, time_ms: u64, body: &[u8], body_crc: u32, charge: u64) -> Index {
        let index = queue.append(kind, time_ms, body, body_crc, charge, || self.reached.synced());
        self.reached.set_last(index);
        index
    }

    /// Leaves the mark of a clean stop behind the last record, when nobody writes any more, and gives back the space
    /// that was allocated ahead.
    fn mark_clean(&self) -> Result<(), SyncError> {
        let mut state = self.state.lock();
        assert_eq!(state.phase, Phase::Closed);
        while state.writing {
            self.progress_cv.wait(&mut state);
        }
        let (last, entry) = self.queue.lock().end();
        let failed = |text: &str| SyncError(text.to_owned());
        if last != state.synced {
            return Err(failed("records were appended while it was closed"));
        }
        let Some(active) = &state.active else {
            return Err(failed(state.failure.as_ref().map_or("it has no segment", |failure| &failure.text)));
        };
        let mark = clean_mark(active.segment.header.salt, last, entry);
        let end = active.offset + mark.len() as u64;
        // With the mark a file may be shorter than it was allocated: it is truncated behind it, which need not succeed.
        let written = write_all_at(&*active.file, &mark, active.offset).and_then(|()| active.file.sync());
        written.map_err(|error| SyncError(Failure::new("cannot mark", &active.segment.path, &error).text))?;
        drop(active.file.truncate(end));
        drop(active.file.sync());
        if let Some(spare) = state.spare.take() {
            drop(self.files.remove(&spare.segment.path));
        }
        self.note_end(&mut state);
        self.sync_end(&mut state);
        Ok(())
    }
}

/// Where the history of an open log comes from; None if the one that was found goes on.
fn origin_at_open(survey: &Survey, follows: bool) -> Option<Origin> {
    let Some(newest) = survey.histories.newest() else { return Some(Origin::Nothing) };
    match survey.lacking {
        // The load never came to be, and nothing was written since.
        Some(loaded) if survey.last == loaded.after() => Some(survey.histories.origin_without(loaded)),
        _ => (!survey.clean && !follows).then_some(Origin::Fork(newest.history, survey.last)),
    }
}

fn random_history(options: &Options) -> History {
    let mut name = [0; 20];
    for piece in name.chunks_mut(8) {
        piece.copy_from_slice(&(options.random)().to_le_bytes()[..piece.len()]);
    }
    // All zeros stand for "no history" in the format.
    name[0] = name[0].max(1);
    History(name)
}
