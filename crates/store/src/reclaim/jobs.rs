//! The jobs of the reclaiming thread: ranges of the base that are to be compacted, and ranges that are not worth it
//! yet.

use super::dead::{DEAD_BYTES_MIN, DeadObjects, ELEMENTS, RANGE_SLOTS, Window};
use super::orphan::{BIG_OBJECT_BYTES, Orphan};
use super::whole::{Compaction, Wanted};
use crate::row::{Family, RowKey, SLOTS, Space, family_range, object_range};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The dead share of a window at which it is compacted.
const DEAD_SHARE: f64 = 0.25;

/// The dead share while flushes follow each other: the compactions that come with them drop dead rows at no cost of
/// their own.
const DEAD_SHARE_BUSY: f64 = 0.5;

/// The most jobs that wait; further ranges are left to periodic compaction.
const JOBS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) enum Job {
    Space(Space),
    Range(RowKey, RowKey),
    /// Dead objects are looked at, whether a range is worth a compaction.
    Look,
    /// A full compaction is divided into pieces.
    Begin(Wanted),
    /// A piece of a full compaction.
    Piece(RowKey, RowKey),
}

impl Job {
    /// Returns whether the job is a part of a full compaction.
    pub fn is_of_compaction(&self) -> bool {
        matches!(self, Job::Begin(_) | Job::Piece(..))
    }
}

/// Room that waits to be given back.
#[derive(Default)]
pub(crate) struct Reclaimer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Full compactions, which go on where there are no jobs.
    compaction: Compaction,
    /// Spaces whose job is queued or running.
    spaces: BTreeSet<Space>,
    /// Spaces of which nothing is left, and that the base remembers as dead until the next flush.
    gone: BTreeSet<Space>,
    /// Whether a job is running.
    is_busy: bool,
    dead: DeadObjects,
    /// Whether dead objects are to be looked at.
    must_look: bool,
    /// Whether flushes follow each other.
    is_flushing: bool,
    ranges_done: u64,
    spaces_done: u64,
    closing: bool,
    closed: bool,
}

impl Reclaimer {
    /// Takes the news that a flush has brought into the base: spaces that are dead, and objects without an owner with
    /// the bytes that each has there.
    pub fn on_dead(&self, spaces: &[Space], orphans: impl Iterator<Item = (Orphan, u64)>) {
        let mut state = self.state.lock();
        for &space in spaces {
            if state.spaces.insert(space) {
                state.jobs.push_back(Job::Space(space));
            }
        }
        for (orphan, bytes) in orphans {
            if bytes >= BIG_OBJECT_BYTES {
                for family in ELEMENTS {
                    let (from, until) = object_range(family, orphan.space, orphan.slot, orphan.id);
                    state.push_range(from, until);
                }
            } else {
                state.dead.add(orphan, bytes);
            }
        }
        state.look_again();
        self.changed.notify_all();
    }

    /// Sets whether flushes follow each other.
    pub fn set_flushing(&self, is_flushing: bool) {
        let mut state = self.state.lock();
        state.is_flushing = is_flushing;
        state.look_again();
        self.changed.notify_all();
    }

    /// Returns the dead bytes by range of slots, of the spaces that have enough to be looked at, and the dead share
    /// that is worth a compaction now.
    pub(super) fn dead_counts(&self) -> (BTreeMap<Space, BTreeMap<usize, u64>>, f64) {
        let state = self.state.lock();
        (state.dead.counts(), if state.is_flushing { DEAD_SHARE_BUSY } else { DEAD_SHARE })
    }

    pub(super) fn dead_sample(&self, window: &Window) -> Vec<Orphan> {
        self.state.lock().dead.sample(window)
    }

    /// Notes which objects of a window's sample still have rows; where enough is dead all the same, the window becomes
    /// jobs. Returns whether it did.
    pub(super) fn on_sampled(&self, window: &Window, with_rows: &[Orphan], share: f64) -> bool {
        let mut state = self.state.lock();
        let is_ripe = state.dead.on_sampled(window, |orphan| with_rows.contains(orphan)).is_ripe(share);
        if is_ripe && state.jobs.len() + ELEMENTS.len() <= JOBS_MAX {
            state.dead.forget(window);
            for (from, until) in ELEMENTS.map(|family| window.rows(family)) {
                state.push_range(from, until);
            }
        }
        is_ripe
    }

