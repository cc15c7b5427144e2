//! The log as its users see it: reserve, append, write, wait, close.
//!
//! The story of a change: `reserve` before anything is published, `append` under the caller's latches, `write` once
//! per tick, and the reply leaves when `durable` has reached its index. Reservations are decided in `reserve.rs`, the
//! bookkeeping is in `state.rs`, the threads are in `write.rs`, `sync.rs` and `space.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::durable::{Asked, Durability};
use crate::error::{OpenError, SyncError};
use crate::format::{Entry, History, HistoryStart, Index, Kind, Origin};
use crate::histories::{Applied, Histories};
use crate::options::{Options, random_history};
use crate::queue::{Long, NotNext, Queue};
use crate::reader::Reader;
use crate::record::Record;
use crate::replay::Replay;
use crate::reserve::{AppendError, Reservation};
use crate::state::{RECORD_CHARGE_BYTES, Shared, Threads};
use crate::survey::{Cut, Survey, origin_at_open};

/// The longest body: with its headers it stays below 4 GiB.
const BODY_BYTES_MAX: usize = u32::MAX as usize - 4096;

/// An open log. Shared by reference; dropping it without [`close`](Log::close) is an unclean stop.
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    threads: Arc<Threads>,
}

/// A log that was opened, and the facts that [`Log::open`] found.
pub struct Opened {
    pub log: Log,
    /// The records above `applied`. The log takes appends when this is finished.
    pub replay: Replay,
    /// The history that appends go to: a new one unless the last stop was clean.
    pub history: History,
    /// The history that this one continues, and the last index that both share.
    pub parent: Option<(History, Index)>,
    /// The last stop left its mark.
    pub clean: bool,
    /// The last record of the log as found. Neither an open nor a close takes an index.
    pub last: Index,
    /// Bytes that were found behind the last record and do not count.
    pub cut: Option<Cut>,
    /// The first history that begins with data which were loaded into the base, and which the base does not have.
    /// Records behind that start cannot be applied to it; if there are none, the load never came to be.
    pub lacking: Option<HistoryStart>,
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
            let founding = options.founding.filter(|_| origin == Origin::Nothing);
            let history = founding.unwrap_or_else(|| random_history(&options));
            histories.push(HistoryStart { history, origin });
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

