//! A part of the log as a log of its own: what a backup takes. While a [`Hold`] lives, what it holds is not purged.
//!
//! It is read as any live reader reads it, out of memory or out of files, and written anew (`copy`).

use std::path::Path;
use std::sync::Arc;

use crate::copy::{Copy, ExportError, Exported};
use crate::format::Index;
use crate::log::Log;
use crate::reader::Next;
use crate::state::Shared;

/// Keeps the records above an index from being purged, as long as it lives.
#[must_use = "what is not held may be purged"]
pub struct Hold {
    shared: Arc<Shared>,
    after: Index,
}

impl Hold {
    /// Returns the index above which every record is there, and stays.
    pub fn after(&self) -> Index {
        self.after
    }

    /// Returns the bytes of the segments that would go without it, as far as nothing else keeps them.
    pub fn kept_bytes(&self) -> u64 {
        let state = self.shared.state.lock();
        let is_kept = |held: &&crate::segment::Held| held.last > self.after && held.last <= state.applied;
        state.segments.iter().filter(is_kept).map(|held| held.bytes).sum()
    }

    /// Lets go of the records through `after`.
    ///
    /// # Panics
    /// What was let go of does not come back.
    pub fn advance(&mut self, after: Index) {
        assert!(after >= self.after, "a hold only advances");
        let mut state = self.shared.state.lock();
        let held = state.holds.iter_mut().find(|held| **held == self.after);
        *held.expect("it is there as long as the hold lives") = after;
        self.after = after;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let at = state.holds.iter().position(|held| *held == self.after);
        state.holds.swap_remove(at.expect("a hold is there until it is let go of"));
    }
}

impl Log {
    /// Keeps all records above the applied index that the log was told last, from now on.
    pub fn hold(&self) -> Hold {
        let mut state = self.shared.state.lock();
        let after = state.applied;
        state.holds.push(after);
        Hold { shared: self.shared.clone(), after }
    }

    /// Hands over the hold that the log was opened with; None if it was opened with none, or handed it over before. Not
    /// all that it holds need be there.
    pub fn take_kept(&self) -> Option<Hold> {
        let after = self.shared.state.lock().kept.take()?;
        Some(Hold { shared: self.shared.clone(), after })
    }

    /// Keeps all records above `after` from now on; None where one of them is gone already.
    pub fn hold_after(&self, after: Index) -> Option<Hold> {
        let mut state = self.shared.state.lock();
        let first = state.segments.first().map_or(state.written.next(), |held| held.first);
        // The index may be a peer's claim.
        if after.0 < first.0.saturating_sub(1) {
            return None;
        }
        state.holds.push(after);
        Some(Hold { shared: self.shared.clone(), after })
    }

    /// Writes what is held, through `until`, which is durable, as a log into the empty directory `dir`. It is synced
    /// when this returns. Asks `goes_on` now and then, and stops where it says no.
    pub fn export(
        &self,
        hold: &Hold,
        until: Index,
        dir: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Exported, ExportError> {
        let mut copy = Copy::new(&self.shared.options, dir);
        let mut reader = self.reader(hold.after);
        while reader.position() <= until {
            match reader.next().map_err(|error| ExportError(error.to_string()))? {
                Next::Record(record) => copy.take(&record),
                Next::UpToDate => return Err(ExportError(format!("the log is not durable up to record {until}"))),
                Next::Gap(first) => return Err(ExportError(format!("the log's next record is {first}"))),
            };
            let histories = || self.shared.state.lock().histories.clone();
            if copy.add(reader.start(), &histories)? && !goes_on() {
                return Err(ExportError("it was broken off".into()));
            }
        }
        let state = self.shared.state.lock();
        let histories = state.histories.clone();
        let stamp = histories.stamp(until).and_then(|history| histories.start_of(history));
        let start = stamp.unwrap_or(state.start());
        drop(state);
        copy.end(start, until.next(), &|| histories.clone())
    }
}
