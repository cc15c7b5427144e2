//! The space thread: keeps one spare segment ready, so that what is reserved can always be written, and tries again
//! once a second where the disk refused. Purging is here too; it runs on its caller's thread.

use std::sync::Arc;
use std::time::Duration;

use crate::files::File;
use crate::format::{Index, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::phase::Phase;
use crate::segment::{Held, Segment, Spare};
use crate::state::{Failure, Shared, State};

const RETRY: Duration = Duration::from_secs(1);

/// Bytes of a segment where the disk is short: most of what is left is for the base, and a rotation costs one sync.
const SHORT_SEGMENT_BYTES: u64 = 1 << 20;

/// Bytes of a segment where there is next to nothing left: room for hundreds of deletions.
const SHORTEST_SEGMENT_BYTES: u64 = 64 << 10;

impl Shared {
    pub(crate) fn space_thread(&self) {
        let mut state = self.state.lock();
        while state.phase != Phase::Closed {
            let troubled = state.failure.is_some() || state.space_error.is_some();
            if troubled && !state.retry {
                if self.space_cv.wait_for(&mut state, RETRY).timed_out() {
                    state.retry = true;
                }
                continue;
            }
            if state.failure.is_some() {
                // One that is under way is waited for, and then tried again if it was asked for since.
                if state.phase == Phase::Failed {
                    state.retry = false;
                    state.break_off();
                    self.sync_cv.notify_one();
                }
                // The outcome comes with the recovery; until the next second there is nothing to do here.
                self.space_cv.wait_for(&mut state, RETRY);
                continue;
            }
            state.retry = false;
            if state.wants_spare() && state.active.is_some() {
                self.prepare_spare(&mut state);
            } else {
                self.space_cv.wait(&mut state);
            }
        }
    }

    fn prepare_spare(&self, state: &mut parking_lot::MutexGuard<'_, State>) {
        let need = state.need;
        let least = need + (2 * SEGMENT_HEADER_BYTES).saturating_sub(self.options.segment_bytes);
        let number = state.next_number;
        state.next_number += 1;
        let header = self.segment_header(state, number, Index(0));
        let made = parking_lot::MutexGuard::unlocked(state, || self.make_segment(&header, least, &[]));
        let mut useless = None;
        match made {
            Ok((segment, file, bytes)) => {
                let spare = Spare { segment, file, bytes };
                state.space_error = None;
                state.need = if state.need > need { state.need } else { 0 };
                let superseded = state.segments.last().is_some_and(|held| held.segment.header.number > number);
                if superseded {
                    useless = Some(spare);
                } else {
                    useless = state.spare.replace(spare);
                }
            }
            Err(failure) => {
                state.space_error = Some(failure);
                // A reservation that needs a long segment asks again.
                state.need = 0;
            }
        }
        self.set_limit(state);
        self.progress_cv.notify_all();
        parking_lot::MutexGuard::unlocked(state, || {
            if let Some(spare) = useless {
                // A spare without records is skipped at open, so a failure to remove it does no harm.
                drop(self.files.remove(&spare.segment.path));
            }
            self.wake();
        });
    }

    /// Makes a segment with `groups` in it and room for `need` bytes, `groups` among them, and for more as far as the
    /// disk has it; returns its length, too.
    pub(crate) fn make_segment(
        &self,
        header: &SegmentHeader,
        need: u64,
        groups: &[u8],
    ) -> Result<(Arc<Segment>, Arc<dyn File>, u64), Failure> {
        let usual = self.options.segment_bytes.max(SEGMENT_HEADER_BYTES);
        let room = (self.options.room)().unwrap_or(u64::MAX);
        let mut sizes =
            [usual, usual.min(SHORT_SEGMENT_BYTES), usual.min(SHORTEST_SEGMENT_BYTES)].map(|size| size + need);
        if room < sizes[0] {
            sizes[0] = sizes[1];
        }
        let mut failure = None;
        for (at, bytes) in sizes.into_iter().enumerate() {
            if at > 0 && bytes == sizes[at - 1] {
                continue;
            }
            match self.complete_segment(header.clone(), bytes, groups) {
                Ok((segment, file)) => return Ok((segment, file, bytes)),
                Err(error) if error.full => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.expect("each size has failed"))
    }

    /// Removes segments that hold nothing above `applied` and that retention does not ask for.
    ///
    /// Invariant: a segment that goes has no record above the applied index or above a hold.
    pub(crate) fn purge(&self, applied: Index) {
        let now_ms = (self.options.now_ms)();
        let gone: Vec<Arc<Segment>> = {
            let mut state = self.state.lock();
            state.applied = state.applied.max(applied);
            if state.phase == Phase::Opening {
                // Until the replay has ended nothing is changed in the directory.
                return;
            }
            let retention = self.options.retention;
            let wanted_after = state.holds.iter().copied().fold(applied, Index::min);
            let mut bytes: u64 = state.segments.iter().map(|held| held.bytes).sum();
            let mut gone = 0;
            while let [oldest, next, ..] = &state.segments[gone..] {
                // The newest record of a segment is about as old as the next segment.
                let age_ms = now_ms.saturating_sub(next.segment.header.created_ms);
                let unwanted = bytes > retention.bytes || age_ms > retention.age_ms;
                // Where the log ends can always be told from what is on the disk: by the next segment's header or
                // records.
                let end_is_known = next.segment.header.first.0 != 0 || next.first <= state.synced;
                if oldest.last > wanted_after || oldest.last > state.synced || !end_is_known || !unwanted {
                    break;
                }
                bytes -= oldest.bytes;
                gone += 1;
            }
            let gone: Vec<Held> = state.segments.drain(..gone).collect();
            for held in &gone {
                assert!(held.last <= applied, "what the base lacks stays in the log: {applied}, {held:?}");
                let wanted = state.holds.iter().all(|hold| held.last <= *hold);
                assert!(wanted, "what is held stays in the log: {:?}, {held:?}", state.holds);
            }
            gone.into_iter().map(|held| held.segment).collect()
        };
        self.remove_in_order(gone);
    }

    /// Removes files of segments, the oldest first, each for good before the next one. What cannot be removed now, and
    /// all behind it, waits for the next call, or is found after the next open.
    ///
    /// Invariant: the segments that a power failure or an error leaves have no hole: a segment ends where the next one
    /// that is there begins.
    fn remove_in_order(&self, gone: Vec<Arc<Segment>>) {
        let mut doomed = self.doomed.lock();
        doomed.extend(gone);
        while let Some(segment) = doomed.front() {
            match self.files.remove(&segment.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return,
                _ => {}
            }
            if self.files.sync_dir(&self.options.dir).is_err() {
                return;
            }
            doomed.pop_front();
        }
    }
}

impl State {
    fn wants_spare(&self) -> bool {
        self.failure.is_none()
            && self.phase != Phase::Broken
            && (self.spare.is_none()
                || self.need > self.spare.as_ref().map_or(0, |spare| spare.bytes - SEGMENT_HEADER_BYTES))
    }

    /// Bytes of segments that hold records above `applied`.
    pub(crate) fn bytes_since_applied(&self) -> u64 {
        let is_needed = |held: &&Held| held.last > self.applied;
        self.segments.iter().filter(is_needed).map(|held| held.end - SEGMENT_HEADER_BYTES).sum()
    }
}
