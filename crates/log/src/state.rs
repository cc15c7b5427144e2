//! The state that the log's threads share: one mutex over the bookkeeping, never held across I/O, and the counters that
//! a reservation reads without it.
//!
//! Invariant: locks are taken in the order `state`, `queue`, which `locks.rs` asserts. Appends take only `queue`. The
//! stories that use this state are in `write.rs`, `sync.rs`, `space.rs` and `reader.rs`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::budget::Budget;
use crate::durable::Reached;
use crate::end::EndWriter;
use crate::files::Files;
use crate::format::{EntrySpan, GROUP_HEADER_BYTES, HistoryStart, Index, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::histories::Histories;
use crate::locks::{First, Second};
use crate::options::Options;
use crate::phase::Phase;
use crate::queue::{Part, Queue};
use crate::segment::{Active, Held, Segment, Spare, segment_name, unfinished_name};

/// The most that a record costs beyond its body: its header, and a group of its own.
pub(crate) const RECORD_CHARGE_BYTES: u64 = (RECORD_HEADER_BYTES + GROUP_HEADER_BYTES) as u64;

pub(crate) struct Shared {
    pub options: Options,
    pub files: Arc<dyn Files>,
    pub queue: Second<Queue>,
    pub state: First<State>,
    /// Wakes the sync thread, the writer thread, the space thread.
    pub sync_cv: Condvar,
    pub write_cv: Condvar,
    pub space_cv: Condvar,
    /// Wakes threads that block for an index to be synced, for room, or for the writer to leave.
    pub progress_cv: Condvar,

    /// Mirrors of indexes in `queue` and `state`, for reading without a lock.
    pub reached: Reached,
    /// The lock of the one thread that waits for room; others that want room wait for this lock.
    pub turn: Mutex<()>,
    /// A caller was told that the log is busy, and waits for room.
    pub busy: AtomicBool,
    /// Room for records: all that is reserved fits the segments at hand and the memory bound. After a failure there is
    /// none.
    pub budget: Budget,

    /// Segments that were purged and whose files are still to be removed, the oldest first. Held across its I/O, by
    /// those who purge only; no lock is taken in it.
    pub doomed: Mutex<VecDeque<Arc<Segment>>>,
    pub wakes: Mutex<Arc<[Wake]>>,
    /// The function that is told of each advance, by whichever thread.
    pub on_advance: OnceLock<Wake>,
    /// The end file; None until it is there. The lock is held across its I/O, by the log's threads, open and close
    /// only; no lock is taken in it.
    pub end: Mutex<Option<EndWriter>>,
}

/// The log's threads, which its close joins.
pub(crate) type Threads = Mutex<Vec<JoinHandle<()>>>;

/// A function that is called when `durable` advanced, or the log failed.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Groups that are written and perhaps not synced, still in memory. All of them are in the active segment, before which
/// everything is synced.
#[derive(Debug)]
pub(crate) struct Retained {
    /// Offset in the file.
    pub offset: u64,
    pub first: Index,
    pub last: Index,
    pub charge: u64,
    pub bytes: BytesMut,
}

pub(crate) struct State {
    /// The phase of the log's life, changed by `advance` alone.
    pub phase: Phase,
    /// Why the newest recovery failed; None once one succeeds.
    ///
    /// Invariant: there is one while the log is `Failed`, and none while it is `Running` or `Rotating`.
    pub failure: Option<Failure>,
    /// `close` was called: no reservation is given, while the last records are written and synced.
    pub closing: bool,
    /// The log takes another one's records: the history that it is in is not its own to go on with.
    pub follows: bool,
    /// The entries of a group's leader that were written and not taken by [`Log::take_entries`](crate::Log), in order;
    /// None on a log that does not lead.
    pub led: Option<Vec<EntrySpan>>,
    /// The histories that the log went through.
    ///
    /// Invariant: never empty; the newest one is that of the segments that are made.
    pub histories: Histories,
    /// Segments in the order of their numbers; the last is the active one, where there is one.
    pub segments: Vec<Held>,
    /// The segment that groups are written to.
    ///
    /// Invariant: there is one while the log is `Running` or `Rotating`; once there is one, there always is.
    pub active: Option<Active>,
    pub spare: Option<Spare>,
    pub next_number: u64,
    /// Number of the last salt given out, and the one before the first; see [`State::salt`].
    pub salts: u32,
    pub salts_begin: u32,

    /// Parts that were taken from the queue and are not written: the active segment has no room, or the write failed.
    pub held: VecDeque<Part>,
    /// Groups that are written and not synced.
    ///
    /// Invariant: in order and without gaps, from `synced + 1` to `written`.
    pub retained: VecDeque<Retained>,
    /// The newest retained entry may not grow: a sync in progress covers exactly what is in it.
    pub retained_closed: bool,
    /// The indexes through which all is written and synced. Changed by `Shared::set_written` and `Shared::set_synced`
    /// alone, which keep `Shared::reached` in step and assert the order.
    pub written: Index,
    pub synced: Index,
    pub written_charge: u64,
    pub synced_charge: u64,

    /// A thread is between taking parts and having written them, or makes a segment of them; never two threads.
    pub writing: bool,
    /// Whether a thread had something to write while another one had `writing` set.
    pub again: bool,
    /// Writes were slow of late: the writer thread does them.
    pub slow: bool,
    pub fast_writes: u32,
    pub write_wanted: bool,
    /// The number of the segment for which the sync near its end was started.
    pub presynced: u64,

    pub sync_wanted: Index,
    /// `sync_wanted` was asked for by a caller that does not block, and is told by `on_durable`.
    pub sync_is_watched: bool,
    pub sync_now: bool,
    /// The sync thread sleeps without a deadline.
    pub sync_idle: bool,
    pub last_sync: Instant,
    /// The moment when the log's end was noted without being synced there.
    pub end_noted: Option<Instant>,
    /// A file that the next start would need is gone: see `watch.rs`.
    pub missing: Option<Failure>,
    /// The last attempt to get a spare segment failed.
    pub space_error: Option<Failure>,
    /// The largest charge that did not fit any segment.
    pub need: u64,
    pub retry: bool,
    pub applied: Index,
    /// Records above these are not purged: see [`Hold`](crate::Hold).
    pub holds: Vec<Index>,
    /// The hold in `holds` that nobody has yet.
    pub kept: Option<Index>,

    pub counters: Counters,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub writes: u64,
    pub deferred_writes: u64,
    pub syncs: u64,
    pub last_sync_us: u64,
    /// The microseconds of the slowest sync since `Log::take_slowest_sync_us`.
    pub slowest_sync_us: u64,
    pub recoveries: u64,
    /// The failure that led to the newest recovery.
    pub last_failure: Option<String>,
}

/// Why the log does not write.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub text: String,
    pub full: bool,
}

