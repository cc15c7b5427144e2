//! The log of a member of a consensus group: each group of records is an entry, and a leader's entries are numbered as
//! they are written.
//!
//! A member's log holds entries that the group has not agreed on yet; what becomes of them is the member's to say. To
//! take records back, the log is opened again with `Options::keep_through`.

use crate::durable::Asked;
use crate::format::{Entry, EntrySpan, Index};
use crate::log::Log;
use crate::queue::NotNext;
use crate::record::Record;
use crate::reserve::{AppendError, Reservation};
use crate::state::RECORD_CHARGE_BYTES;
use std::time::Duration;

/// Returns the bytes for which a reservation has to be made that covers these records.
fn entry_bytes(records: &[Record<'_>]) -> usize {
    let bodies: usize = records.iter().map(|record| record.body.len()).sum();
    bodies + records.len().saturating_sub(1) * RECORD_CHARGE_BYTES as usize
}

impl Log {
    /// Has records confirmed by the word of a consensus group alone, from now on: see [`confirm`](Self::confirm).
    pub fn join_group(&self) {
        self.shared.reached.set_asked(Asked::Group);
    }

    /// Has records confirmed when they are as durable as asked: the group has no other member.
    pub fn leave_group(&self) {
        self.shared.reached.leave_group();
        self.shared.wake();
    }

    /// Records from here on are of this term and entry: their groups say so, and share none with the records before.
    /// Called under the latches that order the memtable.
    ///
    /// # Panics
    /// Terms and entries never go back.
    pub fn begin_entry(&self, term: u64, entry: u64) {
        self.shared.queue.lock().begin_entry(Entry { term, number: entry });
    }

    /// Takes room for the records of an entry, as `reserve_within` does for one.
    ///
    /// # Errors
    /// There is none.
    pub fn reserve_entry(&self, records: &[Record<'_>], limit: Duration) -> Result<Reservation<'_>, AppendError> {
        self.reserve_within(entry_bytes(records), limit)
    }

    /// Appends the records of a leader's entry: all of them in one group, so that all of them are there or none.
    ///
    /// # Errors
    /// The entry does not come next. Nothing has happened.
    ///
    /// # Panics
    /// The records have no gaps, and belong to one entry.
    pub fn append_entry(&self, reserved: Reservation<'_>, records: &[Record<'_>]) -> Result<(), NotNext> {
        let Some(first) = records.first() else { return Ok(()) };
        let entry = Entry { term: first.term, number: first.entry };
        let is_one = |record: &Record<'_>| (record.term, record.entry) == (entry.term, entry.number);
        assert!(records.iter().all(is_one), "the records belong to one entry");
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        let charge = self.redeem(reserved, entry_bytes(records));
        queue.append_entry(entry, records, charge, || shared.reached.synced())?;
        (first.index.0..=queue.last().0).for_each(|index| shared.reached.set_last(Index(index)));
        Ok(())
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

    /// Appends a leader's record that changes the members of its group, as an entry of its own; returns its index.
    /// Called under the latches that order the memtable.
    ///
    /// # Panics
    /// The log leads.
    pub fn append_members(&self, reserved: Reservation<'_>, time_ms: u64, body: &[u8], body_crc: u32) -> Index {
        let shared = &*self.shared;
        let charge = self.redeem(reserved, body.len());
        let mut queue = shared.queue.lock();
        let index = queue.append_members(time_ms, body, body_crc, charge, || shared.reached.synced());
        shared.reached.set_last(index);
        index
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