    /// Takes room as [`reserve`](Self::reserve) does, but waits while the log is busy: for threads that may block. The
    /// thread that waits longest is served first, and before callers that do not wait.
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
    /// much calls it before `reserve_within`, so that threads that may not wait find room beside it. Nothing is
    /// reserved, and no room is kept for the caller. A record of a quarter of the bound or of a segment, or more, does
    /// not wait here: it may need all of it.
    pub fn leave_room(&self, body_bytes: usize, limit: Duration) {
        let (shared, charge) = (&*self.shared, body_bytes as u64 + RECORD_CHARGE_BYTES);
        let unsynced_bytes_max = shared.options.unsynced_bytes_max;
        if charge >= unsynced_bytes_max.min(shared.options.segment_bytes) / 4 {
            return;
        }
        let deadline = Instant::now() + limit;
        let mut state = shared.state.lock();
        loop {
            // Set before the look at what is charged: a thread that makes room after that look sees the flag.
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
        let long = Long::of(body);
        let mut queue = self.shared.queue.lock();
        self.shared.append(&mut queue, kind, time_ms, body, body_crc, charge, long)
    }

    /// Appends a record of another log, of which this one is a copy: with the same index, term, entry, time and body.
    /// Called under the latches that order the memtable. The record's history and its body's checksum are the caller's
    /// to compare.
    ///
    /// # Errors
    /// The record does not come next: another log may say anything. Nothing has happened.
    pub fn append_at(&self, reserved: Reservation<'_>, record: &Record<'_>) -> Result<(), NotNext> {
        let Record { index, term, entry, kind, time_ms, body, body_crc, .. } = *record;
        debug_assert_eq!(body_crc, crate::body::body_crc(body), "the checksum is that of the body");
        let long = Long::of(body);
        let mut queue = self.shared.queue.lock();
        queue.follow(index, Entry { term, number: entry }, time_ms)?;
        let charge = self.redeem(reserved, body.len());
        self.shared.append(&mut queue, kind, time_ms, body, body_crc, charge, long);
        Ok(())
    }

    /// Returns the charge of a reservation that a body of this length is about to use up.
    #[inline]
    pub(crate) fn redeem(&self, reserved: Reservation<'_>, body_bytes: usize) -> u64 {
        let charge = reserved.charge;
        assert!(
            std::ptr::eq(reserved.shared, &*self.shared) && body_bytes as u64 + RECORD_CHARGE_BYTES <= charge,
            "the reservation is of this log and covers the record"
        );
        std::mem::forget(reserved);
        charge
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

    /// Returns the last record that has been handed to the operating system, with all before it.
    #[inline]
    pub fn written(&self) -> Index {
        self.shared.reached.written()
    }

    /// Returns the last record that is on the disk, with all before it.
    #[inline]
    pub fn synced(&self) -> Index {
        self.shared.reached.synced()
    }

    /// Returns the last record that is as durable as the setting asks, with all before it.
    #[inline]
    pub fn durable(&self) -> Index {
        self.shared.reached.durable()
    }

    /// Returns the last record that is durable with all before it, and that other logs have where
    /// [`ask_others`](Self::ask_others) says so. May go back where that begins.
    #[inline]
    pub fn confirmed(&self) -> Index {
        self.shared.reached.confirmed()
    }

    /// Returns the last record that other logs have confirmed to have, with all before it. Never goes back.
    pub fn confirmed_by_others(&self) -> Index {
        self.shared.reached.confirmed_by_others()
    }

    /// Notes that as many other logs as are asked for have every record up to here, as durable as this log's setting
    /// asks. What waits for [`durable`](Self::durable) is told.
    pub fn confirm(&self, through: Index) {
        if self.shared.reached.confirm(through) && self.asks_others() {
            self.shared.wake_waiting();
        }
    }

    /// Whether a record is confirmed only when other logs have it, too.
    #[inline]
    pub fn asks_others(&self) -> bool {
        self.shared.reached.asks_others()
    }

    /// Sets whether a record is confirmed only when other logs have it, too.
    pub fn ask_others(&self, asks: bool) {
        if self.shared.reached.set_asked(if asks { Asked::Others } else { Asked::This }) {
            self.shared.wake_waiting();
        }
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

    /// `wake` is called as by [`on_durable`](Self::on_durable), and by each caller of [`write`](Self::write) that has
    /// written something. There is one.
    ///
    /// # Panics
    /// There is one already.
    pub fn on_advance(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        let is_first = self.shared.on_advance.set(wake).is_ok();
        assert!(is_first, "a log has one that is told of each advance");
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

    /// Returns the record through which the base is known to hold everything: nothing behind it is purged.
    pub fn applied(&self) -> Index {
        self.shared.state.lock().applied
    }

    /// Returns the time that no record so far is later than, in milliseconds.
    pub fn time_ms(&self) -> u64 {
        self.shared.queue.lock().time_ms()
    }

    /// Returns the history that a base names which holds everything through `index`.
    pub fn history_of(&self, index: Index) -> Option<History> {
        self.shared.state.lock().histories.stamp(index)
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

    /// Whether the newest note of the log's end is on the disk.
    pub fn is_end_durable(&self) -> bool {
        self.shared.state.lock().end_noted.is_none()
    }

    /// Tries at once what failed, instead of once a second.
    pub fn retry(&self) {
        let mut state = self.shared.state.lock();
        state.retry = true;
        self.shared.space_cv.notify_one();
    }

    /// Ends the threads.
    pub(crate) fn stop(&self) {
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
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "a record's parts, handed on as they are")]
    fn append(
        &self,
        queue: &mut Queue,
        kind: Kind,
        time_ms: u64,
        body: &[u8],
        body_crc: u32,
        charge: u64,
        long: Option<Long>,
    ) -> Index {
        let index = match long {
            None => queue.append(kind, time_ms, body, body_crc, charge, || self.reached.synced()),
            Some(long) => queue.append_long(kind, time_ms, body_crc, charge, long),
        };
        self.reached.set_last(index);
        index
    }
}