    /// Blocks until there is a job; `None` where the thread is to end.
    pub(super) fn next_job(&self) -> Option<Job> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.has_job() && !state.closing);
        let job = if state.closing { None } else { state.next_job() };
        state.is_busy = job.is_some();
        job
    }

    /// Puts a job behind the others, of which one may need less room, and waits.
    pub(super) fn put_off(&self, job: Job, wait: Duration) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        state.is_busy = false;
        self.changed.wait_while_for(&mut state, |state| !state.closing, wait);
    }

    /// Notes that a job is done.
    pub(super) fn on_done(&self, job: &Job) {
        let mut state = self.state.lock();
        match job {
            Job::Space(space) => {
                state.spaces.remove(space);
                state.dead.forget_space(*space);
                state.spaces_done += 1;
            }
            Job::Range(..) => {
                state.ranges_done += 1;
                // The compaction may have dropped more than it was for: what lay at level 0.
                state.look_again();
            }
            Job::Look | Job::Begin(_) | Job::Piece(..) => {}
        }
        state.is_busy = false;
        self.changed.notify_all();
    }

    /// Asks for a full compaction.
    pub(super) fn compact(&self, wanted: Wanted) {
        self.state.lock().compaction.want(wanted);
        self.changed.notify_all();
    }

    pub(super) fn hold_compaction(&self, is_held: bool) {
        self.state.lock().compaction.hold(is_held);
        self.changed.notify_all();
    }

    pub(super) fn is_compacting(&self) -> bool {
        self.state.lock().compaction.is_going_on()
    }

    /// Notes the pieces of the full compaction that has begun.
    pub(super) fn on_pieces(&self, pieces: Vec<(RowKey, RowKey)>, bytes: u64) {
        self.state.lock().compaction.begin(pieces, bytes);
    }

    /// Notes that a piece is done; see [`Compaction::on_piece`]. A stop ends a piece early, which is none then.
    pub(super) fn on_piece(&self) -> Option<(Instant, u64)> {
        let mut state = self.state.lock();
        if state.closing { None } else { state.compaction.on_piece() }
    }

    /// Notes that the piece which has begun has failed, and the full compaction with it.
    pub(super) fn on_failed_piece(&self) {
        let mut state = self.state.lock();
        state.compaction.give_up();
        state.is_busy = false;
        self.changed.notify_all();
    }

    /// Ends the full compaction under way, and forgets what was to follow.
    pub(super) fn give_compaction_up(&self) {
        self.state.lock().compaction.forget();
        self.changed.notify_all();
    }

    /// Notes that nothing is left of a space.
    pub(super) fn on_gone(&self, space: Space) {
        self.state.lock().gone.insert(space);
    }

    /// Notes that the thread has ended.
    pub(super) fn on_closed(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Ends the thread after its current job, which `interrupt` has end early.
    pub fn stop(&self, interrupt: impl FnOnce()) {
        self.state.lock().closing = true;
        self.changed.notify_all();
        interrupt();
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.closed);
    }

    /// Returns the spaces of which nothing is left, and that the base still remembers as dead.
    pub fn gone(&self) -> Vec<Space> {
        self.state.lock().gone.iter().copied().collect()
    }

    /// Notes that the base remembers these spaces no longer.
    pub fn on_forgotten(&self, spaces: &[Space]) {
        let mut state = self.state.lock();
        state.gone.retain(|space| !spaces.contains(space));
    }

    /// Blocks until nothing waits to be given back.
    pub fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| (state.is_busy || state.has_job()) && !state.closed);
    }

    pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let state = self.state.lock();
        let of_jobs = [
            ("reclaim_jobs", state.jobs.len() as u64),
            ("reclaimed_ranges", state.ranges_done),
            ("reclaimed_spaces", state.spaces_done),
            ("dead_object_bytes", state.dead.bytes()),
        ];
        of_jobs.into_iter().chain(state.compaction.figures())
    }
}

impl State {
    fn has_job(&self) -> bool {
        !self.jobs.is_empty() || self.must_look || self.compaction.has_job()
    }

    fn next_job(&mut self) -> Option<Job> {
        if let Some(job) = self.jobs.pop_front() {
            return Some(job);
        }
        match std::mem::take(&mut self.must_look) {
            true => Some(Job::Look),
            false => self.compaction.next_job(),
        }
    }

    /// Has dead objects looked at, if there are enough.
    fn look_again(&mut self) {
        self.must_look = self.dead.bytes() >= DEAD_BYTES_MIN;
    }

    fn push_range(&mut self, from: RowKey, until: RowKey) {
        if self.jobs.len() < JOBS_MAX {
            self.jobs.push_back(Job::Range(from, until));
        }
    }
}

/// Rows of a family in one counted range of slots.
pub(super) fn slots_range(family: Family, space: Space, range: usize) -> (RowKey, RowKey) {
    let (mut from, mut until) = family_range(family, space);
    let (first, end) = (range * RANGE_SLOTS, (range + 1) * RANGE_SLOTS);
    if end < SLOTS {
        until = from.clone();
        until.extend_from_slice(&(end as u16).to_be_bytes());
    }
    from.extend_from_slice(&(first as u16).to_be_bytes());
    (from, until)
}
