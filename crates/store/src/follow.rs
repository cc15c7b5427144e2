//! A store that follows another one's log: each record goes into its own log at the same index and is applied as it was
//! there, under the same latches. Until it leads, it makes no record of its own.
//!
//! The leader applied a record while it held the locks of its keys. A reader that reads the follower in steps holds
//! them, too, so that the caller is asked for them: it is given the keys that the record names.

use crate::apply::staged::ROWS_AT_ONCE;
use crate::apply::{Latching, OneLatch, ParsedEffects, parse};
use crate::databases::is_database_row;
use crate::facts::is_fact_row;
use crate::refusal::Refusal;
use crate::role::Role;
use crate::row::{Key, parse_meta_row};
use crate::stop::Stop;
use crate::store::Store;
use haypile_log::{AppendError, Effect, HistoryStart, NotNext, Record, Reservation, effects};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a record waits for room in the log or the memtable before its caller looks whether it is still wanted.
pub(crate) const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Effects and keys of a record for which no memory is allocated: most records write one key, and its deadline.
const EFFECTS_INLINE: usize = 4;
const KEYS_INLINE: usize = 2;

/// The readers that a record must not come between.
#[derive(Clone, Copy, Debug)]
pub enum Named<'h> {
    /// Readers of these keys, in the order of their hashes, each once.
    Keys(&'h [Key<'h>]),
    /// All readers: the record changes which databases there are.
    Everything,
}

/// The locks of keys, as the part of a server that serves readers keeps them.
pub trait RecordLocks {
    /// Runs `apply`, once, while no reader reads the named keys; or not at all, where the store is not to change any
    /// more. May wait for readers.
    fn hold(&self, named: Named<'_>, apply: &mut dyn FnMut());
}

/// The reason why a record was not taken. Nothing has happened, and the caller may offer this record again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowError {
    /// The store or its log takes nothing now: it may be tried again.
    Refused(String),
    /// The record does not belong to this store.
    Damaged(String),
}

