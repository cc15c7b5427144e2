//! The sync thread: syncs, changes segments, and puts the log on its feet again after a failure.
//!
//! After a failed sync nothing is known of what the kernel still holds of that file, so it is never synced again: every
//! record above the synced index is still in memory, and is written to a new segment that supersedes the old one
//! from there on. That segment gets its name only when it is complete and synced. Should this fail too, writes
//! stop; it is tried again once a second, or when asked, and nothing is lost as long as the process lives.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;

use crate::files::File;
use crate::format::{Entry, GROUP_HEADER_BYTES, GroupHeader, Index, SEGMENT_HEADER_BYTES, SegmentHeader, seal};
use crate::phase::Phase;
use crate::segment::{Active, Held, Segment, Unfinished};
use crate::state::{Failure, Shared, State};

impl Shared {
    pub(crate) fn sync_thread(&self) {
        let mut state = self.state.lock();
        while state.phase != Phase::Closed {
            if state.writing && matches!(state.phase, Phase::Rotating | Phase::Broken) {
                self.sync_cv.wait(&mut state);
            } else if state.phase == Phase::Broken {
                self.recover(&mut state);
                if state.can_write() {
                    self.drive(&mut state, usize::MAX);
                }
                self.wake_unlocked(&mut state);
            } else if state.phase == Phase::Failed {
                self.sync_cv.wait(&mut state);
            } else if state.phase == Phase::Rotating && state.synced == state.written {
                self.rotate(&mut state);
                self.wake_unlocked(&mut state);
            } else if state.sync_wanted > state.written && !state.writing && state.can_write() {
                let wake = self.drive(&mut state, usize::MAX);
                if wake || self.reached.asked().comes_with_write() {
                    self.wake_unlocked(&mut state);
                }
            } else if self.sync_due(&state) {
                self.sync_once(&mut state);
                let room_made = self.room_made();
                let is_watched = state.sync_is_watched;
                state.sync_is_watched &= state.synced < state.sync_wanted;
                if self.reached.asked().comes_with_sync() || room_made || is_watched {
                    self.wake_unlocked(&mut state);
                }
            } else if state.written > state.synced {
                let deadline = state.last_sync + self.sync_interval();
                self.sync_cv.wait_until(&mut state, deadline);
            } else if let Some(noted) = state.end_noted {
                // Once the log has been idle for a while, its end is made known for good.
                state.sync_idle = true;
                let is_over = self.sync_cv.wait_until(&mut state, noted + self.sync_interval()).timed_out();
                state.sync_idle = false;
                if is_over && state.written == state.synced {
                    self.sync_end(&mut state);
                }
            } else {
                state.sync_idle = true;
                self.sync_cv.wait(&mut state);
                state.sync_idle = false;
            }
        }
    }

    fn sync_due(&self, state: &State) -> bool {
        state.written > state.synced
            && (state.phase == Phase::Rotating
                || state.sync_now
                || state.sync_wanted > state.synced
                || self.reached.asked().comes_with_sync()
                || state.last_sync.elapsed() >= self.sync_interval())
    }

    /// Syncs what is written by now.
    fn sync_once(&self, state: &mut MutexGuard<'_, State>) {
        state.sync_now = false;
        state.retained_closed = true;
        let written = state.written;
        let active = state.active();
        let (segment, file) = (active.segment.clone(), active.file.clone());
        let begun = Instant::now();
        let result = MutexGuard::unlocked(state, || file.sync());
        state.last_sync = Instant::now();
        state.counters.syncs += 1;
        state.counters.last_sync_us = begun.elapsed().as_micros() as u64;
        state.counters.slowest_sync_us = state.counters.slowest_sync_us.max(state.counters.last_sync_us);
        match result {
            Ok(()) => {
                self.note_end_at(state, written);
                state.release(written);
                self.set_synced(state, written);
                self.set_limit(state);
                self.progress_cv.notify_all();
            }
            Err(error) => self.begin_recovery(state, "cannot sync", &segment.path, &error),
        }
    }

