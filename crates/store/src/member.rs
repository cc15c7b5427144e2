//! A store of a consensus group's member. Its log has records before the group has agreed on them; they are applied
//! when it has, an entry at a time. A leader's transactions are applied before that, so that a leader which loses its
//! office is opened again.

use crate::apply::ParsedEffects;
use crate::follow::{FollowError, ROOM_WAIT, RecordLocks, damaged};
use crate::role::Role;
use crate::stop::Mode;
use crate::store::Store;
use crate::store::members_row;
use haypile_log::{Body, Index, Kind, Next, Reader, Record, Through, body_crc, effects};
use parking_lot::MutexGuard;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The turn of an entry: no generation ends while its records are applied.
#[must_use]
pub struct EntryTurn<'s> {
    store: &'s Store,
    _turn: MutexGuard<'s, ()>,
}

impl Store {
    /// Puts the records of a leader's entry behind the log's last one. Their effects are not seen. Waits a moment for
    /// room.
    ///
    /// # Errors
    /// There is no room, or it is not the next entry of the group's history. Nothing has happened.
    pub fn keep(&self, records: &[Record<'_>]) -> Result<(), FollowError> {
        self.expect_to_follow()?;
        let Some(first) = records.first() else { return Ok(()) };
        if first.history != self.history() {
            return Err(damaged(first, format!("it is of history {}, not of {}", first.history, self.history())));
        }
        let reserved = self.log.reserve_entry(records, ROOM_WAIT).map_err(|error| self.on_refused(&error))?;
        self.log.append_entry(reserved, records).map_err(|error| damaged(first, error.to_string()))
    }

    /// Puts a record without effects behind the log's last one, as an entry of the group's leader; returns its index.
    /// Waits a moment for room.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn keep_own(&self, entry: (u64, u64), kind: Kind, time_ms: u64, body: &[u8]) -> Result<Index, FollowError> {
        self.expect_to_follow()?;
        let reserved = self.log.reserve_within(body.len(), ROOM_WAIT).map_err(|error| self.on_refused(&error))?;
        self.log.begin_entry(entry.0, entry.1);
        Ok(self.log.append(reserved, kind, time_ms, body, body_crc(body)))
    }

    /// Returns the last record whose effects are seen.
    pub fn applied_through(&self) -> Index {
        self.last_applied()
    }

    /// Begins to apply the next entry. Waits a moment for room in the memtable.
    ///
    /// # Errors
    /// There is no room.
    pub fn begin_entry(&self) -> Result<EntryTurn<'_>, FollowError> {
        self.expect_to_follow()?;
        self.wait_for_room_of_records()?;
        Ok(EntryTurn { store: self, _turn: self.entry_turn.lock() })
    }

    /// Applies records of the log through this one, which are written: whole entries. `reader` is where the last call
    /// has read. Returns false where there is no room for more now.
    ///
    /// # Errors
    /// A record is damaged, or cannot be read.
    pub fn apply_through(
        &self,
        reader: &mut Option<Reader>,
        through: Index,
        locks: &dyn RecordLocks,
    ) -> Result<bool, FollowError> {
        let mut turn: Option<((u64, u64), EntryTurn<'_>)> = None;
        while self.applied_through() < through {
            let after = self.applied_through();
            let mut from = match reader.take() {
                Some(reader) if reader.position() == after.next() => reader,
                _ => self.log.reader(after).through(Through::Written),
            };
            let record = match from.next().map_err(|error| FollowError::Damaged(error.to_string()))? {
                Next::Record(record) => record,
                Next::UpToDate => return Ok(false),
                Next::Gap(first) => return Err(FollowError::Damaged(format!("the log begins with record {first}"))),
            };
            let entry = (record.term, record.entry);
            if turn.as_ref().is_none_or(|(of, _)| *of != entry) {
                drop(turn.take());
                match self.begin_entry() {
                    Ok(next) => turn = Some((entry, next)),
                    Err(FollowError::Refused(_)) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            let (_, turn) = turn.as_ref().expect("the entry was just begun");
            turn.apply(&record, locks)?;
            *reader = Some(from);
        }
        Ok(true)
    }

    /// Returns what the last change that was applied says of the group's members.
    pub fn members(&self) -> Option<Arc<[u8]>> {
        self.members.read().clone()
    }

    /// Says who the members are of the group that begins with this store, which is in none yet. Waits for room.
    ///
    /// # Errors
    /// A text for people. Nothing has happened.
    pub fn found_group(&self, members: &[u8]) -> Result<(), String> {
        self.put_system(&[(&members_row(), Some(members))], Mode::Disk).map_err(|stop| format!("{stop:?}"))
    }

    /// Changes what is said of the group's members, as its leader: an entry of its own. Waits a moment for room.
    ///
    /// # Errors
    /// There is no room. Nothing has happened.
    pub fn change_members(&self, time_ms: u64, members: &[u8]) -> Result<Index, FollowError> {
        let mut body = Body::new();
        body.put(&[&members_row()], &[members]);
        let body = body.bytes();
        if !self.role.makes_records() {
            return Err(FollowError::Refused("the store does not lead".into()));
        }
        let reserved = self.log.reserve_within(body.len(), ROOM_WAIT).map_err(|error| self.on_refused(&error))?;
        let effects: Vec<_> = effects(body).map(|effect| effect.expect("it was just made")).collect();
        let mut latches = self.latch_all(&effects);
        let index = self.log.append_members(reserved, time_ms, body, body_crc(body));
        let mut effects = ParsedEffects { body, effects: &effects, below: HashMap::new() };
        self.apply(index, &mut effects, &mut latches, self.written_at(time_ms));
        drop(latches);
        self.after_commit();
        Ok(index)
    }

    /// Begins to make records, as the group's leader: from entry `first` of `term` on. No transaction runs meanwhile.
    ///
    /// # Panics
    /// All records of the log have been applied.
    pub fn lead_group(&self, term: u64, first: u64) {
        assert_eq!(self.role.get(), Role::Following, "a store begins to lead once");
        let _entry = self.entry_turn.lock();
        let _latches = self.memtable.latch_all_shards();
        assert_eq!(self.last_applied(), self.log.last(), "a leader begins with all that its log has");
        self.log.lead(term, first);
        self.role.set(Role::Leading);
    }
}

impl EntryTurn<'_> {
    /// Applies the next record of the entry, which is in the log.
    ///
    /// # Errors
    /// The record is damaged, or the locks are not given any more. Nothing has happened.
    ///
    /// # Panics
    /// It is the next one.
    pub fn apply(&self, record: &Record<'_>, locks: &dyn RecordLocks) -> Result<(), FollowError> {
        let applied = self.store.replayed.load(Ordering::Acquire);
        assert_eq!(record.index.0, applied + 1, "records are applied in their order");
        self.store.take(record, None, locks)
    }
}