impl Failure {
    pub(crate) fn new(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
        let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        Failure { text: format!("{doing} {}: {error}", path.display()), full }
    }
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        histories: Histories,
        (last, time_ms): (Index, u64),
        segments: Vec<Held>,
        next_number: u64,
    ) -> Shared {
        let salts = (options.random)() as u32;
        let state = State {
            phase: Phase::Opening,
            failure: None,
            closing: false,
            follows: options.follows,
            led: None,
            histories,
            segments,
            active: None,
            spare: None,
            next_number,
            salts,
            salts_begin: salts,
            held: VecDeque::new(),
            retained: VecDeque::new(),
            retained_closed: false,
            written: last,
            synced: last,
            written_charge: 0,
            synced_charge: 0,
            writing: false,
            again: false,
            slow: false,
            fast_writes: 0,
            write_wanted: false,
            presynced: 0,
            sync_wanted: Index(0),
            sync_is_watched: false,
            sync_now: false,
            sync_idle: false,
            last_sync: Instant::now(),
            end_noted: None,
            missing: None,
            space_error: None,
            need: 0,
            retry: false,
            applied: Index(0),
            holds: options.kept_after.into_iter().collect(),
            kept: options.kept_after,
            counters: Counters::default(),
        };
        Shared {
            files: options.files.clone(),
            reached: Reached::new(last, options.durability),
            options,
            queue: Second::new(Queue::new(last, time_ms)),
            state: First::new(state),
            sync_cv: Condvar::new(),
            write_cv: Condvar::new(),
            space_cv: Condvar::new(),
            progress_cv: Condvar::new(),
            turn: Mutex::new(()),
            busy: AtomicBool::new(false),
            budget: Budget::new(),
            doomed: Mutex::default(),
            wakes: Mutex::new(Arc::new([])),
            on_advance: OnceLock::new(),
            end: Mutex::new(None),
        }
    }

    pub(crate) fn sync_interval(&self) -> Duration {
        Duration::from_millis(self.options.sync_interval_ms)
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.options.dir.join(segment_name(number))
    }

    /// Name of the file that becomes segment `number` when it is complete.
    pub(crate) fn unfinished_path(&self, number: u64) -> PathBuf {
        self.options.dir.join(unfinished_name(number))
    }

    /// Publishes how much may be reserved. Called whenever anything that it depends on changed.
    pub(crate) fn set_limit(&self, state: &State) {
        let limit = if state.is_shut() { 0 } else { state.limit(self.options.unsynced_bytes_max) };
        self.budget.set_limit(limit);
    }

    pub(crate) fn set_written(&self, state: &mut State, written: Index) {
        state.written = written;
        self.reached.set_written(written);
    }

    pub(crate) fn set_synced(&self, state: &mut State, synced: Index) {
        state.synced = synced;
        self.reached.set_synced(synced);
    }

    /// Wakes threads that wait for room, of which there may be more than before; true if a caller that does not block
    /// is to be told, too. Called with the state locked.
    pub(crate) fn room_made(&self) -> bool {
        let waited_for = self.busy.swap(false, Ordering::SeqCst);
        if waited_for {
            self.progress_cv.notify_all();
        }
        waited_for
    }

    /// Tells each caller that waits for durability. Never called with a lock held.
    pub(crate) fn wake(&self) {
        let wakes = self.wakes.lock().clone();
        for wake in wakes.iter().chain(self.on_advance.get()) {
            wake();
        }
    }

    /// Tells each caller that waits for durability that something else is as it wishes.
    pub(crate) fn wake_waiting(&self) {
        let wakes = self.wakes.lock().clone();
        wakes.iter().for_each(|wake| wake());
    }

    pub(crate) fn wake_unlocked(&self, state: &mut MutexGuard<'_, State>) {
        MutexGuard::unlocked(state, || self.wake());
    }
}