    /// The spare takes the place of the active segment, all of which is synced.
    fn rotate(&self, state: &mut MutexGuard<'_, State>) {
        assert_eq!(state.synced, state.written, "a segment that follows is used only after the one before is synced");
        let Some(spare) = state.spare.take() else {
            // A reservation is given only for what fits the segments at hand, so there should be one.
            return state.break_off();
        };
        let header = &spare.segment.header;
        debug_assert!(header.first == Index(0) && header.start == state.start(), "a spare is of the newest history");
        let written = state.written;
        state.push_segment(Held {
            segment: spare.segment.clone(),
            first: written.next(),
            last: written,
            end: SEGMENT_HEADER_BYTES,
            bytes: spare.bytes,
        });
        state.active =
            Some(Active { segment: spare.segment, file: spare.file, offset: SEGMENT_HEADER_BYTES, bytes: spare.bytes });
        // Before it has records, so that it is missed if it goes.
        self.note_end(state);
        let held_charge = || state.held.iter().map(|part| part.charge).sum::<u64>();
        debug_assert!(
            state.active.as_ref().is_some_and(|active| held_charge() <= active.room()),
            "all that is unwritten fits the spare"
        );
        // The look for missing files, or a close, may have come between.
        if state.phase == Phase::Rotating {
            state.advance(Phase::Running);
        }
        self.set_limit(state);
        self.space_cv.notify_one();
        self.drive(state, usize::MAX);
    }

    /// Stops writing until the sync thread has recovered.
    pub(crate) fn begin_recovery(
        &self,
        state: &mut State,
        doing: &str,
        path: &std::path::Path,
        error: &std::io::Error,
    ) {
        let failure = Failure::new(doing, path, error);
        state.counters.last_failure = Some(failure.text);
        state.break_off();
        self.sync_cv.notify_one();
    }

    /// Writes every record above the synced index into a new segment that supersedes the others from there on. Also
    /// begins a log's first segment. The caller sees to it that no other thread is writing.
    pub(crate) fn recover(&self, state: &mut MutexGuard<'_, State>) {
        if state.phase != Phase::Opening {
            state.advance(Phase::Recovering);
        }
        state.writing = true;
        // From here on no reservation is given, so those that are out can be counted.
        let charged = self.budget.freeze();
        let held = &mut state.held;
        let appended = {
            let mut queue = self.queue.lock();
            queue.take(held);
            queue.last()
        };
        let (synced, number) = (state.synced, state.next_number);
        state.next_number += 1;
        let outstanding = charged.checked_sub(state.synced_charge).expect("what is synced was charged");
        let need = outstanding + state.need;
        let header = self.segment_header(state, number, synced.next());
        let (image, last) = state.unsynced_image(&header);
        assert_eq!(last, appended, "every record is synced, retained or held");
        let result = MutexGuard::unlocked(state, || self.make_segment(&header, need, &image));
        match result {
            Ok((segment, file, bytes)) => {
                let end = SEGMENT_HEADER_BYTES + image.len() as u64;
                if let Some(old) = state.segments.last_mut() {
                    old.last = old.last.min(synced);
                }
                state.push_segment(Held { segment: segment.clone(), first: synced.next(), last, end, bytes });
                state.active = Some(Active { segment, file, offset: end, bytes });
                let held = std::mem::take(&mut state.held);
                held.iter().for_each(|part| state.note_led(part));
                let held_charge: u64 = held.iter().map(|part| part.charge).sum();
                state.written_charge += held_charge;
                state.synced_charge = state.written_charge;
                state.retained.clear();
                self.set_written(state, last);
                self.set_synced(state, last);
                state.last_sync = Instant::now();
                state.failure = None;
                state.need = 0;
                state.counters.recoveries += 1;
                // A spare with a lower number than a segment in use can never be used.
                if let Some(spare) = state.spare.take() {
                    // A spare without records is skipped at open, so a failure to remove it does no harm.
                    MutexGuard::unlocked(state, || drop(self.files.remove(&spare.segment.path)));
                }
                self.space_cv.notify_one();
            }
            Err(failure) => {
                let first = state.counters.last_failure.clone();
                let text = match first {
                    Some(first) if state.failure.is_none() => format!("{first}; then {}", failure.text),
                    _ => failure.text,
                };
                state.failure = Some(Failure { text, full: failure.full });
                // The space thread may sleep without a deadline, because nothing was wrong so far.
                self.space_cv.notify_one();
            }
        }
        // Noted while no thread can write.
        self.note_end(state);
        state.writing = false;
        state.end_recovery();
        self.set_limit(state);
        self.progress_cv.notify_all();
    }

