//! The commit: from a transaction's own writes to a record in the log and rows in the memtable, in one step of two
//! halves.
//!
//! Under the latches of the shards that the transaction writes, taken in order, the record gets its index, then its
//! effects are applied (`apply`). So the order in the log is the order in the memtable for every key, and a freeze,
//! which takes all latches, never sees half. A transaction of very many rows is applied in steps (`staged`).

use crate::apply::staged::ROWS_AT_ONCE;
use crate::apply::{Effects, Latching, OneLatch, ParsedEffects, Write, Written, latch_all, parse};
use crate::base::{Lookup, Tier};
use crate::databases::CountChanges;
use crate::facts::fact_row;
use crate::memtable::Found;
use crate::objects::lease_row;
use crate::reclaim::Orphan;
use crate::reclaim::intent::{intent_row, intent_value};
use crate::refusal::Refusal;
use crate::row::{Family, Key, ObjectId, Space, parse_meta_row, space_of};
use crate::stop::{Mode, Stop};
use crate::store::Store;
use crate::txn::Txn;
use crate::txn::own::{Overlay, print_of_row};
use crate::value::Value;
use haypile_log::{AppendError, Body, Index, Kind, Reservation, body_crc};
use std::collections::HashMap;
use std::collections::HashSet;
use std::time::Duration;

/// How long a record that is written ahead lets threads that may not wait go first.
const LEAVE_ROOM_WAIT: Duration = Duration::from_secs(1);

/// How long a command on the I/O pool waits for room in the log or the memtable.
pub(crate) const ROOM_WAIT: Duration = Duration::from_secs(10);

/// A longer record that is applied in steps goes to the disk meanwhile, so that its copy in the log's memory is gone
/// soon. Nobody waits for that: others who commit in steps, event loops among them, would wait as well.
const SYNCED_FROM_BYTES: usize = 8 << 20;

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The transaction's record; `None` if there was nothing to write.
    pub index: Option<Index>,
    /// The newest record that the reply depends on.
    pub gate: Index,
}

/// A record that has room in the log, and gets its index with its effects.
#[must_use]
pub(crate) struct Proposal<'s> {
    reserved: Reservation<'s>,
    body_crc: u32,
    time_ms: u64,
}

/// The effects of a transaction: those written ahead, or the rest.
struct OwnEffects<'t> {
    pub overlay: &'t mut Overlay,
    pub is_ahead: bool,
    pub counts: &'t CountChanges,
}

impl Effects for OwnEffects<'_> {
    #[inline]
    fn body(&self) -> &[u8] {
        if self.is_ahead { self.overlay.ahead_body() } else { self.overlay.body_bytes() }
    }

    #[inline]
    fn take_writes(&mut self, mut apply: impl FnMut(Write<'_>)) {
        let apply = |row: &[u8], op, value: &[u8], before| apply(Write { row, op, value, before });
        if self.is_ahead { self.overlay.on_written_ahead(apply) } else { self.overlay.take_writes(false, apply) }
    }

    #[inline]
    fn counts(&self, mut add: impl FnMut(Space, u8, i64)) {
        if !self.is_ahead {
            self.counts.iter().for_each(|&(space, counter, delta)| add(space, counter as u8, delta));
        }
    }
}

