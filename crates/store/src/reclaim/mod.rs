//! Giving room back: what died is taken out of the base without waiting for chance to compact it.
//!
//! A flush tells which objects lost their owner and which spaces are dead. A dead space's ranges go as a whole. Dead
//! objects are counted by range; past a share of the range, or for one big object, that range is compacted, and the
//! base drops what nobody owns. What slips through (an object written ahead before a crash) is found by the base's
//! periodic compaction. Runs on a thread of its own.

pub(crate) mod intent;

use crate::base::{BaseError, Direction, Step, Tier};
use crate::row::{
    Family, ObjectId, RowKey, SLOTS, Slot, Space, family_range, home_slot, object_of, object_range, space_of,
};
use crate::store::Store;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// An object of this size is worth a compaction of its own range.
pub(crate) const BIG_OBJECT_BYTES: u64 = 32 << 20;

/// A range is compacted when so much of it is dead, and at least so many bytes.
const DEAD_SHARE: f64 = 0.25;
const DEAD_BYTES_MIN: u64 = 8 << 20;

/// Slots whose dead bytes are counted together.
const RANGE_SLOTS: usize = 64;

/// Objects of one flush whose size is asked for; the others count as the average of these.
const MEASURED_MAX: usize = 1000;

/// How long the thread waits after a job for which the disk has no room.
const SHORT_INTERVAL: Duration = Duration::from_secs(2);

/// How long it waits after a job that failed for another reason: a damaged file does not heal by itself.
const FAILURE_INTERVAL: Duration = Duration::from_secs(10);

/// Jobs that wait at the most; what is beyond is left to periodic compaction.
const JOBS_MAX: usize = 10_000;

/// An object without an owner, and where its rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub space: Space,
    pub slot: Slot,
    pub id: ObjectId,
}

impl Orphan {
    /// The object that a row belongs to.
    pub fn of(row: &[u8]) -> Option<Orphan> {
        Some(Orphan { space: space_of(row)?, slot: home_slot(row)?, id: object_of(row)? })
    }
}

#[derive(Debug)]
enum Job {
    Space(Space),
    Range(RowKey, RowKey),
}

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
    /// Spaces of which nothing is left, and that the base still remembers as dead: until the next flush.
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