    /// The header of a segment whose length is not known yet.
    pub(crate) fn segment_header(&self, state: &mut State, number: u64, first: Index) -> SegmentHeader {
        // Where a segment has no records, this is how far times have got.
        let created_ms = (self.options.now_ms)().max(self.queue.lock().time_ms());
        let (start, ancestors) = (state.start(), state.histories.ancestors());
        SegmentHeader { number, first, salt: state.salt(), created_ms, start, ancestors, allocated_bytes: 0 }
    }

    /// Makes a segment of `bytes` bytes with `groups` in it: allocated, written, synced, and only then named.
    pub(crate) fn complete_segment(
        &self,
        header: SegmentHeader,
        bytes: u64,
        groups: &[u8],
    ) -> Result<(Arc<Segment>, Arc<dyn File>), Failure> {
        let header = SegmentHeader { allocated_bytes: bytes, ..header };
        let unfinished = self.unfinished_path(header.number);
        let path = self.segment_path(header.number);
        let made = (|| {
            let mut made = Unfinished::new(self.files.create(&unfinished)?);
            made.allocate(bytes)?;
            made.write(&header.encode()[..], 0)?;
            made.write(groups, SEGMENT_HEADER_BYTES)?;
            made.sync()?;
            let file = made.name(&*self.files, &unfinished, &path)?;
            self.files.sync_dir(&self.options.dir)?;
            Ok(file)
        })();
        match made {
            Ok(file) => Ok((Arc::new(Segment { path, header }), file)),
            Err(error) => {
                // Whatever is left of it is swept at the next open. If the name is there already and its sync failed,
                // the file must go all the same: it would supersede records that are still to be written elsewhere.
                drop(self.files.remove(&unfinished));
                drop(self.files.remove(&path));
                Err(Failure::new("cannot make segment", &path, &error))
            }
        }
    }
}

impl State {
    /// Returns a salt that no other segment of this run has: a running number, spread out.
    pub(crate) fn salt(&mut self) -> crate::format::Salt {
        self.salts = self.salts.wrapping_add(1);
        assert_ne!(self.salts, self.salts_begin, "a run makes fewer segments than there are salts");
        crate::format::Salt::of(self.salts)
    }

    /// All groups above the synced index, sealed for the segment with this header, and the last index in them.
    fn unsynced_image(&self, header: &SegmentHeader) -> (Vec<u8>, Index) {
        let mut image = Vec::new();
        let mut last = self.synced;
        let mut add = |group: &[u8], first: Index, entry: Entry| {
            let start = image.len();
            image.extend_from_slice(group);
            seal(&mut image[start..], header.salt, first, self.synced, entry);
        };
        for retained in &self.retained {
            let mut rest = &retained.bytes[..];
            while !rest.is_empty() {
                let GroupHeader { record_bytes, first, entry, .. } = GroupHeader::sealed(rest);
                let (group, behind) = rest.split_at(GROUP_HEADER_BYTES + record_bytes as usize);
                add(group, first, entry);
                rest = behind;
            }
            assert_eq!(retained.first, last.next(), "what is not synced is in memory, without gaps");
            last = retained.last;
        }
        for part in &self.held {
            assert_eq!(part.first, last.next(), "what is not written is held, without gaps");
            add(&part.bytes, part.first, part.entry);
            last = part.last;
        }
        (image, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histories::Histories;
    use crate::options::Options;

    #[test]
    #[should_panic = "fewer segments than there are salts"]
    fn a_salt_is_given_out_once() {
        let shared = Shared::new(Options::new("log"), Histories::default(), (Index(0), 0), Vec::new(), 1);
        let mut state = shared.state.lock();
        let first = state.salt();
        assert_ne!(state.salt(), first);
        state.salts = state.salts.wrapping_sub(3);
        state.salt();
    }
}
