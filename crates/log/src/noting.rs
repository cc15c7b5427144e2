//! When the log's end is noted in the end file, which is in `end.rs`.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::end::{End, EndWriter};
use crate::error::OpenError;
use crate::format::{History, Index};
use crate::state::{Shared, State};

/// The time after which a note whose sync has failed is synced again, beside the interval of syncs.
const RETRY: Duration = Duration::from_secs(1);

impl Shared {
    /// Notes how far the log reaches, durably.
    pub(crate) fn begin_end(&self, history: History, synced: Index, segment: u64) -> Result<(), OpenError> {
        let Some(at) = self.options.end.as_ref().filter(|at| at.is_written) else { return Ok(()) };
        let end = End { directory: at.directory, history, synced, segment };
        *self.end.lock() = Some(EndWriter::begin(&*self.files, &at.path, end)?);
        Ok(())
    }

    /// Notes how far the log reaches now. It is not synced: the death of the process leaves it, and an older note,
    /// which a power failure may leave, claims less. So does the one before, which a failure leaves.
    pub(crate) fn note_end(&self, state: &mut MutexGuard<'_, State>) {
        let synced = state.synced;
        self.note_end_at(state, synced);
    }

    /// The note for records that have just been synced, before any waiting thread is told that they are.
    pub(crate) fn note_end_at(&self, state: &mut MutexGuard<'_, State>, synced: Index) {
        debug_assert!(synced <= state.written, "what is not written is not synced: {synced}, {}", state.written);
        let Some(at) = self.options.end.as_ref().filter(|at| at.is_written) else { return };
        let Some(active) = &state.active else { return };
        // The newest history may have no segment: none could be made for it.
        let (history, segment) = (active.segment.header.start.history, active.segment.header.number);
        let end = End { directory: at.directory, history, synced, segment };
        let noted = MutexGuard::unlocked(state, || {
            let mut writer = self.end.lock();
            match &mut *writer {
                Some(writer) => writer.note(end).unwrap_or(false),
                none => {
                    *none = EndWriter::begin(&*self.files, &at.path, end).ok();
                    false
                }
            }
        });
        if noted {
            state.end_noted = Some(Instant::now());
        }
    }

    /// Makes the note of the log's end durable; where that fails, it is tried again once the log has been idle for a
    /// while. A note that is not durable is only an older one after a power failure.
    pub(crate) fn sync_end(&self, state: &mut MutexGuard<'_, State>) {
        state.end_noted = None;
        let synced = MutexGuard::unlocked(state, || self.end.lock().as_mut().map_or(Ok(()), EndWriter::sync));
        if synced.is_err() {
            state.end_noted = Some(Instant::now() + RETRY);
        }
    }
}
