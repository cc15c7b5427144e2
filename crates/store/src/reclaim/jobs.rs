//! The jobs of the reclaiming thread: ranges of the base that are to be compacted, and ranges that are not worth it
//! yet.

use super::orphan::{BIG_OBJECT_BYTES, Orphan};
use super::whole::{Compaction, Wanted};
use crate::row::{Family, RowKey, SLOTS, Space, family_range, object_range};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The dead share of a range at which it is compacted, if its dead bytes also reach `DEAD_BYTES_MIN`.
const DEAD_SHARE: f64 = 0.25;
const DEAD_BYTES_MIN: u64 = 8 << 20;

/// Slots whose dead bytes are counted together.
pub(super) const RANGE_SLOTS: usize = 64;

/// The most jobs that wait; further ranges are left to periodic compaction.
const JOBS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) enum Job {
    Space(Space),
    Range(RowKey, RowKey),
    /// A full compaction is divided into pieces.
    Begin(Wanted),
    /// A piece of a full compaction.
    Piece(RowKey, RowKey),
}

impl Job {
    /// Whether it is a part of a full compaction.
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
    /// Dead bytes by space and range of slots.
    dead: BTreeMap<(Space, usize), u64>,
    ranges_done: u64,
    spaces_done: u64,
    closing: bool,
    closed: bool,
}

impl Reclaimer {
    /// Takes the news that a flush has brought into the base: spaces that are dead, and objects without an owner with
    /// the bytes that each has there. `bytes_in` asks the base for the bytes of a range.
    pub fn on_dead(
        &self,
        spaces: &[Space],
        orphans: impl Iterator<Item = (Orphan, u64)>,
        bytes_in: impl Fn(&[u8], &[u8]) -> u64,
    ) {
        let mut state = self.state.lock();
        for &space in spaces {
            if state.spaces.insert(space) {
                state.jobs.push_back(Job::Space(space));
            }
        }
        for (orphan, bytes) in orphans {
            if bytes >= BIG_OBJECT_BYTES {
                for family in [Family::Data, Family::Score] {
                    let (from, until) = object_range(family, orphan.space, orphan.slot, orphan.id);
                    state.push_range(from, until);
                }
            } else {
                *state.dead.entry((orphan.space, usize::from(orphan.slot.0) / RANGE_SLOTS)).or_default() += bytes;
            }
        }
        let ripe: Vec<((Space, usize), u64)> =
            state.dead.iter().filter(|(_, bytes)| **bytes >= DEAD_BYTES_MIN).map(|(at, bytes)| (*at, *bytes)).collect();
        // The state is not locked while the base is asked: INFO looks at it from an event loop.
        drop(state);
        for ((space, range), dead) in ripe {
            let ranges = [Family::Data, Family::Score].map(|family| slots_range(family, space, range));
            let all: u64 = ranges.iter().map(|(from, until)| bytes_in(from, until)).sum();
            if dead as f64 >= all as f64 * DEAD_SHARE {
                let mut state = self.state.lock();
                state.dead.remove(&(space, range));
                ranges.into_iter().for_each(|(from, until)| state.push_range(from, until));
            }
        }
        self.changed.notify_all();
    }

    /// Blocks until there is a job; `None` where the thread is to end.
    pub(super) fn next_job(&self) -> Option<Job> {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| state.jobs.is_empty() && !state.compaction.has_job() && !state.closing);
        let job = match state.closing {
            true => None,
            false => state.jobs.pop_front().or_else(|| state.compaction.next_job()),
        };
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
                state.dead.retain(|(dead, _), _| dead != space);
                state.spaces_done += 1;
            }
            Job::Range(..) => state.ranges_done += 1,
            Job::Begin(_) | Job::Piece(..) => {}
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
        self.changed.wait_while(&mut state, |state| {
            (state.is_busy || !state.jobs.is_empty() || state.compaction.has_job()) && !state.closed
        });
    }

    pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let state = self.state.lock();
        let of_jobs = [
            ("reclaim_jobs", state.jobs.len() as u64),
            ("reclaimed_ranges", state.ranges_done),
            ("reclaimed_spaces", state.spaces_done),
            ("dead_object_bytes", state.dead.values().sum()),
        ];
        of_jobs.into_iter().chain(state.compaction.figures())
    }
}

impl State {
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
