//! The log of a member of a consensus group: each group of records is an entry, and a leader's entries are numbered as
//! they are written.
//!
//! A member's log holds entries that the group has not agreed on yet; what becomes of them is the member's to say. To
//! take records back, the log is opened again with `Options::keep_through`.

use crate::durable::Asked;
use crate::format::{Entry, EntrySpan};
use crate::log::Log;

impl Log {
    /// Has records confirmed by the word of a consensus group alone, from now on: see [`confirm`](Self::confirm).
    pub fn join_group(&self) {
        self.shared.reached.set_asked(Asked::Group);
    }

    /// Records from here on are of this term and entry: their groups say so, and share none with the records before.
    /// Called under the latches that order the memtable.
    ///
    /// # Panics
    /// Terms and entries never go back.
    pub fn begin_entry(&self, term: u64, entry: u64) {
        self.shared.queue.lock().begin_entry(Entry { term, number: entry });
    }

    /// Records from here on are entries of this log as its group's leader: one for each group that is written, numbered
    /// from `first` on. Called under the latches that order the memtable.
    ///
    /// # Panics
    /// Terms and entries never go back; a log leads once.
    pub fn lead(&self, term: u64, first: u64) {
        let mut state = self.shared.state.lock();
        self.shared.queue.lock().lead(Entry { term, number: first });
        state.led = Some(Vec::new());
    }

    /// Ends the entry that a leader's newest record belongs to. Called under the latches that order the memtable.
    pub fn end_entry(&self) {
        self.shared.queue.lock().end_entry();
    }

    /// Returns the entries of this leader that were handed to the operating system since the last call, in order.
    pub fn take_entries(&self) -> Vec<EntrySpan> {
        self.shared.state.lock().led.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends the log's threads without writing or syncing anything more: what has not been written never will be.
    pub fn abandon(&self) {
        let mut state = self.shared.state.lock();
        state.closing = true;
        self.shared.set_limit(&state);
        drop(state);
        self.stop();
    }
}