impl Txn<'_> {
    /// Makes all writes visible at once and hands them to the log; or fails with no effect at all.
    pub fn commit(&mut self) -> Result<Committed, Stop> {
        assert!(!self.is_dry_run(), "a run without key locks never commits");
        assert!(!self.committed, "a transaction commits once");
        if !self.is_read_only() {
            // A MULTI block of which a command was ended must not commit: half of it would take effect.
            self.goes_on()?;
            if let Some(repeated) = self.repeated {
                self.note_origin(repeated)?;
            }
        }
        for object in self.ahead.iter().filter(|_| !self.store.options.memory_only) {
            let row = intent_row(object.id);
            self.overlay.delete(print_of_row(&row), &[&row], false);
        }
        self.overlay.join();
        let rows_bytes = self.overlay.main_bytes();
        self.name_keys();
        for &(space, counter, delta) in self.counts.iter().filter(|(_, _, delta)| *delta != 0) {
            self.overlay.body().count(space.0, counter as u8, delta);
        }
        if self.states {
            self.add_statements();
        }
        let body = self.overlay.body_bytes();
        if body.is_empty() {
            return Ok(Committed { index: None, gate: self.gate.get() });
        }
        let store = self.store;
        // Invariant: while the store repeats another server's commands, no other transaction commits, whenever it was
        // admitted.
        if self.repeated.is_none() && store.role.repeats() {
            self.overlay.body().truncate(rows_bytes);
            return Err(Stop::Refused(Refusal::Follows));
        }
        let proposal = match store.propose(body, self.call.now_ms, self.call.mode) {
            Ok(proposal) => proposal,
            Err(stop) => {
                self.overlay.body().truncate(rows_bytes);
                return Err(stop);
            }
        };
        let index = if self.overlay.len() > ROWS_AT_ONCE {
            let named = self.named.iter().map(|row| &row[..]);
            let keys = self.overlay.keys().chain(named).filter_map(parse_meta_row);
            // An event loop does not wait for the commit of a million rows: its command moves to the I/O pool.
            let turn = match self.call.mode {
                Mode::Memory => store.staged.try_begin(keys),
                _ => Some(store.staged.begin(keys)),
            };
            let Some(_turn) = turn else {
                drop(proposal);
                self.overlay.body().truncate(rows_bytes);
                return Err(Stop::Long);
            };
            self.overlay.seal();
            self.take_effect(proposal, &mut OneLatch::new(&store.memtable))
        } else {
            self.take_effect(proposal, &mut latch_all(&store.memtable, self.overlay.keys()))
        };
        store.after_commit();
        self.committed = true;
        debug_assert!(self.gate.get() <= index, "a record comes after all that its transaction has read");
        self.gate.rise(index);
        Ok(Committed { index: Some(index), gate: self.gate.get() })
    }

    /// Returns whether the transaction has taken effect.
    pub fn has_committed(&self) -> bool {
        self.committed
    }

    /// Names in the record the keys whose elements change while their meta rows stay.
    fn name_keys(&mut self) {
        // A transaction that changed nothing makes no record.
        if self.overlay.is_empty() {
            return;
        }
        if self.named.len() > 1 {
            self.named.sort_unstable();
            self.named.dedup();
        }
        for row in &self.named {
            if self.overlay.find_row(row).is_none() {
                self.overlay.body().touch(row);
            }
        }
    }

    /// Returns whether the record names, for each element that it will write, a key by the meta row where the element
    /// lies: the locks of these keys keep readers of a follower out. An object stays where it was made when its key is
    /// renamed: then both names are there, and only the space is the same.
    pub fn names_all_keys(&self) -> bool {
        let named = self.overlay.keys().chain(self.named.iter().map(|row| &row[..])).filter_map(parse_meta_row);
        let spaces: HashSet<_> = named.map(|key| key.space).collect();
        let is_element = |row: &&[u8]| matches!(Family::of(row), Some(Family::Data | Family::Score));
        self.overlay.keys().filter(is_element).all(|row| space_of(row).is_some_and(|space| spaces.contains(&space)))
    }

    /// Shows the keys whose meta rows the transaction writes and leaves there, each with the row: for assertions.
    pub fn visit_left(&self, mut visit: impl FnMut(&Key<'_>, &[u8])) {
        for (at, row) in self.overlay.keys().enumerate() {
            let Some(key) = parse_meta_row(row).filter(|_| self.overlay.find_row(row) == Some(at)) else { continue };
            if let Some(left) = self.overlay.look(at) {
                visit(&key, &left);
            }
        }
    }

    /// Returns a row as the transaction leaves it, as far as memory tells; `None` where the disk would have to be read:
    /// for assertions.
    pub fn left_in_memory(&self, row: &[u8]) -> Option<Option<Value>> {
        if let Some(at) = self.overlay.find_row(row) {
            return Some(self.overlay.read(at));
        }
        match self.store.memtable.row(row) {
            Found::Row(value, _) => Some(Some(value)),
            Found::Deleted(_) => Some(None),
            Found::Unknown => match self.store.base.get(row, Tier::Memory) {
                Ok(Lookup::Row(value)) => Some(Some(value)),
                Ok(Lookup::Absent) => Some(None),
                Ok(Lookup::WouldBlock) | Err(_) => None,
            },
        }
    }

    /// Gives the record of all writes that were not written ahead its effect, under these latches, and stamps the keys
    /// that it writes.
    #[inline(always)]
    fn take_effect<'l>(&mut self, proposal: Proposal<'_>, latches: &mut impl Latching<'l>) -> Index {
        let written = self.written();
        let mut effects = OwnEffects { overlay: &mut self.overlay, is_ahead: false, counts: &self.counts };
        let index = self.store.carry_out(proposal, &mut effects, latches, written);
        if let Some(own) = &self.accesses {
            self.stamp_written_keys(own, latches);
        }
        index
    }

    /// Writes rows of this transaction's own objects ahead of the rest, as a record of their own.
    pub(crate) fn write_ahead(&mut self) -> Result<(), Stop> {
        match self.call.mode {
            Mode::Memory | Mode::Look | Mode::Load => return Err(Stop::Long),
            Mode::Disk => {}
        }
        self.goes_on()?;
        let store = self.store;
        store.wait_for_room()?;
        self.note_ahead();
        let body = self.overlay.ahead_body();
        store.log.leave_room(body.len(), LEAVE_ROOM_WAIT);
        let proposal = store.propose(body, self.call.now_ms, self.call.mode)?;
        let mut latches = latch_all(&store.memtable, self.overlay.keys_of(true));
        let written = self.written();
        let mut effects = OwnEffects { overlay: &mut self.overlay, is_ahead: true, counts: &self.counts };
        store.carry_out(proposal, &mut effects, &mut latches, written);
        drop(latches);
        store.after_commit();
        store.log.write();
        Ok(())
    }

    /// Notes the objects whose first rows are about to be written ahead; in the log, an intent says so.
    fn note_ahead(&mut self) {
        let noted = self.ahead.len();
        for object in self.overlay.keys_of(true).filter_map(Orphan::of) {
            if self.ahead.last() != Some(&object) && !self.ahead.contains(&object) {
                self.ahead.push(object);
            }
        }
        if self.store.options.memory_only {
            // Without a base, the log is never read again, and needs no intents.
            return;
        }
        for object in &self.ahead[noted..] {
            let row = intent_row(object.id);
            self.overlay.put(print_of_row(&row), &[&row], &[&intent_value(object)], true);
        }
    }
}

