//! The jobs of the reclaiming thread: ranges of the base that are to be compacted, and ranges that are not worth it
//! yet.

use super::orphan::{BIG_OBJECT_BYTES, Orphan};
use crate::row::{Family, RowKey, SLOTS, Space, family_range, object_range};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The dead share of a range at which it is compacted, if its dead bytes also reach `DEAD_BYTES_MIN`.
const DEAD_SHARE: f64 = 0.25;
const DEAD_BYTES_MIN: u64 = 8 << 20;

/// Slots whose dead bytes are counted together.
const RANGE_SLOTS: usize = 64;

/// The most jobs that wait; further ranges are left to periodic compaction.
const JOBS_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) enum Job {
    Space(Space),
    Range(RowKey, RowKey),
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
        self.changed.wait_while(&mut state, |state| state.jobs.is_empty() && !state.closing);
        let job = if state.closing { None } else { state.jobs.pop_front() };
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
        }
        state.is_busy = false;
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

    /// Ends the thread after its current job.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        self.changed.notify_all();
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
        self.changed.wait_while(&mut state, |state| (state.is_busy || !state.jobs.is_empty()) && !state.closed);
    }

    pub fn figures(&self) -> [(&'static str, u64); 4] {
        let state = self.state.lock();
        [
            ("reclaim_jobs", state.jobs.len() as u64),
            ("reclaimed_ranges", state.ranges_done),
            ("reclaimed_spaces", state.spaces_done),
            ("dead_object_bytes", state.dead.values().sum()),
        ]
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
fn slots_range(family: Family, space: Space, range: usize) -> (RowKey, RowKey) {
    let (mut from, mut until) = family_range(family, space);
    let (first, end) = (range * RANGE_SLOTS, (range + 1) * RANGE_SLOTS);
    if end < SLOTS {
        until = from.clone();
        until.extend_from_slice(&(end as u16).to_be_bytes());
    }
    from.extend_from_slice(&(first as u16).to_be_bytes());
    (from, until)
}
