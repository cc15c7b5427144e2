//! Writing: from the queue to the active segment, one `pwrite` a group, by the first thread that comes.
//!
//! A worker writes inline unless another thread is writing (which then writes for both), the segment is being changed,
//! the group is long or writes have been slow of late (then the writer thread does it). Failures are not handled here:
//! the part goes back and `sync.rs` recovers.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::files::write_all_at;
use crate::format::{Index, SEGMENT_HEADER_BYTES, seal};
use crate::phase::Phase;
use crate::queue::Part;
use crate::state::{Retained, Shared, State};

/// An inline write that takes longer than this sends the following ones to the writer thread.
const SLOW_WRITE: Duration = Duration::from_millis(5);
/// The writer thread's writes in a row, each faster than `FAST_WRITE`, after which event loops write inline again.
const FAST_WRITES: u32 = 16;
const FAST_WRITE: Duration = Duration::from_millis(1);
/// Bytes of a group that are written inline at most: longer ones are the writer thread's business.
const INLINE_BYTES_MAX: usize = 1 << 20;
/// How often a writer takes what is in the queue before it leaves the rest to the writer thread.
const ROUNDS_MAX: u32 = 2;

impl Shared {
    /// Writes all that was appended if that can go at once, else sees to it that a thread does.
    pub(crate) fn write_inline(&self) -> Index {
        let mut state = self.state.lock();
        if state.writing {
            state.again = true;
        } else if state.can_write() {
            if state.slow {
                state.write_wanted = true;
                self.write_cv.notify_one();
            } else {
                let begun = Instant::now();
                let wake = self.drive(&mut state, INLINE_BYTES_MAX);
                state.slow = begun.elapsed() > SLOW_WRITE;
                let written = state.written;
                drop(state);
                if wake {
                    self.wake();
                } else if let Some(wake) = self.on_advance.get() {
                    wake();
                }
                return written;
            }
        }
        state.written
    }

    /// Writes the records in the queue, and again those that other threads ask to be written meanwhile; returns true if
    /// another thread is to be woken. A group of more than `group_bytes_max`, and what is behind it, is left to the
    /// writer thread.
    pub(crate) fn drive(&self, state: &mut MutexGuard<'_, State>, group_bytes_max: usize) -> bool {
        assert!(!state.writing, "one thread writes at a time");
        state.writing = true;
        let (mut for_others, mut is_long) = (false, false);
        for _ in 0..ROUNDS_MAX {
            state.again = false;
            let held = &mut state.held;
            self.queue.lock().take(held);
            loop {
                is_long = state.held.front().is_some_and(|part| part.bytes.len() > group_bytes_max);
                if is_long || !state.can_write() || !self.write_part(state) {
                    break;
                }
            }
            for_others |= state.again;
            if is_long || !state.again || !state.can_write() {
                break;
            }
        }
        state.writing = false;
        if (is_long || state.again) && state.can_write() {
            state.write_wanted = true;
            self.write_cv.notify_one();
        }
        self.after_writing(state);
        let room_made = self.room_made();
        for_others && self.reached.asked().comes_with_write() || room_made
    }

    /// Writes the oldest held part; false if there is none, or it must wait.
    fn write_part(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let Some(length) = state.held.front().map(|part| part.bytes.len() as u64) else { return false };
        if length > state.active().room() {
            state.advance(Phase::Rotating);
            return false;
        }
        let active = state.active();
        let (segment, file) = (active.segment.clone(), active.file.clone());
        let (offset, synced) = (active.offset, state.synced);
        let mut part = state.held.pop_front().expect("its length was just read");
        assert_eq!(part.first, state.written.next(), "records are written in their order, without gaps");
        assert!(length <= part.charge, "a group is never longer than its charge");
        debug_assert!(
            offset > SEGMENT_HEADER_BYTES || synced.next() == part.first,
            "whatever precedes a segment was synced: {synced}, {}",
            part.first
        );
        let result = MutexGuard::unlocked(state, || {
            seal(&mut part.bytes, segment.header.salt, part.first, synced, part.entry);
            write_all_at(&*file, &part.bytes, offset)
        });
        if let Err(error) = result {
            state.held.push_front(part);
            self.begin_recovery(state, "cannot write", &segment.path, &error);
            return false;
        }
        state.active().offset += length;
        let held = state.segments.last_mut().expect("the active segment is in the list");
        (held.last, held.end) = (part.last, offset + length);
        state.counters.writes += 1;
        state.written_charge += part.charge;
        self.set_written(state, part.last);
        state.note_led(&part);
        let Part { first, last, charge, bytes, .. } = part;
        state.retain(Retained { offset, first, last, charge, bytes });
        self.set_limit(state);
        true
    }

    /// Wakes the sync thread where it has something to do.
    fn after_writing(&self, state: &mut State) {
        let unsynced = state.unsynced_charge();
        let mut wanted = matches!(state.phase, Phase::Rotating | Phase::Broken);
        wanted |= state.sync_idle && state.written > state.synced;
        wanted |=
            state.sync_wanted > state.synced || self.reached.asked().comes_with_sync() && state.written > state.synced;
        if unsynced >= self.options.unsynced_bytes_max / 2 && !state.sync_now {
            state.sync_now = true;
            wanted = true;
        }
        // The rotation waits for a sync: most of the segment is synced before, so that this one is short.
        if let Some(active) = &state.active
            && active.room() < active.bytes / 8
            && state.presynced != active.segment.header.number
        {
            state.presynced = active.segment.header.number;
            state.sync_now = true;
            wanted = true;
        }
        if wanted {
            self.sync_cv.notify_one();
        }
        if state.phase == Phase::Closed {
            self.progress_cv.notify_all();
        }
    }

    /// The writer thread: writes what could not go inline.
    pub(crate) fn write_thread(&self) {
        let mut state = self.state.lock();
        while state.phase != Phase::Closed {
            if !state.write_wanted || state.writing || !state.can_write() {
                // A thread that is writing looks at `again`; the one that changes the segment writes afterwards.
                state.again |= std::mem::take(&mut state.write_wanted);
                self.write_cv.wait(&mut state);
                continue;
            }
            state.write_wanted = false;
            let begun = Instant::now();
            self.drive(&mut state, usize::MAX);
            state.counters.deferred_writes += 1;
            state.fast_writes = if begun.elapsed() < FAST_WRITE { state.fast_writes + 1 } else { 0 };
            if state.fast_writes >= FAST_WRITES {
                (state.slow, state.fast_writes) = (false, 0);
            }
            if self.reached.asked().comes_with_write() {
                self.wake_unlocked(&mut state);
            } else if let Some(tell) = self.on_advance.get() {
                MutexGuard::unlocked(&mut state, || tell());
            }
        }
    }
}

impl State {
    /// Keeps a written part until it is synced, as one piece with its neighbour where they lie side by side in memory.
    fn retain(&mut self, part: Retained) {
        if let Some(newest) = self.retained.back_mut()
            && !self.retained_closed
            && newest.bytes.as_ptr_range().end == part.bytes.as_ptr()
        {
            debug_assert_eq!(newest.last.next(), part.first);
            newest.bytes.unsplit(part.bytes);
            newest.last = part.last;
            newest.charge += part.charge;
        } else {
            self.retained_closed = false;
            self.retained.push_back(part);
        }
    }
}