impl std::fmt::Display for FollowError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (FollowError::Refused(why) | FollowError::Damaged(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for FollowError {}

impl Store {
    /// Prefetches the rows of the first `TOGETHER_MAX` keys that records write: worth it for two records and more, and
    /// never wrong.
    pub fn prefetch_records<'r>(&self, records: impl Iterator<Item = Record<'r>>) {
        self.fetch(records.flat_map(|record| effects(record.body)).map_while(Result::ok));
    }

    /// Takes the next record of the log that this store follows. Waits a moment for room in the memtable and the log.
    /// One thread calls it.
    ///
    /// # Errors
    /// There is no room, the store leads, or its locks are not given any more; or the record is damaged, or not the
    /// next one of the history that this store is in. Nothing has happened.
    pub fn follow(&self, record: &Record<'_>, locks: &dyn RecordLocks) -> Result<(), FollowError> {
        self.expect_to_follow()?;
        let damaged = |why: String| damaged(record, why);
        if (record.history, record.index) != (self.history(), self.log.last().next()) {
            let (history, last) = (self.history(), self.log.last());
            return Err(damaged(format!(
                "it is of history {}, and history {history} ends with {last} here",
                record.history
            )));
        }
        self.wait_for_room_of_records()?;
        self.take(record, Some(self.reserve_for(record)?), locks)
    }

    /// Waits a moment for room in the memtable.
    pub(crate) fn wait_for_room_of_records(&self) -> Result<(), FollowError> {
        self.wait_for_room_within(ROOM_WAIT).map_err(|stop| match stop {
            Stop::Refused(why) => FollowError::Refused(why.to_string()),
            other => FollowError::Refused(format!("{other:?}")),
        })
    }

    /// Waits a moment for room in the log.
    pub(crate) fn reserve_for(&self, record: &Record<'_>) -> Result<Reservation<'_>, FollowError> {
        self.log.reserve_within(record.body.len(), ROOM_WAIT).map_err(|error| self.on_refused(&error))
    }

    /// Notes that the log takes no record now.
    pub(crate) fn on_refused(&self, error: &AppendError) -> FollowError {
        self.flush.on_log_refused(error);
        FollowError::Refused(error.to_string())
    }

    /// Applies a record while its keys are locked, and appends it before where there is room reserved for it: else it
    /// is in the log already.
    pub(crate) fn take(
        &self,
        record: &Record<'_>,
        reserved: Option<Reservation<'_>>,
        locks: &dyn RecordLocks,
    ) -> Result<(), FollowError> {
        let damaged = |why: String| damaged(record, why);
        let mut effects = SmallVec::<[Effect<'_>; EFFECTS_INLINE]>::new();
        if record.kind.has_effects() {
            parse(record.body, |effect| effects.push(effect)).map_err(damaged)?;
        }
        let keys = named_keys(&effects);
        let is_exchange = effects.iter().filter_map(Effect::key).any(|row| is_database_row(row) || is_fact_row(row));
        let named = if is_exchange { Named::Everything } else { Named::Keys(&keys) };
        // A flush that came late has left out the rows of spaces that had died since, and a group's member opens on its
        // base without the records in between: they come here.
        if self.databases.dead_count() > 0 {
            effects.retain(|effect| !self.is_of_dead_space(effect));
        }
        let below = self.rows_below_changes(&effects).map_err(damaged)?;
        let mut appended = Ok(());
        let mut taken = Some((reserved, ParsedEffects { body: record.body, effects: &effects, below }));
        locks.hold(named, &mut || {
            let (reserved, effects) = taken.take().expect("a record is applied once");
            appended = self.take_in(record, reserved, effects);
        });
        if taken.is_some() {
            return Err(FollowError::Refused("the store is not to change any more".into()));
        }
        appended.map_err(|error| damaged(error.to_string()))?;
        self.after_commit();
        Ok(())
    }

    /// Appends and applies a record while its keys are locked.
    fn take_in(
        &self,
        record: &Record<'_>,
        reserved: Option<Reservation<'_>>,
        effects: ParsedEffects<'_, '_>,
    ) -> Result<(), NotNext> {
        if effects.effects.len() > ROWS_AT_ONCE {
            let keys = effects.effects.iter().filter_map(Effect::key).filter_map(parse_meta_row);
            let _turn = self.staged.begin(keys);
            self.append_and_apply(record, reserved, effects, &mut OneLatch::new(&self.memtable))
        } else {
            let mut latches = self.latch_all(effects.effects);
            self.append_and_apply(record, reserved, effects, &mut latches)
        }
    }

    /// Appends and applies a record under the latches, or in a turn that keeps freezes out: a generation has all of a
    /// record and its index, or neither.
    fn append_and_apply<'l>(
        &self,
        record: &Record<'_>,
        reserved: Option<Reservation<'_>>,
        mut effects: ParsedEffects<'_, '_>,
        latches: &mut impl Latching<'l>,
    ) -> Result<(), NotNext> {
        if let Some(reserved) = reserved {
            self.log.append_at(reserved, record)?;
        }
        let before = self.replayed.load(Ordering::Acquire);
        debug_assert_eq!(record.index.0, before + 1, "records are applied in their order, without gaps");
        self.apply(record.index, &mut effects, latches, self.written_at(record.time_ms));
        // Stored under the latches: a freeze has either the record and its index, or neither.
        self.replayed.store(record.index.0, Ordering::Release);
        Ok(())
    }

    /// Goes on with the next history of the log that this store follows. Nothing is to be done for one in which the
    /// store stands already.
    ///
    /// # Errors
    /// The log cannot be written or synced, and it may be tried again; or the history does not fork right behind the
    /// last record from one that this store [stands](haypile_log::Histories::standing) in; or the store leads.
    pub fn follow_history(&self, start: HistoryStart) -> Result<(), FollowError> {
        self.expect_to_follow()?;
        let (history, last, histories) = (self.history(), self.log.last(), self.log.histories());
        let is_known = histories.starts().iter().any(|known| known.history == start.history);
        if start.history != history && histories.standing(last).any(|standing| standing == start.history) {
            return Ok(());
        }
        let forks = |standing| start.parent() == Some((standing, last));
        if start.history != history && (is_known || !histories.standing(last).any(forks)) {
            let why = format!("history {} does not go on where history {history} ends with {last} here", start.history);
            return Err(FollowError::Damaged(why));
        }
        self.log.follow_history(start).map_err(|error| FollowError::Refused(error.to_string()))
    }

    /// A store that leads makes its records and histories itself.
    pub(crate) fn expect_to_follow(&self) -> Result<(), FollowError> {
        let follows = self.follows();
        follows.then_some(()).ok_or_else(|| FollowError::Refused("the store does not follow".into()))
    }

    /// Returns whether the store follows another one's log.
    pub fn follows(&self) -> bool {
        self.role.get() == Role::Following
    }

    /// Returns whether the store makes records of its own.
    pub fn makes_records(&self) -> bool {
        self.role.makes_records()
    }

    /// Returns whether the store takes no writes of clients: it follows, was told to stop leading, or repeats the
    /// commands of another server.
    #[inline]
    pub fn takes_no_writes(&self) -> bool {
        self.role.refuses_writes()
    }

    /// Returns why clients' writes are refused whatever room there is, if they are.
    #[inline]
    pub fn refusal_of_writes(&self) -> Option<Refusal> {
        self.role.refusal()
    }

    /// Returns why the disk or the log takes no writes that make the data larger, if they do not.
    pub fn refusal_of_disk(&self) -> Option<Refusal> {
        self.flush.stopped(false)
    }

    /// Refuses clients' writes while too few replicas follow.
    pub fn set_lacks_replicas(&self, lacks: bool) {
        self.role.set_lacks_replicas(lacks);
    }

    /// Refuses all writes while another store is about to lead in the place of this one.
    pub fn set_hands_over(&self, hands_over: bool) {
        self.role.set_hands_over(hands_over);
    }

    /// Returns whether a store that leads was told to stop that.
    pub fn is_about_to_follow(&self) -> bool {
        self.role.is_about_to_follow()
    }

    /// Takes back what `stop_leading` has said.
    pub fn stay_leader(&self) {
        self.role.stay_leader();
    }

    /// Refuses all writes from now on: the store is going to be closed, and opened again as one that follows.
    pub fn stop_leading(&self) {
        self.role.refuse_writes();
    }

    /// Ends following: from here on the store makes records of its own, in a history that forks behind the last one
    /// that it took. Objects that the former leader had not finished are garbage, and their ids are never used again.
    /// The caller sees to it that nothing runs.
    ///
    /// # Errors
    /// The log cannot be written or synced. The store follows still.
    pub fn lead(&self) -> Result<HistoryStart, FollowError> {
        assert_eq!(self.role.get(), Role::Following, "a store begins to lead once");
        let start = self.log.begin_history().map_err(|error| FollowError::Refused(error.to_string()))?;
        self.role.set(Role::Leading);
        self.state_as_leader();
        Ok(start)
    }
}

/// Returns the error of a record that does not belong to a store.
pub(crate) fn damaged(record: &Record<'_>, why: String) -> FollowError {
    FollowError::Damaged(format!("record {}: {why}", record.index))
}

/// Returns the keys that a record names, in the order of their hashes, each once.
fn named_keys<'e>(effects: &[Effect<'e>]) -> SmallVec<[Key<'e>; KEYS_INLINE]> {
    let mut keys = SmallVec::<[Key<'e>; KEYS_INLINE]>::new();
    for key in effects.iter().filter_map(Effect::key).filter_map(parse_meta_row) {
        keys.push(key);
    }
    if keys.len() > 1 {
        keys.sort_unstable_by_key(|key| (key.hash, key.space, key.name));
        keys.dedup_by_key(|key| (key.hash, key.space, key.name));
    }
    keys
}