impl State {
    /// Changes the phase.
    pub(crate) fn advance(&mut self, to: Phase) {
        assert!(self.phase.may_become(to), "a log that is {:?} does not become {to:?}", self.phase);
        match to {
            Phase::Running | Phase::Rotating => {
                assert!(self.failure.is_none() && self.active.is_some(), "{to:?} without a failure, with a segment");
            }
            Phase::Recovering => assert!(!self.writing, "nobody writes into a segment that is given up"),
            Phase::Failed => assert!(self.failure.is_some(), "a failure has a reason"),
            Phase::Opening | Phase::Broken | Phase::Closed => {}
        }
        self.phase = to;
    }

    /// Has the log recovered as soon as no thread writes; a closed log is left as it is.
    pub(crate) fn break_off(&mut self) {
        if !matches!(self.phase, Phase::Broken | Phase::Closed) {
            self.advance(Phase::Broken);
        }
    }

    /// Ends the log's life, once or again.
    pub(crate) fn close(&mut self) {
        if self.phase != Phase::Closed {
            self.advance(Phase::Closed);
        }
    }

    /// Ends a recovery, or the opening; a log that was closed meanwhile stays so.
    pub(crate) fn end_recovery(&mut self) {
        if self.phase != Phase::Closed {
            self.advance(if self.failure.is_some() { Phase::Failed } else { Phase::Running });
        }
    }

    /// Whether nothing may be reserved, whatever there is room for.
    fn is_shut(&self) -> bool {
        let is_shut = match self.phase {
            Phase::Running | Phase::Rotating | Phase::Broken => false,
            Phase::Opening | Phase::Recovering | Phase::Failed | Phase::Closed => true,
        };
        is_shut || self.closing || self.failure.is_some() || self.missing.is_some()
    }

    /// Returns the active segment of a log that is `Running` or `Rotating`.
    pub(crate) fn active(&mut self) -> &mut Active {
        self.active.as_mut().expect("a log has an active segment from its first moment as Running on")
    }

    /// The history that records are appended to.
    pub(crate) fn start(&self) -> HistoryStart {
        self.histories.newest().expect("an open log has a history")
    }

    /// The charge up to which all that is reserved and not written fits the active segment or, failing that, the spare;
    /// and all that is not synced fits the memory bound.
    ///
    /// Invariant: unwritten charge <= max(room of the active segment, room of the spare). A write keeps it: a group is
    /// never longer than its charge, and when one does not fit the active segment, all that is unwritten fits the
    /// spare.
    pub(crate) fn limit(&self, unsynced_bytes_max: u64) -> u64 {
        self.space_limit().min(self.memory_limit(unsynced_bytes_max))
    }

    pub(crate) fn memory_limit(&self, unsynced_bytes_max: u64) -> u64 {
        self.synced_charge + unsynced_bytes_max
    }

    pub(crate) fn space_limit(&self) -> u64 {
        let room = self.active.as_ref().map_or(0, Active::room);
        let spare_room = self.spare.as_ref().map_or(0, |spare| spare.bytes - SEGMENT_HEADER_BYTES);
        self.written_charge + room.max(spare_room)
    }

    pub(crate) fn unsynced_charge(&self) -> u64 {
        self.written_charge - self.synced_charge
    }

    pub(crate) fn can_write(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Notes that a part of a leader's log was written, which is an entry.
    pub(crate) fn note_led(&mut self, part: &Part) {
        if let Some(led) = &mut self.led
            && part.entry.number > 0
        {
            let Part { first, last, entry, changes_members, .. } = *part;
            let before = led.last().map(|before| before.last.next());
            assert!(before.is_none_or(|next| next == first), "entries are written in their order: {before:?}, {first}");
            led.push(EntrySpan { term: entry.term, number: entry.number, first, last, changes_members });
        }
    }

    /// Puts a segment behind those that there are.
    pub(crate) fn push_segment(&mut self, held: Held) {
        if let Some(before) = self.segments.last() {
            assert!(
                before.segment.header.number < held.segment.header.number,
                "segments are in the order of their numbers"
            );
            assert!(before.last < held.first, "a record counts in one segment: {before:?}, {held:?}");
        }
        self.segments.push(held);
    }

    /// Drops from memory what is synced through `synced`.
    pub(crate) fn release(&mut self, synced: Index) {
        while self.retained.front().is_some_and(|entry| entry.last <= synced) {
            let entry = self.retained.pop_front().expect("there is a front");
            self.synced_charge += entry.charge;
        }
        assert!(self.synced_charge <= self.written_charge, "what is not written is not synced");
        let first = self.retained.front().map(|entry| entry.first);
        assert!(first.is_none_or(|first| first <= synced.next()), "what is not synced stays in memory: {first:?}");
    }
}