impl Store {
    /// The flush has brought this into the base.
    pub(crate) fn on_dead(&self, spaces: &[Space], orphans: &[Orphan]) {
        let sizes: Vec<u64> = orphans.iter().take(MEASURED_MAX).map(|orphan| self.orphan_bytes(orphan)).collect();
        let average = sizes.iter().sum::<u64>() / sizes.len().max(1) as u64;
        let mut state = self.reclaimer.state.lock();
        for &space in spaces {
            if state.spaces.insert(space) {
                state.jobs.push_back(Job::Space(space));
            }
        }
        for (at, orphan) in orphans.iter().enumerate() {
            let bytes = sizes.get(at).copied().unwrap_or(average);
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
        // Not while the base is asked: INFO looks at the state from an event loop.
        drop(state);
        for ((space, range), dead) in ripe {
            let ranges = [Family::Data, Family::Score].map(|family| slots_range(family, space, range));
            let all: u64 = ranges.iter().map(|(from, until)| self.base.bytes_in(from, until)).sum();
            if dead as f64 >= all as f64 * DEAD_SHARE {
                let mut state = self.reclaimer.state.lock();
                state.dead.remove(&(space, range));
                ranges.into_iter().for_each(|(from, until)| state.push_range(from, until));
            }
        }
        self.reclaimer.changed.notify_all();
    }

    pub(crate) fn orphan_bytes(&self, orphan: &Orphan) -> u64 {
        [Family::Data, Family::Score]
            .map(|family| object_range(family, orphan.space, orphan.slot, orphan.id))
            .iter()
            .map(|(from, until)| self.base.bytes_in(from, until))
            .sum()
    }

    /// The reclaiming thread's life: until `close`.
    pub(crate) fn run_reclaims(&self) {
        let mut is_short = false;
        while let Some(job) = self.next_job() {
            let result = self.reclaim(&job);
            let was_short = std::mem::replace(&mut is_short, matches!(result, Err(BaseError::Full(_))));
            match result {
                Ok(()) => {}
                Err(BaseError::Full(why)) => {
                    if !was_short {
                        tracing::warn!("room cannot be given back yet: {why}");
                    }
                    self.put_off(job, SHORT_INTERVAL);
                    continue;
                }
                Err(error) => {
                    tracing::warn!("room could not be given back, which is tried again: {error}");
                    self.put_off(job, FAILURE_INTERVAL);
                    continue;
                }
            }
            let mut state = self.reclaimer.state.lock();
            match job {
                Job::Space(space) => {
                    state.spaces.remove(&space);
                    state.dead.retain(|(dead, _), _| *dead != space);
                    state.spaces_done += 1;
                }
                Job::Range(..) => state.ranges_done += 1,
            }
            state.is_busy = false;
            self.reclaimer.changed.notify_all();
        }
        self.reclaimer.state.lock().closed = true;
        self.reclaimer.changed.notify_all();
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.reclaimer.state.lock();
        self.reclaimer.changed.wait_while(&mut state, |state| state.jobs.is_empty() && !state.closing);
        let job = if state.closing { None } else { state.jobs.pop_front() };
        state.is_busy = job.is_some();
        job
    }

    /// Another job may need less room than this one.
    fn put_off(&self, job: Job, wait: Duration) {
        let mut state = self.reclaimer.state.lock();
        state.jobs.push_back(job);
        state.is_busy = false;
        self.reclaimer.changed.wait_while_for(&mut state, |state| !state.closing, wait);
    }

    fn reclaim(&self, job: &Job) -> Result<(), BaseError> {
        match job {
            Job::Range(from, until) => self.base.reclaim_range(from, until),
            Job::Space(space) => {
                let ranges = [Family::Meta, Family::Data, Family::Score, Family::Owner, Family::Expire]
                    .map(|family| family_range(family, *space));
                for (from, until) in &ranges {
                    self.base.reclaim_range(from, until)?;
                }
                for (from, until) in &ranges {
                    self.expect_no_rows(from, until)?;
                }
                // Nothing of it is left: the space need not be remembered as dead any more. That is so of this base
                // alone, so that no record says it: the next flush takes the row out, and after a crash before it all
                // of this comes again.
                self.databases.forget_dead(*space);
                self.reclaimer.state.lock().gone.insert(*space);
                Ok(())
            }
        }
    }

    /// An error if the base still has rows here: a compaction does not say how it ended, and rows of a space that
    /// nobody remembers as dead would never go.
    fn expect_no_rows(&self, from: &[u8], until: &[u8]) -> Result<(), BaseError> {
        match self.base.scan(from, until, Direction::Forward, Tier::Disk)?.step()? {
            Step::End => Ok(()),
            Step::Row { key, .. } => {
                let row = key.escape_ascii();
                Err(BaseError::Failed(format!("row {row} of an emptied database is still there")))
            }
            Step::WouldBlock => Err(BaseError::Failed("the base said that a read of the disk would block".into())),
        }
    }

    /// Ends the thread after the job it is at.
    pub(crate) fn stop_reclaims(&self) {
        let mut state = self.reclaimer.state.lock();
        state.closing = true;
        self.reclaimer.changed.notify_all();
        self.reclaimer.changed.wait_while(&mut state, |state| !state.closed);
    }
}

impl Reclaimer {
    /// Returns the spaces of which nothing is left, and that the base still remembers as dead.
    pub(crate) fn gone(&self) -> Vec<Space> {
        self.state.lock().gone.iter().copied().collect()
    }

    /// The base remembers these spaces no longer.
    pub(crate) fn on_forgotten(&self, spaces: &[Space]) {
        let mut state = self.state.lock();
        state.gone.retain(|space| !spaces.contains(space));
    }

    /// Blocks until nothing waits to be given back.
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| (state.is_busy || !state.jobs.is_empty()) && !state.closed);
    }

    pub(crate) fn figures(&self) -> [(&'static str, u64); 4] {
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