impl Store {
    /// Takes room in the log for a record. Where that has to wait for the disk, an event loop moves the command to the
    /// I/O pool.
    #[inline]
    pub(crate) fn reserve(&self, body_bytes: usize, mode: Mode) -> Result<Reservation<'_>, Stop> {
        let reserved = match mode {
            Mode::Memory | Mode::Look => self.log.reserve(body_bytes),
            Mode::Load | Mode::Disk => self.log.reserve_within(body_bytes, ROOM_WAIT),
        };
        reserved.map_err(|error| match error {
            AppendError::Busy if mode == Mode::Memory => Stop::Long,
            error => {
                self.flush.on_log_refused(&error);
                Stop::Refused(Refusal::LogFailed(error.to_string()))
            }
        })
    }

    /// Returns a fresh object id.
    pub(crate) fn issue_object(&self, mode: Mode) -> Result<ObjectId, Stop> {
        let lease = |until: u64, waits: bool| {
            let mode = if waits { mode } else { Mode::Memory };
            self.put_system(&[(&lease_row(), Some(&until.to_be_bytes()))], mode)
        };
        // An event loop that finds the lease used up while another thread asks for more goes to the I/O pool.
        self.objects.issue(mode == Mode::Disk, lease)?.ok_or(Stop::Long)
    }

    /// Writes facts that no transaction looks at, which needs no lock, or removes them; returns the record.
    ///
    /// # Errors
    /// The store does not lead, or the log has no room: nothing has happened.
    pub fn put_facts(&self, facts: &[(Vec<u8>, Option<Vec<u8>>)], mode: Mode) -> Result<Index, Stop> {
        let rows: Vec<_> = facts.iter().map(|(name, value)| (fact_row(name), value)).collect();
        let rows: Vec<(&[u8], Option<&[u8]>)> = rows.iter().map(|(row, value)| (&row[..], value.as_deref())).collect();
        self.put_system_at(&rows, mode)
    }

    /// Makes a record that says this and does nothing.
    ///
    /// # Errors
    /// The store does not lead, or the log has no room.
    pub fn put_statement(&self, text: &[u8], mode: Mode) -> Result<Index, Stop> {
        let mut body = Body::new();
        body.statement(None, &[text]);
        self.commit_own(body.bytes(), crate::now_ms(), mode)
    }

    /// Writes system rows of the store's own as a record.
    pub(crate) fn put_system(&self, rows: &[(&[u8], Option<&[u8]>)], mode: Mode) -> Result<(), Stop> {
        self.put_system_at(rows, mode).map(drop)
    }

    fn put_system_at(&self, rows: &[(&[u8], Option<&[u8]>)], mode: Mode) -> Result<Index, Stop> {
        let mut body = Body::new();
        for (row, value) in rows {
            match value {
                Some(value) => body.put(&[row], &[value]),
                None => body.delete(&[row]),
            };
        }
        self.commit_own(body.bytes(), crate::now_ms(), mode)
    }

    /// Takes room in the log for a record with this body: the part of a commit that may fail or wait.
    #[inline]
    pub(crate) fn propose(&self, body: &[u8], time_ms: u64, mode: Mode) -> Result<Proposal<'_>, Stop> {
        // Invariant: only a store that leads makes records, and none as soon as it is told to stop: not even of its own
        // rows, behind the record from which on another one leads. It is asked all the same, by runs that were admitted
        // before.
        if !self.role.makes_records() {
            return Err(Stop::Refused(Refusal::Follows));
        }
        Ok(Proposal { reserved: self.reserve(body.len(), mode)?, body_crc: body_crc(body), time_ms })
    }

    /// Gives a record its index and applies it. The caller holds the latches of all rows that it writes.
    #[inline(always)]
    fn carry_out<'l, L: Latching<'l>>(
        &self,
        proposal: Proposal<'_>,
        effects: &mut impl Effects,
        latches: &mut L,
        written: Written,
    ) -> Index {
        let Proposal { reserved, body_crc, time_ms } = proposal;
        let index = self.log.append(reserved, Kind::Effects, time_ms, effects.body(), body_crc);
        if L::ONE_BY_ONE && effects.body().len() > SYNCED_FROM_BYTES {
            self.log.write();
            self.log.request_sync();
        }
        self.apply(index, effects, latches, written);
        index
    }

    /// Commits a record of the store's own system rows.
    pub(crate) fn commit_own(&self, body: &[u8], now_ms: u64, mode: Mode) -> Result<Index, Stop> {
        let mut effects = Vec::new();
        parse(body, |effect| effects.push(effect)).map_err(Stop::Failed)?;
        let proposal = self.propose(body, now_ms, mode)?;
        let mut latches = self.latch_all(&effects);
        let mut effects = ParsedEffects { body, effects: &effects, below: HashMap::new() };
        let index = self.carry_out(proposal, &mut effects, &mut latches, self.written_at(now_ms));
        drop(latches);
        self.after_commit();
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memory_store;
    use crate::txn::{Call, TxnBuffers};

    #[test]
    fn an_event_loop_does_not_wait_for_a_commit_that_is_applied_in_steps() {
        let store = memory_store();
        let run = |mode, rows: usize| {
            let call = Call { now_ms: 1, seed: 1, database: 0, mode, pins: None };
            let mut txn = store.begin(TxnBuffers::default(), call);
            for row in 0..rows {
                let name = row.to_string();
                let key = txn.key(name.as_bytes());
                txn.put_meta(&key, &[b"v"])?;
            }
            txn.commit().map(|committed| committed.index)
        };
        let turn = store.staged.keep_out();
        let before = store.log.last();
        assert_eq!(run(Mode::Memory, ROWS_AT_ONCE + 1), Err(Stop::Long));
        assert_eq!(store.log.last(), before, "it has no effect");
        assert!(run(Mode::Memory, ROWS_AT_ONCE).is_ok_and(|index| index > Some(before)), "fewer rows take no turn");
        drop(turn);
        assert!(run(Mode::Memory, ROWS_AT_ONCE + 1).is_ok());
        assert!(run(Mode::Disk, ROWS_AT_ONCE + 1).is_ok());
    }
}
