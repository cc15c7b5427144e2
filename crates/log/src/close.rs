//! The close of a log: everything synced, the mark of a clean stop, and the end of its threads.

use crate::error::SyncError;
use crate::files::write_all_at;
use crate::format::clean_mark;
use crate::log::Log;
use crate::phase::Phase;
use crate::state::{Failure, Shared};

/// How a log was closed without losing what was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Everything was written, and the mark of a clean stop.
    Marked,
    /// Everything was written but the mark, because the history is another log's: an open that does not follow that one
    /// begins a history of its own.
    Followed,
    /// The mark is missing, and what was never written; the error says why.
    Unmarked(SyncError),
}

impl Log {
    /// Writes and syncs everything, leaves the mark of a clean stop, and ends the threads. Appends are refused from
    /// here on. Where that fails, it is an error only if records that were written are not on the disk: records that
    /// were never written have never been reported durable.
    ///
    /// # Errors
    /// Records that were written are not on the disk, or a file is missing that the next start needs.
    pub fn close(&self) -> Result<Closed, SyncError> {
        let shared = &*self.shared;
        let missing = self.look().missing.map(SyncError);
        {
            let mut state = shared.state.lock();
            if !state.phase.is_live() {
                return Ok(Closed::Marked);
            }
            state.closing = true;
            shared.set_limit(&state);
            shared.progress_cv.notify_all();
        }
        let synced = self.sync_through(self.last());
        self.stop();
        let follows = shared.state.lock().follows;
        let whole = synced.and_then(|()| missing.clone().map_or(Ok(()), Err));
        let marked = whole.and_then(|()| if follows { shared.end_followed() } else { shared.mark_clean() });
        match marked {
            Ok(()) if follows => Ok(Closed::Followed),
            Ok(()) => Ok(Closed::Marked),
            Err(error) if missing.is_some() || self.written() > self.synced() => Err(error),
            Err(error) => Ok(Closed::Unmarked(error)),
        }
    }
}

impl Shared {
    /// Notes where a log ends that gets no mark.
    fn end_followed(&self) -> Result<(), SyncError> {
        let mut state = self.state.lock();
        self.note_end(&mut state);
        self.sync_end(&mut state);
        Ok(())
    }

    /// Leaves the mark of a clean stop behind the last record, when no thread writes any more, and gives back the space
    /// that was allocated ahead.
    fn mark_clean(&self) -> Result<(), SyncError> {
        let mut state = self.state.lock();
        assert_eq!(state.phase, Phase::Closed);
        while state.writing {
            self.progress_cv.wait(&mut state);
        }
        let (last, entry) = self.queue.lock().end();
        let failed = |text: &str| SyncError(text.to_owned());
        if last != state.synced {
            return Err(failed("records were appended while it was closed"));
        }
        let Some(active) = &state.active else {
            return Err(failed(state.failure.as_ref().map_or("it has no segment", |failure| &failure.text)));
        };
        let mark = clean_mark(active.segment.header.salt, last, entry);
        let end = active.offset + mark.len() as u64;
        // With the mark a file may be shorter than it was allocated: it is truncated behind it, which need not succeed.
        let written = write_all_at(&*active.file, &mark, active.offset).and_then(|()| active.file.sync());
        written.map_err(|error| SyncError(Failure::new("cannot mark", &active.segment.path, &error).text))?;
        drop(active.file.truncate(end));
        drop(active.file.sync());
        if let Some(spare) = state.spare.take() {
            drop(self.files.remove(&spare.segment.path));
        }
        self.note_end(&mut state);
        self.sync_end(&mut state);
        Ok(())
    }
}
